//! A store whose operations fail on demand.

use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use tokio::sync::Mutex;

use agentwire_store::*;

/// Forwards every operation to another store, except those that are set to fail.
pub(crate) struct FaultyStore {
    inner: Arc<dyn Store>,
    /// Whether appends fail.
    pub(crate) appends_fail: AtomicBool,
    /// True if appends are carried out, but their callers are told that they failed.
    pub(crate) appends_have_no_answer: AtomicBool,
    /// True if renewals of leases fail.
    pub(crate) renewals_fail: AtomicBool,
    /// True if all operations fail.
    pub(crate) all_fails: AtomicBool,
    /// No operation goes on while this is locked.
    pub(crate) calls: Mutex<()>,
    /// No run starts while this is locked.
    pub(crate) starts: Mutex<()>,
    /// Number of requested starts, including those that wait for the lock.
    pub(crate) starting: AtomicUsize,
}

impl FaultyStore {
    pub(crate) fn new(inner: Arc<dyn Store>) -> Arc<Self> {
        Arc::new(Self {
            inner,
            appends_fail: AtomicBool::new(false),
            appends_have_no_answer: AtomicBool::new(false),
            renewals_fail: AtomicBool::new(false),
            all_fails: AtomicBool::new(false),
            calls: Mutex::new(()),
            starts: Mutex::new(()),
            starting: AtomicUsize::new(0),
        })
    }

    async fn inner(&self) -> Result<&Arc<dyn Store>, StoreError> {
        let _goes_on = self.calls.lock().await;
        if self.all_fails.load(Ordering::SeqCst) { Err(StoreError::Full) } else { Ok(&self.inner) }
    }
}

macro_rules! forward {
    ($($name:ident($($arg:ident: $type:ty),*) -> $out:ty;)+) => {
        $(fn $name<'a>(&'a self, $($arg: $type),*) -> BoxFuture<'a, $out> {
            Box::pin(async move { self.inner().await?.$name($($arg),*).await })
        })+
    };
}

impl Store for FaultyStore {
    fn now(&self) -> Time {
        self.inner.now()
    }

    fn append(&self, append: Append) -> BoxFuture<'_, Appended> {
        if self.appends_fail.load(Ordering::SeqCst) {
            return Box::pin(std::future::ready(Err(StoreError::Full)));
        }
        Box::pin(async move {
            let appended = self.inner().await?.append(append).await;
            let has_answer = !self.appends_have_no_answer.load(Ordering::SeqCst);
            if has_answer || appended.is_err() { appended } else { Err(StoreError::Full) }
        })
    }

    fn start<'a>(&'a self, owner: &'a Owner, new: NewRun) -> BoxFuture<'a, Start> {
        Box::pin(async move {
            self.starting.fetch_add(1, Ordering::SeqCst);
            let _may_start = self.starts.lock().await;
            self.inner().await?.start(owner, new).await
        })
    }

    fn probe_interval(&self) -> Duration {
        Duration::ZERO
    }

    fn outlives_process(&self) -> bool {
        self.inner.outlives_process()
    }

    fn renew<'a>(&'a self, holder: &'a Holder, ttl: Duration) -> BoxFuture<'a, bool> {
        if self.renewals_fail.load(Ordering::SeqCst) {
            return Box::pin(std::future::ready(Err(StoreError::Full)));
        }
        Box::pin(async move { self.inner().await?.renew(holder, ttl).await })
    }

    fn probe(&self) -> BoxFuture<'_, ()> {
        if self.appends_fail.load(Ordering::SeqCst) {
            return Box::pin(std::future::ready(Err(StoreError::Full)));
        }
        Box::pin(async move { self.inner().await?.probe().await })
    }

    forward! {
        claimed(holder: &'a Holder) -> Vec<RunKey>;
        open_items(tenant: &'a Tenant, kind: &'a str, after: Option<PageToken>, limit: usize) -> Page<OpenItem>;
        replace_item(owner: &'a Owner, thread: &'a ThreadId, expected: &'a Pending, body: Text) -> ();
        add_key(key: ApiKey) -> ();
        key_changes(after: u64) -> KeyChanges;
        change_key(id: &'a str, change: KeyChange) -> ApiKey;
        touch_keys(used: Vec<(Text, Time)>) -> ();
        create_thread(owner: &'a Owner, new: NewThread) -> Created<Thread>;
        thread(owner: &'a Owner, thread: &'a ThreadId) -> Thread;
        threads(owner: &'a Owner, query: ThreadQuery, limit: usize) -> Page<Thread>;
        update_thread(owner: &'a Owner, thread: &'a ThreadId, change: ThreadChange) -> Thread;
        delete_thread(owner: &'a Owner, thread: &'a ThreadId) -> ();
        upstream_scope(owner: &'a Owner, thread: &'a ThreadId) -> Option<Text>;
        move_threads(from: &'a AgentName, to: &'a AgentName) -> MoveReport;
        state(owner: &'a Owner, thread: &'a ThreadId) -> State;
        messages(owner: &'a Owner, thread: &'a ThreadId) -> Option<Text>;
        run(owner: &'a Owner, run: &'a RunId) -> Run;
        input(owner: &'a Owner, run: &'a RunId) -> Option<Text>;
        runs(owner: &'a Owner, thread: &'a ThreadId, before: Option<PageToken>, limit: usize) -> Page<Run>;
        acquire(owner: &'a Owner, run: &'a RunId, fence: Fence) -> Acquire;
        has_live_runs() -> bool;
        retire(holder: &'a Holder) -> ();
        release(owner: &'a Owner, run: &'a RunId, fence: Fence) -> ();
        lease(owner: &'a Owner, thread: &'a ThreadId) -> Option<Lease>;
        orphans(limit: usize) -> Vec<(RunKey, Run)>;
        take_over(run: &'a RunKey, seen: Fence, holder: &'a Holder) -> Run;
        changed(run: &'a RunKey, next: Seq) -> ();
        send(run: &'a RunKey, body: Text, patience: Duration) -> Delivery;
        inbox(holder: &'a Holder) -> Vec<TakenCommand>;
        reply(command: CommandId, fence: Fence, body: Text) -> ();
        note_readers(run: &'a RunKey, holder: &'a Holder, ttl: Duration) -> ();
        has_readers(run: &'a RunKey, except: &'a Holder) -> bool;
        read(owner: &'a Owner, run: &'a RunId, after: Option<Seq>, limit: usize) -> Log;
        compactable(age: Duration, limit: usize) -> Vec<RunKey>;
        compact(owner: &'a Owner, run: &'a RunId, events: Vec<bytes::Bytes>) -> ();
        pending(owner: &'a Owner, thread: &'a ThreadId, which: PendingFilter) -> Vec<Pending>;
        answer(owner: &'a Owner, thread: &'a ThreadId, answering: AnswerSet, run: &'a RunId) -> RunId;
        add_feedback(owner: &'a Owner, new: NewFeedback) -> Feedback;
        feedback(owner: &'a Owner, thread: &'a ThreadId, after: Option<PageToken>, limit: usize) -> Page<Feedback>;
        retain(retention: Retention) -> RetentionReport;
        usage(tenant: &'a Tenant, user: Option<&'a UserId>) -> Usage;
        size() -> StoreSize;
        stats() -> Stats;
        vacuum() -> ();
        verify() -> ();
        backup(to: &'a Path) -> ();
    }
}
