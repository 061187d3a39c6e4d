//! Retention, statistics, vacuum and integrity check in SQL.

use rusqlite::Connection;

use super::{
    log,
    row::{count, get_number, int},
    schema,
    session::Session,
    threads,
};
use crate::{
    chunk,
    clock::Time,
    error::StoreError,
    model::{Retention, Stats, StoreSize, Tenant, Usage, UserId},
};

/// Removals in one write, a small number so that appends are not delayed.
pub(super) const REMOVALS_PER_WRITE: usize = 32;

/// Candidates found per query and rule; the rest is found after these are removed.
pub(super) const MAX_CANDIDATES: usize = 4096;

/// Pages released per write.
const VACUUM_PAGES: u32 = 512;

const LIVE_RUN: &str =
    "SELECT 1 FROM runs WHERE runs.thread = threads.id AND status IN ('queued', 'running', 'paused')";

/// One step of retention, with the id of its row.
#[derive(Clone, Copy, Debug)]
pub(super) enum Removal {
    FinishRun(i64),
    DeleteThread(i64),
    DropLog(i64),
}

fn collect_ids(
    db: &Connection,
    sql: &str,
    number: i64,
    removal: fn(i64) -> Removal,
    into: &mut Vec<Removal>,
) -> Result<(), StoreError> {
    let mut list = db.prepare(&format!("{sql} LIMIT ?2"))?;
    let rows = list.query_map((number, count(MAX_CANDIDATES)), |row| row.get(0).map(removal))?;
    for row in rows {
        into.push(row?);
    }
    Ok(())
}

/// The removals that the retention rules require now.
pub(super) fn find_removals(
    db: &Connection,
    retention: &Retention,
    now: Time,
) -> Result<Vec<Removal>, StoreError> {
    let mut found = Vec::new();
    collect_ids(
        db,
        "SELECT id FROM runs WHERE status = 'waiting' AND NOT EXISTS (SELECT 1 FROM pending \
           WHERE pending.run = runs.id AND answered IS NULL AND (expires IS NULL OR expires > ?1))",
        int(now.0),
        Removal::FinishRun,
        &mut found,
    )?;
    if let Some(age) = retention.thread_age {
        let sql = format!("SELECT id FROM threads WHERE updated <= ?1 AND NOT EXISTS ({LIVE_RUN})");
        collect_ids(db, &sql, int(now.before(age).0), Removal::DeleteThread, &mut found)?;
    }
    if let Some(keep) = retention.threads_per_owner {
        let sql = format!(
            "SELECT id FROM (SELECT id, row_number() OVER (PARTITION BY tenant, user, owner_agent ORDER BY id DESC) AS place \
               FROM threads) AS threads WHERE place > ?1 AND NOT EXISTS ({LIVE_RUN})"
        );
        collect_ids(db, &sql, count(keep), Removal::DeleteThread, &mut found)?;
    }
    let ended = "kept <> 'nothing' AND status IN ('waiting', 'finished', 'failed', 'stopped')";
    if let Some(age) = retention.log_age {
        let sql = format!("SELECT id FROM runs WHERE {ended} AND updated <= ?1");
        collect_ids(db, &sql, int(now.before(age).0), Removal::DropLog, &mut found)?;
    }
    if let Some(keep) = retention.logs_per_thread {
        let sql = format!(
            "SELECT id FROM (SELECT id, kept, status, row_number() OVER (PARTITION BY thread ORDER BY id DESC) AS place \
               FROM runs) WHERE place > ?1 AND {ended}"
        );
        collect_ids(db, &sql, count(keep), Removal::DropLog, &mut found)?;
    }
    Ok(found)
}

/// Executes a removal if it still applies. Returns whether it did.
pub(super) fn remove(db: &Session, removal: Removal, now: Time) -> Result<bool, StoreError> {
    match removal {
        Removal::FinishRun(run) => log::finish_if_all_closed(db, run, now),
        Removal::DropLog(run) => log::drop_log(db, run),
        Removal::DeleteThread(thread) => {
            let sql = format!("SELECT count(*) FROM threads WHERE id = ?1 AND NOT EXISTS ({LIVE_RUN})");
            let idle: i64 = db.prepare_cached(&sql)?.query_row([thread], |row| row.get(0))?;
            if idle > 0 {
                threads::delete_by_id(db, thread)?;
            }
            Ok(idle > 0)
        }
    }
}

