//! Converts decoded chunks to canonical events, independent of the protocol.

mod terminal;
mod text_parts;
mod tool_calls;

use std::collections::HashMap;

use indexmap::IndexMap;
use serde_json::Value;

use self::{terminal::ResponseEnd, text_parts::TextParts, tool_calls::ReadToolCalls};
use super::{
    decode,
    metadata::{self, ReceivedMetadata, agentwire_member},
};
use crate::{
    event::{Body, Event, Interner, MessageId, RunId, RunStarted, ThreadId},
    format::{
        Setup,
        ai_sdk::wire::{self, AGENTWIRE, native},
    },
    json::{Json, Object},
    tally::Tally,
};

/// Limit of open parts of one kind, the same as in the order guard.
const MAX_OPEN: usize = 16_384;

/// Limit of remembered collaborations, the same as in the writer; beyond it a collaboration starts again.
const MAX_COLLABORATIONS: usize = 4096;

/// Builds canonical events.
#[derive(Debug)]
pub(super) struct EventBuilder {
    pub(super) tally: Tally,
    pub(super) ids: Interner,
    response: ResponseInfo,
    text_parts: TextParts,
    steps: ReadSteps,
    tools: ReadToolCalls,
    end: ResponseEnd,
    file_count: u64,
    /// Collaborations by id: number of tasks so far, and true once ended.
    collaborations: HashMap<Box<str>, (usize, bool)>,
}

/// The response and its UI message.
#[derive(Debug)]
struct ResponseInfo {
    thread: ThreadId,
    run: RunId,
    /// Id of the UI message; generated ids derive from it.
    message_id: Option<Box<str>>,
    /// RUN_STARTED contained the message id.
    is_message_named: bool,
    /// Message metadata of the start.
    start_metadata: Option<Object>,
    is_started: bool,
    is_ended: bool,
    /// agentwire wrote this stream.
    is_from_agentwire: bool,
    /// The stream is in the LangChain dialect, which has an explicit end.
    is_dialect: bool,
}

/// Steps of the response.
#[derive(Debug, Default)]
struct ReadSteps {
    count: u64,
    is_open: bool,
    /// Text message of the current step; it is the parent of the step's calls.
    parent: Option<MessageId>,
    /// Open nodes of the LangChain dialect: names by id.
    nodes: IndexMap<Box<str>, Box<str>>,
}

impl EventBuilder {
    pub(super) fn new(setup: &Setup<'_>) -> Self {
        Self {
            tally: Tally::default(),
            ids: Interner::default(),
            response: ResponseInfo {
                thread: setup.thread.clone(),
                run: setup.run.clone(),
                message_id: None,
                is_message_named: false,
                start_metadata: None,
                is_started: false,
                is_ended: false,
                is_from_agentwire: false,
                is_dialect: false,
            },
            text_parts: TextParts::default(),
            steps: ReadSteps::default(),
            tools: ReadToolCalls::default(),
            end: ResponseEnd::default(),
            file_count: 0,
            collaborations: HashMap::new(),
        }
    }

    // Start.

    /// Sets the id of the UI message, unless it is already known.
    pub(super) fn set_message_id(&mut self, id: &str) {
        if self.response.message_id.is_none() {
            self.response.message_id = Some(id.into());
        }
    }

    /// Marks the stream as written by agentwire, for the given run.
    pub(super) fn set_agentwire_run(&mut self, thread: Option<String>, run: Option<String>) {
        if self.response.is_started {
            return;
        }
        if let (Some(thread), Some(run)) = (thread, run) {
            self.response.is_from_agentwire = true;
            self.response.thread = thread.into();
            self.response.run = run.into();
        }
    }

    pub(super) fn is_from_agentwire(&self) -> bool {
        self.response.is_from_agentwire
    }

    /// Marks the stream as one of the LangChain dialect.
    pub(super) fn set_dialect(&mut self) {
        self.response.is_dialect = true;
    }

    /// Starts the response with the metadata of its message.
    ///
    /// The metadata is attached to RUN_STARTED, so that a writer can start with it too, and emitted as a CUSTOM event, for
    /// consumers that do not read it there.
    pub(super) fn start(&mut self, metadata: Option<Json>, out: &mut Vec<Event>) {
        let rest = metadata.and_then(|metadata| self.consume_metadata(metadata, false));
        if !self.response.is_started {
            self.response.start_metadata = rest.clone().and_then(Json::into_object);
        } else if !self.response.is_message_named {
            self.tally.note("not expressible", "the name of a message that has begun");
        }
        self.ensure_started(None, out);
        if let Some(rest) = rest {
            self.custom(wire::MESSAGE_METADATA, rest, None, out);
        }
    }

    /// Emits RUN_STARTED, unless that was done before.
    pub(super) fn ensure_started(&mut self, mut metadata: Option<Object>, out: &mut Vec<Event>) {
        let response = &mut self.response;
        if response.is_started {
            return;
        }
        response.is_started = true;
        response.is_message_named = response.message_id.is_some();
        // A message without an id of its own has that of the run.
        if let Some(id) = response.message_id.as_deref().filter(|id| *id != response.run.as_str()) {
            metadata = Some(metadata::with_native(metadata, native::MESSAGE_ID, Json::string(id)));
        }
        if let Some(start) = response.start_metadata.take() {
            metadata = Some(metadata::with_native(metadata, native::MESSAGE_METADATA, start.into()));
        }
        let started = RunStarted::new(response.thread.clone(), response.run.clone());
        out.push(Event::new(Body::RunStarted(Box::new(started))).with_metadata(metadata));
    }

