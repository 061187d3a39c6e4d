//! Wake-ups of waiting calls: one poll for all of them, and LISTEN/NOTIFY to be faster than the poll.
//!
//! A call that waits for a run at another gateway marks the run as watched for 30 seconds. The owner's append returns the
//! mark, and then the owner's notifier sends the end of the log, for many runs in one message and at most 50 times a
//! second: a NOTIFY in each append would serialise all commits of the server. Every wake-up may be lost; the poll is
//! the floor. Nothing is sent and no connection is held while nobody waits.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use futures_util::future::poll_fn;
use tokio::sync::Notify;
use tokio_postgres::AsyncMessage;

use super::{
    connect::{Database, Lane, clock},
    value::{Value, get, get_number, id, text},
};
use crate::{error::StoreError, model::Seq};

/// Interval of the poll while notifications arrive.
const SLOW_POLL: Duration = Duration::from_millis(100);

/// Interval of the poll without notifications.
const FAST_POLL: Duration = Duration::from_millis(25);

/// Time for which a run is marked as watched, and the age at which the mark is renewed.
const WATCHED: Duration = Duration::from_secs(30);
const WATCHED_RENEWAL: Duration = Duration::from_secs(10);

/// Interval between two notifications of one gateway.
const NOTIFY_INTERVAL: Duration = Duration::from_millis(20);

/// Bytes of one notification; the server allows 8,000.
const MAX_PAYLOAD: usize = 7500;

/// Time without a waiting call after which the listening connection is closed.
const LISTEN_LINGER: Duration = Duration::from_secs(30);

/// Delay before the next attempt to listen.
const LISTEN_RETRY: Duration = Duration::from_secs(3);

/// A followed run.
struct Followed {
    /// Calls that wait.
    waiting: usize,
    end: Seq,
    is_live: bool,
    marked: Option<Instant>,
    changed: Arc<Notify>,
}

#[derive(Default)]
struct State {
    followed: HashMap<i64, Followed>,
    /// Runs with readers at other gateways: the end of the log and whether the run is live.
    outgoing: HashMap<i64, (Seq, bool)>,
    /// Further notifications: commands and replies.
    messages: Vec<String>,
}

/// The waiting calls of one store.
pub(super) struct Hub {
    state: Mutex<State>,
    /// A command or a reply changed.
    changed: Notify,
    /// There is something to send, to poll or to listen for.
    work: Notify,
    outgoing: Notify,
    /// Calls that wait for anything.
    waiting: AtomicUsize,
    is_listening: AtomicBool,
    is_closed: AtomicBool,
}

/// Counts a waiting call until it is dropped.
pub(super) struct Registration<'a>(&'a Hub);

impl Drop for Registration<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

struct Following<'a> {
    hub: &'a Hub,
    run: i64,
}

impl Drop for Following<'_> {
    fn drop(&mut self) {
        let mut state = self.hub.state();
        if let Some(followed) = state.followed.get_mut(&self.run) {
            followed.waiting -= 1;
            if followed.waiting == 0 && followed.marked.is_none_or(|at| at.elapsed() > WATCHED) {
                state.followed.remove(&self.run);
            }
        }
    }
}

impl Hub {
    pub(super) fn start(database: &Arc<Database>) -> Arc<Self> {
        let hub = Arc::new(Self {
            state: Mutex::default(),
            changed: Notify::new(),
            work: Notify::new(),
            outgoing: Notify::new(),
            waiting: AtomicUsize::new(0),
            is_listening: AtomicBool::new(false),
            is_closed: AtomicBool::new(false),
        });
        // The tasks end with the store.
        tokio::spawn(poll(Arc::downgrade(&hub), Arc::downgrade(database)));
        if database.address.notify {
            tokio::spawn(send(Arc::downgrade(&hub), Arc::downgrade(database)));
            tokio::spawn(listen(Arc::downgrade(&hub), Arc::downgrade(database)));
        }
        hub
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn close(&self) {
        self.is_closed.store(true, Ordering::Relaxed);
        self.work.notify_waiters();
        self.outgoing.notify_waiters();
        self.changed.notify_waiters();
        for followed in self.state().followed.values() {
            followed.changed.notify_waiters();
        }
    }

    fn register(&self) -> Registration<'_> {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        self.work.notify_waiters();
        Registration(self)
    }

    /// An append of this store: wakes local calls, and those at other gateways if the run is watched.
    pub(super) fn appended(&self, run: i64, end: Seq, is_live: bool, is_watched: bool) {
        let mut state = self.state();
        if is_watched {
            state.outgoing.insert(run, (end, is_live));
        }
        state.note(run, end, is_live);
        drop(state);
        if is_watched {
            self.outgoing.notify_one();
        }
    }

    /// A run was claimed: its holder looks for commands again.
    pub(super) fn claimed(&self) {
        self.changed.notify_waiters();
    }

    /// Tells other gateways, and the waiting calls of this one, that commands have changed.
    pub(super) fn commanded(&self, message: String) {
        self.state().messages.push(message);
        self.outgoing.notify_one();
        self.changed.notify_waiters();
    }

