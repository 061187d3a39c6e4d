use super::*;

#[test]
fn error_code_becomes_one_terminal_event() {
    for code in ["SAFETY", "MAX_TOKENS", "RECITATION", "MALFORMED_FUNCTION_CALL"] {
        let events = read(&[
            event(json!({"partial": true, "content": text("Half")})),
            event(json!({"partial": true, "errorCode": code, "finishReason": code})),
            event(
                json!({"content": text("Half"), "errorCode": code, "errorMessage": "why", "finishReason": code}),
            ),
        ]);
        assert_eq!(text_of(&events), "Half");
        assert_eq!(last(&events)["type"], "RUN_ERROR");
        assert_eq!((&last(&events)["code"], &last(&events)["message"]), (&json!(code), &json!("why")));
    }
}

#[test]
fn partial_error_counts_without_a_closing_event() {
    let events = read(&[event(json!({"partial": true, "errorCode": "SAFETY"}))]);
    assert_eq!(last(&events)["code"], "SAFETY");
    let events = read(&[
        event(json!({"partial": true, "content": text("a"), "errorCode": "SAFETY"})),
        event(json!({"content": text("a")})),
    ]);
    assert_eq!(last(&events)["type"], "RUN_FINISHED");
}

#[test]
fn later_agent_is_read_after_a_failure() {
    let events = read(&[
        event(json!({"author": "a", "content": text("Cut"), "errorCode": "MAX_TOKENS"})),
        event(json!({"id": "e2", "author": "b", "content": text("Whole.")})),
    ]);
    assert_eq!(text_of(&events), "CutWhole.");
    assert_eq!(last(&events)["code"], "MAX_TOKENS");
    let events = read_with(
        &[event(json!({"content": text("Cut"), "errorCode": "MAX_TOKENS"}))],
        &["max_tokens=warning"],
    );
    assert_eq!(last(&events)["type"], "RUN_FINISHED");
    assert_eq!(custom(&events, "adk.warning")[0]["code"], "MAX_TOKENS");
}

/// A workflow node that raises an error in the middle of a text, followed by the `next` events.
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
fn retried_node_does_not_fail_the_run() {
    let piece = json!({"partial": true, "content": text("Whole")});
    for next in [
        &[
            json!({"path": "w@1/a@1", "event": piece}),
            json!({"path": "w@1/a@1", "event": {"content": text("Whole")}}),
        ][..],
        // The parent node caught the error.
        &[json!({"path": "w@1", "event": {"content": text("Whole")}})],
    ] {
        let events = raising(next);
        assert_eq!(last(&events)["type"], "RUN_FINISHED");
        assert_eq!(custom(&events, "adk.warning"), [&json!({"code": "ValueError", "message": "flaky"})]);
        let mut fold = crate::fold::Fold::new();
        golden_events(&events).iter().for_each(|event| fold.apply(event));
        let texts: Vec<_> = fold.messages().iter().map(|message| &message.body).collect();
        let whole = MessageBody::Assistant { content: Some("Whole".into()), tool_calls: None };
        assert_eq!(texts, [&whole], "the first attempt is retracted");
    }
}

#[test]
fn node_without_a_retry_fails_the_run() {
    let beside = json!({"path": "w@1/b@1", "event": {"content": text("Beside")}});
    for next in [&[beside][..], &[]] {
        let events = raising(next);
        assert_eq!(last(&events)["code"], "ValueError");
    }
    // A blocked prompt is no exception, so a later event of the agent is no recovery.
    let at = |mut members: Value| {
        members["nodeInfo"] = json!({"path": "a@1"});
        event(members)
    };
    let events =
        read(&[at(json!({"errorCode": "SAFETY"})), at(json!({"id": "e2", "content": text("Bye.")}))]);
    assert_eq!(last(&events)["code"], "SAFETY");
}

#[test]
fn delegated_task_may_stay_open() {
    let asks = json!({"id": "e2", "author": "t", "isolationScope": "c1", "content": text("Which?")});
    let events = read(&[event(json!({"modelVersion": "m", "content": call("c1", "t")})), event(asks)]);
    assert_eq!(last(&events)["type"], "RUN_FINISHED");
}

#[test]
fn finish_reason_alone_is_an_error_without_streaming() {
    for reason in ["MAX_TOKENS", "SAFETY", "MALFORMED_FUNCTION_CALL"] {
        let events = read(&[event(json!({"content": text("Half an"), "finishReason": reason}))]);
        assert_eq!(text_of(&events), "Half an");
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
fn stop_without_text_is_no_error() {
    let events = read(&[event(json!({"errorCode": "STOP", "finishReason": "STOP"}))]);
    assert_eq!(last(&events)["type"], "RUN_FINISHED");
}

#[test]
fn error_frames_of_1x_and_2x_fail_the_run() {
    let first = event(json!({"partial": true, "content": text("Half")}));
    let events = read(&[first.clone(), json!({"error": "boom"})]);
    assert_eq!(last(&events)["message"], "boom");
    assert_eq!(last(&events)["code"], "UPSTREAM_ERROR");
    let events = read(&[
        first.clone(),
        json!({"error": "ValueError: boom", "error_details": {"error_type": "ValueError", "error_message": "boom"}}),
    ]);
    assert_eq!((&last(&events)["code"], &last(&events)["message"]), (&json!("ValueError"), &json!("boom")));
    // After an error frame, later events are still read, but the run fails.
    let events = read(&[first, json!({"error": "boom"}), event(json!({"content": text("Half and half")}))]);
    assert_eq!(text_of(&events), "Half and half");
    assert_eq!(last(&events)["type"], "RUN_ERROR");
}

#[test]
fn error_frame_without_a_code_keeps_the_earlier_code() {
    let failed = event(json!({"errorCode": "ValueError", "errorMessage": "no"}));
    let events = read(&[failed, json!({"error": "ValueError: no"})]);
    assert_eq!(of_type(&events, "RUN_ERROR").len(), 1);
    assert_eq!((&last(&events)["code"], &last(&events)["message"]), (&json!("ValueError"), &json!("no")));
}

#[test]
fn open_model_turn_at_the_end_is_a_truncated_stream() {
    let events = read(&[event(json!({"partial": true, "modelVersion": "m", "content": text("Half")}))]);
    assert_eq!(last(&events)["code"], "STREAM_TRUNCATED");
    let events = read(&[event(json!({"modelVersion": "m", "content": call("c1", "f")}))]);
    assert_eq!(last(&events)["message"], "the stream ended before `f` answered");
    // A custom agent names no model and may end without a closing event.
    let events = read(&[event(json!({"partial": true, "content": text("All there is.")}))]);
    assert_eq!(last(&events)["type"], "RUN_FINISHED");
}

#[test]
fn failed_stream_keeps_the_code_of_its_end() {
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
