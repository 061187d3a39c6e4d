//! Converts canonical messages to LangChain messages.

use std::collections::HashSet;

use serde_json::{Map, Value, json};

use crate::{
    event::{Content, ContentPart, MediaKind, Message, MessageBody, PartSource, ToolCall},
    format::reused,
};

/// Converts canonical messages to LangChain messages, for callers that invoke a graph directly.
#[must_use]
pub fn langchain_messages(messages: &[Message]) -> Vec<Value> {
    let ids = call_ids(messages);
    messages.iter().filter_map(|message| langchain_message(message, &ids)).collect()
}

/// The ids of all tool calls. They distinguish a numbered repetition of an id from an id that ends in a number.
pub(super) fn call_ids(messages: &[Message]) -> HashSet<&str> {
    messages.iter().flat_map(|message| message.tool_calls()).map(|call| call.id.as_str()).collect()
}

/// Converts a message; `None` for kinds that are never sent to an agent.
pub(in super::super) fn langchain_message(message: &Message, ids: &HashSet<&str>) -> Option<Value> {
    let native = |id| reused::native(id, |native| ids.contains(native));
    let mut value = Map::new();
    let mut set = |key: &str, member: Value| {
        value.insert(key.into(), member);
    };
    match &message.body {
        MessageBody::User { content } => {
            set("role", "user".into());
            set("content", langchain_content(content));
        }
        MessageBody::System { content } => {
            set("role", "system".into());
            set("content", (&**content).into());
        }
        MessageBody::Developer { content } => {
            set("role", "developer".into());
            set("content", (&**content).into());
        }
        MessageBody::Assistant { content, tool_calls } => {
            set("role", "assistant".into());
            set("content", content.as_deref().unwrap_or_default().into());
            let calls = tool_calls.as_deref().unwrap_or_default();
            let (valid, invalid): (Vec<_>, Vec<_>) =
                calls.iter().map(|call| langchain_call(call, native(&call.id))).partition(Result::is_ok);
            if !valid.is_empty() {
                set("tool_calls", valid.into_iter().filter_map(Result::ok).collect());
            }
            if !invalid.is_empty() {
                set("invalid_tool_calls", invalid.into_iter().filter_map(Result::err).collect());
            }
        }
        MessageBody::Tool { call, content, error } => {
            set("role", "tool".into());
            set("content", langchain_content(content));
            set("tool_call_id", native(call).into());
            if error.is_some() {
                set("status", "error".into());
            }
        }
        MessageBody::Activity { .. } | MessageBody::Reasoning { .. } => return None,
    }
    set("id", message.id.as_str().into());
    if let Some(name) = &message.name {
        set("name", (&**name).into());
    }
    Some(Value::Object(value))
}

/// A tool call with parsed arguments, or an invalid call if they are not an object.
fn langchain_call(call: &ToolCall, id: &str) -> Result<Value, Value> {
    let arguments = if call.arguments.trim().is_empty() { "{}" } else { &call.arguments };
    match serde_json::from_str(arguments) {
        Ok(Value::Object(args)) => {
            Ok(json!({"name": &*call.name, "args": args, "id": id, "type": "tool_call"}))
        }
        _ => Err(json!({
            "name": &*call.name, "args": arguments, "id": id,
            "error": "the arguments are not a JSON object", "type": "invalid_tool_call",
        })),
    }
}

fn langchain_content(content: &Content) -> Value {
    match content {
        Content::Text(text) => (&**text).into(),
        Content::Parts(parts) => parts.iter().map(content_block).collect(),
    }
}

fn content_block(part: &ContentPart) -> Value {
    let (kind, source, metadata) = match part {
        ContentPart::Text { text, .. } => return json!({"type": "text", "text": &**text}),
        ContentPart::Media { kind, source, metadata, .. } => (*kind, source, metadata),
    };
    // All versions and provider adapters accept this form of an image.
    if kind == MediaKind::Image {
        let url = match source {
            PartSource::Data { value, mime_type } => Some(format!("data:{mime_type};base64,{value}")),
            PartSource::Url { value, .. } => Some(value.to_string()),
            PartSource::File { .. } => None,
        };
        if let Some(url) = url {
            return json!({"type": "image_url", "image_url": {"url": url}});
        }
    }
    let kind = match kind {
        MediaKind::Image => "image",
        MediaKind::Audio => "audio",
        MediaKind::Video => "video",
        MediaKind::Document => "file",
    };
    let mut block = Map::new();
    block.insert("type".into(), kind.into());
    match source {
        PartSource::Data { value, .. } => block.insert("base64".into(), (&**value).into()),
        PartSource::Url { value, .. } => block.insert("url".into(), (&**value).into()),
        PartSource::File { value, .. } => block.insert("file_id".into(), (&**value).into()),
    };
    if let Some(mime_type) = source.mime_type() {
        block.insert("mime_type".into(), mime_type.into());
    }
    let name = metadata.as_ref().and_then(|metadata| metadata.clone().into_object()?.get_str("filename"));
    if let Some(name) = name {
        // Providers that accept files require a name.
        block.insert("extras".into(), json!({"filename": name}));
    }
    Value::Object(block)
}
