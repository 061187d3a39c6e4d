//! Any valid run in, a response out that the strictest client accepts and that says the same.

use std::collections::BTreeMap;

use proptest::prelude::*;
use serde_json::Value;

use super::{
    super::{FORMAT, writer::encode},
    strict_client::{self, Held},
    written,
};
use crate::{
    event::{Body, Event, Role, StreamEnd},
    fold::{Fold, arbitrary},
    format::golden,
    framing::Framing,
    order::Guard,
};

/// What a run said, from its events alone.
fn said(events: &[Event]) -> Held {
    let mut held = Held::default();
    let mut roles = BTreeMap::new();
    let mut names: BTreeMap<String, (String, String)> = BTreeMap::new();
    for event in events {
        match &event.body {
            Body::TextStart { message, role, .. } => {
                roles.insert(message.to_string(), role.unwrap_or(Role::Assistant));
            }
            Body::TextDelta { message, delta }
                if roles.get(message.as_str()) == Some(&Role::Assistant) && !delta.is_empty() =>
            {
                held.texts.entry(message.to_string()).or_default().push_str(delta);
            }
            Body::ReasoningDelta { message, delta } if !delta.is_empty() => {
                held.thoughts.entry(message.to_string()).or_default().push_str(delta);
            }
            Body::ToolStart { call, name, .. } => {
                names.insert(call.to_string(), (name.to_string(), String::new()));
            }
            Body::ToolArgs { call, delta } => {
                if let Some((_, arguments)) = names.get_mut(call.as_str()) {
                    arguments.push_str(delta);
                }
            }
            Body::ToolEnd { call } => {
                if let Some((name, arguments)) = names.get(call.as_str()) {
                    let input = encode::tool_input(arguments).to_value();
                    held.calls.insert(call.to_string(), (name.clone(), input));
                }
            }
            Body::ToolResult(result) => {
                let output = match &result.error {
                    Some(error) => Value::from(&**error),
                    None => encode::tool_output(&result.content).to_value(),
                };
                held.outputs.insert(result.call.to_string(), output);
            }
            _ => {}
        }
    }
    held
}

/// Without restated conversations, which a response only adds to, and without echoes of requests.
fn plain(events: Vec<Event>) -> Vec<Event> {
    let kept = events.into_iter().filter(|event| !matches!(event.body, Body::MessagesSnapshot { .. }));
    let mut guard = Guard::new("t", "r");
    let mut out = Vec::new();
    for mut event in kept {
        if let Body::RunStarted(started) = &mut event.body {
            started.input = None;
        }
        guard.push(event, &mut out);
    }
    guard.end(&StreamEnd::Closed, &mut out);
    out
}

/// The events of the first run, without results of calls that it never made: those get a call of their own.
fn first_run(events: Vec<Event>) -> Vec<Event> {
    let end = events.iter().position(Event::is_terminal).map_or(events.len(), |index| index + 1);
    let mut calls = std::collections::HashSet::new();
    let kept = events.into_iter().take(end).filter(|event| match &event.body {
        Body::ToolStart { call, .. } => {
            calls.insert(call.clone());
            true
        }
        Body::ToolResult(result) => calls.contains(&result.call),
        _ => true,
    });
    kept.collect()
}

/// What a message is in the end, without what the wire cannot carry.
fn folded(events: &[Event]) -> (Held, Value, Vec<crate::event::Interrupt>) {
    let mut fold = Fold::new();
    for event in events {
        fold.apply(event);
    }
    let mut interrupts = fold.interrupts().to_vec();
    interrupts.sort_by(|a, b| a.id.cmp(&b.id));
    (said(events), fold.state().clone(), interrupts)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    #[test]
    fn the_strictest_client_accepts_any_run(events in arbitrary::streams(80)) {
        for (profile, version) in [("5", 5), ("6", 6), ("7", 7)] {
            strict_client::receive(version, &written(profile, &events, &[]));
            strict_client::receive(version, &written(profile, &events, &["ui_tools=all", "steps=tools"]));
            if version > 5 {
                // What the first build of a version accepts, the later ones do.
                strict_client::receive(version, &written("5", &events, &[]));
            }
        }
        strict_client::receive4(&written("4", &events, &[]));
    }

    #[test]
    fn a_client_holds_what_the_run_said(events in arbitrary::streams(80).prop_map(plain)) {
        let wanted = said(&events);
        for (profile, version) in [("5", 5), ("6", 6), ("7", 7)] {
            let held = strict_client::receive(version, &written(profile, &events, &[]));
            prop_assert_eq!(&held.texts, &wanted.texts);
            prop_assert_eq!(&held.thoughts, &wanted.thoughts);
            for (call, wanted) in &wanted.calls {
                prop_assert_eq!(held.calls.get(call), Some(wanted));
            }
            prop_assert_eq!(&held.outputs, &wanted.outputs);
        }
        let held = strict_client::receive4(&written("4", &events, &[]));
        let length = |texts: &BTreeMap<String, String>| texts.values().map(String::len).sum::<usize>();
        prop_assert_eq!(length(&held.texts), length(&wanted.texts));
        prop_assert_eq!(length(&held.thoughts), length(&wanted.thoughts));
        let keys = |held: &Held| held.outputs.keys().cloned().collect::<Vec<_>>();
        prop_assert_eq!(keys(&held), keys(&wanted));
    }

    #[test]
    fn a_response_can_be_read_back(events in arbitrary::streams(60).prop_map(plain).prop_map(first_run)) {
        let wanted = folded(&events);
        for profile in ["5", "6", "7"] {
            let body = written(profile, &events, &[]);
            let (back, failure) = golden::read_framed(&FORMAT, Framing::Sse, body.as_bytes(), usize::MAX, &[]);
            prop_assert_eq!(failure, None);
            prop_assert_eq!(&folded(&back), &wanted);
            let kinds = |events: &[Event]| {
                let told = ["RUN_STARTED", "RUN_FINISHED", "RUN_ERROR", "STEP_STARTED", "STEP_FINISHED", "CUSTOM",
                    "RAW", "SOURCE", "FILE", "BLOCK", "SUBAGENT_STARTED", "SUBAGENT_FINISHED", "SUBAGENT_ERROR",
                    "COLLABORATION_START", "COLLABORATION_TASK", "COLLABORATION_END"];
                events.iter().map(Event::kind).filter(|kind| told.contains(kind)).collect::<Vec<_>>()
            };
            prop_assert_eq!(kinds(&back), kinds(&events));
            // And so can what was read.
            let again = written(profile, &back, &[]);
            let (once_more, _) = golden::read_framed(&FORMAT, Framing::Sse, again.as_bytes(), 7, &[]);
            prop_assert_eq!(&folded(&once_more), &wanted);
            prop_assert_eq!(kinds(&once_more), kinds(&events));
        }
    }

    #[test]
    fn any_bytes_give_a_valid_stream(bytes in proptest::collection::vec(any::<u8>(), 0..400), coded in any::<bool>()) {
        let framing = if coded { Framing::Coded } else { Framing::Sse };
        let mut input = if coded { b"0:\"a\"\n".to_vec() } else { b"data: {\"type\":\"start\"}\n\ndata: ".to_vec() };
        input.extend(&bytes);
        let whole = golden::read_framed(&FORMAT, framing, &input, usize::MAX, &[]);
        prop_assert_eq!(&golden::read_framed(&FORMAT, framing, &input, 1, &[]), &whole);
        let mut checker = crate::order::Checker::new();
        for event in &whole.0 {
            prop_assert_eq!(checker.check(event), None);
        }
    }
}
