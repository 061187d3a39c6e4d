//! The circuit breaker of one agent: after some failures in a row to reach it, new runs are refused for a while instead of
//! waiting for one timeout each. One run at a time then tries again.
//!
//! Closed: every run calls the agent. Open: none does. Half-open: the time is over, and one run is the probe; it closes
//! or opens the breaker.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

use super::settings::BreakerSettings;

/// The wait of a request while another run is the probe.
const PROBE_WAIT: Duration = Duration::from_secs(1);

/// The state of a breaker; the number is its value in the metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BreakerState {
    Closed = 0,
    HalfOpen = 1,
    Open = 2,
}

impl BreakerState {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::HalfOpen => "half-open",
            Self::Open => "open",
        }
    }
}

/// The circuit breaker of one agent.
#[derive(Debug)]
pub(crate) struct Breaker {
    settings: BreakerSettings,
    inner: Mutex<Inner>,
}

#[derive(Debug)]
enum Inner {
    /// The failures since the last success.
    Closed(u32),
    /// No call before this time; half-open after it.
    Open(Instant),
    /// A probe is on its way.
    Probing,
}

/// One call of the agent. Dropped without an outcome, it says nothing about the agent.
#[derive(Debug)]
pub(crate) struct BreakerCall {
    breaker: Arc<Breaker>,
    is_probe: bool,
    is_settled: bool,
}

impl Breaker {
    pub(crate) fn new(settings: BreakerSettings) -> Arc<Self> {
        Arc::new(Self { settings, inner: Mutex::new(Inner::Closed(0)) })
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn state(&self) -> BreakerState {
        match &*self.inner() {
            Inner::Closed(_) => BreakerState::Closed,
            Inner::Open(until) if *until > Instant::now() => BreakerState::Open,
            Inner::Open(_) | Inner::Probing => BreakerState::HalfOpen,
        }
    }

    /// Permission for a call now, or the time to wait.
    pub(crate) fn check(&self) -> Result<(), Duration> {
        self.inner().check()
    }

    /// Begins a call; the time to wait if the breaker is open.
    pub(crate) fn begin(self: &Arc<Self>) -> Result<BreakerCall, Duration> {
        // Under one lock, so that nobody begins after the probe of another run has failed.
        let mut inner = self.inner();
        inner.check()?;
        let is_probe = matches!(*inner, Inner::Open(_));
        if is_probe {
            *inner = Inner::Probing;
        }
        drop(inner);
        Ok(BreakerCall { breaker: self.clone(), is_probe, is_settled: false })
    }
}

impl Inner {
    fn check(&self) -> Result<(), Duration> {
        match self {
            Self::Closed(_) => Ok(()),
            Self::Probing => Err(PROBE_WAIT),
            Self::Open(until) => match until.saturating_duration_since(Instant::now()) {
                Duration::ZERO => Ok(()),
                wait => Err(wait),
            },
        }
    }
}

impl BreakerCall {
    /// The agent has responded, with whatever; true if that closes the breaker.
    pub(crate) fn succeeded(&mut self) -> bool {
        if std::mem::replace(&mut self.is_settled, true) {
            return false;
        }
        let mut inner = self.breaker.inner();
        // A call from before the breaker opened says nothing about now.
        let counts = self.is_probe || matches!(*inner, Inner::Closed(_));
        if counts {
            *inner = Inner::Closed(0);
        }
        self.is_probe
    }

    /// The agent could not be reached; true if that opens the breaker.
    pub(crate) fn failed(&mut self) -> bool {
        if std::mem::replace(&mut self.is_settled, true) {
            return false;
        }
        let Some(limit) = self.breaker.settings.failures else { return false };
        let mut inner = self.breaker.inner();
        let opens = match &mut *inner {
            Inner::Closed(failures) => {
                *failures = failures.saturating_add(1);
                *failures >= limit
            }
            Inner::Probing => self.is_probe,
            Inner::Open(_) => false,
        };
        if opens {
            *inner = Inner::Open(Instant::now() + self.breaker.settings.open);
        }
        opens
    }
}

impl Drop for BreakerCall {
    fn drop(&mut self) {
        if self.is_probe && !self.is_settled {
            // The next run is the probe.
            *self.breaker.inner() = Inner::Open(Instant::now());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn breaker(failures: Option<u32>) -> Arc<Breaker> {
        Breaker::new(BreakerSettings { failures, open: Duration::from_secs(10) })
    }

    #[tokio::test(start_paused = true)]
    async fn it_opens_after_failures_in_a_row_and_closes_by_one_probe() {
        let breaker = breaker(Some(3));
        let call = || breaker.begin().expect("it is not open");
        assert!(!call().failed() && !call().failed());
        call().succeeded();
        assert!(!call().failed() && !call().failed(), "a success has begun the count anew");
        let mut late = call();
        assert!(call().failed());
        assert_eq!((breaker.state(), breaker.check()), (BreakerState::Open, Err(Duration::from_secs(10))));
        assert!(breaker.begin().is_err());
        late.succeeded();
        assert_eq!(breaker.state(), BreakerState::Open, "a call from before says nothing about now");
        tokio::time::advance(Duration::from_secs(10)).await;
        assert_eq!(breaker.state(), BreakerState::HalfOpen);
        let mut probe = breaker.begin().expect("one run tries");
        assert!(breaker.begin().is_err() && breaker.check().is_err(), "and only one");
        assert!(probe.failed());
        assert_eq!(breaker.state(), BreakerState::Open);
        tokio::time::advance(Duration::from_secs(10)).await;
        drop(breaker.begin().expect("one run tries"));
        let mut probe = breaker.begin().expect("a stopped probe leaves its place to the next run");
        assert!(probe.succeeded());
        assert_eq!(breaker.state(), BreakerState::Closed);
    }

    #[test]
    fn without_a_number_of_failures_it_never_opens() {
        let breaker = breaker(None);
        for _ in 0..1000 {
            assert!(!breaker.begin().expect("it is closed").failed());
        }
    }
}
