//! AG-UI JSON to events: decodes the text of one frame.
//!
//! There are two paths. Content events make up nine tenths of a stream and nearly always have three plain
//! members, so a derived, borrowing struct reads them (the fast path). All other frames take the full path:
//! unknown members are preserved and counted, unknown variants of unions are left out and counted, malformed
//! known members are an error with the JSON path.

use std::borrow::Cow;

use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use super::{
    super::{
        carried_events, input,
        wire::{CARRIER, ChunkKind, EVENTS, EventChunk, FINISH_REASON, MAX_INTEGER, WRAPPED_PREFIX},
    },
    messages, v0,
};
use crate::{
    event::{
        Body, Content, EncryptedEntity, Event, Extra, Interner, Interrupt, MessageId, Outcome, Role,
        RunError, RunFinished, RunStarted, SubagentOutcome, SubagentStarted, ToolCallId, ToolResult, Usage,
    },
    json::{Fields, Json, Object, Path, ReadError, ReadResult},
    tally::Tally,
};

/// State that decoding keeps from frame to frame.
#[derive(Debug, Default)]
pub(crate) struct ReadContext {
    pub(crate) interner: Interner,
    pub(crate) tally: Tally,
}

/// The content of one frame.
#[derive(Debug)]
pub(crate) enum Decoded {
    /// An event with a canonical counterpart.
    Event(Event),
    /// A shorthand, to be expanded.
    Chunk(Box<EventChunk>),
    /// A retired event without an id; the reader assigns one.
    Thinking(ThinkingEvent, Event),
    /// A short name for several events.
    Several(Vec<Event>),
    /// An unknown event type; counted.
    Unknown,
}

/// The retired THINKING_* events.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ThinkingEvent {
    Start,
    TextStart,
    TextContent,
    TextEnd,
    End,
}

/// A text or reasoning content event on the fast path.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct MessageDelta<'a> {
    #[serde(rename = "type", borrow)]
    _type: Cow<'a, str>,
    #[serde(borrow)]
    message_id: Cow<'a, str>,
    #[serde(borrow)]
    delta: Cow<'a, str>,
    #[serde(default, deserialize_with = "present")]
    timestamp: Option<i64>,
    #[serde(default, borrow, deserialize_with = "present")]
    subagent_run_id: Option<Cow<'a, str>>,
}

/// A TOOL_CALL_ARGS event on the fast path.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct ArgumentsDelta<'a> {
    #[serde(rename = "type", borrow)]
    _type: Cow<'a, str>,
    #[serde(borrow)]
    tool_call_id: Cow<'a, str>,
    #[serde(borrow)]
    delta: Cow<'a, str>,
    #[serde(default, deserialize_with = "present")]
    timestamp: Option<i64>,
    #[serde(default, borrow, deserialize_with = "present")]
    subagent_run_id: Option<Cow<'a, str>>,
}

/// An optional member: may be absent, must not be `null`.
fn present<'de, T: Deserialize<'de>, D: Deserializer<'de>>(deserializer: D) -> Result<Option<T>, D::Error> {
    T::deserialize(deserializer).map(Some)
}

/// Decodes one event. `sse_event` is the SSE field `event`, which old servers used instead of `type`.
pub(crate) fn decode_event(
    text: &str,
    sse_event: Option<&str>,
    context: &mut ReadContext,
) -> ReadResult<Decoded> {
    if let Some(event) = decode_fast(text, context) {
        return Ok(Decoded::Event(event));
    }
    decode_full(text, sse_event, context, 0)
}

