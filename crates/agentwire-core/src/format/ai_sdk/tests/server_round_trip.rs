//! Streams of AI SDK servers, converted to AG-UI and back: every chunk must stay the same.

use serde_json::{Value, json};

use super::{super::FORMAT, chunks_of, converted, strict_client};
use crate::{
    format::{ag_ui, ai_sdk::input},
    tally::Tally,
};

/// Encodes chunks as a response body.
fn to_body(chunks: &[Value]) -> String {
    chunks.iter().map(|chunk| format!("data: {chunk}\n\n")).collect()
}

/// Removes agentwire's additions: its metadata, the step names, and its text ids.
fn without_additions(received: Vec<Value>) -> Vec<Value> {
    let mut ids: Vec<String> = Vec::new();
    let mut plain: Vec<Value> =
        received.into_iter().filter(|it| it["type"] != "data-step" || it["transient"] != true).collect();
    for chunk in &mut plain {
        remove_agentwire(chunk);
        let kind = chunk["type"].as_str().expect("a chunk has a type").to_owned();
        if kind.starts_with("text-") || kind.starts_with("reasoning-") && kind != "reasoning-file" {
            let id = chunk["id"].as_str().expect("a part has an id").to_owned();
            let index = ids.iter().rposition(|earlier| *earlier == id).filter(|_| !kind.ends_with("-start"));
            let index = index.unwrap_or_else(|| {
                ids.push(id);
                ids.len() - 1
            });
            chunk["id"] = index.into();
        }
    }
    plain
}

fn remove_agentwire(value: &mut Value) {
    match value {
        Value::Object(map) => {
            map.shift_remove("agentwire");
            map.values_mut().for_each(remove_agentwire);
            // agentwire writes the finish reason there too.
            if let Some(Value::Object(metadata)) = map.get_mut("messageMetadata") {
                metadata.shift_remove("finishReason");
            }
            for key in ["providerMetadata", "messageMetadata"] {
                if map.get(key).is_some_and(|it| it.as_object().is_some_and(serde_json::Map::is_empty)) {
                    map.shift_remove(key);
                }
            }
        }
        Value::Array(list) => list.iter_mut().for_each(remove_agentwire),
        _ => {}
    }
}

/// A response with the given chunks in one step.
fn in_one_step(middle: &[Value]) -> Vec<Value> {
    let mut chunks = vec![json!({"type": "start", "messageId": "m1"}), json!({"type": "start-step"})];
    chunks.extend_from_slice(middle);
    chunks.extend([json!({"type": "finish-step"}), json!({"type": "finish", "finishReason": "stop"})]);
    chunks
}

fn text(words: &str) -> [Value; 3] {
    [
        json!({"type": "text-start", "id": "0"}),
        json!({"type": "text-delta", "id": "0", "delta": words}),
        json!({"type": "text-end", "id": "0"}),
    ]
}

/// Objects are compared member by member, in any order.
fn assert_round_trip(version: &str, chunks: &[Value]) {
    let body = to_body(chunks);
    let between = converted(&FORMAT, &ag_ui::FORMAT, "1", body.as_bytes(), &[]);
    let again = converted(&ag_ui::FORMAT, &FORMAT, version, between.as_bytes(), &["finish_reason=field"]);
    assert_eq!(
        without_additions(chunks_of(&again)),
        without_additions(chunks.to_vec()),
        "as {version}, through\n{between}"
    );
    assert_eq!(converted(&FORMAT, &FORMAT, version, body.as_bytes(), &["finish_reason=field"]), again);
    let strict_body = converted(&FORMAT, &FORMAT, version, body.as_bytes(), &[]);
    strict_client::receive(version.parse().expect("a version"), &strict_body);
}

fn assert_step_round_trips(versions: &[&str], middle: &[Value]) {
    let chunks = in_one_step(middle);
    versions.iter().for_each(|version| assert_round_trip(version, &chunks));
}

const ALL: &[&str] = &["5", "6", "7"];

fn call(id: &str, input: Value) -> Value {
    json!({"type": "tool-input-available", "toolCallId": id, "toolName": "w", "input": input})
}

fn output(id: &str, output: Value) -> Value {
    json!({"type": "tool-output-available", "toolCallId": id, "output": output})
}

