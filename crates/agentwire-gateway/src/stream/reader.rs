//! One reader: a client that follows a run in one format, from any position to the end.
//!
//! A reader copies log entries, from the ring of a live run or from the store, and encodes them in its output format.
//! [`RunReader::open`] finds the start position and the recovery verdict; [`RunReader::next_chunk`] is the body of the
//! response.
//!
//! A client that comes back without a cursor gets the conversation too ([`FollowRequest::with_history`]): the messages and
//! the state before the run, behind its RUN_STARTED; or, if the run has ended, snapshots and its terminal event.

use std::{
    collections::VecDeque, fmt::Write, future::poll_fn, io, pin::Pin, sync::Arc, task::Poll, time::Duration,
};

use agentwire_core::{
    event::{Body, Event, Outcome, RunError, RunFinished, RunId, RunInput, RunStarted, StreamEnd, ThreadId},
    framing::Frames,
    json::Json,
    order::Guard,
};
use agentwire_store::{Log, LogSlice, Owner, Run, RunKey, RunStatus, Seq, StoreError, Time};
use bytes::Bytes;
use tokio::{
    sync::oneshot,
    time::{Instant, Sleep},
};
use tokio_util::sync::CancellationToken;

use crate::{
    codes, cpu_work,
    error::ApiError,
    gateway::Gateway,
    limits::{HeldBytes, Party},
    metrics,
    settings::Sse,
    stream::{
        cold::SharedPage,
        live::{Command, Head, LiveRun, LiveState, LogFailure, ReaderCursor, RingRead},
        log_codec::{self, Decoder, Encoder, event_type},
        output::{EventEncoder, OutputFormat},
    },
};

/// Bytes that are read from the log at once: a few appends of a fast stream, and the memory of a reader that waits for its
/// client.
const PAGE: usize = 16 << 10;

/// Entries for which an idle reader keeps room: the smallest allocation of a queue.
const KEPT_ENTRIES: usize = 4;

/// One read out of this many is measured, because all readers share the histogram.
const READS_PER_SAMPLE: u64 = 16;

/// Bytes from which the output is sent before more entries are encoded.
const CHUNK: usize = 8 << 10;

/// The size from which an entry counts for the budget of bytes.
const LARGE: usize = 64 << 10;

/// Time for the last bytes to reach the client before its connection is cut.
const CUT_DELAY: Duration = Duration::from_millis(100);

/// The recovery verdict: the result of a reconnect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Every event after the cursor.
    Whole,
    /// Snapshots in place of events that are no longer retained.
    Snapshot,
    /// Snapshots, and the missed events are unknown.
    Gap,
}

impl Verdict {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Whole => "whole",
            Self::Snapshot => "snapshot",
            Self::Gap => "gap",
        }
    }
}

/// The last frame that a client has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ResumePoint {
    /// The number of its event.
    pub(crate) seq: u64,
    /// The number of frames of that event that the client lacks.
    pub(crate) missing: usize,
    /// The epoch of the store in which the event was written.
    pub(crate) epoch: u32,
}

/// Encodes events as log entries; those without a timestamp get `time`.
fn encode_for_log(
    thread: &ThreadId,
    run: &RunId,
    time: Time,
    events: impl IntoIterator<Item = Event>,
) -> Vec<Bytes> {
    let mut encoder = Encoder::new(thread, run);
    let time = i64::try_from(time.0).ok();
    let timed = |event: Event| Event { timestamp: event.timestamp.or(time), ..event };
    events.into_iter().filter_map(|event| encoder.encode(&timed(event))).collect()
}

/// One reader of one run.
pub(crate) struct RunReader {
    gateway: Gateway,
    owner: Owner,
    thread: ThreadId,
    run: RunId,
    live: Option<(Arc<LiveRun>, Arc<ReaderCursor>)>,
    /// Cancelled when the reader lags too far behind; ends the connection.
    disconnect: CancellationToken,
    position: Position,
    /// Entries that are read and not yet encoded.
    page: VecDeque<Bytes>,
    /// The page as other readers share it.
    shared_page: Option<SharedPage>,
    /// The budget of a large entry that is being sent.
    held: Option<HeldBytes>,
    history: History,
    encoder: EventEncoder,
    output: Frames,
    /// `run:seq` or `run:seq.epoch`, the SSE id of the current event; rewritten behind `id_prefix`.
    id: String,
    id_prefix: usize,
    format: &'static str,
    close_delay: Duration,
    heartbeat: Heartbeat,
    is_drain_announced: bool,
    stage: Stage,
}

