//! Reads a table of the file key by key, and writes down what was asked for.
//!
//! One line of code per key says its name, what it may hold, where it goes and what it is for. Reading follows that
//! line, and so do the JSON Schema and the documentation, which are made by "reading" a table that is not there: what
//! the parser knows and what is written about it cannot differ. A default is whatever the place held before.
//!
//! This is done by hand because serde stops at the first mistake and forgets where a value stood as soon as an enum is
//! tagged; a person with three mistakes wants to see three.

use std::ops::Range;

use serde_json::Value as Json;
use toml::{Spanned, de::DeTable, de::DeValue};

use super::problem::Problems;
use crate::error::nearest;

/// What a value may be, and what becomes of it.
pub(super) trait Kind<T> {
    /// Reads a value. `None` when it was wrong, which has been said then.
    fn read(&self, value: &Value<'_>) -> Option<T>;

    /// What is allowed.
    fn shape(&self) -> Shape;

    /// The value as it would be written, for defaults; `None` if it cannot be.
    fn show(&self, value: &T) -> Option<String>;
}

/// What is known about a key.
#[derive(Debug)]
pub(super) struct Field {
    pub(super) name: &'static str,
    pub(super) about: &'static str,
    pub(super) required: bool,
    /// As it would be written.
    pub(super) default: Option<String>,
    pub(super) shape: Shape,
}

/// What may stand behind a key.
#[derive(Debug)]
pub(super) enum Shape {
    /// One value: in words, and as JSON Schema.
    Value(String, Json),
    /// A table with these keys.
    Table(Vec<Field>),
    /// Tables with these keys, under names of the user's choice.
    Named(Vec<Field>),
    /// A table whose key `tag` says which further keys there are.
    Tagged(&'static str, Vec<Variant>),
    /// Either of them.
    Either(Vec<Self>),
    /// A list of them.
    List(Box<Self>),
}

/// One of the tables that a tag chooses from.
#[derive(Debug)]
pub(super) struct Variant {
    pub(super) name: &'static str,
    pub(super) about: &'static str,
    pub(super) fields: Vec<Field>,
}

/// A table that is being read; without entries it is only described, or absent.
pub(super) struct Table<'t> {
    path: String,
    span: Range<usize>,
    entries: Option<&'t DeTable<'t>>,
    fields: Vec<Field>,
    problems: &'t Problems,
}

/// A value that is being read.
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

