//! Requests: the parts of a run input that all providers take alike.

use std::collections::HashMap;

use serde_json::{Value, json};

use crate::{
    event::{Context, Message, MessageBody, PartSource, RunInput, Tool},
    json::Json,
};

/// The result of a call without one.
pub(in crate::format) const MISSING_RESULT: &str = "The call was not answered.";

/// The model and its system message.
#[derive(Clone, Copy, Debug)]
pub struct ModelConfig<'m> {
    /// The model's name.
    pub name: &'m str,
    /// A system message before the conversation.
    pub system: Option<&'m str>,
}

/// The tool messages of a conversation by their call; the last one of a call counts.
pub(in crate::format) fn results(messages: &[Message]) -> HashMap<&str, &Message> {
    let mut results = HashMap::new();
    for message in messages {
        if let MessageBody::Tool { call, .. } = &message.body {
            results.insert(call.as_str(), message);
        }
    }
    results
}

/// The instructions before a conversation: those of the configuration, then the context of the client.
pub(in crate::format) fn instructions(input: &RunInput, model: ModelConfig<'_>) -> Option<String> {
    let system = model.system.filter(|system| !system.is_empty()).map(str::to_owned);
    let context = (!input.context.is_empty()).then(|| context_text(&input.context));
    match (system, context) {
        (Some(system), Some(context)) => Some(format!("{system}\n\n{context}")),
        (system, context) => system.or(context),
    }
}

/// The context of the client, as a text for the model.
pub(in crate::format) fn context_text(context: &[Context]) -> String {
    let mut text = String::from("Context of the conversation:");
    for Context { description, value } in context {
        text.push_str("\n\n");
        if !description.is_empty() {
            text.push_str(description);
            text.push_str(":\n");
        }
        text.push_str(value);
    }
    text
}

/// The JSON Schema of a tool's arguments: providers accept objects only.
pub(in crate::format) fn parameters(tool: &Tool) -> Value {
    let parameters = tool.parameters.as_ref().map(Json::to_value).filter(Value::is_object);
    parameters.unwrap_or_else(|| json!({"type": "object", "properties": {}}))
}

/// Adds the tools of the front end behind the configured ones; no member for none, because servers reject an empty list.
pub(in crate::format) fn add_tools(body: &mut Value, front_end: impl Iterator<Item = Value>) {
    let configured = body["tools"].as_array().cloned().unwrap_or_default();
    let tools: Vec<_> = configured.into_iter().chain(front_end).collect();
    if !tools.is_empty() {
        body["tools"] = tools.into();
    } else if let Some(body) = body.as_object_mut() {
        body.remove("tools");
    }
}

/// The filename of a document, which APIs require: the last segment of the URL, or a default.
pub(in crate::format) fn filename(source: &PartSource) -> String {
    let last = match source {
        PartSource::Url { value, .. } => {
            let path = value.split(['?', '#']).next().unwrap_or_default();
            path.rsplit('/').next().unwrap_or_default()
        }
        _ => "",
    };
    if !last.is_empty() {
        return last.to_owned();
    }
    match source.mime_type().and_then(|mime| mime.split_once('/')) {
        Some((_, "pdf")) => "document.pdf".into(),
        Some(("text", "plain")) => "document.txt".into(),
        _ => "document".into(),
    }
}
