//! Quotas that a start must keep, counted in the store: for all processes on it.

/// The quotas of a user and of its tenant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Quotas {
    /// Of the user.
    pub user: Quota,
    /// Of all users of the tenant.
    pub tenant: Quota,
}

/// The most that a user or tenant may have; no limit if absent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Quota {
    /// Live runs.
    pub runs: Option<u64>,
    /// Threads.
    pub threads: Option<u64>,
    /// Bytes of messages, states, run inputs and logs. A run starts if its input fits, and may then add more.
    pub bytes: Option<u64>,
}

impl Quota {
    /// True if nothing is limited.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// A quota by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QuotaKind {
    /// [`Quota::runs`].
    Runs,
    /// [`Quota::threads`].
    Threads,
    /// [`Quota::bytes`].
    Bytes,
}
