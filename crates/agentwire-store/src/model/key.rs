//! Keys: owners, ids, sequence numbers and fencing tokens, each a type of its own.

use std::fmt;

use agentwire_core::event::RunId;

agentwire_core::string_id! {
    /// An organisation. No data crosses from one tenant to another.
    Tenant;
    /// A person or program within a tenant.
    UserId;
    /// The name of an agent, or of a group of agents that share their threads.
    AgentName;
    /// The id of a pending item, chosen by the agent or front end that created it. Unique within its run.
    PendingId;
    /// The name of a process that claims runs. Each process needs a name that no other process has or had.
    Holder;
}

/// The tenant, user and agent that data belongs to: the prefix of every key.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Owner {
    /// The organisation.
    pub tenant: Tenant,
    /// The user within it.
    pub user: UserId,
    /// The agent, or the group of agents that share their threads.
    pub agent: AgentName,
}

impl Owner {
    /// The user `user` of `tenant` as a client of `agent`.
    pub fn new(tenant: impl Into<Tenant>, user: impl Into<UserId>, agent: impl Into<AgentName>) -> Self {
        Self { tenant: tenant.into(), user: user.into(), agent: agent.into() }
    }
}

/// The full key of a run.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RunKey {
    /// The owner of the run.
    pub owner: Owner,
    /// The id of the run.
    pub run: RunId,
}

/// The number of an event in its run, from 0 without gaps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Seq(pub u64);

impl Seq {
    /// Behind every event.
    pub const MAX: Self = Self(u64::MAX);

    /// The number `count` positions later; saturates.
    #[must_use]
    pub fn plus(self, count: usize) -> Self {
        Self(self.0.saturating_add(count as u64))
    }
}

impl fmt::Display for Seq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The fencing token of a claim: every new claim on a run gets a higher number than all earlier ones on a run with this key,
/// also if the run was deleted in between, and a write with a lower one is rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Fence(pub u64);
