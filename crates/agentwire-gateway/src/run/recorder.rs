//! From what is said to the log, and then to the readers.
//!
//! What is staged is valid and folded; an append takes it to the log together with what follows from it, and only
//! then is it shown.

use std::time::Duration;

use agentwire_core::{
    event::{Body, Event, Outcome, RunError},
    format::ag_ui,
    json::Json,
    patch::{Op, Patch},
};
use agentwire_store::{Append, Change, Conflict, Durability, RunStatus, Seq, StatusChange, StoreError};
use bytes::Bytes;
use tokio::time::Instant;

use super::{
    LiveState, LogFailure, PauseMode, RunRecorder, Terminal, Waiter, approval, broken, codes, pending,
};

/// The largest event, and the most bytes of one append: half of what a store takes at once, so that what follows
/// from an ending fits beside it.
pub(super) const MAX_EVENT: usize = 32 << 20;

/// What is staged is appended when it has so many bytes, though more was heard already: a patch that does not apply is
/// followed by the whole state, and hundreds of them must not be held in memory.
pub(super) const FLUSH_AT: u64 = 1 << 20;

/// Of so many appends one is looked at for how long it took.
const FLUSHES_OBSERVED: u64 = 16;

impl RunRecorder {
    /// Makes an event ready for the log, or for the hooks if there are any.
    pub(super) fn stage(&mut self, mut event: Event) {
        if let Some(hooks) = &mut self.hooks {
            hooks.unsaid.push_back(event);
        } else if self.settle(&mut event) {
            self.let_through(event);
        }
    }

    /// Sees to what the gateway decides about an event; whether there is anything left to say.
    pub(super) fn settle(&mut self, event: &mut Event) -> bool {
        let mut too_much = None;
        match &mut event.body {
            // The gateway has said this already, with its own ids.
            Body::RunStarted(_) if self.started => return false,
            Body::RunStarted(_) => self.started = true,
            Body::RunFinished(finished) => {
                finished.thread = self.run.thread.clone();
                finished.run = self.run.run.clone();
                let patterns = if self.allowed { &[][..] } else { &self.agent.settings.approve[..] };
                let fold = self.join.fold_mut();
                if let Some((asked, gated)) =
                    approval::question(fold, finished.outcome.as_ref(), &self.input, patterns)
                {
                    finished.outcome = Some(asked);
                    self.gated = gated;
                }
                let now = self.gateway.store().now();
                let open = pending::left_open(fold, finished.outcome.as_ref(), &self.input, &self.gated, now);
                too_much = pending::exceeded_limit(&open);
                if let (None | Some(Outcome::Success { .. }), false) = (&finished.outcome, open.is_empty()) {
                    // An agent need not say which of its calls are the front end's; clients are told.
                    let pending = open.iter().map(|item| item.id.as_str().into()).collect();
                    finished.outcome = Some(Outcome::Success { pending });
                }
            }
            _ => {}
        }
        if let Some(problem) = too_much {
            event.body = Body::RunError(Box::new(RunError::new(problem, Some(codes::LIMIT_EXCEEDED))));
        }
        true
    }

    pub(super) fn let_through(&mut self, event: Event) {
        let mut valid = std::mem::take(&mut self.valid);
        self.guard.push(event, &mut valid);
        self.write_down(&mut valid);
        self.valid = valid;
    }

    pub(super) fn write_down(&mut self, valid: &mut Vec<Event>) {
        let now = i64::try_from(self.gateway.store().now().0).unwrap_or(i64::MAX);
        for mut event in valid.drain(..) {
            event.timestamp.get_or_insert(now);
            let skipped = self.join.fold().skipped_patches();
            self.join.apply(&event);
            self.bytes += self.copied(&event);
            self.put(&event);
            if matches!(event.body, Body::StateDelta { .. }) && self.join.fold().skipped_patches() > skipped {
                // Clients cannot apply it either. They are told what the state is instead.
                let snapshot = Json::from(self.join.fold().state());
                let fresh = Event::new(Body::StateSnapshot { snapshot }).by(event.subagent).at(Some(now));
                match &mut self.hooks {
                    None => self.put(&fresh),
                    Some(hooks) => hooks.unsaid.push_back(fresh),
                }
            }
        }
    }

