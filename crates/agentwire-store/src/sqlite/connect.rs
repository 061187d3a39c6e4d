//! Opening connections to the file, each with the settings of its task.

use std::{
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use rusqlite::{Connection, OpenFlags};

use super::{SqliteOptions, schema};
use crate::{clock::Time, error::StoreError};

/// Statements that a connection keeps prepared; there are fewer than this.
const PREPARED: usize = 96;

/// Between two tries at what SQLite itself does not wait for.
const PAUSE: Duration = Duration::from_millis(5);

/// Where the file is, and how to treat it.
#[derive(Clone, Debug)]
pub(super) struct Place {
    pub(super) path: PathBuf,
    pub(super) options: SqliteOptions,
}

impl Place {
    /// For the one thread that writes. Makes the file, or brings it up to date.
    pub(super) fn writer(&self, now: Time) -> Result<Connection, StoreError> {
        let mut db = self.connect(OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE)?;
        let path = self.path.to_string_lossy();
        // Refuse a foreign or newer file before anything is written to it.
        let version = self.patiently(|| schema::version(&db, &path))?;
        if version == 0 {
            // Only possible before there is a table; lets `vacuum` give space back without rewriting the file.
            db.pragma_update(None, "auto_vacuum", "INCREMENTAL")?;
        }
        self.patiently(|| Ok(db.pragma_update(None, "journal_mode", "WAL")?))?;
        schema::migrate(&mut db, &path, now)?;
        // The checkpointer does it, beside the writes.
        db.pragma_update(None, "wal_autocheckpoint", 0)?;
        db.pragma_update(None, "synchronous", "NORMAL")?;
        // Negative means KiB: the index pages of a thousand live runs, and some to spare.
        db.pragma_update(None, "cache_size", -16 * 1024)?;
        if let Some(bytes) = self.options.max_bytes {
            let page: i64 = db.pragma_query_value(None, "page_size", |row| row.get(0))?;
            let pages = i64::try_from(bytes).unwrap_or(i64::MAX) / page.max(1);
            // A pragma that answers with what it set.
            db.query_row(&format!("PRAGMA max_page_count = {}", pages.max(1)), [], |_| Ok(()))?;
        }
        Ok(db)
    }

    /// For one of the threads that read.
    pub(super) fn reader(&self) -> Result<Connection, StoreError> {
        let db = self.connect(OpenFlags::SQLITE_OPEN_READ_WRITE)?;
        db.pragma_update(None, "query_only", true)?;
        Ok(db)
    }

    /// For checkpoints and copies.
    pub(super) fn helper(&self) -> Result<Connection, StoreError> {
        let db = self.connect(OpenFlags::SQLITE_OPEN_READ_WRITE)?;
        db.pragma_update(None, "wal_autocheckpoint", 0)?;
        Ok(db)
    }

    fn connect(&self, flags: OpenFlags) -> Result<Connection, StoreError> {
        let db = Connection::open_with_flags(&self.path, flags | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
        db.busy_timeout(self.options.busy_timeout)?;
        db.set_prepared_statement_cache_capacity(PREPARED);
        Ok(db)
    }

    /// Repeats what another process is in the way of. SQLite's own waiting does not cover the change to WAL, and several
    /// processes may open a new file at once.
    fn patiently<T>(&self, step: impl Fn() -> Result<T, StoreError>) -> Result<T, StoreError> {
        let begun = Instant::now();
        loop {
            match step() {
                Err(StoreError::Busy) if begun.elapsed() < self.options.busy_timeout => {
                    std::thread::sleep(PAUSE)
                }
                other => return other,
            }
        }
    }
}

/// Makes a copy of a database in a file that did not exist.
pub(super) fn copy(place: &Place, to: &Path) -> Result<(), StoreError> {
    let refused = |kind, text: &str| StoreError::io(std::io::Error::new(kind, text));
    if to.try_exists().map_err(StoreError::io)? {
        return Err(refused(std::io::ErrorKind::AlreadyExists, "the file for the copy exists"));
    }
    // Under another name first, so that a copy with its name is a whole one.
    let mut partial = to.as_os_str().to_owned();
    partial.push(".partial");
    let partial = PathBuf::from(partial);
    let name = partial
        .to_str()
        .ok_or_else(|| refused(std::io::ErrorKind::InvalidInput, "the path for the copy is not UTF-8"))?;
    let remove = || match std::fs::remove_file(&partial) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(StoreError::io(error)),
        _ => Ok(()),
    };
    remove()?;
    let copied = (|| {
        place.helper()?.execute("VACUUM INTO ?1", [name])?;
        std::fs::File::open(&partial).and_then(|file| file.sync_all()).map_err(StoreError::io)?;
        std::fs::rename(&partial, to).map_err(StoreError::io)
    })();
    if copied.is_err() {
        // The reason of the failure matters more than what is left of it.
        let _ = remove();
    }
    copied
}
