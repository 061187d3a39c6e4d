//! Commands to a run, wherever it is driven: by a task of this process, or by another process through the store.
//!
//! The holder of a run executes a command as if its client had asked there, and replies once the log has the effect. The reply
//! to a patch is part of the append that logs it, so that a patch is never applied twice.

use std::{sync::Arc, time::Duration};

use agentwire_core::{
    event::{RunId, ThreadId},
    format::ag_ui,
    patch::Patch,
};
use agentwire_store::{CommandId, Delivery, Owner, Run, RunKey, RunStatus, StoreError, TakenCommand, Text};
use futures_util::future::join_all;
use serde_json::{Value, json};
use tokio::{sync::oneshot, time::Instant};

use crate::{
    agent::PauseMode,
    codes,
    cpu_work::{self, Expected},
    error::ApiError,
    gateway::Gateway,
    stream::live::{Command, LiveRun},
};

/// The reason in the server log for a run that a client of another process has stopped.
const ASKED_ELSEWHERE: &str = "it was asked for at another gateway";

/// The time in which a disconnect must have been noticed: the next message may arrive before the end of the connection of
/// the client that stopped.
pub(super) const DISCONNECT_GRACE: Duration = Duration::from_millis(500);

/// Runs of a thread that are read at once.
const RUNS_PAGE: usize = 256;

/// The time after which a reply that cannot be stored is given up: the store keeps no command for longer.
const REPLY_LIMIT: Duration = Duration::from_secs(60);

/// A command to a run.
#[derive(Clone)]
pub(crate) enum Control {
    /// Ends it as cancelled, with the reason for the server log.
    Stop(&'static str),
    /// Ends it as cancelled if no client reads it.
    StopUnread(&'static str),
    /// Pauses or resumes it.
    Pause(bool),
    /// Changes its state. The text of the patch, as its client sent it.
    Patch(Arc<Patch>, Text),
    /// Ends it because its thread is being deleted.
    DeleteThread,
}

/// The effect of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Controlled {
    Done,
    Paused(PauseMode),
    /// A client reads the run.
    Read,
    /// The run has ended, and the command has changed nothing.
    Ended,
}

impl Control {
    fn to_text(&self) -> Text {
        let command = match self {
            Self::Stop(_) => json!("stop"),
            Self::StopUnread(_) => json!("stop_unread"),
            Self::Pause(is_paused) => json!({ "pause": is_paused }),
            Self::Patch(_, text) => json!({ "patch": &**text }),
            Self::DeleteThread => json!("delete_thread"),
        };
        command.to_string().into()
    }

    /// True if the command may be executed twice. A patch may not; its reply is part of the append that logs it.
    fn is_repeatable(&self) -> bool {
        !matches!(self, Self::Patch(..))
    }

