//! What a writer knows of the tool calls in the message that it builds.
//!
//! The SDK wants the arguments whole once they are complete, and refuses a result for a call that the message
//! does not hold, so both must be remembered.

use indexmap::IndexMap;

use super::part_metadata::About;
use crate::{
    event::{MessageId, ToolCallId, ToolResult},
    format::ai_sdk::reader::metadata,
    framing::DEFAULT_MAX_FRAME,
    json::{Json, Object},
};

/// The most calls that are remembered; what the order guard remembers. A result for a call that was forgotten
/// gets a tool part of its own.
const MAX_CALLS: usize = 16_384;

/// The most argument text that is collected for one call: what one frame of a source may hold.
const MAX_ARGUMENTS: usize = DEFAULT_MAX_FRAME;

/// The most text of results that one response keeps for calls that may begin after their result: what one frame of
/// a source may hold. A call whose result is beyond it stays without one.
const MAX_KEPT: usize = DEFAULT_MAX_FRAME;

/// One call.
#[derive(Debug, Default)]
pub(super) struct Call {
    pub(super) name: Box<str>,
    /// The message that holds it.
    pub(super) parent: Option<MessageId>,
    /// The argument text so far, while the call is open.
    pub(super) arguments: String,
    /// Arguments beyond the bound were not collected.
    pub(super) cut: bool,
    pub(super) open: bool,
    pub(super) answered: bool,
    /// The user interface knows the tool, so its part is `tool-NAME` and not `dynamic-tool`.
    pub(super) known_tool: bool,
    /// The call was made in an earlier response that this one continues.
    pub(super) earlier: bool,
    /// A provider runs it, so that nobody else is waited for.
    pub(super) remote: bool,
    /// An approval was asked for.
    pub(super) approval: bool,
    /// A person refused it.
    pub(super) denied: bool,
    pub(super) about: About,
    /// While the call is open, a result that came before its arguments were complete or before itself; later the
    /// result that was written last.
    pub(super) held: Option<Box<Answer>>,
    /// The client holds a call of this id already: one that was made up for a result, or one that begins again.
    pub(super) again: bool,
    /// The arguments of a call that takes the place of another.
    pub(super) restated: Option<Json>,
}

/// A result and what is known about it.
#[derive(Clone, Debug)]
pub(super) struct Answer {
    pub(super) result: ToolResult,
    pub(super) metadata: Option<Object>,
}

/// The calls of a message.
#[derive(Debug, Default)]
pub(super) struct Calls {
    calls: IndexMap<ToolCallId, Call>,
    open: usize,
    /// Calls of this response that have no result yet.
    unanswered: usize,
    /// How much text of results is kept.
    kept: usize,
}

impl Calls {
    pub(super) fn get(&self, id: &ToolCallId) -> Option<&Call> {
        self.calls.get(id)
    }

    pub(super) fn get_mut(&mut self, id: &ToolCallId) -> Option<&mut Call> {
        self.calls.get_mut(id)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&ToolCallId, &Call)> {
        self.calls.iter()
    }

    /// Whether the arguments of some call are still streaming.
    pub(super) fn any_open(&self) -> bool {
        self.open > 0
    }

    /// Whether some call of this response has no result yet.
    pub(super) fn any_unanswered(&self) -> bool {
        self.unanswered > 0
    }

    /// Remembers a call whose arguments are complete or will not come.
    pub(super) fn insert(&mut self, id: &ToolCallId, call: Call) {
        self.forget();
        self.unanswered += usize::from(call.waits());
        if let Some(old) = self.calls.insert(id.clone(), call) {
            self.open -= usize::from(old.open);
            self.unanswered -= usize::from(old.waits());
        }
    }

    /// A provider runs this call.
    pub(super) fn leave_to_provider(&mut self, id: &ToolCallId) {
        if let Some(call) = self.calls.get_mut(id) {
            self.unanswered -= usize::from(call.waits());
            call.remote = true;
        }
    }

