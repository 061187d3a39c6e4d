//! Conversion of PostgreSQL errors to [`StoreError`].

use std::{fmt, sync::Arc, time::Duration};

use tokio_postgres::{Error, error::SqlState};

use crate::error::StoreError;

impl From<Error> for StoreError {
    fn from(error: Error) -> Self {
        let failed = || Arc::new(Failed(describe(&error)));
        let Some(code) = error.code() else {
            return if is_refusal(&error) { Self::Refused(failed()) } else { Self::Io(failed()) };
        };
        match *code {
            // The transaction can be tried again. A unique violation is a race between two inserts of one key.
            SqlState::T_R_SERIALIZATION_FAILURE
            | SqlState::T_R_DEADLOCK_DETECTED
            | SqlState::LOCK_NOT_AVAILABLE
            | SqlState::UNIQUE_VIOLATION => Self::Busy,
            SqlState::DISK_FULL => Self::Full,
            SqlState::DATA_CORRUPTED | SqlState::INDEX_CORRUPTED => Self::Corrupt(describe(&error).into()),
            SqlState::INVALID_CATALOG_NAME | SqlState::INSUFFICIENT_PRIVILEGE => Self::Refused(failed()),
            // Class 28: the user, the password, or the rules of the server for its address.
            _ if code.code().starts_with("28") => Self::Refused(failed()),
            _ => Self::Io(failed()),
        }
    }
}

/// True if the error is no loss of the connection: the password is missing, the server has no encryption, or its certificate is
/// not the expected one.
fn is_refusal(error: &Error) -> bool {
    let mut cause = std::error::Error::source(error);
    let has_cause = cause.is_some();
    while let Some(inner) = cause {
        if let Some(io) = inner.downcast_ref::<std::io::Error>() {
            let tls = io.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
            return matches!(tls, Some(rustls::Error::InvalidCertificate(_)));
        }
        cause = inner.source();
    }
    has_cause
}

impl From<deadpool_postgres::PoolError> for StoreError {
    fn from(error: deadpool_postgres::PoolError) -> Self {
        use deadpool_postgres::PoolError as Pool;
        match error {
            Pool::Backend(error) => error.into(),
            Pool::Closed => Self::Closed,
            other => Self::io(Failed(other.to_string())),
        }
    }
}

/// The text of an error with its causes; the library's own text of a server error is `db error`.
fn describe(error: &Error) -> String {
    if let Some(server) = error.as_db_error() {
        return format!("{} (SQLSTATE {})", server.message(), server.code().code());
    }
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(inner) = cause {
        let inner_text = inner.to_string();
        if !text.contains(&inner_text) {
            text.push_str(": ");
            text.push_str(&inner_text);
        }
        cause = inner.source();
    }
    text
}

/// The reason of an [`StoreError::Io`].
#[derive(Debug)]
pub(super) struct Failed(pub(super) String);

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Failed {}

/// A call that exceeded its time limit; its outcome is unknown.
pub(super) fn timed_out(after: Duration) -> StoreError {
    StoreError::io(Failed(format!("no answer within {} s", after.as_secs_f32())))
}
