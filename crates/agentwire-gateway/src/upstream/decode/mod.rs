//! From the bytes of an agent's stream to its events.
//!
//! Every agent that speaks a known format goes through here, whatever the bytes came by. What can go wrong with
//! such a stream becomes a [`UpstreamError`] with one of the `UPSTREAM_*` codes; what was said before that is passed
//! on. There is no guard in this chain: the one behind the [`EventSink`] is enough.

use std::{
    fmt,
    future::Future,
    hash::{DefaultHasher, Hash, Hasher},
    pin::pin,
};

use agentwire_core::{
    event::{Body, Event, StreamEnd},
    format::{self, Format, OptionError, Options, Reader, Setup, openai},
    framing::{Decoder, Frame, FrameError, FrameProblem, Framing, detect},
    json::ReadError,
};
use bytes::Bytes;
use futures_util::{Stream, StreamExt};
use tokio::time::{Duration, Instant, sleep_until};

use crate::{
    agent::{BuildError, EventSink, Pauses, Request},
    error::{Truncation, UpstreamError, UpstreamErrorKind as Kind, UpstreamTimeout},
};

/// How much of a stream is looked at to tell what it is: what `framing::detect` asks for.
const PEEK: usize = 64 << 10;

/// How much of what an agent's side said goes to the log.
const DETAIL: usize = 2 << 10;

/// The codes with which readers say that a stream ended too early, and that it held nothing.
const TRUNCATED: &str = "STREAM_TRUNCATED";
const NO_EVENTS: &str = "UPSTREAM_NO_EVENTS";

/// The longest wait that a clock can be asked for; as good as for ever.
const FOR_EVER: Duration = Duration::from_secs(30 * 24 * 3600);

/// What a stream is expected to speak.
#[derive(Clone, Debug)]
pub(super) struct ExpectedFormat {
    /// `None`: whatever it turns out to be.
    format: Option<&'static Format>,
    options: Options,
}

impl ExpectedFormat {
    /// A format that has a reader, with its options.
    pub(super) fn of(format: &'static Format, options: &[String]) -> Result<Self, BuildError> {
        let parsed = Options::parse(options.iter().map(String::as_str), format.options);
        let options = parsed.map_err(|error: OptionError| BuildError(error.to_string()))?;
        Ok(Self { format: Some(format), options })
    }

    /// The format of that name, or whatever it turns out to be.
    pub(super) fn named(name: Option<&str>, options: &[String]) -> Result<Self, BuildError> {
        let Some(name) = name else {
            return match options.first() {
                None => Ok(Self { format: None, options: Options::default() }),
                Some(option) => {
                    Err(BuildError(format!("option `{option}` belongs to no format: name one with `format`")))
                }
            };
        };
        // A profile is accepted and changes nothing: readers know all of them.
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

/// One stream being read. Does no I/O.
pub(super) struct UpstreamDecoder {
    language: ExpectedFormat,
    request: Request,
    /// What the response's content type says.
    hint: Option<Framing>,
    /// Whether something was said, beyond that the run has begun.
    said: bool,
    phase: Phase,
    /// No more bytes come.
    ended: bool,
    frames: u64,
    /// The last `id` of SSE.
    last_id: Option<Box<str>>,
    /// The stream was joined: what the frame with that `id` said, as a hash.
    joined: Option<u64>,
    /// Where the run's hooks are with it; unused without any.
    hooked: hooks::Progress,
}

enum Phase {
    /// Bytes are collected until they tell what they are.
    Starting(Vec<u8>),
    Reading(Box<Decoder>, Box<dyn Reader>),
    /// A terminal event was seen, or a failure.
    Over,
}

/// Whether more is to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flow {
    More,
    Over,
}

impl fmt::Debug for UpstreamDecoder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UpstreamDecoder")
            .field("language", &self.language)
            .field("frames", &self.frames)
            .finish()
    }
}

impl UpstreamDecoder {
    pub(super) fn new(language: &ExpectedFormat, request: &Request, hint: Option<Framing>) -> Self {
        Self {
            language: language.clone(),
            request: request.clone(),
            hint,
            said: false,
            phase: Phase::Starting(Vec::new()),
            ended: false,
            frames: 0,
            last_id: None,
            joined: None,
            hooked: hooks::Progress::begin(),
        }
    }

    /// The last `id` of an SSE stream: where to go on from.
    pub(super) fn last_id(&self) -> Option<&str> {
        self.last_id.as_deref()
    }

    /// How many whole frames there were.
    pub(super) fn frames(&self) -> u64 {
        self.frames
    }

