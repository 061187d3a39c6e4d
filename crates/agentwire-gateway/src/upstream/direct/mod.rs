//! A plain HTTP connection that belongs to the run that reads it.
//!
//! A client with a pool gives each connection a task of its own, which hands over one chunk of the body at a time.
//! For a stream of small events that is two more task switches each, and an agent that is faster than the log has its
//! events written down one by one. Here whoever reads the body reads the socket: what one read brought is one piece.
//! A run uses its connection once, so there is nothing to pool.

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

use self::body::{Body, Decoder};

/// The largest head of an answer: what servers accept of requests, twice.
const MAX_HEAD: usize = 32 << 10;

/// The most header fields of an answer: what hyper takes.
const MAX_FIELDS: usize = 100;

/// How often a connection is checked that says nothing, so that one whose other end is gone is found.
const KEEPALIVE: Duration = Duration::from_secs(30);

/// Why there was no answer.
#[derive(Debug, thiserror::Error)]
pub(super) enum Unanswered {
    #[error("the connection could not be made in time")]
    Late,
    #[error("the connection could not be made: {0}")]
    Unreachable(#[source] Box<dyn std::error::Error + Send + Sync>),
    #[error("the answer is not HTTP: {0}")]
    NotHttp(String),
    #[error("the connection broke: {0}")]
    Broken(#[source] io::Error),
}

/// Where requests to one server go without anybody in between.
#[derive(Debug)]
pub(super) struct Direct {
    connector: HttpConnector,
    authority: HeaderValue,
}

impl Direct {
    /// `None` if a URL needs more than this: encryption, credentials, a proxy.
    pub(super) fn to(url: &Url, is_proxied: bool) -> Option<Self> {
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

    /// Sends a request and waits for the head of the answer.
    pub(super) async fn send(
        &self,
        method: Method,
        url: &Url,
        headers: &HeaderMap,
        body: Option<String>,
        connect: Option<Duration>,
    ) -> Result<Response, Unanswered> {
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
                // Who refuses a request needs no more of it.
                if written.is_none() && response.status().is_success() {
                    let _ = writing.await;
                }
                let decoder = std::mem::take(response.body_mut());
                let body = Body::new(stream, decoder, &head[head.len() - rest..]);
                return Ok(response.map(|_| reqwest::Body::wrap(body)).into());
            }
            if head.len() > MAX_HEAD {
                return Err(Unanswered::NotHttp(format!("its head has more than {MAX_HEAD} bytes")));
            }
            // A server may answer, and hang up, before it has read everything: its answer says more than an error here.
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
            return Err(Unanswered::Broken(written.and_then(Result::err).unwrap_or(broken)));
        }
    }

    async fn connect(&self, url: &Url, time: Option<Duration>) -> Result<TcpStream, Unanswered> {
        let target = url.as_str().parse().map_err(|error| Unanswered::Unreachable(Box::new(error)))?;
        let connecting = self.connector.clone().oneshot(target);
        let connected = match time {
            None => connecting.await,
            Some(time) => timeout(time, connecting).await.map_err(|_| Unanswered::Late)?,
        };
        connected.map(TokioIo::into_inner).map_err(|error| Unanswered::Unreachable(Box::new(error)))
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
        // Some servers do not take a request that could have a body and does not say that it has none.
        if body.is_some() || matches!(*method, Method::POST | Method::PUT | Method::PATCH) {
            field(&CONTENT_LENGTH, body.map_or(0, str::len).to_string().as_bytes());
        }
        request.extend_from_slice(b"\r\n");
        request.extend_from_slice(body.unwrap_or_default().as_bytes());
        request
    }
}

/// The head of an answer and how its body is to be read, and how many bytes follow it; `None` if it is not whole.
fn parse(head: &[u8], method: &Method) -> Result<Option<(hyper::Response<Decoder>, usize)>, Unanswered> {
    let mut fields = [httparse::EMPTY_HEADER; MAX_FIELDS];
    let mut parsed = httparse::Response::new(&mut fields);
    let not_http = |problem: &dyn std::fmt::Display| Unanswered::NotHttp(problem.to_string());
    let length = match parsed.parse(head).map_err(|error| not_http(&error))? {
        httparse::Status::Complete(length) => length,
        httparse::Status::Partial => return Ok(None),
    };
    // However it was cut on the way.
    if length > MAX_HEAD {
        return Err(not_http(&format_args!("its head has more than {MAX_HEAD} bytes")));
    }
    let mut response = hyper::Response::new(Decoder::default());
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
fn decoder(status: hyper::StatusCode, headers: &HeaderMap, method: &Method) -> Result<Decoder, Unanswered> {
    if status == 101 {
        return Err(Unanswered::NotHttp("it switches to another protocol".to_owned()));
    }
    if status.is_informational() || status == 204 || status == 304 || *method == Method::HEAD {
        return Ok(Decoder::default());
    }
    let codings = headers.get_all(TRANSFER_ENCODING).iter().map(|value| value.to_str().unwrap_or_default());
    let codings: Vec<_> = codings.flat_map(|list| list.split(',')).map(str::trim).collect();
    if let Some(last) = codings.last() {
        return match codings.len() {
            1 if last.eq_ignore_ascii_case("chunked") => Ok(Decoder::chunked()),
            // What servers said before RFC 7230.
            1 if last.eq_ignore_ascii_case("identity") => Ok(Decoder::until_closed()),
            _ => Err(Unanswered::NotHttp(format!("its transfer encoding is `{}`", codings.join(", ")))),
        };
    }
    // What stands there several times, in fields or in a list, counts if it is the same.
    let lengths = headers.get_all(CONTENT_LENGTH).iter().map(|value| value.to_str().unwrap_or_default());
    let mut lengths = lengths.flat_map(|list| list.split(',')).map(str::trim);
    let Some(first) = lengths.next() else { return Ok(Decoder::until_closed()) };
    let length = Some(first).filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
    match length.and_then(|text| text.parse().ok()) {
        Some(length) if lengths.all(|other| other == first) => Ok(Decoder::of_length(length)),
        _ => Err(Unanswered::NotHttp("its length is not a number".to_owned())),
    }
}

#[cfg(test)]
mod tests;
