//! Reads messages, content parts and JSON Patches.

use std::ops::Range;

use serde_json::value::RawValue;

use super::json::union_tag;
use crate::{
    event::{Content, ContentPart, MediaKind, Message, MessageBody, MessageData, PartSource, Role, ToolCall},
    json::{Fields, Json, Object, Path, ReadResult, json, kind_of, text},
    patch::{Op, Patch, PatchOp, is_pointer},
    tally::Tally,
};

/// The required list `messages`.
pub(crate) fn read_list(f: &mut Fields<'_, '_>, tally: &mut Tally) -> ReadResult<Vec<Message>> {
    read_list_with(f, tally, read_message)
}

/// The required list `messages` of a request. A tool result without content is read as an empty one, so that the
/// request can be refused with the reason.
pub(crate) fn read_request_list(f: &mut Fields<'_, '_>, tally: &mut Tally) -> ReadResult<Vec<Message>> {
    read_list_with(f, tally, |raw, path, tally| read_message_with(raw, path, tally, true))
}

fn read_list_with(
    f: &mut Fields<'_, '_>,
    tally: &mut Tally,
    read: impl Fn(&RawValue, Path<'_>, &mut Tally) -> ReadResult<Option<Message>>,
) -> ReadResult<Vec<Message>> {
    let mut messages = Vec::new();
    let is_present = f.array("messages", |raw, path| {
        messages.extend(read(raw, path, tally)?);
        Ok(())
    })?;
    if is_present { Ok(messages) } else { Err(f.missing("messages", "a list of messages")) }
}

/// One message; `None` if its role is unknown.
pub(crate) fn read_message(raw: &RawValue, path: Path<'_>, tally: &mut Tally) -> ReadResult<Option<Message>> {
    read_message_with(raw, path, tally, false)
}

fn read_message_with(
    raw: &RawValue,
    path: Path<'_>,
    tally: &mut Tally,
    may_lack_result: bool,
) -> ReadResult<Option<Message>> {
    let mut f = Fields::of(raw, path)?;
    let tag = union_tag(&mut f, "role", tally);
    let Some(role) = tag.as_deref().and_then(Role::parse) else {
        tally.note("unknown role", tag.as_deref().unwrap_or("(none)"));
        return Ok(None);
    };
    let id = f.need_id("id", tally)?;
    let subagent = f.id("subagentRunId", tally)?;
    let metadata = f.object("metadata", tally)?;
    let encrypted = if role == Role::Activity { None } else { f.boxed("encryptedValue", tally)? };
    let named = matches!(role, Role::Developer | Role::System | Role::Assistant | Role::User);
    let name = if named { f.boxed("name", tally)? } else { None };
    let body = match role {
        Role::Developer => MessageBody::Developer { content: f.need_boxed("content", tally)? },
        Role::System => MessageBody::System { content: f.need_boxed("content", tally)? },
        Role::Reasoning => MessageBody::Reasoning { content: f.need_boxed("content", tally)? },
        Role::Assistant => {
            let content = f.boxed("content", tally)?;
            let mut calls = Vec::new();
            let is_present = f.array("toolCalls", |raw, path| {
                calls.push(read_tool_call(raw, path, tally)?);
                Ok(())
            })?;
            MessageBody::Assistant { content, tool_calls: is_present.then_some(calls) }
        }
        Role::User => MessageBody::User { content: read_content(&mut f, "content", tally)? },
        Role::Tool => MessageBody::Tool {
            call: f.need_id("toolCallId", tally)?,
            content: match may_lack_result {
                true => f.take_unless_null("content").map_or_else(
                    || Ok(Content::from("")),
                    |raw| content(raw, Path::Key(&path, "content"), tally),
                )?,
                false => read_content(&mut f, "content", tally)?,
            },
            error: f.boxed("error", tally)?,
        },
        Role::Activity => MessageBody::Activity {
            kind: f.need_boxed("activityType", tally)?,
            content: match f.object("content", tally)? {
                Some(content) => content,
                None => return Err(f.missing("content", "an object")),
            },
        },
    };
    f.rest("message", tally)?;
    Ok(Some(Message::from(MessageData { id, body, name, subagent, metadata, encrypted })))
}

pub(crate) fn read_tool_call(raw: &RawValue, path: Path<'_>, tally: &mut Tally) -> ReadResult<ToolCall> {
    let mut f = Fields::of(raw, path)?;
    match &*f.need_str("type", tally)? {
        "function" => {}
        other => {
            return Err(Path::Key(&path, "type").error(format!("expected `function`, found `{other}`")));
        }
    }
    let function_path = Path::Key(&path, "function");
    let function = f.take("function").ok_or_else(|| f.missing("function", "an object"))?;
    let mut function = Fields::of(function, function_path)?;
    let call = ToolCall {
        id: f.need_id("id", tally)?,
        name: function.need_boxed("name", tally)?,
        arguments: function.need_boxed("arguments", tally)?,
        encrypted: f.boxed("encryptedValue", tally)?,
        metadata: f.object("metadata", tally)?,
    };
    function.rest("toolCall.function", tally)?;
    f.rest("toolCall", tally)?;
    Ok(call)
}

/// A required body: text or parts.
pub(crate) fn read_content(f: &mut Fields<'_, '_>, key: &str, tally: &mut Tally) -> ReadResult<Content> {
    let raw = f.take(key).ok_or_else(|| f.missing(key, "a string or a list of parts"))?;
    let parent = f.path();
    content(raw, Path::Key(&parent, key), tally)
}

fn content(raw: &RawValue, path: Path<'_>, tally: &mut Tally) -> ReadResult<Content> {
    match raw.get().as_bytes().first() {
        Some(b'"') => Ok(Content::Text(text(raw, path, tally)?.into())),
        Some(b'[') => read_parts(raw, path, tally).map(Content::Parts),
        _ => Err(path.expected("a string or a list of parts", raw)),
    }
}

pub(crate) fn read_parts(raw: &RawValue, path: Path<'_>, tally: &mut Tally) -> ReadResult<Vec<ContentPart>> {
    let mut parts: Vec<Part> = Vec::new();
    for (index, raw) in crate::json::elements(raw, path)?.into_iter().enumerate() {
        parts.extend(read_part(raw, Path::Index(&path, index), tally)?);
    }
    // Some 0.x peers sent one attachment in both shapes: the old copy is a duplicate.
    let modern: Vec<_> =
        parts.iter().filter(|(_, legacy)| legacy.is_none()).map(|(part, _)| part.clone()).collect();
    parts.retain(|(part, legacy)| match legacy {
        None => true,
        Some(filename) => !modern.iter().any(|other| duplicates(other, part, filename.as_ref())),
    });
    Ok(parts.into_iter().map(|(part, _)| part).collect())
}

/// Whether `modern` contains everything in `converted`, which was a `binary` part.
fn duplicates(modern: &ContentPart, converted: &ContentPart, filename: Option<&Json>) -> bool {
    let ContentPart::Media { kind, source, metadata, .. } = modern else {
        return false;
    };
    let ContentPart::Media { kind: wanted_kind, source: wanted, .. } = converted else {
        return false;
    };
    let named = filename.is_none_or(|filename| {
        let metadata = metadata.clone().and_then(Json::into_object);
        metadata.and_then(|object| object.member("filename")).as_ref() == Some(filename)
    });
    kind == wanted_kind && source == wanted && named
}

/// A part, and the file name that it had if it was a `binary` part.
type Part = (ContentPart, Option<Option<Json>>);

/// One part; `None` if its type or source is unknown.
fn read_part(raw: &RawValue, path: Path<'_>, tally: &mut Tally) -> ReadResult<Option<Part>> {
    let mut f = Fields::of(raw, path)?;
    let tag = union_tag(&mut f, "type", tally);
    let part = match tag.as_deref() {
        Some("text") => ContentPart::Text {
            text: f.need_boxed("text", tally)?,
            id: f.boxed("id", tally)?,
            // The official client tolerates `null` here in media parts only.
            metadata: match f.peek("metadata") {
                Some(raw) if raw.get() == "null" && !tally.is_strict() => {
                    f.take("metadata");
                    None
                }
                _ => f.some_json("metadata", tally)?,
            },
        },
        Some("binary") => return read_binary(&mut f, tally),
        tag => {
            let Some(kind) = tag.and_then(MediaKind::parse) else {
                tally.note("unknown content part", tag.unwrap_or("(no type)"));
                return Ok(None);
            };
            let source_path = Path::Key(&path, "source");
            let raw = f.take("source").ok_or_else(|| f.missing("source", "an object"))?;
            let Some(source) = read_source(raw, source_path, tally)? else {
                return Ok(None);
            };
            // 0.x peers sent `null` here.
            let metadata = match f.take_unless_null("metadata") {
                Some(raw) => Some(json(raw, Path::Key(&path, "metadata"), tally)?),
                None => None,
            };
            ContentPart::Media { kind, source, id: f.boxed("id", tally)?, metadata }
        }
    };
    f.rest("part", tally)?;
    Ok(Some((part, None)))
}

/// The only media part of 0.x. Servers send `null` for absent members, and the official client tests members for
/// truthiness only.
fn read_binary(f: &mut Fields<'_, '_>, tally: &mut Tally) -> ReadResult<Option<Part>> {
    if !f.peek("mimeType").is_some_and(|raw| raw.get().starts_with('"')) {
        tally.note("unknown content part", "binary without a MIME type");
        return Ok(None);
    }
    let mime_type = f.need_boxed("mimeType", tally)?;
    let kind = MediaKind::of_mime(&mime_type);
    let source = if is_truthy(f, "data") {
        PartSource::Data { value: f.need_boxed("data", tally)?, mime_type }
    } else if is_truthy(f, "url") {
        PartSource::Url { value: f.need_boxed("url", tally)?, mime_type: Some(mime_type) }
    } else {
        tally.note("unknown content part", "binary with neither data nor url");
        return Ok(None);
    };
    let filename = if is_truthy(f, "filename") { f.json("filename", tally)? } else { None };
    tally.note("old shape", "content part `binary`");
    let metadata = filename.clone().map(|name| Object::from_entries([("filename", name)]).into());
    Ok(Some((ContentPart::Media { kind, source, id: None, metadata }, Some(filename))))
}

/// Whether a member is truthy in JavaScript.
fn is_truthy(f: &Fields<'_, '_>, key: &str) -> bool {
    f.peek(key).is_some_and(|raw| match raw.get() {
        "null" | "false" | "\"\"" => false,
        number if number.starts_with(|first: char| first == '-' || first.is_ascii_digit()) => {
            number.parse::<f64>() != Ok(0.0)
        }
        _ => true,
    })
}

fn read_source(raw: &RawValue, path: Path<'_>, tally: &mut Tally) -> ReadResult<Option<PartSource>> {
    let mut f = Fields::of(raw, path)?;
    let tag = union_tag(&mut f, "type", tally);
    let source = match tag.as_deref() {
        Some("data") => PartSource::Data {
            value: f.need_boxed("value", tally)?,
            mime_type: f.need_boxed("mimeType", tally)?,
        },
        Some("url") => {
            PartSource::Url { value: f.need_boxed("value", tally)?, mime_type: f.boxed("mimeType", tally)? }
        }
        Some("file") => PartSource::File {
            value: f.need_boxed("value", tally)?,
            provider: f.boxed("provider", tally)?,
            mime_type: f.boxed("mimeType", tally)?,
        },
        tag => {
            tally.note("unknown part source", tag.unwrap_or("(no type)"));
            return Ok(None);
        }
    };
    f.rest("source", tally)?;
    Ok(Some(source))
}

/// A required JSON Patch.
pub(crate) fn read_patch(f: &mut Fields<'_, '_>, key: &str, tally: &mut Tally) -> ReadResult<Patch> {
    let mut operations = Vec::new();
    let is_present = f.array(key, |raw, path| {
        operations.extend(read_operation(raw, path, tally)?);
        Ok(())
    })?;
    if is_present { Ok(Patch(operations)) } else { Err(f.missing(key, "a list of JSON Patch operations")) }
}

fn read_operation(raw: &RawValue, path: Path<'_>, tally: &mut Tally) -> ReadResult<Option<PatchOp>> {
    let mut f = Fields::of(raw, path)?;
    let tag = union_tag(&mut f, "op", tally);
    let Some(op) = tag.as_deref().and_then(Op::parse) else {
        tally.note("unknown patch operation", tag.as_deref().unwrap_or("(no op)"));
        return Ok(None);
    };
    let pointer = |f: &mut Fields<'_, '_>, key: &str, tally: &mut Tally| -> ReadResult<Box<str>> {
        let text = f.need_boxed(key, tally)?;
        if is_pointer(&text) {
            Ok(text)
        } else {
            Err(Path::Key(&path, key).error(format!("expected a JSON pointer, found `{text}`")))
        }
    };
    let target = pointer(&mut f, "path", tally)?;
    let from = if op.needs_from() { Some(pointer(&mut f, "from", tally)?) } else { None };
    let value = f.json("value", tally)?;
    if op.needs_value() && value.is_none() {
        return Err(f.missing("value", "any JSON value"));
    }
    // The RFC requires undefined members to be ignored: preserved, not counted.
    let extra = f.rest("operation", &mut Tally::default())?;
    Ok(Some(PatchOp { op, path: target, from, value, extra }))
}

/// Messages from a JSON array as [`messages_to_json`](super::super::messages_to_json) writes it. Messages of unknown
/// roles are counted and left out.
///
/// # Errors
/// When it is not an array of messages; names the JSON path.
pub fn messages_from_json(text: &str, tally: &mut Tally) -> ReadResult<Vec<Message>> {
    let mut messages = Vec::new();
    for (index, raw) in array(text, "a list of messages")?.into_iter().enumerate() {
        messages.extend(read_message(raw, Path::Index(&Path::Root, index), tally)?);
    }
    Ok(messages)
}

/// The same with the place of each message in the text.
///
/// # Errors
/// When it is not an array of messages; names the JSON path.
pub fn messages_with_ranges(text: &str, tally: &mut Tally) -> ReadResult<Vec<(Message, Range<usize>)>> {
    let mut messages = Vec::new();
    for (index, raw) in array(text, "a list of messages")?.into_iter().enumerate() {
        let start = raw.get().as_ptr() as usize - text.as_ptr() as usize;
        let message = read_message(raw, Path::Index(&Path::Root, index), tally)?;
        messages.extend(message.map(|message| (message, start..start + raw.get().len())));
    }
    Ok(messages)
}

/// A JSON Patch from a JSON array. Unlike in an event, an unknown operation is an error: a requested change is
/// applied completely or not at all.
///
/// # Errors
/// When it is not an array of operations; names the JSON path.
pub fn patch_from_json(text: &str) -> ReadResult<Patch> {
    let mut operations = Vec::new();
    for (index, raw) in array(text, "a list of JSON Patch operations")?.into_iter().enumerate() {
        let path = Path::Index(&Path::Root, index);
        let read = read_operation(raw, path, &mut Tally::default())?;
        operations.push(read.ok_or_else(|| {
            let wanted = "expected one of `add`, `remove`, `replace`, `move`, `copy`, `test`";
            Path::Key(&path, "op").error(wanted)
        })?);
    }
    Ok(Patch(operations))
}

fn array<'a>(text: &'a str, wanted: &str) -> ReadResult<Vec<&'a RawValue>> {
    serde_json::from_str(text).map_err(|error| {
        Path::Root.error(match error.classify() {
            serde_json::error::Category::Data => format!("expected {wanted}, found {}", kind_of(text)),
            _ => format!("not valid JSON: {error}"),
        })
    })
}