    /// The size of what a patch has copied from what was there. That is a few bytes in the log and can be megabytes in
    /// memory, again and again, so it counts as if it had been said.
    fn copied(&mut self, event: &Event) -> u64 {
        let copies = |patch: &Patch| patch.0.iter().any(|operation| operation.op == Op::Copy);
        let size = match &event.body {
            Body::StateDelta { patch } if copies(patch) => self.join.fold().state().to_string().len(),
            Body::ActivityDelta { message, patch, .. } if copies(patch) => {
                let whole = self.join.messages().iter().find(|known| known.id == *message);
                whole.map_or(0, |whole| ag_ui::messages_to_json(std::slice::from_ref(whole)).len())
            }
            _ => 0,
        };
        size as u64
    }

    pub(super) fn put(&mut self, event: &Event) {
        if let Some(logged) = self.encoder.encode(event) {
            if logged.len() > MAX_EVENT {
                return self.leave_out(event, logged.len());
            }
            self.bytes += logged.len() as u64;
            self.staged.push(logged);
        }
        match &event.body {
            Body::RunFinished(finished) => {
                let stopped = matches!(finished.outcome, Some(Outcome::Cancelled));
                let status = if stopped { RunStatus::Stopped } else { RunStatus::Finished };
                self.terminal = Some(Terminal { status, cause: None, outcome: finished.outcome.clone() });
            }
            Body::RunError(error) => {
                let cause = error.code.clone().or_else(|| Some(error.message.clone()));
                self.terminal = Some(Terminal { status: RunStatus::Failed, cause, outcome: None });
            }
            Body::StepStarted { name } => self.steps.push(name.clone()),
            Body::StepFinished { name } => self.steps.retain(|open| open != name),
            _ => {}
        }
    }

    /// An event that no log takes ends the run; an ending of that size becomes a smaller one.
    pub(super) fn leave_out(&mut self, event: &Event, size: usize) {
        self.oversized = Some(size);
        if matches!(event.body, Body::RunFinished(_) | Body::RunError(_)) {
            let message = format!("the last event has {size} bytes, at most {MAX_EVENT} are allowed");
            let error = RunError::new(message, Some(codes::LIMIT_EXCEEDED));
            self.put(&Event::new(Body::RunError(Box::new(error))).at(event.timestamp));
        }
    }

    /// Appends what is staged to the log and then shows it.
    pub(super) async fn flush(&mut self) -> Result<(), LogFailure> {
        let status = self.told.take().map(StatusChange::to);
        if !self.staged.is_empty() || status.is_some() {
            self.append(Change { status, ..Change::default() }, LiveState::Running).await?;
        }
        // A hook may have left out what they asked for; then that is all there is to wait for.
        self.tell_waiting();
        Ok(())
    }

    /// Tells whoever waits that the log has what they asked for.
    fn tell_waiting(&mut self) {
        for waiter in self.waiting.drain(..) {
            // Who has gone need not hear it.
            match waiter {
                Waiter::Held(reply) => _ = reply.send(Ok(self.hold.unwrap_or(PauseMode::Soft))),
                Waiter::Patched(reply) => _ = reply.send(Ok(())),
            }
        }
    }

    pub(super) async fn append(&mut self, change: Change, end: LiveState) -> Result<(), LogFailure> {
        while let Some(rest) = split_off_beyond(MAX_EVENT, &mut self.staged) {
            let events = std::mem::replace(&mut self.staged, rest);
            self.append_some(events, Change::default(), LiveState::Running).await?;
        }
        let events = std::mem::take(&mut self.staged);
        self.written = self.bytes;
        self.append_some(events, change, end).await?;
        self.tell_waiting();
        Ok(())
    }

