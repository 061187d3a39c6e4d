//! Upstreams: the connection types through which the gateway reaches agents, over HTTP, as commands or in recordings.
//!
//! ```
//! use agentwire_gateway::upstream::{AgUi, AgUiOptions};
//!
//! let options = AgUiOptions { url: "http://localhost:9000/run".into(), ..AgUiOptions::default() };
//! let agent = AgUi::new(options)?;
//! # let _ = agent;
//! # Ok::<(), agentwire_gateway::agent::BuildError>(())
//! ```

mod adk;
mod ag_ui;
mod decode;
mod events;
mod exec;
mod hai;
mod http;
mod langgraph;
mod local;
mod model;
mod replay;
mod template;
mod thread_names;
mod timeouts;

pub use self::{
    adk::{Adk, AdkOptions},
    ag_ui::{AgUi, AgUiOptions},
    events::{Events, EventsOptions},
    exec::{Exec, ExecOptions},
    hai::{Hai, HaiOptions},
    langgraph::{LangGraph, LangGraphOptions},
    local::{Local, LocalCall, LocalResponse, LocalStream, StreamAgent, stream_fn},
    model::{Model, ModelApi, ModelOptions},
    replay::{Replay, ReplayOptions},
    template::check as check_template,
};
