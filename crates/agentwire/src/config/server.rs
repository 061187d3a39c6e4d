//! Keys of the server.

use agentwire_gateway::auth::Secret;
use agentwire_gateway::settings::{
    AuditFailure, AuditSettings, CorsOptions, Identity, IdentityField, IdentitySource, MemoryLimit,
    PartyLimits, Replicas, RouteIdentities, Settings, Sse, Tls, TlsFiles, Traces,
};
use agentwire_store::Durability;
use serde_json::json;
use toml::de::DeValue;

use super::{
    LogFormat,
    auth::{self, SECRET},
    table::{Shape, Table, Value, ValueType},
    types::{
        ADDRESS, Bool, Choice, Count, DURATION, DURATION_OR_ZERO, HEADER, HOST, LEVEL, List, NAME, NETWORK,
        ORIGIN, OrNever, PATH, POINTER, RATE, Share, Size, StoreAddress, TextType, URL,
    },
};

/// Names of the durability levels.
pub(crate) const DURABILITIES: &[(&str, Durability)] =
    &[("memory", Durability::Memory), ("os", Durability::Os), ("fsync", Durability::Fsync)];

/// Targets of the server keys.
pub(super) struct Server<'s> {
    pub(super) settings: &'s mut Settings,
    pub(super) store: &'s mut String,
    pub(super) durability: &'s mut Durability,
    pub(super) log_format: &'s mut LogFormat,
    pub(super) log_level: &'s mut String,
}

/// The fields of SSE frames.
pub(super) const SSE: Choice<Sse> = Choice(&[("compatible", Sse::Compatible), ("standard", Sse::Standard)]);

