//! Remembers what a run has opened, and for whom.
//!
//! Owners count for the whole run, also after something has closed, so closed entries are kept. They are
//! bounded: beyond [`KEPT`] the oldest closed ones are forgotten, and an event that continues a forgotten one
//! is judged like one about something new.

use std::{
    borrow::Borrow,
    collections::{HashMap, VecDeque},
    hash::Hash,
};

use crate::event::SubagentId;

/// How many closed entries of one kind are remembered. A run of a million messages stays below 10 MB.
pub(super) const KEPT: usize = 16_384;

/// How many entries of one kind may be open at once. Honest runs have a few dozen.
pub(super) const MAX_OPEN: usize = 16_384;

/// One thing of a run.
#[derive(Debug, Default)]
pub(super) struct Entry {
    pub(super) owner: Option<SubagentId>,
    /// When it was opened, counting; 0 if it is closed.
    opened: u64,
    /// A reasoning span of the same id; messages and spans share owners but not doors.
    span_opened: u64,
    /// The tool's name, for calls that must be opened again.
    pub(super) label: Option<Box<str>>,
}

/// Which of the two doors of an entry.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Door {
    Main,
    Span,
}

impl Entry {
    fn door(&mut self, door: Door) -> &mut u64 {
        match door {
            Door::Main => &mut self.opened,
            Door::Span => &mut self.span_opened,
        }
    }

    pub(super) fn is_open(&self, door: Door) -> bool {
        match door {
            Door::Main => self.opened != 0,
            Door::Span => self.span_opened != 0,
        }
    }
}

/// The things of one kind.
#[derive(Debug)]
pub(super) struct Registry<K> {
    entries: HashMap<K, Entry>,
    closed: VecDeque<K>,
    open: usize,
    clock: u64,
}

impl<K> Default for Registry<K> {
    fn default() -> Self {
        Self { entries: HashMap::new(), closed: VecDeque::new(), open: 0, clock: 0 }
    }
}

impl<K: Eq + Hash + Clone> Registry<K> {
    pub(super) fn get<Q: Eq + Hash + ?Sized>(&self, key: &Q) -> Option<&Entry>
    where
        K: Borrow<Q>,
    {
        self.entries.get(key)
    }

    pub(super) fn is_open<Q: Eq + Hash + ?Sized>(&self, key: &Q, door: Door) -> bool
    where
        K: Borrow<Q>,
    {
        self.get(key).is_some_and(|entry| entry.is_open(door))
    }

    pub(super) fn is_full(&self) -> bool {
        self.open >= MAX_OPEN
    }

    pub(super) fn has_open(&self) -> bool {
        self.open > 0
    }

    /// Opens an entry; the first opener fixes the owner and the latest the label.
    pub(super) fn open(&mut self, key: &K, door: Door, owner: Option<&SubagentId>, label: Option<&str>) {
        self.clock += 1;
        self.open += 1;
        let clock = self.clock;
        let entry = self
            .entries
            .entry(key.clone())
            .or_insert_with(|| Entry { owner: owner.cloned(), ..Entry::default() });
        *entry.door(door) = clock;
        if let Some(label) = label
            && entry.label.as_deref() != Some(label)
        {
            entry.label = Some(label.into());
        }
    }

    pub(super) fn close(&mut self, key: &K, door: Door) {
        if let Some(entry) = self.entries.get_mut(key)
            && entry.is_open(door)
        {
            *entry.door(door) = 0;
            self.open -= 1;
            self.retire(key.clone());
        }
    }

    /// Records an owner without opening anything; `authoritative` replaces a known one.
    pub(super) fn own(&mut self, key: &K, owner: Option<&SubagentId>, authoritative: bool) {
        match self.entries.get_mut(key) {
            Some(entry) if authoritative => entry.owner = owner.cloned(),
            Some(_) => {}
            None => {
                self.entries.insert(key.clone(), Entry { owner: owner.cloned(), ..Entry::default() });
                self.retire(key.clone());
            }
        }
    }

    fn retire(&mut self, key: K) {
        self.closed.push_back(key);
        while self.closed.len() > KEPT {
            if let Some(oldest) = self.closed.pop_front()
                && let Some(entry) = self.entries.get(&oldest)
                && !entry.is_open(Door::Main)
                && !entry.is_open(Door::Span)
            {
                self.entries.remove(&oldest);
            }
        }
    }

    /// What is open behind a door, the latest first.
    pub(super) fn open_entries(&self, door: Door) -> Vec<(K, Option<SubagentId>)> {
        if self.open == 0 {
            return Vec::new();
        }
        let mut open: Vec<_> = self
            .entries
            .iter()
            .filter(|(_, entry)| entry.is_open(door))
            .map(|(key, entry)| {
                let opened = if door == Door::Main { entry.opened } else { entry.span_opened };
                (opened, key.clone(), entry.owner.clone())
            })
            .collect();
        open.sort_unstable_by_key(|(opened, ..)| std::cmp::Reverse(*opened));
        open.into_iter().map(|(_, key, owner)| (key, owner)).collect()
    }

    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::MessageId;

    #[test]
    fn forgets_the_oldest_closed_entries_only() {
        let mut registry = Registry::<MessageId>::default();
        registry.open(&"stays".into(), Door::Main, None, None);
        for n in 0..2 * KEPT {
            let id = MessageId::from(n.to_string());
            registry.open(&id, Door::Main, None, None);
            registry.close(&id, Door::Main);
        }
        assert!(registry.is_open("stays", Door::Main));
        assert!(registry.get("0").is_none());
        assert!(registry.entries.len() <= KEPT + 1);
    }
}
