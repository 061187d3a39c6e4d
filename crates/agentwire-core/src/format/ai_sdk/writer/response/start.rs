//! Start of a response: it starts a new message or continues the one that the client holds.

use std::collections::HashSet;

use super::{
    super::{encode, tool_calls::WrittenToolCall},
    PartEncoder, ResponseStart, ResponseWriter,
};
use crate::{
    event::{Body, Event, Message, MessageBody, RunInput, RunStarted, ToolCallId},
    format::{
        Fidelity, Writer,
        ai_sdk::{input, reader::metadata, wire::native},
    },
    framing::Frames,
    json::{Json, Object},
};

impl<E: PartEncoder> ResponseWriter<E> {
    pub(super) fn run_started(&mut self, started: &RunStarted, event: &Event, out: &mut Frames) -> Fidelity {
        self.message.run = started.run.clone();
        self.message.thread = started.thread.clone();
        self.message.is_ended = false;
        self.message.finish_reason = None;
        let request = self.request.take();
        let input = started.input.as_deref().or(request.as_deref());
        let whole_message = self.options.whole_message;
        if let Some(input) = input {
            let held = if whole_message { input::before_last_turn(&input.messages) } else { &input.messages };
            self.seen.add_request(held);
            let names = input.tools.iter().map(|tool| tool.name.clone());
            self.options.ui_tools.names.extend(names);
            if let Some(state) = &input.state {
                self.data_parts.state = Some(state.to_value());
            }
        }
        if self.message.is_started {
            return Fidelity::Approximated("one response is one message: a further run continues it");
        }
        let continued = input.and_then(|input| self.continued_message(input));
        // Members that the reader stored for the start chunk of an AI SDK server.
        let native_members = metadata::native(event.metadata());
        let named = native_members.as_ref().and_then(|it| it.get_str(native::MESSAGE_ID)).map(Into::into);
        let id = self.options.message_id.clone().or(continued).or(named);
        self.message.id = id.unwrap_or_else(|| self.message.run.as_str().into());
        self.message.start_metadata =
            native_members.and_then(|it| it.member(native::MESSAGE_METADATA)).and_then(Json::into_object);
        let run_metadata = event
            .metadata()
            .and_then(|it| metadata::without_native(it, &[native::MESSAGE_ID, native::MESSAGE_METADATA]));
        self.start(run_metadata.as_ref(), out);
        if let Some(input) = input.filter(|_| whole_message) {
            self.write_earlier_turn(input::trailing_turn(&input.messages), out);
            self.mark_denied_calls(input);
        }
        Fidelity::Exact
    }

    /// Id of the message that this response continues. The client holds one if it sent that message itself, or if the
    /// option `message` names it; the history of any other source is not the client's.
    fn continued_message(&mut self, input: &RunInput) -> Option<Box<str>> {
        let earlier = input::trailing_turn(&input.messages);
        if self.options.whole_message {
            return input::turn_id(earlier);
        }
        let id = earlier.last().and_then(input::ui_message_id);
        if id.is_none() && self.options.message_id.is_none() {
            return None;
        }
        self.add_earlier_calls(earlier);
        self.mark_denied_calls(input);
        id
    }

    /// Writes the content of the message before this response.
    fn write_earlier_turn(&mut self, turn: &[Message], out: &mut Frames) {
        let answered: HashSet<_> = turn
            .iter()
            .filter_map(|message| match &message.body {
                MessageBody::Tool { call, .. } => Some(call),
                _ => None,
            })
            .collect();
        for event in self.seen.missing_events(turn, None) {
            // A client runs its own tools when the arguments are complete. Tools with a result must not run again: their
            // arguments are written as deltas, followed by the result.
            if let Body::ToolEnd { call } = &event.body
                && answered.contains(call)
                && self.tools.calls.get(call).is_some_and(|call| {
                    call.arguments.trim_start().starts_with('{') && Json::parse(&call.arguments).is_ok()
                })
            {
                if let Some(call) = self.tools.calls.close(call) {
                    call.arguments.clear();
                }
                continue;
            }
            self.write(&event, out);
        }
    }

    /// Marks the calls that the request denies.
    fn mark_denied_calls(&mut self, input: &RunInput) {
        for entry in input.resume.iter().flatten() {
            let answer = entry.payload.clone().and_then(Json::into_object);
            if answer.and_then(|it| it.member("approved")).is_some_and(|it| it.get() == "false") {
                let call = entry.metadata.as_ref().and_then(|it| it.get_str("toolCallId"));
                let call: ToolCallId = call.map_or_else(|| entry.interrupt.as_str().into(), Into::into);
                if let Some(call) = self.tools.calls.get_mut(&call) {
                    call.is_denied = true;
                }
            }
        }
    }

    /// Adds the calls of the message that this response continues.
    fn add_earlier_calls(&mut self, earlier: &[Message]) {
        for message in earlier {
            for call in message.tool_calls() {
                let is_static = input::is_static(call) || self.options.ui_tools.contains(&call.name);
                let call = WrittenToolCall::new(&call.id, call.name.clone());
                self.tools.calls.insert(WrittenToolCall { is_static, is_earlier: true, ..call });
            }
        }
    }

    pub(super) fn start(&mut self, run_metadata: Option<&Object>, out: &mut Frames) {
        let message = &mut self.message;
        if message.id.is_empty() {
            message.id = self.options.message_id.clone().unwrap_or_else(|| message.run.as_str().into());
        }
        message.is_started = true;
        let sanitized = |it: &Object| encode::sanitized(it.as_json()).into_object();
        let run_metadata = run_metadata.and_then(sanitized);
        let message_metadata = message.start_metadata.as_ref().and_then(sanitized);
        if let Some(metadata) = &message_metadata {
            message.app.observe(metadata);
        }
        self.encoder.start(
            out,
            &ResponseStart {
                message: &message.id,
                thread: &message.thread,
                run: &message.run,
                run_metadata: run_metadata.as_ref(),
                message_metadata: message_metadata.as_ref(),
            },
        );
    }
}
