//! The configuration of a gateway inside another program: that of the Python package.
//!
//! The keys are those of `agentwire.toml`, read by the same code: from a file, from a JSON object, or from both.

use std::{net::SocketAddr, ops::Range, path::Path, sync::Arc};

use agentwire_gateway::{AgentConfig, AgentRegistry, agent::Agent, settings::Settings};
use agentwire_store::Options;
use serde_json::{Map, Value};

use crate::{
    config::{self, Config, Problem, Upstream},
    door,
    error::Error,
    hooks, store_command, upstream,
};

/// A wrong key or value, with its place.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EmbedError {
    /// The problem.
    pub message: String,
    /// The remedy.
    pub hint: Option<String>,
    /// The key, with the tables around it.
    pub key: Option<String>,
    /// Line and column in the file, from 1.
    pub position: Option<(usize, usize)>,
}

impl From<Error> for EmbedError {
    fn from(error: Error) -> Self {
        let message = match error.message.is_empty() {
            true => anstream::adapter::strip_str(&error.render()).to_string().trim_end().to_owned(),
            false => error.message,
        };
        Self { message, hint: error.hint, ..Self::default() }
    }
}

/// A checked configuration.
#[derive(Debug)]
pub struct Embedded(Config);

impl Embedded {
    /// Reads a file, puts `overrides` on top of it, and checks the result.
    ///
    /// # Errors
    /// The first mistake.
    pub fn load(file: Option<&Path>, overrides: &Value) -> Result<Self, EmbedError> {
        let mut document = Value::Object(Map::new());
        if let Some(path) = file {
            let text = config::read_text(path)?;
            config::parse(&text).map_err(|problems| at_position(&text, &problems))?;
            document = config::to_json(&text).unwrap_or(document);
        }
        merge(&mut document, overrides);
        let text = Written::of(&document);
        let config = config::parse(&text.text).map_err(|problems| text.error(&problems))?;
        let missing = config.missing_variables().next();
        if let Some((_, name, _)) = missing {
            let message = format!("the environment variable `{name}` is not set");
            return Err(EmbedError { message, ..EmbedError::default() });
        }
        if let Some(message) = config.missing_secrets().next() {
            return Err(EmbedError { message, ..EmbedError::default() });
        }
        Ok(Self(config))
    }

    /// The names of the agents that are Python objects, each with the object that the configuration names.
    pub fn python_agents(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.agents.iter().filter_map(|agent| match &agent.upstream {
            Upstream::Python(object) => Some((agent.name.as_str(), object.as_str())),
            _ => None,
        })
    }

    /// The names of all agents.
    pub fn agents(&self) -> impl Iterator<Item = &str> {
        self.0.agents.iter().map(|agent| agent.name.as_str())
    }

    /// Makes an agent the default one.
    ///
    /// # Errors
    /// If there is no such agent.
    pub fn set_default(&mut self, name: &str) -> Result<(), EmbedError> {
        if !self.agents().any(|agent| agent == name) {
            let names: Vec<_> = self.agents().collect();
            return Err(EmbedError {
                message: format!("there is no agent `{name}`"),
                hint: Some(format!("agents: {}", names.join(", "))),
                key: Some("default".into()),
                position: None,
            });
        }
        self.0.default_agent = Some(name.to_owned());
        Ok(())
    }

    /// Checks that the gateway may listen on an address, as `agentwire serve` does. `has_identity`: a function of the
    /// program names the sender of every request.
    ///
    /// # Errors
    /// If others can reach the address, and the configuration has gaps that are not waived.
    pub fn check_listener(&self, address: SocketAddr, has_identity: bool) -> Result<(), EmbedError> {
        let mut config = self.0.clone();
        config.settings.listen = address;
        Ok(door::check_for(&config, has_identity)?)
    }

    /// The settings of the server.
    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.0.settings
    }

    /// The levels of the log.
    #[must_use]
    pub fn log_level(&self) -> &str {
        &self.0.log.level
    }

    /// The address of the store, and its options.
    ///
    /// # Errors
    /// If the environment variable with the address is not set.
    pub fn store(&self) -> Result<(String, Options), EmbedError> {
        let mut options = Options::default();
        options.sqlite.durability = self.0.durability;
        options.postgres.durability = self.0.durability;
        Ok((store_command::resolve(&self.0.store)?, options))
    }

    /// The agents. `make` builds those that are Python objects, `finish` gets every agent before it is added.
    ///
    /// # Errors
    /// If one cannot be built.
    pub fn registry(
        &self,
        make: impl Fn(&str) -> Result<Arc<dyn Agent>, String>,
        finish: impl Fn(&str, AgentConfig) -> AgentConfig,
    ) -> Result<AgentRegistry, EmbedError> {
        let mut registry = AgentRegistry::default();
        for agent in &self.0.agents {
            let key = Some(format!("agents.{}", agent.name));
            let built = match &agent.upstream {
                Upstream::Python(_) => make(&agent.name).map_err(|message| EmbedError {
                    message,
                    key: key.clone(),
                    ..EmbedError::default()
                })?,
                _ => upstream::agent(agent)?,
            };
            let configured = AgentConfig::shared(built).settings(agent.settings.clone());
            registry = registry.agent(&agent.name, finish(&agent.name, hooks::attach(configured, agent)?));
        }
        Ok(match &self.0.default_agent {
            Some(name) => registry.default_agent(name),
            None => registry,
        })
    }
}

