//! Runs, claims and leases in SQL.
//!
//! Every write locks the thread first and then the heads of its runs, so that a read followed by a write is a
//! compare-and-set, also between gateways.

use std::{ops::ControlFlow, time::Duration};

use agentwire_core::event::{RunId, ThreadId};

use super::{
    connect::{Database, Lane, Transaction, clock},
    maintenance, pending,
    row::{
        RUN_COLUMNS, RunRow, ThreadRow, get_run_key, get_thread_ids, key, key_values, run_columns, run_key,
        run_tables,
    },
    server::timeline,
    threads,
    value::{
        Day, Value, count, get, get_number, get_optional_text, get_text, get_time, id, int, optional_text,
        text,
    },
};
use crate::{
    error::{Missing, StoreError},
    model::{
        Acquire, Durability, Fence, Holder, Lease, NewRun, NewThread, Owner, Page, PageToken, Run, RunKey,
        RunStatus, Seq, Start, Text, ThreadIds,
    },
    rules::{Obstacle, REOPENED, decide_start, exceeded, obstacle, page},
};

/// The next fencing token of a run. The epoch is its highest part and the number of the run the next one: neither a run
/// that was deleted and created again nor one that lost its last claims in a failover gets a token twice.
macro_rules! next_fence {
    ($old:literal, $epoch:literal, $run:literal) => {
        concat!("greatest(", $old, ", (", $epoch, " << 52) + (", $run, " << 16))")
    };
}

/// The age at which the row of an expired lease is deleted; a missing one is as good.
const FORGOTTEN: Duration = Duration::from_secs(3600);

async fn has_lease(t: &Transaction, holder: &Holder) -> Result<bool, StoreError> {
    let live = "SELECT 1 FROM agentwire.replicas WHERE holder = $1 AND lease_until > $2";
    Ok(t.query_first(live, &[text(holder.as_str()), int(t.now.0)]).await?.is_some())
}

/// Starts a run in one statement if nothing stands before it: no answers, no quotas, a free thread, a new id. `None` if
/// something does; nothing was changed then, and [`start`] decides.
pub(super) async fn start_at_once(
    database: &Database,
    owner: &Owner,
    new: &NewRun,
) -> Result<Option<(Run, i64, Day)>, StoreError> {
    let has_quotas = !new.quotas.user.is_empty() || !new.quotas.tenant.is_empty();
    if new.answers.is_some() || has_quotas || database.synchronous_commit(Durability::Os).is_some() {
        return Ok(None);
    }
    // The timeline first; see `Server::timeline`.
    let timeline = Value::Int(database.server.timeline().map(i64::from));
    let epoch = database.server.epoch();
    let [tenant, user, agent, run] = key_values(owner, &new.run);
    let values = [
        tenant,
        user,
        agent,
        run,
        text(&new.thread),
        text(&new.agent),
        optional_text(new.thread_ids.map(ThreadIds::as_str)),
        optional_text(new.cause.as_deref()),
        text(new.holder.as_str()),
        text(&new.input),
        int(u64::from(epoch)),
        timeline,
        database.clocks.parameter(),
    ];
    let statement = "SELECT id, fence, now, scope, thread_ids, day \
         FROM agentwire.start_run($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)";
    let rows = database.query(Lane::General, statement, &values).await?;
    let Some(row) = rows.first().filter(|row| !matches!(get::<Option<i64>>(row, 0), Ok(None))) else {
        return Ok(None);
    };
    let now = get_time(row, 2)?;
    let run = Run {
        run: new.run.clone(),
        thread: new.thread.clone(),
        agent: new.agent.clone(),
        upstream_scope: get_optional_text(row, 3)?,
        thread_ids: get_thread_ids(row, 4)?,
        status: RunStatus::Running,
        cause: new.cause.clone(),
        created: now,
        started: Some(now),
        updated: now,
        first_retained: Seq(0),
        next_seq: Seq(0),
        compacted: false,
        fence: Fence(get_number(row, 1)?),
        holder: new.holder.clone(),
    };
    Ok(Some((run, get(row, 0)?, get(row, 5)?)))
}

