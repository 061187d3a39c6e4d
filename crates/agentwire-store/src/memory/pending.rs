//! Pending items and answers in memory.

use agentwire_core::event::{RunId, ThreadId};

use super::tables::{Tables, ThreadEntry, ThreadKey};
use crate::{
    clock::Time,
    error::{Missing, StoreError},
    model::{
        Answer, AnswerSet, NewPending, OpenItem, Owner, Page, PageToken, Pending, PendingFilter,
        RecordedAnswer, RunKey, RunStatus, Tenant, Text,
    },
    rules,
};

impl Tables {
    /// Items have no number of their own here: they are ordered by the number of their thread, and a page ends with a
    /// thread.
    pub(super) fn open_items(
        &self,
        tenant: &Tenant,
        kind: &str,
        after: Option<PageToken>,
        limit: usize,
        now: Time,
    ) -> Result<Page<OpenItem>, StoreError> {
        let after = after.map_or(0, |after| after.0);
        let is_wanted =
            |(key, entry): &(&ThreadKey, &ThreadEntry)| key.owner.tenant == *tenant && entry.number > after;
        let mut threads: Vec<_> = self.threads.iter().filter(is_wanted).collect();
        threads.sort_by_key(|(_, entry)| entry.number);
        let mut page = Page { items: Vec::new(), next: None };
        let mut last = None;
        for (key, entry) in threads {
            let is_last =
                |at: usize, item: &Pending| entry.pending[at + 1..].iter().all(|next| next.id != item.id);
            let open = entry.pending.iter().enumerate().filter(|(at, item)| {
                *item.kind == *kind && PendingFilter::Open.includes(item, now) && is_last(*at, item)
            });
            let open: Vec<_> = open.map(|(_, item)| item.clone()).collect();
            if open.is_empty() {
                continue;
            }
            if page.items.len() >= limit {
                page.next = last;
                break;
            }
            let item = |item| OpenItem { owner: key.owner.clone(), thread: key.thread.clone(), item };
            page.items.extend(open.into_iter().map(item));
            last = Some(PageToken(entry.number));
        }
        Ok(page)
    }

    pub(super) fn replace_item(
        &mut self,
        owner: &Owner,
        thread: &ThreadId,
        expected: &Pending,
        body: Text,
        now: Time,
    ) -> Result<(), StoreError> {
        self.find_thread(owner, thread)?;
        self.make_room(body.len(), (owner, thread))?;
        let entry = self.find_thread(owner, thread)?;
        let before = entry.bytes();
        let found = entry.pending.iter_mut().rev().find(|item| item.id == expected.id);
        let found = found.ok_or(StoreError::NotFound(Missing::Pending))?;
        rules::check_replaced(found, expected, now)?;
        found.body = body;
        let after = entry.bytes();
        self.bytes = self.bytes - before + after;
        Ok(())
    }

    pub(super) fn answer(
        &mut self,
        owner: &Owner,
        thread: &ThreadId,
        set: AnswerSet,
        run: &RunId,
        now: Time,
    ) -> Result<RunId, StoreError> {
        self.find_thread(owner, thread)?;
        self.make_room(set.size(), (owner, thread))?;
        if let Some(first) = self.check_answers(owner, thread, &set, now)? {
            return Ok(first);
        }
        self.record_answers(owner, thread, set, run, now)?;
        Ok(run.clone())
    }

    /// `None` if the answers can be recorded; the run that they started if they were recorded before.
    pub(super) fn check_answers(
        &mut self,
        owner: &Owner,
        thread: &ThreadId,
        set: &AnswerSet,
        now: Time,
    ) -> Result<Option<RunId>, StoreError> {
        let not_found = StoreError::NotFound(Missing::Pending);
        let Ok(entry) = self.find_thread(owner, thread) else { return Err(not_found) };
        let mut items = Vec::with_capacity(set.answers.len());
        for answer in &set.answers {
            let item = entry.pending.iter().rev().find(|item| item.id == answer.id);
            items.push((answer, item.ok_or_else(|| not_found.clone())?));
        }
        rules::check_answers(&items, now)
    }

    /// Records answers that passed [`Self::check_answers`].
    pub(super) fn record_answers(
        &mut self,
        owner: &Owner,
        thread: &ThreadId,
        set: AnswerSet,
        run: &RunId,
        now: Time,
    ) -> Result<(), StoreError> {
        let entry = self.find_thread(owner, thread)?;
        let before = entry.bytes();
        let mut asking_runs = Vec::new();
        for Answer { id, body } in set.answers {
            if let Some(item) = entry.pending.iter_mut().rev().find(|item| item.id == id) {
                item.answer = Some(RecordedAnswer { body, by: set.by.clone(), at: now, run: run.clone() });
                asking_runs.push(RunKey { owner: owner.clone(), run: item.run.clone() });
            }
        }
        let after = entry.bytes();
        self.bytes = self.bytes - before + after;
        for key in asking_runs {
            self.finish_if_all_closed(&key, now);
        }
        Ok(())
    }

    /// Finishes a waiting run without open pending items. Returns whether it did.
    pub(super) fn finish_if_all_closed(&mut self, key: &RunKey, now: Time) -> bool {
        let Ok(entry) = self.find_run(&key.owner, &key.run) else { return false };
        if entry.run.status != RunStatus::Waiting {
            return false;
        }
        let thread = entry.run.thread.clone();
        let open =
            self.find_thread(&key.owner, &thread).map(|thread| thread.pending(&PendingFilter::Open, now));
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
    pub(super) fn pending(&self, filter: &PendingFilter, now: Time) -> Vec<Pending> {
        self.pending.iter().filter(|item| filter.includes(item, now)).cloned().collect()
    }

    pub(super) fn check_insert_pending(&self, run: &RunId, items: &[NewPending]) -> Result<(), StoreError> {
        for new in items {
            let existing = self.pending.iter().find(|item| item.id == new.id && item.run == *run);
            new.check_replaces(existing.is_some_and(|existing| existing.answer.is_some()))?;
        }
        Ok(())
    }

    pub(super) fn insert_pending(&mut self, run: &RunId, items: Vec<NewPending>, now: Time) {
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
            match self.pending.iter_mut().find(|existing| existing.id == item.id && existing.run == *run) {
                Some(existing) => *existing = item,
                None => self.pending.push(item),
            }
        }
    }
}
