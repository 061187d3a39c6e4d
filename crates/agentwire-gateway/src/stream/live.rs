//! A live run of this process: its recent events, its commands and its readers.
//!
//! Readers pull. The run publishes an event here once the log has it and wakes the readers; each reader copies the events
//! that it has not seen, from the ring buffer or, if it is far behind, from the store. Nothing is queued per reader, so
//! a slow reader costs the others nothing. A reader that lags beyond a limit without progress is disconnected.

use std::{
    collections::VecDeque,
    future::poll_fn,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering},
    },
    task::Poll,
    time::Duration,
};

use agentwire_core::{event::ThreadId, patch::Patch};
use agentwire_store::{CommandId, Fence, RunKey, RunStatus};
use bytes::Bytes;
use futures_util::task::AtomicWaker;
use tokio::{
    sync::{Notify, mpsc, oneshot},
    time::Instant,
};
use tokio_util::sync::CancellationToken;

use crate::{agent::PauseMode, error::ApiError};

/// A command to a live run. Executed between two appends, so that every reply reflects the log.
pub(crate) enum Command {
    /// The prelude for a reader that joins at the current position.
    Prelude(oneshot::Sender<Prelude>),
    /// The current messages and state.
    Snapshot(oneshot::Sender<Snapshot>),
    /// The step that the run is in.
    Step(oneshot::Sender<Option<Box<str>>>),
    /// A change of the state by a client. Replied to once the log has it.
    Patch {
        patch: Patch,
        reply: oneshot::Sender<Result<(), ApiError>>,
        /// The command of another process, to which the store replies in the same append.
        command: Option<CommandId>,
    },
    /// Pauses (`true`) or resumes the run. Replied to once the log has it.
    SetPaused(bool, oneshot::Sender<Result<PauseMode, ApiError>>),
    /// Ends the run as cancelled, with the reason for the server log.
    Stop(&'static str),
    /// Ends the run because its thread is being deleted.
    DeleteThread,
    /// Stops (`true`) or continues reading from the agent, while the lease of this process cannot be renewed.
    Hold(bool),
}

/// The reply to [`Command::Prelude`]: events in place of those before `next`.
pub(crate) struct Prelude {
    pub(crate) events: Vec<Bytes>,
    pub(crate) next: u64,
}

/// The reply to [`Command::Snapshot`]; messages and state as JSON.
pub(crate) struct Snapshot {
    pub(crate) messages: String,
    /// The messages that the run started with.
    pub(crate) initial_messages: String,
    pub(crate) state: String,
}

/// A live run of this process.
pub(crate) struct LiveRun {
    pub(crate) key: RunKey,
    pub(crate) thread: ThreadId,
    pub(crate) commands: mpsc::Sender<Command>,
    ring: Mutex<Ring>,
    /// Apart from the ring, so that a woken reader finds the ring unlocked.
    readers: Mutex<Vec<Arc<ReaderCursor>>>,
    reader_count: AtomicUsize,
    /// Notified when the last reader has disconnected.
    unread: Notify,
    /// True if the run was told to stop.
    is_stopping: AtomicBool,
    /// The epoch of the store in which its latest events were written.
    epoch: AtomicU32,
    /// The fencing token of this process.
    fence: AtomicU64,
    /// Cancelled when this process must not drive the run any more.
    pub(crate) give_up: CancellationToken,
}

/// The position and state of a live run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    /// The sequence number of the next event.
    pub(crate) next: u64,
    pub(crate) state: LiveState,
}

/// The state of a live run, as its readers see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LiveState {
    /// More events may follow.
    Running,
    /// The log has the terminal event.
    Ended(RunStatus),
    /// The log cannot be written any more. Readers report it to their clients; the log does not have it.
    LogFailed(LogFailure),
    /// The run may go on in another process. The connections of the readers are cut.
    Cut,
}

/// The reason why a log cannot be written any more: a stable code and a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LogFailure {
    pub(crate) code: &'static str,
    pub(crate) message: &'static str,
}

/// The recent events of a run.
struct Ring {
    events: VecDeque<Bytes>,
    /// The sequence number of the first event that is kept.
    first: u64,
    bytes: usize,
    limit: usize,
    /// Bytes of all events so far.
    written: u64,
    /// `written` at the last lag check of the readers.
    lag_checked: u64,
    max_lag: usize,
    started: Instant,
    /// The time at which the agent's side of the newest events arrived.
    received: Instant,
    state: LiveState,
}

