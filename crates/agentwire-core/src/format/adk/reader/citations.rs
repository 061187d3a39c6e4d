//! The sources of a text, from grounding metadata and citations.

use serde_json::{Value, json, value::RawValue};

use super::decode::parse;
use crate::{
    event::{Citation, MessageId},
    format::adk::wire::{AdkText, CitationMetadata, GroundingMetadata, GroundingSource},
    json::{Object, Path, ReadResult},
};

/// The sources of a message: grounding chunks in order, then citations of other addresses.
///
/// # Errors
/// When the metadata is malformed.
pub(super) fn sources(
    message: &MessageId,
    grounding: Option<&RawValue>,
    citations: Option<&RawValue>,
) -> ReadResult<Vec<Citation>> {
    let mut sources: Vec<(Citation, Value)> = Vec::new();
    let id = |index: usize| MessageId::from(format!("{message}:source:{index}"));
    if let Some(raw) = grounding {
        let grounding: GroundingMetadata<'_> = parse(raw, Path::Key(&Path::Root, "groundingMetadata"))?;
        for chunk in grounding.chunks.iter().flatten() {
            let (source, kind) = match (&chunk.web, &chunk.retrieved, &chunk.maps) {
                (Some(source), ..) => (source, "web"),
                (_, Some(source), _) => (source, "retrievedContext"),
                (.., Some(source)) => (source, "maps"),
                // A placeholder, so that the indices of later chunks stay right.
                _ => (&GroundingSource::default(), "unknown"),
            };
            let mut detail = json!({"kind": kind});
            for (key, text) in [("domain", &source.domain), ("text", &source.text)] {
                if let Some(text) = text {
                    detail[key] = text.as_str().into();
                }
            }
            let source = Citation {
                id: id(sources.len()),
                message: Some(message.clone()),
                url: boxed(source.uri.as_ref()),
                title: boxed(source.title.as_ref()),
                media_type: None,
                filename: boxed(source.document.as_ref()),
                detail: None,
            };
            sources.push((source, detail));
        }
        for support in grounding.supports.iter().flatten() {
            let Some(range) = &support.segment else {
                continue;
            };
            let mut segment = json!({});
            let numbers = [("partIndex", range.part), ("startIndex", range.start), ("endIndex", range.end)];
            for (key, number) in numbers {
                if let Some(number) = number {
                    segment[key] = (number as i64).into();
                }
            }
            if let Some(text) = &range.text {
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
                let source = Citation {
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
    let finish = |(mut source, detail): (Citation, Value)| {
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
