//! Pending items and answers in SQL.

use agentwire_core::event::{RunId, ThreadId};
use rusqlite::{Connection, OptionalExtension, Row};

use super::{
    log,
    row::{ThreadRow, count, get_optional_time, get_time, int},
};
use crate::{
    clock::Time,
    error::{Missing, StoreError},
    model::{
        Answer, AnswerSet, NewPending, OpenItem, Owner, Page, PageToken, Pending, PendingFilter, PendingId,
        RecordedAnswer, Tenant, Text,
    },
    rules,
};

/// The columns for [`read`], from `pending AS p JOIN runs AS r ON r.id = p.run`.
const PENDING: &str = "p.id, p.run, p.pending, r.run, p.kind, p.body, p.created, p.expires, p.answer, p.answered_by, \
     p.answered, p.answer_run";

struct PendingRow {
    id: i64,
    run: i64,
    item: Pending,
}

fn read(row: &Row<'_>) -> rusqlite::Result<PendingRow> {
    let answer = match (row.get::<_, Option<Text>>(8)?, get_optional_time(row, 10)?) {
        (Some(body), Some(at)) => {
            let (by, run): (Text, Text) = (row.get(9)?, row.get(11)?);
            Some(RecordedAnswer { body, by, at, run: run.into() })
        }
        _ => None,
    };
    Ok(PendingRow {
        id: row.get(0)?,
        run: row.get(1)?,
        item: Pending {
            id: row.get::<_, Text>(2)?.into(),
            run: row.get::<_, Text>(3)?.into(),
            kind: row.get(4)?,
            body: row.get(5)?,
            created: get_time(row, 6)?,
            expires: get_optional_time(row, 7)?,
            answer,
        },
    })
}

pub(super) fn list(
    db: &Connection,
    owner: &Owner,
    thread: &ThreadId,
    filter: PendingFilter,
    now: Time,
) -> Result<Vec<Pending>, StoreError> {
    let thread = ThreadRow::get(db, owner, thread)?;
    // Most items of a long thread are answered, and few reads need those.
    let with_answered = match &filter {
        PendingFilter::Open => false,
        PendingFilter::Unanswered(named) => !named.is_empty(),
        PendingFilter::All => true,
    };
    let mut list = db.prepare_cached(&format!(
        "SELECT {PENDING} FROM pending AS p JOIN runs AS r ON r.id = p.run \
         WHERE p.thread = ?1 AND (?2 OR p.answered IS NULL) ORDER BY p.id"
    ))?;
    let mut rows = list.query((thread.id, with_answered))?;
    let mut items = Vec::new();
    while let Some(row) = rows.next()? {
        let item = read(row)?.item;
        if filter.includes(&item, now) {
            items.push(item);
        }
    }
    Ok(items)
}

pub(super) fn open_items(
    db: &Connection,
    tenant: &Tenant,
    kind: &str,
    after: Option<PageToken>,
    limit: usize,
    now: Time,
) -> Result<Page<OpenItem>, StoreError> {
    let mut list = db.prepare_cached(&format!(
        "SELECT {PENDING}, t.user, t.owner_agent, t.thread FROM pending AS p JOIN runs AS r ON r.id = p.run \
         JOIN threads AS t ON t.id = p.thread \
         WHERE p.kind = ?1 AND p.answered IS NULL AND p.id > ?2 AND (p.expires IS NULL OR p.expires > ?3) \
         AND t.tenant = ?4 AND NOT EXISTS (SELECT 1 FROM pending AS n WHERE n.thread = p.thread AND n.pending = p.pending \
         AND n.id > p.id) ORDER BY p.id LIMIT ?5"
    ))?;
    let after = after.map_or(0, |after| int(after.0));
    let rows =
        list.query_map((kind, after, int(now.0), tenant.as_str(), count(limit.saturating_add(1))), |row| {
            let PendingRow { id, item, .. } = read(row)?;
            let (user, agent, thread): (Text, Text, Text) = (row.get(12)?, row.get(13)?, row.get(14)?);
            let owner = Owner::new(tenant.clone(), user, agent);
            Ok((u64::try_from(id).unwrap_or_default(), OpenItem { owner, thread: thread.into(), item }))
        })?;
    Ok(rules::page(rows, limit)?)
}

