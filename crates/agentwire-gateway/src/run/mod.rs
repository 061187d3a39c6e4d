//! One run, from its thread to its ending.
//!
//! The task that drives a run is the only one that writes its log: the agent's events go through the guard, are
//! folded, numbered and appended, and only then shown to readers. Whatever happens on the way, there is one ending,
//! and it is in the log together with what follows from it: the conversation, the state, what waits for a person.

pub(crate) mod admission;
mod deadlines;
mod finish;
mod hooks;
pub(crate) mod input;
mod recorder;
mod resume;

use std::{
    panic::AssertUnwindSafe,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use agentwire_core::{
    event::{Body, Event, MessageId, Outcome, ResumeEntry, RunFinished, RunInput, RunStarted},
    fold::{Fold, Join},
    format::ag_ui,
    json::Json,
    order::Guard,
    patch::{self, Patch},
};
use agentwire_store::{Acquire, Fence, Owner, Run, RunStatus, StoreError};
use bytes::Bytes;
use futures_util::FutureExt;
use tokio::{
    sync::{mpsc, oneshot},
    time::{Instant, MissedTickBehavior},
};

use self::{
    deadlines::Deadlines,
    input::StartingData,
    recorder::{FLUSH_AT, MAX_EVENT},
    resume::Reattachment,
};
use crate::{
    agent::{EventSink, NativeHooks, PauseMode, Pauses, Request},
    codes,
    error::{ApiError, RunFailure, UpstreamError},
    gateway::{AgentEntry, Gateway},
    hooks::{HeldLock, RunContext},
    human::{
        approval::{self, Decisions, Gated},
        pending,
        validate::{self, CheckedAnswer},
    },
    metrics,
    stream::{
        live::{Command, LiveRun, LiveState, LogFailure, Prelude, Snapshot},
        log_codec::{Decoder, Encoder},
    },
};

/// How many events an agent may be ahead of the log: enough to fill an append, little enough to stop it soon.
const AHEAD: usize = 256;

/// The longest pause between two looks at a thread that is taken.
const QUEUE_POLL: Duration = Duration::from_millis(250);

/// The event that tells readers that a run is held or goes on.
pub(crate) const RUN_STATUS: &str = "hai.run_status";

/// What is needed to drive a run.
pub(crate) struct Job {
    pub(crate) gateway: Gateway,
    pub(crate) agent: Arc<AgentEntry>,
    pub(crate) owner: Owner,
    pub(crate) run: Run,
    /// The run input of the client, without its answers.
    pub(crate) input: RunInput,
    /// The answers that started the run.
    pub(crate) answers: Vec<CheckedAnswer>,
    /// A message after which the client wants the conversation to go on anew.
    pub(crate) cut: Option<MessageId>,
    /// The client holds all that the run says as one message, under the run's id.
    pub(crate) one_message: bool,
    pub(crate) headers: Arc<[(String, String)]>,
    pub(crate) live: Arc<LiveRun>,
    pub(crate) commands: mpsc::Receiver<Command>,
    /// The log of a gateway that died during the run.
    pub(crate) logged: Option<Vec<Bytes>>,
}

/// Why an agent's part of a run is over.
enum Ending {
    /// The terminal event is staged.
    Said,
    /// It has nothing more to say.
    Done,
    Failed(RunFailure),
    Stopped(&'static str),
}

impl Job {
    pub(crate) async fn drive(self) {
        let live = self.live.clone();
        let gateway = self.gateway.clone();
        let lock = self.agent.lock.clone().map(|lock| Arc::new(HeldLock::new(lock, self.context())));
        // A bug of ours must not take the process along; the claim expires, and the run gets its ending then.
        if AssertUnwindSafe(self.go(lock.clone())).catch_unwind().await.is_err() {
            tracing::error!(run = %live.key.run, "a run panicked");
            let broken =
                LogFailure { code: codes::INTERNAL, message: "the gateway failed; its log has more" };
            gateway.mark_log_failed(&live, broken);
        }
        if let Some(lock) = lock {
            lock.release().await;
        }
        gateway.unregister_run(&live);
    }

    /// What the run is about, for its hooks.
    fn context(&self) -> RunContext {
        RunContext {
            agent: (&*self.agent.name).into(),
            owner: self.owner.clone(),
            thread: self.run.thread.clone(),
            run: self.run.run.clone(),
            headers: self.headers.clone(),
            tasks: self.gateway.tasks().clone(),
        }
    }

    async fn go(self, lock: Option<Arc<HeldLock>>) {
        let context = self.agent.hooks.is_some().then(|| self.context());
        let Self { gateway, agent, owner, run, input, answers, cut, one_message, headers, .. } = self;
        let (live, mut commands, logged) = (self.live, self.commands, self.logged);
        let (thread, id) = (run.thread.clone(), run.run.clone());
        let mut recorder = RunRecorder {
            guard: Guard::new(thread.clone(), id.clone()),
            encoder: Encoder::new(&thread, &id),
            join: Join::new(Fold::new()),
            staged: Vec::new(),
            valid: Vec::new(),
            started: false,
            one_message,
            terminal: None,
            oversized: None,
            next: run.next_seq.0,
            fence: run.fence,
            bytes: 0,
            written: 0,
            state_seq: 0,
            stored_state: None,
            allowed: false,
            gated: Gated::default(),
            is_new: false,
            unread: Arc::default(),
            held: run.status == RunStatus::Paused,
            hold: None,
            asked: None,
            again: None,
            told: None,
            waiting: Vec::new(),
            steps: Vec::new(),
            hooks: None,
            lock,
            input: input.clone(),
            agent: agent.clone(),
            owner: owner.clone(),
            run,
            live,
            gateway,
        };
        let result = recorder
            .answer(&owner, input, &answers, cut.as_ref(), headers, &mut commands, logged, context)
            .await;
        if let Err(broken) = result {
            recorder.gateway.mark_log_failed(&recorder.live, broken);
        }
        for (rule, times) in recorder.guard.repairs() {
            recorder
                .gateway
                .metrics()
                .repairs
                .get_or_create(&metrics::RuleLabel { rule: rule.name() })
                .inc_by(times);
        }
    }
}

/// Where events are made ready for the log.
struct RunRecorder {
    gateway: Gateway,
    agent: Arc<AgentEntry>,
    owner: Owner,
    run: Run,
    live: Arc<LiveRun>,
    /// What the agent was asked.
    input: RunInput,
    guard: Guard,
    encoder: Encoder,
    /// What clients hold once everything staged has reached them.
    join: Join,
    staged: Vec<Bytes>,
    valid: Vec<Event>,
    /// The client holds all of this as one message.
    one_message: bool,
    started: bool,
    terminal: Option<Terminal>,
    /// The size of an event that was too large for the log.
    oversized: Option<usize>,
    next: u64,
    fence: Fence,
    /// What was said so far, and what was copied by it.
    bytes: u64,
    /// How much of that is in the log.
    written: u64,
    state_seq: u64,
    stored_state: Option<String>,
    /// Whether a person has allowed what this run leaves open.
    allowed: bool,
    /// What the approval gate did.
    gated: Gated,
    /// Whether nothing is stored of the thread.
    is_new: bool,
    /// Whether the agent's side could not say what it holds of it.
    unread: Arc<AtomicBool>,
    /// Whether the agent is not listened to for now.
    held: bool,
    /// How much of it is or was held.
    hold: Option<PauseMode>,
    /// What the agent is asked, once it is.
    asked: Option<Request>,
    /// What the log has already of what the agent says.
    again: Option<Reattachment>,
    /// A status that goes into the log with the next append.
    told: Option<RunStatus>,
    /// Who waits for the next append.
    waiting: Vec<Waiter>,
    /// The steps that are open.
    steps: Vec<Box<str>>,
    /// The run's hooks, if its agent has any.
    hooks: Option<Box<hooks::RecorderHooks>>,
    lock: Option<Arc<HeldLock>>,
}

/// Somebody who waits until the log has what they asked for.
enum Waiter {
    Held(oneshot::Sender<Result<PauseMode, ApiError>>),
    Patched(oneshot::Sender<Result<(), ApiError>>),
}

/// How a run ended.
struct Terminal {
    status: RunStatus,
    cause: Option<Box<str>>,
    outcome: Option<Outcome>,
}

impl RunRecorder {
    #[expect(clippy::too_many_arguments, reason = "they are what a run consists of, each used once")]
    async fn answer(
        &mut self,
        owner: &Owner,
        input: RunInput,
        answers: &[CheckedAnswer],
        cut: Option<&MessageId>,
        headers: Arc<[(String, String)]>,
        commands: &mut mpsc::Receiver<Command>,
        logged: Option<Vec<Bytes>>,
        context: Option<RunContext>,
    ) -> Result<(), LogFailure> {
        if self.run.status == RunStatus::Queued
            && let Some(ending) = self.wait_for_thread(commands).await?
        {
            return self.finish(ending).await;
        }
        // Whoever had the thread, since this was looked at before, may have left a question behind, and an agent that waits
        // takes nothing else.
        if let Ok(Some(open)) = self.gateway.unanswered_item(&self.owner, &self.run.thread, &[]).await {
            let failure = Box::new(validate::unanswered(open.as_str()));
            return self.finish(Ending::Failed(failure.into())).await;
        }
        if let Some(ending) = self.admit_by_hooks(context.as_ref(), commands).await? {
            return self.finish(ending).await;
        }
        let mut input = match self.prepare(input, cut).await {
            Ok(input) => input,
            Err(error) => return self.finish(Ending::Failed((&error).into())).await,
        };
        input.resume = validate::resume_of(answers);
        if self.hooks.is_some() {
            input = match self.convert_input(input).await {
                Ok(input) => input,
                Err(failure) => return self.finish(Ending::Failed(failure)).await,
            };
        }
        let mut decisions = approval::take_decisions(&mut input, answers);
        for result in decisions.denied.drain(..) {
            input.messages.push(approval::message(&result));
            self.stage(Event::new(Body::ToolResult(Box::new(result))));
        }
        if let Err(failure) = self.say().await {
            return self.finish(Ending::Failed(failure)).await;
        }
        let is_again = logged.is_some();
        if let Some(logged) = logged {
            let recalled = self.catch_up(&logged);
            input::take_recalled(&mut input, &recalled);
        }
        self.flush().await?;
        if decisions.is_open() {
            // The agent goes on when somebody has done what is allowed now.
            self.open(decisions, input.resume.take());
            return self.finish(Ending::Said).await;
        }
        let input = Arc::new(input);
        if !has_something_to_answer(&input) {
            return self.finish(Ending::Failed(RunFailure::NoInput)).await;
        }
        let settings = &self.agent.settings;
        let request = Request {
            input,
            owner: owner.clone(),
            headers,
            timeouts: settings.timeouts,
            limits: settings.limits,
            native_hooks: self
                .hooks
                .as_ref()
                .map(|hooks| Arc::new(hooks.wired.clone()) as Arc<dyn NativeHooks>),
            pauses: Pauses::default(),
        };
        self.asked = Some(request.clone());
        let ending = self.listen(&request, commands, is_again).await?;
        if self.unread.load(Relaxed) {
            // Were the question kept, the thread would not be new the next time, and its past lost for good.
            let state = self.join.fold().state().clone();
            self.join = Join::new(Fold::from_history(Vec::new(), Some(state)));
        }
        let is_cut = self.hooks.as_ref().is_some_and(|hooks| hooks.is_failed);
        let leaves_agent_running = match &ending {
            Ending::Failed(failure) => failure.leaves_agent_running(),
            Ending::Stopped(_) => true,
            Ending::Said | Ending::Done => false,
        };
        if is_cut || leaves_agent_running {
            let stop = self.agent.agent.stop(request);
            self.gateway.tasks().spawn(stop);
        }
        self.finish(ending).await
    }

    /// Ends the run with what a person has allowed.
    fn open(&mut self, decisions: Decisions, carried: Option<Vec<ResumeEntry>>) {
        let Decisions { allowed, opened, .. } = decisions;
        if let Some(messages) = approval::edited(self.join.messages(), &allowed) {
            self.stage(Event::new(Body::MessagesSnapshot { messages }));
        }
        let calls: Vec<_> = allowed.into_iter().map(|(call, _)| call).collect();
        let mut finished = RunFinished::new(self.run.thread.clone(), self.run.run.clone());
        finished.outcome = Some(match opened.is_empty() {
            true => Outcome::Success { pending: calls.clone() },
            false => Outcome::Interrupt { interrupts: opened },
        });
        self.allowed = true;
        self.gated = Gated { allowed: calls, carried: carried.unwrap_or_default(), ..Gated::default() };
        self.stage(Event::new(Body::RunFinished(Box::new(finished))));
    }

    /// Waits until the run has its thread; an ending if it was stopped before.
    async fn wait_for_thread(
        &mut self,
        commands: &mut mpsc::Receiver<Command>,
    ) -> Result<Option<Ending>, LogFailure> {
        self.gateway.metrics().lock_waits.inc();
        let lease = self.gateway.settings().lease;
        let mut renewed = Instant::now();
        loop {
            let gateway = self.gateway.clone();
            let freed = gateway.run_ended().notified();
            match gateway.store().acquire(&self.owner, &self.run.run, self.fence, lease).await {
                Ok(Acquire::Granted(lease)) => {
                    self.fence = lease.fence;
                    return Ok(None);
                }
                Ok(Acquire::Held(_)) => {}
                Err(error) if error.is_fault() => {}
                Err(error) => return Err(broken(&error)),
            }
            if renewed.elapsed() > lease / 3 {
                let _ = gateway.store().renew(&self.owner, &self.run.run, self.fence, lease).await;
                renewed = Instant::now();
            }
            tokio::select! {
                () = freed => {}
                () = tokio::time::sleep(QUEUE_POLL) => {}
                () = gateway.shutdown().cancelled() => {
                    return Ok(Some(Ending::Failed(RunFailure::Shutdown)));
                }
                Some(command) = commands.recv() => {
                    if let Some(ending) = self.obey(command) {
                        return Ok(Some(ending));
                    }
                }
            }
        }
    }

    /// Reads what is stored and begins the run.
    async fn prepare(
        &mut self,
        mut input: RunInput,
        cut: Option<&MessageId>,
    ) -> Result<RunInput, StoreError> {
        let opening =
            StartingData::read(&self.gateway, &self.agent.settings, &self.owner, &input, cut).await?;
        let StartingData { messages, state, state_seq, stored_state, is_new } = opening;
        self.is_new = is_new;
        let sent_state = input.state.as_ref().map(Json::to_value);
        self.join = Join::new(Fold::from_history(messages.clone(), Some(state.clone())));
        (self.state_seq, self.stored_state) = (state_seq, stored_state);
        let mut started = RunStarted::new(self.run.thread.clone(), self.run.run.clone());
        started.parent_run = input.parent_run.clone();
        self.stage(Event::new(Body::RunStarted(Box::new(started))));
        // Changes of the state are only understood by a client that holds what they change.
        let empty = serde_json::json!({});
        if sent_state.as_ref().unwrap_or(&empty) != &state {
            self.stage(Event::new(Body::StateSnapshot { snapshot: Json::from(&state) }));
        }
        input.messages = messages;
        input.state = Some(Json::from(&state));
        self.input = input.clone();
        Ok(input)
    }

    /// Takes up where a gateway before us died. What it began with is staged.
    /// Gives what had been recalled.
    fn catch_up(&mut self, logged: &[Bytes]) -> Vec<Event> {
        let begun = self.staged.len().min(logged.len());
        self.staged.drain(..begun);
        if !self.staged.is_empty() {
            // It died before the agent was asked.
            return Vec::new();
        }
        let mut decoder = Decoder::new(&self.run.thread, &self.run.run);
        let mut events = Vec::new();
        logged[..begun].iter().for_each(|event| decoder.decode(event, &mut events));
        let mut said = Vec::new();
        logged[begun..].iter().for_each(|event| decoder.decode(event, &mut said));
        let mut unchanged = Vec::new();
        for event in &said {
            // The log is valid, so the guard lets it through and knows what is open.
            self.guard.push(event.clone(), &mut unchanged);
            self.join.apply(event);
            self.put(event);
        }
        self.staged.clear();
        let guard = Guard::new(self.run.thread.clone(), self.run.run.clone());
        let recalled = said.iter().take_while(|event| input::is_recalled(event)).cloned().collect();
        self.again = Some(Reattachment::new(guard, &events, said)).filter(|again| !again.is_over());
        recalled
    }

    /// Makes what the agent says ready for the log, unless the log has it.
    fn hear(&mut self, event: Event) -> Result<(), RunFailure> {
        let Some(mut again) = self.again.take() else {
            self.stage(event);
            return Ok(());
        };
        let mut fresh = Vec::new();
        again.take(event, &mut fresh)?;
        if again.is_over() {
            self.guard = again.into_guard();
            self.write_down(&mut fresh);
        } else {
            self.again = Some(again);
        }
        Ok(())
    }

    /// Takes down what the agent says, until there is a reason to stop.
    async fn listen(
        &mut self,
        request: &Request,
        commands: &mut mpsc::Receiver<Command>,
        is_again: bool,
    ) -> Result<Ending, LogFailure> {
        let (sink, mut events) = EventSink::new(AHEAD);
        let (entry, asked, is_new) = (self.agent.clone(), request.clone(), self.is_new);
        let unread = self.unread.clone();
        // Within the future, so that an agent that panics before it has made one is caught as well.
        let agent = async move {
            if is_again {
                let attached = entry.agent.attach(asked, sink).ok_or(RunFailure::Lost)?;
                return Ok(attached.await?);
            }
            let asked = match is_new {
                true => {
                    input::recall(&entry, asked, &sink).await.inspect_err(|_| unread.store(true, Relaxed))?
                }
                false => asked,
            };
            Ok(entry.agent.run(asked, sink).await?)
        };
        let agent = AssertUnwindSafe(agent).catch_unwind();
        tokio::pin!(agent);
        let mut watch = Deadlines::begin(&request.timeouts, self.agent.agent.enforces_stream_timeouts());
        let overdue = tokio::time::sleep_until(watch.due());
        tokio::pin!(overdue);
        let lease = self.gateway.settings().lease;
        let mut renew = tokio::time::interval_at(Instant::now() + lease / 3, lease / 3);
        renew.set_missed_tick_behavior(MissedTickBehavior::Delay);
        // Registered once: every run waits for the same token, and to wait anew for each event is a lock for all.
        let shutdown = self.gateway.shutdown().clone().cancelled_owned();
        tokio::pin!(shutdown);
        let (mut result, mut open) = (None, true);
        let mut held_at: Option<Instant> = None;
        let mut heard = Vec::new();
        loop {
            tokio::select! {
                biased;
                Some(command) = commands.recv() => {
                    let was = self.held.then_some(held_at).flatten();
                    if let Some(ending) = self.obey(command) {
                        return Ok(ending);
                    }
                    match (was, self.held) {
                        (Some(since), false) => {
                            watch.forgive(since.elapsed());
                            overdue.as_mut().reset(watch.due());
                        }
                        (None, true) => held_at = Some(Instant::now()),
                        _ => {}
                    }
                    if let Err(failure) = self.say().await {
                        return Ok(Ending::Failed(failure));
                    }
                    self.flush().await?;
                    if let Some(failure) = self.beyond_limits() {
                        return Ok(Ending::Failed(failure));
                    }
                }
                () = &mut shutdown => {
                    return Ok(Ending::Failed(RunFailure::Shutdown));
                }
                // Before what the agent says, of which there may be more at any time.
                _ = renew.tick() => self.renew().await?,
                () = &mut overdue, if !self.held => {
                    if !events.is_empty() {
                        // It was not the agent that took so long.
                        watch.heard();
                    }
                    if let Some(timeout) = watch.look() {
                        return Ok(Ending::Failed(UpstreamError::from(timeout).into()));
                    }
                    overdue.as_mut().reset(watch.due());
                }
                done = &mut agent, if result.is_none() && !self.held => {
                    result = Some(done);
                    // It has nothing more to say, whoever still holds the sink.
                    events.close();
                }
                count = events.recv_many(&mut heard, AHEAD), if open && !self.held => {
                    open = count > 0;
                    for event in heard.drain(..) {
                        let staged = match self.hooks {
                            None => self.hear(event),
                            // Boxed, so that a run without hooks has no room for them.
                            Some(_) => Box::pin(self.hear_through_hooks(event)).await,
                        };
                        if let Err(failure) = staged {
                            return Ok(Ending::Failed(failure));
                        }
                        if self.terminal.is_some() {
                            return Ok(Ending::Said);
                        }
                        // Looked at for each: a small event can make a large one, and many were heard at once.
                        if let Some(failure) = self.beyond_limits() {
                            return Ok(Ending::Failed(failure));
                        }
                        if self.bytes - self.written > FLUSH_AT {
                            self.flush().await?;
                            // Readers are behind because of us, and must get a chance to follow.
                            tokio::task::yield_now().await;
                        }
                    }
                    self.flush().await?;
                    if watch.heard() {
                        overdue.as_mut().reset(watch.due());
                    }
                }
            }
            if !open
                && !self.held
                && let Some(result) = result.take()
            {
                return Ok(match result {
                    Ok(Ok(())) => Ending::Done,
                    Ok(Err(failure)) => Ending::Failed(failure),
                    Err(_) => Ending::Failed(RunFailure::Panicked),
                });
            }
        }
    }

    fn beyond_limits(&self) -> Option<RunFailure> {
        let limits = &self.agent.settings.limits;
        let (events, bytes) = (self.next + self.staged.len() as u64, self.bytes);
        let problem = if let Some(size) = self.oversized {
            format!("an event has {size} bytes, at most {MAX_EVENT} are allowed")
        } else if events > limits.max_events {
            format!("the run has more than {} events", limits.max_events)
        } else if bytes > limits.max_bytes {
            format!("the run has more than {} bytes", limits.max_bytes)
        } else {
            return None;
        };
        Some(RunFailure::LimitExceeded(problem))
    }

    /// Extends the claim on the run. One that has expired, because this process had no time for it, comes back to life
    /// unless somebody else has taken the run.
    async fn renew(&mut self) -> Result<(), LogFailure> {
        let lease = self.gateway.settings().lease;
        match self.gateway.store().renew(&self.owner, &self.run.run, self.fence, lease).await {
            Ok(_) => Ok(()),
            // The next append finds out whether the store is back.
            Err(error) if error.is_fault() => Ok(()),
            Err(error) => Err(broken(&error)),
        }
    }

    /// Does what is asked; an ending if that is what was asked for. Nothing is staged when this is called.
    fn obey(&mut self, command: Command) -> Option<Ending> {
        match command {
            Command::Stop(why) => return Some(Ending::Stopped(why)),
            Command::DeleteThread => {
                return Some(Ending::Failed(RunFailure::ThreadDeleted));
            }
            Command::Prelude(reply) => {
                let mut encoder = Encoder::new(&self.run.thread, &self.run.run);
                let events = self.join.prelude();
                let events = events.iter().filter_map(|event| encoder.encode(event)).collect();
                let _ = reply.send(Prelude { events, next: self.next });
            }
            Command::Snapshot(reply) => {
                let messages = ag_ui::messages_to_json(self.join.messages());
                let initial_messages = ag_ui::messages_to_json(&self.input.messages);
                let state = self.join.fold().state().to_string();
                let _ = reply.send(Snapshot {
                    messages,
                    initial_messages,
                    state,
                    step: self.steps.last().cloned(),
                });
            }
            Command::SetPaused(hold, reply) => self.hold(hold, reply),
            Command::Patch(patch, reply) => match self.patch(patch) {
                // Told when the log has it, so that nobody takes for done what a crash undoes.
                Ok(()) => self.waiting.push(Waiter::Patched(reply)),
                Err(refusal) => _ = reply.send(Err(refusal)),
            },
        }
        None
    }

    /// Stops listening to the agent, or goes on.
    fn hold(&mut self, hold: bool, reply: oneshot::Sender<Result<PauseMode, ApiError>>) {
        let Some(request) = self.asked.as_ref().filter(|_| self.terminal.is_none()) else {
            let _ = reply.send(Err(ApiError::new(codes::IMPOSSIBLE, "the run does not go on now")));
            return;
        };
        if self.held == hold {
            // How much could be held is the same answer if nobody has held it yet.
            let mode = *self.hold.get_or_insert_with(|| self.agent.agent.pause(request, hold));
            let _ = reply.send(Ok(mode));
            return;
        }
        self.held = hold;
        if !hold {
            request.pauses.resume();
        }
        let mode = self.agent.agent.pause(request, hold);
        self.hold = Some(mode);
        let status = if hold { RunStatus::Paused } else { RunStatus::Running };
        self.told = Some(status);
        self.waiting.push(Waiter::Held(reply));
        let value = Json::from(serde_json::json!({"status": status.as_str(), "mode": mode.as_str()}));
        self.stage(Event::new(Body::Custom { name: RUN_STATUS.into(), value }));
    }

    fn patch(&mut self, patch: Patch) -> Result<(), ApiError> {
        if !self.started || self.terminal.is_some() {
            return Err(ApiError::new(codes::THREAD_IS_LOCKED, "a run is about to begin or has just ended")
                .retry_after(1));
        }
        let mut state = self.join.fold().state().clone();
        if let Err(error) = patch::apply(&mut state, &patch, &patch::Limits::default()) {
            // All or nothing, so this is what it was.
            return Err(ApiError::patch_failed(&error, state));
        }
        self.stage(Event::new(Body::StateDelta { patch }));
        Ok(())
    }
}

fn broken(error: &StoreError) -> LogFailure {
    let (code, message) = match error {
        StoreError::NotFound(_) => (codes::THREAD_DELETED, "the thread was deleted"),
        StoreError::Fenced | StoreError::Ended(_) => {
            (codes::GATEWAY_LOST, "another gateway has taken the run over")
        }
        _ => (codes::STORE_UNAVAILABLE, "the store does not answer or is full"),
    };
    LogFailure { code, message }
}

/// Whether there is anything that an agent could answer.
fn has_something_to_answer(input: &RunInput) -> bool {
    use agentwire_core::event::Role;
    input.resume.as_ref().is_some_and(|resume| !resume.is_empty())
        || input.messages.iter().any(|message| matches!(message.role(), Role::User | Role::Tool))
}
