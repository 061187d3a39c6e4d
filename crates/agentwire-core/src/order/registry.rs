//! The items that a run has opened, and their owners.
//!
//! Owners apply to the whole run, even after an item has closed, so closed entries are kept. They are bounded in number
//! ([`KEPT`]) and in size ([`MAX_WEIGHT`]): beyond that the oldest closed ones are evicted, and an event that continues
//! an evicted item is treated like one of a new item.

use std::{
    borrow::Borrow,
    collections::{HashMap, VecDeque},
    hash::Hash,
};

use crate::event::{MessageId, SubagentId, ToolCallId};

/// The most closed entries of one kind. A run of a million messages stays below 10 MB.
pub(super) const KEPT: usize = 16_384;

/// The most open entries of one kind. Ordinary runs have a few dozen.
pub(super) const MAX_OPEN: usize = 16_384;

/// The most bytes of ids, owners and names of one kind. [`KEPT`] ids of 100 bytes take less; nobody uses ids of a
/// megabyte, but a frame has room for one.
pub(super) const MAX_WEIGHT: usize = 4 << 20;

/// The heap size of a key in bytes.
pub(super) trait Weigh {
    fn weight(&self) -> usize;
}

impl Weigh for MessageId {
    fn weight(&self) -> usize {
        self.len()
    }
}

impl Weigh for ToolCallId {
    fn weight(&self) -> usize {
        self.len()
    }
}

impl Weigh for SubagentId {
    fn weight(&self) -> usize {
        self.len()
    }
}

/// A step: its owner and its name.
impl Weigh for (Option<SubagentId>, Box<str>) {
    fn weight(&self) -> usize {
        self.0.as_deref().map_or(0, str::len) + self.1.len()
    }
}

/// One item of a run.
#[derive(Debug, Default)]
pub(super) struct Entry {
    pub(super) owner: Option<SubagentId>,
    /// The sequence number of its opening; 0 if it is closed.
    opened: u64,
    /// The same for a reasoning span of this id; messages and spans share owners but open separately.
    span_opened: u64,
    /// The tool's name, for calls that must be reopened.
    pub(super) label: Option<Box<str>>,
}

impl Entry {
    /// The heap size without the key.
    fn weight(&self) -> usize {
        self.owner.as_deref().map_or(0, str::len) + self.label.as_deref().map_or(0, str::len)
    }
}

/// The message or the reasoning span of an entry; both can be open.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    Main,
    Span,
}

impl Entry {
    fn opened_at(&mut self, part: Part) -> &mut u64 {
        match part {
            Part::Main => &mut self.opened,
            Part::Span => &mut self.span_opened,
        }
    }

    pub(super) fn is_open(&self, part: Part) -> bool {
        match part {
            Part::Main => self.opened != 0,
            Part::Span => self.span_opened != 0,
        }
    }
}

/// The items of one kind.
#[derive(Debug)]
pub(super) struct Registry<K> {
    entries: HashMap<K, Entry>,
    closed: VecDeque<K>,
    open: usize,
    clock: u64,
    /// The heap size of the entries and the queue, in bytes.
    weight: usize,
}

impl<K> Default for Registry<K> {
    fn default() -> Self {
        Self { entries: HashMap::new(), closed: VecDeque::new(), open: 0, clock: 0, weight: 0 }
    }
}

impl<K: Eq + Hash + Clone + Weigh> Registry<K> {
    pub(super) fn get<Q: Eq + Hash + ?Sized>(&self, key: &Q) -> Option<&Entry>
    where
        K: Borrow<Q>,
    {
        self.entries.get(key)
    }

    pub(super) fn is_open<Q: Eq + Hash + ?Sized>(&self, key: &Q, part: Part) -> bool
    where
        K: Borrow<Q>,
    {
        self.get(key).is_some_and(|entry| entry.is_open(part))
    }

    pub(super) fn is_full(&self) -> bool {
        // Closed entries are evicted first, so beyond the bound the open ones are too large.
        self.open >= MAX_OPEN || self.weight > MAX_WEIGHT
    }

    pub(super) fn has_open(&self) -> bool {
        self.open > 0
    }

