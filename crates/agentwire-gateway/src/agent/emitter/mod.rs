//! The emitter: creates the events of an agent written in Rust.
//!
//! An [`Emitter`] creates ids, start and end events, and the terminal event of the run. A handle that is dropped closes
//! its message, call, step or subagent, so that `?` may return at any point. All events pass through one queue in the
//! order of their creation, over all tasks; the end events of dropped handles too, even if the agent never awaits again.

mod call;
mod document;
mod error;
mod function;
mod question;
mod span;
#[cfg(test)]
mod tests;
mod text;

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use agentwire_core::{
    event::{
        Body, Citation, Event, File, Interrupt, MediaKind, MessageId, Outcome, PartSource, RunFinished,
        RunInput, SubagentId, ToolCallId, Usage,
    },
    json::{Json, Unfit},
};
use serde_json::Value;
use tokio::sync::Notify;

pub use self::{
    call::ToolCallEmitter,
    document::{Activity, State},
    error::{BoxError, EmitError},
    function::{agent_fn, emitting},
    question::Question,
    span::{NewSubagent, Step, Subagent},
    text::{Reasoning, TextMessage},
};
use super::{EventSink, Request};
use crate::error::Stopped;

/// Emits the events of one run. Cheap to clone; several tasks may use clones at the same time.
///
/// Methods that send wait while the log is behind, so that a fast agent cannot fill the memory, and fail when the run was
/// stopped. Ids consist of the run id and a counter, so a repeated run has the same ids.
///
/// ```
/// # use agentwire_gateway::agent::{agent_fn, Question};
/// # use serde_json::json;
/// agent_fn(|request, emit| async move {
///     emit.reasoning("What was asked?").await?;
///     let step = emit.step("search").await?;
///     let call = emit.call("search", json!({"for": request.user_text()})).await?;
///     call.result("3 hits").await?;
///     drop(step);
///     emit.state().set("/hits", 3).await?;
///     let mut message = emit.message();
///     message.push("There are ").await?;
///     message.push("3 hits.").await?;
///     emit.interrupt(Question::new("Shall I continue?"));
///     Ok(())
/// });
/// ```
#[derive(Clone)]
pub struct Emitter {
    run: Arc<EmitterRun>,
    /// The subagent whose events these are; none for the agent itself.
    subagent: Option<SubagentId>,
}

/// The data that all emitters of a run share.
struct EmitterRun {
    sink: EventSink,
    input: Arc<RunInput>,
    /// The number of ids created so far.
    id_count: AtomicU64,
    state: Mutex<EmitterState>,
    /// Notified when events are queued that no task sends.
    unsent: Notify,
}

/// The mutable data of a run.
#[derive(Default)]
struct EmitterState {
    /// Events that are not sent yet: at most one per waiting task, and those of dropped handles.
    queue: VecDeque<Event>,
    /// The shared state as this run has it; read from the request on first use.
    shared: Option<Value>,
    /// The number of open steps per name: clients identify a step by its name, so a nested one of the same name is the same.
    steps: BTreeMap<(Option<SubagentId>, Box<str>), usize>,
    /// The contents of the terminal event.
    pending: Vec<ToolCallId>,
    interrupts: Vec<Interrupt>,
    usage: Vec<Usage>,
    result: Option<Json>,
}

impl std::fmt::Debug for Emitter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Emitter")
            .field("run", &self.run.input.run)
            .field("subagent", &self.subagent)
            .finish_non_exhaustive()
    }
}

impl Emitter {
    fn new(request: &Request, sink: EventSink) -> Self {
        let run = EmitterRun {
            sink,
            input: request.input.clone(),
            id_count: AtomicU64::new(0),
            state: Mutex::default(),
            unsent: Notify::new(),
        };
        Self { run: Arc::new(run), subagent: None }
    }