pub(super) async fn start(t: &Transaction, owner: &Owner, new: &NewRun) -> Result<Start, StoreError> {
    lock_quotas(t, owner, new).await?;
    let mut thread = ThreadRow::lock(t, owner, &new.thread).await?;
    let is_new_thread = thread.is_none();
    if let Some(existing) = RunRow::find(t, owner, &new.run).await? {
        return Ok(Start::Exists(existing.run));
    }
    if let Some(answers) = &new.answers
        && let Some(first) =
            pending::check_answers(t, thread.as_ref().map(|thread| thread.id), answers).await?
    {
        return Ok(Start::Answered(first));
    }
    if is_new_thread {
        // Before the thread is inserted: a refused start leaves none, and nothing stands before its first run.
        if let Some(refused) = over_quota(t, owner, new, true).await? {
            return Ok(refused);
        }
        let created = NewThread { thread: new.thread.clone(), thread_ids: new.thread_ids, metadata: None };
        threads::insert(t, owner, &created).await?;
        // Another process may have inserted it at the same time, and started a run in it.
        thread = ThreadRow::lock(t, owner, &new.thread).await?;
        if let Some(existing) = RunRow::find(t, owner, &new.run).await? {
            return Ok(Start::Exists(existing.run));
        }
    }
    let thread = thread.ok_or(StoreError::NotFound(Missing::Thread))?;
    let lease = threads::lease(t, &thread).await?;
    let queue = queue_before(t, thread.id, i64::MAX).await?;
    let status = match decide_start(lease, &queue, new.mode) {
        ControlFlow::Continue(status) => status,
        ControlFlow::Break(refused) => return Ok(refused),
    };
    if !is_new_thread && let Some(refused) = over_quota(t, owner, new, false).await? {
        return Ok(refused);
    }
    if !has_lease(t, &new.holder).await? {
        return Err(StoreError::Fenced);
    }
    if let Some(answers) = &new.answers {
        pending::record_answers(t, thread.id, answers, &new.run).await?;
    }
    let [tenant, user, agent, run] = key_values(owner, &new.run);
    let is_running = status == RunStatus::Running;
    let created = t.query_first(
        concat!(
            "WITH r AS (INSERT INTO agentwire.runs (key, tenant, usr, owner_agent, run, thread, agent, status, cause, \
               created, started, updated, day) \
             VALUES (",
            key!(),
            ", $1, $2, $3, $4, $5, $6, $7, $8, $9, CASE WHEN $10 THEN $9 END, $9, \
               (to_timestamp($9 / 1000.0) AT TIME ZONE 'UTC')::date) RETURNING id), \
             h AS (INSERT INTO agentwire.heads (run, fence, claimed, holder) \
               SELECT id, ($11 << 52) + (id << 16), true, $12 FROM r), \
             i AS (INSERT INTO agentwire.inputs (run, body) SELECT id, $13 FROM r), \
             t AS (UPDATE agentwire.threads SET updated = $9, leased = CASE WHEN $10 THEN r.id ELSE leased END \
               FROM r WHERE threads.id = $5) \
             SELECT id FROM r"
        ),
        &[
            tenant,
            user,
            agent,
            run,
            id(thread.id),
            text(&new.agent),
            text(status.as_str()),
            optional_text(new.cause.as_deref()),
            int(t.now.0),
            Value::Bool(is_running),
            int(u64::from(t.epoch)),
            text(new.holder.as_str()),
            text(&new.input),
        ],
    ).await?;
    let row = created.ok_or_else(|| StoreError::Corrupt("an insert has no result".into()))?;
    Ok(Start::Created(RunRow::get_by_id(t, get(&row, 0)?).await?.run))
}

/// Excludes other starts of the same user or tenant while its quotas are counted. Before all other locks.
async fn lock_quotas(t: &Transaction, owner: &Owner, new: &NewRun) -> Result<(), StoreError> {
    let (tenant, user) = (owner.tenant.as_str(), owner.user.as_str());
    if !new.quotas.tenant.is_empty() {
        t.advisory_lock("quota of tenant", tenant).await
    } else if !new.quotas.user.is_empty() {
        t.advisory_lock("quota of user", &format!("{}:{tenant}{user}", tenant.len())).await
    } else {
        Ok(())
    }
}

async fn over_quota(
    t: &Transaction,
    owner: &Owner,
    new: &NewRun,
    is_new_thread: bool,
) -> Result<Option<Start>, StoreError> {
    for (is_tenant, quota) in [(false, &new.quotas.user), (true, &new.quotas.tenant)] {
        if quota.is_empty() {
            continue;
        }
        let user = (!is_tenant).then_some(&owner.user);
        let usage = maintenance::usage(t, &owner.tenant, user, quota.bytes.is_some()).await?;
        if let Some(quota) = exceeded(quota, &usage, new.input.len(), is_new_thread) {
            return Ok(Some(Start::OverQuota { is_tenant, quota }));
        }
    }
    Ok(None)
}

