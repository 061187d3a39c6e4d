//! Runs, claims and leases in memory.

use std::{ops::ControlFlow, time::Duration};

use agentwire_core::event::{RunId, ThreadId};

use super::tables::{RECORD_BYTES, RunEntry, Tables, ThreadKey};
use crate::{
    clock::Time,
    error::StoreError,
    model::{
        Acquire, Claim, Fence, Holder, Lease, NewRun, NewThread, Owner, Page, PageToken, Run, RunKey,
        RunStatus, Seq, Start,
    },
    rules::{decide_start, page},
};

impl Tables {
    pub(super) fn start(&mut self, owner: &Owner, new: NewRun, now: Time) -> Result<Start, StoreError> {
        if let Ok(existing) = self.find_run(owner, &new.run) {
            return Ok(Start::Exists(existing.run.clone()));
        }
        self.make_room(2 * RECORD_BYTES + new.size(), (owner, &new.thread))?;
        if let Some(answers) = &new.answers
            && let Some(first) = self.check_answers(owner, &new.thread, answers, now)?
        {
            return Ok(Start::Answered(first));
        }
        let queue = self.queue_before(owner, &new.thread, u64::MAX, now);
        let status = match decide_start(self.live_lease(owner, &new.thread, now), &queue, new.mode) {
            ControlFlow::Continue(status) => status,
            ControlFlow::Break(refused) => return Ok(refused),
        };

        if self.find_thread(owner, &new.thread).is_err() {
            let thread = NewThread { thread: new.thread.clone(), metadata: None };
            self.insert_thread(owner, thread, now);
        }
        if let Some(answers) = new.answers {
            self.record_answers(owner, &new.thread, answers, &new.run, now)?;
        }
        let (number, fence) = (self.next_number(), self.next_fence());
        let upstream_scope = self.find_thread(owner, &new.thread)?.upstream_scope.clone();
        let run = Run {
            run: new.run.clone(),
            thread: new.thread.clone(),
            agent: new.agent,
            upstream_scope,
            status,
            cause: new.cause,
            created: now,
            started: (status == RunStatus::Running).then_some(now),
            updated: now,
            first_retained: Seq(0),
            next_seq: Seq(0),
            compacted: false,
            fence,
            holder: new.claim.holder,
        };
        let entry = RunEntry {
            number,
            run: run.clone(),
            address: new.claim.address,
            lease_until: Some(now.after(new.claim.ttl)),
            input: Some(new.input),
            chunks: Vec::new(),
            compacted: Vec::new(),
            log_bytes: 0,
        };
        self.bytes += entry.bytes();
        self.runs.insert(RunKey { owner: owner.clone(), run: new.run.clone() }, entry);
        let thread = self.find_thread(owner, &new.thread)?;
        thread.runs.insert(number, new.run.clone());
        thread.updated = now;
        if status == RunStatus::Running {
            self.grant_thread(owner, &new.thread, &new.run)?;
        } else {
            thread.queue.push(new.run);
        }
        Ok(Start::Created(run))
    }

    /// Points the thread at a run; the previous run, if any, loses its claim.
    fn grant_thread(&mut self, owner: &Owner, thread: &ThreadId, run: &RunId) -> Result<(), StoreError> {
        let before = self.find_thread(owner, thread)?.leased.replace(run.clone());
        if let Some(before) = before.filter(|before| before != run)
            && let Ok(before) = self.find_run(owner, &before)
        {
            before.lease_until = None;
        }
        Ok(())
    }

    /// The lease on a thread, if it has not expired.
    fn live_lease(&mut self, owner: &Owner, thread: &ThreadId, now: Time) -> Option<Lease> {
        self.lease(owner, thread, now).ok()?.filter(|lease| lease.live)
    }

    /// Live claims of the queued runs of a thread before `number`, in queue order.
    fn queue_before(&mut self, owner: &Owner, thread: &ThreadId, number: u64, now: Time) -> Vec<Lease> {
        let Ok(entry) = self.find_thread(owner, thread) else { return Vec::new() };
        let mut queue = std::mem::take(&mut entry.queue);
        let mut claims = Vec::new();
        queue.retain(|run| {
            let Ok(entry) = self.find_run(owner, run) else { return false };
            let is_queued = entry.run.status == RunStatus::Queued;
            if is_queued && entry.number < number && entry.claim_state().is_live(now) {
                claims.extend(entry.lease(now));
            }
            is_queued
        });
        if let Ok(entry) = self.find_thread(owner, thread) {
            entry.queue = queue;
        }
        claims
    }

