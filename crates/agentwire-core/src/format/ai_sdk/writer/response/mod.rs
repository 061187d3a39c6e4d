//! One response: canonical events in, the parts of one assistant message out.
//!
//! A run may hold many messages, nested steps, parallel agents; a response of the AI SDK is one message whose
//! parts lie in flat steps. The rules that make the one out of the other, each of which some client enforces:
//!
//! * a step begins where its first part does, so that a call that waits for an answer stays in the *last* step,
//!   which is where clients look before they send by themselves;
//! * text and reasoning never span steps: they are ended and begun again;
//! * a step does not end while the arguments of a call stream (a newer client would make a second part);
//! * what follows a tool's result begins a new step, as it does in the SDK, so that history keeps its order; where the
//!   source is such a server, its steps are the wire's;
//! * a result is written after its call is complete, and never for a call that the message does not hold;
//! * a part begins with its first character: an empty message leaves no empty bubble.
//!
//! What a response goes through is in [`start`], [`steps`] and [`finish`]; its parts are made in [`speech`],
//! [`tools`] and [`data_parts`]. Which of them an event is for is decided here.

mod data_parts;
mod finish;
mod speech;
mod start;
mod steps;
mod tools;

use indexmap::IndexMap;
use serde_json::Value;

use self::steps::Node;
use super::{
    encode,
    part_metadata::{self, About},
    snapshot::Seen,
    tool_calls::{Answer, Call, Calls},
};
use crate::{
    event::{
        Body, Event, File, Interrupt, Message, MessageId, Role, RunError, RunId, RunInput, Source,
        SubagentId, SubagentOutcome, SubagentStarted, ThreadId, ToolCallId, Usage,
    },
    format::{
        Fidelity, Setup, Writer,
        ai_sdk::{
            options::{UiTools, WriterOptions},
            wire::{STATE_ID, data_part},
        },
    },
    framing::{DEFAULT_MAX_FRAME, Frames},
    json::{Json, Object},
};

/// The most activities, hand-overs and subagents that are remembered for later changes: a screen shows a few
/// dozen. A change to one that was forgotten is dropped and reported.
const MAX_REMEMBERED: usize = 4096;

/// The most text of a message that is not the assistant's: it travels whole, in one frame.
const MAX_ASIDE: usize = DEFAULT_MAX_FRAME;

/// Spells out what [`Turn`] decides.
pub(super) trait Wire: Send {
    /// A step holds one reasoning part only, so that another one needs a step of its own.
    const ONE_REASONING_PER_STEP: bool;

