//! Chunk shorthands, both ways.
//!
//! A chunk names what it continues only by "the same as before", per *lane*: one lane for the main agent and
//! one for each subagent. [`Expander`] turns chunks into explicit events by the rules of the official client;
//! [`Joiner`] turns explicit events into chunks that this client expands to the same messages.

use std::collections::HashMap;

use super::wire::{Chunk, ChunkKind};
use crate::{
    event::{Body, Event, Extra, MessageId, Role, SubagentId, ToolCallId},
    format::ReadError,
    patch::Patch,
};

/// The stream that a lane is assembling.
#[derive(Clone, Debug)]
struct Pending {
    kind: ChunkKind,
    id: Box<str>,
    role: Option<Role>,
    name: Option<Box<str>>,
    parent: Option<Box<str>>,
}

impl Pending {
    /// The bytes that it takes in its lane.
    fn size(&self, lane: &Lane) -> usize {
        let length = |text: &Option<Box<str>>| text.as_deref().map_or(0, str::len);
        lane.as_deref().map_or(0, str::len) + self.id.len() + length(&self.name) + length(&self.parent)
    }
}

type Lane = Option<SubagentId>;
type Key = (ChunkKind, Box<str>);

/// Turns chunks into explicit events.
#[derive(Debug, Default)]
pub(super) struct Expander {
    /// In the order in which they were opened.
    lanes: Vec<(Lane, Pending)>,
}

impl Expander {
    /// How many lanes may be open at once; a lane is a subagent, and honest runs have a few.
    const MAX_LANES: usize = 4096;

    /// How many bytes their ids and names may take: a kilobyte for each of them.
    const MAX_SIZE: usize = 4 << 20;

    /// Lets an explicit event pass, after ending what it ends.
    pub(super) fn event(&mut self, event: Event, out: &mut Vec<Event>) {
        if !self.lanes.is_empty() {
            match ends(&event.body) {
                Ends::OwnLane => self.close(&event.subagent, out),
                Ends::All => {
                    for (lane, pending) in std::mem::take(&mut self.lanes) {
                        out.push(end(&pending, lane));
                    }
                }
                Ends::Nothing => {}
            }
        }
        out.push(event);
    }

    /// Expands a chunk.
    pub(super) fn chunk(&mut self, chunk: Chunk, out: &mut Vec<Event>) -> Result<(), ReadError> {
        let lane = self.lane_of(&chunk)?;
        let open = self.lanes.iter().find(|(known, _)| *known == lane).map(|(_, pending)| pending);
        let continued =
            open.filter(|open| open.kind == chunk.kind && chunk.id.as_ref().is_none_or(|id| *id == open.id));
        let started;
        let pending = match continued {
            Some(open) => {
                agree(open, &chunk)?;
                started = false;
                open.clone()
            }
            None => {
                let pending = opener(&chunk)?;
                self.close(&lane, out);
                let size: usize = self.lanes.iter().map(|(lane, pending)| pending.size(lane)).sum();
                if self.lanes.len() >= Self::MAX_LANES || size > Self::MAX_SIZE {
                    return Err(ReadError::new("", "too many chunk streams are open at once"));
                }
                let extra = chunk
                    .extra
                    .as_ref()
                    .and_then(|extra| extra.metadata.clone())
                    .map(|metadata| Box::new(Extra { metadata: Some(metadata), ..Extra::default() }));
                out.push(Event {
                    body: start(&pending),
                    subagent: chunk.subagent.clone(),
                    timestamp: chunk.timestamp,
                    extra,
                });
                self.lanes.push((lane.clone(), pending.clone()));
                started = true;
                pending
            }
        };
        // Metadata alone on a continuation still has to arrive; so do members that nobody knows.
        let extra = chunk.extra.as_deref();
        let carries_raw = extra.is_some_and(|extra| extra.raw.is_some() || extra.unknown.is_some());
        if chunk.delta.is_some() || carries_raw || (!started && chunk.extra.is_some()) {
            let delta = chunk.delta.unwrap_or_default();
            out.push(Event {
                body: content(&pending, delta),
                subagent: chunk.subagent.or(lane),
                timestamp: chunk.timestamp,
                extra: chunk.extra,
            });
        }
        Ok(())
    }

    fn close(&mut self, lane: &Lane, out: &mut Vec<Event>) {
        if let Some(at) = self.lanes.iter().position(|(known, _)| known == lane) {
            let (lane, pending) = self.lanes.remove(at);
            out.push(end(&pending, lane));
        }
    }

    fn lane_of(&self, chunk: &Chunk) -> Result<Lane, ReadError> {
        let tag = &chunk.subagent;
        if let Some(id) = &chunk.id {
            let holder = self.lanes.iter().find(|(_, open)| open.kind == chunk.kind && open.id == *id);
            return match holder {
                Some((lane, _)) if tag.is_some() && tag != lane => Err(ReadError::new(
                    "/subagentRunId",
                    format!("does not match the owner of the open {} `{id}`", chunk.kind.noun()),
                )),
                Some((lane, _)) => Ok(lane.clone()),
                None => Ok(tag.clone()),
            };
        }
        if tag.is_some() {
            return Ok(tag.clone());
        }
        let mut candidates = self.lanes.iter().filter(|(_, open)| open.kind == chunk.kind);
        if candidates.clone().any(|(lane, _)| lane.is_none()) {
            return Ok(None);
        }
        match (candidates.next(), candidates.next()) {
            (Some((lane, _)), None) => Ok(lane.clone()),
            (Some(_), Some(_)) => Err(ReadError::new(
                "",
                format!(
                    "a {} with neither id nor subagentRunId is ambiguous: several are open",
                    chunk.kind.event_type()
                ),
            )),
            _ => Ok(None),
        }
    }
}

