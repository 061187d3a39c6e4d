//! HTTP connections to agents, for this client and for the upstreams of a gateway.
//!
//! A request is sent once, to the server that was named: redirects are refused, and no connection is used again, because
//! a server may close an idle connection at the moment of its reuse. Requests to this machine use no proxy; all others
//! use the proxy of the environment. In a browser, `fetch` sends the requests by its own rules.

#[cfg(not(target_family = "wasm"))]
mod body;
#[cfg(not(target_family = "wasm"))]
mod chunked;
#[cfg(not(target_family = "wasm"))]
mod direct;
#[cfg(target_family = "wasm")]
mod fetch;
#[cfg(not(target_family = "wasm"))]
mod head;
#[cfg(not(target_family = "wasm"))]
mod native;
#[cfg(not(target_family = "wasm"))]
mod roots;

use std::{error::Error, net::IpAddr, time::Duration};

use reqwest::{Method, Url, header::HeaderMap};

#[cfg(target_family = "wasm")]
pub use self::fetch::{Response, Transport};
#[cfg(not(target_family = "wasm"))]
pub use self::native::{Response, Transport, builder, client_builder};

/// One request.
#[derive(Clone, Debug)]
pub struct HttpCall {
    /// The method.
    pub method: Method,
    /// The URL.
    pub url: Url,
    /// The header fields.
    pub headers: HeaderMap,
    /// The body.
    pub body: Option<String>,
    /// The longest wait for the connection; unused in a browser, which has no such limit.
    pub connect: Option<Duration>,
}

/// The failure of a request without a response. No URL is part of the text: its query may have secrets.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TransportError {
    /// The connection took too long.
    #[error("the connection could not be made in time")]
    ConnectTimeout,
    /// The server could not be reached.
    #[error("the connection could not be made")]
    Connect(#[source] Box<dyn Error + Send + Sync>),
    /// The response is not HTTP.
    #[error("the answer is not HTTP")]
    NotHttp(#[source] Box<dyn Error + Send + Sync>),
    /// The connection broke before the response.
    #[error("the connection broke")]
    Broken(#[source] Box<dyn Error + Send + Sync>),
    /// The request or the HTTP client is invalid; nothing was sent.
    #[error("the request could not be made")]
    Request(#[source] Box<dyn Error + Send + Sync>),
}

/// True if a URL names this machine, which no proxy can reach.
#[must_use]
pub fn is_loopback(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default();
    let address = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    address.is_ok_and(|address| address.is_loopback()) || host == "localhost" || host.ends_with(".localhost")
}

#[cfg(all(test, not(target_family = "wasm")))]
mod tests;
