//! Explicit events to chunk shorthands, which the official client expands to the same messages.

use std::collections::HashMap;

use super::super::{
    reader::chunks::{ChunkOwner, EndedStreams, ended_streams},
    wire::{ChunkKind, EventChunk},
};
use crate::{
    event::{Body, Event},
    patch::Patch,
};

/// The kind and id of a message or call.
type ItemKey = (ChunkKind, Box<str>);

/// A message or call that has not ended.
#[derive(Clone, Debug)]
struct OpenItem {
    /// The first chunk, for reopening.
    opener: EventChunk,
    /// Whether the client is assembling it.
    is_assembling: bool,
}

/// Turns explicit events into chunks.
///
/// A chunk ends every other stream of its owner. Where the explicit events interleave two messages, each switch
/// therefore ends one and reopens the other, which builds the same messages: the first chunk of an existing
/// message or call continues it.
#[derive(Debug, Default)]
pub(crate) struct ChunkJoiner {
    open: HashMap<ItemKey, OpenItem>,
    /// The item that the client assembles for each owner.
    assembling: Vec<(ChunkOwner, ItemKey)>,
}

/// The chunk form of an event.
pub(crate) enum JoinedEvent {
    /// A chunk; reopening if it ends an interleaved message.
    Chunk { chunk: Box<EventChunk>, is_reopening: bool },
    /// The explicit event.
    Unchanged,
    /// Nothing: the end of a message is implied.
    Implied,
}

impl ChunkJoiner {
    /// An event to write before `event`: a tool result may take the id of an open text message, and the client
    /// would continue to assemble under the former owner. An empty state patch of that owner ends the stream
    /// and has no other effect.
    pub(crate) fn event_before(&mut self, event: &Event) -> Option<Event> {
        let Body::ToolResult(result) = &event.body else { return None };
        let is_message =
            |(_, (kind, id)): &&(ChunkOwner, ItemKey)| *kind == ChunkKind::Text && **id == *result.message;
        let owner = self.assembling.iter().find(is_message)?.0.clone();
        self.release(&owner);
        Some(Event::new(Body::StateDelta { patch: Patch::default() }).by(owner))
    }

    /// The kind and owner of the message or call that `event` appends to, if the client is assembling it. Such
    /// events change no state here, so the writer can write them without building a [`EventChunk`].
    pub(crate) fn continued_stream(&self, event: &Event) -> Option<(ChunkKind, &ChunkOwner)> {
        let (kind, id): (_, &str) = match &event.body {
            _ if event.extra.is_some() => return None,
            Body::TextDelta { message, .. } => (ChunkKind::Text, message),
            Body::ReasoningDelta { message, .. } => (ChunkKind::Reasoning, message),
            Body::ToolArgs { call, .. } => (ChunkKind::Tool, call),
            _ => return None,
        };
        let is_item = |(_, (other, name)): &&(ChunkOwner, ItemKey)| *other == kind && **name == *id;
        self.assembling.iter().find(is_item).map(|(owner, _)| (kind, owner))
    }

