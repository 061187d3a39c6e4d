//! Responses to pending calls, in the form that ADK expects for each kind of call.

use serde_json::{Map, Value, json};

use super::{AdkRequestError, PendingCall};
use crate::{
    event::{Content, ResumeStatus},
    format::adk::reader::interrupts::{CONFIRMATION, CREDENTIAL, INPUT},
};

/// The response to a pending call, from a resume entry.
pub(super) fn response_to_resume(
    call: &PendingCall,
    status: ResumeStatus,
    payload: Option<Value>,
) -> Result<Value, AdkRequestError> {
    match (&*call.name, status) {
        (CONFIRMATION, ResumeStatus::Cancelled) => Ok(json!({"confirmed": false})),
        (CONFIRMATION, ResumeStatus::Resolved) => confirmation(call, payload),
        (CREDENTIAL, ResumeStatus::Cancelled) => Ok(no_credential(call)),
        (_, ResumeStatus::Cancelled) => Ok(json!({"status": "cancelled"})),
        (CREDENTIAL, ResumeStatus::Resolved) => credential(call, payload),
        // A workflow unwraps an object with `result` as its only member.
        (INPUT, ResumeStatus::Resolved) => Ok(wrap(Some(payload.unwrap_or_default()))),
        (_, ResumeStatus::Resolved) => Ok(wrap(payload)),
    }
}

/// The response to a pending call, from a tool message.
pub(super) fn response_to_content(
    call: &PendingCall,
    content: &Content,
    error: Option<&str>,
) -> Result<Value, AdkRequestError> {
    let text = content.text();
    let payload = match text.trim() {
        "" => None,
        trimmed => Some(serde_json::from_str(trimmed).unwrap_or(Value::String(text))),
    };
    match error {
        // An error is no consent.
        Some(_) if &*call.name == CONFIRMATION => Ok(json!({"confirmed": false})),
        Some(_) if &*call.name == CREDENTIAL => Ok(no_credential(call)),
        Some(error) => Ok(json!({"error": error})),
        None => response_to_resume(call, ResumeStatus::Resolved, payload),
    }
}

/// ADK expects an object: an object is sent as it is, any other value as `result`.
fn wrap(payload: Option<Value>) -> Value {
    match payload {
        None => json!({"success": true, "result": null}),
        Some(Value::Object(object)) => Value::Object(object),
        Some(other) => json!({"result": other}),
    }
}

/// The response to a confirmation request: `confirmed` (ADK), `approved` (AG-UI), or a bare yes or no. The payload or
/// the edited arguments are included.
fn confirmation(call: &PendingCall, payload: Option<Value>) -> Result<Value, AdkRequestError> {
    let invalid = || AdkRequestError::BadAnswer {
        id: call.id.as_str().into(),
        problem: "must say `confirmed` or `approved`, true or false",
    };
    let yes_or_no = |value: &Value| match value {
        Value::Bool(value) => Some(*value),
        Value::String(text) => match text.to_ascii_lowercase().as_str() {
            "true" | "yes" => Some(true),
            "false" | "no" => Some(false),
            _ => None,
        },
        _ => None,
    };
    let mut payload = payload.ok_or_else(invalid)?;
    // ADK's web interface sends the answer as JSON text in `response`.
    if let Some(inner) = payload.as_object_mut().and_then(|object| object.remove("response")) {
        payload = inner;
    }
    if let Some(parsed) = payload.as_str().and_then(|text| serde_json::from_str(text).ok()) {
        payload = parsed;
    }
    let Value::Object(object) = &payload else {
        return Ok(json!({"confirmed": yes_or_no(&payload).ok_or_else(invalid)?}));
    };
    let decision = object.get("confirmed").or_else(|| object.get("approved"));
    let mut response = json!({"confirmed": decision.and_then(yes_or_no).ok_or_else(invalid)?});
    let payload = ["payload", "editedArgs"].iter().find_map(|key| object.get(*key));
    if let Some(payload) = payload.filter(|payload| !payload.is_null()) {
        response["payload"] = payload.clone();
    }
    Ok(response)
}

/// The response to a credential request. Accepted answers: the whole auth config, only the credential, the redirect
/// address after an OAuth login, or a bare key or token.
fn credential(call: &PendingCall, payload: Option<Value>) -> Result<Value, AdkRequestError> {
    let Some(mut config) = requested_config(call) else {
        return Ok(wrap(payload));
    };
    let auth_scheme =
        config.get("authScheme").or_else(|| config.get("auth_scheme")).cloned().unwrap_or_default();
    let scheme = |member: &str| auth_scheme.get(member).and_then(Value::as_str).unwrap_or_default();
    let given = match payload {
        Some(Value::String(text)) => match scheme("type") {
            "apiKey" => json!({"apiKey": text}),
            "http" => {
                json!({"http": {"scheme": http_scheme(scheme("scheme")), "credentials": {"token": text}}})
            }
            _ => json!({"oauth2": {"authResponseUri": text}}),
        },
        Some(Value::Object(whole))
            if whole.contains_key("authScheme") || whole.contains_key("auth_scheme") =>
        {
            return Ok(whole.into());
        }
        Some(Value::Object(mut object)) => {
            let mut remove = |camel: &str, snake: &str| object.remove(camel).or_else(|| object.remove(snake));
            if let Some(address) = remove("authResponseUri", "auth_response_uri") {
                let mut oauth2 = json!({"authResponseUri": address});
                if let Some(redirect) = remove("redirectUri", "redirect_uri") {
                    oauth2["redirectUri"] = redirect;
                }
                json!({"oauth2": oauth2})
            } else if let Some(credential) = remove("exchangedAuthCredential", "exchanged_auth_credential") {
                credential
            } else {
                object.into()
            }
        }
        _ => {
            return Err(AdkRequestError::BadAnswer {
                id: call.id.as_str().into(),
                problem: "must be a credential, an auth config, or the address that the person came back to",
            });
        }
    };
    let exchanged = &mut config["exchangedAuthCredential"];
    if !exchanged.is_object() {
        let kind = if scheme("type").is_empty() { "oauth2" } else { scheme("type") };
        *exchanged = json!({"authType": kind});
    }
    merge(exchanged, given);
    Ok(config)
}

/// The auth config without a credential. ADK 1.x fails a run if the response is not an auth config.
fn no_credential(call: &PendingCall) -> Value {
    let mut config = requested_config(call).unwrap_or_else(|| json!({}));
    if let Some(members) = config.as_object_mut() {
        members.remove("exchangedAuthCredential");
    }
    config["status"] = "cancelled".into();
    config
}

/// The auth config in ADK's request.
fn requested_config(call: &PendingCall) -> Option<Value> {
    let request = call.arguments.to_value();
    let config = request.get("authConfig").or_else(|| request.get("auth_config"))?;
    let mut config: Map<String, Value> = config.as_object()?.clone();
    if let Some(exchanged) = config.remove("exchanged_auth_credential") {
        config.insert("exchangedAuthCredential".into(), exchanged);
    }
    Some(config.into())
}

fn http_scheme(name: &str) -> &str {
    if name.is_empty() { "bearer" } else { name }
}

/// Merges the members of `more` into `into`, recursively.
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