/// Reads the server keys.
pub(super) fn read(table: &mut Table<'_>, server: Server<'_>) {
    let settings = server.settings;
    table.set("listen", &ADDRESS, &mut settings.listen, "Address to listen on. Port 0 selects a free port.");
    table.set(
        "store",
        &StoreAddress,
        server.store,
        "Store for threads, runs and their logs. A path is relative to the working directory.",
    );
    table.set(
        "durability",
        &Choice(DURABILITIES),
        server.durability,
        "Durability of an event before a client sees it: in memory, handed to the operating system (survives a crash of the process), or synced to disk (survives power loss).",
    );
    table.set(
        "sse",
        &SSE,
        &mut settings.sse,
        "Fields of SSE frames: `data:` and `id:` only, which every client reads, or `event:` as well.",
    );
    table.table("identity", "Sources of tenant, user and thread of a request.", |table| {
        let identities = identities(table, settings.identities());
        settings.identity = identities.main;
        settings.history_identity = identities.history;
        settings.state_identity = identities.state;
        settings.runs_identity = identities.runs;
    });
    table.set(
        "hosts",
        &List(HOST, "a list of host names"),
        &mut settings.hosts,
        "Names that the gateway answers to (`Host`): `agents.example.com`, with or without a port, `*.example.com`, or `*` for any. On loopback `localhost`, `127.0.0.1` and `[::1]` if absent; elsewhere required.",
    );
    settings.admin_listen = table.optional(
        "admin_listen",
        &ADDRESS,
        "A second address for `/livez`, `/readyz`, `/metrics` and `/openapi.json`, which the public one then lacks. It asks for no credential: keep it private.",
    );
    table.set(
        "proxies",
        &List(NETWORK, "a list of networks"),
        &mut settings.proxies,
        "Networks of reverse proxies. Behind them, the peer of a request is the right-most address of `X-Forwarded-For` that is none of them.",
    );
    table.table("auth", "Authentication and authorisation; see [security.md](security.md).", |table| {
        auth::read(table, &mut settings.auth);
    });
    settings.tls = table.optional(
        "tls",
        &TlsType,
        "Encryption: `{ cert = \"…\", key = \"…\" }`, or `\"proxy\"` if a proxy in front encrypts. Files are read again when they change.",
    );
    table.set(
        "insecure",
        &Bool,
        &mut settings.insecure,
        "Allows an address beyond loopback without authentication, `hosts` and TLS.",
    );
    let mut cors = (std::mem::take(&mut settings.cors), std::mem::take(&mut settings.cors_options));
    table.set(
        "cors",
        &Cors,
        &mut cors,
        "Origins whose pages may read responses; as a table also whether they may send cookies, and which headers.",
    );
    (settings.cors, settings.cors_options) = cors;
    table.table("drain", "Graceful shutdown on SIGTERM.", |table| {
        table.set("grace", &DURATION_OR_ZERO, &mut settings.drain_grace, "Time for active runs to finish.");
    });
    table.set("heartbeat", &DURATION, &mut settings.heartbeat, "Interval of comments on an idle stream.");
    table.table("retention", "Retention of stored data.", |table| {
        let retention = &mut settings.retention;
        table.set(
            "events",
            &OrNever(DURATION_OR_ZERO),
            &mut retention.events,
            "Time for which an ended run can be replayed exactly; then it is compacted.",
        );
        table.set(
            "history",
            &OrNever(DURATION),
            &mut retention.history,
            "Time for which a thread is kept after its last change.",
        );
        table.set(
            "runs_per_thread",
            &OrNever(Count(1)),
            &mut retention.runs_per_thread,
            "Number of logs of ended runs kept per thread.",
        );
        table.set(
            "threads_per_user",
            &OrNever(Count(1)),
            &mut retention.threads_per_user,
            "Number of threads kept per user and agent.",
        );
    });
    table.table("limits", "Limits for clients.", |table| {
        let limits = &mut settings.limits;
        table.set("body", &Size, &mut limits.body, "Maximum size of a request body.");
        table.set("head", &Size, &mut limits.head, "Maximum size of a request head.");
        table.set(
            "request_timeout",
            &DURATION,
            &mut limits.request_timeout,
            "Timeout for receiving the head of a request, and again for its body.",
        );
        table.set(
            "write_timeout",
            &DURATION,
            &mut limits.write_timeout,
            "Time for a client to take a piece of a response (8 KiB, or all that there is) before it is disconnected.",
        );
        table.set(
            "inflight_bytes",
            &Size,
            &mut limits.inflight_bytes,
            "Memory for all request bodies and large responses, and as much again for threads that are read; one user or peer address can have a quarter of it.",
        );
        table.set(
            "reader_lag",
            &Size,
            &mut limits.reader_lag,
            "Maximum lag of a reader before it is disconnected; it can reconnect without loss.",
        );
        table.set(
            "ring",
            &Size,
            &mut limits.ring,
            "Memory for the latest events of each live run, from which its readers are served.",
        );
        table.set("connections", &Count(1), &mut limits.connections, "Maximum number of connections.");
        table.set("runs", &Count(1), &mut limits.runs, "Maximum number of live runs.");
        let memory = table.optional(
            "memory",
            &OrNever(Size),
            "Memory of the process: from 85 % on, new runs are refused and slow readers are disconnected, from 95 % on new readers too. If absent, the limit of the control group (container), if there is one. Linux only.",
        );
        limits.memory = match memory {
            None => MemoryLimit::Cgroup,
            Some(None) => MemoryLimit::Unlimited,
            Some(Some(bytes)) => MemoryLimit::Bytes(bytes),
        };
        table.set("thread_state", &Size, &mut limits.thread_state, "Maximum size of a thread's state.");
        table.set(
            "thread_messages",
            &Size,
            &mut limits.thread_messages,
            "Maximum size of a thread's conversation.",
        );
        let about = "Limits of one user; they apply where there is more than one.";
        table.table("user", about, |table| party(table, &mut limits.user));
        let about = "Limits of all users of one tenant; they apply where there is more than one user.";
        table.table("tenant", about, |table| party(table, &mut limits.tenant));
        table.table("peer", "Limits of one peer address.", |table| {
            table.set("requests", &OrNever(RATE), &mut limits.peer.requests, "Requests.");
            table.set(
                "failures",
                &OrNever(RATE),
                &mut limits.peer.failures,
                "Failed authentications; beyond it, requests without a valid credential get `RATE_LIMITED`.",
            );
            limits.peer.connections = table.optional(
                "connections",
                &Count(1),
                "Concurrent connections; 1000 for addresses beyond this machine if absent. Those of `proxies` have no limit.",
            );
        });
        table.set(
            "patch_work",
            &Size,
            &mut limits.patch_work,
            "Maximum work of one JSON Patch, in bytes that are moved, copied and compared; values above `256MiB` count as that.",
        );
    });
    table.set(
        "lease",
        &DURATION,
        &mut settings.lease,
        "Lifetime of a claim on a run unless renewed; then the runs of a crashed gateway are ended.",
    );
    table.set(
        "store_patience",
        &DURATION_OR_ZERO,
        &mut settings.store_patience,
        "Time for which a run is paused while the store is unavailable; at most half of `lease`.",
    );
    if settings.store_patience > settings.lease / 2 {
        if !table.has("store_patience") {
            settings.store_patience = settings.lease / 2;
        } else {
            let hint = "a run must have ended for its readers before another gateway may take it over";
            table.reject("store_patience", "`store_patience` is more than half of `lease`", hint);
        }
    }
    settings.console = table.optional(
        "console",
        &Bool,
        "Whether the console is served at `/console`. By default on a loopback address and with authentication.",
    );
    table.table("faces", "Doors for front ends with a protocol of their own.", |table| {
        let about = "CopilotKit's runtime protocol at `/copilotkit`.";
        table.set("copilotkit", &Bool, &mut settings.faces.copilotkit, about);
        let about = "LangGraph Server's protocol at `/langgraph`.";
        table.set("langgraph", &Bool, &mut settings.faces.langgraph, about);
    });
    let about = "Other gateways on the same store.";
    table.table("replicas", about, |table| replicas(table, &mut settings.replicas));
    settings.audit =
        table.optional("audit", &AuditType, "The audit log: its file, or a table; none if absent.");
    settings.traces =
        table.optional("traces", &TracesType, "Export of traces by OpenTelemetry; none if absent.");
    table.table("log", "Logging to stderr.", |table| {
        table.set(
            "format",
            &Choice(LogFormat::NAMES),
            server.log_format,
            "Readable lines, or one JSON object per line.",
        );
        table.set("level", &LEVEL, server.log_level, "Log level.");
    });
}

