//! Protobuf to the JSON shape of an event, which the JSON decoder validates.
//!
//! Tables map fields to members. Mappings that no table can express (the content of a message, an outcome
//! spread over several fields) are functions below them.

use bytes::{BufMut, BytesMut};

use super::super::{
    input,
    reader::json::{self, Decoded, ReadContext},
    wire::EVENTS,
};
use crate::{
    event::{Body, Event, Role, RunInput},
    format::protobuf::{
        value::{lossy, struct_to_json, value_to_json},
        wire::{Malformed, Message},
    },
    json::{ReadError, ReadResult, write_str},
    tally::Tally,
};

/// The JSON form of a field.
#[derive(Clone, Copy)]
enum FieldKind {
    /// A required string; an absent one reads as empty.
    Str,
    /// An optional string.
    OptStr,
    /// An optional integer.
    Int,
    /// An optional boolean.
    Bool,
    /// A `Value`.
    Json,
    /// A `Struct`.
    Object,
    /// A list of messages with the members of this [`table`].
    Objects(&'static str, EmptyList),
    /// A list of messages that a function reads.
    List(fn(&Message<'_>, &mut JsonOut<'_>) -> ReadResult<ListElement>, EmptyList),
    /// A list of strings; left out when empty.
    Strs,
}

/// The JSON form of an empty list.
#[derive(Clone, Copy, PartialEq)]
enum EmptyList {
    Absent,
    Written,
}

/// The result of reading a list element.
#[derive(PartialEq)]
enum ListElement {
    Read,
    /// A variant of a later version; left out.
    Unknown,
}

type FieldTable = &'static [(u32, &'static str, FieldKind)];

const BASE: FieldTable =
    &[(2, "timestamp", FieldKind::Int), (3, "rawEvent", FieldKind::Json), (4, "metadata", FieldKind::Object)];