/// The progress of one reader, and the means to disconnect it.
#[derive(Debug)]
pub(crate) struct ReaderCursor {
    /// Bytes of the log that the reader has copied. Until it was up to date once, those that the run had written at its
    /// last read: it may be far behind, but has to read on.
    copied: AtomicU64,
    /// True if it was up to date once.
    was_up_to_date: AtomicBool,
    /// The time of the first lag check that found it too far behind since its last read, in milliseconds since the run
    /// started; `UNSET` if none did.
    behind_since: AtomicU64,
    disconnect: CancellationToken,
    /// Wakes the reader on new events.
    pub(crate) waker: AtomicWaker,
}

const UNSET: u64 = u64::MAX;

/// Registers a reader before it has a position, so that it is counted from the start; unregisters it on drop.
pub(crate) struct ReaderGuard {
    live: Arc<LiveRun>,
    cursor: Arc<ReaderCursor>,
}

impl std::fmt::Debug for ReaderGuard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ReaderGuard").field("run", &self.live.key).finish_non_exhaustive()
    }
}

impl ReaderGuard {
    pub(crate) fn new(live: Arc<LiveRun>) -> Self {
        let cursor = live.register_reader(CancellationToken::new());
        Self { live, cursor }
    }
}

impl Drop for ReaderGuard {
    fn drop(&mut self) {
        self.live.unregister_reader(&self.cursor);
    }
}

/// The cursor of a task that waits for a run and is no reader: nobody sees the events.
struct CursorGuard {
    live: Arc<LiveRun>,
    cursor: Arc<ReaderCursor>,
}

impl CursorGuard {
    fn new(live: Arc<LiveRun>, disconnect: CancellationToken) -> Self {
        let cursor = live.add_cursor(disconnect);
        Self { live, cursor }
    }
}

impl Drop for CursorGuard {
    fn drop(&mut self) {
        self.live.remove_cursor(&self.cursor);
    }
}

/// Follows a run for another process. Not counted as a reader.
pub(crate) struct Follower {
    guard: CursorGuard,
    next: u64,
}

impl Follower {
    pub(crate) fn new(live: Arc<LiveRun>, next: u64) -> Self {
        Self { guard: CursorGuard::new(live, CancellationToken::new()), next }
    }

    /// The next events with their epoch; `None` if there are none here any more.
    pub(crate) async fn next(&mut self) -> Option<(u32, VecDeque<Bytes>)> {
        let CursorGuard { live, cursor } = &self.guard;
        let (next, mut page) = (self.next, VecDeque::new());
        let has_read = poll_fn(|cx| {
            cursor.waker.register(cx.waker());
            let is_running = live.head().state == LiveState::Running;
            match live.read(next, FOLLOWER_PAGE, cursor, &mut page) {
                RingRead::Events => Poll::Ready(true),
                RingRead::UpToDate if is_running => Poll::Pending,
                RingRead::UpToDate | RingRead::Evicted => Poll::Ready(false),
            }
        })
        .await;
        self.next += page.len() as u64;
        // At least that of the events: a cursor of a later epoch is right as well.
        has_read.then(|| (live.epoch(), page))
    }
}

/// The result of a read from the ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RingRead {
    /// Events were copied.
    Events,
    /// The events are only in the store.
    Evicted,
    /// The reader is up to date.
    UpToDate,
}

/// Bytes that a follower reads at once.
const FOLLOWER_PAGE: usize = 64 << 10;

/// Capacity of a run's command queue.
const COMMANDS: usize = 16;

/// Time for a reader to process the events that it copied. A single large event can exceed the lag limit, which must not
/// disconnect readers that had no time to read it.
const READ_GRACE: Duration = Duration::from_secs(2);

/// Bytes that a reader may be behind while memory is short.
const SHORT_LAG: u64 = 64 << 10;

/// Bytes that a run writes between two lag checks.
const LAG_CHECK_INTERVAL: u64 = 64 << 10;

