//! Canonical events to protobuf, fields in the order of their numbers.

use bytes::BytesMut;

use super::super::{
    carried_events,
    wire::{ChunkKind, EVENTS, EventChunk, FINISH_REASON, PROTOCOL_VERSION},
    writer::json::{CarriedMetadata, chunk_metadata, resume_status},
};
use crate::{
    event::{
        Body, Content, ContentPart, EncryptedEntity, Event, Interrupt, MediaKind, Message, MessageBody,
        Outcome, PartSource, Role, RunInput, SubagentId, SubagentOutcome, Usage,
    },
    format::protobuf::{
        value::{put_json, put_opt_json, put_opt_struct},
        wire::{put_int, put_message, put_opt_str, put_plain_str, put_str},
    },
    json::{Json, Object},
    patch::{Op, Patch},
};

/// The field `base_event` of every event.
struct BaseEvent<'e> {
    timestamp: Option<i64>,
    raw: Option<&'e Json>,
    metadata: Option<Object>,
}

/// Appends an `Event` with one field of its `oneof` set.
fn put_event(out: &mut BytesMut, name: &str, base: &BaseEvent<'_>, fill: impl FnOnce(&mut BytesMut)) {
    let (_, arm, number) = EVENTS.iter().find(|(event, ..)| *event == name).expect("every event has an arm");
    put_message(out, *arm, |out| {
        put_message(out, 1, |out| {
            if *number != 0 {
                put_int(out, 1, *number);
            }
            if let Some(timestamp) = base.timestamp {
                put_int(out, 2, timestamp as u64);
            }
            put_opt_json(out, 3, base.raw);
            put_opt_struct(out, 4, base.metadata.as_ref());
        });
        fill(out);
    });
}

/// Appends the event as one `Event` message.
pub(crate) fn write_event(out: &mut BytesMut, event: &Event) {
    let subagent = event.subagent.as_ref().map(SubagentId::as_str);
    let mut carried = CarriedMetadata::of(event);
    if let Some(activity) = carried_events::activity_for(&event.body) {
        carried.merge(activity.metadata);
        let base = base_event(event, carried);
        return put_event(out, "ACTIVITY_SNAPSHOT", &base, |out| {
            put_opt_str(out, 2, subagent);
            put_plain_str(out, 3, &activity.message);
            put_plain_str(out, 4, &activity.kind);
            put_opt_struct(out, 5, Some(&activity.content));
        });
    }
    if let Some((message, kind, patch)) = carried_events::patch_for(&event.body) {
        return put_event(out, "ACTIVITY_DELTA", &base_event(event, carried), |out| {
            put_opt_str(out, 2, subagent);
            put_plain_str(out, 3, &message);
            put_plain_str(out, 4, kind);
            put_patch(out, 5, &patch);
        });
    }
    match &event.body {
        Body::ReasoningStart { title, .. } => carried.title = title.as_deref(),
        Body::ToolResult(result) => carried.error = result.error.as_deref(),
        _ => {}
    }
    let base = base_event(event, carried);
    if let Body::FinishReason { message, reason } = &event.body {
        let message = message.as_ref().map(|message| ("messageId", Json::string(message)));
        let value = Object::from_entries(message.into_iter().chain([("reason", Json::string(reason))]));
        return put_event(out, "CUSTOM", &base, |out| {
            put_str(out, 2, FINISH_REASON);
            put_json(out, 3, value.as_json());
            put_opt_str(out, 4, subagent);
        });
    }
    put_event(out, event.kind(), &base, |out| put_body(out, &event.body, subagent));
}

fn base_event<'e>(event: &'e Event, carried: CarriedMetadata<'_>) -> BaseEvent<'e> {
    BaseEvent { timestamp: event.timestamp, raw: event.raw(), metadata: carried.into_metadata() }
}

