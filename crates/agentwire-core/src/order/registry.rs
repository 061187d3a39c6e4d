//! Remembers what a run has opened, and for whom.
//!
//! Owners count for the whole run, also after something has closed, so closed entries are kept. They are
//! bounded, in number ([`KEPT`]) and in size ([`MAX_WEIGHT`]): beyond that the oldest closed ones are forgotten,
//! and an event that continues a forgotten one is judged like one about something new.

use std::{
    borrow::Borrow,
    collections::{HashMap, VecDeque},
    hash::Hash,
};

use crate::event::{MessageId, SubagentId, ToolCallId};

/// How many closed entries of one kind are remembered. A run of a million messages stays below 10 MB.
pub(super) const KEPT: usize = 16_384;

/// How many entries of one kind may be open at once. Honest runs have a few dozen.
pub(super) const MAX_OPEN: usize = 16_384;

/// How many bytes the ids, owners and names of one kind may take. [`KEPT`] ids of 100 bytes take less; an id of
/// a megabyte is nobody's, but a frame has room for it.
pub(super) const MAX_WEIGHT: usize = 4 << 20;

/// A key that knows how many bytes it takes beside the table's own.
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

/// A step: whose it is, and its name.
impl Weigh for (Option<SubagentId>, Box<str>) {
    fn weight(&self) -> usize {
        self.0.as_deref().map_or(0, str::len) + self.1.len()
    }
}

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

impl Entry {
    /// The bytes beside the key's.
    fn weight(&self) -> usize {
        self.owner.as_deref().map_or(0, str::len) + self.label.as_deref().map_or(0, str::len)
    }
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
    /// What the entries and the queue take, in bytes.
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

    pub(super) fn is_open<Q: Eq + Hash + ?Sized>(&self, key: &Q, door: Door) -> bool
    where
        K: Borrow<Q>,
    {
        self.get(key).is_some_and(|entry| entry.is_open(door))
    }

    pub(super) fn is_full(&self) -> bool {
        // What is closed makes room, so beyond the bound it is the open ones that are too large.
        self.open >= MAX_OPEN || self.weight > MAX_WEIGHT
    }

    pub(super) fn has_open(&self) -> bool {
        self.open > 0
    }

    /// Opens an entry; the first opener fixes the owner and the latest the label.
    pub(super) fn open(&mut self, key: &K, door: Door, owner: Option<&SubagentId>, label: Option<&str>) {
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
        *entry.door(door) = clock;
        if let Some(label) = label
            && entry.label.as_deref() != Some(label)
        {
            entry.label = Some(label.into());
        }
        *weight += entry.weight();
        self.trim();
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

    /// Forgets the oldest closed entries beyond the bounds.
    fn trim(&mut self) {
        while (self.closed.len() > KEPT || self.weight > MAX_WEIGHT)
            && let Some(oldest) = self.closed.pop_front()
        {
            self.weight -= oldest.weight();
            if let Some(entry) = self.entries.get(&oldest)
                && !entry.is_open(Door::Main)
                && !entry.is_open(Door::Span)
            {
                self.weight -= oldest.weight() + entry.weight();
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

    #[test]
    fn ids_of_any_length_take_bounded_memory() {
        let mut registry = Registry::<MessageId>::default();
        let large = |n: usize| MessageId::from(format!("{n}{}", "x".repeat(MAX_WEIGHT / 8)));
        for n in 0..100 {
            registry.open(&large(n), Door::Main, Some(&"owner".into()), Some("label"));
            registry.close(&large(n), Door::Main);
            registry.own(&large(n), None, true);
            assert!(!registry.is_full());
        }
        assert!(registry.entries.len() < 8 && registry.weight <= MAX_WEIGHT);
        let mut opened = 0;
        while !registry.is_full() {
            registry.open(&large(1000 + opened), Door::Main, None, None);
            opened += 1;
        }
        assert!(opened < 12, "{opened}");
        for n in 0..opened {
            registry.close(&large(1000 + n), Door::Main);
        }
        assert!(!registry.is_full());
        // One that takes all the room pushes out all others, and then weighs what it weighs.
        let all = MessageId::from("y".repeat(MAX_WEIGHT));
        registry.open(&all, Door::Main, None, None);
        assert_eq!((registry.entries.len(), registry.weight), (1, MAX_WEIGHT));
    }
}
