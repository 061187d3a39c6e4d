//! The [`Store`] trait.
//!
//! # Notes for a backend
//!
//! The contract suite (`tests/contract/`) checks everything below.
//!
//! * **Lease of a process.** One row per process: holder, expiry, lifetime. [`Store::renew`] writes it and nothing else does
//!   but [`Store::retire`]. A claim on a run is two things: a mark on the run (set by `start`, `acquire`, `take_over`;
//!   cleared by `release` and by the end of the run) and the holder's name. It is *live* while the mark is set and the
//!   holder's lease has not expired, by the clock of the store. Runs have no expiry of their own.
//! * **Orphan.** A live run (`queued`, `running`, `paused`) whose claim is not live. An orphan keeps its thread and its
//!   place in the queue. `start` and `acquire` look at one run, the *obstacle*: the run that has the thread, or, if none
//!   has it, the first queued run (for `acquire`: the first one before the caller's). No obstacle: granted. An obstacle
//!   with a live claim: `Held`. An orphan: `Orphan`, in every start mode.
//! * **Thread pointer.** Set when a run gets the thread; cleared by the end of that run, by nothing else (not by `release`, an
//!   expiry or a take-over).
//! * **Waiting calls.** [`Store::changed`], [`Store::inbox`] and [`Store::send`] wait inside the backend. A wake-up may be
//!   late (by a poll interval) or doubled, never lost for good; the data always comes from a read. They return an error
//!   at once if the database fails, and the caller waits before it tries again.
//! * **Commands.** A row per command: run, body, deadline, whether it is taken, reply. States: *open* → *taken* (by `inbox`,
//!   only before the deadline) → *replied*. `take_over` of a run makes its taken commands without a reply open again. The
//!   sender deletes the row when it has the result; rows that are older than a minute beyond their deadline belong to
//!   senders that died and may be deleted by anyone. The deletion of a thread deletes the commands of its runs.

use std::{future::Future, path::Path, pin::Pin, time::Duration};

use agentwire_core::event::{RunId, ThreadId};
use bytes::Bytes;

use crate::{
    clock::Time,
    copy::ThreadDump,
    error::StoreError,
    model::{
        Acquire, AgentName, AnswerSet, ApiKey, Append, Appended, CommandId, Created, Delivery, Feedback,
        Fence, Holder, KeyChange, KeyChanges, Lease, Log, MoveReport, NewFeedback, NewRun, NewThread,
        OpenItem, Owner, Page, PageToken, Pending, PendingFilter, Retention, RetentionReport, Run, RunKey,
        Seq, ServerIdentity, Start, State, Stats, StoreSize, TakenCommand, Tenant, Text, Thread,
        ThreadChange, ThreadQuery, Usage, UserId,
    },
};

/// The result of a store operation: a boxed future, because `async fn` in a trait does not allow `dyn Store`.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, StoreError>> + Send + 'a>>;