/// Adds `tool-input-start` and the delta before each call, as agentwire's writer does.
fn with_starts(calls: &[Value]) -> Vec<Value> {
    let mut all = Vec::new();
    for chunk in calls {
        if chunk["type"] == "tool-input-available" || chunk["type"] == "tool-input-error" {
            let mut start = json!({"type": "tool-input-start", "toolCallId": chunk["toolCallId"], "toolName": chunk["toolName"]});
            for key in ["dynamic", "providerExecuted", "title", "toolMetadata"] {
                if let Some(value) = chunk.get(key) {
                    start[key] = value.clone();
                }
            }
            all.push(start);
            let delta = match &chunk["input"] {
                Value::String(text) => text.clone(),
                other => other.to_string(),
            };
            all.push(json!({"type": "tool-input-delta", "toolCallId": chunk["toolCallId"], "inputTextDelta": delta}));
        }
        all.push(chunk.clone());
    }
    all
}

#[test]
fn inputs_and_outputs_keep_their_types() {
    for value in [
        json!({"a": 1}),
        json!([1, 2]),
        json!(5),
        json!(true),
        json!(null),
        json!("words"),
        json!("5"),
        json!("null"),
        json!("{\"a\":1}"),
        json!("[1]"),
        json!("\"quoted\""),
        json!(""),
        json!({"type": "content", "value": [{"type": "text", "text": "a"}]}),
    ] {
        let chunks = with_starts(&[call("c", json!({"q": 1})), output("c", value.clone())]);
        assert_step_round_trips(ALL, &chunks);
        if value != json!("") {
            assert_step_round_trips(ALL, &with_starts(&[call("c", value), output("c", json!({"ok": 1}))]));
        }
    }
}

#[test]
fn inputs_completed_after_streaming_stay_complete() {
    let delta = |text: &str| json!({"type": "tool-input-delta", "toolCallId": "c", "inputTextDelta": text});
    let start = json!({"type": "tool-input-start", "toolCallId": "c", "toolName": "w"});
    for streamed in ["{\"a\":1}", "{\"a\":1", "not json"] {
        assert_step_round_trips(
            ALL,
            &[
                start.clone(),
                delta(streamed),
                call("c", json!({"a": 1, "b": "default"})),
                output("c", json!("x")),
            ],
        );
    }
}

#[test]
fn calls_keep_provider_executed_dynamic_and_title() {
    let with = |mut chunk: Value, more: Value| {
        let more = more.as_object().expect("an object").clone();
        chunk.as_object_mut().expect("an object").extend(more);
        chunk
    };
    let remote = json!({"providerExecuted": true});
    let dynamic = json!({"dynamic": true});
    for more in [&remote, &dynamic, &json!({"dynamic": true, "providerExecuted": true})] {
        let chunks =
            [with(call("c", json!({})), more.clone()), with(output("c", json!({"r": 1})), more.clone())];
        let mut chunks = with_starts(&chunks);
        chunks.extend(text("and on in the same step"));
        assert_step_round_trips(ALL, &chunks);
    }
    // A call that the provider runs needs no result.
    assert_step_round_trips(ALL, &with_starts(&[with(call("c", json!({})), remote)]));
    let titled = with(call("c", json!({})), json!({"title": "Weather"}));
    assert_step_round_trips(&["6", "7"], &with_starts(&[titled, output("c", json!("x"))]));
}

#[test]
fn provider_metadata_stays_with_its_part() {
    let provider_metadata = json!({"openai": {"itemId": "i1", "deep": {"er": [1]}}, "other": {"k": null}});
    let part = |kind: &str| {
        [
            json!({"type": format!("{kind}-start"), "id": "1", "providerMetadata": provider_metadata}),
            json!({"type": format!("{kind}-delta"), "id": "1", "delta": "words"}),
            json!({"type": format!("{kind}-end"), "id": "1"}),
        ]
    };
    assert_step_round_trips(ALL, &part("text"));
    assert_step_round_trips(ALL, &part("reasoning"));
    // Redacted reasoning.
    let [start, _, end] = part("reasoning");
    assert_step_round_trips(ALL, &[&[start, end][..], &text("so")].concat());
    let with_metadata = |mut chunk: Value| {
        chunk["providerMetadata"] = provider_metadata.clone();
        chunk
    };
    assert_step_round_trips(
        ALL,
        &with_starts(&[with_metadata(call("c", json!({}))), output("c", json!("x"))]),
    );
    for chunk in [
        json!({"type": "source-url", "sourceId": "s", "url": "https://a.example", "title": "A"}),
        json!({"type": "source-document", "sourceId": "s", "mediaType": "text/plain", "title": "P", "filename": "p.txt"}),
        json!({"type": "file", "url": "data:image/png;base64,aGk=", "mediaType": "image/png"}),
        json!({"type": "file", "url": "https://a.example/b.png", "mediaType": "image/png"}),
    ] {
        assert_step_round_trips(ALL, &[&[chunk.clone()][..], &text("x")].concat());
        assert_step_round_trips(ALL, &[&[with_metadata(chunk)][..], &text("x")].concat());
    }
    let provider_part = with_metadata(json!({"type": "custom", "kind": "openai.thing"}));
    assert_step_round_trips(&["7"], &[&[provider_part][..], &text("x")].concat());
}

