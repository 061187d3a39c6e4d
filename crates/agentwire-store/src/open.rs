//! From an address to a store.

use std::{path::PathBuf, sync::Arc};

use crate::{
    clock::{Clock, SystemClock},
    error::StoreError,
    memory::{MemoryLimits, MemoryStore},
    sqlite::{SqliteOptions, SqliteStore},
    store::Store,
};

/// How to open a store; each backend takes what concerns it.
#[derive(Clone, Debug)]
pub struct Options {
    /// What the store goes by.
    pub clock: Arc<dyn Clock>,
    /// For `memory:`.
    pub memory: MemoryLimits,
    /// For `sqlite:`.
    pub sqlite: SqliteOptions,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            clock: Arc::new(SystemClock::default()),
            memory: MemoryLimits::default(),
            sqlite: SqliteOptions::default(),
        }
    }
}

/// Opens the store at `memory:` or `sqlite:PATH`. A file that does not exist is made.
///
/// # Errors
///
/// [`StoreError::Address`] for anything else; what the file says against it.
pub async fn open(address: &str, options: Options) -> Result<Arc<dyn Store>, StoreError> {
    if address == "memory:" {
        return Ok(Arc::new(MemoryStore::new(options.memory, options.clock)));
    }
    match address.strip_prefix("sqlite:") {
        Some(path) if !path.is_empty() => {
            let path = PathBuf::from(path);
            Ok(Arc::new(SqliteStore::open(path, options.sqlite, options.clock).await?))
        }
        _ => Err(StoreError::Address(address.into())),
    }
}
