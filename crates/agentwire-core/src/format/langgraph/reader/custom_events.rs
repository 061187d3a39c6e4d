//! Custom events, which the code of a graph emits for the client.

use std::borrow::Cow;

use serde_json::value::RawValue;

use super::{
    super::{
        raw_json,
        wire::{CustomData, NativeFrame},
    },
    LangGraphReader, content_blocks, cx, messages,
    model_stream::ModelStream,
    tool_calls,
};
use crate::{
    event::{Body, Event, MessageId, ToolCallId},
    format::manual_reasoning,
    json::Json,
};

/// The name of an event that wraps another one: `{"name", "payload"}`.
const MARKER: &str = "agent_custom_event";

impl LangGraphReader {
    /// Reads `on_custom_event`, whose data is the payload.
    pub(super) fn custom_event(&mut self, run: &str, native: &NativeFrame<'_>, out: &mut Vec<Event>) {
        if self.is_hidden(native) {
            return;
        }
        let name = raw_json::non_empty(native.name, &mut self.tally).unwrap_or(Cow::Borrowed("custom"));
        self.read_custom(&name, native.data, run, out);
    }

    /// Reads the output of the stream writer: any value, often an object with a `type` or `name`.
    pub(super) fn read_writer_output(&mut self, value: &RawValue, out: &mut Vec<Event>) {
        let marker = CustomData::of(value).unwrap_or_default();
        let name = raw_json::non_empty(marker.kind, &mut self.tally)
            .or_else(|| raw_json::non_empty(marker.name, &mut self.tally));
        let name = name.unwrap_or(Cow::Borrowed("custom"));
        self.read_custom(&name, Some(value), "", out);
    }

    /// Reads a custom event of any origin.
    pub(super) fn read_custom(
        &mut self,
        name: &str,
        data: Option<&RawValue>,
        run: &str,
        out: &mut Vec<Event>,
    ) {
        let marker = data.and_then(CustomData::of).unwrap_or_default();
        if name == MARKER {
            let inner = raw_json::non_empty(marker.name, &mut self.tally);
            return match inner {
                Some(inner) if self.options.manual_reasoning && inner == "reasoning" => {
                    self.send_manual_reasoning(marker.payload, run, out);
                }
                Some(inner) => self.send_custom(&inner, marker.payload, out),
                None => self.send_custom(name, data, out),
            };
        }
        if self.options.marker_only {
            return;
        }
        // CopilotKit's Python SDK prefixes the names.
        match name.strip_prefix("copilotkit_").unwrap_or(name) {
            "manually_emit_message" => self.send_manual_message(&marker, run, out),
            "manually_emit_tool_call" => self.send_manual_call(&marker, run, out),
            "manually_emit_reasoning" => self.send_manual_reasoning(marker.message.or(data), run, out),
            "manually_emit_state" | "manually_emit_intermediate_state" => match data {
                Some(data) => self.send_manual_state(data, out),
                None => self.tally.note("wrong type", name),
            },
            // The event that CopilotKit's AG-UI agent sends for it.
            "exit" if name == "copilotkit_exit" => {
                out.push(Event::new(Body::Custom { name: "Exit".into(), value: Json::from(&true.into()) }));
            }
            _ => self.send_custom(name, data, out),
        }
    }

    fn send_custom(&mut self, name: &str, value: Option<&RawValue>, out: &mut Vec<Event>) {
        let value = value.map_or_else(Json::null, |value| raw_json::json(value, &mut self.tally));
        out.push(Event::new(Body::Custom { name: name.into(), value }));
    }

    /// Generates an id for an item that has none.
    fn manual_id(&mut self, run: &str, kind: &str) -> String {
        self.run.manual_ids += 1;
        match run {
            "" => format!("{kind}-{}", self.run.manual_ids),
            run => format!("{run}-{kind}-{}", self.run.manual_ids),
        }
    }

    fn send_manual_message(&mut self, marker: &CustomData<'_>, run: &str, out: &mut Vec<Event>) {
        let id = raw_json::non_empty(marker.message_id.or(marker.id), &mut self.tally);
        let id = id.map_or_else(|| self.manual_id(run, "message"), Cow::into_owned);
        let text = content_blocks::text(marker.message, &mut self.tally);
        let mut stream = ModelStream::new(id, "");
        stream.send_text(&text, cx!(self, out));
        stream.finish(cx!(self, out));
    }

    fn send_manual_call(&mut self, marker: &CustomData<'_>, run: &str, out: &mut Vec<Event>) {
        let Some(name) = raw_json::non_empty(marker.name, &mut self.tally) else {
            return self.tally.note("wrong type", "manually_emit_tool_call");
        };
        let id = raw_json::non_empty(marker.id, &mut self.tally);
        let id: ToolCallId = id.map_or_else(|| self.manual_id(run, "call"), Cow::into_owned).into();
        let args = messages::arguments_text(marker.args, &mut self.tally);
        tool_calls::send_complete_call(cx!(self, out), &id, &name, &args, None, None, false);
    }

    fn send_manual_reasoning(&mut self, text: Option<&RawValue>, run: &str, out: &mut Vec<Event>) {
        let Some(text) =
            text.and_then(|raw| raw_json::string(raw, &mut self.tally)).filter(|text| !text.is_empty())
        else {
            return self.tally.note("wrong type", "reasoning by hand");
        };
        let id: MessageId = self.manual_id(run, "reasoning").into();
        let bodies = [
            Body::ReasoningStart { message: id.clone(), title: None },
            Body::ReasoningMessageStart { message: id.clone() },
            Body::ReasoningDelta { message: id.clone(), delta: text.into() },
            Body::ReasoningMessageEnd { message: id.clone() },
            Body::ReasoningEnd { message: id },
        ];
        out.extend(bodies.map(|body| {
            let is_start = matches!(body, Body::ReasoningStart { .. } | Body::ReasoningMessageStart { .. });
            Event::new(body).with_metadata(is_start.then(manual_reasoning::metadata))
        }));
    }

    /// Replaces the state by an emitted one, without its messages.
    fn send_manual_state(&mut self, data: &RawValue, out: &mut Vec<Event>) {
        let mut state = raw_json::json(data, &mut self.tally);
        if let Some(object) = state.clone().into_object() {
            state = object.without("messages").into();
        }
        self.state = Some(state.to_value());
        out.push(Event::new(Body::StateSnapshot { snapshot: state }));
    }
}
