//! Appends, reads and compaction in SQL.

use agentwire_core::event::RunId;
use bytes::Bytes;
use rusqlite::{Connection, OptionalExtension};

use super::{
    mailbox, pending,
    row::{RunRow, count, get_number, get_run_key, get_status, int, next_seq, run_key},
    runs,
    session::{RunHead, Session},
    threads,
};
use crate::{
    chunk,
    clock::Time,
    error::{Missing, StoreError},
    model::{Append, Appended, Fence, Log, LogSlice, Owner, RunKey, RunStatus, Seq, Text},
    rules::{ClaimState, Fetch, fetch},
};

/// The head of a run, from the cache or the database.
fn head(db: &Session, key: &RunKey) -> Result<RunHead, StoreError> {
    if let Some(head) = db.head(key) {
        return Ok(head);
    }
    let mut find = db.prepare_cached(concat!(
        "SELECT r.id, r.thread, ",
        next_seq!(),
        ", r.status, r.fence, r.holder, r.claimed IS NOT NULL FROM runs AS r \
          WHERE r.tenant = ?1 AND r.user = ?2 AND r.run = ?3 AND r.owner_agent = ?4"
    ))?;
    let RunKey { owner, run } = key;
    let columns = (owner.tenant.as_str(), owner.user.as_str(), run.as_str(), owner.agent.as_str());
    let head = find.query_row(columns, |row| {
        Ok(RunHead {
            id: row.get(0)?,
            thread: row.get(1)?,
            next_seq: Seq(get_number(row, 2)?),
            status: get_status(row, 3)?,
            fence: Fence(get_number(row, 4)?),
            holder: row.get::<_, Text>(5)?.into(),
            is_claimed: row.get(6)?,
        })
    });
    head.optional()?.ok_or(StoreError::NotFound(Missing::Run))
}

/// The end of a log and the status of its run; `None` if there is no such run.
pub(super) fn end_of(db: &Connection, key: &RunKey) -> Result<Option<(Seq, RunStatus)>, StoreError> {
    let mut find = db.prepare_cached(concat!(
        "SELECT ",
        next_seq!(),
        ", r.status FROM runs AS r WHERE r.tenant = ?1 AND r.user = ?2 AND r.run = ?3 AND r.owner_agent = ?4"
    ))?;
    let RunKey { owner, run } = key;
    let columns = (owner.tenant.as_str(), owner.user.as_str(), run.as_str(), owner.agent.as_str());
    let end = find.query_row(columns, |row| Ok((Seq(get_number(row, 0)?), get_status(row, 1)?)));
    Ok(end.optional()?)
}

/// Checks everything before it writes anything, so that a rejected append leaves the shared transaction unchanged.
pub(super) fn append(db: &Session, append: Append, now: Time) -> Result<Appended, StoreError> {
    let Append { owner, run, fence, first_seq, events, change, .. } = append;
    let key = RunKey { owner, run };
    let mut head = head(db, &key)?;
    let body = chunk::pack(&events)?;
    let next_seq = first_seq.plus(events.len());
    if !events.is_empty() && first_seq < head.next_seq && is_stored(db, head.id, fence, first_seq, &body)? {
        return Ok(Appended { next_seq, repeated: true, epoch: 0 });
    }
    let claim = ClaimState {
        status: head.status,
        fence: head.fence,
        is_claimed: head.is_claimed,
        has_live_holder: db.has_lease(&head.holder, now)?,
    };
    claim.check_append(fence, (first_seq, head.next_seq), change.status.as_ref())?;
    if change.changes_thread() {
        let mut find = db.prepare_cached("SELECT leased, state_seq FROM threads WHERE id = ?1")?;
        let (leased, state_seq) =
            find.query_row([head.thread], |row| Ok((row.get::<_, Option<i64>>(0)?, get_number(row, 1)?)))?;
        change.check_thread(leased == Some(head.id), state_seq)?;
    }
    pending::check_insert(db, head.id, &change.pending)?;

    if !events.is_empty() {
        db.prepare_cached("INSERT INTO log (run, seq, events, fence, body) VALUES (?1, ?2, ?3, ?4, ?5)")?
            .execute((head.id, int(first_seq.0), count(events.len()), int(fence.0), body))?;
    }
    head.next_seq = next_seq;
    if let Some(status) = &change.status {
        head.status = status.to;
        db.prepare_cached(
            "UPDATE runs SET next_seq = ?2, updated = ?3, status = ?4, cause = ?5, \
               claimed = CASE WHEN ?6 THEN claimed END WHERE id = ?1",
        )?
        .execute((
            head.id,
            int(next_seq.0),
            int(now.0),
            status.to.as_str(),
            &status.cause,
            status.to.is_live(),
        ))?;
        if !status.to.is_live() {
            runs::release_thread(db, head.thread, head.id)?;
        }
    }
    if change.changes_thread() || change.status.is_some() {
        threads::apply(db, head.thread, change.state.as_ref(), change.messages.as_ref())?;
        runs::touch_thread(db, head.thread, now)?;
    }
    pending::insert(db, head.thread, head.id, &change.pending, now)?;
    for reply in &change.replies {
        mailbox::reply(db, reply.id, append.fence, &reply.body)?;
    }
    if head.status.is_live() {
        db.cache_head(key, head);
    } else {
        db.invalidate(&key.owner, &key.run);
    }
    Ok(Appended { next_seq, repeated: false, epoch: 0 })
}

