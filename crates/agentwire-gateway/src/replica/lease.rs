//! The lease of this process.
//!
//! Renewed every third of its lifetime while a run is live here, and before a run starts. The process judges its lease by
//! its own monotonic clock, from the moment at which it sent the last renewal that the store confirmed:
//!
//! * two thirds of the lifetime later it stops reading from its agents, so that nothing is produced that might be lost;
//! * one lifetime later the runs may belong to another process: they end here without an ending in the log, and the
//!   connections of their readers are cut, because a regular end would look like the end of the run.
//!
//! A renewal also tells the epoch of the store. If it has risen, the store may have lost acknowledged writes, as after a failover
//! to a standby that lagged behind: every run here is compared with its record, and one whose last events are gone ends, also
//! if its agent is silent. After a lease that had expired, the runs are compared too: another process may have taken one over,
//! and ended it since.

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

/// The cause of runs whose last events the store has lost.
pub(crate) const TAIL_LOST: LogFailure =
    LogFailure { code: codes::GATEWAY_LOST, message: "the store has lost the last events of the run" };

/// The cause of runs that this process has claimed without driving them.
pub(crate) const UNDRIVEN: LogFailure =
    LogFailure { code: codes::GATEWAY_LOST, message: "the gateway does not know the run" };

/// The epoch of the store that the runs of this process are compared with.
#[derive(Clone, Copy, Debug)]
struct SeenEpoch {
    epoch: u32,
    /// Until then they are compared at every renewal: a confirmation of the lost server may still be under way.
    compare_until: Option<Instant>,
}

/// The lease of this process, as far as it knows.
#[derive(Debug, Default)]
pub(crate) struct ProcessLease {
    epoch: Mutex<Option<SeenEpoch>>,
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

    fn epoch(&self) -> Option<SeenEpoch> {
        *self.epoch.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set_epoch(&self, epoch: SeenEpoch) {
        *self.epoch.lock().unwrap_or_else(PoisonError::into_inner) = Some(epoch);
    }

    /// The time since the last renewal that the store confirmed.
    pub(crate) fn age(&self) -> Option<Duration> {
        self.confirmed().map(|sent| sent.elapsed())
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

    /// Renews the lease. If it had expired, or if the epoch of the store has risen, the runs that are lost end here.
    pub(crate) async fn renew_lease(&self) -> Result<(), StoreError> {
        let sent = Instant::now();
        let was_live = self.store().renew(self.holder(), self.settings().lease).await?;
        let epoch = self.store().identity().map_or(0, |server| server.epoch);
        let seen = self.lease().epoch();
        let has_risen = seen.is_some_and(|seen| seen.epoch != epoch);
        let compares =
            has_risen || seen.and_then(|seen| seen.compare_until).is_some_and(|until| until > Instant::now());
        if has_risen {
            tracing::warn!(epoch, "the server of the store is another one, or went back in time");
        }
        if !was_live || compares {
            self.end_lost_runs(compares).await?;
        }
        if has_risen || seen.is_none() {
            let compare_until = has_risen.then(|| Instant::now() + self.settings().lease);
            self.lease().set_epoch(SeenEpoch { epoch, compare_until });
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

    /// Ends the runs here that another process has taken over, also those that it has ended. With `compares`, also those of which the store has lost
    /// something that was acknowledged.
    async fn end_lost_runs(&self, compares: bool) -> Result<(), StoreError> {
        for live in self.live_runs() {
            let RunKey { owner, run } = &live.key;
            // Before the record is read: it can only be ahead.
            let (next, fence) = (live.head().next, live.fence());
            let lost = match self.store().run(owner, run).await {
                Ok(stored) if stored.status.is_live() && stored.holder != *self.holder() => Some(TAKEN_OVER),
                // An ending of this process's own has the fence of the run, which is set before anything is appended.
                Ok(stored) if !stored.status.is_live() && stored.fence > live.fence() => Some(TAKEN_OVER),
                Ok(stored) if compares && stored.status.is_live() => {
                    (stored.next_seq.0 < next || stored.fence < fence).then_some(TAIL_LOST)
                }
                // Deleted; or the start was lost, and nothing can be appended.
                Err(StoreError::NotFound(_)) => compares.then_some(TAIL_LOST),
                Ok(_) => None,
                Err(error) => return Err(error),
            };
            if let Some(failure) = lost {
                self.give_up(&live, failure);
            }
        }
        Ok(())
    }

    /// Ends a run in this process without an ending in its log.
    pub(crate) fn give_up(&self, live: &LiveRun, failure: LogFailure) {
        if live.give_up.is_cancelled() {
            return;
        }
        tracing::error!(run = %live.key.run, reason = failure.message, "a run was given up");
        if failure == LEASE_LOST {
            live.cut_readers();
            // Perhaps nobody takes it over: if the lease can be renewed again, this process still claims the run.
            self.failed_logs().insert(live.key.clone(), failure);
        } else {
            if failure == TAIL_LOST {
                // The run is still claimed by this process, which appends the ending to the shorter log.
                self.failed_logs().insert(live.key.clone(), failure);
            }
            live.mark_log_failed(failure);
        }
        live.give_up.cancel();
    }
}
