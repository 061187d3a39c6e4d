//! [`RunStream`]: the events of one run over all its connections and rounds.

use std::{
    collections::{HashSet, VecDeque},
    fmt,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError, atomic::Ordering},
    task::{Context, Poll},
    time::Duration,
};

use agentwire_core::{
    event::{Body, Event, Message, MessageId, Outcome as RunOutcome, RunError, RunInput},
    fold::Fold,
    format::ag_ui,
    json::Json,
};
use futures_util::{Stream, StreamExt, stream::BoxStream};

use crate::{
    agent::{HttpAgent, Shared},
    decode::{FrameSink, RunDecoder},
    error::{ClientError, ErrorKind, TimeoutPhase},
    exchange::{Exchange, Opened},
    http, ids,
    protocol::Protocol,
    rounds::{self, Reply},
    run::{Outcome, Recovery, Report, Run},
    subscriber::Dispatcher,
    timer,
    transport::{Response, TransportError},
};

/// The header in which a gateway tells how complete a stream is.
const RECOVERY: &str = "agentwire-recovery";

/// The number of recoveries that a report lists.
const MAX_RECOVERIES: usize = 100;

/// The events of a run.
///
/// A stream ends after RUN_FINISHED or RUN_ERROR of the last round. A failure on the way is the last item: an error, after
/// the events that close everything open with a RUN_ERROR of the same code.
pub struct RunStream {
    events: BoxStream<'static, Result<Event, ClientError>>,
    shared: Arc<Mutex<Progress>>,
    is_done: bool,
}

/// The part of the run that can be read while it streams.
#[derive(Default)]
struct Progress {
    outcome: Outcome,
    run_error: Option<Box<RunError>>,
}

/// The kind of run.
pub(crate) enum Plan {
    Run(Run),
    Sync,
}

impl RunStream {
    pub(crate) fn new(agent: Arc<Shared>, plan: Plan) -> Self {
        let shared = Arc::new(Mutex::new(Progress::default()));
        let driver = Driver::new(agent, plan, Arc::clone(&shared));
        let events = futures_util::stream::unfold(driver, |mut driver| async move {
            let item = driver.next().await?;
            Some((item, driver))
        });
        Self { events: events.fuse().boxed(), shared, is_done: false }
    }

    /// The counts so far.
    #[must_use]
    pub fn report(&self) -> Report {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner).outcome.report.clone()
    }

    /// Closes the connection without telling the server; the run may go on there. Dropping the stream does the same.
    pub fn abort(&mut self) {
        if !self.is_done {
            self.is_done = true;
            self.events = futures_util::stream::empty().boxed();
            self.shared.lock().unwrap_or_else(PoisonError::into_inner).outcome.is_aborted = true;
        }
    }

    /// Reads the rest of the run.
    ///
    /// # Errors
    /// When the run fails: the error that the stream had as its last item, or the RUN_ERROR of the server.
    pub async fn finish(mut self) -> Result<Outcome, ClientError> {
        while let Some(item) = self.events.next().await {
            item?;
        }
        let mut progress = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        match progress.run_error.take() {
            Some(error) => Err(ClientError::new(ErrorKind::Run(error))),
            None => Ok(std::mem::take(&mut progress.outcome)),
        }
    }
}

impl Stream for RunStream {
    type Item = Result<Event, ClientError>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let item = self.events.poll_next_unpin(context);
        if let Poll::Ready(None) = item {
            self.is_done = true;
        }
        item
    }
}

impl fmt::Debug for RunStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunStream").field("is_done", &self.is_done).finish_non_exhaustive()
    }
}

/// The state of a run.
struct Driver {
    agent: Arc<Shared>,
    shared: Arc<Mutex<Progress>>,
    plan: Option<Plan>,
    phase: Phase,
    fold: Fold,
    known_messages: HashSet<MessageId>,
    dispatcher: Dispatcher,
    exchange: Exchange,
    decoder: RunDecoder,
    response: Option<Response>,
    request_id: Option<Box<str>>,
    /// The run's id as the server knows it.
    run_id: Box<str>,
    /// Bytes of the current response so far.
    position: u64,
    queue: VecDeque<Event>,
    /// Attempts to reconnect since the last new event.
    attempts: u32,
    progress_at_attempt: u64,
    /// Bytes received since the conversation was last measured, and its size then.
    unmeasured: usize,
    measured: usize,
    last_piece: usize,
    /// True if the server is a gateway, which can repeat the events of a run.
    is_gateway: bool,
    is_ours: bool,
}

enum Phase {
    Start,
    Connect,
    Read,
    RoundEnd,
    Failed(ClientError),
    Done,
}

