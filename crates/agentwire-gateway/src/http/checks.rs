//! The checks that every request passes before routing ends in a handler, in their order. Nothing later runs if an
//! earlier step refuses: the peer, the host, the origin. Authentication, rates and scopes follow in [`super::guard`],
//! the limits of the user and the body in [`super::request`].

use std::sync::Arc;

use axum::{
    extract::{Request, State},
    http::{HeaderMap, HeaderName, HeaderValue, header},
    middleware::Next,
    response::{IntoResponse, Response},
};

use super::{
    origin::{self, Listener},
    peer::{Peer, connection_address, is_in},
    request::Connection,
    trace::RequestSpan,
};
use crate::{
    codes,
    cpu_work::{self, Expected},
    error::{ApiError, ResponseCode},
    gateway::Gateway,
    metrics::CodeLabel,
    ops::audit::Caller,
    trace::{SpanContext, TraceState},
};

/// Checks a request before its handler runs.
pub(super) async fn check(State(gateway): State<Gateway>, mut request: Request, next: Next) -> Response {
    let peer = Peer::find(request.extensions(), request.headers(), &gateway.settings().proxies);
    request.extensions_mut().insert(peer);
    clean_trace(&mut request);
    let span = gateway.tracer().and_then(|tracer| RequestSpan::begin(tracer, &mut request));
    let caller = gateway.audit().is_on().then(|| Arc::new(caller(&gateway, &request, peer)));
    if let Some(caller) = &caller {
        request.extensions_mut().insert(caller.clone());
    }
    let mut response = match check_head(&gateway, &request) {
        Ok(()) => {
            let expected = expected(request.headers());
            cpu_work::watched(expected, next.run(request)).await
        }
        Err(error) => {
            let refused = error.into_response();
            if let Some(code) = refused.extensions().get::<ResponseCode>() {
                gateway.metrics().refusals.get_or_create(&CodeLabel { code: code.0 }).inc();
            }
            refused
        }
    };
    if let Some(caller) = caller {
        gateway.audit().finish(&caller, response.extensions().get::<ResponseCode>().map(|code| code.0));
    }
    if let Some(span) = span {
        span.end(&mut response);
    }
    let headers = response.headers_mut();
    headers.entry(header::X_CONTENT_TYPE_OPTIONS).or_insert(HeaderValue::from_static("nosniff"));
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    response
}

/// The work of a request, by the length of its body; one without a length may be long.
fn expected(headers: &HeaderMap) -> Expected {
    let length = headers.get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
    let length = length.unwrap_or_else(|| match headers.contains_key(header::TRANSFER_ENCODING) {
        true => usize::MAX,
        false => 0,
    });
    Expected::Long.for_length(length)
}

/// Longest id of a request.
const MAX_REQUEST_ID: usize = 64;

/// The sender of a request for the audit log. A proxy that is trusted with addresses may name the request.
fn caller(gateway: &Gateway, request: &Request, Peer(peer): Peer) -> Caller {
    let proxies = &gateway.settings().proxies;
    let is_proxy = connection_address(request.extensions()).is_some_and(|address| is_in(address, proxies));
    let is_id = |id: &&str| {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
        (1..=MAX_REQUEST_ID).contains(&id.len()) && id.bytes().all(is_plain)
    };
    let given = request.headers().get("x-request-id").filter(|_| is_proxy);
    let given = given.and_then(|id| id.to_str().ok()).filter(is_id);
    let id = given.map_or_else(|| gateway.new_id("req"), str::to_owned);
    Caller::new(peer, id, request.method().clone())
}

fn check_head(gateway: &Gateway, request: &Request) -> Result<(), ApiError> {
    let (settings, uri, headers) = (gateway.settings(), request.uri(), request.headers());
    let connection = request.extensions().get::<Connection>();
    let listener = request.extensions().get::<Listener>().copied().unwrap_or(Listener::Public);
    // A load balancer probes by address.
    let is_probe = matches!(uri.path(), "/livez" | "/readyz");
    // An app of someone else has names of its own, unless they are configured.
    let is_named = connection.is_some_and(|connection| connection.is_own) || !settings.hosts.is_empty();
    if is_named && !is_probe {
        origin::check_host(settings, listener, uri, headers)?;
    }
    if is_probe && headers.get_all(header::HOST).iter().count() > 1 {
        return Err(ApiError::new(codes::HOST_NOT_ALLOWED, "the request has more than one `Host`"));
    }
    origin::check_origin(settings, connection, request.method(), uri, headers)
}

const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");

const TRACESTATE: HeaderName = HeaderName::from_static("tracestate");

/// Removes a trace context that is malformed or there twice: it is forwarded to agents and written to logs. Several
/// `tracestate` become one, and none is left without a `traceparent`.
fn clean_trace(request: &mut Request) {
    let headers = request.headers_mut();
    let mut values = headers.get_all(TRACEPARENT).iter();
    let is_valid = match (values.next(), values.next()) {
        (Some(value), None) => value.to_str().is_ok_and(|text| SpanContext::parse(text).is_some()),
        _ => false,
    };
    if !is_valid {
        headers.remove(TRACEPARENT);
        headers.remove(TRACESTATE);
    }
    if !headers.contains_key(TRACESTATE) {
        return;
    }
    let values: Result<Vec<_>, _> = headers.get_all(TRACESTATE).iter().map(HeaderValue::to_str).collect();
    let state = values.ok().and_then(TraceState::parse);
    match state.and_then(|state| HeaderValue::from_str(state.as_str()).ok()) {
        Some(value) => headers.insert(TRACESTATE, value),
        None => headers.remove(TRACESTATE),
    };
}
