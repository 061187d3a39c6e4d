//! The request and the outcome of a run.

use agentwire_core::{
    event::{Context, Interrupt, Message, ResumeEntry, RunId, ToolCall, Usage},
    order::Rule,
};
use serde_json::Value;

use crate::{Tool, ids};

/// A request to run the agent.
#[derive(Clone, Debug, Default)]
pub struct Run {
    /// The id of the run; a new one if absent.
    pub run_id: Option<RunId>,
    /// Tools without a handler: their calls end the run as pending ones.
    pub tools: Vec<Tool>,
    /// Further information for the agent.
    pub context: Vec<Context>,
    /// Passed on to the agent unchanged.
    pub forwarded: Option<Value>,
    /// Answers to the interrupts of an earlier run.
    pub resume: Vec<ResumeEntry>,
    /// New messages, appended to the conversation before it is sent.
    pub messages: Vec<Message>,
}

impl Run {
    /// A run with one new message of the user.
    #[must_use]
    pub fn user(text: impl Into<String>) -> Self {
        let message = Message::user(ids::uuid(), text.into());
        Self { messages: vec![message], ..Self::default() }
    }

    /// The same run with answers to interrupts.
    #[must_use]
    pub fn resume(mut self, entries: impl IntoIterator<Item = ResumeEntry>) -> Self {
        self.resume.extend(entries);
        self
    }
}

/// The outcome of a run that did not fail.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// The `result` of RUN_FINISHED.
    pub result: Option<Value>,
    /// The messages that the conversation did not have before.
    pub new_messages: Vec<Message>,
    /// The open questions and tool calls.
    pub pending: Vec<Pending>,
    /// Token usage of all rounds.
    pub usage: Vec<Usage>,
    /// True if the server reported the run as cancelled.
    pub is_cancelled: bool,
    /// True if the client left the run before its end.
    pub is_aborted: bool,
    /// Counts of repairs and reconnects.
    pub report: Report,
}

/// Something that a run left open for a person or for the client.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Pending {
    /// A question to a person.
    Interrupt(Interrupt),
    /// A call of a tool of the client.
    Call(ToolCall),
}

/// Counts of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Report {
    /// Repairs of the guard, by rule.
    pub repairs: Vec<(Rule, u64)>,
    /// Events that were delivered.
    pub events: u64,
    /// Requests that started a run: one, and one for each round of results and answers.
    pub rounds: u32,
    /// The recoveries after broken connections, in order; the last 100.
    pub recoveries: Vec<Recovery>,
    /// Patches of state or activities that did not apply.
    pub skipped_patches: u64,
    /// Bytes that were not UTF-8.
    pub replaced_bytes: u64,
}

/// The completeness of a stream after a reconnect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recovery {
    /// All events were received, each once.
    Whole,
    /// The server replaced missed events by the conversation and the state.
    Snapshot,
    /// The server does not know the position: it sent the conversation, and events may be missing.
    Gap,
}

impl Recovery {
    /// The verdict of that name.
    pub(crate) fn parse(name: &str) -> Option<Self> {
        Some(match name {
            "whole" => Self::Whole,
            "snapshot" => Self::Snapshot,
            "gap" => Self::Gap,
            _ => return None,
        })
    }

    /// The name of the verdict.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Whole => "whole",
            Self::Snapshot => "snapshot",
            Self::Gap => "gap",
        }
    }
}
