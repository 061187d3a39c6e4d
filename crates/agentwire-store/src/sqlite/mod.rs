//! SQLite store: one file, no server, safe to share between processes of one machine.
//!
//! ```text
//! callers ──▶ queue ──▶ one writer thread: a transaction per batch ──▶ file-wal ──▶ checkpointer ──▶ file
//! callers ◀── a few read connections on blocking threads ◀────────────────┘
//! ```
//!
//! SQLite hands every write that readers can see to the operating system, so [`Durability::Memory`] is treated as
//! [`Durability::Os`]. `Os` survives a crash of the process at any point; `Fsync` survives power loss too, at the cost of
//! one sync per batch.

mod api_keys;
mod copy;
mod database;
mod error;
mod log;
mod mailbox;
mod maintenance;
mod pending;
mod queue;
mod readers;
mod row;
mod runs;
mod schema;
mod session;
mod threads;
mod watch;
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
    copy::ThreadDump,
    error::StoreError,
    model::{
        Acquire, AgentName, AnswerSet, ApiKey, Append, Appended, CommandId, Created, Delivery, Durability,
        Feedback, Fence, Holder, KeyChange, KeyChanges, Lease, Log, MoveReport, NewFeedback, NewRun,
        NewThread, OpenItem, Owner, Page, PageToken, Pending, PendingFilter, Retention, RetentionReport, Run,
        RunKey, Seq, Start, State, Stats, StoreSize, TakenCommand, Tenant, Text, Thread, ThreadChange,
        ThreadQuery, Usage, UserId, text_len,
    },
    rules::{ResultWait, check_size},
    store::{BoxFuture, Store},
};
use database::DatabaseFile;
use maintenance::Removal;
use queue::Queue;
use readers::Readers;
use row::{RunRow, ThreadRow};
use session::Session;
use watch::Watcher;
use writer::Checkpoints;

/// The longest sleep of a waiting sender, which the passing of a deadline does not wake.
const POLL: Duration = Duration::from_millis(50);

/// The longest sleep of other waiting calls.
const SLOW_POLL: Duration = Duration::from_secs(1);

/// Options of a [`SqliteStore`].
#[derive(Clone, Debug)]
pub struct SqliteOptions {
    /// The minimum durability of every write.
    pub durability: Durability,
    /// Minimum interval between two transactions while several runs write at once. A run that writes alone never waits
    /// for it.
    pub tick: Duration,
    /// Maximum wait for the write lock of another process.
    pub busy_timeout: Duration,
    /// Number of read connections.
    pub readers: usize,
    /// Maximum size of the file. At the limit writes fail with [`StoreError::Full`]; reads and deletions still work.
    pub max_bytes: Option<u64>,
}

impl Default for SqliteOptions {
    fn default() -> Self {
        Self {
            durability: Durability::Os,
            // At 30,000 events a second this turns ten thousand transactions into one thousand, and a millisecond does
            // not show in a stream of tokens.
            tick: Duration::from_millis(1),
            // A healthy process holds the lock for milliseconds; after five seconds it is assumed to hang.
            busy_timeout: Duration::from_secs(5),
            // Reads are short and served from the page cache: more connections are not faster on a small machine.
            readers: 4,
            max_bytes: None,
        }
    }
}

/// A [`Store`] in an SQLite file. Dropping it completes all accepted writes.
pub struct SqliteStore {
    file: DatabaseFile,
    clock: Arc<dyn Clock>,
    queue: Arc<Queue>,
    checkpoints: Arc<Checkpoints>,
    readers: Arc<Readers>,
    watcher: Arc<Watcher>,
    threads: Vec<JoinHandle<()>>,
}

impl fmt::Debug for SqliteStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqliteStore").field("path", &self.file.path).finish_non_exhaustive()
    }
}

