//! The hooks of a run, between what is said and the log.
//!
//! With hooks, nothing is staged directly: what the agent says passes the event hook, then a guard of its own, so that
//! the output hooks see a valid stream, and what they make of it passes the recorder's guard like anything else. What the
//! gateway says itself waits in a queue until somebody who can wait lets it out.

use std::{collections::VecDeque, future::Future, panic::AssertUnwindSafe};

use agentwire_core::{
    event::{Body, Event, RunError, RunInput, RunStarted},
    json::Json,
    order::Guard,
};
use tokio::sync::mpsc;

use super::{Command, Ending, LogFailure, RunRecorder};
use crate::{
    error::{RunFailure, UpstreamError},
    hooks::{HookSet, RunContext, failed},
};

/// The hooks of a run and what they have not seen yet.
pub(super) struct RecorderHooks {
    pub(super) wired: HookSet,
    /// Makes valid what the output hooks see.
    guard: Guard,
    /// What the gateway said itself.
    pub(super) unsaid: VecDeque<Event>,
    /// Whether the final state was offered.
    is_state_told: bool,
    /// Whether a hook has ended the run.
    pub(super) is_failed: bool,
}

impl RunRecorder {
    /// Makes the hooks and takes the session lock; an ending if that is not to be.
    pub(super) async fn admit_by_hooks(
        &mut self,
        context: Option<&RunContext>,
        commands: &mut mpsc::Receiver<Command>,
    ) -> Result<Option<Ending>, LogFailure> {
        if let (Some(make), Some(context)) = (&self.agent.hooks, context) {
            let made = std::panic::catch_unwind(AssertUnwindSafe(|| make(context)));
            let Ok(wired) = made else {
                return Ok(Some(Ending::Failed(
                    failed("the hooks of a run panicked while they were made").into(),
                )));
            };
            let guard = Guard::new(self.run.thread.clone(), self.run.run.clone());
            let unsaid = VecDeque::new();
            self.hooks = Some(Box::new(RecorderHooks {
                wired,
                guard,
                unsaid,
                is_state_told: false,
                is_failed: false,
            }));
        }
        let Some(lock) = self.lock.clone() else { return Ok(None) };
        let taking = lock.acquire();
        tokio::pin!(taking);
        loop {
            tokio::select! {
                taken = &mut taking => {
                    let Err(failure) = taken else { return Ok(None) };
                    return Ok(Some(self.refuse(failure.into()).await));
                }
                Some(command) = commands.recv() => {
                    if let Some(ending) = self.obey(command) {
                        return Ok(Some(ending));
                    }
                }
                () = self.gateway.shutdown().cancelled() => return Ok(Some(Ending::Failed(RunFailure::Shutdown))),
                () = tokio::time::sleep(self.gateway.settings().lease / 3) => self.renew().await?,
            }
        }
    }

    /// A run that does not get to begin is told like one that the gateway itself refuses. The thread stays as it was.
    async fn refuse(&mut self, failure: RunFailure) -> Ending {
        let started = RunStarted::new(self.run.thread.clone(), self.run.run.clone());
        self.stage(Event::new(Body::RunStarted(Box::new(started))));
        let said = self.say().await;
        self.started = false;
        Ending::Failed(said.err().unwrap_or(failure))
    }

    /// Shows the input to the hooks and lets them change it.
    pub(super) async fn convert_input(&mut self, input: RunInput) -> Result<RunInput, RunFailure> {
        let Some(hooks) = &self.hooks else { return Ok(input) };
        let wired = hooks.wired.clone();
        self.wait_for(wired.input_record(&input)).await?;
        let mut changed = self.wait_for(wired.input(input)).await?;
        // These are what the log and the lease are about.
        changed.thread = self.run.thread.clone();
        changed.run = self.run.run.clone();
        Ok(changed)
    }

