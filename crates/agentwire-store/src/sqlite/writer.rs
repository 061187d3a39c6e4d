//! The writer thread and the checkpoint thread.
//!
//! SQLite allows one writer at a time; giving that role to one thread makes group commit natural. Each batch is one
//! transaction, and every caller gets its own result after the commit. A batch that meets a fault is rolled back and
//! fails for all its callers; the next one starts clean, with a new connection if necessary.

use std::{
    sync::{
        Arc, Condvar, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use rusqlite::Connection;

use super::{
    database::DatabaseFile,
    queue::{Job, Queue},
    session::Session,
};
use crate::{clock::Clock, error::StoreError, model::Durability};

/// Pages written between two checkpoints, about 16 MiB. A checkpoint copies each page once, however often it was
/// written: with 1024 pages the index pages of a thousand live runs were copied after nearly every change, which cost
/// a tenth of all CPU time.
const CHECKPOINT_PAGES: usize = 4096;

/// Pages in the write-ahead log above which the writer itself runs a checkpoint (32 MiB). Under continuous load the
/// checkpoint thread never reaches the end of the log, and only then can SQLite reuse the log from its start.
const BLOCKING_CHECKPOINT_PAGES: i64 = 8 * 1024;

/// Time without a checkpoint after which the rest of the write-ahead log is moved to the database, and its file emptied.
const IDLE: Duration = Duration::from_secs(5);

/// Pages that an append changes in addition to its events: the index and the run.
const PAGES_PER_JOB: usize = 2;

/// Under load, the interval between two commits as a multiple of the duration of the first, within bounds: the writer
/// then uses an eighth of a core.
const INTERVAL_FACTOR: u32 = 8;

/// Upper bound of the commit interval, in ticks. A reader of streamed text does not notice 10 ms.
const MAX_TICKS: u32 = 10;

/// Runs until the queue is closed and empty.
pub(super) fn run(
    file: &DatabaseFile,
    first: Connection,
    queue: &Queue,
    checkpoints: &Checkpoints,
    clock: &Arc<dyn Clock>,
) {
    // If this thread panics, queued callers get an error instead of waiting forever.
    let _abandon = Abandon(queue);
    let mut writer = Writer { file, db: Some(Session::new(first)), full_sync: false, clock };
    let mut not_before = None;
    let mut pages = 0;
    while let Some(batch) = queue.next_batch(not_before) {
        let started = Instant::now();
        let is_busy = batch.len() > 1;
        pages += batch.iter().map(|job| PAGES_PER_JOB + job.bytes() / 4096).sum::<usize>();
        writer.commit(batch);
        checkpoints.has_writes.store(true, Ordering::Relaxed);
        // The slower a commit, the more a larger batch saves: most pages are then written once for many appends.
        let interval =
            (started.elapsed() * INTERVAL_FACTOR).clamp(file.options.tick, file.options.tick * MAX_TICKS);
        not_before = is_busy.then(|| started + interval);
        if pages >= CHECKPOINT_PAGES {
            pages = 0;
            checkpoints.request();
        }
        if checkpoints.needs_writer.swap(false, Ordering::Relaxed)
            && let Some(db) = &writer.db
        {
            // A failed checkpoint is repeated by the next one.
            let _ = checkpoint(db);
        }
    }
}

struct Abandon<'a>(&'a Queue);

impl Drop for Abandon<'_> {
    fn drop(&mut self) {
        self.0.abandon();
    }
}

struct Writer<'a> {
    file: &'a DatabaseFile,
    /// Absent after a fault that left the connection unusable.
    db: Option<Session>,
    full_sync: bool,
    clock: &'a Arc<dyn Clock>,
}

