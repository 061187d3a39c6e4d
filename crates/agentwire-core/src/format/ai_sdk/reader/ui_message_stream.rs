//! Decodes the chunks of the UI message stream, versions 5 to 7.

use super::{
    builder::EventBuilder,
    decode,
    metadata::{self, ReceivedMetadata},
};
use crate::{
    event::{Body, Citation, Event, File, Interrupt, MediaKind, Role, ToolCallId},
    format::ai_sdk::{
        wire::{self, TextDeltaChunk, native},
        writer::encode,
    },
    json::{Fields, Json, Object, Path, ReadResult},
};

/// Reads one chunk.
pub(super) fn read(builder: &mut EventBuilder, text: &str, out: &mut Vec<Event>) -> ReadResult {
    if text.starts_with(r#"{"type":"text-delta""#)
        && let Ok(TextDeltaChunk { kind, id, delta }) = serde_json::from_str::<TextDeltaChunk<'_>>(text)
        && kind == "text-delta"
        && let Some(message) = builder.last_text_message(&id)
    {
        out.push(Event::new(Body::TextDelta { message, delta: delta.into() }));
        return Ok(());
    }
    if text.trim() == "[DONE]" {
        builder.ensure_started(None, out);
        builder.finish(out);
        return Ok(());
    }
    read_chunk(builder, text, out)
}

fn read_chunk(b: &mut EventBuilder, text: &str, out: &mut Vec<Event>) -> ReadResult {
    let mut f = Fields::parse(text, Path::Root)?;
    let kind = f.need_str("type", &mut b.tally)?;
    if kind == "start" {
        return read_start(b, f, out);
    }
    b.ensure_started(None, out);
    match &*kind {
        "text-start" => {
            let id = f.need_str("id", &mut b.tally)?;
            let received = part_metadata(b, &mut f, "messageId")?;
            b.text_start(&id, received, out)?;
        }
        "text-delta" => {
            let id = f.need_str("id", &mut b.tally)?;
            let delta = f.need_str("delta", &mut b.tally)?;
            let received = part_metadata(b, &mut f, "messageId")?;
            b.text_delta(&id, &delta, received.metadata, out)?;
        }
        "text-end" => {
            let id = f.need_str("id", &mut b.tally)?;
            let mut received = part_metadata(b, &mut f, "messageId")?;
            if let Some(citations) = f.json("citations", &mut b.tally)? {
                let metadata = received.metadata.unwrap_or_else(Object::empty);
                received.metadata = Some(metadata.with("citations", citations));
            }
            b.text_end(&id, received, out);
        }
        "reasoning-start" => {
            let id = f.need_str("id", &mut b.tally)?;
            let received = part_metadata(b, &mut f, "messageId")?;
            b.reasoning_start(&id, received, out)?;
        }
        "reasoning-delta" => {
            let id = f.need_str("id", &mut b.tally)?;
            let delta = f.need_str("delta", &mut b.tally)?;
            let received = part_metadata(b, &mut f, "messageId")?;
            b.reasoning_delta(&id, &delta, received.metadata, out)?;
        }
        "reasoning-end" => {
            let id = f.need_str("id", &mut b.tally)?;
            let received = part_metadata(b, &mut f, "messageId")?;
            b.reasoning_end(&id, received, out);
        }
        // Chunks of the first builds of version 5.
        "reasoning" => {
            let delta = f.need_str("text", &mut b.tally)?;
            part_metadata(b, &mut f, "messageId")?;
            if !b.is_reasoning_open("") {
                b.reasoning_start("", ReceivedMetadata::default(), out)?;
            }
            b.reasoning_delta("", &delta, None, out)?;
        }
        "reasoning-part-finish" => b.reasoning_end("", ReceivedMetadata::default(), out),
        "tool-input-start" => {
            let call = call_id(b, &mut f)?;
            let name = f.need_str("toolName", &mut b.tally)?;
            let (received, is_provider_executed) = tool_metadata(b, &mut f, "parentMessageId")?;
            b.tool_start(&call, &name, &received, out);
            if is_provider_executed {
                b.set_provider_executed(&call);
            }
        }
        "tool-input-delta" => {
            let call = call_id(b, &mut f)?;
            let delta = f.need_str("inputTextDelta", &mut b.tally)?;
            b.tool_delta(&call, &delta, out);
        }
        "tool-input-available" | "tool-input-error" => read_tool_input(b, &mut f, out)?,
        "tool-output-available" => {
            let call = call_id(b, &mut f)?;
            let output = f.json("output", &mut b.tally)?.unwrap_or_else(Json::null);
            let preliminary = f.bool("preliminary")?.unwrap_or(false);
            let (received, _) = tool_metadata(b, &mut f, "messageId")?;
            if preliminary {
                let value = encode::build_object(|w| {
                    w.str("toolCallId", &call).json("output", &output);
                });
                b.custom(wire::TOOL_PROGRESS, value.into(), None, out);
            } else {
                b.tool_output(&call, &output, received.metadata, out);
            }
        }
        "tool-output-error" => {
            let call = call_id(b, &mut f)?;
            let error = f.need_boxed("errorText", &mut b.tally)?;
            let (received, _) = tool_metadata(b, &mut f, "messageId")?;
            if !b.has_input_error(&call) && !b.end_unfinished_call(&call, &error, out) {
                b.tool_result(&call, (*error).into(), Some(error), received.metadata, out);
            }
        }
        "tool-output-denied" => {
            let call = call_id(b, &mut f)?;
            b.tool_denied(&call, out);
        }
        "tool-approval-request" => read_approval_request(b, &mut f)?,
        "tool-approval-response" => {
            let id = f.need_str("approvalId", &mut b.tally)?;
            let approved = f.bool("approved")?.ok_or_else(|| f.missing("approved", "a boolean"))?;
            let reason = f.str("reason", &mut b.tally)?;
            f.bool("providerExecuted")?;
            part_metadata(b, &mut f, "messageId")?;
            let value = encode::build_object(|w| {
                w.str("approvalId", &id).bool("approved", approved).opt_str("reason", reason.as_deref());
            });
            b.approval_response(&id, approved, reason.as_deref().map(Into::into));
            b.custom("tool-approval-response", value.into(), None, out);
        }
        "source-url" | "source-document" => read_source(b, &mut f, kind == "source-url", out)?,
        "file" | "reasoning-file" => read_file(b, &mut f, kind == "reasoning-file", out)?,
        "start-step" => b.step_start(None, out),
        "finish-step" => b.step_finish(out),
        "reset-step" => {
            // Emitted text cannot be revoked; its parts end here.
            b.end_all_text(out);
            b.tally.note("not expressible", "reset-step");
        }
        "message-metadata" => {
            if let Some(metadata) = f.json("messageMetadata", &mut b.tally)? {
                b.message_metadata(metadata, out);
            }
        }
        "finish" => {
            let reason = f.str("finishReason", &mut b.tally)?;
            if let Some(metadata) = f.json("messageMetadata", &mut b.tally)? {
                b.final_metadata(metadata, out);
            }
            if let Some(reason) = reason {
                b.set_finish_reason(&reason);
            }
            b.finish(out);
        }
        "abort" => {
            f.str("reason", &mut b.tally)?;
            b.abort(out);
        }
        "error" => {
            let text = f.need_str("errorText", &mut b.tally)?;
            b.error(&text, out);
        }
        "custom" => {
            let part = f.need_str("kind", &mut b.tally)?;
            let metadata = f.object("providerMetadata", &mut b.tally)?;
            let value = encode::build_object(|w| {
                w.str("kind", &part).opt_object("providerMetadata", metadata.as_ref());
            });
            b.custom(wire::PROVIDER_PART, value.into(), None, out);
        }
        "steering-message" => read_steering_message(b, &mut f, out)?,
        name => match name.strip_prefix("data-") {
            Some(name) => {
                let id = f.str("id", &mut b.tally)?;
                let data = f.json("data", &mut b.tally)?.unwrap_or_else(Json::null);
                let transient = f.bool("transient")?.unwrap_or(false);
                b.data_part(name, id.as_deref(), data, transient, out);
            }
            None => {
                b.tally.note("unknown chunk", name);
                return Ok(());
            }
        },
    }
    f.rest(&kind, &mut b.tally)?;
    Ok(())
}

fn read_start(b: &mut EventBuilder, mut f: Fields<'_, '_>, out: &mut Vec<Event>) -> ReadResult {
    let id = f.str("messageId", &mut b.tally)?;
    let metadata = f.json("messageMetadata", &mut b.tally)?;
    let members = metadata::agentwire_member(metadata.clone().and_then(Json::into_object).as_ref());
    if let Some(members) = members {
        b.set_agentwire_run(members.get_str("threadId"), members.get_str("runId"));
    }
    if let Some(id) = id {
        b.set_message_id(&id);
    }
    b.start(metadata, out);
    f.rest("start", &mut b.tally)?;
    Ok(())
}

fn call_id(b: &mut EventBuilder, f: &mut Fields<'_, '_>) -> ReadResult<ToolCallId> {
    let id = f.need_str("toolCallId", &mut b.tally)?;
    Ok(b.ids.get(&id))
}

/// Reads `providerMetadata`.
fn part_metadata(b: &mut EventBuilder, f: &mut Fields<'_, '_>, id_key: &str) -> ReadResult<ReceivedMetadata> {
    let metadata = f.object("providerMetadata", &mut b.tally)?;
    Ok(ReceivedMetadata::parse(metadata.as_ref(), id_key))
}

/// Reads the metadata members of a chunk about a tool; the flag is true if the provider runs the tool.
fn tool_metadata(
    b: &mut EventBuilder,
    f: &mut Fields<'_, '_>,
    id_key: &str,
) -> ReadResult<(ReceivedMetadata, bool)> {
    let mut received = part_metadata(b, f, id_key)?;
    // In a result these members repeat those of its call.
    let is_call = id_key == "parentMessageId";
    let is_static = !f.bool("dynamic")?.unwrap_or(false) && is_call;
    f.str("inputEncoding", &mut b.tally)?;
    let is_provider_executed = f.bool(native::PROVIDER_EXECUTED)?.unwrap_or(false);
    let title = f.str(native::TITLE, &mut b.tally)?;
    let tool = f.object(native::TOOL_METADATA, &mut b.tally)?;
    let members = [
        (native::PART, is_static.then(|| Json::string(native::STATIC))),
        (native::PROVIDER_EXECUTED, (is_provider_executed && is_call).then(metadata::json_true)),
        (native::TITLE, title.as_deref().map(Json::string)),
        (native::TOOL_METADATA, tool.map(Json::from)),
    ];
    for (key, value) in members {
        if let Some(value) = value {
            received.metadata = Some(metadata::with_native(received.metadata, key, value));
        }
    }
    Ok((received, is_provider_executed))
}

fn read_tool_input(b: &mut EventBuilder, f: &mut Fields<'_, '_>, out: &mut Vec<Event>) -> ReadResult {
    let call = call_id(b, f)?;
    let name = f.need_str("toolName", &mut b.tally)?;
    let input = f.json("input", &mut b.tally)?.unwrap_or_else(Json::null);
    let error = f.boxed("errorText", &mut b.tally)?;
    let (mut received, is_provider_executed) = tool_metadata(b, f, "parentMessageId")?;
    if let Some(error) = &error {
        received.metadata =
            Some(metadata::with_native(received.metadata, native::INPUT_ERROR, Json::string(error)));
    }
    if let Some(interrupt) = decode::interrupt_of_call(&name, &call, &input) {
        b.interrupt(interrupt);
        return Ok(());
    }
    b.tool_call(&call, &name, Some(&input), received, out);
    if is_provider_executed {
        b.set_provider_executed(&call);
    }
    if let Some(error) = error {
        b.input_error(&call, error, out);
    }
    Ok(())
}

fn read_approval_request(b: &mut EventBuilder, f: &mut Fields<'_, '_>) -> ReadResult {
    let id = f.need_str("approvalId", &mut b.tally)?;
    let call = call_id(b, f)?;
    let mut interrupt = Interrupt::new(id.as_ref(), "tool_call");
    interrupt.tool_call = Some(call);
    interrupt.message = f.boxed("reason", &mut b.tally)?;
    let mut unmapped = Vec::new();
    for key in ["approvalDescriptor", "inputSchemaInput", "signature", "isAutomatic"] {
        if let Some(value) = f.json(key, &mut b.tally)? {
            unmapped.push((key, value));
        }
    }
    if !unmapped.is_empty() {
        let native_members = Object::from_entries(unmapped);
        interrupt.metadata = Some(Object::from_entries([(wire::AI_SDK, native_members.into())]));
    }
    b.interrupt(interrupt);
    Ok(())
}

fn read_source(
    b: &mut EventBuilder,
    f: &mut Fields<'_, '_>,
    is_url: bool,
    out: &mut Vec<Event>,
) -> ReadResult {
    let id = f.need_str("sourceId", &mut b.tally)?;
    let metadata = f.object("providerMetadata", &mut b.tally)?;
    let members = metadata::agentwire_member(metadata.as_ref());
    let text = |key: &str| members.as_ref().and_then(|it| it.get_str(key)).map(Box::<str>::from);
    let mut source = Citation {
        id: b.ids.get(&id),
        message: text("messageId").map(|id| (&*id).into()),
        url: None,
        title: f.boxed("title", &mut b.tally)?,
        media_type: text("mediaType"),
        filename: text("filename"),
        detail: decode::source_detail(metadata.as_ref()),
    };
    if is_url {
        source.url = Some(f.need_boxed("url", &mut b.tally)?);
    } else {
        source.media_type = Some(f.need_boxed("mediaType", &mut b.tally)?);
        source.filename = f.boxed("filename", &mut b.tally)?;
    }
    out.push(Event::new(Body::Citation(Box::new(source))));
    Ok(())
}

fn read_file(
    b: &mut EventBuilder,
    f: &mut Fields<'_, '_>,
    is_reasoning: bool,
    out: &mut Vec<Event>,
) -> ReadResult {
    let url = f.need_str("url", &mut b.tally)?;
    let media_type = f.need_str("mediaType", &mut b.tally)?;
    let provider_metadata = f.object("providerMetadata", &mut b.tally)?;
    let members = metadata::agentwire_member(provider_metadata.as_ref());
    let text = |key: &str| members.as_ref().and_then(|it| it.get_str(key));
    let generated_id = b.next_file_id("file");
    let id = text("id").unwrap_or(generated_id);
    let file = File {
        id: id.into(),
        message: text("messageId").map(Into::into),
        kind: MediaKind::of_mime(&media_type),
        source: decode::media_source(&url, Some(&media_type)),
        name: text("filename").map(Into::into),
    };
    let mut metadata = ReceivedMetadata::parse(provider_metadata.as_ref(), "messageId").metadata;
    if is_reasoning {
        metadata = Some(metadata::with_native(metadata, native::REASONING, metadata::json_true()));
    }
    out.push(Event::new(Body::File(Box::new(file))).with_metadata(metadata));
    Ok(())
}

/// Reads a message that a person sent while the agent was running.
fn read_steering_message(b: &mut EventBuilder, f: &mut Fields<'_, '_>, out: &mut Vec<Event>) -> ReadResult {
    let id = f.need_str("id", &mut b.tally)?;
    let message: crate::event::MessageId = b.ids.get(&id);
    let tally = &mut b.tally;
    let mut deltas = Vec::new();
    f.array("parts", |raw, path| {
        let mut part = Fields::of(raw, path)?;
        match &*part.need_str("type", tally)? {
            "text" => deltas.push(part.need_boxed("text", tally)?),
            other => tally.note("not expressible", &format!("steering-message part `{other}`")),
        }
        Ok(())
    })?;
    out.push(Event::new(Body::TextStart { message: message.clone(), role: Some(Role::User), name: None }));
    for delta in deltas {
        out.push(Event::new(Body::TextDelta { message: message.clone(), delta }));
    }
    out.push(Event::new(Body::TextEnd { message }));
    Ok(())
}