impl LiveRun {
    pub(crate) fn new(
        key: RunKey,
        thread: ThreadId,
        next: u64,
        limits: &crate::settings::ServerLimits,
    ) -> (Arc<Self>, mpsc::Receiver<Command>) {
        let (commands, receiver) = mpsc::channel(COMMANDS);
        let ring = Ring {
            events: VecDeque::new(),
            first: next,
            bytes: 0,
            limit: limits.ring,
            written: 0,
            lag_checked: 0,
            max_lag: limits.reader_lag,
            started: Instant::now(),
            received: Instant::now(),
            state: LiveState::Running,
        };
        let live = Self {
            key,
            thread,
            commands,
            ring: Mutex::new(ring),
            readers: Mutex::new(Vec::new()),
            reader_count: AtomicUsize::new(0),
            unread: Notify::new(),
            is_stopping: AtomicBool::new(false),
            epoch: AtomicU32::new(0),
            fence: AtomicU64::new(0),
            give_up: CancellationToken::new(),
        };
        (Arc::new(live), receiver)
    }

    /// A run that another process drives. It takes no commands.
    pub(crate) fn new_tail(
        key: RunKey,
        thread: ThreadId,
        next: u64,
        limits: &crate::settings::ServerLimits,
    ) -> Arc<Self> {
        Self::new(key, thread, next, limits).0
    }

    /// True if another process drives the run.
    pub(crate) fn is_tail(&self) -> bool {
        self.commands.is_closed()
    }

    pub(crate) fn fence(&self) -> Fence {
        Fence(self.fence.load(Ordering::Acquire))
    }

    pub(crate) fn set_fence(&self, fence: Fence) {
        self.fence.store(fence.0, Ordering::Release);
    }

    pub(crate) fn epoch(&self) -> u32 {
        self.epoch.load(Ordering::Relaxed)
    }

    pub(crate) fn set_epoch(&self, epoch: u32) {
        self.epoch.store(epoch, Ordering::Relaxed);
    }

    /// The number of clients that read the run here.
    pub(crate) fn reader_count(&self) -> usize {
        self.reader_count.load(Ordering::Acquire)
    }

    fn ring(&self) -> MutexGuard<'_, Ring> {
        self.ring.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn readers(&self) -> MutexGuard<'_, Vec<Arc<ReaderCursor>>> {
        self.readers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The time at which the newest events arrived at this process.
    pub(crate) fn received(&self) -> Instant {
        self.ring().received
    }

    pub(crate) fn head(&self) -> Head {
        let ring = self.ring();
        Head { next: ring.first + ring.events.len() as u64, state: ring.state }
    }

    /// Publishes events that the log has.
    pub(crate) fn publish(&self, events: Vec<Bytes>, state: LiveState) {
        self.publish_received(events, state, Instant::now());
    }

    /// As [`Self::publish`], for events that arrived at `received`.
    pub(crate) fn publish_received(&self, events: Vec<Bytes>, state: LiveState, received: Instant) {
        let lag_check = {
            let mut ring = self.ring();
            ring.received = received;
            for event in events {
                ring.push(event);
            }
            if ring.state != LiveState::Cut {
                ring.state = state;
            }
            ring.is_lag_check_due().then(|| (ring.written, ring.max_lag as u64, ring.age()))
        };
        if let Some((written, max_lag, age)) = lag_check {
            self.readers().iter().for_each(|cursor| cursor.check_lag(written, max_lag, age));
        }
        self.wake_readers();
    }

    /// Disconnects readers that are behind by less than the limit too, while memory is short: they hold what they have
    /// copied.
    pub(crate) fn cut_slow_readers(&self) {
        let (written, age) = {
            let ring = self.ring();
            (ring.written, ring.age())
        };
        self.readers().iter().for_each(|cursor| cursor.check_lag(written, SHORT_LAG, age));
    }

    /// Wakes the readers, also without new events.
    pub(crate) fn wake_readers(&self) {
        self.readers().iter().for_each(|cursor| cursor.waker.wake());
    }

    /// Publishes that the log cannot be written any more.
    pub(crate) fn mark_log_failed(&self, failure: LogFailure) {
        {
            let mut ring = self.ring();
            if ring.state != LiveState::Running {
                return;
            }
            ring.state = LiveState::LogFailed(failure);
        }
        self.wake_readers();
    }

    /// Cuts the connections of the readers, because the run may go on in another process.
    pub(crate) fn cut_readers(&self) {
        self.ring().state = LiveState::Cut;
        self.wake_readers();
    }

