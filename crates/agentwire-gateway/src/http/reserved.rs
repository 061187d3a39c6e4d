//! Connections beyond `limits.connections`, which only probes can use.
//!
//! A probe sends its request at once. So a connection that has sent none gives its seat to the next one that comes:
//! clients that connect and are silent, however many, delay no probe.

use std::{
    collections::VecDeque,
    net::IpAddr,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
};

use tokio_util::sync::CancellationToken;

use crate::limits::Party;

/// All seats.
const SEATS: usize = 16;

/// Those of one peer.
const SEATS_OF_PEER: usize = 8;

/// The seats of a server.
#[derive(Clone, Debug, Default)]
pub(super) struct ReservedSeats(Arc<Mutex<Taken>>);

/// The taken seats, oldest first.
#[derive(Debug, Default)]
struct Taken {
    seats: VecDeque<Claim>,
    next: u64,
}

#[derive(Clone, Debug)]
struct Claim {
    number: u64,
    address: IpAddr,
    peer: Party,
    /// Cancelled when another connection gets the seat.
    lost: CancellationToken,
    /// Requests that are being answered.
    requests: Arc<AtomicUsize>,
}

impl Claim {
    fn is_silent(&self) -> bool {
        self.requests.load(Ordering::Acquire) == 0
    }
}

/// A seat, given back on drop.
#[derive(Debug)]
pub(super) struct ReservedSeat {
    seats: ReservedSeats,
    claim: Claim,
}

/// A request that is being answered; its connection keeps its seat.
#[derive(Debug)]
pub(super) struct ReservedRequest(Arc<AtomicUsize>);

impl ReservedSeats {
    fn taken(&self) -> MutexGuard<'_, Taken> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A seat, and the address that has lost it; `None` if all that the peer may have are answering requests.
    pub(super) fn take(&self, address: IpAddr) -> Option<(ReservedSeat, Option<IpAddr>)> {
        let peer = Party::peer(Some(address.to_canonical()));
        let mut taken = self.taken();
        let of_peer = taken.seats.iter().filter(|claim| claim.peer == peer).count();
        let is_peer_full = of_peer >= SEATS_OF_PEER;
        let mut loser = None;
        if is_peer_full || taken.seats.len() >= SEATS {
            let is_loser = |claim: &Claim| claim.is_silent() && (!is_peer_full || claim.peer == peer);
            let at = taken.seats.iter().position(is_loser)?;
            let lost = taken.seats.remove(at)?;
            lost.lost.cancel();
            loser = Some(lost.address);
        }
        taken.next += 1;
        let (lost, requests) = (CancellationToken::new(), Arc::default());
        let claim = Claim { number: taken.next, address, peer, lost, requests };
        taken.seats.push_back(claim.clone());
        Some((ReservedSeat { seats: self.clone(), claim }, loser))
    }
}

impl ReservedSeat {
    /// Cancelled when another connection gets the seat.
    pub(super) fn lost(&self) -> &CancellationToken {
        &self.claim.lost
    }

    /// Keeps the seat until a request is answered.
    pub(super) fn request(&self) -> ReservedRequest {
        self.claim.requests.fetch_add(1, Ordering::AcqRel);
        ReservedRequest(self.claim.requests.clone())
    }
}

impl Drop for ReservedRequest {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Drop for ReservedSeat {
    fn drop(&mut self) {
        self.seats.taken().seats.retain(|claim| claim.number != self.claim.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(last: u8) -> IpAddr {
        IpAddr::from([192, 0, 2, last])
    }

    #[test]
    fn a_silent_connection_gives_its_seat_to_the_next() {
        let seats = ReservedSeats::default();
        let take = || seats.take(address(1));
        let mut held: Vec<_> = (0..SEATS_OF_PEER).map(|_| take().expect("a seat")).collect();
        assert!(held.iter().all(|(_, loser)| loser.is_none()));
        let asking: Vec<_> = held.iter().skip(1).map(|(seat, _)| seat.request()).collect();
        let (next, loser) = take().expect("that of the only silent one");
        assert_eq!(loser, Some(address(1)));
        let lost: Vec<_> = held.iter().map(|(seat, _)| seat.lost().is_cancelled()).collect();
        assert_eq!(lost.iter().position(|lost| *lost), Some(0), "{lost:?}");
        assert_eq!(lost.iter().filter(|lost| **lost).count(), 1);
        let last = next.request();
        assert!(take().is_none(), "all answer requests");
        assert!(seats.take(address(2)).is_some(), "another peer has seats");
        drop(last);
        assert!(take().is_some() && next.lost().is_cancelled());
        held.clear();
        drop((asking, next));
        assert!(seats.taken().seats.is_empty());
    }

    #[test]
    fn one_peer_takes_no_seat_of_another_until_all_are_taken() {
        let seats = ReservedSeats::default();
        let peers = u8::try_from(SEATS / 2).expect("a few");
        let held: Vec<_> =
            (0..2 * peers).map(|at| seats.take(address(at % peers)).expect("a seat").0).collect();
        let (newest, loser) = seats.take(address(99)).expect("that of the oldest");
        assert_eq!(loser, Some(address(0)));
        assert_eq!(held.iter().filter(|seat| seat.lost().is_cancelled()).count(), 1);
        drop((held, newest));
        assert!(seats.taken().seats.is_empty());
    }
}
