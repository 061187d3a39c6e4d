//! Messages of HAI on their way out: as they came where they still say the same, wrapped anew where they do not.

use bytes::BytesMut;

use super::{
    super::{
        delta::{self, deltas},
        metadata::is_foreign,
        nesting::{compose, fits},
        reader::{
            assistant::{Part, take_apart},
            attachments::with_parts,
        },
        wire::{AGUI, HAI},
    },
    attachments::parts_json,
};
use crate::{
    event::{Content, ContentPart, Message, MessageBody, Role},
    format::ag_ui::shapes,
    json::{ArrayWriter, Json, Object, ObjectWriter},
    tally::Tally,
};

/// How messages are written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Writing {
    /// Whether an assistant's text is wrapped like a delta, for a client that parses it.
    pub(crate) wrapped: bool,
    /// Whether messages for developers are written: they are not for end users.
    pub(crate) developer: bool,
    /// Whether activities are written: an agent never sees them.
    pub(crate) activity: bool,
}

/// Writes messages; says whether all of them could be.
pub(crate) fn write(list: &mut ArrayWriter<'_>, messages: &[Message], writing: Writing) -> bool {
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
    shapes::write_message(&mut w, message);
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

/// `text` as the one output of a message.
pub(crate) fn wrapped(text: &str) -> String {
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
