//! Tests of the guard and the checker.

use proptest::prelude::*;

use super::{Checker, Guard, Rule};
use crate::{
    event::{
        Body, Content, EncryptedEntity, Event, Interrupt, Message, Outcome, RunError, RunFinished,
        RunStarted, StreamEnd, SubagentId, SubagentStarted, ToolResult,
    },
    json::{Json, Object},
    patch::Patch,
};

/// Any event at all, over so few ids that collisions are the rule.
fn any_body() -> impl Strategy<Value = Body> {
    let id = prop::sample::select(vec!["a", "b", "c"]);
    let text = (id.clone(), 0..3u8).prop_map(|(id, which)| match which {
        0 => Body::TextStart { message: id.into(), role: None, name: None },
        1 => Body::TextDelta { message: id.into(), delta: "x".into() },
        _ => Body::TextEnd { message: id.into() },
    });
    let tool =
        (id.clone(), 0..5u8, prop::option::of(id.clone())).prop_map(|(id, which, parent)| match which {
            0 => Body::ToolStart { call: id.into(), name: "tool".into(), parent: parent.map(Into::into) },
            1 => Body::ToolArgs { call: id.into(), delta: "{}".into() },
            2 => Body::ToolEnd { call: id.into() },
            _ => Body::ToolResult(Box::new(ToolResult {
                message: parent.unwrap_or("r").into(),
                call: id.into(),
                content: Content::from("done"),
                error: None,
                explicit_role: false,
            })),
        });
    let reasoning = (id.clone(), 0..6u8).prop_map(|(id, which)| match which {
        0 => Body::ReasoningStart { message: id.into(), title: None },
        1 => Body::ReasoningMessageStart { message: id.into() },
        2 => Body::ReasoningDelta { message: id.into(), delta: "x".into() },
        3 => Body::ReasoningMessageEnd { message: id.into() },
        4 => Body::ReasoningEnd { message: id.into() },
        _ => Body::ReasoningEncrypted { entity: EncryptedEntity::Message(id.into()), value: "secret".into() },
    });
    let step = (id.clone(), any::<bool>()).prop_map(|(id, start)| {
        if start { Body::StepStarted { name: id.into() } } else { Body::StepFinished { name: id.into() } }
    });
    let subagent = (0..4u8, prop::option::of(id.clone())).prop_map(|(which, parent)| match which {
        0 | 1 => Body::SubagentStarted(Box::new(SubagentStarted {
            name: "helper".into(),
            description: None,
            parent_subagent: parent.map(Into::into),
            parent_call: None,
            parent_message: None,
        })),
        2 => Body::SubagentFinished { result: None, outcome: None },
        _ => Body::SubagentError { message: "no".into(), code: None },
    });
    let activity =
        (id.clone(), 0..4u8, prop::option::of(any::<bool>())).prop_map(|(id, which, replace)| match which {
            0 => Body::ActivitySnapshot {
                message: id.into(),
                kind: "plan".into(),
                content: Object::empty(),
                replace,
            },
            1 => Body::ActivityDelta { message: id.into(), kind: "plan".into(), patch: Patch::default() },
            2 => Body::CollaborationStart {
                id: id.into(),
                message: None,
                from: "USER".into(),
                to: "planner".into(),
            },
            _ => Body::CollaborationEnd { id: id.into() },
        });
    let run = (id.clone(), 0..8u8).prop_map(|(id, which)| match which {
        0 | 1 => Body::RunStarted(Box::new(RunStarted::new("t", id))),
        2 | 3 => Body::RunFinished(Box::new(RunFinished::new("t", id))),
        4 => {
            let mut finished = RunFinished::new("t2", id);
            let interrupts = vec![Interrupt::new("i", "why"), Interrupt::new("i", "again")];
            finished.outcome = Some(Outcome::Interrupt { interrupts });
            Body::RunFinished(Box::new(finished))
        }
        5 => {
            let mut finished = RunFinished::new("t", id);
            finished.outcome = Some(Outcome::Interrupt { interrupts: Vec::new() });
            Body::RunFinished(Box::new(finished))
        }
        6 => Body::RunStarted(Box::new(RunStarted::new("other thread", id))),
        _ => Body::RunError(Box::new(RunError::new("broken", None))),
    });
    let snapshot = (id, prop::option::of(prop::sample::select(vec!["a", "b"]))).prop_map(|(id, owner)| {
        let mut message = Message::assistant(id, "text");
        message.subagent = owner.map(Into::into);
        Body::MessagesSnapshot { messages: vec![message] }
    });
    let plain = Just(Body::Custom { name: "n".into(), value: Json::null() });
    prop_oneof![4 => text, 4 => tool, 3 => reasoning, 2 => step, 2 => subagent, 2 => activity, 2 => run,
                1 => snapshot, 1 => plain]
}

