//! Requests to an agent's routes: the extractor that finds the owner, reads the body and records rejections.

use std::{net::IpAddr, sync::Arc, time::Duration};

use agentwire_core::{event::ThreadId, json::Json};
use agentwire_store::Owner;
use axum::{
    extract::{FromRequest, FromRequestParts, RawPathParams, Request},
    http::{HeaderMap, header, request::Parts},
};
use bytes::Bytes;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::{RouteState, peer::Peer};
use crate::{
    agent,
    auth::{Action, CertificateNames, Principal, missing_scope},
    codes,
    error::ApiError,
    gateway::Gateway,
    ops::audit::Record,
    run::admission::check_id,
    settings::{Identity, IdentityField, IdentitySource},
};

/// The connection of a request; an extension that [`super::server`] adds.
#[derive(Clone, Debug, Default)]
pub(crate) struct Connection {
    /// The address at its other end; a request's peer may be behind it: [`super::peer`].
    pub(crate) address: Option<IpAddr>,
    /// The names in the certificate of the client, if it has shown one.
    pub(crate) certificate: Option<Arc<CertificateNames>>,
    /// Closes the connection, or the HTTP/2 stream.
    pub(crate) cut: CancellationToken,
}

/// A request to a route of an agent, with its owner. As an extractor it ignores the body.
pub(crate) struct ApiRequest {
    /// The gateway, the agent and the identity settings of the route.
    pub(crate) state: RouteState,
    pub(crate) owner: Owner,
    /// The sender. An anonymous one has its names in `owner` only.
    pub(crate) principal: Arc<Principal>,
    pub(crate) parts: Parts,
    /// Empty unless the route reads it.
    pub(crate) body: Bytes,
    /// Path parameters, decoded.
    params: Vec<(String, String)>,
    pub(crate) cut: CancellationToken,
}

/// A request with a JSON body.
pub(crate) struct JsonRequest(pub(crate) ApiRequest);

impl FromRequestParts<RouteState> for ApiRequest {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &RouteState) -> Result<Self, ApiError> {
        let params = path_params(parts).await?;
        Self::new(state, params, parts.clone(), Bytes::new())
    }
}

impl FromRequest<RouteState> for JsonRequest {
    type Rejection = ApiError;

    async fn from_request(request: Request, state: &RouteState) -> Result<Self, ApiError> {
        let (mut parts, body) = request.into_parts();
        let params = path_params(&mut parts).await?;
        let limits = &state.gateway.settings().limits;
        let read = match check_content_type(&parts.headers) {
            Ok(()) => read_body(&parts.headers, body, limits.body, limits.request_timeout).await,
            Err(error) => Err(error),
        };
        match read {
            Ok(body) => ApiRequest::new(state, params, parts, body).map(Self),
            Err(error) => {
                // The owner may be in the body, which was not read.
                let (path, peer) = (parts.uri.path().to_owned(), Peer::of(&parts));
                let request = ApiRequest::new(state, params, parts, Bytes::new()).ok();
                let owner = request.as_ref().map(|request| &request.owner);
                state.gateway.audit().note(Record::refused(owner, &path, &error).peer(peer.0));
                Err(error)
            }
        }
    }
}

async fn path_params(parts: &mut Parts) -> Result<Vec<(String, String)>, ApiError> {
    let params = RawPathParams::from_request_parts(parts, &())
        .await
        .map_err(|error| ApiError::new(codes::BAD_REQUEST, format!("the path: {}", error.body_text())))?;
    Ok(params.iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect())
}

impl ApiRequest {
    fn new(
        state: &RouteState,
        params: Vec<(String, String)>,
        parts: Parts,
        body: Bytes,
    ) -> Result<Self, ApiError> {
        let identity = &state.identity;
        let principal = parts.extensions.get::<Arc<Principal>>().cloned();
        let principal = principal.ok_or_else(|| ApiError::new(codes::INTERNAL, "the route has no guard"))?;
        let (tenant, user) = names_at(&principal, identity, &parts, &params, &body)?;
        let owner = Owner::new(tenant, user, state.agent.owner_agent());
        let cut = parts.extensions.get::<Connection>().cloned().unwrap_or_default().cut;
        Ok(Self { state: state.clone(), owner, principal, parts, body, params, cut })
    }

