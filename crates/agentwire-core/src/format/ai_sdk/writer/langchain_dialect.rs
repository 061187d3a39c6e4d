//! Dialect of the data stream in the mapping document of the LangChain adapter.
//!
//! The codes look like those of AI SDK 4 but have other meanings: `a` is a tool call, `9` its result, `b` and `c` start and
//! end a graph node, `f` ends the whole run, `e` is an error, and the value of `2` is an object. Reasoning (`g`) is written
//! only if the agent sends it by hand (marked reasoning, and CUSTOM events `reasoning` with a string value), or always with
//! `reasoning=auto`. No official client reads this
//! dialect.

use indexmap::IndexMap;

use super::{
    data_stream::{write_object_line, write_text_line, write_usage},
    encode,
    speaker_queue::SpeakerQueue,
    tool_calls::{ResultOfCall, ToolCallTable, WrittenToolCall},
};
use crate::{
    event::{
        Body, Content, Event, MessageId, Outcome, Role, RunFinished, RunId, SubagentId, ToolCallId,
        ToolResult,
    },
    format::{
        Fidelity, Setup, Writer,
        ai_sdk::{
            options::WriterOptions,
            wire::{self, data_part},
        },
        manual_reasoning::ReasoningByHand,
    },
    framing::Frames,
    json::{Json, Object},
};

const NO_CODE: Fidelity = Fidelity::Dropped("the dialect has no letter for it");

/// An open graph node.
#[derive(Debug)]
struct DialectNode {
    owner: Option<SubagentId>,
    name: Box<str>,
    id: String,
    metadata: Option<Object>,
    is_written: bool,
}

/// Writer of the dialect.
#[derive(Debug)]
pub(super) struct LangChainDialectWriter {
    run: RunId,
    /// Only nodes that use tools are written.
    steps_for_tools: bool,
    has_reasoning: bool,
    by_hand: ReasoningByHand,
    texts: SpeakerQueue,
    reasoning: SpeakerQueue,
    /// Open messages of other roles than the assistant.
    other_roles: IndexMap<MessageId, ()>,
    nodes: Vec<DialectNode>,
    node_count: u64,
    calls: ToolCallTable,
    finish_reason: Option<Box<str>>,
    /// The last error that was written: the failure of a tool is often that of the run as well.
    last_error: Option<Box<str>>,
    is_finished: bool,
}

impl LangChainDialectWriter {
    pub(super) fn new(setup: &Setup<'_>, options: &WriterOptions) -> Self {
        Self {
            run: setup.run.clone(),
            steps_for_tools: options.steps_for_tools,
            has_reasoning: options.reasoning == Some(true),
            by_hand: ReasoningByHand::default(),
            texts: SpeakerQueue::default(),
            reasoning: SpeakerQueue::default(),
            other_roles: IndexMap::new(),
            nodes: Vec::new(),
            node_count: 0,
            calls: ToolCallTable::default(),
            finish_reason: None,
            last_error: None,
            is_finished: false,
        }
    }

    fn chain_start(&self, event: &Event, out: &mut Frames) {
        let name = name_member(event.metadata()).unwrap_or_else(|| "agent".into());
        write_object_line(out, "2", |w| {
            w.str("type", "chain_start").str("name", &name);
            write_members(w, event.metadata(), &["type", "name"]);
        });
    }

    fn node_start(&mut self, name: &str, event: &Event, out: &mut Frames) -> Fidelity {
        self.node_count += 1;
        let metadata = event.metadata();
        let given_id = metadata.and_then(|it| it.get_str("node_id").or_else(|| it.get_str("run_id")));
        self.nodes.push(DialectNode {
            owner: event.subagent.clone(),
            name: name.into(),
            id: given_id.unwrap_or_else(|| format!("{}:{name}:{}", self.run, self.node_count)),
            metadata: metadata.cloned(),
            is_written: false,
        });
        if !self.steps_for_tools {
            self.write_nodes(out);
        }
        Fidelity::Exact
    }

