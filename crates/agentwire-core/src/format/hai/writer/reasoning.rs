//! Reasoning, as thinking boxes.

use serde_json::Value;

use super::{
    super::{
        delta::{Place, Shape, thinking_output},
        nesting::compose,
    },
    HaiWriter,
    business::{Span, Start, Thought},
    companions::{Companions, marker},
    stands_for,
    text::take_place,
    yes,
};
use crate::{
    event::{Event, MessageId, SubagentId},
    format::Fidelity,
    framing::Frames,
    json::{Json, Object},
};

impl HaiWriter {
    /// Where reasoning shall stand, and whether that is a message of its own: where it says, if it can, else
    /// under the heading that is open, else in the latest text of the same owner.
    fn host(
        &self,
        said: Option<MessageId>,
        owner: Option<&SubagentId>,
        own: &MessageId,
    ) -> (MessageId, bool) {
        // More thinking would be taken for more of a thought that a reader finds by itself.
        let natural = self.business.thoughts.values().filter(|thought| thought.natural);
        let taken: Vec<_> = natural.map(|thought| self.wire_id(&thought.wire)).collect();
        let free = |message: &MessageId| {
            let wire = self.wire_id(message);
            self.business.wires.contains_key(&wire) && !taken.contains(&wire) && !self.is_unfinished(&wire)
        };
        let titled = self.business.spans.values().rev().filter_map(|span| match span {
            Span::Titled { wire, .. } => Some(wire),
            Span::Natural(..) => None,
        });
        let texts = self.business.texts.values().rev().filter(|text| text.subagent.as_ref() == owner);
        let places = said.iter().chain(titled).chain(texts.map(|text| &text.wire));
        match places.into_iter().find(|place| free(place)) {
            Some(place) => (place.clone(), false),
            None => (self.fresh(own), true),
        }
    }

    /// Whether more thinking in this message would be taken for more of its last thought.
    pub(crate) fn is_unfinished(&self, wire: &MessageId) -> bool {
        self.business.unfinished.contains(wire)
    }

    pub(crate) fn span_start(
        &mut self,
        event: &Event,
        message: &MessageId,
        title: Option<&str>,
        out: &mut Frames,
    ) -> Fidelity {
        let mut companions = self.companions(event);
        if let Some(wire) = companions.take_str("messageId").map(MessageId::from) {
            let start = companions.take_object("start");
            let natural = title.is_none() && companions.is_empty() && self.ledger.thought(&wire) == *message;
            // Without a message around it, a reader could not tell where a thought ends.
            let mistaken = self.is_unfinished(&self.wire_id(&wire));
            if natural && !mistaken && self.shape != Shape::Text {
                self.business.spans.insert(message.clone(), Span::Natural(wire, start));
                return Fidelity::Exact;
            }
            return self.carry(event, out);
        }
        let Some(title) = title else {
            return self.carry(event, out);
        };
        let wire = self.host(None, event.subagent.as_ref(), message).0;
        self.join_wire(&wire, &companions, out);
        let mut marked = stands_for("REASONING_START");
        marked.push(("messageId", Json::string(message)));
        let output = fold_output(title, "start");
        self.content(&wire, &output, &Place::default(), companions, marker(marked), out);
        self.business.spans.insert(message.clone(), Span::Titled { wire, title: title.into() });
        Fidelity::Exact
    }

    pub(crate) fn span_end(&mut self, event: &Event, message: &MessageId, out: &mut Frames) -> Fidelity {
        match self.business.spans.shift_remove(message) {
            None => self.carry(event, out),
            Some(Span::Natural(..)) => {
                let companions = self.companions(event);
                if companions.is_empty() { Fidelity::Exact } else { self.carry(event, out) }
            }
            Some(Span::Titled { wire, title }) => {
                let companions = self.companions(event);
                let bare = companions.bare();
                let mut marked = stands_for("REASONING_END");
                marked.push(("messageId", Json::string(message)));
                let output = fold_output(&title, "end");
                self.rejoin(&wire, &bare, out);
                self.content(&wire, &output, &Place::default(), companions, marker(marked), out);
                self.leave_wire(&wire, &bare, out);
                Fidelity::Exact
            }
        }
    }

    pub(crate) fn thought_start(&mut self, event: &Event, message: &MessageId, out: &mut Frames) -> Fidelity {
        let mut companions = self.companions(event);
        let began = companions.timestamp();
        let mut thought = Thought { wire: message.clone(), natural: false, began, ended: false };
        let said = companions.take_str("messageId").map(MessageId::from);
        if let Some(wire) = said.clone()
            && companions.is_empty()
            && matches!(self.business.spans.get(message), Some(Span::Natural(host, _)) if *host == wire)
        {
            (thought.wire, thought.natural) = (wire, true);
            self.business.thoughts.insert(message.clone(), thought);
            return Fidelity::Exact;
        }
        let (wire, own) = self.host(said, event.subagent.as_ref(), message);
        thought.wire = wire.clone();
        let fresh =
            own && self.shape != Shape::Text && !self.business.wires.contains_key(&self.wire_id(&wire));
        let fidelity = if fresh {
            let companions = self.companions(event);
            let mut marked = stands_for("REASONING_MESSAGE_START");
            marked.push(("messageId", Json::string(message)));
            let start = Start { marker: marker(marked), ..Start::default() };
            self.open_wire(&wire, start, companions, out);
            Fidelity::Exact
        } else {
            self.carry(event, out)
        };
        self.join_wire(&wire, &Companions::at(began), out);
        self.business.thoughts.insert(message.clone(), thought);
        fidelity
    }

