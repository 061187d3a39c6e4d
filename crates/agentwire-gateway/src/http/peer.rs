//! The peer of a request: the address for limits, the audit log and proxy authentication.
//!
//! A peer is the address of the connection, unless that is one of the `proxies`; then it is the right-most address of
//! `X-Forwarded-For` that is none of them. Addresses further left are claims of the client.

use std::net::{IpAddr, SocketAddr};

use axum::{
    extract::ConnectInfo,
    http::{Extensions, HeaderMap, HeaderName, request::Parts},
};
use ipnet::IpNet;

use super::request::Connection;

const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// The peer of a request; an extension that [`super::checks`] adds. It has none in an app that serves the routes without
/// the addresses of its connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Peer(pub(crate) Option<IpAddr>);

impl Peer {
    /// The peer of a request that has passed the checks.
    pub(crate) fn of(parts: &Parts) -> Self {
        parts.extensions.get().copied().unwrap_or(Self(None))
    }

    /// Finds the peer of a request.
    pub(crate) fn find(extensions: &Extensions, headers: &HeaderMap, proxies: &[IpNet]) -> Self {
        Self(connection_address(extensions).map(|address| behind_proxies(address, headers, proxies)))
    }
}

/// The address of the connection that a request came by.
pub(crate) fn connection_address(extensions: &Extensions) -> Option<IpAddr> {
    let own = extensions.get::<Connection>().and_then(|connection| connection.address);
    // An app of someone else, served by axum.
    let other = || extensions.get::<ConnectInfo<SocketAddr>>().map(|info| info.0.ip());
    own.or_else(other).map(|address| address.to_canonical())
}

/// True if an address is in one of the networks.
pub(crate) fn is_in(address: IpAddr, networks: &[IpNet]) -> bool {
    let address = address.to_canonical();
    networks.iter().any(|network| network.contains(&address))
}

/// The client behind `address`, as far as the proxies can be trusted.
fn behind_proxies(address: IpAddr, headers: &HeaderMap, proxies: &[IpNet]) -> IpAddr {
    let mut found = address;
    // Each line was added after the one before it.
    let lines = headers.get_all(FORWARDED_FOR).iter().map(|line| line.to_str().unwrap_or_default());
    let mut hops: Vec<&str> = lines.flat_map(|line| line.split(',')).collect();
    while is_in(found, proxies) {
        // A hop without a readable address ends the chain: the proxy that added it is the last known address.
        match hops.pop().and_then(hop) {
            Some(next) => found = next,
            None => break,
        }
    }
    found
}

/// An address of `X-Forwarded-For`, which may have a port.
fn hop(text: &str) -> Option<IpAddr> {
    let text = text.trim();
    let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
    let address = bare.parse().ok().or_else(|| text.parse::<SocketAddr>().ok().map(|address| address.ip()));
    address.map(|address: IpAddr| address.to_canonical())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(connection: &str, forwarded: &[&str], proxies: &[&str]) -> String {
        let mut headers = HeaderMap::new();
        for line in forwarded {
            headers.append(FORWARDED_FOR, line.parse().expect("a header"));
        }
        let proxies: Vec<IpNet> = proxies.iter().map(|network| network.parse().expect("a network")).collect();
        let mut extensions = Extensions::new();
        let address = Some(connection.parse().expect("an address"));
        extensions.insert(Connection { address, ..Connection::default() });
        Peer::find(&extensions, &headers, &proxies).0.expect("an address").to_string()
    }

    #[test]
    fn the_connection_is_the_peer_unless_it_is_a_proxy() {
        assert_eq!(peer("192.0.2.1", &["198.51.100.7"], &[]), "192.0.2.1");
        assert_eq!(peer("192.0.2.1", &["198.51.100.7"], &["10.0.0.0/8"]), "192.0.2.1");
        assert_eq!(peer("::ffff:192.0.2.1", &[], &[]), "192.0.2.1");
    }

    #[test]
    fn the_right_most_address_beyond_the_proxies_is_the_peer() {
        let proxies = &["10.0.0.0/8", "2001:db8::/32", "192.0.2.1/32"];
        for (forwarded, expected) in [
            (&["198.51.100.7"][..], "198.51.100.7"),
            (&["203.0.113.9, 198.51.100.7"], "198.51.100.7"),
            (&["203.0.113.9, 198.51.100.7, 10.1.2.3,2001:db8::5"], "198.51.100.7"),
            (&["10.9.9.9", "203.0.113.9", "10.1.2.3"], "203.0.113.9"),
            (&["198.51.100.7:4711"], "198.51.100.7"),
            (&["[2001:470::1]:4711"], "2001:470::1"),
            (&["[2001:470::1]"], "2001:470::1"),
            (&["::ffff:10.1.2.3"], "10.1.2.3"),
            (&["198.51.100.7, ::ffff:10.1.2.3"], "198.51.100.7"),
            // Nothing to read, or nothing readable: the last known address.
            (&[], "10.0.0.1"),
            (&[""], "10.0.0.1"),
            (&["198.51.100.7, unknown"], "10.0.0.1"),
            (&["198.51.100.7, 10.1.2.3 10.1.2.4"], "10.0.0.1"),
            (&["198.51.100.7, _hidden, 10.1.2.3"], "10.1.2.3"),
            (&["10.7.7.7, 10.8.8.8"], "10.7.7.7"),
        ] {
            assert_eq!(peer("10.0.0.1", forwarded, proxies), expected, "{forwarded:?}");
        }
    }
}
