//! Which call a piece of `tool_calls` belongs to.
//!
//! By the specification each piece names its call by `index`, and only the first has `id` and name. Servers
//! repeat the id or the name, leave the index or the id out, give every call the index 0, or send calls whole.

use crate::event::ToolCallId;

/// How much of the arguments is held for a call whose name has not come: servers name a call at once.
const MAX_HELD: usize = 1024 * 1024;

/// A call that has begun.
#[derive(Debug)]
pub(super) struct Call {
    index: Option<i64>,
    /// The server's id.
    native: Option<Box<str>>,
    /// The id under which it was passed on; absent while its name is.
    pub(super) id: Option<ToolCallId>,
    pub(super) name: Box<str>,
    /// Arguments that came before the name.
    pub(super) held: String,
    pub(super) ended: bool,
    extent: Extent,
}

/// One piece, as far as it says which call it is of.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Piece<'p> {
    pub(super) index: Option<i64>,
    pub(super) id: Option<&'p str>,
    pub(super) name: Option<&'p str>,
    /// It is a call by itself: an answer that was not streamed, or not the first of a list without indexes.
    pub(super) alone: bool,
}

impl Call {
    pub(super) fn new(piece: Piece<'_>) -> Self {
        Self {
            index: piece.index,
            native: piece.id.map(Into::into),
            id: None,
            name: piece.name.unwrap_or_default().into(),
            held: String::new(),
            ended: false,
            extent: Extent::default(),
        }
    }

    /// The server's id.
    pub(super) fn native(&self) -> Option<&str> {
        self.native.as_deref()
    }

    /// Takes in what the piece adds to what is known.
    pub(super) fn learn(&mut self, piece: Piece<'_>) {
        if self.native.is_none() {
            self.native = piece.id.map(Into::into);
        }
        if self.name.is_empty() {
            self.name = piece.name.unwrap_or_default().into();
        }
    }

    /// Follows the arguments.
    pub(super) fn grow(&mut self, arguments: &str) {
        self.extent.grow(arguments);
    }

    /// Keeps arguments until the name is there; whether there was room.
    pub(super) fn hold(&mut self, arguments: &str) -> bool {
        let fits = self.held.len() + arguments.len() <= MAX_HELD;
        if fits {
            self.held.push_str(arguments);
        }
        fits
    }

    /// Whether a piece that could be of this call is of another one.
    fn is_over_for(&self, piece: Piece<'_>) -> bool {
        let Some(name) = piece.name else {
            // Some servers make a new id for every piece, so an id alone begins no call before the last one is
            // complete.
            return piece.id.is_some() && piece.id != self.native() && self.extent.is_complete();
        };
        match (piece.id, self.native()) {
            (Some(new), Some(held)) => new != held,
            // A call that has all of its arguments does not get a name again.
            _ => !self.name.is_empty() && (*self.name != *name || self.extent.is_complete()),
        }
    }
}

/// The call that the piece is of, if it has begun.
pub(super) fn find(calls: &[Call], piece: Piece<'_>) -> Option<usize> {
    if piece.alone {
        return None;
    }
    let same_index = |call: &Call| piece.index.is_none() || call.index == piece.index;
    if let Some(id) = piece.id
        && let Some(at) = calls.iter().rposition(|call| call.native() == Some(id) && same_index(call))
    {
        return Some(at);
    }
    let at = calls.iter().rposition(same_index)?;
    (!calls[at].is_over_for(piece)).then_some(at)
}

/// How far a JSON object has come, without keeping it.
#[derive(Debug, Default)]
struct Extent {
    depth: u32,
    begun: bool,
    in_string: bool,
    escaped: bool,
}

impl Extent {
    fn grow(&mut self, text: &str) {
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
                        self.begun = true;
                        self.depth = self.depth.saturating_add(1);
                    }
                    b'}' | b']' => self.depth = self.depth.saturating_sub(1),
                    _ => {}
                }
            }
        }
    }

    fn is_complete(&self) -> bool {
        self.begun && self.depth == 0 && !self.in_string
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_is_complete_with_its_last_bracket() {
        let complete = |pieces: &[&str]| {
            let mut extent = Extent::default();
            pieces.iter().for_each(|piece| extent.grow(piece));
            extent.is_complete()
        };
        assert!(complete(&["{}"]));
        assert!(complete(&["{\"a\": \"}\\", "\"\"", "}"]));
        assert!(!complete(&[]));
        assert!(!complete(&["{\"a\": \"}\\\""]));
        assert!(!complete(&["{\"a\": [}"]));
    }
}
