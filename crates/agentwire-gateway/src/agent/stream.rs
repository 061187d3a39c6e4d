//! From the bytes of an agent's stream to its events.
//!
//! Every agent that speaks a known format goes through here, whatever the bytes came by. What can go wrong with
//! such a stream becomes a [`Failure`] with one of the `UPSTREAM_*` codes; what was said before that is passed
//! on. There is no guard in this chain: the one behind the [`Outlet`] is enough.

use std::{
    fmt,
    future::Future,
    hash::{DefaultHasher, Hash, Hasher},
    pin::pin,
};

use agentwire_core::{
    event::{Body, Event},
    format::{self, Format, OptionError, Options, Reader, Setup, StreamEnd},
    framing::{Decoder, Frame, FrameProblem, Framing, Payload, detect},
};
use bytes::Bytes;
use futures_util::{Stream, StreamExt};
use tokio::time::{Duration, Instant, sleep_until};

use super::{BuildError, Failure, Outlet, Request};
use crate::code;

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
pub(super) struct Language {
    /// `None`: whatever it turns out to be.
    format: Option<&'static Format>,
    options: Options,
}

impl Language {
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
pub(super) struct Intake {
    language: Language,
    request: Request,
    /// What the response's content type says.
    hint: Option<Framing>,
    phase: Phase,
    /// No more bytes come.
    ended: bool,
    frames: u64,
    /// The last `id` of SSE.
    last_id: Option<Box<str>>,
    /// The stream was joined: what the frame with that `id` said, as a hash.
    joined: Option<u64>,
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

impl fmt::Debug for Intake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Intake").field("language", &self.language).field("frames", &self.frames).finish()
    }
}