    pub(crate) fn thought_delta(
        &mut self,
        event: &Event,
        message: &MessageId,
        delta: &str,
        out: &mut Frames,
    ) -> Fidelity {
        let mut companions = self.companions(event);
        let Some(Thought { wire, natural, began, .. }) = self.business.thoughts.get(message) else {
            return self.carry(event, out);
        };
        let (wire, natural, began) = (wire.clone(), *natural, *began);
        let bare = companions.bare();
        if natural {
            companions.take_redundant("messageId", &wire);
            let place = take_place(&mut companions);
            let flag = companions.take("thinking", |flag| matches!(flag.get(), "true" | "false"));
            let flag = flag.map(|flag| flag.get() == "true");
            let output = thinking_output(
                delta,
                companions.take_some("elapsed"),
                flag,
                companions.take_some("collapse"),
                companions.take_object("data").as_ref(),
                companions.take_object("output").as_ref(),
            );
            let said = match self.business.spans.get(message) {
                Some(Span::Natural(_, said)) => said.clone(),
                _ => None,
            };
            if self.ledger.thought(&wire) == *message {
                self.ledger.took_thought(&wire);
                self.host_said(&wire, said.as_ref(), &bare, out);
            } else {
                self.host_lazily(&wire, Start::default(), &bare, out);
            }
            if let Some(thought) = self.business.thoughts.get_mut(message) {
                thought.ended = flag == Some(false);
            }
            self.content(&wire, &output, &place, companions, None, out);
            return Fidelity::Exact;
        }
        self.rejoin(&wire, &bare, out);
        let output = thinking_output(delta, Some(elapsed(began, &bare)), Some(true), Some(yes()), None, None);
        let mut marked = stands_for("REASONING_MESSAGE_CONTENT");
        marked.push(("messageId", Json::string(message)));
        self.content(&wire, &output, &Place::default(), companions, marker(marked), out);
        Fidelity::Exact
    }

    pub(crate) fn thought_end(&mut self, event: &Event, message: &MessageId, out: &mut Frames) -> Fidelity {
        let companions = self.companions(event);
        let Some(thought) = self.business.thoughts.remove(message) else {
            return self.carry(event, out);
        };
        let Thought { wire, natural, began, ended, .. } = thought;
        let bare = companions.bare();
        if natural {
            // Said already, or never said: a reader finds the end by itself in both cases.
            let mut said = self.companions(event);
            said.take_redundant("messageId", &wire);
            let open = said.take("thinking", |flag| flag.get() == "true").is_some();
            if open {
                let _ = (said.take_some("elapsed"), said.take_some("collapse"));
            }
            if (ended || open) && said.is_empty() {
                let wire = self.wire_id(&wire);
                if !ended && self.business.wires.contains_key(&wire) {
                    self.business.unfinished.push(wire);
                }
                return Fidelity::Exact;
            }
            // It ends where a reader would not expect it, so the frame says so, and so must the end of its span.
            self.business.spans.shift_remove(message);
            self.host_lazily(&wire, Start::default(), &bare, out);
            self.put_thought_end(message, &wire, began, companions, out);
            return Fidelity::Exact;
        }
        self.rejoin(&wire, &bare, out);
        self.put_thought_end(message, &wire, began, companions, out);
        self.leave_wire(&wire, &bare, out);
        Fidelity::Exact
    }

    /// Says that a thought has ended, and which.
    fn put_thought_end(
        &mut self,
        message: &MessageId,
        wire: &MessageId,
        began: Option<i64>,
        companions: Companions,
        out: &mut Frames,
    ) {
        let elapsed = elapsed(began, &companions);
        let output = thinking_output("", Some(elapsed), Some(false), Some(yes()), None, None);
        let mut marked = stands_for("REASONING_MESSAGE_END");
        marked.push(("messageId", Json::string(message)));
        self.content(wire, &output, &Place::default(), companions, marker(marked), out);
    }
}

/// Whole seconds since a thought began.
fn elapsed(began: Option<i64>, now: &Companions) -> Json {
    let elapsed = now.timestamp().zip(began).map_or(0, |(now, began)| now.saturating_sub(began) / 1000);
    Json::from(Value::from(elapsed.max(0)))
}

/// The heading of a span of reasoning, or its end.
fn fold_output(title: &str, position: &str) -> Object {
    let data = [
        ("title", Json::string(title)),
        ("fold", Json::from(Value::from(false))),
        ("position", Json::string(position)),
    ];
    compose([("type", Json::string("fold")), ("data", compose(data).into())])
}
