//! Writes messages: with their original content string where it is unchanged, else with wrapped content.

use bytes::BytesMut;

use super::{
    super::{
        delta::{self, parse_documents},
        metadata::is_foreign,
        nesting::{compose, fits},
        reader::assistant::{AssistantPart, split_outputs},
        wire::{AGUI, HAI},
    },
    attachments::with_attachments,
};
use crate::{
    event::{Content, Message, MessageBody, Role},
    format::ag_ui::shapes,
    json::{ArrayWriter, Json, Object, ObjectWriter},
    tally::Tally,
};

/// Options for writing messages.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MessageOptions {
    /// Whether assistant text is wrapped like a delta, for clients that parse it.
    pub(crate) wrapped: bool,
    /// Whether developer messages are written; they are not for end users.
    pub(crate) developer: bool,
    /// True if the messages are for an agent: without activities, and every message with a `content`, because the models
    /// of the reference server require one.
    pub(crate) is_request: bool,
}

impl MessageOptions {
    /// Messages of a request.
    pub(crate) const REQUEST: Self = Self { wrapped: false, developer: true, is_request: true };
}

/// Writes messages. Returns whether all of them are complete.
pub(crate) fn write_list(list: &mut ArrayWriter<'_>, messages: &[Message], options: MessageOptions) -> bool {
    let mut complete = true;
    let mut at = 0;
    while at < messages.len() {
        let message = &messages[at];
        at += 1;
        if let Some((message_id, original)) = unchanged_original(messages, at - 1) {
            // It contains the following parts.
            let mut holder = message;
            while let Some(next) = messages.get(at)
                && is_part_of(next, &message_id)
            {
                if next.role() == Role::Assistant {
                    holder = next;
                }
                at += 1;
            }
            list.object(|w| write_assistant(w, &message_id, &original, holder, message));
            continue;
        }
        match &message.body {
            MessageBody::Developer { .. } if !options.developer => complete = false,
            MessageBody::Activity { .. } if options.is_request => {}
            _ => {
                list.object(|w| complete &= write_message(w, message, options));
            }
        }
    }
    complete
}

/// The HAI message id and original content of a message and the following ones, if they are unchanged.
fn unchanged_original(messages: &[Message], at: usize) -> Option<(String, String)> {
    let hai = messages[at].metadata.as_ref()?.member(HAI)?.into_object()?;
    let (message_id, original) = (hai.get_str("messageId")?, hai.get_str("content")?);
    let outputs = parse_documents(&original, &mut Tally::default())?;
    let parts = split_outputs(&message_id.as_str().into(), &outputs);
    // Activities are ignored: they may be absent, and may have changed.
    let current: Vec<_> = messages[at..]
        .iter()
        .take_while(|message| is_part_of(message, &message_id))
        .filter_map(|message| match &message.body {
            MessageBody::Assistant { content, .. } => {
                Some((&*message.id, &**content.as_ref()?)).filter(|(_, text)| !text.is_empty())
            }
            MessageBody::Reasoning { content } => Some((&*message.id, &**content)),
            _ => None,
        })
        .collect();
    let expected: Vec<_> = parts
        .iter()
        .filter_map(|part| match part {
            AssistantPart::Text(text) => {
                Some((message_id.as_str(), text.as_str())).filter(|(_, text)| !text.is_empty())
            }
            AssistantPart::Thought(id, text) => Some((&**id, text.as_str())),
            AssistantPart::Block(_) | AssistantPart::Calls => None,
        })
        .collect();
    (current == expected).then_some((message_id, original))
}

/// Whether a message is part of the HAI message `own`.
fn is_part_of(message: &Message, message_id: &str) -> bool {
    let parent = || message.metadata.as_ref()?.member(HAI)?.into_object()?.get_str("messageId");
    match message.role() {
        Role::Assistant => *message.id == *message_id,
        Role::Reasoning | Role::Activity => parent().as_deref() == Some(message_id),
        _ => false,
    }
}

fn write_assistant(
    w: &mut ObjectWriter<'_>,
    message_id: &str,
    original: &str,
    holder: &Message,
    first: &Message,
) {
    w.str("id", message_id).str("role", "assistant").str("content", original);
    let mut rest = MessageExtras::of(holder);
    if holder.role() != Role::Assistant {
        rest = MessageExtras::of(first);
        rest.metadata = None;
    }
    for key in ["messageId", "content", "blockId", "output"] {
        rest.hai.retain(|(name, _)| name != key);
    }
    write_calls(w, holder);
    rest.write(w, holder, None);
}

