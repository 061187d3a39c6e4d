//! Protocol v2 of LangGraph Server: the events of one run in the channels that a client asks for.
//!
//! A message has content blocks: text, reasoning, calls. It ends when another one starts behind it, or a tool or a step ends.
//! Two messages at once in one namespace have different nodes, by which clients tell their blocks apart. A subagent is a
//! namespace. Values are whole, as in the stream modes; a checkpoint is announced before them.

mod blocks;
mod envelope;
mod filter;

use std::collections::HashMap;

use bytes::BufMut;
use serde_json::{Value, json};

use self::{
    blocks::{BlockKind, Lane},
    envelope::{Envelope, EventId, Namespace},
};
use super::{
    super::{
        server_form::{reasoning_id, server_interrupt},
        wire::ProtocolMethod,
    },
    IN_VALUES, NO_PLACE, NODE, TOOLS,
    graph::{Graph, OpenCall},
    messages,
};
use crate::{
    event::{
        Body, Event, Interrupt, MessageId, Outcome, Role, RunFinished, SubagentId, SubagentOutcome,
        SubagentStarted, ToolResult,
    },
    format::{Fidelity, Options, Setup, Writer},
    framing::Frames,
    json::ObjectWriter,
};

/// A checkpoint that is announced before values.
#[derive(Clone, Debug)]
struct Checkpoint {
    id: String,
    parent: Option<String>,
    step: i64,
    source: String,
}

impl Checkpoint {
    /// That of an option: a JSON object with `id`, `parent_id`, `step` and `source`.
    fn of(options: &Options, name: &str) -> Option<Self> {
        let mut value: Value = serde_json::from_str(options.get(name)?).ok()?;
        let mut text = |key: &str| match value[key].take() {
            Value::String(text) => Some(text),
            _ => None,
        };
        let (id, parent, source) = (text("id")?, text("parent_id"), text("source"));
        Some(Self { id, parent, source: source.unwrap_or_default(), step: value["step"].as_i64()? })
    }
}

/// Writes one run.
pub(in super::super) struct ProtocolWriter {
    graph: Graph,
    envelope: Envelope,
    root: Lane,
    subagents: HashMap<SubagentId, Lane>,
    graph_name: Option<Box<str>>,
    /// The checkpoints of the values before the end, and of those at the end.
    checkpoints: [Option<Checkpoint>; 2],
    is_started: bool,
}

impl ProtocolWriter {
    pub(in super::super) fn new(setup: &Setup<'_>) -> Self {
        let envelope = Envelope::new(&setup.run, setup.options);
        let names = ["checkpoint", "end_checkpoint"];
        Self {
            graph: Graph::new(setup),
            root: Lane::new(Namespace::new(Vec::new(), &envelope.filter)),
            envelope,
            subagents: HashMap::new(),
            graph_name: setup.options.get("graph_name").map(Into::into),
            checkpoints: names.map(|name| Checkpoint::of(setup.options, name)),
            is_started: false,
        }
    }

    fn lifecycle(&mut self, out: &mut Frames, status: &str, error: Option<&str>) {
        let (name, id) = (self.graph_name.as_deref(), EventId::Named("lc", status));
        let place = &self.root.namespace;
        self.envelope.write(out, ProtocolMethod::Lifecycle, place, &id, None, |data| {
            data.str("event", status).opt_str("graph_name", name).opt_str("error", error);
        });
    }

    fn write_values(&mut self, out: &mut Frames, is_end: bool) {
        self.graph.has_values = true;
        let place = &self.root.namespace;
        match &self.checkpoints[usize::from(is_end)] {
            Some(Checkpoint { id, parent, step, source }) => {
                let method = ProtocolMethod::Checkpoints;
                self.envelope.write(out, method, place, &EventId::Numbered, None, |data| {
                    data.str("id", id).opt_str("parent_id", parent.as_deref());
                    data.int("step", *step).str("source", source);
                });
            }
            None => self.envelope.skip(),
        }
        let is_wanted = self.envelope.filter.has(ProtocolMethod::Values);
        let graph = &mut self.graph;
        let (method, id) = (ProtocolMethod::Values, EventId::Numbered);
        self.envelope.write_any(out, method, is_wanted, place, &id, None, |buffer| {
            serde_json::to_writer(buffer.writer(), &graph.values()).expect("writing to memory does not fail");
        });
    }

    fn write_map(&mut self, out: &mut Frames, method: ProtocolMethod, node: Option<&str>, data: &Value) {
        let (is_wanted, place) = (self.envelope.filter.has(method), &self.root.namespace);
        self.envelope.write_any(out, method, is_wanted, place, &EventId::Numbered, node, |buffer| {
            serde_json::to_writer(buffer.writer(), data).expect("writing to memory does not fail");
        });
    }

