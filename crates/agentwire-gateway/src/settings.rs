//! Settings of the server and of each agent: plain values with defaults.
//!
//! The binary fills them from `agentwire.toml` and its flags. A Rust program sets fields or chains setters:
//!
//! ```
//! use std::time::Duration;
//! use agentwire_gateway::settings::{AgentSettings, Busy, Identity, IdentityField, Settings};
//! let settings = Settings::default()
//!     .identity(Identity::default().user(IdentityField::header("x-user-id", None)))
//!     .heartbeat(Duration::from_secs(10));
//! let support = AgentSettings::default().busy(Busy::Enqueue { limit: 8 });
//! ```

use std::{collections::BTreeMap, net::SocketAddr, path::PathBuf, time::Duration};

use agentwire_core::patch::{DEFAULT_MAX_WORK, Limits};
use agentwire_store::ThreadIds;
use ipnet::IpNet;

use crate::auth::{secret::Secret, upstream_identity::UpstreamIdentity};
pub use crate::{auth::settings::*, limits::settings::*};

/// A setter per field, so that a program can chain them although the structs are not exhaustive.
macro_rules! setters {
    ($type:ident { $($field:ident: $value:ty),+ $(,)? }) => {
        impl $type {
            $(
                #[doc = concat!("Sets [`", stringify!($field), "`](Self#structfield.", stringify!($field), ").")]
                #[must_use]
                pub fn $field(mut self, $field: $value) -> Self {
                    self.$field = $field;
                    self
                }
            )+
        }
    };
}

/// Settings of the whole server.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Settings {
    /// The address to listen on; loopback by default.
    pub listen: SocketAddr,
    /// The fields of an SSE frame.
    pub sse: Sse,
    /// Sources of tenant, user and thread of a request.
    pub identity: Identity,
    /// The same for the history routes, if it differs. Their thread comes from the path unless set here.
    pub history_identity: Option<Identity>,
    /// The same for the state routes.
    pub state_identity: Option<Identity>,
    /// The same for the routes of runs: follow, reconnect, control, pending items, feedback.
    pub runs_identity: Option<Identity>,
    /// The names that the gateway answers to: `agents.example.com`, with or without a port, `*.example.com`, or `*`. Empty:
    /// the names of loopback if it listens there, else any.
    pub hosts: Vec<String>,
    /// A second address for probes, metrics and the OpenAPI document, which the public one then lacks.
    pub admin_listen: Option<SocketAddr>,
    /// Networks of reverse proxies whose `X-Forwarded-For` names the peer of a request; none by default.
    pub proxies: Vec<IpNet>,
    /// Authentication; none by default.
    pub auth: Auth,
    /// Encryption of connections; none by default.
    pub tls: Option<Tls>,
    /// Waives authentication, hosts and TLS beyond loopback.
    pub insecure: bool,
    /// True if the console is served. By default on loopback and with authentication.
    pub console: Option<bool>,
    /// The doors for front ends with a protocol of their own; all of them by default.
    pub faces: Faces,
    /// Origins whose pages may read the responses (CORS); none by default.
    pub cors: Vec<String>,
    /// Further options of CORS.
    pub cors_options: CorsOptions,
    /// Grace period for live runs during a drain.
    pub drain_grace: Duration,
    /// Interval of comments on a quiet stream.
    pub heartbeat: Duration,
    /// Limits on requests and readers.
    pub limits: ServerLimits,
    /// Retention of logs and threads.
    pub retention: Retention,
    /// Duration of a lease on a run unless renewed. The runs of a dead gateway are ended after it.
    pub lease: Duration,
    /// Time for which an append is retried while the store does not respond. At most half of the lease.
    pub store_patience: Duration,
    /// The audit log; none by default.
    pub audit: Option<AuditSettings>,
    /// Other gateways on the same store.
    pub replicas: Replicas,
    /// The export of traces; none by default.
    pub traces: Option<Traces>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 7117)),
            sse: Sse::Compatible,
            identity: Identity::default(),
            history_identity: None,
            state_identity: None,
            runs_identity: None,
            hosts: Vec::new(),
            admin_listen: None,
            proxies: Vec::new(),
            auth: Auth::default(),
            tls: None,
            insecure: false,
            console: None,
            faces: Faces::default(),
            cors: Vec::new(),
            cors_options: CorsOptions::default(),
            drain_grace: Duration::from_secs(30),
            // Proxies commonly close connections that are silent for 30 to 60 seconds.
            heartbeat: Duration::from_secs(15),
            limits: ServerLimits::default(),
            retention: Retention::default(),
            // Three missed renewals: longer than a stall of the machine, short enough for a person to wait.
            lease: Duration::from_secs(15),
            // A writer that waits for a lock or a full disk has recovered by then, or will not soon. Less than half of the lease,
            // so that a run has ended for its readers before another gateway may take it over.
            store_patience: Duration::from_secs(7),
            audit: None,
            replicas: Replicas::default(),
            traces: None,
        }
    }
}

