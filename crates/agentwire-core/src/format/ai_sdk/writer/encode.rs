//! Canonical values to AI SDK values: tool input and output, media, usage, finish reasons, interrupts, data part names.
//!
//! The opposite direction is in `reader/decode.rs`.

use std::borrow::Cow;

use bytes::BytesMut;
use serde_json::{Map, Value};

use crate::{
    event::{Content, ContentPart, Interrupt, InterruptId, MediaKind, PartSource, Usage},
    format::{
        ag_ui::shapes::write_interrupt,
        ai_sdk::wire::{self, INTERRUPT_TOOL, data_part::RESERVED},
    },
    json::{Json, Object, ObjectWriter},
};

/// Name of the data part for a CUSTOM event: `[A-Za-z0-9_-]`, never a reserved one.
pub(in super::super) fn data_part_name(name: &str) -> Cow<'_, str> {
    let is_legal = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    let is_reserved = RESERVED.contains(&name) || name.starts_with("custom-");
    if !is_reserved && !name.is_empty() && name.chars().all(is_legal) {
        return Cow::Borrowed(name);
    }
    let mapped: String = name.chars().map(|c| if is_legal(c) { c } else { '-' }).collect();
    let trimmed = mapped.trim_matches('-');
    Cow::Owned(if is_reserved || RESERVED.contains(&trimmed) {
        format!("custom-{}", mapped.trim_start_matches("custom-"))
    } else if trimmed.is_empty() {
        "custom".to_owned()
    } else {
        trimmed.to_owned()
    })
}

/// Returns true if a CUSTOM event of that name is written as a data part of the same name.
pub(in super::super) fn is_plain_data_part_name(name: &str) -> bool {
    let is_special =
        [wire::TOOL_PROGRESS, wire::MESSAGE_METADATA, wire::ANNOTATION, wire::DATA_ITEM, wire::PROVIDER_PART]
            .contains(&name);
    !is_special && data_part_name(name) == name
}

/// Data of a CUSTOM event's data part: its value, or `{name, value}` if the name had to change.
pub(in super::super) fn custom_event_data(name: &str, part_name: &str, value: &Json) -> Json {
    if name == part_name {
        return value.clone();
    }
    Object::from_entries([("name", Json::string(name)), ("value", value.clone())]).into()
}

/// The SDK's finish reason for a native one. `unknown` and `interrupted` are never used: some build of each major
/// version rejects them.
pub(in super::super) fn finish_reason(native: &str) -> &'static str {
    // Python enums print as `FinishReason.STOP`.
    let word = native.rsplit('.').next().unwrap_or(native);
    match word.trim().to_ascii_lowercase().replace(['_', ' '], "-").as_str() {
        "stop" | "end-turn" | "stop-sequence" | "eos" | "complete" | "completed" | "success" => "stop",
        "length"
        | "max-tokens"
        | "max-output-tokens"
        | "max-completion-tokens"
        | "model-length"
        | "model-context-window-exceeded" => "length",
        "tool-calls" | "tool-call" | "tool-use" | "function-call" | "function-calls" => "tool-calls",
        "content-filter" | "safety" | "recitation" | "blocklist" | "prohibited-content" | "spii"
        | "image-safety" | "refusal" | "language" => "content-filter",
        "error" | "malformed-function-call" | "unexpected-tool-call" | "failed" => "error",
        _ => "other",
    }
}

/// `input` of a tool call from its argument text: any JSON. Text that is not JSON, or is a JSON string, becomes a string,
/// so that `decode::argument_text` restores the exact text, except for white space between tokens.
pub(in super::super) fn tool_input(arguments: &str) -> Json {
    if arguments.trim().is_empty() {
        return Object::empty().into();
    }
    match Json::parse(arguments) {
        Ok(json) if !json.get().starts_with('"') => json,
        _ => Json::string(arguments),
    }
}

/// `text` or `json`, if `output` differs from `default`, the output that the writer would derive from the content alone.
pub(in super::super) fn output_type(output: &Json, default: &Json) -> Option<&'static str> {
    (output != default).then_some(if output.get().starts_with('"') { "text" } else { "json" })
}

