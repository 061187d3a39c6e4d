//! What a run left open for a person or a front end, and the answers.

use std::{collections::HashSet, time::Duration};

use agentwire_core::event::RunId;

use super::{PendingId, Text};
use crate::clock::Time;

/// Something that a run leaves open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewPending {
    /// Its id within the run.
    pub id: PendingId,
    /// What kind of thing it is.
    pub kind: Text,
    /// Everything else about it, as JSON.
    pub body: Text,
    /// How long an answer is accepted, by the store's clock; for ever if absent.
    pub ttl: Option<Duration>,
}

impl NewPending {
    pub(crate) fn size(&self) -> usize {
        self.id.as_str().len() + self.kind.len() + self.body.len()
    }
}

/// A pending item as it is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pending {
    /// Its id within the run.
    pub id: PendingId,
    /// The run that left it.
    pub run: RunId,
    /// What kind of thing it is.
    pub kind: Text,
    /// Everything else about it, as JSON.
    pub body: Text,
    /// When it was put.
    pub created: Time,
    /// Until when an answer is accepted.
    pub expires: Option<Time>,
    /// The answer, once there is one.
    pub answer: Option<Answered>,
}

/// Which pending items to list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Which {
    /// Those that can be answered now.
    Open,
    /// Those that have no answer, expired ones too, and whatever has one of these ids. What a request may be about:
    /// a thread can have had any number of items, and few of them matter any more.
    Unanswered(HashSet<PendingId>),
    /// All that are known, answered and expired ones too.
    All,
}

/// An answer to one pending item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The item. If several runs of the thread used this id, the last one is meant.
    pub id: PendingId,
    /// The answer as JSON. "The same answer" means the same text, so write it canonically.
    pub body: Text,
}

/// Answers that belong together: all are accepted or none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answering {
    /// The answers; must not be empty.
    pub answers: Vec<Answer>,
    /// Who answered.
    pub by: Text,
}

impl Answering {
    pub(crate) fn size(&self) -> usize {
        self.answers.iter().map(|answer| answer.body.len()).sum()
    }
}

/// An answer as it is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answered {
    /// The answer as JSON.
    pub body: Text,
    /// Who answered.
    pub by: Text,
    /// When.
    pub at: Time,
    /// The run that was started with it.
    pub run: RunId,
}
