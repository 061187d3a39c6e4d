//! AG-UI's own words.

use crate::event::{Event, Extra, Role, SubagentId};

/// The version that this implementation speaks and declares.
pub(super) const PROTOCOL_VERSION: &str = "1.0";

/// The member of an event's metadata in which agentwire keeps what AG-UI has no place for.
pub(super) const CARRIER: &str = "agentwire";

/// CUSTOM events with this prefix carry an AG-UI 1.0 event through a peer of AG-UI 0.x.
pub(in crate::format) const WRAPPED: &str = "agui.";

/// The CUSTOM event that carries a finish reason.
pub(in crate::format) const FINISH_REASON: &str = "agentwire.finish_reason";

/// The CUSTOM event by which LangGraph adapters told old user interfaces about an interrupt.
pub(super) const LEGACY_INTERRUPT: &str = "on_interrupt";

/// The largest integer that AG-UI carries: what a double holds exactly.
pub(in crate::format) const MAX_INTEGER: i64 = 9_007_199_254_740_991;

/// What one native frame holds.
#[derive(Debug)]
pub(super) enum Native {
    /// An event that has a canonical counterpart.
    Event(Event),
    /// A shorthand that must be expanded.
    Chunk(Box<Chunk>),
    /// A retired event without ids; the reader keeps those.
    Thinking(Thinking, Event),
    /// A short name that stands for several events.
    Several(Vec<Event>),
    /// An event type that nobody knows; counted.
    Unknown,
}

/// The retired THINKING_* events.
#[derive(Clone, Copy, Debug)]
pub(super) enum Thinking {
    Start,
    TextStart,
    TextContent,
    TextEnd,
    End,
}

/// A TEXT_MESSAGE_CHUNK, TOOL_CALL_CHUNK or REASONING_MESSAGE_CHUNK.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Chunk {
    pub(super) kind: ChunkKind,
    /// `messageId` or `toolCallId`.
    pub(super) id: Option<Box<str>>,
    pub(super) role: Option<Role>,
    /// `name` or `toolCallName`.
    pub(super) name: Option<Box<str>>,
    pub(super) parent: Option<Box<str>>,
    pub(super) delta: Option<Box<str>>,
    pub(super) subagent: Option<SubagentId>,
    pub(super) timestamp: Option<i64>,
    pub(super) extra: Option<Box<Extra>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum ChunkKind {
    Text,
    Tool,
    Reasoning,
}

impl Chunk {
    pub(super) fn new(kind: ChunkKind) -> Self {
        Self {
            kind,
            id: None,
            role: None,
            name: None,
            parent: None,
            delta: None,
            subagent: None,
            timestamp: None,
            extra: None,
        }
    }
}

impl ChunkKind {
    pub(super) fn event_type(self) -> &'static str {
        match self {
            Self::Text => "TEXT_MESSAGE_CHUNK",
            Self::Tool => "TOOL_CALL_CHUNK",
            Self::Reasoning => "REASONING_MESSAGE_CHUNK",
        }
    }

    pub(super) fn noun(self) -> &'static str {
        match self {
            Self::Text => "text message",
            Self::Tool => "tool call",
            Self::Reasoning => "reasoning message",
        }
    }
}
