//! Access to JSON without building a tree.
//!
//! LangGraph's events are wide and mostly redundant: a delta of five letters has about a thousand bytes around it.
//! Objects are therefore read into borrowed raw members, and only the relevant members are parsed. No function
//! here fails: a member of the wrong type is absent, and the caller counts it if it is relevant.

use std::borrow::Cow;

use serde_json::value::RawValue;

use crate::{
    json::{self, Json, Path},
    tally::Tally,
};

/// Defines a struct whose fields are the raw members of a JSON object. `null` is absent, unknown members are
/// skipped, and the last of duplicate members is used.
macro_rules! raw_object {
    ($(#[$doc:meta])* $vis:vis struct $name:ident { $($field:ident $(= $key:literal)?,)+ }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default)]
        $vis struct $name<'a> {
            $($vis $field: Option<&'a serde_json::value::RawValue>,)+
        }

        impl<'a> $name<'a> {
            /// The members of `raw`, unless it is not an object.
            $vis fn of(raw: &'a serde_json::value::RawValue) -> Option<Self> {
                Self::parse(raw.get()).ok()
            }

            /// The members of the object that `text` is.
            $vis fn parse(text: &'a str) -> Result<Self, serde_json::Error> {
                serde_json::from_str(text)
            }
        }

        impl<'de> serde::Deserialize<'de> for $name<'de> {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                struct Members;
                impl<'de> serde::de::Visitor<'de> for Members {
                    type Value = $name<'de>;

                    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                        f.write_str("an object")
                    }

                    fn visit_map<A: serde::de::MapAccess<'de>>(
                        self,
                        mut map: A,
                    ) -> Result<Self::Value, A::Error> {
                        let mut members = $name::default();
                        while let Some(key) = map.next_key::<$crate::format::langgraph::raw_json::BorrowedStr<'de>>()? {
                            let slot = match &*key.0 {
                                $($crate::format::langgraph::raw_json::raw_object!(@key $field $($key)?) =>
                                    &mut members.$field,)+
                                _ => {
                                    map.next_value::<serde::de::IgnoredAny>()?;
                                    continue;
                                }
                            };
                            let raw: &'de serde_json::value::RawValue = map.next_value()?;
                            *slot = (raw.get() != "null").then_some(raw);
                        }
                        Ok(members)
                    }
                }
                deserializer.deserialize_map(Members)
            }
        }
    };
    (@key $field:ident) => { stringify!($field) };
    (@key $field:ident $key:literal) => { $key };
}
pub(super) use raw_object;

/// A string, borrowed unless it contains escapes.
pub(super) struct BorrowedStr<'a>(pub(super) Cow<'a, str>);

impl<'de> serde::Deserialize<'de> for BorrowedStr<'de> {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Text;
        impl<'de> serde::de::Visitor<'de> for Text {
            type Value = BorrowedStr<'de>;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a string")
            }

            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
                Ok(BorrowedStr(Cow::Borrowed(text)))
            }

            fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
                Ok(BorrowedStr(Cow::Owned(text.to_owned())))
            }
        }
        deserializer.deserialize_str(Text)
    }
}

/// The string that `raw` is. A lone surrogate is replaced; that and U+0000 are counted.
pub(super) fn string<'a>(raw: &'a RawValue, tally: &mut Tally) -> Option<Cow<'a, str>> {
    if !raw.get().starts_with('"') {
        return None;
    }
    let text = json::text(raw, Path::Root, tally).ok()?;
    if memchr::memchr(0, text.as_bytes()).is_some() {
        tally.note("character", "U+0000");
    }
    Some(text)
}

/// The string that an optional member is, unless it is absent or empty.
pub(super) fn non_empty<'a>(raw: Option<&'a RawValue>, tally: &mut Tally) -> Option<Cow<'a, str>> {
    string(raw?, tally).filter(|text| !text.is_empty())
}

/// The elements of the array that `raw` is.
pub(super) fn elements(raw: &RawValue) -> Option<Vec<&RawValue>> {
    raw.get().starts_with('[').then(|| serde_json::from_str(raw.get()).ok())?
}

/// The members of the object that `raw` is, in order.
pub(super) fn members(raw: &RawValue) -> Option<Vec<(Cow<'_, str>, &RawValue)>> {
    struct Members<'a>(Vec<(Cow<'a, str>, &'a RawValue)>);
    impl<'de> serde::Deserialize<'de> for Members<'de> {
        fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            struct All;
            impl<'de> serde::de::Visitor<'de> for All {
                type Value = Members<'de>;

                fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                    f.write_str("an object")
                }

                fn visit_map<A: serde::de::MapAccess<'de>>(
                    self,
                    mut map: A,
                ) -> Result<Self::Value, A::Error> {
                    let mut all = Vec::new();
                    while let Some(BorrowedStr(key)) = map.next_key()? {
                        all.push((key, map.next_value()?));
                    }
                    Ok(Members(all))
                }
            }
            deserializer.deserialize_map(All)
        }
    }
    if !is_object(raw) {
        return None;
    }
    serde_json::from_str::<Members<'_>>(raw.get()).ok().map(|members| members.0)
}

