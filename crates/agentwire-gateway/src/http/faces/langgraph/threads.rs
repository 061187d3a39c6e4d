//! The routes of threads: create, get, change, delete, search, count.

use std::{cmp::Ordering, sync::Arc};

use agentwire_core::{
    event::{Interrupt, Outcome, ThreadId},
    format::langgraph,
};
use agentwire_store::{NewThread, Owner, Quota, QuotaKind, Run, RunStatus, StoreError, Thread, ThreadQuery};
use axum::{
    http::StatusCode,
    response::{IntoResponse, Response},
};
use serde_json::{Map, Value, json};

use super::{
    super::{
        super::{RouteGroup, json, request::ApiRequest, thread_list::change_metadata, threads},
        request::FaceRequest,
    },
    body::text_of,
    errors::{invalid, not_offered, unknown_assistant},
    records::{self, Records},
    runs::{self, of_thread},
    shapes,
};
use crate::{
    auth::Action,
    codes, cpu_work,
    error::ApiError,
    gateway::Gateway,
    limits::over_quota,
    run::admission::check_id,
    stream::{log_codec, reader},
    timestamp::iso,
};

/// The default and the largest number of threads of a page.
const PAGE: usize = 10;
const LARGEST_PAGE: usize = 100;

/// Threads that one request looks through at most.
const MAX_SCANNED: usize = 1000;

/// Bytes of the threads that a search shows: one thread as large as threads can be by default, and some more.
const MAX_FOUND: usize = 64 << 20;

/// Bytes of the metadata that clients store with a thread.
const MAX_METADATA: usize = 16 << 10;

/// The body as an object; none is an empty one.
pub(super) async fn object(request: &FaceRequest) -> Result<Map<String, Value>, ApiError> {
    request.object().await?.map_err(|error| invalid(format!("the body: {error}")))
}

pub(super) fn metadata_of(body: &Map<String, Value>) -> Result<Map<String, Value>, ApiError> {
    match body.get("metadata") {
        None | Some(Value::Null) => Ok(Map::new()),
        Some(Value::Object(metadata)) => {
            let mut metadata = metadata.clone();
            records::take(&mut metadata);
            Ok(metadata)
        }
        Some(_) => Err(invalid("`metadata` must be an object")),
    }
}

fn check_size(metadata: &Map<String, Value>) -> Result<String, ApiError> {
    let text = Value::Object(metadata.clone()).to_string();
    match text.len() > MAX_METADATA {
        true => Err(invalid(format!("`metadata` has more than {MAX_METADATA} bytes"))),
        false => Ok(text),
    }
}

/// `POST threads`: `{thread_id?, metadata?, if_exists?}`. A thread belongs to an assistant: to the one that
/// `metadata.graph_id` names, or for now to the default one; the first run decides.
pub(super) async fn create(request: FaceRequest) -> Result<Response, ApiError> {
    let body = object(&request).await?;
    let mut metadata = metadata_of(&body)?;
    for option in ["supersteps", "ttl"] {
        if body.get(option).is_some_and(|value| !value.is_null()) {
            return Err(not_offered(option));
        }
    }
    let raises = match text_of(&body, "if_exists")? {
        None | Some("raise") => true,
        Some("do_nothing") => false,
        Some(_) => return Err(invalid("`if_exists` must be `raise` or `do_nothing`")),
    };
    let asked = ["graph_id", "assistant_id"]
        .into_iter()
        .find_map(|key| Some(metadata.get(key)?.as_str()?.to_owned()));
    let candidates = request.agents(Action::Run);
    let agent = match &asked {
        Some(name) => request.agent(name, Action::Run).filter(|agent| agent.settings.routes.history),
        None => candidates.first().cloned(),
    };
    let agent = agent.ok_or_else(|| {
        unknown_assistant(asked.as_deref().unwrap_or_default()).with_status(StatusCode::UNPROCESSABLE_ENTITY)
    })?;
    let thread = match text_of(&body, "thread_id")? {
        None => ThreadId::from(request.gateway.new_id("thread")),
        Some(id) => {
            check_id("thread", id)?;
            id.into()
        }
    };
    if asked.is_none() {
        metadata.remove("graph_id");
        metadata.remove("assistant_id");
    }
    let text = check_size(&metadata)?;
    let known = request.agent_with(&request.agents(Action::Read), &thread).await?;
    let gateway = request.gateway.clone();
    if let Some(known) = known {
        if raises {
            return Err(ApiError::new(codes::IMPOSSIBLE, "the thread exists already")
                .with_status(StatusCode::CONFLICT));
        }
        let request = request.to(&known, RouteGroup::History)?;
        let stored = gateway.store().thread(&request.owner, &thread).await?;
        return Ok(json(thread_text(&gateway, &request.owner, &stored).await?));
    }
    let request = request.to(&agent, RouteGroup::Main)?;
    check_quota(&request).await?;
    let thread_ids = Some(gateway.thread_ids(&agent));
    let metadata = (!metadata.is_empty()).then(|| text.into());
    let new = NewThread { thread: thread.clone(), thread_ids, metadata };
    let created = gateway.store().create_thread(&request.owner, new).await.map_err(ApiError::from);
    let created = request.audited("create", created, |record| record.thread(&thread))?;
    let named = asked.as_ref().map(|_| &*agent.name);
    let mut shown = described(&created.item, named, shapes::thread_status(None, false));
    shown["values"] = Value::Null;
    Ok(json(shown.to_string()))
}

