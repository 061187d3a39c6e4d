//! Runs: one request in a thread, and how far it got.

use std::fmt;

use agentwire_core::event::{RunId, ThreadId};

use super::{Answering, Claim, Fence, Holder, Lease, Seq, Text};
use crate::clock::Time;

/// How far a run got.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RunStatus {
    /// Accepted, and waits for its thread.
    Queued,
    /// Has its thread and produces events.
    Running,
    /// Has its thread and is held.
    Paused,
    /// Ended on the wire and left something open for a person or a front end. Its log is closed; it becomes
    /// [`RunStatus::Finished`] when nothing of it is open any more.
    Waiting,
    /// Ended well.
    Finished,
    /// Ended with an error.
    Failed,
    /// Ended by request.
    Stopped,
}

impl RunStatus {
    /// Every status there is.
    pub const ALL: [Self; 7] = [
        Self::Queued,
        Self::Running,
        Self::Paused,
        Self::Waiting,
        Self::Finished,
        Self::Failed,
        Self::Stopped,
    ];

    /// The status in one word.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Running => "running",
            Self::Paused => "paused",
            Self::Waiting => "waiting",
            Self::Finished => "finished",
            Self::Failed => "failed",
            Self::Stopped => "stopped",
        }
    }

    /// The status with that name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.as_str() == name)
    }

    /// Whether events may still come: queued, running or paused.
    #[must_use]
    pub fn is_live(self) -> bool {
        matches!(self, Self::Queued | Self::Running | Self::Paused)
    }
}

impl fmt::Display for RunStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What is known about a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    /// Its id, unique among its owner's runs.
    pub run: RunId,
    /// Its thread.
    pub thread: ThreadId,
    /// The agent that answers it.
    pub agent: Text,
    /// How far it got.
    pub status: RunStatus,
    /// Why it is so, in the words of whoever set the status.
    pub cause: Option<Text>,
    /// When it was accepted.
    pub created: Time,
    /// When it got its thread.
    pub started: Option<Time>,
    /// When its status last changed; for an ended run, when it ended.
    pub updated: Time,
    /// The number of the first event that can still be read exactly.
    pub first_retained: Seq,
    /// The number that the next event gets: how many there have been.
    pub next_seq: Seq,
    /// Whether a compacted form of the log is kept instead of the log.
    pub compacted: bool,
    /// The number of its last claim.
    pub fence: Fence,
    /// Who claimed it last.
    pub holder: Holder,
}

impl Run {
    /// The number of its last event.
    #[must_use]
    pub fn last_seq(&self) -> Option<Seq> {
        self.next_seq.0.checked_sub(1).map(Seq)
    }
}

/// How a new run gets into its thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry {
    /// At once, or not at all: a refused run leaves nothing behind.
    Now,
    /// At once, or behind those who wait already, if they are fewer than `limit`.
    Queue {
        /// The longest queue.
        limit: usize,
    },
}

/// A request to start a run. Its thread is made if there is none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewRun {
    /// The thread.
    pub thread: ThreadId,
    /// The id of the run.
    pub run: RunId,
    /// The agent that will answer.
    pub agent: Text,
    /// The request, as JSON.
    pub input: Text,
    /// Why it is started.
    pub cause: Option<Text>,
    /// Who will write to it.
    pub claim: Claim,
    /// How it gets into the thread.
    pub entry: Entry,
    /// Pending items of the thread that this run answers; they are answered if and only if it is created.
    pub answering: Option<Answering>,
}

impl NewRun {
    /// A run that starts now or not at all, with `null` as its input.
    pub fn new(
        thread: impl Into<ThreadId>,
        run: impl Into<RunId>,
        agent: impl Into<Text>,
        claim: Claim,
    ) -> Self {
        Self {
            thread: thread.into(),
            run: run.into(),
            agent: agent.into(),
            input: "null".into(),
            cause: None,
            claim,
            entry: Entry::Now,
            answering: None,
        }
    }

    pub(crate) fn size(&self) -> usize {
        self.input.len() + self.answering.as_ref().map_or(0, Answering::size)
    }
}

/// What came of starting a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Start {
    /// It is new. Its status says whether it has its thread (`running`) or waits for it (`queued`).
    Created(Run),
    /// A run with this id was there before; nothing was changed.
    Exists(Run),
    /// The same answers were given before, and this run was started by them; nothing was changed. It may not
    /// have been created, if whoever recorded the answers died before.
    Answered(RunId),
    /// Another run has the thread, or waits for it; nothing was changed.
    Held(Lease),
    /// The queue is full; nothing was changed.
    QueueFull,
}
