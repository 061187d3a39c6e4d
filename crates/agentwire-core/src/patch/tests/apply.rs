use proptest::{prelude::*, sample::Index};
use serde_json::{Map, Value, json};

use super::{any_json, any_key, any_scalar, patch, pointers, written};
use crate::{
    json::{Footprint, MAX_DEPTH},
    patch::{DEFAULT_MAX_OPERATIONS, Limits, Op, Patch, PatchError, PatchOp, Reason, apply, apply_measured},
};

fn applied(document: &Value, operations: &Value) -> Result<Value, PatchError> {
    let mut document = document.clone();
    apply(&mut document, &patch(operations), &Limits::default()).map(|()| document)
}

/// Checks the outcome to the byte, so key order counts.
#[track_caller]
fn gives(document: Value, operations: Value, wanted: Value) {
    let result = applied(&document, &operations).map(|value| value.to_string());
    assert_eq!(result.unwrap(), wanted.to_string(), "{document} with {operations}");
}

#[track_caller]
fn refuses(document: Value, operations: Value, message: &str) {
    let mut changed = document.clone();
    let error = apply(&mut changed, &patch(&operations), &Limits::default()).unwrap_err();
    assert_eq!(error.to_string(), message);
    assert_eq!(changed.to_string(), document.to_string());
}

mod rfc_appendix_a {
    use super::*;

    #[test]
    fn a1_adding_an_object_member() {
        gives(
            json!({"foo": "bar"}),
            json!([{"op": "add", "path": "/baz", "value": "qux"}]),
            json!({"foo": "bar", "baz": "qux"}),
        );
    }

    #[test]
    fn a2_adding_an_array_element() {
        gives(
            json!({"foo": ["bar", "baz"]}),
            json!([{"op": "add", "path": "/foo/1", "value": "qux"}]),
            json!({"foo": ["bar", "qux", "baz"]}),
        );
    }

    #[test]
    fn a3_removing_an_object_member() {
        gives(
            json!({"baz": "qux", "foo": "bar"}),
            json!([{"op": "remove", "path": "/baz"}]),
            json!({"foo": "bar"}),
        );
    }

    #[test]
    fn a4_removing_an_array_element() {
        gives(
            json!({"foo": ["bar", "qux", "baz"]}),
            json!([{"op": "remove", "path": "/foo/1"}]),
            json!({"foo": ["bar", "baz"]}),
        );
    }

    #[test]
    fn a5_replacing_a_value() {
        gives(
            json!({"baz": "qux", "foo": "bar"}),
            json!([{"op": "replace", "path": "/baz", "value": "boo"}]),
            json!({"baz": "boo", "foo": "bar"}),
        );
    }

    #[test]
    fn a6_moving_a_value() {
        gives(
            json!({"foo": {"bar": "baz", "waldo": "fred"}, "qux": {"corge": "grault"}}),
            json!([{"op": "move", "from": "/foo/waldo", "path": "/qux/thud"}]),
            json!({"foo": {"bar": "baz"}, "qux": {"corge": "grault", "thud": "fred"}}),
        );
    }

    #[test]
    fn a7_moving_an_array_element() {
        gives(
            json!({"foo": ["all", "grass", "cows", "eat"]}),
            json!([{"op": "move", "from": "/foo/1", "path": "/foo/3"}]),
            json!({"foo": ["all", "cows", "eat", "grass"]}),
        );
    }

    #[test]
    fn a8_testing_a_value_success() {
        let document = json!({"baz": "qux", "foo": ["a", 2, "c"]});
        gives(
            document.clone(),
            json!([
                {"op": "test", "path": "/baz", "value": "qux"},
                {"op": "test", "path": "/foo/1", "value": 2}
            ]),
            document,
        );
    }

    #[test]
    fn a9_testing_a_value_error() {
        refuses(
            json!({"baz": "qux"}),
            json!([{"op": "test", "path": "/baz", "value": "bar"}]),
            "operation 0 (`test /baz`): the value is not the one tested for",
        );
    }

    #[test]
    fn a10_adding_a_nested_member_object() {
        gives(
            json!({"foo": "bar"}),
            json!([{"op": "add", "path": "/child", "value": {"grandchild": {}}}]),
            json!({"foo": "bar", "child": {"grandchild": {}}}),
        );
    }

    #[test]
    fn a11_ignoring_unrecognised_elements() {
        let mut ignoring = patch(&json!([{"op": "add", "path": "/baz", "value": "qux"}]));
        ignoring.0[0].extra = crate::json::Object::from_value(&json!({"xyz": 123}));
        let mut document = json!({"foo": "bar"});
        apply(&mut document, &ignoring, &Limits::default()).unwrap();
        assert_eq!(document, json!({"foo": "bar", "baz": "qux"}));
    }

