//! Messages, chunks and interrupts in LangChain's form.

use bytes::BytesMut;
use serde_json::{Map, Value, json};

use super::super::input::native_form;
use crate::{
    event::{Interrupt, Message, MessageBody, MessageId, ToolResult},
    json::ObjectWriter,
};

/// A chunk of an assistant message; `fill` writes the content and what else it carries.
pub(super) fn write_chunk(out: &mut BytesMut, message: &MessageId, fill: &impl Fn(&mut ObjectWriter<'_>)) {
    let mut chunk = ObjectWriter::new(out);
    fill(&mut chunk);
    chunk.str("type", "AIMessageChunk").str("id", message);
    chunk.end();
}

/// A piece of a call in a chunk.
pub(super) fn write_call(
    chunk: &mut ObjectWriter<'_>,
    id: Option<&str>,
    name: Option<&str>,
    args: &str,
    index: i64,
) {
    chunk.array("tool_call_chunks", |calls| {
        calls.object(|call| {
            call.opt_str("name", name).str("args", args).opt_str("id", id).int("index", index);
            call.str("type", "tool_call_chunk");
        });
    });
}

/// Messages as the values of a graph have them; activities and reasoning are none.
pub(super) fn native_messages(messages: &[Message], is_left_out: impl Fn(&MessageId) -> bool) -> Vec<Value> {
    let shown = messages.iter().filter(|message| !is_left_out(&message.id));
    native_form(shown)
}

/// The message of a tool result.
pub(super) fn native_result(result: &ToolResult) -> Value {
    let body = MessageBody::Tool {
        call: result.call.clone(),
        content: result.content.clone(),
        error: result.error.clone(),
    };
    let message = Message::new(result.message.clone(), body);
    native_form([&message]).pop().unwrap_or_default()
}

/// An interrupt with the value that the agent gave it, or with its members as the value.
pub(super) fn native_interrupt(interrupt: &Interrupt) -> Value {
    let value = super::native_value(interrupt).map(|value| value.to_value());
    let value = value.unwrap_or_else(|| {
        let mut value = Map::new();
        value.insert("reason".into(), (&*interrupt.reason).into());
        if let Some(message) = &interrupt.message {
            value.insert("message".into(), (&**message).into());
        }
        if let Some(call) = &interrupt.tool_call {
            value.insert("toolCallId".into(), call.as_str().into());
        }
        if let Some(schema) = &interrupt.response_schema {
            value.insert("responseSchema".into(), schema.as_json().to_value());
        }
        if let Some(expires) = &interrupt.expires_at {
            value.insert("expiresAt".into(), (&**expires).into());
        }
        Value::Object(value)
    });
    json!({"value": value, "id": interrupt.id.as_str()})
}