/// The place of a reader in the log.
struct Position {
    /// The sequence number of the next entry to encode.
    next: u64,
    /// Entries before it are encoded and discarded.
    first_shown: u64,
    /// The entry of which the client has the first frames, until it is encoded.
    partial: Option<ResumePoint>,
    /// True if the client has every event of an ended run.
    is_complete: bool,
    /// The epoch of the client's cursor.
    cursor_epoch: u32,
    /// The epoch of the entries in the page.
    epoch: u32,
    page: PageKind,
}

/// The kind of the entries in the page of a reader.
#[derive(Clone, Copy, PartialEq, Eq)]
enum PageKind {
    /// Entries of the log.
    Log,
    /// Entries in place of the whole log of an ended run. A repeated read gives the same ones.
    Substitute,
    /// Entries in place of the log of a live run so far.
    Prelude,
}

/// The conversation before the run.
enum History {
    /// The client does not want it, or has it.
    None,
    /// It is read when the first event of the run is there: until then an earlier run may have the thread.
    Wanted,
    /// Snapshots of messages and state as log entries.
    Read(Vec<Bytes>),
}

/// A way to find the start position of a reader.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Start {
    /// At the cursor in the log, or at its beginning.
    Log,
    /// At the beginning of the log, with the conversation before the run; snapshots if the run has ended.
    History,
    /// Anew, because the position of the cursor does not exist.
    Gap,
}

/// Comments on a quiet stream, so that proxies keep it open.
struct Heartbeat {
    timer: Pin<Box<Sleep>>,
    last_sent: Instant,
}

/// The reason why a waiting reader continues.
enum Wakeup {
    NewEvents,
    Heartbeat,
    Draining,
    Ended(RunStatus),
    LogFailed(LogFailure),
    Cut,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    Open,
    /// The last event is sent.
    Closing,
    Closed,
}

/// A request to follow a run.
pub(crate) struct FollowRequest<'a> {
    pub(crate) owner: &'a Owner,
    pub(crate) run: &'a RunId,
    /// The last frame that the client has.
    pub(crate) after: Option<ResumePoint>,
    /// True if a client without a cursor gets the conversation before the run as well.
    pub(crate) with_history: bool,
    /// The input of the run, if it is at hand.
    pub(crate) input: Option<&'a RunInput>,
    /// The fields of an SSE frame.
    pub(crate) sse: Sse,
    /// Cancelled to end the connection.
    pub(crate) disconnect: CancellationToken,
}

impl RunReader {
    /// Finds the run and the position to start from.
    pub(crate) async fn open(
        gateway: &Gateway,
        request: FollowRequest<'_>,
        output_format: OutputFormat,
    ) -> Result<(Self, Verdict), ApiError> {
        let output_format = output_format.for_run(gateway, request.owner, request.run).await?;
        let with_history = request.with_history && output_format.can_carry_history();
        let starts = match request.after {
            None if with_history => &[Start::History][..],
            None | Some(ResumePoint { missing: 0, .. }) => &[Start::Log],
            // The cursor may be of a stream that began with the history.
            Some(_) if output_format.can_carry_history() => &[Start::Log, Start::History, Start::Gap],
            Some(_) => &[Start::Log, Start::Gap],
        };
        for start in starts {
            let mut reader = Self::new(gateway, &request, &output_format).await?;
            if let Some(verdict) = reader.find_start(*start, with_history).await?
                && reader.skip_partial_event().await?
            {
                let label = metrics::VerdictLabel { verdict: verdict.as_str() };
                gateway.metrics().recoveries.get_or_create(&label).inc();
                return Ok((reader, verdict));
            }
        }
        Err(ApiError::new(codes::INTERNAL, "no start position was found"))
    }

    async fn new(
        gateway: &Gateway,
        request: &FollowRequest<'_>,
        output_format: &OutputFormat,
    ) -> Result<Self, ApiError> {
        let FollowRequest { owner, run, after, input, sse, disconnect, .. } = request;
        let thread = match gateway.live_run(owner, run) {
            Some(live) => live.thread.clone(),
            None => gateway.store().run(owner, run).await?.thread,
        };
        let encoder = EventEncoder::new(gateway, owner, &thread, run, *input, output_format).await?;
        let mut id = String::with_capacity(run.len() + 12);
        id.push_str(run);
        id.push(':');
        let settings = gateway.settings();
        let format = output_format.format.name;
        gateway.metrics().readers.get_or_create(&metrics::FormatLabel { format }).inc();
        Ok(Self {
            gateway: gateway.clone(),
            owner: (*owner).clone(),
            thread,
            run: (*run).clone(),
            live: None,
            disconnect: disconnect.clone(),
            position: Position {
                next: 0,
                first_shown: after.map_or(0, |point| match point.missing {
                    0 => point.seq.saturating_add(1),
                    _ => point.seq,
                }),
                partial: after.filter(|point| point.missing > 0),
                is_complete: false,
                cursor_epoch: after.map_or(0, |point| point.epoch),
                epoch: 0,
                page: PageKind::Log,
            },
            page: VecDeque::new(),
            shared_page: None,
            held: None,
            history: History::None,
            encoder,
            output: Frames::new(output_format.profile.framing).named(*sse == Sse::Standard),
            id_prefix: id.len(),
            id,
            format,
            close_delay: output_format.close_delay,
            heartbeat: Heartbeat {
                timer: Box::pin(tokio::time::sleep(settings.heartbeat)),
                last_sent: Instant::now(),
            },
            is_drain_announced: false,
            stage: Stage::Open,
        })
    }