/// Reads the settings of several gateways.
fn replicas(table: &mut Table<'_>, replicas: &mut Replicas) {
    replicas.key = table.optional(
        "key",
        &SECRET,
        "A key that all gateways on the store share, `{ env = \"…\" }` or `{ file = \"…\" }`. With it, the forwarded headers of queued runs are stored, encrypted, so that another gateway can run them; and gateways accept requests of each other.",
    );
    replicas.listen = table.optional(
        "listen",
        &ADDRESS,
        "A private address for other gateways, without encryption; needs `key` and `advertise`.",
    );
    replicas.advertise = table
        .optional("advertise", &URL, "The URL at which other gateways reach `listen`.")
        .and_then(|url| url.parse().ok());
    if let Some(url) = &replicas.advertise
        && (url.scheme() != "http" || url.path() != "/")
    {
        let hint = "such as `http://10.0.0.5:7118`";
        table.reject("advertise", "`advertise` is not an address with `http://` and without a path", hint);
    }
    let missing = [("listen", replicas.listen.is_none()), ("advertise", replicas.advertise.is_none())];
    for (name, other) in [("listen", missing[1]), ("advertise", missing[0])] {
        if table.has(name) && (other.1 || replicas.key.is_none()) {
            let hint = "`key`, `listen` and `advertise` belong together";
            table.reject(name, format!("`replicas.{name}` alone has no effect"), hint);
        }
    }
}

/// Reads the limits of a user or tenant.
fn party(table: &mut Table<'_>, limits: &mut PartyLimits) {
    table.set("requests", &OrNever(RATE), &mut limits.requests, "Requests.");
    table.set("runs", &OrNever(Count(1)), &mut limits.runs, "Concurrent live runs.");
    table.set("readers", &OrNever(Count(1)), &mut limits.readers, "Concurrent streams.");
    table.set("threads", &OrNever(Count(1)), &mut limits.threads, "Stored threads.");
    table.set("storage", &OrNever(Size), &mut limits.storage, "Stored bytes.");
    table.set("run_starts", &OrNever(RATE), &mut limits.run_starts, "Started runs.");
}

/// Reads the identity settings of all routes; absent keys are as in `base`.
pub(super) fn identities(table: &mut Table<'_>, base: RouteIdentities) -> RouteIdentities {
    let mut main = base.main;
    identity(table, &mut main);
    let about = "Different sources for the history routes; absent keys are as for `POST /`.";
    let history = own_identity(table, "history", about, &main, Some("id")).or(base.history);
    let about = "Different sources for the state routes; absent keys are as for `POST /`.";
    let state = own_identity(table, "state", about, &main, Some("id")).or(base.state);
    let about = "Different sources for the routes of runs (`/runs/…`, `/threads/{id}/stream`, `/threads/{id}/pending`, feedback, the stream and stop of `/api/chat`), which have no body and not the `path` of the agent; absent keys are as for `POST /`.";
    let runs = own_identity(table, "runs", about, &main, None).or(base.runs);
    RouteIdentities::default().main(main).history(history).state(state).runs(runs)
}

