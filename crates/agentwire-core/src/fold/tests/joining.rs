//! Coming in late makes no difference.

use proptest::prelude::*;
use serde_json::json;

use super::{
    super::{Join, arbitrary::Rules},
    *,
};
use crate::event::{Role, RunError, RunInput, SubagentStarted};

fn join(events: impl IntoIterator<Item = Event>) -> Join {
    let mut join = Join::new(Fold::new());
    for event in events {
        join.apply(&event);
    }
    join
}

fn prelude(events: impl IntoIterator<Item = Event>) -> Vec<Event> {
    join(events).prelude()
}

fn subagent(id: &str, parent: Option<&str>) -> Event {
    let started = SubagentStarted {
        name: "helper".into(),
        description: Some("helps".into()),
        parent_subagent: parent.map(Into::into),
        parent_call: None,
        parent_message: None,
    };
    by(id, Body::SubagentStarted(Box::new(started)).into())
}

/// The messages of each snapshot in a prelude.
fn restated(prelude: &[Event]) -> Vec<Vec<Message>> {
    let of = |event: &Event| match &event.body {
        Body::MessagesSnapshot { messages } => Some(messages.clone()),
        _ => None,
    };
    prelude.iter().filter_map(of).collect()
}

#[test]
fn prelude_is_empty_before_the_first_run() {
    assert_eq!(prelude([]), []);
}

#[test]
fn a_prelude_restates_the_run_and_opens_what_is_open() {
    let mut input = RunInput::new("t", "1");
    input.messages.push(Message::user("u", "hi"));
    let started = RunStarted {
        input: Some(Box::new(input)),
        parent_run: Some("0".into()),
        protocol_version: Some("1.0".into()),
        ..RunStarted::new("t", "1")
    };
    let step = |event: Body| by("s", Event::new(event));
    let span = Event::new(Body::ReasoningStart { message: "r".into(), title: Some("Thinking".into()) });
    let open = Body::TextStart { message: "m".into(), role: Some(Role::Assistant), name: None };
    let prelude = prelude([
        Body::RunStarted(Box::new(started.clone())).into(),
        state(json!({"a": 1})),
        subagent("s", None),
        by("s", Body::TextStart { message: "m".into(), role: Some(Role::Assistant), name: None }.into()),
        delta("m", "Hel"),
        step(Body::StepStarted { name: "x".into() }),
        step(Body::StepStarted { name: "closed".into() }),
        step(Body::StepFinished { name: "closed".into() }),
        span.clone(),
        reasoning_start("r"),
        reasoning("r", "hm"),
        by("s", call("c", "search", Some("m"))),
        arguments("c", "{"),
        start("done"),
        end("done"),
    ]);
    assert_eq!(prelude[0], Body::RunStarted(Box::new(RunStarted { input: None, ..started })).into());
    assert_eq!(
        restated(&prelude),
        [[
            Message::user("u", "hi"),
            Message::from(MessageData {
                subagent: Some("s".into()),
                ..assistant("m", Some("Hel"), &[ToolCall::new("c", "search", "{")]).into_data()
            }),
            reasoned("r", "hm"),
            Message::assistant("done", ""),
        ]]
    );
    assert_eq!(
        prelude[2..],
        [
            state(json!({"a": 1})),
            subagent("s", None),
            step(Body::StepStarted { name: "x".into() }),
            span,
            reasoning_start("r"),
            by("s", open.into()),
            by("s", call("c", "search", Some("m"))),
        ]
    );
}

