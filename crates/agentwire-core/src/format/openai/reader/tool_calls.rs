//! Assignment of the pieces in `tool_calls` to tool calls.
//!
//! By the specification each piece carries the `index` of its call, and only the first piece has `id` and name. Real
//! servers repeat the id or the name, omit the index or the id, give every call the index 0, or send whole calls.

use crate::event::ToolCallId;

/// Maximum bytes of arguments that are buffered before the name of the call arrives; servers send the name first.
const MAX_BUFFERED: usize = 1024 * 1024;

/// A tool call in a response.
#[derive(Debug)]
pub(super) struct OpenToolCall {
    index: Option<i64>,
    /// The id from the server.
    native_id: Option<Box<str>>,
    /// The emitted id; absent until the name is known.
    pub(super) id: Option<ToolCallId>,
    pub(super) name: Box<str>,
    /// Arguments that arrived before the name.
    pub(super) buffered: String,
    pub(super) is_ended: bool,
    extent: JsonExtent,
}

/// The members of a piece that identify its call.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ToolCallPiece<'p> {
    pub(super) index: Option<i64>,
    pub(super) id: Option<&'p str>,
    pub(super) name: Option<&'p str>,
    /// True if the piece is a call of its own: part of a whole response, or not the first in a list without indexes.
    pub(super) is_whole: bool,
}

impl OpenToolCall {
    pub(super) fn new(piece: ToolCallPiece<'_>) -> Self {
        Self {
            index: piece.index,
            native_id: piece.id.map(Into::into),
            id: None,
            name: piece.name.unwrap_or_default().into(),
            buffered: String::new(),
            is_ended: false,
            extent: JsonExtent::default(),
        }
    }

    /// The id from the server.
    pub(super) fn native_id(&self) -> Option<&str> {
        self.native_id.as_deref()
    }

    /// Sets the id and the name if the piece has them and they were unknown.
    pub(super) fn complete_from(&mut self, piece: ToolCallPiece<'_>) {
        if self.native_id.is_none() {
            self.native_id = piece.id.map(Into::into);
        }
        if self.name.is_empty() {
            self.name = piece.name.unwrap_or_default().into();
        }
    }

    /// Tracks the extent of the arguments.
    pub(super) fn scan_arguments(&mut self, arguments: &str) {
        self.extent.scan(arguments);
    }

    /// Buffers arguments until the name is known; returns whether they fit.
    pub(super) fn buffer(&mut self, arguments: &str) -> bool {
        let fits = self.buffered.len() + arguments.len() <= MAX_BUFFERED;
        if fits {
            self.buffered.push_str(arguments);
        }
        fits
    }

    /// True if the piece starts another call, although its index matches this one.
    fn is_followed_by(&self, piece: ToolCallPiece<'_>) -> bool {
        let Some(name) = piece.name else {
            // Some servers generate a new id for every piece, so an id alone starts a new call only after the arguments
            // are complete.
            return piece.id.is_some() && piece.id != self.native_id() && self.extent.is_complete();
        };
        match (piece.id, self.native_id()) {
            (Some(new), Some(known)) => new != known,
            // The name is not repeated after complete arguments.
            _ => !self.name.is_empty() && (*self.name != *name || self.extent.is_complete()),
        }
    }
}

/// The index of the piece's call in `calls`; `None` if the piece starts a new call.
pub(super) fn find_call(calls: &[OpenToolCall], piece: ToolCallPiece<'_>) -> Option<usize> {
    if piece.is_whole {
        return None;
    }
    let same_index = |call: &OpenToolCall| piece.index.is_none() || call.index == piece.index;
    if let Some(id) = piece.id
        && let Some(at) = calls.iter().rposition(|call| call.native_id() == Some(id) && same_index(call))
    {
        return Some(at);
    }
    let at = calls.iter().rposition(same_index)?;
    (!calls[at].is_followed_by(piece)).then_some(at)
}

/// Detects the end of a JSON object in streamed text, without storing the text.
#[derive(Debug, Default)]
struct JsonExtent {
    depth: u32,
    is_started: bool,
    in_string: bool,
    escaped: bool,
}

impl JsonExtent {
    fn scan(&mut self, text: &str) {
        for byte in text.bytes() {
            if self.escaped {
                self.escaped = false;
            } else if self.in_string {
                match byte {
                    b'\\' => self.escaped = true,
                    b'"' => self.in_string = false,
                    _ => {}
                }
            } else {
                match byte {
                    b'"' => self.in_string = true,
                    b'{' | b'[' => {
                        self.is_started = true;
                        self.depth = self.depth.saturating_add(1);
                    }
                    b'}' | b']' => self.depth = self.depth.saturating_sub(1),
                    _ => {}
                }
            }
        }
    }

    fn is_complete(&self) -> bool {
        self.is_started && self.depth == 0 && !self.in_string
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn object_is_complete_after_its_last_bracket() {
        let complete = |pieces: &[&str]| {
            let mut extent = JsonExtent::default();
            pieces.iter().for_each(|piece| extent.scan(piece));
            extent.is_complete()
        };
        assert!(complete(&["{}"]));
        assert!(complete(&["{\"a\": \"}\\", "\"\"", "}"]));
        assert!(!complete(&[]));
        assert!(!complete(&["{\"a\": \"}\\\""]));
        assert!(!complete(&["{\"a\": [}"]));
    }
}