/// A write without effect; fails whenever a small write would, for example on a full disk.
pub(super) fn probe(db: &Connection) -> Result<(), StoreError> {
    db.prepare_cached("UPDATE fences SET last = last")?.execute([])?;
    Ok(())
}

/// The live runs and the stored data of a user, or of all users of a tenant. Lengths are in the heads of records, so that no
/// body is read; bytes are counted only if `with_bytes`.
pub(super) fn usage(
    db: &Connection,
    tenant: &Tenant,
    user: Option<&UserId>,
    with_bytes: bool,
) -> Result<Usage, StoreError> {
    let number = |sql: &str| -> Result<u64, StoreError> {
        let mut query = db.prepare_cached(sql)?;
        Ok(query.query_row((tenant.as_str(), user.map(UserId::as_str)), |row| get_number(row, 0))?)
    };
    let of_threads = |table: &str| {
        number(&format!(
            "SELECT coalesce(sum(octet_length(b.body)), 0) FROM threads AS t JOIN {table} AS b ON b.thread = t.id \
             WHERE t.tenant = ?1 AND (?2 IS NULL OR t.user = ?2)"
        ))
    };
    let of_runs = |table: &str| {
        number(&format!(
            "SELECT coalesce(sum(octet_length(b.body)), 0) FROM runs AS r JOIN {table} AS b ON b.run = r.id \
             WHERE r.tenant = ?1 AND (?2 IS NULL OR r.user = ?2)"
        ))
    };
    let bytes = match with_bytes {
        true => {
            of_threads("messages")?
                + of_threads("states")?
                + of_runs("inputs")?
                + of_runs("log")?
                + of_runs("compacted")?
        }
        false => 0,
    };
    Ok(Usage {
        runs: number(
            "SELECT count(*) FROM runs WHERE status IN ('queued', 'running', 'paused') AND tenant = ?1 \
               AND (?2 IS NULL OR user = ?2)",
        )?,
        threads: number("SELECT count(*) FROM threads WHERE tenant = ?1 AND (?2 IS NULL OR user = ?2)")?,
        bytes,
    })
}

pub(super) fn size(db: &Connection) -> Result<StoreSize, StoreError> {
    let pragma = |name: &str| -> Result<u64, StoreError> {
        Ok(db.pragma_query_value(None, name, |row| get_number(row, 0))?)
    };
    let page_size = pragma("page_size")?;
    Ok(StoreSize {
        bytes: pragma("page_count")? * page_size,
        free_bytes: pragma("freelist_count")? * page_size,
    })
}

pub(super) fn stats(db: &Connection, path: &str, now: Time) -> Result<Stats, StoreError> {
    let number = |sql: &str| threads::query_number(db, sql, now);
    let StoreSize { bytes, free_bytes } = size(db)?;
    Ok(Stats {
        backend: "sqlite",
        schema_version: schema::version(db, path)?,
        threads: number("SELECT count(*) FROM threads")?,
        runs: number("SELECT count(*) FROM runs")?,
        live_runs: number("SELECT count(*) FROM runs WHERE status IN ('queued', 'running', 'paused')")?,
        open_pending: number(
            "SELECT count(*) FROM pending WHERE answered IS NULL AND (expires IS NULL OR expires > ?1)",
        )?,
        feedback: number("SELECT count(*) FROM feedback")?,
        events: number("SELECT coalesce(sum(events), 0) FROM log")?,
        // Without the length prefix of each event.
        log_bytes: number("SELECT coalesce(sum(length(body) - 4 * events), 0) FROM log")?
            + number("SELECT coalesce(sum(length(body)), 0) FROM compacted")?,
        bytes,
        free_bytes,
    })
}

