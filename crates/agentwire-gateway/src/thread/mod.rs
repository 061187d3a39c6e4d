//! Threads: the merged conversation of a run, snapshots of messages and state, artifacts.

pub(crate) mod artifacts;
pub(crate) mod history;
pub(crate) mod snapshot;
