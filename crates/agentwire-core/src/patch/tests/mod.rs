mod apply;
mod containers;
mod diff;
mod text;

use proptest::{collection::vec, prelude::*, sample::select};
use serde_json::{Value, json};

use super::{Op, Patch, PatchOp};
use crate::json::Json;

/// `operations` as a patch, without validation.
fn patch(operations: &Value) -> Patch {
    let text = |operation: &Value, key| operation.get(key).and_then(Value::as_str).map(Box::from);
    let read = |operation: &Value| PatchOp {
        op: Op::parse(operation["op"].as_str().unwrap()).unwrap(),
        path: text(operation, "path").unwrap(),
        from: text(operation, "from"),
        value: operation.get("value").map(Json::from),
        extra: None,
    };
    Patch(operations.as_array().unwrap().iter().map(read).collect())
}

/// The wire form of `patch`.
fn written(patch: &Patch) -> Value {
    let write = |operation: &PatchOp| {
        let mut object = json!({"op": operation.op.as_str(), "path": operation.path});
        if let Some(from) = &operation.from {
            object["from"] = json!(from);
        }
        if let Some(value) = &operation.value {
            object["value"] = value.to_value();
        }
        object
    };
    patch.0.iter().map(write).collect()
}

/// Keys that need escaping in pointers, and few enough others that members collide.
fn any_key() -> impl Strategy<Value = String> {
    select(vec!["a", "b", "id", "items", "", "0", "-", "~", "a/b", "~1", "m~n", "é\"\n"])
        .prop_map(String::from)
}

fn any_scalar() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(json!(null)),
        any::<bool>().prop_map(Value::from),
        (0..5).prop_map(Value::from),
        select(vec![1.0, 2.0, 0.5, -3.25e200]).prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        "[ab\"\n€]{0,12}".prop_map(Value::from),
    ]
}

fn any_json() -> impl Strategy<Value = Value> {
    any_scalar().prop_recursive(5, 48, 8, |inner| {
        prop_oneof![
            2 => vec(inner.clone(), 0..8).prop_map(Value::from),
            1 => vec((0..6, inner.clone()), 0..8).prop_map(|items| {
                items.into_iter().map(|(id, value)| json!({"id": id, "value": value})).collect()
            }),
            3 => vec((any_key(), inner), 0..8).prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

/// All pointers into a document, the root included.
fn pointers(value: &Value) -> Vec<String> {
    let mut all = vec![String::new()];
    let children: Vec<(String, &Value)> = match value {
        Value::Array(elements) => {
            elements.iter().enumerate().map(|(at, value)| (at.to_string(), value)).collect()
        }
        Value::Object(members) => {
            members.iter().map(|(key, value)| (super::escape_token(key), value)).collect()
        }
        _ => Vec::new(),
    };
    for (token, value) in children {
        all.extend(pointers(value).into_iter().map(|rest| format!("/{token}{rest}")));
    }
    all
}

#[test]
fn default_growth_is_one_frame() {
    assert_eq!(super::DEFAULT_MAX_SIZE_GROWTH, crate::framing::DEFAULT_MAX_FRAME);
}
