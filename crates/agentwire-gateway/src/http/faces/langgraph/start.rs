//! The start of a run: `runs/stream`, `runs/wait`, `runs`, the stateless ones, and `stream/{agent}`.

use std::{collections::HashSet, sync::Arc, time::Duration};

use agentwire_core::{
    event::{RunId, ThreadId},
    format::ag_ui,
};
use agentwire_store::{Conflict, NewThread, RunKey, StateChange, StoreError, Text, TextChange, ThreadChange};
use axum::{
    http::{HeaderName, HeaderValue, StatusCode, header},
    response::Response,
};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

use super::{
    super::{
        super::{
            RouteGroup, json,
            request::ApiRequest,
            response::{self, Following},
            start::run_request,
            threads,
        },
        request::FaceRequest,
    },
    body::{DEFAULT_MODES, FETCH_MODES, Multitask, RunBody},
    checkpoints,
    errors::{invalid, unknown_assistant, unknown_thread},
    records::Records,
    runs,
};
use crate::{
    auth::Action,
    codes, cpu_work,
    error::ApiError,
    gateway::AgentEntry,
    human::{given::AnswerProtocol, validate},
    run::{
        admission::{Admission, AskedPolicies, RunRequest},
        remote::Control,
    },
    settings::{Busy, History},
    stream::output::OutputFormat,
};

/// The modes of a run that is started by a command: a client that joins it by the classic route gets them.
pub(super) const ALL_MODES: &str = FETCH_MODES;

/// The length of a thread's queue, unless the agent's own setting has one.
const QUEUE: usize = 8;

/// The time after the end of a stateless run for which its log can be read.
const READ_TIME: Duration = Duration::from_secs(10);

/// The thread of a run.
enum Place {
    /// That of the path.
    Path,
    /// A new one, which is deleted at the end of the run.
    Stateless,
    /// That of `config.configurable.thread_id`, created if need be.
    Configured,
}

/// A run that was started.
pub(super) struct Started {
    pub(super) request: ApiRequest,
    pub(super) thread: ThreadId,
    admission: Admission,
    output_format: OutputFormat,
    input: agentwire_core::event::RunInput,
    is_stateless: bool,
}

/// `POST threads/{id}/runs/stream`.
pub(super) async fn stream(request: FaceRequest) -> Result<Response, ApiError> {
    follow(start(request, Place::Path, true).await?).await
}

/// `POST runs/stream`.
pub(super) async fn stateless_stream(request: FaceRequest) -> Result<Response, ApiError> {
    follow(start(request, Place::Stateless, true).await?).await
}

/// `POST stream/{agent}`: the one route of `FetchStreamTransport`.
pub(super) async fn fetch_stream(request: FaceRequest) -> Result<Response, ApiError> {
    follow(start(request, Place::Configured, true).await?).await
}

/// `POST threads/{id}/runs`: a run that nobody reads yet.
pub(super) async fn create(request: FaceRequest) -> Result<Response, ApiError> {
    background(start(request, Place::Path, false).await?).await
}

/// `POST runs`.
pub(super) async fn stateless_create(request: FaceRequest) -> Result<Response, ApiError> {
    background(start(request, Place::Stateless, false).await?).await
}

/// `POST threads/{id}/runs/wait`: the values at the end of the run.
pub(super) async fn wait(request: FaceRequest) -> Result<Response, ApiError> {
    values(start(request, Place::Path, true).await?).await
}

/// `POST runs/wait`.
pub(super) async fn stateless_wait(request: FaceRequest) -> Result<Response, ApiError> {
    values(start(request, Place::Stateless, true).await?).await
}

async fn follow(started: Started) -> Result<Response, ApiError> {
    let Started { request, thread, admission, output_format, input, is_stateless } = started;
    let run = admission.run().clone();
    let following = Following { run: &run, after: None, with_history: false, input: Some(&input) };
    let response = response::follow(&request, following, output_format).await?;
    Ok(with_location(runs::never_empty(response), (!is_stateless).then_some(&thread), &run))
}

