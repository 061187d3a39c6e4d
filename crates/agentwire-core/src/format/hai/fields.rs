//! Lenient access to JSON members: HAI servers send `null` for absent members, and numbers or objects for strings.

use serde_json::value::RawValue;

use crate::{
    json::{Fields, Json, Object, Path, ReadResult, json, text},
    tally::Tally,
};

/// An optional string; `null` counts as absent.
pub(crate) fn opt_string(f: &mut Fields<'_, '_>, key: &str, tally: &mut Tally) -> ReadResult<Option<String>> {
    let path = f.path();
    let path = Path::Key(&path, key);
    f.take_unless_null(key).map(|raw| Ok(crate::json::text(raw, path, tally)?.into_owned())).transpose()
}

/// An optional id. The empty string counts as absent: clients send it for an id that they did not set.
pub(crate) fn filled_id(f: &mut Fields<'_, '_>, key: &str, tally: &mut Tally) -> ReadResult<Option<String>> {
    Ok(opt_string(f, key, tally)?.filter(|id| !id.is_empty()))
}

/// A required string.
pub(crate) fn need_string(f: &mut Fields<'_, '_>, key: &str, tally: &mut Tally) -> ReadResult<String> {
    opt_string(f, key, tally)?.ok_or_else(|| f.missing(key, "a string"))
}

/// An optional object; `null` counts as absent.
pub(crate) fn object(f: &mut Fields<'_, '_>, key: &str, tally: &mut Tally) -> ReadResult<Option<Object>> {
    match f.peek(key) {
        Some(raw) if raw.get() == "null" => {
            f.take(key);
            Ok(None)
        }
        _ => f.object(key, tally),
    }
}

/// Any JSON value; `null` counts as absent.
pub(crate) fn some_json(f: &mut Fields<'_, '_>, key: &str, tally: &mut Tally) -> ReadResult<Option<Json>> {
    let path = f.path();
    f.take_unless_null(key).map(|raw| json(raw, Path::Key(&path, key), tally)).transpose()
}

/// `blockId`; the empty string counts as absent, a number is accepted as an id.
pub(crate) fn block_id(f: &mut Fields<'_, '_>, tally: &mut Tally) -> ReadResult<Option<Box<str>>> {
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

/// The content of a string, or the JSON text of any other value.
pub(crate) fn text_or_json(raw: &RawValue, path: Path<'_>, tally: &mut Tally) -> ReadResult<Box<str>> {
    if raw.get().starts_with('"') {
        Ok(text(raw, path, tally)?.into())
    } else {
        Ok(json(raw, path, tally)?.get().into())
    }
}
