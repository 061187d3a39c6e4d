//! The recorder: validates, folds, numbers and appends the events of a run.
//!
//! `stage` passes an event through the gateway's own rules and the guard, folds it and encodes it; `flush` appends the
//! staged entries to the log and only then publishes them to the readers.

use std::{
    future::Future,
    sync::{Arc, atomic::AtomicBool},
    time::Duration,
};

use agentwire_core::{
    event::{Body, Event, Outcome, RunError, RunInput},
    fold::{Fold, Join},
    format::hai,
    json::{Footprint, Json, Object},
    order::{Guard, Rule},
};
use agentwire_store::{
    Append, Change, Durability, Fence, Owner, Run, RunStatus, Seq, StatusChange, StoreError,
};
use bytes::Bytes;
use tokio::time::Instant;

use super::{
    Job, control::Control, hooks::RecorderHooks, ids::RunIds, log_failure, resume::Reattachment,
    size::ThreadSize, trace::RunTrace,
};
use crate::{
    codes,
    cpu_work::{self, Seat},
    error::{RunFailure, causes},
    gateway::{AgentEntry, Gateway},
    hooks::HeldLock,
    human::{
        approval::{self, Gated},
        pending,
    },
    limits::{Party, Pressure},
    stream::{
        conversations::Conversation,
        live::{LiveRun, LiveState, LogFailure},
        log_codec::Encoder,
    },
};

/// The largest event, and the most bytes of one append: half of what a store accepts at once, so that the consequences of
/// a terminal event fit beside it.
pub(super) const MAX_EVENT: usize = 32 << 20;

/// Staged bytes that trigger an append while more events are waiting: a patch that does not apply is followed by the whole
/// state, and hundreds of those must not be held in memory.
pub(super) const FLUSH_AT: u64 = 1 << 20;

/// Messages of a snapshot that are compared with the conversation off the workers.
const MANY_MESSAGES: usize = 1000;

/// One append out of this many is measured, because all runs share the histogram.
const FLUSHES_PER_SAMPLE: u64 = 16;

/// Records one run.
pub(super) struct RunRecorder {
    pub(super) gateway: Gateway,
    pub(super) agent: Arc<AgentEntry>,
    pub(super) owner: Owner,
    pub(super) run: Run,
    pub(super) live: Arc<LiveRun>,
    /// The input of the run, with the ids that clients see; its messages are those before the first event of the agent.
    pub(super) input: RunInput,
    pub(super) ids: RunIds,
    /// The client shows all messages of the run as one.
    pub(super) one_message: bool,
    /// The log begins with the messages and the state before the run.
    pub(super) has_start_in_log: bool,
    pub(super) encoding: Encoding,
    pub(super) position: LogPosition,
    pub(super) thread: ThreadStart,
    pub(super) control: Control,
    pub(super) approvals: Approvals,
    /// The part of the log that a reattached agent has not repeated yet.
    pub(super) resume: Option<Reattachment>,
    pub(super) hooks: Option<Box<RecorderHooks>>,
    pub(super) lock: Option<Arc<HeldLock>>,
    pub(super) trace: Option<Box<RunTrace>>,
    /// The time of the request.
    pub(super) requested: Instant,
    /// The time at which the latest events of the agent arrived.
    pub(super) received: Option<Instant>,
}

/// From events to staged log entries.
pub(super) struct Encoding {
    pub(super) guard: Guard,
    encoder: Encoder,
    /// The messages and state of a client that has all staged events.
    pub(super) join: Join,
    /// Encoded entries that are not appended yet.
    pub(super) staged: Vec<Bytes>,
    /// A buffer for the output of the guard.
    valid: Vec<Event>,
    pub(super) is_started: bool,
    pub(super) terminal: Option<TerminalEvent>,
    /// The size of an event that was too large for the log.
    oversized: Option<usize>,
    /// True if a patch took too much work; it is not in the log.
    is_patch_too_costly: bool,
    /// True if a document of the agent would take too much memory; it is not in the log.
    pub(super) has_too_many_values: bool,
    /// The sizes of the thread.
    pub(super) size: ThreadSize,
    pub(super) open_steps: Vec<Box<str>>,
    /// True if a patch of the agent did not apply since its last whole state. Clients got one snapshot then; further
    /// ones would not bring the missing part either.
    pub(super) is_state_diverged: bool,
}

