//! From the bytes of an agent's stream to events.
//!
//! Every upstream uses this decoder, with any transport: a [`Source`] of core, with detection
//! of framing and format before it and the run's hooks between frame and reader. Events that precede an error are
//! passed on. There is no guard here: the one behind the [`EventSink`] is enough.

use std::{
    collections::HashSet,
    fmt,
    future::Future,
    hash::{DefaultHasher, Hash, Hasher},
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use agentwire_core::{
    Tally,
    event::{Body, Event, RunInput, StreamEnd},
    format::{self, Format, OptionError, Options, hai},
    framing::{Frame, FrameProblem, Framing, detect},
    json::Footprint,
    source::{InputError, InputProblem, Source, SourceOptions, Verdict, detect_format},
};
use bytes::Bytes;
use futures_util::{Stream, StreamExt};
use tokio::time::{Instant, sleep_until};

use super::{
    thread_names::{self, SentIds},
    timeouts::{FOREVER, StreamTimeouts},
};
use crate::{
    agent::{
        BuildError, EventSink, NativeEvent, NativeHooks, Request, Translated, Translation,
        snapshot_origin::mark_derived,
    },
    error::{Truncation, UpstreamError, UpstreamErrorKind as Kind, UpstreamTimeout},
};

/// The number of bytes that decide on framing and format: as many as `framing::detect` asks for.
const PEEK: usize = 64 << 10;

/// The number of bytes of the agent's side that go to the log.
const MAX_DETAIL: usize = 2 << 10;

/// The number of characters of an unknown event that go to the log.
const MAX_CONTENT: usize = 500;

/// The format in which a stream is expected.
#[derive(Clone, Debug)]
pub(super) struct ExpectedFormat {
    /// Detected from the stream if absent.
    format: Option<&'static Format>,
    options: Options,
    /// True if a stream was detected as HAI.
    is_detected_hai: Arc<AtomicBool>,
}

impl ExpectedFormat {
    /// A format that has a reader, with its options.
    pub(super) fn of(format: &'static Format, options: &[String]) -> Result<Self, BuildError> {
        let parsed = Options::parse(options.iter().map(String::as_str), format.options);
        let options = parsed.map_err(|error: OptionError| BuildError(error.to_string()))?;
        Ok(Self { format: Some(format), options, is_detected_hai: Arc::default() })
    }

    /// True if it has a known format that can be read in this framing.
    pub(super) fn reads(&self, framing: Framing) -> bool {
        self.format.is_some_and(|format| format.reads.contains(&framing))
    }

    /// True if the format is HAI, by name or by the streams so far.
    pub(super) fn is_hai(&self) -> bool {
        self.format.is_some_and(is_hai) || self.is_detected_hai.load(Ordering::Relaxed)
    }

    /// The format of that name; detected from the stream if absent.
    pub(super) fn named(name: Option<&str>, options: &[String]) -> Result<Self, BuildError> {
        let Some(name) = name else {
            return match options.first() {
                None => {
                    Ok(Self { format: None, options: Options::default(), is_detected_hai: Arc::default() })
                }
                Some(option) => {
                    Err(BuildError(format!("option `{option}` belongs to no format: name one with `format`")))
                }
            };
        };
        // A profile is accepted and has no effect: readers decode all of them.
        let (name, _) = name.split_once('@').unwrap_or((name, ""));
        match Format::find(name) {
            Some(format) if format.reader.is_some() => Self::of(format, options),
            _ => {
                let known = format::FORMATS.iter().filter(|format| format.reader.is_some());
                let known: Vec<_> = known.map(|format| format.name).collect();
                Err(BuildError(format!("unknown format `{name}` (known: {})", known.join(", "))))
            }
        }
    }
}

fn is_hai(format: &Format) -> bool {
    [hai::FORMAT.name, hai::proto::FORMAT.name].contains(&format.name)
}

/// The decoder of one stream. Does no I/O.
pub(super) struct UpstreamDecoder {
    expected: ExpectedFormat,
    request: Request,
    /// The framing by the response's content type.
    framing_hint: Option<Framing>,
    phase: Phase,
    /// True if an event other than RUN_STARTED was decoded.
    has_output: bool,
    /// The number of whole frames.
    frames: u64,
    /// The last `id` of SSE.
    last_id: Option<Box<str>>,
    /// The hash of the frame with that `id`, once the stream was rejoined.
    last_hash: Option<u64>,
    native_wait: NativeWait,
    unknown_events: UnknownEvents,
    /// True if a stream without frames may have been cut off.
    expects_frames: bool,
    /// The ids that the agent got instead of those of the request.
    sent_ids: Option<SentIds>,
}

/// The unknown events that were reported, by kind and name.
#[derive(Default)]
struct UnknownEvents {
    count: u64,
    reported: HashSet<(&'static str, String)>,
}

impl UnknownEvents {
    /// Reports the kinds of unknown events that the last frame was the first to contain.
    fn report(&mut self, tally: &Tally, frame: &Frame<'_>, request: &Request) {
        let count = tally.unknown_event_count();
        if count == self.count {
            return;
        }
        request.unknown_events.fetch_add(count - self.count, Ordering::Relaxed);
        self.count = count;
        let RunInput { thread, run, .. } = &*request.input;
        for (kind, name, _) in tally.unknown_events() {
            if self.reported.insert((kind, name.to_owned())) {
                let content: String = frame.text().chars().take(MAX_CONTENT).collect();
                tracing::warn!(%thread, %run, name, content, "{kind} in the agent's stream");
            }
        }
    }
}

/// The index and the offset of a frame in its stream.
type Position = (u64, u64);

enum Phase {
    /// Bytes are collected until framing and format are known.
    Detecting(Vec<u8>),
    Decoding(Box<Source>),
    /// A terminal event was decoded, or an error occurred.
    Done,
}

/// The wait for the next native event, if the run's hooks limit it.
struct NativeWait {
    since: Instant,
    /// The number of frames at that time.
    frames: u64,
    has_fallen_back: bool,
}

/// The decision after a read: continue, or stop at the end of the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flow {
    More,
    Done,
}

impl fmt::Debug for UpstreamDecoder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UpstreamDecoder")
            .field("expected", &self.expected)
            .field("frames", &self.frames)
            .finish_non_exhaustive()
    }
}