fn decode_fast(text: &str, context: &mut ReadContext) -> Option<Event> {
    let rest = text.strip_prefix(r#"{"type":""#)?;
    let interner = &mut context.interner;
    let (body, timestamp, subagent) = if rest.starts_with("TEXT_MESSAGE_CONTENT\"") {
        let wire: MessageDelta<'_> = serde_json::from_str(text).ok()?;
        let message = interner.get(&wire.message_id);
        (Body::TextDelta { message, delta: wire.delta.into() }, wire.timestamp, wire.subagent_run_id)
    } else if rest.starts_with("TOOL_CALL_ARGS\"") {
        let wire: ArgumentsDelta<'_> = serde_json::from_str(text).ok()?;
        let call = interner.get(&wire.tool_call_id);
        (Body::ToolArgs { call, delta: wire.delta.into() }, wire.timestamp, wire.subagent_run_id)
    } else if rest.starts_with("REASONING_MESSAGE_CONTENT\"") {
        let wire: MessageDelta<'_> = serde_json::from_str(text).ok()?;
        let message = interner.get(&wire.message_id);
        (Body::ReasoningDelta { message, delta: wire.delta.into() }, wire.timestamp, wire.subagent_run_id)
    } else {
        return None;
    };
    if timestamp.is_some_and(|time| !(-MAX_INTEGER..=MAX_INTEGER).contains(&time)) {
        return None;
    }
    let subagent = subagent.map(|id| interner.get(&id));
    Some(Event { body, subagent, timestamp, extra: None })
}

/// Nesting limit of [`WRAPPED_PREFIX`] events: a wrapped event contains no further one.
const MAX_WRAPPING: usize = 1;

fn decode_full(
    text: &str,
    sse_event: Option<&str>,
    context: &mut ReadContext,
    wrapping: usize,
) -> ReadResult<Decoded> {
    let mut fields = Fields::parse(text, Path::Root)?;
    let event_type: Cow<'_, str> = match fields.take("type") {
        Some(raw) => match crate::json::text(raw, Path::Key(&Path::Root, "type"), &mut context.tally)? {
            empty if empty.is_empty() => {
                return Err(ReadError::new("/type", "expected an event type, found the empty string"));
            }
            name => name,
        },
        None => match sse_event {
            Some(name) if !context.tally.is_strict() => {
                context.tally.note("old shape", "event type in the SSE field `event` only");
                Cow::Owned(name.to_owned())
            }
            _ => return Err(fields.missing("type", "an event type")),
        },
    };
    let tally = &mut context.tally;
    if !is_known(&event_type, tally.is_strict()) {
        tally.note("unknown event", &event_type);
        return Ok(Decoded::Unknown);
    }
    let mut base = BaseMembers::read(&mut fields, is_attributable(&event_type), tally)?;
    let f = &mut fields;
    let decoded = match &*event_type {
        "RUN_STARTED" => {
            let input = match f.take("input") {
                Some(raw) => {
                    let path = Path::Key(&Path::Root, "input");
                    Some(Box::new(input::read_input(raw, path, tally)?))
                }
                None => None,
            };
            Body::RunStarted(Box::new(RunStarted {
                thread: f.need_id("threadId", tally)?,
                run: f.need_id("runId", tally)?,
                parent_run: f.id("parentRunId", tally)?,
                protocol_version: f.boxed("protocolVersion", tally)?,
                input,
            }))
            .into()
        }
        "RUN_FINISHED" => run_finished(f, base.take_outcome(), context)?.into(),
        "RUN_ERROR" => Body::RunError(Box::new(RunError {
            message: f.need_boxed("message", tally)?,
            code: f.boxed("code", tally)?,
            usage: read_usage(f, tally)?,
        }))
        .into(),
        "ERROR" => {
            tally.note("old shape", "ERROR for RUN_ERROR");
            let message = match f.boxed("message", tally)? {
                Some(message) => message,
                None => f.boxed("error", tally)?.unwrap_or_else(|| "the agent failed".into()),
            };
            Body::RunError(Box::new(RunError {
                message,
                code: f.boxed("code", tally)?,
                usage: read_usage(f, tally)?,
            }))
            .into()
        }
        "STEP_STARTED" => Body::StepStarted { name: f.need_boxed("stepName", tally)? }.into(),
        "STEP_FINISHED" => Body::StepFinished { name: f.need_boxed("stepName", tally)? }.into(),
        "TEXT_MESSAGE_START" => Body::TextStart {
            message: f.need_id("messageId", tally)?,
            role: text_role(f, tally)?,
            name: f.boxed("name", tally)?,
        }
        .into(),
        "TEXT_MESSAGE_CONTENT" => {
            Body::TextDelta { message: f.need_id("messageId", tally)?, delta: f.need_boxed("delta", tally)? }
                .into()
        }
        "TEXT_MESSAGE_END" => Body::TextEnd { message: f.need_id("messageId", tally)? }.into(),
        "TEXT_MESSAGE_CHUNK" => {
            let mut chunk = EventChunk::new(ChunkKind::Text);
            chunk.id = f.boxed("messageId", tally)?;
            chunk.role = text_role(f, tally)?;
            chunk.name = f.boxed("name", tally)?;
            chunk.delta = f.boxed("delta", tally)?;
            chunk.into()
        }
        "TOOL_CALL_START" => Body::ToolStart {
            call: f.need_id("toolCallId", tally)?,
            name: f.need_boxed("toolCallName", tally)?,
            parent: parent_message(f, tally)?.map(MessageId::from),
        }
        .into(),
        "TOOL_CALL_ARGS" => {
            Body::ToolArgs { call: f.need_id("toolCallId", tally)?, delta: f.need_boxed("delta", tally)? }
                .into()
        }
        "TOOL_CALL_END" => Body::ToolEnd { call: f.need_id("toolCallId", tally)? }.into(),
        "TOOL_CALL_CHUNK" => {
            let mut chunk = EventChunk::new(ChunkKind::Tool);
            chunk.id = f.boxed("toolCallId", tally)?;
            chunk.name = f.boxed("toolCallName", tally)?;
            chunk.parent = parent_message(f, tally)?.map(Into::into);
            chunk.delta = f.boxed("delta", tally)?;
            chunk.into()
        }
        "TOOL_CALL_RESULT" => {
            let explicit_role = match f.str("role", tally)?.as_deref() {
                None => false,
                Some("tool") => true,
                Some(other) => {
                    return Err(ReadError::new("/role", format!("expected `tool`, found `{other}`")));
                }
            };
            let (message, call) = (f.need_id("messageId", tally)?, f.need_id("toolCallId", tally)?);
            let content = messages::read_content(f, "content", tally)?;
            let error = tool_error(f, &content, tally)?;
            let error = base.error.take().or(error);
            Body::ToolResult(Box::new(ToolResult { message, call, content, error, explicit_role })).into()
        }
        "TOOL_CALL" => v0::tool_call(f, tally)?,
        "TOOL_RESULT" => v0::tool_result(f, tally)?.into(),
        "STATE_SNAPSHOT" => match f.json("snapshot", tally)? {
            Some(snapshot) => Body::StateSnapshot { snapshot }.into(),
            None => return Err(f.missing("snapshot", "any JSON value")),
        },
        "STATE_DELTA" => Body::StateDelta { patch: messages::read_patch(f, "delta", tally)? }.into(),
        "MESSAGES_SNAPSHOT" => Body::MessagesSnapshot { messages: messages::read_list(f, tally)? }.into(),
        "ACTIVITY_SNAPSHOT" => {
            let message = f.need_id("messageId", tally)?;
            let kind = f.need_boxed("activityType", tally)?;
            let Some(content) = f.object("content", tally)? else {
                return Err(f.missing("content", "an object"));
            };
            let replace = f.bool("replace")?;
            activity(message, kind, content, replace, &mut base).into()
        }
        "ACTIVITY_DELTA" => {
            let message = f.need_id("messageId", tally)?;
            let kind = f.need_boxed("activityType", tally)?;
            let patch = messages::read_patch(f, "patch", tally)?;
            match carried_events::event_from_patch(&message, &kind, &patch) {
                Some(body) => body.into(),
                None => Body::ActivityDelta { message, kind, patch }.into(),
            }
        }
        "REASONING_START" => {
            Body::ReasoningStart { message: f.need_id("messageId", tally)?, title: base.title.take() }.into()
        }
        "REASONING_MESSAGE_START" => {
            match f.need_str("role", tally)?.as_ref() {
                "reasoning" => {}
                other => {
                    return Err(ReadError::new("/role", format!("expected `reasoning`, found `{other}`")));
                }
            }
            Body::ReasoningMessageStart { message: f.need_id("messageId", tally)? }.into()
        }
        "REASONING_MESSAGE_CONTENT" => Body::ReasoningDelta {
            message: f.need_id("messageId", tally)?,
            delta: f.need_boxed("delta", tally)?,
        }
        .into(),
        "REASONING_MESSAGE_END" => {
            Body::ReasoningMessageEnd { message: f.need_id("messageId", tally)? }.into()
        }
        "REASONING_MESSAGE_CHUNK" => {
            let mut chunk = EventChunk::new(ChunkKind::Reasoning);
            chunk.id = f.boxed("messageId", tally)?;
            chunk.delta = f.boxed("delta", tally)?;
            chunk.into()
        }
        "REASONING_END" => Body::ReasoningEnd { message: f.need_id("messageId", tally)? }.into(),
        "REASONING_ENCRYPTED_VALUE" => {
            let subtype = f.need_str("subtype", tally)?;
            let entity = match &*subtype {
                "message" => EncryptedEntity::Message(f.need_id("entityId", tally)?),
                "tool-call" => EncryptedEntity::ToolCall(f.need_id("entityId", tally)?),
                other => {
                    let problem = format!("expected `message` or `tool-call`, found `{other}`");
                    return Err(ReadError::new("/subtype", problem));
                }
            };
            Body::ReasoningEncrypted { entity, value: f.need_boxed("encryptedValue", tally)? }.into()
        }
        "THINKING_START" => {
            tally.note("old shape", "THINKING_START");
            let title = f.boxed("title", tally)?;
            Decoded::Thinking(ThinkingEvent::Start, Body::ReasoningStart { message: "".into(), title }.into())
        }
        "THINKING_TEXT_MESSAGE_START" => {
            tally.note("old shape", "THINKING_TEXT_MESSAGE_START");
            Decoded::Thinking(
                ThinkingEvent::TextStart,
                Body::ReasoningMessageStart { message: "".into() }.into(),
            )
        }
        "THINKING_TEXT_MESSAGE_CONTENT" => {
            tally.note("old shape", "THINKING_TEXT_MESSAGE_CONTENT");
            let delta = f.need_boxed("delta", tally)?;
            Decoded::Thinking(
                ThinkingEvent::TextContent,
                Body::ReasoningDelta { message: "".into(), delta }.into(),
            )
        }
        "THINKING_TEXT_MESSAGE_END" => {
            tally.note("old shape", "THINKING_TEXT_MESSAGE_END");
            Decoded::Thinking(ThinkingEvent::TextEnd, Body::ReasoningMessageEnd { message: "".into() }.into())
        }
        "THINKING_END" => {
            tally.note("old shape", "THINKING_END");
            Decoded::Thinking(ThinkingEvent::End, Body::ReasoningEnd { message: "".into() }.into())
        }
        "SUBAGENT_STARTED" => {
            base.need_subagent(f)?;
            Body::SubagentStarted(Box::new(SubagentStarted {
                name: f.need_boxed("name", tally)?,
                description: f.boxed("description", tally)?,
                parent_subagent: f.id("parentSubagentRunId", tally)?,
                parent_call: f.id("parentToolCallId", tally)?,
                parent_message: f.id("parentMessageId", tally)?,
            }))
            .into()
        }
        "SUBAGENT_FINISHED" => {
            base.need_subagent(f)?;
            Body::SubagentFinished { result: result(f, tally)?, outcome: subagent_outcome(f, tally)? }.into()
        }
        "SUBAGENT_ERROR" => {
            base.need_subagent(f)?;
            Body::SubagentError { message: f.need_boxed("message", tally)?, code: f.boxed("code", tally)? }
                .into()
        }
        "RAW" => match f.json("event", tally)? {
            Some(event) => Body::Raw { event, source: f.boxed("source", tally)? }.into(),
            None => return Err(f.missing("event", "any JSON value")),
        },
        "CUSTOM" => {
            let name = f.need_boxed("name", tally)?;
            let Some(value) = f.json("value", tally)? else {
                return Err(f.missing("value", "any JSON value"));
            };
            if name.starts_with(WRAPPED_PREFIX)
                && wrapping < MAX_WRAPPING
                && let Some(wrapped) = unwrap_event(&name, &value, context, wrapping)
            {
                return Ok(wrapped);
            }
            finish_reason(&name, &value).unwrap_or(Body::Custom { name, value }).into()
        }
        _ => return Ok(Decoded::Unknown),
    };
    let unknown = fields.rest(&event_type, &mut context.tally)?;
    Ok(base.apply_to(decoded, unknown))
}

