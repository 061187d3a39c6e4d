//! Appends, reads and compaction in memory.

use agentwire_core::event::RunId;
use bytes::Bytes;

use super::tables::{Chunk, RECORD_BYTES, RunEntry, Tables, events_bytes};
use crate::{
    clock::Time,
    error::StoreError,
    model::{Append, Appended, Change, Fence, Log, LogSlice, Owner, RunKey, Seq, text_len},
    rules::{Fetch, check_size, fetch, is_lease_live},
};

impl Tables {
    pub(super) fn append(&mut self, append: Append, now: Time) -> Result<Appended, StoreError> {
        check_size("an append", append.size())?;
        let Append { owner, run, fence, first_seq, events, change, .. } = append;
        let added = events_bytes(&events);
        let key = RunKey { owner, run };
        if change == Change::default()
            && self.bytes.saturating_add(added) <= self.limits.bytes
            && let Some(entry) = self.runs.get_mut(&key)
            && entry.run.next_seq == first_seq
        {
            // Most appends: the next events of a run, which is looked up once.
            let lease = self.leases.get(&entry.run.holder);
            let has_live_holder = is_lease_live(lease.map(|lease| lease.until), now);
            let claim = entry.run.claim_state(entry.is_claimed, has_live_holder);
            claim.check_append(fence, (first_seq, first_seq), None)?;
            self.bytes += added;
            let next_seq = entry.push(first_seq, fence, events, added);
            return Ok(Appended { next_seq, repeated: false, epoch: 0 });
        }
        let RunKey { owner, run } = key;
        let entry = self.get_run(&owner, &run)?;
        let next_seq = entry.run.next_seq;
        if !events.is_empty() && first_seq < next_seq {
            let stored = entry.chunk_at(first_seq);
            if stored.is_some_and(|stored| stored.fence == fence && stored.events == events) {
                return Ok(Appended { next_seq: first_seq.plus(events.len()), repeated: true, epoch: 0 });
            }
        }
        let claim = self.claim_state(entry, now);
        claim.check_append(fence, (first_seq, next_seq), change.status.as_ref())?;
        let thread = entry.run.thread.clone();
        let touches_thread = change.changes_thread() || change.status.is_some();
        if touches_thread || !change.pending.is_empty() {
            let texts = change.state.as_ref().map_or(0, |state| state.body.len())
                + text_len(&change.messages)
                + change.pending.iter().map(|item| RECORD_BYTES + item.body.len()).sum::<usize>();
            self.make_room(added + texts, (&owner, &thread))?;
            let thread = self.find_thread(&owner, &thread)?;
            change.check_thread(thread.leased.as_ref() == Some(&run), thread.state.seq)?;
            thread.check_insert_pending(&run, &change.pending)?;

            let before = thread.bytes();
            thread.apply(change.state, change.messages);
            thread.insert_pending(&run, change.pending, now);
            if touches_thread {
                thread.updated = now;
            }
            let after = thread.bytes();
            self.bytes = self.bytes - before + after;
        } else {
            self.make_room(added, (&owner, &thread))?;
        }

        self.bytes += added;
        let next_seq = self.find_run(&owner, &run)?.push(first_seq, fence, events, added);
        for reply in change.replies {
            self.reply(reply.id, fence, reply.body);
        }
        if let Some(status) = change.status {
            let entry = self.find_run(&owner, &run)?;
            entry.run.status = status.to;
            entry.run.updated = now;
            entry.run.cause = status.cause;
            if !status.to.is_live() {
                self.end_claim(&owner, &run)?;
                self.queue_for_eviction(RunKey { owner, run });
            }
        }
        Ok(Appended { next_seq, repeated: false, epoch: 0 })
    }

    pub(super) fn compactable(&self, before: Time, limit: usize) -> Vec<RunKey> {
        let mut due: Vec<_> = self
            .runs
            .iter()
            .filter(|(_, entry)| !entry.run.status.is_live() && entry.run.updated <= before)
            .filter(|(_, entry)| entry.run.first_retained < entry.run.next_seq)
            .collect();
        due.sort_by_key(|(_, entry)| (entry.run.updated, entry.number));
        due.into_iter().take(limit).map(|(key, _)| key.clone()).collect()
    }

    pub(super) fn compact(
        &mut self,
        owner: &Owner,
        run: &RunId,
        events: Vec<Bytes>,
    ) -> Result<(), StoreError> {
        let record = &self.find_run(owner, run)?.run;
        record.check_ended()?;
        let thread = record.thread.clone();
        check_size("a compacted log", events.iter().map(Bytes::len).sum())?;
        let after = events_bytes(&events);
        self.make_room(after, (owner, &thread))?;
        let entry = self.find_run(owner, run)?;
        let before = std::mem::replace(&mut entry.log_bytes, after);
        entry.chunks = Vec::new();
        entry.compacted = events;
        entry.run.compacted = true;
        entry.run.first_retained = entry.run.next_seq;
        self.bytes = self.bytes - before + after;
        Ok(())
    }
}

impl RunEntry {
    /// Adds events of `bytes` bytes at the end of the log; returns the number of the next event.
    fn push(&mut self, first_seq: Seq, fence: Fence, events: Vec<Bytes>, bytes: usize) -> Seq {
        self.log_bytes += bytes;
        self.run.next_seq = first_seq.plus(events.len());
        if !events.is_empty() {
            self.chunks.push(Chunk { first_seq, fence, events });
        }
        self.run.next_seq
    }

    fn chunk_at(&self, first_seq: Seq) -> Option<&Chunk> {
        let at = self.chunks.binary_search_by_key(&first_seq, |chunk| chunk.first_seq).ok()?;
        self.chunks.get(at)
    }

    pub(super) fn read(&self, after: Option<Seq>, limit: usize) -> Log {
        let (next_seq, status) = (self.run.next_seq, self.run.status);
        let first_seq = match fetch(&self.run, after) {
            Fetch::Nothing(log) => return log,
            Fetch::Compacted => return Log::Compacted { events: self.compacted.clone(), next_seq, status },
            Fetch::From(first_seq) => first_seq,
        };
        let from = self.chunks.partition_point(|chunk| chunk.first_seq.plus(chunk.events.len()) <= first_seq);
        let mut events = Vec::new();
        let mut size = 0;
        let later = self.chunks.iter().skip(from);
        let mut all = later.flat_map(|chunk| (chunk.first_seq.0..).zip(&chunk.events));
        for (_, event) in all.by_ref().skip_while(|(seq, _)| *seq < first_seq.0) {
            size += event.len();
            if size > limit && !events.is_empty() {
                break;
            }
            events.push(event.clone());
        }
        Log::Exact(LogSlice { first_seq, events, next_seq, status, epoch: 0 })
    }
}