/// A thread that no run starts counts for the quotas too.
async fn check_quota(request: &ApiRequest) -> Result<(), ApiError> {
    let (gateway, owner) = (&request.state.gateway, &request.owner);
    let quotas = gateway.quotas().stored();
    for (quota, user, is_tenant) in [(quotas.user, Some(&owner.user), false), (quotas.tenant, None, true)] {
        let Quota { threads: Some(most), .. } = quota else { continue };
        if gateway.store().usage(&owner.tenant, user).await?.threads >= most {
            return Err(over_quota(owner, is_tenant, QuotaKind::Threads));
        }
    }
    Ok(())
}

/// The members of a thread that need nothing but its record.
fn described(thread: &Thread, agent: Option<&str>, status: &str) -> Value {
    json!({
        "thread_id": thread.thread.as_str(),
        "created_at": iso(thread.created.0),
        "updated_at": iso(thread.updated.0),
        "state_updated_at": iso(thread.updated.0),
        "metadata": shapes::thread_metadata(thread, agent),
        "status": status,
        "config": {},
        "error": null,
        "interrupts": {},
    })
}

/// The last run of a thread of those that left something in it.
async fn last_run(gateway: &Gateway, owner: &Owner, thread: &Thread) -> Result<Option<Run>, ApiError> {
    let records = Records::of(thread);
    let (mut before, mut limit) = (None, 1);
    loop {
        let page = match gateway.store().runs(owner, &thread.thread, before, limit).await {
            // Deleted since the page was read.
            Err(StoreError::NotFound(_)) => return Ok(None),
            page => page?,
        };
        if let Some(last) = page.items.into_iter().find(|run| records.stands(run)) {
            return Ok(Some(last));
        }
        (before, limit) = (page.next, LARGEST_PAGE);
        if before.is_none() {
            return Ok(None);
        }
    }
}

/// The questions that a thread waits for.
async fn questions(gateway: &Gateway, owner: &Owner, thread: &ThreadId) -> Result<Vec<Interrupt>, ApiError> {
    let open = match gateway.open_items(owner, thread).await {
        Err(StoreError::NotFound(_)) => Vec::new(),
        open => open?,
    };
    Ok(match reader::outcome_of(open.iter()) {
        Some(Outcome::Interrupt { interrupts }) => interrupts,
        _ => Vec::new(),
    })
}

/// The agent that a thread shows: that of its last run, or the one that its metadata name.
fn agent_of<'a>(last: Option<&'a Run>, metadata: &'a Map<String, Value>) -> Option<&'a str> {
    last.map(|run| &*run.agent).or_else(|| metadata.get("graph_id").and_then(Value::as_str))
}

/// A thread with its values, as `use_shown` takes it; off the workers if it is large.
async fn thread_json<T: Send + 'static>(
    gateway: &Gateway,
    owner: &Owner,
    thread: &Thread,
    use_shown: impl FnOnce(Value) -> T + Send + 'static,
) -> Result<T, ApiError> {
    let last = last_run(gateway, owner, thread).await?;
    let metadata = shapes::thread_metadata(thread, None);
    let questions = questions(gateway, owner, &thread.thread).await?;
    let status = shapes::thread_status(last.as_ref(), !questions.is_empty());
    let mut shown = described(thread, agent_of(last.as_ref(), &metadata), status);
    match last.as_ref().map(|run| (run, run.status)) {
        Some((run, RunStatus::Failed)) => shown["error"] = runs::failure(gateway, owner, run).await?,
        Some((_, RunStatus::Stopped)) => {
            shown["error"] = json!({"error": "UserInterrupt", "message": "the run was stopped"});
        }
        _ => {}
    }
    if !questions.is_empty() {
        let shown_interrupts: Vec<Value> = questions.iter().map(langgraph::server_interrupt).collect();
        let task = last.as_ref().map_or("task", |run| run.run.as_str());
        shown["interrupts"] = json!({ task: shown_interrupts });
    }
    let snapshot = gateway.thread_snapshot(owner, &thread.thread).await?.filter(|_| last.is_some());
    let length = snapshot.as_ref().map_or(0, |snapshot| snapshot.messages.len() + snapshot.state.len());
    let work = move || {
        shown["values"] = match &snapshot {
            Some(snapshot) => {
                let messages = snapshot.at_run_start.as_ref().unwrap_or(&snapshot.messages);
                let state: Value = serde_json::from_str(&snapshot.state).unwrap_or_default();
                shapes::values(&log_codec::parse_messages(messages), &state).into()
            }
            None => json!({}),
        };
        use_shown(shown)
    };
    cpu_work::by_length(owner, length, work).await
}

