//! Writes on their way to the one thread that does them.

use std::{
    collections::VecDeque,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use super::session::Session;
use crate::{error::StoreError, model::Durability};

/// Bytes that may wait, in KiB; who comes beyond that waits outside. The same as one write at most, so that
/// the largest can pass, and each write counts for one KiB at least, which bounds their number too.
const ROOM_KIB: u32 = (crate::rules::MAX_WRITE_BYTES / 1024) as u32;

/// Writes in one transaction at most, so that other processes get their turn.
const BATCH: usize = 2048;

/// One write.
pub(super) trait Job: Send {
    fn durability(&self) -> Durability;
    fn bytes(&self) -> usize;
    /// Does it, within a transaction. An error that is no fault means that nothing was written.
    fn run(&mut self, db: &Session) -> Result<(), StoreError>;
    /// Tells the caller: what `run` gave, or why the transaction failed.
    fn finish(self: Box<Self>, fault: Option<StoreError>);
}

struct Call<F, T> {
    durability: Durability,
    bytes: usize,
    work: Option<F>,
    result: Option<Result<T, StoreError>>,
    caller: oneshot::Sender<Result<T, StoreError>>,
    _room: OwnedSemaphorePermit,
}

impl<F, T> Job for Call<F, T>
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
        // The caller may have gone; the write stands.
        let _ = self.caller.send(result);
    }
}

#[derive(Default)]
struct Waiting {
    jobs: VecDeque<Box<dyn Job>>,
    /// Whether the writer sleeps until somebody comes. While it sleeps for a while only, nobody needs to wake it.
    asleep: bool,
    closed: bool,
}

/// The line of writes. Flushed at once when idle, gathered under load.
pub(super) struct Queue {
    waiting: Mutex<Waiting>,
    wake: Condvar,
    room: Arc<Semaphore>,
}

impl Queue {
    pub(super) fn new() -> Self {
        Self {
            waiting: Mutex::default(),
            wake: Condvar::new(),
            room: Arc::new(Semaphore::new(ROOM_KIB as usize)),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has `work` done and waits for its commit.
    pub(super) async fn write<T: Send + 'static>(
        &self,
        bytes: usize,
        durability: Durability,
        work: impl FnOnce(&Session) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let kib = u32::try_from(bytes / 1024 + 1).unwrap_or(ROOM_KIB).min(ROOM_KIB);
        let room = Arc::clone(&self.room).acquire_many_owned(kib).await;
        let room = room.map_err(|_| StoreError::Closed)?;
        let (caller, result) = oneshot::channel();
        let job = Call { durability, bytes, work: Some(work), result: None, caller, _room: room };
        {
            let mut waiting = self.lock();
            if waiting.closed {
                return Err(StoreError::Closed);
            }
            waiting.jobs.push_back(Box::new(job));
            if std::mem::take(&mut waiting.asleep) {
                self.wake.notify_one();
            }
        }
        result.await.unwrap_or(Err(StoreError::Closed))
    }

    /// The next writes to do together, or `None` when the store is closed and all is done.
    ///
    /// When the last batch held more than one, the next is gathered until `not_before`: many small transactions
    /// cost several times as much as one.
    pub(super) fn next_batch(&self, not_before: Option<Instant>) -> Option<Vec<Box<dyn Job>>> {
        let mut waiting = self.lock();
        while waiting.jobs.is_empty() && !waiting.closed {
            waiting.asleep = true;
            waiting = self.wake.wait(waiting).unwrap_or_else(PoisonError::into_inner);
        }
        waiting.asleep = false;
        while let Some(rest) = not_before
            .map(|moment| moment.saturating_duration_since(Instant::now()))
            .filter(|rest| *rest > Duration::ZERO && !waiting.closed)
        {
            waiting = self.wake.wait_timeout(waiting, rest).unwrap_or_else(PoisonError::into_inner).0;
        }
        if waiting.jobs.is_empty() {
            return None;
        }
        let size = waiting.jobs.len().min(BATCH);
        Some(waiting.jobs.drain(..size).collect())
    }

    /// Lets nobody in any more; those who are in are served.
    pub(super) fn close(&self) {
        self.room.close();
        self.lock().closed = true;
        self.wake.notify_all();
    }

    /// Turns away those who are still in line. For a writer that cannot go on.
    pub(super) fn abandon(&self) {
        self.close();
        // Dropped outside the lock: each drop tells a caller.
        let jobs = std::mem::take(&mut self.lock().jobs);
        drop(jobs);
    }
}
