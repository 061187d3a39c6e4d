//! One reader: a client that follows a run in one format, from any position to the end.
//!
//! A reader copies log entries, from the ring of a live run or from the store, and encodes them in its output format.
//! [`RunReader::open`] finds the start position and the recovery verdict; [`RunReader::next_chunk`] is the body of the
//! response.

use std::{fmt::Write, future::poll_fn, io, pin::Pin, sync::Arc, task::Poll, time::Duration};

use agentwire_core::{
    event::{Body, Event, Outcome, RunError, RunFinished, RunId, RunInput, RunStarted, StreamEnd, ThreadId},
    framing::Frames,
    json::Json,
    order::Guard,
};
use agentwire_store::{Log, Owner, PendingFilter, Run, RunStatus, Seq};
use bytes::Bytes;
use tokio::{
    sync::oneshot,
    time::{Instant, Sleep},
};
use tokio_util::sync::CancellationToken;

use crate::{
    codes,
    error::ApiError,
    gateway::Gateway,
    metrics,
    settings::Sse,
    stream::{
        live::{Command, Head, LiveRun, LiveState, LogFailure, ReaderCursor, RingRead},
        log_codec::{self, Decoder, Encoder},
        output::{EventEncoder, OutputFormat},
    },
};

/// Bytes that are read from the log at once: a few appends of a fast stream.
const PAGE: usize = 64 << 10;

