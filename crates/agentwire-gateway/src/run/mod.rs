//! One run, from the thread's lease to the terminal event.
//!
//! One task drives a run ([`Job::drive`]) and is the only writer of its log. An event takes this path:
//!
//! ```text
//! agent ─▶ EventSink ─▶ run_agent (here) ─▶ ids.rs, snapshots.rs ─▶ hooks.rs ─▶ resume.rs ─▶ recorder.rs: guard ─▶ fold ─▶ encode ─▶ append ─▶ readers
//! ```
//!
//! Before it, [`admission`] has created the run in the store (under a derived id if it answers under the id of the run that
//! waits: [`continuation`]), and [`input`] loads the messages and the state that it starts
//! with. [`control`] executes commands between two appends, [`deadlines`] enforces timeouts, and [`finish`] appends the one
//! terminal event together with its consequences: status, conversation, state, pending items.

pub(crate) mod admission;
pub(crate) mod continuation;
mod control;
mod deadlines;
mod finish;
mod folded;
mod hooks;
mod ids;
pub(crate) mod input;
mod orphan;
mod recorder;
pub(crate) mod remote;
mod resume;
mod size;
mod snapshots;
pub(crate) mod trace;

use std::{
    future::poll_fn,
    panic::AssertUnwindSafe,
    sync::{Arc, atomic::Ordering::Relaxed},
    task::Poll,
    time::Duration,
};

use agentwire_core::{
    event::{Body, Event, MessageId, Outcome, ResumeEntry, Role, RunFinished, RunInput, RunStarted},
    fold::{Fold, Join},
    json::Json,
};
use agentwire_store::{Acquire, Owner, Run, RunKey, RunStatus, Seq, StoreError};
use bytes::Bytes;
use futures_util::FutureExt;
use prometheus_client::metrics::gauge::Gauge;
use tokio::{sync::mpsc, time::Instant};

use self::{
    deadlines::Deadlines,
    input::StartingData,
    recorder::{FLUSH_AT, RunRecorder},
    size::{ThreadSize, messages_size},
    trace::{RunFacts, RunTrace},
};
use crate::{
    agent::{EventSink, Pauses, Request, RequestContext},
    codes, cpu_work,
    error::{RunFailure, UpstreamError, UpstreamErrorKind},
    gateway::{AgentEntry, Gateway},
    hooks::{HeldLock, RunContext},
    human::{
        approval::{self, Decisions, Gated},
        validate::{self, CheckedAnswer},
    },
    limits::{BreakerCall, Party},
    metrics,
    replica::{RELEASED, TAIL_LOST, TAKEN_OVER},
    stream::live::{Command, LiveRun, LogFailure},
    wake_set::WakeSet,
};

/// Events that an agent may be ahead of the log: enough to fill an append, few enough to stop it soon.
const EVENT_QUEUE: usize = 256;

/// The longest wait of RUN_STARTED for the first event of a HAI agent, which names the run's message.
const START_WAIT: Duration = Duration::from_millis(500);

/// Interval at which a queued run checks its thread, in addition to the notification of this process.
const QUEUE_POLL: Duration = Duration::from_millis(250);

/// The data that a run is driven with.
pub(crate) struct Job {
    pub(crate) gateway: Gateway,
    pub(crate) agent: Arc<AgentEntry>,
    pub(crate) owner: Owner,
    pub(crate) run: Run,
    /// The run input of the client, without its answers.
    pub(crate) input: RunInput,
    /// The answers that started the run.
    pub(crate) answers: Vec<CheckedAnswer>,
    /// The message after which the conversation continues anew.
    pub(crate) cut: Option<MessageId>,
    /// The client shows all messages of the run as one, under the run's id.
    pub(crate) one_message: bool,
    /// The log begins with the messages and the state before the run.
    pub(crate) has_start_in_log: bool,
    pub(crate) headers: Arc<[(String, String)]>,
    pub(crate) context: Option<RequestContext>,
    pub(crate) live: Arc<LiveRun>,
    pub(crate) commands: mpsc::Receiver<Command>,
    /// The log of a gateway that died during the run.
    pub(crate) logged: Option<Vec<Bytes>>,
    pub(crate) trace: Option<Box<RunTrace>>,
    /// The time of the request.
    pub(crate) requested: Instant,
}

