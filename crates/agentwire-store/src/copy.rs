//! Copies all data from one store to another.

use agentwire_core::event::RunId;
use bytes::Bytes;

use crate::{
    error::StoreError,
    model::{Feedback, Fence, Owner, Pending, Run, Seq, Text, Thread},
    store::Store,
};

/// A thread with all its data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ThreadDump {
    /// Its owner.
    pub owner: Owner,
    /// The thread.
    pub thread: Thread,
    /// The run that has the thread.
    pub leased: Option<RunId>,
    /// The state as JSON.
    pub state: Option<Text>,
    /// The messages as JSON.
    pub messages: Option<Text>,
    /// The runs, oldest first.
    pub runs: Vec<RunDump>,
    /// The pending items, oldest first.
    pub pending: Vec<Pending>,
    /// The feedback, oldest first.
    pub feedback: Vec<Feedback>,
}

/// A run with all its data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunDump {
    /// The run.
    pub run: Run,
    /// The request that started it, as JSON; absent once retention has dropped it.
    pub input: Option<Text>,
    /// The rows of its log: none if it is compacted or dropped.
    pub log: Vec<LogRow>,
    /// The compacted log, packed.
    pub compacted: Option<Bytes>,
    /// True if retention has dropped the log.
    pub is_dropped: bool,
}

/// The events of one append.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogRow {
    /// The number of the first event.
    pub seq: Seq,
    /// The number of events.
    pub events: u32,
    /// The fencing token of the append.
    pub fence: Fence,
    /// The events, packed: each after its length, a little-endian `u32`.
    pub body: Bytes,
}

/// Counts of a copy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CopyReport {
    /// Copied threads.
    pub threads: u64,
    /// Copied runs.
    pub runs: u64,
    /// Copied API keys.
    pub keys: u64,
}

/// The reason why a copy failed.
#[derive(Clone, Debug, thiserror::Error)]
pub enum CopyError {
    /// The target has data.
    #[error("the target is not empty")]
    NotEmpty,
    /// The source cannot be read.
    #[error("the source cannot be read")]
    Read(#[source] StoreError),
    /// The target cannot be written.
    #[error("the target cannot be written")]
    Write(#[source] StoreError),
}

/// Copies all threads with their runs, logs, pending items and feedback, and all API keys. The target must be empty. A run that is live in
/// the source is an orphan in the target. No gateway may write to either store.
///
/// # Errors
///
/// See [`CopyError`]. A failed copy leaves a part of the data in the target.
pub async fn copy(from: &dyn Store, to: &dyn Store) -> Result<CopyReport, CopyError> {
    let present = to.stats().await.map_err(CopyError::Write)?;
    if present.threads > 0 || present.runs > 0 {
        return Err(CopyError::NotEmpty);
    }
    let mut report = CopyReport::default();
    let mut after = None;
    while let Some((place, thread)) = from.export(after).await.map_err(CopyError::Read)? {
        after = Some(place);
        report.threads += 1;
        report.runs += thread.runs.len() as u64;
        to.import(thread).await.map_err(CopyError::Write)?;
    }
    for key in from.key_changes(0).await.map_err(CopyError::Read)?.keys {
        report.keys += 1;
        to.add_key(key).await.map_err(CopyError::Write)?;
    }
    Ok(report)
}
