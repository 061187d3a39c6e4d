//! Artifacts: what agents store under a name beside the conversation, as the API server hands it out.

use serde_json::value::RawValue;

use super::wire::{Part, Text, parse};
use crate::{format::ReadError, json::Path};

/// One version of an artifact.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Artifact {
    /// The artifact itself.
    Content {
        /// What it is; anybody's word.
        mime_type: Box<str>,
        /// Its bytes.
        bytes: Vec<u8>,
    },
    /// A reference to something that the server does not hold.
    Elsewhere,
}

/// Reads the answer to [`list_artifacts`](super::input::Api::list_artifacts).
///
/// # Errors
/// When it is no list of names; says where.
pub fn names(body: &str) -> Result<Vec<String>, ReadError> {
    serde_json::from_str(body).map_err(|error| ReadError::new("", format!("no list of names: {error}")))
}

/// Reads the answer to [`get_artifact`](super::input::Api::get_artifact); `None` if the server says that there is none.
///
/// ```
/// use agentwire_core::format::adk::artifact::{Artifact, read};
/// let read = read(r#"{"inlineData":{"mimeType":"text/plain","data":"aGVsbG8="}}"#).unwrap().unwrap();
/// assert_eq!(read, Artifact::Content { mime_type: "text/plain".into(), bytes: b"hello".to_vec() });
/// ```
///
/// # Errors
/// When it is no part, or one that cannot be an artifact; says where.
pub fn read(body: &str) -> Result<Option<Artifact>, ReadError> {
    let raw: &RawValue =
        serde_json::from_str(body).map_err(|error| ReadError::new("", format!("not valid JSON: {error}")))?;
    if raw.get() == "null" {
        return Ok(None);
    }
    let part: Part<'_> = parse(raw, Path::Root)?;
    let is = |mime_type: Option<&Text<'_>>| {
        mime_type.map_or("application/octet-stream", |mime_type| mime_type.as_str()).into()
    };
    if let Some(blob) = &part.inline {
        let data = blob.data.as_ref().map_or("", Text::as_str);
        let bytes =
            decoded(data).ok_or_else(|| ReadError::new("/inlineData/data", "not base64".to_owned()))?;
        return Ok(Some(Artifact::Content { mime_type: is(blob.mime_type.as_ref()), bytes }));
    }
    if let Some(text) = &part.text {
        let bytes = text.as_str().as_bytes().to_vec();
        return Ok(Some(Artifact::Content { mime_type: "text/plain; charset=utf-8".into(), bytes }));
    }
    match &part.file {
        Some(_) => Ok(Some(Artifact::Elsewhere)),
        None => Err(ReadError::new("", "expected `inlineData`, `text` or `fileData`".to_owned())),
    }
}

/// Decodes base64 of either alphabet, with padding or without; `None` if it is none.
fn decoded(text: &str) -> Option<Vec<u8>> {
    let digits = text.trim_end_matches('=');
    // Of four digits one or two may be missing, never three.
    if text.len() - digits.len() > 2 || digits.len() % 4 == 1 {
        return None;
    }
    let mut bytes = Vec::with_capacity(digits.len() / 4 * 3 + 2);
    for group in digits.as_bytes().chunks(4) {
        let mut bits = 0_u32;
        for digit in group {
            let value = match digit {
                b'A'..=b'Z' => digit - b'A',
                b'a'..=b'z' => digit - b'a' + 26,
                b'0'..=b'9' => digit - b'0' + 52,
                b'+' | b'-' => 62,
                b'/' | b'_' => 63,
                _ => return None,
            };
            bits = bits << 6 | u32::from(value);
        }
        bits <<= 6 * (4 - group.len());
        bytes.extend_from_slice(&bits.to_be_bytes()[1..group.len()]);
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The textbook encoder, bit by bit.
    fn encoded(bytes: &[u8]) -> String {
        const DIGITS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
        let bits: Vec<u8> = bytes.iter().flat_map(|byte| (0..8).rev().map(move |n| byte >> n & 1)).collect();
        let digit = |six: &[u8]| {
            let value = (0..6).fold(0, |value, n| value * 2 + six.get(n).copied().unwrap_or(0));
            char::from(DIGITS[usize::from(value)])
        };
        let mut text: String = bits.chunks(6).map(digit).collect();
        while !text.len().is_multiple_of(4) {
            text.push('=');
        }
        text
    }

    #[test]
    fn parts_of_every_kind_are_read() {
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
        assert_eq!(read(r#"{"fileData":{"fileUri":"gs://b/x"}}"#).unwrap(), Some(Artifact::Elsewhere));
        assert_eq!(read("null").unwrap(), None);
        assert_eq!(names(r#"["a/b","user:c"]"#).unwrap(), ["a/b", "user:c"]);
    }

    #[test]
    fn what_is_no_artifact_is_refused() {
        for body in
            ["", "{}", "[1]", "7", r#"{"inlineData":{"data":"a"}}"#, r#"{"inlineData":{"data":"a*=="}}"#]
        {
            assert!(read(body).is_err(), "{body}");
        }
        for body in ["", "{}", "[1]", "null"] {
            assert!(names(body).is_err(), "{body}");
        }
        for text in ["a", "abcde", "ab===", "a=b=", "ab c", "ä"] {
            assert_eq!(decoded(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn whatever_was_encoded_comes_back(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let text = encoded(&bytes);
            prop_assert_eq!(decoded(&text), Some(bytes.clone()));
            prop_assert_eq!(decoded(text.trim_end_matches('=')), Some(bytes.clone()));
            prop_assert_eq!(decoded(&text.replace('-', "+").replace('_', "/")), Some(bytes));
        }

        #[test]
        fn nothing_panics(body in ".{0,80}") {
            let _ = (read(&body), names(&body), decoded(&body));
        }
    }
}
