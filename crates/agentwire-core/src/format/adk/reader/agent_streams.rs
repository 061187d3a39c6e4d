//! Agents that stream at the same time, kept apart so that their turns do not mix.

use super::{failure::AdkFailure, is_equal, model_turn::ModelTurn, steps::EventOrigin};
use crate::event::{Message, ToolCallId};

/// The streams of all agents.
#[derive(Debug, Default)]
pub(super) struct AgentStreams {
    pub(super) all: Vec<AgentStream>,
    /// The stream of the last event, which is nearly always the stream of the next one too.
    last: usize,
}

/// The events of one agent in one invocation.
#[derive(Debug)]
pub(super) struct AgentStream {
    invocation: Box<str>,
    branch: Box<str>,
    pub(super) author: Box<str>,
    /// The workflow node: one agent may run in several nodes at the same time, on one branch.
    path: Box<str>,
    pub(super) turn: Option<Box<ModelTurn>>,
    /// Executed code without a result so far; the result may arrive in a later event.
    pub(super) pending_code: Option<ToolCallId>,
    /// A failure that only a partial event reported.
    pub(super) failure: Option<AdkFailure>,
}

impl AgentStreams {
    /// Maximum number of concurrent streams; above it, the oldest is closed early.
    const LIMIT: usize = 128;

    /// The index of the event's stream, and the stream that was evicted for it, if any.
    pub(super) fn find(&mut self, invocation: &str, origin: EventOrigin<'_>) -> (usize, Option<AgentStream>) {
        let matches = |stream: &AgentStream| stream.is_at(origin) && *stream.invocation == *invocation;
        let mut evicted = None;
        if !self.all.get(self.last).is_some_and(matches) {
            self.last = self.all.iter().position(matches).unwrap_or_else(|| {
                if self.all.len() >= Self::LIMIT {
                    let idle = self.all.iter().position(|stream| stream.turn.is_none());
                    evicted = Some(self.all.remove(idle.unwrap_or(0)));
                }
                self.all.push(AgentStream {
                    invocation: invocation.into(),
                    branch: origin.branch.into(),
                    author: origin.author.into(),
                    path: origin.path.into(),
                    turn: None,
                    pending_code: None,
                    failure: None,
                });
                self.all.len() - 1
            });
        }
        (self.last, evicted)
    }

    /// The unfinished messages of all streams but one; `None` if a turn is too long to be held completely.
    pub(super) fn unfinished(&self, except: usize) -> Option<Vec<Message>> {
        let others = self.all.iter().enumerate().filter(|(index, _)| *index != except);
        let mut messages = Vec::new();
        for turn in others.filter_map(|(_, stream)| stream.turn.as_ref()) {
            messages.extend(turn.unfinished()?);
        }
        Some(messages)
    }

    /// True if a turn from this origin is still streaming.
    pub(super) fn is_busy(&self, origin: EventOrigin<'_>) -> bool {
        self.all.iter().any(|stream| stream.turn.is_some() && stream.is_at(origin))
    }
}

impl AgentStream {
    fn is_at(&self, origin: EventOrigin<'_>) -> bool {
        is_equal(&self.author, origin.author)
            && is_equal(&self.branch, origin.branch)
            && is_equal(&self.path, origin.path)
    }
}
