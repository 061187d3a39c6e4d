//! The `content` of a message: a string, or a list of blocks in the format of any provider.
//!
//! LangChain passes provider blocks through, and since 1.0 also has standard blocks. One chunk may contain
//! reasoning, text and an image, so every block is read on its own, in order.

use std::borrow::Cow;

use serde_json::value::RawValue;

use super::super::{
    raw_json,
    wire::{BlockDetail, NativeBlock},
};
use crate::{
    event::{Content, ContentPart, MediaKind, PartSource},
    json::{Json, Object},
    tally::Tally,
};

/// A unit of content; a block has one or several.
#[derive(Debug)]
pub(super) enum ContentPiece<'a> {
    Text {
        text: Cow<'a, str>,
        /// The JSON string on the wire.
        raw: &'a RawValue,
    },
    Reasoning(ReasoningPiece<'a>),
    File {
        index: Cow<'a, str>,
        media: MediaPiece<'a>,
    },
    Source(&'a RawValue),
    /// The provider's signature of the text.
    Signature(Cow<'a, str>),
    /// A block of an unknown type.
    Unknown(&'a RawValue),
}

/// A piece of reasoning.
#[derive(Debug, Default)]
pub(super) struct ReasoningPiece<'a> {
    /// The index of its block.
    pub(super) block: Cow<'a, str>,
    /// The part of the block; every part is a message.
    pub(super) part: u64,
    /// The provider's id of the block, on its first chunk.
    pub(super) id: Option<Cow<'a, str>>,
    pub(super) text: Option<(Cow<'a, str>, &'a RawValue)>,
    /// A signature, or encrypted reasoning.
    pub(super) encrypted: Option<Cow<'a, str>>,
}

impl<'a> ReasoningPiece<'a> {
    /// Text without a block, which belongs to the first one.
    pub(super) fn of_first_block(text: (Cow<'a, str>, &'a RawValue)) -> Self {
        Self { block: "0".into(), text: Some(text), ..Self::default() }
    }
}

/// A file, an image, audio or video.
#[derive(Debug)]
pub(super) struct MediaPiece<'a> {
    pub(super) kind: MediaKind,
    pub(super) source: PartSource,
    pub(super) name: Option<Cow<'a, str>>,
}

/// The pieces of a message's content. Blocks without an index are numbered by position in a complete message;
/// in a chunk they continue one another.
pub(super) fn pieces<'a>(
    content: &'a RawValue,
    is_complete: bool,
    tally: &mut Tally,
) -> Vec<ContentPiece<'a>> {
    let mut pieces = Vec::new();
    if let Some(text) = raw_json::string(content, tally) {
        pieces.push(ContentPiece::Text { text, raw: content });
    } else if let Some(blocks) = raw_json::elements(content) {
        for (position, raw) in blocks.into_iter().enumerate() {
            push_block(raw, if is_complete { position } else { 0 }, tally, &mut pieces);
        }
    } else if raw_json::is_object(content) {
        push_block(content, 0, tally, &mut pieces);
    } else {
        tally.note("wrong type", "content");
    }
    pieces
}

/// The pieces of one block.
pub(super) fn block_pieces<'a>(raw: &'a RawValue, tally: &mut Tally) -> Vec<ContentPiece<'a>> {
    let mut pieces = Vec::new();
    push_block(raw, 0, tally, &mut pieces);
    pieces
}

fn push_block<'a>(raw: &'a RawValue, position: usize, tally: &mut Tally, pieces: &mut Vec<ContentPiece<'a>>) {
    if let Some(text) = raw_json::string(raw, tally) {
        return pieces.push(ContentPiece::Text { text, raw });
    }
    let Some(block) = NativeBlock::of(raw) else {
        return tally.note("wrong type", "content block");
    };
    push_object(raw, &block, position, false, tally, pieces);
}

