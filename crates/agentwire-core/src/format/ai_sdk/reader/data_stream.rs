//! Decodes the lines of the data stream (AI SDK 4) and of the LangChain dialect, which differ in their payloads.
//!
//! Text and reasoning have neither ids nor ends. Clients collect all text of a step in one part; this reader ends a message
//! where a part of another kind starts, which preserves the order.

use serde_json::value::RawValue;

use super::{
    builder::EventBuilder,
    decode,
    metadata::{ReceivedMetadata, agentwire_member},
};
use crate::{
    event::{Body, Citation, EncryptedEntity, Event, File, MediaKind, PartSource, ToolCallId},
    format::ai_sdk::wire,
    json::{Fields, Json, Object, Path, ReadError, ReadResult, elements, json, text},
};

/// Id of the only text part and of the only reasoning part of a step.
const PART_ID: &str = "";

/// Reads one line.
pub(super) fn read(
    b: &mut EventBuilder,
    code: Option<&str>,
    value: &str,
    out: &mut Vec<Event>,
) -> ReadResult {
    let Some(code) = code else {
        return Err(ReadError::new("", "expected `code:json`, found a line without a colon"));
    };
    let raw: &RawValue = serde_json::from_str(value)
        .map_err(|error| ReadError::new("", format!("the value of `{code}` is not valid JSON: {error}")))?;
    if code == "2" {
        return read_data(b, raw, out);
    }
    if code == "f"
        && let Some(message) = step_message_id(raw)
    {
        b.set_message_id(&message);
    }
    b.ensure_started(None, out);
    b.continue_after_deferred_error(out);
    let path = Path::Root;
    match code {
        "0" => {
            let delta = text(raw, path, &mut b.tally)?;
            b.end_reasoning_if_open(PART_ID, out);
            if !b.is_text_open(PART_ID) {
                b.text_start(PART_ID, ReceivedMetadata::default(), out)?;
            }
            b.text_delta(PART_ID, &delta, None, out)?;
        }
        "g" => {
            let delta = text(raw, path, &mut b.tally)?;
            b.end_text_if_open(PART_ID, out);
            if !b.is_reasoning_open(PART_ID) {
                b.reasoning_start(PART_ID, ReceivedMetadata::default(), out)?;
            }
            b.reasoning_delta(PART_ID, &delta, None, out)?;
        }
        "3" => {
            let message = text(raw, path, &mut b.tally)?;
            b.error(&message, out);
        }
        "8" => {
            for item in elements(raw, path)? {
                let item = json(item, path, &mut b.tally)?;
                read_annotation(b, item, out);
            }
        }
        // `e` is an error in the dialect (a string), the end of a step in the data stream (an object).
        "e" if raw.get().starts_with('"') => {
            let message = text(raw, path, &mut b.tally)?;
            b.defer_error(&message);
        }
        "9" | "a" | "b" | "c" | "d" | "e" | "f" | "h" | "i" | "j" | "k" => {
            read_object(b, code, Fields::of(raw, path)?, out)?;
        }
        // The value of an unknown code is not checked.
        other => b.tally.note("unknown code", other),
    }
    Ok(())
}

