//! What the chunks and lines of a response mean, whatever their spelling.

use std::collections::HashMap;

use indexmap::IndexMap;
use serde_json::Value;

use super::super::wire::{
    self, AGENTWIRE, OWN_APPROVAL, OWN_MESSAGE, OWN_METADATA, OWN_OUTPUT, OWN_PROVIDERS, OWN_UNNAMED,
    own_call,
};
use crate::{
    event::{
        Body, Content, EncryptedEntity, Event, Interner, Interrupt, InterruptId, MessageId, Outcome, Role,
        RunError, RunFinished, RunId, RunStarted, SubagentId, ThreadId, ToolCallId, ToolResult, Usage,
    },
    format::{ReadError, Setup},
    framing::DEFAULT_MAX_FRAME,
    json::{Json, Object},
    tally::Tally,
};

/// The most parts of one kind that may be open at once, as many as the order guard allows.
const MAX_OPEN: usize = 16_384;

/// The most calls that are remembered; what was forgotten is taken for a call that never started.
const MAX_CALLS: usize = 16_384;

/// The most argument text that is collected for one call, to compare it with the arguments that follow it: what one
/// frame may hold.
const MAX_ARGUMENTS: usize = DEFAULT_MAX_FRAME;

/// The most interrupts of one response: a person answers them one by one.
const MAX_INTERRUPTS: usize = 1024;

/// Builds canonical events.
#[derive(Debug)]
pub(super) struct Builder {
    pub(super) tally: Tally,
    pub(super) ids: Interner,
    thread: ThreadId,
    run: RunId,
    /// The id of the SDK's message; ids that must be made derive from it.
    base: Option<Box<str>>,
    /// The start of the run told it.
    named: bool,
    /// What the start said about the message.
    about: Option<Object>,
    started: bool,
    ended: bool,
    /// agentwire wrote this stream.
    pub(super) own: bool,

    texts: HashMap<Box<str>, Open>,
    thoughts: HashMap<Box<str>, Open>,
    /// The text that spoke last: its id on the wire and its message.
    last: Option<(Box<str>, MessageId)>,
    text_count: u64,
    thought_count: u64,
    pub(super) file_count: u64,

    steps: u64,
    step_open: bool,
    /// The text message of this step, which holds its calls.
    holder: Option<MessageId>,

    pub(super) calls: IndexMap<ToolCallId, Call>,
    interrupts: IndexMap<InterruptId, Interrupt>,
    usage: Vec<Usage>,
    reason: Option<Box<str>>,
    native_reason: Option<Box<str>>,
    result: Option<Json>,
    pending: Vec<ToolCallId>,
    error_code: Option<Box<str>>,
    /// An error of the letter dialect, which may be a tool's and not the run's.
    maybe_error: Option<Box<str>>,
    /// It is the letter dialect, whose root says when it is done.
    pub(super) dialect: bool,
    /// Nodes of the letter dialect: their ids and names.
    nodes: IndexMap<Box<str>, Box<str>>,
    /// Hand-overs: how many tasks were told, and whether the end was.
    pub(super) hand_overs: HashMap<Box<str>, (usize, bool)>,
}

/// An open text or reasoning part.
#[derive(Debug)]
struct Open {
    message: MessageId,
    subagent: Option<SubagentId>,
    /// A reasoning message begins with its first character.
    begun: bool,
    /// What its start will say.
    metadata: Option<Object>,
}

/// A call.
#[derive(Debug, Default)]
pub(super) struct Call {
    pub(super) open: bool,
    /// The arguments so far.
    text: String,
    answered: bool,
    /// Its arguments were bad, which the SDK tells twice.
    failed: bool,
    remote: bool,
    subagent: Option<SubagentId>,
}

/// What our provider metadata says about a part.
#[derive(Debug, Default)]
pub(in super::super) struct Facts {
    pub(in super::super) message: Option<MessageId>,
    pub(in super::super) subagent: Option<SubagentId>,
    pub(in super::super) name: Option<Box<str>>,
    pub(in super::super) title: Option<Box<str>>,
    pub(in super::super) encrypted: Option<Box<str>>,
    pub(in super::super) metadata: Option<Object>,
}

