//! Who may write: claims on runs, leases on threads.

use std::time::Duration;

use agentwire_core::event::{RunId, ThreadId};

use super::{Fence, Holder, Text};
use crate::clock::Time;

/// A wish to be the one process that writes to a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// Who claims.
    pub holder: Holder,
    /// Where others reach the holder, to follow the run live.
    pub address: Option<Text>,
    /// For how long, by the store's clock, unless renewed.
    pub ttl: Duration,
}

/// A claim that was granted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    /// The thread of the run.
    pub thread: ThreadId,
    /// The run that may write.
    pub run: RunId,
    /// The number that every write must carry.
    pub fence: Fence,
    /// Who holds it.
    pub holder: Holder,
    /// Where others reach the holder.
    pub address: Option<Text>,
    /// When it ends unless renewed.
    pub expires: Time,
    /// Whether it had not yet expired when it was read.
    pub live: bool,
}

/// What came of asking for a thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Acquire {
    /// The run has the thread, under a new fence.
    Granted(Lease),
    /// Another run has it, or stands before this one in the queue.
    Held(Lease),
}
