//! The schema, its migrations, and the partitions of the log.

use std::sync::Arc;

use super::{
    connect::{Database, Lane, Transaction},
    error::Failed,
    value::{get, int, text},
};
use crate::{error::StoreError, model::Durability};

/// One step from version n to n + 1. Append only: databases of every version are in use.
///
/// A version adds what it needs in a form that the version before can live with (`min_writer`), so that gateways of both run
/// side by side; what nobody needs any more is removed two versions later.
struct Migration {
    sql: &'static str,
    /// The oldest versions of the code that can read and write the result.
    min_reader: i32,
    min_writer: i32,
}

const MIGRATIONS: &[Migration] = &[
    Migration { sql: include_str!("schema_1.sql"), min_reader: 1, min_writer: 1 },
    Migration { sql: include_str!("schema_2.sql"), min_reader: 1, min_writer: 1 },
    Migration { sql: include_str!("schema_3.sql"), min_reader: 1, min_writer: 1 },
    Migration { sql: include_str!("schema_4.sql"), min_reader: 1, min_writer: 1 },
    Migration { sql: include_str!("schema_5.sql"), min_reader: 1, min_writer: 1 },
    Migration { sql: include_str!("schema_6.sql"), min_reader: 1, min_writer: 1 },
];

/// The version that this code reads and writes.
pub(super) const VERSION: i32 = MIGRATIONS.len() as i32;

/// The oldest server that the statements work with.
const MIN_SERVER: i32 = 130_000;

/// Days for which the log has partitions in advance.
const DAYS_AHEAD: i32 = 3;

/// The state of the schema in a database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SchemaState {
    /// There is none.
    Missing,
    /// This code can use it as it is.
    Usable(i32),
    /// It must be migrated first.
    Older(i32),
}

async fn inspect(t: &Transaction, schema: &str) -> Result<SchemaState, StoreError> {
    let server = t.query_number("SELECT current_setting('server_version_num')::bigint", &[]).await?;
    if server < i64::from(MIN_SERVER) {
        let message = format!("the server has version {server}, and 13 is the oldest that works");
        return Err(StoreError::Refused(Arc::new(Failed(message))));
    }
    let meta = format!("{schema}.meta");
    // One statement: another gateway may create the schema at this moment.
    let found = t
        .query_first(
            "SELECT to_regclass($1) IS NOT NULL, (SELECT count(*) FROM pg_class AS c \
               JOIN pg_namespace AS n ON n.oid = c.relnamespace WHERE n.nspname = $2)",
            &[text(&meta), text(schema)],
        )
        .await?
        .ok_or(StoreError::Closed)?;
    if !get::<bool>(&found, 0)? {
        return match get::<i64>(&found, 1)? {
            0 => Ok(SchemaState::Missing),
            _ => Err(StoreError::Foreign(format!("schema {schema}").into())),
        };
    }
    let row = t.query_first("SELECT version, min_reader, min_writer FROM agentwire.meta", &[]).await?;
    let row = row.ok_or_else(|| StoreError::Corrupt("the schema has no version".into()))?;
    let (found, min_reader, min_writer): (i32, i32, i32) = (get(&row, 0)?, get(&row, 1)?, get(&row, 2)?);
    if min_reader.max(min_writer) > VERSION {
        return Err(StoreError::Version { found: found.into(), known: VERSION.into() });
    }
    Ok(if found < VERSION { SchemaState::Older(found) } else { SchemaState::Usable(found) })
}

/// The state of the schema.
pub(super) async fn state(database: &Database) -> Result<SchemaState, StoreError> {
    let schema = &database.address.schema;
    database.read(|t| async move { inspect(&t, schema).await }).await
}

/// Creates the schema or brings it to the version of this code; returns the version that it had.
pub(super) async fn migrate(database: &Database) -> Result<i32, StoreError> {
    migrate_with(database, MIGRATIONS).await
}

async fn migrate_with(database: &Database, migrations: &[Migration]) -> Result<i32, StoreError> {
    let schema = &database.address.schema;
    database
        .transact(Lane::General, Durability::Os, |t| async move {
            // Several gateways may start at once.
            t.query("SELECT pg_advisory_xact_lock(hashtextextended('agentwire schema ' || $1, 0))", &[text(schema)])
                .await?;
            let found = match inspect(&t, schema).await? {
                SchemaState::Missing => {
                    t.batch(&format!("CREATE SCHEMA IF NOT EXISTS {schema}")).await?;
                    0
                }
                SchemaState::Usable(version) | SchemaState::Older(version) => version,
            };
            for (version, step) in (1_i32..).zip(migrations) {
                if version <= found {
                    continue;
                }
                t.batch(step.sql).await?;
                let meta = format!(
                    "INSERT INTO agentwire.meta (id, version, min_reader, min_writer) VALUES (1, {version}, {reader}, {writer}) \
                     ON CONFLICT (id) DO UPDATE SET version = excluded.version, min_reader = excluded.min_reader, \
                       min_writer = excluded.min_writer",
                    reader = step.min_reader,
                    writer = step.min_writer,
                );
                t.batch(&meta).await?;
            }
            Ok(found)
        })
        .await
}

