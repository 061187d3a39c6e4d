//! The routes for operations: liveness, readiness, metrics, OpenAPI, agents.

use agentwire_store::RunStatus;
use std::{convert::Infallible, fmt::Write, time::Duration};

use axum::{
    Router,
    extract::{FromRequestParts, NestedPath, State},
    http::{HeaderValue, StatusCode, header, request::Parts},
    middleware::from_fn_with_state,
    response::{IntoResponse, Response},
    routing::{MethodRouter, get, post},
};
use serde_json::{Value, json};

use super::{
    RouteState, approvals, console,
    guard::{Guard, guard},
    json,
    request::{Connection, KnownSender},
    router,
};
use crate::{
    auth::{Action, RequiredScope},
    codes,
    error::ApiError,
    gateway::{AgentEntry, Gateway},
    limits::Pressure,
    metrics::{AgentLabel, StatusLabel, StoreLabel},
    timestamp::iso,
};

/// The prefix under which an app has mounted the routes, in axum or by another server; empty if there is none.
pub(super) struct Nested(String);

impl Nested {
    pub(super) fn as_str(&self) -> &str {
        &self.0
    }
}

impl<S: Send + Sync> FromRequestParts<S> for Nested {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Infallible> {
        let outer = parts.extensions.get::<Connection>().map(|it| it.prefix.clone()).unwrap_or_default();
        let inner = NestedPath::from_request_parts(parts, state).await;
        let inner = inner.as_ref().map_or("", |nested| nested.as_str());
        Ok(Self(format!("{outer}{inner}")))
    }
}

/// A route of the server.
pub(super) struct ServerRoute {
    pub(super) method: &'static str,
    pub(super) path: &'static str,
    pub(super) summary: &'static str,
    pub(super) scope: RequiredScope,
    /// True if `admin_listen` takes it over.
    pub(super) is_admin: bool,
    pub(super) handler: fn() -> MethodRouter<Gateway>,
}

pub(super) const ROUTES: &[ServerRoute] = &[
    ServerRoute {
        method: "get",
        path: "/livez",
        summary: "Whether the process is alive",
        scope: RequiredScope::Public,
        is_admin: true,
        handler: || get(|| async { "ok\n" }),
    },
    ServerRoute {
        method: "get",
        path: "/readyz",
        summary: "Whether new runs are taken",
        scope: RequiredScope::Public,
        is_admin: true,
        handler: || get(ready),
    },
    ServerRoute {
        method: "get",
        path: "/metrics",
        summary: "Figures in the OpenMetrics format",
        scope: RequiredScope::Metrics,
        is_admin: true,
        handler: || get(metrics),
    },
    ServerRoute {
        method: "get",
        path: "/openapi.json",
        summary: "This document",
        scope: RequiredScope::AnyCredential,
        is_admin: true,
        handler: || get(openapi),
    },
    ServerRoute {
        method: "get",
        path: "/agents",
        summary: "The agents with their health: last error, time to the first event, runs, readers",
        scope: RequiredScope::AnyCredential,
        is_admin: false,
        handler: || get(agents),
    },
    ServerRoute {
        method: "get",
        path: "/console",
        summary: "The console, a page for people",
        // The page has no data; its requests have the credential of the person.
        scope: RequiredScope::Public,
        is_admin: false,
        handler: || get(console::page),
    },
    ServerRoute {
        method: "get",
        path: "/console/{file}",
        summary: "A file of the console",
        scope: RequiredScope::Public,
        is_admin: false,
        handler: || get(console::file),
    },
    ServerRoute {
        method: "get",
        path: "/approvals",
        summary: "The calls that the sender may approve; `?after=`",
        scope: RequiredScope::AnyAgent(Action::Answer),
        is_admin: false,
        handler: || get(approvals::list),
    },
    ServerRoute {
        method: "post",
        path: "/approvals/{id}",
        summary: "Approve or deny a call",
        scope: RequiredScope::AnyAgent(Action::Answer),
        is_admin: false,
        handler: || post(approvals::decide),
    },
];