impl Facts {
    /// From `providerMetadata`; what other providers say is kept as metadata.
    pub(in super::super) fn of(metadata: Option<&Object>, id_key: &str) -> Self {
        let Some(metadata) = metadata else { return Self::default() };
        let own = metadata.member(AGENTWIRE).and_then(Json::into_object);
        let foreign = metadata.without(AGENTWIRE);
        let kept = own.as_ref().and_then(|own| own.member("metadata")).and_then(Json::into_object);
        let kept =
            if foreign.is_empty() { kept } else { Some(wire::with_own(kept, OWN_PROVIDERS, foreign.into())) };
        let text = |key: &str| own.as_ref().and_then(|own| own.get_str(key));
        Self {
            message: text(id_key).map(Into::into),
            subagent: text("subagentId").map(Into::into),
            name: text("name").map(Into::into),
            title: text("title").map(Into::into),
            encrypted: text("encrypted").map(Into::into),
            metadata: kept,
        }
    }
}

impl Builder {
    pub(super) fn new(setup: &Setup<'_>) -> Self {
        Self {
            tally: Tally::default(),
            ids: Interner::default(),
            thread: setup.thread.clone(),
            run: setup.run.clone(),
            base: None,
            named: false,
            about: None,
            started: false,
            ended: false,
            own: false,
            texts: HashMap::new(),
            thoughts: HashMap::new(),
            last: None,
            text_count: 0,
            thought_count: 0,
            file_count: 0,
            steps: 0,
            step_open: false,
            holder: None,
            calls: IndexMap::new(),
            interrupts: IndexMap::new(),
            usage: Vec::new(),
            reason: None,
            native_reason: None,
            result: None,
            pending: Vec::new(),
            error_code: None,
            maybe_error: None,
            dialect: false,
            nodes: IndexMap::new(),
            hand_overs: HashMap::new(),
        }
    }

    // Beginning.

    /// The response names its message.
    pub(super) fn name_message(&mut self, id: &str) {
        if self.base.is_none() {
            self.base = Some(id.into());
        }
    }

    /// agentwire wrote this, in that run.
    pub(super) fn recognise(&mut self, thread: Option<String>, run: Option<String>) {
        if self.started {
            return;
        }
        if let (Some(thread), Some(run)) = (thread, run) {
            self.own = true;
            self.thread = thread.into();
            self.run = run.into();
        }
    }

    /// The response begins, and says something about its message.
    ///
    /// What it says stands on the run, so that a writer can begin with it as well, and behind it, for all who do
    /// not look there.
    pub(super) fn start(&mut self, metadata: Option<Json>, out: &mut Vec<Event>) {
        let news = metadata.and_then(|metadata| self.understand(metadata));
        if !self.started {
            self.about = news.clone().and_then(Json::into_object);
        } else if !self.named {
            self.tally.note("not expressible", "the name of a message that has begun");
        }
        self.begin(None, out);
        if let Some(news) = news {
            self.custom(wire::MESSAGE_METADATA, news, None, out);
        }
    }

    pub(super) fn begin(&mut self, mut metadata: Option<Object>, out: &mut Vec<Event>) {
        if self.started {
            return;
        }
        self.started = true;
        self.named = self.base.is_some();
        // A message that nobody named has the name of its run.
        if let Some(message) = self.base.as_deref().filter(|base| *base != self.run.as_str()) {
            metadata = Some(wire::with_own(metadata, OWN_MESSAGE, Json::string(message)));
        }
        if let Some(about) = self.about.take() {
            metadata = Some(wire::with_own(metadata, OWN_METADATA, about.into()));
        }
        let started = RunStarted::new(self.thread.clone(), self.run.clone());
        out.push(Event::new(Body::RunStarted(Box::new(started))).with_metadata(metadata));
    }

    pub(super) fn base(&self) -> &str {
        self.base.as_deref().unwrap_or(&self.run)
    }

    // Text.

