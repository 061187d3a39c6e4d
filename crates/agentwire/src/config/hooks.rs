//! Keys of the rules and hooks of an agent.

use std::time::Duration;

use agentwire_gateway::hooks::{Action, EVENTS, OnFailure, Place, RuleOptions};
use serde_json::json;
use toml::de::DeValue;

use super::{
    table::{Shape, Table, Value, ValueType, Variant, type_of},
    types::{ANY_TEXT, Choice, DURATION, NAME, POINTER, URL, did_you_mean},
    upstream::{Headers, Secret, SecretText},
};

/// Default timeout of a hook request. Short, because users wait for it.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Default replacement of a redacted value.
const REDACTED: &str = "***";

/// Default timeout of the next native event before its fallback.
const FALLBACK_AFTER: Duration = Duration::from_secs(60);

/// The rules and hook servers of an agent.
#[derive(Clone, Debug, Default)]
pub(crate) struct Hooks {
    pub(crate) rules: Vec<RuleOptions>,
    /// In the order in which they are called.
    servers: Vec<(&'static str, Hook)>,
}

/// A hook server.
#[derive(Clone, Debug)]
pub(crate) struct Hook {
    pub(crate) url: String,
    pub(crate) headers: Vec<(String, Secret)>,
    pub(crate) secret: Option<Secret>,
    pub(crate) timeout: Duration,
    pub(crate) on_failure: OnFailure,
    /// The time before a fallback.
    pub(crate) after: Duration,
}

/// Name, description and default of `on_failure` of the hooks that a server can take, in the order of their calls.
const SERVERS: &[(&str, &str, OnFailure)] = &[
    ("lock", "Called for the session lock of every run, and at its end to release it.", OnFailure::Closed),
    ("input_record", "Called with every input, to record it.", OnFailure::Open),
    ("input", "Called with every input, which it may change or reject.", OnFailure::Closed),
    (
        "native",
        "Called with the agent's own events, which it may change, drop and multiply.",
        OnFailure::Closed,
    ),
    (
        "native_fallback",
        "Called when the agent's next event is late, for events in the place of the rest.",
        OnFailure::Closed,
    ),
    ("translate", "Called with the agent's own events, to decide on their decoding.", OnFailure::Closed),
    ("event", "Called with the decoded events, which it may change, drop and multiply.", OnFailure::Closed),
    ("state", "Called with the state at the end of a run, which it may change.", OnFailure::Closed),
    ("output_record", "Called with every event of the log beside the run, to record it.", OnFailure::Open),
    ("output", "Called with every event before it is logged, which it may change.", OnFailure::Closed),
];

impl Hooks {
    pub(crate) fn is_empty(&self) -> bool {
        self.rules.is_empty() && self.servers.is_empty()
    }

    /// The hook servers with the names of their hooks.
    pub(crate) fn servers(&self) -> impl Iterator<Item = (&'static str, &Hook)> {
        self.servers.iter().map(|(name, hook)| (*name, hook))
    }

    /// The server of a hook.
    pub(crate) fn server(&self, name: &str) -> Option<&Hook> {
        self.servers().find(|(candidate, _)| *candidate == name).map(|(_, hook)| hook)
    }

