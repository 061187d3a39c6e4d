//! Threads, state, messages and feedback in memory.

use std::collections::{BTreeMap, hash_map::Entry};

use agentwire_core::event::{RunId, ThreadId};

use super::tables::{RECORD_BYTES, Tables, ThreadEntry, ThreadKey};
use crate::{
    clock::Time,
    error::StoreError,
    model::{
        AgentName, Created, Feedback, MoveReport, NewFeedback, NewThread, Owner, Page, PageToken, RunKey,
        State, StateChange, Tenant, Text, Thread, ThreadChange, ThreadQuery, UserId, text_len,
    },
    rules::{check_not_leased, page, upstream_scope},
};

impl Tables {
    pub(super) fn create_thread(
        &mut self,
        owner: &Owner,
        new: NewThread,
        now: Time,
    ) -> Result<Created<Thread>, StoreError> {
        if let Ok(existing) = self.find_thread(owner, &new.thread) {
            return Ok(Created { item: existing.record(&new.thread), new: false });
        }
        self.make_room(RECORD_BYTES + text_len(&new.metadata), (owner, &new.thread))?;
        let thread = new.thread.clone();
        self.insert_thread(owner, new, now);
        Ok(Created { item: self.find_thread(owner, &thread)?.record(&thread), new: true })
    }

    /// Adds a thread that does not exist; the caller has made room.
    pub(super) fn insert_thread(&mut self, owner: &Owner, new: NewThread, now: Time) {
        let number = self.next_number();
        let agents = self.agents_of_id.entry(id_key(owner, &new.thread)).or_default();
        let upstream_scope = upstream_scope(owner, *agents > 0);
        *agents += 1;
        let entry = ThreadEntry {
            number,
            upstream_scope,
            thread_ids: new.thread_ids,
            metadata: new.metadata,
            created: now,
            updated: now,
            state: State { seq: 0, body: None },
            messages: None,
            runs: BTreeMap::new(),
            leased: None,
            queue: Vec::new(),
            pending: Vec::new(),
            feedback: Vec::new(),
        };
        self.bytes += entry.bytes();
        self.by_owner.entry(owner.clone()).or_default().insert(number, new.thread.clone());
        self.threads.insert(ThreadKey { owner: owner.clone(), thread: new.thread }, entry);
    }

    pub(super) fn list_threads(
        &self,
        owner: &Owner,
        query: &ThreadQuery,
        limit: usize,
    ) -> Result<Page<Thread>, StoreError> {
        let below = query.before.map_or(u64::MAX, |token| token.0);
        let matching =
            self.by_owner.get(owner).into_iter().flat_map(|numbers| numbers.range(..below).rev()).filter_map(
                |(number, thread)| {
                    let key = ThreadKey { owner: owner.clone(), thread: thread.clone() };
                    self.threads.get(&key).map(|entry| (*number, entry.record(thread)))
                },
            );
        page(matching.map(Ok), limit)
    }

    pub(super) fn update_thread(
        &mut self,
        owner: &Owner,
        thread: &ThreadId,
        change: ThreadChange,
        now: Time,
    ) -> Result<Thread, StoreError> {
        self.find_thread(owner, thread)?;
        self.make_room(change.size(), (owner, thread))?;
        let lease = self.lease(owner, thread, now)?;
        let entry = self.find_thread(owner, thread)?;
        if change.needs_free_thread() {
            check_not_leased(lease)?;
        }
        if let Some(state) = &change.state {
            state.check(entry.state.seq)?;
        }
        for (change, current) in [(&change.metadata, &entry.metadata), (&change.messages, &entry.messages)] {
            change.as_ref().map_or(Ok(()), |change| change.check(current.as_ref()))?;
        }
        let before = entry.bytes();
        entry.metadata = change.metadata.map(|change| change.body).or_else(|| entry.metadata.take());
        entry.apply(change.state, change.messages.map(|change| change.body));
        entry.updated = now;
        let (after, record) = (entry.bytes(), entry.record(thread));
        self.bytes = self.bytes - before + after;
        Ok(record)
    }

    pub(super) fn delete_thread(&mut self, owner: &Owner, thread: &ThreadId) -> Result<(), StoreError> {
        self.find_thread(owner, thread)?;
        let key = ThreadKey { owner: owner.clone(), thread: thread.clone() };
        let Some(entry) = self.threads.remove(&key) else { return Ok(()) };
        self.bytes -= entry.bytes();
        self.unlist_thread(owner, entry.number);
        if let Entry::Occupied(mut agents) = self.agents_of_id.entry(id_key(owner, thread)) {
            *agents.get_mut() -= 1;
            if *agents.get() == 0 {
                agents.remove();
            }
        }
        for run in entry.runs.into_values() {
            let key = RunKey { owner: owner.clone(), run };
            self.commands.retain(|_, command| command.run != key);
            self.readers.remove(&key);
            if let Some(removed) = self.runs.remove(&key) {
                self.bytes -= removed.bytes();
            }
        }
        Ok(())
    }

