//! Writes reasoning as thinking boxes.

use serde_json::Value;

use super::{
    super::{
        delta::{DeltaShape, Placement, thinking_output},
        nesting::compose,
    },
    HaiWriter,
    business::{MessageStart, ReasoningSpan, WrittenThought},
    id_marker, json_true,
    members::EventMembers,
    text::remove_placement,
};
use crate::{
    event::{Event, MessageId, SubagentId},
    format::Fidelity,
    framing::Frames,
    json::{Json, Object},
};

impl HaiWriter {
    /// The message for reasoning, and whether it is a new one: the requested message if possible, else that of the
    /// open heading, else that of the latest text of the same subagent.
    fn message_for(
        &self,
        requested: Option<MessageId>,
        subagent: Option<&SubagentId>,
        default: &MessageId,
    ) -> (MessageId, bool) {
        // The reader would append further thinking to an inferred thought.
        let is_inferred = self.open.thoughts.values().filter(|thought| thought.is_inferred);
        let taken: Vec<_> = is_inferred.map(|thought| self.wire_id(&thought.wire)).collect();
        let is_free = |message: &MessageId| {
            let wire = self.wire_id(message);
            self.open.wires.contains_key(&wire) && !taken.contains(&wire) && !self.is_unfinished(&wire)
        };
        let titled = self.open.spans.values().rev().filter_map(|span| match span {
            ReasoningSpan::Titled { wire, .. } => Some(wire),
            ReasoningSpan::Inferred(..) => None,
        });
        let texts = self.open.texts.values().rev().filter(|text| text.subagent.as_ref() == subagent);
        let candidates = requested.iter().chain(titled).chain(texts.map(|text| &text.wire));
        match candidates.into_iter().find(|message| is_free(message)) {
            Some(message) => (message.clone(), false),
            None => (self.unused_id(default), true),
        }
    }

    /// Whether the reader would append further thinking in this message to its last thought.
    pub(crate) fn is_unfinished(&self, wire: &MessageId) -> bool {
        self.open.unfinished.contains(wire)
    }

    pub(crate) fn span_start(
        &mut self,
        event: &Event,
        message: &MessageId,
        title: Option<&str>,
        out: &mut Frames,
    ) -> Fidelity {
        let mut members = self.members(event);
        if let Some(wire) = members.remove_str("messageId").map(MessageId::from) {
            let start = members.remove_object("start");
            let is_inferred =
                title.is_none() && members.is_empty() && self.derived_ids.next_thought(&wire) == *message;
            // Outside of a message the reader could not detect the end of a thought.
            let is_ambiguous = self.is_unfinished(&self.wire_id(&wire));
            if is_inferred && !is_ambiguous && self.shape != DeltaShape::Text {
                self.open.spans.insert(message.clone(), ReasoningSpan::Inferred(wire, start));
                return Fidelity::Exact;
            }
            return self.write_wrapped(event, out);
        }
        let Some(title) = title else {
            return self.write_wrapped(event, out);
        };
        let wire = self.message_for(None, event.subagent.as_ref(), message).0;
        self.join_wire(&wire, &members, out);
        let bare = members.bare();
        let output = fold_output(title, "start");
        self.content(
            &wire,
            &output,
            &Placement::default(),
            members,
            id_marker("REASONING_START", message),
            out,
        );
        if self.is_serial {
            // Thoughts below the heading have messages of their own.
            self.leave_wire(&wire, &bare, out);
        }
        self.open.spans.insert(message.clone(), ReasoningSpan::Titled { wire, title: title.into() });
        Fidelity::Exact
    }

    pub(crate) fn span_end(&mut self, event: &Event, message: &MessageId, out: &mut Frames) -> Fidelity {
        match self.open.spans.shift_remove(message) {
            None => self.write_wrapped(event, out),
            Some(ReasoningSpan::Inferred(..)) => {
                let members = self.members(event);
                if members.is_empty() { Fidelity::Exact } else { self.write_wrapped(event, out) }
            }
            Some(ReasoningSpan::Titled { wire, title }) => {
                let members = self.members(event);
                let bare = members.bare();
                let output = fold_output(&title, "end");
                self.rejoin(&wire, &bare, out);
                self.content(
                    &wire,
                    &output,
                    &Placement::default(),
                    members,
                    id_marker("REASONING_END", message),
                    out,
                );
                self.leave_wire(&wire, &bare, out);
                Fidelity::Exact
            }
        }
    }

    pub(crate) fn thought_start(&mut self, event: &Event, message: &MessageId, out: &mut Frames) -> Fidelity {
        let mut members = self.members(event);
        let started_at = members.timestamp();
        let mut thought =
            WrittenThought { wire: message.clone(), is_inferred: false, started_at, is_end_written: false };
        let requested = members.remove_str("messageId").map(MessageId::from);
        if let Some(wire) = requested.clone()
            && members.is_empty()
            && matches!(self.open.spans.get(message), Some(ReasoningSpan::Inferred(parent, _)) if *parent == wire)
        {
            (thought.wire, thought.is_inferred) = (wire, true);
            self.open.thoughts.insert(message.clone(), thought);
            return Fidelity::Exact;
        }
        let (wire, is_new) = self.message_for(requested, event.subagent.as_ref(), message);
        thought.wire = wire.clone();
        let fresh =
            is_new && self.shape != DeltaShape::Text && !self.open.wires.contains_key(&self.wire_id(&wire));
        let fidelity = if fresh {
            let members = self.members(event);
            let start = MessageStart {
                marker: id_marker("REASONING_MESSAGE_START", message),
                ..MessageStart::default()
            };
            self.open_wire(&wire, start, members, out);
            Fidelity::Exact
        } else {
            self.write_wrapped(event, out)
        };
        self.join_wire(&wire, &EventMembers::at(started_at), out);
        self.open.thoughts.insert(message.clone(), thought);
        fidelity
    }