/// Whether this event type is supported; events of other types are not validated. The short names appeared in
/// documents only, and the official client does not support them.
fn is_known(event_type: &str, strict: bool) -> bool {
    const SHORT: &[&str] = &["ERROR", "TOOL_CALL", "TOOL_RESULT"];
    const THINKING: &[&str] = &[
        "THINKING_START",
        "THINKING_TEXT_MESSAGE_START",
        "THINKING_TEXT_MESSAGE_CONTENT",
        "THINKING_TEXT_MESSAGE_END",
        "THINKING_END",
    ];
    EVENTS.iter().any(|(name, ..)| *name == event_type)
        || THINKING.contains(&event_type)
        || (SHORT.contains(&event_type) && !strict)
}

/// Whether events of this type may belong to a subagent.
/// The error of a tool result: `error`, or the content if there is `isError`, as our writer and MCP servers mark it.
fn tool_error(f: &mut Fields<'_, '_>, content: &Content, tally: &mut Tally) -> ReadResult<Option<Box<str>>> {
    let is_text = f.peek("error").is_some_and(|raw| raw.get().starts_with('"'));
    let error = if is_text { f.boxed("error", tally)? } else { None };
    if f.peek("isError").is_some_and(|raw| raw.get() == "true") {
        f.take("isError");
        if f.peek("_meta").is_some_and(|raw| raw.get() == "{}") {
            f.take("_meta");
        }
        return Ok(error.or_else(|| Some(content.text().into())));
    }
    Ok(error)
}

