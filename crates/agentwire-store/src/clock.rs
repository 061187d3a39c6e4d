//! The store's clock, handed in so that nothing here reads the time on its own.
//!
//! Claims, expiries and ages are judged by this clock alone. For a database server that is the server's clock;
//! for `memory:` and `sqlite:` it is the process's.

use std::{
    fmt,
    sync::atomic::{AtomicU64, Ordering},
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

/// A moment in milliseconds since the Unix epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(pub u64);

impl Time {
    /// The latest moment that every backend can hold.
    pub(crate) const MAX: Self = Self(i64::MAX as u64);

    /// This moment and a while; saturates.
    #[must_use]
    pub fn after(self, while_: Duration) -> Self {
        let millis = u64::try_from(while_.as_millis()).unwrap_or(u64::MAX);
        Self(self.0.saturating_add(millis)).min(Self::MAX)
    }

    /// A while before this moment; saturates at the epoch.
    #[must_use]
    pub fn before(self, while_: Duration) -> Self {
        Self(self.0.saturating_sub(u64::try_from(while_.as_millis()).unwrap_or(u64::MAX)))
    }
}

/// Says what time it is.
pub trait Clock: fmt::Debug + Send + Sync + 'static {
    /// The time now. Must not go backwards by itself.
    fn now(&self) -> Time;
}

/// The machine's clock, read once and carried on by the monotonic one.
///
/// When the machine's clock is set while the process lives, no claim is lost and none is kept for longer than
/// it was asked for. Processes that share a file agree as far as the machine's clock did when they started; if
/// it was set in between, a claim may be judged wrongly by the other one, and the fence keeps the log right.
#[derive(Debug)]
pub struct SystemClock {
    read_at: Instant,
    then: Time,
}

impl Default for SystemClock {
    fn default() -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self { read_at: Instant::now(), then: Time::default().after(since) }
    }
}

impl Clock for SystemClock {
    fn now(&self) -> Time {
        self.then.after(self.read_at.elapsed())
    }
}

/// A clock that stands still until it is moved; for tests.
#[derive(Debug, Default)]
pub struct ManualClock(AtomicU64);

impl ManualClock {
    /// A clock that shows `time`.
    #[must_use]
    pub fn at(time: Time) -> Self {
        Self(AtomicU64::new(time.0))
    }

    /// Moves the clock forward.
    pub fn advance(&self, by: Duration) {
        self.0.fetch_add(u64::try_from(by.as_millis()).unwrap_or(u64::MAX), Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Time {
        Time(self.0.load(Ordering::SeqCst)).min(Time::MAX)
    }
}
