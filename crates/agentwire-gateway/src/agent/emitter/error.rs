//! What can go wrong in an agent, and what becomes of it.

use agentwire_core::{json::Unfit, patch::PatchError};

use super::super::Stopped;
use crate::error::{UpstreamError, UpstreamErrorKind, causes};

/// Anything that can go wrong in an agent; `?` makes it from every error.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Why something could not be emitted.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EmitError {
    /// The run was stopped.
    #[error(transparent)]
    Stopped(#[from] Stopped),
    /// The value cannot be carried.
    #[error("a value that cannot be sent")]
    Value(#[from] Unfit),
    /// The change does not apply to the state or the activity, which is as it was.
    #[error("a change that does not apply")]
    Patch(#[from] PatchError),
    /// An activity that is not an object.
    #[error("the content of activity `{0}` is not an object")]
    NotAnObject(Box<str>),
    /// Something was to be appended to what is not an array.
    #[error("there is no array at `{0}` to append to")]
    NotAnArray(Box<str>),
}

impl From<EmitError> for UpstreamError {
    fn from(error: EmitError) -> Self {
        match error {
            EmitError::Stopped(stopped) => stopped.into(),
            other => Self::from(BoxError::from(other)),
        }
    }
}

impl From<BoxError> for UpstreamError {
    /// A failure stays what it is. What else can go wrong is nothing for the person at the other end: it goes to the log.
    fn from(error: BoxError) -> Self {
        let error = match error.downcast::<Self>() {
            Ok(failure) => return *failure,
            Err(error) => error,
        };
        if matches!(error.downcast_ref(), Some(EmitError::Stopped(_))) || error.is::<Stopped>() {
            return Stopped.into();
        }
        Self::from(UpstreamErrorKind::Failed("the agent failed".into())).with_detail(causes(&*error))
    }
}
