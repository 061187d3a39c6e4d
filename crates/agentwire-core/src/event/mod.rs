//! Canonical events, messages and requests: the model between all readers and writers.
//!
//! Its meaning is that of AG-UI 1.0, extended by the events of other formats that AG-UI lacks: [`Body::Citation`],
//! [`Body::File`], [`Body::Block`], the collaboration events and [`Body::FinishReason`]. Each writer decides how to
//! express those, and the reader of the same format restores them. Chunk shorthands do not occur: readers expand them.

mod answer;
mod content;
mod delta;
mod id;
mod input;
mod message;
mod run;

pub use answer::{GivenAnswer, GivenResult};
pub use content::{Content, ContentPart, MediaKind, PartSource};
pub(crate) use delta::DeltaKey;
pub use id::{Interner, InterruptId, MessageId, RunId, SubagentId, ThreadId, ToolCallId};
pub use input::{Context, ResumeEntry, ResumeStatus, RunInput, Tool};
pub use message::{Message, MessageBody, MessageData, Role, ToolCall};
pub use run::{
    Interrupt, Outcome, RunError, RunFinished, RunStarted, StreamEnd, SubagentOutcome, SubagentStarted, Usage,
};

use crate::{
    json::{Json, Object},
    patch::Patch,
};

/// One canonical event.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// The kind of event and its data.
    pub body: Body,
    /// The subagent invocation that produced it; absent means the main agent. The subagent lifecycle events name their
    /// subagent here too.
    pub subagent: Option<SubagentId>,
    /// Milliseconds since the Unix epoch, set by the source or the gateway.
    pub timestamp: Option<i64>,
    /// Rarely used data; boxed so that other events stay small.
    pub extra: Option<Box<Extra>>,
}

/// The rarely used data of an event.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Extra {
    /// Open key/value data; merges into the message, tool call or activity that the event builds.
    pub metadata: Option<Object>,
    /// The native event that this was decoded from.
    pub raw: Option<Json>,
    /// Properties of the native event that the canonical model lacks. They do not affect messages; a writer whose
    /// format has metadata keeps them there.
    pub unknown: Option<Object>,
}

/// The kinds of canonical events.
///
/// The rules for their order are in [`crate::order`].
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Body {
    /// A run starts.
    RunStarted(Box<RunStarted>),
    /// A run ends without failure.
    RunFinished(Box<RunFinished>),
    /// A run fails. Nothing of the run follows.
    RunError(Box<RunError>),
    /// A named step starts; the name identifies it within its owner.
    StepStarted {
        /// The step's name.
        name: Box<str>,
    },
    /// A named step ends.
    StepFinished {
        /// The step's name.
        name: Box<str>,
    },

    /// A text message opens, or reopens: further text is then appended.
    TextStart {
        /// The message.
        message: MessageId,
        /// The role of the speaker; absent means the assistant. Never [`Role::Tool`], `Activity` or `Reasoning`.
        role: Option<Role>,
        /// The speaker's name.
        name: Option<Box<str>>,
    },
    /// Text appends to an open message.
    TextDelta {
        /// The message.
        message: MessageId,
        /// The text.
        delta: Box<str>,
    },
    /// A text message closes.
    TextEnd {
        /// The message.
        message: MessageId,
    },

    /// A tool call opens.
    ToolStart {
        /// The call.
        call: ToolCallId,
        /// The tool.
        name: Box<str>,
        /// The assistant message that holds the call.
        parent: Option<MessageId>,
    },
    /// A piece of the argument text of an open call.
    ToolArgs {
        /// The call.
        call: ToolCallId,
        /// The piece.
        delta: Box<str>,
    },
    /// The arguments are complete. The tool may not have run yet.
    ToolEnd {
        /// The call.
        call: ToolCallId,
    },
    /// The outcome of a tool call.
    ToolResult(Box<ToolResult>),

    /// Replaces the state.
    StateSnapshot {
        /// The whole state; `null` is data.
        snapshot: Json,
    },
    /// Changes the state.
    StateDelta {
        /// RFC 6902 operations.
        patch: Patch,
    },
    /// Replaces the conversation.
    MessagesSnapshot {
        /// All messages, oldest first.
        messages: Vec<Message>,
    },

    /// Creates or replaces an activity message.
    ActivitySnapshot {
        /// The activity message.
        message: MessageId,
        /// The kind of activity.
        kind: Box<str>,
        /// The structured content.
        content: Object,
        /// `Some(false)` leaves an existing activity as it is; absent means true.
        replace: Option<bool>,
    },
    /// Changes an activity message.
    ActivityDelta {
        /// The activity message.
        message: MessageId,
        /// The kind of activity.
        kind: Box<str>,
        /// RFC 6902 operations on the content.
        patch: Patch,
    },

    /// A span of reasoning opens. It creates no message; the messages inside it do.
    ReasoningStart {
        /// The span; its ids are separate from those of messages.
        message: MessageId,
        /// A heading, where the source has one.
        title: Option<Box<str>>,
    },
    /// A reasoning message opens.
    ReasoningMessageStart {
        /// The message.
        message: MessageId,
    },
    /// Text appends to an open reasoning message.
    ReasoningDelta {
        /// The message.
        message: MessageId,
        /// The text.
        delta: Box<str>,
    },
    /// A reasoning message closes.
    ReasoningMessageEnd {
        /// The message.
        message: MessageId,
    },
    /// A span of reasoning closes.
    ReasoningEnd {
        /// The span.
        message: MessageId,
    },
    /// An opaque artefact that must be sent back to the provider unchanged.
    ReasoningEncrypted {
        /// The message or call that it belongs to.
        entity: EncryptedEntity,
        /// The artefact.
        value: Box<str>,
    },

    /// A subagent starts; [`Event::subagent`] names it.
    SubagentStarted(Box<SubagentStarted>),
    /// A subagent ends.
    SubagentFinished {
        /// The returned value; never `null`.
        result: Option<Json>,
        /// Absent means success.
        outcome: Option<SubagentOutcome>,
    },
    /// A subagent fails. The run continues.
    SubagentError {
        /// The explanation for a person.
        message: Box<str>,
        /// A stable code.
        code: Option<Box<str>>,
    },

    /// A native event without a canonical form.
    Raw {
        /// The event.
        event: Json,
        /// Its origin.
        source: Option<Box<str>>,
    },
    /// An application's own event.
    Custom {
        /// Its name.
        name: Box<str>,
        /// Its value; `null` is data.
        value: Json,
    },

    /// A source or citation that supports an answer.
    Citation(Box<Citation>),
    /// A file or media part made by the assistant.
    File(Box<File>),
    /// A piece of structured output for a user interface to render (HAI's `output`).
    Block(Box<Block>),
    /// One agent hands work to another (HAI's agent collaboration).
    CollaborationStart {
        /// The id of the hand-over; unique in the run.
        id: MessageId,
        /// The native message id, which sources repeat.
        message: Option<MessageId>,
        /// The agent that hands over.
        from: Box<str>,
        /// The agent that takes over.
        to: Box<str>,
    },
    /// A task of an open hand-over.
    CollaborationTask {
        /// The hand-over.
        id: MessageId,
        /// The task, `{id, name}` by convention.
        task: Json,
    },
    /// A hand-over is complete.
    CollaborationEnd {
        /// The hand-over.
        id: MessageId,
    },
    /// The reason why a model stopped, as the source spells it.
    FinishReason {
        /// The message it ended, where known.
        message: Option<MessageId>,
        /// The reason.
        reason: Box<str>,
    },
}

