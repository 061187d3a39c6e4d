//! The start of a run, as far as the protocols share it.
//!
//! ```text
//!  body ──▶ RunInput ──▶ RunRequest ──┬─▶ answers nothing, has no message ──▶ sync: messages and state
//!                                     └─▶ admission ──┬─▶ new or existing run ──▶ follow it
//!                                                     └─▶ refused ──▶ error response, or RUN_ERROR in a stream
//! ```

use agentwire_core::{
    Tally,
    event::{Body, Event, RunError, RunFinished, RunId, RunInput, RunStarted, ThreadId},
    json::Json,
};
use agentwire_store::StoreError;
use axum::response::Response;

use super::{cursor::Cursor, request::ApiRequest, response, threads};
use crate::{
    codes,
    error::ApiError,
    human::given::{self, AnswerProtocol},
    run::admission::{RunRequest, check_id},
    stream::{log_codec, output::OutputFormat},
};

/// The request to run that a parsed body asks for. The thread is replaced if the identity settings name its place.
pub(super) fn run_request(
    request: &ApiRequest,
    mut input: RunInput,
    protocol: AnswerProtocol,
) -> Result<RunRequest, ApiError> {
    if let Some(thread) = request.parsed(request.configured_thread())? {
        input.thread = thread;
    }
    Ok(RunRequest {
        agent: request.state.agent.clone(),
        owner: request.owner.clone(),
        input,
        protocol,
        cut: None,
        headers: request.forwarded_headers(),
        one_message: false,
        body: request.body.clone(),
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
    let input = run_request.input.clone();
    let after = cursor_of_run(request, &input.run)?;
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
    if is_sync {
        return sync(request, &input, after, output_format).await;
    }
    match gateway.admit(run_request).await {
        Ok(admission) => response::follow(request, admission.run(), after, Some(&input), output_format).await,
        // The request was well formed and understood, so the client gets the error in its own protocol.
        Err(error) if error.is_reported_in_stream() => {
            let events = refused(request, &input, &error);
            Ok(response::events(request, &input.thread, &input.run, &events, &output_format))
        }
        Err(error) => Err(error),
    }
}

/// The seq of the request's cursor, which must be of `run`.
pub(super) fn cursor_of_run(request: &ApiRequest, run: &RunId) -> Result<Option<u64>, ApiError> {
    let cursor = Cursor::of(request)?;
    if let Some(cursor) = cursor.as_ref().filter(|cursor| cursor.run != *run) {
        let message = format!("the cursor is of run `{}`, not of `{run}`", cursor.run);
        return Err(ApiError::new(codes::BAD_CURSOR, message));
    }
    Ok(cursor.map(|cursor| cursor.seq))
}

/// The response to a request without messages and answers: the run of its id if there is one, else the current messages
/// and state of the thread.
async fn sync(
    request: &ApiRequest,
    input: &RunInput,
    after: Option<u64>,
    output_format: OutputFormat,
) -> Result<Response, ApiError> {
    check_id("thread", &input.thread)?;
    check_id("run", &input.run)?;
    match request.state.gateway.store().run(&request.owner, &input.run).await {
        Ok(run) if run.thread == input.thread => {
            response::follow(request, &input.run, after, None, output_format).await
        }
        Ok(_) => Err(ApiError::new(codes::RUN_ID_TAKEN, "the run id was used in another thread")),
        Err(StoreError::NotFound(_)) => {
            let events = snapshots(request, &input.thread, &input.run).await?;
            Ok(response::events(request, &input.thread, &input.run, &events, &output_format))
        }
        Err(error) => Err(error.into()),
    }
}

async fn snapshots(request: &ApiRequest, thread: &ThreadId, run: &RunId) -> Result<Vec<Event>, ApiError> {
    let snapshot = threads::read_snapshot(request, thread).await?.unwrap_or_default();
    let now = i64::try_from(request.state.gateway.store().now().0).ok();
    let bodies = [
        Body::RunStarted(Box::new(RunStarted::new(thread.clone(), run.clone()))),
        Body::MessagesSnapshot { messages: log_codec::parse_messages(&snapshot.messages) },
        Body::StateSnapshot { snapshot: Json::parse(&snapshot.state).unwrap_or_else(|_| Json::null()) },
        Body::RunFinished(Box::new(RunFinished::new(thread.clone(), run.clone()))),
    ];
    Ok(bodies.into_iter().map(|body| Event::new(body).at(now)).collect())
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