/// The claims of the queued runs of a thread before `run`, in queue order.
async fn queue_before(t: &Transaction, thread: i64, run: i64) -> Result<Vec<Lease>, StoreError> {
    let rows = t
        .query(
            concat!(
                "SELECT ",
                run_columns!(),
                " FROM ",
                run_tables!(),
                " WHERE r.thread = $1 AND r.id < $2 AND r.status = 'queued' ORDER BY r.id"
            ),
            &[id(thread), id(run)],
        )
        .await?;
    rows.iter().map(|row| Ok(RunRow::read(row)?.lease(t))).collect()
}

pub(super) async fn input(t: &Transaction, owner: &Owner, run: &RunId) -> Result<Option<Text>, StoreError> {
    let sql = concat!(
        "SELECT i.body FROM agentwire.runs AS r LEFT JOIN agentwire.inputs AS i ON i.run = r.id WHERE r.key = ",
        key!()
    );
    let row = t.query_first(sql, &key_values(owner, run)).await?.ok_or(StoreError::NotFound(Missing::Run))?;
    get_optional_text(&row, 0)
}

pub(super) async fn list(
    t: &Transaction,
    owner: &Owner,
    thread: &ThreadId,
    before: Option<PageToken>,
    limit: usize,
) -> Result<Page<Run>, StoreError> {
    let thread = ThreadRow::get(t, owner, thread).await?;
    let below = before.map_or(i64::MAX, |token| i64::try_from(token.0).unwrap_or(i64::MAX));
    let rows = t
        .query(
            concat!(
                "SELECT ",
                run_columns!(),
                " FROM ",
                run_tables!(),
                " WHERE r.thread = $1 AND r.id < $2 ORDER BY r.id DESC LIMIT $3"
            ),
            &[id(thread.id), id(below), count(limit.saturating_add(1))],
        )
        .await?;
    page(rows.iter().map(|row| Ok((get_number(row, 0)?, RunRow::read(row)?.run))), limit)
}

/// Gives a queued run its thread in one statement if nothing stands before it; `None` if something does, and [`acquire`]
/// decides.
pub(super) async fn acquire_at_once(
    database: &Database,
    owner: &Owner,
    run: &RunId,
    fence: Fence,
) -> Result<Option<Lease>, StoreError> {
    if database.synchronous_commit(Durability::Os).is_some() {
        return Ok(None);
    }
    let timeline = Value::Int(database.server.timeline().map(i64::from));
    let epoch = database.server.epoch();
    let [tenant, user, agent, name] = key_values(owner, run);
    let values = [
        tenant,
        user,
        agent,
        name,
        int(fence.0),
        int(u64::from(epoch)),
        timeline,
        database.clocks.parameter(),
    ];
    let statement = "SELECT fence, holder, thread FROM agentwire.acquire_run($1, $2, $3, $4, $5, $6, $7, $8)";
    let rows = database.query(Lane::General, statement, &values).await?;
    let Some(row) = rows.first().filter(|row| !matches!(get::<Option<i64>>(row, 0), Ok(None))) else {
        return Ok(None);
    };
    Ok(Some(Lease {
        thread: get_text(row, 2)?.into(),
        run: run.clone(),
        fence: Fence(get_number(row, 0)?),
        holder: get_text(row, 1)?.into(),
        live: true,
    }))
}

pub(super) async fn acquire(
    t: &Transaction,
    owner: &Owner,
    run: &RunId,
    fence: Fence,
) -> Result<Acquire, StoreError> {
    let row = RunRow::lock(t, owner, run).await?;
    row.claim_state(t).check_acquire(fence)?;
    let queue = queue_before(t, row.thread_id, row.id).await?;
    let lease = match row.leased {
        Some(leased) => Some(RunRow::get_by_id(t, leased).await?.lease(t)),
        None => None,
    };
    match obstacle(lease, queue.first()) {
        Some(Obstacle::Held(lease)) => return Ok(Acquire::Held(lease)),
        Some(Obstacle::Orphan(run)) => return Ok(Acquire::Orphan(run)),
        None => {}
    }
    t.query(
        concat!(
            "WITH h AS (UPDATE agentwire.heads SET fence = ",
            next_fence!("fence + 1", "$4", "$1"),
            " WHERE run = $1), \
             r AS (UPDATE agentwire.runs SET status = 'running', started = $3, updated = $3 WHERE id = $1) \
             UPDATE agentwire.threads SET leased = $1, updated = $3 WHERE id = $2"
        ),
        &[id(row.id), id(row.thread_id), int(t.now.0), int(u64::from(t.epoch))],
    )
    .await?;
    Ok(Acquire::Granted(RunRow::get_by_id(t, row.id).await?.lease(t)))
}