    /// The stream broke and goes on in another connection, behind its last whole frame.
    pub(super) fn again(&mut self) {
        self.joined.get_or_insert(0);
        match &mut self.phase {
            Phase::Starting(start) => start.clear(),
            Phase::Reading(decoder, _) => {
                // Whoever can be joined speaks SSE.
                **decoder = Decoder::new(Framing::Sse, self.request.limits.max_frame);
            }
            Phase::Over => {}
        }
    }

    /// Takes in bytes; what they say is added to `out`, also when they fail.
    fn push(&mut self, bytes: &[u8], out: &mut Vec<Event>) -> Result<Flow, UpstreamError> {
        if self.feed(bytes)? { self.drain(out) } else { Ok(Flow::More) }
    }

    /// Takes in bytes; whether they are read.
    fn feed(&mut self, bytes: &[u8]) -> Result<bool, UpstreamError> {
        match &mut self.phase {
            Phase::Over => Ok(true),
            Phase::Reading(decoder, _) => {
                decoder.push(bytes);
                Ok(true)
            }
            Phase::Starting(start) => {
                start.extend_from_slice(bytes);
                self.begin(false)
            }
        }
    }

    /// The stream has ended, in good order or not: what that means for the run.
    fn end(&mut self, close: Close, out: &mut Vec<Event>) -> Result<(), UpstreamError> {
        let Some(ended) = self.last_bytes(close)? else { return Ok(()) };
        let last = self.drain(out);
        self.conclude(ended, last, out)
    }

    /// No more bytes come; `None` if the run is over already.
    fn last_bytes(&mut self, close: Close) -> Result<Option<Ended>, UpstreamError> {
        let (broken, complete) = match close {
            Close::Over => return Ok(None),
            Close::Eof => (None, false),
            Close::Complete => (None, true),
            Close::Broken(failure) => (Some(failure), false),
        };
        if matches!(self.phase, Phase::Starting(_)) {
            match (self.begin(true), &broken) {
                (Ok(true), _) => {}
                (Ok(false), None) => return Err(Truncation::Empty.into()),
                (Err(failure), None) => return Err(failure),
                // Too little is there to say that it is the wrong thing.
                (_, Some(broken)) => return Err(broken.clone()),
            }
        }
        if let Phase::Reading(decoder, _) = &mut self.phase {
            decoder.finish();
        }
        self.ended = true;
        Ok(Some(Ended { broken, complete }))
    }

    /// What the end of a stream means whose frames have been read; `last` is what came of them.
    fn conclude(
        &mut self,
        Ended { broken, complete }: Ended,
        last: Result<Flow, UpstreamError>,
        out: &mut Vec<Event>,
    ) -> Result<(), UpstreamError> {
        let last = last.map_err(|failure| match &broken {
            Some(broken) if matches!(failure.kind(), Kind::Truncated(_)) => broken.clone(),
            _ => failure,
        })?;
        if last == Flow::Over {
            return Ok(());
        }
        let end = match &broken {
            None => StreamEnd::Closed,
            Some(failure) => failed_by(failure),
        };
        self.close(&end, out);
        match out.last().map(|event| &event.body) {
            Some(Body::RunFinished(_)) => Ok(()),
            Some(Body::RunError(error)) => {
                let failure = match (error.code.as_deref(), broken) {
                    (Some(code), Some(broken)) if code == broken.code() => broken,
                    (Some(TRUNCATED), _) => Truncation::Reader(error.message.clone()).into(),
                    (Some(NO_EVENTS), _) if self.frames == 0 => Truncation::Empty.into(),
                    (Some(NO_EVENTS), _) => Kind::BadContent(error.message.to_string().into()).into(),
                    // The agent's own word.
                    _ => return Ok(()),
                };
                out.pop();
                Err(failure)
            }
            _ if complete && self.frames > 0 => Ok(()),
            _ => Err(broken.unwrap_or_else(|| Truncation::Stream.into())),
        }
    }