    pub(super) fn list_runs(
        &mut self,
        owner: &Owner,
        thread: &ThreadId,
        before: Option<PageToken>,
        limit: usize,
    ) -> Result<Page<Run>, StoreError> {
        self.find_thread(owner, thread)?;
        let below = before.map_or(u64::MAX, |token| token.0);
        let key = ThreadKey { owner: owner.clone(), thread: thread.clone() };
        let runs = self.threads.get(&key).map(|entry| &entry.runs).into_iter();
        let runs = runs.flat_map(|runs| runs.range(..below).rev()).filter_map(|(number, run)| {
            let key = RunKey { owner: owner.clone(), run: run.clone() };
            self.runs.get(&key).map(|entry| Ok((*number, entry.run.clone())))
        });
        page(runs, limit)
    }

    pub(super) fn acquire(
        &mut self,
        owner: &Owner,
        run: &RunId,
        fence: Fence,
        ttl: Duration,
        now: Time,
    ) -> Result<Acquire, StoreError> {
        let entry = self.find_run(owner, run)?;
        entry.claim_state().check_acquire(fence)?;
        let (thread, number) = (entry.run.thread.clone(), entry.number);
        let held = self.live_lease(owner, &thread, now);
        if let Some(lease) =
            held.or_else(|| self.queue_before(owner, &thread, number, now).into_iter().next())
        {
            return Ok(Acquire::Held(lease));
        }
        let fence = self.next_fence();
        self.grant_thread(owner, &thread, run)?;
        self.find_thread(owner, &thread)?.updated = now;
        let entry = self.find_run(owner, run)?;
        entry.run.fence = fence;
        entry.run.status = RunStatus::Running;
        entry.run.started = Some(now);
        entry.run.updated = now;
        entry.lease_until = Some(now.after(ttl));
        entry.lease(now).map(Acquire::Granted).ok_or(StoreError::Fenced)
    }

    pub(super) fn renew(
        &mut self,
        owner: &Owner,
        run: &RunId,
        fence: Fence,
        ttl: Duration,
        now: Time,
    ) -> Result<Lease, StoreError> {
        let entry = self.find_run(owner, run)?;
        entry.claim_state().check(fence)?;
        entry.lease_until = Some(now.after(ttl));
        entry.lease(now).ok_or(StoreError::Fenced)
    }

    pub(super) fn release(&mut self, owner: &Owner, run: &RunId, fence: Fence) -> Result<(), StoreError> {
        self.find_run(owner, run)?.claim_state().check_release(fence)?;
        self.end_claim(owner, run)
    }

    /// Removes the claim of a run and releases its thread if it has one.
    pub(super) fn end_claim(&mut self, owner: &Owner, run: &RunId) -> Result<(), StoreError> {
        let entry = self.find_run(owner, run)?;
        entry.lease_until = None;
        let thread = entry.run.thread.clone();
        let thread = self.find_thread(owner, &thread)?;
        thread.leased.take_if(|leased| leased == run);
        Ok(())
    }

    pub(super) fn lease(
        &mut self,
        owner: &Owner,
        thread: &ThreadId,
        now: Time,
    ) -> Result<Option<Lease>, StoreError> {
        let Some(run) = self.find_thread(owner, thread)?.leased.clone() else { return Ok(None) };
        Ok(self.find_run(owner, &run)?.lease(now))
    }

    pub(super) fn orphans(&self, dead: Option<&Holder>, limit: usize, now: Time) -> Vec<(RunKey, Run)> {
        let mut orphans: Vec<_> =
            self.runs.iter().filter(|(_, entry)| entry.run.is_orphan(entry.lease_until, dead, now)).collect();
        orphans.sort_by_key(|(_, entry)| entry.number);
        orphans.into_iter().take(limit).map(|(key, entry)| (key.clone(), entry.run.clone())).collect()
    }

    pub(super) fn take_over(
        &mut self,
        key: &RunKey,
        seen: Fence,
        dead: Option<&Holder>,
        claim: Claim,
        now: Time,
    ) -> Result<Run, StoreError> {
        let entry = self.find_run(&key.owner, &key.run)?;
        entry.run.check_take_over(entry.lease_until, seen, dead, now)?;
        let run = entry.run.clone();
        let lease = self.live_lease(&key.owner, &run.thread, now);
        if run.regains_thread(lease.as_ref()) {
            self.grant_thread(&key.owner, &run.thread, &key.run)?;
        }
        let fence = self.next_fence();
        let entry = self.find_run(&key.owner, &key.run)?;
        entry.run.fence = fence;
        entry.run.holder = claim.holder;
        entry.address = claim.address;
        entry.lease_until = Some(now.after(claim.ttl));
        Ok(entry.run.clone())
    }
}
