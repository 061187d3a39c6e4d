//! How an agent in Rust speaks: it says what it means, and the events follow.
//!
//! An [`Emitter`] makes the ids, opens and closes what must be opened and closed, and gives the run its ending. What is
//! still open when a handle is dropped is closed then, so that there is nothing to close by hand and `?` may leave at
//! any point. All events pass through one queue in the order in which they were made, whoever made them; what a dropped
//! handle owes goes the same way, if need be without the agent's doing.

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
        Body, Event, File, Interrupt, MediaKind, MessageId, Outcome, PartSource, RunFinished, RunInput,
        Source, SubagentId, ToolCallId, Usage,
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
use super::{EventSink, Request, Stopped};

/// Takes what an agent says during one run. Cheap to clone; clones may be used by several tasks at once.
///
/// Every method that sends waits while the log is behind, so that a fast agent cannot fill the memory, and fails when the
/// run was stopped. Ids derive from the run's id and a count, so the same answers give the same ids.
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
///     emit.interrupt(Question::new("Shall I go on?"));
///     Ok(())
/// });
/// ```
#[derive(Clone)]
pub struct Emitter {
    run: Arc<Run>,
    /// Who speaks, unless it is the agent itself.
    subagent: Option<SubagentId>,
}

/// What all emitters of a run share.
struct Run {
    sink: EventSink,
    input: Arc<RunInput>,
    /// How many ids were made.
    made: AtomicU64,
    book: Mutex<Book>,
    /// Told when something is queued and nobody waits until it is sent.
    owing: Notify,
}

