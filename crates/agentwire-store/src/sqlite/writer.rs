//! The one thread that writes, and the one that tidies up behind it.
//!
//! SQLite has one writer at a time anyway; giving that role to one thread makes group commit natural. Each batch is one
//! transaction, and every caller gets their own result after it. A batch that meets a fault fails its callers
//! and leaves nothing behind; the next one starts afresh, with a new connection if need be.

use std::{
    sync::{
        Arc, Condvar, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Instant,
};

use rusqlite::Connection;

use super::{
    connect::Place,
    queue::{Job, Queue},
    session::Session,
};
use crate::{clock::Clock, error::StoreError, model::Durability};

/// Pages written between two checkpoints, about 16 MiB. A checkpoint copies each page once, however often it was written: with
/// 1024 pages the index pages of a thousand live runs were copied after nearly every change, which cost a tenth of
/// all CPU time.
const CHECKPOINT_PAGES: usize = 4096;

/// Pages in the write-ahead file beyond which the writer itself stops for a checkpoint (64 MiB). Under a load without
/// any gap the checkpointer never sees the end of the file, and only the end lets it start over.
const STOP_PAGES: i64 = 16 * 1024;

/// Beside the events themselves, an append changes about this many pages: the index and the run.
const PAGES_PER_JOB: usize = 2;

/// Under load a commit begins so many times as long after the one before as that one took, within bounds: the
/// writer then uses an eighth of a core.
const PAUSE: u32 = 8;

/// The longest tick in ticks. At 10 ms nobody who reads a stream of text sees a difference.
const LONGEST_TICK: u32 = 10;

/// Runs until the queue is closed and empty.
pub(super) fn run(
    place: &Place,
    first: Connection,
    queue: &Queue,
    checkpoints: &Checkpoints,
    clock: &Arc<dyn Clock>,
) {
    // Should this thread ever panic, nobody must wait for it.
    let _abandon = Abandon(queue);
    let mut writer = Writer { place, db: Some(Session::new(first)), full_sync: false, clock };
    let mut not_before = None;
    let mut pages = 0;
    while let Some(batch) = queue.next_batch(not_before) {
        let begun = Instant::now();
        let is_busy = batch.len() > 1;
        pages += batch.iter().map(|job| PAGES_PER_JOB + job.bytes() / 4096).sum::<usize>();
        writer.commit(batch);
        // The longer a commit takes, the more it pays to gather for the next one: most pages are then written once for many.
        let pause = (begun.elapsed() * PAUSE).clamp(place.options.tick, place.options.tick * LONGEST_TICK);
        not_before = is_busy.then(|| begun + pause);
        if pages >= CHECKPOINT_PAGES {
            pages = 0;
            checkpoints.ask();
        }
        if checkpoints.must_stop.swap(false, Ordering::Relaxed)
            && let Some(db) = &writer.db
        {
            // If it fails, the next one will do.
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
    place: &'a Place,
    /// Absent after a fault that the connection did not recover from.
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
        for job in batch {
            job.finish(fault.clone());
        }
    }

    fn transact(&mut self, batch: &mut [Box<dyn Job>]) -> Result<(), StoreError> {
        let db = match &mut self.db {
            Some(db) => db,
            gone => {
                self.full_sync = false;
                gone.insert(Session::new(self.place.writer(self.clock.now())?))
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
        self.db = self.db.take().filter(Session::undo);
    }
}

/// Where the writer asks for checkpoints.
#[derive(Default)]
pub(super) struct Checkpoints {
    wish: Mutex<Wish>,
    wake: Condvar,
    must_stop: AtomicBool,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Wish {
    #[default]
    Nothing,
    Checkpoint,
    End,
}

impl Checkpoints {
    fn ask(&self) {
        let mut wish = self.wish.lock().unwrap_or_else(PoisonError::into_inner);
        if *wish == Wish::Nothing {
            *wish = Wish::Checkpoint;
            self.wake.notify_one();
        }
    }

    pub(super) fn end(&self) {
        *self.wish.lock().unwrap_or_else(PoisonError::into_inner) = Wish::End;
        self.wake.notify_one();
    }

    /// Copies the write-ahead file into the database whenever asked, without ever holding up a writer or a reader.
    pub(super) fn run(&self, db: &Connection) {
        loop {
            {
                let mut wish = self.wish.lock().unwrap_or_else(PoisonError::into_inner);
                while *wish == Wish::Nothing {
                    wish = self.wake.wait(wish).unwrap_or_else(PoisonError::into_inner);
                }
                if *wish == Wish::End {
                    return;
                }
                *wish = Wish::Nothing;
            }
            // If it fails, the next one will do; the writer meets whatever is wrong by itself.
            if checkpoint(db).is_ok_and(|pages| pages > STOP_PAGES) {
                self.must_stop.store(true, Ordering::Relaxed);
            }
        }
    }
}

/// Copies what can be copied; returns how many pages the write-ahead file has.
fn checkpoint(db: &Connection) -> Result<i64, StoreError> {
    Ok(db.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |row| row.get(1))?)
}
