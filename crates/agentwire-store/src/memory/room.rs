//! Staying within bounds: what is forgotten first, what retention gives up, and how much there is.

use std::collections::HashSet;

use agentwire_core::event::ThreadId;

use super::table::{Tables, ThreadKey};
use crate::{
    clock::Time,
    error::StoreError,
    model::{Owner, Retained, Retention, RunKey, RunStatus, Stats, Which},
};

impl Tables {
    /// Makes room for `more` bytes that are about to be written to the thread `keep`.
    ///
    /// Forgets down to nine tenths of the limit, so that a store at its limit does not search on every call.
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

    /// Whether a thread has a run that is live or waits for somebody.
    fn is_busy(&self, key: &ThreadKey) -> bool {
        self.runs_of(key).any(|run| run.is_live() || run == RunStatus::Waiting)
    }

    fn runs_of(&self, key: &ThreadKey) -> impl Iterator<Item = RunStatus> {
        let runs = self.threads.get(key).map(|entry| entry.runs.values()).into_iter().flatten();
        runs.filter_map(|run| {
            let key = RunKey { owner: key.owner.clone(), run: run.clone() };
            self.runs.get(&key).map(|entry| entry.run.status)
        })
    }

    /// Drops the log and the input of an ended run. Says whether there was anything to drop.
    fn drop_log(&mut self, key: &RunKey) -> bool {
        let Some(entry) = self.runs.get_mut(key).filter(|entry| !entry.run.status.is_live()) else {
            return false;
        };
        let before = entry.bytes();
        let held = entry.input.take().is_some() | entry.run.compacted | !entry.chunks.is_empty();
        entry.chunks = Vec::new();
        entry.compacted = Vec::new();
        entry.log_bytes = 0;
        entry.run.compacted = false;
        entry.run.first_retained = entry.run.next_seq;
        self.bytes -= before - entry.bytes();
        held
    }

    pub(super) fn retain(&mut self, retention: &Retention, now: Time) -> Retained {
        let mut retained = Retained::default();
        let waiting: Vec<RunKey> = self
            .runs
            .iter()
            .filter(|(_, entry)| entry.run.status == RunStatus::Waiting)
            .map(|(key, _)| key.clone())
            .collect();
        for key in waiting {
            retained.expired += u64::from(self.finish_if_nothing_open(&key, now));
        }

        let mut threads: HashSet<ThreadKey> = HashSet::new();
        if let Some(age) = retention.thread_age {
            let old = self.threads.iter().filter(|(_, entry)| entry.updated <= now.before(age));
            threads.extend(old.map(|(key, _)| key.clone()));
        }
        if let Some(keep) = retention.threads_per_owner {
            for (owner, of_owner) in &self.by_owner {
                let beyond = of_owner.values().rev().skip(keep);
                threads
                    .extend(beyond.map(|thread| ThreadKey { owner: owner.clone(), thread: thread.clone() }));
            }
        }
        for key in threads {
            if !self.runs_of(&key).any(RunStatus::is_live)
                && self.delete_thread(&key.owner, &key.thread).is_ok()
            {
                retained.threads += 1;
            }
        }

        let mut logs: HashSet<RunKey> = HashSet::new();
        if let Some(age) = retention.log_age {
            let old = self.runs.iter().filter(|(_, entry)| entry.run.updated <= now.before(age));
            logs.extend(old.map(|(key, _)| key.clone()));
        }
        if let Some(keep) = retention.logs_per_thread {
            for (key, entry) in &self.threads {
                let beyond = entry.runs.values().rev().skip(keep);
                logs.extend(beyond.map(|run| RunKey { owner: key.owner.clone(), run: run.clone() }));
            }
        }
        for key in logs {
            retained.logs += u64::from(self.drop_log(&key));
        }
        retained
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
            stats.open_pending += entry.pending(&Which::Open, now).len() as u64;
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
