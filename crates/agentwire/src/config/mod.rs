//! What `agentwire.toml` says.
//!
//! [`server`], [`agent`], [`upstream`] and [`hooks`] have one line per key; [`table`] is the mechanism behind them, [`kind`] what
//! values may be, [`problem`] how mistakes are shown, [`schema`] the same keys as JSON Schema.

mod agent;
mod hooks;
mod kind;
mod problem;
mod schema;
mod server;
mod table;
#[cfg(test)]
mod tests;
mod upstream;

use std::{ops::Range, path::Path};

use agentwire_gateway::settings::{AgentSettings, Identity, IdentitySource, Settings};
use agentwire_store::Durability;
use toml::de::DeTable;

pub(crate) use self::{
    hooks::{Hook, Hooks},
    kind::{Fault, address, format, level, store, url, word},
    schema::schema,
    server::DURABILITIES,
    upstream::{Adk, Events, Exec, Http, LangGraph, OpenAi, Replay, Secret, Upstream, shell},
};
use self::{
    problem::{Problem, Problems},
    table::{Field, Shape, Table},
};
use crate::error::{Class, Error, Result};

/// The file that is taken when none is named.
pub(crate) const FILE: &str = "agentwire.toml";

/// The largest file that is read: far beyond what anyone writes, and small enough to read at once.
const LARGEST: u64 = 4 << 20;

/// The longest name of an agent: it is a part of every path.
const LONGEST_NAME: usize = 64;

/// Everything that can be configured.
#[derive(Clone, Debug)]
pub(crate) struct Config {
    pub(crate) settings: Settings,
    /// `sqlite:PATH` or `memory:`.
    pub(crate) store: String,
    pub(crate) durability: Durability,
    /// In the order of the file; never empty.
    pub(crate) agents: Vec<AgentConfig>,
    /// The agent that is also at `/`: the one that is marked, or the first.
    pub(crate) default_agent: Option<String>,
    pub(crate) log: Log,
}

/// One agent.
#[derive(Clone, Debug)]
pub(crate) struct AgentConfig {
    pub(crate) name: String,
    pub(crate) settings: AgentSettings,
    pub(crate) upstream: Upstream,
    pub(crate) hooks: Hooks,
}

/// What is logged, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Log {
    pub(crate) format: LogFormat,
    /// A level, or several as in `info,agentwire_gateway=debug`.
    pub(crate) level: String,
}

/// How lines of the log look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LogFormat {
    Text,
    Json,
}

impl LogFormat {
    pub(crate) const NAMES: &[(&str, Self)] = &[("text", Self::Text), ("json", Self::Json)];
}

impl AgentConfig {
    /// An agent with everything at its default.
    pub(crate) fn new(name: impl Into<String>, upstream: Upstream) -> Self {
        Self { name: name.into(), settings: AgentSettings::default(), upstream, hooks: Hooks::default() }
    }

    /// Everything that it wants from the environment or keeps to itself.
    pub(crate) fn secrets(&self) -> impl Iterator<Item = &Secret> {
        self.upstream.secrets().chain(self.hooks.secrets())
    }
}

impl Default for Config {
    /// What there is without a file: the demo agent.
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

/// A file that was read, and what it says.
#[derive(Debug)]
pub(crate) struct File {
    name: String,
    text: String,
    pub(crate) config: Config,
}

impl File {
    /// Reads a file. `own_agents` says that agents come from elsewhere, so that the file need not have any.
    ///
    /// # Errors
    /// When it cannot be read, or says something wrong; every mistake is shown where it is.
    pub(crate) fn load(path: &Path, own_agents: bool) -> Result<Self> {
        let name = path.display().to_string();
        let text = text(path)?;
        // Some editors put one; it is not part of the text.
        let text = text.strip_prefix('\u{feff}').map(ToOwned::to_owned).unwrap_or(text);
        match parse(&text, own_agents) {
            Ok(config) => Ok(Self { name, text, config }),
            Err(problems) => Err(refused(&name, &text, &problems)),
        }
    }

    /// Says which variables the configuration wants that are not in the environment.
    ///
    /// # Errors
    /// When there are any.
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
        if problems.is_empty() { Ok(()) } else { Err(refused(&self.name, &self.text, &problems)) }
    }
}

