//! Text and reasoning parts. Deltas are emitted even where a server violates the order that real clients require.

use std::collections::HashMap;

use super::{super::decode, EventBuilder, MAX_OPEN, ReceivedMetadata};
use crate::{
    event::{Body, EncryptedEntity, Event, MessageId, Role, SubagentId},
    json::{Object, ReadError, ReadResult},
};

/// Open text and reasoning parts by their ids on the wire.
#[derive(Debug, Default)]
pub(super) struct TextParts {
    texts: HashMap<Box<str>, OpenPart>,
    reasoning: HashMap<Box<str>, OpenPart>,
    /// Wire id and message of the text part that received the last delta.
    last_text: Option<(Box<str>, MessageId)>,
    text_count: u64,
    reasoning_count: u64,
}

/// An open text or reasoning part.
#[derive(Debug)]
struct OpenPart {
    message: MessageId,
    subagent: Option<SubagentId>,
    /// The start of the message was emitted. A reasoning message starts with its first delta.
    is_started: bool,
    /// Metadata for the start of a reasoning message.
    metadata: Option<Object>,
}

impl TextParts {
    /// Returns true if a part with a wire id is open.
    pub(super) fn has_open_with_id(&self) -> bool {
        self.texts.keys().chain(self.reasoning.keys()).any(|id| !id.is_empty())
    }
}

impl EventBuilder {
    pub(in super::super) fn text_start(
        &mut self,
        id: &str,
        received: ReceivedMetadata,
        out: &mut Vec<Event>,
    ) -> ReadResult<MessageId> {
        if self.is_text_open(id) {
            self.tally.note("out of order", "text-start of an open part");
            self.text_end(id, ReceivedMetadata::default(), out);
        }
        if self.text_parts.texts.len() >= MAX_OPEN {
            return Err(too_many("text"));
        }
        self.text_parts.text_count += 1;
        let message = received
            .message
            .unwrap_or_else(|| decode::derived_id(self.base_id(), "", self.text_parts.text_count).into());
        let subagent = received.subagent;
        let open = OpenPart {
            message: message.clone(),
            subagent: subagent.clone(),
            is_started: true,
            metadata: None,
        };
        self.text_parts.texts.insert(id.into(), open);
        self.text_parts.last_text = Some((id.into(), message.clone()));
        self.steps.parent = Some(message.clone());
        let start =
            Body::TextStart { message: message.clone(), role: Some(Role::Assistant), name: received.name };
        out.push(Event::new(start).by(subagent).with_metadata(received.metadata));
        Ok(message)
    }

    /// Message of the text part that received the last delta, if its id is `id`: the fast path of nearly all chunks.
    pub(in super::super) fn last_text_message(&self, id: &str) -> Option<MessageId> {
        match &self.text_parts.last_text {
            Some((last, message)) if **last == *id => Some(message.clone()),
            _ => None,
        }
    }

    pub(in super::super) fn text_delta(
        &mut self,
        id: &str,
        delta: &str,
        metadata: Option<Object>,
        out: &mut Vec<Event>,
    ) -> ReadResult {
        let Some(open) = self.text_parts.texts.get(id) else {
            // Real clients fail here; agentwire keeps the text.
            self.tally.note("out of order", "text-delta of a part that is not open");
            self.text_start(id, ReceivedMetadata::default(), out)?;
            return self.text_delta(id, delta, metadata, out);
        };
        let (message, subagent) = (open.message.clone(), open.subagent.clone());
        self.text_parts.last_text = Some((id.into(), message.clone()));
        let body = Body::TextDelta { message, delta: delta.into() };
        out.push(Event::new(body).by(subagent).with_metadata(metadata));
        Ok(())
    }

    pub(in super::super) fn text_end(&mut self, id: &str, received: ReceivedMetadata, out: &mut Vec<Event>) {
        self.text_parts.last_text = None;
        let Some(open) = self.text_parts.texts.remove(id) else {
            return self.tally.note("out of order", "text-end of a part that is not open");
        };
        if let Some(value) = received.encrypted {
            let entity = EncryptedEntity::Message(open.message.clone());
            out.push(Event::new(Body::ReasoningEncrypted { entity, value }).by(open.subagent.clone()));
        }
        let end = Body::TextEnd { message: open.message };
        out.push(Event::new(end).by(open.subagent).with_metadata(received.metadata));
    }

