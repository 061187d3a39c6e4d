//! Decisions that every in-process backend shares: write access, leases, cursors, pages, answers.
//!
//! A backend loads the records, asks this module, then writes. Nothing here reads or changes storage.

use std::{ops::ControlFlow, time::Duration};

use agentwire_core::event::RunId;

use crate::{
    clock::Time,
    error::{Conflict, Missing, StoreError},
    model::{
        Answer, Change, Delivery, Fence, Holder, Lease, Log, NewPending, Owner, Page, PageToken, Pending,
        PendingFilter, Quota, QuotaKind, Run, RunStatus, Seq, Start, StartMode, StateChange, StatusChange,
        Text, TextChange, ThreadChange, Usage,
    },
};

/// Upper bound of one write. Far above the largest frame that a gateway accepts (8 MiB), and small enough that a few
/// of them at once do no harm.
pub(crate) const MAX_WRITE_BYTES: usize = 64 << 20;

/// The age beyond its deadline at which a command belongs to a sender that died.
pub(crate) const ABANDONED: Duration = Duration::from_secs(60);

/// The time in which a command that the previous holder of a run had taken can be taken again after a take-over, however late
/// it is: its sender waits for the result, and the next holder may give the run its ending first.
pub(crate) const REOPENED: Duration = Duration::from_secs(10);

/// The result of a command; `None` while its sender has to wait.
///
/// A command without a reply has no effect on a run that has ended: the reply to one that changes the log is in the append.
pub(crate) fn delivery(
    reply: Option<&Text>,
    is_taken: bool,
    has_ended: bool,
    is_late: bool,
) -> Option<Delivery> {
    match reply {
        Some(reply) => Some(Delivery::Replied(reply.clone())),
        None if has_ended => Some(Delivery::Ended),
        None if is_late && !is_taken => Some(Delivery::Withdrawn),
        None => None,
    }
}

/// The wait of a sender for the result of its command.
///
/// A failed look is no result: the command may be taken, and may have an effect. Its sender looks again, for as long as the
/// command is kept.
#[cfg(any(feature = "sqlite", feature = "postgres"))]
pub(crate) struct ResultWait {
    give_up: std::time::Instant,
    /// The result in a write whose outcome is unknown. The command is gone if it was committed.
    settled: std::sync::Mutex<Option<Delivery>>,
}

#[cfg(any(feature = "sqlite", feature = "postgres"))]
impl ResultWait {
    pub(crate) fn new(patience: Duration) -> Self {
        let kept = patience.saturating_add(ABANDONED);
        let now = std::time::Instant::now();
        let give_up = now.checked_add(kept).unwrap_or(now + ABANDONED);
        Self { give_up, settled: std::sync::Mutex::default() }
    }

    /// Notes a result that a write is about to remove with its command.
    #[cfg(feature = "postgres")]
    pub(crate) fn note(&self, result: Option<&Delivery>) {
        *self.settled.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = result.cloned();
    }

    /// The result of a look; `None` to look again.
    pub(crate) fn judge(
        &self,
        look: Result<Option<Delivery>, StoreError>,
    ) -> Result<Option<Delivery>, StoreError> {
        match look {
            Err(error) if error.is_outage() && std::time::Instant::now() < self.give_up => Ok(None),
            Err(StoreError::NotFound(missing)) => {
                let settled = self.settled.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                settled.clone().map(Some).ok_or(StoreError::NotFound(missing))
            }
            other => other,
        }
    }
}

/// The fields of a run that decide on write access.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ClaimState {
    pub(crate) status: RunStatus,
    pub(crate) fence: Fence,
    /// True if there is a claim that was not released.
    pub(crate) is_claimed: bool,
    /// True if the lease of its holder has not expired.
    pub(crate) has_live_holder: bool,
}

impl ClaimState {
    /// True if a process may write to the run.
    pub(crate) fn is_live(&self) -> bool {
        self.is_claimed && self.has_live_holder
    }

    /// Requires that `fence` is the token of the current claim, that the claim was neither released nor taken over, and
    /// that the lease of its holder has not expired.
    fn check(&self, fence: Fence) -> Result<(), StoreError> {
        if self.fence != fence {
            return Err(StoreError::Fenced);
        }
        if !self.status.is_live() {
            return Err(StoreError::Ended(self.status));
        }
        if self.is_live() { Ok(()) } else { Err(StoreError::Fenced) }
    }

    /// Requires that an append under `fence` at `first_seq` continues the log and makes an allowed status change.
    pub(crate) fn check_append(
        &self,
        fence: Fence,
        (first_seq, next_seq): (Seq, Seq),
        status: Option<&StatusChange>,
    ) -> Result<(), StoreError> {
        self.check(fence)?;
        if first_seq != next_seq {
            return Err(StoreError::OutOfOrder { expected: next_seq });
        }
        let (from, Some(to)) = (self.status, status.map(|status| status.to)) else { return Ok(()) };
        // Only `acquire` turns a queued run into a running one, because only `acquire` grants the thread.
        let allowed = !to.is_live() || (from != RunStatus::Queued && to != RunStatus::Queued);
        if allowed { Ok(()) } else { Err(Conflict::Status { from, to }.into()) }
    }