/// The members of an event or message, without its base members and those mapped by functions.
fn table(event: &str) -> FieldTable {
    use FieldKind::{Bool, Int, Json, List, Object, Objects, OptStr, Str, Strs};
    match event {
        "TEXT_MESSAGE_START" => {
            &[(2, "messageId", Str), (3, "role", OptStr), (4, "name", OptStr), (5, "subagentRunId", OptStr)]
        }
        "TEXT_MESSAGE_CONTENT" => &[(2, "messageId", Str), (3, "delta", Str), (4, "subagentRunId", OptStr)],
        "TEXT_MESSAGE_END" => &[(2, "messageId", Str), (3, "subagentRunId", OptStr)],
        "TEXT_MESSAGE_CHUNK" => &[
            (2, "messageId", OptStr),
            (3, "role", OptStr),
            (4, "delta", OptStr),
            (5, "name", OptStr),
            (6, "subagentRunId", OptStr),
        ],
        "TOOL_CALL_START" => &[
            (2, "toolCallId", Str),
            (3, "toolCallName", Str),
            (4, "parentMessageId", OptStr),
            (5, "subagentRunId", OptStr),
        ],
        "TOOL_CALL_ARGS" => &[(2, "toolCallId", Str), (3, "delta", Str), (4, "subagentRunId", OptStr)],
        "TOOL_CALL_END" => &[(2, "toolCallId", Str), (3, "subagentRunId", OptStr)],
        "TOOL_CALL_CHUNK" => &[
            (2, "toolCallId", OptStr),
            (3, "toolCallName", OptStr),
            (4, "parentMessageId", OptStr),
            (5, "delta", OptStr),
            (6, "subagentRunId", OptStr),
        ],
        "TOOL_CALL_RESULT" => &[
            (2, "subagentRunId", OptStr),
            (3, "messageId", Str),
            (4, "toolCallId", Str),
            (6, "role", OptStr),
        ],
        "STATE_SNAPSHOT" => &[(2, "snapshot", Json), (3, "subagentRunId", OptStr)],
        "STATE_DELTA" => &[(2, "delta", List(operation, EmptyList::Written)), (3, "subagentRunId", OptStr)],
        "MESSAGES_SNAPSHOT" => &[(2, "messages", List(message, EmptyList::Written))],
        "ACTIVITY_SNAPSHOT" => &[
            (2, "subagentRunId", OptStr),
            (3, "messageId", Str),
            (4, "activityType", Str),
            (5, "content", Object),
            (6, "replace", Bool),
        ],
        "ACTIVITY_DELTA" => &[
            (2, "subagentRunId", OptStr),
            (3, "messageId", Str),
            (4, "activityType", Str),
            (5, "patch", List(operation, EmptyList::Written)),
        ],
        "RAW" => &[(2, "event", Json), (3, "source", OptStr), (4, "subagentRunId", OptStr)],
        "CUSTOM" => &[(2, "name", Str), (3, "value", Json), (4, "subagentRunId", OptStr)],
        "RUN_STARTED" => &[
            (2, "threadId", Str),
            (3, "runId", Str),
            (4, "parentRunId", OptStr),
            (6, "protocolVersion", OptStr),
        ],
        "RUN_FINISHED" => &[
            (2, "threadId", Str),
            (3, "runId", Str),
            (4, "result", Json),
            (7, "usage", Objects("usage", EmptyList::Absent)),
        ],
        "RUN_ERROR" => {
            &[(2, "code", OptStr), (3, "message", Str), (4, "usage", Objects("usage", EmptyList::Absent))]
        }
        "STEP_STARTED" | "STEP_FINISHED" => &[(2, "stepName", Str), (3, "subagentRunId", OptStr)],
        "REASONING_START" | "REASONING_END" | "REASONING_MESSAGE_END" => {
            &[(2, "subagentRunId", OptStr), (3, "messageId", Str)]
        }
        "REASONING_MESSAGE_START" => &[(2, "subagentRunId", OptStr), (3, "messageId", Str), (4, "role", Str)],
        "REASONING_MESSAGE_CONTENT" => {
            &[(2, "subagentRunId", OptStr), (3, "messageId", Str), (4, "delta", Str)]
        }
        "REASONING_MESSAGE_CHUNK" => {
            &[(2, "subagentRunId", OptStr), (3, "messageId", OptStr), (4, "delta", OptStr)]
        }
        "REASONING_ENCRYPTED_VALUE" => &[
            (2, "subagentRunId", OptStr),
            (3, "subtype", Str),
            (4, "entityId", Str),
            (5, "encryptedValue", Str),
        ],
        "SUBAGENT_STARTED" => &[
            (2, "subagentRunId", Str),
            (3, "name", Str),
            (4, "description", OptStr),
            (5, "parentSubagentRunId", OptStr),
            (6, "parentToolCallId", OptStr),
            (7, "parentMessageId", OptStr),
        ],
        "SUBAGENT_FINISHED" => &[(2, "subagentRunId", Str), (3, "result", Json)],
        "SUBAGENT_ERROR" => &[(2, "subagentRunId", Str), (3, "message", Str), (4, "code", OptStr)],
        "usage" => &[
            (1, "provider", OptStr),
            (2, "model", OptStr),
            (3, "inputTokens", Int),
            (4, "outputTokens", Int),
            (5, "totalTokens", Int),
            (6, "reasoningTokens", Int),
            (7, "cachedInputTokens", Int),
            (8, "cacheWriteInputTokens", Int),
        ],
        "interrupt" => &[
            (1, "id", Str),
            (2, "reason", Str),
            (3, "message", OptStr),
            (4, "toolCallId", OptStr),
            (5, "responseSchema", Json),
            (6, "expiresAt", OptStr),
            (7, "metadata", Json),
            (8, "subagentRunId", OptStr),
        ],
        "message" => &[
            (1, "id", Str),
            (2, "role", Str),
            (4, "name", OptStr),
            (5, "toolCalls", List(tool_call, EmptyList::Absent)),
            (6, "toolCallId", OptStr),
            (7, "error", OptStr),
            (9, "metadata", Object),
            (10, "subagentRunId", OptStr),
            (11, "encryptedValue", OptStr),
            (12, "activityType", OptStr),
        ],
        "toolCall" => {
            &[(1, "id", Str), (2, "type", Str), (4, "metadata", Object), (5, "encryptedValue", OptStr)]
        }
        "input" => &[
            (1, "threadId", Str),
            (2, "runId", Str),
            (3, "parentRunId", OptStr),
            (4, "state", Json),
            (5, "messages", List(message, EmptyList::Written)),
            (6, "tools", Objects("tool", EmptyList::Written)),
            (7, "context", Objects("context", EmptyList::Written)),
            (8, "forwardedProps", Json),
            (9, "resume", Objects("resume", EmptyList::Written)),
            (10, "protocolVersion", OptStr),
        ],
        "tool" => {
            &[(1, "name", Str), (2, "description", Str), (3, "parameters", Json), (4, "metadata", Object)]
        }
        "context" => &[(1, "description", Str), (2, "value", Str)],
        "resume" => {
            &[(1, "interruptId", Str), (2, "status", Str), (3, "payload", Json), (4, "metadata", Object)]
        }
        "pending" => &[(8, "pendingToolCallIds", Strs)],
        "suspended" => &[(5, "interruptIds", Strs)],
        _ => &[],
    }
}

