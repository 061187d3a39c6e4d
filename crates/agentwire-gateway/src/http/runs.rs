//! The routes of runs: status, stop, pause, resume, follow.

use agentwire_core::event::{RunId, ThreadId};
use agentwire_store::{Run, RunKey, StoreError};
use axum::{
    http::{HeaderValue, header},
    response::Response,
};
use serde_json::json;

use super::{
    cursor::Cursor,
    json,
    request::{ApiRequest, JsonRequest},
    response::{self, Following},
    start::cursor_of_run,
    thread_list::run_json,
};
use crate::{
    agent::PauseMode,
    auth::TICKET_LIFETIME,
    codes,
    error::ApiError,
    human::pending,
    run::remote::{Control, Controlled},
};

/// `GET /runs/{run}`: the status of a run.
pub(super) async fn status(request: ApiRequest) -> Result<Response, ApiError> {
    let id = RunId::from(request.param("run"));
    let run = request.state.gateway.store().run(&request.owner, &id).await.map_err(ApiError::from);
    let run = request.audited("read", run, |record| record.run(&id))?;
    status_response(&request, &run).await
}

async fn status_response(request: &ApiRequest, run: &Run) -> Result<Response, ApiError> {
    let (gateway, owner) = (&request.state.gateway, &request.owner);
    let open = gateway.open_items(owner, &run.thread).await?;
    let open: Vec<_> = open.iter().filter(|item| item.run == run.run).map(pending::to_json).collect();
    let mut status = run_json(run);
    if run.status.is_live()
        && let Ok(Some(step)) = gateway.run_step(&RunKey { owner: owner.clone(), run: run.run.clone() }).await
    {
        status["step"] = (*step).into();
    }
    if !open.is_empty() {
        status["pending"] = open.into();
    }
    Ok(json(status.to_string()))
}

/// `POST /runs/{run}/stop`: ends a run. Idempotent; a run that has ended stays as it is.
pub(super) async fn stop(request: ApiRequest) -> Result<Response, ApiError> {
    let run = RunId::from(request.param("run"));
    let stopped = stop_run(&request, &run).await;
    request.audited("stop", stopped, |record| record.run(&run))?;
    let run = request.state.gateway.store().run(&request.owner, &run).await?;
    status_response(&request, &run).await
}

/// `POST /runs/{run}/pause`: pauses a run. The response names the mode: `hard` if the agent does nothing meanwhile, `soft` if
/// only its stream is not read.
pub(super) async fn pause(request: ApiRequest) -> Result<Response, ApiError> {
    set_paused(&request, true).await
}

/// `POST /runs/{run}/resume`: continues a paused run.
pub(super) async fn resume(request: ApiRequest) -> Result<Response, ApiError> {
    set_paused(&request, false).await
}

async fn set_paused(request: &ApiRequest, pause: bool) -> Result<Response, ApiError> {
    let run = RunId::from(request.param("run"));
    let action = if pause { "pause" } else { "resume" };
    let done = send_pause(request, &run, pause).await;
    let mode = request.audited(action, done, |record| record.run(&run))?.as_str();
    let stored = request.state.gateway.store().run(&request.owner, &run).await?;
    Ok(json(json!({"runId": run.as_str(), "status": stored.status.as_str(), "mode": mode}).to_string()))
}

async fn send_pause(request: &ApiRequest, run: &RunId, pause: bool) -> Result<PauseMode, ApiError> {
    let (gateway, owner) = (&request.state.gateway, &request.owner);
    let run = &live_id(request, run).await;
    if let Controlled::Paused(mode) = gateway.control(owner, run, Control::Pause(pause)).await? {
        return Ok(mode);
    }
    let stored = gateway.store().run(owner, run).await?;
    Err(ApiError::new(codes::IMPOSSIBLE, format!("the run is `{}`", stored.status)))
}

/// The run that a command to `run` addresses: a client that answered under its id means the run that continues it.
async fn live_id(request: &ApiRequest, run: &RunId) -> RunId {
    let (gateway, owner) = (&request.state.gateway, &request.owner);
    if gateway.live_run(owner, run).is_some() {
        return run.clone();
    }
    gateway.live_continuation(owner, run).await.unwrap_or_else(|| run.clone())
}

