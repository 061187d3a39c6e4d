//! What answers runs.
//!
//! An [`Agent`] gets a [`Request`] and an [`Outlet`] for its events. It need not keep the order rules or close what
//! it opened: the guard behind the outlet does. It is stopped by dropping the future that answers.

mod adk;
mod ag_ui;
mod demo;
mod events;
mod exec;
mod http;
mod langgraph;
mod names;
mod openai;
mod replay;
mod stream;
mod template;

use std::{future::Future, pin::Pin, sync::Arc};

use agentwire_core::event::{Event, RunInput};
use agentwire_store::Owner;
use tokio::sync::mpsc;

pub use self::{
    adk::{Adk, AdkOptions},
    ag_ui::{AgUi, AgUiOptions},
    demo::Demo,
    events::{Events, EventsOptions},
    exec::{Exec, ExecOptions},
    langgraph::{LangGraph, LangGraphOptions},
    openai::{OpenAi, OpenAiOptions},
    replay::{Replay, ReplayOptions},
};
use crate::settings::{RunLimits, Timeouts};

/// A future that an object-safe trait can return.
pub type BoxFuture<'f, T> = Pin<Box<dyn Future<Output = T> + Send + 'f>>;

/// Something that answers runs.
pub trait Agent: Send + Sync + 'static {
    /// Answers one run. Returns when the agent has nothing more to say; a run without a terminal event by then
    /// has succeeded.
    ///
    /// # Errors
    /// When the agent failed; the run then ends with RUN_ERROR.
    ///
    /// # Cancel safety
    /// The future is dropped when the run is stopped, so whatever the agent holds must be released by drop.
    fn run(&self, request: Request, outlet: Outlet) -> BoxFuture<'static, Result<(), Failure>>;

    /// The run was stopped on purpose and its future dropped: tells whoever does the work elsewhere, if closing
    /// the connection does not.
    fn stop(&self, request: Request) -> BoxFuture<'static, ()> {
        let _ = request;
        Box::pin(std::future::ready(()))
    }

    /// The gateway died during the run and is back: plays the run again from its beginning, and then to its end,
    /// without asking the agent anew. The events come in the same order as the first time, so what is in the log
    /// already can be skipped by counting. `None` if this agent's runs end with their connection.
    fn attach(&self, request: Request, outlet: Outlet) -> Option<BoxFuture<'static, Result<(), Failure>>> {
        let _ = (request, outlet);
        None
    }
}

/// One run to answer. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Request {
    /// What was asked: the conversation, the state, the tools of the user interface, the answers.
    pub input: Arc<RunInput>,
    /// For whom.
    pub owner: Owner,
    /// Headers to pass on, names in lower case: those that are allowed, and `traceparent`.
    pub headers: Arc<[(String, String)]>,
    /// How long to wait. `total` is watched by the gateway.
    pub timeouts: Timeouts,
    /// What to refuse. Events and bytes of the log are counted by the gateway.
    pub limits: RunLimits,
}

impl Request {
    /// A request with nothing but its input.
    #[must_use]
    pub fn new(input: RunInput) -> Self {
        Self {
            input: Arc::new(input),
            owner: Owner::new("default", "default-user"),
            headers: Arc::new([]),
            timeouts: Timeouts::default(),
            limits: RunLimits::default(),
        }
    }
}

/// Why an agent could not finish a run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Failure {
    /// A stable code; those of the gateway are in [`crate::code`].
    pub code: Box<str>,
    /// For the person at the other end: nothing that the agent's side said unless that is allowed.
    pub message: String,
    /// For the log only: what the agent's side said.
    pub detail: Option<String>,
}

impl Failure {
    /// A failure with nothing for the log.
    #[must_use]
    pub fn new(code: impl Into<Box<str>>, message: impl Into<String>) -> Self {
        Self { code: code.into(), message: message.into(), detail: None }
    }

    /// The same failure with something for the log.
    #[must_use]
    pub fn with_detail(mut self, detail: impl Into<String>) -> Self {
        self.detail = Some(detail.into());
        self
    }
}

/// Why an agent cannot be made from its options.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct BuildError(String);

/// The run was stopped; nobody listens any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the run was stopped")]
pub struct Stopped;

/// Where an agent's events go. Waits while the log is behind, so a fast agent cannot fill the memory.
#[derive(Clone, Debug)]
pub struct Outlet(mpsc::Sender<Event>);

impl Outlet {
    /// An outlet and the end from which its events are taken.
    #[must_use]
    pub fn new(capacity: usize) -> (Self, mpsc::Receiver<Event>) {
        let (sender, receiver) = mpsc::channel(capacity);
        (Self(sender), receiver)
    }

    /// Sends an event.
    ///
    /// # Errors
    /// When the run was stopped.
    pub async fn send(&self, event: impl Into<Event>) -> Result<(), Stopped> {
        self.0.send(event.into()).await.map_err(|_| Stopped)
    }

    /// Sends events in one go, as far as there is room. Empties the list.
    ///
    /// # Errors
    /// When the run was stopped.
    pub async fn send_all(&self, events: &mut Vec<Event>) -> Result<(), Stopped> {
        let mut events = events.drain(..);
        while events.len() > 0 {
            // One look at the channel for as many as fit; only a full one is waited for.
            let room = events.len().min(self.0.capacity().max(1));
            let permits = self.0.reserve_many(room).await.map_err(|_| Stopped)?;
            for (permit, event) in permits.zip(&mut events) {
                permit.send(event);
            }
        }
        Ok(())
    }
}

impl From<Stopped> for Failure {
    fn from(_: Stopped) -> Self {
        Self::new("STOPPED", Stopped.to_string())
    }
}
