//! Builds the hooks of an agent from its configuration.

use agentwire_gateway::hooks::{Action, ConfiguredHooks, Endpoint, HookOptions, Place, RuleOptions};

use crate::{
    config::{AgentConfig, Hook},
    error::{Class, Error, Result},
};

/// Start events and the events that need them.
const GROUPS: &[(&str, &[&str])] = &[
    ("TEXT_MESSAGE_START", &["TEXT_MESSAGE_CONTENT", "TEXT_MESSAGE_END"]),
    ("TOOL_CALL_START", &["TOOL_CALL_ARGS", "TOOL_CALL_END"]),
    ("REASONING_MESSAGE_START", &["REASONING_MESSAGE_CONTENT", "REASONING_MESSAGE_END"]),
    ("STEP_STARTED", &["STEP_FINISHED"]),
];

/// Adds the configured hooks of an agent, if it has any.
///
/// # Errors
/// If the hooks are invalid.
pub(crate) fn attach(
    config: agentwire_gateway::AgentConfig,
    agent: &AgentConfig,
) -> Result<agentwire_gateway::AgentConfig> {
    let hooks = &agent.hooks;
    if hooks.is_empty() {
        return Ok(config);
    }
    let of = |hook: &Hook| Endpoint {
        url: hook.url.clone(),
        // Missing environment variables were rejected before.
        headers: hook.headers.iter().filter_map(|(name, it)| Some((name.clone(), it.value()?))).collect(),
        secret: hook.secret.as_ref().map(|secret| secret.value().unwrap_or_default()),
        timeout: hook.timeout,
        on_failure: hook.on_failure,
    };
    let endpoint = |name: &str| hooks.server(name).map(of);
    let options = HookOptions {
        rules: hooks.rules.clone(),
        lock: endpoint("lock"),
        input_record: endpoint("input_record"),
        input: endpoint("input"),
        native: endpoint("native"),
        native_fallback: hooks.server("native_fallback").map(|hook| (hook.after, of(hook))),
        translate: endpoint("translate"),
        event: endpoint("event"),
        state: endpoint("state"),
        output_record: endpoint("output_record"),
        output: endpoint("output"),
    };
    let configured = ConfiguredHooks::new(options)
        .map_err(|error| Error::new(Class::Usage, format!("agent `{}`: {error}", agent.name)))?;
    let config = match configured.lock() {
        Some(lock) => config.lock(lock),
        None => config,
    };
    Ok(match configured.has_hooks() {
        true => config.hooks(move |run| configured.for_run(run)),
        false => config,
    })
}

/// Notes on valid rules with effects that a user may not expect.
pub(crate) fn notes(agent: &AgentConfig) -> Vec<String> {
    let rules = &agent.hooks.rules;
    let mut notes = Vec::new();
    let drops = |kind: &str| rules.iter().any(|rule| rule.drops(kind));
    for (start, rest) in GROUPS {
        let left: Vec<_> = rest.iter().copied().filter(|kind| !drops(kind)).collect();
        if drops(start) && !left.is_empty() {
            let left = left.join(", ");
            notes.push(format!("drops {start} and not {left}: what is left gets a start again, since no stream is valid without"));
        }
    }
    let hides = |rule: &RuleOptions| matches!(rule.action, Action::Redact { .. });
    if rules.iter().any(hides) && !drops("RAW") {
        notes.push(
            "redacts, and RAW events are not looked into: `{ action = \"drop\", event = \"RAW\" }` keeps them in".to_owned(),
        );
    }
    let renames =
        rules.iter().any(|rule| matches!(rule.action, Action::Rename { .. }) && rule.tool.is_some());
    if renames && !agent.settings.approve.is_empty() {
        notes.push("renames tools, and `approve` goes by the new names".to_owned());
    }
    let of_arguments =
        |rule: &RuleOptions| rule.tool.is_some() && rule.place != Some(Place::Result) && hides(rule);
    if rules.iter().any(of_arguments) {
        notes.push(
            "redacts arguments of tools: a tool that the front end runs gets them like that".to_owned(),
        );
    }
    notes
}
