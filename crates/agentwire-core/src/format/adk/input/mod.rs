//! Requests to ADK's API server, as values.
//!
//! Nothing here does I/O: [`AdkApi`] says what to send, and [`read_session`] understands what a stored session holds.
//! An answer to something that waits is converted completely before anything is sent, so that a bad answer
//! leaves what waits as it is.
//!
//! ADK's HTTP interface cannot be given tools for one run. Tools of the user interface therefore travel in the
//! session's state, under [`TOOLS_KEY`]; the toolset of `agentwire.adk` (in `sdk/python`) offers them to the
//! model as long-running tools.

pub mod artifact;
mod function_response;

use std::collections::HashSet;

use serde_json::{Map, Value, json};

use self::function_response::{respond, respond_with_content};
use super::{
    base64,
    options::AdkReaderOptions,
    reader::{AdkReader, interrupts::interrupt_call, session_history, session_state::OWN_PREFIX},
};
use crate::{
    event::{
        Content, ContentPart, Interrupt, Message, MessageBody, PartSource, ResumeEntry, RunInput, ThreadId,
        ToolCallId,
    },
    json::{Json, Object, ReadError},
    percent,
    tally::Tally,
};

/// The key of the session's state under which tools of the user interface travel.
pub const TOOLS_KEY: &str = "agentwire:tools";
/// The key of the session's state under which the context of the user interface travels.
pub const CONTEXT_KEY: &str = "agentwire:context";

/// One HTTP request.
#[derive(Clone, Debug, PartialEq)]
pub struct AdkRequest {
    /// The method.
    pub method: &'static str,
    /// Path and query, beginning with `/`.
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
    /// Whether a user interface may set state that outlives the session: keys with `app:` or `user:`.
    pub allow_shared_state: bool,
}

/// A call that waits for an answer.
#[derive(Clone, Debug, PartialEq)]
pub struct PendingCall {
    /// The call; for interrupts that is their id too.
    pub id: ToolCallId,
    /// The id that the model gave it, if it is shown under another because the model had used that one before.
    pub native_id: Option<ToolCallId>,
    /// The tool, or ADK's own `adk_request_…`.
    pub name: Box<str>,
    /// What it was called with.
    pub arguments: Json,
}

/// What is known about a session before a run.
#[derive(Clone, Copy, Debug, Default)]
pub struct KnownSession<'k> {
    /// Its state; absent if the session is about to be created from the same request.
    pub state: Option<&'k Object>,
    /// What waits for an answer.
    pub pending: &'k [PendingCall],
}

/// Why a request could not be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AdkRequestError {
    /// Tool messages, none of which answers anything.
    #[error("no call `{0}` waits for a result")]
    UnknownToolCall(Box<str>),
    /// Resume entries, none of which answers anything.
    #[error("nothing waits under `{0}`")]
    UnknownInterrupt(Box<str>),
    /// An answer that ADK could not use.
    #[error("the answer to `{id}` {problem}")]
    BadAnswer {
        /// What it answers.
        id: Box<str>,
        /// What is wrong with it.
        problem: &'static str,
    },
}

impl AdkRequestError {
    /// A stable code.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::UnknownToolCall(_) => "UNKNOWN_TOOL_CALL",
            Self::UnknownInterrupt(_) => "UNKNOWN_INTERRUPT",
            Self::BadAnswer { .. } => "BAD_ANSWER",
        }
    }
}

impl PendingCall {
    /// The call behind an interrupt of the ADK reader; `None` if it is somebody else's.
    #[must_use]
    pub fn of_interrupt(interrupt: &Interrupt) -> Option<Self> {
        let (name, arguments) = interrupt_call(interrupt)?;
        let native = interrupt.metadata.as_ref().and_then(|metadata| metadata.get_str("id"));
        let id = interrupt.id.as_str().into();
        Some(Self { id, native_id: native.map(Into::into), name: name.into(), arguments })
    }
}

