//! Responses to artifact requests. Artifacts are named files that agents store outside of the conversation.

use crate::{
    format::adk::{
        base64::decoded,
        reader::decode::{parse, parse_raw},
        wire::{AdkPart, AdkText},
    },
    json::{Path, ReadError},
};

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
pub fn read_names(body: &str) -> Result<Vec<String>, ReadError> {
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
pub fn read(body: &str) -> Result<Option<Artifact>, ReadError> {
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
            decoded(data).ok_or_else(|| ReadError::new("/inlineData/data", "not base64".to_owned()))?;
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

#[cfg(test)]
mod tests {
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

    proptest! {
        #[test]
        fn arbitrary_bodies_do_not_panic(body in ".{0,80}") {
            let _ = (read(&body), read_names(&body));
        }
    }
}
