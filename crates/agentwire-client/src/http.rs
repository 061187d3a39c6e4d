//! HTTP requests of the client: URL, headers, timeouts, and the errors before the first byte of a body.

use std::time::Duration;

use reqwest::{
    Client, Method, Url,
    header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER, USER_AGENT},
};
use serde_json::Value;

use crate::{
    agent::Timeouts,
    error::{ClientError, ErrorKind, TimeoutPhase},
    timer,
    transport::{HttpCall, Response, Transport, TransportError},
};

/// The `User-Agent` unless another is given.
const OWN_USER_AGENT: &str = concat!("agentwire-client/", env!("CARGO_PKG_VERSION"));

/// The number of bytes of an error response that are read.
const MAX_ERROR_BODY: usize = 64 << 10;

/// The largest response of a JSON route. Threads with long histories have large states.
const MAX_JSON_BODY: usize = 64 << 20;

/// The number of characters shown of a body that is not understood.
const EXCERPT: usize = 400;

/// The longest `Retry-After` that is obeyed: a client does not wait for hours.
const MAX_RETRY_AFTER: u64 = 300;

/// The server of an agent.
#[derive(Debug)]
pub(crate) struct Target {
    pub(crate) url: Url,
    /// The URL of the gateway's other routes, without a trailing slash.
    base: String,
    headers: HeaderMap,
    transport: Transport,
    pub(crate) timeouts: Timeouts,
}