/// The place of the run in its log.
pub(super) struct LogPosition {
    /// The sequence number of the next entry.
    pub(super) next: u64,
    /// The fencing token of the lease.
    pub(super) fence: Fence,
    /// Bytes of all events so far, including the values that their patches copied.
    pub(super) bytes: u64,
    /// `bytes` at the last append.
    pub(super) appended: u64,
}

/// The stored data of the thread at the start of the run.
#[derive(Default)]
pub(super) struct ThreadStart {
    pub(super) state_seq: u64,
    pub(super) stored_state: Option<String>,
    /// The stored messages.
    pub(super) conversation: Option<Arc<Conversation>>,
    /// Whether no message of the thread is stored.
    pub(super) is_new: bool,
    /// True if the client that started the run has all messages before it, in their order.
    pub(super) is_known_to_client: bool,
    /// Whether the agent's side failed to return its history of the thread.
    pub(super) recall_failed: Arc<AtomicBool>,
}

/// The part of the approval gate in the run.
#[derive(Default)]
pub(super) struct Approvals {
    /// Whether a person has approved the calls that this run leaves open.
    pub(super) is_granted: bool,
    pub(super) gated: Gated,
}

/// The terminal event of a run, as far as the store needs it.
pub(super) struct TerminalEvent {
    pub(super) status: RunStatus,
    pub(super) cause: Option<Box<str>>,
    /// The message of an error.
    pub(super) message: Option<Box<str>>,
    pub(super) outcome: Option<Outcome>,
}

impl RunRecorder {
    pub(super) fn new(job: &mut Job, lock: Option<Arc<HeldLock>>) -> Self {
        let trace = job.trace.take();
        let Job { gateway, agent, owner, run, input, one_message, has_start_in_log, live, requested, .. } =
            job;
        let (thread, id) = (&run.thread, &run.run);
        Self {
            encoding: Encoding {
                guard: Guard::new(thread.clone(), id.clone()),
                encoder: Encoder::new(thread, id),
                join: Join::new(Fold::new()),
                staged: Vec::new(),
                valid: Vec::new(),
                is_started: false,
                terminal: None,
                oversized: None,
                is_patch_too_costly: false,
                has_too_many_values: false,
                size: ThreadSize::default(),
                open_steps: Vec::new(),
                is_state_diverged: false,
            },
            position: LogPosition { next: run.next_seq.0, fence: run.fence, bytes: 0, appended: 0 },
            thread: ThreadStart::default(),
            control: Control::new(run.status),
            approvals: Approvals::default(),
            resume: None,
            hooks: None,
            lock,
            trace,
            requested: *requested,
            received: None,
            input: input.clone(),
            ids: RunIds::default(),
            one_message: *one_message,
            has_start_in_log: *has_start_in_log,
            agent: agent.clone(),
            owner: owner.clone(),
            run: run.clone(),
            live: live.clone(),
            gateway: gateway.clone(),
        }
    }

    /// The repairs of the guard, by rule.
    pub(super) fn repairs(&self) -> impl Iterator<Item = (Rule, u64)> {
        self.encoding.guard.repairs()
    }

    /// Waits for a processor if an event may take long to record. It is given back when the result is dropped.
    pub(super) fn reserve(&self, event: &Event) -> impl Future<Output = Option<Seat>> + Send + use<> {
        let payer = self.may_take_long(event).then(|| Party::user(&self.owner));
        async move {
            match payer {
                Some(payer) => Some(cpu_work::seat(payer).await),
                None => None,
            }
        }
    }

    /// An upper bound: which patches take long is known only when they are applied.
    fn may_take_long(&self, event: &Event) -> bool {
        let size = &self.encoding.size;
        match &event.body {
            Body::StateDelta { patch } => cpu_work::is_long_patch(patch, size.state()),
            Body::ActivityDelta { patch, .. } => cpu_work::is_long_patch(patch, size.messages()),
            _ => is_long_snapshot(event) || size.is_measured_for(event),
        }
    }

    /// Stages an event of the gateway, or queues it for the hooks if there are any.
    pub(super) fn stage(&mut self, mut event: Event) {
        if let Some(hooks) = &mut self.hooks {
            hooks.queue.push_back(event);
        } else if self.amend(&mut event) {
            self.stage_guarded(event);
        }
    }

