//! One turn of a model: what was streamed of it, and what its closing event adds.
//!
//! With streaming, ADK sends a turn twice: in pieces, and then once more whole. The turn remembers what came
//! in pieces; [`Turn::agrees`] compares the whole with that, and [`Seen`] then says how much of each kind to
//! pass over. Ids are shared by the events of a turn in 2.x and differ in 1.x, so they decide nothing.

use super::partial_args::PartialArgsText;
use crate::{
    event::{Message, MessageBody, MessageId, SubagentId, ToolCall, ToolCallId},
    format::adk::wire::{AdkPart, AdkText, PartList},
};

/// How much text of one kind and turn is held for the comparison: four times what today's models say in one
/// turn (64 Ki tokens are about 256 KiB). Beyond it, the closing event is taken to agree.
const MAX_TEXT: usize = 1024 * 1024;
/// How many blocks, calls and signatures a turn may have: models change between thought, text and code some
/// dozen times.
const MAX_BLOCKS: usize = 4096;

/// A turn that has begun.
#[derive(Debug)]
pub(super) struct ModelTurn {
    /// The id of its first event; names its first text.
    pub(super) id: MessageId,
    /// Who speaks.
    pub(super) author: Box<str>,
    /// Who speaks, where subagents are shown: what a turn began as, it stays.
    pub(super) subagent: Option<SubagentId>,
    /// The model, where an event said it: in 1.x the closing event does not.
    pub(super) model: Option<Box<str>>,
    /// The answer so far, all blocks of it.
    pub(super) text: String,
    /// The thoughts so far, all blocks of them.
    pub(super) thought: String,
    /// The text is longer than what is held.
    pub(super) overlong: bool,
    /// The block that is open.
    pub(super) block: Option<OpenBlock>,
    /// How many blocks of answer and of thought there were, and how many media and code parts.
    pub(super) texts: u32,
    pub(super) thoughts: u32,
    pub(super) files: u32,
    pub(super) codes: u32,
    pub(super) code_results: u32,
    pub(super) calls: u32,
    /// Calls whose arguments come in pieces and whose end has not come.
    pub(super) streamed: Vec<StreamedCall>,
    /// Signatures that were passed on.
    pub(super) signatures: Vec<Box<str>>,
    /// Calls that stand for code.
    pub(super) codes_made: Vec<ToolCallId>,
    /// The last code that ran on the model's side, to find what its result belongs to.
    pub(super) code: Option<ToolCallId>,
    /// The messages that this turn has made.
    pub(super) messages: Vec<MessageId>,
}

/// A run of text of one kind: one message.
#[derive(Debug)]
pub(super) struct OpenBlock {
    pub(super) kind: BlockKind,
    pub(super) id: MessageId,
    /// Where its text begins in the turn's.
    pub(super) start: usize,
    /// What the message must carry back to the model.
    pub(super) signature: Option<Box<str>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BlockKind {
    Answer,
    Thought,
}

/// A call whose arguments come in pieces.
#[derive(Debug)]
pub(super) struct StreamedCall {
    /// The id under which it is shown.
    pub(super) id: ToolCallId,
    /// The id that the model gave it.
    pub(super) native: Box<str>,
    pub(super) name: Box<str>,
    pub(super) args: PartialArgsText,
}

/// How much of a closing event has been streamed already, and how far in it we are.
#[derive(Debug, Default)]
pub(super) struct StreamedPrefix {
    /// Bytes still to pass over.
    pub(super) text: usize,
    pub(super) thought: usize,
    /// Parts still to pass over.
    pub(super) files: u32,
    pub(super) codes: u32,
    pub(super) code_results: u32,
    /// Blocks met so far, to know which one a signature belongs to.
    pub(super) texts: u32,
    pub(super) thoughts: u32,
    last: Option<BlockKind>,
}

impl ModelTurn {
    pub(super) fn new(id: MessageId, author: &str) -> Self {
        Self {
            id,
            author: author.into(),
            subagent: None,
            model: None,
            text: String::new(),
            thought: String::new(),
            overlong: false,
            block: None,
            texts: 0,
            thoughts: 0,
            files: 0,
            codes: 0,
            code_results: 0,
            calls: 0,
            streamed: Vec::new(),
            signatures: Vec::new(),
            codes_made: Vec::new(),
            code: None,
            messages: Vec::new(),
        }
    }

    /// Whether it has more parts than a turn has; what streams for ever would fill the memory.
    pub(super) fn is_overgrown(&self) -> bool {
        self.messages.len() + self.codes_made.len() + self.streamed.len() + self.signatures.len() > MAX_BLOCKS
    }

    /// Whether a signature was passed on.
    pub(super) fn has_signature(&self, signature: &str) -> bool {
        self.signatures.iter().any(|known| **known == *signature)
    }

    /// Notes that the message with the turn's own id is this turn's.
    pub(super) fn own(&mut self) {
        if !self.messages.contains(&self.id) {
            self.messages.push(self.id.clone());
        }
    }

    /// The id of a block.
    pub(super) fn block_id(&self, kind: BlockKind, index: u32) -> MessageId {
        match (kind, index) {
            (BlockKind::Answer, 0) => self.id.clone(),
            (BlockKind::Answer, index) => self.part_id("text", index),
            (BlockKind::Thought, index) => self.part_id("thought", index),
        }
    }

