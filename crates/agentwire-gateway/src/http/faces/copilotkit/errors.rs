//! The error responses of CopilotKit's runtime.

use axum::{
    body::Body,
    extract::Request,
    http::{HeaderValue, StatusCode, header},
    middleware::Next,
    response::Response,
};
use serde_json::json;

use crate::{
    codes,
    error::{ResponseCode, ResponseSentence},
};

/// Error responses as `{error, message, code}`, with `details` for a malformed request.
pub(super) async fn in_shape(request: Request, next: Next) -> Response {
    let mut response = next.run(request).await;
    let code = response.extensions().get::<ResponseCode>().map(|code| code.0);
    let sentence = response.extensions_mut().remove::<ResponseSentence>();
    let Some((code, sentence)) = code.zip(sentence) else { return response };
    let mut body = json!({"error": name(code, response.status()), "message": sentence.text(), "code": code});
    if response.status() == StatusCode::BAD_REQUEST {
        body["details"] = body["message"].clone();
    }
    *response.body_mut() = Body::from(body.to_string());
    let headers = response.headers_mut();
    headers.remove(header::CONTENT_LENGTH);
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// The name of an error in CopilotKit's runtime, or that of its status.
fn name(code: &str, status: StatusCode) -> &'static str {
    match code {
        codes::UNKNOWN_AGENT => "Agent not found",
        codes::UNKNOWN_THREAD => "Thread not found",
        codes::UNKNOWN_ROUTE => "Not found",
        codes::METHOD_NOT_ALLOWED => "Method not allowed",
        codes::BAD_REQUEST | codes::BAD_ID => "Invalid request body",
        _ => status.canonical_reason().unwrap_or("Error"),
    }
}