    #[test]
    fn a12_adding_to_a_nonexistent_target() {
        refuses(
            json!({"foo": "bar"}),
            json!([{"op": "add", "path": "/baz/bat", "value": "qux"}]),
            "operation 0 (`add /baz/bat`): there is no object or array to add to",
        );
    }

    // A.13, a repeated `op`, concerns parsers: a `Patch` has one.

    #[test]
    fn a14_escape_ordering() {
        gives(
            json!({"/": 9, "~1": 10}),
            json!([{"op": "test", "path": "/~01", "value": 10}]),
            json!({"/": 9, "~1": 10}),
        );
    }

    #[test]
    fn a15_comparing_strings_and_numbers() {
        refuses(
            json!({"/": 9, "~1": 10}),
            json!([{"op": "test", "path": "/~01", "value": "10"}]),
            "operation 0 (`test /~01`): the value is not the one tested for",
        );
    }

    #[test]
    fn a16_adding_an_array_value() {
        gives(
            json!({"foo": ["bar"]}),
            json!([{"op": "add", "path": "/foo/-", "value": ["abc", "def"]}]),
            json!({"foo": ["bar", ["abc", "def"]]}),
        );
    }
}

#[test]
fn operations_that_apply() {
    for (document, operations, wanted) in [
        (json!({"a": 1}), json!([]), json!({"a": 1})),
        // The root.
        (json!({"a": 1}), json!([{"op": "add", "path": "", "value": [1]}]), json!([1])),
        (json!({"a": 1}), json!([{"op": "replace", "path": "", "value": null}]), json!(null)),
        (json!({"a": 1}), json!([{"op": "remove", "path": ""}]), json!(null)),
        (json!({"a": [1]}), json!([{"op": "move", "from": "/a", "path": ""}]), json!([1])),
        (json!({"a": [1]}), json!([{"op": "copy", "from": "/a/0", "path": ""}]), json!(1)),
        (json!([1]), json!([{"op": "move", "from": "", "path": ""}]), json!([1])),
        (json!("x"), json!([{"op": "test", "path": "", "value": "x"}]), json!("x")),
        (json!({"a": 1}), json!([{"op": "copy", "from": "", "path": "/b"}]), json!({"a": 1, "b": {"a": 1}})),
        // Keys.
        (json!({}), json!([{"op": "add", "path": "/", "value": 1}]), json!({"": 1})),
        (json!({"": {"": 1}}), json!([{"op": "remove", "path": "//"}]), json!({"": {}})),
        (json!({}), json!([{"op": "add", "path": "/a~1b~0c~01", "value": 1}]), json!({"a/b~c~1": 1})),
        (json!({}), json!([{"op": "add", "path": "/-", "value": 1}]), json!({"-": 1})),
        (json!({"01": 0}), json!([{"op": "replace", "path": "/01", "value": 1}]), json!({"01": 1})),
        (json!({}), json!([{"op": "add", "path": "/__proto__", "value": {}}]), json!({"__proto__": {}})),
        (json!({"é": 1}), json!([{"op": "remove", "path": "/é"}]), json!({})),
        // The order of members.
        (
            json!({"a": 1, "b": 2, "c": 3}),
            json!([{"op": "add", "path": "/a", "value": 4}]),
            json!({"a": 4, "b": 2, "c": 3}),
        ),
        (json!({"a": 1, "b": 2, "c": 3}), json!([{"op": "remove", "path": "/a"}]), json!({"b": 2, "c": 3})),
        (
            json!({"a": 1, "b": 2, "c": 3}),
            json!([{"op": "move", "from": "/a", "path": "/c"}]),
            json!({"b": 2, "c": 1}),
        ),
        (
            json!({"a": 1, "b": 2}),
            json!([{"op": "move", "from": "/a", "path": "/a"}]),
            json!({"b": 2, "a": 1}),
        ),
        // Indices.
        (json!([]), json!([{"op": "add", "path": "/0", "value": 1}]), json!([1])),
        (json!([1]), json!([{"op": "add", "path": "/1", "value": 2}]), json!([1, 2])),
        (json!([1, 2]), json!([{"op": "add", "path": "/0", "value": 0}]), json!([0, 1, 2])),
        (json!([1, 2]), json!([{"op": "move", "from": "/0", "path": "/-"}]), json!([2, 1])),
        (json!([1, 2, 3]), json!([{"op": "move", "from": "/2", "path": "/0"}]), json!([3, 1, 2])),
        (json!([[1], []]), json!([{"op": "copy", "from": "/0", "path": "/1/-"}]), json!([[1], [[1]]])),
        // The target of a move is resolved after its source is removed.
        (json!([1, 2, {}]), json!([{"op": "move", "from": "/0", "path": "/1/x"}]), json!([2, {"x": 1}])),
        // A name that is a prefix of another does not contain it.
        (json!({"a": 1}), json!([{"op": "move", "from": "/a", "path": "/ab"}]), json!({"ab": 1})),
        // A copy is independent of its source.
        (
            json!({"a": {"x": 1}}),
            json!([
                {"op": "copy", "from": "/a", "path": "/b"},
                {"op": "replace", "path": "/b/x", "value": 2}
            ]),
            json!({"a": {"x": 1}, "b": {"x": 2}}),
        ),
        // `from` and `value` are ignored where they are not needed.
        (json!({"a": 1}), json!([{"op": "remove", "path": "/a", "from": "no", "value": 1}]), json!({})),
        (json!({"a": null}), json!([{"op": "test", "path": "/a", "value": null}]), json!({"a": null})),
    ] {
        gives(document, operations, wanted);
    }
}

