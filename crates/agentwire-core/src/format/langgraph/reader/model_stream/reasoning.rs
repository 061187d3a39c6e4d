//! Reasoning: blocks that some providers name, some number, some seal, as spans that never overlap.

use std::borrow::Cow;

use serde_json::value::RawValue;

use super::{
    super::{Cx, content_blocks::Reasoning, messages::reasoning_id},
    Lane, MAX_REASONING, Thought,
};
use crate::event::{Body, EncryptedEntity, MessageId};

/// A part of a block of reasoning that was named.
#[derive(Debug)]
pub(super) struct Known {
    block: Box<str>,
    part: u64,
    id: MessageId,
    /// Whether its message was ever open.
    opened: bool,
    /// How much of it was shown, and whether what only the provider can read was.
    sent: usize,
    sealed: bool,
}

impl Lane {
    pub(super) fn think(&mut self, reasoning: Reasoning<'_>, cx: &mut Cx<'_>) {
        if cx.settings.manual_reasoning {
            return;
        }
        let text = reasoning.text.as_ref().map(|(text, _)| &**text).filter(|text| !text.is_empty());
        let encrypted = reasoning.encrypted.as_deref().filter(|value| !value.is_empty());
        if text.is_none() && encrypted.is_none() && reasoning.id.is_none() {
            return;
        }
        let id = self.thought_id(&reasoning, cx);
        if text.is_none() && encrypted.is_none() {
            return;
        }
        let open = self.thought.as_ref().is_some_and(|thought| thought.message == id);
        // What only the provider can read belongs to the reasoning before it, which may be closed; without
        // one, an empty message is its home.
        let opened = self.thoughts.iter().any(|known| known.id == id && known.opened);
        if !open && (text.is_some() || !opened) {
            self.open_thought(&id, cx);
        }
        if let Some(known) = self.thoughts.iter_mut().find(|known| known.id == id) {
            known.sent += text.map_or(0, str::len);
            known.sealed |= encrypted.is_some();
        }
        if let Some(text) = text {
            self.reasoning_sent += text.len();
            self.emit(cx, Body::ReasoningDelta { message: id.clone(), delta: text.into() });
        }
        if let Some(value) = encrypted {
            let entity = EncryptedEntity::Message(id);
            self.emit(cx, Body::ReasoningEncrypted { entity, value: value.into() });
        }
    }

    /// The id of the reasoning message that a piece belongs to.
    fn thought_id(&mut self, reasoning: &Reasoning<'_>, cx: &mut Cx<'_>) -> MessageId {
        // Opaque pieces name no part: they belong to the latest one of their block.
        let opaque = reasoning.text.is_none();
        let mut same = self.thoughts.iter().filter(|known| *known.block == *reasoning.block);
        let first = same.clone().next().map(|known| known.id.clone());
        let found = if opaque { same.next_back() } else { same.find(|known| known.part == reasoning.part) };
        if let Some(known) = found {
            return known.id.clone();
        }
        let base = match (&reasoning.id, first) {
            (Some(id), _) => MessageId::from(id.as_ref()),
            (None, Some(first)) => first,
            (None, None) => reasoning_id(&self.message(cx), &reasoning.block),
        };
        let part = reasoning.part;
        let id = if part == 0 { base } else { format!("{base}-{part}").into() };
        if self.thoughts.len() < MAX_REASONING {
            let block = reasoning.block.as_ref().into();
            self.thoughts.push(Known { block, part, id: id.clone(), opened: false, sent: 0, sealed: false });
        }
        id
    }

    fn open_thought(&mut self, id: &MessageId, cx: &mut Cx<'_>) {
        let span = match self.thought.take() {
            // Another part or block of the same thinking.
            Some(thought) => {
                self.emit(cx, Body::ReasoningMessageEnd { message: thought.message });
                thought.span
            }
            None => {
                self.emit(cx, Body::ReasoningStart { message: id.clone(), title: None });
                id.clone()
            }
        };
        self.emit(cx, Body::ReasoningMessageStart { message: id.clone() });
        for known in self.thoughts.iter_mut().filter(|known| known.id == *id) {
            known.opened = true;
        }
        self.thought = Some(Thought { span, message: id.clone() });
    }

    pub(super) fn think_so_far(
        &mut self,
        block: &str,
        part: u64,
        id: Option<Cow<'_, str>>,
        said: &str,
        encrypted: Option<Cow<'_, str>>,
        cx: &mut Cx<'_>,
    ) {
        let known = self.thoughts.iter().find(|known| *known.block == *block && known.part == part);
        let (sent, sealed) = known.map_or((0, false), |known| (known.sent, known.sealed));
        let new = said.get(sent..).unwrap_or_default();
        let encrypted = encrypted.filter(|_| !sealed);
        if new.is_empty() && encrypted.is_none() {
            return;
        }
        // The wire form of the string is of no use here, so any raw value will do.
        let text = (!new.is_empty()).then_some((Cow::Borrowed(new), RawValue::NULL));
        self.think(Reasoning { block: block.into(), part, id, text, encrypted }, cx);
    }
}
