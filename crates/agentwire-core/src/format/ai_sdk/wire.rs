//! The AI SDK's own words, and what agentwire puts into the places that the SDK leaves open.
//!
//! Everything that both directions must agree on is here: the names of our data parts, how tool arguments and
//! results look as JSON values, how reasons and usage are spelt.

use std::borrow::Cow;

use bytes::BytesMut;
use serde_json::{Map, Value};

use crate::{
    event::{Content, ContentPart, Interrupt, InterruptId, MediaKind, PartSource, Usage},
    json::{Json, Object, ObjectWriter},
};

/// The provider under which our own metadata travels: `providerMetadata.agentwire`, `metadata.agentwire`.
pub(super) const AGENTWIRE: &str = "agentwire";

/// The member of canonical metadata that keeps what only the AI SDK has a place for.
pub(super) const AI_SDK: &str = "aiSdk";

/// Our members of metadata on a run, a step and a message: the id of the SDK's message that it came with.
pub(super) const OWN_MESSAGE: &str = "message";

/// Our member of a run's metadata: the metadata of the message that the run builds, as far as its start told it.
pub(super) const OWN_METADATA: &str = "metadata";

/// Our member of a step's metadata: the SDK's steps have no names, so that this one's name was made up.
pub(super) const OWN_UNNAMED: &str = "unnamed";

/// Our members of a call's metadata, in the words of the SDK.
pub(super) mod own_call {
    /// `static` for a part of a tool that the user interface knows.
    pub(in super::super) const PART: &str = "part";
    pub(in super::super) const STATIC: &str = "static";
    pub(in super::super) const REMOTE: &str = "providerExecuted";
    pub(in super::super) const TITLE: &str = "title";
    pub(in super::super) const TOOL_METADATA: &str = "toolMetadata";
    /// The input, where it is not what the argument text says: a string that reads like JSON, or arguments that were
    /// repaired or completed after they had streamed.
    pub(in super::super) const INPUT: &str = "input";
    /// Why the input cannot be used.
    pub(in super::super) const INPUT_ERROR: &str = "inputError";
}

/// Our member of a result's metadata: `text` or `json`, where the content does not tell which of them the output was.
pub(super) const OWN_OUTPUT: &str = "output";

/// Our member of a refused result's metadata: the id of the approval that was asked for.
pub(super) const OWN_APPROVAL: &str = "approval";

/// Our member of a file's metadata: it is part of the reasoning.
pub(super) const OWN_REASONING: &str = "reasoning";

/// Our member of metadata: what providers said about a part.
pub(super) const OWN_PROVIDERS: &str = "providerMetadata";

/// The tool whose call stands for an interrupt that no approval request can express.
pub(super) const INTERRUPT_TOOL: &str = "interrupt";

/// The id of the one state part.
pub(super) const STATE_ID: &str = "state";

/// CUSTOM events of this name are a tool's progress: `{toolCallId, output}`.
pub(super) const TOOL_PROGRESS: &str = "agentwire.tool_progress";

/// CUSTOM events of this name are metadata of the message being built.
pub(super) const MESSAGE_METADATA: &str = "message-metadata";

/// CUSTOM events of this name are an annotation of the message being built (AI SDK 4).
pub(super) const ANNOTATION: &str = "message-annotation";

/// CUSTOM events of this name are an item of AI SDK 4's data array that has no name of its own.
pub(super) const DATA_ITEM: &str = "data";

/// CUSTOM events of this name are a provider's own part (AI SDK 7): `{kind, providerMetadata}`.
pub(super) const PROVIDER_PART: &str = "ai-sdk.custom";

/// What the part of a call says that was open when its run was stopped or broke.
pub(super) const UNFINISHED: &str = "the run ended before the tool was called";

/// What a tool result says that a person refused.
pub(super) const DENIED: &str = "denied by the user";

