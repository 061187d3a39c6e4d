//! Runs, claims and leases in SQL.
//!
//! All writes here run in a transaction that holds SQLite's write lock, so that a read followed by a write is a
//! compare-and-set, across processes too.

use std::{ops::ControlFlow, time::Duration};

use agentwire_core::event::{RunId, ThreadId};
use rusqlite::{Connection, OptionalExtension};

use super::{
    pending,
    row::{RUN, RunRow, ThreadRow, count, get_number, get_run_key, int},
    session::Session,
    threads,
};
use crate::{
    clock::Time,
    error::StoreError,
    model::{
        Acquire, Claim, Fence, Holder, Lease, NewRun, NewThread, Owner, Page, PageToken, Run, RunKey,
        RunStatus, Start, Text,
    },
    rules::{decide_start, page},
};

fn next_fence(db: &Connection) -> Result<Fence, StoreError> {
    let mut next = db.prepare_cached("UPDATE fences SET last = last + 1 RETURNING last")?;
    Ok(Fence(next.query_row([], |row| get_number(row, 0))?))
}

pub(super) fn start(db: &Session, owner: &Owner, new: NewRun, now: Time) -> Result<Start, StoreError> {
    if let Some(existing) = RunRow::find(db, owner, &new.run)? {
        return Ok(Start::Exists(existing.run));
    }
    let thread = ThreadRow::find(db, owner, &new.thread)?;
    let thread_id = thread.as_ref().map(|thread| thread.id);
    if let Some(answers) = &new.answers
        && let Some(first) = pending::check_answers(db, thread_id, answers, now)?
    {
        return Ok(Start::Answered(first));
    }
    let (lease, queue) = match &thread {
        Some(thread) => (live_lease(db, thread.leased, now)?, queue_before(db, thread.id, i64::MAX, now)?),
        None => (None, Vec::new()),
    };
    let status = match decide_start(lease, &queue, new.mode) {
        ControlFlow::Continue(status) => status,
        ControlFlow::Break(refused) => return Ok(refused),
    };

    let thread_id = match thread_id {
        Some(id) => id,
        None => {
            let thread = NewThread { thread: new.thread.clone(), metadata: None };
            threads::insert(db, owner, &thread, now)?
        }
    };
    if let Some(answers) = &new.answers {
        pending::record_answers(db, thread_id, answers, &new.run, now)?;
    }
    let started = (status == RunStatus::Running).then_some(int(now.0));
    db.prepare_cached(
        "INSERT INTO runs (tenant, user, run, thread, agent, status, cause, created, started, updated, \
           fence, holder, address, lease_until, owner_agent) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?8, ?10, ?11, ?12, ?13, ?14)",
    )?
    .execute((
        owner.tenant.as_str(),
        owner.user.as_str(),
        new.run.as_str(),
        thread_id,
        &*new.agent,
        status.as_str(),
        &new.cause,
        int(now.0),
        started,
        int(next_fence(db)?.0),
        new.claim.holder.as_str(),
        &new.claim.address,
        int(now.after(new.claim.ttl).0),
        owner.agent.as_str(),
    ))?;
    let id = db.last_insert_rowid();
    db.prepare_cached("INSERT INTO inputs (run, body) VALUES (?1, ?2)")?.execute((id, &*new.input))?;
    touch_thread(db, thread_id, now)?;
    if status == RunStatus::Running {
        grant_thread(db, thread_id, id)?;
    }
    Ok(Start::Created(RunRow::get_by_id(db, id)?.run))
}

/// Points a thread at a run; the previous run, if any, loses its claim.
fn grant_thread(db: &Connection, thread: i64, run: i64) -> Result<(), StoreError> {
    // The cached head of the previous run stays valid: its claim has expired in the cache as well.
    db.prepare_cached(
        "UPDATE runs SET lease_until = NULL WHERE id <> ?2 AND id = (SELECT leased FROM threads WHERE id = ?1)",
    )?
    .execute((thread, run))?;
    db.prepare_cached("UPDATE threads SET leased = ?2 WHERE id = ?1")?.execute((thread, run))?;
    Ok(())
}

pub(super) fn touch_thread(db: &Connection, thread: i64, now: Time) -> Result<(), StoreError> {
    db.prepare_cached("UPDATE threads SET updated = ?2 WHERE id = ?1")?.execute((thread, int(now.0)))?;
    Ok(())
}

/// The lease of the run that a thread points at, if it has not expired.
fn live_lease(db: &Connection, leased: Option<i64>, now: Time) -> Result<Option<Lease>, StoreError> {
    let Some(leased) = leased else { return Ok(None) };
    Ok(RunRow::get_by_id(db, leased)?.lease(now).filter(|lease| lease.live))
}

/// Live claims of the queued runs of a thread before `id`, in queue order.
fn queue_before(db: &Connection, thread: i64, id: i64, now: Time) -> Result<Vec<Lease>, StoreError> {
    let mut list = db.prepare_cached(&format!(
        "SELECT {RUN} FROM runs AS r JOIN threads AS t ON t.id = r.thread \
         WHERE r.thread = ?1 AND r.id < ?2 AND r.status = 'queued' AND r.lease_until > ?3 ORDER BY r.id"
    ))?;
    let rows = list.query_map((thread, id, int(now.0)), RunRow::read)?;
    let claims = rows.filter_map(|row| row.map(|row| row.lease(now)).transpose());
    Ok(claims.collect::<Result<_, _>>()?)
}

pub(super) fn input(db: &Connection, owner: &Owner, run: &RunId) -> Result<Option<Text>, StoreError> {
    let row = RunRow::get(db, owner, run)?;
    let mut body = db.prepare_cached("SELECT body FROM inputs WHERE run = ?1")?;
    Ok(body.query_row([row.id], |row| row.get(0)).optional()?)
}

