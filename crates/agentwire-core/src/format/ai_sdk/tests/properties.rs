//! Property tests: the strictest client accepts the response of any valid run, with the same content.

use std::collections::BTreeMap;

use proptest::prelude::*;
use serde_json::Value;

use super::{
    super::{FORMAT, writer::encode},
    encoded,
    strict_client::{self, ClientContent},
};
use crate::{
    event::{Body, Event, Role, StreamEnd},
    fold::{Fold, arbitrary},
    format::golden,
    framing::Framing,
    order::Guard,
};

/// Content of a run, from its events alone.
fn content_of(events: &[Event]) -> ClientContent {
    let mut content = ClientContent::default();
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
                content.texts.entry(message.to_string()).or_default().push_str(delta);
            }
            Body::ReasoningDelta { message, delta } if !delta.is_empty() => {
                content.reasoning.entry(message.to_string()).or_default().push_str(delta);
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
                    content.calls.insert(call.to_string(), (name.clone(), input));
                }
            }
            Body::ToolResult(result) => {
                let output = match &result.error {
                    Some(error) => Value::from(&**error),
                    None => encode::tool_output(&result.content).to_value(),
                };
                content.outputs.insert(result.call.to_string(), output);
            }
            _ => {}
        }
    }
    content
}

/// Removes MESSAGES_SNAPSHOT, of which a response keeps only new messages, and echoes of requests.
fn without_snapshots(events: Vec<Event>) -> Vec<Event> {
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

/// Events of the first run without results of unknown calls, for which the writer generates calls.
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

/// Final content, state and interrupts of a run.
fn folded(events: &[Event]) -> (ClientContent, Value, Vec<crate::event::Interrupt>) {
    let mut fold = Fold::new();
    for event in events {
        fold.apply(event);
    }
    let mut interrupts = fold.interrupts().to_vec();
    interrupts.sort_by(|a, b| a.id.cmp(&b.id));
    (content_of(events), fold.state().clone(), interrupts)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    #[test]
    fn strictest_client_accepts_any_run(events in arbitrary::streams(80)) {
        for (profile, version) in [("5", 5), ("6", 6), ("7", 7)] {
            strict_client::receive(version, &encoded(profile, &events, &[]));
            strict_client::receive(version, &encoded(profile, &events, &["ui_tools=all", "steps=tools"]));
            if version > 5 {
                // Later versions accept the chunks of version 5.
                strict_client::receive(version, &encoded("5", &events, &[]));
            }
        }
        strict_client::receive4(&encoded("4", &events, &[]));
    }

    #[test]
    fn client_holds_the_content_of_the_run(events in arbitrary::streams(80).prop_map(without_snapshots)) {
        let wanted = content_of(&events);
        for (profile, version) in [("5", 5), ("6", 6), ("7", 7)] {
            let content = strict_client::receive(version, &encoded(profile, &events, &[]));
            prop_assert_eq!(&content.texts, &wanted.texts);
            prop_assert_eq!(&content.reasoning, &wanted.reasoning);
            for (call, wanted) in &wanted.calls {
                prop_assert_eq!(content.calls.get(call), Some(wanted));
            }
            prop_assert_eq!(&content.outputs, &wanted.outputs);
        }
        let content = strict_client::receive4(&encoded("4", &events, &[]));
        let length = |texts: &BTreeMap<String, String>| texts.values().map(String::len).sum::<usize>();
        prop_assert_eq!(length(&content.texts), length(&wanted.texts));
        prop_assert_eq!(length(&content.reasoning), length(&wanted.reasoning));
        let keys = |content: &ClientContent| content.outputs.keys().cloned().collect::<Vec<_>>();
        prop_assert_eq!(keys(&content), keys(&wanted));
    }

    #[test]
    fn response_round_trips(events in arbitrary::streams(60).prop_map(without_snapshots).prop_map(first_run)) {
        let wanted = folded(&events);
        for profile in ["5", "6", "7"] {
            let body = encoded(profile, &events, &[]);
            let (back, failure) = golden::read_framed(&FORMAT, Framing::Sse, body.as_bytes(), usize::MAX, &[]);
            prop_assert_eq!(failure, None);
            prop_assert_eq!(&folded(&back), &wanted);
            let kinds = |events: &[Event]| {
                let compared = ["RUN_STARTED", "RUN_FINISHED", "RUN_ERROR", "STEP_STARTED", "STEP_FINISHED", "CUSTOM",
                    "RAW", "SOURCE", "FILE", "BLOCK", "SUBAGENT_STARTED", "SUBAGENT_FINISHED", "SUBAGENT_ERROR",
                    "COLLABORATION_START", "COLLABORATION_TASK", "COLLABORATION_END"];
                events.iter().map(Event::kind).filter(|kind| compared.contains(kind)).collect::<Vec<_>>()
            };
            prop_assert_eq!(kinds(&back), kinds(&events));
            // The events that were read round-trip as well.
            let second_body = encoded(profile, &back, &[]);
            let (second_events, _) = golden::read_framed(&FORMAT, Framing::Sse, second_body.as_bytes(), 7, &[]);
            prop_assert_eq!(&folded(&second_events), &wanted);
            prop_assert_eq!(kinds(&second_events), kinds(&events));
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