    pub(super) fn text_start(
        &mut self,
        id: &str,
        facts: Facts,
        out: &mut Vec<Event>,
    ) -> Result<MessageId, ReadError> {
        if self.texts.contains_key(id) {
            self.tally.note("out of order", "text-start of an open part");
            self.text_end(id, Facts::default(), out);
        }
        if self.texts.len() >= MAX_OPEN {
            return Err(too_many("text"));
        }
        self.text_count += 1;
        let message =
            facts.message.unwrap_or_else(|| wire::numbered(self.base(), "", self.text_count).into());
        let open =
            Open { message: message.clone(), subagent: facts.subagent.clone(), begun: true, metadata: None };
        self.texts.insert(id.into(), open);
        self.last = Some((id.into(), message.clone()));
        self.holder = Some(message.clone());
        let start =
            Body::TextStart { message: message.clone(), role: Some(Role::Assistant), name: facts.name };
        out.push(Event::new(start).by(facts.subagent).with_metadata(facts.metadata));
        Ok(message)
    }

    /// The message of an open text part, if that part spoke last: the way of nearly every chunk.
    pub(super) fn speaking(&self, id: &str) -> Option<MessageId> {
        match &self.last {
            Some((last, message)) if **last == *id => Some(message.clone()),
            _ => None,
        }
    }

    pub(super) fn text_delta(
        &mut self,
        id: &str,
        delta: &str,
        metadata: Option<Object>,
        out: &mut Vec<Event>,
    ) -> Result<(), ReadError> {
        let Some(open) = self.texts.get(id) else {
            // The real client fails here. What was said is worth more than the rule.
            self.tally.note("out of order", "text-delta of a part that is not open");
            self.text_start(id, Facts::default(), out)?;
            return self.text_delta(id, delta, metadata, out);
        };
        let (message, subagent) = (open.message.clone(), open.subagent.clone());
        self.last = Some((id.into(), message.clone()));
        let body = Body::TextDelta { message, delta: delta.into() };
        out.push(Event::new(body).by(subagent).with_metadata(metadata));
        Ok(())
    }

    pub(super) fn text_end(&mut self, id: &str, facts: Facts, out: &mut Vec<Event>) {
        self.last = None;
        let Some(open) = self.texts.remove(id) else {
            return self.tally.note("out of order", "text-end of a part that is not open");
        };
        if let Some(value) = facts.encrypted {
            let entity = EncryptedEntity::Message(open.message.clone());
            out.push(Event::new(Body::ReasoningEncrypted { entity, value }).by(open.subagent.clone()));
        }
        let end = Body::TextEnd { message: open.message };
        out.push(Event::new(end).by(open.subagent).with_metadata(facts.metadata));
    }

    // Reasoning.

    pub(super) fn thought_start(
        &mut self,
        id: &str,
        facts: Facts,
        out: &mut Vec<Event>,
    ) -> Result<(), ReadError> {
        if self.thoughts.contains_key(id) {
            self.tally.note("out of order", "reasoning-start of an open part");
            self.thought_end(id, Facts::default(), out);
        }
        if self.thoughts.len() >= MAX_OPEN {
            return Err(too_many("reasoning"));
        }
        self.thought_count += 1;
        let message = facts
            .message
            .unwrap_or_else(|| wire::numbered(self.base(), "reasoning", self.thought_count).into());
        let start = Body::ReasoningStart { message: message.clone(), title: facts.title };
        out.push(Event::new(start).by(facts.subagent.clone()));
        let open = Open { message, subagent: facts.subagent, begun: false, metadata: facts.metadata };
        self.thoughts.insert(id.into(), open);
        Ok(())
    }

    pub(super) fn thought_delta(
        &mut self,
        id: &str,
        delta: &str,
        metadata: Option<Object>,
        out: &mut Vec<Event>,
    ) -> Result<(), ReadError> {
        let Some(open) = self.thoughts.get_mut(id) else {
            self.tally.note("out of order", "reasoning-delta of a part that is not open");
            self.thought_start(id, Facts::default(), out)?;
            return self.thought_delta(id, delta, metadata, out);
        };
        let (message, subagent) = (open.message.clone(), open.subagent.clone());
        if !std::mem::replace(&mut open.begun, true) {
            let start = Body::ReasoningMessageStart { message: message.clone() };
            out.push(Event::new(start).by(subagent.clone()).with_metadata(open.metadata.take()));
        }
        let delta = Event::new(Body::ReasoningDelta { message, delta: delta.into() });
        out.push(delta.by(subagent).with_metadata(metadata));
        Ok(())
    }

