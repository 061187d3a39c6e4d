use serde_json::{Value, json};

use super::{FORMAT, input};
use crate::{
    convert::{Source, SourceOptions},
    event::{Body, Event, Message, MessageBody, Outcome, RunInput, Tool},
    fold::Fold,
    format::{Options, StreamEnd, golden},
    framing::{Framing, detect},
    json::Json,
    order::Checker,
    tally::Tally,
};

#[test]
fn golden_files() {
    golden::run(&FORMAT, "src/format/adk/fixtures");
}

/// An event as 2.x makes it, with `members` on top.
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

/// The events as AG-UI JSON; each reading is also checked for order and cut into single bytes.
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
    let mut source = Source::new(&FORMAT, Framing::Lines, &options).unwrap();
    let mut out = Vec::new();
    let mut sink = |event| out.push(event);
    for event in events {
        source.push(format!("{event}\n").as_bytes(), &mut sink).unwrap();
    }
    source.end(&StreamEnd::Closed, &mut sink).unwrap();
    check(&out);
    out
}

fn kinds(events: &[Value]) -> Vec<&str> {
    events.iter().map(|event| event["type"].as_str().unwrap()).collect()
}

fn of<'v>(events: &'v [Value], kind: &str) -> Vec<&'v Value> {
    events.iter().filter(|event| event["type"] == kind).collect()
}

fn custom<'v>(events: &'v [Value], name: &str) -> Vec<&'v Value> {
    of(events, "CUSTOM")
        .into_iter()
        .filter(|event| event["name"] == name)
        .map(|event| &event["value"])
        .collect()
}

fn said(events: &[Value]) -> String {
    of(events, "TEXT_MESSAGE_CONTENT").iter().map(|event| event["delta"].as_str().unwrap()).collect()
}

fn last(events: &[Value]) -> &Value {
    events.last().unwrap()
}

mod streaming {
    use super::*;

    #[test]
    fn a_closing_event_that_repeats_the_text_adds_nothing() {
        let events = read(&[
            event(json!({"partial": true, "content": text("Hel")})),
            event(json!({"partial": true, "content": text("lo")})),
            event(json!({"content": text("Hello")})),
        ]);
        assert_eq!(said(&events), "Hello");
        assert_eq!(of(&events, "TEXT_MESSAGE_START").len(), 1);
    }

    #[test]
    fn ids_decide_nothing() {
        let events = read(&[
            event(json!({"id": "a", "partial": true, "content": text("Hel")})),
            event(json!({"id": "b", "partial": true, "content": text("lo")})),
            event(json!({"id": "c", "content": text("Hello")})),
        ]);
        assert_eq!(said(&events), "Hello");
        assert_eq!(of(&events, "TEXT_MESSAGE_START").len(), 1);
    }

    #[test]
    fn a_closing_event_that_goes_on_adds_the_rest() {
        let events = read(&[
            event(json!({"partial": true, "content": text("Hel")})),
            event(json!({"content": text("Hello")})),
        ]);
        let deltas: Vec<_> =
            of(&events, "TEXT_MESSAGE_CONTENT").iter().map(|event| &event["delta"]).collect();
        assert_eq!(deltas, ["Hel", "lo"]);
    }

    #[test]
    fn a_rest_is_cut_between_characters() {
        let events = read(&[
            event(json!({"partial": true, "content": text("é")})),
            event(json!({"content": {"parts": [{"text": "é"}, {"text": "ü"}]}})),
        ]);
        assert_eq!(said(&events), "éü");
    }

    #[test]
    fn a_rewritten_text_is_corrected_by_a_snapshot_and_reported() {
        let events = read(&[
            event(json!({"partial": true, "content": text("My password is hunter2")})),
            event(json!({"content": text("I cannot say.")})),
        ]);
        let snapshot = of(&events, "MESSAGES_SNAPSHOT");
        assert_eq!(snapshot.len(), 1);
        assert_eq!(
            snapshot[0]["messages"],
            json!([{"id": "e1", "role": "assistant", "content": "I cannot say.", "name": "agent"}])
        );
        assert_eq!(custom(&events, "adk.corrected"), [&json!({"messageId": "e1"})]);
        assert_eq!(said(&events), "My password is hunter2");
        let mut fold = Fold::new();
        for event in golden_events(&events) {
            fold.apply(&event);
        }
        assert_eq!(fold.messages().len(), 1, "one text is left");
    }

    #[test]
    fn a_correction_keeps_the_conversation_before_the_run() {
        let mut input = RunInput::new("t", "r");
        input.messages.push(Message::user("u1", "hi"));
        let stream = [
            event(json!({"partial": true, "content": text("wrong")})),
            event(json!({"content": text("right")})),
        ];
        let events = read_for(&stream, input.clone());
        let mut fold = Fold::from_history(input.messages, None);
        for event in &events {
            fold.apply(event);
        }
        let texts: Vec<_> = fold.messages().iter().map(|message| message.id.to_string()).collect();
        assert_eq!(texts, ["u1", "e1"]);
    }

