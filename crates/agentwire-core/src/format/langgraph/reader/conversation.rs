//! The conversation and state of the outermost graph.

use serde_json::{Map, Value, value::RawValue};

use super::{
    super::{raw_json, wire::NativeMessage},
    LangGraphReader,
    call_ids::ListedCalls,
    cx,
    messages::{self, ShownIds},
    native_message::MessageKind,
};
use crate::{
    event::{Body, Event, Message, Role},
    json::Json,
    patch::{Op, diff},
};

/// Bound on the ids of earlier messages; see `shown_messages.rs` for the number.
const MAX_HISTORY: usize = 16_384;

impl LangGraphReader {
    /// Reads the complete conversation of the outermost graph.
    pub(super) fn read_conversation(&mut self, list: &RawValue, out: &mut Vec<Event>) {
        if self.run.conversation.messages.is_none() {
            self.add_history(list);
        } else if messages::one_or_many(list).len() <= MAX_HISTORY {
            self.read_returned_messages(list, "", None, None, out);
        }
        let mut messages = messages::conversation(list, &self.shown, &mut self.tally);
        messages.retain(|message| !self.shown.is_hidden(&message.id));
        for message in &mut messages {
            message.subagent = self.shown.owner(&message.id).cloned();
        }
        // A snapshot deletes messages that it does not contain, so no message may be streaming. The end of the
        // run has its own snapshot.
        if !self.run.ending.root_ended
            && self.streams.is_empty()
            && self.shown.is_part_of(&messages)
            && self.shown.lacks_some_of(&messages)
        {
            cx!(self, out).emit(Event::new(Body::MessagesSnapshot { messages: messages.clone() }));
        }
        let assistant = messages.iter().rev().find(|message| message.role() == Role::Assistant);
        let calls = assistant.map(Message::tool_calls).unwrap_or_default();
        self.run.conversation.last_calls = calls.iter().map(|call| call.id.clone()).collect();
        self.run.conversation.messages = Some(messages);
        self.shown.confirm();
    }

    /// Records the messages before this run: they are not shown again, and their tool calls may get results now.
    fn add_history(&mut self, list: &RawValue) {
        let mut answered = Vec::new();
        let mut listed = ListedCalls::default();
        for raw in messages::one_or_many(list) {
            let Some((kind, message)) = NativeMessage::read(raw, &mut self.tally) else { continue };
            let id = message.id(&mut self.tally);
            let shown = self.shown.message_id(id.as_deref().unwrap_or_default());
            if let Some(id) = id
                && self.stream_of_message(&id).is_none()
                && self.run.conversation.history.len() < MAX_HISTORY
            {
                self.run.conversation.history.insert(id.into());
            }
            match kind {
                MessageKind::Ai => {
                    for call in messages::complete_calls(&message, &mut self.tally) {
                        if let Some(native) = call.id {
                            let id = listed.add(&native, &shown, &self.shown);
                            self.shown.alias_call(&native, &id, "");
                            self.shown.add_earlier_call(&id, &shown);
                            self.calls.add_earlier(&id, &call.name, &call.args, false);
                        }
                    }
                }
                MessageKind::Tool => {
                    let native = raw_json::non_empty(message.tool_call_id, &mut self.tally);
                    answered.extend(native.map(|native| {
                        listed.add_result(&native).unwrap_or_else(|| self.shown.call_id(&native))
                    }));
                }
                _ => {}
            }
        }
        for call in answered {
            if self.calls.get(&call).is_some_and(|call| !call.is_shown) {
                self.calls.set_answered(&call);
            }
        }
    }

    /// Reads the complete values of the outermost graph.
    pub(super) fn read_values(&mut self, values: &RawValue, out: &mut Vec<Event>) {
        let Some(members) = raw_json::members(values) else {
            // A graph of the functional API has no state and returns any value.
            self.run.ending.result = Some(raw_json::json(values, &mut self.tally));
            return;
        };
        let mut state = Map::new();
        for (key, value) in members {
            if key == "messages" {
                if value.get() != "null" {
                    self.read_conversation(value, out);
                }
            } else if !(key.starts_with("__") && key.ends_with("__")) {
                state.insert(key.into_owned(), raw_json::json(value, &mut self.tally).to_value());
            }
        }
        self.send_state(Value::Object(state), out);
    }

    /// Emits a change of the state as a patch, or as a snapshot if the patch would replace all of it.
    fn send_state(&mut self, state: Value, out: &mut Vec<Event>) {
        let body = match &self.state {
            None if state.as_object().is_some_and(Map::is_empty) => return,
            None => Body::StateSnapshot { snapshot: Json::from(&state) },
            Some(previous) if *previous == state => return,
            Some(previous) => {
                let patch = diff(previous, &state);
                match &patch.0[..] {
                    [only] if only.path.is_empty() && only.op == Op::Replace => {
                        Body::StateSnapshot { snapshot: Json::from(&state) }
                    }
                    _ => Body::StateDelta { patch },
                }
            }
        };
        self.state = Some(state);
        out.push(Event::new(body));
    }

    /// Emits the conversation in the order of the graph.
    pub(super) fn send_last_messages(&mut self, out: &mut Vec<Event>) {
        let Some(messages) = self.run.conversation.messages.take() else { return };
        // The snapshot would delete messages that were shown after the list was received.
        if messages.is_empty() && self.shown.is_empty() || self.shown.has_unconfirmed_outside(&messages) {
            return;
        }
        if let Some(at) = self.shown.first_misplaced(&messages) {
            let messages = messages[..at].to_vec();
            cx!(self, out).emit(Event::new(Body::MessagesSnapshot { messages }));
        }
        cx!(self, out).emit(Event::new(Body::MessagesSnapshot { messages }));
    }
}
