//! Requests: a run input as the body of `POST …/chat/completions`.
//!
//! OpenAI rejects a conversation in which a tool call has no result, or in which a result does not directly follow its
//! call. Conversations of clients violate this (a person continues without answering, a client sends results late), so
//! results are moved and missing ones are filled in.

use std::collections::HashMap;

use serde_json::{Map, Value, json};

use crate::{
    event::{Content, ContentPart, MediaKind, Message, MessageBody, PartSource, RunInput, Tool, ToolCall},
    format::model_api::input::{MISSING_RESULT, add_tools, context_text, filename, parameters, results},
};

pub use crate::format::model_api::input::ModelConfig;

/// The body of a request for a streamed response.
///
/// ```
/// use agentwire_core::{event::{Message, RunInput}, format::openai::input::{ModelConfig, to_json}};
/// let mut input = RunInput::new("t", "r");
/// input.messages.push(Message::user("m", "Hello"));
/// let body = to_json(&input, ModelConfig { name: "gpt-4o", system: None });
/// assert!(body.starts_with(r#"{"model":"gpt-4o","messages":[{"role":"user","content":"Hello"}],"stream":true"#));
/// ```
#[must_use]
pub fn to_json(input: &RunInput, model: ModelConfig<'_>) -> String {
    to_json_with(input, model, &Map::new())
}

/// Members of a request that options cannot override: the model, the conversation, and streaming, on which the reader
/// depends.
pub const RESERVED_MEMBERS: &[&str] = &["model", "messages", "stream"];

/// Like [`to_json`], with further members such as `temperature`. [`RESERVED_MEMBERS`] in `options` are ignored; `tools` in
/// `options` precede the front-end tools.
///
/// ```
/// use agentwire_core::{event::RunInput, format::openai::input::{ModelConfig, to_json_with}};
/// let options = serde_json::json!({"temperature": 0.2, "stream": false});
/// let body = to_json_with(&RunInput::new("t", "r"), ModelConfig { name: "m", system: None }, options.as_object().unwrap());
/// assert!(body.contains(r#""temperature":0.2"#) && body.contains(r#""stream":true"#));
/// ```
#[must_use]
pub fn to_json_with(input: &RunInput, model: ModelConfig<'_>, options: &Map<String, Value>) -> String {
    let mut body = json!({
        "model": model.name,
        "messages": messages(input, model.system),
        "stream": true,
        "stream_options": {"include_usage": true},
    });
    for (name, value) in options {
        if !RESERVED_MEMBERS.contains(&&**name) {
            body[name] = value.clone();
        }
    }
    add_tools(&mut body, input.tools.iter().map(tool));
    body.to_string()
}

fn messages(input: &RunInput, system: Option<&str>) -> Vec<Value> {
    let mut list = Vec::new();
    let mut push = |role: &str, content: &str| list.push(json!({"role": role, "content": content}));
    if let Some(system) = system.filter(|system| !system.is_empty()) {
        push("system", system);
    }
    if !input.context.is_empty() {
        push("system", &context_text(&input.context));
    }
    let results = results(&input.messages);
    // Reasoning details of a reasoning message are sent back with the next assistant message.
    let mut sealed = None;
    for message in &input.messages {
        match &message.body {
            // Compatible servers do not support the role `developer`; OpenAI treats both roles alike.
            MessageBody::System { content } | MessageBody::Developer { content } => {
                list.push(with_name(json!({"role": "system", "content": content}), message));
            }
            MessageBody::User { content } => {
                let user = json!({"role": "user", "content": user_content(content)});
                list.push(with_name(user, message));
            }
            MessageBody::Assistant { content, tool_calls } => {
                let calls = tool_calls.as_deref().unwrap_or_default();
                let content = content.as_deref().filter(|content| !content.is_empty());
                if content.is_none() && calls.is_empty() {
                    continue;
                }
                let mut assistant = json!({"role": "assistant", "content": content});
                if !calls.is_empty() {
                    assistant["tool_calls"] = calls.iter().map(tool_call).collect();
                }
                let own = message.encrypted.as_deref().and_then(reasoning_details);
                if let Some(details) = own.or_else(|| sealed.take()) {
                    assistant["reasoning_details"] = details;
                }
                list.push(with_name(assistant, message));
                push_results(calls, &results, &mut list);
            }
            MessageBody::Reasoning { .. } => {
                sealed = message.encrypted.as_deref().and_then(reasoning_details).or(sealed);
            }
            // Results were added behind their calls; activities are only for the client.
            MessageBody::Tool { .. } | MessageBody::Activity { .. } => {}
        }
    }
    list
}