impl UpstreamDecoder {
    pub(super) fn new(expected: &ExpectedFormat, request: &Request, framing_hint: Option<Framing>) -> Self {
        Self {
            expected: expected.clone(),
            request: request.clone(),
            framing_hint,
            phase: Phase::Detecting(Vec::new()),
            has_output: false,
            frames: 0,
            last_id: None,
            last_hash: None,
            native_wait: NativeWait { since: Instant::now(), frames: 0, has_fallen_back: false },
            unknown_events: UnknownEvents::default(),
            expects_frames: false,
            sent_ids: thread_names::sent_ids(request),
        }
    }

    /// The decoder of lines in a known format.
    pub(super) fn of_lines(expected: &ExpectedFormat, request: &Request) -> Self {
        let mut decoder = Self::new(expected, request, Some(Framing::Lines));
        let source = expected.format.and_then(|format| decoder.source(format, Framing::Lines));
        if let Some(source) = source {
            decoder.phase = Phase::Decoding(Box::new(source));
        }
        decoder
    }

    /// Refuses a stream without frames: its end cannot be told from a broken connection.
    pub(super) fn expect_frames(&mut self) {
        self.expects_frames = true;
    }

    /// The last `id` of an SSE stream: the position from which to rejoin it.
    pub(super) fn last_id(&self) -> Option<&str> {
        self.last_id.as_deref()
    }

    /// The number of whole frames so far.
    pub(super) fn frames(&self) -> u64 {
        self.frames
    }

    /// True if the hooks replaced the rest of the stream, because the agent took too long.
    pub(super) fn has_fallen_back(&self) -> bool {
        self.native_wait.has_fallen_back
    }

