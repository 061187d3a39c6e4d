//! Keeping the file small, and looking at it.

use rusqlite::Connection;

use super::{
    log,
    row::{count, get_number, int},
    schema,
    session::Session,
    threads,
};
use crate::{
    clock::Time,
    error::StoreError,
    model::{Retention, Stats},
};

/// How many things one write gives up, so that appends get in between.
pub(super) const SLICE: usize = 32;

/// How many candidates are collected at a time; the rest is found when these are gone.
pub(super) const COLLECTED: usize = 4096;

/// Pages that one write gives back.
const VACUUM_PAGES: u32 = 512;

const LIVE: &str =
    "SELECT 1 FROM runs WHERE runs.thread = threads.id AND status IN ('queued', 'running', 'paused')";

/// Something that retention gives up.
#[derive(Clone, Copy, Debug)]
pub(super) enum Victim {
    Waiting(i64),
    Thread(i64),
    Log(i64),
}

fn ids(
    db: &Connection,
    sql: &str,
    number: i64,
    victim: fn(i64) -> Victim,
    into: &mut Vec<Victim>,
) -> Result<(), StoreError> {
    let mut list = db.prepare(&format!("{sql} LIMIT ?2"))?;
    let rows = list.query_map((number, count(COLLECTED)), |row| row.get(0).map(victim))?;
    for row in rows {
        into.push(row?);
    }
    Ok(())
}

/// What there is to give up now.
pub(super) fn victims(db: &Connection, retention: &Retention, now: Time) -> Result<Vec<Victim>, StoreError> {
    let mut found = Vec::new();
    ids(
        db,
        "SELECT id FROM runs WHERE status = 'waiting' AND NOT EXISTS (SELECT 1 FROM pending \
           WHERE pending.run = runs.id AND answered IS NULL AND (expires IS NULL OR expires > ?1))",
        int(now.0),
        Victim::Waiting,
        &mut found,
    )?;
    if let Some(age) = retention.thread_age {
        let sql = format!("SELECT id FROM threads WHERE updated <= ?1 AND NOT EXISTS ({LIVE})");
        ids(db, &sql, int(now.before(age).0), Victim::Thread, &mut found)?;
    }
    if let Some(keep) = retention.threads_per_owner {
        let sql = format!(
            "SELECT id FROM (SELECT id, row_number() OVER (PARTITION BY tenant, user ORDER BY id DESC) AS place \
               FROM threads) AS threads WHERE place > ?1 AND NOT EXISTS ({LIVE})"
        );
        ids(db, &sql, count(keep), Victim::Thread, &mut found)?;
    }
    let ended = "kept <> 'nothing' AND status IN ('waiting', 'finished', 'failed', 'stopped')";
    if let Some(age) = retention.log_age {
        let sql = format!("SELECT id FROM runs WHERE {ended} AND updated <= ?1");
        ids(db, &sql, int(now.before(age).0), Victim::Log, &mut found)?;
    }
    if let Some(keep) = retention.logs_per_thread {
        let sql = format!(
            "SELECT id FROM (SELECT id, kept, status, row_number() OVER (PARTITION BY thread ORDER BY id DESC) AS place \
               FROM runs) WHERE place > ?1 AND {ended}"
        );
        ids(db, &sql, count(keep), Victim::Log, &mut found)?;
    }
    Ok(found)
}

/// Gives one thing up, if that is still right. Says whether it was.
pub(super) fn give_up(db: &Session, victim: Victim, now: Time) -> Result<bool, StoreError> {
    match victim {
        Victim::Waiting(run) => log::finish_if_nothing_open(db, run, now),
        Victim::Log(run) => log::drop_log(db, run),
        Victim::Thread(thread) => {
            let sql = format!("SELECT count(*) FROM threads WHERE id = ?1 AND NOT EXISTS ({LIVE})");
            let idle: i64 = db.prepare_cached(&sql)?.query_row([thread], |row| row.get(0))?;
            if idle > 0 {
                threads::delete_by_id(db, thread)?;
            }
            Ok(idle > 0)
        }
    }
}

/// Writes what is there already, which takes as much room as anything small.
pub(super) fn probe(db: &Connection) -> Result<(), StoreError> {
    db.prepare_cached("UPDATE fences SET last = last")?.execute([])?;
    Ok(())
}

pub(super) fn stats(db: &Connection, path: &str, now: Time) -> Result<Stats, StoreError> {
    let number = |sql: &str| threads::number_of(db, sql, now);
    let pragma = |name: &str| -> Result<u64, StoreError> {
        Ok(db.pragma_query_value(None, name, |row| get_number(row, 0))?)
    };
    let page_size = pragma("page_size")?;
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
        // Without the lengths in front of the events.
        log_bytes: number("SELECT coalesce(sum(length(body) - 4 * events), 0) FROM log")?
            + number("SELECT coalesce(sum(length(body)), 0) FROM compacted")?,
        bytes: pragma("page_count")? * page_size,
        free_bytes: pragma("freelist_count")? * page_size,
    })
}

/// Gives some free pages back. Says whether there are more.
pub(super) fn vacuum_some(db: &Connection) -> Result<bool, StoreError> {
    let free = || -> Result<u64, StoreError> {
        Ok(db.pragma_query_value(None, "freelist_count", |row| get_number(row, 0))?)
    };
    let before = free()?;
    // The pragma works one page per step.
    let mut vacuum = db.prepare(&format!("PRAGMA incremental_vacuum({VACUUM_PAGES})"))?;
    let mut rows = vacuum.query([])?;
    while rows.next()?.is_some() {}
    let after = free()?;
    Ok(after > 0 && after < before)
}

pub(super) fn verify(db: &Connection) -> Result<(), StoreError> {
    let mut check = db.prepare("PRAGMA quick_check")?;
    let found: Vec<String> = check.query_map([], |row| row.get(0))?.collect::<Result<_, _>>()?;
    if found.iter().any(|line| line != "ok") {
        return Err(StoreError::Corrupt(found.join("; ").into()));
    }
    Ok(())
}
