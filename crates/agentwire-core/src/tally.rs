//! Counts what was tolerated, so that nothing is lost silently.

use std::collections::BTreeMap;

/// How often each kind of thing was tolerated, and where first.
///
/// Distinct entries are bounded: a hostile stream can name as many unknown events as it likes. Beyond
/// [`Tally::LIMIT`], further names are counted together as `(others)`.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    entries: BTreeMap<(&'static str, String), Count>,
    frame: u64,
    strict: bool,
}

/// One line of a [`Tally`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Count {
    /// How often.
    pub times: u64,
    /// The frame in which it was seen first, counting from 1; 0 if no frame was involved.
    pub first_frame: u64,
}

impl Tally {
    /// Enough for every honest stream, small enough for a report.
    pub const LIMIT: usize = 256;

    /// A tally for a reader that tolerates only what the official client of its format does.
    pub(crate) fn strict() -> Self {
        Self { strict: true, ..Self::default() }
    }

    /// Whether old shapes that the official client refuses are to be refused.
    pub(crate) fn is_strict(&self) -> bool {
        self.strict
    }

    /// Says which frame (counting from 1) is being read.
    pub fn at_frame(&mut self, frame: u64) {
        self.frame = frame;
    }

    /// Counts one `name` of kind `what`.
    pub fn note(&mut self, what: &'static str, name: &str) {
        self.add(what, name, 1);
    }

    /// Counts several.
    pub fn add(&mut self, what: &'static str, name: &str, times: u64) {
        // A name comes from the peer: keep it short.
        let mut name: String = name.chars().take(80).collect();
        let known = self.entries.contains_key(&(what, name.clone()));
        if !known && self.entries.len() >= Self::LIMIT {
            name = "(others)".into();
        }
        let frame = self.frame;
        let entry = self.entries.entry((what, name)).or_insert(Count { times: 0, first_frame: frame });
        entry.times += times;
    }

    /// Adds what another tally has counted.
    pub fn absorb(&mut self, other: &Self) {
        for (what, name, count) in other.iter() {
            self.add(what, name, count.times);
        }
    }

    /// How often `name` of kind `what` was counted.
    #[must_use]
    pub fn count(&self, what: &'static str, name: &str) -> u64 {
        self.entries.get(&(what, name.to_owned())).map_or(0, |count| count.times)
    }

    /// All entries, by kind and name.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, &str, Count)> {
        self.entries.iter().map(|((what, name), count)| (*what, name.as_str(), *count))
    }

    /// Whether nothing was counted.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
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
