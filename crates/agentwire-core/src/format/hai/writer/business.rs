//! Writes the messages that contain all outputs: BUSINESS_DATA_START, _CONTENT and _END.
//!
//! Each text has a message. Reasoning is written into the message of the open text, otherwise into a separate one.
//! A block is written into the message that it names. A message without open text or reasoning is idle, and is
//! closed before the next event that does not belong to it.

use std::collections::{HashMap, HashSet};

use indexmap::IndexMap;
use serde_json::Value;

use super::{
    super::{
        delta::{self, DeltaShape, Placement, text_output},
        nesting::fits,
        wire::{ASSISTANT, HAI, OUTPUT},
    },
    FrameWriter, HaiWriter,
    members::EventMembers,
    skip_marker,
};
use crate::{
    event::{Body, Event, MessageId, SubagentId},
    framing::Frames,
    json::{Json, Object, ObjectWriter},
};

/// Open messages and items.
#[derive(Debug, Default)]
pub(crate) struct OpenMessages {
    /// Open messages by wire id, in the order of their starts.
    pub(crate) wires: IndexMap<MessageId, WireMessage>,
    /// Open texts.
    pub(crate) texts: IndexMap<MessageId, WrittenText>,
    /// Open reasoning messages.
    pub(crate) thoughts: HashMap<MessageId, WrittenThought>,
    /// Open reasoning spans that are visible: with a heading, or with a thought that the reader infers.
    pub(crate) spans: IndexMap<MessageId, ReasoningSpan>,
    /// Idle messages, oldest first.
    pub(crate) idle: Vec<MessageId>,
    /// Messages that the reader considers open.
    pub(crate) open_for_reader: HashSet<MessageId>,
    /// Messages whose last thought has no written end: the reader would append another thought to it.
    pub(crate) unfinished: Vec<MessageId>,
    /// The content of displayed activities.
    pub(crate) activities: IndexMap<MessageId, Value>,
    /// The messages that display activities, so that a changed one stays in its message.
    pub(crate) activity_hosts: HashMap<MessageId, MessageId>,
}

/// A message on the wire.
#[derive(Debug, Default)]
pub(crate) struct WireMessage {
    /// Number of open texts and thoughts in it.
    pub(crate) users: u32,
    /// Whether it has any content: the standard's client cannot parse an empty message.
    pub(crate) has_content: bool,
    /// Details of its start, if no text opened it.
    pub(crate) details: Option<Object>,
    pub(crate) role: Option<String>,
    /// The message that it was opened for; differs from the wire id where all messages of a run share one.
    pub(crate) source: Option<MessageId>,
}

/// An open text.
#[derive(Debug)]
pub(crate) struct WrittenText {
    pub(crate) wire: MessageId,
    pub(crate) subagent: Option<SubagentId>,
    pub(crate) has_content: bool,
    /// Whether its start names its message in metadata `hai`.
    pub(crate) names_message: bool,
    /// Whether its deltas need a marker, because the reader would append them to another text.
    pub(crate) needs_marker: bool,
}

/// An open reasoning message.
#[derive(Debug)]
pub(crate) struct WrittenThought {
    /// The message that contains it.
    pub(crate) wire: MessageId,
    /// Whether the reader infers it without markers.
    pub(crate) is_inferred: bool,
    /// Timestamp of its start.
    pub(crate) started_at: Option<i64>,
    /// Whether its last delta marked the end.
    pub(crate) is_end_written: bool,
}

/// An open reasoning span.
#[derive(Debug)]
pub(crate) enum ReasoningSpan {
    /// Inferred by the reader: its message, and the details of the start of that message.
    Inferred(MessageId, Option<Object>),
    /// Written as a heading.
    Titled { wire: MessageId, title: Box<str> },
}

impl OpenMessages {
    pub(crate) fn reset(&mut self) {
        let activities = std::mem::take(&mut self.activities);
        let activity_hosts = std::mem::take(&mut self.activity_hosts);
        *self = Self { activities, activity_hosts, ..Self::default() };
    }
}