#[test]
fn operations_that_do_not_apply() {
    use Reason::*;
    let beyond = |index: &str, length| BeyondEnd { index: index.into(), length };
    for (document, operation, reason) in [
        (json!({}), json!({"op": "remove", "path": "/a"}), NotFound),
        (json!({}), json!({"op": "replace", "path": "/a", "value": 1}), NotFound),
        (json!({}), json!({"op": "test", "path": "/a", "value": null}), NotFound),
        (json!([1]), json!({"op": "remove", "path": "/1"}), NotFound),
        (json!([1]), json!({"op": "remove", "path": "/-"}), NotFound),
        (json!([1]), json!({"op": "replace", "path": "/-", "value": 1}), NotFound),
        (json!([1]), json!({"op": "remove", "path": "/00"}), NotFound),
        (json!([1]), json!({"op": "test", "path": "/+0", "value": 1}), NotFound),
        (json!([1]), json!({"op": "test", "path": "/0x0", "value": 1}), NotFound),
        (json!([1]), json!({"op": "remove", "path": "/length"}), NotFound),
        (json!({}), json!({"op": "remove", "path": "/toString"}), NotFound),
        (json!({"a": 1}), json!({"op": "remove", "path": "/a/b"}), NotFound),
        (json!("abc"), json!({"op": "remove", "path": "/0"}), NotFound),
        (json!([1]), json!({"op": "add", "path": "/2", "value": 1}), beyond("2", 1)),
        (
            json!([1]),
            json!({"op": "add", "path": "/99999999999999999999", "value": 1}),
            beyond("99999999999999999999", 1),
        ),
        (json!([1]), json!({"op": "add", "path": "/01", "value": 1}), NotAnIndex("01".into())),
        (json!([1]), json!({"op": "add", "path": "/-1", "value": 1}), NotAnIndex("-1".into())),
        (json!([1]), json!({"op": "add", "path": "/1e0", "value": 1}), NotAnIndex("1e0".into())),
        (json!([1]), json!({"op": "add", "path": "/", "value": 1}), NotAnIndex("".into())),
        (json!([1]), json!({"op": "add", "path": "/٣", "value": 1}), NotAnIndex("٣".into())),
        (json!([[]]), json!({"op": "add", "path": "/-/0", "value": 1}), NoParent),
        (json!({"a": null}), json!({"op": "add", "path": "/a/b", "value": 1}), NoParent),
        (json!(null), json!({"op": "add", "path": "/a", "value": 1}), NoParent),
        (json!({}), json!({"op": "add", "path": "a", "value": 1}), NotAPointer),
        (json!({"~": 1, "~2": 1}), json!({"op": "remove", "path": "/~"}), NotAPointer),
        (json!({"~": 1, "~2": 1}), json!({"op": "remove", "path": "/~2"}), NotAPointer),
        (json!({"a": 1}), json!({"op": "copy", "from": "a", "path": "/b"}), FromNotAPointer),
        (json!({}), json!({"op": "move", "path": "/b"}), MissingFrom),
        (json!({}), json!({"op": "copy", "path": "/b"}), MissingFrom),
        (json!({}), json!({"op": "add", "path": "/b"}), MissingValue),
        (json!({"b": 1}), json!({"op": "replace", "path": "/b"}), MissingValue),
        (json!({"b": 1}), json!({"op": "test", "path": "/b"}), MissingValue),
        (json!({}), json!({"op": "move", "from": "/a", "path": "/a"}), FromNotFound("/a".into())),
        (json!([1]), json!({"op": "copy", "from": "/-", "path": "/0"}), FromNotFound("/-".into())),
        (json!({"a": {}}), json!({"op": "move", "from": "/a", "path": "/a/b"}), IntoItself),
        (json!({"a": {}}), json!({"op": "move", "from": "", "path": "/a"}), IntoItself),
        (json!([1, 2]), json!({"op": "move", "from": "/0", "path": "/2"}), beyond("2", 1)),
        (json!([1, {}, 2]), json!({"op": "move", "from": "/0", "path": "/1/x"}), NoParent),
    ] {
        // Starts with an operation to undo.
        let operations = json!([{"op": "add", "path": "", "value": document}, operation]);
        let mut changed = json!({"before": [1]});
        let error = apply(&mut changed, &patch(&operations), &Limits::default()).unwrap_err();
        assert_eq!(*error.reason(), reason, "{operations}");
        assert_eq!((error.index(), error.path()), (1, operation["path"].as_str().unwrap()));
        assert_eq!(changed.to_string(), r#"{"before":[1]}"#);
    }
}

#[test]
fn tests_compare_by_value() {
    let equal = |left: &str, right: &str| {
        let parsed = |text| serde_json::from_str::<Value>(text).unwrap();
        let test = json!([{"op": "test", "path": "", "value": parsed(right)}]);
        applied(&parsed(left), &test).is_ok()
    };
    for (left, right, wanted) in [
        ("1", "1.0", true),
        ("[1]", "[1e0]", true),
        ("-3", "-3.0", true),
        ("0", "-0.0", true),
        ("1", "1.5", false),
        ("1", "true", false),
        ("0", "null", false),
        ("0", "false", false),
        ("\"1\"", "1", false),
        ("9007199254740992", "9007199254740992.0", true),
        ("9007199254740993", "9007199254740992.0", false),
        ("18446744073709551615", "1.8446744073709552e19", false),
        ("1", "1e300", false),
        (r#"{"a":1,"b":[2]}"#, r#"{"b":[2.0],"a":1}"#, true),
        (r#"{"a":1}"#, r#"{"a":1,"b":null}"#, false),
        (r#"{"a":1,"b":null}"#, r#"{"a":1,"c":null}"#, false),
        ("[1,2]", "[2,1]", false),
        ("[1]", "[1,1]", false),
        ("[]", "{}", false),
    ] {
        assert_eq!(equal(left, right), wanted, "{left} and {right}");
        assert_eq!(equal(right, left), wanted, "{right} and {left}");
    }
}

#[test]
fn errors_name_operation_and_reason() {
    let add = json!({"op": "add", "path": "/c", "value": 1});
    refuses(
        json!({"a": {}}),
        json!([add, add, {"op": "remove", "path": "/a/b"}, add]),
        "operation 2 (`remove /a/b`): path does not exist",
    );
    refuses(
        json!({"a": []}),
        json!([{"op": "add", "path": "/a/07", "value": 1}]),
        "operation 0 (`add /a/07`): `07` is not an array index",
    );
    refuses(
        json!({"a": [1]}),
        json!([{"op": "add", "path": "/a/7", "value": 1}]),
        "operation 0 (`add /a/7`): index `7` is beyond the end of an array of 1",
    );
    refuses(
        json!({}),
        json!([{"op": "copy", "from": "/x", "path": "/y"}]),
        "operation 0 (`copy /y`): `from` path `/x` does not exist",
    );
    let long = format!("/{}", "é".repeat(500));
    let shown = format!("/{}…", "é".repeat(99));
    let wanted = format!("operation 0 (`remove {shown}`): path does not exist");
    refuses(json!({}), json!([{"op": "remove", "path": long}]), &wanted);
    refuses(
        json!({}),
        json!([{"op": "remove", "path": "/a\nb"}]),
        "operation 0 (`remove /a\\nb`): path does not exist",
    );
    assert!(size_of::<PatchError>() <= size_of::<usize>());
}

#[test]
fn undo_restores_the_order_of_members() {
    let document = json!({"a": 1, "b": {"x": 1, "y": 2, "z": 3}, "c": 3, "d": [1, 2, 3]});
    refuses(
        document,
        json!([
            {"op": "remove", "path": "/a"},
            {"op": "remove", "path": "/b/y"},
            {"op": "move", "from": "/b/x", "path": "/b/z"},
            {"op": "move", "from": "/d/0", "path": "/c"},
            {"op": "move", "from": "/b", "path": "/d/1"},
            {"op": "copy", "from": "/d", "path": "/d/-"},
            {"op": "add", "path": "/d/-", "value": {}},
            {"op": "move", "from": "/d", "path": ""},
            {"op": "remove", "path": "/0"},
            {"op": "move", "from": "/0", "path": "/9"}
        ]),
        "operation 9 (`move /9`): index `9` is beyond the end of an array of 3",
    );
}

#[test]
fn more_operations_than_allowed_are_refused() {
    let step = PatchOp::with_value(Op::Test, "", json!(null).into());
    let mut long = Patch(vec![step.clone(); DEFAULT_MAX_OPERATIONS]);
    let mut document = json!(null);
    apply(&mut document, &long, &Limits::default()).unwrap();
    long.0.push(step);
    let error = apply(&mut document, &long, &Limits::default()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "operation 10000 (`test \"\"`): more than the 10000 operations allowed in one patch"
    );
    let none = Limits { max_operations: 0, ..Limits::default() };
    apply(&mut document, &Patch::default(), &none).unwrap();
    assert!(apply(&mut document, &Patch(long.0[..1].to_vec()), &none).is_err());
}

#[test]
fn copy_bombs_are_refused() {
    // Each step doubles the document: 64 steps would take all the memory there is.
    let doubling: Vec<Value> =
        (0..64).map(|at| json!({"op": "copy", "from": "", "path": format!("/{at}")})).collect();
    refuses(
        json!({"a": "0123456789"}),
        Value::from(doubling),
        "operation 18 (`copy /18`): the document would grow by more than the 10485760 bytes allowed in one patch",
    );
    let doubling = vec![json!({"op": "copy", "from": "", "path": "/-"}); 64];
    let error = applied(&json!([1]), &Value::from(doubling)).unwrap_err();
    let reasons = matches!(error.reason(), Reason::TooLarge(_) | Reason::TooDeep(_) | Reason::TooCostly(_));
    assert!(reasons, "{error}");
}

#[test]
fn copies_count_even_if_they_are_removed_again() {
    let limits = Limits { max_size_growth: 1000, ..Limits::default() };
    let mut operations = Vec::new();
    for _ in 0..20 {
        operations.push(json!({"op": "copy", "from": "/a", "path": "/b"}));
        operations.push(json!({"op": "remove", "path": "/b"}));
    }
    let mut document = json!({"a": "x".repeat(98)});
    let error = apply(&mut document, &patch(&Value::from(operations)), &limits).unwrap_err();
    assert_eq!((error.index(), error.reason()), (20, &Reason::TooLarge(1000)));
}

/// An empty list has two bytes of text and takes as much memory as a long one.
#[test]
fn copies_of_many_containers_are_costly() {
    let limits = Limits { max_work: 1 << 20, ..Limits::default() };
    for (value, is_allowed) in [(json!(vec![json!([]); 5000]), false), (json!("x".repeat(15_000)), true)] {
        let mut document = json!({"a": value});
        let copies: Vec<_> =
            (0..2).map(|number| json!({"op": "copy", "from": "/a", "path": format!("/{number}")})).collect();
        let applied = apply(&mut document, &patch(&Value::from(copies)), &limits);
        match is_allowed {
            true => applied.expect("few containers"),
            false => assert_eq!(applied.unwrap_err().reason(), &Reason::TooCostly(1 << 20)),
        }
    }
}

#[test]
fn nesting_has_a_limit() {
    let nested = |levels| (0..levels).fold(json!(1), |inner, _| json!([inner]));
    let down = |levels: usize| "/0".repeat(levels);
    let half = MAX_DEPTH / 2;
    for (levels, fits) in [(MAX_DEPTH - half, true), (MAX_DEPTH - half + 1, false)] {
        let replaced = json!([{"op": "replace", "path": down(half), "value": nested(levels)}]);
        assert_eq!(applied(&nested(half), &replaced).is_ok(), fits);
        let added = json!([{"op": "add", "path": down(half), "value": nested(levels)}]);
        assert_eq!(applied(&nested(half), &added).is_ok(), fits);
        // The array around both trees is one level of the target.
        for op in ["move", "copy"] {
            let document = json!([nested(half - 1), nested(levels)]);
            let carried = json!([{"op": op, "from": "/1", "path": down(half)}]);
            assert_eq!(applied(&document, &carried).is_ok(), fits, "{op} {levels}");
        }
    }
    let doubling = vec![json!({"op": "copy", "from": "", "path": "/0"}); 8];
    assert!(applied(&json!([]), &Value::from(doubling)).is_ok());
    let mut path = String::new();
    let mut doubling = Vec::new();
    for step in 0..12 {
        path = if step == 0 { "/0".into() } else { format!("{path}{path}") };
        doubling.push(json!({"op": "copy", "from": "", "path": path}));
    }
    let error = applied(&json!([[]]), &Value::from(doubling)).unwrap_err();
    assert_eq!(*error.reason(), Reason::TooDeep(MAX_DEPTH));
}

#[test]
fn a_document_that_is_already_too_deep_can_be_changed() {
    let nested = |leaf: Value| (0..MAX_DEPTH + 1).fold(leaf, |inner, _| json!([inner]));
    let path = "/0".repeat(MAX_DEPTH + 1);
    let replaced = |value| json!([{"op": "replace", "path": path, "value": value}]);
    assert_eq!(applied(&nested(json!(1)), &replaced(json!(2))).unwrap(), nested(json!(2)));
    assert!(applied(&nested(json!(1)), &replaced(json!([]))).is_err());
}

/// The choice of a path: an existing one, perhaps with a further token or another last token.
fn any_place() -> impl Strategy<Value = (Index, u8, String)> {
    let token = prop_oneof![
        any_key().prop_map(|key| crate::patch::escape_token(&key)),
        proptest::sample::select(vec!["0", "1", "2", "-", "01", "99"]).prop_map(String::from),
    ];
    (any::<Index>(), 0..8_u8, token)
}

pub(super) type OpChoice = (usize, (Index, u8, String), (Index, u8, String), Value);

pub(super) fn any_choices(count: usize) -> impl Strategy<Value = Vec<OpChoice>> {
    let value = prop_oneof![2 => any_scalar(), 1 => any_json()];
    proptest::collection::vec((0..6_usize, any_place(), any_place(), value), 0..count)
}

/// Operations that mostly apply: each takes its paths from the document as left by the previous ones.
pub(super) fn operations_from(document: &Value, choices: &[OpChoice]) -> Patch {
    let mut document = document.clone();
    let mut operations = Vec::new();
    for (kind, place, other, value) in choices {
        let pointers = pointers(&document);
        let chosen = |(index, how, token): &(Index, u8, String)| {
            let pointer = index.get(&pointers).clone();
            match how {
                0 | 1 => format!("{pointer}/{token}"),
                2 => match pointer.rsplit_once('/') {
                    Some((parent, _)) => format!("{parent}/{token}"),
                    None => pointer,
                },
                _ => pointer,
            }
        };
        let op = [Op::Add, Op::Remove, Op::Replace, Op::Move, Op::Copy, Op::Test][*kind];
        let path = chosen(place);
        let found = document.pointer(&path).cloned();
        let value = if op == Op::Test { found.as_ref().unwrap_or(value) } else { value };
        let operation = PatchOp {
            op,
            path: path.into(),
            from: op.needs_from().then(|| chosen(other).into()),
            value: op.needs_value().then(|| value.into()),
            extra: None,
        };
        let one = Patch(vec![operation]);
        // One in five that do not apply is kept, so that patches fail at every length.
        if apply(&mut document, &one, &Limits::default()).is_ok() || place.1 == 7 {
            operations.extend(one.0);
        }
    }
    Patch(operations)
}

/// Adapts to the deviations of `json-patch` that the header of `apply.rs` lists.
fn by_oracle(document: &Value, patch: &Patch) -> Option<Value> {
    let mut document = document.clone();
    for operation in &patch.0 {
        if operation.op == Op::Remove && operation.path.is_empty() {
            document = Value::Null;
            continue;
        }
        let is_move_of_root = operation.op == Op::Move && operation.from.as_deref() == Some("");
        if is_move_of_root && operation.path.is_empty() {
            continue;
        }
        let one: json_patch::Patch =
            serde_json::from_value(written(&Patch(vec![operation.clone()]))).unwrap();
        json_patch::patch(&mut document, &one).ok()?;
    }
    Some(document)
}

proptest! {
    #[test]
    fn json_patch_agrees(document in any_json(), choices in any_choices(8)) {
        let patch = operations_from(&document, &choices);
        let mut changed = document.clone();
        let result = apply(&mut changed, &patch, &Limits::default()).ok().map(|()| changed);
        prop_assert_eq!(result, by_oracle(&document, &patch));
    }

    #[test]
    fn failure_leaves_every_byte_in_place(document in any_json(), choices in any_choices(12)) {
        let text = document.to_string();
        let mut patch = operations_from(&document, &choices);
        patch.0.push(PatchOp::remove("/no/such/place"));
        let mut changed = document;
        prop_assert!(apply(&mut changed, &patch, &Limits::default()).is_err());
        prop_assert_eq!(changed.to_string(), text);
    }

    #[test]
    fn growth_is_counted_to_the_byte(document in any_json(), choices in any_choices(8)) {
        let mut patch = operations_from(&document, &choices);
        patch.0.retain(|operation| operation.op != Op::Copy);
        let mut grown = 0;
        let mut step_by_step = document.clone();
        for operation in &patch.0 {
            if apply(&mut step_by_step, &Patch(vec![operation.clone()]), &Limits::default()).is_err() {
                return Ok(());
            }
            let longer = step_by_step.to_string().len().saturating_sub(document.to_string().len());
            grown = grown.max(longer);
        }
        let within = |max_size_growth| {
            let limits = Limits { max_size_growth, ..Limits::default() };
            apply(&mut document.clone(), &patch, &limits)
        };
        prop_assert!(within(grown).is_ok());
        if grown > 0 {
            let error = within(grown - 1).unwrap_err();
            prop_assert_eq!(error.reason(), &Reason::TooLarge(grown - 1));
        }
    }

    #[test]
    fn the_growth_of_a_patch_is_that_of_the_document(document in any_json(), choices in any_choices(8)) {
        let patch = operations_from(&document, &choices);
        let mut changed = document.clone();
        if let Ok(growth) = apply_measured(&mut changed, &patch, &Limits::default()) {
            let size = |value: &Value| (value.to_string().len() as i64, Footprint::of(value) as i64);
            let (before, after) = (size(&document), size(&changed));
            prop_assert_eq!((growth.bytes, growth.footprint), (after.0 - before.0, after.1 - before.1));
            // The memory is counted as exactly as the bytes.
            if growth.footprint > 0 {
                let max_footprint_growth = growth.footprint as usize - 1;
                let limits = Limits { max_footprint_growth, ..Limits::default() };
                let error = apply(&mut document.clone(), &patch, &limits).unwrap_err();
                prop_assert_eq!(error.reason(), &Reason::TooManyValues(max_footprint_growth));
            }
        }
    }

    #[test]
    fn wild_patches_never_panic(document in any_json(), paths in proptest::collection::vec(".{0,9}", 6)) {
        let ops = [Op::Add, Op::Remove, Op::Replace, Op::Move, Op::Copy, Op::Test];
        let operations = ops.into_iter().zip(&paths).zip(paths.iter().rev()).map(|((op, path), from)| PatchOp {
            op,
            path: path.as_str().into(),
            from: Some(from.as_str().into()),
            value: Some(json!(path).into()),
            extra: None,
        });
        let text = document.to_string();
        let mut changed = document;
        if apply(&mut changed, &Patch(operations.collect()), &Limits::default()).is_err() {
            prop_assert_eq!(changed.to_string(), text);
        }
    }
}

#[test]
fn a_small_patch_does_not_touch_the_rest() {
    let big: Map<String, Value> = (0..1000).map(|at| (at.to_string(), json!([at, "x"]))).collect();
    let mut document = json!({"big": big, "small": 1});
    let before: *const Value = &raw const document["big"]["500"][1];
    let text_before = document["big"]["500"][1].as_str().unwrap().as_ptr();
    for (operations, works) in [
        (json!([{"op": "replace", "path": "/small", "value": 2}]), true),
        (json!([{"op": "replace", "path": "/small", "value": 3}, {"op": "remove", "path": "/none"}]), false),
    ] {
        assert_eq!(apply(&mut document, &patch(&operations), &Limits::default()).is_ok(), works);
    }
    // A clone of the document would have its strings at other addresses.
    assert_eq!(&raw const document["big"]["500"][1], before);
    assert_eq!(document["big"]["500"][1].as_str().unwrap().as_ptr(), text_before);
}

/// Work is counted, so these tests do not depend on the speed of the machine.
mod work {
    use super::*;
    use crate::patch::apply::apply_counted;

    const BUDGET: usize = 64 << 20;

    /// The work of a patch, or the reason why it failed. A failure must leave the document as it was.
    fn work(document: &Value, operations: &[Value]) -> Result<usize, Reason> {
        let limits = Limits { max_work: BUDGET, ..Limits::default() };
        let (mut changed, mut spent) = (document.clone(), 0);
        match apply_counted(&mut changed, &patch(&json!(operations)), &limits, &mut spent) {
            Ok(()) => Ok(spent),
            Err(error) => {
                // By text, because the order of members counts.
                let (after, before) = (changed.to_string(), document.to_string());
                assert!(after == before, "a failed patch changed the document");
                Err(error.reason().clone())
            }
        }
    }

    fn numbers(count: usize) -> Value {
        (0..count).map(Value::from).collect()
    }

    fn members(count: usize) -> Value {
        Value::Object((0..count).map(|key| (format!("k{key}"), json!(key))).collect())
    }

    #[test]
    fn every_costly_family_is_refused_and_undone() {
        let list = json!({"a": numbers(100_000), "o": {"p": {}}});
        let object = json!({"o": members(20_000)});
        let repeated = |operation: Value| vec![operation; 5000];
        let pairs = |first: Value, second: Value| -> Vec<Value> {
            (0..5000).map(|index| if index % 2 == 0 { first.clone() } else { second.clone() }).collect()
        };
        let remove_first = json!({"op": "remove", "path": "/a/0"});
        let mut failing = repeated(remove_first.clone());
        failing.push(json!({"op": "remove", "path": "/nothing"}));
        let cases: Vec<(&str, &Value, Vec<Value>)> = vec![
            ("remove the first element", &list, repeated(remove_first)),
            ("add before the first", &list, repeated(json!({"op": "add", "path": "/a/0", "value": 1}))),
            ("move front to back", &list, repeated(json!({"op": "move", "from": "/a/0", "path": "/a/-"}))),
            ("move back to front", &list, repeated(json!({"op": "move", "from": "/a/99999", "path": "/a/0"}))),
            (
                "remove the first members",
                &object,
                (0..5000).map(|key| json!({"op": "remove", "path": format!("/o/k{key}")})).collect(),
            ),
            (
                "move the first members",
                &object,
                (0..5000)
                    .map(|key| json!({"op": "move", "from": format!("/o/k{key}"), "path": format!("/o/n{key}")}))
                    .collect(),
            ),
            (
                "move a large value deeper and back",
                &list,
                pairs(
                    json!({"op": "move", "from": "/a", "path": "/o/p/a"}),
                    json!({"op": "move", "from": "/o/p/a", "path": "/a"}),
                ),
            ),
            (
                "copy and remove a large value",
                &list,
                pairs(
                    json!({"op": "copy", "from": "/a", "path": "/b"}),
                    json!({"op": "remove", "path": "/b"}),
                ),
            ),
            ("copy onto itself", &list, repeated(json!({"op": "copy", "from": "/a", "path": "/a"}))),
            ("a failing last operation", &list, failing),
        ];
        for (name, document, operations) in cases {
            assert_eq!(work(document, &operations), Err(Reason::TooCostly(BUDGET)), "{name}");
        }
    }

    #[test]
    fn failing_last_operation_within_the_budget_is_undone() {
        let mut operations = vec![json!({"op": "remove", "path": "/a/0"}); 40];
        operations.push(json!({"op": "remove", "path": "/nothing"}));
        assert_eq!(work(&json!({"a": numbers(100_000)}), &operations), Err(Reason::NotFound));
    }

    #[test]
    fn diff_of_many_shifts_sends_the_value() {
        let from = numbers(40_000);
        let to = from.as_array().unwrap().iter().filter(|number| number.as_u64().unwrap() % 10 != 0).cloned();
        let to = Value::Array(to.collect());
        let patch = crate::patch::diff(&from, &to);
        let (mut document, mut spent) = (from, 0);
        apply_counted(&mut document, &patch, &Limits::default(), &mut spent).unwrap();
        assert!(document == to);
        assert!(spent < 32 << 20, "{spent}");
    }

    #[test]
    fn test_of_large_values_costs_their_length() {
        let list = numbers(100_000);
        let length = list.to_string().len();
        let test = json!({"op": "test", "path": "/a", "value": list});
        let spent = work(&json!({"a": list}), &vec![test.clone(); 3]).unwrap();
        assert!((6 * length..7 * length).contains(&spent), "{spent}");
        let limits = Limits { max_work: 4 * length, ..Limits::default() };
        let error = apply(&mut json!({"a": list}), &patch(&json!(vec![test; 3])), &limits).unwrap_err();
        assert!(error.is_too_costly(), "{error}");
    }

    #[test]
    fn common_operations_do_not_depend_on_the_size_of_the_document() {
        let document = json!({"a": numbers(200_000), "o": members(200_000)});
        for operation in [
            json!({"op": "add", "path": "/a/-", "value": 1}),
            json!({"op": "replace", "path": "/a/5", "value": 1}),
            json!({"op": "replace", "path": "/o/k5", "value": 1}),
            json!({"op": "add", "path": "/o/k5", "value": 1}),
            json!({"op": "add", "path": "/o/new", "value": 1}),
            json!({"op": "test", "path": "/a/5", "value": 5}),
            json!({"op": "copy", "from": "/a/7", "path": "/o/new"}),
            json!({"op": "remove", "path": "/a/199999"}),
            json!({"op": "remove", "path": "/o/k199999"}),
        ] {
            let spent = work(&document, std::slice::from_ref(&operation)).unwrap();
            assert!(spent < 256, "{operation}: {spent}");
        }
        let appended = vec![json!({"op": "add", "path": "/a/-", "value": 1}); 10_000];
        assert!(work(&document, &appended).unwrap() < 1 << 20);
    }

    #[test]
    fn largest_frame_can_replace_a_large_document() {
        let large = json!({"text": "x".repeat(9 << 20)});
        assert!(work(&large, &[json!({"op": "replace", "path": "", "value": large})]).is_ok());
    }

    #[test]
    fn completed_patches_share_one_budget() {
        let document = json!({"a": numbers(100_000)});
        let mut operations = vec![json!({"op": "move", "from": "/a/0", "path": "/a/-"}); 9000];
        operations.push(json!({"op": "add", "path": "/new/0/x", "value": 1}));
        assert_eq!(crate::patch::create_containers(&document, &patch(&json!(operations))), None);
    }
}
