//! JSON objects without duplicate members. Of two members of one name, two readers may see different ones: the issuer's
//! library the first, the gateway the last.

use std::fmt;

use serde::de::{self, Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

/// Parses a JSON object; `None` if it is none, or if a member is there twice at any depth.
pub(super) fn parse_object(bytes: &[u8]) -> Option<Map<String, Value>> {
    match serde_json::from_slice::<Strict>(bytes).ok()?.0 {
        Value::Object(members) => Some(members),
        _ => None,
    }
}

struct Strict(Value);

impl<'de> Deserialize<'de> for Strict {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(StrictVisitor)
    }
}

struct StrictVisitor;

impl<'de> Visitor<'de> for StrictVisitor {
    type Value = Strict;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Strict, E> {
        Ok(Strict(value.into()))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Strict, E> {
        Ok(Strict(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Strict, E> {
        Ok(Strict(value.into()))
    }

    fn visit_f64<E: de::Error>(self, value: f64) -> Result<Strict, E> {
        Number::from_f64(value).map(|number| Strict(number.into())).ok_or_else(|| E::custom("no number"))
    }

    fn visit_str<E>(self, value: &str) -> Result<Strict, E> {
        Ok(Strict(value.into()))
    }

    fn visit_string<E>(self, value: String) -> Result<Strict, E> {
        Ok(Strict(value.into()))
    }

    fn visit_unit<E>(self) -> Result<Strict, E> {
        Ok(Strict(Value::Null))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<Strict, A::Error> {
        let mut read = Vec::new();
        while let Some(Strict(element)) = elements.next_element()? {
            read.push(element);
        }
        Ok(Strict(read.into()))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Strict, A::Error> {
        let mut read = Map::new();
        while let Some(name) = members.next_key::<String>()? {
            let Strict(value) = members.next_value()?;
            if read.insert(name, value).is_some() {
                return Err(de::Error::custom("a member is there twice"));
            }
        }
        Ok(Strict(read.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn duplicate_members_are_refused_at_any_depth() {
        let expected = serde_json::json!({"a": [1, -2, 0.5, null, true, {"b": "c"}]});
        assert_eq!(parse_object(expected.to_string().as_bytes()).map(Value::Object), Some(expected));
        for text in [
            r#"{"a":1,"a":1}"#,
            r#"{"a":1,"\u0061":2}"#,
            r#"{"x":[{"a":1,"b":2,"a":3}]}"#,
            r#"{"x":{"y":{"a":null,"a":null}}}"#,
            r#"{"a":1} {}"#,
            "[]",
            "1",
            "",
            "{",
            "{\"a\":1e999}",
        ] {
            assert_eq!(parse_object(text.as_bytes()), None, "{text}");
        }
        assert_eq!(parse_object(b"{\"a\":\"\xff\"}"), None);
    }
}
