//! The session lock: an external mutex per thread, beside the gateway's own lease.

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

/// The default timeout of a lock: people retry after that.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(30);

/// A lock around every run of an agent, beside the gateway's own. Created once, with the gateway.
///
/// The gateway itself ensures that a thread has one run at a time, in all processes that share its store. A session lock
/// is for resources outside the store: a licence, a device, another program that works on the same session. A gateway that
/// is killed releases nothing, so a lock that outlives the process needs an expiry or an owner that can be looked up.
pub trait SessionLock: Send + Sync + 'static {
    /// Acquires the lock. An error ends the run; clients know the code [`crate::codes::THREAD_IS_LOCKED`].
    ///
    /// # Cancel safety
    /// The future is dropped when the run is stopped or after [`SessionLock::timeout`]; the lock must be free then, since
    /// [`SessionLock::unlock`] is only called after `Ok`.
    fn lock<'l>(&'l self, run: &'l RunContext) -> Hooked<'l>;

    /// Releases the lock. Called once for every run that acquired it, right before its terminal event is published.
    fn unlock<'l>(&'l self, run: &'l RunContext) -> BoxFuture<'l, ()>;

    /// The timeout of each call.
    fn timeout(&self) -> Duration {
        DEFAULT_TIMEOUT
    }
}

/// The lock of one run.
pub(crate) struct HeldLock {
    lock: Arc<dyn SessionLock>,
    run: RunContext,
    is_held: AtomicBool,
}

impl HeldLock {
    pub(crate) fn new(lock: Arc<dyn SessionLock>, run: RunContext) -> Self {
        Self { lock, run, is_held: AtomicBool::new(false) }
    }

    /// Acquires the lock.
    pub(crate) async fn acquire(&self) -> Result<(), UpstreamError> {
        let locked = async {
            let timeout = self.lock.timeout();
            let late = |_| failed(format!("the session lock took longer than {timeout:?}"));
            tokio::time::timeout(timeout, self.lock.lock(&self.run))
                .await
                .unwrap_or_else(|elapsed| Err(late(elapsed)))
        };
        let locked = AssertUnwindSafe(locked).catch_unwind().await;
        locked.unwrap_or_else(|_| Err(failed("the session lock panicked")))?;
        self.is_held.store(true, Ordering::Release);
        Ok(())
    }

    /// Releases the lock, if it is held.
    pub(crate) async fn release(&self) {
        if !self.is_held.swap(false, Ordering::AcqRel) {
            return;
        }
        let released =
            async { tokio::time::timeout(self.lock.timeout(), self.lock.unlock(&self.run)).await.is_ok() };
        let run = &self.run.run;
        match AssertUnwindSafe(released).catch_unwind().await {
            Ok(true) => {}
            Ok(false) => tracing::error!(%run, "the session lock could not be freed in time"),
            Err(_) => tracing::error!(%run, "the session lock panicked while it was freed"),
        }
    }
}
