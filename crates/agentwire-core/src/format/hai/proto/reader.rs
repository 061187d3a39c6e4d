//! Protobuf to JSON events.

use bytes::{BufMut, BytesMut};

use super::{super::wire::EVENTS, EXTRA, FIELDS, MemberKind, UNKNOWN_TYPE, is_list_of, member};
use crate::{
    format::protobuf::{
        value::{lossy, struct_to_json, value_to_json},
        wire::Message,
    },
    json::{ReadError, ReadResult, members, write_str},
    tally::Tally,
};

/// The JSON text of one event.
pub(crate) fn to_json(bytes: &[u8], tally: &mut Tally) -> ReadResult<String> {
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
        let is_present = match kind {
            MemberKind::Str => match message.bytes(field) {
                Some(text) => {
                    write_str(&mut out, &lossy(text, tally));
                    true
                }
                None => false,
            },
            MemberKind::Int => match message.varint(field) {
                Some(value) => {
                    out.put_slice((value as i64).to_string().as_bytes());
                    true
                }
                None => false,
            },
            MemberKind::Value => match message.message(field) {
                Some(value) => value_to_json(&value, &mut out, 1, tally).map_err(bad)?,
                None => false,
            },
            MemberKind::Struct => match message.message(field) {
                Some(value) => {
                    struct_to_json(&value, &mut out, 1, tally).map_err(bad)?;
                    true
                }
                None => false,
            },
            MemberKind::Patch | MemberKind::Structs => {
                let is_present = message.repeated(field).next().is_some();
                // An empty list has no bytes: an absent list is empty, unless `extra` contains it.
                let missing = !is_list_of(kind, &event_type) || extra_member(&message, name, tally);
                if !is_present && missing {
                    false
                } else {
                    out.put_u8(b'[');
                    for (index, element) in message.repeated(field).enumerate() {
                        if index > 0 {
                            out.put_u8(b',');
                        }
                        if kind == MemberKind::Patch {
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
        if is_present && !written.contains(&name) {
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

/// Whether `extra` contains a member of this name.
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
        if !value_to_json(&value, out, 1, tally)? {
            out.truncate(mark);
        }
    }
    out.put_u8(b'}');
    Ok(())
}
