//! Writes messages, content parts and JSON Patches.

use bytes::BytesMut;

use crate::{
    event::{Content, ContentPart, Message, MessageBody, PartSource, ToolCall},
    json::{ArrayWriter, Json, Object, ObjectWriter},
    patch::Patch,
};

/// Writes a message.
pub(crate) fn write_message(w: &mut ObjectWriter<'_>, message: &Message) {
    w.str("id", &message.id).str("role", message.role().as_str());
    match &message.body {
        MessageBody::Developer { content }
        | MessageBody::System { content }
        | MessageBody::Reasoning { content } => {
            w.str("content", content);
        }
        MessageBody::Assistant { content, tool_calls } => {
            w.opt_str("content", content.as_deref());
            if let Some(calls) = tool_calls {
                w.array("toolCalls", |list| {
                    for call in calls {
                        list.object(|w| write_tool_call(w, call));
                    }
                });
            }
        }
        MessageBody::User { content } => write_content(w, content),
        MessageBody::Tool { call, content, error } => {
            w.str("toolCallId", call);
            write_content(w, content);
            w.opt_str("error", error.as_deref());
        }
        MessageBody::Activity { kind, content } => {
            w.str("activityType", kind).json("content", content.as_json());
        }
    }
    w.opt_str("name", message.name.as_deref())
        .opt_str("subagentRunId", message.subagent.as_deref())
        .opt_str("encryptedValue", message.encrypted.as_deref())
        .opt_object("metadata", message.metadata.as_ref());
}

pub(crate) fn write_tool_call(w: &mut ObjectWriter<'_>, call: &ToolCall) {
    w.str("id", &call.id)
        .str("type", "function")
        .nested("function", |w| {
            w.str("name", &call.name).str("arguments", &call.arguments);
        })
        .opt_str("encryptedValue", call.encrypted.as_deref())
        .opt_object("metadata", call.metadata.as_ref());
}

/// Writes the member `content`.
pub(crate) fn write_content(w: &mut ObjectWriter<'_>, content: &Content) {
    match content {
        Content::Text(text) => {
            w.str("content", text);
        }
        Content::Parts(parts) => {
            w.array("content", |list| {
                for part in parts {
                    list.object(|w| write_part(w, part));
                }
            });
        }
    }
}

pub(crate) fn write_part(w: &mut ObjectWriter<'_>, part: &ContentPart) {
    match part {
        ContentPart::Text { text, id, metadata } => {
            w.str("type", "text").str("text", text).opt_str("id", id.as_deref());
            w.opt_json("metadata", metadata.as_ref());
        }
        ContentPart::Media { kind, source, id, metadata } => {
            w.str("type", kind.as_str()).nested("source", |w| write_source(w, source));
            w.opt_str("id", id.as_deref()).opt_json("metadata", metadata.as_ref());
        }
    }
}

/// A part as JSON.
pub(super) fn part_json(part: &ContentPart) -> Json {
    super::json::object_json(|w| write_part(w, part))
}

fn write_source(w: &mut ObjectWriter<'_>, source: &PartSource) {
    match source {
        PartSource::Data { value, mime_type } => {
            w.str("type", "data").str("value", value).str("mimeType", mime_type);
        }
        PartSource::Url { value, mime_type } => {
            w.str("type", "url").str("value", value).opt_str("mimeType", mime_type.as_deref());
        }
        PartSource::File { value, provider, mime_type } => {
            w.str("type", "file")
                .str("value", value)
                .opt_str("provider", provider.as_deref())
                .opt_str("mimeType", mime_type.as_deref());
        }
    }
}

/// Writes a JSON Patch as a list.
pub(crate) fn write_patch(list: &mut ArrayWriter<'_>, patch: &Patch) {
    for operation in &patch.0 {
        list.object(|w| {
            w.str("op", operation.op.as_str()).str("path", &operation.path);
            w.opt_str("from", operation.from.as_deref()).opt_json("value", operation.value.as_ref());
            for (key, value) in operation.extra.iter().flat_map(Object::entries) {
                w.entry(&key, &value);
            }
        });
    }
}

/// About the bytes that messages take as JSON, without parts and metadata: a long list is written without copies of its start.
pub(crate) fn expected_length(messages: &[Message]) -> usize {
    /// Names of members and their punctuation.
    const MEMBERS: usize = 48;
    let of_call = |call: &ToolCall| 2 * MEMBERS + call.id.len() + call.name.len() + call.arguments.len();
    let of_content = |content: &Content| match content {
        Content::Text(text) => text.len(),
        Content::Parts(_) => 0,
    };
    let of_message = |message: &Message| {
        let body = match &message.body {
            MessageBody::Developer { content }
            | MessageBody::System { content }
            | MessageBody::Reasoning { content } => content.len(),
            MessageBody::Assistant { content, .. } => {
                content.as_deref().map_or(0, str::len)
                    + message.tool_calls().iter().map(of_call).sum::<usize>()
            }
            MessageBody::User { content } | MessageBody::Tool { content, .. } => of_content(content),
            MessageBody::Activity { content, .. } => content.get().len(),
        };
        MEMBERS + message.id.len() + body
    };
    messages.iter().map(of_message).sum()
}

/// Messages as a JSON array, the body of history responses.
#[must_use]
pub fn messages_to_json(messages: &[Message]) -> String {
    let mut out = BytesMut::with_capacity(2 + expected_length(messages));
    let mut list = ArrayWriter::new(&mut out);
    for message in messages {
        list.object(|w| write_message(w, message));
    }
    list.end();
    String::from_utf8(out.into()).expect("JSON text is UTF-8")
}
