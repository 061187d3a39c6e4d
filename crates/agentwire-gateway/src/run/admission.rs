//! Admission: the decision whether a request to run starts a new run, joins an existing one, or is refused.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use agentwire_core::{
    event::{Message, MessageId, ResumeEntry, RunId, RunInput, ToolCallId},
    format::ag_ui,
};
use agentwire_store::{
    AnswerSet, Conflict, Lease, NewRun, Owner, Pending, Run, RunKey, RunStatus, Start, StartMode, StoreError,
};
use bytes::Bytes;
use tokio::time::Instant;

use crate::{
    agent::RequestContext,
    auth::{Action, missing_scope},
    codes,
    cpu_work::{self, Expected},
    error::ApiError,
    gateway::{AgentEntry, Gateway},
    human::{
        approval,
        given::{self, AnswerProtocol, Given},
        pending, schema,
        validate::{self, CheckedAnswer},
    },
    limits::{OwnerSeats, Pressure, over_quota},
    metrics,
    ops::audit::{Caller, Record},
    replica::sealed,
    run::{
        Job,
        continuation::{self, KnownRun},
        input::{ANEW_AFTER, ECHO, HEADERS, HISTORY, ON_DISCONNECT, START_IN_LOG, STATE_KEY},
        remote::{Control, Controlled, DISCONNECT_GRACE},
        trace::{RunTrace, TRACEPARENT},
    },
    settings::{AgentSettings, Busy, History, OnDisconnect},
    stream::live::ReaderGuard,
    thread::history,
};

/// The longest id in bytes: it must fit into a header line beside others.
const MAX_ID: usize = 512;

/// Prefix of the cause of a run that continues the conversation after an earlier message; the message id follows.
pub(crate) const ANEW: &str = "anew after ";

/// The reason in the server log for a run that another one interrupts.
const REPLACED: &str = "another run took its place";

/// The longest wait of [`Busy::Interrupt`] for the run that it stops.
const INTERRUPT_TIMEOUT: Duration = Duration::from_secs(10);

/// A request to run, independent of its protocol.
pub(crate) struct RunRequest {
    pub(crate) agent: Arc<AgentEntry>,
    pub(crate) owner: Owner,
    /// The run input as the client sent it; without its answers once they are collected.
    pub(crate) input: RunInput,
    /// Where its answers are.
    pub(crate) protocol: AnswerProtocol,
    /// The message after which the conversation continues anew: an edit, or a regenerated turn.
    pub(crate) cut: Option<MessageId>,
    /// The trace of the run that it may start.
    pub(crate) trace: Option<Box<RunTrace>>,
    /// The headers that the agent's server gets.
    pub(crate) headers: Arc<[(String, String)]>,
    /// Data of the app that the request came through.
    pub(crate) context: Option<RequestContext>,
    /// The client shows all messages of the run as one, under the run's id.
    pub(crate) one_message: bool,
    /// The output format in which its client follows the run, for a reconnect that names none.
    pub(crate) output_format: Option<String>,
    /// The options that its protocol shows with the run, as the protocol stores them.
    pub(crate) echo: Option<String>,
    /// The policies that the client asks for, in place of the agent's.
    pub(crate) asked: AskedPolicies,
    /// The body as received, for the audit.
    pub(crate) body: Bytes,
    /// Its sender, for the audit.
    pub(crate) caller: Option<Arc<Caller>>,
    /// True if its sender may answer questions.
    pub(crate) may_answer: bool,
    /// The pending items that it can be about, once they are read.
    pub(crate) items: Option<Vec<Pending>>,
    /// Its answers, once they are collected.
    pub(crate) given: Option<Given>,
    /// Its answers, once they are validated.
    pub(crate) answers: Option<Vec<CheckedAnswer>>,
}

/// Policies of one run that its client may choose.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct AskedPolicies {
    /// For a thread that another run has.
    pub(crate) busy: Option<Busy>,
    /// For a client that leaves.
    pub(crate) on_disconnect: Option<OnDisconnect>,
    /// The log begins with the messages and the state before the run, so that it can be read without the thread.
    pub(crate) has_start_in_log: bool,
}

