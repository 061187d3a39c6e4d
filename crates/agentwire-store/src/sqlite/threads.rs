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
        AgentName, Created, Feedback, NewFeedback, NewThread, Owner, Page, PageToken, State, StateChange,
        Text, Thread, ThreadChange, ThreadIds, ThreadQuery,
    },
    rules::{self, check_not_leased, page},
};

/// Threads that are moved in one write, a small number so that appends are not delayed.
const MOVES_PER_WRITE: i64 = 64;

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
    let upstream_scope = upstream_scope(db, owner, &new.thread)?;
    db.prepare_cached(
        "INSERT INTO threads (tenant, user, thread, owner_agent, upstream_scope, thread_ids, metadata, created, \
           updated) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?8)",
    )?
    .execute((
        owner.tenant.as_str(),
        owner.user.as_str(),
        new.thread.as_str(),
        owner.agent.as_str(),
        upstream_scope,
        new.thread_ids.map(ThreadIds::as_str),
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
        "SELECT {THREAD} FROM threads WHERE tenant = ?1 AND user = ?2 AND owner_agent = ?3 AND id < ?4 \
         ORDER BY id DESC LIMIT ?5"
    ))?;
    let below = query.before.map_or(i64::MAX, |token| int(token.0));
    let (tenant, user, agent) = (owner.tenant.as_str(), owner.user.as_str(), owner.agent.as_str());
    let rows = list.query_map((tenant, user, agent, below, count(limit.saturating_add(1))), |row| {
        Ok((get_number(row, 0)?, ThreadRow::read(row)?.thread))
    })?;
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
    if change.needs_free_thread() {
        check_not_leased(runs::lease(db, owner, thread, now)?)?;
    }
    if let Some(state) = &change.state {
        state.check(row.thread.state_seq)?;
    }
    if let Some(metadata) = &change.metadata {
        metadata.check(row.thread.metadata.as_ref())?;
    }
    if let Some(given) = &change.messages {
        given.check(messages(db, owner, thread)?.as_ref())?;
    }
    let metadata = change.metadata.map(|change| change.body);
    db.prepare_cached("UPDATE threads SET metadata = coalesce(?2, metadata), updated = ?3 WHERE id = ?1")?
        .execute((row.id, &metadata, int(now.0)))?;
    let messages = change.messages.map(|change| change.body);
    apply(db, row.id, change.state.as_ref(), messages.as_ref())?;
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
    for table in ["log", "inputs", "compacted", "commands", "readers"] {
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

pub(super) fn upstream_scope(
    db: &Connection,
    owner: &Owner,
    thread: &ThreadId,
) -> Result<Option<Text>, StoreError> {
    if let Some(row) = ThreadRow::find(db, owner, thread)? {
        return Ok(row.thread.upstream_scope);
    }
    let mut find = db.prepare_cached(
        "SELECT EXISTS (SELECT 1 FROM threads WHERE tenant = ?1 AND user = ?2 AND thread = ?3)",
    )?;
    let key = (owner.tenant.as_str(), owner.user.as_str(), thread.as_str());
    Ok(rules::upstream_scope(owner, find.query_row(key, |row| row.get(0))?))
}

/// Moves some of the threads of an agent that can be moved. Returns their number.
pub(super) fn move_some(db: &Session, from: &AgentName, to: &AgentName) -> Result<u64, StoreError> {
    let mut find = db.prepare_cached(
        "SELECT id FROM threads AS t WHERE owner_agent = ?1 AND ?1 <> ?2 \
         AND NOT EXISTS (SELECT 1 FROM threads AS o WHERE o.tenant = t.tenant AND o.user = t.user \
           AND o.thread = t.thread AND o.owner_agent = ?2) \
         AND NOT EXISTS (SELECT 1 FROM runs AS r WHERE r.thread = t.id \
           AND r.status IN ('queued', 'running', 'paused')) \
         AND NOT EXISTS (SELECT 1 FROM runs AS r JOIN runs AS o ON o.tenant = r.tenant AND o.user = r.user \
           AND o.run = r.run AND o.owner_agent = ?2 WHERE r.thread = t.id) \
         LIMIT ?3",
    )?;
    let found = find.query_map((from.as_str(), to.as_str(), MOVES_PER_WRITE), |row| row.get(0))?;
    let found: Vec<i64> = found.collect::<Result<_, _>>()?;
    db.invalidate_all();
    for thread in &found {
        db.prepare_cached("UPDATE threads SET owner_agent = ?2 WHERE id = ?1")?
            .execute((thread, to.as_str()))?;
        db.prepare_cached("UPDATE runs SET owner_agent = ?2 WHERE thread = ?1")?
            .execute((thread, to.as_str()))?;
    }
    Ok(found.len() as u64)
}

pub(super) fn count_of_agent(db: &Connection, agent: &AgentName) -> Result<u64, StoreError> {
    let mut count = db.prepare_cached("SELECT count(*) FROM threads WHERE owner_agent = ?1")?;
    Ok(count.query_row([agent.as_str()], |row| get_number(row, 0))?)
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