impl AdkApi {
    /// An app and a user.
    #[must_use]
    pub fn new(app: impl Into<Box<str>>, user: impl Into<Box<str>>) -> Self {
        Self { app: app.into(), user: user.into(), allow_shared_state: false }
    }

    fn sessions(&self) -> String {
        format!("/apps/{}/users/{}/sessions", percent::encode(&self.app), percent::encode(&self.user))
    }

    fn session(&self, thread: &ThreadId) -> String {
        format!("{}/{}", self.sessions(), percent::encode(thread))
    }

    /// Creates the session of a thread. A session that exists already is answered with 409.
    #[must_use]
    pub fn create_session(&self, input: &RunInput) -> AdkRequest {
        let mut body = json!({"sessionId": input.thread.as_str()});
        let state = self.changes(input, None);
        if !state.is_empty() {
            body["state"] = Value::Object(state);
        }
        post(self.sessions(), body)
    }

    /// Asks for a session; 404 if there is none. [`read_session`] reads the answer.
    #[must_use]
    pub fn get_session(&self, thread: &ThreadId) -> AdkRequest {
        get(self.session(thread))
    }

    /// Asks for the sessions of the user. [`read_session_list`] reads the answer.
    #[must_use]
    pub fn list_sessions(&self) -> AdkRequest {
        get(self.sessions())
    }

    /// Deletes a session; 200 also if there is none.
    #[must_use]
    pub fn delete_session(&self, thread: &ThreadId) -> AdkRequest {
        AdkRequest { method: "DELETE", path: self.session(thread), body: None }
    }

    /// Sets keys of a session's state. ADK cannot remove a key; `null` is a value.
    #[must_use]
    pub fn patch_state(&self, thread: &ThreadId, delta: &Object) -> AdkRequest {
        let body = Object::from_entries([("stateDelta", delta.as_json().clone())]);
        AdkRequest { method: "PATCH", path: self.session(thread), body: Some(body.into()) }
    }

    /// Asks for the names of a session's artifacts.
    #[must_use]
    pub fn list_artifacts(&self, thread: &ThreadId) -> AdkRequest {
        get(format!("{}/artifacts", self.session(thread)))
    }

    /// Asks for an artifact, in its newest version or a given one.
    #[must_use]
    pub fn get_artifact(&self, thread: &ThreadId, filename: &str, version: Option<u64>) -> AdkRequest {
        let path = format!("{}/artifacts/{}", self.session(thread), percent::encode(filename));
        get(match version {
            Some(version) => format!("{path}/versions/{version}"),
            None => path,
        })
    }

    /// Runs the agent; the answer is a stream.
    ///
    /// What is new in the conversation becomes the message: answers to what waits, else what the person has
    /// said since the agent spoke last. With nothing new, the run goes on from the session as it is. ADK takes answers
    /// and words in one message no more: answers go on where the agent waits, words begin anew. Who has both runs
    /// [`Self::run_then`] behind it.
    ///
    /// # Errors
    /// When there are answers and none of them answers something that waits, or one cannot be used.
    pub fn run(&self, input: &RunInput, known: KnownSession<'_>) -> Result<AdkRequest, AdkRequestError> {
        let mut body = json!({
            "appName": self.app,
            "userId": self.user,
            "sessionId": input.thread.as_str(),
            "streaming": true,
        });
        let New { answers, said } = New::of(input, known.pending)?;
        let parts = if answers.is_empty() { said } else { answers };
        if !parts.is_empty() {
            body["newMessage"] = message(parts);
        }
        if let Some(state) = known.state {
            let delta = self.changes(input, Some(state));
            if !delta.is_empty() {
                body["stateDelta"] = Value::Object(delta);
            }
        }
        Ok(post("/run_sse".into(), body))
    }

    /// Runs the agent with what the person says beside their answers, once it has gone on with those; `None` if there are
    /// no answers, or no words.
    #[must_use]
    pub fn run_then(&self, input: &RunInput, known: KnownSession<'_>) -> Option<AdkRequest> {
        let New { answers, said } = New::of(input, known.pending).ok()?;
        let body = json!({
            "appName": self.app,
            "userId": self.user,
            "sessionId": input.thread.as_str(),
            "streaming": true,
            "newMessage": message(said.clone()),
        });
        (!answers.is_empty() && !said.is_empty()).then(|| post("/run_sse".into(), body))
    }

