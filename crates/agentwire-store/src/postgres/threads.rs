//! Threads, state, messages and feedback in SQL.

use agentwire_core::event::ThreadId;

use super::{
    connect::Transaction,
    error::Failed,
    row::{RunRow, ThreadRow, key, key_values, thread_columns},
    value::{
        Value, count, get, get_number, get_optional_text, get_text, get_time, id, int, optional_text, text,
    },
};
use crate::{
    error::{Missing, StoreError},
    model::{
        AgentName, Created, Feedback, Lease, NewFeedback, NewThread, Owner, Page, PageToken, State,
        StateChange, Text, Thread, ThreadChange, ThreadIds, ThreadQuery,
    },
    rules::{check_not_leased, page},
};

/// Threads that are moved in one transaction.
const MOVES_PER_WRITE: usize = 64;

pub(super) async fn create(
    t: &Transaction,
    owner: &Owner,
    new: &NewThread,
) -> Result<Created<Thread>, StoreError> {
    if let Some(existing) = ThreadRow::find(t, owner, &new.thread).await? {
        return Ok(Created { item: existing.thread, new: false });
    }
    let is_new = insert(t, owner, new).await?;
    Ok(Created { item: ThreadRow::get(t, owner, &new.thread).await?.thread, new: is_new })
}

/// Adds a thread unless it exists. Returns whether it did.
pub(super) async fn insert(t: &Transaction, owner: &Owner, new: &NewThread) -> Result<bool, StoreError> {
    // Two agents may create a thread with this id at once; one of them gets the upstream scope.
    let lock = "SELECT pg_advisory_xact_lock(hashtextextended($1 || ' ' || $2 || ' ' || $3, 0))";
    let [tenant, user, _, name] = key_values(owner, &new.thread);
    t.query(lock, &[tenant, user, name]).await?;
    let scope = upstream_scope(t, owner, &new.thread).await?;
    let [tenant, user, agent, name] = key_values(owner, &new.thread);
    let added = t.query(
        concat!(
            "INSERT INTO agentwire.threads (key, owner_key, name_key, tenant, usr, owner_agent, thread, upstream_scope, \
               thread_ids, metadata, created, updated) \
             VALUES (",
            key!(),
            ", agentwire.key_of($1, $2, $3, ''), agentwire.key_of($1, $2, $4, ''), $1, $2, $3, $4, $5, $6, $7, $8, $8) \
             ON CONFLICT (key) DO NOTHING RETURNING id"
        ),
        &[
            tenant,
            user,
            agent,
            name,
            optional_text(scope.as_deref()),
            optional_text(new.thread_ids.map(ThreadIds::as_str)),
            optional_text(new.metadata.as_deref()),
            int(t.now.0),
        ],
    ).await?;
    Ok(!added.is_empty())
}

pub(super) async fn list(
    t: &Transaction,
    owner: &Owner,
    query: &ThreadQuery,
    limit: usize,
) -> Result<Page<Thread>, StoreError> {
    let below = query.before.map_or(i64::MAX, |token| i64::try_from(token.0).unwrap_or(i64::MAX));
    let [tenant, user, agent, _] = key_values(owner, "");
    let rows = t.query(
        concat!(
            "SELECT ",
            thread_columns!(),
            " FROM agentwire.threads WHERE owner_key = agentwire.key_of($1, $2, $3, '') AND id < $4 ORDER BY id DESC LIMIT $5"
        ),
        &[tenant, user, agent, id(below), count(limit.saturating_add(1))],
    ).await?;
    page(rows.iter().map(|row| Ok((get_number(row, 0)?, ThreadRow::read(row)?.thread))), limit)
}

/// The lease on a thread.
pub(super) async fn lease(t: &Transaction, thread: &ThreadRow) -> Result<Option<Lease>, StoreError> {
    match thread.leased {
        Some(run) => Ok(Some(RunRow::get_by_id(t, run).await?.lease(t))),
        None => Ok(None),
    }
}

pub(super) async fn update(
    t: &Transaction,
    owner: &Owner,
    thread: &ThreadId,
    change: &ThreadChange,
) -> Result<Thread, StoreError> {
    let row = ThreadRow::lock(t, owner, thread).await?.ok_or(StoreError::NotFound(Missing::Thread))?;
    if change.needs_free_thread() {
        check_not_leased(lease(t, &row).await?)?;
    }
    if let Some(state) = &change.state {
        state.check(row.thread.state_seq)?;
    }
    if let Some(metadata) = &change.metadata {
        metadata.check(row.thread.metadata.as_ref())?;
    }
    if let Some(given) = &change.messages {
        given.check(messages(t, owner, thread).await?.as_ref())?;
    }
    let metadata = change.metadata.as_ref().map(|change| &*change.body);
    let mut writes = vec![(
        "UPDATE agentwire.threads SET metadata = coalesce($2, metadata), updated = $3 WHERE id = $1",
        vec![id(row.id), optional_text(metadata), int(t.now.0)],
    )];
    let messages = change.messages.as_ref().map(|change| &change.body);
    write(row.id, change.state.as_ref(), messages, &mut writes);
    t.pipeline(&writes).await?;
    Ok(ThreadRow::get(t, owner, thread).await?.thread)
}

