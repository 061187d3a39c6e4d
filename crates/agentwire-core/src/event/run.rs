//! The start and end of runs and subagents.

use super::{InterruptId, MessageId, RunId, RunInput, SubagentId, ThreadId, ToolCallId};
use crate::json::{Json, Object};

/// The start of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct RunStarted {
    /// The conversation.
    pub thread: ThreadId,
    /// This run.
    pub run: RunId,
    /// The run that spawned this one as a run of its own.
    pub parent_run: Option<RunId>,
    /// The protocol version that the producer declared. A writer declares its own.
    pub protocol_version: Option<Box<str>>,
    /// An echo of the request.
    pub input: Option<Box<RunInput>>,
}

/// The end of a run that did not fail.
#[derive(Clone, Debug, PartialEq)]
pub struct RunFinished {
    /// The conversation.
    pub thread: ThreadId,
    /// This run.
    pub run: RunId,
    /// The returned value; never `null`.
    pub result: Option<Json>,
    /// The outcome; absent means success without a list of pending calls.
    pub outcome: Option<Outcome>,
    /// Token usage, one entry per provider and model.
    pub usage: Vec<Usage>,
}

/// The failure of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct RunError {
    /// The explanation for a person.
    pub message: Box<str>,
    /// A stable code for a program.
    pub code: Option<Box<str>>,
    /// Token usage until the failure.
    pub usage: Vec<Usage>,
}

/// The outcome of a run that did not fail.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Outcome {
    /// It completed.
    Success {
        /// Calls of this run without a result, in call order; empty means that the reader derives them.
        pending: Vec<ToolCallId>,
    },
    /// It waits for answers; at least one entry.
    Interrupt {
        /// The open interrupts.
        interrupts: Vec<Interrupt>,
    },
    /// It was cancelled.
    Cancelled,
}

/// A question that a run waits for.
#[derive(Clone, Debug, PartialEq)]
pub struct Interrupt {
    /// Unique in the run.
    pub id: InterruptId,
    /// An open vocabulary: `tool_call`, `input_required`, `confirmation`, or `<framework>:<name>`.
    pub reason: Box<str>,
    /// The question for a person.
    pub message: Option<Box<str>>,
    /// The tool call that waits for it.
    pub tool_call: Option<ToolCallId>,
    /// JSON Schema of the answer.
    pub response_schema: Option<Object>,
    /// ISO 8601 by convention.
    pub expires_at: Option<Box<str>>,
    /// Open key/value data, which may hold a payload.
    pub metadata: Option<Object>,
    /// The subagent that raised it.
    pub subagent: Option<SubagentId>,
}

/// The way in which a stream of events ended.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StreamEnd {
    /// The sender closed the stream normally.
    Closed,
    /// The connection broke, or the stream could not be decoded any further.
    Failed {
        /// A stable code.
        code: Box<str>,
        /// Explanation for a person.
        message: Box<str>,
    },
}

/// Token counts of one provider and model.
///
/// `input` and `output` are totals; the others are parts of them, `total` is their sum.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are sufficient")]
pub struct Usage {
    pub provider: Option<Box<str>>,
    pub model: Option<Box<str>>,
    pub input: Option<u64>,
    pub output: Option<u64>,
    pub total: Option<u64>,
    pub reasoning: Option<u64>,
    pub cached_input: Option<u64>,
    pub cache_write_input: Option<u64>,
}

/// The start of a subagent.
#[derive(Clone, Debug, PartialEq)]
pub struct SubagentStarted {
    /// Its display name.
    pub name: Box<str>,
    /// Its purpose.
    pub description: Option<Box<str>>,
    /// The subagent that called it.
    pub parent_subagent: Option<SubagentId>,
    /// The call that called it.
    pub parent_call: Option<ToolCallId>,
    /// The message that called it.
    pub parent_message: Option<MessageId>,
}

/// The outcome of a subagent that did not fail.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SubagentOutcome {
    /// It completed.
    Success,
    /// It waits; a later run may resume it.
    Suspended {
        /// The interrupts it raised itself.
        interrupts: Vec<InterruptId>,
    },
}

impl Interrupt {
    /// An interrupt with only an id and a reason.
    #[must_use]
    pub fn new(id: impl Into<InterruptId>, reason: impl Into<Box<str>>) -> Self {
        Self {
            id: id.into(),
            reason: reason.into(),
            message: None,
            tool_call: None,
            response_schema: None,
            expires_at: None,
            metadata: None,
            subagent: None,
        }
    }
}

impl RunStarted {
    /// The start of a run with only its ids.
    #[must_use]
    pub fn new(thread: impl Into<ThreadId>, run: impl Into<RunId>) -> Self {
        Self { thread: thread.into(), run: run.into(), parent_run: None, protocol_version: None, input: None }
    }
}

impl RunFinished {
    /// The end of a run with only its ids.
    #[must_use]
    pub fn new(thread: impl Into<ThreadId>, run: impl Into<RunId>) -> Self {
        Self { thread: thread.into(), run: run.into(), result: None, outcome: None, usage: Vec::new() }
    }
}

impl RunError {
    /// A failure with a message and a code.
    #[must_use]
    pub fn new(message: impl Into<Box<str>>, code: Option<&str>) -> Self {
        Self { message: message.into(), code: code.map(Into::into), usage: Vec::new() }
    }
}