async fn background(started: Started) -> Result<Response, ApiError> {
    let Started { request, thread, admission, is_stateless, .. } = started;
    let run = admission.run().clone();
    drop(admission);
    let stored = request.state.gateway.store().run(&request.owner, &run).await?;
    let response = json(runs::shown(&request, &stored).await?.to_string());
    Ok(with_location(response, (!is_stateless).then_some(&thread), &run))
}

async fn values(started: Started) -> Result<Response, ApiError> {
    let Started { request, thread, admission, is_stateless, .. } = started;
    let run = admission.run().clone();
    // The guard of the admission counts this client as a reader until it leaves.
    let response = runs::values_at_end(&request, &thread, &run).await?;
    drop(admission);
    Ok(with_location(response, (!is_stateless).then_some(&thread), &run))
}

/// An id in a path.
fn segment(id: &str) -> String {
    const KEPT: &percent_encoding::AsciiSet =
        &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');
    utf8_percent_encode(id, KEPT).to_string()
}

/// Adds the place of a run, from which clients take its id, and that of its stream, at which they reconnect: below the
/// address that they know the server by.
fn with_location(mut response: Response, thread: Option<&ThreadId>, run: &RunId) -> Response {
    let place = match thread {
        Some(thread) => format!("/threads/{}/runs/{}", segment(thread), segment(run)),
        None => format!("/runs/{}", segment(run)),
    };
    let is_stream = response
        .headers()
        .get(header::CONTENT_TYPE)
        .is_some_and(|kind| kind.as_bytes().starts_with(b"text/event-stream"));
    let mut set = |name: HeaderName, value: String| {
        if let Ok(value) = HeaderValue::from_str(&value) {
            response.headers_mut().insert(name, value);
        }
    };
    if is_stream {
        set(header::LOCATION, format!("{place}/stream"));
    }
    set(header::CONTENT_LOCATION, place);
    response
}

/// The assistant that a request names.
pub(super) fn assistant(request: &FaceRequest, name: &str) -> Result<Arc<AgentEntry>, ApiError> {
    let agent = request.agent(name, Action::Run).filter(|agent| agent.settings.routes.runs);
    agent.ok_or_else(|| unknown_assistant(name).with_status(StatusCode::UNPROCESSABLE_ENTITY))
}

async fn start(request: FaceRequest, place: Place, is_read: bool) -> Result<Started, ApiError> {
    let gateway = request.gateway.clone();
    let run = RunId::from(gateway.new_id("run"));
    let thread = match place {
        Place::Path => ThreadId::from(request.param("id")),
        Place::Stateless | Place::Configured => gateway.new_id("thread").into(),
    };
    let (body, id) = (request.body.clone(), run.clone());
    let named = thread.clone();
    let parse = move || {
        let text = std::str::from_utf8(&body).map_err(|_| invalid("the body is not UTF-8"))?;
        RunBody::parse(text, named, id)
    };
    let mut body = match request.body.len() > cpu_work::SHORT_TEXT {
        true => cpu_work::spawn(request.sender(), parse).await.flatten()?,
        false => parse()?,
    };
    let (name, default_modes) = match place {
        Place::Configured => (request.param("agent").to_owned(), FETCH_MODES),
        _ => {
            let name = body.assistant.clone().ok_or_else(|| invalid("`assistant_id` is missing"))?;
            (name, DEFAULT_MODES)
        }
    };
    if let (Place::Configured, Some(configured)) = (&place, &body.configured_thread) {
        body.input.thread = configured.as_str().into();
    }
    let modes = body.modes.clone().unwrap_or_else(|| default_modes.to_owned());
    let creates = !matches!(place, Place::Path);
    let is_stateless = matches!(place, Place::Stateless);
    let keeps = body.keeps_thread;
    let output_format = output_format(&modes)?;
    let prepared = prepare(request, &name, body, creates, &modes).await?;
    if is_read && let Err(refused) = prepared.request.reserve_reader() {
        prepared.undo().await;
        return Err(refused);
    }
    let input = prepared.run_request.input.clone();
    let thread = input.thread.clone();
    let (request, admission) = prepared.admit().await?;
    if is_stateless && !keeps {
        gateway.tasks().spawn(forget(
            gateway.clone(),
            request.owner.clone(),
            thread.clone(),
            admission.run().clone(),
        ));
    }
    Ok(Started { request, thread, admission, output_format, input, is_stateless })
}

