//! Arbitrary JSON values that are passed on unchanged.

use serde_json::{Value as Json, json};
use toml::de::{DeTable, DeValue};

use super::{
    super::table::{Shape, Value, ValueType},
    number::integer,
};

/// Any JSON value.
pub(in super::super) struct AnyJson;

impl ValueType<Json> for AnyJson {
    fn read(&self, value: &Value<'_>) -> Option<Json> {
        json(value)
    }

    fn shape(&self) -> Shape {
        Shape::Value("anything".into(), json!({}))
    }

    fn show(&self, value: &Json) -> Option<String> {
        Some(value.to_string())
    }
}

/// A table of arbitrary JSON values.
pub(in super::super) struct JsonTable;

impl ValueType<serde_json::Map<String, Json>> for JsonTable {
    fn read(&self, value: &Value<'_>) -> Option<serde_json::Map<String, Json>> {
        let entries = value.entries("a table")?;
        let read: Vec<_> =
            entries.iter().map(|(name, _, value)| Some(((*name).to_owned(), json(value)?))).collect();
        read.into_iter().collect()
    }

    fn shape(&self) -> Shape {
        Shape::Value("a table of anything".into(), json!({ "type": "object" }))
    }

    fn show(&self, value: &serde_json::Map<String, Json>) -> Option<String> {
        value.is_empty().then(|| "{}".to_owned())
    }
}

fn json(value: &Value<'_>) -> Option<Json> {
    match value.inner.get_ref() {
        DeValue::String(text) => Some(Json::from(text.as_ref())),
        DeValue::Boolean(flag) => Some(Json::from(*flag)),
        DeValue::Datetime(time) => Some(Json::from(time.to_string())),
        DeValue::Integer(number) => {
            let signed = i64::from_str_radix(number.as_str(), number.radix()).ok().map(Json::from);
            let read = signed.or_else(|| integer(value).map(Json::from));
            if read.is_none() {
                value.reject(format!("`{}` is too large for a number", value.path), None);
            }
            read
        }
        DeValue::Float(number) => {
            let read = number.as_str().parse().ok().and_then(serde_json::Number::from_f64);
            if read.is_none() {
                value.reject(format!("`{}` must be finite: JSON has no other numbers", value.path), None);
            }
            read.map(Json::Number)
        }
        DeValue::Array(_) => {
            let read: Vec<_> = value.items("an array")?.iter().map(json).collect();
            read.into_iter().collect::<Option<Vec<_>>>().map(Json::Array)
        }
        DeValue::Table(_) => JsonTable.read(value).map(Json::Object),
    }
}

/// A table as JSON; `None` if a number is too large.
pub(in super::super) fn table_to_json(table: &DeTable<'_>) -> Option<Json> {
    let members = table.iter().map(|(key, value)| Some((key.get_ref().to_string(), plain(value.get_ref())?)));
    Some(Json::Object(members.collect::<Option<_>>()?))
}

fn plain(value: &DeValue<'_>) -> Option<Json> {
    Some(match value {
        DeValue::String(text) => Json::from(text.as_ref()),
        DeValue::Boolean(flag) => Json::from(*flag),
        DeValue::Datetime(time) => Json::from(time.to_string()),
        DeValue::Integer(number) => Json::from(i64::from_str_radix(number.as_str(), number.radix()).ok()?),
        DeValue::Float(number) => Json::from(number.as_str().parse::<f64>().ok()?),
        DeValue::Array(items) => {
            Json::Array(items.iter().map(|item| plain(item.get_ref())).collect::<Option<_>>()?)
        }
        DeValue::Table(table) => table_to_json(table)?,
    })
}
