//! Errors: responses to clients, failures of the agent's side, reasons why a run failed.
//!
//! Each of them is typed up to the edge, where its stable code (see [`crate::codes`]) and its message are made.

mod api;
mod run;
mod upstream;

use std::error::Error;

pub use self::{
    api::ApiError,
    upstream::{Truncation, UpstreamError, UpstreamErrorKind, UpstreamTimeout},
};
pub(crate) use self::{
    api::{ERROR_CODE, RateState, ResponseCode, ResponseSentence},
    run::RunFailure,
};

/// The run was stopped; its events are not read any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the run was stopped")]
pub struct Stopped;

/// The causes of an error, the direct one first.
pub(crate) fn sources<'e>(error: &'e dyn Error) -> impl Iterator<Item = &'e (dyn Error + 'static)> {
    std::iter::successors(error.source(), |&error| error.source())
}

/// The text of an error and of all its causes.
pub(crate) fn causes(error: &dyn Error) -> String {
    let mut text = error.to_string();
    for cause in sources(error) {
        text.push_str(": ");
        text.push_str(&cause.to_string());
    }
    text
}
