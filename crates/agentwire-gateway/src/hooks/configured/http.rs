//! The HTTP server of a hook.
//!
//! One POST of JSON, signed if there is a secret; the response is valid with a status 2xx and an empty body or an object
//! with known keys. Every other response is a failure of the server; [`OnFailure`] decides if the run continues.

use std::{
    fmt::Write,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use agentwire_client::transport;
use agentwire_store::Owner;
use reqwest::{
    Client, Url,
    header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue},
};
use ring::hmac;

use super::{
    super::refused,
    OptionsError,
    reply::{Problem, Reply},
    server_failed,
};
use crate::{
    cpu_work,
    error::{UpstreamError, causes},
};

/// The largest response: twice the largest input of a client, so that a hook can add data.
const MAX_RESPONSE: usize = 20 << 20;

/// The longest idle time of a reused connection. Servers close idle connections, gunicorn after two seconds, and a request
/// on a connection that is closed at that moment is lost.
const MAX_IDLE: Duration = Duration::from_secs(1);

/// The header of the signature: `t=SECONDS,v1=HEX`, where HEX is the HMAC-SHA-256 of `SECONDS.BODY`.
const SIGNATURE: &str = "agentwire-signature";

/// The server of a hook.
#[derive(Clone)]
pub struct Endpoint {
    /// Its URL.
    pub url: String,
    /// Headers of every request.
    pub headers: Vec<(String, String)>,
    /// The key of the signature of every request; without it requests are not signed.
    pub secret: Option<String>,
    /// The timeout of one request.
    pub timeout: Duration,
    /// The effect of a failure on the run.
    pub on_failure: OnFailure,
}

impl std::fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Headers may contain keys, and the secret is one.
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
    key: Option<hmac::Key>,
    pub(super) on_failure: OnFailure,
}

impl HookServer {
    pub(super) fn new(endpoint: Endpoint) -> Result<Self, OptionsError> {
        let Endpoint { url, headers, secret, timeout, on_failure } = endpoint;
        let parsed = Url::parse(&url).ok().filter(|url| matches!(url.scheme(), "http" | "https"));
        // An address may hold a secret, so the message does not repeat it.
        let not_a_url = || {
            OptionsError(
                "the address of a hook server is not a URL that begins with http:// or https://".into(),
            )
        };
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
        if secret.as_ref().is_some_and(String::is_empty) {
            return Err(OptionsError("the secret of a hook server is empty".into()));
        }
        let key = secret.map(|secret| hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes()));
        let client = transport::client_builder(&parsed)
            .pool_idle_timeout(MAX_IDLE)
            .user_agent(concat!("agentwire/", env!("CARGO_PKG_VERSION")))
            .timeout(timeout);
        let client = client.build().map_err(|error| OptionsError(causes(&error)))?;
        Ok(Self { url: parsed, client, headers: map, key, on_failure })
    }

    /// Sends a body; returns the response if `needs_response`.
    pub(super) async fn post(&self, body: String, needs_response: bool) -> Result<Vec<u8>, String> {
        let mut request = self.client.post(self.url.clone()).headers(self.headers.clone());
        if let Some(key) = &self.key {
            request = request.header(SIGNATURE, sign(key, &body));
        }
        let failed = |error: reqwest::Error| match error.is_timeout() {
            true => "did not answer in time".to_owned(),
            // The configured URL may contain a secret.
            false => format!("could not be asked: {}", causes(&error.without_url())),
        };
        let mut response = request.body(body).send().await.map_err(failed)?;
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

    /// Calls the server for a run of the owner; `None` if the response changes nothing.
    pub(super) async fn call(
        &self,
        owner: &Owner,
        hook: &str,
        body: String,
        keys: &[&str],
    ) -> Result<Option<Reply>, Problem> {
        tracing::trace!(hook, "calling the server of a hook");
        let answer = self.post(body, true).await.map_err(Problem::Failed)?;
        match answer.len() > cpu_work::SHORT_TEXT {
            true => cpu_work::in_place(owner, || Reply::parse(&answer, keys)).await,
            false => Reply::parse(&answer, keys),
        }
    }

    /// Applies [`OnFailure`] to a response; `None` if the run continues without it.
    pub(super) fn resolve<T>(
        &self,
        hook: &str,
        response: Result<T, Problem>,
    ) -> Result<Option<T>, UpstreamError> {
        match (response, self.on_failure) {
            (Ok(response), _) => Ok(Some(response)),
            (Err(Problem::Refused(why)), _) => Err(refused(why)),
            (Err(Problem::Failed(problem)), OnFailure::Closed) => Err(server_failed(hook, &problem)),
            (Err(Problem::Failed(problem)), OnFailure::Open) => {
                tracing::warn!(hook, problem, "the server of a hook failed, and the run goes on without it");
                Ok(None)
            }
        }
    }
}

/// The signature of a body, now.
fn sign(key: &hmac::Key, body: &str) -> String {
    let time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let mut context = hmac::Context::with_key(key);
    context.update(format!("{time}.").as_bytes());
    context.update(body.as_bytes());
    let mut signature = format!("t={time},v1=");
    for byte in context.sign().as_ref() {
        // Writing to a string cannot fail.
        write!(signature, "{byte:02x}").ok();
    }
    signature
}
