//! Canonical messages to `UIMessage[]`: the history that a page loads, and the messages of a request.
//!
//! All messages of one turn become one assistant message, in the order in which a stream would have built it.
//! The result passes `validateUIMessages` of the version it is made for.

use std::collections::HashMap;

use bytes::BytesMut;

use super::{is_static, is_turn, ui_message_id};
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

/// Messages as JSON for `initialMessages` or a history route of AI SDK `version` (5, 6 or 7). `pending` is what the
/// conversation waits for.
#[must_use]
pub fn ui_messages(messages: &[Message], pending: &[Interrupt], version: u8) -> String {
    History { version, pending, answers: HashMap::new() }.write(messages)
}

/// The messages of a request, with its answers to approvals in place.
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
    History { version, pending: &[], answers }.write(&input.messages)
}

/// The id of the message that a turn becomes; `None` if nobody spoke.
pub(in super::super) fn turn_id(turn: &[Message]) -> Option<Box<str>> {
    let own = turn.iter().find_map(ui_message_id);
    own.or_else(|| turn.first().map(|message| message.id.as_str().into()))
}

/// How many messages belong to the turn that the first of them begins: up to one that is nobody's turn, or that a
/// client holds in another message.
fn turn_length(messages: &[Message]) -> usize {
    let mut held = None;
    let end = messages.iter().position(|message| {
        let id = ui_message_id(message);
        let another = id.is_some() && held.is_some() && id != held;
        held = id.or(held.take());
        !is_turn(message) || another
    });
    end.unwrap_or(messages.len())
}

struct History<'h> {
    version: u8,
    pending: &'h [Interrupt],
    /// Decisions about calls.
    answers: HashMap<ToolCallId, Object>,
}

