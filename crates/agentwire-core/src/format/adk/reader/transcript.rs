//! The messages that a run, or a stored session, amounts to.
//!
//! A run needs them for one thing only: when ADK takes back what it has streamed, the conversation is stated
//! anew. A stored session is nothing but this list. It is built the way the official AG-UI client builds its
//! own, so that both agree.

use std::collections::HashSet;

use crate::{
    event::{Content, EncryptedEntity, Message, MessageBody, MessageId, SubagentId, ToolCall, ToolCallId},
    json::Object,
};

/// Where a result went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ResultPlacement {
    /// It is the first for its call.
    New,
    /// The call has had the very same one.
    Same,
    /// It has taken the place of an earlier one.
    Instead,
}

/// Messages in order.
#[derive(Debug, Default)]
pub(super) struct Transcript {
    messages: Vec<Message>,
    ids: HashSet<MessageId>,
    /// Bytes of text held.
    size: usize,
    /// Whose messages come next, where subagents are shown.
    pub(super) subagent: Option<SubagentId>,
}

impl Transcript {
    /// How much text is held: a hundred times the longest answer of today's models (64 Ki tokens, about
    /// 256 KiB). A run beyond it is not restated any more.
    const LIMIT: usize = 32 * 1024 * 1024;
    /// How many messages are held; the longest recorded sessions have some hundred.
    const COUNT: usize = 64 * 1024;
    /// How far back a message is looked for: what belongs together is said within a few turns, and a search
    /// through everything for every answer would let a long session cost its square.
    const REACH: usize = 4096;

    /// Whether everything that was said is still here.
    pub(super) fn is_whole(&self) -> bool {
        self.size <= Self::LIMIT && self.messages.len() < Self::COUNT
    }

    pub(super) fn messages(&self) -> &[Message] {
        &self.messages
    }

    pub(super) fn contains(&self, id: &str) -> bool {
        self.ids.contains(id)
    }

    /// Something is missing here for good.
    pub(super) fn give_up(&mut self) {
        self.size = usize::MAX;
    }

    /// Takes some messages away.
    pub(super) fn remove(&mut self, ids: &[MessageId]) {
        self.messages.retain(|message| !ids.contains(&message.id));
        for id in ids {
            self.ids.remove(id);
        }
    }

    /// Whether so many bytes more may be held; they count either way.
    fn admits(&mut self, size: usize) -> bool {
        self.size = self.size.saturating_add(size);
        self.is_whole()
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
        self.messages.iter_mut().rev().take(Self::REACH).find(|message| &*message.id == id)
    }

    /// Text of an agent; a known id continues.
    pub(super) fn text(&mut self, id: &MessageId, name: &str, text: &str) {
        if !self.admits(text.len()) {
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

    /// A thought.
    pub(super) fn thought(&mut self, id: &MessageId, text: &str) {
        if self.admits(text.len()) {
            let content = text.into();
            self.push(Message::new(id.clone(), MessageBody::Reasoning { content }));
        }
    }

    /// What a person said.
    pub(super) fn user(&mut self, id: &MessageId, content: Content, size: usize) {
        if self.admits(size) {
            self.push(Message::user(id.clone(), content));
        }
    }

    /// A call of a tool, in the message `parent`.
    pub(super) fn call(&mut self, parent: &MessageId, call: ToolCall) {
        if !self.admits(call.arguments.len()) {
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

    /// What a tool answered: behind the message that holds the call and the answers that stand there
    /// already. If the call was answered before (`again`), the later answer takes the place of the first.
    pub(super) fn result(
        &mut self,
        id: &MessageId,
        call: &ToolCallId,
        content: &Content,
        error: Option<&str>,
        again: bool,
    ) -> ResultPlacement {
        let size = match content {
            Content::Text(text) => text.len(),
            Content::Parts(_) => 0,
        };
        if !self.admits(size) {
            return ResultPlacement::New;
        }
        let body =
            MessageBody::Tool { call: call.clone(), content: content.clone(), error: error.map(Into::into) };
        let answers = |message: &&mut Message| matches!(&message.body, MessageBody::Tool { call: other, .. } if other == call);
        if again && let Some(first) = self.messages.iter_mut().rev().take(Self::REACH).find(answers) {
            if first.body == body {
                return ResultPlacement::Same;
            }
            first.body = body;
            return ResultPlacement::Instead;
        }
        let start = self.messages.len().saturating_sub(Self::REACH);
        let holder = self.messages[start..]
            .iter()
            .rposition(|message| message.tool_calls().iter().any(|known| known.id == *call));
        let at = holder.map_or(self.messages.len(), |holder| {
            let holder = start + holder;
            let tools = self.messages[holder + 1..]
                .iter()
                .take_while(|message| matches!(message.body, MessageBody::Tool { .. }));
            holder + 1 + tools.count()
        });
        self.ids.insert(id.clone());
        let mut message = Message::new(id.clone(), body);
        message.subagent = self.subagent.clone();
        self.messages.insert(at, message);
        ResultPlacement::New
    }

    /// The opaque value that belongs to a message or call.
    pub(super) fn encrypted(&mut self, entity: &EncryptedEntity, value: &str) {
        if !self.admits(value.len()) {
            return;
        }
        match entity {
            EncryptedEntity::Message(id) => {
                if let Some(message) = self.find(id) {
                    message.encrypted = Some(value.into());
                }
            }
            EncryptedEntity::ToolCall(id) => {
                for message in self.messages.iter_mut().rev().take(Self::REACH) {
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

    /// Something that has no message of its own kind.
    pub(super) fn activity(&mut self, id: &MessageId, kind: &str, content: Object) {
        if self.admits(content.get().len()) {
            let kind = kind.into();
            self.push(Message::new(id.clone(), MessageBody::Activity { kind, content }));
        }
    }
}
