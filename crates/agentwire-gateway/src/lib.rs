//! The gateway: one place in front of many agents, where runs belong to the gateway and not to a connection.

pub mod agent;
pub mod codes;
mod error;
mod gateway;
pub mod hooks;
mod http;
mod human;
mod metrics;
pub mod ops;
mod run;
pub mod settings;
mod stream;
mod thread;
pub mod upstream;

pub use agentwire_core as core;
pub use agentwire_store as store;

pub use self::{
    error::{ApiError, Truncation, UpstreamError, UpstreamErrorKind, UpstreamTimeout},
    gateway::{AgentConfig, AgentRegistry, Builder, Gateway},
    http::serve,
    ops::instance_lock::InstanceLock,
};

#[cfg(doctest)]
#[doc = include_str!("../../../docs/rust.md")]
struct Guide;
