//! Commands and readers in SQL.

use std::{
    collections::BTreeSet,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio_postgres::Row;

use super::{
    connect::{Database, Lane, Transaction, clock},
    row::{get_run_key, get_status, key, key_values, run_key},
    value::{Value, get, get_number, get_optional_text, get_text, get_time, id, int, text},
};
use crate::{
    clock::Time,
    error::{Missing, StoreError},
    model::{CommandId, Delivery, Durability, Fence, Holder, RunKey, TakenCommand},
    rules::{self, ABANDONED},
};

/// The number of a new command and its deadline. Both are known before it is stored, so that a store whose outcome is unknown
/// can be looked up, and is never taken late.
pub(super) async fn next_id(
    database: &Database,
    patience: Duration,
) -> Result<(CommandId, Time), StoreError> {
    let statement = concat!(
        "SELECT nextval(pg_get_serial_sequence('agentwire.commands', 'id')), coalesce($1, ",
        clock!(),
        ")"
    );
    let rows = database.query(Lane::General, statement, &[database.clocks.parameter()]).await?;
    let row = rows.first().ok_or(StoreError::Closed)?;
    Ok((CommandId(get_number(row, 0)?), get_time(row, 1)?.after(patience)))
}

/// Adds a command, and removes those whose senders died.
pub(super) async fn send(
    database: &Database,
    run: &RunKey,
    body: &str,
    command: CommandId,
    deadline: Time,
) -> Result<(), StoreError> {
    let abandoned = Value::Int(Some(i64::try_from(ABANDONED.as_millis()).unwrap_or(i64::MAX)));
    let [tenant, user, agent, name] = key_values(&run.owner, &run.run);
    let rows = database
        .write(
            Durability::Os,
            concat!(
                "WITH d AS (DELETE FROM agentwire.commands WHERE id IN \
                   (SELECT o.id FROM agentwire.commands AS o WHERE o.deadline <= coalesce($9, ",
                clock!(),
                ") - $8 LIMIT 100 FOR UPDATE OF o SKIP LOCKED)) \
                 INSERT INTO agentwire.commands (id, run, body, deadline) OVERRIDING SYSTEM VALUE \
                   SELECT $6, r.id, $5, $7 FROM agentwire.runs AS r WHERE r.key = ",
                key!(),
                " RETURNING id"
            ),
            &[
                tenant,
                user,
                agent,
                name,
                text(body),
                int(command.0),
                int(deadline.0),
                abandoned,
                database.clocks.parameter(),
            ],
        )
        .await?;
    rows.first().map(|_| ()).ok_or(StoreError::NotFound(Missing::Run))
}

/// Removes a command.
pub(super) async fn remove(database: &Database, command: CommandId) -> Result<(), StoreError> {
    let statement = "DELETE FROM agentwire.commands WHERE id = $1";
    database.write(Durability::Os, statement, &[int(command.0)]).await.map(|_| ())
}

/// The result of a command; `None` while it is waited for. With `settle`, a command that has a result is removed, under a lock:
/// another process may take it at the same moment.
pub(super) async fn result_of(
    t: &Transaction,
    command: CommandId,
    settle: bool,
) -> Result<Option<Delivery>, StoreError> {
    let sql = if settle {
        "SELECT c.reply, c.taken, c.deadline, r.status FROM agentwire.commands AS c \
         JOIN agentwire.runs AS r ON r.id = c.run WHERE c.id = $1 FOR UPDATE OF c"
    } else {
        "SELECT c.reply, c.taken, c.deadline, r.status FROM agentwire.commands AS c \
         JOIN agentwire.runs AS r ON r.id = c.run WHERE c.id = $1"
    };
    let row = t.query_first(sql, &[int(command.0)]).await?.ok_or(StoreError::NotFound(Missing::Run))?;
    let (reply, is_taken, deadline) = (get_optional_text(&row, 0)?, get(&row, 1)?, get_time(&row, 2)?);
    let has_ended = !get_status(&row, 3)?.is_live();
    let result = rules::delivery(reply.as_ref(), is_taken, has_ended, deadline <= t.now);
    if settle && result.is_some() {
        t.query("DELETE FROM agentwire.commands WHERE id = $1", &[int(command.0)]).await?;
    }
    Ok(result)
}

/// The reasons for a gateway to look for commands.
pub(super) struct Look {
    pub(super) has_runs: bool,
    pub(super) has_commands: bool,
}

/// Two flags: a holder has runs, and there are open commands to them.
pub(super) async fn look(t: &Transaction, holder: &Holder) -> Result<Look, StoreError> {
    let row = t
        .query_first(
            "SELECT EXISTS (SELECT 1 FROM agentwire.heads WHERE holder = $1 AND claimed), \
           EXISTS (SELECT 1 FROM agentwire.commands AS c JOIN agentwire.heads AS h ON h.run = c.run \
             WHERE NOT c.taken AND c.deadline > $2 AND h.holder = $1 AND h.claimed)",
            &[text(holder.as_str()), int(t.now.0)],
        )
        .await?;
    let row = row.ok_or(StoreError::Closed)?;
    Ok(Look { has_runs: get(&row, 0)?, has_commands: get(&row, 1)? })
}

/// Commands that a holder is about to take. Those of a call whose answer was lost may be taken: nobody else looks for them.
#[derive(Debug, Default)]
pub(super) struct Unconfirmed(Mutex<BTreeSet<i64>>);

impl Unconfirmed {
    fn ids(&self) -> MutexGuard<'_, BTreeSet<i64>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.ids().is_empty()
    }
}

