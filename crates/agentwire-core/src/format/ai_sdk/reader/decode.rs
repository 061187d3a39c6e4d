//! AI SDK values to canonical values: tool input and output, media, usage, interrupts, CUSTOM events, derived ids.
//!
//! The opposite direction is in `writer/encode.rs`.

use serde_json::Value;

use super::metadata::agentwire_member;
use crate::{
    event::{Content, ContentPart, Interrupt, MediaKind, PartSource, Usage},
    format::ai_sdk::{
        wire::{AGENTWIRE, INTERRUPT_TOOL, native},
        writer::encode,
    },
    json::{Json, Object},
};

/// Detail of a source from its `providerMetadata`: agentwire's member `detail`, and the metadata of other providers.
pub(in super::super) fn source_detail(metadata: Option<&Object>) -> Option<Object> {
    let metadata = metadata?;
    let detail = agentwire_member(Some(metadata))
        .and_then(|members| members.member("detail"))
        .and_then(Json::into_object);
    let foreign = metadata.without(AGENTWIRE);
    if foreign.is_empty() {
        return detail;
    }
    Some(detail.unwrap_or_else(Object::empty).with(native::PROVIDER_METADATA, foreign.into()))
}

/// Name and value of the CUSTOM event behind `data-<part_name>`.
pub(in super::super) fn custom_event(part_name: &str, data: Json) -> (Box<str>, Json) {
    if let Some(object) = data.clone().into_object()
        && let [(first, name), (second, value)] = &object.entries()[..]
        && (first.as_str(), second.as_str()) == ("name", "value")
        && let Some(name) = name.as_str()
        && name != part_name
        && encode::data_part_name(&name) == part_name
    {
        return (name.into(), value.clone());
    }
    (part_name.into(), data)
}

/// Argument text of a tool call from its `input`.
pub(in super::super) fn argument_text(input: &Json) -> String {
    input.as_str().unwrap_or_else(|| input.get().to_owned())
}

