//! Upstream `adk`: an unmodified ADK API server (`adk api_server`).
//!
//! Its sessions hold conversation and state. The first run of a thread creates one; later runs send only new content,
//! after a request for the session's state and pending items. A request to ADK takes either answers or a message, so a
//! run with both becomes two requests. If the server has lost the session of a thread, the conversation goes into a new
//! one, and a CUSTOM event reports it.

use std::{collections::HashSet, sync::Arc};

use agentwire_core::{
    Tally,
    event::{Body, Event, Outcome, RunInput, ToolCallId},
    format::adk::{
        self,
        input::{
            self, AdkApi, AdkRequestError, KnownSession, PendingCall, SessionHistory, StoredSession, artifact,
        },
    },
    json::{Json, Object},
};
use reqwest::{Method, StatusCode};
use serde_json::Value;
use tokio::sync::mpsc::Receiver;

use super::{
    decode::ExpectedFormat,
    http::{ACCEPT_EVENTS, HttpRequest, HttpResponse, HttpTarget},
    local::Local,
    template::{self, TemplateValues},
    thread_names::{self, ServerThreads},
};
use crate::{
    agent::{Agent, Artifact, BoxFuture, BuildError, EventSink, Recalled, Request},
    error::{UpstreamError, UpstreamErrorKind as Kind},
};

/// The largest artifact in the server's encoding: base64, four bytes for three. An hour of speech or a long PDF fits;
/// it is held in memory while it is read.
const MAX_ARTIFACT: usize = 48 << 20;

/// The capacity between the two halves of a run with answers and a message: they seldom wait for each other.
const ANSWERS_CAPACITY: usize = 64;

/// The prefix of artifacts that all threads of a user share.
const USER_PREFIX: &str = "user:";

/// Options of the upstream `adk`.
#[derive(Clone, Debug, Default)]
pub struct AdkOptions {
    /// The server's URL.
    pub url: String,
    /// The server in this process that has its place.
    pub local: Option<Arc<dyn Local>>,
    /// The app to run.
    pub app: String,
    /// The user id on the server; derived from the run's owner if absent.
    pub user: Option<String>,
    /// Headers of every request.
    pub headers: Vec<(String, String)>,
    /// Asks for whole model turns instead of a stream.
    pub no_streaming: bool,
    /// The custom metadata of every run, with `{{…}}` placeholders; an object.
    pub custom_metadata: Option<Value>,
    /// The service tier of every run.
    pub service_tier: Option<String>,
    /// Options of the format, `key=value`.
    pub options: Vec<String>,
}

/// An agent that is an app on an ADK API server.
#[derive(Clone, Debug)]
pub struct Adk(Arc<AdkServer>);

#[derive(Debug)]
struct AdkServer {
    http: HttpTarget,
    app: String,
    user: Option<String>,
    no_streaming: bool,
    custom_metadata: Option<Value>,
    service_tier: Option<String>,
    format: ExpectedFormat,
}

/// The session of a run.
#[derive(Debug)]
enum RunSession {
    /// It existed.
    Found(Box<StoredSession>),
    /// It is new, as the thread is.
    Created,
    /// The server had lost it; the new one has the conversation, or is empty if the server refused the conversation.
    Restored(Option<SessionHistory>),
}

impl Adk {
    /// An agent on a server.
    ///
    /// # Errors
    /// When the URL, the app, a header or an option is invalid.
    pub fn new(options: AdkOptions) -> Result<Self, BuildError> {
        let AdkOptions {
            url,
            local,
            app,
            user,
            headers,
            no_streaming,
            custom_metadata,
            service_tier,
            options,
        } = options;
        custom_metadata.as_ref().map_or(Ok(()), template::check)?;
        if app.is_empty() {
            return Err(BuildError("`app` does not say what to run".into()));
        }
        // With a fixed user, all users of the gateway are one user there.
        let threads = if user.is_some() { ServerThreads::Shared } else { ServerThreads::OfUsers };
        let http = HttpTarget::at(&url, &headers, local)?.with_threads(threads);
        let format = ExpectedFormat::of(&adk::FORMAT, &options)?;
        Ok(Self(Arc::new(AdkServer { http, app, user, no_streaming, custom_metadata, service_tier, format })))
    }
}

