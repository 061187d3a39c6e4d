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
//! The parts themselves are made in [`speech`], [`tools`] and [`parts`]; steps, the beginning and the end are here.

mod parts;
mod speech;
mod tools;

use std::collections::HashSet;

use indexmap::IndexMap;
use serde_json::Value;

use super::{
    super::{
        input,
        wire::{self, INTERRUPT_TOOL, OWN_MESSAGE, OWN_METADATA, OWN_UNNAMED, STATE_ID, part},
    },
    about::About,
    calls::{Answer, Call, Calls},
    snapshot::Seen,
};
use crate::{
    event::{
        Body, Event, File, Interrupt, Message, MessageId, Outcome, Role, RunError, RunFinished, RunId,
        RunInput, RunStarted, Source, SubagentId, SubagentOutcome, SubagentStarted, ThreadId, ToolCallId,
        Usage,
    },
    format::{Fidelity, Setup, Writer},
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

/// A canonical step that is open.
#[derive(Debug)]
struct Node {
    owner: Option<SubagentId>,
    name: Box<str>,
    metadata: Option<Object>,
    /// The id of its data part, once the client was told.
    shown: Option<String>,
    /// The source gave it no name, so that there is nothing to keep with the message.
    unnamed: bool,
    /// The message that an AI SDK server said it belongs to.
    message: Option<Box<str>>,
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
    state: Option<Value>,
    activities: IndexMap<MessageId, (Box<str>, Value)>,
    subagents: IndexMap<SubagentId, SubagentStarted>,
    seen: Seen,
    reason: Option<Box<str>>,
    /// Keys that the client's parser refuses were left out of this event.
    stripped: bool,
}

/// Which tools the user interface knows.
#[derive(Debug, Default)]
struct UiTools {
    all: bool,
    names: HashSet<Box<str>>,
}

impl<W: Wire> Turn<W> {
    pub(super) fn new(wire: W, setup: &Setup<'_>) -> Self {
        let options = setup.options;
        let tools = match options.get("ui_tools") {
            Some("all") => UiTools { all: true, names: HashSet::new() },
            None | Some("none" | "") => UiTools::default(),
            Some(list) => {
                UiTools { all: false, names: list.split(',').map(|name| name.trim().into()).collect() }
            }
        };
        Self {
            wire,
            thread: setup.thread.clone(),
            run: setup.run.clone(),
            request: setup.options.request().cloned().map(Box::new),
            asked_id: options.get("message").map(Into::into),
            whole: options.whole_message(),
            message: Box::default(),
            about: None,
            tools,
            steps_for_tools: options.is("steps", "tools"),
            without_reasoning: options.is("reasoning", "manual"),
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
            state: None,
            activities: IndexMap::new(),
            subagents: IndexMap::new(),
            seen: Seen::default(),
            reason: None,
            stripped: false,
        }
    }

    // Beginning.

    fn run_started(&mut self, started: &RunStarted, event: &Event, out: &mut Frames) -> Fidelity {
        self.run = started.run.clone();
        self.thread = started.thread.clone();
        self.ended = false;
        self.reason = None;
        let request = self.request.take();
        let input = started.input.as_deref().or(request.as_deref());
        if let Some(input) = input {
            let held = if self.whole { input::before_last_turn(&input.messages) } else { &input.messages };
            self.seen.history(held);
            let names = input.tools.iter().map(|tool| tool.name.clone());
            self.tools.names.extend(names);
            if let Some(state) = &input.state {
                self.state = Some(state.to_value());
            }
        }
        if self.started {
            return Fidelity::Approximated("one response is one message: a further run continues it");
        }
        let continued = input.and_then(|input| self.continued(input));
        // What an AI SDK server said when it began.
        let own = wire::own(event.metadata());
        let named = own.as_ref().and_then(|own| own.get_str(OWN_MESSAGE)).map(Into::into);
        let message = self.asked_id.clone().or(continued).or(named);
        self.message = message.unwrap_or_else(|| self.run.as_str().into());
        self.about = own.and_then(|own| own.member(OWN_METADATA)).and_then(Json::into_object);
        let metadata = event.metadata().and_then(|it| wire::without_own(it, &[OWN_MESSAGE, OWN_METADATA]));
        self.start(metadata.as_ref(), out);
        if let Some(input) = input.filter(|_| self.whole) {
            self.retell(input::trailing_turn(&input.messages), out);
            self.note_refused(input);
        }
        Fidelity::Exact
    }

    /// The id of the message that this response continues, if the client holds one: if it sent that message
    /// itself, or if the caller says so. Anybody else's history is not the client's.
    fn continued(&mut self, input: &RunInput) -> Option<Box<str>> {
        let earlier = input::trailing_turn(&input.messages);
        if self.whole {
            return input::turn_id(earlier);
        }
        let id = earlier.last().and_then(input::ui_message_id);
        if id.is_none() && self.asked_id.is_none() {
            return None;
        }
        self.know_earlier(earlier);
        self.note_refused(input);
        id
    }

    /// Tells what the message held before this response.
    fn retell(&mut self, turn: &[Message], out: &mut Frames) {
        let answered: HashSet<_> = turn
            .iter()
            .filter_map(|message| match &message.body {
                crate::event::MessageBody::Tool { call, .. } => Some(call),
                _ => None,
            })
            .collect();
        for event in self.seen.missing(turn, None) {
            // A client runs its own tools when it hears that the arguments are complete. Those that have answered must
            // not run again: the arguments are told as they stream, and then the result.
            if let Body::ToolEnd { call } = &event.body
                && answered.contains(call)
                && self.calls.get(call).is_some_and(|call| {
                    call.arguments.trim_start().starts_with('{') && Json::parse(&call.arguments).is_ok()
                })
            {
                if let Some(call) = self.calls.end(call) {
                    call.arguments.clear();
                }
                continue;
            }
            self.write(&event, out);
        }
    }

    /// The calls that the request refuses.
    fn note_refused(&mut self, input: &RunInput) {
        for entry in input.resume.iter().flatten() {
            let answer = entry.payload.clone().and_then(Json::into_object);
            if answer.and_then(|it| it.member("approved")).is_some_and(|it| it.get() == "false") {
                let call = entry.metadata.as_ref().and_then(|it| it.get_str("toolCallId"));
                let call: ToolCallId = call.map_or_else(|| entry.interrupt.as_str().into(), Into::into);
                if let Some(call) = self.calls.get_mut(&call) {
                    call.denied = true;
                }
            }
        }
    }

    /// The calls of a message that this response continues.
    fn know_earlier(&mut self, earlier: &[Message]) {
        for message in earlier {
            for call in message.tool_calls() {
                let known_tool = input::is_static(call) || self.knows_tool(&call.name);
                self.calls.insert(
                    &call.id,
                    Call { name: call.name.clone(), known_tool, earlier: true, ..Call::default() },
                );
            }
        }
    }

    fn start(&mut self, metadata: Option<&Object>, out: &mut Frames) {
        if self.message.is_empty() {
            self.message = self.asked_id.clone().unwrap_or_else(|| self.run.as_str().into());
        }
        self.started = true;
        let safe = |it: &Object| wire::safe(it.as_json()).0.into_owned().into_object();
        let (metadata, about) = (metadata.and_then(safe), self.about.as_ref().and_then(safe));
        self.wire.start(
            out,
            &Start {
                message: &self.message,
                thread: &self.thread,
                run: &self.run,
                metadata: metadata.as_ref(),
                about: about.as_ref(),
            },
        );
    }

    fn knows_tool(&self, name: &str) -> bool {
        self.tools.all || self.tools.names.contains(name)
    }

    // Steps.

    /// Makes room for a new part: the response has begun, and a step is open that may hold it.
    fn new_part(&mut self, out: &mut Frames) {
        if !self.started {
            self.start(None, out);
        }
        if self.step.open && self.step.answered && !self.framed && !self.calls.any_open() {
            self.finish_step(out);
        }
        if !self.step.open {
            self.start_step(out);
        }
    }

    fn start_step(&mut self, out: &mut Frames) {
        let named = self.nodes.iter().rev().find_map(|node| node.message.as_deref());
        self.wire.start_step(out, named.unwrap_or(&self.message));
        self.wanted = false;
        self.step = Step { open: true, ..Step::default() };
        self.stepped = true;
    }

    /// Ends the step, as soon as no arguments stream.
    fn leave_step(&mut self, out: &mut Frames) {
        if self.calls.any_open() {
            self.finish_later = true;
        } else if self.step.open {
            self.finish_step(out);
        }
    }

    fn finish_step(&mut self, out: &mut Frames) {
        self.finish_later = false;
        self.quiet(out);
        self.step.open = false;
        let reason = if self.step.tools {
            "tool-calls"
        } else {
            self.reason.as_deref().map_or("stop", wire::finish_reason)
        };
        self.wire.finish_step(out, reason);
    }

    /// Ends the parts of all texts and thoughts on the wire; those that are still open begin again later.
    fn quiet(&mut self, out: &mut Frames) {
        self.release(out);
        self.speaking = None;
        for (message, speech) in &mut self.texts {
            if std::mem::take(&mut speech.written) {
                let about = std::mem::take(&mut speech.changed).then_some(&speech.about);
                self.wire.text_end(out, message, about);
            }
        }
        for (message, speech) in &mut self.thoughts {
            if std::mem::take(&mut speech.written) {
                let about = std::mem::take(&mut speech.changed).then_some(&speech.about);
                self.wire.reasoning_end(out, message, about);
            }
        }
    }

    fn step_started(&mut self, name: &str, event: &Event, out: &mut Frames) -> Fidelity {
        self.nodes.push(Node {
            owner: event.subagent.clone(),
            name: name.into(),
            metadata: event.metadata().cloned(),
            shown: None,
            unnamed: wire::own_flag(event.metadata(), OWN_UNNAMED),
            message: wire::own(event.metadata()).and_then(|it| it.get_str(OWN_MESSAGE)).map(Into::into),
        });
        if self.steps_for_tools {
            return Fidelity::Approximated("steps=tools: shown once it uses a tool");
        }
        self.show_nodes(out);
        self.framed = self.nodes.iter().all(|node| node.unnamed);
        if self.framed && !self.step.open {
            self.start_step(out);
        }
        Fidelity::Exact
    }

    /// Tells the client about steps that it does not know yet.
    fn show_nodes(&mut self, out: &mut Frames) {
        if self.nodes.iter().all(|node| node.shown.is_some()) {
            return;
        }
        if !self.nodes.iter().any(|node| node.shown.is_some()) {
            self.leave_step(out);
            self.wanted = true;
        }
        for index in 0..self.nodes.len() {
            if self.nodes[index].shown.is_none() {
                self.nodes_shown += 1;
                let id = format!("step:{}", self.nodes_shown);
                self.nodes[index].shown = Some(id);
                let data = self.nodes[index].data("running");
                let (id, unnamed) = (self.nodes[index].shown.clone(), self.nodes[index].unnamed);
                self.data(out, part::STEP, id.as_deref(), &data, unnamed);
            }
        }
    }

    fn step_finished(&mut self, name: &str, event: &Event, out: &mut Frames) -> Fidelity {
        let found = self.nodes.iter().rposition(|node| *node.name == *name && node.owner == event.subagent);
        let Some(mut node) = found.map(|index| self.nodes.remove(index)) else {
            return Fidelity::Dropped("the step is not open");
        };
        let Some(id) = node.shown.take() else {
            return Fidelity::Dropped("steps=tools: it used no tool");
        };
        let data = node.data("done");
        if !self.nodes.iter().any(|node| node.shown.is_some()) {
            if self.step.open {
                self.leave_step(out);
            } else if self.wanted && !self.calls.any_unanswered() {
                self.start_step(out);
                self.finish_step(out);
            }
            self.wanted = false;
        }
        self.data(out, part::STEP, Some(&id), &data, node.unnamed);
        Fidelity::Exact
    }

    // Ending.

    fn run_finished(&mut self, finished: &RunFinished, out: &mut Frames) -> Fidelity {
        if let Some(events) = self.seen.unsaid() {
            for event in events {
                self.write(&event, out);
            }
        }
        self.close(out);
        self.refuse_denied(out);
        let mut fidelity = Fidelity::Exact;
        let (reason, pending): (_, &[ToolCallId]) = match &finished.outcome {
            Some(Outcome::Cancelled) => {
                self.leave_tools(out);
                self.usage(&finished.usage, out);
                self.wire.abort(out);
                self.ended = true;
                return fidelity;
            }
            Some(Outcome::Interrupt { interrupts }) => {
                fidelity = self.interrupts(interrupts, out);
                ("tool-calls", &[])
            }
            Some(Outcome::Success { pending }) if !pending.is_empty() => {
                for id in pending {
                    self.allow(id, out);
                }
                ("tool-calls", pending)
            }
            _ if self.calls.any_unanswered() => ("tool-calls", &[]),
            _ => {
                self.leave_tools(out);
                (self.reason.as_deref().map_or("stop", wire::finish_reason), &[])
            }
        };
        let result = finished.result.as_ref().map(|result| self.safe(result));
        self.wire.finish(
            out,
            &Finish {
                reason,
                native_reason: self.reason.as_deref(),
                usage: &finished.usage,
                result: result.as_ref(),
                pending,
            },
        );
        self.ended = true;
        fidelity
    }

    /// Ends with a step that has no tools. A client that sends by itself once all tools of the last step have
    /// answered, or all questions about them, would otherwise run the agent again, although it is done. That step may
    /// be one of the message that this response continues, if nothing was said since.
    fn leave_tools(&mut self, out: &mut Frames) {
        let unmoved = !self.stepped && self.calls.iter().any(|(_, call)| call.earlier);
        if (self.step.tools || unmoved) && !self.framed {
            self.start_step(out);
            self.finish_step(out);
        }
    }

    /// Says a call of the message that this response continues again, now that a person has allowed it: its part
    /// would otherwise stay with that answer, and a client that sends answers by itself would never cease to. Clients
    /// look for the part in their last step, so it is too late once another one has begun.
    fn allow(&mut self, id: &ToolCallId, out: &mut Frames) {
        let Some((_, arguments)) = self.seen.call(id).filter(|_| self.wire.knows_approvals()) else { return };
        let input = self.safe(&wire::arguments(arguments));
        if let Some(call) = self.calls.get(id).filter(|call| call.earlier && !call.answered && !self.stepped)
        {
            self.wire.tool_call(out, id, call, &input);
        }
    }

    /// Calls that a person refused and that the agent did not answer in words are refused here.
    fn refuse_denied(&mut self, out: &mut Frames) {
        let refused = self.calls.iter().filter(|(_, call)| call.denied && !call.answered);
        let refused: Vec<_> = refused.map(|(id, _)| id.clone()).collect();
        for id in refused {
            if let Some(call) = self.calls.answer(&id) {
                self.wire.tool_denied(out, &id, call, wire::DENIED);
            }
        }
    }

    fn interrupts(&mut self, interrupts: &[Interrupt], out: &mut Frames) -> Fidelity {
        let mut others = Vec::new();
        for interrupt in interrupts {
            let guarded = interrupt.tool_call.as_ref().filter(|id| {
                let call = self.calls.get(id);
                let waits = call.is_some_and(|call| !call.answered && !call.approval && !call.open);
                waits && self.wire.knows_approvals()
            });
            // What a request for approval cannot say.
            let mut plain = Interrupt::new(interrupt.id.clone(), "tool_call");
            plain.tool_call = guarded.cloned();
            if guarded.is_none() || plain != *interrupt {
                let data = wire::interrupt_data(interrupt);
                self.data(out, part::INTERRUPT, Some(&interrupt.id), data.as_json(), false);
            }
            match guarded.and_then(|id| Some((id, self.calls.get_mut(id)?))) {
                Some((id, call)) => {
                    call.approval = true;
                    self.wire.approval(out, interrupt, id);
                }
                None => others.push(interrupt),
            }
        }
        if others.is_empty() {
            return Fidelity::Exact;
        }
        // Calls that nobody asked about must not lie in the step in which the client looks for answers.
        let unasked = self.calls.iter().any(|(_, call)| call.waits() && !call.approval);
        if unasked {
            self.start_step(out);
        }
        for interrupt in others {
            let id: ToolCallId = wire::interrupt_call(&interrupt.id).into();
            let call = Call {
                name: INTERRUPT_TOOL.into(),
                // A dynamic part could not be answered with the first builds of version 5.
                known_tool: true,
                ..Call::default()
            };
            let input = self.safe(wire::interrupt_data(interrupt).as_json());
            self.step.tools = true;
            self.wire.tool_call(out, &id, &call, &input);
        }
        if self.step.open {
            self.finish_step(out);
        }
        Fidelity::Approximated("an interrupt that no approval can express becomes a tool call")
    }

    fn run_error(&mut self, error: &RunError, out: &mut Frames) -> Fidelity {
        if !self.started {
            self.start(None, out);
        }
        self.close(out);
        self.usage(&error.usage, out);
        self.wire.error(out, error);
        self.ended = true;
        Fidelity::Exact
    }

    fn usage(&mut self, usage: &[Usage], out: &mut Frames) {
        if !usage.is_empty() {
            let metadata = super::ui::usage_metadata(usage);
            self.wire.metadata(out, metadata.as_json());
        }
    }

    /// Closes everything that is open on the wire.
    fn close(&mut self, out: &mut Frames) {
        if !self.started {
            self.start(None, out);
        }
        self.finish_later = false;
        if self.step.open {
            self.finish_step(out);
        } else {
            self.quiet(out);
        }
        self.wanted = false;
        self.texts.clear();
        self.thoughts.clear();
        self.nodes.clear();
        self.spans = 0;
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
                    self.begin_thought(message, out);
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
                self.data(out, part::STATE, Some(STATE_ID), snapshot, false);
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
                let data = wire::object(|w| {
                    w.json("event", event).opt_str("source", source.as_deref());
                });
                self.data(out, part::RAW, None, &data.into(), true);
                Fidelity::Exact
            }
            Body::Custom { name, value } => self.custom(name, value, event, out),

            Body::Source(source) => {
                self.new_part(out);
                let detail = source.detail.as_ref().map(|detail| self.safe(detail.as_json()));
                let (detail, others) = wire::detail_apart(detail.and_then(Json::into_object).as_ref());
                self.wire.source(out, source, detail.as_ref(), others);
                Fidelity::Exact
            }
            Body::File(file) => self.file(file, event, out),
            Body::Block(block) => {
                let data = wire::object(|w| {
                    w.str("messageId", &block.message)
                        .json("output", block.output.as_json())
                        .opt_json("layout", block.layout.as_ref())
                        .opt_str("blockId", block.block_id.as_deref())
                        .opt_json("style", block.style.as_ref())
                        .opt_str("subagentId", event.subagent.as_deref())
                        .opt_object("metadata", event.metadata());
                });
                self.data(out, part::BLOCK, Some(&block.id), &data.into(), false);
                Fidelity::Exact
            }
            Body::CollaborationStart { id, message, from, to } => {
                let content = wire::object(|w| {
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
            self.close(out);
            self.wire.abort(out);
            self.ended = true;
        }
        self.wire.end(out);
    }
}

impl Node {
    fn data(&self, status: &str) -> Json {
        // A part that takes the place of another says all that is known; a passing one says what is new.
        let metadata = self.metadata.as_ref().filter(|_| !self.unnamed || status == "running");
        wire::object(|w| {
            w.str("name", &self.name)
                .str("status", status)
                .opt_str("subagentId", self.owner.as_deref())
                .opt_object("metadata", metadata);
        })
        .into()
    }
}

/// Keeps the latest [`MAX_REMEMBERED`] entries.
fn remember<K: std::hash::Hash + Eq + Clone, V>(table: &mut IndexMap<K, V>, key: &K, value: V) {
    if table.len() >= MAX_REMEMBERED && !table.contains_key(key) {
        table.shift_remove_index(0);
    }
    table.insert(key.clone(), value);
}
