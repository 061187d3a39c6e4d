//! JSON values carried as text.
//!
//! State, metadata, results and raw events pass through agentwire unchanged. [`Json`] holds them as compact text on one
//! line, validated once. It is parsed only where a member is needed, so numbers, key order and unknown members stay as
//! they were.

mod error;
mod footprint;
mod normal;
mod object;
mod write;

use std::{borrow::Cow, fmt, sync::Arc};

use serde_json::{Value, value::RawValue};

pub use self::{
    error::{ReadError, ReadResult},
    footprint::Footprint,
    normal::{MAX_DEPTH, Unfit},
    object::{Fields, Path, kind_of},
    write::{ArrayWriter, ObjectWriter, write_str},
};
pub(crate) use self::{
    normal::fits,
    object::{elements, json, members, raw_members, text},
    write::is_plain,
};

/// Any JSON value as compact text. Cheap to clone.
///
/// Every value is nested at most [`MAX_DEPTH`] deep, has no number beyond a double's range and no lone
/// surrogate, so that turning it into a [`Value`] always works.
#[derive(Clone)]
pub struct Json(Arc<RawValue>);

/// A [`Json`] that is an object.
#[derive(Clone, PartialEq)]
pub struct Object(Json);

impl Json {
    /// Validates `text` and keeps it in compact form.
    ///
    /// # Errors
    /// When the text is not JSON, is nested too deep or contains a number beyond the range of a double.
    pub fn parse(text: &str) -> Result<Self, Unfit> {
        let raw: &RawValue = serde_json::from_str(text).map_err(|error| Unfit::Syntax(error.to_string()))?;
        Self::from_raw(raw).map(|(json, _)| json)
    }

    /// Copies a value that a parser found; also returns the number of replaced lone surrogates.
    ///
    /// # Errors
    /// When it is nested too deep or contains a number beyond the range of a double.
    pub fn from_raw(raw: &RawValue) -> Result<(Self, usize), Unfit> {
        let (text, replaced) = normal::normalise(raw.get())?;
        let owned = match text {
            Cow::Borrowed(text) => text.to_owned(),
            Cow::Owned(text) => text,
        };
        Ok((Self::trusted(owned), replaced))
    }

    /// A value from compact, valid JSON text that this crate made.
    pub(crate) fn trusted(text: String) -> Self {
        debug_assert!(serde_json::from_str::<Value>(&text).is_ok(), "{text}");
        let raw = RawValue::from_string(text).expect("JSON made by this crate is valid");
        Self(raw.into())
    }

    /// `null`.
    #[must_use]
    pub fn null() -> Self {
        Self::trusted("null".into())
    }

    /// A JSON string.
    #[must_use]
    pub fn string(text: &str) -> Self {
        Self::from(&Value::from(text))
    }

    /// The text.
    #[must_use]
    pub fn get(&self) -> &str {
        self.0.get()
    }

    /// The value, parsed.
    #[must_use]
    pub fn to_value(&self) -> Value {
        serde_json::from_str(self.get()).expect("the text was validated")
    }

    /// Whether this is `null`.
    #[must_use]
    pub fn is_null(&self) -> bool {
        self.get() == "null"
    }

    /// The value as an object, if it is one.
    #[must_use]
    pub fn into_object(self) -> Option<Object> {
        self.get().starts_with('{').then_some(Object(self))
    }

    /// The elements, if the value is an array.
    #[must_use]
    pub fn elements(&self) -> Option<Vec<Self>> {
        let raw: Vec<&RawValue> = serde_json::from_str(self.get()).ok()?;
        Some(raw.into_iter().map(|raw| Self(raw.to_owned().into())).collect())
    }

    /// The value as a string, if it is one.
    #[must_use]
    pub fn as_str(&self) -> Option<String> {
        self.get().starts_with('"').then(|| serde_json::from_str(self.get()).ok())?
    }
}

impl From<&Value> for Json {
    fn from(value: &Value) -> Self {
        Self::trusted(value.to_string())
    }
}

impl From<Value> for Json {
    fn from(value: Value) -> Self {
        Self::from(&value)
    }
}

impl PartialEq for Json {
    fn eq(&self, other: &Self) -> bool {
        self.get() == other.get()
    }
}

impl fmt::Debug for Json {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.get())
    }
}

impl fmt::Debug for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl serde::Serialize for Json {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

impl Object {
    /// `{}`.
    #[must_use]
    pub fn empty() -> Self {
        Self(Json::trusted("{}".into()))
    }

