//! The one seam between a gateway and what it remembers.

use std::{future::Future, path::Path, pin::Pin, time::Duration};

use agentwire_core::event::{RunId, ThreadId};
use bytes::Bytes;

use crate::{
    clock::Time,
    error::StoreError,
    model::{
        Acquire, Answering, Append, Appended, Claim, Created, Feedback, Fence, Holder, Lease, Log,
        NewFeedback, NewRun, NewThread, Owner, Page, PageToken, Pending, Retained, Retention, Run, RunKey,
        Seq, Start, State, Stats, Text, Thread, ThreadChange, ThreadQuery, Which,
    },
};

/// What every method returns: a boxed future, so that a store can be a `dyn Store`.
///
/// Written by hand because the signatures then say what they are, and one alias is all it takes.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, StoreError>> + Send + 'a>>;

/// A place for threads, runs, logs, claims, pending items and feedback.
///
/// # Cancel safety
///
/// A future that is dropped may or may not have had its effect. Every write can be repeated: `start`, `append`
/// and `answer` recognise what was done before, the others end in the same place.
///
/// # Errors
///
/// What is not there, or is not the owner's, is [`StoreError::NotFound`] in every method that names it. Any
/// method may fail with [`StoreError::is_fault`] errors; the store goes on after them.
pub trait Store: Send + Sync + 'static {
    /// The time by the store's clock.
    fn now(&self) -> Time;

    /// Makes a thread, unless there is one with this id.
    fn create_thread<'a>(&'a self, owner: &'a Owner, new: NewThread) -> BoxFuture<'a, Created<Thread>>;

    /// A thread without its large parts.
    fn thread<'a>(&'a self, owner: &'a Owner, thread: &'a ThreadId) -> BoxFuture<'a, Thread>;

    /// An owner's threads, the newest first. Newest means made last: this order does not change under someone
    /// who turns pages, so that no thread is missed or seen twice.
    fn threads<'a>(
        &'a self,
        owner: &'a Owner,
        query: ThreadQuery,
        limit: usize,
    ) -> BoxFuture<'a, Page<Thread>>;

    /// Changes a thread from outside a run, all or nothing.
    ///
    /// # Errors
    ///
    /// [`crate::Conflict::State`] when the state is not the expected one any more; [`crate::Conflict::Leased`] when it
    /// is a run's to change, which has read it and will write it.
    fn update_thread<'a>(
        &'a self,
        owner: &'a Owner,
        thread: &'a ThreadId,
        change: ThreadChange,
    ) -> BoxFuture<'a, Thread>;

    /// Deletes a thread and everything of it, live runs included: whoever writes to one finds it gone.
    fn delete_thread<'a>(&'a self, owner: &'a Owner, thread: &'a ThreadId) -> BoxFuture<'a, ()>;

    /// A thread's state.
    fn state<'a>(&'a self, owner: &'a Owner, thread: &'a ThreadId) -> BoxFuture<'a, State>;

    /// A thread's messages as JSON, once some have been set.
    fn messages<'a>(&'a self, owner: &'a Owner, thread: &'a ThreadId) -> BoxFuture<'a, Option<Text>>;

    /// Starts a run, unless there is one with this id, in one atomic step: of any number of callers with one id,
    /// one creates it and the others get what it created. Makes the thread if need be; records the answers that come
    /// with it.
    ///
    /// # Errors
    ///
    /// Those of [`Store::answer`], when it answers something.
    fn start<'a>(&'a self, owner: &'a Owner, new: NewRun) -> BoxFuture<'a, Start>;

    /// What is known about a run.
    fn run<'a>(&'a self, owner: &'a Owner, run: &'a RunId) -> BoxFuture<'a, Run>;

    /// The request that started a run, as JSON; absent once retention has dropped it.
    fn input<'a>(&'a self, owner: &'a Owner, run: &'a RunId) -> BoxFuture<'a, Option<Text>>;

    /// The runs of a thread, the newest first.
    fn runs<'a>(
        &'a self,
        owner: &'a Owner,
        thread: &'a ThreadId,
        before: Option<PageToken>,
        limit: usize,
    ) -> BoxFuture<'a, Page<Run>>;

    /// Asks for the thread of a queued run. It is granted when no other run has a live lease on it and nobody who
    /// waits with a live claim came earlier. Then the run is `running` under a new fence, and a run whose expired lease was taken
    /// is an orphan.
    ///
    /// # Errors
    ///
    /// [`StoreError::Fenced`] when `fence` is not that of the run's claim, [`StoreError::Ended`].
    fn acquire<'a>(
        &'a self,
        owner: &'a Owner,
        run: &'a RunId,
        fence: Fence,
        ttl: Duration,
    ) -> BoxFuture<'a, Acquire>;

    /// Extends a claim to `ttl` from now. One that has expired and that nobody took over comes back to life: the
    /// fence has kept everyone else out.
    ///
    /// # Errors
    ///
    /// [`StoreError::Fenced`] when it is somebody else's by now, [`StoreError::Ended`].
    fn renew<'a>(
        &'a self,
        owner: &'a Owner,
        run: &'a RunId,
        fence: Fence,
        ttl: Duration,
    ) -> BoxFuture<'a, Lease>;

    /// Gives a claim up without ending the run, which is then an orphan. Twice is as good as once.
    ///
    /// # Errors
    ///
    /// [`StoreError::Fenced`] when it is somebody else's: nobody frees what is not theirs.
    fn release<'a>(&'a self, owner: &'a Owner, run: &'a RunId, fence: Fence) -> BoxFuture<'a, ()>;

    /// Who has a thread; also when the lease has expired and nobody took it over yet.
    fn lease<'a>(&'a self, owner: &'a Owner, thread: &'a ThreadId) -> BoxFuture<'a, Option<Lease>>;

    /// Live runs that nobody writes to any more, oldest first: their claim has expired, was given up or taken
    /// away, or is that of `dead`.
    fn orphans<'a>(&'a self, dead: Option<&'a Holder>, limit: usize) -> BoxFuture<'a, Vec<(RunKey, Run)>>;

    /// Claims an orphan, to give it an ending. `seen` is the fence under which it was found, so that of several
    /// who try one wins. It also gets its thread if that is free.
    ///
    /// # Errors
    ///
    /// [`StoreError::Fenced`] when it is no orphan (any more), [`StoreError::Ended`].
    fn take_over<'a>(
        &'a self,
        run: &'a RunKey,
        seen: Fence,
        dead: Option<&'a Holder>,
        claim: Claim,
    ) -> BoxFuture<'a, Run>;

    /// Continues a log, with what changes along with it.
    ///
    /// The same append again (run, fence, numbers and bytes) is answered as the first one was, even after the claim was
    /// lost. An append without events has nothing to be recognised by: repeated, it is done again.
    ///
    /// # Errors
    ///
    /// [`StoreError::Fenced`], [`StoreError::OutOfOrder`], [`StoreError::Ended`], [`StoreError::Conflict`], [`StoreError::TooLarge`].
    fn append(&self, append: Append) -> BoxFuture<'_, Appended>;

    /// Reads a log behind a cursor, or from the start: at least one event if there is one, and no more than about
    /// `limit` bytes.
    fn read<'a>(
        &'a self,
        owner: &'a Owner,
        run: &'a RunId,
        after: Option<Seq>,
        limit: usize,
    ) -> BoxFuture<'a, Log>;

    /// Ended runs whose exact log is older than `age`, oldest first.
    fn compactable(&self, age: Duration, limit: usize) -> BoxFuture<'_, Vec<RunKey>>;

    /// Replaces an ended run's log by fewer events. Its numbers are remembered: a cursor into it is answered as not
    /// retained. Doing it again replaces the compacted form.
    ///
    /// # Errors
    ///
    /// [`StoreError::Live`], [`StoreError::TooLarge`].
    fn compact<'a>(&'a self, owner: &'a Owner, run: &'a RunId, events: Vec<Bytes>) -> BoxFuture<'a, ()>;

    /// What a thread waits for, oldest first.
    fn pending<'a>(
        &'a self,
        owner: &'a Owner,
        thread: &'a ThreadId,
        which: Which,
    ) -> BoxFuture<'a, Vec<Pending>>;

    /// Records answers, all or none, together with the run that they start, and returns that run: `run`, or
    /// the one that the first caller named, if exactly these answers were given before.
    ///
    /// # Errors
    ///
    /// [`StoreError::NotFound`] when an item is not known, [`StoreError::Expired`], [`crate::Conflict::Answer`] when one
    /// has another answer, or some were answered before and others not.
    fn answer<'a>(
        &'a self,
        owner: &'a Owner,
        thread: &'a ThreadId,
        answering: Answering,
        run: &'a RunId,
    ) -> BoxFuture<'a, RunId>;

    /// Keeps what somebody says about a thread.
    fn add_feedback<'a>(&'a self, owner: &'a Owner, new: NewFeedback) -> BoxFuture<'a, Feedback>;

    /// What was said about a thread, oldest first.
    fn feedback<'a>(
        &'a self,
        owner: &'a Owner,
        thread: &'a ThreadId,
        after: Option<PageToken>,
        limit: usize,
    ) -> BoxFuture<'a, Page<Feedback>>;

    /// Gives up what need not be kept, and finishes waiting runs whose pending items have all expired.
    fn retain(&self, retention: Retention) -> BoxFuture<'_, Retained>;

    /// Whether the store can be written now: writes something that changes nothing.
    fn probe(&self) -> BoxFuture<'_, ()>;

    /// The size of the store.
    fn stats(&self) -> BoxFuture<'_, Stats>;

    /// Gives free space back to the system, bit by bit, so that others can write meanwhile.
    fn vacuum(&self) -> BoxFuture<'_, ()>;

    /// Looks for damage.
    ///
    /// # Errors
    ///
    /// [`StoreError::Corrupt`] with what was found.
    fn verify(&self) -> BoxFuture<'_, ()>;

    /// Writes a consistent copy to a new file while the store is in use.
    fn backup<'a>(&'a self, to: &'a Path) -> BoxFuture<'a, ()>;
}
