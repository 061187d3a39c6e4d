//! Claims on runs and leases on threads.

use std::time::Duration;

use agentwire_core::event::{RunId, ThreadId};

use super::{Fence, Holder, Text};
use crate::clock::Time;

/// A request to be the only process that writes to a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// The claiming process.
    pub holder: Holder,
    /// The URL at which other processes reach the holder to follow the run live.
    pub address: Option<Text>,
    /// Lifetime by the store's clock; [`Store::renew`](crate::Store::renew) extends it.
    pub ttl: Duration,
}

/// A granted claim.
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
    /// The URL at which other processes reach the holder.
    pub address: Option<Text>,
    /// Expiry unless renewed.
    pub expires: Time,
    /// Whether the lease had not expired when it was read.
    pub live: bool,
}

/// Result of [`Store::acquire`](crate::Store::acquire).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Acquire {
    /// The run has the thread, under a new fencing token.
    Granted(Lease),
    /// Another run has the thread or is ahead in the queue.
    Held(Lease),
}