    /// True if the sender may do this with the agent.
    pub(crate) fn may(&self, action: Action) -> bool {
        self.principal.scopes.allow(&self.state.agent.name, action)
    }

    /// `FORBIDDEN` if the sender may not do this with the agent.
    pub(crate) fn require(&self, action: Action) -> Result<(), ApiError> {
        match self.may(action) {
            true => Ok(()),
            false => Err(missing_scope(&format!("agents:{}:{}", self.state.agent.name, action.as_str()))),
        }
    }

    /// Adds a path parameter.
    pub(crate) fn with_param(mut self, name: &str, value: &str) -> Self {
        self.params.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Records an action of the owner with its outcome, and returns the outcome.
    pub(crate) fn audited<T>(
        &self,
        action: &str,
        done: Result<T, ApiError>,
        about: impl FnOnce(Record) -> Record,
    ) -> Result<T, ApiError> {
        let audit = &self.state.gateway.audit();
        if audit.is_on() {
            let record = Record::new(&self.owner, action).peer(Peer::of(&self.parts).0);
            audit.note(about(record).outcome(&done));
        }
        done
    }

    /// Records the request if its body was rejected before it was known what it is about.
    pub(crate) fn parsed<T>(&self, read: Result<T, ApiError>) -> Result<T, ApiError> {
        read.inspect_err(|error| {
            let record = Record::refused(Some(&self.owner), self.parts.uri.path(), error);
            self.state.gateway.audit().note(record.peer(Peer::of(&self.parts).0));
        })
    }

    /// The thread, if the identity settings name its place. Only for routes that are about a thread.
    pub(crate) fn configured_thread(&self) -> Result<Option<ThreadId>, ApiError> {
        let Some(extract) = &self.state.identity.thread else { return Ok(None) };
        let found = find_id("thread", extract, &self.parts.headers, &self.params, &self.body)?;
        Ok(Some(found.into()))
    }

    /// The thread at the place that the identity settings name, or in the path.
    pub(crate) fn thread(&self) -> Result<ThreadId, ApiError> {
        Ok(self.configured_thread()?.unwrap_or_else(|| self.param("id").into()))
    }

    /// The body as text.
    pub(crate) fn text(&self) -> Result<&str, ApiError> {
        std::str::from_utf8(&self.body)
            .map_err(|error| ApiError::new(codes::BAD_REQUEST, format!("the body is not UTF-8: {error}")))
    }

    /// A path parameter.
    pub(crate) fn param(&self, name: &str) -> &str {
        self.params.iter().find(|(key, _)| key == name).map_or("", |(_, value)| value)
    }

    /// A query parameter, decoded.
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

    /// The headers that are forwarded to the agent's server.
    pub(crate) fn forwarded_headers(&self) -> Arc<[(String, String)]> {
        let allowed = self.state.agent.settings.forward_headers.iter().map(String::as_str);
        ["traceparent", "tracestate"]
            .into_iter()
            .chain(allowed)
            .filter_map(|name| Some((name.to_owned(), self.header(name)?.to_owned())))
            .collect()
    }

    /// A request to the agent's side about a thread of the owner.
    pub(crate) async fn about(&self, thread: &ThreadId) -> Result<agent::Request, ApiError> {
        let RouteState { gateway, agent, .. } = &self.state;
        Ok(gateway.thread_request(agent, &self.owner, thread, self.forwarded_headers()).await?)
    }
}

/// Tenant and user of a request to a route without path parameters of its own.
pub(super) fn names_of(
    principal: &Principal,
    identity: &Identity,
    parts: &Parts,
    body: &[u8],
) -> Result<(String, String), ApiError> {
    names_at(principal, identity, parts, &[], body)
}

/// Tenant and user of a request: those of its credential, or those at the places that the identity settings name.
fn names_at(
    principal: &Principal,
    identity: &Identity,
    parts: &Parts,
    params: &[(String, String)],
    body: &[u8],
) -> Result<(String, String), ApiError> {
    // A ticket of an anonymous gateway has names too.
    if !principal.is_anonymous() {
        return Ok((principal.tenant.to_string(), principal.user.to_string()));
    }
    let find = |name: &str, extract: &IdentityField| find_id(name, extract, &parts.headers, params, body);
    Ok((find("tenant", &identity.tenant)?, find("user", &identity.user)?))
}

/// The JSON body of a request to a route of the server.
pub(super) async fn json_body(
    gateway: &Gateway,
    headers: &HeaderMap,
    body: axum::body::Body,
) -> Result<Bytes, ApiError> {
    let limits = &gateway.settings().limits;
    check_content_type(headers)?;
    read_body(headers, body, limits.body, limits.request_timeout).await
}

/// Finds an id at the place that the settings name.
fn find_id(
    name: &str,
    extract: &IdentityField,
    headers: &HeaderMap,
    params: &[(String, String)],
    body: &[u8],
) -> Result<String, ApiError> {
    let found = match &extract.source {
        IdentitySource::Constant => None,
        IdentitySource::Header(header) => single_header(name, headers, header)?,
        IdentitySource::Path(param) => {
            params.iter().find(|(key, _)| key == param).map(|(_, value)| value.clone())
        }
        IdentitySource::Body(pointer) => {
            // Parsed as the routes do: a body that they accept must not be without an owner here.
            let body = std::str::from_utf8(body).ok().and_then(|text| Json::parse(text).ok());
            match body.map_or(Value::Null, |body| body.to_value()).pointer(pointer) {
                None | Some(Value::Null) => None,
                Some(Value::String(id)) => Some(id.clone()),
                // A malformed id must not fall back to the default.
                Some(_) => {
                    let message = format!("the {name} id at `{pointer}` is not a string");
                    return Err(ApiError::new(codes::BAD_ID, message));
                }
            }
        }
    };
    let found = found.filter(|id| !id.is_empty()).or_else(|| extract.default.clone());
    let found =
        found.ok_or_else(|| ApiError::new(codes::NO_IDENTITY, format!("the request names no {name}")))?;
    check_id(name, &found)?;
    Ok(found)
}

/// The value of a header that must occur once. Of two, one may have been sent by a client past the proxy that should
/// have removed it; an unreadable one must not fall back to the default.
fn single_header(name: &str, headers: &HeaderMap, header: &str) -> Result<Option<String>, ApiError> {
    let mut values = headers.get_all(header).iter();
    let Some(value) = values.next() else { return Ok(None) };
    if values.next().is_some() {
        return Err(ApiError::new(
            codes::BAD_ID,
            format!("the {name} id is there more than once: `{header}`"),
        ));
    }
    match std::str::from_utf8(value.as_bytes()) {
        Ok(text) => Ok(Some(text.to_owned())),
        Err(_) => Err(ApiError::new(codes::BAD_ID, format!("the {name} id in `{header}` is not UTF-8"))),
    }
}

/// Accepts JSON only: a page of another origin can send text and forms without a preflight request, but not JSON.
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
    timeout: Duration,
) -> Result<Bytes, ApiError> {
    let too_large = || ApiError::new(codes::BODY_TOO_LARGE, format!("the body has more than {limit} bytes"));
    let length =
        headers.get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
    if length.is_some_and(|length| length > limit as u64) {
        return Err(too_large());
    }
    match tokio::time::timeout(timeout, axum::body::to_bytes(body, limit)).await {
        Ok(Ok(bytes)) => Ok(bytes),
        Ok(Err(error)) => {
            let is_limit = std::error::Error::source(&error)
                .is_some_and(|cause| cause.is::<http_body_util::LengthLimitError>());
            Err(if is_limit {
                too_large()
            } else {
                ApiError::new(codes::BAD_REQUEST, "the body could not be read")
            })
        }
        Err(_) => Err(ApiError::new(codes::REQUEST_TIMEOUT, "the body took too long")),
    }
}

/// Decodes `%41` and `+`; malformed escapes stay as they are.
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
