//! Runs the contract suite against every backend.

#[cfg_attr(
    not(any(feature = "sqlite", feature = "postgres")),
    allow(dead_code, unused_imports, reason = "only durable stores are reopened")
)]
mod contract;

use std::{future::Future, pin::Pin, sync::Arc};

use agentwire_store::*;
use contract::StoreFactory;

struct Memory;

impl StoreFactory for Memory {
    fn open(&self, clock: Arc<ManualClock>) -> Pin<Box<dyn Future<Output = Arc<dyn Store>> + Send + '_>> {
        Box::pin(async move { open("memory:", Options { clock, ..Options::default() }).await.unwrap() })
    }
}

store_contract!(memory, Memory);

#[cfg(feature = "sqlite")]
struct Sqlite {
    folder: tempfile::TempDir,
    durability: Durability,
}

#[cfg(feature = "sqlite")]
impl Sqlite {
    fn with(durability: Durability) -> Self {
        Self { folder: tempfile::tempdir().unwrap(), durability }
    }
}

#[cfg(feature = "sqlite")]
impl StoreFactory for Sqlite {
    fn open(&self, clock: Arc<ManualClock>) -> Pin<Box<dyn Future<Output = Arc<dyn Store>> + Send + '_>> {
        let path = self.folder.path().join("store.db");
        let sqlite = SqliteOptions { durability: self.durability, ..SqliteOptions::default() };
        Box::pin(async move {
            let options = Options { clock, sqlite, ..Options::default() };
            open(&format!("sqlite:{}", path.display()), options).await.unwrap()
        })
    }
}

#[cfg(feature = "sqlite")]
store_contract!(sqlite, Sqlite::with(Durability::Os));
#[cfg(feature = "sqlite")]
durable_store_contract!(sqlite_durable, Sqlite::with(Durability::Os));
#[cfg(feature = "sqlite")]
durable_store_contract!(sqlite_durable_fsync, Sqlite::with(Durability::Fsync));

#[cfg(feature = "postgres")]
mod postgres_server;

#[cfg(feature = "postgres")]
struct Postgres {
    address: String,
    durability: Durability,
}

#[cfg(feature = "postgres")]
impl Postgres {
    fn pooled(parameters: &str) -> Self {
        let address = format!("{}{parameters}", postgres_server::fresh_pooled());
        Self { address, durability: Durability::Os }
    }

    fn with(durability: Durability, parameters: &str) -> Self {
        Self { address: format!("{}{parameters}", postgres_server::fresh()), durability }
    }
}

#[cfg(feature = "postgres")]
impl StoreFactory for Postgres {
    fn open(&self, clock: Arc<ManualClock>) -> Pin<Box<dyn Future<Output = Arc<dyn Store>> + Send + '_>> {
        Box::pin(async move {
            let postgres = PostgresOptions {
                durability: self.durability,
                clock: Some(clock),
                ..PostgresOptions::default()
            };
            open(&self.address, Options { postgres, ..Options::default() }).await.unwrap()
        })
    }
}

#[cfg(feature = "postgres")]
store_contract!(postgres, Postgres::with(Durability::Os, ""));
#[cfg(feature = "postgres")]
durable_store_contract!(postgres_durable, Postgres::with(Durability::Os, ""));
#[cfg(feature = "postgres")]
store_contract!(
    postgres_memory_unprepared,
    Postgres::with(Durability::Memory, "&prepared=false&notify=false")
);

// Through PgBouncer in transaction mode.
#[cfg(feature = "postgres")]
store_contract!(pgbouncer, Postgres::pooled("&prepared=false"));

#[cfg(not(feature = "sqlite"))]
#[tokio::test]
async fn an_address_without_its_backend_names_the_feature() {
    let opened = open("sqlite:store.db", Options::default()).await;
    assert!(matches!(opened, Err(StoreError::MissingFeature { feature: "sqlite", .. })));
}
