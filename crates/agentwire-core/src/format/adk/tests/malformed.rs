use super::*;

fn problem(line: &str) -> String {
    let (events, failure) = golden::read_framed(&FORMAT, Framing::Lines, line.as_bytes(), usize::MAX, &[]);
    check(&events);
    assert!(matches!(events.last().unwrap().body, Body::RunError(_)));
    failure.expect("the line is refused")
}

#[test]
fn errors_name_the_path_of_malformed_members() {
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
fn html_page_instead_of_a_stream_is_an_error() {
    let page = b"<!DOCTYPE html>\n<html><body><h1>502 Bad Gateway</h1></body></html>\n";
    let (events, _) = golden::read_framed(&FORMAT, Framing::Sse, page, usize::MAX, &[]);
    check(&events);
    assert_eq!(values(&events).last().unwrap()["code"], "UPSTREAM_NO_EVENTS");
}

#[test]
fn empty_members_emit_nothing() {
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
    let mut source = GuardedSource::new(&FORMAT, Framing::Lines, &SourceOptions::default()).unwrap();
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
fn lone_surrogate_is_repaired() {
    let line = r#"{"author":"a","id":"e","content":{"parts":[{"text":"a\ud83d"}]}}"#;
    assert_eq!(text_of(&read_bytes(line.as_bytes(), Framing::Lines, &[])), "a\u{fffd}");
}

#[test]
fn double_encoded_event_is_read() {
    let inner = event(json!({"content": text("Hi")})).to_string();
    let frame = format!("data: {}\n\n", Value::from(inner));
    assert_eq!(text_of(&read_bytes(frame.as_bytes(), Framing::Sse, &[])), "Hi");
}

#[test]
fn array_in_one_frame_is_read() {
    let frame = format!("data: {}\n\n", json!([event(json!({"content": text("Hi")}))]));
    assert_eq!(text_of(&read_bytes(frame.as_bytes(), Framing::Sse, &[])), "Hi");
}

#[test]
fn events_without_ids_get_generated_ids() {
    let events = read(&[
        json!({"author": "a", "content": text("one")}),
        json!({"author": "a", "content": text("two")}),
    ]);
    let ids: Vec<_> =
        of_type(&events, "TEXT_MESSAGE_START").iter().map(|event| &event["messageId"]).collect();
    assert_eq!(ids, ["r:0", "r:1"]);
}
