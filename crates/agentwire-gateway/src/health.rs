//! The health of each agent, as `GET /agents` shows it: the last failure and the time to the first event. In memory; a
//! restart forgets it.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

/// The longest message of a failure that is kept, in characters.
const MAX_MESSAGE: usize = 500;

/// The health of all agents by name. The names are those of the configuration, so that their number is bounded.
#[derive(Debug, Default)]
pub(crate) struct Health(Mutex<HashMap<Box<str>, AgentHealth>>);

/// The health of one agent.
#[derive(Clone, Debug, Default)]
pub(crate) struct AgentHealth {
    /// The time from the call of the agent to its first event, in the last run that had one.
    pub(crate) first_event: Option<Duration>,
    pub(crate) last_error: Option<LastError>,
}

/// The last failed run of an agent.
#[derive(Clone, Debug)]
pub(crate) struct LastError {
    /// A stable code, or that of the agent.
    pub(crate) code: Box<str>,
    pub(crate) message: Box<str>,
    /// Milliseconds since the epoch.
    pub(crate) at: u64,
}

impl Health {
    fn agents(&self) -> MutexGuard<'_, HashMap<Box<str>, AgentHealth>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn of(&self, agent: &str) -> AgentHealth {
        self.agents().get(agent).cloned().unwrap_or_default()
    }

    pub(crate) fn note_first_event(&self, agent: &str, after: Duration) {
        self.agents().entry(agent.into()).or_default().first_event = Some(after);
    }

    pub(crate) fn note_failure(&self, agent: &str, code: &str, message: &str, at: u64) {
        let message = message.chars().take(MAX_MESSAGE).collect::<String>().into();
        let error = LastError { code: code.into(), message, at };
        self.agents().entry(agent.into()).or_default().last_error = Some(error);
    }
}
