//! The start of a run, as far as the protocols share it.
//!
//! ```text
//!  body ──▶ RunInput ──▶ RunRequest ──┬─▶ answers nothing, has no message ──▶ sync: messages, state, active run
//!                                     │   (in HAI: and no state for a new thread)
//!                                     └─▶ admission ──┬─▶ new or existing run ──▶ follow it
//!                                                     └─▶ refused ──▶ error response, or RUN_ERROR in a stream
//! ```

use agentwire_core::{
    Tally,
    event::{Body, Event, Outcome, RunError, RunFinished, RunId, RunInput, RunStarted, ThreadId},
    json::Json,
};
use agentwire_store::StoreError;
use axum::response::Response;

use super::{
    cursor::Cursor,
    request::ApiRequest,
    response::{self, Following},
    runs, threads,
};
use crate::{
    auth::Action,
    codes, cpu_work,
    error::ApiError,
    human::given::{self, AnswerProtocol},
    limits::HeldBytes,
    run::{
        admission::{Admission, AskedPolicies, RunRequest, check_id},
        continuation,
        trace::RunTrace,
    },
    stream::{
        log_codec,
        output::OutputFormat,
        reader::{self, ResumePoint},
    },
    trace::TraceState,
};

/// The request to run that a parsed body asks for. The thread is replaced if the identity settings name its place.
pub(super) fn run_request(
    request: &ApiRequest,
    mut input: RunInput,
    protocol: AnswerProtocol,
) -> Result<RunRequest, ApiError> {
    if let Some(thread) = request.configured_thread()? {
        input.thread = thread;
    }
    let parent = request.parts.extensions.get().copied();
    let trace = request.state.gateway.tracer().map(|tracer| {
        let state = TraceState::parse(request.header("tracestate"));
        RunTrace::new(tracer.clone(), parent, state)
    });
    let mut headers = request.forwarded_headers();
    if let Some(trace) = &trace {
        let mut changed = headers.to_vec();
        trace.set_header(&mut changed);
        headers = changed.into();
    }
    Ok(RunRequest {
        agent: request.state.agent.clone(),
        trace,
        owner: request.owner.clone(),
        input,
        protocol,
        cut: None,
        headers,
        context: request.parts.extensions.get().cloned(),
        one_message: false,
        output_format: None,
        echo: None,
        asked: AskedPolicies::default(),
        body: request.body.clone(),
        caller: request.caller().cloned(),
        may_answer: request.may(Action::Answer),
        items: None,
        given: None,
        answers: None,
    })
}

/// Refuses an input of which no message could be read: it would look like a request for the current state.
pub(super) fn has_known_role(input: RunInput, tally: &Tally) -> Result<RunInput, ApiError> {
    let unknown = tally.iter().find(|(deviation, ..)| *deviation == "unknown role");
    match unknown.filter(|_| input.messages.is_empty()) {
        Some((_, role, _)) => {
            let message =
                format!("no message at `/messages` has a known role, found `{}`", role.escape_default());
            Err(ApiError::new(codes::BAD_REQUEST, message))
        }
        None => Ok(input),
    }
}

/// Starts a run, joins it, or syncs, for AG-UI and HAI: in these a refused run is a stream too.
pub(super) async fn start(
    request: &ApiRequest,
    mut run_request: RunRequest,
    output_format: OutputFormat,
) -> Result<Response, ApiError> {
    let gateway = &request.state.gateway;
    request.reserve_reader()?;
    let input = run_request.input.clone();
    // By the body alone, so that the response says nothing about ids.
    let has_entries = input.resume.as_ref().is_some_and(|entries| !entries.is_empty());
    if has_entries {
        request.require(Action::Answer)?;
    }
    let is_run = !input.messages.is_empty() || given::has_answer(&input);
    request.require(if is_run { Action::Run } else { Action::Read })?;
    let is_sync = input.messages.is_empty() && {
        gateway.load_items(&mut run_request).await?;
        let RunRequest { input, given, items, .. } = &run_request;
        given::has_no_answer(
            input,
            given.as_ref(),
            items.as_deref().unwrap_or_default(),
            gateway.store().now(),
        )
    };
    let is_hai = matches!(run_request.protocol, AnswerProtocol::Hai);
    let may_start = is_hai && request.state.agent.agent.speaks_hai();
    let is_sync = is_sync && !(may_start && starts_with_state(request, &input).await?);
    request.require(if is_sync { Action::Read } else { Action::Run })?;
    if is_sync {
        return sync(request, &input, output_format).await;
    }
    let cursor = cursor_of_series(request, &input.run)?;
    match gateway.admit(run_request).await {
        Ok(admission) => {
            let is_existing = matches!(admission, Admission::Existing(_));
            let (run, after) = match cursor {
                Some(Cursor { run, point }) if run == *admission.run() => (run, Some(point)),
                // A reconnect to another run of the series.
                Some(Cursor { run, point }) if run != input.run && is_existing => (run, Some(point)),
                // The answer has started another run than the one that the client has read.
                _ => (admission.run().clone(), None),
            };
            // A HAI client reconnects by the same request, and expects the whole conversation.
            let with_history = is_hai && is_existing;
            let following = Following { run: &run, after, with_history, input: Some(&input) };
            response::follow(request, following, output_format).await
        }
        // The request was well formed and understood, so the client gets the error in its own protocol.
        Err(error) if error.is_reported_in_stream() => {
            let events = refused(request, &input, &error);
            response::events(request, &input.thread, &input.run, events.into(), output_format).await
        }
        Err(error) => Err(error),
    }
}

