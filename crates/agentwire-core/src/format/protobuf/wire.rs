//! The protobuf wire encoding: keys, varints, lengths.

use std::borrow::Cow;

use bytes::{BufMut, BytesMut};

/// Appends a varint.
pub(crate) fn put_varint(out: &mut BytesMut, mut value: u64) {
    while value >= 0x80 {
        out.put_u8(value as u8 | 0x80);
        value >>= 7;
    }
    out.put_u8(value as u8);
}

fn put_key(out: &mut BytesMut, field: u32, wire_type: u64) {
    put_varint(out, u64::from(field) << 3 | wire_type);
}

/// A string with explicit presence: written even when empty.
pub(crate) fn put_str(out: &mut BytesMut, field: u32, text: &str) {
    put_key(out, field, 2);
    put_varint(out, text.len() as u64);
    out.put_slice(text.as_bytes());
}

/// A string with explicit presence, if there is one.
pub(crate) fn put_opt_str(out: &mut BytesMut, field: u32, text: Option<&str>) {
    if let Some(text) = text {
        put_str(out, field, text);
    }
}

/// A string whose empty value is not written.
pub(crate) fn put_plain_str(out: &mut BytesMut, field: u32, text: &str) {
    if !text.is_empty() {
        put_str(out, field, text);
    }
}

/// An integer with explicit presence.
pub(crate) fn put_int(out: &mut BytesMut, field: u32, value: u64) {
    put_key(out, field, 0);
    put_varint(out, value);
}

/// A double with explicit presence.
pub(crate) fn put_double(out: &mut BytesMut, field: u32, value: f64) {
    put_key(out, field, 1);
    out.put_f64_le(value);
}

/// A message. Its length is known only afterwards: one byte is reserved for it, which is enough for most messages;
/// otherwise the payload is moved.
pub(crate) fn put_message(out: &mut BytesMut, field: u32, fill: impl FnOnce(&mut BytesMut)) {
    put_key(out, field, 2);
    let at = out.len();
    out.put_u8(0);
    fill(out);
    let length = out.len() - at - 1;
    if length < 0x80 {
        out[at] = length as u8;
        return;
    }
    let mut prefix = BytesMut::with_capacity(10);
    put_varint(&mut prefix, length as u64);
    let extra = prefix.len() - 1;
    out.put_bytes(0, extra);
    out.copy_within(at + 1..at + 1 + length, at + 1 + extra);
    out[at..=at + extra].copy_from_slice(&prefix);
}

/// One field of a message.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Field<'a> {
    Varint(u64),
    Fixed64([u8; 8]),
    Bytes(&'a [u8]),
    /// A kind that no supported message uses.
    Other,
}

/// The bytes are not a protobuf message.
#[derive(Debug)]
pub(crate) struct Malformed;

/// The fields of a message.
#[derive(Debug)]
pub(crate) struct Message<'a>(Vec<(u32, Field<'a>)>);

impl<'a> Message<'a> {
    pub(crate) fn parse(mut bytes: &'a [u8]) -> Result<Self, Malformed> {
        let mut fields = Vec::new();
        let mut groups: Vec<u32> = Vec::new();
        while !bytes.is_empty() {
            let key = u32::try_from(take_varint(&mut bytes)?).map_err(|_| Malformed)?;
            let number = key >> 3;
            if number == 0 {
                return Err(Malformed);
            }
            let field = match key & 7 {
                0 => Field::Varint(take_varint(&mut bytes)?),
                1 => {
                    let (fixed, rest) = bytes.split_first_chunk().ok_or(Malformed)?;
                    bytes = rest;
                    Field::Fixed64(*fixed)
                }
                2 => {
                    let length = usize::try_from(take_varint(&mut bytes)?).map_err(|_| Malformed)?;
                    let (payload, rest) = bytes.split_at_checked(length).ok_or(Malformed)?;
                    bytes = rest;
                    Field::Bytes(payload)
                }
                3 => {
                    groups.push(number);
                    continue;
                }
                4 => {
                    if groups.pop() != Some(number) {
                        return Err(Malformed);
                    }
                    continue;
                }
                5 => {
                    bytes = bytes.get(4..).ok_or(Malformed)?;
                    Field::Other
                }
                _ => return Err(Malformed),
            };
            if groups.is_empty() {
                fields.push((number, field));
            }
        }
        if groups.is_empty() { Ok(Self(fields)) } else { Err(Malformed) }
    }

    pub(crate) fn fields(&self) -> impl Iterator<Item = (u32, Field<'a>)> {
        self.0.iter().copied()
    }

    /// The last string of that number.
    pub(crate) fn bytes(&self, number: u32) -> Option<&'a [u8]> {
        self.repeated(number).last()
    }

    /// The last integer of that number.
    pub(crate) fn varint(&self, number: u32) -> Option<u64> {
        self.fields()
            .filter_map(|(n, field)| match field {
                Field::Varint(value) if n == number => Some(value),
                _ => None,
            })
            .last()
    }

    /// All strings or messages of that number.
    pub(crate) fn repeated(&self, number: u32) -> impl Iterator<Item = &'a [u8]> {
        self.fields().filter_map(move |(n, field)| match field {
            Field::Bytes(bytes) if n == number => Some(bytes),
            _ => None,
        })
    }

    /// The message of that number. Several merge, and merging is joining their bytes.
    pub(crate) fn message(&self, number: u32) -> Option<Cow<'a, [u8]>> {
        let mut parts = self.repeated(number);
        let first = parts.next()?;
        let mut merged = Cow::Borrowed(first);
        for part in parts {
            merged.to_mut().extend_from_slice(part);
        }
        Some(merged)
    }

    /// Which of `numbers` occur as messages, each once.
    pub(crate) fn arms(&self, numbers: std::ops::RangeInclusive<u32>) -> Vec<u32> {
        let mut arms = Vec::new();
        for (number, field) in self.fields() {
            if matches!(field, Field::Bytes(_)) && numbers.contains(&number) && !arms.contains(&number) {
                arms.push(number);
            }
        }
        arms
    }
}

fn take_varint(bytes: &mut &[u8]) -> Result<u64, Malformed> {
    let mut value = 0;
    for shift in 0..10 {
        let (&byte, rest) = bytes.split_first().ok_or(Malformed)?;
        *bytes = rest;
        if shift == 9 && byte > 1 {
            return Err(Malformed);
        }
        value |= u64::from(byte & 0x7f) << (7 * shift);
        if byte < 0x80 {
            return Ok(value);
        }
    }
    Err(Malformed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_of_every_size() {
        for size in [0, 1, 127, 128, 16_383, 16_384, 3_000_000] {
            let mut out = BytesMut::new();
            put_message(&mut out, 3, |out| out.put_bytes(7, size));
            put_int(&mut out, 4, u64::MAX);
            let message = Message::parse(&out).unwrap_or_else(|_| panic!("{size}"));
            assert_eq!(message.bytes(3).map(<[u8]>::len), Some(size));
            assert_eq!(message.varint(4), Some(u64::MAX));
        }
    }

    #[test]
    fn malformed_bytes_are_refused() {
        for bytes in
            [&[0x0a][..], &[0x0a, 5, 1], &[0x00], &[0xff; 12], &[0x0b], &[0x0c], &[0x0b, 0x14], &[0x0f]]
        {
            assert!(Message::parse(bytes).is_err(), "{bytes:?}");
        }
        assert!(Message::parse(&[0x0b, 0x08, 1, 0x0c]).is_ok(), "a whole group is skipped");
    }
}
