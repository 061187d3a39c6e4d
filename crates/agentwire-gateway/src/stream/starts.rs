//! Starts of runs, for readers that follow a thread beyond the end of a run.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use agentwire_core::event::ThreadId;
use agentwire_store::Owner;
use tokio::sync::Notify;

type Waiting = HashMap<(Owner, ThreadId), (Arc<Notify>, usize)>;

/// The threads whose next run a reader waits for.
#[derive(Debug, Default)]
pub(crate) struct ThreadStarts(Arc<Mutex<Waiting>>);

/// One such reader.
#[derive(Debug)]
pub(crate) struct StartWatch {
    key: (Owner, ThreadId),
    /// Notified when this process starts a run of the thread.
    pub(crate) started: Arc<Notify>,
    waiting: Arc<Mutex<Waiting>>,
}

impl ThreadStarts {
    pub(crate) fn watch(&self, owner: &Owner, thread: &ThreadId) -> StartWatch {
        let key = (owner.clone(), thread.clone());
        let mut waiting = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (started, readers) = waiting.entry(key.clone()).or_default();
        *readers += 1;
        StartWatch { key, started: started.clone(), waiting: self.0.clone() }
    }

    pub(crate) fn notify(&self, owner: &Owner, thread: &ThreadId) {
        let waiting = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if waiting.is_empty() {
            return;
        }
        if let Some((started, _)) = waiting.get(&(owner.clone(), thread.clone())) {
            started.notify_waiters();
        }
    }
}

impl Drop for StartWatch {
    fn drop(&mut self) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, readers)) = waiting.get_mut(&self.key) {
            *readers -= 1;
            if *readers == 0 {
                waiting.remove(&self.key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn only_the_readers_of_the_thread_are_woken() {
        let (starts, owner) = (ThreadStarts::default(), Owner::new("t", "u", "a"));
        let (one, other) = (starts.watch(&owner, &"1".into()), starts.watch(&owner, &"2".into()));
        let second = starts.watch(&owner, &"1".into());
        let mut waits = [&one, &second, &other].map(|watch| Box::pin(watch.started.notified()));
        waits.iter_mut().for_each(|wait| assert!(!wait.as_mut().enable()));
        starts.notify(&owner, &"1".into());
        let [one_wait, second_wait, other_wait] = &mut waits;
        one_wait.await;
        second_wait.await;
        assert!(!other_wait.as_mut().enable());
        drop(waits);
        drop((one, second, other));
        assert!(starts.0.lock().expect("no panic").is_empty(), "nothing is kept");
    }
}
