//! Reads the parts of a request's messages, of versions 4 to 7.

use serde_json::value::RawValue;

use super::{
    approval_answer,
    conversation::{AssistantTurn, denied_message, model_result, result_message, unknown_call},
};
use crate::{
    event::{
        Block, Citation, ContentPart, File, Interrupt, MediaKind, Message, MessageBody, MessageData,
        ResumeEntry, ResumeStatus, ToolCall, ToolCallId,
    },
    fold::carrier,
    format::ai_sdk::{
        reader::{
            decode,
            metadata::{self, ReceivedMetadata},
        },
        wire::{STATE_ID, data_part, native},
        writer::{encode, part_metadata},
    },
    json::{Fields, Json, Object, Path, ReadResult, json},
    tally::Tally,
};

/// States of a tool part in all versions since 5.
const STATES: &str = "`input-streaming`, `input-available`, `approval-requested`, `approval-responded`, `output-available`, \
                      `output-error` or `output-denied`";

/// Reads a part of a user's message; a part without a canonical form is returned unchanged as `Err`.
pub(super) fn user_part(
    raw: &RawValue,
    path: Path<'_>,
    tally: &mut Tally,
) -> ReadResult<Result<ContentPart, Json>> {
    let mut f = Fields::of(raw, path)?;
    let kind = f.need_str("type", tally)?;
    Ok(Ok(match &*kind {
        "text" => ContentPart::text(f.need_boxed("text", tally)?),
        "file" => media(&mut f, tally)?,
        "image" => match media(&mut f, tally)? {
            ContentPart::Media { source, id, metadata, .. } => {
                ContentPart::Media { kind: MediaKind::Image, source, id, metadata }
            }
            text => text,
        },
        other => {
            if !other.starts_with("data-") {
                tally.note("unknown part", other);
            }
            return Ok(Err(json(raw, path, tally)?));
        }
    }))
}

/// Reads a file part: `{mediaType, url}` since version 5, `{mimeType, data}` in 4, `{image}` in model
/// messages.
fn media(f: &mut Fields<'_, '_>, tally: &mut Tally) -> ReadResult<ContentPart> {
    let media_type = match f.str("mediaType", tally)? {
        Some(given) => Some(given),
        None => f.str("mimeType", tally)?,
    };
    let name = match f.boxed("filename", tally)? {
        Some(name) => Some(name),
        None => f.boxed("name", tally)?,
    };
    let source = if let Some(url) = f.str("url", tally)? {
        decode::media_source(&url, media_type.as_deref())
    } else {
        let data = match f.str("data", tally)? {
            Some(data) => Some(data),
            None => f.str("image", tally)?,
        };
        let data = data.ok_or_else(|| f.missing("url", "the address of the file"))?;
        // Base64 has no colon; absolute URLs and data URLs have one.
        if data.contains(':') {
            decode::media_source(&data, media_type.as_deref())
        } else {
            crate::event::PartSource::Data {
                value: data.into(),
                mime_type: media_type.as_deref().unwrap_or("application/octet-stream").into(),
            }
        }
    };
    let kind = MediaKind::of_mime(media_type.as_deref().or(source.mime_type()).unwrap_or_default());
    let metadata = name.map(|name| Object::from_entries([("filename", Json::string(&name))]).into());
    Ok(ContentPart::Media { kind, source, id: None, metadata })
}

/// Reads an attachment of version 4.
pub(super) fn attachment(raw: &RawValue, path: Path<'_>, tally: &mut Tally) -> ReadResult<ContentPart> {
    let mut f = Fields::of(raw, path)?;
    let url = f.need_str("url", tally)?;
    let media_type = f.str("contentType", tally)?;
    let name = f.boxed("name", tally)?;
    let source = decode::media_source(&url, media_type.as_deref());
    let kind = MediaKind::of_mime(media_type.as_deref().or(source.mime_type()).unwrap_or_default());
    let metadata = name.map(|name| Object::from_entries([("filename", Json::string(&name))]).into());
    Ok(ContentPart::Media { kind, source, id: None, metadata })
}

