//! Parts that stream what the model says or thinks, told even where a server breaks the order that real clients need.

use super::{super::decode, Builder, MAX_OPEN, Open, ReceivedMetadata};
use crate::{
    event::{Body, EncryptedEntity, Event, MessageId, Role},
    json::{Object, ReadError},
};

impl Builder {
    pub(in super::super) fn text_start(
        &mut self,
        id: &str,
        facts: ReceivedMetadata,
        out: &mut Vec<Event>,
    ) -> Result<MessageId, ReadError> {
        if self.texts.contains_key(id) {
            self.tally.note("out of order", "text-start of an open part");
            self.text_end(id, ReceivedMetadata::default(), out);
        }
        if self.texts.len() >= MAX_OPEN {
            return Err(too_many("text"));
        }
        self.text_count += 1;
        let message =
            facts.message.unwrap_or_else(|| decode::derived_id(self.base(), "", self.text_count).into());
        let open =
            Open { message: message.clone(), subagent: facts.subagent.clone(), begun: true, metadata: None };
        self.texts.insert(id.into(), open);
        self.last = Some((id.into(), message.clone()));
        self.holder = Some(message.clone());
        let start =
            Body::TextStart { message: message.clone(), role: Some(Role::Assistant), name: facts.name };
        out.push(Event::new(start).by(facts.subagent).with_metadata(facts.metadata));
        Ok(message)
    }

    /// The message of an open text part, if that part spoke last: the way of nearly every chunk.
    pub(in super::super) fn speaking(&self, id: &str) -> Option<MessageId> {
        match &self.last {
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
    ) -> Result<(), ReadError> {
        let Some(open) = self.texts.get(id) else {
            // The real client fails here. What was said is worth more than the rule.
            self.tally.note("out of order", "text-delta of a part that is not open");
            self.text_start(id, ReceivedMetadata::default(), out)?;
            return self.text_delta(id, delta, metadata, out);
        };
        let (message, subagent) = (open.message.clone(), open.subagent.clone());
        self.last = Some((id.into(), message.clone()));
        let body = Body::TextDelta { message, delta: delta.into() };
        out.push(Event::new(body).by(subagent).with_metadata(metadata));
        Ok(())
    }

    pub(in super::super) fn text_end(&mut self, id: &str, facts: ReceivedMetadata, out: &mut Vec<Event>) {
        self.last = None;
        let Some(open) = self.texts.remove(id) else {
            return self.tally.note("out of order", "text-end of a part that is not open");
        };
        if let Some(value) = facts.encrypted {
            let entity = EncryptedEntity::Message(open.message.clone());
            out.push(Event::new(Body::ReasoningEncrypted { entity, value }).by(open.subagent.clone()));
        }
        let end = Body::TextEnd { message: open.message };
        out.push(Event::new(end).by(open.subagent).with_metadata(facts.metadata));
    }

    pub(in super::super) fn thought_start(
        &mut self,
        id: &str,
        facts: ReceivedMetadata,
        out: &mut Vec<Event>,
    ) -> Result<(), ReadError> {
        if self.thoughts.contains_key(id) {
            self.tally.note("out of order", "reasoning-start of an open part");
            self.thought_end(id, ReceivedMetadata::default(), out);
        }
        if self.thoughts.len() >= MAX_OPEN {
            return Err(too_many("reasoning"));
        }
        self.thought_count += 1;
        let message = facts
            .message
            .unwrap_or_else(|| decode::derived_id(self.base(), "reasoning", self.thought_count).into());
        let start = Body::ReasoningStart { message: message.clone(), title: facts.title };
        out.push(Event::new(start).by(facts.subagent.clone()));
        let open = Open { message, subagent: facts.subagent, begun: false, metadata: facts.metadata };
        self.thoughts.insert(id.into(), open);
        Ok(())
    }

    pub(in super::super) fn thought_delta(
        &mut self,
        id: &str,
        delta: &str,
        metadata: Option<Object>,
        out: &mut Vec<Event>,
    ) -> Result<(), ReadError> {
        let Some(open) = self.thoughts.get_mut(id) else {
            self.tally.note("out of order", "reasoning-delta of a part that is not open");
            self.thought_start(id, ReceivedMetadata::default(), out)?;
            return self.thought_delta(id, delta, metadata, out);
        };
        let (message, subagent) = (open.message.clone(), open.subagent.clone());
        if !std::mem::replace(&mut open.begun, true) {
            let start = Body::ReasoningMessageStart { message: message.clone() };
            out.push(Event::new(start).by(subagent.clone()).with_metadata(open.metadata.take()));
        }
        let delta = Event::new(Body::ReasoningDelta { message, delta: delta.into() });
        out.push(delta.by(subagent).with_metadata(metadata));
        Ok(())
    }

    pub(in super::super) fn thought_end(&mut self, id: &str, facts: ReceivedMetadata, out: &mut Vec<Event>) {
        let Some(Open { message, subagent, mut begun, metadata }) = self.thoughts.remove(id) else {
            return self.tally.note("out of order", "reasoning-end of a part that is not open");
        };
        // Reasoning that cannot be read is told by what its provider says about it.
        if !begun && (metadata.is_some() || facts.metadata.is_some()) {
            begun = true;
            let start = Event::new(Body::ReasoningMessageStart { message: message.clone() });
            out.push(start.by(subagent.clone()).with_metadata(metadata));
        }
        if begun {
            let end = Event::new(Body::ReasoningMessageEnd { message: message.clone() });
            out.push(end.by(subagent.clone()).with_metadata(facts.metadata));
        }
        let mut say = |body| out.push(Event::new(body).by(subagent.clone()));
        if let Some(value) = facts.encrypted {
            let entity = EncryptedEntity::Message(message.clone());
            say(Body::ReasoningEncrypted { entity, value });
        }
        say(Body::ReasoningEnd { message });
    }

    /// Ends a text part if it is open.
    pub(in super::super) fn end_text(&mut self, id: &str, out: &mut Vec<Event>) {
        if self.is_talking(id) {
            self.text_end(id, ReceivedMetadata::default(), out);
        }
    }

    /// Ends a reasoning part if it is open.
    pub(in super::super) fn end_thought(&mut self, id: &str, out: &mut Vec<Event>) {
        if self.is_thinking(id) {
            self.thought_end(id, ReceivedMetadata::default(), out);
        }
    }

    /// Whether a reasoning part of that id is open.
    pub(in super::super) fn is_thinking(&self, id: &str) -> bool {
        self.thoughts.contains_key(id)
    }

    /// Whether a text part of that id is open.
    pub(in super::super) fn is_talking(&self, id: &str) -> bool {
        self.texts.contains_key(id)
    }

    /// The message of an open reasoning part.
    pub(in super::super) fn thought(&self, id: &str) -> Option<MessageId> {
        self.thoughts.get(id).map(|open| open.message.clone())
    }

    /// Ends all texts and thoughts.
    pub(in super::super) fn quiet(&mut self, out: &mut Vec<Event>) {
        let mut texts: Vec<_> = self.texts.keys().cloned().collect();
        texts.sort_unstable();
        for id in texts {
            self.text_end(&id, ReceivedMetadata::default(), out);
        }
        let mut thoughts: Vec<_> = self.thoughts.keys().cloned().collect();
        thoughts.sort_unstable();
        for id in thoughts {
            self.thought_end(&id, ReceivedMetadata::default(), out);
        }
    }
}

fn too_many(what: &str) -> ReadError {
    ReadError::new("/id", format!("expected at most {MAX_OPEN} open {what} parts"))
}
