//! How a run ends, which ADK has no event for: it is told from what the stream left open.

use super::{AdkReader, emitter::AdkEmitter};
use crate::{
    event::{Body, Event, Outcome, RunError, RunFinished, StreamEnd},
    format::adk::options::{AdkReaderOptions, FinalSnapshot},
};

/// The code of a stream that held nothing: an error page, or a proxy that swallowed the answer.
const NO_EVENTS: &str = "UPSTREAM_NO_EVENTS";
/// The code of a stream that ended in the middle, as the guard has it: ADK has no event for the end of a run,
/// but models do not stop in the middle of a turn and tools answer.
const STREAM_TRUNCATED: &str = "STREAM_TRUNCATED";

impl AdkReader {
    /// Closes everything and ends the run.
    pub(super) fn finish(&mut self, end: &StreamEnd, out: &mut Vec<Event>) {
        self.start(None, out);
        let emit = &mut AdkEmitter::new(out, self.now);
        let mut truncated = None;
        for stream in &mut self.streams.all {
            if let Some(mut turn) = stream.turn.take() {
                self.run.close(&mut turn, emit);
                if turn.model.is_some() {
                    truncated = Some("the stream ended in the middle of a model's turn".into());
                }
            }
            // Nobody took back what the partial event said.
            if self.failure.is_none() {
                self.failure = stream.failure.take();
            }
        }
        self.run.speak_as(None, emit);
        let (interrupts, frontend) = self.run.pending();
        self.steps.leave(&interrupts, self.failure.as_ref(), emit);
        let usage = std::mem::take(&mut self.usage);
        let unanswered =
            self.run.unanswered().map(|tool| format!("the stream ended before `{tool}` answered"));
        let failure = match (self.failure.take(), end) {
            (Some(failure), _) => Some((failure.message, failure.code)),
            (None, StreamEnd::Failed { code, message }) => Some((message.clone(), code.clone())),
            (None, StreamEnd::Closed) if !self.understood => {
                Some(("the stream held no ADK event".into(), NO_EVENTS.into()))
            }
            (None, StreamEnd::Closed) => {
                truncated.or(unanswered).map(|message| (message.into(), STREAM_TRUNCATED.into()))
            }
        };
        if let Some((message, code)) = failure {
            emit.push(Body::RunError(Box::new(RunError { message, code: Some(code), usage })));
            return;
        }
        let snapshot = match self.run.settings.final_snapshot {
            FinalSnapshot::Known => self.state.known(),
            FinalSnapshot::Always => Some(self.state.snapshot()),
            FinalSnapshot::Never => None,
        };
        if let Some(snapshot) = snapshot {
            emit.push(Body::StateSnapshot { snapshot });
        }
        let outcome = match (interrupts.is_empty(), frontend.is_empty()) {
            (false, _) => Some(Outcome::Interrupt { interrupts }),
            (true, false) => Some(Outcome::Success { pending: frontend }),
            (true, true) => None,
        };
        let AdkReaderOptions { thread, run, .. } = &self.run.settings;
        emit.push(Body::RunFinished(Box::new(RunFinished {
            result: self.result.take(),
            outcome,
            usage,
            ..RunFinished::new(thread.clone(), run.clone())
        })));
    }
}
