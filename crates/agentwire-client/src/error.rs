//! The failures of a client, each with a stable code.

use std::{fmt, time::Duration};

use agentwire_core::{codes, event::RunError, source::InputError};

/// A failed run or call.
#[derive(Debug)]
pub struct ClientError(Box<Inner>);

#[derive(Debug)]
struct Inner {
    kind: ErrorKind,
    request_id: Option<Box<str>>,
    position: Option<u64>,
    cause: Option<Box<dyn std::error::Error + Send + Sync>>,
}

/// The kinds of failures.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The URL, a header or an argument is invalid; nothing was sent.
    Usage(Box<str>),
    /// The server responded with an error status.
    Status {
        /// The HTTP status.
        status: u16,
        /// The code in the body or in the header `agentwire-error-code`.
        code: Option<Box<str>>,
        /// The message in the body, or the start of the body.
        message: Box<str>,
        /// The delay that the server asks for.
        retry_after: Option<Duration>,
    },
    /// The server could not be reached, or the connection broke and reconnecting is off.
    Network(Box<str>),
    /// The server took too long.
    Timeout(TimeoutPhase),
    /// The response is not an event stream, or a JSON route responded with something else.
    ContentType {
        /// The content type of the response, or `none`.
        found: Box<str>,
        /// The start of the body.
        excerpt: Box<str>,
    },
    /// A frame is malformed or too large.
    Frame(InputError),
    /// The run ended with RUN_ERROR.
    Run(Box<RunError>),
    /// The stream ended before its run, and reconnecting is off or failed.
    Truncated {
        /// The number of attempts to reconnect since the last event.
        attempts: u32,
        /// The last failure.
        reason: Box<str>,
    },
    /// The conversation or a response exceeds the limit of memory.
    TooLarge {
        /// The limit in bytes.
        limit: usize,
    },
    /// The agent has an active run.
    Busy,
    /// The run was aborted by this client.
    Aborted,
}

/// The wait that took too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TimeoutPhase {
    /// Until the connection was made.
    Connect,
    /// Until the head of the response.
    Response,
    /// Until the next bytes of the stream.
    Idle,
}

impl ClientError {
    pub(crate) fn new(kind: ErrorKind) -> Self {
        Self(Box::new(Inner { kind, request_id: None, position: None, cause: None }))
    }

    pub(crate) fn usage(message: impl Into<Box<str>>) -> Self {
        Self::new(ErrorKind::Usage(message.into()))
    }

    pub(crate) fn with_request_id(mut self, id: Option<Box<str>>) -> Self {
        self.0.request_id = self.0.request_id.take().or(id);
        self
    }

    pub(crate) fn at(mut self, position: u64) -> Self {
        self.0.position = Some(position);
        self
    }

    pub(crate) fn because(mut self, cause: impl std::error::Error + Send + Sync + 'static) -> Self {
        self.0.cause = Some(Box::new(cause));
        self
    }

    /// The kind of failure.
    #[must_use]
    pub fn kind(&self) -> &ErrorKind {
        &self.0.kind
    }

    /// The stable code: one of [`codes::CLIENT`].
    #[must_use]
    pub fn code(&self) -> &'static str {
        match &self.0.kind {
            ErrorKind::Usage(_) => codes::USAGE,
            ErrorKind::Status { .. } => codes::HTTP_STATUS,
            ErrorKind::Network(_) => codes::NETWORK,
            ErrorKind::Timeout(_) => codes::TIMEOUT,
            ErrorKind::ContentType { .. } => codes::BAD_CONTENT_TYPE,
            ErrorKind::Frame(_) => codes::BAD_FRAME,
            ErrorKind::Run(_) => codes::RUN_ERROR,
            ErrorKind::Truncated { .. } => codes::TRUNCATED,
            ErrorKind::TooLarge { .. } => codes::TOO_LARGE,
            ErrorKind::Busy => codes::BUSY,
            ErrorKind::Aborted => codes::ABORTED,
        }
    }

    /// The HTTP status, if the server refused the request.
    #[must_use]
    pub fn status(&self) -> Option<u16> {
        match self.0.kind {
            ErrorKind::Status { status, .. } => Some(status),
            _ => None,
        }
    }

    /// The `x-request-id` of the response.
    #[must_use]
    pub fn request_id(&self) -> Option<&str> {
        self.0.request_id.as_deref()
    }

    /// The byte in the response at which the failure occurred.
    #[must_use]
    pub fn position(&self) -> Option<u64> {
        self.0.position
    }

    /// True if the same request may succeed over another connection.
    pub(crate) fn is_transient(&self) -> bool {
        match &self.0.kind {
            ErrorKind::Network(_) | ErrorKind::Truncated { .. } => true,
            // An idle server is as lost as a broken connection; a slow connect will be slow again.
            ErrorKind::Timeout(phase) => *phase == TimeoutPhase::Idle,
            ErrorKind::Status { status, .. } => matches!(status, 408 | 429 | 502..=504),
            _ => false,
        }
    }
}

impl fmt::Display for ClientError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0.kind {
            ErrorKind::Usage(message) => f.write_str(message)?,
            ErrorKind::Status { status, message, .. } => write!(f, "HTTP {status}: {message}")?,
            ErrorKind::Network(message) => write!(f, "the server could not be reached: {message}")?,
            ErrorKind::Timeout(TimeoutPhase::Connect) => f.write_str("the connection took too long")?,
            ErrorKind::Timeout(TimeoutPhase::Response) => f.write_str("the response took too long")?,
            ErrorKind::Timeout(TimeoutPhase::Idle) => f.write_str("the server sent nothing for too long")?,
            ErrorKind::ContentType { found, excerpt } => {
                write!(
                    f,
                    "the response has the content type `{found}`, which is no event stream: {excerpt}"
                )?;
            }
            ErrorKind::Frame(error) => write!(f, "{error}")?,
            ErrorKind::Run(error) => {
                write!(f, "the run failed: {}", error.message)?;
                if let Some(code) = &error.code {
                    write!(f, " ({code})")?;
                }
            }
            ErrorKind::Truncated { attempts, reason } => {
                write!(f, "the stream ended before its run: {reason}")?;
                if *attempts > 0 {
                    write!(f, ", after {attempts} attempts to reconnect")?;
                }
            }
            ErrorKind::TooLarge { limit } => {
                write!(f, "the conversation exceeds the limit of {limit} bytes")?;
            }
            ErrorKind::Busy => f.write_str("the agent has an active run")?,
            ErrorKind::Aborted => f.write_str("the run was aborted")?,
        }
        if let Some(id) = &self.0.request_id {
            write!(f, " [request {id}]")?;
        }
        Ok(())
    }
}

impl std::error::Error for ClientError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.cause.as_deref().map(|cause| cause as _)
    }
}
