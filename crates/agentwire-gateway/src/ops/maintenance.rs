//! Background maintenance: settles orphaned runs, compacts finished ones, applies retention.

use std::{collections::HashSet, time::Duration};

use agentwire_core::fold;
use agentwire_store::{Retention, RunKey, StoreError};
use tokio::time::Instant;

use crate::{
    cpu_work,
    gateway::Gateway,
    limits::Pressure,
    replica::UNDRIVEN,
    stream::log_codec::{Decoder, Encoder},
};

/// Runs per query.
const BATCH: usize = 100;

/// Interval of the maintenance of a gateway without anything to look after, if its store may sleep.
const IDLE_INTERVAL: Duration = Duration::from_secs(600);

/// Interval at which a store that has failed is asked again.
const RECHECK: Duration = Duration::from_secs(1);

/// The time without an answer after which a store that is asked for its health has failed.
const PATIENCE: Duration = Duration::from_secs(2);

/// The longest wait for such an answer.
const CHECK_TIMEOUT: Duration = Duration::from_secs(10);

impl Gateway {
    /// Runs until the gateway is shut down.
    pub(crate) async fn maintain(self) {
        let lease = self.settings().lease;
        let mut sweep = tokio::time::interval((lease / 3).max(Duration::from_millis(100)));
        sweep.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        // Often enough that a retention in seconds is applied within seconds.
        let ages = [self.settings().retention.events, self.settings().retention.history];
        let shortest = ages.into_iter().flatten().min().unwrap_or(Duration::from_secs(3600));
        let interval = (shortest / 2).clamp(Duration::from_secs(1), Duration::from_secs(60));
        let mut retention = tokio::time::interval_at(tokio::time::Instant::now() + interval, interval);
        retention.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let (mut swept, mut retained) = (None, None);
        let mut undriven = HashSet::new();
        let is_due = |last: Option<Instant>| {
            self.is_awake() || last.is_none_or(|last| last.elapsed() >= IDLE_INTERVAL)
        };
        loop {
            let result = tokio::select! {
                () = self.shutdown().cancelled() => return,
                _ = sweep.tick() => {
                    self.conversations().drop_unused(self.memory().pressure() >= Pressure::High);
                    match is_due(swept) {
                        true => {
                            swept = Some(Instant::now());
                            self.sweep(&mut undriven).await
                        }
                        false => continue,
                    }
                }
                _ = retention.tick() => match is_due(retained) {
                    true => {
                        retained = Some(Instant::now());
                        self.apply_retention().await
                    }
                    false => continue,
                },
            };
            if let Err(error) = result {
                if error.is_fault() {
                    self.note_store_failure();
                }
                tracing::warn!(%error, "background maintenance failed and will be retried");
            }
        }
    }

    /// Follows the health of a store that `/readyz` must not ask: it asks once per interval when idle, when a request has failed,
    /// and after a failure until a write is accepted.
    pub(crate) async fn watch_store(self) {
        loop {
            tokio::select! {
                () = self.shutdown().cancelled() => return,
                () = tokio::time::sleep(RECHECK) => {}
            }
            let is_doubted = self.take_store_doubt();
            let is_sound = !self.has_store_failed() && self.was_store_checked(self.store().probe_interval());
            if is_sound && !is_doubted {
                continue;
            }
            let mut probe = self.store().probe();
            let mut probed = tokio::time::timeout(PATIENCE, &mut probe).await;
            if probed.is_err() {
                self.note_store_failure();
                // It may come late: a call that is given up loses its connection.
                probed = tokio::time::timeout(CHECK_TIMEOUT, probe).await;
            }
            match probed {
                Ok(Ok(())) => self.note_store_check(),
                failed => {
                    tracing::warn!(?failed, "the store accepts no write");
                    self.note_store_failure();
                }
            }
        }
    }

    async fn sweep(&self, undriven: &mut HashSet<RunKey>) -> Result<(), StoreError> {
        self.set_awake(false);
        let swept = self.look_after_runs(undriven).await;
        if swept.as_ref().copied().unwrap_or(true) {
            self.set_awake(true);
        }
        swept.map(|_| ())
    }

    /// Compares the runs that the store has for this process with those that tasks drive here.
    ///
    /// Runs that the store does not have: their thread was deleted while they began; they end here.
    ///
    /// Runs that no task drives: the confirmation of their start was lost, or the store has lost their ending. They are
    /// `undriven` after one sweep, and get their ending after the next: a run that is just being started has a task by then.
    async fn compare_runs(&self, undriven: &mut HashSet<RunKey>) -> Result<(), StoreError> {
        if !self.store().outlives_process() {
            return Ok(());
        }
        // Before those of the store, so that a run that starts meanwhile does not seem to be missing there.
        let live = self.live_runs();
        let claimed: HashSet<_> = self.store().claimed(self.holder()).await?.into_iter().collect();
        self.end_deleted_runs(live.iter().filter(|live| !claimed.contains(&live.key))).await;
        let mut found = HashSet::new();
        for key in claimed {
            if self.live_run(&key.owner, &key.run).is_some() || self.failed_logs().contains_key(&key) {
                continue;
            }
            if undriven.contains(&key) {
                tracing::error!(run = %key.run, "a run of this gateway has no task");
                self.failed_logs().insert(key, UNDRIVEN);
            } else {
                found.insert(key);
            }
        }
        *undriven = found;
        Ok(())
    }

