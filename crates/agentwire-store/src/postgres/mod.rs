//! PostgreSQL store: one database that several gateways share.
//!
//! ```text
//! appends ──▶ queue ──▶ 2 connections: one statement for many runs ──▶ heads + log (a partition per day)
//! renewals ─▶ 1 connection ─▶ replicas: one lease per gateway
//! the rest ─▶ pool: transactions that lock the thread, then the run; reads
//! waiting calls ◀── one poll for all of them ◀── NOTIFY for watched runs
//! ```
//!
//! Leases and expiries are judged by the server's clock. [`Durability::Os`] and [`Durability::Fsync`] both commit with the
//! server's `synchronous_commit`, at least `on`: the death of the server loses nothing acknowledged. `Memory` commits with
//! `off`.

mod address;
mod api_keys;
mod connect;
mod copy;
mod error;
mod log;
mod mailbox;
mod maintenance;
mod pending;
mod queue;
mod row;
mod runs;
mod schema;
mod server;
mod threads;
mod tls;
mod value;
mod wake;

use std::{
    collections::HashMap,
    fmt,
    path::Path,
    sync::{
        Arc, Mutex, PoisonError, Weak,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use agentwire_core::event::{RunId, ThreadId};
use bytes::Bytes;

use address::Address;
use connect::{Database, Gate, Lane};
use maintenance::Removal;
use queue::{Job, Queue};
use row::{RunRow, ThreadRow};
use schema::SchemaState;
use value::Day;
use wake::Hub;

use crate::{
    chunk,
    clock::{Clock, Time},
    copy::ThreadDump,
    error::StoreError,
    model::{
        Acquire, AgentName, AnswerSet, ApiKey, Append, Appended, Change, CommandId, Created, Delivery,
        Durability, Feedback, Fence, Holder, KeyChange, KeyChanges, Lease, Log, MoveReport, NewFeedback,
        NewRun, NewThread, OpenItem, Owner, Page, PageToken, Pending, PendingFilter, Retention,
        RetentionReport, Run, RunKey, Seq, ServerIdentity, Start, State, Stats, StoreSize, TakenCommand,
        Tenant, Text, Thread, ThreadChange, ThreadQuery, Usage, UserId, text_len,
    },
    rules::{ResultWait, check_size},
    store::{BoxFuture, Store},
};

/// Runs whose number is remembered, more than one gateway has live. The memory is emptied when it is full.
const MAX_KNOWN_RUNS: usize = 16 * 1024;

/// Interval at which a sender looks for its reply, with and without notifications.
const REPLY_POLL: (Duration, Duration) = (Duration::from_millis(100), Duration::from_millis(25));

/// Interval at which a gateway looks for commands to its runs, with and without notifications.
const INBOX_POLL: (Duration, Duration) = (Duration::from_millis(250), Duration::from_millis(50));

/// Interval at which it does so while it has no runs: the database may sleep.
const IDLE_POLL: Duration = Duration::from_secs(600);

/// The first and the longest pause between two attempts to reach the server at the start.
const FIRST_RETRY: Duration = Duration::from_millis(250);
const LONGEST_RETRY: Duration = Duration::from_secs(5);

/// Options of a [`PostgresStore`].
#[derive(Clone, Debug, Default)]
pub struct PostgresOptions {
    /// The minimum durability of every write.
    pub durability: Durability,
    /// A clock in place of the server's; for tests.
    pub clock: Option<Arc<dyn Clock>>,
    /// Time limit for a server that cannot be reached. Meanwhile the store is open, every call fails with
    /// [`StoreError::Io`], and [`Store::opened`] waits.
    pub patience: Option<Duration>,
}

/// A [`Store`] in a PostgreSQL database.
pub struct PostgresStore {
    database: Arc<Database>,
    queue: Arc<Queue>,
    hub: Arc<Hub>,
    known: Mutex<HashMap<RunKey, (i64, Day)>>,
    unconfirmed: mailbox::Unconfirmed,
}

impl fmt::Debug for PostgresStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresStore").field("address", &self.database.address.shown).finish_non_exhaustive()
    }
}

