//! Outbound HTTP: the parts shared by upstreams, hook servers and the feedback webhook.

use reqwest::{Client, ClientBuilder, Url, redirect};

/// A client for one URL. It follows no redirect: a request must not be sent twice, nor to another server. No proxy is
/// used for this machine.
pub(crate) fn client(url: &Url) -> ClientBuilder {
    let builder = Client::builder().redirect(redirect::Policy::none());
    if is_loopback(url) { builder.no_proxy() } else { builder }
}

/// True if a URL names this machine, which no proxy can reach.
#[must_use]
pub fn is_loopback(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default();
    let address = host.trim_start_matches('[').trim_end_matches(']').parse::<std::net::IpAddr>();
    address.is_ok_and(|address| address.is_loopback()) || host == "localhost" || host.ends_with(".localhost")
}
