//! Chunk shorthands to explicit events, by the rules of the official client.
//!
//! A chunk without an id continues the open chunk stream of its owner. The main agent and each subagent own at
//! most one open stream.

use super::super::wire::{ChunkKind, EventChunk};
use crate::{
    event::{Body, Event, Extra, MessageId, Role, SubagentId, ToolCallId},
    json::{ReadError, ReadResult},
};

/// The message or call that an owner is assembling from chunks.
#[derive(Clone, Debug)]
struct ChunkStream {
    kind: ChunkKind,
    id: Box<str>,
    role: Option<Role>,
    name: Option<Box<str>>,
    parent: Option<Box<str>>,
}

impl ChunkStream {
    /// The size of its strings in bytes, owner included.
    fn size(&self, owner: &ChunkOwner) -> usize {
        let length = |text: &Option<Box<str>>| text.as_deref().map_or(0, str::len);
        owner.as_deref().map_or(0, str::len) + self.id.len() + length(&self.name) + length(&self.parent)
    }
}

/// The main agent (`None`) or a subagent.
pub(crate) type ChunkOwner = Option<SubagentId>;

/// Turns chunks into explicit events.
#[derive(Debug, Default)]
pub(crate) struct ChunkExpander {
    /// In the order in which they were opened.
    open: Vec<(ChunkOwner, ChunkStream)>,
}

impl ChunkExpander {
    /// Limit of open streams. Each subagent has at most one, and ordinary runs have a few subagents.
    const MAX_OPEN: usize = 4096;

    /// Limit of the bytes in their ids and names: one KiB per stream.
    const MAX_SIZE: usize = 4 << 20;

    /// Emits an explicit event, after the ends of the streams that it ends.
    pub(crate) fn event(&mut self, event: Event, out: &mut Vec<Event>) {
        if !self.open.is_empty() {
            match ended_streams(&event.body) {
                EndedStreams::Own => self.close(&event.subagent, out),
                EndedStreams::All => {
                    for (owner, stream) in std::mem::take(&mut self.open) {
                        out.push(end_event(&stream, owner));
                    }
                }
                EndedStreams::None => {}
            }
        }
        out.push(event);
    }

    /// Expands a chunk.
    pub(crate) fn chunk(&mut self, chunk: EventChunk, out: &mut Vec<Event>) -> ReadResult {
        let owner = self.owner_of(&chunk)?;
        let open = self.open.iter().find(|(other, _)| *other == owner).map(|(_, stream)| stream);
        let continued =
            open.filter(|open| open.kind == chunk.kind && chunk.id.as_ref().is_none_or(|id| *id == open.id));
        let is_first;
        let stream = match continued {
            Some(open) => {
                check_consistent(open, &chunk)?;
                is_first = false;
                open.clone()
            }
            None => {
                let stream = open_stream(&chunk)?;
                self.close(&owner, out);
                let size: usize = self.open.iter().map(|(owner, stream)| stream.size(owner)).sum();
                if self.open.len() >= Self::MAX_OPEN || size > Self::MAX_SIZE {
                    return Err(ReadError::new("", "too many chunk streams are open at once"));
                }
                let extra = chunk
                    .extra
                    .as_ref()
                    .and_then(|extra| extra.metadata.clone())
                    .map(|metadata| Box::new(Extra { metadata: Some(metadata), ..Extra::default() }));
                out.push(Event {
                    body: start_body(&stream),
                    subagent: chunk.subagent.clone(),
                    timestamp: chunk.timestamp,
                    extra,
                });
                self.open.push((owner.clone(), stream.clone()));
                is_first = true;
                stream
            }
        };
        // A continuation with nothing but metadata or unknown members still needs an event to carry them.
        let extra = chunk.extra.as_deref();
        let carries_raw = extra.is_some_and(|extra| extra.raw.is_some() || extra.unknown.is_some());
        if chunk.delta.is_some() || carries_raw || (!is_first && chunk.extra.is_some()) {
            let delta = chunk.delta.unwrap_or_default();
            out.push(Event {
                body: content_body(&stream, delta),
                subagent: chunk.subagent.or(owner),
                timestamp: chunk.timestamp,
                extra: chunk.extra,
            });
        }
        Ok(())
    }

    fn close(&mut self, owner: &ChunkOwner, out: &mut Vec<Event>) {
        if let Some(at) = self.open.iter().position(|(other, _)| other == owner) {
            let (owner, stream) = self.open.remove(at);
            out.push(end_event(&stream, owner));
        }
    }

