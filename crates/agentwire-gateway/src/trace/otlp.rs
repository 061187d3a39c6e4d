//! The encoding of spans: the protobuf message `ExportTraceServiceRequest` of OTLP 1.

use super::{Span, SpanContext, Value};

/// The version of the semantic conventions that names and attributes follow.
const SCHEMA_URL: &str = "https://opentelemetry.io/schemas/1.38.0";

/// The request to export spans of one process.
pub(super) fn encode(service: &str, instance: &str, spans: &[Span]) -> Vec<u8> {
    let mut out = Message::default();
    out.message(1, |resource_spans| {
        resource_spans.message(1, |resource| {
            resource.attribute(1, "service.name", &service.into());
            resource.attribute(1, "service.version", &env!("CARGO_PKG_VERSION").into());
            resource.attribute(1, "service.instance.id", &instance.into());
        });
        resource_spans.message(2, |scope_spans| {
            scope_spans.message(1, |scope| {
                scope.text(1, "agentwire");
                scope.text(2, env!("CARGO_PKG_VERSION"));
            });
            for one in spans {
                scope_spans.message(2, |out| span(out, one));
            }
            scope_spans.text(3, SCHEMA_URL);
        });
        resource_spans.text(3, SCHEMA_URL);
    });
    out.0
}

fn span(out: &mut Message, span: &Span) {
    out.bytes(1, &span.context.trace);
    out.bytes(2, &span.context.span);
    if let Some(state) = &span.state {
        out.text(3, state.as_str());
    }
    if let Some(parent) = &span.parent {
        out.bytes(4, parent);
    }
    out.text(5, &span.name);
    out.number(6, span.kind as u64);
    out.fixed64(7, span.start);
    out.fixed64(8, span.end.max(span.start));
    for (key, value) in &span.attributes {
        out.attribute(9, key, value);
    }
    for SpanContext { trace, span, .. } in &span.links {
        out.message(13, |link| {
            link.bytes(1, trace);
            link.bytes(2, span);
        });
    }
    if span.is_error {
        out.message(15, |status| status.number(3, 2));
    }
    // The sampled flag, and the bits that say that the parent's origin is not known.
    out.fixed32(16, 1);
}

/// The spans that a collector refused: `partial_success { rejected_spans }` of `ExportTraceServiceResponse`.
pub(super) fn rejected(mut response: &[u8]) -> u64 {
    let mut rejected = 0_u64;
    while let Some((field, value)) = read_field(&mut response) {
        let (1, Field::Bytes(mut partial)) = (field, value) else { continue };
        while let Some((field, value)) = read_field(&mut partial) {
            if let (1, Field::Number(number)) = (field, value) {
                rejected = number.cast_signed().max(0).cast_unsigned();
            }
        }
    }
    rejected
}

enum Field<'b> {
    Number(u64),
    Bytes(&'b [u8]),
    Other,
}

/// The next field of a message and its number; `None` at the end, and from where on it is malformed.
fn read_field<'b>(message: &mut &'b [u8]) -> Option<(u64, Field<'b>)> {
    let tag = read_varint(message)?;
    let field = match tag & 7 {
        0 => Field::Number(read_varint(message)?),
        1 => read_bytes(message, 8).map(|_| Field::Other)?,
        2 => {
            let length = usize::try_from(read_varint(message)?).ok()?;
            Field::Bytes(read_bytes(message, length)?)
        }
        5 => read_bytes(message, 4).map(|_| Field::Other)?,
        _ => return None,
    };
    Some((tag >> 3, field))
}

fn read_bytes<'b>(message: &mut &'b [u8], length: usize) -> Option<&'b [u8]> {
    let (bytes, rest) = message.split_at_checked(length)?;
    *message = rest;
    Some(bytes)
}

fn read_varint(message: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let (byte, rest) = message.split_first()?;
        *message = rest;
        number |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

/// A protobuf message that is being written.
#[derive(Default)]
struct Message(Vec<u8>);

impl Message {
    fn varint(&mut self, mut number: u64) {
        while number >= 0x80 {
            #[expect(clippy::cast_possible_truncation, reason = "seven bits at a time")]
            self.0.push(number as u8 | 0x80);
            number >>= 7;
        }
        #[expect(clippy::cast_possible_truncation, reason = "below 0x80")]
        self.0.push(number as u8);
    }

    fn tag(&mut self, field: u64, wire: u64) {
        self.varint(field << 3 | wire);
    }

    fn number(&mut self, field: u64, number: u64) {
        self.tag(field, 0);
        self.varint(number);
    }

    fn fixed64(&mut self, field: u64, number: u64) {
        self.tag(field, 1);
        self.0.extend(number.to_le_bytes());
    }

    fn fixed32(&mut self, field: u64, number: u32) {
        self.tag(field, 5);
        self.0.extend(number.to_le_bytes());
    }

    fn bytes(&mut self, field: u64, bytes: &[u8]) {
        self.tag(field, 2);
        self.varint(bytes.len() as u64);
        self.0.extend(bytes);
    }

    fn text(&mut self, field: u64, text: &str) {
        self.bytes(field, text.as_bytes());
    }

    fn message(&mut self, field: u64, write: impl FnOnce(&mut Self)) {
        let mut inner = Self::default();
        write(&mut inner);
        self.bytes(field, &inner.0);
    }

    fn attribute(&mut self, field: u64, key: &str, value: &Value) {
        self.message(field, |out| {
            out.text(1, key);
            out.message(2, |out| out.value(value));
        });
    }

    fn value(&mut self, value: &Value) {
        match value {
            Value::Text(text) => self.text(1, text),
            Value::Int(number) => self.number(3, number.cast_unsigned()),
            Value::Float(number) => self.fixed64(4, number.to_bits()),
            Value::Texts(texts) => self.message(5, |list| {
                texts.iter().for_each(|text| list.message(1, |out| out.text(1, text)));
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_varints() {
        let mut message = Message::default();
        message.number(1, 300);
        message.number(16, 1);
        message.value(&Value::Int(-1));
        assert_eq!(message.0[..6], [0x08, 0xac, 0x02, 0x80, 0x01, 0x01]);
        assert_eq!(message.0[6..], [0x18, 255, 255, 255, 255, 255, 255, 255, 255, 255, 1]);
    }

    #[test]
    fn messages_have_their_length() {
        let mut message = Message::default();
        message.attribute(9, "k", &Value::Texts(vec!["ab".into()]));
        // 9: { 1: "k", 2: { 5: { 1: { 1: "ab" } } } }
        let expected = b"\x4a\x0d\x0a\x01k\x12\x08\x2a\x06\x0a\x04\x0a\x02ab";
        assert_eq!(message.0, expected);
    }

    #[test]
    fn refused_spans_are_counted() {
        let response = |spans: i64| {
            let mut message = Message::default();
            message.fixed64(7, 1);
            message.message(1, |partial| {
                partial.number(1, spans.cast_unsigned());
                partial.text(2, "too old");
                partial.fixed32(9, 1);
            });
            message.0
        };
        assert_eq!(rejected(&response(300)), 300);
        assert_eq!(rejected(&response(0)), 0);
        assert_eq!(rejected(&response(-1)), 0);
        let whole = response(5);
        for end in 0..whole.len() {
            // Cut anywhere: no panic, and never another number.
            assert!(matches!(rejected(&whole[..end]), 0 | 5));
        }
        for other in [&b""[..], b"{}", b"\x0a", b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", b"<html>"] {
            assert_eq!(rejected(other), 0);
        }
    }
}
