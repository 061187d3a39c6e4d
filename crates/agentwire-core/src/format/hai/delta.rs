//! What BUSINESS_DATA_CONTENT carries, in the three shapes that it has on the wire.
//!
//! The standard shows plain text and, in its builder, an object; its reference server sends the object as a
//! string, because the reference client joins the strings of a message, puts a comma between `}` and `{` and
//! parses the whole as a list. That client would also put a comma into text that holds `}{`, so it is never
//! written that way.

use std::borrow::Cow;

use bytes::{BufMut, BytesMut};
use serde_json::value::RawValue;

use super::{
    fields::{block_id, some_json},
    nesting::compose,
};
use crate::{
    json::{Fields, Json, Object, ObjectWriter, Path, ReadError, json, text},
    tally::Tally,
};

/// The shape in which a writer sends its deltas.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    /// A JSON document as a string.
    JsonString,
    /// A JSON object.
    Object,
    /// Plain text; what is not text goes another way.
    Text,
}

/// What one delta says.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Output<'a> {
    /// Text appends to the message.
    Text {
        content: Cow<'a, str>,
        /// Members of the output besides `type` and `content`.
        more: Option<Object>,
    },
    /// Reasoning appends to the thinking box.
    Thinking {
        content: Cow<'a, str>,
        elapsed: Option<Json>,
        /// False when the thinking is over.
        thinking: Option<bool>,
        collapse: Option<Json>,
        /// Members of `data` besides these.
        data: Option<Object>,
        /// Members of the output besides `type` and `data`.
        more: Option<Object>,
    },
    /// Anything else: drawn as it is.
    Block(Object),
}

/// An output and where it goes.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Delta<'a> {
    pub(crate) output: Output<'a>,
    pub(crate) place: Place,
}

/// Where an output goes and how it is drawn.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Place {
    pub(crate) layout: Option<Json>,
    pub(crate) block_id: Option<Box<str>>,
    pub(crate) style: Option<Json>,
    /// Members of the delta that are none of these and not the output.
    pub(crate) more: Option<Object>,
}

impl Place {
    /// What this place does not say itself, from `other`.
    pub(crate) fn or(mut self, other: &Self) -> Self {
        self.layout = self.layout.or_else(|| other.layout.clone());
        self.block_id = self.block_id.or_else(|| other.block_id.clone());
        self.style = self.style.or_else(|| other.style.clone());
        self
    }
}

/// Reads the member `delta` of BUSINESS_DATA_CONTENT.
pub(crate) fn read<'a>(
    raw: &'a RawValue,
    path: Path<'_>,
    tally: &mut Tally,
) -> Result<Vec<Delta<'a>>, ReadError> {
    match raw.get().as_bytes().first() {
        Some(b'{') => Ok(vec![structured(raw, path, tally)?]),
        Some(b'"') => {
            let content = text(raw, path, tally)?;
            if let Some(deltas) = deltas(&content, tally) {
                return Ok(deltas);
            }
            Ok(vec![Delta { output: Output::Text { content, more: None }, place: Place::default() }])
        }
        _ => Err(path.expected("a string or an object", raw)),
    }
}

/// The structured deltas that a string consists of, if it consists of nothing else. A model may well write JSON
/// of its own, so whatever is not quite a delta is text.
pub(crate) fn deltas(content: &str, tally: &mut Tally) -> Option<Vec<Delta<'static>>> {
    if !content.trim_start().starts_with('{') {
        return None;
    }
    let mut deltas = Vec::new();
    let mut noticed = Tally::default();
    for document in serde_json::Deserializer::from_str(content).into_iter::<&RawValue>() {
        deltas.push(enveloped(document.ok()?, &mut noticed)?);
    }
    for (what, name, count) in noticed.iter() {
        tally.add(what, name, count.times);
    }
    (!deltas.is_empty()).then_some(deltas)
}

/// The structured delta that a text is.
pub(crate) fn document(text: &str, tally: &mut Tally) -> Option<Delta<'static>> {
    enveloped(serde_json::from_str(text).ok()?, tally)
}

fn enveloped(document: &RawValue, tally: &mut Tally) -> Option<Delta<'static>> {
    Fields::of(document, Path::Root).ok()?.peek("output")?;
    Some(structured(document, Path::Root, tally).ok()?.into_owned())
}

/// Reads one structured delta.
fn structured<'a>(raw: &'a RawValue, path: Path<'_>, tally: &mut Tally) -> Result<Delta<'a>, ReadError> {
    let mut f = Fields::of(raw, path)?;
    let Some(output) = f.take("output") else {
        // An output without its envelope.
        tally.note("old shape", "delta without `output`");
        return Ok(Delta { output: output_of(raw, path, tally)?, place: Place::default() });
    };
    let output_path = Path::Key(&path, "output");
    let output = match output.get().as_bytes().first() {
        Some(b'"') => Output::Text { content: text(output, output_path, tally)?, more: None },
        _ => output_of(output, output_path, tally)?,
    };
    let place = Place {
        layout: some_json(&mut f, "layout", tally)?,
        block_id: block_id(&mut f, tally)?,
        style: some_json(&mut f, "style", tally)?,
        more: f.rest("delta", tally)?,
    };
    Ok(Delta { output, place })
}

