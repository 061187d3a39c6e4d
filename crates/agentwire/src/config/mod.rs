//! Parser of `agentwire.toml`.
//!
//! [`server`], [`agent`], [`upstream`] and [`hooks`] declare the keys, one call per key. [`table`] reads and describes
//! tables, [`types`] the values in them, [`problem`] renders errors, [`mod@schema`] generates the JSON Schema.

mod agent;
mod auth;
mod hooks;
pub(crate) mod mask;
mod problem;
mod schema;
mod server;
mod table;
#[cfg(test)]
mod tests;
mod types;
mod upstream;

use std::{ops::Range, path::Path};

use agentwire_gateway::settings::{AgentSettings, Approver, Identity, IdentitySource, Settings};
use agentwire_store::Durability;
use toml::de::DeTable;

pub(crate) use self::{
    hooks::{Hook, Hooks},
    problem::Problem,
    schema::schema,
    server::DURABILITIES,
    types::{ValueError, address, choice, duration, format, level, origin, store, url},
    upstream::{Adk, Events, Exec, Http, LangGraph, Model, Replay, Secret, Tenancy, Upstream, shell},
};
use self::{
    problem::{Problems, UnknownKey},
    table::{Field, Shape, Table},
};
use crate::error::{Class, Error, Result};

/// The default file name.
pub(crate) const FILE: &str = "agentwire.toml";

/// Maximum size of the file: far above any real one, and small enough to read at once.
const MAX_FILE_BYTES: u64 = 4 << 20;

/// The shortest key that gateways share.
const MIN_KEY_BYTES: usize = 16;

/// Maximum length of an agent name, which is a segment of every path.
const MAX_NAME_LENGTH: usize = 64;

/// The complete configuration.
#[derive(Clone, Debug)]
pub(crate) struct Config {
    pub(crate) settings: Settings,
    /// `sqlite:PATH` or `memory:`.
    pub(crate) store: String,
    pub(crate) durability: Durability,
    /// In the order of the file. Not empty once the file and the flags are combined.
    pub(crate) agents: Vec<AgentConfig>,
    /// The agent whose routes are also at `/`: the marked one, or the first.
    pub(crate) default_agent: Option<String>,
    pub(crate) log: Log,
}

/// The configuration of one agent.
#[derive(Clone, Debug)]
pub(crate) struct AgentConfig {
    pub(crate) name: String,
    pub(crate) settings: AgentSettings,
    pub(crate) upstream: Upstream,
    pub(crate) hooks: Hooks,
}

/// Logging.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Log {
    pub(crate) format: LogFormat,
    /// A level, or levels per target as in `info,agentwire_gateway=debug`.
    pub(crate) level: String,
}

/// Format of log lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LogFormat {
    Text,
    Json,
}

impl LogFormat {
    pub(crate) const NAMES: &[(&str, Self)] = &[("text", Self::Text), ("json", Self::Json)];
}

impl AgentConfig {
    /// An agent with default settings.
    pub(crate) fn new(name: impl Into<String>, upstream: Upstream) -> Self {
        Self { name: name.into(), settings: AgentSettings::default(), upstream, hooks: Hooks::default() }
    }

    /// The secrets of the upstream and of the hooks.
    pub(crate) fn secrets(&self) -> impl Iterator<Item = &Secret> {
        self.upstream.secrets().chain(self.hooks.secrets())
    }
}

impl Default for Config {
    /// The configuration without a file: the demo agent.
    fn default() -> Self {
        Self {
            settings: Settings::default(),
            store: "sqlite:agentwire.db".into(),
            durability: Durability::default(),
            agents: vec![AgentConfig::new("demo", Upstream::Demo)],
            default_agent: Some("demo".into()),
            log: Log { format: LogFormat::Text, level: "info".into() },
        }
    }
}

/// A parsed file with its text, which later errors refer to.
#[derive(Debug)]
pub(crate) struct ConfigFile {
    name: String,
    text: String,
    pub(crate) config: Config,
}

