//! LangGraph Server, as it is: `langgraph dev`, a self-hosted one, LangGraph Platform.
//!
//! Its threads hold the conversation, so only what is new is sent. Its streams close without a word, so the
//! thread's state and the run's status are read afterwards to tell success, interrupt, cancel and error apart.
//! Its runs outlive their connections: one that breaks is joined again where it broke, and stopping a run has to
//! be said.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use agentwire_core::{
    Tally,
    event::{Body, Event, Outcome, RunFinished, RunId, RunInput},
    format::langgraph::{
        self,
        input::{RequestSettings, StateKeys, run_request_body, stops_at_breakpoint},
        thread_state::{self, ThreadState},
    },
};
use agentwire_store::Owner;
use reqwest::{Method, StatusCode, header};
use serde_json::{Value, json};
use tokio::time::{Duration, sleep};
use uuid::Uuid;

use super::{
    decode::{self, Close, ExpectedFormat, StreamTimeouts, UpstreamDecoder},
    http::{self, ACCEPT_EVENTS, Answer, Call, Http},
    template::{self, Values},
    thread_names::thread_uuid,
};
use crate::{
    agent::{Agent, BoxFuture, BuildError, EventSink, Recalled, Request},
    error::{Truncation, UpstreamError, UpstreamErrorKind as Kind},
};

/// How often a stream that broke is joined again without getting anywhere.
const JOINS: u32 = 5;

/// How long before the first of them; each one waits twice as long as the last.
const PAUSE: Duration = Duration::from_millis(200);

/// The most runs of which the server's name is remembered. Those that end are forgotten; this is for a gateway
/// that loses track.
const MAX_REMEMBERED: usize = 65_536;

/// The key of a run's and a thread's metadata on the server under which our name for it stands.
const OUR_RUN: &str = "agentwire_run";
const OUR_THREAD: &str = "agentwire_thread";

/// Where a LangGraph Server is, and what to run there.
#[derive(Clone, Debug, Default)]
pub struct LangGraphOptions {
    /// The server's URL.
    pub url: String,
    /// The graph.
    pub graph: String,
    /// An assistant of that graph; its default one if absent.
    pub assistant: Option<String>,
    /// Headers of every request, such as `x-api-key`.
    pub headers: Vec<(String, String)>,
    /// The run's `context`: JSON whose strings may hold `{{…}}`, filled in from the run input.
    pub context: Option<Value>,
    /// Keys of the graph's state under which it expects the user interface's tools and context: `tools`,
    /// `ag-ui`, `copilotkit`.
    pub state_keys: Vec<String>,
    /// Options of the format, `key=value`.
    pub options: Vec<String>,
}

/// A graph as an agent.
#[derive(Clone, Debug)]
pub struct LangGraph(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    http: Http,
    assistant: String,
    context: Option<Value>,
    keys: StateKeys,
    language: ExpectedFormat,
    /// What the server calls our live runs.
    runs: Mutex<HashMap<(Owner, RunId), String>>,
}

impl LangGraph {
    /// An agent on a server.
    ///
    /// # Errors
    /// When the URL, a header, the context, a key or an option is none.
    pub fn new(options: LangGraphOptions) -> Result<Self, BuildError> {
        let LangGraphOptions { url, graph, assistant, headers, context, state_keys, options } = options;
        context.as_ref().map_or(Ok(()), template::check)?;
        let keys = state_keys.join(",");
        let keys = StateKeys::parse(&keys).map_err(|key| {
            BuildError(format!("unknown state key `{key}` (known: tools, ag-ui, copilotkit)"))
        })?;
        let assistant = assistant.unwrap_or(graph);
        if assistant.is_empty() {
            return Err(BuildError("neither `graph` nor `assistant` says what to run".into()));
        }
        Ok(Self(Arc::new(Shared {
            http: Http::new(&url, &headers)?,
            assistant,
            context,
            keys,
            language: ExpectedFormat::of(&langgraph::FORMAT, &options)?,
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
            let result = Run::new(&shared, &request).start(&sink).await;
            result.inspect_err(|failure| abandon(&shared, &request, failure))
        })
    }

    fn stop(&self, request: Request) -> BoxFuture<'static, ()> {
        let shared = Arc::clone(&self.0);
        Box::pin(async move {
            let run = Run::new(&shared, &request);
            if let Err(failure) = run.cancel().await {
                let (thread, run) = (&request.input.thread, &request.input.run);
                tracing::warn!(%thread, %run, detail = failure.detail(), "the agent's run could not be stopped: {failure}");
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
            let result = Run::new(&shared, &request).attach(&sink).await;
            result.inspect_err(|failure| abandon(&shared, &request, failure))
        }))
    }

    fn recall(
        &self,
        request: Request,
    ) -> Option<BoxFuture<'static, Result<Option<Recalled>, UpstreamError>>> {
        let shared = Arc::clone(&self.0);
        Some(Box::pin(async move {
            let held = Run::new(&shared, &request).held().await?;
            Ok(held.map(|ThreadState { messages, state, mut interrupts, .. }| {
                // It may as well be running, on somebody else's behalf.
                interrupts.retain(|interrupt| !thread_state::is_breakpoint(interrupt));
                Recalled { messages, state: state.into(), interrupts }
            }))
        }))
    }

