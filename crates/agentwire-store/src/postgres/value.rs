//! Parameters and columns.

use std::{borrow::Cow, error::Error};

use bytes::BytesMut;
use tokio_postgres::{
    Row,
    types::{FromSql, IsNull, ToSql, Type, to_sql_checked},
};

use crate::{clock::Time, error::StoreError, model::Text};

/// A parameter of a statement with its type, so that no statement needs a round trip to learn the types.
#[derive(Debug)]
pub(super) enum Value<'a> {
    Int(Option<i64>),
    Bool(bool),
    Text(Option<Cow<'a, str>>),
    Bytes(&'a [u8]),
    Ints(&'a [i64]),
    Numbers(&'a [i32]),
    Bodies(&'a [&'a [u8]]),
    Texts(Vec<Cow<'a, str>>),
    MaybeInts(Vec<Option<i64>>),
    Day(&'a [Day]),
}

impl Value<'_> {
    pub(super) fn kind(&self) -> Type {
        match self {
            Self::Int(_) => Type::INT8,
            Self::Bool(_) => Type::BOOL,
            Self::Text(_) => Type::TEXT,
            Self::Bytes(_) => Type::BYTEA,
            Self::Ints(_) => Type::INT8_ARRAY,
            Self::Numbers(_) => Type::INT4_ARRAY,
            Self::Bodies(_) => Type::BYTEA_ARRAY,
            Self::Texts(_) => Type::TEXT_ARRAY,
            Self::MaybeInts(_) => Type::INT8_ARRAY,
            Self::Day(_) => Type::DATE_ARRAY,
        }
    }
}

impl ToSql for Value<'_> {
    fn to_sql(&self, kind: &Type, out: &mut BytesMut) -> Result<IsNull, Box<dyn Error + Sync + Send>> {
        match self {
            Self::Int(value) => value.to_sql(kind, out),
            Self::Bool(value) => value.to_sql(kind, out),
            Self::Text(value) => value.as_deref().to_sql(kind, out),
            Self::Bytes(value) => value.to_sql(kind, out),
            Self::Ints(value) => value.to_sql(kind, out),
            Self::Numbers(value) => value.to_sql(kind, out),
            Self::Bodies(value) => value.to_sql(kind, out),
            Self::Texts(value) => value.to_sql(kind, out),
            Self::MaybeInts(value) => value.to_sql(kind, out),
            Self::Day(value) => value.to_sql(kind, out),
        }
    }

    fn accepts(_: &Type) -> bool {
        true
    }

    to_sql_checked!();
}

/// A date as PostgreSQL sends it: days since 2000-01-01.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Day(pub(super) i32);

impl ToSql for Day {
    fn to_sql(&self, _: &Type, out: &mut BytesMut) -> Result<IsNull, Box<dyn Error + Sync + Send>> {
        self.0.to_sql(&Type::INT4, out)
    }

    fn accepts(kind: &Type) -> bool {
        *kind == Type::DATE
    }

    to_sql_checked!();
}

impl<'a> FromSql<'a> for Day {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Self, Box<dyn Error + Sync + Send>> {
        i32::from_sql(&Type::INT4, raw).map(Self)
    }

    fn accepts(kind: &Type) -> bool {
        *kind == Type::DATE
    }
}

/// A number as an SQL integer, which is signed. Larger numbers never come from this store; saturating puts them behind
/// every stored one.
pub(super) fn int<'a>(number: u64) -> Value<'a> {
    Value::Int(Some(i64::try_from(number).unwrap_or(i64::MAX)))
}

pub(super) fn id<'a>(number: i64) -> Value<'a> {
    Value::Int(Some(number))
}

pub(super) fn count<'a>(number: usize) -> Value<'a> {
    Value::Int(Some(i64::try_from(number).unwrap_or(i64::MAX)))
}

/// A text. PostgreSQL stores every character but NUL, so NUL is written as U+0001 `0` and U+0001 as U+0001 `1`.
pub(super) fn text(text: &str) -> Value<'_> {
    Value::Text(Some(escape(text)))
}

pub(super) fn optional_text(given: Option<&str>) -> Value<'_> {
    Value::Text(given.map(escape))
}

/// A list of texts.
pub(super) fn texts<'a>(list: impl Iterator<Item = &'a str>) -> Value<'a> {
    Value::Texts(list.map(escape).collect())
}

fn escape(text: &str) -> Cow<'_, str> {
    if text.bytes().any(|byte| byte <= 1) {
        text.replace('\u{1}', "\u{1}1").replace('\0', "\u{1}0").into()
    } else {
        text.into()
    }
}

fn unescape(text: &str) -> Cow<'_, str> {
    if text.bytes().any(|byte| byte == 1) {
        text.replace("\u{1}0", "\0").replace("\u{1}1", "\u{1}").into()
    } else {
        text.into()
    }
}

pub(super) fn get<'a, T: FromSql<'a>>(row: &'a Row, at: usize) -> Result<T, StoreError> {
    row.try_get(at).map_err(|error| StoreError::Corrupt(format!("column {at}: {error}").into()))
}

pub(super) fn get_text(row: &Row, at: usize) -> Result<Text, StoreError> {
    get::<&str>(row, at).map(|text| unescape(text).into())
}

pub(super) fn get_optional_text(row: &Row, at: usize) -> Result<Option<Text>, StoreError> {
    get::<Option<&str>>(row, at).map(|text| text.map(|text| unescape(text).into()))
}

pub(super) fn get_number(row: &Row, at: usize) -> Result<u64, StoreError> {
    let number: i64 = get(row, at)?;
    u64::try_from(number).map_err(|_| StoreError::Corrupt(format!("column {at} is negative").into()))
}

pub(super) fn get_time(row: &Row, at: usize) -> Result<Time, StoreError> {
    get_number(row, at).map(Time)
}

pub(super) fn get_optional_time(row: &Row, at: usize) -> Result<Option<Time>, StoreError> {
    Ok(get::<Option<i64>>(row, at)?.and_then(|number| u64::try_from(number).ok()).map(Time))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_round_trips() {
        for given in ["", "a", "a\0b", "\u{1}", "\u{1}0", "\u{1}1\0\u{1}", "\0\0", "10\u{1}\u{1}0"] {
            let escaped = escape(given);
            assert!(!escaped.contains('\0'));
            assert_eq!(unescape(&escaped), given, "{given:?}");
        }
    }
}