/// A request to run, with its thread in place.
pub(super) struct Prepared {
    pub(super) request: ApiRequest,
    pub(super) run_request: RunRequest,
    /// The thread before it was returned to a checkpoint.
    returned: Option<Returned>,
}

/// A thread that was returned to a checkpoint.
struct Returned {
    before: Option<Text>,
    state: Option<Text>,
    /// The messages and the number of the state since.
    messages: Text,
    seq: u64,
}

impl Prepared {
    /// Starts the run. If it is refused, the thread is what it was before.
    pub(super) async fn admit(self) -> Result<(ApiRequest, Admission), ApiError> {
        let Self { request, run_request, returned } = self;
        let thread = run_request.input.thread.clone();
        match request.state.gateway.admit(run_request).await {
            Ok(admission) => Ok((request, admission)),
            Err(refused) => {
                undo(&request, &thread, returned).await;
                Err(refused)
            }
        }
    }

    /// Leaves the thread as it was before.
    pub(super) async fn undo(self) {
        undo(&self.request, &self.run_request.input.thread, self.returned).await;
    }
}

/// Undoes the return of a thread to a checkpoint, unless something has changed since.
async fn undo(request: &ApiRequest, thread: &ThreadId, returned: Option<Returned>) {
    let Some(Returned { before, messages, state, seq }) = returned else { return };
    let body = before.unwrap_or_else(|| "[]".into());
    let change = ThreadChange {
        messages: Some(TextChange { expected: Some(messages), body }),
        state: Some(StateChange { expected: seq, body: state.unwrap_or_else(|| "{}".into()) }),
        ..ThreadChange::default()
    };
    match request.state.gateway.store().update_thread(&request.owner, thread, change).await {
        Ok(_) | Err(StoreError::Conflict(_) | StoreError::NotFound(_)) => {}
        Err(error) => tracing::warn!(%thread, %error, "a return to a checkpoint could not be undone"),
    }
}

