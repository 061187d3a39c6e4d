//! Messages of protocol v2, which are streamed block by block.

use std::borrow::Cow;

use serde_json::value::RawValue;

use super::{MAX_REASONING, ModelStream};
use crate::format::langgraph::{
    raw_json,
    reader::{
        ReaderContext,
        content_blocks::{self, ContentPiece, ReasoningPiece},
        messages,
    },
    wire::{NativeBlock, NativeCall},
};

/// Bound on the text prefix that identifies a mixed message; messages differ earlier.
const MAX_PREFIX: usize = 256;

impl ModelStream {
    /// Reads a block at its start, or at its end if it `is_complete`.
    pub(in super::super) fn read_block(
        &mut self,
        raw: &RawValue,
        index: Option<&RawValue>,
        is_complete: bool,
        cx: &mut ReaderContext<'_>,
    ) {
        let key = block_key(index);
        let kind = NativeBlock::of(raw)
            .and_then(|block| raw_json::non_empty(block.kind, cx.tally))
            .unwrap_or_default();
        if matches!(&*kind, "tool_call_chunk" | "tool_call" | "invalid_tool_call") {
            if is_complete {
                let at = self.calls.iter().position(|call| call.index.as_deref() == Some(key));
                if let Some(call) = messages::complete_call(raw, cx.tally) {
                    self.read_complete_call(at.unwrap_or(self.calls.len()), &call, cx);
                }
            } else if let Some(mut call) = NativeCall::of(raw) {
                call.index = index.or(call.index);
                self.read_call_chunk(&call, cx);
            }
            return;
        }
        let was_streamed = self.received.streamed_blocks.iter().any(|streamed| **streamed == *key);
        for piece in content_blocks::block_pieces(raw, cx.tally) {
            match piece {
                ContentPiece::Text { text, .. } if !(is_complete && was_streamed) => {
                    if !text.is_empty() {
                        self.mark_streamed(key);
                    }
                    self.send_text(&text, cx);
                }
                ContentPiece::Text { .. } => {}
                ContentPiece::Reasoning(mut reasoning) => {
                    reasoning.block = Cow::Borrowed(key);
                    if is_complete && was_streamed {
                        reasoning.text = None;
                    } else if reasoning.text.as_ref().is_some_and(|(text, _)| !text.is_empty()) {
                        self.mark_streamed(key);
                    }
                    self.send_reasoning(reasoning, cx);
                }
                // Media and sources are complete at the end of their block.
                piece if is_complete => self.send_piece(piece, cx),
                _ => {}
            }
        }
    }

    /// Reads a delta of a block.
    pub(in super::super) fn read_block_delta(
        &mut self,
        raw: &RawValue,
        index: Option<&RawValue>,
        cx: &mut ReaderContext<'_>,
    ) {
        let Some(delta) = NativeBlock::of(raw) else {
            return cx.tally.note("wrong type", "content-block-delta");
        };
        let key = block_key(index);
        match raw_json::non_empty(delta.kind, cx.tally).as_deref() {
            Some("text-delta") => {
                let text = delta.text.and_then(|raw| raw_json::string(raw, cx.tally)).unwrap_or_default();
                if self.received.text_prefix.len() < MAX_PREFIX {
                    self.received.text_prefix.push_str(&text);
                }
                self.mark_streamed(key);
                self.send_text(&text, cx);
            }
            Some("reasoning-delta") => {
                let text = delta.reasoning.or(delta.text);
                let text = text.and_then(|raw| Some((raw_json::string(raw, cx.tally)?, raw)));
                self.mark_streamed(key);
                let piece = ReasoningPiece { block: Cow::Borrowed(key), text, ..ReasoningPiece::default() };
                self.send_reasoning(piece, cx);
            }
            Some("tool-call-delta") => {
                let mut call = NativeCall::of(raw).unwrap_or_default();
                call.index = index;
                self.read_call_chunk(&call, cx);
            }
            Some("block-delta") => {
                if let Some(fields) = delta.fields {
                    self.read_block(fields, index, false, cx);
                }
            }
            // Media arrive complete at the end of their block.
            Some("data-delta") => {}
            other => cx.tally.note("unknown delta", other.unwrap_or_default()),
        }
    }

    /// Whether `text` starts with the text that was shown; `None` if nothing was shown.
    pub(in super::super) fn matches_prefix(&self, text: &str) -> Option<bool> {
        let prefix = &*self.received.text_prefix;
        (!prefix.is_empty()).then(|| text.starts_with(prefix))
    }

    /// Reads all blocks of a message at once; a prefix of its `text` may have been shown.
    pub(in super::super) fn read_blocks(
        &mut self,
        blocks: &[Box<RawValue>],
        text: &str,
        cx: &mut ReaderContext<'_>,
    ) {
        for (index, raw) in blocks.iter().enumerate() {
            let index = serde_json::value::to_raw_value(&index).ok();
            let pieces = content_blocks::block_pieces(raw, cx.tally);
            let is_text = pieces.iter().all(|piece| matches!(piece, ContentPiece::Text { .. }));
            if !is_text || text.is_empty() {
                self.read_block(raw, index.as_deref(), true, cx);
            }
        }
        self.send_accumulated_text(text, cx);
    }

    fn mark_streamed(&mut self, key: &str) {
        let streamed = &mut self.received.streamed_blocks;
        if !streamed.iter().any(|known| **known == *key) && streamed.len() < MAX_REASONING {
            streamed.push(key.into());
        }
    }
}

/// The key of a block within its message.
fn block_key(index: Option<&RawValue>) -> &str {
    index.map_or("0", RawValue::get)
}
