//! Group commit: appends without changes of all runs in one statement.
//!
//! An append is sent at once when nothing is in flight and gathered with others while two statements are. A run is never
//! in two of them.

use std::{
    collections::{HashSet, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::sync::{Notify, Semaphore, oneshot};

use super::{
    connect::{Database, Lane, clock},
    server::timeline,
    value::{Day, Value, get, int},
    wake::Hub,
};
use crate::{
    error::StoreError,
    model::{Appended, Durability, Seq},
};

/// Statements in flight at once, each on its own connection.
const WORKERS: usize = 2;

/// Capacity of the queue in KiB; further callers wait for space. Equal to the maximum size of one write, so that the
/// largest fits. Each append counts as at least one KiB, which bounds their number too.
const CAPACITY_KIB: u32 = (crate::rules::MAX_WRITE_BYTES / 1024) as u32;

/// Appends in one statement.
const MAX_BATCH: usize = 1024;

/// Bytes in one statement, unless one append has more.
const MAX_BATCH_BYTES: usize = 8 << 20;

/// Repetitions of a statement whose connection was lost or whose transaction was aborted. An append that did take effect is
/// recognised.
const MAX_RETRIES: u32 = 2;

macro_rules! append_statement {
    ($setting:literal, $server:expr) => {
        concat!(
            "WITH u AS (UPDATE agentwire.heads AS h SET next_seq = a.seq + a.n \
               FROM unnest($1, $2, $3, $4, $5, $6) AS a (run, fence, seq, n, body, day) \
               WHERE h.run = a.run AND h.fence = a.fence AND h.next_seq = a.seq AND h.claimed AND ",
            $server,
            " AND EXISTS (SELECT 1 FROM agentwire.replicas AS p \
                   WHERE p.holder = h.holder AND p.lease_until > coalesce($7, ",
            clock!(),
            ")) RETURNING a.run, a.fence, a.seq, a.n, a.body, a.day, h.watched_until), \
             l AS (INSERT INTO agentwire.log (day, run, seq, n, fence, epoch, body) \
               SELECT day, run, seq, n, fence, $8::int, body FROM u) \
             SELECT run, coalesce(watched_until > coalesce($7, ",
            clock!(),
            "), false)",
            $setting,
            " FROM u"
        )
    };
}

/// The statement for a value of `synchronous_commit`, for servers that tell their timeline and for those that hide it. Nothing
/// is written on another timeline than the known one: its epoch would be wrong.
macro_rules! append_statements {
    ($setting:literal) => {
        [
            append_statement!($setting, "$9::bigint IS NULL"),
            append_statement!($setting, concat!("(SELECT ", timeline!(), ") = $9")),
        ]
    };
}

const APPEND: [&str; 2] = append_statements!("");
const APPEND_ASYNC: [&str; 2] = append_statements!(", set_config('synchronous_commit', 'off', true)");
const APPEND_SYNC: [&str; 2] = append_statements!(", set_config('synchronous_commit', 'on', true)");

/// One append.
pub(super) struct Job {
    pub(super) run: i64,
    pub(super) day: Day,
    pub(super) fence: u64,
    pub(super) seq: Seq,
    pub(super) events: usize,
    pub(super) body: Vec<u8>,
    pub(super) durability: Durability,
}

struct Waiting {
    job: Job,
    caller: oneshot::Sender<Result<Option<Appended>, StoreError>>,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Waiting>,
    /// The runs of the statements in flight.
    in_flight: HashSet<i64>,
    is_closed: bool,
}

/// The queue of appends.
pub(super) struct Queue {
    state: Mutex<State>,
    wake: Notify,
    capacity: Semaphore,
}

impl Queue {
    pub(super) fn start(database: &Arc<Database>, hub: &Arc<Hub>) -> Arc<Self> {
        let capacity = Semaphore::new(CAPACITY_KIB as usize);
        let queue = Arc::new(Self { state: Mutex::default(), wake: Notify::new(), capacity });
        for _ in 0..WORKERS {
            let (queue, database, hub) = (Arc::clone(&queue), Arc::clone(database), Arc::clone(hub));
            tokio::spawn(async move { work(&queue, &database, &hub).await });
        }
        queue
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Appends; `None` if the statement did not accept it, so that it has to be looked at by itself.
    pub(super) async fn append(&self, job: Job) -> Result<Option<Appended>, StoreError> {
        let kib = u32::try_from(job.body.len() / 1024 + 1).unwrap_or(CAPACITY_KIB).min(CAPACITY_KIB);
        let _permit = self.capacity.acquire_many(kib).await.map_err(|_| StoreError::Closed)?;
        let (caller, result) = oneshot::channel();
        {
            let mut state = self.state();
            if state.is_closed {
                return Err(StoreError::Closed);
            }
            state.waiting.push_back(Waiting { job, caller });
        }
        self.wake.notify_one();
        result.await.map_err(|_| StoreError::Closed)?
    }

    /// The appends for one statement, of runs that are in no other.
    fn take(&self) -> Vec<Waiting> {
        let mut state = self.state();
        let State { waiting, in_flight, .. } = &mut *state;
        let mut batch: Vec<Waiting> = Vec::new();
        let mut rest = VecDeque::new();
        let mut bytes = 0;
        while let Some(next) = waiting.pop_front() {
            let is_full =
                batch.len() >= MAX_BATCH || (bytes > 0 && bytes + next.job.body.len() > MAX_BATCH_BYTES);
            if is_full {
                waiting.push_front(next);
                break;
            }
            let is_other = batch.first().is_some_and(|first| first.job.durability != next.job.durability);
            if is_other || !in_flight.insert(next.job.run) {
                rest.push_back(next);
            } else {
                bytes += next.job.body.len();
                batch.push(next);
            }
        }
        // In their order, before those that were not looked at.
        while let Some(skipped) = rest.pop_back() {
            waiting.push_front(skipped);
        }
        batch
    }

    pub(super) fn close(&self) {
        let mut state = self.state();
        state.is_closed = true;
        state.waiting.clear();
        drop(state);
        self.wake.notify_waiters();
        // For workers that are about to wait.
        self.wake.notify_one();
    }
}

async fn work(queue: &Queue, database: &Database, hub: &Hub) {
    loop {
        let woken = queue.wake.notified();
        tokio::pin!(woken);
        woken.as_mut().enable();
        let mut batch = queue.take();
        if batch.is_empty() {
            if queue.state().is_closed {
                return;
            }
            woken.await;
            continue;
        }
        // Rows are locked in this order everywhere.
        batch.sort_unstable_by_key(|waiting| waiting.job.run);
        let result = write(database, &batch).await;
        {
            let mut state = queue.state();
            for waiting in &batch {
                state.in_flight.remove(&waiting.job.run);
            }
        }
        // The other worker may have skipped appends of these runs.
        queue.wake.notify_one();
        let epoch = database.server.epoch();
        for Waiting { job, caller } in batch {
            let answer = match &result {
                Err(error) => Err(error.clone()),
                Ok(written) => match written.binary_search_by_key(&job.run, |(run, _)| *run) {
                    Err(_) => Ok(None),
                    Ok(at) => {
                        let next_seq = job.seq.plus(job.events);
                        hub.appended(job.run, next_seq, true, written[at].1);
                        Ok(Some(Appended { next_seq, repeated: false, epoch }))
                    }
                },
            };
            // The append stands even if the caller no longer waits for it.
            let _ = caller.send(answer);
        }
    }
}

/// The runs whose appends were written, in order, and whether they are watched.
async fn write(database: &Database, batch: &[Waiting]) -> Result<Vec<(i64, bool)>, StoreError> {
    let number = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
    let runs: Vec<i64> = batch.iter().map(|waiting| waiting.job.run).collect();
    let fences: Vec<i64> = batch.iter().map(|waiting| number(waiting.job.fence)).collect();
    let seqs: Vec<i64> = batch.iter().map(|waiting| number(waiting.job.seq.0)).collect();
    let counts: Vec<i32> =
        batch.iter().map(|waiting| i32::try_from(waiting.job.events).unwrap_or(i32::MAX)).collect();
    let bodies: Vec<&[u8]> = batch.iter().map(|waiting| &*waiting.job.body).collect();
    let days: Vec<Day> = batch.iter().map(|waiting| waiting.job.day).collect();
    let level = batch.first().map_or(Durability::Os, |waiting| waiting.job.durability);
    let statements = match database.synchronous_commit(level) {
        None => APPEND,
        Some("off") => APPEND_ASYNC,
        Some(_) => APPEND_SYNC,
    };
    let mut retries = 0;
    loop {
        let timeline = database.server.timeline();
        let epoch = database.server.epoch();
        let values = [
            Value::Ints(&runs),
            Value::Ints(&fences),
            Value::Ints(&seqs),
            Value::Numbers(&counts),
            Value::Bodies(&bodies),
            Value::Day(&days),
            database.clocks.parameter(),
            int(u64::from(epoch)),
            Value::Int(timeline.map(i64::from)),
        ];
        let statement = statements[usize::from(timeline.is_some())];
        match database.query(Lane::Append, statement, &values).await {
            Ok(rows) => {
                let written: Result<Vec<(i64, bool)>, StoreError> =
                    rows.iter().map(|row| Ok((get(row, 0)?, get(row, 1)?))).collect();
                let mut written = written?;
                written.sort_unstable();
                return Ok(written);
            }
            Err(StoreError::Busy | StoreError::Io(_)) if retries < MAX_RETRIES => retries += 1,
            Err(error) => return Err(error),
        }
    }
}
