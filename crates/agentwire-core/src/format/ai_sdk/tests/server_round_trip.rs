//! What an AI SDK server says, read, carried as AG-UI text, and written again: chunk for chunk the same.

use serde_json::{Value, json};

use super::{super::FORMAT, chunks, converted, strict_client};
use crate::{
    format::{ag_ui, ai_sdk::input},
    tally::Tally,
};

/// A response of these chunks.
fn served(said: &[Value]) -> String {
    said.iter().map(|chunk| format!("data: {chunk}\n\n")).collect()
}

/// Chunks without what agentwire adds: its metadata, the names of steps, and its own ids of texts.
fn plain(said: Vec<Value>) -> Vec<Value> {
    let mut ids: Vec<String> = Vec::new();
    let mut plain: Vec<Value> =
        said.into_iter().filter(|it| it["type"] != "data-step" || it["transient"] != true).collect();
    for chunk in &mut plain {
        strip(chunk);
        let kind = chunk["type"].as_str().expect("a chunk has a type").to_owned();
        if kind.starts_with("text-") || kind.starts_with("reasoning-") && kind != "reasoning-file" {
            let id = chunk["id"].as_str().expect("a part has an id").to_owned();
            let place = ids.iter().rposition(|known| *known == id).filter(|_| !kind.ends_with("-start"));
            let place = place.unwrap_or_else(|| {
                ids.push(id);
                ids.len() - 1
            });
            chunk["id"] = place.into();
        }
    }
    plain
}

fn strip(value: &mut Value) {
    match value {
        Value::Object(map) => {
            map.shift_remove("agentwire");
            map.values_mut().for_each(strip);
            // Ours says the reason there as well.
            if let Some(Value::Object(metadata)) = map.get_mut("messageMetadata") {
                metadata.shift_remove("finishReason");
            }
            for key in ["providerMetadata", "messageMetadata"] {
                if map.get(key).is_some_and(|it| it.as_object().is_some_and(serde_json::Map::is_empty)) {
                    map.shift_remove(key);
                }
            }
        }
        Value::Array(list) => list.iter_mut().for_each(strip),
        _ => {}
    }
}

/// What is in the middle of a response, in one step.
fn one_step(middle: &[Value]) -> Vec<Value> {
    let mut said = vec![json!({"type": "start", "messageId": "m1"}), json!({"type": "start-step"})];
    said.extend_from_slice(middle);
    said.extend([json!({"type": "finish-step"}), json!({"type": "finish", "finishReason": "stop"})]);
    said
}

fn text(words: &str) -> [Value; 3] {
    [
        json!({"type": "text-start", "id": "0"}),
        json!({"type": "text-delta", "id": "0", "delta": words}),
        json!({"type": "text-end", "id": "0"}),
    ]
}

/// Objects are compared member by member, whatever their order.
fn assert_same(version: &str, said: &[Value]) {
    let body = served(said);
    let between = converted(&FORMAT, &ag_ui::FORMAT, "1", body.as_bytes(), &[]);
    let again = converted(&ag_ui::FORMAT, &FORMAT, version, between.as_bytes(), &["finish_reason=field"]);
    assert_eq!(plain(chunks(&again)), plain(said.to_vec()), "as {version}, through\n{between}");
    assert_eq!(converted(&FORMAT, &FORMAT, version, body.as_bytes(), &["finish_reason=field"]), again);
    let strict_body = converted(&FORMAT, &FORMAT, version, body.as_bytes(), &[]);
    strict_client::receive(version.parse().expect("a version"), &strict_body);
}

fn assert_served(versions: &[&str], middle: &[Value]) {
    let said = one_step(middle);
    versions.iter().for_each(|version| assert_same(version, &said));
}

const ALL: &[&str] = &["5", "6", "7"];

fn call(id: &str, input: Value) -> Value {
    json!({"type": "tool-input-available", "toolCallId": id, "toolName": "w", "input": input})
}

fn output(id: &str, output: Value) -> Value {
    json!({"type": "tool-output-available", "toolCallId": id, "output": output})
}

/// Calls and results begin with `tool-input-start`, as ours do.
fn with_starts(said: &[Value]) -> Vec<Value> {
    let mut all = Vec::new();
    for chunk in said {
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
        let said = with_starts(&[call("c", json!({"q": 1})), output("c", value.clone())]);
        assert_served(ALL, &said);
        if value != json!("") {
            assert_served(ALL, &with_starts(&[call("c", value), output("c", json!({"ok": 1}))]));
        }
    }
}

