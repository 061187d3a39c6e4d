//! Threads, state, messages and feedback in SQL.

use agentwire_core::event::ThreadId;
use rusqlite::{Connection, OptionalExtension};

use super::{
    row::{THREAD, ThreadRow, count, get_number, get_time, int},
    runs,
    session::Session,
};
use crate::{
    clock::Time,
    error::StoreError,
    model::{
        Created, Feedback, NewFeedback, NewThread, Owner, Page, PageToken, State, StateChange, Text, Thread,
        ThreadChange, ThreadQuery,
    },
    rules::{check_not_leased, page},
};

pub(super) fn create(
    db: &Connection,
    owner: &Owner,
    new: &NewThread,
    now: Time,
) -> Result<Created<Thread>, StoreError> {
    if let Some(existing) = ThreadRow::find(db, owner, &new.thread)? {
        return Ok(Created { item: existing.thread, new: false });
    }
    insert(db, owner, new, now)?;
    Ok(Created { item: ThreadRow::get(db, owner, &new.thread)?.thread, new: true })
}

/// Adds a thread that does not exist.
pub(super) fn insert(db: &Connection, owner: &Owner, new: &NewThread, now: Time) -> Result<i64, StoreError> {
    db.prepare_cached(
        "INSERT INTO threads (tenant, user, thread, agent, metadata, created, updated) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?6)",
    )?
    .execute((
        owner.tenant.as_str(),
        owner.user.as_str(),
        new.thread.as_str(),
        &*new.agent,
        &new.metadata,
        int(now.0),
    ))?;
    Ok(db.last_insert_rowid())
}

pub(super) fn list(
    db: &Connection,
    owner: &Owner,
    query: &ThreadQuery,
    limit: usize,
) -> Result<Page<Thread>, StoreError> {
    let mut list = db.prepare_cached(&format!(
        "SELECT {THREAD} FROM threads WHERE tenant = ?1 AND user = ?2 AND id < ?3 \
         AND (?4 IS NULL OR agent = ?4) ORDER BY id DESC LIMIT ?5"
    ))?;
    let below = query.before.map_or(i64::MAX, |token| int(token.0));
    let rows = list.query_map(
        (owner.tenant.as_str(), owner.user.as_str(), below, &query.agent, count(limit.saturating_add(1))),
        |row| Ok((get_number(row, 0)?, ThreadRow::read(row)?.thread)),
    )?;
    Ok(page(rows, limit)?)
}

pub(super) fn update(
    db: &Connection,
    owner: &Owner,
    thread: &ThreadId,
    change: ThreadChange,
    now: Time,
) -> Result<Thread, StoreError> {
    let row = ThreadRow::get(db, owner, thread)?;
    if let Some(state) = &change.state {
        check_not_leased(runs::lease(db, owner, thread, now)?)?;
        state.check(row.thread.state_seq)?;
    }
    db.prepare_cached(
        "UPDATE threads SET agent = coalesce(?2, agent), metadata = coalesce(?3, metadata), updated = ?4 \
         WHERE id = ?1",
    )?
    .execute((row.id, &change.agent, &change.metadata, int(now.0)))?;
    apply(db, row.id, change.state.as_ref(), change.messages.as_ref())?;
    Ok(ThreadRow::get(db, owner, thread)?.thread)
}

/// Writes state and messages; the caller has checked that this is allowed.
pub(super) fn apply(
    db: &Connection,
    thread: i64,
    state: Option<&StateChange>,
    messages: Option<&Text>,
) -> Result<(), StoreError> {
    if let Some(state) = state {
        db.prepare_cached("INSERT OR REPLACE INTO states (thread, body) VALUES (?1, ?2)")?
            .execute((thread, &*state.body))?;
        db.prepare_cached("UPDATE threads SET state_seq = state_seq + 1 WHERE id = ?1")?.execute([thread])?;
    }
    if let Some(messages) = messages {
        db.prepare_cached("INSERT OR REPLACE INTO messages (thread, body) VALUES (?1, ?2)")?
            .execute((thread, &**messages))?;
    }
    Ok(())
}

pub(super) fn delete(db: &Session, owner: &Owner, thread: &ThreadId) -> Result<(), StoreError> {
    delete_by_id(db, ThreadRow::get(db, owner, thread)?.id)
}

pub(super) fn delete_by_id(db: &Session, thread: i64) -> Result<(), StoreError> {
    db.invalidate_all();
    for table in ["log", "inputs", "compacted"] {
        db.prepare_cached(&format!(
            "DELETE FROM {table} WHERE run IN (SELECT id FROM runs WHERE thread = ?1)"
        ))?
        .execute([thread])?;
    }
    for table in ["pending", "feedback", "states", "messages", "runs"] {
        db.prepare_cached(&format!("DELETE FROM {table} WHERE thread = ?1"))?.execute([thread])?;
    }
    db.prepare_cached("DELETE FROM threads WHERE id = ?1")?.execute([thread])?;
    Ok(())
}

pub(super) fn state(db: &Connection, owner: &Owner, thread: &ThreadId) -> Result<State, StoreError> {
    let row = ThreadRow::get(db, owner, thread)?;
    let mut body = db.prepare_cached("SELECT body FROM states WHERE thread = ?1")?;
    Ok(State { seq: row.thread.state_seq, body: body.query_row([row.id], |row| row.get(0)).optional()? })
}

pub(super) fn messages(
    db: &Connection,
    owner: &Owner,
    thread: &ThreadId,
) -> Result<Option<Text>, StoreError> {
    let row = ThreadRow::get(db, owner, thread)?;
    let mut body = db.prepare_cached("SELECT body FROM messages WHERE thread = ?1")?;
    Ok(body.query_row([row.id], |row| row.get(0)).optional()?)
}

pub(super) fn add_feedback(
    db: &Connection,
    owner: &Owner,
    new: NewFeedback,
    now: Time,
) -> Result<Feedback, StoreError> {
    let row = ThreadRow::get(db, owner, &new.thread)?;
    db.prepare_cached("INSERT INTO feedback (thread, run, body, created) VALUES (?1, ?2, ?3, ?4)")?
        .execute((row.id, new.run.as_ref().map(|run| run.as_str()), &*new.body, int(now.0)))?;
    Ok(Feedback { run: new.run, body: new.body, created: now })
}

pub(super) fn feedback(
    db: &Connection,
    owner: &Owner,
    thread: &ThreadId,
    after: Option<PageToken>,
    limit: usize,
) -> Result<Page<Feedback>, StoreError> {
    let row = ThreadRow::get(db, owner, thread)?;
    let mut list = db.prepare_cached(
        "SELECT id, run, body, created FROM feedback WHERE thread = ?1 AND id > ?2 ORDER BY id LIMIT ?3",
    )?;
    let above = after.map_or(0, |token| int(token.0));
    let rows = list.query_map((row.id, above, count(limit.saturating_add(1))), |row| {
        let run = row.get::<_, Option<Text>>(1)?.map(Into::into);
        Ok((get_number(row, 0)?, Feedback { run, body: row.get(2)?, created: get_time(row, 3)? }))
    })?;
    Ok(page(rows, limit)?)
}

/// The result of an SQL query for one number; `?1`, if used, is the current time.
pub(super) fn query_number(db: &Connection, sql: &str, now: Time) -> Result<u64, StoreError> {
    let mut query = db.prepare_cached(sql)?;
    let row = |row: &rusqlite::Row<'_>| get_number(row, 0);
    Ok(if query.parameter_count() == 0 {
        query.query_row([], row)?
    } else {
        query.query_row([int(now.0)], row)?
    })
}
