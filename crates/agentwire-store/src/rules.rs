//! What every backend that runs in this process decides alike: who may write, what a cursor finds, whether an answer counts.

use agentwire_core::event::RunId;

use crate::{
    clock::Time,
    error::{Conflict, Missing, StoreError},
    model::{Answer, Fence, Holder, Lease, Log, Pending, Run, RunStatus, Seq, StatusChange, Which},
};

/// The most that one write may carry. Far beyond the largest frame that a gateway lets through (8 MiB), and small enough
/// that a few of them at once do no harm.
pub(crate) const MAX_WRITE_BYTES: usize = 64 << 20;

/// The part of a run that says who may write to it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Claimed {
    pub(crate) status: RunStatus,
    pub(crate) fence: Fence,
    /// When the claim ends; absent when there is none.
    pub(crate) until: Option<Time>,
}

impl Claimed {
    pub(crate) fn is_live(&self, now: Time) -> bool {
        self.until.is_some_and(|until| until > now)
    }

    /// Whether `fence` still stands for this run: nobody else's, not given up; expired or not.
    pub(crate) fn check(&self, fence: Fence) -> Result<(), StoreError> {
        if self.fence != fence {
            return Err(StoreError::Fenced);
        }
        if !self.status.is_live() {
            return Err(StoreError::Ended(self.status));
        }
        if self.until.is_none() { Err(StoreError::Fenced) } else { Ok(()) }
    }

    /// Whether an append under `fence` at `first_seq` may go ahead.
    pub(crate) fn check_append(
        &self,
        fence: Fence,
        (first_seq, next_seq): (Seq, Seq),
        status: Option<&StatusChange>,
        now: Time,
    ) -> Result<(), StoreError> {
        self.check(fence)?;
        if !self.is_live(now) {
            return Err(StoreError::Fenced);
        }
        if first_seq != next_seq {
            return Err(StoreError::OutOfOrder { expected: next_seq });
        }
        let (from, Some(to)) = (self.status, status.map(|status| status.to)) else { return Ok(()) };
        // Only `acquire` turns a queued run into a running one, because only it gives it the thread.
        let allowed = !to.is_live() || (from != RunStatus::Queued && to != RunStatus::Queued);
        if allowed { Ok(()) } else { Err(Conflict::Status { from, to }.into()) }
    }

    pub(crate) fn is_orphan(&self, holder: &Holder, dead: Option<&Holder>, now: Time) -> bool {
        self.status.is_live() && (!self.is_live(now) || dead == Some(holder))
    }
}

/// Whether one write may be so large.
pub(crate) fn check_size(what: &'static str, size: usize) -> Result<(), StoreError> {
    let limit = MAX_WRITE_BYTES;
    if size <= limit { Ok(()) } else { Err(StoreError::TooLarge { what, size, limit }) }
}

/// What a read needs to fetch.
pub(crate) enum Fetch {
    /// Nothing: this is the answer.
    Nothing(Log),
    /// The compacted form.
    Compacted,
    /// Events from this number on.
    From(Seq),
}

/// What a cursor points at.
pub(crate) fn fetch(run: &Run, after: Option<Seq>) -> Fetch {
    let Run { next_seq, first_retained, status, .. } = *run;
    match after {
        Some(after) if after >= next_seq => Fetch::Nothing(Log::Ahead { next_seq, status }),
        None if run.compacted => Fetch::Compacted,
        _ => match after.map_or(Seq(0), |after| after.plus(1)) {
            first if first < first_retained => {
                Fetch::Nothing(Log::NotRetained { first_retained, next_seq, status })
            }
            first => Fetch::From(first),
        },
    }
}

/// Judges answers against the items they are for: `None` when all are open, the run of the first answers when
/// all were answered exactly so.
pub(crate) fn judge_answers(items: &[(&Answer, &Pending)], now: Time) -> Result<Option<RunId>, StoreError> {
    let Some((_, first)) = items.first() else { return Err(StoreError::NotFound(Missing::Pending)) };
    let first = first.answer.as_ref().map(|answer| &answer.run);
    for (answer, item) in items {
        match &item.answer {
            Some(known) if known.body == answer.body && Some(&known.run) == first => {}
            Some(_) => return Err(Conflict::Answer(item.id.clone()).into()),
            None if !item.is_open(now) => return Err(StoreError::Expired(item.id.clone())),
            None if first.is_some() => return Err(Conflict::Answer(item.id.clone()).into()),
            None => {}
        }
    }
    Ok(first.cloned())
}

/// Whether the state may be changed from outside, given who has the thread.
pub(crate) fn may_change_state(lease: Option<Lease>) -> Result<(), StoreError> {
    match lease.filter(|lease| lease.live) {
        Some(lease) => Err(Conflict::Leased(lease.run).into()),
        None => Ok(()),
    }
}

impl Which {
    pub(crate) fn takes(&self, item: &Pending, now: Time) -> bool {
        match self {
            Self::Open => item.is_open(now),
            Self::Unanswered(named) => item.answer.is_none() || named.contains(&item.id),
            Self::All => true,
        }
    }
}

impl Pending {
    pub(crate) fn is_open(&self, now: Time) -> bool {
        self.answer.is_none() && self.expires.is_none_or(|expires| expires > now)
    }
}
