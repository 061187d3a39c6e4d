//! Keeping the store small, and looking at its size.

use std::time::Duration;

/// What to keep. What is absent is kept for ever; what a live run needs is kept in any case.
///
/// A run whose log is dropped keeps its record, so that its id is never taken for a new run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Retention {
    /// Drop the logs, exact or compacted, and the inputs of runs that ended longer ago.
    pub log_age: Option<Duration>,
    /// Keep the logs of this many runs per thread, the newest.
    pub logs_per_thread: Option<usize>,
    /// Delete threads that were not touched for longer, with everything of them.
    pub thread_age: Option<Duration>,
    /// Keep this many threads per owner, the newest.
    pub threads_per_owner: Option<usize>,
}

/// What was given up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Retained {
    /// Logs dropped.
    pub logs: u64,
    /// Threads deleted.
    pub threads: u64,
    /// Waiting runs finished because everything they left open has expired.
    pub expired: u64,
}

/// The size of a store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// `memory` or `sqlite`.
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
    /// Pieces of feedback.
    pub feedback: u64,
    /// Events that can be read exactly.
    pub events: u64,
    /// Bytes of the logs, compacted ones included.
    pub log_bytes: u64,
    /// Bytes on disk, or held in memory.
    pub bytes: u64,
    /// Bytes on disk that hold nothing; `vacuum` gives them back.
    pub free_bytes: u64,
}
