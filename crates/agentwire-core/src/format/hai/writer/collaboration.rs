//! Writes collaborations, the handover of tasks between agents: AGENT_COLLABORATIVE_MESSAGE_*.
//!
//! The reference client parses the joined content at the end, as one JSON document. So there is exactly one task
//! between a start and its end; a second task gets a start and an end of its own, and a collaboration without a
//! task gets a placeholder.

use std::collections::HashMap;

use indexmap::IndexMap;

use super::{
    super::{
        delta::{DeltaShape, escape_brace_pairs},
        nesting::{compose, fits},
    },
    FrameWriter, HaiWriter, agui_event, id_marker, json_true, marker_entries,
    members::{EventMembers, build_marker},
    skip_marker,
};
use crate::{
    event::{Body, Event, MessageId, SubagentId, SubagentStarted},
    format::Fidelity,
    framing::Frames,
    json::{Json, Object},
};

/// Limit of open collaborations, as in the reader.
const MAX_OPEN: usize = 256;

/// Limit of stored subagent names.
const MAX_NAMES: usize = 4096;

/// The source of a handover whose agent has no name.
const DEFAULT_AGENT: &str = "Agent";

const START: &str = "AGENT_COLLABORATIVE_MESSAGE_START";
const CONTENT: &str = "AGENT_COLLABORATIVE_MESSAGE_CONTENT";
const END: &str = "AGENT_COLLABORATIVE_MESSAGE_END";

/// Open collaborations, and the names of subagents.
#[derive(Debug, Default)]
pub(crate) struct Collaborations {
    open: IndexMap<MessageId, WrittenCollaboration>,
    names: HashMap<SubagentId, Box<str>>,
}

/// An open collaboration.
#[derive(Debug)]
struct WrittenCollaboration {
    wire: MessageId,
    from: Box<str>,
    to: Box<str>,
    /// Whether a task was written since the last start.
    has_task: bool,
    /// True if its end was written for clients before it came, in serial order.
    is_ended: bool,
}

impl Collaborations {
    pub(crate) fn reset(&mut self) {
        self.open.clear();
        self.names.clear();
    }

    /// Ends all open collaborations; the reader skips these frames.
    pub(crate) fn close_all(
        &mut self,
        timestamp: Option<i64>,
        shape: DeltaShape,
        frames: &mut FrameWriter,
        out: &mut Frames,
    ) {
        for (id, open) in std::mem::take(&mut self.open).into_iter().filter(|(_, open)| !open.is_ended) {
            let bare = || EventMembers::at(timestamp);
            if !open.has_task {
                let task = placeholder_task(&id, &open.to);
                put_task(frames, shape, out, &open.wire, &task, None, bare(), skip_marker());
            }
            put_end(frames, out, &open.wire, bare(), skip_marker());
        }
    }

    /// Ends all open collaborations but `kept` for clients; the reader skips these frames. An agent may leave one open, so
    /// nothing waits for its end.
    pub(crate) fn end_others(
        &mut self,
        kept: Option<&MessageId>,
        timestamp: Option<i64>,
        shape: DeltaShape,
        frames: &mut FrameWriter,
        out: &mut Frames,
    ) {
        for (id, open) in self.open.iter_mut().filter(|(id, open)| !open.is_ended && Some(*id) != kept) {
            let bare = || EventMembers::at(timestamp);
            if !open.has_task {
                let task = placeholder_task(id, &open.to);
                put_task(frames, shape, out, &open.wire, &task, None, bare(), skip_marker());
            }
            put_end(frames, out, &open.wire, bare(), skip_marker());
            open.is_ended = true;
        }
    }