setters!(Settings {
    listen: SocketAddr,
    sse: Sse,
    identity: Identity,
    history_identity: Option<Identity>,
    state_identity: Option<Identity>,
    runs_identity: Option<Identity>,
    hosts: Vec<String>,
    admin_listen: Option<SocketAddr>,
    proxies: Vec<IpNet>,
    auth: Auth,
    tls: Option<Tls>,
    insecure: bool,
    console: Option<bool>,
    faces: Faces,
    cors: Vec<String>,
    cors_options: CorsOptions,
    drain_grace: Duration,
    heartbeat: Duration,
    limits: ServerLimits,
    retention: Retention,
    lease: Duration,
    store_patience: Duration,
    audit: Option<AuditSettings>,
    replicas: Replicas,
    traces: Option<Traces>,
});

/// The export of traces by OTLP over HTTP.
///
/// ```
/// use agentwire_gateway::settings::{Settings, Traces};
/// let settings = Settings::default().traces(Some(Traces::new("http://127.0.0.1:4318").sample(0.1)));
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Traces {
    /// The address of the collector; `/v1/traces` is added to it.
    pub endpoint: String,
    /// Headers of every request to it.
    pub headers: Vec<(String, Secret)>,
    /// The share of traces that is exported, 0 to 1. A trace that a client begins is sampled as the client says.
    pub sample: f64,
    /// The name of the service in the traces.
    pub service: String,
    /// True if spans have the texts of people, agents and tools.
    pub content: bool,
}

impl Traces {
    /// All traces to this collector, without texts.
    #[must_use]
    pub fn new(endpoint: impl Into<String>) -> Self {
        let (endpoint, service) = (endpoint.into(), "agentwire".to_owned());
        Self { endpoint, headers: Vec::new(), sample: 1.0, service, content: false }
    }
}

setters!(Traces { headers: Vec<(String, Secret)>, sample: f64, service: String, content: bool });

impl Settings {
    /// The identity settings of all agents that have none of their own.
    #[must_use]
    pub fn identities(&self) -> RouteIdentities {
        RouteIdentities {
            main: self.identity.clone(),
            history: self.history_identity.clone(),
            state: self.state_identity.clone(),
            runs: self.runs_identity.clone(),
        }
    }

    /// True if there is more than one user: every request has a credential, or names its user or tenant. Of an agent with
    /// identity settings of its own they decide.
    #[must_use]
    pub fn has_users(&self, agent: &AgentSettings) -> bool {
        let is_named = |identity: &Identity| {
            [&identity.tenant, &identity.user]
                .into_iter()
                .any(|field| field.source != IdentitySource::Constant)
        };
        let (main, others) = match &agent.identity {
            Some(RouteIdentities { main, history, state, runs }) => (main, [history, state, runs]),
            None => (&self.identity, [&self.history_identity, &self.state_identity, &self.runs_identity]),
        };
        self.auth.is_required() || is_named(main) || others.into_iter().flatten().any(is_named)
    }

