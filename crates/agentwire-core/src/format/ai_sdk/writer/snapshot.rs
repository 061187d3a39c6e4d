//! Finds out what a restated conversation says that the stream did not.
//!
//! Agents that do not stream tell their answer only in MESSAGES_SNAPSHOT. A response cannot restate a
//! conversation, but it can say what is missing from its own turn: everything behind the last user message
//! that neither the stream nor the request has said.

use std::collections::{HashMap, HashSet};

use super::tool_calls::Calls;
use crate::{
    event::{Body, Event, Message, MessageBody, MessageId, ToolCallId, ToolResult},
    format::ai_sdk::input,
};

/// The most ids that are remembered, as many as the order guard remembers. Beyond it, snapshots say nothing
/// new, because nobody knows any more what is new.
const MAX_SEEN: usize = 16_384;

/// What has been said already.
#[derive(Debug, Default)]
pub(super) struct Seen {
    messages: HashSet<MessageId>,
    /// Calls of the request: name and arguments.
    calls: HashMap<ToolCallId, (Box<str>, Box<str>)>,
    results: HashSet<ToolCallId>,
    full: bool,
    /// The run has said something.
    content: bool,
    /// A snapshot that came before the run said anything: history, or all that the run will ever say.
    first: Vec<Message>,
}

impl Seen {
    fn add(&mut self, message: &MessageId) {
        if self.messages.len() >= MAX_SEEN {
            self.full = true;
        } else if !self.messages.contains(message) {
            self.messages.insert(message.clone());
        }
    }

    pub(super) fn text(&mut self, message: &MessageId) {
        self.add(message);
    }

    pub(super) fn reasoning(&mut self, message: &MessageId) {
        self.add(message);
    }

    pub(super) fn activity(&mut self, message: &MessageId) {
        self.add(message);
    }

    /// A call of the request.
    pub(super) fn call(&self, call: &ToolCallId) -> Option<(&str, &str)> {
        self.calls.get(call).map(|(name, arguments)| (&**name, &**arguments))
    }

    /// Messages that the client has.
    pub(super) fn history(&mut self, messages: &[Message]) {
        for message in messages {
            self.add(&message.id);
            for call in message.tool_calls() {
                if self.calls.len() < MAX_SEEN {
                    let known = (call.name.clone(), call.arguments.clone());
                    self.calls.insert(call.id.clone(), known);
                }
            }
            if let MessageBody::Tool { call, .. } = &message.body
                && self.results.len() < MAX_SEEN
            {
                self.results.insert(call.clone());
            }
        }
    }

    /// Watches the run go by.
    pub(super) fn note(&mut self, body: &Body) {
        if self.content {
            return;
        }
        match body {
            Body::TextDelta { .. }
            | Body::ReasoningDelta { .. }
            | Body::ToolStart { .. }
            | Body::ToolResult(_)
            | Body::Source(_)
            | Body::File(_)
            | Body::Block(_) => {
                self.content = true;
                let first = std::mem::take(&mut self.first);
                self.history(&first);
            }
            _ => {}
        }
    }

    /// What a snapshot adds to the run.
    pub(super) fn snapshot(&mut self, messages: &[Message], calls: &Calls) -> Vec<Event> {
        let turn = input::trailing_turn(messages);
        if !self.content {
            self.first = turn.to_vec();
            return Vec::new();
        }
        self.missing(turn, Some(calls))
    }

    /// What the run said in its first snapshot only.
    pub(super) fn unsaid(&mut self) -> Option<Vec<Event>> {
        let first = std::mem::take(&mut self.first);
        (!first.is_empty() && !self.content).then(|| self.missing(&first, None))
    }

    /// What of a turn has not been said.
    pub(super) fn missing(&mut self, turn: &[Message], calls: Option<&Calls>) -> Vec<Event> {
        let mut events = Vec::new();
        if self.full {
            return events;
        }
        for message in turn {
            let new = !self.messages.contains(&message.id);
            let mut say = |body: Body| {
                events.push(
                    Event::new(body).by(message.subagent.clone()).with_metadata(message.metadata.clone()),
                );
            };
            match &message.body {
                MessageBody::Assistant { content, tool_calls } => {
                    if let Some(text) = content.as_deref().filter(|text| new && !text.is_empty()) {
                        let id = &message.id;
                        say(Body::TextStart { message: id.clone(), role: None, name: message.name.clone() });
                        say(Body::TextDelta { message: id.clone(), delta: text.into() });
                        say(Body::TextEnd { message: id.clone() });
                    }
                    for call in tool_calls.iter().flatten() {
                        let asked = self.calls.get(&call.id);
                        let known =
                            calls.is_some_and(|calls| calls.get(&call.id).is_some_and(|it| !it.earlier));
                        // What a person has changed about a call that the page shows.
                        let changed = asked.is_some_and(|(_, asked)| !is_same(asked, &call.arguments));
                        if known || (asked.is_some() && !changed) {
                            continue;
                        }
                        say(Body::ToolStart {
                            call: call.id.clone(),
                            name: call.name.clone(),
                            parent: Some(message.id.clone()),
                        });
                        say(Body::ToolArgs { call: call.id.clone(), delta: call.arguments.clone() });
                        say(Body::ToolEnd { call: call.id.clone() });
                    }
                }
                MessageBody::Tool { call, content, error } => {
                    let answered = calls.and_then(|calls| calls.get(call)).is_some_and(|call| call.answered);
                    if !answered && self.results.insert(call.clone()) {
                        say(Body::ToolResult(Box::new(ToolResult {
                            message: message.id.clone(),
                            call: call.clone(),
                            content: content.clone(),
                            error: error.clone(),
                            explicit_role: false,
                        })));
                    }
                }
                MessageBody::Reasoning { content } if new && !content.is_empty() => {
                    let id = &message.id;
                    say(Body::ReasoningMessageStart { message: id.clone() });
                    say(Body::ReasoningDelta { message: id.clone(), delta: content.clone() });
                    say(Body::ReasoningMessageEnd { message: id.clone() });
                }
                MessageBody::Activity { kind, content } if new => say(Body::ActivitySnapshot {
                    message: message.id.clone(),
                    kind: kind.clone(),
                    content: content.clone(),
                    replace: None,
                }),
                _ => {}
            }
        }
        events
    }
}

/// Whether two texts of arguments say the same.
fn is_same(one: &str, other: &str) -> bool {
    let value = |text: &str| serde_json::from_str::<serde_json::Value>(text).ok();
    one == other || matches!((value(one), value(other)), (Some(one), Some(other)) if one == other)
}
