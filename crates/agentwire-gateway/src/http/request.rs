//! Requests to an agent's routes: the extractor that finds the owner and reads the body.

use std::{
    net::IpAddr,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use agentwire_core::{
    event::ThreadId,
    json::{Footprint, Json},
};
use agentwire_store::Owner;
use axum::{
    extract::{FromRequest, FromRequestParts, RawPathParams, Request},
    http::{HeaderMap, header, request::Parts},
};
use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::{RouteState, peer::Peer};
use crate::{
    agent,
    auth::{Action, Caller, ClientCertificate, Identify, IdentityRequest, Principal, missing_scope},
    codes, cpu_work,
    error::ApiError,
    gateway::Gateway,
    limits::{HeldBytes, OwnerSeats, Party, Pressure},
    ops::audit::{Caller as AuditCaller, Record},
    run::admission::check_id,
    settings::{Identity, IdentityField, IdentitySource, Sse},
};

/// The connection of a request; an extension that the gateway's own server adds. A server that mounts the routes can add
/// one too, so that the gateway knows the address of the peer and can cut a reader that does not keep up.
#[derive(Clone, Debug, Default)]
pub struct Connection {
    /// The address at its other end; a request's peer may be behind it: [`super::peer`].
    pub(crate) address: Option<IpAddr>,
    /// The certificate of the client, if it has shown one.
    pub(crate) certificate: Option<Arc<ClientCertificate>>,
    /// Closes the connection, or the HTTP/2 stream.
    pub(crate) cut: CancellationToken,
    /// True if the gateway's own server has accepted it.
    pub(crate) is_own: bool,
    /// The prefix under which the other server has mounted the routes, percent-encoded; empty if there is none.
    pub(crate) prefix: Arc<str>,
}

impl Connection {
    /// A connection of another server, which closes it without a regular end of the response when `cut` is cancelled.
    #[must_use]
    pub fn new(address: Option<IpAddr>, cut: CancellationToken) -> Self {
        Self { address, cut, ..Self::default() }
    }

    /// The same for a server that has mounted the routes below `prefix` and takes it off the paths: links in responses
    /// have it.
    #[must_use]
    pub fn mounted_at(mut self, prefix: &str) -> Self {
        self.prefix = prefix.trim_end_matches('/').into();
        self
    }

    /// The address at its other end.
    #[must_use]
    pub fn address(&self) -> Option<IpAddr> {
        self.address
    }
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
    /// The bytes of the body in the budget.
    _held: Option<HeldBytes>,
    /// The place of its stream in the limits of the user, until the stream has it.
    reader: Mutex<Option<OwnerSeats>>,
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
        identify(state, parts, &params, &Bytes::new()).await?;
        let request = Self::new(state, params, parts.clone(), Bytes::new(), None)?;
        request.check_rate()?;
        Ok(request)
    }
}

impl FromRequest<RouteState> for JsonRequest {
    type Rejection = ApiError;

    async fn from_request(request: Request, state: &RouteState) -> Result<Self, ApiError> {
        let (mut parts, body) = request.into_parts();
        let params = path_params(&mut parts).await?;
        let limits = &state.gateway.settings().limits;
        let sender = payer(&parts);
        let mut held = state.gateway.bytes().hold(sender.clone());
        let is_named = !state.identity.is_in_body() && state.agent.identify.is_none();
        if is_named {
            // Before the first byte of the body.
            ApiRequest::new(state, params.clone(), parts.clone(), Bytes::new(), None)?.check_rate()?;
        }
        let read = match check_content_type(&parts.headers) {
            Ok(()) => read_body(&parts.headers, body, limits.body, limits.request_timeout, &mut held).await,
            Err(error) => Err(error),
        };
        match read {
            Ok(body) => {
                identify(state, &mut parts, &params, &body).await?;
                let new = || ApiRequest::new(state, params, parts, body, Some(held));
                if is_named {
                    return new().map(Self);
                }
                // The names of an owner in a long body are found by parsing it.
                let request = cpu_work::request_in_place(sender, new).await??;
                request.check_rate()?;
                Ok(Self(request))
            }
            Err(error) => {
                // The owner may be in the body, which was not read.
                let _ = ApiRequest::new(state, params, parts, Bytes::new(), None);
                Err(error)
            }
        }
    }
}

/// Marks a request that is counted for its user.
#[derive(Clone, Copy)]
struct Counted;

/// Counts a request whose credential names its sender, before its scope is checked and its body read.
pub(super) fn count_known(
    gateway: &Gateway,
    principal: &Principal,
    parts: &mut Parts,
) -> Result<(), ApiError> {
    if !principal.is_anonymous() && parts.extensions.get::<Counted>().is_none() {
        gateway.quotas().request(&Owner::new(&*principal.tenant, &*principal.user, ""))?;
        parts.extensions.insert(Counted);
    }
    Ok(())
}

