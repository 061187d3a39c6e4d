//! Every backend against the one contract.

mod contract;

use std::{future::Future, path::PathBuf, pin::Pin, sync::Arc};

use agentwire_store::*;
use contract::Place;

struct Memory;

impl Place for Memory {
    fn open(&self, clock: Arc<ManualClock>) -> Pin<Box<dyn Future<Output = Arc<dyn Store>> + Send + '_>> {
        Box::pin(async move { open("memory:", Options { clock, ..Options::default() }).await.unwrap() })
    }
}

struct Sqlite {
    folder: tempfile::TempDir,
    durability: Durability,
}

impl Sqlite {
    fn with(durability: Durability) -> Self {
        Self { folder: tempfile::tempdir().unwrap(), durability }
    }
}

impl Place for Sqlite {
    fn open(&self, clock: Arc<ManualClock>) -> Pin<Box<dyn Future<Output = Arc<dyn Store>> + Send + '_>> {
        let path: PathBuf = self.folder.path().join("store.db");
        let sqlite = SqliteOptions { durability: self.durability, ..SqliteOptions::default() };
        Box::pin(async move {
            let options = Options { clock, sqlite, ..Options::default() };
            open(&format!("sqlite:{}", path.display()), options).await.unwrap()
        })
    }
}

store_contract!(memory, Memory);
store_contract!(sqlite, Sqlite::with(Durability::Os));
durable_store_contract!(sqlite_durable, Sqlite::with(Durability::Os));
durable_store_contract!(sqlite_durable_fsync, Sqlite::with(Durability::Fsync));
