//! Reads messages (BaseMessage) of snapshots and requests.
//!
//! The content of a HAI message is a string. For an assistant message it is the joined deltas of its events, so
//! it is split like those: into text, reasoning and blocks, with the ids that a stream would give them. The
//! original string is stored with the first of them, and the writer restores it. Missing ids are derived.

use serde_json::value::RawValue;

use super::{
    super::{
        delta::parse_documents,
        fields::{filled_id, object, opt_string, some_json, text_or_json},
        metadata::is_foreign,
        nesting::fits,
        wire::{AGUI, HAI},
        writer::messages::wrap_text,
    },
    assistant::{AssistantPart, split_outputs},
    attachments::restore_parts,
    contents,
};
use crate::{
    event::{Content, Message, MessageBody, MessageData, MessageId, Role, SubagentId, ToolCall, ToolCallId},
    format::ag_ui::shapes,
    json::{Fields, Json, Object, Path, ReadResult, elements},
    tally::Tally,
};

/// The purpose of the messages, which decides whether activities are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MessagePurpose {
    /// For display: complete.
    Snapshot,
    /// For an agent: without activities.
    Request,
}

/// Reads the list `messages`, empty if it is absent.
pub(crate) fn read_list(
    f: &mut Fields<'_, '_>,
    purpose: MessagePurpose,
    owner: &str,
    tally: &mut Tally,
) -> ReadResult<Vec<Message>> {
    let mut messages = Vec::new();
    let path = f.path();
    let path = Path::Key(&path, "messages");
    if let Some(raw) = f.take_unless_null("messages") {
        for (index, raw) in elements(raw, path)?.into_iter().enumerate() {
            read_message(raw, Path::Index(&path, index), index, purpose, owner, tally, &mut messages)?;
        }
    }
    Ok(messages)
}

fn read_message(
    raw: &RawValue,
    path: Path<'_>,
    index: usize,
    purpose: MessagePurpose,
    owner: &str,
    tally: &mut Tally,
    messages: &mut Vec<Message>,
) -> ReadResult {
    let mut f = Fields::of(raw, path)?;
    let name = opt_string(&mut f, "role", tally)?.ok_or_else(|| f.missing("role", "a role"))?;
    let Some(role) = Role::parse(&name) else {
        tally.note("unknown role", &name);
        return Ok(());
    };
    let message_id = match filled_id(&mut f, "id", tally)? {
        Some(id) => MessageId::from(id),
        None => {
            tally.note("missing id", "message");
            format!("{owner}:message:{index}").into()
        }
    };
    let mut extra = some_json(&mut f, "extra", tally)?;
    let agui = match object(&mut f, AGUI, tally)? {
        Some(agui) => Some(agui),
        None => remove_agui(&mut extra),
    };
    if let Some(agui) = &agui
        && agui.member("message").is_some()
        && let Some(restored) = restore_message(agui, tally)
    {
        if purpose == MessagePurpose::Snapshot || restored.role() != Role::Activity {
            messages.push(restored);
        }
        return Ok(());
    }
    if matches!(role, Role::Activity | Role::Reasoning) {
        // The AG-UI shape: HAI has no such role.
        messages.extend(shapes::read_message(raw, path, tally)?);
        return Ok(());
    }
    let mut members = MessageMembers {
        name: opt_string(&mut f, "name", tally)?.map(Into::into),
        subagent: opt_string(&mut f, "subagentRunId", tally)?.map(Into::into),
        encrypted: opt_string(&mut f, "encryptedValue", tally)?.map(Into::into),
        metadata: object(&mut f, "metadata", tally)?,
        hai: Vec::new(),
    };
    if let Some(timestamp) = some_json(&mut f, "timestamp", tally)? {
        members.hai.push(("timestamp".into(), timestamp));
    }
    let content = match f.take_unless_null("content") {
        None => None,
        Some(raw) if raw.get().starts_with('[') && matches!(role, Role::User | Role::Tool) => {
            Some(Content::Parts(shapes::read_parts(raw, Path::Key(&path, "content"), tally)?))
        }
        Some(raw) => Some(Content::Text(text_or_json(raw, Path::Key(&path, "content"), tally)?)),
    };
    let content = match f.take_unless_null("contents") {
        Some(raw) if raw.get().starts_with('[') && content.as_ref().is_none_or(is_empty) => {
            tally.note("old shape", "message with `contents`");
            let is_answer = role == Role::Assistant;
            Some(contents::read(raw, Path::Key(&path, "contents"), is_answer, tally)?)
        }
        _ => content,
    };
    let call = opt_string(&mut f, "toolCallId", tally)?;
    let error = opt_string(&mut f, "error", tally)?.map(Box::from);
    let mut calls = None;
    if let Some(raw) = f.take_unless_null("toolCalls") {
        let path = Path::Key(&path, "toolCalls");
        let list = calls.insert(Vec::new());
        for (index, raw) in elements(raw, path)?.into_iter().enumerate() {
            list.push(read_tool_call(raw, Path::Index(&path, index), tally)?);
        }
    }
    for (key, value) in f.rest("message", tally)?.iter().flat_map(Object::entries) {
        if is_foreign(&key) && fits(value.get(), 4) {
            members.hai.push((key, value));
        }
    }
    let plain = || content.as_ref().map(Content::text).unwrap_or_default().into();
    let body = match role {
        Role::Developer => MessageBody::Developer { content: plain() },
        Role::System => MessageBody::System { content: plain() },
        Role::User | Role::Tool => {
            let content = content.clone().unwrap_or_else(|| Content::Text("".into()));
            let parts = agui.as_ref().and_then(|agui| agui.member("parts"));
            let (content, kept) = restore_parts(content, extra, parts, tally);
            extra = kept;
            if role == Role::User {
                MessageBody::User { content }
            } else {
                let call = call.ok_or_else(|| f.missing("toolCallId", "a string"))?;
                MessageBody::Tool { call: call.into(), content, error }
            }
        }
        _ => {
            members.hai.extend(extra.map(|extra| ("extra".to_owned(), extra)));
            let content = content.as_ref().map(Content::text);
            push_assistant(&message_id, content, calls, members, purpose, tally, messages);
            return Ok(());
        }
    };
    members.hai.extend(extra.map(|extra| ("extra".to_owned(), extra)));
    messages.push(members.apply_to(Message::new(message_id, body)));
    Ok(())
}

