//! Compacted streams fold to the same result.

use proptest::prelude::*;
use serde_json::json;

use super::{
    super::{arbitrary::histories, compact},
    *,
};
use crate::{
    event::{EncryptedEntity, Extra, RunError},
    json::Json,
};

fn add(path: &str, value: Value) -> PatchOp {
    PatchOp::add(path, value.into())
}

fn replace(path: &str, value: Value) -> PatchOp {
    PatchOp::replace(path, value.into())
}

#[test]
fn deltas_of_each_message_and_call_become_one() {
    let short = compact(&[
        run_started("1"),
        start("m"),
        delta("m", "a"),
        call("c", "search", Some("m")),
        arguments("c", "{"),
        delta("m", "b"),
        Body::StepStarted { name: "x".into() }.into(),
        reasoning_start("r"),
        reasoning("r", "h"),
        arguments("c", "}"),
        result("t", "other", "y"),
        reasoning("r", "m"),
        delta("m", "c"),
        end("m"),
        call_end("c"),
    ]);
    let expected = [
        run_started("1"),
        start("m"),
        delta("m", "abc"),
        call("c", "search", Some("m")),
        arguments("c", "{}"),
        Body::StepStarted { name: "x".into() }.into(),
        reasoning_start("r"),
        reasoning("r", "hm"),
        result("t", "other", "y"),
        end("m"),
        call_end("c"),
    ];
    assert_eq!(short, expected);
}

#[test]
fn reopened_message_is_not_joined_with_its_first_part() {
    let events = [start("m"), delta("m", "a"), end("m"), start("m"), delta("m", "b"), end("m")];
    assert_eq!(compact(&events), events);
}

#[test]
fn text_and_reasoning_of_one_id_keep_their_order() {
    let events = [start("m"), reasoning_start("m"), delta("m", "a"), reasoning("m", "b"), delta("m", "c")];
    assert_eq!(compact(&events), events);
}

#[test]
fn deltas_do_not_move_across_dependent_events() {
    let seal = Body::ReasoningEncrypted { entity: EncryptedEntity::Message("m".into()), value: "x".into() };
    for barrier in [
        snapshot([Message::assistant("m", "restored")]),
        activity("m", "plan", json!({})),
        activity_delta("m", "plan", []),
        seal.into(),
        result("m", "c", "takes the id"),
    ] {
        let events = [start("m"), delta("m", "a"), barrier, delta("m", "b")];
        assert_eq!(compact(&events), events);
    }
    // The message of the call is replaced, which these events alone do not show.
    let events =
        [call("c", "x", None), arguments("c", "a"), activity("z", "plan", json!({})), arguments("c", "b")];
    assert_eq!(compact(&events), events);
}

#[test]
fn text_for_a_possibly_missing_message_is_not_moved() {
    // The snapshot removed `m`; the call creates it again.
    let events = [start("m"), snapshot([]), delta("m", "a"), call("c", "x", Some("m")), delta("m", "b")];
    assert_eq!(compact(&events), events);
}

#[test]
fn metadata_of_joined_deltas_is_merged() {
    let raw =
        Box::new(Extra { raw: Some(Json::null()), unknown: Some(object(json!({"u": 1}))), metadata: None });
    let short = compact(&[
        start("m"),
        with(json!({"a": 1, "b": 1}), delta("m", "1")).at(Some(5)),
        Event { extra: Some(raw), ..by("s", delta("m", "2")) },
        with(json!({"b": 2}), delta("m", "3")).at(Some(7)),
    ]);
    let extra = Extra {
        metadata: Some(object(json!({"a": 1, "b": 2}))),
        raw: None,
        unknown: Some(object(json!({"u": 1}))),
    };
    let joined = Event { extra: Some(Box::new(extra)), ..by("s", delta("m", "123")).at(Some(5)) };
    assert_eq!(short, [start("m"), joined]);
}

#[test]
fn single_delta_is_unchanged() {
    let extra = Extra { raw: Some(json!({"native": 1}).into()), ..Extra::default() };
    let events = [start("m"), Event { extra: Some(Box::new(extra)), ..delta("m", "x") }];
    assert_eq!(compact(&events), events);
}

