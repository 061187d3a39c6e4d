//! JSON Patch (RFC 6902): changes of state and activities.
//!
//! [`Patch`] holds the operations of the wire, including members that the RFC does not define. [`apply`] changes a
//! document, all or nothing, within [`Limits`]; [`apply_to_text`] changes one that is kept as text. [`create_containers`] completes a patch whose containers are missing. [`diff`] finds a patch that is never larger than the whole document.

mod align;
mod apply;
mod containers;
mod diff;
mod error;
mod size;
#[cfg(test)]
mod tests;
mod text;

pub(crate) use self::apply::apply_if;
pub use self::{
    apply::{
        DEFAULT_MAX_OPERATIONS, DEFAULT_MAX_SIZE_GROWTH, DEFAULT_MAX_WORK, Growth, Limits, apply,
        apply_measured,
    },
    containers::create_containers,
    diff::diff,
    error::{PatchError, Reason},
    text::apply_to_text,
};
use crate::json::{Json, Object};

/// Operations in order; may be empty.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Patch(pub Vec<PatchOp>);

/// One operation.
#[derive(Clone, Debug, PartialEq)]
pub struct PatchOp {
    /// The kind of operation.
    pub op: Op,
    /// The target, as a JSON pointer.
    pub path: Box<str>,
    /// The source of a move or copy; carried but meaningless elsewhere.
    pub from: Option<Box<str>>,
    /// The value of an add, replace or test; carried but meaningless elsewhere.
    pub value: Option<Json>,
    /// Members that the RFC does not define; it asks to ignore them, so they are carried.
    pub extra: Option<Object>,
}

/// The six operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are the RFC's")]
pub enum Op {
    Add,
    Remove,
    Replace,
    Move,
    Copy,
    Test,
}

impl PatchOp {
    /// An operation that carries a value.
    #[must_use]
    pub fn with_value(op: Op, path: impl Into<Box<str>>, value: Json) -> Self {
        Self { op, path: path.into(), from: None, value: Some(value), extra: None }
    }

    /// Adds a value.
    #[must_use]
    pub fn add(path: impl Into<Box<str>>, value: Json) -> Self {
        Self::with_value(Op::Add, path, value)
    }

    /// Replaces a value.
    #[must_use]
    pub fn replace(path: impl Into<Box<str>>, value: Json) -> Self {
        Self::with_value(Op::Replace, path, value)
    }

    /// Removes a value.
    #[must_use]
    pub fn remove(path: impl Into<Box<str>>) -> Self {
        Self { op: Op::Remove, path: path.into(), from: None, value: None, extra: None }
    }
}

impl Op {
    /// The operation's name on the wire.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Add => "add",
            Self::Remove => "remove",
            Self::Replace => "replace",
            Self::Move => "move",
            Self::Copy => "copy",
            Self::Test => "test",
        }
    }

    /// The operation of that name.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        Some(match name {
            "add" => Self::Add,
            "remove" => Self::Remove,
            "replace" => Self::Replace,
            "move" => Self::Move,
            "copy" => Self::Copy,
            "test" => Self::Test,
            _ => return None,
        })
    }

    /// Whether the operation needs a `value`.
    #[must_use]
    pub fn needs_value(self) -> bool {
        matches!(self, Self::Add | Self::Replace | Self::Test)
    }

    /// Whether the operation needs a `from`.
    #[must_use]
    pub fn needs_from(self) -> bool {
        matches!(self, Self::Move | Self::Copy)
    }
}

/// Whether `text` is a JSON pointer (RFC 6901).
#[must_use]
pub fn is_pointer(text: &str) -> bool {
    if !text.is_empty() && !text.starts_with('/') {
        return false;
    }
    let mut chars = text.bytes();
    while let Some(byte) = chars.next() {
        if byte == b'~' && !matches!(chars.next(), Some(b'0' | b'1')) {
            return false;
        }
    }
    true
}

/// `key` as one token of a JSON pointer.
#[must_use]
pub fn escape_token(key: &str) -> String {
    key.replace('~', "~0").replace('/', "~1")
}
