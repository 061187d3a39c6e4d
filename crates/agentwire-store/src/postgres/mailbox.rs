//! Commands and readers in SQL.

use std::time::Duration;

use super::{
    connect::{Database, Transaction, clock},
    row::{get_run_key, get_status, key, key_values, run_key},
    value::{Value, get, get_number, get_optional_text, get_text, get_time, id, int, text},
};
use crate::{
    error::{Missing, StoreError},
    model::{CommandId, Delivery, Durability, Holder, RunKey, TakenCommand},
    rules::{self, ABANDONED},
};

/// Adds a command, and removes those whose senders died.
pub(super) async fn send(
    database: &Database,
    run: &RunKey,
    body: &str,
    patience: Duration,
) -> Result<CommandId, StoreError> {
    let millis = |time: Duration| Value::Int(Some(i64::try_from(time.as_millis()).unwrap_or(i64::MAX)));
    let [tenant, user, agent, name] = key_values(&run.owner, &run.run);
    let rows = database
        .write(
            Durability::Os,
            concat!(
                "WITH c AS (SELECT coalesce($8, ",
                clock!(),
                ") AS now), \
                 d AS (DELETE FROM agentwire.commands WHERE id IN \
                   (SELECT o.id FROM agentwire.commands AS o, c WHERE o.deadline <= c.now - $7 LIMIT 100 \
                    FOR UPDATE OF o SKIP LOCKED)) \
                 INSERT INTO agentwire.commands (run, body, deadline) \
                   SELECT r.id, $5, c.now + $6 FROM agentwire.runs AS r, c WHERE r.key = ",
                key!(),
                " RETURNING id"
            ),
            &[
                tenant,
                user,
                agent,
                name,
                text(body),
                millis(patience),
                millis(ABANDONED),
                database.clocks.parameter(),
            ],
        )
        .await?;
    let row = rows.first().ok_or(StoreError::NotFound(Missing::Run))?;
    Ok(CommandId(get_number(row, 0)?))
}

/// Removes a command that has a reply, and returns the reply.
pub(super) async fn take_reply(
    database: &Database,
    command: CommandId,
) -> Result<Option<Delivery>, StoreError> {
    let statement = "DELETE FROM agentwire.commands WHERE id = $1 AND reply IS NOT NULL RETURNING reply";
    let rows = database.write(Durability::Os, statement, &[int(command.0)]).await?;
    rows.first().map(|row| Ok(Delivery::Replied(get_text(row, 0)?))).transpose()
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

/// Takes the open commands to the runs of a holder, in the order in which they were sent.
pub(super) async fn take(database: &Database, holder: &Holder) -> Result<Vec<TakenCommand>, StoreError> {
    let rows = database
        .write(
            Durability::Os,
            concat!(
                "UPDATE agentwire.commands AS c SET taken = true FROM agentwire.runs AS r, \
                   (SELECT o.id FROM agentwire.commands AS o JOIN agentwire.runs AS q ON q.id = o.run \
                      JOIN agentwire.heads AS h ON h.run = o.run \
                    WHERE NOT o.taken AND o.deadline > coalesce($2, ",
                clock!(),
                ") AND h.holder = $1 AND h.claimed AND q.status IN ('queued', 'running', 'paused') \
                    ORDER BY o.id FOR UPDATE OF o) AS open \
                 WHERE c.id = open.id AND r.id = c.run RETURNING c.id, c.body, ",
                run_key!()
            ),
            &[text(holder.as_str()), database.clocks.parameter()],
        )
        .await?;
    let mut taken = Vec::new();
    for row in rows {
        taken.push(TakenCommand {
            id: CommandId(get_number(&row, 0)?),
            body: get_text(&row, 1)?,
            run: get_run_key(&row, 2)?,
        });
    }
    taken.sort_unstable_by_key(|command| command.id.0);
    Ok(taken)
}

pub(super) const REPLY: &str =
    "UPDATE agentwire.commands SET taken = true, reply = coalesce(reply, $2) WHERE id = $1";

/// Replies to a command.
pub(super) async fn reply(database: &Database, command: CommandId, body: &str) -> Result<(), StoreError> {
    database.write(Durability::Os, REPLY, &[int(command.0), text(body)]).await.map(|_| ())
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
