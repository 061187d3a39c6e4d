//! How agents are reached over HTTP.
//!
//! One place for what every request has in common: no redirect is followed (a run must not be started twice, nor
//! by somebody else), `Host` is the agent's own, a page's `Origin` stays here, and everything that can go wrong
//! before the first byte of an answer has its code.

use std::{
    sync::{Mutex, PoisonError},
    time::SystemTime,
};

use agentwire_core::framing::Framing;
use reqwest::{
    Client, Method, Response, StatusCode, Url,
    header::{
        ACCEPT, ACCEPT_ENCODING, CONNECTION, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, EXPECT, HOST,
        HeaderMap, HeaderName, HeaderValue, ORIGIN, RETRY_AFTER, TE, TRANSFER_ENCODING, UPGRADE, USER_AGENT,
    },
};
use tokio::time::Duration;

use super::{
    decode::{self, ExpectedFormat, StreamTimeouts, UpstreamDecoder, excerpt},
    direct::{Direct, Unanswered},
};
use crate::{
    agent::{BuildError, EventSink, Request},
    error::{self, Truncation, UpstreamError, UpstreamErrorKind as Kind, UpstreamTimeout, causes},
    outbound::{self, is_loopback},
};

/// What an SSE request accepts: the stream, and JSON errors.
pub(super) const ACCEPT_EVENTS: &str = "text/event-stream";

/// The most that is read of an answer that is not a stream. Threads with long histories have large states.
const MAX_ANSWER: usize = 64 << 20;

/// The most that is read of an answer that nobody wanted, for the log.
const MAX_COMPLAINT: usize = 2 << 10;

/// How requests say who sends them.
const OURSELVES: &str = concat!("agentwire/", env!("CARGO_PKG_VERSION"));

/// The longest wait that is passed on: a quota of a day. Beyond that it is a mistake, and nobody waits for it.
const LONGEST_WAIT: u64 = 24 * 3600;

/// Headers that belong to one connection, that the request sets itself, or that ask for what cannot be read here.
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

/// Where an agent is, and how to talk to it.
#[derive(Debug)]
pub(super) struct Http {
    url: Url,
    headers: HeaderMap,
    /// The way there, if nothing is in between.
    direct: Option<Direct>,
    /// The client for everything else, for the connect time-out that it was made with: those of one agent's runs do
    /// not differ.
    client: Mutex<Option<(Option<Duration>, Client)>>,
}

/// What to send.
pub(super) struct Call {
    pub(super) method: Method,
    pub(super) url: Url,
    pub(super) accept: &'static str,
    pub(super) json: Option<String>,
    /// From where a stream is to go on.
    pub(super) last_event_id: Option<String>,
}

/// An answer that was read whole.
pub(super) struct Answer {
    pub(super) status: StatusCode,
    pub(super) body: String,
    retry_after: Option<u64>,
}