    /// The source of the conversation of an agent's runs.
    pub(crate) fn history(&self, agent: &AgentSettings) -> History {
        let by_auth = || if self.auth.is_required() { History::Server } else { History::Merge };
        agent.history.unwrap_or_else(by_auth)
    }

    /// True if nothing may change while the audit log cannot be written: by default with authentication.
    #[must_use]
    pub fn is_audit_closed_on_failure(&self) -> bool {
        let failure = self.audit.as_ref().and_then(|audit| audit.failure);
        failure.map_or(self.auth.is_required(), |failure| failure == AuditFailure::Closed)
    }

    /// The configuration keys in which two settings differ.
    #[must_use]
    pub fn changed_keys(&self, other: &Self) -> Vec<&'static str> {
        // Without `..`, so that a new setting cannot be forgotten here.
        let Self {
            listen,
            sse,
            identity,
            history_identity,
            state_identity,
            runs_identity,
            hosts,
            admin_listen,
            proxies,
            auth,
            tls,
            insecure,
            console,
            faces,
            cors,
            cors_options,
            drain_grace,
            heartbeat,
            limits,
            retention,
            lease,
            store_patience,
            audit,
            replicas,
            traces,
        } = self;
        // Not all of them implement `PartialEq`, and all of them implement `Debug`.
        macro_rules! differ {
            ($($key:literal: $old:expr, $new:expr;)+) => {
                [$(($key, format!("{:?}", $old) != format!("{:?}", $new))),+]
            };
        }
        let keys = differ! {
            "listen": listen, other.listen;
            "sse": sse, other.sse;
            "identity": (identity, history_identity, state_identity, runs_identity),
                (&other.identity, &other.history_identity, &other.state_identity, &other.runs_identity);
            "hosts": hosts, other.hosts;
            "admin_listen": admin_listen, other.admin_listen;
            "proxies": proxies, other.proxies;
            "auth": auth, other.auth;
            "insecure": insecure, other.insecure;
            "console": console, other.console;
            "faces": faces, other.faces;
            "tls": tls, other.tls;
            "cors": (cors, cors_options), (&other.cors, &other.cors_options);
            "drain": drain_grace, other.drain_grace;
            "heartbeat": heartbeat, other.heartbeat;
            "retention": retention, other.retention;
            "limits": limits, other.limits;
            "lease": lease, other.lease;
            "store_patience": store_patience, other.store_patience;
            "audit": audit, other.audit;
            "replicas": replicas, other.replicas;
            "traces": traces, other.traces;
        };
        keys.into_iter().filter(|(_, differs)| *differs).map(|(key, _)| key).collect()
    }
}

/// Other gateways on the same store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Replicas {
    /// A key that all of them share: it encrypts the forwarded headers of queued runs, and authenticates requests between
    /// gateways.
    pub key: Option<Secret>,
    /// A private address for requests of other gateways, without encryption.
    pub listen: Option<SocketAddr>,
    /// The URL at which other gateways reach that address.
    pub advertise: Option<reqwest::Url>,
}

impl Replicas {
    /// Gateways that share a key.
    #[must_use]
    pub fn new(key: Secret) -> Self {
        Self { key: Some(key), listen: None, advertise: None }
    }

    /// The same with a private address, and the URL at which others reach it.
    #[must_use]
    pub fn advertise(mut self, listen: SocketAddr, url: reqwest::Url) -> Self {
        (self.listen, self.advertise) = (Some(listen), Some(url));
        self
    }
}

/// The audit log.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct AuditSettings {
    /// Its file. On a store that gateways of several machines share, each gateway has a file of its own, with its name:
    /// `audit.NAME.jsonl`.
    pub file: PathBuf,
    /// The name of this gateway in it; that of the machine, if absent.
    pub name: Option<String>,
    /// The key of its chain. Without one, the owner of the file can rewrite it.
    pub key: Option<Secret>,
    /// The consequence of lines that cannot be written; `Closed` with authentication and `Open` without, if absent.
    pub failure: Option<AuditFailure>,
    /// The bytes at which the file is renamed and a new one begun; never if absent.
    pub rotate: Option<u64>,
}