#[test]
fn metadata_is_not_merged_twice() {
    let prelude = prelude([
        run_started("1"),
        with(json!({"k": 1}), start("m")),
        with(json!({"k": 2}), delta("m", "")),
        with(json!({"k": 1}), call("c", "x", Some("m"))),
        with(json!({"k": 2}), arguments("c", "")),
    ]);
    let messages = fold(prelude).into_parts().0;
    assert_eq!(metadata(&messages[0]), Some(r#"{"k":2}"#));
    assert_eq!(messages[0].tool_calls()[0].metadata, Some(object(json!({"k": 2}))));
}

#[test]
fn subagents_that_have_ended_can_still_be_named_as_parents() {
    let done = by("a", Body::SubagentFinished { result: None, outcome: None }.into());
    let prelude = prelude([run_started("1"), subagent("a", None), subagent("b", Some("a")), done.clone()]);
    assert_eq!(prelude[3..], [subagent("a", None), subagent("b", Some("a")), done]);
    assert_eq!(violation(prelude.iter().chain([&subagent("c", Some("a"))])), None);
}

#[test]
fn a_call_opens_again_in_the_message_that_holds_it() {
    // A subagent's call names a message of the main agent's, so it got a message of its own.
    let events = [by("s", call("c", "x", Some("u")))];
    let history = Fold::from_history(vec![Message::user("u", "hi")], None);
    let mut join = Join::new(history);
    join.apply(&run_started("1"));
    join.apply(&events[0]);
    assert_eq!(join.prelude()[3..], [by("s", call("c", "x", Some("c")))]);
    assert_eq!(prelude([run_started("1"), call("c", "x", None)])[3..], [call("c", "x", None)]);
}

#[test]
fn open_message_dropped_by_a_snapshot_stays_dropped() {
    let events = [run_started("1"), by("s", start("gone")), call("c", "x", Some("p")), snapshot([])];
    let prelude = prelude(events);
    assert_eq!(
        kinds(&prelude),
        [
            "RUN_STARTED",
            "TEXT_MESSAGE_START",
            "TOOL_CALL_START",
            "MESSAGES_SNAPSHOT",
            "ACTIVITY_SNAPSHOT",
            "MESSAGES_SNAPSHOT",
            "STATE_SNAPSHOT"
        ]
    );
    let tail = [
        by("s", delta("gone", "x")),
        arguments("c", "{"),
        end("gone"),
        call_end("c"),
        run_finished("1", None),
    ];
    assert_eq!(violation(prelude.iter().chain(&tail)), None);
    assert_eq!(messages(prelude.into_iter().chain(tail)), []);
}

#[test]
fn open_reasoning_dropped_by_a_snapshot_stays_dropped() {
    // Reasoning went on in a text message, so the snapshot that dropped it holds none.
    let events = [run_started("1"), start("m"), end("m"), reasoning_start("m"), snapshot([])];
    let prelude = prelude(events);
    let tail = [
        reasoning("m", "x"),
        Body::ReasoningMessageEnd { message: "m".into() }.into(),
        run_finished("1", None),
    ];
    assert_eq!(violation(prelude.iter().chain(&tail)), None);
    assert_eq!(messages(prelude.into_iter().chain(tail)), []);
}

#[test]
fn old_copy_in_another_order_is_corrected() {
    let before = [run_started("1"), call("c", "x", None), reasoning_start("r"), call("d", "x", None)];
    let after = [result("tc", "c", ""), result("td", "d", "")];
    let prelude = prelude(before.iter().chain(&after).cloned());
    let restated = restated(&prelude);
    assert_eq!(ids(&restated[0]), ["c", "agentwire.join"]);
    assert_eq!(ids(&restated[1]), ["c", "tc", "r", "d", "td"]);
    let mut fold = folded(fold(before), &prelude);
    assert_eq!(ids(fold.messages()), ["c", "tc", "r", "d", "td"]);
}

#[test]
fn old_copy_drops_removed_activities() {
    let plan = [run_started("1"), activity("a", "plan", json!({}))];
    let metadata = json!({"@ag-ui/client": {"authoritativeActivityTypes": null}});
    let prelude = prelude(plan.iter().cloned().chain([with(metadata, snapshot([]))]));
    assert_eq!(folded(fold(plan), &prelude).messages(), []);
}

#[test]
fn the_owner_that_strict_clients_remember_goes_into_the_snapshot() {
    // The span says who reasons, the message in it does not.
    let span = Body::ReasoningStart { message: "r".into(), title: None };
    let prelude = prelude([run_started("1"), by("s", span.into()), reasoning_start("r")]);
    assert_eq!(violation(prelude.iter().chain([&by("s", reasoning("r", "hm"))])), None);
}

#[test]
fn prelude_of_an_ended_run_includes_its_end() {
    let failed = || Event::new(Body::RunError(Box::new(RunError::new("broken", None))));
    let finished = run_finished("1", Some(Outcome::Cancelled));
    let events = [run_started("1"), start("m"), delta("m", "a"), end("m"), finished.clone()];
    let shape = ["RUN_STARTED", "MESSAGES_SNAPSHOT", "STATE_SNAPSHOT"];
    let whole = prelude(events.clone());
    assert_eq!((&kinds(&whole)[..3], &whole[3..]), (&shape[..], &[finished.clone()][..]));
    let late = prelude(events.into_iter().chain([failed()]));
    assert_eq!((&kinds(&late)[..3], &late[3..]), (&shape[..], &[finished, failed()][..]));
    // Items that were open at the failure are not opened again.
    let cut = prelude([run_started("1"), start("m"), failed()]);
    assert_eq!((&kinds(&cut)[..3], &cut[3..]), (&shape[..], &[failed()][..]));
    assert_eq!(prelude([failed()]), [failed()]);
}

#[test]
fn end_lists_pending_calls_for_a_late_reader() {
    let prelude = prelude([run_started("1"), call("c", "x", None), call_end("c"), run_finished("1", None)]);
    assert_eq!(
        prelude.last(),
        Some(&run_finished("1", Some(Outcome::Success { pending: vec!["c".into()] })))
    );
}

#[test]
fn the_next_run_starts_anew() {
    let prelude = prelude([
        run_started("1"),
        start("m"),
        Body::RunError(Box::new(RunError::new("broken", None))).into(),
        run_started("2"),
    ]);
    assert_eq!(kinds(&prelude), ["RUN_STARTED", "MESSAGES_SNAPSHOT", "STATE_SNAPSHOT"]);
    assert_eq!(prelude[0], run_started("2"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn a_reader_that_joins_at_any_point_ends_with_the_same_messages_and_state(
        events in untidy_streams(40),
        left in any::<prop::sample::Index>(),
    ) {
        let (messages, state, ..) = held(folded(Fold::new(), &events));
        let mut join = Join::new(Fold::new());
        let mut rules = Rules::default();
        for cut in 0..=events.len() {
            let (prelude, tail) = (join.prelude(), &events[cut..]);
            // One who was never here, and one who left some time ago.
            for left in [0, left.index(cut + 1)] {
                let old_copy = folded(Fold::new(), &events[..left]);
                let mut joined = folded(old_copy, prelude.iter().chain(tail));
                prop_assert_eq!(joined.messages(), &messages[..], "in at {}, left at {}", cut, left);
                prop_assert_eq!(joined.state(), &state);
            }
            let mut heard = Rules::default();
            for event in &prelude {
                prop_assert_eq!(heard.accept(event), Ok(()), "in at {}: {:?}", cut, event);
            }
            if !cut.checked_sub(1).is_some_and(|last| events[last].is_terminal()) {
                prop_assert_eq!(heard.open(), rules.open());
            }
            prop_assert_eq!(violation(prelude.iter().chain(tail)), None, "in at {}", cut);
            if let Some(event) = events.get(cut) {
                join.apply(event);
                prop_assert_eq!(rules.accept(event), Ok(()));
            }
        }
    }
}
