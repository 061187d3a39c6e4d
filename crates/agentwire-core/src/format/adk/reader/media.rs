//! Media parts of an event.

use crate::{
    event::{MediaKind, PartSource},
    format::adk::wire::{AdkText, Blob, FileData},
};

/// Inline media.
pub(super) fn inline_media(blob: &Blob<'_>) -> (MediaKind, PartSource) {
    let mime_type = blob.mime_type.as_ref().map_or("application/octet-stream", AdkText::as_str);
    let data = blob.data.as_ref().map_or("", AdkText::as_str);
    let source = PartSource::Data { value: standard_base64(data), mime_type: mime_type.into() };
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

/// Converts base64 to the standard alphabet with padding. ADK writes the URL-safe alphabet; `data:` URLs and other
/// formats use the standard one.
fn standard_base64(data: &str) -> Box<str> {
    let translate = |digit| match digit {
        '-' => '+',
        '_' => '/',
        other => other,
    };
    let mut text: String = data.chars().filter(|c| !c.is_ascii_whitespace()).map(translate).collect();
    if !text.len().is_multiple_of(4) {
        text.truncate(text.trim_end_matches('=').len());
        while !text.len().is_multiple_of(4) {
            text.push('=');
        }
    }
    text.into()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::standard_base64;

    #[test]
    fn base64_is_converted_to_the_standard_alphabet() {
        assert_eq!(&*standard_base64("-_8="), "+/8=");
        assert_eq!(&*standard_base64("+/8="), "+/8=");
        assert_eq!(&*standard_base64("-_8"), "+/8=");
        assert_eq!(&*standard_base64("-_\r\n8="), "+/8=");
        assert_eq!(&*standard_base64(""), "");
    }

    proptest! {
        #[test]
        fn arbitrary_text_does_not_panic(text in ".{0,80}") {
            let _ = standard_base64(&text);
        }
    }
}
