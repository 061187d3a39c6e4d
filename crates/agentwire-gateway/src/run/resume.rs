//! A run whose gateway died and whose agent plays it once more from its beginning.
//!
//! What the log has already is recognised, event by event, and not said twice; what comes after it is new. An agent
//! that does not say the same again cannot be joined to the log, and the run is lost.

use std::collections::VecDeque;

use agentwire_core::{
    event::{Body, Event},
    order::Guard,
};

use crate::{
    error::RunFailure,
    run::{RUN_STATUS, input},
};

/// What the log has of a run that is played again.
pub(crate) struct Reattachment {
    /// The events that were not said again yet.
    logged: VecDeque<Event>,
    /// Makes the same of what the agent says as the guard before it did.
    guard: Guard,
}

impl Reattachment {
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
    pub(crate) fn take(&mut self, event: Event, fresh: &mut Vec<Event>) -> Result<(), RunFailure> {
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
                    return Err(RunFailure::Diverged(detail));
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
/// agent's change does not apply; and what was before the run is told at its beginning.
fn may_be_ours(event: &Event) -> bool {
    is_ours(event)
        || input::is_recalled(event)
        || matches!(event.body, Body::StateDelta { .. } | Body::StateSnapshot { .. })
}

#[cfg(test)]
mod tests {
    use agentwire_core::{
        event::RunStarted,
        json::Json,
        patch::{Op, Patch, PatchOp},
    };
    use serde_json::json;

    use super::*;

    fn started() -> Event {
        Event::new(Body::RunStarted(Box::new(RunStarted::new("t", "r"))))
    }

    fn begin(message: &str) -> Event {
        Event::new(Body::TextStart { message: message.into(), role: None, name: None })
    }

    fn word(text: &str) -> Event {
        Event::new(Body::TextDelta { message: "m".into(), delta: text.into() })
    }

    fn over() -> Event {
        Event::new(Body::TextEnd { message: "m".into() })
    }

    fn held(status: &str) -> Event {
        let value = Json::from(json!({"status": status, "mode": "soft"}));
        Event::new(Body::Custom { name: RUN_STATUS.into(), value })
    }

    fn state(value: serde_json::Value) -> Event {
        Event::new(Body::StateSnapshot { snapshot: Json::from(value) })
    }

    fn again(logged: Vec<Event>) -> Reattachment {
        Reattachment::new(Guard::new("t", "r"), &[started()], logged)
    }

    /// What is new of what the agent says.
    fn heard(again: &mut Reattachment, said: Vec<Event>) -> Result<Vec<Event>, RunFailure> {
        let mut fresh = Vec::new();
        said.into_iter().try_for_each(|event| again.take(event, &mut fresh))?;
        Ok(fresh)
    }

    #[test]
    fn what_the_log_has_is_not_said_twice_wherever_it_was_cut() {
        let all = vec![begin("m"), word("a"), word("b"), word("b"), over()];
        for cut in 0..=all.len() {
            // When it was said does not matter.
            let logged = all[..cut].iter().map(|event| event.clone().at(Some(7))).collect();
            let mut again = again(logged);
            assert_eq!(again.is_over(), cut == 0);
            let mut said = vec![started()];
            said.extend(all.clone());
            assert_eq!(heard(&mut again, said), Ok(all[cut..].to_vec()), "cut at {cut}");
            assert!(again.is_over());
        }
    }

    #[test]
    fn what_the_gateway_said_itself_is_not_waited_for() {
        let logged = vec![
            begin("m"),
            held("paused"),
            held("running"),
            word("a"),
            state(json!({"note": "mine"})),
            word("b"),
            held("paused"),
        ];
        let mut again = again(logged);
        let fresh = heard(&mut again, vec![begin("m"), word("a"), word("b"), word("c")]);
        assert_eq!(fresh, Ok(vec![word("c")]));
        assert!(again.is_over());
        assert!(super::tests::again(vec![held("paused")]).is_over(), "nothing was said yet");
    }

    #[test]
    fn the_agents_own_changes_of_the_state_are_known_again() {
        let value = Some(Json::from(json!(1)));
        let add = PatchOp { op: Op::Add, path: "/n".into(), from: None, value, extra: None };
        let delta = Event::new(Body::StateDelta { patch: Patch(vec![add]) });
        let snapshot = state(json!({"n": 0}));
        let logged = vec![snapshot.clone(), state(json!({"n": 5})), delta.clone()];
        let mut again = again(logged);
        let fresh = heard(&mut again, vec![snapshot, delta, begin("m")]);
        assert_eq!(fresh, Ok(vec![begin("m")]));
    }

    #[test]
    fn an_agent_that_says_something_else_cannot_be_joined() {
        for (logged, said) in [
            (vec![begin("m"), word("a")], vec![begin("m"), word("x")]),
            (vec![begin("m")], vec![begin("other")]),
            (vec![begin("m"), word("a"), word("b")], vec![begin("m"), word("ab")]),
            (vec![begin("m"), held("paused"), word("a")], vec![begin("m"), word("b")]),
        ] {
            let failed = heard(&mut again(logged.clone()), said).expect_err("it is not the same");
            assert!(matches!(failed, RunFailure::Diverged(_)), "{logged:?}");
            assert!(failed.detail().is_some(), "the log says what was different");
        }
    }

    /// The guard repaired what was said the first time, and does so again.
    #[test]
    fn what_was_repaired_is_repaired_in_the_same_way() {
        let nonsense = vec![over(), begin("m"), begin("m"), word("a"), word("b")];
        let mut guard = Guard::new("t", "r");
        let mut repaired = Vec::new();
        guard.push(started(), &mut repaired);
        repaired.clear();
        nonsense[..4].iter().for_each(|event| guard.push(event.clone(), &mut repaired));
        let mut again = again(repaired);
        assert_eq!(heard(&mut again, nonsense), Ok(vec![word("b")]));
        let mut rest = Vec::new();
        again.into_guard().end(&agentwire_core::event::StreamEnd::Closed, &mut rest);
        assert_eq!(rest.first(), Some(&over()), "the guard knows what is open");
    }
}
