//! Pending items and their answers.

use std::{collections::HashSet, time::Duration};

use agentwire_core::event::{RunId, ThreadId};

use super::{Owner, PendingId, Text};
use crate::clock::Time;

/// An item that a run leaves open for a person or a front end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewPending {
    /// Its id within the run.
    pub id: PendingId,
    /// Its kind, for example an interrupt or an approval.
    pub kind: Text,
    /// The description of the item, as JSON.
    pub body: Text,
    /// Time in which an answer is accepted, by the store's clock; unlimited if absent.
    pub ttl: Option<Duration>,
}

impl NewPending {
    pub(crate) fn size(&self) -> usize {
        self.id.as_str().len() + self.kind.len() + self.body.len()
    }
}

/// A stored pending item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pending {
    /// Its id within the run.
    pub id: PendingId,
    /// The run that left it open.
    pub run: RunId,
    /// Its kind, for example an interrupt or an approval.
    pub kind: Text,
    /// The description of the item, as JSON.
    pub body: Text,
    /// Time of creation, or of the last replacement.
    pub created: Time,
    /// Deadline for an answer.
    pub expires: Option<Time>,
    /// The answer, once recorded.
    pub answer: Option<RecordedAnswer>,
}

/// An open pending item of any owner in a tenant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenItem {
    /// Whose thread it is.
    pub owner: Owner,
    /// The thread.
    pub thread: ThreadId,
    /// The item.
    pub item: Pending,
}

/// Selects the pending items that [`Store::pending`](crate::Store::pending) lists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PendingFilter {
    /// Items that can be answered now.
    Open,
    /// Items without an answer, expired ones included, and all items with one of these ids. This covers everything
    /// that a request can refer to, without loading the answered items of a long thread.
    Unanswered(HashSet<PendingId>),
    /// All items, answered and expired ones included.
    All,
}

/// An answer to one pending item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The item. If several runs of the thread used this id, the item of the last one.
    pub id: PendingId,
    /// The answer as JSON. Answers are compared as text, so callers should serialize them canonically.
    pub body: Text,
}

/// Answers that are recorded together or not at all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AnswerSet {
    /// The answers; must not be empty.
    pub answers: Vec<Answer>,
    /// The person or program that answered.
    pub by: Text,
}

impl AnswerSet {
    pub(crate) fn size(&self) -> usize {
        self.answers.iter().map(|answer| answer.body.len()).sum()
    }
}

/// A stored answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordedAnswer {
    /// The answer as JSON.
    pub body: Text,
    /// The person or program that answered.
    pub by: Text,
    /// Time of the answer.
    pub at: Time,
    /// The run that the answer started.
    pub run: RunId,
}
