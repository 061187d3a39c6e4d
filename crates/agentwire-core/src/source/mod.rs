//! Bytes of one format in, events out.
//!
//! A [`Source`] is a framing decoder and a format reader in a row. It does no I/O and allocates nothing per frame
//! but the events:
//!
//! ```text
//!            push, finish       next_frame          read_frame
//!   bytes ───────────────▶ decoder ──────▶ Frame ───────────▶ events
//!                                            │ filter, replace,
//!                                            ▼ translate
//! ```
//!
//! [`Source::step`] is [`next_frame`](Source::next_frame) and [`read_frame`](Source::read_frame) in a row. Callers
//! that look at the frames between the two, such as the gateway's hooks, borrow both halves with [`Source::parts`].
//! [`GuardedSource`] adds the guard: any bytes in, a valid stream of events out. [`detect_format`] tries all formats.

mod detect;
mod guarded;
mod problem;

use std::fmt;

pub use self::{
    detect::{detect_format, likelier_format},
    guarded::{GuardedSource, SourceReport},
    problem::{InputError, InputProblem},
};
use crate::{
    codes,
    event::{Body, Event, RunId, StreamEnd, ThreadId},
    format::{Format, Options, Reader, Setup},
    framing::{DEFAULT_MAX_FRAME, Decoder, Frame, Framing},
    tally::Tally,
};

/// Settings of a source.
#[derive(Debug)]
pub struct SourceOptions {
    /// The thread id, for formats that contain none.
    pub thread: ThreadId,
    /// The run id, for formats that contain none.
    pub run: RunId,
    /// Options of the format.
    pub options: Options,
    /// The largest frame, in bytes.
    pub max_frame: usize,
    /// Whether a [`GuardedSource`] skips and counts malformed frames instead of ending the run.
    pub lenient: bool,
}

impl Default for SourceOptions {
    fn default() -> Self {
        Self {
            thread: "thread".into(),
            run: "run".into(),
            options: Options::default(),
            max_frame: DEFAULT_MAX_FRAME,
            lenient: false,
        }
    }
}

/// Bytes of one format in, the events of its reader out, without a guard.
///
/// ```
/// use agentwire_core::{
///     event::StreamEnd,
///     format::Format,
///     framing::Framing,
///     source::{InputProblem, Source, SourceOptions, Verdict},
/// };
///
/// let ag_ui = Format::find("ag-ui").unwrap();
/// let mut source = Source::new(ag_ui, Framing::Sse, &SourceOptions::default()).unwrap();
/// let mut events = Vec::new();
/// source.push(b"data: {\"type\":\"RUN_STARTED\",\"threadId\":\"t\",\"runId\":\"r\"}\n\ndata: {\"ty");
/// while let Some(step) = source.step(&mut events) {
///     step?;
/// }
/// assert_eq!(events[0].kind(), "RUN_STARTED");
///
/// source.finish();
/// let error = source.step(&mut events).unwrap().unwrap_err();
/// assert!(matches!(error.problem, InputProblem::Incomplete(_)), "the last frame is truncated");
/// assert_eq!(source.end(&StreamEnd::Closed, &mut events), Verdict::Unfinished);
/// # Ok::<(), agentwire_core::source::InputError>(())
/// ```
#[derive(Debug)]
pub struct Source {
    frames: FrameDecoder,
    reader: FrameReader,
    /// For formats whose streams may be empty.
    empty_check: Option<EmptyCheck>,
}

/// Tells an empty stream, which may contain blank lines and SSE comments, from text without frames.
#[derive(Debug, Default)]
struct EmptyCheck {
    is_in_comment: bool,
    has_text: bool,
}

impl EmptyCheck {
    fn push(&mut self, bytes: &[u8]) {
        for byte in bytes {
            if self.has_text {
                return;
            }
            match byte {
                b'\n' | b'\r' => self.is_in_comment = false,
                b':' => self.is_in_comment = true,
                byte => self.has_text = !self.is_in_comment && !byte.is_ascii_whitespace(),
            }
        }
    }

