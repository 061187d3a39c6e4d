//! The canonical model: what every reader produces and every writer understands.
//!
//! It is AG-UI 1.0's meaning, closed under what the other formats can say. Chunk shorthands never occur
//! here: readers expand them. What AG-UI has no event for ([`Body::Source`], [`Body::File`],
//! [`Body::Block`], the collaboration events, [`Body::FinishReason`]) has a typed variant of its own; each
//! writer decides how to express it, and the reader of the same format restores it.

mod answer;
mod content;
mod id;
mod input;
mod message;
mod run;

pub use answer::{GivenAnswer, GivenResult};
pub use content::{Content, ContentPart, MediaKind, PartSource};
pub use id::{Interner, InterruptId, MessageId, RunId, SubagentId, ThreadId, ToolCallId};
pub use input::{Context, ResumeEntry, ResumeStatus, RunInput, Tool};
pub use message::{Message, MessageBody, Role, ToolCall};
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
    /// What happened.
    pub body: Body,
    /// Which subagent invocation produced it; absent means the main agent. The subagent lifecycle events
    /// name their subagent here too.
    pub subagent: Option<SubagentId>,
    /// Milliseconds since the Unix epoch, as the source or the gateway gave it.
    pub timestamp: Option<i64>,
    /// What few events carry; boxed so that the others stay small.
    pub extra: Option<Box<Extra>>,
}

/// The rarely used companions of an event.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Extra {
    /// Open key/value data; merges into the message, tool call or activity that the event builds.
    pub metadata: Option<Object>,
    /// The native event this was translated from.
    pub raw: Option<Json>,
    /// Properties of the native event that the canonical model has no place for. They build nothing; a
    /// writer whose format has metadata keeps them there.
    pub unknown: Option<Object>,
}

/// The kinds of canonical events.
///
/// The grammar that orders them is in [`crate::order`].
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Body {
    /// A run begins.
    RunStarted(Box<RunStarted>),
    /// A run ends without failure.
    RunFinished(Box<RunFinished>),
    /// A run fails. Nothing of the run follows.
    RunError(Box<RunError>),
    /// A named step begins; the name is its identity within its owner.
    StepStarted {
        /// The step's name.
        name: Box<str>,
    },
    /// A named step ends.
    StepFinished {
        /// The step's name.
        name: Box<str>,
    },

    /// A text message opens (or opens again: content then appends).
    TextStart {
        /// The message.
        message: MessageId,
        /// Who speaks; absent means the assistant. Never [`Role::Tool`], `Activity` or `Reasoning`.
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
    /// What a tool returned.
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
    /// Restates the conversation.
    MessagesSnapshot {
        /// All messages, oldest first.
        messages: Vec<Message>,
    },

    /// Creates or replaces an activity message.
    ActivitySnapshot {
        /// The activity message.
        message: MessageId,
        /// What kind of activity.
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
        /// What kind of activity.
        kind: Box<str>,
        /// RFC 6902 operations on the content.
        patch: Patch,
    },

    /// A span of reasoning opens. It builds nothing; messages inside it do.
    ReasoningStart {
        /// The span; a name space of its own.
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
    /// An opaque artefact of the provider that must come back unchanged.
    ReasoningEncrypted {
        /// What it belongs to.
        entity: EncryptedEntity,
        /// The artefact.
        value: Box<str>,
    },

    /// A subagent begins; [`Event::subagent`] names it.
    SubagentStarted(Box<SubagentStarted>),
    /// A subagent ends.
    SubagentFinished {
        /// What it returned; never `null`.
        result: Option<Json>,
        /// Absent means success.
        outcome: Option<SubagentOutcome>,
    },
    /// A subagent fails. The run goes on.
    SubagentError {
        /// What went wrong.
        message: Box<str>,
        /// A stable code.
        code: Option<Box<str>>,
    },

    /// A native event that nobody translated.
    Raw {
        /// The event.
        event: Json,
        /// Where it came from.
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
    Source(Box<Source>),
    /// A file or media part made by the assistant.
    File(Box<File>),
    /// A piece of structured output for a user interface to render (HAI's `output`).
    Block(Box<Block>),
    /// One agent hands work to another (HAI's agent collaboration).
    CollaborationStart {
        /// This hand-over; unique in the run.
        id: MessageId,
        /// The message id that the source used for it (sources repeat them).
        message: Option<MessageId>,
        /// Who hands over.
        from: Box<str>,
        /// Who takes over.
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
    /// Why a model stopped, in the source's own word.
    FinishReason {
        /// The message it ended, where known.
        message: Option<MessageId>,
        /// The reason.
        reason: Box<str>,
    },
}

/// What a [`Body::ReasoningEncrypted`] value belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EncryptedEntity {
    /// A message of any kind.
    Message(MessageId),
    /// A tool call.
    ToolCall(ToolCallId),
}

/// What a tool returned.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolResult {
    /// The tool message that this result creates.
    pub message: MessageId,
    /// The call it answers.
    pub call: ToolCallId,
    /// The answer.
    pub content: Content,
    /// Set when the tool failed.
    pub error: Option<Box<str>>,
    /// Whether the source spelt out `role: "tool"`; means nothing, but keeps bytes equal.
    pub explicit_role: bool,
}

/// A source or citation.
#[derive(Clone, Debug, PartialEq)]
pub struct Source {
    /// Unique among the messages of the thread.
    pub id: MessageId,
    /// The message it supports.
    pub message: Option<MessageId>,
    /// Where to find it.
    pub url: Option<Box<str>>,
    /// What to call it.
    pub title: Option<Box<str>>,
    /// The media type of a document.
    pub media_type: Option<Box<str>>,
    /// The file name of a document.
    pub filename: Option<Box<str>>,
    /// Everything else the provider said (spans, snippets, scores).
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
    /// Where its bytes are.
    pub source: PartSource,
    /// What to call it.
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
    /// Where to place it.
    pub layout: Option<Json>,
    /// Outputs with the same block id, one after the other, are one block.
    pub block_id: Option<Box<str>>,
    /// How to draw it.
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
    /// An event of the main agent with nothing but its body.
    #[must_use]
    pub fn new(body: Body) -> Self {
        Self { body, subagent: None, timestamp: None, extra: None }
    }

    /// The same event, attributed.
    #[must_use]
    pub fn by(mut self, subagent: Option<SubagentId>) -> Self {
        self.subagent = subagent;
        self
    }

    /// The same event, stamped.
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

    /// The native event this was translated from.
    #[must_use]
    pub fn raw(&self) -> Option<&Json> {
        self.extra.as_ref()?.raw.as_ref()
    }

    /// Native properties that have no place in the model.
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
            Self::Source(_) => "SOURCE",
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

    /// The hot events must stay small: a run's log holds thousands of them.
    #[test]
    fn an_event_fits_in_two_cache_lines() {
        assert!(size_of::<Event>() <= 128, "{}", size_of::<Event>());
    }
}
