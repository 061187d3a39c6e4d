//! Errors of agents, and their conversion to [`UpstreamError`].

use agentwire_core::{json::Unfit, patch::PatchError};

use crate::error::{Stopped, UpstreamError, UpstreamErrorKind, causes};

/// Any error of an agent; `?` converts every error to it.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// The reason why an event could not be emitted.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EmitError {
    /// The run was stopped.
    #[error(transparent)]
    Stopped(#[from] Stopped),
    /// The value cannot be sent, such as one that is nested too deeply.
    #[error("a value that cannot be sent")]
    Value(#[from] Unfit),
    /// The change does not apply to the state or the activity, which is unchanged.
    #[error("a change that does not apply")]
    Patch(#[from] PatchError),
    /// An activity that is not an object.
    #[error("the content of activity `{0}` is not an object")]
    NotAnObject(Box<str>),
    /// The target of an append is not an array.
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
    /// An [`UpstreamError`] is kept. The text of any other error is not for the client: it becomes the detail for the log.
    fn from(error: BoxError) -> Self {
        let error = match error.downcast::<Self>() {
            Ok(error) => return *error,
            Err(error) => error,
        };
        if matches!(error.downcast_ref(), Some(EmitError::Stopped(_))) || error.is::<Stopped>() {
            return Stopped.into();
        }
        Self::from(UpstreamErrorKind::Failed("the agent failed".into())).with_detail(causes(&*error))
    }
}