/// The data parts that carry canonical events which the SDK has no part for.
pub(super) mod part {
    pub(in super::super) const STATE: &str = "state";
    pub(in super::super) const ACTIVITY: &str = "activity";
    pub(in super::super) const STEP: &str = "step";
    pub(in super::super) const INTERRUPT: &str = "interrupt";
    pub(in super::super) const SUBAGENT: &str = "subagent";
    pub(in super::super) const BLOCK: &str = "block";
    pub(in super::super) const COLLABORATION: &str = "collaboration";
    pub(in super::super) const MESSAGE: &str = "message";
    pub(in super::super) const RAW: &str = "raw";
    pub(in super::super) const ENCRYPTED: &str = "encrypted";
    pub(in super::super) const FILE: &str = "file";
    pub(in super::super) const CHAIN_START: &str = "chain-start";
    pub(in super::super) const TOOL_PROGRESS: &str = "tool-progress";

    /// All of them: an application's event of such a name must not be taken for ours.
    pub(in super::super) const RESERVED: &[&str] = &[
        STATE,
        ACTIVITY,
        STEP,
        INTERRUPT,
        SUBAGENT,
        BLOCK,
        COLLABORATION,
        MESSAGE,
        RAW,
        ENCRYPTED,
        FILE,
        CHAIN_START,
        TOOL_PROGRESS,
    ];
}

/// What only the AI SDK has a place for, in the metadata of an event or a message.
pub(super) fn own(metadata: Option<&Object>) -> Option<Object> {
    metadata?.member(AI_SDK)?.into_object()
}

/// `metadata` with one more member of ours.
pub(super) fn with_own(metadata: Option<Object>, key: &str, value: Json) -> Object {
    let own = own(metadata.as_ref()).unwrap_or_else(Object::empty);
    metadata.unwrap_or_else(Object::empty).with(AI_SDK, own.with(key, value).into())
}

/// `metadata` with that of a later event laid over it, ours member by member.
pub(super) fn merged(metadata: &Object, later: &Object) -> Object {
    let ours = own(Some(later)).map(|own| own.entries()).unwrap_or_default();
    let all = metadata.merged(&later.without(AI_SDK));
    ours.into_iter().fold(all, |all, (key, value)| with_own(Some(all), &key, value))
}

/// `metadata` without some members of ours; `None` if nothing is left.
pub(super) fn without_own(metadata: &Object, keys: &[&str]) -> Option<Object> {
    let rest = match own(Some(metadata)) {
        Some(own) => {
            let own = keys.iter().fold(own, |own, key| own.without(key));
            if own.is_empty() { metadata.without(AI_SDK) } else { metadata.with(AI_SDK, own.into()) }
        }
        None => metadata.clone(),
    };
    (!rest.is_empty()).then_some(rest)
}

/// `true`.
pub(super) fn yes() -> Json {
    Json::from(Value::Bool(true))
}

/// Whether our metadata says `true` under `key`.
pub(super) fn own_flag(metadata: Option<&Object>, key: &str) -> bool {
    own(metadata).and_then(|own| own.member(key)).is_some_and(|flag| flag.get() == "true")
}

/// What providers said about the thing that `metadata` belongs to, as far as a client accepts it.
pub(super) fn providers(metadata: Option<&Object>) -> Option<Object> {
    let said = own(metadata)?.member(OWN_PROVIDERS).filter(is_provider_metadata)?;
    safe(&said).0.into_owned().into_object()
}

/// Our facts beside what providers said, as `providerMetadata`; `None` if nobody said anything.
pub(super) fn beside(providers: Option<Object>, facts: Object) -> Option<Object> {
    let all = providers.unwrap_or_else(Object::empty).without(AGENTWIRE);
    let all = if facts.is_empty() { all } else { all.with(AGENTWIRE, facts.into()) };
    (!all.is_empty()).then_some(all)
}

/// A source's detail without what providers said about it, and that.
pub(super) fn detail_apart(detail: Option<&Object>) -> (Option<Json>, Option<Object>) {
    let Some(detail) = detail else { return (None, None) };
    let providers = detail.member(OWN_PROVIDERS).filter(is_provider_metadata).and_then(Json::into_object);
    let rest = if providers.is_some() { detail.without(OWN_PROVIDERS) } else { detail.clone() };
    ((!rest.is_empty()).then(|| rest.into()), providers)
}

