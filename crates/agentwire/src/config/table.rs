//! Reads tables of the file key by key and records the declared keys.
//!
//! One call per key declares its name, type, target and description. The parser, the JSON Schema and the documentation
//! all use these calls: the latter two "read" an absent table, so that they cannot differ from the parser. The default
//! of a key is the value that its target had before.
//!
//! Written by hand because serde stops at the first error and loses positions inside tagged enums; a file with three
//! errors must report all three.

use std::ops::Range;

use serde_json::Value as Json;
use toml::{Spanned, de::DeTable, de::DeValue};

use super::problem::{Problems, UnknownKey};
use crate::error::{is_one_letter_off, nearest};

/// The type of a value: reads, describes and formats it.
pub(super) trait ValueType<T> {
    /// Reads a value. `None` if it is invalid; the problem is then recorded.
    fn read(&self, value: &Value<'_>) -> Option<T>;

    /// The allowed values.
    fn shape(&self) -> Shape;

    /// The value in TOML syntax, for defaults; `None` if it has no short form.
    fn show(&self, value: &T) -> Option<String>;
}

/// A declared key.
#[derive(Debug)]
pub(super) struct Field {
    pub(super) name: &'static str,
    pub(super) about: &'static str,
    pub(super) required: bool,
    /// In TOML syntax.
    pub(super) default: Option<String>,
    pub(super) shape: Shape,
}

/// The allowed values of a key.
#[derive(Debug)]
pub(super) enum Shape {
    /// One value: described in words and as JSON Schema.
    Value(String, Json),
    /// A table with these keys.
    Table(Vec<Field>),
    /// Tables with these keys, under arbitrary names.
    Named(Vec<Field>),
    /// A table whose other keys depend on the value of the key `tag`.
    Tagged(&'static str, Vec<Variant>),
    /// One of several shapes.
    Either(Vec<Self>),
    /// A list of values of one shape.
    List(Box<Self>),
}

/// The keys for one value of a tag.
#[derive(Debug)]
pub(super) struct Variant {
    pub(super) name: &'static str,
    pub(super) about: &'static str,
    pub(super) fields: Vec<Field>,
}

/// A table being read. Without entries it is absent or only described.
pub(super) struct Table<'t> {
    path: String,
    span: Range<usize>,
    entries: Option<&'t DeTable<'t>>,
    fields: Vec<Field>,
    problems: &'t Problems,
}

/// A value being read.
pub(super) struct Value<'t> {
    pub(super) path: String,
    pub(super) inner: &'t Spanned<DeValue<'t>>,
    problems: &'t Problems,
}

impl<'t> Table<'t> {
    /// The whole file.
    pub(super) fn root(entries: &'t DeTable<'t>, problems: &'t Problems) -> Self {
        Self { path: String::new(), span: 0..0, entries: Some(entries), fields: Vec::new(), problems }
    }

