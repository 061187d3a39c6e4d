//! One turn of a model: the streamed part of it, and the comparison with its closing event.
//!
//! With streaming, ADK sends a turn twice: in partial events, and then as a whole in a closing event. The turn keeps the
//! streamed text; [`ModelTurn::agrees`] compares the closing event with it, and [`StreamedPrefix`] then tells how much of
//! the closing event to skip. The events of a turn share one id in 2.x and have different ids in 1.x, so ids play no role.

use super::partial_args::PartialArgsText;
use crate::{
    event::{Message, MessageBody, MessageId, SubagentId, ToolCall, ToolCallId},
    format::{
        adk::wire::{AdkPart, AdkText, PartList},
        derived_ids::part_id,
    },
};

/// Maximum bytes of one kind of text per turn that are held for the comparison: four times the longest output of
/// current models (64 Ki tokens are about 256 KiB). A longer text is assumed to agree.
const MAX_TEXT: usize = 1024 * 1024;
/// Maximum number of blocks, calls and signatures per turn; real turns switch between thought, text and code a few
/// dozen times.
const MAX_BLOCKS: usize = 4096;

/// An open turn.
#[derive(Debug)]
pub(super) struct ModelTurn {
    /// The id of the first event; also the id of the first text message.
    pub(super) id: MessageId,
    pub(super) author: Box<str>,
    /// The subagent at the start of the turn, with `subagents=on`.
    pub(super) subagent: Option<SubagentId>,
    /// The model, if an event named it: in 1.x the closing event does not.
    pub(super) model: Option<Box<str>>,
    pub(super) streamed: StreamedText,
    pub(super) counts: PartCounts,
    /// Calls with streamed arguments that have not ended.
    pub(super) streamed_calls: Vec<StreamedCall>,
    pub(super) emitted: EmittedItems,
    /// The last executed code without a result so far.
    pub(super) pending_code: Option<ToolCallId>,
}

/// The text of a turn so far.
#[derive(Debug, Default)]
pub(super) struct StreamedText {
    /// The text of all text blocks.
    pub(super) text: String,
    /// The text of all thought blocks.
    pub(super) thought: String,
    /// True if the text exceeded [`MAX_TEXT`] and is not held completely.
    pub(super) is_overlong: bool,
    pub(super) block: Option<OpenBlock>,
}

/// Numbers of blocks and parts in a turn, from which ids derive.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct PartCounts {
    pub(super) texts: u32,
    pub(super) thoughts: u32,
    pub(super) files: u32,
    pub(super) codes: u32,
    pub(super) code_results: u32,
    pub(super) calls: u32,
}

/// Items of a turn that were emitted, needed to correct the turn.
#[derive(Debug, Default)]
pub(super) struct EmittedItems {
    pub(super) messages: Vec<MessageId>,
    /// Calls that represent executed code.
    pub(super) code_calls: Vec<ToolCallId>,
    pub(super) signatures: Vec<Box<str>>,
}

/// Consecutive text of one kind: one message.
#[derive(Debug)]
pub(super) struct OpenBlock {
    pub(super) kind: BlockKind,
    pub(super) id: MessageId,
    /// The offset of the block in the turn's text.
    pub(super) start: usize,
    /// The signature of the message, which must be sent back to the model.
    pub(super) signature: Option<Box<str>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BlockKind {
    Text,
    Thought,
}

/// A call with streamed arguments.
#[derive(Debug)]
pub(super) struct StreamedCall {
    /// The id in emitted events.
    pub(super) id: ToolCallId,
    /// The id from the model.
    pub(super) native_id: Box<str>,
    pub(super) name: Box<str>,
    pub(super) args: PartialArgsText,
}

/// The part of a closing event that was streamed already, and the position in that event.
#[derive(Debug, Default)]
pub(super) struct StreamedPrefix {
    /// Bytes still to skip.
    text: usize,
    thought: usize,
    /// Parts still to skip.
    pub(super) files: u32,
    pub(super) codes: u32,
    pub(super) code_results: u32,
    /// Number of blocks so far, to find the block of a signature.
    texts: u32,
    thoughts: u32,
    last: Option<BlockKind>,
}

impl ModelTurn {
    pub(super) fn new(id: MessageId, author: &str) -> Self {
        Self {
            id,
            author: author.into(),
            subagent: None,
            model: None,
            streamed: StreamedText::default(),
            counts: PartCounts::default(),
            streamed_calls: Vec::new(),
            emitted: EmittedItems::default(),
            pending_code: None,
        }
    }

    /// True if the turn has more than [`MAX_BLOCKS`] items; an endless turn would exhaust the memory.
    pub(super) fn is_overgrown(&self) -> bool {
        let EmittedItems { messages, code_calls, signatures } = &self.emitted;
        messages.len() + code_calls.len() + self.streamed_calls.len() + signatures.len() > MAX_BLOCKS
    }

    /// True if a signature was emitted.
    pub(super) fn has_signature(&self, signature: &str) -> bool {
        self.emitted.signatures.iter().any(|known| **known == *signature)
    }

    /// Notes that the message with the id of the turn was emitted.
    pub(super) fn note_own_message(&mut self) {
        if !self.emitted.messages.contains(&self.id) {
            self.emitted.messages.push(self.id.clone());
        }
    }

    /// The id of a block.
    pub(super) fn block_id(&self, kind: BlockKind, index: u32) -> MessageId {
        match (kind, index) {
            (BlockKind::Text, 0) => self.id.clone(),
            (BlockKind::Text, index) => self.part_id("text", index),
            (BlockKind::Thought, index) => self.part_id("thought", index),
        }
    }

    /// The id of another item of this turn.
    pub(super) fn part_id<I: From<String>>(&self, role: &str, index: u32) -> I {
        part_id(&self.id, role, index)
    }

