//! What values may be: durations, sizes, words from a list, addresses, names, and lists of them.

use std::{fmt, net::SocketAddr, path::PathBuf, time::Duration};

use agentwire_core::format::{FORMATS, Format, OptionSpec, Options, WHOLE_NUMBER};
use reqwest::Url;
use serde_json::{Value as Json, json};
use toml::de::DeValue;

use super::table::{Kind, Shape, Value};
use crate::{cli, error::nearest};

/// Durations beyond this are refused, because adding them to a clock could overflow it.
const LONGEST_DAYS: u64 = 36_500;

/// Why a text was refused, and the likely intention.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    pub(crate) message: String,
    pub(crate) hint: Option<String>,
}

impl Fault {
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), hint: None }
    }

    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        self.hint.iter().try_for_each(|hint| write!(f, "; {hint}"))
    }
}

impl std::error::Error for Fault {}

/// A string that is more than a string.
pub(super) struct Text<T> {
    /// What it is, with its article.
    words: &'static str,
    /// What it looks like, for JSON Schema.
    pattern: Option<&'static str>,
    parse: fn(&str) -> Result<T, Fault>,
    show: fn(&T) -> String,
}

impl<T> Kind<T> for Text<T> {
    fn read(&self, value: &Value<'_>) -> Option<T> {
        if let (true, DeValue::Integer(number)) =
            (self.words.starts_with("a duration"), value.inner.get_ref())
        {
            value.wrong_type(self.words, Some(format!("a duration has a unit: `\"{number}s\"`")));
            return None;
        }
        let text = value.text(self.words)?;
        match (self.parse)(text) {
            Ok(read) => Some(read),
            Err(fault) => {
                value.refuse(cannot_be(&value.path, text, &fault.message), fault.hint);
                None
            }
        }
    }

    fn shape(&self) -> Shape {
        let mut schema = json!({ "type": "string" });
        if let Some(pattern) = self.pattern {
            schema["pattern"] = pattern.into();
        }
        Shape::Value(self.words.to_owned(), schema)
    }

    fn show(&self, value: &T) -> Option<String> {
        Some(format!("{:?}", (self.show)(value)))
    }
}

fn cannot_be(path: &str, text: &str, why: &str) -> String {
    // Long values are in the line that is shown; repeating them hides the reason.
    if text.chars().count() > 60 {
        format!("`{path}`: {why}")
    } else {
        format!("`{path}` cannot be `{text}`: {why}")
    }
}

/// `"30s"`.
pub(super) const DURATION: Text<Duration> = Text {
    words: "a duration such as `\"30s\"`",
    pattern: Some(r"^[0-9]+(ms|s|m|h|d)$"),
    parse: |text| match duration(text)? {
        Duration::ZERO => Err(Fault::new("it must be more than nothing")),
        some => Ok(some),
    },
    show: |value| show_duration(*value),
};

/// `"30s"`, or `"0s"`.
pub(super) const DURATION_OR_ZERO: Text<Duration> = Text { parse: duration, ..DURATION };

/// Where to listen.
pub(super) const ADDRESS: Text<SocketAddr> = Text {
    words: "an address such as `\"127.0.0.1:7117\"`",
    pattern: Some(r"^.+:[0-9]{1,5}$"),
    parse: address,
    show: ToString::to_string,
};

/// The address of a store.
pub(super) const STORE: Text<String> = Text {
    words: "a store: `\"sqlite:PATH\"` or `\"memory:\"`",
    pattern: Some(r"^(memory:|sqlite:.+)$"),
    parse: store,
    show: Clone::clone,
};

/// An address on the web.
pub(super) const URL: Text<String> = Text {
    words: "an http:// or https:// address",
    pattern: Some("^https?://.+"),
    parse: url,
    show: Clone::clone,
};

/// Any text but none.
pub(super) const NAME: Text<String> = Text {
    words: "text",
    pattern: Some("."),
    parse: |text| match text {
        "" => Err(Fault::new("it must not be empty")),
        text => Ok(text.to_owned()),
    },
    show: Clone::clone,
};

/// Any text.
pub(super) const ANY_TEXT: Text<String> =
    Text { words: "text", pattern: None, parse: |text| Ok(text.to_owned()), show: Clone::clone };

