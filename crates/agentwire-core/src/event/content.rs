//! Message content: plain text, or parts with media.

use crate::json::Json;

/// The content of a user message or a tool result.
#[derive(Clone, Debug, PartialEq)]
pub enum Content {
    /// Plain text.
    Text(Box<str>),
    /// Parts in order; may be empty.
    Parts(Vec<ContentPart>),
}

/// One part of a message's content.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum ContentPart {
    /// Text.
    Text {
        /// The text.
        text: Box<str>,
        /// Reserved by AG-UI; passed on without being read.
        id: Option<Box<str>>,
        /// Any JSON but `null`.
        metadata: Option<Json>,
    },
    /// Media.
    Media {
        /// Image, audio, video or document.
        kind: MediaKind,
        /// The location of its bytes.
        source: PartSource,
        /// Reserved by AG-UI; passed on without being read.
        id: Option<Box<str>>,
        /// Any JSON but `null`.
        metadata: Option<Json>,
    },
}

/// The kind of media.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are sufficient")]
pub enum MediaKind {
    Image,
    Audio,
    Video,
    Document,
}

/// The location of the bytes of a media part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PartSource {
    /// Inline.
    Data {
        /// Base64.
        value: Box<str>,
        /// Media type.
        mime_type: Box<str>,
    },
    /// At an address.
    Url {
        /// The address.
        value: Box<str>,
        /// Media type, where known.
        mime_type: Option<Box<str>>,
    },
    /// At a provider; only that provider can resolve the handle.
    File {
        /// The handle.
        value: Box<str>,
        /// The provider.
        provider: Option<Box<str>>,
        /// Media type, where known.
        mime_type: Option<Box<str>>,
    },
}

impl Content {
    /// True if there is neither text nor media.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        match self {
            Self::Text(text) => text.is_empty(),
            Self::Parts(parts) => parts.iter().all(|part| match part {
                ContentPart::Text { text, .. } => text.is_empty(),
                ContentPart::Media { .. } => false,
            }),
        }
    }

    /// The text: all of it, or the text parts joined.
    #[must_use]
    pub fn text(&self) -> String {
        match self {
            Self::Text(text) => text.to_string(),
            Self::Parts(parts) => parts
                .iter()
                .filter_map(|part| match part {
                    ContentPart::Text { text, .. } => Some(&**text),
                    ContentPart::Media { .. } => None,
                })
                .collect(),
        }
    }
}

impl From<&str> for Content {
    fn from(text: &str) -> Self {
        Self::Text(text.into())
    }
}

impl From<String> for Content {
    fn from(text: String) -> Self {
        Self::Text(text.into())
    }
}

impl ContentPart {
    /// A text part.
    #[must_use]
    pub fn text(text: impl Into<Box<str>>) -> Self {
        Self::Text { text: text.into(), id: None, metadata: None }
    }

    /// A media part.
    #[must_use]
    pub fn media(kind: MediaKind, source: PartSource) -> Self {
        Self::Media { kind, source, id: None, metadata: None }
    }
}

impl MediaKind {
    /// The kind that a media type belongs to; everything unknown is a document.
    #[must_use]
    pub fn of_mime(mime_type: &str) -> Self {
        match mime_type.split('/').next() {
            Some("image") => Self::Image,
            Some("audio") => Self::Audio,
            Some("video") => Self::Video,
            _ => Self::Document,
        }
    }

    /// The kind's name on the wire.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Image => "image",
            Self::Audio => "audio",
            Self::Video => "video",
            Self::Document => "document",
        }
    }

    /// The kind of that name.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        Some(match name {
            "image" => Self::Image,
            "audio" => Self::Audio,
            "video" => Self::Video,
            "document" => Self::Document,
            _ => return None,
        })
    }
}

impl PartSource {
    /// The media type, where known.
    #[must_use]
    pub fn mime_type(&self) -> Option<&str> {
        match self {
            Self::Data { mime_type, .. } => Some(mime_type),
            Self::Url { mime_type, .. } | Self::File { mime_type, .. } => mime_type.as_deref(),
        }
    }
}