    /// False also for a comment that was cut off.
    fn is_empty(&self) -> bool {
        !self.has_text && !self.is_in_comment
    }
}

/// The first half of a [`Source`]: bytes in, frames out.
#[derive(Debug)]
pub struct FrameDecoder {
    decoder: Decoder,
    max_frame: usize,
    unit: &'static str,
    count: u64,
    /// Replaced bytes of the decoders before the last restart.
    replaced: u64,
}

/// The second half of a [`Source`]: frames in, events out.
pub struct FrameReader {
    reader: Box<dyn Reader>,
    unit: &'static str,
    is_finished: bool,
}

/// The state of a run when its stream ended without a terminal event, as [`Source::end`] finds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Verdict {
    /// The reader derived a terminal event from the frames: the last event is the producer's.
    Complete,
    /// The format ends its runs with an event, and there was none. No event was added for it.
    Unfinished,
    /// The stream ended in the middle of the run. The last event is a RUN_ERROR with that explanation.
    Truncated,
    /// There were no frames, or none with an event. The last event is a RUN_ERROR with that explanation.
    NoEvents,
    /// The stream ended with [`StreamEnd::Failed`]. The last event is the RUN_ERROR with its code.
    Failed,
}

impl Source {
    /// A source of `format` in `framing`; `None` if the format has no reader.
    #[must_use]
    pub fn new(format: &Format, framing: Framing, options: &SourceOptions) -> Option<Self> {
        let setup =
            Setup { thread: options.thread.clone(), run: options.run.clone(), options: &options.options };
        let unit = match framing {
            Framing::Lines | Framing::Coded => "line",
            Framing::Array => "element",
            _ => "frame",
        };
        let decoder = Decoder::new(framing, options.max_frame);
        Some(Self {
            frames: FrameDecoder { decoder, max_frame: options.max_frame, unit, count: 0, replaced: 0 },
            reader: FrameReader { reader: format.reader?(&setup), unit, is_finished: false },
            // The decoder of an array distinguishes an empty one from a truncated one.
            empty_check: (format.can_be_empty && framing != Framing::Array).then(EmptyCheck::default),
        })
    }

    /// Adds bytes. Read all frames before adding more.
    pub fn push(&mut self, bytes: &[u8]) {
        if let Some(check) = &mut self.empty_check {
            check.push(bytes);
        }
        self.frames.decoder.push(bytes);
    }

    /// Marks the end of the bytes: the last frame may lack its delimiter. Read the remaining frames after this, then
    /// call [`Source::end`].
    pub fn finish(&mut self) {
        self.frames.decoder.finish();
        self.reader.is_finished = true;
    }

    /// Continues the stream in another connection, after its last whole frame: the bytes start anew in `framing`,
    /// while the reader keeps its state.
    pub fn restart(&mut self, framing: Framing) {
        let FrameDecoder { decoder, max_frame, replaced, .. } = &mut self.frames;
        *replaced += decoder.replaced();
        *decoder = Decoder::new(framing, *max_frame);
        self.reader.is_finished = false;
    }