fn identity(table: &mut Table<'_>, identity: &mut Identity) {
    let header = table.optional(
        "user_header",
        &HEADER,
        "Short for `user = { header = \"…\", default = \"default-user\" }`. The header must come from a trusted proxy that removes the one that clients send.",
    );
    if table.has("user_header") && table.has("user") {
        let hint = "`user_header` is the short form of `user`; keep one of them";
        table.reject("user_header", "`identity` has both `user` and `user_header`", hint);
    }
    if let Some(name) = header {
        identity.user = IdentityField::header(name, Some("default-user"));
    }
    table.set("user", &IdentityFieldType, &mut identity.user, "The user.");
    table.set("tenant", &IdentityFieldType, &mut identity.tenant, "The organisation, or the application.");
    identity.thread = table.optional(
        "thread",
        &IdentityFieldType,
        "The thread; taken from the protocol's own field if absent.",
    );
}

/// The identity of a group of routes; `None` if it has no keys of its own. `parameter` is the parameter of their paths that
/// names the thread, if all have it.
fn own_identity(
    table: &mut Table<'_>,
    name: &'static str,
    about: &'static str,
    main: &Identity,
    parameter: Option<&str>,
) -> Option<Identity> {
    let is_given = table.has(name);
    let mut own = main.clone().thread(None);
    table.table(name, about, |table| {
        let mut look = |key, about| {
            let found = table.optional(key, &IdentityFieldType, about)?;
            if let IdentitySource::Path(given) = &found.source
                && Some(given.as_str()) != parameter
            {
                let message = format!("`{}.{key}.path` cannot be `{given}`", table.path());
                let hint = match parameter {
                    Some(_) => "the only parameter of these paths is `id`, the thread",
                    None => "these paths name a run or a thread; give a header or a constant",
                };
                table.reject(key, message, hint);
            }
            Some(found)
        };
        if let Some(user) = look("user", "The user.") {
            own.user = user;
        }
        if let Some(tenant) = look("tenant", "The organisation, or the application.") {
            own.tenant = tenant;
        }
        if parameter.is_some() {
            own.thread = look("thread", "The thread; the one in the path if absent.");
        }
    });
    is_given.then_some(own)
}

/// Encryption: a table of files, or the word `proxy`.
struct TlsType;

fn tls_files(table: &mut Table<'_>) -> Option<Tls> {
    let cert = table.required("cert", &PATH, "The certificate chain, PEM.");
    let key = table.required("key", &PATH, "Its private key, PEM.");
    let client_ca = table.optional("client_ca", &PATH, "The authorities of client certificates, PEM.");
    let mut is_required = false;
    table.set(
        "client",
        &Choice(&[("optional", false), ("required", true)]),
        &mut is_required,
        "Whether a client without a certificate is refused.",
    );
    if table.has("client") && client_ca.is_none() {
        table.reject(
            "client",
            format!("`{}.client` needs `client_ca`", table.path()),
            "name the authorities",
        );
    }
    let mut files = TlsFiles::new(cert?, key?);
    (files.client_ca, files.is_client_required) = (client_ca, is_required);
    Some(Tls::Files(files))
}

impl ValueType<Tls> for TlsType {
    fn read(&self, value: &Value<'_>) -> Option<Tls> {
        match value.inner.get_ref() {
            DeValue::String(word) if word == "proxy" => Some(Tls::Proxy),
            DeValue::String(word) => {
                let hint = "allowed: `{ cert = \"…\", key = \"…\" }`, or `\"proxy\"`".to_owned();
                value.reject(format!("`{}` cannot be `{word}`", value.path), Some(hint));
                None
            }
            _ => value.table("a table such as `{ cert = \"tls.crt\", key = \"tls.key\" }`", tls_files)?.0,
        }
    }

    fn shape(&self) -> Shape {
        let word = Shape::Value("`\"proxy\"`, or a table".into(), json!({ "const": "proxy" }));
        Shape::Either(vec![word, Shape::Table(Table::describe(tls_files))])
    }

    fn show(&self, _: &Tls) -> Option<String> {
        None
    }
}

/// The audit log: a path, or a table.
struct AuditType;

