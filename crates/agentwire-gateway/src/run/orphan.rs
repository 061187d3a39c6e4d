//! Orphans: runs without a process that drives them.
//!
//! A thread is free only when its run has ended, so whoever meets an orphan takes it over and settles it before anything
//! else: a run that only waited for its thread goes on waiting, one whose agent can be reattached continues, and every other
//! one gets its terminal event with its consequences for the thread.

use std::{sync::Arc, time::Duration};

use agentwire_core::{
    event::{Body, RunId, StreamEnd},
    fold::Fold,
    format::ag_ui,
    order::Guard,
};
use agentwire_store::{
    Append, Change, Log, Owner, Run, RunKey, RunStatus, Seq, StateChange, StatusChange, StoreError,
};
use bytes::Bytes;
use tokio::time::Instant;

use super::{
    Job,
    input::{HEADERS, asked_on_disconnect, has_start_in_log},
    trace::RunTrace,
};
use crate::{
    agent::{EventSink, Request},
    codes,
    cpu_work::{self, Expected},
    gateway::{AgentEntry, Gateway},
    human::approval,
    limits::OwnerSeats,
    replica::{TAIL_LOST, UNDRIVEN, sealed},
    settings::OnDisconnect,
    stream::{
        live::{LiveRun, LogFailure},
        log_codec::{Decoder, Encoder},
    },
    trace::TraceState,
};

/// Bytes of a log that are read at once.
const PAGE: usize = 1 << 20;

/// The cause of runs whose gateway died.
const LOST: LogFailure = LogFailure { code: codes::GATEWAY_LOST, message: "the gateway died during the run" };

/// The pause after another process was faster, which now settles the orphan.
const SETTLING: Duration = Duration::from_millis(20);

/// The time without readers after which a run with `on_disconnect = cancel` is stopped: long enough for a client that reconnects,
/// perhaps at another process.
const UNREAD: Duration = Duration::from_secs(2);