pub(super) fn list(
    db: &Connection,
    owner: &Owner,
    thread: &ThreadId,
    before: Option<PageToken>,
    limit: usize,
) -> Result<Page<Run>, StoreError> {
    let thread = ThreadRow::get(db, owner, thread)?;
    let mut list = db.prepare_cached(&format!(
        "SELECT {RUN} FROM runs AS r JOIN threads AS t ON t.id = r.thread \
         WHERE r.thread = ?1 AND r.id < ?2 ORDER BY r.id DESC LIMIT ?3"
    ))?;
    let below = before.map_or(i64::MAX, |token| int(token.0));
    let rows = list.query_map((thread.id, below, count(limit.saturating_add(1))), |row| {
        Ok((get_number(row, 0)?, RunRow::read(row)?.run))
    })?;
    Ok(page(rows, limit)?)
}

pub(super) fn acquire(
    db: &Session,
    owner: &Owner,
    run: &RunId,
    fence: Fence,
    ttl: Duration,
    now: Time,
) -> Result<Acquire, StoreError> {
    let row = RunRow::get(db, owner, run)?;
    row.claim_state().check_acquire(fence)?;
    db.invalidate(owner, run);
    let held = match live_lease(db, row.leased, now)? {
        Some(lease) => Some(lease),
        None => queue_before(db, row.thread_id, row.id, now)?.into_iter().next(),
    };
    if let Some(lease) = held {
        return Ok(Acquire::Held(lease));
    }
    grant_thread(db, row.thread_id, row.id)?;
    touch_thread(db, row.thread_id, now)?;
    db.prepare_cached(
        "UPDATE runs SET status = 'running', started = ?2, updated = ?2, fence = ?3, lease_until = ?4 WHERE id = ?1",
    )?
    .execute((row.id, int(now.0), int(next_fence(db)?.0), int(now.after(ttl).0)))?;
    RunRow::get_by_id(db, row.id)?.lease(now).map(Acquire::Granted).ok_or(StoreError::Fenced)
}

pub(super) fn renew(
    db: &Session,
    owner: &Owner,
    run: &RunId,
    fence: Fence,
    ttl: Duration,
    now: Time,
) -> Result<Lease, StoreError> {
    let mut row = RunRow::get(db, owner, run)?;
    row.claim_state().check(fence)?;
    db.invalidate(owner, run);
    let until = now.after(ttl);
    db.prepare_cached("UPDATE runs SET lease_until = ?2 WHERE id = ?1")?.execute((row.id, int(until.0)))?;
    row.lease_until = Some(until);
    row.lease(now).ok_or(StoreError::Fenced)
}

pub(super) fn release(db: &Session, owner: &Owner, run: &RunId, fence: Fence) -> Result<(), StoreError> {
    let row = RunRow::get(db, owner, run)?;
    row.claim_state().check_release(fence)?;
    db.invalidate(owner, run);
    db.prepare_cached("UPDATE runs SET lease_until = NULL WHERE id = ?1")?.execute([row.id])?;
    release_thread(db, row.thread_id, row.id)
}

/// Releases a thread if this run has it.
pub(super) fn release_thread(db: &Connection, thread: i64, run: i64) -> Result<(), StoreError> {
    db.prepare_cached("UPDATE threads SET leased = NULL WHERE id = ?1 AND leased = ?2")?
        .execute((thread, run))?;
    Ok(())
}

pub(super) fn lease(
    db: &Connection,
    owner: &Owner,
    thread: &ThreadId,
    now: Time,
) -> Result<Option<Lease>, StoreError> {
    match ThreadRow::get(db, owner, thread)?.leased {
        Some(run) => Ok(RunRow::get_by_id(db, run)?.lease(now)),
        None => Ok(None),
    }
}

pub(super) fn orphans(
    db: &Connection,
    dead: Option<&Holder>,
    limit: usize,
    now: Time,
) -> Result<Vec<(RunKey, Run)>, StoreError> {
    let mut list = db.prepare_cached(&format!(
        "SELECT {RUN}, r.tenant, r.user, r.owner_agent, r.run FROM runs AS r JOIN threads AS t ON t.id = r.thread \
         WHERE r.status IN ('queued', 'running', 'paused') \
           AND (r.lease_until IS NULL OR r.lease_until <= ?1 OR r.holder = ?2) \
         ORDER BY r.id LIMIT ?3"
    ))?;
    let rows = list.query_map((int(now.0), dead.map(Holder::as_str), count(limit)), |row| {
        Ok((get_run_key(row, 19)?, RunRow::read(row)?.run))
    })?;
    Ok(rows.collect::<Result<_, _>>()?)
}

pub(super) fn take_over(
    db: &Session,
    key: &RunKey,
    seen: Fence,
    dead: Option<&Holder>,
    claim: &Claim,
    now: Time,
) -> Result<Run, StoreError> {
    let row = RunRow::get(db, &key.owner, &key.run)?;
    row.run.check_take_over(row.lease_until, seen, dead, now)?;
    db.invalidate(&key.owner, &key.run);
    if row.run.regains_thread(live_lease(db, row.leased, now)?.as_ref()) {
        grant_thread(db, row.thread_id, row.id)?;
    }
    db.prepare_cached(
        "UPDATE runs SET fence = ?2, holder = ?3, address = ?4, lease_until = ?5 WHERE id = ?1",
    )?
    .execute((
        row.id,
        int(next_fence(db)?.0),
        claim.holder.as_str(),
        &claim.address,
        int(now.after(claim.ttl).0),
    ))?;
    Ok(RunRow::get_by_id(db, row.id)?.run)
}
