//! Upstreams: the agents that the gateway reaches over HTTP, as commands or in recordings.

mod adk;
mod ag_ui;
mod decode;
mod direct;
mod events;
mod exec;
mod http;
mod langgraph;
mod openai;
mod replay;
mod template;
mod thread_names;

pub use self::{
    adk::{Adk, AdkOptions},
    ag_ui::{AgUi, AgUiOptions},
    events::{Events, EventsOptions},
    exec::{Exec, ExecOptions},
    langgraph::{LangGraph, LangGraphOptions},
    openai::{OpenAi, OpenAiOptions},
    replay::{Replay, ReplayOptions},
    template::check as check_template,
};
