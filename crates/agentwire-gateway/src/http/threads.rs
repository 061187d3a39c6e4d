//! Threads: which there are, what was said in them, their state, what they wait for.

use agentwire_core::{
    event::{Body, Event, ThreadId},
    format::{ag_ui, ai_sdk},
    json::Json,
    patch,
};
use agentwire_store::{
    Conflict, PageToken, PendingFilter, StateChange, StoreError, ThreadChange, ThreadQuery,
};
use axum::{
    extract::{Request, State},
    http::HeaderValue,
    response::Response,
};
use serde_json::{Value, json};

use super::{
    Mount, json,
    request::{Call, Params},
    response,
    start::Held,
};
use crate::{
    codes,
    error::ApiError,
    ops::audit::Record,
    run::input::messages_of,
    stream::{live::Command, log_codec::Encoder},
};

/// How many threads are listed unless the client says; how many at most.
const PAGE: usize = 100;
const LARGEST_PAGE: usize = 1000;

/// `GET /thread/list`: the newest first. `?limit=` and `?before=` turn pages; the header `agentwire-next` has the
/// next page's `before`.
pub(crate) async fn list(
    State(mount): State<Mount>,
    params: Params,
    request: Request,
) -> Result<Response, ApiError> {
    let call = Call::without_body(&mount, &params, request)?;
    let number = |name: &str| match call.query(name) {
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
    let query =
        ThreadQuery { agent: Some((&*mount.agent.name).into()), before: number("before")?.map(PageToken) };
    let page = mount.gateway.store().threads(&call.owner, query, limit).await?;
    let items: Vec<_> = page.items.iter().map(|thread| json!({"threadId": thread.thread.as_str()})).collect();
    let mut response = json(Value::from(items).to_string());
    if let Some(next) = page.next {
        response.headers_mut().insert("agentwire-next", HeaderValue::from(next.0));
    }
    Ok(response)
}

/// `DELETE /thread/list`: the thread of that name.
pub(crate) async fn delete_list(
    mount: State<Mount>,
    params: Params,
    request: Request,
) -> Result<Response, ApiError> {
    delete(mount, params.with("id", "list"), request).await
}

/// `DELETE /thread/{id}`: with everything of it; a run that goes on is stopped.
pub(crate) async fn delete(
    State(mount): State<Mount>,
    params: Params,
    request: Request,
) -> Result<Response, ApiError> {
    let call = Call::without_body(&mount, &params, request)?;
    let thread = thread_of(&mount, &call)?;
    let live = mount.gateway.live_run_of_thread(&call.owner, &thread).await;
    let done = async {
        let store = &mount.gateway.store();
        let of = match store.thread(&call.owner, &thread).await {
            Ok(known) => Some(known.agent),
            Err(StoreError::NotFound(_)) => None,
            Err(error) => return Err(error.into()),
        };
        if let Some(live) = live {
            // First, so that whoever follows it hears how it ends while there is something to read.
            let _ = live.commands.send(Command::DeleteThread).await;
            let _ = tokio::time::timeout(mount.gateway.settings().store_patience, live.ended()).await;
        }
        if of.is_some() {
            store.delete_thread(&call.owner, &thread).await?;
        }
        forget(&mount, &call, &thread, of.as_deref()).await
    }
    .await;
    mount.gateway.audit().note(Record::new(&call.owner, "delete").thread(&thread).outcome(&done));
    done?;
    Ok(json(r#"{"status":"deleted"}"#))
}

/// Deletes a thread on the agent's side too: what is asked for again from there would not be gone.
/// `of` is the agent whose thread it was here.
async fn forget(mount: &Mount, call: &Call, thread: &ThreadId, of: Option<&str>) -> Result<(), ApiError> {
    let about = || mount.thread_request(call, thread);
    let agent = match of {
        Some(name) => match mount.gateway.registry().agents.get(name) {
            Some(entry) => entry.agent.clone(),
            // It is not configured any more.
            None => return Ok(()),
        },
        // A thread that was never run here may be there.
        None => {
            let agent = mount.agent.agent.clone();
            let recalled = match agent.recall(about()) {
                Some(recalled) => recalled.await?,
                None => None,
            };
            recalled.ok_or_else(unknown)?;
            agent
        }
    };
    match agent.forget(about()) {
        Some(forgotten) => Ok(forgotten.await?),
        None => Ok(()),
    }
}

/// `GET /message_snapshot/{id}`: MESSAGES_SNAPSHOT, or `UIMessage[]` with `?format=ai-sdk`.
pub(crate) async fn messages(
    State(mount): State<Mount>,
    params: Params,
    request: Request,
) -> Result<Response, ApiError> {
    let call = Call::without_body(&mount, &params, request)?;
    let thread = thread_of(&mount, &call)?;
    let held = Held::of(&mount, &call, &thread).await?.ok_or_else(unknown)?;
    let wanted = response::wanted_format(&call);
    match wanted.as_ref().map(|(name, profile)| (&**name, &**profile)) {
        None | Some(("ag-ui", _)) => {
            let body = Body::MessagesSnapshot { messages: messages_of(&held.messages) };
            event(&mount, &thread, body)
        }
        Some(("ai-sdk", profile)) => {
            let profile =
                if profile.is_empty() { mount.agent.settings.ai_sdk_profile.as_str() } else { profile };
            let version = match profile {
                "5" => 5,
                "6" => 6,
                "7" => 7,
                other => {
                    let message = format!("no history for `ai-sdk@{}`", other.escape_default());
                    return Err(ApiError::new(codes::UNKNOWN_FORMAT, message).hint("allowed: `5`, `6`, `7`"));
                }
            };
            let open = match mount.gateway.store().pending(&call.owner, &thread, PendingFilter::Open).await {
                // It is known on the agent's side only.
                Err(StoreError::NotFound(_)) => Vec::new(),
                open => open?,
            };
            let interrupts = match crate::stream::reader::outcome_of(open.iter()) {
                Some(agentwire_core::event::Outcome::Interrupt { interrupts }) => interrupts,
                _ => Vec::new(),
            };
            // `useChat` hears an answer that goes on from its start, and would show twice what it got here.
            let messages = messages_of(held.began.as_ref().unwrap_or(&held.messages));
            let shown = match held.began {
                Some(_) => ai_sdk::input::before_last_turn(&messages),
                None => &messages,
            };
            Ok(json(ai_sdk::input::ui_messages(shown, &interrupts, version)))
        }
        Some((other, _)) => {
            let message = format!("no history in `{}`", other.escape_default());
            Err(ApiError::new(codes::UNKNOWN_FORMAT, message)
                .hint("allowed: `ag-ui`, `ai-sdk`, `ai-sdk@6`, …"))
        }
    }
}

/// `GET /state_snapshot/{id}`: STATE_SNAPSHOT.
pub(crate) async fn state(
    State(mount): State<Mount>,
    params: Params,
    request: Request,
) -> Result<Response, ApiError> {
    let call = Call::without_body(&mount, &params, request)?;
    let thread = thread_of(&mount, &call)?;
    let held = Held::of(&mount, &call, &thread).await?.ok_or_else(unknown)?;
    let snapshot = Json::parse(&held.state).unwrap_or_else(|_| Json::null());
    event(&mount, &thread, Body::StateSnapshot { snapshot })
}

/// `PATCH /state/{id}`: a JSON Patch, all or nothing. While a run goes on it becomes an event of that run, so that
/// whoever follows it sees the change.
pub(crate) async fn patch_state(
    State(mount): State<Mount>,
    params: Params,
    request: Request,
) -> Result<Response, ApiError> {
    let call = Call::with_json(&mount, &params, request).await?;
    let thread = thread_of(&mount, &call)?;
    let read = || Ok(ag_ui::patch_from_json(call.text()?)?);
    let patch = call.told(&mount, read())?;
    let done = apply(&mount, &call, &thread, patch).await;
    let record = Record::new(&call.owner, "patch_state").thread(&thread).arguments(&call.body);
    mount.gateway.audit().note(record.outcome(&done));
    done.map(|()| json(r#"{"status":"updated"}"#))
}

async fn apply(mount: &Mount, call: &Call, thread: &ThreadId, patch: patch::Patch) -> Result<(), ApiError> {
    let gateway = &mount.gateway;
    loop {
        if let Some(live) = gateway.live_run_of_thread(&call.owner, thread).await {
            let (reply, done) = tokio::sync::oneshot::channel();
            if live.commands.send(Command::Patch(patch.clone(), reply)).await.is_ok()
                && let Ok(done) = done.await
            {
                return done;
            }
        }
        let stored = gateway.store().state(&call.owner, thread).await?;
        let mut state: Value = stored
            .body
            .as_ref()
            .map_or_else(|| json!({}), |body| serde_json::from_str(body).unwrap_or_default());
        if let Err(error) = patch::apply(&mut state, &patch, &patch::Limits::default()) {
            return Err(ApiError::patch_failed(&error, state));
        }
        let change = StateChange { expected: stored.seq, body: state.to_string().into() };
        let change = ThreadChange { state: Some(change), ..ThreadChange::default() };
        match gateway.store().update_thread(&call.owner, thread, change).await {
            Ok(_) => return Ok(()),
            // Somebody was faster; what they wrote may or may not take the patch.
            Err(StoreError::Conflict(Conflict::State { .. })) => {}
            // A run has begun meanwhile, and takes it if it is ours.
            Err(StoreError::Conflict(Conflict::Leased(run)))
                if gateway.live_run(&call.owner, &run).is_some() => {}
            Err(StoreError::Conflict(Conflict::Leased(_))) => {
                let message = "the thread's run goes on in another gateway";
                return Err(ApiError::new(codes::IMPOSSIBLE, message).retry_after(1));
            }
            Err(error) => return Err(error.into()),
        }
    }
}

/// `GET /threads/{id}/pending`: what the thread waits for.
pub(crate) async fn pending(
    State(mount): State<Mount>,
    params: Params,
    request: Request,
) -> Result<Response, ApiError> {
    let call = Call::without_body(&mount, &params, request)?;
    let thread = ThreadId::from(call.param("id"));
    let items = async {
        let stored = mount.gateway.open_items(&call.owner, &thread).await;
        if stored.as_ref().is_ok_and(|items| !items.is_empty()) {
            return Ok(stored?);
        }
        match mount.gateway.items_elsewhere(&mount.agent, mount.thread_request(&call, &thread)).await? {
            Some(items) => Ok(items),
            None => Ok(stored?),
        }
    }
    .await;
    mount.gateway.audit().note(Record::new(&call.owner, "read").thread(&thread).outcome(&items));
    let items: Vec<_> = items?.iter().map(crate::human::pending::to_json).collect();
    Ok(json(Value::from(items).to_string()))
}

/// The thread of the path, unless the settings say that it stands elsewhere.
fn thread_of(mount: &Mount, call: &Call) -> Result<ThreadId, ApiError> {
    Ok(call.thread(mount)?.unwrap_or_else(|| call.param("id").into()))
}

fn unknown() -> ApiError {
    ApiError::new(codes::UNKNOWN_THREAD, "no such thread")
}

/// One event as a JSON answer.
fn event(mount: &Mount, thread: &ThreadId, body: Body) -> Result<Response, ApiError> {
    let now = i64::try_from(mount.gateway.store().now().0).ok();
    let event = Event::new(body).at(now);
    let encoded = Encoder::new(thread, &"".into()).encode(&event);
    let encoded =
        encoded.ok_or_else(|| ApiError::new(codes::INTERNAL, "the snapshot could not be written"))?;
    Ok(json(String::from_utf8_lossy(&encoded).into_owned()))
}