impl Config {
    /// Variables that are wanted and not set: of which agent, the name, and where the file names it.
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

fn refused(name: &str, text: &str, problems: &[Problem]) -> Error {
    Error::rendered(Class::Usage, problem::render(name, text, problems))
}

fn text(path: &Path) -> Result<String> {
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
    if about.len() > LARGEST {
        return Err(Error::new(Class::Usage, format!("`{name}` is larger than {} MiB", LARGEST >> 20)));
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

/// Reads the text of a file.
fn parse(text: &str, own_agents: bool) -> std::result::Result<Config, Vec<Problem>> {
    let (document, errors) = DeTable::parse_recoverable(text);
    let problems = Problems::default();
    for error in &errors {
        let span = error.span().unwrap_or(0..0);
        let (message, hint) = syntax(text, error.message(), &span);
        problems.add(span, message, hint);
    }
    if !errors.is_empty() {
        // What follows from a syntax error is noise.
        return Err(problems.into_sorted());
    }
    let mut table = Table::root(document.get_ref(), &problems);
    let config = read(&mut table, own_agents);
    table.finish();
    let mut problems = problems.into_sorted();
    if problems.is_empty() {
        return Ok(config);
    }
    let known = description();
    for problem in &mut problems {
        if let Some(place) = problem.unknown.as_deref().and_then(|key| home(&known, key)) {
            problem.hint = Some(place);
        }
    }
    Err(problems)
}

/// What a syntax error means; the parser's own words are terse.
fn syntax(text: &str, message: &str, span: &Range<usize>) -> (String, Option<String>) {
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

/// Every key there is.
fn description() -> Vec<Field> {
    Table::describe(|table| read(table, false))
}

fn read(table: &mut Table<'_>, own_agents: bool) -> Config {
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
    let describe = |table: &mut Table<'_>| drop(agent::read(table, "NAME"));
    table.named("agents", "The agents, each under a name of your choice.", describe, |table, name, span| {
        check_name(table, name, span);
        if let Some((agent, default)) = agent::read(table, name) {
            if default {
                defaults.push((agent.name.clone(), table.span_of("default")));
            }
            agents.push(agent);
        }
    });
    if !own_agents && table.is_there() && table.is_empty("agents") {
        let hint = "add one, as in `[agents.demo]` with `upstream = { kind = \"demo\" }`";
        table.refuse("agents", "no agent is configured", hint);
    }
    if let [(first, _), (second, span), ..] = defaults.as_slice() {
        let message = format!("the agents `{first}` and `{second}` are both the default one");
        let hint = "only one agent can be at `/`: remove one `default = true`".to_owned();
        table.refuse_at(span.clone(), message, Some(hint));
    }
    check_parameters(table, &config.settings.identity, &agents);
    config.default_agent = match (defaults.first(), agents.as_slice()) {
        (Some((name, _)), _) => Some(name.clone()),
        (None, [first, ..]) => Some(first.name.clone()),
        (None, []) => None,
    };
    config.agents = agents;
    config
}

/// A name is a part of every path of its agent.
fn check_name(table: &Table<'_>, name: &str, span: Range<usize>) {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let dots = matches!(name, "." | "..");
    if name.is_empty() || name.len() > LONGEST_NAME || !name.chars().all(plain) || dots {
        let message = format!("`{}` cannot be the name of an agent", name.escape_debug());
        let hint =
            format!("letters, digits, `-`, `_` and `.`, at most {LONGEST_NAME}: it is a part of paths");
        table.refuse_at(span, message, Some(hint));
    }
}

/// What is taken from a path must be in one.
fn check_parameters(table: &Table<'_>, identity: &Identity, agents: &[AgentConfig]) {
    let extracts = [
        ("tenant", Some(&identity.tenant)),
        ("user", Some(&identity.user)),
        ("thread", identity.thread.as_ref()),
    ];
    for (key, extract) in extracts {
        let Some(IdentitySource::Path(name)) = extract.map(|extract| &extract.source) else { continue };
        let parameter = format!("{{{name}}}");
        if !agents.is_empty() && !agents.iter().any(|agent| agent.settings.path.contains(&parameter)) {
            let message =
                format!("`identity.{key}.path` cannot be `{name}`: no agent's path has such a parameter");
            let hint = format!("as in `path = \"/users/{parameter}/chat\"`");
            table.refuse_at(table.span_at(&["identity", key, "path"]), message, Some(hint));
        }
    }
}

/// Where a key belongs that stands at a place where nobody knows it.
fn home(known: &[Field], key: &str) -> Option<String> {
    let mut places = Vec::new();
    search(known, key, "", &mut places);
    match places.as_slice() {
        [] => None,
        [place] if place.is_empty() => {
            Some(format!("`{key}` belongs to the whole server: put it above the first `[…]` of the file"))
        }
        places => {
            let mut places: Vec<_> = places
                .iter()
                .map(|place| if place.is_empty() { "the top of the file" } else { place })
                .collect();
            places.dedup();
            Some(format!("`{key}` is known in {}", places.join(", ")))
        }
    }
}

fn search(fields: &[Field], key: &str, path: &str, places: &mut Vec<String>) {
    if fields.iter().any(|field| field.name == key) {
        places.push(if path.is_empty() { String::new() } else { format!("`{path}`") });
    }
    for field in fields {
        let inner = if path.is_empty() { field.name.to_owned() } else { format!("{path}.{}", field.name) };
        search_shape(&field.shape, key, &inner, places);
    }
}

fn search_shape(shape: &Shape, key: &str, path: &str, places: &mut Vec<String>) {
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
                places.push(format!("`{path}` of {tag} {}", names.join(", ")));
            }
        }
    }
}
