//! Hand-overs between agents: AGENT_COLLABORATIVE_MESSAGE_*.
//!
//! The reference client parses what it has joined when the end comes, as one JSON document. So between a start
//! and its end stands exactly one task; a second task gets a start and an end of its own, and a hand-over
//! without any task gets one that names it.

use std::collections::HashMap;

use indexmap::IndexMap;

use super::{
    super::{
        delta::{Shape, without_hazard},
        nesting::{compose, fits},
    },
    Framer, HaiWriter, agui_event,
    companions::{Companions, marker},
    skipped, stands_for,
};
use crate::{
    event::{Body, Event, MessageId, SubagentId, SubagentStarted},
    format::Fidelity,
    framing::Frames,
    json::{Json, Object},
};

/// Hand-overs that may be open at once, as in the reader.
const MAX_OPEN: usize = 256;

/// Subagents whose names are remembered.
const MAX_NAMES: usize = 4096;

/// Who hands over when nobody is named.
const NOBODY: &str = "Agent";

const START: &str = "AGENT_COLLABORATIVE_MESSAGE_START";
const CONTENT: &str = "AGENT_COLLABORATIVE_MESSAGE_CONTENT";
const END: &str = "AGENT_COLLABORATIVE_MESSAGE_END";

#[derive(Debug, Default)]
pub(crate) struct Collaborations {
    open: IndexMap<MessageId, Open>,
    names: HashMap<SubagentId, Box<str>>,
}

#[derive(Debug)]
struct Open {
    wire: MessageId,
    from: Box<str>,
    to: Box<str>,
    /// Whether a task stands between the last start and its end to come.
    tasked: bool,
}

impl Collaborations {
    pub(crate) fn reset(&mut self) {
        self.open.clear();
        self.names.clear();
    }

    /// Ends on the wire what nobody ended. The reader passes over it.
    pub(crate) fn close_all(
        &mut self,
        timestamp: Option<i64>,
        shape: Shape,
        frames: &mut Framer,
        out: &mut Frames,
    ) {
        for (id, open) in std::mem::take(&mut self.open) {
            let bare = || Companions::at(timestamp);
            if !open.tasked {
                let task = made_up(&id, &open.to);
                put_task(frames, shape, out, &open.wire, &task, None, bare(), skipped());
            }
            put_end(frames, out, &open.wire, bare(), skipped());
        }
    }

    /// Whether a reader finds this hand-over by the id on the wire: it is the latest of that id.
    fn is_latest(&self, id: &MessageId) -> bool {
        let Some(open) = self.open.get(id) else { return false };
        self.open
            .iter()
            .rev()
            .find(|(_, other)| other.wire == open.wire)
            .is_some_and(|(latest, _)| latest == id)
    }
}

impl HaiWriter {
    pub(crate) fn collaboration(&mut self, event: &Event, out: &mut Frames) -> Fidelity {
        match &event.body {
            Body::CollaborationStart { id, message, from, to } => {
                let companions = self.companions(event);
                let wire = message.clone().unwrap_or_else(|| id.clone());
                let natural = message.is_some() && self.ledger.collaboration(&wire) == *id;
                let marked = if natural {
                    self.ledger.took_collaboration(&wire);
                    None
                } else {
                    let mut marked = stands_for("ACTIVITY_SNAPSHOT");
                    marked.push(("messageId", Json::string(id)));
                    if message.is_none() {
                        marked.push(("unnamed", Json::from(serde_json::Value::from(true))));
                    }
                    marker(marked)
                };
                put_start(&mut self.frames, out, &wire, from, to, companions, marked);
                let open = &mut self.collaborations.open;
                if open.len() >= MAX_OPEN {
                    open.shift_remove_index(0);
                }
                // The latest stands last.
                open.shift_remove(id);
                open.insert(id.clone(), Open { wire, from: from.clone(), to: to.clone(), tasked: false });
                Fidelity::Exact
            }
            Body::CollaborationTask { id, task } => {
                let latest = self.collaborations.is_latest(id);
                let Some(open) = self.collaborations.open.get_mut(id).filter(|_| fits(task.get(), 3)) else {
                    return self.carry(event, out);
                };
                let (wire, from, to) = (open.wire.clone(), open.from.clone(), open.to.clone());
                let again = std::mem::replace(&mut open.tasked, true);
                let mut companions = self.companions(event);
                let more = companions.take_object("delta");
                let Self { frames, shape, .. } = self;
                if again {
                    put_end(frames, out, &wire, companions.bare(), skipped());
                    put_start(frames, out, &wire, &from, &to, companions.bare(), skipped());
                }
                let marked = (!latest).then(|| addressed(id)).flatten();
                put_task(frames, *shape, out, &wire, task, more.as_ref(), companions, marked);
                Fidelity::Exact
            }
            Body::CollaborationEnd { id } => {
                let latest = self.collaborations.is_latest(id);
                let Some(open) = self.collaborations.open.shift_remove(id) else {
                    return self.carry(event, out);
                };
                let companions = self.companions(event);
                let Self { frames, shape, .. } = self;
                if !open.tasked {
                    let task = made_up(id, &open.to);
                    put_task(frames, *shape, out, &open.wire, &task, None, companions.bare(), skipped());
                }
                let marked = (!latest).then(|| addressed(id)).flatten();
                put_end(frames, out, &open.wire, companions, marked);
                Fidelity::Exact
            }
            Body::SubagentStarted(started) => self.subagent(event, started, out),
            _ => unreachable!("not a hand-over"),
        }
    }