    /// Continues a broken stream in another connection, after its last whole frame.
    pub(super) fn rejoin(&mut self) {
        self.last_hash.get_or_insert(0);
        match &mut self.phase {
            Phase::Detecting(start) => start.clear(),
            // Only SSE streams can be rejoined.
            Phase::Decoding(source) => source.restart(Framing::Sse),
            Phase::Done => {}
        }
    }

    /// Decodes bytes; the events are added to `out`, also those before an error.
    pub(super) async fn push(&mut self, bytes: &[u8], out: &mut Vec<Event>) -> Result<Flow, UpstreamError> {
        match &mut self.phase {
            Phase::Done => return Ok(Flow::Done),
            Phase::Decoding(source) => source.push(bytes),
            Phase::Detecting(start) => {
                start.extend_from_slice(bytes);
                if !self.detect(false)? {
                    return Ok(Flow::More);
                }
            }
        }
        self.decode_frames(out).await
    }

    /// Decodes a frame that is not part of the stream.
    pub(super) async fn inject(
        &mut self,
        event: &str,
        data: &str,
        out: &mut Vec<Event>,
    ) -> Result<(), UpstreamError> {
        let (native, position) = (NativeEvent::text(Some(event), data), (self.frames, 0));
        let decoded = match self.request.native_hooks.clone() {
            Some(hooks) => self.filter(&*hooks, vec![(native, position)], None, out).await,
            None => self.read(&native, position, out.len(), out),
        };
        match decoded {
            Err(error) if matches!(error.kind(), Kind::MalformedFrame { .. }) => {
                Err(error.with_kind(Kind::MalformedBody(format!("the agent's `{event}`").into())))
            }
            decoded => decoded.map(|_| ()),
        }
    }

    /// Ends the stream: adds the events that the reader derives from the end, and decides on the outcome of the run.
    pub(super) async fn finish(&mut self, close: Close, out: &mut Vec<Event>) -> Result<(), UpstreamError> {
        let (broken, is_complete) = match close {
            Close::Done => return Ok(()),
            Close::Eof => (None, false),
            Close::Complete => (None, true),
            Close::Broken(error) => (Some(error), false),
        };
        if matches!(self.phase, Phase::Detecting(_)) {
            match (self.detect(true), &broken) {
                (Ok(true), _) => {}
                (Ok(false), None) => {
                    let is_run = |format: &&Format| format.can_be_empty && !self.expects_frames;
                    let format = self.expected.format.filter(is_run);
                    let source = format.and_then(|format| self.source(format, Framing::Sse));
                    let source = source.ok_or_else(|| UpstreamError::from(Truncation::Empty))?;
                    self.phase = Phase::Decoding(Box::new(source));
                }
                (Err(error), None) => return Err(error),
                // Too few bytes to blame the content.
                (_, Some(broken)) => return Err(broken.clone()),
            }
        }
        if let Phase::Decoding(source) = &mut self.phase {
            source.finish();
        }
        let last = self.decode_frames(out).await.map_err(|error| match &broken {
            Some(broken) if matches!(error.kind(), Kind::Truncated(_)) => broken.clone(),
            _ => error,
        })?;
        if last == Flow::Done {
            return Ok(());
        }
        let verdict = match self.end(&broken.as_ref().map_or(StreamEnd::Closed, failed_by), out) {
            Verdict::Complete if self.expects_frames && self.frames == 0 => Verdict::NoEvents,
            verdict => verdict,
        };
        let reader_message = match (verdict, out.last().map(|event| &event.body)) {
            (Verdict::Truncated | Verdict::NoEvents, Some(Body::RunError(error))) => error.message.clone(),
            _ => Box::default(),
        };
        if matches!(verdict, Verdict::Failed | Verdict::Truncated | Verdict::NoEvents) {
            // The returned error replaces the reader's RUN_ERROR.
            out.pop();
        }
        match verdict {
            Verdict::Complete => Ok(()),
            Verdict::Unfinished if is_complete && self.frames > 0 => Ok(()),
            Verdict::Truncated => Err(Truncation::Reader(reader_message).into()),
            Verdict::NoEvents if self.frames == 0 => Err(Truncation::Empty.into()),
            Verdict::NoEvents => Err(Kind::BadContent(reader_message.into_string().into()).into()),
            _ => Err(broken.unwrap_or_else(|| Truncation::Stream.into())),
        }
    }