/// Interval at which the store is polled for a run that is live in another process.
const POLL: Duration = Duration::from_millis(250);

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
    page: Vec<Bytes>,
    encoder: EventEncoder,
    output: Frames,
    /// `run:seq`, the SSE id of the current event; rewritten behind `id_prefix`.
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
    /// Whether the entries of the page have sequence numbers; those of a prelude or summary have none.
    is_numbered: bool,
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
    Ended,
    LogFailed(LogFailure),
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
    /// The last event that the client has.
    pub(crate) after: Option<u64>,
    /// The input of the run, if it is at hand.
    pub(crate) input: Option<&'a RunInput>,
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
        let FollowRequest { owner, run, after, input, disconnect } = request;
        let live = gateway.live_run(owner, run);
        let thread = match &live {
            Some(live) => live.thread.clone(),
            None => gateway.store().run(owner, run).await?.thread,
        };
        let encoder = EventEncoder::new(gateway, owner, &thread, run, input, &output_format).await?;
        let mut id = String::with_capacity(run.len() + 12);
        id.push_str(run);
        id.push(':');
        let settings = gateway.settings();
        let format = output_format.format.name;
        gateway.metrics().readers.get_or_create(&metrics::FormatLabel { format }).inc();
        let mut reader = Self {
            gateway: gateway.clone(),
            owner: owner.clone(),
            thread,
            run: run.clone(),
            live: None,
            disconnect,
            position: Position {
                next: 0,
                first_shown: after.map_or(0, |after| after.saturating_add(1)),
                is_numbered: true,
            },
            page: Vec::new(),
            encoder,
            output: Frames::new(output_format.profile.framing).named(settings.sse == Sse::Standard),
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
        };
        let verdict = reader.find_start(after, live).await?;
        gateway
            .metrics()
            .recoveries
            .get_or_create(&metrics::VerdictLabel { verdict: verdict.as_str() })
            .inc();
        Ok((reader, verdict))
    }

    pub(crate) fn thread(&self) -> &ThreadId {
        &self.thread
    }

    /// Finds the position in the run at which this reader starts.
    async fn find_start(
        &mut self,
        after: Option<u64>,
        live: Option<Arc<LiveRun>>,
    ) -> Result<Verdict, ApiError> {
        if self.encoder.is_passthrough() {
            self.position.next = self.position.first_shown;
        }
        let first_shown = self.position.first_shown;
        if let Some(live) = live {
            let head = live.head();
            if first_shown <= head.next {
                self.attach(live);
                return Ok(Verdict::Whole);
            }
            // The cursor is ahead of the log. A run that ends meanwhile is found in the store.
            let (reply, prelude) = oneshot::channel();
            if live.commands.send(Command::Prelude(reply)).await.is_ok()
                && let Ok(prelude) = prelude.await
            {
                self.substitute(prelude.events, prelude.next);
                self.attach(live);
                return Ok(Verdict::Gap);
            }
        }
        let start = self.position.next.checked_sub(1).map(Seq);
        Ok(match self.gateway.store().read(&self.owner, &self.run, start, PAGE).await? {
            Log::Exact(slice) if first_shown <= slice.next_seq.0 => {
                self.page = slice.events;
                Verdict::Whole
            }
            Log::Compacted { events, next_seq, .. } if after.is_none() => {
                self.substitute(events, next_seq.0);
                Verdict::Snapshot
            }
            Log::Exact(_) | Log::Ahead { .. } => {
                self.substitute_snapshots().await?;
                Verdict::Gap
            }
            Log::Compacted { next_seq, .. } | Log::NotRetained { next_seq, .. }
                if first_shown > next_seq.0 =>
            {
                self.substitute_snapshots().await?;
                Verdict::Gap
            }
            Log::Compacted { next_seq, .. } | Log::NotRetained { next_seq, .. }
                if first_shown == next_seq.0 && after.is_some() =>
            {
                // The client has every event.
                self.substitute(Vec::new(), next_seq.0);
                Verdict::Whole
            }
            Log::Compacted { .. } | Log::NotRetained { .. } => match self.substitute_snapshots().await? {
                true => Verdict::Snapshot,
                false => Verdict::Gap,
            },
        })
    }

    fn attach(&mut self, live: Arc<LiveRun>) {
        let cursor = live.register_reader(self.disconnect.clone());
        self.live = Some((live, cursor));
    }

    /// Shows `events` in place of all entries before `next`.
    fn substitute(&mut self, events: Vec<Bytes>, next: u64) {
        self.position = Position { next, first_shown: next, is_numbered: events.is_empty() };
        self.page = events;
    }

    /// Substitutes snapshots for a run whose events are not retained. `false` if its messages are not retained either.
    async fn substitute_snapshots(&mut self) -> Result<bool, ApiError> {
        let store = self.gateway.store().clone();
        let run = store.run(&self.owner, &self.run).await?;
        let messages = store.messages(&self.owner, &self.thread).await?;
        let state = store.state(&self.owner, &self.thread).await?;
        let has_messages = messages.is_some();
        let mut events = vec![Event::new(Body::RunStarted(Box::new(RunStarted::new(
            self.thread.clone(),
            self.run.clone(),
        ))))];
        if let Some(messages) = messages {
            events
                .push(Event::new(Body::MessagesSnapshot { messages: log_codec::parse_messages(&messages) }));
        }
        let state = state.body.as_deref().and_then(|body| Json::parse(body).ok());
        let snapshot = state.unwrap_or_else(|| Json::from(serde_json::json!({})));
        events.push(Event::new(Body::StateSnapshot { snapshot }));
        if !run.status.is_live() {
            events.push(self.terminal_event(&run).await?);
        }
        let mut encoder = Encoder::new(&self.thread, &self.run);
        let time = i64::try_from(run.updated.0).ok();
        let events = events.into_iter().filter_map(|event| encoder.encode(&event.at(time))).collect();
        self.substitute(events, run.next_seq.0);
        Ok(has_messages)
    }

    /// The terminal event of an ended run, rebuilt from its stored status.
    async fn terminal_event(&mut self, run: &Run) -> Result<Event, ApiError> {
        if run.status == RunStatus::Failed {
            let code = run.cause.as_deref();
            return Ok(Event::new(Body::RunError(Box::new(RunError::new("the run failed", code)))));
        }
        let mut finished = RunFinished::new(run.thread.clone(), run.run.clone());
        finished.outcome = match run.status {
            RunStatus::Stopped => Some(Outcome::Cancelled),
            RunStatus::Waiting => {
                let open =
                    self.gateway.store().pending(&self.owner, &run.thread, PendingFilter::Open).await?;
                outcome_of(open.iter().filter(|item| item.run == run.run))
            }
            _ => None,
        };
        Ok(Event::new(Body::RunFinished(Box::new(finished))))
    }

    /// The next bytes for the client; `None` at the end.
    ///
    /// # Errors
    /// When the log cannot be read. The connection must then be reset, so that the client does not see a regular end.
    pub(crate) async fn next_chunk(&mut self) -> Option<io::Result<Bytes>> {
        loop {
            self.encode_page();
            if !self.output.is_empty() {
                self.heartbeat.last_sent = Instant::now();
                return Some(Ok(self.output.take()));
            }
            match self.stage {
                Stage::Open => {}
                Stage::Closing => {
                    if !self.close_delay.is_zero() {
                        tokio::time::sleep(self.close_delay).await;
                    }
                    self.stage = Stage::Closed;
                    return None;
                }
                Stage::Closed => return None,
            }
            if let Err(error) = self.read_page().await {
                self.stage = Stage::Closed;
                tracing::warn!(run = %self.run, %error, "a reader was disconnected because the log could not be read");
                return Some(Err(io::Error::other(error.message)));
            }
        }
    }

    /// Reads the next entries, waits for them, or finds the end.
    async fn read_page(&mut self) -> Result<(), ApiError> {
        let Some((live, cursor)) = &self.live else {
            return self.read_from_store(true).await;
        };
        match live.read(self.position.next, PAGE, cursor, &mut self.page) {
            RingRead::Events => return Ok(()),
            RingRead::Evicted => return self.read_from_store(false).await,
            RingRead::UpToDate => {}
        }
        let announce_drain = !self.is_drain_announced;
        let wakeup = poll_fn(|cx| {
            // Registered before the head is read, so that a later event wakes this task.
            cursor.waker.register(cx.waker());
            let Head { next, state } = live.head();
            match state {
                _ if next > self.position.next => Poll::Ready(Wakeup::NewEvents),
                LiveState::Ended(_) => Poll::Ready(Wakeup::Ended),
                LiveState::LogFailed(failure) => Poll::Ready(Wakeup::LogFailed(failure)),
                LiveState::Running if announce_drain && self.gateway.is_draining() => {
                    Poll::Ready(Wakeup::Draining)
                }
                LiveState::Running => self.heartbeat.timer.as_mut().poll(cx).map(|()| Wakeup::Heartbeat),
            }
        });
        match wakeup.await {
            Wakeup::NewEvents => {}
            Wakeup::Heartbeat => self.send_heartbeat(),
            Wakeup::Draining => self.announce_drain(),
            Wakeup::Ended => self.close(),
            Wakeup::LogFailed(failure) => self.finish_after_log_failure(failure).await,
        }
        Ok(())
    }

    async fn read_from_store(&mut self, wait: bool) -> Result<(), ApiError> {
        let after = self.position.next.checked_sub(1).map(Seq);
        let slice = match self.gateway.store().read(&self.owner, &self.run, after, PAGE).await? {
            Log::Exact(slice) => slice,
            _ => return Err(ApiError::new(codes::INTERNAL, "the log was given up while it was read")),
        };
        if !slice.events.is_empty() {
            self.page = slice.events;
            return Ok(());
        }
        if !slice.status.is_live() {
            self.close();
        } else if let Some(live) = self.gateway.live_run(&self.owner, &self.run) {
            self.attach(live);
        } else if wait {
            tokio::select! {
                () = tokio::time::sleep(POLL) => {}
                () = &mut self.heartbeat.timer => self.send_heartbeat(),
                () = self.gateway.shutdown().cancelled() => {
                    // The run continues in another process: a regular end of the stream would look like its end.
                    return Err(ApiError::new(codes::DRAINING, "the gateway is shutting down"));
                }
            }
        }
        Ok(())
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

    fn encode_page(&mut self) {
        let page = std::mem::take(&mut self.page);
        let last = page.len().saturating_sub(1);
        for (index, logged) in page.iter().enumerate() {
            if self.position.is_numbered {
                let seq = self.position.next;
                self.position.next += 1;
                self.encode(logged, Some(seq));
            } else {
                // The last substitute carries the position at which the log continues.
                let seq = (index == last).then(|| self.position.next.checked_sub(1)).flatten();
                self.encode(logged, seq);
            }
        }
        if !page.is_empty() {
            self.position.is_numbered = true;
        }
    }

    fn encode(&mut self, logged: &Bytes, seq: Option<u64>) {
        let Position { first_shown, is_numbered, .. } = self.position;
        let is_shown = seq.is_none_or(|seq| seq >= first_shown) || !is_numbered;
        self.encoder.encode(logged, is_shown, &mut self.output);
        if !is_shown {
            return;
        }
        let id = seq.map(|seq| {
            self.id.truncate(self.id_prefix);
            let _ = write!(self.id, "{seq}");
            self.id.as_str()
        });
        self.output.finish_event(id);
    }

    fn close(&mut self) {
        self.encoder.finish(&mut self.output);
        self.stage = Stage::Closing;
    }

    /// Ends the stream after this process failed to write the log. Another process may have appended the terminal event.
    async fn finish_after_log_failure(&mut self, failure: LogFailure) {
        let after = self.position.next.checked_sub(1).map(Seq);
        match self.gateway.store().read(&self.owner, &self.run, after, PAGE).await {
            Ok(Log::Exact(slice)) if !slice.events.is_empty() => self.page = slice.events,
            Ok(Log::Exact(slice)) if !slice.status.is_live() => self.close(),
            _ => self.synthesize_end(failure).await,
        }
    }

    /// Closes everything open and ends with RUN_ERROR, although the log does not have these events.
    async fn synthesize_end(&mut self, failure: LogFailure) {
        let mut guard = Guard::new(self.thread.clone(), self.run.clone());
        let mut decoder = Decoder::new(&self.thread, &self.run);
        let (mut events, mut valid) = (Vec::new(), Vec::new());
        let mut after = None;
        while let Ok(Log::Exact(slice)) = self.gateway.store().read(&self.owner, &self.run, after, PAGE).await
        {
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
                self.encode(&logged, None);
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
