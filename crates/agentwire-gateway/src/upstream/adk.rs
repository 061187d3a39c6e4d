//! ADK's API server (`adk api_server`), as it is.
//!
//! Its sessions hold conversation and state. One is created with the first run of a thread; later runs send what
//! is new, which needs a look at the session first: at its state, and at what waits for an answer there. It takes either
//! answers or words, so who brings both is answered twice, in one run of ours.

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
    http::{ACCEPT_EVENTS, Answer, Call, Http},
    thread_names,
};
use crate::{
    agent::{Agent, Artifact, BoxFuture, BuildError, EventSink, Recalled, Request},
    error::{UpstreamError, UpstreamErrorKind as Kind},
};

/// The largest artifact that is handed out, as the server writes it: base64, which takes four bytes for three. An hour of
/// speech or a long PDF fits; it is held in memory while it is read.
const MAX_ARTIFACT: usize = 48 << 20;

/// Enough that the two halves of a run with answers and words seldom wait for each other.
const ANSWERED_CAPACITY: usize = 64;

/// Begins the name of an artifact that all threads of a user share.
const OF_USER: &str = "user:";

/// Where an API server is, and what to run there.
#[derive(Clone, Debug, Default)]
pub struct AdkOptions {
    /// The server's URL.
    pub url: String,
    /// The app.
    pub app: String,
    /// The user on whose behalf; the gateway's own user if absent.
    pub user: Option<String>,
    /// Headers of every request.
    pub headers: Vec<(String, String)>,
    /// Options of the format, `key=value`.
    pub options: Vec<String>,
}

/// An app as an agent.
#[derive(Clone, Debug)]
pub struct Adk(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    http: Http,
    app: String,
    user: Option<String>,
    language: ExpectedFormat,
}

