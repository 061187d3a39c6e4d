//! Reload on SIGHUP: reads the configuration again and replaces the agents.
//!
//! Only agents can change while the gateway runs. A run keeps the agent that it started with, so active runs are not
//! disturbed. All other settings (address, store, identity) are fixed for the lifetime of the process: changed keys are
//! logged and need a restart. An invalid file changes nothing.

use std::collections::BTreeSet;

use agentwire_gateway::AgentRegistry;

use crate::{
    config::{AgentConfig, Config, Secret},
    error::Result,
    hooks, upstream,
};

/// The agents of a configuration.
///
/// # Errors
/// If one cannot be built, for example because a recording does not exist.
pub(crate) fn registry(config: &Config) -> Result<AgentRegistry> {
    let mut registry = AgentRegistry::default();
    for agent in &config.agents {
        let configured = agentwire_gateway::AgentConfig::shared(upstream::agent(agent)?);
        let configured = hooks::attach(configured.settings(agent.settings.clone()), agent)?;
        registry = registry.agent(&agent.name, configured);
    }
    Ok(match &config.default_agent {
        Some(name) => registry.default_agent(name),
        None => registry,
    })
}

/// Differences between two configurations.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Changes {
    pub(crate) added: Vec<String>,
    pub(crate) changed: Vec<String>,
    pub(crate) removed: Vec<String>,
    /// Changed keys that need a restart.
    pub(crate) needs_restart: Vec<&'static str>,
}

impl Changes {
    /// `old` is the active configuration: agents of the last successful reload, all other settings of the start.
    pub(crate) fn between(old: &Config, new: &Config) -> Self {
        let names = |config: &Config| -> BTreeSet<String> {
            config.agents.iter().map(|agent| agent.name.clone()).collect()
        };
        let (before, after) = (names(old), names(new));
        let find = |config: &Config, name: &String| {
            config.agents.iter().find(|agent| agent.name == *name).map(fingerprint)
        };
        let mut changed: Vec<_> =
            before.intersection(&after).filter(|name| find(old, name) != find(new, name)).cloned().collect();
        let default = |config: &Config| config.default_agent.clone();
        if default(old) != default(new) {
            // The agent that is now at `/` and was not before.
            let moved = default(new).filter(|name| before.contains(name) && !changed.contains(name));
            changed.extend(moved);
        }
        Self {
            added: after.difference(&before).cloned().collect(),
            changed,
            removed: before.difference(&after).cloned().collect(),
            needs_restart: needs_restart(old, new),
        }
    }
}

/// All properties of an agent that can change, including the secrets that `Debug` hides.
fn fingerprint(agent: &AgentConfig) -> String {
    let AgentConfig { name: _, settings, upstream, hooks } = agent;
    let secrets: Vec<_> = agent.secrets().map(Secret::value).collect();
    format!("{settings:?} {upstream:?} {hooks:?} {secrets:?}")
}

/// Changed keys that are fixed for the lifetime of the process.
fn needs_restart(old: &Config, new: &Config) -> Vec<&'static str> {
    let mut keys = old.settings.changed_keys(&new.settings);
    let store = (old.store != new.store).then_some("store");
    let durability = (old.durability != new.durability).then_some("durability");
    // In the order of the configuration file: the store follows the listener.
    let position = usize::from(keys.first() == Some(&"listen"));
    keys.splice(position..position, store.into_iter().chain(durability));
    keys.extend((old.log != new.log).then_some("log"));
    keys
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Http, Tenancy, Upstream};

    fn agent(name: &str, url: &str, secret: &str) -> AgentConfig {
        let headers = vec![("authorization".to_owned(), Secret::Literal(secret.into()))];
        let http =
            Http { url: url.into(), headers, forward_headers: Vec::new(), tenancy: Tenancy::default() };
        AgentConfig::new(name, Upstream::AgUi(http))
    }

    fn config(agents: Vec<AgentConfig>) -> Config {
        let default_agent = agents.first().map(|agent| agent.name.clone());
        Config { agents, default_agent, ..Config::default() }
    }

    #[test]
    fn detects_every_change_of_an_agent() {
        let old = config(vec![
            agent("a", "http://x", "1"),
            agent("b", "http://x", "1"),
            agent("c", "http://x", "1"),
        ]);
        let mut settings = agent("c", "http://x", "1");
        settings.settings.path = "/other".into();
        let new = config(vec![agent("a", "http://x", "2"), settings, agent("d", "http://x", "1")]);
        let changes = Changes::between(&old, &new);
        assert_eq!(changes.added, ["d"]);
        assert_eq!(changes.changed, ["a", "c"], "a secret and a setting");
        assert_eq!(changes.removed, ["b"]);
        assert_eq!(Changes::between(&old, &old), Changes::default());
        let mut default = old.clone();
        default.default_agent = Some("b".into());
        assert_eq!(Changes::between(&old, &default).changed, ["b"]);
    }

    #[test]
    fn lists_keys_that_need_a_restart() {
        let old = config(vec![agent("a", "http://x", "1")]);
        let mut new = old.clone();
        new.settings.listen.set_port(1);
        new.store = "memory:".into();
        new.settings.limits.runs = 1;
        new.log.level = "debug".into();
        assert_eq!(Changes::between(&old, &new).needs_restart, ["listen", "store", "limits", "log"]);
    }
}
