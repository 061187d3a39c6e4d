//! Names, keys and native shapes of AG-UI.

use crate::event::{Extra, Role, SubagentId};

/// The protocol version that this implementation declares.
pub(crate) const PROTOCOL_VERSION: &str = "1.0";

/// The metadata key under which agentwire stores values that AG-UI has no member for.
pub(crate) const CARRIER: &str = "agentwire";

/// The name prefix of CUSTOM events that carry an AG-UI 1.0 event through a peer of AG-UI 0.x.
pub(crate) const WRAPPED_PREFIX: &str = "agui.";

/// The name of the CUSTOM event that carries a finish reason.
pub(crate) const FINISH_REASON: &str = "agentwire.finish_reason";

/// The name of the CUSTOM event by which LangGraph adapters reported an interrupt to 0.x user interfaces.
pub(crate) const LEGACY_INTERRUPT: &str = "on_interrupt";

/// The largest integer of AG-UI: the largest one that a double represents exactly.
pub(crate) const MAX_INTEGER: i64 = 9_007_199_254_740_991;

/// A TEXT_MESSAGE_CHUNK, TOOL_CALL_CHUNK or REASONING_MESSAGE_CHUNK.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct EventChunk {
    pub(crate) kind: ChunkKind,
    /// `messageId` or `toolCallId`.
    pub(crate) id: Option<Box<str>>,
    pub(crate) role: Option<Role>,
    /// `name` or `toolCallName`.
    pub(crate) name: Option<Box<str>>,
    pub(crate) parent: Option<Box<str>>,
    pub(crate) delta: Option<Box<str>>,
    pub(crate) subagent: Option<SubagentId>,
    pub(crate) timestamp: Option<i64>,
    pub(crate) extra: Option<Box<Extra>>,
}

/// The three chunk types.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum ChunkKind {
    Text,
    Tool,
    Reasoning,
}

impl EventChunk {
    pub(crate) fn new(kind: ChunkKind) -> Self {
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
    pub(crate) fn event_type(self) -> &'static str {
        match self {
            Self::Text => "TEXT_MESSAGE_CHUNK",
            Self::Tool => "TOOL_CALL_CHUNK",
            Self::Reasoning => "REASONING_MESSAGE_CHUNK",
        }
    }
}

/// The event types: name, field number in the protobuf `oneof` of `Event`, value of the `EventType` enum.
pub(crate) const EVENTS: &[(&str, u32, u64)] = &[
    ("TEXT_MESSAGE_START", 1, 0),
    ("TEXT_MESSAGE_CONTENT", 2, 1),
    ("TEXT_MESSAGE_END", 3, 2),
    ("TOOL_CALL_START", 4, 3),
    ("TOOL_CALL_ARGS", 5, 4),
    ("TOOL_CALL_END", 6, 5),
    ("STATE_SNAPSHOT", 7, 6),
    ("STATE_DELTA", 8, 7),
    ("MESSAGES_SNAPSHOT", 9, 8),
    ("RAW", 10, 9),
    ("CUSTOM", 11, 10),
    ("RUN_STARTED", 12, 11),
    ("RUN_FINISHED", 13, 12),
    ("RUN_ERROR", 14, 13),
    ("STEP_STARTED", 15, 14),
    ("STEP_FINISHED", 16, 15),
    ("TEXT_MESSAGE_CHUNK", 17, 19),
    ("TOOL_CALL_CHUNK", 18, 20),
    ("SUBAGENT_STARTED", 19, 16),
    ("SUBAGENT_FINISHED", 20, 17),
    ("SUBAGENT_ERROR", 21, 18),
    ("TOOL_CALL_RESULT", 22, 21),
    ("ACTIVITY_SNAPSHOT", 23, 22),
    ("ACTIVITY_DELTA", 24, 23),
    ("REASONING_START", 25, 24),
    ("REASONING_MESSAGE_START", 26, 25),
    ("REASONING_MESSAGE_CONTENT", 27, 26),
    ("REASONING_MESSAGE_END", 28, 27),
    ("REASONING_MESSAGE_CHUNK", 29, 28),
    ("REASONING_END", 30, 29),
    ("REASONING_ENCRYPTED_VALUE", 31, 30),
];