    /// Emits a text as one message.
    ///
    /// ```
    /// # use agentwire_gateway::agent::agent_fn;
    /// agent_fn(|_, emit| async move {
    ///     emit.text("Hello.").await?;
    ///     Ok(())
    /// });
    /// ```
    ///
    /// # Errors
    /// When the run was stopped.
    pub async fn text(&self, text: impl Into<Box<str>>) -> Result<MessageId, EmitError> {
        let mut message = self.message();
        message.push(text).await?;
        message.end().await
    }

    /// A message whose text is streamed; see [`TextMessage`].
    #[must_use]
    pub fn message(&self) -> TextMessage {
        TextMessage::new(self)
    }

    /// Emits a reasoning text as one message.
    ///
    /// ```
    /// # use agentwire_gateway::agent::agent_fn;
    /// agent_fn(|_, emit| async move {
    ///     emit.reasoning("First the question, then the answer.").await?;
    ///     Ok(())
    /// });
    /// ```
    ///
    /// # Errors
    /// When the run was stopped.
    pub async fn reasoning(&self, text: impl Into<Box<str>>) -> Result<MessageId, EmitError> {
        let mut reasoning = self.thought();
        reasoning.push(text).await?;
        reasoning.end().await
    }

    /// A reasoning message whose text is streamed; see [`Reasoning`].
    #[must_use]
    pub fn thought(&self) -> Reasoning {
        Reasoning::new(self)
    }

    /// Emits a tool call with its arguments; its result is emitted by the [`ToolCallEmitter`].
    ///
    /// # Errors
    /// When the run was stopped or the arguments are nested too deeply.
    pub async fn call(&self, tool: &str, arguments: impl Into<Value>) -> Result<ToolCallEmitter, EmitError> {
        ToolCallEmitter::whole(self, tool, None, &arguments.into()).await
    }

    /// Starts a tool call whose arguments are streamed; see [`ToolCallEmitter::push`].
    ///
    /// # Errors
    /// When the run was stopped.
    pub async fn open_call(&self, tool: &str) -> Result<ToolCallEmitter, EmitError> {
        ToolCallEmitter::open(self, tool, None).await
    }

    /// Calls a tool of the client. The run ends with the call pending; the result is in the messages of the next run:
    /// [`Request::tool_results`].
    ///
    /// ```
    /// # use agentwire_gateway::agent::agent_fn;
    /// # use serde_json::json;
    /// agent_fn(|request, emit| async move {
    ///     match request.tool_results().last() {
    ///         Some((_, colour)) => emit.text(format!("You chose {}.", colour.text())).await?,
    ///         None => {
    ///             emit.front_end_call("pickColour", json!({"colours": ["red", "blue"]})).await?;
    ///             return Ok(());
    ///         }
    ///     };
    ///     Ok(())
    /// });
    /// ```
    ///
    /// # Errors
    /// When the run was stopped or the arguments are nested too deeply.
    pub async fn front_end_call(
        &self,
        tool: &str,
        arguments: impl Into<Value>,
    ) -> Result<ToolCallId, EmitError> {
        Ok(self.call(tool, arguments).await?.leave_open())
    }

    /// The state that the agent shares with the client; see [`State`].
    #[must_use]
    pub fn state(&self) -> State {
        State::new(self)
    }

    /// Emits an activity: structured content among the messages that can be changed later; see [`Activity`].
    ///
    /// # Errors
    /// When the run was stopped, or the content is not an object or nested too deeply.
    pub async fn activity(&self, kind: &str, content: impl Into<Value>) -> Result<Activity, EmitError> {
        Activity::show(self, kind, content.into()).await
    }

    /// Emits an event of the application.
    ///
    /// ```
    /// # use agentwire_gateway::agent::agent_fn;
    /// # use serde_json::json;
    /// agent_fn(|_, emit| async move {
    ///     emit.custom("shop.basket", json!({"items": 3})).await?;
    ///     Ok(())
    /// });
    /// ```
    ///
    /// # Errors
    /// When the run was stopped or the value is nested too deeply.
    pub async fn custom(&self, name: &str, value: impl Into<Value>) -> Result<(), EmitError> {
        let value = checked_json(&value.into())?;
        self.emit(Body::Custom { name: name.into(), value }).await
    }

