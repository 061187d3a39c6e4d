//! How a run ends: with one terminal event, and with everything that follows from it in the same append.

use agentwire_core::{
    event::{Body, Event, Outcome, RunError, RunFinished, StreamEnd},
    fold::{Fold, Join},
    format::{ag_ui, ai_sdk},
    json::{Json, Object},
};
use agentwire_store::{Change, RunStatus, StateChange, StatusChange};

use super::{Ending, LiveState, LogFailure, RunRecorder, Terminal, codes, pending};
use crate::metrics;

/// The member of an ending's metadata that says after how many seconds to try again.
const RETRY_AFTER: &str = "retryAfter";

impl RunRecorder {
    /// Gives the run its ending.
    pub(super) async fn finish(&mut self, ending: Ending) -> Result<(), LogFailure> {
        let mut failed = None;
        match ending {
            Ending::Said => {}
            Ending::Done => {
                let finished = RunFinished::new(self.run.thread.clone(), self.run.run.clone());
                self.stage(Event::new(Body::RunFinished(Box::new(finished))));
            }
            Ending::Stopped(why) => {
                tracing::info!(run = %self.run.run, thread = %self.run.thread, why, "run stopped");
                let mut finished = RunFinished::new(self.run.thread.clone(), self.run.run.clone());
                finished.outcome = Some(Outcome::Cancelled);
                self.stage(Event::new(Body::RunFinished(Box::new(finished))));
            }
            Ending::Failed(failure) => {
                let detail = failure.detail().unwrap_or_default();
                tracing::warn!(run = %self.run.run, thread = %self.run.thread, code = failure.code(), %failure, detail, "run failed");
                if let Some(known) = codes::find(failure.code()) {
                    let code = metrics::CodeLabel { code: known.name.to_owned() };
                    self.gateway.metrics().upstream_errors.get_or_create(&code).inc();
                }
                let message = failure.message(self.agent.settings.show_errors);
                let error = RunError::new(message, Some(failure.code()));
                let wait = failure.retry_after().map(|seconds| Json::from(&serde_json::json!(seconds)));
                let metadata = wait.map(|seconds| Object::from_entries([(RETRY_AFTER, seconds)]));
                let event = Event::new(Body::RunError(Box::new(error))).with_metadata(metadata);
                failed = self.hooks.is_some().then(|| event.clone());
                self.stage(event);
            }
        }
        self.say_ending(failed).await;
        if self.terminal.is_none() {
            // The guard may have refused what was said last; it never refuses an end of its own.
            let mut valid = std::mem::take(&mut self.valid);
            self.guard.end(&StreamEnd::Closed, &mut valid);
            self.write_down(&mut valid);
        }
        let (change, status) = self.closing();
        let agent = self.agent.name.to_string();
        self.gateway
            .metrics()
            .runs_ended
            .get_or_create(&metrics::StatusLabel { agent, status: status.as_str() })
            .inc();
        tracing::info!(run = %self.run.run, thread = %self.run.thread, status = status.as_str(), events = self.next + self.staged.len() as u64, "run ended");
        if let Some(lock) = &self.lock {
            // Before anybody knows that the run has ended: whoever sends the next one at once finds the lock free.
            lock.release().await;
        }
        self.append(change, LiveState::Ended(status)).await
    }

    /// What follows from the ending.
    fn closing(&mut self) -> (Change, RunStatus) {
        let terminal = self.terminal.take();
        let (mut status, cause, outcome) = match terminal {
            Some(Terminal { status, cause, outcome }) => (status, cause, outcome),
            None => (RunStatus::Failed, None, None),
        };
        let join = std::mem::replace(&mut self.join, Join::new(Fold::new()));
        let mut fold = join.into_fold();
        let pending = match status {
            RunStatus::Finished => {
                let now = self.gateway.store().now();
                pending::left_open(&mut fold, outcome.as_ref(), &self.input, &self.gated, now)
            }
            _ => Vec::new(),
        };
        if !pending.is_empty() {
            status = RunStatus::Waiting;
        }
        let messages = if self.one_message {
            let mut messages = fold.messages().to_vec();
            ai_sdk::input::set_response_id(&mut messages, &self.input);
            ag_ui::messages_to_json(&messages)
        } else {
            ag_ui::messages_to_json(fold.messages())
        };
        let state = fold.state().to_string();
        let changed = self.started && self.stored_state.as_ref() != Some(&state);
        let change = Change {
            status: Some(StatusChange { to: status, cause: cause.map(Into::into) }),
            state: changed.then(|| StateChange { expected: self.state_seq, body: state.into() }),
            // A run that never got its thread has nothing to say about it.
            messages: self.started.then(|| messages.into()),
            pending,
        };
        (change, status)
    }
}
