//! The beginning: a response starts a message, or continues the one that the client holds.

use std::collections::HashSet;

use super::{
    super::{encode, tool_calls::Call},
    Start, Turn, Wire,
};
use crate::{
    event::{Body, Event, Message, RunInput, RunStarted, ToolCallId},
    format::{
        Fidelity, Writer,
        ai_sdk::{input, reader::metadata, wire::native},
    },
    framing::Frames,
    json::{Json, Object},
};

impl<W: Wire> Turn<W> {
    pub(super) fn run_started(&mut self, started: &RunStarted, event: &Event, out: &mut Frames) -> Fidelity {
        self.run = started.run.clone();
        self.thread = started.thread.clone();
        self.ended = false;
        self.reason = None;
        let request = self.request.take();
        let input = started.input.as_deref().or(request.as_deref());
        if let Some(input) = input {
            let held = if self.whole { input::before_last_turn(&input.messages) } else { &input.messages };
            self.seen.history(held);
            let names = input.tools.iter().map(|tool| tool.name.clone());
            self.tools.names.extend(names);
            if let Some(state) = &input.state {
                self.state = Some(state.to_value());
            }
        }
        if self.started {
            return Fidelity::Approximated("one response is one message: a further run continues it");
        }
        let continued = input.and_then(|input| self.continued(input));
        // What an AI SDK server said when it began.
        let own = metadata::native(event.metadata());
        let named = own.as_ref().and_then(|own| own.get_str(native::MESSAGE_ID)).map(Into::into);
        let message = self.asked_id.clone().or(continued).or(named);
        self.message = message.unwrap_or_else(|| self.run.as_str().into());
        self.about = own.and_then(|own| own.member(native::MESSAGE_METADATA)).and_then(Json::into_object);
        let metadata = event
            .metadata()
            .and_then(|it| metadata::without_native(it, &[native::MESSAGE_ID, native::MESSAGE_METADATA]));
        self.start(metadata.as_ref(), out);
        if let Some(input) = input.filter(|_| self.whole) {
            self.retell(input::trailing_turn(&input.messages), out);
            self.note_refused(input);
        }
        Fidelity::Exact
    }

    /// The id of the message that this response continues, if the client holds one: if it sent that message
    /// itself, or if the caller says so. Anybody else's history is not the client's.
    fn continued(&mut self, input: &RunInput) -> Option<Box<str>> {
        let earlier = input::trailing_turn(&input.messages);
        if self.whole {
            return input::turn_id(earlier);
        }
        let id = earlier.last().and_then(input::ui_message_id);
        if id.is_none() && self.asked_id.is_none() {
            return None;
        }
        self.know_earlier(earlier);
        self.note_refused(input);
        id
    }

    /// Tells what the message held before this response.
    fn retell(&mut self, turn: &[Message], out: &mut Frames) {
        let answered: HashSet<_> = turn
            .iter()
            .filter_map(|message| match &message.body {
                crate::event::MessageBody::Tool { call, .. } => Some(call),
                _ => None,
            })
            .collect();
        for event in self.seen.missing(turn, None) {
            // A client runs its own tools when it hears that the arguments are complete. Those that have answered must
            // not run again: the arguments are told as they stream, and then the result.
            if let Body::ToolEnd { call } = &event.body
                && answered.contains(call)
                && self.calls.get(call).is_some_and(|call| {
                    call.arguments.trim_start().starts_with('{') && Json::parse(&call.arguments).is_ok()
                })
            {
                if let Some(call) = self.calls.end(call) {
                    call.arguments.clear();
                }
                continue;
            }
            self.write(&event, out);
        }
    }

    /// The calls that the request refuses.
    fn note_refused(&mut self, input: &RunInput) {
        for entry in input.resume.iter().flatten() {
            let answer = entry.payload.clone().and_then(Json::into_object);
            if answer.and_then(|it| it.member("approved")).is_some_and(|it| it.get() == "false") {
                let call = entry.metadata.as_ref().and_then(|it| it.get_str("toolCallId"));
                let call: ToolCallId = call.map_or_else(|| entry.interrupt.as_str().into(), Into::into);
                if let Some(call) = self.calls.get_mut(&call) {
                    call.denied = true;
                }
            }
        }
    }

    /// The calls of a message that this response continues.
    fn know_earlier(&mut self, earlier: &[Message]) {
        for message in earlier {
            for call in message.tool_calls() {
                let known_tool = input::is_static(call) || self.knows_tool(&call.name);
                self.calls.insert(
                    &call.id,
                    Call { name: call.name.clone(), known_tool, earlier: true, ..Call::default() },
                );
            }
        }
    }

    pub(super) fn start(&mut self, metadata: Option<&Object>, out: &mut Frames) {
        if self.message.is_empty() {
            self.message = self.asked_id.clone().unwrap_or_else(|| self.run.as_str().into());
        }
        self.started = true;
        let safe = |it: &Object| encode::sanitized(it.as_json()).into_object();
        let (metadata, about) = (metadata.and_then(safe), self.about.as_ref().and_then(safe));
        if let Some(about) = &about {
            self.told.note(about);
        }
        self.wire.start(
            out,
            &Start {
                message: &self.message,
                thread: &self.thread,
                run: &self.run,
                metadata: metadata.as_ref(),
                about: about.as_ref(),
            },
        );
    }

    pub(super) fn knows_tool(&self, name: &str) -> bool {
        self.tools.contains(name)
    }
}