    /// Starts a step, which ends when the returned handle is dropped; see [`Step`].
    ///
    /// # Errors
    /// When the run was stopped.
    pub async fn step(&self, name: &str) -> Result<Step, EmitError> {
        Step::begin(self, name).await
    }

    /// A new subagent; see [`Subagent`].
    pub fn subagent(&self, name: &str) -> NewSubagent {
        NewSubagent::new(self, name)
    }

    /// Emits a source, such as a cited page. [`TextMessage::source`] links it to a message.
    ///
    /// ```
    /// # use agentwire_gateway::agent::agent_fn;
    /// agent_fn(|_, emit| async move {
    ///     emit.source("https://example.com/paper", "A paper").await?;
    ///     Ok(())
    /// });
    /// ```
    ///
    /// # Errors
    /// When the run was stopped.
    pub async fn source(&self, url: &str, title: &str) -> Result<MessageId, EmitError> {
        self.source_of(None, url, title).await
    }

    /// Emits a file, such as an image or a document. [`TextMessage::file`] links it to a message.
    ///
    /// ```
    /// # use agentwire_gateway::{agent::agent_fn, core::event::PartSource};
    /// agent_fn(|_, emit| async move {
    ///     let mime_type = Some("application/pdf".into());
    ///     emit.file(PartSource::Url { value: "https://example.com/a.pdf".into(), mime_type }, Some("a.pdf")).await?;
    ///     Ok(())
    /// });
    /// ```
    ///
    /// # Errors
    /// When the run was stopped.
    pub async fn file(&self, source: PartSource, name: Option<&str>) -> Result<MessageId, EmitError> {
        self.file_of(None, source, name).await
    }

    /// Asks a person. The run ends with this interrupt when the agent returns; the answer is in [`RunInput::resume`] of the
    /// next run. See [`Question`].
    pub fn interrupt(&self, question: Question) -> agentwire_core::event::InterruptId {
        let interrupt = question.into_interrupt(self.id("i").into(), self.subagent.clone());
        let id = interrupt.id.clone();
        self.state_mut().interrupts.push(interrupt);
        id
    }

    /// Reports token usage, which is part of the terminal event.
    ///
    /// ```
    /// # use agentwire_gateway::{agent::agent_fn, core::event::Usage};
    /// agent_fn(|_, emit| async move {
    ///     emit.usage(Usage { model: Some("small".into()), input: Some(10), output: Some(4), ..Usage::default() });
    ///     Ok(())
    /// });
    /// ```
    pub fn usage(&self, usage: Usage) {
        self.state_mut().usage.push(usage);
    }

    /// Sets the result of the run, which is part of the terminal event.
    ///
    /// ```
    /// # use agentwire_gateway::agent::agent_fn;
    /// agent_fn(|_, emit| async move {
    ///     emit.result("42")?;
    ///     Ok(())
    /// });
    /// ```
    ///
    /// # Errors
    /// When the value is nested too deeply.
    pub fn result(&self, value: impl Into<Value>) -> Result<(), EmitError> {
        let value = checked_json(&value.into())?;
        // The event model has no `null` here.
        self.state_mut().result = Some(value).filter(|value| !value.is_null());
        Ok(())
    }

    /// Sends any event. The caller is responsible for the order rules; the gateway repairs violations.
    ///
    /// ```
    /// # use agentwire_gateway::{agent::agent_fn, core::event::Body};
    /// agent_fn(|_, emit| async move {
    ///     emit.send(Body::FinishReason { message: None, reason: "stop".into() }).await?;
    ///     Ok(())
    /// });
    /// ```
    ///
    /// # Errors
    /// When the run was stopped.
    pub async fn send(&self, event: impl Into<Event>) -> Result<(), EmitError> {
        self.state_mut().queue.push_back(event.into());
        Ok(self.flush().await?)
    }

