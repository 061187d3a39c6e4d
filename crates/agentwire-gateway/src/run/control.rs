//! Commands to a live run: stop, pause, resume, state patch, prelude, snapshot.

use agentwire_core::{
    event::{Body, Event},
    format::{ag_ui, hai},
    patch::{self, Patch, PatchError},
};
use agentwire_store::{CommandReply, RunStatus};
use tokio::sync::oneshot;

use super::{
    RunEnd,
    recorder::{Encoding, RunRecorder},
    remote,
};
use crate::{
    agent::{PauseMode, Request},
    codes, cpu_work,
    error::{ApiError, RunFailure},
    stream::{
        live::{Command, Prelude, Snapshot},
        log_codec::Encoder,
    },
};

/// The pause state of a run, and the clients that wait for the log.
#[derive(Default)]
pub(super) struct Control {
    /// True if a client has paused the run.
    pub(super) is_paused: bool,
    /// True if the lease of this process could not be renewed for a while.
    is_held: bool,
    pause_mode: Option<PauseMode>,
    /// The request to the agent, once it is called.
    pub(super) request: Option<Request>,
    /// A status that is stored with the next append.
    pub(super) status_change: Option<RunStatus>,
    /// Clients that wait for the next append.
    waiters: Vec<Waiter>,
    /// Replies to other processes, stored with the next append.
    pub(super) replies: Vec<CommandReply>,
}

/// A client that waits until the log has its change.
enum Waiter {
    Paused(oneshot::Sender<Result<PauseMode, ApiError>>),
    Patched(oneshot::Sender<Result<(), ApiError>>),
}

impl Control {
    /// The control state of a run that starts, or is reattached, with `status`.
    pub(super) fn new(status: RunStatus) -> Self {
        Self { is_paused: status == RunStatus::Paused, ..Self::default() }
    }

    /// True if events of the agent are not read.
    pub(super) fn is_waiting(&self) -> bool {
        self.is_paused || self.is_held
    }

    /// Replies to the clients whose change the log has now.
    pub(super) fn notify_waiters(&mut self) {
        for waiter in self.waiters.drain(..) {
            // A client may have disconnected.
            match waiter {
                Waiter::Paused(reply) => _ = reply.send(Ok(self.pause_mode.unwrap_or(PauseMode::Soft))),
                Waiter::Patched(reply) => _ = reply.send(Ok(())),
            }
        }
    }

    /// Replies to the clients whose change the log may have or not. One that got no reply would be made again, at the next
    /// holder of the run or in the stored state.
    pub(super) fn fail_waiters(&mut self) {
        for waiter in self.waiters.drain(..) {
            if let Waiter::Patched(reply) = waiter {
                let message = "the store failed while the patch was written: the state may have it or not";
                let error = ApiError::new(codes::STORE_UNAVAILABLE, message)
                    .hint("read the state before you send the patch again");
                let _ = reply.send(Err(error.retry_after(5)));
            }
        }
    }
}

impl RunRecorder {
    /// Executes a command; the end of the run if the command ends it. Nothing is staged when it is called.
    pub(super) async fn execute_command(&mut self, command: Command) -> Option<RunEnd> {
        match command {
            Command::Stop(reason) => return Some(RunEnd::Stopped(reason)),
            Command::DeleteThread => return Some(RunEnd::Failed(RunFailure::ThreadDeleted)),
            Command::Prelude(reply) => {
                let show = |recorder: &mut Self| {
                    let mut encoder = Encoder::new(&recorder.run.thread, &recorder.run.run);
                    let events = recorder.encoding.join.prelude();
                    events.iter().filter_map(|event| encoder.encode(event)).collect()
                };
                let events = self.off_worker_if_large(show).await;
                let _ = reply.send(Prelude { events, next: self.position.next });
            }
            Command::Snapshot(reply) => {
                let show = |recorder: &mut Self| Snapshot {
                    messages: ag_ui::messages_to_json(recorder.encoding.join.messages()),
                    initial_messages: ag_ui::messages_to_json(&recorder.input.messages),
                    state: recorder.encoding.join.fold().state().to_string(),
                };
                let snapshot = self.off_worker_if_large(show).await;
                let _ = reply.send(snapshot);
            }
            Command::Step(reply) => _ = reply.send(self.encoding.open_steps.last().cloned()),
            Command::SetPaused(is_paused, reply) => self.set_paused(is_paused, reply),
            Command::Hold(is_held) => self.control.is_held = is_held,
            Command::Patch { patch, reply, command } => match self.patch_state(patch).await {
                // Replied to when the log has it, so that an acknowledged patch survives a crash.
                Ok(()) => {
                    self.control.waiters.push(Waiter::Patched(reply));
                    let reply = |id| CommandReply { id, body: remote::done() };
                    self.control.replies.extend(command.map(reply));
                }
                Err(error) => _ = reply.send(Err(error)),
            },
        }
        None
    }

