//! The messages of one namespace that are being streamed, block by block.

use std::collections::{HashMap, HashSet};

use serde_json::Value;

use super::{
    super::super::wire::ProtocolMethod,
    envelope::{Envelope, EventId, Namespace},
};
use crate::{
    event::{Message, MessageBody, MessageId, ToolCallId},
    framing::Frames,
    json::{Json, ObjectWriter},
};

/// The kind of a block, with the message or the call that it shows.
#[derive(Debug)]
pub(super) enum BlockKind {
    Text(MessageId),
    Reasoning(MessageId),
    Call { id: ToolCallId, name: Box<str> },
}

impl BlockKind {
    pub(super) fn is_text_of(&self, message: &MessageId) -> bool {
        matches!(self, Self::Text(own) if own == message)
    }

    pub(super) fn is_reasoning_of(&self, message: &MessageId) -> bool {
        matches!(self, Self::Reasoning(own) if own == message)
    }

    pub(super) fn is_call(&self, call: &ToolCallId) -> bool {
        matches!(self, Self::Call { id, .. } if id == call)
    }

    /// The first state of the block.
    fn write_start(&self, content: &mut ObjectWriter<'_>, index: i64) {
        match self {
            Self::Text(_) => content.str("type", "text").str("text", ""),
            Self::Reasoning(_) => content.str("type", "reasoning").str("reasoning", ""),
            Self::Call { id, name } => {
                content.str("type", "tool_call_chunk").str("id", id).str("name", name);
                content.str("args", "").int("index", index)
            }
        };
    }

    /// The whole block.
    fn write_whole(&self, content: &mut ObjectWriter<'_>, text: &str) {
        match self {
            Self::Text(_) => content.str("type", "text").str("text", text),
            Self::Reasoning(_) => content.str("type", "reasoning").str("reasoning", text),
            Self::Call { id, name } => match arguments(text) {
                Some(args) => {
                    content.str("type", "tool_call").str("id", id).str("name", name).json("args", &args)
                }
                None => {
                    content.str("type", "invalid_tool_call").str("id", id).str("name", name);
                    content.str("args", text).str("error", "the arguments are no JSON object")
                }
            },
        };
    }

    /// A piece of the block. The arguments of calls have two forms: clients in Python and in JavaScript read different
    /// ones.
    fn write_piece(&self, data: &mut ObjectWriter<'_>, piece: &str) {
        let (delta, member) = match self {
            Self::Text(_) => ("text-delta", "text"),
            Self::Reasoning(_) => ("reasoning-delta", "reasoning"),
            Self::Call { .. } => ("tool-call-delta", "args"),
        };
        data.nested("delta", |object| {
            object.str("type", delta).str(member, piece);
        });
        if let Self::Call { .. } = self {
            data.nested("content", |content| {
                content.str("type", "tool_call_chunk").str("args", piece);
            });
        }
    }
}

/// The arguments of a call; none are an empty object.
fn arguments(text: &str) -> Option<Json> {
    let text = if text.trim().is_empty() { "{}" } else { text };
    Json::parse(text).ok().filter(|json| json.get().starts_with('{'))
}

struct Block {
    kind: BlockKind,
    text: String,
    is_open: bool,
}

struct OpenMessage {
    id: MessageId,
    node: Option<Box<str>>,
    blocks: Vec<Block>,
    finish_reason: Option<Box<str>>,
}

/// One namespace.
pub(super) struct Lane {
    pub(super) namespace: Namespace,
    open: Vec<OpenMessage>,
    ended_messages: HashSet<MessageId>,
    /// The namespaces of subagents that have ended.
    pub(super) ended: HashMap<Box<str>, Namespace>,
}

impl Lane {
    pub(super) fn new(namespace: Namespace) -> Self {
        Self { namespace, open: Vec::new(), ended_messages: HashSet::new(), ended: HashMap::new() }
    }

    pub(super) fn has_ended(&self, message: &MessageId) -> bool {
        self.ended_messages.contains(message)
    }

    /// Opens a message, unless it is open. One that has ended is written again, with its content so far.
    pub(super) fn open_message(
        &mut self,
        envelope: &mut Envelope,
        id: &MessageId,
        role: &str,
        node: Option<&str>,
        earlier: Option<&Message>,
        out: &mut Frames,
    ) {
        if self.open.iter().any(|message| message.id == *id) {
            return;
        }
        self.end_idle(envelope, out);
        let is_taken = |name: &str| self.open.iter().any(|message| message.node.as_deref() == Some(name));
        let node = match node.unwrap_or_default() {
            // Blocks do not name their message.
            node if !self.open.is_empty() && (node.is_empty() || is_taken(node)) => {
                Some(format!("{node}#{id}").into())
            }
            "" => None,
            node => Some(node.into()),
        };
        let message = OpenMessage { id: id.clone(), node, blocks: Vec::new(), finish_reason: None };
        event(envelope, &self.namespace, message.node.as_deref(), "message-start", out, |data| {
            data.str("role", role).str("id", id);
        });
        self.open.push(message);
        let Some(earlier) = earlier else { return };
        let text = match &earlier.body {
            MessageBody::Assistant { content: Some(content), .. } => &**content,
            _ => "",
        };
        if !text.is_empty() {
            self.write_again(envelope, id, BlockKind::Text(earlier.id.clone()), text, out);
        }
        for call in earlier.tool_calls() {
            // The one that reopens it is not written yet.
            if !call.arguments.is_empty() {
                let kind = BlockKind::Call { id: call.id.clone(), name: call.name.clone() };
                self.write_again(envelope, id, kind, &call.arguments, out);
            }
        }
    }

