//! Responses to artifact requests. Artifacts are named files that agents store outside of the conversation.

use base64::{
    Engine as _, alphabet,
    engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig},
};

use crate::{
    format::adk::{
        reader::decode::{parse, parse_raw},
        wire::{AdkPart, AdkText},
    },
    json::{Path, ReadError, ReadResult},
};

/// The standard alphabet without padding. Bits after the last byte are ignored.
const UNPADDED: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_allow_trailing_bits(true)
        .with_decode_padding_mode(DecodePaddingMode::RequireNone),
);

/// One version of an artifact.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Artifact {
    /// The artifact itself.
    Content {
        /// Its media type, as declared by the agent.
        mime_type: Box<str>,
        /// Its bytes.
        bytes: Vec<u8>,
    },
    /// A reference to a file that the server does not store.
    External,
}

/// Reads the response to [`list_artifacts`](super::AdkApi::list_artifacts).
///
/// # Errors
/// When the body is not a list of names.
pub fn read_names(body: &str) -> ReadResult<Vec<String>> {
    serde_json::from_str(body).map_err(|error| ReadError::new("", format!("no list of names: {error}")))
}

/// Reads the response to [`get_artifact`](super::AdkApi::get_artifact); `None` if the artifact does not exist.
///
/// ```
/// use agentwire_core::format::adk::input::artifact::{Artifact, read};
/// let read = read(r#"{"inlineData":{"mimeType":"text/plain","data":"aGVsbG8="}}"#).unwrap().unwrap();
/// assert_eq!(read, Artifact::Content { mime_type: "text/plain".into(), bytes: b"hello".to_vec() });
/// ```
///
/// # Errors
/// When the body is not a part, or a part without content; the error names the member.
pub fn read(body: &str) -> ReadResult<Option<Artifact>> {
    let raw = parse_raw(body)?;
    if raw.get() == "null" {
        return Ok(None);
    }
    let part: AdkPart<'_> = parse(raw, Path::Root)?;
    let media_type = |mime_type: Option<&AdkText<'_>>| {
        mime_type.map_or("application/octet-stream", |mime_type| mime_type.as_str()).into()
    };
    if let Some(blob) = &part.inline {
        let data = blob.data.as_ref().map_or("", AdkText::as_str);
        let bytes =
            decode_base64(data).ok_or_else(|| ReadError::new("/inlineData/data", "not base64".to_owned()))?;
        return Ok(Some(Artifact::Content { mime_type: media_type(blob.mime_type.as_ref()), bytes }));
    }
    if let Some(text) = &part.text {
        let bytes = text.as_str().as_bytes().to_vec();
        return Ok(Some(Artifact::Content { mime_type: "text/plain; charset=utf-8".into(), bytes }));
    }
    match &part.file {
        Some(_) => Ok(Some(Artifact::External)),
        None => Err(ReadError::new("", "expected `inlineData`, `text` or `fileData`".to_owned())),
    }
}

/// Decodes base64 of either alphabet, with or without padding; `None` if it is malformed.
fn decode_base64(text: &str) -> Option<Vec<u8>> {
    let digits = text.trim_end_matches('=');
    if text.len() - digits.len() > 2 {
        return None;
    }
    let standard = |digit| match digit {
        b'-' => b'+',
        b'_' => b'/',
        other => other,
    };
    UNPADDED.decode(digits.bytes().map(standard).collect::<Vec<u8>>()).ok()
}

#[cfg(test)]
mod tests {
    use base64::engine::general_purpose::{STANDARD, URL_SAFE};
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn reads_parts_of_every_kind() {
        let content = |mime_type: &str, bytes: &[u8]| {
            Some(Artifact::Content { mime_type: mime_type.into(), bytes: bytes.to_vec() })
        };
        assert_eq!(
            read(r#"{"inline_data":{"mime_type":"image/png","data":"-_8"}}"#).unwrap(),
            content("image/png", &[0xfb, 0xff])
        );
        assert_eq!(
            read(r#"{"inlineData":{"data":"+/8="},"x":1}"#).unwrap(),
            content("application/octet-stream", &[0xfb, 0xff])
        );
        assert_eq!(
            read(r#"{"text":"gr\u00fcn"}"#).unwrap(),
            content("text/plain; charset=utf-8", "grün".as_bytes())
        );
        assert_eq!(read(r#"{"fileData":{"fileUri":"gs://b/x"}}"#).unwrap(), Some(Artifact::External));
        assert_eq!(read("null").unwrap(), None);
        assert_eq!(read_names(r#"["a/b","user:c"]"#).unwrap(), ["a/b", "user:c"]);
    }

    #[test]
    fn other_bodies_are_rejected() {
        for body in
            ["", "{}", "[1]", "7", r#"{"inlineData":{"data":"a"}}"#, r#"{"inlineData":{"data":"a*=="}}"#]
        {
            assert!(read(body).is_err(), "{body}");
        }
        for body in ["", "{}", "[1]", "null"] {
            assert!(read_names(body).is_err(), "{body}");
        }
    }

    #[test]
    fn malformed_base64_is_rejected() {
        for text in ["a", "abcde", "ab===", "a=b=", "ab c", "ä"] {
            assert_eq!(decode_base64(text), None, "{text}");
        }
        assert_eq!(decode_base64("Zm9v="), Some(b"foo".to_vec()), "superfluous padding is ignored");
        assert_eq!(decode_base64("Zh"), Some(b"f".to_vec()), "trailing bits are ignored");
        assert_eq!(decode_base64("+_8"), Some(vec![0xfb, 0xff]), "the alphabets may be mixed");
    }

    proptest! {
        #[test]
        fn encoded_bytes_are_decoded(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let text = URL_SAFE.encode(&bytes);
            prop_assert_eq!(decode_base64(&text), Some(bytes.clone()));
            prop_assert_eq!(decode_base64(text.trim_end_matches('=')), Some(bytes.clone()));
            prop_assert_eq!(decode_base64(&STANDARD.encode(&bytes)), Some(bytes));
        }

        #[test]
        fn arbitrary_bodies_do_not_panic(body in ".{0,80}") {
            let _ = (read(&body), read_names(&body));
        }
    }
}
