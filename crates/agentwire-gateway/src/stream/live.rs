//! A run that is going on in this process: its recent events, and those who follow it.
//!
//! Readers pull. The run puts an event here once the log has it and wakes whoever waits; each reader takes what
//! it has not seen, from here or, if it is far behind, from the store. So nothing is queued per reader, and a slow
//! one costs nobody anything; one that is beyond a bound and does not move is cut, since it is worth nothing.

use std::{
    collections::VecDeque,
    future::poll_fn,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    task::Poll,
    time::Duration,
};

use agentwire_core::{event::ThreadId, patch::Patch};
use agentwire_store::{RunKey, RunStatus};
use bytes::Bytes;
use futures_util::task::AtomicWaker;
use tokio::{
    sync::{mpsc, oneshot},
    time::Instant,
};
use tokio_util::sync::CancellationToken;

use crate::{agent::PauseMode, error::ApiError};

/// What a run can be asked while it goes on. Answered between two appends, so what is said is in the log.
pub(crate) enum Command {
    /// What a reader must hear before the events from `next` on.
    Prelude(oneshot::Sender<Prelude>),
    /// What clients hold now.
    Snapshot(oneshot::Sender<Snapshot>),
    /// A change of the state from outside.
    Patch(Patch, oneshot::Sender<Result<(), ApiError>>),
    /// To hold, or to go on. Answered once the log says so.
    SetPaused(bool, oneshot::Sender<Result<PauseMode, ApiError>>),
    /// An end, on purpose; says why.
    Stop(&'static str),
    /// An end, because the thread is about to be deleted.
    DeleteThread,
}

/// See [`Command::Prelude`].
pub(crate) struct Prelude {
    pub(crate) events: Vec<Bytes>,
    pub(crate) next: u64,
}

/// See [`Command::Snapshot`]; messages and state as JSON.
pub(crate) struct Snapshot {
    pub(crate) messages: String,
    /// The messages that the run began with.
    pub(crate) began: String,
    pub(crate) state: String,
    /// The step that the run is in.
    pub(crate) step: Option<Box<str>>,
}

/// A run that is going on in this process.
pub(crate) struct LiveRun {
    pub(crate) key: RunKey,
    pub(crate) thread: ThreadId,
    pub(crate) commands: mpsc::Sender<Command>,
    pub(crate) cancel_when_alone: bool,
    ring: Mutex<Ring>,
    /// Those who read. Apart from the ring, so that whoever is woken finds it free.
    marks: Mutex<Vec<Arc<ReaderCursor>>>,
    readers: AtomicUsize,
}

/// How far a live run is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    /// The number of the next event.
    pub(crate) next: u64,
    /// Whether more may come.
    pub(crate) end: LiveState,
}

/// Whether more events may come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LiveState {
    /// Yes.
    Running,
    /// No: the log has the ending.
    Ended(RunStatus),
    /// No: the log could not be written any more. Readers are told so; that is not in the log.
    LogFailed(LogFailure),
}

/// Why a log cannot be written any more: a code and what it means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LogFailure {
    pub(crate) code: &'static str,
    pub(crate) message: &'static str,
}

struct Ring {
    events: VecDeque<Bytes>,
    /// The number of the first event kept.
    first: u64,
    bytes: usize,
    limit: usize,
    /// Bytes of all events so far.
    written: u64,
    /// How much was written when the readers were last looked at.
    looked: u64,
    lag: usize,
    began: Instant,
    end: LiveState,
}

/// How far a reader is, and how to get rid of it.
#[derive(Debug)]
pub(crate) struct ReaderCursor {
    /// Bytes of the log that the reader has taken; `NOT_YET` before it was up to date for the first time.
    taken: AtomicU64,
    /// When the run first found it too far behind since it last came for more, in milliseconds since the run began;
    /// `NOT_YET` if it did not.
    found_behind: AtomicU64,
    cut: CancellationToken,
    /// Wakes it when there is more.
    pub(crate) waker: AtomicWaker,
}

const NOT_YET: u64 = u64::MAX;

/// Somebody who is about to read.
pub(crate) struct ReaderGuard(Arc<LiveRun>, Arc<ReaderCursor>);