    fn forget(&self, request: Request) -> Option<BoxFuture<'static, Result<(), UpstreamError>>> {
        let shared = Arc::clone(&self.0);
        Some(Box::pin(async move {
            let answer = Run::new(&shared, &request).ask(Method::DELETE, "", None).await?;
            match answer.status {
                StatusCode::NOT_FOUND => Ok(()),
                status if status.is_success() => Ok(()),
                _ => Err(answer.refusal()),
            }
        }))
    }
}

/// Stops a run that we have failed: it would go on otherwise. Nobody waits for that.
fn abandon(shared: &Arc<Shared>, request: &Request, failure: &UpstreamError) {
    // The server has the request, even where it did not live to say so.
    let begun = matches!(failure.kind(), Kind::Truncated(_) | Kind::Timeout(_));
    if begun || Run::new(shared, request).is_remembered() {
        let agent = LangGraph(Arc::clone(shared));
        tokio::spawn(agent.stop(request.clone()));
    }
}

/// One run of ours on the server.
struct Run<'r> {
    shared: &'r Shared,
    request: &'r Request,
    thread: Uuid,
}

impl<'r> Run<'r> {
    fn new(shared: &'r Shared, request: &'r Request) -> Self {
        Self { shared, request, thread: thread_uuid(&request.owner, &request.input.thread) }
    }

    async fn start(&self, sink: &EventSink) -> Result<(), UpstreamError> {
        if stops_at_breakpoint(&self.request.input) {
            let RunInput { thread, run, .. } = &*self.request.input;
            let mut finished = RunFinished::new(thread.clone(), run.clone());
            finished.outcome = Some(Outcome::Cancelled);
            return Ok(sink.send(Event::new(Body::RunFinished(Box::new(finished)))).await?);
        }
        let timeouts = StreamTimeouts::begin(self.request);
        let known = self.known().await?;
        let call = self.call(Method::POST, "/runs/stream", Some(self.body(known.as_ref())))?;
        let response = self.shared.http.send(self.request, call, &timeouts).await?;
        let response = http::accepted(response, &timeouts)
            .await
            .map_err(|failure| refused(failure, &self.shared.assistant))?;
        let location = response.headers().get(header::CONTENT_LOCATION).and_then(|value| value.to_str().ok());
        let run = location.and_then(|path| path.rsplit_once("/runs/")).map(|(_, run)| run.to_owned());
        if let Some(run) = &run {
            self.remember(run);
        }
        let mut intake = UpstreamDecoder::new(&self.shared.language, self.request, http::events(&response)?);
        let close = decode::pump(response.bytes_stream(), &mut intake, timeouts, sink).await?;
        self.follow(run, intake, close, sink).await
    }

    /// Finds a run that a gateway before us started, and plays it from its beginning.
    async fn attach(&self, sink: &EventSink) -> Result<(), UpstreamError> {
        let Some(run) = self.find().await? else {
            return Err(Kind::UnknownRun.into());
        };
        self.remember(&run);
        let mut intake = UpstreamDecoder::new(&self.shared.language, self.request, None);
        let close = self.join(&run, &mut intake, sink).await?;
        self.follow(Some(run), intake, close, sink).await
    }