    pub(crate) fn thread(&self) -> &ThreadId {
        &self.thread
    }

    /// True if the client has every event of an ended run.
    pub(crate) fn is_complete(&self) -> bool {
        self.position.is_complete
    }

    fn key(&self) -> RunKey {
        RunKey { owner: self.owner.clone(), run: self.run.clone() }
    }

    /// The run if it is live: driven by this process, or followed behind another one.
    async fn live_run(&mut self) -> Result<Option<Arc<LiveRun>>, ApiError> {
        let here = self.gateway.live_run(&self.owner, &self.run);
        if let Some(live) = here.filter(|live| live.head().state == LiveState::Running) {
            return Ok(Some(live));
        }
        let stored = self.gateway.store().run(&self.owner, &self.run).await?;
        let tail = || self.gateway.tail(&self.key(), &self.thread, &stored.agent, stored.next_seq.0);
        Ok(stored.status.is_live().then(tail))
    }

    /// `None` if there is no such start.
    async fn find_start(&mut self, start: Start, with_history: bool) -> Result<Option<Verdict>, ApiError> {
        let live = self.live_run().await?;
        match start {
            Start::Log => self.start_in_log(live, with_history).await,
            Start::History => self.start_with_history(live).await,
            Start::Gap => self.start_after_gap(live).await,
        }
    }

    /// Encodes up to the event of which the client has the first frames. `false` if it has no such frame.
    async fn skip_partial_event(&mut self) -> Result<bool, ApiError> {
        if self.position.partial.is_none() {
            return Ok(true);
        }
        loop {
            self.encode_page().await;
            if self.position.partial.is_none() || self.stage != Stage::Open {
                return Ok(self.position.partial.is_none());
            }
            if self.page.is_empty() {
                self.read_page().await?;
            }
        }
    }

    /// Starts at the cursor, or at the beginning.
    async fn start_in_log(
        &mut self,
        live: Option<Arc<LiveRun>>,
        with_history: bool,
    ) -> Result<Option<Verdict>, ApiError> {
        let Position { first_shown, partial, .. } = self.position;
        let has_cursor = first_shown > 0 || partial.is_some();
        // The latest events of a run of this process have the highest epoch.
        let may_be_old = live.as_ref().is_none_or(|live| live.is_tail() || live.epoch() > 0);
        if has_cursor && may_be_old && !self.is_cursor_current().await? {
            return self.start_after_gap(live).await;
        }
        // The entries that the client has, wholly or in part, must exist.
        let known = first_shown.saturating_add(u64::from(partial.is_some()));
        if self.encoder.is_passthrough() {
            self.position.next = first_shown;
        }
        if let Some(live) = live {
            let head = live.head();
            // A gateway that is faster may have shown events that are not published here yet.
            if known > head.next && known > self.gateway.store().run(&self.owner, &self.run).await?.next_seq.0
            {
                return self.start_after_gap(Some(live)).await;
            }
            let is_ended = matches!(head.state, LiveState::Ended(_));
            self.position.is_complete = is_ended && has_cursor && first_shown == head.next;
            self.attach(live);
            return Ok(Some(Verdict::Whole));
        }
        let start = self.position.next.checked_sub(1).map(Seq);
        match self.read_log(start).await? {
            Log::Exact(slice) if known <= slice.next_seq.0 => {
                let is_ended = !slice.status.is_live();
                self.position.is_complete = is_ended && has_cursor && first_shown == slice.next_seq.0;
                self.position.epoch = slice.epoch;
                self.page = slice.events.into();
                Ok(Some(Verdict::Whole))
            }
            Log::Exact(_) | Log::Ahead { .. } => self.start_after_gap(None).await,
            Log::Compacted { next_seq, .. } | Log::NotRetained { next_seq, .. } if known > next_seq.0 => {
                self.start_after_gap(None).await
            }
            Log::Compacted { next_seq, .. } | Log::NotRetained { next_seq, .. }
                if has_cursor && first_shown == next_seq.0 =>
            {
                self.position.is_complete = true;
                Ok(Some(Verdict::Whole))
            }
            Log::Compacted { events, next_seq, .. } if !has_cursor => {
                self.substitute(events, next_seq.0, PageKind::Substitute);
                Ok(Some(Verdict::Snapshot))
            }
            Log::Compacted { next_seq, .. } | Log::NotRetained { next_seq, .. }
                if partial.is_some() && known == next_seq.0 =>
            {
                // Only a read from the start finds the compacted form.
                match self.read_log(None).await? {
                    Log::Compacted { events, next_seq, .. } if !with_history => {
                        self.substitute(events, next_seq.0, PageKind::Substitute);
                        Ok(Some(Verdict::Snapshot))
                    }
                    _ => Ok(None),
                }
            }
            Log::Compacted { .. } | Log::NotRetained { .. } => {
                self.position.partial = None;
                let has_messages = self.substitute_snapshots().await?;
                Ok(Some(if has_messages { Verdict::Snapshot } else { Verdict::Gap }))
            }
        }
    }