fn read_object(b: &mut EventBuilder, code: &str, mut f: Fields<'_, '_>, out: &mut Vec<Event>) -> ReadResult {
    let has = |f: &Fields<'_, '_>, key: &str| f.peek(key).is_some();
    match code {
        "b" if has(&f, "node_id") && !has(&f, "toolCallId") => {
            b.set_dialect();
            let name = f.need_boxed("name", &mut b.tally)?;
            let metadata = f.rest("", &mut crate::tally::Tally::default())?;
            out.push(Event::new(Body::StepStarted { name: name.clone() }).with_metadata(metadata.clone()));
            if let Some(id) = metadata.and_then(|it| it.get_str("node_id")) {
                b.node_started(id, name);
            }
            return Ok(());
        }
        "c" if has(&f, "node_id") && !has(&f, "toolCallId") => {
            let id = f.need_str("node_id", &mut b.tally)?;
            b.end_all_text(out);
            match b.node_finished(&id) {
                Some(name) => out.push(Event::new(Body::StepFinished { name })),
                None => b.tally.note("out of order", "the end of a node that is not open"),
            }
        }
        "b" => {
            b.end_all_text(out);
            let call = call_id(b, &mut f)?;
            let name = f.need_str("toolName", &mut b.tally)?;
            b.tool_start(&call, &name, &ReceivedMetadata::default(), out);
        }
        "c" => {
            let call = call_id(b, &mut f)?;
            let delta = f.need_str("argsTextDelta", &mut b.tally)?;
            b.tool_delta(&call, &delta, out);
        }
        // `9` is a call and `a` a result; in the dialect it is the other way round.
        "9" | "a" if has(&f, "toolName") && !has(&f, "result") => {
            let call = call_id(b, &mut f)?;
            let name = f.need_str("toolName", &mut b.tally)?;
            let args = f.json("args", &mut b.tally)?.ok_or_else(|| f.missing("args", "an object"))?;
            if let Some(interrupt) = decode::interrupt_of_call(&name, &call, &args) {
                b.interrupt(interrupt);
            } else {
                b.end_all_text(out);
                b.tool_call(&call, &name, Some(&args), ReceivedMetadata::default(), out);
            }
        }
        "9" | "a" => {
            let call = call_id(b, &mut f)?;
            let alternatives = if code == "9" { "`toolName` and `args`, or" } else { "any JSON value, or" };
            let result = f
                .json("result", &mut b.tally)?
                .ok_or_else(|| f.missing("result", &format!("{alternatives} the result of a tool")))?;
            match decode::error_of_result(&result) {
                Some(error) if b.end_unfinished_call(&call, &error, out) => {}
                Some(error) => b.tool_result(&call, error.as_str().into(), Some(error.into()), None, out),
                None => b.tool_output(&call, &result, None, out),
            }
        }
        "f" if has(&f, "finishReason") && !has(&f, "messageId") => {
            read_finish(b, &mut f)?;
            b.finish(out);
        }
        "f" => {
            let message = f.need_str("messageId", &mut b.tally)?;
            b.step_start(Some(&message), out);
        }
        "e" => {
            read_finish(b, &mut f)?;
            if f.bool("isContinued")?.unwrap_or(false) {
                b.end_reasoning_if_open(PART_ID, out);
                b.step_finish_keeping_text(out);
            } else {
                b.step_finish(out);
            }
        }
        "d" => {
            read_finish(b, &mut f)?;
            b.finish(out);
        }
        "h" => read_source(b, &mut f, out)?,
        "i" => {
            let value = f.need_boxed("data", &mut b.tally)?;
            b.end_reasoning_if_open(PART_ID, out);
            b.reasoning_start("redacted", ReceivedMetadata::default(), out)?;
            b.reasoning_end(
                "redacted",
                ReceivedMetadata { encrypted: Some(value), ..ReceivedMetadata::default() },
                out,
            );
        }
        "j" => {
            let value = f.need_boxed("signature", &mut b.tally)?;
            match b.reasoning_message(PART_ID) {
                Some(message) => {
                    let entity = EncryptedEntity::Message(message);
                    out.push(Event::new(Body::ReasoningEncrypted { entity, value }));
                }
                None => b.tally.note("out of order", "a signature without reasoning"),
            }
        }
        "k" => {
            let value = f.need_boxed("data", &mut b.tally)?;
            let mime_type = f.need_boxed("mimeType", &mut b.tally)?;
            let file = File {
                id: b.next_file_id("file").into(),
                message: None,
                kind: MediaKind::of_mime(&mime_type),
                source: PartSource::Data { value, mime_type },
                name: None,
            };
            out.push(Event::new(Body::File(Box::new(file))));
        }
        other => unreachable!("`{other}` has no object"),
    }
    f.rest(code, &mut b.tally)?;
    Ok(())
}

/// Message id of a step; that of the first step is the id of the response's message.
fn step_message_id(step: &RawValue) -> Option<String> {
    Json::from_raw(step).ok()?.0.into_object()?.get_str("messageId")
}

fn call_id(b: &mut EventBuilder, f: &mut Fields<'_, '_>) -> ReadResult<ToolCallId> {
    let id = f.need_str("toolCallId", &mut b.tally)?;
    Ok(b.ids.get(&id))
}

