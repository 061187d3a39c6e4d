//! HTTP requests to agents.
//!
//! Every request follows the same rules: redirects are refused (a run must not be started twice, nor on another
//! server), `Host` is that of the agent, a page's `Origin` is not passed on, and every failure before the first byte
//! of a response is an [`UpstreamError`].

use std::{sync::Arc, time::SystemTime};

use agentwire_client::transport::{HttpCall, Transport, TransportError};
use agentwire_core::framing::Framing;
use bytes::Bytes;
use futures_util::{Stream, TryStreamExt};
use reqwest::{
    Method, Response, StatusCode, Url, Version,
    header::{
        ACCEPT, ACCEPT_ENCODING, CONNECTION, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, EXPECT, HOST,
        HeaderMap, HeaderName, HeaderValue, ORIGIN, RETRY_AFTER, TE, TRANSFER_ENCODING, UPGRADE, USER_AGENT,
    },
};

use super::{
    decode::{self, ExpectedFormat, UpstreamDecoder, excerpt},
    local::{Local, LocalCall},
    thread_names::{ServerThreads, sent_run},
    timeouts::StreamTimeouts,
};
use crate::{
    agent::{BuildError, EventSink, Request},
    auth::{IDENTITY_HEADER, IdentityClaims},
    error::{self, Truncation, UpstreamError, UpstreamErrorKind as Kind, UpstreamTimeout, causes},
};

/// The `Accept` header of a request for an event stream.
pub(super) const ACCEPT_EVENTS: &str = "text/event-stream";

/// The largest response other than a stream. Threads with long histories have large states.
const MAX_RESPONSE: usize = 64 << 20;

/// The number of bytes of an error response that are read for the log.
const MAX_ERROR_BODY: usize = 2 << 10;

/// The `User-Agent` of requests that pass on none.
const OWN_USER_AGENT: &str = concat!("agentwire/", env!("CARGO_PKG_VERSION"));

/// The longest `Retry-After` that is passed on: a quota of a day. A longer one is a mistake.
const MAX_RETRY_AFTER: u64 = 24 * 3600;

/// Headers of a client that are never passed on: those of one connection, those that the request sets itself, and
/// those that ask for an encoding that is not decoded here.
const NEVER_PASSED_ON: &[HeaderName] = &[
    HOST,
    CONNECTION,
    CONTENT_LENGTH,
    CONTENT_TYPE,
    TRANSFER_ENCODING,
    TE,
    UPGRADE,
    EXPECT,
    ORIGIN,
    ACCEPT,
    ACCEPT_ENCODING,
];

/// The URL of an agent, and the connections to it.
#[derive(Debug)]
pub(super) struct HttpTarget {
    url: Url,
    headers: HeaderMap,
    /// The server in this process that has its place.
    local: Option<Arc<dyn Local>>,
    threads: ServerThreads,
    transport: Transport,
}

/// A request to an agent's server.
pub(super) struct HttpRequest {
    pub(super) method: Method,
    pub(super) url: Url,
    pub(super) accept: &'static str,
    pub(super) json: Option<String>,
    /// The position from which a stream continues.
    pub(super) last_event_id: Option<String>,
}

/// A response that was read completely.
pub(super) struct HttpResponse {
    pub(super) status: StatusCode,
    pub(super) body: String,
    retry_after: Option<u64>,
}