impl Agent for Adk {
    fn enforces_stream_timeouts(&self) -> bool {
        true
    }

    fn run(&self, request: Request, sink: EventSink) -> BoxFuture<'static, Result<(), UpstreamError>> {
        let shared = Arc::clone(&self.0);
        Box::pin(async move { shared.run(&request, &sink).await })
    }

    fn recall(
        &self,
        request: Request,
    ) -> Option<BoxFuture<'static, Result<Option<Recalled>, UpstreamError>>> {
        let shared = Arc::clone(&self.0);
        Some(Box::pin(async move {
            let (api, input) = shared.locate(&request);
            let session = shared.find_session(&request, &api, &input).await?;
            Ok(session.map(|StoredSession { messages, state, interrupts, .. }| Recalled {
                messages,
                state: state.into(),
                interrupts,
            }))
        }))
    }

    fn forget(&self, request: Request) -> Option<BoxFuture<'static, Result<(), UpstreamError>>> {
        let shared = Arc::clone(&self.0);
        Some(Box::pin(async move {
            let (api, input) = shared.locate(&request);
            let response = shared.fetch(&request, &api.delete_session(&input.thread)).await?;
            match response.status {
                StatusCode::NOT_FOUND => Ok(()),
                status if status.is_success() => Ok(()),
                _ => Err(response.status_error()),
            }
        }))
    }

    fn irremovable_keys(
        &self,
        request: Request,
        removed: Vec<String>,
    ) -> Option<BoxFuture<'static, Result<Vec<String>, UpstreamError>>> {
        let shared = Arc::clone(&self.0);
        Some(Box::pin(async move {
            let (api, input) = shared.locate(&request);
            let session = shared.find_session(&request, &api, &input).await?;
            let is_stored = |key: &String| {
                session.as_ref().is_some_and(|session| session.raw_state.member(key).is_some())
            };
            Ok(removed.into_iter().filter(is_stored).collect())
        }))
    }

    fn artifacts(&self, request: Request) -> Option<BoxFuture<'static, Result<Vec<String>, UpstreamError>>> {
        let shared = Arc::clone(&self.0);
        Some(Box::pin(async move { shared.artifacts(&request).await }))
    }

    fn artifact(
        &self,
        request: Request,
        name: &str,
        version: Option<u64>,
    ) -> Option<BoxFuture<'static, Result<Option<Artifact>, UpstreamError>>> {
        let (shared, name) = (Arc::clone(&self.0), name.to_owned());
        Some(Box::pin(async move { shared.artifact(&request, &name, version).await }))
    }
}

/// True if an artifact may have this name: not one that a URL or a file system resolves to another place.
fn is_name(name: &str) -> bool {
    let is_step = |part: &str| matches!(part, "" | "." | "..");
    !name.split(['/', '\\']).any(is_step) && !name.chars().any(char::is_control)
}

/// Passes on events up to the terminal event. Returns that event if the message must not be sent after it.
async fn pass_until_end(
    mut events: Receiver<Event>,
    sink: &EventSink,
) -> Result<Option<Event>, UpstreamError> {
    let mut open: HashSet<ToolCallId> = HashSet::new();
    let mut end = None;
    while let Some(event) = events.recv().await {
        match &event.body {
            Body::RunFinished(_) | Body::RunError(_) => {
                end = Some(event);
                continue;
            }
            Body::ToolStart { call, .. } => {
                open.insert(call.clone());
            }
            Body::ToolResult(result) => {
                open.remove(&result.call);
            }
            _ => {}
        }
        sink.send(event).await?;
    }
    let is_free = |end: &Event| match &end.body {
        Body::RunFinished(finished) => matches!(&finished.outcome, None | Some(Outcome::Success { .. })),
        _ => false,
    };
    Ok(end.filter(|end| !open.is_empty() || !is_free(end)))
}

/// Logs that the server has lost the session of a thread; returns the event that tells the client.
fn session_lost(request: &Request, has_history: bool) -> Event {
    let message = match has_history {
        true => "the agent's server had lost the session of this thread; a new session got the conversation",
        false => {
            "the agent's server had lost the session of this thread; a new session starts without the conversation"
        }
    };
    tracing::warn!(thread = %request.input.thread, run = %request.input.run, has_history, "{message}");
    let value =
        Object::from_entries([("code", Json::string("SESSION_LOST")), ("message", Json::string(message))]);
    Event::new(Body::Custom { name: "adk.warning".into(), value: value.into() })
}

