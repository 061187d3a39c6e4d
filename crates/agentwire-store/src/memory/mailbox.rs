//! Commands and readers in memory.

use std::time::Duration;

use super::tables::{CommandEntry, RunEntry, Tables};
use crate::{
    clock::Time,
    error::StoreError,
    model::{CommandId, Delivery, Fence, Holder, RunKey, TakenCommand, Text},
    rules::{ABANDONED, check_size},
};

impl Tables {
    pub(super) fn send(
        &mut self,
        run: &RunKey,
        body: Text,
        patience: Duration,
        now: Time,
    ) -> Result<CommandId, StoreError> {
        check_size("a command", body.len())?;
        self.get_run(&run.owner, &run.run)?;
        self.commands.retain(|_, command| command.deadline.after(ABANDONED) > now);
        let id = CommandId(self.next_number());
        let deadline = now.after(patience);
        let entry = CommandEntry { run: run.clone(), body, deadline, is_taken: false, reply: None };
        self.commands.insert(id, entry);
        Ok(id)
    }

    /// The result of a command, which is then removed; `None` while it is waited for.
    pub(super) fn result_of(&mut self, id: CommandId, now: Time) -> Result<Option<Delivery>, StoreError> {
        let gone = StoreError::NotFound(crate::error::Missing::Run);
        let Some(command) = self.commands.get(&id) else { return Err(gone) };
        let has_ended = match self.get_run(&command.run.owner, &command.run.run) {
            Ok(entry) => !entry.run.status.is_live(),
            Err(error) => {
                self.commands.remove(&id);
                return Err(error);
            }
        };
        let result = command.result(has_ended, now);
        if result.is_some() {
            self.commands.remove(&id);
        }
        Ok(result)
    }

    pub(super) fn take_commands(&mut self, holder: &Holder, now: Time) -> Vec<TakenCommand> {
        let mut taken = Vec::new();
        for (id, command) in &mut self.commands {
            let run = self.runs.get(&command.run);
            let is_mine =
                |run: &RunEntry| run.run.holder == *holder && run.is_claimed && run.run.status.is_live();
            let Some(fence) = run.filter(|run| is_mine(run)).map(|run| run.run.fence) else { continue };
            if !command.is_taken && command.deadline > now {
                command.is_taken = true;
                let (run, body) = (command.run.clone(), command.body.clone());
                taken.push(TakenCommand { id: *id, run, fence, body });
            }
        }
        taken
    }

    /// Replies under a fencing token.
    pub(super) fn reply(&mut self, id: CommandId, fence: Fence, body: Text) {
        if let Some(command) = self.commands.get_mut(&id)
            && self.runs.get(&command.run).is_some_and(|run| run.run.fence == fence)
        {
            command.is_taken = true;
            command.reply.get_or_insert(body);
        }
    }

    pub(super) fn note_readers(
        &mut self,
        run: &RunKey,
        holder: &Holder,
        ttl: Duration,
        now: Time,
    ) -> Result<(), StoreError> {
        self.get_run(&run.owner, &run.run)?;
        let readers = self.readers.entry(run.clone()).or_default();
        readers.retain(|_, until| *until > now);
        if ttl.is_zero() {
            readers.remove(holder);
        } else {
            readers.insert(holder.clone(), now.after(ttl));
        }
        if readers.is_empty() {
            self.readers.remove(run);
        }
        Ok(())
    }

    pub(super) fn has_readers(&self, run: &RunKey, except: &Holder, now: Time) -> bool {
        let readers = self.readers.get(run).into_iter().flatten();
        readers.into_iter().any(|(holder, until)| holder != except && *until > now)
    }
}

impl CommandEntry {
    fn result(&self, has_ended: bool, now: Time) -> Option<Delivery> {
        crate::rules::delivery(self.reply.as_ref(), self.is_taken, has_ended, self.deadline <= now)
    }
}
