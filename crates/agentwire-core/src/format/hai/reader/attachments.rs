//! Reads attachments: HAI stores them in `extra`, apart from the content.

use serde_json::value::RawValue;

use crate::{
    event::{Content, ContentPart},
    format::ag_ui::shapes,
    json::{Json, Path},
    tally::Tally,
};

/// The content with the attachments in `extra` appended, and the remainder of `extra`.
pub(crate) fn append_attachments(content: Content, extra: Option<Json>) -> (Content, Option<Json>) {
    let attachments = extra.clone().and_then(Json::into_object).and_then(|extra| extra.member("attachments"));
    let Some(parts) = attachments.and_then(|list| parse_parts(&list, &mut Tally::default())) else {
        return (content, extra);
    };
    if parts.is_empty() {
        return (content, extra);
    }
    let mut all = match content {
        Content::Text(text) if text.is_empty() => Vec::new(),
        Content::Text(text) => vec![ContentPart::text(text)],
        Content::Parts(parts) => parts,
    };
    all.extend(parts);
    (Content::Parts(all), without_attachments(extra))
}

/// As [`append_attachments`]; `parts` are the original parts, present if they cannot be derived.
pub(crate) fn restore_parts(
    content: Content,
    extra: Option<Json>,
    parts: Option<Json>,
    tally: &mut Tally,
) -> (Content, Option<Json>) {
    match parts.and_then(|parts| parse_parts(&parts, tally)) {
        Some(parts) => (Content::Parts(parts), without_attachments(extra)),
        None => append_attachments(content, extra),
    }
}

fn parse_parts(list: &Json, tally: &mut Tally) -> Option<Vec<ContentPart>> {
    let raw: &RawValue = serde_json::from_str(list.get()).ok()?;
    shapes::read_parts(raw, Path::Root, tally).ok()
}

/// `extra` without its attachments.
fn without_attachments(extra: Option<Json>) -> Option<Json> {
    let Some(object) = extra.clone().and_then(Json::into_object) else {
        return extra;
    };
    let rest = object.without("attachments");
    (!rest.is_empty()).then(|| rest.into())
}
