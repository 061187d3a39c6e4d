//! What is inside a message's `content`: a string, or blocks in the words of every provider.
//!
//! LangChain passes provider blocks through, and since 1.0 also has blocks of its own. One chunk may hold
//! reasoning and text and an image, so blocks are taken one by one, in order.

use std::borrow::Cow;

use serde_json::value::RawValue;

use super::super::{
    raw_json,
    wire::{Block, Inner},
};
use crate::{
    event::{Content, ContentPart, MediaKind, PartSource},
    json::{Json, Object},
    tally::Tally,
};

/// One thing that a block says.
#[derive(Debug)]
pub(super) enum Piece<'a> {
    Text {
        text: Cow<'a, str>,
        /// The string as it lies on the wire.
        raw: &'a RawValue,
    },
    Reasoning(Reasoning<'a>),
    File {
        index: Cow<'a, str>,
        media: Media<'a>,
    },
    Source(&'a RawValue),
    /// What only the provider can read, about the text itself.
    Signature(Cow<'a, str>),
    /// A block that nobody knows.
    Other(&'a RawValue),
}

/// A piece of reasoning.
#[derive(Debug, Default)]
pub(super) struct Reasoning<'a> {
    /// The block it belongs to.
    pub(super) block: Cow<'a, str>,
    /// Which part of the block; a new one is a new message.
    pub(super) part: u64,
    /// The provider's id of the block, on its first chunk.
    pub(super) id: Option<Cow<'a, str>>,
    pub(super) text: Option<(Cow<'a, str>, &'a RawValue)>,
    /// A signature, or reasoning that only the provider can read.
    pub(super) encrypted: Option<Cow<'a, str>>,
}

/// Where media are.
#[derive(Debug)]
pub(super) struct Media<'a> {
    pub(super) kind: MediaKind,
    pub(super) source: PartSource,
    pub(super) name: Option<Cow<'a, str>>,
}

/// The pieces of a message's content. Blocks of a whole message that have no index are told apart by their
/// place; those of a chunk continue one another.
pub(super) fn pieces<'a>(content: &'a RawValue, whole: bool, tally: &mut Tally) -> Vec<Piece<'a>> {
    let mut pieces = Vec::new();
    if let Some(text) = raw_json::string(content, tally) {
        pieces.push(Piece::Text { text, raw: content });
    } else if let Some(blocks) = raw_json::elements(content) {
        for (place, raw) in blocks.into_iter().enumerate() {
            block(raw, if whole { place } else { 0 }, tally, &mut pieces);
        }
    } else if raw_json::is_object(content) {
        block(content, 0, tally, &mut pieces);
    } else {
        tally.note("wrong type", "content");
    }
    pieces
}

/// The pieces of one block.
pub(super) fn block_pieces<'a>(raw: &'a RawValue, tally: &mut Tally) -> Vec<Piece<'a>> {
    let mut pieces = Vec::new();
    block(raw, 0, tally, &mut pieces);
    pieces
}

fn block<'a>(raw: &'a RawValue, place: usize, tally: &mut Tally, pieces: &mut Vec<Piece<'a>>) {
    if let Some(text) = raw_json::string(raw, tally) {
        return pieces.push(Piece::Text { text, raw });
    }
    let Some(block) = Block::of(raw) else {
        return tally.note("wrong type", "content block");
    };
    known(raw, &block, place, false, tally, pieces);
}

