//! One budget of bytes for everything that waits in memory for a client: request bodies that arrive, large responses that
//! leave.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::sync::Notify;

use super::Party;

/// The part of the budget that one party can have: `1 / SHARE`.
const SHARE: usize = 4;

/// Texts of so few bytes are read without the budget.
const SMALL: usize = 64 << 10;

/// Readings of one party whose length is not known yet. Many at once would all have read before the first is counted.
const READINGS: usize = 8;

/// A budget of bytes, of which one party cannot have more than a share.
#[derive(Debug)]
pub(crate) struct ByteBudget {
    total: usize,
    share: usize,
    used: Mutex<Used>,
    freed: Notify,
}

#[derive(Debug, Default)]
struct Used {
    bytes: usize,
    by_party: HashMap<Party, usize>,
    /// The readings of each party.
    readings: HashMap<Party, usize>,
}

/// Bytes of a budget, given back on drop.
#[derive(Debug)]
pub(crate) struct HeldBytes {
    budget: Arc<ByteBudget>,
    party: Party,
    bytes: usize,
}

impl ByteBudget {
    /// A budget of `total` bytes. A single item of `item` bytes always fits into an unused one.
    pub(crate) fn new(total: usize, item: usize) -> Arc<Self> {
        let total = total.max(item);
        let share = (total / SHARE).max(item);
        Arc::new(Self { total, share, used: Mutex::default(), freed: Notify::new() })
    }

    fn used(&self) -> MutexGuard<'_, Used> {
        self.used.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Nothing yet, for `party`.
    pub(crate) fn hold(self: &Arc<Self>, party: Party) -> HeldBytes {
        HeldBytes { budget: self.clone(), party, bytes: 0 }
    }

    /// Waits until a party may read something of unknown length.
    async fn reading(self: &Arc<Self>, party: &Party) -> Reading {
        loop {
            let freed = self.freed.notified();
            tokio::pin!(freed);
            freed.as_mut().enable();
            {
                let mut used = self.used();
                let readings = used.readings.entry(party.clone()).or_default();
                if *readings < READINGS {
                    *readings += 1;
                    return Reading { budget: self.clone(), party: party.clone() };
                }
            }
            freed.await;
        }
    }

    /// Reads something once there is room for it, if it has more than [`SMALL`] bytes. Its length is known only when it
    /// was read: without room it is dropped, and read again later.
    pub(crate) async fn read<T, E, F: Future<Output = Result<T, E>>>(
        self: &Arc<Self>,
        party: Party,
        read: impl Fn() -> F,
        length: impl Fn(&T) -> usize,
    ) -> Result<(T, Option<HeldBytes>), E> {
        let mut held = self.hold(party.clone());
        loop {
            let reading = self.reading(&party).await;
            let found = read().await?;
            let bytes = length(&found);
            if bytes <= SMALL {
                return Ok((found, None));
            }
            if held.grow_to(bytes) {
                return Ok((found, Some(held)));
            }
            // Nothing is kept while it waits.
            drop((found, held, reading));
            held = self.hold(party.clone());
            held.wait(bytes).await;
        }
    }
}

impl HeldBytes {
    /// Takes `bytes` more; `false` if there are not as many.
    pub(crate) fn grow(&mut self, bytes: usize) -> bool {
        let mut used = self.budget.used();
        let own = used.by_party.get(&self.party).copied().unwrap_or_default();
        if used.bytes + bytes > self.budget.total || own + bytes > self.budget.share {
            return false;
        }
        used.bytes += bytes;
        if bytes > 0 {
            used.by_party.insert(self.party.clone(), own + bytes);
        }
        self.bytes += bytes;
        true
    }

    /// Takes as many more as make `bytes` in all, or a share if that is less; `false` if there are not as many.
    pub(crate) fn grow_to(&mut self, bytes: usize) -> bool {
        let bytes = bytes.min(self.budget.share);
        self.grow(bytes.saturating_sub(self.bytes))
    }