/// Reads finish reason and usage.
fn read_finish(b: &mut EventBuilder, f: &mut Fields<'_, '_>) -> ReadResult {
    let reason = f.need_str("finishReason", &mut b.tally)?;
    b.set_finish_reason(&reason);
    if let Some(usage) = f.json("usage", &mut b.tally)?
        && let Some(usage) = decode::read_usage(&usage.to_value())
    {
        b.set_usage(usage);
    }
    Ok(())
}

/// Reads the data array, whose items are those of an application or of agentwire; in the dialect it is one object.
fn read_data(b: &mut EventBuilder, raw: &RawValue, out: &mut Vec<Event>) -> ReadResult {
    let path = Path::Root;
    let items = if raw.get().starts_with('{') { vec![raw] } else { elements(raw, path)? };
    for (index, item) in items.into_iter().enumerate() {
        let item = json(item, Path::Index(&path, index), &mut b.tally)?;
        let object = item.clone().into_object();
        let kind = object.as_ref().and_then(|object| object.get_str("type"));
        if let (Some(object), Some("chain_start")) = (&object, kind.as_deref()) {
            b.set_dialect();
            b.set_agentwire_run(object.get_str("threadId"), object.get_str("runId"));
            let mut metadata = object.without("type").without("threadId").without("runId");
            if b.is_from_agentwire()
                && let Some(message) = object.get_str("messageId")
            {
                b.set_message_id(&message);
                metadata = metadata.without("messageId");
            }
            let is_default = metadata.get() == r#"{"name":"agent"}"#;
            b.ensure_started((!metadata.is_empty() && !is_default).then_some(metadata), out);
            continue;
        }
        b.ensure_started(None, out);
        match (object, kind) {
            (Some(object), Some(kind)) if is_data_part(&object) => {
                let id = object.get_str("id");
                let data = object.member("data").unwrap_or_else(Json::null);
                b.data_part(&kind, id.as_deref(), data, true, out);
            }
            _ => b.custom(wire::DATA_ITEM, item, None, out),
        }
    }
    Ok(())
}

/// Returns true if an item has the members of a data part and no others.
fn is_data_part(object: &Object) -> bool {
    let entries = object.entries();
    entries.iter().any(|(key, _)| key == "data")
        && entries.iter().all(|(key, _)| matches!(&**key, "type" | "id" | "data"))
}

fn read_annotation(b: &mut EventBuilder, item: Json, out: &mut Vec<Event>) {
    let object = item.clone().into_object();
    let kind = object.as_ref().and_then(|object| object.get_str("type"));
    match (object, kind.as_deref()) {
        (Some(object), Some("interrupt")) if is_data_part(&object) => {
            let data = object.member("data").unwrap_or_else(Json::null);
            b.data_part("interrupt", object.get_str("id").as_deref(), data, false, out);
        }
        (Some(object), Some(wire::MESSAGE_METADATA)) if is_data_part(&object) => {
            b.message_metadata(object.member("data").unwrap_or_else(Json::null), out);
        }
        _ => b.custom(wire::ANNOTATION, item, None, out),
    }
}

fn read_source(b: &mut EventBuilder, f: &mut Fields<'_, '_>, out: &mut Vec<Event>) -> ReadResult {
    let generated_id = b.next_file_id("source");
    let id = f.str("id", &mut b.tally)?.map_or(generated_id, |id| id.into_owned());
    f.str("sourceType", &mut b.tally)?;
    let metadata = f.object("providerMetadata", &mut b.tally)?;
    let members = agentwire_member(metadata.as_ref());
    let source = Citation {
        id: id.into(),
        message: members.and_then(|it| it.get_str("messageId")).map(Into::into),
        url: f.boxed("url", &mut b.tally)?,
        title: f.boxed("title", &mut b.tally)?,
        media_type: f.boxed("mediaType", &mut b.tally)?,
        filename: f.boxed("filename", &mut b.tally)?,
        detail: decode::source_detail(metadata.as_ref()),
    };
    out.push(Event::new(Body::Citation(Box::new(source))));
    Ok(())
}
