//! Files and citations beside the text.

use std::borrow::Cow;

use serde_json::value::RawValue;

use crate::{
    event::{File, MediaKind, MessageId, PartSource, Source},
    json::{Fields, Object, Path, ReadError, text},
    tally::Tally,
};

/// The string of a member, if it has one.
pub(super) fn string<'a>(
    fields: &mut Fields<'a, '_>,
    key: &str,
    tally: &mut Tally,
) -> Result<Option<Cow<'a, str>>, ReadError> {
    let path = fields.path();
    match fields.take_unless_null(key) {
        Some(raw) => text(raw, Path::Key(&path, key), tally).map(Some),
        None => Ok(None),
    }
}

/// The elements of a member, if it has some.
pub(super) fn list<'a>(
    fields: &mut Fields<'a, '_>,
    key: &str,
    each: impl FnMut(&'a RawValue, Path<'_>) -> Result<(), ReadError>,
) -> Result<bool, ReadError> {
    if fields.peek(key).is_some_and(|raw| raw.get() == "null") {
        fields.take(key);
    }
    fields.array(key, each)
}

/// An image: `{"type": "image_url", "image_url": {"url": …}}`, or the URL in the place of the inner object.
pub(super) fn image(
    raw: &RawValue,
    path: Path<'_>,
    tally: &mut Tally,
) -> Result<Option<PartSource>, ReadError> {
    let mut fields = Fields::of(raw, path)?;
    let inner = Path::Key(&path, "image_url");
    let url = match fields.take_unless_null("image_url") {
        Some(raw) if raw.get().starts_with('"') => Some(text(raw, inner, tally)?),
        Some(raw) => string(&mut Fields::of(raw, inner)?, "url", tally)?,
        None => None,
    };
    Ok(url.filter(|url| !url.is_empty()).map(|url| at(&url, "image")))
}

/// What an address says: the bytes themselves, or where they are.
fn at(url: &str, kind: &str) -> PartSource {
    let inline = url.strip_prefix("data:").and_then(|data| data.split_once(";base64,"));
    match inline {
        Some((mime, data)) => {
            let mime = mime.split(';').next().unwrap_or_default();
            let mime_type = if mime.is_empty() { format!("{kind}/*") } else { mime.to_owned() };
            PartSource::Data { value: data.into(), mime_type: mime_type.into() }
        }
        None => PartSource::Url { value: url.into(), mime_type: None },
    }
}

/// A file of a message.
pub(super) fn file(message: &MessageId, number: u32, kind: MediaKind, source: PartSource) -> File {
    File { id: part_id(message, "file", number), message: Some(message.clone()), kind, source, name: None }
}

/// Sound in Base64. A response does not say what it is in; the request did, and so do the first bytes. What has
/// no head is what a stream can only be asked for: samples of 16 bits.
pub(super) fn sound(data: String) -> PartSource {
    let mime_type = match data.as_bytes() {
        [b'U', b'k', b'l', b'G', ..] => "audio/wav",
        [b'S', b'U', b'Q', b'z', ..] | [b'/', b'/', ..] => "audio/mpeg",
        [b'T', b'2', b'd', b'n', ..] => "audio/ogg",
        [b'Z', b'k', b'x', b'h', ..] => "audio/flac",
        _ => "audio/pcm",
    };
    PartSource::Data { value: data.into(), mime_type: mime_type.into() }
}

/// A citation, without its id and message. Known are OpenAI's annotations (`url_citation`, `file_citation`), the
/// plain addresses of `citations`, and the objects of `search_results`.
pub(super) fn source(raw: &RawValue, path: Path<'_>, tally: &mut Tally) -> Result<Option<Source>, ReadError> {
    let mut found = Source {
        id: "".into(),
        message: None,
        url: None,
        title: None,
        media_type: None,
        filename: None,
        detail: None,
    };
    if raw.get().starts_with('"') {
        let url = text(raw, path, tally)?;
        found.url = Some(url.as_ref().into());
        return Ok((!url.is_empty()).then_some(found));
    }
    let mut outer = Fields::of(raw, path)?;
    let kind = string(&mut outer, "type", tally)?;
    let inner = kind.as_deref().and_then(|kind| Some((kind, outer.take_unless_null(kind)?)));
    let inner_path = inner.map(|(kind, _)| Path::Key(&path, kind));
    let mut fields = match (inner, inner_path) {
        (Some((_, raw)), Some(path)) => Fields::of(raw, path)?,
        _ => outer,
    };
    let mut boxed = |key: &str| -> Result<Option<Box<str>>, ReadError> {
        Ok(string(&mut fields, key, tally)?.filter(|text| !text.is_empty()).map(Into::into))
    };
    found.url = boxed("url")?;
    found.title = boxed("title")?;
    found.filename = match boxed("filename")? {
        Some(name) => Some(name),
        None if found.url.is_none() => boxed("name")?,
        None => None,
    };
    // Spans, snippets, dates and file ids are the provider's.
    let rest = fields.rest("citation", &mut Tally::default())?;
    let is_named = found.url.is_some() || found.filename.is_some();
    let file_id = rest.as_ref().and_then(|rest: &Object| rest.get_str("file_id"));
    found.detail = rest;
    if !is_named && file_id.is_none() {
        tally.note("citation without an address", kind.as_deref().unwrap_or("(no type)"));
        return Ok(None);
    }
    Ok(Some(found))
}

/// The id of something that belongs to a message.
pub(super) fn part_id<I: From<String>>(id: &str, what: &str, number: u32) -> I {
    I::from(match number {
        0 => format!("{id}:{what}"),
        number => format!("{id}:{what}:{number}"),
    })
}
