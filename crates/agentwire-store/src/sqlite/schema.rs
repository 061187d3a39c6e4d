//! The schema and its migrations.
//!
//! The log is a plain table in insertion order with one narrow index, because a table clustered by run would make every
//! commit touch as many pages as there are runs. Each row holds all events of one append. Rows that change often
//! (`runs`) are small; large values (inputs, states, messages) have tables of their own, since SQLite rewrites a row as a
//! whole.

use rusqlite::{Connection, OptionalExtension, TransactionBehavior};

use crate::{clock::Time, error::StoreError};

/// "AgWr" in the file header, which distinguishes the file from databases of other programs.
const APPLICATION_ID: i64 = 0x4167_5772;

/// Migration n creates version n + 1, starting from an empty file. Append only: files of every version are in use.
const MIGRATIONS: &[&str] = &[
    include_str!("schema_1.sql"),
    include_str!("schema_2.sql"),
    include_str!("schema_3.sql"),
    include_str!("schema_4.sql"),
    include_str!("schema_5.sql"),
];

/// The version that this code writes.
#[cfg(test)]
pub(super) const VERSION: i64 = MIGRATIONS.len() as i64;

/// Brings the database to the version of this code.
pub(super) fn migrate(db: &mut Connection, path: &str, now: Time) -> Result<(), StoreError> {
    migrate_with(db, path, now, MIGRATIONS)
}

fn migrate_with(db: &mut Connection, path: &str, now: Time, migrations: &[&str]) -> Result<(), StoreError> {
    let known = i64::try_from(migrations.len()).unwrap_or(i64::MAX);
    if version(db, path)? == known {
        return Ok(());
    }
    // Another process may migrate at the same time, so the version is read again under the write lock.
    let transaction = db.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let found = version(&transaction, path)?;
    if found > known {
        return Err(StoreError::Version { found, known });
    }
    for (version, step) in (1_i64..).zip(migrations) {
        if version > found {
            transaction.execute_batch(step)?;
            transaction.execute(
                "INSERT INTO schema_version (version, applied) VALUES (?1, ?2)",
                (version, i64::try_from(now.0).unwrap_or(i64::MAX)),
            )?;
        }
    }
    transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
    transaction.commit()?;
    Ok(())
}

/// The version of the file; 0 if it is empty.
pub(super) fn version(db: &Connection, path: &str) -> Result<i64, StoreError> {
    let application: i64 = db.pragma_query_value(None, "application_id", |row| row.get(0))?;
    if application != APPLICATION_ID {
        let tables: i64 = db.query_row("SELECT count(*) FROM sqlite_master", [], |row| row.get(0))?;
        return if tables == 0 { Ok(0) } else { Err(StoreError::Foreign(path.into())) };
    }
    let version = db.query_row("SELECT max(version) FROM schema_version", [], |row| row.get(0));
    version.optional()?.flatten().ok_or_else(|| StoreError::Corrupt("the schema has no version".into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEXT: &str = "ALTER TABLE threads ADD COLUMN title TEXT; UPDATE threads SET title = thread";

    fn with_one_thread() -> Connection {
        let mut db = Connection::open_in_memory().unwrap();
        migrate(&mut db, "x", Time(1)).unwrap();
        db.execute_batch(
            "INSERT INTO threads (tenant, user, thread, owner_agent, created, updated) VALUES ('t', 'u', 'old', 'a', 1, 1)",
        )
        .unwrap();
        db
    }

    fn with_next() -> Vec<&'static str> {
        MIGRATIONS.iter().copied().chain([NEXT]).collect()
    }

    #[test]
    fn migrates_an_older_file_with_its_content() {
        let mut db = with_one_thread();
        migrate_with(&mut db, "x", Time(2), &with_next()).unwrap();
        assert_eq!(version(&db, "x").unwrap(), VERSION + 1);
        let title: String = db.query_row("SELECT title FROM threads", [], |row| row.get(0)).unwrap();
        assert_eq!(title, "old");
        // A second migration is skipped; it would fail on the existing column.
        migrate_with(&mut db, "x", Time(3), &with_next()).unwrap();
    }

    #[test]
    fn rejects_a_newer_file_unchanged() {
        let mut db = with_one_thread();
        migrate_with(&mut db, "x", Time(2), &with_next()).unwrap();
        let refused = migrate(&mut db, "x", Time(3));
        assert!(
            matches!(refused, Err(StoreError::Version { found, known }) if found == VERSION + 1 && known == VERSION)
        );
        let title: String = db.query_row("SELECT title FROM threads", [], |row| row.get(0)).unwrap();
        assert_eq!(title, "old");
    }

    #[test]
    fn a_failed_migration_changes_nothing() {
        let mut db = with_one_thread();
        let steps: Vec<&str> = MIGRATIONS.iter().copied().chain([NEXT, "NOT SQL"]).collect();
        assert!(migrate_with(&mut db, "x", Time(2), &steps).is_err());
        assert_eq!(version(&db, "x").unwrap(), VERSION);
        assert!(db.prepare("SELECT title FROM threads").is_err());
    }

    #[test]
    fn rejects_the_database_of_another_program() {
        let mut db = Connection::open_in_memory().unwrap();
        db.execute_batch("CREATE TABLE bookmarks (url TEXT)").unwrap();
        assert!(matches!(migrate(&mut db, "x", Time(1)), Err(StoreError::Foreign(_))));
    }
}
