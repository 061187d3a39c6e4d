//! The table of an agent's routes, the router and the OpenAPI document made from it.

use axum::{
    Router,
    middleware::{from_fn, from_fn_with_state},
    routing::{MethodRouter, delete, get, patch, post},
};
use serde_json::{Map, Value, json};

use super::{
    RouteGroup, RouteState, ag_ui, ai_sdk, artifacts,
    faces::{copilotkit, langgraph},
    feedback,
    guard::{Guard, guard},
    hai, ops, runs, thread_list, threads,
};
use crate::{
    auth::{Action, RequiredScope},
    codes,
    gateway::Gateway,
    settings::{AgentSettings, IdentityField, IdentitySource, Routes, Settings},
};

/// A route below an agent's base.
pub(super) struct Route {
    pub(super) method: &'static str,
    pub(super) path: &'static str,
    pub(super) is_enabled: fn(&Routes) -> bool,
    pub(super) summary: &'static str,
    pub(super) content: ResponseContent,
    /// The scope of a request, checked before its body is read.
    pub(super) scope: RequiredScope,
    pub(super) handler: fn() -> MethodRouter<RouteState>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum ResponseContent {
    Stream,
    Json,
    /// A stored file.
    Bytes,
}

/// Placeholder for the configured main path.
const MAIN: &str = "{main}";

/// Placeholder for the configured paths of HAI.
const HAI: &str = "{hai}";

/// The stream of a run; the only route that takes tickets.
const RUN_STREAM: &str = "/runs/{run}/stream";

const TICKETS: &str = "/tickets";

const CAPABILITIES: &str = "/capabilities";

const ROUTES: &[Route] = &[
    Route {
        method: "post",
        path: MAIN,
        is_enabled: |on| on.ag_ui,
        summary: "Start a run or join it (AG-UI)",
        content: ResponseContent::Stream,
        scope: RequiredScope::RunOrSync,
        handler: || post(ag_ui::post),
    },
    Route {
        method: "post",
        path: HAI,
        is_enabled: |on| on.hai,
        summary: "Start a run or join it (HAI)",
        content: ResponseContent::Stream,
        scope: RequiredScope::RunOrSync,
        handler: || post(hai::post),
    },
    Route {
        method: "post",
        path: "/api/chat",
        is_enabled: |on| on.ai_sdk,
        summary: "Start a run (AI SDK); `?profile=`",
        content: ResponseContent::Stream,
        scope: RequiredScope::Agent(Action::Run),
        handler: || post(ai_sdk::post),
    },
    Route {
        method: "get",
        path: "/api/chat",
        is_enabled: |on| on.ai_sdk,
        summary: "Stream of the active response of `?chatId=`, from its start; empty if there is none (AI SDK 4)",
        content: ResponseContent::Stream,
        scope: RequiredScope::Agent(Action::Read),
        handler: || get(ai_sdk::resume_version_4),
    },
    Route {
        method: "get",
        path: "/api/chat/{id}/stream",
        is_enabled: |on| on.ai_sdk,
        summary: "Stream of the active response, from its start; 204 if there is none (AI SDK)",
        content: ResponseContent::Stream,
        scope: RequiredScope::Agent(Action::Read),
        handler: || get(ai_sdk::resume),
    },
    Route {
        method: "post",
        path: "/api/chat/{id}/stop",
        is_enabled: |on| on.ai_sdk,
        summary: "Stop the active run (AI SDK)",
        content: ResponseContent::Json,
        scope: RequiredScope::Agent(Action::Control),
        handler: || post(ai_sdk::stop),
    },
    Route {
        method: "get",
        path: "/thread/list",
        is_enabled: |on| on.history,
        summary: "The threads of the user, newest first; `?limit=`, `?before=`",
        content: ResponseContent::Json,
        scope: RequiredScope::Agent(Action::Read),
        handler: || get(threads::list),
    },
    Route {
        method: "delete",
        path: "/thread/list",
        is_enabled: |on| on.history,
        summary: "Delete the thread with the id `list`",
        content: ResponseContent::Json,
        scope: RequiredScope::Agent(Action::Delete),
        handler: || delete(threads::delete_list),
    },
    Route {
        method: "delete",
        path: "/thread/{id}",
        is_enabled: |on| on.history,
        summary: "Delete a thread with all its data",
        content: ResponseContent::Json,
        scope: RequiredScope::Agent(Action::Delete),
        handler: || delete(threads::delete),
    },
    Route {
        method: "get",
        path: "/threads",
        is_enabled: |on| on.history,
        summary: "The threads with title, agent, status and times; `?query=`, `?status=`, `?limit=`, `?before=`",
        content: ResponseContent::Json,
        scope: RequiredScope::Agent(Action::Read),
        handler: || get(thread_list::list),
    },
    Route {
        method: "patch",
        path: "/threads/{id}",
        is_enabled: |on| on.history,
        summary: "Rename or archive a thread",
        content: ResponseContent::Json,
        scope: RequiredScope::Agent(Action::State),
        handler: || patch(thread_list::update),
    },
    Route {
        method: "get",
        path: "/threads/{id}/runs",
        is_enabled: |on| on.history,
        summary: "The runs of a thread, newest first; `?limit=`, `?before=`",
        content: ResponseContent::Json,
        scope: RequiredScope::Agent(Action::Read),
        handler: || get(thread_list::runs),
    },
    Route {
        method: "get",
        path: "/threads/{id}/export",
        is_enabled: |on| on.history,
        summary: "The events of all runs of a thread as AG-UI JSON lines",
        content: ResponseContent::Bytes,
        scope: RequiredScope::Agent(Action::Read),
        handler: || get(thread_list::export),
    },
    Route {
        method: "get",
        path: "/message_snapshot/{id}",
        is_enabled: |on| on.history,
        summary: "The conversation as MESSAGES_SNAPSHOT; `?format=hai`, or `UIMessage[]` with `?format=ai-sdk`",
        content: ResponseContent::Json,
        scope: RequiredScope::Agent(Action::Read),
        handler: || get(threads::messages),
    },
    Route {
        method: "get",
        path: "/threads/{id}/artifacts",
        is_enabled: |on| on.history,
        summary: "Names of the artifacts of a thread",
        content: ResponseContent::Json,
        scope: RequiredScope::Agent(Action::Read),
        handler: || get(artifacts::list),
    },
    Route {
        method: "get",
        path: "/threads/{id}/artifacts/{*name}",
        is_enabled: |on| on.history,
        summary: "Content of an artifact; `?version=`",
        content: ResponseContent::Bytes,
        scope: RequiredScope::Agent(Action::Read),
        handler: || get(artifacts::one),
    },
    Route {
        method: "get",
        path: "/state_snapshot/{id}",
        is_enabled: |on| on.state,
        summary: "The state as STATE_SNAPSHOT",
        content: ResponseContent::Json,
        scope: RequiredScope::Agent(Action::Read),
        handler: || get(threads::state),
    },
    Route {
        method: "patch",
        path: "/state/{id}",
        is_enabled: |on| on.state,
        summary: "Change the state by a JSON Patch, all or nothing",
        content: ResponseContent::Json,
        scope: RequiredScope::Agent(Action::State),
        handler: || patch(threads::patch_state),
    },
    Route {
        method: "get",
        path: "/runs/{run}",
        is_enabled: |on| on.runs,
        summary: "Status of a run",
        content: ResponseContent::Json,
        scope: RequiredScope::Agent(Action::Read),
        handler: || get(runs::status),
    },
    Route {
        method: "post",
        path: "/runs/{run}/stop",
        is_enabled: |on| on.runs,
        summary: "Stop a run",
        content: ResponseContent::Json,
        scope: RequiredScope::Agent(Action::Control),
        handler: || post(runs::stop),
    },
    Route {
        method: "post",
        path: "/runs/{run}/pause",
        is_enabled: |on| on.runs,
        summary: "Pause a run",
        content: ResponseContent::Json,
        scope: RequiredScope::Agent(Action::Control),
        handler: || post(runs::pause),
    },
    Route {
        method: "post",
        path: "/runs/{run}/resume",
        is_enabled: |on| on.runs,
        summary: "Resume a paused run",
        content: ResponseContent::Json,
        scope: RequiredScope::Agent(Action::Control),
        handler: || post(runs::resume),
    },
    Route {
        method: "get",
        path: RUN_STREAM,
        is_enabled: |on| on.runs,
        summary: "Follow a run, or reconnect to it; `?after=`, `Last-Event-ID`, `?format=`",
        content: ResponseContent::Stream,
        scope: RequiredScope::Agent(Action::Read),
        handler: || get(runs::follow),
    },
    Route {
        method: "post",
        path: TICKETS,
        is_enabled: |on| on.runs,
        summary: "A ticket that opens the stream of a run for a minute: `?ticket=`, for clients without headers",
        content: ResponseContent::Json,
        scope: RequiredScope::Agent(Action::Read),
        handler: || post(runs::ticket),
    },
    Route {
        method: "get",
        path: "/threads/{id}/stream",
        is_enabled: |on| on.runs,
        summary: "The conversation of a thread and its active run; `?after=`, `Last-Event-ID`, `?format=`",
        content: ResponseContent::Stream,
        scope: RequiredScope::Agent(Action::Read),
        handler: || get(runs::follow_thread),
    },
    Route {
        method: "get",
        path: "/threads/{id}/pending",
        is_enabled: |on| on.runs,
        summary: "The open items of a thread; with `?all=true` the answered ones too, with who decided and when",
        content: ResponseContent::Json,
        scope: RequiredScope::Agent(Action::Read),
        handler: || get(threads::pending),
    },
    Route {
        method: "post",
        path: "/feedback",
        is_enabled: |on| on.runs,
        summary: "Give feedback on a thread, run, message or tool call",
        content: ResponseContent::Json,
        scope: RequiredScope::Agent(Action::Feedback),
        handler: || post(feedback::add),
    },
    Route {
        method: "get",
        path: "/threads/{id}/feedback",
        is_enabled: |on| on.runs,
        summary: "Feedback on a thread",
        content: ResponseContent::Json,
        scope: RequiredScope::Agent(Action::Read),
        handler: || get(feedback::list),
    },
    Route {
        method: "get",
        path: CAPABILITIES,
        is_enabled: |_| true,
        summary: "Capabilities of the agent (AG-UI)",
        content: ResponseContent::Json,
        scope: RequiredScope::AnyCredential,
        handler: || get(ops::capabilities),
    },
];

/// The paths of a route below `base`; the base itself works with and without a trailing slash.
fn paths(base: &str, route: &Route, settings: &AgentSettings) -> Vec<String> {
    let named: Vec<&str> = match route.path {
        MAIN => vec![&settings.path],
        HAI => settings.hai_paths.iter().map(String::as_str).collect(),
        path => vec![path],
    };
    let below = |path: &str| match (base, path.trim_end_matches('/')) {
        ("", "") => vec!["/".into()],
        (base, "") => vec![base.into(), format!("{base}/")],
        (base, path) => vec![format!("{base}{path}")],
    };
    named.into_iter().flat_map(below).collect()
}

impl Route {
    /// Its group: the one whose setting disables it.
    fn group(&self) -> RouteGroup {
        let is_disabled_by = |change: fn(&mut Routes)| {
            let mut routes = Routes::default();
            change(&mut routes);
            !(self.is_enabled)(&routes)
        };
        if is_disabled_by(|routes| routes.history = false) {
            RouteGroup::History
        } else if is_disabled_by(|routes| routes.state = false) {
            RouteGroup::State
        } else if is_disabled_by(|routes| routes.runs = false) || self.follows_chat() {
            RouteGroup::Runs
        } else {
            RouteGroup::Main
        }
    }

