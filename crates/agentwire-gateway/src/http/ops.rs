//! The routes for operations: liveness, readiness, metrics, OpenAPI, agents.

use axum::{
    Router,
    extract::{FromRequestParts, NestedPath, State},
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
    routing::get,
};
use serde_json::json;

use super::{RouteState, json, router};
use crate::{codes, error::ApiError, gateway::Gateway};

/// The prefix under which an app has mounted the routes, if any.
type Nested = Result<NestedPath, <NestedPath as FromRequestParts<()>>::Rejection>;

pub(super) fn router(gateway: &Gateway) -> Router {
    Router::new()
        .route("/livez", get(|| async { "ok\n" }))
        .route("/readyz", get(ready))
        .route("/metrics", get(metrics))
        .route("/openapi.json", get(openapi))
        .route("/agents", get(agents))
        .with_state(gateway.clone())
}

/// Ready if the store can be written and the gateway is not draining.
async fn ready(State(gateway): State<Gateway>) -> Result<&'static str, ApiError> {
    if gateway.is_draining() {
        return Err(ApiError::new(codes::DRAINING, "the gateway is shutting down").retry_after(5));
    }
    gateway.store().probe().await?;
    if gateway.has_recent_write_failure() {
        let message = "what was last written to the store was refused";
        return Err(ApiError::new(codes::STORE_UNAVAILABLE, message).retry_after(5));
    }
    Ok("ok\n")
}

async fn metrics(State(gateway): State<Gateway>) -> Response {
    let text = HeaderValue::from_static("application/openmetrics-text; version=1.0.0; charset=utf-8");
    (StatusCode::OK, [(header::CONTENT_TYPE, text)], gateway.metrics().render()).into_response()
}

async fn openapi(State(gateway): State<Gateway>, nested: Nested) -> Response {
    let mut document = router::openapi(&gateway);
    if let Ok(nested) = nested {
        document["servers"] = json!([{ "url": nested.as_str() }]);
    }
    json(document.to_string())
}

/// `GET /agents`: the configured agents.
async fn agents(State(gateway): State<Gateway>, nested: Nested) -> Response {
    let base = nested.as_ref().map_or("", |nested| nested.as_str());
    let registry = gateway.registry();
    let agents: Vec<_> = registry
        .agents
        .values()
        .map(|agent| {
            json!({
                "name": &*agent.name,
                "url": format!("{base}/agents/{}", agent.name),
                "default": registry.default.as_deref() == Some(&*agent.name),
            })
        })
        .collect();
    json(json!({ "agents": agents }).to_string())
}

/// `GET /capabilities`: the AG-UI capabilities of an agent, with those that the gateway adds to every agent.
pub(super) async fn capabilities(State(state): State<RouteState>) -> Response {
    let mut capabilities = json!({
        "identity": {"name": &*state.agent.name},
        "transport": {"streaming": true, "httpBinary": true, "resumable": true},
        "state": {"snapshots": true, "deltas": true, "persistentState": true},
        "humanInTheLoop": {"supported": true, "interrupts": true},
    });
    for (group, configured) in &state.agent.settings.capabilities {
        match (capabilities.get_mut(group).and_then(|known| known.as_object_mut()), configured.as_object()) {
            (Some(known), Some(configured)) => known.extend(configured.clone()),
            _ => capabilities[group] = configured.clone(),
        }
    }
    json(capabilities.to_string())
}