/// Stops a run and waits until it has ended.
pub(super) async fn stop_run(request: &ApiRequest, run: &RunId) -> Result<(), ApiError> {
    let (gateway, owner) = (&request.state.gateway, &request.owner);
    let run = &live_id(request, run).await;
    gateway.control(owner, run, Control::Stop("it was asked for")).await?;
    Ok(())
}

/// `GET /runs/{run}/stream`: follows a run from a cursor or from its start.
pub(super) async fn follow(request: ApiRequest) -> Result<Response, ApiError> {
    let run = RunId::from(request.param("run"));
    let after = cursor_of_run(&request, &run)?;
    let output_format = response::requested_output_format(&request)?;
    let following = Following { run: &run, after, with_history: false, input: None };
    response::follow(&request, following, output_format).await
}

/// `POST /tickets`: `{run}` → `{ticket, expiresIn}`, a credential for the stream of this run.
pub(super) async fn ticket(JsonRequest(request): JsonRequest) -> Result<Response, ApiError> {
    let read = |text: &str| {
        let body: serde_json::Value = serde_json::from_str(text)
            .map_err(|error| ApiError::new(codes::BAD_REQUEST, format!("the body is no JSON: {error}")))?;
        let run = body["run"].as_str().map(RunId::from);
        run.ok_or_else(|| ApiError::new(codes::BAD_REQUEST, "`run` must be the id of a run"))
    };
    let run = request.parse(read).await?;
    let gateway = &request.state.gateway;
    let found = gateway.store().run(&request.owner, &run).await.map_err(ApiError::from);
    request.audited("ticket", found, |record| record.run(&run))?;
    let names = (request.owner.tenant.as_str(), request.owner.user.as_str());
    let (agent, now) = (&request.state.agent.name, gateway.store().now());
    let ticket = gateway.authenticator().make_ticket(&request.principal, names, agent, run.as_str(), now)?;
    let body = json!({"ticket": ticket, "expiresIn": TICKET_LIFETIME.as_secs()});
    let mut response = json(body.to_string());
    response.headers_mut().insert(header::REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    Ok(response)
}

/// `GET /threads/{id}/stream`: follows the run of the cursor. Without one, the conversation, with the active run to its
/// end.
pub(super) async fn follow_thread(request: ApiRequest) -> Result<Response, ApiError> {
    let thread = ThreadId::from(request.param("id"));
    let output_format = response::requested_output_format(&request)?;
    let (run, after) = match cursor_in_thread(&request, &thread).await? {
        Some(Cursor { run, point }) => (run, Some(point)),
        None => match active_run(&request, &thread).await? {
            Some(run) => (run, None),
            None => {
                let page = request.state.gateway.store().runs(&request.owner, &thread, None, 1).await?;
                let last = page.items.into_iter().next();
                let last = last.ok_or_else(|| ApiError::new(codes::UNKNOWN_RUN, "the thread has no run yet"));
                (last?.run, None)
            }
        },
    };
    let following = Following { run: &run, after, with_history: true, input: None };
    response::follow(&request, following, output_format).await
}

/// The cursor of a request about a thread. Its run must be of that thread.
pub(super) async fn cursor_in_thread(
    request: &ApiRequest,
    thread: &ThreadId,
) -> Result<Option<Cursor>, ApiError> {
    let Some(cursor) = Cursor::of(request)? else { return Ok(None) };
    let stored = request.state.gateway.store().run(&request.owner, &cursor.run).await?;
    match stored.thread == *thread {
        true => Ok(Some(cursor)),
        false => Err(ApiError::new(codes::UNKNOWN_RUN, "no such run")),
    }
}

/// The run that has the thread; `None` also for an unknown thread.
pub(super) async fn active_run(request: &ApiRequest, thread: &ThreadId) -> Result<Option<RunId>, ApiError> {
    match request.state.gateway.store().lease(&request.owner, thread).await {
        Ok(Some(lease)) => Ok(Some(lease.run)),
        Ok(_) | Err(StoreError::NotFound(_)) => Ok(None),
        Err(error) => Err(error.into()),
    }
}