impl Http {
    pub(super) fn new(url: &str, headers: &[(String, String)]) -> Result<Self, BuildError> {
        let parsed = Url::parse(url).map_err(|error| BuildError(format!("`{url}` is not a URL: {error}")))?;
        if !matches!(parsed.scheme(), "http" | "https") || !parsed.has_host() {
            return Err(BuildError(format!("`{url}` is not a URL that begins with http:// or https://")));
        }
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            let parsed = name.parse::<HeaderName>().ok().zip(value.parse::<HeaderValue>().ok());
            let Some((parsed, mut value)) = parsed else {
                return Err(BuildError(format!(
                    "header `{name}` has a name or a value that HTTP does not allow"
                )));
            };
            // Likely a key: not for logs.
            value.set_sensitive(true);
            map.append(parsed, value);
        }
        let direct = Direct::to(&parsed, !is_loopback(&parsed));
        Ok(Self { url: parsed, headers: map, direct, client: Mutex::new(None) })
    }

    /// The URL as it was given.
    pub(super) fn url(&self) -> &Url {
        &self.url
    }

    /// A URL below the given one: `path`, which begins with `/`, may hold a query.
    pub(super) fn below(&self, path: &str) -> Result<Url, UpstreamError> {
        let mut base = self.url.clone();
        base.set_query(None);
        base.set_fragment(None);
        let text = format!("{}{path}", base.as_str().trim_end_matches('/'));
        Url::parse(&text).map_err(|error| Kind::Internal(format!("`{path}`: {error}").into()).into())
    }

    fn client(&self, connect: Option<Duration>) -> Result<Client, UpstreamError> {
        let mut held = self.client.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((time, client)) = &*held
            && *time == connect
        {
            return Ok(client.clone());
        }
        let mut builder = outbound::client(&self.url)
            // A server may close a resting connection in the very moment in which it is used again, and a run
            // cannot be posted twice to find out. A connection per run costs less than a lost run.
            .pool_max_idle_per_host(0)
            .tcp_keepalive(Duration::from_secs(30));
        if let Some(time) = connect {
            builder = builder.connect_timeout(time);
        }
        let client = builder.build().map_err(|error| {
            UpstreamError::from(Kind::Internal("the HTTP client could not be made".into()))
                .with_detail(causes(&error))
        })?;
        *held = Some((connect, client.clone()));
        Ok(client)
    }

    /// Sends a request and waits for the head of the answer.
    pub(super) async fn send(
        &self,
        request: &Request,
        call: Call,
        timeouts: &StreamTimeouts,
    ) -> Result<Response, UpstreamError> {
        let mut headers = HeaderMap::new();
        for (name, value) in request.headers.iter() {
            let parsed = name.parse::<HeaderName>().ok().zip(value.parse::<HeaderValue>().ok());
            if let Some((name, value)) = parsed
                && !NEVER_PASSED_ON.contains(&name)
            {
                headers.append(name, value);
            }
        }
        headers.entry(USER_AGENT).or_insert(HeaderValue::from_static(OURSELVES));
        headers.insert(ACCEPT, HeaderValue::from_static(call.accept));
        // Without a word about it a server may compress as it likes.
        headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        if call.json.is_some() {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        }
        let id = call.last_event_id.and_then(|id| HeaderValue::from_str(&id).ok());
        if let Some(id) = id {
            headers.insert(HeaderName::from_static("last-event-id"), id);
        }
        // What is configured wins over what was passed on.
        for name in self.headers.keys() {
            headers.remove(name);
        }
        headers.extend(self.headers.clone());
        let connect = request.timeouts.connect;
        if let Some(direct) = self.direct.as_ref().filter(|_| call.url.origin() == self.url.origin()) {
            let answer = direct.send(call.method, &call.url, &headers, call.json, connect);
            return timeouts.first(answer).await?.map_err(|error| not_answered(&error, request));
        }
        let mut builder = self.client(connect)?.request(call.method, call.url).headers(headers);
        if let Some(json) = call.json {
            builder = builder.body(json);
        }
        match timeouts.first(builder.send()).await? {
            Ok(response) => Ok(response),
            Err(error) => Err(unanswered(&error, request)),
        }
    }

    /// Sends a request whose answer is a stream of events, and reads it to its end.
    pub(super) async fn run(
        &self,
        request: &Request,
        call: Call,
        language: &ExpectedFormat,
        sink: &EventSink,
    ) -> Result<(), UpstreamError> {
        let timeouts = StreamTimeouts::begin(request);
        let response = accepted(self.send(request, call, &timeouts).await?, &timeouts).await?;
        let mut intake = UpstreamDecoder::new(language, request, events(&response)?);
        let bytes = response.bytes_stream();
        let close = decode::pump(bytes, &mut intake, timeouts, sink).await?;
        decode::finish(&mut intake, close, sink).await
    }

    /// Sends a request and reads the whole answer, whatever its status.
    pub(super) async fn ask(&self, request: &Request, call: Call) -> Result<Answer, UpstreamError> {
        self.ask_within(request, call, MAX_ANSWER).await
    }

    /// The same for answers of so many bytes at most.
    pub(super) async fn ask_within(
        &self,
        request: &Request,
        call: Call,
        limit: usize,
    ) -> Result<Answer, UpstreamError> {
        let timeouts = StreamTimeouts::begin(request);
        let mut response = self.send(request, call, &timeouts).await?;
        let status = response.status();
        let retry_after = retry_after(&response);
        let body = timeouts.first(read(&mut response, limit)).await?.map_err(|error| match error {
            Some(error) => decode::broken(causes(&error)),
            None => Kind::LimitExceeded(format!("the agent's answer is over {limit} bytes").into()).into(),
        })?;
        Ok(Answer { status, body: String::from_utf8_lossy(&body).into_owned(), retry_after })
    }
}

impl Answer {
    /// The failure that this answer is.
    pub(super) fn refusal(&self) -> UpstreamError {
        refusal(self.status, self.retry_after, self.body.as_bytes())
    }
}