    /// Requires a queued run under its current claim.
    pub(crate) fn check_acquire(&self, fence: Fence) -> Result<(), StoreError> {
        self.check(fence)?;
        match self.status {
            RunStatus::Queued => Ok(()),
            from => Err(Conflict::Status { from, to: RunStatus::Running }.into()),
        }
    }

    /// Requires that `fence` is the token of the last claim; released and ended ones pass, so that a release can be
    /// repeated.
    pub(crate) fn check_release(&self, fence: Fence) -> Result<(), StoreError> {
        if self.fence == fence { Ok(()) } else { Err(StoreError::Fenced) }
    }
}

impl Run {
    pub(crate) fn claim_state(&self, is_claimed: bool, has_live_holder: bool) -> ClaimState {
        ClaimState { status: self.status, fence: self.fence, is_claimed, has_live_holder }
    }

    /// The lease on the thread of this run, if the run has it.
    pub(crate) fn lease(&self, live: bool) -> Lease {
        Lease {
            thread: self.thread.clone(),
            run: self.run.clone(),
            fence: self.fence,
            holder: self.holder.clone(),
            live,
        }
    }

    /// Requires an orphan that no process has claimed since it was read with the fencing token `seen`. The holder itself may
    /// claim its run again, which excludes the task that wrote to it before.
    pub(crate) fn check_take_over(
        &self,
        claim: ClaimState,
        seen: Fence,
        by: &Holder,
    ) -> Result<(), StoreError> {
        if !self.status.is_live() {
            return Err(StoreError::Ended(self.status));
        }
        let is_free = !claim.is_live() || self.holder == *by;
        if self.fence == seen && is_free { Ok(()) } else { Err(StoreError::Fenced) }
    }

    /// True if a run that is taken over also gets its thread, given the run that has it.
    pub(crate) fn regains_thread(&self, leased: Option<&RunId>) -> bool {
        self.status != RunStatus::Queued && leased.is_none_or(|leased| *leased == self.run)
    }

    /// Requires a run whose log is closed.
    pub(crate) fn check_ended(&self) -> Result<(), StoreError> {
        if self.status.is_live() { Err(StoreError::Live(self.status)) } else { Ok(()) }
    }
}

/// The run that stands before a new or queued one: the run that has the thread, or else the first one in the queue.
pub(crate) enum Obstacle {
    Held(Lease),
    Orphan(RunId),
}

/// `lease` is the lease on the thread, `first` the claim of the first run in the queue.
pub(crate) fn obstacle(lease: Option<Lease>, first: Option<&Lease>) -> Option<Obstacle> {
    let lease = lease.or_else(|| first.cloned())?;
    Some(if lease.live { Obstacle::Held(lease) } else { Obstacle::Orphan(lease.run) })
}

/// The status of a new run, or the result of the start if the run is not created.
///
/// `lease` is the lease on the thread, `queue` the claims of the runs that wait for it, those of orphans included.
pub(crate) fn decide_start(
    lease: Option<Lease>,
    queue: &[Lease],
    mode: StartMode,
) -> ControlFlow<Start, RunStatus> {
    match (obstacle(lease, queue.first()), mode) {
        (None, _) => ControlFlow::Continue(RunStatus::Running),
        (Some(Obstacle::Orphan(run)), _) => ControlFlow::Break(Start::Orphan(run)),
        (Some(Obstacle::Held(lease)), StartMode::Now) => ControlFlow::Break(Start::Held(lease)),
        (Some(_), StartMode::Queue { limit }) if queue.len() >= limit => ControlFlow::Break(Start::QueueFull),
        (Some(_), StartMode::Queue { .. }) => ControlFlow::Continue(RunStatus::Queued),
    }
}

/// The quota that a new run with an input of `input` bytes would exceed, perhaps with a new thread.
pub(crate) fn exceeded(quota: &Quota, usage: &Usage, input: usize, is_new_thread: bool) -> Option<QuotaKind> {
    let is_full = |limit: Option<u64>, used: u64| limit.is_some_and(|limit| used >= limit);
    if quota.bytes.is_some_and(|limit| usage.bytes.saturating_add(input as u64) > limit) {
        Some(QuotaKind::Bytes)
    } else if is_new_thread && is_full(quota.threads, usage.threads) {
        Some(QuotaKind::Threads)
    } else {
        is_full(quota.runs, usage.runs).then_some(QuotaKind::Runs)
    }
}

/// True if a lease is live. One that ends later than its lifetime from now was given by a process whose clock was ahead; it is
/// shortened when a process renews its own ([`capped_lease`]).
pub(crate) fn is_lease_live(until: Option<Time>, now: Time) -> bool {
    until.is_some_and(|until| until > now)
}

/// The expiry of a lease, not later than its lifetime from now.
pub(crate) fn capped_lease(until: Time, ttl: Duration, now: Time) -> Time {
    until.min(now.after(ttl))
}