    /// Appends streamed text.
    pub(super) fn append_text(&mut self, kind: BlockKind, delta: &str) {
        let text = match kind {
            BlockKind::Text => &mut self.streamed.text,
            BlockKind::Thought => &mut self.streamed.thought,
        };
        if text.len() + delta.len() > MAX_TEXT {
            self.streamed.is_overlong = true;
        } else {
            text.push_str(delta);
        }
    }

    /// The messages of the turn that are still open, as a client holds them. `None` if the text is not held completely.
    pub(super) fn unfinished(&self) -> Option<Vec<Message>> {
        if self.streamed.is_overlong {
            return None;
        }
        let mut messages = Vec::new();
        if let Some(block) = &self.streamed.block {
            let mut message = match block.kind {
                BlockKind::Text => {
                    Message::assistant(block.id.clone(), self.streamed.text.get(block.start..)?)
                }
                BlockKind::Thought => {
                    let content = self.streamed.thought.get(block.start..)?.into();
                    Message::new(block.id.clone(), MessageBody::Reasoning { content })
                }
            };
            if block.kind == BlockKind::Text && !self.author.is_empty() {
                message.name = Some(self.author.clone());
            }
            message.encrypted.clone_from(&block.signature);
            messages.push(message);
        }
        if !self.streamed_calls.is_empty() {
            let calls = self.streamed_calls.iter();
            let calls = calls.map(|call| ToolCall::new(call.id.clone(), call.name.clone(), call.args.sent()));
            let body = MessageBody::Assistant { content: None, tool_calls: Some(calls.collect()) };
            messages.push(Message::new(self.id.clone(), body));
        }
        for message in &mut messages {
            message.subagent.clone_from(&self.subagent);
        }
        Some(messages)
    }

    /// True if the whole turn starts with the streamed text.
    pub(super) fn agrees(&self, parts: &PartList<'_>) -> bool {
        self.streamed.is_overlong
            || (continues(&self.streamed.text, texts(parts, false)) && self.thoughts_agree(parts))
    }

    /// True if the thoughts of the whole turn start with the streamed thoughts.
    pub(super) fn thoughts_agree(&self, parts: &PartList<'_>) -> bool {
        continues(&self.streamed.thought, texts(parts, true))
    }

    /// The prefix of the whole turn that was streamed.
    pub(super) fn streamed_prefix(&self) -> StreamedPrefix {
        let all = if self.streamed.is_overlong { usize::MAX } else { 0 };
        StreamedPrefix {
            text: self.streamed.text.len().max(all),
            thought: self.streamed.thought.len().max(all),
            files: self.counts.files,
            codes: self.counts.codes,
            code_results: self.counts.code_results,
            ..StreamedPrefix::default()
        }
    }
}

fn texts<'p>(parts: &'p PartList<'_>, is_thought: bool) -> impl Iterator<Item = &'p str> {
    let wanted = parts.iter().filter(move |part| (part.thought == Some(true)) == is_thought);
    wanted.filter_map(|part| part.text.as_ref()).map(AdkText::as_str)
}

/// True if the concatenated pieces start with `streamed`. Pieces without any text agree with everything: some model
/// adapters leave the streamed text out of the closing event.
fn continues<'p>(streamed: &str, pieces: impl Iterator<Item = &'p str>) -> bool {
    let (mut rest, mut is_empty) = (streamed, true);
    for piece in pieces {
        is_empty &= piece.is_empty();
        let length = piece.len().min(rest.len());
        if rest.as_bytes()[..length] != piece.as_bytes()[..length] {
            return false;
        }
        rest = rest.get(length..).unwrap_or_default();
    }
    rest.is_empty() || is_empty
}

impl StreamedPrefix {
    /// Removes the streamed prefix from `text` and returns the new text.
    pub(super) fn strip<'t>(&mut self, kind: BlockKind, text: &'t str) -> &'t str {
        let skip = match kind {
            BlockKind::Text => &mut self.text,
            BlockKind::Thought => &mut self.thought,
        };
        let length = text.len().min(*skip);
        if *skip != usize::MAX {
            *skip -= length;
        }
        // The comparison was byte by byte, so the offset is a character boundary.
        text.get(length..).unwrap_or_default()
    }

    /// Counts a text part and returns the index of its block among the blocks of that kind.
    pub(super) fn block_index(&mut self, kind: BlockKind) -> u32 {
        let count = match kind {
            BlockKind::Text => &mut self.texts,
            BlockKind::Thought => &mut self.thoughts,
        };
        if self.last != Some(kind) {
            *count += 1;
            self.last = Some(kind);
        }
        *count - 1
    }

    /// Ends the current block: the next part is not text.
    pub(super) fn end_block(&mut self) {
        self.last = None;
    }
}

/// True if the part belongs to a model turn.
pub(super) fn is_model_output(part: &AdkPart<'_>) -> bool {
    part.text.as_ref().is_some_and(|text| !text.as_str().is_empty())
        || part.signature.is_some()
        || part.call.is_some()
        || part.inline.is_some()
        || part.file.is_some()
        || part.code.is_some()
        || part.code_result.is_some()
}

#[cfg(test)]
mod tests {
    use super::continues;

    #[test]
    fn compares_across_pieces() {
        let check = |streamed, pieces: &[&str]| continues(streamed, pieces.iter().copied());
        assert!(check("", &[]));
        assert!(check("", &["a"]));
        assert!(check("ab", &["ab"]));
        assert!(check("ab", &["a", "", "bc"]));
        assert!(check("ab", &[]));
        assert!(check("ab", &["", ""]));
        assert!(!check("ab", &["a"]));
        assert!(!check("ab", &["b"]));
        assert!(!check("é", &["è"]));
    }
}
