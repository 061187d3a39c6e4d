//! The canonical request: what a user interface asks of an agent.

use super::{InterruptId, Message, RunId, ThreadId};
use crate::json::{Json, Object};

/// A request to run an agent.
#[derive(Clone, Debug, PartialEq)]
pub struct RunInput {
    /// The conversation.
    pub thread: ThreadId,
    /// The run that shall answer.
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
    /// What the agent should know beside the conversation.
    pub context: Vec<Context>,
    /// Passed through untouched; never `null`.
    pub forwarded: Option<Json>,
    /// Answers to interrupts of an earlier run; `Some(vec![])` was said, `None` was not.
    pub resume: Option<Vec<ResumeEntry>>,
    /// Properties of the native request that the model has no place for.
    pub unknown: Option<Object>,
}

/// A tool that the user interface offers.
#[derive(Clone, Debug, PartialEq)]
pub struct Tool {
    /// Its name.
    pub name: Box<str>,
    /// What it does, for the model.
    pub description: Box<str>,
    /// JSON Schema of its arguments.
    pub parameters: Option<Json>,
    /// Open key/value data.
    pub metadata: Option<Object>,
}

/// A piece of ambient information.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Context {
    /// What it is.
    pub description: Box<str>,
    /// The information.
    pub value: Box<str>,
}

/// An answer to one interrupt.
#[derive(Clone, Debug, PartialEq)]
pub struct ResumeEntry {
    /// The interrupt.
    pub interrupt: InterruptId,
    /// Answered or abandoned.
    pub status: ResumeStatus,
    /// The answer; never `null`.
    pub payload: Option<Json>,
    /// Open key/value data.
    pub metadata: Option<Object>,
}

/// Whether an interrupt was answered or abandoned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say it all")]
pub enum ResumeStatus {
    Resolved,
    Cancelled,
}

impl RunInput {
    /// A request with nothing but its ids.
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