impl Driver {
    fn new(agent: Arc<Shared>, plan: Plan, shared: Arc<Mutex<Progress>>) -> Self {
        let (thread, subscribers) = (agent.conversation().thread.clone(), agent.subscribers.clone());
        let input = RunInput::new(thread.clone(), "");
        Self {
            exchange: Exchange {
                protocol: agent.protocol,
                is_binary: agent.is_binary,
                input,
                is_sync: false,
            },
            decoder: RunDecoder::new(thread, "".into(), agent.limits.frame),
            agent,
            shared,
            plan: Some(plan),
            phase: Phase::Start,
            fold: Fold::new(),
            known_messages: HashSet::new(),
            dispatcher: Dispatcher::new(subscribers),
            response: None,
            request_id: None,
            run_id: "".into(),
            position: 0,
            queue: VecDeque::new(),
            attempts: 0,
            progress_at_attempt: 0,
            unmeasured: 0,
            measured: 0,
            last_piece: 0,
            is_gateway: false,
            is_ours: false,
        }
    }

    async fn next(&mut self) -> Option<Result<Event, ClientError>> {
        loop {
            if let Some(event) = self.queue.pop_front() {
                self.deliver(&event);
                return Some(Ok(event));
            }
            match std::mem::replace(&mut self.phase, Phase::Done) {
                Phase::Start => self.phase = self.start(),
                Phase::Connect => self.phase = self.connect().await,
                Phase::Read => self.phase = self.read().await,
                Phase::RoundEnd => self.phase = self.end_round().await,
                Phase::Failed(error) => {
                    let error = error.with_request_id(self.request_id.clone());
                    self.dispatcher
                        .each(&mut self.fold, &self.exchange.input, |to, run| to.on_run_failed(run, &error));
                    self.finalize();
                    return Some(Err(error));
                }
                Phase::Done => {
                    self.finalize();
                    return None;
                }
            }
        }
    }

    /// Builds the first request.
    fn start(&mut self) -> Phase {
        if self.agent.is_running.swap(true, Ordering::AcqRel) {
            return Phase::Failed(ClientError::new(ErrorKind::Busy));
        }
        self.is_ours = true;
        let (thread, mut messages, state) = {
            let conversation = self.agent.conversation();
            (conversation.thread.clone(), conversation.messages.clone(), conversation.state.clone())
        };
        self.known_messages = messages.iter().map(|message| message.id.clone()).collect();
        let run = match self.plan.take() {
            Some(Plan::Run(run)) => run,
            _ => {
                self.exchange.is_sync = true;
                Run::default()
            }
        };
        self.known_messages.extend(run.messages.iter().map(|message| message.id.clone()));
        messages.extend(run.messages);
        let responders = self.agent.responders();
        let mut input = RunInput::new(thread, run.run_id.unwrap_or_else(|| ids::uuid().into()));
        input.state = Some(state.as_ref().map_or_else(|| Json::parse("{}").expect("constant"), Json::from));
        input.messages = messages.clone();
        let own = responders.tools.into_values().map(|(tool, _)| tool);
        input.tools = run.tools.into_iter().chain(own).map(Into::into).collect();
        // A map has no order, and the same request must have the same bytes.
        input.tools.sort_by(|a, b| a.name.cmp(&b.name));
        input.tools.dedup_by(|a, b| a.name == b.name);
        input.context = run.context;
        input.forwarded =
            Some(run.forwarded.as_ref().map_or_else(|| Json::parse("{}").expect("constant"), Json::from));
        input.resume = (!run.resume.is_empty()).then_some(run.resume);
        self.fold = Fold::from_history(messages, state);
        self.measured = measure(&mut self.fold);
        self.begin_round(input);
        self.dispatcher.each(&mut self.fold, &self.exchange.input, |to, run| to.on_run_initialized(run));
        Phase::Connect
    }

    fn begin_round(&mut self, input: RunInput) {
        self.decoder = RunDecoder::new(input.thread.clone(), input.run.clone(), self.agent.limits.frame);
        self.run_id = input.run.as_str().into();
        self.agent.conversation().last_run = Some(input.run.clone());
        self.exchange.input = input;
        (self.attempts, self.progress_at_attempt) = (0, 0);
        self.progress(|progress| progress.outcome.report.rounds += 1);
    }

    async fn connect(&mut self) -> Phase {
        match self.exchange.start(&self.agent.target).await {
            Ok(Some(opened)) => {
                self.decoder.continue_with(opened.format);
                self.open(opened);
                Phase::Read
            }
            Ok(None) => Phase::RoundEnd,
            // A server that cannot be reached at all has not started the run.
            Err(error) => match error.kind() {
                ErrorKind::Network(_) if !is_connect_error(&error) => self.reconnect(error).await,
                _ => Phase::Failed(error),
            },
        }
    }

