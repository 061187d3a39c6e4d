//! The error responses of LangGraph Server: `{"detail": "…"}`.

use axum::{
    body::Body,
    extract::Request,
    http::{HeaderValue, StatusCode, header},
    middleware::Next,
    response::Response,
};
use serde_json::json;

use super::super::super::json as json_response;
use crate::{
    codes,
    error::{ApiError, ResponseCode, ResponseSentence},
};

/// Error responses in the server's shape. A body that is understood and cannot be used is 422 there.
pub(super) async fn in_shape(request: Request, next: Next) -> Response {
    let mut response = next.run(request).await;
    let is_error = response.extensions().get::<ResponseCode>().is_some();
    let sentence = response.extensions_mut().remove::<ResponseSentence>();
    let Some(sentence) = sentence.filter(|_| is_error) else { return response };
    if response.status() == StatusCode::BAD_REQUEST {
        *response.status_mut() = StatusCode::UNPROCESSABLE_ENTITY;
    }
    *response.body_mut() = Body::from(json!({ "detail": sentence.text() }).to_string());
    let headers = response.headers_mut();
    headers.remove(header::CONTENT_LENGTH);
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// A request of protocol v2 that cannot be used as it is.
pub(super) fn detail(message: &str) -> Response {
    let mut response = json_response(json!({ "detail": message }).to_string());
    *response.status_mut() = StatusCode::BAD_REQUEST;
    response
}

/// A request that cannot be used as it is.
pub(super) fn invalid(message: impl Into<String>) -> ApiError {
    ApiError::new(codes::BAD_REQUEST, message)
}

pub(super) fn not_offered(option: &str) -> ApiError {
    invalid(format!("`{option}` is not offered by this server"))
}

pub(super) fn unknown_thread() -> ApiError {
    ApiError::new(codes::UNKNOWN_THREAD, "Thread or assistant not found")
}

pub(super) fn unknown_run() -> ApiError {
    ApiError::new(codes::UNKNOWN_RUN, "Run not found")
}

/// An assistant that does not exist, or that the sender may not use.
pub(super) fn unknown_assistant(name: &str) -> ApiError {
    ApiError::new(codes::UNKNOWN_AGENT, format!("Invalid assistant: '{}'", name.escape_default()))
}
