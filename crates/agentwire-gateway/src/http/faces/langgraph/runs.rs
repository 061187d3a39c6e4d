//! The routes of runs that exist: list, get, join, wait for the end, cancel.

use agentwire_core::{
    Tally,
    event::{Body, Outcome, RunId, ThreadId},
    format::{ag_ui, langgraph},
};
use agentwire_store::{Log, Owner, Run, RunKey, RunStatus, Seq, StoreError};
use axum::{
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use serde_json::{Map, Value, json};
use std::time::Duration;

use super::{
    super::{
        super::{
            RouteGroup,
            credential_end::CredentialEnd,
            cursor::Cursor,
            json, origin,
            request::{ApiRequest, percent_decode},
            response::{self, Following},
            runs::{active_run, stop_run},
            threads::read_snapshot,
        },
        request::FaceRequest,
    },
    body::{DEFAULT_MODES, check_modes},
    echo::run_json,
    errors::{invalid, unknown_run, unknown_thread},
    shapes, start,
};
use crate::{
    auth::Action,
    cpu_work,
    error::ApiError,
    gateway::Gateway,
    stream::{
        log_codec::{self, Decoder},
        reader,
    },
};

/// The default and the largest number of runs of a page.
const PAGE: usize = 10;
const LARGEST_PAGE: usize = 200;

/// The time after which a wait for a run of another process looks again.
const CHECK: Duration = Duration::from_secs(5);

/// The request as one to the agent that has the thread, which must be stored.
pub(super) async fn of_thread(
    request: FaceRequest,
    action: Action,
    group: RouteGroup,
) -> Result<(ApiRequest, ThreadId), ApiError> {
    let thread = ThreadId::from(request.param("id"));
    let agent = request.agent_with(&request.agents(action), &thread).await?.ok_or_else(unknown_thread)?;
    Ok((request.to(&agent, group)?, thread))
}

/// The run in the path, which must be of the thread in the path.
async fn of_run(request: FaceRequest, action: Action) -> Result<(ApiRequest, ThreadId, Run), ApiError> {
    let id = RunId::from(request.param("run"));
    let (request, thread) = of_thread(request, action, RouteGroup::Runs).await?;
    let run = match request.state.gateway.store().run(&request.owner, &id).await {
        Ok(run) if run.thread == thread => Ok(run),
        Ok(_) | Err(StoreError::NotFound(_)) => Err(unknown_run()),
        Err(error) => Err(error.into()),
    };
    let run = request.audited("read", run, |record| record.run(&id))?;
    Ok((request, thread, run))
}

/// The run in the path, of whatever thread.
async fn of_any_thread(request: FaceRequest) -> Result<(ApiRequest, Run), ApiError> {
    let id = RunId::from(request.param("run"));
    for agent in request.agents(Action::Read) {
        match request.gateway.store().run(&request.owner_at(&agent)?, &id).await {
            Ok(run) => {
                let request = request.to(&agent, RouteGroup::Runs)?;
                let run = request.audited("read", Ok(run), |record| record.run(&id))?;
                return Ok((request, run));
            }
            Err(StoreError::NotFound(_)) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Err(unknown_run())
}

/// A run with the options of its request.
pub(super) async fn shown(request: &ApiRequest, run: &Run) -> Result<Value, ApiError> {
    let stored = match request.state.gateway.store().input(&request.owner, &run.run).await {
        // Deleted since the run was read.
        Err(StoreError::NotFound(_)) => None,
        stored => stored?,
    };
    let length = stored.as_deref().map_or(0, str::len);
    let show = || run_json(run, stored.as_ref());
    Ok(cpu_work::in_place_by_length(&request.owner, length, show).await)
}

/// `GET threads/{id}/runs`: newest first; `?limit=`, `?offset=`, `?status=`, `?select=`.
pub(super) async fn list(request: FaceRequest) -> Result<Response, ApiError> {
    let number = |name: &str, default: usize| match request.query(name) {
        None => Ok(default),
        Some(text) => text.parse::<usize>().map_err(|_| invalid(format!("`{name}` must be a whole number"))),
    };
    let (limit, offset) = (number("limit", PAGE)?.clamp(1, LARGEST_PAGE), number("offset", 0)?);
    let status = request.query("status");
    let select = values_of(&request, "select");
    let (request, thread) = of_thread(request, Action::Read, RouteGroup::Runs).await?;
    let (mut found, mut before) = (Vec::new(), None);
    while found.len() < limit.saturating_add(offset) {
        let store = request.state.gateway.store();
        let page = store.runs(&request.owner, &thread, before, LARGEST_PAGE).await?;
        let is_wanted =
            |run: &&Run| status.as_ref().is_none_or(|status| shapes::run_status(run.status) == status);
        found.extend(page.items.iter().filter(is_wanted).cloned());
        before = page.next;
        if before.is_none() {
            break;
        }
    }
    request.audited("read", Ok(()), |record| record.thread(&thread))?;
    let mut page = Vec::new();
    for run in found.iter().skip(offset).take(limit) {
        let mut run = shown(&request, run).await?;
        if let (false, Some(members)) = (select.is_empty(), run.as_object_mut()) {
            members.retain(|key, _| select.contains(key));
        }
        page.push(run);
    }
    Ok(json(Value::from(page).to_string()))
}

/// `GET threads/{id}/runs/{run}`.
pub(super) async fn get(request: FaceRequest) -> Result<Response, ApiError> {
    let (request, _, run) = of_run(request, Action::Read).await?;
    Ok(json(shown(&request, &run).await?.to_string()))
}

/// `GET threads/{id}/runs/{run}/stream`: follows a run behind `Last-Event-ID`, or from its start: `-1`, or no id.
pub(super) async fn join(request: FaceRequest) -> Result<Response, ApiError> {
    let asked = asked_modes(&request)?;
    let cancels = matches!(request.query("cancel_on_disconnect").as_deref(), Some("1" | "true"));
    let (request, _, run) = of_run(request, Action::Read).await?;
    follow(&request, &run, asked, cancels).await
}

/// `GET runs/{run}/stream`: the same for the run of a stateless request.
pub(super) async fn join_stateless(request: FaceRequest) -> Result<Response, ApiError> {
    let asked = asked_modes(&request)?;
    let cancels = matches!(request.query("cancel_on_disconnect").as_deref(), Some("1" | "true"));
    let (request, run) = of_any_thread(request).await?;
    follow(&request, &run, asked, cancels).await
}

async fn follow(
    request: &ApiRequest,
    run: &Run,
    asked: Option<String>,
    cancels: bool,
) -> Result<Response, ApiError> {
    let gateway = &request.state.gateway;
    let modes = match asked {
        Some(modes) => modes,
        None => {
            let stored = gateway.store().input(&request.owner, &run.run).await?;
            let input = stored.and_then(|text| ag_ui::input::from_json(&text, &mut Tally::default()).ok());
            let format = input.as_ref().and_then(ag_ui::input::stored_output_format);
            format.as_deref().and_then(start::stored_modes).unwrap_or(DEFAULT_MODES).to_owned()
        }
    };
    let after = match request.header("last-event-id") {
        None | Some("" | "-1") => None,
        Some(_) => Cursor::of(request)?.filter(|cursor| cursor.run == run.run).map(|cursor| cursor.point),
    };
    if cancels {
        request.require(Action::Control)?;
        // A page of another site must not stop a run by leaving its stream.
        let (settings, parts) = (gateway.settings(), &request.parts);
        origin::check_change(settings, parts.extensions.get(), &parts.uri, &parts.headers)?;
        if let Some(live) = gateway.live_run(&request.owner, &run.run) {
            gateway.tasks().spawn(gateway.clone().stop_when_unread(live));
        }
    }
    let following = Following { run: &run.run, after, with_history: false, input: None };
    let response = response::follow(request, following, start::output_format(&modes)?).await?;
    Ok(never_empty(response))
}

/// The values of a parameter of the query: repeated, separated by commas, or as a JSON list.
fn values_of(request: &FaceRequest, name: &str) -> Vec<String> {
    let query = request.raw_query();
    let pairs = query.split('&').map(|pair| pair.split_once('=').unwrap_or((pair, "")));
    let mut values: Vec<String> = Vec::new();
    for (_, value) in pairs.filter(|(key, _)| percent_decode(key) == name) {
        let value = percent_decode(value);
        match serde_json::from_str::<Vec<String>>(&value) {
            Ok(list) => values.extend(list),
            Err(_) => values.extend(value.split(',').map(str::to_owned)),
        }
    }
    values.retain(|value| !value.is_empty());
    values
}

/// The stream modes of the query.
fn asked_modes(request: &FaceRequest) -> Result<Option<String>, ApiError> {
    let modes = values_of(request, "stream_mode");
    match modes.is_empty() {
        true => Ok(None),
        false => check_modes(modes.iter().map(String::as_str)).map(Some),
    }
}

/// A client of LangGraph takes 204 for a failure.
pub(super) fn never_empty(mut response: Response) -> Response {
    if response.status() == StatusCode::NO_CONTENT {
        *response.status_mut() = StatusCode::OK;
        let kind = HeaderValue::from_static("text/event-stream");
        response.headers_mut().insert(header::CONTENT_TYPE, kind);
    }
    response
}

/// `GET threads/{id}/runs/{run}/join`: waits for the end of a run; its values.
pub(super) async fn wait(request: FaceRequest) -> Result<Response, ApiError> {
    let (request, thread, run) = of_run(request, Action::Read).await?;
    request.reserve_reader()?;
    values_at_end(&request, &thread, &run.run).await
}

/// Waits for the end of a run.
pub(super) async fn ended(gateway: &Gateway, key: &RunKey) {
    loop {
        match gateway.store().run(&key.owner, &key.run).await {
            Ok(run) if run.status.is_live() => {}
            Ok(_) | Err(StoreError::NotFound(_)) => return,
            Err(_) => tokio::time::sleep(CHECK).await,
        }
        match gateway.live_run(&key.owner, &key.run) {
            Some(live) => {
                let _ = tokio::time::timeout(CHECK, live.ended()).await;
            }
            None => {
                let _ = tokio::time::timeout(CHECK, gateway.store().changed(key, Seq::MAX)).await;
            }
        }
        // The end is published before it is stored for other reads.
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// The values at the end of a run, with its questions or its error.
pub(super) async fn values_at_end(
    request: &ApiRequest,
    thread: &ThreadId,
    run: &RunId,
) -> Result<Response, ApiError> {
    let gateway = &request.state.gateway;
    let key = RunKey { owner: request.owner.clone(), run: run.clone() };
    CredentialEnd::before(&request.principal, gateway.store().now(), ended(gateway, &key)).await?;
    let stored = gateway.store().run(&request.owner, run).await?;
    let snapshot = read_snapshot(request, thread).await?.unwrap_or_default();
    let mut added = Map::new();
    if stored.status == RunStatus::Waiting {
        let open = gateway.open_items(&request.owner, thread).await?;
        if let Some(Outcome::Interrupt { interrupts }) = reader::outcome_of(open.iter()) {
            let shown: Vec<Value> = interrupts.iter().map(langgraph::server_interrupt).collect();
            added.insert("__interrupt__".into(), shown.into());
        }
    }
    if stored.status == RunStatus::Failed {
        added.insert("__error__".into(), failure(gateway, &request.owner, &stored).await?);
    }
    let length = snapshot.messages.len() + snapshot.state.len();
    let write = move || {
        let state: Value = serde_json::from_str(&snapshot.state).unwrap_or_default();
        let mut values = shapes::values(&log_codec::parse_messages(&snapshot.messages), &state);
        values.extend(added);
        Value::Object(values).to_string()
    };
    Ok(json(cpu_work::by_length(&request.owner, length, write).await?))
}

/// The error with which a run ended.
pub(super) async fn failure(gateway: &Gateway, owner: &Owner, run: &Run) -> Result<Value, ApiError> {
    let before = run.next_seq.0.checked_sub(2).map(Seq);
    let log = match gateway.store().read(owner, &run.run, before, 1 << 16).await {
        // Deleted since the run was read.
        Err(StoreError::NotFound(_)) => None,
        log => Some(log?),
    };
    let mut events = Vec::new();
    if let Some(Log::Exact(slice)) = log
        && let Some(last) = slice.events.last()
    {
        Decoder::new(&run.thread, &run.run).decode(last, &mut events);
    }
    let (code, message) = match events.pop().map(|event| event.body) {
        Some(Body::RunError(error)) => (error.code.clone(), error.message.to_string()),
        _ => (run.cause.as_deref().map(Into::into), "the run failed".to_owned()),
    };
    Ok(json!({"error": code.as_deref().unwrap_or("Error"), "message": message}))
}

/// `POST threads/{id}/runs/{run}/cancel`: stops a run; `?wait=`, `?action=interrupt` or `rollback`.
pub(super) async fn cancel(request: FaceRequest) -> Result<Response, ApiError> {
    let undoes = match request.query("action").as_deref() {
        None | Some("interrupt") => false,
        Some("rollback") => true,
        Some(_) => return Err(invalid("`action` must be `interrupt` or `rollback`")),
    };
    let waits = matches!(request.query("wait").as_deref(), Some("1" | "true"));
    let (request, thread, run) = of_run(request, Action::Control).await?;
    let is_active = active_run(&request, &thread).await?.as_ref() == Some(&run.run);
    match undoes && is_active {
        true => start::roll_back(&request, &thread).await?,
        false => {
            let stopped = stop_run(&request, &run.run).await;
            request.audited("stop", stopped, |record| record.run(&run.run))?;
        }
    }
    Ok(match waits {
        true => StatusCode::NO_CONTENT.into_response(),
        false => {
            let mut accepted = json("{}");
            *accepted.status_mut() = StatusCode::ACCEPTED;
            accepted
        }
    })
}
