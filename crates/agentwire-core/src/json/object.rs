//! Strict access to the members of a JSON object, with the exact location of every error.
//!
//! Wire objects follow two rules that derived deserialisers do not: an unknown member is no error but a malformed one is,
//! and `null` is malformed, not absent, unless a format allows it. [`Fields`] keeps the members as raw text, validates
//! each one on access, and returns the members that were not accessed at the end.

use std::{borrow::Cow, fmt};

use serde::{
    Deserialize, Deserializer,
    de::{MapAccess, Visitor},
};
use serde_json::value::RawValue;

use super::{Json, Object, ReadError, ReadResult, Unfit, normal};
use crate::tally::Tally;

/// The members of an object in order, keys and raw values borrowed.
pub(super) struct RawMembers<'a>(pub(super) Vec<(Cow<'a, str>, &'a RawValue)>);

impl<'de> Deserialize<'de> for RawMembers<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Members;
        impl<'de> Visitor<'de> for Members {
            type Value = RawMembers<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut members = Vec::with_capacity(8);
                while let Some(key) = map.next_key::<Key<'de>>()? {
                    members.push((key.0, map.next_value()?));
                }
                Ok(RawMembers(members))
            }
        }
        deserializer.deserialize_map(Members)
    }
}

/// A key, borrowed where it has no escape.
struct Key<'a>(Cow<'a, str>);

impl<'de> Deserialize<'de> for Key<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Text;
        impl<'de> Visitor<'de> for Text {
            type Value = Key<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string")
            }

            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
                Ok(Key(Cow::Borrowed(text)))
            }

            fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
                Ok(Key(Cow::Owned(text.to_owned())))
            }
        }
        deserializer.deserialize_str(Text)
    }
}

/// A location in a document: built on the way down, rendered only for an error.
#[derive(Clone, Copy, Debug)]
pub enum Path<'p> {
    /// The document itself.
    Root,
    /// A member of an object.
    Key(&'p Self, &'p str),
    /// An element of an array.
    Index(&'p Self, usize),
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Root => Ok(()),
            Self::Key(parent, key) => {
                write!(f, "{parent}/{}", key.replace('~', "~0").replace('/', "~1"))
            }
            Self::Index(parent, index) => write!(f, "{parent}/{index}"),
        }
    }
}

impl Path<'_> {
    /// An error at this location.
    #[must_use]
    pub fn error(&self, problem: impl Into<String>) -> ReadError {
        ReadError::new(self.to_string(), problem)
    }

    /// The error that names the expected kind of value and the one found.
    #[must_use]
    pub fn expected(&self, wanted: &str, raw: &RawValue) -> ReadError {
        self.error(format!("expected {wanted}, found {}", kind_of(raw.get())))
    }
}

/// The members of a JSON object that have not been accessed yet.
#[derive(Debug)]
pub struct Fields<'a, 'p> {
    path: Path<'p>,
    members: Vec<(Cow<'a, str>, Option<&'a RawValue>)>,
}

impl<'a, 'p> Fields<'a, 'p> {
    /// The members of `raw`, which must be an object.
    ///
    /// # Errors
    /// When it has another type.
    pub fn of(raw: &'a RawValue, path: Path<'p>) -> ReadResult<Self> {
        Self::parse(raw.get(), path).map_err(|_| path.expected("an object", raw))
    }

