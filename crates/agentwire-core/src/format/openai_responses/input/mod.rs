//! Requests: a run input as the body of `POST …/responses`.
//!
//! The request is complete in itself: nothing is stored at the provider (`store: false`), so reasoning comes back encrypted
//! and is sent again with the next turn. The API rejects a call without an output, so missing ones are filled in.

use std::collections::HashMap;

use serde_json::{Map, Value, json};

use super::wire::APPROVAL_REQUEST;
use crate::{
    event::{
        Content, ContentPart, MediaKind, Message, MessageBody, PartSource, ResumeEntry, ResumeStatus,
        RunInput, Tool, ToolCall,
    },
    format::model_api::input::{MISSING_RESULT, add_tools, filename, instructions, parameters, results},
    json::Json,
};

pub use crate::format::model_api::input::ModelConfig;

/// Members of a request that options cannot override: the model, the conversation, and streaming, on which the reader
/// depends.
pub const RESERVED_MEMBERS: &[&str] =
    &["model", "input", "stream", "background", "conversation", "previous_response_id"];

/// The body of a request for a streamed response, with further members such as `reasoning`.
/// [`RESERVED_MEMBERS`] in `options` are ignored; `tools` in `options` precede the front-end tools.
///
/// ```
/// use agentwire_core::{event::{Message, RunInput}, format::openai_responses::input::{ModelConfig, to_json_with}};
/// let mut input = RunInput::new("t", "r");
/// input.messages.push(Message::user("m", "Hello"));
/// let options = serde_json::json!({"reasoning": {"effort": "low"}});
/// let body = to_json_with(&input, ModelConfig { name: "gpt-5", system: None }, options.as_object().unwrap());
/// let body: serde_json::Value = serde_json::from_str(&body).unwrap();
/// assert_eq!(body["input"][0]["content"], "Hello");
/// assert_eq!(body["reasoning"]["effort"], "low");
/// ```
#[must_use]
pub fn to_json_with(input: &RunInput, model: ModelConfig<'_>, options: &Map<String, Value>) -> String {
    let mut body = json!({
        "model": model.name,
        "store": false,
        "include": ["reasoning.encrypted_content"],
    });
    if let Some(instructions) = instructions(input, model) {
        body["instructions"] = instructions.into();
    }
    for (name, value) in options {
        if !RESERVED_MEMBERS.contains(&&**name) {
            body[name] = value.clone();
        }
    }
    body["input"] = items(input).into();
    body["stream"] = true.into();
    add_tools(&mut body, input.tools.iter().map(tool));
    body.to_string()
}

fn items(input: &RunInput) -> Vec<Value> {
    let results = results(&input.messages);
    let answers = input.resume.as_deref().unwrap_or_default();
    let mut list = Vec::new();
    for message in &input.messages {
        match &message.body {
            MessageBody::System { content } => list.push(json!({"role": "system", "content": content})),
            MessageBody::Developer { content } => {
                list.push(json!({"role": "developer", "content": content}));
            }
            MessageBody::User { content } => {
                list.push(json!({"role": "user", "content": user_content(content)}));
            }
            MessageBody::Assistant { content, tool_calls } => {
                if let Some(text) = content.as_deref().filter(|text| !text.is_empty()) {
                    let mut item = json!({"role": "assistant", "content": text});
                    if let Some(phase) = message.metadata.as_ref().and_then(|it| it.get_str("openai.phase")) {
                        item["phase"] = phase.into();
                    }
                    list.push(item);
                }
                let calls = tool_calls.as_deref().unwrap_or_default();
                calls.iter().for_each(|call| push_call(call, &results, answers, &mut list));
            }
            MessageBody::Reasoning { .. } => {
                let is_reasoning = |kind: &str| matches!(kind, "reasoning" | "compaction");
                list.extend(sealed_item(message.encrypted.as_deref(), is_reasoning));
            }
            // Results follow their calls; activities are for the client.
            MessageBody::Tool { .. } | MessageBody::Activity { .. } => {}
        }
    }
    list
}

