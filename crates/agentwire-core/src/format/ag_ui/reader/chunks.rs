//! Chunk shorthands, both ways.
//!
//! A chunk names what it continues only by "the same as before", per *lane*: one lane for the main agent and
//! one for each subagent. [`Expander`] turns chunks into explicit events by the rules of the official client;
//! [`Joiner`] turns explicit events into chunks that this client expands to the same messages.

use super::super::wire::{Chunk, ChunkKind};
use crate::{
    event::{Body, Event, Extra, MessageId, Role, SubagentId, ToolCallId},
    json::ReadError,
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

pub(crate) type Lane = Option<SubagentId>;

/// Turns chunks into explicit events.
#[derive(Debug, Default)]
pub(crate) struct Expander {
    /// In the order in which they were opened.
    lanes: Vec<(Lane, Pending)>,
}

impl Expander {
    /// How many lanes may be open at once; a lane is a subagent, and honest runs have a few.
    const MAX_LANES: usize = 4096;

    /// How many bytes their ids and names may take: a kilobyte for each of them.
    const MAX_SIZE: usize = 4 << 20;

    /// Lets an explicit event pass, after ending what it ends.
    pub(crate) fn event(&mut self, event: Event, out: &mut Vec<Event>) {
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
    pub(crate) fn chunk(&mut self, chunk: Chunk, out: &mut Vec<Event>) -> Result<(), ReadError> {
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

pub(crate) enum Ends {
    OwnLane,
    All,
    Nothing,
}

/// Which pending streams an explicit event ends.
pub(crate) fn ends(body: &Body) -> Ends {
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

impl ChunkKind {
    pub(crate) fn noun(self) -> &'static str {
        match self {
            Self::Text => "text message",
            Self::Tool => "tool call",
            Self::Reasoning => "reasoning message",
        }
    }
}