/// `output` of a tool result; `output_type` is the result of [`output_type`].
pub(in super::super) fn tool_output_as(content: &Content, output_type: Option<&str>) -> Json {
    match (content, output_type) {
        (Content::Text(text), Some("text")) => Json::string(text),
        (Content::Text(text), Some("json")) => Json::parse(text).unwrap_or_else(|_| Json::string(text)),
        _ => tool_output(content),
    }
}

/// `output` of a tool result: objects and lists as JSON, all other text as a string.
pub(in super::super) fn tool_output(content: &Content) -> Json {
    match content {
        Content::Text(text) => match text.trim_start().as_bytes().first() {
            Some(b'{' | b'[') => Json::parse(text).unwrap_or_else(|_| Json::string(text)),
            _ => Json::string(text),
        },
        Content::Parts(parts) => {
            let list = parts.iter().map(tool_output_part).collect();
            let mut map = Map::new();
            map.insert("type".into(), "content".into());
            map.insert("value".into(), Value::Array(list));
            Json::from(Value::Object(map))
        }
    }
}

fn tool_output_part(part: &ContentPart) -> Value {
    match part {
        ContentPart::Text { text, .. } => serde_json::json!({"type": "text", "text": text}),
        ContentPart::Media { kind, source, .. } => match source {
            PartSource::Data { value, mime_type } => {
                serde_json::json!({"type": "media", "data": value, "mediaType": mime_type})
            }
            PartSource::Url { value, .. } => {
                serde_json::json!({"type": "file-url", "url": value, "mediaType": media_type(*kind, source)})
            }
            PartSource::File { value, .. } => {
                serde_json::json!({"type": "file-id", "fileId": value, "mediaType": media_type(*kind, source)})
            }
        },
    }
}

/// Media type of a part; the widest one of its kind if the source has none.
pub(in super::super) fn media_type(kind: MediaKind, source: &PartSource) -> &str {
    source.mime_type().unwrap_or(match kind {
        MediaKind::Image => "image/*",
        MediaKind::Audio => "audio/*",
        MediaKind::Video => "video/*",
        MediaKind::Document => "application/octet-stream",
    })
}

/// URL of a media part, a data URL for inline bytes; `None` for a provider's file id.
pub(in super::super) fn media_url(source: &PartSource) -> Option<Cow<'_, str>> {
    match source {
        PartSource::Data { value, mime_type } => Some(Cow::Owned(format!("data:{mime_type};base64,{value}"))),
        PartSource::Url { value, .. } => Some(Cow::Borrowed(value)),
        PartSource::File { .. } => None,
    }
}

/// Removes keys that clients refuse; the flag is true if there were any.
///
/// The SDK parses with a guard against prototype pollution: a key `__proto__` anywhere in a chunk, or a key
/// `constructor` that holds `null` or an object with a `prototype`, ends the whole stream in an error.
pub(in super::super) fn sanitize(json: &Json) -> (Cow<'_, Json>, bool) {
    let text = json.get().as_bytes();
    let is_suspicious = [&b"__proto__"[..], b"constructor", b"\\u00"]
        .iter()
        .any(|needle| memchr::memmem::find(text, needle).is_some());
    if !is_suspicious {
        return (Cow::Borrowed(json), false);
    }
    let mut value = json.to_value();
    if remove_refused_keys(&mut value) {
        (Cow::Owned(Json::from(value)), true)
    } else {
        (Cow::Borrowed(json), false)
    }
}

/// [`sanitize`] for callers that do not report the removal.
pub(in super::super) fn sanitized(json: &Json) -> Json {
    sanitize(json).0.into_owned()
}

/// Returns true if there were keys to remove.
fn remove_refused_keys(value: &mut Value) -> bool {
    let mut found = false;
    match value {
        Value::Array(list) => {
            for item in list {
                found |= remove_refused_keys(item);
            }
        }
        Value::Object(map) => {
            found |= map.shift_remove("__proto__").is_some();
            let is_refused = map.get("constructor").is_some_and(|value| {
                value.is_null() || value.as_object().is_some_and(|map| map.contains_key("prototype"))
            });
            if is_refused {
                map.shift_remove("constructor");
                found = true;
            }
            for (_, item) in map.iter_mut() {
                found |= remove_refused_keys(item);
            }
        }
        _ => {}
    }
    found
}

