//! One response: converts canonical events to the parts of one assistant message.
//!
//! A run may contain many messages, nested steps and parallel agents; a response of the AI SDK is one message whose parts
//! lie in flat steps. The conversion follows these rules, each of which some client enforces:
//!
//! * A step starts with its first part, so that a call without a result stays in the *last* step: clients look there before
//!   they send automatically.
//! * Text and reasoning never span steps: they are ended and started again.
//! * A step does not end while the arguments of a call are streaming (newer clients would create a second part).
//! * Content after a tool result starts a new step, as it does in the SDK, so that the history keeps its order. If the
//!   source is an AI SDK server, its steps are used instead.
//! * A result is written after its call is complete, and never without a call in the message.
//! * A part starts with its first character: an empty message must not show an empty bubble.
//!
//! The phases of a response are in [`start`], [`steps`] and [`finish`]; its parts are written in [`speech`], [`tools`] and
//! [`data_parts`]. This file dispatches the events.

mod data_parts;
mod finish;
mod speech;
mod start;
mod steps;
mod tools;

use serde_json::Value;

use self::{data_parts::DataParts, speech::Speech, steps::Steps, tools::Tools};
use super::{
    encode,
    part_metadata::{self, PartMetadata},
    snapshot::SeenMessages,
    tool_calls::{ResultOfCall, WrittenToolCall},
};
use crate::{
    event::{
        Body, Citation, Event, File, Interrupt, Message, MessageId, Role, RunError, RunId, RunInput,
        SubagentOutcome, ThreadId, ToolCallId, Usage,
    },
    format::{
        Fidelity, Setup, Writer,
        ai_sdk::{
            options::WriterOptions,
            wire::{STATE_ID, data_part},
        },
    },
    framing::Frames,
    json::{Json, Object},
};

/// Encodes the parts that [`ResponseWriter`] decides on.
pub(super) trait PartEncoder: Send {
    /// A step holds only one reasoning part; another one needs a step of its own.
    const ONE_REASONING_PER_STEP: bool;

    fn start(&mut self, out: &mut Frames, start: &ResponseStart<'_>);
    fn start_step(&mut self, out: &mut Frames, message: &str);
    fn finish_step(&mut self, out: &mut Frames, reason: &'static str);
    fn text_start(&mut self, out: &mut Frames, message: &MessageId, metadata: &PartMetadata);
    fn text_delta(&mut self, out: &mut Frames, message: &MessageId, delta: &str);
    /// `metadata` is present if it changed since the start.
    fn text_end(&mut self, out: &mut Frames, message: &MessageId, metadata: Option<&PartMetadata>);
    fn reasoning_start(&mut self, out: &mut Frames, message: &MessageId, metadata: &PartMetadata);
    fn reasoning_delta(&mut self, out: &mut Frames, message: &MessageId, delta: &str);
    fn reasoning_end(&mut self, out: &mut Frames, message: &MessageId, metadata: Option<&PartMetadata>);
    fn tool_start(&mut self, out: &mut Frames, call: &WrittenToolCall);
    fn tool_delta(&mut self, out: &mut Frames, id: &ToolCallId, delta: &str);
    fn tool_input(&mut self, out: &mut Frames, call: &WrittenToolCall, input: &Json);
    /// A call with invalid arguments, which clients must not run.
    fn tool_input_error(&mut self, out: &mut Frames, call: &WrittenToolCall, input: &Json, error: &str);
    fn tool_output(
        &mut self,
        out: &mut Frames,
        call: &WrittenToolCall,
        output: &Json,
        metadata: &PartMetadata,
    );
    fn tool_error(&mut self, out: &mut Frames, call: &WrittenToolCall, error: &str);
    fn tool_denied(&mut self, out: &mut Frames, call: &WrittenToolCall, error: &str);
    /// A preliminary output; returns false if the protocol cannot mark it as preliminary.
    fn tool_progress(&mut self, out: &mut Frames, call: &WrittenToolCall, output: &Json) -> bool;
    /// Returns true if the protocol has approval requests.
    fn has_approvals(&self) -> bool;
    fn approval_request(&mut self, out: &mut Frames, interrupt: &Interrupt, call: &ToolCallId);
    fn data(&mut self, out: &mut Frames, name: &str, id: Option<&str>, data: &Json, transient: bool);
    fn message_metadata(&mut self, out: &mut Frames, metadata: &Json);
    fn annotation(&mut self, out: &mut Frames, value: &Json);
    /// Returns true if the protocol has provider-specific parts.
    fn has_provider_parts(&self) -> bool;
    fn provider_part(&mut self, out: &mut Frames, kind: &str, metadata: Option<&Json>);
    /// `providers` is the metadata of model providers.
    fn source(
        &mut self,
        out: &mut Frames,
        source: &Citation,
        detail: Option<&Json>,
        providers: Option<Object>,
    );
    /// Returns false if the protocol has no part for the file.
    fn file(&mut self, out: &mut Frames, file: &File, metadata: &PartMetadata) -> bool;
    fn finish(&mut self, out: &mut Frames, finish: &ResponseFinish<'_>);
    fn abort(&mut self, out: &mut Frames);
    fn error(&mut self, out: &mut Frames, error: &RunError);
    /// Ends the stream.
    fn end(&mut self, out: &mut Frames);
}

/// Data of the start of a response.
pub(super) struct ResponseStart<'s> {
    pub(super) message: &'s str,
    pub(super) thread: &'s ThreadId,
    pub(super) run: &'s RunId,
    /// Metadata of the run.
    pub(super) run_metadata: Option<&'s Object>,
    /// Metadata of the message.
    pub(super) message_metadata: Option<&'s Object>,
}

/// Data of the end of a response.
pub(super) struct ResponseFinish<'f> {
    pub(super) reason: &'static str,
    /// The reason in the source's spelling, if it gave one.
    pub(super) native_reason: Option<&'f str>,
    pub(super) usage: &'f [Usage],
    pub(super) result: Option<&'f Json>,
    pub(super) pending: &'f [ToolCallId],
    pub(super) app: AppMetadata,
}

/// Members of the application's message metadata that agentwire must not overwrite.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct AppMetadata {
    pub(super) has_usage: bool,
    pub(super) has_finish_reason: bool,
}

