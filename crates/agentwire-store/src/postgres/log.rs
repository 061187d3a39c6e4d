//! Appends with changes, reads and compaction in SQL. Appends without changes are in `queue`.

use agentwire_core::event::RunId;
use bytes::Bytes;

use super::{
    connect::Transaction,
    mailbox, pending,
    row::{
        RUN_COLUMNS, RunRow, get_run_key, key, key_values, lock_thread_id, run_columns, run_key, run_tables,
    },
    threads,
    value::{Day, Value, count, get, id, int, optional_text, text},
};
use crate::{
    chunk,
    clock::Time,
    error::{Missing, StoreError},
    model::{Append, Appended, Log, LogSlice, Owner, RunKey, RunStatus, Seq},
    rules::{Fetch, fetch},
};

/// Rows of the log that a read looks at: not all of a long log for a small read, and enough for small events.
fn rows_per_read(limit: usize) -> usize {
    (limit / 16).max(512)
}

/// Result of an append with changes.
pub(super) struct Written {
    pub(super) appended: Appended,
    pub(super) run: i64,
    pub(super) day: Day,
    /// True if readers at other gateways want a wake-up.
    pub(super) is_watched: bool,
    pub(super) is_live: bool,
}

/// Checks everything, then writes; holds the locks of the thread and the run.
pub(super) async fn append(t: &Transaction, append: &Append) -> Result<Written, StoreError> {
    let Append { owner, run, fence, first_seq, events, change, .. } = append;
    let row = RunRow::lock(t, owner, run).await?;
    let body = chunk::pack(events)?;
    let next_seq = first_seq.plus(events.len());
    let mut written = Written {
        appended: Appended { next_seq, repeated: false, epoch: t.epoch },
        run: row.id,
        day: row.day,
        is_watched: false,
        is_live: true,
    };
    if !events.is_empty() && *first_seq < row.run.next_seq {
        let stored = t.query_first(
            "SELECT epoch FROM agentwire.log WHERE day = ($5::date[])[1] AND run = $1 AND seq = $2 AND fence = $3 AND body = $4",
            &[id(row.id), int(first_seq.0), int(fence.0), Value::Bytes(&body), Value::Day(&[row.day])],
        ).await?;
        if let Some(stored) = stored {
            let epoch = u32::try_from(get::<i32>(&stored, 0)?).unwrap_or(0);
            written.appended = Appended { next_seq, repeated: true, epoch };
            return Ok(written);
        }
    }
    row.claim_state(t).check_append(*fence, (*first_seq, row.run.next_seq), change.status.as_ref())?;
    if change.changes_thread() {
        change.check_thread(row.leased == Some(row.id), row.state_seq)?;
    }
    pending::check_insert(t, row.id, &change.pending).await?;

    let is_live = change.status.as_ref().is_none_or(|status| status.to.is_live());
    let day = [row.day];
    let mut writes: Vec<(&'static str, Vec<Value<'_>>)> = vec![(
        "UPDATE agentwire.heads SET next_seq = $2, claimed = claimed AND $3 WHERE run = $1 \
         RETURNING coalesce(watched_until > $4, false)",
        vec![id(row.id), int(next_seq.0), Value::Bool(is_live), int(t.now.0)],
    )];
    if !events.is_empty() {
        writes.push((
            "INSERT INTO agentwire.log (day, run, seq, n, fence, epoch, body) \
             VALUES (($7::date[])[1], $1, $2, $3::int, $4, $5::int, $6)",
            vec![
                id(row.id),
                int(first_seq.0),
                count(events.len()),
                int(fence.0),
                int(u64::from(t.epoch)),
                Value::Bytes(&body),
                Value::Day(&day),
            ],
        ));
    }
    if let Some(status) = &change.status {
        writes.push((
            "UPDATE agentwire.runs SET updated = $2, status = $3, cause = $4 WHERE id = $1",
            vec![id(row.id), int(t.now.0), text(status.to.as_str()), optional_text(status.cause.as_deref())],
        ));
    }
    if change.changes_thread() || change.status.is_some() {
        threads::write(row.thread_id, change.state.as_ref(), change.messages.as_ref(), &mut writes);
        writes.push((
            "UPDATE agentwire.threads SET updated = $2, leased = CASE WHEN leased = $3 AND NOT $4 THEN NULL ELSE leased END \
             WHERE id = $1",
            vec![id(row.thread_id), int(t.now.0), id(row.id), Value::Bool(is_live)],
        ));
    }
    for reply in &change.replies {
        writes.push((mailbox::REPLY, vec![int(reply.id.0), text(&reply.body)]));
    }
    let written_rows = t.pipeline(&writes).await?;
    let head = written_rows.first().and_then(|rows| rows.first());
    written.is_watched = head.map(|row| get(row, 0)).transpose()?.unwrap_or(false);
    written.is_live = is_live;
    pending::insert(t, row.thread_id, row.id, &change.pending).await?;
    Ok(written)
}

