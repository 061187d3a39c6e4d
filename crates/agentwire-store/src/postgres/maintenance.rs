//! Retention, statistics and integrity check in SQL.

use super::{
    connect::Transaction,
    log,
    row::lock_thread_id,
    schema, threads,
    value::{Day, Value, count, get, get_number, id, int, optional_text, text},
};
use crate::{
    chunk,
    error::StoreError,
    model::{Retention, Stats, StoreSize, Tenant, Usage, UserId},
};

/// Removals in one transaction, a small number so that locks are short.
pub(super) const REMOVALS_PER_WRITE: usize = 32;

/// Candidates found per query and rule; the rest is found after these are removed.
pub(super) const MAX_CANDIDATES: usize = 4096;

/// Rows of logs that a check reads at once.
const ROWS_PER_CHECK: usize = 256;

macro_rules! live_run {
    () => {
        "SELECT 1 FROM agentwire.runs WHERE runs.thread = threads.id AND status IN ('queued', 'running', 'paused')"
    };
}

/// One step of retention, with the id of its row.
#[derive(Clone, Copy, Debug)]
pub(super) enum Removal {
    FinishRun(i64),
    DeleteThread(i64),
    DropLog(i64),
}

async fn collect(
    t: &Transaction,
    sql: &str,
    number: Value<'_>,
    removal: fn(i64) -> Removal,
    into: &mut Vec<Removal>,
) -> Result<(), StoreError> {
    for row in t.query(sql, &[number, count(MAX_CANDIDATES)]).await? {
        into.push(removal(get(&row, 0)?));
    }
    Ok(())
}

/// The removals that the retention rules require now.
pub(super) async fn find_removals(
    t: &Transaction,
    retention: &Retention,
) -> Result<Vec<Removal>, StoreError> {
    let mut found = Vec::new();
    collect(
        t,
        "SELECT id FROM agentwire.runs WHERE status = 'waiting' AND NOT EXISTS (SELECT 1 FROM agentwire.pending \
           WHERE pending.run = runs.id AND answered IS NULL AND (expires IS NULL OR expires > $1)) LIMIT $2",
        int(t.now.0),
        Removal::FinishRun,
        &mut found,
    )
    .await?;
    if let Some(age) = retention.thread_age {
        let sql = concat!(
            "SELECT id FROM agentwire.threads WHERE updated <= $1 AND NOT EXISTS (",
            live_run!(),
            ") LIMIT $2"
        );
        collect(t, sql, int(t.now.before(age).0), Removal::DeleteThread, &mut found).await?;
    }
    if let Some(keep) = retention.threads_per_owner {
        let sql = concat!(
            "SELECT id FROM (SELECT id, row_number() OVER (PARTITION BY owner_key ORDER BY id DESC) AS place \
               FROM agentwire.threads) AS threads WHERE place > $1 AND NOT EXISTS (",
            live_run!(),
            ") LIMIT $2"
        );
        collect(t, sql, count(keep), Removal::DeleteThread, &mut found).await?;
    }
    if let Some(age) = retention.log_age {
        let sql = "SELECT id FROM agentwire.runs WHERE kept <> 'nothing' \
             AND status IN ('waiting', 'finished', 'failed', 'stopped') AND updated <= $1 LIMIT $2";
        collect(t, sql, int(t.now.before(age).0), Removal::DropLog, &mut found).await?;
    }
    if let Some(keep) = retention.logs_per_thread {
        let sql = "SELECT id FROM (SELECT id, kept, status, row_number() OVER (PARTITION BY thread ORDER BY id DESC) AS place \
               FROM agentwire.runs) AS runs WHERE place > $1 AND kept <> 'nothing' \
               AND status IN ('waiting', 'finished', 'failed', 'stopped') LIMIT $2";
        collect(t, sql, count(keep), Removal::DropLog, &mut found).await?;
    }
    Ok(found)
}

/// Executes a removal if it still applies. Returns whether it did.
pub(super) async fn remove(t: &Transaction, removal: Removal) -> Result<bool, StoreError> {
    match removal {
        Removal::FinishRun(run) => {
            Ok(log::lock_thread_of(t, run).await? && log::finish_if_all_closed(t, run).await?)
        }
        Removal::DropLog(run) => Ok(log::lock_thread_of(t, run).await? && log::drop_log(t, run).await?),
        Removal::DeleteThread(thread) => {
            lock_thread_id(t, thread).await?;
            let sql =
                concat!("SELECT 1 FROM agentwire.threads WHERE id = $1 AND NOT EXISTS (", live_run!(), ")");
            let is_idle = t.query_first(sql, &[id(thread)]).await?.is_some();
            if is_idle {
                threads::delete_by_id(t, thread).await?;
            }
            Ok(is_idle)
        }
    }
}