impl HttpTarget {
    pub(super) fn new(url: &str, headers: &[(String, String)]) -> Result<Self, BuildError> {
        // The text may have a password in it: it is not repeated.
        let parsed = Url::parse(url)
            .map_err(|error| BuildError(format!("the agent's address is not a URL: {error}")))?;
        if !matches!(parsed.scheme(), "http" | "https") || !parsed.has_host() {
            let message = "the agent's address is not a URL that begins with http:// or https://";
            return Err(BuildError(message.to_owned()));
        }
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            let parsed = name.parse::<HeaderName>().ok().zip(value.parse::<HeaderValue>().ok());
            let Some((parsed, mut value)) = parsed else {
                return Err(BuildError(format!(
                    "header `{name}` has a name or a value that HTTP does not allow"
                )));
            };
            // Likely a key, which must not be logged.
            value.set_sensitive(true);
            map.append(parsed, value);
        }
        let (threads, transport) = (ServerThreads::Text, Transport::new(&parsed));
        Ok(Self { url: parsed, headers: map, threads, local: None, transport })
    }

    /// The server at a URL, or the one in this process.
    pub(super) fn at(
        url: &str,
        headers: &[(String, String)],
        local: Option<Arc<dyn Local>>,
    ) -> Result<Self, BuildError> {
        match local {
            None => Self::new(url, headers),
            // The name is never looked up.
            Some(local) => Ok(Self { local: Some(local), ..Self::new("http://in-process", &[])? }),
        }
    }

    /// True if the server is in this process.
    pub(super) fn is_local(&self) -> bool {
        self.local.is_some()
    }

    /// The same for a server that accepts these ids of threads.
    pub(super) fn with_threads(self, threads: ServerThreads) -> Self {
        Self { threads, ..self }
    }

    /// The ids that the server accepts for threads.
    pub(super) fn threads(&self) -> ServerThreads {
        self.threads
    }

    /// The configured URL.
    pub(super) fn url(&self) -> &Url {
        &self.url
    }

    /// A URL below the configured one: `path` starts with `/` and may contain a query.
    pub(super) fn below(&self, path: &str) -> Result<Url, UpstreamError> {
        let mut base = self.url.clone();
        base.set_query(None);
        base.set_fragment(None);
        let text = format!("{}{path}", base.as_str().trim_end_matches('/'));
        Url::parse(&text).map_err(|error| Kind::Internal(format!("`{path}`: {error}").into()).into())
    }

    /// Sends a request and waits for the head of the response.
    pub(super) async fn send(
        &self,
        request: &Request,
        call: HttpRequest,
        timeouts: &StreamTimeouts,
    ) -> Result<Response, UpstreamError> {
        if let Some(local) = &self.local {
            let path = match call.url.query() {
                Some(query) => format!("{}?{query}", call.url.path()),
                None => call.url.path().to_owned(),
            };
            let call = LocalCall {
                method: call.method.to_string(),
                path,
                json: call.json,
                request: request.clone(),
            };
            return timeouts.limit(local.send(call)).await??.into_http();
        }
        let mut headers = HeaderMap::new();
        for (name, value) in request.headers.iter() {
            let parsed = name.parse::<HeaderName>().ok().zip(value.parse::<HeaderValue>().ok());
            if let Some((name, value)) = parsed
                && !NEVER_PASSED_ON.contains(&name)
                && name != IDENTITY_HEADER
            {
                headers.append(name, value);
            }
        }
        headers.entry(USER_AGENT).or_insert(HeaderValue::from_static(OWN_USER_AGENT));
        headers.insert(ACCEPT, HeaderValue::from_static(call.accept));
        // Without this header a server may choose any compression.
        headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        if call.json.is_some() {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        }
        let id = call.last_event_id.and_then(|id| HeaderValue::from_str(&id).ok());
        if let Some(id) = id {
            headers.insert(HeaderName::from_static("last-event-id"), id);
        }
        // Configured headers override passed-on ones.
        for name in self.headers.keys() {
            headers.remove(name);
        }
        headers.extend(self.headers.clone());
        if let Some(token) = identity_token(request, self.threads)? {
            let mut token = HeaderValue::try_from(token)
                .map_err(|error| UpstreamError::from(Kind::Internal(error.to_string().into())))?;
            token.set_sensitive(true);
            headers.insert(HeaderName::from_static(IDENTITY_HEADER), token);
        }
        let connect = request.timeouts.connect;
        let call = HttpCall { method: call.method, url: call.url, headers, body: call.json, connect };
        let sent = timeouts.limit(self.transport.send(call)).await?;
        sent.map_err(|error| unanswered(&error, request))
    }

    /// Sends a request for an event stream, and reads the stream to its end.
    pub(super) async fn run(
        &self,
        request: &Request,
        call: HttpRequest,
        format: &ExpectedFormat,
        sink: &EventSink,
    ) -> Result<(), UpstreamError> {
        let timeouts = StreamTimeouts::start(request);
        let response = check_status(self.send(request, call, &timeouts).await?, &timeouts).await?;
        let mut decoder = UpstreamDecoder::new(format, request, framing_hint(&response)?);
        if !is_delimited(&response) {
            decoder.expect_frames();
        }
        let close = decode::pump(bytes(response), &mut decoder, timeouts, sink).await?;
        decode::finish(&mut decoder, close, sink).await
    }

    /// Sends a request and reads the whole response, with any status.
    pub(super) async fn fetch(
        &self,
        request: &Request,
        call: HttpRequest,
    ) -> Result<HttpResponse, UpstreamError> {
        self.fetch_within(request, call, MAX_RESPONSE).await
    }

    /// The same with a limit in bytes.
    pub(super) async fn fetch_within(
        &self,
        request: &Request,
        call: HttpRequest,
        limit: usize,
    ) -> Result<HttpResponse, UpstreamError> {
        let timeouts = StreamTimeouts::start(request);
        let mut response = self.send(request, call, &timeouts).await?;
        let status = response.status();
        let retry_after = retry_after(&response);
        let body = timeouts.limit(read_body(&mut response, limit)).await?.map_err(|error| match error {
            Some(error) => broken(&error.without_url()),
            None => Kind::LimitExceeded(format!("the agent's answer is over {limit} bytes").into()).into(),
        })?;
        Ok(HttpResponse { status, body: String::from_utf8_lossy(&body).into_owned(), retry_after })
    }
}