impl AppMetadata {
    fn observe(&mut self, metadata: &Object) {
        self.has_usage |= metadata.member("usage").is_some();
        self.has_finish_reason |= metadata.member("finishReason").is_some();
    }
}

/// The message that is built, and the run that builds it.
#[derive(Debug)]
struct ResponseMessage {
    thread: ThreadId,
    run: RunId,
    id: Box<str>,
    /// Metadata that the start contained, until the source repeats it.
    start_metadata: Option<Object>,
    app: AppMetadata,
    is_started: bool,
    is_ended: bool,
    finish_reason: Option<Box<str>>,
}

/// State machine of one response.
#[derive(Debug)]
pub(super) struct ResponseWriter<E> {
    encoder: E,
    options: WriterOptions,
    /// The request of this response, for sources that do not echo it.
    request: Option<Box<RunInput>>,
    message: ResponseMessage,
    steps: Steps,
    speech: Speech,
    tools: Tools,
    seen: SeenMessages,
    data_parts: DataParts,
    /// Keys that the client's parser refuses were removed from the current event.
    has_removed_keys: bool,
}

impl<E: PartEncoder> ResponseWriter<E> {
    pub(super) fn new(encoder: E, setup: &Setup<'_>, options: WriterOptions) -> Self {
        Self {
            encoder,
            options,
            request: setup.options.request().cloned().map(Box::new),
            message: ResponseMessage {
                thread: setup.thread.clone(),
                run: setup.run.clone(),
                id: Box::default(),
                start_metadata: None,
                app: AppMetadata::default(),
                is_started: false,
                is_ended: false,
                finish_reason: None,
            },
            steps: Steps::default(),
            speech: Speech::default(),
            tools: Tools::default(),
            seen: SeenMessages::default(),
            data_parts: DataParts::default(),
            has_removed_keys: false,
        }
    }

    fn write_event(&mut self, event: &Event, out: &mut Frames) -> Fidelity {
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
                self.speech.open_spans += 1;
                self.speech.title = title.clone();
                Fidelity::Exact
            }
            Body::ReasoningEnd { .. } => {
                self.speech.open_spans = self.speech.open_spans.saturating_sub(1);
                self.speech.title = None;
                Fidelity::Exact
            }
            Body::ReasoningMessageStart { .. }
            | Body::ReasoningDelta { .. }
            | Body::ReasoningMessageEnd { .. }
            | Body::ReasoningEncrypted { .. }
                if self.options.reasoning == Some(false) && !self.speech.by_hand.has(event) =>
            {
                Fidelity::Dropped("reasoning=manual")
            }
            Body::ReasoningMessageStart { message } => {
                self.reasoning_message_start(message, event);
                Fidelity::Exact
            }
            Body::ReasoningDelta { message, delta } => self.reasoning_delta(message, delta, event, out),
            Body::ReasoningMessageEnd { message } => self.reasoning_message_end(message, event, out),
            Body::ReasoningEncrypted { entity, value } => self.encrypted(entity, value, event, out),

            Body::ToolStart { call, name, parent } => {
                self.tool_start(call, name, parent.as_ref(), event, out)
            }
            Body::ToolArgs { call, delta } => self.tool_args(call, delta, event, out),
            Body::ToolEnd { call } => self.tool_end(call, event, out),
            Body::ToolResult(result) => {
                let result = ResultOfCall { result: (**result).clone(), metadata: event.metadata().cloned() };
                self.tool_result(&result, out)
            }

