//! Commands and readers in SQL.

use std::time::Duration;

use rusqlite::{Connection, OptionalExtension};

use super::row::{RunRow, get_number, get_run_key, get_time, int};
use crate::{
    clock::Time,
    error::{Missing, StoreError},
    model::{CommandId, Delivery, Fence, Holder, RunKey, RunStatus, Seq, TakenCommand, Text},
    rules::{self, ABANDONED},
};

pub(super) fn send(
    db: &Connection,
    run: &RunKey,
    body: &str,
    patience: Duration,
    now: Time,
) -> Result<CommandId, StoreError> {
    let row = RunRow::get(db, &run.owner, &run.run)?;
    db.prepare_cached("DELETE FROM commands WHERE deadline <= ?1")?
        .execute([int(now.before(ABANDONED).0)])?;
    db.prepare_cached("INSERT INTO commands (run, body, deadline) VALUES (?1, ?2, ?3)")?.execute((
        row.id,
        body,
        int(now.after(patience).0),
    ))?;
    Ok(CommandId(u64::try_from(db.last_insert_rowid()).unwrap_or_default()))
}

/// The result of a command; `None` while it is waited for.
pub(super) fn result_of(db: &Connection, id: CommandId, now: Time) -> Result<Option<Delivery>, StoreError> {
    let mut find = db.prepare_cached(
        "SELECT c.reply, c.taken, c.deadline, r.status FROM commands AS c JOIN runs AS r ON r.id = c.run \
         WHERE c.id = ?1",
    )?;
    let found = find.query_row([int(id.0)], |row| {
        let (reply, is_taken): (Option<Text>, bool) = (row.get(0)?, row.get(1)?);
        Ok((reply, is_taken, get_time(row, 2)?, super::row::get_status(row, 3)?))
    });
    let Some((reply, is_taken, deadline, status)) = found.optional()? else {
        return Err(StoreError::NotFound(Missing::Run));
    };
    Ok(rules::delivery(reply.as_ref(), is_taken, !status.is_live(), deadline <= now))
}

/// The same in a write, which also removes the command: another process may have taken it since it was read.
pub(super) fn settle(db: &Connection, id: CommandId, now: Time) -> Result<Option<Delivery>, StoreError> {
    let result = result_of(db, id, now)?;
    if result.is_some() {
        db.prepare_cached("DELETE FROM commands WHERE id = ?1")?.execute([int(id.0)])?;
    }
    Ok(result)
}

/// The commands to the runs of a process (`?1`) that nobody has taken at a time (`?2`).
pub(super) const OPEN: &str = "FROM commands AS c JOIN runs AS r ON r.id = c.run WHERE c.taken = 0 AND c.deadline > ?2 \
     AND r.holder = ?1 AND r.claimed IS NOT NULL AND r.status IN ('queued', 'running', 'paused')";

pub(super) fn has_open(db: &Connection, holder: &Holder, now: Time) -> Result<bool, StoreError> {
    let mut find = db.prepare_cached(&format!("SELECT EXISTS (SELECT 1 {OPEN})"))?;
    Ok(find.query_row((holder.as_str(), int(now.0)), |row| row.get(0))?)
}

pub(super) fn take(db: &Connection, holder: &Holder, now: Time) -> Result<Vec<TakenCommand>, StoreError> {
    let mut list = db.prepare_cached(&format!(
        "SELECT c.id, c.body, r.fence, r.tenant, r.user, r.owner_agent, r.run {OPEN} ORDER BY c.id"
    ))?;
    let rows = list.query_map((holder.as_str(), int(now.0)), |row| {
        let (id, fence) = (CommandId(get_number(row, 0)?), Fence(get_number(row, 2)?));
        Ok(TakenCommand { id, body: row.get(1)?, fence, run: get_run_key(row, 3)? })
    })?;
    let taken = rows.collect::<Result<Vec<_>, _>>()?;
    for command in &taken {
        db.prepare_cached("UPDATE commands SET taken = 1 WHERE id = ?1")?.execute([int(command.id.0)])?;
    }
    Ok(taken)
}

/// Replies under a fencing token.
pub(super) fn reply(db: &Connection, id: CommandId, fence: Fence, body: &str) -> Result<(), StoreError> {
    db.prepare_cached(
        "UPDATE commands SET taken = 1, reply = coalesce(reply, ?2) \
         WHERE id = ?1 AND run IN (SELECT id FROM runs WHERE fence = ?3)",
    )?
    .execute((int(id.0), body, int(fence.0)))?;
    Ok(())
}

/// True if the log has the event `next`, or will never have it.
pub(super) fn has_changed(db: &Connection, run: &RunKey, next: Seq) -> Result<bool, StoreError> {
    let head = super::log::end_of(db, run)?;
    Ok(head.is_none_or(|(end, status): (Seq, RunStatus)| end > next || !status.is_live()))
}

pub(super) fn note_readers(
    db: &Connection,
    run: &RunKey,
    holder: &Holder,
    ttl: Duration,
    now: Time,
) -> Result<(), StoreError> {
    let row = RunRow::get(db, &run.owner, &run.run)?;
    db.prepare_cached("DELETE FROM readers WHERE run = ?1 AND (holder = ?2 OR until <= ?3)")?.execute((
        row.id,
        holder.as_str(),
        int(now.0),
    ))?;
    if !ttl.is_zero() {
        db.prepare_cached("INSERT INTO readers (run, holder, until) VALUES (?1, ?2, ?3)")?.execute((
            row.id,
            holder.as_str(),
            int(now.after(ttl).0),
        ))?;
    }
    Ok(())
}

pub(super) fn has_readers(
    db: &Connection,
    run: &RunKey,
    except: &Holder,
    now: Time,
) -> Result<bool, StoreError> {
    let Some(row) = RunRow::find(db, &run.owner, &run.run)? else { return Ok(false) };
    let mut find = db.prepare_cached(
        "SELECT EXISTS (SELECT 1 FROM readers WHERE run = ?1 AND holder <> ?2 AND until > ?3)",
    )?;
    Ok(find.query_row((row.id, except.as_str(), int(now.0)), |row| row.get(0))?)
}
