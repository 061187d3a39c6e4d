//! The error of a document that does not have the expected shape.

use std::fmt;

/// A malformed document: the location inside it, and the problem found there.
///
/// Boxed, because every field access of a reader returns a `Result` with this error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadError(Box<(String, String)>);

/// The result of reading one event, request or member.
pub type ReadResult<T = ()> = Result<T, ReadError>;

impl ReadError {
    /// An error at a JSON pointer; the empty pointer means the document as a whole.
    #[must_use]
    pub fn new(path: impl Into<String>, problem: impl Into<String>) -> Self {
        Self(Box::new((path.into(), problem.into())))
    }

    /// The error of a document that is not JSON.
    pub(crate) fn invalid_json(error: serde_json::Error) -> Self {
        Self::new("", format!("not valid JSON: {error}"))
    }

    /// The location in the document, as a JSON pointer.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.0.0
    }

    /// The value found and the value expected, as text.
    #[must_use]
    pub fn problem(&self) -> &str {
        &self.0.1
    }
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.path() {
            "" => f.write_str(self.problem()),
            path => write!(f, "at `{path}`: {}", self.problem()),
        }
    }
}

impl std::error::Error for ReadError {}