            Body::StateSnapshot { snapshot } => {
                self.data_parts.state = Some(snapshot.to_value());
                self.write_data(out, data_part::STATE, Some(STATE_ID), snapshot, false);
                Fidelity::Exact
            }
            Body::StateDelta { patch } => self.state_delta(patch, out),
            Body::MessagesSnapshot { messages } => self.messages_snapshot(messages, out),

            Body::ActivitySnapshot { message, kind, content, replace } => {
                if *replace == Some(false) && self.data_parts.has_activity(message) {
                    return Fidelity::Exact;
                }
                self.write_activity(message, kind, content.to_value(), event, out);
                Fidelity::Exact
            }
            Body::ActivityDelta { message, kind, patch } => {
                self.activity_delta(message, kind, patch, event, out)
            }

            Body::SubagentStarted(started) => {
                if let Some(id) = &event.subagent {
                    data_parts::remember(&mut self.data_parts.subagents, id, (**started).clone());
                }
                self.write_subagent(event, "running", |_| {}, out)
            }
            Body::SubagentFinished { result, outcome } => {
                let result = result.as_ref().map(|result| self.sanitized(result));
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
                self.write_subagent(event, status, fill, out)
            }
            Body::SubagentError { message, code } => {
                let fill = |w: &mut crate::json::ObjectWriter<'_>| {
                    w.str("error", message).opt_str("code", code.as_deref());
                };
                self.write_subagent(event, "error", fill, out)
            }

            Body::Raw { event, source } => {
                let data = encode::build_object(|w| {
                    w.json("event", event).opt_str("source", source.as_deref());
                });
                self.write_data(out, data_part::RAW, None, &data.into(), true);
                Fidelity::Exact
            }
            Body::Custom { name, value } => self.custom(name, value, event, out),

            Body::Citation(source) => {
                self.prepare_part(out);
                let detail = source.detail.as_ref().map(|detail| self.sanitized(detail.as_json()));
                let (detail, providers) =
                    part_metadata::split_source_detail(detail.and_then(Json::into_object).as_ref());
                self.encoder.source(out, source, detail.as_ref(), providers);
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
                self.write_data(out, data_part::BLOCK, Some(&block.id), &data.into(), false);
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
                self.write_collaboration(id, content.to_value(), event, out);
                Fidelity::Exact
            }
            Body::CollaborationTask { id, task } => {
                let task = task.to_value();
                let add = |content: &mut Value| {
                    if let Some(tasks) = content.get_mut("tasks").and_then(Value::as_array_mut) {
                        tasks.push(task);
                    }
                };
                self.change_collaboration(id, add, event, out)
            }
            Body::CollaborationEnd { id } => {
                let finish = |content: &mut Value| content["status"] = "done".into();
                self.change_collaboration(id, finish, event, out)
            }
            Body::FinishReason { reason, .. } => match self.message.finish_reason.replace(reason.clone()) {
                None => Fidelity::Exact,
                Some(_) => Fidelity::Approximated("a response has one reason, the last"),
            },
        }
    }

    /// Writes the messages of a snapshot that the stream did not contain.
    fn messages_snapshot(&mut self, messages: &[Message], out: &mut Frames) -> Fidelity {
        let events = self.seen.events_of_snapshot(messages, &self.tools.calls);
        for event in events {
            self.write(&event, out);
        }
        Fidelity::Approximated("a response adds to a conversation and cannot restate it")
    }
}

impl<E: PartEncoder> Writer for ResponseWriter<E> {
    fn write(&mut self, event: &Event, out: &mut Frames) -> Fidelity {
        // Fast path for nine tenths of all events: a delta of the text part that was written last.
        if let Body::TextDelta { message, delta } = &event.body
            && event.extra.is_none()
            && self.speech.last_text.as_ref() == Some(message)
            && !delta.is_empty()
        {
            self.speech.digest_text(message, delta);
            self.encoder.text_delta(out, message, delta);
            return Fidelity::Exact;
        }
        if self.speech.ended_reasoning.is_some() && !matches!(event.body, Body::ReasoningEncrypted { .. }) {
            self.end_reasoning_part(out);
        }
        self.has_removed_keys = false;
        if !self.tools.deferred.is_empty() {
            self.write_or_fail_deferred_calls(event, out);
        }
        self.seen.observe(&event.body);
        let fidelity = self.write_event(event, out);
        match fidelity {
            Fidelity::Exact if self.has_removed_keys => {
                Fidelity::Approximated("keys that the client's parser refuses are left out")
            }
            fidelity => fidelity,
        }
    }

    fn end(&mut self, out: &mut Frames) {
        if self.message.is_started && !self.message.is_ended {
            self.fail_deferred_calls(out);
            self.close(out);
            self.write_step_without_tools(out);
            self.encoder.abort(out);
            self.message.is_ended = true;
        }
        self.encoder.end(out);
    }
}