fn put_body(out: &mut BytesMut, body: &Body, subagent: Option<&str>) {
    match body {
        Body::TextStart { message, role, name } => {
            put_plain_str(out, 2, message);
            put_opt_str(out, 3, role.map(Role::as_str));
            put_opt_str(out, 4, name.as_deref());
            put_opt_str(out, 5, subagent);
        }
        Body::TextDelta { message: id, delta } => {
            put_plain_str(out, 2, id);
            put_plain_str(out, 3, delta);
            put_opt_str(out, 4, subagent);
        }
        Body::ToolArgs { call, delta } => {
            put_plain_str(out, 2, call);
            put_plain_str(out, 3, delta);
            put_opt_str(out, 4, subagent);
        }
        Body::TextEnd { message } => {
            put_plain_str(out, 2, message);
            put_opt_str(out, 3, subagent);
        }
        Body::ToolEnd { call } => {
            put_plain_str(out, 2, call);
            put_opt_str(out, 3, subagent);
        }
        Body::ToolStart { call, name, parent } => {
            put_plain_str(out, 2, call);
            put_plain_str(out, 3, name);
            put_opt_str(out, 4, parent.as_deref());
            put_opt_str(out, 5, subagent);
        }
        Body::ToolResult(result) => {
            put_opt_str(out, 2, subagent);
            put_plain_str(out, 3, &result.message);
            put_plain_str(out, 4, &result.call);
            if let Content::Text(text) = &result.content {
                put_str(out, 5, text);
            }
            put_opt_str(out, 6, result.explicit_role.then_some("tool"));
            put_parts(out, 7, &result.content);
        }
        Body::StateSnapshot { snapshot } => {
            put_json(out, 2, snapshot);
            put_opt_str(out, 3, subagent);
        }
        Body::StateDelta { patch } => {
            put_patch(out, 2, patch);
            put_opt_str(out, 3, subagent);
        }
        Body::MessagesSnapshot { messages } => {
            for message in messages {
                put_message(out, 2, |out| put_chat_message(out, message));
            }
        }
        Body::ActivitySnapshot { message, kind, content, replace } => {
            put_opt_str(out, 2, subagent);
            put_plain_str(out, 3, message);
            put_plain_str(out, 4, kind);
            put_opt_struct(out, 5, Some(content));
            if let Some(replace) = replace {
                put_int(out, 6, u64::from(*replace));
            }
        }
        Body::ActivityDelta { message, kind, patch } => {
            put_opt_str(out, 2, subagent);
            put_plain_str(out, 3, message);
            put_plain_str(out, 4, kind);
            put_patch(out, 5, patch);
        }
        Body::Raw { event, source } => {
            put_json(out, 2, event);
            put_opt_str(out, 3, source.as_deref());
            put_opt_str(out, 4, subagent);
        }
        Body::Custom { name, value } => {
            put_plain_str(out, 2, name);
            put_json(out, 3, value);
            put_opt_str(out, 4, subagent);
        }
        Body::RunStarted(started) => {
            put_plain_str(out, 2, &started.thread);
            put_plain_str(out, 3, &started.run);
            put_opt_str(out, 4, started.parent_run.as_deref());
            if let Some(input) = &started.input {
                put_message(out, 5, |out| put_input(out, input));
            }
            put_opt_str(out, 6, started.protocol_version.as_deref());
        }
        Body::RunFinished(finished) => {
            put_plain_str(out, 2, &finished.thread);
            put_plain_str(out, 3, &finished.run);
            put_opt_json(out, 4, finished.result.as_ref());
            let (outcome, interrupts, pending) = match &finished.outcome {
                None => ("", &[][..], &[][..]),
                Some(Outcome::Success { pending }) => ("success", &[][..], &pending[..]),
                Some(Outcome::Interrupt { interrupts }) => ("interrupt", &interrupts[..], &[][..]),
                Some(Outcome::Cancelled) => ("cancelled", &[][..], &[][..]),
            };
            put_plain_str(out, 5, outcome);
            for interrupt in interrupts {
                put_message(out, 6, |out| put_interrupt(out, interrupt));
            }
            put_usage(out, 7, &finished.usage);
            for call in pending {
                put_str(out, 8, call);
            }
        }
        Body::RunError(error) => {
            put_opt_str(out, 2, error.code.as_deref());
            put_plain_str(out, 3, &error.message);
            put_usage(out, 4, &error.usage);
        }
        Body::StepStarted { name } | Body::StepFinished { name } => {
            put_plain_str(out, 2, name);
            put_opt_str(out, 3, subagent);
        }
        Body::ReasoningStart { message, .. }
        | Body::ReasoningEnd { message }
        | Body::ReasoningMessageEnd { message } => {
            put_opt_str(out, 2, subagent);
            put_plain_str(out, 3, message);
        }
        Body::ReasoningMessageStart { message } => {
            put_opt_str(out, 2, subagent);
            put_plain_str(out, 3, message);
            put_str(out, 4, "reasoning");
        }
        Body::ReasoningDelta { message, delta } => {
            put_opt_str(out, 2, subagent);
            put_plain_str(out, 3, message);
            put_plain_str(out, 4, delta);
        }
        Body::ReasoningEncrypted { entity, value } => {
            let (subtype, id): (_, &str) = match entity {
                EncryptedEntity::Message(id) => ("message", id),
                EncryptedEntity::ToolCall(id) => ("tool-call", id),
            };
            put_opt_str(out, 2, subagent);
            put_str(out, 3, subtype);
            put_plain_str(out, 4, id);
            put_plain_str(out, 5, value);
        }
        Body::SubagentStarted(started) => {
            put_plain_str(out, 2, subagent.unwrap_or_default());
            put_plain_str(out, 3, &started.name);
            put_opt_str(out, 4, started.description.as_deref());
            put_opt_str(out, 5, started.parent_subagent.as_deref());
            put_opt_str(out, 6, started.parent_call.as_deref());
            put_opt_str(out, 7, started.parent_message.as_deref());
        }
        Body::SubagentFinished { result, outcome } => {
            put_plain_str(out, 2, subagent.unwrap_or_default());
            put_opt_json(out, 3, result.as_ref());
            match outcome {
                None => {}
                Some(SubagentOutcome::Success) => put_str(out, 4, "success"),
                Some(SubagentOutcome::Suspended { interrupts }) => {
                    put_str(out, 4, "suspended");
                    for id in interrupts {
                        put_str(out, 5, id);
                    }
                }
            }
        }
        Body::SubagentError { message, code } => {
            put_plain_str(out, 2, subagent.unwrap_or_default());
            put_plain_str(out, 3, message);
            put_opt_str(out, 4, code.as_deref());
        }
        Body::Citation(_)
        | Body::File(_)
        | Body::Block(_)
        | Body::CollaborationStart { .. }
        | Body::CollaborationTask { .. }
        | Body::CollaborationEnd { .. }
        | Body::FinishReason { .. } => unreachable!("written above"),
    }
}