fn is_attributable(event_type: &str) -> bool {
    !matches!(event_type, "RUN_STARTED" | "RUN_FINISHED" | "RUN_ERROR" | "ERROR" | "MESSAGES_SNAPSHOT")
}

/// The members that every event may have.
struct BaseMembers {
    timestamp: Option<i64>,
    raw: Option<Json>,
    metadata: Option<Object>,
    subagent: Option<crate::event::SubagentId>,
    /// Values that our writer stored in the metadata.
    unknown: Option<Object>,
    error: Option<Box<str>>,
    title: Option<Box<str>>,
}

impl BaseMembers {
    fn read(fields: &mut Fields<'_, '_>, attributable: bool, tally: &mut Tally) -> ReadResult<Self> {
        let raw = match fields.take_unless_null("rawEvent") {
            Some(raw) => Some(crate::json::json(raw, Path::Key(&Path::Root, "rawEvent"), tally)?),
            None => None,
        };
        let mut base = Self {
            timestamp: fields.integer("timestamp", -MAX_INTEGER..=MAX_INTEGER)?,
            raw,
            metadata: fields.object("metadata", tally)?,
            subagent: if attributable { fields.id("subagentRunId", tally)? } else { None },
            unknown: None,
            error: None,
            title: None,
        };
        base.unpack_carrier();
        Ok(base)
    }

