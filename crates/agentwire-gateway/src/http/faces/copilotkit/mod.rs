//! CopilotKit's runtime protocol at `/copilotkit`: one route per operation, and all of them behind one `POST`.
//!
//! The paths and shapes are those of `@copilotkit/runtime` 1.75 without CopilotKit's cloud; its client contains
//! `@ag-ui/client` 0.0.59, so that streams are in the profile `copilotkit` of AG-UI.

mod agent;
mod errors;
mod events;
mod info;
mod single;
mod threads;

use axum::{
    Extension, Router,
    extract::{Path, Request, rejection::PathRejection},
    handler::Handler,
    http::Uri,
    middleware::{from_fn, from_fn_with_state},
    response::{IntoResponse, Response},
    routing::{any, delete, get, patch, post},
};
use tower::ServiceExt;

use super::super::{
    RouteGroup, RouteState,
    guard::{Guard, guard},
    no_route,
    ops::ServerRoute,
    router::{ResponseContent, Route, mount},
};
use crate::{
    auth::{Action, RequiredScope},
    codes,
    error::ApiError,
    gateway::{AgentRegistry, Gateway},
};

/// The routes below an agent's base.
pub(in crate::http) const AGENT_ROUTES: &[Route] = &[
    Route {
        method: "post",
        path: "/run",
        is_enabled: |on| on.ag_ui,
        summary: "Start a run or join it (CopilotKit)",
        content: ResponseContent::Stream,
        scope: RequiredScope::RunOrSync,
        handler: || post(agent::run),
    },
    Route {
        method: "post",
        path: "/connect",
        is_enabled: |on| on.ag_ui,
        summary: "The conversation, with the active run to its end; empty if there is none (CopilotKit)",
        content: ResponseContent::Stream,
        scope: RequiredScope::Agent(Action::Read),
        handler: || post(agent::connect),
    },
    Route {
        method: "post",
        path: "/stop/{id}",
        is_enabled: |on| on.ag_ui && on.runs,
        summary: "Stop the active run of a thread (CopilotKit)",
        content: ResponseContent::Json,
        scope: RequiredScope::Agent(Action::Control),
        handler: || post(agent::stop),
    },
];

/// The routes without an agent in their path.
pub(in crate::http) const SERVER_ROUTES: &[ServerRoute] = &[
    ServerRoute {
        method: "post",
        path: "/copilotkit",
        summary: "All routes of CopilotKit behind one: `{method, params, body}`",
        scope: RequiredScope::AnyAction,
        is_admin: false,
        handler: || post(single::dispatch),
    },
    ServerRoute {
        method: "get",
        path: "/copilotkit/info",
        summary: "The agents with their capabilities (CopilotKit)",
        scope: RequiredScope::AnyCredential,
        is_admin: false,
        handler: || get(info::info),
    },
    ServerRoute {
        method: "get",
        path: "/copilotkit/threads",
        summary: "The threads of an agent, newest first; `?agentId=`, `?limit=`, `?cursor=`, `?includeArchived=`",
        scope: RequiredScope::AnyAgent(Action::Read),
        is_admin: false,
        handler: || get(threads::list),
    },
    ServerRoute {
        method: "patch",
        path: "/copilotkit/threads/{id}",
        summary: "Rename, archive or restore a thread (CopilotKit)",
        scope: RequiredScope::AnyAgent(Action::State),
        is_admin: false,
        handler: || patch(threads::update),
    },
    ServerRoute {
        method: "delete",
        path: "/copilotkit/threads/{id}",
        summary: "Delete a thread with all its data (CopilotKit)",
        scope: RequiredScope::AnyAgent(Action::Delete),
        is_admin: false,
        handler: || delete(threads::delete),
    },
    ServerRoute {
        method: "post",
        path: "/copilotkit/threads/{id}/archive",
        summary: "Archive a thread (CopilotKit)",
        scope: RequiredScope::AnyAgent(Action::State),
        is_admin: false,
        handler: || post(threads::archive),
    },
    ServerRoute {
        method: "get",
        path: "/copilotkit/threads/{id}/messages",
        summary: "The messages of a thread (CopilotKit)",
        scope: RequiredScope::AnyAgent(Action::Read),
        is_admin: false,
        handler: || get(threads::messages),
    },
    ServerRoute {
        method: "get",
        path: "/copilotkit/threads/{id}/events",
        summary: "The events of all runs of a thread (CopilotKit)",
        scope: RequiredScope::AnyAgent(Action::Read),
        is_admin: false,
        handler: || get(threads::events),
    },
    ServerRoute {
        method: "get",
        path: "/copilotkit/threads/{id}/state",
        summary: "The state of a thread (CopilotKit)",
        scope: RequiredScope::AnyAgent(Action::Read),
        is_admin: false,
        handler: || get(threads::state),
    },
];

