//! Messages of HAI on their way in: what its servers leave out is made up for, what only we wrote is found again.

use serde_json::value::RawValue;

use super::{
    super::{
        delta::deltas,
        fields::{id, object, some_json, text_or_json},
        metadata::is_foreign,
        nesting::fits,
        wire::{AGUI, HAI},
        writer::messages::wrapped,
    },
    assistant::{Part, take_apart},
    attachments::with_original,
};
use crate::{
    event::{Content, Message, MessageBody, MessageId, Role, SubagentId, ToolCall, ToolCallId},
    format::ag_ui::shapes,
    json::{Fields, Json, Object, Path, ReadError, elements},
    tally::Tally,
};

/// What messages are read for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reading {
    /// To show them: everything counts.
    Snapshot,
    /// To hand them to an agent, which never sees what was only drawn.
    Request,
}

/// The list `messages`. Without one there are none.
pub(crate) fn list(
    f: &mut Fields<'_, '_>,
    reading: Reading,
    owner: &str,
    tally: &mut Tally,
) -> Result<Vec<Message>, ReadError> {
    let mut messages = Vec::new();
    let path = f.path();
    let path = Path::Key(&path, "messages");
    if let Some(raw) = f.take_unless_null("messages") {
        for (index, raw) in elements(raw, path)?.into_iter().enumerate() {
            message(raw, Path::Index(&path, index), index, reading, owner, tally, &mut messages)?;
        }
    }
    Ok(messages)
}

fn message(
    raw: &RawValue,
    path: Path<'_>,
    index: usize,
    reading: Reading,
    owner: &str,
    tally: &mut Tally,
    messages: &mut Vec<Message>,
) -> Result<(), ReadError> {
    let mut f = Fields::of(raw, path)?;
    let name = id(&mut f, "role", tally)?.ok_or_else(|| f.missing("role", "a role"))?;
    let Some(role) = Role::parse(&name) else {
        tally.note("unknown role", &name);
        return Ok(());
    };
    let own = match id(&mut f, "id", tally)?.filter(|id| !id.is_empty()) {
        Some(id) => MessageId::from(id),
        None => {
            tally.note("missing id", "message");
            format!("{owner}:message:{index}").into()
        }
    };
    let mut extra = some_json(&mut f, "extra", tally)?;
    let agui = match object(&mut f, AGUI, tally)? {
        Some(agui) => Some(agui),
        None => take_agui(&mut extra),
    };
    if let Some(agui) = &agui
        && agui.member("message").is_some()
        && let Some(restored) = restore(agui, tally)
    {
        if reading == Reading::Snapshot || restored.role() != Role::Activity {
            messages.push(restored);
        }
        return Ok(());
    }
    if matches!(role, Role::Activity | Role::Reasoning) {
        // AG-UI's own shape, which HAI has no role for.
        messages.extend(shapes::read_message(raw, path, tally)?);
        return Ok(());
    }
    let mut said = Said {
        name: id(&mut f, "name", tally)?.map(Into::into),
        subagent: id(&mut f, "subagentRunId", tally)?.map(Into::into),
        encrypted: id(&mut f, "encryptedValue", tally)?.map(Into::into),
        metadata: object(&mut f, "metadata", tally)?,
        hai: Vec::new(),
    };
    if let Some(timestamp) = some_json(&mut f, "timestamp", tally)? {
        said.hai.push(("timestamp".into(), timestamp));
    }
    let content = match f.take_unless_null("content") {
        None => None,
        Some(raw) if raw.get().starts_with('[') && matches!(role, Role::User | Role::Tool) => {
            Some(Content::Parts(shapes::read_parts(raw, Path::Key(&path, "content"), tally)?))
        }
        Some(raw) => Some(Content::Text(text_or_json(raw, Path::Key(&path, "content"), tally)?)),
    };
    let call = id(&mut f, "toolCallId", tally)?;
    let error = id(&mut f, "error", tally)?.map(Box::from);
    let mut calls = None;
    if let Some(raw) = f.take_unless_null("toolCalls") {
        let path = Path::Key(&path, "toolCalls");
        let list = calls.insert(Vec::new());
        for (index, raw) in elements(raw, path)?.into_iter().enumerate() {
            list.push(tool_call(raw, Path::Index(&path, index), tally)?);
        }
    }
    for (key, value) in f.rest("message", tally)?.iter().flat_map(Object::entries) {
        if is_foreign(&key) && fits(value.get(), 4) {
            said.hai.push((key, value));
        }
    }
    let plain = || content.as_ref().map(Content::text).unwrap_or_default().into();
    let body = match role {
        Role::Developer => MessageBody::Developer { content: plain() },
        Role::System => MessageBody::System { content: plain() },
        Role::User | Role::Tool => {
            let content = content.clone().unwrap_or_else(|| Content::Text("".into()));
            let parts = agui.as_ref().and_then(|agui| agui.member("parts"));
            let (content, kept) = with_original(content, extra, parts, tally);
            extra = kept;
            if role == Role::User {
                MessageBody::User { content }
            } else {
                let call = call.ok_or_else(|| f.missing("toolCallId", "a string"))?;
                MessageBody::Tool { call: call.into(), content, error }
            }
        }
        _ => {
            said.hai.extend(extra.map(|extra| ("extra".to_owned(), extra)));
            let content = content.as_ref().map(Content::text);
            assistant(&own, content, calls, said, reading, tally, messages);
            return Ok(());
        }
    };
    said.hai.extend(extra.map(|extra| ("extra".to_owned(), extra)));
    messages.push(said.dress(Message::new(own, body)));
    Ok(())
}

