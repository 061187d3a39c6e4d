//! The messages of a run or of a stored session.
//!
//! During a run they serve one purpose: when ADK replaces streamed text, the reader emits a snapshot of the
//! conversation. For a stored session, this list is the result. It is built with the same rules as in the official
//! AG-UI client, so that both agree.

use std::collections::HashSet;

use crate::{
    event::{Content, EncryptedEntity, Message, MessageBody, MessageId, SubagentId, ToolCall, ToolCallId},
    json::Object,
};

/// The effect of a tool result on the transcript.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ResultPlacement {
    /// The first result of its call.
    New,
    /// Identical to the result that the call has.
    Duplicate,
    /// Replaced an earlier result.
    Replaced,
}

/// Messages in order.
#[derive(Debug, Default)]
pub(super) struct Transcript {
    messages: Vec<Message>,
    ids: HashSet<MessageId>,
    /// Bytes of text, including text that was not stored because of the limit.
    size: usize,
    /// The subagent of the next messages, with `subagents=on`.
    pub(super) subagent: Option<SubagentId>,
}

impl Transcript {
    /// Maximum bytes of text: a hundred times the longest output of current models (64 Ki tokens, about 256 KiB). No
    /// snapshots are emitted for a longer run.
    const LIMIT: usize = 32 * 1024 * 1024;
    /// Maximum number of messages; the longest recorded sessions have a few hundred.
    const COUNT: usize = 64 * 1024;
    /// Number of recent messages that are searched. Related messages are a few turns apart, and a full search for each
    /// result would make a long session quadratic.
    const SEARCH_WINDOW: usize = 4096;

    /// True if no message was dropped because of the limits.
    pub(super) fn is_complete(&self) -> bool {
        self.size <= Self::LIMIT && self.messages.len() < Self::COUNT
    }

    pub(super) fn messages(&self) -> &[Message] {
        &self.messages
    }

    pub(super) fn contains(&self, id: &str) -> bool {
        self.ids.contains(id)
    }

    /// Marks the transcript as permanently incomplete.
    pub(super) fn mark_incomplete(&mut self) {
        self.size = usize::MAX;
    }

    pub(super) fn remove(&mut self, ids: &[MessageId]) {
        self.messages.retain(|message| !ids.contains(&message.id));
        for id in ids {
            self.ids.remove(id);
        }
    }

    /// Counts `size` bytes and returns whether they may be stored.
    fn reserve(&mut self, size: usize) -> bool {
        self.size = self.size.saturating_add(size);
        self.is_complete()
    }

    fn push(&mut self, mut message: Message) {
        message.subagent = self.subagent.clone();
        self.ids.insert(message.id.clone());
        self.messages.push(message);
    }

    fn find(&mut self, id: &str) -> Option<&mut Message> {
        if !self.ids.contains(id) {
            return None;
        }
        self.messages.iter_mut().rev().take(Self::SEARCH_WINDOW).find(|message| &*message.id == id)
    }

    /// Adds the text of an agent; a known id appends to its message.
    pub(super) fn add_text(&mut self, id: &MessageId, name: &str, text: &str) {
        if !self.reserve(text.len()) {
            return;
        }
        if let Some(known) = self.find(id) {
            if let MessageBody::Assistant { content, .. } = &mut known.body {
                let mut whole = content.take().map(String::from).unwrap_or_default();
                whole.push_str(text);
                *content = Some(whole.into());
            }
            return;
        }
        let mut message = Message::assistant(id.clone(), text);
        message.name = (!name.is_empty()).then(|| name.into());
        self.push(message);
    }

    pub(super) fn add_thought(&mut self, id: &MessageId, text: &str) {
        if self.reserve(text.len()) {
            let content = text.into();
            self.push(Message::new(id.clone(), MessageBody::Reasoning { content }));
        }
    }

    pub(super) fn add_user_message(&mut self, id: &MessageId, content: Content, size: usize) {
        if self.reserve(size) {
            self.push(Message::user(id.clone(), content));
        }
    }

    /// Adds a tool call to the message `parent`.
    pub(super) fn add_call(&mut self, parent: &MessageId, call: ToolCall) {
        if !self.reserve(call.arguments.len()) {
            return;
        }
        if let Some(known) = self.find(parent)
            && let MessageBody::Assistant { tool_calls, .. } = &mut known.body
        {
            tool_calls.get_or_insert_default().push(call);
            return;
        }
        let body = MessageBody::Assistant { content: None, tool_calls: Some(vec![call]) };
        self.push(Message::new(parent.clone(), body));
    }

    /// Adds a tool result behind the message with its call and the results that follow it. If the call
    /// `had_result`, the new result replaces the first one.
    pub(super) fn add_result(
        &mut self,
        id: &MessageId,
        call: &ToolCallId,
        content: &Content,
        error: Option<&str>,
        had_result: bool,
    ) -> ResultPlacement {
        let size = match content {
            Content::Text(text) => text.len(),
            Content::Parts(_) => 0,
        };
        if !self.reserve(size) {
            return ResultPlacement::New;
        }
        let body =
            MessageBody::Tool { call: call.clone(), content: content.clone(), error: error.map(Into::into) };
        let is_result = |message: &&mut Message| matches!(&message.body, MessageBody::Tool { call: other, .. } if other == call);
        if had_result
            && let Some(first) = self.messages.iter_mut().rev().take(Self::SEARCH_WINDOW).find(is_result)
        {
            if first.body == body {
                return ResultPlacement::Duplicate;
            }
            first.body = body;
            return ResultPlacement::Replaced;
        }
        let start = self.messages.len().saturating_sub(Self::SEARCH_WINDOW);
        let holder = self.messages[start..]
            .iter()
            .rposition(|message| message.tool_calls().iter().any(|known| known.id == *call));
        let index = holder.map_or(self.messages.len(), |holder| {
            let holder = start + holder;
            let tools = self.messages[holder + 1..]
                .iter()
                .take_while(|message| matches!(message.body, MessageBody::Tool { .. }));
            holder + 1 + tools.count()
        });
        self.ids.insert(id.clone());
        let mut message = Message::new(id.clone(), body);
        message.subagent = self.subagent.clone();
        self.messages.insert(index, message);
        ResultPlacement::New
    }

    /// Sets the encrypted value of a message or call.
    pub(super) fn set_encrypted(&mut self, entity: &EncryptedEntity, value: &str) {
        if !self.reserve(value.len()) {
            return;
        }
        match entity {
            EncryptedEntity::Message(id) => {
                if let Some(message) = self.find(id) {
                    message.encrypted = Some(value.into());
                }
            }
            EncryptedEntity::ToolCall(id) => {
                for message in self.messages.iter_mut().rev().take(Self::SEARCH_WINDOW) {
                    let MessageBody::Assistant { tool_calls: Some(calls), .. } = &mut message.body else {
                        continue;
                    };
                    if let Some(call) = calls.iter_mut().find(|call| call.id == *id) {
                        call.encrypted = Some(value.into());
                        return;
                    }
                }
            }
        }
    }

    /// Adds an activity: a file or a source, which have no message type of their own.
    pub(super) fn add_activity(&mut self, id: &MessageId, kind: &str, content: Object) {
        if self.reserve(content.get().len()) {
            let kind = kind.into();
            self.push(Message::new(id.clone(), MessageBody::Activity { kind, content }));
        }
    }
}
