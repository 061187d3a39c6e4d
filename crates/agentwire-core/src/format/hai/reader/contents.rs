//! Reads `contents`, the list of outputs that a page holds in place of `content`.
//!
//! The client code in section 4.1 of the standard sends the messages of its page as they are: `contents` with the outputs
//! that it parsed from an answer (`{output: {…}, layout}`) or made itself (`{type, content, data}`), and no `content`.

use serde_json::{Value, json, value::RawValue};

use super::super::writer::messages::delta_document;
use crate::{
    event::Content,
    format::ag_ui::shapes,
    json::{Json, Path, ReadResult, elements},
    tally::Tally,
};

/// The content that the list `raw` stands for: text, or the joined documents of the outputs if the message is an answer
/// with others than text, or text and media if it is a message of the user.
pub(crate) fn read(
    raw: &RawValue,
    path: Path<'_>,
    is_answer: bool,
    tally: &mut Tally,
) -> ReadResult<Content> {
    let (mut text, mut documents, mut parts) = (String::new(), String::new(), Vec::new());
    let mut has_other = false;
    for element in elements(raw, path)? {
        let element: Value = serde_json::from_str(element.get()).unwrap_or_default();
        let output = element.get("output").filter(|output| output.is_object()).unwrap_or(&element);
        let piece = text_of(output);
        if let Some(output) = Json::from(output).into_object() {
            documents.push_str(&delta_document(&output));
        }
        match (piece, media(output)) {
            (Some(piece), _) => {
                text.push_str(piece);
                parts.push(json!({"type": "text", "text": piece}));
            }
            (None, Some(part)) => {
                has_other = true;
                parts.push(part);
            }
            (None, None) => has_other = true,
        }
    }
    if has_other && is_answer {
        return Ok(Content::Text(documents.into()));
    }
    let has_media = parts.iter().any(|part| part["type"] != "text");
    if has_media && let Ok(list) = serde_json::value::to_raw_value(&parts) {
        return Ok(Content::Parts(shapes::read_parts(&list, path, tally)?));
    }
    Ok(Content::Text(text.into()))
}

/// The text of a text output, in HAI's or AG-UI's shape, or of a plain string.
fn text_of(output: &Value) -> Option<&str> {
    if let Value::String(text) = output {
        return Some(text);
    }
    let is_text = output.get("type").is_none_or(|kind| kind == "text");
    let text = ["content", "text"].iter().find_map(|key| output.get(key)).and_then(Value::as_str);
    text.filter(|_| is_text)
}

/// A media output as a content part.
fn media(output: &Value) -> Option<Value> {
    let kind = match output.get("type")?.as_str()? {
        kind @ ("image" | "audio" | "video" | "document") => kind,
        "file" => "document",
        _ => return None,
    };
    if output.get("source").is_some() {
        return Some(output.clone());
    }
    let data = output.get("data")?;
    let (source, value) = ["url", "data"].iter().find_map(|key| Some((key, data.get(key)?.as_str()?)))?;
    let mut source = json!({"type": source, "value": value});
    if let Some(mime_type) = data.get("mimeType").filter(|mime_type| mime_type.is_string()) {
        source["mimeType"] = mime_type.clone();
    }
    Some(json!({"type": kind, "source": source}))
}
