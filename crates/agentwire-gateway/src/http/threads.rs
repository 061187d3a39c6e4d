//! The routes of threads: list, delete, messages, state, pending items.

use std::sync::Arc;

use agentwire_core::{
    event::{Body, Event, Outcome, ThreadId},
    format::{Setup, ag_ui, ai_sdk},
    framing::{Frames, Framing},
    json::{Footprint, Json},
    patch::{self, Limits, Op, Patch},
};
use agentwire_store::{
    Conflict, Owner, PageToken, PendingFilter, State, StateChange, StoreError, ThreadChange, ThreadQuery,
};
use axum::{http::HeaderValue, response::Response};
use serde_json::{Value, json};

use super::{
    RouteState, json,
    request::{ApiRequest, JsonRequest},
    response, thread_list,
    ui_history::with_streamed_messages,
};
use crate::{
    agent, codes, cpu_work,
    error::ApiError,
    human::pending,
    run::remote::{Control, Controlled},
    stream::{live::LiveRun, log_codec, output::OutputFormat, reader},
    thread::snapshot::ThreadSnapshot,
};

/// The default and the largest number of threads in a list.
const PAGE: usize = 100;
const LARGEST_PAGE: usize = 1000;

/// `GET /thread/list`: the newest first. `?limit=` and `?before=` select a page; the header `agentwire-next` is the
/// `before` of the next one.
pub(super) async fn list(request: ApiRequest) -> Result<Response, ApiError> {
    let number = |name: &str| match request.query(name) {
        None => Ok(None),
        Some(text) => text.parse::<u64>().map(Some).map_err(|_| {
            ApiError::new(
                codes::BAD_REQUEST,
                format!("`{name}` must be a whole number, found `{}`", text.escape_default()),
            )
        }),
    };
    let limit = number("limit")?
        .map_or(PAGE, |limit| usize::try_from(limit).unwrap_or(LARGEST_PAGE).clamp(1, LARGEST_PAGE));
    let query = ThreadQuery { before: number("before")?.map(PageToken) };
    let page = request.state.gateway.store().threads(&request.owner, query, limit).await;
    let page = request.audited("list", page.map_err(ApiError::from), |record| record)?;
    let items: Vec<_> = page.items.iter().map(|thread| json!({"threadId": thread.thread.as_str()})).collect();
    let mut response = json(Value::from(items).to_string());
    if let Some(next) = page.next {
        response.headers_mut().insert("agentwire-next", HeaderValue::from(next.0));
    }
    Ok(response)
}

/// `DELETE /thread/list`: deletes the thread of that name.
pub(super) async fn delete_list(request: ApiRequest) -> Result<Response, ApiError> {
    delete(request.with_param("id", "list")).await
}