/// The upstream scope of a new thread: `None` for the first thread of a user with this id, so that a thread which exists on
/// the agent's server can be continued under its own id; the agent's name for those of other agents after it.
pub(crate) fn upstream_scope(owner: &Owner, is_id_used: bool) -> Option<Text> {
    is_id_used.then(|| owner.agent.as_str().into())
}

/// Enforces [`MAX_WRITE_BYTES`].
pub(crate) fn check_size(what: &'static str, size: usize) -> Result<(), StoreError> {
    let limit = MAX_WRITE_BYTES;
    if size <= limit { Ok(()) } else { Err(StoreError::TooLarge { what, size, limit }) }
}

/// The part of a log that a read has to load.
pub(crate) enum Fetch {
    /// None: the result is known from the run's record.
    Nothing(Log),
    /// The compacted form.
    Compacted,
    /// Events from this number on.
    From(Seq),
}

/// Resolves a cursor.
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

/// Collects one page of `(key, item)` rows; the key of the last item becomes the token of the next page.
///
/// A backend that limits its query must ask for `limit + 1` rows.
pub(crate) fn page<T, E>(
    rows: impl Iterator<Item = Result<(u64, T), E>>,
    limit: usize,
) -> Result<Page<T>, E> {
    let mut items = Vec::new();
    let mut next = None;
    for row in rows {
        let (key, item) = row?;
        if items.len() == limit {
            return Ok(Page { items, next });
        }
        next = Some(PageToken(key));
        items.push(item);
    }
    Ok(Page { items, next: None })
}

/// Checks that an item can be replaced: it is the one that the caller has read, open and unchanged.
pub(crate) fn check_replaced(found: &Pending, expected: &Pending, now: Time) -> Result<(), StoreError> {
    let is_same = found.run == expected.run && found.body == expected.body && found.answer.is_none();
    if !is_same {
        return Err(Conflict::Item(expected.id.clone()).into());
    }
    match found.expires.is_some_and(|expires| expires <= now) {
        true => Err(StoreError::Expired(expected.id.clone())),
        false => Ok(()),
    }
}

/// Checks answers against their pending items: `None` when all are open; the run that the answers started when
/// exactly these answers were recorded before.
pub(crate) fn check_answers(items: &[(&Answer, &Pending)], now: Time) -> Result<Option<RunId>, StoreError> {
    let Some((_, first)) = items.first() else { return Err(StoreError::NotFound(Missing::Pending)) };
    let first = first.answer.as_ref().map(|answer| &answer.run);
    for (answer, item) in items {
        match &item.answer {
            Some(recorded) if recorded.body == answer.body && Some(&recorded.run) == first => {}
            Some(_) => return Err(Conflict::Answer(item.id.clone()).into()),
            None if !item.is_open(now) => return Err(StoreError::Expired(item.id.clone())),
            None if first.is_some() => return Err(Conflict::Answer(item.id.clone()).into()),
            None => {}
        }
    }
    Ok(first.cloned())
}

/// Requires that no run has the thread whose state is changed from outside a run.
pub(crate) fn check_not_leased(lease: Option<Lease>) -> Result<(), StoreError> {
    match lease {
        Some(lease) if lease.live => Err(Conflict::Leased(lease.run).into()),
        Some(lease) => Err(Conflict::Orphan(lease.run).into()),
        None => Ok(()),
    }
}

impl Change {
    pub(crate) fn changes_thread(&self) -> bool {
        self.state.is_some() || self.messages.is_some()
    }

    /// Requires that the run has the thread whose state or messages it changes.
    pub(crate) fn check_thread(&self, has_thread: bool, state_seq: u64) -> Result<(), StoreError> {
        if self.changes_thread() && !has_thread {
            return Err(StoreError::Fenced);
        }
        self.state.as_ref().map_or(Ok(()), |state| state.check(state_seq))
    }
}

impl StateChange {
    /// Requires that the caller has seen the current state.
    pub(crate) fn check(&self, current: u64) -> Result<(), StoreError> {
        if self.expected == current { Ok(()) } else { Err(Conflict::State { current }.into()) }
    }
}

impl ThreadChange {
    /// True if it changes what a run writes at its end.
    pub(crate) fn needs_free_thread(&self) -> bool {
        self.state.is_some() || self.messages.is_some()
    }
}

impl TextChange {
    /// Requires that the caller has seen the current text.
    pub(crate) fn check(&self, current: Option<&Text>) -> Result<(), StoreError> {
        if self.expected.as_ref() == current { Ok(()) } else { Err(Conflict::Thread.into()) }
    }
}

impl NewPending {
    /// Requires that the item it replaces, if any, has no answer.
    pub(crate) fn check_replaces(&self, is_answered: bool) -> Result<(), StoreError> {
        if is_answered { Err(Conflict::Answer(self.id.clone()).into()) } else { Ok(()) }
    }
}

impl PendingFilter {
    pub(crate) fn includes(&self, item: &Pending, now: Time) -> bool {
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