impl PostgresStore {
    /// Connects to the database at `postgres://…`, and creates the schema if there is none. An existing schema is never changed
    /// here.
    ///
    /// # Errors
    ///
    /// * [`StoreError::Address`]: the address is malformed.
    /// * [`StoreError::Outdated`]: the schema must be migrated first ([`PostgresStore::migrate`]).
    /// * [`StoreError::Version`]: the schema is too new for this code.
    /// * [`StoreError::Foreign`]: the schema belongs to another program.
    /// * [`StoreError::Refused`]: the server refuses the user, the database or the encryption.
    /// * [`StoreError::Io`]: the server cannot be reached, and [`PostgresOptions::patience`] is not set.
    pub async fn open(address: &str, options: PostgresOptions) -> Result<Self, StoreError> {
        let parsed = Address::parse(address)?;
        let database = Arc::new(Database::new(parsed, options.durability, options.clock)?);
        if options.durability == Durability::Memory {
            tracing::warn!(
                "durability `memory`: the death of the server loses the events of the last moments"
            );
        }
        match (prepare(&database).await, options.patience) {
            (Ok(is_lax), _) => database.set_lax(is_lax),
            (Err(error), Some(patience)) if error.is_outage() => {
                tracing::warn!(%error, cause = ?std::error::Error::source(&error), "the store is waited for");
                database.set_gate(Gate::Waiting);
                tokio::spawn(wait_for_server(Arc::downgrade(&database), address.into(), patience));
            }
            (Err(error), _) => return Err(error),
        }
        let hub = Hub::start(&database);
        let queue = Queue::start(&database, &hub);
        Ok(Self {
            database,
            queue,
            hub,
            known: Mutex::default(),
            unconfirmed: mailbox::Unconfirmed::default(),
        })
    }

    /// Creates the schema or brings it to the version of this code; returns the versions before and after.
    ///
    /// # Errors
    ///
    /// Those of [`PostgresStore::open`] but [`StoreError::Outdated`].
    pub async fn migrate(address: &str) -> Result<(i64, i64), StoreError> {
        let database = Database::new(Address::parse(address)?, Durability::Os, None)?;
        let found = schema::migrate(&database).await?;
        if !database.address.prepared {
            schema::set_role_limits(&database).await?;
        }
        Ok((found.into(), schema::VERSION.into()))
    }

    /// The version of the schema, 0 if there is none, and the version that [`PostgresStore::migrate`] would bring it to.
    ///
    /// # Errors
    ///
    /// Those of [`PostgresStore::open`] but [`StoreError::Outdated`].
    pub async fn check_schema(address: &str) -> Result<(i64, i64), StoreError> {
        let database = Database::new(Address::parse(address)?, Durability::Os, None)?;
        let found = match schema::state(&database).await? {
            SchemaState::Missing => 0,
            SchemaState::Usable(version) | SchemaState::Older(version) => version,
        };
        Ok((found.into(), schema::VERSION.into()))
    }

    fn remember(&self, key: RunKey, place: (i64, Day)) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= MAX_KNOWN_RUNS {
            known.clear();
        }
        known.insert(key, place);
    }

    async fn place_of(&self, key: &RunKey) -> Result<(i64, Day), StoreError> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner).get(key).copied();
        if let Some(place) = known {
            return Ok(place);
        }
        let place = self.database.read(|t| async move { log::find(&t, key).await }).await?;
        self.remember(key.clone(), place);
        Ok(place)
    }

    async fn append_alone(&self, append: &Append) -> Result<Appended, StoreError> {
        let level = append.required_durability();
        let written = self
            .database
            .transact(Lane::General, level, |t| async move { log::append(&t, append).await })
            .await?;
        if !written.appended.repeated {
            self.hub.appended(written.run, written.appended.next_seq, written.is_live, written.is_watched);
            for reply in &append.change.replies {
                self.hub.commanded(format!("r:{}", reply.id.0));
            }
        }
        let key = RunKey { owner: append.owner.clone(), run: append.run.clone() };
        if written.is_live {
            self.remember(key, (written.run, written.day));
        } else {
            self.known.lock().unwrap_or_else(PoisonError::into_inner).remove(&key);
        }
        Ok(written.appended)
    }
}