    /// Tells framing and format from the first bytes, if they suffice.
    fn begin(&mut self, whole: bool) -> Result<bool, UpstreamError> {
        let Phase::Starting(start) = &self.phase else { return Ok(true) };
        let text = start.strip_prefix(b"\xef\xbb\xbf").unwrap_or(start);
        let Some(begins) = text.iter().position(|byte| !byte.is_ascii_whitespace()) else {
            return match start.len() {
                // Nothing but white space, and far too much of it.
                PEEK.. => Err(self.not_events()),
                _ => Ok(false),
            };
        };
        let text = &text[begins..];
        let sure = whole || start.len() >= PEEK || start.first() == Some(&0);
        if !sure && !text.contains(&b'\n') && !text.contains(&b'\r') {
            return Ok(false);
        }
        if text.first() == Some(&b'<') {
            return Err(self.not_events());
        }
        let found = match self.language.format {
            Some(format) => framing(format, start, text, self.hint).map(|framing| (format, framing)),
            None => match agentwire_core::source::detect_format(start, sure) {
                None if !sure => return Ok(false),
                found => found,
            },
        };
        let Some((format, framing)) = found else { return Err(self.not_events()) };
        self.language.format = Some(format);
        let Some(reader) = self.reader(format) else { return Err(self.not_events()) };
        let mut decoder = Decoder::new(framing, self.request.limits.max_frame);
        decoder.push(start);
        self.phase = Phase::Reading(Box::new(decoder), reader);
        Ok(true)
    }

    fn reader(&self, format: &Format) -> Option<Box<dyn Reader>> {
        let input = &self.request.input;
        let options = self.language.options.clone().for_request((**input).clone());
        let setup = Setup { thread: input.thread.clone(), run: input.run.clone(), options: &options };
        format.reader.map(|make| make(&setup))
    }

    fn not_events(&mut self) -> UpstreamError {
        let start = match std::mem::replace(&mut self.phase, Phase::Over) {
            Phase::Starting(start) => start,
            _ => Vec::new(),
        };
        let message = "the agent answered with something that is not an event stream";
        UpstreamError::from(Kind::BadContent(message.into()))
            .with_detail(format!("it begins with `{}`", excerpt(&start).escape_debug()))
    }

    fn drain(&mut self, out: &mut Vec<Event>) -> Result<Flow, UpstreamError> {
        let Phase::Reading(decoder, reader) = &mut self.phase else { return Ok(Flow::Over) };
        let failure = loop {
            let before = out.len();
            match decoder.next_frame() {
                None => return Ok(Flow::More),
                Some(Ok(frame)) => {
                    self.frames += 1;
                    if is_repeated(&frame, &mut self.joined, &mut self.last_id) {
                        continue;
                    }
                    let read = reader.read(&frame, out);
                    if cut_behind_terminal(out, before) {
                        self.phase = Phase::Over;
                        return self.said_last(out, before).map(|()| Flow::Over);
                    }
                    self.said |= says_something(&out[before..]);
                    if let Err(error) = read {
                        break malformed(&frame, &error, self.ended);
                    }
                }
                Some(Err(error)) => break not_a_frame(&error),
            }
        };
        Err(self.fail(failure, out))
    }

    /// What the run's last event means. An error of chat completions before the first word is what other servers say by
    /// a status, so its words are for the log as well.
    fn said_last(&self, out: &mut Vec<Event>, before: usize) -> Result<(), UpstreamError> {
        let begun = self.said || says_something(&out[before..out.len() - 1]);
        let refuses = self.language.format.is_some_and(|format| format.name == openai::FORMAT.name);
        match out.pop_if(|event| refuses && !begun && matches!(event.body, Body::RunError(_))) {
            Some(Event { body: Body::RunError(error), .. }) => {
                let code = error.code.as_deref().unwrap_or_default();
                let detail = bounded(format!("{code}: {}", error.message));
                Err(UpstreamError::from(Kind::Failed("the agent's server answered with an error".into()))
                    .with_detail(detail))
            }
            _ => Ok(()),
        }
    }

    /// The stream cannot be read any further.
    fn fail(&mut self, failure: UpstreamError, out: &mut Vec<Event>) -> UpstreamError {
        self.close(&failed_by(&failure), out);
        // The failure says it.
        out.pop_if(|event| matches!(&event.body, Body::RunError(error) if error.code.as_deref() == Some(failure.code())));
        failure
    }

    /// Lets the reader say what it held back.
    fn close(&mut self, end: &StreamEnd, out: &mut Vec<Event>) {
        if let Phase::Reading(_, mut reader) = std::mem::replace(&mut self.phase, Phase::Over) {
            let before = out.len();
            reader.end(end, out);
            cut_behind_terminal(out, before);
        }
    }
}

/// The framing of a stream of `format` that begins with `start`: white space, and then `text`.
fn framing(format: &Format, start: &[u8], text: &[u8], hint: Option<Framing>) -> Option<Framing> {
    let hint = hint.filter(|hint| format.reads.contains(hint));
    match (detect(start, format.reads), hint) {
        // One line of several cannot be told from a document of one line.
        (Some(Framing::Array), Some(Framing::Lines)) if !text.starts_with(b"[") => hint,
        (None, Some(Framing::Sse)) => hint,
        (found, _) => found,
    }
}

