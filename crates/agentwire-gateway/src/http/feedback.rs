//! What people think of what agents did.

use std::time::Duration;

use agentwire_core::{
    event::{Message, RunId, ThreadId},
    format::ai_sdk,
};
use agentwire_store::{NewFeedback, PageToken};
use axum::{
    extract::{Request, State},
    http::HeaderValue,
    response::Response,
};
use serde_json::{Map, Value, json};
use tokio::sync::Semaphore;

use super::{
    Mount, json,
    request::{Call, Params},
    start::Held,
};
use crate::{
    codes, error::ApiError, gateway::Gateway, human::pending::iso, ops::audit::Record, outbound,
    run::input::messages_of,
};

/// How many are listed at once.
const PAGE: usize = 200;

/// The longest comment; more is a document.
const LONGEST_COMMENT: usize = 16 << 10;

/// How much of an id is said back.
const LONGEST_QUOTE: usize = 100;

/// The most tags, and the longest one: with the comment they fit into a line of the audit.
const MOST_TAGS: usize = 50;
const LONGEST_TAG: usize = 200;

/// What feedback can say.
const KNOWN: &[&str] =
    &["threadId", "runId", "messageId", "toolCallId", "rating", "score", "tags", "comment"];

/// How often feedback is sent on before it is given up, and how long after the first failure; then twice as long.
const TRIES: u32 = 4;
const PAUSE: Duration = Duration::from_millis(500);

/// How many may be under way at once; a collector that does not answer must not fill the memory.
static UNDER_WAY: Semaphore = Semaphore::const_new(64);

/// `POST /feedback`: `{threadId, runId?, messageId?, toolCallId?, rating?, score?, tags?, comment?}`.
pub(crate) async fn add(
    State(mount): State<Mount>,
    params: Params,
    request: Request,
) -> Result<Response, ApiError> {
    let call = Call::with_json(&mount, &params, request).await?;
    let said = call.told(&mount, call.text().and_then(read))?;
    let thread = ThreadId::from(said["threadId"].as_str().unwrap_or_default());
    let run = said.get("runId").and_then(Value::as_str).map(RunId::from);
    let gateway = &mount.gateway;
    let done = async {
        if let Some(run) = &run {
            let known = gateway.store().run(&call.owner, run).await?;
            if known.thread != thread {
                return Err(ApiError::new(codes::UNKNOWN_RUN, "no such run"));
            }
        }
        check_place(&mount, &call, &thread, &said).await?;
        let body = Value::Object(said.clone()).to_string();
        let new = NewFeedback { thread: thread.clone(), run: run.clone(), body: body.into() };
        Ok(gateway.store().add_feedback(&call.owner, new).await?)
    };
    let done = done.await;
    let record = Record::new(&call.owner, "feedback").thread(&thread).feedback(&said);
    gateway.audit().note(record.outcome(&done));
    let kept = done?;
    forward(&mount, &call, said);
    Ok(json(json!({"status": "recorded", "createdAt": iso(kept.created.0)}).to_string()))
}

/// Refuses what is about a message or a call that the thread does not have.
async fn check_place(
    mount: &Mount,
    call: &Call,
    thread: &ThreadId,
    said: &Map<String, Value>,
) -> Result<(), ApiError> {
    let named = |key: &str| said.get(key).and_then(Value::as_str);
    let (message, tool_call) = (named("messageId"), named("toolCallId"));
    if message.is_none() && tool_call.is_none() {
        return Ok(());
    }
    let held = Held::unnoticed(mount, &call.owner, thread).await?;
    let messages = messages_of(&held.unwrap_or_default().messages);
    let unknown = |what: &str, id: &str| {
        let id: String = id.chars().take(LONGEST_QUOTE).collect();
        ApiError::new(codes::UNKNOWN_MESSAGE, format!("the thread has no {what} `{}`", id.escape_default()))
    };
    if let Some(id) = message
        && messages.iter().all(|message| &*message.id != id)
        && !is_shown_as(&mount.gateway, call, thread, &messages, id).await
    {
        return Err(unknown("message", id));
    }
    match tool_call {
        Some(id) if messages.iter().flat_map(|it| it.tool_calls()).all(|it| &*it.id != id) => {
            Err(unknown("tool call", id))
        }
        _ => Ok(()),
    }
}

/// Whether an AI SDK page shows a message under this id: to it, all that a run says is one message.
async fn is_shown_as(
    gateway: &Gateway,
    call: &Call,
    thread: &ThreadId,
    messages: &[Message],
    id: &str,
) -> bool {
    let shown: Value =
        serde_json::from_str(&ai_sdk::input::ui_messages(messages, &[], 5)).unwrap_or_default();
    shown.as_array().into_iter().flatten().any(|message| message["id"] == id)
        || gateway.store().run(&call.owner, &id.into()).await.is_ok_and(|run| run.thread == *thread)
}