    /// Removes a thread from the list of its owner.
    fn unlist_thread(&mut self, owner: &Owner, number: u64) {
        if let Some(numbers) = self.by_owner.get_mut(owner) {
            numbers.remove(&number);
            if numbers.is_empty() {
                self.by_owner.remove(owner);
            }
        }
    }

    pub(super) fn upstream_scope(&mut self, owner: &Owner, thread: &ThreadId) -> Option<Text> {
        match self.find_thread(owner, thread) {
            Ok(entry) => entry.upstream_scope.clone(),
            Err(_) => upstream_scope(owner, self.agents_of_id.contains_key(&id_key(owner, thread))),
        }
    }

    pub(super) fn move_threads(&mut self, from: &AgentName, to: &AgentName) -> MoveReport {
        let mut report = MoveReport::default();
        let all: Vec<_> = self.threads.keys().filter(|key| key.owner.agent == *from).cloned().collect();
        for ThreadKey { owner, thread } in all {
            match self.move_thread(&owner, &thread, to) {
                true => report.moved += 1,
                false => report.left += 1,
            }
        }
        report
    }

    /// Moves a thread to another agent of its user. Returns whether it could be moved.
    fn move_thread(&mut self, owner: &Owner, thread: &ThreadId, to: &AgentName) -> bool {
        let target = Owner { agent: to.clone(), ..owner.clone() };
        let (old_key, new_key) = (
            ThreadKey { owner: owner.clone(), thread: thread.clone() },
            ThreadKey { owner: target.clone(), thread: thread.clone() },
        );
        let Some(entry) = self.threads.get(&old_key) else { return false };
        let runs: Vec<_> = entry.runs.values().cloned().collect();
        let run_key = |owner: &Owner, run: &RunId| RunKey { owner: owner.clone(), run: run.clone() };
        let is_live =
            |run| self.runs.get(&run_key(owner, run)).is_some_and(|entry| entry.run.status.is_live());
        let is_used = |run| self.runs.contains_key(&run_key(&target, run));
        if self.threads.contains_key(&new_key) || runs.iter().any(|run| is_live(run) || is_used(run)) {
            return false;
        }
        let Some(entry) = self.threads.remove(&old_key) else { return false };
        self.unlist_thread(owner, entry.number);
        self.by_owner.entry(target.clone()).or_default().insert(entry.number, thread.clone());
        self.threads.insert(new_key, entry);
        for run in &runs {
            if let Some(entry) = self.runs.remove(&run_key(owner, run)) {
                self.runs.insert(run_key(&target, run), entry);
            }
        }
        for key in &mut self.ended {
            if key.owner == *owner && runs.contains(&key.run) {
                key.owner = target.clone();
            }
        }
        true
    }

    pub(super) fn add_feedback(
        &mut self,
        owner: &Owner,
        new: NewFeedback,
        now: Time,
    ) -> Result<Feedback, StoreError> {
        let more = RECORD_BYTES + new.body.len();
        self.find_thread(owner, &new.thread)?;
        self.make_room(more, (owner, &new.thread))?;
        let feedback = Feedback { run: new.run, body: new.body, created: now };
        self.find_thread(owner, &new.thread)?.feedback.push(feedback.clone());
        self.bytes += more;
        Ok(feedback)
    }

    pub(super) fn list_feedback(
        &mut self,
        owner: &Owner,
        thread: &ThreadId,
        after: Option<PageToken>,
        limit: usize,
    ) -> Result<Page<Feedback>, StoreError> {
        let skip = after.map_or(0, |token| usize::try_from(token.0).unwrap_or(usize::MAX));
        let entry = self.find_thread(owner, thread)?;
        let rest = (1..).zip(&entry.feedback).skip(skip).map(|(at, feedback)| Ok((at, feedback.clone())));
        page(rest, limit)
    }
}

fn id_key(owner: &Owner, thread: &ThreadId) -> (Tenant, UserId, ThreadId) {
    (owner.tenant.clone(), owner.user.clone(), thread.clone())
}

impl ThreadEntry {
    pub(super) fn apply(&mut self, state: Option<StateChange>, messages: Option<Text>) {
        if let Some(change) = state {
            self.state = State { seq: self.state.seq + 1, body: Some(change.body) };
        }
        self.messages = messages.or_else(|| self.messages.take());
    }
}
