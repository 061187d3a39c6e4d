use super::*;

#[test]
fn closing_event_with_the_streamed_text_emits_nothing() {
    let events = read(&[
        event(json!({"partial": true, "content": text("Hel")})),
        event(json!({"partial": true, "content": text("lo")})),
        event(json!({"content": text("Hello")})),
    ]);
    assert_eq!(text_of(&events), "Hello");
    assert_eq!(of_type(&events, "TEXT_MESSAGE_START").len(), 1);
}

#[test]
fn event_ids_do_not_separate_turns() {
    let events = read(&[
        event(json!({"id": "a", "partial": true, "content": text("Hel")})),
        event(json!({"id": "b", "partial": true, "content": text("lo")})),
        event(json!({"id": "c", "content": text("Hello")})),
    ]);
    assert_eq!(text_of(&events), "Hello");
    assert_eq!(of_type(&events, "TEXT_MESSAGE_START").len(), 1);
}

#[test]
fn closing_event_with_more_text_emits_the_rest() {
    let events = read(&[
        event(json!({"partial": true, "content": text("Hel")})),
        event(json!({"content": text("Hello")})),
    ]);
    let deltas: Vec<_> =
        of_type(&events, "TEXT_MESSAGE_CONTENT").iter().map(|event| &event["delta"]).collect();
    assert_eq!(deltas, ["Hel", "lo"]);
}

#[test]
fn rest_starts_at_a_character_boundary() {
    let events = read(&[
        event(json!({"partial": true, "content": text("é")})),
        event(json!({"content": {"parts": [{"text": "é"}, {"text": "ü"}]}})),
    ]);
    assert_eq!(text_of(&events), "éü");
}

#[test]
fn replaced_text_is_corrected_by_a_snapshot() {
    let events = read(&[
        event(json!({"partial": true, "content": text("My password is hunter2")})),
        event(json!({"content": text("I cannot say.")})),
    ]);
    let snapshot = of_type(&events, "MESSAGES_SNAPSHOT");
    assert_eq!(snapshot.len(), 1);
    assert_eq!(
        snapshot[0]["messages"],
        json!([{"id": "e1", "role": "assistant", "content": "I cannot say.", "name": "agent"}])
    );
    assert_eq!(custom(&events, "adk.corrected"), [&json!({"messageId": "e1"})]);
    assert_eq!(text_of(&events), "My password is hunter2");
    let mut fold = Fold::new();
    for event in golden_events(&events) {
        fold.apply(&event);
    }
    assert_eq!(fold.messages().len(), 1, "one text is left");
}

#[test]
fn correction_keeps_the_conversation_before_the_run() {
    let mut input = RunInput::new("t", "r");
    input.messages.push(Message::user("u1", "hi"));
    let stream =
        [event(json!({"partial": true, "content": text("wrong")})), event(json!({"content": text("right")}))];
    let events = read_for(&stream, input.clone());
    let mut fold = Fold::from_history(input.messages, None);
    for event in &events {
        fold.apply(event);
    }
    let texts: Vec<_> = fold.messages().iter().map(|message| message.id.to_string()).collect();
    assert_eq!(texts, ["u1", "e1"]);
}

