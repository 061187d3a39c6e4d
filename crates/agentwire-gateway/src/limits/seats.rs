//! Counts of things that a party has at the same time: runs, readers, connections.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use super::Party;

/// A table of counts. An entry goes with its last seat, so that the table is as large as what it counts.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seats(Arc<Mutex<HashMap<Party, usize>>>);

/// One seat, given back on drop.
#[derive(Debug)]
pub(crate) struct Seat {
    seats: Seats,
    party: Party,
}

impl Seats {
    /// Takes a seat; `None` if the party has `limit` already.
    pub(crate) fn take(&self, party: Party, limit: Option<usize>) -> Option<Seat> {
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let count = counts.get(&party).copied().unwrap_or_default();
        if limit.is_some_and(|limit| count >= limit) {
            return None;
        }
        counts.insert(party.clone(), count + 1);
        Some(Seat { seats: self.clone(), party })
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut counts = self.seats.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = counts.get_mut(&self.party) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.party);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seats_are_given_back() {
        let (seats, party) = (Seats::default(), Party::Tenant("a".into()));
        let one = seats.take(party.clone(), Some(2)).expect("a seat");
        let _two = seats.take(party.clone(), Some(2)).expect("a seat");
        assert!(seats.take(party.clone(), Some(2)).is_none());
        assert!(seats.take(Party::Tenant("b".into()), Some(2)).is_some());
        drop(one);
        let three = seats.take(party.clone(), Some(2)).expect("a seat");
        drop((three, _two));
        assert!(seats.0.lock().unwrap().is_empty());
    }
}
