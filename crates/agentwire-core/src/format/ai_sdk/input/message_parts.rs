//! The parts of a message, of versions 4 to 7 alike.

use serde_json::value::RawValue;

use super::{
    approval_answer,
    conversation::{Turn, denied_message, model_result, result_message, unknown_call},
};
use crate::{
    event::{
        Block, ContentPart, File, Interrupt, MediaKind, Message, MessageBody, ResumeEntry, ResumeStatus,
        Source, ToolCall, ToolCallId,
    },
    fold::carrier,
    format::ai_sdk::{
        reader::{
            decode,
            metadata::{self, ReceivedMetadata},
        },
        wire::{self, STATE_ID, data_part, native},
        writer::{encode, part_metadata},
    },
    json::{Fields, Json, Object, Path, ReadError, json},
    tally::Tally,
};

/// The states that a tool part of any version can be in.
const STATES: &str = "`input-streaming`, `input-available`, `approval-requested`, `approval-responded`, `output-available`, \
                      `output-error` or `output-denied`";

/// A part of a user's message; a part that has no canonical form comes back as it is.
pub(super) fn user_part(
    raw: &RawValue,
    path: Path<'_>,
    tally: &mut Tally,
) -> Result<Result<ContentPart, Json>, ReadError> {
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

/// A file part of a message: `{mediaType, url}` since version 5, `{mimeType, data}` in 4, `{image}` in model
/// messages.
fn media(f: &mut Fields<'_, '_>, tally: &mut Tally) -> Result<ContentPart, ReadError> {
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
        // Base64 has no colon; addresses of both kinds have one.
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

/// An attachment of version 4.
pub(super) fn attachment(
    raw: &RawValue,
    path: Path<'_>,
    tally: &mut Tally,
) -> Result<ContentPart, ReadError> {
    let mut f = Fields::of(raw, path)?;
    let url = f.need_str("url", tally)?;
    let media_type = f.str("contentType", tally)?;
    let name = f.boxed("name", tally)?;
    let source = decode::media_source(&url, media_type.as_deref());
    let kind = MediaKind::of_mime(media_type.as_deref().or(source.mime_type()).unwrap_or_default());
    let metadata = name.map(|name| Object::from_entries([("filename", Json::string(&name))]).into());
    Ok(ContentPart::Media { kind, source, id: None, metadata })
}

/// A part of an assistant's message.
pub(super) fn assistant_part(
    turn: &mut Turn,
    raw: &RawValue,
    path: Path<'_>,
    tally: &mut Tally,
) -> Result<(), ReadError> {
    let mut f = Fields::of(raw, path)?;
    let kind = f.need_str("type", tally)?;
    match &*kind {
        "text" => {
            let text = f.need_str("text", tally)?;
            let facts = ReceivedMetadata::from_provider_metadata(
                f.object("providerMetadata", tally)?.as_ref(),
                "messageId",
            );
            turn.text(&text, facts);
        }
        "reasoning" => reasoning(turn, &mut f, tally)?,
        "step-start" => turn.flush(),
        "tool-invocation" => {
            let place = Path::Key(&path, "toolInvocation");
            let raw = f.take("toolInvocation").ok_or_else(|| f.missing("toolInvocation", "an object"))?;
            invocation(turn, raw, place, tally)?;
        }
        "dynamic-tool" => {
            let name = f.need_boxed("toolName", tally)?;
            tool(turn, f, name, false, tally)?;
        }
        // Model messages.
        "tool-call" if f.peek("state").is_none() => {
            let id = f.need_id("toolCallId", tally)?;
            let name = f.need_boxed("toolName", tally)?;
            let input = match f.json("input", tally)? {
                Some(input) => Some(input),
                None => f.json("args", tally)?,
            };
            let input = input.ok_or_else(|| f.missing("input", "the tool's arguments"))?;
            turn.call(new_call(id, name, &input), None);
        }
        // A request that a model message repeats; the answer to it is in a message of results.
        "tool-approval-request" if f.peek("state").is_none() => {
            let call = f.need_id("toolCallId", tally)?;
            turn.approvals.push((f.need_boxed("approvalId", tally)?, call));
        }
        "tool-result" if f.peek("state").is_none() => {
            let call: ToolCallId = f.need_id("toolCallId", tally)?;
            if !turn.calls(&call) {
                return Err(unknown_call(path, &call));
            }
            turn.answer(model_result(call, &mut f, tally)?);
        }
        "source-url" | "source-document" => source(turn, &mut f, tally)?,
        "source" => {
            let place = Path::Key(&path, "source");
            let raw = f.take("source").ok_or_else(|| f.missing("source", "an object"))?;
            let mut inner = Fields::of(raw, place)?;
            source(turn, &mut inner, tally)?;
        }
        "file" => file(turn, &mut f, tally)?,
        name if name.starts_with("tool-") => {
            let name: Box<str> = name["tool-".len()..].into();
            tool(turn, f, name, true, tally)?;
        }
        name if name.starts_with("data-") => {
            let name = name["data-".len()..].to_owned();
            let id = f.boxed("id", tally)?;
            let data = f.json("data", tally)?.unwrap_or_else(Json::null);
            if !data_part(turn, &name, id.as_deref(), &data) {
                turn.kept.push(json(raw, path, tally)?);
            }
        }
        other => {
            tally.note("unknown part", other);
            turn.kept.push(json(raw, path, tally)?);
        }
    }
    Ok(())
}

fn reasoning(turn: &mut Turn, f: &mut Fields<'_, '_>, tally: &mut Tally) -> Result<(), ReadError> {
    turn.thoughts += 1;
    let facts =
        ReceivedMetadata::from_provider_metadata(f.object("providerMetadata", tally)?.as_ref(), "messageId");
    let mut encrypted = facts.encrypted;
    // Version 4 has another name for the text, and the signature among its details.
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
    let made = || decode::derived_id(&turn.id, "reasoning", turn.thoughts).into();
    let id = facts.message.unwrap_or_else(made);
    turn.other(Message {
        encrypted,
        subagent: facts.subagent,
        metadata: facts.metadata,
        ..Message::new(id, MessageBody::Reasoning { content })
    });
    Ok(())
}

fn new_call(id: ToolCallId, name: impl Into<Box<str>>, input: &Json) -> ToolCall {
    let mut call = ToolCall::new(id, name, decode::argument_text(input));
    if encode::tool_input(&call.arguments) != *input {
        call.metadata = Some(metadata::with_native(None, native::INPUT, input.clone()));
    }
    call
}

/// A tool part of version 5 or newer.
fn tool(
    turn: &mut Turn,
    mut f: Fields<'_, '_>,
    name: Box<str>,
    known_tool: bool,
    tally: &mut Tally,
) -> Result<(), ReadError> {
    let path = f.path();
    let id: ToolCallId = f.need_id("toolCallId", tally)?;
    let state = f.need_str("state", tally)?;
    let input = f.json("input", tally)?;
    let raw_input = f.json("rawInput", tally)?;
    let output = f.json("output", tally)?;
    let error = f.boxed("errorText", tally)?;
    let preliminary = f.bool("preliminary")?.unwrap_or(false);
    let facts = ReceivedMetadata::from_provider_metadata(
        f.object("callProviderMetadata", tally)?.as_ref(),
        "parentMessageId",
    );
    let about = [
        (
            native::PROVIDER_EXECUTED,
            f.bool(native::PROVIDER_EXECUTED)?.filter(|remote| *remote).map(|_| metadata::json_true()),
        ),
        (native::TITLE, f.str(native::TITLE, tally)?.map(|title| Json::string(&title))),
        (native::TOOL_METADATA, f.object(native::TOOL_METADATA, tally)?.map(Json::from)),
    ];
    let result_facts = ReceivedMetadata::from_provider_metadata(
        f.object("resultProviderMetadata", tally)?.as_ref(),
        "messageId",
    );
    let approval = match f.take_unless_null("approval") {
        Some(raw) => Some(Approval::read(raw, Path::Key(&path, "approval"), tally)?),
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
            turn.last.resume.push(answer_to(interrupt, status, payload));
        }
        return Ok(());
    }
    if state == "input-streaming" {
        tally.note("incomplete tool call", &name);
        return Ok(());
    }
    let input = input.unwrap_or_else(|| Object::empty().into());
    let mut call = new_call(id.clone(), name, &input);
    call.encrypted = facts.encrypted;
    call.metadata = match (call.metadata, facts.metadata) {
        (Some(own), Some(told)) => {
            let input = metadata::native(Some(&own)).and_then(|own| own.member(native::INPUT));
            input.map(|input| metadata::with_native(Some(told), native::INPUT, input))
        }
        (own, told) => own.or(told),
    };
    for (key, value) in about {
        if let Some(value) = value {
            call.metadata = Some(metadata::with_native(call.metadata.take(), key, value));
        }
    }
    if known_tool {
        call.metadata =
            Some(metadata::with_native(call.metadata.take(), native::PART, Json::string(native::STATIC)));
    }
    if let Some(approval) = &approval {
        call.metadata =
            Some(metadata::with_native(call.metadata.take(), native::APPROVAL, approval.whole.clone()));
    }
    turn.call(call, facts.message);
    match &*state {
        "input-available" | "approval-requested" => {}
        "approval-responded" => {
            let approval = approval.ok_or_else(|| f.missing("approval", "an object"))?;
            let place = Path::Key(&path, "approval");
            let approved =
                approval.approved.ok_or_else(|| place.error("`approved` is missing, expected a boolean"))?;
            let mut interrupt = Interrupt::new(approval.id, "tool_call");
            interrupt.tool_call = Some(id);
            let answer = approval_answer(approved, approval.reason.as_deref());
            turn.last.resume.push(answer_to(interrupt, ResumeStatus::Resolved, Some(answer)));
        }
        "output-available" => {
            // A tool that returns nothing in the browser leaves no trace in JSON.
            let output = output.unwrap_or_else(Json::null);
            if !preliminary {
                let mut result = result_message(id, &output, None);
                if let Some(said) = part_metadata::provider_metadata(result_facts.metadata.as_ref()) {
                    result.metadata = Some(metadata::with_native(
                        result.metadata.take(),
                        native::PROVIDER_METADATA,
                        said.into(),
                    ));
                }
                turn.answer(result);
            }
        }
        "output-error" => {
            let error = error.ok_or_else(|| f.missing("errorText", "a string"))?;
            turn.answer(result_message(id, &Json::null(), Some(error)));
        }
        "output-denied" => {
            turn.answer(denied_message(id, approval.and_then(|it| it.reason)));
        }
        other => {
            return Err(Path::Key(&path, "state").error(format!("expected {STATES}, found `{other}`")));
        }
    }
    Ok(())
}

/// An answer, which names the call that the interrupt guards.
pub(super) fn answer_to(interrupt: Interrupt, status: ResumeStatus, payload: Option<Json>) -> ResumeEntry {
    let call = interrupt.tool_call.as_deref();
    ResumeEntry {
        metadata: call.map(|call| Object::from_entries([("toolCallId", Json::string(call))])),
        interrupt: interrupt.id,
        status,
        payload: payload.filter(|payload| !payload.is_null()),
    }
}

/// What a person decided about a call.
struct Approval {
    id: String,
    approved: Option<bool>,
    reason: Option<Box<str>>,
    whole: Json,
}

impl Approval {
    fn read(raw: &RawValue, path: Path<'_>, tally: &mut Tally) -> Result<Self, ReadError> {
        let mut f = Fields::of(raw, path)?;
        Ok(Self {
            id: f.need_str("id", tally)?.into_owned(),
            approved: f.bool("approved")?,
            reason: f.boxed("reason", tally)?,
            whole: json(raw, path, tally)?,
        })
    }
}

/// A tool invocation of version 4.
pub(super) fn invocation(
    turn: &mut Turn,
    raw: &RawValue,
    path: Path<'_>,
    tally: &mut Tally,
) -> Result<(), ReadError> {
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
            turn.last.resume.push(answer_to(interrupt, ResumeStatus::Resolved, Some(payload)));
        }
        return Ok(());
    }
    turn.call(new_call(id.clone(), name, &args), None);
    if state == "result" {
        let result = result.ok_or_else(|| f.missing("result", "the tool's result"))?;
        let error = decode::error_of_result(&result).map(Into::into);
        turn.answer(result_message(id, &result, error));
    }
    Ok(())
}