    /// The keys that `read` declares.
    pub(super) fn describe<T>(read: impl FnOnce(&mut Table<'_>) -> T) -> Vec<Field> {
        let problems = Problems::default();
        let mut table =
            Table { path: String::new(), span: 0..0, entries: None, fields: Vec::new(), problems: &problems };
        read(&mut table);
        table.fields
    }

    /// Reads a key with a default, the previous value of `slot`.
    pub(super) fn set<T>(
        &mut self,
        name: &'static str,
        value_type: &impl ValueType<T>,
        slot: &mut T,
        about: &'static str,
    ) {
        self.record(name, about, false, value_type.show(slot), value_type.shape());
        if let Some(read) = self.get(name).and_then(|value| value_type.read(&value)) {
            *slot = read;
        }
    }

    /// Reads a key without a default.
    pub(super) fn optional<T>(
        &mut self,
        name: &'static str,
        value_type: &impl ValueType<T>,
        about: &'static str,
    ) -> Option<T> {
        self.record(name, about, false, None, value_type.shape());
        self.get(name).and_then(|value| value_type.read(&value))
    }

    /// Reads a key that must be present.
    pub(super) fn required<T>(
        &mut self,
        name: &'static str,
        value_type: &impl ValueType<T>,
        about: &'static str,
    ) -> Option<T> {
        self.record(name, about, true, None, value_type.shape());
        match self.get(name) {
            Some(value) => value_type.read(&value),
            None => {
                if self.entries.is_some() {
                    let place = if self.path.is_empty() { "the file" } else { &format!("`{}`", self.path) };
                    let hint = format!("`{name}`: {about}");
                    self.problems.add(
                        self.span.clone(),
                        format!("{place} lacks the key `{name}`"),
                        Some(hint),
                    );
                }
                None
            }
        }
    }

    /// Reads a nested table.
    pub(super) fn table(
        &mut self,
        name: &'static str,
        about: &'static str,
        read: impl FnOnce(&mut Table<'_>),
    ) {
        let value = self.get(name);
        let fields = match &value {
            Some(value) => value.table("a table", read).map_or_else(Vec::new, |(_, fields)| fields),
            None => {
                let (path, problems) = (self.join(name), self.problems);
                let mut table = Table { path, span: 0..0, entries: None, fields: Vec::new(), problems };
                read(&mut table);
                table.fields
            }
        };
        self.record(name, about, false, None, Shape::Table(fields));
    }

    /// Reads tables under arbitrary names; calls `read` for each in the order of the file.
    pub(super) fn named_tables(
        &mut self,
        name: &'static str,
        about: &'static str,
        describe: impl FnOnce(&mut Table<'_>),
        mut read: impl FnMut(&mut Table<'_>, &str, Range<usize>),
    ) {
        self.record(name, about, false, None, Shape::Named(Table::describe(describe)));
        let Some(value) = self.get(name) else { return };
        let DeValue::Table(entries) = value.inner.get_ref() else {
            value.wrong_type("a table of tables", None);
            return;
        };
        let mut entries: Vec<_> = entries.iter().collect();
        entries.sort_by_key(|(key, _)| key.span().start);
        for (key, inner) in entries {
            let path = format!("{}.{}", value.path, key_text(key.get_ref()));
            Value { path, inner, problems: self.problems }
                .table("a table", |table| read(table, key.get_ref(), key.span()));
        }
    }

    /// Position of the value of a key, or of the table if the key is absent.
    pub(super) fn span_of(&self, name: &str) -> Range<usize> {
        self.get(name).map_or_else(|| self.span.clone(), |value| value.inner.span())
    }

    /// Position of the value at a path of keys; of the last existing one if the path ends early.
    pub(super) fn span_at(&self, keys: &[&str]) -> Range<usize> {
        let mut span = self.span.clone();
        let mut entries = self.entries;
        for key in keys {
            let Some(value) = entries.and_then(|entries| entries.get(*key)) else { break };
            span = value.span();
            entries = value.get_ref().as_table();
        }
        span
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.get(name).is_some()
    }

    /// Records a problem at a key, or at the table if the key is absent.
    pub(super) fn reject(&self, name: &str, message: impl Into<String>, hint: impl Into<String>) {
        self.problems.add(self.span_of(name), message, Some(hint.into()));
    }

    /// Records a problem at a position.
    pub(super) fn reject_at(&self, span: Range<usize>, message: impl Into<String>, hint: Option<String>) {
        self.problems.add(span, message, hint);
    }

    /// The dotted path of the table.
    pub(super) fn path(&self) -> &str {
        &self.path
    }

    /// The value of a key.
    pub(super) fn get(&self, name: &str) -> Option<Value<'t>> {
        let inner = self.entries?.get(name)?;
        Some(Value { path: self.join(name), inner, problems: self.problems })
    }

    /// Declares a key.
    pub(super) fn record(
        &mut self,
        name: &'static str,
        about: &'static str,
        required: bool,
        default: Option<String>,
        shape: Shape,
    ) {
        debug_assert!(self.fields.iter().all(|field| field.name != name), "`{name}` is read twice");
        self.fields.push(Field { name, about, required, default, shape });
    }

    fn join(&self, name: &str) -> String {
        if self.path.is_empty() { name.to_owned() } else { format!("{}.{name}", self.path) }
    }

    /// Records a problem for every undeclared key; returns the declared ones.
    pub(super) fn finish(self) -> Vec<Field> {
        let names: Vec<_> = self.fields.iter().map(|field| field.name).collect();
        for (key, _) in self.entries.into_iter().flatten() {
            let name = key.get_ref();
            if names.contains(&name.as_ref()) {
                continue;
            }
            let place = if self.path.is_empty() { String::new() } else { format!(" in `{}`", self.path) };
            let known = match names.as_slice() {
                [] => "no keys are known here".to_owned(),
                names => format!("known here: {}", names.join(", ")),
            };
            let near = nearest(name, names.iter().copied());
            let is_misspelled = near.is_some_and(|near| is_one_letter_off(name, near));
            let hint = match near {
                Some(near) => format!("did you mean `{near}`? ({known})"),
                None => known,
            };
            self.problems.add_unknown(
                key.span(),
                UnknownKey { table: self.path.clone(), key: name.to_string(), is_misspelled },
                format!("unknown key `{}`{place}", key_text(name)),
                Some(hint),
            );
        }
        self.fields
    }
}

impl<'t> Value<'t> {
    /// Reads the value as a table; returns the result and the declared keys.
    pub(super) fn table<T>(
        &self,
        expected: &str,
        read: impl FnOnce(&mut Table<'_>) -> T,
    ) -> Option<(T, Vec<Field>)> {
        let DeValue::Table(entries) = self.inner.get_ref() else {
            self.wrong_type(expected, None);
            return None;
        };
        let mut table = Table {
            path: self.path.clone(),
            span: self.inner.span(),
            entries: Some(entries),
            fields: Vec::new(),
            problems: self.problems,
        };
        let result = read(&mut table);
        Some((result, table.finish()))
    }

    /// The text of a string; for other types, records that `expected` is required.
    pub(super) fn text(&self, expected: &str) -> Option<&'t str> {
        match self.inner.get_ref() {
            DeValue::String(text) => Some(text.as_ref()),
            _ => {
                self.wrong_type(expected, None);
                None
            }
        }
    }

    /// The elements of an array; for other types, records that `expected` is required.
    pub(super) fn items(&self, expected: &str) -> Option<Vec<Self>> {
        let DeValue::Array(items) = self.inner.get_ref() else {
            self.wrong_type(expected, None);
            return None;
        };
        let value = |(index, inner)| Value {
            path: format!("{}[{index}]", self.path),
            inner,
            problems: self.problems,
        };
        Some(items.iter().enumerate().map(value).collect())
    }

    /// The entries of a table; for other types, records that `expected` is required.
    pub(super) fn entries(&self, expected: &str) -> Option<Vec<(&'t str, Range<usize>, Self)>> {
        let DeValue::Table(entries) = self.inner.get_ref() else {
            self.wrong_type(expected, None);
            return None;
        };
        let entry = |(key, inner): (&'t Spanned<_>, &'t Spanned<_>)| {
            let name: &std::borrow::Cow<'_, str> = key.get_ref();
            let path = format!("{}.{}", self.path, key_text(name));
            (name.as_ref(), key.span(), Value { path, inner, problems: self.problems })
        };
        Some(entries.iter().map(entry).collect())
    }

    /// Records that the type of the value differs from `expected`.
    pub(super) fn wrong_type(&self, expected: &str, hint: Option<String>) {
        let message = format!("`{}` must be {expected}, not {}", self.path, type_of(self.inner.get_ref()));
        self.problems.add(self.inner.span(), message, hint);
    }

    /// Records a problem with the value.
    pub(super) fn reject(&self, message: impl Into<String>, hint: Option<String>) {
        self.problems.add(self.inner.span(), message, hint);
    }

    /// Records a problem with a part of the value.
    pub(super) fn reject_at(&self, span: Range<usize>, message: impl Into<String>, hint: Option<String>) {
        self.problems.add(span, message, hint);
    }
}

/// The name of the TOML type with its article.
pub(super) fn type_of(value: &DeValue<'_>) -> String {
    match value.type_str() {
        kind @ ("array" | "integer") => format!("an {kind}"),
        kind => format!("a {kind}"),
    }
}

/// A key in TOML syntax.
fn key_text(key: &str) -> String {
    let is_bare = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    if !key.is_empty() && key.chars().all(is_bare) { key.to_owned() } else { format!("{key:?}") }
}