/// Reads a part of an assistant's message.
pub(super) fn assistant_part(
    turn: &mut AssistantTurn,
    raw: &RawValue,
    path: Path<'_>,
    tally: &mut Tally,
) -> ReadResult {
    let mut f = Fields::of(raw, path)?;
    let kind = f.need_str("type", tally)?;
    match &*kind {
        "text" => {
            let text = f.need_str("text", tally)?;
            let received =
                ReceivedMetadata::parse(f.object("providerMetadata", tally)?.as_ref(), "messageId");
            turn.push_text(&text, received);
        }
        "reasoning" => read_reasoning(turn, &mut f, tally)?,
        "step-start" => turn.end_message(),
        "tool-invocation" => {
            let path = Path::Key(&path, "toolInvocation");
            let raw = f.take("toolInvocation").ok_or_else(|| f.missing("toolInvocation", "an object"))?;
            tool_invocation(turn, raw, path, tally)?;
        }
        "dynamic-tool" => {
            let name = f.need_boxed("toolName", tally)?;
            read_tool(turn, f, name, false, tally)?;
        }
        // Parts of model messages.
        "tool-call" if f.peek("state").is_none() => {
            let id = f.need_id("toolCallId", tally)?;
            let name = f.need_boxed("toolName", tally)?;
            let input = match f.json("input", tally)? {
                Some(input) => Some(input),
                None => f.json("args", tally)?,
            };
            let input = input.ok_or_else(|| f.missing("input", "the tool's arguments"))?;
            turn.push_call(new_call(id, name, &input), None);
        }
        // An approval request that a model message repeats; its answer is in a message of tool results.
        "tool-approval-request" if f.peek("state").is_none() => {
            let call = f.need_id("toolCallId", tally)?;
            turn.approvals.push((f.need_boxed("approvalId", tally)?, call));
        }
        "tool-result" if f.peek("state").is_none() => {
            let call: ToolCallId = f.need_id("toolCallId", tally)?;
            if !turn.has_call(&call) {
                return Err(unknown_call(path, &call));
            }
            turn.push_result(model_result(call, &mut f, tally)?);
        }
        "source-url" | "source-document" => read_source(turn, &mut f, tally)?,
        "source" => {
            let path = Path::Key(&path, "source");
            let raw = f.take("source").ok_or_else(|| f.missing("source", "an object"))?;
            let mut inner = Fields::of(raw, path)?;
            read_source(turn, &mut inner, tally)?;
        }
        "file" => read_file(turn, &mut f, tally)?,
        name if name.starts_with("tool-") => {
            let name: Box<str> = name["tool-".len()..].into();
            read_tool(turn, f, name, true, tally)?;
        }
        name if name.starts_with("data-") => {
            let name = name["data-".len()..].to_owned();
            let id = f.boxed("id", tally)?;
            let data = f.json("data", tally)?.unwrap_or_else(Json::null);
            if !agentwire_data_part(turn, &name, id.as_deref(), &data) {
                turn.kept_parts.push(json(raw, path, tally)?);
            }
        }
        other => {
            tally.note("unknown part", other);
            turn.kept_parts.push(json(raw, path, tally)?);
        }
    }
    Ok(())
}

fn read_reasoning(turn: &mut AssistantTurn, f: &mut Fields<'_, '_>, tally: &mut Tally) -> ReadResult {
    turn.reasoning_count += 1;
    let received = ReceivedMetadata::parse(f.object("providerMetadata", tally)?.as_ref(), "messageId");
    let mut encrypted = received.encrypted;
    // In version 4 the text is in `reasoning`, the signature in `details`.
    let content = match f.boxed("text", tally)? {
        Some(text) => text,
        None => f.need_boxed("reasoning", tally)?,
    };
    f.array("details", |raw, path| {
        let mut detail = Fields::of(raw, path)?;
        let signature = detail.boxed("signature", tally)?;
        encrypted = encrypted.take().or(signature).or(detail.boxed("data", tally)?);
        Ok(())
    })?;
    let generated = || decode::derived_id(&turn.id, "reasoning", turn.reasoning_count).into();
    let id = received.message.unwrap_or_else(generated);
    turn.push_other(Message::from(MessageData {
        encrypted,
        subagent: received.subagent,
        metadata: received.metadata,
        ..MessageData::new(id, MessageBody::Reasoning { content })
    }));
    Ok(())
}

