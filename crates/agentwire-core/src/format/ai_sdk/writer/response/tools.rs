//! Tool calls and results: the whole input once the arguments are complete, results only for calls that the client holds.

use super::{
    super::{
        encode,
        part_metadata::PartMetadata,
        tool_calls::{ResultOfCall, ToolCallTable, WrittenToolCall},
    },
    PartEncoder, ResponseWriter,
};
use crate::{
    event::{Body, Content, Event, Interrupt, MessageId, Outcome, RunFinished, ToolCallId},
    format::{
        Fidelity,
        ai_sdk::{
            reader::metadata,
            wire::{self, data_part, native},
        },
    },
    framing::Frames,
    json::{Json, Object},
};

const AS_TEXT: Fidelity = Fidelity::Approximated("arguments that are no JSON object travel as text");

/// Tool calls of a response.
#[derive(Debug, Default)]
pub(super) struct Tools {
    pub(super) calls: ToolCallTable,
    /// Complete calls whose input is not written yet (see [`ResponseWriter::write_or_fail_deferred_calls`]).
    pub(super) deferred: Vec<ToolCallId>,
}

impl<E: PartEncoder> ResponseWriter<E> {
    pub(super) fn tool_start(
        &mut self,
        id: &ToolCallId,
        name: &str,
        parent: Option<&MessageId>,
        event: &Event,
        out: &mut Frames,
    ) -> Fidelity {
        // A call of the continued message stays in its step: clients search for it in their last step.
        if self.steps.has_started || self.tools.calls.get(id).is_none_or(|call| !call.is_earlier) {
            self.write_open_steps(out);
            self.prepare_part(out);
            self.steps.current.has_tools = true;
        }
        let call = WrittenToolCall {
            is_static: self.options.ui_tools.contains(name) || is_static(event.metadata()),
            is_provider_executed: metadata::has_native_flag(event.metadata(), native::PROVIDER_EXECUTED),
            metadata: PartMetadata::of(event),
            parent: parent.cloned(),
            ..WrittenToolCall::new(id, name)
        };
        self.encoder.tool_start(out, &call);
        self.tools.calls.start(call);
        Fidelity::Exact
    }

    pub(super) fn tool_args(
        &mut self,
        id: &ToolCallId,
        delta: &str,
        event: &Event,
        out: &mut Frames,
    ) -> Fidelity {
        if !self.tools.calls.push_arguments(id, delta) {
            return Fidelity::Dropped("the call is not open");
        }
        if let Some(metadata) = event.metadata()
            && let Some(call) = self.tools.calls.get_mut(id)
        {
            call.metadata.merge(Some(metadata));
        }
        if !delta.is_empty() {
            self.encoder.tool_delta(out, id, delta);
        }
        Fidelity::Exact
    }

    pub(super) fn tool_end(&mut self, id: &ToolCallId, event: &Event, out: &mut Frames) -> Fidelity {
        let calls = &mut self.tools.calls;
        let Some(call) = calls.get_mut(id).filter(|call| call.is_open) else {
            return Fidelity::Dropped("the call is not open");
        };
        call.metadata.merge(event.metadata());
        if metadata::has_native_flag(call.metadata.metadata.as_ref(), native::PROVIDER_EXECUTED) {
            calls.set_provider_executed(id);
        }
        let deferred = calls
            .get(id)
            .filter(|call| call.result.is_none() && (call.may_run_in_page() || !call.has_json_arguments()));
        if let Some(call) = deferred {
            let is_text = encode::tool_input(&call.arguments).get().starts_with('"');
            self.tools.deferred.push(id.clone());
            self.speech.last_text = None;
            return if is_text { AS_TEXT } else { Fidelity::Exact };
        }
        self.write_input(id, out)
    }