/// A JSON object being written.
struct JsonOut<'o> {
    text: &'o mut BytesMut,
    tally: &'o mut Tally,
    first: bool,
}

impl JsonOut<'_> {
    fn key(&mut self, key: &str) {
        if !self.first {
            self.text.put_u8(b',');
        }
        self.first = false;
        write_str(self.text, key);
        self.text.put_u8(b':');
    }

    fn string(&mut self, key: &str, bytes: &[u8]) {
        self.key(key);
        write_str(self.text, &lossy(bytes, self.tally));
    }

    /// Writes the members in a table.
    fn members(&mut self, from: &Message<'_>, table: FieldTable) -> ReadResult {
        for &(number, key, kind) in table {
            match kind {
                FieldKind::Str => self.string(key, from.bytes(number).unwrap_or_default()),
                FieldKind::OptStr => {
                    if let Some(bytes) = from.bytes(number) {
                        self.string(key, bytes);
                    }
                }
                FieldKind::Int => {
                    if let Some(value) = from.varint(number) {
                        self.key(key);
                        self.text.put_slice((value as i64).to_string().as_bytes());
                    }
                }
                FieldKind::Bool => {
                    if let Some(value) = from.varint(number) {
                        self.key(key);
                        self.text.put_slice(if value == 0 { b"false" } else { b"true" });
                    }
                }
                FieldKind::Json => {
                    if let Some(bytes) = from.message(number) {
                        let mark = (self.text.len(), self.first);
                        self.key(key);
                        let is_present = value_to_json(&bytes, self.text, 1, self.tally)
                            .map_err(|bad| bad.at(&format!("/{key}")))?;
                        if !is_present {
                            self.text.truncate(mark.0);
                            self.first = mark.1;
                        }
                    }
                }
                FieldKind::Object => {
                    if let Some(bytes) = from.message(number) {
                        self.key(key);
                        struct_to_json(&bytes, self.text, 1, self.tally)
                            .map_err(|bad| bad.at(&format!("/{key}")))?;
                    }
                }
                FieldKind::Objects(name, empty) => {
                    if empty == EmptyList::Written || from.repeated(number).next().is_some() {
                        self.objects(key, from.repeated(number), name)?;
                    }
                }
                FieldKind::List(read, empty) => {
                    if empty == EmptyList::Written || from.repeated(number).next().is_some() {
                        self.list(key, from.repeated(number), read)?;
                    }
                }
                FieldKind::Strs => {
                    if from.repeated(number).next().is_some() {
                        self.key(key);
                        self.text.put_u8(b'[');
                        for (index, text) in from.repeated(number).enumerate() {
                            if index > 0 {
                                self.text.put_u8(b',');
                            }
                            write_str(self.text, &lossy(text, self.tally));
                        }
                        self.text.put_u8(b']');
                    }
                }
            }
        }
        Ok(())
    }

    /// Writes a list of objects with the members of one table.
    fn objects<'a>(&mut self, key: &str, elements: impl Iterator<Item = &'a [u8]>, name: &str) -> ReadResult {
        self.list(key, elements, |from, out| out.members(from, table(name)).map(|()| ListElement::Read))
    }

    fn list<'a>(
        &mut self,
        key: &str,
        elements: impl Iterator<Item = &'a [u8]>,
        read: impl Fn(&Message<'_>, &mut JsonOut<'_>) -> ReadResult<ListElement>,
    ) -> ReadResult {
        self.key(key);
        self.text.put_u8(b'[');
        let mut first = true;
        for (index, bytes) in elements.enumerate() {
            let mark = self.text.len();
            if !first {
                self.text.put_u8(b',');
            }
            let message = Message::parse(bytes).map_err(|_| malformed(&format!("/{key}/{index}")))?;
            self.text.put_u8(b'{');
            let mut out = JsonOut { text: self.text, tally: self.tally, first: true };
            let element = read(&message, &mut out)?;
            self.text.put_u8(b'}');
            if element == ListElement::Unknown {
                self.text.truncate(mark);
            } else {
                first = false;
            }
        }
        self.text.put_u8(b']');
        Ok(())
    }

    /// Writes a nested object.
    fn object(&mut self, key: &str, fill: impl FnOnce(&mut JsonOut<'_>) -> ReadResult) -> ReadResult {
        self.key(key);
        self.text.put_u8(b'{');
        fill(&mut JsonOut { text: self.text, tally: self.tally, first: true })?;
        self.text.put_u8(b'}');
        Ok(())
    }
}

