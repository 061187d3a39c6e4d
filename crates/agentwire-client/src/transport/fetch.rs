//! The requests of a page: `fetch` of the browser.
//!
//! A page has one thread, and the values of JavaScript stay on it; the wrappers tell that to the compiler.

use std::pin::Pin;

use bytes::Bytes;
use futures_util::{Stream, StreamExt};
use reqwest::{Client, StatusCode, Url, header::HeaderMap};
use send_wrapper::SendWrapper;

use super::{HttpCall, TransportError};

/// The requests to one server.
#[derive(Debug)]
pub struct Transport(Client);

impl Transport {
    /// Requests to the server of a URL.
    #[must_use]
    pub fn new(_url: &Url) -> Self {
        Self(Client::new())
    }

    /// The same by an HTTP client of the caller.
    pub(crate) fn with_client(_url: &Url, client: Client) -> Self {
        Self(client)
    }

    /// Sends a request and waits for the head of the response, with any status.
    ///
    /// # Errors
    /// When there is no response.
    pub async fn send(&self, call: HttpCall) -> Result<Response, TransportError> {
        let client = self.0.clone();
        let sending = SendWrapper::new(async move {
            let mut request = client.request(call.method, call.url).headers(call.headers);
            if let Some(body) = call.body {
                request = request.body(body);
            }
            request.send().await.map(|response| Response {
                status: response.status(),
                headers: response.headers().clone(),
                body: SendWrapper::new(Box::pin(response.bytes_stream())),
            })
        });
        sending.await.map_err(|error| {
            let error = error.without_url();
            let kind = if error.is_builder() { TransportError::Request } else { TransportError::Broken };
            kind(error.into())
        })
    }
}

/// A response whose body arrives in pieces.
pub struct Response {
    status: StatusCode,
    headers: HeaderMap,
    body: SendWrapper<Pin<Box<dyn Stream<Item = Result<Bytes, reqwest::Error>>>>>,
}

impl Response {
    /// The status.
    #[must_use]
    pub fn status(&self) -> StatusCode {
        self.status
    }

    /// The header fields.
    #[must_use]
    pub fn headers(&self) -> &HeaderMap {
        &self.headers
    }

    /// The next piece of the body; `None` at its end.
    ///
    /// # Errors
    /// When the connection breaks.
    pub async fn chunk(&mut self) -> Result<Option<Bytes>, reqwest::Error> {
        SendWrapper::new(self.body.next()).await.transpose()
    }
}

impl std::fmt::Debug for Response {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Response").field("status", &self.status).finish_non_exhaustive()
    }
}
