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
        golden_events(&events).iter().for_each(|event| fold.apply(event));
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
        assert_eq!((&last(&events)["type"], &last(&events)["code"]), (&json!("RUN_ERROR"), &json!(reason)));
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
    assert_eq!((&last(&events)["code"], &last(&events)["message"]), (&json!("ValueError"), &json!("boom")));
    // In the middle: what follows is still read, the end is still a failure.
    let events = read(&[first, json!({"error": "boom"}), event(json!({"content": text("Half and half")}))]);
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
    let mut source = GuardedSource::new(&FORMAT, Framing::Sse, &options).unwrap();
    let mut out = Vec::new();
    let frame = format!("data: {}\n\n", event(json!({"partial": true, "content": text("Half")})));
    source.push(frame.as_bytes(), &mut |event| out.push(event)).unwrap();
    let end = StreamEnd::Failed { code: "UPSTREAM_LOST".into(), message: "reset".into() };
    source.end(&end, &mut |event| out.push(event)).unwrap();
    check(&out);
    assert_eq!(values(&out).last().unwrap()["code"], "UPSTREAM_LOST");
}