impl RunRequest {
    /// Its resume entries, as far as they are known.
    fn entries(&self) -> Vec<&ResumeEntry> {
        match (&self.answers, &self.given) {
            (Some(answers), _) => answers.iter().map(CheckedAnswer::entry).collect(),
            (None, Some(given)) => given.entries().collect(),
            (None, None) => self.input.resume.iter().flatten().collect(),
        }
    }
}

/// The result of admission.
#[derive(Debug)]
pub(crate) enum Admission {
    /// The request started this run. The guard counts its client as a reader until the client follows the run.
    New { run: RunId, _reader: ReaderGuard },
    /// The run was started before, by the same request or by the same answers.
    Existing(RunId),
}

impl Admission {
    pub(crate) fn run(&self) -> &RunId {
        match self {
            Self::New { run, .. } | Self::Existing(run) => run,
        }
    }
}

impl Gateway {
    /// Starts the run of a request, or finds the run that it started before. A run id never runs an agent twice.
    pub(crate) async fn admit(&self, mut request: RunRequest) -> Result<Admission, ApiError> {
        let (owner, thread, run) =
            (request.owner.clone(), request.input.thread.clone(), request.input.run.clone());
        let caller = request.caller.clone();
        let decided = self.decide(&mut request).await;
        let record = self.audit().is_on().then(|| {
            let record = Record::start(&owner, &request.entries(), &request.input.messages);
            record.thread(&thread).run(&run).arguments(&request.body)
        });
        let admitted = match decided {
            Err(error) => Err(error),
            Ok(Decision::Join(run)) => Ok(Admission::Existing(run)),
            Ok(Decision::Start(start)) => {
                // In a task of its own: a client that disconnects now must not leave a stored run that no task drives.
                let gateway = self.clone();
                let expected = Expected::Long.for_length(request.body.len());
                let starting = async move { gateway.start(request, start).await };
                let started = self.tasks().spawn(cpu_work::watched(expected, starting)).await;
                let failed = || ApiError::new(codes::INTERNAL, "the gateway failed; its log has more");
                started.unwrap_or_else(|_| Err(failed()))
            }
        };
        if let Some(record) = record {
            self.audit().note(record.outcome(caller.as_deref(), &admitted));
        }
        admitted
    }

    /// Decides about a request without side effects:
    ///
    /// 1. its ids are valid;
    /// 2. the gateway accepts new runs, unless the run is running here;
    /// 3. a run that exists is joined, unless the request answers something that is open (see [`continuation`]);
    /// 4. its answers are valid (see [`crate::human`]).
    async fn decide(&self, request: &mut RunRequest) -> Result<Decision, ApiError> {
        let RunRequest { owner, input, .. } = &*request;
        check_id("thread", &input.thread)?;
        check_id("run", continuation::first_id(&input.run))?;
        if self.live_run(owner, &input.run).is_none() {
            self.check_capacity()?;
        }
        let mut continues = None;
        if let Ok(run) = self.store().run(owner, &input.run).await
            && run.thread == input.thread
        {
            match self.known_run(request, &run).await? {
                KnownRun::Join(other) if other != run.run => return Ok(Decision::Join(other)),
                KnownRun::Join(_) => return self.join(&request.agent, run).map(Decision::Join),
                KnownRun::Answer => continues = Some(run.run),
            }
        }
        request.agent.breaker.check().map_err(|wait| unavailable(&request.agent, wait))?;
        self.check_size(request).await?;
        Ok(Decision::Start(NewStart { answers: self.check_answers(request).await?, continues }))
    }