    /// The secrets of the hook servers.
    pub(crate) fn secrets(&self) -> impl Iterator<Item = &Secret> {
        self.servers().flat_map(|(_, hook)| hook.headers.iter().map(|(_, secret)| secret).chain(&hook.secret))
    }
}

/// Reads the rules and hooks of an agent.
pub(super) fn read(table: &mut Table<'_>) -> Hooks {
    let mut hooks = Hooks::default();
    table.set(
        "rules",
        &Rules,
        &mut hooks.rules,
        "Rules that drop, rename or redact the agent's events, applied in order; see [hooks.md](hooks.md).",
    );
    table.table("hooks", "Servers called during runs by POST of JSON; see [hooks.md](hooks.md).", |table| {
        for (name, about, on_failure) in SERVERS {
            table.table(name, about, |table| {
                hooks.servers.extend(hook(table, name, *on_failure).map(|hook| (*name, hook)));
            });
        }
    });
    hooks
}

fn hook(table: &mut Table<'_>, name: &str, mut on_failure: OnFailure) -> Option<Hook> {
    let url = table.required("url", &URL, "URL of the server.");
    let (mut headers, mut timeout, mut after) = (Vec::new(), TIMEOUT, FALLBACK_AFTER);
    if name == "native_fallback" {
        let about = "Time to the agent's next event, after which the server is called.";
        table.set("after", &DURATION, &mut after, about);
    }
    table.set("timeout", &DURATION, &mut timeout, "Timeout of one request.");
    table.set(
        "on_failure",
        &Choice(&[("open", OnFailure::Open), ("closed", OnFailure::Closed)]),
        &mut on_failure,
        "Whether the run continues without the hook or ends with `HOOK_FAILED` when the call fails.",
    );
    table.set(
        "headers",
        &Headers,
        &mut headers,
        "Headers of every request to it. A value may be `{ env = \"NAME\" }`, so that a secret stays out of the file.",
    );
    let secret = table.optional(
        "secret",
        &SecretText,
        "Key of the signature in the header `agentwire-signature` of every request; without it there is none.",
    );
    // An invalid secret is already reported; without it the requests would not be signed.
    let is_complete = table.has("secret") == secret.is_some();
    is_complete.then_some(Hook { url: url?, headers, secret, timeout, on_failure, after })
}

/// A list of rules.
struct Rules;

/// Name, description, example and table reader of a rule's action.
struct ActionSpec {
    name: &'static str,
    about: &'static str,
    example: &'static str,
    read: fn(&mut Table<'_>) -> Option<Action>,
}

const ACTIONS: &[ActionSpec] = &[
    ActionSpec {
        name: "drop",
        about: "Drops events, tool calls, or the value at a pointer.",
        example: r#"{ action = "drop", event = "RAW" }"#,
        read: |_| Some(Action::Drop),
    },
    ActionSpec {
        name: "rename",
        about: "Renames a tool, a custom event, a step, an activity or a member.",
        example: r#"{ action = "rename", tool = "lookup_v2", to = "lookup" }"#,
        read: |table| table.required("to", &NAME, "The new name.").map(|to| Action::Rename { to }),
    },
    ActionSpec {
        name: "redact",
        about: "Replaces the value at a pointer, or all arguments and results of a tool, by a text.",
        example: r#"{ action = "redact", tool = "pay", pointer = "/card" }"#,
        read: |table| {
            let mut with = REDACTED.to_owned();
            table.set("with", &ANY_TEXT, &mut with, "The replacement.");
            Some(Action::Redact { with })
        },
    },
];

fn rule(table: &mut Table<'_>, action: fn(&mut Table<'_>) -> Option<Action>) -> Option<RuleOptions> {
    const PLACES: Choice<Place> = Choice(&[
        ("event", Place::Event),
        ("arguments", Place::Arguments),
        ("result", Place::Result),
        ("state", Place::State),
    ]);
    let action = action(table);
    let event =
        table.optional("event", &EventType, "Event types that the rule applies to; `*` matches any text.");
    let tool = table.optional("tool", &NAME, "Tools whose calls the rule applies to; `*` matches any text.");
    let name = table.optional(
        "name",
        &NAME,
        "Names of the custom events, steps and activities that the rule applies to; `*` matches any text.",
    );
    let place = table.optional(
        "in",
        &PLACES,
        "The root of the pointer: arguments and result if a tool is named, otherwise the event.",
    );
    let pointer = table.optional(
        "pointer",
        &POINTER,
        "A JSON pointer to the value; `*` matches every member or element.",
    );
    let read = [
        ("event", event.is_some()),
        ("tool", tool.is_some()),
        ("name", name.is_some()),
        ("in", place.is_some()),
        ("pointer", pointer.is_some()),
    ];
    // Invalid keys are already reported; without them the rule would have another meaning.
    let is_complete = read.into_iter().all(|(key, is_read)| table.has(key) == is_read);
    is_complete.then_some(RuleOptions { action: action?, event, tool, name, place, pointer })
}

impl Rules {
    fn read_rule(value: &Value<'_>) -> Option<RuleOptions> {
        let names: Vec<_> = ACTIONS.iter().map(|action| action.name).collect();
        let expected = "a table such as `{ action = \"drop\", event = \"RAW\" }`";
        let DeValue::Table(entries) = value.inner.get_ref() else {
            value.wrong_type(expected, None);
            return None;
        };
        let Some(action) = entries.get("action") else {
            let message = format!("`{}` lacks the key `action`", value.path);
            value.reject(message, Some(format!("actions: {}", names.join(", "))));
            return None;
        };
        let word = action.get_ref().as_str().unwrap_or_default();
        let Some(kind) = ACTIONS.iter().find(|kind| kind.name == word) else {
            let message = match action.get_ref() {
                DeValue::String(word) => format!("`{}.action` cannot be `{word}`", value.path),
                other => format!("`{}.action` must be text, not {}", value.path, type_of(other)),
            };
            value.reject_at(action.span(), message, Some(did_you_mean(word, &names, "actions")));
            return None;
        };
        let read = |table: &mut Table<'_>| {
            let tag = Shape::Value(String::new(), json!({ "const": kind.name }));
            table.record("action", kind.about, true, None, tag);
            let rule = rule(table, kind.read)?;
            if let Err(problem) = rule.check() {
                let message = format!("`{}` can never do anything: {problem}", table.path());
                table.reject_at(
                    table.span_of(problem.key),
                    message,
                    Some(format!("as in `{}`", kind.example)),
                );
                return None;
            }
            Some(rule)
        };
        value.table(expected, read)?.0
    }
}