/// What changes during a run.
#[derive(Default)]
struct Book {
    /// Made and not sent yet. As short as there are tasks that wait, and handles that were dropped meanwhile.
    queue: VecDeque<Event>,
    /// The state as far as this run knows it; read from the request when it is first needed.
    state: Option<Value>,
    /// How often each step is open: clients know a step by its name, so an inner one of the same name is the same.
    steps: BTreeMap<(Option<SubagentId>, Box<str>), usize>,
    /// What the run ends with.
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
        let run = Run {
            sink,
            input: request.input.clone(),
            made: AtomicU64::new(0),
            book: Mutex::default(),
            owing: Notify::new(),
        };
        Self { run: Arc::new(run), subagent: None }
    }

    /// Says a text as one message.
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

    /// A message to be said piece by piece; see [`TextMessage`].
    #[must_use]
    pub fn message(&self) -> TextMessage {
        TextMessage::new(self)
    }

    /// Says what the agent thinks, as one piece.
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

    /// A thought to be said piece by piece; see [`Reasoning`].
    #[must_use]
    pub fn thought(&self) -> Reasoning {
        Reasoning::new(self)
    }

    /// Tells that a tool is called with these arguments; the result goes to the [`Call`].
    ///
    /// # Errors
    /// When the run was stopped or the arguments are nested too deep.
    pub async fn call(&self, tool: &str, arguments: impl Into<Value>) -> Result<ToolCallEmitter, EmitError> {
        ToolCallEmitter::whole(self, tool, None, &arguments.into()).await
    }

    /// Tells that a tool is called whose arguments come piece by piece, as models write them; see [`Call::push`].
    ///
    /// # Errors
    /// When the run was stopped.
    pub async fn open_call(&self, tool: &str) -> Result<ToolCallEmitter, EmitError> {
        ToolCallEmitter::open(self, tool, None).await
    }

    /// Calls a tool that the user interface runs. The run ends with the call open; the result is in the messages of the
    /// next run: [`Request::tool_results`].
    ///
    /// ```
    /// # use agentwire_gateway::agent::agent_fn;
    /// # use serde_json::json;
    /// agent_fn(|request, emit| async move {
    ///     match request.tool_results().last() {
    ///         Some((_, answer)) => emit.text(format!("You chose {}.", answer.text())).await?,
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
    /// When the run was stopped or the arguments are nested too deep.
    pub async fn front_end_call(
        &self,
        tool: &str,
        arguments: impl Into<Value>,
    ) -> Result<ToolCallId, EmitError> {
        Ok(self.call(tool, arguments).await?.leave_open())
    }

    /// The state that the agent shares with the user interface; see [`State`].
    #[must_use]
    pub fn state(&self) -> State {
        State::new(self)
    }

    /// Shows something structured among the messages, to be changed while it is shown; see [`Activity`].
    ///
    /// # Errors
    /// When the run was stopped, or the content is no object or nested too deep.
    pub async fn activity(&self, kind: &str, content: impl Into<Value>) -> Result<Activity, EmitError> {
        Activity::show(self, kind, content.into()).await
    }

    /// Sends an event of the application's own.
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
    /// When the run was stopped or the value is nested too deep.
    pub async fn custom(&self, name: &str, value: impl Into<Value>) -> Result<(), EmitError> {
        let value = fit(&value.into())?;
        self.emit(Body::Custom { name: name.into(), value }).await
    }

    /// Begins a step, which lasts as long as what is returned; see [`Step`].
    ///
    /// # Errors
    /// When the run was stopped.
    pub async fn step(&self, name: &str) -> Result<Step, EmitError> {
        Step::begin(self, name).await
    }

    /// A subagent that does a part of the work; see [`Subagent`].
    pub fn subagent(&self, name: &str) -> NewSubagent {
        NewSubagent::new(self, name)
    }

    /// Names a source that supports the answer. [`TextMessage::source`] says which message it belongs to.
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

    /// Gives the user interface a file: an image, a document, … [`TextMessage::file`] says which message it belongs to.
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

    /// Asks a person. The run ends with the question when the agent returns; the answer is in the next run's
    /// [`RunInput::resume`]. See [`Question`].
    pub fn interrupt(&self, question: Question) -> agentwire_core::event::InterruptId {
        let interrupt = question.into_interrupt(self.id("i").into(), self.subagent.clone());
        let id = interrupt.id.clone();
        self.book().interrupts.push(interrupt);
        id
    }

    /// Says what the run has cost; told when it ends.
    ///
    /// ```
    /// # use agentwire_gateway::{agent::agent_fn, core::event::Usage};
    /// agent_fn(|_, emit| async move {
    ///     emit.usage(Usage { model: Some("small".into()), input: Some(10), output: Some(4), ..Usage::default() });
    ///     Ok(())
    /// });
    /// ```
    pub fn usage(&self, usage: Usage) {
        self.book().usage.push(usage);
    }

    /// Says what the run returns, beside what it says; told when it ends.
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
    /// When the value is nested too deep.
    pub fn result(&self, value: impl Into<Value>) -> Result<(), EmitError> {
        let value = fit(&value.into())?;
        // The model has no `null` here.
        self.book().result = Some(value).filter(|value| !value.is_null());
        Ok(())
    }

    /// Sends any event. It is the caller's to keep the rules of order; the gateway repairs what does not.
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
        self.book().queue.push_back(event.into());
        Ok(self.settle().await?)
    }

    async fn source_of(
        &self,
        message: Option<MessageId>,
        url: &str,
        title: &str,
    ) -> Result<MessageId, EmitError> {
        let id = MessageId::from(self.id("q"));
        let source = Source {
            id: id.clone(),
            message,
            url: Some(url.into()),
            title: Some(title.into()),
            media_type: None,
            filename: None,
            detail: None,
        };
        self.emit(Body::Source(Box::new(source))).await?;
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

    /// An id that nothing else in the thread has.
    fn id(&self, what: &str) -> String {
        let count = self.run.made.fetch_add(1, Ordering::Relaxed) + 1;
        format!("{}:{what}{count}", self.run.input.run)
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        self.run.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn event(&self, body: Body) -> Event {
        Event::new(body).by(self.subagent.clone())
    }

    /// Puts an event in its place; it is sent by the next [`Emitter::settle`].
    fn queue(&self, body: Body) {
        let event = self.event(body);
        self.book().queue.push_back(event);
    }

    async fn emit(&self, body: Body) -> Result<(), EmitError> {
        self.queue(body);
        Ok(self.settle().await?)
    }

    /// Sends what is queued.
    ///
    /// # Cancel safety
    /// What has not been sent by then stays queued and goes before the next event.
    async fn settle(&self) -> Result<(), Stopped> {
        while !self.book().queue.is_empty() {
            let room = match self.run.sink.0.reserve().await {
                Ok(room) => room,
                Err(_) => {
                    self.book().queue.clear();
                    return Err(Stopped);
                }
            };
            // Under the lock, so that nobody who has room as well overtakes it.
            let mut book = self.book();
            if let Some(event) = book.queue.pop_front() {
                room.send(event);
            }
        }
        Ok(())
    }

    /// Sends what ends with a dropped handle: now if there is room, else as soon as there is.
    fn owe(&self, bodies: impl IntoIterator<Item = Body>) {
        let mut book = self.book();
        book.queue.extend(bodies.into_iter().map(|body| self.event(body)));
        while !book.queue.is_empty()
            && let Ok(room) = self.run.sink.0.try_reserve()
        {
            if let Some(event) = book.queue.pop_front() {
                room.send(event);
            }
        }
        if self.run.sink.0.is_closed() {
            book.queue.clear();
        } else if !book.queue.is_empty() {
            self.run.owing.notify_one();
        }
    }

    /// Gives the run its ending.
    async fn finish(&self) -> Result<(), Stopped> {
        {
            let mut book = self.book();
            let input = &self.run.input;
            let mut finished = RunFinished::new(input.thread.clone(), input.run.clone());
            let (pending, interrupts) =
                (std::mem::take(&mut book.pending), std::mem::take(&mut book.interrupts));
            finished.outcome = if !interrupts.is_empty() {
                Some(Outcome::Interrupt { interrupts })
            } else if !pending.is_empty() {
                Some(Outcome::Success { pending })
            } else {
                None
            };
            finished.usage = std::mem::take(&mut book.usage);
            finished.result = book.result.take();
            book.queue.push_back(Event::new(Body::RunFinished(Box::new(finished))));
        }
        self.settle().await
    }
}

/// The value as it travels. Checked, because a value made by a program can be nested deeper than any peer can read.
fn fit(value: &Value) -> Result<Json, Unfit> {
    Json::parse(&value.to_string())
}
