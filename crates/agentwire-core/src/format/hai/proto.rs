//! HAI as protobuf: "HTTP binary, for high performance", of which the standard says no more.
//!
//! The schema is `docs/formats/hai.proto`: one message whose fields are the members of the JSON form, and a
//! `Struct` for every member that has no field, so that JSON → protobuf → JSON gives the same object up to the
//! order of keys. Both directions therefore go through JSON, and one reader and one writer know the rules.
//! Integers beyond 2^53 cannot be told in a `Struct`; a member that holds one is left out and reported.

use bytes::{BufMut, BytesMut};

use super::{
    reader::HaiReader,
    wire::{EVENTS, MESSAGES_SNAPSHOT},
    writer::{Encoding, HaiWriter},
};
use crate::{
    format::{
        Format, Profile, ReadError,
        protobuf::{
            value::{lossy, put_json as put_value, put_opt_struct, struct_to_json, value_to_json},
            wire::{Message, put_int, put_message, put_str},
        },
    },
    framing::{Frames, Framing},
    json::{Json, members, write_str},
    tally::Tally,
};

/// The media type of the binary form; a response must carry it exactly.
pub const CONTENT_TYPE: &str = "application/vnd.hai.event+proto";

/// The format's entry in the registry.
pub static FORMAT: Format = Format {
    name: "hai-proto",
    about: "HAI as length-prefixed protobuf",
    reads: &[Framing::Prefixed],
    profiles: &[Profile {
        name: "json-string",
        about: "deltas are JSON documents as strings",
        framing: Framing::Prefixed,
        content_type: CONTENT_TYPE,
        headers: &[],
        asks: &[],
    }],
    ordered: false,
    options: super::OPTIONS,
    reader: Some(|setup| Box::new(HaiReader::new(setup))),
    writer: Some(|profile, setup| Box::new(HaiWriter::new(profile, setup, Encoding::Proto))),
};

/// What a field holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Str,
    Int,
    Value,
    Struct,
    /// A JSON Patch, operation by operation.
    Patch,
    /// A list of objects.
    Structs,
}

/// The fields: number, JSON member, kind. In the order of their numbers, which is the order on the wire.
const FIELDS: &[(u32, &str, Kind)] = &[
    (2, "timestamp", Kind::Int),
    (3, "threadId", Kind::Str),
    (4, "runId", Kind::Str),
    (5, "messageId", Kind::Str),
    (6, "role", Kind::Str),
    (7, "delta", Kind::Str),
    (8, "stepName", Kind::Str),
    (9, "from", Kind::Str),
    (10, "to", Kind::Str),
    (11, "toolCallId", Kind::Str),
    (12, "toolCallName", Kind::Str),
    (13, "parentMessageId", Kind::Str),
    (14, "content", Kind::Str),
    (15, "message", Kind::Str),
    (16, "code", Kind::Str),
    (17, "name", Kind::Str),
    (18, "value", Kind::Value),
    (19, "source", Kind::Str),
    (20, "snapshot", Kind::Value),
    (21, "delta", Kind::Patch),
    (22, "messages", Kind::Structs),
    (23, "blockId", Kind::Str),
    (24, "style", Kind::Struct),
];

const UNKNOWN_TYPE: u32 = 30;
const EXTRA: u32 = 31;

/// Whether a list in this field is part of events of that type; an empty one is then the same as none.
fn lists(kind: Kind, event_type: &str) -> bool {
    match kind {
        Kind::Patch => event_type == "STATE_DELTA",
        Kind::Structs => matches!(event_type, "MESSAGE_SNAPSHOT" | MESSAGES_SNAPSHOT),
        _ => false,
    }
}

/// The member of JSON that a field is in events of that type: RAW's event is a `value`.
fn member<'k>(key: &'k str, event_type: &str) -> &'k str {
    if key == "value" && event_type == "RAW" { "event" } else { key }
}

/// How much of an event the binary form could hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Held {
    /// Nothing: what makes the event would be missing.
    Nothing,
    /// Not every member.
    Less,
    /// All of it.
    Whole,
}

/// Members without which an event would say something else.
const ESSENTIAL: &[&str] = &["snapshot", "delta", "messages", "value", "event"];

/// Writes an event, given as JSON, as one frame, without members that hold an integer beyond 2^53.
pub(super) fn put_json(out: &mut Frames, event_type: &str, text: &str) -> Held {
    let mut message = BytesMut::new();
    let held = from_text(text, &mut message);
    if held > Held::Nothing {
        out.begin(event_type).extend_from_slice(&message);
        out.commit();
    }
    held
}

