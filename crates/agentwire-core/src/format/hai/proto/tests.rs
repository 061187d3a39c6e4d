//! The binary form.

use bytes::BytesMut;

use super::{
    reader::to_json,
    writer::{Coverage, encode_json, has_large_integer},
};
use crate::tally::Tally;

fn assert_round_trip(value: serde_json::Value) {
    let mut out = BytesMut::new();
    assert_eq!(encode_json(&value.to_string(), &mut out), Coverage::Full);
    let back = to_json(&out, &mut Tally::default()).unwrap();
    assert_eq!(serde_json::from_str::<serde_json::Value>(&back).unwrap(), value);
}

#[test]
fn every_member_round_trips() {
    use serde_json::json;
    assert_round_trip(
        json!({"type": "BUSINESS_DATA_CONTENT", "messageId": "", "delta": "{}", "timestamp": -5, "style": {"a": null}}),
    );
    assert_round_trip(
        json!({"type": "BUSINESS_DATA_CONTENT", "delta": {"output": 1}, "style": "bold", "blockId": 7, "x": [1.5]}),
    );
    assert_round_trip(
        json!({"type": "STATE_DELTA", "delta": [{"op": "add", "path": "/a", "value": null}, {"op": "move", "path": "", "from": "/x"}]}),
    );
    assert_round_trip(json!({"type": "STATE_DELTA", "delta": []}));
    assert_round_trip(
        json!({"type": "STATE_DELTA", "delta": [{"op": "add", "path": "/a", "value": 1, "note": true}]}),
    );
    assert_round_trip(json!({"type": "MESSAGE_SNAPSHOT", "messages": []}));
    assert_round_trip(json!({"type": "MESSAGES_SNAPSHOT", "messages": [{"id": "m"}]}));
    assert_round_trip(json!({"type": "MESSAGE_SNAPSHOT", "messages": 3}));
    assert_round_trip(json!({"type": "RUN_STARTED", "messages": [], "outcome": {"type": "success"}}));
    assert_round_trip(json!({"type": "RAW", "event": null, "value": 1, "source": "s"}));
    assert_round_trip(json!({"type": "CUSTOM", "name": "n", "value": {"deep": [[{}]]}}));
    assert_round_trip(json!({"type": "SOMETHING_NEW", "value": false}));
}

#[test]
fn integers_beyond_a_double_are_left_out() {
    for (text, large) in [
        ("9007199254740992", false),
        ("9007199254740993", true),
        ("[-9007199254740993]", true),
        ("1e300", false),
        ("\"9007199254740993\"", false),
        ("{\"9007199254740993\":1}", false),
        ("99999999999999999999999", true),
    ] {
        assert_eq!(has_large_integer(text), large, "{text}");
    }
    let mut out = BytesMut::new();
    let event = r#"{"type":"CUSTOM","name":"n","value":9007199254740993}"#;
    assert_eq!(encode_json(event, &mut out), Coverage::None);
    let event = r#"{"type":"CUSTOM","name":"n","value":1,"rawEvent":9007199254740993}"#;
    assert_eq!(encode_json(event, &mut out), Coverage::Partial);
    let back = to_json(&out, &mut Tally::default()).unwrap();
    assert_eq!(back, r#"{"type":"CUSTOM","name":"n","value":1}"#);
}
