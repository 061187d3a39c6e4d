//! Every capture with the final state of its graph must fold to that state.

use std::{fs, path::Path};

use serde_json::Value;

use super::{FORMAT, golden};
use crate::{
    event::{Body, Event, Message, MessageBody, Role},
    fold::Fold,
};

/// The parts of a message on which the graph and the client must agree.
#[derive(Debug, PartialEq)]
struct ComparedMessage {
    role: &'static str,
    text: String,
    calls: Vec<(String, String, Value)>,
    result_of: Option<String>,
    is_error: bool,
}

/// The text of LangChain content, read independently of the reader.
fn text_of(content: &Value) -> String {
    match content {
        Value::String(text) => text.clone(),
        Value::Array(blocks) => blocks
            .iter()
            .filter_map(|block| match block {
                Value::String(text) => Some(text.clone()),
                block if block["type"] == "text" => block["text"].as_str().map(str::to_owned),
                _ => None,
            })
            .collect(),
        _ => String::new(),
    }
}

fn graph_message(message: &Value) -> ComparedMessage {
    let message = if message["lc"] == 1 { &message["kwargs"] } else { message };
    let calls = message["tool_calls"].as_array().into_iter().flatten();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    ComparedMessage {
        role: match message["type"].as_str() {
            Some("human") => "user",
            Some("tool") => "tool",
            Some("ai" | "AIMessageChunk") => "assistant",
            other => panic!("unknown message type {other:?}"),
        },
        text: text_of(&message["content"]),
        calls: calls.map(|call| (text(&call["id"]), text(&call["name"]), call["args"].clone())).collect(),
        result_of: message["tool_call_id"].as_str().map(str::to_owned),
        is_error: message["status"] == "error",
    }
}

fn client_message(message: &Message) -> Option<ComparedMessage> {
    let calls = message.tool_calls().iter();
    let parse = |text: &str| serde_json::from_str(text).unwrap_or(Value::Null);
    let calls = calls.map(|call| (call.id.to_string(), call.name.to_string(), parse(&call.arguments)));
    let mut compared = ComparedMessage {
        role: "",
        text: String::new(),
        calls: calls.collect(),
        result_of: None,
        is_error: false,
    };
    match &message.body {
        MessageBody::User { content } => (compared.role, compared.text) = ("user", content.text()),
        MessageBody::Assistant { content, .. } => {
            (compared.role, compared.text) = ("assistant", content.as_deref().unwrap_or_default().to_owned());
        }
        MessageBody::Tool { call, content, error } => {
            compared.role = "tool";
            compared.text = content.text();
            compared.result_of = Some(call.to_string());
            compared.is_error = error.is_some();
        }
        _ => return None,
    }
    Some(compared)
}

/// The final messages of the graph and the rest of its state, if the capture contains them.
fn final_state(name: &str, text: &str) -> Option<(Vec<ComparedMessage>, Value)> {
    let is_root_end =
        |value: &Value| value["event"] == "on_chain_end" && value["parent_ids"] == Value::Array(Vec::new());
    let mut last = None;
    let mut frame = "";
    for line in text.lines() {
        if let Some(event) = line.strip_prefix("event: ") {
            frame = event.trim();
        }
        let data = if name.ends_with(".sse") { line.strip_prefix("data: ") } else { Some(line) };
        let Some(value) = data.and_then(|data| serde_json::from_str::<Value>(data).ok()) else { continue };
        if is_root_end(&value) {
            last = Some(value["data"]["output"].clone());
        } else if frame == "values" && value["method"] == "values" {
            last = Some(value["params"]["data"].clone());
        } else if frame == "values" {
            last = Some(value);
        } else if value["mode"] == "values" && value["ns"] == Value::Array(Vec::new()) {
            last = Some(value["data"].clone());
        }
    }
    let mut last = last?;
    let messages = last.get("messages")?.as_array()?.iter().map(graph_message).collect();
    last.as_object_mut()?.retain(|key, _| key != "messages" && key != "__interrupt__");
    Some((messages, last))
}

fn folded(events: &[Event], keep: impl Fn(usize, &Event) -> bool) -> (Vec<ComparedMessage>, Value) {
    let mut fold = Fold::new();
    for (index, event) in events.iter().enumerate() {
        if keep(index, event) {
            fold.apply(event);
        }
    }
    assert_eq!(fold.skipped_patches(), 0);
    let (messages, state) = fold.into_parts();
    (messages.iter().filter_map(client_message).collect(), state)
}

#[test]
fn captures_fold_to_the_final_state_of_the_graph() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/format/langgraph/fixtures");
    let mut compared = 0;
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if path.is_dir() || name.ends_with(".md") || name.contains(".events.jsonl") || name.contains('=') {
            continue;
        }
        let text = fs::read_to_string(&path).unwrap();
        let Some((wanted, state)) = final_state(&name, &text) else { continue };
        compared += 1;
        let (events, failure) = golden::read(&FORMAT, text.as_bytes(), usize::MAX, &[]);
        assert_eq!(failure, None, "{name}");
        let (messages, got_state) = folded(&events, |_, _| true);
        assert_eq!(messages, wanted, "{name}");
        assert_eq!(got_state, state, "{name}: state");
        // The streamed events alone, without the last snapshot, must give the same messages.
        let first = events.iter().position(|event| matches!(event.body, Body::MessagesSnapshot { .. }));
        let (streamed, _) = folded(&events, |index, event| {
            Some(index) == first || !matches!(event.body, Body::MessagesSnapshot { .. })
        });
        for message in &wanted {
            assert!(streamed.contains(message), "{name}: {message:?} was not streamed: {streamed:#?}");
        }
    }
    assert!(compared >= 45, "only {compared} captures contain the final state");
}

#[test]
fn snapshot_never_repeats_or_loses_a_message() {
    let text = include_str!("../fixtures/parallel_tool_calls.jsonl");
    let (events, _) = golden::read(&FORMAT, text.as_bytes(), usize::MAX, &[]);
    let mut fold = Fold::new();
    events.iter().for_each(|event| fold.apply(event));
    let results: Vec<&str> = fold
        .messages()
        .iter()
        .filter(|message| message.role() == Role::Tool)
        .map(|message| &*message.id)
        .collect();
    assert_eq!(results, ["call_a-result", "call_b-result", "call_c-result"], "in the order of the calls");
}
