//! `GET /copilotkit/info`: the agents, and what the face offers.

use std::sync::Arc;

use axum::{Extension, extract::State, response::Response};
use serde_json::{Map, Value, json};

use super::super::super::{json, ops};
use crate::{
    auth::{Action, Principal},
    gateway::{AgentEntry, Gateway},
};

/// The agents that the sender may use, and flags for the routes that there are.
pub(super) async fn info(
    State(gateway): State<Gateway>,
    Extension(principal): Extension<Arc<Principal>>,
) -> Response {
    let registry = gateway.registry();
    let is_shown = |agent: &AgentEntry| {
        let scopes = &principal.scopes;
        let may = [Action::Run, Action::Read].into_iter().any(|action| scopes.allow(&agent.name, action));
        may && agent.settings.routes.ag_ui
    };
    let mut agents = Map::new();
    for agent in registry.agents.values().filter(|agent| is_shown(agent)) {
        agents.insert(agent.name.to_string(), described(&agent.name, agent));
    }
    let default = registry.default.as_deref().and_then(|name| registry.agents.get(name));
    if let Some(agent) = default.filter(|agent| is_shown(agent) && !agents.contains_key("default")) {
        agents.insert("default".into(), described("default", agent));
    }
    let has_threads = registry.agents.values().any(|agent| is_shown(agent) && agent.settings.routes.history);
    let threads = json!({
        "list": has_threads,
        "inspect": has_threads,
        "mutations": has_threads,
        "realtimeMetadata": false,
    });
    let body = json!({
        "version": env!("CARGO_PKG_VERSION"),
        "agents": agents,
        "mode": "sse",
        "audioFileTranscriptionEnabled": false,
        "threadEndpoints": threads,
        "singleRoute": {"resourceOperations": true, "threadEndpoints": threads},
        "suggestions": false,
        "a2uiEnabled": false,
        "openGenerativeUIEnabled": false,
        "telemetryDisabled": true,
    });
    json(body.to_string())
}

fn described(name: &str, agent: &AgentEntry) -> Value {
    let capabilities = ops::capabilities_of(agent);
    let description = capabilities["identity"]["description"].as_str().unwrap_or_default().to_owned();
    json!({"name": name, "description": description, "className": "HttpAgent", "capabilities": capabilities})
}