fn source(turn: &mut Turn, f: &mut Fields<'_, '_>, tally: &mut Tally) -> Result<(), ReadError> {
    turn.files += 1;
    let id = match f.str("sourceId", tally)? {
        Some(id) => Some(id),
        None => f.str("id", tally)?,
    };
    let id = id.map_or_else(|| decode::derived_id(&turn.id, "source", turn.files), |id| id.into_owned());
    let metadata = f.object("providerMetadata", tally)?;
    let own = metadata.as_ref().and_then(|it| it.member(wire::AGENTWIRE)).and_then(Json::into_object);
    let source = Source {
        id: id.as_str().into(),
        message: own.as_ref().and_then(|own| own.get_str("messageId")).map(Into::into),
        url: f.boxed("url", tally)?,
        title: f.boxed("title", tally)?,
        media_type: f.boxed("mediaType", tally)?,
        filename: f.boxed("filename", tally)?,
        detail: decode::source_detail(metadata.as_ref()),
    };
    let body =
        MessageBody::Activity { kind: carrier::SOURCE.into(), content: carrier::source_content(&source) };
    turn.other(Message::new(id, body));
    Ok(())
}

/// A file that the assistant made.
fn file(turn: &mut Turn, f: &mut Fields<'_, '_>, tally: &mut Tally) -> Result<(), ReadError> {
    turn.files += 1;
    let metadata = f.object("providerMetadata", tally)?;
    let about = ReceivedMetadata::from_provider_metadata(metadata.as_ref(), "messageId").metadata;
    let own = metadata.and_then(|it| it.member(wire::AGENTWIRE)).and_then(Json::into_object);
    let text = |key: &str| own.as_ref().and_then(|own| own.get_str(key));
    let ContentPart::Media { kind, source, metadata, .. } = media(f, tally)? else {
        return Ok(());
    };
    let name = metadata.and_then(Json::into_object).and_then(|it| it.get_str("filename"));
    let id = text("id").unwrap_or_else(|| decode::derived_id(&turn.id, "file", turn.files));
    let file = File {
        id: id.as_str().into(),
        message: text("messageId").map(Into::into),
        kind,
        source,
        name: name.or_else(|| text("filename")).map(Into::into),
    };
    let body = MessageBody::Activity { kind: carrier::FILE.into(), content: carrier::file_content(&file) };
    turn.other(Message { metadata: about, ..Message::new(id, body) });
    Ok(())
}

/// Takes a data part of ours; says whether it was one.
fn data_part(turn: &mut Turn, name: &str, id: Option<&str>, data: &Json) -> bool {
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
            turn.other(Message {
                subagent: object.get_str("subagentId").map(Into::into),
                metadata: object.member("metadata").and_then(Json::into_object),
                ..Message::new(id, MessageBody::Activity { kind: kind.into(), content })
            });
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
            turn.other(Message { metadata: Some(metadata), ..Message::new(id, body) });
        }
        // Progress that was shown; the answer to an interrupt is in its tool part.
        data_part::STEP | data_part::SUBAGENT | data_part::INTERRUPT => {}
        _ => return false,
    }
    true
}
