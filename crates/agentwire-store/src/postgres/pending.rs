//! Pending items and answers in SQL. Every change holds the lock of the thread.

use std::collections::{BTreeSet, HashMap};

use agentwire_core::event::{RunId, ThreadId};
use tokio_postgres::Row;

use super::{
    connect::Transaction,
    log,
    row::ThreadRow,
    value::{
        Value, count, get, get_optional_text, get_optional_time, get_text, get_time, id, int, text, texts,
    },
};
use crate::{
    error::{Missing, StoreError},
    model::{
        Answer, AnswerSet, NewPending, OpenItem, Owner, Page, PageToken, Pending, PendingFilter, PendingId,
        RecordedAnswer, Tenant,
    },
    rules,
};

macro_rules! pending_columns {
    () => {
        "p.id, p.run, p.pending, r.run, p.kind, p.body, p.created, p.expires, p.answer, p.answered_by, p.answered, \
         p.answer_run FROM agentwire.pending AS p JOIN agentwire.runs AS r ON r.id = p.run"
    };
}

struct PendingRow {
    id: i64,
    run: i64,
    item: Pending,
}

fn read(row: &Row) -> Result<PendingRow, StoreError> {
    let answer = match (get_optional_text(row, 8)?, get_optional_time(row, 10)?) {
        (Some(body), Some(at)) => {
            Some(RecordedAnswer { body, by: get_text(row, 9)?, at, run: get_text(row, 11)?.into() })
        }
        _ => None,
    };
    Ok(PendingRow {
        id: get(row, 0)?,
        run: get(row, 1)?,
        item: Pending {
            id: get_text(row, 2)?.into(),
            run: get_text(row, 3)?.into(),
            kind: get_text(row, 4)?,
            body: get_text(row, 5)?,
            created: get_time(row, 6)?,
            expires: get_optional_time(row, 7)?,
            answer,
        },
    })
}

pub(super) async fn list(
    t: &Transaction,
    owner: &Owner,
    thread: &ThreadId,
    filter: &PendingFilter,
) -> Result<Vec<Pending>, StoreError> {
    let thread = ThreadRow::get(t, owner, thread).await?;
    // Most items of a long thread are answered, and few reads need those.
    let with_answered = match filter {
        PendingFilter::Open => false,
        PendingFilter::Unanswered(named) => !named.is_empty(),
        PendingFilter::All => true,
    };
    let rows = t
        .query(
            concat!(
                "SELECT ",
                pending_columns!(),
                " WHERE p.thread = $1 AND ($2 OR p.answered IS NULL) ORDER BY p.id"
            ),
            &[id(thread.id), Value::Bool(with_answered)],
        )
        .await?;
    let mut items = Vec::new();
    for row in rows {
        let item = read(&row)?.item;
        if filter.includes(&item, t.now) {
            items.push(item);
        }
    }
    Ok(items)
}

/// The open items of a kind in a tenant, oldest first.
pub(super) async fn open_items(
    t: &Transaction,
    tenant: &Tenant,
    kind: &str,
    after: Option<PageToken>,
    limit: usize,
) -> Result<Page<OpenItem>, StoreError> {
    let rows = t
        .query(
            "SELECT p.id, p.run, p.pending, r.run, p.kind, p.body, p.created, p.expires, p.answer, p.answered_by, \
               p.answered, p.answer_run, t.usr, t.owner_agent, t.thread \
             FROM agentwire.pending AS p JOIN agentwire.runs AS r ON r.id = p.run \
               JOIN agentwire.threads AS t ON t.id = p.thread \
             WHERE md5(p.kind) = md5($1) AND p.kind = $1 AND p.answered IS NULL AND p.id > $2 \
               AND (p.expires IS NULL OR p.expires > $3) AND t.tenant = $4 \
               AND NOT EXISTS (SELECT 1 FROM agentwire.pending AS n WHERE n.thread = p.thread AND n.pending = p.pending \
                 AND n.id > p.id) \
             ORDER BY p.id LIMIT $5",
            &[
                text(kind),
                int(after.map_or(0, |after| after.0)),
                int(t.now.0),
                text(tenant.as_str()),
                count(limit.saturating_add(1)),
            ],
        )
        .await?;
    let item = |row: &Row| -> Result<_, StoreError> {
        let found = read(row)?;
        let owner = Owner::new(tenant.clone(), get_text(row, 12)?, get_text(row, 13)?);
        let item = OpenItem { owner, thread: get_text(row, 14)?.into(), item: found.item };
        Ok((u64::try_from(found.id).unwrap_or_default(), item))
    };
    rules::page(rows.iter().map(item), limit)
}

pub(super) async fn replace(
    t: &Transaction,
    owner: &Owner,
    thread: &ThreadId,
    expected: &Pending,
    body: &str,
) -> Result<(), StoreError> {
    let thread = ThreadRow::lock(t, owner, thread).await?.ok_or(StoreError::NotFound(Missing::Thread))?;
    let found = find(t, thread.id, &expected.id).await?;
    rules::check_replaced(&found.item, expected, t.now)?;
    let update = "UPDATE agentwire.pending SET body = $2 WHERE id = $1";
    t.query(update, &[id(found.id), text(body)]).await.map(|_| ())
}

/// The last item of a thread with this id.
async fn find(t: &Transaction, thread: i64, pending: &PendingId) -> Result<PendingRow, StoreError> {
    let row = t
        .query_first(
            concat!(
                "SELECT ",
                pending_columns!(),
                " WHERE p.thread = $1 AND p.pending = $2 ORDER BY p.id DESC LIMIT 1"
            ),
            &[id(thread), text(pending.as_str())],
        )
        .await?;
    row.as_ref().map(read).transpose()?.ok_or(StoreError::NotFound(Missing::Pending))
}

