//! The location and kind of an input's problem.

use crate::{
    framing::{Foreign, FrameProblem},
    json::ReadError,
};

/// A problem of an input and its location.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{} {} at byte {offset}: {problem}", .unit, .index + 1)]
pub struct InputError {
    /// The index of the frame, from 0.
    pub index: u64,
    /// The byte offset of the frame in the input.
    pub offset: u64,
    /// The name of a frame in this framing: `line`, `element` or `frame`.
    pub unit: &'static str,
    /// The kind of problem.
    pub problem: InputProblem,
}

/// The kinds of problems of an input.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InputProblem {
    /// The bytes do not hold a frame: too large, truncated or malformed.
    #[error("{0}")]
    Frame(FrameProblem),
    /// There are no frames: the body is not an event stream.
    #[error("{0}")]
    Foreign(Foreign),
    /// The frame does not follow its format.
    #[error("{0}")]
    Event(ReadError),
    /// The last frame of the stream is the start of a JSON text: the stream is truncated.
    #[error("{0}")]
    Incomplete(ReadError),
}

impl InputError {
    /// Whether the frames after this one can be read.
    #[must_use]
    pub fn is_skippable(&self) -> bool {
        !matches!(
            self.problem,
            InputProblem::Foreign(_)
                | InputProblem::Frame(FrameProblem::Truncated)
                | InputProblem::Frame(FrameProblem::Malformed)
        )
    }
}

/// Whether `text` lacks its end to be JSON.
pub(super) fn is_incomplete_json(text: &str) -> bool {
    let ends_early =
        |text: &str| serde_json::from_str::<serde::de::IgnoredAny>(text).is_err_and(|error| error.is_eof());
    // serde_json calls a number that ends behind its sign, point or exponent invalid, unless a digit follows.
    ends_early(text) || ends_early(&format!("{text}0"))
}