    /// Refuses messages and a state that the thread cannot hold. The stored ones are looked at only if those of the
    /// request are long; otherwise the run itself finds out.
    async fn check_size(&self, request: &RunRequest) -> Result<(), ApiError> {
        let limits = &self.settings().limits;
        let input = &request.input;
        if input.state.as_ref().is_some_and(|state| state.get().len() > limits.thread_state) {
            return Err(too_large("state", limits.thread_state));
        }
        if request.body.len() <= cpu_work::SHORT_TEXT.min(limits.thread_messages) {
            return Ok(());
        }
        let stored = match self.settings().history(&request.agent.settings) {
            History::Client => None,
            History::Server | History::Merge => {
                match self.store().messages(&request.owner, &input.thread).await {
                    Err(StoreError::NotFound(_)) => None,
                    stored => stored?,
                }
            }
        };
        // Those that the thread has already are sent again by most clients.
        let measure = || super::size::messages_size(&input.messages);
        let sent = cpu_work::request_in_place(&request.owner, measure).await?;
        let before = stored.map_or(0, |text| text.len());
        let is_merged = sent + before > limits.thread_messages && {
            let known = self.stored_messages(&request.owner, &input.thread).await?;
            let known: HashSet<&MessageId> = known.iter().map(|message| &message.id).collect();
            let is_new = |message: &&Message| !known.contains(&message.id);
            let new: Vec<Message> = input.messages.iter().filter(is_new).cloned().collect();
            let measure = || super::size::messages_size(&new);
            cpu_work::request_in_place(&request.owner, measure).await? + before > limits.thread_messages
        };
        if sent > limits.thread_messages || is_merged {
            return Err(too_large("conversation", limits.thread_messages));
        }
        Ok(())
    }

    /// Joins a run that exists. A run id names a run of one agent, also in a group of agents that share their threads.
    fn join(&self, agent: &AgentEntry, run: Run) -> Result<RunId, ApiError> {
        if *run.agent != *agent.name && self.registry().agents.contains_key(&*run.agent) {
            let message = format!("the run id was used for the agent `{}`", run.agent);
            return Err(ApiError::new(codes::RUN_ID_TAKEN, message));
        }
        let age = Duration::from_millis(self.store().now().0.saturating_sub(run.created.0));
        tracing::info!(run = %run.run, thread = %run.thread, agent = %agent.name, status = %run.status, ?age,
            "an existing run is joined");
        Ok(run.run)
    }

    fn check_capacity(&self) -> Result<(), ApiError> {
        if self.is_draining() {
            return Err(ApiError::new(codes::DRAINING, "the gateway is shutting down").retry_after(5));
        }
        if self.live_run_count() >= self.settings().limits.runs {
            return Err(ApiError::new(codes::OVERLOADED, "too many runs at once").retry_after(5));
        }
        // Without a live run there is nothing whose end would give memory back: an allocator may keep what it has.
        if self.live_run_count() > 0 && self.memory().pressure() >= Pressure::High {
            return Err(ApiError::new(codes::OVERLOADED, "too little memory for another run").retry_after(5));
        }
        Ok(())
    }

    /// Steps 2 to 4 of an answer's path (see [`crate::human`]).
    async fn check_answers(&self, request: &mut RunRequest) -> Result<Option<AnswerSet>, ApiError> {
        self.collect_answers(request).await?;
        let items = request.items.take().unwrap_or_default();
        let mut given = request.given.take().unwrap_or_default();
        let now = self.store().now();
        let input = &mut request.input;
        given::add_results(&mut given, input, &items, now);
        validate::leaves_votes_alone(&given, &items, now)?;
        let decided_by = validate::add_decisions(&mut given, &items, now);
        let given = request.given.insert(given);
        // The agent's own results may stand beside those of the client; few requests make this read necessary.
        let is_item = |call: &ToolCallId| pending::find(&items, call).is_some();
        let settled = match ag_ui::input::trailing_results(&input.messages).iter().all(|it| is_item(&it.call))
        {
            true => HashMap::new(),
            false => {
                let stored = self.stored_messages(&request.owner, &input.thread).await?;
                match self.settings().history(&request.agent.settings) {
                    History::Server => history::results(&stored),
                    // A conversation that only the client has: nothing of it waits here.
                    History::Merge if stored.is_empty() => history::own_results(&input.messages),
                    History::Merge => history::results(&stored),
                    History::Client => history::own_results(&input.messages),
                }
            }
        };
        let by = decided_by.as_deref().unwrap_or(request.owner.user.as_str());
        let check = || validate::validate(given, &items, &settled, now, by);
        let checked = match schema::may_take_long(&items, request.body.len()) {
            true => cpu_work::request_in_place(&request.owner, check).await??,
            false => check()?,
        };
        if !request.may_answer && validate::answers_a_question(&checked, &items) {
            return Err(missing_scope(&format!("agents:{}:{}", request.agent.name, Action::Answer.as_str())));
        }
        for interrupt in &checked.unknown_interrupts {
            tracing::warn!(%interrupt, thread = %input.thread, "an answer to an unknown interrupt was ignored");
        }
        given::remove_unknown_results(&mut input.messages, &checked.unknown_results);
        given::remove_guarded_results(&mut input.messages, &items);
        if self.settings().history(&request.agent.settings) == History::Server {
            given::remove_command(input);
            if given::has_other_results(&input.messages, &items, now) {
                let stored = self.stored_messages(&request.owner, &input.thread).await?;
                given::remove_other_results(&mut input.messages, &items, now, &history::results(&stored));
            }
        }
        if let (Some(trace), Some(recorded)) = (&mut request.trace, &checked.for_store) {
            let is_answered = |item: &&Pending| recorded.answers.iter().any(|answer| answer.id == item.id);
            trace.note_answers(self, &request.owner, items.iter().filter(is_answered)).await;
        }
        request.answers = Some(checked.for_run);
        Ok(checked.for_store)
    }

