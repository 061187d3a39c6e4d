//! Runs, claims and leases in memory.

use std::{ops::ControlFlow, time::Duration};

use agentwire_core::event::{RunId, ThreadId};

use super::tables::{CommandEntry, ProcessLease, RECORD_BYTES, RunEntry, Tables, ThreadKey};
use crate::{
    clock::Time,
    error::StoreError,
    model::{
        Acquire, Fence, Holder, Lease, NewRun, NewThread, Owner, Page, PageToken, Run, RunKey, RunStatus,
        Seq, Start,
    },
    rules::{Obstacle, REOPENED, capped_lease, decide_start, exceeded, obstacle, page},
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
        let lease = self.lease(owner, &new.thread, now).ok().flatten();
        let status = match decide_start(lease, &queue, new.mode) {
            ControlFlow::Continue(status) => status,
            ControlFlow::Break(refused) => return Ok(refused),
        };
        if let Some(refused) = self.over_quota(owner, &new) {
            return Ok(refused);
        }
        if !self.has_lease(&new.holder, now) {
            return Err(StoreError::Fenced);
        }

        if self.find_thread(owner, &new.thread).is_err() {
            let thread = NewThread { thread: new.thread.clone(), thread_ids: new.thread_ids, metadata: None };
            self.insert_thread(owner, thread, now);
        }
        if let Some(answers) = new.answers {
            self.record_answers(owner, &new.thread, answers, &new.run, now)?;
        }
        let (number, fence) = (self.next_number(), self.next_fence());
        let thread = self.find_thread(owner, &new.thread)?;
        let (upstream_scope, thread_ids) = (thread.upstream_scope.clone(), thread.thread_ids);
        let run = Run {
            run: new.run.clone(),
            thread: new.thread.clone(),
            agent: new.agent,
            upstream_scope,
            thread_ids,
            status,
            cause: new.cause,
            created: now,
            started: (status == RunStatus::Running).then_some(now),
            updated: now,
            first_retained: Seq(0),
            next_seq: Seq(0),
            compacted: false,
            fence,
            holder: new.holder,
        };
        let entry = RunEntry {
            number,
            run: run.clone(),
            is_claimed: true,
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
            thread.leased = Some(new.run);
        } else {
            thread.queue.push(new.run);
        }
        Ok(Start::Created(run))
    }

    fn over_quota(&mut self, owner: &Owner, new: &NewRun) -> Option<Start> {
        let is_new = self.find_thread(owner, &new.thread).is_err();
        for (is_tenant, quota) in [(false, &new.quotas.user), (true, &new.quotas.tenant)] {
            if quota.is_empty() {
                continue;
            }
            let usage = self.usage(&owner.tenant, (!is_tenant).then_some(&owner.user));
            if let Some(quota) = exceeded(quota, &usage, new.input.len(), is_new) {
                return Some(Start::OverQuota { is_tenant, quota });
            }
        }
        None
    }

    /// The claims of the queued runs of a thread before `number`, in queue order.
    fn queue_before(&mut self, owner: &Owner, thread: &ThreadId, number: u64, now: Time) -> Vec<Lease> {
        let Ok(entry) = self.find_thread(owner, thread) else { return Vec::new() };
        let mut queue = std::mem::take(&mut entry.queue);
        let mut claims = Vec::new();
        queue.retain(|run| {
            let Ok(entry) = self.get_run(owner, run) else { return false };
            let is_queued = entry.run.status == RunStatus::Queued;
            if is_queued && entry.number < number {
                claims.push(self.lease_of(entry, now));
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
        now: Time,
    ) -> Result<Acquire, StoreError> {
        let entry = self.get_run(owner, run)?;
        self.claim_state(entry, now).check_acquire(fence)?;
        let (thread, number) = (entry.run.thread.clone(), entry.number);
        let queue = self.queue_before(owner, &thread, number, now);
        match obstacle(self.lease(owner, &thread, now)?, queue.first()) {
            Some(Obstacle::Held(lease)) => return Ok(Acquire::Held(lease)),
            Some(Obstacle::Orphan(run)) => return Ok(Acquire::Orphan(run)),
            None => {}
        }
        let fence = self.next_fence();
        let entry = self.find_thread(owner, &thread)?;
        entry.leased = Some(run.clone());
        entry.updated = now;
        let entry = self.find_run(owner, run)?;
        entry.run.fence = fence;
        entry.run.status = RunStatus::Running;
        entry.run.started = Some(now);
        entry.run.updated = now;
        Ok(Acquire::Granted(entry.run.lease(true)))
    }

    pub(super) fn renew(&mut self, holder: &Holder, ttl: Duration, now: Time) -> bool {
        let was_live = self.has_lease(holder, now);
        self.leases.insert(holder.clone(), ProcessLease { until: now.after(ttl), ttl });
        for lease in self.leases.values_mut() {
            lease.until = capped_lease(lease.until, lease.ttl, now);
        }
        self.leases.retain(|_, lease| lease.until > now);
        was_live
    }

    pub(super) fn retire(&mut self, holder: &Holder) {
        self.leases.remove(holder);
    }

    pub(super) fn release(&mut self, owner: &Owner, run: &RunId, fence: Fence) -> Result<(), StoreError> {
        let entry = self.get_run(owner, run)?;
        self.claim_state(entry, Time(0)).check_release(fence)?;
        self.find_run(owner, run)?.is_claimed = false;
        Ok(())
    }

    /// Removes the claim of a run that has ended and frees its thread.
    pub(super) fn end_claim(&mut self, owner: &Owner, run: &RunId) -> Result<(), StoreError> {
        let entry = self.find_run(owner, run)?;
        entry.is_claimed = false;
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
        Ok(Some(self.lease_of(self.get_run(owner, &run)?, now)))
    }

    pub(super) fn orphans(&self, limit: usize, now: Time) -> Vec<(RunKey, Run)> {
        let is_orphan =
            |entry: &RunEntry| entry.run.status.is_live() && !self.claim_state(entry, now).is_live();
        let mut orphans: Vec<_> = self.runs.iter().filter(|(_, entry)| is_orphan(entry)).collect();
        orphans.sort_by_key(|(_, entry)| entry.number);
        orphans.into_iter().take(limit).map(|(key, entry)| (key.clone(), entry.run.clone())).collect()
    }

    pub(super) fn claimed(&self, holder: &Holder) -> Vec<RunKey> {
        let is_claimed =
            |entry: &RunEntry| entry.run.status.is_live() && entry.is_claimed && entry.run.holder == *holder;
        let mut claimed: Vec<_> = self.runs.iter().filter(|(_, entry)| is_claimed(entry)).collect();
        claimed.sort_by_key(|(_, entry)| entry.number);
        claimed.into_iter().map(|(key, _)| key.clone()).collect()
    }

    pub(super) fn take_over(
        &mut self,
        key: &RunKey,
        seen: Fence,
        holder: &Holder,
        now: Time,
    ) -> Result<Run, StoreError> {
        let entry = self.get_run(&key.owner, &key.run)?;
        entry.run.check_take_over(self.claim_state(entry, now), seen, holder)?;
        if !self.has_lease(holder, now) {
            return Err(StoreError::Fenced);
        }
        let run = entry.run.clone();
        let thread = self.find_thread(&key.owner, &run.thread)?;
        if run.regains_thread(thread.leased.as_ref()) {
            thread.leased = Some(key.run.clone());
        }
        let fence = self.next_fence();
        let is_open =
            |command: &CommandEntry| command.run == *key && command.is_taken && command.reply.is_none();
        for command in self.commands.values_mut().filter(|command| is_open(command)) {
            command.is_taken = false;
            command.deadline = command.deadline.max(now.after(REOPENED));
        }
        let entry = self.find_run(&key.owner, &key.run)?;
        entry.run.fence = fence;
        entry.run.holder = holder.clone();
        entry.is_claimed = true;
        Ok(entry.run.clone())
    }
}
