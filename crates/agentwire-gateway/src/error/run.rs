//! Reasons why a run failed: those of its agent and its hooks, and those of the gateway.

use agentwire_store::StoreError;

use super::{ApiError, Stopped, UpstreamError, UpstreamErrorKind};
use crate::codes;

/// The reason why a run ends with RUN_ERROR.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum RunFailure {
    /// The agent or a hook failed.
    #[error(transparent)]
    Upstream(#[from] UpstreamError),
    /// The run may not start, for the reason that a request would be refused.
    #[error(transparent)]
    Refused(#[from] Box<ApiError>),
    /// The request has no message that an agent could answer.
    #[error("the request has no message to answer")]
    NoInput,
    /// The gateway is shutting down.
    #[error("the gateway is shutting down")]
    Shutdown,
    /// The thread was deleted.
    #[error("the thread was deleted")]
    ThreadDeleted,
    /// The gateway died during the run, and the agent cannot be reattached to.
    #[error("the gateway died during the run")]
    Lost,
    /// The gateway died during the run, and the replayed events differ from the log. Holds the detail.
    #[error("the gateway died during the run, and the agent does not repeat what it said")]
    Diverged(String),
    /// The store failed. Holds the detail.
    #[error("the store does not answer or is full")]
    Store(String),
    /// A limit of the run was exceeded. Holds the message.
    #[error("{0}")]
    LimitExceeded(String),
    /// The state or conversation of the thread became too large. Holds the message.
    #[error("{0}")]
    ThreadTooLarge(String),
    /// The agent panicked.
    #[error("the agent panicked")]
    Panicked,
}

impl RunFailure {
    /// The stable code of the RUN_ERROR event.
    pub(crate) fn code(&self) -> &str {
        match self {
            Self::Upstream(error) => error.code(),
            Self::Refused(error) => error.code,
            Self::NoInput => codes::NO_INPUT_MESSAGE,
            Self::Shutdown => codes::GATEWAY_SHUTDOWN,
            Self::ThreadDeleted => codes::THREAD_DELETED,
            Self::Lost | Self::Diverged(_) => codes::GATEWAY_LOST,
            Self::Store(_) => codes::STORE_UNAVAILABLE,
            Self::LimitExceeded(_) => codes::LIMIT_EXCEEDED,
            Self::ThreadTooLarge(_) => codes::THREAD_TOO_LARGE,
            Self::Panicked => codes::INTERNAL,
        }
    }

    /// More for the log.
    pub(crate) fn detail(&self) -> Option<&str> {
        match self {
            Self::Upstream(error) => error.detail(),
            Self::Diverged(detail) | Self::Store(detail) => Some(detail),
            _ => None,
        }
    }

    /// Seconds after which a retry may work.
    pub(crate) fn retry_after(&self) -> Option<u64> {
        match self {
            Self::Upstream(error) => error.retry_after(),
            _ => None,
        }
    }

    /// The message for the client; with the agent's own text where `show_errors` allows it.
    pub(crate) fn message(&self, show_errors: bool) -> String {
        match (self, self.detail()) {
            (Self::Upstream(error), Some(detail)) if show_errors && error.may_show_detail() => {
                format!("{self}: {detail}")
            }
            _ => self.to_string(),
        }
    }

    /// True if the agent may still be working on the run and has to be stopped.
    pub(crate) fn leaves_agent_running(&self) -> bool {
        match self {
            Self::Lost | Self::Diverged(_) | Self::ThreadDeleted => true,
            Self::Upstream(error) => *error.kind() == UpstreamErrorKind::UnknownRun,
            _ => false,
        }
    }
}

impl From<&StoreError> for RunFailure {
    fn from(error: &StoreError) -> Self {
        Self::Store(error.to_string())
    }
}

impl From<Stopped> for RunFailure {
    fn from(stopped: Stopped) -> Self {
        Self::Upstream(stopped.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn show_errors_adds_the_detail_of_the_agents_side_only() {
        let message = |error: UpstreamError| RunFailure::from(error.with_detail("secret")).message(true);
        assert_eq!(
            message(UpstreamErrorKind::Connect.into()),
            format!("{}: secret", UpstreamErrorKind::Connect)
        );
        assert_eq!(message(UpstreamError::new(codes::UPSTREAM_FAILED, "it failed")), "it failed: secret");
        assert_eq!(message(UpstreamError::new("MY_CODE", "it failed")), "it failed");
        assert_eq!(message(UpstreamErrorKind::Hook.into()), UpstreamErrorKind::Hook.to_string());
        let hidden = RunFailure::from(UpstreamError::from(UpstreamErrorKind::Connect).with_detail("secret"));
        assert!(!hidden.message(false).contains("secret"));
    }
}
