//! API keys in SQL.
//!
//! Every change holds one lock, so that versions become visible in their order: a gateway that has seen one has seen all
//! before it.

use tokio_postgres::Row;

use super::{
    connect::Transaction,
    value::{Value, get, get_number, get_optional_time, get_text, get_time, int, text},
};
use crate::{
    clock::Time,
    error::{Conflict, Missing, StoreError},
    model::{ApiKey, KeyChange, KeyChanges, Text},
};

macro_rules! columns {
    () => {
        "id, hash, tenant, usr, permissions, created, expires, revoked, last_used"
    };
}

/// The version of the next change.
macro_rules! next {
    () => {
        "(SELECT coalesce(max(version), 0) + 1 FROM agentwire.api_keys)"
    };
}

fn read(row: &Row) -> Result<ApiKey, StoreError> {
    Ok(ApiKey {
        id: get_text(row, 0)?,
        hash: get::<&[u8]>(row, 1)?.to_vec(),
        tenant: get_text(row, 2)?,
        user: get_text(row, 3)?,
        permissions: get_text(row, 4)?,
        created: get_time(row, 5)?,
        expires: get_optional_time(row, 6)?,
        revoked: get_optional_time(row, 7)?,
        last_used: get_optional_time(row, 8)?,
    })
}

async fn lock(t: &Transaction) -> Result<(), StoreError> {
    t.advisory_lock("keys", "").await
}

fn time<'a>(time: Option<Time>) -> Value<'a> {
    Value::Int(time.map(|time| i64::try_from(time.0).unwrap_or(i64::MAX)))
}

pub(super) async fn add(t: &Transaction, key: &ApiKey) -> Result<(), StoreError> {
    lock(t).await?;
    let added = t
        .query_first(
            concat!(
                "INSERT INTO agentwire.api_keys (",
                columns!(),
                ", version) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, ",
                next!(),
                ") ON CONFLICT DO NOTHING RETURNING 1"
            ),
            &[
                text(&key.id),
                Value::Bytes(&key.hash),
                text(&key.tenant),
                text(&key.user),
                text(&key.permissions),
                int(key.created.0),
                time(key.expires),
                time(key.revoked),
                time(key.last_used),
            ],
        )
        .await?;
    added.map(|_| ()).ok_or(StoreError::Conflict(Conflict::Key))
}

pub(super) async fn changes(t: &Transaction, after: u64) -> Result<KeyChanges, StoreError> {
    let sql = concat!(
        "SELECT ",
        columns!(),
        ", version FROM agentwire.api_keys WHERE version > $1 ORDER BY version"
    );
    let mut changes = KeyChanges { keys: Vec::new(), version: after };
    for row in t.query(sql, &[int(after)]).await? {
        changes.keys.push(read(&row)?);
        changes.version = get_number(&row, 9)?;
    }
    Ok(changes)
}

pub(super) async fn change(t: &Transaction, id: &str, change: KeyChange) -> Result<ApiKey, StoreError> {
    lock(t).await?;
    let (sql, time) = match change {
        KeyChange::Revoke => (
            concat!(
                "UPDATE agentwire.api_keys SET revoked = coalesce(revoked, $2), version = ",
                next!(),
                " WHERE id = $1 RETURNING ",
                columns!()
            ),
            t.now,
        ),
        KeyChange::ExpireAt(time) => (
            concat!(
                "UPDATE agentwire.api_keys SET expires = least(coalesce(expires, $2), $2), version = ",
                next!(),
                " WHERE id = $1 RETURNING ",
                columns!()
            ),
            time,
        ),
    };
    let changed = t.query_first(sql, &[text(id), int(time.0)]).await?;
    read(&changed.ok_or(StoreError::NotFound(Missing::Key))?)
}

pub(super) async fn touch(t: &Transaction, used: &[(Text, Time)]) -> Result<(), StoreError> {
    // In one order, so that two gateways do not wait for each other.
    let mut used: Vec<_> = used.iter().collect();
    used.sort();
    for (id, time) in used {
        t.query(
            "UPDATE agentwire.api_keys SET last_used = greatest(coalesce(last_used, 0), $2) WHERE id = $1",
            &[text(id), int(time.0)],
        )
        .await?;
    }
    Ok(())
}
