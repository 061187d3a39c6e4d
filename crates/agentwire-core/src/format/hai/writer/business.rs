//! The messages on the wire that everything stands in: BUSINESS_DATA_START, _CONTENT and _END.
//!
//! Text has a message of its own. Reasoning stands in the text that is open, if one is, and otherwise in a message
//! made for it. A block stands in the message that it names; a message that nothing else keeps open is closed when
//! something else comes.

use std::collections::{HashMap, HashSet};

use indexmap::IndexMap;
use serde_json::Value;

use super::{
    super::{
        delta::{self, Place, Shape, text_output},
        nesting::fits,
        wire::{ASSISTANT, HAI, OUTPUT},
    },
    Framer, HaiWriter,
    companions::Companions,
    skipped,
};
use crate::{
    event::{Body, Event, MessageId, SubagentId},
    framing::Frames,
    json::{Json, Object, ObjectWriter},
};

/// What is open.
#[derive(Debug, Default)]
pub(crate) struct Business {
    /// Messages that are open on the wire, by the id there, in the order of their starts.
    pub(crate) wires: IndexMap<MessageId, Wire>,
    /// Text messages that are open.
    pub(crate) texts: IndexMap<MessageId, Text>,
    /// Reasoning messages that are open.
    pub(crate) thoughts: HashMap<MessageId, Thought>,
    /// Spans that are open and show something: a heading, or a thought that a reader would find by itself.
    pub(crate) spans: IndexMap<MessageId, Span>,
    /// The messages that nothing but the next block keeps open, oldest first.
    pub(crate) lazy: Vec<MessageId>,
    /// The messages that a reader holds for open.
    pub(crate) read: HashSet<MessageId>,
    /// The messages whose last thought ended without saying so: another one would be more of it.
    pub(crate) unfinished: Vec<MessageId>,
    pub(crate) activities: IndexMap<MessageId, Value>,
}

/// A message on the wire.
#[derive(Debug, Default)]
pub(crate) struct Wire {
    /// How many texts and thoughts keep it open.
    pub(crate) users: u32,
    /// Whether anything was said in it: the standard's client cannot read an empty message.
    pub(crate) sent: bool,
    /// What its start said, if it was not a text's own.
    pub(crate) said: Option<Object>,
    pub(crate) role: Option<String>,
    /// The message that it was opened for: another only where all messages of a run share one id.
    pub(crate) source: Option<MessageId>,
}

#[derive(Debug)]
pub(crate) struct Text {
    pub(crate) wire: MessageId,
    pub(crate) subagent: Option<SubagentId>,
    pub(crate) sent: bool,
    /// Whether its start said in which message it stands.
    pub(crate) hosted: bool,
    /// Whether a reader would take its words for another text's.
    pub(crate) explicit: bool,
}

#[derive(Debug)]
pub(crate) struct Thought {
    /// Where it stands.
    pub(crate) wire: MessageId,
    /// Whether a reader finds it by itself.
    pub(crate) natural: bool,
    /// When it began.
    pub(crate) began: Option<i64>,
    /// Whether its end was said together with its last words.
    pub(crate) ended: bool,
}

#[derive(Debug)]
pub(crate) enum Span {
    Natural(MessageId, Option<Object>),
    Titled { wire: MessageId, title: Box<str> },
}

impl Business {
    pub(crate) fn reset(&mut self) {
        let activities = std::mem::take(&mut self.activities);
        *self = Self { activities, ..Self::default() };
    }
}