impl ConfigFile {
    /// Reads a file. Without agents in it, the configuration has the demo agent.
    ///
    /// # Errors
    /// If it cannot be read or parsed; the error shows every mistake with its position.
    pub(crate) fn load(path: &Path) -> Result<Self> {
        let name = path.display().to_string();
        let text = read_text(path)?;
        // Some editors write a byte order mark.
        let text = text.strip_prefix('\u{feff}').map(ToOwned::to_owned).unwrap_or(text);
        match parse(&text) {
            Ok(config) => Ok(Self { name, text, config }),
            Err(problems) => Err(config_error(&name, &text, &problems)),
        }
    }

    /// Checks that all environment variables of the configuration are set.
    ///
    /// # Errors
    /// If one is missing.
    pub(crate) fn check_environment(&self, config: &Config) -> Result<()> {
        let problems: Vec<_> = config
            .missing_variables()
            .map(|(agent, name, span)| Problem {
                span,
                message: format!("the environment variable `{name}` of agent `{agent}` is not set"),
                hint: Some(format!("set it before the start: `{name}=… agentwire serve`")),
                unknown: None,
            })
            .collect();
        if problems.is_empty() { Ok(()) } else { Err(config_error(&self.name, &self.text, &problems)) }
    }
}

impl Config {
    /// Secrets of `[auth]`, of the audit log and of traces, and keys of identities, that cannot be used: each as a sentence.
    pub(crate) fn missing_secrets(&self) -> impl Iterator<Item = String> {
        let mut secrets = auth::secrets(&self.settings.auth);
        let audit_key = self.settings.audit.as_ref().and_then(|audit| audit.key.as_ref());
        secrets.extend(audit_key.map(|key| ("audit.key".to_owned(), key)));
        secrets.extend(self.settings.replicas.key.as_ref().map(|key| ("replicas.key".to_owned(), key)));
        let trace_headers = self.settings.traces.iter().flat_map(|traces| &traces.headers);
        secrets.extend(trace_headers.map(|(name, secret)| (format!("traces.headers.{name}"), secret)));
        let missing =
            secrets.into_iter().filter_map(|(key, secret)| Some(format!("{key}: {}", secret.read().err()?)));
        let identities = self.agents.iter().filter_map(|agent| {
            let problem = agent.settings.upstream_identity.as_ref()?.check().err()?;
            Some(format!("agents.{}.upstream.identity.sign: {problem}", agent.name))
        });
        let key = self.settings.replicas.key.as_ref().and_then(|key| key.read().ok());
        let short = key.filter(|key| key.len() < MIN_KEY_BYTES);
        let short = short.map(|_| format!("replicas.key: has fewer than {MIN_KEY_BYTES} bytes"));
        missing.chain(identities).chain(short)
    }

    /// Required environment variables that are not set: agent, name, and position in the file.
    pub(crate) fn missing_variables(&self) -> impl Iterator<Item = (&str, &str, Range<usize>)> {
        self.agents.iter().flat_map(|agent| {
            agent.secrets().filter_map(|secret| match secret {
                Secret::Variable(name, span) if secret.value().is_none() => {
                    Some((agent.name.as_str(), name.as_str(), span.clone()))
                }
                _ => None,
            })
        })
    }
}

pub(crate) fn config_error(name: &str, text: &str, problems: &[Problem]) -> Error {
    Error::rendered(Class::Usage, problem::render(name, text, problems))
}