/// What a message says besides its content.
struct Said {
    name: Option<Box<str>>,
    subagent: Option<SubagentId>,
    encrypted: Option<Box<str>>,
    metadata: Option<Object>,
    hai: Vec<(String, Json)>,
}

impl Said {
    fn dress(self, message: Message) -> Message {
        let named = !matches!(message.role(), Role::Tool | Role::Activity | Role::Reasoning);
        Message {
            name: self.name.filter(|_| named),
            subagent: self.subagent,
            encrypted: self.encrypted,
            metadata: with_hai(self.metadata, self.hai),
            ..message
        }
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

/// What an assistant said: plain text, or the joined deltas of its outputs.
fn assistant(
    own: &MessageId,
    content: Option<String>,
    calls: Option<Vec<ToolCall>>,
    said: Said,
    reading: Reading,
    tally: &mut Tally,
    messages: &mut Vec<Message>,
) {
    let outputs = content.as_deref().and_then(|content| deltas(content, tally));
    let Some(outputs) = outputs else {
        let body = MessageBody::Assistant { content: content.map(Into::into), tool_calls: calls };
        messages.push(said.dress(Message::new(own.clone(), body)));
        return;
    };
    let original = content.unwrap_or_default();
    let mut taken = take_apart(own, &outputs);
    // A text that can be wrapped up again the same way needs no original.
    let plain = match &taken[..] {
        [Part::Text(text)] => wrapped(text) == original,
        _ => false,
    };
    if calls.is_some() && !taken.iter().any(|part| matches!(part, Part::Text(_))) {
        taken.push(Part::Calls);
    }
    let mut said = Some(said);
    let mut calls = calls;
    let first = messages.len();
    let has_text = taken.iter().any(|part| matches!(part, Part::Text(_) | Part::Calls));
    for part in taken {
        let host = || vec![("messageId".to_owned(), Json::string(own))];
        match part {
            Part::Text(_) | Part::Calls => {
                let content = if let Part::Text(text) = part { Some(text.into()) } else { None };
                let body = MessageBody::Assistant { content, tool_calls: calls.take() };
                let message = Message::new(own.clone(), body);
                messages.push(match said.take() {
                    Some(said) => said.dress(message),
                    None => message,
                });
            }
            Part::Thought(id, content) => {
                let mut message = Message::new(id, MessageBody::Reasoning { content: content.into() });
                message.metadata = with_hai(None, host());
                messages.push(message);
            }
            Part::Drawn(_) if reading == Reading::Request => {}
            Part::Drawn(mut message) => {
                message.metadata = with_hai(message.metadata, host());
                messages.push(*message);
            }
        }
    }
    if messages.len() == first {
        // Nothing that an agent could be told: keep the turn.
        let body = MessageBody::Assistant { content: Some("".into()), tool_calls: calls.take() };
        messages.push(Message::new(own.clone(), body));
    }
    if plain {
        return;
    }
    let mut hai =
        vec![("messageId".to_owned(), Json::string(own)), ("content".to_owned(), Json::string(&original))];
    if !has_text && let Some(said) = said.take() {
        hai.extend(said.hai);
        hai.extend(said.name.map(|name| ("name".to_owned(), Json::string(&name))));
    }
    let message = &mut messages[first];
    message.metadata = with_hai(message.metadata.take(), hai);
}

/// A tool call of an assistant, as AG-UI has it; arguments may be an object.
fn tool_call(raw: &RawValue, path: Path<'_>, tally: &mut Tally) -> Result<ToolCall, ReadError> {
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

/// Takes our own carrier out of `extra`.
fn take_agui(extra: &mut Option<Json>) -> Option<Object> {
    let object = extra.clone().and_then(Json::into_object)?;
    let agui = object.member(AGUI)?.into_object()?;
    let rest = object.without(AGUI);
    *extra = (!rest.is_empty()).then(|| rest.into());
    Some(agui)
}

/// A message that HAI has no role for, from the carrier in its `extra`.
fn restore(agui: &Object, tally: &mut Tally) -> Option<Message> {
    let message = agui.member("message")?;
    let raw: &RawValue = serde_json::from_str(message.get()).ok()?;
    shapes::read_message(raw, Path::Root, tally).ok().flatten()
}
