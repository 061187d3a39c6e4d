//! Errors of store operations.

use std::{error::Error, sync::Arc};

use agentwire_core::event::RunId;

use crate::model::{PendingId, RunStatus, Seq};

/// The cause of an error. Shared, because a failed transaction fails every write in its batch.
pub(crate) type Cause = Arc<dyn Error + Send + Sync>;

/// The reason why an operation failed. Unless a variant states otherwise, nothing was changed.
///
/// The text is for people and may change; match on the variant.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The record does not exist or belongs to another owner; callers cannot distinguish the two.
    #[error("no such {0}")]
    NotFound(Missing),
    /// The caller does not, or no longer, hold the claim that the write needs.
    #[error("the fence is old or the claim has expired")]
    Fenced,
    /// The append does not continue the log.
    #[error("the append does not continue the log: event {expected} is next")]
    OutOfOrder {
        /// The number of the next event.
        expected: Seq,
    },
    /// The run has ended; its log is closed.
    #[error("the run has ended as `{0}`")]
    Ended(RunStatus),
    /// The operation needs an ended run, and this run is still live.
    #[error("the run is still `{0}`")]
    Live(RunStatus),
    /// A concurrent change came first.
    #[error(transparent)]
    Conflict(#[from] Conflict),
    /// The deadline of the pending item has passed.
    #[error("the pending item `{0}` has expired")]
    Expired(PendingId),
    /// One call exceeds a size limit; a retry fails again.
    #[error("{what} of {size} bytes is beyond the limit of {limit}")]
    TooLarge {
        /// The item that is too large.
        what: &'static str,
        /// Its size in bytes.
        size: usize,
        /// The allowed size in bytes.
        limit: usize,
    },
    /// No space left: on the disk, within the configured file size, or within the limits of the memory store.
    #[error("the store is full")]
    Full,
    /// Another process has locked the database; a retry is safe.
    #[error("the store is locked by another process")]
    Busy,
    /// The file is damaged or not a database.
    #[error("the store is damaged: {0}")]
    Corrupt(Box<str>),
    /// The file belongs to another program.
    #[error("`{0}` is a database of another program")]
    Foreign(Box<str>),
    /// The file was written by a newer version of agentwire.
    #[error("the store has schema version {found}, this version of agentwire knows up to {known}")]
    Version {
        /// The version in the file.
        found: i64,
        /// The newest version that this code supports.
        known: i64,
    },
    /// The schema of the database is older than this version of agentwire.
    #[error(
        "the store has schema version {found}, this version of agentwire needs {known}: run `agentwire store migrate`"
    )]
    Outdated {
        /// The version in the database.
        found: i64,
        /// The version that this code needs.
        known: i64,
    },
    /// The address has no known form.
    #[error("unknown store `{0}` (allowed: `memory:`, `sqlite:PATH`, `postgres://…`)")]
    Address(Box<str>),
    /// The address names a backend that was left out of this build.
    #[error("the store `{address}` needs a build with the Cargo feature `{feature}`")]
    MissingFeature {
        /// The address.
        address: Box<str>,
        /// The Cargo feature of this crate that adds the backend.
        feature: &'static str,
    },
    /// The backend lacks this operation.
    #[error("the {backend} store cannot {what}")]
    Unsupported {
        /// The backend.
        backend: &'static str,
        /// The operation, as a verb phrase.
        what: &'static str,
    },
    /// The store has been shut down.
    #[error("the store is closed")]
    Closed,
    /// The server refuses the user, the database, the encryption or the statement; a retry does not help before somebody
    /// changes its configuration or the address.
    #[error("the store refuses")]
    Refused(#[source] Cause),
    /// Reading or writing failed. A write may or may not have taken effect; a retry is safe.
    #[error("the store cannot be reached")]
    Io(#[source] Cause),
}

/// The kind of record that was not found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are self-explanatory")]
pub enum Missing {
    Thread,
    Run,
    Pending,
    Key,
}

impl std::fmt::Display for Missing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Thread => "thread",
            Self::Run => "run",
            Self::Pending => "pending item",
            Self::Key => "API key",
        })
    }
}

/// A conflict with a concurrent change.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Conflict {
    /// The state has changed since the caller read it.
    #[error("the state has changed: it is at {current}")]
    State {
        /// The number of the current state.
        current: u64,
    },
    /// The metadata or the messages have changed since the caller read them.
    #[error("the thread has changed")]
    Thread,
    /// A run has the thread; the state it writes at its end would overwrite the change.
    #[error("the run `{0}` has the thread")]
    Leased(RunId),
    /// The run that has the thread is an orphan; the state that it left is not written yet.
    #[error("the run `{0}` has the thread and no writer")]
    Orphan(RunId),
    /// The pending item has a different answer, or was answered in a different set.
    #[error("the pending item `{0}` has another answer")]
    Answer(PendingId),
    /// The pending item has changed since the caller read it.
    #[error("the pending item `{0}` has changed")]
    Item(PendingId),
    /// An API key with this id exists.
    #[error("the id of the key is in use")]
    Key,
    /// The status change is not allowed.
    #[error("a run cannot go from `{from}` to `{to}`")]
    Status {
        /// The current status.
        from: RunStatus,
        /// The requested status.
        to: RunStatus,
    },
}

impl StoreError {
    /// Whether the database failed rather than the request, so that the surrounding transaction must be rolled back.
    #[must_use]
    pub fn is_fault(&self) -> bool {
        matches!(self, Self::Full | Self::Busy | Self::Corrupt(_) | Self::Refused(_) | Self::Io(_))
    }

    /// True if the database is unreachable or unusable for the moment, so that waiting may help.
    #[must_use]
    pub fn is_outage(&self) -> bool {
        matches!(self, Self::Full | Self::Busy | Self::Io(_))
    }

    #[cfg(any(feature = "sqlite", feature = "postgres"))]
    pub(crate) fn io(cause: impl Error + Send + Sync + 'static) -> Self {
        Self::Io(Arc::new(cause))
    }
}
