//! The end: nothing stays open, so that a client that sends by itself finds a question only where there is one.

use super::{
    super::{encode, tool_calls::Call, ui_message_stream},
    Finish, Turn, Wire,
};
use crate::{
    event::{Interrupt, Outcome, RunError, RunFinished, ToolCallId, Usage},
    format::{
        Fidelity, Writer,
        ai_sdk::wire::{self, INTERRUPT_TOOL, data_part},
    },
    framing::Frames,
};

impl<W: Wire> Turn<W> {
    pub(super) fn run_finished(&mut self, finished: &RunFinished, out: &mut Frames) -> Fidelity {
        if let Some(events) = self.seen.unsaid() {
            for event in events {
                self.write(&event, out);
            }
            self.settle_at_end(finished, out);
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
                (self.reason.as_deref().map_or("stop", encode::finish_reason), &[])
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
                told: self.told,
            },
        );
        self.ended = true;
        fidelity
    }

    /// Ends with a step that has no tools. A client that sends by itself once all tools of the last step have
    /// answered, or all questions about them, would otherwise run the agent again, although it is done. That step may
    /// be one of the message that this response continues, if nothing was said since.
    pub(super) fn leave_tools(&mut self, out: &mut Frames) {
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
        let input = self.safe(&encode::tool_input(arguments));
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
                let data = encode::interrupt_data(interrupt);
                self.data(out, data_part::INTERRUPT, Some(&interrupt.id), data.as_json(), false);
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
            let id: ToolCallId = encode::interrupt_call_id(&interrupt.id).into();
            let call = Call {
                name: INTERRUPT_TOOL.into(),
                // A dynamic part could not be answered with the first builds of version 5.
                known_tool: true,
                ..Call::default()
            };
            let input = self.safe(encode::interrupt_data(interrupt).as_json());
            self.step.tools = true;
            self.wire.tool_call(out, &id, &call, &input);
        }
        if self.step.open {
            self.finish_step(out);
        }
        Fidelity::Approximated("an interrupt that no approval can express becomes a tool call")
    }

    pub(super) fn run_error(&mut self, error: &RunError, out: &mut Frames) -> Fidelity {
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
            let metadata = ui_message_stream::usage_metadata(usage, self.told);
            self.wire.metadata(out, metadata.as_json());
        }
    }

    /// Closes everything that is open on the wire.
    pub(super) fn close(&mut self, out: &mut Frames) {
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
}
