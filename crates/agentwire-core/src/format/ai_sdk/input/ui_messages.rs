//! Writes canonical messages as `UIMessage[]`: the history that a page loads, and the messages of a request.
//!
//! All messages of one turn become one assistant message, with the parts in the order of a streamed response. The result
//! passes `validateUIMessages` of the chosen version.

use std::collections::HashMap;

use bytes::BytesMut;

use super::{is_static, is_system_of_request, is_turn, ui_message_id};
use crate::{
    event::{
        Content, ContentPart, Interrupt, Message, MessageBody, MessageId, PartSource, ResumeStatus, RunInput,
        ToolCall, ToolCallId,
    },
    fold::carrier,
    format::ai_sdk::{
        reader::metadata,
        wire::{AI_SDK, INTERRUPT_TOOL, data_part, native},
        writer::{encode, part_metadata},
    },
    json::{ArrayWriter, Json, Object, ObjectWriter},
};

/// Writes messages as JSON for `initialMessages` or a history route of AI SDK `version` (5, 6 or 7). `pending` are the open
/// interrupts of the conversation.
#[must_use]
pub fn ui_messages(messages: &[Message], pending: &[Interrupt], version: u8) -> String {
    UiMessagesWriter { version, pending, answers: HashMap::new() }.write(messages)
}

/// Writes the messages of a request, with its approval answers in their tool parts.
pub(super) fn with_answers(input: &RunInput, version: u8) -> String {
    let mut answers = HashMap::new();
    for entry in input.resume.iter().flatten() {
        let call = entry.metadata.as_ref().and_then(|it| it.get_str("toolCallId"));
        if let (Some(call), ResumeStatus::Resolved) = (call, entry.status) {
            let payload = entry.payload.clone().and_then(Json::into_object);
            let approved = payload.as_ref().and_then(|it| it.member("approved"));
            let reason = payload.as_ref().and_then(|it| it.get_str("reason"));
            let approval = encode::build_object(|w| {
                w.str("id", &entry.interrupt)
                    .bool("approved", approved.is_none_or(|it| it.get() != "false"))
                    .opt_str("reason", reason.as_deref());
            });
            answers.insert(ToolCallId::from(call), approval);
        }
    }
    UiMessagesWriter { version, pending: &[], answers }.write(&input.messages)
}

/// Id of the UI message of a turn; `None` for an empty turn.
pub(in super::super) fn turn_id(turn: &[Message]) -> Option<Box<str>> {
    let id = turn.iter().find_map(ui_message_id);
    id.or_else(|| turn.first().map(|message| message.id.as_str().into()))
}

/// Number of messages in the turn that starts with the first message. It ends before a message of another role, or one that
/// a client holds in another UI message.
fn turn_length(messages: &[Message]) -> usize {
    let mut current = None;
    let end = messages.iter().position(|message| {
        let id = ui_message_id(message);
        let is_other = id.is_some() && current.is_some() && id != current;
        current = id.or(current.take());
        !is_turn(message) || is_other
    });
    end.unwrap_or(messages.len())
}

struct UiMessagesWriter<'h> {
    version: u8,
    pending: &'h [Interrupt],
    /// Approval answers by call.
    answers: HashMap<ToolCallId, Object>,
}

