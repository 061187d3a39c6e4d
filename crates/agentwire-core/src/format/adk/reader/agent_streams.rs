//! The agents that speak at the same time, kept apart so that their turns do not run into each other.

use super::{failure::AdkFailure, model_turn::ModelTurn, steps::EventOrigin};
use crate::event::{Message, ToolCallId};

/// The agents that speak, each in its own stream.
#[derive(Debug, Default)]
pub(super) struct AgentStreams {
    pub(super) all: Vec<AgentStream>,
    /// The last one, which is nearly always the next one too.
    last: usize,
}

#[derive(Debug)]
pub(super) struct AgentStream {
    invocation: Box<str>,
    branch: Box<str>,
    pub(super) author: Box<str>,
    /// The workflow node: one agent may run in several at the same time, on one branch.
    path: Box<str>,
    pub(super) turn: Option<Box<ModelTurn>>,
    /// Code without a result yet; the result may come in an event of its own.
    pub(super) code: Option<ToolCallId>,
    /// A failure that only a partial event named.
    pub(super) failure: Option<AdkFailure>,
}

impl AgentStreams {
    /// How many agents may speak at the same time before the first ones are cut short.
    const LIMIT: usize = 128;

    /// The stream of an event, and a stream that had to make room.
    pub(super) fn find(&mut self, invocation: &str, place: EventOrigin<'_>) -> (usize, Option<AgentStream>) {
        let fits = |stream: &AgentStream| {
            *stream.author == *place.author
                && *stream.branch == *place.branch
                && *stream.path == *place.path
                && *stream.invocation == *invocation
        };
        let mut evicted = None;
        if !self.all.get(self.last).is_some_and(fits) {
            self.last = self.all.iter().position(fits).unwrap_or_else(|| {
                if self.all.len() >= Self::LIMIT {
                    let idle = self.all.iter().position(|stream| stream.turn.is_none());
                    evicted = Some(self.all.remove(idle.unwrap_or(0)));
                }
                self.all.push(AgentStream {
                    invocation: invocation.into(),
                    branch: place.branch.into(),
                    author: place.author.into(),
                    path: place.path.into(),
                    turn: None,
                    code: None,
                    failure: None,
                });
                self.all.len() - 1
            });
        }
        (self.last, evicted)
    }

    /// What all streams but one are in the middle of saying; `None` if not all of it is known.
    pub(super) fn unfinished(&self, except: usize) -> Option<Vec<Message>> {
        let others = self.all.iter().enumerate().filter(|(index, _)| *index != except);
        let mut messages = Vec::new();
        for turn in others.filter_map(|(_, stream)| stream.turn.as_ref()) {
            messages.extend(turn.unfinished()?);
        }
        Some(messages)
    }

    /// Whether a turn is still streaming at a place.
    pub(super) fn is_busy(&self, place: EventOrigin<'_>) -> bool {
        self.all.iter().any(|stream| {
            stream.turn.is_some()
                && *stream.author == *place.author
                && *stream.branch == *place.branch
                && *stream.path == *place.path
        })
    }
}
