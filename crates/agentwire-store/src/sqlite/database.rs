//! The database file: connections with the settings of their task, and backups.

use std::{
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use rusqlite::{Connection, OpenFlags, config::DbConfig};

use super::{SqliteOptions, schema};
use crate::{clock::Time, error::StoreError};

/// Prepared statements cached per connection; more than the code has.
const PREPARED: usize = 96;

/// The size to which the write-ahead log is cut when it starts anew: what a checkpoint interval writes.
const WAL_BYTES: u64 = 16 << 20;

/// Delay between two retries of a busy operation.
const RETRY_DELAY: Duration = Duration::from_millis(5);

/// The path and options of a database file.
#[derive(Clone, Debug)]
pub(super) struct DatabaseFile {
    pub(super) path: PathBuf,
    pub(super) options: SqliteOptions,
    /// The identity of the file that was opened, where the system has one.
    pub(super) identity: Option<(u64, u64)>,
}

/// The identity of the file at a path: another file under the same name has another one.
#[cfg(unix)]
pub(super) fn identity(path: &Path) -> Option<(u64, u64)> {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata(path).ok().map(|file| (file.dev(), file.ino()))
}

#[cfg(not(unix))]
pub(super) fn identity(_: &Path) -> Option<(u64, u64)> {
    None
}

impl DatabaseFile {
    /// Requires that the file was neither deleted nor replaced: writes to it would be lost with the last connection.
    pub(super) fn check_identity(&self) -> Result<(), StoreError> {
        if self.identity.is_none() || identity(&self.path) == self.identity {
            return Ok(());
        }
        let text = "the database file was deleted or replaced while it was in use";
        Err(StoreError::io(std::io::Error::new(std::io::ErrorKind::NotFound, text)))
    }

    /// A connection for the writer thread. Creates the file, or migrates it to the current schema.
    pub(super) fn open_writer(&self, now: Time) -> Result<Connection, StoreError> {
        create_private(&self.path);
        let mut db = self.connect(OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE)?;
        let path = self.path.to_string_lossy();
        // Reject a foreign or newer file before anything is written to it.
        let version = self.retry_while_busy(|| schema::version(&db, &path))?;
        if version == 0 {
            // Only possible before the first table exists; lets `vacuum` release space without rewriting the file.
            db.pragma_update(None, "auto_vacuum", "INCREMENTAL")?;
        }
        self.retry_while_busy(|| Ok(db.pragma_update(None, "journal_mode", "WAL")?))?;
        schema::migrate(&mut db, &path, now)?;
        // The checkpoint thread does this, concurrently with writes.
        db.pragma_update(None, "wal_autocheckpoint", 0)?;
        // The write-ahead log shrinks to this size whenever it starts anew. This pragma returns the new value as a row.
        db.query_row(&format!("PRAGMA journal_size_limit = {WAL_BYTES}"), [], |_| Ok(()))?;
        db.pragma_update(None, "synchronous", "NORMAL")?;
        // Negative means KiB. Enough for the index pages of a thousand live runs.
        db.pragma_update(None, "cache_size", -16 * 1024)?;
        if let Some(bytes) = self.options.max_bytes {
            let page: i64 = db.pragma_query_value(None, "page_size", |row| row.get(0))?;
            let pages = i64::try_from(bytes).unwrap_or(i64::MAX) / page.max(1);
            // This pragma returns the new value as a row.
            db.query_row(&format!("PRAGMA max_page_count = {}", pages.max(1)), [], |_| Ok(()))?;
        }
        Ok(db)
    }

    /// A read-only connection.
    pub(super) fn open_reader(&self) -> Result<Connection, StoreError> {
        let db = self.connect(OpenFlags::SQLITE_OPEN_READ_WRITE)?;
        db.pragma_update(None, "query_only", true)?;
        Ok(db)
    }

    /// A connection for checkpoints and backups.
    pub(super) fn open_helper(&self) -> Result<Connection, StoreError> {
        let db = self.connect(OpenFlags::SQLITE_OPEN_READ_WRITE)?;
        db.pragma_update(None, "wal_autocheckpoint", 0)?;
        Ok(db)
    }

    fn connect(&self, flags: OpenFlags) -> Result<Connection, StoreError> {
        let db = Connection::open_with_flags(&self.path, flags | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
        db.busy_timeout(self.options.busy_timeout)?;
        // The plan of a statement depends on no value. Otherwise most statements with a condition are prepared anew whenever
        // a number in it changes, which takes longer than their execution.
        db.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
        db.set_prepared_statement_cache_capacity(PREPARED);
        Ok(db)
    }

    /// Retries `step` while another process has the lock, up to the busy timeout. SQLite's own busy handler does not
    /// cover the switch to WAL, and several processes may open a new file at once.
    fn retry_while_busy<T>(&self, step: impl Fn() -> Result<T, StoreError>) -> Result<T, StoreError> {
        let started = Instant::now();
        loop {
            match step() {
                Err(StoreError::Busy) if started.elapsed() < self.options.busy_timeout => {
                    std::thread::sleep(RETRY_DELAY)
                }
                other => return other,
            }
        }
    }
}

/// Creates the file, if it is not there, so that only its owner can read it. SQLite gives its other files the same mode.
fn create_private(path: &Path) {
    let mut options = std::fs::OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    // SQLite reports errors.
    let _ = options.open(path);
}

/// Copies the database to a new file.
pub(super) fn backup(file: &DatabaseFile, to: &Path) -> Result<(), StoreError> {
    let refused = |kind, text: &str| StoreError::io(std::io::Error::new(kind, text));
    if to.try_exists().map_err(StoreError::io)? {
        return Err(refused(std::io::ErrorKind::AlreadyExists, "the file for the copy exists"));
    }
    // Written under another name first, so that a file with the final name is complete.
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
    create_private(&partial);
    let copied = (|| {
        file.open_helper()?.execute("VACUUM INTO ?1", [name])?;
        std::fs::File::open(&partial).and_then(|file| file.sync_all()).map_err(StoreError::io)?;
        std::fs::rename(&partial, to).map_err(StoreError::io)
    })();
    if copied.is_err() {
        // The first error matters more than a failed cleanup.
        let _ = remove();
    }
    copied
}

#[cfg(test)]
mod tests {
    use rusqlite::StatementStatus;

    use super::{super::mailbox::OPEN, *};

    #[test]
    fn a_statement_is_prepared_once_whatever_its_numbers() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("runs.db");
        let file = DatabaseFile { path, options: SqliteOptions::default(), identity: None };
        let db = file.open_writer(Time(1)).unwrap();
        let mut find = db.prepare(&format!("SELECT EXISTS (SELECT 1 {OPEN})")).unwrap();
        for now in 0..4 {
            assert!(!find.query_row(("holder", now), |row| row.get::<_, bool>(0)).unwrap());
        }
        assert_eq!(find.get_status(StatementStatus::RePrepare), 0);
    }
}