    /// Waits until `check` has a result; checks again after each wake-up and at the latest after `limit`.
    pub(super) async fn wait_for<T, F>(
        &self,
        limit: impl Fn(bool) -> Duration,
        mut check: impl FnMut() -> F,
    ) -> Result<T, StoreError>
    where
        F: Future<Output = Result<Option<T>, StoreError>>,
    {
        let _registration = self.register();
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            if self.is_closed.load(Ordering::Relaxed) {
                return Err(StoreError::Closed);
            }
            if let Some(result) = check().await? {
                return Ok(result);
            }
            let limit = limit(self.is_listening.load(Ordering::Relaxed));
            let _ = tokio::time::timeout(limit, changed).await;
        }
    }

    /// Waits until a run has the event `next` or has ended, given its present end.
    pub(super) async fn follow(
        &self,
        run: i64,
        next: Seq,
        end: Seq,
        database: &Database,
    ) -> Result<(), StoreError> {
        let _registration = self.register();
        let woken = {
            let mut state = self.state();
            let followed = state.followed.entry(run).or_insert_with(|| Followed {
                waiting: 0,
                end,
                is_live: true,
                marked: None,
                changed: Arc::default(),
            });
            followed.waiting += 1;
            followed.end = followed.end.max(end);
            Arc::clone(&followed.changed)
        };
        let _following = Following { hub: self, run };
        self.work.notify_waiters();
        loop {
            let changed = woken.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            if self.is_closed.load(Ordering::Relaxed) {
                return Err(StoreError::Closed);
            }
            let needs_mark = {
                let mut state = self.state();
                let Some(followed) = state.followed.get_mut(&run) else { return Ok(()) };
                if followed.end > next || !followed.is_live {
                    return Ok(());
                }
                let needs_mark = followed.marked.is_none_or(|at| at.elapsed() > WATCHED_RENEWAL);
                if needs_mark {
                    followed.marked = Some(Instant::now());
                }
                needs_mark
            };
            if needs_mark && database.address.notify {
                mark(database, run).await?;
            }
            let _ = tokio::time::timeout(WATCHED_RENEWAL, changed).await;
        }
    }
}

impl State {
    /// Notes the end of a run, and wakes the calls that wait for it if it is news.
    fn note(&mut self, run: i64, end: Seq, is_live: bool) {
        let Some(followed) = self.followed.get_mut(&run) else { return };
        if end > followed.end || is_live != followed.is_live {
            followed.end = followed.end.max(end);
            followed.is_live &= is_live;
            followed.changed.notify_waiters();
        }
    }
}

/// Marks a run as watched. One row per statement, because appends lock rows in another order.
async fn mark(database: &Database, run: i64) -> Result<(), StoreError> {
    let millis = i64::try_from(WATCHED.as_millis()).unwrap_or(i64::MAX);
    let statement = concat!(
        "UPDATE agentwire.heads SET watched_until = coalesce($2, ",
        clock!(),
        ") + $3 WHERE run = $1 AND claimed"
    );
    let values = [id(run), database.clocks.parameter(), Value::Int(Some(millis))];
    database.query(Lane::General, statement, &values).await.map(|_| ())
}

/// Looks after all followed runs with one statement.
async fn poll(hub: Weak<Hub>, database: Weak<Database>) {
    loop {
        let Some(strong) = hub.upgrade() else { return };
        if strong.is_closed.load(Ordering::Relaxed) {
            return;
        }
        let runs: Vec<i64> = {
            let mut state = strong.state();
            state.followed.retain(|_, followed| {
                followed.waiting > 0 || followed.marked.is_some_and(|at| at.elapsed() < WATCHED)
            });
            state.followed.iter().filter(|(_, followed)| followed.waiting > 0).map(|(run, _)| *run).collect()
        };
        if runs.is_empty() {
            let work = strong.work.notified();
            tokio::pin!(work);
            work.as_mut().enable();
            if strong.state().followed.values().any(|followed| followed.waiting > 0) {
                continue;
            }
            let _ = tokio::time::timeout(Duration::from_secs(5), work).await;
            continue;
        }
        let Some(database) = database.upgrade() else { return };
        let statement = "SELECT h.run, h.next_seq, r.status IN ('queued', 'running', 'paused') FROM agentwire.heads AS h \
             JOIN agentwire.runs AS r ON r.id = h.run WHERE h.run = ANY($1)";
        // A failed poll is repeated; the calls notice a lasting fault when they read.
        if let Ok(rows) = database.query(Lane::General, statement, &[Value::Ints(&runs)]).await {
            let mut state = strong.state();
            let mut found = std::collections::HashSet::new();
            for row in &rows {
                let (Ok(run), Ok(end), Ok(is_live)) = (get::<i64>(row, 0), get_number(row, 1), get(row, 2))
                else {
                    continue;
                };
                found.insert(run);
                state.note(run, Seq(end), is_live);
            }
            for run in runs.iter().filter(|run| !found.contains(run)) {
                // Deleted.
                let end = state.followed.get(run).map_or(Seq(0), |followed| followed.end);
                state.note(*run, end, false);
            }
        }
        drop(database);
        let pause = if strong.is_listening.load(Ordering::Relaxed) { SLOW_POLL } else { FAST_POLL };
        drop(strong);
        tokio::time::sleep(pause).await;
    }
}