impl HaiWriter {
    /// Closes idle messages, except the one that `event` belongs to.
    pub(crate) fn close_idle(&mut self, event: &Event, out: &mut Frames) {
        if self.open.idle.is_empty() {
            return;
        }
        let parent =
            |event: &Event| EventMembers::of(event, None).remove_str("messageId").map(MessageId::from);
        let target = match &event.body {
            Body::TextDelta { message, .. } | Body::TextEnd { message } => {
                self.open.texts.get(message).map(|text| text.wire.clone())
            }
            Body::TextStart { .. }
            | Body::ReasoningStart { .. }
            | Body::ReasoningMessageStart { .. }
            | Body::ActivityDelta { .. } => parent(event),
            Body::ReasoningDelta { message, .. } | Body::ReasoningMessageEnd { message } => {
                self.open.thoughts.get(message).map(|thought| thought.wire.clone())
            }
            Body::ReasoningEnd { message } => match self.open.spans.get(message) {
                Some(ReasoningSpan::Inferred(wire, _) | ReasoningSpan::Titled { wire, .. }) => {
                    Some(wire.clone())
                }
                None => None,
            },
            Body::Block(block) => Some(block.message.clone()),
            _ => None,
        };
        let mut target = target.map(|target| self.wire_id(&target));
        if matches!(event.body, Body::ReasoningStart { .. }) {
            target = target.filter(|target| !self.is_unfinished(target));
        }
        let thoughts = self.open.thoughts.values().filter(|thought| thought.is_inferred);
        let inferred_in: Vec<_> = thoughts.map(|thought| self.wire_id(&thought.wire)).collect();
        let idle = std::mem::take(&mut self.open.idle);
        let (kept, done): (Vec<_>, Vec<_>) =
            idle.into_iter().partition(|idle| target.as_ref() == Some(idle) || inferred_in.contains(idle));
        self.open.idle = kept;
        let timestamp = event.timestamp.or(self.last_timestamp);
        for wire in done {
            // A text that was started in it since will close it.
            let unused = self.open.wires.get(&wire).filter(|state| state.users == 0);
            if let Some(source) = unused.map(|state| state.source.clone().unwrap_or_else(|| wire.clone())) {
                self.end_wire(&wire, &source, EventMembers::at(timestamp), out);
            }
        }
    }

    /// The wire id of a message.
    pub(crate) fn wire_id(&self, message: &MessageId) -> MessageId {
        if self.shared_message_id { self.run_message.as_str().into() } else { message.clone() }
    }

    /// Opens a message on the wire unless it is open. Returns whether it wrote a start.
    pub(crate) fn open_wire(
        &mut self,
        message: &MessageId,
        start: MessageStart<'_>,
        members: EventMembers,
        out: &mut Frames,
    ) -> bool {
        let wire = self.wire_id(message);
        if self.open.wires.contains_key(&wire) {
            return false;
        }
        self.note_open(message);
        let shared_message_id = self.shared_message_id;
        self.frames.put(out, "BUSINESS_DATA_START", |w| {
            w.str("messageId", &wire)
                .str("role", start.role.unwrap_or(ASSISTANT))
                .opt_str("name", start.name);
            if shared_message_id {
                w.str("sourceMessageId", message);
            }
            members.write(w, "BUSINESS_DATA_START", start.marker);
        });
        let role = start.role.map(Into::into);
        // A message of the whole run stays open to its end: a client would replace the text at a second start.
        let users = u32::from(self.shared_message_id && !self.is_serial);
        self.open.wires.insert(
            wire,
            WireMessage { role, users, source: Some(message.clone()), ..WireMessage::default() },
        );
        true
    }

    /// Records that the reader considers `message` open, and counts its start as the reader does.
    pub(crate) fn note_open(&mut self, message: &MessageId) {
        if self.open.open_for_reader.insert(message.clone()) {
            self.derived_ids.note_start(message);
        }
    }

    /// Removes a user of the message and closes it after the last one. Returns whether it closed it.
    pub(crate) fn release(&mut self, wire: &MessageId, members: &EventMembers, out: &mut Frames) -> bool {
        let Some(state) = self.open.wires.get_mut(wire) else {
            return false;
        };
        state.users = state.users.saturating_sub(1);
        if state.users > 0 || self.open.idle.contains(wire) {
            return false;
        }
        let source = state.source.clone().unwrap_or_else(|| wire.clone());
        self.end_wire(wire, &source, members.bare(), out);
        true
    }