impl AuditSettings {
    /// A file without a key.
    #[must_use]
    pub fn new(file: impl Into<PathBuf>) -> Self {
        Self { file: file.into(), name: None, key: None, failure: None, rotate: None }
    }

    /// The same with the name of this gateway.
    #[must_use]
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// The same with the key of its chain.
    #[must_use]
    pub fn key(mut self, key: Secret) -> Self {
        self.key = Some(key);
        self
    }

    /// The same with the consequence of lines that cannot be written.
    #[must_use]
    pub fn failure(mut self, failure: AuditFailure) -> Self {
        self.failure = Some(failure);
        self
    }

    /// The same with the bytes at which the file is renamed and a new one begun.
    #[must_use]
    pub fn rotate(mut self, bytes: u64) -> Self {
        self.rotate = Some(bytes);
        self
    }
}

/// The consequence of audit lines that cannot be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AuditFailure {
    /// The gateway is not ready, and changes are refused; reads go on.
    Closed,
    /// The gateway goes on; the server log has the error.
    Open,
}

/// Encryption of connections.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Tls {
    /// A proxy in front of the gateway encrypts.
    Proxy,
    /// The gateway encrypts.
    Files(TlsFiles),
}

/// The files of the gateway's own encryption, read again when they change.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TlsFiles {
    /// The certificate chain, PEM.
    pub cert: PathBuf,
    /// Its private key, PEM.
    pub key: PathBuf,
    /// The authorities of client certificates, PEM; none are asked for without them.
    pub client_ca: Option<PathBuf>,
    /// True if a client without a certificate is refused.
    pub is_client_required: bool,
}

impl TlsFiles {
    /// A certificate and its key.
    #[must_use]
    pub fn new(cert: impl Into<PathBuf>, key: impl Into<PathBuf>) -> Self {
        Self { cert: cert.into(), key: key.into(), client_ca: None, is_client_required: false }
    }
}

/// Options of CORS besides the origins.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CorsOptions {
    /// True if pages may send cookies.
    pub credentials: bool,
    /// The request headers that pages may send, in lower case; any if empty.
    pub headers: Vec<String>,
}

impl CorsOptions {
    /// Pages may send cookies.
    #[must_use]
    pub fn with_credentials() -> Self {
        Self { credentials: true, headers: Vec::new() }
    }
}

/// The fields of an SSE frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sse {
    /// `data:` and `id:` only, which every client reads.
    #[default]
    Compatible,
    /// `event:` as well.
    Standard,
}

/// Limits on requests and readers.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ServerLimits {
    /// Size of a request body.
    pub body: usize,
    /// Size of a request head.
    pub head: usize,
    /// Time for a client to send the head of a request, and again for its body.
    pub request_timeout: Duration,
    /// Time for a client to take a piece of a response (8 KiB, or all that there is) before it is disconnected.
    pub write_timeout: Duration,
    /// Bytes of all request bodies and large responses in memory. One user or peer can have a quarter of it.
    pub inflight_bytes: usize,
    /// Bytes of the log that a reader may fall behind before it is disconnected. One that never was up to date is
    /// disconnected if it reads nothing while the run writes as many.
    pub reader_lag: usize,
    /// Bytes of recent events that are kept in memory per live run.
    pub ring: usize,
    /// Concurrent connections.
    pub connections: usize,
    /// Concurrent live runs.
    pub runs: usize,
    /// Memory of the process. Near it, new runs are refused and slow readers are disconnected.
    pub memory: MemoryLimit,
    /// Bytes of a thread's state.
    pub thread_state: usize,
    /// Bytes of a thread's conversation.
    pub thread_messages: usize,
    /// Limits of one user.
    pub user: PartyLimits,
    /// Limits of all users of one tenant.
    pub tenant: PartyLimits,
    /// Limits of one peer address.
    pub peer: PeerLimits,
    /// Work of one patch in bytes that are moved, copied and compared; at most
    /// [`DEFAULT_MAX_WORK`], because every reader of a log repeats the work.
    pub patch_work: usize,
}

