use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::{any_json, any_key, any_scalar, written};
use crate::patch::{DEFAULT_MAX_OPERATIONS, Limits, Op, apply, diff};

/// The patch as JSON, after checking the invariants of every patch.
#[track_caller]
fn checked(from: &Value, to: &Value) -> Value {
    let patch = diff(from, to);
    let mut document = from.clone();
    let limits = Limits { max_size_growth: usize::MAX, ..Limits::default() };
    if let Err(error) = apply(&mut document, &patch, &limits) {
        panic!("{from} to {to}: {error}");
    }
    assert_eq!(document, *to, "from {from}");
    let written = written(&patch);
    let whole = json!([{"op": "replace", "path": "", "value": to}]);
    assert!(written.to_string().len() <= whole.to_string().len(), "{written} is longer than {whole}");
    written
}

/// `count` items of some size.
fn items(count: usize) -> Vec<Value> {
    (0..count)
        .map(|at| json!({"id": format!("item-{at}"), "title": format!("Title {at}"), "done": false}))
        .collect()
}

fn without_ids(mut items: Vec<Value>) -> Vec<Value> {
    for item in &mut items {
        item.as_object_mut().unwrap().shift_remove("id");
    }
    items
}

#[test]
fn numbers_keep_their_last_digit() {
    // Found by libfuzzer: reading this double quickly gives its neighbour.
    let number: Value = serde_json::from_str("70117e99").unwrap();
    assert_eq!(number.to_string(), "7.0117e+103");
    checked(&json!(2.5), &number);
    checked(&json!({"a": 2.5}), &json!({"a": number}));
}

#[test]
fn equal_documents_need_no_operation() {
    for value in [json!(null), json!({"a": [1, {"b": 2}]}), json!([])] {
        assert_eq!(checked(&value, &value), json!([]));
    }
    assert_eq!(checked(&json!({"a": 1, "b": 2}), &json!({"b": 2, "a": 1})), json!([]));
}

#[test]
fn objects_are_compared_member_by_member() {
    let padding = "x".repeat(200);
    assert_eq!(
        checked(
            &json!({"p": padding, "gone": 1, "same": [1], "deep": {"q": padding, "a/b~c": 1}}),
            &json!({"p": padding, "same": [1], "deep": {"q": padding, "a/b~c": 2}, "new": {}}),
        ),
        json!([
            {"op": "remove", "path": "/gone"},
            {"op": "replace", "path": "/deep/a~1b~0c", "value": 2},
            {"op": "add", "path": "/new", "value": {}},
        ])
    );
}

#[test]
fn representation_of_numbers_counts() {
    let padding = "x".repeat(200);
    assert_eq!(
        checked(&json!({"p": padding, "n": 1}), &json!({"p": padding, "n": 1.0})),
        json!([{"op": "replace", "path": "/n", "value": 1.0}])
    );
}

#[test]
fn one_change_to_a_list_is_one_operation() {
    let with_ids = items(40);
    let bare = without_ids(items(40));
    let strings: Vec<Value> = (0..40).map(|at| json!(format!("entry number {at}"))).collect();
    for all in [with_ids, bare, strings] {
        let wrapped = |items: &[Value]| json!({"list": items});
        let from = wrapped(&all);
        for at in [0, 17, 39] {
            let mut fewer = all.clone();
            fewer.remove(at);
            let path = format!("/list/{at}");
            assert_eq!(checked(&from, &wrapped(&fewer)), json!([{"op": "remove", "path": path}]));
            assert_eq!(
                checked(&wrapped(&fewer), &from),
                json!([{"op": "add", "path": path, "value": all[at]}])
            );
        }
        for (source, target) in [(0, 39), (39, 0), (5, 30), (30, 5), (7, 8)] {
            let mut moved = all.clone();
            let item = moved.remove(source);
            moved.insert(target, item);
            let patch = checked(&from, &wrapped(&moved));
            assert_eq!(patch.as_array().unwrap().len(), 1, "{source} to {target}: {patch}");
            assert_eq!(patch[0]["op"], "move");
        }
    }
}

#[test]
fn one_field_of_one_item_is_one_nested_replace() {
    for all in [items(40), without_ids(items(40))] {
        let mut changed = all.clone();
        changed[17]["done"] = json!(true);
        assert_eq!(
            checked(&json!(all), &json!(changed)),
            json!([{"op": "replace", "path": "/17/done", "value": true}])
        );
    }
}