/// JSON object with the members that `fill` writes.
pub(in super::super) fn build_object(fill: impl FnOnce(&mut ObjectWriter<'_>)) -> Object {
    let mut out = BytesMut::new();
    let mut w = ObjectWriter::new(&mut out);
    fill(&mut w);
    w.end();
    Json::trusted(String::from_utf8(out.into()).expect("JSON text is UTF-8"))
        .into_object()
        .expect("an object writer writes an object")
}

/// Data of `data-interrupt`, also the input of the tool call that represents the interrupt.
pub(in super::super) fn interrupt_data(interrupt: &Interrupt) -> Object {
    build_object(|w| write_interrupt(w, interrupt, "subagentId"))
}

/// Id of the tool call that represents an interrupt. The prefix keeps it apart from the call that the interrupt guards,
/// whose id may be that of the interrupt.
pub(in super::super) fn interrupt_call_id(interrupt: &InterruptId) -> String {
    format!("{INTERRUPT_TOOL}:{interrupt}")
}

/// Sum of all usage entries.
pub(in super::super) fn total_usage(usage: &[Usage]) -> Usage {
    let mut total = Usage::default();
    let add = |sum: &mut Option<u64>, tokens: Option<u64>| {
        if let Some(tokens) = tokens {
            *sum = Some(sum.unwrap_or(0).saturating_add(tokens));
        }
    };
    for entry in usage {
        add(&mut total.input, entry.input);
        add(&mut total.output, entry.output);
        let entry_total = entry.total.or(match (entry.input, entry.output) {
            (None, None) => None,
            (input, output) => Some(input.unwrap_or(0).saturating_add(output.unwrap_or(0))),
        });
        add(&mut total.total, entry_total);
        add(&mut total.reasoning, entry.reasoning);
        add(&mut total.cached_input, entry.cached_input);
        add(&mut total.cache_write_input, entry.cache_write_input);
    }
    total
}

/// Members of usage in the spelling of version 5 and newer.
pub(in super::super) fn write_usage(w: &mut ObjectWriter<'_>, usage: &Usage) {
    let count = |tokens: Option<u64>| tokens.and_then(|tokens| i64::try_from(tokens).ok());
    w.opt_str("provider", usage.provider.as_deref())
        .opt_str("model", usage.model.as_deref())
        .opt_int("inputTokens", count(usage.input))
        .opt_int("outputTokens", count(usage.output))
        .opt_int("totalTokens", count(usage.total))
        .opt_int("reasoningTokens", count(usage.reasoning))
        .opt_int("cachedInputTokens", count(usage.cached_input))
        .opt_int("cacheWriteInputTokens", count(usage.cache_write_input));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refused_keys_are_removed_at_any_depth() {
        for (given, wanted) in [
            (r#"{"a":{"__proto__":{"x":1},"b":2}}"#, Some(r#"{"a":{"b":2}}"#)),
            (r#"[{"\u005f_proto__":1}]"#, Some("[{}]")),
            (r#"{"constructor":null}"#, Some("{}")),
            (r#"{"constructor":{"prototype":1}}"#, Some("{}")),
            (r#"{"constructor":"Ferrari"}"#, None),
            (r#"{"text":"\"__proto__\":"}"#, None),
        ] {
            let json = Json::parse(given).unwrap();
            let (sanitized, changed) = sanitize(&json);
            assert_eq!(changed, wanted.is_some(), "{given}");
            assert_eq!(sanitized.get(), wanted.unwrap_or(given), "{given}");
        }
    }

    #[test]
    fn finish_reasons_of_every_runtime_are_mapped() {
        for (native, wanted) in [
            ("STOP", "stop"),
            ("end_turn", "stop"),
            ("max_output_tokens", "length"),
            ("model_context_window_exceeded", "length"),
            ("MAX_TOKENS", "length"),
            ("FinishReason.MAX_TOKENS", "length"),
            ("tool_calls", "tool-calls"),
            ("tool_use", "tool-calls"),
            ("SAFETY", "content-filter"),
            ("content_filter", "content-filter"),
            ("MALFORMED_FUNCTION_CALL", "error"),
            ("unknown", "other"),
            ("interrupted", "other"),
        ] {
            assert_eq!(finish_reason(native), wanted, "{native}");
        }
    }
}
