use serde_json::{Value, json};

use super::{patch, written};
use crate::patch::{Limits, apply, create_containers};

/// The completed patch, and the document after it. Checks that the added operations are where they are said to be.
fn completed(document: &Value, operations: &Value) -> Option<(Value, Value)> {
    let given = patch(operations);
    let (whole, added) = create_containers(document, &given)?;
    let kept: Vec<_> = whole.0.iter().enumerate().filter(|(at, _)| !added.contains(at)).collect();
    assert!(kept.into_iter().map(|(_, operation)| operation).eq(&given.0), "{whole:?} {added:?}");
    let mut result = document.clone();
    apply(&mut result, &whole, &Limits::default()).unwrap();
    Some((written(&whole), result))
}

#[track_caller]
fn gives(document: Value, operations: Value, wanted: Value) {
    assert_eq!(completed(&document, &operations).unwrap().1, wanted);
}

#[test]
fn missing_containers_are_created() {
    let add = |path: &str| json!([{"op": "add", "path": path, "value": 1}]);
    gives(json!({}), add("/items/0/status"), json!({"items": [{"status": 1}]}));
    gives(json!({"n": 1}), add("/a/b/c"), json!({"n": 1, "a": {"b": {"c": 1}}}));
    gives(
        json!({"items": [{"id": 7}]}),
        add("/items/1/status"),
        json!({"items": [{"id": 7}, {"status": 1}]}),
    );
    gives(json!({}), add("/items/2/status"), json!({"items": [{}, {}, {"status": 1}]}));
    gives(json!({}), add("/list/2"), json!({"list": [null, null, 1]}));
    gives(json!({}), add("/list/-"), json!({"list": [1]}));
    gives(json!({"items": null}), add("/items/0/status"), json!({"items": [{"status": 1}]}));
    gives(json!({"items": [null]}), add("/items/0/status"), json!({"items": [{"status": 1}]}));
    gives(json!(null), add("/a"), json!({"a": 1}));
    gives(json!({}), add("/users/4711/name"), json!({"users": {"4711": {"name": 1}}}));
    gives(json!({}), add("/a~1b/c"), json!({"a/b": {"c": 1}}));
}

#[test]
fn missing_target_of_a_replace_is_created() {
    let patch = json!([{"op": "replace", "path": "/items/0/status", "value": "done"}]);
    gives(json!({}), patch.clone(), json!({"items": [{"status": "done"}]}));
    gives(json!({"items": [{}]}), patch, json!({"items": [{"status": "done"}]}));
}

#[test]
fn containers_are_created_between_the_operations() {
    let patch = json!([
        {"op": "add", "path": "/a", "value": {}},
        {"op": "remove", "path": "/a"},
        {"op": "add", "path": "/a/0/b", "value": 1},
        {"op": "copy", "from": "/a/0", "path": "/c/d"},
    ]);
    let (whole, result) = completed(&json!({}), &patch).unwrap();
    assert_eq!(result, json!({"a": [{"b": 1}], "c": {"d": {"b": 1}}}));
    let paths: Vec<_> = whole.as_array().unwrap().iter().map(|operation| operation["path"].clone()).collect();
    assert_eq!(paths, ["/a", "/a", "/a", "/a/0", "/a/0/b", "/c", "/c/d"]);
}

#[test]
fn patch_that_applies_is_unchanged() {
    let patch =
        json!([{"op": "add", "path": "/a/0", "value": 1}, {"op": "replace", "path": "/a/0", "value": 2}]);
    assert_eq!(completed(&json!({"a": []}), &patch), Some((patch, json!({"a": [2]}))));
}

#[test]
fn other_patches_stay_invalid() {
    for (document, operations) in [
        (json!({"a": 1}), json!([{"op": "add", "path": "/a/b", "value": 1}])),
        (json!({}), json!([{"op": "remove", "path": "/a/b"}])),
        (json!({}), json!([{"op": "test", "path": "/a", "value": 1}])),
        (json!({}), json!([{"op": "copy", "from": "/x", "path": "/a/b"}])),
        (json!({"a": []}), json!([{"op": "add", "path": "/a/-/b", "value": 1}])),
        (json!({"a": []}), json!([{"op": "add", "path": "/a/1000000000/b", "value": 1}])),
        (json!({"a": []}), json!([{"op": "add", "path": "/a/x", "value": 1}])),
    ] {
        assert_eq!(completed(&document, &operations), None, "{document} {operations}");
    }
}