/// Checks the schema, and creates it in an empty database. Returns whether the server acknowledges commits early.
async fn prepare(database: &Database) -> Result<bool, StoreError> {
    match schema::state(database).await? {
        SchemaState::Usable(_) => {}
        SchemaState::Missing => _ = schema::migrate(database).await?,
        SchemaState::Older(found) => {
            return Err(StoreError::Outdated { found: found.into(), known: schema::VERSION.into() });
        }
    }
    let is_lax = schema::is_lax(database).await?;
    schema::tend_partitions(database).await?;
    Ok(is_lax)
}

/// Prepares a database whose server could not be reached, and lets calls through then. Ends with the store.
async fn wait_for_server(database: Weak<Database>, address: Box<str>, patience: Duration) {
    let deadline = Instant::now() + patience;
    let mut pause = FIRST_RETRY;
    loop {
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LONGEST_RETRY);
        let Some(waiting) = database.upgrade() else { return };
        // Connections of its own: those of the store are closed to calls.
        let prepared = match Address::parse(&address) {
            Ok(parsed) => match Database::new(parsed, waiting.durability, waiting.clocks.given.clone()) {
                Ok(own) => prepare(&own).await,
                Err(error) => Err(error),
            },
            Err(error) => Err(error),
        };
        match prepared {
            Ok(is_lax) => {
                waiting.set_lax(is_lax);
                waiting.set_gate(Gate::Open);
                tracing::info!("the store was reached");
                return;
            }
            Err(error) if error.is_outage() && Instant::now() < deadline => {
                tracing::warn!(%error, cause = ?std::error::Error::source(&error), "the store is waited for");
            }
            Err(error) => return waiting.set_gate(Gate::Refused(error)),
        }
    }
}

impl Drop for PostgresStore {
    fn drop(&mut self) {
        self.queue.close();
        self.hub.close();
        self.database.close();
    }
}

/// True if an append changes nothing but the log.
fn is_plain(change: &Change) -> bool {
    change.status.is_none()
        && !change.changes_thread()
        && change.pending.is_empty()
        && change.replies.is_empty()
}

impl Store for PostgresStore {
    fn now(&self) -> Time {
        self.database.clocks.estimate()
    }

    fn create_thread<'a>(&'a self, owner: &'a Owner, new: NewThread) -> BoxFuture<'a, Created<Thread>> {
        Box::pin(async move {
            check_size("a write", text_len(&new.metadata))?;
            let new = &new;
            let create = |t| async move { threads::create(&t, owner, new).await };
            self.database.transact(Lane::General, Durability::Os, create).await
        })
    }

