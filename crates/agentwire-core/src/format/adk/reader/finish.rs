//! The end of a run. ADK has no terminal event: the outcome follows from the turns and calls that are still open.

use super::{AdkReader, emitter::AdkEmitter};
use crate::{
    codes,
    event::{Body, Event, Outcome, RunError, RunFinished, StreamEnd},
    format::adk::options::{AdkReaderOptions, FinalSnapshot},
};

impl AdkReader {
    /// Closes all open turns and steps and emits the terminal event.
    pub(super) fn finish(&mut self, end: &StreamEnd, out: &mut Vec<Event>) {
        self.emit_run_started(None, out);
        let emitter = &mut AdkEmitter::new(out, self.now);
        let mut truncated = None;
        for stream in &mut self.streams.all {
            if let Some(mut turn) = stream.turn.take() {
                self.run.close_turn(&mut turn, emitter);
                if turn.model.is_some() {
                    truncated = Some("the stream ended in the middle of a model's turn".into());
                }
            }
            // No closing event replaced the failure of the partial event.
            if self.failure.is_none() {
                self.failure = stream.failure.take();
            }
        }
        self.run.set_subagent(None, emitter);
        let (interrupts, frontend_calls) = self.run.pending_items();
        self.steps.close_all(&interrupts, self.failure.as_ref(), emitter);
        let usage = std::mem::take(&mut self.usage);
        let unanswered =
            self.run.unanswered_call().map(|tool| format!("the stream ended before `{tool}` answered"));
        let failure = match (self.failure.take(), end) {
            (Some(failure), _) => Some((failure.message, failure.code)),
            (None, StreamEnd::Failed { code, message }) => Some((message.clone(), code.clone())),
            // The other agents and tools of the run are not waited for.
            (None, StreamEnd::Closed) if self.has_returned => None,
            // Without any frame, the model said nothing.
            (None, StreamEnd::Closed) if !self.has_events && self.has_unknown_frames => {
                Some(("the stream held no ADK event".into(), codes::UPSTREAM_NO_EVENTS.into()))
            }
            (None, StreamEnd::Closed) => {
                truncated.or(unanswered).map(|message| (message.into(), codes::STREAM_TRUNCATED.into()))
            }
        };
        if let Some((message, code)) = failure {
            emitter.push(Body::RunError(Box::new(RunError { message, code: Some(code), usage })));
            return;
        }
        let snapshot = match self.run.options.final_snapshot {
            FinalSnapshot::Known => self.state.known(),
            FinalSnapshot::Always => Some(self.state.snapshot()),
            FinalSnapshot::Never => None,
        };
        if let Some(snapshot) = snapshot {
            emitter.push(Body::StateSnapshot { snapshot });
        }
        let outcome = match (interrupts.is_empty(), frontend_calls.is_empty()) {
            (false, _) => Some(Outcome::Interrupt { interrupts }),
            (true, false) => Some(Outcome::Success { pending: frontend_calls }),
            (true, true) => None,
        };
        let AdkReaderOptions { thread, run, .. } = &self.run.options;
        emitter.push(Body::RunFinished(Box::new(RunFinished {
            result: self.result.take(),
            outcome,
            usage,
            ..RunFinished::new(thread.clone(), run.clone())
        })));
    }
}
