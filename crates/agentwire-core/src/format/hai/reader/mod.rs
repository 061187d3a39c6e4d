//! HAI frames to canonical events.
//!
//! A HAI message is a container for a sequence of text, thinking and other outputs, and its id may be reused
//! after its end. This reader splits it into items. A text starts with the first text output, so a message of
//! other outputs has no empty text; consecutive thinking outputs are one span of reasoning; every other output
//! is a block. Ids come from `DerivedIds`. A frame that our writer wrote for an AG-UI event describes that event
//! in `agui`, and is restored from it.

pub(crate) mod assistant;
pub(crate) mod attachments;
mod business;
mod collaboration;
mod contents;
mod members;
pub(crate) mod messages;
mod partial_documents;
mod wire_order;

use std::borrow::Cow;

use indexmap::IndexMap;
use serde_json::value::RawValue;

use self::{
    business::OpenMessage, collaboration::OpenCollaboration, members::FrameMembers, wire_order::WireOrder,
};
use super::{
    derived_ids::DerivedIds,
    fields::{filled_id, need_string, opt_string, some_json, text_or_json},
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
    json::{Fields, Json, Path, ReadError, ReadResult, json, text},
    patch::{Op, Patch, PatchOp, is_pointer},
    tally::Tally,
};

/// Levels of frames nested in strings: one in the standard's sample.
const MAX_WRAPPING: usize = 2;

/// Reads HAI, as JSON or protobuf.
#[derive(Debug)]
pub(crate) struct HaiReader {
    context: ReadContext,
    thread: ThreadId,
    run: RunId,
    /// The message id of run events.
    run_message: String,
    derived_ids: DerivedIds,
    /// Open messages by wire id.
    messages: IndexMap<MessageId, OpenMessage>,
    /// The last active message, for frames without a message id.
    last_message: Option<MessageId>,
    /// Size of the partial documents in these messages.
    buffered_bytes: usize,
    /// Open collaborations, oldest first.
    collaborations: Vec<OpenCollaboration>,
    /// The last started tool call, for frames without a call id.
    last_call: Option<ToolCallId>,
    /// Number of tool calls without an id.
    unnamed_calls: u64,
    /// For a check: one event per frame, as on the wire.
    wire_order: Option<WireOrder>,
}

