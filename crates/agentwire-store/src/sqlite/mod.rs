//! A store in one SQLite file: no service to run, safe to share between processes of one machine.
//!
//! ```text
//! callers ──▶ queue ──▶ one writer thread: a transaction per batch ──▶ file-wal ──▶ checkpointer ──▶ file
//! callers ◀── a few read connections on blocking threads ◀────────────────┘
//! ```
//!
//! SQLite cannot acknowledge a write that its readers can see without handing it to the operating system, so
//! [`Durability::Memory`] is treated as [`Durability::Os`] here. `Os` survives the death of the process at any point;
//! `Fsync` survives the loss of power too, for one sync per batch.

mod chunk;
mod connect;
mod fault;
mod log;
mod pending;
mod queue;
mod readers;
mod row;
mod runs;
mod schema;
mod session;
mod threads;
mod upkeep;
mod writer;

use std::{
    fmt,
    path::{Path, PathBuf},
    sync::Arc,
    thread::JoinHandle,
    time::Duration,
};

use agentwire_core::event::{RunId, ThreadId};
use bytes::Bytes;
use rusqlite::Connection;

use crate::{
    clock::{Clock, Time},
    error::StoreError,
    model::{
        Acquire, Answering, Append, Appended, Claim, Created, Durability, Feedback, Fence, Holder, Lease,
        Log, NewFeedback, NewRun, NewThread, Owner, Page, PageToken, Pending, Retained, Retention, Run,
        RunKey, Seq, Start, State, Stats, Text, Thread, ThreadChange, ThreadQuery, Which, text_len,
    },
    rules::check_size,
    store::{BoxFuture, Store},
};
use connect::Place;
use queue::Queue;
use readers::Readers;
use row::{RunRow, ThreadRow};
use session::Session;
use upkeep::Victim;
use writer::Checkpoints;

/// How to treat the file.
#[derive(Clone, Debug)]
pub struct SqliteOptions {
    /// The least durability of every write.
    pub durability: Durability,
    /// While several runs write at once, the least time from one transaction to the next. A run that writes alone never
    /// waits for it.
    pub tick: Duration,
    /// How long to wait for another process that writes.
    pub busy_timeout: Duration,
    /// Connections for reading.
    pub readers: usize,
    /// The largest size of the file; beyond it the store is full, and reads and deletions go on.
    pub max_bytes: Option<u64>,
}

impl Default for SqliteOptions {
    fn default() -> Self {
        Self {
            durability: Durability::Os,
            // At 30,000 events a second this turns ten thousand transactions into one thousand, and nobody notices a
            // millisecond in a stream of tokens.
            tick: Duration::from_millis(1),
            // Another process holds the lock for milliseconds; five seconds of waiting mean that it hangs.
            busy_timeout: Duration::from_secs(5),
            // Reads are short and the pages are in the cache of the system: more would not be faster on a small machine.
            readers: 4,
            max_bytes: None,
        }
    }
}

/// A store in an SQLite file. Dropping it finishes what was accepted.
pub struct SqliteStore {
    place: Place,
    clock: Arc<dyn Clock>,
    queue: Arc<Queue>,
    checkpoints: Arc<Checkpoints>,
    readers: Arc<Readers>,
    threads: Vec<JoinHandle<()>>,
}

impl fmt::Debug for SqliteStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqliteStore").field("path", &self.place.path).finish_non_exhaustive()
    }
}