fn new_call(id: ToolCallId, name: impl Into<Box<str>>, input: &Json) -> ToolCall {
    let mut call = ToolCall::new(id, name, decode::argument_text(input));
    if encode::tool_input(&call.arguments) != *input {
        call.metadata = Some(metadata::with_native(None, native::INPUT, input.clone()));
    }
    call
}

/// Reads a tool part of version 5 or newer.
fn read_tool(
    turn: &mut AssistantTurn,
    mut f: Fields<'_, '_>,
    name: Box<str>,
    is_static: bool,
    tally: &mut Tally,
) -> ReadResult {
    let path = f.path();
    let id: ToolCallId = f.need_id("toolCallId", tally)?;
    let state = f.need_str("state", tally)?;
    let input = f.json("input", tally)?;
    let raw_input = f.json("rawInput", tally)?;
    let output = f.json("output", tally)?;
    let error = f.boxed("errorText", tally)?;
    let preliminary = f.bool("preliminary")?.unwrap_or(false);
    let received =
        ReceivedMetadata::parse(f.object("callProviderMetadata", tally)?.as_ref(), "parentMessageId");
    let members = [
        (
            native::PROVIDER_EXECUTED,
            f.bool(native::PROVIDER_EXECUTED)?.filter(|remote| *remote).map(|_| metadata::json_true()),
        ),
        (native::TITLE, f.str(native::TITLE, tally)?.map(|title| Json::string(&title))),
        (native::TOOL_METADATA, f.object(native::TOOL_METADATA, tally)?.map(Json::from)),
    ];
    let result_metadata =
        ReceivedMetadata::parse(f.object("resultProviderMetadata", tally)?.as_ref(), "messageId");
    let approval = match f.take_unless_null("approval") {
        Some(raw) => Some(ToolApproval::read(raw, Path::Key(&path, "approval"), tally)?),
        None => None,
    };
    let input = input.or(raw_input);
    if let Some(interrupt) = input.as_ref().and_then(|input| decode::interrupt_of_call(&name, &id, input)) {
        let answer = match &*state {
            "output-available" if !preliminary => Some((ResumeStatus::Resolved, output)),
            "output-error" => Some((ResumeStatus::Cancelled, error.map(|error| Json::string(&error)))),
            _ => None,
        };
        if let Some((status, payload)) = answer {
            turn.last.resume.push(resume_entry(interrupt, status, payload));
        }
        return Ok(());
    }
    if state == "input-streaming" {
        tally.note("incomplete tool call", &name);
        return Ok(());
    }
    let input = input.unwrap_or_else(|| Object::empty().into());
    let mut call = new_call(id.clone(), name, &input);
    call.encrypted = received.encrypted;
    call.metadata = match (call.metadata, received.metadata) {
        (Some(own), Some(received)) => {
            let input = metadata::native(Some(&own)).and_then(|it| it.member(native::INPUT));
            input.map(|input| metadata::with_native(Some(received), native::INPUT, input))
        }
        (own, received) => own.or(received),
    };
    for (key, value) in members {
        if let Some(value) = value {
            call.metadata = Some(metadata::with_native(call.metadata.take(), key, value));
        }
    }
    if is_static {
        call.metadata =
            Some(metadata::with_native(call.metadata.take(), native::PART, Json::string(native::STATIC)));
    }
    if let Some(approval) = &approval {
        call.metadata =
            Some(metadata::with_native(call.metadata.take(), native::APPROVAL, approval.whole.clone()));
    }
    turn.push_call(call, received.message);
    match &*state {
        "input-available" | "approval-requested" => {}
        "approval-responded" => {
            let approval = approval.ok_or_else(|| f.missing("approval", "an object"))?;
            let path = Path::Key(&path, "approval");
            let approved =
                approval.approved.ok_or_else(|| path.error("`approved` is missing, expected a boolean"))?;
            let mut interrupt = Interrupt::new(approval.id, "tool_call");
            interrupt.tool_call = Some(id);
            let answer = approval_answer(approved, approval.reason.as_deref());
            turn.last.resume.push(resume_entry(interrupt, ResumeStatus::Resolved, Some(answer)));
        }
        "output-available" => {
            // JSON has no member for a tool that returned `undefined` in the browser.
            let output = output.unwrap_or_else(Json::null);
            if !preliminary {
                let mut result = result_message(id, &output, None);
                if let Some(providers) = part_metadata::provider_metadata(result_metadata.metadata.as_ref()) {
                    result.metadata = Some(metadata::with_native(
                        result.metadata.take(),
                        native::PROVIDER_METADATA,
                        providers.into(),
                    ));
                }
                turn.push_result(result);
            }
        }
        "output-error" => {
            let error = error.ok_or_else(|| f.missing("errorText", "a string"))?;
            turn.push_result(result_message(id, &Json::null(), Some(error)));
        }
        "output-denied" => {
            turn.push_result(denied_message(id, approval.and_then(|it| it.reason)));
        }
        other => {
            return Err(Path::Key(&path, "state").error(format!("expected {STATES}, found `{other}`")));
        }
    }
    Ok(())
}

