//! The session lock: who else than the gateway's own lease must agree that a run begins.

use std::{
    panic::AssertUnwindSafe,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use futures_util::FutureExt;

use super::{Hooked, RunContext, failed};
use crate::{agent::BoxFuture, error::UpstreamError};

/// How long a run waits for a lock unless the lock says otherwise; people send again after that.
const PATIENCE: Duration = Duration::from_secs(30);

/// A lock around every run of an agent, beside the one that the gateway has itself. Made once, with the gateway.
///
/// The gateway already sees to it that a thread has one run at a time, in all processes that share its store. A lock of
/// one's own is for what the store does not know: a licence, a device, another program that works on the same session.
/// A gateway that is killed frees nothing, so a lock that outlives the process needs an expiry or an owner that can be
/// looked up.
pub trait SessionLock: Send + Sync + 'static {
    /// Takes the lock, or refuses: the failure is how the run ends, [`crate::codes::THREAD_IS_LOCKED`] being the code
    /// that clients know.
    ///
    /// # Cancel safety
    /// The future is dropped when the run is stopped or [`SessionLock::timeout`] is over; a lock that it was about to
    /// take must be free then, since [`SessionLock::unlock`] is only called after `Ok`.
    fn lock<'l>(&'l self, run: &'l RunContext) -> Hooked<'l>;

    /// Frees the lock. Called once for every run that got it, however the run ends, right before its ending is told.
    fn unlock<'l>(&'l self, run: &'l RunContext) -> BoxFuture<'l, ()>;

    /// How long each of them may take.
    fn timeout(&self) -> Duration {
        PATIENCE
    }
}

/// The lock of one run.
pub(crate) struct HeldLock {
    lock: Arc<dyn SessionLock>,
    run: RunContext,
    held: AtomicBool,
}

impl HeldLock {
    pub(crate) fn new(lock: Arc<dyn SessionLock>, run: RunContext) -> Self {
        Self { lock, run, held: AtomicBool::new(false) }
    }

    /// Takes the lock.
    pub(crate) async fn take(&self) -> Result<(), UpstreamError> {
        let locked = async {
            let patience = self.lock.timeout();
            let late = |_| failed(format!("the session lock took longer than {patience:?}"));
            tokio::time::timeout(patience, self.lock.lock(&self.run))
                .await
                .unwrap_or_else(|over| Err(late(over)))
        };
        let locked = AssertUnwindSafe(locked).catch_unwind().await;
        locked.unwrap_or_else(|_| Err(failed("the session lock panicked")))?;
        self.held.store(true, Ordering::Release);
        Ok(())
    }

    /// Frees the lock, if it was taken and not freed yet.
    pub(crate) async fn free(&self) {
        if !self.held.swap(false, Ordering::AcqRel) {
            return;
        }
        let freed =
            async { tokio::time::timeout(self.lock.timeout(), self.lock.unlock(&self.run)).await.is_ok() };
        let run = &self.run.run;
        match AssertUnwindSafe(freed).catch_unwind().await {
            Ok(true) => {}
            Ok(false) => tracing::error!(%run, "the session lock could not be freed in time"),
            Err(_) => tracing::error!(%run, "the session lock panicked while it was freed"),
        }
    }
}
