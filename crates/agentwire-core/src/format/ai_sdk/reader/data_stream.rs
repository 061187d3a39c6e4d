//! The lines of the data stream (AI SDK 4), and of the letter dialect, whose payloads tell it apart.
//!
//! Text and reasoning have neither ids nor ends here. A client gathers all text of a step in one part; we end a
//! message where something else begins, which keeps the order in which things were said.

use serde_json::value::RawValue;

use super::{builder::Builder, decode, metadata::ReceivedMetadata};
use crate::{
    event::{Body, EncryptedEntity, Event, File, MediaKind, PartSource, Source, ToolCallId},
    format::ai_sdk::wire,
    json::{Fields, Json, Object, Path, ReadError, elements, json, text},
};

/// The one text part and the one reasoning part of a step.
const PART: &str = "";

/// Reads one line.
pub(super) fn read(
    b: &mut Builder,
    code: Option<&str>,
    value: &str,
    out: &mut Vec<Event>,
) -> Result<(), ReadError> {
    let Some(code) = code else {
        return Err(ReadError::new("", "expected `code:json`, found a line without a colon"));
    };
    let raw: &RawValue = serde_json::from_str(value)
        .map_err(|error| ReadError::new("", format!("the value of `{code}` is not valid JSON: {error}")))?;
    if code == "2" {
        return data(b, raw, out);
    }
    if code == "f"
        && let Some(message) = message_of(raw)
    {
        b.name_message(&message);
    }
    b.begin(None, out);
    b.not_the_end(out);
    let path = Path::Root;
    match code {
        "0" => {
            let delta = text(raw, path, &mut b.tally)?;
            b.end_thought(PART, out);
            if !b.is_talking(PART) {
                b.text_start(PART, ReceivedMetadata::default(), out)?;
            }
            b.text_delta(PART, &delta, None, out)?;
        }
        "g" => {
            let delta = text(raw, path, &mut b.tally)?;
            b.end_text(PART, out);
            if !b.is_thinking(PART) {
                b.thought_start(PART, ReceivedMetadata::default(), out)?;
            }
            b.thought_delta(PART, &delta, None, out)?;
        }
        "3" => {
            let message = text(raw, path, &mut b.tally)?;
            b.error(&message, out);
        }
        "8" => {
            for item in elements(raw, path)? {
                let item = json(item, path, &mut b.tally)?;
                annotation(b, item, out);
            }
        }
        // The dialect's error is a string, the step's end an object.
        "e" if raw.get().starts_with('"') => {
            let message = text(raw, path, &mut b.tally)?;
            b.maybe_error(&message);
        }
        "9" | "a" | "b" | "c" | "d" | "e" | "f" | "h" | "i" | "j" | "k" => {
            object(b, code, Fields::of(raw, path)?, out)?;
        }
        // Whatever its value is: nobody knows what it should be.
        other => b.tally.note("unknown code", other),
    }
    Ok(())
}