    fn write_again(
        &mut self,
        envelope: &mut Envelope,
        message: &MessageId,
        kind: BlockKind,
        text: &str,
        out: &mut Frames,
    ) {
        self.open_block(envelope, message, kind, out);
        if let Some(block) = self.open.last_mut().and_then(|message| message.blocks.last_mut()) {
            text.clone_into(&mut block.text);
        }
        self.end_block_at(envelope, self.open.len() - 1, None, out);
    }

    /// Opens a block of an open message.
    pub(super) fn open_block(
        &mut self,
        envelope: &mut Envelope,
        message: &MessageId,
        kind: BlockKind,
        out: &mut Frames,
    ) {
        let Some(message) = self.open.iter_mut().rev().find(|open| open.id == *message) else { return };
        let index = as_index(message.blocks.len());
        event(envelope, &self.namespace, message.node.as_deref(), "content-block-start", out, |data| {
            data.int("index", index).nested("content", |content| kind.write_start(content, index));
        });
        message.blocks.push(Block { kind, text: String::new(), is_open: true });
    }

    /// The open block of this kind: its message and its index.
    fn find(&self, is_wanted: impl Fn(&BlockKind) -> bool) -> Option<(usize, usize)> {
        for (at, message) in self.open.iter().enumerate().rev() {
            let block = message.blocks.iter().rposition(|block| block.is_open && is_wanted(&block.kind));
            if let Some(block) = block {
                return Some((at, block));
            }
        }
        None
    }

    /// Appends to the open block of this kind.
    pub(super) fn append(
        &mut self,
        envelope: &mut Envelope,
        is_wanted: impl Fn(&BlockKind) -> bool,
        piece: &str,
        out: &mut Frames,
    ) {
        let Some((at, index)) = self.find(is_wanted) else { return };
        let message = &mut self.open[at];
        let block = &mut message.blocks[index];
        block.text.push_str(piece);
        let (kind, index) = (&block.kind, as_index(index));
        event(envelope, &self.namespace, message.node.as_deref(), "content-block-delta", out, |data| {
            data.int("index", index);
            kind.write_piece(data, piece);
        });
    }

    /// Ends the open block of this kind.
    pub(super) fn end_block(
        &mut self,
        envelope: &mut Envelope,
        is_wanted: impl Fn(&BlockKind) -> bool,
        out: &mut Frames,
    ) {
        if let Some((at, block)) = self.find(is_wanted) {
            self.end_block_at(envelope, at, Some(block), out);
        }
    }

    /// Ends a block of the message at `at`, the last one without an index.
    fn end_block_at(&mut self, envelope: &mut Envelope, at: usize, index: Option<usize>, out: &mut Frames) {
        let message = &mut self.open[at];
        let index = index.unwrap_or_else(|| message.blocks.len() - 1);
        let block = &mut message.blocks[index];
        block.is_open = false;
        let index = as_index(index);
        event(envelope, &self.namespace, message.node.as_deref(), "content-block-finish", out, |data| {
            data.int("index", index);
            data.nested("content", |content| block.kind.write_whole(content, &block.text));
        });
        if let BlockKind::Text(_) | BlockKind::Reasoning(_) = block.kind {
            block.text = String::new();
        }
    }

    /// Ends the block of a call; the name of the tool and its input.
    pub(super) fn end_call(
        &mut self,
        envelope: &mut Envelope,
        call: &ToolCallId,
        out: &mut Frames,
    ) -> Option<(Box<str>, Json)> {
        let (at, index) = self.find(|kind| kind.is_call(call))?;
        self.end_block_at(envelope, at, Some(index), out);
        let Block { kind: BlockKind::Call { name, .. }, text, .. } = &self.open[at].blocks[index] else {
            return None;
        };
        let input = arguments(text).unwrap_or_else(|| Json::from(&Value::String(text.clone())));
        Some((name.clone(), input))
    }

    /// Ends the messages without an open block.
    pub(super) fn end_idle(&mut self, envelope: &mut Envelope, out: &mut Frames) {
        if self.open.is_empty() {
            return;
        }
        let open = std::mem::take(&mut self.open);
        for message in open {
            if message.blocks.iter().any(|block| block.is_open) {
                self.open.push(message);
                continue;
            }
            event(envelope, &self.namespace, message.node.as_deref(), "message-finish", out, |data| {
                if let Some(reason) = &message.finish_reason {
                    data.nested("metadata", |metadata| {
                        metadata.str("finish_reason", reason);
                    });
                }
            });
            self.ended_messages.insert(message.id);
        }
    }

    /// Sets the finish reason of a message, or of the last one; false if it is not open.
    pub(super) fn set_finish_reason(&mut self, id: Option<&MessageId>, reason: &str) -> bool {
        let is_meant = |open: &&mut OpenMessage| id.is_none_or(|id| open.id == *id);
        let found = self.open.iter_mut().rfind(is_meant);
        found.map(|open| open.finish_reason = Some(reason.into())).is_some()
    }

    /// Ends all blocks and messages.
    pub(super) fn end_all(&mut self, envelope: &mut Envelope, out: &mut Frames) {
        while let Some((at, block)) = self.find(|_| true) {
            self.end_block_at(envelope, at, Some(block), out);
        }
        self.end_idle(envelope, out);
    }
}

/// The number of a block in JSON.
fn as_index(index: usize) -> i64 {
    i64::try_from(index).unwrap_or(i64::MAX)
}

/// An event of the channel `messages`.
fn event(
    envelope: &mut Envelope,
    namespace: &Namespace,
    node: Option<&str>,
    name: &str,
    out: &mut Frames,
    fill: impl FnOnce(&mut ObjectWriter<'_>),
) {
    envelope.write(out, ProtocolMethod::Messages, namespace, &EventId::Numbered, node, |data| {
        data.str("event", name);
        fill(data);
    });
}
