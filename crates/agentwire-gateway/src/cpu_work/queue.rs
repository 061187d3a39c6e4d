//! The queue for the seats of CPU work: whoever has used the least processor time is next.
//!
//! Tenants are compared first, then the users of a tenant, so that neither many requests of one user nor many users of one
//! tenant delay another one by more than the work that has begun. A caller that comes later starts with the time of those
//! who are served then: nobody saves up turns.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use tokio::sync::oneshot;

use crate::limits::Party;

/// The most requests of one user that wait.
const MAX_REQUESTS_OF_USER: usize = 256;

/// The most requests that wait.
const MAX_REQUESTS: usize = 1024;

/// The most users of a tenant, and the most tenants, whose times are kept while they do not wait.
const MAX_KEPT: usize = 1024;

/// A number of seats, and those who wait for one.
#[derive(Debug)]
pub(super) struct Queue(Mutex<Waiting>);

#[derive(Debug, Default)]
struct Waiting {
    free: usize,
    /// Those who wait or have used a seat while somebody waited.
    tenants: HashMap<Party, Tenant>,
    /// The time of the tenant that was served last.
    floor: Duration,
    /// Requests that wait.
    requests: usize,
}

#[derive(Debug, Default)]
struct Tenant {
    spent: Duration,
    users: HashMap<Party, User>,
    /// The time of its user that was served last.
    floor: Duration,
}

#[derive(Debug, Default)]
struct User {
    spent: Duration,
    waiters: VecDeque<Waiter>,
}

#[derive(Debug)]
struct Waiter {
    turn: oneshot::Sender<Seat>,
    caller: Caller,
}

/// A caller: a request can be refused, everything else waits as long as it takes. There are as many of those as runs and
/// readers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Caller {
    Request,
    Patient,
}

/// Too many requests wait.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Full;

/// The right to use a processor, until it is dropped.
#[derive(Debug)]
pub(crate) struct Seat {
    queue: &'static Queue,
    party: Party,
    since: Instant,
    /// False if nobody took it.
    is_taken: bool,
}

impl Queue {
    pub(super) fn new(seats: usize) -> Self {
        Self(Mutex::new(Waiting { free: seats, ..Waiting::default() }))
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a seat.
    pub(super) async fn seat(&'static self, party: Party, caller: Caller) -> Result<Seat, Full> {
        let turn = {
            let mut waiting = self.lock();
            if waiting.free > 0 {
                waiting.free -= 1;
                return Ok(Seat::new(self, party));
            }
            waiting.add(party, caller)?
        };
        turn.await.map_err(|_| Full)
    }

    /// Counts the time of a seat, and passes it on.
    fn release(&'static self, party: &Party, spent: Duration) {
        self.lock().charge(party, spent);
        loop {
            let (party, waiter) = {
                let mut waiting = self.lock();
                let Some(next) = waiting.take_next() else {
                    // Times matter only while somebody waits.
                    *waiting = Waiting { free: waiting.free + 1, ..Waiting::default() };
                    return;
                };
                next
            };
            match waiter.turn.send(Seat::new(self, party)) {
                Ok(()) => return,
                // The caller has gone.
                Err(mut seat) => seat.is_taken = false,
            }
        }
    }
}

impl Waiting {
    fn add(&mut self, party: Party, caller: Caller) -> Result<oneshot::Receiver<Seat>, Full> {
        if caller == Caller::Request {
            if self.is_full(&party) {
                self.drop_gone();
            }
            if self.is_full(&party) {
                return Err(Full);
            }
            self.requests += 1;
        }
        let (turn, granted) = oneshot::channel();
        let tenant = self.tenant(&party);
        let floor = tenant.floor;
        let user = tenant.users.entry(party).or_default();
        user.spent = user.spent.max(floor);
        user.waiters.push_back(Waiter { turn, caller });
        Ok(granted)
    }