/// True if a HAI request without messages starts a HAI agent: it brings a state, and its thread is new. The task page of the
/// standard's public demo starts its agent in this way. A page that comes back has no state to bring.
async fn starts_with_state(request: &ApiRequest, input: &RunInput) -> Result<bool, ApiError> {
    let has_state = input.state.as_ref().is_some_and(|state| !matches!(state.get(), "{}" | "null"));
    // Without the right to start runs the request is a sync, so that the response says nothing about ids.
    if !has_state || !request.may(Action::Run) {
        return Ok(false);
    }
    check_id("thread", &input.thread)?;
    Ok(request.state.gateway.thread_snapshot(&request.owner, &input.thread).await?.is_none())
}

/// The request's cursor, which must be of `run` or of another run of its series.
fn cursor_of_series(request: &ApiRequest, run: &RunId) -> Result<Option<Cursor>, ApiError> {
    match Cursor::of(request)? {
        Some(cursor) if continuation::is_same_series(&cursor.run, run) => Ok(Some(cursor)),
        _ => Ok(cursor_of_run(request, run)?.map(|point| Cursor { run: run.clone(), point })),
    }
}

/// The position of the request's cursor, which must be of `run`.
pub(super) fn cursor_of_run(request: &ApiRequest, run: &RunId) -> Result<Option<ResumePoint>, ApiError> {
    let cursor = Cursor::of(request)?;
    if let Some(cursor) = cursor.as_ref().filter(|cursor| cursor.run != *run) {
        let message = format!("the cursor is of run `{}`, not of `{run}`", cursor.run);
        return Err(ApiError::new(codes::BAD_CURSOR, message));
    }
    Ok(cursor.map(|cursor| cursor.point))
}

/// The response to a request without messages and answers: the conversation, with the active run to its end.
pub(super) async fn sync(
    request: &ApiRequest,
    input: &RunInput,
    output_format: OutputFormat,
) -> Result<Response, ApiError> {
    let RunInput { thread, run, .. } = input;
    check_id("thread", thread)?;
    check_id("run", continuation::first_id(run))?;
    let (run, after) = match runs::cursor_in_thread(request, thread).await? {
        Some(Cursor { run, point }) => (Some(run), Some(point)),
        None => (live_run(request, input).await?, None),
    };
    let Some(run) = run else {
        return match snapshots(request, thread, &input.run).await? {
            Some((events, _held)) => {
                response::events(request, thread, &input.run, events, output_format).await
            }
            // A run has started meanwhile.
            None => Box::pin(sync(request, input, output_format)).await,
        };
    };
    let following = Following { run: &run, after, with_history: true, input: None };
    response::follow(request, following, output_format).await
}

/// The run of the request's id if that is live, else the active run of the thread.
async fn live_run(request: &ApiRequest, input: &RunInput) -> Result<Option<RunId>, ApiError> {
    match request.state.gateway.store().run(&request.owner, &input.run).await {
        Ok(run) if run.thread != input.thread => {
            return Err(ApiError::new(codes::RUN_ID_TAKEN, "the run id was used in another thread"));
        }
        Ok(run) if run.status.is_live() => return Ok(Some(run.run)),
        Ok(_) | Err(StoreError::NotFound(_)) => {}
        Err(error) => return Err(error.into()),
    }
    runs::active_run(request, &input.thread).await
}

/// The conversation of a thread as the events of a run, which ends with the open questions, and its bytes in the budget.
/// `None` if a run is active.
async fn snapshots(
    request: &ApiRequest,
    thread: &ThreadId,
    run: &RunId,
) -> Result<Option<(Vec<Event>, Option<HeldBytes>)>, ApiError> {
    let snapshot = threads::read_snapshot(request, thread).await?.unwrap_or_default();
    if snapshot.at_run_start.is_some() {
        return Ok(None);
    }
    let gateway = &request.state.gateway;
    let open = match gateway.open_items(&request.owner, thread).await {
        // The thread is on the agent's side only, or nowhere.
        Err(StoreError::NotFound(_)) => Vec::new(),
        open => open?,
    };
    let mut finished = RunFinished::new(thread.clone(), run.clone());
    finished.outcome = match snapshot.interrupts.is_empty() {
        true => reader::outcome_of(open.iter()),
        false => Some(Outcome::Interrupt { interrupts: snapshot.interrupts }),
    };
    let now = i64::try_from(gateway.store().now().0).ok();
    let (length, messages, state) =
        (snapshot.messages.len() + snapshot.state.len(), snapshot.messages, snapshot.state);
    let parse = move || {
        let state = Json::parse(&state).unwrap_or_else(|_| Json::null());
        (log_codec::parse_messages(&messages), state)
    };
    let (messages, state) = cpu_work::by_length(&request.owner, length, parse).await?;
    let bodies = [
        Body::RunStarted(Box::new(RunStarted::new(thread.clone(), run.clone()))),
        Body::MessagesSnapshot { messages },
        Body::StateSnapshot { snapshot: state },
        Body::RunFinished(Box::new(finished)),
    ];
    let events = bodies.into_iter().map(|body| Event::new(body).at(now)).collect();
    Ok(Some((events, snapshot.held)))
}

/// The events of a run that was refused.
fn refused(request: &ApiRequest, input: &RunInput, error: &ApiError) -> [Event; 2] {
    let now = i64::try_from(request.state.gateway.store().now().0).ok();
    let started = RunStarted::new(input.thread.clone(), input.run.clone());
    let error = RunError::new(error.message.clone(), Some(error.code));
    [
        Event::new(Body::RunStarted(Box::new(started))).at(now),
        Event::new(Body::RunError(Box::new(error))).at(now),
    ]
}