    fn owner_of(&self, chunk: &EventChunk) -> ReadResult<ChunkOwner> {
        let tag = &chunk.subagent;
        if let Some(id) = &chunk.id {
            let holder = self.open.iter().find(|(_, open)| open.kind == chunk.kind && open.id == *id);
            return match holder {
                Some((owner, _)) if tag.is_some() && tag != owner => Err(ReadError::new(
                    "/subagentRunId",
                    format!("does not match the owner of the open {} `{id}`", chunk.kind.noun()),
                )),
                Some((owner, _)) => Ok(owner.clone()),
                None => Ok(tag.clone()),
            };
        }
        if tag.is_some() {
            return Ok(tag.clone());
        }
        let mut candidates = self.open.iter().filter(|(_, open)| open.kind == chunk.kind);
        if candidates.clone().any(|(owner, _)| owner.is_none()) {
            return Ok(None);
        }
        match (candidates.next(), candidates.next()) {
            (Some((owner, _)), None) => Ok(owner.clone()),
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

/// The chunk streams that an explicit event ends.
pub(crate) enum EndedStreams {
    /// The stream of the event's owner.
    Own,
    All,
    None,
}

/// The chunk streams that an explicit event with `body` ends.
pub(crate) fn ended_streams(body: &Body) -> EndedStreams {
    match body {
        Body::RunStarted(_) | Body::RunFinished(_) | Body::RunError(_) | Body::MessagesSnapshot { .. } => {
            EndedStreams::All
        }
        Body::Raw { .. }
        | Body::ActivitySnapshot { .. }
        | Body::ActivityDelta { .. }
        | Body::Citation(_)
        | Body::File(_)
        | Body::Block(_)
        | Body::CollaborationStart { .. }
        | Body::CollaborationTask { .. }
        | Body::CollaborationEnd { .. }
        | Body::ReasoningEncrypted { .. }
        | Body::SubagentStarted(_) => EndedStreams::None,
        _ => EndedStreams::Own,
    }
}

/// The stream that a first chunk opens.
fn open_stream(chunk: &EventChunk) -> ReadResult<ChunkStream> {
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
    Ok(ChunkStream { kind, id, role, name, parent: chunk.parent.clone() })
}

/// A continuation may repeat the members of the first chunk, but not contradict them.
fn check_consistent(open: &ChunkStream, chunk: &EventChunk) -> ReadResult {
    let contradicts =
        |given: &Option<Box<str>>, opened: &Option<Box<str>>| given.is_some() && given != opened;
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

fn start_body(stream: &ChunkStream) -> Body {
    match stream.kind {
        ChunkKind::Text => Body::TextStart {
            message: MessageId::from(&*stream.id),
            role: stream.role,
            name: stream.name.clone(),
        },
        ChunkKind::Tool => Body::ToolStart {
            call: ToolCallId::from(&*stream.id),
            name: stream.name.clone().unwrap_or_default(),
            parent: stream.parent.as_deref().map(MessageId::from),
        },
        ChunkKind::Reasoning => Body::ReasoningMessageStart { message: MessageId::from(&*stream.id) },
    }
}

fn content_body(stream: &ChunkStream, delta: Box<str>) -> Body {
    match stream.kind {
        ChunkKind::Text => Body::TextDelta { message: MessageId::from(&*stream.id), delta },
        ChunkKind::Tool => Body::ToolArgs { call: ToolCallId::from(&*stream.id), delta },
        ChunkKind::Reasoning => Body::ReasoningDelta { message: MessageId::from(&*stream.id), delta },
    }
}

fn end_event(stream: &ChunkStream, owner: ChunkOwner) -> Event {
    let body = match stream.kind {
        ChunkKind::Text => Body::TextEnd { message: MessageId::from(&*stream.id) },
        ChunkKind::Tool => Body::ToolEnd { call: ToolCallId::from(&*stream.id) },
        ChunkKind::Reasoning => Body::ReasoningMessageEnd { message: MessageId::from(&*stream.id) },
    };
    Event::new(body).by(owner)
}

impl ChunkKind {
    fn noun(self) -> &'static str {
        match self {
            Self::Text => "text message",
            Self::Tool => "tool call",
            Self::Reasoning => "reasoning message",
        }
    }
}
