//! Runs: how far they are, following them, stopping them.

use agentwire_core::event::{RunId, ThreadId};
use agentwire_store::{Owner, Run};
use axum::{
    extract::{Request, State},
    response::Response,
};
use serde_json::json;

use super::{
    Mount,
    cursor::Cursor,
    json,
    request::{Call, Params},
    response,
};
use crate::{
    agent::PauseMode,
    codes,
    error::ApiError,
    human::pending::{self, iso},
    ops::audit::Record,
    stream::live::Command,
};

/// `GET /runs/{run}`: how far a run is.
pub(crate) async fn status(
    State(mount): State<Mount>,
    params: Params,
    request: Request,
) -> Result<Response, ApiError> {
    let call = Call::without_body(&mount, &params, request)?;
    let id = RunId::from(call.param("run"));
    let run = mount.gateway.store().run(&call.owner, &id).await.map_err(ApiError::from);
    mount.gateway.audit().note(Record::new(&call.owner, "read").run(&id).outcome(&run));
    shown(&mount, &call.owner, &run?).await
}

async fn shown(mount: &Mount, owner: &Owner, run: &Run) -> Result<Response, ApiError> {
    let open = mount.gateway.open_items(owner, &run.thread).await?;
    let open: Vec<_> = open.iter().filter(|item| item.run == run.run).map(pending::to_json).collect();
    let mut shown = json!({
        "threadId": run.thread.as_str(),
        "runId": run.run.as_str(),
        "agent": &*run.agent,
        "status": run.status.as_str(),
        "createdAt": iso(run.created.0),
        "updatedAt": iso(run.updated.0),
        "events": run.next_seq.0,
    });
    if let Some(started) = run.started {
        shown["startedAt"] = iso(started.0).into();
    }
    if let Some(cause) = &run.cause {
        shown["cause"] = (&**cause).into();
    }
    if let Some(live) = mount.gateway.live_run(owner, &run.run) {
        let (reply, snapshot) = tokio::sync::oneshot::channel();
        if live.commands.send(Command::Snapshot(reply)).await.is_ok()
            && let Ok(snapshot) = snapshot.await
            && let Some(step) = snapshot.step
        {
            shown["step"] = (*step).into();
        }
    }
    if !open.is_empty() {
        shown["pending"] = open.into();
    }
    Ok(json(shown.to_string()))
}

/// `POST /runs/{run}/stop`: ends a run. Twice is as good as once; a run that has ended stays as it is.
pub(crate) async fn stop(
    State(mount): State<Mount>,
    params: Params,
    request: Request,
) -> Result<Response, ApiError> {
    let call = Call::without_body(&mount, &params, request)?;
    let run = RunId::from(call.param("run"));
    let done = stop_run(&mount, &call.owner, &run).await;
    mount.gateway.audit().note(Record::new(&call.owner, "stop").run(&run).outcome(&done));
    done?;
    let run = mount.gateway.store().run(&call.owner, &run).await?;
    shown(&mount, &call.owner, &run).await
}

/// `POST /runs/{run}/pause`: holds a run, and says how much of it: `hard` if the agent does nothing, `soft` if it is not
/// listened to and slowed down by that.
pub(crate) async fn pause(
    State(mount): State<Mount>,
    params: Params,
    request: Request,
) -> Result<Response, ApiError> {
    hold(&mount, &params, request, true).await
}

/// `POST /runs/{run}/resume`: lets a held run go on.
pub(crate) async fn resume(
    State(mount): State<Mount>,
    params: Params,
    request: Request,
) -> Result<Response, ApiError> {
    hold(&mount, &params, request, false).await
}

async fn hold(mount: &Mount, params: &Params, request: Request, hold: bool) -> Result<Response, ApiError> {
    let call = Call::without_body(mount, params, request)?;
    let run = RunId::from(call.param("run"));
    let action = if hold { "pause" } else { "resume" };
    let done = hold_run(mount, &call.owner, &run, hold).await;
    mount.gateway.audit().note(Record::new(&call.owner, action).run(&run).outcome(&done));
    let mode = done?.as_str();
    let known = mount.gateway.store().run(&call.owner, &run).await?;
    Ok(json(json!({"runId": run.as_str(), "status": known.status.as_str(), "mode": mode}).to_string()))
}

async fn hold_run(mount: &Mount, owner: &Owner, run: &RunId, hold: bool) -> Result<PauseMode, ApiError> {
    if let Some(live) = mount.gateway.live_run(owner, run) {
        let (reply, done) = tokio::sync::oneshot::channel();
        if live.commands.send(Command::SetPaused(hold, reply)).await.is_ok()
            && let Ok(done) = done.await
        {
            return done;
        }
    }
    let known = mount.gateway.store().run(owner, run).await?;
    Err(ApiError::new(codes::IMPOSSIBLE, format!("the run is `{}`", known.status)))
}

/// Stops a run and waits until it has ended.
pub(crate) async fn stop_run(mount: &Mount, owner: &Owner, run: &RunId) -> Result<(), ApiError> {
    let Some(live) = mount.gateway.live_run(owner, run) else {
        let known = mount.gateway.store().run(owner, run).await?;
        return match known.status.is_live() {
            true => {
                Err(ApiError::new(codes::IMPOSSIBLE, "the run goes on in another gateway").retry_after(1))
            }
            false => Ok(()),
        };
    };
    // A run that does not take it any more is ending by itself.
    let _ = live.commands.send(Command::Stop("it was asked for")).await;
    let _ = tokio::time::timeout(mount.gateway.settings().store_patience, live.ended()).await;
    Ok(())
}

/// `GET /runs/{run}/stream`: follows a run from a cursor or from its start.
pub(crate) async fn follow(
    State(mount): State<Mount>,
    params: Params,
    request: Request,
) -> Result<Response, ApiError> {
    let call = Call::without_body(&mount, &params, request)?;
    let run = RunId::from(call.param("run"));
    let cursor = Cursor::of(&call)?;
    if let Some(cursor) = cursor.as_ref().filter(|cursor| cursor.run != run) {
        let message = format!("the cursor is of run `{}`, not of `{run}`", cursor.run);
        return Err(ApiError::new(codes::BAD_CURSOR, message));
    }
    let face = response::face_of(&call, &mount)?;
    response::follow(&mount, &call, &run, cursor.map(|cursor| cursor.seq), None, face).await
}

/// `GET /threads/{id}/stream`: follows the run that a cursor names, else the one that goes on, else the last one.
pub(crate) async fn follow_thread(
    State(mount): State<Mount>,
    params: Params,
    request: Request,
) -> Result<Response, ApiError> {
    let call = Call::without_body(&mount, &params, request)?;
    let thread = ThreadId::from(call.param("id"));
    let store = &mount.gateway.store();
    let face = response::face_of(&call, &mount)?;
    if let Some(Cursor { run, seq }) = Cursor::of(&call)? {
        let known = store.run(&call.owner, &run).await?;
        if known.thread != thread {
            return Err(ApiError::new(codes::UNKNOWN_RUN, "no such run"));
        }
        return response::follow(&mount, &call, &run, Some(seq), None, face).await;
    }
    let run = match store.lease(&call.owner, &thread).await? {
        Some(lease) if lease.live => lease.run,
        _ => {
            let page = store.runs(&call.owner, &thread, None, 1).await?;
            let last = page.items.into_iter().next();
            last.ok_or_else(|| ApiError::new(codes::UNKNOWN_RUN, "the thread has no run yet"))?.run
        }
    };
    response::follow(&mount, &call, &run, None, None, face).await
}
