//! Events to AG-UI 1.0 JSON: one object for each event.
//!
//! Absent members are left out; `null` is written only where it is the value.

use bytes::{BufMut, BytesMut};

use super::{
    super::{
        carried_events, input,
        wire::{CARRIER, ChunkKind, EventChunk, FINISH_REASON},
    },
    messages,
};
use crate::{
    event::{
        Body, EncryptedEntity, Event, Extra, Interrupt, Outcome, ResumeEntry, ResumeStatus, SubagentId,
        SubagentOutcome, Usage,
    },
    json::{ArrayWriter, Json, Object, ObjectWriter, fits, write_str},
};

/// Appends the event as one JSON object.
pub(crate) fn write_event(out: &mut BytesMut, event: &Event) {
    // Fast path: content events, nine tenths of a stream, are constant bytes around two strings.
    if event.extra.is_none()
        && let Some((head, id, delta)) = content_event(&event.body)
    {
        return write_content(out, head, id, delta, event.subagent.as_ref(), event.timestamp);
    }
    let mut w = ObjectWriter::new(out);
    write_members(&mut w, event);
    w.end();
}

fn write_content(
    out: &mut BytesMut,
    head: &[u8],
    id: &str,
    delta: &str,
    subagent: Option<&SubagentId>,
    timestamp: Option<i64>,
) {
    out.put_slice(head);
    write_str(out, id);
    out.put_slice(b",\"delta\":");
    write_str(out, delta);
    if let Some(subagent) = subagent {
        out.put_slice(b",\"subagentRunId\":");
        write_str(out, subagent);
    }
    end_content(out, timestamp);
}

/// Appends the last member of a content event.
pub(super) fn end_content(out: &mut BytesMut, timestamp: Option<i64>) {
    if let Some(timestamp) = timestamp {
        out.put_slice(b",\"timestamp\":");
        serde_json::to_writer(out.writer(), &timestamp).expect("writing to memory does not fail");
    }
    out.put_u8(b'}');
}