    /// Detects framing and format from the first bytes; whether they suffice.
    fn detect(&mut self, is_whole: bool) -> Result<bool, UpstreamError> {
        let Phase::Detecting(start) = &self.phase else { return Ok(true) };
        let text = start.strip_prefix(b"\xef\xbb\xbf").unwrap_or(start);
        let Some(first) = text.iter().position(|byte| !byte.is_ascii_whitespace()) else {
            return match start.len() {
                // Only white space, and far too much of it.
                PEEK.. => Err(self.not_an_event_stream()),
                _ => Ok(false),
            };
        };
        let text = &text[first..];
        let is_enough = is_whole || start.len() >= PEEK || start.first() == Some(&0);
        if !is_enough && !text.contains(&b'\n') && !text.contains(&b'\r') {
            return Ok(false);
        }
        if text.first() == Some(&b'<') {
            return Err(self.not_an_event_stream());
        }
        let detected = match self.expected.format {
            Some(format) => {
                detect_framing(format, start, text, self.framing_hint).map(|framing| (format, framing))
            }
            None => match detect_format(start, is_enough) {
                None if !is_enough => return Ok(false),
                detected => detected,
            },
        };
        let source = detected.and_then(|(format, framing)| {
            self.expected.format = Some(format);
            self.expected.is_detected_hai.store(is_hai(format), Ordering::Relaxed);
            self.source(format, framing)
        });
        let (Some(mut source), Phase::Detecting(start)) = (source, &self.phase) else {
            return Err(self.not_an_event_stream());
        };
        source.push(start);
        self.phase = Phase::Decoding(Box::new(source));
        Ok(true)
    }

    fn source(&self, format: &Format, framing: Framing) -> Option<Source> {
        let input = &self.request.input;
        let options = SourceOptions {
            thread: input.thread.clone(),
            run: input.run.clone(),
            options: self.expected.options.clone().for_request((**input).clone()),
            max_frame: self.request.limits.max_frame,
            ..SourceOptions::default()
        };
        Source::new(format, framing, &options)
    }

    fn not_an_event_stream(&mut self) -> UpstreamError {
        let start = match std::mem::replace(&mut self.phase, Phase::Done) {
            Phase::Detecting(start) => start,
            _ => Vec::new(),
        };
        let message = "the agent answered with something that is not an event stream";
        UpstreamError::from(Kind::BadContent(message.into()))
            .with_detail(format!("it begins with `{}`", excerpt(&start).escape_debug()))
    }

    /// Decodes all whole frames.
    async fn decode_frames(&mut self, out: &mut Vec<Event>) -> Result<Flow, UpstreamError> {
        let mut natives = Vec::new();
        loop {
            let Phase::Decoding(source) = &mut self.phase else { return Ok(Flow::Done) };
            let (frames, reader) = source.parts();
            let frame = match frames.next_frame() {
                None => return self.decode_natives(natives, out).await,
                Some(Err(error)) => {
                    return match self.decode_natives(natives, out).await? {
                        Flow::More => Err(self.fail(input_error(error), out)),
                        Flow::Done => Ok(Flow::Done),
                    };
                }
                Some(Ok(frame)) => frame,
            };
            self.frames += 1;
            let is_earlier = self.expected.format.and_then(|format| format.is_earlier_id);
            if is_repeated(&frame, is_earlier, &mut self.last_hash, &mut self.last_id) {
                continue;
            }
            // Readers parse the text. That of a binary frame is checked in its events.
            if Footprint::are_too_large(std::iter::once(frame.text())) {
                let error = too_many_values(&frame);
                return match self.decode_natives(natives, out).await? {
                    Flow::More => Err(self.fail(error, out)),
                    Flow::Done => Ok(Flow::Done),
                };
            }
            if let Some(hooks) = &self.request.native_hooks {
                natives.push((NativeEvent::from_frame(&frame), (frame.index, frame.offset)));
                if natives.len() < hooks.batch_size() {
                    continue;
                }
                match self.decode_natives(std::mem::take(&mut natives), out).await? {
                    Flow::More => continue,
                    Flow::Done => return Ok(Flow::Done),
                }
            }
            let before = out.len();
            let read = reader.read_frame(&frame, out);
            self.unknown_events.report(reader.tally(), &frame, &self.request);
            self.mark_snapshots(&mut out[before..]);
            match self.accept(read, before, out) {
                Ok(Flow::More) => {}
                Ok(Flow::Done) => return Ok(Flow::Done),
                Err(error) => return Err(self.fail(error, out)),
            }
        }
    }