fn any_event() -> impl Strategy<Value = Event> {
    // Mostly untagged, as in real streams; the empty id is legal and distinct from all others.
    let tag = prop::sample::select(vec![None, None, None, Some("a"), Some("b"), Some("")]);
    (any_body(), tag).prop_map(|(body, tag)| Event::new(body).by(tag.map(SubagentId::from)))
}

fn guarded(events: &[Event]) -> (Vec<Event>, Guard) {
    let mut guard = Guard::new("t", "r");
    let mut out = Vec::new();
    for event in events {
        guard.push(event.clone(), &mut out);
    }
    guard.end(&StreamEnd::Closed, &mut out);
    (out, guard)
}

fn violations(events: &[Event]) -> Vec<String> {
    let mut checker = Checker::new();
    let mut violations: Vec<_> = events.iter().filter_map(|event| checker.check(event)).collect();
    violations.extend(checker.end());
    violations.iter().map(ToString::to_string).collect()
}

/// Between two RUN_STARTED there is exactly one terminal event, and it is the last.
fn assert_endings(events: &[Event]) {
    let mut active = false;
    for event in events {
        match &event.body {
            Body::RunStarted(_) => {
                assert!(!active);
                active = true;
            }
            Body::RunFinished(_) | Body::RunError(_) => active = false,
            _ => assert!(active, "{event:?} outside a run"),
        }
    }
    assert!(!active);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_sequence_becomes_valid(events in prop::collection::vec(any_event(), 0..40)) {
        let (out, _) = guarded(&events);
        prop_assert_eq!(violations(&out), Vec::<String>::new());
        assert_endings(&out);
    }

    #[test]
    fn valid_streams_pass_unchanged(events in prop::collection::vec(any_event(), 0..40)) {
        let (valid, _) = guarded(&events);
        let (again, guard) = guarded(&valid);
        prop_assert_eq!(&again, &valid);
        prop_assert_eq!(guard.repairs().count(), 0);
    }

    #[test]
    fn repeated_deltas_are_judged_like_any_others(
        events in prop::collection::vec((any_event(), 1..3usize), 0..40),
    ) {
        let events: Vec<_> =
            events.into_iter().flat_map(|(event, times)| vec![event; times]).collect();
        let mut guard = Guard::new("t", "r");
        let mut out = Vec::new();
        for event in &events {
            guard.track.forget_latest_delta();
            guard.push(event.clone(), &mut out);
        }
        guard.end(&StreamEnd::Closed, &mut out);
        let (expected, remembering) = guarded(&events);
        prop_assert_eq!(&out, &expected);
        prop_assert_eq!(guard.repairs().collect::<Vec<_>>(), remembering.repairs().collect::<Vec<_>>());
        // As a source does it: such an event need not be given to the guard.
        let mut skipping = Guard::new("t", "r");
        let mut out = Vec::new();
        for event in &events {
            if skipping.accepts_unchecked(event) {
                out.push(event.clone());
            } else {
                skipping.push(event.clone(), &mut out);
            }
        }
        skipping.end(&StreamEnd::Closed, &mut out);
        prop_assert_eq!(out, expected);
        prop_assert_eq!(guard.repairs().collect::<Vec<_>>(), skipping.repairs().collect::<Vec<_>>());
    }

    #[test]
    fn mutations_of_valid_streams_become_valid(
        events in prop::collection::vec(any_event(), 1..40),
        mutations in prop::collection::vec((0..4u8, any::<prop::sample::Index>(), any::<prop::sample::Index>()), 1..6),
    ) {
        let (mut stream, _) = guarded(&events);
        for (kind, at, other) in mutations {
            if stream.is_empty() {
                break;
            }
            let (at, other) = (at.index(stream.len()), other.index(stream.len()));
            match kind {
                0 => drop(stream.remove(at)),
                1 => stream.insert(other, stream[at].clone()),
                2 => stream.swap(at, other),
                _ => stream.truncate(at),
            }
        }
        let (out, _) = guarded(&stream);
        prop_assert_eq!(violations(&out), Vec::<String>::new());
        assert_endings(&out);
    }
}