    pub(crate) fn end_wire(
        &mut self,
        wire: &MessageId,
        source: &MessageId,
        members: EventMembers,
        out: &mut Frames,
    ) {
        let Some(state) = self.open.wires.shift_remove(wire) else {
            return;
        };
        self.open.open_for_reader.remove(source);
        self.open.unfinished.retain(|unfinished| unfinished != wire);
        let source = self.shared_message_id.then_some(source);
        if !state.has_content && self.shape != DeltaShape::Text {
            // The standard's client parses the content of a message at its end.
            let bare = members.bare();
            put_content(
                &mut self.frames,
                self.shape,
                out,
                (wire, None),
                &text_output("", None),
                &Placement::default(),
                bare,
                skip_marker(),
            );
        }
        self.frames.put(out, "BUSINESS_DATA_END", |w| {
            w.str("messageId", wire)
                .str("role", state.role.as_deref().unwrap_or(ASSISTANT))
                .opt_str("sourceMessageId", source.map(|source| &**source));
            members.write(w, "BUSINESS_DATA_END", None);
        });
    }

    /// Closes all messages on the wire.
    pub(crate) fn close_messages(&mut self, timestamp: Option<i64>, out: &mut Frames) {
        self.open.idle.clear();
        let open = self.open.wires.iter();
        let wires: Vec<_> = open.map(|(wire, state)| (wire.clone(), state.source.clone())).collect();
        for (wire, source) in wires {
            self.end_wire(&wire, &source.unwrap_or_else(|| wire.clone()), EventMembers::at(timestamp), out);
        }
        self.open.open_for_reader.clear();
    }

    /// Writes an output into a message that is open on the wire.
    pub(crate) fn content(
        &mut self,
        message: &MessageId,
        output: &Object,
        placement: &Placement,
        members: EventMembers,
        marker: Option<Object>,
        out: &mut Frames,
    ) {
        self.note_open(message);
        let wire = self.wire_id(message);
        self.open.unfinished.retain(|unfinished| *unfinished != wire);
        if let Some(state) = self.open.wires.get_mut(&wire) {
            state.has_content = true;
        }
        let source = self.shared_message_id.then_some(&**message);
        put_content(&mut self.frames, self.shape, out, (&wire, source), output, placement, members, marker);
    }

    /// Opens `message` as idle for a block or thought. In profile `@text` those are not written into messages.
    pub(crate) fn open_idle(
        &mut self,
        message: &MessageId,
        start: MessageStart<'_>,
        bare: &EventMembers,
        out: &mut Frames,
    ) {
        if self.shape == DeltaShape::Text {
            return;
        }
        if self.open_wire(message, start, bare.bare(), out) {
            let wire = self.wire_id(message);
            self.open.idle.push(wire);
        }
    }

    /// Opens a message as idle, with the details of its start that are stored with its first item.
    pub(crate) fn open_with_details(
        &mut self,
        wire: &MessageId,
        details: Option<&Object>,
        bare: &EventMembers,
        out: &mut Frames,
    ) {
        let StartDetails { role, name, rest, metadata } = StartDetails::of(details);
        let metadata = match rest {
            None => metadata,
            Some(rest) => Some(metadata.unwrap_or_else(Object::empty).with(HAI, rest.into())),
        };
        let event = Event::new(Body::TextEnd { message: wire.clone() }).with_metadata(metadata);
        let members = EventMembers::of(&event, bare.timestamp());
        let start = MessageStart { role: role.as_deref(), name: name.as_deref(), marker: None };
        if self.shape != DeltaShape::Text && self.open_wire(wire, start, members, out) {
            let wire = self.wire_id(wire);
            if let Some(state) = self.open.wires.get_mut(&wire) {
                state.details = details.cloned();
            }
            self.open.idle.push(wire);
        }
    }

    /// Adds a user of a message, opening it if necessary.
    pub(crate) fn join_wire(&mut self, message: &MessageId, members: &EventMembers, out: &mut Frames) {
        if self.shape == DeltaShape::Text {
            return;
        }
        self.open_wire(message, MessageStart::default(), members.bare(), out);
        let wire = self.wire_id(message);
        if let Some(state) = self.open.wires.get_mut(&wire) {
            state.users += 1;
        }
    }

