//! Requests to ADK's API server, as values, and the decoding of its responses.
//!
//! No I/O happens here: [`AdkApi`] builds requests, [`read_session`] and [`artifact`] decode responses. All answers to
//! pending calls are converted before anything is sent, so that an invalid answer leaves the pending calls unchanged.
//!
//! ADK's HTTP interface does not accept tools for a run. Front-end tools therefore travel in the session state, under
//! [`TOOLS_KEY`]; the toolset of `agentwire.adk` (in `sdk/python`) offers them to the model as long-running tools.

pub mod artifact;
mod function_response;
mod history;
mod new_message;
mod session;

use serde_json::{Map, Value, json};

pub use self::history::SessionHistory;
use self::new_message::NewParts;
pub use self::session::{SessionEntry, StoredSession, read_session, read_session_list};
use super::reader::{interrupts::interrupt_call, session_state::OWN_PREFIX};
use crate::{
    codes,
    event::{Interrupt, Message, RunInput, ThreadId, ToolCallId},
    json::{Json, Object},
    percent,
};

/// The key of the session state that carries the front-end tools.
pub const TOOLS_KEY: &str = "agentwire:tools";
/// The key of the session state that carries the client's context.
pub const CONTEXT_KEY: &str = "agentwire:context";

/// One HTTP request.
#[derive(Clone, Debug, PartialEq)]
pub struct AdkRequest {
    /// The method.
    pub method: &'static str,
    /// Path and query, with a leading `/`.
    pub path: String,
    /// The JSON body.
    pub body: Option<Json>,
}

/// An app of an API server, on behalf of a user.
///
/// ```
/// use agentwire_core::format::adk::input::AdkApi;
/// let api = AdkApi::new("shop", "ada@example.org");
/// let request = api.get_session(&"t/1".into());
/// assert_eq!(request.path, "/apps/shop/users/ada%40example.org/sessions/t%2F1");
/// ```
#[derive(Clone, Debug)]
pub struct AdkApi {
    app: Box<str>,
    user: Box<str>,
    /// True if a client may set state that outlives the session: keys with the prefix `app:` or `user:`.
    pub allow_shared_state: bool,
    /// True if the server streams the model's output; otherwise each turn arrives as a whole.
    pub streaming: bool,
    /// The `customMetadata` of every run, which ADK adds to the events of the run. ADK 1.x ignores it.
    pub custom_metadata: Option<Object>,
    /// The `serviceTier` of every run, for models that have one. ADK 1.x ignores it.
    pub service_tier: Option<Box<str>>,
}

/// A pending call.
#[derive(Clone, Debug, PartialEq)]
pub struct PendingCall {
    /// The id of the call, which is also the id of its interrupt.
    pub id: ToolCallId,
    /// The id from the model, if the call is shown under another one because the model reused the id.
    pub native_id: Option<ToolCallId>,
    /// The name of the tool or of ADK's built-in `adk_request_…`.
    pub name: Box<str>,
    /// The arguments.
    pub arguments: Json,
}

/// The session before a run.
#[derive(Clone, Copy, Debug, Default)]
pub struct KnownSession<'k> {
    /// Its state; absent if the same request creates the session.
    pub state: Option<&'k Object>,
    /// Its pending calls.
    pub pending: &'k [PendingCall],
    /// Its conversation: messages that it contains are not sent again.
    pub messages: &'k [Message],
}

/// A run input that cannot be converted to a request.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AdkRequestError {
    /// No tool message matches a pending call.
    #[error("no call `{0}` waits for a result")]
    UnknownToolCall(Box<str>),
    /// No resume entry matches a pending call.
    #[error("nothing waits under `{0}`")]
    UnknownInterrupt(Box<str>),
    /// An answer that ADK could not use.
    #[error("the answer to `{id}` {problem}")]
    BadAnswer {
        /// The id of the pending call.
        id: Box<str>,
        /// The problem.
        problem: &'static str,
    },
}

