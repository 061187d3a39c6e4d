//! One response: canonical events in, the parts of one assistant message out.
//!
//! A run may hold many messages, nested steps, parallel agents; a response of the AI SDK is one message whose
//! parts lie in flat steps. The rules that make the one out of the other, each of which some client enforces:
//!
//! * a step begins where its first part does, so that a call that waits for an answer stays in the *last* step,
//!   which is where clients look before they send by themselves;
//! * text and reasoning never span steps: they are ended and begun again;
//! * a step does not end while the arguments of a call stream (a newer client would make a second part);
//! * what follows a tool's result begins a new step, as it does in the SDK, so that history keeps its order;
//! * a result is written after its call is complete, and never for a call that the message does not hold;
//! * a part begins with its first character: an empty message leaves no empty bubble.

use std::collections::HashSet;

use indexmap::IndexMap;
use serde_json::Value;

use super::{
    super::{
        input,
        wire::{self, INTERRUPT_TOOL, STATE_ID, part},
    },
    about::About,
    calls::{Call, Calls},
    snapshot::Seen,
};
use crate::{
    event::{
        Body, EncryptedEntity, Event, File, Interrupt, Message, MessageId, Outcome, Role, RunError,
        RunFinished, RunId, RunInput, RunStarted, Source, SubagentId, SubagentOutcome, SubagentStarted,
        ThreadId, ToolCallId, ToolResult, Usage,
    },
    format::{Fidelity, Setup, Writer},
    framing::{DEFAULT_MAX_FRAME, Frames},
    json::{Json, Object},
    patch::{self, Limits, Patch},
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
    fn tool_output(&mut self, out: &mut Frames, id: &ToolCallId, call: &Call, output: &Json);
    fn tool_error(&mut self, out: &mut Frames, id: &ToolCallId, call: &Call, error: &str);
    fn tool_denied(&mut self, out: &mut Frames, id: &ToolCallId, call: &Call, error: &str);
    /// An output that more will follow; says whether the wire can tell it from a last one.
    fn tool_progress(&mut self, out: &mut Frames, id: &ToolCallId, call: &Call, output: &Json) -> bool;
    /// Asks for approval of a call; says whether the wire can.
    fn approval(&mut self, out: &mut Frames, interrupt: &Interrupt, call: &ToolCallId) -> bool;
    fn data(&mut self, out: &mut Frames, name: &str, id: Option<&str>, data: &Json, transient: bool);
    fn metadata(&mut self, out: &mut Frames, metadata: &Json);
    fn annotation(&mut self, out: &mut Frames, value: &Json);
    /// A part that only the newest clients know; says whether the wire has it.
    fn provider_part(&mut self, out: &mut Frames, value: &Object) -> bool;
    fn source(&mut self, out: &mut Frames, source: &Source, detail: Option<&Json>);
    /// Says whether the wire can carry the file as a part.
    fn file(&mut self, out: &mut Frames, file: &File) -> bool;
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
    /// The id of the message that is built.
    message: Box<str>,
    tools: UiTools,
    /// Steps are shown only if they use tools.
    steps_for_tools: bool,
    without_reasoning: bool,

    started: bool,
    ended: bool,
    step: Step,
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
            message: Box::default(),
            tools,
            steps_for_tools: options.is("steps", "tools"),
            without_reasoning: options.is("reasoning", "manual"),
            started: false,
            ended: false,
            step: Step::default(),
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
            self.seen.history(&input.messages);
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
        self.message = match (&self.asked_id, continued) {
            (Some(asked), _) => asked.clone(),
            (None, Some(continued)) => continued,
            (None, None) => self.run.as_str().into(),
        };
        self.start(event.metadata(), out);
        Fidelity::Exact
    }

    /// The id of the message that this response continues, if the client holds one: if it sent that message
    /// itself, or if the caller says so. Anybody else's history is not the client's.
    fn continued(&mut self, input: &RunInput) -> Option<Box<str>> {
        let earlier = input::trailing_turn(&input.messages);
        let id = earlier.last().and_then(input::ui_message_id);
        if id.is_none() && self.asked_id.is_none() {
            return None;
        }
        self.know_earlier(earlier);
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
        id
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
        let metadata = metadata.and_then(|it| wire::safe(it.as_json()).0.into_owned().into_object());
        self.wire.start(
            out,
            &Start {
                message: &self.message,
                thread: &self.thread,
                run: &self.run,
                metadata: metadata.as_ref(),
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
        if self.step.open && self.step.answered && !self.calls.any_open() {
            self.finish_step(out);
        }
        if !self.step.open {
            self.start_step(out);
        }
    }

    fn start_step(&mut self, out: &mut Frames) {
        self.wire.start_step(out, &self.message);
        self.wanted = false;
        self.step = Step { open: true, ..Step::default() };
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
        });
        if self.steps_for_tools {
            return Fidelity::Approximated("steps=tools: shown once it uses a tool");
        }
        self.show_nodes(out);
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
                let id = self.nodes[index].shown.clone();
                self.data(out, part::STEP, id.as_deref(), &data, false);
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
        self.data(out, part::STEP, Some(&id), &data, false);
        Fidelity::Exact
    }

    // Text.

    fn text_start(&mut self, message: &MessageId, role: Role, name: Option<&str>, event: &Event) -> Fidelity {
        let mut about = About::of(event);
        about.name = name.map(Into::into);
        let aside = (role != Role::Assistant).then(|| (role, String::new()));
        let fidelity = if aside.is_some() {
            Fidelity::Approximated("a message that is not the assistant's becomes a data part")
        } else {
            Fidelity::Exact
        };
        self.texts.insert(message.clone(), Speech { about, aside, ..Speech::default() });
        fidelity
    }

    fn text_delta(&mut self, message: &MessageId, delta: &str, event: &Event, out: &mut Frames) -> Fidelity {
        let speech = self.texts.entry(message.clone()).or_default();
        if speech.about.merge(event.metadata()) {
            speech.changed |= speech.written;
        }
        if let Some((_, text)) = &mut speech.aside {
            if text.len() + delta.len() > MAX_ASIDE {
                return Fidelity::Dropped(
                    "a message that is not the assistant's is too long for a data part",
                );
            }
            text.push_str(delta);
            return Fidelity::Approximated("a message that is not the assistant's becomes a data part");
        }
        if delta.is_empty() {
            return Fidelity::Approximated("nothing was said");
        }
        if !speech.written {
            self.new_part(out);
            let speech = &mut self.texts[message];
            speech.written = true;
            self.seen.text(message);
            self.wire.text_start(out, message, &self.texts[message].about);
        }
        self.speaking = Some(message.clone());
        self.wire.text_delta(out, message, delta);
        Fidelity::Exact
    }

    fn text_end(&mut self, message: &MessageId, event: &Event, out: &mut Frames) -> Fidelity {
        self.speaking = None;
        let Some(mut speech) = self.texts.shift_remove(message) else {
            return Fidelity::Dropped("the message is not open");
        };
        speech.changed |= speech.about.merge(event.metadata()) && speech.written;
        if let Some((role, text)) = speech.aside {
            let data = wire::object(|w| {
                w.str("role", role.as_str())
                    .opt_str("name", speech.about.name.as_deref())
                    .str("text", &text)
                    .opt_str("subagentId", speech.about.subagent.as_deref())
                    .opt_object("metadata", speech.about.metadata.as_ref());
            });
            self.data(out, part::MESSAGE, Some(message), &data.into(), false);
            return Fidelity::Approximated("a message that is not the assistant's becomes a data part");
        }
        if !speech.written {
            return Fidelity::Approximated("an empty message has no part");
        }
        let about = speech.changed.then_some(&speech.about);
        self.wire.text_end(out, message, about);
        Fidelity::Exact
    }

    // Reasoning.

    fn thought_delta(
        &mut self,
        message: &MessageId,
        delta: &str,
        event: &Event,
        out: &mut Frames,
    ) -> Fidelity {
        let speech = self.thoughts.entry(message.clone()).or_default();
        if speech.about.merge(event.metadata()) {
            speech.changed |= speech.written;
        }
        if delta.is_empty() {
            return Fidelity::Approximated("nothing was said");
        }
        if !speech.written {
            self.begin_thought(message, out);
        }
        self.wire.reasoning_delta(out, message, delta);
        Fidelity::Exact
    }

    fn begin_thought(&mut self, message: &MessageId, out: &mut Frames) {
        let alone = !self.thoughts.values().any(|speech| speech.written);
        if W::ONE_REASONING_PER_STEP
            && self.step.open
            && self.step.reasoned
            && alone
            && !self.calls.any_open()
        {
            self.finish_step(out);
        }
        self.new_part(out);
        self.step.reasoned = true;
        self.seen.reasoning(message);
        let speech = &mut self.thoughts[message];
        speech.written = true;
        self.wire.reasoning_start(out, message, &self.thoughts[message].about);
    }

    /// Ends the part of the thought that was held back for its signature.
    fn release(&mut self, out: &mut Frames) {
        if let Some((message, speech)) = self.held.take()
            && speech.written
        {
            let about = speech.changed.then_some(&speech.about);
            self.wire.reasoning_end(out, &message, about);
        }
    }

    fn encrypted(
        &mut self,
        entity: &EncryptedEntity,
        value: &str,
        event: &Event,
        out: &mut Frames,
    ) -> Fidelity {
        match entity {
            EncryptedEntity::ToolCall(id) => {
                if let Some(call) = self.calls.get_mut(id).filter(|call| call.open) {
                    call.about.encrypted = Some(value.into());
                    return Fidelity::Exact;
                }
            }
            EncryptedEntity::Message(id) => {
                if let Some((held, speech)) = &mut self.held
                    && held == id
                {
                    speech.about.encrypted = Some(value.into());
                    speech.changed = true;
                    if !speech.written {
                        self.redacted(id, out);
                    }
                    return Fidelity::Exact;
                }
                let open = self.thoughts.get_mut(id).or_else(|| self.texts.get_mut(id));
                if let Some(speech) = open {
                    speech.about.encrypted = Some(value.into());
                    speech.changed |= speech.written;
                    return Fidelity::Exact;
                }
                if self.spans > 0 && self.thoughts.is_empty() {
                    self.release(out);
                    let mut speech = Speech { about: About::of(event), ..Speech::default() };
                    speech.about.encrypted = Some(value.into());
                    self.held = Some((id.clone(), speech));
                    self.redacted(id, out);
                    return Fidelity::Approximated("reasoning that cannot be read is a part of its own");
                }
            }
        }
        let (kind, id) = match entity {
            EncryptedEntity::ToolCall(id) => ("tool-call", id.as_str()),
            EncryptedEntity::Message(id) => ("message", id.as_str()),
        };
        let data = wire::object(|w| {
            w.str("entity", kind).str("id", id).str("value", value);
        });
        self.data(out, part::ENCRYPTED, Some(id), &data.into(), false);
        Fidelity::Exact
    }

    /// Writes a thought that has a signature but no text, which is in `held`.
    fn redacted(&mut self, message: &MessageId, out: &mut Frames) {
        let Some((_, speech)) = self.held.take() else {
            return;
        };
        self.thoughts.insert(message.clone(), speech);
        self.begin_thought(message, out);
        if let Some(speech) = self.thoughts.shift_remove(message) {
            self.wire.reasoning_end(out, message, Some(&speech.about));
        }
    }

    // Tools.

    fn tool_start(
        &mut self,
        id: &ToolCallId,
        name: &str,
        parent: Option<&MessageId>,
        event: &Event,
        out: &mut Frames,
    ) -> Fidelity {
        self.show_nodes(out);
        self.new_part(out);
        self.step.tools = true;
        let call = Call {
            name: name.into(),
            known_tool: self.knows_tool(name),
            about: About::of(event),
            parent: parent.cloned(),
            ..Call::default()
        };
        self.wire.tool_start(out, id, &call);
        self.calls.start(id, call);
        Fidelity::Exact
    }

    fn tool_args(&mut self, id: &ToolCallId, delta: &str, event: &Event, out: &mut Frames) -> Fidelity {
        if !self.calls.push(id, delta) {
            return Fidelity::Dropped("the call is not open");
        }
        if let Some(metadata) = event.metadata()
            && let Some(call) = self.calls.get_mut(id)
        {
            call.about.merge(Some(metadata));
        }
        if !delta.is_empty() {
            self.wire.tool_delta(out, id, delta);
        }
        Fidelity::Exact
    }

    fn tool_end(&mut self, id: &ToolCallId, event: &Event, out: &mut Frames) -> Fidelity {
        let Some(call) = self.calls.end(id) else {
            return Fidelity::Dropped("the call is not open");
        };
        call.about.merge(event.metadata());
        let text = std::mem::take(&mut call.arguments);
        let (cut, held) = (call.cut, call.held.take());
        let input = wire::arguments(&text);
        let literal = input.get().starts_with('"') || cut;
        let input = self.safe(&input);
        if let Some(call) = self.calls.get_mut(id) {
            self.wire.tool_call(out, id, call, &input);
            call.restated = call.made_up.then(|| input.clone());
        }
        if let Some(result) = held {
            self.tool_result(&result, false, out);
        }
        if self.finish_later && !self.calls.any_open() {
            self.leave_step(out);
        }
        if cut {
            Fidelity::Approximated("the arguments are too long to be given whole")
        } else if literal {
            Fidelity::Approximated("arguments that are no JSON object travel as text")
        } else {
            Fidelity::Exact
        }
    }

    fn tool_result(&mut self, result: &ToolResult, refused: bool, out: &mut Frames) -> Fidelity {
        let id = &result.call;
        let mut fidelity = match result.content {
            crate::event::Content::Text(_) => Fidelity::Exact,
            crate::event::Content::Parts(_) => {
                Fidelity::Approximated("the parts of a result become one value")
            }
        };
        match self.calls.get_mut(id) {
            Some(call) if call.open => {
                call.held = Some(Box::new(result.clone()));
                call.denied |= refused;
                return Fidelity::Exact;
            }
            // Another word on a call that was never made.
            Some(call) if call.held.is_some() => self.calls.keep(result),
            Some(_) => {}
            None => {
                self.unknown_call(id, out);
                self.calls.keep(result);
                fidelity = Fidelity::Approximated("the call of this result was never seen");
            }
        }
        if self.step.open {
            self.step.answered = true;
        }
        let output = wire::output(&result.content);
        let output = self.safe(&output);
        let Some(call) = self.calls.answer(id) else {
            return fidelity;
        };
        call.denied |= refused;
        let refused = call.denied;
        let text = result.content.text();
        match &result.error {
            None if !refused => self.wire.tool_output(out, id, call, &output),
            error => {
                let error = error.as_deref().filter(|error| !error.is_empty());
                let error = error.or(Some(text.as_str()).filter(|text| !text.is_empty()));
                let error = error.unwrap_or(if refused { wire::DENIED } else { "the tool failed" });
                if refused && (call.approval || call.earlier) {
                    self.wire.tool_denied(out, id, call, error);
                } else {
                    self.wire.tool_error(out, id, call, error);
                }
                if !text.is_empty() && text != error {
                    fidelity = Fidelity::Approximated("a failed tool has an error text and no output");
                }
            }
        }
        fidelity
    }

    /// Gives a result a call to answer: a client refuses it otherwise.
    fn unknown_call(&mut self, id: &ToolCallId, out: &mut Frames) {
        let (name, input) = match self.seen.call(id) {
            Some((name, arguments)) => (Box::from(name), wire::arguments(arguments)),
            None => ("unknown".into(), Object::empty().into()),
        };
        let input = self.safe(&input);
        self.new_part(out);
        self.step.tools = true;
        let call = Call { known_tool: self.knows_tool(&name), name, ..Call::default() };
        self.wire.tool_call(out, id, &call, &input);
        self.calls.insert(id, call);
    }

    fn tool_progress(&mut self, value: &Json, out: &mut Frames) -> Option<Fidelity> {
        let value = value.clone().into_object()?;
        let id: ToolCallId = value.get_str("toolCallId")?.into();
        let output = self.safe(&value.member("output")?);
        let call = self.calls.get(&id).filter(|call| !call.open && !call.answered)?;
        if self.wire.tool_progress(out, &id, call, &output) {
            return Some(Fidelity::Exact);
        }
        self.data(out, part::TOOL_PROGRESS, Some(&id), value.as_json(), true);
        Some(Fidelity::Exact)
    }

    // State and data parts.

    /// `json` without what the client's parser refuses.
    fn safe(&mut self, json: &Json) -> Json {
        let (json, stripped) = wire::safe(json);
        self.stripped |= stripped;
        json.into_owned()
    }

    fn data(&mut self, out: &mut Frames, name: &str, id: Option<&str>, data: &Json, transient: bool) {
        if !self.started {
            self.start(None, out);
        }
        let (data, stripped) = wire::safe(data);
        self.stripped |= stripped;
        self.wire.data(out, name, id, &data, transient);
    }

    fn state_delta(&mut self, patch: &Patch, out: &mut Frames) -> Fidelity {
        let state = self.state.get_or_insert_with(|| Value::Object(serde_json::Map::new()));
        if patch::apply(state, patch, &Limits::default()).is_err() {
            return Fidelity::Dropped("the patch does not apply to the state");
        }
        let state = Json::from(&*state);
        self.data(out, part::STATE, Some(STATE_ID), &state, false);
        Fidelity::Approximated("a change of state sends the whole state")
    }

    fn activity(&mut self, message: &MessageId, kind: &str, content: Value, event: &Event, out: &mut Frames) {
        let data = wire::object(|w| {
            w.str("activityType", kind)
                .json("content", &Json::from(&content))
                .opt_str("subagentId", event.subagent.as_deref())
                .opt_object("metadata", event.metadata());
        });
        self.seen.activity(message);
        remember(&mut self.activities, message, (kind.into(), content));
        self.data(out, part::ACTIVITY, Some(message), &data.into(), false);
    }

    fn activity_delta(
        &mut self,
        message: &MessageId,
        kind: &str,
        patch: &Patch,
        event: &Event,
        out: &mut Frames,
    ) -> Fidelity {
        let Some((_, content)) = self.activities.get(message) else {
            return Fidelity::Dropped("the activity is not known");
        };
        let mut changed = content.clone();
        // An activity stays an object, whatever a patch says.
        if patch::apply(&mut changed, patch, &Limits::default()).is_err() || !changed.is_object() {
            return Fidelity::Dropped("the patch does not apply to the activity");
        }
        self.activity(message, kind, changed, event, out);
        Fidelity::Approximated("a change of an activity sends the whole activity")
    }

    fn collaboration(&mut self, id: &MessageId, content: Value, event: &Event, out: &mut Frames) {
        let data = Json::from(&content);
        remember(&mut self.activities, id, (part::COLLABORATION.into(), content));
        let data = match (&event.subagent, data.clone().into_object()) {
            (Some(subagent), Some(object)) => object.with("subagentId", Json::string(subagent)).into(),
            _ => data,
        };
        self.data(out, part::COLLABORATION, Some(id), &data, false);
    }

    fn collaboration_step(
        &mut self,
        id: &MessageId,
        change: impl FnOnce(&mut Value),
        event: &Event,
        out: &mut Frames,
    ) -> Fidelity {
        let Some((kind, content)) = self.activities.get_mut(id) else {
            return Fidelity::Dropped("the hand-over is not known");
        };
        if **kind != *part::COLLABORATION {
            return Fidelity::Dropped("the hand-over is not known");
        }
        let mut content = content.take();
        change(&mut content);
        self.collaboration(id, content, event, out);
        Fidelity::Exact
    }

    fn subagent(
        &mut self,
        event: &Event,
        status: &str,
        fill: impl FnOnce(&mut crate::json::ObjectWriter<'_>),
        out: &mut Frames,
    ) -> Fidelity {
        let Some(id) = &event.subagent else {
            return Fidelity::Dropped("the subagent has no id");
        };
        let started = self.subagents.get(id);
        let data = wire::object(|w| {
            if let Some(started) = started {
                w.str("name", &started.name)
                    .opt_str("description", started.description.as_deref())
                    .opt_str("parentSubagentId", started.parent_subagent.as_deref())
                    .opt_str("parentToolCallId", started.parent_call.as_deref())
                    .opt_str("parentMessageId", started.parent_message.as_deref());
            }
            w.str("status", status);
            fill(w);
            w.opt_object("metadata", event.metadata());
        });
        self.data(out, part::SUBAGENT, Some(id), &data.into(), false);
        Fidelity::Exact
    }

    fn custom(&mut self, name: &str, value: &Json, event: &Event, out: &mut Frames) -> Fidelity {
        match name {
            wire::TOOL_PROGRESS => {
                if let Some(fidelity) = self.tool_progress(value, out) {
                    return fidelity;
                }
            }
            wire::MESSAGE_METADATA if value.get().starts_with('{') => {
                let value = self.safe(value);
                self.wire.metadata(out, &value);
                return Fidelity::Exact;
            }
            wire::ANNOTATION => {
                let value = self.safe(value);
                self.wire.annotation(out, &value);
                return Fidelity::Exact;
            }
            wire::PROVIDER_PART => {
                let value = self.safe(value);
                if let Some(object) = value.into_object()
                    && self.wire.provider_part(out, &object)
                {
                    return Fidelity::Exact;
                }
            }
            _ => {}
        }
        let own = event.metadata().and_then(|it| it.member(wire::AI_SDK));
        let own = own.and_then(Json::into_object);
        let id = own.as_ref().and_then(|own| own.get_str("id"));
        let id = id.or_else(|| value.clone().into_object()?.get_str("id"));
        let kept = own.and_then(|own| own.member("transient")).is_some_and(|it| it.get() == "false");
        let legal = wire::legal_name(name);
        let data = wire::custom_data(name, &legal, value);
        // An application's event is news, not content, unless it names the thing that it is about.
        let transient = id.is_none() && !kept;
        self.data(out, &legal, id.as_deref(), &data, transient);
        Fidelity::Exact
    }

    fn file(&mut self, file: &File, out: &mut Frames) -> Fidelity {
        self.new_part(out);
        if self.wire.file(out, file) {
            return Fidelity::Exact;
        }
        let data = wire::object(|w| {
            w.str("kind", file.kind.as_str())
                .str("mediaType", wire::media_type(file.kind, &file.source))
                .opt_str("url", wire::media_url(&file.source).as_deref())
                .opt_str("name", file.name.as_deref())
                .opt_str("messageId", file.message.as_deref());
            if let crate::event::PartSource::File { value, provider, .. } = &file.source {
                w.str("fileId", value).opt_str("provider", provider.as_deref());
            }
        });
        self.data(out, part::FILE, Some(&file.id), &data.into(), false);
        Fidelity::Approximated("a file that has no address here becomes a data part")
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
                self.usage(&finished.usage, out);
                self.wire.abort(out);
                self.ended = true;
                return fidelity;
            }
            Some(Outcome::Interrupt { interrupts }) => {
                fidelity = self.interrupts(interrupts, out);
                ("tool-calls", &[])
            }
            Some(Outcome::Success { pending }) if !pending.is_empty() => ("tool-calls", pending),
            _ if self.calls.any_unanswered() => ("tool-calls", &[]),
            _ => {
                // A client that sends by itself once all tools of the last step have answered would run the
                // agent again, although it is done.
                if self.step.tools {
                    self.start_step(out);
                    self.finish_step(out);
                }
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
            let data = wire::interrupt_data(interrupt);
            self.data(out, part::INTERRUPT, Some(&interrupt.id), data.as_json(), false);
            let guarded = interrupt.tool_call.as_ref().and_then(|id| {
                let call = self.calls.get_mut(id)?;
                (!call.answered && !call.approval && !call.open).then_some((id, call))
            });
            match guarded {
                Some((id, call)) if self.wire.approval(out, interrupt, id) => call.approval = true,
                _ => others.push(interrupt),
            }
        }
        if others.is_empty() {
            return Fidelity::Exact;
        }
        // Calls that nobody asked about must not lie in the step in which the client looks for answers.
        let unasked = self.calls.iter().any(|(_, call)| !call.answered && !call.approval && !call.earlier);
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
                speech.changed |= speech.about.merge(event.metadata()) && speech.written;
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
                let own = event.metadata().and_then(|it| it.member(wire::AI_SDK));
                let own = own.and_then(Json::into_object);
                let refused = own.and_then(|it| it.member("denied"));
                self.tool_result(result, refused.is_some_and(|it| it.get() == "true"), out)
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
                self.wire.source(out, source, detail.as_ref());
                Fidelity::Exact
            }
            Body::File(file) => self.file(file, out),
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
        wire::object(|w| {
            w.str("name", &self.name)
                .str("status", status)
                .opt_str("subagentId", self.owner.as_deref())
                .opt_object("metadata", self.metadata.as_ref());
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
