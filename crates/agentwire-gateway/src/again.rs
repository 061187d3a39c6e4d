//! A run whose gateway died and whose agent plays it once more from its beginning.
//!
//! What the log has already is recognised, event by event, and not said twice; what comes after it is new. An agent
//! that does not say the same again cannot be joined to the log, and the run is lost.

use std::collections::VecDeque;

use agentwire_core::{
    event::{Body, Event},
    order::Guard,
};

use crate::{agent::Failure, code, run::RUN_STATUS};

/// What the log has of a run that is played again.
pub(crate) struct Again {
    /// The events that were not said again yet.
    logged: VecDeque<Event>,
    /// Makes the same of what the agent says as the guard before it did.
    guard: Guard,
}

impl Again {
    /// `begun` is what the gateway itself had logged before the agent said anything, `logged` the rest.
    pub(crate) fn new(mut guard: Guard, begun: &[Event], logged: Vec<Event>) -> Self {
        let mut unchanged = Vec::new();
        begun.iter().cloned().for_each(|event| guard.push(event, &mut unchanged));
        let mut again = Self { logged: logged.into(), guard };
        again.leave_out_our_own();
        again
    }

    /// Whether the log has nothing more that the agent could repeat.
    pub(crate) fn is_over(&self) -> bool {
        self.logged.is_empty()
    }

    /// The guard that has heard everything.
    pub(crate) fn into_guard(self) -> Guard {
        self.guard
    }

    /// Takes an event that the agent says again. Adds what the log does not have to `fresh`.
    ///
    /// # Errors
    /// When it is not what the agent said before.
    pub(crate) fn take(&mut self, event: Event, fresh: &mut Vec<Event>) -> Result<(), Failure> {
        // The gateway's own is in the log.
        if matches!(event.body, Body::RunStarted(_)) {
            return Ok(());
        }
        let mut said = Vec::new();
        self.guard.push(event, &mut said);
        for event in said {
            while self.logged.front().is_some_and(|logged| !is_same(logged, &event) && may_be_ours(logged)) {
                self.logged.pop_front();
            }
            match self.logged.pop_front() {
                None => fresh.push(event),
                Some(logged) if is_same(&logged, &event) => {}
                Some(logged) => {
                    let detail = format!("the log has {:?}, the agent says {:?}", logged.body, event.body);
                    let what = "the gateway died during the run, and the agent does not repeat what it said";
                    return Err(Failure::new(code::GATEWAY_LOST, what).with_detail(detail));
                }
            }
        }
        self.leave_out_our_own();
        Ok(())
    }

    /// What the agent never said need not be waited for at the end of the log.
    fn leave_out_our_own(&mut self) {
        while self.logged.back().is_some_and(is_ours) {
            self.logged.pop_back();
        }
    }
}

/// Whether two events say the same. When they were said does not matter.
fn is_same(one: &Event, other: &Event) -> bool {
    (&one.body, &one.subagent, &one.extra) == (&other.body, &other.subagent, &other.extra)
}

fn is_ours(event: &Event) -> bool {
    matches!(&event.body, Body::Custom { name, .. } if **name == *RUN_STATUS)
}

/// Whether the gateway may have said it: clients change the state of a run that goes on, and get a snapshot where the
/// agent's change does not apply.
fn may_be_ours(event: &Event) -> bool {
    is_ours(event) || matches!(event.body, Body::StateDelta { .. } | Body::StateSnapshot { .. })
}
