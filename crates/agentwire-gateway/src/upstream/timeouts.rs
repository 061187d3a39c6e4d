//! First-byte and idle timeouts of one stream. Any byte counts as activity, also that of a comment.

use std::{future::Future, pin::pin};

use tokio::time::{Duration, Instant};

use crate::{
    agent::{Pauses, Request},
    error::{UpstreamError, UpstreamTimeout},
};

/// The longest timer: practically unlimited, and no clock overflows.
pub(super) const FOREVER: Duration = Duration::from_secs(30 * 24 * 3600);

/// The timeouts of one stream. They are suspended while the run is paused.
#[derive(Clone, Debug)]
pub(super) struct StreamTimeouts {
    /// The start of the wait for the first byte, and its timeout.
    first_byte: Option<(Instant, Duration)>,
    idle: Option<Duration>,
    pauses: Pauses,
}

impl StreamTimeouts {
    /// Starts the wait for the first byte.
    pub(super) fn start(request: &Request) -> Self {
        let first_byte = request.timeouts.first_byte.map(|time| (Instant::now(), time));
        Self { first_byte, idle: request.timeouts.idle, pauses: request.pauses.clone() }
    }

    /// The deadline of a wait that started at `since`.
    fn deadline(&self, since: Instant, time: Duration) -> Instant {
        self.pauses.since(since) + time.min(FOREVER)
    }

    /// The deadline that applies now, and its timeout: that of the first byte until it `has_started`, then the idle
    /// timeout `since` the last byte.
    pub(super) fn next(&self, has_started: bool, since: Instant) -> Option<(Instant, UpstreamTimeout)> {
        if has_started {
            self.idle.map(|time| (self.deadline(since, time), UpstreamTimeout::Idle(time)))
        } else {
            self.first_byte
                .map(|(since, time)| (self.deadline(since, time), UpstreamTimeout::FirstByte(time)))
        }
    }

    /// Applies the first-byte timeout to a future that is not the stream itself.
    pub(super) async fn limit<T>(&self, future: impl Future<Output = T>) -> Result<T, UpstreamError> {
        let Some((since, time)) = self.first_byte else { return Ok(future.await) };
        let mut future = pin!(future);
        loop {
            let deadline = self.deadline(since, time);
            match tokio::time::timeout_at(deadline, &mut future).await {
                Ok(done) => return Ok(done),
                // The run was paused meanwhile.
                Err(_) if self.deadline(since, time) > deadline => {}
                Err(_) => return Err(UpstreamTimeout::FirstByte(time).into()),
            }
        }
    }
}