/// The routes of the public listener: without those of the other one, if there is one.
pub(super) fn router(gateway: &Gateway) -> Router {
    let has_admin = gateway.settings().admin_listen.is_some();
    with_routes(gateway, |route| (!has_admin || !route.is_admin).then_some(route.scope))
}

/// The routes of `admin_listen`. They need no credential: who reaches that address may read them.
pub(super) fn admin_router(gateway: &Gateway) -> Router {
    with_routes(gateway, |route| route.is_admin.then_some(RequiredScope::Public))
}

fn with_routes(gateway: &Gateway, scope: impl Fn(&ServerRoute) -> Option<RequiredScope>) -> Router {
    let mut router = Router::new();
    for (route, scope) in ROUTES.iter().filter_map(|route| Some((route, scope(route)?))) {
        let guarded = from_fn_with_state(Guard::of_server(gateway, scope, route.path), guard);
        router = router.route(route.path, (route.handler)().route_layer(guarded));
    }
    router.with_state(gateway.clone())
}

/// The longest wait of `/readyz` for the store.
const PROBE_TIMEOUT: Duration = Duration::from_millis(700);

/// Ready if the store can be written, memory is not short, and the gateway is not draining.
async fn ready(State(gateway): State<Gateway>) -> Result<String, ApiError> {
    if gateway.is_draining() {
        return Err(ApiError::new(codes::DRAINING, "the gateway is shutting down").retry_after(5));
    }
    if gateway.memory().pressure() >= Pressure::High {
        return Err(ApiError::new(codes::OVERLOADED, "memory is short").retry_after(5));
    }
    let mut lines = String::from("ok\n");
    if gateway.store().may_sleep() {
        // A probe must not keep a database awake.
        if gateway.has_store_failed() {
            let message = "the store did not respond when it was last asked";
            return Err(ApiError::new(codes::STORE_UNAVAILABLE, message).retry_after(5));
        }
        if let Some(age) = gateway.store_age() {
            let _ = writeln!(lines, "store: responded {} s ago", age.as_secs());
        }
    } else {
        gateway.check_store().await?;
    }
    if gateway.has_recent_write_failure() {
        let message = "what was last written to the store was refused";
        return Err(ApiError::new(codes::STORE_UNAVAILABLE, message).retry_after(5));
    }
    gateway.audit().check()?;
    for note in gateway.store().notes() {
        lines.push_str(&note);
        lines.push('\n');
    }
    if gateway.settings().insecure {
        lines.push_str("warning: `insecure` waives authentication, hosts and TLS\n");
    }
    Ok(lines)
}

impl Gateway {
    /// Checks that the store accepts writes: by a recent check, or by one now with a timeout below that of clients.
    async fn check_store(&self) -> Result<(), ApiError> {
        if self.was_store_checked(self.store().probe_interval()) {
            return Ok(());
        }
        match tokio::time::timeout(PROBE_TIMEOUT, self.store().probe()).await {
            Ok(probed) => {
                probed?;
                self.note_store_check();
                Ok(())
            }
            Err(_) => {
                Err(ApiError::new(codes::STORE_UNAVAILABLE, "the store does not respond").retry_after(5))
            }
        }
    }
}