impl AdkRequestError {
    /// A stable code.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::UnknownToolCall(_) => codes::UNKNOWN_TOOL_CALL,
            Self::UnknownInterrupt(_) => codes::UNKNOWN_INTERRUPT,
            Self::BadAnswer { .. } => codes::BAD_ANSWER,
        }
    }
}

impl PendingCall {
    /// The call of an interrupt from the ADK reader; `None` for interrupts of other origin.
    #[must_use]
    pub fn of_interrupt(interrupt: &Interrupt) -> Option<Self> {
        let (name, arguments) = interrupt_call(interrupt)?;
        let native_id = interrupt.metadata.as_ref().and_then(|metadata| metadata.get_str("id"));
        let id = interrupt.id.as_str().into();
        Some(Self { id, native_id: native_id.map(Into::into), name: name.into(), arguments })
    }
}

impl AdkApi {
    /// An app and a user.
    #[must_use]
    pub fn new(app: impl Into<Box<str>>, user: impl Into<Box<str>>) -> Self {
        Self {
            app: app.into(),
            user: user.into(),
            allow_shared_state: false,
            streaming: true,
            custom_metadata: None,
            service_tier: None,
        }
    }

    fn sessions_path(&self) -> String {
        format!("/apps/{}/users/{}/sessions", percent::encode(&self.app), percent::encode(&self.user))
    }

    fn session_path(&self, thread: &ThreadId) -> String {
        format!("{}/{}", self.sessions_path(), percent::encode(thread))
    }

    /// Creates the session of a thread. The server responds with 409 if the session exists.
    #[must_use]
    pub fn create_session(&self, input: &RunInput) -> AdkRequest {
        let mut body = json!({"sessionId": input.thread.as_str()});
        let state = self.state_changes(input, None);
        if !state.is_empty() {
            body["state"] = Value::Object(state);
        }
        post(self.sessions_path(), body)
    }

    /// Creates the session of a thread that has a conversation already. The server responds with 409 if the session
    /// exists.
    #[must_use]
    pub fn restore_session(&self, input: &RunInput, history: &SessionHistory) -> AdkRequest {
        let mut request = self.create_session(input);
        if let Some(Value::Object(mut body)) = request.body.as_ref().map(Json::to_value) {
            body.insert("events".into(), history.events(&self.app));
            request.body = Some(Value::Object(body).into());
        }
        request
    }

    /// Fetches a session; 404 if it does not exist. [`read_session`] decodes the response.
    #[must_use]
    pub fn get_session(&self, thread: &ThreadId) -> AdkRequest {
        get(self.session_path(thread))
    }

    /// Lists the sessions of the user. [`read_session_list`] decodes the response.
    #[must_use]
    pub fn list_sessions(&self) -> AdkRequest {
        get(self.sessions_path())
    }

    /// Deletes a session; the status is 200 even if it does not exist.
    #[must_use]
    pub fn delete_session(&self, thread: &ThreadId) -> AdkRequest {
        AdkRequest { method: "DELETE", path: self.session_path(thread), body: None }
    }

    /// Sets keys of the session state. ADK cannot remove a key; `null` is a value.
    #[must_use]
    pub fn patch_state(&self, thread: &ThreadId, delta: &Object) -> AdkRequest {
        let body = Object::from_entries([("stateDelta", delta.as_json().clone())]);
        AdkRequest { method: "PATCH", path: self.session_path(thread), body: Some(body.into()) }
    }

    /// Lists the names of a session's artifacts. [`artifact::read_names`] decodes the response.
    #[must_use]
    pub fn list_artifacts(&self, thread: &ThreadId) -> AdkRequest {
        get(format!("{}/artifacts", self.session_path(thread)))
    }

    /// Fetches an artifact, in its newest or the given version. [`artifact::read`] decodes the response.
    #[must_use]
    pub fn get_artifact(&self, thread: &ThreadId, filename: &str, version: Option<u64>) -> AdkRequest {
        let path = format!("{}/artifacts/{}", self.session_path(thread), percent::encode(filename));
        get(match version {
            Some(version) => format!("{path}/versions/{version}"),
            None => path,
        })
    }

