//! Detects the framing of a stream by its first bytes.
//!
//! Content types are unreliable and files have none, so the bytes decide.

use serde::de::IgnoredAny;

use super::{
    ArrayDecoder, Framing,
    buffer::{is_blank, without_byte_order_mark},
};

/// The framing, one of `allowed`, of the stream that starts with `start`.
///
/// `start` should be the first bytes of the stream up to 64 KiB: a whole first line makes the result certain. A
/// leading byte order mark and white space are ignored. If the bytes fit none of `allowed`, the result is `None`, unless
/// `allowed` has a single entry. [`Framing::Text`] fits everything and is therefore only returned as the only choice.
///
/// ```
/// use agentwire_core::framing::{Framing, detect};
/// let allowed = [Framing::Sse, Framing::Lines, Framing::Array];
/// assert_eq!(detect(b"\n: hello\ndata: {}\n\n", &allowed), Some(Framing::Sse));
/// assert_eq!(detect(b"{\"type\":\"PING\"}\n", &allowed), Some(Framing::Lines));
/// assert_eq!(detect(b"{\n  \"type\": \"PING\"\n}\n", &allowed), Some(Framing::Array));
/// assert_eq!(detect(b"<html>", &allowed), None);
/// ```
#[must_use]
pub fn detect(start: &[u8], allowed: &[Framing]) -> Option<Framing> {
    if let [only] = allowed {
        return Some(*only);
    }
    candidates(start).iter().find(|framing| allowed.contains(framing)).copied()
}

/// The framings that fit `start`, likeliest first.
fn candidates(start: &[u8]) -> &'static [Framing] {
    // The first byte of a length below 16 MiB. No text starts like this.
    if start.first() == Some(&0) {
        return &[Framing::Prefixed];
    }
    let start = without_byte_order_mark(start);
    let blank = start.iter().position(|&byte| !is_blank(byte)).unwrap_or(start.len());
    let start = &start[blank..];
    match start.first() {
        Some(b'{') => object(start),
        Some(b'[') => array(start),
        _ if is_event_stream(start) => &[Framing::Sse],
        _ if is_coded(start) => &[Framing::Coded],
        _ => &[],
    }
}

/// A document spread over lines is one frame; otherwise each line is one.
fn object(start: &[u8]) -> &'static [Framing] {
    match Extent::of(start) {
        Extent::SeveralLines => &[Framing::Array],
        Extent::OneLine => &[Framing::Lines, Framing::Array],
        Extent::OneLineOfMore => &[Framing::Lines],
    }
}

/// Either the events are the elements of one array, or each line is an event that happens to be an array
/// (LangGraph's `["messages", {…}]`, and `[["subgraph"], "messages", {…}]`).
fn array(start: &[u8]) -> &'static [Framing] {
    match Extent::of(start) {
        Extent::SeveralLines => &[Framing::Array],
        // An array that holds all events is not followed by anything.
        Extent::OneLineOfMore => &[Framing::Lines],
        Extent::OneLine if is_tuple(start) => &[Framing::Lines, Framing::Array],
        Extent::OneLine => &[Framing::Array, Framing::Lines],
    }
}

/// The extent of the first JSON value of a stream.
enum Extent {
    /// It takes several lines.
    SeveralLines,
    /// It takes one line, with nothing after it so far.
    OneLine,
    /// It takes one line, and more follows.
    OneLineOfMore,
}

impl Extent {
    fn of(start: &[u8]) -> Self {
        let mut values = serde_json::Deserializer::from_slice(start).into_iter::<IgnoredAny>();
        let spread = match values.next() {
            Some(Ok(_)) => {
                let (value, rest) = start.split_at(values.byte_offset().min(start.len()));
                if !value.contains(&b'\n') && !rest.iter().copied().all(is_blank) {
                    return Self::OneLineOfMore;
                }
                value.contains(&b'\n')
            }
            Some(Err(error)) if error.is_eof() => start.contains(&b'\n'),
            // A malformed document is still a document, unless the second line starts like the first.
            Some(Err(error)) => error.line() > 1 && second_line(start).first() != start.first(),
            None => false,
        };
        if spread { Self::SeveralLines } else { Self::OneLine }
    }
}

fn second_line(start: &[u8]) -> &[u8] {
    start.splitn(3, |&byte| byte == b'\n').nth(1).unwrap_or_default()
}

/// Whether the first elements of an array are those of one event: a mode, or a namespace and a value that is no
/// namespace.
fn is_tuple(start: &[u8]) -> bool {
    let first = first_of(&start[1..]);
    if first != Some(b'[') {
        return !matches!(first, None | Some(b'{' | b']'));
    }
    let mut elements = ArrayDecoder::new(start.len());
    elements.push(start);
    let Some(Ok(namespace)) = elements.next_frame() else {
        return false;
    };
    let end = usize::try_from(namespace.offset).unwrap_or(usize::MAX).saturating_add(namespace.text().len());
    let mut rest = start.get(end..).unwrap_or_default().trim_ascii_start();
    rest = rest.strip_prefix(b",").unwrap_or_default();
    !matches!(first_of(rest), None | Some(b'['))
}

fn first_of(bytes: &[u8]) -> Option<u8> {
    bytes.iter().copied().find(|&byte| !is_blank(byte))
}

/// Whether the first line is one that only an event stream has.
fn is_event_stream(start: &[u8]) -> bool {
    let line = start.split(|byte| matches!(byte, b'\n' | b'\r')).next().unwrap_or_default();
    line.first() == Some(&b':')
        || [&b"data"[..], b"event", b"id", b"retry"]
            .iter()
            .filter_map(|name| line.strip_prefix(*name))
            .any(|rest| matches!(rest, [] | [b':', ..]))
}

/// Whether the first line is a short code, a colon and JSON.
fn is_coded(start: &[u8]) -> bool {
    let code = start.iter().take_while(|byte| byte.is_ascii_alphanumeric()).count();
    let Some((b':', value)) = start[code..].split_first() else {
        return false;
    };
    let blank = value.iter().take_while(|byte| matches!(byte, b' ' | b'\t')).count();
    let value = &value[blank..];
    matches!(code, 1..=2)
        && match value.first() {
            Some(b'{' | b'[' | b'"' | b'-' | b'0'..=b'9') => true,
            Some(_) => [&b"true"[..], b"false", b"null"].iter().any(|word| value.starts_with(word)),
            None => false,
        }
}

#[cfg(test)]
mod tests;