fn push_object<'a>(
    raw: &'a RawValue,
    block: &NativeBlock<'a>,
    position: usize,
    is_wrapped: bool,
    tally: &mut Tally,
    pieces: &mut Vec<ContentPiece<'a>>,
) {
    let kind = match raw_json::non_empty(block.kind, tally) {
        Some(kind) => kind,
        None if block.text.is_some() => Cow::Borrowed("text"),
        // Some providers mark the end of a block with `{"index": 2}`.
        None if is_index_only(raw) => return,
        None => Cow::Borrowed(""),
    };
    let index = || match block.index {
        Some(index) => Cow::Borrowed(index.get().trim_matches('"')),
        None => Cow::Owned(position.to_string()),
    };
    let reasoning = |text, encrypted, id| {
        ContentPiece::Reasoning(ReasoningPiece { block: index(), part: 0, id, text, encrypted })
    };
    let mut text = |raw: Option<&'a RawValue>| raw.and_then(|raw| Some((raw_json::string(raw, tally)?, raw)));
    match &*kind {
        "text" | "output_text" | "input_text" | "refusal" => {
            if let Some((text, raw)) = text(block.text.or(block.refusal)) {
                pieces.push(ContentPiece::Text { text, raw });
            }
            for list in [block.annotations, block.citations].into_iter().flatten() {
                let list = raw_json::elements(list).unwrap_or_default();
                pieces.extend(
                    list.into_iter().filter(|raw| raw_json::is_object(raw)).map(ContentPiece::Source),
                );
            }
            // Gemini signs text, too.
            let signature = block.extras.and_then(BlockDetail::of).and_then(|extras| extras.signature);
            pieces.extend(text(signature).map(|(signature, _)| ContentPiece::Signature(signature)));
        }
        "thinking" => {
            let (thinking, signature) = (text(block.thinking), text(block.signature));
            pieces.push(reasoning(thinking, signature.map(|(text, _)| text), None));
        }
        "redacted_thinking" => {
            let data = text(block.data).map(|(text, _)| text);
            pieces.push(reasoning(None, data, None));
        }
        "reasoning" => {
            let id = text(block.id).map(|(text, _)| text).filter(|id| !id.is_empty());
            let signature = block.extras.and_then(BlockDetail::of).and_then(|extras| extras.signature);
            let encrypted = text(block.encrypted_content.or(signature)).map(|(text, _)| text);
            let main_text = text(block.reasoning.or(block.text));
            let parts = block.summary.and_then(raw_json::elements).unwrap_or_default();
            if main_text.is_some() || encrypted.is_some() || parts.is_empty() {
                pieces.push(reasoning(main_text, None, id.clone()));
            }
            for (position, part) in parts.into_iter().enumerate() {
                let Some(part) = BlockDetail::of(part) else { continue };
                pieces.push(ContentPiece::Reasoning(ReasoningPiece {
                    block: index(),
                    part: raw_json::count(part.index).unwrap_or(position as u64),
                    id: id.clone(),
                    text: text(part.text),
                    encrypted: None,
                }));
            }
            if encrypted.is_some() {
                pieces.push(reasoning(None, encrypted, id));
            }
        }
        "reasoning_content" => {
            let inner = block.reasoning_content.and_then(BlockDetail::of).unwrap_or_default();
            let content = text(inner.text.or(block.reasoning_content));
            let redacted = inner.redacted_content.or(inner.redacted_camel);
            let encrypted = text(inner.signature.or(redacted)).map(|(text, _)| text);
            pieces.push(reasoning(content, encrypted, None));
        }
        // One level of wrapping only: no input may exhaust the stack.
        "non_standard" if !is_wrapped => {
            if let Some(value) = block.value
                && let Some(inner) = NativeBlock::of(value)
                && inner.kind.is_some()
            {
                push_object(value, &inner, position, true, tally, pieces);
            } else {
                pieces.push(ContentPiece::Unknown(raw));
            }
        }
        // `tool_call_chunks` and `tool_calls` contain the same calls.
        "tool_use" | "input_json_delta" | "tool_call" | "tool_call_chunk" | "function_call"
        | "invalid_tool_call" => {}
        _ => match media(block, &kind, tally) {
            Some(media) => pieces.push(ContentPiece::File { index: index(), media }),
            None => pieces.push(ContentPiece::Unknown(raw)),
        },
    }
}

/// Whether a block has an index or an id and nothing else.
fn is_index_only(raw: &RawValue) -> bool {
    raw_json::members(raw)
        .is_some_and(|members| members.iter().all(|(key, _)| matches!(&**key, "index" | "id")))
}