    fn open(&mut self, opened: Opened) {
        self.request_id = http::request_id(&opened.response);
        self.is_gateway |= opened.response.headers().contains_key(RECOVERY);
        if let Some(run) = http::header(&opened.response, "x-run-id") {
            self.agent.conversation().last_run = Some((&*run).into());
            self.run_id = run;
        }
        self.position = 0;
        self.response = Some(opened.response);
    }

    /// Reads the next bytes of the response.
    async fn read(&mut self) -> Phase {
        let Some(response) = &mut self.response else { return Phase::RoundEnd };
        let chunk = timer::timeout(self.agent.target.timeouts.idle, response.chunk()).await;
        let may_continue = self.agent.policy.is_some();
        let dispatcher = &self.dispatcher;
        let mut on_frame = |frame: &[u8]| dispatcher.frame(frame);
        let on_frame: FrameSink<'_> = if dispatcher.wants_frames() { Some(&mut on_frame) } else { None };
        let queue = &mut self.queue;
        let mut sink = |event| queue.push_back(event);
        let failure = match chunk {
            Err(_) => ClientError::new(ErrorKind::Timeout(TimeoutPhase::Idle)).at(self.position),
            Ok(Ok(Some(bytes))) => {
                self.position += bytes.len() as u64;
                self.unmeasured += bytes.len();
                self.last_piece = bytes.len();
                return match self.decoder.push(&bytes, on_frame, &mut sink) {
                    Err(error) => self.fail(error),
                    Ok(()) => self.after_bytes(),
                };
            }
            Ok(Ok(None)) => match self.decoder.close(may_continue, on_frame, &mut sink) {
                Err(error) => return self.fail(error),
                Ok(true) => return self.after_bytes(),
                Ok(false) => truncated("the server closed the connection", 0).at(self.position),
            },
            Ok(Err(error)) => truncated(&http::innermost(&error), 0).at(self.position).because(error),
        };
        self.response = None;
        if may_continue { self.reconnect(failure).await } else { self.fail(failure) }
    }

    fn after_bytes(&mut self) -> Phase {
        if let Err(error) = self.check_memory() {
            return self.fail(error);
        }
        if self.decoder.is_ended() {
            // Some servers never close the connection.
            self.response = None;
            return Phase::RoundEnd;
        }
        Phase::Read
    }

    /// Measures the conversation when the bytes since the last time could have brought it over the limit.
    fn check_memory(&mut self) -> Result<(), ClientError> {
        let limit = self.agent.limits.memory;
        if self.measured + self.unmeasured <= limit {
            return Ok(());
        }
        let size = measure(&mut self.fold);
        self.measured = size;
        // The events of the last piece are not delivered yet: they are not in the conversation, but in memory.
        let waiting = self.last_piece;
        // Measuring costs as much as the conversation: near the limit it would be done for every piece.
        if size + waiting > limit - limit / 16 {
            return Err(ClientError::new(ErrorKind::TooLarge { limit }).at(self.position));
        }
        self.unmeasured = waiting;
        Ok(())
    }

    /// Closes the run with an error.
    fn fail(&mut self, error: ClientError) -> Phase {
        self.response = None;
        let queue = &mut self.queue;
        self.decoder.fail(&error, &mut |event| queue.push_back(event));
        Phase::Failed(error)
    }

    /// Replaces a broken connection: by the cursor, by the same request, or by the conversation of the thread.
    async fn reconnect(&mut self, mut failure: ClientError) -> Phase {
        let Some(policy) = self.agent.policy else { return self.fail(failure) };
        loop {
            if self.decoder.progress() > self.progress_at_attempt {
                self.attempts = 0;
                self.progress_at_attempt = self.decoder.progress();
            }
            if self.attempts >= policy.retries {
                let mut error = truncated(&failure.to_string(), self.attempts);
                if let Some(position) = failure.position() {
                    error = error.at(position);
                }
                return self.fail(error.because(failure));
            }
            let delay = self.delay(&failure, policy);
            self.attempts += 1;
            let attempt = self.attempts;
            self.dispatcher.each(&mut self.fold, &self.exchange.input, |to, run| {
                to.on_reconnecting(run, attempt, delay);
            });
            timer::sleep(delay).await;
            match self.reopen(policy.repeat_request).await {
                Ok(Some(recovery)) => {
                    self.progress(|progress| {
                        let list = &mut progress.outcome.report.recoveries;
                        if list.len() == MAX_RECOVERIES {
                            list.remove(0);
                        }
                        list.push(recovery);
                    });
                    self.dispatcher.each(&mut self.fold, &self.exchange.input, |to, run| {
                        to.on_reconnected(run, recovery);
                    });
                    return Phase::Read;
                }
                Ok(None) => {
                    return self.fail(truncated("the server has no events after the cursor", attempt));
                }
                Err(error) if error.is_transient() => failure = error,
                Err(error) => return self.fail(error),
            }
        }
    }

