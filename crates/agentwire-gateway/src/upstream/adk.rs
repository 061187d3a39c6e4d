//! Upstream `adk`: an unmodified ADK API server (`adk api_server`).
//!
//! Its sessions hold conversation and state. The first run of a thread creates one; later runs send only new content,
//! after a request for the session's state and pending items. A request to ADK takes either answers or a message, so a
//! run with both becomes two requests.

use std::{collections::HashSet, sync::Arc};

use agentwire_core::{
    Tally,
    event::{Body, Event, Outcome, RunInput, ToolCallId},
    format::adk::{
        self,
        input::{self, AdkApi, AdkRequestError, KnownSession, PendingCall, StoredSession, artifact},
    },
};
use reqwest::{Method, StatusCode};
use tokio::sync::mpsc::Receiver;

use super::{
    decode::ExpectedFormat,
    http::{ACCEPT_EVENTS, HttpRequest, HttpResponse, HttpTarget},
    thread_names,
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
    /// The app to run.
    pub app: String,
    /// The user id on the server; derived from the run's owner if absent.
    pub user: Option<String>,
    /// Headers of every request.
    pub headers: Vec<(String, String)>,
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
    format: ExpectedFormat,
}

impl Adk {
    /// An agent on a server.
    ///
    /// # Errors
    /// When the URL, the app, a header or an option is invalid.
    pub fn new(options: AdkOptions) -> Result<Self, BuildError> {
        let AdkOptions { url, app, user, headers, options } = options;
        if app.is_empty() {
            return Err(BuildError("`app` does not say what to run".into()));
        }
        let http = HttpTarget::new(&url, &headers)?;
        let format = ExpectedFormat::of(&adk::FORMAT, &options)?;
        Ok(Self(Arc::new(AdkServer { http, app, user, format })))
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

impl AdkServer {
    async fn run(&self, request: &Request, sink: &EventSink) -> Result<(), UpstreamError> {
        let (api, input) = self.locate(request);
        let session = self.session(request, &api, &input).await?;
        let waiting: Vec<_> = match &session {
            Some(session) => session.interrupts.iter().filter_map(PendingCall::of_interrupt).collect(),
            None => Vec::new(),
        };
        let known =
            KnownSession { state: session.as_ref().map(|session| &session.raw_state), pending: &waiting };
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
        let (owner, scope) = (&request.owner, request.upstream_scope.as_deref());
        let (user, session) = match &self.user {
            // All users of the gateway are one user there.
            Some(user) => (user.clone(), thread_names::shared_session(owner, &input.thread, scope)),
            None => (thread_names::user_id(owner), thread_names::session(&input.thread, scope)),
        };
        input.thread = session;
        (AdkApi::new(&*self.app, user), input)
    }

    /// The session of a thread; `None` if this request created it.
    async fn session(
        &self,
        request: &Request,
        api: &AdkApi,
        input: &RunInput,
    ) -> Result<Option<StoredSession>, UpstreamError> {
        if let Some(session) = self.find_session(request, api, input).await? {
            return Ok(Some(session));
        }
        let made = self.fetch(request, &api.create_session(input)).await?;
        match made.status {
            status if status.is_success() => Ok(None),
            // Another gateway created it meanwhile.
            StatusCode::CONFLICT => self.find_session(request, api, input).await,
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
        self.user.is_none() || thread_names::is_single_user(&request.owner)
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
