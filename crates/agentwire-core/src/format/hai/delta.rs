//! The delta of BUSINESS_DATA_CONTENT, in its three wire shapes.
//!
//! The standard shows plain text and, in its builder, an object; its reference server sends the object as a
//! string, because the reference client joins the strings of a message, inserts a comma between `}` and `{` and
//! parses the result as a list. That client would also insert a comma into text that contains `}{`, so `{` is
//! escaped there.

use std::borrow::Cow;

use bytes::{BufMut, BytesMut};
use serde_json::value::RawValue;

use super::{
    derived_ids::PlacementRef,
    fields::{block_id, some_json},
    nesting::compose,
};
use crate::{
    json::{Fields, Json, Object, ObjectWriter, Path, ReadResult, json, text},
    tally::Tally,
};

/// The wire shape of written deltas.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DeltaShape {
    /// A JSON document as a string.
    JsonString,
    /// A JSON object.
    Object,
    /// Plain text; other outputs are written as CUSTOM events.
    Text,
}

/// The output in one delta.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum DeltaOutput<'a> {
    /// Appends text to the message.
    Text {
        content: Cow<'a, str>,
        /// Other members of the output.
        more: Option<Object>,
    },
    /// Appends reasoning to the thinking box.
    Thinking {
        content: Cow<'a, str>,
        elapsed: Option<Json>,
        /// False in the last output of the thinking span.
        thinking: Option<bool>,
        collapse: Option<Json>,
        /// Other members of `data`.
        data: Option<Object>,
        /// Other members of the output.
        more: Option<Object>,
    },
    /// Any other output.
    Block(Object),
}

/// An output and its placement.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct OutputDelta<'a> {
    pub(crate) output: DeltaOutput<'a>,
    pub(crate) placement: Placement,
}

/// The position and style of an output.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Placement {
    pub(crate) layout: Option<Json>,
    pub(crate) block_id: Option<Box<str>>,
    pub(crate) style: Option<Json>,
    /// Other members of the delta, except the output.
    pub(crate) more: Option<Object>,
}

impl Placement {
    /// The values that derived ids depend on.
    pub(crate) fn by_ref(&self) -> PlacementRef<'_> {
        PlacementRef {
            layout: self.layout.as_ref(),
            block_id: self.block_id.as_deref(),
            style: self.style.as_ref(),
        }
    }

    /// Fills absent values from `other`.
    pub(crate) fn or(mut self, other: &Self) -> Self {
        self.layout = self.layout.or_else(|| other.layout.clone());
        self.block_id = self.block_id.or_else(|| other.block_id.clone());
        self.style = self.style.or_else(|| other.style.clone());
        self
    }
}

/// Reads the member `delta` of BUSINESS_DATA_CONTENT.
pub(crate) fn read_delta<'a>(
    raw: &'a RawValue,
    path: Path<'_>,
    tally: &mut Tally,
) -> ReadResult<Vec<OutputDelta<'a>>> {
    match raw.get().as_bytes().first() {
        Some(b'{') => Ok(vec![read_structured(raw, path, tally)?]),
        Some(b'"') => {
            let content = text(raw, path, tally)?;
            if let Some(deltas) = parse_documents(&content, tally) {
                return Ok(deltas);
            }
            Ok(vec![OutputDelta {
                output: DeltaOutput::Text { content, more: None },
                placement: Placement::default(),
            }])
        }
        _ => Err(path.expected("a string or an object", raw)),
    }
}

/// The structured deltas in a string, if it contains nothing else. A model may write JSON of its own, so a string
/// that is not exactly a sequence of deltas is text.
pub(crate) fn parse_documents(content: &str, tally: &mut Tally) -> Option<Vec<OutputDelta<'static>>> {
    if !content.trim_start().starts_with('{') {
        return None;
    }
    let mut deltas = Vec::new();
    let mut noted = Tally::default();
    for document in serde_json::Deserializer::from_str(content).into_iter::<&RawValue>() {
        deltas.push(parse_enveloped(document.ok()?, &mut noted)?);
    }
    for (category, name, count) in noted.iter() {
        tally.add(category, name, count.times);
    }
    (!deltas.is_empty()).then_some(deltas)
}

