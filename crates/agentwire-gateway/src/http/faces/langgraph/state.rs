//! The routes of a thread's state: the newest one, one of its history, all of them, and changes from outside a run.

use std::{
    collections::{HashMap, hash_map::Entry},
    sync::Arc,
};

use agentwire_core::{
    Tally,
    event::{Message, MessageId, ThreadId},
    format::{ag_ui, langgraph::input},
    patch::Patch,
};
use agentwire_store::{Conflict, StoreError, TextChange, Thread, ThreadChange};
use axum::{http::StatusCode, response::Response};
use serde_json::{Map, Value, json};

use super::{
    super::{
        super::{
            RouteGroup, json,
            request::ApiRequest,
            thread_list::change_metadata,
            threads::{apply_patch, read_snapshot},
        },
        request::FaceRequest,
    },
    body::{checkpoint_of, text_of},
    checkpoints::{self, Checkpoint},
    errors::{invalid, unknown_thread},
    records::{Change, Records},
    runs::of_thread,
    shapes,
    threads::{metadata_of, object},
};
use crate::{auth::Action, codes, cpu_work, error::ApiError, run::admission::too_large, settings::History};

/// The default and the largest number of states of a history.
const PAGE: usize = 10;
const LARGEST_PAGE: usize = 100;

/// Bytes of a page of states: the page ends before it has more, unless its first state has.
const MAX_HISTORY: usize = 64 << 20;

/// The request as one to the agent that has the thread, or else to the default one, which may have it on its own side.
async fn of_reader(request: FaceRequest) -> Result<(ApiRequest, ThreadId), ApiError> {
    let thread = ThreadId::from(request.param("id"));
    let candidates = request.agents(Action::Read);
    let found = request.agent_with(&candidates, &thread).await?;
    let is_stored = found.is_some();
    let agent = found.or_else(|| candidates.into_iter().next()).ok_or_else(unknown_thread)?;
    let request = request.to(&agent, RouteGroup::History)?;
    if !is_stored && read_snapshot(&request, &thread).await?.is_none() {
        return Err(unknown_thread());
    }
    Ok((request, thread))
}

/// The state of a thread without checkpoints.
fn empty() -> Value {
    json!({"values": {}, "next": [], "tasks": [], "metadata": {}, "created_at": null, "checkpoint": null,
        "parent_checkpoint": null, "interrupts": [], "checkpoint_id": null, "parent_checkpoint_id": null})
}

/// `GET threads/{id}/state`.
pub(super) async fn get(request: FaceRequest) -> Result<Response, ApiError> {
    let (request, thread) = of_reader(request).await?;
    let newest = checkpoints::read(&request, &thread).await?.pop();
    shown(&request, newest, thread).await
}

/// `GET threads/{id}/state/{name}`: the state of a checkpoint.
pub(super) async fn get_at(request: FaceRequest) -> Result<Response, ApiError> {
    let id = request.param("name").to_owned();
    let (request, thread) = of_reader(request).await?;
    let found = checkpoints::find(&request, &thread, &id).await?.0;
    shown(&request, Some(found), thread).await
}

/// `POST threads/{id}/state/checkpoint`: the same with `{checkpoint}`.
pub(super) async fn post_at(request: FaceRequest) -> Result<Response, ApiError> {
    let id = checkpoint_of(&object(&request).await?)?;
    let (request, thread) = of_reader(request).await?;
    let found = match id {
        Some(id) => Some(checkpoints::find(&request, &thread, &id).await?.0),
        None => checkpoints::read(&request, &thread).await?.pop(),
    };
    shown(&request, found, thread).await
}

async fn shown(
    request: &ApiRequest,
    checkpoint: Option<Checkpoint>,
    thread: ThreadId,
) -> Result<Response, ApiError> {
    let work = move || checkpoint.map_or_else(empty, |newest| newest.to_json(&thread)).to_string();
    Ok(json(cpu_work::spawn(&request.owner, work).await?))
}

/// `GET threads/{id}/history`: `?limit=`, `?before=`.
pub(super) async fn get_history(request: FaceRequest) -> Result<Response, ApiError> {
    let limit = match request.query("limit") {
        None => PAGE,
        Some(text) => text.parse().map_err(|_| invalid("`limit` must be a whole number"))?,
    };
    let before = request.query("before");
    history(request, limit, before, Map::new()).await
}

