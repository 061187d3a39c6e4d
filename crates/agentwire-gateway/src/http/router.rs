//! The table of an agent's routes, and what is made of it: the router and the OpenAPI document.

use axum::{
    Router,
    routing::{MethodRouter, delete, get, patch, post},
};
use serde_json::{Map, Value, json};

use super::{Mount, Part, artifacts, feedback, ops, runs, start, threads};
use crate::{codes, gateway::Gateway, settings::Routes};

/// A route below an agent's base.
struct Route {
    method: &'static str,
    path: &'static str,
    group: fn(&Routes) -> bool,
    about: &'static str,
    answer: Answer,
    handler: fn() -> MethodRouter<Mount>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Answer {
    Stream,
    Json,
    /// Whatever was stored.
    Bytes,
}

/// The main path stands for what the settings say.
const MAIN: &str = "{main}";

const ROUTES: &[Route] = &[
    Route {
        method: "post",
        path: MAIN,
        group: |on| on.ag_ui,
        about: "Start a run or join it (AG-UI)",
        answer: Answer::Stream,
        handler: || post(start::ag_ui),
    },
    Route {
        method: "post",
        path: "/awp",
        group: |on| on.hai,
        about: "Start a run or join it (HAI)",
        answer: Answer::Stream,
        handler: || post(start::hai),
    },
    Route {
        method: "post",
        path: "/chat",
        group: |on| on.hai,
        about: "Start a run or join it (HAI)",
        answer: Answer::Stream,
        handler: || post(start::hai),
    },
    Route {
        method: "post",
        path: "/api/chat",
        group: |on| on.ai_sdk,
        about: "Start a run (AI SDK); `?profile=`",
        answer: Answer::Stream,
        handler: || post(start::ai_sdk),
    },
    Route {
        method: "get",
        path: "/api/chat",
        group: |on| on.ai_sdk,
        about: "The answer that is going on in `?chatId=`, from its start; empty if there is none (AI SDK 4)",
        answer: Answer::Stream,
        handler: || get(start::ai_sdk_resume_4),
    },
    Route {
        method: "get",
        path: "/api/chat/{id}/stream",
        group: |on| on.ai_sdk,
        about: "The answer that is going on, from its start; 204 if there is none (AI SDK)",
        answer: Answer::Stream,
        handler: || get(start::ai_sdk_resume),
    },
    Route {
        method: "post",
        path: "/api/chat/{id}/stop",
        group: |on| on.ai_sdk,
        about: "Stop the answer that is going on (AI SDK)",
        answer: Answer::Json,
        handler: || post(start::ai_sdk_stop),
    },
    Route {
        method: "get",
        path: "/thread/list",
        group: |on| on.history,
        about: "The threads of the user, newest first; `?limit=`, `?before=`",
        answer: Answer::Json,
        // A thread may have any name, this one too.
        handler: || get(threads::list).delete(threads::delete_list),
    },
    Route {
        method: "delete",
        path: "/thread/{id}",
        group: |on| on.history,
        about: "Delete a thread with everything of it",
        answer: Answer::Json,
        handler: || delete(threads::delete),
    },
    Route {
        method: "get",
        path: "/message_snapshot/{id}",
        group: |on| on.history,
        about: "The conversation as MESSAGES_SNAPSHOT, or as `UIMessage[]` with `?format=ai-sdk`",
        answer: Answer::Json,
        handler: || get(threads::messages),
    },
    Route {
        method: "get",
        path: "/threads/{id}/artifacts",
        group: |on| on.history,
        about: "The names of what the agent has stored in a thread",
        answer: Answer::Json,
        handler: || get(artifacts::list),
    },
    Route {
        method: "get",
        path: "/threads/{id}/artifacts/{*name}",
        group: |on| on.history,
        about: "Something that the agent has stored, as it is; `?version=`",
        answer: Answer::Bytes,
        handler: || get(artifacts::one),
    },
    Route {
        method: "get",
        path: "/state_snapshot/{id}",
        group: |on| on.state,
        about: "The state as STATE_SNAPSHOT",
        answer: Answer::Json,
        handler: || get(threads::state),
    },
    Route {
        method: "patch",
        path: "/state/{id}",
        group: |on| on.state,
        about: "Change the state by a JSON Patch, all or nothing",
        answer: Answer::Json,
        handler: || patch(threads::patch_state),
    },
    Route {
        method: "get",
        path: "/runs/{run}",
        group: |on| on.runs,
        about: "How far a run is",
        answer: Answer::Json,
        handler: || get(runs::status),
    },
    Route {
        method: "post",
        path: "/runs/{run}/stop",
        group: |on| on.runs,
        about: "Stop a run",
        answer: Answer::Json,
        handler: || post(runs::stop),
    },
    Route {
        method: "post",
        path: "/runs/{run}/pause",
        group: |on| on.runs,
        about: "Hold a run",
        answer: Answer::Json,
        handler: || post(runs::pause),
    },
    Route {
        method: "post",
        path: "/runs/{run}/resume",
        group: |on| on.runs,
        about: "Let a held run go on",
        answer: Answer::Json,
        handler: || post(runs::resume),
    },
    Route {
        method: "get",
        path: "/runs/{run}/stream",
        group: |on| on.runs,
        about: "Follow a run, or come back to it; `?after=`, `Last-Event-ID`, `?format=`",
        answer: Answer::Stream,
        handler: || get(runs::follow),
    },
    Route {
        method: "get",
        path: "/threads/{id}/stream",
        group: |on| on.runs,
        about: "Follow the run of a thread; `?after=`, `Last-Event-ID`, `?format=`",
        answer: Answer::Stream,
        handler: || get(runs::follow_thread),
    },
    Route {
        method: "get",
        path: "/threads/{id}/pending",
        group: |on| on.runs,
        about: "What the thread waits for",
        answer: Answer::Json,
        handler: || get(threads::pending),
    },
    Route {
        method: "post",
        path: "/feedback",
        group: |on| on.runs,
        about: "Say what you think of a thread, run, message or tool call",
        answer: Answer::Json,
        handler: || post(feedback::add),
    },
    Route {
        method: "get",
        path: "/threads/{id}/feedback",
        group: |on| on.runs,
        about: "What was said about a thread",
        answer: Answer::Json,
        handler: || get(feedback::list),
    },
    Route {
        method: "get",
        path: "/capabilities",
        group: |_| true,
        about: "What the agent can do (AG-UI)",
        answer: Answer::Json,
        handler: || get(ops::capabilities),
    },
];

/// The paths at which a route stands below `base`; the base itself is the same with and without its slash.
fn paths(base: &str, route: &Route, main: &str) -> Vec<String> {
    let path = if route.path == MAIN { main } else { route.path };
    match (base, path.trim_end_matches('/')) {
        ("", "") => vec!["/".into()],
        (base, "") => vec![base.into(), format!("{base}/")],
        (base, path) => vec![format!("{base}{path}")],
    }
}

impl Route {
    /// The part to which it belongs: the one without whose group it would not be there.
    fn part(&self) -> Part {
        let without = |change: fn(&mut Routes)| {
            let mut routes = Routes::default();
            change(&mut routes);
            !(self.group)(&routes)
        };
        if without(|routes| routes.history = false) {
            Part::History
        } else if without(|routes| routes.state = false) {
            Part::State
        } else {
            Part::Main
        }
    }
}

pub(super) fn of_agent(base: &str, mount: &Mount, part: Part) -> Router {
    let settings = &mount.agent.settings;
    let mut router = Router::new();
    for route in ROUTES.iter().filter(|route| route.part() == part && (route.group)(&settings.routes)) {
        for path in paths(base, route, &settings.path) {
            router = router.route(&path, (route.handler)());
        }
    }
    router.with_state(mount.clone())
}

/// The OpenAPI document of everything that is mounted.
pub(super) fn openapi(gateway: &Gateway) -> Value {
    let mut table = Map::new();
    let server = [
        ("/livez", "Whether the process is alive"),
        ("/readyz", "Whether new runs are taken"),
        ("/metrics", "Figures in the OpenMetrics format"),
        ("/openapi.json", "This document"),
        ("/agents", "Which agents there are"),
    ];
    for (path, about) in server {
        table.insert(path.into(), json!({"get": {"summary": about, "tags": ["server"], "responses": {"200": {"description": "ok"}}}}));
    }
    let registry = gateway.registry();
    for agent in registry.agents.values() {
        let is_default = registry.default.as_deref() == Some(&*agent.name);
        let named = format!("/agents/{}", agent.name);
        for base in [Some(named.as_str()), is_default.then_some("")].into_iter().flatten() {
            for route in ROUTES.iter().filter(|route| (route.group)(&agent.settings.routes)) {
                // OpenAPI has no word for the rest of a path.
                let path = paths(base, route, &agent.settings.path).swap_remove(0).replace("{*", "{");
                let entry = table.entry(path.clone()).or_insert_with(|| json!({}));
                entry[route.method] = operation(route, &path, &agent.name);
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
                    "code": {"type": "string", "enum": codes::ALL.iter().map(|(name, ..)| *name).collect::<Vec<_>>()},
                    "message": {"type": "string"},
                    "hint": {"type": "string"},
                },
            }},
        }}},
    })
}

fn operation(route: &Route, path: &str, agent: &str) -> Value {
    let names = path.split(['{', '}']).skip(1).step_by(2);
    let parameters: Vec<_> = names
        .map(|name| json!({"name": name, "in": "path", "required": true, "schema": {"type": "string"}}))
        .collect();
    let content = match route.answer {
        Answer::Stream => json!({"text/event-stream": {}}),
        Answer::Json => json!({"application/json": {}}),
        Answer::Bytes => json!({"*/*": {}}),
    };
    let error = json!({"description": "refused", "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}});
    let mut operation = json!({
        "summary": route.about,
        "tags": [agent],
        "parameters": parameters,
        "responses": {"200": {"description": "ok", "content": content}, "default": error},
    });
    let has_body = route.answer == Answer::Stream || route.path == "/feedback";
    if (route.method == "post" && has_body) || route.method == "patch" {
        operation["requestBody"] = json!({"required": true, "content": {"application/json": {}}});
    }
    operation
}
