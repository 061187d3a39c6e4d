//! Reattaching to an agent after a crash: the agent replays the run from its start, and the log continues where it ended.
//!
//! Replayed events that the log has are matched one by one and not recorded again; the events after them are new. A replay
//! that differs from the log cannot be joined to it, and the run is lost.

use std::collections::VecDeque;

use agentwire_core::{
    event::{Body, Event, Message},
    fold::Fold,
    format::{ag_ui, hai},
    order::Guard,
};
use bytes::Bytes;

use super::{input, recorder::RunRecorder};
use crate::{error::RunFailure, stream::log_codec::Decoder};

/// The logged events that a replay must match.
pub(super) struct Reattachment {
    /// Events that are not replayed yet.
    logged: VecDeque<Event>,
    /// Repairs the replay as the guard of the first time did.
    guard: Guard,
    /// The messages and state at this point of the replay.
    fold: Fold,
}

impl Reattachment {
    /// `prefix` is what the gateway itself logged before the first event of the agent, `logged` the rest.
    fn new(mut guard: Guard, prefix: &[Event], logged: Vec<Event>, fold: Fold) -> Self {
        let mut unchanged = Vec::new();
        prefix.iter().cloned().for_each(|event| guard.push(event, &mut unchanged));
        let mut reattachment = Self { logged: logged.into(), guard, fold };
        while reattachment.logged.front().is_some_and(input::is_recalled) {
            reattachment.take_logged();
        }
        reattachment.drop_trailing_gateway_events();
        reattachment
    }

    /// Whether all logged events are matched.
    fn is_done(&self) -> bool {
        self.logged.is_empty()
    }

    /// The next logged event, which is folded.
    fn take_logged(&mut self) -> Option<Event> {
        let logged = self.logged.pop_front()?;
        self.fold.apply(&logged);
        Some(logged)
    }

    /// The messages at this point of the replay.
    pub(super) fn messages(&mut self) -> &[Message] {
        self.fold.messages()
    }

    /// The guard, which has seen the whole replay.
    fn into_guard(self) -> Guard {
        self.guard
    }

    /// Matches a replayed event. Events that the log does not have are added to `fresh`.
    ///
    /// # Errors
    /// When it differs from the log.
    fn match_event(&mut self, event: Event, fresh: &mut Vec<Event>) -> Result<(), RunFailure> {
        // The log has the gateway's own RUN_STARTED.
        if matches!(event.body, Body::RunStarted(_)) {
            return Ok(());
        }
        let mut replayed = Vec::new();
        self.guard.push(event, &mut replayed);
        for event in replayed {
            while self
                .logged
                .front()
                .is_some_and(|logged| !is_same(logged, &event) && may_be_from_gateway(logged))
            {
                self.take_logged();
            }
            match self.take_logged() {
                None => fresh.push(event),
                Some(logged) if is_same(&logged, &event) => {}
                Some(logged) => {
                    let detail = format!("the log has {:?}, the agent says {:?}", logged.body, event.body);
                    return Err(RunFailure::Diverged(detail));
                }
            }
        }
        self.drop_trailing_gateway_events();
        Ok(())
    }

    /// Drops events at the end of the log that the agent never emitted and so will not replay.
    fn drop_trailing_gateway_events(&mut self) {
        while self.logged.back().is_some_and(is_from_gateway) {
            self.logged.pop_back();
        }
    }
}

impl RunRecorder {
    /// Restores the recorder from the log of a gateway that died; its prefix (RUN_STARTED, state) is staged. Returns the
    /// recalled history that the log contains.
    pub(super) fn reattach(&mut self, logged: &[Bytes]) -> Vec<Event> {
        let prefix = self.encoding.staged.len().min(logged.len());
        self.encoding.staged.drain(..prefix);
        if !self.encoding.staged.is_empty() {
            // The other gateway died before it called the agent.
            return Vec::new();
        }
        let fold = self.encoding.join.fold().clone();
        let mut decoder = Decoder::new(&self.run.thread, &self.run.run);
        let (mut prefix_events, mut events) = (Vec::new(), Vec::new());
        logged[..prefix].iter().for_each(|entry| decoder.decode(entry, &mut prefix_events));
        logged[prefix..].iter().for_each(|entry| decoder.decode(entry, &mut events));
        let mut unchanged = Vec::new();
        for event in &events {
            // The log is valid, so the guard changes nothing and learns which items are open.
            self.encoding.guard.push(event.clone(), &mut unchanged);
            self.encoding.join.apply(event);
            self.encode(event);
        }
        self.encoding.staged.clear();
        let guard = Guard::new(self.run.thread.clone(), self.run.run.clone());
        let recalled = events.iter().take_while(|event| input::is_recalled(event)).cloned().collect();
        let reattachment = Reattachment::new(guard, &prefix_events, events, fold);
        self.resume = Some(reattachment).filter(|reattachment| !reattachment.is_done());
        recalled
    }

    /// Records an event of the agent, unless it is a replay of one that the log has.
    pub(super) fn record_event(&mut self, event: Event) -> Result<(), RunFailure> {
        let Some(mut reattachment) = self.resume.take() else {
            self.stage(event);
            return Ok(());
        };
        let mut fresh = Vec::new();
        reattachment.match_event(event, &mut fresh)?;
        if reattachment.is_done() {
            self.encoding.guard = reattachment.into_guard();
            self.stage_valid(&mut fresh);
        } else {
            self.resume = Some(reattachment);
        }
        Ok(())
    }
}

