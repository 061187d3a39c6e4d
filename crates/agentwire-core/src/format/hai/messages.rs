//! HAI's messages (BaseMessage), in snapshots and in requests, both ways.
//!
//! A HAI message's content is a string. What an assistant said is, to the standard's client, the joined
//! deltas of its events, so it is taken apart as those are: into text, reasoning and blocks, under the ids
//! that the stream gave them. The original string stays with the first of them and goes back as it was.

use bytes::BytesMut;
use serde_json::value::RawValue;

use super::{
    base::{id, object},
    delta::{self, Delta, Output, compose, deltas, fits, some_json},
    ledger::{Drawn, Ledger, Placed},
    reader::text_or_json,
    wire::{AGUI, HAI},
};
use crate::{
    event::{Block, Content, ContentPart, Message, MessageBody, MessageId, Role, ToolCall, ToolCallId},
    fold::carrier,
    format::{ReadError, ag_ui::shared},
    json::{ArrayWriter, Fields, Json, Object, ObjectWriter, Path},
    patch::{self, Limits},
    tally::Tally,
};

/// What messages are read for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reading {
    /// To show them: everything counts.
    Snapshot,
    /// To hand them to an agent, which never sees what was only drawn.
    Request,
}

/// The list `messages`. Without one there are none.
pub(super) fn list(
    f: &mut Fields<'_, '_>,
    reading: Reading,
    owner: &str,
    tally: &mut Tally,
) -> Result<Vec<Message>, ReadError> {
    let mut messages = Vec::new();
    let path = f.path();
    let path = Path::Key(&path, "messages");
    if let Some(raw) = f.take_unless_null("messages") {
        for (index, raw) in crate::json::elements(raw, path)?.into_iter().enumerate() {
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
        messages.extend(shared::message_from_raw(raw, path, tally)?);
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
            Some(Content::Parts(shared::parts(raw, Path::Key(&path, "content"), tally)?))
        }
        Some(raw) => Some(Content::Text(text_or_json(raw, Path::Key(&path, "content"), tally)?)),
    };
    let call = id(&mut f, "toolCallId", tally)?;
    let error = id(&mut f, "error", tally)?.map(Box::from);
    let mut calls = None;
    if let Some(raw) = f.take_unless_null("toolCalls") {
        let path = Path::Key(&path, "toolCalls");
        let list = calls.insert(Vec::new());
        for (index, raw) in crate::json::elements(raw, path)?.into_iter().enumerate() {
            list.push(tool_call(raw, Path::Index(&path, index), tally)?);
        }
    }
    for (key, value) in f.rest("message", tally)?.iter().flat_map(Object::entries) {
        if super::wire::is_foreign(&key) && fits(value.get(), 4) {
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
    subagent: Option<crate::event::SubagentId>,
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

/// A piece of what an assistant said.
enum Part {
    Text(String),
    Thought(MessageId, String),
    /// An activity.
    Drawn(Box<Message>),
    /// No text, but calls that need a message to hold them.
    Calls,
}

/// Takes joined outputs apart, under the ids that a stream of them gets.
fn take_apart(own: &MessageId, outputs: &[Delta<'_>]) -> Vec<Part> {
    let mut ledger = Ledger::default();
    let mut parts: Vec<Part> = Vec::new();
    let mut thinking = false;
    for Delta { output, place } in outputs {
        match output {
            Output::Text { content, .. } => {
                thinking = false;
                let text = parts.iter_mut().find_map(|part| match part {
                    Part::Text(text) => Some(text),
                    _ => None,
                });
                match text {
                    Some(text) => text.push_str(content),
                    None => parts.push(Part::Text(content.clone().into_owned())),
                }
            }
            Output::Thinking { content, thinking: flag, .. } => {
                match parts.last_mut() {
                    Some(Part::Thought(_, text)) if thinking => text.push_str(content),
                    _ => {
                        parts.push(Part::Thought(ledger.thought(own), content.clone().into_owned()));
                        ledger.took_thought(own);
                    }
                }
                thinking = *flag != Some(false);
            }
            Output::Block(output) => {
                thinking = false;
                let names = Placed {
                    layout: place.layout.as_ref(),
                    block_id: place.block_id.as_deref(),
                    style: place.style.as_ref(),
                };
                let drawn = ledger.drawn(own, output, names);
                ledger.took_drawn(own, output, names, &drawn);
                match drawn {
                    Drawn::Block(id) => {
                        let block = Block {
                            id: id.clone(),
                            message: own.clone(),
                            output: output.clone(),
                            layout: place.layout.clone(),
                            block_id: place.block_id.clone(),
                            style: place.style.clone(),
                        };
                        let (kind, content, metadata) = carrier::block_content(&block);
                        let body = MessageBody::Activity { kind: kind.into(), content };
                        let mut message = Message::new(id, body);
                        message.metadata = Some(metadata);
                        parts.push(Part::Drawn(Box::new(message)));
                    }
                    Drawn::More(id, patch) => {
                        let known = parts.iter_mut().find_map(|part| match part {
                            Part::Drawn(message) if message.id == id => Some(message),
                            _ => None,
                        });
                        if let Some(message) = known
                            && let MessageBody::Activity { content, .. } = &mut message.body
                        {
                            let mut value = content.to_value();
                            if patch::apply(&mut value, &patch, &Limits::default()).is_ok()
                                && let Some(next) = Object::from_value(&value)
                            {
                                *content = next;
                            }
                        }
                    }
                }
            }
        }
    }
    parts
}

/// A tool call of an assistant, as AG-UI has it; arguments may be an object.
fn tool_call(raw: &RawValue, path: Path<'_>, tally: &mut Tally) -> Result<ToolCall, ReadError> {
    let mut f = Fields::of(raw, path)?;
    let Some(function) = f.peek("function") else {
        return shared::tool_call(raw, path, tally);
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
        _ => shared::tool_call(raw, path, tally),
    }
}

/// Content with the attachments of `extra` behind it; and what stays of `extra`.
///
/// `extra` is kept whole, so that the way back finds the attachments where they were.
pub(super) fn with_parts(content: Content, extra: Option<Json>) -> (Content, Option<Json>) {
    let attachments = extra.clone().and_then(Json::into_object).and_then(|extra| extra.member("attachments"));
    let Some(parts) = attachments.and_then(|list| original_parts(&list, &mut Tally::default())) else {
        return (content, extra);
    };
    if parts.is_empty() {
        return (content, extra);
    }
    let mut all = match content {
        Content::Text(text) if text.is_empty() => Vec::new(),
        Content::Text(text) => vec![ContentPart::text(text)],
        Content::Parts(parts) => parts,
    };
    all.extend(parts);
    (Content::Parts(all), without_attachments(extra))
}

/// As [`with_parts`], with all parts given if they could not be told from that.
pub(super) fn with_original(
    content: Content,
    extra: Option<Json>,
    parts: Option<Json>,
    tally: &mut Tally,
) -> (Content, Option<Json>) {
    match parts.and_then(|parts| original_parts(&parts, tally)) {
        Some(parts) => (Content::Parts(parts), without_attachments(extra)),
        None => with_parts(content, extra),
    }
}

fn original_parts(list: &Json, tally: &mut Tally) -> Option<Vec<ContentPart>> {
    let raw: &RawValue = serde_json::from_str(list.get()).ok()?;
    shared::parts(raw, Path::Root, tally).ok()
}

/// `extra` without what the parts say already.
fn without_attachments(extra: Option<Json>) -> Option<Json> {
    let Some(object) = extra.clone().and_then(Json::into_object) else {
        return extra;
    };
    let rest = object.without("attachments");
    (!rest.is_empty()).then(|| rest.into())
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
    shared::message_from_raw(raw, Path::Root, tally).ok().flatten()
}

/// `text` as the one output of a message.
fn wrapped(text: &str) -> String {
    document(&delta::text_output(text, None))
}

/// An output as a structured delta in the form that the standard's client parses.
fn document(output: &Object) -> String {
    let mut out = BytesMut::new();
    let mut w = ObjectWriter::new(&mut out);
    delta::write(&mut w, output, &delta::Place::default());
    w.end();
    let text = String::from_utf8(out.into()).expect("JSON text is UTF-8");
    delta::without_hazard(&text).into_owned()
}

/// How messages are written.
#[derive(Clone, Copy, Debug)]
pub(super) struct Writing {
    /// Whether an assistant's text is wrapped like a delta, for a client that parses it.
    pub(super) wrapped: bool,
    /// Whether messages for developers are written: they are not for end users.
    pub(super) developer: bool,
    /// Whether activities are written: an agent never sees them.
    pub(super) activity: bool,
}

/// Writes messages; says whether all of them could be.
pub(super) fn write(list: &mut ArrayWriter<'_>, messages: &[Message], writing: Writing) -> bool {
    let mut complete = true;
    let mut at = 0;
    while at < messages.len() {
        let message = &messages[at];
        at += 1;
        if let Some((own, original)) = original(messages, at - 1) {
            // The parts that follow are in it.
            let mut holder = message;
            while let Some(next) = messages.get(at)
                && belongs(next, &own)
            {
                if next.role() == Role::Assistant {
                    holder = next;
                }
                at += 1;
            }
            list.object(|w| write_assistant(w, &own, &original, holder, message));
            continue;
        }
        match &message.body {
            MessageBody::Developer { .. } if !writing.developer => complete = false,
            MessageBody::Activity { .. } if !writing.activity => {}
            _ => {
                list.object(|w| complete &= write_message(w, message, writing));
            }
        }
    }
    complete
}

/// The string that a message and those behind it were taken from, if they still say the same.
fn original(messages: &[Message], at: usize) -> Option<(String, String)> {
    let hai = messages[at].metadata.as_ref()?.member(HAI)?.into_object()?;
    let (own, original) = (hai.get_str("messageId")?, hai.get_str("content")?);
    let outputs = deltas(&original, &mut Tally::default())?;
    let parts = take_apart(&own.as_str().into(), &outputs);
    // Activities are not always there, and how they look now is not for the source to say.
    let now: Vec<_> = messages[at..]
        .iter()
        .take_while(|message| belongs(message, &own))
        .filter_map(|message| match &message.body {
            MessageBody::Assistant { content, .. } => {
                Some((&*message.id, &**content.as_ref()?)).filter(|(_, text)| !text.is_empty())
            }
            MessageBody::Reasoning { content } => Some((&*message.id, &**content)),
            _ => None,
        })
        .collect();
    let then: Vec<_> = parts
        .iter()
        .filter_map(|part| match part {
            Part::Text(text) => Some((own.as_str(), text.as_str())).filter(|(_, text)| !text.is_empty()),
            Part::Thought(id, text) => Some((&**id, text.as_str())),
            Part::Drawn(_) | Part::Calls => None,
        })
        .collect();
    (now == then).then_some((own, original))
}

/// Whether a message is part of the HAI message `own`.
fn belongs(message: &Message, own: &str) -> bool {
    let host = || message.metadata.as_ref()?.member(HAI)?.into_object()?.get_str("messageId");
    match message.role() {
        Role::Assistant => *message.id == *own,
        Role::Reasoning | Role::Activity => host().as_deref() == Some(own),
        _ => false,
    }
}

fn write_assistant(w: &mut ObjectWriter<'_>, own: &str, original: &str, holder: &Message, first: &Message) {
    w.str("id", own).str("role", "assistant").str("content", original);
    let mut rest = Rest::of(holder);
    if holder.role() != Role::Assistant {
        rest = Rest::of(first);
        rest.metadata = None;
    }
    for key in ["messageId", "content", "blockId", "output"] {
        rest.hai.retain(|(name, _)| name != key);
    }
    write_calls(w, holder);
    rest.write(w, holder, None);
}

/// What a message says besides its content, on its way out.
struct Rest {
    metadata: Option<Object>,
    hai: Vec<(String, Json)>,
}

impl Rest {
    fn of(message: &Message) -> Self {
        let metadata = message.metadata.clone();
        let hai = metadata.as_ref().and_then(|metadata| metadata.member(HAI)).and_then(Json::into_object);
        match hai.filter(|hai| !hai.is_empty()) {
            None => Self { metadata, hai: Vec::new() },
            Some(hai) => Self {
                metadata: metadata
                    .map(|metadata| metadata.without(HAI))
                    .filter(|metadata| !metadata.is_empty()),
                hai: hai.entries(),
            },
        }
    }

    fn take(&mut self, key: &str) -> Option<Json> {
        let at = self.hai.iter().rposition(|(name, value)| name == key && !value.is_null())?;
        Some(self.hai.remove(at).1)
    }

    /// Writes everything but id, role and content. `carrier` goes into `extra`.
    fn write(mut self, w: &mut ObjectWriter<'_>, message: &Message, carrier: Option<Object>) {
        let name = self.take("name").and_then(|name| name.as_str());
        w.opt_str("name", message.name.as_deref().or(name.as_deref()));
        let timestamp = self.take("timestamp");
        w.opt_json("timestamp", timestamp.as_ref());
        let extra = self.take("extra");
        let carrier = carrier.filter(|carrier| fits(carrier.get(), 1));
        match (extra.clone().and_then(Json::into_object), extra, carrier) {
            (_, None, Some(carrier)) => {
                w.nested("extra", |w| {
                    w.json(AGUI, carrier.as_json());
                });
            }
            (Some(extra), _, Some(carrier)) => {
                w.json("extra", extra.with(AGUI, carrier.into()).as_json());
            }
            (None, Some(extra), Some(carrier)) => {
                w.json("extra", &extra).json(AGUI, carrier.as_json());
            }
            (_, extra, None) => {
                w.opt_json("extra", extra.as_ref());
            }
        }
        w.opt_str("subagentRunId", message.subagent.as_deref())
            .opt_str("encryptedValue", message.encrypted.as_deref());
        const OWN: &[&str] = &[
            "id",
            "role",
            "content",
            "name",
            "timestamp",
            "extra",
            AGUI,
            "toolCallId",
            "toolCalls",
            "error",
            "subagentRunId",
            "encryptedValue",
            "metadata",
        ];
        let (free, bound): (Vec<_>, Vec<_>) = self.hai.into_iter().partition(|(key, value)| {
            super::wire::is_foreign(key) && !OWN.contains(&key.as_str()) && !value.is_null()
        });
        let metadata = if bound.is_empty() {
            self.metadata
        } else {
            let hai = compose(bound.iter().map(|(key, value)| (key.as_str(), value.clone())));
            Some(self.metadata.unwrap_or_else(Object::empty).with(HAI, hai.into()))
        };
        w.opt_object("metadata", metadata.as_ref());
        for (key, value) in &free {
            w.entry(key, value);
        }
    }
}

fn write_calls(w: &mut ObjectWriter<'_>, message: &Message) {
    if let MessageBody::Assistant { tool_calls: Some(calls), .. } = &message.body {
        w.array("toolCalls", |list| {
            for call in calls {
                list.object(|w| shared::write_call(w, call));
            }
        });
    }
}

/// Writes one message; says whether all of it could be.
fn write_message(w: &mut ObjectWriter<'_>, message: &Message, writing: Writing) -> bool {
    w.str("id", &message.id);
    let mut complete = true;
    let mut carrier = None;
    let mut rest = Rest::of(message);
    match &message.body {
        MessageBody::Developer { content } | MessageBody::System { content } => {
            w.str("role", message.role().as_str()).str("content", content);
        }
        MessageBody::Assistant { content, .. } => {
            w.str("role", "assistant");
            if let Some(content) = content {
                // Raw text that looks like a document would be taken for one.
                if writing.wrapped || deltas(content, &mut Tally::default()).is_some() {
                    w.str("content", &wrapped(content));
                } else {
                    w.str("content", content);
                }
            }
            write_calls(w, message);
        }
        MessageBody::User { content } | MessageBody::Tool { content, .. } => {
            w.str("role", message.role().as_str());
            if let MessageBody::Tool { call, .. } = &message.body {
                w.str("toolCallId", call);
            }
            carrier = write_content(w, content, &mut rest);
            if let MessageBody::Tool { error, .. } = &message.body {
                w.opt_str("error", error.as_deref());
            }
        }
        MessageBody::Reasoning { content } => {
            let collapse = Json::from(serde_json::Value::from(true));
            let output = delta::thinking_output(content, None, Some(false), Some(collapse), None, None);
            w.str("role", "assistant").str("content", &document(&output));
            carrier = whole(message, &mut complete);
            rest = Rest { metadata: None, hai: Vec::new() };
        }
        MessageBody::Activity { kind, content } => {
            let output = match kind.strip_prefix("hai.") {
                Some(own) if content.get_str("type").as_deref() == Some(own) => content.clone(),
                _ => compose([("type", Json::string(kind)), ("data", content.clone().into())]),
            };
            w.str("role", "assistant").str("content", &document(&output));
            carrier = whole(message, &mut complete);
            rest = Rest { metadata: None, hai: Vec::new() };
        }
    }
    if carrier.as_ref().is_some_and(|carrier| carrier.member("message").is_some()) {
        w.nested("extra", |w| {
            w.opt_object(AGUI, carrier.as_ref());
        });
    } else {
        rest.write(w, message, carrier);
    }
    complete
}

/// The carrier of a message that HAI has no role for.
fn whole(message: &Message, complete: &mut bool) -> Option<Object> {
    let mut out = BytesMut::new();
    let mut w = ObjectWriter::new(&mut out);
    shared::write_message(&mut w, message);
    w.end();
    let text = String::from_utf8(out.into()).expect("JSON text is UTF-8");
    if !fits(&text, 3) {
        *complete = false;
        return None;
    }
    Some(Object::from_entries([("message", Json::trusted(text))]))
}

/// Writes content as a string, with media beside it in `extra.attachments`. Says what cannot be told from that.
fn write_content(w: &mut ObjectWriter<'_>, content: &Content, rest: &mut Rest) -> Option<Object> {
    let Content::Parts(parts) = content else {
        w.str("content", &content.text());
        return None;
    };
    w.str("content", &content.text());
    let media: Vec<&ContentPart> =
        parts.iter().filter(|part| matches!(part, ContentPart::Media { .. })).collect();
    let extra = rest.take("extra");
    let attachments = parts_json(media.iter().copied());
    let extra = match extra.clone().and_then(Json::into_object) {
        Some(extra) => Some(extra.with("attachments", attachments).into()),
        None if extra.is_none() && !media.is_empty() => {
            Some(Object::from_entries([("attachments", attachments)]).into())
        }
        None => extra,
    };
    let told = with_parts(Content::Text(content.text().into()), extra.clone()).0 == *content;
    rest.hai.extend(extra.map(|extra| ("extra".to_owned(), extra)));
    let all = parts_json(parts);
    (!told).then(|| compose([("parts", all)]))
}

/// Parts as AG-UI has them.
pub(super) fn parts_json<'p>(parts: impl IntoIterator<Item = &'p ContentPart>) -> Json {
    let mut out = BytesMut::new();
    let mut list = ArrayWriter::new(&mut out);
    for part in parts {
        list.object(|w| shared::write_part(w, part));
    }
    list.end();
    Json::trusted(String::from_utf8(out.into()).expect("JSON text is UTF-8"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str, reading: Reading) -> Vec<Message> {
        let mut f = Fields::parse(text, Path::Root).unwrap();
        list(&mut f, reading, "r", &mut Tally::default()).unwrap()
    }

    fn written(messages: &[Message], writing: Writing) -> serde_json::Value {
        let mut out = BytesMut::new();
        let mut list = ArrayWriter::new(&mut out);
        write(&mut list, messages, writing);
        list.end();
        serde_json::from_slice(&out).unwrap()
    }

    const SHOWN: Writing = Writing { wrapped: true, developer: false, activity: true };

    #[test]
    fn an_answer_of_many_outputs_is_taken_apart_and_put_together() {
        let content = concat!(
            r#"{"output":{"type":"thinking","data":{"content":"hm","thinking":true}}}"#,
            r#"{"output":{"type":"thinking","data":{"content":"!","thinking":false}}}"#,
            r#"{"output":{"type":"text","content":"A"},"layout":{"x":0}}"#,
            r#"{"output":{"type":"button","data":{"name":"Go"}},"blockId":"b"}"#,
            r#"{"output":{"type":"text","content":"B"}}"#,
        );
        let given = serde_json::json!({"messages": [
            {"id": "m", "role": "assistant", "content": content, "name": "bot", "timestamp": 5, "extra": {"k": [1]}},
            {"id": "d", "role": "developer", "content": "x"},
        ]});
        let messages = read(&given.to_string(), Reading::Snapshot);
        let roles: Vec<_> = messages.iter().map(|message| (&*message.id, message.role())).collect();
        let wanted = [
            ("m:thinking:0", Role::Reasoning),
            ("m", Role::Assistant),
            ("m:b", Role::Activity),
            ("d", Role::Developer),
        ];
        assert_eq!(roles, wanted);
        let MessageBody::Assistant { content: Some(text), .. } = &messages[1].body else { panic!() };
        assert_eq!(&**text, "AB");
        assert_eq!(written(&messages, SHOWN)[0], given["messages"][0]);
        assert_eq!(
            written(&messages, SHOWN).as_array().unwrap().len(),
            1,
            "developer messages are not shown"
        );
        let asked = read(&given.to_string(), Reading::Request);
        assert_eq!(asked.iter().filter(|message| message.role() == Role::Activity).count(), 0);
        let writing = Writing { developer: true, ..SHOWN };
        assert_eq!(written(&asked, writing), given["messages"]);
    }

    #[test]
    fn a_changed_answer_does_not_go_back_as_it_was() {
        let content = r#"{"output":{"type":"thinking","data":{"content":"hm"}}}{"output":{"type":"text","content":"A"}}"#;
        let given = serde_json::json!({"messages": [{"id": "m", "role": "assistant", "content": content}]});
        let mut messages = read(&given.to_string(), Reading::Snapshot);
        messages[1] = Message::assistant("m", "B");
        let back = written(&messages, SHOWN);
        assert_eq!(
            back[0]["content"],
            r#"{"output":{"type":"thinking","data":{"content":"hm","thinking":false,"collapse":true}}}"#
        );
        assert_eq!(back[1]["content"], r#"{"output":{"type":"text","content":"B"}}"#);
    }

    #[test]
    fn attachments_are_parts() {
        let part =
            serde_json::json!({"type": "image", "source": {"type": "url", "value": "https://x/y.png"}});
        let given = serde_json::json!({"messages": [
            {"id": "u", "role": "user", "content": "look", "extra": {"attachments": [part], "k": 1}},
            {"id": "v", "role": "user", "content": [part, {"type": "text", "text": "and"}]},
        ]});
        let messages = read(&given.to_string(), Reading::Request);
        let MessageBody::User { content: Content::Parts(parts) } = &messages[0].body else { panic!() };
        assert_eq!(parts.len(), 2);
        let back = written(&messages, SHOWN);
        assert_eq!(back[0], given["messages"][0]);
        assert_eq!(back[1]["content"], "and");
        assert_eq!(read(&serde_json::json!({ "messages": back }).to_string(), Reading::Request), messages);
    }
}