/// Appends an event, given as the text of a JSON object, as one message.
fn from_text(text: &str, out: &mut BytesMut) -> Held {
    let Some(mut members) = members(text) else {
        return Held::Nothing;
    };
    let large = |(key, value): &(String, Json)| key != "timestamp" && holds_large_integer(value.get());
    let mut held = Held::Whole;
    if members.iter().any(large) {
        held = Held::Less;
        if members.iter().any(|member| large(member) && ESSENTIAL.contains(&member.0.as_str())) {
            return Held::Nothing;
        }
        members.retain(|member| !large(member));
    }
    let mut take = |key: &str, fit: &dyn Fn(&Json) -> bool| {
        let at = members.iter().rposition(|(name, value)| name == key && fit(value))?;
        Some(members.remove(at).1)
    };
    let event_type = take("type", &|value| value.get().starts_with('"')).and_then(|value| value.as_str());
    let event_type = event_type.unwrap_or_default();
    let number = EVENTS.iter().find(|(name, _)| *name == event_type).map(|(_, number)| *number);
    if let Some(number) = number {
        put_int(out, 1, number);
    }
    for &(field, key, kind) in FIELDS {
        let key = member(key, &event_type);
        match kind {
            Kind::Str => {
                if let Some(text) =
                    take(key, &|value| value.get().starts_with('"')).and_then(|value| value.as_str())
                {
                    put_str(out, field, &text);
                }
            }
            Kind::Int => {
                let integer = |value: &Json| value.get().parse::<i64>().is_ok();
                if let Some(value) = take(key, &integer) {
                    put_int(out, field, value.get().parse::<i64>().unwrap_or_default() as u64);
                }
            }
            Kind::Value => {
                if let Some(value) = take(key, &|_| true) {
                    put_value(out, field, &value);
                }
            }
            Kind::Struct => {
                if let Some(value) = take(key, &|value| value.get().starts_with('{')) {
                    put_opt_struct(out, field, value.into_object().as_ref());
                }
            }
            Kind::Patch if lists(kind, &event_type) => {
                let patch = take(key, &|value| operations(value).is_some());
                for [op, path, from, value] in patch.and_then(|patch| operations(&patch)).unwrap_or_default()
                {
                    put_message(out, field, |out| {
                        let text = |value: &Json| value.as_str().unwrap_or_default();
                        for (number, member) in [(1, op), (2, path), (3, from)] {
                            if let Some(member) = member {
                                put_str(out, number, &text(&member));
                            }
                        }
                        if let Some(value) = value {
                            put_value(out, 4, &value);
                        }
                    });
                }
            }
            Kind::Structs if lists(kind, &event_type) => {
                let objects = |value: &Json| {
                    let elements = value.elements()?;
                    elements.into_iter().map(Json::into_object).collect::<Option<Vec<_>>>()
                };
                let list = take(key, &|value| objects(value).is_some());
                for object in list.and_then(|list| objects(&list)).unwrap_or_default() {
                    put_opt_struct(out, field, Some(&object));
                }
            }
            Kind::Patch | Kind::Structs => {}
        }
    }
    if number.is_none() {
        put_str(out, UNKNOWN_TYPE, &event_type);
    }
    if !members.is_empty() {
        put_message(out, EXTRA, |out| {
            for (key, value) in &members {
                put_message(out, 1, |out| {
                    put_str(out, 1, key);
                    put_value(out, 2, value);
                });
            }
        });
    }
    held
}

/// The operations of a patch, if they have no members but those with fields.
fn operations(patch: &Json) -> Option<Vec<[Option<Json>; 4]>> {
    let mut operations = Vec::new();
    for operation in patch.elements()? {
        let mut fields = [const { None }; 4];
        for (key, value) in operation.into_object()?.entries() {
            let at = ["op", "path", "from", "value"].iter().position(|name| *name == key)?;
            if at < 3 && !value.get().starts_with('"') {
                return None;
            }
            fields[at] = Some(value);
        }
        if fields[0].is_none() || fields[1].is_none() {
            return None;
        }
        operations.push(fields);
    }
    Some(operations)
}

/// Whether a number in `text` is an integer that a double cannot hold.
pub(super) fn holds_large_integer(text: &str) -> bool {
    const LARGEST: u64 = 1 << 53;
    let bytes = text.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        match bytes[at] {
            b'"' => {
                at += 1;
                while at < bytes.len() && bytes[at] != b'"' {
                    at += if bytes[at] == b'\\' { 2 } else { 1 };
                }
                at += 1;
            }
            b'-' | b'0'..=b'9' => {
                let start = at;
                while at < bytes.len() && matches!(bytes[at], b'-' | b'+' | b'.' | b'e' | b'E' | b'0'..=b'9')
                {
                    at += 1;
                }
                let number = &text[start..at];
                let integer = !number.contains(['.', 'e', 'E']);
                let digits = number.trim_start_matches('-');
                if integer && digits.parse::<u64>().map_or(true, |value| value > LARGEST) {
                    return true;
                }
            }
            _ => at += 1,
        }
    }
    false
}

