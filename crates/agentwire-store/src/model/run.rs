//! Runs: their status, record, start request and start result.

use std::fmt;

use agentwire_core::event::{RunId, ThreadId};

use super::{AnswerSet, Fence, Holder, Lease, QuotaKind, Quotas, Seq, Text, ThreadIds};
use crate::clock::Time;

/// The status of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RunStatus {
    /// Accepted; waits for its thread.
    Queued,
    /// Has its thread; produces events.
    Running,
    /// Has its thread; reading from the agent is suspended.
    Paused,
    /// Ended with open pending items. Its log is closed; it becomes [`RunStatus::Finished`] when the last item is
    /// answered or has expired.
    Waiting,
    /// Ended successfully.
    Finished,
    /// Ended with an error.
    Failed,
    /// Cancelled by a client or the gateway.
    Stopped,
}

impl RunStatus {
    /// All statuses.
    pub const ALL: [Self; 7] = [
        Self::Queued,
        Self::Running,
        Self::Paused,
        Self::Waiting,
        Self::Finished,
        Self::Failed,
        Self::Stopped,
    ];

    /// The stored name of the status.
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

    /// Whether the log is still open: queued, running or paused.
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

/// The record of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    /// Its id, unique among its owner's runs.
    pub run: RunId,
    /// Its thread.
    pub thread: ThreadId,
    /// The agent that produces its events; one of several if its owner is a group.
    pub agent: Text,
    /// The upstream scope of its thread; see [`Thread`](super::Thread).
    pub upstream_scope: Option<Text>,
    /// The form of the ids of its thread on the agent's side.
    pub thread_ids: Option<ThreadIds>,
    /// Its status.
    pub status: RunStatus,
    /// The cause of the status, as given by the caller that set it.
    pub cause: Option<Text>,
    /// Time of acceptance.
    pub created: Time,
    /// Time at which it got its thread.
    pub started: Option<Time>,
    /// Time of the last status change; for an ended run, the time of its end.
    pub updated: Time,
    /// The number of the first retained event.
    pub first_retained: Seq,
    /// The number that the next event gets, which is the number of events so far.
    pub next_seq: Seq,
    /// Whether a compacted form replaces the log.
    pub compacted: bool,
    /// The fencing token of its last claim.
    pub fence: Fence,
    /// The process that claimed it last.
    pub holder: Holder,
}

impl Run {
    /// The number of its last event.
    #[must_use]
    pub fn last_seq(&self) -> Option<Seq> {
        self.next_seq.0.checked_sub(1).map(Seq)
    }
}

/// Behaviour of a start when the thread is busy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StartMode {
    /// Start immediately or not at all: a refused run leaves no record.
    Now,
    /// Start immediately, or wait in the queue of the thread if it holds fewer than `limit` runs.
    Queue {
        /// The maximum length of the queue.
        limit: usize,
    },
}

/// A request to start a run. A missing thread is created.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewRun {
    /// The thread.
    pub thread: ThreadId,
    /// The id of the run.
    pub run: RunId,
    /// The agent that will produce the events.
    pub agent: Text,
    /// The form of the ids on the agent's side, if the thread is created.
    pub thread_ids: Option<ThreadIds>,
    /// The request, as JSON.
    pub input: Text,
    /// The cause of the start.
    pub cause: Option<Text>,
    /// The process that will write to it. It must have a live lease; see [`Store::renew`](crate::Store::renew).
    pub holder: Holder,
    /// Behaviour when the thread is busy.
    pub mode: StartMode,
    /// Answers to pending items of the thread; recorded if and only if the run is created.
    pub answers: Option<AnswerSet>,
    /// Quotas that the run must keep.
    pub quotas: Quotas,
}

impl NewRun {
    /// A run in mode [`StartMode::Now`] with the input `null`.
    pub fn new(
        thread: impl Into<ThreadId>,
        run: impl Into<RunId>,
        agent: impl Into<Text>,
        holder: impl Into<Holder>,
    ) -> Self {
        Self {
            thread: thread.into(),
            run: run.into(),
            agent: agent.into(),
            thread_ids: None,
            input: "null".into(),
            cause: None,
            holder: holder.into(),
            mode: StartMode::Now,
            answers: None,
            quotas: Quotas::default(),
        }
    }

    pub(crate) fn size(&self) -> usize {
        self.input.len() + self.answers.as_ref().map_or(0, AnswerSet::size)
    }
}

/// Result of [`Store::start`](crate::Store::start).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Start {
    /// The run was created. Its status is `running` if it has its thread and `queued` if it waits for it.
    Created(Run),
    /// A run with this id exists; nothing was changed.
    Exists(Run),
    /// The same answers were recorded before, with this id for the run that they start; nothing was changed. The run
    /// does not exist if the process that recorded the answers crashed before it created the run.
    Answered(RunId),
    /// Another run has the thread or waits for it; nothing was changed.
    Held(Lease),
    /// The run that has the thread, or the first one in the queue of a thread that no run has, is an orphan; nothing was
    /// changed. The caller takes it over, ends or continues it, and tries again.
    Orphan(RunId),
    /// The queue is full; nothing was changed.
    QueueFull,
    /// The user, or its tenant, has all that a quota allows; nothing was changed.
    OverQuota {
        /// True if it is the tenant's.
        is_tenant: bool,
        /// The quota.
        quota: QuotaKind,
    },
}
