//! The hooks of a run, between its events and the log.
//!
//! With hooks, no event is staged directly. An event of the agent passes the event hook and then a guard of its own, so that
//! the output hooks see a valid stream; their result passes the recorder's guard like any other event. Events of the
//! gateway wait in a queue until they can pass the output hooks, which are async.

use std::{collections::VecDeque, future::Future, panic::AssertUnwindSafe};

use agentwire_core::{
    event::{Body, Event, RunError, RunInput, RunStarted},
    json::Json,
    order::Guard,
};
use tokio::sync::mpsc;

use super::{RunEnd, recorder::RunRecorder};
use crate::{
    error::{RunFailure, UpstreamError},
    hooks::{HookSet, RunContext, failed},
    replica::TAKEN_OVER,
    stream::live::{Command, LogFailure},
};

/// The hooks of a run, and the events that they have not seen yet.
pub(super) struct RecorderHooks {
    pub(super) hook_set: HookSet,
    /// Validates the events before the output hooks.
    guard: Guard,
    /// Events of the gateway that have not passed the output hooks.
    pub(super) queue: VecDeque<Event>,
    /// Whether the state hook has seen the final state.
    is_state_offered: bool,
    /// Whether a hook has ended the run.
    pub(super) is_failed: bool,
}

impl RunRecorder {
    /// Creates the hooks and acquires the session lock; the end of the run if either fails.
    pub(super) async fn start_hooks(
        &mut self,
        context: Option<&RunContext>,
        commands: &mut mpsc::Receiver<Command>,
    ) -> Result<Option<RunEnd>, LogFailure> {
        if let (Some(make), Some(context)) = (&self.agent.hooks, context) {
            let made = std::panic::catch_unwind(AssertUnwindSafe(|| make(context)));
            let Ok(hook_set) = made else {
                return Ok(Some(RunEnd::Failed(
                    failed("the hooks of a run panicked while they were made").into(),
                )));
            };
            let guard = Guard::new(self.run.thread.clone(), self.run.run.clone());
            let queue = VecDeque::new();
            self.hooks = Some(Box::new(RecorderHooks {
                hook_set,
                guard,
                queue,
                is_state_offered: false,
                is_failed: false,
            }));
        }
        let Some(lock) = self.lock.clone() else { return Ok(None) };
        let acquired = lock.acquire();
        tokio::pin!(acquired);
        loop {
            tokio::select! {
                result = &mut acquired => {
                    let Err(failure) = result else { return Ok(None) };
                    return Ok(Some(self.refuse(failure.into()).await));
                }
                Some(command) = commands.recv() => {
                    if let Some(end) = self.execute_command(command) {
                        return Ok(Some(end));
                    }
                }
                () = self.gateway.shutdown().cancelled() => return Ok(Some(RunEnd::Failed(RunFailure::Shutdown))),
                () = self.live.give_up.cancelled() => return Err(TAKEN_OVER),
            }
        }
    }

    /// Ends a run that does not get the lock like one that the gateway refuses: with RUN_STARTED and RUN_ERROR. The thread
    /// is not changed.
    async fn refuse(&mut self, failure: RunFailure) -> RunEnd {
        let started = RunStarted::new(self.run.thread.clone(), self.run.run.clone());
        self.stage(Event::new(Body::RunStarted(Box::new(started))));
        let staged = self.stage_queued().await;
        self.encoding.is_started = false;
        RunEnd::Failed(staged.err().unwrap_or(failure))
    }

    /// Passes the input through the input hooks.
    pub(super) async fn filter_input(&mut self, input: RunInput) -> Result<RunInput, RunFailure> {
        let Some(hooks) = &self.hooks else { return Ok(input) };
        let hook_set = hooks.hook_set.clone();
        self.await_hook(hook_set.input_record(&input)).await?;
        let mut changed = self.await_hook(hook_set.input(input)).await?;
        // The log and the lease belong to these ids.
        changed.thread = self.run.thread.clone();
        changed.run = self.run.run.clone();
        Ok(changed)
    }

    /// Records an event of the agent through the hooks.
    pub(super) async fn record_through_hooks(&mut self, event: Event) -> Result<(), RunFailure> {
        let Some(hooks) = &self.hooks else { return self.record_event(event) };
        let hook_set = hooks.hook_set.clone();
        let mut events = Vec::new();
        self.await_hook(hook_set.event(event, &mut events)).await?;
        for event in events {
            self.pass_hooks(&hook_set, event, true).await?;
            if self.encoding.terminal.is_some() {
                return Ok(());
            }
        }
        self.stage_queued().await
    }