    /// The members of `text`, which must be an object.
    ///
    /// # Errors
    /// When it is not JSON, or not an object.
    pub fn parse(text: &'a str, path: Path<'p>) -> ReadResult<Self> {
        let raw: RawMembers<'a> = serde_json::from_str(text).map_err(|error| {
            if error.is_data() && !text.trim_start().starts_with('{') {
                path.error(format!("expected an object, found {}", kind_of(text)))
            } else {
                path.error(format!("not valid JSON: {error}"))
            }
        })?;
        let members = raw.0.into_iter().map(|(key, value)| (key, Some(value))).collect();
        Ok(Self { path, members })
    }

    /// The location of this object.
    #[must_use]
    pub fn path(&self) -> Path<'p> {
        self.path
    }

    /// Removes a member and returns its raw text. The last of several with one name counts, as in JavaScript.
    pub fn take(&mut self, key: &str) -> Option<&'a RawValue> {
        let mut found = None;
        for (name, value) in &mut self.members {
            if name == key
                && let Some(value) = value.take()
            {
                found = Some(value);
            }
        }
        found
    }

    /// The raw text of a member, which stays.
    #[must_use]
    pub fn peek(&self, key: &str) -> Option<&'a RawValue> {
        self.members.iter().rev().find(|(name, _)| name == key).and_then(|(_, value)| *value)
    }

    /// Removes a member, treating `null` as absent: for the few members where old peers send it.
    pub fn take_unless_null(&mut self, key: &str) -> Option<&'a RawValue> {
        self.take(key).filter(|raw| raw.get() != "null")
    }

    /// The error for a required member.
    #[must_use]
    pub fn missing(&self, key: &str, wanted: &str) -> ReadError {
        self.path.error(format!("`{key}` is missing, expected {wanted}"))
    }

    /// A string if present.
    ///
    /// # Errors
    /// When it has another type.
    pub fn str(&mut self, key: &str, tally: &mut Tally) -> ReadResult<Option<Cow<'a, str>>> {
        let Some(raw) = self.take(key) else {
            return Ok(None);
        };
        text(raw, Path::Key(&self.path, key), tally).map(Some)
    }

    /// A boxed string if present.
    ///
    /// # Errors
    /// When it has another type.
    pub fn boxed(&mut self, key: &str, tally: &mut Tally) -> ReadResult<Option<Box<str>>> {
        Ok(self.str(key, tally)?.map(Into::into))
    }

    /// A string that is required.
    ///
    /// # Errors
    /// When it is missing or has another type.
    pub fn need_str(&mut self, key: &str, tally: &mut Tally) -> ReadResult<Cow<'a, str>> {
        self.str(key, tally)?.ok_or_else(|| self.missing(key, "a string"))
    }

    /// A boxed string that is required.
    ///
    /// # Errors
    /// When it is missing or has another type.
    pub fn need_boxed(&mut self, key: &str, tally: &mut Tally) -> ReadResult<Box<str>> {
        Ok(self.need_str(key, tally)?.into())
    }

    /// An id if present.
    ///
    /// # Errors
    /// When it is not a string.
    pub fn id<I: From<String>>(&mut self, key: &str, tally: &mut Tally) -> ReadResult<Option<I>> {
        Ok(self.str(key, tally)?.map(|text| I::from(text.into_owned())))
    }

    /// An id that is required.
    ///
    /// # Errors
    /// When it is missing or not a string.
    pub fn need_id<I: From<String>>(&mut self, key: &str, tally: &mut Tally) -> ReadResult<I> {
        Ok(I::from(self.need_str(key, tally)?.into_owned()))
    }

    /// A boolean if present.
    ///
    /// # Errors
    /// When it has another type.
    pub fn bool(&mut self, key: &str) -> ReadResult<Option<bool>> {
        let Some(raw) = self.take(key) else {
            return Ok(None);
        };
        match raw.get() {
            "true" => Ok(Some(true)),
            "false" => Ok(Some(false)),
            _ => Err(Path::Key(&self.path, key).expected("a boolean", raw)),
        }
    }

    /// An integer in `range` if present. `1.0` and `1e3` are integers, as for JavaScript.
    ///
    /// # Errors
    /// When it has another type.
    pub fn integer(&mut self, key: &str, range: std::ops::RangeInclusive<i64>) -> ReadResult<Option<i64>> {
        let Some(raw) = self.take(key) else {
            return Ok(None);
        };
        let number = integer(raw.get()).filter(|number| range.contains(number));
        number.map(Some).ok_or_else(|| {
            let wanted = format!("an integer from {} to {}", range.start(), range.end());
            Path::Key(&self.path, key).expected(&wanted, raw)
        })
    }

    /// Any JSON if present.
    ///
    /// # Errors
    /// When it cannot be carried.
    pub fn json(&mut self, key: &str, tally: &mut Tally) -> ReadResult<Option<Json>> {
        let Some(raw) = self.take(key) else {
            return Ok(None);
        };
        json(raw, Path::Key(&self.path, key), tally).map(Some)
    }

    /// Any JSON but `null` if present.
    ///
    /// # Errors
    /// When it is `null` or cannot be carried.
    pub fn some_json(&mut self, key: &str, tally: &mut Tally) -> ReadResult<Option<Json>> {
        match self.take(key) {
            None => Ok(None),
            Some(raw) if raw.get() == "null" => {
                Err(Path::Key(&self.path, key).expected("any JSON value but null", raw))
            }
            Some(raw) => json(raw, Path::Key(&self.path, key), tally).map(Some),
        }
    }

    /// An open object if present.
    ///
    /// # Errors
    /// When it has another type.
    pub fn object(&mut self, key: &str, tally: &mut Tally) -> ReadResult<Option<Object>> {
        let Some(raw) = self.take(key) else {
            return Ok(None);
        };
        let path = Path::Key(&self.path, key);
        match json(raw, path, tally)?.into_object() {
            Some(object) => Ok(Some(object)),
            None => Err(path.expected("an object", raw)),
        }
    }

    /// Calls `each` for every element of an array; returns whether the array is present.
    ///
    /// # Errors
    /// When it has another type, or `each` fails.
    pub fn array(
        &mut self,
        key: &str,
        mut each: impl FnMut(&'a RawValue, Path<'_>) -> ReadResult,
    ) -> ReadResult<bool> {
        let Some(raw) = self.take(key) else {
            return Ok(false);
        };
        let path = Path::Key(&self.path, key);
        for (index, element) in elements(raw, path)?.into_iter().enumerate() {
            each(element, Path::Index(&path, index))?;
        }
        Ok(true)
    }

    /// The members that were not accessed, counted in the tally, as an object.
    ///
    /// # Errors
    /// When a member cannot be carried.
    pub fn rest(&mut self, what: &str, tally: &mut Tally) -> ReadResult<Option<Object>> {
        if self.members.iter().all(|(_, value)| value.is_none()) {
            return Ok(None);
        }
        let mut rest = Vec::new();
        for (key, value) in &self.members {
            if let Some(raw) = value {
                let value = json(raw, Path::Key(&self.path, key), tally)?;
                if normal::fits(value.get(), UNKNOWN_LEVELS) {
                    tally.note("unknown property", &format!("{what}.{key}"));
                    rest.push((key.as_ref(), value));
                } else {
                    tally.note("unknown property, nested too deep to be kept", &format!("{what}.{key}"));
                }
            }
        }
        Ok((!rest.is_empty()).then(|| Object::from_entries(rest)))
    }
}

