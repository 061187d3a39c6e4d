//! Export and import of whole threads in SQL.

use std::collections::HashMap;

use bytes::Bytes;
use rusqlite::{Connection, OptionalExtension};

use super::{
    pending,
    row::{RUN, RunRow, THREAD, ThreadRow, count, get_number, int},
    session::Session,
    threads,
};
use crate::{
    clock::Time,
    copy::{LogRow, RunDump, ThreadDump},
    error::StoreError,
    model::{Fence, Owner, PageToken, PendingFilter, Seq, Text, ThreadIds},
};

pub(super) fn export(
    db: &Connection,
    after: Option<PageToken>,
    now: Time,
) -> Result<Option<(PageToken, ThreadDump)>, StoreError> {
    let mut find = db.prepare_cached(&format!(
        "SELECT {THREAD}, tenant, user, owner_agent FROM threads WHERE id > ?1 ORDER BY id LIMIT 1"
    ))?;
    let found = find.query_row([after.map_or(0, |token| int(token.0))], |row| {
        let (tenant, user, agent): (Text, Text, Text) = (row.get(9)?, row.get(10)?, row.get(11)?);
        Ok((ThreadRow::read(row)?, Owner::new(tenant, user, agent)))
    });
    let Some((row, owner)) = found.optional()? else { return Ok(None) };
    let text = |table: &str| -> Result<Option<Text>, StoreError> {
        let mut body = db.prepare_cached(&format!("SELECT body FROM {table} WHERE thread = ?1"))?;
        Ok(body.query_row([row.id], |row| row.get(0)).optional()?)
    };
    let mut list = db.prepare_cached(&format!(
        "SELECT {RUN} FROM runs AS r JOIN threads AS t ON t.id = r.thread WHERE r.thread = ?1 ORDER BY r.id"
    ))?;
    let rows = list.query_map([row.id], RunRow::read)?.collect::<Result<Vec<_>, _>>()?;
    let leased = rows.iter().find(|run| Some(run.id) == row.leased).map(|run| run.run.run.clone());
    let runs = rows.into_iter().map(|run| export_run(db, run)).collect::<Result<_, _>>()?;
    let dump = ThreadDump {
        leased,
        state: text("states")?,
        messages: text("messages")?,
        runs,
        pending: pending::list(db, &owner, &row.thread.thread, PendingFilter::All, now)?,
        feedback: threads::feedback(db, &owner, &row.thread.thread, None, usize::MAX - 1)?.items,
        owner,
        thread: row.thread,
    };
    Ok(Some((PageToken(u64::try_from(row.id).unwrap_or_default()), dump)))
}

fn export_run(db: &Connection, row: RunRow) -> Result<RunDump, StoreError> {
    let RunRow { id, run, .. } = row;
    let mut input = db.prepare_cached("SELECT body FROM inputs WHERE run = ?1")?;
    let mut compacted = db.prepare_cached("SELECT body FROM compacted WHERE run = ?1")?;
    let mut kept = db.prepare_cached("SELECT kept = 'nothing' FROM runs WHERE id = ?1")?;
    let mut log =
        db.prepare_cached("SELECT seq, events, fence, body FROM log WHERE run = ?1 ORDER BY seq")?;
    let rows = log.query_map([id], |row| {
        let body: Vec<u8> = row.get(3)?;
        Ok(LogRow {
            seq: Seq(get_number(row, 0)?),
            events: row.get(1)?,
            fence: Fence(get_number(row, 2)?),
            body: body.into(),
        })
    })?;
    Ok(RunDump {
        run,
        input: input.query_row([id], |row| row.get(0)).optional()?,
        log: rows.collect::<Result<_, _>>()?,
        compacted: compacted.query_row([id], |row| row.get::<_, Vec<u8>>(0)).optional()?.map(Bytes::from),
        is_dropped: kept.query_row([id], |row| row.get(0))?,
    })
}

