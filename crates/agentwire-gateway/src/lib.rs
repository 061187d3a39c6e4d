//! The gateway: one place in front of many agents, where runs belong to the gateway and not to a connection.

mod admit;
mod again;
pub mod agent;
pub mod audit;
pub mod code;
mod conversation;
mod follow;
mod gate;
mod gateway;
mod http;
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

pub use self::{
    gateway::{Builder, Gateway},
    http::serve,
    presence::Presence,
    refusal::Refusal,
};