    /// Returns whether there is more to look after.
    async fn look_after_runs(&self, undriven: &mut HashSet<RunKey>) -> Result<bool, StoreError> {
        self.compare_runs(undriven).await?;
        self.end_failed_logs().await?;
        if self.is_draining() && self.store().outlives_process() {
            // The runs that this process has released are for others.
            return Ok(true);
        }
        self.end_orphans().await?;
        Ok(!self.store().may_sleep() || self.live_run_count() > 0 || self.store().has_live_runs().await?)
    }

    /// Appends the terminal event to logs of this process that could not be written, if the store accepts it now.
    async fn end_failed_logs(&self) -> Result<(), StoreError> {
        let keys: Vec<_> = self.failed_logs().keys().cloned().collect();
        for key in keys {
            if self.live_run(&key.owner, &key.run).is_some() {
                continue;
            }
            let ended = match self.store().run(&key.owner, &key.run).await {
                Ok(run) if run.status.is_live() && run.holder == *self.holder() => {
                    self.end_orphan(&key, &run).await
                }
                Ok(_) => Ok(()),
                Err(error) => Err(error),
            };
            match ended {
                Err(error) if error.is_fault() => return Err(error),
                _ => _ = self.failed_logs().remove(&key),
            }
            self.run_ended().notify_waiters();
        }
        Ok(())
    }

    /// Settles every run without a live gateway.
    pub(crate) async fn end_orphans(&self) -> Result<(), StoreError> {
        loop {
            let orphans = self.store().orphans(BATCH).await?;
            let mut done = 0;
            for (key, run) in &orphans {
                // A live run of this process that is late in renewing its claim.
                if self.live_run(&key.owner, &key.run).is_some() {
                    continue;
                }
                match self.end_orphan(key, run).await {
                    Ok(()) => done += 1,
                    // Another process was faster.
                    Err(StoreError::Fenced | StoreError::Ended(_) | StoreError::NotFound(_)) => {}
                    Err(error) => {
                        tracing::warn!(run = %key.run, %error, "an orphaned run could not be ended")
                    }
                }
            }
            self.metrics().runs_repaired.inc_by(done);
            if done == 0 {
                return Ok(());
            }
            self.run_ended().notify_waiters();
        }
    }

    /// Measures the store for the metrics. Nothing else depends on it.
    pub(super) async fn measure_store(&self) {
        match self.store().size().await {
            Ok(size) => {
                let metrics = self.metrics();
                metrics.store_bytes.set(i64::try_from(size.bytes).unwrap_or(i64::MAX));
                metrics.store_free_bytes.set(i64::try_from(size.free_bytes).unwrap_or(i64::MAX));
            }
            Err(error) => tracing::warn!(%error, "the store could not be measured"),
        }
    }

    /// Compacts runs whose exact replay is no longer retained, and deletes expired logs and threads.
    async fn apply_retention(&self) -> Result<(), StoreError> {
        self.measure_store().await;
        self.adopt_threads().await;
        let retention = &self.settings().retention;
        if let Some(age) = retention.events {
            loop {
                let runs = self.store().compactable(age, BATCH).await?;
                let mut done = 0;
                for key in &runs {
                    match self.compact(key).await {
                        Ok(()) => done += 1,
                        Err(error) if error.is_fault() => return Err(error),
                        // One bad log must not block the others.
                        Err(error) => tracing::warn!(run = %key.run, %error, "a log could not be compacted"),
                    }
                }
                if runs.len() < BATCH || done == 0 {
                    break;
                }
            }
        }
        let retained = self
            .store()
            .retain(Retention {
                log_age: None,
                logs_per_thread: retention.runs_per_thread,
                thread_age: retention.history,
                threads_per_owner: retention.threads_per_user,
            })
            .await?;
        if retained.threads + retained.logs > 0 {
            tracing::info!(
                threads = retained.threads,
                logs = retained.logs,
                "old threads and logs were deleted"
            );
        }
        Ok(())
    }

    async fn compact(&self, key: &RunKey) -> Result<(), StoreError> {
        let run = self.store().run(&key.owner, &key.run).await?;
        let logged = self.whole_log(key).await?;
        let (thread, id) = (run.thread.clone(), run.run.clone());
        let compact = move || {
            let mut decoder = Decoder::new(&thread, &id);
            let mut events = Vec::new();
            logged.iter().for_each(|logged| decoder.decode(logged, &mut events));
            let mut encoder = Encoder::new(&thread, &id);
            fold::compact(&events).iter().filter_map(|event| encoder.encode(event)).collect()
        };
        let Ok(compacted) = cpu_work::spawn_patient(&key.owner, compact).await else {
            tracing::warn!(run = %key.run, "a log could not be compacted");
            return Ok(());
        };
        match self.store().compact(&key.owner, &key.run, compacted).await {
            Err(StoreError::NotFound(_)) | Ok(()) => Ok(()),
            Err(error) => Err(error),
        }
    }
}
