//! A plain HTTP/1.1 connection that is read in the task of its run.
//!
//! A client with a pool has a task per connection that hands over one chunk of the body at a time. For a stream of small
//! events that is two more task switches each, and the events of an agent that is faster than the log are appended one
//! by one. Here the task that reads the body reads the socket, and all bytes of one read are one chunk. A run uses its
//! connection once, so there is nothing to pool.
//!
//! Trial of 2026-11-16: `hyper::client::conn::http1`, polled in the run's task, with the chunks that are ready joined into
//! one, saves about 165 lines and `httparse`. CPU time per event in the load of `bench/gateway`, flat out, mean of five
//! alternating runs: 4.82 µs against 4.69 µs here with the memory store (+2.6 %), 4.46 against 4.28 with SQLite (+4.1 %);
//! 23.2 KiB per idle reader in both. It is within the limit of 5 %, but not adopted yet: `bench/upstreams` and the
//! end-to-end suites have not been run with it, the text of a malformed chunk size differs, and it refuses HTTP/1.0
//! responses with `Transfer-Encoding`, which this client accepts.

mod body;

use std::io;

use hyper_util::{
    client::{legacy::connect::HttpConnector, proxy::matcher::Matcher},
    rt::TokioIo,
};
use reqwest::{
    Method, Response, Url,
    header::{CONTENT_LENGTH, HOST, HeaderMap, HeaderName, HeaderValue, TRANSFER_ENCODING},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::{Duration, timeout},
};
use tower::ServiceExt;

use self::body::{BodyDecoder, DirectBody};

/// The largest head of a response: twice the limit that servers have for requests.
const MAX_HEAD: usize = 32 << 10;

/// The largest number of header fields: the limit of hyper.
const MAX_FIELDS: usize = 100;

/// The keepalive interval, by which the loss of an idle connection is detected.
const KEEPALIVE: Duration = Duration::from_secs(30);

/// The error of a request without a response.
#[derive(Debug, thiserror::Error)]
pub(super) enum DirectError {
    #[error("the connection could not be made in time")]
    Late,
    #[error("the connection could not be made: {0}")]
    Unreachable(#[source] Box<dyn std::error::Error + Send + Sync>),
    #[error("the answer is not HTTP: {0}")]
    NotHttp(String),
    #[error("the connection broke: {0}")]
    Broken(#[source] io::Error),
}

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
    ) -> Result<Response, DirectError> {
        let mut stream = self.connect(url, connect).await?;
        let request = self.request(&method, url, headers, body.as_deref());
        let (mut incoming, mut outgoing) = stream.split();
        let writing = outgoing.write_all(&request);
        tokio::pin!(writing);
        let mut written = None;
        let mut head = Vec::new();
        loop {
            if let Some((mut response, rest)) = parse(&head, &method)? {
                if response.status().is_informational() {
                    head.drain(..head.len() - rest);
                    continue;
                }
                // A server that refuses the request does not need the rest of it.
                if written.is_none() && response.status().is_success() {
                    let _ = writing.await;
                }
                let decoder = std::mem::take(response.body_mut());
                let body = DirectBody::new(stream, decoder, &head[head.len() - rest..]);
                return Ok(response.map(|_| reqwest::Body::wrap(body)).into());
            }
            if head.len() > MAX_HEAD {
                return Err(DirectError::NotHttp(format!("its head has more than {MAX_HEAD} bytes")));
            }
            // A server may respond and close before it has read the request: its response explains more than a write error.
            let read = tokio::select! {
                result = &mut writing, if written.is_none() => {
                    written = Some(result);
                    continue;
                }
                read = incoming.read_buf(&mut head) => read,
            };
            let broken = match read {
                Ok(0) => io::Error::new(io::ErrorKind::UnexpectedEof, "it was closed"),
                Ok(_) => continue,
                Err(error) => error,
            };
            return Err(DirectError::Broken(written.and_then(Result::err).unwrap_or(broken)));
        }
    }

    async fn connect(&self, url: &Url, time: Option<Duration>) -> Result<TcpStream, DirectError> {
        let target = url.as_str().parse().map_err(|error| DirectError::Unreachable(Box::new(error)))?;
        let connecting = self.connector.clone().oneshot(target);
        let connected = match time {
            None => connecting.await,
            Some(time) => timeout(time, connecting).await.map_err(|_| DirectError::Late)?,
        };
        connected.map(TokioIo::into_inner).map_err(|error| DirectError::Unreachable(Box::new(error)))
    }

