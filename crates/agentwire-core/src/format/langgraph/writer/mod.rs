//! LangGraph Server's SSE: the stream modes that front ends of LangGraph read.
//!
//! Text and calls are chunks in `messages`; `values` has the state and all complete messages after each change: a
//! message that is being streamed is not in it, because clients would show it twice. A step is a node. Reasoning is a part of
//! the message after it ([`super::server_form`]).
//!
//! The first `values` are written with the messages and the state before the run: those of the request, or those of the
//! snapshots with which the run begins.

mod events;
mod messages;
mod modes;

use std::collections::{HashMap, HashSet};

use bytes::{BufMut, BytesMut};
use serde_json::{Map, Value, json};

use self::modes::Modes;
use super::{
    server_form::{server_interrupt, shown_id, without_open},
    wire::StreamMode,
};
use crate::{
    event::{Body, Event, Interrupt, MessageId, Outcome, Role, RunFinished, RunId, ThreadId, ToolCallId},
    fold::Fold,
    format::{Fidelity, Setup, Writer},
    framing::Frames,
    json::ObjectWriter,
};

/// The node of events outside of a step.
const NODE: &str = "agent";

/// The node of tool results outside of a step.
const TOOLS: &str = "tools";

/// A call whose arguments are being written.
struct OpenCall {
    message: MessageId,
    index: i64,
}

/// Writes one run.
pub(super) struct LangGraphWriter {
    modes: Modes,
    thread: ThreadId,
    run: RunId,
    fold: Fold,
    /// The open steps, the innermost last, with the numbers of their starts.
    steps: Vec<(Box<str>, u64)>,
    /// The number of the last step.
    step: u64,
    /// Messages that are being streamed, reasoning included.
    open: Vec<MessageId>,
    /// The last message of which a piece was written, with the id under which it is shown.
    shown: Option<(MessageId, MessageId)>,
    calls: HashMap<ToolCallId, OpenCall>,
    /// Calls so far of each message.
    indexes: HashMap<MessageId, i64>,
    /// The message of calls without a parent.
    last: Option<MessageId>,
    /// Messages that an update has reported, or that were there before.
    reported: usize,
    /// The node and the metadata of its messages, as JSON.
    metadata: Option<(Box<str>, BytesMut)>,
    /// True once the first values are written.
    has_values: bool,
    /// Messages whose metadata are written, in the mode `messages`.
    announced: HashSet<MessageId>,
}

impl LangGraphWriter {
    pub(super) fn new(setup: &Setup<'_>) -> Self {
        let request = setup.options.request();
        let messages = request.map_or_else(Vec::new, |request| request.messages.clone());
        let state = request.and_then(|request| request.state.as_ref()).map(|state| state.to_value());
        Self {
            modes: Modes::of(setup.options),
            thread: setup.thread.clone(),
            run: setup.run.clone(),
            reported: messages.len(),
            fold: Fold::from_history(messages, state),
            steps: Vec::new(),
            step: 0,
            open: Vec::new(),
            calls: HashMap::new(),
            indexes: HashMap::new(),
            last: None,
            metadata: None,
            shown: None,
            has_values: false,
            announced: HashSet::new(),
        }
    }

    /// The metadata of a message of the current node, or of `fallback` outside of a step.
    fn refresh_metadata(&mut self, fallback: &'static str) {
        let node = self.steps.last().map_or(fallback, |(name, _)| name);
        if self.metadata.as_ref().is_none_or(|(known, _)| **known != *node) {
            let mut text = BytesMut::new();
            let mut object = ObjectWriter::new(&mut text);
            object.str("langgraph_node", node).int("langgraph_step", i64::try_from(self.step).unwrap_or(0));
            object.str("thread_id", &self.thread).str("run_id", &self.run);
            let namespace = format!("{node}:{}", self.run);
            object.str("langgraph_checkpoint_ns", &namespace);
            object.end();
            self.metadata = Some((node.into(), text));
        }
    }

    /// The id under which a message is shown.
    fn shown_id(&mut self, message: &MessageId) -> MessageId {
        if let Some((known, shown)) = &self.shown
            && known == message
        {
            return shown.clone();
        }
        let messages = self.fold.messages();
        let at = messages.iter().rposition(|known| known.id == *message);
        let shown = at.map_or_else(|| message.clone(), |at| shown_id(messages, at));
        self.shown = Some((message.clone(), shown.clone()));
        shown
    }