impl UiMessagesWriter<'_> {
    fn write(&self, messages: &[Message]) -> String {
        let mut out = BytesMut::new();
        let mut list = ArrayWriter::new(&mut out);
        let mut rest = messages;
        let mut has_pending = self.pending.is_empty();
        while let [first, others @ ..] = rest {
            if is_turn(first) {
                let length = turn_length(rest);
                let (turn, later) = rest.split_at(length);
                let is_last = !later.iter().any(is_turn);
                has_pending |= is_last;
                list.object(|w| self.write_turn(w, turn, is_last));
                rest = later;
            } else {
                // A page holds no system message that it only sent with a request.
                if !is_system_of_request(first) {
                    list.object(|w| write_input_message(w, first));
                }
                rest = others;
            }
        }
        if !has_pending {
            list.object(|w| self.write_turn(w, &[], true));
        }
        list.end();
        String::from_utf8(out.into()).expect("JSON text is UTF-8")
    }

    fn write_turn(&self, w: &mut ObjectWriter<'_>, turn: &[Message], is_last: bool) {
        let id = turn_id(turn);
        let generated = self.pending.first().map(|interrupt| encode::interrupt_call_id(&interrupt.id).into());
        w.str("id", &id.or(generated).unwrap_or_default()).str("role", "assistant");
        if let Some(metadata) = turn.first().and_then(application_metadata) {
            w.json("metadata", &metadata);
        }
        w.array("parts", |parts| {
            let mut results: HashMap<&ToolCallId, &Message> = HashMap::new();
            for message in turn {
                if let MessageBody::Tool { call, .. } = &message.body {
                    results.insert(call, message);
                }
            }
            let mut step = HistoryStep::default();
            for message in turn {
                self.write_message(parts, message, &mut results, &mut step);
            }
            for message in turn {
                // Results without a call in this turn get a generated one: clients refuse them otherwise.
                if let MessageBody::Tool { call, .. } = &message.body
                    && results.contains_key(call)
                {
                    let generated = ToolCall::new(call.clone(), "unknown", "{}");
                    self.write_tool(parts, &generated, None, results.remove(call));
                }
            }
            for item in turn.iter().flat_map(|message| kept_parts(message, self.version)) {
                parts.json(&item);
            }
            if is_last {
                self.write_interrupts(parts, turn);
            }
        });
    }

    fn write_message(
        &self,
        parts: &mut ArrayWriter<'_>,
        message: &Message,
        results: &mut HashMap<&ToolCallId, &Message>,
        step: &mut HistoryStep,
    ) {
        match &message.body {
            MessageBody::Assistant { content, tool_calls } => {
                step.start(parts);
                if let Some(text) = content.as_deref().filter(|text| !text.is_empty()) {
                    let provider_metadata = message_provider_metadata(message);
                    parts.object(|w| {
                        w.str("type", "text").str("text", text).str("state", "done");
                        w.opt_object("providerMetadata", Some(&provider_metadata));
                    });
                }
                for call in tool_calls.iter().flatten() {
                    let result = results.remove(&call.id);
                    // A tool that the provider runs does not end the model's step.
                    let is_provider_executed =
                        metadata::has_native_flag(call.metadata.as_ref(), native::PROVIDER_EXECUTED);
                    step.has_result |= result.is_some() && !is_provider_executed;
                    self.write_tool(parts, call, Some(&message.id), result);
                }
            }
            MessageBody::Reasoning { content } => {
                step.start(parts);
                let provider_metadata = message_provider_metadata(message);
                parts.object(|w| {
                    w.str("type", "reasoning").str("text", content).str("state", "done");
                    w.opt_object("providerMetadata", Some(&provider_metadata));
                });
            }
            MessageBody::Activity { kind, content } => {
                step.start(parts);
                write_activity(parts, message, kind, content);
            }
            _ => {}
        }
    }

    fn write_tool(
        &self,
        parts: &mut ArrayWriter<'_>,
        call: &ToolCall,
        parent: Option<&MessageId>,
        result: Option<&Message>,
    ) {
        let is_static = is_static(call);
        let received = metadata::native(call.metadata.as_ref()).and_then(|it| it.member(native::APPROVAL));
        let received = received.and_then(Json::into_object);
        let approval = match (self.answers.get(&call.id), received) {
            // The same question: members that this crate does not know stay.
            (Some(answer), Some(received)) if answer.member("id") == received.member("id") => {
                Some(received.merged(answer))
            }
            (answer, received) => answer.cloned().or(received),
        };
        let approval = approval.filter(|_| self.version > 5);
        let approved = |wanted: &str| {
            let approval = approval.as_ref()?;
            (approval.member("approved")?.get() == wanted).then_some(approval)
        };
        let guard = self.pending.iter().find(|it| it.tool_call.as_ref() == Some(&call.id));
        let guard = guard.filter(|_| self.version > 5);
        let provider_metadata = call_provider_metadata(call, parent);
        parts.object(|w| {
            if is_static {
                w.str("type", &format!("tool-{}", call.name));
            } else {
                w.str("type", "dynamic-tool").str("toolName", &call.name);
            }
            w.str("toolCallId", &call.id);
            let native_members = metadata::native(call.metadata.as_ref());
            if metadata::has_native_flag(call.metadata.as_ref(), native::PROVIDER_EXECUTED) {
                w.bool(native::PROVIDER_EXECUTED, true);
            }
            if self.version > 5 {
                let title = native_members.as_ref().and_then(|it| it.get_str(native::TITLE));
                w.opt_str(native::TITLE, title.as_deref());
            }
            let input = native_members.and_then(|it| it.member(native::INPUT));
            let input = input.unwrap_or_else(|| encode::tool_input(&call.arguments));
            let input = encode::sanitized(&input);
            match result.map(|message| (&message.body, is_denied(message))) {
                Some((MessageBody::Tool { .. }, true)) if approved("false").is_some() => {
                    w.str("state", "output-denied").json("input", &input);
                    w.opt_object("approval", approved("false"));
                }
                Some((MessageBody::Tool { error: Some(error), .. }, _)) => {
                    w.str("state", "output-error").json("input", &input).str("errorText", error);
                    w.opt_object("approval", approved("true"));
                }
                Some((MessageBody::Tool { content, .. }, _)) => {
                    let result_metadata = result.and_then(|message| message.metadata.as_ref());
                    let output_type =
                        metadata::native(result_metadata).and_then(|it| it.get_str(native::OUTPUT_TYPE));
                    let output = encode::tool_output_as(content, output_type.as_deref());
                    let output = encode::sanitized(&output);
                    w.str("state", "output-available").json("input", &input).json("output", &output);
                    w.opt_object("approval", approved("true"));
                    if self.version > 6 {
                        w.opt_object(
                            "resultProviderMetadata",
                            part_metadata::provider_metadata(result_metadata).as_ref(),
                        );
                    }
                }
                _ => {
                    let decided = approval.as_ref().filter(|it| it.member("approved").is_some());
                    if let Some(decided) = decided {
                        w.str("state", "approval-responded").json("input", &input);
                        w.opt_object("approval", Some(decided));
                    } else if let Some(guard) = guard {
                        w.str("state", "approval-requested").json("input", &input);
                        w.nested("approval", |w| {
                            w.str("id", &guard.id);
                        });
                    } else {
                        w.str("state", "input-available").json("input", &input);
                    }
                }
            }
            w.opt_object("callProviderMetadata", provider_metadata.as_ref());
        });
    }

    /// Writes the pending interrupts, as tool calls if no approval can express them.
    fn write_interrupts(&self, parts: &mut ArrayWriter<'_>, turn: &[Message]) {
        let calls = |id: &ToolCallId| turn.iter().any(|it| it.tool_calls().iter().any(|call| call.id == *id));
        for interrupt in self.pending {
            let data = encode::sanitized(encode::interrupt_data(interrupt).as_json());
            parts.object(|w| {
                w.str("type", &format!("data-{}", data_part::INTERRUPT))
                    .str("id", &interrupt.id)
                    .json("data", &data);
            });
            let guarded = self.version > 5 && interrupt.tool_call.as_ref().is_some_and(calls);
            if !guarded {
                parts.object(|w| {
                    w.str("type", &format!("tool-{INTERRUPT_TOOL}"))
                        .str("toolCallId", &encode::interrupt_call_id(&interrupt.id))
                        .str("state", "input-available")
                        .json("input", &data);
                });
            }
        }
    }
}

