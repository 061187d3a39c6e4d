//! Nesting limits: a value that is embedded in another document must stay within [`MAX_DEPTH`].

use crate::json::{Json, MAX_DEPTH, Object};

/// Whether `value` stays within [`MAX_DEPTH`] when nested `levels` deeper.
pub(crate) fn fits(value: &str, levels: usize) -> bool {
    let (mut depth, mut deepest) = (0_usize, 0);
    let bytes = value.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        match bytes[at] {
            b'{' | b'[' => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            b'}' | b']' => depth = depth.saturating_sub(1),
            b'"' => {
                at += 1;
                while at < bytes.len() && bytes[at] != b'"' {
                    at += if bytes[at] == b'\\' { 2 } else { 1 };
                }
            }
            _ => {}
        }
        at += 1;
    }
    deepest + levels <= MAX_DEPTH
}

/// An object of the entries that are not nested too deep to be members.
pub(crate) fn compose<'k>(entries: impl IntoIterator<Item = (&'k str, Json)>) -> Object {
    Object::from_entries(entries.into_iter().filter(|(_, value)| fits(value.get(), 1)))
}
