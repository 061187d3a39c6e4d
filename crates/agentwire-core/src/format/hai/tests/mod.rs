//! HAI: fixtures, and helpers of the tests by topic.

mod builder;
mod input;
mod messages;
mod reader;
mod round_trips;
mod writer;

use std::fs;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::{FORMAT, proto};
use crate::{
    event::{Body, Event, RunFinished, RunStarted},
    format::{
        Format, ag_ui,
        golden::{self, lines, read, read_framed, write},
    },
    framing::Framing,
};

const FIXTURES: &str = "src/format/hai/fixtures";
const AG_UI_FIXTURES: &str = "src/format/ag_ui/fixtures";
const PROFILES: [&str; 3] = ["json-string", "object", "text"];

#[test]
fn fixtures_become_the_expected_events() {
    golden::run(&FORMAT, FIXTURES);
}

fn fixture(name: &str) -> Vec<u8> {
    fs::read(format!("{}/{FIXTURES}/{name}", env!("CARGO_MANIFEST_DIR"))).unwrap()
}

/// The events of every fixture in a folder.
fn all_fixtures(format: &Format, folder: &str) -> Vec<(String, Vec<Event>)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(format!("{}/{folder}", env!("CARGO_MANIFEST_DIR"))).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        if path.is_dir() || name.ends_with(".md") || name.contains(".events.") || name.ends_with(".bin") {
            continue;
        }
        found.push((name, read(format, &fs::read(&path).unwrap(), usize::MAX, &[]).0));
    }
    found.sort_by(|a, b| a.0.cmp(&b.0));
    assert!(!found.is_empty());
    found
}

fn value(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

/// Events as AG-UI objects, without the two redundant roles: the default role of text, and that of tool results.
fn without_default_roles(events: &[Event]) -> Vec<Value> {
    let normalize = |line: &str| {
        let mut event = value(line);
        let default = match event["type"].as_str().unwrap() {
            "TEXT_MESSAGE_START" => "assistant",
            "TOOL_CALL_RESULT" => "tool",
            _ => return event,
        };
        if event["role"] == default {
            event.as_object_mut().unwrap().shift_remove("role");
        }
        event
    };
    lines(events).lines().map(normalize).collect()
}

/// Asserts that events are equal. Timestamps that the source did not have may be added.
#[track_caller]
fn assert_same(name: &str, given: &[Event], back: &[Event]) {
    let (given, mut back) = (without_default_roles(given), without_default_roles(back));
    for (given, back) in given.iter().zip(&mut back) {
        if given["timestamp"].is_null() {
            back.as_object_mut().unwrap().shift_remove("timestamp");
        }
        assert_eq!(back, given, "{name}");
    }
    assert_eq!(back.len(), given.len(), "{name}");
}

fn round_trip(events: &[Event], profile: &str, options: &[&str]) -> Vec<Event> {
    let bytes = write(&FORMAT, profile, None, events, options);
    let (back, failure) = read_framed(&FORMAT, Framing::Sse, &bytes, usize::MAX, &[]);
    assert_eq!(failure, None, "our own output is rejected: {}", String::from_utf8_lossy(&bytes));
    back
}

fn round_trip_proto(events: &[Event]) -> Vec<Event> {
    let bytes = write(&proto::FORMAT, "", None, events, &["include_developer=yes"]);
    let (back, failure) = read_framed(&proto::FORMAT, Framing::Prefixed, &bytes, usize::MAX, &[]);
    assert_eq!(failure, None, "our own output is rejected");
    back
}

/// Frames as objects.
fn frames(bytes: &[u8]) -> Vec<Value> {
    let text = String::from_utf8(bytes.to_vec()).unwrap();
    text.lines().filter_map(|line| line.strip_prefix("data: ")).map(value).collect()
}

/// 48 cases by default; PROPTEST_CASES sets another number.
fn config() -> ProptestConfig {
    let requested = std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok());
    ProptestConfig { cases: requested.unwrap_or(48), failure_persistence: None, ..ProptestConfig::default() }
}

/// The written frames of events.
fn written(events: &[Event], profile: &str, options: &[&str]) -> Vec<Value> {
    frames(&write(&FORMAT, profile, None, events, options))
}

fn kinds(frames: &[Value]) -> Vec<&str> {
    frames.iter().map(|frame| frame["type"].as_str().unwrap()).collect()
}

fn run(bodies: impl IntoIterator<Item = Body>) -> Vec<Event> {
    let start = Body::RunStarted(Box::new(RunStarted::new("t", "r")));
    let end = Body::RunFinished(Box::new(RunFinished::new("t", "r")));
    [start].into_iter().chain(bodies).chain([end]).map(Event::new).collect()
}

fn text(id: &str, deltas: &[&str]) -> Vec<Body> {
    let message = crate::event::MessageId::from(id);
    let mut bodies = vec![Body::TextStart { message: message.clone(), role: None, name: None }];
    bodies.extend(
        deltas.iter().map(|delta| Body::TextDelta { message: message.clone(), delta: (*delta).into() }),
    );
    bodies.push(Body::TextEnd { message });
    bodies
}

/// Parses like the standard's client: joins the deltas, inserts commas between the documents, parses the list.
fn parsed(frames: &[Value], message: &str) -> Vec<Value> {
    let content = frames
        .iter()
        .filter(|frame| frame["type"] == "BUSINESS_DATA_CONTENT" && frame["messageId"] == message);
    let joined: String = content.map(|frame| frame["delta"].as_str().unwrap()).collect();
    serde_json::from_str(&format!("[{}]", joined.replace("}{", "},{"))).unwrap()
}
