//! Tails: runs that another process drives, as readers of this process follow them.
//!
//! One task per followed run reads the log behind the wake-ups of the store and publishes the events to all readers here, so
//! that the number of readers does not change the number of reads.

use std::{
    sync::{Arc, Weak},
    time::Duration,
};

use agentwire_store::{Log, RunKey, Seq, StoreError, ThreadId};
use tokio::time::Instant;

use crate::{
    codes,
    cpu_work::{self, Expected},
    gateway::Gateway,
    settings::OnDisconnect,
    stream::live::{LiveRun, LiveState, LogFailure},
};

/// Bytes that are read from the log at once.
const PAGE: usize = 256 << 10;

/// Time after which a tail looks whether it still has readers.
const CHECK: Duration = Duration::from_secs(1);

/// The lifetime of the record that this process has readers of a run, and the interval of its renewal.
const READERS_TTL: Duration = Duration::from_secs(15);
const READERS_RENEWAL: Duration = Duration::from_secs(5);

/// Time between two attempts to reach the owner of a run directly.
const DIRECT_RETRY: Duration = Duration::from_millis(500);

const DELETED: LogFailure = LogFailure { code: codes::THREAD_DELETED, message: "the thread was deleted" };

impl Gateway {
    /// The tail of a run that another process drives.
    pub(crate) fn tail(&self, key: &RunKey, thread: &ThreadId, agent: &str, next: u64) -> Arc<LiveRun> {
        let mut tails = self.tails();
        if let Some(tail) = tails.get(key).and_then(Weak::upgrade)
            && tail.head().state == LiveState::Running
        {
            return tail;
        }
        tails.retain(|_, tail| tail.strong_count() > 0);
        let tail = LiveRun::new_tail(key.clone(), thread.clone(), next, &self.settings().limits);
        tails.insert(key.clone(), Arc::downgrade(&tail));
        let registry = self.registry();
        let cancels =
            |agent: &crate::gateway::AgentEntry| agent.settings.on_disconnect == OnDisconnect::Cancel;
        let is_counted = registry.agents.get(agent).is_some_and(|agent| cancels(agent));
        let feeding = self.clone().feed_tail(key.clone(), Arc::downgrade(&tail), next, is_counted);
        self.tasks().spawn(cpu_work::watched(Expected::Short, feeding));
        tail
    }

    async fn feed_tail(self, key: RunKey, tail: Weak<LiveRun>, mut next: u64, is_counted: bool) {
        let is_counted = is_counted || self.asks_for_readers(&key.owner, &key.run).await;
        let mut noted: Option<Instant> = None;
        let mut direct_after = Instant::now();
        while let Some(live) = tail.upgrade() {
            if is_counted {
                self.note_tail(&key, &mut noted).await;
            }
            match self.store().read(&key.owner, &key.run, next.checked_sub(1).map(Seq), PAGE).await {
                Ok(Log::Exact(slice)) => {
                    let is_empty = slice.events.is_empty();
                    if !is_empty {
                        live.set_epoch(slice.epoch);
                        next += slice.events.len() as u64;
                        live.publish(slice.events, LiveState::Running);
                    }
                    let is_at_end = is_empty || next >= slice.next_seq.0;
                    if !is_at_end {
                        continue;
                    }
                    if !slice.status.is_live() {
                        live.publish(Vec::new(), LiveState::Ended(slice.status));
                        break;
                    }
                    // The end was read with the events: one read per wake-up.
                }
                // The log was compacted or dropped behind the readers.
                Ok(_) => {
                    live.cut_readers();
                    break;
                }
                Err(StoreError::NotFound(_)) => {
                    live.mark_log_failed(DELETED);
                    break;
                }
                Err(error) => {
                    tracing::warn!(run = %key.run, %error, "the log of a followed run could not be read");
                    tokio::time::sleep(CHECK / 4).await;
                    continue;
                }
            }
            // Not held while it waits, so that the last reader ends it.
            drop(live);
            if self.direct().is_some() && direct_after <= Instant::now() {
                self.follow_directly(&key, &tail, &mut next, is_counted.then_some(&mut noted)).await;
                direct_after = Instant::now() + DIRECT_RETRY;
                continue;
            }
            tokio::select! {
                () = self.shutdown().cancelled() => break,
                changed = tokio::time::timeout(CHECK, self.store().changed(&key, Seq(next))) => {
                    if matches!(changed, Ok(Err(_))) {
                        tokio::time::sleep(CHECK / 4).await;
                    }
                }
            }
        }
        if noted.is_some() {
            let _ = self.store().note_readers(&key, self.holder(), Duration::ZERO).await;
        }
    }

    /// Records that this process has readers of a run, if the record is old.
    async fn note_tail(&self, key: &RunKey, noted: &mut Option<Instant>) {
        if noted.is_none_or(|noted| noted.elapsed() >= READERS_RENEWAL) {
            *noted = Some(Instant::now());
            let _ = self.store().note_readers(key, self.holder(), READERS_TTL).await;
        }
    }

    /// Publishes the events that the owner of a run sends, until it sends no more or nobody reads.
    async fn follow_directly(
        &self,
        key: &RunKey,
        tail: &Weak<LiveRun>,
        next: &mut u64,
        mut noted: Option<&mut Option<Instant>>,
    ) {
        let Some(direct) = self.direct() else { return };
        let Ok(run) = self.store().run(&key.owner, &key.run).await else { return };
        if !run.status.is_live() || run.holder == *self.holder() {
            return;
        }
        let Some(mut frames) = direct.tail(&run.holder, key, *next).await else { return };
        loop {
            let received = tokio::select! {
                () = self.shutdown().cancelled() => return,
                received = frames.next() => received,
            };
            let (Some((epoch, events)), Some(live)) = (received, tail.upgrade()) else { return };
            if !events.is_empty() {
                live.set_epoch(epoch);
                *next += events.len() as u64;
                live.publish(events, LiveState::Running);
            }
            drop(live);
            if let Some(noted) = &mut noted {
                self.note_tail(key, noted).await;
            }
        }
    }
}
