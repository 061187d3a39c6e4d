mod errors;
mod input;
mod malformed;
mod metadata;
mod mutations;
mod pending;
mod reused_ids;
mod spelling;
mod state;
mod steps;
mod stored_sessions;
mod streaming;
mod subagents;
mod tool_calls;

use serde_json::{Value, json};

use super::FORMAT;
use crate::{
    event::{Body, Event, Message, MessageBody, Outcome, RunInput, StreamEnd, Tool},
    fold::Fold,
    format::{Options, golden},
    framing::{Framing, detect},
    json::Json,
    order::Checker,
    source::{GuardedSource, SourceOptions},
    tally::Tally,
};

#[test]
fn golden_files() {
    golden::run(&FORMAT, "src/format/adk/fixtures");
}

/// An event of 2.x with additional `members`.
fn event(members: Value) -> Value {
    let mut event = json!({"id": "e1", "invocationId": "i1", "author": "agent", "timestamp": 1.5});
    for (key, value) in members.as_object().unwrap() {
        event[key] = value.clone();
    }
    event
}

fn text(text: &str) -> Value {
    json!({"role": "model", "parts": [{"text": text}]})
}

fn call(id: &str, name: &str) -> Value {
    json!({"role": "model", "parts": [{"functionCall": {"id": id, "name": name, "args": {}}}]})
}

fn response(id: &str, name: &str, response: Value) -> Value {
    json!({"role": "user", "parts": [{"functionResponse": {"id": id, "name": name, "response": response}}]})
}

fn read(events: &[Value]) -> Vec<Value> {
    read_with(events, &[])
}

fn read_with(events: &[Value], options: &[&str]) -> Vec<Value> {
    let lines: String = events.iter().map(|event| format!("{event}\n")).collect();
    read_bytes(lines.as_bytes(), Framing::Lines, options)
}

/// The events as AG-UI JSON. Also checks the order rules, and that reading single bytes gives the same events.
fn read_bytes(bytes: &[u8], framing: Framing, options: &[&str]) -> Vec<Value> {
    let (events, failure) = golden::read_framed(&FORMAT, framing, bytes, usize::MAX, options);
    assert_eq!(golden::read_framed(&FORMAT, framing, bytes, 1, options), (events.clone(), failure));
    check(&events);
    values(&events)
}

fn check(events: &[Event]) {
    let mut checker = Checker::new();
    for event in events {
        assert_eq!(checker.check(event), None);
    }
    assert_eq!(checker.end(), None);
}

fn values(events: &[Event]) -> Vec<Value> {
    golden::lines(events).lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn read_for(events: &[Value], input: RunInput) -> Vec<Event> {
    let options =
        SourceOptions { options: Options::default().for_request(input), ..SourceOptions::default() };
    let mut source = GuardedSource::new(&FORMAT, Framing::Lines, &options).unwrap();
    let mut out = Vec::new();
    let mut sink = |event| out.push(event);
    for event in events {
        source.push(format!("{event}\n").as_bytes(), &mut sink).unwrap();
    }
    source.end(&StreamEnd::Closed, &mut sink).unwrap();
    check(&out);
    out
}

/// Converts AG-UI values back to events, for folding.
fn golden_events(values: &[Value]) -> Vec<Event> {
    let lines: String = values.iter().map(|value| format!("{value}\n")).collect();
    let format = &crate::format::ag_ui::FORMAT;
    golden::read_framed(format, Framing::Lines, lines.as_bytes(), usize::MAX, &[]).0
}

fn kinds(events: &[Value]) -> Vec<&str> {
    events.iter().map(|event| event["type"].as_str().unwrap()).collect()
}

fn of_type<'v>(events: &'v [Value], kind: &str) -> Vec<&'v Value> {
    events.iter().filter(|event| event["type"] == kind).collect()
}

fn custom<'v>(events: &'v [Value], name: &str) -> Vec<&'v Value> {
    of_type(events, "CUSTOM")
        .into_iter()
        .filter(|event| event["name"] == name)
        .map(|event| &event["value"])
        .collect()
}

fn text_of(events: &[Value]) -> String {
    of_type(events, "TEXT_MESSAGE_CONTENT").iter().map(|event| event["delta"].as_str().unwrap()).collect()
}

fn last(events: &[Value]) -> &Value {
    events.last().unwrap()
}

/// The recordings, by name.
fn recordings() -> Vec<(String, Vec<u8>)> {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src/format/adk/fixtures");
    let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut all: Vec<_> = files
        .map(|path| (path.file_name().unwrap().to_str().unwrap().to_owned(), path))
        .filter(|(name, _)| !name.ends_with(".md") && !name.contains(".events."))
        .map(|(name, path)| (name, std::fs::read(path).unwrap()))
        .collect();
    all.sort();
    all
}

#[test]
fn recordings_need_no_repair() {
    for (name, bytes) in recordings() {
        let framing = detect(&bytes, FORMAT.reads).unwrap();
        for pairs in [&[][..], &["subagents=on"]] {
            let options = Options::parse(pairs.iter().copied(), FORMAT.options).unwrap();
            let options = SourceOptions { options, ..SourceOptions::default() };
            let mut source = GuardedSource::new(&FORMAT, framing, &options).unwrap();
            source.push(&bytes, &mut |_| {}).unwrap();
            source.end(&StreamEnd::Closed, &mut |_| {}).unwrap();
            assert_eq!(source.repairs().collect::<Vec<_>>(), [], "{name} {pairs:?}");
        }
    }
}

#[test]
fn out_of_range_timestamps_are_omitted() {
    for time in ["1e300", "-1e300", "9007199254741", "1e16"] {
        let line =
            format!(r#"{{"author":"a","id":"e","timestamp":{time},"content":{{"parts":[{{"text":"x"}}]}}}}"#);
        let events = read_bytes(line.as_bytes(), Framing::Lines, &[]);
        assert!(events.iter().all(|event| event.get("timestamp").is_none()), "{time}");
    }
}

#[test]
fn option_values_are_checked() {
    assert!(Options::parse(["raw=attach"], FORMAT.options).is_ok());
    assert!(Options::parse(["raw=maybe"], FORMAT.options).is_err());
}