impl HaiWriter {
    /// Closes the messages that nothing keeps open, except one that `event` stands in too.
    pub(crate) fn settle(&mut self, event: &Event, out: &mut Frames) {
        if self.business.lazy.is_empty() {
            return;
        }
        let host = |event: &Event| Companions::of(event, None).take_str("messageId").map(MessageId::from);
        let stands = match &event.body {
            Body::TextDelta { message, .. } | Body::TextEnd { message } => {
                self.business.texts.get(message).map(|text| text.wire.clone())
            }
            Body::TextStart { .. }
            | Body::ReasoningStart { .. }
            | Body::ReasoningMessageStart { .. }
            | Body::ActivityDelta { .. } => host(event),
            Body::ReasoningDelta { message, .. } | Body::ReasoningMessageEnd { message } => {
                self.business.thoughts.get(message).map(|thought| thought.wire.clone())
            }
            Body::ReasoningEnd { message } => match self.business.spans.get(message) {
                Some(Span::Natural(wire, _) | Span::Titled { wire, .. }) => Some(wire.clone()),
                None => None,
            },
            Body::Block(block) => Some(block.message.clone()),
            _ => None,
        };
        let mut stands = stands.map(|stands| self.wire_id(&stands));
        if matches!(event.body, Body::ReasoningStart { .. }) {
            stands = stands.filter(|stands| !self.is_unfinished(stands));
        }
        let thoughts = self.business.thoughts.values().filter(|thought| thought.natural);
        let thought_in: Vec<_> = thoughts.map(|thought| self.wire_id(&thought.wire)).collect();
        let lazy = std::mem::take(&mut self.business.lazy);
        let (kept, done): (Vec<_>, Vec<_>) =
            lazy.into_iter().partition(|lazy| stands.as_ref() == Some(lazy) || thought_in.contains(lazy));
        self.business.lazy = kept;
        let timestamp = event.timestamp.or(self.clock);
        for wire in done {
            // A text that has joined meanwhile will close it.
            let unused = self.business.wires.get(&wire).filter(|state| state.users == 0);
            if let Some(source) = unused.map(|state| state.source.clone().unwrap_or_else(|| wire.clone())) {
                self.end_wire(&wire, &source, Companions::at(timestamp), out);
            }
        }
    }

    /// The id on the wire for a message.
    pub(crate) fn wire_id(&self, message: &MessageId) -> MessageId {
        if self.per_run { self.run_message.as_str().into() } else { message.clone() }
    }

    /// Opens a message on the wire if it is not open; says whether it wrote a start.
    pub(crate) fn open_wire(
        &mut self,
        message: &MessageId,
        start: Start<'_>,
        companions: Companions,
        out: &mut Frames,
    ) -> bool {
        let wire = self.wire_id(message);
        if self.business.wires.contains_key(&wire) {
            return false;
        }
        self.note_open(message);
        let per_run = self.per_run;
        self.frames.put(out, "BUSINESS_DATA_START", |w| {
            w.str("messageId", &wire)
                .str("role", start.role.unwrap_or(ASSISTANT))
                .opt_str("name", start.name);
            if per_run {
                w.str("sourceMessageId", message);
            }
            companions.write(w, "BUSINESS_DATA_START", start.marker);
        });
        let role = start.role.map(Into::into);
        self.business.wires.insert(wire, Wire { role, source: Some(message.clone()), ..Wire::default() });
        true
    }

    /// A reader holds `message` for open from here on; the ledger counts what a reader counts.
    pub(crate) fn note_open(&mut self, message: &MessageId) {
        if self.business.read.insert(message.clone()) {
            self.ledger.start(message);
        }
    }

    /// One user less: closes the message if that was the last; says whether it did.
    pub(crate) fn release(&mut self, wire: &MessageId, companions: &Companions, out: &mut Frames) -> bool {
        let Some(state) = self.business.wires.get_mut(wire) else {
            return false;
        };
        state.users = state.users.saturating_sub(1);
        if state.users > 0 || self.business.lazy.contains(wire) {
            return false;
        }
        let source = state.source.clone().unwrap_or_else(|| wire.clone());
        self.end_wire(wire, &source, companions.bare(), out);
        true
    }