/// The reason why a run ends.
enum RunEnd {
    /// The terminal event is staged.
    Staged,
    /// The agent has returned without a terminal event.
    AgentDone,
    Failed(RunFailure),
    /// Stopped by a command, with the reason.
    Stopped(&'static str),
}

/// The futures that a run waits for, in the order of their precedence.
const COMMANDS: usize = 0;
const SHUTDOWN: usize = 1;
const GIVE_UP: usize = 2;
const TIMER: usize = 3;
const START: usize = 4;
const AGENT: usize = 5;
const EVENTS: usize = 6;
const SOURCES: usize = 7;

/// The next step of a run.
enum Next<D> {
    Command(Command),
    Shutdown,
    GiveUp,
    Timer,
    StartWait,
    AgentDone(D),
    /// The number of events received; 0 after the last one.
    Events(usize),
}

/// A step before the agent is called: its value, or the end of the run.
type Step<T> = Result<T, RunEnd>;

impl Job {
    pub(crate) async fn drive(self) {
        let live = self.live.clone();
        let gateway = self.gateway.clone();
        let lock = self.agent.lock.clone().map(|lock| Arc::new(HeldLock::new(lock, self.context())));
        // A panic must not end the process. The lease expires, and maintenance appends the terminal event then.
        if AssertUnwindSafe(self.record(lock.clone())).catch_unwind().await.is_err() {
            tracing::error!(run = %live.key.run, "a run panicked");
            let message = "the gateway failed; its log has more";
            gateway.mark_log_failed(&live, LogFailure { code: codes::INTERNAL, message });
        }
        if let Some(lock) = lock {
            lock.release().await;
        }
        gateway.unregister_run(&live);
    }

    /// The run as its hooks see it.
    fn context(&self) -> RunContext {
        RunContext {
            agent: (&*self.agent.name).into(),
            owner: self.owner.clone(),
            thread: self.run.thread.clone(),
            run: self.run.run.clone(),
            headers: self.headers.clone(),
            input: Arc::new(self.input.clone()),
            context: self.context.clone(),
            tasks: self.gateway.tasks().clone(),
        }
    }

    async fn record(mut self, lock: Option<Arc<HeldLock>>) {
        let context = self.agent.hooks.is_some().then(|| self.context());
        let mut recorder = RunRecorder::new(&mut self, lock);
        let result = recorder.execute(&mut self, context.as_ref()).await;
        if let Err(failure) = result {
            self.gateway.mark_log_failed(&self.live, failure);
        }
        // A run that goes on elsewhere, or whose log cannot be written.
        recorder.finish_trace(recorder.run.status, Some(codes::GATEWAY_LOST));
        for (rule, times) in recorder.repairs() {
            self.gateway
                .metrics()
                .repairs
                .get_or_create(&metrics::RuleLabel { rule: rule.name() })
                .inc_by(times);
        }
    }
}

impl RunRecorder {
    /// Executes the run. Fails only if its log cannot be written any more.
    async fn execute(&mut self, job: &mut Job, context: Option<&RunContext>) -> Result<(), LogFailure> {
        let logged = job.logged.take();
        let is_reattached = logged.is_some();
        let request = match self.prepare(job, logged, context).await? {
            Ok(request) => request,
            Err(end) => return self.finish(end).await,
        };
        self.control.request = Some(request.clone());
        let end = self.run_agent(&request, &mut job.commands, is_reattached).await?;
        if self.thread.recall_failed.load(Relaxed) {
            // If the user's message were stored, the thread would not be new on the next run, and its history on the
            // agent's side would never be recalled.
            let state = self.encoding.join.fold().state().clone();
            self.encoding.join = Join::new(Fold::from_history(Vec::new(), Some(state)));
        }
        let has_failed_hook = self.hooks.as_ref().is_some_and(|hooks| hooks.is_failed);
        let leaves_agent_running = match &end {
            RunEnd::Failed(failure) => failure.leaves_agent_running(),
            RunEnd::Stopped(_) => true,
            RunEnd::Staged | RunEnd::AgentDone => false,
        };
        if has_failed_hook || leaves_agent_running {
            let stop = self.agent.agent.stop(request);
            self.gateway.tasks().spawn(stop);
        }
        self.finish(end).await
    }

