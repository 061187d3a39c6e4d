//! Content blocks of a request.

use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::{Map, Value, json};

use crate::event::{Content, ContentPart, MediaKind, PartSource};

/// Media types of images that the API takes.
const IMAGES: &[&str] = &["image/jpeg", "image/png", "image/gif", "image/webp"];

/// Blocks that the reader sealed into an encrypted value: a list in which all kinds of blocks end with one of the two
/// names. `None` if the value is from another provider.
pub(super) fn sealed_blocks(sealed: Option<&str>, suffix: &str) -> Option<Vec<Value>> {
    let Ok(Value::Array(blocks)) = serde_json::from_str(sealed?) else { return None };
    let kind = |block: &Value| block.get("type").and_then(Value::as_str).map(str::to_owned);
    let is_own = |block: &Value| {
        kind(block)
            .is_some_and(|kind| kind.ends_with(suffix) || suffix == "_use" && kind.ends_with("_tool_result"))
    };
    (!blocks.is_empty() && blocks.iter().all(is_own)).then_some(blocks)
}

/// The id of a call, in the letters that the API allows.
pub(super) fn tool_id(id: &str) -> String {
    let allowed = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '_' | '-');
    id.chars().map(|letter| if allowed(letter) { letter } else { '_' }).collect()
}

/// The input of a call, which must be an object.
pub(super) fn tool_input(arguments: &str) -> Value {
    match serde_json::from_str(arguments) {
        Ok(Value::Object(members)) => Value::Object(members),
        Ok(Value::Null) | Err(_) if arguments.trim().is_empty() => Value::Object(Map::new()),
        Ok(other) => json!({"input": other}),
        Err(_) => json!({"input": arguments}),
    }
}

/// The blocks of a user's message or of a result. The API rejects empty text.
pub(super) fn content_blocks(content: &Content) -> Vec<Value> {
    match content {
        Content::Text(text) => text_block(text).into_iter().collect(),
        Content::Parts(parts) => parts.iter().filter_map(part).collect(),
    }
}

fn text_block(text: &str) -> Option<Value> {
    (!text.trim().is_empty()).then(|| json!({"type": "text", "text": text}))
}

fn part(part: &ContentPart) -> Option<Value> {
    let (kind, source) = match part {
        ContentPart::Text { text, .. } => return text_block(text),
        ContentPart::Media { kind, source, .. } => (*kind, source),
    };
    let mime = source.mime_type().unwrap_or_default();
    let block = match (kind, source) {
        (MediaKind::Image, PartSource::Data { value, mime_type }) if IMAGES.contains(&&**mime_type) => {
            json!({"type": "image", "source": {"type": "base64", "media_type": mime_type, "data": value}})
        }
        (MediaKind::Image, PartSource::Url { value, .. }) => {
            json!({"type": "image", "source": {"type": "url", "url": value}})
        }
        (MediaKind::Image, PartSource::File { value, .. }) => {
            json!({"type": "image", "source": {"type": "file", "file_id": value}})
        }
        (MediaKind::Document, PartSource::File { value, .. }) => {
            json!({"type": "document", "source": {"type": "file", "file_id": value}})
        }
        (MediaKind::Document, PartSource::Url { value, .. }) => {
            json!({"type": "document", "source": {"type": "url", "url": value}})
        }
        (MediaKind::Document, PartSource::Data { value, .. }) if mime == "application/pdf" => {
            json!({"type": "document", "source": {"type": "base64", "media_type": mime, "data": value}})
        }
        (MediaKind::Document, PartSource::Data { value, .. }) => match plain_text(value) {
            Some(text) => {
                json!({"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": text}})
            }
            None => return text_block(&left_out(kind, mime)),
        },
        (MediaKind::Image | MediaKind::Audio | MediaKind::Video, _) => {
            return text_block(&left_out(kind, mime));
        }
    };
    Some(block)
}

fn plain_text(base64: &str) -> Option<String> {
    String::from_utf8(STANDARD.decode(base64).ok()?).ok().filter(|text| !text.trim().is_empty())
}

/// The text in place of media that the API does not take, so that the model knows of them.
fn left_out(kind: MediaKind, mime: &str) -> String {
    let kind = match kind {
        MediaKind::Image => "image",
        MediaKind::Audio => "audio",
        MediaKind::Video => "video",
        MediaKind::Document => "document",
    };
    let mime = if mime.is_empty() { "unknown type" } else { mime };
    format!("[{kind} ({mime}), which this model cannot read]")
}
