//! Writes text messages.

use bytes::BufMut;

use super::{
    super::delta::{DeltaShape, Placement, escape_twice, text_output},
    HaiEncoding, HaiWriter,
    business::{MessageStart, OpenMessages, StartDetails, WrittenText},
    id_marker, json_true, marker_entries,
    members::{EventMembers, build_marker},
};
use crate::{
    event::{Body, Event, MessageId},
    format::Fidelity,
    framing::Frames,
    json::{Json, write_str},
};

impl HaiWriter {
    /// The fast path: a delta of an open text without further members, nine tenths of a stream. Returns whether it
    /// applied.
    pub(crate) fn write_fast(&mut self, event: &Event, out: &mut Frames) -> bool {
        let Event { body: Body::TextDelta { message, delta }, subagent: None, timestamp, extra: None } =
            event
        else {
            return false;
        };
        if self.shared_message_id || self.frames.encoding != HaiEncoding::Json {
            return false;
        }
        if self.shape == DeltaShape::Text && delta.trim_start().starts_with('{') {
            // The reader would parse it as an output.
            return false;
        }
        let OpenMessages { texts, idle, unfinished, .. } = &mut self.open;
        if !unfinished.is_empty() {
            return false;
        }
        let Some(text) = texts.get_mut(message) else {
            return false;
        };
        if text.needs_marker || idle.iter().any(|idle| *idle != text.wire) {
            return false;
        }
        text.has_content = true;
        if timestamp.is_some() {
            self.last_timestamp = *timestamp;
        }
        let buffer = out.begin("BUSINESS_DATA_CONTENT");
        buffer.put_slice(br#"{"type":"BUSINESS_DATA_CONTENT","messageId":"#);
        write_str(buffer, &text.wire);
        match self.shape {
            DeltaShape::JsonString => {
                buffer.put_slice(br#","delta":"{\"output\":{\"type\":\"text\",\"content\":\""#);
                escape_twice(buffer, delta);
                buffer.put_slice(br#"\"}}""#);
            }
            DeltaShape::Object => {
                buffer.put_slice(br#","delta":{"output":{"type":"text","content":"#);
                write_str(buffer, delta);
                buffer.put_slice(b"}}");
            }
            DeltaShape::Text => {
                buffer.put_slice(br#","delta":"#);
                write_str(buffer, delta);
            }
        }
        if let Some(time) = self.last_timestamp {
            buffer.put_slice(b",\"timestamp\":");
            serde_json::to_writer(buffer.writer(), &time).expect("writing to memory does not fail");
        }
        buffer.put_u8(b'}');
        out.commit();
        true
    }

    pub(crate) fn text_start(&mut self, event: &Event, out: &mut Frames) -> Fidelity {
        let Body::TextStart { message, role, name } = &event.body else {
            unreachable!("called for TEXT_MESSAGE_START only")
        };
        let mut members = self.members(event);
        let requested = members.remove_str("messageId").map(MessageId::from);
        let source = requested.clone().unwrap_or_else(|| message.clone());
        let wire = self.wire_id(&source);
        let subagent = event.subagent.clone();
        let mut text = WrittenText {
            wire: source.clone(),
            subagent,
            has_content: false,
            names_message: requested.is_some(),
            needs_marker: false,
        };
        let odd_role = members.remove_str("role");
        if let Some(state) = self.open.wires.get(&wire) {
            let in_use = self.open.texts.values().any(|text| text.wire == source);
            let is_inferred =
                requested.is_some() && !in_use && self.derived_ids.next_text(&source) == *message;
            // The reader infers such a text from its first delta.
            let details = StartDetails::of(state.details.as_ref());
            let given = odd_role.as_deref().or(role.map(crate::event::Role::as_str));
            let is_inferred = is_inferred
                && details.name.as_deref() == name.as_deref()
                && details.has_role(given)
                && members.equal(details.metadata.as_ref(), details.rest.as_ref())
                && self.open.open_for_reader.contains(&source);
            if is_inferred || state.users > 0 {
                text.needs_marker = !is_inferred;
                self.open.texts.insert(message.clone(), text);
                self.open.wires[&wire].users += 1;
                if is_inferred {
                    self.derived_ids.count_text(&source);
                    return Fidelity::Exact;
                }
                return self.write_wrapped(event, out);
            }
            // The message is idle, and the text needs a start of its own.
            let opener = state.source.clone().unwrap_or_else(|| wire.clone());
            self.open.idle.retain(|idle| *idle != wire);
            self.end_wire(&wire, &opener, members.bare(), out);
        }
        let role = odd_role.as_deref().or(role.map(crate::event::Role::as_str));
        let mut entries = marker_entries("TEXT_MESSAGE_START");
        if requested.is_some() {
            entries.push(("messageId", Json::string(message)));
        }
        let start = MessageStart { role, name: name.as_deref(), marker: build_marker(entries) };
        self.open_wire(&source, start, members, out);
        self.derived_ids.count_text(&source);
        if let Some(state) = self.open.wires.get_mut(&wire) {
            state.users += 1;
        }
        self.open.texts.insert(message.clone(), text);
        Fidelity::Exact
    }

    pub(crate) fn text_delta(
        &mut self,
        event: &Event,
        message: &MessageId,
        delta: &str,
        out: &mut Frames,
    ) -> Fidelity {
        let mut members = self.members(event);
        let source = match self.open.texts.get_mut(message) {
            Some(text) => {
                text.has_content = true;
                text.wire.clone()
            }
            None => {
                // The writer joined after the start of the text.
                let start = MessageStart {
                    marker: build_marker(marker_entries("TEXT_MESSAGE_START")),
                    ..MessageStart::default()
                };
                if self.open_wire(message, start, members.bare(), out) {
                    self.derived_ids.count_text(message);
                }
                message.clone()
            }
        };
        let needs_marker = self.open.texts.get(message).is_some_and(|text| text.needs_marker);
        if self.open.texts.get(message).is_some_and(|text| text.names_message && !text.needs_marker) {
            // The reader restores it with any other entry.
            members.remove_redundant("messageId", &source);
        }
        let (wire, shared_message_id) = (self.wire_id(&source), self.shared_message_id);
        if let Some(state) = self.open.wires.get_mut(&wire) {
            state.has_content = true;
        }
        if self.shape != DeltaShape::Text {
            let placement = remove_placement(&mut members);
            let output = text_output(delta, members.remove_object("output").as_ref());
            let marker = needs_marker.then(|| id_marker("TEXT_MESSAGE_CONTENT", message)).flatten();
            self.content(&source, &output, &placement, members, marker, out);
            return Fidelity::Exact;
        }
        // Plain text has no envelope: the placement is written beside it.
        self.note_open(&source);
        let mut entries = marker_entries("TEXT_MESSAGE_CONTENT");
        if needs_marker {
            entries.push(("messageId", Json::string(message)));
        }
        let literal = delta.trim_start().starts_with('{');
        if literal {
            entries.push(("literal", json_true()));
        }
        let marker = (needs_marker || literal).then(|| build_marker(entries)).flatten();
        let (layout, style) = (members.remove_non_null("layout"), members.remove_non_null("style"));
        let block_id = remove_block_id(&mut members);
        self.frames.put(out, "BUSINESS_DATA_CONTENT", |w| {
            w.str("messageId", &wire).str("delta", delta);
            if shared_message_id {
                w.str("sourceMessageId", &source);
            }
            w.opt_json("layout", layout.as_ref())
                .opt_str("blockId", block_id.as_deref())
                .opt_json("style", style.as_ref());
            members.write(w, "BUSINESS_DATA_CONTENT", marker);
        });
        Fidelity::Exact
    }

    pub(crate) fn text_end(&mut self, event: &Event, message: &MessageId, out: &mut Frames) -> Fidelity {
        let Some(text) = self.open.texts.shift_remove(message) else {
            return self.write_wrapped(event, out);
        };
        let mut members = self.members(event);
        let wire = self.wire_id(&text.wire);
        let Some(state) = self.open.wires.get_mut(&wire) else {
            return self.write_wrapped(event, out);
        };
        state.has_content |= text.has_content;
        state.users = state.users.saturating_sub(1);
        let unused = state.users == 0;
        // The reader would end an inferred thought with the message.
        let mut thoughts = self.open.thoughts.values();
        let thinking = thoughts.any(|thought| thought.is_inferred && self.wire_id(&thought.wire) == wire);
        if !unused || thinking || text.needs_marker {
            // The end of the message would end other items, or another text.
            let fidelity = self.write_wrapped(event, out);
            if unused && thinking {
                self.open.idle.push(wire);
            } else if unused && !self.open.idle.contains(&wire) {
                let source = self.open.wires[&wire].source.clone().unwrap_or_else(|| wire.clone());
                self.end_wire(&wire, &source, members.bare(), out);
            }
            return fidelity;
        }
        let state = &mut self.open.wires[&wire];
        if let Some(role) = members.remove_str("role") {
            state.role = Some(role);
        }
        self.open.idle.retain(|idle| *idle != wire);
        self.end_wire(&wire, &text.wire, members, out);
        Fidelity::Exact
    }
}

/// Removes the placement of an output from metadata `hai`.
pub(crate) fn remove_placement(members: &mut EventMembers) -> Placement {
    Placement {
        layout: members.remove_non_null("layout"),
        block_id: remove_block_id(members),
        style: members.remove_non_null("style"),
        more: members.remove_object("delta"),
    }
}

fn remove_block_id(members: &mut EventMembers) -> Option<Box<str>> {
    let id = members.remove_if("blockId", |id| id.as_str().is_some_and(|id| !id.is_empty()))?;
    id.as_str().map(Into::into)
}
