//! Who gets to run: limits, the thread's lock, and the same run id twice.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use agentwire_core::{
    event::{Message, MessageBody, MessageId, RunId, RunInput, ThreadId},
    format::ag_ui,
};
use agentwire_store::{
    AnswerSet, Conflict, NewRun, Owner, Pending, PendingFilter, PendingId, Run, Start, StartMode, StoreError,
};
use bytes::Bytes;
use tokio::time::Instant;

use crate::{
    agent, codes,
    error::ApiError,
    gateway::{AgentEntry, Gateway},
    human::{answers, pending},
    metrics,
    ops::audit::Record,
    run::{Job, input},
    settings::{Busy, OnDisconnect},
    stream::live::{Command, LiveRun},
    thread::history,
};

/// The longest id: what fits into a header line with room for others.
const MAX_ID: usize = 512;

/// Begins the cause of a run that takes the conversation up anew behind a message.
pub(crate) const ANEW: &str = "anew after ";

/// How long `interrupt` waits for the run that it stops.
const INTERRUPT_PATIENCE: Duration = Duration::from_secs(10);

/// A run that somebody wants.
pub(crate) struct RunRequest {
    pub(crate) agent: Arc<AgentEntry>,
    pub(crate) owner: Owner,
    pub(crate) input: RunInput,
    /// A message after which the conversation shall go on anew.
    pub(crate) cut: Option<MessageId>,
    pub(crate) headers: Arc<[(String, String)]>,
    /// What it may be about of what the thread waits or waited for, if that was read already.
    pub(crate) items: Option<Vec<Pending>>,
    /// The client holds all that the run says as one message, under the run's id.
    pub(crate) one_message: bool,
    /// The request as it came, for the record.
    pub(crate) body: Bytes,
}

/// How a run comes in.
enum Entrance {
    /// It was started before.
    Known(RunId),
    /// It is new, and answers this.
    New(Option<AnswerSet>),
}

impl Gateway {
    /// Starts the run, or finds the one that was started before. The same id never runs an agent twice.
    pub(crate) async fn admit(&self, mut wish: RunRequest) -> Result<RunId, ApiError> {
        let (owner, thread, run) = (wish.owner.clone(), wish.input.thread.clone(), wish.input.run.clone());
        let answering = self.may_start(&mut wish).await;
        let record = self
            .audit()
            .is_on()
            .then(|| Record::start(&owner, &wish.input).thread(&thread).run(&run).arguments(&wish.body));
        let admitted = match answering {
            Err(refusal) => Err(refusal),
            Ok(Entrance::Known(run)) => Ok(run),
            Ok(Entrance::New(answering)) => {
                // Detached, so that a client that leaves right now does not leave a run behind that nobody drives.
                let gateway = self.clone();
                let started = self.tasks().spawn(async move { gateway.start(wish, answering).await }).await;
                let failed = || ApiError::new(codes::INTERNAL, "the gateway failed; its log has more");
                started.unwrap_or_else(|_| Err(failed()))
            }
        };
        if let Some(record) = record {
            self.audit().note(record.outcome(&admitted));
        }
        admitted
    }

    /// Whether a run may start, and what it answers. Changes nothing.
    async fn may_start(&self, wish: &mut RunRequest) -> Result<Entrance, ApiError> {
        check_id("thread", &wish.input.thread)?;
        check_id("run", &wish.input.run)?;
        if self.live_run(&wish.owner, &wish.input.run).is_none() {
            if self.is_draining() {
                return Err(ApiError::new(codes::DRAINING, "the gateway is shutting down").retry_after(5));
            }
            if self.live_run_count() >= self.settings().limits.runs {
                return Err(ApiError::new(codes::OVERLOADED, "too many runs at once").retry_after(5));
            }
        }
        // Known already: joined, whatever else the request says.
        if let Ok(run) = self.store().run(&wish.owner, &wish.input.run).await
            && run.thread == wish.input.thread
        {
            return Ok(Entrance::Known(run.run));
        }
        Ok(Entrance::New(self.answers(wish).await?))
    }