    pub(in super::super) fn reasoning_start(
        &mut self,
        id: &str,
        received: ReceivedMetadata,
        out: &mut Vec<Event>,
    ) -> ReadResult {
        if self.is_reasoning_open(id) {
            self.tally.note("out of order", "reasoning-start of an open part");
            self.reasoning_end(id, ReceivedMetadata::default(), out);
        }
        if self.text_parts.reasoning.len() >= MAX_OPEN {
            return Err(too_many("reasoning"));
        }
        self.text_parts.reasoning_count += 1;
        let count = self.text_parts.reasoning_count;
        let message =
            received.message.unwrap_or_else(|| decode::derived_id(self.base_id(), "reasoning", count).into());
        let start = Body::ReasoningStart { message: message.clone(), title: received.title };
        out.push(Event::new(start).by(received.subagent.clone()));
        let open =
            OpenPart { message, subagent: received.subagent, is_started: false, metadata: received.metadata };
        self.text_parts.reasoning.insert(id.into(), open);
        Ok(())
    }

    pub(in super::super) fn reasoning_delta(
        &mut self,
        id: &str,
        delta: &str,
        metadata: Option<Object>,
        out: &mut Vec<Event>,
    ) -> ReadResult {
        let Some(open) = self.text_parts.reasoning.get_mut(id) else {
            self.tally.note("out of order", "reasoning-delta of a part that is not open");
            self.reasoning_start(id, ReceivedMetadata::default(), out)?;
            return self.reasoning_delta(id, delta, metadata, out);
        };
        let (message, subagent) = (open.message.clone(), open.subagent.clone());
        if !std::mem::replace(&mut open.is_started, true) {
            let start = Body::ReasoningMessageStart { message: message.clone() };
            out.push(Event::new(start).by(subagent.clone()).with_metadata(open.metadata.take()));
        }
        let delta = Event::new(Body::ReasoningDelta { message, delta: delta.into() });
        out.push(delta.by(subagent).with_metadata(metadata));
        Ok(())
    }

    pub(in super::super) fn reasoning_end(
        &mut self,
        id: &str,
        received: ReceivedMetadata,
        out: &mut Vec<Event>,
    ) {
        let Some(open) = self.text_parts.reasoning.remove(id) else {
            return self.tally.note("out of order", "reasoning-end of a part that is not open");
        };
        let OpenPart { message, subagent, mut is_started, metadata } = open;
        // Redacted reasoning is emitted if its provider attached metadata.
        if !is_started && (metadata.is_some() || received.metadata.is_some()) {
            is_started = true;
            let start = Event::new(Body::ReasoningMessageStart { message: message.clone() });
            out.push(start.by(subagent.clone()).with_metadata(metadata));
        }
        if is_started {
            let end = Event::new(Body::ReasoningMessageEnd { message: message.clone() });
            out.push(end.by(subagent.clone()).with_metadata(received.metadata));
        }
        let mut push = |body| out.push(Event::new(body).by(subagent.clone()));
        if let Some(value) = received.encrypted {
            let entity = EncryptedEntity::Message(message.clone());
            push(Body::ReasoningEncrypted { entity, value });
        }
        push(Body::ReasoningEnd { message });
    }

    /// Ends a text part if it is open.
    pub(in super::super) fn end_text_if_open(&mut self, id: &str, out: &mut Vec<Event>) {
        if self.is_text_open(id) {
            self.text_end(id, ReceivedMetadata::default(), out);
        }
    }

    /// Ends a reasoning part if it is open.
    pub(in super::super) fn end_reasoning_if_open(&mut self, id: &str, out: &mut Vec<Event>) {
        if self.is_reasoning_open(id) {
            self.reasoning_end(id, ReceivedMetadata::default(), out);
        }
    }

    pub(in super::super) fn is_reasoning_open(&self, id: &str) -> bool {
        self.text_parts.reasoning.contains_key(id)
    }

    pub(in super::super) fn is_text_open(&self, id: &str) -> bool {
        self.text_parts.texts.contains_key(id)
    }

    /// Message of an open reasoning part.
    pub(in super::super) fn reasoning_message(&self, id: &str) -> Option<MessageId> {
        self.text_parts.reasoning.get(id).map(|open| open.message.clone())
    }

    /// Ends all text and reasoning parts.
    pub(in super::super) fn end_all_text(&mut self, out: &mut Vec<Event>) {
        for id in sorted_ids(&self.text_parts.texts) {
            self.text_end(&id, ReceivedMetadata::default(), out);
        }
        for id in sorted_ids(&self.text_parts.reasoning) {
            self.reasoning_end(&id, ReceivedMetadata::default(), out);
        }
    }
}

fn sorted_ids(parts: &HashMap<Box<str>, OpenPart>) -> Vec<Box<str>> {
    let mut ids: Vec<_> = parts.keys().cloned().collect();
    ids.sort_unstable();
    ids
}

fn too_many(kind: &str) -> ReadError {
    ReadError::new("/id", format!("expected at most {MAX_OPEN} open {kind} parts"))
}