    /// Stages the queued events of the gateway through the output hooks.
    pub(super) async fn stage_queued(&mut self) -> Result<(), RunFailure> {
        while let Some(hooks) = &mut self.hooks
            && let Some(event) = hooks.queue.pop_front()
        {
            let hook_set = hooks.hook_set.clone();
            // A snapshot of the gateway itself does not complete the state of the agent.
            let is_diverged = self.encoding.is_state_diverged;
            Box::pin(self.pass_hooks(&hook_set, event, false)).await?;
            self.encoding.is_state_diverged |= is_diverged;
        }
        Ok(())
    }

    /// Passes the terminal event through the hooks. If they fail, the run ends without them: with the RUN_ERROR that it
    /// `failed` with, or with their failure.
    pub(super) async fn finish_hooks(&mut self, failed: Option<Event>) {
        let failure = match (self.stage_queued().await, failed.is_some() && self.encoding.terminal.is_none())
        {
            (Err(failure), _) => failure,
            (Ok(()), false) => return,
            // The hooks have seen another terminal event before the failure, and their guard accepts only one.
            (Ok(()), true) => {
                self.hooks = None;
                return failed.into_iter().for_each(|event| self.stage(event));
            }
        };
        let detail = failure.detail().unwrap_or_default();
        tracing::warn!(run = %self.run.run, thread = %self.run.thread, code = failure.code(), %failure, detail, "hooks failed at the end of a run");
        self.hooks = None;
        self.stage(failed.unwrap_or_else(|| {
            let error = RunError::new(failure.to_string(), Some(failure.code()));
            Event::new(Body::RunError(Box::new(error)))
        }));
    }

    /// Passes an event through the state and output hooks.
    async fn pass_hooks(
        &mut self,
        hook_set: &HookSet,
        mut event: Event,
        is_from_agent: bool,
    ) -> Result<(), RunFailure> {
        if !self.amend(&mut event) {
            return Ok(());
        }
        if matches!(event.body, Body::RunFinished(_)) {
            self.offer_state(hook_set, is_from_agent).await?;
        }
        self.pass_output_hook(hook_set, event, is_from_agent).await
    }

    /// Offers the final state to the state hook, once.
    async fn offer_state(&mut self, hook_set: &HookSet, is_from_agent: bool) -> Result<(), RunFailure> {
        match &mut self.hooks {
            Some(hooks) if self.encoding.is_started && !hooks.is_state_offered => {
                hooks.is_state_offered = true
            }
            _ => return Ok(()),
        }
        let state = self.encoding.join.fold().state().clone();
        let changed = self.await_hook(hook_set.state(state.clone())).await?;
        if changed == state {
            return Ok(());
        }
        let snapshot = Json::parse(&changed.to_string())
            .map_err(|error| failed(format!("the hook `state` gave a state that cannot be told: {error}")))?;
        self.pass_output_hook(hook_set, Event::new(Body::StateSnapshot { snapshot }), is_from_agent).await
    }

    async fn pass_output_hook(
        &mut self,
        hook_set: &HookSet,
        event: Event,
        is_from_agent: bool,
    ) -> Result<(), RunFailure> {
        let mut valid = Vec::new();
        match &mut self.hooks {
            Some(hooks) => hooks.guard.push(event, &mut valid),
            None => valid.push(event),
        }
        let now = i64::try_from(self.gateway.store().now().0).unwrap_or(i64::MAX);
        for mut event in valid {
            event.timestamp.get_or_insert(now);
            let terminal = event.is_terminal().then(|| event.clone());
            let changed = self.await_hook(hook_set.output(event)).await?;
            let event = match terminal {
                // A hook cannot keep the run open.
                Some(terminal) if !changed.is_terminal() => terminal,
                _ => changed,
            };
            if is_from_agent && self.resume.is_some() {
                self.record_event(event)?;
            } else {
                self.stage_guarded(event);
            }
        }
        Ok(())
    }

    /// Awaits a hook, which has a timeout of its own.
    async fn await_hook<T>(
        &mut self,
        hook: impl Future<Output = Result<T, UpstreamError>>,
    ) -> Result<T, RunFailure> {
        tokio::select! {
            biased;
            done = hook => {
                if let (Err(_), Some(hooks)) = (&done, &mut self.hooks) {
                    hooks.is_failed = true;
                }
                Ok(done?)
            }
            () = self.gateway.shutdown().cancelled() => Err(RunFailure::Shutdown),
        }
    }
}
