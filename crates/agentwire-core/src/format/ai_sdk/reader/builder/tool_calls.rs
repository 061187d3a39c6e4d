//! Calls of tools: each has one end, one result, whatever a server tells twice or leaves out.

use super::{
    super::{decode, metadata},
    Builder, Call, ReceivedMetadata,
};
use crate::{
    event::{Body, Content, EncryptedEntity, Event, Interrupt, ToolCallId, ToolResult},
    format::ai_sdk::{
        wire::{self, native},
        writer::encode,
    },
    framing::DEFAULT_MAX_FRAME,
    json::{Json, Object},
};

/// The most calls that are remembered; what was forgotten is taken for a call that never started.
const MAX_CALLS: usize = 16_384;

/// The most argument text that is collected for one call, to compare it with the arguments that follow it: what one
/// frame may hold.
const MAX_ARGUMENTS: usize = DEFAULT_MAX_FRAME;

/// The most interrupts of one response: a person answers them one by one.
const MAX_INTERRUPTS: usize = 1024;

impl Builder {
    pub(in super::super) fn tool_start(
        &mut self,
        call: &ToolCallId,
        name: &str,
        facts: &ReceivedMetadata,
        out: &mut Vec<Event>,
    ) {
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

    pub(in super::super) fn tool_delta(&mut self, call: &ToolCallId, delta: &str, out: &mut Vec<Event>) {
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
    pub(in super::super) fn tool_call(
        &mut self,
        call: &ToolCallId,
        name: &str,
        input: Option<&Json>,
        mut facts: ReceivedMetadata,
        out: &mut Vec<Event>,
    ) {
        if !self.calls.get(call).is_some_and(|call| call.open) {
            self.tool_start(call, name, &facts, out);
            facts.metadata = None;
        }
        // Its start has said so.
        facts.metadata = facts.metadata.and_then(|told| metadata::without_native(&told, &[native::PART]));
        let Some(state) = self.calls.get_mut(call) else { return };
        state.open = false;
        let subagent = state.subagent.clone();
        let mut say = |body| out.push(Event::new(body).by(subagent.clone()));
        let mut text = std::mem::take(&mut state.text);
        if let Some(input) = input {
            if text.is_empty() {
                text = decode::argument_text(input);
                if !text.is_empty() {
                    say(Body::ToolArgs { call: call.clone(), delta: text.as_str().into() });
                }
            }
            if encode::tool_input(&text) != *input {
                facts.metadata = Some(metadata::with_native(facts.metadata, native::INPUT, input.clone()));
            }
        }
        if let Some(value) = facts.encrypted {
            say(Body::ReasoningEncrypted { entity: EncryptedEntity::ToolCall(call.clone()), value });
        }
        let end = Event::new(Body::ToolEnd { call: call.clone() });
        out.push(end.by(subagent).with_metadata(facts.metadata));
    }

    /// The provider runs this call: nobody waits for it.
    pub(in super::super) fn remote_call(&mut self, call: &ToolCallId) {
        if let Some(state) = self.calls.get_mut(call) {
            state.remote = true;
        }
    }

    /// An output, which the canonical model has only as text.
    pub(in super::super) fn tool_output(
        &mut self,
        call: &ToolCallId,
        output: &Json,
        mut metadata: Option<Object>,
        out: &mut Vec<Event>,
    ) {
        let content = decode::tool_result_content(output);
        if let Some(kind) = encode::output_type(output, &encode::tool_output(&content)) {
            metadata = Some(metadata::with_native(metadata, native::OUTPUT_TYPE, Json::string(kind)));
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
        if self.calls.get(call).is_some_and(|state| state.open) {
            self.tool_call(call, "", None, ReceivedMetadata::default(), out);
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
            message: decode::result_message_id(call).into(),
            call: call.clone(),
            content,
            error,
            explicit_role: true,
        };
        let event = Event::new(Body::ToolResult(Box::new(result)));
        out.push(event.by(subagent).with_metadata(metadata));
    }

    /// The arguments of a call cannot be used.
    pub(in super::super) fn bad_input(&mut self, call: &ToolCallId, error: Box<str>, out: &mut Vec<Event>) {
        self.tool_result(call, (*error).into(), Some(error), None, out);
        if let Some(state) = self.calls.get_mut(call) {
            state.failed = true;
        }
    }

    /// Whether the error stands for a call that our own writer would not let a page run: the agent said none.
    pub(in super::super) fn failed_unsaid(
        &mut self,
        call: &ToolCallId,
        error: &str,
        out: &mut Vec<Event>,
    ) -> bool {
        let unsaid =
            self.own && error == wire::UNFINISHED && self.calls.get(call).is_some_and(|state| state.open);
        if unsaid {
            self.tool_call(call, "", None, ReceivedMetadata::default(), out);
        }
        unsaid
    }

    /// Whether the error of this call was told as one of its arguments.
    pub(in super::super) fn has_failed(&self, call: &ToolCallId) -> bool {
        self.calls.get(call).is_some_and(|state| state.failed)
    }

    pub(in super::super) fn denied(&mut self, call: &ToolCallId, out: &mut Vec<Event>) {
        let mut metadata = metadata::with_native(None, native::DENIED, metadata::json_true());
        let refused = self.calls.get_mut(call).and_then(|state| state.refused.take());
        let asked = self.interrupts.values().find(|it| it.tool_call.as_ref() == Some(call));
        let (asked, reason) = match refused {
            Some((asked, reason)) => (Some(asked), reason),
            None => (asked.map(|asked| asked.id.clone()), None),
        };
        if let Some(asked) = asked {
            metadata = metadata::with_native(Some(metadata), native::APPROVAL, Json::string(&asked));
        }
        let error = reason.unwrap_or_else(|| wire::DENIED.into());
        self.tool_result(call, (*error).into(), Some(error), Some(metadata), out);
    }

    /// Forgets the older half of the calls once there are too many.
    fn forget_calls(&mut self) {
        if self.calls.len() >= MAX_CALLS {
            self.calls.drain(..MAX_CALLS / 2);
        }
    }

    pub(in super::super) fn interrupt(&mut self, interrupt: Interrupt) {
        if self.interrupts.len() >= MAX_INTERRUPTS {
            return self.tally.note("too many", "interrupts");
        }
        self.interrupts.entry(interrupt.id.clone()).or_insert(interrupt);
    }

    /// The answer came in the same response.
    pub(in super::super) fn answered(&mut self, interrupt: &str, approved: bool, reason: Option<Box<str>>) {
        let Some(asked) = self.interrupts.shift_remove(interrupt) else { return };
        if let Some(state) = asked.tool_call.and_then(|call| self.calls.get_mut(&call)).filter(|_| !approved)
        {
            state.refused = Some((asked.id, reason));
        }
    }
}