pub(crate) fn read_text(path: &Path) -> Result<String> {
    let name = path.display();
    let failed = |error: &std::io::Error| {
        let failed = Error::new(Class::Usage, format!("cannot read `{name}`: {error}"));
        match error.kind() {
            std::io::ErrorKind::NotFound => failed.hint(
                "without a file `agentwire serve` starts the demo agent; `agentwire serve --help` shows more",
            ),
            _ => failed,
        }
    };
    let about = std::fs::metadata(path).map_err(|error| failed(&error))?;
    if about.is_dir() {
        let error = Error::new(Class::Usage, format!("cannot read `{name}`: it is a directory"));
        return Err(error.hint(format!("did you mean `{}`?", path.join(FILE).display())));
    }
    if about.len() > MAX_FILE_BYTES {
        return Err(Error::new(
            Class::Usage,
            format!("`{name}` is larger than {} MiB", MAX_FILE_BYTES >> 20),
        ));
    }
    let bytes = std::fs::read(path).map_err(|error| failed(&error))?;
    String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        let before = &error.as_bytes()[..at];
        let line = before.iter().filter(|byte| **byte == b'\n').count() + 1;
        let column = before
            .iter()
            .rev()
            .take_while(|byte| **byte != b'\n')
            .filter(|byte| **byte & 0xc0 != 0x80)
            .count()
            + 1;
        let message =
            format!("`{name}` is not UTF-8: the byte {:#04x} at {line}:{column}", error.as_bytes()[at]);
        Error::new(Class::Usage, message).hint("save it as UTF-8")
    })
}

/// The content of a valid file as JSON.
pub(crate) fn to_json(text: &str) -> Option<serde_json::Value> {
    let document = DeTable::parse(text).ok()?;
    types::table_to_json(document.get_ref())
}

/// Parses the text of a file.
pub(crate) fn parse(text: &str) -> std::result::Result<Config, Vec<Problem>> {
    let (document, errors) = DeTable::parse_recoverable(text);
    let problems = Problems::default();
    for error in &errors {
        let span = error.span().unwrap_or(0..0);
        let (message, hint) = explain_syntax_error(text, error.message(), &span);
        problems.add(span, message, hint);
    }
    if !errors.is_empty() {
        // Further errors would only be consequences of the syntax error.
        return Err(problems.into_sorted());
    }
    let mut table = Table::root(document.get_ref(), &problems);
    let config = read(&mut table);
    table.finish();
    let mut problems = problems.into_sorted();
    if problems.is_empty() {
        return Ok(config);
    }
    let fields = description();
    for problem in &mut problems {
        if let Some(hint) = problem.unknown.as_ref().and_then(|unknown| hint_other_table(&fields, unknown)) {
            problem.hint = Some(hint);
        }
    }
    Err(problems)
}

/// Message and hint for a syntax error, clearer than the terse ones of the parser.
fn explain_syntax_error(text: &str, message: &str, span: &Range<usize>) -> (String, Option<String>) {
    let found = text.get(span.clone()).unwrap_or_default().trim();
    if message.starts_with("string values must be quoted") {
        return match found {
            "" => ("a value is missing".to_owned(), None),
            found => (format!("`{found}` is no value"), Some(format!("text is quoted: `{found:?}`"))),
        };
    }
    match message {
        "duplicate key" => (format!("the key `{found}` is set twice"), None),
        message => (message.to_owned(), None),
    }
}

/// All keys.
fn description() -> Vec<Field> {
    Table::describe(read)
}

fn read(table: &mut Table<'_>) -> Config {
    let mut config = Config::default();
    server::read(
        table,
        server::Server {
            settings: &mut config.settings,
            store: &mut config.store,
            durability: &mut config.durability,
            log_format: &mut config.log.format,
            log_level: &mut config.log.level,
        },
    );
    let (mut agents, mut defaults) = (Vec::new(), Vec::new());
    let settings = &config.settings;
    let describe = |table: &mut Table<'_>| drop(agent::read(table, "NAME", settings));
    table.named_tables(
        "agents",
        "The agents, each under a name of your choice.",
        describe,
        |table, name, span| {
            check_name(table, name, span);
            if let Some((agent, default)) = agent::read(table, name, settings) {
                if default {
                    defaults.push((agent.name.clone(), table.span_of("default")));
                }
                agents.push(agent);
            }
        },
    );
    if let [(first, _), (second, span), ..] = defaults.as_slice() {
        let message = format!("the agents `{first}` and `{second}` are both the default one");
        let hint = "only one agent can be at `/`: remove one `default = true`".to_owned();
        table.reject_at(span.clone(), message, Some(hint));
    }
    check_parameters(table, &config.settings.identity, &agents);
    for agent in &agents {
        check_own_parameters(table, agent);
    }
    check_groups(table, &agents);
    check_approvers(table, &config.settings, &agents);
    if let Some(first) = agents.first() {
        let default = defaults.first().map_or(&first.name, |(name, _)| name);
        config.default_agent = Some(default.clone());
        config.agents = agents;
    }
    config
}