#[test]
fn data_parts_are_unchanged() {
    let mut chunks = Vec::new();
    for name in [
        "weather",
        "state",
        "step",
        "activity",
        "raw",
        "message-metadata",
        "data",
        "my.name",
        "ä",
        "custom-a",
    ] {
        for data in [json!(1), json!({"id": "k"}), json!(null), json!({"name": "plan", "status": "done"})] {
            let part = json!({"type": format!("data-{name}"), "data": data});
            let mut identified = part.clone();
            identified["id"] = "k".into();
            for mut chunk in [part, identified] {
                chunks.push(chunk.clone());
                chunk["transient"] = true.into();
                chunks.push(chunk);
            }
        }
    }
    // Transient `data-step` parts carry agentwire's step names.
    chunks.retain(|chunk| chunk["type"] != "data-step" || chunk["transient"] != true);
    chunks.extend(text("x"));
    assert_step_round_trips(ALL, &chunks);
}

#[test]
fn steps_of_the_server_are_kept() {
    let mut chunks = vec![json!({"type": "start", "messageId": "m1"})];
    let steps = [
        with_starts(&[
            call("c", json!({})),
            output("c", json!("1")),
            call("d", json!({})),
            output("d", json!("2")),
        ]),
        Vec::new(),
        text("done").to_vec(),
    ];
    for step in steps {
        chunks.push(json!({"type": "start-step"}));
        chunks.extend(step);
        chunks.push(json!({"type": "finish-step"}));
    }
    chunks.push(json!({"type": "finish", "finishReason": "stop"}));
    ALL.iter().for_each(|version| assert_round_trip(version, &chunks));
}

#[test]
fn calls_with_invalid_input_are_not_run() {
    let error = json!({"type": "tool-input-error", "toolCallId": "c", "toolName": "w", "input": "{bad", "errorText": "no JSON"});
    let mut chunks = with_starts(&[error]);
    chunks.push(json!({"type": "tool-output-error", "toolCallId": "c", "errorText": "no JSON"}));
    assert_step_round_trips(&["6", "7"], &chunks);
}

#[test]
fn approval_denied_in_the_same_response_is_kept() {
    let mut chunks = with_starts(&[call("c", json!({"a": 1}))]);
    chunks.push(json!({"type": "tool-approval-request", "approvalId": "p", "toolCallId": "c"}));
    chunks.push(json!({"type": "tool-output-denied", "toolCallId": "c"}));
    assert_step_round_trips(&["6", "7"], &chunks);
}

#[test]
fn end_of_body_finishes_the_run_unless_a_part_is_open() {
    let text = to_body(&text("a"));
    for (body, is_whole) in [
        ("0:\"a\"\n0:\"b\"\n".to_owned(), true),
        ("f:{\"messageId\":\"m\"}\n0:\"a\"\ne:{\"finishReason\":\"stop\"}\n".to_owned(), true),
        ("f:{\"messageId\":\"m\"}\n0:\"a\"\n".to_owned(), false),
        ("b:{\"toolCallId\":\"c\",\"toolName\":\"w\"}\n".to_owned(), false),
        ("2:{\"type\":\"chain_start\",\"name\":\"g\"}\n0:\"a\"\n".to_owned(), false),
        (text.clone(), true),
        (text.lines().take(3).map(|line| format!("{line}\n")).collect(), false),
        (format!("{}{text}", to_body(&[json!({"type": "start-step"})])), false),
    ] {
        let events = converted(&FORMAT, &ag_ui::FORMAT, "1", body.as_bytes(), &[]);
        assert_eq!(events.contains("\"RUN_FINISHED\""), is_whole, "{body}\n{events}");
        assert_eq!(events.contains("\"RUN_ERROR\""), !is_whole, "{body}\n{events}");
    }
}