    fn start(&mut self, out: &mut Frames, start: &Start<'_>);
    fn start_step(&mut self, out: &mut Frames, message: &str);
    fn finish_step(&mut self, out: &mut Frames, reason: &'static str);
    fn text_start(&mut self, out: &mut Frames, message: &MessageId, about: &About);
    fn text_delta(&mut self, out: &mut Frames, message: &MessageId, delta: &str);
    /// `about` is given if it changed since the start.
    fn text_end(&mut self, out: &mut Frames, message: &MessageId, about: Option<&About>);
    fn reasoning_start(&mut self, out: &mut Frames, message: &MessageId, about: &About);
    fn reasoning_delta(&mut self, out: &mut Frames, message: &MessageId, delta: &str);
    fn reasoning_end(&mut self, out: &mut Frames, message: &MessageId, about: Option<&About>);
    fn tool_start(&mut self, out: &mut Frames, id: &ToolCallId, call: &Call);
    fn tool_delta(&mut self, out: &mut Frames, id: &ToolCallId, delta: &str);
    fn tool_call(&mut self, out: &mut Frames, id: &ToolCallId, call: &Call, input: &Json);
    /// A call whose arguments cannot be used, which a client must not run.
    fn tool_bad_input(&mut self, out: &mut Frames, id: &ToolCallId, call: &Call, input: &Json, error: &str);
    fn tool_output(&mut self, out: &mut Frames, id: &ToolCallId, call: &Call, output: &Json, about: &About);
    fn tool_error(&mut self, out: &mut Frames, id: &ToolCallId, call: &Call, error: &str);
    fn tool_denied(&mut self, out: &mut Frames, id: &ToolCallId, call: &Call, error: &str);
    /// An output that more will follow; says whether the wire can tell it from a last one.
    fn tool_progress(&mut self, out: &mut Frames, id: &ToolCallId, call: &Call, output: &Json) -> bool;
    /// Whether the wire can ask for approval of a call.
    fn knows_approvals(&self) -> bool;
    fn approval(&mut self, out: &mut Frames, interrupt: &Interrupt, call: &ToolCallId);
    fn data(&mut self, out: &mut Frames, name: &str, id: Option<&str>, data: &Json, transient: bool);
    fn metadata(&mut self, out: &mut Frames, metadata: &Json);
    fn annotation(&mut self, out: &mut Frames, value: &Json);
    /// Whether the wire has parts that only a provider understands.
    fn knows_provider_parts(&self) -> bool;
    fn provider_part(&mut self, out: &mut Frames, kind: &str, about: Option<&Json>);
    /// `others` is what providers said about it.
    fn source(&mut self, out: &mut Frames, source: &Source, detail: Option<&Json>, others: Option<Object>);
    /// Says whether the wire can carry the file as a part.
    fn file(&mut self, out: &mut Frames, file: &File, about: &About) -> bool;
    fn finish(&mut self, out: &mut Frames, finish: &Finish<'_>);
    fn abort(&mut self, out: &mut Frames);
    fn error(&mut self, out: &mut Frames, error: &RunError);
    /// The stream is over.
    fn end(&mut self, out: &mut Frames);
}

/// How a response begins.
pub(super) struct Start<'s> {
    pub(super) message: &'s str,
    pub(super) thread: &'s ThreadId,
    pub(super) run: &'s RunId,
    /// What the source said about the run as a whole.
    pub(super) metadata: Option<&'s Object>,
    /// What the source said about the message.
    pub(super) about: Option<&'s Object>,
}

/// How a response ends.
pub(super) struct Finish<'f> {
    pub(super) reason: &'static str,
    /// The reason in the source's word, if it gave one.
    pub(super) native_reason: Option<&'f str>,
    pub(super) usage: &'f [Usage],
    pub(super) result: Option<&'f Json>,
    pub(super) pending: &'f [ToolCallId],
    pub(super) told: Told,
}

/// What the application's own metadata of the message has said, and ours must not lie over.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Told {
    pub(super) usage: bool,
    pub(super) reason: bool,
}

impl Told {
    fn note(&mut self, metadata: &Object) {
        self.usage |= metadata.member("usage").is_some();
        self.reason |= metadata.member("finishReason").is_some();
    }
}

/// An open text or reasoning message.
#[derive(Debug, Default)]
struct Speech {
    /// Its part is open on the wire.
    written: bool,
    /// `about` changed since the part was begun.
    changed: bool,
    about: About,
    /// Set for a message that is not the assistant's: its role, and its text so far.
    aside: Option<(Role, String)>,
}

impl Speech {
    /// Takes in what an event says about its message.
    fn learn(&mut self, event: &Event) {
        let is_news = self.about.merge(event.metadata());
        self.changed |= is_news && self.written;
    }
}

/// The step that the wire is in.
#[derive(Debug, Default)]
struct Step {
    open: bool,
    /// A result was written since it began.
    answered: bool,
    /// It has a tool part.
    tools: bool,
    /// It has a reasoning part.
    reasoned: bool,
}