fn audit(table: &mut Table<'_>) -> Option<AuditSettings> {
    let file = table.required(
        "file",
        &PATH,
        "Its file. On PostgreSQL each gateway writes a chain and a file of its own, with its name: `audit.jsonl` becomes `audit.NAME.jsonl`.",
    );
    let name = table.optional(
        "name",
        &NAME,
        "The name of this gateway in the audit log, on PostgreSQL; the name of the machine if absent. A second gateway on one machine gets `NAME-2`.",
    );
    let key = table.optional(
        "key",
        &SECRET,
        "The key of its chain, `{ env = \"…\" }` or `{ file = \"…\" }`; without one, the owner of the file can rewrite it. Begin a new file when you add or change it.",
    );
    let failure = table.optional(
        "failure",
        &Choice(&[("closed", AuditFailure::Closed), ("open", AuditFailure::Open)]),
        "The consequence of lines that cannot be written. `closed`, the default with authentication: `/readyz` is 503 and changes are refused with `AUDIT_UNAVAILABLE`; reads go on. `open`: the gateway goes on, and its own log has the error.",
    );
    let rotate = table.optional(
        "rotate",
        &Size,
        "The size at which the file gets the number of its last line as a suffix and a new one begins; never if absent. Other programs may rotate it too.",
    );
    let mut audit = AuditSettings::new(file?);
    (audit.name, audit.key, audit.failure, audit.rotate) = (name, key, failure, rotate);
    Some(audit)
}

impl ValueType<AuditSettings> for AuditType {
    fn read(&self, value: &Value<'_>) -> Option<AuditSettings> {
        match value.inner.get_ref() {
            DeValue::String(_) => PATH.read(value).map(AuditSettings::new),
            _ => value.table("a path, or a table such as `{ file = \"audit.jsonl\" }`", audit)?.0,
        }
    }

    fn shape(&self) -> Shape {
        Shape::Either(vec![PATH.shape(), Shape::Table(Table::describe(audit))])
    }

    fn show(&self, _: &AuditSettings) -> Option<String> {
        None
    }
}

/// CORS: a list of origins, or a table.
struct Cors;

const ORIGINS: List<TextType<String>> = List(ORIGIN, "a list of origins");

fn cors(table: &mut Table<'_>) -> Option<(Vec<String>, CorsOptions)> {
    let origins = table.required("origins", &ORIGINS, "Origins whose pages may read responses.");
    let mut options = CorsOptions::default();
    table.set("credentials", &Bool, &mut options.credentials, "Whether pages may send cookies.");
    table.set(
        "headers",
        &List(HEADER, "a list of header names"),
        &mut options.headers,
        "The request headers that pages may send; any if empty.",
    );
    let is_any = origins.iter().flatten().any(|origin| origin == "*");
    if options.credentials && is_any {
        let hint = "name the origins: with `*`, every page could use the cookies of your users";
        table.reject("credentials", format!("`{}` allows cookies from every origin", table.path()), hint);
    }
    Some((origins?, options))
}

impl ValueType<(Vec<String>, CorsOptions)> for Cors {
    fn read(&self, value: &Value<'_>) -> Option<(Vec<String>, CorsOptions)> {
        match value.inner.get_ref() {
            DeValue::Table(_) => value.table("a list of origins", cors)?.0,
            _ => Some((ORIGINS.read(value)?, CorsOptions::default())),
        }
    }

    fn shape(&self) -> Shape {
        Shape::Either(vec![ORIGINS.shape(), Shape::Table(Table::describe(cors))])
    }

    fn show(&self, value: &(Vec<String>, CorsOptions)) -> Option<String> {
        ORIGINS.show(&value.0)
    }
}

/// The source of an identity field.
struct IdentityFieldType;

/// The name of a path parameter.
const PARAMETER: TextType<String> = NAME;