/// `POST threads/{id}/history`: `{limit?, before?, metadata?, checkpoint?}`.
pub(super) async fn post_history(request: FaceRequest) -> Result<Response, ApiError> {
    let body = object(&request).await?;
    let limit = match body.get("limit") {
        None | Some(Value::Null) => PAGE,
        Some(limit) => limit
            .as_u64()
            .and_then(|limit| usize::try_from(limit).ok())
            .ok_or_else(|| invalid("`limit` must be a whole number"))?,
    };
    let is_nested = body
        .get("checkpoint")
        .and_then(|checkpoint| checkpoint.get("checkpoint_ns"))
        .is_some_and(|namespace| namespace.as_str() != Some(""));
    if is_nested {
        // A nested graph, of which there is none.
        of_reader(request).await?;
        return Ok(json("[]"));
    }
    let before = match body.get("before") {
        None | Some(Value::Null) => None,
        Some(Value::String(id)) => Some(id.clone()),
        Some(config) => {
            let id = [&config["checkpoint_id"], &config["configurable"]["checkpoint_id"]];
            let id = id.into_iter().find_map(Value::as_str);
            Some(id.ok_or_else(|| invalid("`before` names no checkpoint"))?.to_owned())
        }
    };
    let metadata = metadata_of(&body)?;
    history(request, limit, before, metadata).await
}

/// The checkpoints whose metadata have all members of `metadata`.
async fn history(
    request: FaceRequest,
    limit: usize,
    before: Option<String>,
    metadata: Map<String, Value>,
) -> Result<Response, ApiError> {
    let (request, thread) = of_reader(request).await?;
    let mut all = checkpoints::read(&request, &thread).await?;
    if let Some(before) = before {
        let at = all.iter().position(|checkpoint| checkpoint.id == before).unwrap_or(0);
        all.truncate(at);
    }
    let work = move || {
        let newest = all.iter().rev().map(|checkpoint| checkpoint.to_json(&thread));
        let is_wanted =
            |shown: &Value| shown["metadata"].as_object().is_some_and(|own| shapes::contains(own, &metadata));
        let mut page = String::from("[");
        // One after the other: each has the whole conversation.
        for shown in newest.filter(is_wanted).take(limit.clamp(1, LARGEST_PAGE)) {
            let text = shown.to_string();
            if page.len() > 1 {
                if page.len() + text.len() > MAX_HISTORY {
                    break;
                }
                page.push(',');
            }
            page.push_str(&text);
        }
        page.push(']');
        page
    };
    Ok(json(cpu_work::spawn(&request.owner, work).await?))
}

/// `POST threads/{id}/state`: `{values, checkpoint?, as_node?}` changes the newest state from outside a run. Members of the
/// state are replaced; messages are added, or replaced by id.
pub(super) async fn update(request: FaceRequest) -> Result<Response, ApiError> {
    let mut body = object(&request).await?;
    let wanted = checkpoint_of(&body)?;
    text_of(&body, "as_node")?;
    let values = match body.remove("values") {
        None | Some(Value::Null) => Map::new(),
        Some(Value::Object(values)) => values,
        Some(_) => return Err(invalid("`values` must be an object")),
    };
    let (request, thread) = of_thread(request, Action::State, RouteGroup::State).await?;
    if !request.state.agent.settings.routes.state {
        return Err(unknown_thread());
    }
    if let Some(id) = wanted
        && !checkpoints::find(&request, &thread, &id).await?.1
    {
        return Err(invalid("only the newest checkpoint can be changed"));
    }
    let changed = change(&request, &thread, values).await;
    request.audited("patch_state", changed, |record| record.thread(&thread).arguments(&request.body))?;
    let mut all = checkpoints::read(&request, &thread).await?;
    let work = move || {
        let newest = all.pop()?;
        let change = newest.to_change(all.last());
        Some((newest.id, change))
    };
    let (id, change) = cpu_work::spawn(&request.owner, work).await?.unzip();
    if let Some(change) = change.flatten() {
        remember(&request, &thread, change).await?;
    }
    let place = json!({"thread_id": thread.as_str(), "checkpoint_ns": "", "checkpoint_id": id});
    Ok(json(json!({"checkpoint": place, "configurable": place, "checkpoint_id": id}).to_string()))
}