    /// A result was written; says which call it answers.
    pub(super) fn answer(&mut self, id: &ToolCallId) -> Option<&mut Call> {
        let call = self.calls.get_mut(id)?;
        self.unanswered -= usize::from(call.waits());
        call.answered = true;
        Some(call)
    }

    /// Keeps a result that was written: a client that is told of the call after it forgets it.
    pub(super) fn keep(&mut self, answer: &Answer) {
        let Some(call) = self.calls.get_mut(&answer.result.call) else { return };
        self.kept -= call.held.take().map_or(0, |old| old.size());
        if self.kept + answer.size() <= MAX_KEPT {
            self.kept += answer.size();
            call.held = Some(Box::new(answer.clone()));
        }
    }

    /// A call opens. If it has a result already, that will be said again when the arguments are complete: a client
    /// takes a call that begins for one that waits, while for everybody else a call that has a result is over.
    pub(super) fn start(&mut self, id: &ToolCallId, mut call: Call) {
        if let Some(known) = self.calls.get_mut(id).filter(|known| known.answered) {
            call.held = known.held.take();
            self.kept -= call.held.as_deref().map_or(0, Answer::size);
            call.denied = known.denied;
            call.again = true;
        }
        self.insert(id, Call { open: true, ..call });
        self.open += 1;
    }

    /// Collects a piece of the arguments; says whether the call is open.
    pub(super) fn push(&mut self, id: &ToolCallId, delta: &str) -> bool {
        let Some(call) = self.calls.get_mut(id).filter(|call| call.open) else {
            return false;
        };
        if call.arguments.len() + delta.len() > MAX_ARGUMENTS {
            call.cut = true;
        } else {
            call.arguments.push_str(delta);
        }
        true
    }

    /// The arguments are complete: gives the call, whose text the caller may take.
    pub(super) fn end(&mut self, id: &ToolCallId) -> Option<&mut Call> {
        let call = self.calls.get_mut(id).filter(|call| call.open)?;
        call.open = false;
        self.open -= 1;
        Some(call)
    }

    /// Keeps the table bounded by letting go of the oldest half of it, except for open calls.
    fn forget(&mut self) {
        if self.calls.len() < MAX_CALLS {
            return;
        }
        let mut oldest = MAX_CALLS / 2;
        let (unanswered, kept) = (&mut self.unanswered, &mut self.kept);
        self.calls.retain(|_, call| {
            oldest = oldest.saturating_sub(1);
            let stays = call.open || oldest == 0;
            if !stays {
                *unanswered -= usize::from(call.waits());
                *kept -= call.held.as_deref().map_or(0, Answer::size);
            }
            stays
        });
    }
}

impl Answer {
    fn size(&self) -> usize {
        self.result.content.text().len()
    }
}

impl Call {
    /// What an AI SDK server said about it.
    pub(super) fn own(&self) -> Option<Object> {
        metadata::native(self.about.metadata.as_ref())
    }

    /// Whether a page may run it.
    pub(super) fn runs_in_page(&self) -> bool {
        self.known_tool && !self.remote
    }

    /// Whether its arguments are JSON: others may be text, and may be half of something.
    pub(super) fn is_readable(&self) -> bool {
        self.arguments.trim().is_empty() || Json::parse(&self.arguments).is_ok()
    }

    /// Whether this response owes the call a result.
    pub(super) fn waits(&self) -> bool {
        !self.answered && !self.earlier && !self.remote
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stays_bounded_and_keeps_what_is_open() {
        let mut calls = Calls::default();
        calls.start(&"open".into(), Call::default());
        for n in 0..3 * MAX_CALLS {
            calls.insert(&n.to_string().into(), Call::default());
        }
        assert!(calls.calls.len() <= MAX_CALLS);
        assert!(calls.push(&"open".into(), "x"));
        assert!(calls.get(&(3 * MAX_CALLS - 1).to_string().into()).is_some());
        assert!(calls.get(&"0".into()).is_none());
    }
}
