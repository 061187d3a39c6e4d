//! One reader of one run, in one format, from any position to the end.
//!
//! A reader takes logged events, from memory or from the store, and writes them in its format. AG-UI 1.0 is the form
//! of the log, so those bytes pass as they are. Every other format has a writer that must have seen the run from its
//! start; a reader that comes back in the middle lets it write what was seen before and throws that away, so
//! that what follows is byte for byte what it would have been.

use std::{fmt::Write, future::poll_fn, io, pin::Pin, sync::Arc, task::Poll, time::Duration};

use agentwire_core::{
    event::{Body, Event, Outcome, RunError, RunFinished, RunId, RunInput, RunStarted, StreamEnd, ThreadId},
    format::{Format, Options, Profile, Setup, Writer, ag_ui},
    framing::{Frames, Framing},
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
        live::{Command, Head, LiveRun, LiveState, LogFailure, ReaderCursor, Take},
        log_codec::{self, Decoder, Encoder, kind},
    },
};

/// How much is taken from the log at once: a few flushes of a fast stream.
const PAGE: usize = 64 << 10;

/// How often the store is asked about a run that goes on in another process.
const POLL: Duration = Duration::from_millis(250);

/// How a run is shown.
#[derive(Debug)]
pub(crate) struct OutputFormat {
    pub(crate) format: &'static Format,
    pub(crate) profile: &'static Profile,
    pub(crate) options: Options,
    /// How long the stream stays open after its last event.
    pub(crate) close_delay: Duration,
}

impl OutputFormat {
    pub(crate) fn new(format: &'static Format, profile: &'static Profile) -> Self {
        Self { format, profile, options: Options::default(), close_delay: Duration::ZERO }
    }

    fn is_log_form(&self) -> bool {
        std::ptr::eq(self.format, &ag_ui::FORMAT) && std::ptr::eq(self.profile, &ag_ui::FORMAT.profiles[0])
    }
}

/// What a reader got of what it asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Every event behind its cursor.
    Whole,
    /// Snapshots in place of events that are no longer kept.
    Snapshot,
    /// Snapshots, and nobody knows what it missed.
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
pub(crate) struct Follow {
    gateway: Gateway,
    owner: Owner,
    thread: ThreadId,
    run: RunId,
    live: Option<(Arc<LiveRun>, Arc<ReaderCursor>)>,
    cut: CancellationToken,
    /// The number of the next event to take.
    next: u64,
    /// Events before this number are not shown.
    from: u64,
    /// Taken and not yet written; without numbers if they stand for others.
    page: Vec<Bytes>,
    numbered: bool,
    pen: EventEncoder,
    frames: Frames,
    /// `run:` with the number of an event behind it.
    id: String,
    id_prefix: usize,
    format: &'static str,
    close_delay: Duration,
    heartbeat: Pin<Box<Sleep>>,
    last_sent: Instant,
    told_drain: bool,
    stage: Stage,
}

/// Why a reader that waited looks again.
enum Woken {
    Moved,
    Beat,
    Draining,
    Ended,
    LogFailed(LogFailure),
}

enum EventEncoder {
    /// The log's own form.
    Passthrough,
    Convert {
        decoder: Decoder,
        writer: Box<dyn Writer>,
        events: Vec<Event>,
        waste: Frames,
    },
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    Open,
    /// The last event is written.
    Closing,
    Closed,
}

/// What a reader asks for.
pub(crate) struct FollowRequest<'a> {
    pub(crate) owner: &'a Owner,
    pub(crate) run: &'a RunId,
    /// The last event that it has seen.
    pub(crate) after: Option<u64>,
    /// The request that started the run, if it is at hand.
    pub(crate) input: Option<&'a RunInput>,
    /// Ends the connection.
    pub(crate) cut: CancellationToken,
}

