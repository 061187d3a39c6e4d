//! Access to optional members, which servers also send as `null`.

use std::borrow::Cow;

use serde_json::value::RawValue;

use crate::{
    json::{Fields, Path, ReadResult, text},
    tally::Tally,
};

/// Takes a string member; `None` if it is missing or `null`.
pub(super) fn string<'a>(
    fields: &mut Fields<'a, '_>,
    key: &str,
    tally: &mut Tally,
) -> ReadResult<Option<Cow<'a, str>>> {
    let path = fields.path();
    match fields.take_unless_null(key) {
        Some(raw) => text(raw, Path::Key(&path, key), tally).map(Some),
        None => Ok(None),
    }
}

/// Visits the elements of an array member; returns whether the member is present and not `null`.
pub(super) fn list<'a>(
    fields: &mut Fields<'a, '_>,
    key: &str,
    each: impl FnMut(&'a RawValue, Path<'_>) -> ReadResult,
) -> ReadResult<bool> {
    if fields.peek(key).is_some_and(|raw| raw.get() == "null") {
        fields.take(key);
    }
    fields.array(key, each)
}