    #[test]
    fn a_rewritten_turn_still_makes_its_calls() {
        let events = read(&[
            event(json!({"partial": true, "content": text("wrong")})),
            event(json!({"content": {"parts": [
                {"text": "right"},
                {"functionCall": {"id": "c1", "name": "f", "args": {"a": 1}}},
            ]}})),
            event(json!({"id": "e2", "content": response("c1", "f", json!({"ok": true}))})),
        ]);
        assert_eq!(of(&events, "TOOL_CALL_START").len(), 1);
        let messages = &of(&events, "MESSAGES_SNAPSHOT")[0]["messages"];
        assert_eq!(messages[0]["toolCalls"][0]["function"]["arguments"], r#"{"a":1}"#);
        assert_eq!(of(&events, "TOOL_CALL_RESULT").len(), 1);
    }

    #[test]
    fn a_closing_event_without_text_leaves_what_was_streamed() {
        let events = read(&[
            event(json!({"partial": true, "content": text("Checking.")})),
            event(json!({"content": call("c1", "f")})),
            event(json!({"id": "e2", "content": response("c1", "f", json!({}))})),
        ]);
        assert_eq!(said(&events), "Checking.");
        assert!(of(&events, "MESSAGES_SNAPSHOT").is_empty());
    }

    #[test]
    fn branches_of_one_author_do_not_mix() {
        let on = |branch: &str, partial: bool, said: &str| {
            event(json!({"id": branch, "branch": branch, "partial": partial, "content": text(said)}))
        };
        let events = read(&[
            on("p.a", true, "one "),
            on("p.b", true, "uno "),
            on("p.a", true, "two"),
            on("p.b", true, "dos"),
            on("p.b", false, "uno dos"),
            on("p.a", false, "one two"),
        ]);
        let by = |id: &str| -> String {
            of(&events, "TEXT_MESSAGE_CONTENT")
                .iter()
                .filter(|event| event["messageId"] == id)
                .map(|event| event["delta"].as_str().unwrap())
                .collect()
        };
        assert_eq!((by("p.a"), by("p.b")), ("one two".into(), "uno dos".into()));
    }

    #[test]
    fn instances_of_one_node_do_not_mix() {
        let at = |path: &str, partial: bool, said: &str| {
            event(json!({"partial": partial, "nodeInfo": {"path": path}, "content": text(said)}))
        };
        let events = read(&[
            at("w@1/a@1", true, "one "),
            at("w@1/a@2", true, "three "),
            at("w@1/a@1", true, "two"),
            at("w@1/a@2", true, "four"),
            at("w@1/a@1", false, "one two"),
            at("w@1/a@2", false, "three four"),
        ]);
        assert!(of(&events, "MESSAGES_SNAPSHOT").is_empty());
        let text = |id: &Value| -> String {
            let contents = of(&events, "TEXT_MESSAGE_CONTENT");
            let own = contents.iter().filter(|event| event["messageId"] == *id);
            own.map(|event| event["delta"].as_str().unwrap()).collect()
        };
        let starts = of(&events, "TEXT_MESSAGE_START");
        let said: Vec<_> = starts.iter().map(|event| text(&event["messageId"])).collect();
        assert_eq!(said, ["one two", "three four"]);
    }

    #[test]
    fn a_correction_keeps_what_another_agent_is_saying() {
        let on = |branch: &str, members: Value| {
            let mut event = event(json!({"id": branch, "branch": branch, "author": branch, "partial": true}));
            for (key, value) in members.as_object().unwrap() {
                event[key] = value.clone();
            }
            event
        };
        let begun = json!({"functionCall": {"id": "c1", "name": "f", "willContinue": true}});
        let grown = json!({"functionCall": {"id": "c1", "partialArgs": [{"jsonPath": "$.a", "numberValue": 1}], "willContinue": true}});
        let whole = json!({"functionCall": {"id": "c1", "name": "f", "args": {"a": 1, "b": 2}}});
        let values = read(&[
            on("p.x", json!({"content": text("one ")})),
            on("p.z", json!({"content": {"parts": [{"text": "call"}, begun, grown]}})),
            on("p.y", json!({"content": text("wrong")})),
            on("p.y", json!({"content": text("right"), "partial": false})),
            on("p.x", json!({"content": text("two")})),
            on("p.x", json!({"content": text("one two"), "partial": false})),
            on("p.z", json!({"content": {"parts": [{"text": "call"}, whole]}, "partial": false})),
            on("p.z", json!({"content": response("c1", "f", json!({"ok": true})), "partial": false})),
        ]);
        assert_eq!(of(&values, "MESSAGES_SNAPSHOT").len(), 1);
        let mut fold = Fold::new();
        golden_events(&values).iter().for_each(|event| fold.apply(event));
        let (messages, _) = fold.into_parts();
        let said: Vec<_> = messages
            .iter()
            .map(|message| match &message.body {
                MessageBody::Assistant { content, tool_calls } => {
                    let arguments = tool_calls.iter().flatten().map(|call| call.arguments.to_string());
                    format!("{} {}", content.as_deref().unwrap_or_default(), arguments.collect::<String>())
                }
                _ => "tool".to_owned(),
            })
            .collect();
        assert_eq!(said, ["one two ", r#"call {"a":1,"b":2}"#, "tool", "right "]);
    }

    #[test]
    fn actions_of_partial_events_are_ignored() {
        let actions = json!({"stateDelta": {"k": 1}, "artifactDelta": {"f": 0}, "escalate": true});
        let events = read(&[
            event(json!({"partial": true, "content": text("a"), "actions": actions})),
            event(json!({"content": text("a"), "actions": actions})),
        ]);
        assert_eq!(of(&events, "STATE_DELTA").len(), 1);
        assert_eq!(custom(&events, "adk.artifact").len(), 1);
        assert_eq!(custom(&events, "adk.escalate").len(), 1);
    }

    #[test]
    fn the_second_half_of_a_split_event_only_brings_artifacts() {
        let rest = json!({
            "customMetadata": {"a": 1},
            "usageMetadata": {"promptTokenCount": 3, "totalTokenCount": 3},
            "modelVersion": "m",
            "groundingMetadata": {"groundingChunks": [{"web": {"uri": "u"}}]},
        });
        let mut first = event(rest.clone());
        first["content"] = text("Saved.");
        first["actions"] = json!({"stateDelta": {"k": 1}, "artifactDelta": {}});
        let mut second = event(rest);
        second["actions"] = json!({"stateDelta": {"k": 1}, "artifactDelta": {"f.txt": 2}});
        let events = read(&[first, second]);
        assert_eq!(of(&events, "STATE_DELTA").len(), 1);
        assert_eq!(custom(&events, "adk.artifact"), [&json!({"filename": "f.txt", "version": 2})]);
        assert_eq!(custom(&events, "adk.metadata").len(), 1);
        assert_eq!(of(&events, "ACTIVITY_SNAPSHOT").len(), 1);
        assert_eq!(last(&events)["usage"][0]["inputTokens"], 3);
    }

    #[test]
    fn an_interrupted_piece_ends_its_turn() {
        let events = read(&[
            event(json!({"id": "a", "partial": true, "interrupted": true, "content": text("cut")})),
            event(json!({"id": "b", "content": text("New.")})),
        ]);
        assert_eq!(of(&events, "TEXT_MESSAGE_START").len(), 2);
        assert!(of(&events, "MESSAGES_SNAPSHOT").is_empty());
    }

    #[test]
    fn a_turn_with_a_used_id_is_another_message() {
        let events = read(&[event(json!({"content": text("one")})), event(json!({"content": text("two")}))]);
        let ids: Vec<_> = of(&events, "TEXT_MESSAGE_START").iter().map(|event| &event["messageId"]).collect();
        assert_eq!(ids.len(), 2);
        assert_ne!(ids[0], ids[1]);
    }

    #[test]
    fn signatures_travel_once_and_never_in_the_answer() {
        let parts = json!({"parts": [
            {"text": "Hm.", "thought": true, "thoughtSignature": "c2ln-_8="},
            {"text": "Yes."},
            {"functionCall": {"id": "c1", "name": "f", "args": {}}, "thoughtSignature": "Y2FsbA=="},
        ]});
        let events = read(&[
            event(json!({"partial": true, "content": {"parts": [
                {"text": "Hm.", "thought": true, "thoughtSignature": "c2ln-_8="}]}})),
            event(json!({"partial": true, "content": text("Yes.")})),
            event(json!({"content": parts})),
            event(json!({"id": "e2", "content": response("c1", "f", json!({}))})),
        ]);
        let values: Vec<_> = of(&events, "REASONING_ENCRYPTED_VALUE")
            .iter()
            .map(|event| {
                (event["subtype"].clone(), event["entityId"].clone(), event["encryptedValue"].clone())
            })
            .collect();
        assert_eq!(
            values,
            [
                (json!("message"), json!("e1:thought"), json!("c2ln-_8=")),
                (json!("tool-call"), json!("c1"), json!("Y2FsbA==")),
            ]
        );
        assert_eq!(said(&events), "Yes.");
    }

    #[test]
    fn a_signature_on_anything_but_text_is_kept() {
        for part in [
            json!({"text": "", "thoughtSignature": "c2ln"}),
            json!({"thoughtSignature": "c2ln"}),
            json!({"inlineData": {"mimeType": "image/png", "data": "AA=="}, "thoughtSignature": "c2ln"}),
        ] {
            let events = read(&[
                event(json!({"partial": true, "content": {"parts": [part]}})),
                event(json!({"partial": true, "content": text("Yes.")})),
                event(json!({"content": {"parts": [part, {"text": "Yes."}]}})),
            ]);
            let values = of(&events, "REASONING_ENCRYPTED_VALUE");
            assert_eq!(values.len(), 1, "{part}");
            assert_eq!(values[0]["entityId"], "e1:thought", "{part}");
            assert_eq!(said(&events), "Yes.");
        }
    }

    #[test]
    fn a_sketch_is_no_part_of_the_answer() {
        let sketch = json!({"thought": true, "inlineData": {"mimeType": "image/png", "data": "-_8="}});
        let events = read(&[
            event(json!({"partial": true, "content": {"parts": [sketch]}})),
            event(json!({"content": {"parts": [sketch, {"text": "Done."}]}})),
        ]);
        assert!(of(&events, "ACTIVITY_SNAPSHOT").is_empty());
        let sketches = custom(&events, "adk.thought_media");
        assert_eq!(sketches, [&json!({"messageId": "e1", "mimeType": "image/png", "data": "+/8="})]);
    }

    /// AG-UI values back to events, for folding.
    pub(super) fn golden_events(values: &[Value]) -> Vec<Event> {
        let lines: String = values.iter().map(|value| format!("{value}\n")).collect();
        let format = &crate::format::ag_ui::FORMAT;
        golden::read_framed(format, Framing::Lines, lines.as_bytes(), usize::MAX, &[]).0
    }
}

mod tools {
    use super::*;

    #[test]
    fn a_call_that_changes_its_id_in_the_closing_event_is_one_call() {
        // Some releases of 1.x do this; a user interface would wait for the first id for ever.
        let events = read(&[
            event(json!({"partial": true, "content": call("adk-a", "f")})),
            event(json!({"content": call("adk-b", "f")})),
            event(json!({"id": "e2", "content": response("adk-b", "f", json!({"ok": 1}))})),
        ]);
        let starts = of(&events, "TOOL_CALL_START");
        assert_eq!(starts.len(), 1);
        assert_eq!(starts[0]["toolCallId"], "adk-b");
        assert_eq!(of(&events, "TOOL_CALL_RESULT")[0]["toolCallId"], "adk-b");
    }

    #[test]
    fn streamed_arguments_that_the_closing_event_changes_are_corrected() {
        let piece = |members: Value| {
            event(json!({"partial": true, "content": {"parts": [{"functionCall": members}]}}))
        };
        let events = read(&[
            piece(json!({"id": "c1", "name": "f", "willContinue": true})),
            piece(
                json!({"id": "c1", "partialArgs": [{"jsonPath": "$.a", "numberValue": 1}], "willContinue": true}),
            ),
            event(
                json!({"content": {"parts": [{"functionCall": {"id": "c1", "name": "f", "args": {"a": 2}}}]}}),
            ),
            event(json!({"id": "e2", "content": response("c1", "f", json!({}))})),
        ]);
        let messages = &of(&events, "MESSAGES_SNAPSHOT")[0]["messages"];
        assert_eq!(messages[0]["toolCalls"][0]["function"]["arguments"], r#"{"a":2}"#);
        assert_eq!(of(&events, "TOOL_CALL_START").len(), 1);
        assert_eq!(last(&events)["type"], "RUN_FINISHED");
    }

    #[test]
    fn pieces_without_a_known_id_belong_to_the_call_that_has_begun() {
        let piece = |id: &str, value: &str| {
            let pieces = json!([{"jsonPath": "$.a", "stringValue": value}]);
            let call = json!({"id": id, "partialArgs": pieces, "willContinue": true});
            event(json!({"partial": true, "content": {"parts": [{"functionCall": call}]}}))
        };
        let begun = json!({"id": "c1", "name": "f", "willContinue": true});
        let whole = json!({"id": "c1", "name": "f", "args": {"a": "xy"}});
        let events = read(&[
            event(json!({"partial": true, "content": {"parts": [{"functionCall": begun}]}})),
            piece("adk-1", "x"),
            piece("adk-2", "y"),
            event(json!({"content": {"parts": [{"functionCall": whole}]}})),
            event(json!({"id": "e2", "content": response("c1", "f", json!({}))})),
        ]);
        let deltas: Vec<_> = of(&events, "TOOL_CALL_ARGS").iter().map(|event| &event["delta"]).collect();
        assert_eq!(deltas, [r#"{"a":"x"#, "y", r#""}"#]);
        assert!(of(&events, "MESSAGES_SNAPSHOT").is_empty());
    }

    #[test]
    fn streamed_arguments_may_be_spelt_differently() {
        let piece = |members: Value| {
            event(json!({"partial": true, "content": {"parts": [{"functionCall": members}]}}))
        };
        let mut lines = String::new();
        for event in [
            piece(json!({"id": "c1", "name": "f", "willContinue": true})),
            piece(
                json!({"id": "c1", "partialArgs": [{"jsonPath": "$.a", "stringValue": "é"}], "willContinue": true}),
            ),
        ] {
            lines.push_str(&format!("{event}\n"));
        }
        lines.push_str(r#"{"id":"e1","invocationId":"i1","author":"agent","content":{"parts":[{"functionCall":{"id":"c1","name":"f","args":{"a":"\u00e9","b":[1]}}}]}}"#);
        lines.push('\n');
        lines.push_str(&event(json!({"id": "e2", "content": response("c1", "f", json!({}))})).to_string());
        let events = read_bytes(lines.as_bytes(), Framing::Lines, &[]);
        let args: String =
            of(&events, "TOOL_CALL_ARGS").iter().map(|event| event["delta"].as_str().unwrap()).collect();
        assert_eq!(args, r#"{"a":"é","b":[1]}"#);
        assert!(of(&events, "MESSAGES_SNAPSHOT").is_empty());
    }

    #[test]
    fn errors_are_marked() {
        for (given, wanted) in [
            (json!({"error": "no"}), Some("no")),
            (json!({"error": {"code": 5}}), Some(r#"{"code":5}"#)),
            (json!({"status": "error", "error_message": "bad"}), Some("bad")),
            (json!({"isError": true, "content": "boom"}), Some("boom")),
            (json!({"error": null, "value": 1}), None),
            (json!({"result": "error"}), None),
        ] {
            let events = read(&[
                event(json!({"content": call("c1", "f")})),
                event(json!({"id": "e2", "content": response("c1", "f", given.clone())})),
            ]);
            let result = of(&events, "TOOL_CALL_RESULT")[0];
            assert_eq!(result["content"].as_str(), Some(&*given.to_string()));
            assert_eq!(result["metadata"]["agentwire"]["error"].as_str(), wanted, "{given}");
        }
    }

    #[test]
    fn a_repeated_answer_is_dropped_and_a_later_one_replaces_it() {
        let events = read(&[
            event(json!({"content": call("c1", "f")})),
            event(json!({"id": "e2", "content": response("c1", "f", json!({"n": 1}))})),
            event(json!({"id": "e3", "content": response("c1", "f", json!({"n": 1}))})),
            event(json!({"id": "e4", "content": response("c1", "f", json!({"n": 2}))})),
        ]);
        assert_eq!(of(&events, "TOOL_CALL_RESULT").len(), 1);
        let messages = of(&events, "MESSAGES_SNAPSHOT")[0]["messages"].as_array().unwrap();
        let results: Vec<_> = messages.iter().filter(|message| message["role"] == "tool").collect();
        assert_eq!(results.len(), 1);
        assert_eq!(results[0]["content"], r#"{"n":2}"#);
    }

    #[test]
    fn calls_and_answers_without_ids_find_each_other() {
        let anonymous = |part: Value| json!({"parts": [part]});
        let events = read(&[
            event(json!({"content": anonymous(json!({"functionCall": {"name": "f"}}))})),
            event(
                json!({"id": "e2", "content": anonymous(json!({"functionResponse": {"name": "f", "response": {}}}))}),
            ),
        ]);
        assert_eq!(of(&events, "TOOL_CALL_ARGS")[0]["delta"], "{}");
        assert_eq!(
            of(&events, "TOOL_CALL_RESULT")[0]["toolCallId"],
            of(&events, "TOOL_CALL_START")[0]["toolCallId"]
        );
    }

    #[test]
    fn code_finds_its_result_in_a_later_event() {
        let events = read(&[
            event(json!({"content": {"parts": [{"executableCode": {"code": "1/0", "language": "PYTHON"}}]}})),
            event(json!({"id": "e2", "content": {"parts": [
                {"codeExecutionResult": {"outcome": "OUTCOME_FAILED", "output": "ZeroDivisionError"}}]}})),
        ]);
        let result = of(&events, "TOOL_CALL_RESULT")[0];
        assert_eq!(result["toolCallId"], of(&events, "TOOL_CALL_START")[0]["toolCallId"]);
        assert_eq!(result["metadata"]["agentwire"]["error"], "ZeroDivisionError");
    }
}

mod reused_ids {
    use super::*;

    fn add(id: &str, a: u32, b: u32) -> Value {
        json!({"role": "model", "parts": [{"functionCall": {"id": id, "name": "add", "args": {"a": a, "b": b}}}]})
    }

    fn sum(sum: u32) -> Value {
        response("c1", "add", json!({"result": sum}))
    }

    /// The model adds three times and calls each of them `c1`.
    fn thrice() -> Vec<Value> {
        let call = |id: &str, content| event(json!({"id": id, "modelVersion": "m", "content": content}));
        vec![
            call("e1", add("c1", 1, 2)),
            event(json!({"id": "e2", "content": sum(3)})),
            call("e3", add("c1", 5, 5)),
            event(json!({"id": "e4", "content": sum(10)})),
            call("e5", add("c1", 1, 2)),
            event(json!({"id": "e6", "content": sum(3)})),
            event(json!({"id": "e7", "modelVersion": "m", "content": text("done")})),
        ]
    }

    /// The calls with their arguments and results, as a client holds them in the end.
    fn calls(messages: &[Message]) -> Vec<(String, String, String)> {
        let result = |id: &str| {
            let mut results = messages.iter().filter_map(|message| match &message.body {
                MessageBody::Tool { call, content, .. } if &**call == id => Some(content.text()),
                _ => None,
            });
            let result = results.next().unwrap_or_default();
            assert_eq!(results.next(), None, "one result for each call");
            result
        };
        let calls = messages.iter().flat_map(Message::tool_calls);
        calls.map(|call| (call.id.to_string(), call.arguments.to_string(), result(&call.id))).collect()
    }

    fn shown(events: &[Value]) -> Vec<(String, String, String)> {
        folded(&read_for(events, RunInput::new("t", "r")))
    }

    fn folded(events: &[Event]) -> Vec<(String, String, String)> {
        let mut fold = Fold::new();
        events.iter().for_each(|event| fold.apply(event));
        calls(fold.messages())
    }

    fn triple(id: &str, arguments: &str, result: &str) -> (String, String, String) {
        (id.into(), arguments.into(), result.into())
    }

    fn three() -> Vec<(String, String, String)> {
        vec![
            triple("c1", r#"{"a":1,"b":2}"#, r#"{"result":3}"#),
            triple("c1#2", r#"{"a":5,"b":5}"#, r#"{"result":10}"#),
            triple("c1#3", r#"{"a":1,"b":2}"#, r#"{"result":3}"#),
        ]
    }

    #[test]
    fn an_answered_id_that_another_event_announces_is_another_call() {
        assert_eq!(shown(&thrice()), three());
        let events = read(&thrice());
        assert!(of(&events, "MESSAGES_SNAPSHOT").is_empty(), "nothing was taken back");
        assert_eq!(last(&events)["type"], "RUN_FINISHED");
        let mut nameless = thrice();
        nameless.iter_mut().for_each(|event| event["id"] = Value::Null);
        assert_eq!(shown(&nameless), three());
    }

    /// Each call in pieces before it comes whole, with the ids of both generations.
    #[test]
    fn streamed_calls_are_told_apart() {
        for generation in [1, 2] {
            let mut events = Vec::new();
            for whole in thrice() {
                let call = &whole["content"]["parts"][0]["functionCall"];
                let pieces = match call["id"].as_str() {
                    Some(id) => vec![
                        json!({"id": id, "name": "add", "willContinue": true}),
                        json!({"id": id, "partialArgs": [{"jsonPath": "$.a", "numberValue": call["args"]["a"]}], "willContinue": true}),
                    ],
                    None => vec![],
                };
                for (number, piece) in pieces.into_iter().enumerate() {
                    let mut partial = whole.clone();
                    partial["partial"] = true.into();
                    partial["content"] = json!({"parts": [{"functionCall": piece}]});
                    if generation == 1 {
                        partial["id"] = format!("{}-{number}", whole["id"].as_str().unwrap()).into();
                    }
                    events.push(partial);
                }
                events.push(whole);
            }
            assert_eq!(shown(&events), three());
            assert!(of(&read(&events), "MESSAGES_SNAPSHOT").is_empty());
            // A closing event that says otherwise corrects the call that it closes.
            for event in &mut events[4..] {
                if event["partial"].is_null() && event["id"] == "e3" {
                    event["content"] = add("c1", 6, 4);
                }
            }
            let corrected = shown(&events);
            assert_eq!(corrected[1], triple("c1#2", r#"{"a":6,"b":4}"#, r#"{"result":10}"#));
            assert_eq!((&corrected[0], &corrected[2]), (&three()[0], &three()[2]));
            // The closing event once more is no call.
            let closing = events.iter().position(|event| event["id"] == "e5" && event["partial"].is_null());
            events.push(events[closing.unwrap()].clone());
            assert_eq!(shown(&events), corrected);
        }
    }

    #[test]
    fn the_same_event_again_is_no_other_call() {
        let mut events = thrice()[..2].to_vec();
        events.push(events[0].clone());
        events.push(events[1].clone());
        assert_eq!(shown(&events), three()[..1]);
    }

    #[test]
    fn what_nobody_has_answered_is_announced_again_as_the_same_call() {
        let mut events = thrice();
        events.remove(1);
        events.truncate(3);
        assert_eq!(shown(&events), [triple("c1", r#"{"a":1,"b":2}"#, r#"{"result":10}"#)]);
        let waiting = [
            event(json!({"content": call("c1", "ask"), "longRunningToolIds": ["c1"]})),
            event(json!({"id": "e2", "content": response("c1", "ask", json!({"status": "pending"}))})),
            event(json!({"id": "e3", "content": call("c1", "ask"), "longRunningToolIds": ["c1"]})),
        ];
        assert_eq!(shown(&waiting), [triple("c1", "{}", "")], "a provisional answer is none");
    }

    #[test]
    fn a_stored_session_tells_them_apart() {
        let session = json!({"id": "s", "appName": "a", "userId": "u", "state": {}, "events": thrice()});
        assert_eq!(shown(std::slice::from_ref(&session)), three());
        let stored = input::session(&session.to_string(), &mut Tally::default()).unwrap();
        assert_eq!(calls(&stored.messages), three());
    }

    #[test]
    fn the_calls_of_earlier_runs_count() {
        let mut input = RunInput::new("t", "r");
        let mut fold = Fold::new();
        for run in thrice().chunks(2) {
            let events = read_for(run, input.clone());
            events.iter().for_each(|event| fold.apply(event));
            input.messages = fold.messages().to_vec();
        }
        assert_eq!(calls(fold.messages()), three());
    }

    #[test]
    fn what_waits_goes_back_under_the_models_id() {
        let mut events = thrice()[..3].to_vec();
        events[2]["longRunningToolIds"] = json!(["c1"]);
        let session = json!({"id": "s", "events": events});
        let stored = input::session(&session.to_string(), &mut Tally::default()).unwrap();
        assert_eq!(stored.interrupts[0].tool_call.as_deref(), Some("c1#2"));
        let waiting = [input::Waiting::of_interrupt(&stored.interrupts[0]).unwrap()];
        let mut input = RunInput::new("s", "r");
        input.messages = stored.messages;
        let body = MessageBody::Tool { call: "c1#2".into(), content: "10".into(), error: None };
        input.messages.push(Message::new("answer", body));
        let known = input::Known { state: None, waiting: &waiting };
        let request = input::Api::new("a", "u").run(&input, known).unwrap().body.unwrap().to_value();
        assert_eq!(
            request["newMessage"]["parts"],
            json!([{"functionResponse": {"id": "c1", "name": "add", "response": {"result": 10}}}])
        );
    }

    #[test]
    fn a_confirmation_names_the_call_as_it_is_shown() {
        let mut events = thrice()[..3].to_vec();
        events.push(event(json!({"id": "e4", "content": response("c1", "add", json!({"error": "confirm"})),
            "actions": {"requestedToolConfirmations": {"c1": {"hint": "Sure?"}}}})));
        events.push(event(
            json!({"id": "e5", "longRunningToolIds": ["q1"], "content": {"parts": [{"functionCall": {
            "id": "q1", "name": "adk_request_confirmation", "args": {
                "originalFunctionCall": {"id": "c1", "name": "add", "args": {"a": 5, "b": 5}},
                "toolConfirmation": {"hint": "Sure?", "confirmed": false}}}}]}}),
        ));
        let asked = read_for(&events, RunInput::new("t", "r"));
        let interrupt = last(&values(&asked))["outcome"]["interrupts"][0].clone();
        assert_eq!((&interrupt["id"], &interrupt["toolCallId"]), (&json!("q1"), &json!("c1#2")));
        // The run that goes on only brings the result.
        let mut fold = Fold::new();
        asked.iter().for_each(|event| fold.apply(event));
        let mut input = RunInput::new("t", "r2");
        input.messages = fold.messages().to_vec();
        let rest = read_for(&[event(json!({"id": "e6", "content": sum(10)}))], input);
        rest.iter().for_each(|event| fold.apply(event));
        assert_eq!(calls(fold.messages())[..2], three()[..2]);
    }
}

mod waiting {
    use super::*;

    #[test]
    fn several_wait_in_the_order_of_their_calls() {
        // ADK keeps the ids in a set, so their order there means nothing.
        let content = json!({"parts": [
            {"functionCall": {"id": "c1", "name": "ask", "args": {"q": 1}}},
            {"functionCall": {"id": "c2", "name": "lookup", "args": {}}},
            {"functionCall": {"id": "c3", "name": "ask", "args": {"q": 3}}},
        ]});
        let events = read(&[
            event(json!({"content": content, "longRunningToolIds": ["c3", "c1"]})),
            event(json!({"id": "e2", "content": response("c2", "lookup", json!({"found": true}))})),
        ]);
        let interrupts = last(&events)["outcome"]["interrupts"].as_array().unwrap();
        let ids: Vec<_> = interrupts.iter().map(|interrupt| &interrupt["id"]).collect();
        assert_eq!(ids, ["c1", "c3"]);
        assert_eq!(interrupts[0]["metadata"], json!({"name": "ask", "arguments": {"q": 1}}));
        assert_eq!(of(&events, "TOOL_CALL_RESULT").len(), 1);
    }

    #[test]
    fn a_provisional_answer_is_no_result_unless_asked_for() {
        let stream = [
            event(json!({"content": call("c1", "ask"), "longRunningToolIds": ["c1"]})),
            event(json!({"id": "e2", "content": response("c1", "ask", json!({"status": "pending"}))})),
            event(json!({"id": "e3", "content": text("Waiting.")})),
        ];
        let events = read(&stream);
        assert!(of(&events, "TOOL_CALL_RESULT").is_empty());
        assert_eq!(custom(&events, "adk.provisional_result")[0]["response"], json!({"status": "pending"}));
        assert_eq!(said(&events), "Waiting.", "what the model says after it is kept");
        assert_eq!(
            last(&events)["outcome"]["interrupts"][0]["metadata"]["provisional"],
            json!({"status": "pending"})
        );
        let events = read_with(&stream, &["provisional=result"]);
        assert_eq!(of(&events, "TOOL_CALL_RESULT")[0]["metadata"]["adk"]["provisional"], true);
    }

    #[test]
    fn requests_of_adk_wait_even_if_the_event_does_not_say_so() {
        let events = read(&[event(json!({"content": {"parts": [{"functionCall": {
            "id": "i1", "name": "adk_request_input", "args": {
                "interruptId": "i1", "message": "Which?", "payload": [1],
                "response_schema": {"type": "string"}}}}]}}))]);
        let interrupt = &last(&events)["outcome"]["interrupts"][0];
        assert_eq!(interrupt["reason"], "input_required");
        assert_eq!(interrupt["message"], "Which?");
        assert_eq!(interrupt["responseSchema"], json!({"type": "string"}));
        assert_eq!(interrupt["metadata"]["payload"], json!([1]));
    }

    #[test]
    fn a_confirmation_names_the_call_it_guards() {
        let events =
            read(&[event(json!({"longRunningToolIds": ["q1"], "content": {"parts": [{"functionCall": {
            "id": "q1", "name": "adk_request_confirmation", "args": {
                "originalFunctionCall": {"id": "c1", "name": "rm", "args": {"path": "/"}},
                "toolConfirmation": {"hint": "Sure?", "confirmed": false, "payload": {"dry": true}}}}}]}}))]);
        let interrupt = &last(&events)["outcome"]["interrupts"][0];
        assert_eq!(interrupt["toolCallId"], "c1");
        assert_eq!(interrupt["message"], "Sure?");
        assert_eq!(interrupt["metadata"]["originalCall"]["args"], json!({"path": "/"}));
        assert_eq!(interrupt["metadata"]["payload"], json!({"dry": true}));
        assert_eq!(interrupt["responseSchema"]["required"], json!(["confirmed"]));
    }

    #[test]
    fn the_answer_of_a_person_is_a_result() {
        let events = read(&[
            event(json!({"content": call("c1", "ask"), "longRunningToolIds": ["c1"]})),
            event(
                json!({"id": "e2", "author": "user", "content": response("c1", "ask", json!({"ok": true}))}),
            ),
            event(json!({"id": "e3", "content": text("Thanks.")})),
        ]);
        assert_eq!(of(&events, "TOOL_CALL_RESULT")[0]["content"], r#"{"ok":true}"#);
        assert_eq!(last(&events)["outcome"], Value::Null);
    }

    #[test]
    fn a_tool_of_the_user_interface_is_no_interrupt() {
        let mut input = RunInput::new("t", "r");
        let (name, description) = ("pick_colour".into(), "".into());
        input.tools.push(Tool { name, description, parameters: None, metadata: None });
        let stream = [event(json!({"content": call("c1", "pick_colour"), "longRunningToolIds": ["c1"]}))];
        let events = read_for(&stream, input);
        let Some(Body::RunFinished(finished)) = events.last().map(|event| &event.body) else { panic!() };
        assert_eq!(finished.outcome, Some(Outcome::Success { pending: vec!["c1".into()] }));
    }
}

mod errors {
    use super::*;

    #[test]
    fn there_is_one_terminal_event_with_adks_code() {
        for code in ["SAFETY", "MAX_TOKENS", "RECITATION", "MALFORMED_FUNCTION_CALL"] {
            let events = read(&[
                event(json!({"partial": true, "content": text("Half")})),
                event(json!({"partial": true, "errorCode": code, "finishReason": code})),
                event(
                    json!({"content": text("Half"), "errorCode": code, "errorMessage": "why", "finishReason": code}),
                ),
            ]);
            assert_eq!(said(&events), "Half");
            assert_eq!(last(&events)["type"], "RUN_ERROR");
            assert_eq!((&last(&events)["code"], &last(&events)["message"]), (&json!(code), &json!("why")));
        }
    }

    #[test]
    fn a_partial_error_counts_if_no_closing_event_comes() {
        let events = read(&[event(json!({"partial": true, "errorCode": "SAFETY"}))]);
        assert_eq!(last(&events)["code"], "SAFETY");
        let events = read(&[
            event(json!({"partial": true, "content": text("a"), "errorCode": "SAFETY"})),
            event(json!({"content": text("a")})),
        ]);
        assert_eq!(last(&events)["type"], "RUN_FINISHED");
    }

    #[test]
    fn an_agent_that_fails_does_not_hide_what_the_next_one_says() {
        let events = read(&[
            event(json!({"author": "a", "content": text("Cut"), "errorCode": "MAX_TOKENS"})),
            event(json!({"id": "e2", "author": "b", "content": text("Whole.")})),
        ]);
        assert_eq!(said(&events), "CutWhole.");
        assert_eq!(last(&events)["code"], "MAX_TOKENS");
        let events = read_with(
            &[event(json!({"content": text("Cut"), "errorCode": "MAX_TOKENS"}))],
            &["max_tokens=warning"],
        );
        assert_eq!(last(&events)["type"], "RUN_FINISHED");
        assert_eq!(custom(&events, "adk.warning")[0]["code"], "MAX_TOKENS");
    }

    /// A workflow node that raises in the middle of a text, and what comes next.
    fn raising(next: &[Value]) -> Vec<Value> {
        let at = |path: &str, id: &str, mut members: Value| {
            members["nodeInfo"] = json!({"path": path});
            members["id"] = id.into();
            event(members)
        };
        let mut events = vec![
            at("w@1/a@1", "e1", json!({"partial": true, "content": text("Half an")})),
            at("w@1/a@1", "e2", json!({"errorCode": "ValueError", "errorMessage": "flaky"})),
        ];
        for (number, next) in next.iter().enumerate() {
            let path = next["path"].as_str().unwrap();
            events.push(at(path, &format!("n{number}"), next["event"].clone()));
        }
        read(&events)
    }

    #[test]
    fn a_node_that_is_tried_again_has_not_failed() {
        let piece = json!({"partial": true, "content": text("Whole")});
        for next in [
            &[
                json!({"path": "w@1/a@1", "event": piece}),
                json!({"path": "w@1/a@1", "event": {"content": text("Whole")}}),
            ][..],
            // The node above has caught the error.
            &[json!({"path": "w@1", "event": {"content": text("Whole")}})],
        ] {
            let events = raising(next);
            assert_eq!(last(&events)["type"], "RUN_FINISHED");
            assert_eq!(custom(&events, "adk.warning"), [&json!({"code": "ValueError", "message": "flaky"})]);
            let mut fold = crate::fold::Fold::new();
            super::streaming::golden_events(&events).iter().for_each(|event| fold.apply(event));
            let said: Vec<_> = fold.messages().iter().map(|message| &message.body).collect();
            let whole = MessageBody::Assistant { content: Some("Whole".into()), tool_calls: None };
            assert_eq!(said, [&whole], "the first attempt is not told");
        }
    }

    #[test]
    fn a_node_that_nobody_tries_again_has_failed() {
        let beside = json!({"path": "w@1/b@1", "event": {"content": text("Beside")}});
        for next in [&[beside][..], &[]] {
            let events = raising(next);
            assert_eq!(last(&events)["code"], "ValueError");
        }
        // A prompt that was refused stays refused, whatever the agent adds to it.
        let at = |mut members: Value| {
            members["nodeInfo"] = json!({"path": "a@1"});
            event(members)
        };
        let events =
            read(&[at(json!({"errorCode": "SAFETY"})), at(json!({"id": "e2", "content": text("Bye.")}))]);
        assert_eq!(last(&events)["code"], "SAFETY");
    }

    #[test]
    fn a_task_may_need_more_than_one_run() {
        let asks = json!({"id": "e2", "author": "t", "isolationScope": "c1", "content": text("Which?")});
        let events = read(&[event(json!({"modelVersion": "m", "content": call("c1", "t")})), event(asks)]);
        assert_eq!(last(&events)["type"], "RUN_FINISHED");
    }

    #[test]
    fn without_streaming_the_reason_alone_is_the_error() {
        for reason in ["MAX_TOKENS", "SAFETY", "MALFORMED_FUNCTION_CALL"] {
            let events = read(&[event(json!({"content": text("Half an"), "finishReason": reason}))]);
            assert_eq!(said(&events), "Half an");
            assert_eq!(
                (&last(&events)["type"], &last(&events)["code"]),
                (&json!("RUN_ERROR"), &json!(reason))
            );
        }
        let cut = event(json!({"content": text("Half an"), "finishReason": "MAX_TOKENS"}));
        let events = read_with(&[cut], &["max_tokens=warning"]);
        assert_eq!(custom(&events, "adk.warning").len(), 1);
        assert_eq!(last(&events)["type"], "RUN_FINISHED");
        let events = read(&[event(json!({"content": text("All."), "finishReason": "OTHER"}))]);
        assert_eq!(last(&events)["type"], "RUN_FINISHED", "a reason that ADK's adapter does not know");
    }

    #[test]
    fn stopping_without_a_word_is_no_error() {
        let events = read(&[event(json!({"errorCode": "STOP", "finishReason": "STOP"}))]);
        assert_eq!(last(&events)["type"], "RUN_FINISHED");
    }

    #[test]
    fn error_frames_of_both_generations_end_the_run() {
        let first = event(json!({"partial": true, "content": text("Half")}));
        let events = read(&[first.clone(), json!({"error": "boom"})]);
        assert_eq!(last(&events)["message"], "boom");
        assert_eq!(last(&events)["code"], "UPSTREAM_ERROR");
        let events = read(&[
            first.clone(),
            json!({"error": "ValueError: boom", "error_details": {"error_type": "ValueError", "error_message": "boom"}}),
        ]);
        assert_eq!(
            (&last(&events)["code"], &last(&events)["message"]),
            (&json!("ValueError"), &json!("boom"))
        );
        // In the middle: what follows is still read, the end is still a failure.
        let events =
            read(&[first, json!({"error": "boom"}), event(json!({"content": text("Half and half")}))]);
        assert_eq!(said(&events), "Half and half");
        assert_eq!(last(&events)["type"], "RUN_ERROR");
    }

    #[test]
    fn a_frame_without_a_code_does_not_hide_that_of_the_event_before_it() {
        let failed = event(json!({"errorCode": "ValueError", "errorMessage": "no"}));
        let events = read(&[failed, json!({"error": "ValueError: no"})]);
        assert_eq!(of(&events, "RUN_ERROR").len(), 1);
        assert_eq!((&last(&events)["code"], &last(&events)["message"]), (&json!("ValueError"), &json!("no")));
    }

    #[test]
    fn a_model_that_is_cut_off_did_not_succeed() {
        let events = read(&[event(json!({"partial": true, "modelVersion": "m", "content": text("Half")}))]);
        assert_eq!(last(&events)["code"], "STREAM_TRUNCATED");
        let events = read(&[event(json!({"modelVersion": "m", "content": call("c1", "f")}))]);
        assert_eq!(last(&events)["message"], "the stream ended before `f` answered");
        // A custom agent has no such habits.
        let events = read(&[event(json!({"partial": true, "content": text("All there is.")}))]);
        assert_eq!(last(&events)["type"], "RUN_FINISHED");
    }

    #[test]
    fn a_failed_stream_keeps_the_reason_of_its_driver() {
        let options = SourceOptions::default();
        let mut source = Source::new(&FORMAT, Framing::Sse, &options).unwrap();
        let mut out = Vec::new();
        let frame = format!("data: {}\n\n", event(json!({"partial": true, "content": text("Half")})));
        source.push(frame.as_bytes(), &mut |event| out.push(event)).unwrap();
        let end = StreamEnd::Failed { code: "UPSTREAM_LOST".into(), message: "reset".into() };
        source.end(&end, &mut |event| out.push(event)).unwrap();
        check(&out);
        assert_eq!(values(&out).last().unwrap()["code"], "UPSTREAM_LOST");
    }
}

mod bad_input {
    use super::*;

    fn problem(line: &str) -> String {
        let (events, failure) =
            golden::read_framed(&FORMAT, Framing::Lines, line.as_bytes(), usize::MAX, &[]);
        check(&events);
        assert!(matches!(events.last().unwrap().body, Body::RunError(_)));
        failure.expect("the line is refused")
    }

    #[test]
    fn malformed_members_are_named_by_their_path() {
        for (line, wanted) in [
            (r#"{"author":7}"#, "line 1 at byte 0: at `/author`: expected a string, found the number 7"),
            (
                r#"{"author":"a","content":{"parts":[{"text":"x"},{"text":{}}]}}"#,
                "line 1 at byte 0: at `/content/parts/1/text`: expected a string, found an object",
            ),
            (
                r#"{"author":"a","content":{"parts":{}}}"#,
                "line 1 at byte 0: at `/content/parts`: expected an array, found an object",
            ),
            (
                r#"{"author":"a","content":"hello"}"#,
                r#"line 1 at byte 0: at `/content`: expected an object, found the string "hello""#,
            ),
            (
                r#"{"author":"a","actions":{"stateDelta":[]}}"#,
                "line 1 at byte 0: at `/actions/stateDelta`: expected an object, found an array",
            ),
            (
                r#"{"author":"a","long_running_tool_ids":[1]}"#,
                "line 1 at byte 0: at `/long_running_tool_ids/0`: expected a string, found the number 1",
            ),
            ("<!DOCTYPE html>", "line 1 at byte 0: expected an ADK event, found an HTML or XML page"),
            ("7", "line 1 at byte 0: expected an ADK event, found the number 7"),
        ] {
            assert_eq!(problem(line), wanted);
        }
        assert!(problem(r#"{"author":"#).contains("not valid JSON"));
    }

    #[test]
    fn an_html_page_in_the_place_of_a_stream_is_an_error() {
        let page = b"<!DOCTYPE html>\n<html><body><h1>502 Bad Gateway</h1></body></html>\n";
        let (events, _) = golden::read_framed(&FORMAT, Framing::Sse, page, usize::MAX, &[]);
        check(&events);
        assert_eq!(values(&events).last().unwrap()["code"], "UPSTREAM_NO_EVENTS");
    }

    #[test]
    fn empty_things_are_nothing() {
        let events = read(&[
            event(json!({})),
            event(json!({"content": null, "actions": null, "nodeInfo": null, "longRunningToolIds": null})),
            event(json!({"content": {}})),
            event(json!({"content": {"parts": []}})),
            event(json!({"content": {"parts": [{}]}, "partial": true})),
            event(json!({"content": {"parts": [{"text": ""}]}})),
        ]);
        assert_eq!(kinds(&events), ["RUN_STARTED", "STEP_STARTED", "STEP_FINISHED", "RUN_FINISHED"]);
    }

    #[test]
    fn unknown_members_are_counted() {
        let line = event(
            json!({"brandNew": 1, "content": {"parts": [{"hologram": {}}]}, "actions": {"levitate": true}}),
        );
        let mut source = Source::new(&FORMAT, Framing::Lines, &SourceOptions::default()).unwrap();
        source.push(format!("{line}\n{{\"what\":1}}\n[DONE]\n").as_bytes(), &mut |_| {}).unwrap();
        source.end(&StreamEnd::Closed, &mut |_| {}).unwrap();
        let tally = source.tally();
        assert_eq!(tally.count("unknown property", "brandNew"), 1);
        assert_eq!(tally.count("unknown property", "part.hologram"), 1);
        assert_eq!(tally.count("unknown property", "actions.levitate"), 1);
        assert_eq!(tally.count("unknown frame", "what"), 1);
        assert_eq!(tally.count("unknown frame", "[DONE]"), 1);
    }

    #[test]
    fn half_an_emoji_is_repaired() {
        let line = r#"{"author":"a","id":"e","content":{"parts":[{"text":"a\ud83d"}]}}"#;
        assert_eq!(said(&read_bytes(line.as_bytes(), Framing::Lines, &[])), "a\u{fffd}");
    }

    #[test]
    fn what_was_encoded_twice_is_understood() {
        let inner = event(json!({"content": text("Hi")})).to_string();
        let frame = format!("data: {}\n\n", Value::from(inner));
        assert_eq!(said(&read_bytes(frame.as_bytes(), Framing::Sse, &[])), "Hi");
    }

    #[test]
    fn a_whole_array_in_one_frame_is_understood() {
        let frame = format!("data: {}\n\n", json!([event(json!({"content": text("Hi")}))]));
        assert_eq!(said(&read_bytes(frame.as_bytes(), Framing::Sse, &[])), "Hi");
    }

    #[test]
    fn events_without_any_id_have_one_made() {
        let events = read(&[
            json!({"author": "a", "content": text("one")}),
            json!({"author": "a", "content": text("two")}),
        ]);
        let ids: Vec<_> = of(&events, "TEXT_MESSAGE_START").iter().map(|event| &event["messageId"]).collect();
        assert_eq!(ids, ["r:0", "r:1"]);
    }
}

mod spelling {
    use super::*;

    /// The same event as `model_dump_json()` without aliases writes it: snake_case, and `null` for what is not there.
    fn snake(value: &Value, in_data: bool) -> Value {
        match value {
            Value::Object(map) => {
                let snake_key = |key: &str| -> String {
                    key.chars()
                        .flat_map(
                            |c| if c.is_uppercase() { vec!['_', c.to_ascii_lowercase()] } else { vec![c] },
                        )
                        .collect()
                };
                let mut out = serde_json::Map::new();
                for (key, value) in map {
                    let data = in_data
                        || matches!(
                            &**key,
                            "args"
                                | "response"
                                | "stateDelta"
                                | "artifactDelta"
                                | "customMetadata"
                                | "requestedToolConfirmations"
                                | "requestedAuthConfigs"
                                | "output"
                                | "state"
                                | "inputTranscription"
                                | "outputTranscription"
                        );
                    let key = if in_data { key.clone() } else { snake_key(key) };
                    out.insert(key, snake(value, data));
                }
                if !in_data {
                    out.entry("something_absent").or_insert(Value::Null);
                }
                Value::Object(out)
            }
            Value::Array(list) => list.iter().map(|value| snake(value, in_data)).collect(),
            other => other.clone(),
        }
    }

    #[test]
    fn snake_case_means_the_same() {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src/format/adk/fixtures");
        let mut count = 0;
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_str().unwrap().to_owned();
            // Grounding is passed on whole as well, in whatever spelling it came.
            if !name.ends_with(".jsonl")
                || name.contains(".events.")
                || name.starts_with("grounding")
                || name.starts_with("long")
            {
                continue;
            }
            let given = std::fs::read_to_string(&path).unwrap();
            let other: String = given
                .lines()
                .map(|line| format!("{}\n", snake(&serde_json::from_str(line).unwrap(), false)))
                .collect();
            let read = |text: &str| {
                golden::lines(
                    &golden::read_framed(&FORMAT, Framing::Lines, text.as_bytes(), usize::MAX, &[]).0,
                )
            };
            // Values inside arguments may be spelt differently by our re-encoding, nothing else.
            assert_eq!(read(&given), read(&other), "{name}");
            count += 1;
        }
        assert!(count > 40);
    }
}

mod places {
    use super::*;

    fn steps(events: &[Value]) -> Vec<String> {
        let show = |event: &Value| match event["type"].as_str().unwrap() {
            "STEP_STARTED" => Some(format!("+{}", event["stepName"].as_str().unwrap())),
            "STEP_FINISHED" => Some(format!("-{}", event["stepName"].as_str().unwrap())),
            _ => None,
        };
        events.iter().filter_map(show).collect()
    }

    fn at(path: &str) -> Value {
        event(
            json!({"id": path, "author": path.rsplit('/').next(), "nodeInfo": {"path": path}, "content": text("x")}),
        )
    }

    #[test]
    fn nested_nodes_close_from_the_inside() {
        let events = read(&[at("a@1"), at("a@1/b@1"), at("a@1/b@1/c@1"), at("a@1/d@1"), at("a@1")]);
        assert_eq!(steps(&events), ["+a", "+a/b", "+a/b/c", "-a/b/c", "-a/b", "+a/d", "-a/d", "-a"]);
    }

    #[test]
    fn a_node_that_runs_again_is_a_step_again() {
        let events = read(&[at("a@1/b@1"), at("a@1/b@2")]);
        assert_eq!(steps(&events), ["+a/b", "-a/b", "+a/b", "-a/b"]);
    }

    #[test]
    fn two_instances_at_once_are_told_apart() {
        let mut one = at("a@1/b@1");
        one["partial"] = json!(true);
        let events = read(&[one, at("a@1/b@2")]);
        assert_eq!(steps(&events), ["+a/b", "+a@1/b@2", "-a@1/b@2", "-a/b"]);
    }

    #[test]
    fn parallel_branches_end_when_the_run_moves_on() {
        let on = |branch: &str, author: &str| {
            event(json!({"id": author, "branch": branch, "author": author, "content": text("x")}))
        };
        let events = read(&[on("", "first"), on("p.a", "a"), on("p.b", "b"), on("p.a", "a"), on("", "last")]);
        assert_eq!(steps(&events), ["+first", "-first", "+p.a", "+p.b", "-p.b", "-p.a", "+last", "-last"]);
    }
}

mod subagents {
    use super::*;

    const ON: &[&str] = &["subagents=on"];

    fn at(path: &str, id: &str, members: Value) -> Value {
        let author = path.rsplit('/').next().and_then(|node| node.split('@').next());
        let mut event = event(json!({"id": id, "author": author, "nodeInfo": {"path": path}}));
        for (key, value) in members.as_object().unwrap() {
            event[key] = value.clone();
        }
        event
    }

    /// What begins and ends, and who says what.
    fn shown(events: &[Value]) -> Vec<String> {
        let show = |event: &Value| {
            let id = event["subagentRunId"].as_str().unwrap_or("main");
            match event["type"].as_str().unwrap() {
                "SUBAGENT_STARTED" => Some(format!("+{id} {}", event["name"].as_str().unwrap())),
                "SUBAGENT_FINISHED" => Some(format!("-{id}")),
                "SUBAGENT_ERROR" => Some(format!("!{id} {}", event["code"].as_str().unwrap())),
                "TEXT_MESSAGE_CONTENT" => Some(format!("{id}: {}", event["delta"].as_str().unwrap())),
                _ => None,
            }
        };
        events.iter().filter_map(show).collect()
    }

    #[test]
    fn they_nest_and_close_from_the_inside() {
        let events = read_with(
            &[
                at("a@1", "1", json!({"content": text("one")})),
                at("a@1/b@1", "2", json!({"content": text("two")})),
                at("a@1/b@1/c@1", "3", json!({"content": text("three")})),
                at("a@1", "4", json!({"content": text("four")})),
                at("a@1/b@1", "5", json!({"content": text("five")})),
            ],
            ON,
        );
        let (b, c, again) = ("r:a@1/b@1:0", "r:a@1/b@1/c@1:1", "r:a@1/b@1:2");
        assert_eq!(
            shown(&events),
            [
                "main: one".to_owned(),
                format!("+{b} b"),
                format!("{b}: two"),
                format!("+{c} c"),
                format!("{c}: three"),
                format!("-{c}"),
                format!("-{b}"),
                "main: four".to_owned(),
                format!("+{again} b"),
                format!("{again}: five"),
                format!("-{again}"),
            ]
        );
        let parents: Vec<_> =
            of(&events, "SUBAGENT_STARTED").iter().map(|one| &one["parentSubagentRunId"]).collect();
        assert_eq!(parents, [&Value::Null, &json!(b), &Value::Null]);
    }

    #[test]
    fn parallel_ones_keep_their_own_words() {
        let on = |branch: &str, said: &str, partial: bool| {
            let author = branch.rsplit('.').next();
            event(
                json!({"id": branch, "branch": branch, "author": author, "partial": partial, "content": text(said)}),
            )
        };
        let events = read_with(
            &[
                on("p.a", "1", true),
                on("p.b", "2", true),
                on("p.a", "3", true),
                on("p.b", "24", false),
                on("p.a", "13", false),
            ],
            ON,
        );
        let (a, b) = ("r:p.a:0", "r:p.b:1");
        let expected = ["+A a", "A: 1", "+B b", "B: 2", "A: 3", "B: 4", "-B", "-A"];
        let expected = expected.map(|line| line.replace('A', a).replace('B', b));
        assert_eq!(shown(&events), expected);
    }

    #[test]
    fn a_transfer_names_the_call_that_made_it() {
        let mut over = event(
            json!({"author": "desk", "content": response("c1", "transfer_to_agent", json!({"result": null}))}),
        );
        over["actions"] = json!({"transferToAgent": "billing"});
        let events = read_with(
            &[
                event(json!({"author": "desk", "content": call("c1", "transfer_to_agent")})),
                over,
                event(json!({"id": "e3", "author": "billing", "content": text("hello")})),
            ],
            ON,
        );
        let started = of(&events, "SUBAGENT_STARTED");
        assert_eq!(started.len(), 1);
        assert_eq!((&started[0]["name"], &started[0]["parentToolCallId"]), (&json!("billing"), &json!("c1")));
        assert_eq!(of(&events, "TEXT_MESSAGE_CONTENT")[0]["subagentRunId"], "r:billing:0");
    }

    #[test]
    fn one_that_waits_is_suspended_with_its_interrupt() {
        let events = read_with(
            &[
                at("a@1", "1", json!({"content": text("x")})),
                at("a@1/b@1", "2", json!({"content": call("c1", "approve"), "longRunningToolIds": ["c1"]})),
            ],
            ON,
        );
        assert_eq!(
            of(&events, "SUBAGENT_FINISHED")[0]["outcome"],
            json!({"type": "suspended", "interruptIds": ["c1"]})
        );
        assert_eq!(last(&events)["outcome"]["interrupts"][0]["subagentRunId"], "r:a@1/b@1:0");
    }

    #[test]
    fn the_one_that_fails_is_named() {
        let failed = json!({"branch": "p.b", "errorCode": "SAFETY", "errorMessage": "no"});
        let events = read_with(
            &[
                at("", "1", json!({"branch": "p.a", "content": text("x")})),
                at("", "2", failed),
                at("", "3", json!({"branch": "p.a", "content": text("y")})),
            ],
            ON,
        );
        assert_eq!(shown(&events).last().unwrap(), "-r:p.a:0");
        assert_eq!(of(&events, "SUBAGENT_ERROR")[0]["subagentRunId"], "r:p.b:1");
        assert_eq!(last(&events)["code"], "SAFETY");
        let events = read_with(
            &[
                at("a@1/b@1", "1", json!({"content": text("x")})),
                at("a@1/b@1/c@1", "2", json!({"errorCode": "SAFETY", "errorMessage": "no"})),
                json!({"error": "no", "error_details": {"error_type": "SAFETY"}}),
            ],
            ON,
        );
        let lines = shown(&events);
        assert_eq!(lines[lines.len() - 2..], ["!r:a@1/b@1/c@1:1 SAFETY", "-r:a@1/b@1:0"]);
        assert_eq!(last(&events)["code"], "SAFETY");
    }

    #[test]
    fn a_correction_keeps_whose_words_they_are() {
        let events = read_with(
            &[
                at("a@1", "1", json!({"content": text("main")})),
                at("a@1/b@1", "2", json!({"partial": true, "content": text("wrong")})),
                at("a@1/b@1", "2", json!({"content": text("right")})),
            ],
            ON,
        );
        let snapshot = of(&events, "MESSAGES_SNAPSHOT")[0];
        let owners: Vec<_> = snapshot["messages"]
            .as_array()
            .unwrap()
            .iter()
            .map(|message| &message["subagentRunId"])
            .collect();
        assert_eq!(owners, [&Value::Null, &json!("r:a@1/b@1:0")]);
    }
}

mod state {
    use super::*;

    #[test]
    fn keys_are_escaped_and_temporary_ones_held_back() {
        let delta = json!({"a/b": 1, "c~d": null, "": 2, "x y": {"z": []}, "user:lang": "fr", "temp:t": 1, "agentwire:tools": []});
        let events = read(&[event(json!({"actions": {"stateDelta": delta}}))]);
        let paths: Vec<_> =
            of(&events, "STATE_DELTA")[0]["delta"].as_array().unwrap().iter().map(|op| &op["path"]).collect();
        assert_eq!(paths, ["/a~1b", "/c~0d", "/", "/x y", "/user:lang"]);
        assert_eq!(
            of(&events, "STATE_SNAPSHOT")[0]["snapshot"],
            json!({"a/b": 1, "c~d": null, "": 2, "x y": {"z": []}, "user:lang": "fr"})
        );
        let shown = read_with(&[event(json!({"actions": {"stateDelta": {"temp:t": 1}}}))], &["temp=show"]);
        assert_eq!(of(&shown, "STATE_SNAPSHOT")[0]["snapshot"], json!({"temp:t": 1}));
    }

    #[test]
    fn the_snapshot_at_the_end_keeps_what_the_request_brought() {
        let mut input = RunInput::new("t", "r");
        input.state = Some(Json::parse(r#"{"keep":"me","n":1}"#).unwrap());
        let events = values(&read_for(&[event(json!({"actions": {"stateDelta": {"n": 2}}}))], input));
        assert_eq!(of(&events, "STATE_SNAPSHOT")[0]["snapshot"], json!({"keep": "me", "n": 2}));
    }

    #[test]
    fn the_snapshot_is_a_choice() {
        let stream = [event(json!({"content": text("x")}))];
        assert!(of(&read(&stream), "STATE_SNAPSHOT").is_empty());
        assert_eq!(of(&read_with(&stream, &["snapshot=always"]), "STATE_SNAPSHOT").len(), 1);
        let changed = [event(json!({"actions": {"stateDelta": {"n": 2}}}))];
        assert!(of(&read_with(&changed, &["snapshot=never"]), "STATE_SNAPSHOT").is_empty());
    }
}

mod extras {
    use super::*;

    #[test]
    fn media_of_both_alphabets_become_files() {
        let events = read(&[event(json!({"content": {"parts": [
            {"inlineData": {"mimeType": "audio/pcm", "data": "-_8="}},
            {"fileData": {"mimeType": "image/png", "fileUri": "gs://b/o.png"}},
        ]}}))]);
        let files: Vec<_> = of(&events, "ACTIVITY_SNAPSHOT").iter().map(|event| &event["content"]).collect();
        assert_eq!(files[0]["kind"], "audio");
        assert_eq!(files[0]["source"]["value"], "+/8=");
        assert_eq!(files[1]["source"]["value"], "gs://b/o.png");
    }

    #[test]
    fn custom_metadata_of_a_request_is_told_once() {
        let events = read(&[
            event(json!({"partial": true, "content": text("a"), "customMetadata": {"trace": 1}})),
            event(json!({"content": text("a"), "customMetadata": {"trace": 1}})),
            event(json!({"id": "e2", "content": text("b"), "customMetadata": {"trace": 1}})),
            event(json!({"id": "e3", "content": text("c"), "customMetadata": {"trace": 2}})),
        ]);
        assert_eq!(custom(&events, "adk.metadata"), [&json!({"trace": 1}), &json!({"trace": 2})]);
    }

    #[test]
    fn usage_is_counted_once_per_turn_and_model() {
        let usage = json!({"promptTokenCount": 10, "candidatesTokenCount": 2, "thoughtsTokenCount": 3,
            "cachedContentTokenCount": 4, "toolUsePromptTokenCount": 1, "totalTokenCount": 16});
        let turn = |id: &str, model: &str, partial: bool| {
            event(
                json!({"id": id, "partial": partial, "modelVersion": model, "content": text("x"), "usageMetadata": usage}),
            )
        };
        let events = read(&[
            turn("a", "m", true),
            turn("a", "m", false),
            turn("b", "m", false),
            turn("c", "n", false),
        ]);
        assert_eq!(
            last(&events)["usage"],
            json!([
                {"model": "m", "inputTokens": 22, "outputTokens": 10, "totalTokens": 32, "reasoningTokens": 6, "cachedInputTokens": 8},
                {"model": "n", "inputTokens": 11, "outputTokens": 5, "totalTokens": 16, "reasoningTokens": 3, "cachedInputTokens": 4},
            ])
        );
    }

    #[test]
    fn raw_events_travel_on_demand() {
        let stream =
            [event(json!({"content": text("x"), "avgLogprobs": -0.5})), event(json!({"avgLogprobs": -0.7}))];
        let events = read_with(&stream, &["raw=attach"]);
        let raw: Vec<_> = events.iter().filter_map(|event| event.get("rawEvent")).collect();
        assert_eq!(raw, [&stream[0]]);
        assert_eq!(of(&events, "RAW")[0]["event"], stream[1]);
    }
}

mod sessions {
    use super::*;

    fn session(events: Value) -> Vec<Value> {
        let session = json!({"id": "s9", "appName": "a", "userId": "u", "state": {"k": 1, "agentwire:tools": []}, "events": events});
        read(&[session])
    }

    #[test]
    fn a_session_is_a_snapshot_of_what_still_counts() {
        let user = |id: &str, invocation: &str, said: &str| json!({"id": id, "author": "user", "invocationId": invocation, "content": {"role": "user", "parts": [{"text": said}]}});
        let agent = |id: &str, invocation: &str, said: &str| json!({"id": id, "author": "agent", "invocationId": invocation, "modelVersion": "m", "content": text(said)});
        let events = session(json!([
            user("1", "i1", "one"), agent("2", "i1", "first"),
            user("3", "i2", "two"), agent("4", "i2", "second"),
            {"id": "5", "author": "user", "invocationId": "i3", "actions": {"rewindBeforeInvocationId": "i2"}},
            user("6", "i4", "three"), agent("7", "i4", "third"),
        ]));
        assert_eq!(events[0]["threadId"], "s9");
        let ids: Vec<_> =
            events[1]["messages"].as_array().unwrap().iter().map(|message| &message["id"]).collect();
        assert_eq!(ids, ["1", "2", "6", "7"]);
        assert_eq!(of(&events, "STATE_SNAPSHOT")[0]["snapshot"], json!({"k": 1}));
        assert_eq!(last(&events)["type"], "RUN_FINISHED");
    }

    #[test]
    fn a_summary_takes_the_place_of_its_range() {
        let events = session(json!([
            {"id": "1", "author": "user", "timestamp": 1.0, "content": {"parts": [{"text": "one"}]}},
            {"id": "2", "author": "agent", "timestamp": 2.0, "content": text("first")},
            {"id": "3", "author": "user", "timestamp": 3.0, "actions": {"compaction": {
                "startTimestamp": 1.0, "endTimestamp": 2.0, "compactedContent": text("They greeted.")}}},
            {"id": "4", "author": "user", "timestamp": 4.0, "content": {"parts": [{"text": "two"}]}},
        ]));
        let said: Vec<_> =
            events[1]["messages"].as_array().unwrap().iter().map(|message| &message["content"]).collect();
        assert_eq!(said, ["They greeted.", "two"]);
    }

    #[test]
    fn what_a_session_waits_for_is_still_waited_for() {
        let events = session(json!([
            {"id": "1", "author": "agent", "modelVersion": "m", "content": call("c1", "ask"), "longRunningToolIds": ["c1"]},
            {"id": "2", "author": "agent", "errorCode": "INVOCATION_ABORTED"},
        ]));
        assert_eq!(last(&events)["outcome"]["interrupts"][0]["id"], "c1");
    }

    #[test]
    fn media_of_a_person_stays_in_the_message() {
        let events = session(json!([{"id": "1", "author": "user", "content": {"parts": [
            {"text": "look"}, {"inlineData": {"mimeType": "image/png", "data": "AA=="}}]}}]));
        assert_eq!(
            events[1]["messages"][0]["content"],
            json!([{"type": "text", "text": "look"},
                {"type": "image", "source": {"type": "data", "value": "AA==", "mimeType": "image/png"}}])
        );
    }

    /// Runs of one session, folded one after the other with what the person said between them, are the
    /// session as ADK has stored it.
    #[test]
    fn folded_runs_are_the_stored_session() {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src/format/adk/fixtures");
        let load = |name: &str| std::fs::read_to_string(folder.join(name)).unwrap();
        for name in ["confirmation", "lro", "lro_silent", "workflow_input", "v1-confirmation", "v1-lro"] {
            let session = load(&format!("{name}.session.json"));
            let framing = detect(session.as_bytes(), FORMAT.reads).unwrap();
            let (stored, _) = golden::read_framed(&FORMAT, framing, session.as_bytes(), usize::MAX, &[]);
            let mut wanted = Fold::new();
            stored.iter().for_each(|event| wanted.apply(event));
            // What the person said is in the stored session only.
            let session: Value = serde_json::from_str(&session).unwrap();
            let by_user =
                session["events"].as_array().unwrap().iter().filter(|event| event["author"] == "user");
            let mut fold = Fold::new();
            for (number, spoken) in by_user.enumerate() {
                let lines = format!("{spoken}\n{}", load(&format!("{name}.{}.jsonl", number + 1)));
                let (events, failure) =
                    golden::read_framed(&FORMAT, Framing::Lines, lines.as_bytes(), usize::MAX, &[]);
                assert_eq!(failure, None);
                events.iter().for_each(|event| fold.apply(event));
            }
            let shown = |fold: &mut Fold, with_ids: bool| -> Vec<Message> {
                let mut messages = fold.messages().to_vec();
                // In 1.x the pieces of a turn have other ids than the event that is stored.
                messages.iter_mut().filter(|_| !with_ids).for_each(|message| message.id = "".into());
                messages
            };
            let with_ids = !name.starts_with("v1");
            assert_eq!(shown(&mut fold, with_ids), shown(&mut wanted, with_ids), "{name}");
        }
    }
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
            let mut source = Source::new(&FORMAT, framing, &options).unwrap();
            source.push(&bytes, &mut |_| {}).unwrap();
            source.end(&StreamEnd::Closed, &mut |_| {}).unwrap();
            assert_eq!(source.repairs().collect::<Vec<_>>(), [], "{name} {pairs:?}");
        }
    }
}

#[test]
fn times_beyond_what_a_timestamp_may_be_are_left_out() {
    for time in ["1e300", "-1e300", "9007199254741", "1e16"] {
        let line =
            format!(r#"{{"author":"a","id":"e","timestamp":{time},"content":{{"parts":[{{"text":"x"}}]}}}}"#);
        let events = read_bytes(line.as_bytes(), Framing::Lines, &[]);
        assert!(events.iter().all(|event| event.get("timestamp").is_none()), "{time}");
    }
}

mod hostile {
    use proptest::prelude::*;

    use super::*;

    type Lines = Vec<Vec<u8>>;

    /// The lines of each small recording, and all of them together.
    static LINES: std::sync::LazyLock<(Vec<Lines>, Lines)> = std::sync::LazyLock::new(|| {
        let small = |(name, bytes): &(String, Vec<u8>)| name.ends_with(".jsonl") && bytes.len() < 50_000;
        let split =
            |(_, bytes): (String, Vec<u8>)| bytes.split(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect();
        let all: Vec<Lines> = recordings().into_iter().filter(small).map(split).collect();
        let others = all.iter().flatten().cloned().collect();
        (all, others)
    });

    /// What can happen to the lines of a recording on their way.
    #[derive(Clone, Debug)]
    enum Harm {
        Drop(usize),
        Repeat(usize),
        Swap(usize, usize),
        Graft(usize, usize),
        Byte(usize, u8),
    }

    fn harm() -> impl Strategy<Value = Harm> {
        prop_oneof![
            any::<usize>().prop_map(Harm::Drop),
            any::<usize>().prop_map(Harm::Repeat),
            any::<(usize, usize)>().prop_map(|(a, b)| Harm::Swap(a, b)),
            any::<(usize, usize)>().prop_map(|(a, b)| Harm::Graft(a, b)),
            (any::<usize>(), any::<u8>()).prop_map(|(at, byte)| Harm::Byte(at, byte)),
        ]
    }

    fn harmed(mut lines: Vec<Vec<u8>>, others: &[Vec<u8>], harms: &[Harm]) -> Vec<u8> {
        for harm in harms {
            let count = lines.len().max(1);
            match *harm {
                _ if lines.is_empty() => {}
                Harm::Drop(at) => drop(lines.remove(at % count)),
                Harm::Repeat(at) => lines.push(lines[at % count].clone()),
                Harm::Swap(a, b) => lines.swap(a % count, b % count),
                Harm::Graft(at, from) => lines.insert(at % count, others[from % others.len()].clone()),
                Harm::Byte(at, byte) => {
                    let line = &mut lines[at % count];
                    let length = line.len().max(1);
                    if let Some(place) = line.get_mut(at / count % length) {
                        *place = byte;
                    }
                }
            }
        }
        lines.join(&b'\n')
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn whatever_happens_to_a_recording_the_stream_is_valid(
            which in any::<usize>(),
            harms in proptest::collection::vec(harm(), 0..12),
            lenient in any::<bool>(),
            subagents in any::<bool>(),
            cut in 1_usize..500,
        ) {
            let (all, others) = &*LINES;
            let bytes = harmed(all[which % all.len()].clone(), others, &harms);
            let read = |cut: usize| {
                let pairs = subagents.then_some("subagents=on");
                let options = Options::parse(pairs, FORMAT.options).unwrap();
                let options = SourceOptions { lenient, options, ..SourceOptions::default() };
                let mut source = Source::new(&FORMAT, Framing::Lines, &options).unwrap();
                let mut events = Vec::new();
                for chunk in bytes.chunks(cut) {
                    let _ = source.push(chunk, &mut |event| events.push(event));
                }
                let _ = source.end(&StreamEnd::Closed, &mut |event| events.push(event));
                events
            };
            let events = read(usize::MAX);
            check(&events);
            prop_assert_eq!(&events, &read(cut));
        }
    }
}

#[test]
fn options_are_checked() {
    assert!(Options::parse(["raw=attach"], FORMAT.options).is_ok());
    assert!(Options::parse(["raw=maybe"], FORMAT.options).is_err());
}
