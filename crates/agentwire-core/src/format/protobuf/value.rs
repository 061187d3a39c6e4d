//! JSON as `google.protobuf.Value`, both ways. All numbers are doubles there.

use bytes::{BufMut, BytesMut};
use serde_json::Value;

use super::wire::{Field, Malformed, Message, put_double, put_int, put_message, put_plain_str, put_str};
use crate::{
    json::{Json, MAX_DEPTH, Object, ReadError, write_str},
    tally::Tally,
};

/// Appends a `Value` field.
pub(crate) fn put_json(out: &mut BytesMut, field: u32, json: &Json) {
    let value = json.to_value();
    put_message(out, field, |out| put_value(out, &value));
}

/// Appends a `Value` field, if there is one.
pub(crate) fn put_opt_json(out: &mut BytesMut, field: u32, json: Option<&Json>) {
    if let Some(json) = json {
        put_json(out, field, json);
    }
}

/// Appends a `Struct` field, if there is one.
pub(crate) fn put_opt_struct(out: &mut BytesMut, field: u32, object: Option<&Object>) {
    if let Some(object) = object {
        let value = object.to_value();
        put_message(out, field, |out| put_struct(out, &value));
    }
}

fn put_value(out: &mut BytesMut, value: &Value) {
    match value {
        Value::Null => put_int(out, 1, 0),
        Value::Number(number) => put_double(out, 2, number.as_f64().unwrap_or(0.0)),
        Value::String(text) => put_str(out, 3, text),
        Value::Bool(value) => put_int(out, 4, u64::from(*value)),
        Value::Object(_) => put_message(out, 5, |out| put_struct(out, value)),
        Value::Array(elements) => put_message(out, 6, |out| {
            for element in elements {
                put_message(out, 1, |out| put_value(out, element));
            }
        }),
    }
}

fn put_struct(out: &mut BytesMut, value: &Value) {
    for (key, value) in value.as_object().into_iter().flatten() {
        put_message(out, 1, |out| {
            put_plain_str(out, 1, key);
            put_message(out, 2, |out| put_value(out, value));
        });
    }
}

/// The reason why a `Value` could not be read.
pub(crate) enum Bad {
    Malformed,
    TooDeep,
}

impl From<Malformed> for Bad {
    fn from(_: Malformed) -> Self {
        Self::Malformed
    }
}

impl Bad {
    pub(crate) fn at(self, path: &str) -> ReadError {
        match self {
            Self::Malformed => ReadError::new(path, "expected a google.protobuf.Value, found other bytes"),
            Self::TooDeep => ReadError::new(path, format!("nested deeper than {MAX_DEPTH} levels")),
        }
    }
}

/// Appends the JSON text of a `Value`; returns whether it holds a value. `depth` counts lists and objects only, as
/// [`Json`] does: it is that of the value if it is one of them.
pub(crate) fn value_to_json(
    bytes: &[u8],
    out: &mut BytesMut,
    depth: usize,
    tally: &mut Tally,
) -> Result<bool, Bad> {
    let message = Message::parse(bytes)?;
    // A oneof: the last arm counts, and its messages merge.
    let arm = message.fields().filter(|(number, field)| {
        matches!(
            (number, field),
            (1 | 4, Field::Varint(_)) | (2, Field::Fixed64(_)) | (3 | 5 | 6, Field::Bytes(_))
        )
    });
    let Some((number, field)) = arm.last() else {
        return Ok(false);
    };
    match (number, field) {
        (1, _) => out.put_slice(b"null"),
        (2, Field::Fixed64(bytes)) => put_number(f64::from_le_bytes(bytes), out, tally),
        (3, Field::Bytes(text)) => write_str(out, &lossy(text, tally)),
        (4, Field::Varint(value)) => out.put_slice(if value == 0 { b"false" } else { b"true" }),
        (5, _) => {
            let fields = message.message(5).unwrap_or_default();
            struct_to_json(&fields, out, depth, tally)?;
        }
        _ => {
            if depth > MAX_DEPTH {
                return Err(Bad::TooDeep);
            }
            let list = message.message(6).unwrap_or_default();
            out.put_u8(b'[');
            let mut first = true;
            for element in Message::parse(&list)?.repeated(1) {
                if !first {
                    out.put_u8(b',');
                }
                first = false;
                if !value_to_json(element, out, depth + 1, tally)? {
                    out.put_slice(b"null");
                }
            }
            out.put_u8(b']');
        }
    }
    Ok(true)
}