    /// Moves the values that our writer stored in the metadata into their fields.
    fn unpack_carrier(&mut self) {
        let Some(metadata) = &self.metadata else { return };
        if !metadata.get().contains("\"agentwire\"") {
            return;
        }
        let Some(carried) = metadata.member(CARRIER).and_then(Json::into_object) else {
            return;
        };
        self.unknown = carried.member("unknown").and_then(Json::into_object);
        self.error = carried.get_str("error").map(Into::into);
        self.title = carried.get_str("title").map(Into::into);
        let rest = carried.without("unknown").without("error").without("title");
        let metadata = metadata.without(CARRIER);
        let metadata = if rest.is_empty() { metadata } else { metadata.with(CARRIER, rest.into()) };
        self.metadata = (!metadata.is_empty()).then_some(metadata);
    }

    /// Takes the outcome that our writer stored in the metadata because the client refuses it in its place.
    fn take_outcome(&mut self) -> Option<Json> {
        let metadata = self.metadata.as_ref()?;
        let carried = metadata.member(CARRIER)?.into_object()?;
        let outcome = carried.member("outcome")?;
        let rest = carried.without("outcome");
        let metadata = metadata.without(CARRIER);
        let metadata = if rest.is_empty() { metadata } else { metadata.with(CARRIER, rest.into()) };
        self.metadata = (!metadata.is_empty()).then_some(metadata);
        Some(outcome)
    }