/// A source's detail: ours, and what providers said about it, from its `providerMetadata`.
pub(super) fn detail_of(metadata: Option<&Object>) -> Option<Object> {
    let metadata = metadata?;
    let own = metadata.member(AGENTWIRE).and_then(Json::into_object);
    let detail = own.and_then(|own| own.member("detail")).and_then(Json::into_object);
    let foreign = metadata.without(AGENTWIRE);
    if foreign.is_empty() {
        return detail;
    }
    Some(detail.unwrap_or_else(Object::empty).with(OWN_PROVIDERS, foreign.into()))
}

/// The part of a data part's name that stands for a CUSTOM event: `[A-Za-z0-9_-]`, never one of ours.
pub(super) fn legal_name(name: &str) -> Cow<'_, str> {
    let legal = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    let reserved = part::RESERVED.contains(&name) || name.starts_with("custom-");
    if !reserved && !name.is_empty() && name.chars().all(legal) {
        return Cow::Borrowed(name);
    }
    let mapped: String = name.chars().map(|c| if legal(c) { c } else { '-' }).collect();
    let trimmed = mapped.trim_matches('-');
    Cow::Owned(if reserved || part::RESERVED.contains(&trimmed) {
        format!("custom-{}", mapped.trim_start_matches("custom-"))
    } else if trimmed.is_empty() {
        "custom".to_owned()
    } else {
        trimmed.to_owned()
    })
}

/// Whether a data part of that name stands for a CUSTOM event of that name, and for nothing else.
pub(super) fn is_plain_name(name: &str) -> bool {
    let means_more = [TOOL_PROGRESS, MESSAGE_METADATA, ANNOTATION, DATA_ITEM, PROVIDER_PART].contains(&name);
    !means_more && legal_name(name) == name
}

/// What a CUSTOM event's data part holds: its value, or name and value when the name had to change.
pub(super) fn custom_data(name: &str, legal: &str, value: &Json) -> Json {
    if name == legal {
        return value.clone();
    }
    Object::from_entries([("name", Json::string(name)), ("value", value.clone())]).into()
}

/// The name and value of the CUSTOM event that `data-<legal>` stands for.
pub(super) fn custom_from(legal: &str, data: Json) -> (Box<str>, Json) {
    if let Some(object) = data.clone().into_object()
        && let [(first, name), (second, value)] = &object.entries()[..]
        && (first.as_str(), second.as_str()) == ("name", "value")
        && let Some(name) = name.as_str()
        && name != legal
        && legal_name(&name) == legal
    {
        return (name.into(), value.clone());
    }
    (legal.into(), data)
}

/// The SDK's word for why a model stopped. `unknown` and `interrupted` are never used: some version of each
/// line refuses them.
pub(super) fn finish_reason(native: &str) -> &'static str {
    // Python enums print as `FinishReason.STOP`.
    let word = native.rsplit('.').next().unwrap_or(native);
    match word.trim().to_ascii_lowercase().replace(['_', ' '], "-").as_str() {
        "stop" | "end-turn" | "stop-sequence" | "eos" | "complete" | "completed" | "success" => "stop",
        "length" | "max-tokens" | "max-output-tokens" | "max-completion-tokens" | "model-length" => "length",
        "tool-calls" | "tool-call" | "tool-use" | "function-call" | "function-calls" => "tool-calls",
        "content-filter" | "safety" | "recitation" | "blocklist" | "prohibited-content" | "spii"
        | "image-safety" | "refusal" | "language" => "content-filter",
        "error" | "malformed-function-call" | "unexpected-tool-call" | "failed" => "error",
        _ => "other",
    }
}

/// A tool's arguments as the SDK's `input`: any JSON, except that text which is no JSON, or is a JSON string,
/// travels as a string. [`arguments_from`] is the exact inverse, white space between tokens aside.
pub(super) fn arguments(text: &str) -> Json {
    if text.trim().is_empty() {
        return Object::empty().into();
    }
    match Json::parse(text) {
        Ok(json) if !json.get().starts_with('"') => json,
        _ => Json::string(text),
    }
}

