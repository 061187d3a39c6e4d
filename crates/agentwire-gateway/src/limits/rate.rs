//! Rates per party, by the generic cell rate algorithm (GCRA): one time per party.
//!
//! Written by hand and not `governor`, whose tables have no bound on the number of keys: here a table of a fixed size
//! drops idle entries first, and refuses nobody because it is full.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use super::{Party, settings::Rate};

/// The most parties in a table: some megabytes.
const MAX_PARTIES: usize = 100_000;

/// A refusal: the rate, and the time after which one more action is allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Exceeded {
    pub(crate) rate: Rate,
    pub(crate) retry: Duration,
}

/// The actions of all parties at one rate.
#[derive(Debug)]
pub(crate) struct Rates {
    rate: Rate,
    /// For each party the theoretical arrival time: when its allowance is whole again.
    arrivals: Mutex<HashMap<Party, Instant>>,
}

impl Rates {
    pub(crate) fn new(rate: Rate) -> Self {
        Self { rate, arrivals: Mutex::default() }
    }

    /// Counts an action, or refuses it.
    pub(crate) fn check(&self, party: &Party) -> Result<(), Exceeded> {
        self.check_at(party, Instant::now())
    }

    fn check_at(&self, party: &Party, now: Instant) -> Result<(), Exceeded> {
        let Rate { count, period } = self.rate;
        let mut arrivals = self.arrivals.lock().unwrap_or_else(PoisonError::into_inner);
        let arrival = arrivals.get(party).copied().filter(|arrival| *arrival > now).unwrap_or(now);
        let next = arrival + period / count;
        // The whole period may be used up at once.
        if let Some(early) = next.checked_duration_since(now + period).filter(|early| !early.is_zero()) {
            return Err(Exceeded { rate: self.rate, retry: early });
        }
        if arrivals.len() >= MAX_PARTIES && !arrivals.contains_key(party) {
            arrivals.retain(|_, arrival| *arrival > now);
            if arrivals.len() >= MAX_PARTIES {
                // All of them are active. Those that have used the least lose the least.
                let mut times: Vec<_> = arrivals.values().copied().collect();
                let (_, middle, _) = times.select_nth_unstable(MAX_PARTIES / 2);
                let middle = *middle;
                arrivals.retain(|_, arrival| *arrival > middle);
            }
        }
        arrivals.insert(party.clone(), next);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn party(name: &str) -> Party {
        Party::Tenant(name.into())
    }

    #[test]
    fn a_burst_is_allowed_and_then_the_rate() {
        let rates = Rates::new(Rate::new(120, Duration::from_secs(60)));
        let start = Instant::now();
        for _ in 0..120 {
            assert_eq!(rates.check_at(&party("a"), start), Ok(()));
        }
        let refused = rates.check_at(&party("a"), start).expect_err("one too many");
        assert_eq!(refused.retry, Duration::from_millis(500));
        assert_eq!(rates.check_at(&party("b"), start), Ok(()), "another one is not affected");
        let later = start + Duration::from_millis(500);
        assert_eq!(rates.check_at(&party("a"), later), Ok(()));
        assert!(rates.check_at(&party("a"), later).is_err());
        let much_later = start + Duration::from_secs(600);
        for _ in 0..120 {
            assert_eq!(rates.check_at(&party("a"), much_later), Ok(()));
        }
        assert!(rates.check_at(&party("a"), much_later).is_err());
    }

    #[test]
    fn the_table_is_bounded() {
        let rates = Rates::new(Rate::new(2, Duration::from_secs(3600)));
        let start = Instant::now();
        for number in 0..MAX_PARTIES + 1000 {
            assert!(rates.check_at(&party(&number.to_string()), start).is_ok());
        }
        assert!(rates.arrivals.lock().unwrap().len() <= MAX_PARTIES);
    }
}
