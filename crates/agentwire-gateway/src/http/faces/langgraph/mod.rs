//! LangGraph Server's protocol at `/langgraph`, for `@langchain/langgraph-sdk`, `useStream` and LangGraph's other clients.
//!
//! The paths and shapes are those of langgraph-api 0.16. An assistant is an agent. Checkpoints are derived from the logs of
//! the runs ([`checkpoints`]); the log of a run that is started here begins with the messages and the state before it, so
//! that its `values` are whole at every reader.

mod assistants;
mod body;
mod checkpoints;
mod errors;
mod runs;
mod shapes;
mod start;
mod state;
mod threads;

use axum::{
    Router,
    handler::Handler,
    middleware::{from_fn, from_fn_with_state},
    routing::{MethodRouter, any, delete, get, patch, post},
};

use super::super::{
    guard::{Guard, guard},
    no_route,
    ops::ServerRoute,
};
use crate::{
    auth::{Action, RequiredScope},
    codes,
    error::ApiError,
    gateway::Gateway,
};

const READ: RequiredScope = RequiredScope::AnyAgent(Action::Read);
const RUN: RequiredScope = RequiredScope::AnyAgent(Action::Run);
const STATE: RequiredScope = RequiredScope::AnyAgent(Action::State);

const fn route(
    method: &'static str,
    path: &'static str,
    scope: RequiredScope,
    handler: fn() -> MethodRouter<Gateway>,
    summary: &'static str,
) -> ServerRoute {
    ServerRoute { method, path, summary, scope, is_admin: false, handler }
}

