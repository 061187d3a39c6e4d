//! Keys of an agent.

use agentwire_core::format::Format;
use agentwire_gateway::settings::{
    AgentSettings, ApprovalRule, Approver, Busy, History, OnDisconnect, Settings, Snapshots,
};
use serde_json::json;
use std::time::Duration;
use toml::de::DeValue;

use super::{
    AgentConfig, hooks, server,
    table::{Shape, Table, Value, ValueType, Variant, type_of},
    types::{
        Bool, Choice, Count, DURATION, DURATION_OR_ZERO, FormatOptions, JsonTable, List, NAME, OrNever,
        ROUTE, Size, TOOL_PATTERN, URL, did_you_mean,
    },
    upstream::{Tenancy, UpstreamType},
};

/// Default retries and interval of the policy `wait`: five seconds in total, about as long as a person waits before
/// sending again.
const WAIT: (u32, Duration) = (10, Duration::from_millis(500));

/// Default queue length of the policy `enqueue`; more than a person types ahead.
const QUEUE: usize = 8;

/// Reads an agent; the second value is whether it is marked as the default.
pub(super) fn read(table: &mut Table<'_>, name: &str, server: &Settings) -> Option<(AgentConfig, bool)> {
    let mut settings = AgentSettings::default();
    let mut default = false;
    let upstream = table.required("upstream", &UpstreamType, "The upstream: the connection to the agent.");
    table.set(
        "default",
        &Bool,
        &mut default,
        "Whether its routes are also at `/`. A single agent is always the default.",
    );
    table.set(
        "path",
        &ROUTE,
        &mut settings.path,
        "The path of the AG-UI route below the agent's base. It may have parameters, as in `/users/{user}/chat`.",
    );
    settings.threads = table.optional(
        "threads",
        &NAME,
        "The group of agents that share their threads, or the agent whose threads this one shares; threads of its own if absent.",
    );
    let has_identity = table.has("identity");
    table.table(
        "identity",
        "Sources of tenant, user and thread of a request to this agent; absent keys are as for the whole server.",
        |table| {
            let identities = server::identities(table, server.identities());
            settings.identity = has_identity.then_some(identities);
        },
    );
    let mut busy = (settings.busy, settings.detached);
    table.set("busy", &BusyPolicy, &mut busy, "Policy for a new run while another one has the thread.");
    (settings.busy, settings.detached) = busy;
    settings.history = table.optional(
        "history",
        &Choice(&[("client", History::Client), ("server", History::Server), ("merge", History::Merge)]),
        "Source of the conversation: the messages that the client sends, the stored ones, or both, merged by message id. With `server`, a client can add and edit user messages and give results that the thread waits for, and nothing else. If absent: `server` with `auth.mode = \"required\"`, else `merge`.",
    );
    settings.snapshots = table.optional(
        "snapshots",
        &Choice(&[
            ("merge", Snapshots::Merge),
            ("replace", Snapshots::Replace),
            ("ignore", Snapshots::Ignore),
        ]),
        "Effect of a snapshot of the messages: it is merged into the conversation by message id, replaces it, or has none. If absent, snapshots that are derived from other data (the output of a LangGraph graph, corrections of ADK) are merged, and those that the agent itself sends replace the conversation.",
    );
    settings.state_key = table.optional(
        "state_key",
        &NAME,
        "The key of the state that holds the state sent by the client; the whole state if absent.",
    );
    table.set(
        "on_disconnect",
        &Choice(&[("detach", OnDisconnect::Detach), ("cancel", OnDisconnect::Cancel)]),
        &mut settings.on_disconnect,
        "Whether a run continues or is cancelled when its last reader disconnects.",
    );
    table.table("timeouts", "Timeouts for the agent.", |table| {
        let timeouts = &mut settings.timeouts;
        let kind = &OrNever(DURATION);
        table.set("connect", kind, &mut timeouts.connect, "To establish the connection.");
        table.set(
            "first_byte",
            kind,
            &mut timeouts.first_byte,
            "From the request to the first byte of the response.",
        );
        table.set("idle", kind, &mut timeouts.idle, "From one byte to the next.");
        table.set("total", kind, &mut timeouts.total, "For the whole run.");
    });
    table.table("limits", "Limits of a run, which ends with `LIMIT_EXCEEDED` above them.", |table| {
        let limits = &mut settings.limits;
        table.set("max_events", &Count(1), &mut limits.max_events, "Maximum number of events.");
        table.set(
            "max_frame",
            &Size,
            &mut limits.max_frame,
            "Maximum size of a frame of the agent's stream.",
        );
        table.set("max_bytes", &Size, &mut limits.max_bytes, "Maximum size of the log.");
    });
    settings.sse = table.optional(
        "sse",
        &server::SSE,
        "Fields of SSE frames, as `sse` of the server; as there if absent.",
    );
    table.table(
        "breaker",
        "The circuit breaker: if the agent cannot be reached several times in a row, new runs get `UPSTREAM_UNAVAILABLE` for a while; then one run tries again.",
        |table| {
            let breaker = &mut settings.breaker;
            table.set(
                "failures",
                &OrNever(Count(1)),
                &mut breaker.failures,
                "Failures in a row that open it: no connection, no response before `timeouts.first_byte`, or status 502, 503 or 504.",
            );
            table.set("open", &DURATION, &mut breaker.open, "The time without calls.");
        },
    );
    table.table("ag_ui", "The AG-UI route.", |table| {
        table.set(
            "profile",
            &FormatProfile(Format::find("ag-ui"), &["auto"]),
            &mut settings.ag_ui_profile,
            "The profile of AG-UI for clients that ask for none by `?profile=`; `auto`: by the protocol version in the request, `1` for clients from 1.0 on, `0.0.5x` for those that declare none.",
        );
    });
    table.table("ai_sdk", "The AI SDK routes.", |table| {
        output_format(table, "ai-sdk", &mut settings.ai_sdk_profile, &mut settings.ai_sdk_options);
    });
    table.table("hai", "The HAI routes.", |table| {
        table.set(
            "paths",
            &List(ROUTE, "a list of paths"),
            &mut settings.hai_paths,
            "The paths of the HAI route.",
        );
        output_format(table, "hai", &mut settings.hai_profile, &mut settings.hai_options);
        table.set(
            "close_delay",
            &DURATION_OR_ZERO,
            &mut settings.hai_close_delay,
            "Delay between the last event and the end of the stream.",
        );
    });
    table.table("routes", "Enabled groups of routes.", |table| {
        let routes = &mut settings.routes;
        table.set("ag_ui", &Bool, &mut routes.ag_ui, "`POST /` (or `path`).");
        table.set("hai", &Bool, &mut routes.hai, "`POST /awp`, `POST /chat` (or `hai.paths`).");
        table.set("ai_sdk", &Bool, &mut routes.ai_sdk, "`/api/chat`, its stream and its stop.");
        table.set(
            "history",
            &Bool,
            &mut routes.history,
            "`/thread/list`, `/thread/{id}`, `/message_snapshot/{id}`.",
        );
        table.set("state", &Bool, &mut routes.state, "`/state_snapshot/{id}`, `/state/{id}`.");
        table.set("runs", &Bool, &mut routes.runs, "`/runs/…`, `/threads/{id}/stream`.");
    });
    table.set(
        "show_errors",
        &Bool,
        &mut settings.show_errors,
        "Whether clients receive the agent's error details (an error body, the end of stderr), which are otherwise only logged. For development.",
    );
    table.set(
        "approve",
        &List(ApprovalRules, "a list of names of tools, or of tables such as `{ tool = \"pay_*\", approvers = [\"role:finance\"] }`"),
        &mut settings.approve,
        "Front-end tools and long-running tools whose calls need approval by a person; `*` matches any text. Tools that the agent runs itself cannot be gated.",
    );
    let hooks = hooks::read(table);
    settings.feedback_url = table.optional(
        "feedback_url",
        &URL,
        "URL that receives feedback as JSON by POST; feedback is only stored if absent.",
    );
    let mut capabilities = serde_json::Map::new();
    table.set(
        "capabilities",
        &JsonTable,
        &mut capabilities,
        "Name and capabilities of the agent, in AG-UI's form.",
    );
    settings.capabilities = capabilities.into_iter().collect();
    check_path(table, &settings);
    let upstream = upstream?;
    settings.forward_headers = upstream.http().map_or_else(Vec::new, |http| http.forward_headers.clone());
    if let Some(Tenancy { thread_ids, identity }) = upstream.tenancy().cloned() {
        (settings.thread_ids, settings.upstream_identity) = (thread_ids, identity);
    }
    let agent = AgentConfig { name: name.to_owned(), settings, upstream, hooks };
    Some((agent, default))
}

