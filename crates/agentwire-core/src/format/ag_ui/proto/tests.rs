//! The binary form compared to test vectors of the official encoder; see `fixtures_proto/SOURCE.md`.

use std::collections::BTreeSet;

use serde::Deserialize;
use serde_json::{Value, value::RawValue};

use super::{super::wire::EVENTS, *};

const VECTORS: &str = include_str!("../fixtures_proto/vectors.jsonl");

#[derive(Deserialize)]
struct Vector<'v> {
    #[serde(borrow)]
    json: &'v RawValue,
    hex: &'v str,
    #[serde(borrow)]
    back: Option<&'v RawValue>,
}

impl Vector<'_> {
    fn bytes(&self) -> Vec<u8> {
        let pairs = self.hex.as_bytes().chunks(2);
        let byte = |pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
        pairs.map(byte).collect()
    }
}

fn vectors() -> impl Iterator<Item = Vector<'static>> {
    VECTORS.lines().map(|line| serde_json::from_str(line).unwrap())
}

/// Parsed JSON with all numbers as doubles, as in the binary form: `1` and `1.0` are equal there.
fn parsed(text: &str) -> Value {
    fn to_doubles(value: &mut Value) {
        match value {
            Value::Number(number) => *value = number.as_f64().into(),
            Value::Array(list) => list.iter_mut().for_each(to_doubles),
            Value::Object(members) => members.values_mut().for_each(to_doubles),
            _ => {}
        }
    }
    let mut value = serde_json::from_str(text).unwrap();
    to_doubles(&mut value);
    value
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn vectors_cover_every_event_type() {
    let kinds: BTreeSet<_> = vectors().map(|vector| parsed(vector.json.get())["type"].to_string()).collect();
    assert_eq!(kinds.len(), EVENTS.len());
}

#[test]
fn bytes_equal_the_official_encoder() {
    for vector in vectors() {
        let ours = event_to_proto(vector.json.get()).map(|bytes| hex(&bytes));
        assert_eq!(ours.as_deref(), Ok(vector.hex), "{}", vector.json);
    }
}

#[test]
fn decoded_events_equal_the_official_decoder() {
    for vector in vectors() {
        let ours = event_to_json(&vector.bytes()).expect(vector.hex);
        let theirs = vector.back.unwrap_or(vector.json).get();
        assert_eq!(parsed(&ours), parsed(theirs), "{}", vector.hex);
    }
}

#[test]
fn truncated_vector_never_decodes_to_the_whole_event() {
    for vector in vectors().step_by(7) {
        let (bytes, whole) = (vector.bytes(), event_to_json(&vector.bytes()).unwrap());
        for length in 0..bytes.len() {
            assert_ne!(event_to_json(&bytes[..length]).as_deref(), Ok(whole.as_str()), "{}", vector.hex);
        }
    }
}

#[test]
fn event_without_binary_form_is_rejected() {
    for event in [r#"{"type":"THINKING_START"}"#, r#"{"type":"FUTURE"}"#, "[]", ""] {
        assert!(event_to_proto(event).is_err(), "{event}");
    }
    assert!(event_to_json(&[]).is_err());
}
