//! Nesting limits: a value that is embedded in another document must stay within [`MAX_DEPTH`](crate::json::MAX_DEPTH).

pub(crate) use crate::json::fits;
use crate::json::{Json, Object};

/// An object of the entries that are not nested too deep to be members.
pub(crate) fn compose<'k>(entries: impl IntoIterator<Item = (&'k str, Json)>) -> Object {
    Object::from_entries(entries.into_iter().filter(|(_, value)| fits(value.get(), 1)))
}