    fn delay(&self, failure: &ClientError, policy: crate::agent::Policy) -> Duration {
        let doubled = policy.min_delay.saturating_mul(1 << self.attempts.min(16));
        let own = ids::with_jitter(doubled.min(policy.max_delay));
        match failure.kind() {
            ErrorKind::Status { retry_after: Some(asked), .. } => own.max(*asked),
            _ => own,
        }
    }

    async fn reopen(&mut self, may_repeat: bool) -> Result<Option<Recovery>, ClientError> {
        let agent = Arc::clone(&self.agent);
        let target = &agent.target;
        if let Some(cursor) = self.decoder.cursor.clone()
            && !self.exchange.is_sync
        {
            // A gateway's cursor names its run, which is another than the requested one if a run continues it.
            let run = cursor.rsplit_once(':').map_or(&*self.run_id, |(run, _)| run);
            if let Some(opened) = self.exchange.events_of(target, run, Some(&cursor)).await? {
                let recovery = verdict(&opened).unwrap_or(Recovery::Whole);
                match recovery {
                    Recovery::Whole => self.decoder.continue_with(opened.format),
                    _ => self.decoder.continue_with_snapshot(opened.format),
                }
                self.open(opened);
                return Ok(Some(recovery));
            }
        } else if self.is_gateway && !self.exchange.is_sync && self.replay_events().await? {
            return Ok(Some(Recovery::Whole));
        }
        if may_repeat || self.exchange.is_sync {
            match self.exchange.start(target).await {
                Ok(Some(opened)) => {
                    let is_gateway = verdict(&opened).is_some();
                    let is_hai = self.exchange.protocol == Protocol::Hai;
                    self.decoder.replay_with(opened.format);
                    self.open(opened);
                    // A gateway answers a repeated HAI request with the conversation; the events are better.
                    if is_gateway && is_hai && !self.exchange.is_sync {
                        self.replay_events().await?;
                    }
                    return Ok(Some(Recovery::Whole));
                }
                Ok(None) => {}
                Err(error) if matches!(error.status(), Some(400..=428 | 430..=499)) => {}
                Err(error) => return Err(error),
            }
        }
        match self.exchange.sync(target).await? {
            Some(opened) => {
                self.decoder.continue_with_snapshot(opened.format);
                self.open(opened);
                Ok(Some(Recovery::Snapshot))
            }
            None => Ok(None),
        }
    }

    /// Follows the run from its first event, if the gateway still has it.
    async fn replay_events(&mut self) -> Result<bool, ClientError> {
        let Some(opened) = self.exchange.events_of(&self.agent.target, &self.run_id, None).await? else {
            return Ok(false);
        };
        if verdict(&opened) != Some(Recovery::Whole) {
            return Ok(false);
        }
        self.decoder.replay_with(opened.format);
        self.open(opened);
        Ok(true)
    }

    /// Applies an event and tells the subscribers.
    fn deliver(&mut self, event: &Event) {
        self.dispatcher.event(event, &mut self.fold, &self.exchange.input);
        match &event.body {
            Body::RunStarted(started) => {
                let mut conversation = self.agent.conversation();
                if !self.agent.is_thread_given {
                    conversation.thread = started.thread.clone();
                }
                // The reader of a format without ids makes them from the request.
                if *started.run != *self.exchange.input.run || conversation.last_run.is_none() {
                    conversation.last_run = Some(started.run.clone());
                }
            }
            Body::RunFinished(finished) => self.progress(|progress| {
                progress.outcome.usage.extend(finished.usage.iter().cloned());
                progress.outcome.result = finished.result.as_ref().map(Json::to_value);
                progress.outcome.is_cancelled = matches!(finished.outcome, Some(RunOutcome::Cancelled));
            }),
            Body::RunError(error) => self.progress(|progress| {
                progress.outcome.usage.extend(error.usage.iter().cloned());
                progress.run_error = Some(error.clone());
            }),
            _ => {}
        }
        let known = matches!(event.body, Body::RunFinished(_)).then(|| self.open_items(event));
        self.progress(|progress| {
            progress.outcome.report.events += 1;
            if let Some(pending) = known {
                progress.outcome.pending = pending;
            }
        });
    }