/// The machine.
#[derive(Debug)]
pub(super) struct Turn<W> {
    wire: W,
    thread: ThreadId,
    run: RunId,
    /// The request that this response answers, for sources that do not echo it.
    request: Option<Box<RunInput>>,
    /// The message id that the caller asked for.
    asked_id: Option<Box<str>>,
    /// The client holds nothing of a message that is continued.
    whole: bool,
    /// The id of the message that is built.
    message: Box<str>,
    /// What its start said about it, until the source says it again.
    about: Option<Object>,
    told: Told,
    tools: UiTools,
    /// Steps are shown only if they use tools.
    steps_for_tools: bool,
    without_reasoning: bool,

    started: bool,
    ended: bool,
    step: Step,
    /// A step has begun since the response did.
    stepped: bool,
    /// The source is an AI SDK server: its steps are those of the wire.
    framed: bool,
    /// The source has begun a step since the wire's last one began.
    wanted: bool,
    /// A step should have ended while arguments were streaming.
    finish_later: bool,
    nodes: Vec<Node>,
    nodes_shown: u64,

    texts: IndexMap<MessageId, Speech>,
    /// The text that spoke last, if its part is open on the wire and nothing stands in its way.
    speaking: Option<MessageId>,
    thoughts: IndexMap<MessageId, Speech>,
    /// A thought that has ended, and whose signature may still come.
    held: Option<(MessageId, Speech)>,
    /// How many spans of reasoning are open, and the heading of the last one.
    spans: usize,
    title: Option<Box<str>>,

    calls: Calls,
    /// Calls whose arguments are complete, and of which the client was not told yet (see [`Turn::settle`]).
    unsaid: Vec<ToolCallId>,
    state: Option<Value>,
    activities: IndexMap<MessageId, (Box<str>, Value)>,
    subagents: IndexMap<SubagentId, SubagentStarted>,
    seen: Seen,
    reason: Option<Box<str>>,
    /// Keys that the client's parser refuses were left out of this event.
    stripped: bool,
}

impl<W: Wire> Turn<W> {
    pub(super) fn new(wire: W, setup: &Setup<'_>, options: WriterOptions) -> Self {
        Self {
            wire,
            thread: setup.thread.clone(),
            run: setup.run.clone(),
            request: setup.options.request().cloned().map(Box::new),
            asked_id: options.message_id,
            whole: options.whole_message,
            message: Box::default(),
            about: None,
            told: Told::default(),
            tools: options.ui_tools,
            steps_for_tools: options.steps_for_tools,
            without_reasoning: options.reasoning == Some(false),
            started: false,
            ended: false,
            step: Step::default(),
            stepped: false,
            framed: false,
            wanted: false,
            finish_later: false,
            nodes: Vec::new(),
            nodes_shown: 0,
            texts: IndexMap::new(),
            speaking: None,
            thoughts: IndexMap::new(),
            held: None,
            spans: 0,
            title: None,
            calls: Calls::default(),
            unsaid: Vec::new(),
            state: None,
            activities: IndexMap::new(),
            subagents: IndexMap::new(),
            seen: Seen::default(),
            reason: None,
            stripped: false,
        }
    }