/// The live runs and the stored data of a user, or of all users of a tenant. Lengths are in the heads of values, so that no
/// body is read; bytes are counted only if `with_bytes`.
pub(super) async fn usage(
    t: &Transaction,
    tenant: &Tenant,
    user: Option<&UserId>,
    with_bytes: bool,
) -> Result<Usage, StoreError> {
    let values = || [text(tenant.as_str()), optional_text(user.map(UserId::as_str))];
    macro_rules! theirs {
        () => {
            "agentwire.threads AS t WHERE md5(t.tenant) = md5($1) AND t.tenant = $1 AND ($2 IS NULL OR t.usr = $2)"
        };
    }
    let counted = t
        .query_first(
            concat!(
                "SELECT (SELECT count(*) FROM agentwire.runs WHERE status IN ('queued', 'running', 'paused') \
                   AND tenant = $1 AND ($2 IS NULL OR usr = $2)), (SELECT count(*) FROM ",
                theirs!(),
                ")"
            ),
            &values(),
        )
        .await?
        .ok_or(StoreError::Closed)?;
    let bytes = match with_bytes {
        true => {
            let sum = concat!(
                "WITH t AS MATERIALIZED (SELECT id FROM ",
                theirs!(),
                "), r AS MATERIALIZED (SELECT r.id, r.day FROM t JOIN agentwire.runs AS r ON r.thread = t.id) \
                 SELECT coalesce(sum(bytes), 0)::bigint FROM ( \
                   SELECT octet_length(b.body) AS bytes FROM t JOIN agentwire.messages AS b ON b.thread = t.id \
                   UNION ALL SELECT octet_length(b.body) FROM t JOIN agentwire.states AS b ON b.thread = t.id \
                   UNION ALL SELECT octet_length(b.body) FROM r JOIN agentwire.inputs AS b ON b.run = r.id \
                   UNION ALL SELECT octet_length(b.body) FROM r JOIN agentwire.log AS b ON b.run = r.id AND b.day = r.day \
                   UNION ALL SELECT octet_length(b.body) FROM r JOIN agentwire.compacted AS b ON b.run = r.id) AS parts"
            );
            t.query_first(sum, &values()).await?.map_or(Ok(0), |row| get_number(&row, 0))?
        }
        false => 0,
    };
    Ok(Usage { runs: get_number(&counted, 0)?, threads: get_number(&counted, 1)?, bytes })
}

pub(super) async fn size(t: &Transaction) -> Result<StoreSize, StoreError> {
    let row = t
        .query_first(
            "SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0)::bigint FROM pg_class AS c \
             WHERE c.relkind = 'r' AND c.relnamespace = (SELECT relnamespace FROM pg_class WHERE oid = 'agentwire.meta'::regclass)",
            &[],
        )
        .await?;
    let bytes = row.map_or(Ok(0), |row| get_number(&row, 0))?;
    Ok(StoreSize { bytes, free_bytes: 0 })
}

pub(super) async fn stats(t: &Transaction) -> Result<Stats, StoreError> {
    let number = async |sql: &str| -> Result<u64, StoreError> {
        let row = t.query_first(sql, &[]).await?;
        row.map_or(Ok(0), |row| get_number(&row, 0))
    };
    let open = t.query_first(
        "SELECT count(*) FROM agentwire.pending WHERE answered IS NULL AND (expires IS NULL OR expires > $1)",
        &[int(t.now.0)],
    ).await?;
    let open_pending = open.map_or(Ok(0), |row| get_number(&row, 0))?;
    Ok(Stats {
        backend: "postgres",
        schema_version: schema::VERSION.into(),
        threads: number("SELECT count(*) FROM agentwire.threads").await?,
        runs: number("SELECT count(*) FROM agentwire.runs").await?,
        live_runs: number(
            "SELECT count(*) FROM agentwire.runs WHERE status IN ('queued', 'running', 'paused')",
        )
        .await?,
        open_pending,
        feedback: number("SELECT count(*) FROM agentwire.feedback").await?,
        events: number("SELECT coalesce(sum(n), 0)::bigint FROM agentwire.log").await?,
        // Without the length prefix of each event.
        log_bytes: number("SELECT coalesce(sum(octet_length(body) - 4 * n), 0)::bigint FROM agentwire.log")
            .await?
            + number("SELECT coalesce(sum(octet_length(body)), 0)::bigint FROM agentwire.compacted").await?,
        bytes: size(t).await?.bytes,
        free_bytes: 0,
    })
}

