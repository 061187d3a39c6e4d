//! Sizes, counts and speeds.

use serde_json::json;
use toml::de::DeValue;

use super::{
    super::table::{Shape, Value, ValueType},
    cannot_be,
};
use crate::cli;

/// A size such as `"8MiB"`, or a number of bytes.
pub(in super::super) struct Size;

impl<T: TryFrom<u64> + TryInto<u64> + Copy> ValueType<T> for Size {
    fn read(&self, value: &Value<'_>) -> Option<T> {
        const EXPECTED: &str = "a size such as `\"8MiB\"`";
        let size = match value.inner.get_ref() {
            DeValue::Integer(_) => integer(value)
                .filter(|size| *size > 0)
                .ok_or_else(|| "it must be at least one byte".to_owned()),
            _ => cli::size(value.text(EXPECTED)?).map(|size| size as u64),
        };
        let size = size.and_then(|size| T::try_from(size).map_err(|_| "it is too large".to_owned()));
        match size {
            Ok(size) => Some(size),
            Err(why) => {
                let text = match value.inner.get_ref() {
                    DeValue::String(text) => text.to_string(),
                    DeValue::Integer(number) => number.to_string(),
                    _ => String::new(),
                };
                value.reject(cannot_be(&value.path, &text, &why), None);
                None
            }
        }
    }

    fn shape(&self) -> Shape {
        let text = json!({ "type": "string", "pattern": "^[0-9]+ *([kKmMgG]([iI]?[bB])?|[bB])?$" });
        let schema = json!({ "anyOf": [text, { "type": "integer", "minimum": 1 }] });
        Shape::Value("a size such as `\"8MiB\"`, or a number of bytes".into(), schema)
    }

    fn show(&self, value: &T) -> Option<String> {
        let bytes: u64 = (*value).try_into().ok()?;
        let units = [(1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
        let unit = units.into_iter().find(|(factor, _)| bytes > 0 && bytes.is_multiple_of(*factor));
        Some(unit.map_or_else(|| bytes.to_string(), |(factor, unit)| format!("\"{}{unit}\"", bytes / factor)))
    }
}

/// Upper bound of counts: more than any machine can handle, and within the range of every counter.
const MAX_COUNT: u64 = 1 << 31;

/// A whole number of at least `.0`.
pub(in super::super) struct Count(pub(in super::super) u64);

impl<T: TryFrom<u64> + TryInto<u64> + Copy> ValueType<T> for Count {
    fn read(&self, value: &Value<'_>) -> Option<T> {
        if !matches!(value.inner.get_ref(), DeValue::Integer(_)) {
            value.wrong_type("a whole number", None);
            return None;
        }
        let fits = |number: &u64| (self.0..=MAX_COUNT).contains(number);
        let number = integer(value).filter(fits).and_then(|number| T::try_from(number).ok());
        if let (None, DeValue::Integer(given)) = (&number, value.inner.get_ref()) {
            let why = match integer(value) {
                Some(number) if number >= self.0 => format!("it must be at most {MAX_COUNT}"),
                _ => format!("it must be at least {}", self.0),
            };
            value.reject(format!("`{}` cannot be `{given}`: {why}", value.path), None);
        }
        number
    }

    fn shape(&self) -> Shape {
        Shape::Value(
            "a whole number".into(),
            json!({ "type": "integer", "minimum": self.0, "maximum": MAX_COUNT }),
        )
    }

    fn show(&self, value: &T) -> Option<String> {
        let number: u64 = (*value).try_into().ok()?;
        Some(number.to_string())
    }
}

pub(super) fn integer(value: &Value<'_>) -> Option<u64> {
    match value.inner.get_ref() {
        DeValue::Integer(number) => u64::from_str_radix(number.as_str(), number.radix()).ok(),
        _ => None,
    }
}

/// A share between 0 and 1.
pub(in super::super) struct Share;

impl ValueType<f64> for Share {
    fn read(&self, value: &Value<'_>) -> Option<f64> {
        let number = match value.inner.get_ref() {
            DeValue::Integer(_) => integer(value).map(|number| number as f64),
            DeValue::Float(number) => number.as_str().replace('_', "").parse().ok(),
            _ => {
                value.wrong_type("a number between 0 and 1", None);
                return None;
            }
        };
        let number = number.filter(|number: &f64| (0.0..=1.0).contains(number));
        if number.is_none() {
            value.reject(format!("`{}` must be between 0 and 1", value.path), None);
        }
        number
    }

    fn shape(&self) -> Shape {
        let schema = json!({ "type": "number", "minimum": 0, "maximum": 1 });
        Shape::Value("a number between 0 and 1".into(), schema)
    }

    fn show(&self, value: &f64) -> Option<String> {
        Some(format!("{value:?}"))
    }
}

/// A factor above zero, or `"max"` for no delay.
pub(in super::super) struct Speed;

impl ValueType<Option<f64>> for Speed {
    fn read(&self, value: &Value<'_>) -> Option<Option<f64>> {
        let number = match value.inner.get_ref() {
            DeValue::Integer(_) => integer(value).map(|number| number as f64),
            DeValue::Float(number) => number.as_str().replace('_', "").parse().ok(),
            DeValue::String(text) if text == "max" => return Some(None),
            _ => {
                value.wrong_type("a number such as `1.0`, or `\"max\"`", None);
                return None;
            }
        };
        let number = number.filter(|number: &f64| number.is_finite() && *number > 0.0);
        if number.is_none() {
            let hint = "`\"max\"` replays without waiting".to_owned();
            value.reject(format!("`{}` must be more than 0 and finite", value.path), Some(hint));
        }
        number.map(Some)
    }

    fn shape(&self) -> Shape {
        let schema = json!({ "anyOf": [{ "type": "number", "exclusiveMinimum": 0 }, { "const": "max" }] });
        Shape::Value("a number such as `1.0`, or `\"max\"`".into(), schema)
    }

    fn show(&self, value: &Option<f64>) -> Option<String> {
        Some(value.map_or_else(|| "\"max\"".to_owned(), |speed| format!("{speed:?}")))
    }
}
