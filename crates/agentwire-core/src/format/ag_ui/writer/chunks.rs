//! Explicit events to chunk shorthands.

use std::collections::HashMap;

use super::super::{
    reader::chunks::{Ends, Lane, ends},
    wire::{Chunk, ChunkKind},
};
use crate::{
    event::{Body, Event},
    patch::Patch,
};

type Key = (ChunkKind, Box<str>);

/// What a message or call needs to be opened again in chunk form.
#[derive(Clone, Debug)]
struct Opened {
    chunk: Chunk,
    /// Whether the client still has it open.
    held: bool,
}

/// Turns explicit events into chunks.
///
/// Within one lane a chunk ends whatever else the lane was assembling. Where the explicit events interleave
/// two messages, each switch therefore ends the one and opens the other again, which builds the same
/// messages: an opener of a known message or call only continues it.
#[derive(Debug, Default)]
pub(crate) struct Joiner {
    open: HashMap<Key, Opened>,
    lanes: Vec<(Lane, Key)>,
}

/// What [`Joiner`] makes of an event.
pub(crate) enum Joined {
    /// A chunk, and whether it had to open a message again.
    Chunk(Box<Chunk>, bool),
    /// The event as it is.
    Same,
    /// Nothing: the end of a message is implied.
    Nothing,
}

impl Joiner {
    /// An event that must go before `event`, because the client would otherwise go on assembling under an owner
    /// that `event` replaces: a tool result that takes the id of an open text message. An empty patch of the
    /// lane's owner ends the lane and says nothing else.
    pub(crate) fn before(&mut self, event: &Event) -> Option<Event> {
        let Body::ToolResult(result) = &event.body else { return None };
        let held = |(_, (kind, id)): &&(Lane, Key)| *kind == ChunkKind::Text && **id == *result.message;
        let lane = self.lanes.iter().find(held)?.0.clone();
        self.release(&lane);
        Some(Event::new(Body::StateDelta { patch: Patch::default() }).by(lane))
    }

    /// The kind and lane of the message or call that `event` only adds to, if the client is assembling it there.
    /// Such events change nothing here, so the writer can go on without a chunk of its own making.
    pub(crate) fn continues(&self, event: &Event) -> Option<(ChunkKind, &Lane)> {
        let (kind, id): (_, &str) = match &event.body {
            _ if event.extra.is_some() => return None,
            Body::TextDelta { message, .. } => (ChunkKind::Text, message),
            Body::ReasoningDelta { message, .. } => (ChunkKind::Reasoning, message),
            Body::ToolArgs { call, .. } => (ChunkKind::Tool, call),
            _ => return None,
        };
        let held = |(_, (held, name)): &&(Lane, Key)| *held == kind && **name == *id;
        self.lanes.iter().find(held).map(|(lane, _)| (kind, lane))
    }

    pub(crate) fn event(&mut self, event: &Event) -> Joined {
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
                match ends(body) {
                    Ends::All => {
                        self.lanes.clear();
                        self.open.values_mut().for_each(|open| open.held = false);
                        if !matches!(body, Body::MessagesSnapshot { .. }) {
                            self.open.clear();
                        }
                    }
                    Ends::OwnLane => self.release(&event.subagent),
                    Ends::Nothing => {}
                }
                return Joined::Same;
            }
        };
        let key = (kind, Box::<str>::from(id));
        let mut chunk = Chunk::new(kind);
        chunk.id = Some(id.into());
        (chunk.subagent, chunk.timestamp) = (event.subagent.clone(), event.timestamp);
        chunk.extra.clone_from(&event.extra);
        match &event.body {
            Body::TextStart { role, name, .. } => {
                (chunk.role, chunk.name) = (*role, name.clone());
                self.opened(key, chunk)
            }
            Body::ToolStart { name, parent, .. } => {
                chunk.name = Some(name.clone());
                chunk.parent = parent.as_deref().map(Into::into);
                self.opened(key, chunk)
            }
            Body::ReasoningMessageStart { .. } => self.opened(key, chunk),
            Body::TextDelta { delta, .. }
            | Body::ToolArgs { delta, .. }
            | Body::ReasoningDelta { delta, .. } => {
                chunk.delta = Some(delta.clone());
                self.continued(&key, chunk)
            }
            _ => {
                let joined = match chunk.extra {
                    Some(_) => self.continued(&key, chunk),
                    None => Joined::Nothing,
                };
                // The client ends it by itself; it must not stay in the lane for a later message of this id.
                self.open.remove(&key);
                joined
            }
        }
    }

    fn opened(&mut self, key: Key, mut chunk: Chunk) -> Joined {
        let mut opener = chunk.clone();
        opener.extra = None;
        match self.lanes.iter().find(|(_, held)| *held == key) {
            // The client has not ended it yet, so this only continues it and may contradict nothing.
            Some((lane, _)) => {
                (chunk.role, chunk.name, chunk.parent) = (None, None, None);
                chunk.subagent.clone_from(lane);
                opener.subagent.clone_from(lane);
            }
            None => self.hold(&chunk),
        }
        self.open.insert(key, Opened { chunk: opener, held: true });
        Joined::Chunk(Box::new(chunk), false)
    }

    fn continued(&mut self, key: &Key, mut chunk: Chunk) -> Joined {
        let Some(open) = self.open.get_mut(key) else { return Joined::Chunk(Box::new(chunk), false) };
        let again = !open.held;
        if again {
            // The message or call exists, so only what a first chunk must have is said again: a parent or an
            // owner may have changed since.
            open.held = true;
            open.chunk.subagent.clone_from(&chunk.subagent);
            if chunk.kind == ChunkKind::Tool {
                chunk.name.clone_from(&open.chunk.name);
            }
            self.hold(&chunk);
        } else {
            // A continuation belongs to the lane of its opener; a tag that the opener inherited contradicts it.
            chunk.subagent.clone_from(&open.chunk.subagent);
        }
        Joined::Chunk(Box::new(chunk), again)
    }

    /// Notes that the client now assembles `chunk` in its lane.
    fn hold(&mut self, chunk: &Chunk) {
        self.release(&chunk.subagent);
        let id = chunk.id.clone().unwrap_or_default();
        self.lanes.push((chunk.subagent.clone(), (chunk.kind, id)));
    }

    /// Notes that the client has ended what the lane was assembling.
    fn release(&mut self, lane: &Lane) {
        if let Some(at) = self.lanes.iter().position(|(known, _)| known == lane) {
            let (_, key) = self.lanes.remove(at);
            if let Some(open) = self.open.get_mut(&key) {
                open.held = false;
            }
        }
    }
}
