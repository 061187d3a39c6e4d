//! A live run as a client would hold it now, at any process: the stored thread, and the fold of its log.

use agentwire_core::{
    event::{Body, Message, ThreadId},
    fold::{Fold, Join},
    format::ag_ui,
};
use agentwire_store::{Owner, Run, RunKey, RunStatus, StoreError};
use bytes::Bytes;

use super::input::StartingData;
use crate::{
    cpu_work,
    error::ApiError,
    gateway::Gateway,
    stream::{
        live::{Command, Prelude, Snapshot},
        log_codec::{Decoder, Encoder},
    },
    thread::snapshot::ThreadSnapshot,
};

/// A live run, folded from its log.
struct FoldedRun {
    thread: ThreadId,
    join: Join,
    initial_messages: Vec<Message>,
    open_steps: Vec<Box<str>>,
    /// The number of events.
    next: u64,
}

impl Gateway {
    /// The current messages and state of a live run; `None` if it has ended or waits for its thread.
    pub(crate) async fn run_snapshot(&self, key: &RunKey) -> Result<Option<Snapshot>, StoreError> {
        if let Some(live) = self.live_run(&key.owner, &key.run) {
            let (reply, snapshot) = tokio::sync::oneshot::channel();
            if live.commands.send(Command::Snapshot(reply)).await.is_ok()
                && let Ok(snapshot) = snapshot.await
            {
                return Ok(Some(snapshot));
            }
        }
        let show = |folded: &mut FoldedRun| Snapshot {
            messages: ag_ui::messages_to_json(folded.join.messages()),
            initial_messages: ag_ui::messages_to_json(&folded.initial_messages),
            state: folded.join.fold().state().to_string(),
        };
        self.fold_run(key, show).await
    }

    /// The innermost open step of a live run.
    pub(crate) async fn run_step(&self, key: &RunKey) -> Result<Option<Box<str>>, StoreError> {
        if let Some(live) = self.live_run(&key.owner, &key.run) {
            let (reply, step) = tokio::sync::oneshot::channel();
            if live.commands.send(Command::Step(reply)).await.is_ok()
                && let Ok(step) = step.await
            {
                return Ok(step);
            }
        }
        Ok(self.fold_run(key, |folded| folded.open_steps.last().cloned()).await?.flatten())
    }

    /// The prelude of a live run that another process drives; `None` if it has ended.
    pub(crate) async fn run_prelude(&self, key: &RunKey) -> Result<Option<Prelude>, StoreError> {
        let run = key.run.clone();
        let show = move |folded: &mut FoldedRun| {
            let mut encoder = Encoder::new(&folded.thread, &run);
            let events: Vec<Bytes> =
                folded.join.prelude().iter().filter_map(|event| encoder.encode(event)).collect();
            Prelude { events, next: folded.next }
        };
        self.fold_run(key, show).await
    }

    /// Folds a live run and shows it; off the workers if it is long.
    async fn fold_run<T: Send + 'static>(
        &self,
        key: &RunKey,
        show: impl FnOnce(&mut FoldedRun) -> T + Send + 'static,
    ) -> Result<Option<T>, StoreError> {
        let run = self.store().run(&key.owner, &key.run).await?;
        if !run.status.is_live() {
            return Ok(None);
        }
        if run.status == RunStatus::Queued {
            let (join, next) = (Join::new(Fold::new()), run.next_seq.0);
            let (initial_messages, open_steps) = (Vec::new(), Vec::new());
            let mut folded = FoldedRun { thread: run.thread, join, initial_messages, open_steps, next };
            return Ok(Some(show(&mut folded)));
        }
        let start = self.starting_data(&key.owner, &run).await?;
        let logged = self.whole_log(key).await?;
        // The end of the run replaces the stored messages in one step with its status.
        if !self.store().run(&key.owner, &key.run).await?.status.is_live() {
            return Ok(None);
        }
        let bytes = start.bytes + logged.iter().map(Bytes::len).sum::<usize>();
        let fold = move || show(&mut FoldedRun::new(&run, start, &logged));
        let shown = match bytes > cpu_work::SHORT_TEXT {
            true => cpu_work::spawn_patient(&key.owner, fold).await,
            false => Ok(fold()),
        };
        shown.map(Some).map_err(|error| StoreError::Corrupt(error.message.into()))
    }
}

impl FoldedRun {
    fn new(run: &Run, start: StartingData, logged: &[Bytes]) -> Self {
        let mut folded = Self {
            initial_messages: start.messages.clone(),
            join: Join::new(Fold::from_history(start.messages, Some(start.state))),
            open_steps: Vec::new(),
            next: logged.len() as u64,
            thread: run.thread.clone(),
        };
        let mut decoder = Decoder::new(&run.thread, &run.run);
        let mut events = Vec::new();
        for entry in logged {
            decoder.decode(entry, &mut events);
            for event in events.drain(..) {
                match &event.body {
                    Body::StepStarted { name } => folded.open_steps.push(name.clone()),
                    Body::StepFinished { name } => folded.open_steps.retain(|open| open != name),
                    _ => {}
                }
                folded.join.apply(&event);
            }
        }
        folded
    }
}

impl Gateway {
    /// The snapshot of a thread: of its active run, else as stored; `None` if the thread is unknown.
    pub(crate) async fn current_snapshot(
        &self,
        owner: &Owner,
        thread: &ThreadId,
    ) -> Result<Option<ThreadSnapshot>, ApiError> {
        let lease = match self.store().lease(owner, thread).await {
            Ok(lease) => lease,
            Err(StoreError::NotFound(_)) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        if let Some(lease) = lease {
            let key = RunKey { owner: owner.clone(), run: lease.run };
            match self.run_snapshot(&key).await {
                Ok(Some(Snapshot { messages, initial_messages: began, state, .. })) => {
                    let interrupts = Vec::new();
                    return Ok(Some(ThreadSnapshot {
                        messages,
                        at_run_start: Some(began),
                        state,
                        interrupts,
                        held: None,
                    }));
                }
                // It has ended meanwhile.
                Ok(None) | Err(StoreError::NotFound(_)) => {}
                Err(error) => return Err(error.into()),
            }
        }
        self.stored_snapshot(owner, thread).await
    }
}