    /// Sees a run to its end, whatever happens to its connection.
    async fn follow(
        &self,
        run: Option<String>,
        mut intake: UpstreamDecoder,
        mut close: Close,
        sink: &EventSink,
    ) -> Result<(), UpstreamError> {
        let run = match run {
            Some(run) => Some(run),
            // Older servers do not say what they call it.
            None if !matches!(close, Close::Over) => self.find().await.unwrap_or_default(),
            None => None,
        };
        let mut joins = 0;
        while let (Some(run), false) = (&run, matches!(close, Close::Over)) {
            let status = self.ask(Method::GET, &format!("/runs/{run}"), None).await;
            let whole = !matches!(close, Close::Broken(_));
            match status {
                Ok(answer) if whole && answer.status == StatusCode::NOT_FOUND => break,
                Ok(answer) if whole && answer.status.is_success() && !is_running(&answer.body) => {
                    self.judge(&mut intake, &answer.body, sink).await?;
                    break;
                }
                // A stream that ended before its run did.
                Ok(_) if joins == JOINS && whole => close = Close::Broken(Truncation::Stream.into()),
                Err(failure) if joins == JOINS && whole => close = Close::Broken(failure),
                _ => {}
            }
            if joins == JOINS {
                break;
            }
            sleep(PAUSE * 2_u32.pow(joins)).await;
            let before = intake.frames();
            close = match self.join(run, &mut intake, sink).await {
                Ok(close) => close,
                Err(failure) if is_transient(&failure) => Close::Broken(failure),
                Err(failure) => return Err(failure),
            };
            joins = if intake.frames() > before { 0 } else { joins + 1 };
        }
        decode::finish(&mut intake, close, sink).await?;
        if intake.fell_back() {
            // Nobody listens to the rest of it.
            self.cancel().await.ok();
        }
        self.forget();
        Ok(())
    }

    /// Reads how the run ended: the stream did not say.
    async fn judge(
        &self,
        intake: &mut UpstreamDecoder,
        run: &str,
        sink: &EventSink,
    ) -> Result<(), UpstreamError> {
        let mut events = Vec::new();
        // Without it the run's status still tells most of it.
        if let Ok(state) = self.ask(Method::GET, "/state", None).await
            && state.status.is_success()
        {
            intake.tell("state", &state.body, &mut events).await?;
        }
        intake.tell("run", run, &mut events).await?;
        sink.send_all(&mut events).await?;
        Ok(())
    }

    /// Reads on where the stream broke.
    async fn join(
        &self,
        run: &str,
        intake: &mut UpstreamDecoder,
        sink: &EventSink,
    ) -> Result<Close, UpstreamError> {
        let timeouts = StreamTimeouts::begin(self.request);
        let mut call = self.call(Method::GET, &format!("/runs/{run}/stream"), None)?;
        // From the beginning, if there is none yet.
        call.last_event_id = Some(intake.last_id().unwrap_or("-1").to_owned());
        let response = self.shared.http.send(self.request, call, &timeouts).await?;
        let response = http::accepted(response, &timeouts).await?;
        intake.again();
        decode::pump(response.bytes_stream(), intake, timeouts, sink).await
    }

    /// What the thread holds; creates it if there is none.
    async fn known(&self) -> Result<Option<ThreadState>, UpstreamError> {
        if let Some(held) = self.held().await? {
            return Ok(Some(held));
        }
        let thread = self.request.input.thread.as_str();
        let body = json!({"thread_id": self.thread.to_string(), "if_exists": "do_nothing", "metadata": {OUR_THREAD: thread}});
        let url = self.shared.http.below("/threads")?;
        let call = Call {
            method: Method::POST,
            url,
            accept: JSON,
            json: Some(body.to_string()),
            last_event_id: None,
        };
        let made = self.shared.http.ask(self.request, call).await?;
        // Another gateway may have been faster.
        match made.status {
            StatusCode::CONFLICT => Ok(None),
            status if status.is_success() => Ok(None),
            _ => Err(made.refusal()),
        }
    }

