//! The end of a run: outcome, interrupts and errors.
//!
//! LangGraph reports little about endings. Native events end with the end of the root; the server closes its stream
//! after success, after an interrupt and after a cancellation alike. The outcome is therefore derived from the
//! root's end, interrupts, errors, items that are still open, and the thread state if the caller has fetched it.

use serde_json::value::RawValue;

use super::{
    super::{
        raw_json,
        wire::{EventName, NativeError},
    },
    LangGraphReader, cx,
    interrupts::{breakpoints, native_value, read_interrupts, requested_call},
    node_runs::NodeEnd,
    run::RunPhase,
    run_verdict::RunVerdict,
};
use crate::{
    codes,
    event::{Body, Event, Interrupt, Outcome, RunError, RunFinished, StreamEnd, SubagentOutcome, ToolCallId},
    json::Json,
    tally::Tally,
};

impl LangGraphReader {
    /// The root runnable has ended with `output`.
    pub(super) fn root_end(&mut self, name: EventName, output: Option<&RawValue>, out: &mut Vec<Event>) {
        self.run.ending.root_ended = true;
        let is_chain = matches!(name, EventName::ChainEnd | EventName::NodeEnd);
        match output {
            Some(output) if self.run.input.is_graph && raw_json::is_object(output) => {
                if let Some(interrupts) = raw_json::member(output, "__interrupt__") {
                    self.add_interrupts(interrupts, None);
                }
                self.close_all(NodeEnd::Done, out);
                self.read_values(output, out);
            }
            Some(output) if is_chain => {
                self.close_all(NodeEnd::Done, out);
                self.run.ending.result = Some(raw_json::json(output, &mut self.tally));
            }
            _ => self.close_all(NodeEnd::Done, out),
        }
    }

    /// Reads interrupts in any form. `call` is the tool call that raised them, if known.
    pub(super) fn add_interrupts(&mut self, raw: &RawValue, call: Option<&ToolCallId>) {
        let offset = self.run.ending.interrupts.len();
        let mut interrupts = read_interrupts(raw, offset, &mut self.tally);
        for interrupt in &mut interrupts {
            interrupt.tool_call = interrupt.tool_call.take().or_else(|| call.cloned());
        }
        self.run.add_interrupts(interrupts);
    }

    pub(super) fn add_interrupt(&mut self, interrupt: Interrupt) {
        self.run.add_interrupts(vec![interrupt]);
    }

    /// Records the outcome as the server reports it.
    pub(super) fn add_verdict(&mut self, verdict: RunVerdict) {
        if let Some(interrupts) = &verdict.interrupts
            && !interrupts.is_empty()
        {
            self.run.add_interrupts(interrupts.clone());
        }
        self.run.ending.verdict.get_or_insert_default().merge(verdict);
    }

    /// Closes all open streams, tool calls and nodes, innermost first.
    pub(super) fn close_all(&mut self, end: NodeEnd, out: &mut Vec<Event>) {
        while let Some(last) = self.streams.keys().next_back().cloned() {
            self.finish_stream(&last, out);
        }
        self.fail_calls(None, out);
        // Some modes never report the end of a node, and an interrupted node has none.
        let reports_ends = self.run.input.has_events || self.run.input.has_tasks;
        if reports_ends && self.run.ending.interrupts.is_empty() && !self.run.ending.is_breakpoint {
            for name in self.nodes.names() {
                self.tally.note("node without an end", name);
            }
        }
        let left = self.nodes.finish_all(cx!(self, out), end);
        self.run.ending.subagents.extend(left);
        self.finish_chains(out);
    }

    /// Ends the run without an error.
    pub(super) fn finish_run(&mut self, out: &mut Vec<Event>) {
        if self.run.phase == RunPhase::Over {
            return;
        }
        self.start_if_idle(out);
        self.close_all(NodeEnd::Done, out);
        self.send_last_messages(out);
        let interrupts = self.take_interrupts();
        let pending = self.calls.pending();
        let cancelled = self.run.ending.verdict.as_ref().is_some_and(RunVerdict::is_cancelled);
        if self.options.interrupt_events {
            for interrupt in &interrupts {
                let value = native_value(interrupt).unwrap_or_else(Json::null);
                out.push(Event::new(Body::Custom { name: "on_interrupt".into(), value }));
            }
        }
        let outcome = if !interrupts.is_empty() && self.options.interrupt_outcome {
            Some(Outcome::Interrupt { interrupts })
        } else if cancelled {
            Some(Outcome::Cancelled)
        } else if pending.is_empty() {
            None
        } else {
            Some(Outcome::Success { pending })
        };
        let is_interrupted = matches!(outcome, Some(Outcome::Interrupt { .. }));
        let suspended = is_interrupted.then(|| SubagentOutcome::Suspended { interrupts: Vec::new() });
        self.finish_subagents(&Body::SubagentFinished { result: None, outcome: suspended }, out);
        let (thread, run) = self.run.ids.clone().expect("the run has started");
        let finished = RunFinished {
            thread,
            run,
            result: self.run.ending.result.take().filter(|result| !result.is_null()),
            outcome,
            usage: std::mem::take(&mut self.run.usage.totals),
        };
        self.run.phase = RunPhase::Over;
        out.push(Event::new(Body::RunFinished(Box::new(finished))));
    }

    /// Ends the remaining subagents with the outcome of the run.
    fn finish_subagents(&mut self, body: &Body, out: &mut Vec<Event>) {
        for subagent in std::mem::take(&mut self.run.ending.subagents) {
            out.push(Event::new(body.clone()).by(Some(subagent)));
        }
    }