impl Default for ServerLimits {
    fn default() -> Self {
        Self {
            // The largest frame of the official client, so that a message that it sent fits into a request.
            body: 10 << 20,
            head: 32 << 10,
            request_timeout: Duration::from_secs(30),
            write_timeout: Duration::from_secs(30),
            inflight_bytes: 512 << 20,
            // Centrifugo's default: seconds of a fast stream.
            reader_lag: 1 << 20,
            ring: 256 << 10,
            connections: 20_000,
            runs: 10_000,
            memory: MemoryLimit::default(),
            // Far more than a page shows, and little enough to parse.
            thread_state: 8 << 20,
            thread_messages: 32 << 20,
            user: PartyLimits::of_user(),
            tenant: PartyLimits::of_tenant(),
            peer: PeerLimits::default(),
            // From 15 milliseconds of shifted elements to a second of parsed lists of small numbers.
            patch_work: 64 << 20,
        }
    }
}

impl ServerLimits {
    /// The limits of one patch.
    pub(crate) fn patch(&self) -> Limits {
        let max_work = self.patch_work.min(DEFAULT_MAX_WORK);
        Limits { max_work, ..Limits::default() }
    }
}

setters!(ServerLimits {
    body: usize,
    head: usize,
    request_timeout: Duration,
    write_timeout: Duration,
    inflight_bytes: usize,
    reader_lag: usize,
    ring: usize,
    connections: usize,
    runs: usize,
    memory: MemoryLimit,
    thread_state: usize,
    thread_messages: usize,
    user: PartyLimits,
    tenant: PartyLimits,
    peer: PeerLimits,
    patch_work: usize,
});

/// Retention of logs and threads; `None` keeps them forever.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Retention {
    /// Time for which an ended run can be replayed exactly; it is compacted after that.
    pub events: Option<Duration>,
    /// Time for which a thread is kept after its last change.
    pub history: Option<Duration>,
    /// Logs of ended runs per thread.
    pub runs_per_thread: Option<usize>,
    /// Threads per user and agent.
    pub threads_per_user: Option<usize>,
}

impl Default for Retention {
    fn default() -> Self {
        Self {
            events: Some(Duration::from_secs(24 * 3600)),
            history: Some(Duration::from_secs(90 * 24 * 3600)),
            runs_per_thread: None,
            threads_per_user: None,
        }
    }
}

setters!(Retention {
    events: Option<Duration>,
    history: Option<Duration>,
    runs_per_thread: Option<usize>,
    threads_per_user: Option<usize>,
});

/// Sources of tenant, user and thread of a request.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Identity {
    /// The organisation or application.
    pub tenant: IdentityField,
    /// The user within it.
    pub user: IdentityField,
    /// The thread; `None` takes it from its place in the protocol.
    pub thread: Option<IdentityField>,
}

impl Default for Identity {
    fn default() -> Self {
        let (tenant, user) = (IdentityField::constant("default"), IdentityField::constant("default-user"));
        Self { tenant, user, thread: None }
    }
}

impl Identity {
    /// True if a name is read from the body.
    pub(crate) fn is_in_body(&self) -> bool {
        let fields = [Some(&self.tenant), Some(&self.user), self.thread.as_ref()];
        fields.into_iter().flatten().any(|field| matches!(field.source, IdentitySource::Body(_)))
    }
}

setters!(Identity { tenant: IdentityField, user: IdentityField, thread: Option<IdentityField> });

/// The identity settings of all routes of an agent. A group of routes without its own has the main one, with the thread
/// from the path.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct RouteIdentities {
    /// The routes that start runs, and all others that have no identity of their own.
    pub main: Identity,
    /// The history routes.
    pub history: Option<Identity>,
    /// The state routes.
    pub state: Option<Identity>,
    /// The routes of runs: follow, reconnect, control, pending items, feedback.
    pub runs: Option<Identity>,
}

