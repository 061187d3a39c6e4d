//! What a request says: who is asking, about what, in which words.

use std::{sync::Arc, time::Duration};

use agentwire_core::{event::ThreadId, json::Json};
use agentwire_store::Owner;
use axum::{
    extract::{FromRequestParts, RawPathParams, Request},
    http::{HeaderMap, header, request::Parts},
};
use bytes::Bytes;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::Mount;
use crate::{
    codes,
    error::ApiError,
    ops::audit::Record,
    settings::{IdentityField, IdentitySource},
};

/// The connection of a request; put there by [`super::server`].
#[derive(Clone, Debug, Default)]
pub(crate) struct Connection {
    /// Ends it.
    pub(crate) cut: CancellationToken,
}

/// The parameters of the path, decoded.
pub(crate) struct Params(Vec<(String, String)>);

impl Params {
    /// These and one more.
    pub(crate) fn with(mut self, name: &str, value: &str) -> Self {
        self.0.push((name.to_owned(), value.to_owned()));
        self
    }
}

impl<S: Send + Sync> FromRequestParts<S> for Params {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let params = RawPathParams::from_request_parts(parts, state)
            .await
            .map_err(|error| ApiError::new(codes::BAD_REQUEST, format!("the path: {}", error.body_text())))?;
        Ok(Self(params.iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect()))
    }
}

/// A request, taken apart.
pub(crate) struct Call {
    pub(crate) parts: Parts,
    pub(crate) owner: Owner,
    /// Empty unless the route reads it.
    pub(crate) body: Bytes,
    params: Vec<(String, String)>,
    pub(crate) cut: CancellationToken,
}

impl Call {
    /// Takes a request apart whose body nobody needs.
    pub(crate) fn without_body(mount: &Mount, params: &Params, request: Request) -> Result<Self, ApiError> {
        let (parts, _) = request.into_parts();
        Self::new(mount, params, parts, Bytes::new())
    }

    /// Records a request that was refused before anything was done about it.
    pub(crate) fn told<T>(&self, mount: &Mount, done: Result<T, ApiError>) -> Result<T, ApiError> {
        done.inspect_err(|refusal| {
            let record = Record::refused(Some(&self.owner), self.parts.uri.path(), refusal);
            mount.gateway.audit().note(record);
        })
    }

    /// Takes a request apart and reads its body, which must be JSON.
    pub(crate) async fn with_json(
        mount: &Mount,
        params: &Params,
        request: Request,
    ) -> Result<Self, ApiError> {
        let (parts, body) = request.into_parts();
        let limits = &mount.gateway.settings().limits;
        let read = match check_content_type(&parts.headers) {
            Ok(()) => read_body(&parts.headers, body, limits.body, limits.request_timeout).await,
            Err(refusal) => Err(refusal),
        };
        match read {
            Ok(body) => Self::new(mount, params, parts, body),
            Err(refusal) => {
                // Whose it is may stand in what was not read.
                let path = parts.uri.path().to_owned();
                let call = Self::new(mount, params, parts, Bytes::new()).ok();
                let owner = call.as_ref().map(|call| &call.owner);
                mount.gateway.audit().note(Record::refused(owner, &path, &refusal));
                Err(refusal)
            }
        }
    }

    fn new(mount: &Mount, params: &Params, parts: Parts, body: Bytes) -> Result<Self, ApiError> {
        let params = params.0.clone();
        let identity = &mount.identity;
        let look = |what: &str, extract: &IdentityField| find(what, extract, &parts.headers, &params, &body);
        let owner = Owner::new(look("tenant", &identity.tenant)?, look("user", &identity.user)?);
        let cut = parts.extensions.get::<Connection>().cloned().unwrap_or_default().cut;
        Ok(Self { parts, owner, body, params, cut })
    }

    /// The thread, if the settings say where it stands. Routes that are about no thread do not ask.
    pub(crate) fn thread(&self, mount: &Mount) -> Result<Option<ThreadId>, ApiError> {
        let Some(extract) = &mount.identity.thread else { return Ok(None) };
        let found = find("thread", extract, &self.parts.headers, &self.params, &self.body)?;
        Ok(Some(found.into()))
    }

    pub(crate) fn text(&self) -> Result<&str, ApiError> {
        std::str::from_utf8(&self.body)
            .map_err(|error| ApiError::new(codes::BAD_REQUEST, format!("the body is not UTF-8: {error}")))
    }

    /// A parameter of the path.
    pub(crate) fn param(&self, name: &str) -> &str {
        self.params.iter().find(|(key, _)| key == name).map_or("", |(_, value)| value)
    }

    /// A parameter of the query, decoded.
    pub(crate) fn query(&self, name: &str) -> Option<String> {
        let query = self.parts.uri.query()?;
        query.split('&').find_map(|pair| {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            (percent_decode(key) == name).then(|| percent_decode(value))
        })
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        std::str::from_utf8(self.parts.headers.get(name)?.as_bytes()).ok()
    }

