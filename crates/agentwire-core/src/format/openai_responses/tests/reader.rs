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

fn added(index: u32, item: Value) -> Value {
    json!({"type": "response.output_item.added", "output_index": index, "item": item})
}

fn completed() -> Value {
    json!({"type": "response.completed", "response": {"id": "resp", "status": "completed"}})
}

fn text(index: u32, part: u32, delta: &str) -> Value {
    let kind = "response.output_text.delta";
    json!({"type": kind, "output_index": index, "content_index": part, "item_id": "m1", "delta": delta})
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

fn call(id: &str, name: &str) -> Value {
    json!({"type": "function_call", "id": "fc", "call_id": id, "name": name, "arguments": "{}"})
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
    let search = json!({"type": "web_search_call", "id": "ws", "status": "in_progress"});
    let frames = [added(0, call("k1", "ask")), added(1, call("k2", "own")), added(2, search), completed()];
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
    let events = read_for(&[added(0, call("k1", "ask")), completed()], request);
    let started = events.iter().find_map(|event| match &event.body {
        Body::ToolStart { call, .. } => Some(call.to_string()),
        _ => None,
    });
    assert_eq!(started.as_deref(), Some("r:message:call"));
}

#[test]
fn fast_path_and_full_decoding_agree() {
    let item = json!({"type": "message", "id": "m1", "role": "assistant", "content": []});
    let mut odd = text(0, 0, "aé\n");
    odd["new_member"] = json!(1);
    let with = |frame: Value| read(&[added(0, item.clone()), frame, completed()]);
    assert_eq!(with(text(0, 0, "aé\n")), with(odd));
}

#[test]
fn parts_of_a_message_are_one_text() {
    let item = json!({"type": "message", "id": "m1", "role": "assistant", "content": []});
    let (events, _) = read(&[added(0, item), text(0, 0, "a"), text(0, 1, "b"), completed()]);
    let mut fold = crate::fold::Fold::new();
    events.iter().for_each(|event| fold.apply(event));
    let [message] = fold.messages() else { panic!("{events:#?}") };
    assert_eq!(message.body, MessageBody::Assistant { content: Some("ab".into()), tool_calls: None });
}

/// The texts and arguments of a stream, joined, and its number of notes.
fn joined(frames: &[Value]) -> (String, String, u64) {
    let mut source = GuardedSource::new(&FORMAT, Framing::Sse, &SourceOptions::default()).unwrap();
    let (mut text, mut arguments) = (String::new(), String::new());
    let mut collect = |event: Event| match event.body {
        Body::TextDelta { delta, .. } | Body::ReasoningDelta { delta, .. } => text.push_str(&delta),
        Body::ToolArgs { delta, .. } => arguments.push_str(&delta),
        _ => {}
    };
    source.push(sse(frames).as_bytes(), &mut collect).unwrap();
    source.end(&StreamEnd::Closed, &mut collect).unwrap();
    let notes = source.tally().iter().map(|(_, _, count)| count.times).sum();
    (text, arguments, notes)
}

#[test]
fn a_whole_text_adds_what_its_deltas_did_not_have() {
    let item = json!({"type": "message", "id": "m1", "role": "assistant", "content": []});
    let done = |text: &str| {
        let kind = "response.output_text.done";
        json!({"type": kind, "output_index": 0, "content_index": 0, "text": text})
    };
    let whole = |text: &str| {
        let content = [json!({"type": "output_text", "text": text, "annotations": []})];
        let item = json!({"type": "message", "id": "m1", "role": "assistant", "content": content});
        json!({"type": "response.output_item.done", "output_index": 0, "item": item})
    };
    let start = || [added(0, item.clone()), text(0, 0, "Grü")];
    for (ends, expected, notes) in [
        (vec![done("Grüße")], "Grüße", 0),
        (vec![done("Grüße"), whole("Grüße")], "Grüße", 0),
        (vec![whole("Grüße")], "Grüße", 0),
        (vec![done("Grü"), whole("")], "Grü", 0),
        (vec![done("Other")], "Grü", 1),
        (vec![done("Gr")], "Grü", 1),
    ] {
        let frames: Vec<_> = start().into_iter().chain(ends).chain([completed()]).collect();
        assert_eq!(joined(&frames), (expected.to_owned(), String::new(), notes), "{frames:#?}");
    }
    let call = json!({"type": "function_call", "id": "fc", "call_id": "k", "name": "f", "arguments": ""});
    let of_call = |kind: &str, member: &str, text: &str| {
        let kind = format!("response.function_call_arguments.{kind}");
        json!({"type": kind, "output_index": 0, member: text})
    };
    let delta = of_call("delta", "delta", "{\"a\":");
    for (whole, expected, notes) in [("{\"a\":1}", "{\"a\":1}", 0), ("{\"b\":1}", "{\"a\":", 1)] {
        let done = of_call("done", "arguments", whole);
        let frames = [added(0, call.clone()), delta.clone(), done, completed()];
        assert_eq!(joined(&frames), (String::new(), expected.to_owned(), notes));
    }
}

#[test]
fn a_call_that_broke_off_has_no_invented_arguments() {
    let (events, _) =
        read(&[added(0, json!({"type": "function_call", "id": "fc", "call_id": "k", "name": "f"}))]);
    assert!(events.iter().all(|event| event.kind() != "TOOL_CALL_ARGS"), "{events:#?}");
    let Some(Body::RunError(error)) = events.last().map(|event| &event.body) else { panic!("{events:#?}") };
    assert_eq!(error.code.as_deref(), Some("STREAM_TRUNCATED"));
}

#[test]
fn errors_name_the_path_of_malformed_members() {
    for (frame, path) in [
        (json!({"type": "response.created"}), "/response"),
        (json!({"type": "response.output_item.added", "output_index": "x", "item": {}}), "/output_index"),
        (added(0, json!({"type": "function_call"})), "/item/name"),
        (added(0, json!(1)), "/item"),
        (json!({"type": "response.output_text.delta", "delta": 1}), "/delta"),
        (
            json!({"type": "response.completed", "response": {"usage": {"input_tokens": -1}}}),
            "/response/usage/input_tokens",
        ),
        (json!({"type": "response.completed", "response": {"output": {}}}), "/response/output"),
    ] {
        let (_, failure) = read(std::slice::from_ref(&frame));
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
    let frames = [json!({"type": "keepalive"}), json!({"type": "response.shiny"}), completed()];
    source.push(sse(&frames).as_bytes(), &mut |_| {}).unwrap();
    assert_eq!(source.tally().unknown_event_count(), 1);
}

#[test]
fn tables_are_bounded() {
    let frames: Vec<Value> = (0..5000).map(|index| added(index, call("", "f"))).collect();
    let (events, _) = read(&frames);
    assert_eq!(events.iter().filter(|event| event.kind() == "TOOL_CALL_START").count(), 4096);
}
