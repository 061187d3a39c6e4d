//! Agents: the programs that produce the events of runs.
//!
//! An [`Agent`] gets a [`Request`] and an [`EventSink`]. It need not follow the order rules nor close messages and tool
//! calls: the guard behind the sink does. The gateway stops an agent by dropping its future.
//!
//! The simplest agent in Rust is a function with an [`Emitter`], which creates the events: [`agent_fn`].
//!
//! ```
//! use agentwire_gateway::agent::agent_fn;
//!
//! let echo = agent_fn(|request, emit| async move {
//!     emit.text(request.user_text()).await?;
//!     Ok(())
//! });
//! # let _ = echo;
//! ```

mod demo;
mod emitter;
mod native;
pub(crate) mod pattern;
pub(crate) mod snapshot_origin;

use std::{
    any::Any,
    future::Future,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError, atomic::AtomicU64},
};

use agentwire_core::{
    event::{
        Content, Event, Interrupt, InterruptId, Message, MessageBody, ResumeStatus, Role, RunInput,
        ToolCallId,
    },
    json::Json,
};
use agentwire_store::{Owner, ThreadIds};
use bytes::Bytes;
use tokio::{sync::mpsc, time::Instant};

pub use self::{
    demo::Demo,
    emitter::{
        Activity, BoxError, EmitError, Emitter, NewSubagent, Question, Reasoning, State, Step, Subagent,
        TextMessage, ToolCallEmitter, agent_fn, emitting,
    },
    native::{NativeData, NativeEvent, NativeHooks, Translated, Translation},
};
use crate::{
    auth::UpstreamIdentity,
    error::{Stopped, UpstreamError},
    settings::{RunLimits, Timeouts},
};

/// A future that an object-safe trait can return.
pub type BoxFuture<'f, T> = Pin<Box<dyn Future<Output = T> + Send + 'f>>;

/// A program that produces the events of runs.
pub trait Agent: Send + Sync + 'static {
    /// Executes one run. A run without a terminal event has succeeded when the future returns `Ok`.
    ///
    /// # Errors
    /// When the agent failed; the run then ends with RUN_ERROR.
    ///
    /// # Cancel safety
    /// The future is dropped when the run is stopped, so all resources of the agent must be released by drop.
    fn run(&self, request: Request, sink: EventSink) -> BoxFuture<'static, Result<(), UpstreamError>>;

    /// Cancels the work of a stopped run on the agent's side, if closing the connection does not. The future of the run
    /// was already dropped.
    fn stop(&self, request: Request) -> BoxFuture<'static, ()> {
        let _ = request;
        Box::pin(std::future::ready(()))
    }

    /// True if the agent itself enforces the timeouts `first_byte` and `idle`. Agents that read bytes do: a comment in
    /// a stream is activity, but no event. Otherwise the gateway enforces them by the agent's events. It always enforces
    /// `total`.
    fn enforces_stream_timeouts(&self) -> bool {
        false
    }

    /// True for an agent that speaks HAI. Its state patches may presume containers that only its own page has, so the
    /// gateway creates the missing ones; and RUN_STARTED waits a moment for the message id that the agent gives the run.
    fn speaks_hai(&self) -> bool {
        false
    }

    /// Pauses or resumes a run. The future of a paused run is not polled, so its producer is slowed down by backpressure;
    /// that is [`PauseMode::Soft`]. An agent that can suspend its work does so here and returns [`PauseMode::Hard`]. It
    /// must continue exactly where it stopped.
    fn pause(&self, request: &Request, is_paused: bool) -> PauseMode {
        let _ = (request, is_paused);
        PauseMode::Soft
    }

    /// Reattaches to a run after a crash of the gateway: replays its events from the start and continues to its end,
    /// without a new request to the agent. The events must have the same order as before, so that the gateway can skip
    /// those in its log. `None` if the agent's runs end with their connection.
    fn attach(
        &self,
        request: Request,
        sink: EventSink,
    ) -> Option<BoxFuture<'static, Result<(), UpstreamError>>> {
        let _ = (request, sink);
        None
    }

    /// Loads the history of a thread from the agent's side, for threads that were started without this gateway. Only the
    /// thread and the owner of the request count. `None` if the agent's side stores no threads; the future returns `None`
    /// if the owner has no such thread there.
    fn recall(
        &self,
        request: Request,
    ) -> Option<BoxFuture<'static, Result<Option<Recalled>, UpstreamError>>> {
        let _ = request;
        None
    }

    /// Deletes a thread on the agent's side. `None` if it stores no threads.
    fn forget(&self, request: Request) -> Option<BoxFuture<'static, Result<(), UpstreamError>>> {
        let _ = request;
        None
    }

    /// Tells which of the state keys in `removed` the agent's side stores and cannot remove. `None` if it stores no
    /// state, or can remove every key.
    fn irremovable_keys(
        &self,
        request: Request,
        removed: Vec<String>,
    ) -> Option<BoxFuture<'static, Result<Vec<String>, UpstreamError>>> {
        let _ = (request, removed);
        None
    }

    /// Lists the names of the artifacts of a thread. `None` if this type of agent stores no artifacts.
    fn artifacts(&self, request: Request) -> Option<BoxFuture<'static, Result<Vec<String>, UpstreamError>>> {
        let _ = request;
        None
    }

    /// Loads an artifact in its newest version or a given one; the future returns `None` if there is none.
    fn artifact(
        &self,
        request: Request,
        name: &str,
        version: Option<u64>,
    ) -> Option<BoxFuture<'static, Result<Option<Artifact>, UpstreamError>>> {
        let _ = (request, name, version);
        None
    }
}