/// Reads what was said and refuses what means nothing.
fn read(text: &str) -> Result<Map<String, Value>, ApiError> {
    let bad = |path: &str, wanted: &str| {
        ApiError::new(codes::BAD_REQUEST, format!("at `{path}`: expected {wanted}"))
    };
    let value: Value = serde_json::from_str(text)
        .map_err(|error| ApiError::new(codes::BAD_REQUEST, format!("not valid JSON: {error}")))?;
    let Value::Object(mut said) = value else { return Err(bad("", "an object")) };
    // What nobody knows is nobody's, and would make the record of what was done as long as anybody likes.
    said.retain(|key, value| KNOWN.contains(&key.as_str()) && !value.is_null());
    let text = |key: &str| match said.get(key) {
        None | Some(Value::Null) => Ok(false),
        Some(Value::String(text)) if !text.is_empty() && text.len() <= LONGEST_COMMENT => Ok(true),
        Some(_) => Err(bad(&format!("/{key}"), "a string that is neither empty nor too long")),
    };
    if !text("threadId")? {
        return Err(bad("/threadId", "a string"));
    }
    text("runId")?;
    text("messageId")?;
    text("toolCallId")?;
    let mut says = text("comment")?;
    let is_tag = |tag: &Value| tag.as_str().is_some_and(|tag| !tag.is_empty() && tag.len() <= LONGEST_TAG);
    match said.get("rating") {
        None | Some(Value::Null) => {}
        Some(Value::Number(_)) => says = true,
        Some(Value::String(word)) if word == "up" || word == "down" => says = true,
        Some(_) => return Err(bad("/rating", "`up`, `down` or a number")),
    }
    match said.get("score") {
        None | Some(Value::Null) => {}
        Some(Value::Number(_)) => says = true,
        Some(_) => return Err(bad("/score", "a number")),
    }
    match said.get("tags") {
        None | Some(Value::Null) => {}
        Some(Value::Array(tags)) if tags.len() <= MOST_TAGS && tags.iter().all(is_tag) => {
            says = says || !tags.is_empty();
        }
        Some(_) => return Err(bad("/tags", "a list of at most 50 short strings")),
    }
    if !says {
        return Err(bad("", "at least one of `rating`, `score`, `tags`, `comment`"));
    }
    Ok(said)
}

/// Sends feedback on to whoever collects it; it is kept here in any case, and nobody waits for that.
fn forward(mount: &Mount, call: &Call, mut said: Map<String, Value>) {
    let Some(url) = mount.agent.settings.feedback_url.clone() else { return };
    let Ok(place) = UNDER_WAY.try_acquire() else {
        tracing::warn!("feedback could not be sent on: too much of it is under way");
        return;
    };
    said.insert("user".into(), call.owner.user.as_str().into());
    said.insert("agent".into(), (&*mount.agent.name).into());
    let body = Value::Object(said).to_string();
    let patience = mount.gateway.settings().limits.request_timeout;
    let stopping = mount.gateway.shutdown().clone();
    mount.gateway.tasks().spawn(async move {
        let _place = place;
        for number in 0..TRIES {
            match send(&url, body.clone(), patience).await {
                Ok(()) => return,
                // What the collector does not want it will not want later.
                Err(error)
                    if error.status().is_some_and(|status| status.is_client_error() && status != 429) =>
                {
                    tracing::warn!(error = %error.without_url(), "feedback could not be sent on");
                    return;
                }
                Err(error) => {
                    tracing::warn!(number, error = %error.without_url(), "feedback could not be sent on yet");
                }
            }
            tokio::select! {
                () = tokio::time::sleep(PAUSE * 2_u32.pow(number)) => {}
                () = stopping.cancelled() => return,
            }
        }
    });
}

async fn send(url: &str, body: String, patience: Duration) -> reqwest::Result<()> {
    let client = match reqwest::Url::parse(url) {
        Ok(url) => outbound::client(&url),
        Err(_) => reqwest::Client::builder(),
    };
    let request =
        client.timeout(patience).build()?.post(url).header("content-type", "application/json").body(body);
    request.send().await?.error_for_status().map(drop)
}

/// `GET /threads/{id}/feedback`: oldest first; `?after=` and the header `agentwire-next` turn pages.
pub(crate) async fn list(
    State(mount): State<Mount>,
    params: Params,
    request: Request,
) -> Result<Response, ApiError> {
    let call = Call::without_body(&mount, &params, request)?;
    let after = match call.query("after") {
        None => None,
        Some(text) => Some(PageToken(
            text.parse().map_err(|_| ApiError::new(codes::BAD_REQUEST, "`after` must be a whole number"))?,
        )),
    };
    let thread = ThreadId::from(call.param("id"));
    let page =
        mount.gateway.store().feedback(&call.owner, &thread, after, PAGE).await.map_err(ApiError::from);
    mount.gateway.audit().note(Record::new(&call.owner, "read").thread(&thread).outcome(&page));
    let page = page?;
    let items: Vec<_> = page
        .items
        .iter()
        .map(|item| {
            let mut shown: Value = serde_json::from_str(&item.body).unwrap_or_else(|_| json!({}));
            shown["createdAt"] = iso(item.created.0).into();
            shown
        })
        .collect();
    let mut response = json(Value::from(items).to_string());
    if let Some(next) = page.next {
        response.headers_mut().insert("agentwire-next", HeaderValue::from(next.0));
    }
    Ok(response)
}