    fn is_full(&self, party: &Party) -> bool {
        let user = self.tenants.get(&tenant_of(party)).and_then(|tenant| tenant.users.get(party));
        self.requests >= MAX_REQUESTS || user.is_some_and(|user| user.requests() >= MAX_REQUESTS_OF_USER)
    }

    /// Removes those who have stopped waiting.
    fn drop_gone(&mut self) {
        let users = self.tenants.values_mut().flat_map(|tenant| tenant.users.values_mut());
        self.requests = users
            .map(|user| {
                user.waiters.retain(|waiter| !waiter.turn.is_closed());
                user.requests()
            })
            .sum();
    }

    /// The tenant of a party, with a time that is not behind the one that is served.
    fn tenant(&mut self, party: &Party) -> &mut Tenant {
        let floor = self.floor;
        if self.tenants.len() > MAX_KEPT {
            self.tenants.retain(|_, tenant| tenant.is_waiting());
        }
        let tenant = self.tenants.entry(tenant_of(party)).or_default();
        tenant.spent = tenant.spent.max(floor);
        if tenant.users.len() > MAX_KEPT {
            tenant.users.retain(|_, user| !user.waiters.is_empty());
        }
        tenant
    }

    fn charge(&mut self, party: &Party, spent: Duration) {
        let tenant = self.tenant(party);
        tenant.spent += spent;
        let floor = tenant.floor;
        let user = tenant.users.entry(party.clone()).or_default();
        user.spent = user.spent.max(floor) + spent;
    }

