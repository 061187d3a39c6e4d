//! Upstream `langgraph`: an unmodified LangGraph Server (`langgraph dev`, self-hosted, LangGraph Platform).
//!
//! Its threads hold the conversation, so only new messages are sent. Its streams close without a terminal event, so
//! the thread's state and the run's status are read afterwards to distinguish success, interrupt, cancel and error.
//! Its runs outlive their connections: a broken stream is rejoined at its last event, and a run has to be cancelled
//! explicitly.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use agentwire_core::{
    Tally,
    event::{Body, Event, Outcome, RunFinished, RunId, RunInput},
    format::langgraph::{
        self,
        input::{
            KNOWN_STREAM_MODES, RequestSettings, STREAM_MODES, StateKeys, run_request_body,
            stops_at_breakpoint,
        },
        thread_state::{self, ThreadState},
    },
};
use agentwire_store::Owner;
use reqwest::{Method, StatusCode, header};
use serde_json::{Value, json};
use tokio::time::{Duration, sleep};
use uuid::Uuid;

use super::{
    decode::{self, Close, ExpectedFormat, UpstreamDecoder},
    http::{self, ACCEPT_EVENTS, HttpRequest, HttpResponse, HttpTarget},
    local::Local,
    template::{self, TemplateValues},
    thread_names::{ServerThreads, sent_input, thread_uuid},
    timeouts::StreamTimeouts,
};
use crate::{
    agent::{Agent, BoxFuture, BuildError, EventSink, Recalled, Request},
    cpu_work,
    error::{Truncation, UpstreamError, UpstreamErrorKind as Kind},
};

/// The number of attempts to rejoin a broken stream without a new frame.
const MAX_REJOINS: u32 = 5;

/// The backoff before the first attempt; it doubles with each one.
const BACKOFF: Duration = Duration::from_millis(200);

/// The largest number of remembered run ids of the server. Finished runs are removed; this bounds a leak.
const MAX_REMEMBERED: usize = 65_536;

/// The metadata keys of runs and threads on the server that hold the gateway's ids.
const RUN_KEY: &str = "agentwire_run";
const THREAD_KEY: &str = "agentwire_thread";

/// Options of the upstream `langgraph`.
#[derive(Clone, Debug, Default)]
pub struct LangGraphOptions {
    /// The server's URL.
    pub url: String,
    /// The server in this process that has its place.
    pub local: Option<Arc<dyn Local>>,
    /// The graph to run.
    pub graph: String,
    /// An assistant of that graph; the default one if absent.
    pub assistant: Option<String>,
    /// Headers of every request, such as `x-api-key`.
    pub headers: Vec<(String, String)>,
    /// The run's `context`: JSON whose strings may contain `{{…}}` placeholders, filled from the run input.
    pub context: Option<Value>,
    /// Keys of the graph's state in which it expects the client's tools and context: `tools`, `ag-ui`, `copilotkit`.
    pub state_keys: Vec<String>,
    /// The stream modes to ask for; [`STREAM_MODES`] if absent.
    pub stream_modes: Option<Vec<String>>,
    /// Options of the format, `key=value`.
    pub options: Vec<String>,
}

/// An agent that is a graph on a LangGraph Server.
#[derive(Clone, Debug)]
pub struct LangGraph(Arc<LangGraphServer>);

#[derive(Debug)]
struct LangGraphServer {
    http: HttpTarget,
    assistant: String,
    context: Option<Value>,
    keys: StateKeys,
    stream_modes: Vec<&'static str>,
    format: ExpectedFormat,
    /// The server's ids of live runs.
    runs: Mutex<HashMap<(Owner, RunId), String>>,
}

