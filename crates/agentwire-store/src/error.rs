//! When the store says no.

use std::{error::Error, sync::Arc};

use agentwire_core::event::RunId;

use crate::model::{PendingId, RunStatus, Seq};

/// The cause of an error, shared because one failed transaction fails all who were in it.
pub(crate) type Cause = Arc<dyn Error + Send + Sync>;

/// Why an operation was not done. Unless a variant says otherwise, nothing was changed.
///
/// The text is for people and may change; match on the variant.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// There is no such thing, or it belongs to somebody else: the two cannot be told apart.
    #[error("no such {0}")]
    NotFound(Missing),
    /// The caller does not, or no longer, hold what it wanted to write to.
    #[error("the fence is old or the claim has expired")]
    Fenced,
    /// The append does not continue the log.
    #[error("the append does not continue the log: event {expected} is next")]
    OutOfOrder {
        /// The number that the next event has.
        expected: Seq,
    },
    /// The run has ended; its log is closed for good.
    #[error("the run has ended as `{0}`")]
    Ended(RunStatus),
    /// The run is still live, and this needs an ended one.
    #[error("the run is still `{0}`")]
    Live(RunStatus),
    /// Somebody else was first with something different.
    #[error(transparent)]
    Conflict(#[from] Conflict),
    /// The pending item was not answered in time.
    #[error("the pending item `{0}` has expired")]
    Expired(PendingId),
    /// A bound of the store was reached by this one call; it will be refused again.
    #[error("{what} of {size} bytes is beyond the limit of {limit}")]
    TooLarge {
        /// What was too large.
        what: &'static str,
        /// Its size in bytes.
        size: usize,
        /// What is allowed.
        limit: usize,
    },
    /// No room left: the disk, the configured size of the file, or the limits of the memory store.
    #[error("the store is full")]
    Full,
    /// Another process holds the database; trying again is safe.
    #[error("the store is locked by another process")]
    Busy,
    /// The file is damaged or is not a database.
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
        /// The newest version that this code knows.
        known: i64,
    },
    /// The address of the store is not understood.
    #[error("unknown store `{0}` (allowed: `memory:`, `sqlite:PATH`)")]
    Address(Box<str>),
    /// The address names a backend that was left out of this build.
    #[error("the store `{address}` needs a build with the Cargo feature `{feature}`")]
    MissingFeature {
        /// The address.
        address: Box<str>,
        /// The Cargo feature of this crate that adds the backend.
        feature: &'static str,
    },
    /// This backend cannot do that.
    #[error("the {backend} store cannot {what}")]
    Unsupported {
        /// The backend.
        backend: &'static str,
        /// What it cannot do.
        what: &'static str,
    },
    /// The store has been shut down.
    #[error("the store is closed")]
    Closed,
    /// Reading or writing failed. Whether a write took effect is not known; trying again is safe.
    #[error("the store cannot be reached")]
    Io(#[source] Cause),
}

/// What was not found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say it all")]
pub enum Missing {
    Thread,
    Run,
    Pending,
}

impl std::fmt::Display for Missing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Thread => "thread",
            Self::Run => "run",
            Self::Pending => "pending item",
        })
    }
}

/// What somebody else was first with.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Conflict {
    /// The state has changed since the caller read it.
    #[error("the state has changed: it is at {current}")]
    State {
        /// The number of the current state.
        current: u64,
    },
    /// A run has the thread, and what it writes when it ends would replace the change.
    #[error("the run `{0}` has the thread")]
    Leased(RunId),
    /// The pending item was answered before, differently or together with others.
    #[error("the pending item `{0}` has another answer")]
    Answer(PendingId),
    /// A run cannot go from the one status to the other by an append.
    #[error("a run cannot go from `{from}` to `{to}`")]
    Status {
        /// The status it has.
        from: RunStatus,
        /// The status that was asked for.
        to: RunStatus,
    },
}

impl StoreError {
    /// Whether the fault lies with the database rather than with the request, so that a transaction that met
    /// it cannot go on.
    #[must_use]
    pub fn is_fault(&self) -> bool {
        matches!(self, Self::Full | Self::Busy | Self::Corrupt(_) | Self::Io(_))
    }

    #[cfg(feature = "sqlite")]
    pub(crate) fn io(cause: impl Error + Send + Sync + 'static) -> Self {
        Self::Io(Arc::new(cause))
    }
}
