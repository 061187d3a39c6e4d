use proptest::prelude::*;
use serde_json::{Value, json};

use super::{
    any_json, any_key,
    apply::{any_choices, operations_from},
    patch,
};
use crate::patch::{Limits, apply, apply_to_text};

/// Checks that the patch is applied to the text, and that the result is that of the whole document.
#[track_caller]
fn is_applied(text: &str, operations: Value) {
    let patch = patch(&operations);
    let mut document: Value = serde_json::from_str(text).unwrap();
    apply(&mut document, &patch, &Limits::default()).unwrap();
    assert_eq!(apply_to_text(text, &patch, &Limits::default()), Some(document.to_string()), "{operations}");
}

#[track_caller]
fn is_left(text: &str, operations: Value) {
    assert_eq!(apply_to_text(text, &patch(&operations), &Limits::default()), None, "{operations}");
}

const STATE: &str = r#"{"rows":{"k1":"é","k/2":{"a":[1,{"b":2}]}},"n":-1,"empty":{},"list":[{"x":1}]}"#;

#[test]
fn few_members_are_changed_in_place() {
    is_applied(STATE, json!([{"op": "replace", "path": "/n", "value": {"more": [1.5]}}]));
    is_applied(
        STATE,
        json!([{"op": "add", "path": "/n", "value": 2}, {"op": "add", "path": "/new", "value": 3}]),
    );
    is_applied(STATE, json!([{"op": "add", "path": "/a~1\"b", "value": "\n"}]));
    is_applied(STATE, json!([{"op": "add", "path": "/empty/first", "value": 1}]));
    is_applied(STATE, json!([{"op": "replace", "path": "/rows/k~12/a/1/b", "value": 3}]));
    is_applied(STATE, json!([{"op": "remove", "path": "/rows/k~12/a/0"}]));
    is_applied(
        STATE,
        json!([{"op": "add", "path": "/list/0", "value": 1}, {"op": "remove", "path": "/list/1/x"}]),
    );
    is_applied(STATE, json!([{"op": "copy", "from": "/rows/k1", "path": "/list/-"}]));
    is_applied(STATE, json!([{"op": "move", "from": "/list/0", "path": "/first"}]));
    is_applied(STATE, json!([{"op": "test", "path": "/n", "value": -1.0}]));
    is_applied(
        "{}",
        json!([{"op": "add", "path": "/n", "value": 1}, {"op": "add", "path": "/m", "value": 1}]),
    );
}

#[test]
fn the_rest_is_left_to_the_parser() {
    is_left(STATE, json!([]));
    is_left(STATE, json!([{"op": "remove", "path": "/n"}]));
    is_left(STATE, json!([{"op": "remove", "path": "/rows/k1"}]));
    is_left(STATE, json!([{"op": "move", "from": "/n", "path": "/m"}]));
    is_left(STATE, json!([{"op": "replace", "path": "", "value": 1}]));
    is_left(STATE, json!([{"op": "copy", "from": "", "path": "/all"}]));
    is_left(STATE, json!([{"op": "replace", "path": "/missing", "value": 1}]));
    is_left(
        STATE,
        json!([{"op": "replace", "path": "/n", "value": 1}, {"op": "test", "path": "/n", "value": 2}]),
    );
    is_left(STATE, json!([{"op": "add", "path": "n", "value": 1}]));
    for text in ["[1]", "1", "", "{\"n\":1} ", r#"{"n":1,"n":2}"#] {
        is_left(text, json!([{"op": "replace", "path": "/n", "value": 1}]));
    }
}

#[test]
fn the_limits_are_those_of_the_whole_document() {
    let patch = patch(&json!([{"op": "add", "path": "/new", "value": "12345678"}]));
    let grown = r#","new":"12345678""#.len();
    let within = |max_size_growth| {
        let limits = Limits { max_size_growth, ..Limits::default() };
        apply_to_text(r#"{"old":1}"#, &patch, &limits).is_some()
    };
    assert!(within(grown) && !within(grown - 1));
}

proptest! {
    #[test]
    fn the_text_is_that_of_the_whole_document(
        members in proptest::collection::vec((any_key(), any_json()), 0..6),
        choices in any_choices(4),
        max_work in prop_oneof![Just(usize::MAX), 50..3000_usize],
        max_size_growth in prop_oneof![Just(usize::MAX), 0..100_usize],
    ) {
        let document = Value::Object(members.into_iter().collect());
        let patch = operations_from(&document, &choices);
        let limits = Limits { max_work, max_size_growth, ..Limits::default() };
        if let Some(text) = apply_to_text(&document.to_string(), &patch, &limits) {
            let mut whole = document;
            prop_assert!(apply(&mut whole, &patch, &limits).is_ok());
            prop_assert_eq!(text, whole.to_string());
        }
    }
}