    /// Decodes the native events of whole frames through the hooks.
    async fn decode_natives(
        &mut self,
        natives: Vec<(NativeEvent, Position)>,
        out: &mut Vec<Event>,
    ) -> Result<Flow, UpstreamError> {
        let hooks = match self.request.native_hooks.clone() {
            Some(hooks) if !natives.is_empty() => hooks,
            _ => return Ok(Flow::More),
        };
        // The timeout counts from now: the events themselves arrived in time.
        let deadline = hooks.timeout().map(|time| Instant::now() + time.min(FOREVER));
        // Boxed, so that the future of a run without hooks has no room for theirs.
        let decoded = Box::pin(self.filter(&*hooks, natives, deadline, out)).await;
        self.native_wait.since = Instant::now();
        decoded.map_err(|error| self.fail(error, out))
    }

    /// Filters native events with the hooks, and decodes the events that they let through.
    async fn filter(
        &mut self,
        hooks: &dyn NativeHooks,
        natives: Vec<(NativeEvent, Position)>,
        deadline: Option<Instant>,
        out: &mut Vec<Event>,
    ) -> Result<Flow, UpstreamError> {
        let (batch, positions): (Vec<_>, Vec<_>) = natives.into_iter().unzip();
        let mut filtered = Vec::new();
        let result = hooks.filter(batch, deadline, &mut filtered).await;
        // Events before a failure are passed on.
        if self.translate(hooks, &filtered, &positions, out).await? == Flow::Done {
            return Ok(Flow::Done);
        }
        match result? {
            Some(()) => Ok(Flow::More),
            None => self.fall_back(out).await.map(|()| Flow::Done),
        }
    }

    /// Decodes native events as the hooks decide. If there are as many as `positions`, each has its own; otherwise all
    /// have the last one.
    async fn translate(
        &mut self,
        hooks: &dyn NativeHooks,
        natives: &[NativeEvent],
        positions: &[Position],
        out: &mut Vec<Event>,
    ) -> Result<Flow, UpstreamError> {
        let is_one_to_one = natives.len() == positions.len();
        for (chunk, batch) in natives.chunks(hooks.batch_size()).enumerate() {
            let mut translated = Vec::new();
            let result = hooks.translate(batch, &mut translated).await;
            for (index, (native, Translated { before, translation })) in
                batch.iter().zip(translated).enumerate()
            {
                let position = match is_one_to_one {
                    true => positions.get(chunk * hooks.batch_size() + index),
                    false => positions.last(),
                };
                let position = position.copied().unwrap_or((self.frames, 0));
                let first = out.len();
                out.extend(before);
                let flow = match translation {
                    Translation::Default => self.read(native, position, first, out)?,
                    Translation::Replace(other) => self.read(&other, position, first, out)?,
                    Translation::Skip => self.accept(Ok(()), first, out)?,
                };
                if flow == Flow::Done {
                    return Ok(Flow::Done);
                }
            }
            result?;
        }
        Ok(Flow::More)
    }

    /// Decodes a native event; the events after `before` belong to it.
    fn read(
        &mut self,
        native: &NativeEvent,
        (index, offset): Position,
        before: usize,
        out: &mut Vec<Event>,
    ) -> Result<Flow, UpstreamError> {
        let first = out.len();
        let read = match &mut self.phase {
            Phase::Decoding(source) => {
                let frame = native.to_frame(index, offset);
                let read = source.read_frame(&frame, out);
                self.unknown_events.report(source.tally(), &frame, &self.request);
                read
            }
            _ => Ok(()),
        };
        self.mark_snapshots(&mut out[first..]);
        self.accept(read, before, out)
    }

