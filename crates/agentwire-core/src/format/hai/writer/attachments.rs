//! Attachments, written.

use bytes::BytesMut;

use crate::{
    event::ContentPart,
    format::ag_ui::shapes,
    json::{ArrayWriter, Json},
};

/// Parts as AG-UI has them.
pub(crate) fn parts_json<'p>(parts: impl IntoIterator<Item = &'p ContentPart>) -> Json {
    let mut out = BytesMut::new();
    let mut list = ArrayWriter::new(&mut out);
    for part in parts {
        list.object(|w| shapes::write_part(w, part));
    }
    list.end();
    Json::trusted(String::from_utf8(out.into()).expect("JSON text is UTF-8"))
}
