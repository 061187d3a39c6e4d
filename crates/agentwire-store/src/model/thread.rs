//! Threads, their state, lists of records, and feedback.

use agentwire_core::event::{RunId, ThreadId};

use super::{StateChange, Text};
use crate::clock::Time;

/// The form of the ids of a thread and of its runs on the agent's side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ThreadIds {
    /// As the client chose them.
    Raw,
    /// Derived from tenant, user and id, so that two users never share one.
    Scoped,
}

impl ThreadIds {
    /// The stored name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Raw => "raw",
            Self::Scoped => "scoped",
        }
    }

    /// The form with that name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        [Self::Raw, Self::Scoped].into_iter().find(|ids| ids.as_str() == name)
    }
}

/// A request to create a thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewThread {
    /// Its id.
    pub thread: ThreadId,
    /// The form of its ids on the agent's side.
    pub thread_ids: Option<ThreadIds>,
    /// Arbitrary metadata, as JSON.
    pub metadata: Option<Text>,
}

/// The record of a thread, without state and messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Thread {
    /// Its id, unique among its owner's threads.
    pub thread: ThreadId,
    /// Part of its id on the agent's server, if the user had a thread with this id at another agent when this one was
    /// created: agents may share a server. It never changes.
    pub upstream_scope: Option<Text>,
    /// The form of its ids on the agent's side; `None` for a thread that was created before this was recorded. It never
    /// changes.
    pub thread_ids: Option<ThreadIds>,
    /// Arbitrary metadata, as JSON.
    pub metadata: Option<Text>,
    /// Time of creation.
    pub created: Time,
    /// Time of the last start or end of a run, or of the last change of state, messages or metadata.
    pub updated: Time,
    /// The number of its state; 0 if it has none.
    pub state_seq: u64,
}

/// Result of creating a record that may exist.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Created<T> {
    /// The stored record.
    pub item: T,
    /// Whether this call created it.
    pub new: bool,
}

/// A change of a thread from outside a run; absent fields stay as they are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ThreadChange {
    /// Arbitrary metadata, as JSON.
    pub metadata: Option<TextChange>,
    /// The state.
    pub state: Option<StateChange>,
    /// The messages, as JSON.
    pub messages: Option<TextChange>,
}

/// A text of a thread in place of the one that the caller has read: a compare-and-set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TextChange {
    /// The text that the caller has read; `None` if there was none.
    pub expected: Option<Text>,
    /// The new text.
    pub body: Text,
}

impl ThreadChange {
    pub(crate) fn size(&self) -> usize {
        let state = self.state.as_ref().map_or(0, |state| state.body.len());
        let text = |change: &Option<TextChange>| change.as_ref().map_or(0, |change| change.body.len());
        text(&self.metadata) + text(&self.messages) + state
    }
}

/// The state of a thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    /// Number of times the state was set; 0 means never, and then there is no body.
    pub seq: u64,
    /// The state as JSON.
    pub body: Option<Text>,
}

/// Selects the threads that [`Store::threads`](crate::Store::threads) lists.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ThreadQuery {
    /// The token of the previous page.
    pub before: Option<PageToken>,
}

/// The position after a page. Opaque, and without meaning for another owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageToken(pub u64);

/// One page of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page<T> {
    /// The items.
    pub items: Vec<T>,
    /// The token for the next page, if there is one.
    pub next: Option<PageToken>,
}

/// Feedback of a user on a thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewFeedback {
    /// The thread.
    pub thread: ThreadId,
    /// The run that the feedback refers to.
    pub run: Option<RunId>,
    /// The feedback, as JSON.
    pub body: Text,
}

/// Stored feedback.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Feedback {
    /// The run that the feedback refers to.
    pub run: Option<RunId>,
    /// The feedback, as JSON.
    pub body: Text,
    /// Time of creation.
    pub created: Time,
}