/// Puts `over` on top of `base`: tables are merged, other values replaced. `null` leaves a value as it is.
fn merge(base: &mut Value, over: &Value) {
    match (base, over) {
        (_, Value::Null) => {}
        (Value::Object(base), Value::Object(over)) => {
            for (key, value) in over.iter().filter(|(_, value)| !value.is_null()) {
                merge(base.entry(key).or_insert_with(|| Value::Object(Map::new())), value);
            }
        }
        (base, over) => *base = over.clone(),
    }
}

fn at_position(text: &str, problems: &[Problem]) -> EmbedError {
    let Some(problem) = problems.first() else { return EmbedError::default() };
    let before = text.get(..problem.span().start).unwrap_or(text);
    let line = before.matches('\n').count() + 1;
    let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
    EmbedError {
        message: problem.message().to_owned(),
        hint: problem.hint().map(ToOwned::to_owned),
        key: problem.key().map(ToOwned::to_owned),
        position: Some((line, column)),
    }
}

/// A JSON object as TOML.
#[cfg(fuzzing)]
pub(crate) fn to_toml(document: &Value) -> String {
    Written::of(document).text
}

/// A JSON object as TOML, with the place of every key.
struct Written {
    text: String,
    places: Vec<(Range<usize>, String)>,
}

impl Written {
    fn of(document: &Value) -> Self {
        let mut written = Self { text: String::new(), places: Vec::new() };
        for (key, value) in document.as_object().into_iter().flatten() {
            written.member(key, value, "");
            written.text.push('\n');
        }
        written
    }

    fn member(&mut self, key: &str, value: &Value, path: &str) {
        let start = self.text.len();
        let path = if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") };
        self.text.push_str(&Value::from(key).to_string());
        self.text.push_str(" = ");
        self.value(value, &path);
        self.places.push((start..self.text.len(), path));
    }

    fn value(&mut self, value: &Value, path: &str) {
        match value {
            Value::Object(members) => {
                self.text.push('{');
                for (index, (key, value)) in members.iter().filter(|(_, value)| !value.is_null()).enumerate()
                {
                    self.text.push_str(if index == 0 { " " } else { ", " });
                    self.member(key, value, path);
                }
                self.text.push_str(" }");
            }
            Value::Array(items) => {
                self.text.push('[');
                for (index, item) in items.iter().enumerate() {
                    self.text.push_str(if index == 0 { "" } else { ", " });
                    self.value(item, &format!("{path}[{index}]"));
                }
                self.text.push(']');
            }
            // JSON's text is TOML's too, but for the character DEL.
            Value::String(_) => self.text.push_str(&value.to_string().replace('\u{7f}', "\\u007f")),
            _ => self.text.push_str(&value.to_string()),
        }
    }

    fn error(&self, problems: &[Problem]) -> EmbedError {
        let found = at_position(&self.text, problems);
        let start = problems.first().map_or(0, |problem| problem.span().start);
        let around = self.places.iter().filter(|(range, _)| range.start <= start && start < range.end);
        let key = around.min_by_key(|(range, _)| range.len()).map(|(_, path)| path.clone());
        EmbedError { key: key.or(found.key), position: None, ..found }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn error(overrides: Value) -> EmbedError {
        Embedded::load(None, &overrides).expect_err("a mistake")
    }

    #[test]
    fn a_wrong_key_is_named_with_its_table_and_a_hint() {
        let unknown = error(json!({ "stor": "memory:" }));
        assert_eq!(unknown.key.as_deref(), Some("stor"));
        assert!(unknown.hint.is_some_and(|hint| hint.contains("store")));
        let agents = json!({ "a": { "upstream": { "kind": "python", "object": "x" }, "busy_": "wait" } });
        let unknown = error(json!({ "agents": agents }));
        assert_eq!(unknown.key.as_deref(), Some("agents.a.busy_"));
    }

    #[test]
    fn a_file_and_overrides_are_merged() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("agentwire.toml");
        let text = "store = \"memory:\"\n[limits]\nruns = 3\n[agents.d]\nupstream = { kind = \"demo\" }\n";
        std::fs::write(&path, text).expect("a file");
        let upstream = json!({ "kind": "python", "object": "app:graph" });
        let overrides = json!({ "limits": { "runs": 5 }, "agents": { "p": { "upstream": upstream } } });
        let loaded = Embedded::load(Some(&path), &overrides).expect("valid");
        assert_eq!(loaded.settings().limits.runs, 5);
        assert_eq!(loaded.agents().collect::<Vec<_>>(), ["d", "p"]);
        assert_eq!(loaded.python_agents().collect::<Vec<_>>(), [("p", "app:graph")]);
        assert_eq!(loaded.store().map(|(address, _)| address), Ok("memory:".to_owned()));
        std::fs::write(&path, "stor = \"memory:\"\n").expect("a file");
        let wrong = Embedded::load(Some(&path), &json!({})).expect_err("a mistake");
        assert_eq!(wrong.position, Some((1, 1)));
    }
}
