//! Conversion of PostgreSQL errors to [`StoreError`].

use std::{fmt, time::Duration};

use tokio_postgres::{Error, error::SqlState};

use crate::error::StoreError;

impl From<Error> for StoreError {
    fn from(error: Error) -> Self {
        let Some(code) = error.code() else { return Self::io(Failed(describe(&error))) };
        match *code {
            // The transaction can be tried again. A unique violation is a race between two inserts of one key.
            SqlState::T_R_SERIALIZATION_FAILURE
            | SqlState::T_R_DEADLOCK_DETECTED
            | SqlState::LOCK_NOT_AVAILABLE
            | SqlState::UNIQUE_VIOLATION => Self::Busy,
            SqlState::DISK_FULL => Self::Full,
            SqlState::DATA_CORRUPTED | SqlState::INDEX_CORRUPTED => Self::Corrupt(describe(&error).into()),
            _ => Self::io(Failed(describe(&error))),
        }
    }
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