    /// Applies the gateway's rules to an event: its ids, the approval gate, the pending calls. `false` drops the event.
    pub(super) fn amend(&mut self, event: &mut Event) -> bool {
        let mut exceeded = None;
        match &mut event.body {
            // The gateway has staged its own RUN_STARTED with the ids of the request.
            Body::RunStarted(_) if self.encoding.is_started => {
                self.complete_start(event);
                return false;
            }
            Body::RunStarted(_) => self.encoding.is_started = true,
            Body::RunFinished(finished) => {
                finished.thread = self.run.thread.clone();
                finished.run = self.run.run.clone();
                let now = self.gateway.store().now();
                let rules =
                    if self.approvals.is_granted { &[][..] } else { &self.agent.settings.approve[..] };
                let fold = self.encoding.join.fold_mut();
                if let Some((outcome, gated)) =
                    approval::question(fold, finished.outcome.as_ref(), &self.input, rules, now)
                {
                    finished.outcome = Some(outcome);
                    self.approvals.gated = gated;
                }
                let gated = &self.approvals.gated;
                let open = pending::left_open(fold, finished.outcome.as_ref(), &self.input, gated, now);
                exceeded = pending::exceeded_limit(&open);
                if let (None | Some(Outcome::Success { .. }), false) = (&finished.outcome, open.is_empty()) {
                    // An agent need not list the calls that the front end must run; clients need the list.
                    let pending = open.iter().map(|item| item.id.as_str().into()).collect();
                    finished.outcome = Some(Outcome::Success { pending });
                }
            }
            _ => {}
        }
        if let Some(problem) = exceeded {
            event.body = Body::RunError(Box::new(RunError::new(problem, Some(codes::LIMIT_EXCEEDED))));
        }
        true
    }

    /// True if RUN_STARTED is staged and no client has it yet.
    pub(super) fn is_start_held(&self) -> bool {
        self.position.next == 0 && !self.encoding.staged.is_empty()
    }

    /// Adds the ids of a HAI agent's RUN_STARTED to the gateway's, unless clients have that already: the message of the
    /// run, and the agent's own thread and run.
    fn complete_start(&mut self, of_agent: &Event) {
        let Body::RunStarted(ids) = &of_agent.body else { return };
        if !self.agent.agent.speaks_hai() || !self.is_start_held() {
            return;
        }
        let other = [("threadId", (*ids.thread != *self.run.thread).then_some(&*ids.thread))];
        let other = other.into_iter().chain([("runId", (*ids.run != *self.run.run).then_some(&*ids.run))]);
        let metadata = other
            .filter_map(|(key, id)| Some((key, id?)))
            .fold(of_agent.metadata().cloned(), |metadata, (key, id)| Some(hai::noted(metadata, key, id)));
        let Some(metadata) = metadata else { return };
        let own = self.trace.as_ref().map(|trace| trace.metadata());
        let metadata = match own {
            Some(own) => {
                let entries: Vec<_> = metadata.entries().into_iter().chain(own.entries()).collect();
                Object::from_entries(entries.iter().map(|(key, value)| (key.as_str(), value.clone())))
            }
            None => metadata,
        };
        let Some(started) = self.encoding.join.started_mut() else { return };
        *started = started.clone().with_metadata(Some(metadata));
        let mut encoder = Encoder::new(&self.run.thread, &self.run.run);
        if let Some(entry) = encoder.encode(started) {
            self.encoding.staged[0] = entry;
        }
    }

    /// Stages an event through the guard.
    pub(super) fn stage_guarded(&mut self, event: Event) {
        let mut valid = std::mem::take(&mut self.encoding.valid);
        self.encoding.guard.push(event, &mut valid);
        self.stage_valid(&mut valid);
        self.encoding.valid = valid;
    }

    /// Ends the stream at the guard, which closes everything open and adds a terminal event.
    pub(super) fn stage_end(&mut self) {
        let mut valid = std::mem::take(&mut self.encoding.valid);
        self.encoding.guard.end(&agentwire_core::event::StreamEnd::Closed, &mut valid);
        self.stage_valid(&mut valid);
    }