    fn write_update(&mut self, node: &str, out: &mut Frames) {
        if let Some(update) = self.graph.take_update() {
            self.write_map(out, ProtocolMethod::Updates, Some(node), &update);
        }
    }

    /// The place of an event: the lane of its agent, and the name of the node in it.
    fn lane<'s>(
        root: &'s mut Lane,
        subagents: &'s mut HashMap<SubagentId, Lane>,
        subagent: Option<&SubagentId>,
    ) -> Option<&'s mut Lane> {
        match subagent {
            None => Some(root),
            Some(id) => subagents.get_mut(id),
        }
    }

    fn step_started(&mut self, name: &str, out: &mut Frames) {
        self.root.end_idle(&mut self.envelope, out);
        let id = self.graph.task_id(self.graph.step);
        let task = json!({"id": id, "name": name, "input": {}, "triggers": []});
        self.write_map(out, ProtocolMethod::Tasks, None, &task);
    }

    fn step_finished(&mut self, name: &str, out: &mut Frames) {
        let Some((number, update)) = self.graph.end_step(name) else { return };
        self.root.end_idle(&mut self.envelope, out);
        let result = update.clone().unwrap_or_else(|| json!({}));
        let task = json!({"id": self.graph.task_id(number), "name": name, "error": null, "result": result, "interrupts": []});
        self.write_map(out, ProtocolMethod::Tasks, None, &task);
        if let Some(update) = update {
            self.write_map(out, ProtocolMethod::Updates, Some(name), &update);
        }
        self.write_values(out, false);
    }

    fn tool_result(&mut self, result: &ToolResult, subagent: Option<&SubagentId>, out: &mut Frames) {
        let name = match subagent {
            None => self.graph.tool_name(&result.call),
            Some(_) => None,
        };
        let native = messages::native_result(result, name.as_deref());
        let Some(lane) = Self::lane(&mut self.root, &mut self.subagents, subagent) else { return };
        lane.end_idle(&mut self.envelope, out);
        let (method, place, id) = (ProtocolMethod::Tools, &lane.namespace, EventId::Numbered);
        self.envelope.write(out, method, place, &id, Some(TOOLS), |data| {
            let event = if result.error.is_some() { "tool-error" } else { "tool-finished" };
            data.str("event", event).str("tool_call_id", &result.call);
            match &result.error {
                Some(error) => data.str("message", error),
                None => data.json("output", &crate::json::Json::from(&Value::Object(native))),
            };
        });
        if subagent.is_none() {
            self.write_values(out, false);
        }
    }

    fn subagent_started(&mut self, id: &SubagentId, started: &SubagentStarted, out: &mut Frames) {
        let outer = started.parent_subagent.as_ref().and_then(|parent| self.subagents.get(parent));
        let mut path = outer.map_or_else(Vec::new, |lane| lane.namespace.path.clone());
        // A tool that calls an agent is a namespace of its own.
        path.push(match &started.parent_call {
            Some(call) => format!("{TOOLS}:{call}").into(),
            None => format!("{}:{id}", started.name.replace(':', " ")).into(),
        });
        let lane = Lane::new(Namespace::new(path, &self.envelope.filter));
        let (method, name) = (ProtocolMethod::Lifecycle, EventId::Named("lc", "started"));
        self.envelope.write(out, method, &lane.namespace, &name, None, |data| {
            data.str("event", "started").str("graph_name", &started.name);
            if let Some(call) = &started.parent_call {
                data.nested("cause", |cause| {
                    cause.str("type", "toolCall").str("tool_call_id", call);
                });
            }
        });
        self.subagents.insert(id.clone(), lane);
    }

    fn subagent_ended(&mut self, id: &SubagentId, status: &str, error: Option<&str>, out: &mut Frames) {
        let Some(mut lane) = self.subagents.remove(id) else { return };
        lane.end_all(&mut self.envelope, out);
        let name = EventId::Named("lc", status);
        self.envelope.write(out, ProtocolMethod::Lifecycle, &lane.namespace, &name, None, |data| {
            data.str("event", status).opt_str("error", error);
        });
        self.root.ended.insert(id.as_str().into(), lane.namespace);
    }

    fn end_messages(&mut self, out: &mut Frames) {
        for lane in self.subagents.values_mut() {
            lane.end_all(&mut self.envelope, out);
        }
        self.root.end_all(&mut self.envelope, out);
    }

    fn ask(&mut self, interrupt: &Interrupt, out: &mut Frames) {
        let shown: Value = server_interrupt(interrupt);
        let place = match &interrupt.subagent {
            None => &self.root.namespace,
            Some(id) => {
                let open = self.subagents.get(id).map(|lane| &lane.namespace);
                open.or_else(|| self.root.ended.get(id.as_str())).unwrap_or(&self.root.namespace)
            }
        };
        let (method, id) = (ProtocolMethod::InputRequested, EventId::Named("input", &interrupt.id));
        self.envelope.write(out, method, place, &id, None, |data| {
            data.str("interrupt_id", &interrupt.id);
            data.json("payload", &crate::json::Json::from(&shown["value"]));
        });
    }

    fn finished(&mut self, finished: &RunFinished, out: &mut Frames) -> Fidelity {
        self.end_messages(out);
        self.write_update(NODE, out);
        self.write_values(out, true);
        let status = match &finished.outcome {
            Some(Outcome::Interrupt { interrupts }) => {
                for interrupt in interrupts {
                    self.ask(interrupt, out);
                }
                "interrupted"
            }
            Some(Outcome::Cancelled) => "interrupted",
            _ => "completed",
        };
        self.lifecycle(out, status, None);
        match &finished.outcome {
            Some(Outcome::Cancelled) => Fidelity::Approximated("a stopped run is interrupted"),
            _ if finished.result.is_some() => Fidelity::Approximated("a run has no result"),
            _ => Fidelity::Exact,
        }
    }

    /// Opens a text message.
    fn text_started(
        &mut self,
        message: &MessageId,
        role: Option<Role>,
        subagent: Option<&SubagentId>,
        out: &mut Frames,
    ) -> Fidelity {
        let role_name = match role {
            None | Some(Role::Assistant) => "ai",
            Some(Role::User) => "human",
            Some(_) => "system",
        };
        self.open_block(message, role_name, BlockKind::Text(message.clone()), subagent, out);
        match role {
            None | Some(Role::Assistant) => Fidelity::Exact,
            Some(_) => IN_VALUES,
        }
    }

    /// Opens a block of the message that shows `message`.
    fn open_block(
        &mut self,
        message: &MessageId,
        role: &str,
        kind: BlockKind,
        subagent: Option<&SubagentId>,
        out: &mut Frames,
    ) {
        let (shown, node) = match subagent {
            None => {
                let node = self.graph.step_of(message).map_or_else(|| NODE.into(), |(name, _)| name.clone());
                (self.graph.shown_id(message), Some(node))
            }
            Some(_) if matches!(kind, BlockKind::Reasoning(_)) => (reasoning_id(message), None),
            Some(_) => (message.clone(), None),
        };
        let Some(lane) = Self::lane(&mut self.root, &mut self.subagents, subagent) else { return };
        let earlier = match subagent {
            None if lane.has_ended(&shown) => self.graph.fold.messages().iter().find(|it| it.id == *message),
            _ => None,
        };
        lane.open_message(&mut self.envelope, &shown, role, node.as_deref(), earlier, out);
        lane.open_block(&mut self.envelope, &shown, kind, out);
    }

    fn tool_started(&mut self, event: &Event, out: &mut Frames) {
        let Body::ToolStart { call, name, parent } = &event.body else { return };
        let message = match &event.subagent {
            None => self.graph.calls.get(call).map(|OpenCall { message, .. }| message.clone()),
            Some(_) => parent.clone(),
        };
        let message = message.unwrap_or_else(|| call.as_str().into());
        let kind = BlockKind::Call { id: call.clone(), name: name.clone() };
        self.open_block(&message, "ai", kind, event.subagent.as_ref(), out);
    }

    fn tool_ended(&mut self, event: &Event, out: &mut Frames) {
        let Body::ToolEnd { call } = &event.body else { return };
        let lane = Self::lane(&mut self.root, &mut self.subagents, event.subagent.as_ref());
        let Some(lane) = lane else { return };
        let Some((name, input)) = lane.end_call(&mut self.envelope, call, out) else { return };
        let (method, place, id) = (ProtocolMethod::Tools, &lane.namespace, EventId::Numbered);
        self.envelope.write(out, method, place, &id, Some(TOOLS), |data| {
            data.str("event", "tool-started").str("tool_call_id", call).str("tool_name", &name);
            data.json("input", &input);
        });
    }

    /// Writes events that both the main agent and subagents have; `None` for all others.
    fn write_content(&mut self, event: &Event, out: &mut Frames) -> Option<Fidelity> {
        let subagent = event.subagent.as_ref();
        let lane = Self::lane(&mut self.root, &mut self.subagents, subagent);
        match &event.body {
            Body::TextDelta { message, delta } => {
                lane?.append(&mut self.envelope, |kind| kind.is_text_of(message), delta, out);
            }
            Body::ToolArgs { call, delta } => {
                lane?.append(&mut self.envelope, |kind| kind.is_call(call), delta, out);
            }
            Body::ReasoningDelta { message, delta } => {
                lane?.append(&mut self.envelope, |kind| kind.is_reasoning_of(message), delta, out);
                return Some(Fidelity::Approximated("the ids of reasoning are those of its message"));
            }
            Body::TextStart { message, role, .. } => {
                return Some(self.text_started(message, *role, subagent, out));
            }
            Body::TextEnd { message } => {
                lane?.end_block(&mut self.envelope, |kind| kind.is_text_of(message), out);
            }
            Body::ToolStart { .. } => self.tool_started(event, out),
            Body::ToolEnd { .. } => self.tool_ended(event, out),
            Body::ToolResult(result) => {
                self.tool_result(result, subagent, out);
                if result.error.is_some() {
                    return Some(Fidelity::Approximated("a failed tool has its error only"));
                }
            }
            Body::ReasoningMessageStart { message } => {
                self.open_block(message, "ai", BlockKind::Reasoning(message.clone()), subagent, out);
                return Some(Fidelity::Approximated("the ids of reasoning are those of its message"));
            }
            Body::ReasoningMessageEnd { message } => {
                lane?.end_block(&mut self.envelope, |kind| kind.is_reasoning_of(message), out);
                return Some(Fidelity::Approximated("the ids of reasoning are those of its message"));
            }
            Body::ReasoningStart { .. } | Body::ReasoningEnd { .. } => {
                return Some(Fidelity::Approximated("the ids of reasoning are those of its message"));
            }
            Body::FinishReason { message, reason } => {
                let shown = match subagent {
                    None => {
                        let message = self.graph.finished_message(message.as_ref());
                        message.map(|message| self.graph.shown_id(&message))
                    }
                    Some(_) => message.clone(),
                };
                if !lane?.set_finish_reason(shown.as_ref(), reason) {
                    return Some(NO_PLACE);
                }
            }
            Body::Custom { name, value } => {
                let is_wanted = self.envelope.filter.has_custom(name);
                let (place, id) = (&lane?.namespace, EventId::Numbered);
                let method = ProtocolMethod::Custom;
                self.envelope.write_any(out, method, is_wanted, place, &id, None, |buffer| {
                    let mut object = ObjectWriter::new(buffer);
                    object.str("name", name).json("payload", value);
                    object.end();
                });
            }
            _ => return None,
        }
        Some(Fidelity::Exact)
    }

    fn write_of_subagent(&mut self, id: &SubagentId, event: &Event, out: &mut Frames) -> Fidelity {
        match &event.body {
            Body::SubagentStarted(started) => self.subagent_started(id, started, out),
            Body::SubagentFinished { outcome, .. } => {
                let status = match outcome {
                    Some(SubagentOutcome::Suspended { .. }) => "interrupted",
                    _ => "completed",
                };
                self.subagent_ended(id, status, None, out);
            }
            Body::SubagentError { message, .. } => self.subagent_ended(id, "failed", Some(message), out),
            _ if !self.subagents.contains_key(id) => return NO_PLACE,
            _ => return self.write_content(event, out).unwrap_or(NO_PLACE),
        }
        Fidelity::Approximated("a nested graph has a name, a cause and a status")
    }
}

