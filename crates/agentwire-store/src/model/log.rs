//! The log of a run: appends, their durability, and reads.

use agentwire_core::event::RunId;
use bytes::Bytes;

use super::{CommandReply, Fence, NewPending, Owner, RunStatus, Seq, Text, text_len};

/// The level that a write must reach before it is acknowledged. Ordered: a stronger level is greater.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Durability {
    /// Readable in this process.
    Memory,
    /// Handed to the operating system: survives a crash of the process.
    #[default]
    Os,
    /// Synced to disk: survives power loss.
    Fsync,
}

/// Events for the end of a run's log and the changes that belong to them, applied atomically.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Append {
    /// The owner of the run.
    pub owner: Owner,
    /// The run.
    pub run: RunId,
    /// The fencing token of the writer's claim.
    pub fence: Fence,
    /// The number of the first event. Must be the end of the log, also when `events` is empty.
    pub first_seq: Seq,
    /// The events. Empty for a change that is not logged.
    ///
    /// The memory store keeps these buffers, so a small event should not be a slice of a large one.
    pub events: Vec<Bytes>,
    /// The changes in the same transaction.
    pub change: Change,
    /// The minimum durability; the store's own level applies if it is higher. Appends that end a run or add pending
    /// items are raised to `Os`.
    pub durability: Durability,
}

impl Append {
    /// An append without events or changes.
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

    #[cfg(any(feature = "sqlite", feature = "postgres"))]
    pub(crate) fn required_durability(&self) -> Durability {
        let ends = self.change.status.as_ref().is_some_and(|status| !status.to.is_live());
        let floor = if ends || !self.change.pending.is_empty() { Durability::Os } else { Durability::Memory };
        self.durability.max(floor)
    }

    pub(crate) fn size(&self) -> usize {
        self.events.iter().map(Bytes::len).sum::<usize>()
            + self.change.state.as_ref().map_or(0, |state| state.body.len())
            + text_len(&self.change.messages)
            + self.change.pending.iter().map(NewPending::size).sum::<usize>()
            + self.change.replies.iter().map(|reply| reply.body.len()).sum::<usize>()
    }
}

/// The changes in the same transaction as an append.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Change {
    /// New status of the run. A status that ends the run also releases its claim and its thread.
    pub status: Option<StatusChange>,
    /// New state of the thread; requires that the run has the thread.
    pub state: Option<StateChange>,
    /// New messages of the thread; requires that the run has the thread.
    pub messages: Option<Text>,
    /// Items that the run leaves open. An unanswered item of the same run with the same id is replaced.
    pub pending: Vec<NewPending>,
    /// Replies to commands whose effect the events are; see [`Store::send`](crate::Store::send).
    pub replies: Vec<CommandReply>,
}

/// A new status and its cause.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatusChange {
    /// The new status.
    pub to: RunStatus,
    /// The reason, in the caller's words.
    pub cause: Option<Text>,
}

impl StatusChange {
    /// A new status without a cause.
    #[must_use]
    pub fn to(status: RunStatus) -> Self {
        Self { to: status, cause: None }
    }
}

/// A compare-and-set of a thread's state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateChange {
    /// The number of the state that the caller read; 0 if there was none.
    pub expected: u64,
    /// The new state as JSON. Its number is `expected + 1`.
    pub body: Text,
}

/// Result of an append.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Appended {
    /// The number that the next event gets.
    pub next_seq: Seq,
    /// Whether the same append was stored before, so that this call changed nothing.
    pub repeated: bool,
    /// The epoch of the store in which the events were written; see [`LogSlice::epoch`].
    pub epoch: u32,
}

/// Result of reading a log behind a cursor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Log {
    /// The events behind the cursor, in order and without gaps, up to the requested size.
    Exact(LogSlice),
    /// The whole compacted form: the read was from the start, and the exact log is gone.
    Compacted {
        /// The events that replace the exact log.
        events: Vec<Bytes>,
        /// The number of events in the original log.
        next_seq: Seq,
        /// The final status of the run.
        status: RunStatus,
    },
    /// The event after the cursor is no longer retained.
    NotRetained {
        /// The number of the first retained event; equal to `next_seq` when there is none.
        first_retained: Seq,
        /// The number that the next event gets.
        next_seq: Seq,
        /// The status of the run.
        status: RunStatus,
    },
    /// The cursor points at an event that does not exist yet.
    Ahead {
        /// The number that the next event gets.
        next_seq: Seq,
        /// The status of the run.
        status: RunStatus,
    },
}

/// Consecutive events of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogSlice {
    /// The number of the first event in `events`; `next_seq` if there are none.
    pub first_seq: Seq,
    /// The events.
    pub events: Vec<Bytes>,
    /// The number that the run's next event gets. Equal to `first_seq + events.len()` in the last slice of a log.
    pub next_seq: Seq,
    /// The status of the run at the time of the read. No events follow the last slice of an ended run.
    pub status: RunStatus,
    /// The epoch of the store in which all events of the slice were written; a slice ends where the epoch changes. 0 until a
    /// store loses acknowledged writes, as after a failover to a standby that lagged behind: then numbers that readers
    /// have seen may name other events, and the epoch grows.
    pub epoch: u32,
}
