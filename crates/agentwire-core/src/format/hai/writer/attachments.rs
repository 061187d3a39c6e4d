//! Writes attachments: media parts go to `extra`, apart from the content.

use bytes::BytesMut;

use super::super::{nesting::compose, reader::attachments::append_attachments};
use crate::{
    event::{Content, ContentPart},
    format::ag_ui::shapes,
    json::{ArrayWriter, Json},
};

/// Content parts in the AG-UI shape.
fn parts_json<'p>(parts: impl IntoIterator<Item = &'p ContentPart>) -> Json {
    let mut out = BytesMut::new();
    let mut list = ArrayWriter::new(&mut out);
    for part in parts {
        list.object(|w| shapes::write_part(w, part));
    }
    list.end();
    Json::trusted(String::from_utf8(out.into()).expect("JSON text is UTF-8"))
}

/// `extra` with the media of `content` as attachments, and all parts of `content` if the reader cannot derive them
/// from that.
pub(crate) fn with_attachments(content: &Content, extra: Option<Json>) -> (Option<Json>, Option<Json>) {
    let Content::Parts(parts) = content else {
        return (extra, None);
    };
    let media: Vec<_> = parts.iter().filter(|part| matches!(part, ContentPart::Media { .. })).collect();
    let attachments = parts_json(media.iter().copied());
    let extra = match extra.clone().and_then(Json::into_object) {
        Some(extra) => Some(extra.with("attachments", attachments).into()),
        None if extra.is_none() && !media.is_empty() => Some(compose([("attachments", attachments)]).into()),
        None => extra,
    };
    let is_restorable = append_attachments(Content::Text(content.text().into()), extra.clone()).0 == *content;
    let all = (!is_restorable).then(|| parts_json(parts));
    (extra, all)
}