/// The request to run that a body asks for, with its thread in place.
pub(super) async fn prepare(
    request: FaceRequest,
    assistant_name: &str,
    body: RunBody,
    creates: bool,
    modes: &str,
) -> Result<Prepared, ApiError> {
    let gateway = request.gateway.clone();
    let agent = assistant(&request, assistant_name)?;
    let thread = body.input.thread.clone();
    let is_known = bring(&request, &agent, &thread).await?;
    let request = request.to(&agent, RouteGroup::Main)?;
    if !is_known
        && !creates
        && !body.creates_thread
        && threads::read_snapshot(&request, &thread).await?.is_none()
    {
        return Err(unknown_thread());
    }
    if body.is_answer() {
        request.require(Action::Answer)?;
    }
    let (is_empty, checkpoint, multitask) = (body.is_empty(), body.checkpoint.clone(), body.multitask);
    let echo = body.echo.to_text();
    let mut run_request = run_request(&request, body.input, AnswerProtocol::AgUi)?;
    if !creates && run_request.input.thread != thread {
        // The app that identifies senders names another one.
        return Err(unknown_thread());
    }
    let thread = run_request.input.thread.clone();
    run_request.output_format = Some(format!("{FORMAT};{modes}"));
    run_request.echo = Some(echo);
    let queue = match agent.settings.busy {
        Busy::Enqueue { limit } => limit,
        _ => QUEUE,
    };
    run_request.asked = AskedPolicies {
        busy: Some(match multitask {
            Multitask::Reject => Busy::Reject,
            Multitask::Interrupt | Multitask::Rollback => Busy::Interrupt,
            Multitask::Enqueue => Busy::Enqueue { limit: queue },
        }),
        on_disconnect: body.on_disconnect,
        has_start_in_log: true,
    };
    if multitask == Multitask::Rollback {
        roll_back(&request, &thread).await?;
    }
    let mut checkpoint = match checkpoint {
        Some(id) => Some(checkpoints::find(&request, &thread, &id).await?),
        None => None,
    };
    let checkpoint = checkpoint.take_if(|(_, is_newest)| !*is_newest).map(|(checkpoint, _)| checkpoint);
    let is_kept_by_client = gateway.settings().history(&agent.settings) == History::Client;
    let before = match &checkpoint {
        Some(checkpoint) => checkpoint.messages().to_vec(),
        None if is_empty || is_kept_by_client => gateway.stored_messages(&request.owner, &thread).await?,
        None => Vec::new(),
    };
    if is_empty && before.is_empty() {
        return Err(invalid("there is nothing to run: `input` is empty, and so is the thread"));
    }
    let mut returned = None;
    if let Some(checkpoint) = checkpoint {
        returned = Some(return_to(&request, &thread, &checkpoint).await?);
        run_request.cut = Some(checkpoint.cut());
    }
    if is_kept_by_client {
        // These clients send their new messages only.
        let sent = std::mem::take(&mut run_request.input.messages);
        let ids: HashSet<_> = sent.iter().map(|message| &message.id).collect();
        let mut whole = before;
        whole.retain(|known| !ids.contains(&known.id));
        drop(ids);
        whole.extend(sent);
        run_request.input.messages = whole;
    }
    Ok(Prepared { request, run_request, returned })
}

/// The name under which a run's output format is stored; its modes follow.
const FORMAT: &str = "langgraph@server";

/// The stream modes that the client of a run asked for.
pub(super) fn stored_modes(output_format: &str) -> Option<&str> {
    output_format.strip_prefix(FORMAT)?.strip_prefix(';')
}

/// The output format with these modes.
pub(super) fn output_format(modes: &str) -> Result<OutputFormat, ApiError> {
    let option = format!("modes={modes}");
    response::output_format(&agentwire_core::format::langgraph::FORMAT, "server", [&*option])
}

/// True if the sender has the thread at this agent. One that was created without an assistant and has no run yet is moved
/// to it.
async fn bring(request: &FaceRequest, agent: &Arc<AgentEntry>, thread: &ThreadId) -> Result<bool, ApiError> {
    if request.agent_with(std::slice::from_ref(agent), thread).await?.is_some() {
        return Ok(true);
    }
    let others: Vec<_> = request
        .agents(Action::Run)
        .into_iter()
        .filter(|other| other.owner_agent() != agent.owner_agent())
        .collect();
    let Some(other) = request.agent_with(&others, thread).await? else { return Ok(false) };
    let (from, to) = (request.owner_at(&other)?, request.owner_at(agent)?);
    let store = request.gateway.store();
    if !store.runs(&from, thread, None, 1).await?.items.is_empty() {
        let message = format!("the thread belongs to the assistant `{}`", other.name);
        return Err(ApiError::new(codes::IMPOSSIBLE, message).with_status(StatusCode::CONFLICT));
    }
    let metadata = store.thread(&from, thread).await?.metadata;
    let thread_ids = Some(request.gateway.thread_ids(agent));
    store.create_thread(&to, NewThread { thread: thread.clone(), thread_ids, metadata }).await?;
    store.delete_thread(&from, thread).await?;
    Ok(true)
}