/// The argument text that an `input` stands for.
pub(super) fn arguments_from(input: &Json) -> String {
    input.as_str().unwrap_or_else(|| input.get().to_owned())
}

/// What must be known beside `text` to make `value` of it again, if `made` is what would be made of it otherwise.
pub(super) fn kind_of(value: &Json, made: &Json) -> Option<&'static str> {
    (value != made).then_some(if value.get().starts_with('"') { "text" } else { "json" })
}

/// A tool's answer as the SDK's `output`; `kind` is what [`kind_of`] said of it.
pub(super) fn output_as(content: &Content, kind: Option<&str>) -> Json {
    match (content, kind) {
        (Content::Text(text), Some("text")) => Json::string(text),
        (Content::Text(text), Some("json")) => Json::parse(text).unwrap_or_else(|_| Json::string(text)),
        _ => output(content),
    }
}

/// A tool's answer as the SDK's `output`: objects and lists as they are, everything else as a string.
pub(super) fn output(content: &Content) -> Json {
    match content {
        Content::Text(text) => match text.trim_start().as_bytes().first() {
            Some(b'{' | b'[') => Json::parse(text).unwrap_or_else(|_| Json::string(text)),
            _ => Json::string(text),
        },
        Content::Parts(parts) => {
            let list = parts.iter().map(output_part).collect();
            let mut map = Map::new();
            map.insert("type".into(), "content".into());
            map.insert("value".into(), Value::Array(list));
            Json::from(Value::Object(map))
        }
    }
}