/// The media that a block contains or references.
fn media<'a>(block: &NativeBlock<'a>, kind: &str, tally: &mut Tally) -> Option<MediaPiece<'a>> {
    let mut text = |raw: Option<&'a RawValue>| raw_json::non_empty(raw, tally);
    let mut name = text(block.filename).or_else(|| text(block.title)).or_else(|| text(block.name));
    let mut mime = text(block.mime_type).or_else(|| text(block.media_type));
    let (kind, default_mime) = match kind {
        "image" | "image_url" | "input_image" | "image_generation_call" => {
            (Some(MediaKind::Image), "image/png")
        }
        "audio" | "input_audio" => (Some(MediaKind::Audio), "audio/wav"),
        "video" | "video_url" => (Some(MediaKind::Video), "video/mp4"),
        "file" | "document" | "input_file" => (None, "application/octet-stream"),
        "media" => (None, "application/octet-stream"),
        _ => return None,
    };
    let mut url = text(block.url).or_else(|| text(block.file_uri)).or_else(|| text(block.image_url));
    let mut data = text(block.base64).or_else(|| text(block.data)).or_else(|| text(block.result));
    let mut file = text(block.file_id);
    // LangChain 0.3 has a `source_type`; with `id`, the id of the block is the file's.
    if text(block.source_type).is_some_and(|kind| kind == "id") {
        file = file.or_else(|| text(block.id));
    }
    for inner in [block.source, block.file, block.input_audio, block.image_url].into_iter().flatten() {
        let Some(inner) = BlockDetail::of(inner) else { continue };
        url = url.or_else(|| text(inner.url));
        data = data.or_else(|| text(inner.data)).or_else(|| text(inner.file_data));
        file = file.or_else(|| text(inner.file_id));
        name = name.or_else(|| text(inner.filename));
        mime = mime.or_else(|| text(inner.media_type)).or_else(|| text(inner.mime_type));
        if mime.is_none()
            && let Some(format) = text(inner.format)
        {
            mime = Some(format!("{}/{format}", kind.map_or("audio", MediaKind::as_str)).into());
        }
    }
    if mime.is_none()
        && let Some(format) = text(block.output_format).or_else(|| text(block.format))
    {
        mime = Some(format!("{}/{format}", kind.map_or("image", MediaKind::as_str)).into());
    }
    // A `data:` URL is data, in whichever member it is.
    let inline = [&url, &data].into_iter().flatten().find_map(|text| {
        let (head, body) = text.strip_prefix("data:")?.split_once(',')?;
        let mime = head.strip_suffix(";base64")?;
        Some((mime.to_owned(), body.to_owned()))
    });
    if let Some((inline_mime, body)) = inline {
        (url, data) = (None, Some(Cow::Owned(body)));
        mime = Some(inline_mime).filter(|mime| !mime.is_empty()).map(Cow::Owned).or(mime);
    }
    let kind = kind.unwrap_or_else(|| mime.as_deref().map_or(MediaKind::Document, MediaKind::of_mime));
    let source = match (data, url, file) {
        (Some(data), _, _) => PartSource::Data {
            value: data.into(),
            mime_type: mime.map_or_else(|| default_mime.into(), Into::into),
        },
        (None, Some(url), _) => PartSource::Url { value: url.into(), mime_type: mime.map(Into::into) },
        (None, None, Some(file)) => {
            PartSource::File { value: file.into(), provider: None, mime_type: mime.map(Into::into) }
        }
        (None, None, None) => return None,
    };
    Some(MediaPiece { kind, source, name })
}

/// The text of a message's content, without reasoning.
pub(super) fn text(content: Option<&RawValue>, tally: &mut Tally) -> String {
    let Some(content) = content else { return String::new() };
    let mut all = String::new();
    for piece in pieces(content, true, tally) {
        if let ContentPiece::Text { text, .. } = piece {
            all.push_str(&text);
        }
    }
    all
}

/// The content of a user message or a tool result: text, parts, or JSON text if a block fits no part.
pub(super) fn user_content(content: Option<&RawValue>, tally: &mut Tally) -> Content {
    let Some(content) = content else { return Content::Text("".into()) };
    if let Some(text) = raw_json::string(content, tally) {
        return Content::Text(text.into());
    }
    if !raw_json::is_array(content) {
        return Content::Text(raw_json::json(content, tally).get().into());
    }
    let mut parts = Vec::new();
    for piece in pieces(content, true, tally) {
        match piece {
            ContentPiece::Text { text, .. } => parts.push(ContentPart::text(text)),
            ContentPiece::File { media, .. } => {
                let mut part = ContentPart::media(media.kind, media.source);
                if let (ContentPart::Media { metadata, .. }, Some(name)) = (&mut part, media.name) {
                    let name = Object::from_entries([("filename", Json::string(&name))]);
                    *metadata = Some(name.into());
                }
                parts.push(part);
            }
            ContentPiece::Source(_) | ContentPiece::Signature(_) => {}
            ContentPiece::Reasoning(_) | ContentPiece::Unknown(_) => {
                return Content::Text(raw_json::json(content, tally).get().into());
            }
        }
    }
    Content::Parts(parts)
}
