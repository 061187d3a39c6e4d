//! How long a run may wait for its agent.
//!
//! One timer per run is set to the earliest moment at which anything can be overdue. When it fires, instants are compared,
//! and it is set anew if the agent has spoken meanwhile; an event costs a look at the clock and no timer.

use std::time::Duration;

use tokio::time::Instant;

use crate::{error::UpstreamTimeout, settings::Timeouts};

/// What stands for "never": far enough, and no clock overflows.
const FOR_EVER: Duration = Duration::from_secs(u32::MAX as u64);

/// Watches one run.
pub(crate) struct Deadlines {
    /// When the run must be over.
    over: Instant,
    /// What the agent's silence is measured by; none if nobody measures it here.
    silence: Option<Silence>,
}

struct Silence {
    first: Option<Duration>,
    idle: Option<Duration>,
    /// When it began.
    since: Instant,
    has_spoken: bool,
}

impl Deadlines {
    /// Begins to wait. An agent that keeps time itself is only watched for how long it takes altogether.
    pub(crate) fn begin(timeouts: &Timeouts, enforces_stream_timeouts: bool) -> Self {
        let since = Instant::now();
        let Timeouts { first_byte: first, idle, total, .. } = *timeouts;
        let silence = Silence { first, idle, since, has_spoken: false };
        Self {
            over: since + total.unwrap_or(FOR_EVER).min(FOR_EVER),
            silence: (!enforces_stream_timeouts && (first.is_some() || idle.is_some())).then_some(silence),
        }
    }

    /// The agent has spoken, and what it said is in the log. Whether it is the first time: from then on another limit
    /// holds, which may be due before the timer fires.
    pub(crate) fn heard(&mut self) -> bool {
        let Some(silence) = &mut self.silence else { return false };
        silence.since = Instant::now();
        !std::mem::replace(&mut silence.has_spoken, true)
    }

    /// Time in which nobody listened is not the agent's.
    pub(crate) fn forgive(&mut self, time: Duration) {
        self.over += time;
        if let Some(silence) = &mut self.silence {
            silence.since += time;
        }
    }

    /// When to look next.
    pub(crate) fn due(&self) -> Instant {
        let silent = self.silence.as_ref().and_then(Silence::due);
        silent.map_or(self.over, |silent| silent.min(self.over))
    }

    /// What is overdue, if anything.
    pub(crate) fn look(&self) -> Option<UpstreamTimeout> {
        let now = Instant::now();
        match &self.silence {
            _ if self.over <= now => Some(UpstreamTimeout::Total),
            Some(silence) if silence.due().is_some_and(|due| due <= now) => match silence.limit() {
                Some(time) if silence.has_spoken => Some(UpstreamTimeout::Idle(time)),
                Some(time) => Some(UpstreamTimeout::FirstByte(time)),
                None => None,
            },
            _ => None,
        }
    }
}

impl Silence {
    fn limit(&self) -> Option<Duration> {
        if self.has_spoken { self.idle } else { self.first }
    }

    fn due(&self) -> Option<Instant> {
        self.limit().map(|time| self.since + time.min(FOR_EVER))
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    fn watch(enforces_stream_timeouts: bool) -> Deadlines {
        let seconds = |seconds| Some(Duration::from_secs(seconds));
        let timeouts =
            Timeouts { connect: None, first_byte: seconds(10), idle: seconds(5), total: seconds(30) };
        Deadlines::begin(&timeouts, enforces_stream_timeouts)
    }

    fn overdue(watch: &Deadlines) -> Option<String> {
        watch.look().map(|timeout| timeout.to_string())
    }

    #[tokio::test(start_paused = true)]
    async fn each_silence_has_its_own_time() {
        let mut watch = watch(false);
        advance(Duration::from_secs(9)).await;
        assert_eq!(overdue(&watch), None);
        assert!(watch.heard());
        assert_eq!(watch.due() - Instant::now(), Duration::from_secs(5));
        assert!(!watch.heard());
        advance(Duration::from_secs(4)).await;
        assert_eq!(overdue(&watch), None);
        watch.forgive(Duration::from_secs(3));
        advance(Duration::from_secs(3)).await;
        assert_eq!(overdue(&watch), None, "it was held");
        assert_eq!(watch.due() - Instant::now(), Duration::from_secs(1));
        advance(Duration::from_secs(1)).await;
        assert_eq!(overdue(&watch).as_deref(), Some("the agent was silent for 5s"));
    }

    #[tokio::test(start_paused = true)]
    async fn an_agent_that_never_begins_is_told_so() {
        let watch = watch(false);
        advance(Duration::from_secs(10)).await;
        assert_eq!(overdue(&watch).as_deref(), Some("the agent did not begin to answer within 10s"));
    }

    #[tokio::test(start_paused = true)]
    async fn an_agent_that_enforces_its_timeouts_has_only_the_total_one() {
        let mut watch = watch(true);
        advance(Duration::from_secs(29)).await;
        watch.heard();
        assert_eq!(overdue(&watch), None);
        assert_eq!(watch.due() - Instant::now(), Duration::from_secs(1));
        advance(Duration::from_secs(1)).await;
        assert_eq!(overdue(&watch).as_deref(), Some("the run took longer than it may"));
    }

    #[tokio::test(start_paused = true)]
    async fn without_limits_nothing_is_ever_overdue() {
        let timeouts = Timeouts { connect: None, first_byte: None, idle: None, total: None };
        let mut watch = Deadlines::begin(&timeouts, false);
        advance(Duration::from_secs(10 * 365 * 86_400)).await;
        watch.heard();
        assert_eq!(overdue(&watch), None);
        let timeouts = Timeouts { total: Some(Duration::MAX), idle: Some(Duration::MAX), ..timeouts };
        let mut watch = Deadlines::begin(&timeouts, false);
        watch.heard();
        assert_eq!(overdue(&watch), None);
    }
}
