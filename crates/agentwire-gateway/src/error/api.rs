//! Error responses to clients: an HTTP status, a stable code, a message and a hint.

use std::time::Duration;

use agentwire_core::{
    json::{Footprint, ReadError},
    patch::{DEFAULT_MAX_SIZE_GROWTH, PatchError, Reason},
};
use agentwire_store::{Missing, StoreError};
use axum::{
    body::Body,
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use serde::Serialize;

use super::{UpstreamError, causes};
use crate::codes;

/// The reason why a request failed, as an HTTP response.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ApiError {
    /// One of [`crate::codes`].
    pub code: &'static str,
    /// The message for a person.
    pub message: String,
    /// A hint on how to proceed.
    pub hint: Option<String>,
    /// Seconds after which a retry may work.
    pub retry_after: Option<u64>,
    /// The header `WWW-Authenticate` of a request that needs another credential.
    pub challenge: Option<Box<str>>,
    /// The current state, if the request assumed another one.
    pub snapshot: Option<Box<serde_json::Value>>,
    /// Parts that few errors have. Boxed, because every `Result` of a handler has room for an error.
    pub(crate) rare: Option<Box<RareParts>>,
}

/// Parts of an error response that few errors have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RareParts {
    /// The rate that the request exceeds.
    rate: Option<RateState>,
    /// The status, if it is not that of the code.
    status: Option<StatusCode>,
}

/// A rate that is used up: the values of `RateLimit-Policy` and `RateLimit` (draft-ietf-httpapi-ratelimit-headers-11).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RateState {
    pub(crate) policy: &'static str,
    pub(crate) count: u32,
    pub(crate) period: Duration,
    /// Seconds until one more action is allowed.
    pub(crate) wait: u64,
}

impl RateState {
    fn headers(self) -> [(&'static str, String); 2] {
        let Self { policy, count, period, wait } = self;
        let window = period.as_secs().max(1);
        [
            ("ratelimit-policy", format!("\"{policy}\";q={count};w={window}")),
            ("ratelimit", format!("\"{policy}\";r=0;t={wait}")),
        ]
    }
}

/// The code of an error response, as a response extension: metrics count responses by it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ResponseCode(pub(crate) &'static str);

/// The sentence of an error response, as a response extension: some routes show it in place of JSON. Made where it is
/// shown, because most responses do without.
#[derive(Clone, Debug)]
pub(crate) struct ResponseSentence {
    message: String,
    hint: Option<String>,
}

impl ResponseSentence {
    /// Message and hint as a sentence for a person.
    pub(crate) fn text(&self) -> String {
        let hint = self.hint.as_ref().map_or_else(String::new, |hint| format!("; {hint}"));
        let mut letters = self.message.chars();
        let first = letters.next().map(char::to_uppercase).into_iter().flatten();
        format!("{}{}{hint}.", first.collect::<String>(), letters.as_str())
    }
}

/// The body of an error response.
#[derive(Serialize)]
struct ErrorBody<'e> {
    error: ErrorMember<'e>,
    #[serde(skip_serializing_if = "Option::is_none")]
    snapshot: Option<&'e serde_json::Value>,
}

#[derive(Serialize)]
struct ErrorMember<'e> {
    code: &'static str,
    message: &'e str,
    #[serde(skip_serializing_if = "Option::is_none")]
    hint: Option<&'e str>,
}

/// The header of an error response with its code.
pub(crate) const ERROR_CODE: &str = "agentwire-error-code";