impl ValueType<Vec<RuleOptions>> for Rules {
    fn read(&self, value: &Value<'_>) -> Option<Vec<RuleOptions>> {
        let items = value.items("a list of tables such as `[{ action = \"drop\", event = \"RAW\" }]`")?;
        // All rules are read before the result is decided, so that every invalid one is reported.
        let read: Vec<_> = items.iter().map(Self::read_rule).collect();
        read.into_iter().collect()
    }

    fn shape(&self) -> Shape {
        let variant = |kind: &ActionSpec| Variant {
            name: kind.name,
            about: kind.about,
            fields: Table::describe(|table| rule(table, kind.read)),
        };
        let variants = ACTIONS.iter().map(variant).collect();
        Shape::List(Box::new(Shape::Tagged("action", variants)))
    }

    fn show(&self, value: &Vec<RuleOptions>) -> Option<String> {
        value.is_empty().then(|| "[]".to_owned())
    }
}

/// The type of an event, or a pattern of types.
struct EventType;

impl ValueType<String> for EventType {
    fn read(&self, value: &Value<'_>) -> Option<String> {
        let text = value.text("the type of an event, such as `\"RAW\"`")?;
        if !text.contains('*') && !EVENTS.contains(&text) {
            let hint = did_you_mean(text, EVENTS, "types");
            value.reject(format!("`{}` cannot be `{text}`: no event has that type", value.path), Some(hint));
            return None;
        }
        Some(text.to_owned())
    }

    fn shape(&self) -> Shape {
        let schema = json!({ "anyOf": [{ "enum": EVENTS }, { "type": "string", "pattern": "\\*" }] });
        Shape::Value("the type of an event, such as `\"RAW\"` or `\"REASONING_*\"`".into(), schema)
    }

    fn show(&self, value: &String) -> Option<String> {
        Some(format!("{value:?}"))
    }
}