/// The history of a thread on the agent's side.
#[derive(Clone, Debug, PartialEq)]
pub struct Recalled {
    /// The conversation.
    pub messages: Vec<Message>,
    /// The state, as user interfaces see it.
    pub state: Json,
    /// The open interrupts.
    pub interrupts: Vec<Interrupt>,
}

/// A file that an agent stored in a thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Artifact {
    /// The media type that the agent declares; not verified.
    pub mime_type: String,
    /// The content.
    pub bytes: Bytes,
}

/// The effect of a pause on the agent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PauseMode {
    /// The gateway does not read from the agent, which is slowed down by backpressure.
    #[default]
    Soft,
    /// The agent is suspended.
    Hard,
}

impl PauseMode {
    /// The name in HTTP responses and events.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Soft => "soft",
            Self::Hard => "hard",
        }
    }
}

/// The time at which a run was last resumed. Timeouts are suspended while a run is paused.
#[derive(Clone, Debug, Default)]
pub struct Pauses(Arc<Mutex<Option<Instant>>>);

impl Pauses {
    pub(crate) fn resume(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
    }

    /// The start of a wait that began at `since`, without the time of a pause.
    #[must_use]
    pub fn since(&self, since: Instant) -> Instant {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).map_or(since, |resumed| resumed.max(since))
    }
}

/// Data of the app that a request came through, for its agents and hooks. As an extension of a request, it is passed on to
/// the run that the request starts; a run that is taken up again has none.
#[derive(Clone, Debug)]
pub struct RequestContext(pub Arc<dyn Any + Send + Sync>);

/// The request of a run to its agent. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Request {
    /// The run input: messages, state, the client's tools, resume entries.
    pub input: Arc<RunInput>,
    /// The owner of the thread.
    pub owner: Owner,
    /// The name of the agent.
    pub agent: Arc<str>,
    /// The form of the ids of the thread and the run on the agent's side; `None` for a thread of an earlier version.
    pub thread_ids: Option<ThreadIds>,
    /// True if the gateway can have more than one user, by its configuration.
    pub has_users: bool,
    /// The signature of the header that tells the agent's server who asks.
    pub upstream_identity: Option<UpstreamIdentity>,
    /// Separates the thread from one of another agent that has the same id on the same server; mostly absent.
    pub upstream_scope: Option<Arc<str>>,
    /// Headers to pass on, with names in lower case: those of the allowlist, and `traceparent`.
    pub headers: Arc<[(String, String)]>,
    /// The timeouts; see [`Agent::enforces_stream_timeouts`].
    pub timeouts: Timeouts,
    /// The limits. The gateway counts events and bytes of the log; `max_frame` is for upstreams.
    pub limits: RunLimits,
    /// The run's hooks on native events; only upstreams have such events.
    pub native_hooks: Option<Arc<dyn NativeHooks>>,
    /// The pauses of the run.
    pub pauses: Pauses,
    /// The number of native events that could not be interpreted, for the metrics.
    pub unknown_events: Arc<AtomicU64>,
    /// Data of the app that the request came through.
    pub context: Option<RequestContext>,
}