/// The structured delta in `text`.
pub(crate) fn parse_document(text: &str, tally: &mut Tally) -> Option<OutputDelta<'static>> {
    parse_enveloped(serde_json::from_str(text).ok()?, tally)
}

fn parse_enveloped(document: &RawValue, tally: &mut Tally) -> Option<OutputDelta<'static>> {
    Fields::of(document, Path::Root).ok()?.peek("output")?;
    Some(read_structured(document, Path::Root, tally).ok()?.into_owned())
}

/// Reads one structured delta.
fn read_structured<'a>(raw: &'a RawValue, path: Path<'_>, tally: &mut Tally) -> ReadResult<OutputDelta<'a>> {
    let mut f = Fields::of(raw, path)?;
    let Some(output) = f.take("output") else {
        // An output without its envelope.
        tally.note("old shape", "delta without `output`");
        return Ok(OutputDelta { output: read_output(raw, path, tally)?, placement: Placement::default() });
    };
    let output_path = Path::Key(&path, "output");
    let output = match output.get().as_bytes().first() {
        Some(b'"') => DeltaOutput::Text { content: text(output, output_path, tally)?, more: None },
        _ => read_output(output, output_path, tally)?,
    };
    let placement = Placement {
        layout: some_json(&mut f, "layout", tally)?,
        block_id: block_id(&mut f, tally)?,
        style: some_json(&mut f, "style", tally)?,
        more: f.rest("delta", tally)?,
    };
    Ok(OutputDelta { output, placement })
}

fn read_output<'a>(raw: &'a RawValue, path: Path<'_>, tally: &mut Tally) -> ReadResult<DeltaOutput<'a>> {
    let mut f = Fields::of(raw, path)?;
    let kind = f.peek("type").and_then(|raw| text(raw, path, &mut Tally::default()).ok());
    match kind.as_deref() {
        Some("text") if is_string(&f, "content") => {
            f.take("type");
            let content = f.need_str("content", tally)?;
            return Ok(DeltaOutput::Text { content, more: f.rest("output", tally)? });
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
                return Ok(DeltaOutput::Thinking {
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
    object.map(DeltaOutput::Block).ok_or_else(|| path.expected("an object", raw))
}

/// Whether the output is neither text nor thinking.
pub(crate) fn is_block(output: &Object) -> bool {
    let raw: Result<&RawValue, _> = serde_json::from_str(output.get());
    let read = raw.map(|raw| read_output(raw, Path::Root, &mut Tally::default()));
    matches!(read, Ok(Ok(DeltaOutput::Block(_))))
}

fn is_string(f: &Fields<'_, '_>, key: &str) -> bool {
    f.peek(key).is_some_and(|raw| raw.get().starts_with('"'))
}

impl DeltaOutput<'_> {
    /// The output as JSON.
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

impl OutputDelta<'_> {
    pub(crate) fn into_owned(self) -> OutputDelta<'static> {
        let to_owned = |content: Cow<'_, str>| Cow::Owned(content.into_owned());
        let output = match self.output {
            DeltaOutput::Text { content, more } => DeltaOutput::Text { content: to_owned(content), more },
            DeltaOutput::Thinking { content, elapsed, thinking, collapse, data, more } => {
                DeltaOutput::Thinking { content: to_owned(content), elapsed, thinking, collapse, data, more }
            }
            DeltaOutput::Block(object) => DeltaOutput::Block(object),
        };
        OutputDelta { output, placement: self.placement }
    }
}

/// Writes a structured delta: the output in its envelope.
pub(crate) fn write_delta(w: &mut ObjectWriter<'_>, output: &Object, placement: &Placement) {
    w.json("output", output.as_json())
        .opt_json("layout", placement.layout.as_ref())
        .opt_str("blockId", placement.block_id.as_deref())
        .opt_json("style", placement.style.as_ref());
    for (key, value) in placement.more.iter().flat_map(Object::entries) {
        w.entry(&key, &value);
    }
}

/// A text output.
pub(crate) fn text_output(content: &str, more: Option<&Object>) -> Object {
    let more = more.map(Object::entries).unwrap_or_default();
    let members = [("type", Json::string("text")), ("content", Json::string(content))];
    compose(members.into_iter().chain(more.iter().map(|(key, value)| (key.as_str(), value.clone()))))
}

/// A thinking output; absent values are left out.
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
    let members = [("type", Json::string("thinking")), ("data", data.into())];
    compose(members.into_iter().chain(more.iter().map(|(key, value)| (key.as_str(), value.clone()))))
}

/// `document` with every `}{` escaped; the pair occurs only inside its strings.
pub(crate) fn escape_brace_pairs(document: &str) -> Cow<'_, str> {
    if memchr::memmem::find(document.as_bytes(), b"}{").is_none() {
        return Cow::Borrowed(document);
    }
    Cow::Owned(document.replace("}{", "}\\u007b"))
}