    fn from_text(text: &str) -> Option<Self> {
        let command: Value = serde_json::from_str(text).ok()?;
        if let Some(is_paused) = command["pause"].as_bool() {
            return Some(Self::Pause(is_paused));
        }
        if let Some(text) = command["patch"].as_str() {
            let patch = ag_ui::patch_from_json(text).ok()?;
            return Some(Self::Patch(Arc::new(patch), text.into()));
        }
        match command.as_str()? {
            "stop" => Some(Self::Stop(ASKED_ELSEWHERE)),
            "stop_unread" => Some(Self::StopUnread(ASKED_ELSEWHERE)),
            "delete_thread" => Some(Self::DeleteThread),
            _ => None,
        }
    }
}

/// The reply to a command whose effect is done.
pub(super) fn done() -> Text {
    reply_text(Ok(Controlled::Done))
}

fn reply_text(result: Result<Controlled, ApiError>) -> Text {
    let reply = match result {
        Ok(Controlled::Done) => json!({"done": true}),
        Ok(Controlled::Paused(mode)) => json!({"mode": mode.as_str()}),
        Ok(Controlled::Read) => json!({"read": true}),
        Ok(Controlled::Ended) => json!({"gone": true}),
        Err(error) => json!({"error": {
            "code": error.code,
            "message": error.message,
            "hint": error.hint,
            "retryAfter": error.retry_after,
            "snapshot": error.snapshot,
        }}),
    };
    reply.to_string().into()
}

/// `None` if the holder does not drive the run any more.
fn parse_reply(text: &str) -> Option<Result<Controlled, ApiError>> {
    let mut reply: Value = serde_json::from_str(text).ok()?;
    if reply["done"].as_bool() == Some(true) {
        return Some(Ok(Controlled::Done));
    }
    if reply["read"].as_bool() == Some(true) {
        return Some(Ok(Controlled::Read));
    }
    if let Some(mode) = reply["mode"].as_str() {
        let mode = if mode == PauseMode::Hard.as_str() { PauseMode::Hard } else { PauseMode::Soft };
        return Some(Ok(Controlled::Paused(mode)));
    }
    let error = reply.get_mut("error")?;
    let code = codes::find(error["code"].as_str()?).map_or(codes::INTERNAL, |code| code.name);
    let snapshot = Some(error["snapshot"].take()).filter(|snapshot| !snapshot.is_null());
    Some(Err(ApiError {
        hint: error["hint"].as_str().map(Into::into),
        retry_after: error["retryAfter"].as_u64(),
        snapshot: snapshot.map(Box::new),
        ..ApiError::new(code, error["message"].as_str().unwrap_or_default())
    }))
}

/// The result of a command to a run that may have been deleted meanwhile.
fn unless_deleted(done: Result<Controlled, ApiError>) -> Result<(), ApiError> {
    match done {
        Err(error) if ![codes::UNKNOWN_RUN, codes::UNKNOWN_THREAD].contains(&error.code) => Err(error),
        _ => Ok(()),
    }
}

fn unreachable() -> ApiError {
    ApiError::new(codes::RUN_UNREACHABLE, "the gateway that drives the run does not respond").retry_after(1)
}

impl Gateway {
    /// Executes a command to a run, here or where it is driven. [`Controlled::Ended`] if it has ended.
    pub(crate) async fn control(
        &self,
        owner: &Owner,
        run: &RunId,
        control: Control,
    ) -> Result<Controlled, ApiError> {
        let key = RunKey { owner: owner.clone(), run: run.clone() };
        let patience = self.settings().store_patience;
        let deadline = Instant::now() + patience;
        loop {
            if let Some(live) = self.live_run(owner, run) {
                let controlled = self.execute(&live, control.clone(), None).await?;
                if controlled != Controlled::Ended {
                    return Ok(controlled);
                }
            }
            let stored = self.store().run(owner, run).await?;
            if !stored.status.is_live() {
                return Ok(Controlled::Ended);
            }
            let lease = self.store().lease(owner, &stored.thread).await?;
            if lease.is_some_and(|lease| lease.run == *run && !lease.live) {
                self.settle_orphan(owner, run).await?;
            } else if stored.holder != *self.holder() {
                let rest = deadline.saturating_duration_since(Instant::now());
                if control.is_repeatable()
                    && let Some(direct) = self.direct()
                    && let Some(reply) =
                        direct.command(&stored.holder, &key, &control.to_text(), rest / 2).await
                    && let Some(result) = parse_reply(&reply)
                {
                    return result;
                }
                let rest = deadline.saturating_duration_since(Instant::now());
                match self.store().send(&key, control.to_text(), rest).await? {
                    Delivery::Replied(reply) => {
                        if let Some(result) = parse_reply(&reply) {
                            return result;
                        }
                    }
                    Delivery::Ended => return Ok(Controlled::Ended),
                    Delivery::Withdrawn => return Err(unreachable()),
                }
            }
            if Instant::now() >= deadline {
                return Err(unreachable());
            }
            // The run is changing hands.
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Ends the live runs of a thread that is being deleted, while their readers can still read the endings. Those that wait
    /// for the thread end first: otherwise one of them would get it, and call its agent, when the run before it ends.
    pub(crate) async fn end_runs_of_deleted(&self, owner: &Owner, thread: &ThreadId) -> Result<(), ApiError> {
        let deadline = Instant::now() + self.settings().store_patience;
        loop {
            let live = self.live_runs_of(owner, thread).await?;
            let (queued, begun): (Vec<_>, Vec<_>) =
                live.into_iter().partition(|run| run.status == RunStatus::Queued);
            if (queued.is_empty() && begun.is_empty()) || Instant::now() >= deadline {
                return Ok(());
            }
            let ending = queued.iter().map(|run| self.control(owner, &run.run, Control::DeleteThread));
            for ended in join_all(ending).await {
                // If its gateway is gone, nothing of it is running, and it goes with the thread.
                let is_unreachable = ended.as_ref().is_err_and(|error| error.code == codes::RUN_UNREACHABLE);
                if !is_unreachable {
                    unless_deleted(ended)?;
                }
            }
            for run in begun {
                unless_deleted(self.control(owner, &run.run, Control::DeleteThread).await)?;
            }
        }
    }

    /// The live runs of a thread, newest first.
    async fn live_runs_of(&self, owner: &Owner, thread: &ThreadId) -> Result<Vec<Run>, ApiError> {
        let oldest = match self.store().lease(owner, thread).await {
            Err(StoreError::NotFound(_)) => return Ok(Vec::new()),
            lease => lease?.map(|lease| lease.run),
        };
        let (mut found, mut before) = (Vec::new(), None);
        loop {
            let page = match self.store().runs(owner, thread, before, RUNS_PAGE).await {
                Err(StoreError::NotFound(_)) => return Ok(Vec::new()),
                page => page?,
            };
            let has_oldest = page.items.iter().any(|run| Some(&run.run) == oldest.as_ref());
            found.extend(page.items.into_iter().filter(|run| run.status.is_live()));
            // The run that has the thread is older than those that wait for it.
            match page.next {
                Some(next) if oldest.is_some() && !has_oldest => before = Some(next),
                _ => return Ok(found),
            }
        }
    }

    /// Ends those of these runs of this process whose record is gone: their thread was deleted while they began, and an agent
    /// that says nothing would be called for ever.
    pub(crate) async fn end_deleted_runs(&self, live: impl Iterator<Item = &Arc<LiveRun>>) {
        for live in live {
            if let Err(StoreError::NotFound(_)) = self.store().run(&live.key.owner, &live.key.run).await {
                // A full queue belongs to a run that waits for the store, and notices by itself.
                let _ = live.commands.try_send(Command::DeleteThread);
            }
        }
    }

    /// Executes a command to a run of this process. [`Controlled::Ended`] if the run takes no more commands.
    async fn execute(
        &self,
        live: &Arc<LiveRun>,
        control: Control,
        command: Option<CommandId>,
    ) -> Result<Controlled, ApiError> {
        let patience = self.settings().store_patience;
        match control {
            Control::StopUnread(reason) => {
                if !live.wait_until_unread(DISCONNECT_GRACE).await
                    || self.store().has_readers(&live.key, self.holder()).await?
                {
                    return Ok(Controlled::Read);
                }
                live.stop(reason).await;
            }
            Control::Stop(reason) => live.stop(reason).await,
            Control::DeleteThread => _ = live.commands.send(Command::DeleteThread).await,
            Control::Pause(is_paused) => {
                let (reply, done) = oneshot::channel();
                let sent = live.commands.send(Command::SetPaused(is_paused, reply)).await;
                return match (sent, done.await) {
                    (Ok(()), Ok(done)) => done.map(Controlled::Paused),
                    _ => Ok(Controlled::Ended),
                };
            }
            Control::Patch(patch, _) => {
                let (reply, done) = oneshot::channel();
                let patch = Patch::clone(&patch);
                let sent = live.commands.send(Command::Patch { patch, reply, command }).await;
                return match (sent, done.await) {
                    (Ok(()), Ok(done)) => done.map(|()| Controlled::Done),
                    _ => Ok(Controlled::Ended),
                };
            }
        }
        let _ = tokio::time::timeout(patience, live.clone().ended()).await;
        Ok(Controlled::Done)
    }

    /// Executes the commands that other processes send to the runs of this one.
    pub(crate) async fn serve_inbox(self) {
        loop {
            tokio::select! {
                () = self.wait_for_runs(true) => {}
                () = self.shutdown().cancelled() => return,
            }
            let taken = tokio::select! {
                taken = self.store().inbox(self.holder()) => taken,
                () = self.wait_for_runs(false) => continue,
                () = self.shutdown().cancelled() => return,
            };
            match taken {
                Ok(taken) => {
                    for command in taken {
                        let taken = self.clone().execute_taken(command);
                        self.tasks().spawn(cpu_work::watched(Expected::Short, taken));
                    }
                }
                Err(error) => {
                    tracing::warn!(%error, "commands of other gateways could not be read");
                    tokio::time::sleep(Duration::from_millis(200)).await;
                }
            }
        }
    }

    /// Executes a command that another process has sent directly; the reply. `None` if this process does not drive the run.
    pub(crate) async fn execute_sent(&self, key: &RunKey, command: &str) -> Option<Text> {
        let live = self.live_run(&key.owner, &key.run)?;
        let control = Control::from_text(command).filter(Control::is_repeatable)?;
        Some(reply_text(self.execute(&live, control, None).await))
    }

    async fn execute_taken(self, taken: TakenCommand) {
        let result = match (self.live_run(&taken.run.owner, &taken.run.run), Control::from_text(&taken.body))
        {
            (_, None) => Err(ApiError::new(codes::INTERNAL, "the gateways have different versions")),
            (None, _) => Ok(Controlled::Ended),
            (Some(live), Some(control)) => self.execute(&live, control, Some(taken.id)).await,
        };
        let reply = reply_text(result);
        let deadline = Instant::now() + REPLY_LIMIT;
        // Its sender waits: nobody else replies while this process has the run.
        while let Err(error) = self.store().reply(taken.id, taken.fence, reply.clone()).await {
            if !error.is_outage() || Instant::now() >= deadline {
                tracing::warn!(run = %taken.run.run, %error, "a command of another gateway got no reply");
                return;
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }
}