macro_rules! renew_statement {
    ($server:expr) => {
        concat!(
            "WITH c AS (SELECT coalesce($3, ",
            clock!(),
            ") AS now), \
             b AS (SELECT 1 FROM agentwire.replicas AS p, c WHERE p.holder = $1 AND p.lease_until > c.now), \
             u AS (INSERT INTO agentwire.replicas (holder, lease_until, ttl) SELECT $1, c.now + $2, $2 FROM c \
               ON CONFLICT (holder) DO UPDATE SET lease_until = excluded.lease_until, ttl = excluded.ttl), \
             s AS (UPDATE agentwire.replicas AS p SET lease_until = c.now + p.ttl FROM c WHERE p.holder IN \
               (SELECT o.holder FROM agentwire.replicas AS o, c WHERE o.lease_until - o.ttl > c.now AND o.holder <> $1 \
                FOR UPDATE OF o SKIP LOCKED)), \
             d AS (DELETE FROM agentwire.replicas WHERE holder IN \
               (SELECT o.holder FROM agentwire.replicas AS o, c WHERE o.lease_until < c.now - $4 AND o.holder <> $1 \
                FOR UPDATE OF o SKIP LOCKED)) \
             SELECT EXISTS (SELECT 1 FROM b), c.now, ",
            $server,
            " FROM c"
        )
    };
}

const RENEW: &str = renew_statement!("0::bigint, 0");
const RENEW_AND_IDENTIFY: &str =
    renew_statement!(concat!("(pg_control_system()).system_identifier, ", timeline!()));

/// Result of a renewal.
pub(super) struct Renewed {
    /// True if the lease was live before.
    pub(super) was_live: bool,
    /// True if the server is another one than before, or has another timeline.
    pub(super) has_server_changed: bool,
}

/// Renews a lease in one statement. Also shortens leases that end later than their lifetime from now, and deletes old ones;
/// locked rows are left to the next call, because their holders renew them right now.
pub(super) async fn renew(
    database: &Database,
    holder: &Holder,
    ttl: Duration,
) -> Result<Renewed, StoreError> {
    let millis = |time: Duration| Value::Int(Some(i64::try_from(time.as_millis()).unwrap_or(i64::MAX)));
    let values = [text(holder.as_str()), millis(ttl), database.clocks.parameter(), millis(FORGOTTEN)];
    let known = database.server.identity();
    let statement = if known.is_some() { RENEW_AND_IDENTIFY } else { RENEW };
    let rows = database.query(Lane::Control, statement, &values).await?;
    let row = rows.first().ok_or(StoreError::Closed)?;
    database.clocks.measured(get_time(row, 1)?);
    let found = (get(row, 2)?, get(row, 3)?);
    Ok(Renewed { was_live: get(row, 0)?, has_server_changed: known.is_some_and(|known| known != found) })
}

pub(super) async fn retire(t: &Transaction, holder: &Holder) -> Result<(), StoreError> {
    t.query("DELETE FROM agentwire.replicas WHERE holder = $1", &[text(holder.as_str())]).await?;
    Ok(())
}

pub(super) async fn release(
    t: &Transaction,
    owner: &Owner,
    run: &RunId,
    fence: Fence,
) -> Result<(), StoreError> {
    let row = RunRow::lock(t, owner, run).await?;
    row.claim_state(t).check_release(fence)?;
    t.query("UPDATE agentwire.heads SET claimed = false WHERE run = $1", &[id(row.id)]).await?;
    Ok(())
}

pub(super) async fn lease(
    t: &Transaction,
    owner: &Owner,
    thread: &ThreadId,
) -> Result<Option<Lease>, StoreError> {
    let sql = concat!(
        "SELECT ",
        run_columns!(),
        " FROM ",
        run_tables!(),
        " WHERE t.key = ",
        key!(),
        " AND r.id = t.leased"
    );
    match t.query_first(sql, &key_values(owner, thread)).await? {
        Some(row) => Ok(Some(RunRow::read(&row)?.lease(t))),
        None => ThreadRow::get(t, owner, thread).await.map(|_| None),
    }
}