/// The owner of a [`Body::ReasoningEncrypted`] value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EncryptedEntity {
    /// A message of any kind.
    Message(MessageId),
    /// A tool call.
    ToolCall(ToolCallId),
}

/// The outcome of a tool call.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolResult {
    /// The id of the tool message that this result creates.
    pub message: MessageId,
    /// The tool call.
    pub call: ToolCallId,
    /// The returned content.
    pub content: Content,
    /// Set when the tool failed.
    pub error: Option<Box<str>>,
    /// Whether the source contains `role: "tool"`, which has no meaning but keeps the bytes equal.
    pub explicit_role: bool,
}

/// A citation: a document or page that a message refers to.
#[derive(Clone, Debug, PartialEq)]
pub struct Citation {
    /// Unique among the messages of the thread.
    pub id: MessageId,
    /// The message it supports.
    pub message: Option<MessageId>,
    /// Its address.
    pub url: Option<Box<str>>,
    /// Its display name.
    pub title: Option<Box<str>>,
    /// The media type of a document.
    pub media_type: Option<Box<str>>,
    /// The file name of a document.
    pub filename: Option<Box<str>>,
    /// Further data of the provider: spans, snippets, scores.
    pub detail: Option<Object>,
}

/// A file or media part made by the assistant.
#[derive(Clone, Debug, PartialEq)]
pub struct File {
    /// Unique among the messages of the thread.
    pub id: MessageId,
    /// The message it belongs to.
    pub message: Option<MessageId>,
    /// Image, audio, video or document.
    pub kind: MediaKind,
    /// The location of its bytes.
    pub source: PartSource,
    /// Its display name.
    pub name: Option<Box<str>>,
}

/// A piece of structured output for a user interface to render.
#[derive(Clone, Debug, PartialEq)]
pub struct Block {
    /// Unique among the messages of the thread.
    pub id: MessageId,
    /// The message it is part of.
    pub message: MessageId,
    /// The output object, its `type` included.
    pub output: Object,
    /// Its position in the page.
    pub layout: Option<Json>,
    /// Consecutive outputs with the same block id form one block.
    pub block_id: Option<Box<str>>,
    /// Its appearance.
    pub style: Option<Json>,
}

impl Block {
    /// The output's `type`, or the empty string.
    #[must_use]
    pub fn kind(&self) -> String {
        self.output.get_str("type").unwrap_or_default()
    }
}