/// The default message id of run events.
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
            derived_ids: DerivedIds::default(),
            messages: IndexMap::new(),
            last_message: None,
            buffered_bytes: 0,
            collaborations: Vec::new(),
            last_call: None,
            unnamed_calls: 0,
            wire_order: setup.options.is("events", "wire").then(WireOrder::default),
        }
    }

    fn tally_mut(&mut self) -> &mut Tally {
        &mut self.context.tally
    }

    /// Reads one JSON text: an event, or a string that contains framed events.
    fn read_text(
        &mut self,
        text: &str,
        named: Option<&str>,
        wrapping: usize,
        out: &mut Vec<Event>,
    ) -> ReadResult {
        if text.trim_start().starts_with('"') && wrapping < MAX_WRAPPING {
            return self.read_wrapped(text, wrapping, out);
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
        if let Some(wire_order) = &mut self.wire_order {
            let own = wire_order.event(&event_type, &f);
            let mut read = Vec::new();
            self.read_event(&event_type, text, f, wrapping, &mut read)?;
            match own {
                Some(own) => out.push(Event::new(own)),
                None => wire_order::retain_own(&event_type, read, out),
            }
            return Ok(());
        }
        self.read_event(&event_type, text, f, wrapping, out)
    }

    /// Reads an event of a known type.
    fn read_event(
        &mut self,
        event_type: &str,
        text: &str,
        mut f: Fields<'_, '_>,
        wrapping: usize,
        out: &mut Vec<Event>,
    ) -> ReadResult {
        let tally = &mut self.context.tally;
        let base = FrameMembers::read(&mut f, tally)?;
        if base.agui.as_ref().is_some_and(|agui| agui.member(SKIP).is_some_and(|skip| skip.get() == "true")) {
            return Ok(());
        }
        match event_type {
            "RUN_STARTED" => self.run_started(f, base, out),
            "RUN_FINISHED" => self.run_finished(f, base, out),
            "RUN_ERROR" => self.run_error(f, base, out),
            "STEP_STARTED" | "STEP_FINISHED" => self.step(event_type, f, base, out),
            "BUSINESS_DATA_START" => self.business_start(f, base, out),
            "BUSINESS_DATA_CONTENT" => self.business_content(f, base, out),
            "BUSINESS_DATA_END" => self.business_end(f, base, out),
            "AGENT_COLLABORATIVE_MESSAGE_START" => self.collaboration_start(f, base, out),
            "AGENT_COLLABORATIVE_MESSAGE_CONTENT" => self.collaboration_content(f, base, out),
            "AGENT_COLLABORATIVE_MESSAGE_END" => self.collaboration_end(f, base, out),
            "TOOL_CALL_START" | "TOOL_CALL_ARGS" | "TOOL_CALL_END" => self.tool(event_type, f, base, out),
            "TOOL_CALL_RESULT" => self.tool_result(f, base, out),
            "STATE_SNAPSHOT" => {
                // The standard drops null members, and null is a valid state.
                let tally = &mut self.context.tally;
                let snapshot = f.json("snapshot", tally)?.unwrap_or_else(Json::null);
                let base = base.with_rest(&mut f, event_type, tally)?;
                out.push(base.event(Body::StateSnapshot { snapshot }, &[], tally));
                Ok(())
            }
            "STATE_DELTA" => self.state_delta(f, base, out),
            "MESSAGE_SNAPSHOT" | MESSAGES_SNAPSHOT => {
                let tally = &mut self.context.tally;
                let messages =
                    messages::read_list(&mut f, messages::MessagePurpose::Snapshot, &self.run, tally)?;
                let base = base.with_rest(&mut f, event_type, tally)?;
                out.push(base.event(Body::MessagesSnapshot { messages }, &[], tally));
                Ok(())
            }
            "RAW" => {
                let tally = &mut self.context.tally;
                let event = f.json("event", tally)?.unwrap_or_else(Json::null);
                let source = opt_string(&mut f, "source", tally)?.map(Into::into);
                let base = base.with_rest(&mut f, event_type, tally)?;
                out.push(base.event(Body::Raw { event, source }, &[], tally));
                Ok(())
            }
            "CUSTOM" => self.custom(text, f, base, wrapping, out),
            unknown => {
                let tally = &mut self.context.tally;
                tally.note("unknown event", unknown);
                let raw: &RawValue = serde_json::from_str(text).map_err(ReadError::invalid_json)?;
                let mut event = json(raw, Path::Root, tally)?;
                if f.peek("type").is_none()
                    && let Some(object) = event.clone().into_object()
                    && object.member("type").is_none()
                {
                    event = object.with("type", Json::string(unknown)).into();
                }
                out.push(base.bare_event(Body::Raw { event, source: Some(SOURCE.into()) }));
                Ok(())
            }
        }
    }

    /// Reads a frame whose data is a string: the standard's sample frames its events twice.
    fn read_wrapped(&mut self, whole: &str, wrapping: usize, out: &mut Vec<Event>) -> ReadResult {
        let raw: &RawValue = serde_json::from_str(whole).map_err(ReadError::invalid_json)?;
        let inner = text(raw, Path::Root, &mut self.context.tally)?;
        let trimmed = inner.trim();
        if trimmed.starts_with('{') {
            self.tally_mut().note("old shape", "event as a string");
            return self.read_text(trimmed, None, wrapping + 1, out);
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
                self.read_text(&data.join("\n"), named.as_deref(), wrapping + 1, out)?;
            }
        }
        Ok(())
    }

    fn run_started(&mut self, mut f: Fields<'_, '_>, base: FrameMembers, out: &mut Vec<Event>) -> ReadResult {
        let tally = &mut self.context.tally;
        if let Some(thread) = filled_id(&mut f, "threadId", tally)? {
            self.thread = thread.into();
        }
        if let Some(run) = filled_id(&mut f, "runId", tally)? {
            self.run = run.into();
        }
        let mut started = RunStarted::new(self.thread.clone(), self.run.clone());
        started.parent_run = opt_string(&mut f, "parentRunId", tally)?.map(Into::into);
        started.protocol_version = opt_string(&mut f, "protocolVersion", tally)?.map(Into::into);
        if let Some(raw) = f.take_unless_null("input") {
            let path = Path::Key(&Path::Root, "input");
            started.input = Some(Box::new(shapes::read_input(raw, path, tally)?));
        }
        self.run_message = run_message(&self.run);
        let mut hai = Vec::new();
        if let Some(message) = filled_id(&mut f, "messageId", tally)?
            && message != self.run_message
        {
            hai.push(("messageId", Json::string(&message)));
            self.run_message = message;
        }
        read_odd_role(&mut f, &mut hai, tally)?;
        let base = base.with_rest(&mut f, "RUN_STARTED", tally)?;
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
        base: FrameMembers,
        out: &mut Vec<Event>,
    ) -> ReadResult {
        let tally = &mut self.context.tally;
        let mut finished = RunFinished::new(self.thread.clone(), self.run.clone());
        if let Some(thread) = filled_id(&mut f, "threadId", tally)? {
            finished.thread = thread.into();
        }
        if let Some(run) = filled_id(&mut f, "runId", tally)? {
            finished.run = run.into();
        }
        finished.result = some_json(&mut f, "result", tally)?;
        if let Some(raw) = f.take_unless_null("outcome") {
            finished.outcome = shapes::read_outcome(raw, Path::Key(&Path::Root, "outcome"), tally)?;
        }
        finished.usage = shapes::read_usage(&mut f, tally)?;
        let mut hai = Vec::new();
        if let Some(message) = opt_string(&mut f, "messageId", tally)?.filter(|id| *id != self.run_message) {
            hai.push(("messageId", Json::string(&message)));
        }
        read_odd_role(&mut f, &mut hai, tally)?;
        let base = base.with_rest(&mut f, "RUN_FINISHED", tally)?;
        self.close_all(&base, out);
        out.push(base.event(Body::RunFinished(Box::new(finished)), &hai, self.tally_mut()));
        Ok(())
    }

    fn run_error(&mut self, mut f: Fields<'_, '_>, base: FrameMembers, out: &mut Vec<Event>) -> ReadResult {
        let tally = &mut self.context.tally;
        let mut error = RunError::new("", None);
        // The standard defines no members of this event.
        error.message = match opt_string(&mut f, "message", tally)? {
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
        let current = [
            ("threadId", self.thread.as_str()),
            ("runId", self.run.as_str()),
            ("messageId", self.run_message.as_str()),
        ];
        for (key, current) in current {
            if let Some(given) =
                opt_string(&mut f, key, tally)?.filter(|given| !given.is_empty() && given != current)
            {
                hai.push((key, Json::string(&given)));
            }
        }
        read_odd_role(&mut f, &mut hai, tally)?;
        let base = base.with_rest(&mut f, "RUN_ERROR", tally)?;
        self.close_all(&base, out);
        out.push(base.event(Body::RunError(Box::new(error)), &hai, self.tally_mut()));
        Ok(())
    }

    fn step(
        &mut self,
        event_type: &str,
        mut f: Fields<'_, '_>,
        base: FrameMembers,
        out: &mut Vec<Event>,
    ) -> ReadResult {
        let tally = &mut self.context.tally;
        let name = need_string(&mut f, "stepName", tally)?.into();
        let body = if event_type == "STEP_STARTED" {
            Body::StepStarted { name }
        } else {
            Body::StepFinished { name }
        };
        let mut hai = Vec::new();
        for (key, current) in [("threadId", self.thread.as_str()), ("runId", self.run.as_str())] {
            if let Some(given) = opt_string(&mut f, key, tally)?.filter(|given| given != current) {
                hai.push((key, Json::string(&given)));
            }
        }
        let base = base.with_rest(&mut f, event_type, tally)?;
        out.push(base.event(body, &hai, tally));
        Ok(())
    }

    fn tool(
        &mut self,
        event_type: &str,
        mut f: Fields<'_, '_>,
        base: FrameMembers,
        out: &mut Vec<Event>,
    ) -> ReadResult {
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
                self.unnamed_calls += 1;
                format!("{}:call:{}", self.run, self.unnamed_calls - 1).into()
            }
        };
        let body = match event_type {
            "TOOL_CALL_START" => {
                self.last_call = Some(call.clone());
                let name = need_string(&mut f, "toolCallName", tally)?.into();
                let parent = opt_string(&mut f, "parentMessageId", tally)?;
                let parent = opt_string(&mut f, "sourceParentMessageId", tally)?.or(parent).map(Into::into);
                Body::ToolStart { call, name, parent }
            }
            "TOOL_CALL_ARGS" => {
                let raw =
                    f.take_unless_null("delta").ok_or_else(|| f.missing("delta", "a string or an object"))?;
                Body::ToolArgs { call, delta: text_or_json(raw, Path::Key(&Path::Root, "delta"), tally)? }
            }
            _ => Body::ToolEnd { call },
        };
        let base = base.with_rest(&mut f, event_type, tally)?;
        out.push(base.event(body, &[], tally));
        Ok(())
    }

    fn tool_result(&mut self, mut f: Fields<'_, '_>, base: FrameMembers, out: &mut Vec<Event>) -> ReadResult {
        let tally = &mut self.context.tally;
        let call: ToolCallId = match (opt_string(&mut f, "toolCallId", tally)?, &self.last_call) {
            (Some(call), _) if !call.is_empty() => call.into(),
            (_, Some(last)) => {
                tally.note("missing id", "TOOL_CALL_RESULT");
                last.clone()
            }
            // No call was started, so the empty id is the id.
            (Some(empty), None) => empty.into(),
            (None, None) => return Err(f.missing("toolCallId", "a string")),
        };
        let message = match filled_id(&mut f, "messageId", tally)? {
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
        let (content, extra) = attachments::restore_parts(content, extra, parts, tally);
        if let Some(extra) = extra {
            hai.push(("extra", extra));
        }
        let error = opt_string(&mut f, "error", tally)?.map(Into::into);
        let given_role = opt_string(&mut f, "role", tally)?;
        if let Some(role) = given_role.as_deref().filter(|role| *role != "tool") {
            hai.push(("role", Json::string(role)));
        }
        let result = ToolResult { message, call, content, error, explicit_role: given_role.is_some() };
        let base = base.with_rest(&mut f, "TOOL_CALL_RESULT", tally)?;
        out.push(base.event(Body::ToolResult(Box::new(result)), &hai, tally));
        Ok(())
    }

    fn state_delta(&mut self, mut f: Fields<'_, '_>, base: FrameMembers, out: &mut Vec<Event>) -> ReadResult {
        let tally = &mut self.context.tally;
        let path = Path::Key(&Path::Root, "delta");
        let raw = f
            .take_unless_null("delta")
            .ok_or_else(|| f.missing("delta", "a list of JSON Patch operations"))?;
        // The reference server serializes deltas to strings; some servers do so for patches too.
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
                let (operation, original) = read_operation(raw, path, tally)?;
                operations.extend(operation);
                originals.push(original);
            }
            _ => {
                for (index, raw) in crate::json::elements(raw, path)?.into_iter().enumerate() {
                    let (operation, original) = read_operation(raw, Path::Index(&path, index), tally)?;
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
        let base = base.with_rest(&mut f, "STATE_DELTA", tally)?;
        out.push(base.event(Body::StateDelta { patch: Patch(operations) }, &hai, tally));
        Ok(())
    }

    fn custom(
        &mut self,
        whole: &str,
        mut f: Fields<'_, '_>,
        base: FrameMembers,
        wrapping: usize,
        out: &mut Vec<Event>,
    ) -> ReadResult {
        let tally = &mut self.context.tally;
        let name = need_string(&mut f, "name", tally)?;
        if name.starts_with(WRAPPED_PREFIX) || name == FINISH_REASON {
            // The AG-UI reader unwraps its own carrier events.
            if let Some(event) = shapes::read_event(whole, &mut self.context)
                && !matches!(event.body, Body::Custom { .. })
            {
                if let Body::TextEnd { message } = &event.body {
                    self.note_text_end(message);
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
        let base = base.with_rest(&mut f, "CUSTOM", self.tally_mut())?;
        out.push(base.event(Body::Custom { name: name.into(), value }, &[], self.tally_mut()));
        Ok(())
    }

    /// Reads the BUSINESS_DATA_CONTENT in a CUSTOM event.
    fn carried_output(
        &mut self,
        value: &Json,
        base: &FrameMembers,
        wrapping: usize,
        out: &mut Vec<Event>,
    ) -> ReadResult {
        let Some(mut event) = value.clone().into_object() else {
            return Err(ReadError::new("/value", "expected an object"));
        };
        if event.get_str("type").as_deref() != Some("BUSINESS_DATA_CONTENT") {
            return Err(ReadError::new("/value/type", "expected `BUSINESS_DATA_CONTENT`"));
        }
        if let (Some(time), None) = (base.timestamp, event.member("timestamp")) {
            event = event.with("timestamp", Json::from(serde_json::Value::from(time)));
        }
        self.read_text(event.get(), None, wrapping + 1, out)
    }
}

/// The `role` of a run event, stored only if it is not the default.
fn read_odd_role(
    f: &mut Fields<'_, '_>,
    hai: &mut Vec<(&'static str, Json)>,
    tally: &mut Tally,
) -> ReadResult {
    if let Some(role) = opt_string(f, "role", tally)?.filter(|role| role != ASSISTANT) {
        hai.push(("role", Json::string(&role)));
    }
    Ok(())
}

/// Reads an operation, and the previous value, which the standard's builder puts into `from`.
fn read_operation(
    raw: &RawValue,
    path: Path<'_>,
    tally: &mut Tally,
) -> ReadResult<(Option<PatchOp>, Option<String>)> {
    let mut f = Fields::of(raw, path)?;
    let name = need_string(&mut f, "op", tally)?;
    let Some(op) = Op::parse(&name) else {
        tally.note("unknown patch operation", &name);
        return Ok((None, None));
    };
    let pointer = |text: String, key: &str| -> ReadResult<Box<str>> {
        if is_pointer(&text) {
            Ok(text.into())
        } else {
            Err(Path::Key(&path, key).error(format!("expected a JSON pointer, found `{text}`")))
        }
    };
    let target = pointer(need_string(&mut f, "path", tally)?, "path")?;
    let (from, original) = if op.needs_from() {
        (Some(pointer(need_string(&mut f, "from", tally)?, "from")?), None)
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
    // The builder includes a value in `remove` operations.
    if !op.needs_value() {
        value = value.filter(|value| !value.is_null());
    }
    let extra = f.rest("operation", &mut Tally::default())?;
    Ok((Some(PatchOp { op, path: target, from, value, extra }), original))
}

impl Reader for HaiReader {
    fn read(&mut self, frame: &Frame<'_>, out: &mut Vec<Event>) -> ReadResult {
        self.context.tally.at_frame(frame.index + 1);
        match frame.data {
            Payload::Text(text) => {
                if self.wire_order.is_none() && self.read_fast(text, out) {
                    return Ok(());
                }
                self.read_text(text, frame.event, 0, out)
            }
            Payload::Bytes(bytes) => {
                let text = proto::reader::to_json(bytes, &mut self.context.tally)?;
                if self.wire_order.is_none() && self.read_fast(&text, out) {
                    return Ok(());
                }
                self.read_text(&text, None, 0, out)
            }
        }
    }

    fn end(&mut self, _end: &StreamEnd, out: &mut Vec<Event>) {
        // The guard reports a stream that ends before its run as truncated.
        if self.wire_order.is_none() {
            self.flush_all(out);
        }
    }

    fn tally(&self) -> &Tally {
        &self.context.tally
    }
}
