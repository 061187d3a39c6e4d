//! The parties that limits are counted for.

use std::net::{IpAddr, Ipv6Addr};

use agentwire_store::Owner;

/// A party with limits of its own.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Party {
    /// A user of a tenant.
    User { tenant: Box<str>, user: Box<str> },
    /// A tenant.
    Tenant(Box<str>),
    /// The address of a peer; of IPv6 its network of 64 bits, which one machine can have as a whole.
    Peer(IpAddr),
    /// Requests without an address, in an app that serves the routes without them.
    Anybody,
}

impl From<&Owner> for Party {
    fn from(owner: &Owner) -> Self {
        Self::user(owner)
    }
}

impl Party {
    pub(crate) fn user(owner: &Owner) -> Self {
        Self::User { tenant: owner.tenant.as_str().into(), user: owner.user.as_str().into() }
    }

    pub(crate) fn tenant(owner: &Owner) -> Self {
        Self::Tenant(owner.tenant.as_str().into())
    }

    pub(crate) fn peer(address: Option<IpAddr>) -> Self {
        match address {
            Some(IpAddr::V6(address)) => {
                let network = address.to_bits() & !u128::from(u64::MAX);
                Self::Peer(IpAddr::V6(Ipv6Addr::from_bits(network)))
            }
            Some(address) => Self::Peer(address),
            None => Self::Anybody,
        }
    }

    /// Its kind, as in the keys of the configuration and in `RateLimit`.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::User { .. } => "user",
            Self::Tenant(_) => "tenant",
            Self::Peer(_) | Self::Anybody => "peer",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_of_64_bits_is_one_peer() {
        let peer = |text: &str| Party::peer(Some(text.parse().expect("an address")));
        assert_eq!(peer("2001:db8::1"), peer("2001:db8::ffff:0:2"));
        assert_ne!(peer("2001:db8::1"), peer("2001:db8:0:1::1"));
        assert_ne!(peer("192.0.2.1"), peer("192.0.2.2"));
    }
}
