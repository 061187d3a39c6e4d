//! The chunks of the UI message stream, versions 5 to 7.

use super::{
    builder::Builder,
    decode,
    metadata::{self, ReceivedMetadata},
};
use crate::{
    event::{Body, Event, File, Interrupt, MediaKind, Role, Source, ToolCallId},
    format::ai_sdk::{
        wire::{self, TextDeltaChunk, native},
        writer::encode,
    },
    json::{Fields, Json, Object, Path, ReadError},
};

/// Reads one chunk.
pub(super) fn read(builder: &mut Builder, text: &str, out: &mut Vec<Event>) -> Result<(), ReadError> {
    if text.starts_with(r#"{"type":"text-delta""#)
        && let Ok(TextDeltaChunk { kind, id, delta }) = serde_json::from_str::<TextDeltaChunk<'_>>(text)
        && kind == "text-delta"
        && let Some(message) = builder.speaking(&id)
    {
        out.push(Event::new(Body::TextDelta { message, delta: delta.into() }));
        return Ok(());
    }
    if text.trim() == "[DONE]" {
        builder.begin(None, out);
        builder.finish(out);
        return Ok(());
    }
    chunk(builder, text, out)
}

fn chunk(b: &mut Builder, text: &str, out: &mut Vec<Event>) -> Result<(), ReadError> {
    let mut f = Fields::parse(text, Path::Root)?;
    let kind = f.need_str("type", &mut b.tally)?;
    if kind == "start" {
        return start(b, f, out);
    }
    b.begin(None, out);
    match &*kind {
        "text-start" => {
            let id = f.need_str("id", &mut b.tally)?;
            let facts = facts(b, &mut f, "messageId")?;
            b.text_start(&id, facts, out)?;
        }
        "text-delta" => {
            let id = f.need_str("id", &mut b.tally)?;
            let delta = f.need_str("delta", &mut b.tally)?;
            let facts = facts(b, &mut f, "messageId")?;
            b.text_delta(&id, &delta, facts.metadata, out)?;
        }
        "text-end" => {
            let id = f.need_str("id", &mut b.tally)?;
            let mut facts = facts(b, &mut f, "messageId")?;
            if let Some(citations) = f.json("citations", &mut b.tally)? {
                let told = facts.metadata.unwrap_or_else(Object::empty);
                facts.metadata = Some(told.with("citations", citations));
            }
            b.text_end(&id, facts, out);
        }
        "reasoning-start" => {
            let id = f.need_str("id", &mut b.tally)?;
            let facts = facts(b, &mut f, "messageId")?;
            b.thought_start(&id, facts, out)?;
        }
        "reasoning-delta" => {
            let id = f.need_str("id", &mut b.tally)?;
            let delta = f.need_str("delta", &mut b.tally)?;
            let facts = facts(b, &mut f, "messageId")?;
            b.thought_delta(&id, &delta, facts.metadata, out)?;
        }
        "reasoning-end" => {
            let id = f.need_str("id", &mut b.tally)?;
            let facts = facts(b, &mut f, "messageId")?;
            b.thought_end(&id, facts, out);
        }
        // The first builds of version 5.
        "reasoning" => {
            let delta = f.need_str("text", &mut b.tally)?;
            facts(b, &mut f, "messageId")?;
            if !b.is_thinking("") {
                b.thought_start("", ReceivedMetadata::default(), out)?;
            }
            b.thought_delta("", &delta, None, out)?;
        }
        "reasoning-part-finish" => b.thought_end("", ReceivedMetadata::default(), out),
        "tool-input-start" => {
            let call = call_id(b, &mut f)?;
            let name = f.need_str("toolName", &mut b.tally)?;
            let facts = tool_facts(b, &mut f, "parentMessageId")?;
            b.tool_start(&call, &name, &facts.0, out);
            if facts.1 {
                b.remote_call(&call);
            }
        }
        "tool-input-delta" => {
            let call = call_id(b, &mut f)?;
            let delta = f.need_str("inputTextDelta", &mut b.tally)?;
            b.tool_delta(&call, &delta, out);
        }
        "tool-input-available" | "tool-input-error" => tool_input(b, &mut f, out)?,
        "tool-output-available" => {
            let call = call_id(b, &mut f)?;
            let output = f.json("output", &mut b.tally)?.unwrap_or_else(Json::null);
            let preliminary = f.bool("preliminary")?.unwrap_or(false);
            let (facts, _) = tool_facts(b, &mut f, "messageId")?;
            if preliminary {
                let value = encode::build_object(|w| {
                    w.str("toolCallId", &call).json("output", &output);
                });
                b.custom(wire::TOOL_PROGRESS, value.into(), None, out);
            } else {
                b.tool_output(&call, &output, facts.metadata, out);
            }
        }
        "tool-output-error" => {
            let call = call_id(b, &mut f)?;
            let error = f.need_boxed("errorText", &mut b.tally)?;
            let (facts, _) = tool_facts(b, &mut f, "messageId")?;
            if !b.has_failed(&call) && !b.failed_unsaid(&call, &error, out) {
                b.tool_result(&call, (*error).into(), Some(error), facts.metadata, out);
            }
        }
        "tool-output-denied" => {
            let call = call_id(b, &mut f)?;
            b.denied(&call, out);
        }
        "tool-approval-request" => approval(b, &mut f)?,
        "tool-approval-response" => {
            let id = f.need_str("approvalId", &mut b.tally)?;
            let approved = f.bool("approved")?.ok_or_else(|| f.missing("approved", "a boolean"))?;
            let reason = f.str("reason", &mut b.tally)?;
            f.bool("providerExecuted")?;
            facts(b, &mut f, "messageId")?;
            let value = encode::build_object(|w| {
                w.str("approvalId", &id).bool("approved", approved).opt_str("reason", reason.as_deref());
            });
            b.answered(&id, approved, reason.as_deref().map(Into::into));
            b.custom("tool-approval-response", value.into(), None, out);
        }
        "source-url" | "source-document" => source(b, &mut f, kind == "source-url", out)?,
        "file" | "reasoning-file" => file(b, &mut f, kind == "reasoning-file", out)?,
        "start-step" => b.step_start(None, out),
        "finish-step" => b.step_finish(out),
        "reset-step" => {
            // What was said cannot be taken back; at least it does not go on.
            b.quiet(out);
            b.tally.note("not expressible", "reset-step");
        }
        "message-metadata" => {
            if let Some(metadata) = f.json("messageMetadata", &mut b.tally)? {
                b.metadata(metadata, out);
            }
        }
        "finish" => {
            let reason = f.str("finishReason", &mut b.tally)?;
            if let Some(metadata) = f.json("messageMetadata", &mut b.tally)? {
                b.last_metadata(metadata, out);
            }
            if let Some(reason) = reason {
                b.reason(&reason);
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
        "steering-message" => steering(b, &mut f, out)?,
        name => match name.strip_prefix("data-") {
            Some(name) => {
                let id = f.str("id", &mut b.tally)?;
                let data = f.json("data", &mut b.tally)?.unwrap_or_else(Json::null);
                let transient = f.bool("transient")?.unwrap_or(false);
                b.data(name, id.as_deref(), data, transient, out);
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

fn start(b: &mut Builder, mut f: Fields<'_, '_>, out: &mut Vec<Event>) -> Result<(), ReadError> {
    let id = f.str("messageId", &mut b.tally)?;
    let metadata = f.json("messageMetadata", &mut b.tally)?;
    let own = metadata.clone().and_then(Json::into_object).and_then(|it| it.member(wire::AGENTWIRE));
    if let Some(own) = own.and_then(Json::into_object) {
        b.recognise(own.get_str("threadId"), own.get_str("runId"));
    }
    if let Some(id) = id {
        b.name_message(&id);
    }
    b.start(metadata, out);
    f.rest("start", &mut b.tally)?;
    Ok(())
}

fn call_id(b: &mut Builder, f: &mut Fields<'_, '_>) -> Result<ToolCallId, ReadError> {
    let id = f.need_str("toolCallId", &mut b.tally)?;
    Ok(b.ids.get(&id))
}

/// What `providerMetadata` says.
fn facts(b: &mut Builder, f: &mut Fields<'_, '_>, id_key: &str) -> Result<ReceivedMetadata, ReadError> {
    let metadata = f.object("providerMetadata", &mut b.tally)?;
    Ok(ReceivedMetadata::from_provider_metadata(metadata.as_ref(), id_key))
}

/// What a chunk about a tool says beside its own business, and whether the provider runs the tool.
fn tool_facts(
    b: &mut Builder,
    f: &mut Fields<'_, '_>,
    id_key: &str,
) -> Result<(ReceivedMetadata, bool), ReadError> {
    let mut facts = facts(b, f, id_key)?;
    // A result follows its call, which has said this.
    let is_call = id_key == "parentMessageId";
    let known_tool = !f.bool("dynamic")?.unwrap_or(false) && is_call;
    f.str("inputEncoding", &mut b.tally)?;
    let remote = f.bool(native::PROVIDER_EXECUTED)?.unwrap_or(false);
    let title = f.str(native::TITLE, &mut b.tally)?;
    let tool = f.object(native::TOOL_METADATA, &mut b.tally)?;
    let more = [
        (native::PART, known_tool.then(|| Json::string(native::STATIC))),
        (native::PROVIDER_EXECUTED, (remote && is_call).then(metadata::json_true)),
        (native::TITLE, title.as_deref().map(Json::string)),
        (native::TOOL_METADATA, tool.map(Json::from)),
    ];
    for (key, value) in more {
        if let Some(value) = value {
            facts.metadata = Some(metadata::with_native(facts.metadata, key, value));
        }
    }
    Ok((facts, remote))
}

fn tool_input(b: &mut Builder, f: &mut Fields<'_, '_>, out: &mut Vec<Event>) -> Result<(), ReadError> {
    let call = call_id(b, f)?;
    let name = f.need_str("toolName", &mut b.tally)?;
    let input = f.json("input", &mut b.tally)?.unwrap_or_else(Json::null);
    let error = f.boxed("errorText", &mut b.tally)?;
    let (mut facts, remote) = tool_facts(b, f, "parentMessageId")?;
    if let Some(error) = &error {
        facts.metadata =
            Some(metadata::with_native(facts.metadata, native::INPUT_ERROR, Json::string(error)));
    }
    if let Some(interrupt) = decode::interrupt_of_call(&name, &call, &input) {
        b.interrupt(interrupt);
        return Ok(());
    }
    b.tool_call(&call, &name, Some(&input), facts, out);
    if remote {
        b.remote_call(&call);
    }
    if let Some(error) = error {
        b.bad_input(&call, error, out);
    }
    Ok(())
}

fn approval(b: &mut Builder, f: &mut Fields<'_, '_>) -> Result<(), ReadError> {
    let id = f.need_str("approvalId", &mut b.tally)?;
    let call = call_id(b, f)?;
    let mut interrupt = Interrupt::new(id.as_ref(), "tool_call");
    interrupt.tool_call = Some(call);
    interrupt.message = f.boxed("reason", &mut b.tally)?;
    let mut more = Vec::new();
    for key in ["approvalDescriptor", "inputSchemaInput", "signature", "isAutomatic"] {
        if let Some(value) = f.json(key, &mut b.tally)? {
            more.push((key, value));
        }
    }
    if !more.is_empty() {
        let own = Object::from_entries(more);
        interrupt.metadata = Some(Object::from_entries([(wire::AI_SDK, own.into())]));
    }
    b.interrupt(interrupt);
    Ok(())
}

fn source(
    b: &mut Builder,
    f: &mut Fields<'_, '_>,
    is_url: bool,
    out: &mut Vec<Event>,
) -> Result<(), ReadError> {
    let id = f.need_str("sourceId", &mut b.tally)?;
    let metadata = f.object("providerMetadata", &mut b.tally)?;
    let own = metadata.as_ref().and_then(|it| it.member(wire::AGENTWIRE)).and_then(Json::into_object);
    let text = |key: &str| own.as_ref().and_then(|own| own.get_str(key)).map(Box::<str>::from);
    let mut source = Source {
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
    out.push(Event::new(Body::Source(Box::new(source))));
    Ok(())
}

fn file(
    b: &mut Builder,
    f: &mut Fields<'_, '_>,
    reasoning: bool,
    out: &mut Vec<Event>,
) -> Result<(), ReadError> {
    let url = f.need_str("url", &mut b.tally)?;
    let media_type = f.need_str("mediaType", &mut b.tally)?;
    let facts = f.object("providerMetadata", &mut b.tally)?;
    let own = facts.as_ref().and_then(|it| it.member(wire::AGENTWIRE)).and_then(Json::into_object);
    let text = |key: &str| own.as_ref().and_then(|own| own.get_str(key));
    b.file_count += 1;
    let id = text("id").unwrap_or_else(|| decode::derived_id(b.base(), "file", b.file_count));
    let file = File {
        id: id.into(),
        message: text("messageId").map(Into::into),
        kind: MediaKind::of_mime(&media_type),
        source: decode::media_source(&url, Some(&media_type)),
        name: text("filename").map(Into::into),
    };
    let mut metadata = ReceivedMetadata::from_provider_metadata(facts.as_ref(), "messageId").metadata;
    if reasoning {
        metadata = Some(metadata::with_native(metadata, native::REASONING, metadata::json_true()));
    }
    out.push(Event::new(Body::File(Box::new(file))).with_metadata(metadata));
    Ok(())
}

/// A person spoke while the agent was working.
fn steering(b: &mut Builder, f: &mut Fields<'_, '_>, out: &mut Vec<Event>) -> Result<(), ReadError> {
    let id = f.need_str("id", &mut b.tally)?;
    let message: crate::event::MessageId = b.ids.get(&id);
    let tally = &mut b.tally;
    let mut said = Vec::new();
    f.array("parts", |raw, path| {
        let mut part = Fields::of(raw, path)?;
        match &*part.need_str("type", tally)? {
            "text" => said.push(part.need_boxed("text", tally)?),
            other => tally.note("not expressible", &format!("steering-message part `{other}`")),
        }
        Ok(())
    })?;
    out.push(Event::new(Body::TextStart { message: message.clone(), role: Some(Role::User), name: None }));
    for delta in said {
        out.push(Event::new(Body::TextDelta { message: message.clone(), delta }));
    }
    out.push(Event::new(Body::TextEnd { message }));
    Ok(())
}