impl Follow {
    /// Begins to read.
    pub(crate) async fn open(
        gateway: &Gateway,
        follow_request: FollowRequest<'_>,
        face: OutputFormat,
    ) -> Result<(Self, Verdict), ApiError> {
        let FollowRequest { owner, run, after, input, cut } = follow_request;
        let live = gateway.live_run(owner, run);
        let thread = match &live {
            Some(live) => live.thread.clone(),
            None => gateway.store().run(owner, run).await?.thread,
        };
        let pen = EventEncoder::new(gateway, owner, &thread, run, input, &face).await?;
        let mut id = String::with_capacity(run.len() + 12);
        id.push_str(run);
        id.push(':');
        let settings = &gateway.settings();
        let standard = settings.sse == Sse::Standard;
        gateway.metrics().readers.get_or_create(&metrics::Format { format: face.format.name }).inc();
        let mut follow = Self {
            gateway: gateway.clone(),
            owner: owner.clone(),
            thread,
            run: run.clone(),
            live: None,
            cut,
            next: 0,
            from: after.map_or(0, |after| after.saturating_add(1)),
            page: Vec::new(),
            numbered: true,
            pen,
            frames: Frames::new(face.profile.framing).named(standard),
            id_prefix: id.len(),
            id,
            format: face.format.name,
            close_delay: face.close_delay,
            heartbeat: Box::pin(tokio::time::sleep(settings.heartbeat)),
            last_sent: Instant::now(),
            told_drain: false,
            stage: Stage::Open,
        };
        let verdict = follow.find(after, live).await?;
        gateway.metrics().recoveries.get_or_create(&metrics::Verdict { verdict: verdict.as_str() }).inc();
        Ok((follow, verdict))
    }

    pub(crate) fn thread(&self) -> &ThreadId {
        &self.thread
    }

    /// Finds the place in the run where this reader begins.
    async fn find(&mut self, after: Option<u64>, live: Option<Arc<LiveRun>>) -> Result<Verdict, ApiError> {
        if matches!(self.pen, EventEncoder::Passthrough) {
            self.next = self.from;
        }
        if let Some(live) = live {
            let head = live.head();
            if self.from <= head.next {
                self.attach(live);
                return Ok(Verdict::Whole);
            }
            // The reader has seen what the log does not have. A run that ends right now is found in the store.
            let (reply, prelude) = oneshot::channel();
            if live.commands.send(Command::Prelude(reply)).await.is_ok()
                && let Ok(prelude) = prelude.await
            {
                self.show_instead(prelude.events, prelude.next);
                self.attach(live);
                return Ok(Verdict::Gap);
            }
        }
        let start = self.next.checked_sub(1).map(Seq);
        Ok(match self.gateway.store().read(&self.owner, &self.run, start, PAGE).await? {
            Log::Exact(slice) if self.from <= slice.next_seq.0 => {
                self.page = slice.events;
                Verdict::Whole
            }
            Log::Compacted { events, next_seq, .. } if after.is_none() => {
                self.show_instead(events, next_seq.0);
                Verdict::Snapshot
            }
            Log::Exact(_) | Log::Ahead { .. } => {
                self.summarise().await?;
                Verdict::Gap
            }
            Log::Compacted { next_seq, .. } | Log::NotRetained { next_seq, .. } if self.from > next_seq.0 => {
                self.summarise().await?;
                Verdict::Gap
            }
            Log::Compacted { next_seq, .. } | Log::NotRetained { next_seq, .. }
                if self.from == next_seq.0 && after.is_some() =>
            {
                // It has seen everything; there is nothing to replay.
                self.show_instead(Vec::new(), next_seq.0);
                Verdict::Whole
            }
            Log::Compacted { .. } | Log::NotRetained { .. } => match self.summarise().await? {
                true => Verdict::Snapshot,
                false => Verdict::Gap,
            },
        })
    }

    fn attach(&mut self, live: Arc<LiveRun>) {
        let mark = live.register_reader(self.cut.clone());
        self.live = Some((live, mark));
    }

    /// Events that stand for all those before `next`.
    fn show_instead(&mut self, events: Vec<Bytes>, next: u64) {
        self.numbered = events.is_empty();
        self.page = events;
        (self.next, self.from) = (next, next);
    }