fn output_of<'a>(raw: &'a RawValue, path: Path<'_>, tally: &mut Tally) -> Result<Output<'a>, ReadError> {
    let mut f = Fields::of(raw, path)?;
    let kind = f.peek("type").and_then(|raw| text(raw, path, &mut Tally::default()).ok());
    match kind.as_deref() {
        Some("text") if is_string(&f, "content") => {
            f.take("type");
            let content = f.need_str("content", tally)?;
            return Ok(Output::Text { content, more: f.rest("output", tally)? });
        }
        Some(name @ ("thinking" | "think")) => {
            if let Some(data) = f.peek("data")
                && let Ok(mut inner) = Fields::of(data, path)
                && is_string(&inner, "content")
                && inner.peek("thinking").is_none_or(|raw| matches!(raw.get(), "true" | "false" | "null"))
            {
                if name == "think" {
                    tally.note("old shape", "output `think` for `thinking`");
                }
                f.take("type");
                f.take("data");
                return Ok(Output::Thinking {
                    content: inner.need_str("content", tally)?,
                    elapsed: some_json(&mut inner, "elapsed", tally)?,
                    thinking: inner.take_unless_null("thinking").map(|raw| raw.get() == "true"),
                    collapse: some_json(&mut inner, "collapse", tally)?,
                    data: inner.rest("thinking", tally)?,
                    more: f.rest("output", tally)?,
                });
            }
        }
        _ => {}
    }
    let object = json(raw, path, tally)?.into_object();
    object.map(Output::Block).ok_or_else(|| path.expected("an object", raw))
}

/// Whether the output is drawn as it is, and is neither text nor thinking.
pub(crate) fn is_block(output: &Object) -> bool {
    let raw: Result<&RawValue, _> = serde_json::from_str(output.get());
    let read = raw.map(|raw| output_of(raw, Path::Root, &mut Tally::default()));
    matches!(read, Ok(Ok(Output::Block(_))))
}

fn is_string(f: &Fields<'_, '_>, key: &str) -> bool {
    f.peek(key).is_some_and(|raw| raw.get().starts_with('"'))
}

impl Output<'_> {
    /// The output as it was on the wire.
    pub(crate) fn to_object(&self) -> Object {
        match self {
            Self::Text { content, more } => text_output(content, more.as_ref()),
            Self::Thinking { content, elapsed, thinking, collapse, data, more } => {
                let (elapsed, collapse) = (elapsed.clone(), collapse.clone());
                thinking_output(content, elapsed, *thinking, collapse, data.as_ref(), more.as_ref())
            }
            Self::Block(object) => object.clone(),
        }
    }
}

impl Delta<'_> {
    pub(crate) fn into_owned(self) -> Delta<'static> {
        let own = |content: Cow<'_, str>| Cow::Owned(content.into_owned());
        let output = match self.output {
            Output::Text { content, more } => Output::Text { content: own(content), more },
            Output::Thinking { content, elapsed, thinking, collapse, data, more } => {
                Output::Thinking { content: own(content), elapsed, thinking, collapse, data, more }
            }
            Output::Block(object) => Output::Block(object),
        };
        Delta { output, place: self.place }
    }
}

/// Writes a structured delta: the output in its envelope.
pub(crate) fn write(w: &mut ObjectWriter<'_>, output: &Object, place: &Place) {
    w.json("output", output.as_json())
        .opt_json("layout", place.layout.as_ref())
        .opt_str("blockId", place.block_id.as_deref())
        .opt_json("style", place.style.as_ref());
    for (key, value) in place.more.iter().flat_map(Object::entries) {
        w.entry(&key, &value);
    }
}

/// A text output.
pub(crate) fn text_output(content: &str, more: Option<&Object>) -> Object {
    let more = more.map(Object::entries).unwrap_or_default();
    let own = [("type", Json::string("text")), ("content", Json::string(content))];
    compose(own.into_iter().chain(more.iter().map(|(key, value)| (key.as_str(), value.clone()))))
}

/// A thinking output. What is absent is left out.
pub(crate) fn thinking_output(
    content: &str,
    elapsed: Option<Json>,
    thinking: Option<bool>,
    collapse: Option<Json>,
    data: Option<&Object>,
    more: Option<&Object>,
) -> Object {
    let named = [
        ("content", Some(Json::string(content))),
        ("elapsed", elapsed),
        ("thinking", thinking.map(|thinking| Json::from(serde_json::Value::from(thinking)))),
        ("collapse", collapse),
    ];
    let (data, more) =
        (data.map(Object::entries).unwrap_or_default(), more.map(Object::entries).unwrap_or_default());
    let named = named.into_iter().filter_map(|(key, value)| Some((key, value?)));
    let data = compose(named.chain(data.iter().map(|(key, value)| (key.as_str(), value.clone()))));
    let own = [("type", Json::string("thinking")), ("data", data.into())];
    compose(own.into_iter().chain(more.iter().map(|(key, value)| (key.as_str(), value.clone()))))
}