/// The escape of a byte in a JSON string inside a JSON string; empty if the byte needs none.
const DOUBLE_ESCAPES: [&[u8]; 256] = {
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
    // Escaped only after `}`, which `escape_twice` tests.
    table[b'{' as usize] = b"{";
    table
};

/// Appends `content` escaped for a JSON string inside a JSON string, with `}{` escaped.
///
/// Every text delta of the default profile is written by this function, so it makes a single pass.
pub(crate) fn escape_twice(out: &mut BytesMut, content: &str) {
    let bytes = content.as_bytes();
    let mut kept = 0;
    for (at, &byte) in bytes.iter().enumerate() {
        let escaped = DOUBLE_ESCAPES[usize::from(byte)];
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

    fn read_one(delta: &str) -> Vec<OutputDelta<'static>> {
        let raw = RawValue::from_string(delta.to_owned()).unwrap();
        let read = read_delta(&raw, Path::Root, &mut Tally::default()).unwrap();
        read.into_iter().map(OutputDelta::into_owned).collect()
    }

    #[test]
    fn three_shapes_read_as_the_same_output() {
        let object = read_one(r#"{"output":{"type":"text","content":"a"}}"#);
        assert_eq!(object, read_one(r#""{\"output\":{\"type\":\"text\",\"content\":\"a\"}}""#));
        assert_eq!(object, read_one(r#""a""#));
    }

    #[test]
    fn joined_documents_are_separated() {
        let joined =
            r#""{\"output\":{\"type\":\"text\",\"content\":\"a}{b\"}} {\"output\":{\"type\":\"icon\"}}""#;
        let read = read_one(joined);
        assert_eq!(read.len(), 2);
        assert_eq!(read[0].output, DeltaOutput::Text { content: "a}{b".into(), more: None });
    }

    #[test]
    fn incomplete_document_is_text() {
        for text in [r#""{\"a\":1}""#, r#""{\"output\":1} and more""#, r#""{""#, r#""""#] {
            assert!(
                matches!(&read_one(text)[..], [OutputDelta { output: DeltaOutput::Text { .. }, .. }]),
                "{text}"
            );
        }
    }

    proptest! {
        #[test]
        fn text_escaped_twice_round_trips(content in "[\\x00-\\x7f]{0,40}|\\PC{0,20}|[{}\"\\\\]{0,20}") {
            let mut out = BytesMut::from(&b"\"{\\\"c\\\":\\\""[..]);
            escape_twice(&mut out, &content);
            out.put_slice(b"\\\"}\"");
            let document: String = serde_json::from_slice(&out).unwrap();
            prop_assert!(document.find("}{").is_none(), "{}", document);
            let value: serde_json::Value = serde_json::from_str(&document).unwrap();
            prop_assert_eq!(&value["c"], &serde_json::Value::from(content.clone()));
            let plain = serde_json::json!({ "c": content }).to_string();
            prop_assert_eq!(escape_brace_pairs(&plain), document);
        }
    }
}