impl SqliteStore {
    /// Opens the file; creates a missing one and migrates an older one.
    ///
    /// # Errors
    ///
    /// * [`StoreError::Corrupt`]: the file is damaged or not a database.
    /// * [`StoreError::Foreign`]: the file belongs to another program.
    /// * [`StoreError::Version`]: the file was written by a newer version.
    /// * [`StoreError::Busy`]: another process holds the write lock.
    /// * [`StoreError::Io`]: the file cannot be opened.
    pub async fn open(
        path: PathBuf,
        options: SqliteOptions,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, StoreError> {
        let opened = tokio::task::spawn_blocking(move || Self::open_blocking(path, options, clock));
        opened.await.map_err(StoreError::io)?
    }

    fn open_blocking(
        path: PathBuf,
        options: SqliteOptions,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, StoreError> {
        let mut file = DatabaseFile { path, options, identity: None };
        let (writer, reader, helper) =
            (file.open_writer(clock.now())?, file.open_reader()?, file.open_helper()?);
        let watched = file.open_reader()?;
        file.identity = database::identity(&file.path);
        let mut store = Self {
            readers: Arc::new(Readers::new(file.clone(), reader)),
            file,
            clock,
            queue: Arc::new(Queue::new()),
            checkpoints: Arc::default(),
            watcher: Arc::default(),
            threads: Vec::new(),
        };
        let (file, clock) = (store.file.clone(), Arc::clone(&store.clock));
        let (queue, checkpoints) = (Arc::clone(&store.queue), Arc::clone(&store.checkpoints));
        let thread = |name: &str| std::thread::Builder::new().name(name.into());
        let write = thread("store-writer")
            .spawn(move || writer::run(&file, writer, &queue, &checkpoints, &clock))
            .map_err(StoreError::io)?;
        store.threads.push(write);
        let checkpoints = Arc::clone(&store.checkpoints);
        let checkpoint =
            thread("store-wal").spawn(move || checkpoints.run(&helper)).map_err(StoreError::io)?;
        store.threads.push(checkpoint);
        let watcher = Arc::clone(&store.watcher);
        let watch = thread("store-watch").spawn(move || watcher.run(&watched)).map_err(StoreError::io)?;
        store.threads.push(watch);
        Ok(store)
    }

    fn write<'a, T: Send + 'static>(
        &'a self,
        bytes: usize,
        durability: Durability,
        work: impl FnOnce(&Session, Time) -> Result<T, StoreError> + Send + 'static,
    ) -> BoxFuture<'a, T> {
        let durability = durability.max(self.file.options.durability);
        let clock = Arc::clone(&self.clock);
        // The time is read in the transaction, because a claim may expire while the write is queued.
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

    /// Runs `work` on a blocking thread, without the pool or the queue.
    fn run_blocking<'a, T: Send + 'static>(
        &'a self,
        work: impl FnOnce(&DatabaseFile) -> Result<T, StoreError> + Send + 'static,
    ) -> BoxFuture<'a, T> {
        let file = self.file.clone();
        Box::pin(
            async move { tokio::task::spawn_blocking(move || work(&file)).await.map_err(StoreError::io)? },
        )
    }
}

impl Drop for SqliteStore {
    fn drop(&mut self) {
        self.queue.close();
        self.checkpoints.shut_down();
        self.watcher.shut_down();
        for thread in self.threads.drain(..) {
            // A thread that panicked has failed its callers already.
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

    fn upstream_scope<'a>(&'a self, owner: &'a Owner, thread: &'a ThreadId) -> BoxFuture<'a, Option<Text>> {
        let (owner, thread) = (owner.clone(), thread.clone());
        self.read_with(move |db, _| threads::upstream_scope(db, &owner, &thread))
    }

    fn move_threads<'a>(&'a self, from: &'a AgentName, to: &'a AgentName) -> BoxFuture<'a, MoveReport> {
        Box::pin(async move {
            let mut report = MoveReport::default();
            loop {
                let (from, to) = (from.clone(), to.clone());
                let moved =
                    self.write(0, Durability::Os, move |db, _| threads::move_some(db, &from, &to)).await?;
                report.moved += moved;
                if moved == 0 {
                    break;
                }
            }
            let from = from.clone();
            report.left = self.read_with(move |db, _| threads::count_of_agent(db, &from)).await?;
            Ok(report)
        })
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

