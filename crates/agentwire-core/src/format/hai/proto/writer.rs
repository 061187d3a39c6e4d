//! JSON events to protobuf.

use bytes::BytesMut;

use super::{super::wire::EVENTS, EXTRA, FIELDS, MemberKind, UNKNOWN_TYPE, is_list_of, member};
use crate::{
    format::protobuf::{
        value::{put_json as put_value, put_opt_struct},
        wire::{put_int, put_message, put_str},
    },
    framing::Frames,
    json::{Json, members},
};

/// The part of an event that the binary form can represent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Coverage {
    /// Nothing: an essential member cannot be represented.
    None,
    /// Some members.
    Partial,
    /// All members.
    Full,
}

/// Members without which an event has another meaning.
const ESSENTIAL: &[&str] = &["snapshot", "delta", "messages", "value", "event"];

/// Writes a JSON event as one frame, without members that contain an integer beyond 2^53.
pub(crate) fn put_json(out: &mut Frames, event_type: &str, text: &str) -> Coverage {
    let mut message = BytesMut::new();
    let coverage = encode_json(text, &mut message);
    if coverage > Coverage::None {
        out.begin(event_type).extend_from_slice(&message);
        out.commit();
    }
    coverage
}

/// Appends a JSON event as one message.
pub(crate) fn encode_json(text: &str, out: &mut BytesMut) -> Coverage {
    let Some(mut members) = members(text) else {
        return Coverage::None;
    };
    let large = |(key, value): &(String, Json)| key != "timestamp" && has_large_integer(value.get());
    let mut coverage = Coverage::Full;
    if members.iter().any(large) {
        coverage = Coverage::Partial;
        if members.iter().any(|member| large(member) && ESSENTIAL.contains(&member.0.as_str())) {
            return Coverage::None;
        }
        members.retain(|member| !large(member));
    }
    let mut remove = |key: &str, fit: &dyn Fn(&Json) -> bool| {
        let at = members.iter().rposition(|(name, value)| name == key && fit(value))?;
        Some(members.remove(at).1)
    };
    let event_type = remove("type", &|value| value.get().starts_with('"')).and_then(|value| value.as_str());
    let event_type = event_type.unwrap_or_default();
    let number = EVENTS.iter().find(|(name, _)| *name == event_type).map(|(_, number)| *number);
    if let Some(number) = number {
        put_int(out, 1, number);
    }
    for &(field, key, kind) in FIELDS {
        let key = member(key, &event_type);
        match kind {
            MemberKind::Str => {
                if let Some(text) =
                    remove(key, &|value| value.get().starts_with('"')).and_then(|value| value.as_str())
                {
                    put_str(out, field, &text);
                }
            }
            MemberKind::Int => {
                let integer = |value: &Json| value.get().parse::<i64>().is_ok();
                if let Some(value) = remove(key, &integer) {
                    put_int(out, field, value.get().parse::<i64>().unwrap_or_default() as u64);
                }
            }
            MemberKind::Value => {
                if let Some(value) = remove(key, &|_| true) {
                    put_value(out, field, &value);
                }
            }
            MemberKind::Struct => {
                if let Some(value) = remove(key, &|value| value.get().starts_with('{')) {
                    put_opt_struct(out, field, value.into_object().as_ref());
                }
            }
            MemberKind::Patch if is_list_of(kind, &event_type) => {
                let patch = remove(key, &|value| operations(value).is_some());
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
            MemberKind::Structs if is_list_of(kind, &event_type) => {
                let objects = |value: &Json| {
                    let elements = value.elements()?;
                    elements.into_iter().map(Json::into_object).collect::<Option<Vec<_>>>()
                };
                let list = remove(key, &|value| objects(value).is_some());
                for object in list.and_then(|list| objects(&list)).unwrap_or_default() {
                    put_opt_struct(out, field, Some(&object));
                }
            }
            MemberKind::Patch | MemberKind::Structs => {}
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
    coverage
}

/// The operations of a patch, if all of their members have fields.
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

/// Whether `text` contains an integer that a double cannot represent.
pub(crate) fn has_large_integer(text: &str) -> bool {
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
