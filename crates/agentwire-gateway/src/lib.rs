//! The gateway: one place in front of many agents, where runs belong to the gateway and not to a connection.

mod admit;
mod again;
pub mod agent;
mod answers;
pub mod audit;
pub mod code;
mod conversation;
mod follow;
mod gate;
mod gateway;
pub mod hooks;
mod http;
mod life;
mod live;
mod log;
mod metrics;
mod opening;
mod pending;
mod presence;
mod refusal;
mod run;
pub mod settings;
mod upkeep;
mod watch;

pub use agentwire_core as core;
pub use agentwire_store as store;

pub use self::{
    gateway::{Builder, Gateway, Roster},
    http::serve,
    presence::Presence,
    refusal::Refusal,
};

#[cfg(doctest)]
#[doc = include_str!("../../../docs/rust.md")]
struct Guide;