    pub(super) fn thought_end(&mut self, id: &str, facts: Facts, out: &mut Vec<Event>) {
        let Some(Open { message, subagent, mut begun, metadata }) = self.thoughts.remove(id) else {
            return self.tally.note("out of order", "reasoning-end of a part that is not open");
        };
        // Reasoning that cannot be read is told by what its provider says about it.
        if !begun && (metadata.is_some() || facts.metadata.is_some()) {
            begun = true;
            let start = Event::new(Body::ReasoningMessageStart { message: message.clone() });
            out.push(start.by(subagent.clone()).with_metadata(metadata));
        }
        if begun {
            let end = Event::new(Body::ReasoningMessageEnd { message: message.clone() });
            out.push(end.by(subagent.clone()).with_metadata(facts.metadata));
        }
        let mut say = |body| out.push(Event::new(body).by(subagent.clone()));
        if let Some(value) = facts.encrypted {
            let entity = EncryptedEntity::Message(message.clone());
            say(Body::ReasoningEncrypted { entity, value });
        }
        say(Body::ReasoningEnd { message });
    }

    /// Ends a text part if it is open.
    pub(super) fn end_text(&mut self, id: &str, out: &mut Vec<Event>) {
        if self.is_talking(id) {
            self.text_end(id, Facts::default(), out);
        }
    }

    /// Ends a reasoning part if it is open.
    pub(super) fn end_thought(&mut self, id: &str, out: &mut Vec<Event>) {
        if self.is_thinking(id) {
            self.thought_end(id, Facts::default(), out);
        }
    }

    /// Whether a reasoning part of that id is open.
    pub(super) fn is_thinking(&self, id: &str) -> bool {
        self.thoughts.contains_key(id)
    }

    /// Whether a text part of that id is open.
    pub(super) fn is_talking(&self, id: &str) -> bool {
        self.texts.contains_key(id)
    }

    /// The message of an open reasoning part.
    pub(super) fn thought(&self, id: &str) -> Option<MessageId> {
        self.thoughts.get(id).map(|open| open.message.clone())
    }

    /// Ends all texts and thoughts.
    pub(super) fn quiet(&mut self, out: &mut Vec<Event>) {
        let mut texts: Vec<_> = self.texts.keys().cloned().collect();
        texts.sort_unstable();
        for id in texts {
            self.text_end(&id, Facts::default(), out);
        }
        let mut thoughts: Vec<_> = self.thoughts.keys().cloned().collect();
        thoughts.sort_unstable();
        for id in thoughts {
            self.thought_end(&id, Facts::default(), out);
        }
    }

    // Steps.

    /// A step begins, and says which message it is part of, if it does.
    pub(super) fn step_start(&mut self, message: Option<&str>, out: &mut Vec<Event>) {
        if self.step_open {
            self.step_finish(out);
        }
        self.holder = None;
        self.steps += 1;
        self.step_open = true;
        // Our own writer names the steps of the source in data parts; the others are its own doing.
        if !self.own {
            let mut metadata = wire::with_own(None, OWN_UNNAMED, wire::yes());
            if let Some(message) = message.filter(|message| !self.named || *message != self.base()) {
                metadata = wire::with_own(Some(metadata), OWN_MESSAGE, Json::string(message));
            }
            let started = Event::new(Body::StepStarted { name: self.step_name() });
            out.push(started.with_metadata(Some(metadata)));
        }
    }

    pub(super) fn step_finish(&mut self, out: &mut Vec<Event>) {
        self.quiet(out);
        self.leave_step(out);
    }

    /// The step ends, and its text goes on in the next one.
    pub(super) fn leave_step(&mut self, out: &mut Vec<Event>) {
        self.holder = None;
        if std::mem::take(&mut self.step_open) && !self.own {
            out.push(Event::new(Body::StepFinished { name: self.step_name() }));
        }
    }

    /// A node of the letter dialect begins.
    pub(super) fn node_started(&mut self, id: String, name: Box<str>) {
        if self.nodes.len() < MAX_OPEN {
            self.nodes.insert(id.into(), name);
        }
    }