    /// Everything before the call of the agent: the thread, the hooks, the input, the decisions of the approval gate.
    async fn prepare(
        &mut self,
        job: &mut Job,
        logged: Option<Vec<Bytes>>,
        context: Option<&RunContext>,
    ) -> Result<Step<Request>, LogFailure> {
        let commands = &mut job.commands;
        if self.run.status == RunStatus::Queued
            && let Some(end) = self.acquire_thread(commands).await?
        {
            return Ok(Err(end));
        }
        // The run that had the thread since the admission may have left a question, and an agent that waits for an answer
        // accepts no other request.
        if let Ok(Some(open)) = self.gateway.unanswered_item(&self.owner, &self.run.thread, &[]).await {
            let failure = Box::new(validate::unanswered(open.as_str()));
            return Ok(Err(RunEnd::Failed(failure.into())));
        }
        if let Some(end) = self.start_hooks(context, commands).await? {
            if matches!(end, RunEnd::Stopped(_))
                && let Err(error) = self.load_thread(job.input.clone(), job.cut.as_ref()).await
            {
                tracing::warn!(run = %self.run.run, %error, "the messages of a stopped run were not stored");
            }
            return Ok(Err(end));
        }
        let mut input = match self.load_thread(job.input.clone(), job.cut.as_ref()).await {
            Ok(input) => input,
            Err(error) => return Ok(Err(RunEnd::Failed((&error).into()))),
        };
        if let Err(error) = self.load_agent_ids(&input, &job.answers).await {
            return Ok(Err(RunEnd::Failed((&error).into())));
        }
        input.resume = validate::resume_of(&job.answers);
        if self.hooks.is_some() {
            input = match self.filter_input(input).await {
                Ok(input) => input,
                Err(failure) => return Ok(Err(RunEnd::Failed(failure))),
            };
        }
        let mut decisions = approval::take_decisions(&mut input, &job.answers);
        for result in decisions.denied.drain(..) {
            input.messages.push(approval::message(&result));
            let event = Event::new(Body::ToolResult(Box::new(result)));
            let _seat = self.reserve(&event).await;
            self.stage(event);
        }
        if let Err(failure) = self.stage_queued().await {
            return Ok(Err(RunEnd::Failed(failure)));
        }
        if let Some(logged) = &logged {
            let recalled = self.reattach(logged);
            input::apply_recalled(&mut input, &recalled);
            recalled.iter().for_each(|event| self.add_recalled(event));
        }
        let waits_for_agent = self.agent.agent.speaks_hai() && logged.is_none();
        if !waits_for_agent || decisions.is_open() {
            self.flush().await?;
        }
        if decisions.is_open() {
            self.stage_approved_calls(decisions, input.resume.take());
            return Ok(Err(RunEnd::Staged));
        }
        // A HAI agent may be started with a state alone.
        let starts_with_state = self.agent.agent.speaks_hai() && job.input.messages.is_empty();
        if !has_input(&input) && !starts_with_state {
            return Ok(Err(RunEnd::Failed(RunFailure::NoInput)));
        }
        self.ids.restore(&mut input);
        let native_hooks = self.native_hooks();
        let settings = &self.agent.settings;
        Ok(Ok(Request {
            input: Arc::new(input),
            owner: self.owner.clone(),
            agent: (&*self.agent.name).into(),
            thread_ids: self.run.thread_ids,
            has_users: self.gateway.has_users(),
            upstream_identity: settings.upstream_identity.clone(),
            upstream_scope: self.run.upstream_scope.clone(),
            headers: job.headers.clone(),
            timeouts: settings.timeouts,
            limits: settings.limits,
            native_hooks,
            pauses: Pauses::default(),
            unknown_events: Arc::default(),
            context: job.context.clone(),
        }))
    }

    /// Ends the run with the calls that a person has approved pending. The agent continues when their results arrive.
    fn stage_approved_calls(&mut self, decisions: Decisions, carried: Option<Vec<ResumeEntry>>) {
        let Decisions { allowed, opened, .. } = decisions;
        if let Some(messages) = approval::edited(self.encoding.join.messages(), &allowed) {
            self.stage(Event::new(Body::MessagesSnapshot { messages }));
        }
        let calls: Vec<_> = allowed.into_iter().map(|(call, _)| call).collect();
        let mut finished = RunFinished::new(self.run.thread.clone(), self.run.run.clone());
        finished.outcome = Some(match opened.is_empty() {
            true => Outcome::Success { pending: calls.clone() },
            false => Outcome::Interrupt { interrupts: opened },
        });
        self.approvals.is_granted = true;
        self.approvals.gated =
            Gated { allowed: calls, carried: carried.unwrap_or_default(), ..Gated::default() };
        self.stage(Event::new(Body::RunFinished(Box::new(finished))));
    }

