//! [`HttpAgent`]: a server, the conversation with it, and the responders and subscribers of its runs.

use std::{
    fmt,
    future::Future,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use agentwire_core::{
    event::{Interrupt, Message, RunId, ThreadId},
    framing::DEFAULT_MAX_FRAME,
};
use serde_json::Value;

use crate::{
    Tool,
    error::ClientError,
    http::Target,
    ids,
    protocol::Protocol,
    rounds::{Answer, BoxError, Responders},
    run::Run,
    stream::{Plan, RunStream},
    subscriber::{Subscriber, Subscribers},
};

/// The default limit of a conversation: far above what a person reads, far below the memory of a small machine.
const DEFAULT_MEMORY: usize = 256 << 20;

/// The default number of requests of one run: one, and the rounds of tools and answers.
const DEFAULT_ROUNDS: u32 = 20;

/// An agent at a URL. Clones share the conversation.
///
/// ```no_run
/// # async fn example() -> Result<(), agentwire_client::ClientError> {
/// use agentwire_client::{Answer, HttpAgent, Protocol, Run};
///
/// let agent = HttpAgent::builder("http://127.0.0.1:7117/awp")
///     .protocol(Protocol::Hai)
///     .header("authorization", "Bearer …")
///     .build()?;
/// agent.on_question(|interrupt| async move {
///     println!("{}", interrupt.message.unwrap_or(interrupt.reason));
///     Answer::approve()
/// });
/// let outcome = agent.run(Run::user("Please approve")).finish().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct HttpAgent(pub(crate) Arc<Shared>);

pub(crate) struct Shared {
    pub(crate) target: Target,
    pub(crate) protocol: Protocol,
    pub(crate) is_binary: bool,
    pub(crate) policy: Option<Policy>,
    pub(crate) limits: Limits,
    pub(crate) max_rounds: u32,
    /// True if the thread id was given: a server that starts another thread does not change it then.
    pub(crate) is_thread_given: bool,
    pub(crate) subscribers: Subscribers,
    pub(crate) is_running: AtomicBool,
    pub(crate) responders: Mutex<Responders>,
    pub(crate) conversation: Mutex<Conversation>,
    next_subscription: AtomicU64,
}

/// The conversation between runs.
pub(crate) struct Conversation {
    pub(crate) thread: ThreadId,
    pub(crate) messages: Vec<Message>,
    pub(crate) state: Option<Value>,
    pub(crate) last_run: Option<RunId>,
}

/// The reconnects after a broken connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// The number of attempts without a new event.
    pub retries: u32,
    /// The delay of the first attempt; it doubles with each.
    pub min_delay: Duration,
    /// The longest delay.
    pub max_delay: Duration,
    /// True if the request may be sent once more if the server has no cursors. A gateway joins the run; a server that
    /// does not know run ids would start it again.
    pub repeat_request: bool,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            retries: 5,
            min_delay: Duration::from_millis(500),
            max_delay: Duration::from_secs(10),
            repeat_request: true,
        }
    }
}

/// The longest waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// Until the connection is made.
    pub connect: Duration,
    /// Until the head of the response.
    pub response: Duration,
    /// Until the next bytes.
    pub idle: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(10),
            response: Duration::from_secs(120),
            idle: Duration::from_secs(120),
        }
    }
}

/// The largest sizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The largest frame, in bytes.
    pub frame: usize,
    /// The largest conversation and state, in bytes.
    pub memory: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { frame: DEFAULT_MAX_FRAME, memory: DEFAULT_MEMORY }
    }
}

/// The settings of an [`HttpAgent`].
#[derive(Debug)]
pub struct Builder {
    url: String,
    protocol: Protocol,
    headers: Vec<(String, String)>,
    thread: Option<ThreadId>,
    messages: Vec<Message>,
    state: Option<Value>,
    is_binary: bool,
    policy: Option<Policy>,
    timeouts: Timeouts,
    limits: Limits,
    max_rounds: u32,
    client: Option<reqwest::Client>,
}

