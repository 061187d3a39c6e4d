//! What a response means, whatever the spelling of its chunks.

mod terminal;
mod text_parts;
mod tool_calls;

use std::collections::HashMap;

use indexmap::IndexMap;
use serde_json::Value;

use super::{
    decode,
    metadata::{self, ReceivedMetadata},
};
use crate::{
    event::{
        Body, Event, Interner, Interrupt, InterruptId, MessageId, RunId, RunStarted, SubagentId, ThreadId,
        ToolCallId, Usage,
    },
    format::{
        Setup,
        ai_sdk::wire::{self, AGENTWIRE, native},
    },
    json::{Json, Object},
    tally::Tally,
};

/// The most parts of one kind that may be open at once, as many as the order guard allows.
const MAX_OPEN: usize = 16_384;

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
    /// A server refused it by itself: the approval that it asked itself for, and why.
    refused: Option<(InterruptId, Option<Box<str>>)>,
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
        let news = metadata.and_then(|metadata| self.understand(metadata, false));
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
            metadata = Some(metadata::with_native(metadata, native::MESSAGE_ID, Json::string(message)));
        }
        if let Some(about) = self.about.take() {
            metadata = Some(metadata::with_native(metadata, native::MESSAGE_METADATA, about.into()));
        }
        let started = RunStarted::new(self.thread.clone(), self.run.clone());
        out.push(Event::new(Body::RunStarted(Box::new(started))).with_metadata(metadata));
    }

    pub(super) fn base(&self) -> &str {
        self.base.as_deref().unwrap_or(&self.run)
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
            let mut metadata = metadata::with_native(None, native::UNNAMED, metadata::json_true());
            if let Some(message) = message.filter(|message| !self.named || *message != self.base()) {
                metadata = metadata::with_native(Some(metadata), native::MESSAGE_ID, Json::string(message));
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

    // Metadata.

    /// Metadata of the message: what is not understood is told.
    pub(super) fn metadata(&mut self, metadata: Json, out: &mut Vec<Event>) {
        let ours = metadata.clone().into_object().is_some_and(|it| it.member(AGENTWIRE).is_some());
        if let Some(news) = self.understand(metadata, ours) {
            self.custom(wire::MESSAGE_METADATA, news, None, out);
        }
    }

    /// Metadata that came with the end.
    pub(super) fn last_metadata(&mut self, metadata: Json, out: &mut Vec<Event>) {
        if let Some(news) = self.understand(metadata, true) {
            self.custom(wire::MESSAGE_METADATA, news, None, out);
        }
    }

    /// Metadata of the message: ours is understood, usage is kept for the end, the rest comes back. Where our own writer
    /// speaks, usage and reason are in it for everybody's sake; elsewhere they are the application's.
    fn understand(&mut self, metadata: Json, ours: bool) -> Option<Json> {
        let Some(object) = metadata.clone().into_object() else {
            return (!metadata.is_null()).then_some(metadata);
        };
        let value = object.to_value();
        let own = &value[AGENTWIRE];
        let detailed =
            own["usage"].as_array().map(|list| list.iter().filter_map(decode::read_usage).collect());
        let plain = ["usage", "totalUsage"].iter().find_map(|key| decode::read_usage(&value[*key]));
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
        if self.own && ours {
            rest = rest.without("usage").without("finishReason");
        }
        (!rest.is_empty()).then(|| rest.into())
    }

    pub(super) fn custom(&mut self, name: &str, value: Json, metadata: Option<Object>, out: &mut Vec<Event>) {
        let body = Body::Custom { name: name.into(), value };
        out.push(Event::new(body).with_metadata(metadata));
    }
}