    /// True if the event of the cursor was written in its epoch: after a failover that lost events, numbers are used anew.
    async fn is_cursor_current(&mut self) -> Result<bool, ApiError> {
        let Position { first_shown, partial, cursor_epoch, .. } = self.position;
        let seq = partial.map_or(first_shown.saturating_sub(1), |point| point.seq);
        let read = self.gateway.store().read(&self.owner, &self.run, seq.checked_sub(1).map(Seq), 1);
        Ok(match read.await? {
            Log::Exact(slice) => slice.events.is_empty() || slice.epoch <= cursor_epoch,
            _ => true,
        })
    }

    /// Starts anew: with a prelude if the run is live, else with snapshots.
    async fn start_after_gap(&mut self, live: Option<Arc<LiveRun>>) -> Result<Option<Verdict>, ApiError> {
        self.position.partial = None;
        if let Some(live) = live {
            // A run that ends meanwhile is found in the store.
            let (reply, prelude) = oneshot::channel();
            if live.commands.send(Command::Prelude(reply)).await.is_ok()
                && let Ok(prelude) = prelude.await
            {
                self.substitute(prelude.events, prelude.next, PageKind::Prelude);
                self.attach(live);
                return Ok(Some(Verdict::Gap));
            }
            if live.is_tail()
                && let Some(prelude) = self.gateway.run_prelude(&self.key()).await?
            {
                self.substitute(prelude.events, prelude.next, PageKind::Prelude);
                self.attach(live);
                return Ok(Some(Verdict::Gap));
            }
        }
        self.substitute_snapshots().await?;
        Ok(Some(Verdict::Gap))
    }

    /// Starts at the first event of the run with the conversation before it.
    async fn start_with_history(&mut self, live: Option<Arc<LiveRun>>) -> Result<Option<Verdict>, ApiError> {
        let run = self.gateway.store().run(&self.owner, &self.run).await?;
        // A cursor within the first event is of a stream with the history of a live run; one within the last event is of
        // the snapshots of an ended run.
        let place = if run.status.is_live() { Some(Seq(0)) } else { run.last_seq() };
        if self.position.partial.is_some_and(|partial| Some(Seq(partial.seq)) != place) {
            return Ok(None);
        }
        let has_begun = live.as_ref().map_or(run.next_seq.0, |live| live.head().next) > 0;
        if let Some(live) = live {
            self.attach(live);
        }
        self.history = History::Wanted;
        let is_ended = has_begun && !self.read_history().await?;
        Ok(Some(if is_ended { Verdict::Snapshot } else { Verdict::Whole }))
    }

    /// Reads the conversation before the run. If the run has ended, snapshots take the place of its events: `false`.
    async fn read_history(&mut self) -> Result<bool, ApiError> {
        self.history = History::None;
        let store = self.gateway.store().clone();
        let run = store.run(&self.owner, &self.run).await?;
        let start = self.gateway.starting_data(&self.owner, &run).await?;
        // The end of the run replaces the stored messages in one step with its status.
        if !store.run(&self.owner, &self.run).await?.status.is_live() {
            self.substitute_snapshots().await?;
            return Ok(false);
        }
        let (length, names) = (start.bytes, (self.thread.clone(), self.run.clone()));
        let encode = move || {
            let snapshot = Json::from(&start.state);
            let events =
                [Body::MessagesSnapshot { messages: start.messages }, Body::StateSnapshot { snapshot }];
            encode_for_log(&names.0, &names.1, run.created, events.map(Event::new))
        };
        self.history = History::Read(cpu_work::by_length(&self.owner, length, encode).await?);
        Ok(true)
    }

    fn attach(&mut self, live: Arc<LiveRun>) {
        let cursor = live.register_reader(self.disconnect.clone());
        self.live = Some((live, cursor));
    }