/// Releases some free pages. Returns whether there are more.
pub(super) fn vacuum_step(db: &Connection) -> Result<bool, StoreError> {
    let free = || -> Result<u64, StoreError> {
        Ok(db.pragma_query_value(None, "freelist_count", |row| get_number(row, 0))?)
    };
    let before = free()?;
    // The pragma releases one page per row.
    let mut vacuum = db.prepare(&format!("PRAGMA incremental_vacuum({VACUUM_PAGES})"))?;
    let mut rows = vacuum.query([])?;
    while rows.next()?.is_some() {}
    let after = free()?;
    Ok(after > 0 && after < before)
}

/// A rule that all data obeys: its description, and a query for the rows that break it. The end of a live log is that of its
/// last row.
const CHECKS: &[(&str, &str)] = &[
    (
        "runs without a thread",
        "SELECT count(*) FROM runs AS r WHERE NOT EXISTS (SELECT 1 FROM threads AS t WHERE t.id = r.thread)",
    ),
    (
        "threads that an ended or missing run has",
        "SELECT count(*) FROM threads AS t WHERE t.leased IS NOT NULL AND NOT EXISTS (SELECT 1 FROM runs AS r \
           WHERE r.id = t.leased AND r.thread = t.id AND r.status IN ('running', 'paused'))",
    ),
    (
        "running runs without their thread",
        "SELECT count(*) FROM runs AS r JOIN threads AS t ON t.id = r.thread \
           WHERE r.status IN ('running', 'paused') AND t.leased IS NOT r.id",
    ),
    (
        "logs with a hole or an overlap",
        "SELECT count(*) FROM (SELECT seq, lag(seq + events) OVER (PARTITION BY run ORDER BY seq) AS expected FROM log) \
           WHERE expected IS NOT NULL AND expected <> seq",
    ),
    (
        "logs that do not begin or end where their run states",
        "SELECT count(*) FROM runs AS r \
           LEFT JOIN (SELECT run, min(seq) AS first, max(seq + events) AS next FROM log GROUP BY run) AS l ON l.run = r.id \
           WHERE r.kept = 'exact' AND (coalesce(l.first, 0) <> r.first_retained \
             OR (r.status NOT IN ('queued', 'running', 'paused') AND coalesce(l.next, 0) <> r.next_seq))",
    ),
    (
        "rows of logs without a run",
        "SELECT count(*) FROM log AS l WHERE NOT EXISTS (SELECT 1 FROM runs AS r WHERE r.id = l.run)",
    ),
    (
        "compacted runs without their compacted log",
        "SELECT count(*) FROM runs AS r WHERE r.kept = 'compacted' \
           AND NOT EXISTS (SELECT 1 FROM compacted AS c WHERE c.run = r.id)",
    ),
];

pub(super) fn verify(db: &Connection) -> Result<(), StoreError> {
    let mut check = db.prepare("PRAGMA integrity_check")?;
    let found: Vec<String> = check.query_map([], |row| row.get(0))?.collect::<Result<_, _>>()?;
    if found.iter().any(|line| line != "ok") {
        return Err(StoreError::Corrupt(found.join("; ").into()));
    }
    let mut findings = Vec::new();
    for (broken, sql) in CHECKS {
        match db.query_row(sql, [], |row| get_number(row, 0))? {
            0 => {}
            found => findings.push(format!("{found} {broken}")),
        }
    }
    let mut rows = db.prepare("SELECT events, body FROM log")?;
    let is_whole = rows.query_map([], |row| {
        Ok(chunk::has_events(row.get_ref(1)?.as_blob().unwrap_or_default(), get_number(row, 0)?))
    })?;
    let mut damaged = 0;
    for is_whole in is_whole {
        damaged += u64::from(!is_whole?);
    }
    if damaged > 0 {
        findings.push(format!("{damaged} rows of logs whose events are damaged"));
    }
    if findings.is_empty() { Ok(()) } else { Err(StoreError::Corrupt(findings.join("; ").into())) }
}