    /// The one whose turn it is.
    fn take_next(&mut self) -> Option<(Party, Waiter)> {
        let waiting = self.tenants.values_mut().filter(|tenant| tenant.is_waiting());
        let tenant = waiting.min_by_key(|tenant| tenant.spent)?;
        self.floor = self.floor.max(tenant.spent);
        let waiting = tenant.users.iter_mut().filter(|(_, user)| !user.waiters.is_empty());
        let (party, user) = waiting.min_by_key(|(_, user)| user.spent)?;
        tenant.floor = tenant.floor.max(user.spent);
        let waiter = user.waiters.pop_front()?;
        self.requests -= usize::from(waiter.caller == Caller::Request);
        Some((party.clone(), waiter))
    }
}

impl Tenant {
    fn is_waiting(&self) -> bool {
        self.users.values().any(|user| !user.waiters.is_empty())
    }
}

impl User {
    fn requests(&self) -> usize {
        self.waiters.iter().filter(|waiter| waiter.caller == Caller::Request).count()
    }
}

/// The party that the users of a tenant have in common.
fn tenant_of(party: &Party) -> Party {
    match party {
        Party::User { tenant, .. } => Party::Tenant(tenant.clone()),
        other => other.clone(),
    }
}

impl Seat {
    fn new(queue: &'static Queue, party: Party) -> Self {
        Self { queue, party, since: Instant::now(), is_taken: true }
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        if self.is_taken {
            self.queue.release(&self.party, self.since.elapsed());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user(tenant: &str, user: &str) -> Party {
        Party::User { tenant: tenant.into(), user: user.into() }
    }

    fn queue() -> &'static Queue {
        Box::leak(Box::new(Queue::new(1)))
    }

    /// Ends the work of a seat as if it had taken that long.
    fn end(mut seat: Seat, spent: u64) {
        seat.is_taken = false;
        seat.queue.release(&seat.party, Duration::from_millis(spent));
    }

    /// The order in which waiters get their turn, if each works for the given time.
    async fn order(waiters: &[(Party, u64)]) -> Vec<usize> {
        let queue = queue();
        let first = queue.seat(Party::Anybody, Caller::Patient).await.expect("a free seat");
        let (done, mut order) = tokio::sync::mpsc::unbounded_channel();
        for (index, (party, spent)) in waiters.iter().cloned().enumerate() {
            let done = done.clone();
            tokio::spawn(async move {
                let seat = queue.seat(party, Caller::Patient).await.expect("a seat");
                done.send(index).expect("a listener");
                end(seat, spent);
            });
            tokio::task::yield_now().await;
        }
        drop((done, first));
        let mut seen = Vec::new();
        while let Some(index) = order.recv().await {
            seen.push(index);
        }
        let left = queue.lock();
        assert!(left.free == 1 && left.tenants.is_empty(), "nothing is kept when nobody waits");
        seen
    }

    #[tokio::test]
    async fn a_user_does_not_wait_for_the_queue_of_another() {
        let heavy: Vec<_> = (0..50).map(|_| (user("t", "heavy"), 100)).collect();
        let waiters: Vec<_> =
            heavy.into_iter().chain([(user("t", "light"), 1), (user("t", "light"), 1)]).collect();
        let order = order(&waiters).await;
        assert_eq!(order.len(), 52);
        let light: Vec<_> = order.iter().take(3).filter(|index| **index >= 50).collect();
        assert_eq!(light.len(), 2, "{order:?}");
    }

    #[tokio::test]
    async fn many_users_of_one_tenant_do_not_delay_another_tenant() {
        let heavy = (0..50).map(|number| (user("many", &number.to_string()), 100));
        let waiters: Vec<_> = heavy.chain((0..5).map(|_| (user("one", "light"), 1))).collect();
        let order = order(&waiters).await;
        let light = order.iter().take(6).filter(|index| **index >= 50).count();
        assert_eq!(light, 5, "{order:?}");
    }

    #[tokio::test]
    async fn who_comes_later_saves_up_no_turns() {
        let queue = queue();
        let mut seat = queue.seat(user("t", "early"), Caller::Patient).await.expect("a free seat");
        let wait = |name: &'static str| tokio::spawn(queue.seat(user("t", name), Caller::Patient));
        let mut early = wait("early");
        for _ in 0..10 {
            tokio::task::yield_now().await;
            end(seat, 100);
            seat = early.await.expect("no panic").expect("a seat");
            early = wait("early");
        }
        // It has used a second. Who comes now takes turns with it, and is not served first for a second.
        let late: Vec<_> = (0..4).map(|_| wait("late")).collect();
        tokio::task::yield_now().await;
        end(seat, 100);
        let mut late = late.into_iter();
        let first = late.next().expect("one").await.expect("no panic").expect("a seat");
        end(first, 150);
        let again = early.await.expect("no panic").expect("its turn");
        end(again, 100);
        for waiter in late {
            end(waiter.await.expect("no panic").expect("a seat"), 1);
        }
    }

    #[tokio::test]
    async fn requests_beyond_the_limit_are_refused_and_those_that_left_make_room() {
        let queue = queue();
        let seat = queue.seat(user("t", "one"), Caller::Request).await.expect("a free seat");
        let mut waiting: Vec<_> = (0..MAX_REQUESTS_OF_USER)
            .map(|_| queue.lock().add(user("t", "one"), Caller::Request).expect("room"))
            .collect();
        let add = |name: &str, caller| queue.lock().add(user("t", name), caller);
        assert_eq!(add("one", Caller::Request).err(), Some(Full));
        let patient = add("one", Caller::Patient).expect("runs are not refused");
        let other = add("two", Caller::Request).expect("another user has room");
        waiting.truncate(10);
        let again = add("one", Caller::Request).expect("those that left make room");
        assert_eq!(queue.lock().requests, 12);
        let mut others = Vec::new();
        for number in 0.. {
            match add(&format!("n{}", number / 100), Caller::Request) {
                Ok(granted) => others.push(granted),
                Err(Full) => break,
            }
        }
        assert_eq!(others.len(), MAX_REQUESTS - 12);
        assert_eq!(add("new", Caller::Request).err(), Some(Full));
        drop((waiting, patient, other, again, others, seat));
        let left = queue.lock();
        assert_eq!((left.free, left.requests), (1, 0));
    }
}