    /// Shows `events` in place of all entries before `next`.
    fn substitute(&mut self, events: Vec<Bytes>, next: u64, kind: PageKind) {
        (self.position.next, self.position.first_shown) = (next, next);
        // A queued run has no prelude.
        self.position.page = if events.is_empty() { PageKind::Log } else { kind };
        self.page = events.into();
    }

    /// Substitutes snapshots for a run whose events are not retained. `false` if its messages are not retained either.
    async fn substitute_snapshots(&mut self) -> Result<bool, ApiError> {
        let store = self.gateway.store().clone();
        let run = store.run(&self.owner, &self.run).await?;
        let messages = store.messages(&self.owner, &self.thread).await?;
        let state = store.state(&self.owner, &self.thread).await?;
        let has_messages = messages.is_some();
        let mut ends = vec![];
        if !run.status.is_live() {
            ends.push(self.terminal_event(&run).await?);
        }
        let length = messages.as_deref().map_or(0, str::len) + state.body.as_deref().map_or(0, str::len);
        let (started, names) = (self.run_started(), (self.thread.clone(), self.run.clone()));
        let encode = move || {
            let mut events = vec![started];
            events.extend(messages.map(|messages| {
                Event::new(Body::MessagesSnapshot { messages: log_codec::parse_messages(&messages) })
            }));
            let state = state.body.as_deref().and_then(|body| Json::parse(body).ok());
            let snapshot = state.unwrap_or_else(|| Json::from(serde_json::json!({})));
            events.push(Event::new(Body::StateSnapshot { snapshot }));
            events.extend(ends);
            encode_for_log(&names.0, &names.1, run.updated, events)
        };
        let events = cpu_work::by_length(&self.owner, length, encode).await?;
        self.substitute(events, run.next_seq.0, PageKind::Substitute);
        Ok(has_messages)
    }

    fn run_started(&self) -> Event {
        Event::new(Body::RunStarted(Box::new(RunStarted::new(self.thread.clone(), self.run.clone()))))
    }

    /// The terminal event of an ended run: as logged, else rebuilt from its stored status. As long as the thread waits for an
    /// answer, it ends with the question; a question that is no longer open is left out.
    async fn terminal_event(&mut self, run: &Run) -> Result<Event, ApiError> {
        let open = self.gateway.open_items(&self.owner, &run.thread).await?;
        let question = outcome_of(open.iter()).filter(|it| matches!(it, Outcome::Interrupt { .. }));
        let outcome = match (question, run.status) {
            (Some(question), _) => Some(question),
            (None, RunStatus::Stopped) => Some(Outcome::Cancelled),
            (None, RunStatus::Waiting) => outcome_of(open.iter().filter(|item| item.run == run.run)),
            (None, _) => None,
        };
        let is_question = matches!(outcome, Some(Outcome::Interrupt { .. }));
        match self.logged_end(run).await?.map(|event| (event.body.clone(), event)) {
            Some((Body::RunError(_), event)) if !is_question => return Ok(event),
            Some((Body::RunFinished(mut finished), event)) => {
                if open_ids(finished.outcome.as_ref()) != open_ids(outcome.as_ref()) {
                    finished.outcome = outcome;
                }
                return Ok(Event { body: Body::RunFinished(finished), ..event });
            }
            _ => {}
        }
        if run.status == RunStatus::Failed && !is_question {
            let error = RunError::new("the run failed", run.cause.as_deref());
            return Ok(Event::new(Body::RunError(Box::new(error))));
        }
        let mut finished = RunFinished::new(run.thread.clone(), run.run.clone());
        finished.outcome = outcome;
        Ok(Event::new(Body::RunFinished(Box::new(finished))))
    }

    /// The last event of an ended run, if its log is retained.
    async fn logged_end(&mut self, run: &Run) -> Result<Option<Event>, ApiError> {
        let before = run.next_seq.0.checked_sub(2).map(Seq);
        let log = self.read_log(before).await?;
        let (Log::Exact(LogSlice { events, .. }) | Log::Compacted { events, .. }) = log else {
            return Ok(None);
        };
        let mut decoded = Vec::new();
        if let Some(last) = events.last() {
            Decoder::new(&self.thread, &self.run).decode(last, &mut decoded);
        }
        Ok(decoded.pop())
    }

    /// The next bytes for the client; `None` at the end.
    ///
    /// # Errors
    /// When the log cannot be read. The connection must then be reset, so that the client does not see a regular end.
    pub(crate) async fn next_chunk(&mut self) -> Option<io::Result<Bytes>> {
        // The client has taken the last one.
        self.held = None;
        loop {
            // Rare steps are boxed: the future of a reader that waits has no room for them.
            if matches!(self.history, History::Wanted)
                && !self.page.is_empty()
                && let Err(error) = Box::pin(self.read_history()).await
            {
                return Some(Err(self.fail(error)));
            }
            match self.is_page_long() {
                true => Box::pin(self.encode_long_page()).await,
                false => self.encode_entries(),
            }
            if !self.output.is_empty() {
                self.heartbeat.last_sent = Instant::now();
                return Some(Ok(self.output.take()));
            }
            match self.stage {
                Stage::Open => {}
                Stage::Closing => {
                    if !self.close_delay.is_zero() {
                        Box::pin(tokio::time::sleep(self.close_delay)).await;
                    }
                    self.stage = Stage::Closed;
                    return None;
                }
                Stage::Closed => return None,
            }
            if let Err(error) = self.read_page().await {
                return Some(Err(self.fail(error)));
            }
        }
    }

