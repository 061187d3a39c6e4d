//! Export and import of whole threads in SQL.

use std::collections::HashMap;

use bytes::Bytes;

use super::{
    connect::Transaction,
    pending,
    row::{RunRow, ThreadRow, key, key_values, run_columns, run_tables, thread_columns},
    threads,
    value::{Value, count, get, get_number, get_optional_text, get_text, id, int, optional_text, text},
};
use crate::{
    copy::{LogRow, RunDump, ThreadDump},
    error::StoreError,
    model::{Fence, Owner, PageToken, PendingFilter, Seq, Text, ThreadIds},
};

pub(super) async fn export(
    t: &Transaction,
    after: Option<PageToken>,
) -> Result<Option<(PageToken, ThreadDump)>, StoreError> {
    let found = t
        .query_first(
            concat!(
                "SELECT ",
                thread_columns!(),
                ", tenant, usr, owner_agent FROM agentwire.threads WHERE id > $1 ORDER BY id LIMIT 1"
            ),
            &[int(after.map_or(0, |token| token.0))],
        )
        .await?;
    let Some(found) = found else { return Ok(None) };
    let row = ThreadRow::read(&found)?;
    let owner = Owner::new(get_text(&found, 9)?, get_text(&found, 10)?, get_text(&found, 11)?);
    let body = async |sql: &str| -> Result<Option<Text>, StoreError> {
        t.query_first(sql, &[id(row.id)]).await?.map(|row| get_text(&row, 0)).transpose()
    };
    let rows = t
        .query(
            concat!("SELECT ", run_columns!(), " FROM ", run_tables!(), " WHERE r.thread = $1 ORDER BY r.id"),
            &[id(row.id)],
        )
        .await?;
    let mut runs = Vec::new();
    let mut leased = None;
    for run in &rows {
        let run = RunRow::read(run)?;
        if Some(run.id) == row.leased {
            leased = Some(run.run.run.clone());
        }
        runs.push(export_run(t, run).await?);
    }
    let dump = ThreadDump {
        leased,
        state: body("SELECT body FROM agentwire.states WHERE thread = $1").await?,
        messages: body("SELECT body FROM agentwire.messages WHERE thread = $1").await?,
        runs,
        pending: pending::list(t, &owner, &row.thread.thread, &PendingFilter::All).await?,
        feedback: threads::feedback(t, &owner, &row.thread.thread, None, usize::MAX - 1).await?.items,
        owner,
        thread: row.thread,
    };
    Ok(Some((PageToken(u64::try_from(row.id).unwrap_or_default()), dump)))
}

async fn export_run(t: &Transaction, row: RunRow) -> Result<RunDump, StoreError> {
    let number = row.id;
    let about = t
        .query_first(
            "SELECT r.kept = 'nothing', i.body, c.body FROM agentwire.runs AS r \
               LEFT JOIN agentwire.inputs AS i ON i.run = r.id LEFT JOIN agentwire.compacted AS c ON c.run = r.id WHERE r.id = $1",
            &[id(number)],
        )
        .await?
        .ok_or_else(|| StoreError::Corrupt("a run vanished during the copy".into()))?;
    let rows = t
        .query(
            "SELECT seq, n, fence, body FROM agentwire.log WHERE day = ($2::date[])[1] AND run = $1 ORDER BY seq",
            &[id(number), Value::Day(&[row.day])],
        )
        .await?;
    let mut log = Vec::new();
    for row in &rows {
        log.push(LogRow {
            seq: Seq(get_number(row, 0)?),
            events: u32::try_from(get::<i32>(row, 1)?).unwrap_or(0),
            fence: Fence(get_number(row, 2)?),
            body: Bytes::copy_from_slice(get(row, 3)?),
        });
    }
    Ok(RunDump {
        run: row.run,
        input: get_optional_text(&about, 1)?,
        log,
        compacted: get::<Option<&[u8]>>(&about, 2)?.map(Bytes::copy_from_slice),
        is_dropped: get(&about, 0)?,
    })
}