    fn need_subagent(&self, fields: &Fields<'_, '_>) -> ReadResult {
        match self.subagent {
            Some(_) => Ok(()),
            None => Err(fields.missing("subagentRunId", "a string")),
        }
    }

    /// Sets the base members on the decoded events.
    fn apply_to(self, decoded: Decoded, unknown: Option<Object>) -> Decoded {
        let unknown = match (self.unknown, unknown) {
            (Some(earlier), Some(now)) => Some(earlier.merged(&now)),
            (earlier, now) => earlier.or(now),
        };
        let extra = (self.metadata.is_some() || self.raw.is_some() || unknown.is_some())
            .then(|| Box::new(Extra { metadata: self.metadata, raw: self.raw, unknown }));
        let complete = |mut event: Event| {
            (event.subagent, event.timestamp) = (self.subagent.clone(), self.timestamp);
            event.extra = extra.clone();
            event
        };
        match decoded {
            Decoded::Event(event) => Decoded::Event(complete(event)),
            Decoded::Thinking(kind, event) => Decoded::Thinking(kind, complete(event)),
            Decoded::Several(events) => Decoded::Several(events.into_iter().map(complete).collect()),
            Decoded::Chunk(mut chunk) => {
                (chunk.subagent, chunk.timestamp, chunk.extra) = (self.subagent, self.timestamp, extra);
                Decoded::Chunk(chunk)
            }
            Decoded::Unknown => Decoded::Unknown,
        }
    }
}

impl From<Body> for Decoded {
    fn from(body: Body) -> Self {
        Self::Event(Event::new(body))
    }
}

impl From<EventChunk> for Decoded {
    fn from(chunk: EventChunk) -> Self {
        Self::Chunk(Box::new(chunk))
    }
}

fn text_role(f: &mut Fields<'_, '_>, tally: &mut Tally) -> ReadResult<Option<Role>> {
    let Some(name) = f.str("role", tally)? else {
        return Ok(None);
    };
    match Role::parse(&name) {
        Some(role) if role.is_textual() => Ok(Some(role)),
        _ => {
            let problem = format!("expected `developer`, `system`, `assistant` or `user`, found `{name}`");
            Err(ReadError::new("/role", problem))
        }
    }
}

/// `parentMessageId`, which 0.x servers sent as `null`.
pub(crate) fn parent_message(f: &mut Fields<'_, '_>, tally: &mut Tally) -> ReadResult<Option<String>> {
    match f.take_unless_null("parentMessageId") {
        Some(raw) => {
            let path = Path::Key(&Path::Root, "parentMessageId");
            Ok(Some(crate::json::text(raw, path, tally)?.into_owned()))
        }
        None => Ok(None),
    }
}

