//! What can be chosen: for the whole server, and for each agent.
//!
//! Plain values with defaults. The binary fills them from `agentwire.toml` and its flags, a Rust program by hand.

use std::{collections::BTreeMap, net::SocketAddr, path::PathBuf, time::Duration};

/// What holds for the whole server.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Where to listen. Loopback unless told otherwise.
    pub listen: SocketAddr,
    /// How SSE looks.
    pub sse: Sse,
    /// Whose threads a request is about.
    pub identity: Identity,
    /// The same for the routes of the history, if they are found elsewhere there. Their thread is the one in their path
    /// unless this says otherwise.
    pub history_identity: Option<Identity>,
    /// The same for the routes of the state.
    pub state_identity: Option<Identity>,
    /// Origins whose pages may read our answers; none by default.
    pub cors: Vec<String>,
    /// How long runs may go on after a request to stop.
    pub drain_grace: Duration,
    /// After how long a quiet stream gets a comment.
    pub heartbeat: Duration,
    /// Bounds on requests and readers.
    pub limits: ServerLimits,
    /// What is kept, and for how long.
    pub retention: Retention,
    /// How long a claim on a run lasts unless renewed; a dead gateway's runs are ended after that.
    pub lease: Duration,
    /// How long a run is held while the store does not answer.
    pub store_patience: Duration,
    /// The file that says who did what; none by default.
    pub audit: Option<PathBuf>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 7117)),
            sse: Sse::Compatible,
            identity: Identity::default(),
            history_identity: None,
            state_identity: None,
            cors: Vec::new(),
            drain_grace: Duration::from_secs(30),
            // Proxies commonly cut what is silent for 30 to 60 seconds.
            heartbeat: Duration::from_secs(15),
            limits: ServerLimits::default(),
            retention: Retention::default(),
            // Three missed renewals; long enough for a pause of the machine, short enough for a person to wait.
            lease: Duration::from_secs(15),
            // A writer that waits for a lock or a full disk is back by then, or is not coming back soon.
            store_patience: Duration::from_secs(10),
            audit: None,
        }
    }
}

/// How SSE looks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sse {
    /// `data:` and `id:` only: what every client reads.
    #[default]
    Compatible,
    /// `event:` as well.
    Standard,
}

/// Bounds on what a client can ask for.
#[derive(Clone, Debug)]
pub struct ServerLimits {
    /// The longest body of a request.
    pub body: usize,
    /// The longest head of a request.
    pub head: usize,
    /// How long a client may take to send the head of a request, and then its body.
    pub request_timeout: Duration,
    /// How far, in bytes of its log, a reader that was up to date may fall behind its run before it is cut.
    pub reader_lag: usize,
    /// How many recent bytes of each live run are kept in memory for its readers.
    pub ring: usize,
    /// The most connections at once.
    pub connections: usize,
    /// The most live runs at once.
    pub runs: usize,
}

impl Default for ServerLimits {
    fn default() -> Self {
        Self {
            // As much as one frame of the official client, so that what it sent can come back to it.
            body: 10 << 20,
            head: 32 << 10,
            request_timeout: Duration::from_secs(30),
            // Centrifugo's figure: seconds of a fast stream, and nobody reads that far behind.
            reader_lag: 1 << 20,
            ring: 256 << 10,
            connections: 20_000,
            runs: 10_000,
        }
    }
}

/// What is kept, and for how long. What is absent is kept for ever.
#[derive(Clone, Debug)]
pub struct Retention {
    /// How long an ended run can be replayed exactly; after that it is compacted.
    pub events: Option<Duration>,
    /// How long a thread is kept after its last change.
    pub history: Option<Duration>,
    /// How many logs of ended runs are kept per thread.
    pub runs_per_thread: Option<usize>,
    /// How many threads are kept per user.
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

/// Whose threads a request is about.
#[derive(Clone, Debug)]
pub struct Identity {
    /// The organisation, or the application.
    pub tenant: Extract,
    /// The user within it.
    pub user: Extract,
    /// The conversation; `None` takes it from where the protocol has it.
    pub thread: Option<Extract>,
}

impl Default for Identity {
    fn default() -> Self {
        Self { tenant: Extract::constant("default"), user: Extract::constant("default-user"), thread: None }
    }
}

/// Where a name is taken from, and what it is if it is not there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Extract {
    /// Where to look.
    pub from: From,
    /// What is used if there is nothing; a request without it is refused if this is absent too.
    pub default: Option<String>,
}

/// Where to look for a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum From {
    /// Always the default.
    Nowhere,
    /// A request header. Whoever sets it must be trusted: put a proxy in front that removes what clients send.
    Header(String),
    /// A parameter of the path, as in `path = "/users/{user}/chat"`.
    Path(String),
    /// A JSON pointer into the body. Anyone can claim anything there: for development and single-user servers.
    Body(String),
}