impl Builder {
    /// The protocol; [`Protocol::Auto`] unless given.
    #[must_use]
    pub fn protocol(mut self, protocol: Protocol) -> Self {
        self.protocol = protocol;
        self
    }

    /// A header of every request.
    #[must_use]
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }

    /// The thread; a new one unless given.
    #[must_use]
    pub fn thread(mut self, thread: impl Into<ThreadId>) -> Self {
        self.thread = Some(thread.into());
        self
    }

    /// The conversation so far.
    #[must_use]
    pub fn messages(mut self, messages: Vec<Message>) -> Self {
        self.messages = messages;
        self
    }

    /// The state so far.
    #[must_use]
    pub fn state(mut self, state: Value) -> Self {
        self.state = Some(state);
        self
    }

    /// True to ask for the binary encoding. Not for the AI SDK, which has none.
    #[must_use]
    pub fn binary(mut self, is_binary: bool) -> Self {
        self.is_binary = is_binary;
        self
    }

    /// The reconnects after a broken connection; `None` for none.
    #[must_use]
    pub fn reconnect(mut self, policy: impl Into<Option<Policy>>) -> Self {
        self.policy = policy.into();
        self
    }

    /// The longest waits.
    #[must_use]
    pub fn timeouts(mut self, timeouts: Timeouts) -> Self {
        self.timeouts = timeouts;
        self
    }

    /// The largest frame, and the largest conversation, in bytes.
    #[must_use]
    pub fn limits(mut self, frame: usize, memory: usize) -> Self {
        self.limits = Limits { frame, memory };
        self
    }

    /// The largest number of requests of one run: one, and the rounds of tools and answers.
    #[must_use]
    pub fn max_rounds(mut self, rounds: u32) -> Self {
        self.max_rounds = rounds.max(1);
        self
    }

    /// An HTTP client of your own, for proxies and certificates.
    #[must_use]
    pub fn http(mut self, client: reqwest::Client) -> Self {
        self.client = Some(client);
        self
    }

    /// The agent.
    ///
    /// # Errors
    /// When the URL or a header is invalid.
    pub fn build(self) -> Result<HttpAgent, ClientError> {
        let target = Target::new(&self.url, &self.headers, self.client, self.timeouts)?;
        let protocol = self.protocol.for_url(&target.url);
        let is_thread_given = self.thread.is_some();
        let conversation = Conversation {
            thread: self.thread.unwrap_or_else(|| ids::uuid().into()),
            messages: self.messages,
            state: self.state,
            last_run: None,
        };
        Ok(HttpAgent(Arc::new(Shared {
            target,
            protocol,
            is_binary: self.is_binary && !matches!(protocol, Protocol::AiSdk(_)),
            policy: self.policy,
            limits: self.limits,
            max_rounds: self.max_rounds,
            is_thread_given,
            subscribers: Subscribers::default(),
            is_running: AtomicBool::new(false),
            responders: Mutex::default(),
            conversation: Mutex::new(conversation),
            next_subscription: AtomicU64::new(0),
        })))
    }
}