impl AdkServer {
    async fn run(&self, request: &Request, sink: &EventSink) -> Result<(), UpstreamError> {
        let (api, input) = self.locate(request);
        let session = self.session(request, &api, &input).await?;
        let (mut state, mut messages, mut waiting) = (None, &[][..], Vec::new());
        match &session {
            RunSession::Found(session) => {
                (state, messages) = (Some(&session.raw_state), &session.messages[..]);
                waiting = session.interrupts.iter().filter_map(PendingCall::of_interrupt).collect();
            }
            RunSession::Created => {}
            RunSession::Restored(history) => {
                waiting.extend(history.iter().flat_map(|history| history.pending()).cloned());
                sink.send(session_lost(request, history.is_some())).await?;
            }
        }
        let known = KnownSession { state, pending: &waiting, messages };
        let run = api
            .run(&input, known)
            .map_err(|error: AdkRequestError| UpstreamError::new(error.code(), error.to_string()))?;
        let Some(then) = api.run_then(&input, known) else {
            return self.stream(request, &run, sink).await;
        };
        let (answers_sink, events) = EventSink::new(ANSWERS_CAPACITY);
        // The future owns its end of the channel, so that the other half ends with it.
        let answers = async {
            let sink = answers_sink;
            self.stream(request, &run, &sink).await
        };
        let (answered, end) = tokio::join!(answers, pass_until_end(events, sink));
        let end = end?;
        answered?;
        match end {
            // The agent waits again or has failed, and takes no message now.
            Some(end) => Ok(sink.send(end).await?),
            None => self.stream(request, &then, sink).await,
        }
    }

    /// Sends a run request and reads its stream.
    async fn stream(
        &self,
        request: &Request,
        run: &input::AdkRequest,
        sink: &EventSink,
    ) -> Result<(), UpstreamError> {
        let call = HttpRequest { accept: ACCEPT_EVENTS, ..self.call(run)? };
        let result = self.http.run(request, call, &self.format, sink).await;
        result.map_err(|error| match error.kind() {
            // The session exists, so the app is unknown.
            Kind::Status(StatusCode::NOT_FOUND) => {
                error.with_kind(Kind::UnknownTarget(format!("app `{}`", self.app).into()))
            }
            _ => error,
        })
    }

    /// The user and the session id on the server.
    fn locate(&self, request: &Request) -> (AdkApi, RunInput) {
        let mut input = (*request.input).clone();
        let user = self.user.clone().unwrap_or_else(|| thread_names::user_id(&request.owner));
        input.thread = self.http.threads().thread(request);
        let mut api = AdkApi::new(&*self.app, user);
        api.streaming = !self.no_streaming;
        api.service_tier = self.service_tier.as_deref().map(Into::into);
        api.custom_metadata = self.custom_metadata.as_ref().and_then(|metadata| {
            Object::from_value(&template::fill(
                metadata,
                &TemplateValues::of(&thread_names::sent_input(request)),
            ))
        });
        (api, input)
    }

    /// The session of a thread, created if there is none.
    async fn session(
        &self,
        request: &Request,
        api: &AdkApi,
        input: &RunInput,
    ) -> Result<RunSession, UpstreamError> {
        if let Some(session) = self.find_session(request, api, input).await? {
            return Ok(RunSession::Found(session.into()));
        }
        let history = SessionHistory::of(input);
        let mut made = match &history {
            Some(history) => self.fetch(request, &api.restore_session(input, history)).await?,
            None => self.fetch(request, &api.create_session(input)).await?,
        };
        let mut session = match history {
            Some(history) => RunSession::Restored(Some(history)),
            None => RunSession::Created,
        };
        let is_refused = matches!(made.status, StatusCode::BAD_REQUEST | StatusCode::UNPROCESSABLE_ENTITY);
        if is_refused && matches!(session, RunSession::Restored(_)) {
            tracing::warn!(
                thread = %request.input.thread, run = %request.input.run,
                detail = made.status_error().detail(), "the agent's server refused the conversation of a lost session",
            );
            made = self.fetch(request, &api.create_session(input)).await?;
            session = RunSession::Restored(None);
        }
        match made.status {
            status if status.is_success() => Ok(session),
            // Another gateway created it meanwhile.
            StatusCode::CONFLICT => {
                let found = self.find_session(request, api, input).await?;
                Ok(found.map_or(RunSession::Created, |found| RunSession::Found(found.into())))
            }
            _ => Err(made.status_error()),
        }
    }

