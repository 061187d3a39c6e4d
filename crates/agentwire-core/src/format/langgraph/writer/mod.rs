//! LangGraph Server's SSE: the stream modes that front ends of LangGraph read.
//!
//! Text and calls are chunks in `messages`; `values` has the state and all complete messages after each change: a
//! message that is being streamed is not in it, because clients would show it twice. A step is a node. Reasoning is a part of
//! the message after it ([`super::server_form`]).
//!
//! The first `values` are written with the messages and the state before the run: those of the request, or those of the
//! snapshots with which the run begins.

mod events;
mod graph;
mod messages;
mod modes;
mod protocol;

use std::collections::HashSet;

use bytes::{BufMut, BytesMut};
use serde_json::{Value, json};

pub(super) use self::protocol::ProtocolWriter;
use self::{
    graph::{Graph, OpenCall},
    modes::Modes,
};
use super::{
    server_form::{INTERRUPT, server_interrupt, without_open},
    wire::StreamMode,
};
use crate::{
    event::{Body, Event, Interrupt, MessageId, Outcome, Role, RunFinished},
    format::{Fidelity, Setup, Writer},
    framing::Frames,
    json::ObjectWriter,
};

/// The node of events outside of a step.
const NODE: &str = "agent";

/// The node of tool results outside of a step.
const TOOLS: &str = "tools";

/// Writes one run.
pub(super) struct LangGraphWriter {
    modes: Modes,
    graph: Graph,
    /// The node and the metadata of its messages, as JSON.
    metadata: Option<(Box<str>, BytesMut)>,
    /// Messages whose metadata are written, in the mode `messages`.
    announced: HashSet<MessageId>,
}

impl LangGraphWriter {
    pub(super) fn new(setup: &Setup<'_>) -> Self {
        Self {
            modes: Modes::of(setup.options),
            graph: Graph::new(setup),
            metadata: None,
            announced: HashSet::new(),
        }
    }

    /// The metadata of a message: that of its node, or of `fallback` outside of a step.
    fn refresh_metadata(&mut self, message: &MessageId, fallback: &'static str) {
        let node = self.graph.step_of(message).map_or(fallback, |(name, _)| name);
        if self.metadata.as_ref().is_none_or(|(known, _)| **known != *node) {
            let mut text = BytesMut::new();
            let mut object = ObjectWriter::new(&mut text);
            object
                .str("langgraph_node", node)
                .int("langgraph_step", i64::try_from(self.graph.superstep).unwrap_or(0));
            object.str("thread_id", &self.graph.thread).str("run_id", &self.graph.run);
            let namespace = format!("{node}:{}", self.graph.run);
            object.str("langgraph_checkpoint_ns", &namespace);
            object.end();
            self.metadata = Some((node.into(), text));
        }
    }