/// Adds the results of the calls of one message, in the order of the calls. A result cannot contain media, so they
/// follow in a user message.
fn push_results(calls: &[ToolCall], results: &HashMap<&str, &Message>, list: &mut Vec<Value>) {
    let mut media = Vec::new();
    for call in calls {
        let mut text = MISSING_RESULT.to_owned();
        let result = results.get(call.id.as_str()).map(|message| &message.body);
        if let Some(MessageBody::Tool { content, error, .. }) = result {
            text = content.text();
            if let (true, Some(error)) = (text.is_empty(), error) {
                text = format!("Error: {error}");
            }
            if let Content::Parts(parts) = content {
                media.extend(parts.iter().filter(|part| matches!(part, ContentPart::Media { .. })).map(part));
            }
        }
        list.push(json!({"role": "tool", "tool_call_id": call.id.as_str(), "content": text}));
    }
    if !media.is_empty() {
        list.push(json!({"role": "user", "content": media}));
    }
}

/// Adds the name of the author, if the API accepts it.
fn with_name(mut value: Value, message: &Message) -> Value {
    let is_accepted = |name: &&str| {
        (1..=64).contains(&name.len())
            && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'))
    };
    if let Some(name) = message.name.as_deref().filter(is_accepted) {
        value["name"] = name.into();
    }
    value
}

/// The `reasoning_details` in an encrypted value; `None` if the value is from another provider.
fn reasoning_details(sealed: &str) -> Option<Value> {
    let value: Value = serde_json::from_str(sealed).ok()?;
    let is_detail = |detail: &Value| {
        detail.get("type").and_then(Value::as_str).is_some_and(|kind| kind.starts_with("reasoning."))
    };
    value.as_array().is_some_and(|list| !list.is_empty() && list.iter().all(is_detail)).then_some(value)
}

fn tool(tool: &Tool) -> Value {
    let mut function = json!({"name": tool.name, "parameters": parameters(tool)});
    if !tool.description.is_empty() {
        function["description"] = (&*tool.description).into();
    }
    json!({"type": "function", "function": function})
}

fn tool_call(call: &ToolCall) -> Value {
    // Servers parse the arguments, and an empty string is not JSON.
    let arguments = if call.arguments.trim().is_empty() { "{}" } else { &call.arguments };
    json!({"id": call.id.as_str(), "type": "function", "function": {"name": call.name, "arguments": arguments}})
}

fn user_content(content: &Content) -> Value {
    match content {
        Content::Text(text) => (&**text).into(),
        // Servers without support for content parts accept a string.
        Content::Parts(parts)
            if parts.iter().all(|part| matches!(part, ContentPart::Text { .. })) && parts.len() < 2 =>
        {
            content.text().into()
        }
        Content::Parts(parts) => parts.iter().map(part).collect(),
    }
}

fn part(part: &ContentPart) -> Value {
    let (kind, source) = match part {
        ContentPart::Text { text, .. } => return json!({"type": "text", "text": text}),
        ContentPart::Media { kind, source, .. } => (*kind, source),
    };
    let url = match source {
        PartSource::Data { value, mime_type } => format!("data:{mime_type};base64,{value}"),
        PartSource::Url { value, .. } => value.to_string(),
        PartSource::File { value, .. } => return json!({"type": "file", "file": {"file_id": value}}),
    };
    match (kind, source) {
        (MediaKind::Image, _) => json!({"type": "image_url", "image_url": {"url": url}}),
        (MediaKind::Audio, PartSource::Data { value, mime_type }) => {
            json!({"type": "input_audio", "input_audio": {"data": value, "format": audio_format(mime_type)}})
        }
        (MediaKind::Audio, _) => json!({"type": "audio_url", "audio_url": {"url": url}}),
        (MediaKind::Video, _) => json!({"type": "video_url", "video_url": {"url": url}}),
        (MediaKind::Document, _) => {
            json!({"type": "file", "file": {"filename": filename(source), "file_data": url}})
        }
    }
}

/// The API's name of an audio format.
fn audio_format(mime_type: &str) -> &str {
    match mime_type {
        "audio/mpeg" | "audio/mp3" => "mp3",
        "audio/wav" | "audio/x-wav" | "audio/wave" => "wav",
        other => other.split_once('/').map_or(other, |(_, kind)| kind),
    }
}