    /// The session of a thread; `None` if there is none.
    async fn find_session(
        &self,
        request: &Request,
        api: &AdkApi,
        input: &RunInput,
    ) -> Result<Option<StoredSession>, UpstreamError> {
        let response = self.fetch(request, &api.get_session(&input.thread)).await?;
        if response.status == StatusCode::NOT_FOUND {
            return Ok(None);
        }
        if !response.status.is_success() {
            return Err(response.status_error());
        }
        match input::read_session(&response.body, &mut Tally::default()) {
            Ok(session) => Ok(Some(session)),
            Err(error) => {
                let body = "the session of the thread on the agent's server";
                Err(UpstreamError::from(Kind::MalformedBody(body.into())).with_detail(error.to_string()))
            }
        }
    }

    /// True if this owner's `user:` artifacts are private: not if all users of the gateway are one user there.
    fn has_own_artifacts(&self, request: &Request) -> bool {
        self.user.is_none() || !request.has_users
    }

    async fn artifacts(&self, request: &Request) -> Result<Vec<String>, UpstreamError> {
        let (api, input) = self.locate(request);
        let response = self.fetch(request, &api.list_artifacts(&input.thread)).await?;
        if !response.status.is_success() {
            return Err(response.status_error());
        }
        let mut names = artifact::read_names(&response.body).map_err(|error| {
            let body = "the list of artifacts on the agent's server";
            UpstreamError::from(Kind::MalformedBody(body.into())).with_detail(error.to_string())
        })?;
        names.retain(|name| {
            is_name(name) && (self.has_own_artifacts(request) || !name.starts_with(USER_PREFIX))
        });
        Ok(names)
    }

    async fn artifact(
        &self,
        request: &Request,
        name: &str,
        version: Option<u64>,
    ) -> Result<Option<Artifact>, UpstreamError> {
        if !is_name(name) || (name.starts_with(USER_PREFIX) && !self.has_own_artifacts(request)) {
            return Ok(None);
        }
        let (api, input) = self.locate(request);
        let call = self.call(&api.get_artifact(&input.thread, name, version))?;
        let response = self.http.fetch_within(request, call, MAX_ARTIFACT).await?;
        if response.status == StatusCode::NOT_FOUND {
            return Ok(None);
        }
        if !response.status.is_success() {
            return Err(response.status_error());
        }
        match artifact::read(&response.body) {
            Ok(Some(artifact::Artifact::Content { mime_type, bytes })) => {
                Ok(Some(Artifact { mime_type: mime_type.into(), bytes: bytes.into() }))
            }
            Ok(Some(_)) => {
                let message = "the artifact is a reference to a file elsewhere, which is not fetched";
                Err(Kind::Unsupported(message.into()).into())
            }
            Ok(None) => Ok(None),
            Err(error) => {
                let body = "the artifact on the agent's server";
                Err(UpstreamError::from(Kind::MalformedBody(body.into())).with_detail(error.to_string()))
            }
        }
    }

    fn call(&self, request: &input::AdkRequest) -> Result<HttpRequest, UpstreamError> {
        let method = Method::from_bytes(request.method.as_bytes());
        Ok(HttpRequest {
            method: method.map_err(|error| Kind::Internal(error.to_string().into()))?,
            url: self.http.below(&request.path)?,
            accept: "application/json",
            json: request.body.as_ref().map(|body| body.get().to_owned()),
            last_event_id: None,
        })
    }

    async fn fetch(&self, request: &Request, adk: &input::AdkRequest) -> Result<HttpResponse, UpstreamError> {
        self.http.fetch(request, self.call(adk)?).await
    }
}