fn is_empty(content: &Content) -> bool {
    match content {
        Content::Text(text) => text.is_empty(),
        Content::Parts(parts) => parts.is_empty(),
    }
}

/// The members of a message besides its content.
struct MessageMembers {
    name: Option<Box<str>>,
    subagent: Option<SubagentId>,
    encrypted: Option<Box<str>>,
    metadata: Option<Object>,
    hai: Vec<(String, Json)>,
}

impl MessageMembers {
    fn apply_to(self, message: Message) -> Message {
        let named = !matches!(message.role(), Role::Tool | Role::Activity | Role::Reasoning);
        Message::from(MessageData {
            name: self.name.filter(|_| named),
            subagent: self.subagent,
            encrypted: self.encrypted,
            metadata: with_hai(self.metadata, self.hai),
            ..message.into_data()
        })
    }
}

/// `metadata` with these members in `hai`.
fn with_hai(metadata: Option<Object>, hai: Vec<(String, Json)>) -> Option<Object> {
    let hai: Vec<_> = hai.into_iter().filter(|(_, value)| fits(value.get(), 4)).collect();
    if hai.is_empty() {
        return metadata;
    }
    let metadata = metadata.unwrap_or_else(Object::empty);
    let before = metadata.member(HAI).and_then(Json::into_object).unwrap_or_else(Object::empty);
    let hai = Object::from_entries(hai.iter().map(|(key, value)| (key.as_str(), value.clone())));
    Some(metadata.with(HAI, before.merged(&hai).into()))
}

