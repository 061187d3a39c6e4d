//! Conversion between SQL rows and the types of the model.

use tokio_postgres::Row;

use super::{
    connect::Transaction,
    value::{
        Day, Value, get, get_number, get_optional_text, get_optional_time, get_text, get_time, id, text,
    },
};
use crate::{
    clock::Time,
    error::{Missing, StoreError},
    model::{Fence, Lease, Owner, Run, RunKey, RunStatus, Seq, Thread, ThreadIds},
    rules::{ClaimState, is_lease_live},
};

/// A run with its database ids and its claim.
pub(super) struct RunRow {
    pub(super) id: i64,
    pub(super) thread_id: i64,
    /// The run that has the thread.
    pub(super) leased: Option<i64>,
    pub(super) run: Run,
    /// The number of the state of its thread.
    pub(super) state_seq: u64,
    pub(super) is_claimed: bool,
    /// Expiry of the lease of its holder.
    pub(super) lease_until: Option<Time>,
    /// Lifetime of that lease, in milliseconds.
    ttl: u64,
    pub(super) day: Day,
}

/// The columns for [`RunRow::read`] with their tables.
macro_rules! run_columns {
    () => {
        "r.id, r.thread, t.leased, r.run, t.thread, r.agent, r.status, r.cause, r.created, r.started, r.updated, \
         r.first_retained, h.next_seq, r.kept, h.fence, h.holder, t.upstream_scope, h.claimed, p.lease_until, r.day, p.ttl, \
         t.thread_ids, t.state_seq"
    };
}
pub(super) use run_columns;

/// The number of columns of `run_columns!`.
pub(super) const RUN_COLUMNS: usize = 23;

macro_rules! run_tables {
    () => {
        "agentwire.runs AS r JOIN agentwire.threads AS t ON t.id = r.thread \
         JOIN agentwire.heads AS h ON h.run = r.id LEFT JOIN agentwire.replicas AS p ON p.holder = h.holder"
    };
}
pub(super) use run_tables;

/// The key of a run from the parameters $1 to $4.
macro_rules! key {
    () => {
        "agentwire.key_of($1, $2, $3, $4)"
    };
}
pub(super) use key;

/// The parameters of `key!`.
pub(super) fn key_values<'a>(owner: &'a Owner, name: &'a str) -> [Value<'a>; 4] {
    [text(owner.tenant.as_str()), text(owner.user.as_str()), text(owner.agent.as_str()), text(name)]
}

pub(super) fn get_status(row: &Row, at: usize) -> Result<RunStatus, StoreError> {
    let name: &str = get(row, at)?;
    RunStatus::from_name(name)
        .ok_or_else(|| StoreError::Corrupt(format!("a run has the unknown status `{name}`").into()))
}

pub(super) fn get_thread_ids(row: &Row, at: usize) -> Result<Option<ThreadIds>, StoreError> {
    let name: Option<&str> = get(row, at)?;
    let unknown = |name| StoreError::Corrupt(format!("a thread has ids of the unknown form `{name}`").into());
    name.map(|name| ThreadIds::from_name(name).ok_or_else(|| unknown(name))).transpose()
}

impl RunRow {
    pub(super) fn read(row: &Row) -> Result<Self, StoreError> {
        Ok(Self {
            id: get(row, 0)?,
            thread_id: get(row, 1)?,
            leased: get(row, 2)?,
            run: Run {
                run: get_text(row, 3)?.into(),
                thread: get_text(row, 4)?.into(),
                agent: get_text(row, 5)?,
                upstream_scope: get_optional_text(row, 16)?,
                thread_ids: get_thread_ids(row, 21)?,
                status: get_status(row, 6)?,
                cause: get_optional_text(row, 7)?,
                created: get_time(row, 8)?,
                started: get_optional_time(row, 9)?,
                updated: get_time(row, 10)?,
                first_retained: Seq(get_number(row, 11)?),
                next_seq: Seq(get_number(row, 12)?),
                compacted: get::<&str>(row, 13)? == "compacted",
                fence: Fence(get_number(row, 14)?),
                holder: get_text(row, 15)?.into(),
            },
            state_seq: get_number(row, 22)?,
            is_claimed: get(row, 17)?,
            lease_until: get_optional_time(row, 18)?,
            day: get(row, 19)?,
            ttl: get::<Option<i64>>(row, 20)?.and_then(|ttl| u64::try_from(ttl).ok()).unwrap_or(0),
        })
    }

    pub(super) async fn find(t: &Transaction, owner: &Owner, run: &str) -> Result<Option<Self>, StoreError> {
        let sql = concat!("SELECT ", run_columns!(), " FROM ", run_tables!(), " WHERE r.key = ", key!());
        t.query_first(sql, &key_values(owner, run)).await?.as_ref().map(Self::read).transpose()
    }

    pub(super) async fn get(t: &Transaction, owner: &Owner, run: &str) -> Result<Self, StoreError> {
        Self::find(t, owner, run).await?.ok_or(StoreError::NotFound(Missing::Run))
    }

