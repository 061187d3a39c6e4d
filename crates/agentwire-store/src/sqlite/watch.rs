//! Wake-ups of waiting calls: a thread that notices commits, also those of other processes.
//!
//! `PRAGMA data_version` changes on a connection when another connection has committed; asking it costs microseconds. The thread
//! sleeps while nobody waits.

use std::{
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use rusqlite::Connection;
use tokio::sync::Notify;

use crate::error::StoreError;

/// Interval between two looks while someone waits.
const INTERVAL: Duration = Duration::from_millis(15);

#[derive(Default)]
struct Waiting {
    count: usize,
    is_closed: bool,
}

/// Wakes the waiting calls of one store.
#[derive(Default)]
pub(super) struct Watcher {
    waiting: Mutex<Waiting>,
    wake: Condvar,
    committed: Notify,
}

/// Counts a waiting call until it is dropped.
struct Registration<'a>(&'a Watcher);

impl Drop for Registration<'_> {
    fn drop(&mut self) {
        self.0.waiting().count -= 1;
    }
}

impl Watcher {
    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn register(&self) -> Registration<'_> {
        let mut waiting = self.waiting();
        waiting.count += 1;
        self.wake.notify_one();
        Registration(self)
    }

    /// Waits until `check` has a result; checks again after each commit, and at the latest after `limit`.
    pub(super) async fn wait_for<T, F>(
        &self,
        limit: Duration,
        mut check: impl FnMut() -> F,
    ) -> Result<T, StoreError>
    where
        F: Future<Output = Result<Option<T>, StoreError>>,
    {
        let _registration = self.register();
        loop {
            let committed = self.committed.notified();
            tokio::pin!(committed);
            committed.as_mut().enable();
            if let Some(result) = check().await? {
                return Ok(result);
            }
            let _ = tokio::time::timeout(limit, committed).await;
        }
    }

    pub(super) fn shut_down(&self) {
        self.waiting().is_closed = true;
        self.wake.notify_all();
    }

    /// Looks for commits until the store is closed.
    pub(super) fn run(&self, db: &Connection) {
        let mut version = None;
        loop {
            {
                let mut waiting = self.waiting();
                while waiting.count == 0 && !waiting.is_closed {
                    waiting = self.wake.wait(waiting).unwrap_or_else(PoisonError::into_inner);
                }
                let (waiting, _) =
                    self.wake.wait_timeout(waiting, INTERVAL).unwrap_or_else(PoisonError::into_inner);
                if waiting.is_closed {
                    return;
                }
            }
            let now = db
                .prepare_cached("PRAGMA data_version")
                .and_then(|mut pragma| pragma.query_row([], |row| row.get::<_, i64>(0)))
                .ok();
            // After a fault the waiting calls look for themselves.
            if now.is_none() || version != now {
                version = now;
                self.committed.notify_waiters();
            }
        }
    }
}