/// Counts a request whose sender is known by now, unless that was done.
pub(super) fn count(gateway: &Gateway, owner: &Owner, parts: &Parts) -> Result<(), ApiError> {
    match parts.extensions.get::<Counted>() {
        Some(Counted) => Ok(()),
        None => gateway.quotas().request(owner),
    }
}

pub(super) async fn path_params(parts: &mut Parts) -> Result<Vec<(String, String)>, ApiError> {
    let params = RawPathParams::from_request_parts(parts, &())
        .await
        .map_err(|error| ApiError::new(codes::BAD_REQUEST, format!("the path: {}", error.body_text())))?;
    Ok(params.iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect())
}

/// Asks the app for the sender of an anonymous request, if it has such a function.
async fn identify(
    state: &RouteState,
    parts: &mut Parts,
    params: &[(String, String)],
    body: &Bytes,
) -> Result<(), ApiError> {
    let (agent, part) = (&state.agent, state.group.name());
    ask_for_sender(agent.identify.as_ref(), parts, params, body, (&agent.name, part)).await
}

/// The same for any route; `place` is its agent and its group.
pub(super) async fn ask_for_sender(
    identify: Option<&Arc<dyn Identify>>,
    parts: &mut Parts,
    params: &[(String, String)],
    body: &Bytes,
    (agent, part): (&str, &'static str),
) -> Result<(), ApiError> {
    let is_known = parts.extensions.get::<Caller>().is_some()
        || parts.extensions.get::<Arc<Principal>>().is_some_and(|principal| !principal.is_anonymous());
    if let Some(identify) = identify.filter(|_| !is_known) {
        let request = IdentityRequest { parts, params, body, agent, part };
        let caller = identify.identify(request).await?;
        parts.extensions.insert(caller);
    }
    Ok(())
}

/// A request whose answer does not depend on its sender. The function of the app that names senders may refuse it.
pub(super) struct KnownSender;

impl FromRequestParts<Gateway> for KnownSender {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, gateway: &Gateway) -> Result<Self, ApiError> {
        let asked = gateway.registry().identify.clone();
        ask_for_sender(asked.as_ref(), parts, &[], &Bytes::new(), ("", "server")).await?;
        Ok(Self)
    }
}

impl FromRequestParts<RouteState> for KnownSender {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &RouteState) -> Result<Self, ApiError> {
        let params = path_params(parts).await?;
        identify(state, parts, &params, &Bytes::new()).await?;
        Ok(Self)
    }
}

/// Refuses a request whose sender only a function of the agent could name, and which that function has not seen.
pub(super) fn check_sender(state: &RouteState, parts: &Parts) -> Result<(), ApiError> {
    let is_known = parts.extensions.get::<Caller>().is_some()
        || parts.extensions.get::<Arc<Principal>>().is_some_and(|principal| !principal.is_anonymous());
    match is_known || state.agent.identify.is_none() {
        true => Ok(()),
        false => Err(ApiError::new(codes::NO_IDENTITY, "the request names no user")),
    }
}

impl ApiRequest {
    pub(super) fn new(
        state: &RouteState,
        params: Vec<(String, String)>,
        parts: Parts,
        body: Bytes,
        held: Option<HeldBytes>,
    ) -> Result<Self, ApiError> {
        let identity = &state.identity;
        let principal = parts.extensions.get::<Arc<Principal>>().cloned();
        let principal = principal.ok_or_else(|| ApiError::new(codes::INTERNAL, "the route has no guard"))?;
        check_sender(state, &parts)?;
        let (tenant, user) = names_at(&principal, identity, &parts, &params, &body)?;
        if let Some(caller) = parts.extensions.get::<Arc<AuditCaller>>() {
            caller.set_names(&tenant, &user);
        }
        let owner = Owner::new(tenant, user, state.agent.owner_agent());
        let cut = parts.extensions.get::<Connection>().cloned().unwrap_or_default().cut;
        Ok(Self {
            state: state.clone(),
            owner,
            principal,
            parts,
            body,
            _held: held,
            reader: Mutex::default(),
            params,
            cut,
        })
    }

    /// Counts the request for its user and tenant, unless that was done.
    pub(super) fn check_rate(&self) -> Result<(), ApiError> {
        self.state.gateway.wake();
        count(&self.state.gateway, &self.owner, &self.parts)
    }

    /// The sender, for the audit log.
    pub(crate) fn caller(&self) -> Option<&Arc<AuditCaller>> {
        self.parts.extensions.get()
    }

    /// Takes the place of the response's stream in the limits of the user. Requests that start a run do so before it.
    pub(crate) fn reserve_reader(&self) -> Result<(), ApiError> {
        let gateway = &self.state.gateway;
        if gateway.live_run_count() > 0 && gateway.memory().pressure() == Pressure::Critical {
            let message = "too little memory for another reader";
            return Err(ApiError::new(codes::OVERLOADED, message).retry_after(5));
        }
        let seats = gateway.quotas().reader(&self.owner)?;
        *self.reader.lock().unwrap_or_else(PoisonError::into_inner) = Some(seats);
        Ok(())
    }