    /// True if it is a route of the AI SDK for a run that exists.
    fn follows_chat(&self) -> bool {
        self.is_ai_sdk() && !self.has_body()
    }

    fn is_ai_sdk(&self) -> bool {
        self.path.starts_with("/api/chat")
    }

    fn has_body(&self) -> bool {
        let is_start = self.content == ResponseContent::Stream || matches!(self.path, "/feedback" | TICKETS);
        (self.method == "post" && is_start) || self.method == "patch"
    }

    /// True if a request to this route, mounted at `path`, can have the value that an identity field asks for.
    fn can_have(&self, field: &IdentityField, path: &str) -> bool {
        field.default.is_some()
            || match &field.source {
                IdentitySource::Constant | IdentitySource::Header(_) => true,
                IdentitySource::Path(parameter) => path.contains(&format!("{{{parameter}}}")),
                IdentitySource::Body(_) => self.has_body(),
            }
    }
}

/// The routes of an agent that refuse every request with `NO_IDENTITY`, because their identity settings name a part of
/// the request that they do not have: each as method and path below the agent's base.
#[must_use]
pub fn routes_without_identity(settings: &Settings, agent: &AgentSettings) -> Vec<String> {
    let mut found = Vec::new();
    if settings.auth.is_required() {
        // The credential names tenant and user.
        return found;
    }
    // The capabilities are the same for everybody.
    let routes =
        ROUTES.iter().filter(|route| (route.is_enabled)(&agent.routes) && route.path != CAPABILITIES);
    for route in routes {
        let identity = route.group().identity(settings, agent);
        for path in paths("", route, agent) {
            if ![&identity.tenant, &identity.user].into_iter().all(|field| route.can_have(field, &path)) {
                found.push(format!("{} {path}", route.method.to_uppercase()));
            }
        }
    }
    found
}

/// The routes of an agent in one group.
pub(super) fn of_agent(base: &str, state: &RouteState, group: RouteGroup) -> Router {
    mount(ROUTES, base, state, group)
}

/// The routes of a table in one group, below a base.
pub(super) fn mount(table: &'static [Route], base: &str, state: &RouteState, group: RouteGroup) -> Router {
    let settings = &state.agent.settings;
    let mut router = Router::new();
    for route in table.iter().filter(|route| route.group() == group && (route.is_enabled)(&settings.routes)) {
        let guarded = Guard {
            gateway: state.gateway.clone(),
            scope: route.scope,
            route: route.path,
            takes_tickets: route.path == RUN_STREAM,
            agent: (&*state.agent.name).into(),
        };
        for path in paths(base, route, settings) {
            let mut handler = (route.handler)().route_layer(from_fn_with_state(guarded.clone(), guard));
            if route.is_ai_sdk() {
                // Outside of the guard, so that its refusals are text too.
                handler = handler.route_layer(from_fn(ai_sdk::errors_as_text));
            }
            router = router.route(&path, handler);
        }
    }
    router.with_state(state.clone())
}

/// The OpenAPI document of everything that is mounted.
pub(super) fn openapi(gateway: &Gateway) -> Value {
    let mut table = Map::new();
    let has_copilotkit = gateway.settings().faces.copilotkit;
    let copilotkit_routes: &[_] = if has_copilotkit { copilotkit::SERVER_ROUTES } else { &[] };
    let langgraph_routes: &[_] = if gateway.settings().faces.langgraph { langgraph::ROUTES } else { &[] };
    for route in ops::ROUTES.iter().chain(copilotkit_routes).chain(langgraph_routes) {
        let mut operation = json!({"summary": route.summary, "tags": ["server"], "responses": {"200": {"description": "ok"}}});
        if route.path.contains('{') {
            operation["parameters"] = path_parameters(route.path).into();
        }
        let entry = table.entry(route.path).or_insert_with(|| json!({}));
        entry[route.method] = operation;
    }
    let registry = gateway.registry();
    for agent in registry.agents.values() {
        let is_default = registry.default.as_deref() == Some(&*agent.name);
        let own = [Some(format!("/agents/{}", agent.name)), is_default.then(String::new)];
        let own = own.into_iter().flatten().map(|base| (base, ROUTES));
        let faces = copilotkit::bases(&registry, &agent.name).filter(|_| has_copilotkit);
        for (base, routes) in own.chain(faces.map(|base| (base, copilotkit::AGENT_ROUTES))) {
            for route in routes.iter().filter(|route| (route.is_enabled)(&agent.settings.routes)) {
                let mut paths = paths(&base, route, &agent.settings);
                // With and without a trailing slash it is one path.
                paths.dedup_by(|with, without| with.trim_end_matches('/') == without.trim_end_matches('/'));
                for path in paths {
                    // OpenAPI has no syntax for the rest of a path.
                    let path = path.replace("{*", "{");
                    let entry = table.entry(path.clone()).or_insert_with(|| json!({}));
                    entry[route.method] = operation(route, &path, &agent.name);
                }
            }
        }
    }
    json!({
        "openapi": "3.1.0",
        "info": {"title": "agentwire", "version": env!("CARGO_PKG_VERSION"), "description": "One wire between any AI agent and any user interface"},
        "paths": table,
        "components": {"schemas": {"Error": {
            "type": "object",
            "required": ["error"],
            "properties": {"error": {
                "type": "object",
                "required": ["code", "message"],
                "properties": {
                    "code": {"type": "string", "enum": codes::GATEWAY.iter().map(|code| code.name).collect::<Vec<_>>()},
                    "message": {"type": "string"},
                    "hint": {"type": "string"},
                },
            }},
        }}},
    })
}

fn path_parameters(path: &str) -> Vec<Value> {
    let names = path.split(['{', '}']).skip(1).step_by(2);
    names
        .map(|name| json!({"name": name, "in": "path", "required": true, "schema": {"type": "string"}}))
        .collect()
}

fn operation(route: &Route, path: &str, agent: &str) -> Value {
    let parameters = path_parameters(path);
    let content = match route.content {
        ResponseContent::Stream => json!({"text/event-stream": {}}),
        ResponseContent::Json => json!({"application/json": {}}),
        ResponseContent::Bytes => json!({"*/*": {}}),
    };
    let error = json!({"description": "refused", "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}});
    let mut operation = json!({
        "summary": route.summary,
        "tags": [agent],
        "parameters": parameters,
        "responses": {"200": {"description": "ok", "content": content}, "default": error},
    });
    if route.has_body() {
        operation["requestBody"] = json!({"required": true, "content": {"application/json": {}}});
    }
    operation
}