impl LangGraph {
    /// An agent on a server.
    ///
    /// # Errors
    /// When the URL, a header, the context, a state key or an option is invalid.
    pub fn new(options: LangGraphOptions) -> Result<Self, BuildError> {
        let LangGraphOptions {
            url,
            local,
            graph,
            assistant,
            headers,
            context,
            state_keys,
            stream_modes,
            options,
        } = options;
        context.as_ref().map_or(Ok(()), template::check)?;
        let keys = state_keys.join(",");
        let keys = StateKeys::parse(&keys).map_err(|key| {
            BuildError(format!("unknown state key `{key}` (known: tools, ag-ui, copilotkit)"))
        })?;
        let stream_modes = match stream_modes {
            None => STREAM_MODES.to_vec(),
            Some(names) => known_modes(&names)?,
        };
        let assistant = assistant.unwrap_or(graph);
        if assistant.is_empty() {
            return Err(BuildError("neither `graph` nor `assistant` says what to run".into()));
        }
        Ok(Self(Arc::new(LangGraphServer {
            http: HttpTarget::at(&url, &headers, local)?.with_threads(ServerThreads::Uuids),
            assistant,
            context,
            keys,
            stream_modes,
            format: ExpectedFormat::of(&langgraph::FORMAT, &options)?,
            runs: Mutex::default(),
        })))
    }
}

impl Agent for LangGraph {
    fn enforces_stream_timeouts(&self) -> bool {
        true
    }

    fn run(&self, request: Request, sink: EventSink) -> BoxFuture<'static, Result<(), UpstreamError>> {
        let shared = Arc::clone(&self.0);
        Box::pin(async move {
            let result = RemoteRun::new(&shared, &request).start(&sink).await;
            result.inspect_err(|error| abandon(&shared, &request, error))
        })
    }

    fn stop(&self, request: Request) -> BoxFuture<'static, ()> {
        let shared = Arc::clone(&self.0);
        Box::pin(async move {
            let run = RemoteRun::new(&shared, &request);
            if let Err(error) = run.cancel().await {
                let (thread, run) = (&request.input.thread, &request.input.run);
                tracing::warn!(%thread, %run, detail = error.detail(), "the agent's run could not be stopped: {error}");
            }
        })
    }

    fn attach(
        &self,
        request: Request,
        sink: EventSink,
    ) -> Option<BoxFuture<'static, Result<(), UpstreamError>>> {
        let shared = Arc::clone(&self.0);
        Some(Box::pin(async move {
            let result = RemoteRun::new(&shared, &request).attach(&sink).await;
            result.inspect_err(|error| abandon(&shared, &request, error))
        }))
    }

    fn recall(
        &self,
        request: Request,
    ) -> Option<BoxFuture<'static, Result<Option<Recalled>, UpstreamError>>> {
        let shared = Arc::clone(&self.0);
        Some(Box::pin(async move {
            let state = RemoteRun::new(&shared, &request).state().await?;
            Ok(state.map(|(ThreadState { messages, state, mut interrupts, .. }, _)| {
                // A breakpoint may also be a run in progress for another client.
                interrupts.retain(|interrupt| !thread_state::is_breakpoint(interrupt));
                Recalled { messages, state: state.into(), interrupts }
            }))
        }))
    }

    fn forget(&self, request: Request) -> Option<BoxFuture<'static, Result<(), UpstreamError>>> {
        let shared = Arc::clone(&self.0);
        Some(Box::pin(async move {
            let response = RemoteRun::new(&shared, &request).fetch(Method::DELETE, "", None).await?;
            match response.status {
                StatusCode::NOT_FOUND => Ok(()),
                status if status.is_success() => Ok(()),
                _ => Err(response.status_error()),
            }
        }))
    }
}

/// Cancels a failed run in the background: it would continue otherwise.
fn abandon(shared: &Arc<LangGraphServer>, request: &Request, error: &UpstreamError) {
    // The server may have the request although its response never arrived.
    let may_have_started = matches!(error.kind(), Kind::Truncated(_) | Kind::Timeout(_));
    if may_have_started || RemoteRun::new(shared, request).is_remembered() {
        let agent = LangGraph(Arc::clone(shared));
        tokio::spawn(agent.stop(request.clone()));
    }
}

/// A run on the server.
struct RemoteRun<'r> {
    shared: &'r LangGraphServer,
    request: &'r Request,
    thread: Uuid,
}

impl<'r> RemoteRun<'r> {
    fn new(shared: &'r LangGraphServer, request: &'r Request) -> Self {
        Self { shared, request, thread: thread_uuid(request) }
    }

