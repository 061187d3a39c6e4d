use super::*;

#[test]
fn call_with_another_id_in_the_closing_event_is_one_call() {
    // Some releases of 1.x do this; a client would wait forever for a result of the first id.
    let events = read(&[
        event(json!({"partial": true, "content": call("adk-a", "f")})),
        event(json!({"content": call("adk-b", "f")})),
        event(json!({"id": "e2", "content": response("adk-b", "f", json!({"ok": 1}))})),
    ]);
    let starts = of_type(&events, "TOOL_CALL_START");
    assert_eq!(starts.len(), 1);
    assert_eq!(starts[0]["toolCallId"], "adk-b");
    assert_eq!(of_type(&events, "TOOL_CALL_RESULT")[0]["toolCallId"], "adk-b");
}

#[test]
fn changed_streamed_arguments_are_corrected() {
    let piece =
        |members: Value| event(json!({"partial": true, "content": {"parts": [{"functionCall": members}]}}));
    let events = read(&[
        piece(json!({"id": "c1", "name": "f", "willContinue": true})),
        piece(
            json!({"id": "c1", "partialArgs": [{"jsonPath": "$.a", "numberValue": 1}], "willContinue": true}),
        ),
        event(json!({"content": {"parts": [{"functionCall": {"id": "c1", "name": "f", "args": {"a": 2}}}]}})),
        event(json!({"id": "e2", "content": response("c1", "f", json!({}))})),
    ]);
    let messages = &of_type(&events, "MESSAGES_SNAPSHOT")[0]["messages"];
    assert_eq!(messages[0]["toolCalls"][0]["function"]["arguments"], r#"{"a":2}"#);
    assert_eq!(of_type(&events, "TOOL_CALL_START").len(), 1);
    assert_eq!(last(&events)["type"], "RUN_FINISHED");
}

#[test]
fn pieces_with_unknown_ids_belong_to_the_open_call() {
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
    let deltas: Vec<_> = of_type(&events, "TOOL_CALL_ARGS").iter().map(|event| &event["delta"]).collect();
    assert_eq!(deltas, [r#"{"a":"x"#, "y", r#""}"#]);
    assert!(of_type(&events, "MESSAGES_SNAPSHOT").is_empty());
}

#[test]
fn streamed_arguments_may_be_encoded_differently() {
    let piece =
        |members: Value| event(json!({"partial": true, "content": {"parts": [{"functionCall": members}]}}));
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
        of_type(&events, "TOOL_CALL_ARGS").iter().map(|event| event["delta"].as_str().unwrap()).collect();
    assert_eq!(args, r#"{"a":"é","b":[1]}"#);
    assert!(of_type(&events, "MESSAGES_SNAPSHOT").is_empty());
}

#[test]
fn errors_in_tool_results_are_marked() {
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
        let result = of_type(&events, "TOOL_CALL_RESULT")[0];
        assert_eq!(result["content"].as_str(), Some(&*given.to_string()));
        assert_eq!(result["metadata"]["agentwire"]["error"].as_str(), wanted, "{given}");
    }
}

#[test]
fn repeated_result_is_dropped_and_a_different_one_replaces_it() {
    let events = read(&[
        event(json!({"content": call("c1", "f")})),
        event(json!({"id": "e2", "content": response("c1", "f", json!({"n": 1}))})),
        event(json!({"id": "e3", "content": response("c1", "f", json!({"n": 1}))})),
        event(json!({"id": "e4", "content": response("c1", "f", json!({"n": 2}))})),
    ]);
    assert_eq!(of_type(&events, "TOOL_CALL_RESULT").len(), 1);
    let messages = of_type(&events, "MESSAGES_SNAPSHOT")[0]["messages"].as_array().unwrap();
    let results: Vec<_> = messages.iter().filter(|message| message["role"] == "tool").collect();
    assert_eq!(results.len(), 1);
    assert_eq!(results[0]["content"], r#"{"n":2}"#);
}

#[test]
fn results_without_ids_are_matched_by_name() {
    let anonymous = |part: Value| json!({"parts": [part]});
    let events = read(&[
        event(json!({"content": anonymous(json!({"functionCall": {"name": "f"}}))})),
        event(
            json!({"id": "e2", "content": anonymous(json!({"functionResponse": {"name": "f", "response": {}}}))}),
        ),
    ]);
    assert_eq!(of_type(&events, "TOOL_CALL_ARGS")[0]["delta"], "{}");
    assert_eq!(
        of_type(&events, "TOOL_CALL_RESULT")[0]["toolCallId"],
        of_type(&events, "TOOL_CALL_START")[0]["toolCallId"]
    );
}

#[test]
fn code_result_in_a_later_event_is_matched() {
    let events = read(&[
        event(json!({"content": {"parts": [{"executableCode": {"code": "1/0", "language": "PYTHON"}}]}})),
        event(json!({"id": "e2", "content": {"parts": [
            {"codeExecutionResult": {"outcome": "OUTCOME_FAILED", "output": "ZeroDivisionError"}}]}})),
    ]);
    let result = of_type(&events, "TOOL_CALL_RESULT")[0];
    assert_eq!(result["toolCallId"], of_type(&events, "TOOL_CALL_START")[0]["toolCallId"]);
    assert_eq!(result["metadata"]["agentwire"]["error"], "ZeroDivisionError");
}
