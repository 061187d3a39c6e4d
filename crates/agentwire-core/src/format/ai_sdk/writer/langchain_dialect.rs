//! The letter dialect of the LangChain adapter's mapping document.
//!
//! It looks like the data stream of AI SDK 4 and is not: `a` is a tool call, `9` its result, `b` and `c` are the
//! two ends of a graph node, `f` ends the whole run, `e` is an error, and the value of `2` is an object. Reasoning
//! (`g`) is sent by hand only: by a CUSTOM event `reasoning` whose value is a string, or for all reasoning with
//! `reasoning=auto`. No official client reads it.

use indexmap::IndexMap;

use super::{
    data_stream::{object_line, text_line, usage},
    encode,
    speaker_queue::SpeakerQueue,
    tool_calls::{Answer, Call, Calls},
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
    },
    framing::Frames,
    json::{Json, Object},
};

const NOTHING: Fidelity = Fidelity::Dropped("the dialect has no letter for it");

/// A node that is open.
#[derive(Debug)]
struct Node {
    owner: Option<SubagentId>,
    name: Box<str>,
    id: String,
    metadata: Option<Object>,
    shown: bool,
}

/// Writes the dialect.
#[derive(Debug)]
pub(super) struct LetterWriter {
    run: RunId,
    /// Nodes are shown only if they use tools.
    steps_for_tools: bool,
    reasoning: bool,
    texts: SpeakerQueue,
    thoughts: SpeakerQueue,
    /// Open messages that are not the assistant's.
    others: IndexMap<MessageId, ()>,
    nodes: Vec<Node>,
    count: u64,
    calls: Calls,
    reason: Option<Box<str>>,
    /// The error that was told last: a tool's failure is often the run's as well.
    failure: Option<Box<str>>,
    finished: bool,
}

impl LetterWriter {
    pub(super) fn new(setup: &Setup<'_>, options: &WriterOptions) -> Self {
        Self {
            run: setup.run.clone(),
            steps_for_tools: options.steps_for_tools,
            reasoning: options.reasoning == Some(true),
            texts: SpeakerQueue::default(),
            thoughts: SpeakerQueue::default(),
            others: IndexMap::new(),
            nodes: Vec::new(),
            count: 0,
            calls: Calls::default(),
            reason: None,
            failure: None,
            finished: false,
        }
    }

    fn chain_start(&self, event: &Event, out: &mut Frames) {
        let name = name_in(event.metadata()).unwrap_or_else(|| "agent".into());
        object_line(out, "2", |w| {
            w.str("type", "chain_start").str("name", &name);
            spread(w, event.metadata(), &["type", "name"]);
        });
    }

    fn node_start(&mut self, name: &str, event: &Event, out: &mut Frames) -> Fidelity {
        self.count += 1;
        let metadata = event.metadata();
        let given = metadata.and_then(|it| it.get_str("node_id").or_else(|| it.get_str("run_id")));
        self.nodes.push(Node {
            owner: event.subagent.clone(),
            name: name.into(),
            id: given.unwrap_or_else(|| format!("{}:{name}:{}", self.run, self.count)),
            metadata: metadata.cloned(),
            shown: false,
        });
        if !self.steps_for_tools {
            self.show_nodes(out);
        }
        Fidelity::Exact
    }

    fn show_nodes(&mut self, out: &mut Frames) {
        for node in self.nodes.iter_mut().filter(|node| !node.shown) {
            node.shown = true;
            // A step's name says where it stands in the graph; the dialect wants the node's own.
            let name = name_in(node.metadata.as_ref());
            object_line(out, "b", |w| {
                w.str("name", name.as_deref().unwrap_or(&node.name)).str("node_id", &node.id);
                spread(w, node.metadata.as_ref(), &["name", "node_id"]);
            });
        }
    }

    fn node_end(&mut self, name: &str, event: &Event, out: &mut Frames) -> Fidelity {
        let found = self.nodes.iter().rposition(|node| *node.name == *name && node.owner == event.subagent);
        match found.map(|index| self.nodes.remove(index)) {
            Some(node) if node.shown => {
                object_line(out, "c", |w| {
                    w.str("node_id", &node.id);
                });
                Fidelity::Exact
            }
            Some(_) => Fidelity::Dropped("steps=tools: it used no tool"),
            None => Fidelity::Dropped("the step is not open"),
        }
    }

    fn tool_call(&mut self, id: &ToolCallId, out: &mut Frames) -> Fidelity {
        let Some(call) = self.calls.end(id) else {
            return Fidelity::Dropped("the call is not open");
        };
        let args = encode::tool_input(&std::mem::take(&mut call.arguments));
        let held = call.held.take();
        object_line(out, "a", |w| {
            w.str("toolCallId", id).str("toolName", &call.name).json("args", &args);
        });
        if let Some(answer) = held {
            self.tool_result(&answer.result, out);
        }
        Fidelity::Exact
    }

