//! A store that forgets everything when the process ends.
//!
//! One lock over plain tables: an append holds it for well below a microsecond, so that finer locks would cost more
//! than they save. Nothing is awaited under it.

mod log;
mod pending;
mod room;
mod runs;
mod table;
mod threads;

use std::{
    path::Path,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use agentwire_core::event::{RunId, ThreadId};
use bytes::Bytes;

use crate::{
    clock::{Clock, SystemClock, Time},
    error::StoreError,
    model::{
        Acquire, Answering, Append, Appended, Claim, Created, Feedback, Fence, Holder, Lease, Log,
        NewFeedback, NewRun, NewThread, Owner, Page, PageToken, Pending, Retained, Retention, Run, RunKey,
        Seq, Start, State, Stats, Text, Thread, ThreadChange, ThreadQuery, Which,
    },
    store::{BoxFuture, Store},
};
use table::Tables;

/// How much a [`MemoryStore`] may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryLimits {
    /// Bytes, records counted with their overhead. When more is needed, the store forgets: first the logs of ended
    /// runs, the oldest first, then whole threads that nothing happens in. When nothing can be forgotten, it is full.
    pub bytes: usize,
}

impl Default for MemoryLimits {
    /// 256 MiB: about 5,000 runs of 200 events, on a machine that has other things to do as well.
    fn default() -> Self {
        Self { bytes: 256 << 20 }
    }
}

/// A store in the memory of this process.
#[derive(Debug)]
pub struct MemoryStore {
    clock: Arc<dyn Clock>,
    tables: Mutex<Tables>,
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::new(MemoryLimits::default(), Arc::new(SystemClock::default()))
    }
}

impl MemoryStore {
    /// An empty store.
    #[must_use]
    pub fn new(limits: MemoryLimits, clock: Arc<dyn Clock>) -> Self {
        Self { clock, tables: Mutex::new(Tables::new(limits)) }
    }

    /// Does something under the lock, and gives the result as a future that is ready.
    fn with<'a, T: Send + 'a>(
        &'a self,
        job: impl FnOnce(&mut Tables, Time) -> Result<T, StoreError>,
    ) -> BoxFuture<'a, T> {
        let result = {
            let mut tables = self.tables.lock().unwrap_or_else(PoisonError::into_inner);
            job(&mut tables, self.clock.now())
        };
        Box::pin(std::future::ready(result))
    }
}

impl Store for MemoryStore {
    fn now(&self) -> Time {
        self.clock.now()
    }

    fn create_thread<'a>(&'a self, owner: &'a Owner, new: NewThread) -> BoxFuture<'a, Created<Thread>> {
        self.with(|tables, now| tables.create_thread(owner, new, now))
    }

