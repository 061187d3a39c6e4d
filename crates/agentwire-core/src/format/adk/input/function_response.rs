//! Answers in the form in which ADK wants them back.

use serde_json::{Map, Value, json};

use super::{AdkRequestError, PendingCall};
use crate::{
    event::{Content, ResumeStatus},
    format::adk::reader::interrupts::{CONFIRMATION, CREDENTIAL, INPUT},
};

/// The response to what waits, from a resume entry.
pub(super) fn respond(
    waiting: &PendingCall,
    status: ResumeStatus,
    payload: Option<Value>,
) -> Result<Value, AdkRequestError> {
    match (&*waiting.name, status) {
        (CONFIRMATION, ResumeStatus::Cancelled) => Ok(json!({"confirmed": false})),
        (CONFIRMATION, ResumeStatus::Resolved) => confirmation(waiting, payload),
        (CREDENTIAL, ResumeStatus::Cancelled) => Ok(no_credential(waiting)),
        (_, ResumeStatus::Cancelled) => Ok(json!({"status": "cancelled"})),
        (CREDENTIAL, ResumeStatus::Resolved) => credential(waiting, payload),
        // A workflow takes out of the wrapping what stands there alone.
        (INPUT, ResumeStatus::Resolved) => Ok(wrapped(Some(payload.unwrap_or_default()))),
        (_, ResumeStatus::Resolved) => Ok(wrapped(payload)),
    }
}

/// The response to what waits, from a tool message.
pub(super) fn respond_with_content(
    waiting: &PendingCall,
    content: &Content,
    error: Option<&str>,
) -> Result<Value, AdkRequestError> {
    let text = content.text();
    let payload = match text.trim() {
        "" => None,
        trimmed => Some(serde_json::from_str(trimmed).unwrap_or(Value::String(text))),
    };
    match error {
        // Whoever could not decide has not agreed.
        Some(_) if &*waiting.name == CONFIRMATION => Ok(json!({"confirmed": false})),
        Some(_) if &*waiting.name == CREDENTIAL => Ok(no_credential(waiting)),
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
fn confirmation(waiting: &PendingCall, payload: Option<Value>) -> Result<Value, AdkRequestError> {
    let bad = || AdkRequestError::BadAnswer {
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
    let mut payload = payload.ok_or_else(bad)?;
    // ADK's own web page sends the answer as JSON text in a `response`.
    if let Some(inner) = payload.as_object_mut().and_then(|object| object.remove("response")) {
        payload = inner;
    }
    if let Some(parsed) = payload.as_str().and_then(|text| serde_json::from_str(text).ok()) {
        payload = parsed;
    }
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

/// A credential in the form that people and user interfaces have it in, put where ADK looks for it: the whole
/// auth config, only the credential, the address to which the person was sent back, or a bare key or token.
fn credential(waiting: &PendingCall, payload: Option<Value>) -> Result<Value, AdkRequestError> {
    let Some(mut config) = asked_config(waiting) else {
        return Ok(wrapped(payload));
    };
    let kind = config.get("authScheme").or_else(|| config.get("auth_scheme")).cloned().unwrap_or_default();
    let kind = |member: &str| kind.get(member).and_then(Value::as_str).unwrap_or_default();
    let given = match payload {
        Some(Value::String(text)) => match kind("type") {
            "apiKey" => json!({"apiKey": text}),
            "http" => {
                json!({"http": {"scheme": scheme(kind("scheme")), "credentials": {"token": text}}})
            }
            _ => json!({"oauth2": {"authResponseUri": text}}),
        },
        Some(Value::Object(whole))
            if whole.contains_key("authScheme") || whole.contains_key("auth_scheme") =>
        {
            return Ok(whole.into());
        }
        Some(Value::Object(mut object)) => {
            let mut take = |camel: &str, snake: &str| object.remove(camel).or_else(|| object.remove(snake));
            if let Some(address) = take("authResponseUri", "auth_response_uri") {
                let mut oauth2 = json!({"authResponseUri": address});
                if let Some(redirect) = take("redirectUri", "redirect_uri") {
                    oauth2["redirectUri"] = redirect;
                }
                json!({"oauth2": oauth2})
            } else if let Some(credential) = take("exchangedAuthCredential", "exchanged_auth_credential") {
                credential
            } else {
                object.into()
            }
        }
        _ => {
            return Err(AdkRequestError::BadAnswer {
                id: waiting.id.as_str().into(),
                problem: "must be a credential, an auth config, or the address that the person came back to",
            });
        }
    };
    let exchanged = &mut config["exchangedAuthCredential"];
    if !exchanged.is_object() {
        let kind = if kind("type").is_empty() { "oauth2" } else { kind("type") };
        *exchanged = json!({"authType": kind});
    }
    merge(exchanged, given);
    Ok(config)
}

/// The auth config without a credential: ADK 1.x fails a run whose answer is no auth config.
fn no_credential(waiting: &PendingCall) -> Value {
    let mut answer = asked_config(waiting).unwrap_or_else(|| json!({}));
    if let Some(config) = answer.as_object_mut() {
        config.remove("exchangedAuthCredential");
    }
    answer["status"] = "cancelled".into();
    answer
}

/// The auth config that ADK has asked to be completed.
fn asked_config(waiting: &PendingCall) -> Option<Value> {
    let asked = waiting.arguments.to_value();
    let config = asked.get("authConfig").or_else(|| asked.get("auth_config"))?;
    let mut config: Map<String, Value> = config.as_object()?.clone();
    if let Some(exchanged) = config.remove("exchanged_auth_credential") {
        config.insert("exchangedAuthCredential".into(), exchanged);
    }
    Some(config.into())
}

fn scheme(named: &str) -> &str {
    if named.is_empty() { "bearer" } else { named }
}

/// Puts the members of `more` into `into`, objects into objects.
fn merge(into: &mut Value, more: Value) {
    match (into, more) {
        (Value::Object(into), Value::Object(more)) => {
            for (key, value) in more {
                merge(into.entry(key).or_insert(Value::Null), value);
            }
        }
        (into, more) => *into = more,
    }
}