/// The same as text.
async fn thread_text(gateway: &Gateway, owner: &Owner, thread: &Thread) -> Result<String, ApiError> {
    thread_json(gateway, owner, thread, |shown| shown.to_string()).await
}

/// `GET threads/{id}`.
pub(super) async fn get(request: FaceRequest) -> Result<Response, ApiError> {
    let (request, thread) = of_thread(request, Action::Read, RouteGroup::History).await?;
    let gateway = &request.state.gateway;
    let stored = gateway.store().thread(&request.owner, &thread).await.map_err(ApiError::from);
    let stored = request.audited("read", stored, |record| record.thread(&thread))?;
    Ok(json(thread_text(gateway, &request.owner, &stored).await?))
}

/// `PATCH threads/{id}`: adds to the metadata.
pub(super) async fn update(request: FaceRequest) -> Result<Response, ApiError> {
    let body = object(&request).await?;
    let added = metadata_of(&body)?;
    if body.get("ttl").is_some_and(|value| !value.is_null()) {
        return Err(not_offered("ttl"));
    }
    let (request, thread) = of_thread(request, Action::State, RouteGroup::History).await?;
    let gateway = &request.state.gateway;
    let change = |stored: &Thread| {
        let mut whole = shapes::thread_metadata(stored, None);
        whole.extend(added.clone());
        check_size(&whole)?;
        records::put(&mut whole, records::of_metadata(stored));
        Ok(Value::Object(whole).to_string())
    };
    let changed = change_metadata(&request, &thread, change).await;
    let changed =
        request.audited("rename", changed, |record| record.thread(&thread).arguments(&request.body))?;
    Ok(json(thread_text(gateway, &request.owner, &changed).await?))
}