    async fn start(&self, sink: &EventSink) -> Result<(), UpstreamError> {
        if stops_at_breakpoint(&self.request.input) {
            let RunInput { thread, run, .. } = &*self.request.input;
            let mut finished = RunFinished::new(thread.clone(), run.clone());
            finished.outcome = Some(Outcome::Cancelled);
            return Ok(sink.send(Event::new(Body::RunFinished(Box::new(finished)))).await?);
        }
        let timeouts = StreamTimeouts::start(self.request);
        let (thread_state, length) = self.state_or_create().await?.unzip();
        let body = || self.body(thread_state.as_ref());
        let body = cpu_work::in_place_by_length(&self.request.owner, length.unwrap_or(0), body).await;
        let call = self.call(Method::POST, "/runs/stream", Some(body))?;
        let response = self.shared.http.send(self.request, call, &timeouts).await?;
        let response = http::check_status(response, &timeouts)
            .await
            .map_err(|error| refused_run(error, &self.shared.assistant))?;
        let location = response.headers().get(header::CONTENT_LOCATION).and_then(|value| value.to_str().ok());
        let run = location.and_then(|path| path.rsplit_once("/runs/")).map(|(_, run)| run.to_owned());
        if let Some(run) = &run {
            self.remember(run);
        }
        let mut decoder =
            UpstreamDecoder::new(&self.shared.format, self.request, http::framing_hint(&response)?);
        let close = decode::pump(http::bytes(response), &mut decoder, timeouts, sink).await?;
        self.follow(run, decoder, close, sink).await
    }

    /// Finds a run that a crashed gateway started, and reads it from its start.
    async fn attach(&self, sink: &EventSink) -> Result<(), UpstreamError> {
        let Some(run) = self.find().await? else {
            return Err(Kind::UnknownRun.into());
        };
        self.remember(&run);
        let mut decoder = UpstreamDecoder::new(&self.shared.format, self.request, None);
        let close = self.rejoin(&run, &mut decoder, sink).await?;
        self.follow(Some(run), decoder, close, sink).await
    }

    /// Follows a run to its end over any number of connections.
    async fn follow(
        &self,
        run: Option<String>,
        mut decoder: UpstreamDecoder,
        mut close: Close,
        sink: &EventSink,
    ) -> Result<(), UpstreamError> {
        let run = match run {
            Some(run) => Some(run),
            // Older servers do not send the id of the run.
            None if !matches!(close, Close::Done) => self.find().await.unwrap_or_default(),
            None => None,
        };
        let mut attempts = 0;
        let is_over = |close: &Close| match close {
            Close::Done => true,
            // A stream in this process cannot be rejoined: its error is that of the graph.
            Close::Broken(_) => self.shared.http.is_local(),
            _ => false,
        };
        while let (Some(run), false) = (&run, is_over(&close)) {
            let status = self.fetch(Method::GET, &format!("/runs/{run}"), None).await;
            let is_whole = !matches!(close, Close::Broken(_));
            match status {
                Ok(response) if is_whole && response.status == StatusCode::NOT_FOUND => break,
                Ok(response) if is_whole && response.status.is_success() && !is_running(&response.body) => {
                    self.read_outcome(&mut decoder, &response.body, sink).await?;
                    break;
                }
                // The stream ended before its run.
                Ok(_) if attempts == MAX_REJOINS && is_whole => {
                    close = Close::Broken(Truncation::Stream.into())
                }
                Err(error) if attempts == MAX_REJOINS && is_whole => close = Close::Broken(error),
                _ => {}
            }
            if attempts == MAX_REJOINS {
                break;
            }
            sleep(BACKOFF * 2_u32.pow(attempts)).await;
            let before = decoder.frames();
            close = match self.rejoin(run, &mut decoder, sink).await {
                Ok(close) => close,
                Err(error) if is_transient(&error) => Close::Broken(error),
                Err(error) => return Err(error),
            };
            attempts = if decoder.frames() > before { 0 } else { attempts + 1 };
        }
        decode::finish(&mut decoder, close, sink).await?;
        if decoder.has_fallen_back() {
            // The rest of the run is not read.
            self.cancel().await.ok();
        }
        self.forget();
        Ok(())
    }

