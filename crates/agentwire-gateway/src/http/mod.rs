//! The routes: every agent under `/agents/NAME`, the default one also at the root.

mod answer;
mod call;
mod cursor;
mod feedback;
mod operations;
mod routes;
mod runs;
mod server;
mod start;
mod threads;

use std::sync::Arc;

use axum::{
    Router,
    http::{HeaderName, HeaderValue, Method, StatusCode, header},
    response::{IntoResponse, Response},
};
use tower_http::cors::CorsLayer;

pub use self::server::serve;
use crate::{
    code,
    gateway::{AgentEntry, Gateway},
    refusal::Refusal,
};

/// An agent at a place.
#[derive(Clone)]
pub(crate) struct Mount {
    pub(crate) gateway: Gateway,
    pub(crate) agent: Arc<AgentEntry>,
}

impl Gateway {
    /// All routes, to be served or mounted elsewhere.
    pub fn router(&self) -> Router {
        let mut router = operations::router(self);
        for agent in self.agents.values() {
            let mount = Mount { gateway: self.clone(), agent: agent.clone() };
            router = router.merge(routes::of_agent(&format!("/agents/{}", agent.name), &mount));
            if self.default.as_deref() == Some(&agent.name) {
                router = router.merge(routes::of_agent("", &mount));
            }
        }
        let router = router
            .route("/agents/{agent}", axum::routing::any(unknown_agent))
            .route("/agents/{agent}/", axum::routing::any(unknown_agent))
            .route("/agents/{agent}/{*rest}", axum::routing::any(unknown_agent))
            .fallback(unknown_route)
            .method_not_allowed_fallback(wrong_method)
            .layer(axum::middleware::map_response_with_state(self.clone(), count_refusals));
        match cors(&self.settings.cors) {
            Some(cors) => router.layer(cors),
            None => router,
        }
    }
}

async fn unknown_agent() -> Refusal {
    Refusal::new(code::UNKNOWN_AGENT, "no such agent, or it has no such route")
}

async fn unknown_route() -> Refusal {
    Refusal::new(code::UNKNOWN_ROUTE, "no such route").hint("`GET /openapi.json` lists them")
}

async fn wrong_method() -> Refusal {
    Refusal::new(code::METHOD_NOT_ALLOWED, "this route has other methods")
}

/// Counts what was refused, by status class and code.
async fn count_refusals(
    axum::extract::State(gateway): axum::extract::State<Gateway>,
    response: Response,
) -> Response {
    if let Some(code) = response.extensions().get::<RefusedWith>() {
        let code = crate::metrics::Code { code: code.0.to_owned() };
        gateway.metrics.refusals.get_or_create(&code).inc();
    }
    response
}

/// The code of a refusal, for the figures.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RefusedWith(pub(crate) &'static str);

/// Pages of the listed origins may read our answers. Exact names only, and no cookies.
fn cors(origins: &[String]) -> Option<CorsLayer> {
    let origins: Vec<HeaderValue> = origins.iter().filter_map(|origin| origin.parse().ok()).collect();
    if origins.is_empty() {
        return None;
    }
    let layer = CorsLayer::new()
        .allow_methods([Method::GET, Method::POST, Method::PATCH, Method::DELETE])
        .allow_headers(tower_http::cors::AllowHeaders::mirror_request())
        .expose_headers([
            HeaderName::from_static("agentwire-recovery"),
            HeaderName::from_static("x-thread-id"),
            HeaderName::from_static("x-run-id"),
            HeaderName::from_static("x-vercel-ai-ui-message-stream"),
        ]);
    Some(match origins.iter().any(|origin| origin == "*") {
        true => layer.allow_origin(tower_http::cors::Any),
        false => layer.allow_origin(origins),
    })
}

/// A JSON answer.
pub(crate) fn json(body: impl Into<String>) -> Response {
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static("application/json")),
        (header::CACHE_CONTROL, HeaderValue::from_static("no-store")),
    ];
    (StatusCode::OK, headers, body.into()).into_response()
}
