//! Routes for those who run the gateway: is it alive, is it ready, what does it do.

use axum::{
    Router,
    extract::{FromRequestParts, NestedPath, State},
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
    routing::get,
};
use serde_json::json;

use super::{Mount, json, router};
use crate::{codes, error::ApiError, gateway::Gateway};

/// Where an app has mounted the routes, if not at its root.
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

/// Whether new runs are taken: the store can be written, and nobody is shutting down.
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

/// `GET /agents`: which agents there are.
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

/// `GET /capabilities`: AG-UI's capabilities of an agent. What the gateway itself adds is always said.
pub(super) async fn capabilities(State(mount): State<Mount>) -> Response {
    let mut capabilities = json!({
        "identity": {"name": &*mount.agent.name},
        "transport": {"streaming": true, "httpBinary": true, "resumable": true},
        "state": {"snapshots": true, "deltas": true, "persistentState": true},
        "humanInTheLoop": {"supported": true, "interrupts": true},
    });
    for (group, said) in &mount.agent.settings.capabilities {
        match (capabilities.get_mut(group).and_then(|known| known.as_object_mut()), said.as_object()) {
            (Some(known), Some(said)) => known.extend(said.clone()),
            _ => capabilities[group] = said.clone(),
        }
    }
    json(capabilities.to_string())
}