/// [`update`] after an attempt whose outcome is unknown: a state that is there already is not written again.
///
/// If others have changed the state since, nobody can tell whether the attempt came before them. That is an error, because
/// a caller that is told of a conflict makes the change again.
pub(super) async fn settle(
    t: &Transaction,
    owner: &Owner,
    thread: &ThreadId,
    change: &ThreadChange,
) -> Result<Thread, StoreError> {
    if let Some(wanted) = &change.state {
        let row = ThreadRow::lock(t, owner, thread).await?.ok_or(StoreError::NotFound(Missing::Thread))?;
        if row.thread.state_seq == wanted.expected + 1 {
            let sql = "SELECT body FROM agentwire.states WHERE thread = $1";
            let stored = t.query_first(sql, &[id(row.id)]).await?;
            if stored.map(|row| get_text(&row, 0)).transpose()?.as_ref() == Some(&wanted.body) {
                return Ok(row.thread);
            }
        } else if row.thread.state_seq > wanted.expected {
            let problem = "the answer to a change of the state was lost, and others have changed it since";
            return Err(StoreError::io(Failed(problem.into())));
        }
    }
    update(t, owner, thread, change).await
}

/// The statements that write state and messages; the caller has checked that this is allowed.
pub(super) fn write<'a>(
    thread: i64,
    state: Option<&'a StateChange>,
    messages: Option<&'a Text>,
    writes: &mut Vec<(&'static str, Vec<Value<'a>>)>,
) {
    if let Some(state) = state {
        writes.push((
            "WITH s AS (INSERT INTO agentwire.states (thread, body) VALUES ($1, $2) \
               ON CONFLICT (thread) DO UPDATE SET body = excluded.body) \
             UPDATE agentwire.threads SET state_seq = state_seq + 1 WHERE id = $1",
            vec![id(thread), text(&state.body)],
        ));
    }
    if let Some(messages) = messages {
        writes.push((
            "INSERT INTO agentwire.messages (thread, body) VALUES ($1, $2) \
             ON CONFLICT (thread) DO UPDATE SET body = excluded.body",
            vec![id(thread), text(messages)],
        ));
    }
}

pub(super) async fn delete(t: &Transaction, owner: &Owner, thread: &ThreadId) -> Result<(), StoreError> {
    let row = ThreadRow::lock(t, owner, thread).await?.ok_or(StoreError::NotFound(Missing::Thread))?;
    delete_by_id(t, row.id).await
}

/// Deletes a locked thread with all its data.
pub(super) async fn delete_by_id(t: &Transaction, thread: i64) -> Result<(), StoreError> {
    // The heads first: an append that is under way waits for them or has ended, and a later one finds none.
    t.query(
        "DELETE FROM agentwire.heads WHERE run IN (SELECT id FROM agentwire.runs WHERE thread = $1)",
        &[id(thread)],
    )
    .await?;
    t.query(
        "WITH r AS (SELECT id, day FROM agentwire.runs WHERE thread = $1), \
           l AS (DELETE FROM agentwire.log USING r WHERE log.day = r.day AND log.run = r.id), \
           i AS (DELETE FROM agentwire.inputs WHERE run IN (SELECT id FROM r)), \
           c AS (DELETE FROM agentwire.compacted WHERE run IN (SELECT id FROM r)), \
           o AS (DELETE FROM agentwire.commands WHERE run IN (SELECT id FROM r)), \
           d AS (DELETE FROM agentwire.readers WHERE run IN (SELECT id FROM r)), \
           p AS (DELETE FROM agentwire.pending WHERE thread = $1), \
           f AS (DELETE FROM agentwire.feedback WHERE thread = $1), \
           s AS (DELETE FROM agentwire.states WHERE thread = $1), \
           m AS (DELETE FROM agentwire.messages WHERE thread = $1), \
           u AS (DELETE FROM agentwire.runs WHERE thread = $1) \
         DELETE FROM agentwire.threads WHERE id = $1",
        &[id(thread)],
    )
    .await?;
    Ok(())
}

pub(super) async fn upstream_scope(
    t: &Transaction,
    owner: &Owner,
    thread: &ThreadId,
) -> Result<Option<Text>, StoreError> {
    if let Some(existing) = ThreadRow::find(t, owner, thread).await? {
        return Ok(existing.thread.upstream_scope);
    }
    let [tenant, user, _, name] = key_values(owner, thread);
    let used = t
        .query_first(
            "SELECT 1 FROM agentwire.threads WHERE name_key = agentwire.key_of($1, $2, $3, '') LIMIT 1",
            &[tenant, user, name],
        )
        .await?;
    Ok(crate::rules::upstream_scope(owner, used.is_some()))
}