pub(super) fn replace(
    db: &Connection,
    owner: &Owner,
    thread: &ThreadId,
    expected: &Pending,
    body: &Text,
    now: Time,
) -> Result<(), StoreError> {
    let thread = ThreadRow::get(db, owner, thread)?;
    let found = find(db, thread.id, &expected.id)?;
    rules::check_replaced(&found.item, expected, now)?;
    db.prepare_cached("UPDATE pending SET body = ?2 WHERE id = ?1")?.execute((found.id, &**body))?;
    Ok(())
}

/// The last item of a thread with this id.
fn find(db: &Connection, thread: i64, id: &PendingId) -> Result<PendingRow, StoreError> {
    let mut find = db.prepare_cached(&format!(
        "SELECT {PENDING} FROM pending AS p JOIN runs AS r ON r.id = p.run \
         WHERE p.thread = ?1 AND p.pending = ?2 ORDER BY p.id DESC LIMIT 1"
    ))?;
    let row = find.query_row((thread, id.as_str()), read).optional()?;
    row.ok_or(StoreError::NotFound(Missing::Pending))
}

pub(super) fn answer(
    db: &Connection,
    owner: &Owner,
    thread: &ThreadId,
    set: &AnswerSet,
    run: &RunId,
    now: Time,
) -> Result<RunId, StoreError> {
    let thread = ThreadRow::get(db, owner, thread)?;
    if let Some(first) = check_answers(db, Some(thread.id), set, now)? {
        return Ok(first);
    }
    record_answers(db, thread.id, set, run, now)?;
    Ok(run.clone())
}

/// `None` if the answers can be recorded; the run that they started if they were recorded before.
pub(super) fn check_answers(
    db: &Connection,
    thread: Option<i64>,
    set: &AnswerSet,
    now: Time,
) -> Result<Option<RunId>, StoreError> {
    let thread = thread.ok_or(StoreError::NotFound(Missing::Pending))?;
    let items: Vec<Pending> = set
        .answers
        .iter()
        .map(|answer| find(db, thread, &answer.id).map(|row| row.item))
        .collect::<Result<_, _>>()?;
    let pairs: Vec<(&Answer, &Pending)> = set.answers.iter().zip(&items).collect();
    rules::check_answers(&pairs, now)
}

/// Records answers that passed [`check_answers`].
pub(super) fn record_answers(
    db: &Connection,
    thread: i64,
    set: &AnswerSet,
    run: &RunId,
    now: Time,
) -> Result<(), StoreError> {
    let mut asking_runs = Vec::new();
    for answer in &set.answers {
        let row = find(db, thread, &answer.id)?;
        db.prepare_cached(
            "UPDATE pending SET answer = ?2, answered_by = ?3, answered = ?4, answer_run = ?5 WHERE id = ?1",
        )?
        .execute((row.id, &*answer.body, &*set.by, int(now.0), run.as_str()))?;
        asking_runs.push(row.run);
    }
    for run in asking_runs {
        log::finish_if_all_closed(db, run, now)?;
    }
    Ok(())
}

pub(super) fn check_insert(db: &Connection, run: i64, items: &[NewPending]) -> Result<(), StoreError> {
    for new in items {
        let mut find =
            db.prepare_cached("SELECT answered IS NOT NULL FROM pending WHERE run = ?1 AND pending = ?2")?;
        let is_answered = find.query_row((run, new.id.as_str()), |row| row.get(0)).optional()?;
        new.check_replaces(is_answered == Some(true))?;
    }
    Ok(())
}

pub(super) fn insert(
    db: &Connection,
    thread: i64,
    run: i64,
    items: &[NewPending],
    now: Time,
) -> Result<(), StoreError> {
    for new in items {
        let expires = new.ttl.map(|ttl| int(now.after(ttl).0));
        db.prepare_cached(
            "INSERT INTO pending (thread, run, pending, kind, body, created, expires) \
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7) ON CONFLICT (run, pending) DO UPDATE \
             SET kind = excluded.kind, body = excluded.body, created = excluded.created, expires = excluded.expires",
        )?
        .execute((thread, run, new.id.as_str(), &*new.kind, &*new.body, int(now.0), expires))?;
    }
    Ok(())
}