/// Whether a stream that was joined says something once more. Remembers where it is.
fn is_repeated(frame: &Frame<'_>, joined: &mut Option<u64>, last_id: &mut Option<Box<str>>) -> bool {
    if let (Some(said), Some(id)) = (joined, frame.id) {
        // Servers say once more what came while they looked up what to repeat.
        let now = hash_of(frame);
        let last = last_id.as_deref().unwrap_or_default();
        // The `id` of a frame without one is that of the frame before.
        if is_before(id, last) || (id == last && now == *said) {
            return true;
        }
        *said = now;
    }
    if let Some(id) = frame.id
        && last_id.as_deref() != Some(id)
    {
        *last_id = Some(id.into());
    }
    false
}

/// A frame that its reader did not understand; `ended` if no more bytes come.
fn malformed(frame: &Frame<'_>, error: &ReadError, ended: bool) -> UpstreamError {
    if ended && is_half(frame.text()) {
        return UpstreamError::from(Truncation::Stream).with_detail(bounded(error.to_string()));
    }
    let kind = Kind::MalformedFrame { frame: frame.index + 1, offset: frame.offset, problem: None };
    UpstreamError::from(kind).with_detail(bounded(error.to_string()))
}

/// Bytes that are no frame.
fn not_a_frame(error: &FrameError) -> UpstreamError {
    let (frame, offset, problem) = (error.index + 1, error.offset, error.problem);
    match problem {
        FrameProblem::TooLarge { .. } => {
            let message = format!("frame {frame} at byte {offset} of the agent's stream {problem}");
            Kind::LimitExceeded(message.into()).into()
        }
        FrameProblem::Truncated => Truncation::Frame { frame, offset }.into(),
        problem => Kind::MalformedFrame { frame, offset, problem: Some(problem) }.into(),
    }
}

/// Whether the end of a JSON text is missing.
fn is_half(text: &str) -> bool {
    let ends_early =
        |text: &str| serde_json::from_str::<serde::de::IgnoredAny>(text).is_err_and(|error| error.is_eof());
    // A number that was cut in its middle is called invalid, unless a digit follows.
    ends_early(text) || ends_early(&format!("{text}0"))
}

/// What a frame says, as a hash.
fn hash_of(frame: &Frame<'_>) -> u64 {
    let mut hasher = DefaultHasher::new();
    (frame.event, frame.text()).hash(&mut hasher);
    hasher.finish()
}

/// Whether one `id` comes before another, where they count: `7`, or `1794794303715-0`.
fn is_before(id: &str, other: &str) -> bool {
    let number = |id: &str| {
        let (time, count) = id.split_once('-').unwrap_or((id, "0"));
        Some((time.parse::<u64>().ok()?, count.parse::<u64>().ok()?))
    };
    matches!((number(id), number(other)), (Some(id), Some(other)) if id < other)
}

/// Whether events say more than that the run has begun.
fn says_something(events: &[Event]) -> bool {
    events.iter().any(|event| !matches!(event.body, Body::RunStarted(_)))
}

/// Removes what follows a terminal event among those behind `before`; whether there is one.
fn cut_behind_terminal(out: &mut Vec<Event>, before: usize) -> bool {
    match out[before..].iter().position(Event::is_terminal) {
        Some(at) => {
            out.truncate(before + at + 1);
            true
        }
        None => false,
    }
}

/// The end of a stream that an error has ended, for the reader.
fn failed_by(error: &UpstreamError) -> StreamEnd {
    StreamEnd::Failed { code: error.code().into(), message: error.to_string().into() }
}

/// The connection broke in the middle of the stream.
pub(super) fn broken(error: impl fmt::Display) -> UpstreamError {
    UpstreamError::from(Truncation::Connection).with_detail(error.to_string())
}

/// As much of `bytes` as goes to the log.
pub(super) fn excerpt(bytes: &[u8]) -> String {
    String::from_utf8_lossy(&bytes[..bytes.len().min(DETAIL)]).into_owned()
}

fn bounded(text: String) -> String {
    if text.len() <= DETAIL { text } else { excerpt(text.as_bytes()) }
}

/// How long a stream may be silent. Bytes count, whatever they say.
#[derive(Clone, Debug)]
pub(super) struct StreamTimeouts {
    /// From when on the first byte is waited for, and for how long.
    first: Option<(Instant, Duration)>,
    idle: Option<Duration>,
    /// While a run is held, nobody waits.
    pauses: Pauses,
}

