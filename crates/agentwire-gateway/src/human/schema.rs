//! Whether an answer is what was asked for.

use agentwire_store::Pending;
use serde_json::{Map, Value};

use crate::{codes, error::ApiError, human::pending::APPROVAL};

/// The members of an answer that decide.
const DECIDING: [&str; 2] = ["approved", "confirmed"];

/// The members of an answer that decide and no more; every question of yes or no takes them.
const DECISION: [&str; 3] = ["approved", "confirmed", "reason"];

/// How much is said about what is wrong with an answer: enough for a person to find it.
const LONGEST_COMPLAINT: usize = 500;

/// Whether an answer is what was asked for.
///
/// Where permission is asked for, a plain yes or no is, bare or as `approved`: that is how people decide in protocols
/// that know no schemas. What comes along with one (edited arguments, a payload) must be as asked for, where the schema
/// says anything about it.
pub(super) fn check(item: &Pending, payload: Option<&Value>) -> Result<(), ApiError> {
    let payload = payload.unwrap_or(&Value::Null);
    let Some((mut schema, is_about_a_call)) = schema_of(item) else { return Ok(()) };
    if is_about_a_call || *item.kind == *APPROVAL || names_decision(&schema) {
        match payload {
            Value::Bool(_) => return Ok(()),
            Value::Object(answer) if decides(answer) => {
                if answer.keys().all(|key| DECISION.contains(&key.as_str())) {
                    return Ok(());
                }
                allow_decision(&mut schema);
            }
            _ => {}
        }
    }
    complaint(&schema, payload).map_or(Ok(()), |complaint| {
        let message = format!("the answer to `{}` is not what was asked for{complaint}", item.id);
        Err(ApiError::new(codes::SCHEMA_MISMATCH, message))
    })
}

/// What a text means that answers a question: JSON if it is some, unless the schema asks for the text itself. A
/// postal code is a text although it looks like a number.
pub(super) fn value_of_text(item: &Pending, text: &str) -> Value {
    let Ok(value) = serde_json::from_str::<Value>(text) else { return text.into() };
    let itself = Value::from(text);
    match schema_of(item) {
        Some((schema, _))
            if complaint(&schema, &value).is_some() && complaint(&schema, &itself).is_none() =>
        {
            itself
        }
        _ => value,
    }
}

/// The schema of an item's answer, and whether it is asked about a call; what is one itself is not.
fn schema_of(item: &Pending) -> Option<(Value, bool)> {
    let mut body: Value = serde_json::from_str(&item.body).ok()?;
    let call = body.get("toolCallId").and_then(Value::as_str);
    let is_about_a_call = call.is_some_and(|call| call != item.id.as_str());
    let schema = body.get_mut("responseSchema").map(Value::take)?;
    schema.is_object().then_some((schema, is_about_a_call))
}

fn decides(answer: &Map<String, Value>) -> bool {
    DECIDING.iter().any(|key| answer.get(*key).is_some_and(Value::is_boolean))
}

/// Whether a schema has a word for yes and no.
fn names_decision(schema: &Value) -> bool {
    DECIDING.iter().any(|key| !schema["properties"][*key].is_null())
}

/// Which word it was decided with does not matter.
fn allow_decision(schema: &mut Value) {
    let Value::Object(schema) = schema else { return };
    schema.remove("required");
    if let Some(Value::Object(members)) = schema.get_mut("properties") {
        for key in DECISION {
            members.entry(key).or_insert(Value::Bool(true));
        }
    }
}

/// What a schema finds wrong with an answer, if anything. A schema that is none asks for nothing.
fn complaint(schema: &Value, answer: &Value) -> Option<String> {
    let build = jsonschema::validator_for(schema).or_else(|error| match schema {
        // One that says it is of a kind that nobody here knows is taken for the usual kind.
        Value::Object(members) if members.contains_key("$schema") => {
            let mut members = members.clone();
            members.remove("$schema");
            jsonschema::validator_for(&Value::Object(members))
        }
        _ => Err(error),
    });
    let validator = build.ok()?;
    let error = validator.validate(answer).err()?;
    let place = error.instance_path().to_string();
    let place = if place.is_empty() { String::new() } else { format!(" at `{place}`") };
    // It quotes what was sent, which may be as long as a request.
    let error: String = error.to_string().chars().take(LONGEST_COMPLAINT).collect();
    Some(format!("{place}: {error}"))
}
