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
