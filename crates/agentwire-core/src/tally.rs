//! Counts of tolerated deviations, so that no loss is silent.

use std::collections::BTreeMap;

/// Counts of tolerated deviations by kind and name, each with its first frame.
///
/// Distinct entries are bounded, because a hostile stream can contain any number of unknown names. Beyond
/// [`Tally::LIMIT`], further names are counted together as `(others)`.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    entries: BTreeMap<(&'static str, String), Count>,
    frame: u64,
    strict: bool,
    unknown_events: u64,
}

/// One line of a [`Tally`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Count {
    /// The number of occurrences.
    pub times: u64,
    /// The first frame that contains it, counting from 1; 0 if no frame is involved.
    pub first_frame: u64,
}

impl Tally {
    /// Enough for every honest stream, small enough for a report.
    pub const LIMIT: usize = 256;

    /// A tally for a reader that tolerates no more than the official client of its format.
    pub(crate) fn strict() -> Self {
        Self { strict: true, ..Self::default() }
    }

    /// Whether the reader refuses old shapes that the official client refuses.
    pub(crate) fn is_strict(&self) -> bool {
        self.strict
    }

    /// Sets the frame that is being read, counting from 1.
    pub fn at_frame(&mut self, frame: u64) {
        self.frame = frame;
    }

    /// Counts one `name` of `kind`.
    pub fn note(&mut self, kind: &'static str, name: &str) {
        self.add(kind, name, 1);
    }

    /// Counts several occurrences of `name`.
    pub fn add(&mut self, kind: &'static str, name: &str, times: u64) {
        // The name comes from the peer, so its length is bounded.
        let mut name: String = name.chars().take(80).collect();
        let is_known = self.entries.contains_key(&(kind, name.clone()));
        if !is_known && self.entries.len() >= Self::LIMIT {
            name = "(others)".into();
        }
        if is_unknown_event(kind) {
            self.unknown_events += times;
        }
        let frame = self.frame;
        let entry = self.entries.entry((kind, name)).or_insert(Count { times: 0, first_frame: frame });
        entry.times += times;
    }

    /// Adds the counts of another tally.
    pub fn absorb(&mut self, other: &Self) {
        for (kind, name, count) in other.iter() {
            self.add(kind, name, count.times);
        }
    }

    /// The count of `name` of `kind`.
    #[must_use]
    pub fn count(&self, kind: &'static str, name: &str) -> u64 {
        self.entries.get(&(kind, name.to_owned())).map_or(0, |count| count.times)
    }

    /// The number of unknown events, frames and parts of them: content that the reader could not interpret. Unknown
    /// members of known events do not count.
    #[must_use]
    pub fn unknown_event_count(&self) -> u64 {
        self.unknown_events
    }

    /// The entries of [`Tally::unknown_event_count`], by kind and name.
    pub fn unknown_events(&self) -> impl Iterator<Item = (&'static str, &str, Count)> {
        self.iter().filter(|(kind, ..)| is_unknown_event(kind))
    }

    /// All entries, by kind and name.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, &str, Count)> {
        self.entries.iter().map(|((kind, name), count)| (*kind, name.as_str(), *count))
    }

    /// Whether nothing was counted.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}

/// True if a kind of entry is content that a reader could not interpret.
pub(crate) fn is_unknown_event(kind: &str) -> bool {
    kind.starts_with("unknown ") && kind != "unknown property"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hostile_names_stay_bounded() {
        let mut tally = Tally::default();
        for n in 0..10 * Tally::LIMIT {
            tally.note("unknown event", &format!("{n}{}", "x".repeat(10_000)));
        }
        assert!(tally.iter().count() <= Tally::LIMIT + 1);
        assert_eq!(tally.iter().map(|(_, _, count)| count.times).sum::<u64>(), 10 * Tally::LIMIT as u64);
    }
}
