//! The keys of one agent.

use agentwire_core::format::Format;
use agentwire_gateway::settings::{AgentSettings, Busy, History, OnDisconnect};
use serde_json::json;
use std::time::Duration;
use toml::de::DeValue;

use super::{
    AgentConfig, hooks,
    kind::{
        Count, DURATION, DURATION_OR_ZERO, Flag, JsonTable, List, NAME, OptionsOf, OrNever, ROUTE, Size,
        TOOL_NAMES, URL, Word, did_you_mean,
    },
    table::{Kind, Shape, Table, Value, Variant, type_of},
    upstream::UpstreamKind,
};

/// How often and how long a run waits for its thread unless told otherwise: five seconds in all, about as long as a person
/// waits before sending again.
const WAIT: (u32, Duration) = (10, Duration::from_millis(500));

/// How many runs wait for a thread unless told otherwise; a person who types ahead further has lost track.
const QUEUE: usize = 8;

/// Reads an agent, and whether it is marked as the default one.
pub(super) fn read(table: &mut Table<'_>, name: &str) -> Option<(AgentConfig, bool)> {
    let mut settings = AgentSettings::default();
    let mut default = false;
    let upstream = table.need("upstream", &UpstreamKind, "How the agent is reached.");
    table.set(
        "default",
        &Flag,
        &mut default,
        "Whether its routes are at `/` too. A single agent is the default one.",
    );
    table.set(
        "path",
        &ROUTE,
        &mut settings.path,
        "The path of the AG-UI route below the agent's base. It may have parameters, as in `/users/{user}/chat`.",
    );
    table.set(
        "busy",
        &BusyKind,
        &mut settings.busy,
        "What happens to a run when another one has the thread.",
    );
    table.set(
        "history",
        &Word(&[("client", History::Client), ("server", History::Server), ("merge", History::Merge)]),
        &mut settings.history,
        "Where the conversation comes from: what the client sends, what is stored, or both by message id.",
    );
    settings.state_key = table.maybe(
        "state_key",
        &NAME,
        "The key of the state under which what the client sends is put; the state itself if absent.",
    );
    table.set(
        "on_disconnect",
        &Word(&[("detach", OnDisconnect::Detach), ("cancel", OnDisconnect::Cancel)]),
        &mut settings.on_disconnect,
        "What becomes of a run whose last reader is gone: it goes on, or is stopped.",
    );
    table.table("timeouts", "How long to wait for the agent.", |table| {
        let timeouts = &mut settings.timeouts;
        let kind = &OrNever(DURATION);
        table.set("connect", kind, &mut timeouts.connect, "For the connection.");
        table.set(
            "first_byte",
            kind,
            &mut timeouts.first_byte,
            "From the request to the first byte of the answer.",
        );
        table.set("idle", kind, &mut timeouts.idle, "From one byte to the next.");
        table.set("total", kind, &mut timeouts.total, "For the whole run.");
    });
    table.table(
        "limits",
        "Bounds on a run; one that goes beyond them ends with `LIMIT_EXCEEDED`.",
        |table| {
            let limits = &mut settings.limits;
            table.set("max_events", &Count(1), &mut limits.max_events, "The most events.");
            table.set("max_frame", &Size, &mut limits.max_frame, "The largest frame of the agent's stream.");
            table.set("max_bytes", &Size, &mut limits.max_bytes, "The most bytes of the log.");
        },
    );
    table.table("ai_sdk", "The AI SDK routes.", |table| {
        face(table, "ai-sdk", &mut settings.ai_sdk_profile, &mut settings.ai_sdk_options);
    });
    table.table("hai", "The HAI routes.", |table| {
        face(table, "hai", &mut settings.hai_profile, &mut settings.hai_options);
        table.set(
            "close_delay",
            &DURATION_OR_ZERO,
            &mut settings.hai_close_delay,
            "How long a stream stays open after its last event.",
        );
    });
    table.table("routes", "Which groups of routes there are.", |table| {
        let routes = &mut settings.routes;
        table.set("ag_ui", &Flag, &mut routes.ag_ui, "`POST /` (or `path`).");
        table.set("hai", &Flag, &mut routes.hai, "`POST /awp`, `POST /chat`.");
        table.set("ai_sdk", &Flag, &mut routes.ai_sdk, "`/api/chat`, its stream and its stop.");
        table.set(
            "history",
            &Flag,
            &mut routes.history,
            "`/thread/list`, `/thread/{id}`, `/message_snapshot/{id}`.",
        );
        table.set("state", &Flag, &mut routes.state, "`/state_snapshot/{id}`, `/state/{id}`.");
        table.set("runs", &Flag, &mut routes.runs, "`/runs/…`, `/threads/{id}/stream`.");
    });
    table.set(
        "show_errors",
        &Flag,
        &mut settings.show_errors,
        "Whether clients get to read what the agent's side says about a failure (an error body, the end of stderr), which otherwise only the log has. For development.",
    );
    table.set(
        "approve",
        &List(TOOL_NAMES, "a list of names of tools"),
        &mut settings.approve,
        "Tools of the front end, and long-running tools, whose calls a person must allow first; `*` stands for anything. Tools that the agent runs itself cannot be held.",
    );
    let hooks = hooks::read(table);
    settings.feedback_url = table.maybe(
        "feedback_url",
        &URL,
        "Where feedback is sent on to, as JSON by POST; nowhere if absent.",
    );
    let mut capabilities = serde_json::Map::new();
    table.set(
        "capabilities",
        &JsonTable,
        &mut capabilities,
        "What the agent is called and can do, as AG-UI's capabilities.",
    );
    settings.capabilities = capabilities.into_iter().collect();
    check_path(table, &settings);
    let upstream = upstream?;
    settings.forward_headers = upstream.http().map_or_else(Vec::new, |http| http.forward_headers.clone());
    let agent = AgentConfig { name: name.to_owned(), settings, upstream, hooks };
    Some((agent, default))
}

