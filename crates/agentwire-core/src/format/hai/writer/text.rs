//! Text messages.

use bytes::BufMut;

use super::{
    super::delta::{Place, Shape, escape_twice, text_output},
    Encoding, HaiWriter,
    business::{Business, Said, Start, Text},
    companions::{Companions, marker},
    stands_for, yes,
};
use crate::{
    event::{Body, Event, MessageId},
    format::Fidelity,
    framing::Frames,
    json::{Json, write_str},
};

impl HaiWriter {
    /// Text that appends to an open text, with nothing else to say: nine tenths of a stream. Says whether this
    /// event was one.
    pub(crate) fn fast(&mut self, event: &Event, out: &mut Frames) -> bool {
        let Event { body: Body::TextDelta { message, delta }, subagent: None, timestamp, extra: None } =
            event
        else {
            return false;
        };
        if self.per_run || self.frames.encoding != Encoding::Json {
            return false;
        }
        if self.shape == Shape::Text && delta.trim_start().starts_with('{') {
            // It would be taken for an output.
            return false;
        }
        let Business { texts, lazy, unfinished, .. } = &mut self.business;
        if !unfinished.is_empty() {
            return false;
        }
        let Some(text) = texts.get_mut(message) else {
            return false;
        };
        if text.explicit || lazy.iter().any(|lazy| *lazy != text.wire) {
            return false;
        }
        text.sent = true;
        if timestamp.is_some() {
            self.clock = *timestamp;
        }
        let buffer = out.begin("BUSINESS_DATA_CONTENT");
        buffer.put_slice(br#"{"type":"BUSINESS_DATA_CONTENT","messageId":"#);
        write_str(buffer, &text.wire);
        match self.shape {
            Shape::JsonString => {
                buffer.put_slice(br#","delta":"{\"output\":{\"type\":\"text\",\"content\":\""#);
                escape_twice(buffer, delta);
                buffer.put_slice(br#"\"}}""#);
            }
            Shape::Object => {
                buffer.put_slice(br#","delta":{"output":{"type":"text","content":"#);
                write_str(buffer, delta);
                buffer.put_slice(b"}}");
            }
            Shape::Text => {
                buffer.put_slice(br#","delta":"#);
                write_str(buffer, delta);
            }
        }
        if let Some(time) = self.clock {
            buffer.put_slice(b",\"timestamp\":");
            serde_json::to_writer(buffer.writer(), &time).expect("writing to memory does not fail");
        }
        buffer.put_u8(b'}');
        out.commit();
        true
    }

    pub(crate) fn text_start(&mut self, event: &Event, out: &mut Frames) -> Fidelity {
        let Body::TextStart { message, role, name } = &event.body else { unreachable!("asked for a text") };
        let mut companions = self.companions(event);
        let host = companions.take_str("messageId").map(MessageId::from);
        let source = host.clone().unwrap_or_else(|| message.clone());
        let wire = self.wire_id(&source);
        let subagent = event.subagent.clone();
        let mut text =
            Text { wire: source.clone(), subagent, sent: false, hosted: host.is_some(), explicit: false };
        let odd_role = companions.take_str("role");
        if let Some(state) = self.business.wires.get(&wire) {
            let in_use = self.business.texts.values().any(|text| text.wire == source);
            let natural = host.is_some() && !in_use && self.ledger.text(&source) == *message;
            // Such a text opens by itself with its first words.
            let said = Said::of(state.said.as_ref());
            let given = odd_role.as_deref().or(role.map(crate::event::Role::as_str));
            let natural = natural
                && said.name.as_deref() == name.as_deref()
                && said.is_role(given)
                && companions.says(said.metadata.as_ref(), said.rest.as_ref())
                && self.business.read.contains(&source);
            if natural || state.users > 0 {
                text.explicit = !natural;
                self.business.texts.insert(message.clone(), text);
                self.business.wires[&wire].users += 1;
                if natural {
                    self.ledger.took_text(&source);
                    return Fidelity::Exact;
                }
                return self.carry(event, out);
            }
            // Nothing keeps this message open, and the text has more to say at its start.
            let opener = state.source.clone().unwrap_or_else(|| wire.clone());
            self.business.lazy.retain(|lazy| *lazy != wire);
            self.end_wire(&wire, &opener, companions.bare(), out);
        }
        let role = odd_role.as_deref().or(role.map(crate::event::Role::as_str));
        let mut marked = stands_for("TEXT_MESSAGE_START");
        if host.is_some() {
            marked.push(("messageId", Json::string(message)));
        }
        let start = Start { role, name: name.as_deref(), marker: marker(marked) };
        self.open_wire(&source, start, companions, out);
        self.ledger.took_text(&source);
        if let Some(state) = self.business.wires.get_mut(&wire) {
            state.users += 1;
        }
        self.business.texts.insert(message.clone(), text);
        Fidelity::Exact
    }

    pub(crate) fn text_delta(
        &mut self,
        event: &Event,
        message: &MessageId,
        delta: &str,
        out: &mut Frames,
    ) -> Fidelity {
        let mut companions = self.companions(event);
        let source = match self.business.texts.get_mut(message) {
            Some(text) => {
                text.sent = true;
                text.wire.clone()
            }
            None => {
                // This writer came in late.
                let start = Start { marker: marker(stands_for("TEXT_MESSAGE_START")), ..Start::default() };
                if self.open_wire(message, start, companions.bare(), out) {
                    self.ledger.took_text(message);
                }
                message.clone()
            }
        };
        let explicit = self.business.texts.get(message).is_some_and(|text| text.explicit);
        if self.business.texts.get(message).is_some_and(|text| text.hosted && !text.explicit) {
            // The reader says it again, wherever it says anything.
            companions.take_redundant("messageId", &source);
        }
        let (wire, per_run) = (self.wire_id(&source), self.per_run);
        if let Some(state) = self.business.wires.get_mut(&wire) {
            state.sent = true;
        }
        if self.shape != Shape::Text {
            let place = take_place(&mut companions);
            let output = text_output(delta, companions.take_object("output").as_ref());
            let mut marked = stands_for("TEXT_MESSAGE_CONTENT");
            marked.push(("messageId", Json::string(message)));
            let marked = explicit.then(|| marker(marked)).flatten();
            self.content(&source, &output, &place, companions, marked, out);
            return Fidelity::Exact;
        }
        // Plain text has no place; what it says about itself goes beside it.
        self.note_open(&source);
        let mut marked = stands_for("TEXT_MESSAGE_CONTENT");
        if explicit {
            marked.push(("messageId", Json::string(message)));
        }
        let literal = delta.trim_start().starts_with('{');
        if literal {
            marked.push(("literal", yes()));
        }
        let marked = (explicit || literal).then(|| marker(marked)).flatten();
        let (layout, style) = (companions.take_some("layout"), companions.take_some("style"));
        let block_id = take_block_id(&mut companions);
        self.frames.put(out, "BUSINESS_DATA_CONTENT", |w| {
            w.str("messageId", &wire).str("delta", delta);
            if per_run {
                w.str("sourceMessageId", &source);
            }
            w.opt_json("layout", layout.as_ref())
                .opt_str("blockId", block_id.as_deref())
                .opt_json("style", style.as_ref());
            companions.write(w, "BUSINESS_DATA_CONTENT", marked);
        });
        Fidelity::Exact
    }

    pub(crate) fn text_end(&mut self, event: &Event, message: &MessageId, out: &mut Frames) -> Fidelity {
        let Some(text) = self.business.texts.shift_remove(message) else {
            return self.carry(event, out);
        };
        let mut companions = self.companions(event);
        let wire = self.wire_id(&text.wire);
        let Some(state) = self.business.wires.get_mut(&wire) else {
            return self.carry(event, out);
        };
        state.sent |= text.sent;
        state.users = state.users.saturating_sub(1);
        let unused = state.users == 0;
        // A thought that a reader finds by itself would end with the message.
        let mut thoughts = self.business.thoughts.values();
        let thinking = thoughts.any(|thought| thought.natural && self.wire_id(&thought.wire) == wire);
        if !unused || thinking || text.explicit {
            // The end of the message would be taken for something else, or for more.
            let fidelity = self.carry(event, out);
            if unused && thinking {
                self.business.lazy.push(wire);
            } else if unused && !self.business.lazy.contains(&wire) {
                let source = self.business.wires[&wire].source.clone().unwrap_or_else(|| wire.clone());
                self.end_wire(&wire, &source, companions.bare(), out);
            }
            return fidelity;
        }
        let state = &mut self.business.wires[&wire];
        if let Some(role) = companions.take_str("role") {
            state.role = Some(role);
        }
        self.business.lazy.retain(|lazy| *lazy != wire);
        self.end_wire(&wire, &text.wire, companions, out);
        Fidelity::Exact
    }
}

/// Takes what metadata `hai` says about the place of an output.
pub(crate) fn take_place(companions: &mut Companions) -> Place {
    Place {
        layout: companions.take_some("layout"),
        block_id: take_block_id(companions),
        style: companions.take_some("style"),
        more: companions.take_object("delta"),
    }
}

fn take_block_id(companions: &mut Companions) -> Option<Box<str>> {
    let id = companions.take("blockId", |id| id.as_str().is_some_and(|id| !id.is_empty()))?;
    id.as_str().map(Into::into)
}