    /// The name of a node of the letter dialect that ends.
    pub(super) fn node_finished(&mut self, id: &str) -> Option<Box<str>> {
        self.nodes.shift_remove(id)
    }

    fn step_name(&self) -> Box<str> {
        format!("step-{}", self.steps).into()
    }

    // Tools.

    pub(super) fn tool_start(&mut self, call: &ToolCallId, name: &str, facts: &Facts, out: &mut Vec<Event>) {
        if self.calls.get(call).is_some_and(|call| call.open) {
            return self.tally.note("out of order", "tool-input-start of an open call");
        }
        self.forget_calls();
        let state = Call { open: true, subagent: facts.subagent.clone(), ..Call::default() };
        self.calls.insert(call.clone(), state);
        let parent = facts.message.clone().or_else(|| self.holder.clone());
        let start = Body::ToolStart { call: call.clone(), name: name.into(), parent };
        out.push(Event::new(start).by(facts.subagent.clone()).with_metadata(facts.metadata.clone()));
    }

    pub(super) fn tool_delta(&mut self, call: &ToolCallId, delta: &str, out: &mut Vec<Event>) {
        let Some(state) = self.calls.get_mut(call).filter(|state| state.open) else {
            return self.tally.note("out of order", "tool-input-delta of a call that is not open");
        };
        if state.text.len() + delta.len() <= MAX_ARGUMENTS {
            state.text.push_str(delta);
        }
        let body = Body::ToolArgs { call: call.clone(), delta: delta.into() };
        out.push(Event::new(body).by(state.subagent.clone()));
    }

    /// The arguments are complete; they are told whole if they did not stream.
    pub(super) fn tool_call(
        &mut self,
        call: &ToolCallId,
        name: &str,
        input: Option<&Json>,
        mut facts: Facts,
        out: &mut Vec<Event>,
    ) {
        if !self.calls.get(call).is_some_and(|call| call.open) {
            self.tool_start(call, name, &facts, out);
            facts.metadata = None;
        }
        // Its start has said so.
        facts.metadata = facts.metadata.and_then(|told| wire::without_own(&told, &[own_call::PART]));
        let Some(state) = self.calls.get_mut(call) else { return };
        state.open = false;
        let subagent = state.subagent.clone();
        let mut say = |body| out.push(Event::new(body).by(subagent.clone()));
        let mut text = std::mem::take(&mut state.text);
        if let Some(input) = input {
            if text.is_empty() {
                text = wire::arguments_from(input);
                if !text.is_empty() {
                    say(Body::ToolArgs { call: call.clone(), delta: text.as_str().into() });
                }
            }
            if wire::arguments(&text) != *input {
                facts.metadata = Some(wire::with_own(facts.metadata, own_call::INPUT, input.clone()));
            }
        }
        if let Some(value) = facts.encrypted {
            say(Body::ReasoningEncrypted { entity: EncryptedEntity::ToolCall(call.clone()), value });
        }
        let end = Event::new(Body::ToolEnd { call: call.clone() });
        out.push(end.by(subagent).with_metadata(facts.metadata));
    }

    /// The provider runs this call: nobody waits for it.
    pub(super) fn remote_call(&mut self, call: &ToolCallId) {
        if let Some(state) = self.calls.get_mut(call) {
            state.remote = true;
        }
    }

    /// An output, which the canonical model has only as text.
    pub(super) fn tool_output(
        &mut self,
        call: &ToolCallId,
        output: &Json,
        mut metadata: Option<Object>,
        out: &mut Vec<Event>,
    ) {
        let content = wire::content_from(output);
        if let Some(kind) = wire::kind_of(output, &wire::output(&content)) {
            metadata = Some(wire::with_own(metadata, OWN_OUTPUT, Json::string(kind)));
        }
        self.tool_result(call, content, None, metadata, out);
    }

