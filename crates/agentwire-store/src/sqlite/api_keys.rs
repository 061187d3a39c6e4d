//! API keys in SQL.

use rusqlite::{Connection, OptionalExtension, Row};

use super::row::{get_optional_time, get_time, int};
use crate::{
    clock::Time,
    error::{Conflict, Missing, StoreError},
    model::{ApiKey, KeyChange, KeyChanges, Text},
};

const COLUMNS: &str = "id, hash, tenant, user, permissions, created, expires, revoked, last_used";

/// The version of the next change.
const NEXT: &str = "(SELECT coalesce(max(version), 0) + 1 FROM api_keys)";

fn read(row: &Row<'_>) -> rusqlite::Result<ApiKey> {
    Ok(ApiKey {
        id: row.get(0)?,
        hash: row.get(1)?,
        tenant: row.get(2)?,
        user: row.get(3)?,
        permissions: row.get(4)?,
        created: get_time(row, 5)?,
        expires: get_optional_time(row, 6)?,
        revoked: get_optional_time(row, 7)?,
        last_used: get_optional_time(row, 8)?,
    })
}

pub(super) fn add(db: &Connection, key: &ApiKey) -> Result<(), StoreError> {
    let sql = format!(
        "INSERT INTO api_keys ({COLUMNS}, version) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, {NEXT}) \
         ON CONFLICT DO NOTHING"
    );
    let time = |time: Option<Time>| time.map(|time| int(time.0));
    let (tenant, user) = (&*key.tenant, &*key.user);
    let added = db.prepare_cached(&sql)?.execute((
        &*key.id,
        &*key.hash,
        tenant,
        user,
        &*key.permissions,
        int(key.created.0),
        time(key.expires),
        time(key.revoked),
        time(key.last_used),
    ))?;
    if added == 1 { Ok(()) } else { Err(StoreError::Conflict(Conflict::Key)) }
}

pub(super) fn changes(db: &Connection, after: u64) -> Result<KeyChanges, StoreError> {
    let mut list = db.prepare_cached(&format!(
        "SELECT {COLUMNS}, version FROM api_keys WHERE version > ?1 ORDER BY version"
    ))?;
    let mut rows = list.query([int(after)])?;
    let mut changes = KeyChanges { keys: Vec::new(), version: after };
    while let Some(row) = rows.next()? {
        changes.keys.push(read(row)?);
        changes.version = u64::try_from(row.get::<_, i64>(9)?).unwrap_or(after);
    }
    Ok(changes)
}

pub(super) fn change(db: &Connection, id: &str, change: KeyChange, now: Time) -> Result<ApiKey, StoreError> {
    let set = match change {
        KeyChange::Revoke => "revoked = coalesce(revoked, ?2)",
        KeyChange::ExpireAt(_) => "expires = min(coalesce(expires, ?2), ?2)",
    };
    let time = match change {
        KeyChange::Revoke => now,
        KeyChange::ExpireAt(time) => time,
    };
    let sql = format!("UPDATE api_keys SET {set}, version = {NEXT} WHERE id = ?1 RETURNING {COLUMNS}");
    let changed = db.prepare_cached(&sql)?.query_row((id, int(time.0)), read).optional()?;
    changed.ok_or(StoreError::NotFound(Missing::Key))
}

pub(super) fn touch(db: &Connection, used: &[(Text, Time)]) -> Result<(), StoreError> {
    for (id, time) in used {
        db.prepare_cached("UPDATE api_keys SET last_used = max(coalesce(last_used, 0), ?2) WHERE id = ?1")?
            .execute((&**id, int(time.0)))?;
    }
    Ok(())
}