fn output_part(part: &ContentPart) -> Value {
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

/// The answer that an `output` stands for.
pub(super) fn content_from(output: &Json) -> Content {
    if let Some(text) = output.as_str() {
        return Content::Text(text.into());
    }
    if output.get().starts_with(r#"{"type":"content","value":["#)
        && let Some(parts) = parts_from(&output.to_value())
    {
        return Content::Parts(parts);
    }
    Content::Text(output.get().into())
}

fn parts_from(output: &Value) -> Option<Vec<ContentPart>> {
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

/// The media type of a part; where the source has none, the widest one of its kind.
pub(super) fn media_type(kind: MediaKind, source: &PartSource) -> &str {
    source.mime_type().unwrap_or(match kind {
        MediaKind::Image => "image/*",
        MediaKind::Audio => "audio/*",
        MediaKind::Video => "video/*",
        MediaKind::Document => "application/octet-stream",
    })
}

/// The address of a media part, a data URL for inline bytes; `None` for a provider's handle.
pub(super) fn media_url(source: &PartSource) -> Option<Cow<'_, str>> {
    match source {
        PartSource::Data { value, mime_type } => Some(Cow::Owned(format!("data:{mime_type};base64,{value}"))),
        PartSource::Url { value, .. } => Some(Cow::Borrowed(value)),
        PartSource::File { .. } => None,
    }
}

/// The media part behind an address.
pub(super) fn media_source(url: &str, media_type: Option<&str>) -> PartSource {
    if let Some(rest) = url.strip_prefix("data:")
        && let Some((head, data)) = rest.split_once(',')
        && let Some(declared) = head.strip_suffix(";base64")
    {
        // What the part says wins over what the address says, except for a wildcard.
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

/// Whether a value is `{provider: {key: any}}`, which is all that clients accept.
pub(super) fn is_provider_metadata(metadata: &Json) -> bool {
    let value = metadata.to_value();
    value.as_object().is_some_and(|providers| providers.values().all(Value::is_object))
}

/// JSON that every client accepts.
///
/// The SDK parses with a guard against prototype pollution: a key `__proto__` anywhere in a chunk, or a key
/// `constructor` that holds `null` or something with a `prototype`, ends the whole stream in an error. Such
/// keys are left out; the flag says whether there were any.
pub(super) fn safe(json: &Json) -> (Cow<'_, Json>, bool) {
    let text = json.get().as_bytes();
    let suspicious = [&b"__proto__"[..], b"constructor", b"\\u00"]
        .iter()
        .any(|needle| memchr::memmem::find(text, needle).is_some());
    if !suspicious {
        return (Cow::Borrowed(json), false);
    }
    let mut value = json.to_value();
    if strip_refused(&mut value) {
        (Cow::Owned(Json::from(value)), true)
    } else {
        (Cow::Borrowed(json), false)
    }
}

/// Removes what the SDK's parser refuses; says whether there was any.
fn strip_refused(value: &mut Value) -> bool {
    let mut found = false;
    match value {
        Value::Array(list) => {
            for item in list {
                found |= strip_refused(item);
            }
        }
        Value::Object(map) => {
            found |= map.shift_remove("__proto__").is_some();
            let refused = map.get("constructor").is_some_and(|value| {
                value.is_null() || value.as_object().is_some_and(|map| map.contains_key("prototype"))
            });
            if refused {
                map.shift_remove("constructor");
                found = true;
            }
            for (_, item) in map.iter_mut() {
                found |= strip_refused(item);
            }
        }
        _ => {}
    }
    found
}

/// JSON text made by `fill`.
pub(super) fn object(fill: impl FnOnce(&mut ObjectWriter<'_>)) -> Object {
    let mut out = BytesMut::new();
    let mut w = ObjectWriter::new(&mut out);
    fill(&mut w);
    w.end();
    Json::trusted(String::from_utf8(out.into()).expect("JSON text is UTF-8"))
        .into_object()
        .expect("an object writer writes an object")
}

/// An interrupt as the data of `data-interrupt`, which is also the input of the tool call that stands for it.
pub(super) fn interrupt_data(interrupt: &Interrupt) -> Object {
    object(|w| {
        w.str("id", &interrupt.id)
            .str("reason", &interrupt.reason)
            .opt_str("message", interrupt.message.as_deref())
            .opt_str("toolCallId", interrupt.tool_call.as_deref())
            .opt_object("responseSchema", interrupt.response_schema.as_ref())
            .opt_str("expiresAt", interrupt.expires_at.as_deref())
            .opt_object("metadata", interrupt.metadata.as_ref())
            .opt_str("subagentId", interrupt.subagent.as_deref());
    })
}

/// The interrupt that [`interrupt_data`] describes; `None` if it describes something else.
pub(super) fn interrupt_from(data: &Json) -> Option<Interrupt> {
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

/// The id of the tool call that stands for an interrupt. It has a prefix, because the id of an interrupt may
/// well be the id of the call that it guards.
pub(super) fn interrupt_call(interrupt: &InterruptId) -> String {
    format!("{INTERRUPT_TOOL}:{interrupt}")
}

/// The interrupt that a tool part stands for, if it is one of ours.
pub(super) fn interrupt_of_call(name: &str, call: &str, input: &Json) -> Option<Interrupt> {
    if name != INTERRUPT_TOOL {
        return None;
    }
    let interrupt = interrupt_from(input)?;
    (interrupt_call(&interrupt.id) == call).then_some(interrupt)
}

/// The error that a result of version 4 stands for: what our writer makes of a failed tool.
pub(super) fn error_in(result: &Json) -> Option<String> {
    let object = result.clone().into_object()?;
    match &object.entries()[..] {
        [(key, value)] if key == "error" => value.as_str(),
        _ => None,
    }
}

/// All usage taken together.
pub(super) fn total_usage(usage: &[Usage]) -> Usage {
    let mut total = Usage::default();
    let add = |sum: &mut Option<u64>, tokens: Option<u64>| {
        if let Some(tokens) = tokens {
            *sum = Some(sum.unwrap_or(0).saturating_add(tokens));
        }
    };
    for entry in usage {
        add(&mut total.input, entry.input);
        add(&mut total.output, entry.output);
        let own = entry.total.or(match (entry.input, entry.output) {
            (None, None) => None,
            (input, output) => Some(input.unwrap_or(0).saturating_add(output.unwrap_or(0))),
        });
        add(&mut total.total, own);
        add(&mut total.reasoning, entry.reasoning);
        add(&mut total.cached_input, entry.cached_input);
        add(&mut total.cache_write_input, entry.cache_write_input);
    }
    total
}

/// The members of usage in the SDK's spelling.
pub(super) fn write_usage(w: &mut ObjectWriter<'_>, usage: &Usage) {
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

/// The usage that an object of either spelling describes.
pub(super) fn usage_from(usage: &Value) -> Option<Usage> {
    let usage = usage.as_object()?;
    let tokens = |keys: [&str; 2]| {
        keys.iter()
            .find_map(|key| usage.get(*key))
            .and_then(|value| value.as_u64().or_else(|| whole(value.as_f64()?)))
    };
    let text = |key: &str| usage.get(key).and_then(Value::as_str).map(Into::into);
    // Versions 6 and 7 tell the parts in objects of their own.
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

fn whole(number: f64) -> Option<u64> {
    (number.fract() == 0.0 && (0.0..=9_007_199_254_740_991.0).contains(&number)).then_some(number as u64)
}

/// The n-th message (counting from 1) that a UI message stands for: the first has its id.
pub(super) fn numbered(base: &str, what: &str, n: u64) -> String {
    match (what, n) {
        ("", 1) => base.to_owned(),
        ("", n) => format!("{base}:{n}"),
        (what, n) => format!("{base}:{what}:{n}"),
    }
}

/// The id of the message that holds a call's result.
pub(super) fn result_id(call: &str) -> String {
    format!("{call}:result")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn custom_names_become_legal_and_come_back() {
        for (name, legal) in [
            ("progress", "progress"),
            ("my event!", "my-event"),
            ("state", "custom-state"),
            ("custom-state", "custom-state"),
            ("进度", "custom"),
            ("", "custom"),
            ("a/b.c", "a-b-c"),
            (" state ", "custom--state-"),
        ] {
            assert_eq!(legal_name(name), legal, "{name}");
            let value = Json::parse(r#"{"value":1}"#).unwrap();
            let data = custom_data(name, legal, &value);
            assert_eq!(custom_from(legal, data), (name.into(), value), "{name}");
        }
    }

    #[test]
    fn an_application_may_use_our_envelope() {
        let data = Json::parse(r#"{"name":"x","value":1}"#).unwrap();
        assert_eq!(custom_from("weather", data.clone()), ("weather".into(), data));
    }

    #[test]
    fn arguments_survive() {
        for text in [r#"{"a":1}"#, "[1]", "not json", r#""quoted""#, "{\"a\":", "5", "null"] {
            assert_eq!(arguments_from(&arguments(text)), text);
        }
        assert_eq!(arguments(" ").get(), "{}");
    }

    #[test]
    fn refused_keys_are_left_out_wherever_they_are() {
        for (given, wanted) in [
            (r#"{"a":{"__proto__":{"x":1},"b":2}}"#, Some(r#"{"a":{"b":2}}"#)),
            (r#"[{"\u005f_proto__":1}]"#, Some("[{}]")),
            (r#"{"constructor":null}"#, Some("{}")),
            (r#"{"constructor":{"prototype":1}}"#, Some("{}")),
            (r#"{"constructor":"Ferrari"}"#, None),
            (r#"{"text":"\"__proto__\":"}"#, None),
        ] {
            let json = Json::parse(given).unwrap();
            let (safe, changed) = safe(&json);
            assert_eq!(changed, wanted.is_some(), "{given}");
            assert_eq!(safe.get(), wanted.unwrap_or(given), "{given}");
        }
    }

    #[test]
    fn reasons_of_every_runtime() {
        for (native, wanted) in [
            ("STOP", "stop"),
            ("end_turn", "stop"),
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

    #[test]
    fn parts_of_a_result_come_back() {
        let content = Content::Parts(vec![
            ContentPart::text("see"),
            ContentPart::Media {
                kind: MediaKind::Image,
                source: PartSource::Data { value: "aGk=".into(), mime_type: "image/png".into() },
                id: None,
                metadata: None,
            },
        ]);
        assert_eq!(content_from(&output(&content)), content);
    }
}
