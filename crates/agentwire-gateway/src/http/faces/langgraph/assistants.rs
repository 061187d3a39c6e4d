//! The routes of assistants, which are the agents, and of the server.

use agentwire_core::event::ThreadId;
use axum::response::Response;
use serde_json::{Map, Value, json};

use super::{
    super::{
        super::{json, ops},
        request::FaceRequest,
    },
    body::text_of,
    errors::{invalid, unknown_assistant},
    shapes::{self, NODE},
    threads::object,
};
use crate::{auth::Action, error::ApiError, gateway::AgentEntry, timestamp::iso};

/// The version of LangGraph Server whose routes these are; clients choose by it.
const VERSION: &str = "0.16.7";

/// `GET ok`.
pub(super) async fn ok() -> Response {
    json(r#"{"ok":true}"#)
}

/// `GET info`.
pub(super) async fn info() -> Response {
    let body = json!({
        "version": VERSION,
        "flags": {"assistants": true, "crons": false, "langsmith": false},
        "host": {"kind": "self-hosted"},
        "agentwire": env!("CARGO_PKG_VERSION"),
    });
    json(body.to_string())
}

fn may_see(request: &FaceRequest, agent: &AgentEntry) -> bool {
    let scopes = &request.principal.scopes;
    let may = [Action::Run, Action::Read].into_iter().any(|action| scopes.allow(&agent.name, action));
    may && agent.settings.routes.runs
}

fn assistant_json(name: &str, agent: &AgentEntry) -> Value {
    let capabilities = ops::capabilities_of(agent);
    let description = capabilities["identity"]["description"].as_str().map(str::to_owned);
    json!({
        "assistant_id": name,
        "graph_id": name,
        "name": name,
        "description": description,
        "config": {},
        "context": {},
        "metadata": {"created_by": "system"},
        "created_at": iso(0),
        "updated_at": iso(0),
        "version": 1,
    })
}

/// The assistants that the sender may use.
fn all(request: &FaceRequest) -> Vec<Value> {
    let registry = request.gateway.registry();
    let default = registry.default.as_deref().and_then(|name| registry.agents.get(name));
    let others = registry.agents.values().filter(|agent| registry.default.as_deref() != Some(&*agent.name));
    let shown = default.into_iter().chain(others).filter(|agent| may_see(request, agent));
    shown.map(|agent| assistant_json(&agent.name, agent)).collect()
}

fn matching(request: &FaceRequest, body: &Map<String, Value>) -> Result<Vec<Value>, ApiError> {
    let (graph, name) = (text_of(body, "graph_id")?, text_of(body, "name")?);
    let metadata = match body.get("metadata") {
        None | Some(Value::Null) => Map::new(),
        Some(Value::Object(metadata)) => metadata.clone(),
        Some(_) => return Err(invalid("`metadata` must be an object")),
    };
    let is_wanted = |assistant: &Value| {
        graph.is_none_or(|graph| assistant["graph_id"] == graph)
            && name.is_none_or(|name| assistant["name"].as_str().is_some_and(|own| own.contains(name)))
            && assistant["metadata"].as_object().is_some_and(|own| shapes::contains(own, &metadata))
    };
    Ok(all(request).into_iter().filter(is_wanted).collect())
}

/// `POST assistants/search`.
pub(super) async fn search(request: FaceRequest) -> Result<Response, ApiError> {
    let body = object(&request).await?;
    let number = |key: &str, default: u64| match body.get(key) {
        None | Some(Value::Null) => Ok(default),
        Some(value) => value.as_u64().ok_or_else(|| invalid(format!("`{key}` must be a whole number"))),
    };
    let (limit, offset) = (number("limit", 10)?, number("offset", 0)?);
    let found = matching(&request, &body)?.into_iter();
    let page = found.skip(usize::try_from(offset).unwrap_or(usize::MAX));
    let page: Vec<Value> = page.take(usize::try_from(limit).unwrap_or(usize::MAX)).collect();
    Ok(json(Value::from(page).to_string()))
}

/// `POST assistants/count`.
pub(super) async fn count(request: FaceRequest) -> Result<Response, ApiError> {
    let body = object(&request).await?;
    Ok(json(matching(&request, &body)?.len().to_string()))
}

/// The assistant in the path.
fn named(request: &FaceRequest) -> Result<Value, ApiError> {
    let name = ThreadId::from(request.param("agent"));
    let found = all(request).into_iter().find(|assistant| assistant["assistant_id"] == name.as_str());
    let alias = || {
        let agent = [Action::Run, Action::Read].into_iter().find_map(|action| request.agent(&name, action));
        agent.filter(|agent| may_see(request, agent)).map(|agent| assistant_json(&name, &agent))
    };
    found.or_else(alias).ok_or_else(|| unknown_assistant(&name))
}

/// `GET assistants/{agent}`.
pub(super) async fn get(request: FaceRequest) -> Result<Response, ApiError> {
    Ok(json(named(&request)?.to_string()))
}

/// `GET assistants/{agent}/schemas`: as far as it is known, any agent takes messages and has a state of any members.
pub(super) async fn schemas(request: FaceRequest) -> Result<Response, ApiError> {
    let assistant = named(&request)?;
    let state = json!({
        "title": "State",
        "type": "object",
        "properties": {"messages": {"type": "array", "items": {"type": "object"}}},
        "additionalProperties": true,
    });
    let body = json!({"graph_id": assistant["graph_id"], "input_schema": state, "output_schema": state,
        "state_schema": state, "config_schema": null, "context_schema": null});
    Ok(json(body.to_string()))
}

/// `GET assistants/{agent}/graph`: one node, because the nodes of an agent are not known before they run.
pub(super) async fn graph(request: FaceRequest) -> Result<Response, ApiError> {
    named(&request)?;
    let nodes = json!([{"id": "__start__", "type": "schema", "data": "__start__"},
        {"id": NODE, "type": "runnable", "data": {"id": [NODE], "name": NODE}},
        {"id": "__end__", "type": "schema", "data": "__end__"}]);
    let edges = json!([{"source": "__start__", "target": NODE}, {"source": NODE, "target": "__end__"}]);
    Ok(json(json!({"nodes": nodes, "edges": edges}).to_string()))
}

/// `GET assistants/{agent}/subgraphs`: there are none.
pub(super) async fn subgraphs(request: FaceRequest) -> Result<Response, ApiError> {
    named(&request)?;
    Ok(json("{}"))
}
