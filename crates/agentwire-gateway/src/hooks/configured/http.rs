//! A server that is asked by a hook.
//!
//! One POST of JSON; an answer of status 2xx that is empty or an object with keys that mean something. Everything else
//! is a failure of the server, and whether the run goes on after that is configured.

use std::time::Duration;

use reqwest::{
    Client, Url,
    header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue},
};
use serde_json::{Map, Value};

use super::{OptionsError, unanswered};
use crate::{
    error::{UpstreamError, causes},
    outbound,
};

/// The largest answer that is read: an input of the largest size that a client may send, and as much again for what a
/// hook adds.
const MAX_ANSWER: usize = 20 << 20;

/// How long a connection may rest before it is used again. Servers close those that rest, the quickest of the usual ones
/// (gunicorn) after two seconds, and a request that meets its connection in that moment is lost.
const LONGEST_REST: Duration = Duration::from_secs(1);

/// A server of a hook.
#[derive(Clone)]
pub struct Endpoint {
    /// Where it is.
    pub url: String,
    /// Headers of every request.
    pub headers: Vec<(String, String)>,
    /// How long one request may take.
    pub timeout: Duration,
    /// What becomes of a run when it does not answer as it should.
    pub on_failure: OnFailure,
}

impl std::fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Headers are likely keys.
        f.debug_struct("Endpoint").field("url", &self.url).finish_non_exhaustive()
    }
}

/// What becomes of a run when a hook's server fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnFailure {
    /// It goes on as if there were no such hook.
    Open,
    /// It ends with `HOOK_FAILED`.
    Closed,
}

/// A server that can be asked.
#[derive(Debug)]
pub(super) struct Server {
    url: Url,
    client: Client,
    headers: HeaderMap,
    pub(super) on_failure: OnFailure,
}

impl Server {
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
            .pool_idle_timeout(LONGEST_REST)
            .user_agent(concat!("agentwire/", env!("CARGO_PKG_VERSION")))
            .timeout(timeout);
        let client = client.build().map_err(|error| OptionsError(causes(&error)))?;
        Ok(Self { url: parsed, client, headers: map, on_failure })
    }

    /// Sends a body; the answer's bytes if they are wanted.
    pub(super) async fn post(&self, body: String, wanted: bool) -> Result<Vec<u8>, String> {
        let request = self.client.post(self.url.clone()).headers(self.headers.clone()).body(body);
        let failed = |error: reqwest::Error| match error.is_timeout() {
            true => "did not answer in time".to_owned(),
            // What is configured may hold a secret.
            false => format!("could not be asked: {}", causes(&error.without_url())),
        };
        let mut response = request.send().await.map_err(failed)?;
        if !response.status().is_success() {
            return Err(format!("answered {}", response.status()));
        }
        let mut answer = Vec::new();
        while wanted && let Some(chunk) = response.chunk().await.map_err(failed)? {
            if answer.len() + chunk.len() > MAX_ANSWER {
                return Err(format!("answered with more than {MAX_ANSWER} bytes"));
            }
            answer.extend_from_slice(&chunk);
        }
        Ok(answer)
    }

    /// Asks; `None` if the answer changes nothing.
    pub(super) async fn ask(
        &self,
        hook: &str,
        body: String,
        keys: &[&str],
    ) -> Result<Option<Map<String, Value>>, String> {
        tracing::trace!(hook, "asking the server of a hook");
        let answer = self.post(body, true).await?;
        if answer.iter().all(u8::is_ascii_whitespace) {
            return Ok(None);
        }
        match serde_json::from_slice(&answer) {
            // What frameworks make of a function that returns nothing.
            Ok(Value::Null) => Ok(None),
            Ok(Value::Object(answer)) if answer.is_empty() => Ok(None),
            Ok(Value::Object(answer)) if keys.iter().any(|key| answer.contains_key(*key)) => Ok(Some(answer)),
            Ok(Value::Object(_)) => Err(format!("answered with none of the keys {}", keys.join(", "))),
            Ok(_) => Err("answered with JSON that is no object".to_owned()),
            Err(error) => Err(format!("answered with something that is not JSON: {error}")),
        }
    }

    /// What an answer, or the lack of one, means for the run; `None` if it goes on without.
    pub(super) fn settle<T>(
        &self,
        hook: &str,
        answer: Result<T, String>,
    ) -> Result<Option<T>, UpstreamError> {
        match (answer, self.on_failure) {
            (Ok(answer), _) => Ok(Some(answer)),
            (Err(problem), OnFailure::Closed) => Err(unanswered(hook, &problem)),
            (Err(problem), OnFailure::Open) => {
                tracing::warn!(hook, problem, "the server of a hook failed, and the run goes on without it");
                Ok(None)
            }
        }
    }
}