impl History<'_> {
    fn write(&self, messages: &[Message]) -> String {
        let mut out = BytesMut::new();
        let mut list = ArrayWriter::new(&mut out);
        let mut rest = messages;
        let mut asked = self.pending.is_empty();
        while let [first, others @ ..] = rest {
            if is_turn(first) {
                let length = turn_length(rest);
                let (turn, later) = rest.split_at(length);
                let last = !later.iter().any(is_turn);
                asked |= last;
                list.object(|w| self.turn(w, turn, last));
                rest = later;
            } else {
                list.object(|w| spoken(w, first));
                rest = others;
            }
        }
        if !asked {
            list.object(|w| self.turn(w, &[], true));
        }
        list.end();
        String::from_utf8(out.into()).expect("JSON text is UTF-8")
    }

    fn turn(&self, w: &mut ObjectWriter<'_>, turn: &[Message], last: bool) {
        let id = turn_id(turn);
        let made = self.pending.first().map(|interrupt| encode::interrupt_call_id(&interrupt.id).into());
        w.str("id", &id.or(made).unwrap_or_default()).str("role", "assistant");
        if let Some(metadata) = turn.first().and_then(plain_metadata) {
            w.json("metadata", &metadata);
        }
        w.array("parts", |parts| {
            let mut results: HashMap<&ToolCallId, &Message> = HashMap::new();
            for message in turn {
                if let MessageBody::Tool { call, .. } = &message.body {
                    results.insert(call, message);
                }
            }
            let mut step = Step::default();
            for message in turn {
                self.part(parts, message, &mut results, &mut step);
            }
            for message in turn {
                // Results whose calls are not in this turn: an answer without its question would be refused.
                if let MessageBody::Tool { call, .. } = &message.body
                    && results.contains_key(call)
                {
                    let made = ToolCall::new(call.clone(), "unknown", "{}");
                    self.tool(parts, &made, None, results.remove(call));
                }
            }
            for item in turn.iter().flat_map(|message| kept_parts(message, self.version)) {
                parts.json(&item);
            }
            if last {
                self.interrupts(parts, turn);
            }
        });
    }

    fn part(
        &self,
        parts: &mut ArrayWriter<'_>,
        message: &Message,
        results: &mut HashMap<&ToolCallId, &Message>,
        step: &mut Step,
    ) {
        match &message.body {
            MessageBody::Assistant { content, tool_calls } => {
                step.begin(parts);
                if let Some(text) = content.as_deref().filter(|text| !text.is_empty()) {
                    let facts = facts(message);
                    parts.object(|w| {
                        w.str("type", "text").str("text", text).str("state", "done");
                        w.opt_object("providerMetadata", Some(&facts));
                    });
                }
                for call in tool_calls.iter().flatten() {
                    let result = results.remove(&call.id);
                    // What a provider runs does not end the model's step.
                    let remote = metadata::has_native_flag(call.metadata.as_ref(), native::PROVIDER_EXECUTED);
                    step.answered |= result.is_some() && !remote;
                    self.tool(parts, call, Some(&message.id), result);
                }
            }
            MessageBody::Reasoning { content } => {
                step.begin(parts);
                let facts = facts(message);
                parts.object(|w| {
                    w.str("type", "reasoning").str("text", content).str("state", "done");
                    w.opt_object("providerMetadata", Some(&facts));
                });
            }
            MessageBody::Activity { kind, content } => {
                step.begin(parts);
                activity(parts, message, kind, content);
            }
            _ => {}
        }
    }

    fn tool(
        &self,
        parts: &mut ArrayWriter<'_>,
        call: &ToolCall,
        parent: Option<&MessageId>,
        result: Option<&Message>,
    ) {
        let known_tool = is_static(call);
        let told = metadata::native(call.metadata.as_ref()).and_then(|it| it.member("approval"));
        let told = told.and_then(Json::into_object);
        let approval = self.answers.get(&call.id).cloned().or(told).filter(|_| self.version > 5);
        let approved = |wanted: &str| {
            let approval = approval.as_ref()?;
            (approval.member("approved")?.get() == wanted).then_some(approval)
        };
        let guard = self.pending.iter().find(|it| it.tool_call.as_ref() == Some(&call.id));
        let guard = guard.filter(|_| self.version > 5);
        let facts = call_facts(call, parent);
        parts.object(|w| {
            if known_tool {
                w.str("type", &format!("tool-{}", call.name));
            } else {
                w.str("type", "dynamic-tool").str("toolName", &call.name);
            }
            w.str("toolCallId", &call.id);
            let own = metadata::native(call.metadata.as_ref());
            if metadata::has_native_flag(call.metadata.as_ref(), native::PROVIDER_EXECUTED) {
                w.bool(native::PROVIDER_EXECUTED, true);
            }
            if self.version > 5 {
                let title = own.as_ref().and_then(|own| own.get_str(native::TITLE));
                w.opt_str(native::TITLE, title.as_deref());
            }
            let input = own.and_then(|own| own.member(native::INPUT));
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
                    let about = result.and_then(|message| message.metadata.as_ref());
                    let kind = metadata::native(about).and_then(|own| own.get_str(native::OUTPUT_TYPE));
                    let output = encode::tool_output_as(content, kind.as_deref());
                    let output = encode::sanitized(&output);
                    w.str("state", "output-available").json("input", &input).json("output", &output);
                    w.opt_object("approval", approved("true"));
                    if self.version > 6 {
                        w.opt_object(
                            "resultProviderMetadata",
                            part_metadata::provider_metadata(about).as_ref(),
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
            w.opt_object("callProviderMetadata", facts.as_ref());
        });
    }

    /// What is pending and no approval can express.
    fn interrupts(&self, parts: &mut ArrayWriter<'_>, turn: &[Message]) {
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

/// Where the parts of a turn are.
#[derive(Default)]
struct Step {
    open: bool,
    answered: bool,
}

impl Step {
    /// A step begins with the turn, and after results.
    fn begin(&mut self, parts: &mut ArrayWriter<'_>) {
        if !self.open || std::mem::take(&mut self.answered) {
            self.open = true;
            parts.object(|w| {
                w.str("type", "step-start");
            });
        }
    }
}

/// A message of a person or an application.
fn spoken(w: &mut ObjectWriter<'_>, message: &Message) {
    let (role, content) = match &message.body {
        MessageBody::User { content } => ("user", content.clone()),
        MessageBody::System { content } | MessageBody::Developer { content } => {
            ("system", Content::Text(content.clone()))
        }
        _ => return,
    };
    w.str("id", &message.id).str("role", role);
    if let Some(metadata) = plain_metadata(message) {
        w.json("metadata", &metadata);
    }
    w.array("parts", |parts| {
        let text = |parts: &mut ArrayWriter<'_>, text: &str| {
            parts.object(|w| {
                w.str("type", "text").str("text", text);
            });
        };
        let mut empty = true;
        match &content {
            Content::Text(said) => {
                empty = false;
                text(parts, said);
            }
            Content::Parts(list) => {
                for part in list {
                    empty = false;
                    match part {
                        ContentPart::Text { text: said, .. } => text(parts, said),
                        ContentPart::Media { kind, source, metadata, .. } => {
                            let name = metadata.clone().and_then(Json::into_object);
                            let name = name.and_then(|it| it.get_str("filename"));
                            let media_type = encode::media_type(*kind, source);
                            media(parts, source, media_type, name.as_deref(), None);
                        }
                    }
                }
            }
        }
        for item in kept_parts(message, 5) {
            empty = false;
            parts.json(&item);
        }
        // A message without parts is refused.
        if empty {
            text(parts, "");
        }
    });
}

fn media(
    parts: &mut ArrayWriter<'_>,
    source: &PartSource,
    media_type: &str,
    name: Option<&str>,
    about: Option<&Object>,
) {
    parts.object(|w| match encode::media_url(source) {
        Some(url) => {
            w.str("type", "file").str("mediaType", media_type).opt_str("filename", name).str("url", &url);
            w.opt_object("providerMetadata", about);
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

fn activity(parts: &mut ArrayWriter<'_>, message: &Message, kind: &str, content: &Object) {
    if kind == carrier::SOURCE
        && let Some(source) = carrier::source_from(&message.id, content)
    {
        let detail = source.detail.as_ref().map(|it| encode::sanitized(it.as_json()));
        let (detail, others) =
            part_metadata::split_source_detail(detail.and_then(Json::into_object).as_ref());
        let facts = encode::build_object(|w| {
            w.opt_str("messageId", source.message.as_deref()).opt_json("detail", detail.as_ref());
        });
        let facts = part_metadata::with_agentwire(others, facts);
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
            w.opt_object("providerMetadata", facts.as_ref());
        });
        return;
    }
    if kind == carrier::FILE
        && let Some(file) = carrier::file_from(&message.id, content)
    {
        let media_type = encode::media_type(file.kind, &file.source);
        let about = part_metadata::provider_metadata(message.metadata.as_ref());
        return media(parts, &file.source, media_type, file.name.as_deref(), about.as_ref());
    }
    let content = encode::sanitized(content.as_json());
    let metadata = plain_metadata(message);
    parts.object(|w| {
        w.str("type", &format!("data-{}", data_part::ACTIVITY)).str("id", &message.id).nested("data", |w| {
            w.str("activityType", kind)
                .json("content", &content)
                .opt_str("subagentId", message.subagent.as_deref())
                .opt_json("metadata", metadata.as_ref());
        });
    });
}

/// A message's metadata without ours.
fn plain_metadata(message: &Message) -> Option<Json> {
    let metadata = message.metadata.as_ref()?;
    if let Some(whole) = metadata::native(Some(metadata)).and_then(|it| it.member(native::MESSAGE_METADATA)) {
        return Some(whole);
    }
    let plain = metadata.without(AI_SDK);
    (!plain.is_empty()).then(|| encode::sanitized(plain.as_json()))
}

/// Parts that had no place in the canonical model, as far as the version knows them: others would be refused.
fn kept_parts(message: &Message, version: u8) -> Vec<Json> {
    let kept = metadata::native(message.metadata.as_ref()).and_then(|it| it.member("parts"));
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

/// What is known about a message, as provider metadata.
fn facts(message: &Message) -> Object {
    let facts = encode::build_object(|w| {
        w.str("messageId", &message.id)
            .opt_str("subagentId", message.subagent.as_deref())
            .opt_str("name", message.name.as_deref())
            .opt_str("encrypted", message.encrypted.as_deref());
    });
    part_metadata::with_agentwire(part_metadata::provider_metadata(message.metadata.as_ref()), facts)
        .expect("a message has an id")
}

/// What is known about a call, as provider metadata.
fn call_facts(call: &ToolCall, parent: Option<&MessageId>) -> Option<Object> {
    let facts = encode::build_object(|w| {
        w.opt_str("parentMessageId", parent.map(MessageId::as_str))
            .opt_str("encrypted", call.encrypted.as_deref());
    });
    part_metadata::with_agentwire(part_metadata::provider_metadata(call.metadata.as_ref()), facts)
}