/// Whether two events are equal except for their timestamps.
fn is_same(one: &Event, other: &Event) -> bool {
    let has_same_body = match (&one.body, &other.body) {
        // The log does not distinguish an absent list of calls from an empty one.
        (Body::MessagesSnapshot { messages: one }, Body::MessagesSnapshot { messages: other }) => {
            one == other || ag_ui::messages_to_json(one) == ag_ui::messages_to_json(other)
        }
        (one, other) => one == other,
    };
    has_same_body && (&one.subagent, &one.extra) == (&other.subagent, &other.extra)
}

/// Whether only the gateway emits this event.
fn is_from_gateway(event: &Event) -> bool {
    hai::is_run_status(&event.body)
}

/// Whether the gateway may have emitted this event: for a state patch of a client, for a patch of the agent that did not
/// apply, or for recalled history.
fn may_be_from_gateway(event: &Event) -> bool {
    is_from_gateway(event)
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

    fn start(message: &str) -> Event {
        Event::new(Body::TextStart { message: message.into(), role: None, name: None })
    }

    fn delta(text: &str) -> Event {
        Event::new(Body::TextDelta { message: "m".into(), delta: text.into() })
    }

    fn end() -> Event {
        Event::new(Body::TextEnd { message: "m".into() })
    }

    fn paused(status: &str) -> Event {
        Event::new(hai::run_status(status, "soft"))
    }

    fn state(value: serde_json::Value) -> Event {
        Event::new(Body::StateSnapshot { snapshot: Json::from(value) })
    }

    fn reattachment(logged: Vec<Event>) -> Reattachment {
        Reattachment::new(Guard::new("t", "r"), &[started()], logged, Fold::new())
    }

    /// The new events of a replay.
    fn replay(reattachment: &mut Reattachment, events: Vec<Event>) -> Result<Vec<Event>, RunFailure> {
        let mut fresh = Vec::new();
        events.into_iter().try_for_each(|event| reattachment.match_event(event, &mut fresh))?;
        Ok(fresh)
    }

    #[test]
    fn logged_events_are_not_recorded_twice_wherever_the_log_ends() {
        let all = vec![start("m"), delta("a"), delta("b"), delta("b"), end()];
        for cut in 0..=all.len() {
            // Timestamps do not matter.
            let logged = all[..cut].iter().map(|event| event.clone().at(Some(7))).collect();
            let mut reattachment = reattachment(logged);
            assert_eq!(reattachment.is_done(), cut == 0);
            let mut replayed = vec![started()];
            replayed.extend(all.clone());
            assert_eq!(replay(&mut reattachment, replayed), Ok(all[cut..].to_vec()), "cut at {cut}");
            assert!(reattachment.is_done());
        }
    }

    #[test]
    fn events_of_the_gateway_are_not_expected_in_the_replay() {
        let logged = vec![
            start("m"),
            paused("paused"),
            paused("running"),
            delta("a"),
            state(json!({"note": "mine"})),
            delta("b"),
            paused("paused"),
        ];
        let mut reattachment = reattachment(logged);
        let fresh = replay(&mut reattachment, vec![start("m"), delta("a"), delta("b"), delta("c")]);
        assert_eq!(fresh, Ok(vec![delta("c")]));
        assert!(reattachment.is_done());
        assert!(
            super::tests::reattachment(vec![paused("paused")]).is_done(),
            "the agent has emitted nothing yet"
        );
    }

    #[test]
    fn state_changes_of_the_agent_are_matched() {
        let value = Some(Json::from(json!(1)));
        let add = PatchOp { op: Op::Add, path: "/n".into(), from: None, value, extra: None };
        let delta = Event::new(Body::StateDelta { patch: Patch(vec![add]) });
        let snapshot = state(json!({"n": 0}));
        let logged = vec![snapshot.clone(), state(json!({"n": 5})), delta.clone()];
        let mut reattachment = reattachment(logged);
        let fresh = replay(&mut reattachment, vec![snapshot, delta, start("m")]);
        assert_eq!(fresh, Ok(vec![start("m")]));
    }

    #[test]
    fn a_replay_that_differs_is_an_error() {
        for (logged, replayed) in [
            (vec![start("m"), delta("a")], vec![start("m"), delta("x")]),
            (vec![start("m")], vec![start("other")]),
            (vec![start("m"), delta("a"), delta("b")], vec![start("m"), delta("ab")]),
            (vec![start("m"), paused("paused"), delta("a")], vec![start("m"), delta("b")]),
        ] {
            let failed = replay(&mut reattachment(logged.clone()), replayed).expect_err("the replay differs");
            assert!(matches!(failed, RunFailure::Diverged(_)), "{logged:?}");
            assert!(failed.detail().is_some(), "the detail has the difference");
        }
    }

    /// The guard repairs the replay as it repaired the first stream.
    #[test]
    fn a_repaired_stream_is_matched_after_the_same_repairs() {
        let nonsense = vec![end(), start("m"), start("m"), delta("a"), delta("b")];
        let mut guard = Guard::new("t", "r");
        let mut repaired = Vec::new();
        guard.push(started(), &mut repaired);
        repaired.clear();
        nonsense[..4].iter().for_each(|event| guard.push(event.clone(), &mut repaired));
        let mut reattachment = reattachment(repaired);
        assert_eq!(replay(&mut reattachment, nonsense), Ok(vec![delta("b")]));
        let mut rest = Vec::new();
        reattachment.into_guard().end(&agentwire_core::event::StreamEnd::Closed, &mut rest);
        assert_eq!(rest.first(), Some(&end()), "the guard knows the open items");
    }
}
