//! What comes with an answer: token counts, sources, media.

use serde_json::{Value, json, value::RawValue};

use super::decode::parse;
use crate::{
    event::{MediaKind, MessageId, PartSource, Source, Usage},
    format::adk::{
        base64,
        wire::{
            AdkText, Blob, CitationMetadata, FileData, GroundingMetadata, GroundingSource, UsageMetadata,
        },
    },
    json::{Object, Path, ReadError},
};

/// Adds the token counts of one model turn to those of the run, per model.
pub(super) fn add_usage(usage: &mut Vec<Usage>, counts: &UsageMetadata<'_>, model: Option<&str>) {
    /// More models than this do not take part in one run; the rest is counted together.
    const MODELS: usize = 64;
    let count = |number: Option<f64>| number.filter(|number| *number >= 0.0).map(|number| number as u64);
    let sum = |a: Option<u64>, b: Option<u64>| match (a, b) {
        (None, None) => None,
        (a, b) => Some(a.unwrap_or(0).saturating_add(b.unwrap_or(0))),
    };
    let turn = Usage {
        provider: None,
        model: model.map(Into::into),
        // The canonical totals include their parts; Gemini counts thoughts and tool prompts apart.
        input: sum(count(counts.prompt), count(counts.tool_prompt)),
        output: sum(count(counts.candidates), count(counts.thoughts)),
        total: count(counts.total),
        reasoning: count(counts.thoughts),
        cached_input: count(counts.cached),
        cache_write_input: None,
    };
    let known = usage.iter().position(|entry| entry.model == turn.model);
    let known = known.or_else(|| (usage.len() >= MODELS).then_some(0));
    match known {
        None => usage.push(turn),
        Some(index) => {
            let entry = &mut usage[index];
            entry.input = sum(entry.input, turn.input);
            entry.output = sum(entry.output, turn.output);
            entry.total = sum(entry.total, turn.total);
            entry.reasoning = sum(entry.reasoning, turn.reasoning);
            entry.cached_input = sum(entry.cached_input, turn.cached_input);
        }
    }
}

/// The sources that an answer rests on: grounding chunks in order, then citations of anything else.
///
/// # Errors
/// When the metadata is malformed.
pub(super) fn sources(
    message: &MessageId,
    grounding: Option<&RawValue>,
    citations: Option<&RawValue>,
) -> Result<Vec<Source>, ReadError> {
    let mut sources: Vec<(Source, Value)> = Vec::new();
    let id = |index: usize| MessageId::from(format!("{message}:source:{index}"));
    if let Some(raw) = grounding {
        let grounding: GroundingMetadata<'_> = parse(raw, Path::Key(&Path::Root, "groundingMetadata"))?;
        for chunk in grounding.chunks.iter().flatten() {
            let (info, kind) = match (&chunk.web, &chunk.retrieved, &chunk.maps) {
                (Some(info), ..) => (info, "web"),
                (_, Some(info), _) => (info, "retrievedContext"),
                (.., Some(info)) => (info, "maps"),
                // Keeps the numbers of the chunks that follow.
                _ => (&GroundingSource::default(), "unknown"),
            };
            let mut detail = json!({"kind": kind});
            for (key, text) in [("domain", &info.domain), ("text", &info.text)] {
                if let Some(text) = text {
                    detail[key] = text.as_str().into();
                }
            }
            let source = Source {
                id: id(sources.len()),
                message: Some(message.clone()),
                url: boxed(info.uri.as_ref()),
                title: boxed(info.title.as_ref()),
                media_type: None,
                filename: boxed(info.document.as_ref()),
                detail: None,
            };
            sources.push((source, detail));
        }
        for support in grounding.supports.iter().flatten() {
            let Some(found) = &support.segment else {
                continue;
            };
            let mut segment = json!({});
            let numbers = [("partIndex", found.part), ("startIndex", found.start), ("endIndex", found.end)];
            for (key, number) in numbers {
                if let Some(number) = number {
                    segment[key] = (number as i64).into();
                }
            }
            if let Some(text) = &found.text {
                segment["text"] = text.as_str().into();
            }
            for index in support.chunks.iter().flatten() {
                if let Some((_, detail)) = sources.get_mut(*index as usize) {
                    append(detail, "segments", segment.clone());
                }
            }
        }
        sources.retain(|(source, _)| {
            source.url.is_some() || source.title.is_some() || source.filename.is_some()
        });
    }
    if let Some(raw) = citations {
        let citations: CitationMetadata<'_> = parse(raw, Path::Key(&Path::Root, "citationMetadata"))?;
        for citation in citations.citations.iter().flatten() {
            let mut span = json!({});
            for (key, number) in [("startIndex", citation.start), ("endIndex", citation.end)] {
                if let Some(number) = number {
                    span[key] = (number as i64).into();
                }
            }
            if let Some(license) = &citation.license {
                span["license"] = license.as_str().into();
            }
            let url = boxed(citation.uri.as_ref());
            let known = sources.iter().position(|(source, _)| url.is_some() && source.url == url);
            let index = known.unwrap_or_else(|| {
                let source = Source {
                    id: id(sources.len()),
                    message: Some(message.clone()),
                    url: url.clone(),
                    title: boxed(citation.title.as_ref()),
                    media_type: None,
                    filename: None,
                    detail: None,
                };
                sources.push((source, json!({"kind": "citation"})));
                sources.len() - 1
            });
            append(&mut sources[index].1, "citations", span);
        }
    }
    let finish = |(mut source, detail): (Source, Value)| {
        source.detail = Object::from_value(&detail);
        source
    };
    Ok(sources.into_iter().map(finish).collect())
}

fn append(detail: &mut Value, key: &str, value: Value) {
    match detail.get_mut(key).and_then(Value::as_array_mut) {
        Some(list) => list.push(value),
        None => detail[key] = json!([value]),
    }
}

fn boxed(text: Option<&AdkText<'_>>) -> Option<Box<str>> {
    text.map(AdkText::as_str).filter(|text| !text.is_empty()).map(Into::into)
}

/// Media inside an event.
pub(super) fn inline(blob: &Blob<'_>) -> (MediaKind, PartSource) {
    let mime_type = blob.mime_type.as_ref().map_or("application/octet-stream", AdkText::as_str);
    let data = blob.data.as_ref().map_or("", AdkText::as_str);
    let source = PartSource::Data { value: base64::standard(data), mime_type: mime_type.into() };
    (MediaKind::of_mime(mime_type), source)
}

/// Media elsewhere.
pub(super) fn elsewhere(file: &FileData<'_>) -> (MediaKind, PartSource) {
    let mime_type = file.mime_type.as_ref().map(AdkText::as_str);
    let source = PartSource::Url {
        value: file.uri.as_ref().map_or("", AdkText::as_str).into(),
        mime_type: mime_type.map(Into::into),
    };
    (MediaKind::of_mime(mime_type.unwrap_or_default()), source)
}
