//! Threads, what is remembered of a conversation, and what people say about it.

use agentwire_core::event::{RunId, ThreadId};

use super::{StateChange, Text, text_len};
use crate::clock::Time;

/// A thread to be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewThread {
    /// Its id.
    pub thread: ThreadId,
    /// The agent it belongs to.
    pub agent: Text,
    /// Anything to remember with it, as JSON.
    pub metadata: Option<Text>,
}

/// A thread without its large parts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Thread {
    /// Its id, unique among its owner's threads.
    pub thread: ThreadId,
    /// The agent it belongs to.
    pub agent: Text,
    /// Anything to remember with it, as JSON.
    pub metadata: Option<Text>,
    /// When it was made.
    pub created: Time,
    /// When a run last started or ended in it, or its state, messages or metadata changed.
    pub updated: Time,
    /// The number of its state; 0 if it has none.
    pub state_seq: u64,
}

/// What came of making something that may exist.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Created<T> {
    /// The thing as it is now.
    pub item: T,
    /// Whether it was made by this call.
    pub new: bool,
}

/// A change of a thread from outside a run; what is absent stays.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ThreadChange {
    /// The agent it belongs to.
    pub agent: Option<Text>,
    /// Anything to remember with it, as JSON.
    pub metadata: Option<Text>,
    /// The state.
    pub state: Option<StateChange>,
    /// The messages, as JSON.
    pub messages: Option<Text>,
}

impl ThreadChange {
    pub(crate) fn size(&self) -> usize {
        let state = self.state.as_ref().map_or(0, |state| state.body.len());
        text_len(&self.metadata) + text_len(&self.messages) + state
    }
}

/// A thread's state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    /// How often it was set; 0 means never, and then there is no body.
    pub seq: u64,
    /// The state as JSON.
    pub body: Option<Text>,
}

/// Which threads to list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ThreadQuery {
    /// Only those of this agent.
    pub agent: Option<Text>,
    /// Where the page before this one ended.
    pub before: Option<PageToken>,
}

/// Where a page ended. Opaque, and worthless to another owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageToken(pub u64);

/// Some of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page<T> {
    /// The items.
    pub items: Vec<T>,
    /// Where the next page begins, if there is more.
    pub next: Option<PageToken>,
}

/// Something said about a thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewFeedback {
    /// The thread.
    pub thread: ThreadId,
    /// The run it is about.
    pub run: Option<RunId>,
    /// What was said, as JSON.
    pub body: Text,
}

/// Feedback as it is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Feedback {
    /// The run it is about.
    pub run: Option<RunId>,
    /// What was said, as JSON.
    pub body: Text,
    /// When.
    pub created: Time,
}