/// Reads the profile and the options of an output format.
fn output_format(
    table: &mut Table<'_>,
    format: &'static str,
    profile: &mut String,
    options: &mut Vec<String>,
) {
    let format = Format::find(format);
    table.set("profile", &FormatProfile(format, &[]), profile, "The profile of the output format.");
    table.set(
        "options",
        &FormatOptions(format),
        options,
        "Options of the writer, as `agentwire formats` lists them.",
    );
}

/// Rejects a path that another route uses.
fn check_path(table: &Table<'_>, settings: &AgentSettings) {
    let path = settings.path.trim_end_matches('/');
    let routes = &settings.routes;
    let hai_paths: Vec<&str> = settings.hai_paths.iter().map(|path| path.trim_end_matches('/')).collect();
    let other_routes: &[(bool, &str, &[&str])] = &[
        (routes.hai, "hai", &hai_paths),
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
    let is_below = |path: &str, prefix: &&str| {
        path.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    let found = other_routes.iter().find(|(on, group, prefixes)| {
        // Each path of HAI is one route; the others have routes below theirs.
        let clash = |prefix: &&str| if *group == "hai" { path == *prefix } else { is_below(path, prefix) };
        *on && routes.ag_ui && prefixes.iter().any(clash)
    });
    if let Some((_, group, _)) = found {
        let hint = match *group {
            "" => "choose another path".to_owned(),
            group => {
                format!("choose another path, or switch the other off: `routes = {{ {group} = false }}`")
            }
        };
        table.reject(
            "path",
            format!("`{}.path` cannot be `{path}`: another route is there", table.path()),
            hint,
        );
    }
    for (at, hai) in hai_paths.iter().enumerate().filter(|_| routes.hai) {
        let others = other_routes.iter().filter(|(on, group, _)| *on && *group != "hai");
        let is_taken = others.flat_map(|(_, _, prefixes)| *prefixes).any(|prefix| is_below(hai, prefix));
        let problem = if hai.contains('{') {
            "it has no parameters"
        } else if is_taken || hai_paths[..at].contains(hai) {
            "another route is there"
        } else {
            continue;
        };
        let message = format!("`{}.hai.paths` cannot contain `{hai}`: {problem}", table.path());
        table.reject_at(table.span_at(&["hai", "paths"]), message, None);
    }
}

/// A profile of a format, or another word.
struct FormatProfile(Option<&'static Format>, &'static [&'static str]);

impl FormatProfile {
    fn names(&self) -> Vec<&'static str> {
        let profiles = self.0.map_or(&[][..], |format| format.profiles);
        self.1.iter().copied().chain(profiles.iter().map(|profile| profile.name)).collect()
    }
}

impl ValueType<String> for FormatProfile {
    fn read(&self, value: &Value<'_>) -> Option<String> {
        let names = self.names();
        // The profiles of the AI SDK are numbers, so they may be written without quotes.
        let text = match value.inner.get_ref() {
            DeValue::Integer(number) => number.to_string(),
            _ => value.text("the name of a profile")?.to_owned(),
        };
        if names.contains(&text.as_str()) {
            return Some(text);
        }
        let message = format!("`{}` cannot be `{text}`", value.path);
        value.reject(message, Some(did_you_mean(&text, &names, "profiles")));
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

/// A rule of the approval gate: the name of a tool, or a table.
struct ApprovalRules;

/// Somebody who may decide.
struct ApproverType;

impl ValueType<Approver> for ApproverType {
    fn read(&self, value: &Value<'_>) -> Option<Approver> {
        let text = value.text("`\"role:NAME\"` or `\"user:NAME\"`")?;
        match text.parse() {
            Ok(approver) => Some(approver),
            Err(problem) => {
                value.reject(format!("`{}`: {problem}", value.path), Some("as in `\"role:finance\"`".into()));
                None
            }
        }
    }

    fn shape(&self) -> Shape {
        let schema = json!({ "type": "string", "pattern": "^(role|user):.+" });
        Shape::Value("`\"role:NAME\"` or `\"user:NAME\"`".into(), schema)
    }

    fn show(&self, value: &Approver) -> Option<String> {
        Some(format!("{:?}", value.to_string()))
    }
}

fn approval_rule(table: &mut Table<'_>) -> Option<ApprovalRule> {
    let tool = table.required("tool", &TOOL_PATTERN, "The name of a tool; `*` matches any text.");
    let mut rule = ApprovalRule::from(tool.as_deref().unwrap_or_default());
    table.set(
        "approvers",
        &List(ApproverType, "a list such as `[\"role:finance\"]`"),
        &mut rule.approvers,
        "Who may decide, at `/approvals`; the requester if empty.",
    );
    table.set(
        "four_eyes",
        &Bool,
        &mut rule.four_eyes,
        "Whether somebody else than the requester must decide.",
    );
    table.set("votes", &Count(1), &mut rule.votes, "Number of people who must say yes.");
    rule.expires = table.optional("expires", &DURATION, "Time for the decision; unlimited if absent.");
    tool.is_some().then_some(rule)
}

impl ValueType<ApprovalRule> for ApprovalRules {
    fn read(&self, value: &Value<'_>) -> Option<ApprovalRule> {
        match value.inner.get_ref() {
            DeValue::Table(_) => value.table("a table", approval_rule)?.0,
            _ => TOOL_PATTERN.read(value).map(|tool| ApprovalRule::from(tool.as_str())),
        }
    }

    fn shape(&self) -> Shape {
        Shape::Either(vec![TOOL_PATTERN.shape(), Shape::Table(Table::describe(approval_rule))])
    }

    fn show(&self, value: &ApprovalRule) -> Option<String> {
        Some(format!("{:?}", value.tool))
    }
}

/// The policy for busy threads: a word, or a table with options.
struct BusyPolicy;

/// Name, description and table reader of a policy.
type PolicySpec = (&'static str, &'static str, fn(&mut Table<'_>) -> Busy);

const POLICIES: &[PolicySpec] = &[
    ("reject", "The run is rejected with `THREAD_IS_LOCKED`.", |_| Busy::Reject),
    ("wait", "The start is retried before the run is rejected.", |table| {
        let (mut retries, mut interval) = WAIT;
        table.set("retries", &Count(0), &mut retries, "Number of retries.");
        table.set("interval", &DURATION, &mut interval, "Delay before each retry.");
        Busy::Wait { retries, interval }
    }),
    ("enqueue", "The run waits in a queue.", |table| {
        let mut limit = QUEUE;
        table.set("limit", &Count(1), &mut limit, "Maximum queue length per thread; `QUEUE_FULL` above it.");
        Busy::Enqueue { limit }
    }),
    ("interrupt", "The other run is cancelled.", |_| Busy::Interrupt),
];

fn policies() -> Vec<&'static str> {
    POLICIES.iter().map(|(name, ..)| *name).collect()
}

/// Reads `detached` of a table of options.
fn read_detached(table: &mut Table<'_>) -> Busy {
    let mut detached = AgentSettings::default().detached;
    let about = "Policy instead if no client reads the other run any more.";
    table.set("detached", &BusyWord, &mut detached, about);
    detached
}

/// A policy with its default options.
fn policy(read: fn(&mut Table<'_>) -> Busy) -> Busy {
    let mut busy = Busy::default();
    Table::describe(|table| busy = read(table));
    busy
}

/// The name of a policy.
fn name_of(busy: Busy) -> &'static str {
    match busy {
        Busy::Reject => "reject",
        Busy::Wait { .. } => "wait",
        Busy::Enqueue { .. } => "enqueue",
        Busy::Interrupt => "interrupt",
    }
}

/// A policy as a word.
struct BusyWord;

impl ValueType<Busy> for BusyWord {
    fn read(&self, value: &Value<'_>) -> Option<Busy> {
        let DeValue::String(text) = value.inner.get_ref() else {
            value.wrong_type("a policy such as `\"interrupt\"`", None);
            return None;
        };
        let found = POLICIES.iter().find(|(policy, ..)| *policy == &**text);
        if found.is_none() {
            let hint = did_you_mean(text, &policies(), "allowed");
            value.reject(format!("`{}` cannot be `{text}`", value.path), Some(hint));
        }
        found.map(|(_, _, read)| policy(*read))
    }

    fn shape(&self) -> Shape {
        let quoted: Vec<_> = policies().iter().map(|name| format!("`\"{name}\"`")).collect();
        Shape::Value(quoted.join(", "), json!({ "enum": policies() }))
    }

    fn show(&self, value: &Busy) -> Option<String> {
        Some(format!("{:?}", name_of(*value)))
    }
}

/// The policy while a client reads the other run, and if none does.
impl ValueType<(Busy, Busy)> for BusyPolicy {
    fn read(&self, value: &Value<'_>) -> Option<(Busy, Busy)> {
        let names = policies();
        let find = |name: &str| POLICIES.iter().find(|(policy, ..)| *policy == name);
        let hint = |name: &str| Some(did_you_mean(name, &names, "allowed"));
        match value.inner.get_ref() {
            DeValue::String(_) => BusyWord.read(value).map(|busy| (busy, AgentSettings::default().detached)),
            DeValue::Table(entries) => {
                let Some(policy) = entries.get("policy") else {
                    if entries.contains_key("detached") {
                        let read = |table: &mut Table<'_>| (Busy::default(), read_detached(table));
                        return value.table("a table", read).map(|(busy, _)| busy);
                    }
                    let message = format!("`{}` lacks the key `policy`", value.path);
                    value.reject(message, Some(format!("allowed: {}", names.join(", "))));
                    return None;
                };
                let name = policy.get_ref().as_str().unwrap_or_default();
                let Some((_, about, read)) = find(name) else {
                    let message = match policy.get_ref() {
                        DeValue::String(name) => format!("`{}.policy` cannot be `{name}`", value.path),
                        other => format!("`{}.policy` must be text, not {}", value.path, type_of(other)),
                    };
                    value.reject_at(policy.span(), message, hint(name));
                    return None;
                };
                let read = |table: &mut Table<'_>| {
                    table.record(
                        "policy",
                        about,
                        true,
                        None,
                        Shape::Value(String::new(), json!({ "const": name })),
                    );
                    (read(table), read_detached(table))
                };
                value.table("a table", read).map(|(busy, _)| busy)
            }
            _ => {
                let expected = "a policy such as `\"enqueue\"`, or a table such as `{ policy = \"enqueue\", limit = 8 }`";
                value.wrong_type(expected, None);
                None
            }
        }
    }

    fn shape(&self) -> Shape {
        let quoted: Vec<_> = policies().iter().map(|name| format!("`\"{name}\"`")).collect();
        let word = Shape::Value(quoted.join(", "), json!({ "enum": policies() }));
        let variants = POLICIES
            .iter()
            .map(|(name, about, read)| Variant {
                name,
                about,
                fields: Table::describe(|table| {
                    read(table);
                    read_detached(table);
                }),
            })
            .collect();
        Shape::Either(vec![word, Shape::Tagged("policy", variants)])
    }

    fn show(&self, (busy, detached): &(Busy, Busy)) -> Option<String> {
        let has_no_options = matches!(busy, Busy::Reject | Busy::Interrupt);
        let is_word = has_no_options && *detached == AgentSettings::default().detached;
        is_word.then(|| format!("{:?}", name_of(*busy)))
    }
}