/// Unknown members travel in the metadata of an event, as members of `agentwire.unknown`.
const UNKNOWN_LEVELS: usize = 3;

/// The members of the object `text` in order. Each is validated by itself, so the object may be nested one level deeper
/// than [`MAX_DEPTH`](super::MAX_DEPTH).
pub(crate) fn members(text: &str) -> Option<Vec<(String, Json)>> {
    let raw: RawMembers<'_> = serde_json::from_str(text).ok()?;
    let member =
        |(key, raw): (Cow<'_, str>, &RawValue)| Some((key.into_owned(), Json::from_raw(raw).ok()?.0));
    raw.0.into_iter().map(member).collect()
}

/// The members of an object with the texts of their values, which are parts of `text`; `None` if it is no object.
pub(crate) fn raw_members(text: &str) -> Option<Vec<(Cow<'_, str>, &str)>> {
    let raw: RawMembers<'_> = serde_json::from_str(text).ok()?;
    Some(raw.0.into_iter().map(|(key, raw)| (key, raw.get())).collect())
}

/// The elements of `raw`, which must be an array.
///
/// # Errors
/// When it has another type.
pub(crate) fn elements<'a>(raw: &'a RawValue, path: Path<'_>) -> ReadResult<Vec<&'a RawValue>> {
    serde_json::from_str(raw.get()).map_err(|_| path.expected("an array", raw))
}

/// The text of `raw`, which must be a string. Lone surrogates become U+FFFD and are counted.
///
/// # Errors
/// When it has another type.
pub(crate) fn text<'a>(raw: &'a RawValue, path: Path<'_>, tally: &mut Tally) -> ReadResult<Cow<'a, str>> {
    let wrong = || path.expected("a string", raw);
    if !raw.get().starts_with('"') {
        return Err(wrong());
    }
    match serde_json::from_str::<Key<'a>>(raw.get()) {
        Ok(key) => Ok(key.0),
        Err(_) => {
            let (repaired, count) = normal::without_lone_surrogates(raw.get()).ok_or_else(wrong)?;
            tally.add("lone surrogate", "replaced by U+FFFD", count as u64);
            serde_json::from_str(&repaired).map(Cow::Owned).map_err(|_| wrong())
        }
    }
}