impl Target {
    pub(crate) fn new(
        url: &str,
        headers: &[(String, String)],
        client: Option<Client>,
        timeouts: Timeouts,
    ) -> Result<Self, ClientError> {
        let parsed =
            Url::parse(url).map_err(|error| ClientError::usage(format!("`{url}` is not a URL: {error}")))?;
        if !matches!(parsed.scheme(), "http" | "https") || !parsed.has_host() {
            return Err(ClientError::usage(format!("`{url}` does not begin with http:// or https://")));
        }
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            let parsed = name.trim().parse::<HeaderName>().ok().zip(value.trim().parse::<HeaderValue>().ok());
            let Some((name, mut value)) = parsed else {
                let message = format!("header `{name}` has a name or a value that HTTP does not allow");
                return Err(ClientError::usage(message));
            };
            // Likely a key, which must not be logged.
            value.set_sensitive(true);
            map.append(name, value);
        }
        // A page cannot set it.
        if cfg!(not(target_family = "wasm")) {
            map.entry(USER_AGENT).or_insert(HeaderValue::from_static(OWN_USER_AGENT));
        }
        let transport = match client {
            Some(client) => Transport::with_client(&parsed, client),
            None => Transport::new(&parsed),
        };
        Ok(Self { base: base(&parsed), url: parsed, headers: map, transport, timeouts })
    }

    /// A URL of the gateway: `path` starts with `/` and may contain a query.
    pub(crate) fn below(&self, path: &str) -> String {
        format!("{}{path}", self.base)
    }

    /// Sends a request and waits for the head of the response. An error status is an error.
    pub(crate) async fn send(
        &self,
        method: Method,
        url: &str,
        headers: &[(&'static str, String)],
        body: Option<String>,
    ) -> Result<Response, ClientError> {
        let url =
            Url::parse(url).map_err(|error| ClientError::usage(format!("`{url}` is not a URL: {error}")))?;
        let mut fields = self.headers.clone();
        for (name, value) in headers {
            let value = HeaderValue::from_str(value).map_err(|_| {
                ClientError::usage(format!("the value of `{name}` is not allowed in a header"))
            })?;
            fields.append(*name, value);
        }
        if body.is_some() {
            fields.append(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        }
        let connect = Some(self.timeouts.connect);
        let call = HttpCall { method, url, headers: fields, body, connect };
        let sent = timer::timeout(self.timeouts.response, self.transport.send(call)).await;
        let response = match sent {
            Err(_) => return Err(ClientError::new(ErrorKind::Timeout(TimeoutPhase::Response))),
            Ok(Err(error)) => return Err(transport_error(error)),
            Ok(Ok(response)) => response,
        };
        if response.status().is_success() { Ok(response) } else { Err(status_error(response).await) }
    }

    /// Calls a JSON route of the gateway; an empty body is `null`.
    pub(crate) async fn json(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Value, ClientError> {
        let accept = [("accept", "application/json".to_owned())];
        let mut response = self.send(method, &self.below(path), &accept, body.map(Value::to_string)).await?;
        let request_id = request_id(&response);
        let found = content_type(&response).unwrap_or("none").to_owned();
        let body = read(&mut response, MAX_JSON_BODY, self.timeouts.idle).await?;
        if body.is_empty() {
            return Ok(Value::Null);
        }
        serde_json::from_slice(&body).map_err(|error| {
            let kind = ErrorKind::ContentType { found: found.into(), excerpt: excerpt(&body).into() };
            ClientError::new(kind).because(error).with_request_id(request_id)
        })
    }
}

/// The URL without query and without the path of a protocol.
fn base(url: &Url) -> String {
    let mut base = url.clone();
    base.set_query(None);
    base.set_fragment(None);
    let text = base.as_str().trim_end_matches('/');
    let cut = ["/api/chat", "/awp", "/chat"].iter().find_map(|path| text.strip_suffix(path));
    cut.unwrap_or(text).to_owned()
}

pub(crate) fn content_type(response: &Response) -> Option<&str> {
    response.headers().get(CONTENT_TYPE)?.to_str().ok()
}

pub(crate) fn header(response: &Response, name: &str) -> Option<Box<str>> {
    Some(response.headers().get(name)?.to_str().ok()?.into())
}

pub(crate) fn request_id(response: &Response) -> Option<Box<str>> {
    header(response, "x-request-id")
}

/// The failure of a request without a response. The innermost cause says most: "connection refused".
fn transport_error(error: TransportError) -> ClientError {
    let message = innermost(&error);
    let kind = match &error {
        TransportError::ConnectTimeout => ErrorKind::Timeout(TimeoutPhase::Connect),
        TransportError::Request(_) => ErrorKind::Usage(message.into()),
        _ => ErrorKind::Network(message.into()),
    };
    ClientError::new(kind).because(error)
}

/// The failure of a body.
pub(crate) fn body_error(error: reqwest::Error) -> ClientError {
    ClientError::new(ErrorKind::Network(innermost(&error).into())).because(error)
}

pub(crate) fn innermost(error: &dyn std::error::Error) -> String {
    let mut cause = error;
    while let Some(deeper) = cause.source() {
        cause = deeper;
    }
    cause.to_string()
}

async fn status_error(mut response: Response) -> ClientError {
    let status = response.status();
    let request_id = request_id(&response);
    let header_code = header(&response, "agentwire-error-code");
    let retry_after = response.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse().ok());
    let mut body = Vec::new();
    while body.len() < MAX_ERROR_BODY
        && let Ok(Ok(Some(bytes))) = timer::timeout(Duration::from_secs(5), response.chunk()).await
    {
        body.extend_from_slice(&bytes);
    }
    let json: Option<Value> = serde_json::from_slice(&body).ok();
    let error = json.as_ref().map(|json| json.get("error").unwrap_or(json));
    let member = |name: &str| error.and_then(|error| error.get(name)?.as_str());
    let message = member("message").or_else(|| error.and_then(Value::as_str)).map_or_else(
        || match excerpt(&body) {
            text if text.is_empty() => status.canonical_reason().unwrap_or("no message").to_owned(),
            text => text,
        },
        str::to_owned,
    );
    ClientError::new(ErrorKind::Status {
        status: status.as_u16(),
        code: member("code").map(Into::into).or(header_code),
        message: message.into(),
        retry_after: retry_after.map(|seconds: u64| Duration::from_secs(seconds.min(MAX_RETRY_AFTER))),
    })
    .with_request_id(request_id)
}

/// Reads a body up to a limit.
async fn read(response: &mut Response, limit: usize, idle: Duration) -> Result<Vec<u8>, ClientError> {
    let mut body = Vec::new();
    loop {
        match timer::timeout(idle, response.chunk()).await {
            Err(_) => return Err(ClientError::new(ErrorKind::Timeout(TimeoutPhase::Idle))),
            Ok(Err(error)) => return Err(body_error(error)),
            Ok(Ok(None)) => return Ok(body),
            Ok(Ok(Some(bytes))) if body.len() + bytes.len() > limit => {
                return Err(ClientError::new(ErrorKind::TooLarge { limit }));
            }
            Ok(Ok(Some(bytes))) => body.extend_from_slice(&bytes),
        }
    }
}

/// The start of a body on one line, without control characters: a server must not control the terminal.
#[must_use]
pub fn excerpt(body: &[u8]) -> String {
    let text = String::from_utf8_lossy(body);
    let plain = text.trim().chars().map(|letter| if letter.is_control() { ' ' } else { letter });
    plain.take(EXCERPT).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_base_lacks_the_path_of_the_protocol() {
        let of = |url: &str| base(&Url::parse(url).expect("a URL"));
        assert_eq!(of("http://h:1/"), "http://h:1");
        assert_eq!(of("http://h:1/awp"), "http://h:1");
        assert_eq!(of("http://h:1/agents/a/api/chat?profile=5"), "http://h:1/agents/a");
        assert_eq!(of("http://h:1/x/chat/"), "http://h:1/x");
    }
}