    pub(super) fn tool_result(
        &mut self,
        call: &ToolCallId,
        content: Content,
        error: Option<Box<str>>,
        metadata: Option<Object>,
        out: &mut Vec<Event>,
    ) {
        if self.calls.get(call).is_some_and(|state| state.open) {
            self.tool_call(call, "", None, Facts::default(), out);
        }
        let mut subagent = None;
        match self.calls.get_mut(call) {
            Some(state) => {
                state.answered = true;
                subagent = state.subagent.clone();
            }
            None => self.tally.note("out of order", "a result without its call"),
        }
        self.interrupts.retain(|_, interrupt| interrupt.tool_call.as_ref() != Some(call));
        let result = ToolResult {
            message: wire::result_id(call).into(),
            call: call.clone(),
            content,
            error,
            explicit_role: true,
        };
        let event = Event::new(Body::ToolResult(Box::new(result)));
        out.push(event.by(subagent).with_metadata(metadata));
    }

    /// The arguments of a call cannot be used.
    pub(super) fn bad_input(&mut self, call: &ToolCallId, error: Box<str>, out: &mut Vec<Event>) {
        self.tool_result(call, (*error).into(), Some(error), None, out);
        if let Some(state) = self.calls.get_mut(call) {
            state.failed = true;
        }
    }

    /// Whether the error of this call was told as one of its arguments.
    pub(super) fn has_failed(&self, call: &ToolCallId) -> bool {
        self.calls.get(call).is_some_and(|state| state.failed)
    }

    pub(super) fn denied(&mut self, call: &ToolCallId, out: &mut Vec<Event>) {
        let mut metadata = wire::with_own(None, "denied", wire::yes());
        let asked = self.interrupts.values().find(|it| it.tool_call.as_ref() == Some(call));
        if let Some(asked) = asked {
            metadata = wire::with_own(Some(metadata), OWN_APPROVAL, Json::string(&asked.id));
        }
        self.tool_result(call, wire::DENIED.into(), Some(wire::DENIED.into()), Some(metadata), out);
    }

    /// Forgets the older half of the calls once there are too many.
    fn forget_calls(&mut self) {
        if self.calls.len() >= MAX_CALLS {
            self.calls.drain(..MAX_CALLS / 2);
        }
    }

    // Interrupts.

    pub(super) fn interrupt(&mut self, interrupt: Interrupt) {
        if self.interrupts.len() >= MAX_INTERRUPTS {
            return self.tally.note("too many", "interrupts");
        }
        self.interrupts.entry(interrupt.id.clone()).or_insert(interrupt);
    }

    /// The answer came in the same response.
    pub(super) fn answered(&mut self, interrupt: &str) {
        self.interrupts.shift_remove(interrupt);
    }

    // Metadata.

    /// Metadata of the message: what is not understood is told.
    pub(super) fn metadata(&mut self, metadata: Json, out: &mut Vec<Event>) {
        if let Some(news) = self.understand(metadata) {
            self.custom(wire::MESSAGE_METADATA, news, None, out);
        }
    }

    /// Metadata of the message: ours is understood, usage is kept for the end, the rest comes back.
    fn understand(&mut self, metadata: Json) -> Option<Json> {
        let Some(object) = metadata.clone().into_object() else {
            return (!metadata.is_null()).then_some(metadata);
        };
        let value = object.to_value();
        let own = &value[AGENTWIRE];
        let detailed = own["usage"].as_array().map(|list| list.iter().filter_map(wire::usage_from).collect());
        let plain = ["usage", "totalUsage"].iter().find_map(|key| wire::usage_from(&value[*key]));
        if let Some(usage) = detailed.or_else(|| plain.map(|usage| vec![usage])) {
            self.usage = usage;
        }
        let text = |key: &str| own[key].as_str().map(Box::from);
        self.native_reason = text("finishReason").or(self.native_reason.take());
        self.error_code = text("errorCode").or(self.error_code.take());
        if let Some(result) = own.get("result").filter(|it| !it.is_null()) {
            self.result = Some(Json::from(result));
        }
        if let Some(pending) = own["pendingToolCallIds"].as_array() {
            self.pending = pending.iter().filter_map(Value::as_str).map(Into::into).collect();
        }
        let mut rest = object.without(AGENTWIRE);
        if self.own {
            rest = rest.without("usage").without("finishReason");
        }
        (!rest.is_empty()).then(|| rest.into())
    }

