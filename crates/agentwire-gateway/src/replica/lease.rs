//! The lease of this process.
//!
//! Renewed every third of its lifetime while a run is live here, and before a run starts. The process judges its lease by
//! its own monotonic clock, from the moment at which it sent the last renewal that the store confirmed:
//!
//! * two thirds of the lifetime later it stops reading from its agents, so that nothing is produced that might be lost;
//! * one lifetime later the runs may belong to another process: they end here without an ending in the log, and the
//!   connections of their readers are cut, because a regular end would look like the end of the run.

use std::{
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use agentwire_store::{RunKey, StoreError};
use tokio::time::Instant;

use crate::{
    codes,
    gateway::Gateway,
    stream::live::{Command, LiveRun, LogFailure},
};

/// The cause of runs whose process could not renew its lease.
const LEASE_LOST: LogFailure =
    LogFailure { code: codes::GATEWAY_LOST, message: "the gateway could not reach its store for too long" };

/// The cause of runs that this process has released to others.
pub(crate) const RELEASED: LogFailure =
    LogFailure { code: codes::GATEWAY_LOST, message: "the run goes on at another gateway" };

/// The cause of runs that another process has taken over.
pub(crate) const TAKEN_OVER: LogFailure =
    LogFailure { code: codes::GATEWAY_LOST, message: "another gateway has taken the run over" };

/// The lease of this process, as far as it knows.
#[derive(Debug, Default)]
pub(crate) struct ProcessLease {
    /// The moment at which the last confirmed renewal was sent.
    confirmed: Mutex<Option<Instant>>,
    /// True if the task that renews it was started.
    is_renewed: AtomicBool,
    /// True if the task that executes the commands of other processes was started.
    has_inbox: AtomicBool,
}

impl ProcessLease {
    /// True once: the caller starts the task that executes the commands of other processes.
    pub(crate) fn begin_inbox(&self) -> bool {
        !self.has_inbox.swap(true, Ordering::Relaxed)
    }

    fn confirmed(&self) -> Option<Instant> {
        *self.confirmed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn confirm(&self, sent: Instant) {
        let mut confirmed = self.confirmed.lock().unwrap_or_else(PoisonError::into_inner);
        *confirmed = Some(confirmed.map_or(sent, |before| before.max(sent)));
    }
}

impl Gateway {
    /// The interval of renewals.
    fn beat(&self) -> Duration {
        (self.settings().lease / 3).max(Duration::from_millis(5))
    }

    /// Renews the lease. If it had expired, the runs that another process has taken over end here.
    pub(crate) async fn renew_lease(&self) -> Result<(), StoreError> {
        let sent = Instant::now();
        if !self.store().renew(self.holder(), self.settings().lease).await? {
            self.end_lost_runs().await?;
        }
        self.lease().confirm(sent);
        Ok(())
    }

    /// Makes sure that the lease is live and will be renewed, before this process claims a run.
    pub(crate) async fn ensure_lease(&self) -> Result<(), StoreError> {
        let is_fresh = self.lease().confirmed().is_some_and(|sent| sent.elapsed() < self.beat());
        if !is_fresh {
            self.renew_lease().await?;
        }
        if !self.lease().is_renewed.swap(true, Ordering::Relaxed) {
            self.tasks().spawn(self.clone().keep_lease());
        }
        Ok(())
    }

    /// Renews the lease until the gateway is shut down and its runs have ended.
    async fn keep_lease(self) {
        tokio::select! {
            () = self.renew_regularly() => {}
            () = self.watch_lease() => {}
        }
    }

    /// Without live runs nothing is sent, so that a database may sleep.
    async fn renew_regularly(&self) {
        let mut wait = self.beat();
        loop {
            tokio::select! {
                () = self.shutdown().cancelled() => {
                    if self.live_run_count() == 0 {
                        return;
                    }
                    // The last runs are being ended.
                    tokio::time::sleep(wait.min(Duration::from_millis(50))).await;
                }
                () = tokio::time::sleep(wait) => {}
            }
            wait = self.beat();
            if self.live_run_count() == 0 {
                continue;
            }
            // Long enough for a new connection to a busy server: an attempt that is given up loses its connection.
            let result = tokio::time::timeout(self.beat(), self.renew_lease()).await;
            if matches!(result, Ok(Ok(()))) {
                self.note_store_check();
            } else {
                self.note_store_failure();
                tracing::warn!(?result, "the lease of this gateway could not be renewed");
                wait = self.beat() / 8;
            }
        }
    }

    /// Acts on a lease that is not renewed.
    async fn watch_lease(&self) {
        let lease = self.settings().lease;
        let interval = (lease / 30).clamp(Duration::from_millis(2), Duration::from_millis(500));
        let mut is_held = false;
        loop {
            tokio::time::sleep(interval).await;
            let age = self.lease().confirmed().map_or(Duration::ZERO, |sent| sent.elapsed());
            let runs = self.live_runs();
            if runs.is_empty() {
                is_held = false;
            } else if age >= lease {
                runs.iter().for_each(|live| self.give_up(live, LEASE_LOST));
            } else if (age >= lease * 2 / 3) != is_held {
                is_held = !is_held;
                tracing::warn!(is_held, "agents are not read while the lease cannot be renewed");
                for live in runs {
                    // A full queue belongs to a run that waits for the store anyway.
                    let _ = live.commands.try_send(Command::Hold(is_held));
                }
            }
        }
    }

    /// Ends the runs here that another process has taken over.
    async fn end_lost_runs(&self) -> Result<(), StoreError> {
        for live in self.live_runs() {
            let RunKey { owner, run } = &live.key;
            let is_lost = match self.store().run(owner, run).await {
                Ok(stored) => stored.status.is_live() && stored.holder != *self.holder(),
                Err(StoreError::NotFound(_)) => false,
                Err(error) => return Err(error),
            };
            if is_lost {
                self.give_up(&live, TAKEN_OVER);
            }
        }
        Ok(())
    }

    /// Ends a run in this process without an ending in its log.
    fn give_up(&self, live: &LiveRun, failure: LogFailure) {
        if live.give_up.is_cancelled() {
            return;
        }
        tracing::error!(run = %live.key.run, reason = failure.message, "a run was given up");
        if failure == LEASE_LOST {
            live.cut_readers();
            // Perhaps nobody takes it over: if the lease can be renewed again, this process still claims the run.
            self.failed_logs().insert(live.key.clone(), failure);
        } else {
            live.mark_log_failed(failure);
        }
        live.give_up.cancel();
    }
}