    /// Waits until no more events can follow.
    pub(crate) async fn ended(self: Arc<Self>) {
        let guard = CursorGuard::new(self, CancellationToken::new());
        poll_fn(|cx| {
            guard.cursor.waker.register(cx.waker());
            if guard.live.head().state == LiveState::Running { Poll::Pending } else { Poll::Ready(()) }
        })
        .await;
    }

    /// Ends the run as cancelled, with the reason for the server log. A run that no longer takes commands is about to end.
    pub(crate) async fn stop(&self, reason: &'static str) {
        self.is_stopping.store(true, Ordering::Release);
        let _ = self.commands.send(Command::Stop(reason)).await;
    }

    /// True if the run was told to stop.
    pub(crate) fn is_stopping(&self) -> bool {
        self.is_stopping.load(Ordering::Acquire)
    }

    /// Waits up to `limit` until no client reads the run; whether none does.
    pub(crate) async fn wait_until_unread(&self, limit: Duration) -> bool {
        let is_unread = || self.reader_count.load(Ordering::Acquire) == 0;
        let unread = async {
            loop {
                let notified = self.unread.notified();
                tokio::pin!(notified);
                notified.as_mut().enable();
                if is_unread() {
                    return;
                }
                notified.await;
            }
        };
        let _ = tokio::time::timeout(limit, unread).await;
        is_unread()
    }

    /// Copies the events from `next` on to `page`, up to about `limit` bytes.
    pub(crate) fn read(
        &self,
        next: u64,
        limit: usize,
        cursor: &ReaderCursor,
        page: &mut VecDeque<Bytes>,
    ) -> RingRead {
        let ring = self.ring();
        cursor.behind_since.store(UNSET, Ordering::Relaxed);
        let was_up_to_date = cursor.was_up_to_date.load(Ordering::Relaxed);
        if !was_up_to_date {
            cursor.copied.store(ring.written, Ordering::Relaxed);
        }
        let Some(skip) = next.checked_sub(ring.first) else { return RingRead::Evicted };
        let (mut bytes, mut at) = (0, usize::try_from(skip).unwrap_or(usize::MAX));
        while bytes <= limit
            && let Some(event) = ring.events.get(at)
        {
            bytes += event.len();
            page.push_back(event.clone());
            at += 1;
        }
        if bytes == 0 {
            cursor.copied.store(ring.written, Ordering::Relaxed);
            cursor.was_up_to_date.store(true, Ordering::Relaxed);
            return RingRead::UpToDate;
        }
        if was_up_to_date {
            cursor.copied.fetch_add(bytes as u64, Ordering::Relaxed);
        }
        RingRead::Events
    }

    /// The number of readers.
    pub(crate) fn readers_now(&self) -> usize {
        self.reader_count.load(Ordering::Acquire)
    }

    /// Adds a reader; `disconnect` ends its connection.
    pub(crate) fn register_reader(&self, disconnect: CancellationToken) -> Arc<ReaderCursor> {
        self.reader_count.fetch_add(1, Ordering::AcqRel);
        self.add_cursor(disconnect)
    }

    fn add_cursor(&self, disconnect: CancellationToken) -> Arc<ReaderCursor> {
        let written = self.ring().written;
        let cursor = Arc::new(ReaderCursor {
            copied: AtomicU64::new(written),
            was_up_to_date: AtomicBool::new(false),
            behind_since: AtomicU64::new(UNSET),
            disconnect,
            waker: AtomicWaker::new(),
        });
        self.readers().push(cursor.clone());
        cursor
    }

    fn remove_cursor(&self, cursor: &Arc<ReaderCursor>) {
        self.readers().retain(|other| !Arc::ptr_eq(other, cursor));
    }

    /// Removes a reader.
    pub(crate) fn unregister_reader(&self, cursor: &Arc<ReaderCursor>) {
        self.remove_cursor(cursor);
        if self.reader_count.fetch_sub(1, Ordering::AcqRel) != 1 {
            return;
        }
        self.unread.notify_waiters();
    }
}

impl Ring {
    fn push(&mut self, event: Bytes) {
        self.bytes += event.len();
        self.written += event.len() as u64;
        self.events.push_back(event);
        while self.bytes > self.limit && self.events.len() > 1 {
            if let Some(old) = self.events.pop_front() {
                self.bytes -= old.len();
                self.first += 1;
            }
        }
    }

    fn is_lag_check_due(&mut self) -> bool {
        let is_due = self.written - self.lag_checked >= LAG_CHECK_INTERVAL;
        if is_due {
            self.lag_checked = self.written;
        }
        is_due
    }