/// Rejects agent names that cannot be a path segment.
fn check_name(table: &Table<'_>, name: &str, span: Range<usize>) {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let is_dots = matches!(name, "." | "..");
    if name.is_empty() || name.len() > MAX_NAME_LENGTH || !name.chars().all(is_plain) || is_dots {
        let message = format!("`{}` cannot be the name of an agent", name.escape_debug());
        let hint =
            format!("letters, digits, `-`, `_` and `.`, at most {MAX_NAME_LENGTH}: it is a part of paths");
        table.reject_at(span, message, Some(hint));
    }
}

/// Rejects identity fields from a path parameter that no agent's path has.
fn check_parameters(table: &Table<'_>, identity: &Identity, agents: &[AgentConfig]) {
    for (key, name) in path_parameters(identity) {
        let parameter = format!("{{{name}}}");
        let mut sharing = agents.iter().filter(|agent| agent.settings.identity.is_none()).peekable();
        if sharing.peek().is_some() && !sharing.any(|agent| agent.settings.path.contains(&parameter)) {
            let message =
                format!("`identity.{key}.path` cannot be `{name}`: no agent's path has such a parameter");
            let hint = format!("as in `path = \"/users/{parameter}/chat\"`");
            table.reject_at(table.span_at(&["identity", key, "path"]), message, Some(hint));
        }
    }
}

/// Rejects the same of an agent with an identity of its own.
fn check_own_parameters(table: &Table<'_>, agent: &AgentConfig) {
    let Some(identities) = &agent.settings.identity else { return };
    for (key, name) in path_parameters(&identities.main) {
        let parameter = format!("{{{name}}}");
        if !agent.settings.path.contains(&parameter) {
            let path = format!("agents.{}.identity.{key}.path", agent.name);
            let message = format!("`{path}` cannot be `{name}`: the agent's path has no such parameter");
            let hint = format!("as in `path = \"/users/{parameter}/chat\"`");
            let keys = ["agents", &agent.name, "identity", key, "path"];
            table.reject_at(table.span_at(&keys), message, Some(hint));
        }
    }
}

/// The identity fields that come from a path parameter, with its name.
fn path_parameters(identity: &Identity) -> impl Iterator<Item = (&'static str, &str)> {
    let fields = [
        ("tenant", Some(&identity.tenant)),
        ("user", Some(&identity.user)),
        ("thread", identity.thread.as_ref()),
    ];
    fields.into_iter().filter_map(|(key, field)| match &field?.source {
        IdentitySource::Path(name) => Some((key, name.as_str())),
        _ => None,
    })
}

/// Rejects an agent that shares the threads of an agent whose threads are elsewhere.
fn check_groups(table: &Table<'_>, agents: &[AgentConfig]) {
    let group = |agent: &AgentConfig| agent.settings.threads.clone().unwrap_or_else(|| agent.name.clone());
    for agent in agents {
        let Some(name) = &agent.settings.threads else { continue };
        let Some(target) = agents.iter().find(|other| other.name == *name && other.name != agent.name) else {
            continue;
        };
        let (found, expected) = (&agent.name, group(target));
        if expected != *name {
            let message = format!(
                "`agents.{found}.threads` cannot be `{name}`: that agent has its threads in `{expected}`"
            );
            let span = table.span_at(&["agents", found, "threads"]);
            table.reject_at(span, message, Some(format!("did you mean `{expected}`?")));
        }
    }
}