fn kinds(events: &[Event]) -> Vec<&'static str> {
    events.iter().map(Event::kind).collect()
}

fn start() -> Event {
    Event::new(Body::RunStarted(Box::new(RunStarted::new("t", "r"))))
}

fn finish() -> Event {
    Event::new(Body::RunFinished(Box::new(RunFinished::new("t", "r"))))
}

#[test]
fn open_items_close_from_the_inside_out() {
    let subagent = Some(SubagentId::from("s"));
    let inner = |body| Event::new(body).by(subagent.clone());
    let events = [
        start(),
        inner(Body::SubagentStarted(Box::new(SubagentStarted {
            name: "helper".into(),
            description: None,
            parent_subagent: None,
            parent_call: None,
            parent_message: None,
        }))),
        inner(Body::StepStarted { name: "outer".into() }),
        inner(Body::StepStarted { name: "inner".into() }),
        inner(Body::ReasoningStart { message: "m".into(), title: None }),
        inner(Body::ReasoningMessageStart { message: "m".into() }),
        inner(Body::TextStart { message: "m".into(), role: None, name: None }),
        inner(Body::ToolStart { call: "c".into(), name: "t".into(), parent: Some("m".into()) }),
        finish(),
    ];
    let (out, guard) = guarded(&events);
    let closing = [
        "TOOL_CALL_END",
        "TEXT_MESSAGE_END",
        "REASONING_MESSAGE_END",
        "REASONING_END",
        "STEP_FINISHED",
        "STEP_FINISHED",
        "SUBAGENT_FINISHED",
        "RUN_FINISHED",
    ];
    assert_eq!(kinds(&out[8..]), closing);
    assert!(matches!(&out[12].body, Body::StepFinished { name } if &**name == "inner"));
    assert!(out[8..15].iter().all(|event| event.subagent == subagent), "owners close what they opened");
    assert_eq!(guard.repairs().collect::<Vec<_>>(), [(Rule::Unclosed, 1)]);
}

#[test]
fn everything_is_closed_before_a_failure_too() {
    let open = Event::new(Body::TextStart { message: "m".into(), role: None, name: None });
    let error = Event::new(Body::RunError(Box::new(RunError::new("broken", Some("X")))));
    let (out, _) = guarded(&[start(), open, error.clone()]);
    assert_eq!(kinds(&out), ["RUN_STARTED", "TEXT_MESSAGE_START", "TEXT_MESSAGE_END", "RUN_ERROR"]);
    assert_eq!(out[3], error);
}

#[test]
fn a_run_ends_once() {
    let error = Event::new(Body::RunError(Box::new(RunError::new("late", None))));
    let late = Event::new(Body::TextDelta { message: "m".into(), delta: "x".into() });
    let (out, guard) = guarded(&[start(), finish(), error.clone(), late.clone(), finish()]);
    assert_eq!(kinds(&out), ["RUN_STARTED", "RUN_FINISHED"]);
    assert_eq!(guard.repairs().collect::<Vec<_>>(), [(Rule::RunOver, 2), (Rule::OneTerminal, 1)]);
    let (out, _) = guarded(&[start(), error, finish(), late]);
    assert_eq!(kinds(&out), ["RUN_STARTED", "RUN_ERROR"]);
}

#[test]
fn empty_stream_is_a_truncated_run() {
    let (out, _) = guarded(&[]);
    assert_eq!(kinds(&out), ["RUN_STARTED", "RUN_ERROR"]);
    let Body::RunError(error) = &out[1].body else { panic!("{out:?}") };
    assert_eq!(error.code.as_deref(), Some("STREAM_TRUNCATED"));
}

#[test]
fn an_error_alone_is_a_valid_stream() {
    let error = Event::new(Body::RunError(Box::new(RunError::new("no", None))));
    let (out, guard) = guarded(std::slice::from_ref(&error));
    assert_eq!((out, guard.repairs().count()), (vec![error], 0));
}