#[test]
fn replaced_turn_still_emits_its_calls() {
    let events = read(&[
        event(json!({"partial": true, "content": text("wrong")})),
        event(json!({"content": {"parts": [
            {"text": "right"},
            {"functionCall": {"id": "c1", "name": "f", "args": {"a": 1}}},
        ]}})),
        event(json!({"id": "e2", "content": response("c1", "f", json!({"ok": true}))})),
    ]);
    assert_eq!(of_type(&events, "TOOL_CALL_START").len(), 1);
    let messages = &of_type(&events, "MESSAGES_SNAPSHOT")[0]["messages"];
    assert_eq!(messages[0]["toolCalls"][0]["function"]["arguments"], r#"{"a":1}"#);
    assert_eq!(of_type(&events, "TOOL_CALL_RESULT").len(), 1);
}

#[test]
fn closing_event_without_text_keeps_the_streamed_text() {
    let events = read(&[
        event(json!({"partial": true, "content": text("Checking.")})),
        event(json!({"content": call("c1", "f")})),
        event(json!({"id": "e2", "content": response("c1", "f", json!({}))})),
    ]);
    assert_eq!(text_of(&events), "Checking.");
    assert!(of_type(&events, "MESSAGES_SNAPSHOT").is_empty());
}

#[test]
fn branches_of_one_author_do_not_mix() {
    let on = |branch: &str, partial: bool, content: &str| {
        event(json!({"id": branch, "branch": branch, "partial": partial, "content": text(content)}))
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
        of_type(&events, "TEXT_MESSAGE_CONTENT")
            .iter()
            .filter(|event| event["messageId"] == id)
            .map(|event| event["delta"].as_str().unwrap())
            .collect()
    };
    assert_eq!((by("p.a"), by("p.b")), ("one two".into(), "uno dos".into()));
}

#[test]
fn instances_of_one_node_do_not_mix() {
    let at = |path: &str, partial: bool, content: &str| {
        event(json!({"partial": partial, "nodeInfo": {"path": path}, "content": text(content)}))
    };
    let events = read(&[
        at("w@1/a@1", true, "one "),
        at("w@1/a@2", true, "three "),
        at("w@1/a@1", true, "two"),
        at("w@1/a@2", true, "four"),
        at("w@1/a@1", false, "one two"),
        at("w@1/a@2", false, "three four"),
    ]);
    assert!(of_type(&events, "MESSAGES_SNAPSHOT").is_empty());
    let text = |id: &Value| -> String {
        let contents = of_type(&events, "TEXT_MESSAGE_CONTENT");
        let own = contents.iter().filter(|event| event["messageId"] == *id);
        own.map(|event| event["delta"].as_str().unwrap()).collect()
    };
    let starts = of_type(&events, "TEXT_MESSAGE_START");
    let texts: Vec<_> = starts.iter().map(|event| text(&event["messageId"])).collect();
    assert_eq!(texts, ["one two", "three four"]);
}

#[test]
fn correction_keeps_unfinished_messages_of_other_agents() {
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
    assert_eq!(of_type(&values, "MESSAGES_SNAPSHOT").len(), 1);
    let mut fold = Fold::new();
    golden_events(&values).iter().for_each(|event| fold.apply(event));
    let (messages, _) = fold.into_parts();
    let texts: Vec<_> = messages
        .iter()
        .map(|message| match &message.body {
            MessageBody::Assistant { content, tool_calls } => {
                let arguments = tool_calls.iter().flatten().map(|call| call.arguments.to_string());
                format!("{} {}", content.as_deref().unwrap_or_default(), arguments.collect::<String>())
            }
            _ => "tool".to_owned(),
        })
        .collect();
    assert_eq!(texts, ["one two ", r#"call {"a":1,"b":2}"#, "tool", "right "]);
}

#[test]
fn actions_of_partial_events_are_ignored() {
    let actions = json!({"stateDelta": {"k": 1}, "artifactDelta": {"f": 0}, "escalate": true});
    let events = read(&[
        event(json!({"partial": true, "content": text("a"), "actions": actions})),
        event(json!({"content": text("a"), "actions": actions})),
    ]);
    assert_eq!(of_type(&events, "STATE_DELTA").len(), 1);
    assert_eq!(custom(&events, "adk.artifact").len(), 1);
    assert_eq!(custom(&events, "adk.escalate").len(), 1);
}

#[test]
fn second_half_of_a_split_event_adds_only_artifacts() {
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
    assert_eq!(of_type(&events, "STATE_DELTA").len(), 1);
    assert_eq!(custom(&events, "adk.artifact"), [&json!({"filename": "f.txt", "version": 2})]);
    assert_eq!(custom(&events, "adk.metadata").len(), 1);
    assert_eq!(of_type(&events, "ACTIVITY_SNAPSHOT").len(), 1);
    assert_eq!(last(&events)["usage"][0]["inputTokens"], 3);
}

#[test]
fn interrupted_partial_event_ends_its_turn() {
    let events = read(&[
        event(json!({"id": "a", "partial": true, "interrupted": true, "content": text("cut")})),
        event(json!({"id": "b", "content": text("New.")})),
    ]);
    assert_eq!(of_type(&events, "TEXT_MESSAGE_START").len(), 2);
    assert!(of_type(&events, "MESSAGES_SNAPSHOT").is_empty());
}

#[test]
fn turn_with_a_used_id_gets_a_new_message_id() {
    let events = read(&[event(json!({"content": text("one")})), event(json!({"content": text("two")}))]);
    let ids: Vec<_> =
        of_type(&events, "TEXT_MESSAGE_START").iter().map(|event| &event["messageId"]).collect();
    assert_eq!(ids.len(), 2);
    assert_ne!(ids[0], ids[1]);
}

#[test]
fn signatures_are_emitted_once_and_not_as_text() {
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
    let values: Vec<_> = of_type(&events, "REASONING_ENCRYPTED_VALUE")
        .iter()
        .map(|event| (event["subtype"].clone(), event["entityId"].clone(), event["encryptedValue"].clone()))
        .collect();
    assert_eq!(
        values,
        [
            (json!("message"), json!("e1:thought"), json!("c2ln-_8=")),
            (json!("tool-call"), json!("c1"), json!("Y2FsbA==")),
        ]
    );
    assert_eq!(text_of(&events), "Yes.");
}

#[test]
fn signature_without_text_is_emitted() {
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
        let values = of_type(&events, "REASONING_ENCRYPTED_VALUE");
        assert_eq!(values.len(), 1, "{part}");
        assert_eq!(values[0]["entityId"], "e1:thought", "{part}");
        assert_eq!(text_of(&events), "Yes.");
    }
}

#[test]
fn thought_media_are_not_files() {
    let sketch = json!({"thought": true, "inlineData": {"mimeType": "image/png", "data": "-_8="}});
    let events = read(&[
        event(json!({"partial": true, "content": {"parts": [sketch]}})),
        event(json!({"content": {"parts": [sketch, {"text": "Done."}]}})),
    ]);
    assert!(of_type(&events, "ACTIVITY_SNAPSHOT").is_empty());
    let sketches = custom(&events, "adk.thought_media");
    assert_eq!(sketches, [&json!({"messageId": "e1", "mimeType": "image/png", "data": "+/8="})]);
}