/// Whether the same append is already in the log.
fn is_stored(db: &Connection, run: i64, fence: Fence, seq: Seq, body: &[u8]) -> Result<bool, StoreError> {
    let mut find =
        db.prepare_cached("SELECT fence = ?3 AND body = ?4 FROM log WHERE run = ?1 AND seq = ?2")?;
    let is_same = find.query_row((run, int(seq.0), int(fence.0), body), |row| row.get(0));
    Ok(is_same.optional()?.unwrap_or(false))
}

pub(super) fn read(
    db: &Connection,
    owner: &Owner,
    run: &RunId,
    after: Option<Seq>,
    limit: usize,
) -> Result<Log, StoreError> {
    let RunRow { id, run, .. } = RunRow::get(db, owner, run)?;
    let (next_seq, status) = (run.next_seq, run.status);
    match fetch(&run, after) {
        Fetch::Nothing(log) => Ok(log),
        Fetch::Compacted => Ok(Log::Compacted { events: read_compacted(db, id)?, next_seq, status }),
        Fetch::From(first_seq) => {
            let events = read_exact(db, id, first_seq, limit)?;
            if events.is_empty() && first_seq < next_seq {
                return Err(StoreError::Corrupt("the end of a log is missing".into()));
            }
            Ok(Log::Exact(LogSlice { first_seq, events, next_seq, status, epoch: 0 }))
        }
    }
}

fn read_exact(db: &Connection, run: i64, first_seq: Seq, limit: usize) -> Result<Vec<Bytes>, StoreError> {
    let mut list = db.prepare_cached(
        "SELECT seq, body FROM log WHERE run = ?1 AND seq >= \
           coalesce((SELECT max(seq) FROM log WHERE run = ?1 AND seq <= ?2), ?2) ORDER BY seq",
    )?;
    let mut rows = list.query((run, int(first_seq.0)))?;
    let mut events = Vec::new();
    let mut size = 0;
    let mut seq = None;
    while let Some(row) = rows.next()? {
        let first = get_number(row, 0)?;
        let mut at = seq.unwrap_or(first);
        if at != first || first > first_seq.0.saturating_add(events.len() as u64) {
            return Err(StoreError::Corrupt("a log has a hole".into()));
        }
        let body = row.get_ref(1)?.as_blob().map_err(rusqlite::Error::from)?;
        for event in chunk::unpack(Bytes::copy_from_slice(body)) {
            let event = event?;
            if at >= first_seq.0 {
                size += event.len();
                if size > limit && !events.is_empty() {
                    return Ok(events);
                }
                events.push(event);
            }
            at += 1;
        }
        seq = Some(at);
    }
    Ok(events)
}

fn read_compacted(db: &Connection, run: i64) -> Result<Vec<Bytes>, StoreError> {
    let mut find = db.prepare_cached("SELECT body FROM compacted WHERE run = ?1")?;
    let body: Vec<u8> = find.query_row([run], |row| row.get(0))?;
    chunk::unpack(body.into()).collect()
}

pub(super) fn compactable(db: &Connection, before: Time, limit: usize) -> Result<Vec<RunKey>, StoreError> {
    let mut list = db.prepare_cached(concat!(
        "SELECT ",
        run_key!(),
        " FROM runs \
         WHERE kept <> 'nothing' AND status IN ('waiting', 'finished', 'failed', 'stopped') \
           AND updated <= ?1 AND first_retained < next_seq ORDER BY updated, id LIMIT ?2",
    ))?;
    let rows = list.query_map((int(before.0), count(limit)), |row| get_run_key(row, 0))?;
    Ok(rows.collect::<Result<_, _>>()?)
}

pub(super) fn compact(
    db: &Connection,
    owner: &Owner,
    run: &RunId,
    events: &[Bytes],
) -> Result<(), StoreError> {
    let row = RunRow::get(db, owner, run)?;
    row.run.check_ended()?;
    let body = chunk::pack(events)?;
    db.prepare_cached("DELETE FROM log WHERE run = ?1")?.execute([row.id])?;
    db.prepare_cached("INSERT OR REPLACE INTO compacted (run, body) VALUES (?1, ?2)")?
        .execute((row.id, body))?;
    db.prepare_cached("UPDATE runs SET kept = 'compacted', first_retained = next_seq WHERE id = ?1")?
        .execute([row.id])?;
    Ok(())
}

/// Drops the log and the input of an ended run. Returns whether there was one.
pub(super) fn drop_log(db: &Connection, run: i64) -> Result<bool, StoreError> {
    let changed = db
        .prepare_cached(
            "UPDATE runs SET kept = 'nothing', first_retained = next_seq WHERE id = ?1 AND kept <> 'nothing' \
             AND status IN ('waiting', 'finished', 'failed', 'stopped')",
        )?
        .execute([run])?;
    if changed == 0 {
        return Ok(false);
    }
    for table in ["log", "compacted", "inputs"] {
        db.prepare_cached(&format!("DELETE FROM {table} WHERE run = ?1"))?.execute([run])?;
    }
    Ok(true)
}

/// Finishes a waiting run without open pending items. Returns whether it did.
pub(super) fn finish_if_all_closed(db: &Connection, run: i64, now: Time) -> Result<bool, StoreError> {
    let changed = db
        .prepare_cached(
            "UPDATE runs SET status = ?3, updated = ?2 WHERE id = ?1 AND status = 'waiting' \
             AND NOT EXISTS (SELECT 1 FROM pending WHERE run = ?1 AND answered IS NULL \
               AND (expires IS NULL OR expires > ?2))",
        )?
        .execute((run, int(now.0), RunStatus::Finished.as_str()))?;
    Ok(changed > 0)
}
