//! The hooks of a run, between its events and the log.
//!
//! With hooks, no event is staged directly. An event of the agent passes the event hook and then a guard of its own, so that
//! the output hooks see a valid stream; their result passes the recorder's guard like any other event. Events of the
//! gateway wait in a queue until they can pass the output hooks, which are async.

use std::{collections::VecDeque, future::Future, panic::AssertUnwindSafe, sync::Arc};

use agentwire_core::{
    event::{Body, Event, RunError, RunInput, RunStarted},
    json::Json,
    order::Guard,
};
use tokio::sync::mpsc;

use super::{RunEnd, recorder::RunRecorder};
use crate::{
    agent::NativeHooks,
    error::{RunFailure, UpstreamError},
    hooks::{HookSet, Points, RunContext, failed},
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
                    if let Some(end) = self.execute_command(command).await {
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

    /// The hooks on native events, if there are any. Hooks that are not called for decoded events end here.
    pub(super) fn native_hooks(&mut self) -> Option<Arc<dyn NativeHooks>> {
        let hooks = self.hooks.as_ref()?;
        let (hook_set, points) = (hooks.hook_set.clone(), hooks.hook_set.points());
        if hooks.queue.is_empty() && !points.intersects(Points::OF_EVENTS) {
            self.hooks = None;
        }
        points.intersects(Points::OF_NATIVES).then(|| Arc::new(hook_set) as Arc<dyn NativeHooks>)
    }

    /// Records events of the agent through the hooks.
    pub(super) async fn record_through_hooks(&mut self, batch: Vec<Event>) -> Result<(), RunFailure> {
        let Some(hooks) = &self.hooks else { return Ok(()) };
        let hook_set = hooks.hook_set.clone();
        let (mut events, mut valid) = (Vec::new(), Vec::new());
        let filtered = self.await_hook(hook_set.events(batch, &mut events)).await;
        for event in events {
            if event.is_terminal() {
                // The gateway's rules and the state hook need the events before it.
                self.pass_output_hook(&hook_set, std::mem::take(&mut valid), true).await?;
            }
            self.pass_hooks(&hook_set, event, true, &mut valid).await?;
            if self.encoding.terminal.is_some() {
                return Ok(());
            }
        }
        self.pass_output_hook(&hook_set, valid, true).await?;
        filtered?;
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
            let mut valid = Vec::new();
            self.pass_hooks(&hook_set, event, false, &mut valid).await?;
            self.pass_output_hook(&hook_set, valid, false).await?;
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

    /// Passes an event through the gateway's rules, the state hook and the guard to `valid`: events for the output hooks.
    async fn pass_hooks(
        &mut self,
        hook_set: &HookSet,
        mut event: Event,
        is_from_agent: bool,
        valid: &mut Vec<Event>,
    ) -> Result<(), RunFailure> {
        if !self.amend(&mut event) {
            return Ok(());
        }
        if matches!(event.body, Body::RunFinished(_)) {
            self.offer_state(hook_set, is_from_agent).await?;
        }
        let is_terminal = event.is_terminal();
        self.guard_before_output(event, valid);
        if is_terminal {
            self.pass_output_hook(hook_set, std::mem::take(valid), is_from_agent).await?;
        }
        Ok(())
    }

    fn guard_before_output(&mut self, event: Event, valid: &mut Vec<Event>) {
        match &mut self.hooks {
            Some(hooks) => hooks.guard.push(event, valid),
            None => valid.push(event),
        }
    }

    /// Offers the final state to the state hook, once.
    async fn offer_state(&mut self, hook_set: &HookSet, is_from_agent: bool) -> Result<(), RunFailure> {
        match &mut self.hooks {
            Some(hooks) if self.encoding.is_started && !hooks.is_state_offered => {
                hooks.is_state_offered = true
            }
            _ => return Ok(()),
        }
        if !hook_set.points().contains(Points::STATE) {
            return Ok(());
        }
        let state = self.encoding.join.fold().state().clone();
        let changed = self.await_hook(hook_set.state(state.clone())).await?;
        if changed == state {
            return Ok(());
        }
        let snapshot = Json::parse(&changed.to_string())
            .map_err(|error| failed(format!("the hook `state` gave a state that cannot be told: {error}")))?;
        let mut valid = Vec::new();
        self.guard_before_output(Event::new(Body::StateSnapshot { snapshot }), &mut valid);
        self.pass_output_hook(hook_set, valid, is_from_agent).await
    }

    /// Passes valid events through the output hooks, and stages the result. Only the last one can be a terminal event.
    async fn pass_output_hook(
        &mut self,
        hook_set: &HookSet,
        mut valid: Vec<Event>,
        is_from_agent: bool,
    ) -> Result<(), RunFailure> {
        if valid.is_empty() {
            return Ok(());
        }
        let now = i64::try_from(self.gateway.store().now().0).unwrap_or(i64::MAX);
        valid.iter_mut().for_each(|event| _ = event.timestamp.get_or_insert(now));
        let count = valid.len();
        let terminal = valid.last().filter(|event| event.is_terminal()).cloned();
        let mut changed = Vec::with_capacity(count);
        let passed = self.await_hook(hook_set.outputs(valid, &mut changed)).await;
        if let (Some(terminal), Some(last)) = (terminal, changed.get_mut(count - 1))
            && !last.is_terminal()
        {
            // A hook cannot keep the run open.
            *last = terminal;
        }
        for event in changed {
            let seat = self.reserve(&event).await;
            if is_from_agent && self.resume.is_some() {
                self.record_event(event)?;
            } else {
                self.stage_guarded(event);
            }
            drop(seat);
            if self.encoding.terminal.is_some() {
                break;
            }
            // A snapshot of the state follows a patch that does not apply.
            if self.hooks.as_ref().is_some_and(|hooks| !hooks.queue.is_empty()) {
                Box::pin(self.stage_queued()).await?;
            }
            // For each event: a small one can copy a large value.
            if let Some(failure) = self.exceeded_limit().filter(|_| is_from_agent) {
                return Err(failure);
            }
        }
        passed
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