#[test]
fn items_are_matched_by_id() {
    let all = items(40);
    let mut changed = all.clone();
    // Removed, changed, added, moved and changed.
    changed.remove(0);
    changed[9]["done"] = json!(true);
    changed.insert(20, json!({"id": "new"}));
    let item = changed.remove(35);
    changed.insert(3, item);
    changed[3]["title"] = json!("Urgent");
    assert_eq!(
        checked(&json!(all), &json!(changed)),
        json!([
            {"op": "remove", "path": "/0"},
            {"op": "move", "from": "/34", "path": "/3"},
            {"op": "add", "path": "/21", "value": {"id": "new"}},
            {"op": "replace", "path": "/3/title", "value": "Urgent"},
            {"op": "replace", "path": "/10/done", "value": true},
        ])
    );
}

#[test]
fn repeated_ids_give_a_valid_patch() {
    let item = |id: u32, text: &str| json!({"id": id, "text": text});
    let from = json!([item(1, "a"), item(1, "b"), item(2, "c"), item(1, "d")]);
    let to = json!([item(2, "c"), item(1, "b"), item(1, "x"), item(1, "a"), item(1, "b")]);
    checked(&from, &to);
    checked(&to, &from);
}

#[test]
fn cells_of_a_board_change_in_place() {
    let row = json!(["empty field", "empty field", "empty field", "empty field"]);
    let from = json!(vec![row; 8]);
    let mut to = from.clone();
    to[1][2] = json!("X");
    to[6][3] = json!("O");
    assert_eq!(
        checked(&from, &to),
        json!([
            {"op": "replace", "path": "/1/2", "value": "X"},
            {"op": "replace", "path": "/6/3", "value": "O"},
        ])
    );
}

#[test]
fn a_subtree_is_sent_whole_where_that_is_shorter() {
    let padding = "x".repeat(300);
    let from = json!({"p": padding, "point": {"x": 1, "y": 2, "z": 3}});
    let to = json!({"p": padding, "point": {"x": 4, "y": 5, "z": 6}});
    assert_eq!(
        checked(&from, &to),
        json!([{"op": "replace", "path": "/point", "value": {"x": 4, "y": 5, "z": 6}}])
    );
    assert_eq!(
        checked(&json!({"a": 1, "b": 2}), &json!({"a": 3, "b": 4})),
        json!([{"op": "replace", "path": "", "value": {"a": 3, "b": 4}}])
    );
}

#[test]
fn shorter_patch_is_chosen_to_the_byte() {
    for length in 0..60 {
        let padding = "x".repeat(length);
        let (from, to) = (json!({"p": padding, "a": 1, "b": 2}), json!({"p": padding, "a": 3, "b": 4}));
        let members = json!([
            {"op": "replace", "path": "/a", "value": 3},
            {"op": "replace", "path": "/b", "value": 4},
        ]);
        let whole = json!([{"op": "replace", "path": "", "value": to}]);
        let is_whole_shorter = whole.to_string().len() < members.to_string().len();
        assert_eq!(checked(&from, &to), if is_whole_shorter { whole } else { members }, "{length}");
    }
}

#[test]
fn other_types_replace() {
    for (from, to) in [(json!([1]), json!({"0": 1})), (json!(1), json!([])), (json!({}), json!(null))] {
        assert_eq!(checked(&from, &to), json!([{"op": "replace", "path": "", "value": to}]));
    }
}

#[test]
fn a_patch_has_no_more_operations_than_are_applied() {
    let count = DEFAULT_MAX_OPERATIONS + 1;
    let item = |at: usize, done| json!({"id": at, "text": "y".repeat(100), "done": done});
    let list = |done: bool| (0..count).map(|at| item(at, done)).collect::<Value>();
    let padding = "x".repeat(300);
    let from = json!({"padding": padding, "list": list(false)});
    let to = json!({"padding": padding, "list": list(true)});
    let patch = checked(&from, &to);
    assert_eq!(patch.as_array().unwrap().len(), 1);
    assert_eq!(patch[0]["path"], "/list");
}

#[test]
fn long_lists_are_compared_in_bounded_time() {
    // A quadratic search would take 10⁹ steps here.
    let list = |count| (0..count).map(|at| json!({"id": at})).collect::<Vec<Value>>();
    let mut reversed = list(30_000);
    reversed.reverse();
    assert_eq!(diff(&json!(list(30_000)), &json!(reversed)).0.len(), 1);
    let mut every_other = list(30_000);
    every_other.retain(|item| item["id"].as_u64().unwrap() % 20 != 7);
    // To shift the rest 1,500 times would take more work than a patch may.
    assert_eq!(diff(&json!(list(30_000)), &json!(every_other)).0.len(), 1);
    let mut most = list(30_000);
    most.retain(|item| item["id"].as_u64().unwrap() % 600 != 7);
    assert_eq!(diff(&json!(list(30_000)), &json!(most)).0.len(), 50);
    let different: Vec<Value> = (0..30_000).map(|at| json!(format!("{at}"))).collect();
    assert_eq!(diff(&json!(list(30_000)), &json!(different)).0.len(), 1);
}