pub(super) async fn import(t: &Transaction, dump: &ThreadDump) -> Result<(), StoreError> {
    let ThreadDump { owner, thread, .. } = dump;
    let [tenant, user, agent, name] = key_values(owner, &thread.thread);
    let row = t
        .query_first(
            concat!(
                "INSERT INTO agentwire.threads (key, owner_key, name_key, tenant, usr, owner_agent, thread, upstream_scope, \
                   thread_ids, metadata, created, updated, state_seq) VALUES (",
                key!(),
                ", agentwire.key_of($1, $2, $3, ''), agentwire.key_of($1, $2, $4, ''), $1, $2, $3, $4, $5, $6, $7, $8, $9, $10) \
                 RETURNING id"
            ),
            &[
                tenant,
                user,
                agent,
                name,
                optional_text(thread.upstream_scope.as_deref()),
                optional_text(thread.thread_ids.map(ThreadIds::as_str)),
                optional_text(thread.metadata.as_deref()),
                int(thread.created.0),
                int(thread.updated.0),
                int(thread.state_seq),
            ],
        )
        .await?
        .ok_or_else(|| StoreError::Corrupt("an insert has no result".into()))?;
    let thread_id: i64 = get(&row, 0)?;
    if let Some(state) = &dump.state {
        let sql = "INSERT INTO agentwire.states (thread, body) VALUES ($1, $2)";
        t.query(sql, &[id(thread_id), text(state)]).await?;
    }
    if let Some(messages) = &dump.messages {
        let sql = "INSERT INTO agentwire.messages (thread, body) VALUES ($1, $2)";
        t.query(sql, &[id(thread_id), text(messages)]).await?;
    }
    let mut ids = HashMap::new();
    for run in &dump.runs {
        ids.insert(run.run.run.clone(), import_run(t, owner, thread_id, run).await?);
    }
    let optional_time = |time: Option<crate::clock::Time>| {
        Value::Int(time.map(|time| i64::try_from(time.0).unwrap_or(i64::MAX)))
    };
    for item in &dump.pending {
        let Some(run_id) = ids.get(&item.run) else { continue };
        let answer = item.answer.as_ref();
        t.query(
            "INSERT INTO agentwire.pending (thread, run, pending, kind, body, created, expires, answer, answered_by, answered, \
               answer_run) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)",
            &[
                id(thread_id),
                id(*run_id),
                text(item.id.as_str()),
                text(&item.kind),
                text(&item.body),
                int(item.created.0),
                optional_time(item.expires),
                optional_text(answer.map(|answer| &*answer.body)),
                optional_text(answer.map(|answer| &*answer.by)),
                optional_time(answer.map(|answer| answer.at)),
                optional_text(answer.map(|answer| answer.run.as_str())),
            ],
        )
        .await?;
    }
    for item in &dump.feedback {
        t.query(
            "INSERT INTO agentwire.feedback (thread, run, body, created) VALUES ($1, $2, $3, $4)",
            &[
                id(thread_id),
                optional_text(item.run.as_ref().map(|run| run.as_str())),
                text(&item.body),
                int(item.created.0),
            ],
        )
        .await?;
    }
    if let Some(run_id) = dump.leased.as_ref().and_then(|run| ids.get(run)) {
        let sql = "UPDATE agentwire.threads SET leased = $2 WHERE id = $1";
        t.query(sql, &[id(thread_id), id(*run_id)]).await?;
    }
    Ok(())
}

async fn import_run(t: &Transaction, owner: &Owner, thread: i64, dump: &RunDump) -> Result<i64, StoreError> {
    let RunDump { run, input, log, compacted, is_dropped } = dump;
    let kept = match (is_dropped, run.compacted) {
        (true, _) => "nothing",
        (false, true) => "compacted",
        (false, false) => "exact",
    };
    let [tenant, user, agent, name] = key_values(owner, &run.run);
    let row = t
        .query_first(
            concat!(
                "WITH r AS (INSERT INTO agentwire.runs (key, tenant, usr, owner_agent, run, thread, agent, status, cause, created, \
                   started, updated, day, first_retained, kept) VALUES (",
                key!(),
                ", $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, (to_timestamp($9 / 1000.0) AT TIME ZONE 'UTC')::date, $12, $13) \
                   RETURNING id, day), \
                 h AS (INSERT INTO agentwire.heads (run, fence, next_seq, claimed, holder) \
                   SELECT id, $14, $15, false, $16 FROM r) \
                 SELECT id, day FROM r"
            ),
            &[
                tenant,
                user,
                agent,
                name,
                id(thread),
                text(&run.agent),
                text(run.status.as_str()),
                optional_text(run.cause.as_deref()),
                int(run.created.0),
                Value::Int(run.started.map(|time| i64::try_from(time.0).unwrap_or(i64::MAX))),
                int(run.updated.0),
                int(run.first_retained.0),
                text(kept),
                int(run.fence.0),
                int(run.next_seq.0),
                text(run.holder.as_str()),
            ],
        )
        .await?
        .ok_or_else(|| StoreError::Corrupt("an insert has no result".into()))?;
    let (run_id, day): (i64, super::value::Day) = (get(&row, 0)?, get(&row, 1)?);
    if let Some(input) = input {
        let sql = "INSERT INTO agentwire.inputs (run, body) VALUES ($1, $2)";
        t.query(sql, &[id(run_id), text(input)]).await?;
    }
    for row in log {
        t.query(
            "INSERT INTO agentwire.log (day, run, seq, n, fence, epoch, body) \
             VALUES (($7::date[])[1], $1, $2, $3::int, $4, $5::int, $6)",
            &[
                id(run_id),
                int(row.seq.0),
                count(row.events as usize),
                int(row.fence.0),
                int(u64::from(t.epoch)),
                Value::Bytes(&row.body),
                Value::Day(&[day]),
            ],
        )
        .await?;
    }
    if let Some(body) = compacted {
        let sql = "INSERT INTO agentwire.compacted (run, body) VALUES ($1, $2)";
        t.query(sql, &[id(run_id), Value::Bytes(body)]).await?;
    }
    Ok(run_id)
}