    /// Lets the hooks see what the agent says, and makes what they leave of it ready for the log.
    pub(super) async fn hear_through_hooks(&mut self, event: Event) -> Result<(), RunFailure> {
        let Some(hooks) = &self.hooks else { return self.hear(event) };
        let wired = hooks.wired.clone();
        let mut events = Vec::new();
        self.wait_for(wired.event(event, &mut events)).await?;
        for event in events {
            self.usher(&wired, event, true).await?;
            if self.terminal.is_some() {
                return Ok(());
            }
        }
        self.say().await
    }

    /// Lets the hooks see what the gateway said itself, and makes what they leave of it ready for the log.
    pub(super) async fn say(&mut self) -> Result<(), RunFailure> {
        while let Some(hooks) = &mut self.hooks
            && let Some(event) = hooks.unsaid.pop_front()
        {
            let wired = hooks.wired.clone();
            Box::pin(self.usher(&wired, event, false)).await?;
        }
        Ok(())
    }

    /// Lets the hooks see the ending. If they fail at that, the run ends without them: as it `failed`, or because of
    /// them.
    pub(super) async fn say_ending(&mut self, failed: Option<Event>) {
        let failure = match (self.say().await, failed.is_some() && self.terminal.is_none()) {
            (Err(failure), _) => failure,
            (Ok(()), false) => return,
            // They were shown another ending before they failed, and there are no two.
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

    /// Sees an event through state and output hooks. `is_heard` if it is the agent's.
    async fn usher(&mut self, wired: &HookSet, mut event: Event, is_heard: bool) -> Result<(), RunFailure> {
        if !self.settle(&mut event) {
            return Ok(());
        }
        if matches!(event.body, Body::RunFinished(_)) {
            self.tell_state(wired, is_heard).await?;
        }
        self.let_out(wired, event, is_heard).await
    }

    /// Offers the final state, once.
    async fn tell_state(&mut self, wired: &HookSet, is_heard: bool) -> Result<(), RunFailure> {
        match &mut self.hooks {
            Some(hooks) if self.started && !hooks.is_state_told => hooks.is_state_told = true,
            _ => return Ok(()),
        }
        let state = self.join.fold().state().clone();
        let told = self.wait_for(wired.state(state.clone())).await?;
        if told == state {
            return Ok(());
        }
        let snapshot = Json::parse(&told.to_string())
            .map_err(|error| failed(format!("the hook `state` gave a state that cannot be told: {error}")))?;
        self.let_out(wired, Event::new(Body::StateSnapshot { snapshot }), is_heard).await
    }

    async fn let_out(&mut self, wired: &HookSet, event: Event, is_heard: bool) -> Result<(), RunFailure> {
        let mut valid = Vec::new();
        match &mut self.hooks {
            Some(hooks) => hooks.guard.push(event, &mut valid),
            None => valid.push(event),
        }
        let now = i64::try_from(self.gateway.store().now().0).unwrap_or(i64::MAX);
        for mut event in valid {
            event.timestamp.get_or_insert(now);
            let ending = event.is_terminal().then(|| event.clone());
            let changed = self.wait_for(wired.output(event)).await?;
            let event = match ending {
                Some(ending) if !changed.is_terminal() => ending,
                _ => changed,
            };
            if is_heard && self.again.is_some() {
                self.hear(event)?;
            } else {
                self.let_through(event);
            }
        }
        Ok(())
    }

    /// Waits for a hook. It has its own bound; the claim on the run is kept meanwhile.
    async fn wait_for<T>(
        &mut self,
        hook: impl Future<Output = Result<T, UpstreamError>>,
    ) -> Result<T, RunFailure> {
        tokio::pin!(hook);
        loop {
            tokio::select! {
                biased;
                done = &mut hook => {
                    if let (Err(_), Some(hooks)) = (&done, &mut self.hooks) {
                        hooks.is_failed = true;
                    }
                    return Ok(done?);
                }
                () = self.gateway.shutdown().cancelled() => return Err(RunFailure::Shutdown),
                () = tokio::time::sleep(self.gateway.settings().lease / 3) => {
                    let (lease, run) = (self.gateway.settings().lease, &self.run.run);
                    // The next append finds out what that means.
                    let _ = self.gateway.store().renew(&self.owner, run, self.fence, lease).await;
                }
            }
        }
    }
}