    pub(super) async fn get_by_id(t: &Transaction, run: i64) -> Result<Self, StoreError> {
        let sql = concat!("SELECT ", run_columns!(), " FROM ", run_tables!(), " WHERE r.id = $1");
        let row = t.query_first(sql, &[id(run)]).await?;
        row.as_ref().map(Self::read).transpose()?.ok_or(StoreError::NotFound(Missing::Run))
    }

    /// Locks the thread of a run, and then the run's head, and reads the run after that: whatever another transaction has
    /// changed meanwhile is visible, and nothing changes until this one ends. Every transaction locks in this order.
    pub(super) async fn lock(t: &Transaction, owner: &Owner, run: &str) -> Result<Self, StoreError> {
        let thread = concat!(
            "SELECT 1 FROM agentwire.threads WHERE id = (SELECT thread FROM agentwire.runs WHERE key = ",
            key!(),
            ") FOR UPDATE"
        );
        let head = concat!(
            "SELECT 1 FROM agentwire.heads WHERE run = (SELECT id FROM agentwire.runs WHERE key = ",
            key!(),
            ") FOR UPDATE"
        );
        let row = concat!("SELECT ", run_columns!(), " FROM ", run_tables!(), " WHERE r.key = ", key!());
        let statements = [thread, head, row].map(|sql| (sql, key_values(owner, run).into()));
        let found = t.pipeline(&statements).await?;
        // Found by its key without a lock, the run may have moved to another agent.
        let row = found.last().and_then(|rows| rows.first()).map(Self::read).transpose()?;
        row.ok_or(StoreError::NotFound(Missing::Run))
    }

    pub(super) fn claim_state(&self, t: &Transaction) -> ClaimState {
        // A server that was down has let leases expire; for the lifetime of a lease after its start, their holders may
        // renew them.
        let grace = t.started.map(|started| Time(started.0.saturating_add(self.ttl)));
        let until = self.lease_until.map(|until| grace.map_or(until, |grace| until.max(grace)));
        self.run.claim_state(self.is_claimed, is_lease_live(until, t.now))
    }

    pub(super) fn lease(&self, t: &Transaction) -> Lease {
        self.run.lease(self.claim_state(t).is_live())
    }
}

/// Waits for other transactions that change a thread, and excludes further ones.
pub(super) async fn lock_thread_id(t: &Transaction, thread: i64) -> Result<(), StoreError> {
    t.query("SELECT 1 FROM agentwire.threads WHERE id = $1 FOR UPDATE", &[id(thread)]).await?;
    Ok(())
}

/// A thread with its database ids.
pub(super) struct ThreadRow {
    pub(super) id: i64,
    /// The run that has the thread.
    pub(super) leased: Option<i64>,
    pub(super) thread: Thread,
}

/// The columns for [`ThreadRow::read`], from `threads`.
macro_rules! thread_columns {
    () => {
        "id, leased, thread, upstream_scope, metadata, created, updated, state_seq, thread_ids"
    };
}
pub(super) use thread_columns;

impl ThreadRow {
    pub(super) fn read(row: &Row) -> Result<Self, StoreError> {
        Ok(Self {
            id: get(row, 0)?,
            leased: get(row, 1)?,
            thread: Thread {
                thread: get_text(row, 2)?.into(),
                upstream_scope: get_optional_text(row, 3)?,
                thread_ids: get_thread_ids(row, 8)?,
                metadata: get_optional_text(row, 4)?,
                created: get_time(row, 5)?,
                updated: get_time(row, 6)?,
                state_seq: get_number(row, 7)?,
            },
        })
    }

    pub(super) async fn find(
        t: &Transaction,
        owner: &Owner,
        thread: &str,
    ) -> Result<Option<Self>, StoreError> {
        let sql = concat!("SELECT ", thread_columns!(), " FROM agentwire.threads WHERE key = ", key!());
        t.query_first(sql, &key_values(owner, thread)).await?.as_ref().map(Self::read).transpose()
    }

    pub(super) async fn get(t: &Transaction, owner: &Owner, thread: &str) -> Result<Self, StoreError> {
        Self::find(t, owner, thread).await?.ok_or(StoreError::NotFound(Missing::Thread))
    }

    /// Like [`find`](Self::find), and excludes other changes of the thread until the transaction ends.
    pub(super) async fn lock(
        t: &Transaction,
        owner: &Owner,
        thread: &str,
    ) -> Result<Option<Self>, StoreError> {
        let sql = concat!(
            "SELECT ",
            thread_columns!(),
            " FROM agentwire.threads WHERE key = ",
            key!(),
            " FOR UPDATE"
        );
        t.query_first(sql, &key_values(owner, thread)).await?.as_ref().map(Self::read).transpose()
    }
}

/// The columns for [`get_run_key`], from `runs AS r`.
macro_rules! run_key {
    () => {
        "r.tenant, r.usr, r.owner_agent, r.run"
    };
}
pub(super) use run_key;

pub(super) fn get_run_key(row: &Row, at: usize) -> Result<RunKey, StoreError> {
    let owner = Owner::new(get_text(row, at)?, get_text(row, at + 1)?, get_text(row, at + 2)?);
    Ok(RunKey { owner, run: get_text(row, at + 3)?.into() })
}
