//! Floods of denials: the first ones of a sender get a line each, the rest one line with their count per minute.

use std::{
    collections::{BTreeMap, HashMap},
    time::{Duration, Instant},
};

use super::record::Record;

/// Denials of one sender and minute that get a line each.
const LINES: u32 = 20;

const WINDOW: Duration = Duration::from_secs(60);

/// Senders that are counted by themselves; all others share one count.
const MAX_SENDERS: usize = 256;

/// The name of the senders that share one count.
const OTHERS: &str = "others";

#[derive(Debug)]
struct Fold {
    since: Instant,
    lines: u32,
    /// Denials without a line, by code.
    folded: BTreeMap<&'static str, u64>,
}

/// The denials of the last minute.
#[derive(Debug, Default)]
pub(super) struct Folds(HashMap<Box<str>, Fold>);

impl Folds {
    /// Counts a denial. True if it gets a line of its own.
    pub(super) fn count(&mut self, sender: &str, code: &'static str, now: Instant) -> bool {
        let is_known = self.0.contains_key(sender) || self.0.len() < MAX_SENDERS;
        let sender = if is_known { sender } else { OTHERS };
        let new = || Fold { since: now, lines: 0, folded: BTreeMap::new() };
        let fold = self.0.entry(sender.into()).or_insert_with(new);
        if fold.lines < LINES {
            fold.lines += 1;
            return true;
        }
        *fold.folded.entry(code).or_default() += 1;
        false
    }

    /// The lines of senders whose minute is over; of all senders without a time.
    pub(super) fn take_ended(&mut self, now: Option<Instant>) -> Vec<Record> {
        let mut ended = Vec::new();
        self.0.retain(|sender, fold| {
            let is_over = now.is_none_or(|now| now.duration_since(fold.since) >= WINDOW);
            if is_over && !fold.folded.is_empty() {
                ended.push(Record::folded(sender, &fold.folded));
            }
            !is_over
        });
        ended
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_is_twenty_lines_and_one_count() {
        let (mut folds, start) = (Folds::default(), Instant::now());
        let lines = (0..500).filter(|_| folds.count("192.0.2.1", "UNAUTHENTICATED", start)).count();
        assert_eq!(lines, 20);
        assert!(folds.count("192.0.2.2", "UNAUTHENTICATED", start), "others have their own");
        assert!(!folds.count("192.0.2.1", "RATE_LIMITED", start));
        assert!(folds.take_ended(Some(start + Duration::from_secs(59))).is_empty());
        let ended = folds.take_ended(Some(start + Duration::from_secs(60)));
        let [Record(line)] = &ended[..] else { panic!("{ended:?}") };
        assert_eq!((&line["peer"], &line["count"]), (&"192.0.2.1".into(), &481.into()));
        assert_eq!(line["outcomes"]["UNAUTHENTICATED"], 480);
        assert!(folds.is_empty());
        assert!(folds.count("192.0.2.1", "UNAUTHENTICATED", start), "the next minute");
    }

    #[test]
    fn many_senders_share_one_count() {
        let (mut folds, now) = (Folds::default(), Instant::now());
        let lines = (0..10_000).filter(|sender| folds.count(&sender.to_string(), "FORBIDDEN", now)).count();
        assert_eq!(lines, MAX_SENDERS + LINES as usize);
        let [Record(line)] = &folds.take_ended(None)[..] else { panic!("one line") };
        assert_eq!((&line["peer"], &line["count"]), (&OTHERS.into(), &(10_000 - lines).into()));
    }
}
