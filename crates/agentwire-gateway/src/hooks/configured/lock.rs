//! A session lock that a server holds.
//!
//! The server is asked by `lock` and told by `unlock`. If the answer to `lock` is not known, because the request failed or
//! the run was stopped meanwhile, `unlock` follows as well: the server may have given the lock.

use std::{sync::Arc, time::Duration};

use super::{
    super::{Hooked, RunContext, SessionLock},
    MARGIN,
    body::RunDescription,
    http::{HookServer, OnFailure},
    reply::Problem,
    server_failed,
};
use crate::{agent::BoxFuture, codes, error::UpstreamError};

/// The message of a run without the lock, if the server has none.
const LOCKED: &str = "the session is locked";

#[derive(Clone)]
pub(super) struct ServerLock {
    pub(super) server: Arc<HookServer>,
    pub(super) timeout: Duration,
}

impl SessionLock for ServerLock {
    fn lock<'l>(&'l self, run: &'l RunContext) -> Hooked<'l> {
        Box::pin(async move {
            let body = RunDescription::new(run).body("lock", &[]);
            let mut unlock = UnlockOnDrop { lock: self, run, is_armed: true };
            let problem = match self.server.call(&run.owner, "lock", body, &["locked"]).await {
                Ok(None) => None,
                Ok(Some(reply)) => match reply.get("locked") {
                    Some("true") => None,
                    Some("false") => Some(Problem::Refused(LOCKED.to_owned())),
                    _ => {
                        Some(Problem::Failed("answered with `locked` that is neither true nor false".into()))
                    }
                },
                Err(problem) => Some(problem),
            };
            let is_open = self.server.on_failure == OnFailure::Open;
            unlock.is_armed = matches!(&problem, Some(Problem::Failed(_)) if !is_open);
            match problem {
                None => Ok(()),
                Some(Problem::Refused(why)) => Err(UpstreamError::new(codes::THREAD_IS_LOCKED, why)),
                Some(Problem::Failed(problem)) if is_open => {
                    tracing::warn!(run = %run.run, problem, "a run goes on without its session lock");
                    Ok(())
                }
                Some(Problem::Failed(problem)) => Err(server_failed("lock", &problem)),
            }
        })
    }

    fn unlock<'l>(&'l self, run: &'l RunContext) -> BoxFuture<'l, ()> {
        Box::pin(unlock(Arc::clone(&self.server), run.clone()))
    }

    fn timeout(&self) -> Duration {
        self.timeout + MARGIN
    }
}

async fn unlock(server: Arc<HookServer>, run: RunContext) {
    let body = RunDescription::new(&run).body("unlock", &[]);
    if let Err(problem) = server.post(body, false).await {
        tracing::error!(run = %run.run, problem, "the server of a session lock was not told of its end");
    }
}

/// Releases a lock that the server may have given.
struct UnlockOnDrop<'l> {
    lock: &'l ServerLock,
    run: &'l RunContext,
    is_armed: bool,
}

impl Drop for UnlockOnDrop<'_> {
    fn drop(&mut self) {
        if self.is_armed {
            self.run.tasks.spawn(unlock(Arc::clone(&self.lock.server), self.run.clone()));
        }
    }
}
