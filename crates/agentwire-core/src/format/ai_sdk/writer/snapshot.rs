//! Converts MESSAGES_SNAPSHOT to the events that are missing from the stream.
//!
//! Agents that do not stream put their output only into MESSAGES_SNAPSHOT. A response cannot restate a conversation, but it
//! can add the messages missing from its own turn: those after the last user message that are neither in the stream nor in
//! the request. Some servers (LlamaIndex, CrewAI) give a streamed message a new id in each snapshot: a message with a new id
//! and the text of a streamed one, or of one in the request, whose id the snapshot does not have, is that message.

use std::collections::{HashMap, HashSet};

use super::tool_calls::ToolCallTable;
use crate::{
    event::{Body, Event, Message, MessageBody, MessageId, ToolCallId, ToolResult},
    format::ai_sdk::input,
};

/// Limit of remembered ids, the same as in the order guard. Beyond it, snapshots add nothing, because new messages can no
/// longer be told apart from old ones.
const MAX_SEEN: usize = 16_384;

/// Digest of a text without its white space, which servers trim in snapshots: FNV-1a, made piece by piece. It decides only
/// whether a text is shown a second time, so that a collision that an agent constructs harms nobody else.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct TextDigest(u64);

impl Default for TextDigest {
    fn default() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

impl TextDigest {
    fn of(text: &str) -> Self {
        let mut digest = Self::default();
        digest.add(text);
        digest
    }

