//! Background maintenance: reattaches or ends orphaned runs, compacts finished ones, applies retention.

use std::{sync::Arc, time::Duration};

use agentwire_core::{
    event::{Body, StreamEnd},
    fold::{self, Fold},
    format::ag_ui,
    order::Guard,
};
use agentwire_store::{
    Append, Change, Holder, Log, Retention, Run, RunKey, RunStatus, Seq, StateChange, StatusChange,
    StoreError,
};
use bytes::Bytes;

use crate::{
    agent::{EventSink, Request},
    codes,
    gateway::Gateway,
    human::approval,
    run::Job,
    settings::OnDisconnect,
    stream::{
        live::{LiveRun, LogFailure},
        log_codec::{Decoder, Encoder},
    },
};

/// Bytes of a log that are read at once.
const PAGE: usize = 1 << 20;

/// The cause of runs whose gateway died.
const LOST: LogFailure = LogFailure { code: codes::GATEWAY_LOST, message: "the gateway died during the run" };

/// Runs per query.
const BATCH: usize = 100;

impl Gateway {
    /// Runs until the gateway is shut down.
    pub(crate) async fn maintain(self) {
        let lease = self.settings().lease;
        let mut sweep = tokio::time::interval((lease / 3).max(Duration::from_millis(100)));
        sweep.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        // Often enough that a retention in seconds is applied within seconds.
        let ages = [self.settings().retention.events, self.settings().retention.history];
        let shortest = ages.into_iter().flatten().min().unwrap_or(Duration::from_secs(3600));
        let interval = (shortest / 2).clamp(Duration::from_secs(1), Duration::from_secs(60));
        let mut retention = tokio::time::interval_at(tokio::time::Instant::now() + interval, interval);
        retention.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            let result = tokio::select! {
                () = self.shutdown().cancelled() => return,
                _ = sweep.tick() => self.sweep().await,
                _ = retention.tick() => self.apply_retention().await,
            };
            if let Err(error) = result {
                tracing::warn!(%error, "background maintenance failed and will be retried");
            }
        }
    }

    async fn sweep(&self) -> Result<(), StoreError> {
        self.end_failed_logs().await?;
        self.end_orphans(None).await
    }

    /// Appends the terminal event to logs of this process that could not be written, if the store accepts it now.
    async fn end_failed_logs(&self) -> Result<(), StoreError> {
        let keys: Vec<_> = self.failed_logs().keys().cloned().collect();
        for key in keys {
            if self.live_run(&key.owner, &key.run).is_some() {
                continue;
            }
            let ended = match self.store().run(&key.owner, &key.run).await {
                Ok(run) if run.status.is_live() && run.holder == *self.holder() => {
                    self.end_orphan(&key, &run, Some(self.holder())).await
                }
                Ok(_) => Ok(()),
                Err(error) => Err(error),
            };
            match ended {
                Err(error) if error.is_fault() => return Err(error),
                _ => _ = self.failed_logs().remove(&key),
            }
            self.run_ended().notify_waiters();
        }
        Ok(())
    }

    /// Ends or reattaches every run without a live gateway. `dead` is a process that is known to be dead: its claims need
    /// not expire first.
    pub(crate) async fn end_orphans(&self, dead: Option<&Holder>) -> Result<(), StoreError> {
        loop {
            let orphans = self.store().orphans(dead, BATCH).await?;
            let mut done = 0;
            for (key, run) in &orphans {
                // A live run of this process that is late in renewing its claim.
                if self.live_run(&key.owner, &key.run).is_some() {
                    continue;
                }
                match self.end_orphan(key, run, dead).await {
                    Ok(()) => done += 1,
                    // Another process was faster.
                    Err(StoreError::Fenced | StoreError::Ended(_) | StoreError::NotFound(_)) => {}
                    Err(error) => {
                        tracing::warn!(run = %key.run, %error, "an orphaned run could not be ended")
                    }
                }
            }
            self.metrics().runs_repaired.inc_by(done);
            if done == 0 {
                return Ok(());
            }
            self.run_ended().notify_waiters();
        }
    }

    /// Takes an orphaned run over: reattaches to its agent, or appends its terminal event with its consequences.
    async fn end_orphan(&self, key: &RunKey, seen: &Run, dead: Option<&Holder>) -> Result<(), StoreError> {
        let run = self.store().take_over(key, seen.fence, dead, self.claim()).await?;
        let logged = self.whole_log(key).await?;
        if self.reattach(key, &run, &logged).await? {
            return Ok(());
        }
        let mut guard = Guard::new(run.thread.clone(), run.run.clone());
        let mut decoder = Decoder::new(&run.thread, &run.run);
        let (mut events, mut out) = (Vec::new(), Vec::new());
        for event in &logged {
            decoder.decode(event, &mut events);
        }
        let cause = self.failed_logs().get(key).copied().unwrap_or(LOST);
        let end = StreamEnd::Failed { code: cause.code.into(), message: cause.message.into() };
        // The log is valid, so the guard changes nothing and learns which items are open.
        events.iter().cloned().for_each(|event| guard.push(event, &mut out));
        out.clear();
        guard.end(&end, &mut out);
        let now = i64::try_from(self.store().now().0).ok();
        out.iter_mut().for_each(|event| event.timestamp = now);
        let mut encoder = Encoder::new(&run.thread, &run.run);
        let closing = out.iter().filter_map(|event| encoder.encode(event)).collect();

        let mut change = Change {
            status: Some(StatusChange { to: RunStatus::Failed, cause: Some(cause.code.into()) }),
            ..Change::default()
        };
        let lease = self.store().lease(&key.owner, &run.thread).await?;
        let has_started = events.iter().any(|event| matches!(event.body, Body::RunStarted(_)));
        if has_started && lease.is_some_and(|lease| lease.run == run.run) {
            let start = self.starting_data(&key.owner, seen).await?;
            let mut fold = Fold::from_history(start.messages, Some(start.state));
            events.iter().chain(&out).for_each(|event| fold.apply(event));
            change.messages = Some(ag_ui::messages_to_json(fold.messages()).into());
            let state = fold.state().to_string();
            if start.stored_state.as_ref() != Some(&state) {
                change.state = Some(StateChange { expected: start.state_seq, body: state.into() });
            }
        }
        let mut append = Append::new(key.owner.clone(), run.run.clone(), run.fence, run.next_seq);
        (append.events, append.change) = (closing, change);
        let appended = self.store().append(append.clone()).await;
        self.note_store_result(&appended);
        match appended {
            Err(StoreError::TooLarge { .. }) => {
                // The run must end; the thread keeps its previous messages and state.
                (append.change.messages, append.change.state) = (None, None);
                self.store().append(append).await?
            }
            done => done?,
        };
        tracing::warn!(run = %run.run, thread = %run.thread, "an orphaned run was ended");
        Ok(())
    }

    /// Continues a run whose agent is still working. `false` if its upstream cannot do that.
    async fn reattach(&self, key: &RunKey, run: &Run, logged: &[Bytes]) -> Result<bool, StoreError> {
        let Some(agent) = self.registry().agents.get(&*run.agent).cloned() else { return Ok(false) };
        let lease = self.store().lease(&key.owner, &run.thread).await?;
        if run.status == RunStatus::Queued || lease.is_none_or(|lease| lease.run != run.run) {
            return Ok(false);
        }
        let (mut input, cut) = self.stored_input(&key.owner, run).await?;
        // A future that is never polled has no effect; its presence shows that the upstream can reattach.
        if agent.agent.attach(Request::new(input.clone()), EventSink::new(1).0).is_none() {
            return Ok(false);
        }
        let answers =
            input.resume.take().unwrap_or_default().into_iter().map(approval::from_stored).collect();
        let cancel = agent.settings.on_disconnect == OnDisconnect::Cancel;
        let limits = &self.settings().limits;
        let (live, commands) = LiveRun::new(key.clone(), run.thread.clone(), run.next_seq.0, limits, cancel);
        self.register_run(&live);
        tracing::warn!(run = %run.run, thread = %run.thread, "an orphaned run is continued");
        let job = Job {
            gateway: self.clone(),
            agent,
            owner: key.owner.clone(),
            run: run.clone(),
            input,
            answers,
            cut,
            // The page that sent the request is gone.
            one_message: false,
            // Headers are not stored, because they may contain secrets.
            headers: Arc::new([]),
            live,
            commands,
            logged: Some(logged.to_vec()),
        };
        self.tasks().spawn(job.drive());
        Ok(true)
    }

    async fn whole_log(&self, key: &RunKey) -> Result<Vec<Bytes>, StoreError> {
        let mut events: Vec<Bytes> = Vec::new();
        loop {
            let after = (events.len() as u64).checked_sub(1).map(Seq);
            match self.store().read(&key.owner, &key.run, after, PAGE).await? {
                Log::Exact(slice) if !slice.events.is_empty() => events.extend(slice.events),
                _ => return Ok(events),
            }
        }
    }

    /// Compacts runs whose exact replay is no longer retained, and deletes expired logs and threads.
    async fn apply_retention(&self) -> Result<(), StoreError> {
        self.adopt_threads().await;
        let retention = &self.settings().retention;
        if let Some(age) = retention.events {
            loop {
                let runs = self.store().compactable(age, BATCH).await?;
                let mut done = 0;
                for key in &runs {
                    match self.compact(key).await {
                        Ok(()) => done += 1,
                        Err(error) if error.is_fault() => return Err(error),
                        // One bad log must not block the others.
                        Err(error) => tracing::warn!(run = %key.run, %error, "a log could not be compacted"),
                    }
                }
                if runs.len() < BATCH || done == 0 {
                    break;
                }
            }
        }
        let retained = self
            .store()
            .retain(Retention {
                log_age: None,
                logs_per_thread: retention.runs_per_thread,
                thread_age: retention.history,
                threads_per_owner: retention.threads_per_user,
            })
            .await?;
        if retained.threads + retained.logs > 0 {
            tracing::info!(
                threads = retained.threads,
                logs = retained.logs,
                "old threads and logs were deleted"
            );
        }
        Ok(())
    }

    async fn compact(&self, key: &RunKey) -> Result<(), StoreError> {
        let run = self.store().run(&key.owner, &key.run).await?;
        let mut decoder = Decoder::new(&run.thread, &run.run);
        let mut events = Vec::new();
        for logged in self.whole_log(key).await? {
            decoder.decode(&logged, &mut events);
        }
        let mut encoder = Encoder::new(&run.thread, &run.run);
        let compacted = fold::compact(&events).iter().filter_map(|event| encoder.encode(event)).collect();
        match self.store().compact(&key.owner, &key.run, compacted).await {
            Err(StoreError::NotFound(_)) | Ok(()) => Ok(()),
            Err(error) => Err(error),
        }
    }
}
