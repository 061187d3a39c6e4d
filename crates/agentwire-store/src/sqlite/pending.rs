//! Pending items and their answers, in SQL.

use agentwire_core::event::{RunId, ThreadId};
use rusqlite::{Connection, OptionalExtension, Row};

use super::{
    log,
    row::{ThreadRow, get_optional_time, get_time, int},
};
use crate::{
    clock::Time,
    error::{Missing, StoreError},
    model::{Answer, Answered, Answering, NewPending, Owner, Pending, PendingId, Text, Which},
    rules,
};

/// What [`read`] expects, from `pending AS p JOIN runs AS r ON r.id = p.run`.
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
            Some(Answered { body, by, at, run: run.into() })
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
    which: Which,
    now: Time,
) -> Result<Vec<Pending>, StoreError> {
    let thread = ThreadRow::get(db, owner, thread)?;
    // What was answered is most of what there is, in the end, and mostly nobody asks for it.
    let answered_too = match &which {
        Which::Open => false,
        Which::Unanswered(named) => !named.is_empty(),
        Which::All => true,
    };
    let mut list = db.prepare_cached(&format!(
        "SELECT {PENDING} FROM pending AS p JOIN runs AS r ON r.id = p.run \
         WHERE p.thread = ?1 AND (?2 OR p.answered IS NULL) ORDER BY p.id"
    ))?;
    let mut rows = list.query((thread.id, answered_too))?;
    let mut items = Vec::new();
    while let Some(row) = rows.next()? {
        let item = read(row)?.item;
        if which.includes(&item, now) {
            items.push(item);
        }
    }
    Ok(items)
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
    answering: &Answering,
    run: &RunId,
    now: Time,
) -> Result<RunId, StoreError> {
    let thread = ThreadRow::get(db, owner, thread)?;
    if let Some(first) = check_answers(db, Some(thread.id), answering, now)? {
        return Ok(first);
    }
    record_answers(db, thread.id, answering, run, now)?;
    Ok(run.clone())
}

/// Whether the answers can be recorded (`None`) or were before (the run they started).
pub(super) fn check_answers(
    db: &Connection,
    thread: Option<i64>,
    answering: &Answering,
    now: Time,
) -> Result<Option<RunId>, StoreError> {
    let thread = thread.ok_or(StoreError::NotFound(Missing::Pending))?;
    let items: Vec<Pending> = answering
        .answers
        .iter()
        .map(|answer| find(db, thread, &answer.id).map(|row| row.item))
        .collect::<Result<_, _>>()?;
    let pairs: Vec<(&Answer, &Pending)> = answering.answers.iter().zip(&items).collect();
    rules::check_answers(&pairs, now)
}

/// Records answers that were checked.
pub(super) fn record_answers(
    db: &Connection,
    thread: i64,
    answering: &Answering,
    run: &RunId,
    now: Time,
) -> Result<(), StoreError> {
    let mut asked = Vec::new();
    for answer in &answering.answers {
        let row = find(db, thread, &answer.id)?;
        db.prepare_cached(
            "UPDATE pending SET answer = ?2, answered_by = ?3, answered = ?4, answer_run = ?5 WHERE id = ?1",
        )?
        .execute((row.id, &*answer.body, &*answering.by, int(now.0), run.as_str()))?;
        asked.push(row.run);
    }
    for run in asked {
        log::finish_if_nothing_open(db, run, now)?;
    }
    Ok(())
}

pub(super) fn check_put(db: &Connection, run: i64, items: &[NewPending]) -> Result<(), StoreError> {
    for new in items {
        let mut known =
            db.prepare_cached("SELECT answered IS NOT NULL FROM pending WHERE run = ?1 AND pending = ?2")?;
        let answered = known.query_row((run, new.id.as_str()), |row| row.get(0)).optional()?;
        new.check_replaces(answered == Some(true))?;
    }
    Ok(())
}

pub(super) fn put(
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
