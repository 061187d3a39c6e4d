//! The routes of feedback.

use agentwire_core::event::{RunId, ThreadId};
use agentwire_store::{NewFeedback, PageToken};
use axum::{http::HeaderValue, response::Response};
use serde_json::{Map, Value, json};

use super::{
    json,
    request::{ApiRequest, JsonRequest},
};
use crate::{codes, cpu_work, error::ApiError, human::feedback, stream::log_codec, timestamp::iso};

/// The most items of one page.
const PAGE: usize = 200;

/// `POST /feedback`: `{threadId, runId?, messageId?, toolCallId?, rating?, score?, tags?, comment?}`.
pub(super) async fn add(JsonRequest(request): JsonRequest) -> Result<Response, ApiError> {
    let mut given = request.parse(feedback::parse).await?;
    let thread = ThreadId::from(feedback::member(&given, "threadId").unwrap_or_default());
    let added = store(&request, &thread, &given).await;
    let added = request.audited("feedback", added, |record| record.thread(&thread).feedback(&given))?;
    let agent = &request.state.agent;
    if let Some(url) = &agent.settings.feedback_url {
        given.insert("user".into(), request.owner.user.as_str().into());
        given.insert("agent".into(), (&*agent.name).into());
        feedback::forward(&request.state.gateway, url, given);
    }
    Ok(json(json!({"status": "recorded", "createdAt": iso(added.created.0)}).to_string()))
}

/// Stores feedback whose run, message and tool call are in the thread.
async fn store(
    request: &ApiRequest,
    thread: &ThreadId,
    given: &Map<String, Value>,
) -> Result<agentwire_store::Feedback, ApiError> {
    let (gateway, owner) = (&request.state.gateway, &request.owner);
    let run = feedback::member(given, "runId").map(RunId::from);
    if let Some(run) = &run {
        let stored = gateway.store().run(owner, run).await?;
        if stored.thread != *thread {
            return Err(ApiError::new(codes::UNKNOWN_RUN, "no such run"));
        }
    }
    if feedback::has_target(given) {
        let snapshot = gateway.thread_snapshot(owner, thread).await?.unwrap_or_default();
        let (length, text) = (snapshot.messages.len(), snapshot.messages);
        let messages = cpu_work::by_length(owner, length, move || log_codec::parse_messages(&text)).await?;
        let is_run = async |id: &str| {
            gateway.store().run(owner, &id.into()).await.is_ok_and(|run| run.thread == *thread)
        };
        feedback::check_target(given, &messages, is_run).await?;
    }
    let body = Value::Object(given.clone()).to_string();
    let new = NewFeedback { thread: thread.clone(), run, body: body.into() };
    Ok(gateway.store().add_feedback(owner, new).await?)
}

/// `GET /threads/{id}/feedback`: oldest first. `?after=` selects a page; the header
/// `agentwire-next` is the `after` of the next one.
pub(super) async fn list(request: ApiRequest) -> Result<Response, ApiError> {
    let after = match request.query("after") {
        None => None,
        Some(text) => Some(PageToken(
            text.parse().map_err(|_| ApiError::new(codes::BAD_REQUEST, "`after` must be a whole number"))?,
        )),
    };
    let thread = ThreadId::from(request.param("id"));
    let page = request.state.gateway.store().feedback(&request.owner, &thread, after, PAGE).await;
    let page = request.audited("read", page.map_err(ApiError::from), |record| record.thread(&thread))?;
    let items: Vec<_> = page
        .items
        .iter()
        .map(|item| {
            let mut feedback: Value = serde_json::from_str(&item.body).unwrap_or_else(|_| json!({}));
            feedback["createdAt"] = iso(item.created.0).into();
            feedback
        })
        .collect();
    let mut response = json(Value::from(items).to_string());
    if let Some(next) = page.next {
        response.headers_mut().insert("agentwire-next", HeaderValue::from(next.0));
    }
    Ok(response)
}