    /// The keys that `read` asks for.
    pub(super) fn describe<T>(read: impl FnOnce(&mut Table<'_>) -> T) -> Vec<Field> {
        let problems = Problems::default();
        let mut table =
            Table { path: String::new(), span: 0..0, entries: None, fields: Vec::new(), problems: &problems };
        read(&mut table);
        table.fields
    }

    /// A key that has a default: what `slot` holds.
    pub(super) fn set<T>(
        &mut self,
        name: &'static str,
        kind: &impl Kind<T>,
        slot: &mut T,
        about: &'static str,
    ) {
        self.note(name, about, false, kind.show(slot), kind.shape());
        if let Some(read) = self.get(name).and_then(|value| kind.read(&value)) {
            *slot = read;
        }
    }

    /// A key that may be absent.
    pub(super) fn maybe<T>(
        &mut self,
        name: &'static str,
        kind: &impl Kind<T>,
        about: &'static str,
    ) -> Option<T> {
        self.note(name, about, false, None, kind.shape());
        self.get(name).and_then(|value| kind.read(&value))
    }

    /// A key that must be there.
    pub(super) fn need<T>(
        &mut self,
        name: &'static str,
        kind: &impl Kind<T>,
        about: &'static str,
    ) -> Option<T> {
        self.note(name, about, true, None, kind.shape());
        match self.get(name) {
            Some(value) => kind.read(&value),
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

    /// A table within this one.
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
        self.note(name, about, false, None, Shape::Table(fields));
    }

    /// Tables under names of the user's choice; `read` is called for each in the order of the file.
    pub(super) fn named(
        &mut self,
        name: &'static str,
        about: &'static str,
        describe: impl FnOnce(&mut Table<'_>),
        mut read: impl FnMut(&mut Table<'_>, &str, Range<usize>),
    ) {
        self.note(name, about, false, None, Shape::Named(Table::describe(describe)));
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

    /// Where the value of a key stands, or the table if the key is absent.
    pub(super) fn span_of(&self, name: &str) -> Range<usize> {
        self.get(name).map_or_else(|| self.span.clone(), |value| value.inner.span())
    }

    /// Where the last of these keys stands, each in the table of the one before.
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

    /// Whether there is a table, and not only a description of one.
    pub(super) fn is_there(&self) -> bool {
        self.entries.is_some()
    }

    /// Whether a table within this one is absent or has nothing in it.
    pub(super) fn is_empty(&self, name: &str) -> bool {
        self.get(name)
            .is_none_or(|value| value.inner.get_ref().as_table().is_some_and(|table| table.is_empty()))
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.get(name).is_some()
    }

    /// Something wrong with a key, or with the table if the key is absent.
    pub(super) fn refuse(&self, name: &str, message: impl Into<String>, hint: impl Into<String>) {
        self.problems.add(self.span_of(name), message, Some(hint.into()));
    }

    /// Something wrong at a place that is known otherwise.
    pub(super) fn refuse_at(&self, span: Range<usize>, message: impl Into<String>, hint: Option<String>) {
        self.problems.add(span, message, hint);
    }

    /// The dotted name of the table.
    pub(super) fn path(&self) -> &str {
        &self.path
    }

    /// The value of a key, to be read by hand.
    pub(super) fn get(&self, name: &str) -> Option<Value<'t>> {
        let inner = self.entries?.get(name)?;
        Some(Value { path: self.join(name), inner, problems: self.problems })
    }

    /// Writes down a key that is read by hand.
    pub(super) fn note(
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

    /// Says which keys nobody asked for, and gives what is known about the others.
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
            let hint = match nearest(name, names.iter().copied()) {
                Some(near) => format!("did you mean `{near}`? ({known})"),
                None => known,
            };
            self.problems.add_unknown(
                key.span(),
                name,
                format!("unknown key `{}`{place}", key_text(name)),
                Some(hint),
            );
        }
        self.fields
    }
}

impl<'t> Value<'t> {
    /// Reads the value as a table, and gives what is known about its keys.
    pub(super) fn table<T>(
        &self,
        wanted: &str,
        read: impl FnOnce(&mut Table<'_>) -> T,
    ) -> Option<(T, Vec<Field>)> {
        let DeValue::Table(entries) = self.inner.get_ref() else {
            self.wrong_type(wanted, None);
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

    /// The text of a string; otherwise says that `wanted` was expected.
    pub(super) fn text(&self, wanted: &str) -> Option<&'t str> {
        match self.inner.get_ref() {
            DeValue::String(text) => Some(text.as_ref()),
            _ => {
                self.wrong_type(wanted, None);
                None
            }
        }
    }

    /// The elements of an array; otherwise says that `wanted` was expected.
    pub(super) fn items(&self, wanted: &str) -> Option<Vec<Self>> {
        let DeValue::Array(items) = self.inner.get_ref() else {
            self.wrong_type(wanted, None);
            return None;
        };
        let value = |(index, inner)| Value {
            path: format!("{}[{index}]", self.path),
            inner,
            problems: self.problems,
        };
        Some(items.iter().enumerate().map(value).collect())
    }

    /// The entries of a table under any names; otherwise says that `wanted` was expected.
    pub(super) fn entries(&self, wanted: &str) -> Option<Vec<(&'t str, Range<usize>, Self)>> {
        let DeValue::Table(entries) = self.inner.get_ref() else {
            self.wrong_type(wanted, None);
            return None;
        };
        let entry = |(key, inner): (&'t Spanned<_>, &'t Spanned<_>)| {
            let name: &std::borrow::Cow<'_, str> = key.get_ref();
            let path = format!("{}.{}", self.path, key_text(name));
            (name.as_ref(), key.span(), Value { path, inner, problems: self.problems })
        };
        Some(entries.iter().map(entry).collect())
    }

    /// The value is of another type than `wanted`.
    pub(super) fn wrong_type(&self, wanted: &str, hint: Option<String>) {
        let message = format!("`{}` must be {wanted}, not {}", self.path, type_of(self.inner.get_ref()));
        self.problems.add(self.inner.span(), message, hint);
    }

    /// The value is of the right type and still wrong.
    pub(super) fn refuse(&self, message: impl Into<String>, hint: Option<String>) {
        self.problems.add(self.inner.span(), message, hint);
    }

    /// Something is wrong with a part of the value.
    pub(super) fn refuse_at(&self, span: Range<usize>, message: impl Into<String>, hint: Option<String>) {
        self.problems.add(span, message, hint);
    }
}

/// The type of a value with its article.
pub(super) fn type_of(value: &DeValue<'_>) -> String {
    match value.type_str() {
        kind @ ("array" | "integer") => format!("an {kind}"),
        kind => format!("a {kind}"),
    }
}

/// A key as it would be written.
fn key_text(key: &str) -> String {
    let bare = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    if !key.is_empty() && key.chars().all(bare) { key.to_owned() } else { format!("{key:?}") }
}
