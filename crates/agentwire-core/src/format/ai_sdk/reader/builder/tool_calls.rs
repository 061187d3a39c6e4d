//! Tool calls: each gets one end and one result, even if a server repeats or omits them.

use indexmap::IndexMap;

use super::{
    super::{decode, metadata},
    EventBuilder, ReceivedMetadata,
};
use crate::{
    event::{
        Body, Content, EncryptedEntity, Event, Interrupt, InterruptId, SubagentId, ToolCallId, ToolResult,
    },
    format::ai_sdk::{
        wire::{self, native},
        writer::encode,
    },
    framing::DEFAULT_MAX_FRAME,
    json::{Json, Object},
};

/// Limit of remembered calls; a forgotten one is treated as a call that never started.
const MAX_CALLS: usize = 16_384;

/// Limit of argument text that is collected per call, for the comparison with the input that follows it: the size limit of
/// one frame.
const MAX_ARGUMENTS: usize = DEFAULT_MAX_FRAME;

/// Limit of interrupts per response: a person answers them one by one.
const MAX_INTERRUPTS: usize = 1024;

/// Tool calls and interrupts of the response.
#[derive(Debug, Default)]
pub(super) struct ReadToolCalls {
    calls: IndexMap<ToolCallId, ReadToolCall>,
    pub(super) interrupts: IndexMap<InterruptId, Interrupt>,
}

/// A tool call.
#[derive(Debug, Default)]
struct ReadToolCall {
    is_open: bool,
    /// Argument text so far.
    arguments: String,
    has_result: bool,
    /// Its input was invalid; the SDK reports that in two chunks.
    has_input_error: bool,
    is_provider_executed: bool,
    subagent: Option<SubagentId>,
    /// The server denied the call itself: id of the approval request and reason.
    denial: Option<(InterruptId, Option<Box<str>>)>,
}

impl ReadToolCalls {
    /// Returns true while the arguments of any call are streaming.
    pub(super) fn has_open(&self) -> bool {
        self.calls.values().any(|call| call.is_open)
    }

    /// Calls whose arguments are streaming.
    pub(super) fn open(&self) -> Vec<ToolCallId> {
        self.calls.iter().filter(|(_, call)| call.is_open).map(|(id, _)| id.clone()).collect()
    }

    /// Calls that wait for a result from outside of the provider.
    pub(super) fn unanswered(&self) -> Vec<ToolCallId> {
        let unanswered = self.calls.iter().filter(|(_, call)| !call.has_result && !call.is_provider_executed);
        unanswered.map(|(id, _)| id.clone()).collect()
    }

    fn is_open(&self, call: &ToolCallId) -> bool {
        self.calls.get(call).is_some_and(|state| state.is_open)
    }
}

impl EventBuilder {
    pub(in super::super) fn tool_start(
        &mut self,
        call: &ToolCallId,
        name: &str,
        received: &ReceivedMetadata,
        out: &mut Vec<Event>,
    ) {
        if self.tools.is_open(call) {
            return self.tally.note("out of order", "tool-input-start of an open call");
        }
        self.evict_oldest_calls();
        let subagent = received.subagent.clone();
        let state = ReadToolCall { is_open: true, subagent: subagent.clone(), ..ReadToolCall::default() };
        self.tools.calls.insert(call.clone(), state);
        let parent = received.message.clone().or_else(|| self.steps.parent.clone());
        let start = Body::ToolStart { call: call.clone(), name: name.into(), parent };
        out.push(Event::new(start).by(subagent).with_metadata(received.metadata.clone()));
    }

    pub(in super::super) fn tool_delta(&mut self, call: &ToolCallId, delta: &str, out: &mut Vec<Event>) {
        let Some(state) = self.tools.calls.get_mut(call).filter(|state| state.is_open) else {
            return self.tally.note("out of order", "tool-input-delta of a call that is not open");
        };
        if state.arguments.len() + delta.len() <= MAX_ARGUMENTS {
            state.arguments.push_str(delta);
        }
        let body = Body::ToolArgs { call: call.clone(), delta: delta.into() };
        out.push(Event::new(body).by(state.subagent.clone()));
    }

    /// Ends a call; its arguments are emitted whole if they were not streamed.
    pub(in super::super) fn tool_call(
        &mut self,
        call: &ToolCallId,
        name: &str,
        input: Option<&Json>,
        mut received: ReceivedMetadata,
        out: &mut Vec<Event>,
    ) {
        if !self.tools.is_open(call) {
            self.tool_start(call, name, &received, out);
            received.metadata = None;
        }
        // The start of the call contained this member.
        received.metadata = received.metadata.and_then(|it| metadata::without_native(&it, &[native::PART]));
        let Some(state) = self.tools.calls.get_mut(call) else { return };
        state.is_open = false;
        let subagent = state.subagent.clone();
        let mut push = |body| out.push(Event::new(body).by(subagent.clone()));
        let mut arguments = std::mem::take(&mut state.arguments);
        if let Some(input) = input {
            if arguments.is_empty() {
                arguments = decode::argument_text(input);
                if !arguments.is_empty() {
                    push(Body::ToolArgs { call: call.clone(), delta: arguments.as_str().into() });
                }
            }
            if encode::tool_input(&arguments) != *input {
                received.metadata =
                    Some(metadata::with_native(received.metadata, native::INPUT, input.clone()));
            }
        }
        if let Some(value) = received.encrypted {
            push(Body::ReasoningEncrypted { entity: EncryptedEntity::ToolCall(call.clone()), value });
        }
        let end = Event::new(Body::ToolEnd { call: call.clone() });
        out.push(end.by(subagent).with_metadata(received.metadata));
    }