setters!(RouteIdentities {
    main: Identity,
    history: Option<Identity>,
    state: Option<Identity>,
    runs: Option<Identity>,
});

/// The source of one part of an identity, with its default.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdentityField {
    /// The source.
    pub source: IdentitySource,
    /// The value if the source has none. Without it such a request is refused.
    pub default: Option<String>,
}

/// The part of a request from which a name is read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IdentitySource {
    /// None: always the default.
    Constant,
    /// A request header. Its sender must be trusted: put a proxy in front that overwrites the header of clients.
    Header(String),
    /// A parameter of the path, as in `path = "/users/{user}/chat"`.
    Path(String),
    /// A JSON pointer into the body. Any client can claim any name there: for development and single-user servers.
    Body(String),
}

impl IdentityField {
    /// A fixed value.
    #[must_use]
    pub fn constant(value: impl Into<String>) -> Self {
        Self { source: IdentitySource::Constant, default: Some(value.into()) }
    }

    /// A header, with a default.
    #[must_use]
    pub fn header(name: impl Into<String>, default: Option<&str>) -> Self {
        Self { source: IdentitySource::Header(name.into()), default: default.map(Into::into) }
    }
}

/// Settings of one agent.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct AgentSettings {
    /// The path of the AG-UI route below the agent's base.
    pub path: String,
    /// The group of agents that share their threads; `None` for an agent with threads of its own. The name of another
    /// agent joins that agent.
    pub threads: Option<String>,
    /// Sources of tenant, user and thread of a request, if they differ from those of the server.
    pub identity: Option<RouteIdentities>,
    /// Policy for a run whose thread is busy.
    pub busy: Busy,
    /// The same if no client reads the other run any more.
    pub detached: Busy,
    /// The source of the conversation. `None` is [`History::Server`] if every request needs a credential, else
    /// [`History::Merge`].
    pub history: Option<History>,
    /// The effect of a snapshot of the messages; `None` merges those that a format reader makes, and replaces the
    /// conversation by those that the agent itself sends.
    pub snapshots: Option<Snapshots>,
    /// The key of the stored state under which the client's state is placed; `None` merges it at the top level.
    pub state_key: Option<String>,
    /// Policy for a run whose last reader has disconnected.
    pub on_disconnect: OnDisconnect,
    /// Allowlist of request headers that are forwarded to the agent, in lower case; `traceparent` always is.
    pub forward_headers: Vec<String>,
    /// The form of the ids of threads and runs on the agent's side. `None` scopes them if the gateway has more than one user.
    pub thread_ids: Option<ThreadIds>,
    /// The signed header that tells the agent's server who asks; none by default.
    pub upstream_identity: Option<UpstreamIdentity>,
    /// Timeouts of the agent.
    pub timeouts: Timeouts,
    /// Limits on a run.
    pub limits: RunLimits,
    /// The fields of an SSE frame, if they differ from those of the server.
    pub sse: Option<Sse>,
    /// The circuit breaker.
    pub breaker: BreakerSettings,
    /// The profile of the AG-UI route: `auto`, which is the version that the client declares, or one of
    /// [`ag_ui::FORMAT`](crate::core::format::ag_ui::FORMAT).
    pub ag_ui_profile: String,
    /// The profile of the AI SDK route: `4`, `5`, `6`, `7`.
    pub ai_sdk_profile: String,
    /// Options of the AI SDK writer, `key=value`.
    pub ai_sdk_options: Vec<String>,
    /// The paths of the HAI routes.
    pub hai_paths: Vec<String>,
    /// The profile of the HAI routes.
    pub hai_profile: String,
    /// Options of the HAI writer, `key=value`.
    pub hai_options: Vec<String>,
    /// Time for which a HAI stream stays open after its last event, as in the standard's sample.
    pub hai_close_delay: Duration,
    /// Whether the message of RUN_ERROR includes the upstream's own error text, which otherwise only the server log has.
    pub show_errors: bool,
    /// Patterns of tools whose calls need a person's approval before the front end runs them, or before the result of a
    /// long-running one is accepted; `*` matches anything. Tools that the agent runs itself cannot be stopped here.
    pub approve: Vec<ApprovalRule>,
    /// URL to which feedback is forwarded, as JSON by POST.
    pub feedback_url: Option<String>,
    /// The route groups that are mounted.
    pub routes: Routes,
    /// The agent's name and abilities, as AG-UI capabilities.
    pub capabilities: BTreeMap<String, serde_json::Value>,
}