    fn acquire<'a>(&'a self, owner: &'a Owner, run: &'a RunId, fence: Fence) -> BoxFuture<'a, Acquire> {
        let (owner, run) = (owner.clone(), run.clone());
        self.write(0, Durability::Os, move |db, now| runs::acquire(db, &owner, &run, fence, now))
    }

    fn renew<'a>(&'a self, holder: &'a Holder, ttl: Duration) -> BoxFuture<'a, bool> {
        let holder = holder.clone();
        self.write(0, Durability::Memory, move |db, now| runs::renew(db, &holder, ttl, now))
    }

    fn retire<'a>(&'a self, holder: &'a Holder) -> BoxFuture<'a, ()> {
        let holder = holder.clone();
        self.write(0, Durability::Os, move |db, _| runs::retire(db, &holder))
    }

    fn release<'a>(&'a self, owner: &'a Owner, run: &'a RunId, fence: Fence) -> BoxFuture<'a, ()> {
        let (owner, run) = (owner.clone(), run.clone());
        self.write(0, Durability::Os, move |db, now| runs::release(db, &owner, &run, fence, now))
    }

    fn lease<'a>(&'a self, owner: &'a Owner, thread: &'a ThreadId) -> BoxFuture<'a, Option<Lease>> {
        let (owner, thread) = (owner.clone(), thread.clone());
        self.read_with(move |db, now| runs::lease(db, &owner, &thread, now))
    }

    fn orphans(&self, limit: usize) -> BoxFuture<'_, Vec<(RunKey, Run)>> {
        self.read_with(move |db, now| runs::orphans(db, limit, now))
    }

    fn claimed<'a>(&'a self, holder: &'a Holder) -> BoxFuture<'a, Vec<RunKey>> {
        let holder = holder.clone();
        self.read_with(move |db, _| runs::claimed(db, &holder))
    }

    fn take_over<'a>(&'a self, run: &'a RunKey, seen: Fence, holder: &'a Holder) -> BoxFuture<'a, Run> {
        let (run, holder) = (run.clone(), holder.clone());
        self.write(0, Durability::Os, move |db, now| runs::take_over(db, &run, seen, &holder, now))
    }

    fn append(&self, append: Append) -> BoxFuture<'_, Appended> {
        self.write(append.size(), append.required_durability(), move |db, now| log::append(db, append, now))
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

    fn changed<'a>(&'a self, run: &'a RunKey, next: Seq) -> BoxFuture<'a, ()> {
        Box::pin(self.watcher.wait_for(SLOW_POLL, move || {
            let run = run.clone();
            let changed = self.read_with(move |db, _| mailbox::has_changed(db, &run, next));
            async move { Ok(changed.await?.then_some(())) }
        }))
    }

    fn send<'a>(&'a self, run: &'a RunKey, body: Text, patience: Duration) -> BoxFuture<'a, Delivery> {
        Box::pin(async move {
            let run = run.clone();
            let size = body.len();
            let send = move |db: &Session, now| mailbox::send(db, &run, &body, patience, now);
            let id = self.write(size, Durability::Memory, send).await?;
            let wait = &ResultWait::new(patience);
            let look = || async move {
                // Read first: a write for each look would keep the other processes from writing.
                match self.read_with(move |db, now| mailbox::result_of(db, id, now)).await? {
                    Some(_) => {
                        let settle = move |db: &Session, now| mailbox::settle(db, id, now);
                        self.write(0, Durability::Memory, settle).await
                    }
                    None => Ok(None),
                }
            };
            self.watcher.wait_for(POLL, || async move { wait.judge(look().await) }).await
        })
    }

    fn inbox<'a>(&'a self, holder: &'a Holder) -> BoxFuture<'a, Vec<TakenCommand>> {
        Box::pin(self.watcher.wait_for(SLOW_POLL, move || async move {
            let mine = holder.clone();
            if !self.read_with(move |db, now| mailbox::has_open(db, &mine, now)).await? {
                return Ok(None);
            }
            let mine = holder.clone();
            let taken =
                self.write(0, Durability::Memory, move |db, now| mailbox::take(db, &mine, now)).await?;
            Ok((!taken.is_empty()).then_some(taken))
        }))
    }

    fn reply(&self, command: CommandId, fence: Fence, body: Text) -> BoxFuture<'_, ()> {
        self.write(body.len(), Durability::Memory, move |db, _| mailbox::reply(db, command, fence, &body))
    }

    fn note_readers<'a>(&'a self, run: &'a RunKey, holder: &'a Holder, ttl: Duration) -> BoxFuture<'a, ()> {
        let (run, holder) = (run.clone(), holder.clone());
        self.write(0, Durability::Memory, move |db, now| mailbox::note_readers(db, &run, &holder, ttl, now))
    }

    fn has_readers<'a>(&'a self, run: &'a RunKey, except: &'a Holder) -> BoxFuture<'a, bool> {
        let (run, except) = (run.clone(), except.clone());
        self.read_with(move |db, now| mailbox::has_readers(db, &run, &except, now))
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
        filter: PendingFilter,
    ) -> BoxFuture<'a, Vec<Pending>> {
        let (owner, thread) = (owner.clone(), thread.clone());
        self.read_with(move |db, now| pending::list(db, &owner, &thread, filter, now))
    }

    fn open_items<'a>(
        &'a self,
        tenant: &'a Tenant,
        kind: &'a str,
        after: Option<PageToken>,
        limit: usize,
    ) -> BoxFuture<'a, Page<OpenItem>> {
        let (tenant, kind) = (tenant.clone(), kind.to_owned());
        self.read_with(move |db, now| pending::open_items(db, &tenant, &kind, after, limit, now))
    }

    fn replace_item<'a>(
        &'a self,
        owner: &'a Owner,
        thread: &'a ThreadId,
        expected: &'a Pending,
        body: Text,
    ) -> BoxFuture<'a, ()> {
        let (owner, thread, expected) = (owner.clone(), thread.clone(), expected.clone());
        self.write(body.len(), Durability::Os, move |db, now| {
            pending::replace(db, &owner, &thread, &expected, &body, now)
        })
    }

    fn answer<'a>(
        &'a self,
        owner: &'a Owner,
        thread: &'a ThreadId,
        answers: AnswerSet,
        run: &'a RunId,
    ) -> BoxFuture<'a, RunId> {
        let (owner, thread, run) = (owner.clone(), thread.clone(), run.clone());
        self.write(answers.size(), Durability::Os, move |db, now| {
            pending::answer(db, &owner, &thread, &answers, &run, now)
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

    fn add_key(&self, key: ApiKey) -> BoxFuture<'_, ()> {
        self.write(key.permissions.len(), Durability::Os, move |db, _| api_keys::add(db, &key))
    }

    fn key_changes(&self, after: u64) -> BoxFuture<'_, KeyChanges> {
        self.read_with(move |db, _| api_keys::changes(db, after))
    }

    fn change_key<'a>(&'a self, id: &'a str, change: KeyChange) -> BoxFuture<'a, ApiKey> {
        let id = id.to_owned();
        self.write(0, Durability::Os, move |db, now| api_keys::change(db, &id, change, now))
    }

    fn touch_keys(&self, used: Vec<(Text, Time)>) -> BoxFuture<'_, ()> {
        self.write(0, Durability::Memory, move |db, _| api_keys::touch(db, &used))
    }

    fn retain(&self, retention: Retention) -> BoxFuture<'_, RetentionReport> {
        Box::pin(async move {
            let mut report = RetentionReport::default();
            loop {
                let rules = retention.clone();
                let removals =
                    self.read_with(move |db, now| maintenance::find_removals(db, &rules, now)).await?;
                let may_have_more = removals.len() >= maintenance::MAX_CANDIDATES;
                let before = report;
                for batch in removals.chunks(maintenance::REMOVALS_PER_WRITE) {
                    let batch = batch.to_vec();
                    let removed = self.write(0, Durability::Os, move |db, now| {
                        let remove =
                            |removal: &Removal| Ok((*removal, maintenance::remove(db, *removal, now)?));
                        batch.iter().map(remove).collect::<Result<Vec<_>, StoreError>>()
                    });
                    for (removal, is_done) in removed.await? {
                        let count = match removal {
                            Removal::FinishRun(_) => &mut report.expired,
                            Removal::DeleteThread(_) => &mut report.threads,
                            Removal::DropLog(_) => &mut report.logs,
                        };
                        *count += u64::from(is_done);
                    }
                }
                if !may_have_more || before == report {
                    return Ok(report);
                }
            }
        })
    }

    fn probe(&self) -> BoxFuture<'_, ()> {
        self.write(0, Durability::Os, |db, _| maintenance::probe(db))
    }

    fn probe_interval(&self) -> Duration {
        Duration::from_secs(2)
    }

    fn has_live_runs(&self) -> BoxFuture<'_, bool> {
        self.read_with(|db, now| {
            let any = "SELECT count(*) FROM runs WHERE status IN ('queued', 'running', 'paused')";
            Ok(threads::query_number(db, any, now)? > 0)
        })
    }

    fn usage<'a>(&'a self, tenant: &'a Tenant, user: Option<&'a UserId>) -> BoxFuture<'a, Usage> {
        let (tenant, user) = (tenant.clone(), user.cloned());
        self.read_with(move |db, _| maintenance::usage(db, &tenant, user.as_ref(), true))
    }

    fn size(&self) -> BoxFuture<'_, StoreSize> {
        self.read_with(|db, _| maintenance::size(db))
    }

    fn stats(&self) -> BoxFuture<'_, Stats> {
        let path = self.file.path.to_string_lossy().into_owned();
        self.read_with(move |db, now| maintenance::stats(db, &path, now))
    }

    fn vacuum(&self) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            while self.write(0, Durability::Os, |db, _| maintenance::vacuum_step(db)).await? {}
            // The checkpoint shrinks the file itself. If readers block it, the next checkpoint does.
            let shrink = self.run_blocking(|file| {
                Ok(file.open_helper()?.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))?)
            });
            match shrink.await {
                Err(StoreError::Busy) => Ok(()),
                other => other,
            }
        })
    }

    fn verify(&self) -> BoxFuture<'_, ()> {
        self.run_blocking(|file| maintenance::verify(&file.open_helper()?))
    }

    fn export(&self, after: Option<PageToken>) -> BoxFuture<'_, Option<(PageToken, ThreadDump)>> {
        self.read_with(move |db, now| copy::export(db, after, now))
    }

    fn import(&self, thread: ThreadDump) -> BoxFuture<'_, ()> {
        self.write(0, Durability::Os, move |db, _| copy::import(db, &thread))
    }

    fn backup<'a>(&'a self, to: &'a Path) -> BoxFuture<'a, ()> {
        let to = to.to_owned();
        self.run_blocking(move |file| database::backup(file, &to))
    }
}