    fn fail(&mut self, error: ApiError) -> io::Error {
        self.stage = Stage::Closed;
        tracing::warn!(run = %self.run, %error, "a reader was disconnected because the log could not be read");
        io::Error::other(error.message)
    }

    /// Reads the next entries, waits for them, or finds the end.
    async fn read_page(&mut self) -> Result<(), ApiError> {
        let Some((live, cursor)) = &self.live else {
            return Box::pin(self.read_from_store()).await;
        };
        match live.read(self.position.next, PAGE, cursor, &mut self.page) {
            RingRead::Events => {
                self.position.epoch = live.epoch();
                if self.position.next.is_multiple_of(READS_PER_SAMPLE) {
                    let since = live.received().elapsed().as_secs_f64();
                    self.gateway.metrics().delivery_seconds.observe(since);
                }
                return Ok(());
            }
            RingRead::Evicted => return Box::pin(self.read_from_store()).await,
            RingRead::UpToDate => {}
        }
        let announce_drain = !self.is_drain_announced;
        let wakeup = poll_fn(|cx| {
            // Registered before the head is read, so that a later event wakes this task.
            cursor.waker.register(cx.waker());
            let Head { next, state } = live.head();
            match state {
                _ if next > self.position.next => Poll::Ready(Wakeup::NewEvents),
                LiveState::Ended(status) => Poll::Ready(Wakeup::Ended(status)),
                LiveState::LogFailed(failure) => Poll::Ready(Wakeup::LogFailed(failure)),
                LiveState::Cut => Poll::Ready(Wakeup::Cut),
                LiveState::Running if announce_drain && self.gateway.is_draining() => {
                    Poll::Ready(Wakeup::Draining)
                }
                // The run goes on at another process: a regular end of the stream would look like its end.
                LiveState::Running if live.is_tail() && self.gateway.is_draining() => {
                    Poll::Ready(Wakeup::Cut)
                }
                LiveState::Running => self.heartbeat.timer.as_mut().poll(cx).map(|()| Wakeup::Heartbeat),
            }
        });
        match wakeup.await {
            Wakeup::NewEvents => {}
            Wakeup::Heartbeat => self.send_heartbeat(),
            Wakeup::Draining => self.announce_drain(),
            Wakeup::Ended(status) => self.close_after(status),
            Wakeup::LogFailed(failure) => Box::pin(self.finish_after_log_failure(failure)).await,
            // A regular end would look like the end of the run.
            Wakeup::Cut => {
                Box::pin(tokio::time::sleep(CUT_DELAY)).await;
                return Err(ApiError::new(codes::GATEWAY_LOST, "the run may go on elsewhere"));
            }
        }
        Ok(())
    }

    async fn read_from_store(&mut self) -> Result<(), ApiError> {
        let after = self.position.next.checked_sub(1).map(Seq);
        let store = &**self.gateway.store();
        let reads = self.gateway.cold_reads();
        let page = reads.read_shared(store, &self.owner, &self.run, after, PAGE).await?;
        let Some(Log::Exact(slice)) = page.get() else {
            return Err(ApiError::new(codes::INTERNAL, "the log was given up while it was read"));
        };
        self.position.epoch = slice.epoch;
        if !slice.events.is_empty() {
            self.page.extend(slice.events.iter().cloned());
            self.shared_page = Some(page);
            return Ok(());
        }
        let status = slice.status;
        // Not kept while waiting: readers that share an empty page would never see more.
        drop(page);
        if !status.is_live() {
            self.close_after(status);
        } else if self.live.is_none()
            && let Some(live) = self.live_run().await?
        {
            self.attach(live);
        }
        Ok(())
    }

    /// Follows the run behind the process that drives it now.
    fn detach(&mut self) {
        if let Some((live, cursor)) = self.live.take() {
            live.unregister_reader(&cursor);
        }
    }

    /// Reads a page of the log as it is now.
    async fn read_log(&mut self, after: Option<Seq>) -> Result<Log, StoreError> {
        let store = &**self.gateway.store();
        self.gateway.cold_reads().read(store, &self.owner, &self.run, after, PAGE).await
    }

