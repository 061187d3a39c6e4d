//! Retention rules and statistics.

use std::time::Duration;

/// Retention rules. A rule that is absent keeps data forever; data that a live run needs is always kept.
///
/// A run whose log is dropped keeps its record, so that its id is never reused for a new run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Retention {
    /// Drop the logs, exact or compacted, and the inputs of runs that ended longer ago.
    pub log_age: Option<Duration>,
    /// Keep the logs of this many runs per thread, the newest.
    pub logs_per_thread: Option<usize>,
    /// Delete threads without a change for longer, with all their data.
    pub thread_age: Option<Duration>,
    /// Keep this many threads per owner, the newest.
    pub threads_per_owner: Option<usize>,
}

/// Counts of the records that [`Store::retain`](crate::Store::retain) removed or finished.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RetentionReport {
    /// Dropped logs.
    pub logs: u64,
    /// Deleted threads.
    pub threads: u64,
    /// Waiting runs that were finished because all their pending items have expired.
    pub expired: u64,
}

/// Result of [`Store::move_threads`](crate::Store::move_threads).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MoveReport {
    /// Moved threads.
    pub moved: u64,
    /// Threads that were left in place: they have a live run, or the target has a thread or run with the same id.
    pub left: u64,
}

/// The stored data of a user or tenant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Number of live runs.
    pub runs: u64,
    /// Number of threads.
    pub threads: u64,
    /// Bytes of messages, states, run inputs and logs.
    pub bytes: u64,
}

/// Record counts and sizes of a store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// `memory`, `sqlite` or `postgres`.
    pub backend: &'static str,
    /// The version of the schema; 0 if the backend has none.
    pub schema_version: i64,
    /// Threads of all owners.
    pub threads: u64,
    /// Runs of all owners.
    pub runs: u64,
    /// Runs that are queued, running or paused.
    pub live_runs: u64,
    /// Pending items that can be answered.
    pub open_pending: u64,
    /// Feedback records.
    pub feedback: u64,
    /// Events in exact logs.
    pub events: u64,
    /// Bytes of the logs, compacted ones included.
    pub log_bytes: u64,
    /// Bytes on disk or in memory.
    pub bytes: u64,
    /// Unused bytes on disk, which [`Store::vacuum`](crate::Store::vacuum) releases.
    pub free_bytes: u64,
}

/// The server behind a store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ServerIdentity {
    /// The identifier of the database system; 0 if the server hides it.
    pub system: i64,
    /// The timeline of the system, which changes when a standby is promoted; 0 if the server hides it.
    pub timeline: i32,
    /// The epoch of the store; see [`LogSlice::epoch`](super::LogSlice::epoch).
    pub epoch: u32,
}

/// The size of a store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreSize {
    /// Bytes on disk or in memory.
    pub bytes: u64,
    /// Unused bytes on disk among them.
    pub free_bytes: u64,
}