    /// Runs `work` with the whole thread; off the workers if that is large.
    async fn off_worker_if_large<T>(&mut self, work: impl FnOnce(&mut Self) -> T) -> T {
        if !self.encoding.size.is_large() {
            return work(self);
        }
        let _seat = cpu_work::seat(&self.owner).await;
        cpu_work::off_worker(|| work(self))
    }

    fn set_paused(&mut self, is_paused: bool, reply: oneshot::Sender<Result<PauseMode, ApiError>>) {
        let control = &mut self.control;
        let Some(request) = control.request.as_ref().filter(|_| self.encoding.terminal.is_none()) else {
            let _ = reply.send(Err(ApiError::new(codes::IMPOSSIBLE, "the run does not go on now")));
            return;
        };
        if control.is_paused == is_paused {
            // Idempotent. A run that was never paused reports the mode that a pause would have.
            let mode = *control.pause_mode.get_or_insert_with(|| self.agent.agent.pause(request, is_paused));
            let _ = reply.send(Ok(mode));
            return;
        }
        control.is_paused = is_paused;
        if !is_paused {
            request.pauses.resume();
        }
        let mode = self.agent.agent.pause(request, is_paused);
        control.pause_mode = Some(mode);
        let status = if is_paused { RunStatus::Paused } else { RunStatus::Running };
        control.status_change = Some(status);
        control.waiters.push(Waiter::Paused(reply));
        self.stage(Event::new(hai::run_status(status.as_str(), mode.as_str())));
    }

    async fn patch_state(&mut self, patch: Patch) -> Result<(), ApiError> {
        if !self.encoding.is_started || self.encoding.terminal.is_some() {
            return Err(ApiError::new(codes::THREAD_IS_LOCKED, "a run is about to begin or has just ended")
                .retry_after(1));
        }
        // The whole state is copied.
        let is_long =
            cpu_work::is_long_patch(&patch, self.encoding.size.state()) || self.encoding.size.is_large();
        let _seat = if is_long { Some(cpu_work::seat(&self.owner).await) } else { None };
        let mut limits = self.gateway.settings().limits.patch();
        let Encoding { join, size, .. } = &mut self.encoding;
        let max_state = self.gateway.settings().limits.thread_state;
        let mut try_out = || {
            let mut state = join.fold().state().clone();
            (limits.max_size_growth, limits.max_footprint_growth) = size.room(true);
            let mut applied = patch::apply(&mut state, &patch, &limits);
            if applied.as_ref().is_err_and(PatchError::is_too_large) {
                // The room was estimated.
                size.measure_state(&state);
                (limits.max_size_growth, limits.max_footprint_growth) = size.room(true);
                applied = patch::apply(&mut state, &patch, &limits);
            }
            // Patches are atomic, so `state` is unchanged after an error.
            applied.map_err(|error| ApiError::state_patch_failed(&error, state, max_state))
        };
        if is_long {
            cpu_work::off_worker(try_out)?
        } else {
            try_out()?
        }
        self.stage(Event::new(Body::StateDelta { patch }));
        Ok(())
    }
}
