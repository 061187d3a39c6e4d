//! Failures of a response as servers report them.
//!
//! OpenAI sends `{"error": {message, type, param, code}}`, Anthropic `{"error": {type, message}}`; other servers send a string in `error`, the members without
//! the wrapping object, or a number as the code.

use serde_json::value::RawValue;

use crate::{
    codes,
    json::{Fields, Path, ReadResult, text},
    tally::Tally,
};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::format) struct ModelFailure {
    pub(in crate::format) code: Box<str>,
    pub(in crate::format) message: Box<str>,
}

impl ModelFailure {
    pub(in crate::format) fn new(code: &str, message: &str) -> Self {
        let message = if message.is_empty() { code } else { message };
        Self { code: code.into(), message: message.into() }
    }

    /// A failure without a code.
    pub(in crate::format) fn without_code(message: &str) -> Self {
        Self::new(codes::UPSTREAM_ERROR, message)
    }

    /// The value of `error`: an object or a string.
    pub(in crate::format) fn of_error(raw: &RawValue, path: Path<'_>, tally: &mut Tally) -> ReadResult<Self> {
        match raw.get().as_bytes().first() {
            Some(b'{') => Self::of_members(&mut Fields::of(raw, path)?, tally),
            Some(b'"') => Ok(Self::without_code(&text(raw, path, tally)?)),
            _ => Ok(Self::without_code(raw.get())),
        }
    }

    /// The members of an error object. The code is the most specific name: `code` if it is a string, then `type`,
    /// then a numeric `code`.
    pub(in crate::format) fn of_members(fields: &mut Fields<'_, '_>, tally: &mut Tally) -> ReadResult<Self> {
        let path = fields.path();
        let mut member = |key: &str| -> ReadResult<(String, bool)> {
            let Some(raw) = fields.take_unless_null(key) else { return Ok((String::new(), false)) };
            Ok(match raw.get().as_bytes().first() {
                Some(b'"') => (text(raw, Path::Key(&path, key), tally)?.into_owned(), true),
                _ => (raw.get().to_owned(), false),
            })
        };
        let (message, _) = member("message")?;
        let (code, is_string) = member("code")?;
        let (kind, _) = member("type")?;
        let name = match (&*code, &*kind) {
            (code, _) if is_string && !code.is_empty() => code,
            (_, kind) if !kind.is_empty() => kind,
            ("", _) => codes::UPSTREAM_ERROR,
            (code, _) => code,
        };
        Ok(Self::new(name, &message))
    }

    /// The value of `detail`, the error member of FastAPI, which many servers use.
    pub(in crate::format) fn of_detail(
        raw: &RawValue,
        path: Path<'_>,
        tally: &mut Tally,
    ) -> ReadResult<Self> {
        match raw.get().as_bytes().first() {
            Some(b'"') => Ok(Self::new(codes::UPSTREAM_REFUSED, &text(raw, path, tally)?)),
            _ => Ok(Self::new(codes::UPSTREAM_REFUSED, raw.get())),
        }
    }
}