#[test]
fn long_keys_do_not_multiply() {
    // Operations would repeat the key 10,000 times: 10 GB.
    let object = |value| (0..10_000).map(|at| (at.to_string(), json!(value))).collect::<Map<_, _>>();
    let key = "k".repeat(1_000_000);
    let patch = diff(&json!({key.as_str(): object(1)}), &json!({key.as_str(): object(2)}));
    assert_eq!(patch.0.len(), 1);
}

#[test]
fn deep_documents_are_compared() {
    let nested = |leaf| {
        (0..127).fold(json!(leaf), |inner, at| if at % 2 == 0 { json!([inner]) } else { json!({"k": inner}) })
    };
    checked(&nested(1), &nested(2));
    let wide = |leaf| (0..100).fold(json!(leaf), |inner, at| json!([at, [1, 2], inner, "x", {"id": at}]));
    assert_eq!(checked(&wide(1), &wide(2)).as_array().unwrap().len(), 1);
}

/// A change to a document, so that two documents have much in common.
fn changed(value: Value, depth: u32) -> BoxedStrategy<Value> {
    if depth == 0 {
        return prop_oneof![2 => Just(value), 1 => any_json()].boxed();
    }
    match value {
        Value::Object(members) => {
            let members: Vec<_> = members
                .into_iter()
                .map(|(key, value)| (Just(key), changed(value, depth - 1), 0..8_u8))
                .collect();
            (members, proptest::option::weighted(0.3, (any_key(), any_scalar())))
                .prop_map(|(members, new)| {
                    let kept = members.into_iter().filter(|(_, _, keep)| *keep > 0);
                    kept.map(|(key, value, _)| (key, value)).chain(new).collect()
                })
                .boxed()
        }
        Value::Array(elements) => {
            let count = elements.len();
            let elements: Vec<_> =
                elements.into_iter().map(|value| (changed(value, depth - 1), 0..8_u8)).collect();
            (elements, proptest::option::weighted(0.3, any_scalar()), 0..=count, 0..=count, 0..4_u8)
                .prop_map(|(elements, new, from, to, shift)| {
                    let kept = elements.into_iter().filter(|(_, keep)| *keep > 0);
                    let mut kept: Vec<Value> = kept.map(|(value, _)| value).collect();
                    if from < kept.len() && shift == 0 {
                        let moved = kept.remove(from);
                        kept.insert(to.min(kept.len()), moved);
                    }
                    kept.extend(new);
                    Value::Array(kept)
                })
                .boxed()
        }
        scalar => prop_oneof![5 => Just(scalar), 1 => any_scalar()].boxed(),
    }
}

fn any_pair() -> impl Strategy<Value = (Value, Value)> {
    prop_oneof![
        1 => (any_json(), any_json()),
        3 => any_json().prop_flat_map(|value| (Just(value.clone()), changed(value, 5))),
    ]
}

/// Lists of few different elements, each so large that sending one again is never worth it.
fn any_list() -> impl Strategy<Value = Value> {
    let element = (0..9_u8, 0..3_u8, any::<bool>()).prop_map(|(id, version, has_id)| {
        let text = format!("{id} {}", "x".repeat(300));
        if has_id { json!({"id": id, "text": text, "version": version}) } else { json!(text) }
    });
    proptest::collection::vec(element, 0..14).prop_map(Value::from)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn a_patch_converts_one_document_to_the_other((from, to) in any_pair()) {
        checked(&from, &to);
    }

    #[test]
    fn a_patch_converts_one_list_to_the_other(from in any_list(), to in any_list()) {
        checked(&from, &to);
    }

    #[test]
    fn shuffled_lists_need_only_moves(order in Just((0..30).collect::<Vec<usize>>()).prop_shuffle()) {
        let all = items(30);
        let shuffled: Vec<Value> = order.iter().map(|at| all[*at].clone()).collect();
        checked(&json!(all), &json!(shuffled));
        let patch = diff(&json!(all), &json!(shuffled));
        let is_whole = patch.0.len() == 1 && patch.0[0].path.is_empty();
        prop_assert!(is_whole || patch.0.iter().all(|operation| operation.op == Op::Move));
    }
}