fn channel(database: &Database) -> String {
    match database.address.schema.as_str() {
        "agentwire" => "agentwire".into(),
        schema => format!("agentwire_{schema}"),
    }
}

/// Sends notifications, many in one message.
async fn send(hub: Weak<Hub>, database: Weak<Database>) {
    loop {
        let payloads = {
            let Some(hub) = hub.upgrade() else { return };
            if hub.is_closed.load(Ordering::Relaxed) {
                return;
            }
            let outgoing = hub.outgoing.notified();
            tokio::pin!(outgoing);
            outgoing.as_mut().enable();
            let (messages, runs) = {
                let mut state = hub.state();
                (std::mem::take(&mut state.messages), std::mem::take(&mut state.outgoing))
            };
            let items = messages.into_iter().chain(
                runs.into_iter().map(|(run, (end, is_live))| format!("e:{run}:{end}:{}", u8::from(is_live))),
            );
            let mut payloads: Vec<String> = Vec::new();
            for item in items {
                match payloads.last_mut() {
                    Some(last) if last.len() + item.len() < MAX_PAYLOAD => {
                        last.push(' ');
                        last.push_str(&item);
                    }
                    _ => payloads.push(item),
                }
            }
            if payloads.is_empty() {
                let _ = tokio::time::timeout(Duration::from_secs(5), outgoing).await;
                continue;
            }
            payloads
        };
        let Some(database) = database.upgrade() else { return };
        let name = channel(&database);
        for payload in payloads {
            // A lost notification costs latency only.
            let _ = database
                .query(Lane::General, "SELECT pg_notify($1, $2)", &[text(&name), text(&payload)])
                .await;
        }
        drop(database);
        tokio::time::sleep(NOTIFY_INTERVAL).await;
    }
}

/// Listens while calls wait.
async fn listen(hub: Weak<Hub>, database: Weak<Database>) {
    loop {
        {
            let Some(hub) = hub.upgrade() else { return };
            if hub.is_closed.load(Ordering::Relaxed) {
                return;
            }
            let work = hub.work.notified();
            tokio::pin!(work);
            work.as_mut().enable();
            if hub.waiting.load(Ordering::Relaxed) == 0 {
                let _ = tokio::time::timeout(Duration::from_secs(5), work).await;
                continue;
            }
        }
        let heard = {
            let (Some(hub), Some(database)) = (hub.upgrade(), database.upgrade()) else { return };
            // Through a pooler in transaction mode nothing would arrive.
            if !database.address.prepared && database.address.listen.is_none() {
                return;
            }
            let heard = listen_once(&hub, &database).await;
            hub.is_listening.store(false, Ordering::Relaxed);
            hub.changed.notify_waiters();
            heard
        };
        if heard.is_err() {
            tokio::time::sleep(LISTEN_RETRY).await;
        }
    }
}

async fn listen_once(hub: &Hub, database: &Database) -> Result<(), StoreError> {
    let config = database.address.listen.as_ref().unwrap_or(&database.address.config);
    let (client, mut connection) = config.connect(database.tls.clone()).await?;
    let command = format!("LISTEN {}", channel(database));
    let listening = client.batch_execute(&command);
    tokio::pin!(listening);
    let mut is_listening = false;
    let mut idle_since = None;
    loop {
        tokio::select! {
            done = &mut listening, if !is_listening => {
                done?;
                is_listening = true;
                hub.is_listening.store(true, Ordering::Relaxed);
                // A wake-up may have been sent before.
                hub.changed.notify_waiters();
            }
            message = poll_fn(|context| connection.poll_message(context)) => match message {
                Some(Ok(AsyncMessage::Notification(heard))) => receive(hub, heard.payload()),
                Some(Ok(_)) => {}
                Some(Err(error)) => return Err(error.into()),
                None => return Err(StoreError::Closed),
            },
            () = tokio::time::sleep(Duration::from_secs(1)) => {
                if hub.is_closed.load(Ordering::Relaxed) {
                    return Ok(());
                }
                if hub.waiting.load(Ordering::Relaxed) > 0 {
                    idle_since = None;
                } else if idle_since.get_or_insert_with(Instant::now).elapsed() > LISTEN_LINGER {
                    return Ok(());
                }
            }
        }
    }
}

fn receive(hub: &Hub, payload: &str) {
    let mut is_command = false;
    let mut state = hub.state();
    for item in payload.split(' ') {
        let mut parts = item.split(':');
        match (parts.next(), parts.next(), parts.next(), parts.next()) {
            (Some("e"), Some(run), Some(end), Some(live)) => {
                if let (Ok(run), Ok(end)) = (run.parse(), end.parse()) {
                    state.note(run, Seq(end), live == "1");
                }
            }
            // A command or a reply.
            _ => is_command = true,
        }
    }
    drop(state);
    if is_command {
        hub.changed.notify_waiters();
    }
}