/// The signed identity of a request, if the agent's server gets one.
pub(super) fn identity_token(
    request: &Request,
    threads: ServerThreads,
) -> Result<Option<String>, UpstreamError> {
    let Some(identity) = &request.upstream_identity else { return Ok(None) };
    let (thread, run) = (threads.thread(request), sent_run(request));
    let claims = IdentityClaims {
        tenant: request.owner.tenant.as_str(),
        user: request.owner.user.as_str(),
        agent: &request.agent,
        thread: &thread,
        run: (!request.input.run.is_empty()).then_some(&*run),
    };
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |time| time.as_secs());
    identity.sign(claims, now).map(Some).map_err(|error| {
        let message = "the identity for the agent could not be signed";
        UpstreamError::from(Kind::Internal(message.into())).with_detail(error.to_string())
    })
}

impl HttpResponse {
    /// The error that this response stands for.
    pub(super) fn status_error(&self) -> UpstreamError {
        status_error(self.status, self.retry_after, self.body.as_bytes())
    }
}

/// Passes on a response with a success status. The body of an error response goes to the log.
pub(super) async fn check_status(
    mut response: Response,
    timeouts: &StreamTimeouts,
) -> Result<Response, UpstreamError> {
    if response.status().is_success() {
        return Ok(response);
    }
    // A truncated or missing body does not matter here.
    let body = timeouts.limit(error_body(&mut response)).await.unwrap_or_default();
    Err(status_error(response.status(), retry_after(&response), &body))
}

fn status_error(status: StatusCode, retry_after: Option<u64>, body: &[u8]) -> UpstreamError {
    let error = UpstreamError::from(Kind::Status(status)).with_retry_after(retry_after);
    if body.is_empty() { error } else { error.with_detail(excerpt(body)) }
}

/// The `Retry-After` of an overloaded server, in seconds. A number, so that no text of the server reaches a client.
fn retry_after(response: &Response) -> Option<u64> {
    if !matches!(response.status(), StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE) {
        return None;
    }
    let value = response.headers().get(RETRY_AFTER)?.to_str().ok()?.trim();
    let seconds = match value.parse::<u64>() {
        Ok(seconds) => seconds,
        Err(_) => {
            let time = httpdate::parse_http_date(value).ok()?;
            // A time in the past means now.
            let wait = time.duration_since(SystemTime::now()).unwrap_or_default();
            wait.as_secs() + u64::from(wait.subsec_nanos() > 0)
        }
    };
    (seconds <= MAX_RETRY_AFTER).then_some(seconds)
}