/// `result`, which 0.x servers sent as `null`.
fn result(f: &mut Fields<'_, '_>, tally: &mut Tally) -> ReadResult<Option<Json>> {
    match f.take_unless_null("result") {
        Some(raw) => crate::json::json(raw, Path::Key(&Path::Root, "result"), tally).map(Some),
        None => Ok(None),
    }
}

fn run_finished(
    f: &mut Fields<'_, '_>,
    carried: Option<Json>,
    context: &mut ReadContext,
) -> ReadResult<Body> {
    let strict = context.tally.is_strict();
    let tally = &mut context.tally;
    let thread = f.need_id("threadId", tally)?;
    let run: crate::event::RunId = f.need_id("runId", tally)?;
    let result = result(f, tally)?;
    let usage = read_usage(f, tally)?;
    let path = Path::Key(&Path::Root, "outcome");
    let outcome = match f.take_unless_null("outcome") {
        None => None,
        Some(raw) if raw.get().starts_with('"') && !strict => {
            tally.note("old shape", "outcome as a string");
            match &*crate::json::text(raw, path, tally)? {
                "interrupt" => Some(Outcome::Interrupt { interrupts: v0::draft_interrupts(f, &run, tally)? }),
                "success" => Some(Outcome::Success { pending: Vec::new() }),
                "cancelled" => Some(Outcome::Cancelled),
                other => {
                    tally.note("unknown outcome", other);
                    None
                }
            }
        }
        Some(raw) => read_outcome(raw, path, tally)?,
    };
    let carried = carried.and_then(|json| {
        let raw = serde_json::from_str::<&RawValue>(json.get()).ok()?;
        read_outcome(raw, path, &mut Tally::default()).ok()?
    });
    let outcome = carried.or(outcome);
    Ok(Body::RunFinished(Box::new(RunFinished { thread, run, result, outcome, usage })))
}

/// Reads the outcome of a run; `None` if its type is unknown.
pub(crate) fn read_outcome(raw: &RawValue, path: Path<'_>, tally: &mut Tally) -> ReadResult<Option<Outcome>> {
    let mut f = Fields::of(raw, path)?;
    let outcome = match union_tag(&mut f, "type", tally).as_deref() {
        Some("success") => {
            let mut pending = Vec::new();
            f.array("pendingToolCallIds", |raw, path| {
                pending.push(ToolCallId::from(
                    crate::json::text(raw, path, &mut Tally::default())?.into_owned(),
                ));
                Ok(())
            })?;
            Outcome::Success { pending }
        }
        Some("interrupt") => {
            let mut interrupts = Vec::new();
            if !f.array("interrupts", |raw, path| {
                interrupts.push(read_interrupt(raw, path, tally)?);
                Ok(())
            })? {
                return Err(f.missing("interrupts", "a list of interrupts"));
            }
            if interrupts.is_empty() {
                let problem = "expected at least one interrupt, found an empty list";
                return Err(Path::Key(&path, "interrupts").error(problem));
            }
            Outcome::Interrupt { interrupts }
        }
        Some("cancelled") => Outcome::Cancelled,
        other => {
            tally.note("unknown outcome", other.unwrap_or("(no type)"));
            return Ok(None);
        }
    };
    f.rest("outcome", tally)?;
    Ok(Some(outcome))
}

/// Reads an interrupt of an outcome.
pub(crate) fn read_interrupt(raw: &RawValue, path: Path<'_>, tally: &mut Tally) -> ReadResult<Interrupt> {
    let mut f = Fields::of(raw, path)?;
    let interrupt = Interrupt {
        id: f.need_id("id", tally)?,
        reason: f.need_boxed("reason", tally)?,
        message: f.boxed("message", tally)?,
        tool_call: f.id("toolCallId", tally)?,
        response_schema: f.object("responseSchema", tally)?,
        expires_at: f.boxed("expiresAt", tally)?,
        metadata: f.object("metadata", tally)?,
        subagent: f.id("subagentRunId", tally)?,
    };
    f.rest("interrupt", tally)?;
    Ok(interrupt)
}