/// Appends a chunk as one `Event` message.
pub(crate) fn write_chunk(out: &mut BytesMut, chunk: &EventChunk) {
    let extra = chunk.extra.as_deref();
    let base = BaseEvent {
        timestamp: chunk.timestamp,
        raw: extra.and_then(|extra| extra.raw.as_ref()),
        metadata: extra.and_then(chunk_metadata),
    };
    let (id, delta) = (chunk.id.as_deref(), chunk.delta.as_deref());
    let subagent = chunk.subagent.as_ref().map(SubagentId::as_str);
    put_event(out, chunk.kind.event_type(), &base, |out| match chunk.kind {
        ChunkKind::Text => {
            put_opt_str(out, 2, id);
            put_opt_str(out, 3, chunk.role.map(Role::as_str));
            put_opt_str(out, 4, delta);
            put_opt_str(out, 5, chunk.name.as_deref());
            put_opt_str(out, 6, subagent);
        }
        ChunkKind::Tool => {
            put_opt_str(out, 2, id);
            put_opt_str(out, 3, chunk.name.as_deref());
            put_opt_str(out, 4, chunk.parent.as_deref());
            put_opt_str(out, 5, delta);
            put_opt_str(out, 6, subagent);
        }
        ChunkKind::Reasoning => {
            put_opt_str(out, 2, subagent);
            put_opt_str(out, 3, id);
            put_opt_str(out, 4, delta);
        }
    });
}

fn put_usage(out: &mut BytesMut, field: u32, usage: &[Usage]) {
    for entry in usage {
        put_message(out, field, |out| {
            put_opt_str(out, 1, entry.provider.as_deref());
            put_opt_str(out, 2, entry.model.as_deref());
            let counts = [
                entry.input,
                entry.output,
                entry.total,
                entry.reasoning,
                entry.cached_input,
                entry.cache_write_input,
            ];
            for (number, count) in (3..).zip(counts) {
                if let Some(count) = count {
                    put_int(out, number, count);
                }
            }
        });
    }
}

fn put_interrupt(out: &mut BytesMut, interrupt: &Interrupt) {
    put_plain_str(out, 1, &interrupt.id);
    put_plain_str(out, 2, &interrupt.reason);
    put_opt_str(out, 3, interrupt.message.as_deref());
    put_opt_str(out, 4, interrupt.tool_call.as_deref());
    put_opt_json(out, 5, interrupt.response_schema.as_ref().map(Object::as_json));
    put_opt_str(out, 6, interrupt.expires_at.as_deref());
    put_opt_json(out, 7, interrupt.metadata.as_ref().map(Object::as_json));
    put_opt_str(out, 8, interrupt.subagent.as_deref());
}

fn put_patch(out: &mut BytesMut, field: u32, patch: &Patch) {
    for operation in &patch.0 {
        put_message(out, field, |out| {
            let op = match operation.op {
                Op::Add => 0,
                Op::Remove => 1,
                Op::Replace => 2,
                Op::Move => 3,
                Op::Copy => 4,
                Op::Test => 5,
            };
            if op != 0 {
                put_int(out, 1, op);
            }
            put_plain_str(out, 2, &operation.path);
            put_opt_str(out, 3, operation.from.as_deref());
            put_opt_json(out, 4, operation.value.as_ref());
        });
    }
}

