//! Threads, state, messages and feedback in memory.

use std::collections::BTreeMap;

use agentwire_core::event::ThreadId;

use super::tables::{RECORD_BYTES, Tables, ThreadEntry, ThreadKey};
use crate::{
    clock::Time,
    error::StoreError,
    model::{
        Created, Feedback, NewFeedback, NewThread, Owner, Page, PageToken, RunKey, State, StateChange, Text,
        Thread, ThreadChange, ThreadQuery, text_len,
    },
    rules::{check_not_leased, page},
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
        let entry = ThreadEntry {
            number,
            agent: new.agent,
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
        let matching = self
            .by_owner
            .get(owner)
            .into_iter()
            .flat_map(|numbers| numbers.range(..below).rev())
            .filter_map(|(number, thread)| {
                let key = ThreadKey { owner: owner.clone(), thread: thread.clone() };
                self.threads.get(&key).map(|entry| (*number, entry.record(thread)))
            })
            .filter(|(_, thread)| query.agent.as_ref().is_none_or(|agent| *agent == thread.agent));
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
        if let Some(state) = &change.state {
            check_not_leased(lease)?;
            state.check(entry.state.seq)?;
        }
        let before = entry.bytes();
        entry.agent = change.agent.unwrap_or_else(|| entry.agent.clone());
        entry.metadata = change.metadata.or_else(|| entry.metadata.take());
        entry.apply(change.state, change.messages);
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
        if let Some(numbers) = self.by_owner.get_mut(owner) {
            numbers.remove(&entry.number);
            if numbers.is_empty() {
                self.by_owner.remove(owner);
            }
        }
        for run in entry.runs.into_values() {
            if let Some(removed) = self.runs.remove(&RunKey { owner: owner.clone(), run }) {
                self.bytes -= removed.bytes();
            }
        }
        Ok(())
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

impl ThreadEntry {
    pub(super) fn apply(&mut self, state: Option<StateChange>, messages: Option<Text>) {
        if let Some(change) = state {
            self.state = State { seq: self.state.seq + 1, body: Some(change.body) };
        }
        self.messages = messages.or_else(|| self.messages.take());
    }
}