async fn error_body(response: &mut Response) -> Vec<u8> {
    let mut body = Vec::new();
    while body.len() < MAX_ERROR_BODY
        && let Ok(Some(chunk)) = response.chunk().await
    {
        body.extend_from_slice(&chunk);
    }
    body
}

/// The body of a response, as a stream.
pub(super) fn bytes(response: Response) -> impl Stream<Item = Result<Bytes, UpstreamError>> {
    response.bytes_stream().map_err(|error| broken(&error.without_url()))
}

/// The error of a body that broke: that of the agent, if it is in this process.
fn broken(error: &reqwest::Error) -> UpstreamError {
    let own = error::sources(error).find_map(|error| error.downcast_ref::<UpstreamError>());
    own.cloned().unwrap_or_else(|| decode::connection_lost(causes(error)))
}

/// The whole body; `None` as error if it exceeds `limit`.
async fn read_body(response: &mut Response, limit: usize) -> Result<Vec<u8>, Option<reqwest::Error>> {
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(Some)? {
        if body.len() + chunk.len() > limit {
            return Err(None);
        }
        body.extend_from_slice(&chunk);
    }
    Ok(body)
}

/// The framing by the head of a response. Many servers declare wrong content types for their streams, so only types
/// that are certainly no stream are refused here; the bytes decide.
pub(super) fn framing_hint(response: &Response) -> Result<Option<Framing>, UpstreamError> {
    let header = |name| response.headers().get(name).and_then(|value: &HeaderValue| value.to_str().ok());
    let content_type = header(CONTENT_TYPE).unwrap_or_default();
    let essence = content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    let is_other =
        matches!(&*essence, "text/html" | "application/xhtml+xml" | "application/xml" | "text/xml")
            || ["image/", "audio/", "video/", "font/", "multipart/"]
                .iter()
                .any(|kind| essence.starts_with(kind));
    if is_other {
        let message = "the agent's server answered with something that is not an event stream";
        let detail = format!("its content type is `{content_type}`");
        return Err(UpstreamError::from(Kind::BadContent(message.into())).with_detail(detail));
    }
    if let Some(encoding) = header(CONTENT_ENCODING)
        && !encoding.eq_ignore_ascii_case("identity")
    {
        let message = "the agent's server compressed its answer without being asked to";
        return Err(UpstreamError::from(Kind::BadContent(message.into())).with_detail(encoding));
    }
    Ok(match &*essence {
        "text/event-stream" => Some(Framing::Sse),
        "application/x-ndjson"
        | "application/ndjson"
        | "application/jsonl"
        | "application/x-jsonlines"
        | "application/jsonlines" => Some(Framing::Lines),
        _ => None,
    })
}

/// True if the end of a body is marked: by a length, by its last chunk, or by the frames of HTTP/2. Otherwise the body
/// ends with its connection, and a broken connection looks the same; servers of HTTP/1.0 know no other way.
fn is_delimited(response: &Response) -> bool {
    let headers = response.headers();
    response.version() != Version::HTTP_11
        || headers.contains_key(CONTENT_LENGTH)
        || headers
            .get(TRANSFER_ENCODING)
            .is_some_and(|coding| coding.as_bytes().eq_ignore_ascii_case(b"chunked"))
}

/// The error of a request without a response.
fn unanswered(error: &TransportError, request: &Request) -> UpstreamError {
    let kind: UpstreamError = match error {
        TransportError::ConnectTimeout => {
            UpstreamTimeout::Connect(request.timeouts.connect.unwrap_or_default()).into()
        }
        TransportError::NotHttp(_) => Kind::NotHttp.into(),
        TransportError::Broken(_) => Truncation::Response.into(),
        _ => Kind::Connect.into(),
    };
    kind.with_detail(causes(error))
}