/// Answer to an interrupt; its metadata contains the id of the guarded call.
pub(super) fn resume_entry(interrupt: Interrupt, status: ResumeStatus, payload: Option<Json>) -> ResumeEntry {
    let call = interrupt.tool_call.as_deref();
    ResumeEntry {
        metadata: call.map(|call| Object::from_entries([("toolCallId", Json::string(call))])),
        interrupt: interrupt.id,
        status,
        payload: payload.filter(|payload| !payload.is_null()),
    }
}

/// Member `approval` of a tool part.
struct ToolApproval {
    id: String,
    approved: Option<bool>,
    reason: Option<Box<str>>,
    whole: Json,
}

impl ToolApproval {
    fn read(raw: &RawValue, path: Path<'_>, tally: &mut Tally) -> ReadResult<Self> {
        let mut f = Fields::of(raw, path)?;
        Ok(Self {
            id: f.need_str("id", tally)?.into_owned(),
            approved: f.bool("approved")?,
            reason: f.boxed("reason", tally)?,
            whole: json(raw, path, tally)?,
        })
    }
}

/// Reads a tool invocation of version 4.
pub(super) fn tool_invocation(
    turn: &mut AssistantTurn,
    raw: &RawValue,
    path: Path<'_>,
    tally: &mut Tally,
) -> ReadResult {
    let mut f = Fields::of(raw, path)?;
    let id: ToolCallId = f.need_id("toolCallId", tally)?;
    let name = f.need_boxed("toolName", tally)?;
    let state = f.need_str("state", tally)?;
    let args = f.json("args", tally)?;
    let result = f.json("result", tally)?;
    if !matches!(&*state, "partial-call" | "call" | "result") {
        let problem = format!("expected `partial-call`, `call` or `result`, found `{state}`");
        return Err(Path::Key(&path, "state").error(problem));
    }
    if state == "partial-call" {
        tally.note("incomplete tool call", &name);
        return Ok(());
    }
    let args = args.ok_or_else(|| f.missing("args", "the tool's arguments"))?;
    if let Some(interrupt) = decode::interrupt_of_call(&name, &id, &args) {
        if let Some(payload) = result.filter(|_| state == "result") {
            turn.last.resume.push(resume_entry(interrupt, ResumeStatus::Resolved, Some(payload)));
        }
        return Ok(());
    }
    turn.push_call(new_call(id.clone(), name, &args), None);
    if state == "result" {
        let result = result.ok_or_else(|| f.missing("result", "the tool's result"))?;
        let error = decode::error_of_result(&result).map(Into::into);
        turn.push_result(result_message(id, &result, error));
    }
    Ok(())
}