/// Current step of a turn.
#[derive(Default)]
struct HistoryStep {
    is_open: bool,
    has_result: bool,
}

impl HistoryStep {
    /// Writes `step-start` at the start of the turn and after tool results.
    fn start(&mut self, parts: &mut ArrayWriter<'_>) {
        if !self.is_open || std::mem::take(&mut self.has_result) {
            self.is_open = true;
            parts.object(|w| {
                w.str("type", "step-start");
            });
        }
    }
}

/// Writes a message of a user or the application.
fn write_input_message(w: &mut ObjectWriter<'_>, message: &Message) {
    let (role, content) = match &message.body {
        MessageBody::User { content } => ("user", content.clone()),
        MessageBody::System { content } | MessageBody::Developer { content } => {
            ("system", Content::Text(content.clone()))
        }
        _ => return,
    };
    w.str("id", &message.id).str("role", role);
    if let Some(metadata) = application_metadata(message) {
        w.json("metadata", &metadata);
    }
    w.array("parts", |parts| {
        let text = |parts: &mut ArrayWriter<'_>, text: &str| {
            parts.object(|w| {
                w.str("type", "text").str("text", text);
            });
        };
        let mut is_empty = true;
        match &content {
            Content::Text(content) => {
                is_empty = false;
                text(parts, content);
            }
            Content::Parts(list) => {
                for part in list {
                    is_empty = false;
                    match part {
                        ContentPart::Text { text: content, .. } => text(parts, content),
                        ContentPart::Media { kind, source, metadata, .. } => {
                            let name = metadata.clone().and_then(Json::into_object);
                            let name = name.and_then(|it| it.get_str("filename"));
                            let media_type = encode::media_type(*kind, source);
                            write_media(parts, source, media_type, name.as_deref(), None);
                        }
                    }
                }
            }
        }
        for item in kept_parts(message, 5) {
            is_empty = false;
            parts.json(&item);
        }
        // Clients refuse a message without parts.
        if is_empty {
            text(parts, "");
        }
    });
}

fn write_media(
    parts: &mut ArrayWriter<'_>,
    source: &PartSource,
    media_type: &str,
    name: Option<&str>,
    provider_metadata: Option<&Object>,
) {
    parts.object(|w| match encode::media_url(source) {
        Some(url) => {
            w.str("type", "file").str("mediaType", media_type).opt_str("filename", name).str("url", &url);
            w.opt_object("providerMetadata", provider_metadata);
        }
        None => {
            w.str("type", &format!("data-{}", data_part::FILE)).nested("data", |w| {
                if let PartSource::File { value, provider, .. } = source {
                    w.str("fileId", value).opt_str("provider", provider.as_deref());
                }
                w.str("mediaType", media_type).opt_str("name", name);
            });
        }
    });
}

