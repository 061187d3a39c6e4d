//! The error of a patch that does not apply.

use std::fmt;

use super::{Op, PatchOp};

/// The most characters of a pointer that an error message shows; a pointer can be as long as a frame.
const SHOWN_PATH: usize = 100;

/// A patch that did not apply, and the operation that failed. The document is unchanged.
///
/// Boxed, because every patch returns it in its result and errors are rare.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct PatchError(Box<Failure>);

#[derive(Debug)]
struct Failure {
    index: usize,
    op: Op,
    path: Box<str>,
    reason: Reason,
}

/// The reason why an operation failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Reason {
    /// `path` does not follow RFC 6901.
    #[error("path is not a JSON pointer")]
    NotAPointer,
    /// `from` does not follow RFC 6901.
    #[error("`from` is not a JSON pointer")]
    FromNotAPointer,
    /// A move or copy without `from`.
    #[error("`from` is missing")]
    MissingFrom,
    /// An add, replace or test without `value`.
    #[error("`value` is missing")]
    MissingValue,
    /// There is nothing at `path`.
    #[error("path does not exist")]
    NotFound,
    /// There is nothing at `from`.
    #[error("`from` path `{0}` does not exist")]
    FromNotFound(Box<str>),
    /// The parent of the new value is missing or a scalar.
    #[error("there is no object or array to add to")]
    NoParent,
    /// The last token of `path` is no array index.
    #[error("`{0}` is not an array index")]
    NotAnIndex(Box<str>),
    /// An add beyond the end of an array.
    #[error("index `{index}` is beyond the end of an array of {length}")]
    BeyondEnd {
        /// The given index.
        index: Box<str>,
        /// The number of elements.
        length: usize,
    },
    /// A move of a value into itself.
    #[error("a value cannot be moved into itself")]
    IntoItself,
    /// The value at `path` differs from that of the test.
    #[error("the value is not the one tested for")]
    TestFailed,
    /// The patch is longer than [`Limits::max_operations`](super::Limits::max_operations).
    #[error("more than the {0} operations allowed in one patch")]
    TooManyOperations(usize),
    /// The document grows by more than [`Limits::max_size_growth`](super::Limits::max_size_growth).
    #[error("the document would grow by more than the {0} bytes allowed in one patch")]
    TooLarge(usize),
    /// The document takes more memory than [`Limits::max_footprint_growth`](super::Limits::max_footprint_growth).
    #[error("the document would take more than the {0} bytes of memory allowed in one patch")]
    TooManyValues(usize),
    /// The document nests deeper than [`Limits::max_depth`](super::Limits::max_depth).
    #[error("the document would be nested deeper than {0} levels")]
    TooDeep(usize),
    /// The patch takes more work than [`Limits::max_work`](super::Limits::max_work).
    #[error("the patch moves, copies and compares more than the {0} bytes allowed")]
    TooCostly(usize),
}

impl PatchError {
    pub(super) fn new(index: usize, operation: &PatchOp, reason: Reason) -> Self {
        Self(Box::new(Failure { index, op: operation.op, path: operation.path.clone(), reason }))
    }

    /// The index of the failed operation, from 0.
    #[must_use]
    pub fn index(&self) -> usize {
        self.0.index
    }

    /// The kind of the operation.
    #[must_use]
    pub fn op(&self) -> Op {
        self.0.op
    }

    /// The target of the operation.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.0.path
    }

    /// The reason.
    #[must_use]
    pub fn reason(&self) -> &Reason {
        &self.0.reason
    }

    /// True if the patch takes more work than [`Limits::max_work`](super::Limits::max_work); it might apply.
    #[must_use]
    pub fn is_too_costly(&self) -> bool {
        matches!(self.0.reason, Reason::TooCostly(_))
    }
}

impl PatchError {
    /// True if the document would grow by more than the limits allow.
    #[must_use]
    pub fn is_too_large(&self) -> bool {
        matches!(self.0.reason, Reason::TooLarge(_) | Reason::TooManyValues(_))
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { index, op, path, reason } = self;
        let shown = if path.is_empty() { "\"\"".into() } else { shortened(path) };
        write!(f, "operation {index} (`{} {shown}`): {reason}", op.as_str())
    }
}

/// `path` for a message: shortened, and on one line.
pub(super) fn shortened(path: &str) -> Box<str> {
    let mut shown = String::new();
    let mut chars = path.chars();
    for char in chars.by_ref().take(SHOWN_PATH) {
        if char.is_control() { shown.extend(char.escape_debug()) } else { shown.push(char) }
    }
    if chars.next().is_some() {
        shown.push('…');
    }
    shown.into()
}
