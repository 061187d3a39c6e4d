//! Keys of an upstream.

use std::{fmt, ops::Range, path::PathBuf, time::Duration};

use agentwire_core::format::Format;
use agentwire_gateway::upstream::ModelApi;
use agentwire_gateway::{auth::UpstreamIdentity, store::ThreadIds};
use serde_json::{Map, Value as Json, json};
use toml::de::DeValue;

use super::{
    auth::SECRET,
    table::{Shape, Table, Value, ValueType, Variant, type_of},
    types::{
        ANY_TEXT, ASSIGNMENT, AnyJson, Bool, Choice, DURATION, FORMAT, FormatOptions, HEADER, JsonTable,
        List, NAME, PATH, Speed, URL, VARIABLE, did_you_mean,
    },
};

/// The upstream of an agent.
#[derive(Clone, Debug)]
pub(crate) enum Upstream {
    /// The built-in agent.
    Demo,
    /// A recorded stream.
    Replay(Replay),
    /// An AG-UI server.
    AgUi(Http),
    /// A HAI server.
    Hai(Http),
    /// A LangGraph server.
    LangGraph(LangGraph),
    /// A Google ADK server.
    Adk(Adk),
    /// Any server that responds with a stream of a known format.
    Events(Events),
    /// The API of a model.
    Model(Model),
    /// A program that writes a stream of a known format.
    Exec(Exec),
    /// An object of the Python program that contains the gateway, as `MODULE:ATTRIBUTE`.
    Python(String),
}

/// A server and the headers of requests to it.
#[derive(Clone, Debug)]
pub(crate) struct Http {
    /// Unchanged from the file.
    pub(crate) url: String,
    /// Names in lower case.
    pub(crate) headers: Vec<(String, Secret)>,
    /// Headers of the client's request that are passed on; names in lower case. The gateway picks them, by the
    /// agent's settings.
    pub(crate) forward_headers: Vec<String>,
    pub(crate) tenancy: Tenancy,
}

/// The way in which an agent's side tells users apart.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tenancy {
    /// By the number of users if absent.
    pub(crate) thread_ids: Option<ThreadIds>,
    pub(crate) identity: Option<UpstreamIdentity>,
}

/// A recorded stream.
#[derive(Clone, Debug)]
pub(crate) struct Replay {
    pub(crate) file: PathBuf,
    /// Detected from the file if absent.
    pub(crate) format: Option<&'static Format>,
    /// Factor relative to the recorded speed; `None` replays without delays.
    pub(crate) speed: Option<f64>,
    /// Options of the format, `key=value`.
    pub(crate) options: Vec<String>,
}

/// A LangGraph server.
#[derive(Clone, Debug)]
pub(crate) struct LangGraph {
    pub(crate) http: Http,
    pub(crate) graph: String,
    pub(crate) assistant: Option<String>,
    pub(crate) context: Option<Map<String, Json>>,
    /// Keys of the graph's state for the tools and context of the user interface.
    pub(crate) state_keys: Vec<String>,
    /// The stream modes to ask for; those of the format if absent.
    pub(crate) stream_modes: Option<Vec<String>>,
    /// Options of the format, `key=value`.
    pub(crate) options: Vec<String>,
}

/// A Google ADK server.
#[derive(Clone, Debug)]
pub(crate) struct Adk {
    pub(crate) http: Http,
    pub(crate) app: String,
    /// The user of the request if absent.
    pub(crate) user: Option<String>,
    pub(crate) streaming: bool,
    pub(crate) custom_metadata: Option<Map<String, Json>>,
    pub(crate) service_tier: Option<String>,
    /// Options of the format, `key=value`.
    pub(crate) options: Vec<String>,
}

/// Any server that responds with a stream of a known format.
#[derive(Clone, Debug)]
pub(crate) struct Events {
    pub(crate) http: Http,
    pub(crate) method: &'static str,
    /// Request body; the AG-UI request if absent.
    pub(crate) body: Option<Json>,
    /// Detected from the response if absent.
    pub(crate) format: Option<&'static Format>,
    /// Options of the format, `key=value`.
    pub(crate) options: Vec<String>,
}

/// The API of a model.
#[derive(Clone, Debug)]
pub(crate) struct Model {
    pub(crate) api: ModelApi,
    pub(crate) http: Http,
    pub(crate) model: String,
    pub(crate) system: Option<String>,
    pub(crate) api_key: Option<Secret>,
    /// Additional members of every request.
    pub(crate) options: Map<String, Json>,
}