    /// A piece of a message in the modes that show it.
    fn chunk(&mut self, out: &mut Frames, message: &MessageId, fill: impl Fn(&mut ObjectWriter<'_>)) {
        let shown = self.graph.shown_id(message);
        self.refresh_metadata(message, NODE);
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
        let whole = without_open(self.graph.fold.messages(), |_| false);
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

    fn write_values(&mut self, out: &mut Frames) {
        self.graph.has_values = true;
        if self.modes.values {
            let values = Value::Object(self.graph.values());
            write_json(out, StreamMode::Values.as_str(), &values);
        }
    }

    fn write_update(&mut self, node: &str, out: &mut Frames) {
        if let Some(update) = self.graph.take_update().filter(|_| self.modes.updates) {
            write_json(out, StreamMode::Updates.as_str(), &json!({ node: update }));
        }
    }

    fn started(&mut self, out: &mut Frames) {
        let buffer = out.begin_named(StreamMode::Metadata.as_str());
        let mut object = ObjectWriter::new(buffer);
        object.str("run_id", &self.graph.run).int("attempt", 1);
        object.end();
        out.commit();
        if self.modes.events {
            events::write_root(out, "on_chain_start", &self.graph.run, &json!({"input": {}}));
        }
    }

    fn step_started(&mut self, name: &str, out: &mut Frames) {
        self.metadata = None;
        if self.modes.tasks {
            let task =
                json!({"id": self.graph.task_id(self.graph.step), "name": name, "input": {}, "triggers": []});
            write_json(out, StreamMode::Tasks.as_str(), &task);
        }
        if self.modes.events {
            events::write_node(
                out,
                "on_chain_start",
                name,
                self.graph.step,
                &self.graph.run,
                &json!({"input": {}}),
            );
        }
    }

    fn step_finished(&mut self, name: &str, out: &mut Frames) {
        let Some((number, update)) = self.graph.end_step(name) else { return };
        self.metadata = None;
        let result = update.clone().unwrap_or_else(|| json!({}));
        if self.modes.tasks {
            let id = self.graph.task_id(number);
            let task = json!({"id": id, "name": name, "error": null, "result": result, "interrupts": []});
            write_json(out, StreamMode::Tasks.as_str(), &task);
        }
        if self.modes.events {
            events::write_node(
                out,
                "on_chain_end",
                name,
                number,
                &self.graph.run,
                &json!({ "output": result }),
            );
        }
        if self.modes.updates {
            write_json(out, StreamMode::Updates.as_str(), &json!({ name: update }));
        }
        self.write_values(out);
    }

    fn finished(&mut self, finished: &RunFinished, out: &mut Frames) -> Fidelity {
        self.write_update(NODE, out);
        let interrupts: &[Interrupt] = match &finished.outcome {
            Some(Outcome::Interrupt { interrupts }) => interrupts,
            _ => &[],
        };
        let mut values = self.graph.values();
        if !interrupts.is_empty() {
            let shown: Vec<Value> = interrupts.iter().map(server_interrupt).collect();
            if self.modes.updates {
                write_json(out, StreamMode::Updates.as_str(), &json!({INTERRUPT: shown}));
            }
            values.insert(INTERRUPT.into(), shown.into());
        }
        let values = Value::Object(values);
        if self.modes.values {
            write_json(out, StreamMode::Values.as_str(), &values);
        }
        if self.modes.events {
            events::write_root(out, "on_chain_end", &self.graph.run, &json!({ "output": values }));
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
                (self.graph.thread, self.graph.run) = (started.thread.clone(), started.run.clone());
            }
            self.started(out);
        }
        let is_snapshot = matches!(
            event.body,
            Body::RunStarted(_) | Body::StateSnapshot { .. } | Body::MessagesSnapshot { .. }
        );
        if !is_snapshot && !self.graph.has_values {
            self.write_values(out);
        }
        self.graph.apply(event);
        match &event.body {
            Body::RunStarted(_) => Fidelity::Exact,
            Body::TextStart { role, .. } => match role {
                None | Some(Role::Assistant) => Fidelity::Exact,
                Some(_) => IN_VALUES,
            },
            Body::TextDelta { message, delta } => {
                self.chunk(out, message, |chunk| {
                    chunk.str("content", delta);
                });
                Fidelity::Exact
            }
            Body::TextEnd { .. } | Body::ToolEnd { .. } => Fidelity::Exact,
            Body::ToolStart { call, name, .. } => {
                let Some(OpenCall { message, index }) = self.graph.calls.get(call) else { return NO_PLACE };
                let (message, index) = (message.clone(), *index);
                self.chunk(out, &message, |chunk| {
                    chunk.str("content", "");
                    messages::write_call(chunk, Some(call.as_str()), Some(name), "", index);
                });
                Fidelity::Exact
            }
            Body::ToolArgs { call, delta } => {
                let Some(OpenCall { message, index }) = self.graph.calls.get(call) else { return NO_PLACE };
                let (message, index) = (message.clone(), *index);
                self.chunk(out, &message, |chunk| {
                    chunk.str("content", "");
                    messages::write_call(chunk, None, None, delta, index);
                });
                Fidelity::Exact
            }
            Body::ToolResult(result) => {
                let native = messages::native_result(result, self.graph.tool_name(&result.call).as_deref());
                self.refresh_metadata(&result.message, TOOLS);
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
            Body::ReasoningMessageStart { .. }
            | Body::ReasoningMessageEnd { .. }
            | Body::ReasoningStart { .. }
            | Body::ReasoningEnd { .. } => {
                Fidelity::Approximated("the ids of reasoning are those of its message")
            }
            Body::StateSnapshot { .. } | Body::StateDelta { .. } | Body::MessagesSnapshot { .. } => {
                let has_messages = matches!(event.body, Body::MessagesSnapshot { .. });
                // A state before the messages of the start is not whole.
                if has_messages || self.graph.has_values {
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
            Body::FinishReason { message, reason } => {
                let Some(message) = self.graph.finished_message(message.as_ref()) else { return NO_PLACE };
                self.chunk(out, &message, |chunk| {
                    chunk.str("content", "");
                    chunk.nested("response_metadata", |metadata| {
                        metadata.str("finish_reason", reason);
                    });
                });
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
