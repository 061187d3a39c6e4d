//! Tables of the memory store, and lookups in them.

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    time::Duration,
};

use agentwire_core::event::{RunId, ThreadId};
use bytes::Bytes;

use super::MemoryLimits;
use crate::{
    clock::Time,
    error::{Missing, StoreError},
    model::{
        ApiKey, CommandId, Feedback, Fence, Holder, Lease, Owner, Pending, Run, RunKey, Seq, State, Tenant,
        Text, Thread, ThreadIds, UserId, text_len,
    },
    rules::{ClaimState, is_lease_live},
};

/// Size of a record without its texts: a generous estimate of the structs, their ids and table slots.
pub(super) const RECORD_BYTES: usize = 768;
/// Overhead of an event: the handle, its reference counter and the allocator's rounding.
pub(super) const EVENT_BYTES: usize = 64;

#[derive(Debug)]
pub(super) struct Tables {
    pub(super) limits: MemoryLimits,
    /// Total size of all entries.
    pub(super) bytes: usize,
    /// The last fencing token issued.
    pub(super) fence: u64,
    /// The last number assigned to a thread or run; lists are ordered by it.
    pub(super) number: u64,
    pub(super) threads: HashMap<ThreadKey, ThreadEntry>,
    /// Threads of each owner, by number.
    pub(super) by_owner: HashMap<Owner, BTreeMap<u64, ThreadId>>,
    /// Number of agents with a thread of this user and id.
    pub(super) agents_of_id: HashMap<(Tenant, UserId, ThreadId), usize>,
    pub(super) runs: HashMap<RunKey, RunEntry>,
    /// The leases of processes.
    pub(super) leases: BTreeMap<Holder, ProcessLease>,
    /// Commands, in the order in which they were sent.
    pub(super) commands: BTreeMap<CommandId, CommandEntry>,
    /// Until when processes have readers of a run.
    pub(super) readers: HashMap<RunKey, HashMap<Holder, Time>>,
    /// API keys, each with the version of its last change.
    pub(super) keys: Vec<(u64, ApiKey)>,
    /// Ended runs in order of eviction. May contain deleted runs.
    pub(super) ended: VecDeque<RunKey>,
}

/// The lease of a process.
#[derive(Clone, Copy, Debug)]
pub(super) struct ProcessLease {
    pub(super) until: Time,
    pub(super) ttl: Duration,
}

#[derive(Debug)]
pub(super) struct CommandEntry {
    pub(super) run: RunKey,
    pub(super) body: Text,
    pub(super) deadline: Time,
    pub(super) is_taken: bool,
    pub(super) reply: Option<Text>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct ThreadKey {
    pub(super) owner: Owner,
    pub(super) thread: ThreadId,
}

#[derive(Debug)]
pub(super) struct ThreadEntry {
    pub(super) number: u64,
    pub(super) upstream_scope: Option<Text>,
    pub(super) thread_ids: Option<ThreadIds>,
    pub(super) metadata: Option<Text>,
    pub(super) created: Time,
    pub(super) updated: Time,
    pub(super) state: State,
    pub(super) messages: Option<Text>,
    /// Its runs, by number.
    pub(super) runs: BTreeMap<u64, RunId>,
    /// The run that has the thread.
    pub(super) leased: Option<RunId>,
    /// Queued runs in order. May contain runs that are no longer queued.
    pub(super) queue: Vec<RunId>,
    pub(super) pending: Vec<Pending>,
    pub(super) feedback: Vec<Feedback>,
}

#[derive(Debug)]
pub(super) struct RunEntry {
    pub(super) number: u64,
    pub(super) run: Run,
    /// True if its holder has a claim on it.
    pub(super) is_claimed: bool,
    pub(super) input: Option<Text>,
    pub(super) chunks: Vec<Chunk>,
    pub(super) compacted: Vec<Bytes>,
    /// Size of the events in `chunks` and `compacted`.
    pub(super) log_bytes: usize,
}

/// The events of one append.
#[derive(Debug)]
pub(super) struct Chunk {
    pub(super) first_seq: Seq,
    pub(super) fence: Fence,
    pub(super) events: Vec<Bytes>,
}

impl Tables {
    pub(super) fn new(limits: MemoryLimits) -> Self {
        Self {
            limits,
            bytes: 0,
            fence: 0,
            number: 0,
            threads: HashMap::new(),
            by_owner: HashMap::new(),
            agents_of_id: HashMap::new(),
            runs: HashMap::new(),
            leases: BTreeMap::new(),
            commands: BTreeMap::new(),
            readers: HashMap::new(),
            keys: Vec::new(),
            ended: VecDeque::new(),
        }
    }