/// The bases of an agent's routes: by its name, and for the default agent also by the name that clients use without one.
pub(in crate::http) fn bases<'r>(
    registry: &'r AgentRegistry,
    name: &'r str,
) -> impl Iterator<Item = String> + 'r {
    let is_default = registry.default.as_deref() == Some(name) && !registry.agents.contains_key("default");
    [Some(name), is_default.then_some("default")]
        .into_iter()
        .flatten()
        .map(|id| format!("/copilotkit/agent/{id}"))
}

/// The routes of the multi-route transport, for the other one.
#[derive(Clone)]
struct MultiRoute(Router);

/// All routes; none if they are switched off.
pub(in crate::http) fn router(gateway: &Gateway, registry: &AgentRegistry) -> Router {
    if !gateway.settings().faces.copilotkit {
        return Router::new();
    }
    let guarded = |scope, route| from_fn_with_state(Guard::of_server(gateway, scope, route), guard);
    let mut router = Router::new();
    for route in SERVER_ROUTES.iter().filter(|route| route.path != "/copilotkit") {
        router = router.route(route.path, (route.handler)().route_layer(guarded(route.scope, route.path)));
    }
    let mut router = router.with_state(gateway.clone());
    for agent in registry.agents.values() {
        for base in bases(registry, &agent.name) {
            for group in RouteGroup::ALL {
                let identity = group.identity(gateway.settings(), &agent.settings).into();
                let state = RouteState { gateway: gateway.clone(), agent: agent.clone(), identity, group };
                router = router.merge(mount(AGENT_ROUTES, &base, &state, group));
            }
        }
    }
    let unknown = || guarded(RequiredScope::AnyCredential, "unknown");
    let plain = router.clone().fallback(no_agent_route);
    let other = move |path, request| other_agent(plain.clone(), path, request);
    let router = router
        .route("/copilotkit/agent/{agent}/{*rest}", any(other.layer(unknown())))
        .route("/copilotkit/{*rest}", any(unknown_route.layer(unknown())))
        .method_not_allowed_fallback(wrong_method.layer(unknown()))
        .layer(from_fn(errors::in_shape));
    let mut single = Router::new();
    for route in SERVER_ROUTES.iter().filter(|route| route.path == "/copilotkit") {
        for path in ["/copilotkit", "/copilotkit/"] {
            single = single.route(path, (route.handler)().route_layer(guarded(route.scope, route.path)));
        }
    }
    let single = single
        .with_state(gateway.clone())
        .method_not_allowed_fallback(wrong_method.layer(unknown()))
        .layer(Extension(MultiRoute(router.clone())))
        .layer(from_fn(errors::in_shape));
    router.merge(single)
}

/// The prefix of an agent's routes.
const AGENTS: &str = "/copilotkit/agent/";

/// An agent whose name is percent-encoded, though names need no encoding; or one that does not exist.
async fn other_agent(
    plain: Router,
    path: Result<Path<(String, String)>, PathRejection>,
    mut request: Request,
) -> Result<Response, ApiError> {
    let invalid = |error: String| ApiError::new(codes::BAD_REQUEST, format!("the path: {error}"));
    let Path((agent, _)) = path.map_err(|error| invalid(error.body_text()))?;
    let rest = request.uri().path_and_query().and_then(|path| path.as_str().strip_prefix(AGENTS));
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    match rest.and_then(|rest| rest.split_once('/')) {
        Some((encoded, rest)) if encoded != agent && agent.chars().all(is_plain) => {
            let uri = Uri::try_from(format!("{AGENTS}{agent}/{rest}"));
            *request.uri_mut() = uri.map_err(|error| invalid(error.to_string()))?;
            Ok(plain.oneshot(request).await.into_response())
        }
        _ => Err(unknown_agent_error(&agent)),
    }
}

/// No route of an agent whose name was percent-encoded.
async fn no_agent_route(uri: Uri) -> ApiError {
    let rest = uri.path().strip_prefix(AGENTS).unwrap_or_default();
    unknown_agent_error(rest.split('/').next().unwrap_or_default())
}

fn unknown_agent_error(agent: &str) -> ApiError {
    let message = format!("agent `{}` does not exist, or it has no such route", agent.escape_default());
    ApiError::new(codes::UNKNOWN_AGENT, message)
}

async fn unknown_route() -> ApiError {
    no_route()
}

async fn wrong_method() -> ApiError {
    ApiError::new(codes::METHOD_NOT_ALLOWED, "this route has other methods")
}