pub(super) fn import(db: &Session, dump: &ThreadDump) -> Result<(), StoreError> {
    let ThreadDump { owner, thread, .. } = dump;
    let (tenant, user, agent) = (owner.tenant.as_str(), owner.user.as_str(), owner.agent.as_str());
    db.prepare_cached(
        "INSERT INTO threads (tenant, user, thread, owner_agent, upstream_scope, thread_ids, metadata, created, updated, \
           state_seq) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)",
    )?
    .execute((
        tenant,
        user,
        thread.thread.as_str(),
        agent,
        &thread.upstream_scope,
        thread.thread_ids.map(ThreadIds::as_str),
        &thread.metadata,
        int(thread.created.0),
        int(thread.updated.0),
        int(thread.state_seq),
    ))?;
    let thread_id = db.last_insert_rowid();
    for (table, body) in [("states", &dump.state), ("messages", &dump.messages)] {
        if let Some(body) = body {
            db.prepare_cached(&format!("INSERT INTO {table} (thread, body) VALUES (?1, ?2)"))?
                .execute((thread_id, &**body))?;
        }
    }
    let mut ids = HashMap::new();
    for RunDump { run, input, log, compacted, is_dropped } in &dump.runs {
        let kept = match (is_dropped, run.compacted) {
            (true, _) => "nothing",
            (false, true) => "compacted",
            (false, false) => "exact",
        };
        db.prepare_cached(
            "INSERT INTO runs (tenant, user, run, owner_agent, thread, agent, status, cause, created, started, updated, fence, \
               holder, first_retained, next_seq, kept) \
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16)",
        )?
        .execute(rusqlite::params![
            tenant,
            user,
            run.run.as_str(),
            agent,
            thread_id,
            &*run.agent,
            run.status.as_str(),
            &run.cause,
            int(run.created.0),
            run.started.map(|time| int(time.0)),
            int(run.updated.0),
            int(run.fence.0),
            run.holder.as_str(),
            int(run.first_retained.0),
            int(run.next_seq.0),
            kept,
        ])?;
        let run_id = db.last_insert_rowid();
        ids.insert(run.run.clone(), run_id);
        // No claim after the copy gets the token of one before.
        db.prepare_cached("UPDATE fences SET last = max(last, ?1)")?.execute([int(run.fence.0)])?;
        if let Some(input) = input {
            db.prepare_cached("INSERT INTO inputs (run, body) VALUES (?1, ?2)")?
                .execute((run_id, &**input))?;
        }
        for row in log {
            db.prepare_cached("INSERT INTO log (run, seq, events, fence, body) VALUES (?1, ?2, ?3, ?4, ?5)")?
                .execute((
                    run_id,
                    int(row.seq.0),
                    count(row.events as usize),
                    int(row.fence.0),
                    &*row.body,
                ))?;
        }
        if let Some(body) = compacted {
            db.prepare_cached("INSERT INTO compacted (run, body) VALUES (?1, ?2)")?
                .execute((run_id, &**body))?;
        }
    }
    for item in &dump.pending {
        let Some(run_id) = ids.get(&item.run) else { continue };
        let answer = item.answer.as_ref();
        db.prepare_cached(
            "INSERT INTO pending (thread, run, pending, kind, body, created, expires, answer, answered_by, answered, answer_run) \
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)",
        )?
        .execute(rusqlite::params![
            thread_id,
            run_id,
            item.id.as_str(),
            &*item.kind,
            &*item.body,
            int(item.created.0),
            item.expires.map(|time| int(time.0)),
            answer.map(|answer| &*answer.body),
            answer.map(|answer| &*answer.by),
            answer.map(|answer| int(answer.at.0)),
            answer.map(|answer| answer.run.as_str()),
        ])?;
    }
    for item in &dump.feedback {
        db.prepare_cached("INSERT INTO feedback (thread, run, body, created) VALUES (?1, ?2, ?3, ?4)")?
            .execute((
                thread_id,
                item.run.as_ref().map(|run| run.as_str()),
                &*item.body,
                int(item.created.0),
            ))?;
    }
    if let Some(run_id) = dump.leased.as_ref().and_then(|run| ids.get(run)) {
        db.prepare_cached("UPDATE threads SET leased = ?2 WHERE id = ?1")?.execute((thread_id, run_id))?;
    }
    db.invalidate_all();
    Ok(())
}