enum Ends {
    OwnLane,
    All,
    Nothing,
}

/// Which pending streams an explicit event ends.
fn ends(body: &Body) -> Ends {
    match body {
        Body::RunStarted(_) | Body::RunFinished(_) | Body::RunError(_) | Body::MessagesSnapshot { .. } => {
            Ends::All
        }
        Body::Raw { .. }
        | Body::ActivitySnapshot { .. }
        | Body::ActivityDelta { .. }
        | Body::Source(_)
        | Body::File(_)
        | Body::Block(_)
        | Body::CollaborationStart { .. }
        | Body::CollaborationTask { .. }
        | Body::CollaborationEnd { .. }
        | Body::ReasoningEncrypted { .. }
        | Body::SubagentStarted(_) => Ends::Nothing,
        _ => Ends::OwnLane,
    }
}

/// What a first chunk opens.
fn opener(chunk: &Chunk) -> Result<Pending, ReadError> {
    let kind = chunk.kind;
    let need = |member: &Option<Box<str>>, key: &str| {
        member.clone().ok_or_else(|| {
            ReadError::new("", format!("`{key}` is missing, the first {} must have it", kind.event_type()))
        })
    };
    let id = need(&chunk.id, if kind == ChunkKind::Tool { "toolCallId" } else { "messageId" })?;
    let name =
        if kind == ChunkKind::Tool { Some(need(&chunk.name, "toolCallName")?) } else { chunk.name.clone() };
    let role = (kind == ChunkKind::Text).then(|| chunk.role.unwrap_or(Role::Assistant));
    Ok(Pending { kind, id, role, name, parent: chunk.parent.clone() })
}

/// A continuation may repeat what its opener said, but not contradict it.
fn agree(open: &Pending, chunk: &Chunk) -> Result<(), ReadError> {
    let contradicts = |given: &Option<Box<str>>, known: &Option<Box<str>>| given.is_some() && given != known;
    let (name, parent) = ("toolCallName", "parentMessageId");
    let name = if open.kind == ChunkKind::Tool { name } else { "name" };
    let key = if chunk.role.is_some() && chunk.role != open.role {
        "role"
    } else if contradicts(&chunk.name, &open.name) {
        name
    } else if contradicts(&chunk.parent, &open.parent) {
        parent
    } else {
        return Ok(());
    };
    let problem = format!("does not match what opened the {} `{}`", open.kind.noun(), open.id);
    Err(ReadError::new(format!("/{key}"), problem))
}

fn start(pending: &Pending) -> Body {
    match pending.kind {
        ChunkKind::Text => Body::TextStart {
            message: MessageId::from(&*pending.id),
            role: pending.role,
            name: pending.name.clone(),
        },
        ChunkKind::Tool => Body::ToolStart {
            call: ToolCallId::from(&*pending.id),
            name: pending.name.clone().unwrap_or_default(),
            parent: pending.parent.as_deref().map(MessageId::from),
        },
        ChunkKind::Reasoning => Body::ReasoningMessageStart { message: MessageId::from(&*pending.id) },
    }
}

fn content(pending: &Pending, delta: Box<str>) -> Body {
    match pending.kind {
        ChunkKind::Text => Body::TextDelta { message: MessageId::from(&*pending.id), delta },
        ChunkKind::Tool => Body::ToolArgs { call: ToolCallId::from(&*pending.id), delta },
        ChunkKind::Reasoning => Body::ReasoningDelta { message: MessageId::from(&*pending.id), delta },
    }
}

fn end(pending: &Pending, lane: Lane) -> Event {
    let body = match pending.kind {
        ChunkKind::Text => Body::TextEnd { message: MessageId::from(&*pending.id) },
        ChunkKind::Tool => Body::ToolEnd { call: ToolCallId::from(&*pending.id) },
        ChunkKind::Reasoning => Body::ReasoningMessageEnd { message: MessageId::from(&*pending.id) },
    };
    Event::new(body).by(lane)
}

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
pub(super) struct Joiner {
    open: HashMap<Key, Opened>,
    lanes: Vec<(Lane, Key)>,
}

/// What [`Joiner`] makes of an event.
pub(super) enum Joined {
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
    pub(super) fn before(&mut self, event: &Event) -> Option<Event> {
        let Body::ToolResult(result) = &event.body else { return None };
        let held = |(_, (kind, id)): &&(Lane, Key)| *kind == ChunkKind::Text && **id == *result.message;
        let lane = self.lanes.iter().find(held)?.0.clone();
        self.release(&lane);
        Some(Event::new(Body::StateDelta { patch: Patch::default() }).by(lane))
    }

    /// The kind and lane of the message or call that `event` only adds to, if the client is assembling it there.
    /// Such events change nothing here, so the writer can go on without a chunk of its own making.
    pub(super) fn continues(&self, event: &Event) -> Option<(ChunkKind, &Lane)> {
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

    pub(super) fn event(&mut self, event: &Event) -> Joined {
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