impl Intake {
    pub(super) fn new(language: &Language, request: &Request, hint: Option<Framing>) -> Self {
        Self {
            language: language.clone(),
            request: request.clone(),
            hint,
            phase: Phase::Starting(Vec::new()),
            ended: false,
            frames: 0,
            last_id: None,
            joined: None,
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
    pub(super) fn push(&mut self, bytes: &[u8], out: &mut Vec<Event>) -> Result<Flow, Failure> {
        match &mut self.phase {
            Phase::Over => return Ok(Flow::Over),
            Phase::Reading(decoder, _) => decoder.push(bytes),
            Phase::Starting(start) => {
                start.extend_from_slice(bytes);
                if !self.begin(false)? {
                    return Ok(Flow::More);
                }
            }
        }
        self.drain(out)
    }

    /// The stream has ended, in good order or not: what that means for the run.
    pub(super) fn end(&mut self, close: Close, out: &mut Vec<Event>) -> Result<(), Failure> {
        let (broken, complete) = match close {
            Close::Over => return Ok(()),
            Close::Eof => (None, false),
            Close::Complete => (None, true),
            Close::Broken(failure) => (Some(failure), false),
        };
        if matches!(self.phase, Phase::Starting(_)) {
            match (self.begin(true), &broken) {
                (Ok(true), _) => {}
                (Ok(false), None) => return Err(empty()),
                (Err(failure), None) => return Err(failure),
                // Too little is there to say that it is the wrong thing.
                (_, Some(broken)) => return Err(broken.clone()),
            }
        }
        if let Phase::Reading(decoder, _) = &mut self.phase {
            decoder.finish();
        }
        self.ended = true;
        let last = self.drain(out).map_err(|failure| match &broken {
            Some(broken) if &*failure.code == code::UPSTREAM_TRUNCATED => broken.clone(),
            _ => failure,
        })?;
        if last == Flow::Over {
            return Ok(());
        }
        let end = match &broken {
            None => StreamEnd::Closed,
            Some(Failure { code, message, .. }) => {
                StreamEnd::Failed { code: code.clone(), message: message.as_str().into() }
            }
        };
        self.close(&end, out);
        match out.last().map(|event| &event.body) {
            Some(Body::RunFinished(_)) => Ok(()),
            Some(Body::RunError(error)) => {
                let failure = match (error.code.as_deref(), broken) {
                    (Some(code), Some(broken)) if code == &*broken.code => broken,
                    (Some(TRUNCATED), _) => Failure { message: error.message.to_string(), ..truncated() },
                    (Some(NO_EVENTS), _) if self.frames == 0 => empty(),
                    (Some(NO_EVENTS), _) => Failure::new(code::UPSTREAM_BAD_CONTENT, &*error.message),
                    // The agent's own word.
                    _ => return Ok(()),
                };
                out.pop();
                Err(failure)
            }
            _ if complete && self.frames > 0 => Ok(()),
            _ => Err(broken.unwrap_or_else(truncated)),
        }
    }

    /// Reads a frame that was not in the stream.
    pub(super) fn tell(&mut self, event: &str, data: &str, out: &mut Vec<Event>) -> Result<(), Failure> {
        if let Phase::Reading(_, reader) = &mut self.phase {
            let data = Payload::Text(data);
            let frame = Frame { index: self.frames, offset: 0, event: Some(event), id: None, data };
            let before = out.len();
            reader.read(&frame, out).map_err(|error| {
                Failure::new(code::UPSTREAM_MALFORMED, format!("the agent's `{event}` is malformed"))
                    .with_detail(error.to_string())
            })?;
            cut_behind_terminal(out, before);
        }
        Ok(())
    }

    /// Tells framing and format from the first bytes, if they suffice.
    fn begin(&mut self, whole: bool) -> Result<bool, Failure> {
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
            None => match format::detect(start, sure) {
                None if !sure => return Ok(false),
                found => found,
            },
        };
        let Some((format, framing)) = found else { return Err(self.not_events()) };
        let input = &self.request.input;
        let options = self.language.options.clone().for_request((**input).clone());
        let setup = Setup { thread: input.thread.clone(), run: input.run.clone(), options: &options };
        let Some(make) = format.reader else { return Err(self.not_events()) };
        let mut decoder = Decoder::new(framing, self.request.limits.max_frame);
        decoder.push(start);
        self.phase = Phase::Reading(Box::new(decoder), make(&setup));
        Ok(true)
    }

    fn not_events(&mut self) -> Failure {
        let start = match std::mem::replace(&mut self.phase, Phase::Over) {
            Phase::Starting(start) => start,
            _ => Vec::new(),
        };
        Failure::new(
            code::UPSTREAM_BAD_CONTENT,
            "the agent answered with something that is not an event stream",
        )
        .with_detail(format!("it begins with `{}`", excerpt(&start).escape_debug()))
    }

    fn drain(&mut self, out: &mut Vec<Event>) -> Result<Flow, Failure> {
        let Phase::Reading(decoder, reader) = &mut self.phase else { return Ok(Flow::Over) };
        let failure = loop {
            let before = out.len();
            match decoder.next_frame() {
                None => return Ok(Flow::More),
                Some(Ok(frame)) => {
                    self.frames += 1;
                    let (index, offset) = (frame.index, frame.offset);
                    if let (Some(said), Some(id)) = (&mut self.joined, frame.id) {
                        // Servers say once more what came while they looked up what to repeat.
                        let now = hash_of(&frame);
                        let last = self.last_id.as_deref().unwrap_or_default();
                        // The `id` of a frame without one is that of the frame before.
                        if is_before(id, last) || (id == last && now == *said) {
                            continue;
                        }
                        *said = now;
                    }
                    if let Some(id) = frame.id
                        && self.last_id.as_deref() != Some(id)
                    {
                        self.last_id = Some(id.into());
                    }
                    let read = reader.read(&frame, out);
                    if cut_behind_terminal(out, before) {
                        self.phase = Phase::Over;
                        return Ok(Flow::Over);
                    }
                    if let Err(error) = read {
                        if self.ended && is_half(frame.text()) {
                            break Failure { detail: Some(bounded(error.to_string())), ..truncated() };
                        }
                        let what = format!("frame {} at byte {offset} of the agent's stream", index + 1);
                        break Failure::new(code::UPSTREAM_MALFORMED, format!("{what} is malformed"))
                            .with_detail(bounded(error.to_string()));
                    }
                }
                Some(Err(error)) => {
                    let code = match error.problem {
                        FrameProblem::TooLarge { .. } => code::LIMIT_EXCEEDED,
                        FrameProblem::Truncated => code::UPSTREAM_TRUNCATED,
                        _ => code::UPSTREAM_MALFORMED,
                    };
                    let (index, offset, problem) = (error.index + 1, error.offset, error.problem);
                    let what = format!("frame {index} at byte {offset} of the agent's stream {problem}");
                    break Failure::new(code, what);
                }
            }
        };
        let Failure { code, message, .. } = &failure;
        self.close(&StreamEnd::Failed { code: code.clone(), message: message.as_str().into() }, out);
        // The failure says it.
        out.pop_if(|event| matches!(&event.body, Body::RunError(error) if error.code.as_ref() == Some(code)));
        Err(failure)
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

pub(super) fn truncated() -> Failure {
    Failure::new(code::UPSTREAM_TRUNCATED, "the agent's stream ended before its run did")
}

fn empty() -> Failure {
    Failure::new(code::UPSTREAM_TRUNCATED, "the agent's stream ended before it said anything")
}

/// The connection broke in the middle of the stream.
pub(super) fn broken(error: impl fmt::Display) -> Failure {
    let message = "the connection to the agent broke before its run ended";
    Failure::new(code::UPSTREAM_TRUNCATED, message).with_detail(error.to_string())
}

/// As much of `bytes` as goes to the log.
pub(super) fn excerpt(bytes: &[u8]) -> String {
    String::from_utf8_lossy(&bytes[..bytes.len().min(DETAIL)]).into_owned()
}

fn bounded(text: String) -> String {
    if text.len() <= DETAIL { text } else { excerpt(text.as_bytes()) }
}

/// How long a stream may be silent. Bytes count, whatever they say.
#[derive(Clone, Copy, Debug)]
pub(super) struct Patience {
    /// Until when the first byte must be there.
    first: Option<(Instant, Duration)>,
    idle: Option<Duration>,
}

impl Patience {
    /// Begins to wait for the first byte.
    pub(super) fn begin(request: &Request) -> Self {
        let now = Instant::now();
        let first = request.timeouts.first_byte.map(|time| (now + time.min(FOR_EVER), time));
        Self { first, idle: request.timeouts.idle }
    }

    /// For what is not the stream itself.
    pub(super) async fn first<T>(&self, future: impl Future<Output = T>) -> Result<T, Failure> {
        match self.first {
            None => Ok(future.await),
            Some((deadline, time)) => tokio::time::timeout_at(deadline, future).await.map_err(|_| late(time)),
        }
    }
}

fn late(time: Duration) -> Failure {
    Failure::new(code::UPSTREAM_TIMEOUT, format!("the agent did not begin to answer within {time:?}"))
}

fn silent(time: Duration) -> Failure {
    Failure::new(code::UPSTREAM_TIMEOUT, format!("the agent was silent for {time:?}"))
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
    Broken(Failure),
}

/// Reads a stream until it or its run ends. What was said is in the outlet by then, also on failure.
///
/// # Cancel safety
/// Dropping the future drops the stream, and with it the connection.
pub(super) async fn pump<E: fmt::Display>(
    bytes: impl Stream<Item = Result<Bytes, E>>,
    intake: &mut Intake,
    patience: Patience,
    outlet: &Outlet,
) -> Result<Close, Failure> {
    let mut bytes = pin!(bytes);
    let mut events = Vec::new();
    // One timer for the whole stream: it looks at `since` when it fires, and is set anew only then.
    let mut timer = pin!(sleep_until(Instant::now() + FOR_EVER));
    if let Some((deadline, _)) = patience.first {
        timer.as_mut().reset(deadline);
    }
    let mut begun = false;
    loop {
        let since = Instant::now();
        let chunk = loop {
            tokio::select! {
                biased;
                chunk = bytes.next() => break chunk,
                () = &mut timer => {
                    let due = match (begun, patience.first, patience.idle) {
                        (false, Some((deadline, time)), _) => Some((deadline, late(time))),
                        (false, None, _) | (true, _, None) => None,
                        (true, _, Some(time)) => Some((since + time.min(FOR_EVER), silent(time))),
                    };
                    match due {
                        Some((due, failure)) if due <= Instant::now() => {
                            intake.end(Close::Broken(failure.clone()), &mut events).ok();
                            events.pop_if(|event| event.is_terminal());
                            outlet.send_all(&mut events).await?;
                            return Err(failure);
                        }
                        Some((due, _)) => timer.as_mut().reset(due),
                        None => timer.as_mut().reset(Instant::now() + FOR_EVER),
                    }
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
            let idle = patience.idle.unwrap_or(FOR_EVER).min(FOR_EVER);
            timer.as_mut().reset(Instant::now() + idle);
        }
        let flow = intake.push(&chunk, &mut events);
        outlet.send_all(&mut events).await?;
        if flow? == Flow::Over {
            return Ok(Close::Over);
        }
    }
}

/// Says what the end of a stream means, and passes on what the reader held back.
pub(super) async fn finish(intake: &mut Intake, close: Close, outlet: &Outlet) -> Result<(), Failure> {
    let mut events = Vec::new();
    let end = intake.end(close, &mut events);
    outlet.send_all(&mut events).await?;
    end
}

#[cfg(test)]
mod tests;
