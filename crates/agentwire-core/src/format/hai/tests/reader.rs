//! Reading: malformed events, arbitrary bytes, missing ids.

use super::*;
use crate::{
    event::StreamEnd,
    format::{Options, Setup},
    framing::{Frame, Payload},
    order::Checker,
    tally::Tally,
};

#[test]
fn malformed_events_are_rejected_with_the_path() {
    let rejected = |event: Value| {
        let text = format!("{event}\n");
        read_framed(&FORMAT, Framing::Lines, text.as_bytes(), usize::MAX, &[]).1.unwrap()
    };
    for (event, wanted) in [
        (json!({}), "`type` is missing, expected an event type"),
        (json!({"type": 7}), "at `/type`: expected a string, found the number 7"),
        (json!({"type": "STEP_STARTED"}), "`stepName` is missing, expected a string"),
        (
            json!({"type": "BUSINESS_DATA_CONTENT", "messageId": 1}),
            "at `/messageId`: expected a string, found the number 1",
        ),
        (
            json!({"type": "BUSINESS_DATA_CONTENT", "messageId": "m"}),
            "`delta` is missing, expected a string or an object",
        ),
        (
            json!({"type": "BUSINESS_DATA_CONTENT", "messageId": "m", "delta": [1]}),
            "at `/delta`: expected a string or an object, found an array",
        ),
        (
            json!({"type": "STATE_DELTA", "delta": [{"op": "add", "path": "a", "value": 1}]}),
            "at `/delta/0/path`: expected a JSON pointer, found `a`",
        ),
        (
            json!({"type": "STATE_DELTA", "delta": [{"op": "move", "path": "/a"}]}),
            "at `/delta/0`: `from` is missing, expected a string",
        ),
        (
            json!({"type": "RUN_STARTED", "timestamp": true}),
            "at `/timestamp`: expected milliseconds since the epoch, found the boolean true",
        ),
    ] {
        assert_eq!(rejected(event), format!("line 1 at byte 0: {wanted}"));
    }
}

#[test]
fn any_bytes_yield_a_valid_event_sequence() {
    proptest!(config(), |(text in "(data: )?[\\[{\"a-z:,0-9\\\\}\\]\n]{0,80}")| {
        for framing in [Framing::Sse, Framing::Lines] {
            let (events, _) = read_framed(&FORMAT, framing, text.as_bytes(), usize::MAX, &[]);
            let mut checker = Checker::new();
            for event in &events {
                prop_assert_eq!(checker.check(event), None);
            }
        }
    });
}

#[test]
fn plain_thinking_is_written_without_markers() {
    let stream = [
        r#"{"type":"RUN_STARTED","messageId":"m","role":"assistant","timestamp":1}"#,
        r#"{"type":"BUSINESS_DATA_START","messageId":"m","role":"assistant","timestamp":1}"#,
        r#"{"type":"BUSINESS_DATA_CONTENT","messageId":"m","delta":{"output":{"type":"thinking","data":{"content":"hm","thinking":true}}},"timestamp":1}"#,
        r#"{"type":"BUSINESS_DATA_CONTENT","messageId":"m","delta":{"output":{"type":"text","content":"yes"}},"timestamp":1}"#,
        r#"{"type":"BUSINESS_DATA_END","messageId":"m","role":"assistant","timestamp":1}"#,
        r#"{"type":"RUN_FINISHED","messageId":"m","role":"assistant","timestamp":1}"#,
    ];
    let (events, failure) = read(&FORMAT, stream.join("\n").as_bytes(), usize::MAX, &[]);
    assert_eq!(failure, None);
    let wanted = stream.map(|line| value(line)["type"].as_str().unwrap().to_owned());
    let frames = written(&events, "object", &[]);
    assert_eq!(kinds(&frames), wanted);
    assert!(frames.iter().all(|frame| frame.get("agui").is_none()), "{frames:?}");
}

#[test]
fn content_without_an_id_belongs_to_the_last_active_message() {
    let stream = [
        r#"{"type":"RUN_STARTED","messageId":"a","role":"assistant"}"#,
        r#"{"type":"BUSINESS_DATA_START","messageId":"a"}"#,
        r#"{"type":"BUSINESS_DATA_CONTENT","messageId":"a","delta":"1"}"#,
        r#"{"type":"BUSINESS_DATA_START","messageId":"b"}"#,
        r#"{"type":"BUSINESS_DATA_CONTENT","messageId":"b","delta":"2"}"#,
        r#"{"type":"BUSINESS_DATA_CONTENT","messageId":"a","delta":"3"}"#,
        r#"{"type":"BUSINESS_DATA_CONTENT","delta":"4"}"#,
    ];
    let (events, _) = read(&FORMAT, stream.join("\n").as_bytes(), usize::MAX, &[]);
    let deltas = events.iter().filter_map(|event| match &event.body {
        Body::TextDelta { message, delta } => Some((message.as_str(), &**delta)),
        _ => None,
    });
    assert_eq!(deltas.collect::<Vec<_>>(), [("a", "1"), ("b", "2"), ("a", "3"), ("a", "4")]);
}