/// Storage for threads, runs, logs, claims, pending items and feedback.
///
/// The [crate page](crate) explains the data and the guarantees.
///
/// # Errors
///
/// Every method that names a record fails with [`StoreError::NotFound`] when the record does not exist or belongs to
/// another owner. Every method may fail with an error for which [`StoreError::is_fault`] holds; the store stays usable
/// after it. Further errors are listed at each method.
///
/// # Cancel safety
///
/// A future that is dropped may or may not have had its effect. Every write can be retried: `start`, `append` and
/// `answer` recognise a repetition, and the others have the same result twice.
pub trait Store: Send + Sync + 'static {
    /// The time by the store's clock.
    fn now(&self) -> Time;

    /// Creates a thread unless one with this id exists.
    fn create_thread<'a>(&'a self, owner: &'a Owner, new: NewThread) -> BoxFuture<'a, Created<Thread>>;

    /// A thread without its state and messages.
    fn thread<'a>(&'a self, owner: &'a Owner, thread: &'a ThreadId) -> BoxFuture<'a, Thread>;

    /// An owner's threads, last created first. This order is stable while a client turns pages, so that no thread is
    /// skipped or listed twice.
    fn threads<'a>(
        &'a self,
        owner: &'a Owner,
        query: ThreadQuery,
        limit: usize,
    ) -> BoxFuture<'a, Page<Thread>>;

    /// Changes a thread from outside a run, atomically.
    ///
    /// # Errors
    ///
    /// * [`Conflict::State`](crate::Conflict::State), [`Conflict::Thread`](crate::Conflict::Thread): the state, or another
    ///   text that is changed, has changed since the caller read it.
    /// * [`Conflict::Leased`](crate::Conflict::Leased): a run has the thread; it has read state and messages and will write
    ///   them.
    /// * [`Conflict::Orphan`](crate::Conflict::Orphan): an orphan has the thread. The caller ends it and tries again.
    ///
    /// The last two only for a change of the state or the messages.
    fn update_thread<'a>(
        &'a self,
        owner: &'a Owner,
        thread: &'a ThreadId,
        change: ThreadChange,
    ) -> BoxFuture<'a, Thread>;

    /// Deletes a thread with all its data, live runs included. Later writes to these runs fail with
    /// [`StoreError::NotFound`].
    fn delete_thread<'a>(&'a self, owner: &'a Owner, thread: &'a ThreadId) -> BoxFuture<'a, ()>;

    /// The upstream scope of a thread: of the stored one, or else the one that a new thread would get now.
    fn upstream_scope<'a>(&'a self, owner: &'a Owner, thread: &'a ThreadId) -> BoxFuture<'a, Option<Text>>;

    /// Moves the threads of all users from one agent to another agent or to a group, with their runs. Threads that cannot
    /// be moved are left in place; a later call tries again.
    fn move_threads<'a>(&'a self, from: &'a AgentName, to: &'a AgentName) -> BoxFuture<'a, MoveReport>;

    /// The state of a thread.
    fn state<'a>(&'a self, owner: &'a Owner, thread: &'a ThreadId) -> BoxFuture<'a, State>;

    /// The messages of a thread as JSON; `None` until they are set for the first time.
    fn messages<'a>(&'a self, owner: &'a Owner, thread: &'a ThreadId) -> BoxFuture<'a, Option<Text>>;

    /// Starts a run unless one with this id exists, atomically: of any number of callers with the same id, one
    /// creates the run and the others get the existing one. Creates the thread if necessary and records the answers
    /// in the request. The order of the checks: the run exists, the answers, the obstacle (see the notes of this module), the
    /// quotas, the lease of the holder. Of concurrent starts, no more are created than a quota of runs or threads allows.
    ///
    /// # Errors
    ///
    /// * [`StoreError::Fenced`]: the holder has no live lease; nothing was changed.
    /// * Those of [`Store::answer`], when the request contains answers.
    fn start<'a>(&'a self, owner: &'a Owner, new: NewRun) -> BoxFuture<'a, Start>;

    /// The record of a run.
    fn run<'a>(&'a self, owner: &'a Owner, run: &'a RunId) -> BoxFuture<'a, Run>;

    /// The request that started a run, as JSON; `None` once retention has dropped it.
    fn input<'a>(&'a self, owner: &'a Owner, run: &'a RunId) -> BoxFuture<'a, Option<Text>>;

    /// The runs of a thread, newest first.
    fn runs<'a>(
        &'a self,
        owner: &'a Owner,
        thread: &'a ThreadId,
        before: Option<PageToken>,
        limit: usize,
    ) -> BoxFuture<'a, Page<Run>>;

    /// Requests the thread for a queued run. Granted when no run has the thread and no run was queued earlier. The run is
    /// then `running` under a new fencing token.
    ///
    /// # Errors
    ///
    /// * [`StoreError::Fenced`]: `fence` is not the token of the run's claim, or the claim is not live.
    /// * [`StoreError::Ended`]: the run has ended.
    /// * [`Conflict::Status`](crate::Conflict::Status): the run is not queued.
    fn acquire<'a>(&'a self, owner: &'a Owner, run: &'a RunId, fence: Fence) -> BoxFuture<'a, Acquire>;

    /// Gives a process a lease until `ttl` from now, or extends the one that it has. Returns whether the process had a live
    /// lease. If not, its runs may have been taken over: it must compare their holders before it goes on. Those that nobody
    /// took over are live again, and the fencing token has excluded every other writer.
    ///
    /// Also shortens every lease that ends later than its own lifetime from now: a process whose clock was ahead has given
    /// it.
    fn renew<'a>(&'a self, holder: &'a Holder, ttl: Duration) -> BoxFuture<'a, bool>;

    /// Ends the lease of a process at once: all its live runs are orphans. For a process that shuts down, or that is known to
    /// be dead. Idempotent.
    fn retire<'a>(&'a self, holder: &'a Holder) -> BoxFuture<'a, ()>;

    /// Releases a claim without ending the run, which becomes an orphan and keeps its thread. Idempotent.
    ///
    /// # Errors
    ///
    /// [`StoreError::Fenced`]: the claim belongs to another process.
    fn release<'a>(&'a self, owner: &'a Owner, run: &'a RunId, fence: Fence) -> BoxFuture<'a, ()>;

    /// The lease on a thread, also if the run that has it is an orphan; `None` if the thread is free.
    fn lease<'a>(&'a self, owner: &'a Owner, thread: &'a ThreadId) -> BoxFuture<'a, Option<Lease>>;

    /// Live runs without a live claim, oldest first.
    fn orphans(&self, limit: usize) -> BoxFuture<'_, Vec<(RunKey, Run)>>;

    /// Live runs that a process has claimed, oldest first: those that it drives, and those of which it does not know, because
    /// the confirmation of their start or the record of their end was lost.
    fn claimed<'a>(&'a self, holder: &'a Holder) -> BoxFuture<'a, Vec<RunKey>>;

    /// Claims an orphan in order to end or continue it. `seen` is the fencing token with which it was read, so that one of
    /// several concurrent callers succeeds. The run keeps its status and its thread. A process may also claim a run of its
    /// own again. Commands to the run that were taken and have no reply can be taken again.
    ///
    /// # Errors
    ///
    /// * [`StoreError::Fenced`]: the run is not, or no longer, an orphan, or `holder` has no live lease.
    /// * [`StoreError::Ended`]: the run has ended.
    fn take_over<'a>(&'a self, run: &'a RunKey, seen: Fence, holder: &'a Holder) -> BoxFuture<'a, Run>;

    /// Appends events to a log, together with the changes they announce.
    ///
    /// Idempotent: an append with the same run, fencing token, numbers and bytes returns the first result, even after the
    /// claim was lost. An append without events cannot be recognised and is applied again.
    ///
    /// # Errors
    ///
    /// * [`StoreError::Fenced`]: the claim is not live or belongs to another process, or the run lacks the thread whose
    ///   state it changes.
    /// * [`StoreError::OutOfOrder`]: the events do not continue the log.
    /// * [`StoreError::Ended`]: the run has ended.
    /// * [`StoreError::Conflict`]: a change conflicts with the stored state, an answer or the status of the run.
    /// * [`StoreError::TooLarge`]: the append exceeds the size limit of one write.
    fn append(&self, append: Append) -> BoxFuture<'_, Appended>;

    /// Reads a log behind a cursor, or from the start: at least one event if there is one, and at most about `limit`
    /// bytes.
    fn read<'a>(
        &'a self,
        owner: &'a Owner,
        run: &'a RunId,
        after: Option<Seq>,
        limit: usize,
    ) -> BoxFuture<'a, Log>;

    /// Waits until the log of a run has the event `next`, or the run has ended or does not exist. May return earlier: the
    /// caller reads, and waits again if there is nothing new. With [`Seq::MAX`] it waits for the end of the run.
    fn changed<'a>(&'a self, run: &'a RunKey, next: Seq) -> BoxFuture<'a, ()>;

    /// Sends a command to the holder of a live run and waits for the result: the reply; or, if no holder has taken it within
    /// `patience`, its withdrawal, after which none will; or the end of the run. A command that was taken is waited for
    /// beyond `patience`, because it may have an effect: until its reply; until `patience` is over and the run has ended; or
    /// until it is open again and can be withdrawn.
    ///
    /// A caller that stops waiting leaves the command to its deadline.
    ///
    /// # Errors
    ///
    /// * [`StoreError::NotFound`]: the run does not exist, or was deleted meanwhile.
    /// * [`StoreError::TooLarge`]: the body exceeds the size limit of one write.
    fn send<'a>(&'a self, run: &'a RunKey, body: Text, patience: Duration) -> BoxFuture<'a, Delivery>;

    /// Waits for commands to live runs that `holder` has claimed, and takes them: all that are open, in the order in which
    /// they were sent. Each must get a reply, from [`Store::reply`] or in an append ([`Change::replies`](crate::Change)).
    fn inbox<'a>(&'a self, holder: &'a Holder) -> BoxFuture<'a, Vec<TakenCommand>>;

    /// Replies to a command that was taken under a claim. The first reply counts. Nothing happens if the command is gone, or if
    /// its run was taken over since: the next holder takes the command too.
    fn reply(&self, command: CommandId, fence: Fence, body: Text) -> BoxFuture<'_, ()>;

    /// Records that `holder` has readers of a run, for `ttl` from now; zero removes the record.
    fn note_readers<'a>(&'a self, run: &'a RunKey, holder: &'a Holder, ttl: Duration) -> BoxFuture<'a, ()>;

    /// True if a process other than `except` has readers of a run, by [`Store::note_readers`].
    fn has_readers<'a>(&'a self, run: &'a RunKey, except: &'a Holder) -> BoxFuture<'a, bool>;

    /// Ended runs whose exact log is older than `age`, oldest first.
    fn compactable(&self, age: Duration, limit: usize) -> BoxFuture<'_, Vec<RunKey>>;

    /// Replaces the log of an ended run by fewer events. The original numbers stay reserved: a cursor into them gets
    /// [`Log::NotRetained`]. A repetition replaces the compacted form.
    ///
    /// # Errors
    ///
    /// * [`StoreError::Live`]: the run has not ended.
    /// * [`StoreError::TooLarge`]: the events exceed the size limit of one write.
    fn compact<'a>(&'a self, owner: &'a Owner, run: &'a RunId, events: Vec<Bytes>) -> BoxFuture<'a, ()>;

    /// The pending items of a thread, oldest first.
    fn pending<'a>(
        &'a self,
        owner: &'a Owner,
        thread: &'a ThreadId,
        filter: PendingFilter,
    ) -> BoxFuture<'a, Vec<Pending>>;

    /// The open pending items of a kind in a tenant, of all its users and agents, oldest first, with the token of the next
    /// page.
    fn open_items<'a>(
        &'a self,
        tenant: &'a Tenant,
        kind: &'a str,
        after: Option<PageToken>,
        limit: usize,
    ) -> BoxFuture<'a, Page<OpenItem>>;

    /// Replaces the body of an open pending item if it is still `expected`: a compare-and-set.
    ///
    /// # Errors
    ///
    /// * [`StoreError::Expired`]: its deadline has passed.
    /// * [`Conflict::Item`](crate::Conflict::Item): it has another body, or an answer.
    fn replace_item<'a>(
        &'a self,
        owner: &'a Owner,
        thread: &'a ThreadId,
        expected: &'a Pending,
        body: Text,
    ) -> BoxFuture<'a, ()>;

    /// Records answers atomically, together with the id of the run that they start, and returns that id: `run`, or the
    /// id of the first caller if exactly these answers were recorded before.
    ///
    /// # Errors
    ///
    /// * [`StoreError::NotFound`]: a pending item is unknown.
    /// * [`StoreError::Expired`]: a pending item has expired.
    /// * [`Conflict::Answer`](crate::Conflict::Answer): an item has a different answer, or only some of the items were
    ///   answered before.
    fn answer<'a>(
        &'a self,
        owner: &'a Owner,
        thread: &'a ThreadId,
        answers: AnswerSet,
        run: &'a RunId,
    ) -> BoxFuture<'a, RunId>;

    /// Stores feedback on a thread.
    fn add_feedback<'a>(&'a self, owner: &'a Owner, new: NewFeedback) -> BoxFuture<'a, Feedback>;

    /// The feedback on a thread, oldest first.
    fn feedback<'a>(
        &'a self,
        owner: &'a Owner,
        thread: &'a ThreadId,
        after: Option<PageToken>,
        limit: usize,
    ) -> BoxFuture<'a, Page<Feedback>>;

    /// Adds an API key.
    ///
    /// # Errors
    ///
    /// [`Conflict::Key`](crate::Conflict::Key): the id is in use.
    fn add_key(&self, key: ApiKey) -> BoxFuture<'_, ()>;

    /// The API keys that have changed since a version; 0 is before all of them. A last use is no change.
    fn key_changes(&self, after: u64) -> BoxFuture<'_, KeyChanges>;

    /// Changes an API key and returns it.
    fn change_key<'a>(&'a self, id: &'a str, change: KeyChange) -> BoxFuture<'a, ApiKey>;

    /// Records when API keys were used.
    fn touch_keys(&self, used: Vec<(Text, Time)>) -> BoxFuture<'_, ()>;

    /// Applies retention, and finishes waiting runs whose pending items have all expired.
    fn retain(&self, retention: Retention) -> BoxFuture<'_, RetentionReport>;

    /// Health check: performs a write without effect.
    fn probe(&self) -> BoxFuture<'_, ()>;

    /// The longest interval between two health checks of an idle gateway. Long for a database that sleeps when nobody asks.
    fn probe_interval(&self) -> Duration {
        Duration::from_secs(600)
    }

    /// True if the store may sleep while nobody asks: an idle gateway then asks nothing but a health check per
    /// [`Store::probe_interval`].
    fn may_sleep(&self) -> bool {
        false
    }

    /// True if the data outlives this process, so that another one can go on with its runs.
    fn outlives_process(&self) -> bool {
        true
    }

    /// The server behind the store, if it has one.
    fn identity(&self) -> Option<ServerIdentity> {
        None
    }

    /// Waits until the store can be used for the first time. Only a store whose server could not be reached when it was opened
    /// waits here.
    ///
    /// # Errors
    ///
    /// Those of [`open`](crate::open()): the server was reached and the database cannot be used, or it was not reached in time.
    fn opened(&self) -> BoxFuture<'_, ()> {
        Box::pin(std::future::ready(Ok(())))
    }

    /// Lines about the store for operators, without secrets.
    fn notes(&self) -> Vec<String> {
        Vec::new()
    }

    /// True if any run is live, at whatever process.
    fn has_live_runs(&self) -> BoxFuture<'_, bool>;

    /// Counts the live runs and the stored data of a user, or of all users of a tenant.
    fn usage<'a>(&'a self, tenant: &'a Tenant, user: Option<&'a UserId>) -> BoxFuture<'a, Usage>;

    /// The size, without a look at the records: cheap enough to be asked every minute.
    fn size(&self) -> BoxFuture<'_, StoreSize>;

    /// Record counts and sizes.
    fn stats(&self) -> BoxFuture<'_, Stats>;

    /// Returns free space to the file system in small steps, so that other writes are not blocked.
    fn vacuum(&self) -> BoxFuture<'_, ()>;

    /// Checks the integrity of the stored data.
    ///
    /// # Errors
    ///
    /// [`StoreError::Corrupt`] with the findings.
    fn verify(&self) -> BoxFuture<'_, ()>;

    /// The thread after the place `after`, with all its data; for [`copy`](crate::copy()).
    ///
    /// # Errors
    ///
    /// [`StoreError::Unsupported`]: the backend does not outlive its process.
    fn export(&self, after: Option<PageToken>) -> BoxFuture<'_, Option<(PageToken, ThreadDump)>> {
        let _ = after;
        Box::pin(async { Err(StoreError::Unsupported { backend: "memory", what: "be copied" }) })
    }

    /// Adds a thread with all its data; for [`copy`](crate::copy()). Its runs have no claims, so that the live ones are orphans.
    ///
    /// # Errors
    ///
    /// [`StoreError::Unsupported`]: the backend does not outlive its process.
    fn import(&self, thread: ThreadDump) -> BoxFuture<'_, ()> {
        let _ = thread;
        Box::pin(async {
            Err(StoreError::Unsupported { backend: "memory", what: "be the target of a copy" })
        })
    }

    /// Writes a consistent copy to a new file while the store is in use.
    ///
    /// # Errors
    ///
    /// * [`StoreError::Unsupported`]: the backend has no file.
    /// * [`StoreError::Io`]: the file exists or cannot be written.
    fn backup<'a>(&'a self, to: &'a Path) -> BoxFuture<'a, ()>;
}
