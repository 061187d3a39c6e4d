//! Types of configuration values, each described in words for error messages and as JSON Schema for editors.
//!
//! This module has the types built from others or from a list of choices; the submodules have the basic ones.

mod format_options;
mod json;
mod number;
mod parse;
mod text;

use std::fmt;

use serde_json::json;
use toml::de::DeValue;

pub(crate) use self::parse::{address, duration, format, level, origin, store, url};
pub(super) use self::{
    format_options::FormatOptions,
    json::{AnyJson, JsonTable, table_to_json},
    number::{Count, Share, Size, Speed},
    text::{
        ADDRESS, ANY_TEXT, ASSIGNMENT, DURATION, DURATION_OR_ZERO, FORMAT, HEADER, HOST, LEVEL, NAME,
        NETWORK, ORIGIN, PATH, POINTER, RATE, ROUTE, StoreAddress, TOOL_PATTERN, TextType, URL, VARIABLE,
    },
};
use super::table::{Shape, Value, ValueType};
use crate::error::nearest;

/// The reason why a text is invalid, and a hint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ValueError {
    pub(crate) message: String,
    pub(crate) hint: Option<String>,
}

impl ValueError {
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), hint: None }
    }

    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

impl fmt::Display for ValueError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        self.hint.iter().try_for_each(|hint| write!(f, "; {hint}"))
    }
}

impl std::error::Error for ValueError {}

fn cannot_be(path: &str, text: &str, why: &str) -> String {
    // Long values are visible in the quoted line; repeating them would hide the reason.
    if text.chars().count() > 60 {
        format!("`{path}`: {why}")
    } else {
        format!("`{path}` cannot be `{text}`: {why}")
    }
}

/// `true` or `false`.
pub(super) struct Bool;

impl ValueType<bool> for Bool {
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

/// A value or `"never"`.
pub(super) struct OrNever<K>(pub(super) K);

impl<T, K: ValueType<T>> ValueType<Option<T>> for OrNever<K> {
    fn read(&self, value: &Value<'_>) -> Option<Option<T>> {
        match value.inner.get_ref() {
            DeValue::String(text) if text == "never" || text == "off" => Some(None),
            DeValue::String(text) if !text.contains(|c: char| c.is_ascii_digit()) => {
                let Shape::Value(words, _) = self.0.shape() else { return None };
                let hint = format!("allowed: {words}, or `\"never\"`");
                value.reject(format!("`{}` cannot be `{text}`", value.path), Some(hint));
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

/// One of a fixed list of words.
pub(super) struct Choice<T: 'static>(pub(super) &'static [(&'static str, T)]);

impl<T> Choice<T> {
    pub(super) fn names(&self) -> Vec<&'static str> {
        self.0.iter().map(|(name, _)| *name).collect()
    }
}

impl<T: Clone + PartialEq> ValueType<T> for Choice<T> {
    fn read(&self, value: &Value<'_>) -> Option<T> {
        let names = self.names();
        let quoted: Vec<_> = names.iter().map(|name| format!("`\"{name}\"`")).collect();
        let text = value.text(&one_of(&quoted))?;
        let found = self.0.iter().find(|(name, _)| *name == text);
        if found.is_none() {
            let message = format!("`{}` cannot be `{text}`", value.path);
            value.reject(message, Some(did_you_mean(text, &names, "allowed")));
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

/// Parses one of a fixed list of words.
pub(crate) fn choice<T: Copy>(words: &[(&str, T)], text: &str) -> Result<T, ValueError> {
    let names: Vec<_> = words.iter().map(|(name, _)| *name).collect();
    let found = words.iter().find(|(name, _)| *name == text).map(|(_, word)| *word);
    found.ok_or_else(|| ValueError::new(did_you_mean(text, &names, "allowed")))
}

fn one_of(names: &[String]) -> String {
    match names {
        [one] => one.clone(),
        [most @ .., last] => format!("{} or {last}", most.join(", ")),
        [] => "nothing".into(),
    }
}

/// A hint with the most similar name and all allowed ones.
pub(super) fn did_you_mean(given: &str, names: &[&str], label: &str) -> String {
    let all = format!("{label}: {}", names.join(", "));
    match nearest(given, names.iter().copied()) {
        Some(near) => format!("did you mean `{near}`? ({all})"),
        None => all,
    }
}

/// A list of values of one type.
pub(super) struct List<K>(pub(super) K, pub(super) &'static str);

impl<T, K: ValueType<T>> ValueType<Vec<T>> for List<K> {
    fn read(&self, value: &Value<'_>) -> Option<Vec<T>> {
        let items = value.items(self.1)?;
        let read: Vec<_> = items.iter().map(|item| self.0.read(item)).collect();
        // All items are read before the result is decided, so that every invalid one is reported.
        read.into_iter().collect()
    }

    fn shape(&self) -> Shape {
        match self.0.shape() {
            Shape::Value(_, schema) => {
                Shape::Value(self.1.to_owned(), json!({ "type": "array", "items": schema }))
            }
            other => Shape::List(Box::new(other)),
        }
    }

    fn show(&self, value: &Vec<T>) -> Option<String> {
        let items: Option<Vec<_>> = value.iter().map(|item| self.0.show(item)).collect();
        Some(format!("[{}]", items?.join(", ")))
    }
}