pub(super) async fn answer(
    t: &Transaction,
    owner: &Owner,
    thread: &ThreadId,
    set: &AnswerSet,
    run: &RunId,
) -> Result<RunId, StoreError> {
    let thread = ThreadRow::lock(t, owner, thread).await?.ok_or(StoreError::NotFound(Missing::Thread))?;
    if let Some(first) = check_answers(t, Some(thread.id), set).await? {
        return Ok(first);
    }
    record_answers(t, thread.id, set, run).await?;
    Ok(run.clone())
}

/// The last items of a thread with these ids. A run may have a thousand of them.
async fn find_all(t: &Transaction, thread: i64, set: &AnswerSet) -> Result<Vec<PendingRow>, StoreError> {
    let rows = t
        .query(
            concat!(
                "SELECT ",
                pending_columns!(),
                " WHERE p.thread = $1 AND p.pending = ANY($2) ORDER BY p.id"
            ),
            &[id(thread), texts(set.answers.iter().map(|answer| answer.id.as_str()))],
        )
        .await?;
    let mut last = HashMap::new();
    for row in &rows {
        let row = read(row)?;
        last.insert(row.item.id.clone(), row);
    }
    let mut found = Vec::new();
    for answer in &set.answers {
        match last.remove(&answer.id) {
            Some(row) => found.push(row),
            // Named twice, or unknown.
            None => found.push(find(t, thread, &answer.id).await?),
        }
    }
    Ok(found)
}

/// `None` if the answers can be recorded; the run that they started if they were recorded before.
pub(super) async fn check_answers(
    t: &Transaction,
    thread: Option<i64>,
    set: &AnswerSet,
) -> Result<Option<RunId>, StoreError> {
    let thread = thread.ok_or(StoreError::NotFound(Missing::Pending))?;
    let items = find_all(t, thread, set).await?;
    let pairs: Vec<(&Answer, &Pending)> = set.answers.iter().zip(items.iter().map(|row| &row.item)).collect();
    rules::check_answers(&pairs, t.now)
}

/// Records answers that passed [`check_answers`].
pub(super) async fn record_answers(
    t: &Transaction,
    thread: i64,
    set: &AnswerSet,
    run: &RunId,
) -> Result<(), StoreError> {
    let items = find_all(t, thread, set).await?;
    let ids: Vec<i64> = items.iter().map(|row| row.id).collect();
    t.query(
        "UPDATE agentwire.pending AS p SET answer = a.body, answered_by = $3, answered = $4, answer_run = $5 \
         FROM unnest($1, $2) AS a (id, body) WHERE p.id = a.id",
        &[
            Value::Ints(&ids),
            texts(set.answers.iter().map(|answer| &*answer.body)),
            text(&set.by),
            int(t.now.0),
            text(run.as_str()),
        ],
    )
    .await?;
    let asking_runs: BTreeSet<i64> = items.iter().map(|row| row.run).collect();
    for run in asking_runs {
        log::finish_if_all_closed(t, run).await?;
    }
    Ok(())
}

pub(super) async fn check_insert(t: &Transaction, run: i64, items: &[NewPending]) -> Result<(), StoreError> {
    if items.is_empty() {
        return Ok(());
    }
    let answered = t
        .query(
            "SELECT pending FROM agentwire.pending WHERE run = $1 AND answered IS NOT NULL AND pending = ANY($2)",
            &[id(run), texts(items.iter().map(|new| new.id.as_str()))],
        )
        .await?;
    let answered: Vec<PendingId> =
        answered.iter().map(|row| Ok(get_text(row, 0)?.into())).collect::<Result<_, StoreError>>()?;
    items.iter().try_for_each(|new| new.check_replaces(answered.contains(&new.id)))
}

pub(super) async fn insert(
    t: &Transaction,
    thread: i64,
    run: i64,
    items: &[NewPending],
) -> Result<(), StoreError> {
    // The last one of an id counts, in the place of the first one.
    let mut last: Vec<&NewPending> = Vec::new();
    let mut places: HashMap<&PendingId, usize> = HashMap::new();
    for new in items {
        match places.get(&new.id) {
            Some(place) => last[*place] = new,
            None => {
                places.insert(&new.id, last.len());
                last.push(new);
            }
        }
    }
    if last.is_empty() {
        return Ok(());
    }
    let expiry = |new: &&NewPending| new.ttl.map(|ttl| i64::try_from(t.now.after(ttl).0).unwrap_or(i64::MAX));
    t.query(
        "INSERT INTO agentwire.pending (thread, run, pending, kind, body, created, expires) \
         SELECT $1, $2, n.pending, n.kind, n.body, $3, n.expires \
         FROM unnest($4, $5, $6, $7) WITH ORDINALITY AS n (pending, kind, body, expires, place) ORDER BY n.place \
         ON CONFLICT (run, (agentwire.key_of(pending, '', '', ''))) DO UPDATE \
         SET kind = excluded.kind, body = excluded.body, created = excluded.created, expires = excluded.expires",
        &[
            id(thread),
            id(run),
            int(t.now.0),
            texts(last.iter().map(|new| new.id.as_str())),
            texts(last.iter().map(|new| &*new.kind)),
            texts(last.iter().map(|new| &*new.body)),
            Value::MaybeInts(last.iter().map(expiry).collect()),
        ],
    )
    .await?;
    Ok(())
}
