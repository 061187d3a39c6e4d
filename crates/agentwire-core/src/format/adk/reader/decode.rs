//! Decoding of the shapes in [`wire`](crate::format::adk::wire), with errors that name the malformed member.
//!
//! serde decodes first and fast. Only when that fails is the value searched again for the member at fault: the
//! [`Member`] trait gives the error for each type.

use std::{borrow::Cow, fmt};

use serde::{
    Deserialize, Deserializer,
    de::{MapAccess, SeqAccess, Visitor},
};
use serde_json::value::RawValue;

use crate::{
    format::adk::wire::{AdkNumber, AdkPart, AdkText, PartList, RawEntries},
    json::{Path, ReadError, ReadResult, elements},
};

/// A value of a wire object, with the error for a value of another type.
pub(in crate::format::adk) trait Member<'a>: Deserialize<'a> {
    /// The error for `raw`, which does not decode as this type.
    fn explain(raw: &'a RawValue, path: Path<'_>) -> ReadError;
}

impl AdkText<'_> {
    pub(in crate::format::adk) fn as_str(&self) -> &str {
        &self.0
    }
}

impl<'a> From<&'a str> for AdkText<'a> {
    fn from(text: &'a str) -> Self {
        Self(Cow::Borrowed(text))
    }
}

impl<'a> Member<'a> for AdkText<'a> {
    fn explain(raw: &'a RawValue, path: Path<'_>) -> ReadError {
        path.expected("a string", raw)
    }
}

impl<'a> Member<'a> for bool {
    fn explain(raw: &'a RawValue, path: Path<'_>) -> ReadError {
        path.expected("a boolean", raw)
    }
}

impl<'a> Member<'a> for f64 {
    fn explain(raw: &'a RawValue, path: Path<'_>) -> ReadError {
        path.expected("a number", raw)
    }
}

impl<'de> Deserialize<'de> for AdkNumber<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = <&RawValue>::deserialize(deserializer)?.get();
        let value = serde_json::from_str(text).map_err(serde::de::Error::custom)?;
        Ok(Self { value, text })
    }
}

impl<'a> Member<'a> for AdkNumber<'a> {
    fn explain(raw: &'a RawValue, path: Path<'_>) -> ReadError {
        f64::explain(raw, path)
    }
}

impl<'a> Member<'a> for &'a RawValue {
    fn explain(raw: &'a RawValue, path: Path<'_>) -> ReadError {
        path.expected("any JSON value", raw)
    }
}

impl<'a, T: Member<'a>> Member<'a> for Vec<T> {
    fn explain(raw: &'a RawValue, path: Path<'_>) -> ReadError {
        let elements = match elements(raw, path) {
            Ok(elements) => elements,
            Err(error) => return error,
        };
        let is_malformed = |element: &&&'a RawValue| serde_json::from_str::<T>(element.get()).is_err();
        match elements.iter().enumerate().find(|(_, element)| is_malformed(element)) {
            Some((index, element)) => T::explain(element, Path::Index(&path, index)),
            None => path.expected("an array", raw),
        }
    }
}

impl<'a, T: Member<'a>> Member<'a> for Box<T> {
    fn explain(raw: &'a RawValue, path: Path<'_>) -> ReadError {
        T::explain(raw, path)
    }
}

impl<'de> Deserialize<'de> for RawEntries<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct EntriesVisitor;
        impl<'de> Visitor<'de> for EntriesVisitor {
            type Value = RawEntries<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut entries = Vec::new();
                while let Some(entry) = map.next_entry()? {
                    entries.push(entry);
                }
                Ok(RawEntries(entries))
            }
        }
        deserializer.deserialize_map(EntriesVisitor)
    }
}

impl<'a> Member<'a> for RawEntries<'a> {
    fn explain(raw: &'a RawValue, path: Path<'_>) -> ReadError {
        path.expected("an object", raw)
    }
}

impl<'a> PartList<'a> {
    pub(in crate::format::adk) fn iter(&self) -> impl Iterator<Item = &AdkPart<'a>> {
        self.first.iter().chain(&self.rest)
    }
}