    /// Runs the agent; the response is a stream.
    ///
    /// The new message contains the answers to pending calls, otherwise the user messages after the last message of the
    /// agent. Without either, the run continues from the session as it is. ADK rejects answers and text in one message:
    /// answers continue the paused invocation, text starts a new one. For an input with both, send [`Self::run_then`]
    /// after this request.
    ///
    /// # Errors
    /// When there are answers and none matches a pending call, or when an answer is invalid.
    pub fn run(&self, input: &RunInput, known: KnownSession<'_>) -> Result<AdkRequest, AdkRequestError> {
        let mut body = self.run_body(input);
        let NewParts { answers, texts } = NewParts::of(input, known)?;
        let parts = if answers.is_empty() { texts } else { answers };
        if !parts.is_empty() {
            body["newMessage"] = user_message(parts);
        }
        if let Some(state) = known.state {
            let delta = self.state_changes(input, Some(state));
            if !delta.is_empty() {
                body["stateDelta"] = Value::Object(delta);
            }
        }
        Ok(post("/run_sse".into(), body))
    }

    /// Runs the agent with the user messages of an input that also contained answers; `None` if the input does not
    /// contain both. Send it after the response to [`Self::run`] has ended.
    #[must_use]
    pub fn run_then(&self, input: &RunInput, known: KnownSession<'_>) -> Option<AdkRequest> {
        let NewParts { answers, texts } = NewParts::of(input, known).ok()?;
        if answers.is_empty() || texts.is_empty() {
            return None;
        }
        let mut body = self.run_body(input);
        body["newMessage"] = user_message(texts);
        Some(post("/run_sse".into(), body))
    }

    fn run_body(&self, input: &RunInput) -> Value {
        let mut body = json!({
            "appName": self.app,
            "userId": self.user,
            "sessionId": input.thread.as_str(),
            "streaming": self.streaming,
        });
        if let Some(metadata) = &self.custom_metadata {
            body["customMetadata"] = metadata.to_value();
        }
        if let Some(tier) = &self.service_tier {
            body["serviceTier"] = (**tier).into();
        }
        body
    }

    /// The state keys of the input that differ from the session, including the keys of agentwire.
    fn state_changes(&self, input: &RunInput, known: Option<&Object>) -> Map<String, Value> {
        let current = match known.map(Object::to_value) {
            Some(Value::Object(map)) => map,
            _ => Map::new(),
        };
        let mut wanted = match input.state.as_ref().map(Json::to_value) {
            Some(Value::Object(map)) => map,
            _ => Map::new(),
        };
        wanted.retain(|key, _| {
            let is_shared = key.starts_with("app:") || key.starts_with("user:");
            !key.starts_with(OWN_PREFIX) && (self.allow_shared_state || !is_shared)
        });
        let tools = input.tools.iter().map(|tool| {
            let mut value = json!({"name": tool.name, "description": tool.description});
            if let Some(parameters) = &tool.parameters {
                value["parameters"] = parameters.to_value();
            }
            value
        });
        let context = input
            .context
            .iter()
            .map(|context| json!({"description": context.description, "value": context.value}));
        for (key, list) in [(TOOLS_KEY, tools.collect::<Vec<_>>()), (CONTEXT_KEY, context.collect())] {
            // An empty list overwrites the value of an earlier run.
            if !list.is_empty() || current.contains_key(key) {
                wanted.insert(key.into(), list.into());
            }
        }
        wanted.retain(|key, value| current.get(key) != Some(value));
        wanted
    }
}

fn user_message(parts: Vec<Value>) -> Value {
    json!({"role": "user", "parts": parts})
}

fn post(path: String, body: Value) -> AdkRequest {
    AdkRequest { method: "POST", path, body: Some(body.into()) }
}

fn get(path: String) -> AdkRequest {
    AdkRequest { method: "GET", path, body: None }
}