    pub(crate) fn end_wire(
        &mut self,
        wire: &MessageId,
        source: &MessageId,
        companions: Companions,
        out: &mut Frames,
    ) {
        let Some(state) = self.business.wires.shift_remove(wire) else {
            return;
        };
        self.business.read.remove(source);
        self.business.unfinished.retain(|unfinished| unfinished != wire);
        let source = self.per_run.then_some(source);
        if !state.sent && self.shape != Shape::Text {
            // The standard's client parses what a message held when it ends.
            let bare = companions.bare();
            put_content(
                &mut self.frames,
                self.shape,
                out,
                (wire, None),
                &text_output("", None),
                &Place::default(),
                bare,
                skipped(),
            );
        }
        self.frames.put(out, "BUSINESS_DATA_END", |w| {
            w.str("messageId", wire)
                .str("role", state.role.as_deref().unwrap_or(ASSISTANT))
                .opt_str("sourceMessageId", source.map(|source| &**source));
            companions.write(w, "BUSINESS_DATA_END", None);
        });
    }

    /// Closes every message on the wire.
    pub(crate) fn close_messages(&mut self, timestamp: Option<i64>, out: &mut Frames) {
        self.business.lazy.clear();
        let open = self.business.wires.iter();
        let wires: Vec<_> = open.map(|(wire, state)| (wire.clone(), state.source.clone())).collect();
        for (wire, source) in wires {
            self.end_wire(&wire, &source.unwrap_or_else(|| wire.clone()), Companions::at(timestamp), out);
        }
        self.business.read.clear();
    }

    /// Writes an output into a message that is open on the wire.
    pub(crate) fn content(
        &mut self,
        message: &MessageId,
        output: &Object,
        place: &Place,
        companions: Companions,
        marker: Option<Object>,
        out: &mut Frames,
    ) {
        self.note_open(message);
        let wire = self.wire_id(message);
        self.business.unfinished.retain(|unfinished| *unfinished != wire);
        if let Some(state) = self.business.wires.get_mut(&wire) {
            state.sent = true;
        }
        let source = self.per_run.then_some(&**message);
        put_content(&mut self.frames, self.shape, out, (&wire, source), output, place, companions, marker);
    }

    /// Makes sure that `message` is open for a block or a thought of its own. In profile `@text` those do not
    /// stand in messages.
    pub(crate) fn host_lazily(
        &mut self,
        message: &MessageId,
        start: Start<'_>,
        bare: &Companions,
        out: &mut Frames,
    ) {
        if self.shape == Shape::Text {
            return;
        }
        if self.open_wire(message, start, bare.bare(), out) {
            let wire = self.wire_id(message);
            self.business.lazy.push(wire);
        }
    }

    /// Opens a message with what its start said, as the first thing in it remembers.
    pub(crate) fn host_said(
        &mut self,
        wire: &MessageId,
        said: Option<&Object>,
        bare: &Companions,
        out: &mut Frames,
    ) {
        let Said { role, name, rest, metadata } = Said::of(said);
        let metadata = match rest {
            None => metadata,
            Some(rest) => Some(metadata.unwrap_or_else(Object::empty).with(HAI, rest.into())),
        };
        let event = Event::new(Body::TextEnd { message: wire.clone() }).with_metadata(metadata);
        let companions = Companions::of(&event, bare.timestamp());
        let start = Start { role: role.as_deref(), name: name.as_deref(), marker: None };
        if self.shape != Shape::Text && self.open_wire(wire, start, companions, out) {
            let wire = self.wire_id(wire);
            if let Some(state) = self.business.wires.get_mut(&wire) {
                state.said = said.cloned();
            }
            self.business.lazy.push(wire);
        }
    }

    /// One user more of a message, which is opened if it is not.
    pub(crate) fn join_wire(&mut self, message: &MessageId, companions: &Companions, out: &mut Frames) {
        if self.shape == Shape::Text {
            return;
        }
        self.open_wire(message, Start::default(), companions.bare(), out);
        let wire = self.wire_id(message);
        if let Some(state) = self.business.wires.get_mut(&wire) {
            state.users += 1;
        }
    }