    /// Writes the input of deferred calls as soon as the next event shows that the run continues.
    ///
    /// A page runs its tools when the input is complete. The calls of a cancelled or failed run look complete too, because
    /// open calls are closed before the terminal event. Such a call is written as failed.
    pub(super) fn write_or_fail_deferred_calls(&mut self, event: &Event, out: &mut Frames) {
        match &event.body {
            Body::TextEnd { .. }
            | Body::ReasoningMessageEnd { .. }
            | Body::ReasoningEnd { .. }
            | Body::ReasoningEncrypted { .. }
            | Body::ToolEnd { .. }
            | Body::StepFinished { .. }
            | Body::SubagentFinished { .. }
            | Body::SubagentError { .. } => {}
            Body::RunError(_) => self.fail_deferred_calls(out),
            Body::RunFinished(finished) => self.write_or_fail_deferred_calls_at_end(finished, out),
            _ => self.write_deferred_calls(out),
        }
    }

    /// The same at the end of the run: calls of a run that was not cancelled are written.
    pub(super) fn write_or_fail_deferred_calls_at_end(&mut self, finished: &RunFinished, out: &mut Frames) {
        match finished.outcome {
            Some(Outcome::Cancelled) => self.fail_deferred_calls(out),
            _ => self.write_deferred_calls(out),
        }
    }

    fn write_deferred_calls(&mut self, out: &mut Frames) {
        for id in std::mem::take(&mut self.tools.deferred) {
            self.write_input(&id, out);
        }
    }

    /// Writes an error for deferred calls that must not run: it ends their parts, and no page runs a failed call.
    pub(super) fn fail_deferred_calls(&mut self, out: &mut Frames) {
        for id in std::mem::take(&mut self.tools.deferred) {
            let Some(call) = self.tools.calls.close(&id) else { continue };
            if std::mem::take(&mut call.arguments).trim().is_empty() {
                self.encoder.tool_delta(out, &id, "{}");
            }
            if let Some(call) = self.tools.calls.set_has_result(&id) {
                self.encoder.tool_error(out, call, wire::UNFINISHED);
            }
        }
    }

    /// Writes the input of a call whose arguments are complete.
    fn write_input(&mut self, id: &ToolCallId, out: &mut Frames) -> Fidelity {
        self.tools.calls.close(id);
        let Some(call) = self.tools.calls.get_mut(id) else { return Fidelity::Exact };
        let text = std::mem::take(&mut call.arguments);
        let (is_truncated, early_result) = (call.is_truncated, call.result.take());
        let native_members = call.native_metadata();
        let native_input = native_members.as_ref().and_then(|it| it.member(native::INPUT));
        let error = native_members.and_then(|it| it.get_str(native::INPUT_ERROR));
        let input = native_input.unwrap_or_else(|| encode::tool_input(&text));
        let is_text = input.get().starts_with('"');
        let input = self.sanitized(&input);
        if let Some(call) = self.tools.calls.get_mut(id) {
            match error {
                Some(error) => self.encoder.tool_input_error(out, call, &input, &error),
                None => self.encoder.tool_input(out, call, &input),
            }
            call.repeated_input = call.is_repeated.then(|| input.clone());
        }
        if let Some(result) = early_result {
            self.tool_result(&result, out);
        }
        if self.steps.is_finish_deferred && !self.tools.calls.has_open() {
            self.finish_or_defer_step(out);
        }
        if is_truncated {
            Fidelity::Approximated("the arguments are too long to be given whole")
        } else if is_text {
            AS_TEXT
        } else {
            Fidelity::Exact
        }
    }