/// Takes the open commands to the runs of a holder, in the order in which they were sent.
pub(super) async fn take(
    database: &Database,
    holder: &Holder,
    unconfirmed: &Unconfirmed,
) -> Result<Vec<TakenCommand>, StoreError> {
    let open = database
        .query(
            Lane::General,
            concat!(
                "SELECT o.id FROM agentwire.commands AS o JOIN agentwire.heads AS h ON h.run = o.run \
                 WHERE NOT o.taken AND o.deadline > coalesce($2, ",
                clock!(),
                ") AND h.holder = $1 AND h.claimed"
            ),
            &[text(holder.as_str()), database.clocks.parameter()],
        )
        .await?;
    let open: Vec<i64> = open.iter().map(|row| get(row, 0)).collect::<Result<_, _>>()?;
    let earlier: Vec<i64> = {
        let mut ids = unconfirmed.ids();
        let earlier = ids.iter().copied().collect();
        ids.extend(&open);
        earlier
    };
    let rows = database
        .write(
            Durability::Os,
            concat!(
                // A take-over locks the head of the run, so that it comes before this statement, which then finds another
                // holder, or after it, and opens the command again. Appends do not wait for this lock.
                "UPDATE agentwire.commands AS c SET taken = true FROM agentwire.runs AS r, \
                   (SELECT o.id, h.fence FROM agentwire.commands AS o JOIN agentwire.runs AS q ON q.id = o.run \
                      JOIN agentwire.heads AS h ON h.run = o.run \
                    WHERE o.id = ANY($3) AND NOT o.taken AND o.deadline > coalesce($2, ",
                clock!(),
                ") AND h.holder = $1 AND h.claimed AND q.status IN ('queued', 'running', 'paused') \
                    ORDER BY o.id FOR KEY SHARE OF h FOR UPDATE OF o) AS open \
                 WHERE c.id = open.id AND r.id = c.run RETURNING c.id, c.body, open.fence, ",
                run_key!()
            ),
            &[text(holder.as_str()), database.clocks.parameter(), Value::Ints(&open)],
        )
        .await?;
    let mut taken = rows.iter().map(taken_command).collect::<Result<Vec<_>, _>>()?;
    if !earlier.is_empty() {
        let sql = concat!(
            "SELECT c.id, c.body, h.fence, ",
            run_key!(),
            " FROM agentwire.commands AS c JOIN agentwire.runs AS r ON r.id = c.run \
             JOIN agentwire.heads AS h ON h.run = c.run \
             WHERE c.id = ANY($2) AND c.taken AND c.reply IS NULL AND h.holder = $1"
        );
        let values = [text(holder.as_str()), Value::Ints(&earlier)];
        let rows = database.query(Lane::General, sql, &values).await?;
        let found = rows.iter().map(taken_command).collect::<Result<Vec<_>, _>>()?;
        taken.extend(found);
    }
    taken.sort_unstable_by_key(|command| command.id.0);
    taken.dedup_by_key(|command| command.id.0);
    // From here on the caller has them.
    unconfirmed.ids().retain(|id| !open.contains(id) && !earlier.contains(id));
    Ok(taken)
}

fn taken_command(row: &Row) -> Result<TakenCommand, StoreError> {
    Ok(TakenCommand {
        id: CommandId(get_number(row, 0)?),
        body: get_text(row, 1)?,
        fence: Fence(get_number(row, 2)?),
        run: get_run_key(row, 3)?,
    })
}

/// The reply in a transaction that has locked the head of the run.
pub(super) const REPLY: &str =
    "UPDATE agentwire.commands SET taken = true, reply = coalesce(reply, $2) WHERE id = $1";

/// Replies to a command under a fencing token; see [`take`] for the lock.
pub(super) async fn reply(
    database: &Database,
    command: CommandId,
    fence: Fence,
    body: &str,
) -> Result<(), StoreError> {
    let statement = "UPDATE agentwire.commands AS c SET taken = true, reply = coalesce(c.reply, $2) FROM \
           (SELECT h.run FROM agentwire.heads AS h \
            WHERE h.run = (SELECT o.run FROM agentwire.commands AS o WHERE o.id = $1) AND h.fence = $3 \
            FOR KEY SHARE OF h) AS claim \
         WHERE c.id = $1 AND c.run = claim.run";
    let values = [int(command.0), text(body), int(fence.0)];
    database.write(Durability::Os, statement, &values).await.map(|_| ())
}

pub(super) async fn note_readers(
    t: &Transaction,
    run: &RunKey,
    holder: &Holder,
    ttl: Duration,
) -> Result<(), StoreError> {
    let (run, _) = super::log::find(t, run).await?;
    if ttl.is_zero() {
        t.query(
            "DELETE FROM agentwire.readers WHERE run = $1 AND (holder = $2 OR until <= $3)",
            &[id(run), text(holder.as_str()), int(t.now.0)],
        )
        .await?;
        return Ok(());
    }
    t.query(
        "INSERT INTO agentwire.readers (run, holder, until) VALUES ($1, $2, $3) \
         ON CONFLICT (run, holder) DO UPDATE SET until = excluded.until",
        &[id(run), text(holder.as_str()), int(t.now.after(ttl).0)],
    )
    .await?;
    Ok(())
}

pub(super) async fn has_readers(t: &Transaction, run: &RunKey, except: &Holder) -> Result<bool, StoreError> {
    let run = match super::log::find(t, run).await {
        Ok((run, _)) => run,
        Err(StoreError::NotFound(_)) => return Ok(false),
        Err(error) => return Err(error),
    };
    let sql = "SELECT 1 FROM agentwire.readers WHERE run = $1 AND holder <> $2 AND until > $3 LIMIT 1";
    Ok(t.query_first(sql, &[id(run), text(except.as_str()), int(t.now.0)]).await?.is_some())
}
