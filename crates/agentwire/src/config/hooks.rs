//! What takes part in an agent's runs: rules, and servers that are asked.

use std::time::Duration;

use agentwire_gateway::hooks::{Action, EVENTS, OnFailure, Place, RuleOptions};
use serde_json::json;
use toml::de::DeValue;

use super::{
    kind::{ANY_TEXT, DURATION, NAME, POINTER, URL, Word, did_you_mean},
    table::{Kind, Shape, Table, Value, Variant, type_of},
    upstream::{Headers, Secret},
};

/// How long a server of a hook may take unless told otherwise: people wait for it.
const TIMEOUT: Duration = Duration::from_secs(5);

/// What a value is replaced by unless told otherwise.
const HIDDEN: &str = "***";

/// What takes part in an agent's runs.
#[derive(Clone, Debug, Default)]
pub(crate) struct Hooks {
    pub(crate) rules: Vec<RuleOptions>,
    pub(crate) input: Option<Hook>,
    pub(crate) output: Option<Hook>,
    pub(crate) state: Option<Hook>,
}

/// A server that is asked.
#[derive(Clone, Debug)]
pub(crate) struct Hook {
    pub(crate) url: String,
    pub(crate) headers: Vec<(String, Secret)>,
    pub(crate) timeout: Duration,
    pub(crate) on_failure: OnFailure,
}

impl Hooks {
    /// Whether nothing takes part.
    pub(crate) fn is_empty(&self) -> bool {
        self.rules.is_empty() && self.servers().next().is_none()
    }

    /// The servers, by the names of their hooks.
    pub(crate) fn servers(&self) -> impl Iterator<Item = (&'static str, &Hook)> {
        let all = [("input", &self.input), ("output", &self.output), ("state", &self.state)];
        all.into_iter().filter_map(|(name, hook)| Some((name, hook.as_ref()?)))
    }

    /// What they want from the environment or keep to themselves.
    pub(crate) fn secrets(&self) -> impl Iterator<Item = &Secret> {
        self.servers().flat_map(|(_, hook)| hook.headers.iter().map(|(_, secret)| secret))
    }
}

/// Reads the rules and hooks of an agent.
pub(super) fn read(table: &mut Table<'_>) -> Hooks {
    let mut hooks = Hooks::default();
    table.set(
        "rules",
        &Rules,
        &mut hooks.rules,
        "What becomes of the agent's events: dropped, renamed, redacted. In order; see [hooks.md](hooks.md).",
    );
    table.table(
        "hooks",
        "Servers that take part in runs, by POST of JSON; see [hooks.md](hooks.md).",
        |table| {
            table.table("input", "Asked about every input, which it may change or refuse.", |table| {
                hooks.input = hook(table, OnFailure::Closed);
            });
            table.table("output", "Told about every event of the log, in batches.", |table| {
                hooks.output = hook(table, OnFailure::Open);
            });
            table.table(
                "state",
                "Asked about the state at the end of a run, which it may change.",
                |table| {
                    hooks.state = hook(table, OnFailure::Closed);
                },
            );
        },
    );
    hooks
}

fn hook(table: &mut Table<'_>, mut on_failure: OnFailure) -> Option<Hook> {
    let url = table.need("url", &URL, "Where the server is.");
    let (mut headers, mut timeout) = (Vec::new(), TIMEOUT);
    table.set("timeout", &DURATION, &mut timeout, "How long one request may take.");
    table.set(
        "on_failure",
        &Word(&[("open", OnFailure::Open), ("closed", OnFailure::Closed)]),
        &mut on_failure,
        "What becomes of the run when it does not answer as it should: it goes on without, or ends with `HOOK_FAILED`.",
    );
    table.set(
        "headers",
        &Headers,
        &mut headers,
        "Headers of every request to it. A value may be `{ env = \"NAME\" }`, so that a secret stays out of the file.",
    );
    Some(Hook { url: url?, headers, timeout, on_failure })
}

/// A list of rules.
struct Rules;