/// The profile and the options of a format that is written.
fn face(table: &mut Table<'_>, format: &'static str, profile: &mut String, options: &mut Vec<String>) {
    let format = Format::find(format);
    table.set("profile", &ProfileOf(format), profile, "The profile that is written.");
    table.set(
        "options",
        &OptionsOf(format),
        options,
        "Options of the writer, as `agentwire formats` lists them.",
    );
}

/// Two routes at one path would be one too many.
fn check_path(table: &Table<'_>, settings: &AgentSettings) {
    let path = settings.path.trim_end_matches('/');
    let routes = &settings.routes;
    let taken: &[(bool, &str, &[&str])] = &[
        (routes.hai, "hai", &["/awp", "/chat"]),
        (routes.ai_sdk, "ai_sdk", &["/api/chat"]),
        (routes.history, "history", &["/thread", "/threads", "/message_snapshot"]),
        (routes.state, "state", &["/state", "/state_snapshot"]),
        (routes.runs, "runs", &["/runs", "/threads"]),
        (
            true,
            "",
            &[
                "/agents",
                "/capabilities",
                "/feedback",
                "/inspector",
                "/openapi.json",
                "/metrics",
                "/livez",
                "/readyz",
            ],
        ),
    ];
    let clash = |prefix: &&str| {
        path.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    let found = taken.iter().find(|(on, _, prefixes)| *on && routes.ag_ui && prefixes.iter().any(&clash));
    if let Some((_, group, _)) = found {
        let hint = match *group {
            "" => "choose another path".to_owned(),
            group => {
                format!("choose another path, or switch the other off: `routes = {{ {group} = false }}`")
            }
        };
        table.refuse(
            "path",
            format!("`{}.path` cannot be `{path}`: another route is there", table.path()),
            hint,
        );
    }
}

/// One of a format's profiles.
struct ProfileOf(Option<&'static Format>);

impl ProfileOf {
    fn names(&self) -> Vec<&'static str> {
        self.0.map_or(&[][..], |format| format.profiles).iter().map(|profile| profile.name).collect()
    }
}

impl Kind<String> for ProfileOf {
    fn read(&self, value: &Value<'_>) -> Option<String> {
        let names = self.names();
        // The profiles of the AI SDK are numbers, and a number without quotes is a fair way to write one.
        let text = match value.inner.get_ref() {
            DeValue::Integer(number) => number.to_string(),
            _ => value.text("the name of a profile")?.to_owned(),
        };
        if names.contains(&text.as_str()) {
            return Some(text);
        }
        let message = format!("`{}` cannot be `{text}`", value.path);
        value.refuse(message, Some(did_you_mean(&text, &names, "profiles")));
        None
    }

    fn shape(&self) -> Shape {
        let names = self.names();
        let mut values: Vec<_> = names.iter().map(|name| json!(name)).collect();
        values.extend(names.iter().filter_map(|name| name.parse::<u64>().ok()).map(|number| json!(number)));
        let quoted: Vec<_> = names.iter().map(|name| format!("`\"{name}\"`")).collect();
        Shape::Value(quoted.join(", "), json!({ "enum": values }))
    }

    fn show(&self, value: &String) -> Option<String> {
        Some(format!("{value:?}"))
    }
}

/// A word, or a table with more to say.
struct BusyKind;

/// What a policy is called, what it does, and how its table is read.
type Policy = (&'static str, &'static str, fn(&mut Table<'_>) -> Busy);

/// The policies: a word, what it means, and the keys of its long form.
const POLICIES: &[Policy] = &[
    ("reject", "It is refused with `THREAD_IS_LOCKED`.", |_| Busy::Reject),
    ("wait", "It is tried again so many times before it is refused.", |table| {
        let (mut retries, mut interval) = WAIT;
        table.set("retries", &Count(0), &mut retries, "How often it is tried again.");
        table.set("interval", &DURATION, &mut interval, "How long after the last try.");
        Busy::Wait { retries, interval }
    }),
    ("enqueue", "It waits for its turn.", |table| {
        let mut limit = QUEUE;
        table.set("limit", &Count(1), &mut limit, "The longest queue of a thread; beyond it, `QUEUE_FULL`.");
        Busy::Enqueue { limit }
    }),
    ("interrupt", "The other one is stopped.", |_| Busy::Interrupt),
];

fn policies() -> Vec<&'static str> {
    POLICIES.iter().map(|(name, ..)| *name).collect()
}

impl Kind<Busy> for BusyKind {
    fn read(&self, value: &Value<'_>) -> Option<Busy> {
        let names = policies();
        let find = |name: &str| POLICIES.iter().find(|(known, ..)| *known == name);
        let hint = |name: &str| Some(did_you_mean(name, &names, "allowed"));
        match value.inner.get_ref() {
            DeValue::String(text) => {
                let found = find(text);
                if found.is_none() {
                    value.refuse(format!("`{}` cannot be `{text}`", value.path), hint(text));
                }
                found.map(|(_, _, read)| {
                    let mut busy = Busy::default();
                    Table::describe(|table| busy = read(table));
                    busy
                })
            }
            DeValue::Table(entries) => {
                let Some(policy) = entries.get("policy") else {
                    let message = format!("`{}` lacks the key `policy`", value.path);
                    value.refuse(message, Some(format!("allowed: {}", names.join(", "))));
                    return None;
                };
                let name = policy.get_ref().as_str().unwrap_or_default();
                let Some((_, about, read)) = find(name) else {
                    let message = match policy.get_ref() {
                        DeValue::String(name) => format!("`{}.policy` cannot be `{name}`", value.path),
                        other => format!("`{}.policy` must be text, not {}", value.path, type_of(other)),
                    };
                    value.refuse_at(policy.span(), message, hint(name));
                    return None;
                };
                let read = |table: &mut Table<'_>| {
                    table.note(
                        "policy",
                        about,
                        true,
                        None,
                        Shape::Value(String::new(), json!({ "const": name })),
                    );
                    read(table)
                };
                value.table("a table", read).map(|(busy, _)| busy)
            }
            _ => {
                let wanted = "a policy such as `\"enqueue\"`, or a table such as `{ policy = \"enqueue\", limit = 8 }`";
                value.wrong_type(wanted, None);
                None
            }
        }
    }

    fn shape(&self) -> Shape {
        let quoted: Vec<_> = policies().iter().map(|name| format!("`\"{name}\"`")).collect();
        let word = Shape::Value(quoted.join(", "), json!({ "enum": policies() }));
        let variants = POLICIES
            .iter()
            .map(|(name, about, read)| Variant { name, about, fields: Table::describe(read) })
            .collect();
        Shape::Either(vec![word, Shape::Tagged("policy", variants)])
    }

    fn show(&self, value: &Busy) -> Option<String> {
        match value {
            Busy::Reject => Some("\"reject\"".into()),
            Busy::Interrupt => Some("\"interrupt\"".into()),
            Busy::Wait { .. } | Busy::Enqueue { .. } => None,
        }
    }
}