    fn write_nodes(&mut self, out: &mut Frames) {
        for node in self.nodes.iter_mut().filter(|node| !node.is_written) {
            node.is_written = true;
            // A step's name is its path in the graph; the dialect expects the name of the node alone.
            let name = name_member(node.metadata.as_ref());
            write_object_line(out, "b", |w| {
                w.str("name", name.as_deref().unwrap_or(&node.name)).str("node_id", &node.id);
                write_members(w, node.metadata.as_ref(), &["name", "node_id"]);
            });
        }
    }

    fn node_end(&mut self, name: &str, event: &Event, out: &mut Frames) -> Fidelity {
        let found = self.nodes.iter().rposition(|node| *node.name == *name && node.owner == event.subagent);
        match found.map(|index| self.nodes.remove(index)) {
            Some(node) if node.is_written => {
                write_object_line(out, "c", |w| {
                    w.str("node_id", &node.id);
                });
                Fidelity::Exact
            }
            Some(_) => Fidelity::Dropped("steps=tools: it used no tool"),
            None => Fidelity::Dropped("the step is not open"),
        }
    }

    fn tool_call(&mut self, id: &ToolCallId, out: &mut Frames) -> Fidelity {
        let Some(call) = self.calls.close(id) else {
            return Fidelity::Dropped("the call is not open");
        };
        let args = encode::tool_input(&std::mem::take(&mut call.arguments));
        let early_result = call.result.take();
        write_object_line(out, "a", |w| {
            w.str("toolCallId", id).str("toolName", &call.name).json("args", &args);
        });
        if let Some(early) = early_result {
            self.tool_result(&early.result, out);
        }
        Fidelity::Exact
    }

    fn tool_result(&mut self, result: &ToolResult, out: &mut Frames) -> Fidelity {
        if let Some(call) = self.calls.get_mut(&result.call)
            && call.is_open
        {
            call.result = Some(Box::new(ResultOfCall { result: result.clone(), metadata: None }));
            return Fidelity::Exact;
        }
        if let Some(error) = &result.error {
            let text = result.content.text();
            self.error(if error.is_empty() { &text } else { error }, out);
            return Fidelity::Approximated("an error does not say which call failed");
        }
        let output = encode::tool_output(&result.content);
        let value = inner_result(&output).unwrap_or(output);
        write_object_line(out, "9", |w| {
            w.str("toolCallId", &result.call).json("result", &value);
        });
        match result.content {
            Content::Text(_) => Fidelity::Exact,
            Content::Parts(_) => Fidelity::Approximated("the parts of a result become one value"),
        }
    }

    fn finish(&mut self, finished: &RunFinished, out: &mut Frames) -> Fidelity {
        if std::mem::replace(&mut self.is_finished, true) {
            return Fidelity::Dropped("the finish is sent once");
        }
        let reason = match &finished.outcome {
            Some(Outcome::Cancelled) => "other",
            Some(Outcome::Interrupt { .. }) => "tool-calls",
            Some(Outcome::Success { pending }) if !pending.is_empty() => "tool-calls",
            _ => self.finish_reason.as_deref().map_or("stop", encode::finish_reason),
        };
        write_object_line(out, "f", |w| {
            w.str("finishReason", reason);
            write_usage(w, &finished.usage);
        });
        match &finished.outcome {
            Some(Outcome::Interrupt { .. }) => Fidelity::Approximated("what the run waits for is data"),
            _ => Fidelity::Exact,
        }
    }

    /// Writes an error, unless it repeats the last one.
    fn error(&mut self, message: &str, out: &mut Frames) {
        if self.last_error.as_deref() != Some(message) {
            write_text_line(out, "e", message);
            self.last_error = Some(message.into());
        }
    }

    fn data(&self, name: &str, value: &Json, out: &mut Frames) {
        write_object_line(out, "2", |w| {
            w.str("type", name).json("data", value);
        });
    }
}

/// The member `result` of an output without other members, which the dialect sends unwrapped.
fn inner_result(output: &Json) -> Option<Json> {
    match output.clone().into_object()?.entries().as_slice() {
        [(key, value)] if key == "result" => Some(value.clone()),
        _ => None,
    }
}

