//! The store's clock, injected so that no other code reads the time.
//!
//! Claims, expiries and ages are judged by this clock alone. For a database server it is the server's clock; for
//! `memory:` and `sqlite:` it is the clock of the process.

use std::{
    fmt,
    sync::atomic::{AtomicU64, Ordering},
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

/// A point in time, in milliseconds since the Unix epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(pub u64);

impl Time {
    /// The latest time that every backend can store.
    pub(crate) const MAX: Self = Self(i64::MAX as u64);

    /// This time plus a duration; saturates.
    #[must_use]
    pub fn after(self, duration: Duration) -> Self {
        let millis = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
        Self(self.0.saturating_add(millis)).min(Self::MAX)
    }

    /// This time minus a duration; saturates at the epoch.
    #[must_use]
    pub fn before(self, duration: Duration) -> Self {
        Self(self.0.saturating_sub(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)))
    }
}

/// A source of the current time.
pub trait Clock: fmt::Debug + Send + Sync + 'static {
    /// The current time. Must be monotonic.
    fn now(&self) -> Time;
}

/// The system clock, read once and advanced by the monotonic clock.
///
/// Setting the system clock while the process runs neither loses a claim nor extends one. Processes that share a file
/// agree as far as the system clock did when they started: if it was set in between, one process may misjudge the
/// expiry of another's claim, and the fencing token keeps the log correct.
#[derive(Debug)]
pub struct SystemClock {
    read_at: Instant,
    base: Time,
}

impl Default for SystemClock {
    fn default() -> Self {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self { read_at: Instant::now(), base: Time::default().after(since_epoch) }
    }
}

impl Clock for SystemClock {
    fn now(&self) -> Time {
        self.base.after(self.read_at.elapsed())
    }
}

/// A clock that only moves by [`ManualClock::advance`]; for tests.
#[derive(Debug, Default)]
pub struct ManualClock(AtomicU64);

impl ManualClock {
    /// A clock that shows `time`.
    #[must_use]
    pub fn at(time: Time) -> Self {
        Self(AtomicU64::new(time.0))
    }

    /// Moves the clock back, as a corrected system clock does.
    pub fn rewind(&self, by: Duration) {
        self.0.fetch_sub(u64::try_from(by.as_millis()).unwrap_or(u64::MAX), Ordering::SeqCst);
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