/// A rule that all data obeys: its description, and a query for the rows that break it.
const CHECKS: &[(&str, &str)] = &[
    (
        "runs without a head",
        "SELECT count(*) FROM agentwire.runs AS r WHERE NOT EXISTS (SELECT 1 FROM agentwire.heads AS h WHERE h.run = r.id)",
    ),
    (
        "runs without a thread",
        "SELECT count(*) FROM agentwire.runs AS r WHERE NOT EXISTS (SELECT 1 FROM agentwire.threads AS t WHERE t.id = r.thread)",
    ),
    (
        "threads that an ended or missing run has",
        "SELECT count(*) FROM agentwire.threads AS t WHERE t.leased IS NOT NULL AND NOT EXISTS (SELECT 1 FROM agentwire.runs AS r \
           WHERE r.id = t.leased AND r.thread = t.id AND r.status IN ('running', 'paused'))",
    ),
    (
        "running runs without their thread",
        "SELECT count(*) FROM agentwire.runs AS r JOIN agentwire.threads AS t ON t.id = r.thread \
           WHERE r.status IN ('running', 'paused') AND t.leased IS DISTINCT FROM r.id",
    ),
    (
        "logs with a hole or an overlap",
        "SELECT count(*) FROM (SELECT run, seq, lag(seq + n) OVER (PARTITION BY day, run ORDER BY seq) AS expected \
           FROM agentwire.log) AS l WHERE expected IS NOT NULL AND expected <> seq",
    ),
    (
        "logs that do not begin or end where their run states",
        "SELECT count(*) FROM agentwire.runs AS r JOIN agentwire.heads AS h ON h.run = r.id \
           LEFT JOIN (SELECT day, run, min(seq) AS first, max(seq + n) AS next FROM agentwire.log GROUP BY day, run) AS l \
             ON l.run = r.id AND l.day = r.day \
           WHERE r.kept = 'exact' AND (coalesce(l.first, 0) <> r.first_retained OR coalesce(l.next, 0) <> h.next_seq)",
    ),
    (
        "rows of logs without a run",
        "SELECT count(*) FROM agentwire.log AS l WHERE NOT EXISTS (SELECT 1 FROM agentwire.runs AS r WHERE r.id = l.run AND r.day = l.day)",
    ),
    (
        "compacted runs without their compacted log",
        "SELECT count(*) FROM agentwire.runs AS r WHERE r.kept = 'compacted' \
           AND NOT EXISTS (SELECT 1 FROM agentwire.compacted AS c WHERE c.run = r.id)",
    ),
];

/// Rows of logs that do not have the number of events that they state.
async fn count_damaged_rows(t: &Transaction) -> Result<u64, StoreError> {
    // Before all days.
    let (mut day, mut run, mut seq, mut damaged) = (Day(i32::MIN), 0, 0, 0);
    loop {
        let rows = t
            .query(
                "SELECT day, run, seq, n, body FROM agentwire.log WHERE (day, run, seq) > (($1::date[])[1], $2, $3) \
                   ORDER BY day, run, seq LIMIT $4",
                &[Value::Day(&[day]), id(run), id(seq), count(ROWS_PER_CHECK)],
            )
            .await?;
        let Some(last) = rows.last() else { return Ok(damaged) };
        (day, run, seq) = (get(last, 0)?, get(last, 1)?, get(last, 2)?);
        for row in &rows {
            let events = u64::try_from(get::<i32>(row, 3)?).unwrap_or(u64::MAX);
            damaged += u64::from(!chunk::has_events(get(row, 4)?, events));
        }
    }
}

pub(super) async fn verify(t: &Transaction) -> Result<(), StoreError> {
    let mut findings = Vec::new();
    for (broken, sql) in CHECKS {
        match t.query_number(sql, &[]).await? {
            0 => {}
            found => findings.push(format!("{found} {broken}")),
        }
    }
    let damaged = count_damaged_rows(t).await?;
    if damaged > 0 {
        findings.push(format!("{damaged} rows of logs whose events are damaged"));
    }
    if findings.is_empty() { Ok(()) } else { Err(StoreError::Corrupt(findings.join("; ").into())) }
}
