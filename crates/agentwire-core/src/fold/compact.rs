//! Compaction: shortens the events of stored runs without changing the result of folding them.
//!
//! A run is mostly deltas. [`compact`] joins those of one message or call into the first of them, and all state events
//! of a run into one. The result of folding is the same on any history: a delta is only moved across events that do not
//! depend on it. Starts, ends and all other events keep their positions, so a valid stream stays valid.
//!
//! The timestamps and native events of joined deltas are lost.

use std::{
    collections::{HashMap, HashSet},
    mem,
};

use serde_json::Value;

use super::{merge_metadata, patches::Joined};
use crate::{
    event::{Body, Event, MessageId, ToolCallId},
    json::Json,
    patch::{self, Limits},
};

/// The same events, shortened: they fold to the same messages, state, interrupts and pending calls on any
/// history, and nothing is left to shorten.
///
/// ```
/// use agentwire_core::{
///     event::{Body, Event},
///     fold::compact,
/// };
///
/// let delta = |text: &str| Event::new(Body::TextDelta { message: "m1".into(), delta: text.into() });
/// let start = Event::new(Body::TextStart { message: "m1".into(), role: None, name: None });
/// assert_eq!(compact(&[start.clone(), delta("Hel"), delta("lo")]), [start, delta("Hello")]);
/// ```
#[must_use]
pub fn compact(events: &[Event]) -> Vec<Event> {
    let mut compactor = Compactor::default();
    for event in events {
        compactor.add(event);
    }
    compactor.finish()
}

#[derive(Default)]
struct Compactor {
    /// The events so far; `None` for an event that was joined into another.
    out: Vec<Option<Event>>,
    /// The text of deltas that others were joined into, by index.
    grown: HashMap<usize, String>,
    /// The delta of each message that the next one can join.
    messages: HashMap<MessageId, usize>,
    /// The delta of each call that the next one can join.
    calls: HashMap<ToolCallId, usize>,
    /// Messages that exist on any history.
    existing: HashSet<MessageId>,
    /// The indices of the state events of this run.
    window: Vec<usize>,
    /// The state before the window, where it is known.
    state: Option<Value>,
}

impl Compactor {
    fn add(&mut self, event: &Event) {
        match &event.body {
            Body::TextDelta { message, delta } | Body::ReasoningDelta { message, delta } => {
                if let Some(&place) = self.messages.get(message)
                    && self.join_delta(place, event, delta)
                {
                    return;
                }
                // Text for a message that may not exist is dropped until an event creates it; only if it exists can
                // deltas be joined across other events.
                if self.existing.contains(message) {
                    self.messages.insert(message.clone(), self.out.len());
                }
            }
            Body::ToolArgs { call, delta } => {
                if let Some(&place) = self.calls.get(call)
                    && self.join_delta(place, event, delta)
                {
                    return;
                }
                self.calls.insert(call.clone(), self.out.len());
            }
            Body::TextStart { message, .. } | Body::ReasoningMessageStart { message } => {
                self.messages.remove(message);
                self.existing.insert(message.clone());
            }
            Body::TextEnd { message } | Body::ReasoningMessageEnd { message } => {
                self.messages.remove(message);
            }
            Body::ToolStart { call, .. } | Body::ToolEnd { call } => {
                self.calls.remove(call);
            }
            Body::ToolResult(result) => {
                // It may be inserted before a message of the same id and then receive that message's text.
                self.messages.remove(&result.message);
            }
            Body::StateSnapshot { .. } | Body::StateDelta { .. } => self.window.push(self.out.len()),

            Body::RunStarted(_) | Body::RunFinished(_) | Body::RunError(_) => {
                self.close_window();
                self.stop_joining();
            }
            Body::MessagesSnapshot { messages } => {
                self.stop_joining();
                self.existing = messages.iter().map(|message| message.id.clone()).collect();
            }
            // An activity can replace any message and its calls; the other events are rare.
            Body::ActivitySnapshot { .. }
            | Body::ActivityDelta { .. }
            | Body::ReasoningEncrypted { .. }
            | Body::Citation(_)
            | Body::File(_)
            | Body::Block(_)
            | Body::CollaborationStart { .. }
            | Body::CollaborationTask { .. }
            | Body::CollaborationEnd { .. } => self.stop_joining(),

            body => debug_assert!(body.builds_nothing(), "{}", body.kind()),
        }
        self.out.push(Some(event.clone()));
    }