impl ReaderGuard {
    pub(crate) fn new(live: Arc<LiveRun>) -> Self {
        let mark = live.register_reader(CancellationToken::new());
        Self(live, mark)
    }
}

impl Drop for ReaderGuard {
    fn drop(&mut self) {
        self.0.unregister_reader(&self.1);
    }
}

/// What a reader finds when it looks for more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Take {
    /// Events from the number that it asked for.
    Events,
    /// They are no longer here; the store has them.
    Behind,
    /// Nothing new yet.
    Nothing,
}

/// How many commands may wait for a run that is busy writing.
const COMMANDS: usize = 16;

/// How long a reader may be busy with what it took: a large event alone can be more than the bound on its lag, and
/// that is no reason to cut everyone who has not had the time to take it.
const BUSY: Duration = Duration::from_secs(2);

/// How much a run writes before its readers are looked at again.
const LOOK_EVERY: u64 = 64 << 10;

impl LiveRun {
    pub(crate) fn new(
        key: RunKey,
        thread: ThreadId,
        next: u64,
        limits: &crate::settings::ServerLimits,
        cancel_when_alone: bool,
    ) -> (Arc<Self>, mpsc::Receiver<Command>) {
        let (commands, receiver) = mpsc::channel(COMMANDS);
        let ring = Ring {
            events: VecDeque::new(),
            first: next,
            bytes: 0,
            limit: limits.ring,
            written: 0,
            looked: 0,
            lag: limits.reader_lag,
            began: Instant::now(),
            end: LiveState::Running,
        };
        let live = Self {
            key,
            thread,
            commands,
            cancel_when_alone,
            ring: Mutex::new(ring),
            marks: Mutex::new(Vec::new()),
            readers: AtomicUsize::new(0),
        };
        (Arc::new(live), receiver)
    }

    fn ring(&self) -> MutexGuard<'_, Ring> {
        self.ring.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn marks(&self) -> MutexGuard<'_, Vec<Arc<ReaderCursor>>> {
        self.marks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn head(&self) -> Head {
        let ring = self.ring();
        Head { next: ring.first + ring.events.len() as u64, end: ring.end }
    }

    /// Shows events that the log has.
    pub(crate) fn publish(&self, events: Vec<Bytes>, end: LiveState) {
        let behind = {
            let mut ring = self.ring();
            for event in events {
                ring.push(event);
            }
            ring.end = end;
            ring.is_time_to_look().then(|| (ring.written, ring.lag as u64, ring.age()))
        };
        if let Some((written, lag, age)) = behind {
            self.marks().iter().for_each(|mark| mark.look(written, lag, age));
        }
        self.wake_readers();
    }

    /// Wakes the readers, though there may be nothing new to read.
    pub(crate) fn wake_readers(&self) {
        self.marks().iter().for_each(|mark| mark.waker.wake());
    }

    /// Gives up on the log.
    pub(crate) fn mark_log_failed(&self, broken: LogFailure) {
        self.ring().end = LiveState::LogFailed(broken);
        self.wake_readers();
    }

    /// Waits until no more events may come.
    pub(crate) async fn ended(self: Arc<Self>) {
        let waiting = ReaderGuard::new(self);
        poll_fn(|cx| {
            waiting.1.waker.register(cx.waker());
            if waiting.0.head().end == LiveState::Running { Poll::Pending } else { Poll::Ready(()) }
        })
        .await;
    }

    /// Puts what there is from `next` on into `page`, up to about `limit` bytes.
    pub(crate) fn take(&self, next: u64, limit: usize, mark: &ReaderCursor, page: &mut Vec<Bytes>) -> Take {
        let ring = self.ring();
        mark.found_behind.store(NOT_YET, Ordering::Relaxed);
        let Some(skip) = next.checked_sub(ring.first) else { return Take::Behind };
        let mut bytes = 0;
        for event in ring.events.iter().skip(usize::try_from(skip).unwrap_or(usize::MAX)) {
            if bytes > limit {
                break;
            }
            bytes += event.len();
            page.push(event.clone());
        }
        if bytes == 0 {
            mark.taken.store(ring.written, Ordering::Relaxed);
            return Take::Nothing;
        }
        if mark.taken.load(Ordering::Relaxed) != NOT_YET {
            mark.taken.fetch_add(bytes as u64, Ordering::Relaxed);
        }
        Take::Events
    }

