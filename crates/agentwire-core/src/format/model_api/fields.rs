//! Access to optional members, which servers also send as `null`.

use std::borrow::Cow;

use serde_json::value::RawValue;

use crate::{
    json::{Fields, Path, ReadResult, text},
    tally::Tally,
};

/// Takes a string member; `None` if it is missing or `null`.
pub(in crate::format) fn string<'a>(
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
pub(in crate::format) fn list<'a>(
    fields: &mut Fields<'a, '_>,
    key: &str,
    each: impl FnMut(&'a RawValue, Path<'_>) -> ReadResult,
) -> ReadResult<bool> {
    if fields.peek(key).is_some_and(|raw| raw.get() == "null") {
        fields.take(key);
    }
    fields.array(key, each)
}

/// Takes a token count.
pub(in crate::format) fn count(fields: &mut Fields<'_, '_>, key: &str) -> ReadResult<Option<u64>> {
    if fields.peek(key).is_some_and(|raw| raw.get() == "null") {
        fields.take(key);
    }
    Ok(fields.integer(key, 0..=i64::MAX)?.and_then(|count| count.try_into().ok()))
}

/// Takes the position of an item; `None` if it is missing or `null`.
pub(in crate::format) fn position(fields: &mut Fields<'_, '_>, key: &str) -> ReadResult<Option<u32>> {
    if fields.peek(key).is_some_and(|raw| raw.get() == "null") {
        fields.take(key);
    }
    Ok(fields.integer(key, 0..=i64::from(u32::MAX))?.and_then(|number| number.try_into().ok()))
}