/// Section 4.2 of the standard binds the message id to the parameter `timestamp`.
#[test]
fn text_in_place_of_a_timestamp_is_counted() {
    let text = String::from_utf8(fixture("sample_as_printed.sse")).unwrap();
    let data = text.lines().filter_map(|line| line.strip_prefix("data: "));
    let (events, tally) = unguarded(data, &[]);
    assert_eq!(tally.count("old shape", "timestamp as text"), 1);
    let count = |is_counted: fn(&Body) -> bool| events.iter().filter(|event| is_counted(&event.body)).count();
    assert_eq!(count(|body| matches!(body, Body::CollaborationStart { .. })), 1);
    assert_eq!(count(|body| matches!(body, Body::CollaborationTask { .. })), 1);
    assert_eq!(count(|body| matches!(body, Body::CollaborationEnd { .. })), 1);
}

/// The events and the tally of the reader alone, without the guard behind it.
fn unguarded<'t>(frames: impl IntoIterator<Item = &'t str>, options: &[&str]) -> (Vec<Event>, Tally) {
    let options = Options::parse(options.iter().copied(), FORMAT.options).unwrap();
    let mut reader =
        FORMAT.reader.unwrap()(&Setup { thread: "t".into(), run: "r".into(), options: &options });
    let mut events = Vec::new();
    for text in frames {
        let frame = Frame { index: 0, offset: 0, event: None, id: None, data: Payload::Text(text) };
        reader.read(&frame, &mut events).unwrap();
    }
    reader.end(&StreamEnd::Closed, &mut events);
    (events, reader.tally().clone())
}

/// The violations in a stream of the given frames.
fn violations(frames: &[Value]) -> Vec<&'static str> {
    let texts: Vec<String> = frames.iter().map(Value::to_string).collect();
    let (events, _) = unguarded(texts.iter().map(String::as_str), FORMAT.strict_options);
    let mut checker = Checker::new();
    let mut found: Vec<_> = events.iter().filter_map(|event| checker.check(event)).collect();
    found.extend(checker.end());
    found.iter().map(|violation| violation.rule.name()).collect()
}

#[test]
fn check_finds_violations_that_the_reader_repairs() {
    let event = |kind: &str, id: &str| match kind.rsplit_once('_').unwrap().0 {
        "TOOL_CALL" => {
            json!({"type": kind, "toolCallId": id, "toolCallName": "f", "delta": "{}", "content": "x"})
        }
        "STEP" => json!({"type": kind, "stepName": id}),
        "AGENT_COLLABORATIVE_MESSAGE" => {
            json!({"type": kind, "messageId": id, "from": "A", "to": "B", "delta": {"task": {"id": "1"}}})
        }
        _ => json!({"type": kind, "messageId": id, "delta": "x"}),
    };
    let run = |inner: &[(&str, &str)]| {
        let all = [&[("RUN_STARTED", "r")], inner, &[("RUN_FINISHED", "r")]].concat();
        violations(&all.iter().map(|(kind, id)| event(kind, id)).collect::<Vec<_>>())
    };
    assert_eq!(violations(&[event("RUN_STARTED", "r")]), ["no-terminal"]);
    assert_eq!(violations(&[]), ["no-terminal"]);
    assert_eq!(violations(&[event("BUSINESS_DATA_START", "m")])[0], "run-first");
    assert_eq!(
        violations(&[event("RUN_STARTED", "r"), event("RUN_FINISHED", "r"), event("STEP_STARTED", "s")]),
        ["run-over"]
    );
    for prefix in ["BUSINESS_DATA", "AGENT_COLLABORATIVE_MESSAGE"] {
        let [start, content, end] = ["START", "CONTENT", "END"].map(|part| format!("{prefix}_{part}"));
        let not_open = run(&[(&end, "m")]);
        assert!(not_open.len() == 1 && not_open[0].ends_with("-not-open"), "{not_open:?}");
        assert_eq!(run(&[(&content, "m")])[0], not_open[0]);
        assert_eq!(run(&[(&start, "m"), (&content, "m")]), ["unclosed"]);
        let twice = run(&[(&start, "m"), (&start, "m"), (&end, "m")]);
        assert!(twice[0].ends_with("-open"), "{twice:?}");
        // The reference server opens a message again after its end.
        assert_eq!(
            run(&[(&start, "m"), (&end, "m"), (&start, "m"), (&content, "m"), (&end, "m")]),
            Vec::<&str>::new()
        );
    }
    assert_eq!(run(&[("TOOL_CALL_END", "c")]), ["tool-not-open"]);
    assert_eq!(run(&[("TOOL_CALL_START", "c")]), ["unclosed"]);
    assert_eq!(run(&[("STEP_FINISHED", "s")]), ["step-not-open"]);
    assert_eq!(run(&[("STEP_STARTED", "s"), ("STEP_STARTED", "s"), ("STEP_FINISHED", "s")])[0], "step-open");
}

#[test]
fn output_of_the_writer_passes_the_check() {
    for (name, events) in
        all_fixtures(&ag_ui::FORMAT, AG_UI_FIXTURES).into_iter().chain(all_fixtures(&FORMAT, FIXTURES))
    {
        let mut guard = crate::order::Guard::new("t", "r");
        let mut valid = Vec::new();
        events.into_iter().for_each(|event| guard.push(event, &mut valid));
        guard.end(&StreamEnd::Closed, &mut valid);
        for profile in PROFILES {
            assert_eq!(violations(&written(&valid, profile, &[])), Vec::<&str>::new(), "{name} as {profile}");
        }
    }
}