    /// A new reader; `cut` ends its connection.
    pub(crate) fn register_reader(&self, cut: CancellationToken) -> Arc<ReaderCursor> {
        let (taken, found_behind) = (AtomicU64::new(NOT_YET), AtomicU64::new(NOT_YET));
        let mark = Arc::new(ReaderCursor { taken, found_behind, cut, waker: AtomicWaker::new() });
        self.marks().push(mark.clone());
        self.readers.fetch_add(1, Ordering::Relaxed);
        mark
    }

    /// A reader has gone.
    pub(crate) fn unregister_reader(&self, mark: &Arc<ReaderCursor>) {
        self.marks().retain(|other| !Arc::ptr_eq(other, mark));
        let was = self.readers.fetch_sub(1, Ordering::Relaxed);
        if was == 1 && self.cancel_when_alone && self.head().end == LiveState::Running {
            // If the run is too busy to hear it, it is about to write, and the next reader that leaves says so again.
            let _ = self.commands.try_send(Command::Stop("the client has gone"));
        }
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

    fn is_time_to_look(&mut self) -> bool {
        let is_time = self.written - self.looked >= LOOK_EVERY;
        if is_time {
            self.looked = self.written;
        }
        is_time
    }

    /// Milliseconds since the run began.
    fn age(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}

impl ReaderCursor {
    /// Cuts the reader if it has been too far behind for too long.
    fn look(&self, written: u64, lag: u64, age: u64) {
        let taken = self.taken.load(Ordering::Relaxed);
        if taken == NOT_YET || written.saturating_sub(taken) <= lag {
            return;
        }
        match self.found_behind.load(Ordering::Relaxed) {
            // From now on, not from when it last came: if this process was busy, that is not the reader's fault.
            NOT_YET => self.found_behind.store(age, Ordering::Relaxed),
            since if age.saturating_sub(since) >= BUSY.as_millis() as u64 => self.cut.cancel(),
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
        let key = RunKey { owner: Owner::new("t", "u"), run: "r".into() };
        let limits = ServerLimits { ring, reader_lag, ..ServerLimits::default() };
        LiveRun::new(key, "t".into(), 0, &limits, false).0
    }

    fn some(count: usize, size: usize) -> Vec<Bytes> {
        (0..count).map(|_| Bytes::from(vec![b'x'; size])).collect()
    }

    #[test]
    fn who_is_far_behind_is_sent_to_the_store() {
        let live = live(100, 1000);
        live.publish(some(10, 20), LiveState::Running);
        let mark = live.register_reader(CancellationToken::new());
        let mut page = Vec::new();
        assert_eq!(live.take(0, 1000, &mark, &mut page), Take::Behind);
        assert_eq!((live.take(5, 1000, &mark, &mut page), page.len()), (Take::Events, 5));
        assert_eq!(live.take(10, 1000, &mark, &mut page), Take::Nothing);
    }

    #[tokio::test(start_paused = true)]
    async fn a_reader_that_does_not_move_is_cut_and_others_are_not() {
        let live = live(100, 200 << 10);
        let (slow, quick, late) =
            (CancellationToken::new(), CancellationToken::new(), CancellationToken::new());
        let slow_mark = live.register_reader(slow.clone());
        let quick_mark = live.register_reader(quick.clone());
        let _late_mark = live.register_reader(late.clone());
        for _ in 0..2 {
            let next = live.head().next;
            live.take(next, 1, &slow_mark, &mut Vec::new());
            live.take(next, 1, &quick_mark, &mut Vec::new());
        }
        live.publish(some(1, 1 << 20), LiveState::Running);
        assert!(!slow.is_cancelled(), "nobody has had the time to take it");
        for _ in 0..6 {
            tokio::time::advance(BUSY / 2).await;
            live.publish(some(1, 64 << 10), LiveState::Running);
            live.take(live.head().next - 1, usize::MAX, &quick_mark, &mut Vec::new());
        }
        assert!(slow.is_cancelled());
        assert!(!quick.is_cancelled() && !late.is_cancelled());
    }
}
