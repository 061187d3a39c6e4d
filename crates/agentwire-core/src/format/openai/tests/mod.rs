mod input;
mod reader;

use serde_json::{Value, json};

use super::{
    FORMAT,
    input::{ModelConfig, to_json},
};
use crate::{
    event::{
        Body, Content, ContentPart, Context, Event, MediaKind, Message, MessageBody, Outcome, PartSource,
        RunInput, StreamEnd, Tool, ToolCall,
    },
    fold::Fold,
    format::{Options, golden},
    framing::Framing,
    json::Json,
    source::{GuardedSource, SourceOptions},
};

#[test]
fn golden_files() {
    golden::run(&FORMAT, "src/format/openai/fixtures");
}

fn chunk(choices: Value) -> Value {
    json!({"id": "c1", "object": "chat.completion.chunk", "model": "m", "choices": choices})
}

fn delta(delta: Value) -> Value {
    chunk(json!([{"index": 0, "delta": delta, "finish_reason": null}]))
}

fn stop(reason: &str) -> Value {
    chunk(json!([{"index": 0, "delta": {}, "finish_reason": reason}]))
}

fn sse(frames: &[Value]) -> String {
    frames.iter().map(|frame| format!("data: {frame}\n\n")).collect()
}

fn read(frames: &[Value]) -> (Vec<Event>, Option<String>) {
    golden::read_framed(&FORMAT, Framing::Sse, sse(frames).as_bytes(), usize::MAX, &[])
}

/// The events of a stream with a known request.
fn read_for(frames: &[Value], request: RunInput) -> Vec<Event> {
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

fn tool(name: &str) -> Tool {
    Tool { name: name.into(), description: "Does it.".into(), parameters: None, metadata: None }
}

fn call(id: &str, name: &str) -> Value {
    delta(json!({"tool_calls": [{"index": 0, "id": id, "function": {"name": name, "arguments": "{}"}}]}))
}

fn texts(events: &[Event]) -> String {
    let text = |event: &Event| match &event.body {
        Body::TextDelta { delta, .. } => Some(delta.to_string()),
        _ => None,
    };
    events.iter().filter_map(text).collect()
}
