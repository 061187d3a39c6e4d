//! Options of a format, checked against the format's own list.

use agentwire_core::format::{Format, OptionSpec, Options, WHOLE_NUMBER};
use serde_json::{Value as Json, json};
use toml::de::DeValue;

use super::{
    super::table::{Shape, Value, ValueType},
    did_you_mean,
};

/// A table of format options, as the `KEY=VALUE` pairs of `-O`.
pub(in super::super) struct FormatOptions(pub(in super::super) Option<&'static Format>);

impl FormatOptions {
    fn specs(&self) -> &'static [OptionSpec] {
        self.0.map_or(&[], |format| format.options)
    }
}

impl ValueType<Vec<String>> for FormatOptions {
    fn read(&self, value: &Value<'_>) -> Option<Vec<String>> {
        let mut pairs = Vec::new();
        let mut is_valid = true;
        for (name, span, value) in value.entries("a table such as `{ steps = \"none\" }`")? {
            let text = match value.inner.get_ref() {
                DeValue::String(text) => text.to_string(),
                DeValue::Boolean(flag) => flag.to_string(),
                DeValue::Integer(number) => number.to_string(),
                _ => {
                    value.wrong_type("text", None);
                    is_valid = false;
                    continue;
                }
            };
            let pair = format!("{name}={text}");
            let names: Vec<_> = self.specs().iter().map(|spec| spec.name).collect();
            match self.specs().iter().find(|spec| spec.name == name) {
                // An invalid format is already reported, so its options cannot be checked.
                None if self.0.is_none() => {}
                None => {
                    let format = self.0.map_or("", |format| format.name);
                    let message = format!("unknown option `{name}` of format `{format}`");
                    let hint = if names.is_empty() {
                        "it has no options".into()
                    } else {
                        did_you_mean(name, &names, "known")
                    };
                    value.reject_at(span, message, Some(hint));
                    is_valid = false;
                }
                Some(spec) => {
                    if Options::parse([pair.as_str()], self.specs()).is_err() {
                        let hint = did_you_mean(&text, spec.values, "allowed");
                        value.reject(format!("`{}` cannot be `{text}`", value.path), Some(hint));
                        is_valid = false;
                    }
                }
            }
            pairs.push(pair);
        }
        is_valid.then_some(pairs)
    }

    fn shape(&self) -> Shape {
        let words = match self.0 {
            Some(format) => format!("a table of options of the format `{}`", format.name),
            None => "a table of options of the format".to_owned(),
        };
        let any = json!({ "type": ["string", "boolean", "integer"] });
        let schema = match self.0 {
            None => json!({ "type": "object", "additionalProperties": any }),
            Some(format) => {
                let properties: serde_json::Map<_, _> = format
                    .options
                    .iter()
                    .map(|spec| {
                        let mut values: Vec<Json> =
                            spec.values.iter().map(|value| Json::from(*value)).collect();
                        // `true` may be written without quotes.
                        values.extend(
                            spec.values.iter().filter_map(|value| value.parse::<bool>().ok()).map(Json::from),
                        );
                        values.extend(
                            spec.values.iter().filter_map(|value| value.parse::<u64>().ok()).map(Json::from),
                        );
                        let mut schema = match spec.values {
                            [] => any.clone(),
                            [WHOLE_NUMBER] => {
                                json!({ "type": ["integer", "string"], "pattern": "^[+-]?[0-9]+$" })
                            }
                            _ => json!({ "enum": values }),
                        };
                        schema["description"] = spec.about.into();
                        (spec.name.to_owned(), schema)
                    })
                    .collect();
                json!({ "type": "object", "properties": properties, "additionalProperties": false })
            }
        };
        Shape::Value(words, schema)
    }

    fn show(&self, value: &Vec<String>) -> Option<String> {
        value.is_empty().then(|| "{}".to_owned())
    }
}