impl Default for AgentSettings {
    fn default() -> Self {
        Self {
            path: "/".into(),
            threads: None,
            identity: None,
            busy: Busy::default(),
            // Every front end stops a run by dropping its connection; the next message must not have to wait for it.
            detached: Busy::Interrupt,
            history: None,
            snapshots: None,
            state_key: None,
            on_disconnect: OnDisconnect::default(),
            forward_headers: Vec::new(),
            thread_ids: None,
            upstream_identity: None,
            timeouts: Timeouts::default(),
            limits: RunLimits::default(),
            sse: None,
            breaker: BreakerSettings::default(),
            ag_ui_profile: "auto".into(),
            ai_sdk_profile: "7".into(),
            ai_sdk_options: Vec::new(),
            hai_paths: vec!["/awp".into(), "/chat".into()],
            hai_profile: "json-string".into(),
            hai_options: Vec::new(),
            hai_close_delay: Duration::from_millis(200),
            show_errors: false,
            approve: Vec::new(),
            feedback_url: None,
            routes: Routes::default(),
            capabilities: BTreeMap::new(),
        }
    }
}

setters!(AgentSettings {
    path: String,
    threads: Option<String>,
    identity: Option<RouteIdentities>,
    busy: Busy,
    detached: Busy,
    history: Option<History>,
    snapshots: Option<Snapshots>,
    state_key: Option<String>,
    on_disconnect: OnDisconnect,
    forward_headers: Vec<String>,
    thread_ids: Option<ThreadIds>,
    upstream_identity: Option<UpstreamIdentity>,
    timeouts: Timeouts,
    limits: RunLimits,
    sse: Option<Sse>,
    breaker: BreakerSettings,
    ag_ui_profile: String,
    ai_sdk_profile: String,
    ai_sdk_options: Vec<String>,
    hai_paths: Vec<String>,
    hai_profile: String,
    hai_options: Vec<String>,
    hai_close_delay: Duration,
    show_errors: bool,
    approve: Vec<ApprovalRule>,
    feedback_url: Option<String>,
    routes: Routes,
    capabilities: BTreeMap<String, serde_json::Value>,
});

/// Tools whose calls need an approval, and who gives it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ApprovalRule {
    /// The pattern of the tools.
    pub tool: String,
    /// The approvers; the requester if empty.
    pub approvers: Vec<Approver>,
    /// True if somebody else than the requester must decide.
    pub four_eyes: bool,
    /// The number of people who must say yes.
    pub votes: usize,
    /// Time for the decision; unlimited if absent.
    pub expires: Option<Duration>,
}

impl From<&str> for ApprovalRule {
    /// The requester approves calls of these tools.
    fn from(tool: &str) -> Self {
        Self { tool: tool.into(), approvers: Vec::new(), four_eyes: false, votes: 1, expires: None }
    }
}

/// Somebody who may decide about calls.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Approver {
    /// `role:NAME`: everybody with a role.
    Role(String),
    /// `user:NAME`: one user.
    User(String),
}

impl std::str::FromStr for Approver {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once(':') {
            Some(("role", name)) if !name.is_empty() => Ok(Self::Role(name.into())),
            Some(("user", name)) if !name.is_empty() => Ok(Self::User(name.into())),
            _ => Err(format!("`{}` is neither `role:NAME` nor `user:NAME`", text.escape_default())),
        }
    }
}

impl std::fmt::Display for Approver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Role(name) => write!(f, "role:{name}"),
            Self::User(name) => write!(f, "user:{name}"),
        }
    }
}