/// Sets the server's time limits for the role, for connections through a pooler, which cannot set them by themselves.
pub(super) async fn set_role_limits(database: &Database) -> Result<(), StoreError> {
    database
        .transact(Lane::General, Durability::Os, |t| async move {
            t.batch(
                "DO $$ BEGIN \
                   EXECUTE format('ALTER ROLE %I IN DATABASE %I SET statement_timeout = ''5s''', current_user, current_database()); \
                   EXECUTE format('ALTER ROLE %I IN DATABASE %I SET lock_timeout = ''2s''', current_user, current_database()); \
                   EXECUTE format('ALTER ROLE %I IN DATABASE %I SET idle_in_transaction_session_timeout = ''5s''', current_user, current_database()); \
                 END $$",
            )
            .await
        })
        .await
}

/// True if the server's own setting acknowledges commits before they are on disk.
pub(super) async fn is_lax(database: &Database) -> Result<bool, StoreError> {
    database
        .read(|t| async move {
            let row = t.query_first("SELECT current_setting('synchronous_commit')", &[]).await?;
            Ok(row.map(|row| get::<String>(&row, 0)).transpose()?.is_some_and(|value| value == "off"))
        })
        .await
}

/// Makes the partitions of the next days, and drops those without rows of days that are over. One gateway at a time; a failure
/// is harmless, since the default partition takes the rows.
pub(super) async fn tend_partitions(database: &Database) -> Result<(), StoreError> {
    let schema = &database.address.schema;
    let missing = database.transact(Lane::General, Durability::Os, |t| async move {
        let rows = t
            .query(
                "SELECT to_char(d, 'YYYYMMDD'), d::date::text, (d::date + 1)::text \
             FROM generate_series((to_timestamp($1 / 1000.0) AT TIME ZONE 'UTC')::date, \
               (to_timestamp($1 / 1000.0) AT TIME ZONE 'UTC')::date + $3::int, interval '1 day') AS d \
             WHERE to_regclass($2 || '.log_' || to_char(d, 'YYYYMMDD')) IS NULL",
                &[int(t.now.0), text(schema), int(DAYS_AHEAD.unsigned_abs().into())],
            )
            .await?;
        rows.iter()
            .map(|row| Ok((get::<String>(row, 0)?, get::<String>(row, 1)?, get::<String>(row, 2)?)))
            .collect::<Result<Vec<_>, StoreError>>()
    });
    for (name, from, to) in missing.await? {
        let made = database
            .transact(Lane::General, Durability::Os, |t| {
                let sql = format!(
                    "CREATE TABLE IF NOT EXISTS agentwire.log_{name} PARTITION OF agentwire.log FOR VALUES FROM ('{from}') TO ('{to}')"
                );
                async move {
                    lock_upkeep(&t, schema).await?;
                    t.batch(&sql).await
                }
            })
            .await;
        if let Err(error) = made {
            tracing::debug!(%error, day = %from, "no partition of the log");
        }
    }
    let old = database.read(|t| async move {
        let rows = t.query(
            "SELECT c.relname::text FROM pg_inherits AS i JOIN pg_class AS c ON c.oid = i.inhrelid \
             WHERE i.inhparent = to_regclass($2 || '.log') AND c.relname ~ '^log_[0-9]{8}$' \
               AND c.relname < 'log_' || to_char(to_timestamp($1 / 1000.0) AT TIME ZONE 'UTC' - interval '2 days', 'YYYYMMDD') \
             ORDER BY 1 LIMIT 400",
            &[int(t.now.0), text(schema)],
        ).await?;
        rows.iter().map(|row| get::<String>(row, 0)).collect::<Result<Vec<_>, StoreError>>()
    });
    for name in old.await? {
        let dropped = database
            .transact(Lane::General, Durability::Os, |t| {
                let name = name.clone();
                async move {
                    lock_upkeep(&t, schema).await?;
                    // No run of that day has a log or can get one; a run that is still live keeps its partition.
                    let day = name.trim_start_matches("log_").to_owned();
                    let in_use = t.query_first(
                        "SELECT 1 FROM agentwire.runs WHERE day = to_date($1, 'YYYYMMDD') AND kept = 'exact' LIMIT 1",
                        &[text(&day)],
                    ).await?;
                    if in_use.is_some()
                        || t.query_first(&format!("SELECT 1 FROM agentwire.{name} LIMIT 1"), &[]).await?.is_some()
                    {
                        return Ok(());
                    }
                    t.batch(&format!("DROP TABLE agentwire.{name}")).await
                }
            })
            .await;
        if let Err(error) = dropped {
            tracing::debug!(%error, partition = %name, "an old partition of the log stays");
        }
    }
    Ok(())
}

async fn lock_upkeep(t: &Transaction, schema: &str) -> Result<(), StoreError> {
    let lock = "SELECT pg_advisory_xact_lock(hashtextextended('agentwire upkeep ' || $1, 0))";
    t.query(lock, &[text(schema)]).await.map(|_| ())
}