    fn event(&mut self, event: &Event, out: &mut Frames) -> Fidelity {
        match &event.body {
            Body::RunStarted(started) => self.run_started(started, event, out),
            Body::RunFinished(finished) => self.run_finished(finished, out),
            Body::RunError(error) => self.run_error(error, out),
            Body::StepStarted { name } => self.step_started(name, event, out),
            Body::StepFinished { name } => self.step_finished(name, event, out),

            Body::TextStart { message, role, name } => {
                self.text_start(message, role.unwrap_or(Role::Assistant), name.as_deref(), event)
            }
            Body::TextDelta { message, delta } => self.text_delta(message, delta, event, out),
            Body::TextEnd { message } => self.text_end(message, event, out),

            Body::ReasoningStart { title, .. } => {
                self.spans += 1;
                self.title = title.clone();
                Fidelity::Exact
            }
            Body::ReasoningEnd { .. } => {
                self.spans = self.spans.saturating_sub(1);
                self.title = None;
                Fidelity::Exact
            }
            Body::ReasoningMessageStart { .. }
            | Body::ReasoningDelta { .. }
            | Body::ReasoningMessageEnd { .. }
            | Body::ReasoningEncrypted { .. }
                if self.without_reasoning =>
            {
                Fidelity::Dropped("reasoning=manual")
            }
            Body::ReasoningMessageStart { message } => {
                let mut about = About::of(event);
                about.title = self.title.take();
                let speech = Speech { about, ..Speech::default() };
                self.thoughts.insert(message.clone(), speech);
                Fidelity::Exact
            }
            Body::ReasoningDelta { message, delta } => self.thought_delta(message, delta, event, out),
            Body::ReasoningMessageEnd { message } => {
                let Some(mut speech) = self.thoughts.shift_remove(message) else {
                    return Fidelity::Dropped("the message is not open");
                };
                speech.learn(event);
                if !speech.written && speech.about.is_told() {
                    self.thoughts.insert(message.clone(), speech);
                    self.begin_thought(message, false, out);
                    speech = self.thoughts.shift_remove(message).unwrap_or_default();
                }
                self.held = Some((message.clone(), speech));
                Fidelity::Exact
            }
            Body::ReasoningEncrypted { entity, value } => self.encrypted(entity, value, event, out),

            Body::ToolStart { call, name, parent } => {
                self.tool_start(call, name, parent.as_ref(), event, out)
            }
            Body::ToolArgs { call, delta } => self.tool_args(call, delta, event, out),
            Body::ToolEnd { call } => self.tool_end(call, event, out),
            Body::ToolResult(result) => {
                let answer = Answer { result: (**result).clone(), metadata: event.metadata().cloned() };
                self.tool_result(&answer, out)
            }

            Body::StateSnapshot { snapshot } => {
                self.state = Some(snapshot.to_value());
                self.data(out, data_part::STATE, Some(STATE_ID), snapshot, false);
                Fidelity::Exact
            }
            Body::StateDelta { patch } => self.state_delta(patch, out),
            Body::MessagesSnapshot { messages } => self.snapshot(messages, out),

            Body::ActivitySnapshot { message, kind, content, replace } => {
                if *replace == Some(false) && self.activities.contains_key(message) {
                    return Fidelity::Exact;
                }
                self.activity(message, kind, content.to_value(), event, out);
                Fidelity::Exact
            }
            Body::ActivityDelta { message, kind, patch } => {
                self.activity_delta(message, kind, patch, event, out)
            }

            Body::SubagentStarted(started) => {
                if let Some(id) = &event.subagent {
                    remember(&mut self.subagents, id, (**started).clone());
                }
                self.subagent(event, "running", |_| {}, out)
            }
            Body::SubagentFinished { result, outcome } => {
                let result = result.as_ref().map(|result| self.safe(result));
                let status = match outcome {
                    Some(SubagentOutcome::Suspended { .. }) => "suspended",
                    _ => "done",
                };
                let fill = |w: &mut crate::json::ObjectWriter<'_>| {
                    w.opt_json("result", result.as_ref());
                    if let Some(SubagentOutcome::Suspended { interrupts }) = outcome {
                        w.array("interruptIds", |list| {
                            for id in interrupts {
                                list.str(id);
                            }
                        });
                    }
                };
                self.subagent(event, status, fill, out)
            }
            Body::SubagentError { message, code } => {
                let fill = |w: &mut crate::json::ObjectWriter<'_>| {
                    w.str("error", message).opt_str("code", code.as_deref());
                };
                self.subagent(event, "error", fill, out)
            }

            Body::Raw { event, source } => {
                let data = encode::build_object(|w| {
                    w.json("event", event).opt_str("source", source.as_deref());
                });
                self.data(out, data_part::RAW, None, &data.into(), true);
                Fidelity::Exact
            }
            Body::Custom { name, value } => self.custom(name, value, event, out),

