//! Reasoning of a model run as spans that never overlap. Providers identify reasoning blocks by id, by index or
//! not at all, and some encrypt them.

use std::borrow::Cow;

use serde_json::value::RawValue;

use super::{MAX_REASONING, ModelStream};
use crate::{
    event::{Body, EncryptedEntity, MessageId},
    format::langgraph::reader::{
        ReaderContext, content_blocks::ReasoningPiece, messages::default_reasoning_id,
    },
};

/// The reasoning span that is open, and the message open inside it.
#[derive(Debug)]
pub(super) struct OpenReasoning {
    span: MessageId,
    pub(super) message: MessageId,
}

/// One part of a reasoning block, under the id that was chosen for it.
#[derive(Debug)]
pub(super) struct ReasoningPart {
    block: Box<str>,
    part: u64,
    id: MessageId,
    /// Whether its message was ever open.
    was_open: bool,
    sent_bytes: usize,
    has_encrypted: bool,
}

impl ModelStream {
    pub(super) fn send_reasoning(&mut self, reasoning: ReasoningPiece<'_>, cx: &mut ReaderContext<'_>) {
        if cx.options.manual_reasoning {
            return;
        }
        let text = reasoning.text.as_ref().map(|(text, _)| &**text).filter(|text| !text.is_empty());
        let encrypted = reasoning.encrypted.as_deref().filter(|value| !value.is_empty());
        if text.is_none() && encrypted.is_none() && reasoning.id.is_none() {
            return;
        }
        let id = self.reasoning_message_id(&reasoning, cx);
        if text.is_none() && encrypted.is_none() {
            return;
        }
        let is_open = self.is_reasoning_open(&id);
        // Encrypted data belongs to the reasoning before it, which may be closed; if there was none, an empty
        // message carries it.
        let was_open = self.sent.reasoning_parts.iter().any(|part| part.id == id && part.was_open);
        if !is_open && (text.is_some() || !was_open) {
            self.open_reasoning(&id, cx);
        }
        if let Some(part) = self.sent.reasoning_parts.iter_mut().find(|part| part.id == id) {
            part.sent_bytes += text.map_or(0, str::len);
            part.has_encrypted |= encrypted.is_some();
        }
        if let Some(text) = text {
            self.sent.reasoning_bytes += text.len();
            self.emit(cx, Body::ReasoningDelta { message: id.clone(), delta: text.into() });
        }
        if let Some(value) = encrypted {
            let entity = EncryptedEntity::Message(id);
            self.emit(cx, Body::ReasoningEncrypted { entity, value: value.into() });
        }
    }

    /// The id of the reasoning message to which a piece belongs.
    fn reasoning_message_id(
        &mut self,
        reasoning: &ReasoningPiece<'_>,
        cx: &mut ReaderContext<'_>,
    ) -> MessageId {
        let mut same_block = self.sent.reasoning_parts.iter().filter(|part| *part.block == *reasoning.block);
        let first = same_block.clone().next().map(|part| part.id.clone());
        // Encrypted pieces name no part: they belong to the latest one of their block.
        let found = match reasoning.text {
            None => same_block.next_back(),
            Some(_) => same_block.find(|part| part.part == reasoning.part),
        };
        if let Some(part) = found {
            return part.id.clone();
        }
        let base = match (&reasoning.id, first) {
            (Some(id), _) => MessageId::from(id.as_ref()),
            (None, Some(first)) => first,
            (None, None) => default_reasoning_id(&self.message_id(cx), &reasoning.block),
        };
        let part = reasoning.part;
        let id = if part == 0 { base } else { format!("{base}-{part}").into() };
        if self.sent.reasoning_parts.len() < MAX_REASONING {
            self.sent.reasoning_parts.push(ReasoningPart {
                block: reasoning.block.as_ref().into(),
                part,
                id: id.clone(),
                was_open: false,
                sent_bytes: 0,
                has_encrypted: false,
            });
        }
        id
    }

    fn open_reasoning(&mut self, id: &MessageId, cx: &mut ReaderContext<'_>) {
        let span = match self.sent.reasoning.take() {
            // Another part or block continues the same span.
            Some(open) => {
                self.emit(cx, Body::ReasoningMessageEnd { message: open.message });
                open.span
            }
            None => {
                self.emit(cx, Body::ReasoningStart { message: id.clone(), title: None });
                id.clone()
            }
        };
        self.emit(cx, Body::ReasoningMessageStart { message: id.clone() });
        for part in self.sent.reasoning_parts.iter_mut().filter(|part| part.id == *id) {
            part.was_open = true;
        }
        self.sent.reasoning = Some(OpenReasoning { span, message: id.clone() });
    }

    pub(super) fn close_reasoning(&mut self, cx: &mut ReaderContext<'_>) {
        if let Some(open) = self.sent.reasoning.take() {
            self.emit(cx, Body::ReasoningMessageEnd { message: open.message });
            self.emit(cx, Body::ReasoningEnd { message: open.span });
        }
    }

    /// Emits the new part of reasoning that every frame repeats from its start.
    pub(super) fn send_accumulated_reasoning(
        &mut self,
        block: &str,
        part: u64,
        id: Option<Cow<'_, str>>,
        text: &str,
        encrypted: Option<Cow<'_, str>>,
        cx: &mut ReaderContext<'_>,
    ) {
        let mut parts = self.sent.reasoning_parts.iter();
        let known = parts.find(|known| *known.block == *block && known.part == part);
        let (sent, has_encrypted) = known.map_or((0, false), |known| (known.sent_bytes, known.has_encrypted));
        let new = text.get(sent..).unwrap_or_default();
        let encrypted = encrypted.filter(|_| !has_encrypted);
        if new.is_empty() && encrypted.is_none() {
            return;
        }
        // The raw string serves frame templates only, which never apply here: any raw value will do.
        let text = (!new.is_empty()).then_some((Cow::Borrowed(new), RawValue::NULL));
        self.send_reasoning(ReasoningPiece { block: block.into(), part, id, text, encrypted }, cx);
    }
}