    pub(super) async fn append_some(
        &mut self,
        events: Vec<Bytes>,
        mut change: Change,
        end: LiveState,
    ) -> Result<(), LogFailure> {
        let began = Instant::now();
        let mut pause = Duration::from_millis(10);
        let mut is_revived = false;
        let next = loop {
            let append = Append {
                owner: self.owner.clone(),
                run: self.run.run.clone(),
                fence: self.fence,
                first_seq: Seq(self.next),
                events: events.clone(),
                change: change.clone(),
                durability: Durability::Memory,
            };
            let mut appended = self.gateway.store().append(append).await;
            if matches!(appended, Err(StoreError::Fenced)) && !is_revived {
                // Perhaps the claim only expired, while the store was away or this process asleep, and nobody took it.
                let lease = self.gateway.settings().lease;
                match self.gateway.store().renew(&self.owner, &self.run.run, self.fence, lease).await {
                    Ok(_) => {
                        is_revived = true;
                        continue;
                    }
                    Err(error) => appended = Err(error),
                }
            }
            self.gateway.note_store_result(&appended);
            match appended {
                Ok(appended) => break appended.next_seq.0,
                Err(error)
                    if error.is_fault() && began.elapsed() < self.gateway.settings().store_patience =>
                {
                    self.gateway.metrics().flush_failures.inc();
                    tracing::warn!(run = %self.run.run, %error, "an append failed and is tried again");
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(Duration::from_secs(1));
                }
                // Somebody changed the state in between: what the run says comes later, so it stays.
                Err(StoreError::Conflict(Conflict::State { current })) => {
                    if let Some(state) = &mut change.state {
                        state.expected = current;
                    }
                }
                // The run must end; its conversation stays as it was before.
                Err(error @ StoreError::TooLarge { .. })
                    if change.messages.is_some() || change.state.is_some() =>
                {
                    tracing::error!(run = %self.run.run, %error, "the conversation is too large to be kept");
                    (change.messages, change.state) = (None, None);
                }
                Err(error) => {
                    tracing::error!(run = %self.run.run, %error, "the log of a run cannot be written any more");
                    return Err(broken(&error));
                }
            }
        };
        let metrics = &self.gateway.metrics();
        metrics.flushes.inc();
        metrics.events.inc_by(events.len() as u64);
        metrics.event_bytes.inc_by(events.iter().map(|event| event.len() as u64).sum());
        // One in so many, since all runs share it.
        if self.next.is_multiple_of(FLUSHES_OBSERVED) {
            metrics.flush_seconds.observe(began.elapsed().as_secs_f64());
        }
        self.next = next;
        self.live.publish(events, end);
        Ok(())
    }
}

/// Takes what is too much for one append off what is staged.
fn split_off_beyond(limit: usize, staged: &mut Vec<Bytes>) -> Option<Vec<Bytes>> {
    let mut bytes = 0;
    let fits = staged.iter().position(|event| {
        bytes += event.len();
        bytes > limit
    });
    fits.filter(|count| *count > 0).map(|count| staged.split_off(count))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_too_much_for_one_append_is_split_in_order() {
        for sizes in [vec![], vec![3], vec![4, 4, 4], vec![10], vec![1, 10, 1], vec![5, 5, 1, 9, 2]] {
            let all: Vec<Bytes> = sizes.iter().map(|size| Bytes::from(vec![b'x'; *size])).collect();
            let mut staged = all.clone();
            let mut appended = Vec::new();
            while let Some(rest) = split_off_beyond(10, &mut staged) {
                assert!(staged.iter().map(Bytes::len).sum::<usize>() <= 10, "{sizes:?}");
                appended.extend(std::mem::replace(&mut staged, rest));
            }
            appended.extend(staged);
            assert_eq!(appended, all);
        }
    }
}