#[test]
fn text_after_its_end_is_kept_by_opening_the_message_again() {
    let body = |body| Event::new(body);
    let events = [
        start(),
        body(Body::TextStart { message: "m".into(), role: None, name: None }),
        body(Body::TextEnd { message: "m".into() }),
        body(Body::TextDelta { message: "m".into(), delta: "late".into() }),
        body(Body::ToolStart { call: "c".into(), name: "t".into(), parent: None }),
        body(Body::ToolEnd { call: "c".into() }),
        body(Body::ToolArgs { call: "c".into(), delta: "{}".into() }),
        body(Body::ToolArgs { call: "unknown".into(), delta: "{}".into() }),
        finish(),
    ];
    let (out, guard) = guarded(&events);
    let deltas =
        out.iter().filter(|event| matches!(event.body, Body::TextDelta { .. } | Body::ToolArgs { .. }));
    assert_eq!(deltas.count(), 2, "only the call without a name cannot be placed");
    assert_eq!(violations(&out), Vec::<String>::new());
    let repairs: Vec<_> = guard.repairs().collect();
    assert_eq!(repairs, [(Rule::Unclosed, 1), (Rule::TextNotOpen, 1), (Rule::ToolNotOpen, 2)]);
}

#[test]
fn another_run_ends_the_one_before_it() {
    let other = Event::new(Body::RunStarted(Box::new(RunStarted::new("t", "r2"))));
    let (out, _) = guarded(&[start(), start(), other]);
    assert_eq!(kinds(&out), ["RUN_STARTED", "RUN_ERROR", "RUN_STARTED", "RUN_ERROR"]);
}

#[test]
fn late_start_belongs_to_the_running_run() {
    let early = Event::new(Body::Custom { name: "early".into(), value: Json::null() });
    let other = Event::new(Body::RunStarted(Box::new(RunStarted::new("t", "r9"))));
    let finish = Event::new(Body::RunFinished(Box::new(RunFinished::new("t", "r9"))));
    let (out, _) = guarded(&[early, other.clone(), finish.clone(), other, finish]);
    assert_eq!(kinds(&out), ["RUN_STARTED", "CUSTOM", "RUN_FINISHED", "RUN_STARTED", "RUN_FINISHED"]);
}

#[test]
fn violations_name_position_rule_expected_and_found() {
    let events = [
        start(),
        Event::new(Body::TextStart { message: "m1".into(), role: None, name: None }),
        Event::new(Body::TextDelta { message: "m1".into(), delta: "x".into() }).by(Some("s1".into())),
        Event::new(Body::ToolArgs { call: "c1".into(), delta: "x".into() }),
        Event::new(Body::StepStarted { name: "tools".into() }),
        Event::new(Body::StepFinished { name: "tools".into() }).by(Some("s1".into())),
        finish(),
        finish(),
    ];
    insta::assert_snapshot!(violations(&events).join("\n"), @r"
    event 2: owner: expected the owner, the main agent, or no owner, found TEXT_MESSAGE_CONTENT `m1` of subagent `s1`
    event 3: tool-not-open: expected TOOL_CALL_START of the same id first, found TOOL_CALL_ARGS `c1`
    event 5: step-owner: expected the end of step `tools` by the main agent, found STEP_FINISHED `tools` of subagent `s1`
    event 6: unclosed: expected the end of text message `m1` first, found RUN_FINISHED `r`
    event 7: run-over: expected RUN_STARTED or nothing after RUN_FINISHED, found RUN_FINISHED `r`
    ");
}

#[test]
fn memory_stays_bounded_under_a_flood_of_openings() {
    let mut guard = Guard::new("t", "r");
    let mut out = Vec::new();
    guard.push(start(), &mut out);
    for n in 0..60_000 {
        let message = format!("m{n}").into();
        guard.push(Event::new(Body::TextStart { message, role: None, name: None }), &mut out);
    }
    assert!(guard.repairs().any(|(rule, _)| rule == Rule::TooManyOpen));
    guard.end(&StreamEnd::Closed, &mut out);
    assert_eq!(violations(&out), Vec::<String>::new());
}

#[test]
fn rule_names_are_unique() {
    let mut names: Vec<_> = Rule::ALL.iter().map(|rule| rule.name()).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), Rule::ALL.len());
}