/// Name of a LangChain run or node.
fn name_member(metadata: Option<&Object>) -> Option<String> {
    metadata?.get_str("name")
}

/// Writes the members of metadata, except for those that the dialect defines itself.
fn write_members(w: &mut crate::json::ObjectWriter<'_>, metadata: Option<&Object>, except: &[&str]) {
    for (key, value) in metadata.map(Object::entries).unwrap_or_default() {
        if !except.contains(&key.as_str()) && key != wire::AI_SDK {
            w.entry(&key, &value);
        }
    }
}

impl Writer for LangChainDialectWriter {
    fn write(&mut self, event: &Event, out: &mut Frames) -> Fidelity {
        match &event.body {
            Body::RunStarted(started) => {
                self.run = started.run.clone();
                self.chain_start(event, out);
                Fidelity::Exact
            }
            Body::StepStarted { name } => self.node_start(name, event, out),
            Body::StepFinished { name } => self.node_end(name, event, out),
            Body::TextStart { message, role, .. } => {
                if role.is_some_and(|role| role != Role::Assistant) {
                    self.other_roles.insert(message.clone(), ());
                    return NO_CODE;
                }
                Fidelity::Approximated("where a message begins cannot be told")
            }
            Body::TextDelta { message, .. } if self.other_roles.contains_key(message) => NO_CODE,
            Body::TextDelta { message, delta } => {
                self.texts.push(message, delta, |text| write_text_line(out, "0", text));
                Fidelity::Exact
            }
            Body::TextEnd { message } => {
                if self.other_roles.swap_remove(message).is_none() {
                    self.texts.end(message, |text| write_text_line(out, "0", text));
                }
                Fidelity::Approximated("where a message ends cannot be told")
            }
            Body::ReasoningMessageStart { .. } if self.by_hand.has(event) => Fidelity::Exact,
            Body::ReasoningDelta { message, delta } if self.has_reasoning || self.by_hand.has(event) => {
                self.reasoning.push(message, delta, |text| write_text_line(out, "g", text));
                Fidelity::Exact
            }
            Body::ReasoningMessageEnd { message } if self.has_reasoning || self.by_hand.has(event) => {
                self.reasoning.end(message, |text| write_text_line(out, "g", text));
                Fidelity::Exact
            }
            Body::ReasoningDelta { .. } => Fidelity::Dropped("reasoning is sent by hand (reasoning=auto)"),
            Body::ToolStart { call, name, .. } => {
                self.write_nodes(out);
                self.calls.start(WrittenToolCall::new(call, name.clone()));
                Fidelity::Exact
            }
            Body::ToolArgs { call, delta } => {
                self.calls.push_arguments(call, delta);
                Fidelity::Exact
            }
            Body::ToolEnd { call } => self.tool_call(call, out),
            Body::ToolResult(result) => self.tool_result(result, out),
            Body::FinishReason { reason, .. } => {
                self.finish_reason = Some(reason.clone());
                Fidelity::Exact
            }
            Body::RunFinished(finished) => {
                if let Some(Outcome::Interrupt { interrupts }) = &finished.outcome {
                    for interrupt in interrupts {
                        self.data(data_part::INTERRUPT, encode::interrupt_data(interrupt).as_json(), out);
                    }
                }
                self.finish(finished, out)
            }
            Body::RunError(error) => {
                self.error(&error.message, out);
                Fidelity::Exact
            }
            Body::SubagentError { message, .. } => {
                self.error(message, out);
                Fidelity::Approximated("an error does not say which subagent failed")
            }
            Body::Custom { name, value } => {
                match value.as_str().filter(|_| **name == *"reasoning") {
                    Some(text) => write_text_line(out, "g", &text),
                    None => self.data(name, value, out),
                }
                Fidelity::Exact
            }
            Body::StateSnapshot { snapshot } => {
                self.data(data_part::STATE, snapshot, out);
                Fidelity::Exact
            }
            _ => NO_CODE,
        }
    }
}
