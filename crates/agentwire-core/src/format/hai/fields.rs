//! Lenient access to JSON members.

use serde_json::value::RawValue;

use crate::{
    json::{Fields, Json, Object, Path, ReadError, json, text},
    tally::Tally,
};

/// A string; `null` is the same as nothing.
pub(crate) fn id(f: &mut Fields<'_, '_>, key: &str, tally: &mut Tally) -> Result<Option<String>, ReadError> {
    let path = f.path();
    let path = Path::Key(&path, key);
    f.take_unless_null(key).map(|raw| Ok(crate::json::text(raw, path, tally)?.into_owned())).transpose()
}

/// A string that must be there.
pub(crate) fn need(f: &mut Fields<'_, '_>, key: &str, tally: &mut Tally) -> Result<String, ReadError> {
    id(f, key, tally)?.ok_or_else(|| f.missing(key, "a string"))
}

/// An object; `null` is the same as nothing.
pub(crate) fn object(
    f: &mut Fields<'_, '_>,
    key: &str,
    tally: &mut Tally,
) -> Result<Option<Object>, ReadError> {
    match f.peek(key) {
        Some(raw) if raw.get() == "null" => {
            f.take(key);
            Ok(None)
        }
        _ => f.object(key, tally),
    }
}

/// Any JSON; `null` is the same as nothing.
pub(crate) fn some_json(
    f: &mut Fields<'_, '_>,
    key: &str,
    tally: &mut Tally,
) -> Result<Option<Json>, ReadError> {
    let path = f.path();
    f.take_unless_null(key).map(|raw| json(raw, Path::Key(&path, key), tally)).transpose()
}

/// `blockId`; the empty string is the same as nothing, and a number is a name too.
pub(crate) fn block_id(f: &mut Fields<'_, '_>, tally: &mut Tally) -> Result<Option<Box<str>>, ReadError> {
    let path = f.path();
    let path = Path::Key(&path, "blockId");
    match f.take_unless_null("blockId") {
        None => Ok(None),
        Some(raw) if raw.get().starts_with(|first: char| first == '-' || first.is_ascii_digit()) => {
            tally.note("old shape", "blockId as a number");
            Ok(Some(raw.get().into()))
        }
        Some(raw) => Ok(Some(text(raw, path, tally)?).filter(|id| !id.is_empty()).map(Into::into)),
    }
}

/// A string as it is, anything else as JSON text.
pub(crate) fn text_or_json(raw: &RawValue, path: Path<'_>, tally: &mut Tally) -> Result<Box<str>, ReadError> {
    if raw.get().starts_with('"') {
        Ok(text(raw, path, tally)?.into())
    } else {
        Ok(json(raw, path, tally)?.get().into())
    }
}