/// `DELETE /thread/{id}`: deletes a thread with all its data; an active run is stopped.
pub(super) async fn delete(request: ApiRequest) -> Result<Response, ApiError> {
    let thread = request.thread()?;
    let gateway = &request.state.gateway;
    let deleted = async {
        let is_stored = match gateway.store().thread(&request.owner, &thread).await {
            Ok(_) => true,
            Err(StoreError::NotFound(_)) => false,
            Err(error) => return Err(error.into()),
        };
        // Before the deletion: it depends on the stored thread.
        let about = request.about(&thread).await?;
        if is_stored {
            gateway.end_runs_of_deleted(&request.owner, &thread).await?;
            gateway.store().delete_thread(&request.owner, &thread).await?;
            let live = gateway.live_runs();
            let is_of_thread =
                |live: &&Arc<LiveRun>| live.key.owner == request.owner && live.thread == thread;
            // A run that has just begun.
            gateway.end_deleted_runs(live.iter().filter(is_of_thread)).await;
            gateway.conversations().forget(&request.owner, &thread);
        }
        delete_upstream(&request, about, is_stored).await
    }
    .await;
    request.audited("delete", deleted, |record| record.thread(&thread))?;
    Ok(json(r#"{"status":"deleted"}"#))
}

/// Deletes a thread on the agent's side too: it could be recalled from there. Of a group, any agent may have it.
async fn delete_upstream(
    request: &ApiRequest,
    about: agent::Request,
    is_stored: bool,
) -> Result<(), ApiError> {
    let RouteState { gateway, agent, .. } = &request.state;
    if !is_stored {
        // A thread that never ran here may exist there.
        let recalled = match agent.agent.recall(about.clone()) {
            Some(recalled) => recalled.await?,
            None => None,
        };
        recalled.ok_or_else(unknown_thread)?;
    }
    for member in gateway.registry().agents_of(agent.owner_agent()) {
        if let Some(forgotten) = member.agent.forget(about.clone()) {
            forgotten.await?;
        }
    }
    Ok(())
}

/// `GET /message_snapshot/{id}`: MESSAGES_SNAPSHOT; with `?format=hai` MESSAGE_SNAPSHOT, with `?format=ai-sdk` `UIMessage[]`.
pub(super) async fn messages(request: ApiRequest) -> Result<Response, ApiError> {
    let thread = request.thread()?;
    let snapshot = read_snapshot(&request, &thread).await?.ok_or_else(unknown_thread)?;
    let format = response::requested_format(&request);
    match format.as_ref().map(|(name, profile)| (&**name, &**profile)) {
        None | Some(("ag-ui", _)) => {
            event_response(&request, &thread, snapshot.messages, messages_snapshot, default_format()).await
        }
        Some(("hai", _)) => {
            let output_format = response::requested_output_format(&request)?;
            event_response(&request, &thread, snapshot.messages, messages_snapshot, output_format).await
        }
        Some(("ai-sdk", profile)) => ui_messages(&request, &thread, snapshot, profile).await,
        Some((other, _)) => {
            let message = format!("no history in `{}`", other.escape_default());
            Err(ApiError::new(codes::UNKNOWN_FORMAT, message)
                .hint("allowed: `ag-ui`, `hai`, `ai-sdk`, `ai-sdk@6`, …"))
        }
    }
}

async fn ui_messages(
    request: &ApiRequest,
    thread: &ThreadId,
    snapshot: ThreadSnapshot,
    profile: &str,
) -> Result<Response, ApiError> {
    let remembered = match profile {
        "" => super::ai_sdk::remembered_profile(request, thread).await?,
        _ => None,
    };
    // Pages of other versions have no history of this form.
    let remembered = remembered.filter(|profile| matches!(profile.as_str(), "5" | "6" | "7"));
    let default = request.state.agent.settings.ai_sdk_profile.as_str();
    let profile = remembered.as_deref().unwrap_or(if profile.is_empty() { default } else { profile });
    let version = match profile {
        "5" => 5,
        "6" => 6,
        "7" => 7,
        other => {
            let message = format!("no history for `ai-sdk@{}`", other.escape_default());
            return Err(ApiError::new(codes::UNKNOWN_FORMAT, message).hint("allowed: `5`, `6`, `7`"));
        }
    };
    let store = &request.state.gateway.store();
    let open = match store.pending(&request.owner, thread, PendingFilter::Open).await {
        // The thread exists on the agent's side only.
        Err(StoreError::NotFound(_)) => Vec::new(),
        open => open?,
    };
    let interrupts = match reader::outcome_of(open.iter()) {
        Some(Outcome::Interrupt { interrupts }) => interrupts,
        _ => Vec::new(),
    };
    // `useChat` resumes the stream of an active run from its start and would show its messages twice.
    let is_live = snapshot.at_run_start.is_some();
    let text = snapshot.at_run_start.unwrap_or(snapshot.messages);
    let length = text.len();
    let show = move || {
        let messages = log_codec::parse_messages(&text);
        let shown = if is_live { ai_sdk::input::before_last_turn(&messages) } else { &messages };
        ai_sdk::input::ui_messages(shown, &interrupts, version)
    };
    let stored = cpu_work::by_length(&request.owner, length, show).await?;
    // The next step may wait for another budget.
    drop(snapshot.held);
    Ok(json(with_streamed_messages(request, thread, stored, profile, version, is_live).await?))
}

/// `GET /state_snapshot/{id}`: STATE_SNAPSHOT.
pub(super) async fn state(request: ApiRequest) -> Result<Response, ApiError> {
    let thread = request.thread()?;
    let snapshot = read_snapshot(&request, &thread).await?.ok_or_else(unknown_thread)?;
    let body =
        |state: &str| Body::StateSnapshot { snapshot: Json::parse(state).unwrap_or_else(|_| Json::null()) };
    event_response(&request, &thread, snapshot.state, body, default_format()).await
}

/// `PATCH /state/{id}`: applies a JSON Patch, all or nothing. During a run the patch becomes an event of that run, so that its
/// readers receive it.
pub(super) async fn patch_state(JsonRequest(request): JsonRequest) -> Result<Response, ApiError> {
    let thread = request.thread()?;
    let patch = request.parse(|text| Ok(ag_ui::patch_from_json(text)?)).await?;
    let applied = apply_patch(&request, &thread, Arc::new(patch), request.text()?).await;
    request.audited("patch_state", applied, |record| record.thread(&thread).arguments(&request.body))?;
    Ok(json(r#"{"status":"updated"}"#))
}

/// Runs `work`, which applies a patch to the state that the text `state` describes; off the workers unless both are short.
async fn patching<T: Send + 'static>(
    owner: &Owner,
    state: &str,
    patch: &Patch,
    work: impl FnOnce() -> Result<T, ApiError> + Send + 'static,
) -> Result<T, ApiError> {
    match state.len() > cpu_work::SHORT_TEXT || cpu_work::is_long_patch(patch, state.len()) {
        true => cpu_work::spawn(owner, work).await?,
        false => work(),
    }
}

/// Applies a patch, which `text` describes, to the state of a thread.
pub(super) async fn apply_patch(
    request: &ApiRequest,
    thread: &ThreadId,
    patch: Arc<Patch>,
    text: &str,
) -> Result<(), ApiError> {
    let (gateway, owner) = (&request.state.gateway, &request.owner);
    let limits = gateway.settings().limits.patch();
    let max_state = gateway.settings().limits.thread_state;
    check_removed_keys(request, thread, &patch).await?;
    loop {
        if let Some(lease) = gateway.store().lease(owner, thread).await? {
            let control = Control::Patch(patch.clone(), text.into());
            if gateway.control(owner, &lease.run, control).await? == Controlled::Done {
                return Ok(());
            }
        }
        let read = || gateway.store().state(owner, thread);
        let length = |stored: &State| stored.body.as_ref().map_or(0, |body| body.len());
        let (stored, _held) = gateway.read_within_budget(owner, read, length).await?;
        let before = stored.body.unwrap_or_else(|| "{}".into());
        let (before_text, operations) = (before.clone(), patch.clone());
        let apply = move || patched(&before_text, &operations, limits, max_state);
        let body = patching(owner, &before, &patch, apply).await?.into();
        let change = StateChange { expected: stored.seq, body };
        let change = ThreadChange { state: Some(change), ..ThreadChange::default() };
        match gateway.store().update_thread(owner, thread, change).await {
            Ok(_) => return Ok(()),
            // Another writer was faster; the patch may or may not apply to the new state.
            Err(StoreError::Conflict(Conflict::State { .. })) => {}
            // A run has started meanwhile, and applies the patch.
            Err(StoreError::Conflict(Conflict::Leased(_) | Conflict::Orphan(_))) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// The limits of a patch of the state with that text, which may have `max_state` bytes afterwards.
fn within_state(limits: Limits, max_state: usize, text: &str) -> Limits {
    Limits {
        max_size_growth: max_state.saturating_sub(text.len()).min(limits.max_size_growth),
        max_footprint_growth: Footprint::MAX.saturating_sub(Footprint::of_text(text)),
        ..limits
    }
}

/// The text of a state after a patch, which may have `max_state` bytes then. Only the members that the patch is about are
/// parsed, as far as that is possible.
fn patched(before: &str, patch: &Patch, limits: Limits, max_state: usize) -> Result<String, ApiError> {
    let limits = within_state(limits, max_state, before);
    if let Some(text) = patch::apply_to_text(before, patch, &limits) {
        return Ok(text);
    }
    let mut state: Value = serde_json::from_str(before).unwrap_or_default();
    match patch::apply(&mut state, patch, &limits) {
        Ok(()) => Ok(state.to_string()),
        Err(error) => Err(ApiError::state_patch_failed(&error, state, max_state)),
    }
}

/// True if a patch may remove a key of the state itself. All others need no look at the state before.
fn may_remove_key(patch: &Patch) -> bool {
    let depth = |pointer: &str| pointer.matches('/').count();
    patch.0.iter().any(|operation| match operation.op {
        Op::Remove => depth(&operation.path) <= 1,
        Op::Move => {
            operation.path.is_empty() || operation.from.as_deref().is_none_or(|from| depth(from) <= 1)
        }
        Op::Add | Op::Replace | Op::Copy => operation.path.is_empty(),
        Op::Test => false,
    })
}

/// Refuses a patch that removes keys which the agent's side stores and cannot remove: they would come back with the next
/// run. A patch that does not apply is left to [`apply_patch`], unless it takes too much work.
async fn check_removed_keys(
    request: &ApiRequest,
    thread: &ThreadId,
    patch: &Arc<Patch>,
) -> Result<(), ApiError> {
    if !may_remove_key(patch) {
        return Ok(());
    }
    let snapshot = request.state.gateway.thread_snapshot(&request.owner, thread).await?;
    let Some(snapshot) = snapshot else { return Ok(()) };
    let limits = request.state.gateway.settings().limits.patch();
    let max_state = request.state.gateway.settings().limits.thread_state;
    let (text, operations) = (snapshot.state.clone(), patch.clone());
    let find_removed = move || {
        let mut state: Value = serde_json::from_str(&text).unwrap_or_default();
        let keys: Vec<String> = state.as_object().into_iter().flatten().map(|(key, _)| key.clone()).collect();
        let limits = within_state(limits, max_state, &text);
        match patch::apply(&mut state, &operations, &limits) {
            Ok(()) => Ok(keys.into_iter().filter(|key| state.get(key).is_none()).collect()),
            Err(error) if error.is_too_costly() => Err(ApiError::patch_failed(&error, state)),
            Err(_) => Ok(Vec::new()),
        }
    };
    let removed: Vec<String> = patching(&request.owner, &snapshot.state, patch, find_removed).await?;
    drop(snapshot);
    if removed.is_empty() {
        return Ok(());
    }
    let about = request.about(thread).await?;
    let Some(kept) = request.state.agent.agent.irremovable_keys(about, removed) else {
        return Ok(());
    };
    match &kept.await?[..] {
        [] => Ok(()),
        kept => {
            let message =
                format!("the agent's server cannot remove a key of its state: `{}`", kept.join("`, `"));
            Err(ApiError::new(codes::STATE_KEY_NOT_REMOVABLE, message).hint("set the key to `null` instead"))
        }
    }
}

/// `GET /threads/{id}/pending`: the open items; with `?all=true` all of them.
pub(super) async fn pending(request: ApiRequest) -> Result<Response, ApiError> {
    let thread = ThreadId::from(request.param("id"));
    if request.query("all").as_deref() == Some("true") {
        let items = thread_list::all_items(&request, &thread).await?;
        return Ok(json(Value::from(items).to_string()));
    }
    let (gateway, agent) = (&request.state.gateway, &request.state.agent);
    let items = async {
        let stored = gateway.open_items(&request.owner, &thread).await;
        if stored.as_ref().is_ok_and(|items| !items.is_empty()) {
            return Ok(stored?);
        }
        match gateway.items_elsewhere(agent, request.about(&thread).await?).await? {
            Some(items) => Ok(items),
            None => Ok(stored?),
        }
    }
    .await;
    let items = request.audited("read", items, |record| record.thread(&thread))?;
    let items: Vec<_> = items.iter().map(pending::to_json).collect();
    Ok(json(Value::from(items).to_string()))
}

/// The messages and the state of a thread, stored here or recalled from the agent's side; on record as a read.
pub(super) async fn read_snapshot(
    request: &ApiRequest,
    thread: &ThreadId,
) -> Result<Option<ThreadSnapshot>, ApiError> {
    let snapshot = request.state.gateway.thread_snapshot(&request.owner, thread).await;
    or_recalled(request, thread, snapshot).await
}

/// A snapshot, or that of the agent's side if there is none; on record as a read.
pub(super) async fn or_recalled(
    request: &ApiRequest,
    thread: &ThreadId,
    snapshot: Result<Option<ThreadSnapshot>, ApiError>,
) -> Result<Option<ThreadSnapshot>, ApiError> {
    let snapshot = match snapshot {
        Ok(None) => ThreadSnapshot::recall(&request.state.agent, request.about(thread).await?).await,
        snapshot => snapshot,
    };
    let found =
        snapshot.as_ref().map_err(ApiError::clone).and_then(|it| it.as_ref().ok_or_else(unknown_thread));
    let _ = request.audited("read", found, |record| record.thread(thread));
    snapshot
}

fn unknown_thread() -> ApiError {
    ApiError::new(codes::UNKNOWN_THREAD, "no such thread")
}

fn default_format() -> OutputFormat {
    OutputFormat::new(&ag_ui::FORMAT, &ag_ui::FORMAT.profiles[0])
}

fn messages_snapshot(messages: &str) -> Body {
    Body::MessagesSnapshot { messages: log_codec::parse_messages(messages) }
}

/// A JSON response with the event that `body` makes of a text; off the workers if that is long.
async fn event_response(
    request: &ApiRequest,
    thread: &ThreadId,
    text: String,
    body: impl FnOnce(&str) -> Body + Send + 'static,
    output_format: OutputFormat,
) -> Result<Response, ApiError> {
    let (now, thread) = (i64::try_from(request.state.gateway.store().now().0).ok(), thread.clone());
    let length = text.len();
    let write = move || one_event(now, &thread, body(&text), &output_format);
    Ok(json(cpu_work::by_length(&request.owner, length, write).await??))
}

/// One event as JSON.
fn one_event(
    now: Option<i64>,
    thread: &ThreadId,
    body: Body,
    output_format: &OutputFormat,
) -> Result<String, ApiError> {
    let setup = Setup { thread: thread.clone(), run: "".into(), options: &output_format.options };
    let mut frames = Frames::new(Framing::Lines);
    if let Some(make) = output_format.format.writer {
        make(output_format.profile, &setup).write(&Event::new(body).at(now), &mut frames);
    }
    match frames.is_empty() {
        true => Err(ApiError::new(codes::INTERNAL, "the snapshot could not be written")),
        false => Ok(String::from_utf8_lossy(frames.take().trim_ascii_end()).into_owned()),
    }
}