impl SqliteStore {
    /// Opens the file, makes it if there is none, and brings an older one up to date.
    ///
    /// # Errors
    ///
    /// [`StoreError::Corrupt`], [`StoreError::Foreign`], [`StoreError::Version`], [`StoreError::Busy`], [`StoreError::Io`].
    pub async fn open(
        path: PathBuf,
        options: SqliteOptions,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, StoreError> {
        let opened = tokio::task::spawn_blocking(move || Self::open_now(path, options, clock));
        opened.await.map_err(StoreError::io)?
    }

    fn open_now(path: PathBuf, options: SqliteOptions, clock: Arc<dyn Clock>) -> Result<Self, StoreError> {
        let place = Place { path, options };
        let (writer, reader, helper) = (place.writer(clock.now())?, place.reader()?, place.helper()?);
        let mut store = Self {
            readers: Arc::new(Readers::new(place.clone(), reader)),
            place,
            clock,
            queue: Arc::new(Queue::new()),
            checkpoints: Arc::default(),
            threads: Vec::new(),
        };
        let (place, clock) = (store.place.clone(), Arc::clone(&store.clock));
        let (queue, checkpoints) = (Arc::clone(&store.queue), Arc::clone(&store.checkpoints));
        let thread = |name: &str| std::thread::Builder::new().name(name.into());
        let write = thread("store-writer")
            .spawn(move || writer::run(&place, writer, &queue, &checkpoints, &clock))
            .map_err(StoreError::io)?;
        store.threads.push(write);
        let checkpoints = Arc::clone(&store.checkpoints);
        let tidy = thread("store-tidier").spawn(move || checkpoints.run(&helper)).map_err(StoreError::io)?;
        store.threads.push(tidy);
        Ok(store)
    }

    fn write<'a, T: Send + 'static>(
        &'a self,
        bytes: usize,
        durability: Durability,
        work: impl FnOnce(&Session, Time) -> Result<T, StoreError> + Send + 'static,
    ) -> BoxFuture<'a, T> {
        let durability = durability.max(self.place.options.durability);
        let clock = Arc::clone(&self.clock);
        // The time is read in the transaction: a claim must not expire in the queue and be honoured.
        Box::pin(async move {
            check_size("a write", bytes)?;
            self.queue.write(bytes, durability, move |db| work(db, clock.now())).await
        })
    }

    fn read_with<'a, T: Send + 'static>(
        &'a self,
        work: impl FnOnce(&Connection, Time) -> Result<T, StoreError> + Send + 'static,
    ) -> BoxFuture<'a, T> {
        let clock = Arc::clone(&self.clock);
        Box::pin(self.readers.read(move |db| work(db, clock.now())))
    }

    /// A method that the path is all it needs.
    fn blocking<'a, T: Send + 'static>(
        &'a self,
        work: impl FnOnce(&Place) -> Result<T, StoreError> + Send + 'static,
    ) -> BoxFuture<'a, T> {
        let place = self.place.clone();
        Box::pin(
            async move { tokio::task::spawn_blocking(move || work(&place)).await.map_err(StoreError::io)? },
        )
    }
}

impl Drop for SqliteStore {
    fn drop(&mut self) {
        self.queue.close();
        self.checkpoints.end();
        for thread in self.threads.drain(..) {
            // A thread that panicked has told its callers already.
            let _ = thread.join();
        }
    }
}

impl Store for SqliteStore {
    fn now(&self) -> Time {
        self.clock.now()
    }

    fn create_thread<'a>(&'a self, owner: &'a Owner, new: NewThread) -> BoxFuture<'a, Created<Thread>> {
        let owner = owner.clone();
        self.write(text_len(&new.metadata), Durability::Os, move |db, now| {
            threads::create(db, &owner, &new, now)
        })
    }

