//! Custom events: what the code of a graph says to a user interface by hand.

use std::borrow::Cow;

use serde_json::value::RawValue;

use super::{
    super::{
        raw_json,
        wire::{Marker, Native},
    },
    LangGraphReader, content_blocks, cx, messages, tool_calls,
};
use crate::{
    event::{Body, Event, ToolCallId},
    json::Json,
};

/// The name of events that carry another one: `{"name", "payload"}`.
const MARKER: &str = "agent_custom_event";

impl LangGraphReader {
    /// `on_custom_event`: the data is the payload itself.
    pub(super) fn custom_event(&mut self, run: &str, native: &Native<'_>, out: &mut Vec<Event>) {
        if self.is_hidden(native) {
            return;
        }
        let name = raw_json::filled(native.name, &mut self.tally).unwrap_or(Cow::Borrowed("custom"));
        self.custom(&name, native.data, run, out);
    }

    /// What a graph wrote with its stream writer: any value, mostly an object that names itself.
    pub(super) fn written(&mut self, value: &RawValue, out: &mut Vec<Event>) {
        let marker = Marker::of(value).unwrap_or_default();
        let name = raw_json::filled(marker.kind, &mut self.tally)
            .or_else(|| raw_json::filled(marker.name, &mut self.tally));
        let name = name.unwrap_or(Cow::Borrowed("custom"));
        self.custom(&name, Some(value), "", out);
    }

    /// A custom event of any origin.
    pub(super) fn custom(&mut self, name: &str, data: Option<&RawValue>, run: &str, out: &mut Vec<Event>) {
        let marker = data.and_then(Marker::of).unwrap_or_default();
        if name == MARKER {
            let inner = raw_json::filled(marker.name, &mut self.tally);
            return match inner {
                Some(inner) if self.settings.manual_reasoning && inner == "reasoning" => {
                    self.manual_reasoning(marker.payload, run, out);
                }
                Some(inner) => self.push_custom(&inner, marker.payload, out),
                None => self.push_custom(name, data, out),
            };
        }
        if self.settings.marker_only {
            return;
        }
        match name {
            "manually_emit_message" => self.manual_message(&marker, run, out),
            "manually_emit_tool_call" => self.manual_call(&marker, run, out),
            "manually_emit_reasoning" => self.manual_reasoning(marker.message.or(data), run, out),
            "manually_emit_state" => match data {
                Some(data) => self.manual_state(data, out),
                None => self.tally.note("wrong type", name),
            },
            _ => self.push_custom(name, data, out),
        }
    }

    fn push_custom(&mut self, name: &str, value: Option<&RawValue>, out: &mut Vec<Event>) {
        let value = value.map_or_else(Json::null, |value| raw_json::json(value, &mut self.tally));
        out.push(Event::new(Body::Custom { name: name.into(), value }));
    }

    /// An id for something that its author did not name.
    fn manual_id(&mut self, run: &str, what: &str) -> String {
        self.run.manual += 1;
        match run {
            "" => format!("{what}-{}", self.run.manual),
            run => format!("{run}-{what}-{}", self.run.manual),
        }
    }

    fn manual_message(&mut self, marker: &Marker<'_>, run: &str, out: &mut Vec<Event>) {
        let id = raw_json::filled(marker.message_id.or(marker.id), &mut self.tally);
        let id = id.map_or_else(|| self.manual_id(run, "message"), Cow::into_owned);
        let text = content_blocks::text(marker.message, &mut self.tally);
        self.say(&id, &text, out);
    }

    fn manual_call(&mut self, marker: &Marker<'_>, run: &str, out: &mut Vec<Event>) {
        let Some(name) = raw_json::filled(marker.name, &mut self.tally) else {
            return self.tally.note("wrong type", "manually_emit_tool_call");
        };
        let id = raw_json::filled(marker.id, &mut self.tally);
        let id: ToolCallId = id.map_or_else(|| self.manual_id(run, "call"), Cow::into_owned).into();
        let args = messages::arguments(marker.args, &mut self.tally);
        tool_calls::whole(cx!(self, out), &id, &name, &args, None, None, false);
    }

    fn manual_reasoning(&mut self, text: Option<&RawValue>, run: &str, out: &mut Vec<Event>) {
        let Some(text) =
            text.and_then(|raw| raw_json::string(raw, &mut self.tally)).filter(|text| !text.is_empty())
        else {
            return self.tally.note("wrong type", "reasoning by hand");
        };
        let id: crate::event::MessageId = self.manual_id(run, "reasoning").into();
        let bodies = [
            Body::ReasoningStart { message: id.clone(), title: None },
            Body::ReasoningMessageStart { message: id.clone() },
            Body::ReasoningDelta { message: id.clone(), delta: text.into() },
            Body::ReasoningMessageEnd { message: id.clone() },
            Body::ReasoningEnd { message: id },
        ];
        out.extend(bodies.map(Event::new));
    }

    /// A state by hand replaces the one that is shown, without its messages.
    fn manual_state(&mut self, data: &RawValue, out: &mut Vec<Event>) {
        let mut state = raw_json::json(data, &mut self.tally);
        if let Some(object) = state.clone().into_object() {
            state = object.without("messages").into();
        }
        self.state = Some(state.to_value());
        out.push(Event::new(Body::StateSnapshot { snapshot: state }));
    }
}