/// A program that writes a stream of a known format.
#[derive(Clone, Debug)]
pub(crate) struct Exec {
    /// The program and its arguments.
    pub(crate) command: Vec<String>,
    /// Detected from the output if absent.
    pub(crate) format: Option<&'static Format>,
    /// Variables passed on from the gateway's environment, and assignments `NAME=value`.
    pub(crate) env: Vec<String>,
    pub(crate) cwd: Option<PathBuf>,
    pub(crate) tenancy: Tenancy,
    /// Options of the format, `key=value`.
    pub(crate) options: Vec<String>,
}

/// A value hidden from output, given in the file or read from the environment.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum Secret {
    Literal(String),
    /// The variable and its position in the file.
    Variable(String, Range<usize>),
}

impl Secret {
    /// The value; `None` if the variable is not set.
    pub(crate) fn value(&self) -> Option<String> {
        match self {
            Self::Literal(value) => Some(value.clone()),
            Self::Variable(name, _) => std::env::var(name).ok(),
        }
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Literal(_) => f.write_str("…"),
            Self::Variable(name, _) => write!(f, "${name}"),
        }
    }
}

/// Name, description and table reader of an upstream kind.
type UpstreamSpec = (&'static str, &'static str, fn(&mut Table<'_>) -> Option<Upstream>);

const UPSTREAMS: &[UpstreamSpec] = &[
    ("demo", "The built-in agent: demonstrates every kind of event, needs no server.", |_| {
        Some(Upstream::Demo)
    }),
    ("replay", "A recorded stream, the same for every run.", replay),
    ("ag-ui", "A server that speaks AG-UI.", |table| http(table).map(Upstream::AgUi)),
    ("hai", "A server that speaks HAI.", |table| http(table).map(Upstream::Hai)),
    ("langgraph", "A LangGraph server (`langgraph dev`, LangGraph Platform).", langgraph),
    ("adk", "A Google ADK server (`adk api_server`).", adk),
    ("events", "Any server that responds with a stream in a format that agentwire reads.", events),
    ("openai", "Any server that speaks OpenAI's chat completions.", |table| {
        model(table, ModelApi::ChatCompletions)
    }),
    ("openai-responses", "Any server that speaks OpenAI's Responses.", |table| {
        model(table, ModelApi::Responses)
    }),
    ("anthropic", "Any server that speaks Anthropic's Messages.", |table| model(table, ModelApi::Messages)),
    ("exec", "A program that is started for each run and writes a stream to its stdout.", exec),
    ("python", "A graph or agent in the process of the Python package.", python),
];

/// The table behind `upstream`.
pub(super) struct UpstreamType;

impl ValueType<Upstream> for UpstreamType {
    fn read(&self, value: &Value<'_>) -> Option<Upstream> {
        let names: Vec<_> = UPSTREAMS.iter().map(|(name, ..)| *name).collect();
        if let DeValue::String(text) = value.inner.get_ref() {
            let hint = if names.contains(&&**text) {
                format!("write `{{ kind = \"{text}\" }}`")
            } else {
                format!("kinds: {}", names.join(", "))
            };
            value.wrong_type("a table such as `{ kind = \"demo\" }`", Some(hint));
            return None;
        }
        let DeValue::Table(entries) = value.inner.get_ref() else {
            value.wrong_type("a table such as `{ kind = \"demo\" }`", None);
            return None;
        };
        let Some(kind) = entries.get("kind") else {
            let message = format!("`{}` lacks the key `kind`", value.path);
            value.reject(message, Some(format!("kinds: {}", names.join(", "))));
            return None;
        };
        let DeValue::String(name) = kind.get_ref() else {
            let message = format!("`{}.kind` must be text, not {}", value.path, type_of(kind.get_ref()));
            value.reject_at(kind.span(), message, Some(format!("kinds: {}", names.join(", "))));
            return None;
        };
        let Some((name, about, read)) = UPSTREAMS.iter().find(|(kind, ..)| kind == name) else {
            let message = format!("`{}.kind` cannot be `{name}`", value.path);
            value.reject_at(kind.span(), message, Some(did_you_mean(name, &names, "kinds")));
            return None;
        };
        let read = |table: &mut Table<'_>| {
            table.record("kind", about, true, None, Shape::Value(String::new(), json!({ "const": name })));
            read(table)
        };
        value.table("a table", read).and_then(|(upstream, _)| upstream)
    }

    fn shape(&self) -> Shape {
        let variants = UPSTREAMS
            .iter()
            .map(|(name, about, read)| Variant { name, about, fields: Table::describe(read) })
            .collect();
        Shape::Tagged("kind", variants)
    }

    fn show(&self, _: &Upstream) -> Option<String> {
        None
    }
}

fn http(table: &mut Table<'_>) -> Option<Http> {
    let url = table.required("url", &URL, "URL of the server.");
    let (mut headers, mut forward_headers) = (Vec::new(), Vec::new());
    table.set("headers", &Headers, &mut headers, "Headers of every request to it. A value may be `{ env = \"NAME\" }`, so that a secret stays out of the file.");
    table.set(
        "forward_headers",
        &List(HEADER, "a list of header names"),
        &mut forward_headers,
        "Allowlist of client request headers that are forwarded. `traceparent` and `tracestate` always are.",
    );
    let tenancy = tenancy(table);
    Some(Http { url: url?, headers, forward_headers, tenancy })
}

/// Time for which an identity is valid unless another is configured.
const IDENTITY_TTL: Duration = Duration::from_secs(60);

fn tenancy(table: &mut Table<'_>) -> Tenancy {
    let thread_ids = table.optional(
        "thread_ids",
        &Choice(&[("scoped", ThreadIds::Scoped), ("raw", ThreadIds::Raw)]),
        "Ids of threads and runs on the agent's side: `scoped` derives them from tenant and user, so that two users' `t1` are two threads there; `raw` sends those of the client. If absent, `scoped` as soon as there can be more than one user. A thread keeps the ids that it was begun with.",
    );
    let mut identity = None;
    let is_there = table.has("identity");
    table.table("identity", "The signed header `agentwire-identity`, which tells the agent who asks (a variable `AGENTWIRE_IDENTITY` for commands).", |table| {
        let sign = table.required(
            "sign",
            &SECRET,
            "The key: text for HS256, or an Ed25519 private key in PEM for EdDSA; `{ env = \"…\" }` or `{ file = \"…\" }`.",
        );
        let mut ttl = IDENTITY_TTL;
        table.set("ttl", &DURATION, &mut ttl, "Time for which it is valid.");
        identity = sign.filter(|_| is_there).map(|sign| UpstreamIdentity::new(sign, ttl));
    });
    Tenancy { thread_ids, identity }
}

/// Rejects a template with unknown placeholders.
fn check_template(table: &Table<'_>, name: &str, template: &Json) {
    if let Err(problem) = agentwire_gateway::upstream::check_template(template) {
        let message = format!("`{}.{name}` cannot be filled in: {problem}", table.path());
        table.reject_at(table.span_of(name), message, None);
    }
}

fn options(table: &mut Table<'_>, format: Option<&'static Format>) -> Vec<String> {
    let mut pairs = Vec::new();
    table.set(
        "options",
        &FormatOptions(format),
        &mut pairs,
        "Options of the reader, as `agentwire formats` lists them.",
    );
    if !pairs.is_empty() && !table.has("format") && format.is_none() {
        let message = format!("`{}.options` are those of no format", table.path());
        table.reject("options", message, "name one with `format`");
    }
    pairs
}

fn replay(table: &mut Table<'_>) -> Option<Upstream> {
    let file = table.required("file", &PATH, "The recording: SSE, JSON lines or a JSON array, also gzipped.");
    let format = table.optional("format", &FORMAT, "The format of the recording; detected if absent.");
    let mut speed = None;
    table.set(
        "speed",
        &Speed,
        &mut speed,
        "Factor relative to the recorded speed; `\"max\"` replays without delays.",
    );
    let options = options(table, format);
    Some(Upstream::Replay(Replay { file: file?, format, speed, options }))
}

/// The stream modes of a LangGraph server that the format reads.
const STREAM_MODES: &[(&str, &str)] = &[
    ("events", "events"),
    ("messages-tuple", "messages-tuple"),
    ("messages", "messages"),
    ("updates", "updates"),
    ("values", "values"),
    ("custom", "custom"),
    ("tasks", "tasks"),
    ("checkpoints", "checkpoints"),
    ("debug", "debug"),
];

fn langgraph(table: &mut Table<'_>) -> Option<Upstream> {
    let http = http(table);
    let graph = table.required("graph", &NAME, "The graph, as in the server's `langgraph.json`.");
    let assistant = table.optional("assistant", &NAME, "The assistant's id, if it is not the graph's own.");
    let context = table.optional(
        "context",
        &JsonTable,
        "The context of every run; placeholders `{{…}}` are filled in from the request (upstreams.md).",
    );
    if let Some(context) = &context {
        check_template(table, "context", &Json::Object(context.clone()));
    }
    let mut state_keys = Vec::new();
    table.set(
        "state_keys",
        &List(
            Choice(&[("tools", "tools"), ("ag-ui", "ag-ui"), ("copilotkit", "copilotkit")]),
            "a list of keys",
        ),
        &mut state_keys,
        "The keys of the graph's state under which it expects the tools and context of the user interface.",
    );
    let state_keys = state_keys.into_iter().map(str::to_owned).collect();
    let stream_modes = table.optional(
        "stream_modes",
        &List(Choice(STREAM_MODES), "a list of stream modes"),
        "The stream modes to ask the server for; if absent, those that carry everything (formats/langgraph.md).",
    );
    let stream_modes: Option<Vec<String>> =
        stream_modes.map(|modes| modes.into_iter().map(str::to_owned).collect());
    if stream_modes.as_ref().is_some_and(Vec::is_empty) {
        let message = format!("`{}.stream_modes` is empty", table.path());
        let hint = "leave it out for the modes that carry everything";
        table.reject("stream_modes", message, hint);
    }
    let options = options(table, Format::find("langgraph"));
    let (http, graph) = (http?, graph?);
    Some(Upstream::LangGraph(LangGraph {
        http,
        graph,
        assistant,
        context,
        state_keys,
        stream_modes,
        options,
    }))
}

fn adk(table: &mut Table<'_>) -> Option<Upstream> {
    let http = http(table);
    let app = table.required("app", &NAME, "The application's name.");
    let user =
        table.optional("user", &NAME, "The user id on that server; the user of the request if absent.");
    let mut streaming = true;
    table.set(
        "streaming",
        &Bool,
        &mut streaming,
        "Whether the server streams the model's output; otherwise each turn arrives as a whole.",
    );
    let custom_metadata = table.optional(
        "custom_metadata",
        &JsonTable,
        "`custom_metadata` of every run (ADK 2); placeholders `{{…}}` are filled in from the request (upstreams.md).",
    );
    if let Some(metadata) = &custom_metadata {
        check_template(table, "custom_metadata", &Json::Object(metadata.clone()));
    }
    let service_tier = table.optional("service_tier", &NAME, "`service_tier` of every run (ADK 2).");
    let mut long_running = "continue";
    table.set(
        "long_running",
        &Choice(&[("continue", "continue"), ("return", "return")]),
        &mut long_running,
        "`return` ends a run at the call of a long-running tool; `continue` reads on to the end of the run.",
    );
    let mut options = options(table, Format::find("adk"));
    if long_running != "continue" && !options.iter().any(|option| option.starts_with("long_running=")) {
        options.push(format!("long_running={long_running}"));
    }
    let (http, app) = (http?, app?);
    Some(Upstream::Adk(Adk { http, app, user, streaming, custom_metadata, service_tier, options }))
}

fn events(table: &mut Table<'_>) -> Option<Upstream> {
    const METHODS: Choice<&str> =
        Choice(&[("POST", "POST"), ("GET", "GET"), ("PUT", "PUT"), ("PATCH", "PATCH")]);
    let http = http(table);
    let format = table.optional("format", &FORMAT, "The format of the response; detected if absent.");
    let mut method = "POST";
    table.set("method", &METHODS, &mut method, "The method of the request.");
    let body = table.optional(
        "body",
        &AnyJson,
        "The body of the request, with placeholders `{{…}}` (upstreams.md); the AG-UI request if absent.",
    );
    let options = options(table, format);
    if let Some(http) = &http {
        check_template(table, "url", &Json::String(http.url.clone()));
    }
    if let Some(body) = &body {
        check_template(table, "body", body);
        if method == "GET" {
            let message = format!("`{}.body` cannot be sent with GET", table.path());
            table.reject("body", message, "put `{{…}}` into the URL, or choose another `method`");
        }
    }
    Some(Upstream::Events(Events { http: http?, method, body, format, options }))
}

fn model(table: &mut Table<'_>, api: ModelApi) -> Option<Upstream> {
    let http = http(table);
    let model = table.required("model", &NAME, "The model.");
    let system = table.optional("system", &ANY_TEXT, "A system message before every conversation.");
    let span = table.span_of("api_key_env");
    let api_key =
        table.optional("api_key_env", &VARIABLE, "The environment variable that holds the API key.");
    let api_key = api_key.map(|name| Secret::Variable(name, span));
    let mut options = Map::new();
    table.set(
        "options",
        &JsonTable,
        &mut options,
        "Members of every request, as the server's documentation names them, such as `{ temperature = 0.2, max_tokens = 500 }`.",
    );
    for name in api.reserved_members().iter().filter(|name| options.contains_key(**name)) {
        let hint = match *name {
            "model" => "the model has a key of its own: `model`",
            "messages" | "input" => "the conversation is sent; `system` puts a message before it",
            "conversation" | "previous_response_id" => "the gateway keeps the conversation",
            _ => "a whole answer is understood too, but the server is always asked for a stream",
        };
        let message = format!("`{}.options.{name}` cannot be chosen", table.path());
        table.reject_at(table.span_at(&["options", name]), message, Some(hint.to_owned()));
    }
    Some(Upstream::Model(Model { api, http: http?, model: model?, system, api_key, options }))
}

fn exec(table: &mut Table<'_>) -> Option<Upstream> {
    let command =
        table.required("command", &Command, "The program and its arguments; a string is run by `sh`.");
    let format = table.optional("format", &FORMAT, "The format of its output; detected if absent.");
    let mut env = Vec::new();
    table.set(
        "env",
        &List(ASSIGNMENT, "a list of environment variables"),
        &mut env,
        "Environment variables in addition to `PATH`, `HOME` and the like: `\"NAME\"` passes a variable on, `\"NAME=value\"` sets one.",
    );
    let cwd = table.optional("cwd", &PATH, "The folder in which it is started.");
    let tenancy = tenancy(table);
    let options = options(table, format);
    Some(Upstream::Exec(Exec { command: command?, format, env, cwd, tenancy, options }))
}

fn python(table: &mut Table<'_>) -> Option<Upstream> {
    let about = "The module and the attribute of the graph or agent, as `app.graph:graph`.";
    table.required("object", &NAME, about).map(Upstream::Python)
}

/// A command: a list of words, or a shell command line.
struct Command;

impl ValueType<Vec<String>> for Command {
    fn read(&self, value: &Value<'_>) -> Option<Vec<String>> {
        let words = match value.inner.get_ref() {
            DeValue::String(line) => shell(line),
            DeValue::Array(_) => List(ANY_TEXT, "a list of words").read(value)?,
            _ => {
                value.wrong_type("a list of words, or a line for the shell", None);
                return None;
            }
        };
        let empty =
            words.iter().all(|word| word.trim().is_empty()) || words.first().is_none_or(String::is_empty);
        if empty || words.get(2).is_some_and(|line| words[0] == "sh" && line.trim().is_empty()) {
            value.reject(format!("`{}` names no program", value.path), None);
            return None;
        }
        if words.iter().any(|word| word.contains('\0')) {
            value.reject(format!("`{}` holds a NUL character", value.path), None);
            return None;
        }
        Some(words)
    }

    fn shape(&self) -> Shape {
        let words = json!({ "type": "array", "items": { "type": "string" }, "minItems": 1 });
        let line = json!({ "type": "string", "pattern": "\\S" });
        Shape::Value("a list of words, or a line for the shell".into(), json!({ "anyOf": [words, line] }))
    }

    fn show(&self, _: &Vec<String>) -> Option<String> {
        None
    }
}

/// A shell command line as a command.
pub(crate) fn shell(line: &str) -> Vec<String> {
    vec!["sh".into(), "-c".into(), line.into()]
}

/// A table of headers.
pub(super) struct Headers;

impl ValueType<Vec<(String, Secret)>> for Headers {
    fn read(&self, value: &Value<'_>) -> Option<Vec<(String, Secret)>> {
        let mut headers: Vec<(String, Secret)> = Vec::new();
        let mut is_valid = true;
        for (name, span, value) in value.entries("a table of headers")? {
            let lower = match reqwest::header::HeaderName::from_bytes(name.as_bytes()) {
                Ok(name) => name.as_str().to_owned(),
                Err(_) => {
                    value.reject_at(span, format!("`{name}` is no name of a header"), None);
                    is_valid = false;
                    continue;
                }
            };
            if headers.iter().any(|(existing, _)| *existing == lower) {
                value.reject_at(span, format!("the header `{lower}` is set twice"), None);
                is_valid = false;
            }
            match secret(&value) {
                Some(secret) => headers.push((lower, secret)),
                None => is_valid = false,
            }
        }
        is_valid.then_some(headers)
    }

    fn shape(&self) -> Shape {
        let schema = json!({ "type": "object", "additionalProperties": secret_schema() });
        Shape::Value("a table of headers: text or `{ env = \"NAME\" }`".into(), schema)
    }

    fn show(&self, value: &Vec<(String, Secret)>) -> Option<String> {
        value.is_empty().then(|| "{}".to_owned())
    }
}

/// A secret: text, or the name of an environment variable.
pub(super) struct SecretText;

impl ValueType<Secret> for SecretText {
    fn read(&self, value: &Value<'_>) -> Option<Secret> {
        if value.inner.get_ref().as_str() == Some("") {
            value.reject(format!("`{}` is empty", value.path), None);
            return None;
        }
        secret(value)
    }

    fn shape(&self) -> Shape {
        Shape::Value("text or `{ env = \"NAME\" }`".into(), secret_schema())
    }

    fn show(&self, _: &Secret) -> Option<String> {
        None
    }
}

/// The JSON Schema of a secret.
fn secret_schema() -> serde_json::Value {
    let variable = json!({ "type": "string", "pattern": "^[^=\\x00]+$" });
    let from_environment = json!({
        "type": "object",
        "properties": { "env": variable },
        "required": ["env"],
        "additionalProperties": false,
    });
    json!({ "anyOf": [{ "type": "string" }, from_environment] })
}

fn secret(value: &Value<'_>) -> Option<Secret> {
    if let DeValue::String(text) = value.inner.get_ref() {
        if reqwest::header::HeaderValue::from_str(text).is_err() {
            value.reject(format!("`{}` holds characters that a header cannot have", value.path), None);
            return None;
        }
        return Some(Secret::Literal(text.to_string()));
    }
    let read = |table: &mut Table<'_>| {
        let span = table.span_of("env");
        table
            .required("env", &VARIABLE, "The environment variable that holds the value.")
            .map(|name| (name, span))
    };
    let (name, span) = value.table("text, or `{ env = \"NAME\" }`", read)?.0?;
    Some(Secret::Variable(name, span))
}