    /// A subagent is one agent handing over to another.
    fn subagent(&mut self, event: &Event, started: &SubagentStarted, out: &mut Frames) -> Fidelity {
        let Some(id) = &event.subagent else {
            return self.carry(event, out);
        };
        let Some(whole) = agui_event(event, 1) else {
            return super::TOO_DEEP;
        };
        let names = &mut self.collaborations.names;
        let parent = started.parent_subagent.as_ref().and_then(|parent| names.get(parent));
        let from = parent.cloned().unwrap_or_else(|| NOBODY.into());
        if names.len() >= MAX_NAMES {
            names.clear();
        }
        names.insert(id.clone(), started.name.clone());
        let wire: MessageId = format!("{id}:collaboration").into();
        let name = started.description.as_deref().unwrap_or(&started.name);
        let task = compose([("id", Json::string(id)), ("name", Json::string(name))]);
        let bare = Companions::at(self.stamp(event));
        let Self { frames, shape, .. } = self;
        put_start(frames, out, &wire, &from, &started.name, bare.bare(), Some(whole));
        put_task(frames, *shape, out, &wire, task.as_json(), None, bare.bare(), skipped());
        put_end(frames, out, &wire, bare, skipped());
        Fidelity::Exact
    }
}

/// The marker of a frame that a reader would take for another hand-over's.
fn addressed(id: &MessageId) -> Option<Object> {
    let mut marked = stands_for("ACTIVITY_DELTA");
    marked.push(("messageId", Json::string(id)));
    marker(marked)
}

/// The task of a hand-over that has none.
fn made_up(id: &str, to: &str) -> Json {
    compose([("id", Json::string(id)), ("name", Json::string(to))]).into()
}

fn put_start(
    frames: &mut Framer,
    out: &mut Frames,
    wire: &str,
    from: &str,
    to: &str,
    companions: Companions,
    marked: Option<Object>,
) {
    frames.put(out, START, |w| {
        w.str("from", from).str("to", to).str("messageId", wire);
        companions.write(w, START, marked);
    });
}

#[expect(clippy::too_many_arguments, reason = "the parts of one frame")]
fn put_task(
    frames: &mut Framer,
    shape: Shape,
    out: &mut Frames,
    wire: &str,
    task: &Json,
    more: Option<&Object>,
    companions: Companions,
    marked: Option<Object>,
) {
    let more = more.map(Object::entries).unwrap_or_default();
    let more = more.iter().map(|(key, value)| (key.as_str(), value.clone()));
    let document = compose([("task", task.clone())].into_iter().chain(more));
    frames.put(out, CONTENT, |w| {
        if shape == Shape::Object {
            w.json("delta", document.as_json());
        } else {
            w.str("delta", &without_hazard(document.get()));
        }
        w.str("messageId", wire);
        companions.write(w, CONTENT, marked);
    });
}

fn put_end(
    frames: &mut Framer,
    out: &mut Frames,
    wire: &str,
    companions: Companions,
    marked: Option<Object>,
) {
    frames.put(out, END, |w| {
        w.str("messageId", wire);
        companions.write(w, END, marked);
    });
}
