//! Protocol v2, which streams a message block by block.

use std::borrow::Cow;

use serde_json::value::RawValue;

use super::{
    super::{
        super::{raw_json, wire},
        Cx,
        content_blocks::{self, Piece, Reasoning},
        messages,
    },
    Lane, MAX_REASONING,
};

/// How much text is kept to know a message by; answers differ earlier.
const MAX_HEAD: usize = 256;

impl Lane {
    /// Protocol v2: a block begins or is complete.
    pub(in super::super) fn block(
        &mut self,
        raw: &RawValue,
        index: Option<&RawValue>,
        whole: bool,
        cx: &mut Cx<'_>,
    ) {
        let place: Box<str> = index.map_or("0", |index| index.get()).into();
        let kind =
            wire::Block::of(raw).and_then(|block| raw_json::filled(block.kind, cx.tally)).unwrap_or_default();
        if matches!(&*kind, "tool_call_chunk" | "tool_call" | "invalid_tool_call") {
            if whole {
                let at = self.calls.iter().position(|lane| lane.index.as_deref() == Some(&*place));
                if let Some(call) = messages::whole_call(raw, cx.tally) {
                    self.whole_call(at.unwrap_or(self.calls.len()), &call, cx);
                }
            } else if let Some(mut call) = wire::Call::of(raw) {
                call.index = index.or(call.index);
                self.call_piece(&call, cx);
            }
            return;
        }
        let streamed = self.streamed.contains(&place);
        for piece in content_blocks::block_pieces(raw, cx.tally) {
            match piece {
                Piece::Text { text, .. } if !(whole && streamed) => {
                    if !text.is_empty() {
                        self.stream(&place);
                    }
                    self.text(&text, cx);
                }
                Piece::Text { .. } => {}
                Piece::Reasoning(mut reasoning) => {
                    reasoning.block = Cow::Owned(place.to_string());
                    if whole && streamed {
                        reasoning.text = None;
                    } else if reasoning.text.as_ref().is_some_and(|(text, _)| !text.is_empty()) {
                        self.stream(&place);
                    }
                    self.think(reasoning, cx);
                }
                // Media and sources are complete at the end of their block.
                piece if whole => self.piece(piece, cx),
                _ => {}
            }
        }
    }

    /// Protocol v2: a block goes on.
    pub(in super::super) fn block_delta(
        &mut self,
        raw: &RawValue,
        index: Option<&RawValue>,
        cx: &mut Cx<'_>,
    ) {
        let Some(delta) = wire::Block::of(raw) else {
            return cx.tally.note("wrong type", "content-block-delta");
        };
        let place: Box<str> = index.map_or("0", |index| index.get()).into();
        match raw_json::filled(delta.kind, cx.tally).as_deref() {
            Some("text-delta") => {
                let text = delta.text.and_then(|raw| raw_json::string(raw, cx.tally)).unwrap_or_default();
                if self.head.len() < MAX_HEAD {
                    self.head.push_str(&text);
                }
                self.stream(&place);
                self.text(&text, cx);
            }
            Some("reasoning-delta") => {
                let text = delta
                    .reasoning
                    .or(delta.text)
                    .and_then(|raw| Some((raw_json::string(raw, cx.tally)?, raw)));
                self.stream(&place);
                self.think(Reasoning { block: Cow::Borrowed(&place), text, ..Reasoning::default() }, cx);
            }
            Some("tool-call-delta") => {
                let mut call = wire::Call::of(raw).unwrap_or_default();
                call.index = index;
                self.call_piece(&call, cx);
            }
            Some("block-delta") => {
                if let Some(fields) = delta.fields {
                    self.block(fields, index, false, cx);
                }
            }
            // Media come whole with the end of their block.
            Some("data-delta") => {}
            other => cx.tally.note("unknown delta", other.unwrap_or_default()),
        }
    }

    /// Protocol v2: whether a message that begins with `text` may be this one; `None` if nothing of it was shown.
    pub(in super::super) fn begins(&self, text: &str) -> Option<bool> {
        (!self.head.is_empty()).then(|| text.starts_with(&self.head))
    }

    /// Protocol v2: all blocks of a message of which a beginning may have been shown.
    pub(in super::super) fn blocks(&mut self, blocks: &[Box<RawValue>], text: &str, cx: &mut Cx<'_>) {
        for (index, raw) in blocks.iter().enumerate() {
            let index = serde_json::value::to_raw_value(&index).ok();
            let is_text =
                content_blocks::block_pieces(raw, cx.tally).iter().all(|it| matches!(it, Piece::Text { .. }));
            if !is_text || text.is_empty() {
                self.block(raw, index.as_deref(), true, cx);
            }
        }
        self.text_so_far(text, cx);
    }

    fn stream(&mut self, place: &str) {
        if !self.streamed.iter().any(|known| **known == *place) && self.streamed.len() < MAX_REASONING {
            self.streamed.push(place.into());
        }
    }
}
