//! A plain HTTP/1.1 connection that is read in the task of its run.
//!
//! A client with a pool has a task per connection that hands over one chunk of the body at a time. For a stream of small
//! events that is two more task switches each, and the events of an agent that is faster than the log are appended one
//! by one. Here the task that reads the body reads the socket, and all bytes of one read are one chunk. A run uses its
//! connection once, so there is nothing to pool.
//!
//! `hyper::client::conn::http1` writes the request and parses the head of the response; its connection is polled in the
//! run's task. A chunked body, that of a stream, is then read without hyper ([`super::chunked`]); hyper decodes all others,
//! and chunks that are ready are joined into one.

use std::{
    future::poll_fn,
    pin::{Pin, pin},
    sync::Arc,
};

use bytes::Bytes;
use hyper::{
    Version,
    body::{Body, Incoming},
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

use super::{
    TransportError,
    body::DirectBody,
    chunked::ChunkedBody,
    head::{Exchange, HeadIo, RequestBody},
    native::KEEPALIVE,
};

/// The largest head of a response: twice the limit that servers have for requests.
pub(super) const MAX_HEAD: usize = 32 << 10;

/// The largest number of header fields: the limit of hyper.
const MAX_FIELDS: usize = 100;

/// The connection of one request.
pub(super) type DirectConnection = Connection<HeadIo, RequestBody>;

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
        let exchange = Arc::<Exchange>::default();
        let request = self.request(method, url, headers, body, &exchange)?;
        let (mut sender, connection) = Builder::new()
            .max_headers(MAX_FIELDS)
            .max_header_size(MAX_HEAD)
            .handshake(HeadIo::new(stream, exchange.clone()))
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
        // Without a connection the body reports how it broke.
        if exchange.is_sent()
            && is_chunked(&response)
            && let Some(connection) = connection.take()
        {
            let (stream, ahead) = connection.into_parts().io.into_parts();
            let response = response.map(|_| ChunkedBody::new(stream, ahead));
            return Ok(response.map(reqwest::Body::wrap).into());
        }
        exchange.release();
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
        exchange: &Arc<Exchange>,
    ) -> Result<hyper::Request<RequestBody>, TransportError> {
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
        let mut request = hyper::Request::new(RequestBody::new(body, exchange.clone()));
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

/// True if the body of a response is chunks to its end, with nothing unusual about it.
fn is_chunked(response: &hyper::Response<Incoming>) -> bool {
    let coding = response.headers().get(TRANSFER_ENCODING).map(|value| value.as_bytes().trim_ascii());
    response.version() == Version::HTTP_11
        && !response.body().is_end_stream()
        && coding.is_some_and(|coding| coding.eq_ignore_ascii_case(b"chunked"))
}
