//! This process as one of several on a store: its lease, and the runs that other processes drive.
//!
//! Every process has one lease in the store and renews it. The claims on its runs are live as long as the lease is, so a
//! process that cannot renew must not act as an owner for longer than the lease lasts; see [`lease`].

mod lease;
mod tail;

pub(crate) use lease::{ProcessLease, RELEASED, TAKEN_OVER};
