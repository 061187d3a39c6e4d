//! Queue of writes for the writer thread.

use std::{
    collections::VecDeque,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use super::session::Session;
use crate::{error::StoreError, model::Durability};

/// Capacity of the queue in KiB; further callers wait for space. Equal to the maximum size of one write, so that the
/// largest fits. Each write counts as at least one KiB, which bounds their number too.
const CAPACITY_KIB: u32 = (crate::rules::MAX_WRITE_BYTES / 1024) as u32;

/// Maximum number of writes in one transaction, so that other processes get the write lock in between.
const MAX_BATCH: usize = 2048;

/// One queued write.
pub(super) trait Job: Send {
    fn durability(&self) -> Durability;
    fn bytes(&self) -> usize;
    /// Executes the write within a transaction. An error that is not a fault means that nothing was written.
    fn run(&mut self, db: &Session) -> Result<(), StoreError>;
    /// Sends the result of `run`, or the fault of the transaction, to the caller.
    fn finish(self: Box<Self>, fault: Option<StoreError>);
}

struct WriteJob<F, T> {
    durability: Durability,
    bytes: usize,
    work: Option<F>,
    result: Option<Result<T, StoreError>>,
    caller: oneshot::Sender<Result<T, StoreError>>,
    _permit: OwnedSemaphorePermit,
}

impl<F, T> Job for WriteJob<F, T>
where
    F: FnOnce(&Session) -> Result<T, StoreError> + Send,
    T: Send,
{
    fn durability(&self) -> Durability {
        self.durability
    }

    fn bytes(&self) -> usize {
        self.bytes
    }

    fn run(&mut self, db: &Session) -> Result<(), StoreError> {
        let Some(work) = self.work.take() else { return Ok(()) };
        let result = work(db);
        let fault = result.as_ref().err().filter(|error| error.is_fault()).cloned();
        self.result = Some(result);
        fault.map_or(Ok(()), Err)
    }

    fn finish(self: Box<Self>, fault: Option<StoreError>) {
        let result = match (fault, self.result) {
            (Some(fault), _) => Err(fault),
            (None, Some(result)) => result,
            (None, None) => Err(StoreError::Closed),
        };
        // The write stands even if the caller no longer waits for it.
        let _ = self.caller.send(result);
    }
}

#[derive(Default)]
struct QueueState {
    jobs: VecDeque<Box<dyn Job>>,
    /// Whether the writer sleeps until a write arrives. During a timed sleep it needs no wake-up.
    is_asleep: bool,
    is_closed: bool,
}

/// The write queue. Flushed immediately when idle, batched under load.
pub(super) struct Queue {
    state: Mutex<QueueState>,
    wake: Condvar,
    capacity: Arc<Semaphore>,
}

impl Queue {
    pub(super) fn new() -> Self {
        Self {
            state: Mutex::default(),
            wake: Condvar::new(),
            capacity: Arc::new(Semaphore::new(CAPACITY_KIB as usize)),
        }
    }

    fn lock(&self) -> MutexGuard<'_, QueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Enqueues `work` and waits for its commit.
    pub(super) async fn write<T: Send + 'static>(
        &self,
        bytes: usize,
        durability: Durability,
        work: impl FnOnce(&Session) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let kib = u32::try_from(bytes / 1024 + 1).unwrap_or(CAPACITY_KIB).min(CAPACITY_KIB);
        let permit = Arc::clone(&self.capacity).acquire_many_owned(kib).await;
        let permit = permit.map_err(|_| StoreError::Closed)?;
        let (caller, result) = oneshot::channel();
        let job = WriteJob { durability, bytes, work: Some(work), result: None, caller, _permit: permit };
        {
            let mut state = self.lock();
            if state.is_closed {
                return Err(StoreError::Closed);
            }
            state.jobs.push_back(Box::new(job));
            if std::mem::take(&mut state.is_asleep) {
                self.wake.notify_one();
            }
        }
        result.await.unwrap_or(Err(StoreError::Closed))
    }

    /// The writes of the next transaction, or `None` when the store is closed and the queue is empty.
    ///
    /// Writes are collected until `not_before`: many small transactions cost several times as much as one.
    pub(super) fn next_batch(&self, not_before: Option<Instant>) -> Option<Vec<Box<dyn Job>>> {
        let mut state = self.lock();
        while state.jobs.is_empty() && !state.is_closed {
            state.is_asleep = true;
            state = self.wake.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.is_asleep = false;
        while let Some(rest) = not_before
            .map(|moment| moment.saturating_duration_since(Instant::now()))
            .filter(|rest| *rest > Duration::ZERO && !state.is_closed)
        {
            state = self.wake.wait_timeout(state, rest).unwrap_or_else(PoisonError::into_inner).0;
        }
        if state.jobs.is_empty() {
            return None;
        }
        let size = state.jobs.len().min(MAX_BATCH);
        Some(state.jobs.drain(..size).collect())
    }

    /// Rejects new writes; queued ones are still executed.
    pub(super) fn close(&self) {
        self.capacity.close();
        self.lock().is_closed = true;
        self.wake.notify_all();
    }

    /// Fails all queued writes; for a writer that cannot continue.
    pub(super) fn abandon(&self) {
        self.close();
        // Dropped outside the lock, because each drop wakes a caller.
        let jobs = std::mem::take(&mut self.lock().jobs);
        drop(jobs);
    }
}