impl StreamTimeouts {
    /// Begins to wait for the first byte.
    pub(super) fn begin(request: &Request) -> Self {
        let first = request.timeouts.first_byte.map(|time| (Instant::now(), time));
        Self { first, idle: request.timeouts.idle, pauses: request.pauses.clone() }
    }

    /// When what is waited for since then is late.
    fn due(&self, since: Instant, time: Duration) -> Instant {
        self.pauses.since(since) + time.min(FOR_EVER)
    }

    /// For what is not the stream itself.
    pub(super) async fn first<T>(&self, future: impl Future<Output = T>) -> Result<T, UpstreamError> {
        let Some((since, time)) = self.first else { return Ok(future.await) };
        let mut future = pin!(future);
        loop {
            let due = self.due(since, time);
            match tokio::time::timeout_at(due, &mut future).await {
                Ok(done) => return Ok(done),
                Err(_) if self.due(since, time) > due => {}
                Err(_) => return Err(UpstreamTimeout::FirstByte(time).into()),
            }
        }
    }
}

/// What is known about the end of a stream.
struct Ended {
    /// Why it is not in good order.
    broken: Option<UpstreamError>,
    /// Whether its source says that it is complete.
    complete: bool,
}

/// How a stream ended.
#[derive(Debug)]
pub(super) enum Close {
    /// With the run.
    Over,
    /// In good order.
    Eof,
    /// In good order, and its source says that it is complete.
    Complete,
    /// Not in good order.
    Broken(UpstreamError),
}

/// Reads a stream until it or its run ends. What was said is in the sink by then, also on failure.
///
/// # Cancel safety
/// Dropping the future drops the stream, and with it the connection.
pub(super) async fn pump<E: fmt::Display>(
    bytes: impl Stream<Item = Result<Bytes, E>>,
    intake: &mut UpstreamDecoder,
    timeouts: StreamTimeouts,
    sink: &EventSink,
) -> Result<Close, UpstreamError> {
    let mut bytes = pin!(bytes);
    let mut events = Vec::new();
    // One timer for the whole stream: it looks at `since` when it fires, and is set anew only then.
    let mut timer = pin!(sleep_until(Instant::now() + FOR_EVER));
    if let Some((since, time)) = timeouts.first {
        timer.as_mut().reset(timeouts.due(since, time));
    }
    let mut begun = false;
    loop {
        let since = Instant::now();
        let chunk = loop {
            tokio::select! {
                biased;
                chunk = bytes.next() => break chunk,
                () = &mut timer => {
                    let due = match (begun, timeouts.first, timeouts.idle) {
                        (false, Some((since, time)), _) => Some((timeouts.due(since, time), UpstreamTimeout::FirstByte(time))),
                        (false, None, _) | (true, _, None) => None,
                        (true, _, Some(time)) => Some((timeouts.due(since, time), UpstreamTimeout::Idle(time))),
                    };
                    match due {
                        Some((due, timeout)) if due <= Instant::now() => {
                            let failure = UpstreamError::from(timeout);
                            intake.wind_up(Close::Broken(failure.clone()), &mut events).await.ok();
                            events.pop_if(|event| event.is_terminal());
                            sink.send_all(&mut events).await?;
                            return Err(failure);
                        }
                        Some((due, _)) => timer.as_mut().reset(due),
                        None => timer.as_mut().reset(Instant::now() + FOR_EVER),
                    }
                }
                () = intake.overdue(), if intake.has_deadline() => {
                    let said = intake.fall_back(&mut events).await;
                    sink.send_all(&mut events).await?;
                    return said.map(|()| Close::Over);
                }
            }
        };
        let chunk = match chunk {
            None => return Ok(Close::Eof),
            Some(Err(error)) => return Ok(Close::Broken(broken(error))),
            Some(Ok(chunk)) if chunk.is_empty() => continue,
            Some(Ok(chunk)) => chunk,
        };
        if !begun {
            begun = true;
            let idle = timeouts.idle.unwrap_or(FOR_EVER).min(FOR_EVER);
            timer.as_mut().reset(Instant::now() + idle);
        }
        let flow = intake.take(&chunk, &mut events).await;
        sink.send_all(&mut events).await?;
        intake.wait_again();
        if flow? == Flow::Over {
            return Ok(Close::Over);
        }
    }
}

/// Says what the end of a stream means, and passes on what the reader held back.
pub(super) async fn finish(
    intake: &mut UpstreamDecoder,
    close: Close,
    sink: &EventSink,
) -> Result<(), UpstreamError> {
    let mut events = Vec::new();
    let end = intake.wind_up(close, &mut events).await;
    sink.send_all(&mut events).await?;
    end
}

mod hooks;
#[cfg(test)]
mod tests;