/// A member of the object that `raw` is; `null` is absent.
pub(super) fn member<'a>(raw: &'a RawValue, name: &str) -> Option<&'a RawValue> {
    let members = members(raw)?;
    let found = members.into_iter().rev().find(|(key, _)| key == name);
    found.map(|(_, value)| value).filter(|value| value.get() != "null")
}

/// The strings among the elements of an array.
pub(super) fn strings<'a>(raw: Option<&'a RawValue>, tally: &mut Tally) -> Vec<Cow<'a, str>> {
    let elements = raw.and_then(elements).unwrap_or_default();
    elements.into_iter().filter_map(|element| string(element, tally)).collect()
}

/// The integer that `raw` is.
pub(super) fn integer(raw: Option<&RawValue>) -> Option<i64> {
    raw?.get().parse().ok()
}

/// The count that `raw` is; negative counts are provider errors and absent.
pub(super) fn count(raw: Option<&RawValue>) -> Option<u64> {
    let text = raw?.get();
    text.parse().ok().or_else(|| {
        let number: f64 = text.parse().ok()?;
        (number.fract() == 0.0 && (0.0..9e15).contains(&number)).then_some(number as u64)
    })
}

/// Any value, to be passed on. A value that cannot be passed on is counted and becomes `null`.
pub(super) fn json(raw: &RawValue, tally: &mut Tally) -> Json {
    json::json(raw, Path::Root, tally).unwrap_or_else(|error| {
        tally.note("value that cannot be carried", error.problem());
        Json::null()
    })
}

pub(super) fn is_object(raw: &RawValue) -> bool {
    raw.get().starts_with('{')
}

pub(super) fn is_array(raw: &RawValue) -> bool {
    raw.get().starts_with('[')
}

/// Repairs invalid JSON from Python: its `json` module writes `NaN` and `Infinity`, which become `null`, and some
/// writers leave control characters in strings, which become escapes. `None` if `text` contains neither.
pub(super) fn repaired(text: &str, tally: &mut Tally) -> Option<String> {
    let mut out = String::with_capacity(text.len() + 16);
    let mut changed = false;
    let mut rest = text;
    let mut in_string = false;
    while let Some(first) = rest.chars().next() {
        if in_string {
            match first {
                '\\' => {
                    let end = rest.char_indices().nth(2).map_or(rest.len(), |(at, _)| at);
                    out.push_str(&rest[..end]);
                    rest = &rest[end..];
                    continue;
                }
                '"' => in_string = false,
                control if u32::from(control) < 0x20 => {
                    out.push_str(&format!("\\u{:04x}", u32::from(control)));
                    tally.note("control character", &format!("U+{:04X}", u32::from(control)));
                    changed = true;
                    rest = &rest[1..];
                    continue;
                }
                _ => {}
            }
        } else if first == '"' {
            in_string = true;
        } else if let Some(word) =
            ["NaN", "-Infinity", "Infinity"].iter().find(|word| rest.starts_with(**word))
        {
            out.push_str("null");
            tally.note("number", word);
            changed = true;
            rest = &rest[word.len()..];
            continue;
        }
        out.push(first);
        rest = &rest[first.len_utf8()..];
    }
    changed.then_some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    raw_object! {
        struct Pair { a, b = "type", }
    }

    #[test]
    fn reads_members_and_treats_null_as_absent() {
        let raw: &RawValue = serde_json::from_str(r#"{"a":null,"x":[1],"type":1,"type":"t"}"#).unwrap();
        let pair = Pair::of(raw).unwrap();
        assert!(pair.a.is_none());
        assert_eq!(pair.b.unwrap().get(), r#""t""#);
        assert!(Pair::parse("[1]").is_err());
    }

    #[test]
    fn repairs_python_numbers_and_control_characters() {
        let tally = &mut Tally::default();
        let text = "{\"a\":NaN,\"b\":\"NaN \\\" \u{1}\",\"c\":[-Infinity,Infinity]}";
        assert_eq!(repaired(text, tally).unwrap(), r#"{"a":null,"b":"NaN \" \u0001","c":[null,null]}"#);
        assert_eq!(tally.count("number", "NaN"), 1);
        assert_eq!(tally.count("control character", "U+0001"), 1);
        assert_eq!(repaired(r#"{"a":}"#, tally), None);
    }
}
