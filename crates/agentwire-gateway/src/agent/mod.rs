//! What answers runs.
//!
//! An [`Agent`] gets the request and an [`Outlet`] for its events. It need not keep the order rules, close what
//! it opened or end the run: the guard behind the outlet does. It is stopped by closing the outlet.

mod demo;

use std::{future::Future, pin::Pin, sync::Arc};

use agentwire_core::event::{Event, RunInput};
use tokio::sync::mpsc;

pub use self::demo::Demo;

/// A future that an object-safe trait can return.
pub type BoxFuture<'f, T> = Pin<Box<dyn Future<Output = T> + Send + 'f>>;

/// Something that answers runs.
pub trait Agent: Send + Sync + 'static {
    /// Answers one run. Returns when the agent has nothing more to say.
    ///
    /// # Errors
    /// When the agent failed; the run then ends with RUN_ERROR.
    ///
    /// # Cancel safety
    /// The future is dropped when the run is stopped, so whatever the agent holds must be released by drop.
    fn run(&self, input: Arc<RunInput>, outlet: Outlet) -> BoxFuture<'static, Result<(), Failure>>;
}

/// Why an agent could not finish a run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Failure {
    /// A stable code.
    pub code: &'static str,
    /// For a person.
    pub message: String,
}

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
}

impl From<Stopped> for Failure {
    fn from(_: Stopped) -> Self {
        Self { code: "STOPPED", message: Stopped.to_string() }
    }
}
