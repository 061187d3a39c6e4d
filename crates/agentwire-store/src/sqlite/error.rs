//! Conversion of SQLite errors to [`StoreError`].

use rusqlite::{Error, ErrorCode};

use crate::error::StoreError;

impl From<Error> for StoreError {
    fn from(error: Error) -> Self {
        match &error {
            Error::SqliteFailure(failure, message) => match failure.code {
                ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked => Self::Busy,
                ErrorCode::DiskFull => Self::Full,
                ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase => {
                    Self::Corrupt(message.clone().unwrap_or_else(|| failure.to_string()).into())
                }
                _ => Self::io(error),
            },
            // A column holds a value that this code never writes.
            Error::FromSqlConversionFailure(..)
            | Error::IntegralValueOutOfRange(..)
            | Error::InvalidColumnType(..)
            | Error::Utf8Error(..) => Self::Corrupt(error.to_string().into()),
            _ => Self::io(error),
        }
    }
}