    fn thread<'a>(&'a self, owner: &'a Owner, thread: &'a ThreadId) -> BoxFuture<'a, Thread> {
        let (owner, thread) = (owner.clone(), thread.clone());
        self.read_with(move |db, _| Ok(ThreadRow::get(db, &owner, &thread)?.thread))
    }

    fn threads<'a>(
        &'a self,
        owner: &'a Owner,
        query: ThreadQuery,
        limit: usize,
    ) -> BoxFuture<'a, Page<Thread>> {
        let owner = owner.clone();
        self.read_with(move |db, _| threads::list(db, &owner, &query, limit))
    }

    fn update_thread<'a>(
        &'a self,
        owner: &'a Owner,
        thread: &'a ThreadId,
        change: ThreadChange,
    ) -> BoxFuture<'a, Thread> {
        let (owner, thread) = (owner.clone(), thread.clone());
        self.write(change.size(), Durability::Os, move |db, now| {
            threads::update(db, &owner, &thread, change, now)
        })
    }

    fn delete_thread<'a>(&'a self, owner: &'a Owner, thread: &'a ThreadId) -> BoxFuture<'a, ()> {
        let (owner, thread) = (owner.clone(), thread.clone());
        self.write(0, Durability::Os, move |db, _| threads::delete(db, &owner, &thread))
    }

    fn state<'a>(&'a self, owner: &'a Owner, thread: &'a ThreadId) -> BoxFuture<'a, State> {
        let (owner, thread) = (owner.clone(), thread.clone());
        self.read_with(move |db, _| threads::state(db, &owner, &thread))
    }

    fn messages<'a>(&'a self, owner: &'a Owner, thread: &'a ThreadId) -> BoxFuture<'a, Option<Text>> {
        let (owner, thread) = (owner.clone(), thread.clone());
        self.read_with(move |db, _| threads::messages(db, &owner, &thread))
    }

    fn start<'a>(&'a self, owner: &'a Owner, new: NewRun) -> BoxFuture<'a, Start> {
        let owner = owner.clone();
        self.write(new.size(), Durability::Os, move |db, now| runs::start(db, &owner, new, now))
    }

    fn run<'a>(&'a self, owner: &'a Owner, run: &'a RunId) -> BoxFuture<'a, Run> {
        let (owner, run) = (owner.clone(), run.clone());
        self.read_with(move |db, _| Ok(RunRow::get(db, &owner, &run)?.run))
    }

    fn input<'a>(&'a self, owner: &'a Owner, run: &'a RunId) -> BoxFuture<'a, Option<Text>> {
        let (owner, run) = (owner.clone(), run.clone());
        self.read_with(move |db, _| runs::input(db, &owner, &run))
    }

    fn runs<'a>(
        &'a self,
        owner: &'a Owner,
        thread: &'a ThreadId,
        before: Option<PageToken>,
        limit: usize,
    ) -> BoxFuture<'a, Page<Run>> {
        let (owner, thread) = (owner.clone(), thread.clone());
        self.read_with(move |db, _| runs::list(db, &owner, &thread, before, limit))
    }

    fn acquire<'a>(
        &'a self,
        owner: &'a Owner,
        run: &'a RunId,
        fence: Fence,
        ttl: Duration,
    ) -> BoxFuture<'a, Acquire> {
        let (owner, run) = (owner.clone(), run.clone());
        self.write(0, Durability::Os, move |db, now| runs::acquire(db, &owner, &run, fence, ttl, now))
    }

    fn renew<'a>(
        &'a self,
        owner: &'a Owner,
        run: &'a RunId,
        fence: Fence,
        ttl: Duration,
    ) -> BoxFuture<'a, Lease> {
        let (owner, run) = (owner.clone(), run.clone());
        self.write(0, Durability::Memory, move |db, now| runs::renew(db, &owner, &run, fence, ttl, now))
    }

    fn release<'a>(&'a self, owner: &'a Owner, run: &'a RunId, fence: Fence) -> BoxFuture<'a, ()> {
        let (owner, run) = (owner.clone(), run.clone());
        self.write(0, Durability::Os, move |db, _| runs::release(db, &owner, &run, fence))
    }

    fn lease<'a>(&'a self, owner: &'a Owner, thread: &'a ThreadId) -> BoxFuture<'a, Option<Lease>> {
        let (owner, thread) = (owner.clone(), thread.clone());
        self.read_with(move |db, now| runs::lease(db, &owner, &thread, now))
    }

    fn orphans<'a>(&'a self, dead: Option<&'a Holder>, limit: usize) -> BoxFuture<'a, Vec<(RunKey, Run)>> {
        let dead = dead.cloned();
        self.read_with(move |db, now| runs::orphans(db, dead.as_ref(), limit, now))
    }

    fn take_over<'a>(
        &'a self,
        run: &'a RunKey,
        seen: Fence,
        dead: Option<&'a Holder>,
        claim: Claim,
    ) -> BoxFuture<'a, Run> {
        let (run, dead) = (run.clone(), dead.cloned());
        self.write(0, Durability::Os, move |db, now| {
            runs::take_over(db, &run, seen, dead.as_ref(), &claim, now)
        })
    }

    fn append(&self, append: Append) -> BoxFuture<'_, Appended> {
        self.write(append.size(), append.needs(), move |db, now| log::append(db, append, now))
    }

    fn read<'a>(
        &'a self,
        owner: &'a Owner,
        run: &'a RunId,
        after: Option<Seq>,
        limit: usize,
    ) -> BoxFuture<'a, Log> {
        let (owner, run) = (owner.clone(), run.clone());
        self.read_with(move |db, _| log::read(db, &owner, &run, after, limit))
    }

    fn compactable(&self, age: Duration, limit: usize) -> BoxFuture<'_, Vec<RunKey>> {
        self.read_with(move |db, now| log::compactable(db, now.before(age), limit))
    }

    fn compact<'a>(&'a self, owner: &'a Owner, run: &'a RunId, events: Vec<Bytes>) -> BoxFuture<'a, ()> {
        let (owner, run) = (owner.clone(), run.clone());
        let bytes = events.iter().map(Bytes::len).sum();
        self.write(bytes, Durability::Os, move |db, _| log::compact(db, &owner, &run, &events))
    }

    fn pending<'a>(
        &'a self,
        owner: &'a Owner,
        thread: &'a ThreadId,
        which: Which,
    ) -> BoxFuture<'a, Vec<Pending>> {
        let (owner, thread) = (owner.clone(), thread.clone());
        self.read_with(move |db, now| pending::list(db, &owner, &thread, which, now))
    }

    fn answer<'a>(
        &'a self,
        owner: &'a Owner,
        thread: &'a ThreadId,
        answering: Answering,
        run: &'a RunId,
    ) -> BoxFuture<'a, RunId> {
        let (owner, thread, run) = (owner.clone(), thread.clone(), run.clone());
        self.write(answering.size(), Durability::Os, move |db, now| {
            pending::answer(db, &owner, &thread, &answering, &run, now)
        })
    }

    fn add_feedback<'a>(&'a self, owner: &'a Owner, new: NewFeedback) -> BoxFuture<'a, Feedback> {
        let owner = owner.clone();
        self.write(new.body.len(), Durability::Os, move |db, now| threads::add_feedback(db, &owner, new, now))
    }

    fn feedback<'a>(
        &'a self,
        owner: &'a Owner,
        thread: &'a ThreadId,
        after: Option<PageToken>,
        limit: usize,
    ) -> BoxFuture<'a, Page<Feedback>> {
        let (owner, thread) = (owner.clone(), thread.clone());
        self.read_with(move |db, _| threads::feedback(db, &owner, &thread, after, limit))
    }

    fn retain(&self, retention: Retention) -> BoxFuture<'_, Retained> {
        Box::pin(async move {
            let mut retained = Retained::default();
            loop {
                let wanted = retention.clone();
                let victims = self.read_with(move |db, now| upkeep::victims(db, &wanted, now)).await?;
                let more = victims.len() >= upkeep::COLLECTED;
                let before = retained;
                for slice in victims.chunks(upkeep::SLICE) {
                    let slice = slice.to_vec();
                    let given_up = self.write(0, Durability::Os, move |db, now| {
                        let give_up = |victim: &Victim| Ok((*victim, upkeep::give_up(db, *victim, now)?));
                        slice.iter().map(give_up).collect::<Result<Vec<_>, StoreError>>()
                    });
                    for (victim, done) in given_up.await? {
                        let kind = match victim {
                            Victim::Waiting(_) => &mut retained.expired,
                            Victim::Thread(_) => &mut retained.threads,
                            Victim::Log(_) => &mut retained.logs,
                        };
                        *kind += u64::from(done);
                    }
                }
                if !more || before == retained {
                    return Ok(retained);
                }
            }
        })
    }

    fn probe(&self) -> BoxFuture<'_, ()> {
        self.write(0, Durability::Os, |db, _| upkeep::probe(db))
    }

    fn stats(&self) -> BoxFuture<'_, Stats> {
        let path = self.place.path.to_string_lossy().into_owned();
        self.read_with(move |db, now| upkeep::stats(db, &path, now))
    }

    fn vacuum(&self) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            while self.write(0, Durability::Os, |db, _| upkeep::vacuum_some(db)).await? {}
            // The file itself shrinks with the checkpoint. One that meets readers is left to the next.
            let shrink = self.blocking(|place| {
                Ok(place.helper()?.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))?)
            });
            match shrink.await {
                Err(StoreError::Busy) => Ok(()),
                other => other,
            }
        })
    }

    fn verify(&self) -> BoxFuture<'_, ()> {
        self.blocking(|place| upkeep::verify(&place.helper()?))
    }

    fn backup<'a>(&'a self, to: &'a Path) -> BoxFuture<'a, ()> {
        let to = to.to_owned();
        self.blocking(move |place| connect::copy(place, &to))
    }
}