    /// Joins a delta to an earlier one, if that is of the same kind: text and reasoning may share an id.
    fn join_delta(&mut self, place: usize, event: &Event, delta: &str) -> bool {
        let Some(earlier) = self.out[place].as_mut().filter(|earlier| earlier.kind() == event.kind()) else {
            return false;
        };
        let text = self
            .grown
            .entry(place)
            .or_insert_with(|| delta_mut(earlier).map(mem::take).map(String::from).unwrap_or_default());
        text.push_str(delta);
        // A delta may leave its owner out, and all that name one name the same.
        if earlier.subagent.is_none() {
            earlier.subagent.clone_from(&event.subagent);
        }
        join_extra(earlier, event);
        true
    }

    /// Prevents joining of later deltas to earlier ones.
    fn stop_joining(&mut self) {
        self.messages.clear();
        self.calls.clear();
    }

    fn finish(mut self) -> Vec<Event> {
        self.close_window();
        for (place, text) in self.grown {
            if let Some(event) = &mut self.out[place]
                && let Some(delta) = delta_mut(event)
            {
                *delta = text.into();
            }
        }
        self.out.into_iter().flatten().collect()
    }

    /// Joins the state events of a run, at the position of the last of them.
    fn close_window(&mut self) {
        let places = mem::take(&mut self.window);
        let events: Vec<Event> = places.iter().filter_map(|&place| self.out[place].take()).collect();
        let mut joined = self.join_state(events);
        for place in places.into_iter().rev() {
            self.out[place] = joined.pop();
        }
        debug_assert!(joined.is_empty(), "joining makes no events");
    }

    fn join_state(&mut self, events: Vec<Event>) -> Vec<Event> {
        let last_snapshot = events.iter().rposition(|event| matches!(event.body, Body::StateSnapshot { .. }));
        // A snapshot replaces the changes before it.
        let from = last_snapshot.unwrap_or(0);
        let mut snapshot = None;
        for event in &events[from..] {
            match &event.body {
                Body::StateSnapshot { snapshot: whole } => {
                    self.state = Some(whole.to_value());
                    snapshot = Some(whole.clone());
                }
                Body::StateDelta { patch } => {
                    if let Some(state) = &mut self.state {
                        // One that does not apply is skipped, as in the fold.
                        let _ = patch::apply(state, patch, &Limits::default());
                    }
                    snapshot = None;
                }
                _ => {}
            }
        }
        if events.len() <= 1 {
            return events;
        }
        if let Some(snapshot) = snapshot.or_else(|| self.state.as_ref().and_then(exact)) {
            return vec![join_all(events, Body::StateSnapshot { snapshot })];
        }
        if last_snapshot.is_some() {
            return events.into_iter().skip(from).collect();
        }
        join_deltas(events)
    }
}

/// The value as text, unless parsing it gives another value: the last bit of a number can get lost.
fn exact(value: &Value) -> Option<Json> {
    let json = Json::from(value);
    (json.to_value() == *value).then_some(json)
}

/// Joins changes of an unknown state.
fn join_deltas(events: Vec<Event>) -> Vec<Event> {
    let mut groups: Vec<(Vec<Event>, Joined)> = Vec::new();
    for event in events {
        let Body::StateDelta { patch } = &event.body else {
            continue;
        };
        if let Some((group, joined)) = groups.last_mut()
            && joined.join(patch)
        {
            group.push(event);
        } else {
            let joined = Joined::new(patch);
            groups.push((vec![event], joined));
        }
    }
    let join = |(group, joined): (Vec<Event>, Joined)| {
        join_all(group, Body::StateDelta { patch: joined.into_patch() })
    };
    groups.into_iter().map(join).collect()
}

/// One event for several, with their common subagent and the timestamp of the last.
fn join_all(events: Vec<Event>, body: Body) -> Event {
    let mut events = events.into_iter();
    let mut joined = events.next().expect("there are events to join");
    for event in events {
        if joined.subagent != event.subagent {
            joined.subagent = None;
        }
        join_extra(&mut joined, &event);
        joined.timestamp = event.timestamp;
    }
    joined.body = body;
    joined
}

/// Merges the metadata and unknown properties of a joined event.
fn join_extra(earlier: &mut Event, event: &Event) {
    if earlier.extra.is_none() && event.extra.is_none() {
        return;
    }
    let extra = earlier.extra.get_or_insert_default();
    // A native event belongs to one event, not to several.
    extra.raw = None;
    if let Some(later) = &event.extra {
        merge_metadata(&mut extra.metadata, later.metadata.as_ref());
        merge_metadata(&mut extra.unknown, later.unknown.as_ref());
    }
    if extra.metadata.is_none() && extra.unknown.is_none() {
        earlier.extra = None;
    }
}

fn delta_mut(event: &mut Event) -> Option<&mut Box<str>> {
    match &mut event.body {
        Body::TextDelta { delta, .. } | Body::ReasoningDelta { delta, .. } | Body::ToolArgs { delta, .. } => {
            Some(delta)
        }
        _ => None,
    }
}