    async fn start(&self, wish: RunRequest, answering: Option<AnswerSet>) -> Result<RunId, ApiError> {
        let busy = wish.agent.settings.busy;
        let mut tries = 0;
        let began = Instant::now();
        let mut new = NewRun {
            thread: wish.input.thread.clone(),
            run: wish.input.run.clone(),
            agent: (&*wish.agent.name).into(),
            input: ag_ui::input::to_json(&wish.input).into(),
            cause: wish.cut.as_ref().map(|cut| format!("{ANEW}{cut}").into()),
            claim: self.claim(),
            mode: match busy {
                Busy::Enqueue { limit } => StartMode::Queue { limit },
                _ => StartMode::Now,
            },
            answers: answering,
        };
        loop {
            let freed = self.run_ended().notified();
            let started = self.store().start(&wish.owner, new.clone()).await;
            self.note_store_result(&started);
            let lease = match started {
                Ok(Start::Created(run)) => return Ok(self.begin(wish, run)),
                Ok(Start::Exists(run)) if run.thread == wish.input.thread => return Ok(run.run),
                Ok(Start::Exists(_)) => {
                    return Err(ApiError::new(codes::RUN_ID_TAKEN, "the run id was used in another thread"));
                }
                Ok(Start::Answered(run)) => match self.store().run(&wish.owner, &run).await {
                    Ok(run) => return Ok(run.run),
                    // Whoever recorded the answer died before the run began.
                    Err(_) => {
                        new.answers = None;
                        continue;
                    }
                },
                Ok(Start::Held(lease)) => lease,
                Ok(Start::QueueFull) => {
                    return Err(
                        ApiError::new(codes::QUEUE_FULL, "too many runs wait for the thread").retry_after(5)
                    );
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
            let locked = || {
                ApiError::new(codes::THREAD_IS_LOCKED, "another run has the thread")
                    .hint("try again when it has ended, or stop it")
                    .retry_after(1)
            };
            self.metrics().lock_waits.inc();
            match busy {
                Busy::Reject | Busy::Enqueue { .. } => return Err(locked()),
                Busy::Wait { retries, interval } => {
                    if tries >= retries {
                        return Err(locked());
                    }
                    tries += 1;
                    tokio::time::sleep(interval).await;
                }
                Busy::Interrupt => {
                    if began.elapsed() > INTERRUPT_PATIENCE {
                        return Err(locked());
                    }
                    if let Some(live) = self.live_run(&wish.owner, &lease.run) {
                        let _ = live.commands.send(Command::Stop("another run took its place")).await;
                    }
                    let _ = tokio::time::timeout(Duration::from_millis(100), freed).await;
                }
            }
            // Whoever had the thread may have left a question behind.
            if let Some(open) = self.unanswered(&wish.owner, &wish.input.thread, new.answers.as_ref()).await?
            {
                return Err(answers::unanswered(open.as_str()));
            }
        }
    }

    /// A question of a thread that nobody answers here.
    pub(crate) async fn unanswered(
        &self,
        owner: &Owner,
        thread: &ThreadId,
        answering: Option<&AnswerSet>,
    ) -> Result<Option<PendingId>, StoreError> {
        let open = match self.open(owner, thread).await {
            Err(StoreError::NotFound(_)) => return Ok(None),
            open => open?,
        };
        let is_answered = |item: &Pending| {
            answering.is_some_and(|answering| answering.answers.iter().any(|answer| answer.id == item.id))
        };
        let left = open.into_iter().find(|item| answers::must_be_answered(item) && !is_answered(item));
        Ok(left.map(|item| item.id))
    }

    /// The answers to open items that a request brings.
    async fn answers(&self, wish: &mut RunRequest) -> Result<Option<AnswerSet>, ApiError> {
        let items = match wish.items.take() {
            Some(items) => items,
            None => self.items_for(wish).await?,
        };
        let RunRequest { owner, input, .. } = wish;
        answers::take_old_answer(input, &items);
        answers::take_questions(input, &items);
        // Beside what a client answers may stand what the agent answered itself; few requests make it worth looking.
        let settled = match answers::has_unasked_result(input, &items) {
            true => history::results(&self.said(owner, &input.thread).await?),
            false => HashMap::new(),
        };
        answers::answers(input, &items, &settled, self.store().now(), owner.user.as_str())
    }

    /// What was said in a thread, as far as this gateway knows; nothing in one that it does not know.
    pub(crate) async fn said(&self, owner: &Owner, thread: &ThreadId) -> Result<Vec<Message>, StoreError> {
        match self.store().messages(owner, thread).await {
            Ok(stored) => Ok(stored.map_or_else(Vec::new, |text| input::messages_of(&text))),
            Err(StoreError::NotFound(_)) => Ok(Vec::new()),
            Err(error) => Err(error),
        }
    }

    /// What a thread waits for.
    pub(crate) async fn open(&self, owner: &Owner, thread: &ThreadId) -> Result<Vec<Pending>, StoreError> {
        let items = self.asked_under(owner, thread, HashSet::new()).await?;
        let now = self.store().now();
        let is_open = |item: &&Pending| item.answer.is_none() && item.expires.is_none_or(|until| until > now);
        Ok(pending::current(&items).filter(is_open).cloned().collect())
    }

    /// What a request may be about: what its thread waits for, and whatever it names that the thread has waited for.
    pub(crate) async fn items(&self, owner: &Owner, input: &RunInput) -> Result<Vec<Pending>, ApiError> {
        let results = input.messages.iter().filter_map(|message| match &message.body {
            MessageBody::Tool { call, .. } => Some(PendingId::from(call.as_str())),
            _ => None,
        });
        let entries = input.resume.iter().flatten().map(|entry| PendingId::from(entry.interrupt.as_str()));
        match self.asked_under(owner, &input.thread, results.chain(entries).collect()).await {
            Ok(items) => Ok(items),
            Err(StoreError::NotFound(_)) => Ok(Vec::new()),
            Err(error) => Err(error.into()),
        }
    }

    /// What was asked in a thread under the ids that are named or have no answer yet, every time that it was: what has no
    /// answer may have been asked again, and then the last time counts.
    async fn asked_under(
        &self,
        owner: &Owner,
        thread: &ThreadId,
        mut named: HashSet<PendingId>,
    ) -> Result<Vec<Pending>, StoreError> {
        let items = self.store().pending(owner, thread, PendingFilter::Unanswered(named.clone())).await?;
        let known = named.len();
        named.extend(items.iter().map(|item| item.id.clone()));
        if named.len() == known {
            return Ok(items);
        }
        self.store().pending(owner, thread, PendingFilter::Unanswered(named)).await
    }

    /// The same for a request, which may answer what waits on the agent's side alone.
    pub(crate) async fn items_for(&self, wish: &RunRequest) -> Result<Vec<Pending>, ApiError> {
        let RunRequest { agent, owner, input, headers, .. } = wish;
        let items = self.items(owner, input).await?;
        if !items.is_empty() || !answers::answers_something(input) {
            return Ok(items);
        }
        let about = agent.thread_request(owner.clone(), &input.thread, headers.clone());
        Ok(self.elsewhere(agent, about).await?.unwrap_or_default())
    }

    /// What waits for an answer in a thread in which nothing was said here; `None` if it is not one of the agent's side
    /// either.
    pub(crate) async fn elsewhere(
        &self,
        agent: &AgentEntry,
        about: agent::Request,
    ) -> Result<Option<Vec<Pending>>, ApiError> {
        if !self.said(&about.owner, &about.input.thread).await?.is_empty() {
            return Ok(None);
        }
        let Some(recalled) = agent.agent.recall(about) else { return Ok(None) };
        Ok(recalled.await?.map(|recalled| pending::elsewhere(recalled, self.store().now())))
    }

    fn begin(&self, wish: RunRequest, run: Run) -> RunId {
        let RunRequest { agent, owner, input, cut, headers, one_message, .. } = wish;
        let id = run.run.clone();
        let key = agentwire_store::RunKey { owner: owner.clone(), run: id.clone() };
        let cancel = agent.settings.on_disconnect == OnDisconnect::Cancel;
        let (live, commands) =
            LiveRun::new(key, run.thread.clone(), run.next_seq.0, &self.settings().limits, cancel);
        self.register_run(&live);
        let name = agent.name.to_string();
        self.metrics().runs_started.get_or_create(&metrics::Agent { agent: name }).inc();
        tracing::info!(run = %id, thread = %run.thread, agent = %agent.name, "run started");
        let logged = None;
        let gateway = self.clone();
        let job =
            Job { gateway, agent, owner, run, input, cut, one_message, headers, live, commands, logged };
        self.tasks().spawn(job.drive());
        id
    }
}

/// Ids are anybody's words, but they must fit into headers and lines.
pub(crate) fn check_id(what: &str, id: &str) -> Result<(), ApiError> {
    let problem = if id.is_empty() {
        "is empty".to_owned()
    } else if id.len() > MAX_ID {
        format!("has {} bytes, at most {MAX_ID} are allowed", id.len())
    } else if id.chars().any(char::is_control) {
        "holds control characters".to_owned()
    } else {
        return Ok(());
    };
    Err(ApiError::new(codes::BAD_ID, format!("the {what} id {problem}")))
}