    /// The id of something else that this turn made.
    pub(super) fn part_id<I: From<String>>(&self, what: &str, index: u32) -> I {
        part_id(&self.id, what, index)
    }

    /// Remembers streamed text.
    pub(super) fn remember(&mut self, kind: BlockKind, delta: &str) {
        let text = match kind {
            BlockKind::Answer => &mut self.text,
            BlockKind::Thought => &mut self.thought,
        };
        if text.len() + delta.len() > MAX_TEXT {
            self.overlong = true;
        } else {
            text.push_str(delta);
        }
    }

    /// What has been said of it and is not closed yet, as a client holds it. `None` if not all of it is known.
    pub(super) fn unfinished(&self) -> Option<Vec<Message>> {
        if self.overlong {
            return None;
        }
        let mut messages = Vec::new();
        if let Some(block) = &self.block {
            let mut message = match block.kind {
                BlockKind::Answer => Message::assistant(block.id.clone(), self.text.get(block.start..)?),
                BlockKind::Thought => {
                    let content = self.thought.get(block.start..)?.into();
                    Message::new(block.id.clone(), MessageBody::Reasoning { content })
                }
            };
            if block.kind == BlockKind::Answer && !self.author.is_empty() {
                message.name = Some(self.author.clone());
            }
            message.encrypted.clone_from(&block.signature);
            messages.push(message);
        }
        if !self.streamed.is_empty() {
            let calls = self.streamed.iter();
            let calls = calls.map(|call| ToolCall::new(call.id.clone(), call.name.clone(), call.args.sent()));
            let body = MessageBody::Assistant { content: None, tool_calls: Some(calls.collect()) };
            messages.push(Message::new(self.id.clone(), body));
        }
        for message in &mut messages {
            message.subagent.clone_from(&self.subagent);
        }
        Some(messages)
    }

    /// Whether the whole turn begins with what was streamed of it.
    pub(super) fn agrees(&self, parts: &PartList<'_>) -> bool {
        self.overlong || (continues(&self.text, texts(parts, false)) && self.thoughts_agree(parts))
    }

    /// Whether the thoughts of the whole turn begin with those that were streamed.
    pub(super) fn thoughts_agree(&self, parts: &PartList<'_>) -> bool {
        continues(&self.thought, texts(parts, true))
    }

    /// What to pass over in the whole turn.
    pub(super) fn seen(&self) -> StreamedPrefix {
        let all = if self.overlong { usize::MAX } else { 0 };
        StreamedPrefix {
            text: self.text.len().max(all),
            thought: self.thought.len().max(all),
            files: self.files,
            codes: self.codes,
            code_results: self.code_results,
            ..StreamedPrefix::default()
        }
    }
}

/// The id of something that an event made.
pub(super) fn part_id<I: From<String>>(id: &MessageId, what: &str, index: u32) -> I {
    I::from(match index {
        0 => format!("{id}:{what}"),
        index => format!("{id}:{what}:{index}"),
    })
}

fn texts<'p>(parts: &'p PartList<'_>, thought: bool) -> impl Iterator<Item = &'p str> {
    let wanted = parts.iter().filter(move |part| (part.thought == Some(true)) == thought);
    wanted.filter_map(|part| part.text.as_ref()).map(AdkText::as_str)
}

/// Whether the pieces, one after the other, begin with `streamed`. No text at all makes no statement: models
/// behind other adapters leave what was streamed out of their closing event.
fn continues<'p>(streamed: &str, pieces: impl Iterator<Item = &'p str>) -> bool {
    let (mut rest, mut silent) = (streamed, true);
    for piece in pieces {
        silent &= piece.is_empty();
        let length = piece.len().min(rest.len());
        if rest.as_bytes()[..length] != piece.as_bytes()[..length] {
            return false;
        }
        rest = rest.get(length..).unwrap_or_default();
    }
    rest.is_empty() || silent
}

impl StreamedPrefix {
    /// Takes off what was streamed of `text`; what is left is new.
    pub(super) fn rest<'t>(&mut self, kind: BlockKind, text: &'t str) -> &'t str {
        let skip = match kind {
            BlockKind::Answer => &mut self.text,
            BlockKind::Thought => &mut self.thought,
        };
        let length = text.len().min(*skip);
        if *skip != usize::MAX {
            *skip -= length;
        }
        // Agreement was checked byte by byte, so the cut is between characters.
        text.get(length..).unwrap_or_default()
    }

    /// Notes a text part; says which block of its kind it belongs to.
    pub(super) fn block(&mut self, kind: BlockKind) -> u32 {
        let count = match kind {
            BlockKind::Answer => &mut self.texts,
            BlockKind::Thought => &mut self.thoughts,
        };
        if self.last != Some(kind) {
            *count += 1;
            self.last = Some(kind);
        }
        *count - 1
    }

    /// Notes a part that is not text.
    pub(super) fn other(&mut self) {
        self.last = None;
    }
}

/// Whether the part says something that a model turn consists of.
pub(super) fn speaks(part: &AdkPart<'_>) -> bool {
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
