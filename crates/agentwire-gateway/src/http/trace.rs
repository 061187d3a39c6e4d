//! The span of a request, and the header that tells its sender where the span is.

use std::sync::Arc;

use axum::{
    extract::{MatchedPath, Request},
    http::{HeaderName, HeaderValue},
    response::Response,
};

use crate::{
    error::ResponseCode,
    trace::{Kind, Span, SpanContext, TraceState, Tracer, Value, now},
};

/// The header of a response with the span of its request (W3C Trace Context, level 2).
pub(super) const TRACERESPONSE: HeaderName = HeaderName::from_static("traceresponse");

/// Routes that machines call all the time.
const UNTRACED: [&str; 5] = ["/livez", "/readyz", "/metrics", "/console", "/console/{file}"];

/// A request that is being handled. Its span ends with the head of the response; the span of a run has the rest.
pub(super) struct RequestSpan {
    tracer: Arc<Tracer>,
    context: SpanContext,
    parent: Option<SpanContext>,
    state: Option<TraceState>,
    method: String,
    route: Option<String>,
    start: u64,
}

impl RequestSpan {
    /// Begins the span, continues the trace of the client, and leaves its place in the extensions of the request.
    pub(super) fn begin(tracer: &Arc<Tracer>, request: &mut Request) -> Option<Self> {
        let route = request.extensions().get::<MatchedPath>().map(|path| path.as_str().to_owned());
        if route.as_deref().is_some_and(|route| UNTRACED.contains(&route)) {
            return None;
        }
        let parent = request.headers().get("traceparent").and_then(|value| value.to_str().ok());
        let parent = parent.and_then(SpanContext::parse);
        let context = tracer.begin(parent);
        request.extensions_mut().insert(context);
        let state = request.headers().get("tracestate").and_then(|value| value.to_str().ok());
        let state = TraceState::parse(state);
        let method = request.method().to_string();
        Some(Self { tracer: tracer.clone(), context, parent, state, method, route, start: now() })
    }

    pub(super) fn end(self, response: &mut Response) {
        let Self { tracer, context, parent, state, method, route, start } = self;
        if let Ok(place) = HeaderValue::from_str(&context.to_traceparent()) {
            response.headers_mut().insert(TRACERESPONSE, place);
        }
        if !context.is_sampled {
            return;
        }
        let status = response.status();
        let name = route.as_ref().map_or_else(|| method.clone(), |route| format!("{method} {route}"));
        let mut attributes = vec![
            ("http.request.method", Value::Text(method)),
            ("http.response.status_code", u64::from(status.as_u16()).into()),
        ];
        attributes.extend(route.map(|route| ("http.route", Value::Text(route))));
        let code = response.extensions().get::<ResponseCode>().map(|code| code.0);
        attributes.extend(code.map(|code| ("error.type", code.into())));
        tracer.export(Span {
            context,
            state,
            parent: parent.map(|parent| parent.span),
            name,
            kind: Kind::Server,
            start,
            end: now(),
            attributes,
            links: Vec::new(),
            is_error: status.is_server_error(),
        });
    }
}