    /// Opens an entry; the first opening sets the owner, the latest the label.
    pub(super) fn open(&mut self, key: &K, part: Part, owner: Option<&SubagentId>, label: Option<&str>) {
        self.clock += 1;
        self.open += 1;
        let clock = self.clock;
        let weight = &mut self.weight;
        let entry = self.entries.entry(key.clone()).or_insert_with(|| {
            let entry = Entry { owner: owner.cloned(), ..Entry::default() };
            *weight += key.weight() + entry.weight();
            entry
        });
        *weight -= entry.weight();
        *entry.opened_at(part) = clock;
        if let Some(label) = label
            && entry.label.as_deref() != Some(label)
        {
            entry.label = Some(label.into());
        }
        *weight += entry.weight();
        self.trim();
    }

    pub(super) fn close(&mut self, key: &K, part: Part) {
        if let Some(entry) = self.entries.get_mut(key)
            && entry.is_open(part)
        {
            *entry.opened_at(part) = 0;
            self.open -= 1;
            self.retire(key.clone());
        }
    }

    /// Records an owner without opening the entry; `authoritative` replaces a known one.
    pub(super) fn own(&mut self, key: &K, owner: Option<&SubagentId>, authoritative: bool) {
        match self.entries.get_mut(key) {
            Some(entry) if authoritative => {
                self.weight -= entry.weight();
                entry.owner = owner.cloned();
                self.weight += entry.weight();
                self.trim();
            }
            Some(_) => {}
            None => {
                let entry = Entry { owner: owner.cloned(), ..Entry::default() };
                self.weight += key.weight() + entry.weight();
                self.entries.insert(key.clone(), entry);
                self.retire(key.clone());
            }
        }
    }

    fn retire(&mut self, key: K) {
        self.weight += key.weight();
        self.closed.push_back(key);
        self.trim();
    }

    /// Evicts the oldest closed entries beyond the bounds.
    fn trim(&mut self) {
        while (self.closed.len() > KEPT || self.weight > MAX_WEIGHT)
            && let Some(oldest) = self.closed.pop_front()
        {
            self.weight -= oldest.weight();
            if let Some(entry) = self.entries.get(&oldest)
                && !entry.is_open(Part::Main)
                && !entry.is_open(Part::Span)
            {
                self.weight -= oldest.weight() + entry.weight();
                self.entries.remove(&oldest);
            }
        }
    }

    /// The open entries, the latest first.
    pub(super) fn open_entries(&self, part: Part) -> Vec<(K, Option<SubagentId>)> {
        if self.open == 0 {
            return Vec::new();
        }
        let mut open: Vec<_> = self
            .entries
            .iter()
            .filter(|(_, entry)| entry.is_open(part))
            .map(|(key, entry)| {
                let opened = if part == Part::Main { entry.opened } else { entry.span_opened };
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
    fn evicts_the_oldest_closed_entries_only() {
        let mut registry = Registry::<MessageId>::default();
        registry.open(&"open".into(), Part::Main, None, None);
        for n in 0..2 * KEPT {
            let id = MessageId::from(n.to_string());
            registry.open(&id, Part::Main, None, None);
            registry.close(&id, Part::Main);
        }
        assert!(registry.is_open("open", Part::Main));
        assert!(registry.get("0").is_none());
        assert!(registry.entries.len() <= KEPT + 1);
    }

    #[test]
    fn ids_of_any_length_take_bounded_memory() {
        let mut registry = Registry::<MessageId>::default();
        let large = |n: usize| MessageId::from(format!("{n}{}", "x".repeat(MAX_WEIGHT / 8)));
        for n in 0..100 {
            registry.open(&large(n), Part::Main, Some(&"owner".into()), Some("label"));
            registry.close(&large(n), Part::Main);
            registry.own(&large(n), None, true);
            assert!(!registry.is_full());
        }
        assert!(registry.entries.len() < 8 && registry.weight <= MAX_WEIGHT);
        let mut opened = 0;
        while !registry.is_full() {
            registry.open(&large(1000 + opened), Part::Main, None, None);
            opened += 1;
        }
        assert!(opened < 12, "{opened}");
        for n in 0..opened {
            registry.close(&large(1000 + n), Part::Main);
        }
        assert!(!registry.is_full());
        // An entry as large as the bound evicts all others.
        let all = MessageId::from("y".repeat(MAX_WEIGHT));
        registry.open(&all, Part::Main, None, None);
        assert_eq!((registry.entries.len(), registry.weight), (1, MAX_WEIGHT));
    }
}