async fn metrics(State(gateway): State<Gateway>) -> Response {
    if let Some(server) = gateway.store().identity() {
        let label =
            StoreLabel { system: server.system.to_string(), timeline: server.timeline, epoch: server.epoch };
        let servers = &gateway.metrics().store_server;
        servers.clear();
        servers.get_or_create(&label).set(1);
    }
    let text = HeaderValue::from_static("application/openmetrics-text; version=1.0.0; charset=utf-8");
    let metrics = gateway.metrics();
    for agent in gateway.registry().agents.values() {
        let label = AgentLabel { agent: agent.name.to_string() };
        metrics.breaker_state.get_or_create(&label).set(agent.breaker.state() as i64);
    }
    let shown = |bytes: u64| i64::try_from(bytes).unwrap_or(i64::MAX);
    metrics.memory_bytes.set(shown(gateway.memory().bytes()));
    metrics.memory_limit_bytes.set(shown(gateway.memory().limit().unwrap_or(0)));
    // Without live runs the lease is not renewed.
    let age = gateway.lease().age().filter(|_| gateway.live_run_count() > 0).unwrap_or_default();
    metrics.lease_age_seconds.set(age.as_secs_f64());
    (StatusCode::OK, [(header::CONTENT_TYPE, text)], metrics.render()).into_response()
}

async fn openapi(State(gateway): State<Gateway>, _: KnownSender, nested: Nested) -> Response {
    let mut document = router::openapi(&gateway);
    if !nested.as_str().is_empty() {
        document["servers"] = json!([{ "url": nested.as_str() }]);
    }
    json(document.to_string())
}

/// The health of an agent. Its messages may have data of other users, so that they are shown to a single user only.
fn health(gateway: &Gateway, agent: &AgentEntry) -> Value {
    let health = gateway.health().of(&agent.name);
    let (live, readers) = gateway.live_runs_and_readers(agent.owner_agent());
    let name = agent.name.to_string();
    let metrics = gateway.metrics();
    let ended = |status: RunStatus| {
        let label = StatusLabel { agent: name.clone(), status: status.as_str() };
        metrics.runs_ended.get(&label).map_or(0, |count| count.get())
    };
    let started =
        metrics.runs_started.get(&AgentLabel { agent: name.clone() }).map_or(0, |count| count.get());
    let last_error = health.last_error.map(|error| {
        let mut shown = json!({"code": &*error.code, "at": iso(error.at)});
        if !gateway.settings().auth.is_required() && agent.identify.is_none() {
            shown["message"] = (&*error.message).into();
        }
        shown
    });
    json!({
        "runs": {"live": live, "started": started, "failed": ended(RunStatus::Failed)},
        "readers": readers,
        "breaker": agent.breaker.state().as_str(),
        "firstEventMs": health.first_event.map(|time| u64::try_from(time.as_millis()).unwrap_or(u64::MAX)),
        "lastError": last_error,
    })
}

/// `GET /agents`: the configured agents with their health.
async fn agents(State(gateway): State<Gateway>, _: KnownSender, nested: Nested) -> Response {
    let base = nested.as_str();
    let registry = gateway.registry();
    let agents: Vec<_> = registry
        .agents
        .values()
        .map(|agent| {
            json!({
                "name": &*agent.name,
                "url": format!("{base}/agents/{}", agent.name),
                "default": registry.default.as_deref() == Some(&*agent.name),
                "health": health(&gateway, agent),
            })
        })
        .collect();
    json(json!({ "agents": agents }).to_string())
}

/// `GET /capabilities`: the AG-UI capabilities of an agent, with those that the gateway adds to every agent.
pub(super) async fn capabilities(State(state): State<RouteState>, _: KnownSender) -> Response {
    json(capabilities_of(&state.agent).to_string())
}

/// The capabilities of an agent.
pub(super) fn capabilities_of(agent: &AgentEntry) -> Value {
    let mut capabilities = json!({
        "identity": {"name": &*agent.name},
        "transport": {"streaming": true, "httpBinary": true, "resumable": true},
        "state": {"snapshots": true, "deltas": true, "persistentState": true},
        "humanInTheLoop": {"supported": true, "interrupts": true},
    });
    for (group, configured) in &agent.settings.capabilities {
        match (capabilities.get_mut(group).and_then(|known| known.as_object_mut()), configured.as_object()) {
            (Some(known), Some(configured)) => known.extend(configured.clone()),
            _ => capabilities[group] = configured.clone(),
        }
    }
    capabilities
}