/// Appends the messages of an assistant message: plain text, or the joined deltas of its outputs.
fn push_assistant(
    message_id: &MessageId,
    content: Option<String>,
    calls: Option<Vec<ToolCall>>,
    members: MessageMembers,
    purpose: MessagePurpose,
    tally: &mut Tally,
    messages: &mut Vec<Message>,
) {
    let outputs = content.as_deref().and_then(|content| parse_documents(content, tally));
    let Some(outputs) = outputs else {
        // Requests have an empty content beside calls, because servers require one.
        let has_calls = calls.as_ref().is_some_and(|calls| !calls.is_empty());
        let is_filler = purpose == MessagePurpose::Request && has_calls;
        let content = content.filter(|content| !is_filler || !content.is_empty());
        let body = MessageBody::Assistant { content: content.map(Into::into), tool_calls: calls };
        messages.push(members.apply_to(Message::new(message_id.clone(), body)));
        return;
    };
    let original = content.unwrap_or_default();
    let mut parts = split_outputs(message_id, &outputs);
    // A single text that wraps to the same string needs no original.
    let plain = match &parts[..] {
        [AssistantPart::Text(text)] => wrap_text(text) == original,
        _ => false,
    };
    if calls.is_some() && !parts.iter().any(|part| matches!(part, AssistantPart::Text(_))) {
        parts.push(AssistantPart::Calls);
    }
    let mut members = Some(members);
    let mut calls = calls;
    let first = messages.len();
    let has_text = parts.iter().any(|part| matches!(part, AssistantPart::Text(_) | AssistantPart::Calls));
    for part in parts {
        let parent = || vec![("messageId".to_owned(), Json::string(message_id))];
        match part {
            AssistantPart::Text(_) | AssistantPart::Calls => {
                let content = if let AssistantPart::Text(text) = part { Some(text.into()) } else { None };
                let body = MessageBody::Assistant { content, tool_calls: calls.take() };
                let message = Message::new(message_id.clone(), body);
                messages.push(match members.take() {
                    Some(members) => members.apply_to(message),
                    None => message,
                });
            }
            AssistantPart::Thought(id, content) => {
                let mut message = Message::new(id, MessageBody::Reasoning { content: content.into() });
                message.metadata = with_hai(None, parent());
                messages.push(message);
            }
            AssistantPart::Block(_) if purpose == MessagePurpose::Request => {}
            AssistantPart::Block(mut message) => {
                message.metadata = with_hai(message.metadata.take(), parent());
                messages.push(*message);
            }
        }
    }
    if messages.len() == first {
        // Nothing is left for an agent: keep the turn.
        let body = MessageBody::Assistant { content: Some("".into()), tool_calls: calls.take() };
        messages.push(Message::new(message_id.clone(), body));
    }
    if plain {
        return;
    }
    let mut hai = vec![
        ("messageId".to_owned(), Json::string(message_id)),
        ("content".to_owned(), Json::string(&original)),
    ];
    if !has_text && let Some(members) = members.take() {
        hai.extend(members.hai);
        hai.extend(members.name.map(|name| ("name".to_owned(), Json::string(&name))));
    }
    let message = &mut messages[first];
    message.metadata = with_hai(message.metadata.take(), hai);
}

/// Reads a tool call in the AG-UI shape; arguments may be an object.
fn read_tool_call(raw: &RawValue, path: Path<'_>, tally: &mut Tally) -> ReadResult<ToolCall> {
    let mut f = Fields::of(raw, path)?;
    let Some(function) = f.peek("function") else {
        return shapes::read_tool_call(raw, path, tally);
    };
    let mut function = Fields::of(function, Path::Key(&path, "function"))?;
    match function.take("arguments") {
        Some(arguments) if arguments.get().starts_with('{') => {
            tally.note("old shape", "arguments as an object");
            let call: ToolCallId = f.need_id("id", tally)?;
            let name = function.need_boxed("name", tally)?;
            let arguments = text_or_json(arguments, path, tally)?;
            Ok(ToolCall::new(call, name, arguments))
        }
        _ => shapes::read_tool_call(raw, path, tally),
    }
}

/// Removes our carrier from `extra`.
fn remove_agui(extra: &mut Option<Json>) -> Option<Object> {
    let object = extra.clone().and_then(Json::into_object)?;
    let agui = object.member(AGUI)?.into_object()?;
    let rest = object.without(AGUI);
    *extra = (!rest.is_empty()).then(|| rest.into());
    Some(agui)
}

/// Restores a message that HAI has no role for from the carrier in its `extra`.
fn restore_message(agui: &Object, tally: &mut Tally) -> Option<Message> {
    let message = agui.member("message")?;
    let raw: &RawValue = serde_json::from_str(message.get()).ok()?;
    shapes::read_message(raw, Path::Root, tally).ok().flatten()
}