    /// Loads the pending items that a request can be about and collects its answers, once. Routes that depend on the result
    /// call this before [`Gateway::admit`].
    pub(crate) async fn collect_answers(&self, request: &mut RunRequest) -> Result<(), ApiError> {
        if request.given.is_some() {
            return Ok(());
        }
        self.load_items(request).await?;
        let items = request.items.as_deref().unwrap_or_default();
        let stored = match given::asks_about_calls(items) {
            true => self.stored_messages(&request.owner, &request.input.thread).await?,
            false => Vec::new(),
        };
        let now = self.store().now();
        let (input, protocol) = (&mut request.input, &mut request.protocol);
        // Texts are compared with the schema of their question.
        let mut collect = || given::entries(input, protocol, items, &stored, now);
        request.given = Some(match schema::may_take_long(items, request.body.len()) {
            true => cpu_work::request_in_place(&request.owner, collect).await?,
            false => collect(),
        });
        Ok(())
    }

    /// Reads the pending items that a request can be about, once.
    pub(crate) async fn load_items<'r>(
        &self,
        request: &'r mut RunRequest,
    ) -> Result<&'r [Pending], ApiError> {
        if request.items.is_none() {
            let RunRequest { agent, owner, input, headers, .. } = request;
            request.items = Some(self.items_for(agent, owner, input, headers).await?);
        }
        Ok(request.items.as_deref().unwrap_or_default())
    }

    /// Creates the run in the store, together with its answers, and starts it. If the thread is taken, the agent's `busy`
    /// and `detached` settings decide.
    async fn start(&self, mut request: RunRequest, start: NewStart) -> Result<Admission, ApiError> {
        let NewStart { answers, continues } = start;
        if let Some(waiting) = &continues {
            request.input.run = self.free_id(&request, waiting).await?;
        }
        let history = self.settings().history(&request.agent.settings);
        let may_branch = request.cut.is_none() && answers.is_none() && !given::has_answer(&request.input);
        if may_branch && history != History::Client {
            request.cut = self.branch_point(&request.owner, &request.input).await?;
        }
        let (owner, length) = (request.owner.clone(), request.body.len());
        let write = || self.stored_request(&mut request, history);
        let input = cpu_work::in_place_by_length(&owner, length, write).await;
        let mut new = NewRun {
            thread: request.input.thread.clone(),
            run: request.input.run.clone(),
            agent: (&*request.agent.name).into(),
            thread_ids: Some(self.thread_ids(&request.agent)),
            input: input.into(),
            cause: request.cut.as_ref().map(|cut| format!("{ANEW}{cut}").into()),
            holder: self.holder().clone(),
            mode: StartMode::Now,
            answers,
            quotas: self.quotas().stored(),
        };
        let mut wait = BusyWait::default();
        let seats = self.quotas().run(&request.owner)?;
        loop {
            self.ensure_lease().await?;
            let freed = self.run_ended().notified();
            let started = self.store().start(&request.owner, new.clone()).await;
            self.note_store_result(&started);
            let lease = match started {
                Ok(Start::Created(run)) => {
                    let (run, _reader) = self.spawn_run(request, run, seats);
                    return Ok(Admission::New { run, _reader });
                }
                // Of two answers at once, the store lets one through, under whatever id.
                Ok(Start::Exists(taken)) if continues.is_some() => {
                    request.input.run = continuation::next_id(&taken.run);
                    new.run = request.input.run.clone();
                    new.input = self.stored_request(&mut request, history).into();
                    continue;
                }
                Ok(Start::Exists(run)) if run.thread == request.input.thread => {
                    return self.join(&request.agent, run).map(Admission::Existing);
                }
                Ok(Start::Exists(_)) => {
                    return Err(ApiError::new(codes::RUN_ID_TAKEN, "the run id was used in another thread"));
                }
                Ok(Start::Answered(run)) => match self.store().run(&request.owner, &run).await {
                    Ok(run) => return Ok(Admission::Existing(run.run)),
                    // The process that recorded the answer died before it created the run.
                    Err(_) => {
                        new.answers = None;
                        continue;
                    }
                },
                Ok(Start::Held(lease)) => lease,
                Ok(Start::Orphan(orphan)) => {
                    self.settle_orphan(&request.owner, &orphan).await?;
                    continue;
                }
                // The lease expired between its check and the start.
                Err(StoreError::Fenced) => {
                    self.renew_lease().await?;
                    continue;
                }
                Ok(Start::QueueFull) => {
                    return Err(
                        ApiError::new(codes::QUEUE_FULL, "too many runs wait for the thread").retry_after(5)
                    );
                }
                Ok(Start::OverQuota { is_tenant, quota }) => {
                    return Err(over_quota(&request.owner, is_tenant, quota));
                }
                Err(StoreError::Conflict(Conflict::Answer(id))) => {
                    let message = format!("`{id}` was answered differently before");
                    return Err(ApiError::new(codes::ALREADY_ANSWERED, message));
                }
                Err(StoreError::Expired(id)) => {
                    return Err(ApiError::new(codes::INTERRUPT_EXPIRED, format!("`{id}` has expired")));
                }
                Err(error) => return Err(error.into()),
            };
            self.metrics().lock_waits.inc();
            let busy = self.busy_policy(&mut wait, &request, &lease).await?;
            if let Busy::Enqueue { limit } = busy {
                new.mode = StartMode::Queue { limit };
                continue;
            }
            self.wait_for_thread(&mut wait, busy, &request.owner, &lease, freed).await?;
            // The run that had the thread may have left a question.
            let answers = new.answers.as_ref().map_or(&[][..], |given| &given.answers);
            let open = self.unanswered_item(&request.owner, &request.input.thread, answers).await?;
            if let Some(open) = open {
                return Err(validate::unanswered(open.as_str()));
            }
        }
    }

    /// The policy for a thread that the run of `lease` has: the agent's `busy` while a client reads that run, `detached` if
    /// none does any more.
    async fn busy_policy(
        &self,
        wait: &mut BusyWait,
        request: &RunRequest,
        lease: &Lease,
    ) -> Result<Busy, ApiError> {
        let AgentSettings { busy, detached, .. } = request.agent.settings;
        let (busy, detached) = request.asked.busy.map_or((busy, detached), |asked| (asked, asked));
        let Some(live) = self.live_run(&request.owner, &lease.run) else {
            if lease.holder == *self.holder() {
                // A run of this process that is not live has just ended.
                let has_ended = !std::mem::replace(&mut wait.had_ended, true);
                return Ok(if has_ended { Busy::Interrupt } else { busy });
            }
            return self.busy_policy_elsewhere(wait, request, lease).await;
        };
        if live.is_stopping() {
            return Ok(Busy::Interrupt);
        }
        if self.store().run(&request.owner, &lease.run).await?.status == RunStatus::Queued {
            // It has not begun: its messages would be lost.
            return Ok(busy);
        }
        if let (Busy::Enqueue { .. }, Busy::Interrupt) = (busy, detached) {
            // The queue keeps the order, so that the new run need not wait here.
            self.tasks().spawn(async move {
                if live.wait_until_unread(DISCONNECT_GRACE).await {
                    live.stop(REPLACED).await;
                }
            });
            return Ok(busy);
        }
        if busy == detached {
            return Ok(busy);
        }
        let grace =
            if std::mem::replace(&mut wait.had_grace, true) { Duration::ZERO } else { DISCONNECT_GRACE };
        Ok(if live.wait_until_unread(grace).await { detached } else { busy })
    }

    /// The same for a run that another process drives.
    async fn busy_policy_elsewhere(
        &self,
        wait: &mut BusyWait,
        request: &RunRequest,
        lease: &Lease,
    ) -> Result<Busy, ApiError> {
        let AgentSettings { busy, detached, .. } = request.agent.settings;
        let (busy, detached) = request.asked.busy.map_or((busy, detached), |asked| (asked, asked));
        let (owner, run) = (&request.owner, &lease.run);
        if detached != Busy::Interrupt
            || busy == detached
            || std::mem::replace(&mut wait.had_grace, true)
            || self.store().run(owner, run).await?.status == RunStatus::Queued
        {
            return Ok(busy);
        }
        if let Busy::Enqueue { .. } = busy {
            // The queue keeps the order, so that the new run need not wait here.
            let (gateway, owner, run) = (self.clone(), owner.clone(), run.clone());
            self.tasks().spawn(async move {
                let _ = gateway.control(&owner, &run, Control::StopUnread(REPLACED)).await;
            });
            return Ok(busy);
        }
        let stopped = self.control(owner, run, Control::StopUnread(REPLACED)).await?;
        Ok(if stopped == Controlled::Read { busy } else { Busy::Interrupt })
    }

    /// Waits before the next attempt to get a thread that another run has, or refuses.
    async fn wait_for_thread(
        &self,
        wait: &mut BusyWait,
        busy: Busy,
        owner: &Owner,
        lease: &Lease,
        freed: impl Future<Output = ()>,
    ) -> Result<(), ApiError> {
        let locked = || {
            ApiError::new(codes::THREAD_IS_LOCKED, "another run has the thread")
                .hint("try again when it has ended, or stop it")
                .retry_after(1)
        };
        match busy {
            Busy::Reject | Busy::Enqueue { .. } => return Err(locked()),
            Busy::Wait { retries, interval } => {
                if wait.tries >= retries {
                    return Err(locked());
                }
                wait.tries += 1;
                tokio::time::sleep(interval).await;
            }
            Busy::Interrupt => {
                if wait.since.get_or_insert_with(Instant::now).elapsed() > INTERRUPT_TIMEOUT {
                    return Err(locked());
                }
                if let Some(live) = self.live_run(owner, &lease.run) {
                    live.stop(REPLACED).await;
                } else if lease.holder != *self.holder() {
                    self.control(owner, &lease.run, Control::Stop(REPLACED)).await?;
                }
                let _ = tokio::time::timeout(Duration::from_millis(100), freed).await;
            }
        }
        Ok(())
    }

    /// The run input as it is stored, with the validated answers, the settings that its ending needs, and the headers for its
    /// agent if there is a key: another gateway, perhaps with another configuration, may have to continue or end the run.
    fn stored_request(&self, request: &mut RunRequest, history: History) -> String {
        let RunRequest {
            agent, owner, input, answers, output_format, echo, headers, asked, cut, trace, ..
        } = request;
        let entries: Vec<_> = answers.iter().flatten().map(approval::to_stored).collect();
        input.resume = (!entries.is_empty()).then_some(entries);
        let settings = &agent.settings;
        let key = RunKey { owner: owner.clone(), run: input.run.clone() };
        let sealed = self.headers_key(settings).and_then(|secret| sealed::seal(&secret, &key, headers));
        let mut texts = vec![(HISTORY, history.as_str())];
        texts.extend(settings.state_key.as_deref().map(|key| (STATE_KEY, key)));
        texts.extend(asked.on_disconnect.map(|policy| (ON_DISCONNECT, policy.as_str())));
        texts.extend(asked.has_start_in_log.then_some((START_IN_LOG, "true")));
        texts.extend(echo.as_deref().map(|echo| (ECHO, echo)));
        // The cause of a run is replaced by that of its end.
        texts.extend(cut.as_ref().map(|cut| (ANEW_AFTER, cut.as_str())));
        texts.extend(sealed.as_deref().map(|sealed| (HEADERS, sealed)));
        let traceparent = trace.as_ref().map(|trace| trace.to_traceparent());
        texts.extend(traceparent.as_deref().map(|place| (TRACEPARENT, place)));
        let stored = ag_ui::input::to_stored_json(input, output_format.as_deref(), &texts);
        input.resume = None;
        stored
    }

    /// The key under which headers for the agent are stored; `None` if none are.
    pub(crate) fn headers_key(&self, agent: &AgentSettings) -> Option<Vec<u8>> {
        let is_needed = !agent.forward_headers.is_empty() && self.store().outlives_process();
        let key = self.settings().replicas.key.as_ref().filter(|_| is_needed)?;
        key.read().inspect_err(|error| tracing::error!(%error, "replicas.key: headers are not kept")).ok()
    }

    fn spawn_run(&self, request: RunRequest, run: Run, seats: OwnerSeats) -> (RunId, ReaderGuard) {
        let RunRequest {
            agent,
            trace,
            owner,
            input,
            answers,
            cut,
            headers,
            context,
            one_message,
            asked,
            body,
            ..
        } = request;
        let expected = Expected::LongStart.for_length(body.len());
        let answers = answers.unwrap_or_default();
        let id = run.run.clone();
        let key = agentwire_store::RunKey { owner: owner.clone(), run: id.clone() };
        let (live, commands) = self.new_live_run(&key, &run, &agent, asked.on_disconnect, Some(seats));
        let reader = ReaderGuard::new(live.clone());
        let name = agent.name.to_string();
        self.metrics().runs_started.get_or_create(&metrics::AgentLabel { agent: name }).inc();
        tracing::info!(run = %id, thread = %run.thread, agent = %agent.name, "run started");
        let logged = None;
        let gateway = self.clone();
        let job = Job {
            gateway,
            agent,
            owner,
            run,
            input,
            answers,
            cut,
            one_message,
            has_start_in_log: asked.has_start_in_log,
            headers,
            context,
            live,
            commands,
            logged,
            trace,
            requested: Instant::now(),
        };
        self.tasks().spawn(cpu_work::watched(expected, job.drive()));
        (id, reader)
    }
}