    /// Makes up for an ended run whose events are gone; says whether the conversation is still known.
    async fn summarise(&mut self) -> Result<bool, ApiError> {
        let store = self.gateway.store().clone();
        let run = store.run(&self.owner, &self.run).await?;
        let messages = store.messages(&self.owner, &self.thread).await?;
        let state = store.state(&self.owner, &self.thread).await?;
        let known = messages.is_some();
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
            events.push(self.ending_of(&run).await?);
        }
        let mut encoder = Encoder::new(&self.thread, &self.run);
        let time = i64::try_from(run.updated.0).ok();
        let events = events.into_iter().filter_map(|event| encoder.encode(&event.at(time))).collect();
        self.show_instead(events, run.next_seq.0);
        Ok(known)
    }

    async fn ending_of(&mut self, run: &Run) -> Result<Event, ApiError> {
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
                let mine = open.iter().filter(|item| item.run == run.run);
                outcome_of(mine)
            }
            _ => None,
        };
        Ok(Event::new(Body::RunFinished(Box::new(finished))))
    }

    /// The next bytes for the client; `None` when there are no more.
    ///
    /// # Errors
    /// When the log cannot be read. The connection must then be cut, so that the client does not take it for the end.
    pub(crate) async fn chunk(&mut self) -> Option<io::Result<Bytes>> {
        loop {
            self.write_page();
            if !self.frames.is_empty() {
                self.last_sent = Instant::now();
                return Some(Ok(self.frames.take()));
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
            if let Err(error) = self.take().await {
                self.stage = Stage::Closed;
                tracing::warn!(run = %self.run, %error, "a reader was cut because the log could not be read");
                return Some(Err(io::Error::other(error.message)));
            }
        }
    }

    /// Takes the next events, or waits for them, or finds the end.
    async fn take(&mut self) -> Result<(), ApiError> {
        let Some((live, mark)) = &self.live else {
            return self.take_from_store(true).await;
        };
        match live.take(self.next, PAGE, mark, &mut self.page) {
            Take::Events => return Ok(()),
            Take::Behind => return self.take_from_store(false).await,
            Take::Nothing => {}
        }
        let tell_drain = !self.told_drain;
        let woken = poll_fn(|cx| {
            // Before the look, so that what comes behind it wakes us.
            mark.waker.register(cx.waker());
            let Head { next, end } = live.head();
            match end {
                _ if next > self.next => Poll::Ready(Woken::Moved),
                LiveState::Ended(_) => Poll::Ready(Woken::Ended),
                LiveState::LogFailed(broken) => Poll::Ready(Woken::LogFailed(broken)),
                LiveState::Running if tell_drain && self.gateway.is_draining() => {
                    Poll::Ready(Woken::Draining)
                }
                LiveState::Running => self.heartbeat.as_mut().poll(cx).map(|()| Woken::Beat),
            }
        });
        match woken.await {
            Woken::Moved => {}
            Woken::Beat => self.beat(),
            Woken::Draining => self.tell_drain(),
            Woken::Ended => self.close(),
            Woken::LogFailed(broken) => self.after_the_break(broken).await,
        }
        Ok(())
    }

    async fn take_from_store(&mut self, wait: bool) -> Result<(), ApiError> {
        let after = self.next.checked_sub(1).map(Seq);
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
                () = &mut self.heartbeat => self.beat(),
                () = self.gateway.shutdown().cancelled() => {
                    // The run goes on elsewhere: a clean end would look like its own.
                    return Err(ApiError::new(codes::DRAINING, "the gateway is shutting down"));
                }
            }
        }
        Ok(())
    }

    fn beat(&mut self) {
        let every = self.gateway.settings().heartbeat;
        if self.last_sent.elapsed() >= every {
            self.frames.comment("ping");
            self.last_sent = Instant::now();
        }
        self.heartbeat.as_mut().reset(self.last_sent + every);
    }

    /// The gateway is being shut down: whoever comes back shall not come all at once.
    fn tell_drain(&mut self) {
        use std::hash::{BuildHasher, RandomState};
        self.told_drain = true;
        let jitter = RandomState::new().hash_one(self.run.as_str()) % 4000;
        self.frames.retry(1000 + jitter, "draining");
    }

    fn write_page(&mut self) {
        let page = std::mem::take(&mut self.page);
        let last = page.len().saturating_sub(1);
        for (index, logged) in page.iter().enumerate() {
            if self.numbered {
                let seq = self.next;
                self.next += 1;
                self.write(logged, Some(seq));
            } else {
                // The last one brings the reader to where the events go on.
                let seq = (index == last).then(|| self.next.checked_sub(1)).flatten();
                self.write(logged, seq);
            }
        }
        if !page.is_empty() {
            self.numbered = true;
        }
    }

    fn write(&mut self, logged: &Bytes, seq: Option<u64>) {
        let shown = seq.is_none_or(|seq| seq >= self.from) || !self.numbered;
        match &mut self.pen {
            EventEncoder::Passthrough => {
                self.frames.begin(kind(logged)).extend_from_slice(logged);
                self.frames.commit();
            }
            EventEncoder::Convert { decoder, writer, events, waste } => {
                decoder.decode(logged, events);
                let out = if shown { &mut self.frames } else { &mut *waste };
                for event in events.drain(..) {
                    writer.write(&event, out);
                }
                waste.drain(|_| ());
            }
        }
        if !shown {
            return;
        }
        let id = seq.map(|seq| {
            self.id.truncate(self.id_prefix);
            let _ = write!(self.id, "{seq}");
            self.id.as_str()
        });
        self.frames.finish_event(id);
    }

    fn close(&mut self) {
        if let EventEncoder::Convert { writer, .. } = &mut self.pen {
            writer.end(&mut self.frames);
            self.frames.finish_event(None);
        }
        self.stage = Stage::Closing;
    }

    /// This process cannot write the log any more. Another one may have given it its ending.
    async fn after_the_break(&mut self, broken: LogFailure) {
        let after = self.next.checked_sub(1).map(Seq);
        match self.gateway.store().read(&self.owner, &self.run, after, PAGE).await {
            Ok(Log::Exact(slice)) if !slice.events.is_empty() => self.page = slice.events,
            Ok(Log::Exact(slice)) if !slice.status.is_live() => self.close(),
            _ => self.last_words(broken).await,
        }
    }

    /// The log cannot be written any more. What is open is closed all the same, as far as it is known.
    async fn last_words(&mut self, broken: LogFailure) {
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
        let end = StreamEnd::Failed { code: broken.code.into(), message: broken.message.into() };
        guard.end(&end, &mut valid);
        if after.is_none() {
            // What was open is not known. A client that has seen the start must not see it twice.
            valid.retain(|event| matches!(event.body, Body::RunError(_)));
        }
        let mut encoder = Encoder::new(&self.thread, &self.run);
        for event in valid {
            if let Some(logged) = encoder.encode(&event) {
                self.write(&logged, None);
            }
        }
        self.close();
    }
}