fn write_activity(parts: &mut ArrayWriter<'_>, message: &Message, kind: &str, content: &Object) {
    if kind == carrier::SOURCE
        && let Some(source) = carrier::source_from(&message.id, content)
    {
        let detail = source.detail.as_ref().map(|it| encode::sanitized(it.as_json()));
        let (detail, providers) =
            part_metadata::split_source_detail(detail.and_then(Json::into_object).as_ref());
        let members = encode::build_object(|w| {
            w.opt_str("messageId", source.message.as_deref()).opt_json("detail", detail.as_ref());
        });
        let provider_metadata = part_metadata::with_agentwire(providers, members);
        parts.object(|w| {
            match &source.url {
                Some(url) => {
                    w.str("type", "source-url").str("sourceId", &source.id).str("url", url);
                    w.opt_str("title", source.title.as_deref());
                }
                None => {
                    let title = source.title.as_deref().or(source.filename.as_deref());
                    let media_type = source.media_type.as_deref().unwrap_or("application/octet-stream");
                    w.str("type", "source-document").str("sourceId", &source.id).str("mediaType", media_type);
                    w.str("title", title.unwrap_or(&source.id))
                        .opt_str("filename", source.filename.as_deref());
                }
            }
            w.opt_object("providerMetadata", provider_metadata.as_ref());
        });
        return;
    }
    if kind == carrier::FILE
        && let Some(file) = carrier::file_from(&message.id, content)
    {
        let media_type = encode::media_type(file.kind, &file.source);
        let providers = part_metadata::provider_metadata(message.metadata.as_ref());
        return write_media(parts, &file.source, media_type, file.name.as_deref(), providers.as_ref());
    }
    let content = encode::sanitized(content.as_json());
    let metadata = application_metadata(message);
    parts.object(|w| {
        w.str("type", &format!("data-{}", data_part::ACTIVITY)).str("id", &message.id).nested("data", |w| {
            w.str("activityType", kind)
                .json("content", &content)
                .opt_str("subagentId", message.subagent.as_deref())
                .opt_json("metadata", metadata.as_ref());
        });
    });
}

/// Metadata of a message without the member `aiSdk`.
fn application_metadata(message: &Message) -> Option<Json> {
    let metadata = message.metadata.as_ref()?;
    if let Some(whole) = metadata::native(Some(metadata)).and_then(|it| it.member(native::MESSAGE_METADATA)) {
        return Some(whole);
    }
    let rest = metadata.without(AI_SDK);
    (!rest.is_empty()).then(|| encode::sanitized(rest.as_json()))
}

/// Parts without a canonical form that the version accepts.
fn kept_parts(message: &Message, version: u8) -> Vec<Json> {
    let kept = metadata::native(message.metadata.as_ref()).and_then(|it| it.member(native::PARTS));
    let Some(serde_json::Value::Array(list)) = kept.map(|it| it.to_value()) else {
        return Vec::new();
    };
    let data = list.iter().filter(|part| {
        let kind = part.get("type").and_then(serde_json::Value::as_str);
        let known: &[&str] = if version > 6 { &["custom", "reasoning-file"] } else { &[] };
        kind.is_some_and(|kind| kind.starts_with("data-") || known.contains(&kind))
    });
    data.map(|part| encode::sanitized(&Json::from(part))).collect()
}

fn is_denied(message: &Message) -> bool {
    metadata::has_native_flag(message.metadata.as_ref(), native::DENIED)
}

/// `providerMetadata` of a message's parts.
fn message_provider_metadata(message: &Message) -> Object {
    let members = encode::build_object(|w| {
        w.str("messageId", &message.id)
            .opt_str("subagentId", message.subagent.as_deref())
            .opt_str("name", message.name.as_deref())
            .opt_str("encrypted", message.encrypted.as_deref());
    });
    part_metadata::with_agentwire(part_metadata::provider_metadata(message.metadata.as_ref()), members)
        .expect("a message has an id")
}

/// `callProviderMetadata` of a tool part.
fn call_provider_metadata(call: &ToolCall, parent: Option<&MessageId>) -> Option<Object> {
    let members = encode::build_object(|w| {
        w.opt_str("parentMessageId", parent.map(MessageId::as_str))
            .opt_str("encrypted", call.encrypted.as_deref());
    });
    part_metadata::with_agentwire(part_metadata::provider_metadata(call.metadata.as_ref()), members)
}