    /// Marks the snapshots that the reader derived.
    fn mark_snapshots(&self, events: &mut [Event]) {
        if self.expected.format.is_some_and(|format| format.derives_snapshots) {
            mark_derived(events);
        }
    }

    /// Gives events the ids of the request again.
    fn restore_ids(&self, events: &mut [Event]) {
        if let Some(sent) = &self.sent_ids {
            sent.restore(events, &self.request.input);
        }
    }

    /// Looks for the end of the run in the events after `before`.
    fn accept(
        &mut self,
        read: Result<(), InputError>,
        before: usize,
        out: &mut Vec<Event>,
    ) -> Result<Flow, UpstreamError> {
        self.restore_ids(&mut out[before..]);
        if !truncate_after_terminal(out, before) {
            self.has_output |= has_output(&out[before..]);
            return read.map(|()| Flow::More).map_err(input_error);
        }
        self.phase = Phase::Done;
        let is_first = !self.has_output && !has_output(&out[before..out.len() - 1]);
        let is_refusal = is_first && self.expected.format.is_some_and(|format| format.early_error_is_refusal);
        match out.pop_if(|event| is_refusal && matches!(event.body, Body::RunError(_))) {
            // Other servers express this by a status, so its text is for the log as well.
            Some(Event { body: Body::RunError(error), .. }) => {
                let code = error.code.as_deref().unwrap_or_default();
                Err(UpstreamError::from(Kind::Failed("the agent's server answered with an error".into()))
                    .with_detail(bounded(format!("{code}: {}", error.message))))
            }
            _ => Ok(Flow::Done),
        }
    }

    /// Ends a stream that cannot be decoded any further.
    fn fail(&mut self, error: UpstreamError, out: &mut Vec<Event>) -> UpstreamError {
        if self.end(&failed_by(&error), out) == Verdict::Failed {
            // The returned error replaces the reader's RUN_ERROR.
            out.pop();
        }
        error
    }

    /// Adds the events that the reader kept back.
    fn end(&mut self, end: &StreamEnd, out: &mut Vec<Event>) -> Verdict {
        let Phase::Decoding(mut source) = std::mem::replace(&mut self.phase, Phase::Done) else {
            return Verdict::Unfinished;
        };
        let before = out.len();
        let verdict = source.end(end, out);
        self.restore_ids(&mut out[before..]);
        self.mark_snapshots(&mut out[before..]);
        truncate_after_terminal(out, before);
        verdict
    }

    fn native_timeout(&self) -> Option<tokio::time::Duration> {
        self.request.native_hooks.as_ref()?.timeout()
    }

    /// Returns when the next native event is overdue; never without such a timeout.
    fn native_deadline(&self) -> impl Future<Output = ()> + use<> {
        let deadline = self.native_timeout().map(|time| self.native_wait.since + time.min(FOREVER));
        async move {
            match deadline {
                Some(deadline) => sleep_until(deadline).await,
                None => std::future::pending().await,
            }
        }
    }

    /// Restarts the wait for the next native event, after events were passed on. Bytes without a frame do not count.
    fn restart_native_wait(&mut self) {
        if self.native_wait.frames != self.frames && self.native_timeout().is_some() {
            (self.native_wait.frames, self.native_wait.since) = (self.frames, Instant::now());
        }
    }