/// A content event: the bytes before its id, the id and the text.
pub(super) fn content_event(body: &Body) -> Option<(&'static [u8], &str, &str)> {
    Some(match body {
        Body::TextDelta { message, delta } => {
            (br#"{"type":"TEXT_MESSAGE_CONTENT","messageId":"#, message, delta)
        }
        Body::ToolArgs { call, delta } => (br#"{"type":"TOOL_CALL_ARGS","toolCallId":"#, call, delta),
        Body::ReasoningDelta { message, delta } => {
            (br#"{"type":"REASONING_MESSAGE_CONTENT","messageId":"#, message, delta)
        }
        _ => return None,
    })
}

fn write_members(w: &mut ObjectWriter<'_>, event: &Event) {
    let mut carried = CarriedMetadata::of(event);
    if let Some(activity) = carried_events::activity_for(&event.body) {
        w.str("type", "ACTIVITY_SNAPSHOT")
            .str("messageId", &activity.message)
            .str("activityType", &activity.kind)
            .json("content", activity.content.as_json());
        carried.merge(activity.metadata);
        return write_base(w, event, carried);
    }
    if let Some((message, kind, patch)) = carried_events::patch_for(&event.body) {
        w.str("type", "ACTIVITY_DELTA").str("messageId", &message).str("activityType", kind);
        w.array("patch", |list| messages::write_patch(list, &patch));
        return write_base(w, event, carried);
    }
    if let Body::FinishReason { message, reason } = &event.body {
        w.str("type", "CUSTOM").str("name", FINISH_REASON).nested("value", |w| {
            w.opt_str("messageId", message.as_deref()).str("reason", reason);
        });
        return write_base(w, event, carried);
    }
    w.str("type", event.kind());
    match &event.body {
        Body::RunStarted(started) => {
            w.str("threadId", &started.thread)
                .str("runId", &started.run)
                .opt_str("protocolVersion", started.protocol_version.as_deref())
                .opt_str("parentRunId", started.parent_run.as_deref());
            if let Some(request) = &started.input {
                w.nested("input", |w| input::write_input(w, request));
            }
        }
        Body::RunFinished(finished) => {
            w.str("threadId", &finished.thread)
                .str("runId", &finished.run)
                .opt_json("result", finished.result.as_ref());
            if let Some(outcome) = &finished.outcome {
                w.nested("outcome", |w| write_outcome(w, outcome));
            }
            write_usage(w, &finished.usage);
        }
        Body::RunError(error) => {
            w.str("message", &error.message).opt_str("code", error.code.as_deref());
            write_usage(w, &error.usage);
        }
        Body::StepStarted { name } | Body::StepFinished { name } => {
            w.str("stepName", name);
        }
        Body::TextStart { message, role, name } => {
            w.str("messageId", message)
                .opt_str("role", role.map(crate::event::Role::as_str))
                .opt_str("name", name.as_deref());
        }
        Body::TextDelta { message, delta } | Body::ReasoningDelta { message, delta } => {
            w.str("messageId", message).str("delta", delta);
        }
        Body::TextEnd { message }
        | Body::ReasoningMessageEnd { message }
        | Body::ReasoningEnd { message } => {
            w.str("messageId", message);
        }
        Body::ReasoningStart { message, title } => {
            w.str("messageId", message);
            carried.title = title.as_deref();
        }
        Body::ReasoningMessageStart { message } => {
            w.str("messageId", message).str("role", "reasoning");
        }
        Body::ReasoningEncrypted { entity, value } => {
            let (subtype, id): (_, &str) = match entity {
                EncryptedEntity::Message(id) => ("message", id),
                EncryptedEntity::ToolCall(id) => ("tool-call", id),
            };
            w.str("subtype", subtype).str("entityId", id).str("encryptedValue", value);
        }
        Body::ToolStart { call, name, parent } => {
            w.str("toolCallId", call).str("toolCallName", name).opt_str("parentMessageId", parent.as_deref());
        }
        Body::ToolArgs { call, delta } => {
            w.str("toolCallId", call).str("delta", delta);
        }
        Body::ToolEnd { call } => {
            w.str("toolCallId", call);
        }
        Body::ToolResult(result) => {
            w.str("messageId", &result.message).str("toolCallId", &result.call);
            messages::write_content(w, &result.content);
            w.opt_str("role", result.explicit_role.then_some("tool"));
            if let Some(error) = &result.error {
                // AG-UI has no member for it. assistant-ui reads `isError`, and only if there is `_meta`, as in MCP.
                w.str("error", error).bool("isError", true).nested("_meta", |_| {});
            }
            carried.error = result.error.as_deref();
        }
        Body::StateSnapshot { snapshot } => {
            w.json("snapshot", snapshot);
        }
        Body::StateDelta { patch } => {
            w.array("delta", |list| messages::write_patch(list, patch));
        }
        Body::MessagesSnapshot { messages: list } => {
            w.array("messages", |out| {
                for message in list {
                    out.object(|w| messages::write_message(w, message));
                }
            });
        }
        Body::ActivitySnapshot { message, kind, content, replace } => {
            w.str("messageId", message).str("activityType", kind).json("content", content.as_json());
            if let Some(replace) = replace {
                w.bool("replace", *replace);
            }
        }
        Body::ActivityDelta { message, kind, patch } => {
            w.str("messageId", message).str("activityType", kind);
            w.array("patch", |list| messages::write_patch(list, patch));
        }
        Body::SubagentStarted(started) => {
            w.str("name", &started.name)
                .opt_str("description", started.description.as_deref())
                .opt_str("parentSubagentRunId", started.parent_subagent.as_deref())
                .opt_str("parentToolCallId", started.parent_call.as_deref())
                .opt_str("parentMessageId", started.parent_message.as_deref());
        }
        Body::SubagentFinished { result, outcome } => {
            w.opt_json("result", result.as_ref());
            match outcome {
                None => {}
                Some(SubagentOutcome::Success) => {
                    w.nested("outcome", |w| {
                        w.str("type", "success");
                    });
                }
                Some(SubagentOutcome::Suspended { interrupts }) => {
                    w.nested("outcome", |w| {
                        w.str("type", "suspended");
                        if !interrupts.is_empty() {
                            w.array("interruptIds", |list| {
                                for id in interrupts {
                                    list.str(id);
                                }
                            });
                        }
                    });
                }
            }
        }
        Body::SubagentError { message, code } => {
            w.str("message", message).opt_str("code", code.as_deref());
        }
        Body::Raw { event, source } => {
            w.json("event", event).opt_str("source", source.as_deref());
        }
        Body::Custom { name, value } => {
            w.str("name", name).json("value", value);
        }
        Body::Citation(_)
        | Body::File(_)
        | Body::Block(_)
        | Body::CollaborationStart { .. }
        | Body::CollaborationTask { .. }
        | Body::CollaborationEnd { .. }
        | Body::FinishReason { .. } => unreachable!("written above"),
    }
    write_base(w, event, carried);
}

/// Metadata, and values stored in it because AG-UI has no member for them.
pub(crate) struct CarriedMetadata<'e> {
    pub(crate) metadata: Option<Object>,
    pub(crate) unknown: Option<&'e Object>,
    pub(crate) error: Option<&'e str>,
    pub(crate) title: Option<&'e str>,
}

impl<'e> CarriedMetadata<'e> {
    pub(crate) fn of(event: &'e Event) -> Self {
        Self { metadata: event.metadata().cloned(), unknown: event.unknown(), error: None, title: None }
    }

    /// Adds the metadata of the activity that carries the event.
    pub(crate) fn merge(&mut self, more: Option<Object>) {
        self.metadata = match (self.metadata.take(), more) {
            (Some(given), Some(more)) => Some(given.merged(&more)),
            (given, more) => given.or(more),
        };
    }

    /// The metadata as written.
    pub(crate) fn into_metadata(self) -> Option<Object> {
        if self.unknown.is_none() && self.error.is_none() && self.title.is_none() {
            return self.metadata;
        }
        let metadata = self.metadata.unwrap_or_else(Object::empty);
        let mut carrier = metadata.member(CARRIER).and_then(Json::into_object).unwrap_or_else(Object::empty);
        if let Some(unknown) = self.unknown {
            carrier = carrier.with("unknown", unknown.as_json().clone());
        }
        if let Some(error) = self.error {
            carrier = carrier.with("error", Json::string(error));
        }
        if let Some(title) = self.title {
            carrier = carrier.with("title", Json::string(title));
        }
        Some(metadata.with(CARRIER, carrier.into()))
    }
}

/// Writes the members that every event may have.
pub(super) fn write_base(w: &mut ObjectWriter<'_>, event: &Event, carried: CarriedMetadata<'_>) {
    let raw = event.raw();
    write_base_members(w, event.subagent.as_ref(), event.timestamp, carried.into_metadata().as_ref(), raw);
}

fn write_base_members(
    w: &mut ObjectWriter<'_>,
    subagent: Option<&SubagentId>,
    timestamp: Option<i64>,
    metadata: Option<&Object>,
    raw: Option<&Json>,
) {
    w.opt_str("subagentRunId", subagent.map(SubagentId::as_str))
        .opt_int("timestamp", timestamp)
        .opt_object("metadata", metadata)
        .opt_json("rawEvent", raw);
}

/// Appends a chunk as one JSON object.
pub(crate) fn write_chunk(out: &mut BytesMut, chunk: &EventChunk) {
    let mut w = ObjectWriter::new(out);
    w.str("type", chunk.kind.event_type());
    let (id, name) = match chunk.kind {
        ChunkKind::Tool => ("toolCallId", "toolCallName"),
        ChunkKind::Text | ChunkKind::Reasoning => ("messageId", "name"),
    };
    w.opt_str(id, chunk.id.as_deref())
        .opt_str("role", chunk.role.map(crate::event::Role::as_str))
        .opt_str(name, chunk.name.as_deref())
        .opt_str("parentMessageId", chunk.parent.as_deref())
        .opt_str("delta", chunk.delta.as_deref());
    let extra = chunk.extra.as_deref();
    let metadata = extra.and_then(chunk_metadata);
    let raw = extra.and_then(|extra| extra.raw.as_ref());
    write_base_members(&mut w, chunk.subagent.as_ref(), chunk.timestamp, metadata.as_ref(), raw);
    w.end();
}

/// Appends the chunk of a content event that continues the open stream of `owner`.
pub(crate) fn write_chunk_delta(out: &mut BytesMut, event: &Event, owner: Option<&SubagentId>) {
    let (head, id, delta): (&[u8], &str, _) = match &event.body {
        Body::ReasoningDelta { message, delta } => {
            (br#"{"type":"REASONING_MESSAGE_CHUNK","messageId":"#, message, delta)
        }
        Body::ToolArgs { call, delta } => (br#"{"type":"TOOL_CALL_CHUNK","toolCallId":"#, call, delta),
        Body::TextDelta { message, delta } => {
            (br#"{"type":"TEXT_MESSAGE_CHUNK","messageId":"#, message, delta)
        }
        _ => return,
    };
    write_content(out, head, id, delta, owner, event.timestamp);
}

/// The metadata of a chunk as written.
pub(crate) fn chunk_metadata(extra: &Extra) -> Option<Object> {
    let carried = CarriedMetadata {
        metadata: extra.metadata.clone(),
        unknown: extra.unknown.as_ref(),
        error: None,
        title: None,
    };
    carried.into_metadata()
}

/// Writes the members of an outcome.
pub(crate) fn write_outcome(w: &mut ObjectWriter<'_>, outcome: &Outcome) {
    match outcome {
        Outcome::Success { pending } => {
            w.str("type", "success");
            if !pending.is_empty() {
                w.array("pendingToolCallIds", |list| {
                    for call in pending {
                        list.str(call);
                    }
                });
            }
        }
        Outcome::Interrupt { interrupts } => {
            w.str("type", "interrupt").array("interrupts", |list| {
                for interrupt in interrupts {
                    list.object(|w| write_interrupt(w, interrupt, "subagentRunId"));
                }
            });
        }
        Outcome::Cancelled => {
            w.str("type", "cancelled");
        }
    }
}

/// Writes the members of an interrupt; `subagent_key` is the key of its subagent, which differs between formats.
pub(crate) fn write_interrupt(w: &mut ObjectWriter<'_>, interrupt: &Interrupt, subagent_key: &'static str) {
    w.str("id", &interrupt.id)
        .str("reason", &interrupt.reason)
        .opt_str("message", interrupt.message.as_deref())
        .opt_str("toolCallId", interrupt.tool_call.as_deref())
        .opt_object("responseSchema", interrupt.response_schema.as_ref())
        .opt_str("expiresAt", interrupt.expires_at.as_deref())
        .opt_object("metadata", interrupt.metadata.as_ref())
        .opt_str(subagent_key, interrupt.subagent.as_deref());
}

/// An event as JSON, unless it is nested deeper than a JSON value may be.
pub(super) fn event_json(event: &Event) -> Option<Json> {
    let mut out = BytesMut::new();
    write_event(&mut out, event);
    let text = String::from_utf8(out.into()).expect("JSON text is UTF-8");
    fits(&text, 0).then(|| Json::trusted(text))
}

/// An outcome as JSON.
pub(super) fn outcome_json(outcome: &Outcome) -> Json {
    object_json(|w| write_outcome(w, outcome))
}

/// An interrupt as JSON.
pub(crate) fn interrupt_json(interrupt: &Interrupt) -> Json {
    object_json(|w| write_interrupt(w, interrupt, "subagentRunId"))
}

/// The object that `fill` writes, as JSON.
pub(super) fn object_json(fill: impl FnOnce(&mut ObjectWriter<'_>)) -> Json {
    let mut out = BytesMut::new();
    let mut w = ObjectWriter::new(&mut out);
    fill(&mut w);
    w.end();
    Json::trusted(String::from_utf8(out.into()).expect("JSON text is UTF-8"))
}

/// The wire name of a resume status.
pub(crate) fn resume_status(status: ResumeStatus) -> &'static str {
    match status {
        ResumeStatus::Resolved => "resolved",
        ResumeStatus::Cancelled => "cancelled",
    }
}

/// Writes the list `resume`, if there is one.
pub(crate) fn write_resume(w: &mut ObjectWriter<'_>, entries: Option<&[ResumeEntry]>) {
    let Some(entries) = entries else { return };
    w.array("resume", |list| {
        for entry in entries {
            list.object(|w| {
                w.str("interruptId", &entry.interrupt)
                    .str("status", resume_status(entry.status))
                    .opt_json("payload", entry.payload.as_ref())
                    .opt_object("metadata", entry.metadata.as_ref());
            });
        }
    });
}

/// Writes the list `usage`, unless it is empty.
pub(crate) fn write_usage(w: &mut ObjectWriter<'_>, usage: &[Usage]) {
    if usage.is_empty() {
        return;
    }
    let count = |tokens: Option<u64>| tokens.and_then(|tokens| i64::try_from(tokens).ok());
    w.array("usage", |list: &mut ArrayWriter<'_>| {
        for entry in usage {
            list.object(|w| {
                w.opt_str("provider", entry.provider.as_deref())
                    .opt_str("model", entry.model.as_deref())
                    .opt_int("inputTokens", count(entry.input))
                    .opt_int("outputTokens", count(entry.output))
                    .opt_int("totalTokens", count(entry.total))
                    .opt_int("reasoningTokens", count(entry.reasoning))
                    .opt_int("cachedInputTokens", count(entry.cached_input))
                    .opt_int("cacheWriteInputTokens", count(entry.cache_write_input));
            });
        }
    });
}