    /// Converts `event` to its chunk form.
    pub(crate) fn join(&mut self, event: &Event) -> JoinedEvent {
        let (kind, id) = match &event.body {
            Body::TextStart { message, .. } | Body::TextDelta { message, .. } | Body::TextEnd { message } => {
                (ChunkKind::Text, message.as_str())
            }
            Body::ReasoningMessageStart { message }
            | Body::ReasoningDelta { message, .. }
            | Body::ReasoningMessageEnd { message } => (ChunkKind::Reasoning, message.as_str()),
            Body::ToolStart { call, .. } | Body::ToolArgs { call, .. } | Body::ToolEnd { call } => {
                (ChunkKind::Tool, call.as_str())
            }
            body => {
                match ended_streams(body) {
                    EndedStreams::All => {
                        self.assembling.clear();
                        self.open.values_mut().for_each(|open| open.is_assembling = false);
                        if !matches!(body, Body::MessagesSnapshot { .. }) {
                            self.open.clear();
                        }
                    }
                    EndedStreams::Own => self.release(&event.subagent),
                    EndedStreams::None => {}
                }
                return JoinedEvent::Unchanged;
            }
        };
        let key = (kind, Box::<str>::from(id));
        let mut chunk = EventChunk::new(kind);
        chunk.id = Some(id.into());
        (chunk.subagent, chunk.timestamp) = (event.subagent.clone(), event.timestamp);
        chunk.extra.clone_from(&event.extra);
        match &event.body {
            Body::TextStart { role, name, .. } => {
                (chunk.role, chunk.name) = (*role, name.clone());
                self.open_item(key, chunk)
            }
            Body::ToolStart { name, parent, .. } => {
                chunk.name = Some(name.clone());
                chunk.parent = parent.as_deref().map(Into::into);
                self.open_item(key, chunk)
            }
            Body::ReasoningMessageStart { .. } => self.open_item(key, chunk),
            Body::TextDelta { delta, .. }
            | Body::ToolArgs { delta, .. }
            | Body::ReasoningDelta { delta, .. } => {
                chunk.delta = Some(delta.clone());
                self.continue_item(&key, chunk)
            }
            _ => {
                let joined = match chunk.extra {
                    Some(_) => self.continue_item(&key, chunk),
                    None => JoinedEvent::Implied,
                };
                // The client ends it by itself; a later message may have this id.
                self.open.remove(&key);
                joined
            }
        }
    }

    fn open_item(&mut self, key: ItemKey, mut chunk: EventChunk) -> JoinedEvent {
        let mut opener = chunk.clone();
        opener.extra = None;
        match self.assembling.iter().find(|(_, item)| *item == key) {
            // The client has not ended it, so this chunk continues it and must not contradict its first chunk.
            Some((owner, _)) => {
                (chunk.role, chunk.name, chunk.parent) = (None, None, None);
                chunk.subagent.clone_from(owner);
                opener.subagent.clone_from(owner);
            }
            None => self.assemble(&chunk),
        }
        self.open.insert(key, OpenItem { opener, is_assembling: true });
        JoinedEvent::Chunk { chunk: Box::new(chunk), is_reopening: false }
    }

    fn continue_item(&mut self, key: &ItemKey, mut chunk: EventChunk) -> JoinedEvent {
        let Some(open) = self.open.get_mut(key) else {
            return JoinedEvent::Chunk { chunk: Box::new(chunk), is_reopening: false };
        };
        let is_reopening = !open.is_assembling;
        if is_reopening {
            // The message or call exists, so only the required members of a first chunk are repeated: its parent
            // or owner may have changed since.
            open.is_assembling = true;
            open.opener.subagent.clone_from(&chunk.subagent);
            if chunk.kind == ChunkKind::Tool {
                chunk.name.clone_from(&open.opener.name);
            }
            self.assemble(&chunk);
        } else {
            // A continuation belongs to the owner of the first chunk; a tag of its own could contradict it.
            chunk.subagent.clone_from(&open.opener.subagent);
        }
        JoinedEvent::Chunk { chunk: Box::new(chunk), is_reopening }
    }

    /// Records that the client assembles the item of `chunk`.
    fn assemble(&mut self, chunk: &EventChunk) {
        self.release(&chunk.subagent);
        let id = chunk.id.clone().unwrap_or_default();
        self.assembling.push((chunk.subagent.clone(), (chunk.kind, id)));
    }

    /// Records that the client has ended the item of this owner.
    fn release(&mut self, owner: &ChunkOwner) {
        if let Some(at) = self.assembling.iter().position(|(other, _)| other == owner) {
            let (_, key) = self.assembling.remove(at);
            if let Some(open) = self.open.get_mut(&key) {
                open.is_assembling = false;
            }
        }
    }
}
