//! Runs, claims and leases in SQL.
//!
//! All writes here run in a transaction that holds SQLite's write lock, so that a read followed by a write is a
//! compare-and-set, across processes too.

use std::{ops::ControlFlow, time::Duration};

use agentwire_core::event::{RunId, ThreadId};
use rusqlite::{Connection, OptionalExtension};

use super::{
    maintenance, pending,
    row::{RUN, RunRow, ThreadRow, count, get_number, get_run_key, int},
    session::Session,
    threads,
};
use crate::{
    clock::Time,
    error::StoreError,
    model::{
        Acquire, Fence, Holder, Lease, NewRun, NewThread, Owner, Page, PageToken, Run, RunKey, RunStatus,
        Start, Text,
    },
    rules::{Obstacle, REOPENED, decide_start, exceeded, obstacle, page},
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
        Some(thread) => (lease_of(db, thread.leased, now)?, queue_before(db, thread.id, i64::MAX, now)?),
        None => (None, Vec::new()),
    };
    let status = match decide_start(lease, &queue, new.mode) {
        ControlFlow::Continue(status) => status,
        ControlFlow::Break(refused) => return Ok(refused),
    };
    if let Some(refused) = over_quota(db, owner, &new, thread_id.is_none())? {
        return Ok(refused);
    }
    if !db.has_lease(&new.holder, now)? {
        return Err(StoreError::Fenced);
    }

    let thread_id = match thread_id {
        Some(id) => id,
        None => {
            let thread = NewThread { thread: new.thread.clone(), thread_ids: new.thread_ids, metadata: None };
            threads::insert(db, owner, &thread, now)?
        }
    };
    if let Some(answers) = &new.answers {
        pending::record_answers(db, thread_id, answers, &new.run, now)?;
    }
    let started = (status == RunStatus::Running).then_some(int(now.0));
    db.prepare_cached(
        "INSERT INTO runs (tenant, user, run, thread, agent, status, cause, created, started, updated, \
           fence, holder, claimed, owner_agent) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?8, ?10, ?11, ?8, ?12)",
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
        new.holder.as_str(),
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

fn over_quota(
    db: &Connection,
    owner: &Owner,
    new: &NewRun,
    is_new_thread: bool,
) -> Result<Option<Start>, StoreError> {
    for (is_tenant, quota) in [(false, &new.quotas.user), (true, &new.quotas.tenant)] {
        if quota.is_empty() {
            continue;
        }
        let user = (!is_tenant).then_some(&owner.user);
        let usage = maintenance::usage(db, &owner.tenant, user, quota.bytes.is_some())?;
        if let Some(quota) = exceeded(quota, &usage, new.input.len(), is_new_thread) {
            return Ok(Some(Start::OverQuota { is_tenant, quota }));
        }
    }
    Ok(None)
}

/// Points a thread at a run.
fn grant_thread(db: &Connection, thread: i64, run: i64) -> Result<(), StoreError> {
    db.prepare_cached("UPDATE threads SET leased = ?2 WHERE id = ?1")?.execute((thread, run))?;
    Ok(())
}

pub(super) fn touch_thread(db: &Connection, thread: i64, now: Time) -> Result<(), StoreError> {
    db.prepare_cached("UPDATE threads SET updated = ?2 WHERE id = ?1")?.execute((thread, int(now.0)))?;
    Ok(())
}

/// The lease of the run that a thread points at.
fn lease_of(db: &Connection, leased: Option<i64>, now: Time) -> Result<Option<Lease>, StoreError> {
    leased.map(|run| Ok(RunRow::get_by_id(db, run)?.lease(now))).transpose()
}

/// The claims of the queued runs of a thread before `id`, in queue order.
fn queue_before(db: &Connection, thread: i64, id: i64, now: Time) -> Result<Vec<Lease>, StoreError> {
    let mut list = db.prepare_cached(&format!(
        "SELECT {RUN} FROM runs AS r JOIN threads AS t ON t.id = r.thread \
         WHERE r.thread = ?1 AND r.id < ?2 AND r.status = 'queued' ORDER BY r.id"
    ))?;
    let rows = list.query_map((thread, id), RunRow::read)?;
    Ok(rows.map(|row| Ok(row?.lease(now))).collect::<rusqlite::Result<_>>()?)
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
    now: Time,
) -> Result<Acquire, StoreError> {
    let row = RunRow::get(db, owner, run)?;
    row.claim_state(now).check_acquire(fence)?;
    let queue = queue_before(db, row.thread_id, row.id, now)?;
    match obstacle(lease_of(db, row.leased, now)?, queue.first()) {
        Some(Obstacle::Held(lease)) => return Ok(Acquire::Held(lease)),
        Some(Obstacle::Orphan(run)) => return Ok(Acquire::Orphan(run)),
        None => {}
    }
    db.invalidate(owner, run);
    grant_thread(db, row.thread_id, row.id)?;
    touch_thread(db, row.thread_id, now)?;
    db.prepare_cached(
        "UPDATE runs SET status = 'running', started = ?2, updated = ?2, fence = ?3 WHERE id = ?1",
    )?
    .execute((row.id, int(now.0), int(next_fence(db)?.0)))?;
    Ok(Acquire::Granted(RunRow::get_by_id(db, row.id)?.lease(now)))
}

/// The age at which the row of an expired lease is deleted; a missing one is as good.
const FORGOTTEN: Duration = Duration::from_secs(3600);

pub(super) fn renew(db: &Session, holder: &Holder, ttl: Duration, now: Time) -> Result<bool, StoreError> {
    let was_live = db.has_lease(holder, now)?;
    let millis = i64::try_from(ttl.as_millis()).unwrap_or(i64::MAX);
    db.prepare_cached("INSERT OR REPLACE INTO replicas (holder, lease_until, ttl) VALUES (?1, ?2, ?3)")?
        .execute((holder.as_str(), int(now.after(ttl).0), millis))?;
    // The rule of `rules::capped_lease`.
    db.prepare_cached("UPDATE replicas SET lease_until = ?1 + ttl WHERE lease_until - ttl > ?1")?
        .execute([int(now.0)])?;
    db.prepare_cached("DELETE FROM replicas WHERE lease_until < ?1")?
        .execute([int(now.before(FORGOTTEN).0)])?;
    db.invalidate_leases();
    Ok(was_live)
}

pub(super) fn retire(db: &Session, holder: &Holder) -> Result<(), StoreError> {
    db.invalidate_leases();
    db.prepare_cached("DELETE FROM replicas WHERE holder = ?1")?.execute([holder.as_str()])?;
    Ok(())
}

pub(super) fn release(
    db: &Session,
    owner: &Owner,
    run: &RunId,
    fence: Fence,
    now: Time,
) -> Result<(), StoreError> {
    let row = RunRow::get(db, owner, run)?;
    row.claim_state(now).check_release(fence)?;
    db.invalidate(owner, run);
    db.prepare_cached("UPDATE runs SET claimed = NULL WHERE id = ?1")?.execute([row.id])?;
    Ok(())
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
    lease_of(db, ThreadRow::get(db, owner, thread)?.leased, now)
}

pub(super) fn orphans(db: &Connection, limit: usize, now: Time) -> Result<Vec<(RunKey, Run)>, StoreError> {
    let mut list = db.prepare_cached(&format!(
        "SELECT {RUN}, r.tenant, r.user, r.owner_agent, r.run FROM runs AS r JOIN threads AS t ON t.id = r.thread \
         WHERE r.status IN ('queued', 'running', 'paused') AND (r.claimed IS NULL OR NOT EXISTS \
           (SELECT 1 FROM replicas AS p WHERE p.holder = r.holder AND p.lease_until > ?1)) \
         ORDER BY r.id LIMIT ?2"
    ))?;
    let rows = list
        .query_map((int(now.0), count(limit)), |row| Ok((get_run_key(row, 20)?, RunRow::read(row)?.run)))?;
    Ok(rows.collect::<Result<_, _>>()?)
}

pub(super) fn claimed(db: &Connection, holder: &Holder) -> Result<Vec<RunKey>, StoreError> {
    let mut list = db.prepare_cached(
        "SELECT tenant, user, owner_agent, run FROM runs WHERE status IN ('queued', 'running', 'paused') \
           AND claimed IS NOT NULL AND holder = ?1 ORDER BY id",
    )?;
    let rows = list.query_map([holder.as_str()], |row| get_run_key(row, 0))?;
    Ok(rows.collect::<Result<_, _>>()?)
}

pub(super) fn take_over(
    db: &Session,
    key: &RunKey,
    seen: Fence,
    holder: &Holder,
    now: Time,
) -> Result<Run, StoreError> {
    let row = RunRow::get(db, &key.owner, &key.run)?;
    row.run.check_take_over(row.claim_state(now), seen, holder)?;
    if !db.has_lease(holder, now)? {
        return Err(StoreError::Fenced);
    }
    db.invalidate(&key.owner, &key.run);
    let leased =
        row.leased.map(|run| Ok::<_, StoreError>(RunRow::get_by_id(db, run)?.run.run)).transpose()?;
    if row.run.regains_thread(leased.as_ref()) {
        grant_thread(db, row.thread_id, row.id)?;
    }
    db.prepare_cached(
        "UPDATE commands SET taken = 0, deadline = max(deadline, ?2) WHERE run = ?1 AND taken AND reply IS NULL",
    )?
    .execute((row.id, int(now.after(REOPENED).0)))?;
    db.prepare_cached("UPDATE runs SET fence = ?2, holder = ?3, claimed = ?4 WHERE id = ?1")?.execute((
        row.id,
        int(next_fence(db)?.0),
        holder.as_str(),
        int(now.0),
    ))?;
    Ok(RunRow::get_by_id(db, row.id)?.run)
}