    pub(crate) fn thought_delta(
        &mut self,
        event: &Event,
        message: &MessageId,
        delta: &str,
        out: &mut Frames,
    ) -> Fidelity {
        let mut members = self.members(event);
        let Some(WrittenThought { wire, is_inferred, started_at, .. }) = self.open.thoughts.get(message)
        else {
            return self.write_wrapped(event, out);
        };
        let (wire, is_inferred, started_at) = (wire.clone(), *is_inferred, *started_at);
        let bare = members.bare();
        if is_inferred {
            members.remove_redundant("messageId", &wire);
            let placement = remove_placement(&mut members);
            let flag = members.remove_if("thinking", |flag| matches!(flag.get(), "true" | "false"));
            let flag = flag.map(|flag| flag.get() == "true");
            let output = thinking_output(
                delta,
                members.remove_non_null("elapsed"),
                flag,
                members.remove_non_null("collapse"),
                members.remove_object("data").as_ref(),
                members.remove_object("output").as_ref(),
            );
            let details = match self.open.spans.get(message) {
                Some(ReasoningSpan::Inferred(_, details)) => details.clone(),
                _ => None,
            };
            if self.derived_ids.next_thought(&wire) == *message {
                self.derived_ids.count_thought(&wire);
                self.open_with_details(&wire, details.as_ref(), &bare, out);
            } else {
                self.open_idle(&wire, MessageStart::default(), &bare, out);
            }
            if let Some(thought) = self.open.thoughts.get_mut(message) {
                thought.is_end_written = flag == Some(false);
            }
            self.content(&wire, &output, &placement, members, None, out);
            return Fidelity::Exact;
        }
        self.rejoin(&wire, &bare, out);
        let output = thinking_output(
            delta,
            Some(elapsed(started_at, &bare)),
            Some(true),
            Some(json_true()),
            None,
            None,
        );
        self.content(
            &wire,
            &output,
            &Placement::default(),
            members,
            id_marker("REASONING_MESSAGE_CONTENT", message),
            out,
        );
        Fidelity::Exact
    }

    pub(crate) fn thought_end(&mut self, event: &Event, message: &MessageId, out: &mut Frames) -> Fidelity {
        let members = self.members(event);
        let Some(thought) = self.open.thoughts.remove(message) else {
            return self.write_wrapped(event, out);
        };
        let WrittenThought { wire, is_inferred, started_at, is_end_written, .. } = thought;
        let bare = members.bare();
        if is_inferred {
            // The end is written already, or never: the reader infers it in both cases.
            let mut rest = self.members(event);
            rest.remove_redundant("messageId", &wire);
            let open = rest.remove_if("thinking", |flag| flag.get() == "true").is_some();
            if open {
                let _ = (rest.remove_non_null("elapsed"), rest.remove_non_null("collapse"));
            }
            if (is_end_written || open) && rest.is_empty() {
                let wire = self.wire_id(&wire);
                if !is_end_written && self.open.wires.contains_key(&wire) {
                    self.open.unfinished.push(wire);
                }
                return Fidelity::Exact;
            }
            // The reader would not infer this end, so it and the end of its span are written with markers.
            self.open.spans.shift_remove(message);
            self.open_idle(&wire, MessageStart::default(), &bare, out);
            self.put_thought_end(message, &wire, started_at, members, out);
            return Fidelity::Exact;
        }
        self.rejoin(&wire, &bare, out);
        self.put_thought_end(message, &wire, started_at, members, out);
        self.leave_wire(&wire, &bare, out);
        Fidelity::Exact
    }

    /// Writes the end of a thought with a marker.
    fn put_thought_end(
        &mut self,
        message: &MessageId,
        wire: &MessageId,
        started_at: Option<i64>,
        members: EventMembers,
        out: &mut Frames,
    ) {
        let elapsed = elapsed(started_at, &members);
        let output = thinking_output("", Some(elapsed), Some(false), Some(json_true()), None, None);
        self.content(
            wire,
            &output,
            &Placement::default(),
            members,
            id_marker("REASONING_MESSAGE_END", message),
            out,
        );
    }
}

/// Whole seconds since the start of a thought.
fn elapsed(started_at: Option<i64>, now: &EventMembers) -> Json {
    let elapsed =
        now.timestamp().zip(started_at).map_or(0, |(now, started_at)| now.saturating_sub(started_at) / 1000);
    Json::from(Value::from(elapsed.max(0)))
}

/// The heading of a reasoning span, or its end.
fn fold_output(title: &str, position: &str) -> Object {
    let data = [
        ("title", Json::string(title)),
        ("fold", Json::from(Value::from(false))),
        ("position", Json::string(position)),
    ];
    compose([("type", Json::string("fold")), ("data", compose(data).into())])
}
