//! HAI frames to canonical events.
//!
//! A HAI message is a container: text, thinking and other outputs follow one another inside it, and its id may
//! come back after its end. This reader takes them apart. Text opens with the first text output, so that a
//! message of other outputs makes no empty text; consecutive thinking outputs are one span of reasoning; every
//! other output is a block. Ids come from the [`Ledger`]. A frame that an AG-UI stream was written to says in
//! `agui` which event it stands for, and is that event again.

pub(crate) mod assistant;
pub(crate) mod attachments;
mod business;
mod collaboration;
mod members;
pub(crate) mod messages;
mod partial_documents;

use std::borrow::Cow;

use indexmap::IndexMap;
use serde_json::value::RawValue;

use self::{business::Message, collaboration::Open, members::Base};
use super::{
    derived_ids::Ledger,
    fields::{id, need, some_json, text_or_json},
    proto,
    wire::{ASSISTANT, MESSAGES_SNAPSHOT, SKIP, SOURCE},
};
use crate::{
    event::{
        Body, Content, Event, MessageId, RunError, RunFinished, RunId, RunStarted, StreamEnd, ThreadId,
        ToolCallId, ToolResult,
    },
    format::{
        Reader, Setup,
        ag_ui::shapes::{self, FINISH_REASON, ReadContext, WRAPPED_PREFIX},
    },
    framing::{Frame, Payload},
    json::{Fields, Json, Path, ReadError, json, text},
    patch::{Op, Patch, PatchOp, is_pointer},
    tally::Tally,
};

/// How often a frame may be wrapped into a string: the standard's sample does it once.
const MAX_WRAPPING: usize = 2;

/// Reads HAI, as JSON or protobuf.
#[derive(Debug)]
pub(crate) struct HaiReader {
    context: ReadContext,
    thread: ThreadId,
    run: RunId,
    /// The message id that the run's own events carry.
    run_message: String,
    ledger: Ledger,
    /// The messages that are open, by the id on the wire.
    messages: IndexMap<MessageId, Message>,
    /// The last message that was opened, for frames that name none.
    last_message: Option<MessageId>,
    /// What the pieces of documents in these messages take.
    held: usize,
    /// The hand-overs that are open, oldest first.
    collaborations: Vec<Open>,
    /// The last call that was opened, for frames that name none.
    last_call: Option<ToolCallId>,
    /// How many calls had to be named.
    calls: u64,
}

/// The message id of a run's own events where the source names none.
pub(crate) fn run_message(run: &str) -> String {
    format!("run-msg-{run}")
}

impl HaiReader {
    pub(crate) fn new(setup: &Setup<'_>) -> Self {
        Self {
            context: ReadContext::default(),
            thread: setup.thread.clone(),
            run: setup.run.clone(),
            run_message: run_message(&setup.run),
            ledger: Ledger::default(),
            messages: IndexMap::new(),
            last_message: None,
            held: 0,
            collaborations: Vec::new(),
            last_call: None,
            calls: 0,
        }
    }

    fn tally_mut(&mut self) -> &mut Tally {
        &mut self.context.tally
    }