    fn thread<'a>(&'a self, owner: &'a Owner, thread: &'a ThreadId) -> BoxFuture<'a, Thread> {
        self.with(|tables, _| Ok(tables.find_thread(owner, thread)?.record(thread)))
    }

    fn threads<'a>(
        &'a self,
        owner: &'a Owner,
        query: ThreadQuery,
        limit: usize,
    ) -> BoxFuture<'a, Page<Thread>> {
        self.with(|tables, _| tables.list_threads(owner, &query, limit))
    }

    fn update_thread<'a>(
        &'a self,
        owner: &'a Owner,
        thread: &'a ThreadId,
        change: ThreadChange,
    ) -> BoxFuture<'a, Thread> {
        self.with(|tables, now| tables.update_thread(owner, thread, change, now))
    }

    fn delete_thread<'a>(&'a self, owner: &'a Owner, thread: &'a ThreadId) -> BoxFuture<'a, ()> {
        self.with(|tables, _| tables.delete_thread(owner, thread))
    }

    fn state<'a>(&'a self, owner: &'a Owner, thread: &'a ThreadId) -> BoxFuture<'a, State> {
        self.with(|tables, _| Ok(tables.find_thread(owner, thread)?.state.clone()))
    }

    fn messages<'a>(&'a self, owner: &'a Owner, thread: &'a ThreadId) -> BoxFuture<'a, Option<Text>> {
        self.with(|tables, _| Ok(tables.find_thread(owner, thread)?.messages.clone()))
    }

    fn start<'a>(&'a self, owner: &'a Owner, new: NewRun) -> BoxFuture<'a, Start> {
        self.with(|tables, now| tables.start(owner, new, now))
    }

    fn run<'a>(&'a self, owner: &'a Owner, run: &'a RunId) -> BoxFuture<'a, Run> {
        self.with(|tables, _| Ok(tables.find_run(owner, run)?.run.clone()))
    }

    fn input<'a>(&'a self, owner: &'a Owner, run: &'a RunId) -> BoxFuture<'a, Option<Text>> {
        self.with(|tables, _| Ok(tables.find_run(owner, run)?.input.clone()))
    }

    fn runs<'a>(
        &'a self,
        owner: &'a Owner,
        thread: &'a ThreadId,
        before: Option<PageToken>,
        limit: usize,
    ) -> BoxFuture<'a, Page<Run>> {
        self.with(|tables, _| tables.list_runs(owner, thread, before, limit))
    }

    fn acquire<'a>(
        &'a self,
        owner: &'a Owner,
        run: &'a RunId,
        fence: Fence,
        ttl: Duration,
    ) -> BoxFuture<'a, Acquire> {
        self.with(|tables, now| tables.acquire(owner, run, fence, ttl, now))
    }

    fn renew<'a>(
        &'a self,
        owner: &'a Owner,
        run: &'a RunId,
        fence: Fence,
        ttl: Duration,
    ) -> BoxFuture<'a, Lease> {
        self.with(|tables, now| tables.renew(owner, run, fence, ttl, now))
    }

    fn release<'a>(&'a self, owner: &'a Owner, run: &'a RunId, fence: Fence) -> BoxFuture<'a, ()> {
        self.with(|tables, _| tables.release(owner, run, fence))
    }

    fn lease<'a>(&'a self, owner: &'a Owner, thread: &'a ThreadId) -> BoxFuture<'a, Option<Lease>> {
        self.with(|tables, now| tables.lease(owner, thread, now))
    }

    fn orphans<'a>(&'a self, dead: Option<&'a Holder>, limit: usize) -> BoxFuture<'a, Vec<(RunKey, Run)>> {
        self.with(|tables, now| Ok(tables.orphans(dead, limit, now)))
    }

    fn take_over<'a>(
        &'a self,
        run: &'a RunKey,
        seen: Fence,
        dead: Option<&'a Holder>,
        claim: Claim,
    ) -> BoxFuture<'a, Run> {
        self.with(|tables, now| tables.take_over(run, seen, dead, claim, now))
    }

    fn append(&self, append: Append) -> BoxFuture<'_, Appended> {
        self.with(|tables, now| tables.append(append, now))
    }

    fn read<'a>(
        &'a self,
        owner: &'a Owner,
        run: &'a RunId,
        after: Option<Seq>,
        limit: usize,
    ) -> BoxFuture<'a, Log> {
        self.with(|tables, _| Ok(tables.find_run(owner, run)?.read(after, limit)))
    }

    fn compactable(&self, age: Duration, limit: usize) -> BoxFuture<'_, Vec<RunKey>> {
        self.with(|tables, now| Ok(tables.compactable(now.before(age), limit)))
    }

    fn compact<'a>(&'a self, owner: &'a Owner, run: &'a RunId, events: Vec<Bytes>) -> BoxFuture<'a, ()> {
        self.with(|tables, _| tables.compact(owner, run, events))
    }

    fn pending<'a>(
        &'a self,
        owner: &'a Owner,
        thread: &'a ThreadId,
        which: Which,
    ) -> BoxFuture<'a, Vec<Pending>> {
        self.with(|tables, now| Ok(tables.find_thread(owner, thread)?.pending(&which, now)))
    }

    fn answer<'a>(
        &'a self,
        owner: &'a Owner,
        thread: &'a ThreadId,
        answering: Answering,
        run: &'a RunId,
    ) -> BoxFuture<'a, RunId> {
        self.with(|tables, now| tables.answer(owner, thread, answering, run, now))
    }

    fn add_feedback<'a>(&'a self, owner: &'a Owner, new: NewFeedback) -> BoxFuture<'a, Feedback> {
        self.with(|tables, now| tables.add_feedback(owner, new, now))
    }

    fn feedback<'a>(
        &'a self,
        owner: &'a Owner,
        thread: &'a ThreadId,
        after: Option<PageToken>,
        limit: usize,
    ) -> BoxFuture<'a, Page<Feedback>> {
        self.with(|tables, _| tables.list_feedback(owner, thread, after, limit))
    }

    fn retain(&self, retention: Retention) -> BoxFuture<'_, Retained> {
        self.with(|tables, now| Ok(tables.retain(&retention, now)))
    }

    fn probe(&self) -> BoxFuture<'_, ()> {
        self.with(|_, _| Ok(()))
    }

    fn stats(&self) -> BoxFuture<'_, Stats> {
        self.with(|tables, now| Ok(tables.stats(now)))
    }

    fn vacuum(&self) -> BoxFuture<'_, ()> {
        self.with(|_, _| Ok(()))
    }

    fn verify(&self) -> BoxFuture<'_, ()> {
        self.with(|_, _| Ok(()))
    }

    fn backup<'a>(&'a self, _to: &'a Path) -> BoxFuture<'a, ()> {
        self.with(|_, _| Err(StoreError::Unsupported { backend: "memory", what: "be copied to a file" }))
    }
}