    /// The keys of the state that the session does not have like this, our own included.
    fn changes(&self, input: &RunInput, known: Option<&Object>) -> Map<String, Value> {
        let held = match known.map(Object::to_value) {
            Some(Value::Object(map)) => map,
            _ => Map::new(),
        };
        let mut wanted = match input.state.as_ref().map(Json::to_value) {
            Some(Value::Object(map)) => map,
            _ => Map::new(),
        };
        wanted.retain(|key, _| {
            let shared = key.starts_with("app:") || key.starts_with("user:");
            !key.starts_with(OWN_PREFIX) && (self.allow_shared_state || !shared)
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
            // What an earlier run left there must not outlive it.
            if !list.is_empty() || held.contains_key(key) {
                wanted.insert(key.into(), list.into());
            }
        }
        wanted.retain(|key, value| held.get(key) != Some(value));
        wanted
    }
}

fn message(parts: Vec<Value>) -> Value {
    json!({"role": "user", "parts": parts})
}

/// What is new in a conversation, as parts of messages.
struct New {
    /// Answers to what waits, and the media that belong to them.
    answers: Vec<Value>,
    /// What the person has said.
    said: Vec<Value>,
}

impl New {
    fn of(input: &RunInput, waiting: &[PendingCall]) -> Result<Self, AdkRequestError> {
        let (mut answers, mut shown, mut said) = (Vec::new(), Vec::new(), Vec::new());
        let mut unknown = None;
        // ADK takes one answer to each call; a user interface may give it in both ways.
        let mut answered = HashSet::new();
        for entry in input.resume.iter().flatten() {
            match waiting.iter().find(|waiting| *waiting.id == *entry.interrupt) {
                Some(waiting) if !answered.insert(&waiting.id) => {}
                Some(waiting) => answers.push(function_response(waiting, resume(waiting, entry)?)),
                None => unknown = Some(AdkRequestError::UnknownInterrupt(entry.interrupt.as_str().into())),
            }
        }
        let spoken =
            input.messages.iter().rposition(|message| matches!(message.body, MessageBody::Assistant { .. }));
        for message in &input.messages[spoken.map_or(0, |index| index + 1)..] {
            match &message.body {
                MessageBody::Tool { call, content, error } => {
                    match waiting.iter().find(|waiting| waiting.id == *call) {
                        Some(waiting) if !answered.insert(&waiting.id) => {}
                        Some(waiting) => {
                            answers.push(function_response(
                                waiting,
                                respond_with_content(waiting, content, error.as_deref())?,
                            ));
                            shown.extend(media(content));
                        }
                        None => {
                            unknown =
                                unknown.or(Some(AdkRequestError::UnknownToolCall(call.as_str().into())));
                        }
                    }
                }
                MessageBody::User { content } => said.extend(content_parts(content)),
                _ => {}
            }
        }
        match unknown {
            // Results of tools that ADK ran itself also stand there, but never alone.
            Some(unknown) if answers.is_empty() && said.is_empty() => Err(unknown),
            _ => {
                answers.append(&mut shown);
                Ok(Self { answers, said })
            }
        }
    }
}

fn resume(waiting: &PendingCall, entry: &ResumeEntry) -> Result<Value, AdkRequestError> {
    respond(waiting, entry.status, entry.payload.as_ref().map(Json::to_value))
}

fn function_response(waiting: &PendingCall, response: Value) -> Value {
    let id = waiting.native_id.as_ref().unwrap_or(&waiting.id);
    json!({"functionResponse": {"id": id.as_str(), "name": waiting.name, "response": response}})
}

fn content_parts(content: &Content) -> Vec<Value> {
    match content {
        Content::Text(text) if text.is_empty() => Vec::new(),
        Content::Text(text) => vec![json!({"text": text})],
        Content::Parts(parts) => parts.iter().filter_map(part).collect(),
    }
}

fn media(content: &Content) -> Vec<Value> {
    match content {
        Content::Text(_) => Vec::new(),
        Content::Parts(parts) => {
            let media = parts.iter().filter(|part| matches!(part, ContentPart::Media { .. }));
            media.filter_map(part).collect()
        }
    }
}

fn part(part: &ContentPart) -> Option<Value> {
    let source = match part {
        ContentPart::Text { text, .. } if text.is_empty() => return None,
        ContentPart::Text { text, .. } => return Some(json!({"text": text})),
        ContentPart::Media { source, .. } => source,
    };
    Some(match source {
        PartSource::Data { value, mime_type } => inline(mime_type, value),
        PartSource::Url { value, mime_type } | PartSource::File { value, mime_type, .. } => {
            if let Some(inline) = data_url(value, mime_type.as_deref()) {
                return Some(inline);
            }
            let mut file = json!({"fileUri": value});
            if let Some(mime_type) = mime_type {
                file["mimeType"] = (**mime_type).into();
            }
            json!({"fileData": file})
        }
    })
}

/// ADK reads the URL-safe alphabet, as it writes it.
fn inline(mime_type: &str, data: &str) -> Value {
    json!({"inlineData": {"mimeType": mime_type, "data": base64::url_safe(data)}})
}

/// What a `data:` URL holds; what it says about its type decides, then what was said beside it.
fn data_url(url: &str, beside: Option<&str>) -> Option<Value> {
    let (kind, data) = url
        .get(..5)
        .filter(|scheme| scheme.eq_ignore_ascii_case("data:"))
        .and_then(|_| url[5..].split_once(','))?;
    let (mime_type, is_base64) = match kind.rsplit_once(';') {
        Some((mime_type, last)) if last.trim().eq_ignore_ascii_case("base64") => (mime_type, true),
        _ => (kind, false),
    };
    let mime_type = match mime_type.trim() {
        "" => beside.unwrap_or("text/plain"),
        mime_type => mime_type,
    };
    let bytes = percent_encoding::percent_decode_str(data).collect::<Vec<u8>>();
    Some(match is_base64 {
        true => inline(mime_type, &String::from_utf8_lossy(&bytes)),
        false => inline(mime_type, &base64::encoded(&bytes)),
    })
}

fn post(path: String, body: Value) -> AdkRequest {
    AdkRequest { method: "POST", path, body: Some(body.into()) }
}

fn get(path: String) -> AdkRequest {
    AdkRequest { method: "GET", path, body: None }
}

/// What a stored session holds.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredSession {
    /// Its id.
    pub thread: ThreadId,
    /// The conversation, answers of people to interrupts included.
    pub messages: Vec<Message>,
    /// Its state as user interfaces see it.
    pub state: Object,
    /// Its state with what agentwire keeps there: what [`KnownSession::state`] wants.
    pub raw_state: Object,
    /// What waits for an answer.
    pub interrupts: Vec<Interrupt>,
    /// When it changed last, in milliseconds since the Unix epoch.
    pub updated: Option<i64>,
}

/// One line of a list of sessions.
#[derive(Clone, Debug, PartialEq)]
pub struct SessionEntry {
    /// Its id.
    pub thread: ThreadId,
    /// When it changed last, in milliseconds since the Unix epoch.
    pub updated: Option<i64>,
}

/// Reads the answer to [`AdkApi::get_session`] and [`Api::patch_state`].
///
/// # Errors
/// When it is no session; says where.
pub fn read_session(body: &str, tally: &mut Tally) -> Result<StoredSession, ReadError> {
    AdkReader::new(AdkReaderOptions::of_stored_session()).stored(body, tally)
}

/// Reads the answer to [`AdkApi::list_sessions`].
///
/// # Errors
/// When it is no list of sessions; says where.
pub fn read_session_list(body: &str) -> Result<Vec<SessionEntry>, ReadError> {
    session_history::list(body)
}