fn object(b: &mut Builder, code: &str, mut f: Fields<'_, '_>, out: &mut Vec<Event>) -> Result<(), ReadError> {
    let has = |f: &Fields<'_, '_>, key: &str| f.peek(key).is_some();
    match code {
        "b" if has(&f, "node_id") && !has(&f, "toolCallId") => {
            b.dialect = true;
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
            b.quiet(out);
            match b.node_finished(&id) {
                Some(name) => out.push(Event::new(Body::StepFinished { name })),
                None => b.tally.note("out of order", "the end of a node that is not open"),
            }
        }
        "b" => {
            b.quiet(out);
            let call = call_id(b, &mut f)?;
            let name = f.need_str("toolName", &mut b.tally)?;
            b.tool_start(&call, &name, &ReceivedMetadata::default(), out);
        }
        "c" => {
            let call = call_id(b, &mut f)?;
            let delta = f.need_str("argsTextDelta", &mut b.tally)?;
            b.tool_delta(&call, &delta, out);
        }
        // In the dialect the two letters have changed places.
        "9" | "a" if has(&f, "toolName") && !has(&f, "result") => {
            let call = call_id(b, &mut f)?;
            let name = f.need_str("toolName", &mut b.tally)?;
            let args = f.json("args", &mut b.tally)?.ok_or_else(|| f.missing("args", "an object"))?;
            if let Some(interrupt) = decode::interrupt_of_call(&name, &call, &args) {
                b.interrupt(interrupt);
            } else {
                b.quiet(out);
                b.tool_call(&call, &name, Some(&args), ReceivedMetadata::default(), out);
            }
        }
        "9" | "a" => {
            let call = call_id(b, &mut f)?;
            let wanted = if code == "9" { "`toolName` and `args`, or" } else { "any JSON value, or" };
            let result = f
                .json("result", &mut b.tally)?
                .ok_or_else(|| f.missing("result", &format!("{wanted} the result of a tool")))?;
            match decode::error_of_result(&result) {
                Some(error) if b.failed_unsaid(&call, &error, out) => {}
                Some(error) => b.tool_result(&call, error.as_str().into(), Some(error.into()), None, out),
                None => b.tool_output(&call, &result, None, out),
            }
        }
        "f" if has(&f, "finishReason") && !has(&f, "messageId") => {
            ending(b, &mut f)?;
            b.finish(out);
        }
        "f" => {
            let message = f.need_str("messageId", &mut b.tally)?;
            b.step_start(Some(&message), out);
        }
        "e" => {
            ending(b, &mut f)?;
            if f.bool("isContinued")?.unwrap_or(false) {
                b.end_thought(PART, out);
                b.leave_step(out);
            } else {
                b.step_finish(out);
            }
        }
        "d" => {
            ending(b, &mut f)?;
            b.finish(out);
        }
        "h" => source(b, &mut f, out)?,
        "i" => {
            let value = f.need_boxed("data", &mut b.tally)?;
            b.end_thought(PART, out);
            b.thought_start("redacted", ReceivedMetadata::default(), out)?;
            b.thought_end(
                "redacted",
                ReceivedMetadata { encrypted: Some(value), ..ReceivedMetadata::default() },
                out,
            );
        }
        "j" => {
            let value = f.need_boxed("signature", &mut b.tally)?;
            match b.thought(PART) {
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
            b.file_count += 1;
            let file = File {
                id: decode::derived_id(b.base(), "file", b.file_count).into(),
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

/// The message that a step belongs to: the first one of a response names it.
fn message_of(step: &RawValue) -> Option<String> {
    Json::from_raw(step).ok()?.0.into_object()?.get_str("messageId")
}

fn call_id(b: &mut Builder, f: &mut Fields<'_, '_>) -> Result<ToolCallId, ReadError> {
    let id = f.need_str("toolCallId", &mut b.tally)?;
    Ok(b.ids.get(&id))
}

/// Reason and usage.
fn ending(b: &mut Builder, f: &mut Fields<'_, '_>) -> Result<(), ReadError> {
    let reason = f.need_str("finishReason", &mut b.tally)?;
    b.reason(&reason);
    if let Some(usage) = f.json("usage", &mut b.tally)?
        && let Some(usage) = decode::read_usage(&usage.to_value())
    {
        b.add_usage(usage);
    }
    Ok(())
}

/// The data array, whose items are an application's or ours; in the dialect one object.
fn data(b: &mut Builder, raw: &RawValue, out: &mut Vec<Event>) -> Result<(), ReadError> {
    let path = Path::Root;
    let items = if raw.get().starts_with('{') { vec![raw] } else { elements(raw, path)? };
    for (index, item) in items.into_iter().enumerate() {
        let item = json(item, Path::Index(&path, index), &mut b.tally)?;
        let object = item.clone().into_object();
        let kind = object.as_ref().and_then(|object| object.get_str("type"));
        if let (Some(object), Some("chain_start")) = (&object, kind.as_deref()) {
            b.dialect = true;
            b.recognise(object.get_str("threadId"), object.get_str("runId"));
            let mut about = object.without("type").without("threadId").without("runId");
            if b.own
                && let Some(message) = object.get_str("messageId")
            {
                b.name_message(&message);
                about = about.without("messageId");
            }
            let plain = about.get() == r#"{"name":"agent"}"#;
            b.begin((!about.is_empty() && !plain).then_some(about), out);
            continue;
        }
        b.begin(None, out);
        match (object, kind) {
            (Some(object), Some(kind)) if is_envelope(&object) => {
                let id = object.get_str("id");
                let data = object.member("data").unwrap_or_else(Json::null);
                b.data(&kind, id.as_deref(), data, true, out);
            }
            _ => b.custom(wire::DATA_ITEM, item, None, out),
        }
    }
    Ok(())
}

/// Whether an item has the members of a data part, and no others.
fn is_envelope(object: &Object) -> bool {
    let entries = object.entries();
    entries.iter().any(|(key, _)| key == "data")
        && entries.iter().all(|(key, _)| matches!(&**key, "type" | "id" | "data"))
}

fn annotation(b: &mut Builder, item: Json, out: &mut Vec<Event>) {
    let object = item.clone().into_object();
    let kind = object.as_ref().and_then(|object| object.get_str("type"));
    match (object, kind.as_deref()) {
        (Some(object), Some("interrupt")) if is_envelope(&object) => {
            let data = object.member("data").unwrap_or_else(Json::null);
            b.data("interrupt", object.get_str("id").as_deref(), data, false, out);
        }
        (Some(object), Some(wire::MESSAGE_METADATA)) if is_envelope(&object) => {
            b.metadata(object.member("data").unwrap_or_else(Json::null), out);
        }
        _ => b.custom(wire::ANNOTATION, item, None, out),
    }
}

fn source(b: &mut Builder, f: &mut Fields<'_, '_>, out: &mut Vec<Event>) -> Result<(), ReadError> {
    b.file_count += 1;
    let id = f.str("id", &mut b.tally)?.map(|id| id.into_owned());
    let id = id.unwrap_or_else(|| decode::derived_id(b.base(), "source", b.file_count));
    f.str("sourceType", &mut b.tally)?;
    let metadata = f.object("providerMetadata", &mut b.tally)?;
    let own = metadata.as_ref().and_then(|it| it.member(wire::AGENTWIRE)).and_then(Json::into_object);
    let source = Source {
        id: id.into(),
        message: own.and_then(|own| own.get_str("messageId")).map(Into::into),
        url: f.boxed("url", &mut b.tally)?,
        title: f.boxed("title", &mut b.tally)?,
        media_type: f.boxed("mediaType", &mut b.tally)?,
        filename: f.boxed("filename", &mut b.tally)?,
        detail: decode::source_detail(metadata.as_ref()),
    };
    out.push(Event::new(Body::Source(Box::new(source))));
    Ok(())
}