fn known<'a>(
    raw: &'a RawValue,
    block: &Block<'a>,
    place: usize,
    wrapped: bool,
    tally: &mut Tally,
    pieces: &mut Vec<Piece<'a>>,
) {
    let kind = match raw_json::filled(block.kind, tally) {
        Some(kind) => kind,
        None if block.text.is_some() => Cow::Borrowed("text"),
        // `{"index": 2}` is how some providers say that a block is complete.
        None if is_bare(raw) => return,
        None => Cow::Borrowed(""),
    };
    let index = || match block.index {
        Some(index) => Cow::Borrowed(index.get().trim_matches('"')),
        None => Cow::Owned(place.to_string()),
    };
    let reasoning =
        |text, encrypted, id| Piece::Reasoning(Reasoning { block: index(), part: 0, id, text, encrypted });
    let mut text = |raw: Option<&'a RawValue>| raw.and_then(|raw| Some((raw_json::string(raw, tally)?, raw)));
    match &*kind {
        "text" | "output_text" | "input_text" | "refusal" => {
            if let Some((text, raw)) = text(block.text.or(block.refusal)) {
                pieces.push(Piece::Text { text, raw });
            }
            for list in [block.annotations, block.citations].into_iter().flatten() {
                let list = raw_json::elements(list).unwrap_or_default();
                pieces.extend(list.into_iter().filter(|raw| raw_json::is_object(raw)).map(Piece::Source));
            }
            // Gemini signs its text, too.
            let signature = block.extras.and_then(Inner::of).and_then(|extras| extras.signature);
            pieces.extend(text(signature).map(|(signature, _)| Piece::Signature(signature)));
        }
        "thinking" => {
            let (said, signature) = (text(block.thinking), text(block.signature));
            pieces.push(reasoning(said, signature.map(|(text, _)| text), None));
        }
        "redacted_thinking" => {
            let data = text(block.data).map(|(text, _)| text);
            pieces.push(reasoning(None, data, None));
        }
        "reasoning" => {
            let id = text(block.id).map(|(text, _)| text).filter(|id| !id.is_empty());
            let signature = block.extras.and_then(Inner::of).and_then(|extras| extras.signature);
            let encrypted = text(block.encrypted_content.or(signature)).map(|(text, _)| text);
            let said = text(block.reasoning.or(block.text));
            let parts = block.summary.and_then(raw_json::elements).unwrap_or_default();
            if said.is_some() || encrypted.is_some() || parts.is_empty() {
                pieces.push(reasoning(said, None, id.clone()));
            }
            for (place, part) in parts.into_iter().enumerate() {
                let Some(part) = Inner::of(part) else { continue };
                let said = text(part.text);
                pieces.push(Piece::Reasoning(Reasoning {
                    block: index(),
                    part: raw_json::count(part.index).unwrap_or(place as u64),
                    id: id.clone(),
                    text: said,
                    encrypted: None,
                }));
            }
            if encrypted.is_some() {
                pieces.push(reasoning(None, encrypted, id));
            }
        }
        "reasoning_content" => {
            let inner = block.reasoning_content.and_then(Inner::of).unwrap_or_default();
            let said = text(inner.text.or(block.reasoning_content));
            let redacted = inner.redacted_content.or(inner.redacted_camel);
            let opaque = text(inner.signature.or(redacted)).map(|(text, _)| text);
            pieces.push(reasoning(said, opaque, None));
        }
        // Wrapped once, never deeper: nothing that a peer sends may exhaust the stack.
        "non_standard" if !wrapped => {
            if let Some(value) = block.value
                && let Some(inner) = Block::of(value)
                && inner.kind.is_some()
            {
                known(value, &inner, place, true, tally, pieces);
            }
        }
        // The same calls are in `tool_call_chunks` and `tool_calls`.
        "tool_use" | "input_json_delta" | "tool_call" | "tool_call_chunk" | "function_call"
        | "invalid_tool_call" => {}
        _ => match media(block, &kind, tally) {
            Some(media) => pieces.push(Piece::File { index: index(), media }),
            None => pieces.push(Piece::Other(raw)),
        },
    }
}

/// Whether a block has a place and nothing else.
fn is_bare(raw: &RawValue) -> bool {
    raw_json::members(raw)
        .is_some_and(|members| members.iter().all(|(key, _)| matches!(&**key, "index" | "id")))
}

/// The media that a block holds or points to.
fn media<'a>(block: &Block<'a>, kind: &str, tally: &mut Tally) -> Option<Media<'a>> {
    let mut text = |raw: Option<&'a RawValue>| raw_json::filled(raw, tally);
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
    // LangChain 0.3 names the kind of source; the id of a file is then the block's own.
    if text(block.source_type).is_some_and(|kind| kind == "id") {
        file = file.or_else(|| text(block.id));
    }
    for inner in [block.source, block.file, block.input_audio, block.image_url].into_iter().flatten() {
        let Some(inner) = Inner::of(inner) else { continue };
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
    // A `data:` address is data, wherever it stands.
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
    Some(Media { kind, source, name })
}

/// The text of a message's content, without reasoning.
pub(super) fn text(content: Option<&RawValue>, tally: &mut Tally) -> String {
    let Some(content) = content else { return String::new() };
    let mut all = String::new();
    for piece in pieces(content, true, tally) {
        if let Piece::Text { text, .. } = piece {
            all.push_str(&text);
        }
    }
    all
}

/// The content of what a person said or a tool returned: text, parts, or JSON where no part can hold it.
pub(super) fn body(content: Option<&RawValue>, tally: &mut Tally) -> Content {
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
            Piece::Text { text, .. } => parts.push(ContentPart::text(text)),
            Piece::File { media, .. } => {
                let mut part = ContentPart::media(media.kind, media.source);
                if let (ContentPart::Media { metadata, .. }, Some(name)) = (&mut part, media.name) {
                    let name = Object::from_entries([("filename", Json::string(&name))]);
                    *metadata = Some(name.into());
                }
                parts.push(part);
            }
            Piece::Source(_) | Piece::Signature(_) => {}
            Piece::Reasoning(_) | Piece::Other(_) => {
                return Content::Text(raw_json::json(content, tally).get().into());
            }
        }
    }
    Content::Parts(parts)
}