    /// Id from which generated ids derive.
    fn base_id(&self) -> &str {
        self.response.message_id.as_deref().unwrap_or(&self.response.run)
    }

    /// Generates the id of the next file or source.
    pub(super) fn next_file_id(&mut self, kind: &str) -> String {
        self.file_count += 1;
        decode::derived_id(self.base_id(), kind, self.file_count)
    }

    // Steps.

    /// Starts a step; `message` is the id of the message that it belongs to, if the chunk contains one.
    pub(super) fn step_start(&mut self, message: Option<&str>, out: &mut Vec<Event>) {
        if self.steps.is_open {
            self.step_finish(out);
        }
        self.steps.parent = None;
        self.steps.count += 1;
        self.steps.is_open = true;
        // agentwire's writer sends the steps of the source as data parts; other steps in its streams carry no information.
        if !self.response.is_from_agentwire {
            let mut metadata = metadata::with_native(None, native::UNNAMED, metadata::json_true());
            let is_news = |id: &&str| !self.response.is_message_named || *id != self.base_id();
            if let Some(id) = message.filter(is_news) {
                metadata = metadata::with_native(Some(metadata), native::MESSAGE_ID, Json::string(id));
            }
            let started = Event::new(Body::StepStarted { name: self.step_name() });
            out.push(started.with_metadata(Some(metadata)));
        }
    }

    pub(super) fn step_finish(&mut self, out: &mut Vec<Event>) {
        self.end_all_text(out);
        self.step_finish_keeping_text(out);
    }

    /// Finishes the step without ending its text, which continues in the next step.
    pub(super) fn step_finish_keeping_text(&mut self, out: &mut Vec<Event>) {
        self.steps.parent = None;
        if std::mem::take(&mut self.steps.is_open) && !self.response.is_from_agentwire {
            out.push(Event::new(Body::StepFinished { name: self.step_name() }));
        }
    }

    /// Adds an open node of the LangChain dialect.
    pub(super) fn node_started(&mut self, id: String, name: Box<str>) {
        if self.steps.nodes.len() < MAX_OPEN {
            self.steps.nodes.insert(id.into(), name);
        }
    }

    /// Removes a node of the LangChain dialect and returns its name.
    pub(super) fn node_finished(&mut self, id: &str) -> Option<Box<str>> {
        self.steps.nodes.shift_remove(id)
    }

    fn step_name(&self) -> Box<str> {
        format!("step-{}", self.steps.count).into()
    }

    // Metadata.

    /// Reads message metadata; emits the members without a canonical equivalent.
    pub(super) fn message_metadata(&mut self, metadata: Json, out: &mut Vec<Event>) {
        let is_ours = agentwire_member(metadata.clone().into_object().as_ref()).is_some();
        self.emit_metadata(metadata, is_ours, out);
    }

    /// Reads the message metadata of the end.
    pub(super) fn final_metadata(&mut self, metadata: Json, out: &mut Vec<Event>) {
        self.emit_metadata(metadata, true, out);
    }

    fn emit_metadata(&mut self, metadata: Json, is_ours: bool, out: &mut Vec<Event>) {
        if let Some(rest) = self.consume_metadata(metadata, is_ours) {
            self.custom(wire::MESSAGE_METADATA, rest, None, out);
        }
    }

    /// Stores agentwire's members and usage for the end; returns the rest. agentwire's writer adds usage and finish reason
    /// for all clients, so they are removed from its streams; elsewhere they belong to the application.
    fn consume_metadata(&mut self, metadata: Json, is_ours: bool) -> Option<Json> {
        let Some(object) = metadata.clone().into_object() else {
            return (!metadata.is_null()).then_some(metadata);
        };
        let value = object.to_value();
        let members = &value[AGENTWIRE];
        let entries =
            members["usage"].as_array().map(|list| list.iter().filter_map(decode::read_usage).collect());
        let total = ["usage", "totalUsage"].iter().find_map(|key| decode::read_usage(&value[*key]));
        if let Some(usage) = entries.or_else(|| total.map(|usage| vec![usage])) {
            self.end.usage = usage;
        }
        let text = |key: &str| members[key].as_str().map(Box::from);
        self.end.native_reason = text("finishReason").or(self.end.native_reason.take());
        self.end.error_code = text("errorCode").or(self.end.error_code.take());
        if let Some(result) = members.get("result").filter(|it| !it.is_null()) {
            self.end.result = Some(Json::from(result));
        }
        if let Some(pending) = members["pendingToolCallIds"].as_array() {
            self.end.pending = pending.iter().filter_map(Value::as_str).map(Into::into).collect();
        }
        let mut rest = object.without(AGENTWIRE);
        if self.response.is_from_agentwire && is_ours {
            rest = rest.without("usage").without("finishReason");
        }
        (!rest.is_empty()).then(|| rest.into())
    }

    pub(super) fn custom(&mut self, name: &str, value: Json, metadata: Option<Object>, out: &mut Vec<Event>) {
        let body = Body::Custom { name: name.into(), value };
        out.push(Event::new(body).with_metadata(metadata));
    }

    // Collaborations.

    /// Number of tasks so far and true once ended; `None` for a new collaboration.
    pub(super) fn collaboration(&self, id: &str) -> Option<(usize, bool)> {
        self.collaborations.get(id).copied()
    }

    pub(super) fn set_collaboration(&mut self, id: &str, tasks: usize, is_ended: bool) {
        if self.collaborations.len() >= MAX_COLLABORATIONS {
            self.collaborations.clear();
        }
        self.collaborations.insert(id.into(), (tasks, is_ended));
    }
}