/// The doors for front ends with a protocol of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Faces {
    /// True if CopilotKit's runtime protocol is served at `/copilotkit`.
    pub copilotkit: bool,
    /// True if LangGraph Server's protocol is served at `/langgraph`.
    pub langgraph: bool,
}

impl Default for Faces {
    fn default() -> Self {
        Self { copilotkit: true, langgraph: true }
    }
}

/// The route groups of an agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are the protocols")]
pub struct Routes {
    pub ag_ui: bool,
    pub hai: bool,
    pub ai_sdk: bool,
    /// `/thread/list`, `/thread/{id}`, `/message_snapshot/{id}`.
    pub history: bool,
    /// `/state_snapshot/{id}`, `/state/{id}`.
    pub state: bool,
    /// `/runs/…`, `/threads/{id}/stream`.
    pub runs: bool,
}

impl Default for Routes {
    fn default() -> Self {
        Self { ag_ui: true, hai: true, ai_sdk: true, history: true, state: true, runs: true }
    }
}

/// Policy for a run whose thread is busy with another run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Busy {
    /// Refuses it.
    #[default]
    Reject,
    /// Retries before it is refused.
    Wait {
        /// Number of retries.
        retries: u32,
        /// Time between two tries.
        interval: Duration,
    },
    /// Queues it.
    Enqueue {
        /// Length of a thread's queue.
        limit: usize,
    },
    /// Stops the other run.
    Interrupt,
}

/// The source of a run's conversation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum History {
    /// The client's messages.
    Client,
    /// The stored messages, plus new and edited user messages of the client, and the results of calls that the thread waits
    /// for. Nothing else that a client sends is believed.
    Server,
    /// Both, merged by message id.
    #[default]
    Merge,
}

impl History {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Client => "client",
            Self::Server => "server",
            Self::Merge => "merge",
        }
    }

    pub(crate) fn from_name(name: &str) -> Option<Self> {
        [Self::Client, Self::Server, Self::Merge].into_iter().find(|history| history.as_str() == name)
    }
}

/// The effect of a snapshot of the messages (MESSAGES_SNAPSHOT) on the conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Snapshots {
    /// It changes and adds messages by id; the messages before the run stay.
    Merge,
    /// It replaces the conversation.
    Replace,
    /// None.
    Ignore,
}

/// Policy for a run whose last reader has disconnected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnDisconnect {
    /// It continues; a returning client finds it.
    #[default]
    Detach,
    /// It is stopped.
    Cancel,
}

impl OnDisconnect {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Detach => "detach",
            Self::Cancel => "cancel",
        }
    }

    pub(crate) fn from_name(name: &str) -> Option<Self> {
        [Self::Detach, Self::Cancel].into_iter().find(|policy| policy.as_str() == name)
    }
}

/// Timeouts of an agent; `None` waits forever.
#[derive(Clone, Copy, Debug)]
pub struct Timeouts {
    /// To connect.
    pub connect: Option<Duration>,
    /// From the request to the first byte of the response.
    pub first_byte: Option<Duration>,
    /// Between two bytes.
    pub idle: Option<Duration>,
    /// For the whole run.
    pub total: Option<Duration>,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            connect: Some(Duration::from_secs(10)),
            // Models may take minutes before the first token.
            first_byte: Some(Duration::from_secs(120)),
            idle: Some(Duration::from_secs(300)),
            total: Some(Duration::from_secs(3600)),
        }
    }
}

/// Limits on a run.
#[derive(Clone, Copy, Debug)]
pub struct RunLimits {
    /// Number of events.
    pub max_events: u64,
    /// Size of one frame of the agent's stream.
    pub max_frame: usize,
    /// Bytes of the log.
    pub max_bytes: u64,
}

impl Default for RunLimits {
    fn default() -> Self {
        // A run of an hour at 200 events a second, at 200 bytes each with room for some large ones.
        Self { max_events: 1_000_000, max_frame: 8 << 20, max_bytes: 512 << 20 }
    }
}
