//! Reading: malformed events, arbitrary bytes, missing ids.

use super::*;
use crate::order::Checker;

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
            json!({"type": "RUN_STARTED", "timestamp": "now"}),
            "at `/timestamp`: expected milliseconds since the epoch, found the string \"now\"",
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
