//! Settings of the limits of one user, tenant or peer.

use std::time::Duration;

/// A number of actions within a period; as many may happen at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// The number of actions, at least one.
    pub count: u32,
    /// The period.
    pub period: Duration,
}

impl Rate {
    /// `count` actions within `period`.
    #[must_use]
    pub fn new(count: u32, period: Duration) -> Self {
        Self { count: count.max(1), period }
    }
}

/// Limits of one user, or of all users of a tenant; `None` is no limit. They apply where there is more than one user.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PartyLimits {
    /// Requests.
    pub requests: Option<Rate>,
    /// Concurrent live runs. Joining a run that exists is never refused.
    pub runs: Option<usize>,
    /// Concurrent streams.
    pub readers: Option<usize>,
    /// Stored threads.
    pub threads: Option<usize>,
    /// Stored bytes.
    pub storage: Option<u64>,
    /// Started runs.
    pub run_starts: Option<Rate>,
}

impl PartyLimits {
    /// The defaults of a user.
    #[must_use]
    pub fn of_user() -> Self {
        Self {
            requests: None,
            // Tabs and background work of one person.
            runs: Some(64),
            readers: Some(256),
            threads: None,
            storage: None,
            run_starts: None,
        }
    }

    /// The defaults of a tenant.
    #[must_use]
    pub fn of_tenant() -> Self {
        Self { runs: Some(128), readers: Some(512), ..Self::of_user() }
    }
}

/// Limits of one peer address.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PeerLimits {
    /// Requests; no limit by default.
    pub requests: Option<Rate>,
    /// Failed authentications. It refuses only requests without a valid credential, so that nobody can lock others out
    /// behind one address.
    pub failures: Option<Rate>,
    /// Concurrent connections. Without it 1000 for addresses beyond this machine. Those of `proxies` have no limit.
    pub connections: Option<usize>,
}

impl Default for PeerLimits {
    fn default() -> Self {
        Self { requests: None, failures: Some(Rate::new(30, Duration::from_secs(60))), connections: None }
    }
}

/// The circuit breaker of an agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BreakerSettings {
    /// Failures in a row to reach the agent that open it; `None` never does.
    pub failures: Option<u32>,
    /// The time for which new runs are refused, until one tries again.
    pub open: Duration,
}

impl Default for BreakerSettings {
    fn default() -> Self {
        Self { failures: Some(10), open: Duration::from_secs(10) }
    }
}

/// The limit of the memory governor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MemoryLimit {
    /// That of the control group of the process, if it has one: the limit of a container.
    #[default]
    Cgroup,
    /// None.
    Unlimited,
    /// A number of bytes.
    Bytes(u64),
}