/// Rejects approvers by role where nobody can have one.
fn check_approvers(table: &Table<'_>, settings: &Settings, agents: &[AgentConfig]) {
    if settings.auth.is_required() {
        return;
    }
    for agent in agents {
        let mut approvers = agent.settings.approve.iter().flat_map(|rule| &rule.approvers);
        if approvers.any(|approver| matches!(approver, Approver::Role(_))) {
            let message =
                format!("`agents.{}.approve` names a role, and without `[auth]` nobody has one", agent.name);
            let span = table.span_at(&["agents", &agent.name, "approve"]);
            table.reject_at(
                span,
                message,
                Some("roles come from tokens, keys or a trusted proxy: add `[auth]`".into()),
            );
        }
    }
}

/// The places that a hint names; the rest is counted.
const MAX_PLACES: usize = 3;

/// A table that has a key.
#[derive(PartialEq, Eq)]
struct Place {
    /// Its path, with `NAME` for a name that the file chooses; empty for the top of the file.
    path: String,
    /// The values of the tag that have the key, if not all have it.
    variants: String,
}

impl Place {
    /// The number of names at which its path begins as `table` does.
    fn common(&self, table: &str) -> usize {
        let (place, table) = (self.path.split('.'), table.split('.'));
        place.zip(table).take_while(|(ours, theirs)| *ours == "NAME" || ours == theirs).count()
    }
}

/// A hint for an unknown key that exists in another table: the tables nearest to the one where it was found. At the same
/// distance, the top of the file comes first: a key below a `[…]` that it was meant to stand above is the usual mistake.
/// None for a misspelled key of its own table, such as `event` for `events`.
fn hint_other_table(fields: &[Field], unknown: &UnknownKey) -> Option<String> {
    let UnknownKey { table, key, is_misspelled } = unknown;
    if *is_misspelled {
        return None;
    }
    let mut places = Vec::new();
    search(fields, key, "", &mut places);
    let nearest = places.iter().map(|place| place.common(table)).max()?;
    places.retain(|place| place.common(table) == nearest);
    places.dedup();
    let is_top = places.iter().any(|place| place.path.is_empty());
    places.retain(|place| !place.path.is_empty());
    let more = places.len().saturating_sub(MAX_PLACES);
    let mut names: Vec<_> = places
        .iter()
        .take(MAX_PLACES)
        .map(|Place { path, variants }| format!("`{path}`{variants}"))
        .collect();
    names.extend((more > 0).then(|| format!("{more} more")));
    let names = names.join(", ");
    Some(match (is_top, names.as_str()) {
        (false, names) => format!("`{key}` is known in {names}"),
        (true, "") => {
            format!("`{key}` belongs to the whole server: put it above the first `[…]` of the file")
        }
        (true, names) => format!(
            "`{key}` belongs to the whole server: put it above the first `[…]` of the file (also known in {names})"
        ),
    })
}

fn search(fields: &[Field], key: &str, path: &str, places: &mut Vec<Place>) {
    if fields.iter().any(|field| field.name == key) {
        places.push(Place { path: path.to_owned(), variants: String::new() });
    }
    for field in fields {
        let inner = if path.is_empty() { field.name.to_owned() } else { format!("{path}.{}", field.name) };
        search_shape(&field.shape, key, &inner, places);
    }
}

fn search_shape(shape: &Shape, key: &str, path: &str, places: &mut Vec<Place>) {
    match shape {
        Shape::Value(..) => {}
        Shape::Table(fields) => search(fields, key, path, places),
        Shape::Named(fields) => search(fields, key, &format!("{path}.NAME"), places),
        Shape::Either(shapes) => shapes.iter().for_each(|shape| search_shape(shape, key, path, places)),
        Shape::List(each) => search_shape(each, key, path, places),
        Shape::Tagged(tag, variants) => {
            let having =
                variants.iter().filter(|variant| variant.fields.iter().any(|field| field.name == key));
            let names: Vec<_> = having.map(|variant| format!("`{}`", variant.name)).collect();
            if !names.is_empty() {
                let variants = format!(" of {tag} {}", names.join(", "));
                places.push(Place { path: path.to_owned(), variants });
            }
        }
    }
}
