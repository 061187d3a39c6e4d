//! Feedback: ratings and comments of people about a thread, a run, a message or a tool call.

use std::time::Duration;

use agentwire_client::transport;
use agentwire_core::{event::Message, format::ai_sdk};
use serde_json::{Map, Value};
use tokio::sync::Semaphore;

use crate::{codes, error::ApiError, gateway::Gateway};

/// The longest comment in bytes.
const MAX_COMMENT: usize = 16 << 10;

/// The longest part of an id that an error quotes, in characters.
const MAX_QUOTE: usize = 100;

/// The most tags, and the longest one in bytes: with the comment they fit into a line of the audit.
const MAX_TAGS: usize = 50;
const MAX_TAG: usize = 200;

/// The members of feedback.
const MEMBERS: &[&str] =
    &["threadId", "runId", "messageId", "toolCallId", "rating", "score", "tags", "comment"];

/// The attempts to forward feedback, and the backoff after the first; it doubles.
const TRIES: u32 = 4;
const BACKOFF: Duration = Duration::from_millis(500);

/// The most feedback being forwarded at once: a collector that does not respond must not fill the memory.
static FORWARDING: Semaphore = Semaphore::const_new(64);

/// Parses and validates feedback: `BAD_REQUEST`. Unknown members are dropped: they would make the audit record as long as a
/// client likes.
pub(crate) fn parse(text: &str) -> Result<Map<String, Value>, ApiError> {
    let bad = |path: &str, expected: &str| {
        ApiError::new(codes::BAD_REQUEST, format!("at `{path}`: expected {expected}"))
    };
    let value: Value = serde_json::from_str(text)
        .map_err(|error| ApiError::new(codes::BAD_REQUEST, format!("not valid JSON: {error}")))?;
    let Value::Object(mut feedback) = value else { return Err(bad("", "an object")) };
    feedback.retain(|key, value| MEMBERS.contains(&key.as_str()) && !value.is_null());
    let text = |key: &str| match feedback.get(key) {
        None | Some(Value::Null) => Ok(false),
        Some(Value::String(text)) if !text.is_empty() && text.len() <= MAX_COMMENT => Ok(true),
        Some(_) => Err(bad(&format!("/{key}"), "a string that is neither empty nor too long")),
    };
    if !text("threadId")? {
        return Err(bad("/threadId", "a string"));
    }
    text("runId")?;
    text("messageId")?;
    text("toolCallId")?;
    let mut has_content = text("comment")?;
    let is_tag = |tag: &Value| tag.as_str().is_some_and(|tag| !tag.is_empty() && tag.len() <= MAX_TAG);
    match feedback.get("rating") {
        None | Some(Value::Null) => {}
        Some(Value::Number(_)) => has_content = true,
        Some(Value::String(word)) if word == "up" || word == "down" => has_content = true,
        Some(_) => return Err(bad("/rating", "`up`, `down` or a number")),
    }
    match feedback.get("score") {
        None | Some(Value::Null) => {}
        Some(Value::Number(_)) => has_content = true,
        Some(_) => return Err(bad("/score", "a number")),
    }
    match feedback.get("tags") {
        None | Some(Value::Null) => {}
        Some(Value::Array(tags)) if tags.len() <= MAX_TAGS && tags.iter().all(is_tag) => {
            has_content = has_content || !tags.is_empty();
        }
        Some(_) => return Err(bad("/tags", "a list of at most 50 short strings")),
    }
    if !has_content {
        return Err(bad("", "at least one of `rating`, `score`, `tags`, `comment`"));
    }
    Ok(feedback)
}

/// Checks that the message and the tool call of a feedback are in the thread: `UNKNOWN_MESSAGE`. `is_run` is the check
/// whether an id is that of a run of the thread: an AI SDK page shows all messages of a run as one, under the run's id.
pub(crate) async fn check_target(
    feedback: &Map<String, Value>,
    messages: &[Message],
    is_run: impl AsyncFnOnce(&str) -> bool,
) -> Result<(), ApiError> {
    let unknown = |kind: &str, id: &str| {
        let id: String = id.chars().take(MAX_QUOTE).collect();
        ApiError::new(codes::UNKNOWN_MESSAGE, format!("the thread has no {kind} `{}`", id.escape_default()))
    };
    if let Some(id) = member(feedback, "messageId")
        && messages.iter().all(|message| &*message.id != id)
        && !is_ui_message(messages, id)
        && !is_run(id).await
    {
        return Err(unknown("message", id));
    }
    match member(feedback, "toolCallId") {
        Some(id) if messages.iter().flat_map(|it| it.tool_calls()).all(|it| &*it.id != id) => {
            Err(unknown("tool call", id))
        }
        _ => Ok(()),
    }
}

/// Whether feedback names a message or a tool call.
pub(crate) fn has_target(feedback: &Map<String, Value>) -> bool {
    member(feedback, "messageId").is_some() || member(feedback, "toolCallId").is_some()
}

pub(crate) fn member<'f>(feedback: &'f Map<String, Value>, name: &str) -> Option<&'f str> {
    feedback.get(name).and_then(Value::as_str)
}

/// Whether an AI SDK page shows a message under this id.
fn is_ui_message(messages: &[Message], id: &str) -> bool {
    let shown: Value =
        serde_json::from_str(&ai_sdk::input::ui_messages(messages, &[], 5)).unwrap_or_default();
    shown.as_array().into_iter().flatten().any(|message| message["id"] == id)
}

/// Forwards stored feedback to a collector, in the background and with retries.
pub(crate) fn forward(gateway: &Gateway, url: &str, feedback: Map<String, Value>) {
    let Ok(permit) = FORWARDING.try_acquire() else {
        tracing::warn!("feedback could not be sent on: too much of it is under way");
        return;
    };
    let (url, body) = (url.to_owned(), Value::Object(feedback).to_string());
    let timeout = gateway.settings().limits.request_timeout;
    let shutdown = gateway.shutdown().clone();
    gateway.tasks().spawn(async move {
        let _permit = permit;
        for number in 0..TRIES {
            match send(&url, body.clone(), timeout).await {
                Ok(()) => return,
                // The collector rejected it; a retry would not change that.
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
                () = tokio::time::sleep(BACKOFF * 2_u32.pow(number)) => {}
                () = shutdown.cancelled() => return,
            }
        }
    });
}

async fn send(url: &str, body: String, timeout: Duration) -> reqwest::Result<()> {
    let client = match reqwest::Url::parse(url) {
        Ok(url) => transport::client_builder(&url),
        Err(_) => transport::builder(),
    };
    let request =
        client.timeout(timeout).build()?.post(url).header("content-type", "application/json").body(body);
    request.send().await?.error_for_status().map(drop)
}
