//! The processor time of the current thread.

use std::{
    cell::Cell,
    time::{Duration, Instant},
};

/// The age up to which [`recent`] returns an earlier value: a value costs a system call.
const AGE: Duration = Duration::from_millis(1);

thread_local! {
    /// The time of the last value, and the value.
    static LAST: Cell<Option<(Instant, Duration)>> = const { Cell::new(None) };
}

/// The processor time of this thread.
pub(super) fn now() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.try_into().unwrap_or(0), time.tv_nsec.try_into().unwrap_or(0))
}

/// The processor time of this thread at `instant`, which is now, or up to a millisecond earlier.
pub(super) fn recent(instant: Instant) -> Duration {
    LAST.with(|last| match last.get() {
        Some((at, time)) if instant.saturating_duration_since(at) < AGE => time,
        _ => {
            let time = now();
            last.set(Some((instant, time)));
            time
        }
    })
}