impl Writer<'_> {
    fn commit(&mut self, mut batch: Vec<Box<dyn Job>>) {
        let fault = self.transact(&mut batch).err();
        if fault.is_some() {
            self.recover();
        }
        if matches!(fault, Some(StoreError::Full))
            && let Some(db) = &self.db
        {
            // A long write-ahead log may be what fills the disk. Readers can prevent it; the next fault tries again.
            let _ = truncate(db);
        }
        for job in batch {
            job.finish(fault.clone());
        }
    }

    fn transact(&mut self, batch: &mut [Box<dyn Job>]) -> Result<(), StoreError> {
        // Also before a new connection, which would create a missing file.
        self.file.check_identity()?;
        let db = match &mut self.db {
            Some(db) => db,
            closed => {
                self.full_sync = false;
                closed.insert(Session::new(self.file.open_writer(self.clock.now())?))
            }
        };
        let level = batch.iter().map(|job| job.durability()).max();
        let full_sync = level == Some(Durability::Fsync);
        if full_sync != self.full_sync {
            db.pragma_update(None, "synchronous", if full_sync { "FULL" } else { "NORMAL" })?;
            self.full_sync = full_sync;
        }
        db.begin()?;
        for job in batch {
            job.run(db)?;
        }
        db.commit()
    }

    fn recover(&mut self) {
        self.db = self.db.take().filter(Session::rollback);
    }
}

/// Checkpoint requests of the writer to the checkpoint thread.
#[derive(Default)]
pub(super) struct Checkpoints {
    request: Mutex<CheckpointRequest>,
    wake: Condvar,
    /// Set when the write-ahead log is so long that the writer must run the checkpoint.
    needs_writer: AtomicBool,
    /// Set after each transaction, cleared when the write-ahead log is emptied.
    has_writes: AtomicBool,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum CheckpointRequest {
    #[default]
    None,
    Checkpoint,
    Shutdown,
}

impl Checkpoints {
    fn request(&self) {
        let mut request = self.request.lock().unwrap_or_else(PoisonError::into_inner);
        if *request == CheckpointRequest::None {
            *request = CheckpointRequest::Checkpoint;
            self.wake.notify_one();
        }
    }

    pub(super) fn shut_down(&self) {
        *self.request.lock().unwrap_or_else(PoisonError::into_inner) = CheckpointRequest::Shutdown;
        self.wake.notify_one();
    }

    /// Copies the write-ahead log into the database on request, without blocking the writer or readers.
    pub(super) fn run(&self, db: &Connection) {
        loop {
            {
                let mut request = self.request.lock().unwrap_or_else(PoisonError::into_inner);
                while *request == CheckpointRequest::None {
                    let waited =
                        self.wake.wait_timeout(request, IDLE).unwrap_or_else(PoisonError::into_inner);
                    request = waited.0;
                    if waited.1.timed_out() && self.has_writes.swap(false, Ordering::Relaxed) {
                        drop(request);
                        // If a reader prevents it, a later one succeeds.
                        if !truncate(db).is_ok_and(|is_whole| is_whole) {
                            self.has_writes.store(true, Ordering::Relaxed);
                        }
                        request = self.request.lock().unwrap_or_else(PoisonError::into_inner);
                    }
                }
                if *request == CheckpointRequest::Shutdown {
                    return;
                }
                *request = CheckpointRequest::None;
            }
            // A failed checkpoint is repeated by the next one; a persistent fault reaches the writer anyway.
            if checkpoint(db).is_ok_and(|pages| pages > BLOCKING_CHECKPOINT_PAGES) {
                self.needs_writer.store(true, Ordering::Relaxed);
            }
        }
    }
}

/// Copies all pages and empties the file of the write-ahead log, unless a reader needs it: `false`. Does not wait for readers,
/// because writers would wait meanwhile.
fn truncate(db: &Connection) -> Result<bool, StoreError> {
    let patience: i64 = db.pragma_query_value(None, "busy_timeout", |row| row.get(0))?;
    db.busy_timeout(Duration::ZERO)?;
    let is_busy = db.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get::<_, i64>(0));
    db.busy_timeout(Duration::from_millis(u64::try_from(patience).unwrap_or_default()))?;
    Ok(is_busy? == 0)
}

/// Copies as many pages as possible without waiting; returns the length of the write-ahead log in pages.
fn checkpoint(db: &Connection) -> Result<i64, StoreError> {
    Ok(db.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |row| row.get(1))?)
}
