//! Results of server tools.

use serde_json::{Value, value::RawValue};

use crate::json::{Path, ReadResult, json};
use crate::tally::Tally;

/// The readable form of a result.
pub(super) struct ServerResult {
    pub(super) text: String,
    pub(super) error: Option<Box<str>>,
}

/// Members that only the provider can read; they are kept in the encrypted value of the call.
const SEALED: &[&str] = &["encrypted_content", "encrypted_index", "encrypted_stdout"];

/// The content of a result block.
pub(super) fn read_result(
    content: Option<&RawValue>,
    is_error: bool,
    path: Path<'_>,
    tally: &mut Tally,
) -> ReadResult<ServerResult> {
    let mut value = match content {
        Some(raw) => json(raw, path, tally)?.to_value(),
        None => Value::Null,
    };
    let is_failed = value.get("type").and_then(Value::as_str).is_some_and(|kind| kind.ends_with("_error"));
    let code = value.get("error_code").and_then(Value::as_str).filter(|_| is_failed);
    let code = code.map(Box::from).or_else(|| is_failed.then(|| "error".into()));
    let text = match &value {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        Value::Array(parts) if !parts.is_empty() && parts.iter().all(is_text) => {
            parts.iter().filter_map(|part| part["text"].as_str()).collect()
        }
        _ => {
            remove_sealed(&mut value);
            value.to_string()
        }
    };
    let error = code.or_else(|| is_error.then(|| text.as_str().into()));
    Ok(ServerResult { text, error })
}

fn is_text(part: &Value) -> bool {
    part.get("type").and_then(Value::as_str) == Some("text")
}

fn remove_sealed(value: &mut Value) {
    match value {
        Value::Object(members) => {
            members.retain(|name, _| !SEALED.contains(&name.as_str()));
            members.values_mut().for_each(remove_sealed);
        }
        Value::Array(items) => items.iter_mut().for_each(remove_sealed),
        _ => {}
    }
}