/// An answer with a status of success; what the others say goes to the log.
pub(super) async fn accepted(
    mut response: Response,
    timeouts: &StreamTimeouts,
) -> Result<Response, UpstreamError> {
    if response.status().is_success() {
        return Ok(response);
    }
    // Half a complaint is good enough, and none is no failure of its own.
    let body = timeouts.first(complaint(&mut response)).await.unwrap_or_default();
    Err(refusal(response.status(), retry_after(&response), &body))
}

fn refusal(status: StatusCode, retry_after: Option<u64>, body: &[u8]) -> UpstreamError {
    let failure = UpstreamError::from(Kind::Status(status)).with_retry_after(retry_after);
    if body.is_empty() { failure } else { failure.with_detail(excerpt(body)) }
}

/// When a server that has too much to do wants to be asked again. It is a number by the time it leaves here, so that
/// nothing of what the server says reaches a client.
fn retry_after(response: &Response) -> Option<u64> {
    if !matches!(response.status(), StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE) {
        return None;
    }
    let value = response.headers().get(RETRY_AFTER)?.to_str().ok()?.trim();
    let seconds = match value.parse::<u64>() {
        Ok(seconds) => seconds,
        Err(_) => {
            let time = httpdate::parse_http_date(value).ok()?;
            // What has passed is now.
            let wait = time.duration_since(SystemTime::now()).unwrap_or_default();
            wait.as_secs() + u64::from(wait.subsec_nanos() > 0)
        }
    };
    (seconds <= LONGEST_WAIT).then_some(seconds)
}

async fn complaint(response: &mut Response) -> Vec<u8> {
    let mut body = Vec::new();
    while body.len() < MAX_COMPLAINT
        && let Ok(Some(chunk)) = response.chunk().await
    {
        body.extend_from_slice(&chunk);
    }
    body
}

/// The whole body; `None` as error if there is more than `limit` of it.
async fn read(response: &mut Response, limit: usize) -> Result<Vec<u8>, Option<reqwest::Error>> {
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(Some)? {
        if body.len() + chunk.len() > limit {
            return Err(None);
        }
        body.extend_from_slice(&chunk);
    }
    Ok(body)
}

/// What the head of an answer says about its framing. Servers say all kinds of things about their streams, so
/// only what certainly is none is refused here; the bytes decide.
pub(super) fn events(response: &Response) -> Result<Option<Framing>, UpstreamError> {
    let header = |name| response.headers().get(name).and_then(|value: &HeaderValue| value.to_str().ok());
    let content_type = header(CONTENT_TYPE).unwrap_or_default();
    let essence = content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    let page = matches!(&*essence, "text/html" | "application/xhtml+xml" | "application/xml" | "text/xml")
        || ["image/", "audio/", "video/", "font/", "multipart/"].iter().any(|kind| essence.starts_with(kind));
    if page {
        let what = "the agent's server answered with something that is not an event stream";
        let detail = format!("its content type is `{content_type}`");
        return Err(UpstreamError::from(Kind::BadContent(what.into())).with_detail(detail));
    }
    if let Some(encoding) = header(CONTENT_ENCODING)
        && !encoding.eq_ignore_ascii_case("identity")
    {
        let what = "the agent's server compressed its answer without being asked to";
        return Err(UpstreamError::from(Kind::BadContent(what.into())).with_detail(encoding));
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

/// Why there was no answer at all, in the words of the client.
fn unanswered(error: &reqwest::Error, request: &Request) -> UpstreamError {
    let failure: UpstreamError = if error.is_connect() && error.is_timeout() {
        connect_timeout(request).into()
    } else if error.is_connect() || error.is_builder() {
        Kind::Connect.into()
    } else {
        match error::sources(error).find_map(|error| error.downcast_ref::<hyper::Error>()) {
            Some(error) if error.is_parse() => Kind::NotHttp.into(),
            _ => Truncation::Response.into(),
        }
    };
    failure.with_detail(causes(error))
}

/// Why there was no answer at all, in ours.
fn not_answered(error: &Unanswered, request: &Request) -> UpstreamError {
    let failure: UpstreamError = match error {
        Unanswered::Late => connect_timeout(request).into(),
        Unanswered::Unreachable(_) => Kind::Connect.into(),
        Unanswered::NotHttp(_) => Kind::NotHttp.into(),
        Unanswered::Broken(_) => Truncation::Response.into(),
    };
    failure.with_detail(causes(error))
}

fn connect_timeout(request: &Request) -> UpstreamTimeout {
    UpstreamTimeout::Connect(request.timeouts.connect.unwrap_or_default())
}