fn malformed(path: &str) -> ReadError {
    ReadError::new(path, "expected a protobuf message, found other bytes")
}

fn operation(from: &Message<'_>, out: &mut JsonOut<'_>) -> ReadResult<ListElement> {
    let op = match from.varint(1).unwrap_or(0) {
        0 => "add",
        1 => "remove",
        2 => "replace",
        3 => "move",
        4 => "copy",
        5 => "test",
        unknown => {
            out.tally.note("unknown patch operation", &unknown.to_string());
            return Ok(ListElement::Unknown);
        }
    };
    out.string("op", op.as_bytes());
    out.members(
        from,
        &[(2, "path", FieldKind::Str), (3, "from", FieldKind::OptStr), (4, "value", FieldKind::Json)],
    )?;
    Ok(ListElement::Read)
}

fn tool_call(from: &Message<'_>, out: &mut JsonOut<'_>) -> ReadResult<ListElement> {
    out.members(from, table("toolCall"))?;
    if let Some(bytes) = from.message(3) {
        let function = Message::parse(&bytes).map_err(|_| malformed("/toolCalls/function"))?;
        out.object("function", |out| {
            out.members(&function, &[(1, "name", FieldKind::Str), (2, "arguments", FieldKind::Str)])
        })?;
    }
    Ok(ListElement::Read)
}

fn message(from: &Message<'_>, out: &mut JsonOut<'_>) -> ReadResult<ListElement> {
    out.members(from, table("message"))?;
    let role = from.bytes(2).unwrap_or_default();
    let has_parts = from.repeated(8).next().is_some();
    let (text, activity) = (from.bytes(3), from.message(13));
    let fail = |problem: &str| Err(ReadError::new("/messages", problem));
    let (takes_parts, is_activity) = match std::str::from_utf8(role).ok().and_then(Role::parse) {
        Some(role) => (matches!(role, Role::User | Role::Tool), role == Role::Activity),
        // A message of a later version: converted in the form that is present, then dropped by the JSON reader.
        None => {
            let forms = [text.is_some(), has_parts, activity.is_some()];
            if forms.into_iter().filter(|form| *form).count() > 1 {
                return fail("a message has one form of content, not several");
            }
            (has_parts, activity.is_some())
        }
    };
    if has_parts && !takes_parts {
        return fail("a message of this role has no content parts");
    }
    if activity.is_some() && !is_activity {
        return fail("only an activity message has activity content");
    }
    if is_activity && text.is_some() {
        return fail("an activity message has no text content");
    }
    if text.is_some() && has_parts {
        return fail("a message has text content or content parts, not both");
    }
    match (text, activity) {
        (Some(text), _) => out.string("content", text),
        (None, Some(content)) => {
            out.key("content");
            struct_to_json(&content, out.text, 1, out.tally).map_err(|bad| bad.at("/messages/content"))?;
        }
        (None, None) if takes_parts => out.list("content", from.repeated(8), part)?,
        (None, None) => {}
    }
    Ok(ListElement::Read)
}

