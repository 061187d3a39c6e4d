//! Canonical events to HAI frames, in three delta shapes and two encodings.
//!
//! Events that HAI can display are written as its clients expect them. Where our reader could not restore the
//! event from such a frame, the member `agui` describes it, which clients ignore. Events that HAI cannot display
//! are wrapped in CUSTOM events. `DerivedIds` predicts the ids that the reader derives from a plain frame.

mod attachments;
mod blocks;
mod business;
mod collaboration;
mod members;
pub(crate) mod messages;
mod reasoning;
mod serial;
mod text;
mod tools;

use std::collections::{HashMap, HashSet};

use bytes::BytesMut;

use self::{
    business::OpenMessages,
    collaboration::Collaborations,
    members::{EventMembers, build_marker},
    messages::MessageOptions,
    serial::Serial,
    tools::ToolCalls,
};
use super::{
    delta::DeltaShape,
    derived_ids::DerivedIds,
    nesting::{compose, fits},
    options::HaiOptions,
    proto::writer::{Coverage, put_json},
    reader::run_message,
    state::{CREATED, without_created},
    wire::{ASSISTANT, EVENTS, MESSAGES_SNAPSHOT, SKIP, SOURCE},
};
use crate::{
    event::{
        Body, Event, MessageBody, MessageId, Outcome, Role, RunFinished, RunId, RunStarted, SubagentId,
        ThreadId,
    },
    format::{
        Fidelity, Profile, Setup, Writer,
        ag_ui::shapes::{self, FINISH_REASON, WRAPPED_PREFIX},
    },
    framing::Frames,
    json::{Json, Object, ObjectWriter},
    patch::{Patch, PatchOp},
};

/// The byte encoding of events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HaiEncoding {
    Json,
    Proto,
}

const TOO_DEEP: Fidelity = Fidelity::Dropped("nested too deep to travel inside another event");
const EMPTY_ID: Fidelity = Fidelity::Approximated("an empty message id becomes the one of the run");
const FOR_DEVELOPERS: &str = "messages for developers are not shown to end users";
const LARGE_INTEGER: &str = "an integer beyond 2^53 cannot be told in protobuf";

/// Writes HAI.
#[derive(Debug)]
pub(crate) struct HaiWriter {
    frames: FrameWriter,
    shape: DeltaShape,
    /// Whether all messages of a run share one id.
    shared_message_id: bool,
    snapshot_name: &'static str,
    include_developer: bool,
    /// Open texts for developers, which are not written.
    hidden: HashSet<MessageId>,
    /// Open steps by name, with their owners in the order of their starts.
    steps: HashMap<Box<str>, Vec<Option<SubagentId>>>,
    is_serial: bool,
    serial: Serial,
    thread: ThreadId,
    run: RunId,
    run_message: String,
    /// The latest timestamp; events without one get it, because every HAI event has a timestamp.
    last_timestamp: Option<i64>,
    derived_ids: DerivedIds,
    open: OpenMessages,
    collaborations: Collaborations,
    tools: ToolCalls,
}

/// Encodes events as frames.
#[derive(Debug)]
pub(crate) struct FrameWriter {
    encoding: HaiEncoding,
    scratch: BytesMut,
    /// The part of the current event that the binary form can represent.
    coverage: Coverage,
}