/// The number and the day of a run, which never change.
pub(super) async fn find(t: &Transaction, key: &RunKey) -> Result<(i64, Day), StoreError> {
    let sql = concat!("SELECT id, day FROM agentwire.runs WHERE key = ", key!());
    let row = t.query_first(sql, &key_values(&key.owner, &key.run)).await?;
    let row = row.ok_or(StoreError::NotFound(Missing::Run))?;
    Ok((get(&row, 0)?, get(&row, 1)?))
}

pub(super) async fn read(
    t: &Transaction,
    owner: &Owner,
    run: &RunId,
    after: Option<Seq>,
    limit: usize,
) -> Result<Log, StoreError> {
    loop {
        let from = after.map_or(Seq(0), |after| after.plus(1));
        let [tenant, user, agent, name] = key_values(owner, run);
        // One statement, so that the run and its log are of one moment: compaction may be under way.
        let rows = t.query(
            concat!(
                "SELECT ",
                run_columns!(),
                ", l.seq, l.epoch, l.body FROM ",
                run_tables!(),
                " LEFT JOIN LATERAL (SELECT seq, epoch, body FROM (\
                   SELECT seq, epoch, body, sum(octet_length(body)) OVER (ORDER BY seq) - octet_length(body) AS earlier FROM (\
                     SELECT seq, epoch, body FROM agentwire.log WHERE day = r.day AND run = r.id AND seq >= coalesce(\
                       (SELECT max(seq) FROM agentwire.log WHERE day = r.day AND run = r.id AND seq <= $5), $5) \
                     ORDER BY seq LIMIT $7) AS rows) AS sums WHERE earlier <= $6) AS l ON true \
                   WHERE r.key = ",
                key!(),
                " ORDER BY l.seq"
            ),
            &[tenant, user, agent, name, int(from.0), count(limit), count(rows_per_read(limit))],
        ).await?;
        let RunRow { id: number, run: record, .. } =
            rows.first().map(RunRow::read).transpose()?.ok_or(StoreError::NotFound(Missing::Run))?;
        let (next_seq, status) = (record.next_seq, record.status);
        match fetch(&record, after) {
            Fetch::Nothing(log) => return Ok(log),
            Fetch::Compacted => {
                let found = t
                    .query_first("SELECT body FROM agentwire.compacted WHERE run = $1", &[id(number)])
                    .await?;
                // Dropped by retention since: the run tells.
                let Some(found) = found else { continue };
                let body = Bytes::copy_from_slice(get(&found, 0)?);
                let events = chunk::unpack(body).collect::<Result<_, _>>()?;
                return Ok(Log::Compacted { events, next_seq, status });
            }
            Fetch::From(first_seq) => {
                let (events, epoch) = unpack_rows(&rows, first_seq, limit)?;
                if events.is_empty() && first_seq < next_seq {
                    return Err(StoreError::Corrupt("the end of a log is missing".into()));
                }
                let epoch = epoch.unwrap_or(t.epoch);
                return Ok(Log::Exact(LogSlice { first_seq, events, next_seq, status, epoch }));
            }
        }
    }
}

