use serde_json::{Value, json};

use super::*;
use crate::{
    event::{Body, Event, Message, MessageBody, Outcome, RunInput, StreamEnd, Tool, ToolCall},
    format::Options,
    framing::Framing,
    source::{GuardedSource, SourceOptions},
};

fn sse(frames: &[Value]) -> String {
    frames.iter().map(|frame| format!("data: {frame}\n\n")).collect()
}

fn start() -> Value {
    json!({"type": "message_start", "message": {"id": "m1", "type": "message", "role": "assistant", "content": []}})
}

fn block(index: u32, block: Value) -> Value {
    json!({"type": "content_block_start", "index": index, "content_block": block})
}

fn delta(index: u32, delta: Value) -> Value {
    json!({"type": "content_block_delta", "index": index, "delta": delta})
}

fn stop(reason: &str) -> Vec<Value> {
    vec![json!({"type": "message_delta", "delta": {"stop_reason": reason}}), json!({"type": "message_stop"})]
}

fn read(frames: &[Value]) -> (Vec<Event>, Option<String>) {
    golden::read_framed(&FORMAT, Framing::Sse, sse(frames).as_bytes(), usize::MAX, &[])
}

/// The events of a stream with a known request.
pub(super) fn read_for(frames: &[Value], request: RunInput) -> Vec<Event> {
    let options = SourceOptions {
        thread: request.thread.clone(),
        run: request.run.clone(),
        options: Options::default().for_request(request),
        ..SourceOptions::default()
    };
    let mut source = GuardedSource::new(&FORMAT, Framing::Sse, &options).unwrap();
    let mut events = Vec::new();
    source.push(sse(frames).as_bytes(), &mut |event| events.push(event)).unwrap();
    source.end(&StreamEnd::Closed, &mut |event| events.push(event)).unwrap();
    events
}

#[test]
fn calls_of_declared_tools_are_pending() {
    let mut request = RunInput::new("t", "r");
    for name in ["ask", "web_search"] {
        request.tools.push(Tool {
            name: name.into(),
            description: "".into(),
            parameters: None,
            metadata: None,
        });
    }
    let call = |index, kind: &str, id: &str, name: &str| {
        block(index, json!({"type": kind, "id": id, "name": name, "input": {}}))
    };
    let mut frames = vec![
        start(),
        call(0, "tool_use", "k1", "ask"),
        call(1, "tool_use", "k2", "own"),
        // The server's tool of that name, not the front end's.
        call(2, "server_tool_use", "k3", "web_search"),
    ];
    frames.extend(stop("tool_use"));
    let events = read_for(&frames, request);
    let Some(Body::RunFinished(finished)) = events.last().map(|event| &event.body) else {
        panic!("{events:#?}")
    };
    assert_eq!(finished.outcome, Some(Outcome::Success { pending: vec!["k1".into()] }));
}

#[test]
fn ids_of_the_conversation_are_not_reused() {
    let mut request = RunInput::new("t", "r");
    let calls = vec![ToolCall::new("k1", "ask", "{}")];
    let body = MessageBody::Assistant { content: None, tool_calls: Some(calls) };
    request.messages.push(Message::new("m1", body));
    let mut frames =
        vec![start(), block(0, json!({"type": "tool_use", "id": "k1", "name": "ask", "input": {}}))];
    frames.extend(stop("tool_use"));
    let events = read_for(&frames, request);
    let started = events.iter().find_map(|event| match &event.body {
        Body::ToolStart { call, parent, .. } => Some((call.to_string(), parent.clone())),
        _ => None,
    });
    assert_eq!(started, Some(("r:message:call".into(), Some("r:message".into()))));
}

#[test]
fn fast_path_and_full_decoding_agree() {
    let plain = delta(0, json!({"type": "text_delta", "text": "aé\n"}));
    let mut odd = plain.clone();
    odd["new_member"] = json!(1);
    let with = |frame: Value| {
        let mut frames = vec![start(), block(0, json!({"type": "text", "text": ""})), frame];
        frames.extend(stop("end_turn"));
        read(&frames)
    };
    assert_eq!(with(plain), with(odd));
}

#[test]
fn errors_name_the_path_of_malformed_members() {
    for (frame, path) in [
        (json!({"type": "message_start", "message": 1}), "/message"),
        (json!({"type": "message_start"}), "/message"),
        (json!({"type": "content_block_start", "content_block": {}}), "/index"),
        (block(0, json!({"type": "tool_use", "id": "a"})), "/content_block/name"),
        (block(0, json!({"type": "text", "text": 1})), "/content_block/text"),
        (json!({"type": "message_delta", "delta": {"stop_reason": 1}}), "/delta/stop_reason"),
        (
            json!({"type": "message_delta", "delta": {}, "usage": {"output_tokens": -1}}),
            "/usage/output_tokens",
        ),
        (json!({"type": 7}), "/type"),
    ] {
        let frames =
            if frame["type"] == "message_start" { vec![frame.clone()] } else { vec![start(), frame.clone()] };
        let (_, failure) = read(&frames);
        let last = path.rsplit('/').next().unwrap_or_default();
        let is_named =
            |it: &String| it.contains(&format!("`{path}`")) || it.contains(&format!("`{last}` is missing"));
        assert!(failure.as_ref().is_some_and(is_named), "{frame}: {failure:?}");
    }
}

#[test]
fn unknown_events_are_counted_and_harmless() {
    let options = SourceOptions::default();
    let mut source = GuardedSource::new(&FORMAT, Framing::Sse, &options).unwrap();
    let mut frames =
        vec![json!({"type": "ping"}), start(), json!({"type": "shiny"}), json!({"type": "shiny"})];
    frames.extend(stop("end_turn"));
    source.push(sse(&frames).as_bytes(), &mut |_| {}).unwrap();
    assert_eq!(source.tally().unknown_event_count(), 2);
}

#[test]
fn tables_are_bounded() {
    let mut frames = vec![start()];
    frames.extend((0..5000).map(|index| block(index, json!({"type": "tool_use", "id": "", "name": "f"}))));
    let (events, _) = read(&frames);
    assert_eq!(events.iter().filter(|event| event.kind() == "TOOL_CALL_START").count(), 4096);
}
