//! The routes of threads: list, rename, archive, delete, messages, events, state.

use std::sync::Arc;

use agentwire_core::event::ThreadId;
use agentwire_store::{PageToken, StoreError, Thread, ThreadQuery};
use axum::response::Response;
use serde_json::{Map, Value, json};

use super::super::{
    super::{
        RouteGroup, json,
        request::ApiRequest,
        thread_list::{MetadataChanges, Row, is_archived},
        threads,
    },
    request::FaceRequest,
};
use super::events;
use crate::{
    auth::Action, codes, cpu_work, error::ApiError, gateway::AgentEntry, thread::snapshot::ThreadSnapshot,
    timestamp::iso,
};

/// The default and the largest number of threads of a page.
const PAGE: usize = 50;
const LARGEST_PAGE: usize = 200;

/// Threads that one request looks through at most.
const MAX_SCANNED: usize = 500;

fn bad_request(message: &str) -> ApiError {
    ApiError::new(codes::BAD_REQUEST, message)
}

fn unknown_thread() -> ApiError {
    ApiError::new(codes::UNKNOWN_THREAD, "no such thread")
}

/// `GET threads`: a page of the threads of an agent, newest first. Without `agentId` those of the default agent.
pub(super) async fn list(request: FaceRequest) -> Result<Response, ApiError> {
    let asked = request.query("agentId").unwrap_or_else(|| "default".into());
    let number = |name: &str| match request.query(name) {
        None => Ok(None),
        Some(text) => text
            .parse::<u64>()
            .map(Some)
            .map_err(|_| bad_request(&format!("`{name}` is not one of this gateway"))),
    };
    let limit = number("limit")?.map_or(PAGE, |limit| usize::try_from(limit).unwrap_or(LARGEST_PAGE));
    let limit = limit.clamp(1, LARGEST_PAGE);
    let mut before = number("cursor")?.map(PageToken);
    let with_archived = request.query("includeArchived").as_deref() == Some("true");
    let agent = request.agent(&asked, Action::Read).filter(|agent| agent.settings.routes.history);
    let Some(agent) = agent else {
        return Ok(json(json!({"threads": [], "nextCursor": null}).to_string()));
    };
    let request = request.to(&agent, RouteGroup::History)?;
    let (store, mut found, mut scanned) = (request.state.gateway.store().clone(), Vec::new(), 0);
    loop {
        let page = store.threads(&request.owner, ThreadQuery { before }, limit - found.len()).await?;
        scanned += page.items.len();
        for thread in page.items.iter().filter(|thread| with_archived || !is_archived(thread)) {
            found.push(thread_json(&request, thread, &asked).await?);
        }
        before = page.next;
        if before.is_none() || found.len() >= limit || scanned >= MAX_SCANNED {
            break;
        }
    }
    let next = before.map(|token| token.0.to_string());
    Ok(json(json!({"threads": found, "nextCursor": next}).to_string()))
}

/// A thread as the client knows it. `asked` is the name by which the client knows the agent.
async fn thread_json(request: &ApiRequest, thread: &Thread, asked: &str) -> Result<Value, ApiError> {
    let row = Row::read(&request.state.gateway, &request.owner, thread, "").await?;
    let own = &*request.state.agent.name;
    let agent = row.last_run.as_ref().map_or(own, |run| &run.agent);
    Ok(json!({
        "id": thread.thread.as_str(),
        "name": row.title,
        "agentId": if agent == own { asked } else { agent },
        "organizationId": request.owner.tenant.as_str(),
        "createdById": request.owner.user.as_str(),
        "archived": is_archived(thread),
        "createdAt": iso(thread.created.0),
        "updatedAt": iso(thread.updated.0),
    }))
}

/// `PATCH threads/{id}`: `{agentId, name?, archived?}`.
pub(super) async fn update(request: FaceRequest) -> Result<Response, ApiError> {
    let body = object(&request).await?;
    let changes = MetadataChanges::of(body.get("name"), body.get("archived"), "name")?;
    let (request, thread, asked) = of_thread(request, &body, Action::State).await?;
    let changed = change(&request, &thread, changes).await?;
    Ok(json(thread_json(&request, &changed, &asked).await?.to_string()))
}

/// `POST threads/{id}/archive`: `{agentId}`.
pub(super) async fn archive(request: FaceRequest) -> Result<Response, ApiError> {
    let body = object(&request).await?;
    let (request, thread, _) = of_thread(request, &body, Action::State).await?;
    let changes = MetadataChanges { archived: Some(true), ..MetadataChanges::default() };
    change(&request, &thread, changes).await?;
    Ok(json(json!({"threadId": thread.as_str(), "archived": true}).to_string()))
}

/// `DELETE threads/{id}`: `{agentId}`.
pub(super) async fn delete(request: FaceRequest) -> Result<Response, ApiError> {
    let body = object(&request).await?;
    let (request, thread, _) = of_thread(request, &body, Action::Delete).await?;
    threads::delete(request).await?;
    Ok(json(json!({"threadId": thread.as_str(), "deleted": true}).to_string()))
}

