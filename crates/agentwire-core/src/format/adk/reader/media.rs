//! Media parts of an event.

use crate::{
    event::{MediaKind, PartSource},
    format::adk::{
        base64,
        wire::{AdkText, Blob, FileData},
    },
};

/// Inline media.
pub(super) fn inline_media(blob: &Blob<'_>) -> (MediaKind, PartSource) {
    let mime_type = blob.mime_type.as_ref().map_or("application/octet-stream", AdkText::as_str);
    let data = blob.data.as_ref().map_or("", AdkText::as_str);
    let source = PartSource::Data { value: base64::standard(data), mime_type: mime_type.into() };
    (MediaKind::of_mime(mime_type), source)
}

/// Media by URI.
pub(super) fn linked_media(file: &FileData<'_>) -> (MediaKind, PartSource) {
    let mime_type = file.mime_type.as_ref().map(AdkText::as_str);
    let source = PartSource::Url {
        value: file.uri.as_ref().map_or("", AdkText::as_str).into(),
        mime_type: mime_type.map(Into::into),
    };
    (MediaKind::of_mime(mime_type.unwrap_or_default()), source)
}