    /// The place that was reserved, or a new one.
    pub(crate) fn reader_seats(&self) -> Result<Option<OwnerSeats>, ApiError> {
        let take = || self.reader.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(reserved) = take() {
            return Ok(Some(reserved));
        }
        self.reserve_reader()?;
        Ok(take())
    }

    /// The fields of an SSE frame in the response.
    pub(crate) fn sse(&self) -> Sse {
        self.state.agent.settings.sse.unwrap_or(self.state.gateway.settings().sse)
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
            let record = about(Record::new(&self.owner, action));
            audit.note(record.outcome(self.caller().map(|caller| &**caller), &done));
        }
        done
    }

    /// The thread, if the identity settings name its place. Only for routes that are about a thread.
    pub(crate) fn configured_thread(&self) -> Result<Option<ThreadId>, ApiError> {
        if let Some(thread) =
            self.parts.extensions.get::<Caller>().and_then(|caller| caller.thread.as_deref())
        {
            check_id("thread", thread)?;
            return Ok(Some(thread.into()));
        }
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

    /// Reads the text of the body, off the workers if it is long.
    pub(crate) async fn parse<T: Send + 'static>(
        &self,
        read: impl FnOnce(&str) -> Result<T, ApiError> + Send + 'static,
    ) -> Result<T, ApiError> {
        let body = self.body.clone();
        let parse = move || {
            let is_text =
                |error| ApiError::new(codes::BAD_REQUEST, format!("the body is not UTF-8: {error}"));
            read(std::str::from_utf8(&body).map_err(is_text)?)
        };
        match self.body.len() > cpu_work::SHORT_TEXT {
            true => cpu_work::spawn(&self.owner, parse).await.flatten(),
            false => parse(),
        }
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
        let authenticator = self.state.gateway.authenticator();
        let without_credential = |name: &str| {
            let value = authenticator.without_credentials(name, self.header(name)?)?;
            Some((name.to_owned(), value.into_owned()))
        };
        ["traceparent", "tracestate"].into_iter().chain(allowed).filter_map(without_credential).collect()
    }

    /// A request to the agent's side about a thread of the owner.
    pub(crate) async fn about(&self, thread: &ThreadId) -> Result<agent::Request, ApiError> {
        let RouteState { gateway, agent, .. } = &self.state;
        let request = gateway.thread_request(agent, &self.owner, thread, self.forwarded_headers()).await?;
        Ok(agent::Request { context: self.parts.extensions.get().cloned(), ..request })
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

/// Tenant and user of a request: those of its credential, those that the app names, or those at the places that the
/// identity settings name.
pub(super) fn names_at(
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
    if let Some(caller) = parts.extensions.get::<Caller>() {
        check_id("tenant", &caller.tenant)?;
        check_id("user", &caller.user)?;
        return Ok((caller.tenant.to_string(), caller.user.to_string()));
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
    let mut held = gateway.bytes().hold(Party::Anybody);
    read_body(headers, body, limits.body, limits.request_timeout, &mut held).await
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
pub(super) fn check_content_type(headers: &HeaderMap) -> Result<(), ApiError> {
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

/// The party whose share of the budget a body takes: the user of a credential, else the peer.
pub(super) fn payer(parts: &Parts) -> Party {
    match parts.extensions.get::<Arc<Principal>>().filter(|principal| !principal.is_anonymous()) {
        Some(principal) => Party::User { tenant: principal.tenant.clone(), user: principal.user.clone() },
        None => Party::peer(Peer::of(parts).0),
    }
}

/// Reads a body. Its bytes are taken from the budget as they arrive, so that an announced length alone takes nothing.
pub(super) async fn read_body(
    headers: &HeaderMap,
    mut body: axum::body::Body,
    limit: usize,
    timeout: Duration,
    held: &mut HeldBytes,
) -> Result<Bytes, ApiError> {
    let too_large = || ApiError::new(codes::BODY_TOO_LARGE, format!("the body has more than {limit} bytes"));
    let length =
        headers.get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
    if length.is_some_and(|length| length > limit as u64) {
        return Err(too_large());
    }
    let read = async {
        let mut bytes = BytesMut::new();
        let mut footprint = Footprint::default();
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|_| ApiError::new(codes::BAD_REQUEST, "the body could not be read"))?;
            let Ok(data) = frame.into_data() else { continue };
            if bytes.len() + data.len() > limit {
                return Err(too_large());
            }
            if !held.grow(data.len()) {
                let message = "too many bodies are being received at once";
                return Err(ApiError::new(codes::OVERLOADED, message).retry_after(2));
            }
            footprint.push(&data);
            if footprint.is_too_large() {
                let message = format!("the body {}", Footprint::PROBLEM);
                return Err(ApiError::new(codes::BODY_TOO_LARGE, message));
            }
            bytes.extend_from_slice(&data);
        }
        Ok(bytes.freeze())
    };
    let late = |_| ApiError::new(codes::REQUEST_TIMEOUT, "the body took too long");
    tokio::time::timeout(timeout, read).await.map_err(late)?
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