/// The JSON text of one message.
pub(super) fn to_json(bytes: &[u8], tally: &mut Tally) -> Result<String, ReadError> {
    let message = Message::parse(bytes).map_err(|_| ReadError::new("", "not a protobuf message"))?;
    let number = message.varint(1).unwrap_or(0);
    let event_type = match EVENTS.iter().find(|(_, known)| *known == number) {
        Some((name, _)) => (*name).to_owned(),
        None => match message.bytes(UNKNOWN_TYPE) {
            Some(name) => lossy(name, tally).into_owned(),
            None => {
                return Err(ReadError::new(
                    "/type",
                    format!("expected the number of an event, found {number}"),
                ));
            }
        },
    };
    let mut out = BytesMut::new();
    out.put_slice(b"{\"type\":");
    write_str(&mut out, &event_type);
    let mut written = vec!["type"];
    for &(field, key, kind) in FIELDS {
        let name = member(key, &event_type);
        let mark = out.len();
        out.put_u8(b',');
        write_str(&mut out, name);
        out.put_u8(b':');
        let bad = |bad: crate::format::protobuf::value::Bad| bad.at(&format!("/{name}"));
        let there = match kind {
            Kind::Str => match message.bytes(field) {
                Some(text) => {
                    write_str(&mut out, &lossy(text, tally));
                    true
                }
                None => false,
            },
            Kind::Int => match message.varint(field) {
                Some(value) => {
                    out.put_slice((value as i64).to_string().as_bytes());
                    true
                }
                None => false,
            },
            Kind::Value => match message.message(field) {
                Some(value) => value_to_json(&value, &mut out, 0, tally).map_err(bad)?,
                None => false,
            },
            Kind::Struct => match message.message(field) {
                Some(value) => {
                    struct_to_json(&value, &mut out, 1, tally).map_err(bad)?;
                    true
                }
                None => false,
            },
            Kind::Patch | Kind::Structs => {
                let there = message.repeated(field).next().is_some();
                // An empty list has no bytes; where a list belongs, nothing means that, unless it went another way.
                let missing = !lists(kind, &event_type) || extra_member(&message, name, tally);
                if !there && missing {
                    false
                } else {
                    out.put_u8(b'[');
                    for (index, element) in message.repeated(field).enumerate() {
                        if index > 0 {
                            out.put_u8(b',');
                        }
                        if kind == Kind::Patch {
                            operation_to_json(element, &mut out, tally)
                                .map_err(|bad| bad.at(&format!("/{name}/{index}")))?;
                        } else {
                            struct_to_json(element, &mut out, 1, tally)
                                .map_err(|bad| bad.at(&format!("/{name}/{index}")))?;
                        }
                    }
                    out.put_u8(b']');
                    true
                }
            }
        };
        if there && !written.contains(&name) {
            written.push(name);
        } else {
            out.truncate(mark);
        }
    }
    if let Some(extra) = message.message(EXTRA) {
        let mut text = BytesMut::new();
        struct_to_json(&extra, &mut text, 0, tally).map_err(|bad| bad.at(""))?;
        let text = std::str::from_utf8(&text).expect("JSON text is UTF-8");
        for (key, value) in members(text).unwrap_or_default() {
            if !written.contains(&key.as_str()) {
                out.put_u8(b',');
                write_str(&mut out, &key);
                out.put_u8(b':');
                out.put_slice(value.get().as_bytes());
            }
        }
    }
    out.put_u8(b'}');
    Ok(String::from_utf8(out.into()).expect("JSON text is UTF-8"))
}

/// Whether `extra` holds a member of that name.
fn extra_member(message: &Message<'_>, name: &str, tally: &mut Tally) -> bool {
    let Some(extra) = message.message(EXTRA) else { return false };
    let Ok(extra) = Message::parse(&extra) else { return false };
    extra.repeated(1).any(|entry| {
        Message::parse(entry).is_ok_and(|entry| lossy(entry.bytes(1).unwrap_or_default(), tally) == name)
    })
}

fn operation_to_json(
    bytes: &[u8],
    out: &mut BytesMut,
    tally: &mut Tally,
) -> Result<(), crate::format::protobuf::value::Bad> {
    let message = Message::parse(bytes)?;
    out.put_slice(b"{\"op\":");
    write_str(out, &lossy(message.bytes(1).unwrap_or_default(), tally));
    out.put_slice(b",\"path\":");
    write_str(out, &lossy(message.bytes(2).unwrap_or_default(), tally));
    if let Some(from) = message.bytes(3) {
        out.put_slice(b",\"from\":");
        write_str(out, &lossy(from, tally));
    }
    if let Some(value) = message.message(4) {
        let mark = out.len();
        out.put_slice(b",\"value\":");
        if !value_to_json(&value, out, 0, tally)? {
            out.truncate(mark);
        }
    }
    out.put_u8(b'}');
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
