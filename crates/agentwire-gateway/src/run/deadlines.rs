//! The deadlines of a run: first event, idle time, total time.
//!
//! One timer per run is set to the earliest deadline. When it fires, the instants are compared and the timer is reset if the
//! agent has emitted an event meanwhile: an event costs one read of the clock and no timer operation.

use std::time::Duration;

use tokio::time::Instant;

use crate::{error::UpstreamTimeout, settings::Timeouts};

/// "Never": far away, without an overflow of the clock.
const NEVER: Duration = Duration::from_secs(u32::MAX as u64);

/// The deadlines of one run.
pub(crate) struct Deadlines {
    /// The deadline of the whole run.
    total: Instant,
    /// The timeouts between events; `None` if the agent enforces them itself.
    silence: Option<Silence>,
}

/// The time since the last event of the agent.
struct Silence {
    first: Option<Duration>,
    idle: Option<Duration>,
    since: Instant,
    has_events: bool,
}

impl Deadlines {
    /// Starts the clock. An agent that enforces the stream timeouts itself has only the total deadline here.
    pub(crate) fn start(timeouts: &Timeouts, enforces_stream_timeouts: bool) -> Self {
        let since = Instant::now();
        let Timeouts { first_byte: first, idle, total, .. } = *timeouts;
        let silence = Silence { first, idle, since, has_events: false };
        Self {
            total: since + total.unwrap_or(NEVER).min(NEVER),
            silence: (!enforces_stream_timeouts && (first.is_some() || idle.is_some())).then_some(silence),
        }
    }

    /// Notes that events of the agent are in the log. `true` for the first ones: the idle timeout, which applies from then
    /// on, may expire before the timer fires.
    pub(crate) fn note_event(&mut self) -> bool {
        let Some(silence) = &mut self.silence else { return false };
        silence.since = Instant::now();
        !std::mem::replace(&mut silence.has_events, true)
    }

    /// Moves the deadlines by the duration of a pause: timeouts are suspended while a run is paused.
    pub(crate) fn extend(&mut self, time: Duration) {
        self.total += time;
        if let Some(silence) = &mut self.silence {
            silence.since += time;
        }
    }

    /// The earliest deadline.
    pub(crate) fn next_check(&self) -> Instant {
        let silence = self.silence.as_ref().and_then(Silence::deadline);
        silence.map_or(self.total, |deadline| deadline.min(self.total))
    }

    /// The expired timeout, if any.
    pub(crate) fn expired(&self) -> Option<UpstreamTimeout> {
        let now = Instant::now();
        match &self.silence {
            _ if self.total <= now => Some(UpstreamTimeout::Total),
            Some(silence) if silence.deadline().is_some_and(|deadline| deadline <= now) => {
                match silence.limit() {
                    Some(time) if silence.has_events => Some(UpstreamTimeout::Idle(time)),
                    Some(time) => Some(UpstreamTimeout::FirstByte(time)),
                    None => None,
                }
            }
            _ => None,
        }
    }
}

impl Silence {
    fn limit(&self) -> Option<Duration> {
        if self.has_events { self.idle } else { self.first }
    }

    fn deadline(&self) -> Option<Instant> {
        self.limit().map(|time| self.since + time.min(NEVER))
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    fn deadlines(enforces_stream_timeouts: bool) -> Deadlines {
        let seconds = |seconds| Some(Duration::from_secs(seconds));
        let timeouts =
            Timeouts { connect: None, first_byte: seconds(10), idle: seconds(5), total: seconds(30) };
        Deadlines::start(&timeouts, enforces_stream_timeouts)
    }

    fn expired(deadlines: &Deadlines) -> Option<String> {
        deadlines.expired().map(|timeout| timeout.to_string())
    }

    #[tokio::test(start_paused = true)]
    async fn first_byte_and_idle_timeouts_are_apart() {
        let mut deadlines = deadlines(false);
        advance(Duration::from_secs(9)).await;
        assert_eq!(expired(&deadlines), None);
        assert!(deadlines.note_event());
        assert_eq!(deadlines.next_check() - Instant::now(), Duration::from_secs(5));
        assert!(!deadlines.note_event());
        advance(Duration::from_secs(4)).await;
        assert_eq!(expired(&deadlines), None);
        deadlines.extend(Duration::from_secs(3));
        advance(Duration::from_secs(3)).await;
        assert_eq!(expired(&deadlines), None, "it was paused");
        assert_eq!(deadlines.next_check() - Instant::now(), Duration::from_secs(1));
        advance(Duration::from_secs(1)).await;
        assert_eq!(expired(&deadlines).as_deref(), Some("the agent was silent for 5s"));
    }

    #[tokio::test(start_paused = true)]
    async fn an_agent_without_events_exceeds_first_byte() {
        let deadlines = deadlines(false);
        advance(Duration::from_secs(10)).await;
        assert_eq!(expired(&deadlines).as_deref(), Some("the agent did not begin to answer within 10s"));
    }

    #[tokio::test(start_paused = true)]
    async fn an_agent_that_enforces_its_timeouts_has_only_the_total_one() {
        let mut deadlines = deadlines(true);
        advance(Duration::from_secs(29)).await;
        deadlines.note_event();
        assert_eq!(expired(&deadlines), None);
        assert_eq!(deadlines.next_check() - Instant::now(), Duration::from_secs(1));
        advance(Duration::from_secs(1)).await;
        assert_eq!(expired(&deadlines).as_deref(), Some("the run took longer than it may"));
    }

    #[tokio::test(start_paused = true)]
    async fn without_timeouts_nothing_expires() {
        let timeouts = Timeouts { connect: None, first_byte: None, idle: None, total: None };
        let mut deadlines = Deadlines::start(&timeouts, false);
        advance(Duration::from_secs(10 * 365 * 86_400)).await;
        deadlines.note_event();
        assert_eq!(expired(&deadlines), None);
        let timeouts = Timeouts { total: Some(Duration::MAX), idle: Some(Duration::MAX), ..timeouts };
        let mut deadlines = Deadlines::start(&timeouts, false);
        deadlines.note_event();
        assert_eq!(expired(&deadlines), None);
    }
}