/// A file or folder.
pub(super) const PATH: Text<PathBuf> = Text {
    words: "a path",
    pattern: Some("."),
    parse: |text| match text {
        "" => Err(Fault::new("it must not be empty")),
        text => Ok(PathBuf::from(text)),
    },
    show: |path| path.display().to_string(),
};

/// The name of a header, in lower case.
pub(super) const HEADER: Text<String> = Text {
    words: "the name of a header",
    pattern: Some(r"^[A-Za-z0-9!#$%&'*+.^_`|~-]+$"),
    parse: header_name,
    show: Clone::clone,
};

/// The name of an environment variable.
pub(super) const VARIABLE: Text<String> = Text {
    words: "the name of an environment variable",
    pattern: Some("^[^=\\x00]+$"),
    parse: |text| match text {
        text if text.is_empty() || text.contains(['=', '\0']) => {
            Err(Fault::new("that is no name of an environment variable"))
        }
        text => Ok(text.to_owned()),
    },
    show: Clone::clone,
};

/// A JSON pointer.
pub(super) const POINTER: Text<String> = Text {
    words: "a JSON pointer such as `\"/threadId\"`",
    pattern: Some("^/"),
    parse: |text| {
        let escaped = text.split('~').skip(1).all(|rest| rest.starts_with(['0', '1']));
        match text.starts_with('/') && escaped {
            true => Ok(text.to_owned()),
            false if text.starts_with('/') => Err(Fault::new("`~` must be followed by `0` or `1`")),
            false => Err(Fault::new("it must begin with `/`")
                .hint(format!("did you mean `/{}`?", text.replace('.', "/")))),
        }
    },
    show: Clone::clone,
};

/// A web page's origin.
pub(super) const ORIGIN: Text<String> = Text {
    words: "an origin such as `\"https://app.example\"`, or `\"*\"`",
    pattern: Some(r"^(\*|https?://[^/]+)$"),
    parse: origin,
    show: Clone::clone,
};

/// A route of ours.
pub(super) const ROUTE: Text<String> =
    Text { words: "a path such as `\"/agent\"`", pattern: Some("^/"), parse: route, show: Clone::clone };

/// A format that can be read.
pub(super) const FORMAT: Text<&'static Format> = Text {
    words: "a format that `agentwire formats` lists as read",
    pattern: None,
    parse: format,
    show: |format| format.name.to_owned(),
};

/// How much is logged.
pub(super) const LEVEL: Text<String> = Text {
    words: "a level (`\"off\"`, `\"error\"`, `\"warn\"`, `\"info\"`, `\"debug\"`, `\"trace\"`), or several as in `\"info,agentwire_gateway=debug\"`",
    pattern: Some("."),
    parse: level,
    show: Clone::clone,
};

/// `"8MiB"`, or a number of bytes.
pub(super) struct Size;

