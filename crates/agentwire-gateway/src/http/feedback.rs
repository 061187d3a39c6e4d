//! What people think of what agents did.

use agentwire_core::event::{RunId, ThreadId};
use agentwire_store::{NewFeedback, PageToken};
use axum::{
    extract::{RawPathParams, Request, State},
    http::HeaderValue,
    response::Response,
};
use serde_json::{Map, Value, json};

use super::{Mount, call::Call, json};
use crate::{audit::Record, code, pending::iso, refusal::Refusal};

/// How many are listed at once.
const PAGE: usize = 200;

/// The longest comment; more is a document.
const LONGEST_COMMENT: usize = 16 << 10;

/// `POST /feedback`: `{threadId, runId?, messageId?, toolCallId?, rating?, score?, tags?, comment?}`.
pub(crate) async fn add(
    State(mount): State<Mount>,
    params: RawPathParams,
    request: Request,
) -> Result<Response, Refusal> {
    let call = Call::with_json(&mount, &params, request).await?;
    let said = read(call.text()?)?;
    let thread = ThreadId::from(said["threadId"].as_str().unwrap_or_default());
    let run = said.get("runId").and_then(Value::as_str).map(RunId::from);
    let gateway = &mount.gateway;
    let done = async {
        if let Some(run) = &run {
            let known = gateway.store.run(&call.owner, run).await?;
            if known.thread != thread {
                return Err(Refusal::new(code::UNKNOWN_RUN, "no such run"));
            }
        }
        let body = Value::Object(said.clone()).to_string();
        let new = NewFeedback { thread: thread.clone(), run: run.clone(), body: body.into() };
        Ok(gateway.store.add_feedback(&call.owner, new).await?)
    };
    let done = done.await;
    let record = Record::new(&call.owner, "feedback").thread(&thread).arguments(&call.body);
    gateway.audit.note(record.outcome(&done));
    let kept = done?;
    forward(&mount, &call, said);
    Ok(json(json!({"status": "recorded", "createdAt": iso(kept.created.0)}).to_string()))
}

/// Reads what was said and refuses what means nothing.
fn read(text: &str) -> Result<Map<String, Value>, Refusal> {
    let bad =
        |path: &str, wanted: &str| Refusal::new(code::BAD_REQUEST, format!("at `{path}`: expected {wanted}"));
    let value: Value = serde_json::from_str(text)
        .map_err(|error| Refusal::new(code::BAD_REQUEST, format!("not valid JSON: {error}")))?;
    let Value::Object(said) = value else { return Err(bad("", "an object")) };
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
        Some(Value::Array(tags)) if tags.iter().all(Value::is_string) => says = says || !tags.is_empty(),
        Some(_) => return Err(bad("/tags", "a list of strings")),
    }
    if !says {
        return Err(bad("", "at least one of `rating`, `score`, `tags`, `comment`"));
    }
    Ok(said)
}

/// Sends feedback on to whoever collects it; it is kept here in any case.
fn forward(mount: &Mount, call: &Call, mut said: Map<String, Value>) {
    let Some(url) = mount.agent.settings.feedback_url.clone() else { return };
    said.insert("user".into(), call.owner.user.as_str().into());
    said.insert("agent".into(), (&*mount.agent.name).into());
    let patience = mount.gateway.settings.limits.request_timeout;
    mount.gateway.tasks.spawn(async move {
        let sent = async {
            let client =
                reqwest::Client::builder().redirect(reqwest::redirect::Policy::none()).timeout(patience);
            let body = Value::Object(said).to_string();
            let request = client.build()?.post(&url).header("content-type", "application/json").body(body);
            request.send().await?.error_for_status()
        };
        if let Err(error) = sent.await {
            tracing::warn!(error = %error.without_url(), "feedback could not be sent on");
        }
    });
}

/// `GET /threads/{id}/feedback`: oldest first; `?after=` and the header `agentwire-next` turn pages.
pub(crate) async fn list(
    State(mount): State<Mount>,
    params: RawPathParams,
    request: Request,
) -> Result<Response, Refusal> {
    let call = Call::without_body(&mount, &params, request)?;
    let after = match call.query("after") {
        None => None,
        Some(text) => Some(PageToken(
            text.parse().map_err(|_| Refusal::new(code::BAD_REQUEST, "`after` must be a whole number"))?,
        )),
    };
    let page = mount.gateway.store.feedback(&call.owner, &call.param("id").into(), after, PAGE).await?;
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
