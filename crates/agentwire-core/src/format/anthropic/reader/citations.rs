//! Citations of a text block.

use serde_json::value::RawValue;

use crate::{
    event::Citation,
    format::model_api::fields::string,
    json::{Fields, Path, ReadResult},
    tally::Tally,
};

/// A citation, without id and message: a page of a search, a search result of the request, or a place in a document.
pub(super) fn read_citation(raw: &RawValue, path: Path<'_>, tally: &mut Tally) -> ReadResult<Citation> {
    let mut fields = Fields::of(raw, path)?;
    let mut boxed = |key: &str| -> ReadResult<Option<Box<str>>> {
        Ok(string(&mut fields, key, tally)?.filter(|text| !text.is_empty()).map(Into::into))
    };
    let url = match boxed("url")? {
        Some(url) => Some(url),
        None => boxed("source")?,
    };
    let title = match boxed("title")? {
        Some(title) => Some(title),
        None => boxed("document_title")?,
    };
    // The cited text, its place and the provider's index stay in the provider's form.
    let detail = fields.rest("citation", &mut Tally::default())?;
    let filename = if url.is_none() { title.clone() } else { None };
    Ok(Citation { id: "".into(), message: None, url, title, media_type: None, filename, detail })
}