    /// Reads the outcome of the run, which the stream does not contain.
    async fn read_outcome(
        &self,
        decoder: &mut UpstreamDecoder,
        run: &str,
        sink: &EventSink,
    ) -> Result<(), UpstreamError> {
        let mut events = Vec::new();
        // The run's status alone is enough for most outcomes.
        if let Ok(state) = self.fetch(Method::GET, "/state", None).await
            && state.status.is_success()
        {
            decoder.inject("state", &state.body, &mut events).await?;
        }
        decoder.inject("run", run, &mut events).await?;
        sink.send_all(&mut events).await?;
        Ok(())
    }

    /// Continues a broken stream.
    async fn rejoin(
        &self,
        run: &str,
        decoder: &mut UpstreamDecoder,
        sink: &EventSink,
    ) -> Result<Close, UpstreamError> {
        let timeouts = StreamTimeouts::start(self.request);
        let mut call = self.call(Method::GET, &format!("/runs/{run}/stream"), None)?;
        // -1 is the start of the stream.
        call.last_event_id = Some(decoder.last_id().unwrap_or("-1").to_owned());
        let response = self.shared.http.send(self.request, call, &timeouts).await?;
        let response = http::check_status(response, &timeouts).await?;
        decoder.rejoin();
        decode::pump(http::bytes(response), decoder, timeouts, sink).await
    }

    /// The state of the thread; creates the thread if there is none.
    async fn state_or_create(&self) -> Result<Option<(ThreadState, usize)>, UpstreamError> {
        if let Some(state) = self.state().await? {
            return Ok(Some(state));
        }
        let thread = self.request.input.thread.as_str();
        let body = json!({"thread_id": self.thread.to_string(), "if_exists": "do_nothing", "metadata": {THREAD_KEY: thread}});
        let url = self.shared.http.below("/threads")?;
        let call = HttpRequest {
            method: Method::POST,
            url,
            accept: JSON,
            json: Some(body.to_string()),
            last_event_id: None,
        };
        let made = self.shared.http.fetch(self.request, call).await?;
        // Another gateway may have created it meanwhile.
        match made.status {
            StatusCode::CONFLICT => Ok(None),
            status if status.is_success() => Ok(None),
            _ => Err(made.status_error()),
        }
    }

    /// The state of the thread and the length of its text; `None` if there is none.
    async fn state(&self) -> Result<Option<(ThreadState, usize)>, UpstreamError> {
        let response = self.fetch(Method::GET, "/state", None).await?;
        if response.status == StatusCode::NOT_FOUND {
            return Ok(None);
        }
        if !response.status.is_success() {
            return Err(response.status_error());
        }
        let length = response.body.len();
        let read = || thread_state::read_state(&response.body, &mut Tally::default());
        match cpu_work::in_place_by_length(&self.request.owner, length, read).await {
            Ok(state) => Ok(Some((state, length))),
            Err(error) => {
                let body = "the state of the thread on the agent's server";
                Err(UpstreamError::from(Kind::MalformedBody(body.into())).with_detail(error.to_string()))
            }
        }
    }

    fn body(&self, thread_state: Option<&ThreadState>) -> Value {
        let LangGraphServer { assistant, context, keys, stream_modes, .. } = self.shared;
        let input = &self.request.input;
        let request =
            RequestSettings { keys: *keys, stream_modes, thread_state, ..RequestSettings::new(assistant) };
        let mut body = run_request_body(input, &request);
        if let Some(template) = context {
            let mut filled = template::fill(template, &TemplateValues::of(&sent_input(self.request)));
            // The context that the client forwards takes precedence.
            if let (Some(filled), Some(Value::Object(forwarded))) =
                (filled.as_object_mut(), body.get("context"))
            {
                filled.extend(forwarded.clone());
            }
            body["context"] = filled;
        }
        if !body["metadata"].is_object() {
            body["metadata"] = json!({});
        }
        body["metadata"][RUN_KEY] = input.run.as_str().into();
        body
    }