    /// Stages events that the guard has accepted.
    pub(super) fn stage_valid(&mut self, valid: &mut Vec<Event>) {
        let now = i64::try_from(self.gateway.store().now().0).unwrap_or(i64::MAX);
        for mut event in valid.drain(..) {
            event.timestamp.get_or_insert(now);
            if self.is_thread_full(&event) {
                // Ends the run; neither logged nor stored.
                continue;
            }
            let fold = self.encoding.join.fold();
            let (costly, oversized) = (fold.costly_patches(), fold.oversized_patches());
            let is_applied = self.apply(&mut event);
            let fold = self.encoding.join.fold();
            if fold.oversized_patches() != oversized && self.encoding.size.problem().is_some() {
                // Ends the run; neither logged nor stored.
                continue;
            }
            if fold.costly_patches() != costly {
                // Ends the run. Not logged: every reader would repeat the work.
                self.encoding.is_patch_too_costly = true;
                continue;
            }
            let (before, copied) = (self.position.bytes, self.copied_bytes(&event));
            self.position.bytes += copied;
            self.encode(&event);
            self.add_size(&event, usize::try_from(self.position.bytes - before).unwrap_or(usize::MAX));
            if matches!(event.body, Body::StateSnapshot { .. }) {
                self.encoding.is_state_diverged = false;
            } else if !is_applied && !self.encoding.is_state_diverged {
                self.encoding.is_state_diverged = true;
                // Clients cannot apply the patch either: they get the whole state instead.
                let snapshot = Json::from(self.encoding.join.fold().state());
                let fresh = Event::new(Body::StateSnapshot { snapshot }).by(event.subagent).at(Some(now));
                match &mut self.hooks {
                    None => self.encode(&fresh),
                    Some(hooks) => hooks.queue.push_back(fresh),
                }
            }
        }
    }

    /// Folds an event; false for a state patch that does not apply. A patch of an agent that presumes containers is
    /// completed first.
    fn apply(&mut self, event: &mut Event) -> bool {
        let join = &mut self.encoding.join;
        if !matches!(event.body, Body::StateDelta { .. } | Body::ActivityDelta { .. }) {
            match is_long_snapshot(event) {
                true => cpu_work::off_worker(|| join.apply(event)),
                false => join.apply(event),
            }
            return true;
        }
        let max_work = self.gateway.settings().limits.patch().max_work;
        let skipped = join.fold().skipped_patches();
        let refused = |fold: &Fold| fold.costly_patches() + fold.oversized_patches();
        let refused_before = refused(join.fold());
        self.apply_within_room(event, max_work);
        let join = &self.encoding.join;
        let is_state = matches!(event.body, Body::StateDelta { .. });
        if !is_state || join.fold().skipped_patches() == skipped {
            return true;
        }
        if !self.agent.agent.speaks_hai() || refused(join.fold()) != refused_before {
            return false;
        }
        let complete = || hai::with_containers(event, join.fold().state());
        let whole = if self.encoding.size.is_large() { cpu_work::off_worker(complete) } else { complete() };
        let Some(whole) = whole else { return false };
        *event = whole;
        self.apply_within_room(event, max_work);
        true
    }

    /// Bytes that `copy` operations added to the state or an activity. A few bytes of log can add megabytes of memory,
    /// again and again, so they count towards the limits of the run.
    fn copied_bytes(&self, event: &Event) -> u64 {
        match &event.body {
            Body::StateDelta { .. } | Body::ActivityDelta { .. } => {
                self.encoding.join.fold().last_growth().copied as u64
            }
            _ => 0,
        }
    }

    /// Encodes an event as a staged entry.
    pub(super) fn encode(&mut self, event: &Event) {
        if let Some(logged) = self.encoding.encoder.encode(event) {
            if logged.len() > MAX_EVENT {
                return self.reject_oversized(event, logged.len());
            }
            self.position.bytes += logged.len() as u64;
            self.encoding.staged.push(logged);
        }
        if let Some(trace) = &mut self.trace {
            trace.note(event);
        }
        let encoding = &mut self.encoding;
        match &event.body {
            Body::RunFinished(finished) => {
                let is_cancelled = matches!(finished.outcome, Some(Outcome::Cancelled));
                let status = if is_cancelled { RunStatus::Stopped } else { RunStatus::Finished };
                let outcome = finished.outcome.clone();
                encoding.terminal = Some(TerminalEvent { status, cause: None, message: None, outcome });
            }
            Body::RunError(error) => {
                let cause = error.code.clone().or_else(|| Some(error.message.clone()));
                let message = Some(error.message.clone());
                let status = RunStatus::Failed;
                encoding.terminal = Some(TerminalEvent { status, cause, message, outcome: None });
            }
            Body::StepStarted { name } => encoding.open_steps.push(name.clone()),
            Body::StepFinished { name } => encoding.open_steps.retain(|open| open != name),
            _ => {}
        }
    }

