//! What agents have stored in a thread beside the conversation: reports, pictures, whatever they make.
//!
//! Anybody may have made it, a model included, and it is served from the origin of the gateway. So a browser gets it with
//! everything that keeps it from being run: no sniffing, a sandbox, and as a download unless it is known to be harmless.

use agentwire_core::{event::ThreadId, percent};
use agentwire_store::StoreError;
use axum::{
    extract::{Request, State},
    http::{HeaderName, HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};

use super::{
    Mount, json,
    request::{Call, Params},
};
use crate::{
    agent::{self, Artifact},
    codes,
    error::ApiError,
    ops::audit::Record,
};

/// The longest name: what file systems take.
const MAX_NAME: usize = 1024;

/// What a page may show: nothing in it runs.
const HARMLESS: &[&str] = &[
    "application/json",
    "image/avif",
    "image/bmp",
    "image/gif",
    "image/jpeg",
    "image/png",
    "image/webp",
    "text/csv",
    "text/markdown",
    "text/plain",
];

/// `GET /threads/{id}/artifacts`: the names, as a JSON array.
pub(crate) async fn list(
    State(mount): State<Mount>,
    params: Params,
    request: Request,
) -> Result<Response, ApiError> {
    let call = Call::without_body(&mount, &params, request)?;
    let asked = mount.thread_request(&call, &call.param("id").into());
    let names = mount.agent.agent.artifacts(asked.clone()).ok_or_else(none)?;
    check_thread(&mount, &call, asked).await?;
    Ok(json(serde_json::Value::from(names.await?).to_string()))
}

/// `GET /threads/{id}/artifacts/{name}`: the bytes of the newest version, or of `?version=`.
pub(crate) async fn one(
    State(mount): State<Mount>,
    params: Params,
    request: Request,
) -> Result<Response, ApiError> {
    let call = Call::without_body(&mount, &params, request)?;
    let name = call.param("name");
    let version = match call.query("version") {
        None => None,
        Some(text) => Some(text.parse().map_err(|_| {
            let message = format!("`version` must be a whole number, found `{}`", text.escape_default());
            ApiError::new(codes::BAD_REQUEST, message)
        })?),
    };
    let asked = mount.thread_request(&call, &call.param("id").into());
    let artifact = mount.agent.agent.artifact(asked.clone(), name, version).ok_or_else(none)?;
    check_thread(&mount, &call, asked).await?;
    let artifact = match name.len() {
        0..=MAX_NAME => artifact.await?,
        _ => None,
    };
    match artifact {
        Some(artifact) => Ok(served(name, artifact)),
        None => Err(ApiError::new(codes::UNKNOWN_ARTIFACT, "no such artifact")),
    }
}

fn none() -> ApiError {
    ApiError::new(codes::NO_ARTIFACTS, "this agent stores no artifacts")
}

/// Whether there is such a thread of this user: here, or on the agent's side. The agent's server need not know
/// whose is whose, so nothing is asked there before.
async fn check_thread(mount: &Mount, call: &Call, asked: agent::Request) -> Result<(), ApiError> {
    let thread: &ThreadId = &asked.input.thread;
    let gateway = &mount.gateway;
    let stored = gateway.store().state(&call.owner, thread).await;
    let known = match stored {
        Ok(_) => Ok(()),
        Err(StoreError::NotFound(_)) => {
            let unknown = || ApiError::new(codes::UNKNOWN_THREAD, "no such thread");
            match mount.agent.agent.recall(asked.clone()) {
                Some(recalled) => recalled.await?.map(|_| ()).ok_or_else(unknown),
                None => Err(unknown()),
            }
        }
        Err(error) => Err(error.into()),
    };
    gateway.audit().note(Record::new(&call.owner, "read").thread(thread).outcome(&known));
    known
}

fn served(name: &str, artifact: Artifact) -> Response {
    let (content_type, harmless) = content_type(&artifact.mime_type);
    let disposition = if harmless { "inline" } else { "attachment" };
    // The last part of a name that may look like a path, or be marked as the user's own.
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

/// The type as a header, and whether a browser may show it.
fn content_type(given: &str) -> (HeaderValue, bool) {
    let essence = given.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    let is_token = |word: &str| {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "!#$&-^_.+".contains(c);
        !word.is_empty() && word.chars().all(is_plain)
    };
    let well_formed =
        essence.split_once('/').is_some_and(|(kind, subtype)| is_token(kind) && is_token(subtype));
    match HeaderValue::from_str(given.trim()) {
        Ok(value) if well_formed && value.to_str().is_ok() => {
            let plays = essence.starts_with("audio/") || essence.starts_with("video/");
            (value, plays || HARMLESS.contains(&&*essence))
        }
        _ => (HeaderValue::from_static("application/octet-stream"), false),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_a_browser_would_run_is_shown() {
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
            let (value, harmless) = content_type(given);
            assert!(!harmless, "{given}");
            assert_eq!(value, given);
        }
        for given in
            ["text/plain", "Text/Plain; charset=utf-8", "image/png", "video/mp4", "audio/L16; rate=24000"]
        {
            let (value, harmless) = content_type(given);
            assert!(harmless, "{given}");
            assert_eq!(value, given);
        }
    }

    #[test]
    fn what_is_no_type_becomes_bytes() {
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
            let (value, harmless) = content_type(given);
            assert!(!harmless && value == "application/octet-stream", "{given:?}: {value:?}");
        }
        // What stands behind the type is shown as it is, if a header can hold it.
        assert_eq!(content_type("text/plain; x=\u{fc}").0, "application/octet-stream");
    }

    #[test]
    fn names_cannot_leave_their_header() {
        for name in
            ["a\"b; filename=evil.exe", "a\r\nset-cookie: x", "grün.txt", "user:x", "a/b/c.txt", "/", ""]
        {
            let artifact = Artifact { mime_type: "text/plain".into(), bytes: Default::default() };
            let response = served(name, artifact);
            let value = response.headers()[header::CONTENT_DISPOSITION].to_str().unwrap().to_owned();
            let (_, file) = value.split_once("filename*=UTF-8''").unwrap();
            assert!(file.chars().all(|c| c.is_ascii_alphanumeric() || "%-._~".contains(c)), "{value}");
        }
    }
}
