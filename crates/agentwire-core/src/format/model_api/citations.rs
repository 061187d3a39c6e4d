//! Citations of a response.

use serde_json::value::RawValue;

use super::fields::string;
use crate::{
    event::Citation,
    json::{Fields, Object, Path, ReadResult, text},
    tally::Tally,
};

/// A citation, without id and message. Supported are OpenAI's annotations (`url_citation`, `file_citation`), the
/// plain addresses of `citations`, and the objects of `search_results`.
pub(in crate::format) fn read_citation(
    raw: &RawValue,
    path: Path<'_>,
    tally: &mut Tally,
) -> ReadResult<Option<Citation>> {
    let mut citation = Citation {
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
        citation.url = Some(url.as_ref().into());
        return Ok((!url.is_empty()).then_some(citation));
    }
    let mut outer = Fields::of(raw, path)?;
    let kind = string(&mut outer, "type", tally)?;
    let inner = kind.as_deref().and_then(|kind| Some((kind, outer.take_unless_null(kind)?)));
    let inner_path = inner.map(|(kind, _)| Path::Key(&path, kind));
    let mut fields = match (inner, inner_path) {
        (Some((_, raw)), Some(path)) => Fields::of(raw, path)?,
        _ => outer,
    };
    let mut boxed = |key: &str| -> ReadResult<Option<Box<str>>> {
        Ok(string(&mut fields, key, tally)?.filter(|text| !text.is_empty()).map(Into::into))
    };
    citation.url = boxed("url")?;
    citation.title = boxed("title")?;
    citation.filename = match boxed("filename")? {
        Some(name) => Some(name),
        None if citation.url.is_none() => boxed("name")?,
        None => None,
    };
    // Spans, snippets, dates and file ids stay in the provider's form.
    let rest = fields.rest("citation", &mut Tally::default())?;
    let is_named = citation.url.is_some() || citation.filename.is_some();
    let file_id = rest.as_ref().and_then(|rest: &Object| rest.get_str("file_id"));
    citation.detail = rest;
    if !is_named && file_id.is_none() {
        tally.note("citation without an address", kind.as_deref().unwrap_or("(no type)"));
        return Ok(None);
    }
    Ok(Some(citation))
}
