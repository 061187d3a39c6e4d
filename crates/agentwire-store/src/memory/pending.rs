//! Pending items and their answers, in memory.

use agentwire_core::event::{RunId, ThreadId};

use super::table::{Tables, ThreadEntry};
use crate::{
    clock::Time,
    error::{Missing, StoreError},
    model::{Answer, Answered, Answering, NewPending, Owner, Pending, RunKey, RunStatus, Which},
    rules,
};

impl Tables {
    pub(super) fn answer(
        &mut self,
        owner: &Owner,
        thread: &ThreadId,
        answering: Answering,
        run: &RunId,
        now: Time,
    ) -> Result<RunId, StoreError> {
        self.find_thread(owner, thread)?;
        self.make_room(answering.size(), (owner, thread))?;
        if let Some(first) = self.check_answers(owner, thread, &answering, now)? {
            return Ok(first);
        }
        self.record_answers(owner, thread, answering, run, now)?;
        Ok(run.clone())
    }

    /// Whether the answers can be recorded (`None`) or were before (the run they started).
    pub(super) fn check_answers(
        &mut self,
        owner: &Owner,
        thread: &ThreadId,
        answering: &Answering,
        now: Time,
    ) -> Result<Option<RunId>, StoreError> {
        let unknown = StoreError::NotFound(Missing::Pending);
        let Ok(entry) = self.find_thread(owner, thread) else { return Err(unknown) };
        let mut items = Vec::with_capacity(answering.answers.len());
        for answer in &answering.answers {
            let item = entry.pending.iter().rev().find(|item| item.id == answer.id);
            items.push((answer, item.ok_or_else(|| unknown.clone())?));
        }
        rules::check_answers(&items, now)
    }

    /// Records answers that were checked.
    pub(super) fn record_answers(
        &mut self,
        owner: &Owner,
        thread: &ThreadId,
        answering: Answering,
        run: &RunId,
        now: Time,
    ) -> Result<(), StoreError> {
        let entry = self.find_thread(owner, thread)?;
        let before = entry.bytes();
        let mut asked = Vec::new();
        for Answer { id, body } in answering.answers {
            if let Some(item) = entry.pending.iter_mut().rev().find(|item| item.id == id) {
                item.answer = Some(Answered { body, by: answering.by.clone(), at: now, run: run.clone() });
                asked.push(RunKey { owner: owner.clone(), run: item.run.clone() });
            }
        }
        let after = entry.bytes();
        self.bytes = self.bytes - before + after;
        for key in asked {
            self.finish_if_nothing_open(&key, now);
        }
        Ok(())
    }

    /// Finishes a waiting run that nothing is open of. Says whether it did.
    pub(super) fn finish_if_nothing_open(&mut self, key: &RunKey, now: Time) -> bool {
        let Ok(entry) = self.find_run(&key.owner, &key.run) else { return false };
        if entry.run.status != RunStatus::Waiting {
            return false;
        }
        let thread = entry.run.thread.clone();
        let open = self.find_thread(&key.owner, &thread).map(|thread| thread.pending(&Which::Open, now));
        if open.is_ok_and(|open| open.iter().any(|item| item.run == key.run)) {
            return false;
        }
        if let Ok(entry) = self.find_run(&key.owner, &key.run) {
            entry.run.status = RunStatus::Finished;
            entry.run.updated = now;
        }
        true
    }
}

impl ThreadEntry {
    pub(super) fn pending(&self, which: &Which, now: Time) -> Vec<Pending> {
        self.pending.iter().filter(|item| which.includes(item, now)).cloned().collect()
    }

    pub(super) fn check_put(&self, run: &RunId, items: &[NewPending]) -> Result<(), StoreError> {
        for new in items {
            let known = self.pending.iter().find(|item| item.id == new.id && item.run == *run);
            new.check_replaces(known.is_some_and(|known| known.answer.is_some()))?;
        }
        Ok(())
    }

    pub(super) fn put(&mut self, run: &RunId, items: Vec<NewPending>, now: Time) {
        for new in items {
            let item = Pending {
                id: new.id,
                run: run.clone(),
                kind: new.kind,
                body: new.body,
                created: now,
                expires: new.ttl.map(|ttl| now.after(ttl)),
                answer: None,
            };
            match self.pending.iter_mut().find(|known| known.id == item.id && known.run == *run) {
                Some(known) => *known = item,
                None => self.pending.push(item),
            }
        }
    }
}
