//! The HTTP server of a hook.
//!
//! One POST of JSON; the response is valid with a status 2xx and an empty body or an object with known keys. Every other
//! response is a failure of the server; [`OnFailure`] decides if the run continues.

use std::time::Duration;

use reqwest::{
    Client, Url,
    header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue},
};
use serde_json::{Map, Value};

use super::{OptionsError, server_failed};
use crate::{
    error::{UpstreamError, causes},
    outbound,
};

/// The largest response: twice the largest input of a client, so that a hook can add data.
const MAX_RESPONSE: usize = 20 << 20;

/// The longest idle time of a reused connection. Servers close idle connections, gunicorn after two seconds, and a request
/// on a connection that is closed at that moment is lost.
const MAX_IDLE: Duration = Duration::from_secs(1);

/// The server of a hook.
#[derive(Clone)]
pub struct Endpoint {
    /// Its URL.
    pub url: String,
    /// Headers of every request.
    pub headers: Vec<(String, String)>,
    /// The timeout of one request.
    pub timeout: Duration,
    /// The effect of a failure on the run.
    pub on_failure: OnFailure,
}

impl std::fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Headers may contain keys.
        f.debug_struct("Endpoint").field("url", &self.url).finish_non_exhaustive()
    }
}

/// The effect of a failed server on the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnFailure {
    /// The run continues without the hook.
    Open,
    /// The run ends with `HOOK_FAILED`.
    Closed,
}

/// The client of a hook's server.
#[derive(Debug)]
pub(super) struct HookServer {
    url: Url,
    client: Client,
    headers: HeaderMap,
    pub(super) on_failure: OnFailure,
}

impl HookServer {
    pub(super) fn new(endpoint: Endpoint) -> Result<Self, OptionsError> {
        let Endpoint { url, headers, timeout, on_failure } = endpoint;
        let parsed = Url::parse(&url).ok().filter(|url| matches!(url.scheme(), "http" | "https"));
        let not_a_url = || OptionsError(format!("`{url}` is not a URL that begins with http:// or https://"));
        let parsed = parsed.ok_or_else(not_a_url)?;
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            let pair = name.parse::<HeaderName>().ok().zip(value.parse::<HeaderValue>().ok());
            let bad =
                || OptionsError(format!("header `{name}` has a name or a value that HTTP does not allow"));
            let (name, mut value) = pair.ok_or_else(bad)?;
            value.set_sensitive(true);
            map.append(name, value);
        }
        map.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        let client = outbound::client(&parsed)
            .pool_idle_timeout(MAX_IDLE)
            .user_agent(concat!("agentwire/", env!("CARGO_PKG_VERSION")))
            .timeout(timeout);
        let client = client.build().map_err(|error| OptionsError(causes(&error)))?;
        Ok(Self { url: parsed, client, headers: map, on_failure })
    }

    /// Sends a body; returns the response if `needs_response`.
    pub(super) async fn post(&self, body: String, needs_response: bool) -> Result<Vec<u8>, String> {
        let request = self.client.post(self.url.clone()).headers(self.headers.clone()).body(body);
        let failed = |error: reqwest::Error| match error.is_timeout() {
            true => "did not answer in time".to_owned(),
            // The configured URL may contain a secret.
            false => format!("could not be asked: {}", causes(&error.without_url())),
        };
        let mut response = request.send().await.map_err(failed)?;
        if !response.status().is_success() {
            return Err(format!("answered {}", response.status()));
        }
        let mut answer = Vec::new();
        while needs_response && let Some(chunk) = response.chunk().await.map_err(failed)? {
            if answer.len() + chunk.len() > MAX_RESPONSE {
                return Err(format!("answered with more than {MAX_RESPONSE} bytes"));
            }
            answer.extend_from_slice(&chunk);
        }
        Ok(answer)
    }

    /// Calls the server; `None` if the response changes nothing.
    pub(super) async fn call(
        &self,
        hook: &str,
        body: String,
        keys: &[&str],
    ) -> Result<Option<Map<String, Value>>, String> {
        tracing::trace!(hook, "calling the server of a hook");
        let answer = self.post(body, true).await?;
        if answer.iter().all(u8::is_ascii_whitespace) {
            return Ok(None);
        }
        match serde_json::from_slice(&answer) {
            // Frameworks serialize a function without a return value as `null`.
            Ok(Value::Null) => Ok(None),
            Ok(Value::Object(answer)) if answer.is_empty() => Ok(None),
            Ok(Value::Object(answer)) if keys.iter().any(|key| answer.contains_key(*key)) => Ok(Some(answer)),
            Ok(Value::Object(_)) => Err(format!("answered with none of the keys {}", keys.join(", "))),
            Ok(_) => Err("answered with JSON that is no object".to_owned()),
            Err(error) => Err(format!("answered with something that is not JSON: {error}")),
        }
    }

    /// Applies [`OnFailure`] to a response; `None` if the run continues without it.
    pub(super) fn resolve<T>(
        &self,
        hook: &str,
        response: Result<T, String>,
    ) -> Result<Option<T>, UpstreamError> {
        match (response, self.on_failure) {
            (Ok(response), _) => Ok(Some(response)),
            (Err(problem), OnFailure::Closed) => Err(server_failed(hook, &problem)),
            (Err(problem), OnFailure::Open) => {
                tracing::warn!(hook, problem, "the server of a hook failed, and the run goes on without it");
                Ok(None)
            }
        }
    }
}
