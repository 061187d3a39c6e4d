//! Commands and readers in SQL.

use std::time::Duration;

use super::{
    connect::Transaction,
    row::{get_run_key, get_status, run_key},
    value::{Value, get, get_number, get_optional_text, get_text, get_time, id, int, text},
};
use crate::{
    error::{Missing, StoreError},
    model::{CommandId, Delivery, Holder, RunKey, TakenCommand},
    rules::{self, ABANDONED},
};

/// Adds a command.
pub(super) async fn send(
    t: &Transaction,
    run: &RunKey,
    body: &str,
    patience: Duration,
) -> Result<CommandId, StoreError> {
    let (run, _) = super::log::find(t, run).await?;
    t.query(
        "DELETE FROM agentwire.commands WHERE id IN \
           (SELECT id FROM agentwire.commands WHERE deadline <= $1 LIMIT 100 FOR UPDATE SKIP LOCKED)",
        &[int(t.now.before(ABANDONED).0)],
    )
    .await?;
    let row = t
        .query_first(
            "INSERT INTO agentwire.commands (run, body, deadline) VALUES ($1, $2, $3) \
         RETURNING id",
            &[id(run), text(body), int(t.now.after(patience).0)],
        )
        .await?;
    let row = row.ok_or(StoreError::NotFound(Missing::Run))?;
    Ok(CommandId(get_number(&row, 0)?))
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
pub(super) async fn take(t: &Transaction, holder: &Holder) -> Result<Vec<TakenCommand>, StoreError> {
    let rows = t.query(
        concat!(
            "SELECT c.id, c.body, ",
            run_key!(),
            " FROM agentwire.commands AS c JOIN agentwire.runs AS r ON r.id = c.run JOIN agentwire.heads AS h ON h.run = c.run \
             WHERE NOT c.taken AND c.deadline > $2 AND h.holder = $1 AND h.claimed \
               AND r.status IN ('queued', 'running', 'paused') ORDER BY c.id FOR UPDATE OF c"
        ),
        &[text(holder.as_str()), int(t.now.0)],
    ).await?;
    let mut taken = Vec::new();
    for row in rows {
        taken.push(TakenCommand {
            id: CommandId(get_number(&row, 0)?),
            body: get_text(&row, 1)?,
            run: get_run_key(&row, 2)?,
        });
    }
    let ids: Vec<i64> = taken.iter().map(|command| i64::try_from(command.id.0).unwrap_or(0)).collect();
    t.query("UPDATE agentwire.commands SET taken = true WHERE id = ANY($1)", &[Value::Ints(&ids)]).await?;
    Ok(taken)
}

pub(super) async fn reply(t: &Transaction, command: CommandId, body: &str) -> Result<(), StoreError> {
    t.query(
        "UPDATE agentwire.commands SET taken = true, reply = coalesce(reply, $2) WHERE id = $1",
        &[int(command.0), text(body)],
    )
    .await?;
    Ok(())
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
