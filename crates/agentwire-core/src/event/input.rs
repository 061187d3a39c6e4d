//! The canonical request to run an agent.

use super::{InterruptId, Message, RunId, ThreadId};
use crate::json::{Json, Object};

/// A request to run an agent.
#[derive(Clone, Debug, PartialEq)]
pub struct RunInput {
    /// The conversation.
    pub thread: ThreadId,
    /// The requested run.
    pub run: RunId,
    /// The run that spawned this one.
    pub parent_run: Option<RunId>,
    /// The protocol version that the user interface declared.
    pub protocol_version: Option<Box<str>>,
    /// The state as the user interface holds it; absent means `{}`.
    pub state: Option<Json>,
    /// The conversation as the user interface holds it.
    pub messages: Vec<Message>,
    /// Tools that the user interface can run.
    pub tools: Vec<Tool>,
    /// Further information for the agent.
    pub context: Vec<Context>,
    /// Passed on unchanged; never `null`.
    pub forwarded: Option<Json>,
    /// Answers to interrupts of an earlier run; `Some(vec![])` and `None` differ on the wire.
    pub resume: Option<Vec<ResumeEntry>>,
    /// Properties of the native request that the model lacks.
    pub unknown: Option<Object>,
}

/// A tool that the user interface offers.
#[derive(Clone, Debug, PartialEq)]
pub struct Tool {
    /// Its name.
    pub name: Box<str>,
    /// Its description, for the model.
    pub description: Box<str>,
    /// JSON Schema of its arguments.
    pub parameters: Option<Json>,
    /// Open key/value data.
    pub metadata: Option<Object>,
}

/// A piece of ambient information.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Context {
    /// Its description.
    pub description: Box<str>,
    /// The information.
    pub value: Box<str>,
}

/// An answer to one interrupt.
#[derive(Clone, Debug, PartialEq)]
pub struct ResumeEntry {
    /// The interrupt.
    pub interrupt: InterruptId,
    /// Resolved or cancelled.
    pub status: ResumeStatus,
    /// The answer; never `null`.
    pub payload: Option<Json>,
    /// Open key/value data.
    pub metadata: Option<Object>,
}

/// Whether an interrupt was answered or cancelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are sufficient")]
pub enum ResumeStatus {
    Resolved,
    Cancelled,
}

impl RunInput {
    /// A request with only its ids.
    #[must_use]
    pub fn new(thread: impl Into<ThreadId>, run: impl Into<RunId>) -> Self {
        Self {
            thread: thread.into(),
            run: run.into(),
            parent_run: None,
            protocol_version: None,
            state: None,
            messages: Vec::new(),
            tools: Vec::new(),
            context: Vec::new(),
            forwarded: None,
            resume: None,
            unknown: None,
        }
    }
}
