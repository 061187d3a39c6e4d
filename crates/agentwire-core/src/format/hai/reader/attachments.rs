//! Attachments, which HAI has in `extra` beside the content that they are a part of.

use serde_json::value::RawValue;

use crate::{
    event::{Content, ContentPart},
    format::ag_ui::shapes,
    json::{Json, Path},
    tally::Tally,
};

/// Content with the attachments of `extra` behind it; and what stays of `extra`.
///
/// `extra` is kept whole, so that the way back finds the attachments where they were.
pub(crate) fn with_parts(content: Content, extra: Option<Json>) -> (Content, Option<Json>) {
    let attachments = extra.clone().and_then(Json::into_object).and_then(|extra| extra.member("attachments"));
    let Some(parts) = attachments.and_then(|list| original_parts(&list, &mut Tally::default())) else {
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

/// As [`with_parts`], with all parts given if they could not be told from that.
pub(crate) fn with_original(
    content: Content,
    extra: Option<Json>,
    parts: Option<Json>,
    tally: &mut Tally,
) -> (Content, Option<Json>) {
    match parts.and_then(|parts| original_parts(&parts, tally)) {
        Some(parts) => (Content::Parts(parts), without_attachments(extra)),
        None => with_parts(content, extra),
    }
}

fn original_parts(list: &Json, tally: &mut Tally) -> Option<Vec<ContentPart>> {
    let raw: &RawValue = serde_json::from_str(list.get()).ok()?;
    shapes::read_parts(raw, Path::Root, tally).ok()
}

/// `extra` without what the parts say already.
fn without_attachments(extra: Option<Json>) -> Option<Json> {
    let Some(object) = extra.clone().and_then(Json::into_object) else {
        return extra;
    };
    let rest = object.without("attachments");
    (!rest.is_empty()).then(|| rest.into())
}