    /// Waits for `bytes` more; more than a share counts as a share.
    pub(crate) async fn wait(&mut self, bytes: usize) {
        let budget = self.budget.clone();
        let bytes = bytes.min(budget.share.saturating_sub(self.bytes));
        loop {
            let freed = budget.freed.notified();
            tokio::pin!(freed);
            freed.as_mut().enable();
            if self.grow(bytes) {
                return;
            }
            freed.await;
        }
    }
}

/// A reading of unknown length.
struct Reading {
    budget: Arc<ByteBudget>,
    party: Party,
}

impl Drop for Reading {
    fn drop(&mut self) {
        let mut used = self.budget.used();
        if let Some(readings) = used.readings.get_mut(&self.party) {
            *readings -= 1;
            if *readings == 0 {
                used.readings.remove(&self.party);
            }
        }
        drop(used);
        self.budget.freed.notify_waiters();
    }
}

impl Drop for HeldBytes {
    fn drop(&mut self) {
        if self.bytes == 0 {
            return;
        }
        let mut used = self.budget.used();
        used.bytes -= self.bytes;
        if let Some(own) = used.by_party.get_mut(&self.party) {
            *own -= self.bytes;
            if *own == 0 {
                used.by_party.remove(&self.party);
            }
        }
        drop(used);
        self.budget.freed.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    fn user(name: &str) -> Party {
        Party::User { tenant: "t".into(), user: name.into() }
    }

    #[test]
    fn one_party_cannot_have_it_all() {
        let budget = ByteBudget::new(400, 50);
        let mut one = budget.hold(user("one"));
        assert!(one.grow(60) && one.grow(40) && !one.grow(1), "a quarter is its share");
        let mut again = budget.hold(user("one"));
        assert!(!again.grow(1));
        let others: Vec<_> = ["two", "three", "four"]
            .into_iter()
            .map(|name| {
                let mut held = budget.hold(user(name));
                assert!(held.grow(100));
                held
            })
            .collect();
        assert!(!budget.hold(user("five")).grow(1), "nothing is left");
        drop(others);
        drop(one);
        assert!(again.grow(100));
        drop(again);
        let used = budget.used();
        assert!(used.bytes == 0 && used.by_party.is_empty());
    }

    /// Counts the values that are held.
    struct Counted<'c>(&'c AtomicUsize, usize);

    impl Drop for Counted<'_> {
        fn drop(&mut self) {
            self.0.fetch_sub(1, Ordering::SeqCst);
        }
    }

    #[tokio::test]
    async fn what_is_read_by_many_is_not_held_by_all() {
        let budget = ByteBudget::new(4 << 20, 1 << 20);
        let (live, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
        // Each reading finds more than the one before.
        let readers = (0..40).map(|number| {
            let (budget, live, most) = (&budget, &live, &most);
            let read = move || async move {
                live.fetch_add(1, Ordering::SeqCst);
                Ok::<_, ()>(Counted(live, (400 << 10) + number))
            };
            async move {
                let (found, held) = budget.read(user("one"), read, |found| found.1).await.expect("a value");
                most.fetch_max(live.load(Ordering::SeqCst), Ordering::SeqCst);
                tokio::task::yield_now().await;
                drop((found, held));
            }
        });
        futures_util::future::join_all(readers).await;
        assert!(most.load(Ordering::SeqCst) <= 3, "{most:?}: two fit into a share, and one finds that out");
        assert!(budget.used().readings.is_empty());
        let small = budget.read(user("one"), || async { Ok::<_, ()>("text") }, |text| text.len()).await;
        assert!(small.is_ok_and(|(_, held)| held.is_none()));
        assert_eq!(budget.used().bytes, 0);
    }

    #[tokio::test]
    async fn a_large_item_waits_for_room() {
        let budget = ByteBudget::new(100, 100);
        let mut first = budget.hold(user("one"));
        assert!(first.grow(80));
        let mut second = budget.hold(user("two"));
        let waiting = tokio::spawn(async move {
            second.wait(1000).await;
            second.bytes
        });
        tokio::task::yield_now().await;
        assert!(!waiting.is_finished());
        drop(first);
        assert_eq!(waiting.await.expect("no panic"), 100);
    }
}