    fn tool_result(&mut self, result: &ToolResult, out: &mut Frames) -> Fidelity {
        if let Some(call) = self.calls.get_mut(&result.call)
            && call.open
        {
            call.held = Some(Box::new(Answer { result: result.clone(), metadata: None }));
            return Fidelity::Exact;
        }
        if let Some(error) = &result.error {
            let text = result.content.text();
            self.error(if error.is_empty() { &text } else { error }, out);
            return Fidelity::Approximated("an error does not say which call failed");
        }
        let output = encode::tool_output(&result.content);
        let value = inner_result(&output).unwrap_or(output);
        object_line(out, "9", |w| {
            w.str("toolCallId", &result.call).json("result", &value);
        });
        match result.content {
            Content::Text(_) => Fidelity::Exact,
            Content::Parts(_) => Fidelity::Approximated("the parts of a result become one value"),
        }
    }

    fn finish(&mut self, finished: &RunFinished, out: &mut Frames) -> Fidelity {
        if std::mem::replace(&mut self.finished, true) {
            return Fidelity::Dropped("the finish is sent once");
        }
        let reason = match &finished.outcome {
            Some(Outcome::Cancelled) => "other",
            Some(Outcome::Interrupt { .. }) => "tool-calls",
            Some(Outcome::Success { pending }) if !pending.is_empty() => "tool-calls",
            _ => self.reason.as_deref().map_or("stop", encode::finish_reason),
        };
        object_line(out, "f", |w| {
            w.str("finishReason", reason);
            usage(w, &finished.usage);
        });
        match &finished.outcome {
            Some(Outcome::Interrupt { .. }) => Fidelity::Approximated("what the run waits for is data"),
            _ => Fidelity::Exact,
        }
    }

    /// An error, unless it is the one that was told last.
    fn error(&mut self, message: &str, out: &mut Frames) {
        if self.failure.as_deref() != Some(message) {
            text_line(out, "e", message);
            self.failure = Some(message.into());
        }
    }

    fn data(&self, name: &str, value: &Json, out: &mut Frames) {
        object_line(out, "2", |w| {
            w.str("type", name).json("data", value);
        });
    }
}

/// The `result` of an output that holds nothing else, which is what the dialect sends.
fn inner_result(output: &Json) -> Option<Json> {
    match output.clone().into_object()?.entries().as_slice() {
        [(key, value)] if key == "result" => Some(value.clone()),
        _ => None,
    }
}

/// The name of a run or a node in the words of LangChain.
fn name_in(metadata: Option<&Object>) -> Option<String> {
    metadata?.get_str("name")
}

/// Metadata member by member, without those that the dialect names itself.
fn spread(w: &mut crate::json::ObjectWriter<'_>, metadata: Option<&Object>, taken: &[&str]) {
    for (key, value) in metadata.map(Object::entries).unwrap_or_default() {
        if !taken.contains(&key.as_str()) && key != wire::AI_SDK {
            w.entry(&key, &value);
        }
    }
}

impl Writer for LetterWriter {
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
                    self.others.insert(message.clone(), ());
                    return NOTHING;
                }
                Fidelity::Approximated("where a message begins cannot be told")
            }
            Body::TextDelta { message, .. } if self.others.contains_key(message) => NOTHING,
            Body::TextDelta { message, delta } => {
                self.texts.push(message, delta, |text| text_line(out, "0", text));
                Fidelity::Exact
            }
            Body::TextEnd { message } => {
                if self.others.swap_remove(message).is_none() {
                    self.texts.end(message, |text| text_line(out, "0", text));
                }
                Fidelity::Approximated("where a message ends cannot be told")
            }
            Body::ReasoningDelta { message, delta } if self.reasoning => {
                self.thoughts.push(message, delta, |text| text_line(out, "g", text));
                Fidelity::Exact
            }
            Body::ReasoningMessageEnd { message } if self.reasoning => {
                self.thoughts.end(message, |text| text_line(out, "g", text));
                Fidelity::Exact
            }
            Body::ReasoningDelta { .. } => Fidelity::Dropped("reasoning is sent by hand (reasoning=auto)"),
            Body::ToolStart { call, name, .. } => {
                self.show_nodes(out);
                let new = Call { name: name.clone(), ..Call::default() };
                self.calls.start(call, new);
                Fidelity::Exact
            }
            Body::ToolArgs { call, delta } => {
                self.calls.push(call, delta);
                Fidelity::Exact
            }
            Body::ToolEnd { call } => self.tool_call(call, out),
            Body::ToolResult(result) => self.tool_result(result, out),
            Body::FinishReason { reason, .. } => {
                self.reason = Some(reason.clone());
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
                    Some(text) => text_line(out, "g", &text),
                    None => self.data(name, value, out),
                }
                Fidelity::Exact
            }
            Body::StateSnapshot { snapshot } => {
                self.data(data_part::STATE, snapshot, out);
                Fidelity::Exact
            }
            _ => NOTHING,
        }
    }
}
