//! Failures of the agent's side, and of hooks.

use std::{borrow::Cow, error::Error, fmt, time::Duration};

use agentwire_core::framing::FrameProblem;
use axum::http::StatusCode;

use super::Stopped;
use crate::codes;

/// The reason why an agent or a hook could not finish its part of a run.
///
/// [`Display`](fmt::Display) gives the message for the client: it never contains text of the agent's side. That text is
/// the [detail](Self::detail), which goes to the log.
///
/// ```
/// use agentwire_gateway::{UpstreamError, UpstreamErrorKind, codes};
///
/// let error = UpstreamError::new("NO_CREDIT", "the account is empty").with_detail("account 7");
/// assert_eq!((error.code(), error.to_string().as_str()), ("NO_CREDIT", "the account is empty"));
///
/// let error = UpstreamError::from(UpstreamErrorKind::Connect);
/// assert_eq!(error.code(), codes::UPSTREAM_UNREACHABLE);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UpstreamError(Box<Parts>);

/// Boxed: an error is rare, and every `Result` on the way of an event has room for one.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Parts {
    kind: UpstreamErrorKind,
    detail: Option<String>,
    retry_after: Option<u64>,
}

/// The kinds of [`UpstreamError`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum UpstreamErrorKind {
    /// The agent's server refused the connection or was not found.
    #[error("the agent's server could not be reached")]
    Connect,
    /// The agent is not called, because it could not be reached several times in a row.
    #[error("the agent's server could not be reached lately and is not called for a while")]
    Unavailable,
    /// The agent's command could not be started.
    #[error("the agent's command could not be started")]
    Spawn,
    /// A timeout expired.
    #[error(transparent)]
    Timeout(UpstreamTimeout),
    /// The agent's server responded with an error status.
    #[error("the agent's server answered {0}")]
    Status(StatusCode),
    /// The agent's server has no such app, graph or assistant: status 404.
    #[error("the agent's server knows no {0} (404)")]
    UnknownTarget(Box<str>),
    /// The agent's server rejected the run request: status 422.
    #[error(
        "the agent's server refused the run: an unknown graph, or input that the graph does not take (422)"
    )]
    InvalidRun,
    /// Another run has the thread on the agent's server: status 409.
    #[error("another run has the thread on the agent's server")]
    ThreadBusy,
    /// The run to reattach to does not exist on the agent's server.
    #[error("the agent's server does not know the run")]
    UnknownRun,
    /// The response is not HTTP.
    #[error("the agent's server does not speak HTTP")]
    NotHttp,
    /// The response or output is not an event stream. Holds the message.
    #[error("{0}")]
    BadContent(Cow<'static, str>),
    /// A frame cannot be decoded.
    #[error("frame {frame} at byte {offset} of the agent's stream {}", describe(.problem))]
    MalformedFrame {
        /// The frame's number, counted from 1.
        frame: u64,
        /// The offset of its first byte in the stream.
        offset: u64,
        /// The framing error; none if the framing is right and the payload is malformed.
        problem: Option<FrameProblem>,
    },
    /// A response body other than a stream is malformed. Names the subject.
    #[error("{0} is malformed")]
    MalformedBody(Cow<'static, str>),
    /// The stream ended before its run.
    #[error(transparent)]
    Truncated(Truncation),
    /// A size limit was exceeded. Holds the message.
    #[error("{0}")]
    LimitExceeded(Box<str>),
    /// The agent failed without a code of its own. Holds the message.
    #[error("{0}")]
    Failed(Cow<'static, str>),
    /// The request cannot be fulfilled for this agent. Holds the message.
    #[error("{0}")]
    Unsupported(Cow<'static, str>),
    /// An error of the gateway itself. Holds the message.
    #[error("{0}")]
    Internal(Cow<'static, str>),
    /// A hook refused the run. Holds the hook's message.
    #[error("{0}")]
    Refused(Box<str>),
    /// A hook failed, panicked or took too long.
    #[error("a hook of the gateway failed; its log has more")]
    Hook,
    /// The run was stopped.
    #[error(transparent)]
    Stopped(Stopped),
    /// A failure that the agent names itself.
    #[error("{message}")]
    Agent {
        /// Its code.
        code: Box<str>,
        /// The message for the client.
        message: Box<str>,
    },
}

/// The timeouts that can expire while an agent works.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UpstreamTimeout {
    /// The connection was not established in time.
    #[error("the connection to the agent's server could not be made within {0:?}")]
    Connect(Duration),
    /// The first byte or event did not arrive in time.
    #[error("the agent did not begin to answer within {0:?}")]
    FirstByte(Duration),
    /// The time between two bytes or events was too long.
    #[error("the agent was silent for {0:?}")]
    Idle(Duration),
    /// The run took too long in total.
    #[error("the run took longer than it may")]
    Total,
    /// The next native event did not arrive, or did not pass its hook, in time.
    #[error("the agent's next event was not there within {0:?}")]
    NativeEvent(Duration),
}

/// The ways in which a stream can end before its run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Truncation {
    /// The stream was closed without a terminal event.
    #[error("the agent's stream ended before its run did")]
    Stream,
    /// The stream was closed before the first event.
    #[error("the agent's stream ended before it said anything")]
    Empty,
    /// The connection broke within the stream.
    #[error("the connection to the agent broke before its run ended")]
    Connection,
    /// The connection was closed before the head of the response.
    #[error("the agent's server hung up before it answered")]
    Response,
    /// The stream ended within a frame.
    #[error("frame {frame} at byte {offset} of the agent's stream {}", FrameProblem::Truncated)]
    Frame {
        /// The frame's number, counted from 1.
        frame: u64,
        /// The offset of its first byte in the stream.
        offset: u64,
    },
    /// The format reader found the end missing. Holds its message.
    #[error("{0}")]
    Reader(Box<str>),
}

impl UpstreamError {
    /// A failure that the agent names itself.
    #[must_use]
    pub fn new(code: impl Into<Box<str>>, message: impl Into<Box<str>>) -> Self {
        UpstreamErrorKind::Agent { code: code.into(), message: message.into() }.into()
    }

    /// The same error with a detail for the log.
    #[must_use]
    pub fn with_detail(mut self, detail: impl Into<String>) -> Self {
        self.0.detail = Some(detail.into());
        self
    }

    /// The same error with a time in seconds after which a retry may work.
    #[must_use]
    pub fn with_retry_after(mut self, seconds: Option<u64>) -> Self {
        self.0.retry_after = seconds;
        self
    }

    /// The same error as another kind; detail and retry time stay.
    #[must_use]
    pub fn with_kind(mut self, kind: UpstreamErrorKind) -> Self {
        self.0.kind = kind;
        self
    }

    /// The kind of failure.
    #[must_use]
    pub fn kind(&self) -> &UpstreamErrorKind {
        &self.0.kind
    }

    /// The text of the agent's side, for the log only.
    #[must_use]
    pub fn detail(&self) -> Option<&str> {
        self.0.detail.as_deref()
    }

    /// Seconds after which a retry may work, if the agent's side names a time.
    #[must_use]
    pub fn retry_after(&self) -> Option<u64> {
        self.0.retry_after
    }

    /// The stable code: one of [`crate::codes`], or a code of the agent's own.
    #[must_use]
    pub fn code(&self) -> &str {
        use UpstreamErrorKind as Kind;
        match &self.0.kind {
            Kind::Connect | Kind::Spawn => codes::UPSTREAM_UNREACHABLE,
            Kind::Unavailable => codes::UPSTREAM_UNAVAILABLE,
            Kind::Timeout(_) => codes::UPSTREAM_TIMEOUT,
            Kind::Status(_) | Kind::UnknownTarget(_) | Kind::InvalidRun => codes::UPSTREAM_STATUS,
            Kind::ThreadBusy => codes::THREAD_IS_LOCKED,
            Kind::UnknownRun => codes::GATEWAY_LOST,
            Kind::NotHttp | Kind::BadContent(_) => codes::UPSTREAM_BAD_CONTENT,
            Kind::MalformedFrame { .. } | Kind::MalformedBody(_) => codes::UPSTREAM_MALFORMED,
            Kind::Truncated(_) => codes::UPSTREAM_TRUNCATED,
            Kind::LimitExceeded(_) => codes::LIMIT_EXCEEDED,
            Kind::Failed(_) => codes::UPSTREAM_FAILED,
            Kind::Unsupported(_) => codes::IMPOSSIBLE,
            Kind::Internal(_) => codes::INTERNAL,
            Kind::Refused(_) => codes::HOOK_REFUSED,
            Kind::Hook => codes::HOOK_FAILED,
            Kind::Stopped(_) => codes::STOPPED,
            Kind::Agent { code, .. } => code,
        }
    }

    /// True if the agent could not be reached at all: the next run would fail in the same way. Errors that one request can
    /// cause do not count, or one client could close an agent for all others.
    pub(crate) fn is_outage(&self) -> bool {
        use UpstreamErrorKind as Kind;
        match &self.0.kind {
            Kind::Connect | Kind::Spawn => true,
            Kind::Timeout(timeout) => {
                matches!(timeout, UpstreamTimeout::Connect(_) | UpstreamTimeout::FirstByte(_))
            }
            Kind::Status(status) => matches!(status.as_u16(), 502..=504),
            Kind::Truncated(Truncation::Response) => true,
            _ => false,
        }
    }

    /// True if the agent's side caused it, and not the gateway, a hook or a stop.
    pub(crate) fn is_of_agents_side(&self) -> bool {
        use UpstreamErrorKind as Kind;
        !matches!(
            self.0.kind,
            Kind::Unavailable
                | Kind::Unsupported(_)
                | Kind::Internal(_)
                | Kind::Refused(_)
                | Kind::Hook
                | Kind::Stopped(_)
        )
    }

    /// True if the detail may be shown to the client where an agent's settings allow it: not that of hooks, of the
    /// gateway itself, and of agents with a code of their own.
    pub(crate) fn may_show_detail(&self) -> bool {
        use UpstreamErrorKind as Kind;
        match &self.0.kind {
            Kind::Connect
            | Kind::Spawn
            | Kind::Timeout(_)
            | Kind::Status(_)
            | Kind::UnknownTarget(_)
            | Kind::InvalidRun
            | Kind::NotHttp
            | Kind::BadContent(_)
            | Kind::MalformedFrame { .. }
            | Kind::MalformedBody(_)
            | Kind::Truncated(_)
            | Kind::Failed(_) => true,
            Kind::Unavailable
            | Kind::ThreadBusy
            | Kind::UnknownRun
            | Kind::LimitExceeded(_)
            | Kind::Unsupported(_)
            | Kind::Internal(_)
            | Kind::Refused(_)
            | Kind::Hook
            | Kind::Stopped(_) => false,
            // An agent in Rust that reports a failure of its own server uses one of these codes.
            Kind::Agent { code, .. } => code.starts_with("UPSTREAM_"),
        }
    }
}

impl fmt::Display for UpstreamError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.kind.fmt(f)?;
        match (&self.0.kind, self.0.retry_after) {
            (UpstreamErrorKind::Status(_), Some(seconds)) => {
                write!(f, " and asks to try again in {seconds} s")
            }
            _ => Ok(()),
        }
    }
}

impl Error for UpstreamError {}

impl From<UpstreamErrorKind> for UpstreamError {
    fn from(kind: UpstreamErrorKind) -> Self {
        Self(Box::new(Parts { kind, detail: None, retry_after: None }))
    }
}

impl From<UpstreamTimeout> for UpstreamError {
    fn from(timeout: UpstreamTimeout) -> Self {
        UpstreamErrorKind::Timeout(timeout).into()
    }
}

impl From<Truncation> for UpstreamError {
    fn from(truncation: Truncation) -> Self {
        UpstreamErrorKind::Truncated(truncation).into()
    }
}

impl From<Stopped> for UpstreamError {
    fn from(stopped: Stopped) -> Self {
        UpstreamErrorKind::Stopped(stopped).into()
    }
}

fn describe(problem: &Option<FrameProblem>) -> String {
    problem.map_or_else(|| "is malformed".to_owned(), |problem| problem.to_string())
}