/// The body as an object; none is an empty one.
async fn object(request: &FaceRequest) -> Result<Map<String, Value>, ApiError> {
    request.object().await?.map_err(|_| bad_request("the body must be an object"))
}

/// The request as one to the agent that its body names, with its thread; without a name, to the agent that has the thread.
async fn of_thread(
    request: FaceRequest,
    body: &Map<String, Value>,
    action: Action,
) -> Result<(ApiRequest, ThreadId, String), ApiError> {
    let thread = ThreadId::from(request.param("id"));
    let (agent, asked) = match body.get("agentId") {
        Some(Value::String(name)) => {
            let agent = request.agent(name, action).filter(|agent| agent.settings.routes.history);
            (agent, Some(name.clone()))
        }
        None => (request.agent_with(&request.agents(action), &thread).await?, None),
        Some(_) => return Err(bad_request("`agentId` must be the name of an agent")),
    };
    let agent = agent.ok_or_else(unknown_thread)?;
    let asked = asked.unwrap_or_else(|| agent.name.to_string());
    Ok((request.to(&agent, RouteGroup::History)?, thread, asked))
}

async fn change(
    request: &ApiRequest,
    thread: &ThreadId,
    changes: MetadataChanges,
) -> Result<Thread, ApiError> {
    let changed = changes.apply(request, thread).await;
    request.audited("rename", changed, |record| record.thread(thread).arguments(&request.body))
}

/// The agent of a thread that is read by its id alone: that of the query, the one that has it, or else the default one, which may
/// have it on its own side.
async fn reader_of(request: &FaceRequest, thread: &ThreadId) -> Result<Option<Arc<AgentEntry>>, ApiError> {
    if let Some(name) = request.query("agentId") {
        return Ok(request.agent(&name, Action::Read).filter(|agent| agent.settings.routes.history));
    }
    let candidates = request.agents(Action::Read);
    let found = request.agent_with(&candidates, thread).await?;
    Ok(found.or_else(|| candidates.into_iter().next()))
}

/// The snapshot of the thread in the path; `None` if there is none.
async fn snapshot(request: FaceRequest) -> Result<Option<ThreadSnapshot>, ApiError> {
    let thread = ThreadId::from(request.param("id"));
    let Some(agent) = reader_of(&request, &thread).await? else { return Ok(None) };
    let request = request.to(&agent, RouteGroup::History)?;
    threads::read_snapshot(&request, &thread).await
}

/// `GET threads/{id}/messages`; none for an unknown thread, as CopilotKit's runtime has it.
pub(super) async fn messages(request: FaceRequest) -> Result<Response, ApiError> {
    let sender = request.sender();
    let Some(snapshot) = snapshot(request).await? else { return Ok(json(r#"{"messages":[]}"#)) };
    let work = move || {
        let messages: Vec<Value> = serde_json::from_str(&snapshot.messages).unwrap_or_default();
        let messages: Vec<Value> = messages.iter().map(message_json).collect();
        json!({ "messages": messages }).to_string()
    };
    Ok(json(cpu_work::spawn(sender, work).await?))
}

/// A message with its calls in the flat form of CopilotKit's thread routes.
fn message_json(message: &Value) -> Value {
    let mut shown = json!({"id": message["id"], "role": message["role"]});
    for key in ["content", "toolCallId", "error", "activityType"] {
        if let Some(value) = message.get(key) {
            shown[key] = value.clone();
        }
    }
    let calls = message["toolCalls"].as_array().filter(|calls| !calls.is_empty());
    if let Some(calls) = calls {
        let flat = |call: &Value| json!({"id": call["id"], "name": call["function"]["name"], "args": call["function"]["arguments"]});
        shown["toolCalls"] = calls.iter().map(flat).collect();
    }
    shown
}

/// `GET threads/{id}/state`; `null` if there is none.
pub(super) async fn state(request: FaceRequest) -> Result<Response, ApiError> {
    let snapshot = snapshot(request).await?;
    let state = snapshot.as_ref().map_or("null", |snapshot| &snapshot.state);
    Ok(json(format!(r#"{{"state":{}}}"#, if state.is_empty() { "null" } else { state })))
}

/// `GET threads/{id}/events`: the events of all runs, oldest first; none for an unknown thread.
pub(super) async fn events(request: FaceRequest) -> Result<Response, ApiError> {
    let thread = ThreadId::from(request.param("id"));
    let none = || json(r#"{"events":[]}"#);
    let Some(agent) = reader_of(&request, &thread).await? else { return Ok(none()) };
    let request = request.to(&agent, RouteGroup::History)?;
    if let Err(StoreError::NotFound(_)) = request.state.gateway.store().thread(&request.owner, &thread).await
    {
        return Ok(none());
    }
    events::response(&request, &thread).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_flat() {
        let message = json!({"id": "m", "role": "assistant", "toolCalls": [
            {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}]});
        let flat =
            json!({"id": "m", "role": "assistant", "toolCalls": [{"id": "c", "name": "f", "args": "{}"}]});
        assert_eq!(message_json(&message), flat);
    }
}
