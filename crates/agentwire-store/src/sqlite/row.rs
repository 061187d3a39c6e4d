//! Conversion between SQL rows and the types of the model.

use rusqlite::{Connection, OptionalExtension, Row, types::Type};

use crate::{
    clock::Time,
    error::{Missing, StoreError},
    model::{Fence, Lease, Owner, Run, RunKey, RunStatus, Seq, Text, Thread, ThreadIds},
    rules::{ClaimState, is_lease_live},
};

/// A number as an SQL integer, which is signed. Larger numbers never come from this store; saturating puts them behind
/// every stored one.
pub(super) fn int(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// A count or limit as an SQL integer.
pub(super) fn count(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

pub(super) fn get_number(row: &Row<'_>, at: usize) -> rusqlite::Result<u64> {
    let number: i64 = row.get(at)?;
    u64::try_from(number).map_err(|_| rusqlite::Error::IntegralValueOutOfRange(at, number))
}

pub(super) fn get_time(row: &Row<'_>, at: usize) -> rusqlite::Result<Time> {
    get_number(row, at).map(Time)
}

pub(super) fn get_optional_time(row: &Row<'_>, at: usize) -> rusqlite::Result<Option<Time>> {
    Ok(row.get::<_, Option<i64>>(at)?.and_then(|number| u64::try_from(number).ok()).map(Time))
}

pub(super) fn get_status(row: &Row<'_>, at: usize) -> rusqlite::Result<RunStatus> {
    let name: String = row.get(at)?;
    RunStatus::from_name(&name).ok_or_else(|| {
        let unknown = format!("unknown status `{name}`");
        rusqlite::Error::FromSqlConversionFailure(at, Type::Text, unknown.into())
    })
}

fn get_thread_ids(row: &Row<'_>, at: usize) -> rusqlite::Result<Option<ThreadIds>> {
    let name: Option<String> = row.get(at)?;
    let unknown = |name: &str| {
        let unknown = format!("unknown form of ids `{name}`");
        rusqlite::Error::FromSqlConversionFailure(at, Type::Text, unknown.into())
    };
    name.map(|name| ThreadIds::from_name(&name).ok_or_else(|| unknown(&name))).transpose()
}

/// A run with its database ids and claim columns.
pub(super) struct RunRow {
    pub(super) id: i64,
    pub(super) thread_id: i64,
    /// The run that has the thread.
    pub(super) leased: Option<i64>,
    pub(super) run: Run,
    /// True if its holder has a claim on it.
    is_claimed: bool,
    /// The expiry of its holder's lease.
    lease_until: Option<Time>,
}

/// SQL expression for the end of a log. `runs.next_seq` is only current when the status changes; in between, the end
/// follows from the log.
macro_rules! next_seq {
    () => {
        "max(r.next_seq, coalesce((SELECT l.seq + l.events FROM log AS l WHERE l.run = r.id \
           ORDER BY l.seq DESC LIMIT 1), 0))"
    };
}
pub(super) use next_seq;

/// The columns for [`RunRow::read`], from `runs AS r JOIN threads AS t ON t.id = r.thread`.
pub(super) const RUN: &str = concat!(
    "r.id, r.thread, t.leased, r.run, t.thread, r.agent, r.status, r.cause, r.created, ",
    "r.started, r.updated, r.first_retained, ",
    next_seq!(),
    ", r.kept, r.fence, r.holder, r.claimed IS NOT NULL, \
     (SELECT p.lease_until FROM replicas AS p WHERE p.holder = r.holder), t.upstream_scope, t.thread_ids"
);

impl RunRow {
    pub(super) fn read(row: &Row<'_>) -> rusqlite::Result<Self> {
        Ok(Self {
            id: row.get(0)?,
            thread_id: row.get(1)?,
            leased: row.get(2)?,
            run: Run {
                run: row.get::<_, Text>(3)?.into(),
                thread: row.get::<_, Text>(4)?.into(),
                agent: row.get(5)?,
                upstream_scope: row.get(18)?,
                thread_ids: get_thread_ids(row, 19)?,
                status: get_status(row, 6)?,
                cause: row.get(7)?,
                created: get_time(row, 8)?,
                started: get_optional_time(row, 9)?,
                updated: get_time(row, 10)?,
                first_retained: Seq(get_number(row, 11)?),
                next_seq: Seq(get_number(row, 12)?),
                compacted: row.get_ref(13)?.as_str()? == "compacted",
                fence: Fence(get_number(row, 14)?),
                holder: row.get::<_, Text>(15)?.into(),
            },
            is_claimed: row.get(16)?,
            lease_until: get_optional_time(row, 17)?,
        })
    }

    pub(super) fn find(db: &Connection, owner: &Owner, run: &str) -> Result<Option<Self>, StoreError> {
        let mut find = db.prepare_cached(&format!(
            "SELECT {RUN} FROM runs AS r JOIN threads AS t ON t.id = r.thread \
             WHERE r.tenant = ?1 AND r.user = ?2 AND r.run = ?3 AND r.owner_agent = ?4"
        ))?;
        let key = (owner.tenant.as_str(), owner.user.as_str(), run, owner.agent.as_str());
        Ok(find.query_row(key, Self::read).optional()?)
    }

    pub(super) fn get(db: &Connection, owner: &Owner, run: &str) -> Result<Self, StoreError> {
        Self::find(db, owner, run)?.ok_or(StoreError::NotFound(Missing::Run))
    }

    pub(super) fn get_by_id(db: &Connection, id: i64) -> Result<Self, StoreError> {
        let mut find = db.prepare_cached(&format!(
            "SELECT {RUN} FROM runs AS r JOIN threads AS t ON t.id = r.thread WHERE r.id = ?1"
        ))?;
        find.query_row([id], Self::read).optional()?.ok_or(StoreError::NotFound(Missing::Run))
    }

    pub(super) fn claim_state(&self, now: Time) -> ClaimState {
        self.run.claim_state(self.is_claimed, is_lease_live(self.lease_until, now))
    }

    /// The lease that the run gives its thread.
    pub(super) fn lease(&self, now: Time) -> Lease {
        self.run.lease(self.claim_state(now).is_live())
    }
}

/// A thread with its database ids.
pub(super) struct ThreadRow {
    pub(super) id: i64,
    /// The run that has the thread.
    pub(super) leased: Option<i64>,
    pub(super) thread: Thread,
}

/// The columns for [`ThreadRow::read`], from `threads`.
pub(super) const THREAD: &str =
    "id, leased, thread, upstream_scope, metadata, created, updated, state_seq, thread_ids";

impl ThreadRow {
    pub(super) fn read(row: &Row<'_>) -> rusqlite::Result<Self> {
        Ok(Self {
            id: row.get(0)?,
            leased: row.get(1)?,
            thread: Thread {
                thread: row.get::<_, Text>(2)?.into(),
                upstream_scope: row.get(3)?,
                thread_ids: get_thread_ids(row, 8)?,
                metadata: row.get(4)?,
                created: get_time(row, 5)?,
                updated: get_time(row, 6)?,
                state_seq: get_number(row, 7)?,
            },
        })
    }

    pub(super) fn find(db: &Connection, owner: &Owner, thread: &str) -> Result<Option<Self>, StoreError> {
        let mut find = db.prepare_cached(&format!(
            "SELECT {THREAD} FROM threads \
             WHERE tenant = ?1 AND user = ?2 AND thread = ?3 AND owner_agent = ?4"
        ))?;
        let key = (owner.tenant.as_str(), owner.user.as_str(), thread, owner.agent.as_str());
        Ok(find.query_row(key, Self::read).optional()?)
    }

    pub(super) fn get(db: &Connection, owner: &Owner, thread: &str) -> Result<Self, StoreError> {
        Self::find(db, owner, thread)?.ok_or(StoreError::NotFound(Missing::Thread))
    }
}

/// The columns for [`get_run_key`], from `runs`.
macro_rules! run_key {
    () => {
        "tenant, user, owner_agent, run"
    };
}
pub(super) use run_key;

pub(super) fn get_run_key(row: &Row<'_>, at: usize) -> rusqlite::Result<RunKey> {
    let (tenant, user, agent): (Text, Text, Text) = (row.get(at)?, row.get(at + 1)?, row.get(at + 2)?);
    Ok(RunKey { owner: Owner::new(tenant, user, agent), run: row.get::<_, Text>(at + 3)?.into() })
}