impl<T: TryFrom<u64> + TryInto<u64> + Copy> Kind<T> for Size {
    fn read(&self, value: &Value<'_>) -> Option<T> {
        const WANTED: &str = "a size such as `\"8MiB\"`";
        let size = match value.inner.get_ref() {
            DeValue::Integer(_) => integer(value)
                .filter(|size| *size > 0)
                .ok_or_else(|| "it must be at least one byte".to_owned()),
            _ => cli::size(value.text(WANTED)?).map(|size| size as u64),
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
                value.refuse(cannot_be(&value.path, &text, &why), None);
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

/// The most of anything that is counted and not only compared: beyond what any machine has, within what every counter
/// takes.
const MOST: u64 = 1 << 31;

/// A whole number from `.0` on.
pub(super) struct Count(pub(super) u64);

impl<T: TryFrom<u64> + TryInto<u64> + Copy> Kind<T> for Count {
    fn read(&self, value: &Value<'_>) -> Option<T> {
        if !matches!(value.inner.get_ref(), DeValue::Integer(_)) {
            value.wrong_type("a whole number", None);
            return None;
        }
        let fits = |number: &u64| (self.0..=MOST).contains(number);
        let number = integer(value).filter(fits).and_then(|number| T::try_from(number).ok());
        if let (None, DeValue::Integer(given)) = (&number, value.inner.get_ref()) {
            let why = match integer(value) {
                Some(number) if number >= self.0 => format!("it must be at most {MOST}"),
                _ => format!("it must be at least {}", self.0),
            };
            value.refuse(format!("`{}` cannot be `{given}`: {why}", value.path), None);
        }
        number
    }

    fn shape(&self) -> Shape {
        Shape::Value(
            "a whole number".into(),
            json!({ "type": "integer", "minimum": self.0, "maximum": MOST }),
        )
    }

    fn show(&self, value: &T) -> Option<String> {
        let number: u64 = (*value).try_into().ok()?;
        Some(number.to_string())
    }
}

fn integer(value: &Value<'_>) -> Option<u64> {
    match value.inner.get_ref() {
        DeValue::Integer(number) => u64::from_str_radix(number.as_str(), number.radix()).ok(),
        _ => None,
    }
}

/// `true` or `false`.
pub(super) struct Flag;

impl Kind<bool> for Flag {
    fn read(&self, value: &Value<'_>) -> Option<bool> {
        match value.inner.get_ref() {
            DeValue::Boolean(flag) => Some(*flag),
            DeValue::String(text) => {
                let hint =
                    matches!(&**text, "true" | "false").then(|| format!("write {text} without quotes"));
                value.wrong_type("`true` or `false`", hint);
                None
            }
            _ => {
                value.wrong_type("`true` or `false`", None);
                None
            }
        }
    }

    fn shape(&self) -> Shape {
        Shape::Value("`true` or `false`".into(), json!({ "type": "boolean" }))
    }

    fn show(&self, value: &bool) -> Option<String> {
        Some(value.to_string())
    }
}

/// A number above zero, or `"max"` for no wait at all.
pub(super) struct Speed;

impl Kind<Option<f64>> for Speed {
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
            value.refuse(format!("`{}` must be more than 0 and finite", value.path), Some(hint));
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

/// What may also be `"never"`.
pub(super) struct OrNever<K>(pub(super) K);

impl<T, K: Kind<T>> Kind<Option<T>> for OrNever<K> {
    fn read(&self, value: &Value<'_>) -> Option<Option<T>> {
        match value.inner.get_ref() {
            DeValue::String(text) if text == "never" || text == "off" => Some(None),
            DeValue::String(text) if !text.contains(|c: char| c.is_ascii_digit()) => {
                let Shape::Value(words, _) = self.0.shape() else { return None };
                let hint = format!("allowed: {words}, or `\"never\"`");
                value.refuse(format!("`{}` cannot be `{text}`", value.path), Some(hint));
                None
            }
            _ => self.0.read(value).map(Some),
        }
    }

    fn shape(&self) -> Shape {
        match self.0.shape() {
            Shape::Value(words, schema) => Shape::Value(
                format!("{words}, or `\"never\"`"),
                json!({ "anyOf": [schema, { "enum": ["never", "off"] }] }),
            ),
            other => other,
        }
    }

    fn show(&self, value: &Option<T>) -> Option<String> {
        match value {
            Some(value) => self.0.show(value),
            None => Some("\"never\"".into()),
        }
    }
}

/// One word of a list.
pub(super) struct Word<T: 'static>(pub(super) &'static [(&'static str, T)]);

impl<T> Word<T> {
    pub(super) fn names(&self) -> Vec<&'static str> {
        self.0.iter().map(|(name, _)| *name).collect()
    }
}

impl<T: Clone + PartialEq> Kind<T> for Word<T> {
    fn read(&self, value: &Value<'_>) -> Option<T> {
        let names = self.names();
        let quoted: Vec<_> = names.iter().map(|name| format!("`\"{name}\"`")).collect();
        let text = value.text(&one_of(&quoted))?;
        let found = self.0.iter().find(|(name, _)| *name == text);
        if found.is_none() {
            let message = format!("`{}` cannot be `{text}`", value.path);
            value.refuse(message, Some(did_you_mean(text, &names, "allowed")));
        }
        found.map(|(_, word)| word.clone())
    }

    fn shape(&self) -> Shape {
        let quoted: Vec<_> = self.names().iter().map(|name| format!("`\"{name}\"`")).collect();
        Shape::Value(one_of(&quoted), json!({ "enum": self.names() }))
    }

    fn show(&self, value: &T) -> Option<String> {
        self.0.iter().find(|(_, word)| word == value).map(|(name, _)| format!("{name:?}"))
    }
}

/// The word of a list that a text is.
pub(crate) fn word<T: Copy>(words: &[(&str, T)], text: &str) -> Result<T, Fault> {
    let names: Vec<_> = words.iter().map(|(name, _)| *name).collect();
    let found = words.iter().find(|(name, _)| *name == text).map(|(_, word)| *word);
    found.ok_or_else(|| Fault::new(did_you_mean(text, &names, "allowed")))
}

fn one_of(names: &[String]) -> String {
    match names {
        [one] => one.clone(),
        [most @ .., last] => format!("{} or {last}", most.join(", ")),
        [] => "nothing".into(),
    }
}

/// The likely intention and everything that is allowed.
pub(super) fn did_you_mean(given: &str, names: &[&str], label: &str) -> String {
    let all = format!("{label}: {}", names.join(", "));
    match nearest(given, names.iter().copied()) {
        Some(near) => format!("did you mean `{near}`? ({all})"),
        None => all,
    }
}

/// Any number of them.
pub(super) struct List<K>(pub(super) K, pub(super) &'static str);

impl<T, K: Kind<T>> Kind<Vec<T>> for List<K> {
    fn read(&self, value: &Value<'_>) -> Option<Vec<T>> {
        let items = value.items(self.1)?;
        let read: Vec<_> = items.iter().map(|item| self.0.read(item)).collect();
        // All are read before one that is wrong spoils the whole, so that every one that is wrong is named.
        read.into_iter().collect()
    }

    fn shape(&self) -> Shape {
        match self.0.shape() {
            Shape::Value(_, schema) => {
                Shape::Value(self.1.to_owned(), json!({ "type": "array", "items": schema }))
            }
            other => other,
        }
    }

    fn show(&self, value: &Vec<T>) -> Option<String> {
        let items: Option<Vec<_>> = value.iter().map(|item| self.0.show(item)).collect();
        Some(format!("[{}]", items?.join(", ")))
    }
}

/// Anything that JSON can say.
pub(super) struct AnyJson;

impl Kind<Json> for AnyJson {
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

/// A table of anything that JSON can say.
pub(super) struct JsonTable;

impl Kind<serde_json::Map<String, Json>> for JsonTable {
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
                value.refuse(format!("`{}` is too large for a number", value.path), None);
            }
            read
        }
        DeValue::Float(number) => {
            let read = number.as_str().parse().ok().and_then(serde_json::Number::from_f64);
            if read.is_none() {
                value.refuse(format!("`{}` must be finite: JSON has no other numbers", value.path), None);
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

/// Options of a format, checked, as the pairs that `-O` takes.
pub(super) struct OptionsOf(pub(super) Option<&'static Format>);

impl OptionsOf {
    fn specs(&self) -> &'static [OptionSpec] {
        self.0.map_or(&[], |format| format.options)
    }
}

impl Kind<Vec<String>> for OptionsOf {
    fn read(&self, value: &Value<'_>) -> Option<Vec<String>> {
        let mut pairs = Vec::new();
        let mut whole = true;
        for (name, span, value) in value.entries("a table such as `{ steps = \"none\" }`")? {
            let text = match value.inner.get_ref() {
                DeValue::String(text) => text.to_string(),
                DeValue::Boolean(flag) => flag.to_string(),
                DeValue::Integer(number) => number.to_string(),
                _ => {
                    value.wrong_type("text", None);
                    whole = false;
                    continue;
                }
            };
            let pair = format!("{name}={text}");
            let known: Vec<_> = self.specs().iter().map(|spec| spec.name).collect();
            match self.specs().iter().find(|spec| spec.name == name) {
                // Without a format there is nothing to check against: it was wrong itself.
                None if self.0.is_none() => {}
                None => {
                    let format = self.0.map_or("", |format| format.name);
                    let message = format!("unknown option `{name}` of format `{format}`");
                    let hint = if known.is_empty() {
                        "it has no options".into()
                    } else {
                        did_you_mean(name, &known, "known")
                    };
                    value.refuse_at(span, message, Some(hint));
                    whole = false;
                }
                Some(spec) => {
                    if Options::parse([pair.as_str()], self.specs()).is_err() {
                        let hint = did_you_mean(&text, spec.values, "allowed");
                        value.refuse(format!("`{}` cannot be `{text}`", value.path), Some(hint));
                        whole = false;
                    }
                }
            }
            pairs.push(pair);
        }
        whole.then_some(pairs)
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

/// `200ms`, `30s`, `5m`, `24h`, `90d`.
pub(crate) fn duration(text: &str) -> Result<Duration, Fault> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = (&text[..digits], text[digits..].trim_start());
    let units = "units: ms, s, m, h, d";
    if number.is_empty() {
        return Err(
            Fault::new("it does not begin with a whole number").hint("write it like `30s` or `200ms`")
        );
    }
    let millis: u64 = match unit {
        "ms" => 1,
        "s" => 1000,
        "m" => 60 * 1000,
        "h" => 3600 * 1000,
        "d" => 24 * 3600 * 1000,
        "" => {
            return Err(
                Fault::new("the unit is missing").hint(format!("did you mean `{number}s`? ({units})"))
            );
        }
        unit if unit.starts_with('.') => {
            return Err(
                Fault::new("it is not a whole number").hint("use a smaller unit, as in `1500ms` for 1.5 s")
            );
        }
        unit => {
            let meant = match unit.to_ascii_lowercase().as_str() {
                "milli" | "millis" | "millisecond" | "milliseconds" | "msec" | "msecs" => Some("ms"),
                "sec" | "secs" | "second" | "seconds" => Some("s"),
                "min" | "mins" | "minute" | "minutes" => Some("m"),
                "hr" | "hrs" | "hour" | "hours" => Some("h"),
                "day" | "days" => Some("d"),
                lower => ["ms", "s", "m", "h", "d"].into_iter().find(|unit| *unit == lower),
            };
            return Err(Fault::new(format!("unknown unit `{unit}`")).hint(match meant {
                Some(meant) => format!("did you mean `{number}{meant}`? ({units})"),
                None => units.to_owned(),
            }));
        }
    };
    let whole = number.parse::<u64>().ok().and_then(|number| number.checked_mul(millis));
    match whole {
        Some(whole) if whole <= LONGEST_DAYS * 24 * 3600 * 1000 => Ok(Duration::from_millis(whole)),
        _ => Err(Fault::new(format!("it is longer than {LONGEST_DAYS} days"))),
    }
}

/// A duration as it is written, in the largest unit that divides it.
pub(super) fn show_duration(duration: Duration) -> String {
    let millis = duration.as_millis();
    let units = [(24 * 3_600_000, "d"), (3_600_000, "h"), (60_000, "m"), (1000, "s")];
    // `24h` reads better than `1d`, `90d` better than `2160h`.
    let unit = units
        .into_iter()
        .find(|(factor, unit)| millis.is_multiple_of(*factor) && (millis > *factor || *unit != "d"));
    match (millis, unit) {
        (0, _) => "0s".into(),
        (_, Some((factor, unit))) => format!("{}{unit}", millis / factor),
        (millis, None) => format!("{millis}ms"),
    }
}

/// An address to listen on.
pub(crate) fn address(text: &str) -> Result<SocketAddr, Fault> {
    // The one name that needs no resolver.
    let resolved = text.strip_prefix("localhost:").map(|port| format!("127.0.0.1:{port}"));
    let port = text.strip_prefix(':').unwrap_or(text);
    resolved.as_deref().unwrap_or(text).parse().map_err(|_| {
        let fault = Fault::new("that is no IP address with a port");
        match port.parse::<u16>() {
            Ok(port) => {
                fault.hint(format!("did you mean `127.0.0.1:{port}`? (`0.0.0.0:{port}` for every network)"))
            }
            Err(_) if text.parse::<std::net::IpAddr>().is_ok() => {
                let address = SocketAddr::new(text.parse().unwrap_or([127, 0, 0, 1].into()), 7117);
                fault.hint(format!("did you mean `{address}`?"))
            }
            Err(_) => fault.hint("write it like `127.0.0.1:7117` or `[::1]:7117`"),
        }
    })
}

/// The address of a store.
pub(crate) fn store(text: &str) -> Result<String, Fault> {
    let allowed = "allowed: `sqlite:PATH`, `memory:`";
    match text {
        "memory:" => Ok(text.to_owned()),
        "sqlite:" | "sqlite" => {
            Err(Fault::new("the path is missing").hint("did you mean `sqlite:agentwire.db`?"))
        }
        _ if text.strip_prefix("sqlite:").is_some_and(|path| !path.contains('\0')) => Ok(text.to_owned()),
        "memory" => Err(Fault::new("that is no address of a store").hint("did you mean `memory:`?")),
        _ if text.starts_with("postgres:") || text.starts_with("postgresql:") => {
            Err(Fault::new("this version has no PostgreSQL store").hint(allowed))
        }
        _ if !text.contains(':') && !text.is_empty() => Err(Fault::new("that is no address of a store")
            .hint(format!("did you mean `sqlite:{text}`? ({allowed})"))),
        _ => Err(Fault::new("that is no address of a store").hint(allowed)),
    }
}

/// An address on the web, as it was written: it may hold places that are filled in later.
pub(crate) fn url(text: &str) -> Result<String, Fault> {
    web(text).map(|_| text.to_owned())
}

fn web(text: &str) -> Result<Url, Fault> {
    match Url::parse(text) {
        Ok(url) if matches!(url.scheme(), "http" | "https") => Ok(url),
        // `localhost:2024` is an address with the scheme `localhost` to the letter of the standard.
        Ok(url) if !text.contains("://") => {
            Err(Fault::new(format!("`{}` is no scheme that can be spoken", url.scheme()))
                .hint(format!("did you mean `http://{text}`?")))
        }
        Ok(url) => Err(Fault::new(format!("`{}` is no scheme that can be spoken", url.scheme()))
            .hint("allowed: http, https")),
        Err(error) => {
            let fault = Fault::new(error.to_string());
            let meant =
                Url::parse(&format!("http://{text}")).is_ok() && !text.contains("://") && !text.is_empty();
            match meant {
                true => Err(fault.hint(format!("did you mean `http://{text}`?"))),
                false => Err(fault.hint("write it like `http://127.0.0.1:8000`")),
            }
        }
    }
}

fn header_name(text: &str) -> Result<String, Fault> {
    match reqwest::header::HeaderName::from_bytes(text.as_bytes()) {
        Ok(name) => Ok(name.as_str().to_owned()),
        Err(_) => {
            Err(Fault::new("that is no name of a header").hint("letters, digits and `-`, as in `x-user-id`"))
        }
    }
}

fn origin(text: &str) -> Result<String, Fault> {
    if text == "*" {
        return Ok(text.to_owned());
    }
    let url = web(text)?;
    let origin = url.origin().ascii_serialization();
    if url.path() == "/"
        && url.query().is_none()
        && url.fragment().is_none()
        && url.username().is_empty()
        && !text.ends_with('/')
    {
        return Ok(origin);
    }
    Err(Fault::new("an origin has no path").hint(format!("did you mean `{origin}`?")))
}

fn route(text: &str) -> Result<String, Fault> {
    let Some(rest) = text.strip_prefix('/') else {
        return Err(Fault::new("it must begin with `/`").hint(format!("did you mean `/{text}`?")));
    };
    if rest.is_empty() {
        return Ok(text.to_owned());
    }
    let mut parameters = Vec::new();
    for segment in rest.strip_suffix('/').unwrap_or(rest).split('/') {
        let parameter = segment.strip_prefix('{').and_then(|segment| segment.strip_suffix('}'));
        let word =
            |text: &str| !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
        match parameter {
            Some(name) if !word(name) => {
                return Err(
                    Fault::new(format!("`{{{name}}}` is no parameter")).hint("write it like `{user}`")
                );
            }
            Some(name) if parameters.contains(&name) => {
                return Err(Fault::new(format!("the parameter `{name}` occurs twice")));
            }
            Some(name) => parameters.push(name),
            None if segment.is_empty() => return Err(Fault::new("it has an empty segment")),
            None if matches!(segment, "." | "..") => {
                return Err(Fault::new(format!("`{segment}` is no segment of a route")));
            }
            None if segment.contains(['{', '}']) => {
                return Err(Fault::new(format!("`{segment}` is neither a word nor a parameter"))
                    .hint("a parameter is a whole segment, as in `/users/{user}/chat`"));
            }
            None if !segment
                .bytes()
                .all(|c| c.is_ascii_alphanumeric() || b"-._~!$&'()+,;=:@%".contains(&c)) =>
            {
                return Err(Fault::new(format!("`{segment}` has characters that a path cannot have")));
            }
            None => {}
        }
    }
    Ok(text.to_owned())
}

/// A format that can be read.
pub(crate) fn format(text: &str) -> Result<&'static Format, Fault> {
    let (name, profile) = text.split_once('@').unwrap_or((text, ""));
    let readable: Vec<_> =
        FORMATS.iter().filter(|format| format.reader.is_some()).map(|format| format.name).collect();
    match Format::find(name) {
        Some(format) if format.reader.is_none() => Err(Fault::new("agentwire can write it, but not read it")
            .hint(format!("formats: {}", readable.join(", ")))),
        Some(format) if !profile.is_empty() && format.profile(profile).is_none() => {
            let known: Vec<_> = format.profiles.iter().map(|profile| profile.name).collect();
            Err(Fault::new(format!("unknown profile `{profile}`"))
                .hint(did_you_mean(profile, &known, "profiles")))
        }
        Some(format) => Ok(format),
        None => Err(Fault::new("there is no such format").hint(did_you_mean(name, &readable, "formats"))),
    }
}

/// How much is logged.
pub(crate) fn level(text: &str) -> Result<String, Fault> {
    const LEVELS: &[&str] = &["off", "error", "warn", "info", "debug", "trace"];
    for directive in text.split(',') {
        let (target, level) = directive.rsplit_once('=').unwrap_or(("x", directive));
        if !LEVELS.contains(&level.trim().to_ascii_lowercase().as_str()) || target.trim().is_empty() {
            return Err(
                Fault::new(format!("`{level}` is no level")).hint(did_you_mean(level, LEVELS, "levels"))
            );
        }
    }
    Ok(text.to_owned())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn durations() {
        let read = |text| duration(text).map_err(|fault| fault.to_string());
        assert_eq!(read("200ms"), Ok(Duration::from_millis(200)));
        assert_eq!(read("30s"), Ok(Duration::from_secs(30)));
        assert_eq!(read("5m"), Ok(Duration::from_secs(300)));
        assert_eq!(read("24h"), Ok(Duration::from_secs(86_400)));
        assert_eq!(read("90d"), Ok(Duration::from_secs(90 * 86_400)));
        assert_eq!(read("0s"), Ok(Duration::ZERO));
        let refused = [
            "",
            "s",
            "30",
            "30x",
            "30sec",
            "5 minutes",
            "1.5s",
            "-3s",
            "+3s",
            "３s",
            "30S",
            "36501d",
            "never",
            "99999999999999999999s",
            "18446744073709551615d",
        ];
        let refused: Vec<_> =
            refused.map(|text| format!("{text}: {}", read(text).expect_err("it is no duration"))).into();
        insta::assert_snapshot!(refused.join("\n"));
    }

    proptest! {
        #[test]
        fn a_shown_duration_reads_back(millis in 0u64..LONGEST_DAYS * 86_400_000) {
            let value = Duration::from_millis(millis);
            prop_assert_eq!(duration(&show_duration(value)), Ok(value));
        }

        #[test]
        fn no_text_breaks_a_parser(text in ".{0,40}") {
            let _ = (duration(&text), address(&text), store(&text), url(&text), origin(&text));
            let _ = (route(&text), format(&text), level(&text), header_name(&text), cli::size(&text));
        }
    }

    #[test]
    fn the_likely_intention_of_an_address() {
        let read = |text| address(text).map_err(|fault| fault.hint.unwrap_or_default());
        assert_eq!(read("localhost:80"), Ok(([127, 0, 0, 1], 80).into()));
        assert_eq!(
            read(":7117").unwrap_err(),
            "did you mean `127.0.0.1:7117`? (`0.0.0.0:7117` for every network)"
        );
        assert_eq!(read("::1").unwrap_err(), "did you mean `[::1]:7117`?");
        assert_eq!(read("example.org:80").unwrap_err(), "write it like `127.0.0.1:7117` or `[::1]:7117`");
    }
}