/// The members of a message besides its content.
struct MessageExtras {
    metadata: Option<Object>,
    hai: Vec<(String, Json)>,
}

impl MessageExtras {
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

    fn remove(&mut self, key: &str) -> Option<Json> {
        let at = self.hai.iter().rposition(|(name, value)| name == key && !value.is_null())?;
        Some(self.hai.remove(at).1)
    }

    /// Writes all members but id, role and content. `carrier` is stored in `extra`.
    fn write(mut self, w: &mut ObjectWriter<'_>, message: &Message, carrier: Option<Object>) {
        let name = self.remove("name").and_then(|name| name.as_str());
        w.opt_str("name", message.name.as_deref().or(name.as_deref()));
        let timestamp = self.remove("timestamp");
        w.opt_json("timestamp", timestamp.as_ref());
        let extra = self.remove("extra");
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
        let (free, bound): (Vec<_>, Vec<_>) = self
            .hai
            .into_iter()
            .partition(|(key, value)| is_foreign(key) && !OWN.contains(&key.as_str()) && !value.is_null());
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
                list.object(|w| shapes::write_tool_call(w, call));
            }
        });
    }
}

/// Writes one message. Returns whether it is complete.
fn write_message(w: &mut ObjectWriter<'_>, message: &Message, options: MessageOptions) -> bool {
    w.str("id", &message.id);
    let mut complete = true;
    let mut carrier = None;
    let mut rest = MessageExtras::of(message);
    match &message.body {
        MessageBody::Developer { content } | MessageBody::System { content } => {
            w.str("role", message.role().as_str()).str("content", content);
        }
        MessageBody::Assistant { content, .. } => {
            w.str("role", "assistant");
            if let Some(content) = content {
                // The reader would parse plain text that looks like a document.
                if options.wrapped || parse_documents(content, &mut Tally::default()).is_some() {
                    w.str("content", &wrap_text(content));
                } else {
                    w.str("content", content);
                }
            } else if options.is_request {
                w.str("content", "");
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
            // An agent would take the document for its own earlier words.
            let shown = if options.is_request { String::new() } else { delta_document(&output) };
            w.str("role", "assistant").str("content", &shown);
            carrier = message_carrier(message, &mut complete);
            rest = MessageExtras { metadata: None, hai: Vec::new() };
        }
        MessageBody::Activity { kind, content } => {
            let output = match kind.strip_prefix("hai.") {
                Some(output_type) if content.get_str("type").as_deref() == Some(output_type) => {
                    content.clone()
                }
                _ => compose([("type", Json::string(kind)), ("data", content.clone().into())]),
            };
            w.str("role", "assistant").str("content", &delta_document(&output));
            carrier = message_carrier(message, &mut complete);
            rest = MessageExtras { metadata: None, hai: Vec::new() };
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
fn message_carrier(message: &Message, complete: &mut bool) -> Option<Object> {
    let mut out = BytesMut::new();
    let mut w = ObjectWriter::new(&mut out);
    shapes::write_message(&mut w, message);
    w.end();
    let text = String::from_utf8(out.into()).expect("JSON text is UTF-8");
    if !fits(&text, 3) {
        *complete = false;
        return None;
    }
    Some(Object::from_entries([("message", Json::trusted(text))]))
}

/// Writes content as a string, with media in `extra.attachments`. Returns the carrier of the original parts, if
/// the reader cannot derive them.
fn write_content(w: &mut ObjectWriter<'_>, content: &Content, rest: &mut MessageExtras) -> Option<Object> {
    w.str("content", &content.text());
    if matches!(content, Content::Text(_)) {
        return None;
    }
    let extra = rest.remove("extra");
    let (extra, parts) = with_attachments(content, extra);
    rest.hai.extend(extra.map(|extra| ("extra".to_owned(), extra)));
    parts.map(|parts| compose([("parts", parts)]))
}

/// `text` as the only output of a message.
pub(crate) fn wrap_text(text: &str) -> String {
    delta_document(&delta::text_output(text, None))
}

/// An output as a structured delta, in the form that the standard's client parses.
pub(crate) fn delta_document(output: &Object) -> String {
    let mut out = BytesMut::new();
    let mut w = ObjectWriter::new(&mut out);
    delta::write_delta(&mut w, output, &delta::Placement::default());
    w.end();
    let text = String::from_utf8(out.into()).expect("JSON text is UTF-8");
    delta::escape_brace_pairs(&text).into_owned()
}