/// The events from `first_seq` on, up to about `limit` bytes or to the end of their epoch.
fn unpack_rows(
    rows: &[tokio_postgres::Row],
    first_seq: Seq,
    limit: usize,
) -> Result<(Vec<Bytes>, Option<u32>), StoreError> {
    let mut events = Vec::new();
    let (mut size, mut end, mut epoch) = (0, None, None);
    for row in rows {
        let Some(first) = get::<Option<i64>>(row, RUN_COLUMNS)? else { break };
        let first = u64::try_from(first).unwrap_or(0);
        let mut at = end.unwrap_or(first);
        if at != first || first > first_seq.0.saturating_add(events.len() as u64) {
            return Err(StoreError::Corrupt("a log has a hole".into()));
        }
        let of_row = u32::try_from(get::<i32>(row, RUN_COLUMNS + 1)?).unwrap_or(0);
        for event in chunk::unpack(Bytes::copy_from_slice(get(row, RUN_COLUMNS + 2)?)) {
            let event = event?;
            if at >= first_seq.0 {
                size += event.len();
                if (size > limit && !events.is_empty()) || epoch.is_some_and(|epoch| epoch != of_row) {
                    return Ok((events, epoch));
                }
                epoch = Some(of_row);
                events.push(event);
            }
            at += 1;
        }
        end = Some(at);
    }
    Ok((events, epoch))
}

pub(super) async fn compactable(
    t: &Transaction,
    before: Time,
    limit: usize,
) -> Result<Vec<RunKey>, StoreError> {
    let rows = t
        .query(
            concat!(
                "SELECT ",
                run_key!(),
                " FROM agentwire.runs AS r JOIN agentwire.heads AS h ON h.run = r.id \
             WHERE r.kept <> 'nothing' AND r.status IN ('waiting', 'finished', 'failed', 'stopped') \
               AND r.updated <= $1 AND r.first_retained < h.next_seq ORDER BY r.updated, r.id LIMIT $2"
            ),
            &[int(before.0), count(limit)],
        )
        .await?;
    rows.iter().map(|row| get_run_key(row, 0)).collect()
}

pub(super) async fn compact(
    t: &Transaction,
    owner: &Owner,
    run: &RunId,
    events: &[Bytes],
) -> Result<(), StoreError> {
    let row = RunRow::lock(t, owner, run).await?;
    row.run.check_ended()?;
    let body = chunk::pack(events)?;
    t.query(
        "WITH l AS (DELETE FROM agentwire.log WHERE day = ($3::date[])[1] AND run = $1), \
           c AS (INSERT INTO agentwire.compacted (run, body) VALUES ($1, $2) \
             ON CONFLICT (run) DO UPDATE SET body = excluded.body) \
         UPDATE agentwire.runs SET kept = 'compacted', first_retained = $4 WHERE id = $1",
        &[id(row.id), Value::Bytes(&body), Value::Day(&[row.day]), int(row.run.next_seq.0)],
    )
    .await?;
    Ok(())
}

/// Drops the log and the input of an ended run. Returns whether there was one.
pub(super) async fn drop_log(t: &Transaction, run: i64) -> Result<bool, StoreError> {
    let changed = t.query(
        "WITH r AS (UPDATE agentwire.runs SET kept = 'nothing', \
             first_retained = (SELECT next_seq FROM agentwire.heads WHERE heads.run = runs.id) \
           WHERE id = $1 AND kept <> 'nothing' AND status IN ('waiting', 'finished', 'failed', 'stopped') RETURNING id, day), \
         l AS (DELETE FROM agentwire.log USING r WHERE log.day = r.day AND log.run = r.id), \
         c AS (DELETE FROM agentwire.compacted USING r WHERE compacted.run = r.id), \
         i AS (DELETE FROM agentwire.inputs USING r WHERE inputs.run = r.id) \
         SELECT id FROM r",
        &[id(run)],
    ).await?;
    Ok(!changed.is_empty())
}

/// Finishes a waiting run without open pending items. Returns whether it did.
pub(super) async fn finish_if_all_closed(t: &Transaction, run: i64) -> Result<bool, StoreError> {
    let changed = t
        .query(
            "UPDATE agentwire.runs SET status = $3, updated = $2 WHERE id = $1 AND status = 'waiting' \
           AND NOT EXISTS (SELECT 1 FROM agentwire.pending WHERE run = $1 AND answered IS NULL \
             AND (expires IS NULL OR expires > $2)) RETURNING id",
            &[id(run), int(t.now.0), text(RunStatus::Finished.as_str())],
        )
        .await?;
    Ok(!changed.is_empty())
}

/// The thread of a run, locked.
pub(super) async fn lock_thread_of(t: &Transaction, run: i64) -> Result<bool, StoreError> {
    let row = t.query_first("SELECT thread FROM agentwire.runs WHERE id = $1", &[id(run)]).await?;
    match row {
        Some(row) => lock_thread_id(t, get(&row, 0)?).await.map(|()| true),
        None => Ok(false),
    }
}