    /// Reads one JSON text: an event, or a string that holds framed events.
    fn text(
        &mut self,
        text: &str,
        named: Option<&str>,
        wrapping: usize,
        out: &mut Vec<Event>,
    ) -> Result<(), ReadError> {
        if text.trim_start().starts_with('"') && wrapping < MAX_WRAPPING {
            return self.wrapped(text, wrapping, out);
        }
        let mut f = Fields::parse(text, Path::Root)?;
        let tally = &mut self.context.tally;
        let event_type: Cow<'_, str> = match f.take_unless_null("type") {
            Some(raw) => crate::json::text(raw, Path::Key(&Path::Root, "type"), tally)?,
            None => match named {
                Some(name) => {
                    tally.note("old shape", "event type in the SSE field `event` only");
                    Cow::Owned(name.to_owned())
                }
                None => return Err(f.missing("type", "an event type")),
            },
        };
        if event_type.is_empty() {
            return Err(ReadError::new("/type", "expected an event type, found the empty string"));
        }
        let base = Base::take(&mut f, tally)?;
        if base.agui.as_ref().is_some_and(|agui| agui.member(SKIP).is_some_and(|skip| skip.get() == "true")) {
            return Ok(());
        }
        match &*event_type {
            "RUN_STARTED" => self.run_started(f, base, out),
            "RUN_FINISHED" => self.run_finished(f, base, out),
            "RUN_ERROR" => self.run_error(f, base, out),
            "STEP_STARTED" | "STEP_FINISHED" => self.step(&event_type, f, base, out),
            "BUSINESS_DATA_START" => self.business_start(f, base, out),
            "BUSINESS_DATA_CONTENT" => self.business_content(f, base, out),
            "BUSINESS_DATA_END" => self.business_end(f, base, out),
            "AGENT_COLLABORATIVE_MESSAGE_START" => self.collaboration_start(f, base, out),
            "AGENT_COLLABORATIVE_MESSAGE_CONTENT" => self.collaboration_content(f, base, out),
            "AGENT_COLLABORATIVE_MESSAGE_END" => self.collaboration_end(f, base, out),
            "TOOL_CALL_START" | "TOOL_CALL_ARGS" | "TOOL_CALL_END" => self.tool(&event_type, f, base, out),
            "TOOL_CALL_RESULT" => self.tool_result(f, base, out),
            "STATE_SNAPSHOT" => {
                // The standard drops members that are null, and null may be a state.
                let tally = &mut self.context.tally;
                let snapshot = f.json("snapshot", tally)?.unwrap_or_else(Json::null);
                let base = base.finish(&mut f, &event_type, tally)?;
                out.push(base.event(Body::StateSnapshot { snapshot }, &[], tally));
                Ok(())
            }
            "STATE_DELTA" => self.state_delta(f, base, out),
            "MESSAGE_SNAPSHOT" | MESSAGES_SNAPSHOT => {
                let tally = &mut self.context.tally;
                let messages = messages::list(&mut f, messages::Reading::Snapshot, &self.run, tally)?;
                let base = base.finish(&mut f, &event_type, tally)?;
                out.push(base.event(Body::MessagesSnapshot { messages }, &[], tally));
                Ok(())
            }
            "RAW" => {
                let tally = &mut self.context.tally;
                let event = f.json("event", tally)?.unwrap_or_else(Json::null);
                let source = id(&mut f, "source", tally)?.map(Into::into);
                let base = base.finish(&mut f, &event_type, tally)?;
                out.push(base.event(Body::Raw { event, source }, &[], tally));
                Ok(())
            }
            "CUSTOM" => self.custom(text, f, base, wrapping, out),
            unknown => {
                let tally = &mut self.context.tally;
                tally.note("unknown event", unknown);
                let raw: &RawValue = serde_json::from_str(text)
                    .map_err(|error| ReadError::new("", format!("not valid JSON: {error}")))?;
                let mut event = json(raw, Path::Root, tally)?;
                if f.peek("type").is_none()
                    && let Some(object) = event.clone().into_object()
                    && object.member("type").is_none()
                {
                    event = object.with("type", Json::string(unknown)).into();
                }
                out.push(base.bare(Body::Raw { event, source: Some(SOURCE.into()) }));
                Ok(())
            }
        }
    }

    /// A frame whose data is a string: the standard's sample frames its events twice.
    fn wrapped(&mut self, whole: &str, wrapping: usize, out: &mut Vec<Event>) -> Result<(), ReadError> {
        let raw: &RawValue = serde_json::from_str(whole)
            .map_err(|error| ReadError::new("", format!("not valid JSON: {error}")))?;
        let inner = text(raw, Path::Root, &mut self.context.tally)?;
        let trimmed = inner.trim();
        if trimmed.starts_with('{') {
            self.tally_mut().note("old shape", "event as a string");
            return self.text(trimmed, None, wrapping + 1, out);
        }
        if !trimmed.starts_with("data:") && !trimmed.starts_with("event:") {
            return Err(Path::Root.expected("an event", raw));
        }
        self.tally_mut().note("old shape", "frame inside a frame");
        let unified = inner.replace("\r\n", "\n").replace('\r', "\n");
        for frame in unified.split("\n\n") {
            let field = |line: &str, name: &str| {
                let value = line.strip_prefix(name)?.strip_prefix(':')?;
                Some(value.strip_prefix(' ').unwrap_or(value).to_owned())
            };
            let named = frame.lines().rev().find_map(|line| field(line, "event"));
            let data: Vec<String> = frame.lines().filter_map(|line| field(line, "data")).collect();
            if !data.is_empty() {
                self.text(&data.join("\n"), named.as_deref(), wrapping + 1, out)?;
            }
        }
        Ok(())
    }

    fn run_started(
        &mut self,
        mut f: Fields<'_, '_>,
        base: Base,
        out: &mut Vec<Event>,
    ) -> Result<(), ReadError> {
        let tally = &mut self.context.tally;
        // Empty ids are those of a client that did not set them.
        let filled = |id: Option<String>| id.filter(|id| !id.is_empty());
        if let Some(thread) = filled(id(&mut f, "threadId", tally)?) {
            self.thread = thread.into();
        }
        if let Some(run) = filled(id(&mut f, "runId", tally)?) {
            self.run = run.into();
        }
        let mut started = RunStarted::new(self.thread.clone(), self.run.clone());
        started.parent_run = id(&mut f, "parentRunId", tally)?.map(Into::into);
        started.protocol_version = id(&mut f, "protocolVersion", tally)?.map(Into::into);
        if let Some(raw) = f.take_unless_null("input") {
            let path = Path::Key(&Path::Root, "input");
            started.input = Some(Box::new(shapes::read_input(raw, path, tally)?));
        }
        self.run_message = run_message(&self.run);
        let mut hai = Vec::new();
        if let Some(message) = filled(id(&mut f, "messageId", tally)?)
            && message != self.run_message
        {
            hai.push(("messageId", Json::string(&message)));
            self.run_message = message;
        }
        role(&mut f, &mut hai, tally)?;
        let base = base.finish(&mut f, "RUN_STARTED", tally)?;
        self.flush_all(out);
        let tally = &mut self.context.tally;
        out.push(base.event(Body::RunStarted(Box::new(started)), &hai, tally));
        self.messages.clear();
        self.collaborations.clear();
        (self.last_message, self.last_call) = (None, None);
        Ok(())
    }

    fn run_finished(
        &mut self,
        mut f: Fields<'_, '_>,
        base: Base,
        out: &mut Vec<Event>,
    ) -> Result<(), ReadError> {
        let tally = &mut self.context.tally;
        let filled = |id: Option<String>| id.filter(|id| !id.is_empty());
        let mut finished = RunFinished::new(self.thread.clone(), self.run.clone());
        if let Some(thread) = filled(id(&mut f, "threadId", tally)?) {
            finished.thread = thread.into();
        }
        if let Some(run) = filled(id(&mut f, "runId", tally)?) {
            finished.run = run.into();
        }
        finished.result = some_json(&mut f, "result", tally)?;
        if let Some(raw) = f.take_unless_null("outcome") {
            finished.outcome = shapes::read_outcome(raw, Path::Key(&Path::Root, "outcome"), tally)?;
        }
        finished.usage = shapes::read_usage(&mut f, tally)?;
        let mut hai = Vec::new();
        if let Some(message) = id(&mut f, "messageId", tally)?.filter(|id| *id != self.run_message) {
            hai.push(("messageId", Json::string(&message)));
        }
        role(&mut f, &mut hai, tally)?;
        let base = base.finish(&mut f, "RUN_FINISHED", tally)?;
        self.close_all(&base, out);
        out.push(base.event(Body::RunFinished(Box::new(finished)), &hai, self.tally_mut()));
        Ok(())
    }

    fn run_error(
        &mut self,
        mut f: Fields<'_, '_>,
        base: Base,
        out: &mut Vec<Event>,
    ) -> Result<(), ReadError> {
        let tally = &mut self.context.tally;
        let mut error = RunError::new("", None);
        // The standard names the event and none of its members.
        error.message = match id(&mut f, "message", tally)? {
            Some(message) => message.into(),
            None => {
                tally.note("old shape", "RUN_ERROR without a message");
                "the agent failed".into()
            }
        };
        error.code = match f.take_unless_null("code") {
            Some(raw) if raw.get().starts_with(|first: char| first == '-' || first.is_ascii_digit()) => {
                tally.note("old shape", "code as a number");
                Some(raw.get().into())
            }
            Some(raw) => Some(text(raw, Path::Key(&Path::Root, "code"), tally)?.into()),
            None => None,
        };
        error.usage = shapes::read_usage(&mut f, tally)?;
        let mut hai = Vec::new();
        let known = [
            ("threadId", self.thread.as_str()),
            ("runId", self.run.as_str()),
            ("messageId", self.run_message.as_str()),
        ];
        for (key, known) in known {
            if let Some(given) = id(&mut f, key, tally)?.filter(|given| !given.is_empty() && given != known) {
                hai.push((key, Json::string(&given)));
            }
        }
        role(&mut f, &mut hai, tally)?;
        let base = base.finish(&mut f, "RUN_ERROR", tally)?;
        self.close_all(&base, out);
        out.push(base.event(Body::RunError(Box::new(error)), &hai, self.tally_mut()));
        Ok(())
    }

    fn step(
        &mut self,
        event_type: &str,
        mut f: Fields<'_, '_>,
        base: Base,
        out: &mut Vec<Event>,
    ) -> Result<(), ReadError> {
        let tally = &mut self.context.tally;
        let name = need(&mut f, "stepName", tally)?.into();
        let body = if event_type == "STEP_STARTED" {
            Body::StepStarted { name }
        } else {
            Body::StepFinished { name }
        };
        let mut hai = Vec::new();
        for (key, known) in [("threadId", self.thread.as_str()), ("runId", self.run.as_str())] {
            if let Some(given) = id(&mut f, key, tally)?.filter(|given| given != known) {
                hai.push((key, Json::string(&given)));
            }
        }
        let base = base.finish(&mut f, event_type, tally)?;
        out.push(base.event(body, &hai, tally));
        Ok(())
    }

    fn tool(
        &mut self,
        event_type: &str,
        mut f: Fields<'_, '_>,
        base: Base,
        out: &mut Vec<Event>,
    ) -> Result<(), ReadError> {
        let tally = &mut self.context.tally;
        let given = f.take_unless_null("toolCallId");
        let path = Path::Key(&Path::Root, "toolCallId");
        let given = given.map(|raw| text(raw, path, tally)).transpose()?.filter(|id| !id.is_empty());
        let call: ToolCallId = match (given, &self.last_call) {
            (Some(id), _) => self.context.interner.get(&id),
            (None, Some(last)) if event_type != "TOOL_CALL_START" => {
                tally.note("missing id", event_type);
                last.clone()
            }
            (None, _) => {
                tally.note("missing id", event_type);
                self.calls += 1;
                format!("{}:call:{}", self.run, self.calls - 1).into()
            }
        };
        let body = match event_type {
            "TOOL_CALL_START" => {
                self.last_call = Some(call.clone());
                let name = need(&mut f, "toolCallName", tally)?.into();
                let parent = id(&mut f, "parentMessageId", tally)?.map(Into::into);
                Body::ToolStart { call, name, parent }
            }
            "TOOL_CALL_ARGS" => {
                let raw =
                    f.take_unless_null("delta").ok_or_else(|| f.missing("delta", "a string or an object"))?;
                Body::ToolArgs { call, delta: text_or_json(raw, Path::Key(&Path::Root, "delta"), tally)? }
            }
            _ => Body::ToolEnd { call },
        };
        let base = base.finish(&mut f, event_type, tally)?;
        out.push(base.event(body, &[], tally));
        Ok(())
    }

    fn tool_result(
        &mut self,
        mut f: Fields<'_, '_>,
        base: Base,
        out: &mut Vec<Event>,
    ) -> Result<(), ReadError> {
        let tally = &mut self.context.tally;
        let call: ToolCallId = match (id(&mut f, "toolCallId", tally)?, &self.last_call) {
            (Some(call), _) if !call.is_empty() => call.into(),
            (_, Some(last)) => {
                tally.note("missing id", "TOOL_CALL_RESULT");
                last.clone()
            }
            // Empty, and there was no call that could be meant: then it is the id.
            (Some(empty), None) => empty.into(),
            (None, None) => return Err(f.missing("toolCallId", "a string")),
        };
        let message = match id(&mut f, "messageId", tally)?.filter(|id| !id.is_empty()) {
            Some(message) => message.into(),
            None => {
                tally.note("missing id", "TOOL_CALL_RESULT");
                format!("{call}:result").into()
            }
        };
        let content = match f.take_unless_null("content") {
            Some(raw) if raw.get().starts_with('[') => {
                match shapes::read_parts(raw, Path::Key(&Path::Root, "content"), &mut Tally::default()) {
                    Ok(parts) if !parts.is_empty() => Content::Parts(parts),
                    _ => Content::Text(text_or_json(raw, Path::Key(&Path::Root, "content"), tally)?),
                }
            }
            Some(raw) => Content::Text(text_or_json(raw, Path::Key(&Path::Root, "content"), tally)?),
            None => Content::Text("".into()),
        };
        let mut hai = Vec::new();
        let extra = some_json(&mut f, "extra", tally)?;
        let parts = base.agui.as_ref().and_then(|agui| agui.member("parts"));
        let (content, extra) = attachments::with_original(content, extra, parts, tally);
        if let Some(extra) = extra {
            hai.push(("extra", extra));
        }
        let error = id(&mut f, "error", tally)?.map(Into::into);
        let given_role = id(&mut f, "role", tally)?;
        if let Some(role) = given_role.as_deref().filter(|role| *role != "tool") {
            hai.push(("role", Json::string(role)));
        }
        let result = ToolResult { message, call, content, error, explicit_role: given_role.is_some() };
        let base = base.finish(&mut f, "TOOL_CALL_RESULT", tally)?;
        out.push(base.event(Body::ToolResult(Box::new(result)), &hai, tally));
        Ok(())
    }

    fn state_delta(
        &mut self,
        mut f: Fields<'_, '_>,
        base: Base,
        out: &mut Vec<Event>,
    ) -> Result<(), ReadError> {
        let tally = &mut self.context.tally;
        let path = Path::Key(&Path::Root, "delta");
        let raw = f
            .take_unless_null("delta")
            .ok_or_else(|| f.missing("delta", "a list of JSON Patch operations"))?;
        // The reference server turns deltas into strings, and a careless one this delta too.
        let unwrapped: Option<Box<RawValue>> = if raw.get().starts_with('"') {
            let inner = text(raw, path, tally)?;
            let parsed = serde_json::from_str(&inner);
            let parsed: Box<RawValue> =
                parsed.map_err(|_| path.expected("a list of JSON Patch operations", raw))?;
            tally.note("old shape", "patch as a string");
            Some(parsed)
        } else {
            None
        };
        let raw = unwrapped.as_deref().unwrap_or(raw);
        let mut operations = Vec::new();
        let mut originals = Vec::new();
        match raw.get().as_bytes().first() {
            Some(b'{') => {
                tally.note("old shape", "patch as one object");
                let (operation, original) = operation(raw, path, tally)?;
                operations.extend(operation);
                originals.push(original);
            }
            _ => {
                for (index, raw) in crate::json::elements(raw, path)?.into_iter().enumerate() {
                    let (operation, original) = operation(raw, Path::Index(&path, index), tally)?;
                    if operation.is_some() {
                        originals.push(original);
                    }
                    operations.extend(operation);
                }
            }
        }
        let mut hai = Vec::new();
        if originals.iter().any(Option::is_some) {
            let value = |original: &Option<String>| match original {
                Some(text) => serde_json::Value::from(text.as_str()),
                None => serde_json::Value::Null,
            };
            let from = match &originals[..] {
                [one] => value(one),
                several => several.iter().map(value).collect(),
            };
            hai.push(("from", Json::from(from)));
        }
        let base = base.finish(&mut f, "STATE_DELTA", tally)?;
        out.push(base.event(Body::StateDelta { patch: Patch(operations) }, &hai, tally));
        Ok(())
    }

    fn custom(
        &mut self,
        whole: &str,
        mut f: Fields<'_, '_>,
        base: Base,
        wrapping: usize,
        out: &mut Vec<Event>,
    ) -> Result<(), ReadError> {
        let tally = &mut self.context.tally;
        let name = need(&mut f, "name", tally)?;
        if name.starts_with(WRAPPED_PREFIX) || name == FINISH_REASON {
            // AG-UI knows what its own carriers hold.
            if let Some(event) = shapes::read_event(whole, &mut self.context)
                && !matches!(event.body, Body::Custom { .. })
            {
                if let Body::TextEnd { message } = &event.body {
                    self.ended(message);
                }
                out.push(event);
                return Ok(());
            }
        }
        let tally = &mut self.context.tally;
        let value = f.json("value", tally)?.unwrap_or_else(Json::null);
        if name == super::wire::OUTPUT && wrapping < MAX_WRAPPING && value.get().starts_with('{') {
            let mark = out.len();
            if self.carried_output(&value, &base, wrapping, out).is_ok() {
                return Ok(());
            }
            out.truncate(mark);
        }
        let base = base.finish(&mut f, "CUSTOM", self.tally_mut())?;
        out.push(base.event(Body::Custom { name: name.into(), value }, &[], self.tally_mut()));
        Ok(())
    }

    /// The BUSINESS_DATA_CONTENT that a CUSTOM event carries.
    fn carried_output(
        &mut self,
        value: &Json,
        base: &Base,
        wrapping: usize,
        out: &mut Vec<Event>,
    ) -> Result<(), ReadError> {
        let Some(mut event) = value.clone().into_object() else {
            return Err(ReadError::new("/value", "expected an object"));
        };
        if event.get_str("type").as_deref() != Some("BUSINESS_DATA_CONTENT") {
            return Err(ReadError::new("/value/type", "expected `BUSINESS_DATA_CONTENT`"));
        }
        if let (Some(time), None) = (base.timestamp, event.member("timestamp")) {
            event = event.with("timestamp", Json::from(serde_json::Value::from(time)));
        }
        self.text(event.get(), None, wrapping + 1, out)
    }
}