    /// Drops an event that is too large for any log, which ends the run. A terminal event of that size is replaced.
    fn reject_oversized(&mut self, event: &Event, size: usize) {
        self.encoding.oversized = Some(size);
        if matches!(event.body, Body::RunFinished(_) | Body::RunError(_)) {
            let message = format!("the last event has {size} bytes, at most {MAX_EVENT} are allowed");
            let error = RunError::new(message, Some(codes::LIMIT_EXCEEDED));
            self.encode(&Event::new(Body::RunError(Box::new(error))).at(event.timestamp));
        }
    }

    /// The limit that the run has exceeded, if any.
    pub(super) fn exceeded_limit(&self) -> Option<RunFailure> {
        let limits = &self.agent.settings.limits;
        let events = self.position.next + self.encoding.staged.len() as u64;
        let problem = if let Some(size) = self.encoding.oversized {
            format!("an event has {size} bytes, at most {MAX_EVENT} are allowed")
        } else if self.encoding.is_patch_too_costly {
            let limit = self.gateway.settings().limits.patch().max_work;
            format!("a patch moves, copies and compares more than {limit} bytes")
        } else if self.encoding.has_too_many_values {
            format!("an event {}", Footprint::PROBLEM)
        } else if let Some(problem) = self.encoding.size.problem() {
            return Some(RunFailure::ThreadTooLarge(problem));
        } else if events > limits.max_events {
            format!("the run has more than {} events", limits.max_events)
        } else if self.position.bytes > limits.max_bytes {
            format!("the run has more than {} bytes", limits.max_bytes)
        } else {
            return None;
        };
        Some(RunFailure::LimitExceeded(problem))
    }

    /// Appends the staged entries to the log and publishes them.
    pub(super) async fn flush(&mut self) -> Result<(), LogFailure> {
        let status = self.control.status_change.take().map(StatusChange::to);
        if !self.encoding.staged.is_empty() || status.is_some() {
            self.append(Change { status, ..Change::default() }, LiveState::Running).await?;
        }
        // A hook may have dropped the event that a client waits for.
        self.control.notify_waiters();
        Ok(())
    }

    pub(super) async fn append(&mut self, mut change: Change, state: LiveState) -> Result<(), LogFailure> {
        while let Some(rest) = split_off_beyond(MAX_EVENT, &mut self.encoding.staged) {
            let events = std::mem::replace(&mut self.encoding.staged, rest);
            self.append_batch(events, Change::default(), LiveState::Running).await?;
        }
        let events = std::mem::take(&mut self.encoding.staged);
        self.position.appended = self.position.bytes;
        change.replies.append(&mut self.control.replies);
        self.append_batch(events, change, state).await?;
        self.control.notify_waiters();
        Ok(())
    }

