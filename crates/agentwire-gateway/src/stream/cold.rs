//! Reads of the log from the store: a few at a time, and each page once for all readers that need it at the same time.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError, Weak},
};

use agentwire_core::event::RunId;
use agentwire_store::{Log, Owner, Seq, Store, StoreError};
use tokio::sync::{OnceCell, Semaphore};

/// Concurrent reads: more would queue inside of the store, with a page in memory each.
const SEATS: usize = 8;

/// Pages that are being read or shown; beyond it they are not shared.
const MAX_PAGES: usize = 10_000;

/// A page of the log. It is shared as long as a reader keeps it.
pub(crate) type SharedPage = Arc<OnceCell<Log>>;

#[derive(Clone, PartialEq, Eq, Hash)]
struct PageKey {
    owner: Owner,
    run: RunId,
    after: Option<Seq>,
    limit: usize,
}

/// The reads of all readers.
pub(crate) struct ColdReads {
    seats: Semaphore,
    pages: Mutex<HashMap<PageKey, Weak<OnceCell<Log>>>>,
}

impl Default for ColdReads {
    fn default() -> Self {
        Self { seats: Semaphore::new(SEATS), pages: Mutex::default() }
    }
}

impl ColdReads {
    /// Reads a page as it is now.
    pub(crate) async fn read(
        &self,
        store: &dyn Store,
        owner: &Owner,
        run: &RunId,
        after: Option<Seq>,
        limit: usize,
    ) -> Result<Log, StoreError> {
        let _seat = self.seats.acquire().await;
        store.read(owner, run, after, limit).await
    }

    /// Reads a page, or shares the one that another reader has. It may lack events that were appended since then.
    pub(crate) async fn read_shared(
        &self,
        store: &dyn Store,
        owner: &Owner,
        run: &RunId,
        after: Option<Seq>,
        limit: usize,
    ) -> Result<SharedPage, StoreError> {
        let key = PageKey { owner: owner.clone(), run: run.clone(), after, limit };
        let page = self.page(key);
        page.get_or_try_init(|| self.read(store, owner, run, after, limit)).await?;
        Ok(page)
    }

    fn page(&self, key: PageKey) -> SharedPage {
        let mut pages = self.pages.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(page) = pages.get(&key).and_then(Weak::upgrade) {
            return page;
        }
        if pages.len() >= MAX_PAGES {
            pages.retain(|_, page| page.strong_count() > 0);
        }
        let page = SharedPage::default();
        if pages.len() < MAX_PAGES {
            pages.insert(key, Arc::downgrade(&page));
        }
        page
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn readers_of_a_page_share_it() {
        let reads = ColdReads::default();
        let key = |after| PageKey { owner: Owner::new("t", "u", "a"), run: "r".into(), after, limit: 1 };
        let (one, two) = (reads.page(key(None)), reads.page(key(None)));
        assert!(Arc::ptr_eq(&one, &two));
        assert!(!Arc::ptr_eq(&one, &reads.page(key(Some(Seq(1))))));
        drop((one, two));
        assert!(reads.pages.lock().unwrap().values().all(|page| page.strong_count() == 0));
    }

    #[test]
    fn the_table_of_pages_is_bounded() {
        let reads = ColdReads::default();
        let mut kept = Vec::new();
        for number in 0..MAX_PAGES as u64 + 10 {
            let key = PageKey {
                owner: Owner::new("t", "u", "a"),
                run: "r".into(),
                after: Some(Seq(number)),
                limit: 1,
            };
            kept.push(reads.page(key));
        }
        assert_eq!(reads.pages.lock().unwrap().len(), MAX_PAGES);
    }
}