    /// Reopens a message that was closed while it had users.
    pub(crate) fn rejoin(&mut self, message: &MessageId, members: &EventMembers, out: &mut Frames) {
        if self.shape != DeltaShape::Text && !self.open.wires.contains_key(&self.wire_id(message)) {
            self.join_wire(message, members, out);
        }
    }

    /// Removes a user of a message; the counterpart of [`HaiWriter::join_wire`].
    pub(crate) fn leave_wire(&mut self, message: &MessageId, members: &EventMembers, out: &mut Frames) {
        let wire = self.wire_id(message);
        if self.shape != DeltaShape::Text {
            self.release(&wire, members, out);
        }
    }

    /// An unused message id, `id` if possible.
    pub(crate) fn unused_id(&self, id: &MessageId) -> MessageId {
        let taken = |id: &str| self.derived_ids.is_used(id) || self.open.texts.contains_key(id);
        if !taken(id) {
            return id.clone();
        }
        let mut count = 2;
        loop {
            let next = format!("{id}#{count}");
            if !taken(&next) {
                return next.into();
            }
            count += 1;
        }
    }
}

/// The members of BUSINESS_DATA_START.
#[derive(Default)]
pub(crate) struct MessageStart<'s> {
    pub(crate) role: Option<&'s str>,
    pub(crate) name: Option<&'s str>,
    pub(crate) marker: Option<Object>,
}

/// Details of BUSINESS_DATA_START, stored with the first item in the message.
pub(crate) struct StartDetails {
    pub(crate) role: Option<String>,
    pub(crate) name: Option<String>,
    /// Unknown members.
    pub(crate) rest: Option<Object>,
    pub(crate) metadata: Option<Object>,
}

impl StartDetails {
    pub(crate) fn of(details: Option<&Object>) -> Self {
        let text = |key: &str| details.and_then(|details| details.get_str(key));
        let object = |key: &str| details.and_then(|details| details.member(key)).and_then(Json::into_object);
        Self {
            role: text("role"),
            name: text("name"),
            rest: object("rest").filter(|rest| fits(rest.get(), 2)),
            metadata: object("metadata"),
        }
    }

    pub(crate) fn has_role(&self, role: Option<&str>) -> bool {
        role.unwrap_or(ASSISTANT) == self.role.as_deref().unwrap_or(ASSISTANT)
    }
}

/// Writes BUSINESS_DATA_CONTENT, or the CUSTOM event that carries it in profile `@text`.
#[expect(clippy::too_many_arguments, reason = "the parts of one frame")]
pub(crate) fn put_content(
    frames: &mut FrameWriter,
    shape: DeltaShape,
    out: &mut Frames,
    (wire, source): (&str, Option<&str>),
    output: &Object,
    placement: &Placement,
    members: EventMembers,
    marker: Option<Object>,
) {
    const EVENT_TYPE: &str = "BUSINESS_DATA_CONTENT";
    if shape == DeltaShape::Text {
        let timestamp = members.timestamp();
        frames.put(out, "CUSTOM", |w| {
            w.str("name", OUTPUT).nested("value", |w| {
                w.str("type", EVENT_TYPE).str("messageId", wire).opt_str("sourceMessageId", source);
                w.nested("delta", |w| delta::write_delta(w, output, placement));
                members.write_untimed(w, EVENT_TYPE, marker);
            });
            w.opt_int("timestamp", timestamp);
        });
        return;
    }
    let mut document = bytes::BytesMut::new();
    if shape == DeltaShape::JsonString {
        let mut w = ObjectWriter::new(&mut document);
        delta::write_delta(&mut w, output, placement);
        w.end();
    }
    frames.put(out, EVENT_TYPE, |w| {
        w.str("messageId", wire).opt_str("sourceMessageId", source);
        if shape == DeltaShape::JsonString {
            let document = std::str::from_utf8(&document).expect("JSON text is UTF-8");
            w.str("delta", &delta::escape_brace_pairs(document));
        } else {
            w.nested("delta", |w| delta::write_delta(w, output, placement));
        }
        w.opt_int("timestamp", members.timestamp())
            .opt_str("blockId", placement.block_id.as_deref())
            .opt_json("style", placement.style.as_ref());
        members.write_untimed(w, EVENT_TYPE, marker);
    });
}