    fn thread<'a>(&'a self, owner: &'a Owner, thread: &'a ThreadId) -> BoxFuture<'a, Thread> {
        Box::pin(
            self.database.read(move |t| async move { Ok(ThreadRow::get(&t, owner, thread).await?.thread) }),
        )
    }

    fn threads<'a>(
        &'a self,
        owner: &'a Owner,
        query: ThreadQuery,
        limit: usize,
    ) -> BoxFuture<'a, Page<Thread>> {
        Box::pin(self.database.read(move |t| async move { threads::list(&t, owner, &query, limit).await }))
    }

    fn update_thread<'a>(
        &'a self,
        owner: &'a Owner,
        thread: &'a ThreadId,
        change: ThreadChange,
    ) -> BoxFuture<'a, Thread> {
        Box::pin(async move {
            check_size("a write", change.size())?;
            let change = &change;
            let update = |t| async move { threads::update(&t, owner, thread, change).await };
            let updated = self.database.transact(Lane::General, Durability::Os, update).await;
            let Err(StoreError::Io(error)) = updated else { return updated };
            tracing::debug!(%thread, %error, "the outcome of a change is unknown and is looked up");
            // Waits for a COMMIT that is still under way.
            let settle = |t| async move { threads::settle(&t, owner, thread, change).await };
            self.database.transact(Lane::General, Durability::Os, settle).await
        })
    }

    fn delete_thread<'a>(&'a self, owner: &'a Owner, thread: &'a ThreadId) -> BoxFuture<'a, ()> {
        let delete = move |t| async move { threads::delete(&t, owner, thread).await };
        Box::pin(self.database.transact(Lane::General, Durability::Os, delete))
    }

    fn upstream_scope<'a>(&'a self, owner: &'a Owner, thread: &'a ThreadId) -> BoxFuture<'a, Option<Text>> {
        Box::pin(self.database.read(move |t| async move { threads::upstream_scope(&t, owner, thread).await }))
    }

    fn move_threads<'a>(&'a self, from: &'a AgentName, to: &'a AgentName) -> BoxFuture<'a, MoveReport> {
        Box::pin(async move {
            let mut report = MoveReport::default();
            loop {
                let step = |t| async move { threads::move_some(&t, from, to).await };
                let moved = self.database.transact(Lane::General, Durability::Os, step).await?;
                report.moved += moved;
                if moved == 0 {
                    break;
                }
            }
            report.left =
                self.database.read(|t| async move { threads::count_of_agent(&t, from).await }).await?;
            Ok(report)
        })
    }

    fn state<'a>(&'a self, owner: &'a Owner, thread: &'a ThreadId) -> BoxFuture<'a, State> {
        Box::pin(self.database.read(move |t| async move { threads::state(&t, owner, thread).await }))
    }

    fn messages<'a>(&'a self, owner: &'a Owner, thread: &'a ThreadId) -> BoxFuture<'a, Option<Text>> {
        Box::pin(self.database.read(move |t| async move { threads::messages(&t, owner, thread).await }))
    }

    fn start<'a>(&'a self, owner: &'a Owner, new: NewRun) -> BoxFuture<'a, Start> {
        Box::pin(async move {
            check_size("a write", new.size())?;
            let new = &new;
            // Of two starts at once the other one may have won; the whole decision tells.
            let at_once = match runs::start_at_once(&self.database, owner, new).await {
                Err(StoreError::Busy) => None,
                done => done?,
            };
            let start = match at_once {
                Some((run, id, day)) => {
                    self.remember(RunKey { owner: owner.clone(), run: run.run.clone() }, (id, day));
                    Start::Created(run)
                }
                None => {
                    let start = |t| async move { runs::start(&t, owner, new).await };
                    self.database.transact(Lane::General, Durability::Os, start).await?
                }
            };
            if matches!(start, Start::Created(_)) {
                self.hub.claimed();
            }
            Ok(start)
        })
    }

    fn run<'a>(&'a self, owner: &'a Owner, run: &'a RunId) -> BoxFuture<'a, Run> {
        Box::pin(self.database.read(move |t| async move { Ok(RunRow::get(&t, owner, run).await?.run) }))
    }

    fn input<'a>(&'a self, owner: &'a Owner, run: &'a RunId) -> BoxFuture<'a, Option<Text>> {
        Box::pin(self.database.read(move |t| async move { runs::input(&t, owner, run).await }))
    }

    fn runs<'a>(
        &'a self,
        owner: &'a Owner,
        thread: &'a ThreadId,
        before: Option<PageToken>,
        limit: usize,
    ) -> BoxFuture<'a, Page<Run>> {
        Box::pin(
            self.database.read(move |t| async move { runs::list(&t, owner, thread, before, limit).await }),
        )
    }

    fn acquire<'a>(&'a self, owner: &'a Owner, run: &'a RunId, fence: Fence) -> BoxFuture<'a, Acquire> {
        Box::pin(async move {
            match runs::acquire_at_once(&self.database, owner, run, fence).await {
                Ok(Some(lease)) => return Ok(Acquire::Granted(lease)),
                Ok(None) | Err(StoreError::Busy) => {}
                Err(error) => return Err(error),
            }
            let acquire = |t| async move { runs::acquire(&t, owner, run, fence).await };
            self.database.transact(Lane::General, Durability::Os, acquire).await
        })
    }

    fn renew<'a>(&'a self, holder: &'a Holder, ttl: Duration) -> BoxFuture<'a, bool> {
        Box::pin(async move {
            let renewed = runs::renew(&self.database, holder, ttl).await?;
            if renewed.has_server_changed {
                self.database.check_server().await?;
            }
            Ok(renewed.was_live)
        })
    }

    fn retire<'a>(&'a self, holder: &'a Holder) -> BoxFuture<'a, ()> {
        let retire = move |t| async move { runs::retire(&t, holder).await };
        Box::pin(self.database.transact(Lane::Control, Durability::Os, retire))
    }

    fn release<'a>(&'a self, owner: &'a Owner, run: &'a RunId, fence: Fence) -> BoxFuture<'a, ()> {
        let release = move |t| async move { runs::release(&t, owner, run, fence).await };
        Box::pin(self.database.transact(Lane::General, Durability::Os, release))
    }

    fn lease<'a>(&'a self, owner: &'a Owner, thread: &'a ThreadId) -> BoxFuture<'a, Option<Lease>> {
        Box::pin(self.database.read(move |t| async move { runs::lease(&t, owner, thread).await }))
    }

    fn orphans(&self, limit: usize) -> BoxFuture<'_, Vec<(RunKey, Run)>> {
        // A transaction, for the server's time.
        let orphans = move |t| async move { runs::orphans(&t, limit).await };
        Box::pin(self.database.transact(Lane::General, Durability::Os, orphans))
    }

    fn claimed<'a>(&'a self, holder: &'a Holder) -> BoxFuture<'a, Vec<RunKey>> {
        Box::pin(self.database.read(move |t| async move { runs::claimed(&t, holder).await }))
    }

    fn take_over<'a>(&'a self, run: &'a RunKey, seen: Fence, holder: &'a Holder) -> BoxFuture<'a, Run> {
        Box::pin(async move {
            let at_once = match runs::take_over_at_once(&self.database, run, seen, holder).await {
                Err(StoreError::Busy) => None,
                done => done?,
            };
            let run = match at_once {
                Some(run) => run,
                None => {
                    let take_over = |t| async move { runs::take_over(&t, run, seen, holder).await };
                    self.database.transact(Lane::General, Durability::Os, take_over).await?
                }
            };
            self.hub.claimed();
            Ok(run)
        })
    }

    fn append(&self, append: Append) -> BoxFuture<'_, Appended> {
        Box::pin(async move {
            check_size("a write", append.size())?;
            if is_plain(&append.change) && !append.events.is_empty() {
                let key = RunKey { owner: append.owner.clone(), run: append.run.clone() };
                let (run, day) = self.place_of(&key).await?;
                let job = Job {
                    run,
                    day,
                    fence: append.fence.0,
                    seq: append.first_seq,
                    events: append.events.len(),
                    body: chunk::pack(&append.events)?,
                    durability: append.required_durability().max(self.database.durability),
                };
                if let Some(appended) = self.queue.append(job).await? {
                    return Ok(appended);
                }
            }
            self.append_alone(&append).await
        })
    }

    fn read<'a>(
        &'a self,
        owner: &'a Owner,
        run: &'a RunId,
        after: Option<Seq>,
        limit: usize,
    ) -> BoxFuture<'a, Log> {
        Box::pin(self.database.read(move |t| async move { log::read(&t, owner, run, after, limit).await }))
    }

    fn changed<'a>(&'a self, run: &'a RunKey, next: Seq) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            let found =
                self.database.read(|t| async move { RunRow::find(&t, &run.owner, &run.run).await }).await?;
            match found {
                Some(row) if row.run.next_seq <= next && row.run.status.is_live() => {
                    self.hub.follow(row.id, next, row.run.next_seq, &self.database).await
                }
                _ => Ok(()),
            }
        })
    }

    fn send<'a>(&'a self, run: &'a RunKey, body: Text, patience: Duration) -> BoxFuture<'a, Delivery> {
        Box::pin(async move {
            check_size("a write", body.len())?;
            let body = &*body;
            let wait = &ResultWait::new(patience);
            let (id, deadline) = mailbox::next_id(&self.database, patience).await?;
            let is_sent = match mailbox::send(&self.database, run, body, id, deadline).await {
                Ok(()) => true,
                // It may be stored, and is then withdrawn or waited for as any other.
                Err(StoreError::Io(_)) => false,
                Err(error) => return Err(error),
            };
            self.hub.commanded(format!("c:{}", id.0));
            let look = || async move {
                match self.database.read(|t| async move { mailbox::result_of(&t, id, false).await }).await? {
                    Some(Delivery::Replied(reply)) => {
                        // A reply that stays is removed as an abandoned command.
                        let _ = mailbox::remove(&self.database, id).await;
                        Ok(Some(Delivery::Replied(reply)))
                    }
                    Some(_) => {
                        let settle = |t| async move {
                            let result = mailbox::result_of(&t, id, true).await?;
                            wait.note(result.as_ref());
                            Ok(result)
                        };
                        self.database.transact(Lane::General, Durability::Os, settle).await
                    }
                    None => Ok(None),
                }
            };
            let is_late = || async move {
                let late = move |t: connect::Transaction| async move { Ok(deadline <= t.now) };
                self.database.transact(Lane::General, Durability::Os, late).await
            };
            let check = || async move {
                match wait.judge(look().await) {
                    // Not stored yet, or never: none will take it after its deadline.
                    Err(StoreError::NotFound(_)) if !is_sent => {
                        wait.judge(is_late().await.map(|late| late.then_some(Delivery::Withdrawn)))
                    }
                    other => other,
                }
            };
            self.hub
                .wait_for(|is_listening| if is_listening { REPLY_POLL.0 } else { REPLY_POLL.1 }, check)
                .await
        })
    }

    fn inbox<'a>(&'a self, holder: &'a Holder) -> BoxFuture<'a, Vec<TakenCommand>> {
        Box::pin(async move {
            let has_runs = AtomicBool::new(true);
            let has_runs = &has_runs;
            let check = || async move {
                let look = self.database.read(|t| async move { mailbox::look(&t, holder).await }).await?;
                has_runs.store(look.has_runs, Ordering::Relaxed);
                if !look.has_commands && self.unconfirmed.is_empty() {
                    return Ok(None);
                }
                let taken = mailbox::take(&self.database, holder, &self.unconfirmed).await?;
                Ok((!taken.is_empty()).then_some(taken))
            };
            let limit = |is_listening| match (has_runs.load(Ordering::Relaxed), is_listening) {
                (false, _) => IDLE_POLL,
                (true, true) => INBOX_POLL.0,
                (true, false) => INBOX_POLL.1,
            };
            self.hub.wait_for(limit, check).await
        })
    }

    fn reply(&self, command: CommandId, fence: Fence, body: Text) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            check_size("a write", body.len())?;
            let body = &*body;
            mailbox::reply(&self.database, command, fence, body).await?;
            self.hub.commanded(format!("r:{}", command.0));
            Ok(())
        })
    }

    fn note_readers<'a>(&'a self, run: &'a RunKey, holder: &'a Holder, ttl: Duration) -> BoxFuture<'a, ()> {
        let note = move |t| async move { mailbox::note_readers(&t, run, holder, ttl).await };
        Box::pin(self.database.transact(Lane::General, Durability::Memory, note))
    }

    fn has_readers<'a>(&'a self, run: &'a RunKey, except: &'a Holder) -> BoxFuture<'a, bool> {
        let has_readers = move |t| async move { mailbox::has_readers(&t, run, except).await };
        Box::pin(self.database.transact(Lane::General, Durability::Os, has_readers))
    }

    fn compactable(&self, age: Duration, limit: usize) -> BoxFuture<'_, Vec<RunKey>> {
        Box::pin(
            self.database.read(move |t| async move { log::compactable(&t, t.now.before(age), limit).await }),
        )
    }

    fn compact<'a>(&'a self, owner: &'a Owner, run: &'a RunId, events: Vec<Bytes>) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            check_size("a write", events.iter().map(Bytes::len).sum())?;
            let events = &events;
            let compact = |t| async move { log::compact(&t, owner, run, events).await };
            self.database.transact(Lane::General, Durability::Os, compact).await
        })
    }

    fn pending<'a>(
        &'a self,
        owner: &'a Owner,
        thread: &'a ThreadId,
        filter: PendingFilter,
    ) -> BoxFuture<'a, Vec<Pending>> {
        Box::pin(self.database.read(move |t| async move { pending::list(&t, owner, thread, &filter).await }))
    }

    fn answer<'a>(
        &'a self,
        owner: &'a Owner,
        thread: &'a ThreadId,
        answers: AnswerSet,
        run: &'a RunId,
    ) -> BoxFuture<'a, RunId> {
        Box::pin(async move {
            check_size("a write", answers.size())?;
            let answers = &answers;
            let answer = |t| async move { pending::answer(&t, owner, thread, answers, run).await };
            self.database.transact(Lane::General, Durability::Os, answer).await
        })
    }

    fn add_feedback<'a>(&'a self, owner: &'a Owner, new: NewFeedback) -> BoxFuture<'a, Feedback> {
        Box::pin(async move {
            check_size("a write", new.body.len())?;
            let new = &new;
            let add = |t| async move { threads::add_feedback(&t, owner, new).await };
            self.database.transact(Lane::General, Durability::Os, add).await
        })
    }

    fn feedback<'a>(
        &'a self,
        owner: &'a Owner,
        thread: &'a ThreadId,
        after: Option<PageToken>,
        limit: usize,
    ) -> BoxFuture<'a, Page<Feedback>> {
        Box::pin(
            self.database
                .read(move |t| async move { threads::feedback(&t, owner, thread, after, limit).await }),
        )
    }

    fn open_items<'a>(
        &'a self,
        tenant: &'a Tenant,
        kind: &'a str,
        after: Option<PageToken>,
        limit: usize,
    ) -> BoxFuture<'a, Page<OpenItem>> {
        let list = move |t| async move { pending::open_items(&t, tenant, kind, after, limit).await };
        Box::pin(self.database.read(list))
    }

    fn replace_item<'a>(
        &'a self,
        owner: &'a Owner,
        thread: &'a ThreadId,
        expected: &'a Pending,
        body: Text,
    ) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            check_size("a write", body.len())?;
            let body = &*body;
            let replace = |t| async move { pending::replace(&t, owner, thread, expected, body).await };
            self.database.transact(Lane::General, Durability::Os, replace).await
        })
    }

    fn add_key(&self, key: ApiKey) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            let key = &key;
            let add = |t| async move { api_keys::add(&t, key).await };
            self.database.transact(Lane::General, Durability::Os, add).await
        })
    }

    fn key_changes(&self, after: u64) -> BoxFuture<'_, KeyChanges> {
        Box::pin(self.database.read(move |t| async move { api_keys::changes(&t, after).await }))
    }

    fn change_key<'a>(&'a self, id: &'a str, change: KeyChange) -> BoxFuture<'a, ApiKey> {
        let change = move |t| async move { api_keys::change(&t, id, change).await };
        Box::pin(self.database.transact(Lane::General, Durability::Os, change))
    }

    fn touch_keys(&self, used: Vec<(Text, Time)>) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            let used = &used;
            let touch = |t| async move { api_keys::touch(&t, used).await };
            self.database.transact(Lane::General, Durability::Memory, touch).await
        })
    }

    fn retain(&self, retention: Retention) -> BoxFuture<'_, RetentionReport> {
        Box::pin(async move {
            let mut report = RetentionReport::default();
            loop {
                let rules = &retention;
                let find = |t| async move { maintenance::find_removals(&t, rules).await };
                let removals = self.database.transact(Lane::General, Durability::Os, find).await?;
                let may_have_more = removals.len() >= maintenance::MAX_CANDIDATES;
                let before = report;
                for batch in removals.chunks(maintenance::REMOVALS_PER_WRITE) {
                    for removal in batch {
                        // One transaction each: several gateways may apply retention, and two that lock several threads
                        // in different orders would wait for each other.
                        let remove = |t| async move { maintenance::remove(&t, *removal).await };
                        let is_done = self.database.transact(Lane::General, Durability::Os, remove).await?;
                        let count = match removal {
                            Removal::FinishRun(_) => &mut report.expired,
                            Removal::DeleteThread(_) => &mut report.threads,
                            Removal::DropLog(_) => &mut report.logs,
                        };
                        *count += u64::from(is_done);
                    }
                    tokio::task::yield_now().await;
                }
                if !may_have_more || before == report {
                    break;
                }
            }
            schema::tend_partitions(&self.database).await?;
            Ok(report)
        })
    }

    fn probe(&self) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            // Fails on a standby and on a server that is read-only.
            let statement = "UPDATE agentwire.meta SET epoch = epoch";
            self.database.query(Lane::Control, statement, &[]).await.map(|_| ())
        })
    }

    fn may_sleep(&self) -> bool {
        true
    }

    fn notes(&self) -> Vec<String> {
        self.database.notes()
    }

    fn identity(&self) -> Option<ServerIdentity> {
        let (system, timeline) = self.database.server.identity().unwrap_or_default();
        Some(ServerIdentity { system, timeline, epoch: self.database.server.epoch() })
    }

    fn opened(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.database.opened())
    }

    fn has_live_runs(&self) -> BoxFuture<'_, bool> {
        Box::pin(self.database.read(move |t| async move { runs::any_live(&t).await }))
    }

    fn usage<'a>(&'a self, tenant: &'a Tenant, user: Option<&'a UserId>) -> BoxFuture<'a, Usage> {
        let usage = move |t| async move { maintenance::usage(&t, tenant, user, true).await };
        Box::pin(self.database.read(usage))
    }

    fn size(&self) -> BoxFuture<'_, StoreSize> {
        Box::pin(self.database.read(|t| async move { maintenance::size(&t).await }))
    }

    fn stats(&self) -> BoxFuture<'_, Stats> {
        let setup = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; SET LOCAL statement_timeout TO 0";
        Box::pin(self.database.transact_long(setup, |t| async move { maintenance::stats(&t).await }))
    }

    fn vacuum(&self) -> BoxFuture<'_, ()> {
        // The server reuses the space of deleted rows by itself; whole days are given back.
        Box::pin(async move { schema::tend_partitions(&self.database).await })
    }

    fn verify(&self) -> BoxFuture<'_, ()> {
        let setup = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; SET LOCAL statement_timeout TO 0";
        Box::pin(self.database.transact_long(setup, |t| async move { maintenance::verify(&t).await }))
    }

    fn export(&self, after: Option<PageToken>) -> BoxFuture<'_, Option<(PageToken, ThreadDump)>> {
        let setup = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; SET LOCAL statement_timeout TO 0";
        Box::pin(self.database.transact_long(setup, move |t| async move { copy::export(&t, after).await }))
    }

    fn import(&self, thread: ThreadDump) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            let thread = &thread;
            let setup = "BEGIN; SET LOCAL statement_timeout TO 0";
            self.database.transact_long(setup, |t| async move { copy::import(&t, thread).await }).await
        })
    }

    fn backup<'a>(&'a self, _: &'a Path) -> BoxFuture<'a, ()> {
        let what = "write itself to a file: use `pg_dump`, or the backups of the server";
        Box::pin(async move { Err(StoreError::Unsupported { backend: "PostgreSQL", what }) })
    }
}