    /// The value, if it is an object.
    #[must_use]
    pub fn from_value(value: &Value) -> Option<Self> {
        value.is_object().then(|| Self(Json::from(value)))
    }

    /// An object of these members; a repeated key keeps its last value.
    pub fn from_entries<'k>(entries: impl IntoIterator<Item = (&'k str, Json)>) -> Self {
        let mut map = indexmap::IndexMap::new();
        for (key, value) in entries {
            map.insert(key, value);
        }
        let mut text = bytes::BytesMut::new();
        let mut object = ObjectWriter::new(&mut text);
        for (key, value) in &map {
            object.entry(key, value);
        }
        object.end();
        Self(Json::trusted(String::from_utf8(text.into()).expect("JSON text is UTF-8")))
    }

    /// The text.
    #[must_use]
    pub fn get(&self) -> &str {
        self.0.get()
    }

    /// The same value as plain JSON.
    #[must_use]
    pub fn as_json(&self) -> &Json {
        &self.0
    }

    /// The value, parsed.
    #[must_use]
    pub fn to_value(&self) -> Value {
        self.0.to_value()
    }

    /// Whether there is no member.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.get() == "{}"
    }

    /// The members in order.
    #[must_use]
    pub fn entries(&self) -> Vec<(String, Json)> {
        let map: object::RawMembers<'_> = serde_json::from_str(self.get()).expect("the text was validated");
        map.0.into_iter().map(|(key, raw)| (key.into_owned(), Json(raw.to_owned().into()))).collect()
    }

    /// One member.
    #[must_use]
    pub fn member(&self, key: &str) -> Option<Json> {
        self.entries().into_iter().rev().find(|(name, _)| name == key).map(|(_, value)| value)
    }

    /// One member, if it is a string.
    #[must_use]
    pub fn get_str(&self, key: &str) -> Option<String> {
        self.member(key)?.as_str()
    }

    /// This object with one member set.
    #[must_use]
    pub fn with(&self, key: &str, value: Json) -> Self {
        let entries = self.entries();
        let given = entries.iter().map(|(key, value)| (key.as_str(), value.clone()));
        Self::from_entries(given.chain([(key, value)]))
    }

    /// This object without one member.
    #[must_use]
    pub fn without(&self, key: &str) -> Self {
        let entries = self.entries();
        let kept = entries.iter().filter(|(name, _)| name != key);
        Self::from_entries(kept.map(|(key, value)| (key.as_str(), value.clone())))
    }

    /// The members of both objects, those of `later` replacing equal keys, without recursion: the merge of metadata.
    #[must_use]
    pub fn merged(&self, later: &Self) -> Self {
        if self.is_empty() {
            return later.clone();
        }
        if later.is_empty() {
            return self.clone();
        }
        let (first, second) = (self.entries(), later.entries());
        let all = first.iter().chain(&second);
        Self::from_entries(all.map(|(key, value)| (key.as_str(), value.clone())))
    }
}

impl From<Object> for Json {
    fn from(object: Object) -> Self {
        object.0
    }
}

impl serde::Serialize for Object {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_numbers_and_key_order() {
        let json = Json::parse("{ \"b\" : 1.0, \"a\":[ 1e3 , 12345678901234567890123 ] }").unwrap();
        assert_eq!(json.get(), r#"{"b":1.0,"a":[1e3,12345678901234567890123]}"#);
    }

    #[test]
    fn metadata_merges_key_by_key() {
        let a = Json::parse(r#"{"x":{"k":1},"y":2}"#).unwrap().into_object().unwrap();
        let b = Json::parse(r#"{"x":{"l":2}}"#).unwrap().into_object().unwrap();
        assert_eq!(a.merged(&b).get(), r#"{"x":{"l":2},"y":2}"#);
        assert_eq!(a.without("x").get(), r#"{"y":2}"#);
        assert_eq!(a.get_str("x"), None);
    }

    #[test]
    fn every_accepted_value_can_be_parsed() {
        let deep = "[".repeat(MAX_DEPTH) + &"]".repeat(MAX_DEPTH);
        let _ = Json::parse(&deep).unwrap().to_value();
        let _ = Json::parse(r#""\ud83d""#).unwrap().to_value();
        let _ = Json::parse(&"9".repeat(300)).unwrap().to_value();
    }
}
