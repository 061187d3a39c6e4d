//! Whose it is, and which one: names that cannot be mixed up.

use std::{fmt, sync::Arc};

use agentwire_core::event::RunId;

macro_rules! names {
    ($($(#[$doc:meta])* $name:ident;)+) => {$(
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(Arc<str>);

        impl $name {
            /// The name as text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }
        impl From<&str> for $name {
            fn from(text: &str) -> Self {
                Self(text.into())
            }
        }
        impl From<String> for $name {
            fn from(text: String) -> Self {
                Self(text.into())
            }
        }
        impl From<Arc<str>> for $name {
            fn from(text: Arc<str>) -> Self {
                Self(text)
            }
        }
        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(&*self.0, f)
            }
        }
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    )+};
}

names! {
    /// An organisation; nothing crosses from one to another.
    Tenant;
    /// A person or program within a tenant.
    UserId;
    /// Something a run waits for, named by whoever asked for it. Unique within its run.
    PendingId;
    /// A process that claims runs. Give each process its own name, or a name that outlives restarts of the one
    /// process that has it: then everything held under it at start-up is known to be orphaned.
    Holder;
}

/// Whose something is: the beginning of every key.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Owner {
    /// The organisation.
    pub tenant: Tenant,
    /// The user within it.
    pub user: UserId,
}

impl Owner {
    /// The user `user` of `tenant`.
    pub fn new(tenant: impl Into<Tenant>, user: impl Into<UserId>) -> Self {
        Self { tenant: tenant.into(), user: user.into() }
    }
}

/// A run by its full name.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RunKey {
    /// Whose it is.
    pub owner: Owner,
    /// Its id.
    pub run: RunId,
}

/// The number of an event in its run, from 0 without holes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Seq(pub u64);

impl Seq {
    /// The number `count` further on.
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

/// Proof of a claim: every new claim in a store gets a higher number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Fence(pub u64);