impl FrameWriter {
    /// Writes an event.
    pub(crate) fn put(
        &mut self,
        out: &mut Frames,
        event_type: &str,
        fill: impl FnOnce(&mut ObjectWriter<'_>),
    ) {
        match self.encoding {
            HaiEncoding::Json => {
                object(out.begin(event_type), event_type, fill);
                out.commit();
            }
            HaiEncoding::Proto => {
                self.scratch.clear();
                object(&mut self.scratch, event_type, fill);
                let text = std::str::from_utf8(&self.scratch).expect("JSON text is UTF-8");
                self.coverage = self.coverage.min(put_json(out, event_type, text));
            }
        }
    }

    /// Writes an event that is JSON text.
    fn put_text(&mut self, out: &mut Frames, event_type: &str, text: &str) {
        match self.encoding {
            HaiEncoding::Json => {
                out.begin(event_type).extend_from_slice(text.as_bytes());
                out.commit();
            }
            HaiEncoding::Proto => self.coverage = self.coverage.min(put_json(out, event_type, text)),
        }
    }
}

fn object(out: &mut BytesMut, event_type: &str, fill: impl FnOnce(&mut ObjectWriter<'_>)) {
    let mut w = ObjectWriter::new(out);
    w.str("type", event_type);
    fill(&mut w);
    w.end();
}

/// The marker of a frame that is for HAI clients only.
fn skip_marker() -> Option<Object> {
    build_marker([(SKIP, json_true())])
}

fn json_true() -> Json {
    Json::from(serde_json::Value::from(true))
}

/// The marker of a frame that represents the AG-UI event `event_type` of a message.
fn id_marker(event_type: &str, message: &str) -> Option<Object> {
    build_marker([("type", Json::string(event_type)), ("messageId", Json::string(message))])
}

/// The first entries of the marker of a frame that represents an AG-UI event.
fn marker_entries(event_type: &str) -> Vec<(&'static str, Json)> {
    vec![("type", Json::string(event_type))]
}

/// The event as an AG-UI object, if it can be nested `levels` deep.
fn agui_event(event: &Event, levels: usize) -> Option<Object> {
    let mut out = BytesMut::new();
    shapes::write_event(&mut out, event);
    let text = String::from_utf8(out.into()).expect("JSON text is UTF-8");
    fits(&text, levels).then(|| Json::trusted(text).into_object())?
}

impl HaiWriter {
    pub(crate) fn new(profile: &Profile, setup: &Setup<'_>, encoding: HaiEncoding) -> Self {
        let options = HaiOptions::from(setup.options);
        let shape = match profile.name {
            "object" => DeltaShape::Object,
            "text" => DeltaShape::Text,
            _ => DeltaShape::JsonString,
        };
        Self {
            frames: FrameWriter { encoding, scratch: BytesMut::new(), coverage: Coverage::Full },
            shape,
            shared_message_id: options.shared_message_id,
            snapshot_name: options.snapshot_name,
            include_developer: options.include_developer,
            hidden: HashSet::new(),
            steps: HashMap::new(),
            is_serial: options.is_serial,
            serial: Serial::default(),
            thread: setup.thread.clone(),
            run: setup.run.clone(),
            run_message: run_message(&setup.run),
            last_timestamp: options.stamp,
            derived_ids: DerivedIds::default(),
            open: OpenMessages::default(),
            collaborations: Collaborations::default(),
            tools: ToolCalls::new(options),
        }
    }

    /// The members of the event besides its body, with a timestamp if one is known.
    fn members(&mut self, event: &Event) -> EventMembers {
        EventMembers::of(event, self.stamp(event))
    }

    fn stamp(&mut self, event: &Event) -> Option<i64> {
        if event.timestamp.is_some() {
            self.last_timestamp = event.timestamp;
        }
        self.last_timestamp
    }

    /// The event of a text whose message id is empty, with the id of the run's message: in HAI an empty id is a missing one,
    /// and readers would join the parts of the text in another way than its wrapped events.
    fn with_message_id(&self, event: &Event) -> Option<Event> {
        let (Body::TextStart { message, .. } | Body::TextDelta { message, .. } | Body::TextEnd { message }) =
            &event.body
        else {
            return None;
        };
        if !message.is_empty() {
            return None;
        }
        let mut event = event.clone();
        if let Body::TextStart { message, .. } | Body::TextDelta { message, .. } | Body::TextEnd { message } =
            &mut event.body
        {
            *message = self.run_message.as_str().into();
        }
        Some(event)
    }

    /// Writes the event as the value of a CUSTOM event.
    fn write_wrapped(&mut self, event: &Event, out: &mut Frames) -> Fidelity {
        let timestamp = self.stamp(event);
        let Some(inner) = agui_event(event, 1) else {
            return TOO_DEEP;
        };
        let kind = inner.get_str("type").unwrap_or_default();
        let name = format!("{WRAPPED_PREFIX}{}", kind.to_ascii_lowercase());
        self.frames.put(out, "CUSTOM", |w| {
            w.str("name", &name).json("value", inner.as_json()).opt_int("timestamp", timestamp);
        });
        Fidelity::Exact
    }

    fn run_started(&mut self, event: &Event, started: &RunStarted, out: &mut Frames) -> Fidelity {
        let mut members = self.members(event);
        (self.thread, self.run) = (started.thread.clone(), started.run.clone());
        self.run_message = members.remove_str("messageId").unwrap_or_else(|| run_message(&started.run));
        let role = members.remove_str("role");
        self.open.reset();
        self.collaborations.reset();
        self.tools.reset(started);
        self.steps.clear();
        self.hidden.clear();
        let mut input = started.input.clone();
        if let Some(input) = input.as_mut().filter(|_| !self.include_developer) {
            input.messages.retain(|message| !matches!(message.body, MessageBody::Developer { .. }));
        }
        let is_complete = input == started.input;
        let Self { frames, run_message, .. } = self;
        frames.put(out, "RUN_STARTED", |w| {
            w.str("messageId", run_message)
                .str("role", role.as_deref().unwrap_or(ASSISTANT))
                .str("threadId", &started.thread)
                .str("runId", &started.run)
                .opt_str("parentRunId", started.parent_run.as_deref())
                .opt_str("protocolVersion", started.protocol_version.as_deref());
            if let Some(input) = &input {
                w.nested("input", |w| shapes::write_input(w, input));
            }
            members.write(w, "RUN_STARTED", None);
        });
        if is_complete { Fidelity::Exact } else { Fidelity::Approximated(FOR_DEVELOPERS) }
    }

    fn run_finished(&mut self, event: &Event, finished: &RunFinished, out: &mut Frames) -> Fidelity {
        self.close_all(event, out);
        let mut members = self.members(event);
        if let Some(Outcome::Interrupt { interrupts }) = &finished.outcome {
            let timestamp = members.timestamp();
            for interrupt in interrupts {
                self.tools.write_interrupt(interrupt, timestamp, &mut self.frames, out);
            }
        }
        let message = members.remove_str("messageId").unwrap_or_else(|| self.run_message.clone());
        let role = members.remove_str("role");
        self.frames.put(out, "RUN_FINISHED", |w| {
            w.str("messageId", &message)
                .str("role", role.as_deref().unwrap_or(ASSISTANT))
                .str("threadId", &finished.thread)
                .str("runId", &finished.run)
                .opt_json("result", finished.result.as_ref());
            if let Some(outcome) = &finished.outcome {
                w.nested("outcome", |w| shapes::write_outcome(w, outcome));
            }
            shapes::write_usage(w, &finished.usage);
            members.write(w, "RUN_FINISHED", None);
        });
        Fidelity::Exact
    }

    fn run_error(&mut self, event: &Event, out: &mut Frames) -> Fidelity {
        let Body::RunError(error) = &event.body else { unreachable!("called for RUN_ERROR only") };
        self.close_all(event, out);
        let mut members = self.members(event);
        let mut remove_or =
            |key: &str, known: &str| members.remove_str(key).unwrap_or_else(|| known.to_owned());
        let message = remove_or("messageId", &self.run_message);
        let (thread, run) = (remove_or("threadId", &self.thread), remove_or("runId", &self.run));
        let role = members.remove_str("role");
        self.frames.put(out, "RUN_ERROR", |w| {
            w.str("message", &error.message)
                .opt_str("code", error.code.as_deref())
                .str("messageId", &message)
                .opt_str("role", role.as_deref())
                .str("threadId", &thread)
                .str("runId", &run);
            shapes::write_usage(w, &error.usage);
            members.write(w, "RUN_ERROR", None);
        });
        Fidelity::Exact
    }

    /// True if the event belongs to a text for developers, which end users do not get.
    fn is_for_developers(&mut self, event: &Event) -> bool {
        match &event.body {
            Body::TextStart { message, role: Some(Role::Developer), .. } if !self.include_developer => {
                self.hidden.insert(message.clone());
                true
            }
            Body::TextDelta { message, .. } => self.hidden.contains(message),
            Body::TextStart { message, .. } => {
                self.hidden.remove(message);
                false
            }
            Body::TextEnd { message } => self.hidden.remove(message),
            _ => false,
        }
    }

    /// Tracks the open steps; false for a start of a name that is open, and for an end of one that stays open. Steps of
    /// different subagents may have one name, which HAI cannot tell apart.
    fn is_visible_step(&mut self, event: &Event, name: &str) -> bool {
        let is_start = matches!(event.body, Body::StepStarted { .. });
        let Some(owners) = self.steps.get_mut(name) else {
            if is_start {
                self.steps.insert(name.into(), vec![event.subagent.clone()]);
            }
            return true;
        };
        if is_start {
            owners.push(event.subagent.clone());
            return false;
        }
        let at = owners.iter().position(|owner| *owner == event.subagent).unwrap_or(0);
        owners.remove(at);
        let is_last = owners.is_empty();
        if is_last {
            self.steps.remove(name);
        }
        is_last
    }

    fn step(&mut self, event: &Event, name: &str, out: &mut Frames) -> Fidelity {
        if !self.is_visible_step(event, name) {
            return self.write_wrapped(event, out);
        }
        let mut members = self.members(event);
        let (thread, run) = (members.remove_str("threadId"), members.remove_str("runId"));
        self.frames.put(out, event.kind(), |w| {
            w.str("stepName", name).opt_str("threadId", thread.as_deref()).opt_str("runId", run.as_deref());
            members.write(w, event.kind(), None);
        });
        Fidelity::Exact
    }

    fn state_delta(&mut self, event: &Event, patch: &Patch, out: &mut Frames) -> Fidelity {
        let mut members = self.members(event);
        let created = members.remove_if(CREATED, |created| created.elements().is_some());
        let operations = without_created(patch, created.as_ref());
        let count = operations.len();
        // The previous values of the operations, as the reader stored them.
        let from = members.remove_if("from", |from| original_values(from, count).is_some());
        let original_values = from.and_then(|from| original_values(&from, count)).unwrap_or_default();
        self.frames.put(out, "STATE_DELTA", |w| {
            w.array("delta", |list| {
                for (index, operation) in operations.into_iter().enumerate() {
                    let original = original_values.get(index).and_then(Option::as_deref);
                    list.object(|w| write_operation(w, operation, original));
                }
            });
            members.write(w, "STATE_DELTA", None);
        });
        if created.is_none() {
            Fidelity::Exact
        } else {
            Fidelity::Approximated("pages have the containers that the gateway created")
        }
    }

    fn messages_snapshot(&mut self, event: &Event, out: &mut Frames) -> Fidelity {
        let Body::MessagesSnapshot { messages } = &event.body else {
            unreachable!("called for MESSAGES_SNAPSHOT only")
        };
        let members = self.members(event);
        let options = MessageOptions {
            wrapped: self.shape != DeltaShape::Text,
            developer: self.include_developer,
            is_request: false,
        };
        let mut complete = true;
        let name = self.snapshot_name;
        self.frames.put(out, name, |w| {
            w.array("messages", |list| complete = messages::write_list(list, messages, options));
            members.write(w, name, None);
        });
        if complete { Fidelity::Exact } else { Fidelity::Approximated(FOR_DEVELOPERS) }
    }

    fn raw(&mut self, event: &Event, raw: &Json, source: Option<&str>, out: &mut Frames) -> Fidelity {
        // An event of an unknown type is written unchanged.
        if source == Some(SOURCE)
            && let Some(object) = raw.clone().into_object()
            && let Some(event_type) = object.get_str("type")
            && !event_type.is_empty()
            && event_type != MESSAGES_SNAPSHOT
            && EVENTS.iter().all(|(known, _)| *known != event_type)
        {
            self.stamp(event);
            self.frames.put_text(out, &event_type, raw.get());
            return Fidelity::Exact;
        }
        let members = self.members(event);
        self.frames.put(out, "RAW", |w| {
            if !raw.is_null() {
                w.json("event", raw);
            }
            w.opt_str("source", source);
            members.write(w, "RAW", None);
        });
        Fidelity::Exact
    }

    fn custom(&mut self, event: &Event, name: &str, value: &Json, out: &mut Frames) -> Fidelity {
        let members = self.members(event);
        self.frames.put(out, "CUSTOM", |w| {
            w.str("name", name);
            if !value.is_null() {
                w.json("value", value);
            }
            members.write(w, "CUSTOM", None);
        });
        Fidelity::Exact
    }

    /// Closes all open messages and collaborations before a run ends.
    fn close_all(&mut self, event: &Event, out: &mut Frames) {
        let timestamp = self.stamp(event);
        self.collaborations.close_all(timestamp, self.shape, &mut self.frames, out);
        self.close_messages(timestamp, out);
    }

    fn write_event(&mut self, event: &Event, out: &mut Frames) -> Fidelity {
        match &event.body {
            Body::RunStarted(started) => self.run_started(event, started, out),
            Body::RunFinished(finished) => self.run_finished(event, finished, out),
            Body::RunError(_) => self.run_error(event, out),
            Body::StepStarted { name } | Body::StepFinished { name } => self.step(event, name, out),
            Body::TextStart { .. } => self.text_start(event, out),
            Body::TextDelta { message, delta } => self.text_delta(event, message, delta, out),
            Body::TextEnd { message } => self.text_end(event, message, out),
            Body::ReasoningStart { message, title } => self.span_start(event, message, title.as_deref(), out),
            Body::ReasoningMessageStart { message } => self.thought_start(event, message, out),
            Body::ReasoningDelta { message, delta } => self.thought_delta(event, message, delta, out),
            Body::ReasoningMessageEnd { message } => self.thought_end(event, message, out),
            Body::ReasoningEnd { message } => self.span_end(event, message, out),
            Body::ActivitySnapshot { .. } => self.activity_snapshot(event, out),
            Body::ActivityDelta { message, kind, patch } => {
                self.activity_delta(event, message, kind, patch, out)
            }
            Body::Citation(source) => self.source(event, source, out),
            Body::File(file) => self.file(event, file, out),
            Body::Block(block) => self.block(event, block, out),
            Body::ToolStart { .. } | Body::ToolArgs { .. } | Body::ToolEnd { .. } | Body::ToolResult(_) => {
                self.tool(event, out)
            }
            Body::StateSnapshot { snapshot } => {
                let members = self.members(event);
                self.frames.put(out, "STATE_SNAPSHOT", |w| {
                    if !snapshot.is_null() {
                        w.json("snapshot", snapshot);
                    }
                    members.write(w, "STATE_SNAPSHOT", None);
                });
                Fidelity::Exact
            }
            Body::StateDelta { patch } => self.state_delta(event, patch, out),
            Body::MessagesSnapshot { .. } => self.messages_snapshot(event, out),
            Body::CollaborationStart { .. }
            | Body::CollaborationTask { .. }
            | Body::CollaborationEnd { .. }
            | Body::SubagentStarted(_) => self.collaboration(event, out),
            Body::ReasoningEncrypted { .. } | Body::SubagentFinished { .. } | Body::SubagentError { .. } => {
                self.write_wrapped(event, out)
            }
            Body::Raw { event: raw, source } => self.raw(event, raw, source.as_deref(), out),
            Body::Custom { name, value } => self.custom(event, name, value, out),
            Body::FinishReason { message, reason } => {
                let message = message.as_deref().map(|message| ("messageId", Json::string(message)));
                let value = compose(message.into_iter().chain([("reason", Json::string(reason))]));
                self.custom(event, FINISH_REASON, value.as_json(), out)
            }
        }
    }
}

/// The previous values of `count` operations, as the reader stores them.
fn original_values(from: &Json, count: usize) -> Option<Vec<Option<String>>> {
    if count == 1 {
        return from.as_str().filter(|text| !text.is_empty()).map(|text| vec![Some(text)]);
    }
    let elements = from.elements()?;
    let fit = |element: &Json| element.is_null() || element.as_str().is_some_and(|text| !text.is_empty());
    (elements.len() == count && elements.iter().all(fit) && elements.iter().any(|element| !element.is_null()))
        .then(|| elements.iter().map(Json::as_str).collect())
}

fn write_operation(w: &mut ObjectWriter<'_>, operation: &PatchOp, original: Option<&str>) {
    let PatchOp { op, path, from, value, extra } = operation;
    w.str("op", op.as_str()).str("path", path);
    if op.needs_from() {
        w.opt_str("from", from.as_deref());
    } else {
        w.opt_str("from", original);
    }
    w.opt_json("value", value.as_ref());
    for (key, value) in extra.iter().flat_map(Object::entries) {
        w.entry(&key, &value);
    }
}

impl HaiWriter {
    fn write_now(&mut self, event: &Event, out: &mut Frames) -> Fidelity {
        if self.is_serial {
            let kept = match &event.body {
                Body::CollaborationTask { id, .. } | Body::CollaborationEnd { id } => Some(id),
                _ => None,
            };
            let Self { collaborations, frames, shape, last_timestamp, .. } = self;
            collaborations.end_others(kept, event.timestamp.or(*last_timestamp), *shape, frames, out);
        }
        if self.write_fast(event, out) {
            return Fidelity::Exact;
        }
        if self.is_for_developers(event) {
            return Fidelity::Dropped(FOR_DEVELOPERS);
        }
        self.close_idle(event, out);
        let fidelity = self.write_event(event, out);
        match fidelity {
            Fidelity::Dropped(_) => fidelity,
            fidelity => match std::mem::replace(&mut self.frames.coverage, Coverage::Full) {
                Coverage::Full => fidelity,
                Coverage::Partial => Fidelity::Approximated(LARGE_INTEGER),
                Coverage::None => Fidelity::Dropped(LARGE_INTEGER),
            },
        }
    }

    /// Writes the event unless it must wait, and then the events that waited for it.
    fn write_serial(&mut self, event: &Event, out: &mut Frames) -> Fidelity {
        if event.is_terminal() || matches!(event.body, Body::RunStarted(_)) {
            self.write_waiting(out);
        }
        let activities = &self.open.activities;
        if !self.serial.admit(event, |activity| activities.contains_key(activity)) {
            return Fidelity::Exact;
        }
        let fidelity = self.write_now(event, out);
        loop {
            let activities = &self.open.activities;
            let Some(next) = self.serial.next(|activity| activities.contains_key(activity)) else {
                return fidelity;
            };
            self.write_now(&next, out);
        }
    }

    fn write_waiting(&mut self, out: &mut Frames) {
        for event in self.serial.take_all() {
            self.write_now(&event, out);
        }
    }
}

impl Writer for HaiWriter {
    fn write(&mut self, event: &Event, out: &mut Frames) -> Fidelity {
        let named = self.with_message_id(event);
        let event = named.as_ref().unwrap_or(event);
        let fidelity =
            if self.is_serial { self.write_serial(event, out) } else { self.write_now(event, out) };
        match fidelity {
            Fidelity::Exact if named.is_some() => EMPTY_ID,
            other => other,
        }
    }

    fn end(&mut self, out: &mut Frames) {
        self.write_waiting(out);
    }
}