/// `document` without `}{`, which can stand only inside its strings.
pub(crate) fn without_hazard(document: &str) -> Cow<'_, str> {
    if memchr::memmem::find(document.as_bytes(), b"}{").is_none() {
        return Cow::Borrowed(document);
    }
    Cow::Owned(document.replace("}{", "}\\u007b"))
}

/// How a byte of text appears in a JSON string inside a JSON string; empty if as it is.
const TWICE: [&[u8]; 256] = {
    let mut table: [&[u8]; 256] = [b""; 256];
    let mut byte = 0;
    while byte < 0x20 {
        table[byte] = b"u";
        byte += 1;
    }
    table[0x08] = b"\\\\b";
    table[0x09] = b"\\\\t";
    table[0x0a] = b"\\\\n";
    table[0x0c] = b"\\\\f";
    table[0x0d] = b"\\\\r";
    table[b'"' as usize] = b"\\\\\\\"";
    table[b'\\' as usize] = b"\\\\\\\\";
    // Only behind `}`; looked at where it occurs.
    table[b'{' as usize] = b"{";
    table
};

/// Appends `content` as the inside of a JSON string that is itself inside one, without `}{`.
///
/// This is what every token of an answer goes through in the default profile, so it is done in one pass.
pub(crate) fn escape_twice(out: &mut BytesMut, content: &str) {
    let bytes = content.as_bytes();
    let mut kept = 0;
    for (at, &byte) in bytes.iter().enumerate() {
        let escaped = TWICE[usize::from(byte)];
        if escaped.is_empty() {
            continue;
        }
        match byte {
            b'{' if at == 0 || bytes[at - 1] != b'}' => continue,
            b'{' => {
                out.put_slice(&bytes[kept..at]);
                out.put_slice(b"\\\\u007b");
            }
            _ if escaped == b"u" => {
                out.put_slice(&bytes[kept..at]);
                const HEX: &[u8; 16] = b"0123456789abcdef";
                out.put_slice(b"\\\\u00");
                out.put_u8(HEX[usize::from(byte >> 4)]);
                out.put_u8(HEX[usize::from(byte & 15)]);
            }
            _ => {
                out.put_slice(&bytes[kept..at]);
                out.put_slice(escaped);
            }
        }
        kept = at + 1;
    }
    out.put_slice(&bytes[kept..]);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read_one(delta: &str) -> Vec<Delta<'static>> {
        let raw = RawValue::from_string(delta.to_owned()).unwrap();
        let read = read(&raw, Path::Root, &mut Tally::default()).unwrap();
        read.into_iter().map(Delta::into_owned).collect()
    }

    #[test]
    fn the_three_shapes_are_one() {
        let object = read_one(r#"{"output":{"type":"text","content":"a"}}"#);
        assert_eq!(object, read_one(r#""{\"output\":{\"type\":\"text\",\"content\":\"a\"}}""#));
        assert_eq!(object, read_one(r#""a""#));
    }

    #[test]
    fn joined_documents_are_told_apart() {
        let joined =
            r#""{\"output\":{\"type\":\"text\",\"content\":\"a}{b\"}} {\"output\":{\"type\":\"icon\"}}""#;
        let read = read_one(joined);
        assert_eq!(read.len(), 2);
        assert_eq!(read[0].output, Output::Text { content: "a}{b".into(), more: None });
    }

    #[test]
    fn what_only_looks_like_a_document_is_text() {
        for text in [r#""{\"a\":1}""#, r#""{\"output\":1} and more""#, r#""{""#, r#""""#] {
            assert!(matches!(&read_one(text)[..], [Delta { output: Output::Text { .. }, .. }]), "{text}");
        }
    }

    proptest! {
        #[test]
        fn twice_escaped_text_comes_back(content in "[\\x00-\\x7f]{0,40}|\\PC{0,20}|[{}\"\\\\]{0,20}") {
            let mut out = BytesMut::from(&b"\"{\\\"c\\\":\\\""[..]);
            escape_twice(&mut out, &content);
            out.put_slice(b"\\\"}\"");
            let document: String = serde_json::from_slice(&out).unwrap();
            prop_assert!(document.find("}{").is_none(), "{}", document);
            let value: serde_json::Value = serde_json::from_str(&document).unwrap();
            prop_assert_eq!(&value["c"], &serde_json::Value::from(content.clone()));
            let plain = serde_json::json!({ "c": content }).to_string();
            prop_assert_eq!(without_hazard(&plain), document);
        }
    }
}
