//! The end of a run: one terminal event, appended together with its consequences.

use std::sync::{Arc, atomic::Ordering};

use agentwire_core::{
    event::{Body, Event, Outcome, RunError, RunFinished},
    fold::{Fold, Join},
    format::ai_sdk,
    json::{Json, Object},
};
use agentwire_store::{Change, RunStatus, StateChange, StatusChange};

use super::{
    RunEnd,
    recorder::{RunRecorder, TerminalEvent},
};
use crate::{
    codes, cpu_work,
    human::pending,
    metrics,
    stream::live::{LiveState, LogFailure},
};

/// The member of the metadata of RUN_ERROR with the seconds after which to retry.
const RETRY_AFTER: &str = "retryAfter";

impl RunRecorder {
    /// Stages the terminal event, if it is not staged yet, and appends it.
    pub(super) async fn finish(&mut self, end: RunEnd) -> Result<(), LogFailure> {
        let mut failed = None;
        match end {
            RunEnd::Staged => {}
            RunEnd::AgentDone => {
                let finished = RunFinished::new(self.run.thread.clone(), self.run.run.clone());
                self.stage(Event::new(Body::RunFinished(Box::new(finished))));
            }
            RunEnd::Stopped(reason) => {
                tracing::info!(run = %self.run.run, thread = %self.run.thread, why = reason, "run stopped");
                let mut finished = RunFinished::new(self.run.thread.clone(), self.run.run.clone());
                finished.outcome = Some(Outcome::Cancelled);
                self.stage(Event::new(Body::RunFinished(Box::new(finished))));
            }
            RunEnd::Failed(failure) => {
                let detail = failure.detail().unwrap_or_default();
                tracing::warn!(run = %self.run.run, thread = %self.run.thread, code = failure.code(), %failure, detail, "run failed");
                if let Some(known) = codes::find(failure.code()) {
                    let code = metrics::CodeLabel { code: known.name };
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
        self.finish_hooks(failed).await;
        if self.encoding.terminal.is_none() {
            // The guard may have dropped the terminal event; it never drops one of its own.
            self.stage_end();
        }
        let error_message =
            self.encoding.terminal.as_ref().and_then(|terminal| terminal.message.clone()).unwrap_or_default();
        let (change, status) = match self.encoding.size.is_large() {
            true => {
                let _seat = cpu_work::seat(&self.owner).await;
                cpu_work::off_worker(|| self.final_change())
            }
            false => self.final_change(),
        };
        if status == RunStatus::Failed {
            let now = self.gateway.store().now().0;
            let cause = change.status.as_ref().and_then(|status| status.cause.as_deref());
            self.gateway.health().note_failure(
                &self.agent.name,
                cause.unwrap_or_default(),
                &error_message,
                now,
            );
        }
        self.finish_trace(status, change.status.as_ref().and_then(|status| status.cause.as_deref()));
        let agent = self.agent.name.to_string();
        self.gateway
            .metrics()
            .runs_ended
            .get_or_create(&metrics::StatusLabel { agent, status: status.as_str() })
            .inc();
        let unknown = self.control.request.as_ref().map_or(0, |it| it.unknown_events.load(Ordering::Relaxed));
        if unknown > 0 {
            let agent = metrics::AgentLabel { agent: self.agent.name.to_string() };
            self.gateway.metrics().unknown_events.get_or_create(&agent).inc_by(unknown);
        }
        tracing::info!(run = %self.run.run, thread = %self.run.thread, status = status.as_str(), events = self.position.next + self.encoding.staged.len() as u64, "run ended");
        if let Some(lock) = &self.lock {
            // Before the end is published: a client that sends the next run at once must find the lock free.
            lock.release().await;
        }
        self.append(change, LiveState::Ended(status)).await?;
        let conversations = self.gateway.conversations();
        match self.thread.conversation.take() {
            Some(conversation) => conversations.keep(&self.owner, &self.run.thread, conversation),
            None => conversations.forget(&self.owner, &self.run.thread),
        }
        Ok(())
    }

    /// The consequences of the terminal event: status, messages, state and pending items.
    fn final_change(&mut self) -> (Change, RunStatus) {
        let terminal = self.encoding.terminal.take();
        let (mut status, cause, outcome) = match terminal {
            Some(TerminalEvent { status, cause, outcome, .. }) => (status, cause, outcome),
            None => (RunStatus::Failed, None, None),
        };
        let join = std::mem::replace(&mut self.encoding.join, Join::new(Fold::new()));
        let mut fold = join.into_fold();
        let mut pending = match status {
            RunStatus::Finished => {
                let now = self.gateway.store().now();
                pending::left_open(&mut fold, outcome.as_ref(), &self.input, &self.approvals.gated, now)
            }
            _ => Vec::new(),
        };
        self.ids.remember(&mut pending);
        if !pending.is_empty() {
            status = RunStatus::Waiting;
        }
        let (mut messages, state) = fold.into_parts();
        if self.one_message {
            ai_sdk::input::set_response_id(&mut messages, &self.input);
        }
        let before = self.thread.conversation.take().unwrap_or_default();
        let (messages, continued) = before.continued(&messages);
        self.thread.conversation = continued.map(Arc::new);
        let state = state.to_string();
        let is_started = self.encoding.is_started;
        let is_changed = is_started
            && !self.encoding.size.is_state_too_large()
            && self.thread.stored_state.as_ref() != Some(&state);
        let change = Change {
            status: Some(StatusChange { to: status, cause: cause.map(Into::into) }),
            state: is_changed.then(|| StateChange { expected: self.thread.state_seq, body: state.into() }),
            // A run that never had the thread must not change it.
            messages: is_started.then_some(messages),
            pending,
            replies: Vec::new(),
        };
        (change, status)
    }
}
