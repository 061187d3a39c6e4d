//! Opens a store by its address.

use std::sync::Arc;

#[cfg(feature = "postgres")]
use crate::postgres::{PostgresOptions, PostgresStore};
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
    /// Settings of a `postgres:` store.
    #[cfg(feature = "postgres")]
    pub postgres: PostgresOptions,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            clock: Arc::new(SystemClock::default()),
            memory: MemoryLimits::default(),
            #[cfg(feature = "sqlite")]
            sqlite: SqliteOptions::default(),
            #[cfg(feature = "postgres")]
            postgres: PostgresOptions::default(),
        }
    }
}

/// Opens the store at `memory:`, `sqlite:PATH` or `postgres://…`. A missing file is created, and so are the tables in a
/// database without them.
///
/// # Errors
///
/// * [`StoreError::Address`]: none of these forms.
/// * [`StoreError::MissingFeature`]: the backend was left out of this build.
/// * [`StoreError::Outdated`]: the schema of the database must be migrated.
/// * [`StoreError::Corrupt`], [`StoreError::Foreign`], [`StoreError::Version`], [`StoreError::Busy`],
///   [`StoreError::Io`]: the file cannot be used.
pub async fn open(address: &str, options: Options) -> Result<Arc<dyn Store>, StoreError> {
    if address == "memory:" {
        return Ok(Arc::new(MemoryStore::new(options.memory, options.clock)));
    }
    if is_postgres(address) {
        #[cfg(feature = "postgres")]
        return Ok(Arc::new(PostgresStore::open(address, options.postgres).await?));
        #[cfg(not(feature = "postgres"))]
        return Err(StoreError::MissingFeature {
            address: redact_address(address).into(),
            feature: "postgres",
        });
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
        _ => Err(StoreError::Address(redact(address).into())),
    }
}

fn is_postgres(address: &str) -> bool {
    address.starts_with("postgres://") || address.starts_with("postgresql://")
}

/// The address without passwords, for messages and logs.
#[must_use]
pub fn redact_address(address: &str) -> String {
    if !is_postgres(address) {
        return address.to_owned();
    }
    redact(address)
}

/// An address without passwords.
pub(crate) fn redact(address: &str) -> String {
    let (base, query) = address.split_once('?').unwrap_or((address, ""));
    let mut shown = match base.split_once("://") {
        Some((scheme, rest)) => {
            // A password may contain `@` and `/` although it should not.
            let (userinfo, place) =
                rest.rsplit_once('@').map_or((None, rest), |(user, place)| (Some(user), place));
            match userinfo {
                Some(user) => {
                    let (user, password) =
                        user.split_once(':').map_or((user, None), |(user, word)| (user, Some(word)));
                    let mask = if password.is_some() { ":***" } else { "" };
                    format!("{scheme}://{user}{mask}@{place}")
                }
                None => format!("{scheme}://{place}"),
            }
        }
        // No address at all, which may contain a password nevertheless.
        None => {
            match base.rsplit_once('@').and_then(|(user, place)| Some((user.split_once(':')?.0, place))) {
                Some((user, place)) => format!("{user}:***@{place}"),
                None => base.to_owned(),
            }
        }
    };
    let mut separator = '?';
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let name = pair.split('=').next().unwrap_or_default();
        shown.push(separator);
        separator = '&';
        match name {
            "password" | "listen_url" | "options" => {
                shown.push_str(name);
                shown.push_str("=***");
            }
            _ => shown.push_str(pair),
        }
    }
    shown
}
