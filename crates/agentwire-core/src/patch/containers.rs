//! Creates the containers that a patch presumes.
//!
//! Some agents patch a document that only their own user interface has: `add /items/0/status` without `items`. The
//! patch is completed by `add` operations for the missing containers, so that it applies to a document without them.

use serde_json::Value;

use super::{
    Limits, Op, Patch, PatchOp,
    apply::{apply_counted, index, unescape},
};
use crate::json::Json;

/// The most operations that complete one patch.
const MAX_CREATED: usize = 256;

/// The largest index in a new array, and the most elements that are added before one. A larger number is the name of
/// a member.
const MAX_INDEX: usize = 63;

/// Completes a patch that does not apply to `document` because containers are missing. Returns the whole patch and the
/// positions of the operations that were added; `None` if it does not apply even with them.
///
/// A missing container becomes an array if the next token of the path is `-` or an index up to 63, else an object.
/// `null` counts as missing. Elements before an index beyond the end of an array are added too, as empty containers.
/// The target of a `replace` is created as `null` first.
///
/// ```
/// use agentwire_core::{json::Json, patch::{Patch, PatchOp, create_containers}};
/// let patch = Patch(vec![PatchOp::add("/items/0/status", Json::string("running"))]);
/// let (whole, added) = create_containers(&serde_json::json!({}), &patch).unwrap();
/// let paths: Vec<_> = whole.0.iter().map(|operation| &*operation.path).collect();
/// assert_eq!(paths, ["/items", "/items/0", "/items/0/status"]);
/// assert_eq!(added, [0, 1]);
/// ```
#[must_use]
pub fn create_containers(document: &Value, patch: &Patch) -> Option<(Patch, Vec<usize>)> {
    let mut document = document.clone();
    let (mut operations, mut added) = (Vec::new(), Vec::new());
    let mut work = 0;
    let mut step = |document: &mut Value, operation: PatchOp, operations: &mut Vec<PatchOp>| {
        let one = Patch(vec![operation]);
        apply_counted(document, &one, &Limits::default(), &mut work).is_ok().then(|| operations.extend(one.0))
    };
    for operation in &patch.0 {
        if !matches!(operation.op, Op::Remove | Op::Test) {
            while let Some(creation) = missing(&document, operation) {
                if added.len() == MAX_CREATED {
                    return None;
                }
                added.push(operations.len());
                step(&mut document, creation, &mut operations)?;
            }
        }
        step(&mut document, operation.clone(), &mut operations)?;
    }
    Some((Patch(operations), added))
}

/// The next operation that creates a part of the path of `operation`, if one is missing.
fn missing(document: &Value, operation: &PatchOp) -> Option<PatchOp> {
    let tokens: Vec<&str> = operation.path.split('/').skip(1).collect();
    let (mut value, mut path) = (document, String::new());
    for (position, token) in tokens.iter().enumerate() {
        let next = tokens.get(position + 1);
        if value.is_null() {
            let op = if path.is_empty() { Op::Add } else { Op::Replace };
            return Some(PatchOp::with_value(op, path, container(token)));
        }
        let below = format!("{path}/{token}");
        let found = match value {
            Value::Object(members) => members.get(&*unescape(token)),
            Value::Array(elements) => {
                // An element behind the last one has no path.
                let index = index(token)?;
                let length = elements.len();
                if index > length {
                    let filler = next.map_or_else(|| empty(operation.value.as_ref()), |next| container(next));
                    return (index - length <= MAX_INDEX)
                        .then(|| PatchOp::add(format!("{path}/{length}"), filler));
                }
                elements.get(index)
            }
            _ => return None,
        };
        match (found, next) {
            (Some(found), _) => (value, path) = (found, below),
            (None, Some(next)) => return Some(PatchOp::add(below, container(next))),
            (None, None) if operation.op == Op::Replace => return Some(PatchOp::add(below, Json::null())),
            (None, None) => return None,
        }
    }
    None
}

/// An empty container that can hold `token`.
fn container(token: &str) -> Json {
    let is_array = token == "-" || index(token).is_some_and(|index| index <= MAX_INDEX);
    Json::from(if is_array { Value::Array(Vec::new()) } else { Value::Object(serde_json::Map::new()) })
}

/// The empty value of the same type as `value`; `null` for scalars.
fn empty(value: Option<&Json>) -> Json {
    match value.map(Json::to_value) {
        Some(Value::Array(_)) => Json::from(Value::Array(Vec::new())),
        Some(Value::Object(_)) => Json::from(Value::Object(serde_json::Map::new())),
        _ => Json::null(),
    }
}