    /// Milliseconds since the run started.
    fn age(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}

impl ReaderCursor {
    /// Disconnects the reader if it has been too far behind for too long.
    fn check_lag(&self, written: u64, max_lag: u64, age: u64) {
        let copied = self.copied.load(Ordering::Relaxed);
        if written.saturating_sub(copied) <= max_lag {
            return;
        }
        match self.behind_since.load(Ordering::Relaxed) {
            // Counted from this check, not from the last read: the reader is not at fault if this process was busy.
            UNSET => self.behind_since.store(age, Ordering::Relaxed),
            since if age.saturating_sub(since) >= READ_GRACE.as_millis() as u64 => self.disconnect.cancel(),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use agentwire_store::Owner;

    use super::*;
    use crate::settings::ServerLimits;

    fn live(ring: usize, reader_lag: usize) -> Arc<LiveRun> {
        let key = RunKey { owner: Owner::new("t", "u", "a"), run: "r".into() };
        let limits = ServerLimits { ring, reader_lag, ..ServerLimits::default() };
        LiveRun::new(key, "t".into(), 0, &limits).0
    }

    fn events(count: usize, size: usize) -> Vec<Bytes> {
        (0..count).map(|_| Bytes::from(vec![b'x'; size])).collect()
    }

    #[test]
    fn a_reader_far_behind_is_sent_to_the_store() {
        let live = live(100, 1000);
        live.publish(events(10, 20), LiveState::Running);
        let cursor = live.register_reader(CancellationToken::new());
        let mut page = VecDeque::new();
        assert_eq!(live.read(0, 1000, &cursor, &mut page), RingRead::Evicted);
        assert_eq!((live.read(5, 1000, &cursor, &mut page), page.len()), (RingRead::Events, 5));
        assert_eq!(live.read(10, 1000, &cursor, &mut page), RingRead::UpToDate);
    }

    #[tokio::test(start_paused = true)]
    async fn a_stalled_reader_is_disconnected_and_others_are_not() {
        let live = live(100, 200 << 10);
        let [slow, quick, late, never] = [(); 4].map(|()| CancellationToken::new());
        let slow_cursor = live.register_reader(slow.clone());
        let quick_cursor = live.register_reader(quick.clone());
        let late_cursor = live.register_reader(late.clone());
        let _never_cursor = live.register_reader(never.clone());
        for _ in 0..2 {
            let next = live.head().next;
            live.read(next, 1, &slow_cursor, &mut VecDeque::new());
            live.read(next, 1, &quick_cursor, &mut VecDeque::new());
        }
        live.publish(events(1, 1 << 20), LiveState::Running);
        assert!(!slow.is_cancelled(), "no reader had the time to read it");
        for _ in 0..6 {
            tokio::time::advance(READ_GRACE / 2).await;
            live.publish(events(1, 64 << 10), LiveState::Running);
            live.read(live.head().next - 1, usize::MAX, &quick_cursor, &mut VecDeque::new());
            // It reads an old part of the log, and goes on.
            assert_eq!(live.read(0, 1, &late_cursor, &mut VecDeque::new()), RingRead::Evicted);
        }
        assert!(slow.is_cancelled() && never.is_cancelled());
        assert!(!quick.is_cancelled() && !late.is_cancelled());
    }

    #[tokio::test(start_paused = true)]
    async fn short_memory_cuts_a_reader_that_is_a_little_behind() {
        let live = live(1 << 20, 1 << 20);
        let [slow, quick] = [(); 2].map(|()| CancellationToken::new());
        let slow_cursor = live.register_reader(slow.clone());
        let quick_cursor = live.register_reader(quick.clone());
        for cursor in [&slow_cursor, &quick_cursor] {
            assert_eq!(live.read(0, 1, cursor, &mut VecDeque::new()), RingRead::UpToDate);
        }
        live.publish(events(1, 100 << 10), LiveState::Running);
        assert_eq!(live.read(0, usize::MAX, &quick_cursor, &mut VecDeque::new()), RingRead::Events);
        for _ in 0..3 {
            tokio::time::advance(READ_GRACE).await;
            live.publish(events(1, 1), LiveState::Running);
            live.cut_slow_readers();
        }
        assert!(slow.is_cancelled() && !quick.is_cancelled());
    }
}
