//! Opens a store by its address.

use std::sync::Arc;

#[cfg(feature = "sqlite")]
use crate::sqlite::{SqliteOptions, SqliteStore};
use crate::{
    clock::{Clock, SystemClock},
    error::StoreError,
    memory::{MemoryLimits, MemoryStore},
    store::Store,
};

/// Options for [`open`]; each backend reads its own part.
#[derive(Clone, Debug)]
pub struct Options {
    /// The clock by which the store judges leases, expiries and ages.
    pub clock: Arc<dyn Clock>,
    /// Limits of a `memory:` store.
    pub memory: MemoryLimits,
    /// Settings of a `sqlite:` store.
    #[cfg(feature = "sqlite")]
    pub sqlite: SqliteOptions,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            clock: Arc::new(SystemClock::default()),
            memory: MemoryLimits::default(),
            #[cfg(feature = "sqlite")]
            sqlite: SqliteOptions::default(),
        }
    }
}

/// Opens the store at `memory:` or `sqlite:PATH`. A missing file is created.
///
/// # Errors
///
/// * [`StoreError::Address`]: neither of the two forms.
/// * [`StoreError::MissingFeature`]: `sqlite:` in a build without the feature `sqlite`.
/// * [`StoreError::Corrupt`], [`StoreError::Foreign`], [`StoreError::Version`], [`StoreError::Busy`],
///   [`StoreError::Io`]: the file cannot be used.
pub async fn open(address: &str, options: Options) -> Result<Arc<dyn Store>, StoreError> {
    if address == "memory:" {
        return Ok(Arc::new(MemoryStore::new(options.memory, options.clock)));
    }
    match address.strip_prefix("sqlite:") {
        #[cfg(feature = "sqlite")]
        Some(path) if !path.is_empty() => {
            Ok(Arc::new(SqliteStore::open(path.into(), options.sqlite, options.clock).await?))
        }
        #[cfg(not(feature = "sqlite"))]
        Some(path) if !path.is_empty() => {
            Err(StoreError::MissingFeature { address: address.into(), feature: "sqlite" })
        }
        _ => Err(StoreError::Address(address.into())),
    }
}