/// `role` of a run's own event, which says nothing unless it is an odd one.
fn role(
    f: &mut Fields<'_, '_>,
    hai: &mut Vec<(&'static str, Json)>,
    tally: &mut Tally,
) -> Result<(), ReadError> {
    if let Some(role) = id(f, "role", tally)?.filter(|role| role != ASSISTANT) {
        hai.push(("role", Json::string(&role)));
    }
    Ok(())
}

/// One operation, and the `from` that says nothing about it: the standard's builder puts the value before the
/// change there.
fn operation(
    raw: &RawValue,
    path: Path<'_>,
    tally: &mut Tally,
) -> Result<(Option<PatchOp>, Option<String>), ReadError> {
    let mut f = Fields::of(raw, path)?;
    let name = need(&mut f, "op", tally)?;
    let Some(op) = Op::parse(&name) else {
        tally.note("unknown patch operation", &name);
        return Ok((None, None));
    };
    let pointer = |text: String, key: &str| -> Result<Box<str>, ReadError> {
        if is_pointer(&text) {
            Ok(text.into())
        } else {
            Err(Path::Key(&path, key).error(format!("expected a JSON pointer, found `{text}`")))
        }
    };
    let target = pointer(need(&mut f, "path", tally)?, "path")?;
    let (from, original) = if op.needs_from() {
        (Some(pointer(need(&mut f, "from", tally)?, "from")?), None)
    } else {
        let original = f
            .take_unless_null("from")
            .map(|raw| text_or_json(raw, Path::Key(&path, "from"), tally))
            .transpose()?;
        (None, original.filter(|original| !original.is_empty()).map(String::from))
    };
    let mut value = f.json("value", tally)?;
    if op.needs_value() && value.is_none() {
        tally.note("old shape", "patch operation without its null value");
        value = Some(Json::null());
    }
    // The builder sends a value with `remove` too.
    if !op.needs_value() {
        value = value.filter(|value| !value.is_null());
    }
    let extra = f.rest("operation", &mut Tally::default())?;
    Ok((Some(PatchOp { op, path: target, from, value, extra }), original))
}

impl Reader for HaiReader {
    fn read(&mut self, frame: &Frame<'_>, out: &mut Vec<Event>) -> Result<(), ReadError> {
        self.context.tally.at_frame(frame.index + 1);
        match frame.data {
            Payload::Text(text) => {
                if self.fast(text, out) {
                    return Ok(());
                }
                self.text(text, frame.event, 0, out)
            }
            Payload::Bytes(bytes) => {
                let text = proto::reader::to_json(bytes, &mut self.context.tally)?;
                if self.fast(&text, out) {
                    return Ok(());
                }
                self.text(&text, None, 0, out)
            }
        }
    }

    fn end(&mut self, _end: &StreamEnd, out: &mut Vec<Event>) {
        // A stream that ends before its run is truncated, and that is what the guard says of it.
        self.flush_all(out);
    }

    fn tally(&self) -> &Tally {
        &self.context.tally
    }
}
