//! How a response ends, which is told once, after everything that is open was closed.

use super::{Builder, ReceivedMetadata};
use crate::{
    event::{Body, Event, Outcome, RunError, RunFinished, Usage},
    json::Json,
};

impl Builder {
    pub(in super::super) fn add_usage(&mut self, usage: Usage) {
        self.usage = vec![usage];
    }

    pub(in super::super) fn reason(&mut self, reason: &str) {
        self.reason = Some(reason.into());
    }

    pub(in super::super) fn finish(&mut self, out: &mut Vec<Event>) {
        if std::mem::replace(&mut self.ended, true) {
            return;
        }
        self.close(out);
        let reason = match (self.native_reason.take(), self.reason.take()) {
            (Some(native), _) => Some(native),
            // Our writer always gives a reason; only one that the source gave is news.
            (None, told) => told.filter(|_| !self.own),
        };
        let waiting = reason.as_deref() == Some("tool-calls");
        if let Some(reason) = reason {
            out.push(Event::new(Body::FinishReason { message: None, reason }));
        }
        let outcome = if !self.interrupts.is_empty() {
            let interrupts = self.interrupts.drain(..).map(|(_, interrupt)| interrupt).collect();
            Some(Outcome::Interrupt { interrupts })
        } else if !self.pending.is_empty() {
            Some(Outcome::Success { pending: std::mem::take(&mut self.pending) })
        } else if waiting && !self.own {
            let open = self.calls.iter().filter(|(_, call)| !call.answered && !call.remote);
            let pending: Vec<_> = open.map(|(id, _)| id.clone()).collect();
            (!pending.is_empty()).then_some(Outcome::Success { pending })
        } else {
            None
        };
        self.finished(outcome, out);
    }

    fn finished(&mut self, outcome: Option<Outcome>, out: &mut Vec<Event>) {
        let mut finished = RunFinished::new(self.thread.clone(), self.run.clone());
        finished.outcome = outcome;
        finished.result = self.result.take();
        finished.usage = std::mem::take(&mut self.usage);
        out.push(Event::new(Body::RunFinished(Box::new(finished))));
    }

    pub(in super::super) fn abort(&mut self, out: &mut Vec<Event>) {
        if !std::mem::replace(&mut self.ended, true) {
            self.close(out);
            self.finished(Some(Outcome::Cancelled), out);
        }
    }

    pub(in super::super) fn error(&mut self, message: &str, out: &mut Vec<Event>) {
        if !std::mem::replace(&mut self.ended, true) {
            self.close(out);
            let mut error = RunError::new(message, self.error_code.as_deref());
            error.usage = std::mem::take(&mut self.usage);
            out.push(Event::new(Body::RunError(Box::new(error))));
        }
    }

    /// An error after which the run may go on: it is the run's own if nothing follows.
    pub(in super::super) fn maybe_error(&mut self, message: &str) {
        self.maybe_error = Some(message.into());
    }

    /// Whether a response that ends here may have said everything: a text of the data stream has no end.
    pub(in super::super) fn is_settled(&self) -> bool {
        let quiet = self.texts.keys().all(|id| id.is_empty()) && self.thoughts.keys().all(|id| id.is_empty());
        let open = self.step_open || !self.nodes.is_empty() || self.calls.values().any(|call| call.open);
        self.started && !self.own && !self.dialect && quiet && !open
    }

    /// Something follows.
    pub(in super::super) fn not_the_end(&mut self, out: &mut Vec<Event>) {
        if let Some(message) = self.maybe_error.take() {
            self.custom("error", Json::string(&message), None, out);
        }
    }

    /// Nothing follows.
    pub(in super::super) fn end(&mut self, out: &mut Vec<Event>) {
        if let Some(message) = self.maybe_error.take() {
            self.error(&message, out);
        }
    }

    fn close(&mut self, out: &mut Vec<Event>) {
        self.quiet(out);
        let open: Vec<_> =
            self.calls.iter().filter(|(_, call)| call.open).map(|(id, _)| id.clone()).collect();
        for call in open {
            self.tool_call(&call, "", None, ReceivedMetadata::default(), out);
        }
        if self.step_open {
            self.step_finish(out);
        }
    }
}
