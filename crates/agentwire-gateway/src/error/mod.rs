//! Errors: responses to clients, failures of the agent's side, reasons why a run failed.
//!
//! Each of them is typed up to the edge, where its stable code (see [`crate::codes`]) and its message are made.

mod api;
mod run;
mod upstream;

pub use self::{
    api::ApiError,
    upstream::{Truncation, UpstreamError, UpstreamErrorKind, UpstreamTimeout},
};
pub(crate) use self::{api::ResponseCode, run::RunFailure};