fn put_parts(out: &mut BytesMut, field: u32, content: &Content) {
    let Content::Parts(parts) = content else { return };
    for part in parts {
        put_message(out, field, |out| match part {
            ContentPart::Text { text, id, metadata } => put_message(out, 1, |out| {
                put_plain_str(out, 1, text);
                put_opt_str(out, 2, id.as_deref());
                put_opt_json(out, 3, metadata.as_ref());
            }),
            ContentPart::Media { kind, source, id, metadata } => {
                let arm = match kind {
                    MediaKind::Image => 2,
                    MediaKind::Audio => 3,
                    MediaKind::Video => 4,
                    MediaKind::Document => 5,
                };
                put_message(out, arm, |out| {
                    put_message(out, 1, |out| put_source(out, source));
                    put_opt_json(out, 2, metadata.as_ref());
                    put_opt_str(out, 3, id.as_deref());
                });
            }
        });
    }
}

fn put_source(out: &mut BytesMut, source: &PartSource) {
    match source {
        PartSource::Data { value, mime_type } => put_message(out, 1, |out| {
            put_plain_str(out, 1, value);
            put_plain_str(out, 2, mime_type);
        }),
        PartSource::Url { value, mime_type } => put_message(out, 2, |out| {
            put_plain_str(out, 1, value);
            put_opt_str(out, 2, mime_type.as_deref());
        }),
        PartSource::File { value, provider, mime_type } => put_message(out, 3, |out| {
            put_plain_str(out, 1, value);
            put_opt_str(out, 2, provider.as_deref());
            put_opt_str(out, 3, mime_type.as_deref());
        }),
    }
}

fn put_chat_message(out: &mut BytesMut, message: &Message) {
    put_plain_str(out, 1, &message.id);
    put_str(out, 2, message.role().as_str());
    let (text, parts) = match &message.body {
        MessageBody::Developer { content }
        | MessageBody::System { content }
        | MessageBody::Reasoning { content } => (Some(&**content), None),
        MessageBody::Assistant { content, .. } => (content.as_deref(), None),
        MessageBody::User { content } | MessageBody::Tool { content, .. } => match content {
            Content::Text(text) => (Some(&**text), None),
            Content::Parts(_) => (None, Some(content)),
        },
        MessageBody::Activity { .. } => (None, None),
    };
    put_opt_str(out, 3, text);
    put_opt_str(out, 4, message.name.as_deref());
    for call in message.tool_calls() {
        put_message(out, 5, |out| {
            put_plain_str(out, 1, &call.id);
            put_str(out, 2, "function");
            put_message(out, 3, |out| {
                put_plain_str(out, 1, &call.name);
                put_plain_str(out, 2, &call.arguments);
            });
            put_opt_struct(out, 4, call.metadata.as_ref());
            put_opt_str(out, 5, call.encrypted.as_deref());
        });
    }
    if let MessageBody::Tool { call, error, .. } = &message.body {
        put_str(out, 6, call);
        put_opt_str(out, 7, error.as_deref());
    }
    if let Some(parts) = parts {
        put_parts(out, 8, parts);
    }
    put_opt_struct(out, 9, message.metadata.as_ref());
    put_opt_str(out, 10, message.subagent.as_deref());
    put_opt_str(out, 11, message.encrypted.as_deref());
    if let MessageBody::Activity { kind, content } = &message.body {
        put_str(out, 12, kind);
        put_opt_struct(out, 13, Some(content));
    }
}

/// A request as one `RunAgentInput` message that declares `PROTOCOL_VERSION`.
#[must_use]
pub fn input_to_proto(input: &RunInput) -> Vec<u8> {
    let declared = RunInput { protocol_version: Some(PROTOCOL_VERSION.into()), ..input.clone() };
    let mut out = BytesMut::new();
    put_input(&mut out, &declared);
    out.into()
}

fn put_input(out: &mut BytesMut, input: &RunInput) {
    put_plain_str(out, 1, &input.thread);
    put_plain_str(out, 2, &input.run);
    put_opt_str(out, 3, input.parent_run.as_deref());
    put_opt_json(out, 4, input.state.as_ref());
    for message in &input.messages {
        put_message(out, 5, |out| put_chat_message(out, message));
    }
    for tool in &input.tools {
        put_message(out, 6, |out| {
            put_plain_str(out, 1, &tool.name);
            put_plain_str(out, 2, &tool.description);
            put_opt_json(out, 3, tool.parameters.as_ref());
            put_opt_struct(out, 4, tool.metadata.as_ref());
        });
    }
    for context in &input.context {
        put_message(out, 7, |out| {
            put_plain_str(out, 1, &context.description);
            put_plain_str(out, 2, &context.value);
        });
    }
    put_opt_json(out, 8, input.forwarded.as_ref());
    for entry in input.resume.iter().flatten() {
        put_message(out, 9, |out| {
            put_plain_str(out, 1, &entry.interrupt);
            put_str(out, 2, resume_status(entry.status));
            put_opt_json(out, 3, entry.payload.as_ref());
            put_opt_struct(out, 4, entry.metadata.as_ref());
        });
    }
    put_opt_str(out, 10, input.protocol_version.as_deref());
}