/// Keeps the checkpoint of a change for the history.
async fn remember(request: &ApiRequest, thread: &ThreadId, change: Change) -> Result<(), ApiError> {
    let change = |stored: &Thread| {
        let mut records = Records::of(stored);
        if records.changes.iter().all(|known| known.id != change.id) {
            records.add_change(change.clone());
        }
        Ok(records.metadata(stored))
    };
    change_metadata(request, thread, change).await?;
    Ok(())
}

async fn change(request: &ApiRequest, thread: &ThreadId, values: Map<String, Value>) -> Result<(), ApiError> {
    let (messages, state): (Map<_, _>, Map<_, _>) =
        values.into_iter().partition(|(name, value)| name == "messages" && !value.is_null());
    if !messages.is_empty() {
        add_messages(request, thread, messages).await?;
    }
    if !state.is_empty() {
        let write = move || -> Result<(Patch, String), ApiError> {
            let operations: Vec<Value> = state
                .into_iter()
                .map(|(key, value)| {
                    let path = format!("/{}", key.replace('~', "~0").replace('/', "~1"));
                    json!({"op": "add", "path": path, "value": value})
                })
                .collect();
            let text = Value::from(operations).to_string();
            Ok((ag_ui::patch_from_json(&text)?, text))
        };
        let (patch, text) = cpu_work::by_length(&request.owner, request.body.len(), write).await??;
        apply_patch(request, thread, Arc::new(patch), &text).await?;
    }
    Ok(())
}

/// Adds messages to a thread that no run has.
async fn add_messages(
    request: &ApiRequest,
    thread: &ThreadId,
    values: Map<String, Value>,
) -> Result<(), ApiError> {
    let (gateway, owner) = (&request.state.gateway, &request.owner);
    if gateway.settings().history(&request.state.agent.settings) == History::Server {
        let message = "the messages of this server are those of its agents: `messages` cannot be changed";
        return Err(ApiError::new(codes::IMPOSSIBLE, message).with_status(StatusCode::UNPROCESSABLE_ENTITY));
    }
    let (name, run) = (thread.clone(), gateway.new_id("update"));
    let parse = move || -> Result<Vec<Message>, ApiError> {
        let body = json!({ "input": values }).to_string();
        Ok(input::from_json(&body, name, run, &mut Tally::default())?.messages)
    };
    let added = cpu_work::by_length(owner, request.body.len(), parse).await??;
    loop {
        let stored = gateway.conversation(owner, thread).await?;
        let expected = stored.as_ref().map(|stored| stored.text().clone());
        let length = request.body.len() + expected.as_ref().map_or(0, |text| text.len());
        let added = added.clone();
        let merge = move || {
            let before = stored.as_ref().map_or(&[][..], |stored| stored.messages());
            ag_ui::messages_to_json(&with_messages(before, added))
        };
        let body = cpu_work::by_length(owner, length, merge).await?;
        let limit = gateway.settings().limits.thread_messages;
        if body.len() > limit {
            return Err(too_large("messages", limit));
        }
        let messages = Some(TextChange { expected, body: body.into() });
        let change = ThreadChange { messages, ..ThreadChange::default() };
        match gateway.store().update_thread(owner, thread, change).await {
            Ok(_) => return Ok(()),
            // Another writer was faster.
            Err(StoreError::Conflict(Conflict::Thread)) => {}
            Err(StoreError::Conflict(Conflict::Orphan(run))) => gateway.settle_orphan(owner, &run).await?,
            Err(StoreError::Conflict(Conflict::Leased(_))) => {
                return Err(ApiError::new(codes::THREAD_IS_LOCKED, "a run has the thread"));
            }
            Err(error) => return Err(error.into()),
        }
    }
}

/// Stored messages with others, which replace those of their ids.
fn with_messages(stored: &[Message], added: Vec<Message>) -> Vec<Message> {
    let mut places: HashMap<MessageId, usize> = HashMap::new();
    let mut all = Vec::with_capacity(stored.len() + added.len());
    for message in stored {
        // Of several with one id the first is replaced.
        places.entry(message.id.clone()).or_insert(all.len());
        all.push(message.clone());
    }
    for message in added {
        match places.entry(message.id.clone()) {
            Entry::Occupied(place) => all[*place.get()] = message,
            Entry::Vacant(place) => {
                place.insert(all.len());
                all.push(message);
            }
        }
    }
    all
}