    fn request(&self, method: &Method, url: &Url, headers: &HeaderMap, body: Option<&str>) -> Vec<u8> {
        let mut request = Vec::with_capacity(1024 + body.map_or(0, str::len));
        request.extend_from_slice(method.as_str().as_bytes());
        request.push(b' ');
        request.extend_from_slice(url.path().as_bytes());
        if let Some(query) = url.query() {
            request.push(b'?');
            request.extend_from_slice(query.as_bytes());
        }
        request.extend_from_slice(b" HTTP/1.1\r\n");
        let mut field = |name: &HeaderName, value: &[u8]| {
            request.extend_from_slice(name.as_str().as_bytes());
            request.extend_from_slice(b": ");
            request.extend_from_slice(value);
            request.extend_from_slice(b"\r\n");
        };
        if !headers.contains_key(HOST) {
            field(&HOST, self.authority.as_bytes());
        }
        for (name, value) in headers.iter().filter(|(name, _)| **name != CONTENT_LENGTH) {
            field(name, value.as_bytes());
        }
        // Some servers reject a POST without a body and without a length.
        if body.is_some() || matches!(*method, Method::POST | Method::PUT | Method::PATCH) {
            field(&CONTENT_LENGTH, body.map_or(0, str::len).to_string().as_bytes());
        }
        request.extend_from_slice(b"\r\n");
        request.extend_from_slice(body.unwrap_or_default().as_bytes());
        request
    }
}

/// The head of a response with the decoder of its body, and the number of bytes after it; `None` if it is incomplete.
fn parse(head: &[u8], method: &Method) -> Result<Option<(hyper::Response<BodyDecoder>, usize)>, DirectError> {
    let mut fields = [httparse::EMPTY_HEADER; MAX_FIELDS];
    let mut parsed = httparse::Response::new(&mut fields);
    let not_http = |problem: &dyn std::fmt::Display| DirectError::NotHttp(problem.to_string());
    let length = match parsed.parse(head).map_err(|error| not_http(&error))? {
        httparse::Status::Complete(length) => length,
        httparse::Status::Partial => return Ok(None),
    };
    // The bound applies to any split of the bytes.
    if length > MAX_HEAD {
        return Err(not_http(&format_args!("its head has more than {MAX_HEAD} bytes")));
    }
    let mut response = hyper::Response::new(BodyDecoder::default());
    let status = parsed.code.unwrap_or_default();
    *response.status_mut() = hyper::StatusCode::from_u16(status).map_err(|error| not_http(&error))?;
    for field in parsed.headers.iter() {
        let name = field.name.parse::<HeaderName>().map_err(|error| not_http(&error))?;
        let value = HeaderValue::from_bytes(field.value).map_err(|error| not_http(&error))?;
        response.headers_mut().append(name, value);
    }
    *response.body_mut() = decoder(response.status(), response.headers(), method)?;
    Ok(Some((response, head.len() - length)))
}

/// How the body behind a head is to be read (RFC 9112, section 6.3).
fn decoder(
    status: hyper::StatusCode,
    headers: &HeaderMap,
    method: &Method,
) -> Result<BodyDecoder, DirectError> {
    if status == 101 {
        return Err(DirectError::NotHttp("it switches to another protocol".to_owned()));
    }
    if status.is_informational() || status == 204 || status == 304 || *method == Method::HEAD {
        return Ok(BodyDecoder::default());
    }
    let codings = headers.get_all(TRANSFER_ENCODING).iter().map(|value| value.to_str().unwrap_or_default());
    let codings: Vec<_> = codings.flat_map(|list| list.split(',')).map(str::trim).collect();
    if let Some(last) = codings.last() {
        return match codings.len() {
            1 if last.eq_ignore_ascii_case("chunked") => Ok(BodyDecoder::chunked()),
            // Servers before RFC 7230 send this.
            1 if last.eq_ignore_ascii_case("identity") => Ok(BodyDecoder::until_closed()),
            _ => Err(DirectError::NotHttp(format!("its transfer encoding is `{}`", codings.join(", ")))),
        };
    }
    // Repeated lengths, in fields or in a list, are valid if they are equal.
    let lengths = headers.get_all(CONTENT_LENGTH).iter().map(|value| value.to_str().unwrap_or_default());
    let mut lengths = lengths.flat_map(|list| list.split(',')).map(str::trim);
    let Some(first) = lengths.next() else { return Ok(BodyDecoder::until_closed()) };
    let length = Some(first).filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
    match length.and_then(|text| text.parse().ok()) {
        Some(length) if lengths.all(|other| other == first) => Ok(BodyDecoder::of_length(length)),
        _ => Err(DirectError::NotHttp("its length is not a number".to_owned())),
    }
}

#[cfg(test)]
mod tests;