/// A decision about a request.
enum Decision {
    /// The run exists.
    Join(RunId),
    /// The run is new.
    Start(NewStart),
}

/// A run that is to be started.
struct NewStart {
    /// The answers that are recorded with it.
    answers: Option<AnswerSet>,
    /// The run under whose id the client answers; the new run gets the next id of its series.
    continues: Option<RunId>,
}

/// The state of a wait for a thread that another run has.
#[derive(Default)]
struct BusyWait {
    tries: u32,
    /// The start of the wait for a run that is being stopped.
    since: Option<Instant>,
    /// True if the other run had ended when it was looked up.
    had_ended: bool,
    /// True if the clients of the other run had the time to disconnect.
    had_grace: bool,
}

/// The error of a request to an agent whose circuit breaker is open.
fn unavailable(agent: &AgentEntry, wait: Duration) -> ApiError {
    let message =
        format!("the agent `{}` could not be reached lately and is not called for a while", agent.name);
    ApiError::new(codes::UPSTREAM_UNAVAILABLE, message).retry_after(wait.as_secs() + 1)
}

/// The error of a request that would make a thread too large.
pub(crate) fn too_large(part: &str, limit: usize) -> ApiError {
    ApiError::new(
        codes::THREAD_TOO_LARGE,
        format!("the {part} of the thread would have more than {limit} bytes"),
    )
    .hint("start another thread")
}

/// Checks an id, which clients choose freely: it must fit into headers and lines. `BAD_ID`.
pub(crate) fn check_id(name: &str, id: &str) -> Result<(), ApiError> {
    let problem = if id.is_empty() {
        "is empty".to_owned()
    } else if id.len() > MAX_ID {
        format!("has {} bytes, at most {MAX_ID} are allowed", id.len())
    } else if id.chars().any(char::is_control) {
        "holds control characters".to_owned()
    } else {
        return Ok(());
    };
    Err(ApiError::new(codes::BAD_ID, format!("the {name} id {problem}")))
}
