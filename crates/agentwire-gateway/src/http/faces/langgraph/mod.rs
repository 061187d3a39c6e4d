//! LangGraph Server's protocol at `/langgraph`, for `@langchain/langgraph-sdk`, `useStream` and LangGraph's other clients.
//!
//! The paths and shapes are those of langgraph-api 0.16. An assistant is an agent. Checkpoints are derived from the logs of
//! the runs ([`checkpoints`]); the log of a run that is started here begins with the messages and the state before it, so
//! that its `values` are whole at every reader.

mod assistants;
mod body;
mod checkpoints;
mod commands;
mod echo;
mod errors;
mod events;
mod records;
mod runs;
mod shapes;
mod start;
mod state;
mod threads;

use axum::{
    Router,
    handler::Handler,
    http::Uri,
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
        "post",
        "/langgraph/threads/{id}/commands",
        RUN,
        || post(commands::command),
        "A command of protocol v2: start a run, answer a question (LangGraph)",
    ),
    route(
        "post",
        "/langgraph/threads/{id}/stream/events",
        READ,
        || post(events::events),
        "Follow all runs of a thread in protocol v2; `{channels, namespaces?, depth?, since?}` (LangGraph)",
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

async fn unknown_route(uri: Uri) -> ApiError {
    match missing_feature(uri.path()) {
        Some(feature) => {
            ApiError::new(codes::UNKNOWN_ROUTE, format!("{feature}: not offered by this server"))
        }
        None => no_route(),
    }
}

async fn wrong_method(uri: Uri) -> ApiError {
    let message = match missing_feature(uri.path()) {
        Some(feature) => format!("{feature}: not offered by this server"),
        None => "this route has other methods".to_owned(),
    };
    ApiError::new(codes::METHOD_NOT_ALLOWED, message)
}

/// The feature of LangGraph Server that a path is about, if this face has none of it.
fn missing_feature(path: &str) -> Option<&'static str> {
    let path = path.strip_prefix("/langgraph/")?;
    let segments: Vec<&str> = path.split('/').filter(|segment| !segment.is_empty()).collect();
    match segments[..] {
        ["runs", "crons", ..] | ["threads", _, "runs", "crons", ..] => Some("crons"),
        ["store", ..] => Some("the store"),
        ["runs", "batch" | "cancel"] => Some("several runs at once"),
        ["threads", "prune"] => Some("pruning of threads"),
        ["threads", _, "copy"] => Some("copies of threads"),
        ["threads", _, "stream"] => Some("the stream of a thread (follow its runs, or `stream/events`)"),
        ["threads", _, "runs", _] => Some("deletion of runs"),
        ["assistants"] | ["assistants", _] | ["assistants", _, "versions" | "latest"] => {
            Some("changes and versions of assistants")
        }
        _ => None,
    }
}