    /// The next whole frame, if there is one.
    pub fn next_frame(&mut self) -> Option<Result<Frame<'_>, InputError>> {
        self.frames.next_frame()
    }

    /// Reads a frame: one of [`Source::next_frame`], or one in its place.
    ///
    /// # Errors
    /// When the frame is malformed. The events read before the malformed part are in `out`, and the source can
    /// continue with the next frame.
    pub fn read_frame(&mut self, frame: &Frame<'_>, out: &mut Vec<Event>) -> Result<(), InputError> {
        self.reader.read_frame(frame, out)
    }

    /// Both halves, for callers that hold a frame of the first one while they use the second.
    pub fn parts(&mut self) -> (&mut FrameDecoder, &mut FrameReader) {
        (&mut self.frames, &mut self.reader)
    }

    /// Takes the next frame and reads it; `None` if there is no whole frame.
    pub fn step(&mut self, out: &mut Vec<Event>) -> Option<Result<(), InputError>> {
        match self.frames.next_frame()? {
            Ok(frame) => Some(self.reader.read_frame(&frame, out)),
            Err(error) => Some(Err(error)),
        }
    }

    /// Ends a stream that had no terminal event: adds the events that the reader has kept back or derives from the
    /// end.
    pub fn end(&mut self, end: &StreamEnd, out: &mut Vec<Event>) -> Verdict {
        let before = out.len();
        let is_foreign = self.empty_check.as_ref().is_some_and(|check| !check.is_empty());
        if is_foreign && self.frames.count == 0 && *end == StreamEnd::Closed {
            let message = "the stream contains no event".into();
            let failed = StreamEnd::Failed { code: codes::UPSTREAM_NO_EVENTS.into(), message };
            self.reader.reader.end(&failed, out);
            return Verdict::NoEvents;
        }
        self.reader.reader.end(end, out);
        let error = match out[before..].iter().find(|event| event.is_terminal()).map(|event| &event.body) {
            None => return Verdict::Unfinished,
            Some(Body::RunError(error)) => error,
            Some(_) => return Verdict::Complete,
        };
        match (error.code.as_deref(), end) {
            (Some(code), StreamEnd::Failed { code: given, .. }) if code == &**given => Verdict::Failed,
            (Some(codes::STREAM_TRUNCATED), _) => Verdict::Truncated,
            (Some(codes::UPSTREAM_NO_EVENTS), _) => Verdict::NoEvents,
            _ => Verdict::Complete,
        }
    }

    /// The number of whole frames so far, over all connections.
    #[must_use]
    pub fn frame_count(&self) -> u64 {
        self.frames.count
    }

    /// Counts of the deviations that the reader tolerated.
    #[must_use]
    pub fn tally(&self) -> &Tally {
        self.reader.reader.tally()
    }

    /// The number of bytes that were not UTF-8 and have been replaced.
    #[must_use]
    pub fn replaced_bytes(&self) -> u64 {
        self.frames.replaced + self.frames.decoder.replaced()
    }
}

impl FrameDecoder {
    /// The next whole frame, if there is one.
    pub fn next_frame(&mut self) -> Option<Result<Frame<'_>, InputError>> {
        match self.decoder.next_frame()? {
            Ok(frame) => {
                self.count += 1;
                Some(Ok(frame))
            }
            Err(error) => Some(Err(InputError {
                index: error.index,
                offset: error.offset,
                unit: self.unit,
                problem: InputProblem::Frame(error.problem),
            })),
        }
    }
}

impl FrameReader {
    /// Reads a frame, as [`Source::read_frame`] does.
    ///
    /// # Errors
    /// When the frame is malformed.
    pub fn read_frame(&mut self, frame: &Frame<'_>, out: &mut Vec<Event>) -> Result<(), InputError> {
        self.reader.read(frame, out).map_err(|error| {
            let is_incomplete = self.is_finished && problem::is_incomplete_json(frame.text());
            let (index, offset, unit) = (frame.index, frame.offset, self.unit);
            let problem =
                if is_incomplete { InputProblem::Incomplete(error) } else { InputProblem::Event(error) };
            InputError { index, offset, unit, problem }
        })
    }
}

impl FrameReader {
    /// Counts of the deviations that the reader tolerated.
    #[must_use]
    pub fn tally(&self) -> &Tally {
        self.reader.tally()
    }
}

