//! Answers in the form in which ADK wants them back.

use serde_json::{Value, json};

use super::{RequestError, Waiting};
use crate::{
    event::{Content, ResumeStatus},
    format::adk::pending::{CONFIRMATION, CREDENTIAL},
};

/// The response to what waits, from a resume entry.
pub(super) fn respond(
    waiting: &Waiting,
    status: ResumeStatus,
    payload: Option<Value>,
) -> Result<Value, RequestError> {
    match (&*waiting.name, status) {
        (CONFIRMATION, ResumeStatus::Cancelled) => Ok(json!({"confirmed": false})),
        (CONFIRMATION, ResumeStatus::Resolved) => confirmation(waiting, payload),
        (_, ResumeStatus::Cancelled) => Ok(json!({"status": "cancelled"})),
        (CREDENTIAL, ResumeStatus::Resolved) => credential(waiting, payload),
        (_, ResumeStatus::Resolved) => Ok(wrapped(payload)),
    }
}

/// The response to what waits, from a tool message.
pub(super) fn respond_with_content(
    waiting: &Waiting,
    content: &Content,
    error: Option<&str>,
) -> Result<Value, RequestError> {
    let text = content.text();
    let payload = match text.trim() {
        "" => None,
        trimmed => Some(serde_json::from_str(trimmed).unwrap_or(Value::String(text))),
    };
    match error {
        // Whoever could not decide has not agreed.
        Some(_) if &*waiting.name == CONFIRMATION => Ok(json!({"confirmed": false})),
        Some(error) => Ok(json!({"error": error})),
        None => respond(waiting, ResumeStatus::Resolved, payload),
    }
}

/// ADK wants an object: one as it is, anything else as its `result`.
fn wrapped(payload: Option<Value>) -> Value {
    match payload {
        None => json!({"success": true, "result": null}),
        Some(Value::Object(object)) => Value::Object(object),
        Some(other) => json!({"result": other}),
    }
}

/// `confirmed` in ADK's word or AG-UI's (`approved`), or as a bare yes or no. The payload, or the arguments as
/// the person has changed them, goes along.
fn confirmation(waiting: &Waiting, payload: Option<Value>) -> Result<Value, RequestError> {
    let bad = || RequestError::BadAnswer {
        id: waiting.id.as_str().into(),
        problem: "must say `confirmed` or `approved`, true or false",
    };
    let yes_or_no = |value: &Value| match value {
        Value::Bool(answer) => Some(*answer),
        Value::String(text) => match text.to_ascii_lowercase().as_str() {
            "true" | "yes" => Some(true),
            "false" | "no" => Some(false),
            _ => None,
        },
        _ => None,
    };
    let payload = payload.ok_or_else(bad)?;
    let Value::Object(object) = &payload else {
        return Ok(json!({"confirmed": yes_or_no(&payload).ok_or_else(bad)?}));
    };
    let said = object.get("confirmed").or_else(|| object.get("approved"));
    let mut response = json!({"confirmed": said.and_then(yes_or_no).ok_or_else(bad)?});
    let along = ["payload", "editedArgs"].iter().find_map(|key| object.get(*key));
    if let Some(along) = along.filter(|along| !along.is_null()) {
        response["payload"] = along.clone();
    }
    Ok(response)
}

/// The whole auth config, or the address to which the person was sent back, put where ADK looks for it.
fn credential(waiting: &Waiting, payload: Option<Value>) -> Result<Value, RequestError> {
    let asked = waiting.arguments.to_value();
    let config = asked.get("authConfig").or_else(|| asked.get("auth_config")).cloned();
    let (address, redirect) = match &payload {
        Some(Value::String(address)) => (Some(address.clone()), None),
        Some(Value::Object(object)) => {
            let text = |camel: &str, snake: &str| {
                let value = object.get(camel).or_else(|| object.get(snake));
                value.and_then(Value::as_str).map(str::to_owned)
            };
            (text("authResponseUri", "auth_response_uri"), text("redirectUri", "redirect_uri"))
        }
        _ => (None, None),
    };
    let (Some(address), Some(mut config)) = (address, config) else {
        return Ok(wrapped(payload));
    };
    let exchanged = &mut config["exchangedAuthCredential"];
    if !exchanged.is_object() {
        *exchanged = json!({"authType": "oauth2"});
    }
    let oauth2 = &mut exchanged["oauth2"];
    if !oauth2.is_object() {
        *oauth2 = json!({});
    }
    oauth2["authResponseUri"] = address.into();
    if let Some(redirect) = redirect {
        oauth2["redirectUri"] = redirect.into();
    }
    Ok(config)
}