impl Drop for Follow {
    fn drop(&mut self) {
        self.gateway.metrics().readers.get_or_create(&metrics::Format { format: self.format }).dec();
        if let Some((live, mark)) = self.live.take() {
            live.unregister_reader(&mark);
        }
        if self.cut.is_cancelled() {
            self.gateway.metrics().readers_cut.inc();
        }
    }
}

impl EventEncoder {
    async fn new(
        gateway: &Gateway,
        owner: &Owner,
        thread: &ThreadId,
        run: &RunId,
        input: Option<&RunInput>,
        face: &OutputFormat,
    ) -> Result<Self, ApiError> {
        if face.is_log_form() {
            return Ok(Self::Passthrough);
        }
        let input = match input {
            Some(input) => Some(input.clone()),
            None => gateway.store().input(owner, run).await?.and_then(|text| {
                let mut tally = agentwire_core::Tally::default();
                ag_ui::input::from_json(&text, &mut tally).ok()
            }),
        };
        let options = match input {
            Some(input) => face.options.clone().for_request(input),
            None => face.options.clone(),
        };
        let setup = Setup { thread: thread.clone(), run: run.clone(), options: &options };
        let make = face.format.writer.ok_or_else(|| {
            ApiError::new(codes::UNKNOWN_FORMAT, format!("`{}` cannot be written", face.format.name))
        })?;
        Ok(Self::Convert {
            decoder: Decoder::new(thread, run),
            writer: make(face.profile, &setup),
            events: Vec::new(),
            waste: Frames::new(Framing::Lines),
        })
    }
}

/// The outcome of a run that waits for `open` items.
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