/// Adds a call and its output.
fn push_call(
    call: &ToolCall,
    results: &HashMap<&str, &Message>,
    answers: &[ResumeEntry],
    list: &mut Vec<Value>,
) {
    let is_tool = |kind: &str| kind.ends_with("_call") || kind == APPROVAL_REQUEST;
    let sealed =
        sealed_item(call.encrypted.as_deref(), is_tool).filter(|item| item["type"] != "function_call");
    let Some(mut item) = sealed else {
        // Servers parse the arguments, and an empty string is not JSON.
        let arguments = if call.arguments.trim().is_empty() { "{}" } else { &*call.arguments };
        list.push(json!({
            "type": "function_call", "call_id": call.id.as_str(), "name": call.name, "arguments": arguments,
        }));
        let output = output(results.get(call.id.as_str()));
        list.push(json!({"type": "function_call_output", "call_id": call.id.as_str(), "output": output}));
        return;
    };
    let kind = item["type"].as_str().unwrap_or_default().to_owned();
    if kind == APPROVAL_REQUEST {
        // A question that was answered before has the call behind it; one without an answer is asked again.
        if let Some(answer) = answers.iter().find(|answer| *answer.interrupt == *call.id) {
            let mut response = approval(answer);
            response["approval_request_id"] = item["id"].clone();
            list.extend([item, response]);
        }
        return;
    }
    if item.get("call_id").is_none() {
        list.push(item);
        return;
    }
    // A tool that the client runs, of another kind than a function: its output has the kind of its call.
    item["call_id"] = call.id.as_str().into();
    list.push(item);
    let output = output(results.get(call.id.as_str()));
    let output = match (kind.as_str(), output) {
        ("custom_tool_call", output) => output,
        (_, Value::String(text)) => {
            let structured =
                serde_json::from_str::<Value>(&text).ok().filter(|it| it.is_object() || it.is_array());
            structured.unwrap_or(Value::String(text))
        }
        (_, output) => output,
    };
    list.push(json!({"type": format!("{kind}_output"), "call_id": call.id.as_str(), "output": output}));
}

/// The response to a request for approval.
fn approval(answer: &ResumeEntry) -> Value {
    let payload = answer.payload.as_ref().map(Json::to_value).unwrap_or_default();
    let decision = ["approved", "confirmed", "approve"].iter().find_map(|name| payload.get(*name));
    let is_yes = match decision.unwrap_or(&payload) {
        Value::Bool(value) => *value,
        Value::String(text) => matches!(text.to_ascii_lowercase().as_str(), "true" | "yes"),
        _ => false,
    };
    let approve = answer.status == ResumeStatus::Resolved && is_yes;
    let mut response = json!({"type": "mcp_approval_response", "approve": approve});
    if let Some(reason) = payload.get("reason").and_then(Value::as_str) {
        response["reason"] = reason.into();
    }
    response
}

/// The output of a call.
fn output(result: Option<&&Message>) -> Value {
    let Some(MessageBody::Tool { content, error, .. }) = result.map(|message| &message.body) else {
        return MISSING_RESULT.into();
    };
    match content {
        Content::Parts(parts) if parts.iter().any(|part| matches!(part, ContentPart::Media { .. })) => {
            parts.iter().map(part).collect()
        }
        _ => match (content.text(), error) {
            (text, Some(error)) if text.is_empty() => format!("Error: {error}").into(),
            (text, _) => text.into(),
        },
    }
}

/// An item that the reader sealed into an encrypted value; `None` if the value is from another provider.
fn sealed_item(sealed: Option<&str>, is_kind: impl Fn(&str) -> bool) -> Option<Value> {
    let item: Value = serde_json::from_str(sealed?).ok()?;
    let is_own = item.is_object() && item.get("type").and_then(Value::as_str).is_some_and(is_kind);
    is_own.then_some(item)
}

fn tool(tool: &Tool) -> Value {
    let mut function = json!({"type": "function", "name": tool.name, "parameters": parameters(tool)});
    if !tool.description.is_empty() {
        function["description"] = (&*tool.description).into();
    }
    // The default is strict, which rejects most schemas of front ends.
    function["strict"] = false.into();
    function
}

fn user_content(content: &Content) -> Value {
    match content {
        Content::Text(text) => (&**text).into(),
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
        ContentPart::Text { text, .. } => return json!({"type": "input_text", "text": text}),
        ContentPart::Media { kind, source, .. } => (*kind, source),
    };
    let data = |value: &str, mime_type: &str| format!("data:{mime_type};base64,{value}");
    match (kind, source) {
        (MediaKind::Image, PartSource::File { value, .. }) => {
            json!({"type": "input_image", "detail": "auto", "file_id": value})
        }
        (MediaKind::Image, PartSource::Url { value, .. }) => {
            json!({"type": "input_image", "detail": "auto", "image_url": value})
        }
        (MediaKind::Image, PartSource::Data { value, mime_type }) => {
            json!({"type": "input_image", "detail": "auto", "image_url": data(value, mime_type)})
        }
        (_, PartSource::File { value, .. }) => json!({"type": "input_file", "file_id": value}),
        (_, PartSource::Url { value, .. }) => json!({"type": "input_file", "file_url": value}),
        (_, PartSource::Data { value, mime_type }) => {
            json!({"type": "input_file", "filename": filename(source), "file_data": data(value, mime_type)})
        }
    }
}