impl<'de> Deserialize<'de> for PartList<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct PartsVisitor;
        impl<'de> Visitor<'de> for PartsVisitor {
            type Value = PartList<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an array of parts")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<Self::Value, A::Error> {
                let mut parts = PartList { first: elements.next_element()?, rest: Vec::new() };
                while let Some(part) = elements.next_element()? {
                    parts.rest.push(part);
                }
                Ok(parts)
            }
        }
        deserializer.deserialize_seq(PartsVisitor)
    }
}

impl<'a> Member<'a> for PartList<'a> {
    fn explain(raw: &'a RawValue, path: Path<'_>) -> ReadError {
        Vec::<AdkPart<'a>>::explain(raw, path)
    }
}

/// Declares wire objects and their decoding: each member with its accepted names.
macro_rules! wire_objects {
    ($($(#[$doc:meta])* $name:ident { $($field:ident: $kind:ty = $($key:literal)|+,)+ })+) => {$(
        $(#[$doc])*
        #[derive(Debug, Default)]
        pub(super) struct $name<'a> {
            $(pub(super) $field: Option<$kind>,)+
            /// Names of unknown members.
            pub(super) unknown: Vec<AdkText<'a>>,
        }

        const _: () = {
            use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, Visitor};
            use $crate::{
                format::adk::reader::decode::Member,
                json::{Fields, Path, ReadError},
            };

            impl<'a> Deserialize<'a> for $name<'a> {
                fn deserialize<D: Deserializer<'a>>(deserializer: D) -> Result<Self, D::Error> {
                    struct ObjectVisitor;
                    impl<'a> Visitor<'a> for ObjectVisitor {
                        type Value = $name<'a>;

                        fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                            f.write_str("an object")
                        }

                        fn visit_map<A: MapAccess<'a>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                            let mut object = $name::default();
                            while let Some(key) = map.next_key::<AdkText<'a>>()? {
                                match key.as_str() {
                                    $($($key)|+ => {
                                        // A `null` does not overwrite a value under the other spelling.
                                        if let Some(value) = map.next_value::<Option<$kind>>()? {
                                            object.$field = Some(value);
                                        }
                                    })+
                                    _ => {
                                        map.next_value::<IgnoredAny>()?;
                                        object.unknown.push(key);
                                    }
                                }
                            }
                            Ok(object)
                        }
                    }
                    deserializer.deserialize_map(ObjectVisitor)
                }
            }

            impl<'a> Member<'a> for $name<'a> {
                fn explain(raw: &'a RawValue, path: Path<'_>) -> ReadError {
                    let mut fields = match Fields::of(raw, path) {
                        Ok(fields) => fields,
                        Err(error) => return error,
                    };
                    $($(
                        if let Some(raw) = fields.take_unless_null($key)
                            && serde_json::from_str::<$kind>(raw.get()).is_err()
                        {
                            return <$kind>::explain(raw, Path::Key(&path, $key));
                        }
                    )+)+
                    path.expected("an object of another shape", raw)
                }
            }
        };
    )+};
}
pub(in crate::format::adk) use wire_objects;

/// Decodes `raw` as a wire object.
///
/// # Errors
/// When it has another shape; the error names the member.
pub(in crate::format::adk) fn parse<'a, T: Member<'a>>(raw: &'a RawValue, path: Path<'_>) -> ReadResult<T> {
    serde_json::from_str(raw.get()).map_err(|_| T::explain(raw, path))
}

/// Decodes a whole document as a raw JSON value.
///
/// # Errors
/// When it is not valid JSON.
pub(in crate::format::adk) fn parse_raw(text: &str) -> ReadResult<&RawValue> {
    serde_json::from_str(text).map_err(ReadError::invalid_json)
}

/// Converts ADK's seconds to milliseconds; `None` if the result exceeds the exact integers of a JSON number.
pub(in crate::format::adk) fn milliseconds(seconds: f64) -> Option<i64> {
    const MAX_EXACT_INTEGER: f64 = 9_007_199_254_740_991.0;
    let milliseconds = (seconds * 1000.0).round();
    (milliseconds.abs() <= MAX_EXACT_INTEGER).then_some(milliseconds as i64)
}