fn identity_field(table: &mut Table<'_>) -> Option<IdentityField> {
    let header = table.optional("header", &HEADER, "A header of the request.");
    let path =
        table.optional("path", &PARAMETER, "A parameter of the agent's `path`; for history and state, `id`.");
    let body = table.optional(
        "body",
        &POINTER,
        "A position in the body, which any client can forge: for development and single-user servers.",
    );
    let constant = table.optional("constant", &NAME, "A constant value.");
    let default = table.optional(
        "default",
        &NAME,
        "Fallback for requests without the value; without a fallback they are rejected with `NO_IDENTITY`.",
    );
    let given: Vec<_> =
        ["header", "path", "body", "constant"].into_iter().filter(|key| table.has(key)).collect();
    match given.as_slice() {
        [] => {
            let message = format!("`{}` does not say where the name is taken from", table.path());
            table.reject("", message, "give one of: header, path, body, constant");
        }
        [_] => {}
        [_, second, ..] => {
            let message = format!("`{}` says twice where the name is taken from", table.path());
            table.reject(second, message, "give one of: header, path, body, constant");
        }
    }
    if constant.is_some() && default.is_some() {
        table.reject(
            "default",
            format!("`{}.default` is never used: there is a constant", table.path()),
            "remove it",
        );
    }
    let source = match (header, path, body) {
        (Some(header), ..) => IdentitySource::Header(header),
        (_, Some(path), _) => IdentitySource::Path(path.trim_matches(['{', '}']).to_owned()),
        (_, _, Some(body)) => IdentitySource::Body(body),
        _ => return constant.map(IdentityField::constant),
    };
    Some(IdentityField { source, default })
}

impl ValueType<IdentityField> for IdentityFieldType {
    fn read(&self, value: &Value<'_>) -> Option<IdentityField> {
        value.table("a table such as `{ header = \"x-user-id\" }`", identity_field)?.0
    }

    fn shape(&self) -> Shape {
        Shape::Table(Table::describe(identity_field))
    }

    fn show(&self, value: &IdentityField) -> Option<String> {
        let default =
            value.default.as_ref().map_or(String::new(), |default| format!(", default = {default:?}"));
        Some(match &value.source {
            IdentitySource::Constant => {
                format!("{{ constant = {:?} }}", value.default.as_deref().unwrap_or_default())
            }
            IdentitySource::Header(name) => format!("{{ header = {name:?}{default} }}"),
            IdentitySource::Path(name) => format!("{{ path = {name:?}{default} }}"),
            IdentitySource::Body(pointer) => format!("{{ body = {pointer:?}{default} }}"),
        })
    }
}

/// The export of traces.
struct TracesType;

fn traces(table: &mut Table<'_>) -> Option<Traces> {
    let endpoint = table.required(
        "endpoint",
        &URL,
        "The address of a collector that takes OTLP over HTTP, such as `\"http://127.0.0.1:4318\"`; `/v1/traces` is added.",
    );
    let mut traces = Traces::new(endpoint.clone().unwrap_or_default());
    table.set("sample", &Share, &mut traces.sample, "The share of traces that is exported. A trace that a client begins is sampled as its `traceparent` says.");
    table.set("service", &NAME, &mut traces.service, "The name of the service in the traces.");
    table.set(
        "content",
        &Bool,
        &mut traces.content,
        "Whether spans have the texts of people, agents and tools, which may be personal data.",
    );
    table.set(
        "headers",
        &SecretHeaders,
        &mut traces.headers,
        "Headers of the requests to the collector, each `{ env = \"NAME\" }` or `{ file = \"…\" }`.",
    );
    endpoint.map(|_| traces)
}

impl ValueType<Traces> for TracesType {
    fn read(&self, value: &Value<'_>) -> Option<Traces> {
        value.table("a table", traces)?.0
    }

    fn shape(&self) -> Shape {
        Shape::Table(Table::describe(traces))
    }

    fn show(&self, _: &Traces) -> Option<String> {
        None
    }
}

/// Headers whose values are secrets.
struct SecretHeaders;

impl ValueType<Vec<(String, Secret)>> for SecretHeaders {
    fn read(&self, value: &Value<'_>) -> Option<Vec<(String, Secret)>> {
        let mut headers = Vec::new();
        for (name, span, value) in value.entries("a table of headers")? {
            match reqwest::header::HeaderName::from_bytes(name.as_bytes()) {
                Ok(name) => headers.push((name.as_str().to_owned(), SECRET.read(&value)?)),
                Err(_) => {
                    value.reject_at(span, format!("`{name}` is no name of a header"), None);
                    return None;
                }
            }
        }
        Some(headers)
    }

    fn shape(&self) -> Shape {
        let secret = json!({ "type": "object", "properties": { "env": { "type": "string" }, "file": { "type": "string" } }, "additionalProperties": false });
        let schema = json!({ "type": "object", "additionalProperties": secret });
        Shape::Value("a table of headers, each a secret".into(), schema)
    }

    fn show(&self, value: &Vec<(String, Secret)>) -> Option<String> {
        value.is_empty().then(|| "{}".to_owned())
    }
}