pub(super) async fn orphans(t: &Transaction, limit: usize) -> Result<Vec<(RunKey, Run)>, StoreError> {
    let rows = t.query(
        concat!(
            "SELECT ",
            run_columns!(),
            ", ",
            run_key!(),
            " FROM ",
            run_tables!(),
            " WHERE r.status IN ('queued', 'running', 'paused') \
               AND (NOT h.claimed OR p.lease_until IS NULL OR (p.lease_until <= $1 AND coalesce($3 + p.ttl <= $1, true))) \
             ORDER BY r.id LIMIT $2"
        ),
        &[
            int(t.now.0),
            count(limit),
            Value::Int(t.started.map(|started| i64::try_from(started.0).unwrap_or(i64::MAX))),
        ],
    ).await?;
    rows.iter().map(|row| Ok((get_run_key(row, RUN_COLUMNS)?, RunRow::read(row)?.run))).collect()
}

pub(super) async fn claimed(t: &Transaction, holder: &Holder) -> Result<Vec<RunKey>, StoreError> {
    let sql = concat!(
        "SELECT ",
        run_key!(),
        " FROM agentwire.heads AS h JOIN agentwire.runs AS r ON r.id = h.run \
         WHERE h.holder = $1 AND h.claimed AND r.status IN ('queued', 'running', 'paused') ORDER BY r.id"
    );
    let rows = t.query(sql, &[text(holder.as_str())]).await?;
    rows.iter().map(|row| get_run_key(row, 0)).collect()
}

pub(super) async fn any_live(t: &Transaction) -> Result<bool, StoreError> {
    let any = "SELECT 1 FROM agentwire.runs WHERE status IN ('queued', 'running', 'paused') LIMIT 1";
    Ok(t.query_first(any, &[]).await?.is_some())
}

/// Claims an orphan in one statement; `None` if it may not be claimed, and [`take_over`] tells why.
pub(super) async fn take_over_at_once(
    database: &Database,
    key: &RunKey,
    seen: Fence,
    holder: &Holder,
) -> Result<Option<Run>, StoreError> {
    if database.synchronous_commit(Durability::Os).is_some() {
        return Ok(None);
    }
    // The timeline first; see `Server::timeline`.
    let timeline = Value::Int(database.server.timeline().map(i64::from));
    let epoch = database.server.epoch();
    let started = database.started().map(|started| i64::try_from(started.0).unwrap_or(i64::MAX));
    let [tenant, user, agent, run] = key_values(&key.owner, &key.run);
    let values = [
        tenant,
        user,
        agent,
        run,
        int(seen.0),
        text(holder.as_str()),
        int(u64::from(epoch)),
        timeline,
        Value::Int(started),
        database.clocks.parameter(),
    ];
    let statement = "SELECT * FROM agentwire.take_over_run($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)";
    let rows = database.query(Lane::General, statement, &values).await?;
    rows.first().map(|row| Ok(RunRow::read(row)?.run)).transpose()
}

pub(super) async fn take_over(
    t: &Transaction,
    key: &RunKey,
    seen: Fence,
    holder: &Holder,
) -> Result<Run, StoreError> {
    let row = RunRow::lock(t, &key.owner, &key.run).await?;
    row.run.check_take_over(row.claim_state(t), seen, holder)?;
    if !has_lease(t, holder).await? {
        return Err(StoreError::Fenced);
    }
    let leased = match row.leased {
        Some(leased) if leased == row.id => Some(row.run.run.clone()),
        Some(leased) => Some(RunRow::get_by_id(t, leased).await?.run.run),
        None => None,
    };
    if row.run.regains_thread(leased.as_ref()) {
        t.query("UPDATE agentwire.threads SET leased = $2 WHERE id = $1", &[id(row.thread_id), id(row.id)])
            .await?;
    }
    t.query(
        concat!(
            "WITH c AS (UPDATE agentwire.commands SET taken = false, deadline = greatest(deadline, $4) \
               WHERE run = $1 AND reply IS NULL AND taken) \
             UPDATE agentwire.heads SET fence = ",
            next_fence!("fence + 1", "$3", "$1"),
            ", holder = $2, claimed = true WHERE run = $1"
        ),
        &[id(row.id), text(holder.as_str()), int(u64::from(t.epoch)), int(t.now.after(REOPENED).0)],
    )
    .await?;
    Ok(RunRow::get_by_id(t, row.id).await?.run)
}