    /// Waits until the run has the lease of its thread; the end of the run if it was stopped before.
    async fn acquire_thread(
        &mut self,
        commands: &mut mpsc::Receiver<Command>,
    ) -> Result<Option<RunEnd>, LogFailure> {
        self.gateway.metrics().lock_waits.inc();
        let gateway = self.gateway.clone();
        let _queued = Queued::new(&gateway.metrics().runs_queued);
        let mut is_revived = false;
        // Without a key the headers of its request are not stored.
        let settings = &self.agent.settings;
        let mut can_be_released = gateway.store().outlives_process()
            && (settings.forward_headers.is_empty() || gateway.headers_key(settings).is_some());
        loop {
            let run_ended = gateway.run_ended().notified();
            let mut held = None;
            if can_be_released && gateway.is_draining() {
                if self.release().await {
                    return Err(RELEASED);
                }
                can_be_released = false;
            }
            match gateway.store().acquire(&self.owner, &self.run.run, self.position.fence).await {
                Ok(Acquire::Granted(lease)) => {
                    self.position.fence = lease.fence;
                    self.live.set_fence(lease.fence);
                    return Ok(None);
                }
                Ok(Acquire::Held(lease)) => {
                    held = Some(RunKey { owner: self.owner.clone(), run: lease.run });
                    is_revived = false;
                }
                Ok(Acquire::Orphan(orphan)) => match gateway.settle_orphan(&self.owner, &orphan).await {
                    Ok(()) if !gateway.is_draining() => continue,
                    Ok(()) => {}
                    Err(error) => tracing::warn!(run = %orphan, %error, "an orphan could not be settled yet"),
                },
                // The lease of this process may only have expired.
                Err(StoreError::Fenced) if !is_revived => {
                    is_revived = gateway.renew_lease().await.is_ok();
                    continue;
                }
                Err(error) if error.is_fault() => {}
                Err(error) => return Err(log_failure(&error)),
            }
            let held_ended = async {
                match &held {
                    Some(held) => _ = gateway.store().changed(held, Seq::MAX).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = run_ended => {}
                () = held_ended => {}
                () = tokio::time::sleep(QUEUE_POLL) => {}
                () = self.live.give_up.cancelled() => return Err(TAKEN_OVER),
                () = gateway.drain_begun().cancelled(), if can_be_released => {}
                () = gateway.shutdown().cancelled(), if !can_be_released => {
                    return Ok(Some(RunEnd::Failed(RunFailure::Shutdown)));
                }
                Some(command) = commands.recv() => {
                    if let Some(end) = self.execute_command(command).await {
                        return Ok(Some(end));
                    }
                }
            }
        }
    }

    /// Notes the first event of the agent, which was called at `called`.
    fn note_first_event(&mut self, called: Instant) {
        self.gateway.health().note_first_event(&self.agent.name, called.elapsed());
        if let Some(trace) = &mut self.trace {
            trace.note_first_event(called.elapsed());
        }
        let agent = metrics::AgentLabel { agent: self.agent.name.to_string() };
        let since = self.requested.elapsed().as_secs_f64();
        self.gateway.metrics().first_event_seconds.get_or_create(&agent).observe(since);
    }

    /// Ends the trace, once.
    pub(super) fn finish_trace(&mut self, status: RunStatus, cause: Option<&str>) {
        if let Some(trace) = self.trace.take() {
            let events = self.position.next + self.encoding.staged.len() as u64;
            trace.finish(&RunFacts { agent: &self.agent.name, input: &self.input, status, cause, events });
        }
    }

    /// Gives up the claim on the run, so that another process continues it.
    async fn release(&mut self) -> bool {
        let released = self.gateway.store().release(&self.owner, &self.run.run, self.position.fence).await;
        match &released {
            Ok(()) => tracing::info!(run = %self.run.run, "a run was released to other gateways"),
            Err(error) => tracing::warn!(run = %self.run.run, %error, "a run could not be released"),
        }
        released.is_ok()
    }

    /// Loads the stored messages and state, merges them with the client's, and stages RUN_STARTED.
    async fn load_thread(
        &mut self,
        mut input: RunInput,
        cut: Option<&MessageId>,
    ) -> Result<RunInput, StoreError> {
        let merging =
            (self.gateway.settings().history(&self.agent.settings), self.agent.settings.state_key.as_deref());
        let start = StartingData::read(&self.gateway, merging, &self.owner, &input, cut).await?;
        let StartingData {
            messages,
            dropped,
            state,
            is_state_known,
            state_seq,
            stored_state,
            bytes,
            is_new,
            conversation,
        } = start;
        self.ids.add_earlier(&dropped);
        self.ids.add_earlier(&messages);
        self.thread.is_known_to_client = snapshots::has_all(&input.messages, &messages);
        let write = || {
            let length = conversation.as_ref().map(|stored| stored.stored_length(&messages));
            (Json::from(&state), length.unwrap_or_else(|| messages_size(&messages)))
        };
        let (state_text, message_bytes) = cpu_work::in_place_by_length(&self.owner, bytes, write).await;
        self.encoding.size =
            ThreadSize::new(&self.gateway.settings().limits, message_bytes, state_text.get().len());
        self.encoding.join = Join::new(Fold::from_history(messages.clone(), Some(state)));
        (self.thread.state_seq, self.thread.stored_state, self.thread.is_new) =
            (state_seq, stored_state, is_new);
        self.thread.conversation = conversation;
        let mut started = RunStarted::new(self.run.thread.clone(), self.run.run.clone());
        started.parent_run = input.parent_run.clone();
        let metadata = self.trace.as_ref().map(|trace| trace.metadata());
        self.stage(Event::new(Body::RunStarted(Box::new(started))).with_metadata(metadata));
        // A client can apply patches only to the state that it has.
        if self.has_start_in_log || !is_state_known {
            let snapshot = Event::new(Body::StateSnapshot { snapshot: state_text.clone() });
            let _seat = self.reserve(&snapshot).await;
            self.stage(snapshot);
        }
        if self.has_start_in_log {
            let snapshot = Event::new(Body::MessagesSnapshot { messages: messages.clone() });
            let _seat = self.reserve(&snapshot).await;
            self.stage(snapshot);
            self.thread.is_known_to_client = true;
        }
        input.messages = messages;
        input.state = Some(state_text);
        self.input = input.clone();
        Ok(input)
    }

    /// Tells the circuit breaker of the agent whether the agent could be reached.
    fn note_call(&self, call: Option<&mut BreakerCall>, result: Result<(), &RunFailure>) {
        let Some(call) = call else { return };
        let agent = &self.agent.name;
        match result {
            Err(RunFailure::Upstream(error)) if error.is_outage() => {
                if call.failed() {
                    let label = metrics::AgentLabel { agent: agent.to_string() };
                    self.gateway.metrics().breaker_opened.get_or_create(&label).inc();
                    let open = self.agent.settings.breaker.open;
                    tracing::warn!(%agent, ?open, "the agent cannot be reached and is not called for a while");
                }
            }
            Err(RunFailure::Upstream(error)) if !error.is_of_agents_side() => {}
            Ok(()) | Err(RunFailure::Upstream(_)) => {
                if call.succeeded() {
                    tracing::info!(%agent, "the agent can be reached again");
                }
            }
            Err(_) => {}
        }
    }

    /// Calls the agent and records its events until the run ends.
    async fn run_agent(
        &mut self,
        request: &Request,
        commands: &mut mpsc::Receiver<Command>,
        is_reattached: bool,
    ) -> Result<RunEnd, LogFailure> {
        let mut call = match is_reattached {
            true => None,
            // Open since the admission: this run was queued, or many began at once.
            false => match self.agent.breaker.begin() {
                Ok(call) => Some(call),
                Err(wait) => {
                    let error = UpstreamError::from(UpstreamErrorKind::Unavailable);
                    let error = error.with_retry_after(Some(wait.as_secs() + 1));
                    return Ok(RunEnd::Failed(error.into()));
                }
            },
        };
        let (sink, mut events) = EventSink::new(EVENT_QUEUE);
        let (entry, request_of_agent) = (self.agent.clone(), request.clone());
        let policy = self.gateway.settings().history(&self.agent.settings);
        let (is_new, recall_failed) = (self.thread.is_new, self.thread.recall_failed.clone());
        let payer = self.encoding.size.is_large().then(|| Party::user(&self.owner));
        // The calls are inside the future, so that a panic before the agent's own future exists is caught as well.
        let agent = async move {
            if is_reattached {
                let reattached = entry.agent.attach(request_of_agent, sink).ok_or(RunFailure::Lost)?;
                return Ok(reattached.await?);
            }
            let request = match is_new {
                true => input::recall(&entry, policy, request_of_agent, &sink)
                    .await
                    .inspect_err(|_| recall_failed.store(true, Relaxed))?,
                false => request_of_agent,
            };
            let run = entry.agent.run(request, sink);
            match payer {
                // The agent's request has the whole thread in it.
                Some(payer) => Ok(Box::pin(cpu_work::long_start(payer, run)).await?),
                None => Ok(run.await?),
            }
        };
        let agent = AssertUnwindSafe(agent).catch_unwind();
        tokio::pin!(agent);
        let mut deadlines = Deadlines::start(&request.timeouts, self.agent.agent.enforces_stream_timeouts());
        let timer = tokio::time::sleep_until(deadlines.next_check());
        tokio::pin!(timer);
        let give_up = self.live.give_up.clone().cancelled_owned();
        tokio::pin!(give_up);
        // Registered once: all runs share the token, and registering for each event would contend for its lock.
        let shutdown = self.gateway.shutdown().clone().cancelled_owned();
        tokio::pin!(shutdown);
        let start_wait = tokio::time::sleep(START_WAIT);
        tokio::pin!(start_wait);
        let (mut result, mut is_open) = (None, true);
        let mut paused_at: Option<Instant> = None;
        let mut received = Vec::new();
        let mut called_at = Some(Instant::now());
        let mut wakes = WakeSet::<SOURCES>::new();
        loop {
            let (is_waiting, is_start_held) = (self.control.is_waiting(), self.is_start_held());
            let is_agent_done = result.is_some();
            let next = poll_fn(|cx| {
                wakes.poll(cx, |wakes| {
                    // In the order of their precedence.
                    let command = wakes.poll(COMMANDS, |cx| match commands.poll_recv(cx) {
                        Poll::Ready(Some(command)) => Poll::Ready(command),
                        Poll::Ready(None) | Poll::Pending => Poll::Pending,
                    });
                    if let Poll::Ready(command) = command {
                        return Poll::Ready(Next::Command(command));
                    }
                    if wakes.poll(SHUTDOWN, |cx| shutdown.as_mut().poll(cx)).is_ready() {
                        return Poll::Ready(Next::Shutdown);
                    }
                    if wakes.poll(GIVE_UP, |cx| give_up.as_mut().poll(cx)).is_ready() {
                        return Poll::Ready(Next::GiveUp);
                    }
                    if !is_waiting && wakes.poll(TIMER, |cx| timer.as_mut().poll(cx)).is_ready() {
                        return Poll::Ready(Next::Timer);
                    }
                    if is_start_held && wakes.poll(START, |cx| start_wait.as_mut().poll(cx)).is_ready() {
                        return Poll::Ready(Next::StartWait);
                    }
                    if !is_waiting
                        && !is_agent_done
                        && let Poll::Ready(done) = wakes.poll(AGENT, |cx| agent.as_mut().poll(cx))
                    {
                        return Poll::Ready(Next::AgentDone(done));
                    }
                    if !is_waiting && is_open {
                        let events =
                            wakes.poll(EVENTS, |cx| events.poll_recv_many(cx, &mut received, EVENT_QUEUE));
                        return events.map(Next::Events);
                    }
                    Poll::Pending
                })
            });
            match next.await {
                Next::Command(command) => {
                    let paused_before = self.control.is_waiting().then_some(paused_at).flatten();
                    if let Some(end) = self.execute_command(command).await {
                        return Ok(end);
                    }
                    match (paused_before, self.control.is_waiting()) {
                        (Some(since), false) => {
                            deadlines.extend(since.elapsed());
                            timer.as_mut().reset(deadlines.next_check());
                            wakes.mark(TIMER);
                        }
                        (None, true) => paused_at = Some(Instant::now()),
                        _ => {}
                    }
                    if let Err(failure) = self.stage_queued().await {
                        return Ok(RunEnd::Failed(failure));
                    }
                    self.flush().await?;
                    if let Some(failure) = self.exceeded_limit() {
                        return Ok(RunEnd::Failed(failure));
                    }
                }
                Next::Shutdown => {
                    if self.gateway.store().outlives_process()
                        && self.agent.agent.attach(request.clone(), EventSink::new(1).0).is_some()
                        && self.release().await
                    {
                        return Err(RELEASED);
                    }
                    return Ok(RunEnd::Failed(RunFailure::Shutdown));
                }
                Next::GiveUp => return Err(TAKEN_OVER),
                Next::Timer => {
                    if !events.is_empty() {
                        // The gateway was slow, not the agent.
                        deadlines.note_event();
                    }
                    if let Some(timeout) = deadlines.expired() {
                        let failure = UpstreamError::from(timeout).into();
                        self.note_call(call.as_mut(), Err(&failure));
                        return Ok(RunEnd::Failed(failure));
                    }
                    timer.as_mut().reset(deadlines.next_check());
                }
                Next::StartWait => self.flush().await?,
                Next::AgentDone(done) => {
                    if let Ok(done) = &done {
                        self.note_call(call.as_mut(), done.as_ref().copied());
                    }
                    result = Some(done);
                    // No more events are accepted, even if a clone of the sink is still alive.
                    events.close();
                    wakes.mark(EVENTS);
                }
                Next::Events(count) => {
                    is_open = count > 0;
                    if is_open && let Some(called) = called_at.take() {
                        self.note_first_event(called);
                        self.note_call(call.as_mut(), Ok(()));
                    }
                    self.received = Some(Instant::now());
                    let mut arrived = received.drain(..).peekable();
                    while let Some(event) = arrived.next() {
                        let recorded = match &self.hooks {
                            None => {
                                let _seat = self.reserve(&event).await;
                                self.record_entered(event)
                            }
                            // Boxed, so that the future of a run without hooks does not grow.
                            Some(_) => {
                                let batch = self.enter_batch(event, &mut arrived);
                                Box::pin(self.record_through_hooks(batch)).await
                            }
                        };
                        if let Err(failure) = recorded {
                            return Ok(RunEnd::Failed(failure));
                        }
                        if self.encoding.terminal.is_some() {
                            return Ok(RunEnd::Staged);
                        }
                        // For each event: a small one can copy a large value, and many were received at once.
                        if let Some(failure) = self.exceeded_limit() {
                            return Ok(RunEnd::Failed(failure));
                        }
                        if self.position.bytes - self.position.appended > FLUSH_AT {
                            self.flush().await?;
                            // Readers on the same worker get a chance to follow.
                            tokio::task::yield_now().await;
                        }
                    }
                    self.flush().await?;
                    if deadlines.note_event() {
                        timer.as_mut().reset(deadlines.next_check());
                        wakes.mark(TIMER);
                    }
                }
            }
            if !is_open
                && !self.control.is_waiting()
                && let Some(result) = result.take()
            {
                return Ok(match result {
                    Ok(Ok(())) => RunEnd::AgentDone,
                    Ok(Err(failure)) => RunEnd::Failed(failure),
                    Err(_) => RunEnd::Failed(RunFailure::Panicked),
                });
            }
        }
    }
}

/// Counts a run that waits for its thread, until it is dropped.
struct Queued(Gauge);

impl Queued {
    fn new(gauge: &Gauge) -> Self {
        gauge.inc();
        Self(gauge.clone())
    }
}

impl Drop for Queued {
    fn drop(&mut self) {
        self.0.dec();
    }
}

/// The meaning of a store error for the log of a run.
fn log_failure(error: &StoreError) -> LogFailure {
    let (code, message) = match error {
        StoreError::NotFound(_) => (codes::THREAD_DELETED, "the thread was deleted"),
        StoreError::Fenced | StoreError::Ended(_) => return TAKEN_OVER,
        StoreError::OutOfOrder { .. } => return TAIL_LOST,
        // Nobody but the run changes its thread, so this is a defect.
        StoreError::Conflict(_) => (codes::INTERNAL, "the log of the run contradicts the store"),
        _ => (codes::STORE_UNAVAILABLE, "the store does not answer or is full"),
    };
    LogFailure { code, message }
}

/// Whether the input contains a message or an answer for the agent.
fn has_input(input: &RunInput) -> bool {
    input.resume.as_ref().is_some_and(|resume| !resume.is_empty())
        || input.messages.iter().any(|message| matches!(message.role(), Role::User | Role::Tool))
}
