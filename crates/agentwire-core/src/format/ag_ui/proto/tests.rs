//! The binary form against vectors of the official encoder; see `fixtures_proto/SOURCE.md`.

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

/// Numbers as doubles, which is all that the binary form holds: `1` and `1.0` are the same there.
fn parsed(text: &str) -> Value {
    fn settle(value: &mut Value) {
        match value {
            Value::Number(number) => *value = number.as_f64().into(),
            Value::Array(list) => list.iter_mut().for_each(settle),
            Value::Object(members) => members.values_mut().for_each(settle),
            _ => {}
        }
    }
    let mut value = serde_json::from_str(text).unwrap();
    settle(&mut value);
    value
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn the_vectors_hold_every_event() {
    let kinds: BTreeSet<_> = vectors().map(|vector| parsed(vector.json.get())["type"].to_string()).collect();
    assert_eq!(kinds.len(), EVENTS.len());
}

#[test]
fn our_bytes_are_the_official_ones() {
    for vector in vectors() {
        let ours = event_to_proto(vector.json.get()).map(|bytes| hex(&bytes));
        assert_eq!(ours.as_deref(), Ok(vector.hex), "{}", vector.json);
    }
}

#[test]
fn official_bytes_read_as_the_official_decoder_reads_them() {
    for vector in vectors() {
        let ours = event_to_json(&vector.bytes()).expect(vector.hex);
        let theirs = vector.back.unwrap_or(vector.json).get();
        assert_eq!(parsed(&ours), parsed(theirs), "{}", vector.hex);
    }
}

#[test]
fn a_vector_cut_short_is_never_read_as_the_whole() {
    for vector in vectors().step_by(7) {
        let (bytes, whole) = (vector.bytes(), event_to_json(&vector.bytes()).unwrap());
        for length in 0..bytes.len() {
            assert_ne!(event_to_json(&bytes[..length]).as_deref(), Ok(whole.as_str()), "{}", vector.hex);
        }
    }
}

#[test]
fn what_has_no_binary_form_is_refused() {
    for event in [r#"{"type":"THINKING_START"}"#, r#"{"type":"FUTURE"}"#, "[]", ""] {
        assert!(event_to_proto(event).is_err(), "{event}");
    }
    assert!(event_to_json(&[]).is_err());
}