    /// One append, with retries while the store is unavailable.
    async fn append_batch(
        &mut self,
        events: Vec<Bytes>,
        mut change: Change,
        state: LiveState,
    ) -> Result<(), LogFailure> {
        let store = self.gateway.store().clone();
        let started = Instant::now();
        let mut backoff = Duration::from_millis(10);
        let mut is_revived = false;
        // True after an attempt that the store may have carried out.
        let mut is_unsure = false;
        let next = loop {
            let append = Append {
                owner: self.owner.clone(),
                run: self.run.run.clone(),
                fence: self.position.fence,
                first_seq: Seq(self.position.next),
                events: events.clone(),
                change: change.clone(),
                durability: Durability::Memory,
            };
            let mut appended = store.append(append).await;
            is_unsure |= appended.as_ref().is_err_and(StoreError::is_fault);
            if matches!(appended, Err(StoreError::Fenced)) && !is_revived {
                // The lease may only have expired, while the store was unavailable or this process suspended.
                match self.gateway.renew_lease().await {
                    Ok(()) => {
                        is_revived = true;
                        continue;
                    }
                    Err(error) => appended = Err(error),
                }
            }
            self.gateway.note_store_result(&appended);
            let patience = self.gateway.settings().store_patience;
            match appended {
                Ok(appended) => {
                    self.live.set_epoch(appended.epoch);
                    break appended.next_seq.0;
                }
                Err(error) if error.is_fault() && started.elapsed() < patience => {
                    self.gateway.metrics().flush_failures.inc();
                    let error = causes(&error);
                    tracing::warn!(run = %self.run.run, error, "an append failed and will be retried");
                    tokio::time::sleep(backoff).await;
                    backoff = (backoff * 2).min(Duration::from_secs(1));
                }
                // The run must end; the thread keeps its previous messages and state.
                Err(error @ StoreError::TooLarge { .. })
                    if change.messages.is_some() || change.state.is_some() =>
                {
                    tracing::error!(run = %self.run.run, %error, "the conversation is too large to be kept");
                    (change.messages, change.state) = (None, None);
                }
                Err(error) => {
                    let failure = log_failure(&error);
                    let error = causes(&error);
                    tracing::error!(run = %self.run.run, error, "the log of a run cannot be written any more");
                    if is_unsure {
                        self.control.fail_waiters();
                    }
                    return Err(failure);
                }
            }
        };
        let metrics = self.gateway.metrics();
        metrics.flushes.inc();
        metrics.events.inc_by(events.len() as u64);
        metrics.event_bytes.inc_by(events.iter().map(|event| event.len() as u64).sum());
        if self.position.next.is_multiple_of(FLUSHES_PER_SAMPLE) {
            metrics.flush_seconds.observe(started.elapsed().as_secs_f64());
        }
        self.position.next = next;
        self.live.publish_received(events, state, self.received.unwrap_or(started));
        if self.gateway.memory().pressure() >= Pressure::High {
            self.live.cut_slow_readers();
        }
        Ok(())
    }
}

/// Folds a patch: with little work on this thread, and off the workers if that is not enough.
pub(super) fn apply_patch(join: &mut Join, event: &Event, max_work: usize) {
    let (costly, short) = (join.fold().costly_patches(), cpu_work::SHORT_WORK.min(max_work));
    join.fold_mut().limit_patch_work(short);
    join.apply(event);
    if join.fold().costly_patches() != costly && short < max_work {
        join.fold_mut().forget_costly_patch();
        join.fold_mut().limit_patch_work(max_work);
        cpu_work::off_worker(|| join.apply(event));
    }
}

/// True for a snapshot that takes longer to fold than a worker should be occupied.
fn is_long_snapshot(event: &Event) -> bool {
    match &event.body {
        Body::StateSnapshot { snapshot } => snapshot.get().len() > cpu_work::SHORT_TEXT,
        Body::MessagesSnapshot { messages } => messages.len() > MANY_MESSAGES,
        _ => false,
    }
}

/// Splits the entries beyond `limit` bytes off, unless the first one alone exceeds it.
fn split_off_beyond(limit: usize, staged: &mut Vec<Bytes>) -> Option<Vec<Bytes>> {
    let mut bytes = 0;
    let fits = staged.iter().position(|event| {
        bytes += event.len();
        bytes > limit
    });
    fits.filter(|count| *count > 0).map(|count| staged.split_off(count))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_appends_are_split_in_order() {
        for sizes in [vec![], vec![3], vec![4, 4, 4], vec![10], vec![1, 10, 1], vec![5, 5, 1, 9, 2]] {
            let all: Vec<Bytes> = sizes.iter().map(|size| Bytes::from(vec![b'x'; *size])).collect();
            let mut staged = all.clone();
            let mut appended = Vec::new();
            while let Some(rest) = split_off_beyond(10, &mut staged) {
                assert!(staged.iter().map(Bytes::len).sum::<usize>() <= 10, "{sizes:?}");
                appended.extend(std::mem::replace(&mut staged, rest));
            }
            appended.extend(staged);
            assert_eq!(appended, all);
        }
    }
}