    pub(super) fn add(&mut self, text: &str) {
        for byte in text.bytes().filter(|byte| !byte.is_ascii_whitespace()) {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
}

/// Messages, calls and results that the client already holds.
#[derive(Debug, Default)]
pub(super) struct SeenMessages {
    messages: HashSet<MessageId>,
    /// The texts of this response and of the last turn of the request.
    texts: Vec<(MessageId, TextDigest)>,
    /// Name and arguments of the calls in the request.
    request_calls: HashMap<ToolCallId, (Box<str>, Box<str>)>,
    results: HashSet<ToolCallId>,
    is_full: bool,
    /// The run has produced content.
    has_content: bool,
    /// Snapshot that arrived before any content: the history, or the only output of the run.
    first_snapshot: Vec<Message>,
}

impl SeenMessages {
    pub(super) fn add(&mut self, message: &MessageId) {
        if self.messages.len() >= MAX_SEEN {
            self.is_full = true;
        } else if !self.messages.contains(message) {
            self.messages.insert(message.clone());
        }
    }

    /// Adds a text of this response that has ended.
    pub(super) fn add_text(&mut self, message: &MessageId, digest: TextDigest) {
        if self.texts.len() < MAX_SEEN && digest != TextDigest::default() {
            self.texts.push((message.clone(), digest));
        }
    }

    /// Adds the messages of a request. Those of its last turn may have other ids in a snapshot.
    pub(super) fn add_request(&mut self, messages: &[Message]) {
        self.add_history(messages);
        for message in input::trailing_turn(messages) {
            if let MessageBody::Assistant { content: Some(text), .. } = &message.body {
                self.add_text(&message.id, TextDigest::of(text));
            }
        }
    }

    /// Name and arguments of a call in the request.
    pub(super) fn request_call(&self, call: &ToolCallId) -> Option<(&str, &str)> {
        self.request_calls.get(call).map(|(name, arguments)| (&**name, &**arguments))
    }

    /// Adds messages that the client holds.
    pub(super) fn add_history(&mut self, messages: &[Message]) {
        for message in messages {
            self.add(&message.id);
            for call in message.tool_calls() {
                if self.request_calls.len() < MAX_SEEN {
                    let name_and_arguments = (call.name.clone(), call.arguments.clone());
                    self.request_calls.insert(call.id.clone(), name_and_arguments);
                }
            }
            if let MessageBody::Tool { call, .. } = &message.body
                && self.results.len() < MAX_SEEN
            {
                self.results.insert(call.clone());
            }
        }
    }

    /// Detects the first event with content.
    pub(super) fn observe(&mut self, body: &Body) {
        if self.has_content {
            return;
        }
        match body {
            Body::TextDelta { .. }
            | Body::ReasoningDelta { .. }
            | Body::ToolStart { .. }
            | Body::ToolResult(_)
            | Body::Citation(_)
            | Body::File(_)
            | Body::Block(_) => {
                self.has_content = true;
                let history = std::mem::take(&mut self.first_snapshot);
                self.add_history(&history);
            }
            _ => {}
        }
    }

    /// Events that a snapshot adds to the stream.
    pub(super) fn events_of_snapshot(&mut self, messages: &[Message], calls: &ToolCallTable) -> Vec<Event> {
        let turn = input::trailing_turn(messages);
        if !self.has_content {
            self.first_snapshot = turn.to_vec();
            return Vec::new();
        }
        self.missing_events(turn, Some(calls))
    }

    /// Events of the first snapshot, if the run produced no other content.
    pub(super) fn events_of_first_snapshot(&mut self) -> Option<Vec<Event>> {
        let first = std::mem::take(&mut self.first_snapshot);
        (!first.is_empty() && !self.has_content).then(|| self.missing_events(&first, None))
    }

    /// Events for the messages of a turn that the client does not hold.
    pub(super) fn missing_events(&mut self, turn: &[Message], calls: Option<&ToolCallTable>) -> Vec<Event> {
        let mut events = Vec::new();
        if self.is_full {
            return events;
        }
        let mut renamed = self.texts_without_message(turn);
        for message in turn {
            let is_new = !self.messages.contains(&message.id);
            let mut push = |body: Body| {
                events.push(
                    Event::new(body).by(message.subagent.clone()).with_metadata(message.metadata.clone()),
                );
            };
            match &message.body {
                MessageBody::Assistant { content, tool_calls } => {
                    let mut is_renamed = |text: &str| {
                        let left = renamed.get_mut(&TextDigest::of(text)).filter(|left| **left > 0);
                        left.map(|left| *left -= 1).is_some()
                    };
                    let is_missing = |text: &&str| is_new && !text.is_empty() && !is_renamed(text);
                    if let Some(text) = content.as_deref().filter(is_missing) {
                        let id = &message.id;
                        push(Body::TextStart { message: id.clone(), role: None, name: message.name.clone() });
                        push(Body::TextDelta { message: id.clone(), delta: text.into() });
                        push(Body::TextEnd { message: id.clone() });
                    }
                    for call in tool_calls.iter().flatten() {
                        let requested = self.request_calls.get(&call.id);
                        let is_written =
                            calls.is_some_and(|calls| calls.get(&call.id).is_some_and(|it| !it.is_earlier));
                        // A person may have edited the arguments of a call that the page shows.
                        let is_edited =
                            requested.is_some_and(|(_, arguments)| !is_same_json(arguments, &call.arguments));
                        if is_written || (requested.is_some() && !is_edited) {
                            continue;
                        }
                        push(Body::ToolStart {
                            call: call.id.clone(),
                            name: call.name.clone(),
                            parent: Some(message.id.clone()),
                        });
                        push(Body::ToolArgs { call: call.id.clone(), delta: call.arguments.clone() });
                        push(Body::ToolEnd { call: call.id.clone() });
                    }
                }
                MessageBody::Tool { call, content, error } => {
                    let has_result =
                        calls.and_then(|calls| calls.get(call)).is_some_and(|call| call.has_result);
                    if !has_result && self.results.insert(call.clone()) {
                        push(Body::ToolResult(Box::new(ToolResult {
                            message: message.id.clone(),
                            call: call.clone(),
                            content: content.clone(),
                            error: error.clone(),
                            explicit_role: false,
                        })));
                    }
                }
                MessageBody::Reasoning { content } if is_new && !content.is_empty() => {
                    let id = &message.id;
                    push(Body::ReasoningMessageStart { message: id.clone() });
                    push(Body::ReasoningDelta { message: id.clone(), delta: content.clone() });
                    push(Body::ReasoningMessageEnd { message: id.clone() });
                }
                MessageBody::Activity { kind, content } if is_new => push(Body::ActivitySnapshot {
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

    /// Texts of this response whose messages have another id in `turn`, or are not in it, with their number.
    fn texts_without_message(&self, turn: &[Message]) -> HashMap<TextDigest, usize> {
        let mut numbers = HashMap::new();
        if self.texts.is_empty() {
            return numbers;
        }
        let ids: HashSet<&MessageId> = turn.iter().map(|message| &message.id).collect();
        for (_, digest) in self.texts.iter().filter(|(id, _)| !ids.contains(id)) {
            *numbers.entry(*digest).or_default() += 1;
        }
        numbers
    }
}

/// Returns true if two argument texts are equal as text or as JSON.
fn is_same_json(one: &str, other: &str) -> bool {
    let value = |text: &str| serde_json::from_str::<serde_json::Value>(text).ok();
    one == other || matches!((value(one), value(other)), (Some(one), Some(other)) if one == other)
}
