//! A plain HTTP/1.1 connection that is read in the task of its run.
//!
//! A client with a pool has a task per connection that hands over one chunk of the body at a time. For a stream of small
//! events that is two more task switches each, and the events of an agent that is faster than the log are appended one
//! by one. Here the task that reads the body reads the socket, and all bytes of one read are one chunk. A run uses its
//! connection once, so there is nothing to pool.
//!
//! `hyper::client::conn::http1` writes the request and decodes the response; its connection is polled in the run's task,
//! and chunks that are ready are joined into one.

use std::{
    future::poll_fn,
    pin::{Pin, pin},
};

use bytes::Bytes;
use http_body_util::Full;
use hyper::{
    body::Incoming,
    client::conn::http1::{Builder, Connection},
};
use hyper_util::{
    client::{legacy::connect::HttpConnector, proxy::matcher::Matcher},
    rt::TokioIo,
};
use reqwest::{
    Method, Response, Url,
    header::{CONTENT_LENGTH, HOST, HeaderMap, HeaderValue, TRANSFER_ENCODING},
};
use tokio::{
    net::TcpStream,
    time::{Duration, timeout},
};
use tower::ServiceExt;

use super::{TransportError, body::DirectBody, native::KEEPALIVE};

/// The largest head of a response: twice the limit that servers have for requests.
pub(super) const MAX_HEAD: usize = 32 << 10;

/// The largest number of header fields: the limit of hyper.
const MAX_FIELDS: usize = 100;

/// The connection of one request.
pub(super) type DirectConnection = Connection<TokioIo<TcpStream>, Full<Bytes>>;

/// Connects to one server without a proxy.
#[derive(Debug)]
pub(super) struct DirectConnector {
    connector: HttpConnector,
    authority: HeaderValue,
}

impl DirectConnector {
    /// `None` if the URL needs TLS, credentials or a proxy.
    pub(super) fn new(url: &Url, is_proxied: bool) -> Option<Self> {
        if url.scheme() != "http" || !url.username().is_empty() || url.password().is_some() {
            return None;
        }
        if is_proxied && Matcher::from_env().intercept(&url.as_str().parse().ok()?).is_some() {
            return None;
        }
        let host = url.host_str()?;
        let authority = match url.port() {
            Some(port) => format!("{host}:{port}"),
            None => host.to_owned(),
        };
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        connector.set_keepalive(Some(KEEPALIVE));
        Some(Self { connector, authority: authority.parse().ok()? })
    }

    /// Sends a request and waits for the head of the response.
    pub(super) async fn send(
        &self,
        method: Method,
        url: &Url,
        headers: &HeaderMap,
        body: Option<String>,
        connect: Option<Duration>,
    ) -> Result<Response, TransportError> {
        let stream = self.connect(url, connect).await?;
        let request = self.request(method, url, headers, body)?;
        let (mut sender, connection) = Builder::new()
            .max_headers(MAX_FIELDS)
            .max_header_size(MAX_HEAD)
            .handshake(stream)
            .await
            .map_err(unanswered)?;
        let mut connection = Some(connection);
        let mut sending = pin!(sender.send_request(request));
        let response = poll_fn(|cx| {
            connection.take_if(|connection| Pin::new(connection).poll(cx).is_ready());
            sending.as_mut().poll(cx)
        });
        let response = response.await.map_err(unanswered)?;
        check_coding(&response)?;
        let response = response.map(|incoming| DirectBody { connection, incoming, problem: None });
        Ok(response.map(reqwest::Body::wrap).into())
    }

    async fn connect(&self, url: &Url, time: Option<Duration>) -> Result<TokioIo<TcpStream>, TransportError> {
        let target = url.as_str().parse().map_err(|error| TransportError::Connect(Box::new(error)))?;
        let connecting = self.connector.clone().oneshot(target);
        let connected = match time {
            None => connecting.await,
            Some(time) => timeout(time, connecting).await.map_err(|_| TransportError::ConnectTimeout)?,
        };
        connected.map_err(|error| TransportError::Connect(Box::new(error)))
    }

    fn request(
        &self,
        method: Method,
        url: &Url,
        headers: &HeaderMap,
        body: Option<String>,
    ) -> Result<hyper::Request<Full<Bytes>>, TransportError> {
        // Some servers reject a POST without a body and without a length.
        let has_length = body.is_some() || matches!(method, Method::POST | Method::PUT | Method::PATCH);
        let body = Bytes::from(body.unwrap_or_default());
        let mut fields = HeaderMap::with_capacity(headers.len() + 2);
        fields.insert(HOST, self.authority.clone());
        fields.extend(headers.clone());
        fields.remove(CONTENT_LENGTH);
        if has_length {
            fields.insert(CONTENT_LENGTH, body.len().into());
        }
        let target = match url.query() {
            Some(query) => format!("{}?{query}", url.path()).parse(),
            None => url.path().parse(),
        };
        let mut request = hyper::Request::new(Full::new(body));
        *request.method_mut() = method;
        *request.uri_mut() = target.map_err(|error| TransportError::Connect(Box::new(error)))?;
        *request.headers_mut() = fields;
        Ok(request)
    }
}

/// The error of a connection before the head of a response.
fn unanswered(error: hyper::Error) -> TransportError {
    if error.is_parse() {
        TransportError::NotHttp(error.into())
    } else {
        TransportError::Broken(error.into())
    }
}

/// Refuses responses whose body hyper would pass on undecoded.
fn check_coding(response: &hyper::Response<Incoming>) -> Result<(), TransportError> {
    if response.status() == hyper::StatusCode::SWITCHING_PROTOCOLS {
        return Err(TransportError::NotHttp("it switches to another protocol".into()));
    }
    let codings = response.headers().get_all(TRANSFER_ENCODING).iter();
    let codings: Vec<_> = codings.map(|value| value.to_str().unwrap_or_default().trim()).collect();
    match &codings[..] {
        [] => Ok(()),
        // Servers before RFC 7230 send `identity`.
        [coding] if ["chunked", "identity"].iter().any(|known| coding.eq_ignore_ascii_case(known)) => Ok(()),
        _ => {
            Err(TransportError::NotHttp(format!("its transfer encoding is `{}`", codings.join(", ")).into()))
        }
    }
}