impl Extract {
    /// Always this.
    #[must_use]
    pub fn constant(value: impl Into<String>) -> Self {
        Self { from: From::Nowhere, default: Some(value.into()) }
    }

    /// A header, or a fixed value without it.
    #[must_use]
    pub fn header(name: impl Into<String>, default: Option<&str>) -> Self {
        Self { from: From::Header(name.into()), default: default.map(Into::into) }
    }
}

/// What holds for one agent.
#[derive(Clone, Debug)]
pub struct AgentSettings {
    /// The path of the AG-UI route below the agent's base.
    pub path: String,
    /// What happens to a run when another one has the thread.
    pub busy: Busy,
    /// Where the conversation comes from.
    pub history: History,
    /// The key under which the client's state is put; the state itself if absent.
    pub state_key: Option<String>,
    /// What becomes of a run whose last reader is gone.
    pub on_disconnect: OnDisconnect,
    /// Headers of the request that are passed on to the agent, in lower case; `traceparent` always is.
    pub forward_headers: Vec<String>,
    /// How long to wait for the agent.
    pub timeouts: Timeouts,
    /// Bounds on a run.
    pub limits: RunLimits,
    /// The profile of the AI SDK route: `4`, `5`, `6`, `7`.
    pub ai_sdk_profile: String,
    /// Options of the AI SDK writer, `key=value`.
    pub ai_sdk_options: Vec<String>,
    /// The profile of the HAI routes.
    pub hai_profile: String,
    /// Options of the HAI writer, `key=value`.
    pub hai_options: Vec<String>,
    /// How long a HAI stream stays open after its last event, as the standard's sample does.
    pub hai_close_delay: Duration,
    /// Whether the message of RUN_ERROR says what the agent's side said about a failure, which otherwise only the log has.
    pub show_errors: bool,
    /// Tools whose calls a person must allow before the front end runs them, or before somebody brings the result of a
    /// long-running one; `*` stands for anything. Tools that the agent runs itself cannot be held.
    pub approve: Vec<String>,
    /// Where feedback is sent on to, as JSON by POST.
    pub feedback_url: Option<String>,
    /// Which groups of routes there are.
    pub routes: Routes,
    /// What the agent is called and can do, as AG-UI's capabilities.
    pub capabilities: BTreeMap<String, serde_json::Value>,
}

impl Default for AgentSettings {
    fn default() -> Self {
        Self {
            path: "/".into(),
            busy: Busy::default(),
            history: History::default(),
            state_key: None,
            on_disconnect: OnDisconnect::default(),
            forward_headers: Vec::new(),
            timeouts: Timeouts::default(),
            limits: RunLimits::default(),
            ai_sdk_profile: "5".into(),
            ai_sdk_options: Vec::new(),
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

/// Which groups of routes an agent has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say it all")]
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

/// What happens to a run when another one has the thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Busy {
    /// It is refused.
    #[default]
    Reject,
    /// It is tried again so many times before it is refused.
    Wait {
        /// How often.
        retries: u32,
        /// How long after the last try.
        interval: Duration,
    },
    /// It waits for its turn.
    Enqueue {
        /// The longest queue of a thread.
        limit: usize,
    },
    /// The other one is stopped.
    Interrupt,
}

/// Where the conversation comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum History {
    /// What the client sends is the conversation.
    Client,
    /// What is stored is the conversation; of what the client sends, new user and tool messages are added.
    Server,
    /// Both, by message id.
    #[default]
    Merge,
}

/// What becomes of a run whose last reader is gone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnDisconnect {
    /// It goes on; whoever comes back finds it.
    #[default]
    Detach,
    /// It is stopped.
    Cancel,
}

/// How long to wait for an agent; `None` waits for ever.
#[derive(Clone, Copy, Debug)]
pub struct Timeouts {
    /// For the connection.
    pub connect: Option<Duration>,
    /// From the request to the first byte of the answer.
    pub first_byte: Option<Duration>,
    /// From one byte to the next.
    pub idle: Option<Duration>,
    /// For the whole run.
    pub total: Option<Duration>,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            connect: Some(Duration::from_secs(10)),
            // Agents think before they speak.
            first_byte: Some(Duration::from_secs(120)),
            idle: Some(Duration::from_secs(300)),
            total: Some(Duration::from_secs(3600)),
        }
    }
}

/// Bounds on a run.
#[derive(Clone, Copy, Debug)]
pub struct RunLimits {
    /// The most events.
    pub max_events: u64,
    /// The largest frame of the agent's stream.
    pub max_frame: usize,
    /// The most bytes of the log.
    pub max_bytes: u64,
}

impl Default for RunLimits {
    fn default() -> Self {
        // A run of an hour at 200 events a second; at 200 bytes each with room for some large ones.
        Self { max_events: 1_000_000, max_frame: 8 << 20, max_bytes: 512 << 20 }
    }
}