impl Upstream {
    /// Its name in the key `kind`.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::Demo => "demo",
            Self::Replay(_) => "replay",
            Self::AgUi(_) => "ag-ui",
            Self::Hai(_) => "hai",
            Self::LangGraph(_) => "langgraph",
            Self::Adk(_) => "adk",
            Self::Events(_) => "events",
            Self::Model(upstream) => upstream.api.format().name,
            Self::Exec(_) => "exec",
            Self::Python(_) => "python",
        }
    }

    /// Its server, if it has one.
    pub(crate) fn http(&self) -> Option<&Http> {
        match self {
            Self::AgUi(http) | Self::Hai(http) => Some(http),
            Self::LangGraph(upstream) => Some(&upstream.http),
            Self::Adk(upstream) => Some(&upstream.http),
            Self::Events(upstream) => Some(&upstream.http),
            Self::Model(upstream) => Some(&upstream.http),
            Self::Demo | Self::Replay(_) | Self::Exec(_) | Self::Python(_) => None,
        }
    }

    /// Its own way to tell users apart, if it has one.
    pub(crate) fn tenancy(&self) -> Option<&Tenancy> {
        match self {
            Self::Exec(upstream) => Some(&upstream.tenancy),
            _ => self.http().map(|http| &http.tenancy),
        }
    }

    /// Its secrets.
    pub(crate) fn secrets(&self) -> impl Iterator<Item = &Secret> {
        let key = match self {
            Self::Model(upstream) => upstream.api_key.as_ref(),
            _ => None,
        };
        let headers = self.http().map_or(&[][..], |http| &http.headers);
        headers.iter().map(|(_, secret)| secret).chain(key)
    }
}