    /// Replaces the rest of the stream by the events of the hooks' fallback.
    async fn fall_back(&mut self, out: &mut Vec<Event>) -> Result<(), UpstreamError> {
        let Some(hooks) = self.request.native_hooks.clone() else { return Ok(()) };
        self.native_wait.has_fallen_back = true;
        let before = out.len();
        let natives = hooks.fallback(out).await?;
        if out.len() == before && natives.is_empty() {
            self.phase = Phase::Done;
            return Err(UpstreamTimeout::NativeEvent(hooks.timeout().unwrap_or_default()).into());
        }
        if let (Phase::Detecting(_), false) = (&self.phase, natives.is_empty()) {
            let source = self.expected.format.and_then(|format| self.source(format, Framing::Sse));
            let unknown = || {
                let detail = "the fallback cannot be decoded: the agent's stream has not shown its format";
                UpstreamError::from(Kind::Hook).with_detail(detail)
            };
            self.phase = Phase::Decoding(Box::new(source.ok_or_else(unknown)?));
        }
        self.translate(&*hooks, &natives, &[], out).await?;
        self.phase = Phase::Done;
        Ok(())
    }
}

/// The framing of a stream of `format` that starts with `start`: white space, and then `text`.
fn detect_framing(format: &Format, start: &[u8], text: &[u8], hint: Option<Framing>) -> Option<Framing> {
    let hint = hint.filter(|hint| format.reads.contains(hint));
    match (detect(start, format.reads), hint) {
        // One line of several looks like a document of one line.
        (Some(Framing::Array), Some(Framing::Lines)) if !text.starts_with(b"[") => hint,
        (None, Some(Framing::Sse)) => hint,
        (detected, _) => detected,
    }
}

/// True if a frame of a rejoined stream was decoded before. Updates the position.
fn is_repeated(
    frame: &Frame<'_>,
    is_earlier: Option<fn(&str, &str) -> bool>,
    last_hash: &mut Option<u64>,
    last_id: &mut Option<Box<str>>,
) -> bool {
    let Some(id) = frame.id else { return false };
    if let Some(last_hash) = last_hash {
        // Servers repeat frames that arrived while they looked up where to continue.
        let hash = hash_of(frame);
        let last = last_id.as_deref().unwrap_or_default();
        // The `id` of a frame without one is that of the frame before.
        if is_earlier.is_some_and(|is_earlier| is_earlier(id, last)) || (id == last && hash == *last_hash) {
            return true;
        }
        *last_hash = hash;
    }
    if last_id.as_deref() != Some(id) {
        *last_id = Some(id.into());
    }
    false
}

fn hash_of(frame: &Frame<'_>) -> u64 {
    let mut hasher = DefaultHasher::new();
    (frame.event, frame.text()).hash(&mut hasher);
    hasher.finish()
}

/// The error of a stream whose frame or event is malformed.
fn input_error(InputError { index, offset, problem, .. }: InputError) -> UpstreamError {
    let frame = index + 1;
    match problem {
        InputProblem::Frame(problem @ FrameProblem::TooLarge { .. }) => {
            let message = format!("frame {frame} at byte {offset} of the agent's stream {problem}");
            Kind::LimitExceeded(message.into()).into()
        }
        InputProblem::Frame(FrameProblem::Truncated) => Truncation::Frame { frame, offset }.into(),
        InputProblem::Frame(problem) => Kind::MalformedFrame { frame, offset, problem: Some(problem) }.into(),
        InputProblem::Incomplete(error) => {
            UpstreamError::from(Truncation::Stream).with_detail(bounded(error.to_string()))
        }
        problem => UpstreamError::from(Kind::MalformedFrame { frame, offset, problem: None })
            .with_detail(bounded(problem.to_string())),
    }
}

/// The error of a stream with a frame that would take too much memory once it is parsed.
fn too_many_values(frame: &Frame<'_>) -> UpstreamError {
    let (frame, offset) = (frame.index + 1, frame.offset);
    let place = format!("frame {frame} at byte {offset} of the agent's stream");
    Kind::LimitExceeded(format!("{place} {}", Footprint::PROBLEM).into()).into()
}

/// True if there is an event other than RUN_STARTED.
fn has_output(events: &[Event]) -> bool {
    events.iter().any(|event| !matches!(event.body, Body::RunStarted(_)))
}

/// Removes the events after the first terminal event from `before` on; whether there is one.
fn truncate_after_terminal(out: &mut Vec<Event>, before: usize) -> bool {
    match out[before..].iter().position(Event::is_terminal) {
        Some(at) => {
            out.truncate(before + at + 1);
            true
        }
        None => false,
    }
}

