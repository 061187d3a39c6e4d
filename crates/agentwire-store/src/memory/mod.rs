//! In-memory store: bounded, and empty again when the process ends.
//!
//! One lock guards plain tables. An append holds it for well below a microsecond, so that finer locks would cost more
//! than they save. Nothing is awaited under the lock.

mod api_keys;
mod log;
mod mailbox;
mod maintenance;
mod pending;
mod runs;
mod tables;
mod threads;

use std::{
    path::Path,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use agentwire_core::event::{RunId, ThreadId};
use bytes::Bytes;
use tokio::sync::Notify;

use crate::{
    clock::{Clock, SystemClock, Time},
    error::StoreError,
    model::{
        Acquire, AgentName, AnswerSet, ApiKey, Append, Appended, CommandId, Created, Delivery, Feedback,
        Fence, Holder, KeyChange, KeyChanges, Lease, Log, MoveReport, NewFeedback, NewRun, NewThread,
        OpenItem, Owner, Page, PageToken, Pending, PendingFilter, Retention, RetentionReport, Run, RunKey,
        Seq, Start, State, Stats, StoreSize, TakenCommand, Tenant, Text, Thread, ThreadChange, ThreadQuery,
        Usage, UserId,
    },
    store::{BoxFuture, Store},
};
use tables::Tables;

/// Size limits of a [`MemoryStore`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryLimits {
    /// Maximum size in bytes, including an estimated overhead per record. At the limit the store evicts the logs of
    /// ended runs, oldest first, then whole threads without live or waiting runs. With nothing left to evict, writes
    /// fail with [`StoreError::Full`].
    pub bytes: usize,
}

impl Default for MemoryLimits {
    /// 256 MiB: about 5,000 runs of 200 events, a modest share of a small machine.
    fn default() -> Self {
        Self { bytes: 256 << 20 }
    }
}

/// A [`Store`] in the memory of this process.
#[derive(Debug)]
pub struct MemoryStore {
    clock: Arc<dyn Clock>,
    tables: Mutex<Tables>,
    /// Notified after each change of a command, a claim or a status.
    changed: Notify,
    /// Notified after each change of a log, a claim or a status. Apart from `changed`: a gateway waits for commands all the
    /// time, and each event of each run would wake it.
    appended: Notify,
}

/// The longest sleep of a waiting sender, which the passing of a deadline does not wake.
const POLL: Duration = Duration::from_millis(50);

/// The longest sleep of other waiting calls.
const SLOW_POLL: Duration = Duration::from_secs(1);

impl Default for MemoryStore {
    fn default() -> Self {
        Self::new(MemoryLimits::default(), Arc::new(SystemClock::default()))
    }
}

impl MemoryStore {
    /// An empty store.
    #[must_use]
    pub fn new(limits: MemoryLimits, clock: Arc<dyn Clock>) -> Self {
        Self {
            clock,
            tables: Mutex::new(Tables::new(limits)),
            changed: Notify::new(),
            appended: Notify::new(),
        }
    }

    /// Runs `job` under the lock and returns its result as a ready future.
    fn with_tables<'a, T: Send + 'a>(
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

impl MemoryStore {
    /// As [`Self::with_tables`], and wakes all waiting calls.
    fn change<'a, T: Send + 'a>(
        &'a self,
        job: impl FnOnce(&mut Tables, Time) -> Result<T, StoreError>,
    ) -> BoxFuture<'a, T> {
        let result = self.with_tables(job);
        self.changed.notify_waiters();
        self.appended.notify_waiters();
        result
    }

    /// Waits until `job` has a result, which `signal` announces. `limit` bounds each sleep.
    async fn wait_for<T: Send>(
        &self,
        signal: &Notify,
        limit: Duration,
        mut job: impl FnMut(&mut Tables, Time) -> Result<Option<T>, StoreError> + Send,
    ) -> Result<T, StoreError> {
        loop {
            let notified = signal.notified();
            tokio::pin!(notified);
            notified.as_mut().enable();
            if let Some(result) = self.with_tables(&mut job).await? {
                return Ok(result);
            }
            let _ = tokio::time::timeout(limit, notified).await;
        }
    }
}

impl Store for MemoryStore {
    fn now(&self) -> Time {
        self.clock.now()
    }