    pub(super) fn custom(&mut self, name: &str, value: Json, metadata: Option<Object>, out: &mut Vec<Event>) {
        let body = Body::Custom { name: name.into(), value };
        out.push(Event::new(body).with_metadata(metadata));
    }

    // Ending.

    pub(super) fn add_usage(&mut self, usage: Usage) {
        self.usage = vec![usage];
    }

    pub(super) fn reason(&mut self, reason: &str) {
        self.reason = Some(reason.into());
    }

    pub(super) fn finish(&mut self, out: &mut Vec<Event>) {
        if std::mem::replace(&mut self.ended, true) {
            return;
        }
        self.close(out);
        let reason = match (self.native_reason.take(), self.reason.take()) {
            (Some(native), _) => Some(native),
            // Our writer always gives a reason; only one that the source gave is news.
            (None, told) => told.filter(|_| !self.own),
        };
        let waiting = reason.as_deref() == Some("tool-calls");
        if let Some(reason) = reason {
            out.push(Event::new(Body::FinishReason { message: None, reason }));
        }
        let outcome = if !self.interrupts.is_empty() {
            let interrupts = self.interrupts.drain(..).map(|(_, interrupt)| interrupt).collect();
            Some(Outcome::Interrupt { interrupts })
        } else if !self.pending.is_empty() {
            Some(Outcome::Success { pending: std::mem::take(&mut self.pending) })
        } else if waiting && !self.own {
            let open = self.calls.iter().filter(|(_, call)| !call.answered && !call.remote);
            let pending: Vec<_> = open.map(|(id, _)| id.clone()).collect();
            (!pending.is_empty()).then_some(Outcome::Success { pending })
        } else {
            None
        };
        self.finished(outcome, out);
    }

    fn finished(&mut self, outcome: Option<Outcome>, out: &mut Vec<Event>) {
        let mut finished = RunFinished::new(self.thread.clone(), self.run.clone());
        finished.outcome = outcome;
        finished.result = self.result.take();
        finished.usage = std::mem::take(&mut self.usage);
        out.push(Event::new(Body::RunFinished(Box::new(finished))));
    }

    pub(super) fn abort(&mut self, out: &mut Vec<Event>) {
        if !std::mem::replace(&mut self.ended, true) {
            self.close(out);
            self.finished(Some(Outcome::Cancelled), out);
        }
    }

    pub(super) fn error(&mut self, message: &str, out: &mut Vec<Event>) {
        if !std::mem::replace(&mut self.ended, true) {
            self.close(out);
            let mut error = RunError::new(message, self.error_code.as_deref());
            error.usage = std::mem::take(&mut self.usage);
            out.push(Event::new(Body::RunError(Box::new(error))));
        }
    }

    /// An error after which the run may go on: it is the run's own if nothing follows.
    pub(super) fn maybe_error(&mut self, message: &str) {
        self.maybe_error = Some(message.into());
    }

    /// Whether a response that ends here may have said everything: a text of the data stream has no end.
    pub(super) fn is_settled(&self) -> bool {
        let quiet = self.texts.keys().all(|id| id.is_empty()) && self.thoughts.keys().all(|id| id.is_empty());
        let open = self.step_open || !self.nodes.is_empty() || self.calls.values().any(|call| call.open);
        self.started && !self.own && !self.dialect && quiet && !open
    }

    /// Something follows.
    pub(super) fn not_the_end(&mut self, out: &mut Vec<Event>) {
        if let Some(message) = self.maybe_error.take() {
            self.custom("error", Json::string(&message), None, out);
        }
    }

    /// Nothing follows.
    pub(super) fn end(&mut self, out: &mut Vec<Event>) {
        if let Some(message) = self.maybe_error.take() {
            self.error(&message, out);
        }
    }

    fn close(&mut self, out: &mut Vec<Event>) {
        self.quiet(out);
        let open: Vec<_> =
            self.calls.iter().filter(|(_, call)| call.open).map(|(id, _)| id.clone()).collect();
        for call in open {
            self.tool_call(&call, "", None, Facts::default(), out);
        }
        if self.step_open {
            self.step_finish(out);
        }
    }
}

fn too_many(what: &str) -> ReadError {
    ReadError::new("/id", format!("expected at most {MAX_OPEN} open {what} parts"))
}