            Body::Source(source) => {
                self.new_part(out);
                let detail = source.detail.as_ref().map(|detail| self.safe(detail.as_json()));
                let (detail, others) =
                    part_metadata::split_source_detail(detail.and_then(Json::into_object).as_ref());
                self.wire.source(out, source, detail.as_ref(), others);
                Fidelity::Exact
            }
            Body::File(file) => self.file(file, event, out),
            Body::Block(block) => {
                let data = encode::build_object(|w| {
                    w.str("messageId", &block.message)
                        .json("output", block.output.as_json())
                        .opt_json("layout", block.layout.as_ref())
                        .opt_str("blockId", block.block_id.as_deref())
                        .opt_json("style", block.style.as_ref())
                        .opt_str("subagentId", event.subagent.as_deref())
                        .opt_object("metadata", event.metadata());
                });
                self.data(out, data_part::BLOCK, Some(&block.id), &data.into(), false);
                Fidelity::Exact
            }
            Body::CollaborationStart { id, message, from, to } => {
                let content = encode::build_object(|w| {
                    w.opt_str("messageId", message.as_deref())
                        .str("from", from)
                        .str("to", to)
                        .array("tasks", |_| {})
                        .str("status", "open");
                });
                self.collaboration(id, content.to_value(), event, out);
                Fidelity::Exact
            }
            Body::CollaborationTask { id, task } => {
                let task = task.to_value();
                let add = |content: &mut Value| {
                    if let Some(tasks) = content.get_mut("tasks").and_then(Value::as_array_mut) {
                        tasks.push(task);
                    }
                };
                self.collaboration_step(id, add, event, out)
            }
            Body::CollaborationEnd { id } => {
                let done = |content: &mut Value| content["status"] = "done".into();
                self.collaboration_step(id, done, event, out)
            }
            Body::FinishReason { reason, .. } => match self.reason.replace(reason.clone()) {
                None => Fidelity::Exact,
                Some(_) => Fidelity::Approximated("a response has one reason, the last"),
            },
        }
    }

    /// Says what a restated conversation holds and the stream did not.
    fn snapshot(&mut self, messages: &[Message], out: &mut Frames) -> Fidelity {
        let events = self.seen.snapshot(messages, &self.calls);
        for event in events {
            self.write(&event, out);
        }
        Fidelity::Approximated("a response adds to a conversation and cannot restate it")
    }
}

impl<W: Wire> Writer for Turn<W> {
    fn write(&mut self, event: &Event, out: &mut Frames) -> Fidelity {
        // Nine tenths of all events: the text that spoke last speaks on.
        if let Body::TextDelta { message, delta } = &event.body
            && event.extra.is_none()
            && self.speaking.as_ref() == Some(message)
            && !delta.is_empty()
        {
            self.wire.text_delta(out, message, delta);
            return Fidelity::Exact;
        }
        if self.held.is_some() && !matches!(event.body, Body::ReasoningEncrypted { .. }) {
            self.release(out);
        }
        self.stripped = false;
        if !self.unsaid.is_empty() {
            self.settle(event, out);
        }
        self.seen.note(&event.body);
        let fidelity = self.event(event, out);
        match fidelity {
            Fidelity::Exact if self.stripped => {
                Fidelity::Approximated("keys that the client's parser refuses are left out")
            }
            fidelity => fidelity,
        }
    }

    fn end(&mut self, out: &mut Frames) {
        if self.started && !self.ended {
            self.fail_unsaid(out);
            self.close(out);
            self.leave_tools(out);
            self.wire.abort(out);
            self.ended = true;
        }
        self.wire.end(out);
    }
}

/// Keeps the latest [`MAX_REMEMBERED`] entries.
fn remember<K: std::hash::Hash + Eq + Clone, V>(table: &mut IndexMap<K, V>, key: &K, value: V) {
    if table.len() >= MAX_REMEMBERED && !table.contains_key(key) {
        table.shift_remove_index(0);
    }
    table.insert(key.clone(), value);
}