impl Writer for ProtocolWriter {
    fn write(&mut self, event: &Event, out: &mut Frames) -> Fidelity {
        if let Some(timestamp) = event.timestamp {
            self.envelope.timestamp = timestamp;
        }
        if !self.is_started {
            self.is_started = true;
            if let Body::RunStarted(started) = &event.body {
                (self.graph.thread, self.graph.run) = (started.thread.clone(), started.run.clone());
                self.envelope.rename(&started.run);
            }
            self.lifecycle(out, "running", None);
        }
        if let Some(subagent) = &event.subagent {
            return self.write_of_subagent(subagent, event, out);
        }
        let is_start = matches!(
            event.body,
            Body::RunStarted(_) | Body::StateSnapshot { .. } | Body::MessagesSnapshot { .. }
        );
        if !is_start && !self.graph.has_values {
            self.write_values(out, false);
        }
        self.graph.apply(event);
        if let Some(fidelity) = self.write_content(event, out) {
            return fidelity;
        }
        match &event.body {
            Body::RunStarted(_) => Fidelity::Exact,
            Body::StateSnapshot { .. } | Body::StateDelta { .. } | Body::MessagesSnapshot { .. } => {
                let has_messages = matches!(event.body, Body::MessagesSnapshot { .. });
                if has_messages {
                    self.root.end_idle(&mut self.envelope, out);
                }
                // A state before the messages of the start is not whole.
                if has_messages || self.graph.has_values {
                    self.write_values(out, false);
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
            Body::RunFinished(finished) => self.finished(finished, out),
            Body::RunError(error) => {
                self.end_messages(out);
                self.lifecycle(out, "failed", Some(&error.message));
                match error.code {
                    None => Fidelity::Exact,
                    Some(_) => Fidelity::Approximated("an error has no code"),
                }
            }
            _ => NO_PLACE,
        }
    }
}
