//! Pool of read connections on blocking threads. Readers and the writer never wait for each other.

use std::sync::{Arc, Mutex, PoisonError};

use rusqlite::Connection;
use tokio::sync::Semaphore;

use super::database::DatabaseFile;
use crate::error::StoreError;

/// A bounded pool; callers wait while all connections are in use.
pub(super) struct Readers {
    file: DatabaseFile,
    idle: Mutex<Vec<Connection>>,
    permits: Arc<Semaphore>,
}

impl Readers {
    pub(super) fn new(file: DatabaseFile, first: Connection) -> Self {
        let permits = Arc::new(Semaphore::new(file.options.readers.max(1)));
        Self { file, idle: Mutex::new(vec![first]), permits }
    }

    /// Runs `work` on one consistent snapshot of the database.
    pub(super) async fn read<T: Send + 'static>(
        self: &Arc<Self>,
        work: impl FnOnce(&Connection) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let permit = Arc::clone(&self.permits).acquire_owned().await.map_err(|_| StoreError::Closed)?;
        let readers = Arc::clone(self);
        let done = tokio::task::spawn_blocking(move || {
            let result = readers.read_now(work);
            // Held until here even if the caller was cancelled, because the connection is in use until here.
            drop(permit);
            result
        });
        done.await.map_err(StoreError::io)?
    }

    fn read_now<T>(&self, work: impl FnOnce(&Connection) -> Result<T, StoreError>) -> Result<T, StoreError> {
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let db = idle.map_or_else(|| self.file.open_reader(), Ok)?;
        // After the open, which may have found another file: the data of two files must not mix, and API keys that were
        // revoked in the new one must not be accepted.
        if let Err(error) = self.file.check_identity() {
            self.idle.lock().unwrap_or_else(PoisonError::into_inner).clear();
            return Err(error);
        }
        let result = (|| {
            let snapshot = db.unchecked_transaction()?;
            let result = work(&snapshot)?;
            snapshot.commit()?;
            Ok(result)
        })();
        // A connection that met a fault may be unusable: the next reader opens a new one.
        if !result.as_ref().is_err_and(StoreError::is_fault) {
            self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(db);
        }
        result
    }
}
