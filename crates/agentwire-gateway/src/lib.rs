//! The agentwire gateway, as a library: a server between agents and their clients.
//!
//! A client starts a run in AG-UI, HAI or the AI SDK protocol. The gateway passes the request to an agent, validates the
//! events of the run, numbers them and appends them to a log in a [`store`]. Clients read the log in the format of their
//! choice, so a run does not depend on a connection: it continues when its client disconnects, and a client that
//! reconnects resumes at its position. Threads, questions to people, approvals, timeouts and metrics are included.
//!
//! ```no_run
//! use agentwire_gateway::{AgentConfig, Gateway, agent::agent_fn, serve, settings::Settings, store};
//!
//! # async fn run() -> Result<(), Box<dyn std::error::Error>> {
//! let echo = agent_fn(|request, emit| async move {
//!     emit.text(format!("You wrote: {}", request.user_text())).await?;
//!     Ok(())
//! });
//! let store = store::open("sqlite:agentwire.db", store::Options::default()).await?;
//! let gateway = Gateway::builder(store, Settings::default())
//!     .agent("echo", AgentConfig::shared(echo))
//!     .build();
//! let listener = tokio::net::TcpListener::bind("127.0.0.1:7117").await?;
//! serve(gateway, listener, std::future::pending()).await?;
//! # Ok(())
//! # }
//! ```
//!
//! The modules in reading order:
//!
//! 1. [`agent`]: the `Agent` trait, agents as async functions, and the emitter that creates their events.
//! 2. `upstream` (feature `upstreams`): agents in other processes, over HTTP, as commands or in recordings.
//! 3. [`hooks`]: user code around a run, and the hooks of the configuration file.
//! 4. [`settings`]: limits, timeouts, identity of users, and the options of each agent.
//! 5. [`auth`]: principals, scopes, API keys and tokens.
//! 6. [`ops`]: the audit log and its verification.
//!
//! The guide with more examples, such as a gateway within an axum application, is `docs/rust.md` in the repository.

pub mod agent;
pub mod auth;
mod cpu_work;
mod error;
mod gateway;
mod health;
pub mod hooks;
mod http;
mod human;
mod limits;
mod metrics;
pub mod ops;
mod replica;
mod run;
pub mod settings;
mod stream;
mod thread;
mod timestamp;
mod tls;
mod trace;
#[cfg(feature = "upstreams")]
pub mod upstream;
mod wake_set;

/// Properties for the programs in `fuzz/`.
#[cfg(fuzzing)]
#[doc(hidden)]
pub mod fuzzing {
    pub use crate::http::check_any_cursor;
}

pub use agentwire_client::is_loopback;
pub use agentwire_core as core;
pub use agentwire_core::codes;
pub use agentwire_store as store;

pub use self::{
    error::{ApiError, Stopped, Truncation, UpstreamError, UpstreamErrorKind, UpstreamTimeout},
    gateway::{AgentConfig, AgentRegistry, Builder, Gateway},
    http::{Connection, console_routes, routes_without_identity, serve, serve_with_admin},
    ops::instance_lock::InstanceLock,
    timestamp::iso as iso_time,
    tls::TlsError,
};

#[cfg(doctest)]
#[doc = include_str!("../../../docs/rust.md")]
struct Guide;