#[test]
fn text_of_version_4_may_continue_in_the_next_step() {
    let body = "f:{\"messageId\":\"m\"}\n0:\"a\"\ne:{\"finishReason\":\"length\",\"isContinued\":true}\n\
        f:{\"messageId\":\"m\"}\n0:\"b\"\ne:{\"finishReason\":\"stop\"}\nd:{\"finishReason\":\"stop\"}\n";
    let events = converted(&FORMAT, &ag_ui::FORMAT, "1", body.as_bytes(), &[]);
    assert_eq!(events.matches("TEXT_MESSAGE_START").count(), 1, "{events}");
}

#[test]
fn history_round_trips() {
    let provider_metadata = json!({"openai": {"itemId": "i"}});
    let turn = |id: &str, parts: Value| json!({"id": id, "role": "assistant", "parts": parts});
    let tool = |id: &str, state: &str, more: Value| {
        let mut part = json!({"type": "tool-w", "toolCallId": id, "state": state});
        part.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
        part
    };
    let step = || json!({"type": "step-start"});
    let done = |text: &str| json!({"type": "text", "text": text, "state": "done"});
    let mut signed = done("x");
    signed["providerMetadata"] = provider_metadata.clone();
    let mut named = turn("a0", json!([step(), done("y")]));
    named["metadata"] = json!(5);
    let history = json!([
        {"id": "u0", "role": "user", "parts": [{"type": "text", "text": "hi"}], "metadata": {"a": 1}},
        named,
        turn("a1", json!([
            step(), {"type": "reasoning", "text": "", "state": "done", "providerMetadata": provider_metadata}, signed,
            tool("c1", "output-available", json!({"input": "{\"a\":1}", "output": "5", "callProviderMetadata": provider_metadata, "resultProviderMetadata": provider_metadata})),
            tool("c2", "output-available", json!({"input": null, "output": 5, "title": "W"})),
            tool("c3", "output-error", json!({"input": {}, "errorText": "no"})),
            tool("c4", "output-denied", json!({"input": {}, "approval": {"id": "p", "approved": false, "reason": "r"}})),
            step(), tool("c5", "output-available", json!({"input": {}, "output": {}, "providerExecuted": true})), done("on"),
            {"type": "source-url", "sourceId": "s", "url": "https://a.example", "providerMetadata": provider_metadata},
            {"type": "file", "mediaType": "image/png", "url": "data:image/png;base64,aGk=", "providerMetadata": provider_metadata},
            {"type": "data-weather", "id": "w", "data": {"c": 1}},
        ])),
    ]);
    let body = json!({"id": "t", "messages": history, "trigger": "submit-message"}).to_string();
    let request = input::from_json(&body, "t", "r", &mut Tally::default()).expect("a request");
    // Stores keep messages as AG-UI JSON.
    let stored = ag_ui::input::to_json(&request.input);
    let stored = ag_ui::input::from_json(&stored, &mut Tally::default()).expect("our own JSON");
    let mut back: Value = serde_json::from_str(&input::ui_messages(&stored.messages, &[], 7)).expect("JSON");
    remove_agentwire(&mut back);
    for part in back[2]["parts"].as_array_mut().expect("parts") {
        if part["callProviderMetadata"] == json!({}) {
            part.as_object_mut().expect("an object").shift_remove("callProviderMetadata");
        }
    }
    assert_eq!(back, history);
}

/// A page shows the usage and the finish reason of its application, also through agentwire's own stream.
#[test]
fn application_metadata_is_not_overwritten() {
    let usage = json!({"inputTokens": 3, "outputTokens": 4, "price": 0.1});
    let mut chunks = vec![
        json!({"type": "start", "messageId": "m1", "messageMetadata": {"model": "x", "finishReason": "mine"}}),
        json!({"type": "start-step"}),
    ];
    chunks.extend(text("hello"));
    chunks.push(json!({"type": "message-metadata", "messageMetadata": {"usage": usage}}));
    chunks.extend([json!({"type": "finish-step"}), json!({"type": "finish", "finishReason": "stop"})]);
    let once = converted(&FORMAT, &FORMAT, "6", to_body(&chunks).as_bytes(), &[]);
    let twice = converted(&FORMAT, &FORMAT, "6", once.as_bytes(), &[]);
    for body in [&once, &twice] {
        let mut metadata = Value::Object(serde_json::Map::new());
        for mut chunk in chunks_of(body) {
            if let Some(Value::Object(members)) = chunk.get_mut("messageMetadata").map(Value::take) {
                metadata.as_object_mut().expect("an object").extend(members);
            }
        }
        assert_eq!(metadata["finishReason"], "mine", "{body}");
        assert_eq!(metadata["usage"], usage, "{body}");
    }
}