    fn send_heartbeat(&mut self) {
        let interval = self.gateway.settings().heartbeat;
        let Heartbeat { timer, last_sent } = &mut self.heartbeat;
        if last_sent.elapsed() >= interval {
            self.output.comment("ping");
            *last_sent = Instant::now();
        }
        timer.as_mut().reset(*last_sent + interval);
    }

    /// Announces the drain with a `retry` of random length, so that the clients do not reconnect all at once.
    fn announce_drain(&mut self) {
        use std::hash::{BuildHasher, RandomState};
        self.is_drain_announced = true;
        let jitter = RandomState::new().hash_one(self.run.as_str()) % 4000;
        self.output.retry(1000 + jitter, "draining");
    }

    /// Waits for the budget of the next entries if they are large: the output is a copy that stays until the client has it.
    async fn hold_large_entry(&mut self) {
        let next = match self.position.page {
            PageKind::Log => self.page.front().map_or(0, Bytes::len),
            PageKind::Substitute | PageKind::Prelude => self.page.iter().map(Bytes::len).sum(),
        };
        if next >= LARGE {
            let mut held = self.gateway.bytes().hold(Party::user(&self.owner));
            held.wait(next).await;
            self.held = Some(held);
        }
    }

    /// True if the next entries may take long to encode: a large one, or snapshots.
    fn is_page_long(&self) -> bool {
        self.position.page != PageKind::Log || self.page.front().is_some_and(|next| next.len() >= LARGE)
    }

    /// Encodes the next entries, which may take long, once there is room for them.
    async fn encode_long_page(&mut self) {
        self.hold_large_entry().await;
        self.encode_page().await;
    }

    /// Encodes entries of the log up to a large one, until there is a chunk of output.
    fn encode_entries(&mut self) {
        while self.output.len() < CHUNK
            && !self.is_page_long()
            && let Some(logged) = self.page.pop_front()
        {
            let seq = self.position.next;
            self.position.next += 1;
            self.encode(&logged, seq);
        }
        if self.page.is_empty() {
            // Idle readers keep no memory beyond that for one event.
            if self.page.capacity() > KEPT_ENTRIES {
                self.page = VecDeque::new();
            }
            self.shared_page = None;
            self.encoder.shrink();
        }
    }

    /// Encodes entries of the page until there is a chunk of output.
    async fn encode_page(&mut self) {
        if self.position.page == PageKind::Log {
            if self.is_page_long()
                && let Some(logged) = self.page.pop_front()
            {
                let seq = self.position.next;
                self.position.next += 1;
                match self.encoder.is_passthrough() {
                    true => self.encode(&logged, seq),
                    false => {
                        let _seat = cpu_work::seat(&self.owner).await;
                        cpu_work::off_worker(|| self.encode(&logged, seq));
                    }
                }
            }
            return self.encode_entries();
        }
        let page = std::mem::take(&mut self.page);
        let mut encode =
            || page.iter().for_each(|logged| self.encoder.encode(logged, true, &mut self.output));
        match page.iter().map(Bytes::len).sum::<usize>() > cpu_work::SHORT_TEXT {
            true => cpu_work::in_place(&self.owner, encode).await,
            false => encode(),
        }
        // The position at which the log continues.
        let seq = self.position.next.checked_sub(1);
        match self.position.page {
            PageKind::Prelude => {
                self.set_id(seq.unwrap_or_default());
                self.output.finish_prelude(seq.map(|_| self.id.as_str()));
            }
            _ => self.finish_event(seq.unwrap_or_default()),
        }
        self.position.page = PageKind::Log;
    }

    /// Encodes an entry of the log.
    fn encode(&mut self, logged: &Bytes, seq: u64) {
        let is_shown = seq >= self.position.first_shown;
        match std::mem::replace(&mut self.history, History::None) {
            History::Read(snapshots) if seq == 0 => self.encode_with_history(logged, &snapshots),
            _ => self.encoder.encode(logged, is_shown, &mut self.output),
        }
        if is_shown {
            self.finish_event(seq);
        }
    }

    /// Encodes the first entry of the log with the conversation before it. It is RUN_STARTED, unless the run failed
    /// before its start.
    fn encode_with_history(&mut self, logged: &Bytes, snapshots: &[Bytes]) {
        let mut entries = vec![logged.clone()];
        entries.extend_from_slice(snapshots);
        if event_type(logged) != "RUN_STARTED" {
            entries.rotate_left(1);
            let started = Encoder::new(&self.thread, &self.run).encode(&self.run_started());
            entries.splice(0..0, started);
        }
        for entry in &entries {
            self.encoder.encode(entry, true, &mut self.output);
        }
    }