    /// Whether the reader finds this collaboration by its wire id: it is the latest with that id.
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
                let members = self.members(event);
                let wire = message.clone().unwrap_or_else(|| id.clone());
                let is_inferred = message.is_some() && self.derived_ids.next_collaboration(&wire) == *id;
                let marker = if is_inferred {
                    self.derived_ids.count_collaboration(&wire);
                    None
                } else {
                    let mut entries = marker_entries("ACTIVITY_SNAPSHOT");
                    entries.push(("messageId", Json::string(id)));
                    if message.is_none() {
                        entries.push(("unnamed", json_true()));
                    }
                    build_marker(entries)
                };
                put_start(&mut self.frames, out, &wire, from, to, members, marker);
                let open = &mut self.collaborations.open;
                if open.len() >= MAX_OPEN {
                    open.shift_remove_index(0);
                }
                // The latest is last.
                open.shift_remove(id);
                open.insert(
                    id.clone(),
                    WrittenCollaboration {
                        wire,
                        from: from.clone(),
                        to: to.clone(),
                        has_task: false,
                        is_ended: false,
                    },
                );
                Fidelity::Exact
            }
            Body::CollaborationTask { id, task } => {
                let latest = self.collaborations.is_latest(id);
                let Some(open) = self.collaborations.open.get_mut(id).filter(|_| fits(task.get(), 3)) else {
                    return self.write_wrapped(event, out);
                };
                let (wire, from, to) = (open.wire.clone(), open.from.clone(), open.to.clone());
                let had_task = std::mem::replace(&mut open.has_task, true);
                let was_ended = open.is_ended;
                let mut members = self.members(event);
                let more = members.remove_object("delta");
                let Self { frames, shape, .. } = self;
                if had_task && !was_ended {
                    put_end(frames, out, &wire, members.bare(), skip_marker());
                }
                if had_task || was_ended {
                    put_start(frames, out, &wire, &from, &to, members.bare(), skip_marker());
                }
                let marker = (!latest).then(|| collaboration_marker(id)).flatten();
                let bare = members.bare();
                put_task(frames, *shape, out, &wire, task, more.as_ref(), members, marker);
                if was_ended {
                    put_end(frames, out, &wire, bare, skip_marker());
                }
                Fidelity::Exact
            }
            Body::CollaborationEnd { id } => {
                let latest = self.collaborations.is_latest(id);
                let open = self.collaborations.open.shift_remove(id).filter(|open| !open.is_ended);
                let Some(open) = open else {
                    return self.write_wrapped(event, out);
                };
                let members = self.members(event);
                let Self { frames, shape, .. } = self;
                if !open.has_task {
                    let task = placeholder_task(id, &open.to);
                    put_task(frames, *shape, out, &open.wire, &task, None, members.bare(), skip_marker());
                }
                let marker = (!latest).then(|| collaboration_marker(id)).flatten();
                put_end(frames, out, &open.wire, members, marker);
                Fidelity::Exact
            }
            Body::SubagentStarted(started) => self.subagent(event, started, out),
            _ => unreachable!("called for collaboration events only"),
        }
    }

    /// Writes the start of a subagent as a collaboration.
    fn subagent(&mut self, event: &Event, started: &SubagentStarted, out: &mut Frames) -> Fidelity {
        let Some(id) = &event.subagent else {
            return self.write_wrapped(event, out);
        };
        let Some(whole) = agui_event(event, 1) else {
            return super::TOO_DEEP;
        };
        let names = &mut self.collaborations.names;
        let parent = started.parent_subagent.as_ref().and_then(|parent| names.get(parent));
        let from = parent.cloned().unwrap_or_else(|| DEFAULT_AGENT.into());
        if names.len() >= MAX_NAMES {
            names.clear();
        }
        names.insert(id.clone(), started.name.clone());
        let wire: MessageId = format!("{id}:collaboration").into();
        let name = started.description.as_deref().unwrap_or(&started.name);
        let task = compose([("id", Json::string(id)), ("name", Json::string(name))]);
        let bare = EventMembers::at(self.stamp(event));
        let Self { frames, shape, .. } = self;
        put_start(frames, out, &wire, &from, &started.name, bare.bare(), Some(whole));
        put_task(frames, *shape, out, &wire, task.as_json(), None, bare.bare(), skip_marker());
        put_end(frames, out, &wire, bare, skip_marker());
        Fidelity::Exact
    }
}

/// The marker of a frame that the reader would assign to another collaboration.
fn collaboration_marker(id: &MessageId) -> Option<Object> {
    id_marker("ACTIVITY_DELTA", id)
}

/// The placeholder for a collaboration without a task.
fn placeholder_task(id: &str, to: &str) -> Json {
    compose([("id", Json::string(id)), ("name", Json::string(to))]).into()
}

fn put_start(
    frames: &mut FrameWriter,
    out: &mut Frames,
    wire: &str,
    from: &str,
    to: &str,
    members: EventMembers,
    marker: Option<Object>,
) {
    frames.put(out, START, |w| {
        w.str("from", from).str("to", to).str("messageId", wire);
        members.write(w, START, marker);
    });
}

#[expect(clippy::too_many_arguments, reason = "the parts of one frame")]
fn put_task(
    frames: &mut FrameWriter,
    shape: DeltaShape,
    out: &mut Frames,
    wire: &str,
    task: &Json,
    more: Option<&Object>,
    members: EventMembers,
    marker: Option<Object>,
) {
    let more = more.map(Object::entries).unwrap_or_default();
    let more = more.iter().map(|(key, value)| (key.as_str(), value.clone()));
    let document = compose([("task", task.clone())].into_iter().chain(more));
    frames.put(out, CONTENT, |w| {
        if shape == DeltaShape::Object {
            w.json("delta", document.as_json());
        } else {
            w.str("delta", &escape_brace_pairs(document.get()));
        }
        w.str("messageId", wire);
        members.write(w, CONTENT, marker);
    });
}

fn put_end(
    frames: &mut FrameWriter,
    out: &mut Frames,
    wire: &str,
    members: EventMembers,
    marker: Option<Object>,
) {
    frames.put(out, END, |w| {
        w.str("messageId", wire);
        members.write(w, END, marker);
    });
}