    /// A piece of a message in the modes that show it.
    fn chunk(&mut self, out: &mut Frames, message: &MessageId, fill: impl Fn(&mut ObjectWriter<'_>)) {
        let shown = self.shown_id(message);
        self.refresh_metadata(NODE);
        let metadata: &[u8] = self.metadata.as_ref().map_or(b"{}", |(_, text)| text);
        if self.modes.messages {
            let buffer = out.begin_named(StreamMode::Messages.as_str());
            buffer.put_u8(b'[');
            messages::write_chunk(buffer, &shown, &fill);
            buffer.put_u8(b',');
            buffer.put_slice(metadata);
            buffer.put_u8(b']');
            out.commit();
        }
        if self.modes.events {
            events::write_chunk(out, &shown, metadata, &fill);
        }
        if self.modes.partials {
            self.write_partial(out, &shown);
        }
    }

    /// The frames of a message so far, in the mode `messages`.
    fn write_partial(&mut self, out: &mut Frames, shown: &MessageId) {
        let whole = without_open(self.fold.messages(), |_| false);
        let Some(message) = whole.into_iter().rev().find(|message| message["id"] == shown.as_str()) else {
            return;
        };
        if self.announced.insert(shown.clone()) {
            let metadata = self.metadata.as_ref().map_or(&b"{}"[..], |(_, text)| text);
            let metadata: Value = serde_json::from_slice(metadata).unwrap_or_default();
            write_json(out, "messages/metadata", &json!({shown.as_str(): {"metadata": metadata}}));
        }
        write_json(out, "messages/partial", &json!([message]));
    }

    /// The values: all complete messages and the state.
    fn values(&mut self) -> Map<String, Value> {
        let mut values = match self.fold.state() {
            Value::Object(state) => state.clone(),
            _ => Map::new(),
        };
        let open = &self.open;
        let calls = &self.calls;
        let is_open = |id: &MessageId| open.contains(id) || calls.values().any(|call| call.message == *id);
        values.insert("messages".into(), without_open(self.fold.messages(), is_open).into());
        values
    }

    fn write_values(&mut self, out: &mut Frames) {
        self.has_values = true;
        if self.modes.values {
            let values = Value::Object(self.values());
            write_json(out, StreamMode::Values.as_str(), &values);
        }
    }

    /// The complete messages since the last update, as the update of a node.
    fn take_update(&mut self) -> Option<Value> {
        let (open, calls) = (&self.open, &self.calls);
        let is_open = |id: &MessageId| open.contains(id) || calls.values().any(|call| call.message == *id);
        let messages = self.fold.messages();
        let fresh = messages.get(self.reported..).unwrap_or_default();
        let complete = fresh.iter().position(|message| is_open(&message.id)).unwrap_or(fresh.len());
        let update = without_open(&fresh[..complete], |_| false);
        self.reported = self.reported.min(messages.len()) + complete;
        (!update.is_empty()).then(|| json!({ "messages": update }))
    }

    fn write_update(&mut self, node: &str, out: &mut Frames) {
        if let Some(update) = self.take_update().filter(|_| self.modes.updates) {
            write_json(out, StreamMode::Updates.as_str(), &json!({ node: update }));
        }
    }

    fn started(&mut self, out: &mut Frames) {
        let buffer = out.begin_named(StreamMode::Metadata.as_str());
        let mut object = ObjectWriter::new(buffer);
        object.str("run_id", &self.run).int("attempt", 1);
        object.end();
        out.commit();
        if self.modes.events {
            events::write_root(out, "on_chain_start", &self.run, &json!({"input": {}}));
        }
    }

    fn step_started(&mut self, name: &str, out: &mut Frames) {
        self.step += 1;
        self.metadata = None;
        self.steps.push((name.into(), self.step));
        if self.modes.tasks {
            let task = json!({"id": self.task_id(self.step), "name": name, "input": {}, "triggers": []});
            write_json(out, StreamMode::Tasks.as_str(), &task);
        }
        if self.modes.events {
            events::write_node(out, "on_chain_start", name, self.step, &self.run, &json!({"input": {}}));
        }
    }

    fn step_finished(&mut self, name: &str, out: &mut Frames) {
        let Some(at) = self.steps.iter().rposition(|(open, _)| **open == *name) else { return };
        let (_, number) = self.steps.remove(at);
        self.metadata = None;
        let update = self.take_update();
        let result = update.clone().unwrap_or_else(|| json!({}));
        if self.modes.tasks {
            let id = self.task_id(number);
            let task = json!({"id": id, "name": name, "error": null, "result": result, "interrupts": []});
            write_json(out, StreamMode::Tasks.as_str(), &task);
        }
        if self.modes.events {
            events::write_node(out, "on_chain_end", name, number, &self.run, &json!({ "output": result }));
        }
        if self.modes.updates {
            write_json(out, StreamMode::Updates.as_str(), &json!({ name: update }));
        }
        self.write_values(out);
    }

    fn task_id(&self, number: u64) -> String {
        format!("{}-{number}", self.run)
    }

    /// The name of the tool of a call.
    fn tool_name(&mut self, call: &ToolCallId) -> Option<Box<str>> {
        let made = self.fold.messages().iter().rev().flat_map(|message| message.tool_calls());
        made.into_iter().find(|made| made.id == *call).map(|made| made.name.clone())
    }

    fn finished(&mut self, finished: &RunFinished, out: &mut Frames) -> Fidelity {
        (self.open, self.calls) = (Vec::new(), HashMap::new());
        self.write_update(NODE, out);
        let interrupts: &[Interrupt] = match &finished.outcome {
            Some(Outcome::Interrupt { interrupts }) => interrupts,
            _ => &[],
        };
        let mut values = self.values();
        if !interrupts.is_empty() {
            let shown: Vec<Value> = interrupts.iter().map(server_interrupt).collect();
            if self.modes.updates {
                write_json(out, StreamMode::Updates.as_str(), &json!({"__interrupt__": shown}));
            }
            values.insert("__interrupt__".into(), shown.into());
        }
        let values = Value::Object(values);
        if self.modes.values {
            write_json(out, StreamMode::Values.as_str(), &values);
        }
        if self.modes.events {
            events::write_root(out, "on_chain_end", &self.run, &json!({ "output": values }));
        }
        match &finished.outcome {
            None | Some(Outcome::Success { .. } | Outcome::Interrupt { .. }) if finished.result.is_none() => {
                Fidelity::Exact
            }
            None | Some(Outcome::Success { .. } | Outcome::Interrupt { .. }) => {
                Fidelity::Approximated("a run has no result")
            }
            _ => Fidelity::Approximated("a stream just ends, whatever the outcome"),
        }
    }
}

/// A frame with any JSON.
fn write_json(out: &mut Frames, mode: &str, value: &Value) {
    let buffer = out.begin_named(mode);
    serde_json::to_writer(buffer.writer(), value).expect("writing to memory does not fail");
    out.commit();
}

const IN_VALUES: Fidelity = Fidelity::Approximated("only in the values, and in the updates of its node");
const NO_PLACE: Fidelity = Fidelity::Dropped("LangGraph's streams have no place for it");

impl Writer for LangGraphWriter {
    fn write(&mut self, event: &Event, out: &mut Frames) -> Fidelity {
        if event.subagent.is_some() {
            return Fidelity::Dropped("nested graphs are not shown");
        }
        let is_first = self.modes.is_unstarted;
        if is_first {
            self.modes.is_unstarted = false;
            if let Body::RunStarted(started) = &event.body {
                (self.thread, self.run) = (started.thread.clone(), started.run.clone());
            }
            self.started(out);
        }
        let is_snapshot = matches!(
            event.body,
            Body::RunStarted(_) | Body::StateSnapshot { .. } | Body::MessagesSnapshot { .. }
        );
        if !is_snapshot && !self.has_values {
            self.write_values(out);
        }
        match &event.body {
            // The fold would keep the places of the request's messages.
            Body::MessagesSnapshot { messages } if !self.has_values => {
                let state = self.fold.state().clone();
                self.fold = Fold::from_history(messages.clone(), Some(state));
            }
            _ => self.fold.apply(event),
        }
        match &event.body {
            Body::RunStarted(_) => Fidelity::Exact,
            Body::TextStart { message, role, .. } => {
                self.open.push(message.clone());
                self.last = Some(message.clone());
                match role {
                    None | Some(Role::Assistant) => Fidelity::Exact,
                    Some(_) => IN_VALUES,
                }
            }
            Body::TextDelta { message, delta } => {
                self.chunk(out, message, |chunk| {
                    chunk.str("content", delta);
                });
                Fidelity::Exact
            }
            Body::TextEnd { message } => {
                self.open.retain(|open| open != message);
                Fidelity::Exact
            }
            Body::ToolStart { call, name, parent } => {
                let parent = parent.clone().or_else(|| self.last.clone());
                let message = parent.unwrap_or_else(|| call.as_str().into());
                let next = self.indexes.entry(message.clone()).or_default();
                let index = *next;
                *next += 1;
                self.chunk(out, &message, |chunk| {
                    chunk.str("content", "");
                    messages::write_call(chunk, Some(call.as_str()), Some(name), "", index);
                });
                self.calls.insert(call.clone(), OpenCall { message, index });
                Fidelity::Exact
            }
            Body::ToolArgs { call, delta } => {
                let Some(OpenCall { message, index }) = self.calls.get(call) else { return NO_PLACE };
                let (message, index) = (message.clone(), *index);
                self.chunk(out, &message, |chunk| {
                    chunk.str("content", "");
                    messages::write_call(chunk, None, None, delta, index);
                });
                Fidelity::Exact
            }
            Body::ToolEnd { call } => {
                self.calls.remove(call);
                Fidelity::Exact
            }
            Body::ToolResult(result) => {
                let native = messages::native_result(result, self.tool_name(&result.call).as_deref());
                self.refresh_metadata(TOOLS);
                let metadata: &[u8] = self.metadata.as_ref().map_or(b"{}", |(_, text)| text);
                if self.modes.partials {
                    write_json(out, "messages/complete", &json!([native]));
                }
                if self.modes.messages {
                    let buffer = out.begin_named(StreamMode::Messages.as_str());
                    buffer.put_u8(b'[');
                    serde_json::to_writer((&mut *buffer).writer(), &native)
                        .expect("writing to memory does not fail");
                    buffer.put_u8(b',');
                    buffer.put_slice(metadata);
                    buffer.put_u8(b']');
                    out.commit();
                }
                if self.modes.events {
                    events::write_tool_end(out, &native, metadata);
                }
                match result.error {
                    None => Fidelity::Exact,
                    Some(_) => Fidelity::Approximated("a failed tool has a status and its content"),
                }
            }
            Body::ReasoningDelta { message, delta } => {
                self.chunk(out, message, |chunk| {
                    chunk.str("content", "");
                    chunk.nested("additional_kwargs", |kwargs| {
                        kwargs.str("reasoning_content", delta);
                    });
                });
                Fidelity::Approximated("the ids of reasoning are those of its message")
            }
            Body::ReasoningMessageStart { message, .. } => {
                self.open.push(message.clone());
                Fidelity::Approximated("the ids of reasoning are those of its message")
            }
            Body::ReasoningMessageEnd { message } => {
                self.open.retain(|open| open != message);
                Fidelity::Approximated("the ids of reasoning are those of its message")
            }
            Body::ReasoningStart { .. } | Body::ReasoningEnd { .. } => {
                Fidelity::Approximated("the ids of reasoning are those of its message")
            }
            Body::StateSnapshot { .. } | Body::StateDelta { .. } | Body::MessagesSnapshot { .. } => {
                let has_messages = matches!(event.body, Body::MessagesSnapshot { .. });
                if has_messages {
                    self.reported = self.fold.messages().len();
                    self.shown = None;
                }
                // A state before the messages of the start is not whole.
                if has_messages || self.has_values {
                    self.write_values(out);
                }
                match &event.body {
                    Body::StateSnapshot { .. } => Fidelity::Exact,
                    Body::StateDelta { .. } => Fidelity::Approximated("the whole state, not its change"),
                    _ => Fidelity::Approximated("messages without activities and reasoning"),
                }
            }
            Body::StepStarted { name } => {
                self.step_started(name, out);
                Fidelity::Exact
            }
            Body::StepFinished { name } => {
                self.step_finished(name, out);
                Fidelity::Exact
            }
            Body::Custom { name, value } => {
                if self.modes.custom {
                    let buffer = out.begin_named(StreamMode::Custom.as_str());
                    let mut object = ObjectWriter::new(buffer);
                    object.str("type", "agent_custom_event").str("name", name).json("payload", value);
                    object.end();
                    out.commit();
                }
                Fidelity::Exact
            }
            Body::RunFinished(finished) => self.finished(finished, out),
            Body::RunError(error) => {
                let buffer = out.begin_named(StreamMode::Error.as_str());
                let class = error.code.as_deref().unwrap_or("Error");
                let mut object = ObjectWriter::new(buffer);
                object.str("error", class).str("message", &error.message);
                object.end();
                out.commit();
                Fidelity::Exact
            }
            _ => NO_PLACE,
        }
    }
}