    async fn source_of(
        &self,
        message: Option<MessageId>,
        url: &str,
        title: &str,
    ) -> Result<MessageId, EmitError> {
        let id = MessageId::from(self.id("q"));
        let source = Citation {
            id: id.clone(),
            message,
            url: Some(url.into()),
            title: Some(title.into()),
            media_type: None,
            filename: None,
            detail: None,
        };
        self.emit(Body::Citation(Box::new(source))).await?;
        Ok(id)
    }

    async fn file_of(
        &self,
        message: Option<MessageId>,
        source: PartSource,
        name: Option<&str>,
    ) -> Result<MessageId, EmitError> {
        let id = MessageId::from(self.id("f"));
        let kind = source.mime_type().map_or(MediaKind::Document, MediaKind::of_mime);
        let file = File { id: id.clone(), message, kind, source, name: name.map(Into::into) };
        self.emit(Body::File(Box::new(file))).await?;
        Ok(id)
    }

    /// An id that is unique in the thread.
    fn id(&self, prefix: &str) -> String {
        let count = self.run.id_count.fetch_add(1, Ordering::Relaxed) + 1;
        format!("{}:{prefix}{count}", self.run.input.run)
    }

    fn state_mut(&self) -> MutexGuard<'_, EmitterState> {
        self.run.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn event(&self, body: Body) -> Event {
        Event::new(body).by(self.subagent.clone())
    }

    /// Queues an event; the next [`Emitter::flush`] sends it.
    fn queue(&self, body: Body) {
        let event = self.event(body);
        self.state_mut().queue.push_back(event);
    }

    async fn emit(&self, body: Body) -> Result<(), EmitError> {
        self.queue(body);
        Ok(self.flush().await?)
    }

    /// Sends the queued events.
    ///
    /// # Cancel safety
    /// Unsent events stay queued and precede the next event.
    async fn flush(&self) -> Result<(), Stopped> {
        while !self.state_mut().queue.is_empty() {
            let room = match self.run.sink.0.reserve().await {
                Ok(room) => room,
                Err(_) => {
                    self.state_mut().queue.clear();
                    return Err(Stopped);
                }
            };
            // Under the lock, so that no other task with a permit overtakes it.
            let mut state = self.state_mut();
            if let Some(event) = state.queue.pop_front() {
                room.send(event);
            }
        }
        Ok(())
    }

    /// Sends the end events of a dropped handle: now if there is room, else as soon as there is.
    fn send_later(&self, bodies: impl IntoIterator<Item = Body>) {
        let mut state = self.state_mut();
        state.queue.extend(bodies.into_iter().map(|body| self.event(body)));
        while !state.queue.is_empty()
            && let Ok(room) = self.run.sink.0.try_reserve()
        {
            if let Some(event) = state.queue.pop_front() {
                room.send(event);
            }
        }
        if self.run.sink.0.is_closed() {
            state.queue.clear();
        } else if !state.queue.is_empty() {
            self.run.unsent.notify_one();
        }
    }

    /// Emits the terminal event.
    async fn finish(&self) -> Result<(), Stopped> {
        {
            let mut state = self.state_mut();
            let input = &self.run.input;
            let mut finished = RunFinished::new(input.thread.clone(), input.run.clone());
            let (pending, interrupts) =
                (std::mem::take(&mut state.pending), std::mem::take(&mut state.interrupts));
            finished.outcome = if !interrupts.is_empty() {
                Some(Outcome::Interrupt { interrupts })
            } else if !pending.is_empty() {
                Some(Outcome::Success { pending })
            } else {
                None
            };
            finished.usage = std::mem::take(&mut state.usage);
            finished.result = state.result.take();
            state.queue.push_back(Event::new(Body::RunFinished(Box::new(finished))));
        }
        self.flush().await
    }
}

/// The value as JSON text. Checked, because a program can nest a value deeper than any peer can read.
fn checked_json(value: &Value) -> Result<Json, Unfit> {
    Json::parse(&value.to_string())
}
