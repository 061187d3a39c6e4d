//! Chunks of messages, and messages of tools.

use bytes::BytesMut;
use serde_json::{Map, Value};

use super::super::server_form::server_message;
use crate::{
    event::{Message, MessageBody, MessageId, ToolResult},
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

/// The message of a tool result.
pub(super) fn native_result(result: &ToolResult, name: Option<&str>) -> Map<String, Value> {
    let body = MessageBody::Tool {
        call: result.call.clone(),
        content: result.content.clone(),
        error: result.error.clone(),
    };
    server_message(&Message::new(result.message.clone(), body), name).unwrap_or_default()
}