/// All routes.
pub(in crate::http) const ROUTES: &[ServerRoute] = &[
    route(
        "post",
        "/langgraph/stream/{agent}",
        RUN,
        || post(start::fetch_stream),
        "Start a run of an agent (`FetchStreamTransport`)",
    ),
    route(
        "get",
        "/langgraph/ok",
        RequiredScope::AnyCredential,
        || get(assistants::ok),
        "Whether the server answers (LangGraph)",
    ),
    route(
        "get",
        "/langgraph/info",
        RequiredScope::AnyCredential,
        || get(assistants::info),
        "Version and flags (LangGraph)",
    ),
    route(
        "post",
        "/langgraph/assistants/search",
        RequiredScope::AnyCredential,
        || post(assistants::search),
        "The agents (LangGraph)",
    ),
    route(
        "post",
        "/langgraph/assistants/count",
        RequiredScope::AnyCredential,
        || post(assistants::count),
        "The number of agents (LangGraph)",
    ),
    route(
        "get",
        "/langgraph/assistants/{agent}",
        RequiredScope::AnyAction,
        || get(assistants::get),
        "An agent (LangGraph)",
    ),
    route(
        "get",
        "/langgraph/assistants/{agent}/schemas",
        RequiredScope::AnyAction,
        || get(assistants::schemas),
        "The schemas of an agent's state (LangGraph)",
    ),
    route(
        "get",
        "/langgraph/assistants/{agent}/graph",
        RequiredScope::AnyAction,
        || get(assistants::graph),
        "An agent as a graph of one node (LangGraph)",
    ),
    route(
        "get",
        "/langgraph/assistants/{agent}/subgraphs",
        RequiredScope::AnyAction,
        || get(assistants::subgraphs),
        "The nested graphs of an agent: none (LangGraph)",
    ),
    route("post", "/langgraph/threads", RUN, || post(threads::create), "Create a thread (LangGraph)"),
    route(
        "post",
        "/langgraph/threads/search",
        READ,
        || post(threads::search),
        "The threads of the user, newest first (LangGraph)",
    ),
    route(
        "post",
        "/langgraph/threads/count",
        READ,
        || post(threads::count),
        "The number of threads of the user (LangGraph)",
    ),
    route(
        "get",
        "/langgraph/threads/{id}",
        READ,
        || get(threads::get),
        "A thread with its values (LangGraph)",
    ),
    route(
        "patch",
        "/langgraph/threads/{id}",
        STATE,
        || patch(threads::update),
        "Change the metadata of a thread (LangGraph)",
    ),
    route(
        "delete",
        "/langgraph/threads/{id}",
        RequiredScope::AnyAgent(Action::Delete),
        || delete(threads::delete),
        "Delete a thread with all its data (LangGraph)",
    ),
    route(
        "get",
        "/langgraph/threads/{id}/state",
        READ,
        || get(state::get),
        "The newest checkpoint of a thread (LangGraph)",
    ),
    route(
        "post",
        "/langgraph/threads/{id}/state",
        STATE,
        || post(state::update),
        "Change the state of a thread (LangGraph)",
    ),
    route(
        "post",
        "/langgraph/threads/{id}/state/checkpoint",
        READ,
        || post(state::post_at),
        "A checkpoint of a thread, named in the body (LangGraph)",
    ),
    route(
        "get",
        "/langgraph/threads/{id}/state/{name}",
        READ,
        || get(state::get_at),
        "A checkpoint of a thread (LangGraph)",
    ),
    route(
        "get",
        "/langgraph/threads/{id}/history",
        READ,
        || get(state::get_history),
        "The checkpoints of a thread, newest first; `?limit=`, `?before=` (LangGraph)",
    ),
    route(
        "post",
        "/langgraph/threads/{id}/history",
        READ,
        || post(state::post_history),
        "The same with `{limit, before}` (LangGraph)",
    ),
    route(
        "get",
        "/langgraph/threads/{id}/runs",
        READ,
        || get(runs::list),
        "The runs of a thread, newest first; `?limit=`, `?offset=`, `?status=` (LangGraph)",
    ),
    route(
        "post",
        "/langgraph/threads/{id}/runs",
        RUN,
        || post(start::create),
        "Start a run in the background (LangGraph)",
    ),
    route(
        "post",
        "/langgraph/threads/{id}/runs/stream",
        RUN,
        || post(start::stream),
        "Start a run and follow it (LangGraph)",
    ),
    route(
        "post",
        "/langgraph/threads/{id}/runs/wait",
        RUN,
        || post(start::wait),
        "Start a run and wait for its values (LangGraph)",
    ),
    route("get", "/langgraph/threads/{id}/runs/{run}", READ, || get(runs::get), "A run (LangGraph)"),
    route(
        "get",
        "/langgraph/threads/{id}/runs/{run}/stream",
        READ,
        || get(runs::join),
        "Follow a run; `Last-Event-ID`, `?stream_mode=`, `?cancel_on_disconnect=` (LangGraph)",
    ),
    route(
        "get",
        "/langgraph/threads/{id}/runs/{run}/join",
        READ,
        || get(runs::wait),
        "Wait for the end of a run; its values (LangGraph)",
    ),
    route(
        "post",
        "/langgraph/threads/{id}/runs/{run}/cancel",
        RequiredScope::AnyAgent(Action::Control),
        || post(runs::cancel),
        "Stop a run; `?wait=`, `?action=` (LangGraph)",
    ),
    route(
        "post",
        "/langgraph/runs",
        RUN,
        || post(start::stateless_create),
        "Start a run without a thread (LangGraph)",
    ),
    route(
        "post",
        "/langgraph/runs/stream",
        RUN,
        || post(start::stateless_stream),
        "Start a run without a thread and follow it (LangGraph)",
    ),
    route(
        "post",
        "/langgraph/runs/wait",
        RUN,
        || post(start::stateless_wait),
        "Start a run without a thread and wait for its values (LangGraph)",
    ),
    route(
        "get",
        "/langgraph/runs/{run}/stream",
        READ,
        || get(runs::join_stateless),
        "Follow a run that was started without a thread (LangGraph)",
    ),
];

/// All routes; none if they are switched off.
pub(in crate::http) fn router(gateway: &Gateway) -> Router {
    if !gateway.settings().faces.langgraph {
        return Router::new();
    }
    let guarded = |scope, route| from_fn_with_state(Guard::of_server(gateway, scope, route), guard);
    let mut router = Router::new();
    for route in ROUTES {
        router = router.route(route.path, (route.handler)().route_layer(guarded(route.scope, route.path)));
    }
    let unknown = || guarded(RequiredScope::AnyCredential, "unknown");
    router
        .with_state(gateway.clone())
        .route("/langgraph/{*rest}", any(unknown_route.layer(unknown())))
        .method_not_allowed_fallback(wrong_method.layer(unknown()))
        .layer(from_fn(errors::in_shape))
}

async fn unknown_route() -> ApiError {
    no_route()
}

async fn wrong_method() -> ApiError {
    ApiError::new(codes::METHOD_NOT_ALLOWED, "this route has other methods")
}