impl ApiError {
    /// An error with a code and a message.
    #[must_use]
    pub fn new(code: &'static str, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            hint: None,
            retry_after: None,
            challenge: None,
            snapshot: None,
            rare: None,
        }
    }

    /// The same error with a hint.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// The same error with a retry time in seconds.
    #[must_use]
    pub fn retry_after(mut self, seconds: u64) -> Self {
        self.retry_after = Some(seconds);
        self
    }

    /// The same error with another status than that of its code.
    #[must_use]
    pub fn with_status(mut self, status: StatusCode) -> Self {
        self.rare.get_or_insert_default().status = Some(status);
        self
    }

    /// The same error with the rate that the request exceeds.
    pub(crate) fn with_rate(mut self, rate: RateState) -> Self {
        self.rare.get_or_insert_default().rate = Some(rate);
        self
    }

    /// The same error with a challenge for `WWW-Authenticate`.
    pub(crate) fn challenge(mut self, challenge: impl Into<Box<str>>) -> Self {
        self.challenge = Some(challenge.into());
        self
    }

    /// The error of a patch that does not apply, with the current state unless the patch takes too much work.
    pub(crate) fn patch_failed(error: &PatchError, state: serde_json::Value) -> Self {
        if error.is_too_costly() {
            return Self::new(codes::PATCH_TOO_COSTLY, error.to_string())
                .hint("replace the container as a whole, or send several smaller patches");
        }
        let snapshot = Some(Box::new(state));
        Self { snapshot, ..Self::new(codes::PATCH_FAILED, error.to_string()) }
    }

    /// [`patch_failed`](Self::patch_failed) for the state of a thread, which may have `max_state` bytes.
    pub(crate) fn state_patch_failed(error: &PatchError, state: serde_json::Value, max_state: usize) -> Self {
        match error.reason() {
            // Otherwise the patch exceeds its own limit, whatever the thread can hold.
            Reason::TooLarge(limit) if *limit < DEFAULT_MAX_SIZE_GROWTH => {
                let message = format!("the state of the thread would have more than {max_state} bytes");
                Self::new(codes::THREAD_TOO_LARGE, message)
            }
            Reason::TooManyValues(_) => {
                let message = format!("the state of the thread {}", Footprint::PROBLEM);
                Self::new(codes::THREAD_TOO_LARGE, message)
            }
            _ => Self::patch_failed(error, state),
        }
    }

    /// The HTTP status.
    #[must_use]
    pub fn status(&self) -> StatusCode {
        let of_code = || codes::find(self.code).and_then(|code| StatusCode::from_u16(code.status?).ok());
        self.rare
            .as_ref()
            .and_then(|rare| rare.status)
            .or_else(of_code)
            .unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
    }

    /// True if protocols with an error event report this error within a stream: the request was well formed, but the
    /// thread's state does not allow the run.
    pub(crate) fn is_reported_in_stream(&self) -> bool {
        let codes = [
            codes::THREAD_IS_LOCKED,
            codes::QUEUE_FULL,
            codes::UNKNOWN_INTERRUPT,
            codes::UNKNOWN_TOOL_CALL,
            codes::NO_TOOL_RESULTS,
            codes::INTERRUPT_UNANSWERED,
            codes::INTERRUPT_EXPIRED,
            codes::SCHEMA_MISMATCH,
            codes::ALREADY_ANSWERED,
        ];
        codes.contains(&self.code)
    }
}

impl From<StoreError> for ApiError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::NotFound(Missing::Run) => Self::new(codes::UNKNOWN_RUN, "no such run"),
            StoreError::NotFound(_) => Self::new(codes::UNKNOWN_THREAD, "no such thread"),
            StoreError::TooLarge { .. } => Self::new(codes::BODY_TOO_LARGE, error.to_string()),
            error if error.is_fault() || matches!(error, StoreError::Closed) => {
                tracing::error!(error = causes(&error), "the store failed");
                Self::new(codes::STORE_UNAVAILABLE, "the store does not answer or is full").retry_after(5)
            }
            error => {
                tracing::error!(error = causes(&error), "the store refused what the gateway asked for");
                Self::new(codes::INTERNAL, "the gateway failed; its log has more")
            }
        }
    }
}

impl From<UpstreamError> for ApiError {
    /// The response to a request other than a run. A code of the agent's own becomes `UPSTREAM_FAILED`, since the
    /// codes of responses are documented ones.
    fn from(error: UpstreamError) -> Self {
        tracing::warn!(code = error.code(), detail = error.detail(), "an agent's server failed: {error}");
        let code = codes::find(error.code()).map_or(codes::UPSTREAM_FAILED, |code| code.name);
        Self { retry_after: error.retry_after(), ..Self::new(code, error.to_string()) }
    }
}

impl From<ReadError> for ApiError {
    fn from(error: ReadError) -> Self {
        Self::new(codes::BAD_REQUEST, error.to_string())
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let body = ErrorBody {
            error: ErrorMember { code: self.code, message: &self.message, hint: self.hint.as_deref() },
            snapshot: self.snapshot.as_deref(),
        };
        // Text and JSON values can always be written.
        let body = serde_json::to_string(&body).unwrap_or_default();
        let mut response = Response::new(Body::from(body));
        *response.status_mut() = self.status();
        response.extensions_mut().insert(ResponseCode(self.code));
        response.extensions_mut().insert(ResponseSentence { message: self.message, hint: self.hint });
        let headers = response.headers_mut();
        headers.reserve(8);
        headers.insert(ERROR_CODE, HeaderValue::from_static(self.code));
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        if let Some(seconds) = self.retry_after {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        let rate = self.rare.and_then(|rare| rare.rate);
        for (name, value) in rate.into_iter().flat_map(RateState::headers) {
            if let Ok(value) = HeaderValue::from_str(&value) {
                headers.insert(name, value);
            }
        }
        if let Some(challenge) = self.challenge.and_then(|text| HeaderValue::from_str(&text).ok()) {
            headers.insert(header::WWW_AUTHENTICATE, challenge);
        }
        response
    }
}