impl fmt::Debug for FrameReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FrameReader").field("tally", self.reader.tally()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::{ag_ui, langgraph, openai};

    fn source(format: &Format, framing: Framing) -> Source {
        Source::new(format, framing, &SourceOptions::default()).unwrap()
    }

    #[test]
    fn problems_are_typed() {
        let options = SourceOptions { max_frame: 64, ..SourceOptions::default() };
        let mut source = Source::new(&ag_ui::FORMAT, Framing::Lines, &options).unwrap();
        source.push(format!("{{\"type\":7}}\n{{\"a\":\"{}\"}}\n{{\"type\":\"RU", "x".repeat(99)).as_bytes());
        source.finish();
        let mut problems = Vec::new();
        while let Some(step) = source.step(&mut Vec::new()) {
            let error = step.unwrap_err();
            problems.push((error.index, error.offset, error.problem));
        }
        use crate::framing::FrameProblem::TooLarge;
        assert!(matches!(&problems[0], (0, 0, InputProblem::Event(error)) if error.path() == "/type"));
        assert!(matches!(problems[1], (1, 11, InputProblem::Frame(TooLarge { limit: 64 }))));
        assert!(matches!(problems[2], (2, 119, InputProblem::Incomplete(_))), "{:?}", problems[2]);
        assert_eq!((problems.len(), source.frame_count()), (3, 2));
    }

    #[test]
    fn restart_keeps_the_reader_and_drops_half_a_frame() {
        let mut source = source(&ag_ui::FORMAT, Framing::Sse);
        let mut events = Vec::new();
        source.push(
            b"data: {\"type\":\"TEXT_MESSAGE_CHUNK\",\"messageId\":\"m\",\"delta\":\"a\"}\n\ndata: {\"x",
        );
        assert_eq!(source.step(&mut events), Some(Ok(())));
        source.restart(Framing::Sse);
        source.push(b"data: {\"type\":\"TEXT_MESSAGE_CHUNK\",\"delta\":\"b\"}\n\n");
        assert_eq!(source.step(&mut events), Some(Ok(())));
        assert_eq!(source.frame_count(), 2);
        assert!(matches!(&events.last().unwrap().body, Body::TextDelta { message, .. } if &**message == "m"));
    }

    #[test]
    fn empty_stream_is_a_run_only_where_the_format_allows_it() {
        for (text, is_run) in [
            ("", true),
            ("\n\n", true),
            (": ping\n\n: a: b\r\n", true),
            (": pi", false),
            ("dat", false),
            ("Bad Gateway\n", false),
            ("event: x\n\n", false),
        ] {
            for chunk_size in [1, 100] {
                let mut source = source(&crate::format::adk::FORMAT, Framing::Sse);
                for chunk in text.as_bytes().chunks(chunk_size) {
                    source.push(chunk);
                }
                source.finish();
                let mut events = Vec::new();
                assert_eq!(source.step(&mut events), None);
                let verdict = source.end(&StreamEnd::Closed, &mut events);
                let expected = if is_run { Verdict::Complete } else { Verdict::NoEvents };
                assert_eq!(verdict, expected, "{text:?}");
                let is_finished = matches!(events.last().unwrap().body, Body::RunFinished(_));
                assert_eq!(is_finished, is_run, "{text:?}");
            }
        }
    }

    #[test]
    fn end_tells_a_truncated_stream_from_a_complete_one() {
        let failed = StreamEnd::Failed { code: "BROKEN".into(), message: "broken".into() };
        for (format, framing, text, end, verdict) in [
            (&ag_ui::FORMAT, Framing::Sse, "", &StreamEnd::Closed, Verdict::Unfinished),
            (&openai::FORMAT, Framing::Sse, "", &StreamEnd::Closed, Verdict::NoEvents),
            (&openai::FORMAT, Framing::Sse, "", &failed, Verdict::Failed),
            (
                &openai::FORMAT,
                Framing::Sse,
                "data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\n",
                &StreamEnd::Closed,
                Verdict::Truncated,
            ),
            (
                &langgraph::FORMAT,
                Framing::Sse,
                "event: values\ndata: {\"messages\":[]}\n\n",
                &StreamEnd::Closed,
                Verdict::Complete,
            ),
        ] {
            let mut source = source(format, framing);
            let mut events = Vec::new();
            source.push(text.as_bytes());
            source.finish();
            while let Some(step) = source.step(&mut events) {
                step.unwrap();
            }
            assert_eq!(source.end(end, &mut events), verdict, "{}: {text}", format.name);
        }
    }
}