    fn create_thread<'a>(&'a self, owner: &'a Owner, new: NewThread) -> BoxFuture<'a, Created<Thread>> {
        self.with_tables(|tables, now| tables.create_thread(owner, new, now))
    }

    fn thread<'a>(&'a self, owner: &'a Owner, thread: &'a ThreadId) -> BoxFuture<'a, Thread> {
        self.with_tables(|tables, _| Ok(tables.find_thread(owner, thread)?.record(thread)))
    }

    fn threads<'a>(
        &'a self,
        owner: &'a Owner,
        query: ThreadQuery,
        limit: usize,
    ) -> BoxFuture<'a, Page<Thread>> {
        self.with_tables(|tables, _| tables.list_threads(owner, &query, limit))
    }

    fn update_thread<'a>(
        &'a self,
        owner: &'a Owner,
        thread: &'a ThreadId,
        change: ThreadChange,
    ) -> BoxFuture<'a, Thread> {
        self.with_tables(|tables, now| tables.update_thread(owner, thread, change, now))
    }

    fn delete_thread<'a>(&'a self, owner: &'a Owner, thread: &'a ThreadId) -> BoxFuture<'a, ()> {
        self.change(|tables, _| tables.delete_thread(owner, thread))
    }

    fn upstream_scope<'a>(&'a self, owner: &'a Owner, thread: &'a ThreadId) -> BoxFuture<'a, Option<Text>> {
        self.with_tables(|tables, _| Ok(tables.upstream_scope(owner, thread)))
    }

    fn move_threads<'a>(&'a self, from: &'a AgentName, to: &'a AgentName) -> BoxFuture<'a, MoveReport> {
        self.with_tables(|tables, _| Ok(tables.move_threads(from, to)))
    }

    fn state<'a>(&'a self, owner: &'a Owner, thread: &'a ThreadId) -> BoxFuture<'a, State> {
        self.with_tables(|tables, _| Ok(tables.find_thread(owner, thread)?.state.clone()))
    }

    fn messages<'a>(&'a self, owner: &'a Owner, thread: &'a ThreadId) -> BoxFuture<'a, Option<Text>> {
        self.with_tables(|tables, _| Ok(tables.find_thread(owner, thread)?.messages.clone()))
    }

    fn start<'a>(&'a self, owner: &'a Owner, new: NewRun) -> BoxFuture<'a, Start> {
        self.change(|tables, now| tables.start(owner, new, now))
    }

    fn run<'a>(&'a self, owner: &'a Owner, run: &'a RunId) -> BoxFuture<'a, Run> {
        self.with_tables(|tables, _| Ok(tables.find_run(owner, run)?.run.clone()))
    }

    fn input<'a>(&'a self, owner: &'a Owner, run: &'a RunId) -> BoxFuture<'a, Option<Text>> {
        self.with_tables(|tables, _| Ok(tables.find_run(owner, run)?.input.clone()))
    }

    fn runs<'a>(
        &'a self,
        owner: &'a Owner,
        thread: &'a ThreadId,
        before: Option<PageToken>,
        limit: usize,
    ) -> BoxFuture<'a, Page<Run>> {
        self.with_tables(|tables, _| tables.list_runs(owner, thread, before, limit))
    }

    fn acquire<'a>(&'a self, owner: &'a Owner, run: &'a RunId, fence: Fence) -> BoxFuture<'a, Acquire> {
        self.change(|tables, now| tables.acquire(owner, run, fence, now))
    }

    fn renew<'a>(&'a self, holder: &'a Holder, ttl: Duration) -> BoxFuture<'a, bool> {
        self.with_tables(|tables, now| Ok(tables.renew(holder, ttl, now)))
    }

    fn retire<'a>(&'a self, holder: &'a Holder) -> BoxFuture<'a, ()> {
        self.change(|tables, _| {
            tables.retire(holder);
            Ok(())
        })
    }

    fn release<'a>(&'a self, owner: &'a Owner, run: &'a RunId, fence: Fence) -> BoxFuture<'a, ()> {
        self.change(|tables, _| tables.release(owner, run, fence))
    }

    fn lease<'a>(&'a self, owner: &'a Owner, thread: &'a ThreadId) -> BoxFuture<'a, Option<Lease>> {
        self.with_tables(|tables, now| tables.lease(owner, thread, now))
    }

    fn orphans(&self, limit: usize) -> BoxFuture<'_, Vec<(RunKey, Run)>> {
        self.with_tables(|tables, now| Ok(tables.orphans(limit, now)))
    }

    fn claimed<'a>(&'a self, holder: &'a Holder) -> BoxFuture<'a, Vec<RunKey>> {
        self.with_tables(|tables, _| Ok(tables.claimed(holder)))
    }

    fn take_over<'a>(&'a self, run: &'a RunKey, seen: Fence, holder: &'a Holder) -> BoxFuture<'a, Run> {
        self.change(|tables, now| tables.take_over(run, seen, holder, now))
    }

    fn append(&self, append: Append) -> BoxFuture<'_, Appended> {
        let has_events_only = append.change.status.is_none() && append.change.replies.is_empty();
        if !has_events_only {
            return self.change(|tables, now| tables.append(append, now));
        }
        let appended = self.with_tables(|tables, now| tables.append(append, now));
        self.appended.notify_waiters();
        appended
    }

    fn read<'a>(
        &'a self,
        owner: &'a Owner,
        run: &'a RunId,
        after: Option<Seq>,
        limit: usize,
    ) -> BoxFuture<'a, Log> {
        self.with_tables(|tables, _| Ok(tables.find_run(owner, run)?.read(after, limit)))
    }

    fn changed<'a>(&'a self, run: &'a RunKey, next: Seq) -> BoxFuture<'a, ()> {
        Box::pin(self.wait_for(&self.appended, SLOW_POLL, move |tables, _| {
            let is_waiting = tables
                .get_run(&run.owner, &run.run)
                .is_ok_and(|entry| entry.run.next_seq <= next && entry.run.status.is_live());
            Ok((!is_waiting).then_some(()))
        }))
    }

    fn send<'a>(&'a self, run: &'a RunKey, body: Text, patience: Duration) -> BoxFuture<'a, Delivery> {
        Box::pin(async move {
            let id = self.change(|tables, now| tables.send(run, body, patience, now)).await?;
            self.wait_for(&self.changed, POLL, move |tables, now| tables.result_of(id, now)).await
        })
    }

    fn inbox<'a>(&'a self, holder: &'a Holder) -> BoxFuture<'a, Vec<TakenCommand>> {
        Box::pin(self.wait_for(&self.changed, SLOW_POLL, move |tables, now| {
            let taken = tables.take_commands(holder, now);
            Ok((!taken.is_empty()).then_some(taken))
        }))
    }

    fn reply(&self, command: CommandId, fence: Fence, body: Text) -> BoxFuture<'_, ()> {
        self.change(|tables, _| {
            tables.reply(command, fence, body);
            Ok(())
        })
    }

    fn note_readers<'a>(&'a self, run: &'a RunKey, holder: &'a Holder, ttl: Duration) -> BoxFuture<'a, ()> {
        self.with_tables(|tables, now| tables.note_readers(run, holder, ttl, now))
    }

    fn has_readers<'a>(&'a self, run: &'a RunKey, except: &'a Holder) -> BoxFuture<'a, bool> {
        self.with_tables(|tables, now| Ok(tables.has_readers(run, except, now)))
    }

    fn compactable(&self, age: Duration, limit: usize) -> BoxFuture<'_, Vec<RunKey>> {
        self.with_tables(|tables, now| Ok(tables.compactable(now.before(age), limit)))
    }

    fn compact<'a>(&'a self, owner: &'a Owner, run: &'a RunId, events: Vec<Bytes>) -> BoxFuture<'a, ()> {
        self.with_tables(|tables, _| tables.compact(owner, run, events))
    }

    fn pending<'a>(
        &'a self,
        owner: &'a Owner,
        thread: &'a ThreadId,
        filter: PendingFilter,
    ) -> BoxFuture<'a, Vec<Pending>> {
        self.with_tables(|tables, now| Ok(tables.find_thread(owner, thread)?.pending(&filter, now)))
    }

    fn open_items<'a>(
        &'a self,
        tenant: &'a Tenant,
        kind: &'a str,
        after: Option<PageToken>,
        limit: usize,
    ) -> BoxFuture<'a, Page<OpenItem>> {
        self.with_tables(|tables, now| tables.open_items(tenant, kind, after, limit, now))
    }

    fn replace_item<'a>(
        &'a self,
        owner: &'a Owner,
        thread: &'a ThreadId,
        expected: &'a Pending,
        body: Text,
    ) -> BoxFuture<'a, ()> {
        self.with_tables(|tables, now| tables.replace_item(owner, thread, expected, body, now))
    }

    fn answer<'a>(
        &'a self,
        owner: &'a Owner,
        thread: &'a ThreadId,
        answers: AnswerSet,
        run: &'a RunId,
    ) -> BoxFuture<'a, RunId> {
        self.with_tables(|tables, now| tables.answer(owner, thread, answers, run, now))
    }

    fn add_feedback<'a>(&'a self, owner: &'a Owner, new: NewFeedback) -> BoxFuture<'a, Feedback> {
        self.with_tables(|tables, now| tables.add_feedback(owner, new, now))
    }

    fn feedback<'a>(
        &'a self,
        owner: &'a Owner,
        thread: &'a ThreadId,
        after: Option<PageToken>,
        limit: usize,
    ) -> BoxFuture<'a, Page<Feedback>> {
        self.with_tables(|tables, _| tables.list_feedback(owner, thread, after, limit))
    }

    fn add_key(&self, key: ApiKey) -> BoxFuture<'_, ()> {
        self.with_tables(|tables, _| tables.add_key(key))
    }

    fn key_changes(&self, after: u64) -> BoxFuture<'_, KeyChanges> {
        self.with_tables(|tables, _| Ok(tables.key_changes(after)))
    }

    fn change_key<'a>(&'a self, id: &'a str, change: KeyChange) -> BoxFuture<'a, ApiKey> {
        self.with_tables(|tables, now| tables.change_key(id, change, now))
    }

    fn touch_keys(&self, used: Vec<(Text, Time)>) -> BoxFuture<'_, ()> {
        self.with_tables(|tables, _| {
            tables.touch_keys(&used);
            Ok(())
        })
    }

    fn retain(&self, retention: Retention) -> BoxFuture<'_, RetentionReport> {
        self.with_tables(|tables, now| Ok(tables.retain(&retention, now)))
    }

    fn probe(&self) -> BoxFuture<'_, ()> {
        self.with_tables(|_, _| Ok(()))
    }

    fn probe_interval(&self) -> Duration {
        Duration::from_secs(2)
    }

    fn outlives_process(&self) -> bool {
        false
    }

    fn has_live_runs(&self) -> BoxFuture<'_, bool> {
        self.with_tables(|tables, _| Ok(tables.runs.values().any(|entry| entry.run.status.is_live())))
    }

    fn usage<'a>(&'a self, tenant: &'a Tenant, user: Option<&'a UserId>) -> BoxFuture<'a, Usage> {
        self.with_tables(|tables, _| Ok(tables.usage(tenant, user)))
    }

    fn size(&self) -> BoxFuture<'_, StoreSize> {
        self.with_tables(|tables, _| Ok(StoreSize { bytes: tables.bytes as u64, free_bytes: 0 }))
    }

    fn stats(&self) -> BoxFuture<'_, Stats> {
        self.with_tables(|tables, now| Ok(tables.stats(now)))
    }

    fn vacuum(&self) -> BoxFuture<'_, ()> {
        self.with_tables(|_, _| Ok(()))
    }

    fn verify(&self) -> BoxFuture<'_, ()> {
        self.with_tables(|_, _| Ok(()))
    }

    fn backup<'a>(&'a self, _to: &'a Path) -> BoxFuture<'a, ()> {
        self.with_tables(|_, _| {
            Err(StoreError::Unsupported { backend: "memory", what: "be copied to a file" })
        })
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::atomic::{AtomicUsize, Ordering},
        task::{Context, Wake, Waker},
    };

    use super::*;
    use crate::model::{Change, CommandReply, RunStatus, StatusChange};

    #[derive(Default)]
    struct Wakes(AtomicUsize);

    impl Wake for Wakes {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// A waiting call that was polled once, and the number of its wake-ups since.
    struct Waiting<'a, T> {
        future: BoxFuture<'a, T>,
        wakes: Arc<Wakes>,
    }

    impl<'a, T> Waiting<'a, T> {
        fn new(future: BoxFuture<'a, T>) -> Self {
            let mut waiting = Self { future, wakes: Arc::default() };
            assert!(waiting.is_pending());
            waiting
        }

        fn is_pending(&mut self) -> bool {
            let waker = Waker::from(self.wakes.clone());
            self.wakes.0.store(0, Ordering::SeqCst);
            self.future.as_mut().poll(&mut Context::from_waker(&waker)).is_pending()
        }

        fn is_woken(&self) -> bool {
            self.wakes.0.load(Ordering::SeqCst) > 0
        }
    }

    #[tokio::test]
    async fn an_event_wakes_its_readers_and_not_those_who_wait_for_commands() {
        let (store, holder) = (MemoryStore::default(), Holder::from("gateway"));
        let owner = Owner::new("tenant", "user", "agent");
        store.renew(&holder, Duration::from_secs(60)).await.unwrap();
        let started = store.start(&owner, NewRun::new("thread", "run", "agent", "gateway")).await.unwrap();
        let Start::Created(run) = started else { panic!("{started:?}") };
        let key = RunKey { owner: owner.clone(), run: run.run.clone() };
        let mut append = Append::new(owner, run.run, run.fence, Seq(0));
        append.events = vec![Bytes::from_static(b"{}")];

        let inbox = Waiting::new(store.inbox(&holder));
        let mut changed = Waiting::new(store.changed(&key, Seq(0)));
        store.append(append.clone()).await.unwrap();
        assert!(changed.is_woken() && !changed.is_pending());
        assert!(!inbox.is_woken());

        // A command is taken, and its reply arrives with an append.
        let mut sender = Waiting::new(store.send(&key, "stop".into(), Duration::from_secs(60)));
        assert!(inbox.is_woken());
        let taken = inbox.future.await.unwrap();
        (append.first_seq, append.change.replies) =
            (Seq(1), vec![CommandReply { id: taken[0].id, body: "done".into() }]);
        store.append(append.clone()).await.unwrap();
        assert!(sender.is_woken() && !sender.is_pending());

        // The end of a run answers a command that nobody has taken.
        let mut sender = Waiting::new(store.send(&key, "stop".into(), Duration::from_secs(60)));
        let mut changed = Waiting::new(store.changed(&key, Seq(3)));
        append.first_seq = Seq(2);
        append.change = Change::default();
        append.change.status = Some(StatusChange::to(RunStatus::Finished));
        store.append(append).await.unwrap();
        assert!(changed.is_woken() && !changed.is_pending());
        assert!(sender.is_woken() && !sender.is_pending());
    }
}