    /// Opens a message again that was closed under the feet of who stood in it.
    pub(crate) fn rejoin(&mut self, message: &MessageId, companions: &Companions, out: &mut Frames) {
        if self.shape != Shape::Text && !self.business.wires.contains_key(&self.wire_id(message)) {
            self.join_wire(message, companions, out);
        }
    }

    pub(crate) fn leave_wire(&mut self, message: &MessageId, companions: &Companions, out: &mut Frames) {
        let wire = self.wire_id(message);
        if self.shape != Shape::Text {
            self.release(&wire, companions, out);
        }
    }

    /// An id that no message on the wire has had, after `id` if it can be.
    pub(crate) fn fresh(&self, id: &MessageId) -> MessageId {
        let taken = |id: &str| self.ledger.is_used(id) || self.business.texts.contains_key(id);
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

/// What BUSINESS_DATA_START says.
#[derive(Default)]
pub(crate) struct Start<'s> {
    pub(crate) role: Option<&'s str>,
    pub(crate) name: Option<&'s str>,
    pub(crate) marker: Option<Object>,
}

/// What a start said, as the first thing in its message remembers.
pub(crate) struct Said {
    pub(crate) role: Option<String>,
    pub(crate) name: Option<String>,
    /// Members that nobody understands.
    pub(crate) rest: Option<Object>,
    pub(crate) metadata: Option<Object>,
}

impl Said {
    pub(crate) fn of(said: Option<&Object>) -> Self {
        let text = |key: &str| said.and_then(|said| said.get_str(key));
        let object = |key: &str| said.and_then(|said| said.member(key)).and_then(Json::into_object);
        Self {
            role: text("role"),
            name: text("name"),
            rest: object("rest").filter(|rest| fits(rest.get(), 2)),
            metadata: object("metadata"),
        }
    }

    pub(crate) fn is_role(&self, role: Option<&str>) -> bool {
        role.unwrap_or(ASSISTANT) == self.role.as_deref().unwrap_or(ASSISTANT)
    }
}

/// Writes BUSINESS_DATA_CONTENT, or what stands for it.
#[expect(clippy::too_many_arguments, reason = "the parts of one frame")]
pub(crate) fn put_content(
    frames: &mut Framer,
    shape: Shape,
    out: &mut Frames,
    (wire, source): (&str, Option<&str>),
    output: &Object,
    place: &Place,
    companions: Companions,
    marker: Option<Object>,
) {
    const WHAT: &str = "BUSINESS_DATA_CONTENT";
    if shape == Shape::Text {
        let timestamp = companions.timestamp();
        frames.put(out, "CUSTOM", |w| {
            w.str("name", OUTPUT).nested("value", |w| {
                w.str("type", WHAT).str("messageId", wire).opt_str("sourceMessageId", source);
                w.nested("delta", |w| delta::write(w, output, place));
                companions.write_rest(w, WHAT, marker);
            });
            w.opt_int("timestamp", timestamp);
        });
        return;
    }
    let mut document = bytes::BytesMut::new();
    if shape == Shape::JsonString {
        let mut w = ObjectWriter::new(&mut document);
        delta::write(&mut w, output, place);
        w.end();
    }
    frames.put(out, WHAT, |w| {
        w.str("messageId", wire).opt_str("sourceMessageId", source);
        if shape == Shape::JsonString {
            let document = std::str::from_utf8(&document).expect("JSON text is UTF-8");
            w.str("delta", &delta::without_hazard(document));
        } else {
            w.nested("delta", |w| delta::write(w, output, place));
        }
        w.opt_int("timestamp", companions.timestamp())
            .opt_str("blockId", place.block_id.as_deref())
            .opt_json("style", place.style.as_ref());
        companions.write_rest(w, WHAT, marker);
    });
}