    /// Ends the frames of an event, without those that the client has.
    fn finish_event(&mut self, seq: u64) {
        if let Some(partial) = self.position.partial.filter(|partial| partial.seq == seq) {
            if self.output.keep_last(partial.missing) {
                self.position.partial = None;
            } else {
                self.stage = Stage::Closed;
            }
        }
        self.set_id(seq);
        self.output.finish_event(Some(&self.id));
    }

    fn set_id(&mut self, seq: u64) {
        self.id.truncate(self.id_prefix);
        push_number(&mut self.id, seq);
        if self.position.epoch > 0 {
            let _ = write!(self.id, ".{}", self.position.epoch);
        }
    }

    /// Closes the stream of a run that has ended. The client has been sent everything, open items included.
    fn close_after(&mut self, status: RunStatus) {
        if status == RunStatus::Waiting {
            self.gateway.note_read_to_end(&self.owner, &self.run);
        }
        self.close();
    }

    fn close(&mut self) {
        self.encoder.finish(&mut self.output);
        self.stage = Stage::Closing;
    }

    /// Ends the stream after this process failed to write the log. Another process may have appended the terminal event.
    async fn finish_after_log_failure(&mut self, failure: LogFailure) {
        let after = self.position.next.checked_sub(1).map(Seq);
        match self.read_log(after).await {
            Ok(Log::Exact(slice)) if !slice.events.is_empty() => self.page = slice.events.into(),
            Ok(Log::Exact(slice)) if !slice.status.is_live() => self.close(),
            Ok(Log::Exact(_)) if failure.code == codes::GATEWAY_LOST => self.detach(),
            _ => self.synthesize_end(failure).await,
        }
    }

    /// Closes everything open and ends with RUN_ERROR, although the log does not have these events.
    async fn synthesize_end(&mut self, failure: LogFailure) {
        let mut guard = Guard::new(self.thread.clone(), self.run.clone());
        let mut decoder = Decoder::new(&self.thread, &self.run);
        let (mut events, mut valid) = (Vec::new(), Vec::new());
        let mut after = None;
        while let Ok(Log::Exact(slice)) = self.read_log(after).await {
            if slice.events.is_empty() {
                break;
            }
            after = Some(Seq(slice.first_seq.0 + slice.events.len() as u64 - 1));
            for logged in &slice.events {
                decoder.decode(logged, &mut events);
            }
            events.drain(..).for_each(|event| guard.push(event, &mut valid));
            valid.clear();
        }
        let end = StreamEnd::Failed { code: failure.code.into(), message: failure.message.into() };
        guard.end(&end, &mut valid);
        if after.is_none() {
            // The open items are unknown, and a client that has RUN_STARTED must not get it twice.
            valid.retain(|event| matches!(event.body, Body::RunError(_)));
        }
        let mut encoder = Encoder::new(&self.thread, &self.run);
        for event in valid {
            if let Some(logged) = encoder.encode(&event) {
                self.encoder.encode(&logged, true, &mut self.output);
                self.output.finish_event(None);
            }
        }
        self.close();
    }
}

impl Drop for RunReader {
    fn drop(&mut self) {
        self.gateway.metrics().readers.get_or_create(&metrics::FormatLabel { format: self.format }).dec();
        if let Some((live, cursor)) = self.live.take() {
            live.unregister_reader(&cursor);
        }
        if self.disconnect.is_cancelled() {
            self.gateway.metrics().readers_cut.inc();
        }
    }
}

/// Appends the digits of a number. Once per event, so without the formatter.
fn push_number(text: &mut String, number: u64) {
    if number >= 10 {
        push_number(text, number / 10);
    }
    text.push(char::from(b'0' + (number % 10) as u8));
}

/// The ids of the items that an outcome names.
fn open_ids(outcome: Option<&Outcome>) -> Vec<&str> {
    match outcome {
        Some(Outcome::Interrupt { interrupts }) => interrupts.iter().map(|it| it.id.as_str()).collect(),
        Some(Outcome::Success { pending }) => pending.iter().map(|call| call.as_str()).collect(),
        _ => Vec::new(),
    }
}

/// The outcome of a run that left these items open.
pub(crate) fn outcome_of<'p>(open: impl Iterator<Item = &'p agentwire_store::Pending>) -> Option<Outcome> {
    let mut interrupts = Vec::new();
    let mut calls = Vec::new();
    for item in open {
        if *item.kind != *crate::human::pending::FRONTEND_TOOL {
            let body: serde_json::Value = serde_json::from_str(&item.body).unwrap_or_default();
            interrupts.push(crate::human::pending::interrupt_of(item.id.as_str(), &body));
        } else {
            calls.push(item.id.as_str().into());
        }
    }
    match (interrupts.is_empty(), calls.is_empty()) {
        (false, _) => Some(Outcome::Interrupt { interrupts }),
        (true, false) => Some(Outcome::Success { pending: calls }),
        (true, true) => None,
    }
}