impl Event {
    /// An event of the main agent with only a body.
    #[must_use]
    pub fn new(body: Body) -> Self {
        Self { body, subagent: None, timestamp: None, extra: None }
    }

    /// The same event with a subagent.
    #[must_use]
    pub fn by(mut self, subagent: Option<SubagentId>) -> Self {
        self.subagent = subagent;
        self
    }

    /// The same event with a timestamp.
    #[must_use]
    pub fn at(mut self, timestamp: Option<i64>) -> Self {
        self.timestamp = timestamp;
        self
    }

    /// The same event with metadata.
    #[must_use]
    pub fn with_metadata(mut self, metadata: Option<Object>) -> Self {
        if metadata.is_some() || self.extra.is_some() {
            self.extra.get_or_insert_default().metadata = metadata;
        }
        self
    }

    /// The event's metadata.
    #[must_use]
    pub fn metadata(&self) -> Option<&Object> {
        self.extra.as_ref()?.metadata.as_ref()
    }

    /// The native event that this was decoded from.
    #[must_use]
    pub fn raw(&self) -> Option<&Json> {
        self.extra.as_ref()?.raw.as_ref()
    }

    /// Native properties that the model lacks.
    #[must_use]
    pub fn unknown(&self) -> Option<&Object> {
        self.extra.as_ref()?.unknown.as_ref()
    }

    /// The name of this kind of event in reports: AG-UI's where AG-UI has one.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        self.body.kind()
    }

    /// Whether this event ends its run.
    #[must_use]
    pub fn is_terminal(&self) -> bool {
        matches!(self.body, Body::RunFinished(_) | Body::RunError(_))
    }
}

impl From<Body> for Event {
    fn from(body: Body) -> Self {
        Self::new(body)
    }
}

impl Body {
    /// Whether the event changes no message, state, interrupt or pending call when it is folded.
    #[must_use]
    pub fn builds_nothing(&self) -> bool {
        matches!(
            self,
            Self::RunError(_)
                | Self::StepStarted { .. }
                | Self::StepFinished { .. }
                | Self::ReasoningStart { .. }
                | Self::ReasoningEnd { .. }
                | Self::SubagentStarted(_)
                | Self::SubagentFinished { .. }
                | Self::SubagentError { .. }
                | Self::Raw { .. }
                | Self::Custom { .. }
                | Self::FinishReason { .. }
        )
    }

    /// The name of this kind of event in reports: AG-UI's where AG-UI has one.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::RunStarted(_) => "RUN_STARTED",
            Self::RunFinished(_) => "RUN_FINISHED",
            Self::RunError(_) => "RUN_ERROR",
            Self::StepStarted { .. } => "STEP_STARTED",
            Self::StepFinished { .. } => "STEP_FINISHED",
            Self::TextStart { .. } => "TEXT_MESSAGE_START",
            Self::TextDelta { .. } => "TEXT_MESSAGE_CONTENT",
            Self::TextEnd { .. } => "TEXT_MESSAGE_END",
            Self::ToolStart { .. } => "TOOL_CALL_START",
            Self::ToolArgs { .. } => "TOOL_CALL_ARGS",
            Self::ToolEnd { .. } => "TOOL_CALL_END",
            Self::ToolResult(_) => "TOOL_CALL_RESULT",
            Self::StateSnapshot { .. } => "STATE_SNAPSHOT",
            Self::StateDelta { .. } => "STATE_DELTA",
            Self::MessagesSnapshot { .. } => "MESSAGES_SNAPSHOT",
            Self::ActivitySnapshot { .. } => "ACTIVITY_SNAPSHOT",
            Self::ActivityDelta { .. } => "ACTIVITY_DELTA",
            Self::ReasoningStart { .. } => "REASONING_START",
            Self::ReasoningMessageStart { .. } => "REASONING_MESSAGE_START",
            Self::ReasoningDelta { .. } => "REASONING_MESSAGE_CONTENT",
            Self::ReasoningMessageEnd { .. } => "REASONING_MESSAGE_END",
            Self::ReasoningEnd { .. } => "REASONING_END",
            Self::ReasoningEncrypted { .. } => "REASONING_ENCRYPTED_VALUE",
            Self::SubagentStarted(_) => "SUBAGENT_STARTED",
            Self::SubagentFinished { .. } => "SUBAGENT_FINISHED",
            Self::SubagentError { .. } => "SUBAGENT_ERROR",
            Self::Raw { .. } => "RAW",
            Self::Custom { .. } => "CUSTOM",
            Self::Citation(_) => "SOURCE",
            Self::File(_) => "FILE",
            Self::Block(_) => "BLOCK",
            Self::CollaborationStart { .. } => "COLLABORATION_START",
            Self::CollaborationTask { .. } => "COLLABORATION_TASK",
            Self::CollaborationEnd { .. } => "COLLABORATION_END",
            Self::FinishReason { .. } => "FINISH_REASON",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A run has thousands of events in memory, so they must stay small.
    #[test]
    fn an_event_fits_in_two_cache_lines() {
        assert!(size_of::<Event>() <= 128, "{}", size_of::<Event>());
    }
}
