//! SIGHUP: the configuration is read again, and its agents answer from then on.
//!
//! Only agents change while the gateway runs. A run keeps the agent that it began with, so nothing that goes on is
//! disturbed. Everything else (where it listens, the store, whose threads are whose) holds for the whole life of the process: what
//! the file says differently there is named, and waits for a restart. A file that is wrong changes nothing.

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
/// When one cannot be made, such as a recording that is not there.
pub(crate) fn roster(config: &Config) -> Result<AgentRegistry> {
    let mut roster = AgentRegistry::default();
    for agent in &config.agents {
        let configured = agentwire_gateway::AgentConfig::shared(upstream::agent(agent)?);
        let configured = hooks::attach(configured.settings(agent.settings.clone()), agent)?;
        roster = roster.agent(&agent.name, configured);
    }
    Ok(match &config.default_agent {
        Some(name) => roster.default_agent(name),
        None => roster,
    })
}

/// What a configuration changes about the one before.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Changes {
    pub(crate) new: Vec<String>,
    pub(crate) changed: Vec<String>,
    pub(crate) removed: Vec<String>,
    /// Keys of the file that wait for a restart.
    pub(crate) waiting: Vec<&'static str>,
}

impl Changes {
    /// `old` is what the process goes by now: its agents from the last configuration that was taken, everything else
    /// from its start.
    pub(crate) fn between(old: &Config, new: &Config) -> Self {
        let names = |config: &Config| -> BTreeSet<String> {
            config.agents.iter().map(|agent| agent.name.clone()).collect()
        };
        let (before, after) = (names(old), names(new));
        let print = |config: &Config, name: &String| {
            config.agents.iter().find(|agent| agent.name == *name).map(fingerprint)
        };
        let mut changed: Vec<_> = before
            .intersection(&after)
            .filter(|name| print(old, name) != print(new, name))
            .cloned()
            .collect();
        let default = |config: &Config| config.default_agent.clone();
        if default(old) != default(new) {
            // Whoever is at `/` now, and was not before.
            let moved = default(new).filter(|name| before.contains(name) && !changed.contains(name));
            changed.extend(moved);
        }
        Self {
            new: after.difference(&before).cloned().collect(),
            changed,
            removed: before.difference(&after).cloned().collect(),
            waiting: waiting(old, new),
        }
    }
}

/// Everything about an agent that can change, its secrets included: what `Debug` hides is added.
fn fingerprint(agent: &AgentConfig) -> String {
    let AgentConfig { name: _, settings, upstream, hooks } = agent;
    let secrets: Vec<_> = agent.secrets().map(Secret::value).collect();
    format!("{settings:?} {upstream:?} {hooks:?} {secrets:?}")
}

/// The keys that differ and hold for the life of the process.
fn waiting(old: &Config, new: &Config) -> Vec<&'static str> {
    let mut keys = old.settings.changed_keys(&new.settings);
    let store = (old.store != new.store).then_some("store");
    let durability = (old.durability != new.durability).then_some("durability");
    // In the order of the configuration file: the store follows the listener.
    let place = usize::from(keys.first() == Some(&"listen"));
    keys.splice(place..place, store.into_iter().chain(durability));
    keys.extend((old.log != new.log).then_some("log"));
    keys
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Http, Upstream};

    fn agent(name: &str, url: &str, secret: &str) -> AgentConfig {
        let headers = vec![("authorization".to_owned(), Secret::Given(secret.into()))];
        let http = Http { url: url.into(), headers, forward_headers: Vec::new() };
        AgentConfig::new(name, Upstream::AgUi(http))
    }

    fn config(agents: Vec<AgentConfig>) -> Config {
        let default_agent = agents.first().map(|agent| agent.name.clone());
        Config { agents, default_agent, ..Config::default() }
    }

    #[test]
    fn agents_are_told_apart_by_everything_about_them() {
        let old = config(vec![
            agent("a", "http://x", "1"),
            agent("b", "http://x", "1"),
            agent("c", "http://x", "1"),
        ]);
        let mut settings = agent("c", "http://x", "1");
        settings.settings.path = "/other".into();
        let new = config(vec![agent("a", "http://x", "2"), settings, agent("d", "http://x", "1")]);
        let changes = Changes::between(&old, &new);
        assert_eq!(changes.new, ["d"]);
        assert_eq!(changes.changed, ["a", "c"], "a secret and a setting");
        assert_eq!(changes.removed, ["b"]);
        assert_eq!(Changes::between(&old, &old), Changes::default());
        let mut default = old.clone();
        default.default_agent = Some("b".into());
        assert_eq!(Changes::between(&old, &default).changed, ["b"]);
    }

    #[test]
    fn what_holds_for_the_process_waits_for_a_restart() {
        let old = config(vec![agent("a", "http://x", "1")]);
        let mut new = old.clone();
        new.settings.listen.set_port(1);
        new.store = "memory:".into();
        new.settings.limits.runs = 1;
        new.log.level = "debug".into();
        assert_eq!(Changes::between(&old, &new).waiting, ["listen", "store", "limits", "log"]);
    }
}
