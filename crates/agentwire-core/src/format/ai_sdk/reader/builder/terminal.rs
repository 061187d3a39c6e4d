//! End of a response: emits one terminal event after closing everything that is open.

use super::{EventBuilder, ReceivedMetadata};
use crate::{
    event::{Body, Event, Outcome, RunError, RunFinished, ToolCallId, Usage},
    json::Json,
};

/// Data collected for the terminal event.
#[derive(Debug, Default)]
pub(super) struct ResponseEnd {
    pub(super) usage: Vec<Usage>,
    pub(super) reason: Option<Box<str>>,
    /// Finish reason in the spelling of agentwire's source.
    pub(super) native_reason: Option<Box<str>>,
    pub(super) result: Option<Json>,
    pub(super) pending: Vec<ToolCallId>,
    pub(super) error_code: Option<Box<str>>,
    /// Error of the LangChain dialect: that of the run if nothing follows it, otherwise that of a tool.
    pub(super) deferred_error: Option<Box<str>>,
}

impl EventBuilder {
    pub(in super::super) fn set_usage(&mut self, usage: Usage) {
        self.end.usage = vec![usage];
    }

    pub(in super::super) fn set_finish_reason(&mut self, reason: &str) {
        self.end.reason = Some(reason.into());
    }

    pub(in super::super) fn finish(&mut self, out: &mut Vec<Event>) {
        if std::mem::replace(&mut self.response.is_ended, true) {
            return;
        }
        self.close(out);
        let is_from_agentwire = self.response.is_from_agentwire;
        let reason = match (self.end.native_reason.take(), self.end.reason.take()) {
            (Some(native), _) => Some(native),
            // agentwire's writer always writes a reason; only the native one is that of the source.
            (None, reason) => reason.filter(|_| !is_from_agentwire),
        };
        let is_waiting_for_tools = reason.as_deref() == Some("tool-calls");
        if let Some(reason) = reason {
            out.push(Event::new(Body::FinishReason { message: None, reason }));
        }
        let outcome = if !self.tools.interrupts.is_empty() {
            let interrupts = self.tools.interrupts.drain(..).map(|(_, interrupt)| interrupt).collect();
            Some(Outcome::Interrupt { interrupts })
        } else if !self.end.pending.is_empty() {
            Some(Outcome::Success { pending: std::mem::take(&mut self.end.pending) })
        } else if is_waiting_for_tools && !is_from_agentwire {
            let pending = self.tools.unanswered();
            (!pending.is_empty()).then_some(Outcome::Success { pending })
        } else {
            None
        };
        self.emit_run_finished(outcome, out);
    }

    fn emit_run_finished(&mut self, outcome: Option<Outcome>, out: &mut Vec<Event>) {
        let mut finished = RunFinished::new(self.response.thread.clone(), self.response.run.clone());
        finished.outcome = outcome;
        finished.result = self.end.result.take();
        finished.usage = std::mem::take(&mut self.end.usage);
        out.push(Event::new(Body::RunFinished(Box::new(finished))));
    }

    pub(in super::super) fn abort(&mut self, out: &mut Vec<Event>) {
        if !std::mem::replace(&mut self.response.is_ended, true) {
            self.close(out);
            self.emit_run_finished(Some(Outcome::Cancelled), out);
        }
    }

    pub(in super::super) fn error(&mut self, message: &str, out: &mut Vec<Event>) {
        if !std::mem::replace(&mut self.response.is_ended, true) {
            self.close(out);
            let mut error = RunError::new(message, self.end.error_code.as_deref());
            error.usage = std::mem::take(&mut self.end.usage);
            out.push(Event::new(Body::RunError(Box::new(error))));
        }
    }

    /// Stores an error after which the run may continue: it is that of the run only if nothing follows.
    pub(in super::super) fn defer_error(&mut self, message: &str) {
        self.end.deferred_error = Some(message.into());
    }

    /// Returns true if a response may be complete at this point. Texts of the data stream (id "") have no explicit end.
    pub(in super::super) fn may_end_here(&self) -> bool {
        let response = &self.response;
        let is_open = self.steps.is_open
            || !self.steps.nodes.is_empty()
            || self.tools.has_open()
            || self.text_parts.has_open_with_id();
        response.is_started && !response.is_from_agentwire && !response.is_dialect && !is_open
    }

    /// Emits a deferred error as a CUSTOM event, because the stream continues.
    pub(in super::super) fn continue_after_deferred_error(&mut self, out: &mut Vec<Event>) {
        if let Some(message) = self.end.deferred_error.take() {
            self.custom("error", Json::string(&message), None, out);
        }
    }

    /// Emits a deferred error as RUN_ERROR, because the stream has ended.
    pub(in super::super) fn emit_deferred_error(&mut self, out: &mut Vec<Event>) {
        if let Some(message) = self.end.deferred_error.take() {
            self.error(&message, out);
        }
    }

    fn close(&mut self, out: &mut Vec<Event>) {
        self.end_all_text(out);
        for call in self.tools.open() {
            self.tool_call(&call, "", None, ReceivedMetadata::default(), out);
        }
        if self.steps.is_open {
            self.step_finish(out);
        }
    }
}