impl Gateway {
    /// Settles an orphan that the store has named, so that the caller can try again. Boxed, because a run that waits for its
    /// thread settles others.
    pub(crate) fn settle_orphan<'a>(
        &'a self,
        owner: &'a Owner,
        run: &'a RunId,
    ) -> agentwire_store::BoxFuture<'a, ()> {
        Box::pin(async move {
            if self.live_run(owner, run).is_some() {
                // A run of this process, whose lease has expired.
                return self.renew_lease().await;
            }
            let seen = match self.store().run(owner, run).await {
                Ok(seen) if seen.status.is_live() => seen,
                Ok(_) | Err(StoreError::NotFound(_)) => return Ok(()),
                Err(error) => return Err(error),
            };
            let key = RunKey { owner: owner.clone(), run: run.clone() };
            match self.end_orphan(&key, &seen).await {
                Ok(()) => self.metrics().runs_repaired.inc(),
                Err(StoreError::Fenced | StoreError::Ended(_) | StoreError::NotFound(_)) => {
                    tokio::time::sleep(SETTLING).await;
                    return Ok(());
                }
                Err(error) => return Err(error),
            };
            self.run_ended().notify_waiters();
            Ok(())
        })
    }

    /// Takes an orphan over and settles it.
    pub(crate) async fn end_orphan(&self, key: &RunKey, seen: &Run) -> Result<(), StoreError> {
        if self.is_draining() && self.store().outlives_process() && !self.failed_logs().contains_key(key) {
            // Perhaps it can be continued, by another process or the next one.
            return Err(StoreError::Fenced);
        }
        self.ensure_lease().await?;
        let run = self.store().take_over(key, seen.fence, self.holder()).await?;
        let settled = self.settle(key, &run).await;
        if settled.as_ref().is_err_and(StoreError::is_fault) {
            // It is claimed now, and no longer an orphan: the next sweep ends it.
            self.failed_logs().entry(key.clone()).or_insert(LOST);
        }
        settled
    }

    async fn settle(&self, key: &RunKey, run: &Run) -> Result<(), StoreError> {
        let logged = self.whole_log(key).await?;
        let cause = self.failed_logs().get(key).copied().unwrap_or(LOST);
        // An agent may have been called, whatever the record says.
        let is_record_old = [TAIL_LOST, UNDRIVEN].contains(&cause);
        if !is_record_old && self.continue_orphan(key, run, &logged).await? {
            return Ok(());
        }
        let length = logged.iter().map(Bytes::len).sum::<usize>();
        let close = || {
            let mut guard = Guard::new(run.thread.clone(), run.run.clone());
            let mut decoder = Decoder::new(&run.thread, &run.run);
            let (mut events, mut out) = (Vec::new(), Vec::new());
            for event in &logged {
                decoder.decode(event, &mut events);
            }
            let end = StreamEnd::Failed { code: cause.code.into(), message: cause.message.into() };
            // The log is valid, so the guard changes nothing and learns which items are open.
            events.iter().cloned().for_each(|event| guard.push(event, &mut out));
            out.clear();
            guard.end(&end, &mut out);
            (events, out)
        };
        let (events, mut out) = cpu_work::in_place_by_length(&key.owner, length, close).await;
        let now = i64::try_from(self.store().now().0).ok();
        out.iter_mut().for_each(|event| event.timestamp = now);
        let mut encoder = Encoder::new(&run.thread, &run.run);
        let closing = out.iter().filter_map(|event| encoder.encode(event)).collect();

        let mut change = Change {
            status: Some(StatusChange { to: RunStatus::Failed, cause: Some(cause.code.into()) }),
            ..Change::default()
        };
        let has_started = events.iter().any(|event| matches!(event.body, Body::RunStarted(_)));
        if has_started && self.has_thread(key, run).await? {
            let start = self.starting_data(&key.owner, run).await?;
            let (messages, before) = (start.messages, start.state);
            let fold = || {
                let mut fold = Fold::from_history(messages, Some(before));
                events.iter().chain(&out).for_each(|event| fold.apply(event));
                (ag_ui::messages_to_json(fold.messages()), fold.state().to_string())
            };
            let (messages, state) =
                cpu_work::in_place_by_length(&key.owner, start.bytes + length, fold).await;
            change.messages = Some(messages.into());
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

    async fn has_thread(&self, key: &RunKey, run: &Run) -> Result<bool, StoreError> {
        let lease = self.store().lease(&key.owner, &run.thread).await?;
        Ok(lease.is_some_and(|lease| lease.run == run.run))
    }

    /// Continues a run whose agent was not called yet or still works. `false` if that is not possible.
    async fn continue_orphan(&self, key: &RunKey, run: &Run, logged: &[Bytes]) -> Result<bool, StoreError> {
        let Some(agent) = self.registry().agents.get(&*run.agent).cloned() else { return Ok(false) };
        if self.is_draining() {
            return Ok(false);
        }
        let (mut input, cut) = self.stored_input(&key.owner, run).await?;
        let is_queued = run.status == RunStatus::Queued;
        let headers = match agent.settings.forward_headers.is_empty() {
            true => Some(Vec::new()),
            // Stored with a key only, because they may contain secrets.
            false => self
                .headers_key(&agent.settings)
                .and_then(|secret| sealed::open(&secret, key, &ag_ui::input::stored_text(&input, HEADERS)?)),
        };
        let is_possible = match is_queued {
            true => headers.is_some(),
            // A future that is never polled has no effect; its presence shows that the upstream can reattach.
            false => {
                self.has_thread(key, run).await?
                    && agent.agent.attach(Request::new(input.clone()), EventSink::new(1).0).is_some()
            }
        };
        if !is_possible {
            return Ok(false);
        }
        tracing::warn!(run = %run.run, thread = %run.thread, "an orphaned run is continued");
        let one_message = is_queued && is_ai_sdk(&input);
        let answers =
            input.resume.take().unwrap_or_default().into_iter().map(approval::from_stored).collect();
        let (asked, has_start_in_log) = (asked_on_disconnect(&input), has_start_in_log(&input));
        let live = self.new_live_run(key, run, &agent, asked, self.quotas().known_run(&key.owner));
        let mut headers = headers.unwrap_or_default();
        let trace = match self.tracer() {
            Some(tracer) => {
                let before = self.trace_of_run(&key.owner, &run.run).await;
                let state = headers.iter().find(|(name, _)| name == "tracestate");
                let state = TraceState::parse(state.map(|(_, value)| value.as_str()));
                Some(RunTrace::new(tracer.clone(), before, state))
            }
            None => None,
        };
        if let Some(trace) = &trace {
            trace.set_header(&mut headers);
        }
        let job = Job {
            trace,
            requested: Instant::now(),
            gateway: self.clone(),
            agent,
            owner: key.owner.clone(),
            run: run.clone(),
            input,
            answers,
            cut,
            // The page that sent the request to a run that began is gone.
            one_message,
            has_start_in_log,
            headers: headers.into(),
            context: None,
            live: live.0,
            commands: live.1,
            logged: (!is_queued).then(|| logged.to_vec()),
        };
        self.tasks().spawn(cpu_work::watched(Expected::LongStart, job.drive()));
        Ok(true)
    }

    /// Registers a live run of this process.
    pub(super) fn new_live_run(
        &self,
        key: &RunKey,
        run: &Run,
        agent: &AgentEntry,
        asked: Option<OnDisconnect>,
        seats: Option<OwnerSeats>,
    ) -> (Arc<LiveRun>, tokio::sync::mpsc::Receiver<crate::stream::live::Command>) {
        if self.lease().begin_inbox() {
            self.tasks().spawn(self.clone().serve_inbox());
        }
        let cancel = asked.unwrap_or(agent.settings.on_disconnect) == OnDisconnect::Cancel;
        let limits = &self.settings().limits;
        let (live, commands) = LiveRun::new(key.clone(), run.thread.clone(), run.next_seq.0, limits);
        live.set_fence(run.fence);
        self.register_run(&live, seats);
        if cancel {
            self.tasks().spawn(self.clone().stop_when_unread(live.clone()));
        }
        (live, commands)
    }

    /// Stops a run when no client has read it, here or at another process, for [`UNREAD`].
    pub(crate) async fn stop_when_unread(self, live: Arc<LiveRun>) {
        let ended = live.clone().ended();
        tokio::pin!(ended);
        let (mut was_read, mut unread_since) = (false, None);
        loop {
            let is_read = live.reader_count() > 0
                || self.store().has_readers(&live.key, self.holder()).await.unwrap_or(true);
            was_read |= is_read;
            // A run that was continued waits for its first reader.
            if is_read || !was_read {
                unread_since = None;
            } else if unread_since.get_or_insert_with(Instant::now).elapsed() >= UNREAD {
                return live.stop("the client has gone").await;
            }
            tokio::select! {
                () = &mut ended => return,
                () = tokio::time::sleep(UNREAD / 5) => {}
            }
        }
    }

    /// All events of a log that is kept exactly.
    pub(crate) async fn whole_log(&self, key: &RunKey) -> Result<Vec<Bytes>, StoreError> {
        let mut events: Vec<Bytes> = Vec::new();
        loop {
            let after = (events.len() as u64).checked_sub(1).map(Seq);
            match self.store().read(&key.owner, &key.run, after, PAGE).await? {
                Log::Exact(slice) if !slice.events.is_empty() => events.extend(slice.events),
                _ => return Ok(events),
            }
        }
    }
}

/// True if the client that started a run follows it in the format of the AI SDK, which shows all its messages as one.
fn is_ai_sdk(input: &agentwire_core::event::RunInput) -> bool {
    let format = ag_ui::input::stored_output_format(input);
    format.is_some_and(|format| format.split('@').next() == Some(agentwire_core::format::ai_sdk::FORMAT.name))
}