impl Request {
    /// A request with the given input and defaults for all other fields.
    #[must_use]
    pub fn new(input: RunInput) -> Self {
        Self {
            input: Arc::new(input),
            owner: Owner::new("default", "default-user", "agent"),
            agent: "agent".into(),
            thread_ids: Some(ThreadIds::Raw),
            has_users: false,
            upstream_identity: None,
            upstream_scope: None,
            headers: Arc::new([]),
            timeouts: Timeouts::default(),
            limits: RunLimits::default(),
            native_hooks: None,
            pauses: Pauses::default(),
            unknown_events: Arc::default(),
            context: None,
        }
    }

    /// The text of the last user message.
    ///
    /// ```
    /// use agentwire_gateway::{agent::Request, core::event::{Message, RunInput}};
    /// let mut input = RunInput::new("thread", "run");
    /// input.messages.push(Message::user("m1", "hello"));
    /// assert_eq!(Request::new(input).user_text(), "hello");
    /// ```
    #[must_use]
    pub fn user_text(&self) -> String {
        let text = self.input.messages.iter().rev().find_map(|message| match &message.body {
            MessageBody::User { content } => Some(content.text()),
            _ => None,
        });
        text.unwrap_or_default()
    }

    /// The tool results at the end of the conversation, in order: those of the client's tools that the last run called.
    ///
    /// ```
    /// use agentwire_gateway::{agent::Request, core::event::{Content, Message, MessageBody, RunInput}};
    /// let mut input = RunInput::new("thread", "run");
    /// let result = MessageBody::Tool { call: "c1".into(), content: "blue".into(), error: None };
    /// input.messages.push(Message::new("m1", result));
    /// let request = Request::new(input);
    /// let (call, content) = request.tool_results().next().unwrap();
    /// assert_eq!((call.as_str(), content.text()), ("c1", "blue".to_owned()));
    /// ```
    pub fn tool_results(&self) -> impl Iterator<Item = (&ToolCallId, &Content)> {
        let messages = &self.input.messages;
        let first = messages.iter().rposition(|message| message.role() != Role::Tool).map_or(0, |at| at + 1);
        messages[first..].iter().filter_map(|message| match &message.body {
            MessageBody::Tool { call, content, .. } => Some((call, content)),
            _ => None,
        })
    }

    /// The answers to the interrupts of the last run: the interrupt and its payload, `true` for an answer without one,
    /// and `None` for a question that was cancelled.
    ///
    /// ```
    /// use agentwire_gateway::{agent::Request, core::event::{ResumeEntry, ResumeStatus, RunInput}};
    /// let mut input = RunInput::new("thread", "run");
    /// let status = ResumeStatus::Resolved;
    /// input.resume = Some(vec![ResumeEntry { interrupt: "i1".into(), status, payload: None, metadata: None }]);
    /// let request = Request::new(input);
    /// let (interrupt, answer) = request.answers().next().unwrap();
    /// assert_eq!((interrupt.as_str(), answer), ("i1", Some(true.into())));
    /// ```
    pub fn answers(&self) -> impl Iterator<Item = (&InterruptId, Option<serde_json::Value>)> {
        self.input.resume.iter().flatten().map(|entry| {
            let payload = || entry.payload.as_ref().map_or(true.into(), Json::to_value);
            (&entry.interrupt, (entry.status == ResumeStatus::Resolved).then(payload))
        })
    }

    /// A header of the client's request, if the allowlist contains it.
    ///
    /// ```
    /// # use agentwire_gateway::{agent::Request, core::event::RunInput};
    /// let mut request = Request::new(RunInput::new("thread", "run"));
    /// request.headers = [("x-language".to_owned(), "de".to_owned())].into();
    /// assert_eq!(request.header("X-Language"), Some("de"));
    /// ```
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(key, _)| key.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.as_str())
    }
}

/// The reason why the options of an agent are invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct BuildError(pub(crate) String);

/// The sink of an agent's events. Sending waits while the log is behind, so that a fast agent cannot fill the memory.
#[derive(Clone, Debug)]
pub struct EventSink(mpsc::Sender<Event>);

impl EventSink {
    /// A sink and the receiver of its events.
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

    /// Sends all events and empties the list, in as few steps as the capacity allows.
    ///
    /// # Errors
    /// When the run was stopped.
    pub async fn send_all(&self, events: &mut Vec<Event>) -> Result<(), Stopped> {
        let mut events = events.drain(..);
        while events.len() > 0 {
            // One reservation for as many as fit.
            let room = events.len().min(self.0.capacity().max(1));
            let permits = self.0.reserve_many(room).await.map_err(|_| Stopped)?;
            for (permit, event) in permits.zip(&mut events) {
                permit.send(event);
            }
        }
        Ok(())
    }
}
