//! The [`Store`] trait.

use std::{future::Future, path::Path, pin::Pin, time::Duration};

use agentwire_core::event::{RunId, ThreadId};
use bytes::Bytes;

use crate::{
    clock::Time,
    error::StoreError,
    model::{
        Acquire, AgentName, AnswerSet, Append, Appended, Claim, Created, Feedback, Fence, Holder, Lease, Log,
        MoveReport, NewFeedback, NewRun, NewThread, Owner, Page, PageToken, Pending, PendingFilter,
        Retention, RetentionReport, Run, RunKey, Seq, Start, State, Stats, Text, Thread, ThreadChange,
        ThreadQuery,
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
    /// * [`Conflict::State`](crate::Conflict::State): the state has changed since the caller read it.
    /// * [`Conflict::Leased`](crate::Conflict::Leased): a run has the thread; it has read the state and will write it.
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
    /// in the request.
    ///
    /// # Errors
    ///
    /// Those of [`Store::answer`], when the request contains answers.
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

    /// Requests the thread for a queued run. Granted when no other run has a live lease on the thread and no run with
    /// a live claim was queued earlier. The run is then `running` under a new fencing token; a run whose expired lease
    /// was replaced is an orphan.
    ///
    /// # Errors
    ///
    /// * [`StoreError::Fenced`]: `fence` is not the token of the run's claim.
    /// * [`StoreError::Ended`]: the run has ended.
    /// * [`Conflict::Status`](crate::Conflict::Status): the run is not queued.
    fn acquire<'a>(
        &'a self,
        owner: &'a Owner,
        run: &'a RunId,
        fence: Fence,
        ttl: Duration,
    ) -> BoxFuture<'a, Acquire>;

    /// Extends a claim to `ttl` from now. An expired claim that no process has taken over becomes live again: the
    /// fencing token has excluded every other writer.
    ///
    /// # Errors
    ///
    /// * [`StoreError::Fenced`]: another process has claimed the run since, or the claim was released.
    /// * [`StoreError::Ended`]: the run has ended.
    fn renew<'a>(
        &'a self,
        owner: &'a Owner,
        run: &'a RunId,
        fence: Fence,
        ttl: Duration,
    ) -> BoxFuture<'a, Lease>;

    /// Releases a claim without ending the run, which becomes an orphan. Idempotent.
    ///
    /// # Errors
    ///
    /// [`StoreError::Fenced`]: the claim belongs to another process.
    fn release<'a>(&'a self, owner: &'a Owner, run: &'a RunId, fence: Fence) -> BoxFuture<'a, ()>;

    /// The lease on a thread, including an expired one that no run has replaced yet.
    fn lease<'a>(&'a self, owner: &'a Owner, thread: &'a ThreadId) -> BoxFuture<'a, Option<Lease>>;

    /// Live runs without a writer, oldest first: their claim has expired, was released or replaced, or is held by the
    /// dead process `dead`.
    fn orphans<'a>(&'a self, dead: Option<&'a Holder>, limit: usize) -> BoxFuture<'a, Vec<(RunKey, Run)>>;

    /// Claims an orphan in order to end it. `seen` is the fencing token with which [`Store::orphans`] returned it, so
    /// that one of several concurrent callers succeeds. The run also gets its thread if that is free.
    ///
    /// # Errors
    ///
    /// * [`StoreError::Fenced`]: the run is not, or no longer, an orphan.
    /// * [`StoreError::Ended`]: the run has ended.
    fn take_over<'a>(
        &'a self,
        run: &'a RunKey,
        seen: Fence,
        dead: Option<&'a Holder>,
        claim: Claim,
    ) -> BoxFuture<'a, Run>;

    /// Appends events to a log, together with the changes they announce.
    ///
    /// Idempotent: an append with the same run, fencing token, numbers and bytes returns the first result, even after the
    /// claim was lost. An append without events cannot be recognised and is applied again.
    ///
    /// # Errors
    ///
    /// * [`StoreError::Fenced`]: the claim has expired or belongs to another process, or the run lacks the thread whose
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

    /// Applies retention, and finishes waiting runs whose pending items have all expired.
    fn retain(&self, retention: Retention) -> BoxFuture<'_, RetentionReport>;

    /// Health check: performs a write without effect.
    fn probe(&self) -> BoxFuture<'_, ()>;

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

    /// Writes a consistent copy to a new file while the store is in use.
    ///
    /// # Errors
    ///
    /// * [`StoreError::Unsupported`]: the backend has no file.
    /// * [`StoreError::Io`]: the file exists or cannot be written.
    fn backup<'a>(&'a self, to: &'a Path) -> BoxFuture<'a, ()>;
}