    pub(super) fn next_number(&mut self) -> u64 {
        self.number += 1;
        self.number
    }

    pub(super) fn next_fence(&mut self) -> Fence {
        self.fence += 1;
        Fence(self.fence)
    }

    /// True if the lease of a process has not expired.
    pub(super) fn has_lease(&self, holder: &Holder, now: Time) -> bool {
        is_lease_live(self.leases.get(holder).map(|lease| lease.until), now)
    }

    pub(super) fn claim_state(&self, entry: &RunEntry, now: Time) -> ClaimState {
        entry.run.claim_state(entry.is_claimed, self.has_lease(&entry.run.holder, now))
    }

    /// The lease that a run gives its thread.
    pub(super) fn lease_of(&self, entry: &RunEntry, now: Time) -> Lease {
        entry.run.lease(self.claim_state(entry, now).is_live())
    }

    pub(super) fn get_run(&self, owner: &Owner, run: &RunId) -> Result<&RunEntry, StoreError> {
        let key = RunKey { owner: owner.clone(), run: run.clone() };
        self.runs.get(&key).ok_or(StoreError::NotFound(Missing::Run))
    }

    /// Marks an ended run as evictable.
    pub(super) fn queue_for_eviction(&mut self, key: RunKey) {
        self.ended.push_back(key);
        // Deleted runs stay in the queue; sweep once they may outnumber the others.
        if self.ended.len() > 2 * self.runs.len() + 64 {
            self.ended.retain(|key| self.runs.contains_key(key));
        }
    }

    pub(super) fn find_thread(
        &mut self,
        owner: &Owner,
        thread: &ThreadId,
    ) -> Result<&mut ThreadEntry, StoreError> {
        let key = ThreadKey { owner: owner.clone(), thread: thread.clone() };
        self.threads.get_mut(&key).ok_or(StoreError::NotFound(Missing::Thread))
    }

    pub(super) fn find_run(&mut self, owner: &Owner, run: &RunId) -> Result<&mut RunEntry, StoreError> {
        let key = RunKey { owner: owner.clone(), run: run.clone() };
        self.runs.get_mut(&key).ok_or(StoreError::NotFound(Missing::Run))
    }
}

impl ThreadEntry {
    pub(super) fn record(&self, thread: &ThreadId) -> Thread {
        Thread {
            thread: thread.clone(),
            upstream_scope: self.upstream_scope.clone(),
            thread_ids: self.thread_ids,
            metadata: self.metadata.clone(),
            created: self.created,
            updated: self.updated,
            state_seq: self.state.seq,
        }
    }

    /// Its size without its runs.
    pub(super) fn bytes(&self) -> usize {
        RECORD_BYTES
            + text_len(&self.metadata)
            + text_len(&self.state.body)
            + text_len(&self.messages)
            + self.pending.iter().map(pending_bytes).sum::<usize>()
            + self.feedback.iter().map(|feedback| RECORD_BYTES + feedback.body.len()).sum::<usize>()
    }
}

pub(super) fn pending_bytes(pending: &Pending) -> usize {
    RECORD_BYTES + pending.body.len() + pending.answer.as_ref().map_or(0, |answer| answer.body.len())
}

impl RunEntry {
    pub(super) fn bytes(&self) -> usize {
        RECORD_BYTES + text_len(&self.input) + self.log_bytes
    }
}

pub(super) fn events_bytes(events: &[Bytes]) -> usize {
    events.iter().map(|event| event.len() + EVENT_BYTES).sum()
}
