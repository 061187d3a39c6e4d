//! The connections of a program: plain HTTP by its own connection, everything else by an HTTP client.

use std::{
    error::Error,
    sync::{Mutex, PoisonError},
    time::Duration,
};

pub use reqwest::Response;
use reqwest::{Client, ClientBuilder, Url, redirect};

use super::{HttpCall, TransportError, direct::DirectConnector, is_loopback, roots::with_roots};

/// The keepalive interval, by which the loss of an idle connection is detected.
pub(super) const KEEPALIVE: Duration = Duration::from_secs(30);

impl From<reqwest::Error> for TransportError {
    fn from(error: reqwest::Error) -> Self {
        let error = error.without_url();
        if error.is_connect() && error.is_timeout() {
            return Self::ConnectTimeout;
        }
        let is_parse = sources(&error)
            .find_map(|cause| cause.downcast_ref::<hyper::Error>())
            .is_some_and(hyper::Error::is_parse);
        let kind = match () {
            () if error.is_connect() => Self::Connect,
            () if error.is_builder() => Self::Request,
            () if is_parse => Self::NotHttp,
            () => Self::Broken,
        };
        kind(error.into())
    }
}

/// The connections to one server.
#[derive(Debug)]
pub struct Transport {
    url: Url,
    /// The client for plain HTTP without a proxy.
    direct: Option<DirectConnector>,
    /// The client for all other URLs, with the connect timeout it was built with: requests to one server have the same.
    client: Mutex<Option<(Option<Duration>, Client)>>,
    given: Option<Client>,
}

impl Transport {
    /// Connections to the server of a URL.
    #[must_use]
    pub fn new(url: &Url) -> Self {
        let direct = DirectConnector::new(url, !is_loopback(url));
        Self { url: url.clone(), direct, client: Mutex::new(None), given: None }
    }

    /// The same by an HTTP client of the caller.
    pub(crate) fn with_client(url: &Url, client: Client) -> Self {
        Self { url: url.clone(), direct: None, client: Mutex::new(None), given: Some(client) }
    }

    /// Sends a request and waits for the head of the response, with any status.
    ///
    /// # Errors
    /// When there is no response.
    pub async fn send(&self, call: HttpCall) -> Result<Response, TransportError> {
        if let Some(direct) = self.direct.as_ref().filter(|_| call.url.origin() == self.url.origin()) {
            return direct.send(call.method, &call.url, &call.headers, call.body, call.connect).await;
        }
        let client = match &self.given {
            Some(client) => client.clone(),
            None => self.client(call.connect)?,
        };
        let mut request = client.request(call.method, call.url).headers(call.headers);
        if let Some(body) = call.body {
            request = request.body(body);
        }
        Ok(request.send().await?)
    }

    fn client(&self, connect: Option<Duration>) -> Result<Client, TransportError> {
        let mut cached = self.client.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((time, client)) = &*cached
            && *time == connect
        {
            return Ok(client.clone());
        }
        let mut builder = client_builder(&self.url).pool_max_idle_per_host(0).tcp_keepalive(KEEPALIVE);
        if let Some(time) = connect {
            builder = builder.connect_timeout(time);
        }
        let client = builder.build().map_err(|error| TransportError::Request(error.into()))?;
        *cached = Some((connect, client.clone()));
        Ok(client)
    }
}

/// A builder of HTTP clients, with the TLS of this crate. It trusts the authorities of the system, or those of Mozilla if the
/// system has none. A program that has chosen a default for rustls keeps its own.
pub fn builder() -> ClientBuilder {
    // Fails if there is a default already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    with_roots(Client::builder())
}

/// An HTTP client for one URL. It follows no redirect: a request must not be sent twice, nor to another server. No proxy
/// is used for this machine.
pub fn client_builder(url: &Url) -> ClientBuilder {
    let builder = builder().redirect(redirect::Policy::none());
    if is_loopback(url) { builder.no_proxy() } else { builder }
}

/// The causes of an error, from the outermost.
pub(crate) fn sources<'a>(
    error: &'a (dyn Error + 'static),
) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    std::iter::successors(error.source(), |&error| error.source())
}
