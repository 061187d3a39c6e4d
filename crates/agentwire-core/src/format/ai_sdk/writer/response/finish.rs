//! End of a response: closes everything, so that clients that send automatically find an open question only if there is one.

use super::{
    super::{encode, tool_calls::WrittenToolCall, ui_message_stream},
    PartEncoder, ResponseFinish, ResponseWriter,
};
use crate::{
    event::{Interrupt, Outcome, RunError, RunFinished, ToolCallId, Usage},
    format::{
        Fidelity, Writer,
        ai_sdk::wire::{self, INTERRUPT_TOOL, data_part},
    },
    framing::Frames,
};

impl<E: PartEncoder> ResponseWriter<E> {
    pub(super) fn run_finished(&mut self, finished: &RunFinished, out: &mut Frames) -> Fidelity {
        if let Some(events) = self.seen.events_of_first_snapshot() {
            for event in events {
                self.write(&event, out);
            }
            self.write_or_fail_deferred_calls_at_end(finished, out);
        }
        self.close(out);
        self.write_denials(out);
        let mut fidelity = Fidelity::Exact;
        let (reason, pending): (_, &[ToolCallId]) = match &finished.outcome {
            Some(Outcome::Cancelled) => {
                self.write_step_without_tools(out);
                self.write_usage(&finished.usage, out);
                self.encoder.abort(out);
                self.message.is_ended = true;
                return fidelity;
            }
            Some(Outcome::Interrupt { interrupts }) => {
                fidelity = self.write_interrupts(interrupts, out);
                ("tool-calls", &[])
            }
            Some(Outcome::Success { pending }) if !pending.is_empty() => {
                for id in pending {
                    self.repeat_approved_call(id, out);
                }
                ("tool-calls", pending)
            }
            _ if self.tools.calls.has_unanswered() => ("tool-calls", &[]),
            _ => {
                self.write_step_without_tools(out);
                (self.message.finish_reason.as_deref().map_or("stop", encode::finish_reason), &[])
            }
        };
        let result = finished.result.as_ref().map(|result| self.sanitized(result));
        self.encoder.finish(
            out,
            &ResponseFinish {
                reason,
                native_reason: self.message.finish_reason.as_deref(),
                usage: &finished.usage,
                result: result.as_ref(),
                pending,
                app: self.message.app,
            },
        );
        self.message.is_ended = true;
        fidelity
    }

    /// Ends with an empty step if the last step has tools. Clients that send automatically once all tools and approvals of
    /// the last step are answered would otherwise start the finished agent again. The last step may be one of the continued
    /// message, if this response wrote none.
    pub(super) fn write_step_without_tools(&mut self, out: &mut Frames) {
        let is_in_earlier_step =
            !self.steps.has_started && self.tools.calls.iter().any(|(_, call)| call.is_earlier);
        if (self.steps.current.has_tools || is_in_earlier_step) && !self.steps.is_native {
            self.start_step(out);
            self.finish_step(out);
        }
    }

    /// Repeats an approved call of the continued message. Its part would otherwise keep the approval answer as its state,
    /// and a client that sends answers automatically would send it forever. Clients search for the part in their last step,
    /// so this is impossible after another step has started.
    fn repeat_approved_call(&mut self, id: &ToolCallId, out: &mut Frames) {
        let request_call = self.seen.request_call(id).filter(|_| self.encoder.has_approvals());
        let Some((_, arguments)) = request_call else { return };
        let input = self.sanitized(&encode::tool_input(arguments));
        let is_open = |call: &&WrittenToolCall| call.is_earlier && !call.has_result;
        if let Some(call) = self.tools.calls.get(id).filter(is_open).filter(|_| !self.steps.has_started) {
            self.encoder.tool_input(out, call, &input);
        }
    }

    /// Writes a denial for denied calls without a result from the agent.
    fn write_denials(&mut self, out: &mut Frames) {
        let denied = self.tools.calls.iter().filter(|(_, call)| call.is_denied && !call.has_result);
        let denied: Vec<_> = denied.map(|(id, _)| id.clone()).collect();
        for id in denied {
            if let Some(call) = self.tools.calls.set_has_result(&id) {
                self.encoder.tool_denied(out, call, wire::DENIED);
            }
        }
    }

    fn write_interrupts(&mut self, interrupts: &[Interrupt], out: &mut Frames) -> Fidelity {
        let mut as_calls = Vec::new();
        for interrupt in interrupts {
            let guarded = interrupt.tool_call.as_ref().filter(|id| {
                let call = self.tools.calls.get(id);
                let can_be_approved =
                    call.is_some_and(|call| !call.has_result && !call.has_approval_request && !call.is_open);
                can_be_approved && self.encoder.has_approvals()
            });
            // A data part carries the members that an approval request cannot express.
            let mut expressible = Interrupt::new(interrupt.id.clone(), "tool_call");
            expressible.tool_call = guarded.cloned();
            if guarded.is_none() || expressible != *interrupt {
                let data = encode::interrupt_data(interrupt);
                self.write_data(out, data_part::INTERRUPT, Some(&interrupt.id), data.as_json(), false);
            }
            match guarded.and_then(|id| Some((id, self.tools.calls.get_mut(id)?))) {
                Some((id, call)) => {
                    call.has_approval_request = true;
                    self.encoder.approval_request(out, interrupt, id);
                }
                None => as_calls.push(interrupt),
            }
        }
        if as_calls.is_empty() {
            return Fidelity::Exact;
        }
        // Unanswered calls without a question must not lie in the step in which clients look for answers.
        let has_unasked =
            self.tools.calls.iter().any(|(_, call)| call.needs_result() && !call.has_approval_request);
        if has_unasked {
            self.start_step(out);
        }
        for interrupt in as_calls {
            let id: ToolCallId = encode::interrupt_call_id(&interrupt.id).into();
            let call = WrittenToolCall {
                // Clients of the first builds of version 5 cannot answer a dynamic part.
                is_static: true,
                ..WrittenToolCall::new(&id, INTERRUPT_TOOL)
            };
            let input = self.sanitized(encode::interrupt_data(interrupt).as_json());
            self.steps.current.has_tools = true;
            self.encoder.tool_input(out, &call, &input);
        }
        if self.steps.current.is_open {
            self.finish_step(out);
        }
        Fidelity::Approximated("an interrupt that no approval can express becomes a tool call")
    }

    pub(super) fn run_error(&mut self, error: &RunError, out: &mut Frames) -> Fidelity {
        if !self.message.is_started {
            self.start(None, out);
        }
        self.close(out);
        self.fail_open_steps(out);
        self.write_usage(&error.usage, out);
        self.encoder.error(out, error);
        self.message.is_ended = true;
        Fidelity::Exact
    }

    fn write_usage(&mut self, usage: &[Usage], out: &mut Frames) {
        if !usage.is_empty() {
            let metadata = ui_message_stream::usage_metadata(usage, self.message.app);
            self.encoder.message_metadata(out, metadata.as_json());
        }
    }

    /// Closes everything that is open on the wire.
    pub(super) fn close(&mut self, out: &mut Frames) {
        if !self.message.is_started {
            self.start(None, out);
        }
        self.steps.is_finish_deferred = false;
        if self.steps.current.is_open {
            self.finish_step(out);
        } else {
            self.end_text_parts(out);
        }
        self.steps.is_step_due = false;
        self.speech.texts.clear();
        self.speech.reasoning.clear();
        self.steps.open.clear();
        self.speech.open_spans = 0;
    }
}