/// Gives a thread that no run has the messages and the state of an earlier checkpoint. A run that starts now continues there.
async fn return_to(
    request: &ApiRequest,
    thread: &ThreadId,
    checkpoint: &checkpoints::Checkpoint,
) -> Result<Returned, ApiError> {
    let (gateway, owner) = (&request.state.gateway, &request.owner);
    // Before anything is changed: such a run would be refused.
    if let Some(open) = gateway.unanswered_item(owner, thread, &[]).await? {
        return Err(validate::unanswered(open.as_str()));
    }
    let messages: Text = ag_ui::messages_to_json(checkpoint.messages()).into();
    loop {
        let before = gateway.store().messages(owner, thread).await?;
        let now = gateway.store().state(owner, thread).await?;
        let change = ThreadChange {
            messages: Some(TextChange { expected: before.clone(), body: messages.clone() }),
            state: Some(StateChange { expected: now.seq, body: checkpoint.state.to_string().into() }),
            ..ThreadChange::default()
        };
        match gateway.store().update_thread(owner, thread, change).await {
            Ok(_) => return Ok(Returned { before, messages, state: now.body, seq: now.seq + 1 }),
            Err(StoreError::Conflict(Conflict::State { .. } | Conflict::Thread)) => {}
            Err(StoreError::Conflict(Conflict::Orphan(run))) => gateway.settle_orphan(owner, &run).await?,
            Err(StoreError::Conflict(Conflict::Leased(_))) => {
                return Err(ApiError::new(codes::THREAD_IS_LOCKED, "another run has the thread"));
            }
            Err(error) => return Err(error.into()),
        }
    }
}

/// Stops the run that has the thread, and undoes it: the thread has the messages and the state from before.
pub(super) async fn roll_back(request: &ApiRequest, thread: &ThreadId) -> Result<(), ApiError> {
    let (gateway, owner) = (&request.state.gateway, &request.owner);
    let store = gateway.store();
    let lease = match store.lease(owner, thread).await {
        Err(StoreError::NotFound(_)) => return Ok(()),
        lease => lease?,
    };
    let Some(lease) = lease else { return Ok(()) };
    request.require(Action::Control)?;
    // The end of a run replaces them.
    let (messages, state) = (store.messages(owner, thread).await?, store.state(owner, thread).await?);
    let stopped = gateway.control(owner, &lease.run, Control::Stop("it is rolled back")).await;
    request.audited("stop", stopped, |record| record.run(&lease.run))?;
    loop {
        let now = store.state(owner, thread).await?;
        let body = state.body.clone().unwrap_or_else(|| "{}".into());
        let stored = store.thread(owner, thread).await?;
        let mut records = Records::of(&stored);
        records.add_rolled_back(&lease.run);
        let metadata = records.metadata(&stored).into();
        let expected = store.messages(owner, thread).await?;
        let before = messages.clone().unwrap_or_else(|| "[]".into());
        let change = ThreadChange {
            messages: Some(TextChange { expected, body: before }),
            state: Some(StateChange { expected: now.seq, body }),
            metadata: Some(TextChange { expected: stored.metadata, body: metadata }),
        };
        match store.update_thread(owner, thread, change).await {
            Ok(_) => return Ok(()),
            Err(StoreError::Conflict(Conflict::State { .. } | Conflict::Thread)) => {}
            Err(StoreError::Conflict(Conflict::Orphan(run))) => gateway.settle_orphan(owner, &run).await?,
            // Another run was faster.
            Err(StoreError::Conflict(Conflict::Leased(_))) => return Ok(()),
            Err(error) => return Err(error.into()),
        }
    }
}

/// Deletes the thread of a stateless run after its end, when its readers have gone.
async fn forget(
    gateway: crate::gateway::Gateway,
    owner: agentwire_store::Owner,
    thread: ThreadId,
    run: RunId,
) {
    let key = RunKey { owner, run };
    runs::ended(&gateway, &key).await;
    // Readers that the end of the run has woken still read the log.
    tokio::select! {
        () = gateway.drain_begun().cancelled() => {}
        () = tokio::time::sleep(READ_TIME) => {}
    }
    if let Err(error) = gateway.store().delete_thread(&key.owner, &thread).await {
        tracing::warn!(%thread, %error, "the thread of a stateless run could not be deleted");
    }
}
