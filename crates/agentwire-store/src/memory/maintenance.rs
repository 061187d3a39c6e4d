//! Eviction at the size limit, retention and statistics in memory.

use std::collections::HashSet;

use agentwire_core::event::ThreadId;

use super::tables::{Tables, ThreadKey};
use crate::{
    clock::Time,
    error::StoreError,
    model::{
        Owner, PendingFilter, Retention, RetentionReport, RunKey, RunStatus, Stats, Tenant, Usage, UserId,
    },
};

impl Tables {
    /// Evicts records until `more` bytes fit; never evicts the thread `keep`, which is about to be written.
    ///
    /// Evicts down to nine tenths of the limit, so that a store at its limit does not search on every call.
    pub(super) fn make_room(&mut self, more: usize, keep: (&Owner, &ThreadId)) -> Result<(), StoreError> {
        let limit = self.limits.bytes;
        if self.bytes.saturating_add(more) <= limit {
            return Ok(());
        }
        if more > limit {
            return Err(StoreError::TooLarge { what: "a write", size: more, limit });
        }
        let goal = (limit - limit / 10).saturating_sub(more);
        while self.bytes > goal {
            let Some(key) = self.ended.pop_front() else { break };
            self.drop_log(&key);
        }
        if self.bytes > goal {
            let mut idle: Vec<(Time, u64, ThreadKey)> = self
                .threads
                .iter()
                .filter(|(key, _)| (&key.owner, &key.thread) != keep && !self.is_busy(key))
                .map(|(key, entry)| (entry.updated, entry.number, key.clone()))
                .collect();
            idle.sort_by_key(|(updated, number, _)| (*updated, *number));
            for (_, _, key) in idle {
                if self.bytes <= goal {
                    break;
                }
                self.delete_thread(&key.owner, &key.thread)?;
            }
        }
        if self.bytes.saturating_add(more) <= limit { Ok(()) } else { Err(StoreError::Full) }
    }

    /// Whether a thread has a live run or one with open pending items.
    fn is_busy(&self, key: &ThreadKey) -> bool {
        self.run_statuses(key).any(|status| status.is_live() || status == RunStatus::Waiting)
    }

    fn run_statuses(&self, key: &ThreadKey) -> impl Iterator<Item = RunStatus> {
        let runs = self.threads.get(key).map(|entry| entry.runs.values()).into_iter().flatten();
        runs.filter_map(|run| {
            let key = RunKey { owner: key.owner.clone(), run: run.clone() };
            self.runs.get(&key).map(|entry| entry.run.status)
        })
    }

    /// Drops the log and the input of an ended run. Returns whether there was one.
    fn drop_log(&mut self, key: &RunKey) -> bool {
        let Some(entry) = self.runs.get_mut(key).filter(|entry| !entry.run.status.is_live()) else {
            return false;
        };
        let before = entry.bytes();
        let had_data = entry.input.take().is_some() | entry.run.compacted | !entry.chunks.is_empty();
        entry.chunks = Vec::new();
        entry.compacted = Vec::new();
        entry.log_bytes = 0;
        entry.run.compacted = false;
        entry.run.first_retained = entry.run.next_seq;
        self.bytes -= before - entry.bytes();
        had_data
    }

    pub(super) fn retain(&mut self, retention: &Retention, now: Time) -> RetentionReport {
        let mut report = RetentionReport::default();
        let waiting: Vec<RunKey> = self
            .runs
            .iter()
            .filter(|(_, entry)| entry.run.status == RunStatus::Waiting)
            .map(|(key, _)| key.clone())
            .collect();
        for key in waiting {
            report.expired += u64::from(self.finish_if_all_closed(&key, now));
        }

        let mut threads: HashSet<ThreadKey> = HashSet::new();
        if let Some(age) = retention.thread_age {
            let expired = self.threads.iter().filter(|(_, entry)| entry.updated <= now.before(age));
            threads.extend(expired.map(|(key, _)| key.clone()));
        }
        if let Some(keep) = retention.threads_per_owner {
            for (owner, numbers) in &self.by_owner {
                let beyond = numbers.values().rev().skip(keep);
                threads
                    .extend(beyond.map(|thread| ThreadKey { owner: owner.clone(), thread: thread.clone() }));
            }
        }
        for key in threads {
            if !self.run_statuses(&key).any(RunStatus::is_live)
                && self.delete_thread(&key.owner, &key.thread).is_ok()
            {
                report.threads += 1;
            }
        }

        let mut logs: HashSet<RunKey> = HashSet::new();
        if let Some(age) = retention.log_age {
            let expired = self.runs.iter().filter(|(_, entry)| entry.run.updated <= now.before(age));
            logs.extend(expired.map(|(key, _)| key.clone()));
        }
        if let Some(keep) = retention.logs_per_thread {
            for (key, entry) in &self.threads {
                let beyond = entry.runs.values().rev().skip(keep);
                logs.extend(beyond.map(|run| RunKey { owner: key.owner.clone(), run: run.clone() }));
            }
        }
        for key in logs {
            report.logs += u64::from(self.drop_log(&key));
        }
        report
    }

    /// The live runs and the stored data of a user, or of all users of a tenant.
    pub(super) fn usage(&self, tenant: &Tenant, user: Option<&UserId>) -> Usage {
        let is_theirs =
            |owner: &Owner| owner.tenant == *tenant && user.is_none_or(|user| owner.user == *user);
        let mut usage = Usage::default();
        for (_, entry) in self.threads.iter().filter(|(key, _)| is_theirs(&key.owner)) {
            let texts = [entry.messages.as_deref(), entry.state.body.as_deref()];
            usage.threads += 1;
            usage.bytes += texts.into_iter().flatten().map(|text| text.len() as u64).sum::<u64>();
        }
        for (_, entry) in self.runs.iter().filter(|(key, _)| is_theirs(&key.owner)) {
            usage.runs += u64::from(entry.run.status.is_live());
            usage.bytes += (entry.log_bytes + entry.input.as_deref().map_or(0, str::len)) as u64;
        }
        usage
    }

    pub(super) fn stats(&self, now: Time) -> Stats {
        let mut stats = Stats {
            backend: "memory",
            threads: self.threads.len() as u64,
            runs: self.runs.len() as u64,
            bytes: self.bytes as u64,
            ..Stats::default()
        };
        for entry in self.threads.values() {
            stats.feedback += entry.feedback.len() as u64;
            stats.open_pending += entry.pending(&PendingFilter::Open, now).len() as u64;
        }
        for entry in self.runs.values() {
            stats.live_runs += u64::from(entry.run.status.is_live());
            stats.events += entry.run.next_seq.0 - entry.run.first_retained.0;
            let chunks = entry.chunks.iter().flat_map(|chunk| &chunk.events);
            stats.log_bytes += chunks.chain(&entry.compacted).map(|event| event.len() as u64).sum::<u64>();
        }
        stats
    }
}