    async fn cancel(&self) -> Result<(), UpstreamError> {
        let held = self.forget();
        let run = match held {
            Some(run) => Some(run),
            // Stopped before the server's response, or by another gateway.
            None => self.find().await?,
        };
        let Some(run) = run else { return Ok(()) };
        let response = self
            .fetch(Method::POST, &format!("/runs/{run}/cancel?wait=false&action=interrupt"), None)
            .await?;
        match response.status {
            // It has already ended.
            StatusCode::NOT_FOUND | StatusCode::CONFLICT => Ok(()),
            status if status.is_success() => Ok(()),
            _ => Err(response.status_error()),
        }
    }

    /// The server's id of the run.
    async fn find(&self) -> Result<Option<String>, UpstreamError> {
        let response = self.fetch(Method::GET, "/runs?limit=100", None).await?;
        if response.status == StatusCode::NOT_FOUND {
            return Ok(None);
        }
        if !response.status.is_success() {
            return Err(response.status_error());
        }
        let list: Value = serde_json::from_str(&response.body).unwrap_or_default();
        let id = self.request.input.run.as_str();
        let run = list.as_array().into_iter().flatten().find(|run| run["metadata"][RUN_KEY] == id);
        Ok(run.and_then(|run| run["run_id"].as_str()).map(Into::into))
    }

    fn remember(&self, run: &str) {
        let mut runs = self.shared.runs.lock().unwrap_or_else(PoisonError::into_inner);
        if runs.len() < MAX_REMEMBERED {
            runs.insert((self.request.owner.clone(), self.request.input.run.clone()), run.to_owned());
        }
    }

    fn is_remembered(&self) -> bool {
        let runs = self.shared.runs.lock().unwrap_or_else(PoisonError::into_inner);
        runs.contains_key(&(self.request.owner.clone(), self.request.input.run.clone()))
    }

    fn forget(&self) -> Option<String> {
        let mut runs = self.shared.runs.lock().unwrap_or_else(PoisonError::into_inner);
        runs.remove(&(self.request.owner.clone(), self.request.input.run.clone()))
    }

    /// A request for a path below the thread.
    fn call(&self, method: Method, path: &str, body: Option<Value>) -> Result<HttpRequest, UpstreamError> {
        let url = self.shared.http.below(&format!("/threads/{}{path}", self.thread))?;
        let json = body.map(|body| body.to_string());
        Ok(HttpRequest { method, url, accept: ACCEPT_EVENTS, json, last_event_id: None })
    }

    async fn fetch(
        &self,
        method: Method,
        path: &str,
        body: Option<Value>,
    ) -> Result<HttpResponse, UpstreamError> {
        let call = HttpRequest { accept: JSON, ..self.call(method, path, body)? };
        self.shared.http.fetch(self.request, call).await
    }
}

const JSON: &str = "application/json";

/// The configured stream modes.
fn known_modes(names: &[String]) -> Result<Vec<&'static str>, BuildError> {
    if names.is_empty() {
        return Err(BuildError("`stream_modes` is empty".into()));
    }
    let find = |name: &String| {
        let found = KNOWN_STREAM_MODES.iter().find(|known| *known == name).copied();
        let known = KNOWN_STREAM_MODES.join(", ");
        found.ok_or_else(|| BuildError(format!("unknown stream mode `{name}` (known: {known})")))
    };
    names.iter().map(find).collect()
}

/// True if a run is pending or running by its status on the server.
fn is_running(run: &str) -> bool {
    let run: Value = serde_json::from_str(run).unwrap_or_default();
    matches!(run["status"].as_str(), Some("pending" | "running"))
}

/// True if a retry may succeed.
fn is_transient(error: &UpstreamError) -> bool {
    matches!(error.kind(), Kind::Connect | Kind::Truncated(_) | Kind::Status(_))
}

/// The meaning of error statuses in the response to a run request.
fn refused_run(error: UpstreamError, assistant: &str) -> UpstreamError {
    let Kind::Status(status) = error.kind() else { return error };
    let kind = match *status {
        StatusCode::NOT_FOUND => Kind::UnknownTarget(format!("graph or assistant `{assistant}`").into()),
        StatusCode::CONFLICT => Kind::ThreadBusy,
        StatusCode::UNPROCESSABLE_ENTITY => Kind::InvalidRun,
        _ => return error,
    };
    error.with_kind(kind)
}