#[test]
fn inputs_that_were_completed_after_they_streamed_stay_complete() {
    let delta = |text: &str| json!({"type": "tool-input-delta", "toolCallId": "c", "inputTextDelta": text});
    let start = json!({"type": "tool-input-start", "toolCallId": "c", "toolName": "w"});
    for streamed in ["{\"a\":1}", "{\"a\":1", "not json"] {
        assert_served(
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
fn calls_keep_who_runs_them_and_how_they_are_shown() {
    let with = |mut chunk: Value, more: Value| {
        let more = more.as_object().expect("an object").clone();
        chunk.as_object_mut().expect("an object").extend(more);
        chunk
    };
    let remote = json!({"providerExecuted": true});
    let dynamic = json!({"dynamic": true});
    for more in [&remote, &dynamic, &json!({"dynamic": true, "providerExecuted": true})] {
        let said =
            [with(call("c", json!({})), more.clone()), with(output("c", json!({"r": 1})), more.clone())];
        let mut said = with_starts(&said);
        said.extend(text("and on in the same step"));
        assert_served(ALL, &said);
    }
    // Nobody waits for what the provider runs.
    assert_served(ALL, &with_starts(&[with(call("c", json!({})), remote)]));
    let titled = with(call("c", json!({})), json!({"title": "Weather"}));
    assert_served(&["6", "7"], &with_starts(&[titled, output("c", json!("x"))]));
}

#[test]
fn what_providers_say_stays_with_its_part() {
    let said = json!({"openai": {"itemId": "i1", "deep": {"er": [1]}}, "other": {"k": null}});
    let part = |kind: &str| {
        [
            json!({"type": format!("{kind}-start"), "id": "1", "providerMetadata": said}),
            json!({"type": format!("{kind}-delta"), "id": "1", "delta": "words"}),
            json!({"type": format!("{kind}-end"), "id": "1"}),
        ]
    };
    assert_served(ALL, &part("text"));
    assert_served(ALL, &part("reasoning"));
    // Reasoning that nobody can read.
    let [start, _, end] = part("reasoning");
    assert_served(ALL, &[&[start, end][..], &text("so")].concat());
    let about = |mut chunk: Value| {
        chunk["providerMetadata"] = said.clone();
        chunk
    };
    assert_served(ALL, &with_starts(&[about(call("c", json!({}))), output("c", json!("x"))]));
    for chunk in [
        json!({"type": "source-url", "sourceId": "s", "url": "https://a.example", "title": "A"}),
        json!({"type": "source-document", "sourceId": "s", "mediaType": "text/plain", "title": "P", "filename": "p.txt"}),
        json!({"type": "file", "url": "data:image/png;base64,aGk=", "mediaType": "image/png"}),
        json!({"type": "file", "url": "https://a.example/b.png", "mediaType": "image/png"}),
    ] {
        assert_served(ALL, &[&[chunk.clone()][..], &text("x")].concat());
        assert_served(ALL, &[&[about(chunk)][..], &text("x")].concat());
    }
    let own = about(json!({"type": "custom", "kind": "openai.thing"}));
    assert_served(&["7"], &[&[own][..], &text("x")].concat());
}

#[test]
fn data_parts_go_on_as_they_came() {
    let mut said = Vec::new();
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
            let mut known = part.clone();
            known["id"] = "k".into();
            for mut chunk in [part, known] {
                said.push(chunk.clone());
                chunk["transient"] = true.into();
                said.push(chunk);
            }
        }
    }
    // `data-step` in passing is how agentwire names steps.
    said.retain(|chunk| chunk["type"] != "data-step" || chunk["transient"] != true);
    said.extend(text("x"));
    assert_served(ALL, &said);
}

#[test]
fn steps_are_those_of_the_server() {
    let mut said = vec![json!({"type": "start", "messageId": "m1"})];
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
        said.push(json!({"type": "start-step"}));
        said.extend(step);
        said.push(json!({"type": "finish-step"}));
    }
    said.push(json!({"type": "finish", "finishReason": "stop"}));
    ALL.iter().for_each(|version| assert_same(version, &said));
}

#[test]
fn arguments_that_the_server_refused_are_not_run() {
    let error = json!({"type": "tool-input-error", "toolCallId": "c", "toolName": "w", "input": "{bad", "errorText": "no JSON"});
    let mut said = with_starts(&[error]);
    said.push(json!({"type": "tool-output-error", "toolCallId": "c", "errorText": "no JSON"}));
    assert_served(&["6", "7"], &said);
}

#[test]
fn who_was_asked_and_refused_at_once_is_shown_as_that() {
    let mut said = with_starts(&[call("c", json!({"a": 1}))]);
    said.push(json!({"type": "tool-approval-request", "approvalId": "p", "toolCallId": "c"}));
    said.push(json!({"type": "tool-output-denied", "toolCallId": "c"}));
    assert_served(&["6", "7"], &said);
}

#[test]
fn the_end_of_the_body_is_the_end_unless_something_is_open() {
    let text = served(&text("a"));
    for (body, is_whole) in [
        ("0:\"a\"\n0:\"b\"\n".to_owned(), true),
        ("f:{\"messageId\":\"m\"}\n0:\"a\"\ne:{\"finishReason\":\"stop\"}\n".to_owned(), true),
        ("f:{\"messageId\":\"m\"}\n0:\"a\"\n".to_owned(), false),
        ("b:{\"toolCallId\":\"c\",\"toolName\":\"w\"}\n".to_owned(), false),
        ("2:{\"type\":\"chain_start\",\"name\":\"g\"}\n0:\"a\"\n".to_owned(), false),
        (text.clone(), true),
        (text.lines().take(3).map(|line| format!("{line}\n")).collect(), false),
        (format!("{}{text}", served(&[json!({"type": "start-step"})])), false),
    ] {
        let events = converted(&FORMAT, &ag_ui::FORMAT, "1", body.as_bytes(), &[]);
        assert_eq!(events.contains("\"RUN_FINISHED\""), is_whole, "{body}\n{events}");
        assert_eq!(events.contains("\"RUN_ERROR\""), !is_whole, "{body}\n{events}");
    }
}