fn read_source(turn: &mut AssistantTurn, f: &mut Fields<'_, '_>, tally: &mut Tally) -> ReadResult {
    turn.file_count += 1;
    let id = match f.str("sourceId", tally)? {
        Some(id) => Some(id),
        None => f.str("id", tally)?,
    };
    let id = id.map_or_else(|| decode::derived_id(&turn.id, "source", turn.file_count), |id| id.into_owned());
    let metadata = f.object("providerMetadata", tally)?;
    let members = metadata::agentwire_member(metadata.as_ref());
    let source = Citation {
        id: id.as_str().into(),
        message: members.and_then(|it| it.get_str("messageId")).map(Into::into),
        url: f.boxed("url", tally)?,
        title: f.boxed("title", tally)?,
        media_type: f.boxed("mediaType", tally)?,
        filename: f.boxed("filename", tally)?,
        detail: decode::source_detail(metadata.as_ref()),
    };
    let body =
        MessageBody::Activity { kind: carrier::SOURCE.into(), content: carrier::source_content(&source) };
    turn.push_other(Message::new(id, body));
    Ok(())
}

/// Reads a file that the assistant produced.
fn read_file(turn: &mut AssistantTurn, f: &mut Fields<'_, '_>, tally: &mut Tally) -> ReadResult {
    turn.file_count += 1;
    let metadata = f.object("providerMetadata", tally)?;
    let canonical = ReceivedMetadata::parse(metadata.as_ref(), "messageId").metadata;
    let members = metadata::agentwire_member(metadata.as_ref());
    let text = |key: &str| members.as_ref().and_then(|it| it.get_str(key));
    let ContentPart::Media { kind, source, metadata, .. } = media(f, tally)? else {
        return Ok(());
    };
    let name = metadata.and_then(Json::into_object).and_then(|it| it.get_str("filename"));
    let id = text("id").unwrap_or_else(|| decode::derived_id(&turn.id, "file", turn.file_count));
    let file = File {
        id: id.as_str().into(),
        message: text("messageId").map(Into::into),
        kind,
        source,
        name: name.or_else(|| text("filename")).map(Into::into),
    };
    let body = MessageBody::Activity { kind: carrier::FILE.into(), content: carrier::file_content(&file) };
    turn.push_other(Message::from(MessageData { metadata: canonical, ..MessageData::new(id, body) }));
    Ok(())
}

/// Converts a data part of agentwire; returns false for all other parts.
fn agentwire_data_part(turn: &mut AssistantTurn, name: &str, id: Option<&str>, data: &Json) -> bool {
    let Some(id) = id else { return false };
    if name == data_part::STATE && id == STATE_ID {
        turn.state = Some(data.clone());
        return true;
    }
    let Some(object) = data.clone().into_object() else { return false };
    match name {
        data_part::ACTIVITY => {
            let content = object.member("content").and_then(Json::into_object);
            let (Some(kind), Some(content)) = (object.get_str("activityType"), content) else {
                return false;
            };
            turn.push_other(Message::from(MessageData {
                subagent: object.get_str("subagentId").map(Into::into),
                metadata: object.member("metadata").and_then(Json::into_object),
                ..MessageData::new(id, MessageBody::Activity { kind: kind.into(), content })
            }));
        }
        data_part::BLOCK => {
            let output = object.member("output").and_then(Json::into_object);
            let (Some(message), Some(output)) = (object.get_str("messageId"), output) else {
                return false;
            };
            let block = Block {
                id: id.into(),
                message: message.into(),
                output,
                layout: object.member("layout"),
                block_id: object.get_str("blockId").map(Into::into),
                style: object.member("style"),
            };
            let (kind, content, metadata) = carrier::block_content(&block);
            let body = MessageBody::Activity { kind: kind.into(), content };
            turn.push_other(Message::from(MessageData {
                metadata: Some(metadata),
                ..MessageData::new(id, body)
            }));
        }
        // Shown progress is not content; the answer to an interrupt is in its tool part.
        data_part::STEP | data_part::SUBAGENT | data_part::INTERRUPT => {}
        _ => return false,
    }
    true
}