fn subagent_outcome(f: &mut Fields<'_, '_>, tally: &mut Tally) -> ReadResult<Option<SubagentOutcome>> {
    let Some(raw) = f.take("outcome") else {
        return Ok(None);
    };
    let path = Path::Key(&Path::Root, "outcome");
    let mut f = Fields::of(raw, path)?;
    let outcome = match union_tag(&mut f, "type", tally).as_deref() {
        Some("success") => SubagentOutcome::Success,
        Some("suspended") => {
            let mut interrupts = Vec::new();
            f.array("interruptIds", |raw, path| {
                interrupts.push(crate::json::text(raw, path, tally)?.into_owned().into());
                Ok(())
            })?;
            SubagentOutcome::Suspended { interrupts }
        }
        other => {
            tally.note("unknown outcome", other.unwrap_or("(no type)"));
            return Ok(None);
        }
    };
    f.rest("outcome", tally)?;
    Ok(Some(outcome))
}

/// The discriminator of a union; `None` unless it is a string.
pub(crate) fn union_tag<'a>(f: &mut Fields<'a, '_>, key: &str, tally: &mut Tally) -> Option<Cow<'a, str>> {
    let raw = f.take(key)?;
    crate::json::text(raw, Path::Root, tally).ok()
}

/// Reads the optional list `usage`.
pub(crate) fn read_usage(f: &mut Fields<'_, '_>, tally: &mut Tally) -> ReadResult<Vec<Usage>> {
    let mut usage = Vec::new();
    f.array("usage", |raw, path| {
        let mut f = Fields::of(raw, path)?;
        let mut count = |key| Ok::<_, ReadError>(f.integer(key, 0..=MAX_INTEGER)?.map(i64::unsigned_abs));
        let (input, output, total) = (count("inputTokens")?, count("outputTokens")?, count("totalTokens")?);
        let reasoning = count("reasoningTokens")?;
        let (cached_input, cache_write_input) =
            (count("cachedInputTokens")?, count("cacheWriteInputTokens")?);
        usage.push(Usage {
            provider: f.boxed("provider", tally)?,
            model: f.boxed("model", tally)?,
            input,
            output,
            total,
            reasoning,
            cached_input,
            cache_write_input,
        });
        f.rest("usage", tally)?;
        Ok(())
    })?;
    Ok(usage)
}

/// An activity snapshot, or the event that it carries.
fn activity(
    message: MessageId,
    kind: Box<str>,
    content: Object,
    replace: Option<bool>,
    base: &mut BaseMembers,
) -> Body {
    if replace.is_none()
        && let Some(body) =
            carried_events::event_from_activity(&message, &kind, &content, base.metadata.as_ref())
    {
        base.metadata = carried_events::metadata_beside(&body, base.metadata.take());
        return body;
    }
    Body::ActivitySnapshot { message, kind, content, replace }
}

/// The AG-UI 1.0 event that our writer wrapped for a 0.x peer.
fn unwrap_event(name: &str, value: &Json, context: &mut ReadContext, wrapping: usize) -> Option<Decoded> {
    // The inner type decides: an activity may carry an event of another type.
    let inner = value.clone().into_object()?.get_str("type")?;
    if !name.strip_prefix(WRAPPED_PREFIX)?.eq_ignore_ascii_case(&inner) {
        return None;
    }
    let wrapped = decode_full(value.get(), None, context, wrapping + 1).ok()?;
    matches!(wrapped, Decoded::Event(_)).then_some(wrapped)
}

fn finish_reason(name: &str, value: &Json) -> Option<Body> {
    if name != FINISH_REASON {
        return None;
    }
    let object = value.clone().into_object()?;
    let reason = object.get_str("reason")?;
    let message = object.get_str("messageId").map(MessageId::from);
    Some(Body::FinishReason { message, reason: reason.into() })
}