/// The end of a stream with an error, for its reader.
fn failed_by(error: &UpstreamError) -> StreamEnd {
    StreamEnd::Failed { code: error.code().into(), message: error.to_string().into() }
}

/// The error of a connection that broke within the stream.
pub(super) fn connection_lost(error: impl fmt::Display) -> UpstreamError {
    UpstreamError::from(Truncation::Connection).with_detail(error.to_string())
}

/// The start of `bytes`, for the log.
pub(super) fn excerpt(bytes: &[u8]) -> String {
    String::from_utf8_lossy(&bytes[..bytes.len().min(MAX_DETAIL)]).into_owned()
}

fn bounded(text: String) -> String {
    if text.len() <= MAX_DETAIL { text } else { excerpt(text.as_bytes()) }
}

/// The end of a stream.
#[derive(Debug)]
pub(super) enum Close {
    /// The run has ended.
    Done,
    /// The stream was closed.
    Eof,
    /// The stream was closed, and its producer confirms that it is complete.
    Complete,
    /// The stream broke.
    Broken(UpstreamError),
}

/// Reads a stream until it or its run ends. All decoded events are in the sink when this returns, also on error.
///
/// # Cancel safety
/// Dropping the future drops the stream, and with it the connection.
pub(super) async fn pump(
    bytes: impl Stream<Item = Result<Bytes, UpstreamError>>,
    decoder: &mut UpstreamDecoder,
    timeouts: StreamTimeouts,
    sink: &EventSink,
) -> Result<Close, UpstreamError> {
    let mut bytes = pin!(bytes);
    let mut events = Vec::new();
    // One timer for the whole stream. It is not reset by each chunk: when it fires, it compares with `since`.
    let never = || Instant::now() + FOREVER;
    let first = timeouts.next(false, Instant::now());
    let mut timer = pin!(sleep_until(first.map_or_else(never, |(deadline, _)| deadline)));
    let mut has_started = false;
    loop {
        let since = Instant::now();
        let chunk = loop {
            tokio::select! {
                biased;
                chunk = bytes.next() => break chunk,
                () = &mut timer => match timeouts.next(has_started, since) {
                    Some((deadline, timeout)) if deadline <= Instant::now() => {
                        let error = UpstreamError::from(timeout);
                        decoder.finish(Close::Broken(error.clone()), &mut events).await.ok();
                        events.pop_if(|event| event.is_terminal());
                        sink.send_all(&mut events).await?;
                        return Err(error);
                    }
                    next => timer.as_mut().reset(next.map_or_else(never, |(deadline, _)| deadline)),
                },
                () = decoder.native_deadline(), if decoder.native_timeout().is_some() => {
                    let fallback = decoder.fall_back(&mut events).await;
                    sink.send_all(&mut events).await?;
                    return fallback.map(|()| Close::Done);
                }
            }
        };
        let chunk = match chunk {
            None => return Ok(Close::Eof),
            Some(Err(error)) => return Ok(Close::Broken(error)),
            Some(Ok(chunk)) if chunk.is_empty() => continue,
            Some(Ok(chunk)) => chunk,
        };
        if !has_started {
            has_started = true;
            let next = timeouts.next(true, Instant::now());
            timer.as_mut().reset(next.map_or_else(never, |(deadline, _)| deadline));
        }
        let flow = decoder.push(&chunk, &mut events).await;
        sink.send_all(&mut events).await?;
        decoder.restart_native_wait();
        if flow? == Flow::Done {
            return Ok(Close::Done);
        }
    }
}

/// Ends a stream and passes on the events that the reader kept back.
pub(super) async fn finish(
    decoder: &mut UpstreamDecoder,
    close: Close,
    sink: &EventSink,
) -> Result<(), UpstreamError> {
    let mut events = Vec::new();
    let end = decoder.finish(close, &mut events).await;
    sink.send_all(&mut events).await?;
    end
}

#[cfg(test)]
mod tests;