/// The validated value of `raw`.
///
/// # Errors
/// When it cannot be carried.
pub(crate) fn json(raw: &RawValue, path: Path<'_>, tally: &mut Tally) -> ReadResult<Json> {
    match Json::from_raw(raw) {
        Ok((json, 0)) => Ok(json),
        Ok((json, count)) => {
            tally.add("lone surrogate", "replaced by U+FFFD", count as u64);
            Ok(json)
        }
        Err(Unfit::Syntax(problem)) => Err(path.error(format!("not valid JSON: {problem}"))),
        Err(unfit) => Err(path.error(unfit.to_string())),
    }
}

/// The value of a JSON number, if it is an integer that a double represents exactly.
fn integer(text: &str) -> Option<i64> {
    if let Ok(number) = text.parse() {
        return Some(number);
    }
    let number: f64 = serde_json::from_str(text).ok()?;
    (number.fract() == 0.0 && number.abs() <= 9_007_199_254_740_991.0).then_some(number as i64)
}

/// The kind of value of a JSON text, for error messages.
#[must_use]
pub fn kind_of(text: &str) -> String {
    match text.trim_start().bytes().next() {
        Some(b'{') => "an object".into(),
        Some(b'[') => "an array".into(),
        Some(b'"') => {
            let mut shown: String = text.trim_start().chars().take(40).collect();
            if shown.len() < text.trim().len() {
                shown.push('…');
            }
            format!("the string {shown}")
        }
        Some(b't' | b'f') => format!("the boolean {}", text.trim()),
        Some(b'n') => "null".into(),
        Some(b'-' | b'0'..=b'9') => {
            let shown: String = text.trim().chars().take(40).collect();
            format!("the number {shown}")
        }
        _ => "no value".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(text: &str) -> Fields<'_, 'static> {
        Fields::parse(text, Path::Root).unwrap()
    }

    #[test]
    fn errors_name_location_expected_and_found() {
        let tally = &mut Tally::default();
        let mut f = fields(r#"{"a/b":null,"n":1.5,"s":7}"#);
        assert_eq!(f.str("a/b", tally).unwrap_err().to_string(), "at `/a~1b`: expected a string, found null");
        assert_eq!(
            f.integer("n", 0..=9).unwrap_err().to_string(),
            "at `/n`: expected an integer from 0 to 9, found the number 1.5"
        );
        assert_eq!(f.need_str("zz", tally).unwrap_err().to_string(), "`zz` is missing, expected a string");
        assert_eq!(
            Fields::parse("[1]", Path::Root).unwrap_err().to_string(),
            "expected an object, found an array"
        );
    }

    #[test]
    fn last_of_repeated_keys_wins() {
        let mut f = fields(r#"{"a":1,"b":2,"a":3}"#);
        assert_eq!(f.integer("a", 0..=9).unwrap(), Some(3));
        let tally = &mut Tally::default();
        assert_eq!(f.rest("X", tally).unwrap().unwrap().get(), r#"{"b":2}"#);
        assert_eq!(tally.count("unknown property", "X.b"), 1);
    }

    #[test]
    fn integers_as_javascript_sees_them() {
        for (text, wanted) in
            [("1", Some(1)), ("1.0", Some(1)), ("1e3", Some(1000)), ("1.5", None), ("1e30", None)]
        {
            assert_eq!(integer(text), wanted, "{text}");
        }
    }

    #[test]
    fn half_an_emoji_is_repaired() {
        let tally = &mut Tally::default();
        assert_eq!(fields(r#"{"d":"a\ud83d"}"#).need_str("d", tally).unwrap(), "a\u{fffd}");
        assert_eq!(tally.count("lone surrogate", "replaced by U+FFFD"), 1);
    }
}