impl Adk {
    /// An agent on a server.
    ///
    /// # Errors
    /// When the URL, the app, a header or an option is none.
    pub fn new(options: AdkOptions) -> Result<Self, BuildError> {
        let AdkOptions { url, app, user, headers, options } = options;
        if app.is_empty() {
            return Err(BuildError("`app` does not say what to run".into()));
        }
        let http = Http::new(&url, &headers)?;
        let language = ExpectedFormat::of(&adk::FORMAT, &options)?;
        Ok(Self(Arc::new(Shared { http, app, user, language })))
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
            let (api, input) = shared.place(&request);
            let session = shared.known(&request, &api, &input).await?;
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
            let (api, input) = shared.place(&request);
            let answer = shared.ask(&request, &api.delete_session(&input.thread)).await?;
            match answer.status {
                StatusCode::NOT_FOUND => Ok(()),
                status if status.is_success() => Ok(()),
                _ => Err(answer.refusal()),
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

/// Whether a name can be one of an artifact. What a URL or a file system would take for a way elsewhere is none.
fn is_name(name: &str) -> bool {
    let is_step = |part: &str| matches!(part, "" | "." | "..");
    !name.split(['/', '\\']).any(is_step) && !name.chars().any(char::is_control)
}

/// Passes on what is said up to the end. Gives the end if nothing more can be asked behind it.
async fn until_end(mut heard: Receiver<Event>, sink: &EventSink) -> Result<Option<Event>, UpstreamError> {
    let mut open: HashSet<ToolCallId> = HashSet::new();
    let mut end = None;
    while let Some(event) = heard.recv().await {
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

impl Shared {
    async fn run(&self, request: &Request, sink: &EventSink) -> Result<(), UpstreamError> {
        let (api, input) = self.place(request);
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
        let (told, heard) = EventSink::new(ANSWERED_CAPACITY);
        // It holds its own end of the channel, so that the other half hears when it is over.
        let answer = async {
            let told = told;
            self.stream(request, &run, &told).await
        };
        let (answered, end) = tokio::join!(answer, until_end(heard, sink));
        let end = end?;
        answered?;
        match end {
            // It waits again or has failed, and takes no words now.
            Some(end) => Ok(sink.send(end).await?),
            None => self.stream(request, &then, sink).await,
        }
    }

    /// Runs the agent.
    async fn stream(
        &self,
        request: &Request,
        run: &input::AdkRequest,
        sink: &EventSink,
    ) -> Result<(), UpstreamError> {
        let call = Call { accept: ACCEPT_EVENTS, ..self.call(run)? };
        let result = self.http.run(request, call, &self.language, sink).await;
        result.map_err(|failure| match failure.kind() {
            // The session is there, so it can only be the app.
            Kind::Status(StatusCode::NOT_FOUND) => {
                failure.with_kind(Kind::UnknownTarget(format!("app `{}`", self.app).into()))
            }
            _ => failure,
        })
    }

    /// Whose session it is, and what it is called there.
    fn place(&self, request: &Request) -> (AdkApi, RunInput) {
        let mut input = (*request.input).clone();
        let owner = &request.owner;
        let user = match &self.user {
            Some(user) => {
                // All our users are one there.
                input.thread = thread_names::shared_thread(owner, &input.thread);
                user.clone()
            }
            None => thread_names::user(owner),
        };
        input.thread = thread_names::segment(&input.thread).into();
        (AdkApi::new(&*self.app, user), input)
    }

    /// The session of a thread; `None` if it was created from this very request.
    async fn session(
        &self,
        request: &Request,
        api: &AdkApi,
        input: &RunInput,
    ) -> Result<Option<StoredSession>, UpstreamError> {
        if let Some(session) = self.known(request, api, input).await? {
            return Ok(Some(session));
        }
        let made = self.ask(request, &api.create_session(input)).await?;
        match made.status {
            status if status.is_success() => Ok(None),
            // Another gateway was faster.
            StatusCode::CONFLICT => self.known(request, api, input).await,
            _ => Err(made.refusal()),
        }
    }

    /// The session of a thread; `None` if there is none.
    async fn known(
        &self,
        request: &Request,
        api: &AdkApi,
        input: &RunInput,
    ) -> Result<Option<StoredSession>, UpstreamError> {
        let answer = self.ask(request, &api.get_session(&input.thread)).await?;
        if answer.status == StatusCode::NOT_FOUND {
            return Ok(None);
        }
        if !answer.status.is_success() {
            return Err(answer.refusal());
        }
        match input::read_session(&answer.body, &mut Tally::default()) {
            Ok(session) => Ok(Some(session)),
            Err(error) => {
                let what = "the session of the thread on the agent's server";
                Err(UpstreamError::from(Kind::MalformedBody(what.into())).with_detail(error.to_string()))
            }
        }
    }

    /// Whether this owner's `user:` artifacts are theirs alone: not where all our users are one there.
    fn has_own_artifacts(&self, request: &Request) -> bool {
        self.user.is_none() || thread_names::is_single_user(&request.owner)
    }

    async fn artifacts(&self, request: &Request) -> Result<Vec<String>, UpstreamError> {
        let (api, input) = self.place(request);
        let answer = self.ask(request, &api.list_artifacts(&input.thread)).await?;
        if !answer.status.is_success() {
            return Err(answer.refusal());
        }
        let mut names = artifact::read_names(&answer.body).map_err(|error| {
            let what = "the list of artifacts on the agent's server";
            UpstreamError::from(Kind::MalformedBody(what.into())).with_detail(error.to_string())
        })?;
        names.retain(|name| is_name(name) && (self.has_own_artifacts(request) || !name.starts_with(OF_USER)));
        Ok(names)
    }

    async fn artifact(
        &self,
        request: &Request,
        name: &str,
        version: Option<u64>,
    ) -> Result<Option<Artifact>, UpstreamError> {
        if !is_name(name) || (name.starts_with(OF_USER) && !self.has_own_artifacts(request)) {
            return Ok(None);
        }
        let (api, input) = self.place(request);
        let call = self.call(&api.get_artifact(&input.thread, name, version))?;
        let answer = self.http.ask_within(request, call, MAX_ARTIFACT).await?;
        if answer.status == StatusCode::NOT_FOUND {
            return Ok(None);
        }
        if !answer.status.is_success() {
            return Err(answer.refusal());
        }
        match artifact::read(&answer.body) {
            Ok(Some(artifact::Artifact::Content { mime_type, bytes })) => {
                Ok(Some(Artifact { mime_type: mime_type.into(), bytes: bytes.into() }))
            }
            Ok(Some(_)) => {
                let what = "the artifact is a reference to a file elsewhere, which is not fetched";
                Err(Kind::Unsupported(what.into()).into())
            }
            Ok(None) => Ok(None),
            Err(error) => {
                let what = "the artifact on the agent's server";
                Err(UpstreamError::from(Kind::MalformedBody(what.into())).with_detail(error.to_string()))
            }
        }
    }

    fn call(&self, request: &input::AdkRequest) -> Result<Call, UpstreamError> {
        let method = Method::from_bytes(request.method.as_bytes());
        Ok(Call {
            method: method.map_err(|error| Kind::Internal(error.to_string().into()))?,
            url: self.http.below(&request.path)?,
            accept: "application/json",
            json: request.body.as_ref().map(|body| body.get().to_owned()),
            last_event_id: None,
        })
    }

    async fn ask(&self, request: &Request, what: &input::AdkRequest) -> Result<Answer, UpstreamError> {
        self.http.ask(request, self.call(what)?).await
    }
}