    /// Marks a call as run by its provider: it is never pending.
    pub(in super::super) fn set_provider_executed(&mut self, call: &ToolCallId) {
        if let Some(state) = self.tools.calls.get_mut(call) {
            state.is_provider_executed = true;
        }
    }

    /// Emits a result from an output. Canonical results are text, so the type of the output goes into the metadata.
    pub(in super::super) fn tool_output(
        &mut self,
        call: &ToolCallId,
        output: &Json,
        mut metadata: Option<Object>,
        out: &mut Vec<Event>,
    ) {
        let content = decode::tool_result_content(output);
        if let Some(output_type) = encode::output_type(output, &encode::tool_output(&content)) {
            metadata = Some(metadata::with_native(metadata, native::OUTPUT_TYPE, Json::string(output_type)));
        }
        self.tool_result(call, content, None, metadata, out);
    }

    pub(in super::super) fn tool_result(
        &mut self,
        call: &ToolCallId,
        content: Content,
        error: Option<Box<str>>,
        metadata: Option<Object>,
        out: &mut Vec<Event>,
    ) {
        if self.tools.is_open(call) {
            self.tool_call(call, "", None, ReceivedMetadata::default(), out);
        }
        let mut subagent = None;
        match self.tools.calls.get_mut(call) {
            Some(state) => {
                state.has_result = true;
                subagent = state.subagent.clone();
            }
            None => self.tally.note("out of order", "a result without its call"),
        }
        self.tools.interrupts.retain(|_, interrupt| interrupt.tool_call.as_ref() != Some(call));
        let result = ToolResult {
            message: decode::result_message_id(call).into(),
            call: call.clone(),
            content,
            error,
            explicit_role: true,
        };
        let event = Event::new(Body::ToolResult(Box::new(result)));
        out.push(event.by(subagent).with_metadata(metadata));
    }

    /// Emits the error of a call with invalid input as its result.
    pub(in super::super) fn input_error(&mut self, call: &ToolCallId, error: Box<str>, out: &mut Vec<Event>) {
        self.tool_result(call, (*error).into(), Some(error), None, out);
        if let Some(state) = self.tools.calls.get_mut(call) {
            state.has_input_error = true;
        }
    }

    /// Ends a call that agentwire's writer marked as unfinished, to keep pages from running it: the agent sent no result.
    /// Returns false for all other errors.
    pub(in super::super) fn end_unfinished_call(
        &mut self,
        call: &ToolCallId,
        error: &str,
        out: &mut Vec<Event>,
    ) -> bool {
        let is_unfinished =
            self.response.is_from_agentwire && error == wire::UNFINISHED && self.tools.is_open(call);
        if is_unfinished {
            self.tool_call(call, "", None, ReceivedMetadata::default(), out);
        }
        is_unfinished
    }

    /// Returns true if the error of this call was already reported as an input error.
    pub(in super::super) fn has_input_error(&self, call: &ToolCallId) -> bool {
        self.tools.calls.get(call).is_some_and(|state| state.has_input_error)
    }

    pub(in super::super) fn tool_denied(&mut self, call: &ToolCallId, out: &mut Vec<Event>) {
        let mut metadata = metadata::with_native(None, native::DENIED, metadata::json_true());
        let denial = self.tools.calls.get_mut(call).and_then(|state| state.denial.take());
        let open_request = self.tools.interrupts.values().find(|it| it.tool_call.as_ref() == Some(call));
        let (request, reason) = match denial {
            Some((request, reason)) => (Some(request), reason),
            None => (open_request.map(|request| request.id.clone()), None),
        };
        if let Some(request) = request {
            metadata = metadata::with_native(Some(metadata), native::APPROVAL, Json::string(&request));
        }
        let error = reason.unwrap_or_else(|| wire::DENIED.into());
        self.tool_result(call, (*error).into(), Some(error), Some(metadata), out);
    }

    /// Bounds the table: removes the older half of the calls.
    fn evict_oldest_calls(&mut self) {
        if self.tools.calls.len() >= MAX_CALLS {
            self.tools.calls.drain(..MAX_CALLS / 2);
        }
    }

    pub(in super::super) fn interrupt(&mut self, interrupt: Interrupt) {
        if self.tools.interrupts.len() >= MAX_INTERRUPTS {
            return self.tally.note("too many", "interrupts");
        }
        self.tools.interrupts.entry(interrupt.id.clone()).or_insert(interrupt);
    }

    /// Handles an approval response within the same response.
    pub(in super::super) fn approval_response(
        &mut self,
        interrupt: &str,
        is_approved: bool,
        reason: Option<Box<str>>,
    ) {
        let Some(request) = self.tools.interrupts.shift_remove(interrupt) else { return };
        let call = request.tool_call.and_then(|call| self.tools.calls.get_mut(&call));
        if let Some(state) = call.filter(|_| !is_approved) {
            state.denial = Some((request.id, reason));
        }
    }
}