/// What an action is called, what it does, an example, and how the rest of its rule is read.
struct ActionKind {
    name: &'static str,
    about: &'static str,
    example: &'static str,
    read: fn(&mut Table<'_>) -> Option<Action>,
}

const ACTIONS: &[ActionKind] = &[
    ActionKind {
        name: "drop",
        about: "Leaves out events, calls of tools, or what a pointer leads to.",
        example: r#"{ action = "drop", event = "RAW" }"#,
        read: |_| Some(Action::Drop),
    },
    ActionKind {
        name: "rename",
        about: "Gives a tool, a custom event, a step, an activity or a member another name.",
        example: r#"{ action = "rename", tool = "lookup_v2", to = "lookup" }"#,
        read: |table| table.need("to", &NAME, "The other name.").map(|to| Action::Rename { to }),
    },
    ActionKind {
        name: "redact",
        about: "Replaces what a pointer leads to, or everything about a tool's calls, by a text.",
        example: r#"{ action = "redact", tool = "pay", pointer = "/card" }"#,
        read: |table| {
            let mut with = HIDDEN.to_owned();
            table.set("with", &ANY_TEXT, &mut with, "The text.");
            Some(Action::Redact { with })
        },
    },
];

fn rule(table: &mut Table<'_>, action: fn(&mut Table<'_>) -> Option<Action>) -> Option<RuleOptions> {
    const PLACES: Word<Place> = Word(&[
        ("event", Place::Event),
        ("arguments", Place::Arguments),
        ("result", Place::Result),
        ("state", Place::State),
    ]);
    let action = action(table);
    let event = table.maybe("event", &EventType, "The types of events it is about; `*` stands for anything.");
    let tool = table.maybe("tool", &NAME, "The tools whose calls it is about; `*` stands for anything.");
    let name = table.maybe(
        "name",
        &NAME,
        "The custom events, steps and activities it is about, by name; `*` stands for anything.",
    );
    let place = table.maybe(
        "in",
        &PLACES,
        "Where the pointer begins; at arguments and result if a tool is named, otherwise at the event.",
    );
    let pointer = table.maybe(
        "pointer",
        &POINTER,
        "A JSON pointer to what it is about; `*` stands for every member or element.",
    );
    let read = [
        ("event", event.is_some()),
        ("tool", tool.is_some()),
        ("name", name.is_some()),
        ("in", place.is_some()),
        ("pointer", pointer.is_some()),
    ];
    // What was wrong has been said; what is left is not the rule that was meant.
    let is_whole = read.into_iter().all(|(key, is_read)| table.has(key) == is_read);
    is_whole.then_some(RuleOptions { action: action?, event, tool, name, place, pointer })
}

impl Rules {
    fn each(value: &Value<'_>) -> Option<RuleOptions> {
        let names: Vec<_> = ACTIONS.iter().map(|action| action.name).collect();
        let wanted = "a table such as `{ action = \"drop\", event = \"RAW\" }`";
        let DeValue::Table(entries) = value.inner.get_ref() else {
            value.wrong_type(wanted, None);
            return None;
        };
        let Some(action) = entries.get("action") else {
            let message = format!("`{}` lacks the key `action`", value.path);
            value.refuse(message, Some(format!("actions: {}", names.join(", "))));
            return None;
        };
        let word = action.get_ref().as_str().unwrap_or_default();
        let Some(kind) = ACTIONS.iter().find(|kind| kind.name == word) else {
            let message = match action.get_ref() {
                DeValue::String(word) => format!("`{}.action` cannot be `{word}`", value.path),
                other => format!("`{}.action` must be text, not {}", value.path, type_of(other)),
            };
            value.refuse_at(action.span(), message, Some(did_you_mean(word, &names, "actions")));
            return None;
        };
        let read = |table: &mut Table<'_>| {
            let tag = Shape::Value(String::new(), json!({ "const": kind.name }));
            table.note("action", kind.about, true, None, tag);
            let rule = rule(table, kind.read)?;
            if let Err(problem) = rule.check() {
                let message = format!("`{}` can never do anything: {problem}", table.path());
                table.refuse_at(
                    table.span_of(problem.key),
                    message,
                    Some(format!("as in `{}`", kind.example)),
                );
                return None;
            }
            Some(rule)
        };
        value.table(wanted, read)?.0
    }
}

impl Kind<Vec<RuleOptions>> for Rules {
    fn read(&self, value: &Value<'_>) -> Option<Vec<RuleOptions>> {
        let items = value.items("a list of tables such as `[{ action = \"drop\", event = \"RAW\" }]`")?;
        // All are read before one that is wrong spoils the whole, so that every one that is wrong is named.
        let read: Vec<_> = items.iter().map(Self::each).collect();
        read.into_iter().collect()
    }

    fn shape(&self) -> Shape {
        let variant = |kind: &ActionKind| Variant {
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

impl Kind<String> for EventType {
    fn read(&self, value: &Value<'_>) -> Option<String> {
        let text = value.text("the type of an event, such as `\"RAW\"`")?;
        if !text.contains('*') && !EVENTS.contains(&text) {
            let hint = did_you_mean(text, EVENTS, "types");
            value.refuse(format!("`{}` cannot be `{text}`: no event has that type", value.path), Some(hint));
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
