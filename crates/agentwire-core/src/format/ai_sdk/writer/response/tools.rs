//! Calls and their results: arguments whole once they are complete, results only for calls that the client holds.

use super::{
    super::{
        encode,
        part_metadata::About,
        tool_calls::{Answer, Call},
    },
    Turn, Wire,
};
use crate::{
    event::{Body, Event, Interrupt, MessageId, Outcome, RunFinished, ToolCallId},
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

impl<W: Wire> Turn<W> {
    pub(super) fn tool_start(
        &mut self,
        id: &ToolCallId,
        name: &str,
        parent: Option<&MessageId>,
        event: &Event,
        out: &mut Frames,
    ) -> Fidelity {
        // A call of the message that is continued keeps its place, for which clients look in their last step.
        if self.stepped || self.calls.get(id).is_none_or(|call| !call.earlier) {
            self.show_nodes(out);
            self.new_part(out);
            self.step.tools = true;
        }
        let call = Call {
            name: name.into(),
            known_tool: self.knows_tool(name) || is_static(event.metadata()),
            remote: metadata::has_native_flag(event.metadata(), native::PROVIDER_EXECUTED),
            about: About::of(event),
            parent: parent.cloned(),
            ..Call::default()
        };
        self.wire.tool_start(out, id, &call);
        self.calls.start(id, call);
        Fidelity::Exact
    }

    pub(super) fn tool_args(
        &mut self,
        id: &ToolCallId,
        delta: &str,
        event: &Event,
        out: &mut Frames,
    ) -> Fidelity {
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

    pub(super) fn tool_end(&mut self, id: &ToolCallId, event: &Event, out: &mut Frames) -> Fidelity {
        let Some(call) = self.calls.get_mut(id).filter(|call| call.open) else {
            return Fidelity::Dropped("the call is not open");
        };
        call.about.merge(event.metadata());
        if metadata::has_native_flag(call.about.metadata.as_ref(), native::PROVIDER_EXECUTED) {
            self.calls.leave_to_provider(id);
        }
        if self
            .calls
            .get(id)
            .is_some_and(|call| call.held.is_none() && (call.runs_in_page() || !call.is_readable()))
        {
            self.unsaid.push(id.clone());
            self.speaking = None;
            let is_text = self
                .calls
                .get(id)
                .is_some_and(|call| encode::tool_input(&call.arguments).get().starts_with('"'));
            return if is_text { AS_TEXT } else { Fidelity::Exact };
        }
        self.say_call(id, out)
    }

    /// Tells the client of calls that are complete, as soon as it is clear that the run has not ended there.
    ///
    /// A page runs its tools when it hears that the arguments are complete, and the call of a run that was stopped or
    /// broke looks complete too: whoever closes what was open has ended it. Such a call is told to have failed.
    pub(super) fn settle(&mut self, event: &Event, out: &mut Frames) {
        match &event.body {
            Body::TextEnd { .. }
            | Body::ReasoningMessageEnd { .. }
            | Body::ReasoningEnd { .. }
            | Body::ReasoningEncrypted { .. }
            | Body::ToolEnd { .. }
            | Body::StepFinished { .. }
            | Body::SubagentFinished { .. }
            | Body::SubagentError { .. } => {}
            Body::RunError(_) => self.fail_unsaid(out),
            Body::RunFinished(finished) => self.settle_at_end(finished, out),
            _ => self.say_unsaid(out),
        }
    }

    /// The same when the run has ended: what it asked for in good order is asked for.
    pub(super) fn settle_at_end(&mut self, finished: &RunFinished, out: &mut Frames) {
        match finished.outcome {
            Some(Outcome::Cancelled) => self.fail_unsaid(out),
            _ => self.say_unsaid(out),
        }
    }

    fn say_unsaid(&mut self, out: &mut Frames) {
        for id in std::mem::take(&mut self.unsaid) {
            self.say_call(&id, out);
        }
    }

    /// Calls that nobody will run: an error ends their parts as well, and no page takes that for a call.
    pub(super) fn fail_unsaid(&mut self, out: &mut Frames) {
        for id in std::mem::take(&mut self.unsaid) {
            let Some(call) = self.calls.end(&id) else { continue };
            if std::mem::take(&mut call.arguments).trim().is_empty() {
                self.wire.tool_delta(out, &id, "{}");
            }
            if let Some(call) = self.calls.answer(&id) {
                self.wire.tool_error(out, &id, call, wire::UNFINISHED);
            }
        }
    }

    /// Says a call whose arguments are complete.
    fn say_call(&mut self, id: &ToolCallId, out: &mut Frames) -> Fidelity {
        self.calls.end(id);
        let Some(call) = self.calls.get_mut(id) else { return Fidelity::Exact };
        let text = std::mem::take(&mut call.arguments);
        let (cut, held) = (call.cut, call.held.take());
        let own = call.own();
        let told = own.as_ref().and_then(|own| own.member(native::INPUT));
        let error = own.and_then(|own| own.get_str(native::INPUT_ERROR));
        let input = told.unwrap_or_else(|| encode::tool_input(&text));
        let literal = input.get().starts_with('"') || cut;
        let input = self.safe(&input);
        if let Some(call) = self.calls.get_mut(id) {
            match error {
                Some(error) => self.wire.tool_bad_input(out, id, call, &input, &error),
                None => self.wire.tool_call(out, id, call, &input),
            }
            call.restated = call.again.then(|| input.clone());
        }
        if let Some(answer) = held {
            self.tool_result(&answer, out);
        }
        if self.finish_later && !self.calls.any_open() {
            self.leave_step(out);
        }
        if cut {
            Fidelity::Approximated("the arguments are too long to be given whole")
        } else if literal {
            AS_TEXT
        } else {
            Fidelity::Exact
        }
    }

    pub(super) fn tool_result(&mut self, answer: &Answer, out: &mut Frames) -> Fidelity {
        let Answer { result, metadata } = answer;
        let id = &result.call;
        let own = metadata::native(metadata.as_ref());
        let told = |key: &str| own.as_ref().and_then(|own| own.get_str(key));
        let refused = metadata::has_native_flag(metadata.as_ref(), native::DENIED);
        let mut fidelity = match result.content {
            crate::event::Content::Text(_) => Fidelity::Exact,
            crate::event::Content::Parts(_) => {
                Fidelity::Approximated("the parts of a result become one value")
            }
        };
        match self.calls.get_mut(id) {
            Some(call) if call.open => {
                call.held = Some(Box::new(answer.clone()));
                call.denied |= refused;
                return Fidelity::Exact;
            }
            Some(_) => {}
            None => {
                self.unknown_call(id, out);
                fidelity = Fidelity::Approximated("the call of this result was never seen");
            }
        }
        if self.step.open {
            self.step.answered = true;
        }
        let output = encode::tool_output_as(&result.content, told(native::OUTPUT_TYPE).as_deref());
        let output = self.safe(&output);
        let about = About { metadata: metadata.clone(), ..About::default() };
        let Some(call) = self.calls.answer(id) else {
            return fidelity;
        };
        call.denied |= refused;
        let refused = call.denied;
        let text = result.content.text();
        match &result.error {
            None if !refused => self.wire.tool_output(out, id, call, &output, &about),
            error => {
                let error = error.as_deref().filter(|error| !error.is_empty());
                let error = error.or(Some(text.as_str()).filter(|text| !text.is_empty()));
                let error = error.unwrap_or(if refused { wire::DENIED } else { "the tool failed" });
                // Somebody was asked, and refused, in this very response. A refusal has no room for their words.
                if let Some(asked) = told(native::APPROVAL)
                    && self.wire.knows_approvals()
                    && refused
                    && error == wire::DENIED
                    && !call.approval
                {
                    self.wire.approval(out, &Interrupt::new(asked, "tool_call"), id);
                    call.approval = true;
                }
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
        self.calls.keep(answer);
        fidelity
    }

    /// Gives a result a call to answer: a client refuses it otherwise.
    fn unknown_call(&mut self, id: &ToolCallId, out: &mut Frames) {
        let (name, input) = match self.seen.call(id) {
            Some((name, arguments)) => (Box::from(name), encode::tool_input(arguments)),
            None => ("unknown".into(), Object::empty().into()),
        };
        let input = self.safe(&input);
        self.new_part(out);
        self.step.tools = true;
        let call = Call { known_tool: self.knows_tool(&name), name, ..Call::default() };
        self.wire.tool_call(out, id, &call, &input);
        self.calls.insert(id, call);
    }

    pub(super) fn tool_progress(&mut self, value: &Json, out: &mut Frames) -> Option<Fidelity> {
        let value = value.clone().into_object()?;
        let id: ToolCallId = value.get_str("toolCallId")?.into();
        let output = self.safe(&value.member("output")?);
        let call = self.calls.get(&id).filter(|call| !call.open && !call.answered)?;
        if self.wire.tool_progress(out, &id, call, &output) {
            return Some(Fidelity::Exact);
        }
        self.data(out, data_part::TOOL_PROGRESS, Some(&id), value.as_json(), true);
        Some(Fidelity::Exact)
    }
}

/// Whether the user interface of an AI SDK server knows the tool of a call.
fn is_static(metadata: Option<&Object>) -> bool {
    let part = metadata::native(metadata).and_then(|own| own.get_str(native::PART));
    part.as_deref() == Some(native::STATIC)
}