/// `DELETE threads/{id}`.
pub(super) async fn delete(request: FaceRequest) -> Result<Response, ApiError> {
    let (request, _) = of_thread(request, Action::Delete, RouteGroup::History).await?;
    threads::delete(request).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// The threads that a search looks for.
struct Search {
    metadata: Map<String, Value>,
    values: Map<String, Value>,
    ids: Option<Vec<String>>,
    status: Option<String>,
    sort_by: String,
    is_ascending: bool,
    select: Option<Vec<String>>,
    limit: usize,
    offset: usize,
}

impl Search {
    fn parse(body: &Map<String, Value>) -> Result<Self, ApiError> {
        let number = |key: &str, default: usize| match body.get(key) {
            None | Some(Value::Null) => Ok(default),
            Some(value) => value
                .as_u64()
                .and_then(|value| usize::try_from(value).ok())
                .ok_or_else(|| invalid(format!("`{key}` must be a whole number"))),
        };
        let texts = |key: &str| match body.get(key) {
            None | Some(Value::Null) => Ok(None),
            Some(value) => serde_json::from_value::<Vec<String>>(value.clone())
                .map(Some)
                .map_err(|_| invalid(format!("`{key}` must be a list of texts"))),
        };
        if body.get("extract").is_some_and(|value| !value.is_null()) {
            return Err(not_offered("extract"));
        }
        let values = match body.get("values") {
            None | Some(Value::Null) => Map::new(),
            Some(Value::Object(values)) => values.clone(),
            Some(_) => return Err(invalid("`values` must be an object")),
        };
        let status = text_of(body, "status")?;
        if status.is_some_and(|status| !["idle", "busy", "interrupted", "error"].contains(&status)) {
            return Err(invalid("`status` must be `idle`, `busy`, `interrupted` or `error`"));
        }
        let sort_by = text_of(body, "sort_by")?.unwrap_or("created_at");
        if !["thread_id", "status", "created_at", "updated_at", "state_updated_at"].contains(&sort_by) {
            return Err(invalid("`sort_by` is not a member of a thread"));
        }
        let is_ascending = match text_of(body, "sort_order")? {
            None | Some("desc") => false,
            Some("asc") => true,
            Some(_) => return Err(invalid("`sort_order` must be `asc` or `desc`")),
        };
        Ok(Self {
            metadata: metadata_of(body)?,
            values,
            ids: texts("ids")?,
            status: status.map(str::to_owned),
            sort_by: sort_by.to_owned(),
            is_ascending,
            select: texts("select")?,
            limit: number("limit", PAGE)?.clamp(1, LARGEST_PAGE),
            offset: number("offset", 0)?,
        })
    }

    fn order(&self, one: &Found, other: &Found) -> Ordering {
        let by = match &*self.sort_by {
            "thread_id" => one.thread.thread.as_str().cmp(other.thread.thread.as_str()),
            "status" => one.status.cmp(other.status),
            "created_at" => one.thread.created.0.cmp(&other.thread.created.0),
            _ => one.thread.updated.0.cmp(&other.thread.updated.0),
        };
        if self.is_ascending { by } else { by.reverse() }
    }
}

/// A thread that was found.
struct Found {
    owner: Owner,
    thread: Thread,
    status: &'static str,
}

/// The threads that match, in order; those of all agents that the sender may read.
async fn found(request: &FaceRequest, search: &Search) -> Result<Vec<Found>, ApiError> {
    let gateway = &request.gateway;
    let (mut found, mut scanned) = (Vec::new(), 0);
    for agent in request.agents(Action::Read) {
        let owner = request.owner_at(&agent)?;
        let mut before = None;
        while scanned < MAX_SCANNED {
            let page = gateway.store().threads(&owner, ThreadQuery { before }, LARGEST_PAGE).await?;
            scanned += page.items.len();
            for thread in page.items {
                let last = last_run(gateway, &owner, &thread).await?;
                let mut metadata = shapes::thread_metadata(&thread, None);
                if let Some(agent) = agent_of(last.as_ref(), &metadata).map(str::to_owned) {
                    shapes::add_agent(&mut metadata, &agent);
                }
                let waits = last.as_ref().is_some_and(|run| run.status == RunStatus::Waiting);
                let has_questions = waits && !questions(gateway, &owner, &thread.thread).await?.is_empty();
                let status = shapes::thread_status(last.as_ref(), has_questions);
                let is_status = search.status.as_ref().is_none_or(|wanted| wanted == status);
                let is_id =
                    search.ids.as_ref().is_none_or(|ids| ids.iter().any(|id| id == thread.thread.as_str()));
                if is_status && is_id && shapes::contains(&metadata, &search.metadata) {
                    found.push(Found { owner: owner.clone(), thread, status });
                }
                // A store in memory never waits.
                tokio::task::yield_now().await;
            }
            before = page.next;
            if before.is_none() {
                break;
            }
        }
    }
    if !search.values.is_empty() {
        let (mut matching, wanted) = (Vec::new(), Arc::new(search.values.clone()));
        for one in found {
            let wanted = Arc::clone(&wanted);
            let has_values = move |shown: Value| {
                shown["values"].as_object().is_some_and(|values| shapes::contains(values, &wanted))
            };
            if thread_json(gateway, &one.owner, &one.thread, has_values).await? {
                matching.push(one);
            }
        }
        found = matching;
    }
    found.sort_by(|one, other| search.order(one, other));
    Ok(found)
}

/// `POST threads/search`: newest first unless `sort_by` says otherwise.
pub(super) async fn search(request: FaceRequest) -> Result<Response, ApiError> {
    let search = Search::parse(&object(&request).await?)?;
    let found = found(&request, &search).await?;
    let mut page = String::from("[");
    for one in found.iter().skip(search.offset).take(search.limit) {
        let select = search.select.clone();
        let text = move |mut shown: Value| {
            if let (Some(select), Some(members)) = (select, shown.as_object_mut()) {
                members.retain(|key, _| select.contains(key));
            }
            shown.to_string()
        };
        if page.len() > 1 {
            page.push(',');
        }
        page.push_str(&thread_json(&request.gateway, &one.owner, &one.thread, text).await?);
        if page.len() > MAX_FOUND {
            let message = format!("the threads have more than {MAX_FOUND} bytes");
            let hint = "ask for fewer by `limit`, or leave `values` out of `select`";
            return Err(ApiError::new(codes::THREAD_TOO_LARGE, format!("{message}: {hint}")));
        }
    }
    page.push(']');
    listed(request)?;
    Ok(json(page))
}

/// `POST threads/count`.
pub(super) async fn count(request: FaceRequest) -> Result<Response, ApiError> {
    let search = Search::parse(&object(&request).await?)?;
    let count = found(&request, &search).await?.len();
    listed(request)?;
    Ok(json(count.to_string()))
}

/// Counts the request for its user, and puts it on record.
fn listed(request: FaceRequest) -> Result<(), ApiError> {
    match request.agents(Action::Read).first().cloned() {
        Some(agent) => request.to(&agent, RouteGroup::History)?.audited("list", Ok(()), |record| record),
        None => Ok(()),
    }
}