#[test]
fn state_events_of_a_run_become_one_snapshot() {
    let short = compact(&[
        run_started("1"),
        state_delta([add("/lost", json!(1))]),
        by("s", with(json!({"k": 1}), state(json!({"a": 1, "n": 1.0})))),
        start("m"),
        state_delta([replace("/a", json!(2))]),
        state_delta([replace("/missing", json!(2))]),
        by("s", with(json!({"l": 1}), state_delta([add("/b", json!(3))]))).at(Some(9)),
        end("m"),
        run_finished("1", None),
    ]);
    let whole = with(json!({"k": 1, "l": 1}), state(json!({"a": 2, "n": 1.0, "b": 3}))).at(Some(9));
    assert_eq!(short, [run_started("1"), start("m"), whole, end("m"), run_finished("1", None)]);
}

#[test]
fn the_last_snapshot_keeps_its_text() {
    let text = Json::parse("{\"n\":1e3,\"m\":123456789012345678901234567890}").unwrap();
    let last = Event::new(Body::StateSnapshot { snapshot: text });
    assert_eq!(compact(&[state(json!({})), last.clone()]), [last]);
}

#[test]
fn each_run_keeps_its_own_state() {
    let error = Event::new(Body::RunError(Box::new(RunError::new("broken", None))));
    let events = [
        run_started("1"),
        state(json!({"a": 1})),
        error,
        run_started("2"),
        state_delta([replace("/a", json!(2))]),
    ];
    assert_eq!(compact(&events), events);
    // The first run determines the initial state of the second.
    let more = [events.to_vec(), vec![state_delta([replace("/a", json!(3))])]].concat();
    assert_eq!(compact(&more)[4], state(json!({"a": 3})));
}

#[test]
fn changes_of_an_unknown_state_become_one_change() {
    let short = compact(&[
        run_started("1"),
        state_delta([add("/a", json!(1))]),
        state_delta([]),
        state_delta([replace("/a", json!(2)), add("/list", json!([]))]),
        state_delta([add("/list/-", json!(1))]),
        state_delta([add("/list/-", json!(2))]),
        state_delta([PatchOp::remove("/a")]),
    ]);
    let joined = state_delta([
        add("/a", json!(1)),
        replace("/a", json!(2)),
        add("/list", json!([])),
        add("/list/-", json!(1)),
        add("/list/-", json!(2)),
        PatchOp::remove("/a"),
    ]);
    assert_eq!(short, [run_started("1"), joined]);
}

#[test]
fn changes_that_may_fail_separately_are_not_joined() {
    // Where there is no `/n`, only the first of them applies.
    let events = [state_delta([add("/a", json!(1))]), state_delta([replace("/n", json!(2))])];
    assert_eq!(compact(&events), events);
    // Where there is no `/n`, only the second of them applies.
    let events = [state_delta([replace("/n", json!(2))]), state_delta([add("/a", json!(1))])];
    assert_eq!(compact(&events), events);
}

#[test]
fn open_items_are_closed_inside_the_run() {
    let error = Event::new(Body::RunError(Box::new(RunError::new("broken", None))));
    let events = [
        run_started("1"),
        start("m"),
        delta("m", "a"),
        delta("m", "b"),
        state(json!({})),
        state(json!(1)),
        error,
    ];
    let short = compact(&events);
    assert_eq!(
        kinds(&short),
        ["RUN_STARTED", "TEXT_MESSAGE_START", "TEXT_MESSAGE_CONTENT", "STATE_SNAPSHOT", "RUN_ERROR"]
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn compacted_streams_fold_to_the_same_on_any_history((messages, state) in histories(), events in untidy_streams(80)) {
        let short = compact(&events);
        prop_assert!(short.len() <= events.len());
        for history in [Fold::new(), Fold::from_history(messages, Some(state))] {
            prop_assert_eq!(held(folded(history.clone(), &events)), held(folded(history, &short)));
        }
    }

    #[test]
    fn compaction_keeps_the_order_rules_and_is_idempotent(events in untidy_streams(80)) {
        let short = compact(&events);
        prop_assert_eq!(violation(&short), None);
        prop_assert_eq!(compact(&short), short);
    }

    #[test]
    fn compacted_prefixes_fold_to_the_same(events in untidy_streams(60), cut in any::<prop::sample::Index>()) {
        let beginning = &events[..cut.index(events.len() + 1)];
        let short = compact(beginning);
        prop_assert_eq!(held(folded(Fold::new(), beginning)), held(folded(Fold::new(), &short)));
        prop_assert_eq!(compact(&short), short);
    }
}