    fn open_items(&mut self, event: &Event) -> Vec<crate::run::Pending> {
        let Some(finished) = rounds::finished(event) else { return Vec::new() };
        let names: Vec<&str> = self.exchange.input.tools.iter().map(|tool| &*tool.name).collect();
        rounds::pending(&mut self.fold, finished, &names)
    }

    /// Runs tools and asks questions, and begins the next round if all have results.
    async fn end_round(&mut self) -> Phase {
        self.take_report();
        if self.exchange.is_sync && matches!(self.agent.protocol, Protocol::AiSdk(_)) {
            // A stream of the AI SDK is one message; the conversation is elsewhere.
            let agent = HttpAgent(Arc::clone(&self.agent));
            if let Ok(messages) = agent.history().await {
                let state = self.fold.state().clone();
                self.fold = Fold::from_history(messages, Some(state));
            }
        }
        let (pending, is_failed, rounds) = self.progress(|progress| {
            let outcome = &progress.outcome;
            (outcome.pending.clone(), progress.run_error.is_some(), outcome.report.rounds)
        });
        if is_failed || pending.is_empty() || rounds >= self.agent.max_rounds {
            return Phase::Done;
        }
        let responders = self.agent.responders();
        let Some(Reply { messages, resume }) = responders.reply(&pending, self.agent.protocol).await else {
            return Phase::Done;
        };
        let mut all = self.fold.messages().to_vec();
        all.extend(messages);
        let state = self.fold.state().clone();
        let previous = self.exchange.input.clone();
        let input = RunInput {
            thread: self.agent.conversation().thread.clone(),
            run: ids::uuid().into(),
            state: Some(Json::from(&state)),
            messages: all.clone(),
            resume: (!resume.is_empty()).then_some(resume),
            ..previous
        };
        self.fold = Fold::from_history(all, Some(state));
        self.exchange.is_sync = false;
        self.progress(|progress| progress.outcome.pending.clear());
        self.begin_round(input);
        Phase::Connect
    }

    /// Adds the counts of the round to the report.
    fn take_report(&mut self) {
        let repairs: Vec<_> = self.decoder.repairs().collect();
        let (replaced, skipped) = (self.decoder.replaced_bytes(), self.fold.skipped_patches());
        self.progress(|progress| {
            let report = &mut progress.outcome.report;
            for (rule, times) in repairs {
                match report.repairs.iter_mut().find(|(known, _)| *known == rule) {
                    Some((_, count)) => *count += times,
                    None => report.repairs.push((rule, times)),
                }
            }
            report.replaced_bytes += replaced;
            report.skipped_patches += skipped;
        });
        self.decoder = RunDecoder::new("".into(), "".into(), self.agent.limits.frame);
    }

    fn progress<T>(&self, change: impl FnOnce(&mut Progress) -> T) -> T {
        change(&mut self.shared.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Stores the conversation and releases the agent; once.
    fn finalize(&mut self) {
        if !std::mem::take(&mut self.is_ours) {
            return;
        }
        self.response = None;
        self.take_report();
        self.dispatcher.each(&mut self.fold, &self.exchange.input, |to, run| to.on_run_finalized(run));
        let (messages, state) = std::mem::take(&mut self.fold).into_parts();
        let new: Vec<Message> =
            messages.iter().filter(|message| !self.known_messages.contains(&message.id)).cloned().collect();
        self.progress(|progress| progress.outcome.new_messages = new);
        let mut conversation = self.agent.conversation();
        conversation.messages = messages;
        conversation.state = Some(state);
        drop(conversation);
        self.agent.is_running.store(false, Ordering::Release);
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        // Also a run that is left in the middle keeps the part that was received.
        while let Some(event) = self.queue.pop_front() {
            self.fold.apply(&event);
        }
        self.finalize();
    }
}

fn verdict(opened: &Opened) -> Option<Recovery> {
    http::header(&opened.response, RECOVERY).and_then(|name| Recovery::parse(&name))
}

fn truncated(reason: &str, attempts: u32) -> ClientError {
    ClientError::new(ErrorKind::Truncated { attempts, reason: reason.into() })
}

fn is_connect_error(error: &ClientError) -> bool {
    let cause = std::error::Error::source(error).and_then(|cause| cause.downcast_ref());
    matches!(cause, Some(TransportError::Connect(_)))
}

/// The size of a conversation and its state as JSON.
fn measure(fold: &mut Fold) -> usize {
    let messages = ag_ui::messages_to_json(fold.messages()).len();
    messages + fold.state().to_string().len()
}
