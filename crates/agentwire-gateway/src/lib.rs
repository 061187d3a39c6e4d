//! The gateway: one place in front of many agents, where runs belong to the gateway and not to a connection.

pub mod agent;
mod error;
mod gateway;
pub mod hooks;
mod http;
mod human;
mod metrics;
pub mod ops;
mod outbound;
mod run;
pub mod settings;
mod stream;
mod thread;
mod timestamp;
#[cfg(feature = "upstreams")]
pub mod upstream;

pub use agentwire_core as core;
pub use agentwire_core::codes;
pub use agentwire_store as store;

pub use self::{
    error::{ApiError, Stopped, Truncation, UpstreamError, UpstreamErrorKind, UpstreamTimeout},
    gateway::{AgentConfig, AgentRegistry, Builder, Gateway},
    http::serve,
    ops::instance_lock::InstanceLock,
    outbound::is_loopback,
};

#[cfg(doctest)]
#[doc = include_str!("../../../docs/rust.md")]
struct Guide;
