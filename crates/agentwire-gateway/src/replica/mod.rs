//! This process as one of several on a store: its lease, and the runs that other processes drive.
//!
//! Every process has one lease in the store and renews it. The claims on its runs are live as long as the lease is, so a
//! process that cannot renew must not act as an owner for longer than the lease lasts; see [`lease`]. [`direct`] is the way past
//! the store, [`sealed`] the encryption of what the store must not read.

pub(crate) mod direct;
mod lease;
pub(crate) mod sealed;
mod tail;

pub(crate) use lease::{ProcessLease, RELEASED, TAIL_LOST, TAKEN_OVER, UNDRIVEN};
