//! Claims about the binary form.

use bytes::BytesMut;

use super::{
    reader::to_json,
    writer::{Held, from_text, holds_large_integer},
};
use crate::tally::Tally;

fn survives(value: serde_json::Value) {
    let mut out = BytesMut::new();
    assert_eq!(from_text(&value.to_string(), &mut out), Held::Whole);
    let back = to_json(&out, &mut Tally::default()).unwrap();
    assert_eq!(serde_json::from_str::<serde_json::Value>(&back).unwrap(), value);
}

#[test]
fn every_member_comes_back() {
    use serde_json::json;
    survives(
        json!({"type": "BUSINESS_DATA_CONTENT", "messageId": "", "delta": "{}", "timestamp": -5, "style": {"a": null}}),
    );
    survives(
        json!({"type": "BUSINESS_DATA_CONTENT", "delta": {"output": 1}, "style": "bold", "blockId": 7, "x": [1.5]}),
    );
    survives(
        json!({"type": "STATE_DELTA", "delta": [{"op": "add", "path": "/a", "value": null}, {"op": "move", "path": "", "from": "/x"}]}),
    );
    survives(json!({"type": "STATE_DELTA", "delta": []}));
    survives(
        json!({"type": "STATE_DELTA", "delta": [{"op": "add", "path": "/a", "value": 1, "note": true}]}),
    );
    survives(json!({"type": "MESSAGE_SNAPSHOT", "messages": []}));
    survives(json!({"type": "MESSAGES_SNAPSHOT", "messages": [{"id": "m"}]}));
    survives(json!({"type": "MESSAGE_SNAPSHOT", "messages": 3}));
    survives(json!({"type": "RUN_STARTED", "messages": [], "outcome": {"type": "success"}}));
    survives(json!({"type": "RAW", "event": null, "value": 1, "source": "s"}));
    survives(json!({"type": "CUSTOM", "name": "n", "value": {"deep": [[{}]]}}));
    survives(json!({"type": "SOMETHING_NEW", "value": false}));
}

#[test]
fn integers_that_no_double_holds_are_refused() {
    for (text, large) in [
        ("9007199254740992", false),
        ("9007199254740993", true),
        ("[-9007199254740993]", true),
        ("1e300", false),
        ("\"9007199254740993\"", false),
        ("{\"9007199254740993\":1}", false),
        ("99999999999999999999999", true),
    ] {
        assert_eq!(holds_large_integer(text), large, "{text}");
    }
    let mut out = BytesMut::new();
    let event = r#"{"type":"CUSTOM","name":"n","value":9007199254740993}"#;
    assert_eq!(from_text(event, &mut out), Held::Nothing);
    let event = r#"{"type":"CUSTOM","name":"n","value":1,"rawEvent":9007199254740993}"#;
    assert_eq!(from_text(event, &mut out), Held::Less);
    let back = to_json(&out, &mut Tally::default()).unwrap();
    assert_eq!(back, r#"{"type":"CUSTOM","name":"n","value":1}"#);
}
