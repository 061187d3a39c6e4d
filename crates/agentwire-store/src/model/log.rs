//! The log of a run: how it grows and how it is read.

use agentwire_core::event::RunId;
use bytes::Bytes;

use super::{Fence, NewPending, Owner, RunStatus, Seq, Text, text_len};

/// What must have happened before a write is acknowledged. Ordered: more is greater.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Durability {
    /// It can be read back from this process.
    Memory,
    /// The operating system has it: it survives the death of the process.
    #[default]
    Os,
    /// The disk has it: it survives the loss of power.
    Fsync,
}

/// Events for the end of a run's log, and what changes with them: all or nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Append {
    /// Whose run it is.
    pub owner: Owner,
    /// The run.
    pub run: RunId,
    /// The claim under which it is written.
    pub fence: Fence,
    /// The number of the first event; also where the log ends, if there are none.
    pub first_seq: Seq,
    /// The events. May be empty, to change something without saying so in the log.
    ///
    /// The memory store keeps these very buffers, so a small event should not be a slice of a large one.
    pub events: Vec<Bytes>,
    /// What changes with them.
    pub change: Change,
    /// The least durability; the store's own level applies if it is higher. Endings and pending items are never below `Os`.
    pub durability: Durability,
}

impl Append {
    /// An append of nothing yet.
    #[must_use]
    pub fn new(owner: Owner, run: RunId, fence: Fence, first_seq: Seq) -> Self {
        Self {
            owner,
            run,
            fence,
            first_seq,
            events: Vec::new(),
            change: Change::default(),
            durability: Durability::Memory,
        }
    }

    /// The least durability that this append must have.
    #[cfg(feature = "sqlite")]
    pub(crate) fn needs(&self) -> Durability {
        let ends = self.change.status.as_ref().is_some_and(|status| !status.to.is_live());
        let floor = if ends || !self.change.pending.is_empty() { Durability::Os } else { Durability::Memory };
        self.durability.max(floor)
    }

    pub(crate) fn size(&self) -> usize {
        self.events.iter().map(Bytes::len).sum::<usize>()
            + self.change.state.as_ref().map_or(0, |state| state.body.len())
            + text_len(&self.change.messages)
            + self.change.pending.iter().map(NewPending::size).sum::<usize>()
    }
}

/// What changes together with an append.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Change {
    /// The status of the run. One that ends it also gives up the claim and frees the thread.
    pub status: Option<StatusChange>,
    /// The state of the thread; only for the run that has the thread.
    pub state: Option<StateChange>,
    /// The messages of the thread; only for the run that has the thread.
    pub messages: Option<Text>,
    /// What the run leaves open. An item that the run has put before is replaced while it is unanswered.
    pub pending: Vec<NewPending>,
}

/// A new status and its reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatusChange {
    /// The new status.
    pub to: RunStatus,
    /// Why.
    pub cause: Option<Text>,
}

impl StatusChange {
    /// A new status without a reason.
    #[must_use]
    pub fn to(status: RunStatus) -> Self {
        Self { to: status, cause: None }
    }
}

/// A new state, if the old one is still what the caller thinks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateChange {
    /// The number of the state that the caller read; 0 if there was none.
    pub expected: u64,
    /// The new state as JSON. Its number is `expected + 1`.
    pub body: Text,
}

/// What came of an append.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Appended {
    /// The number that the next event gets.
    pub next_seq: Seq,
    /// Whether this very append had been done before, so that nothing was changed now.
    pub repeated: bool,
}

/// What a read found behind a cursor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Log {
    /// The events behind the cursor, in order, none missing, as many as fit.
    Exact(Slice),
    /// Asked from the start, and only a compacted form is left: all of it.
    Compacted {
        /// The events that stand for the whole run.
        events: Vec<Bytes>,
        /// How many events the run really had.
        next_seq: Seq,
        /// How the run ended.
        status: RunStatus,
    },
    /// The cursor points into what is no longer kept exactly.
    NotRetained {
        /// The first event that is; equal to `next_seq` when there is none.
        first_retained: Seq,
        /// The number that the next event gets.
        next_seq: Seq,
        /// How far the run got.
        status: RunStatus,
    },
    /// The cursor points at an event that does not exist yet.
    Ahead {
        /// The number that the next event gets.
        next_seq: Seq,
        /// How far the run got.
        status: RunStatus,
    },
}

/// Some consecutive events of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slice {
    /// The number of the first of them; the next one to come if there are none.
    pub first_seq: Seq,
    /// The events.
    pub events: Vec<Bytes>,
    /// The number that the run's next event gets. When it is `first_seq + events.len()`, this is all there is.
    pub next_seq: Seq,
    /// How far the run had got when this was read. If it has ended and this is all there is, nothing more comes.
    pub status: RunStatus,
}