    pub(super) fn tool_result(&mut self, received: &ResultOfCall, out: &mut Frames) -> Fidelity {
        let ResultOfCall { result, metadata } = received;
        let id = &result.call;
        let native_members = metadata::native(metadata.as_ref());
        let native_text = |key: &str| native_members.as_ref().and_then(|it| it.get_str(key));
        let is_denied = metadata::has_native_flag(metadata.as_ref(), native::DENIED);
        let mut fidelity = match result.content {
            Content::Text(_) => Fidelity::Exact,
            Content::Parts(_) => Fidelity::Approximated("the parts of a result become one value"),
        };
        match self.tools.calls.get_mut(id) {
            Some(call) if call.is_open => {
                call.result = Some(Box::new(received.clone()));
                call.is_denied |= is_denied;
                return Fidelity::Exact;
            }
            Some(_) => {}
            None => {
                self.write_missing_call(id, out);
                fidelity = Fidelity::Approximated("the call of this result was never seen");
            }
        }
        if self.steps.current.is_open {
            self.steps.current.has_result = true;
        }
        let output = encode::tool_output_as(&result.content, native_text(native::OUTPUT_TYPE).as_deref());
        let output = self.sanitized(&output);
        let part_metadata = PartMetadata { metadata: metadata.clone(), ..PartMetadata::default() };
        let Some(call) = self.tools.calls.set_has_result(id) else {
            return fidelity;
        };
        call.is_denied |= is_denied;
        let is_denied = call.is_denied;
        let text = result.content.text();
        match &result.error {
            None if !is_denied => self.encoder.tool_output(out, call, &output, &part_metadata),
            error => {
                let error = error.as_deref().filter(|error| !error.is_empty());
                let error = error.or(Some(text.as_str()).filter(|text| !text.is_empty()));
                let error = error.unwrap_or(if is_denied { wire::DENIED } else { "the tool failed" });
                // The approval was requested and denied within this response. A denial has no field for a reason.
                if let Some(approval) = native_text(native::APPROVAL)
                    && self.encoder.has_approvals()
                    && is_denied
                    && error == wire::DENIED
                    && !call.has_approval_request
                {
                    self.encoder.approval_request(out, &Interrupt::new(approval, "tool_call"), id);
                    call.has_approval_request = true;
                }
                if is_denied && (call.has_approval_request || call.is_earlier) {
                    self.encoder.tool_denied(out, call, error);
                } else {
                    self.encoder.tool_error(out, call, error);
                }
                if !text.is_empty() && text != error {
                    fidelity = Fidelity::Approximated("a failed tool has an error text and no output");
                }
            }
        }
        self.tools.calls.keep_result(received);
        fidelity
    }

    /// Writes a call for a result without one: clients refuse such a result.
    fn write_missing_call(&mut self, id: &ToolCallId, out: &mut Frames) {
        let (name, input) = match self.seen.request_call(id) {
            Some((name, arguments)) => (Box::from(name), encode::tool_input(arguments)),
            None => ("unknown".into(), Object::empty().into()),
        };
        let input = self.sanitized(&input);
        self.prepare_part(out);
        self.steps.current.has_tools = true;
        let is_static = self.options.ui_tools.contains(&name);
        let call = WrittenToolCall { is_static, ..WrittenToolCall::new(id, name) };
        self.encoder.tool_input(out, &call, &input);
        self.tools.calls.insert(call);
    }

    pub(super) fn tool_progress(&mut self, value: &Json, out: &mut Frames) -> Option<Fidelity> {
        let value = value.clone().into_object()?;
        let id: ToolCallId = value.get_str("toolCallId")?.into();
        let output = self.sanitized(&value.member("output")?);
        let call = self.tools.calls.get(&id).filter(|call| !call.is_open && !call.has_result)?;
        if self.encoder.tool_progress(out, call, &output) {
            return Some(Fidelity::Exact);
        }
        self.write_data(out, data_part::TOOL_PROGRESS, Some(&id), value.as_json(), true);
        Some(Fidelity::Exact)
    }
}

/// Returns true if an AI SDK server sent the call as a static part.
fn is_static(metadata: Option<&Object>) -> bool {
    let part = metadata::native(metadata).and_then(|it| it.get_str(native::PART));
    part.as_deref() == Some(native::STATIC)
}