    /// What the thread holds, if there is one.
    async fn held(&self) -> Result<Option<ThreadState>, UpstreamError> {
        let answer = self.ask(Method::GET, "/state", None).await?;
        if answer.status == StatusCode::NOT_FOUND {
            return Ok(None);
        }
        if !answer.status.is_success() {
            return Err(answer.refusal());
        }
        match thread_state::read_state(&answer.body, &mut Tally::default()) {
            Ok(state) => Ok(Some(state)),
            Err(error) => {
                let what = "the state of the thread on the agent's server";
                Err(UpstreamError::from(Kind::MalformedBody(what.into())).with_detail(error.to_string()))
            }
        }
    }

    fn body(&self, known: Option<&ThreadState>) -> Value {
        let Shared { assistant, context, keys, .. } = self.shared;
        let input = &self.request.input;
        let request = RequestSettings { keys: *keys, thread_state: known, ..RequestSettings::new(assistant) };
        let mut body = run_request_body(input, &request);
        if let Some(template) = context {
            let mut filled = template::fill(template, &Values::of(input));
            // What the user interface forwards is more particular.
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
        body["metadata"][OUR_RUN] = input.run.as_str().into();
        body
    }

    async fn cancel(&self) -> Result<(), UpstreamError> {
        let held = self.forget();
        let run = match held {
            Some(run) => Some(run),
            // Stopped before the server's answer, or by another gateway.
            None => self.find().await?,
        };
        let Some(run) = run else { return Ok(()) };
        let answer =
            self.ask(Method::POST, &format!("/runs/{run}/cancel?wait=false&action=interrupt"), None).await?;
        match answer.status {
            // It had ended by itself.
            StatusCode::NOT_FOUND | StatusCode::CONFLICT => Ok(()),
            status if status.is_success() => Ok(()),
            _ => Err(answer.refusal()),
        }
    }

    /// The server's name of the run, by ours.
    async fn find(&self) -> Result<Option<String>, UpstreamError> {
        let answer = self.ask(Method::GET, "/runs?limit=100", None).await?;
        if answer.status == StatusCode::NOT_FOUND {
            return Ok(None);
        }
        if !answer.status.is_success() {
            return Err(answer.refusal());
        }
        let list: Value = serde_json::from_str(&answer.body).unwrap_or_default();
        let ours = self.request.input.run.as_str();
        let run = list.as_array().into_iter().flatten().find(|run| run["metadata"][OUR_RUN] == ours);
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

    /// A request about the thread.
    fn call(&self, method: Method, path: &str, body: Option<Value>) -> Result<Call, UpstreamError> {
        let url = self.shared.http.below(&format!("/threads/{}{path}", self.thread))?;
        let json = body.map(|body| body.to_string());
        Ok(Call { method, url, accept: ACCEPT_EVENTS, json, last_event_id: None })
    }

    async fn ask(&self, method: Method, path: &str, body: Option<Value>) -> Result<Answer, UpstreamError> {
        let call = Call { accept: JSON, ..self.call(method, path, body)? };
        self.shared.http.ask(self.request, call).await
    }
}

const JSON: &str = "application/json";

/// Whether a run is not over by what the server says about it.
fn is_running(run: &str) -> bool {
    let run: Value = serde_json::from_str(run).unwrap_or_default();
    matches!(run["status"].as_str(), Some("pending" | "running"))
}

/// Whether it is worth while to try again.
fn is_transient(failure: &UpstreamError) -> bool {
    matches!(failure.kind(), Kind::Connect | Kind::Truncated(_) | Kind::Status(_))
}

/// What the server's refusals of a run mean.
fn refused(failure: UpstreamError, assistant: &str) -> UpstreamError {
    let Kind::Status(status) = failure.kind() else { return failure };
    let kind = match *status {
        StatusCode::NOT_FOUND => Kind::UnknownTarget(format!("graph or assistant `{assistant}`").into()),
        StatusCode::CONFLICT => Kind::ThreadBusy,
        StatusCode::UNPROCESSABLE_ENTITY => Kind::InvalidRun,
        _ => return failure,
    };
    failure.with_kind(kind)
}