/// Moves some threads; returns their number.
pub(super) async fn move_some(t: &Transaction, from: &AgentName, to: &AgentName) -> Result<u64, StoreError> {
    let found = t.query(
        "SELECT t.id FROM agentwire.threads AS t WHERE md5(t.owner_agent) = md5($1) AND t.owner_agent = $1 \
           AND NOT EXISTS (SELECT 1 FROM agentwire.runs AS r WHERE r.thread = t.id \
             AND r.status IN ('queued', 'running', 'paused')) \
           AND NOT EXISTS (SELECT 1 FROM agentwire.threads AS o \
             WHERE o.key = agentwire.key_of(t.tenant, t.usr, $2, t.thread)) \
           AND NOT EXISTS (SELECT 1 FROM agentwire.runs AS r JOIN agentwire.runs AS o \
             ON o.key = agentwire.key_of(r.tenant, r.usr, $2, r.run) WHERE r.thread = t.id) \
         ORDER BY t.id LIMIT $3 FOR UPDATE OF t SKIP LOCKED",
        &[text(from.as_str()), text(to.as_str()), count(MOVES_PER_WRITE)],
    ).await?;
    let mut moved = 0;
    for row in found {
        let thread: i64 = get(&row, 0)?;
        // A run may have started between the query and the lock.
        let done = t.query(
            "UPDATE agentwire.threads SET owner_agent = $2, key = agentwire.key_of(tenant, usr, $2, thread), \
               owner_key = agentwire.key_of(tenant, usr, $2, '') \
             WHERE id = $1 AND NOT EXISTS (SELECT 1 FROM agentwire.runs AS r WHERE r.thread = $1 \
               AND r.status IN ('queued', 'running', 'paused')) RETURNING id",
            &[id(thread), text(to.as_str())],
        ).await?;
        if done.is_empty() {
            continue;
        }
        t.query(
            "UPDATE agentwire.runs SET owner_agent = $2, key = agentwire.key_of(tenant, usr, $2, run) WHERE thread = $1",
            &[id(thread), text(to.as_str())],
        )
        .await?;
        moved += 1;
    }
    Ok(moved)
}

pub(super) async fn count_of_agent(t: &Transaction, agent: &AgentName) -> Result<u64, StoreError> {
    let sql = "SELECT count(*) FROM agentwire.threads WHERE md5(owner_agent) = md5($1) AND owner_agent = $1";
    Ok(u64::try_from(t.query_number(sql, &[text(agent.as_str())]).await?).unwrap_or(0))
}

pub(super) async fn state(t: &Transaction, owner: &Owner, thread: &ThreadId) -> Result<State, StoreError> {
    let sql = concat!(
        "SELECT t.state_seq, s.body FROM agentwire.threads AS t LEFT JOIN agentwire.states AS s ON s.thread = t.id \
         WHERE t.key = ",
        key!()
    );
    let row =
        t.query_first(sql, &key_values(owner, thread)).await?.ok_or(StoreError::NotFound(Missing::Thread))?;
    Ok(State { seq: get_number(&row, 0)?, body: get_optional_text(&row, 1)? })
}

pub(super) async fn messages(
    t: &Transaction,
    owner: &Owner,
    thread: &ThreadId,
) -> Result<Option<Text>, StoreError> {
    let sql = concat!(
        "SELECT m.body FROM agentwire.threads AS t LEFT JOIN agentwire.messages AS m ON m.thread = t.id WHERE t.key = ",
        key!()
    );
    let row =
        t.query_first(sql, &key_values(owner, thread)).await?.ok_or(StoreError::NotFound(Missing::Thread))?;
    get_optional_text(&row, 0)
}

pub(super) async fn add_feedback(
    t: &Transaction,
    owner: &Owner,
    new: &NewFeedback,
) -> Result<Feedback, StoreError> {
    let row = ThreadRow::lock(t, owner, &new.thread).await?.ok_or(StoreError::NotFound(Missing::Thread))?;
    let run = optional_text(new.run.as_ref().map(|run| run.as_str()));
    t.query(
        "INSERT INTO agentwire.feedback (thread, run, body, created) VALUES ($1, $2, $3, $4)",
        &[id(row.id), run, text(&new.body), int(t.now.0)],
    )
    .await?;
    Ok(Feedback { run: new.run.clone(), body: new.body.clone(), created: t.now })
}

pub(super) async fn feedback(
    t: &Transaction,
    owner: &Owner,
    thread: &ThreadId,
    after: Option<PageToken>,
    limit: usize,
) -> Result<Page<Feedback>, StoreError> {
    let row = ThreadRow::get(t, owner, thread).await?;
    let rows = t.query(
        "SELECT id, run, body, created FROM agentwire.feedback WHERE thread = $1 AND id > $2 ORDER BY id LIMIT $3",
        &[id(row.id), int(after.map_or(0, |token| token.0)), count(limit.saturating_add(1))],
    ).await?;
    let read = |row| {
        let run = get_optional_text(row, 1)?.map(Into::into);
        Ok((get_number(row, 0)?, Feedback { run, body: get_text(row, 2)?, created: get_time(row, 3)? }))
    };
    page(rows.iter().map(read), limit)
}
