//! What answers runs.
//!
//! An [`Agent`] gets a [`Request`] and an [`EventSink`] for its events. It need not keep the order rules or close what
//! it opened: the guard behind the sink does. It is stopped by dropping the future that answers.
//!
//! An agent in Rust is most easily a function with an [`Emitter`], which makes the events: [`agent_fn`].

mod demo;
mod emitter;
mod native;
pub(crate) mod pattern;

use std::{
    future::Future,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
};

use agentwire_core::{
    event::{Content, Event, Interrupt, Message, MessageBody, Role, RunInput, ToolCallId},
    json::Json,
};
use agentwire_store::Owner;
use bytes::Bytes;
use tokio::{sync::mpsc, time::Instant};

pub use self::{
    demo::Demo,
    emitter::{
        Activity, BoxError, EmitError, Emitter, NewSubagent, Question, Reasoning, State, Step, Subagent,
        TextMessage, ToolCallEmitter, agent_fn, emitting,
    },
    native::{NativeData, NativeEvent, NativeHooks, Translation},
};
use crate::{
    error::UpstreamError,
    settings::{RunLimits, Timeouts},
};

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
    fn run(&self, request: Request, sink: EventSink) -> BoxFuture<'static, Result<(), UpstreamError>>;

    /// The run was stopped on purpose and its future dropped: tells whoever does the work elsewhere, if closing
    /// the connection does not.
    fn stop(&self, request: Request) -> BoxFuture<'static, ()> {
        let _ = request;
        Box::pin(std::future::ready(()))
    }

    /// Whether the agent itself watches `first_byte` and `idle`, as those do that read bytes: a comment is a sign of
    /// life and no event. Otherwise the gateway does, by the agent's events. It always watches `total`.
    fn enforces_stream_timeouts(&self) -> bool {
        false
    }

    /// A person holds the run, or lets it go on. The future that answers is not polled while a run is held, so whoever
    /// sends to it is slowed down once what was sent is not taken; that is [`PauseMode::Soft`]. An agent that can do more, and
    /// stops to work altogether, does so here and says [`PauseMode::Hard`]. It must go on exactly where it was.
    fn pause(&self, request: &Request, is_paused: bool) -> PauseMode {
        let _ = (request, is_paused);
        PauseMode::Soft
    }

    /// The gateway died during the run and is back: plays the run again from its beginning, and then to its end,
    /// without asking the agent anew. The events come in the same order as the first time, so what is in the log
    /// already can be skipped by counting. `None` if this agent's runs end with their connection.
    fn attach(
        &self,
        request: Request,
        sink: EventSink,
    ) -> Option<BoxFuture<'static, Result<(), UpstreamError>>> {
        let _ = (request, sink);
        None
    }

    /// What the agent's side holds of a thread, so that one that was begun without this gateway is not empty here.
    /// Of the request only the thread and the owner count. `None` if it holds nothing; the answer is `None` if it
    /// knows no such thread of that owner.
    fn recall(
        &self,
        request: Request,
    ) -> Option<BoxFuture<'static, Result<Option<Recalled>, UpstreamError>>> {
        let _ = request;
        None
    }

    /// A thread was deleted: the agent's side forgets it too. `None` if it holds nothing.
    fn forget(&self, request: Request) -> Option<BoxFuture<'static, Result<(), UpstreamError>>> {
        let _ = request;
        None
    }

    /// The names of what the agent has stored in a thread beside the conversation. `None` if this kind of agent
    /// stores nothing.
    fn artifacts(&self, request: Request) -> Option<BoxFuture<'static, Result<Vec<String>, UpstreamError>>> {
        let _ = request;
        None
    }

    /// One of them, in its newest version or a given one; the answer is `None` if there is no such thing.
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

/// What an agent's side holds of a thread.
#[derive(Clone, Debug, PartialEq)]
pub struct Recalled {
    /// The conversation.
    pub messages: Vec<Message>,
    /// The state, as user interfaces see it.
    pub state: Json,
    /// What waits for an answer there.
    pub interrupts: Vec<Interrupt>,
}

/// Something that an agent has stored under a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Artifact {
    /// What it is; anybody's word.
    pub mime_type: String,
    /// Its bytes.
    pub bytes: Bytes,
}

/// How much of a run is held.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PauseMode {
    /// The agent is not listened to, and slowed down by that.
    #[default]
    Soft,
    /// The agent does nothing.
    Hard,
}

impl PauseMode {
    /// As the answer to a request to hold says it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Soft => "soft",
            Self::Hard => "hard",
        }
    }
}

/// When a held run was last let go on: time in which nobody listened is not the agent's.
#[derive(Clone, Debug, Default)]
pub struct Pauses(Arc<Mutex<Option<Instant>>>);

impl Pauses {
    pub(crate) fn end(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
    }

    /// From when on the agent's time counts that would count from `since`.
    #[must_use]
    pub fn since(&self, since: Instant) -> Instant {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).map_or(since, |ended| ended.max(since))
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
    /// How long to wait. The gateway watches the time, except as [`Agent::enforces_stream_timeouts`] says.
    pub timeouts: Timeouts,
    /// What to refuse. Events and bytes of the log are counted by the gateway.
    pub limits: RunLimits,
    /// The run's hooks on native events; only upstreams have such events.
    pub native_hooks: Option<Arc<dyn NativeHooks>>,
    /// When it was held.
    pub pauses: Pauses,
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
            native_hooks: None,
            pauses: Pauses::default(),
        }
    }

    /// What the user said last, as text.
    ///
    /// ```
    /// use agentwire_gateway::{agent::Request, core::event::{Message, RunInput}};
    /// let mut input = RunInput::new("thread", "run");
    /// input.messages.push(Message::user("m1", "hello"));
    /// assert_eq!(Request::new(input).user_text(), "hello");
    /// ```
    #[must_use]
    pub fn user_text(&self) -> String {
        let said = self.input.messages.iter().rev().find_map(|message| match &message.body {
            MessageBody::User { content } => Some(content.text()),
            _ => None,
        });
        said.unwrap_or_default()
    }

    /// What tools of the user interface returned since the agent spoke last, in order.
    ///
    /// ```
    /// use agentwire_gateway::{agent::Request, core::event::{Content, Message, MessageBody, RunInput}};
    /// let mut input = RunInput::new("thread", "run");
    /// let answer = MessageBody::Tool { call: "c1".into(), content: "blue".into(), error: None };
    /// input.messages.push(Message::new("m1", answer));
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

    /// A header of the request, if it may be passed on.
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

/// Why an agent cannot be made from its options.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct BuildError(pub(crate) String);

/// The run was stopped; nobody listens any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the run was stopped")]
pub struct Stopped;

/// Where an agent's events go. Waits while the log is behind, so a fast agent cannot fill the memory.
#[derive(Clone, Debug)]
pub struct EventSink(mpsc::Sender<Event>);

impl EventSink {
    /// An sink and the end from which its events are taken.
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

/// The tool calls whose results end a conversation, the last first: the results that a client sends stand there.
pub(crate) fn answered_calls(messages: &[Message]) -> impl Iterator<Item = &ToolCallId> {
    let is_end = |message: &&Message| matches!(message.role(), Role::Tool | Role::Activity | Role::Reasoning);
    messages.iter().rev().take_while(is_end).filter_map(|message| match &message.body {
        MessageBody::Tool { call, .. } => Some(call),
        _ => None,
    })
}