/// Appends the JSON text of a `Struct`.
pub(crate) fn struct_to_json(
    bytes: &[u8],
    out: &mut BytesMut,
    depth: usize,
    tally: &mut Tally,
) -> Result<(), Bad> {
    if depth > MAX_DEPTH {
        return Err(Bad::TooDeep);
    }
    // A repeated key keeps its position and gets its last value, as in every map.
    let mut entries = indexmap::IndexMap::new();
    let message = Message::parse(bytes)?;
    for entry in message.repeated(1) {
        let entry = Message::parse(entry)?;
        let key = lossy(entry.bytes(1).unwrap_or_default(), tally);
        entries.insert(key, entry.message(2).unwrap_or_default());
    }
    out.put_u8(b'{');
    let mut first = true;
    for (key, value) in entries {
        let mark = out.len();
        if !first {
            out.put_u8(b',');
        }
        write_str(out, &key);
        out.put_u8(b':');
        if value_to_json(&value, out, depth + 1, tally)? {
            first = false;
        } else {
            out.truncate(mark);
        }
    }
    out.put_u8(b'}');
    Ok(())
}

fn put_number(number: f64, out: &mut BytesMut, tally: &mut Tally) {
    if !number.is_finite() {
        tally.note("number that JSON cannot say", "replaced by null");
        out.put_slice(b"null");
    } else if number.fract() == 0.0 && number.abs() < 9e15 && !(number == 0.0 && number.is_sign_negative()) {
        serde_json::to_writer(out.writer(), &(number as i64)).expect("writing to memory does not fail");
    } else {
        serde_json::to_writer(out.writer(), &number).expect("writing to memory does not fail");
    }
}

/// A protobuf string; bytes that are not UTF-8 are replaced and counted.
pub(crate) fn lossy<'a>(bytes: &'a [u8], tally: &mut Tally) -> std::borrow::Cow<'a, str> {
    let text = String::from_utf8_lossy(bytes);
    if matches!(text, std::borrow::Cow::Owned(_)) {
        tally.note("invalid UTF-8", "replaced by U+FFFD");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn back(json: &Json) -> Result<String, Bad> {
        let (mut bytes, mut text) = (BytesMut::new(), BytesMut::new());
        put_json(&mut bytes, 1, json);
        let message = Message::parse(&bytes)?;
        value_to_json(&message.message(1).unwrap_or_default(), &mut text, 1, &mut Tally::default())?;
        Ok(String::from_utf8(text.into()).expect("JSON text is UTF-8"))
    }

    #[test]
    fn the_deepest_json_is_read_back() {
        for (open, inner, close) in
            [("[", "", "]"), ("[", "1", "]"), ("{\"a\":", "{}", "}"), ("{\"a\":", "1", "}")]
        {
            let levels = if inner == "{}" { MAX_DEPTH - 1 } else { MAX_DEPTH };
            let text = open.repeat(levels) + inner + &close.repeat(levels);
            let json = Json::parse(&text).expect("as deep as allowed");
            assert!(back(&json).is_ok_and(|back| back == text), "{text}");
            let deeper = Json::trusted(format!("{open}{text}{close}"));
            assert!(serde_json::from_str::<Value>(deeper.get()).is_ok(), "the parser allows one more level");
            assert!(matches!(back(&deeper), Err(Bad::TooDeep)), "{text}");
        }
    }
}
