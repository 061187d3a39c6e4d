//! Threads: the merged conversation of a run and its branches, snapshots of messages and state, artifacts.

pub(crate) mod artifacts;
mod branch;
pub(crate) mod history;
pub(crate) mod snapshot;
