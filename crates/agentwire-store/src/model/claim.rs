//! Leases: of processes, on runs and on threads.

use agentwire_core::event::{RunId, ThreadId};

use super::{Fence, Holder};

/// The lease on a thread: the run that has it, and the claim on that run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    /// The thread of the run.
    pub thread: ThreadId,
    /// The claimed run.
    pub run: RunId,
    /// The fencing token that every write must carry.
    pub fence: Fence,
    /// The claiming process.
    pub holder: Holder,
    /// True if the claim was live when it was read: not released, and its holder's lease had not expired. Otherwise the
    /// run is an orphan, and the thread is not free before it has ended.
    pub live: bool,
}

/// Result of [`Store::acquire`](crate::Store::acquire).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Acquire {
    /// The run has the thread, under a new fencing token.
    Granted(Lease),
    /// Another run has the thread or is ahead in the queue.
    Held(Lease),
    /// The run that has the thread, or the first one in the queue, is an orphan; nothing was changed. The caller takes it
    /// over, ends or continues it, and tries again.
    Orphan(RunId),
}
