//! Response schemas: checks the payload of an answer, and reads a payload from text.

use agentwire_store::Pending;
use serde_json::{Map, Value};

use super::{
    json_schema::Schema,
    schema_steps::{self, MAX_STEPS},
};
use crate::{codes, error::ApiError, human::pending::APPROVAL};

/// The members of an answer that contain a yes or no.
const DECIDING: [&str; 2] = ["approved", "confirmed"];

/// The members that every question of yes or no accepts, whatever its schema.
const DECISION: [&str; 3] = ["approved", "confirmed", "reason"];

/// The longest description of a mismatch in characters: enough to find the place.
const MAX_MISMATCH: usize = 500;

/// The most bytes of questions and answers that are checked on a worker: a schema of some lines can take a million steps.
const SHORT_CHECK: usize = 1 << 10;

/// True if the answers in a request of that many bytes may take longer to check than a worker should be occupied.
pub(crate) fn may_take_long(items: &[Pending], request: usize) -> bool {
    let open = items.iter().filter(|item| item.answer.is_none());
    open.map(|item| item.body.len())
        .reduce(|sum, body| sum + body)
        .is_some_and(|sum| sum + request > SHORT_CHECK)
}

/// Checks a payload against the response schema of an item: `SCHEMA_MISMATCH`.
///
/// A question for permission accepts a plain yes or no, bare or as `approved`: that is the only answer in protocols without
/// schemas. Other members beside it (edited arguments, a payload) must match the schema.
pub(super) fn check(item: &Pending, payload: Option<&Value>) -> Result<(), ApiError> {
    let payload = payload.unwrap_or(&Value::Null);
    let Some((mut schema, is_about_call)) = schema_of(item) else { return Ok(()) };
    if is_about_call || *item.kind == *APPROVAL || names_decision(&schema) {
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
    mismatch(&schema, payload).map_or(Ok(()), |mismatch| {
        let message = format!("the answer to `{}` is not what was asked for{mismatch}", item.id);
        Err(ApiError::new(codes::SCHEMA_MISMATCH, message))
    })
}

/// The payload that a text stands for: its JSON value, or the text itself if it is no JSON or the schema accepts only
/// the text. A postal code is text although it looks like a number.
pub(super) fn value_of_text(item: &Pending, text: &str) -> Value {
    let Ok(value) = serde_json::from_str::<Value>(text) else { return text.into() };
    let plain = Value::from(text);
    match schema_of(item) {
        Some((schema, _)) if mismatch(&schema, &value).is_some() && mismatch(&schema, &plain).is_none() => {
            plain
        }
        _ => value,
    }
}

/// The response schema of an item, and whether the item asks about a call other than itself.
fn schema_of(item: &Pending) -> Option<(Value, bool)> {
    let mut body: Value = serde_json::from_str(&item.body).ok()?;
    let call = body.get("toolCallId").and_then(Value::as_str);
    let is_about_call = call.is_some_and(|call| call != item.id.as_str());
    let schema = body.get_mut("responseSchema").map(Value::take)?;
    schema.is_object().then_some((schema, is_about_call))
}

fn decides(answer: &Map<String, Value>) -> bool {
    DECIDING.iter().any(|key| answer.get(*key).is_some_and(Value::is_boolean))
}

/// Whether a schema has a member for yes and no.
fn names_decision(schema: &Value) -> bool {
    DECIDING.iter().any(|key| !schema["properties"][*key].is_null())
}

/// Relaxes a schema so that every form of yes and no is accepted beside its other members.
fn allow_decision(schema: &mut Value) {
    let Value::Object(schema) = schema else { return };
    schema.remove("required");
    if let Some(Value::Object(members)) = schema.get_mut("properties") {
        for key in DECISION {
            members.entry(key).or_insert(Value::Bool(true));
        }
    }
}

/// The first mismatch between a payload and a schema. An invalid schema accepts everything, one that takes too long nothing.
fn mismatch(schema: &Value, answer: &Value) -> Option<String> {
    match schema_steps::count(schema, answer) > MAX_STEPS {
        true => Some(": its schema takes too long to check".into()),
        false => first_mismatch(schema, answer),
    }
}

fn first_mismatch(schema: &Value, answer: &Value) -> Option<String> {
    if let Some(schema) = Schema::new(schema) {
        return describe(&schema, answer);
    }
    // An unknown `$schema` dialect is treated as the default one.
    let mut members = schema.as_object().filter(|members| members.contains_key("$schema"))?.clone();
    members.remove("$schema");
    let members = Value::Object(members);
    describe(&Schema::new(&members)?, answer)
}

fn describe<'v>(schema: &Schema<'v>, answer: &'v Value) -> Option<String> {
    let error = schema.check(answer).err()?;
    let path = error.place();
    let place = if path.is_empty() { String::new() } else { format!(" at `{path}`") };
    // The message quotes the payload, which may be as long as a request.
    let error: String = error.to_string().chars().take(MAX_MISMATCH).collect();
    Some(format!("{place}: {error}"))
}