#[test]
fn a_text_of_version_4_may_go_on_in_the_next_step() {
    let body = "f:{\"messageId\":\"m\"}\n0:\"a\"\ne:{\"finishReason\":\"length\",\"isContinued\":true}\n\
        f:{\"messageId\":\"m\"}\n0:\"b\"\ne:{\"finishReason\":\"stop\"}\nd:{\"finishReason\":\"stop\"}\n";
    let events = converted(&FORMAT, &ag_ui::FORMAT, "1", body.as_bytes(), &[]);
    assert_eq!(events.matches("TEXT_MESSAGE_START").count(), 1, "{events}");
}

#[test]
fn a_history_comes_back_as_it_was_sent() {
    let said = json!({"openai": {"itemId": "i"}});
    let turn = |id: &str, parts: Value| json!({"id": id, "role": "assistant", "parts": parts});
    let tool = |id: &str, state: &str, more: Value| {
        let mut part = json!({"type": "tool-w", "toolCallId": id, "state": state});
        part.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
        part
    };
    let step = || json!({"type": "step-start"});
    let done = |text: &str| json!({"type": "text", "text": text, "state": "done"});
    let mut signed = done("x");
    signed["providerMetadata"] = said.clone();
    let mut named = turn("a0", json!([step(), done("y")]));
    named["metadata"] = json!(5);
    let history = json!([
        {"id": "u0", "role": "user", "parts": [{"type": "text", "text": "hi"}], "metadata": {"a": 1}},
        named,
        turn("a1", json!([
            step(), {"type": "reasoning", "text": "", "state": "done", "providerMetadata": said}, signed,
            tool("c1", "output-available", json!({"input": "{\"a\":1}", "output": "5", "callProviderMetadata": said, "resultProviderMetadata": said})),
            tool("c2", "output-available", json!({"input": null, "output": 5, "title": "W"})),
            tool("c3", "output-error", json!({"input": {}, "errorText": "no"})),
            tool("c4", "output-denied", json!({"input": {}, "approval": {"id": "p", "approved": false, "reason": "r"}})),
            step(), tool("c5", "output-available", json!({"input": {}, "output": {}, "providerExecuted": true})), done("on"),
            {"type": "source-url", "sourceId": "s", "url": "https://a.example", "providerMetadata": said},
            {"type": "file", "mediaType": "image/png", "url": "data:image/png;base64,aGk=", "providerMetadata": said},
            {"type": "data-weather", "id": "w", "data": {"c": 1}},
        ])),
    ]);
    let body = json!({"id": "t", "messages": history, "trigger": "submit-message"}).to_string();
    let request = input::from_json(&body, "t", "r", &mut Tally::default()).expect("a request");
    // A store keeps it as AG-UI text.
    let kept = ag_ui::input::to_json(&request.input);
    let kept = ag_ui::input::from_json(&kept, &mut Tally::default()).expect("our own JSON");
    let mut back: Value = serde_json::from_str(&input::ui_messages(&kept.messages, &[], 7)).expect("JSON");
    strip(&mut back);
    for part in back[2]["parts"].as_array_mut().expect("parts") {
        if part["callProviderMetadata"] == json!({}) {
            part.as_object_mut().expect("an object").shift_remove("callProviderMetadata");
        }
    }
    assert_eq!(back, history);
}

/// What an application says about usage and reason is what its page shows, also through our own stream.
#[test]
fn metadata_of_the_application_is_not_overwritten() {
    let usage = json!({"inputTokens": 3, "outputTokens": 4, "price": 0.1});
    let mut said = vec![
        json!({"type": "start", "messageId": "m1", "messageMetadata": {"model": "x", "finishReason": "mine"}}),
        json!({"type": "start-step"}),
    ];
    said.extend(text("hello"));
    said.push(json!({"type": "message-metadata", "messageMetadata": {"usage": usage}}));
    said.extend([json!({"type": "finish-step"}), json!({"type": "finish", "finishReason": "stop"})]);
    let once = converted(&FORMAT, &FORMAT, "6", served(&said).as_bytes(), &[]);
    let twice = converted(&FORMAT, &FORMAT, "6", once.as_bytes(), &[]);
    for body in [&once, &twice] {
        let mut metadata = Value::Object(serde_json::Map::new());
        for mut chunk in chunks(body) {
            if let Some(Value::Object(news)) = chunk.get_mut("messageMetadata").map(Value::take) {
                metadata.as_object_mut().expect("an object").extend(news);
            }
        }
        assert_eq!(metadata["finishReason"], "mine", "{body}");
        assert_eq!(metadata["usage"], usage, "{body}");
    }
}
