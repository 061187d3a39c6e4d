//! What values may be, in words for people, in JSON Schema for editors.
//!
//! What is made of other kinds, or chosen from what is known, is here; what is read from one value is in the modules.

mod any;
mod number;
mod options;
mod parse;
mod text;

use std::fmt;

use serde_json::json;
use toml::de::DeValue;

pub(crate) use self::parse::{address, format, level, store, url};
pub(super) use self::{
    any::{AnyJson, JsonTable},
    number::{Count, Size, Speed},
    options::OptionsOf,
    text::{
        ADDRESS, ANY_TEXT, ASSIGNMENT, DURATION, DURATION_OR_ZERO, FORMAT, HEADER, LEVEL, NAME, ORIGIN, PATH,
        POINTER, ROUTE, STORE, TOOL_NAMES, Text, URL, VARIABLE,
    },
};
use super::table::{Kind, Shape, Value};
use crate::error::nearest;

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

fn cannot_be(path: &str, text: &str, why: &str) -> String {
    // Long values are in the line that is shown; repeating them hides the reason.
    if text.chars().count() > 60 {
        format!("`{path}`: {why}")
    } else {
        format!("`{path}` cannot be `{text}`: {why}")
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