impl Shared {
    pub(crate) fn conversation(&self) -> MutexGuard<'_, Conversation> {
        self.conversation.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn responders(&self) -> Responders {
        self.responders.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl HttpAgent {
    /// The settings of an agent at a URL.
    #[must_use]
    pub fn builder(url: impl Into<String>) -> Builder {
        Builder {
            url: url.into(),
            protocol: Protocol::Auto,
            headers: Vec::new(),
            thread: None,
            messages: Vec::new(),
            state: None,
            is_binary: false,
            policy: Some(Policy::default()),
            timeouts: Timeouts::default(),
            limits: Limits::default(),
            max_rounds: DEFAULT_ROUNDS,
            client: None,
        }
    }

    /// Runs the agent. The request is sent when the stream is first polled.
    #[must_use]
    pub fn run(&self, run: Run) -> RunStream {
        RunStream::new(Arc::clone(&self.0), Plan::Run(run))
    }

    /// Follows the thread: its conversation and state, and its active run up to the end. Starts no run.
    #[must_use]
    pub fn sync(&self) -> RunStream {
        RunStream::new(Arc::clone(&self.0), Plan::Sync)
    }

    /// Offers a tool to the agent and runs its calls. A handler with the same name is replaced.
    pub fn tool<F>(&self, tool: Tool, handler: impl Fn(Value) -> F + Send + Sync + 'static)
    where
        F: Future<Output = Result<Value, BoxError>> + Send + 'static,
    {
        let mut responders = self.0.responders.lock().unwrap_or_else(PoisonError::into_inner);
        let name = tool.name.clone();
        responders.tools.insert(name, (tool, Arc::new(move |arguments| Box::pin(handler(arguments)))));
    }

    /// Answers interrupts, approvals, and calls of tools without a handler.
    pub fn on_question<F>(&self, asker: impl Fn(Interrupt) -> F + Send + Sync + 'static)
    where
        F: Future<Output = Answer> + Send + 'static,
    {
        let mut responders = self.0.responders.lock().unwrap_or_else(PoisonError::into_inner);
        responders.asker = Some(Arc::new(move |interrupt| Box::pin(asker(interrupt))));
    }

    /// Adds a subscriber; it is removed with [`Subscription::unsubscribe`].
    pub fn subscribe(&self, subscriber: impl Subscriber + 'static) -> Subscription {
        let id = self.0.next_subscription.fetch_add(1, Ordering::Relaxed);
        self.0.subscribers.add(id, Arc::new(subscriber));
        Subscription { subscribers: self.0.subscribers.clone(), id }
    }

    /// The thread.
    #[must_use]
    pub fn thread(&self) -> ThreadId {
        self.0.conversation().thread.clone()
    }

    /// Continues in another thread, with no messages and no state.
    pub fn set_thread(&self, thread: impl Into<ThreadId>) {
        let mut conversation = self.0.conversation();
        *conversation =
            Conversation { thread: thread.into(), messages: Vec::new(), state: None, last_run: None };
    }

    /// The last run, if there was one.
    #[must_use]
    pub fn last_run(&self) -> Option<RunId> {
        self.0.conversation().last_run.clone()
    }

    /// The conversation after the last run.
    #[must_use]
    pub fn messages(&self) -> Vec<Message> {
        self.0.conversation().messages.clone()
    }

    /// Replaces the conversation.
    pub fn set_messages(&self, messages: Vec<Message>) {
        self.0.conversation().messages = messages;
    }

    /// The state after the last run.
    #[must_use]
    pub fn state(&self) -> Value {
        self.0.conversation().state.clone().unwrap_or_else(|| Value::Object(serde_json::Map::new()))
    }

    /// Replaces the state.
    pub fn set_state(&self, state: Value) {
        self.0.conversation().state = Some(state);
    }

    /// The protocol; never [`Protocol::Auto`].
    #[must_use]
    pub fn protocol(&self) -> Protocol {
        self.0.protocol
    }

    pub(crate) fn is_binary(&self) -> bool {
        self.0.is_binary
    }

    pub(crate) fn target(&self) -> &Target {
        &self.0.target
    }
}

impl fmt::Debug for HttpAgent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpAgent")
            .field("url", &self.0.target.url.as_str())
            .field("protocol", &self.0.protocol)
            .finish_non_exhaustive()
    }
}

/// A subscriber of an agent.
#[must_use = "without it the subscriber cannot be removed"]
pub struct Subscription {
    subscribers: Subscribers,
    id: u64,
}

impl Subscription {
    /// Removes the subscriber.
    pub fn unsubscribe(self) {
        self.subscribers.remove(self.id);
    }
}

impl fmt::Debug for Subscription {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Subscription").field("id", &self.id).finish_non_exhaustive()
    }
}
