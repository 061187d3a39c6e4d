//! Connections for reading, on blocking threads. Readers never wait for the writer, nor it for them.

use std::sync::{Arc, Mutex, PoisonError};

use rusqlite::Connection;
use tokio::sync::Semaphore;

use super::connect::Place;
use crate::error::StoreError;

/// A few connections; who finds all of them in use waits.
pub(super) struct Readers {
    place: Place,
    idle: Mutex<Vec<Connection>>,
    permits: Arc<Semaphore>,
}

impl Readers {
    pub(super) fn new(place: Place, first: Connection) -> Self {
        let permits = Arc::new(Semaphore::new(place.options.readers.max(1)));
        Self { place, idle: Mutex::new(vec![first]), permits }
    }

    /// Does `work` on one consistent view of the database.
    pub(super) async fn read<T: Send + 'static>(
        self: &Arc<Self>,
        work: impl FnOnce(&Connection) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let permit = Arc::clone(&self.permits).acquire_owned().await.map_err(|_| StoreError::Closed)?;
        let readers = Arc::clone(self);
        let done = tokio::task::spawn_blocking(move || {
            let result = readers.read_now(work);
            // Kept until here even if the caller has gone, because the connection is in use until here.
            drop(permit);
            result
        });
        done.await.map_err(StoreError::io)?
    }

    fn read_now<T>(&self, work: impl FnOnce(&Connection) -> Result<T, StoreError>) -> Result<T, StoreError> {
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let db = idle.map_or_else(|| self.place.reader(), Ok)?;
        let result = (|| {
            let view = db.unchecked_transaction()?;
            let result = work(&view)?;
            view.commit()?;
            Ok(result)
        })();
        // After a fault a new connection is better than a doubtful one.
        if !result.as_ref().is_err_and(StoreError::is_fault) {
            self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(db);
        }
        result
    }
}