/// Content of a tool result from its `output`.
pub(in super::super) fn tool_result_content(output: &Json) -> Content {
    if let Some(text) = output.as_str() {
        return Content::Text(text.into());
    }
    if output.get().starts_with(r#"{"type":"content","value":["#)
        && let Some(parts) = content_parts(&output.to_value())
    {
        return Content::Parts(parts);
    }
    Content::Text(output.get().into())
}

fn content_parts(output: &Value) -> Option<Vec<ContentPart>> {
    let text = |value: &Value, key: &str| -> Option<Box<str>> { Some(value.get(key)?.as_str()?.into()) };
    let mut parts = Vec::new();
    for part in output.get("value")?.as_array()? {
        let media = |source: PartSource| -> Option<ContentPart> {
            let kind = MediaKind::of_mime(source.mime_type()?);
            Some(ContentPart::Media { kind, source, id: None, metadata: None })
        };
        parts.push(match part.get("type")?.as_str()? {
            "text" => ContentPart::text(text(part, "text")?),
            "media" => {
                media(PartSource::Data { value: text(part, "data")?, mime_type: text(part, "mediaType")? })?
            }
            "file-url" => {
                media(PartSource::Url { value: text(part, "url")?, mime_type: text(part, "mediaType") })?
            }
            "file-id" => media(PartSource::File {
                value: text(part, "fileId")?,
                provider: None,
                mime_type: text(part, "mediaType"),
            })?,
            _ => return None,
        });
    }
    Some(parts)
}

/// Media source from a URL; data URLs become inline data.
pub(in super::super) fn media_source(url: &str, media_type: Option<&str>) -> PartSource {
    if let Some(rest) = url.strip_prefix("data:")
        && let Some((head, data)) = rest.split_once(',')
        && let Some(declared) = head.strip_suffix(";base64")
    {
        // The part's media type takes precedence over the one in the URL, unless it is a wildcard.
        let mime_type = match media_type {
            Some(given) if !given.is_empty() && !given.ends_with("/*") => given,
            _ if !declared.is_empty() => declared,
            _ => "application/octet-stream",
        };
        return PartSource::Data { value: data.into(), mime_type: mime_type.into() };
    }
    PartSource::Url {
        value: url.into(),
        mime_type: media_type.filter(|given| !given.is_empty() && !given.ends_with("/*")).map(Into::into),
    }
}

/// Interrupt from the data of `data-interrupt`; `None` if the data has another shape.
pub(in super::super) fn read_interrupt(data: &Json) -> Option<Interrupt> {
    let data = data.clone().into_object()?;
    let mut interrupt = Interrupt::new(data.get_str("id")?, data.get_str("reason")?);
    interrupt.message = data.get_str("message").map(Into::into);
    interrupt.tool_call = data.get_str("toolCallId").map(Into::into);
    interrupt.response_schema = data.member("responseSchema").and_then(Json::into_object);
    interrupt.expires_at = data.get_str("expiresAt").map(Into::into);
    interrupt.metadata = data.member("metadata").and_then(Json::into_object);
    interrupt.subagent = data.get_str("subagentId").map(Into::into);
    Some(interrupt)
}

/// Interrupt that a tool part represents; `None` for an ordinary tool call.
pub(in super::super) fn interrupt_of_call(name: &str, call: &str, input: &Json) -> Option<Interrupt> {
    if name != INTERRUPT_TOOL {
        return None;
    }
    let interrupt = read_interrupt(input)?;
    (encode::interrupt_call_id(&interrupt.id) == call).then_some(interrupt)
}

/// Error text of a version 4 result: `{"error": text}`, as agentwire's writer encodes failed tools.
pub(in super::super) fn error_of_result(result: &Json) -> Option<String> {
    let object = result.clone().into_object()?;
    match &object.entries()[..] {
        [(key, value)] if key == "error" => value.as_str(),
        _ => None,
    }
}

/// Usage in the spelling of any version.
pub(in super::super) fn read_usage(usage: &Value) -> Option<Usage> {
    let usage = usage.as_object()?;
    let tokens = |keys: [&str; 2]| {
        keys.iter()
            .find_map(|key| usage.get(*key))
            .and_then(|value| value.as_u64().or_else(|| whole_number(value.as_f64()?)))
    };
    let text = |key: &str| usage.get(key).and_then(Value::as_str).map(Into::into);
    // Versions 6 and 7 nest the details.
    let detail = |group: &str, key: &str| usage.get(group)?.get(key)?.as_u64();
    let found = Usage {
        provider: text("provider"),
        model: text("model"),
        input: tokens(["inputTokens", "promptTokens"]),
        output: tokens(["outputTokens", "completionTokens"]),
        total: tokens(["totalTokens", "totalTokens"]),
        reasoning: tokens(["reasoningTokens", "reasoningTokens"])
            .or_else(|| detail("outputTokenDetails", "reasoningTokens")),
        cached_input: tokens(["cachedInputTokens", "cachedInputTokens"])
            .or_else(|| detail("inputTokenDetails", "cacheReadTokens")),
        cache_write_input: tokens(["cacheWriteInputTokens", "cacheWriteInputTokens"])
            .or_else(|| detail("inputTokenDetails", "cacheWriteTokens")),
    };
    (found != Usage::default()).then_some(found)
}

fn whole_number(number: f64) -> Option<u64> {
    (number.fract() == 0.0 && (0.0..=9_007_199_254_740_991.0).contains(&number)).then_some(number as u64)
}

/// Id of the n-th item (counting from 1) of a kind within a UI message. The first text message (kind "") has the id of
/// the UI message itself.
pub(in super::super) fn derived_id(base: &str, kind: &str, n: u64) -> String {
    match (kind, n) {
        ("", 1) => base.to_owned(),
        ("", n) => format!("{base}:{n}"),
        (kind, n) => format!("{base}:{kind}:{n}"),
    }
}

/// Id of the message that holds a tool result.
pub(in super::super) fn result_message_id(call: &str) -> String {
    format!("{call}:result")
}