    /// The interrupts of the run, each with the tool call that raised it, if known.
    fn take_interrupts(&mut self) -> Vec<Interrupt> {
        let mut interrupts = std::mem::take(&mut self.run.ending.interrupts);
        // The server's report takes precedence over the last checkpoint.
        let (next, is_waiting) = match &self.run.ending.verdict {
            Some(verdict) => (&verdict.next, verdict.is_breakpoint()),
            None => (&self.run.ending.next_nodes, !self.run.ending.next_nodes.is_empty()),
        };
        if interrupts.is_empty() && (self.run.ending.is_breakpoint || is_waiting) {
            interrupts = breakpoints(next);
        }
        let is_single = interrupts.len() == 1;
        // An old tool call that never got a result is unrelated.
        let recent: Vec<_> = self
            .calls
            .unanswered()
            .filter(|(id, call)| {
                call.is_shown || call.interrupted.is_some() || self.run.conversation.last_calls.contains(*id)
            })
            .map(|(id, _)| id.clone())
            .collect();
        for interrupt in &mut interrupts {
            if interrupt.tool_call.is_some() {
                continue;
            }
            let names_interrupt =
                |text: &Option<Box<str>>| text.as_deref().is_some_and(|text| text.contains(&*interrupt.id));
            let named = self.calls.unanswered().find(|(_, call)| names_interrupt(&call.interrupted));
            let requested =
                || requested_call(interrupt, self.calls.unanswered().map(|(id, call)| (id, &*call.name)));
            let only = || match &recent[..] {
                [only] if is_single => Some(only.clone()),
                _ => None,
            };
            interrupt.tool_call = named.map(|(id, _)| id.clone()).or_else(requested).or_else(only);
        }
        interrupts
    }

    /// Ends the run with an error: `{"error": CLASS, "message": TEXT}`, or a bare text.
    pub(super) fn run_failed(&mut self, raw: Option<&RawValue>, out: &mut Vec<Event>) {
        if self.run.phase == RunPhase::Over {
            return self.tally.note("event after the end", "error");
        }
        let (class, message) = read_error(raw, &mut self.tally);
        self.fail_run(class.as_deref(), &message, out);
    }

    fn fail_run(&mut self, code: Option<&str>, message: &str, out: &mut Vec<Event>) {
        self.start_if_idle(out);
        self.close_all(NodeEnd::Failed, out);
        let body = Body::SubagentError { message: message.into(), code: code.map(Into::into) };
        self.finish_subagents(&body, out);
        let mut error = RunError::new(message, code);
        error.usage = std::mem::take(&mut self.run.usage.totals);
        self.run.phase = RunPhase::Over;
        out.push(Event::new(Body::RunError(Box::new(error))));
    }

    /// The stream has closed: derives the outcome.
    pub(super) fn stream_closed(&mut self, end: &StreamEnd, out: &mut Vec<Event>) {
        if self.run.phase == RunPhase::Over
            || self.run.phase == RunPhase::Idle
                && self.run.native_id.is_none()
                && self.run.ending.verdict.is_none()
        {
            return;
        }
        self.start_if_idle(out);
        if self.run.ending.root_ended {
            return self.finish_run(out);
        }
        if let StreamEnd::Failed { code, message } = end {
            return self.fail_run(Some(code), message, out);
        }
        if let Some(verdict) = &self.run.ending.verdict {
            if let Some((class, message)) = verdict.failure.clone() {
                return self.fail_run(class.as_deref(), &message, out);
            }
            return self.finish_run(out);
        }
        if let Some((class, message)) = self.run.ending.last_error.take() {
            return self.fail_run(class.as_deref(), &message, out);
        }
        if !self.run.ending.interrupts.is_empty() {
            return self.finish_run(out);
        }
        // The server closes its stream without a final frame. Native events end with the root; in the other modes
        // a run is complete unless an item is still open.
        let is_cut =
            self.streams.values().any(|stream| stream.received.has_positions && !stream.received.is_complete);
        // Bridges that never report a root have no explicit end.
        let is_rootless = self.run.input.has_events && self.run.root().is_none();
        let is_complete = is_rootless || self.run.input.has_modes && !self.run.input.has_events;
        if !is_complete || is_cut || (is_rootless || self.run.input.has_tasks) && self.nodes.has_open() {
            return self.fail_run(Some(codes::STREAM_TRUNCATED), "the stream ended before the run did", out);
        }
        self.finish_run(out);
    }
}

/// Reads the class and the message of an error in any form: `{"error", "message"}`, `{"detail"}`, a text such as
/// `ValueError('…')`, or any other value.
pub(super) fn read_error(raw: Option<&RawValue>, tally: &mut Tally) -> (Option<Box<str>>, Box<str>) {
    let Some(raw) = raw else { return (None, "the run failed".into()) };
    if let Some(text) = raw_json::string(raw, tally) {
        let class = text.split_once('(').map(|(class, _)| class);
        let class = class.filter(|class| {
            !class.is_empty() && class.chars().all(|c| c.is_alphanumeric() || matches!(c, '_' | '.'))
        });
        return (class.map(Into::into), text.into());
    }
    let Some(error) = NativeError::of(raw) else {
        return (None, raw_json::json(raw, tally).get().into());
    };
    // `{"error": {"error": …}}`, one level only: no input may exhaust the stack.
    let error = match error.error.and_then(NativeError::of) {
        Some(inner) => inner,
        None => error,
    };
    let class = raw_json::non_empty(error.error, tally);
    let message =
        raw_json::non_empty(error.message, tally).or_else(|| raw_json::non_empty(error.detail, tally));
    match (class, message) {
        (class, Some(message)) => (class.map(Into::into), message.into()),
        (Some(class), None) => (None, class.into()),
        (None, None) => (None, raw_json::json(raw, tally).get().into()),
    }
}
