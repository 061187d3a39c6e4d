//! The routes of artifacts.
//!
//! An artifact may come from anywhere, a model included, and is served from the gateway's origin. So a browser must not run
//! it: no content sniffing, a sandbox, and a download unless its media type is harmless.

use agentwire_core::{event::ThreadId, percent};
use axum::{
    http::{HeaderName, HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};

use super::{json, request::ApiRequest};
use crate::{agent::Artifact, codes, error::ApiError, thread::artifacts};

/// `GET /threads/{id}/artifacts`: the names, as a JSON array.
pub(super) async fn list(request: ApiRequest) -> Result<Response, ApiError> {
    let thread = request.param("id").into();
    let about = request.about(&thread).await?;
    let names = artifacts::names(&request.state.agent, about, check_thread(&request, &thread)).await?;
    Ok(json(serde_json::Value::from(names).to_string()))
}

/// `GET /threads/{id}/artifacts/{name}`: the bytes of the newest version, or of `?version=`.
pub(super) async fn one(request: ApiRequest) -> Result<Response, ApiError> {
    let name = request.param("name");
    let version = match request.query("version") {
        None => None,
        Some(text) => Some(text.parse().map_err(|_| {
            let message = format!("`version` must be a whole number, found `{}`", text.escape_default());
            ApiError::new(codes::BAD_REQUEST, message)
        })?),
    };
    let thread = request.param("id").into();
    let known = check_thread(&request, &thread);
    let about = request.about(&thread).await?;
    let artifact = artifacts::find(&request.state.agent, about, name, version, known).await?;
    Ok(artifact_response(name, artifact))
}

async fn check_thread(request: &ApiRequest, thread: &ThreadId) -> Result<(), ApiError> {
    let about = request.about(thread).await?;
    let known = request.state.gateway.check_thread(&request.state.agent, &request.owner, about).await;
    request.audited("read", known, |record| record.thread(thread))
}

fn artifact_response(name: &str, artifact: Artifact) -> Response {
    let (content_type, is_inline) = content_type(&artifact.mime_type);
    let disposition = if is_inline { "inline" } else { "attachment" };
    // The last component: a name may look like a path or have a `user:` prefix.
    let file = name.rsplit(['/', '\\', ':']).next().unwrap_or(name);
    let disposition =
        HeaderValue::from_str(&format!("{disposition}; filename*=UTF-8''{}", percent::encode(file)));
    let headers = [
        (header::CONTENT_TYPE, content_type),
        (header::CACHE_CONTROL, HeaderValue::from_static("no-store")),
        (header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
        (
            header::CONTENT_SECURITY_POLICY,
            HeaderValue::from_static("sandbox; default-src 'none'; frame-ancestors 'none'"),
        ),
        (HeaderName::from_static("cross-origin-resource-policy"), HeaderValue::from_static("same-site")),
        (header::CONTENT_DISPOSITION, disposition.unwrap_or_else(|_| HeaderValue::from_static("attachment"))),
    ];
    (StatusCode::OK, headers, artifact.bytes).into_response()
}

/// The media type as a header, and whether a browser may show it. A malformed one becomes a byte stream.
fn content_type(given: &str) -> (HeaderValue, bool) {
    let essence = given.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    let is_token = |word: &str| {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "!#$&-^_.+".contains(c);
        !word.is_empty() && word.chars().all(is_plain)
    };
    let well_formed =
        essence.split_once('/').is_some_and(|(kind, subtype)| is_token(kind) && is_token(subtype));
    match HeaderValue::from_str(given.trim()) {
        Ok(value) if well_formed && value.to_str().is_ok() => (value, artifacts::is_inline(&essence)),
        _ => (HeaderValue::from_static("application/octet-stream"), false),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn active_content_is_never_shown_inline() {
        for given in [
            "text/html",
            "TEXT/HTML; charset=utf-8",
            "image/svg+xml",
            "application/pdf",
            "text/xml",
            "application/xhtml+xml",
            "text/javascript",
            "application/x-anything",
            "multipart/mixed",
            "font/woff2",
        ] {
            let (value, is_inline) = content_type(given);
            assert!(!is_inline, "{given}");
            assert_eq!(value, given);
        }
        for given in
            ["text/plain", "Text/Plain; charset=utf-8", "image/png", "video/mp4", "audio/L16; rate=24000"]
        {
            let (value, is_inline) = content_type(given);
            assert!(is_inline, "{given}");
            assert_eq!(value, given);
        }
    }

    #[test]
    fn malformed_media_types_become_byte_streams() {
        for given in [
            "",
            "text",
            "text/",
            "/plain",
            "text/plain\r\nset-cookie: a=b",
            "te xt/plain",
            "text/plaïn",
            "text/plain, text/html",
            "*/*",
            "text/plain\0",
            "text/html\t/x",
        ] {
            let (value, is_inline) = content_type(given);
            assert!(!is_inline && value == "application/octet-stream", "{given:?}: {value:?}");
        }
        // Parameters are kept if they are a valid header value.
        assert_eq!(content_type("text/plain; x=\u{fc}").0, "application/octet-stream");
    }

    #[test]
    fn names_are_encoded_in_the_header() {
        for name in
            ["a\"b; filename=evil.exe", "a\r\nset-cookie: x", "grün.txt", "user:x", "a/b/c.txt", "/", ""]
        {
            let artifact = Artifact { mime_type: "text/plain".into(), bytes: Default::default() };
            let response = artifact_response(name, artifact);
            let value = response.headers()[header::CONTENT_DISPOSITION].to_str().unwrap().to_owned();
            let (_, file) = value.split_once("filename*=UTF-8''").unwrap();
            assert!(file.chars().all(|c| c.is_ascii_alphanumeric() || "%-._~".contains(c)), "{value}");
        }
    }
}