fn part(from: &Message<'_>, out: &mut JsonOut<'_>) -> ReadResult<ListElement> {
    const KINDS: [&str; 5] = ["text", "image", "audio", "video", "document"];
    let (arm, bytes) = match one_arm(from, 1..=5, "a content part")? {
        Some(found) => found,
        None => {
            out.tally.note("unknown content part", "(binary)");
            return Ok(ListElement::Unknown);
        }
    };
    let inner = Message::parse(&bytes).map_err(|_| malformed("/content"))?;
    out.string("type", KINDS[arm as usize - 1].as_bytes());
    if arm == 1 {
        out.members(
            &inner,
            &[(1, "text", FieldKind::Str), (2, "id", FieldKind::OptStr), (3, "metadata", FieldKind::Json)],
        )?;
        return Ok(ListElement::Read);
    }
    if let Some(bytes) = inner.message(1) {
        let source = Message::parse(&bytes).map_err(|_| malformed("/content/source"))?;
        let Some((arm, bytes)) = one_arm(&source, 1..=3, "a source")? else {
            out.tally.note("unknown part source", "(binary)");
            return Ok(ListElement::Unknown);
        };
        let inner = Message::parse(&bytes).map_err(|_| malformed("/content/source"))?;
        let (name, table): (_, FieldTable) = match arm {
            1 => ("data", &[(1, "value", FieldKind::Str), (2, "mimeType", FieldKind::Str)]),
            2 => ("url", &[(1, "value", FieldKind::Str), (2, "mimeType", FieldKind::OptStr)]),
            _ => (
                "file",
                &[
                    (1, "value", FieldKind::Str),
                    (2, "provider", FieldKind::OptStr),
                    (3, "mimeType", FieldKind::OptStr),
                ],
            ),
        };
        out.object("source", |out| {
            out.string("type", name.as_bytes());
            out.members(&inner, table)
        })?;
    }
    out.members(&inner, &[(2, "metadata", FieldKind::Json), (3, "id", FieldKind::OptStr)])?;
    Ok(ListElement::Read)
}

/// The set field of a `oneof` and its bytes.
type Arm<'a> = (u32, std::borrow::Cow<'a, [u8]>);

/// The field of a `oneof` that is set; two different ones are an error.
fn one_arm<'a>(
    from: &Message<'a>,
    numbers: std::ops::RangeInclusive<u32>,
    subject: &str,
) -> ReadResult<Option<Arm<'a>>> {
    match from.arms(numbers)[..] {
        [] => Ok(None),
        [arm] => Ok(Some((arm, from.message(arm).unwrap_or_default()))),
        _ => Err(ReadError::new("", format!("{subject} carries more than one arm"))),
    }
}

