use super::*;

#[test]
fn interrupts_are_in_call_order() {
    // ADK keeps the ids in a set, so their order is arbitrary.
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
    assert_eq!(of_type(&events, "TOOL_CALL_RESULT").len(), 1);
}

#[test]
fn provisional_result_is_no_result_by_default() {
    let stream = [
        event(json!({"content": call("c1", "ask"), "longRunningToolIds": ["c1"]})),
        event(json!({"id": "e2", "content": response("c1", "ask", json!({"status": "pending"}))})),
        event(json!({"id": "e3", "content": text("Waiting.")})),
    ];
    let events = read(&stream);
    assert!(of_type(&events, "TOOL_CALL_RESULT").is_empty());
    assert_eq!(custom(&events, "adk.provisional_result")[0]["response"], json!({"status": "pending"}));
    assert_eq!(text_of(&events), "Waiting.", "text after the provisional result is kept");
    assert_eq!(
        last(&events)["outcome"]["interrupts"][0]["metadata"]["provisional"],
        json!({"status": "pending"})
    );
    let events = read_with(&stream, &["provisional=result"]);
    assert_eq!(of_type(&events, "TOOL_CALL_RESULT")[0]["metadata"]["adk"]["provisional"], true);
}

#[test]
fn built_in_requests_are_always_pending() {
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
fn confirmation_refers_to_the_guarded_call() {
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
fn requests_to_a_person_are_interrupts_and_no_calls() {
    let credential = json!({"functionCallId": "c1", "authConfig": {"authScheme": {"type": "apiKey"}}});
    let confirmation =
        json!({"original_function_call": {"id": "c1"}, "tool_confirmation": {"confirmed": false}});
    let input = json!({"interruptId": "q1", "message": "Which?"});
    for (name, args, guarded) in [
        ("adk_request_confirmation", confirmation, json!("c1")),
        ("adk_request_confirmation", json!({}), Value::Null),
        ("adk_request_credential", credential, json!("c1")),
        ("adk_request_credential", json!({"functionCallId": "_adk_toolset_auth_Mail"}), Value::Null),
        ("adk_request_input", input, Value::Null),
    ] {
        let request = json!({"parts": [{"functionCall": {"id": "q1", "name": name, "args": args}}]});
        let asked = [
            event(json!({"content": call("c1", "rm")})),
            event(json!({"id": "e2", "partial": true, "content": request, "longRunningToolIds": ["q1"]})),
            event(json!({"id": "e2", "content": request, "longRunningToolIds": ["q1"]})),
            event(json!({"id": "e3", "content": response("c1", "rm", json!({"ok": true}))})),
        ];
        let events = read(&asked);
        let calls: Vec<_> =
            of_type(&events, "TOOL_CALL_START").iter().map(|event| event["toolCallId"].clone()).collect();
        assert_eq!(calls, ["c1"], "{name}");
        let interrupt = &last(&events)["outcome"]["interrupts"][0];
        assert_eq!((&interrupt["id"], &interrupt["toolCallId"]), (&json!("q1"), &guarded), "{name} {args}");
        assert_eq!(interrupt["metadata"]["arguments"], args);
        // The answer of a stored session is no result of a call either, and settles the request.
        let answer = event(
            json!({"id": "e4", "author": "user", "content": response("q1", name, json!({"confirmed": true}))}),
        );
        let events = read(&[&asked[..], &[answer]].concat());
        assert_eq!(of_type(&events, "TOOL_CALL_RESULT").len(), 1, "{name}");
        assert_eq!(last(&events)["outcome"], Value::Null, "{name}");
    }
}

#[test]
fn response_of_the_user_is_a_tool_result() {
    let events = read(&[
        event(json!({"content": call("c1", "ask"), "longRunningToolIds": ["c1"]})),
        event(json!({"id": "e2", "author": "user", "content": response("c1", "ask", json!({"ok": true}))})),
        event(json!({"id": "e3", "content": text("Thanks.")})),
    ]);
    assert_eq!(of_type(&events, "TOOL_CALL_RESULT")[0]["content"], r#"{"ok":true}"#);
    assert_eq!(last(&events)["outcome"], Value::Null);
}

#[test]
fn pending_frontend_tool_is_no_interrupt() {
    let mut input = RunInput::new("t", "r");
    let (name, description) = ("pick_colour".into(), "".into());
    input.tools.push(Tool { name, description, parameters: None, metadata: None });
    let stream = [event(json!({"content": call("c1", "pick_colour"), "longRunningToolIds": ["c1"]}))];
    let events = read_for(&stream, input);
    let Some(Body::RunFinished(finished)) = events.last().map(|event| &event.body) else { panic!() };
    assert_eq!(finished.outcome, Some(Outcome::Success { pending: vec!["c1".into()] }));
}

#[test]
fn run_can_end_at_the_call_of_a_long_running_tool() {
    let stream = [
        event(json!({"content": text("Let me ask.")})),
        event(json!({"id": "e2", "content": {"parts": [
            {"functionCall": {"id": "c1", "name": "ask", "args": {"q": 1}}},
            {"functionCall": {"id": "c2", "name": "lookup", "args": {}}}]}, "longRunningToolIds": ["c1"]})),
        event(json!({"id": "e3", "content": response("c1", "ask", json!({"status": "pending"}))})),
        event(json!({"id": "e4", "content": text("Waiting.")})),
    ];
    let events = read_with(&stream, &["long_running=return"]);
    assert_eq!(text_of(&events), "Let me ask.");
    assert_eq!(last(&events)["outcome"]["interrupts"][0]["id"], "c1");
    assert_eq!(of_type(&events, "RUN_FINISHED").len(), 1);
    assert!(custom(&events, "adk.provisional_result").is_empty());
    // A failure before the call is still one, and a run without such a call is read to its end.
    let events = read_with(&stream[3..], &["long_running=return"]);
    assert_eq!(text_of(&events), "Waiting.");
    assert_eq!(text_of(&read(&stream)), "Let me ask.Waiting.", "the default");
}