    /// The headers that may go on to the agent.
    pub(crate) fn forwarded(&self, mount: &Mount) -> Arc<[(String, String)]> {
        let allowed = mount.agent.settings.forward_headers.iter().map(String::as_str);
        ["traceparent", "tracestate"]
            .into_iter()
            .chain(allowed)
            .filter_map(|name| Some((name.to_owned(), self.header(name)?.to_owned())))
            .collect()
    }
}

/// Finds a name where the settings say that it stands.
fn find(
    what: &str,
    extract: &IdentityField,
    headers: &HeaderMap,
    params: &[(String, String)],
    body: &[u8],
) -> Result<String, ApiError> {
    let found = match &extract.source {
        IdentitySource::Constant => None,
        IdentitySource::Header(name) => said_once(what, headers, name)?,
        IdentitySource::Path(name) => {
            params.iter().find(|(key, _)| key == name).map(|(_, value)| value.clone())
        }
        IdentitySource::Body(pointer) => {
            // As the routes read it: a body that they take must not be nobody's here.
            let body = std::str::from_utf8(body).ok().and_then(|text| Json::parse(text).ok());
            match body.map_or(Value::Null, |body| body.to_value()).pointer(pointer) {
                None | Some(Value::Null) => None,
                Some(Value::String(name)) => Some(name.clone()),
                // Whoever says who they are in words that are not understood is not nobody.
                Some(_) => {
                    let message = format!("the {what} id at `{pointer}` is not a string");
                    return Err(ApiError::new(codes::BAD_ID, message));
                }
            }
        }
    };
    let found = found.filter(|name| !name.is_empty()).or_else(|| extract.default.clone());
    let found =
        found.ok_or_else(|| ApiError::new(codes::NO_IDENTITY, format!("the request names no {what}")))?;
    crate::run::admission::check_id(what, &found)?;
    Ok(found)
}

/// What a header says that must say one thing. If it is there twice, one of them may be what a client sent past the
/// proxy that should have removed it; if it cannot be read, it does not mean nobody.
fn said_once(what: &str, headers: &HeaderMap, name: &str) -> Result<Option<String>, ApiError> {
    let mut values = headers.get_all(name).iter();
    let Some(value) = values.next() else { return Ok(None) };
    if values.next().is_some() {
        return Err(ApiError::new(codes::BAD_ID, format!("the {what} id is there more than once: `{name}`")));
    }
    match std::str::from_utf8(value.as_bytes()) {
        Ok(text) => Ok(Some(text.to_owned())),
        Err(_) => Err(ApiError::new(codes::BAD_ID, format!("the {what} id in `{name}` is not UTF-8"))),
    }
}

/// Only JSON: a page of another origin can send text and forms without asking, but not this.
fn check_content_type(headers: &HeaderMap) -> Result<(), ApiError> {
    let given = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let essence = given.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    let is_json =
        essence == "application/json" || (essence.starts_with("application/") && essence.ends_with("+json"));
    if !is_json {
        let found =
            if given.is_empty() { "none".to_owned() } else { format!("`{}`", given.escape_default()) };
        return Err(ApiError::new(
            codes::UNSUPPORTED_MEDIA_TYPE,
            format!("the content type is {found}, expected `application/json`"),
        )
        .hint("send the header `content-type: application/json`"));
    }
    if headers.get(header::CONTENT_ENCODING).is_some_and(|value| value != "identity") {
        return Err(ApiError::new(codes::UNSUPPORTED_MEDIA_TYPE, "compressed bodies are not taken"));
    }
    Ok(())
}

async fn read_body(
    headers: &HeaderMap,
    body: axum::body::Body,
    limit: usize,
    patience: Duration,
) -> Result<Bytes, ApiError> {
    let too_large = || ApiError::new(codes::BODY_TOO_LARGE, format!("the body has more than {limit} bytes"));
    let said = headers.get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
    if said.is_some_and(|said| said > limit as u64) {
        return Err(too_large());
    }
    match tokio::time::timeout(patience, axum::body::to_bytes(body, limit)).await {
        Ok(Ok(bytes)) => Ok(bytes),
        Ok(Err(error)) => {
            let limited = std::error::Error::source(&error)
                .is_some_and(|cause| cause.is::<http_body_util::LengthLimitError>());
            Err(if limited {
                too_large()
            } else {
                ApiError::new(codes::BAD_REQUEST, "the body could not be read")
            })
        }
        Err(_) => Err(ApiError::new(codes::REQUEST_TIMEOUT, "the body took too long")),
    }
}

/// Decodes `%41` and `+`; what is not valid stays as it is.
pub(crate) fn percent_decode(text: &str) -> String {
    percent_encoding::percent_decode_str(&text.replace('+', " ")).decode_utf8_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_are_decoded() {
        assert_eq!(percent_decode("a%20b+c%C3%A9%zz%4"), "a b cé%zz%4");
    }
}