/// Decodes one `Event` message.
pub(crate) fn decode_event(bytes: &[u8], context: &mut ReadContext) -> ReadResult<Decoded> {
    let whole = Message::parse(bytes).map_err(|_| malformed(""))?;
    let last_known = EVENTS.iter().map(|(_, arm, _)| *arm).max().unwrap_or(0);
    let Some((arm, payload)) = one_arm(&whole, 1..=last_known, "the event")? else {
        // An event of a later version is tolerated if it is well-formed.
        let later = whole.arms(last_known + 1..=u32::MAX >> 3);
        let is_well_formed = |arm: &u32| whole.repeated(*arm).all(|bytes| Message::parse(bytes).is_ok());
        if later.is_empty() || !later.iter().all(is_well_formed) {
            return Err(ReadError::new("", "expected an event, found a message without one"));
        }
        context.tally.note("unknown event", &format!("arm {}", later[0]));
        return Ok(Decoded::Unknown);
    };
    let (name, _, number) = EVENTS.iter().find(|(_, known, _)| *known == arm).expect("the arm is known");
    let message = Message::parse(&payload).map_err(|Malformed| malformed(""))?;
    let base = message.message(1).ok_or_else(|| ReadError::new("", "the event has no base_event"))?;
    let base = Message::parse(&base).map_err(|_| malformed("/base_event"))?;
    let declared = base.varint(1).unwrap_or(0);
    if declared != *number {
        let declared = EVENTS.iter().find(|(_, _, value)| *value == declared);
        let declared = declared.map_or("an unknown type", |(name, ..)| *name);
        return Err(ReadError::new("", format!("the event is {name} but its base says {declared}")));
    }
    if let Some(event) = decode_content(name, &message, &base, context) {
        return Ok(Decoded::Event(event));
    }
    let mut text = BytesMut::new();
    text.put_u8(b'{');
    let mut out = JsonOut { text: &mut text, tally: &mut context.tally, first: true };
    out.string("type", name.as_bytes());
    out.members(&base, BASE)?;
    out.members(&message, table(name))?;
    match *name {
        "TOOL_CALL_RESULT" => match (message.bytes(5), message.repeated(7).next()) {
            (Some(_), Some(_)) => {
                return Err(ReadError::new(
                    "/content",
                    "a result has text content or content parts, not both",
                ));
            }
            (Some(content), None) => out.string("content", content),
            (None, _) => out.list("content", message.repeated(7), part)?,
        },
        "RUN_STARTED" => {
            if let Some(bytes) = message.message(5) {
                let input = Message::parse(&bytes).map_err(|_| malformed("/input"))?;
                out.object("input", |out| out.members(&input, table("input")))?;
            }
        }
        "RUN_FINISHED" => {
            let outcome = message.bytes(5).filter(|outcome| !outcome.is_empty());
            if let Some(outcome) = outcome {
                out.object("outcome", |out| {
                    out.string("type", outcome);
                    out.members(&message, table("pending"))?;
                    if outcome == b"interrupt" || message.repeated(6).next().is_some() {
                        out.objects("interrupts", message.repeated(6), "interrupt")?;
                    }
                    Ok(())
                })?;
            }
        }
        "SUBAGENT_FINISHED" => {
            let outcome = message.bytes(4).filter(|outcome| !outcome.is_empty());
            if let Some(outcome) = outcome {
                out.object("outcome", |out| {
                    out.string("type", outcome);
                    out.members(&message, table("suspended"))
                })?;
            }
        }
        _ => {}
    }
    text.put_u8(b'}');
    let text = std::str::from_utf8(&text).expect("JSON text is UTF-8");
    json::decode_event(text, None, context)
}

/// The fast path: content events with no base members besides the type.
fn decode_content(
    name: &str,
    message: &Message<'_>,
    base: &Message<'_>,
    context: &mut ReadContext,
) -> Option<Event> {
    let (id, delta, subagent) = match name {
        "TEXT_MESSAGE_CONTENT" | "TOOL_CALL_ARGS" => (2, 3, 4),
        "REASONING_MESSAGE_CONTENT" => (3, 4, 2),
        _ => return None,
    };
    if base.fields().any(|(number, _)| number != 1) {
        return None;
    }
    let id = std::str::from_utf8(message.bytes(id)?).ok()?;
    let delta = std::str::from_utf8(message.bytes(delta)?).ok()?.into();
    let subagent = match message.bytes(subagent) {
        Some(bytes) => Some(context.interner.get(std::str::from_utf8(bytes).ok()?)),
        None => None,
    };
    let body = match name {
        "TEXT_MESSAGE_CONTENT" => Body::TextDelta { message: context.interner.get(id), delta },
        "TOOL_CALL_ARGS" => Body::ToolArgs { call: context.interner.get(id), delta },
        _ => Body::ReasoningDelta { message: context.interner.get(id), delta },
    };
    Some(Event::new(body).by(subagent))
}

/// Reads a request body, one `RunAgentInput` message.
///
/// # Errors
/// When the bytes are no such message or a member is malformed.
pub fn input_from_proto(bytes: &[u8], tally: &mut Tally) -> ReadResult<RunInput> {
    let message = Message::parse(bytes).map_err(|_| malformed(""))?;
    let mut text = BytesMut::new();
    text.put_u8(b'{');
    JsonOut { text: &mut text, tally, first: true }.members(&message, table("input"))?;
    text.put_u8(b'}');
    let text = std::str::from_utf8(&text).expect("JSON text is UTF-8");
    input::from_json(text, tally)
}
