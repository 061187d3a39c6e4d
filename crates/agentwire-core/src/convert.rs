//! The chain: framing → reader → guard → writer → framing, with a report on what was lost.

use std::collections::BTreeMap;

use crate::{
    event::{Event, RunId, StreamEnd, ThreadId},
    format::{Fidelity, Format, Options, Profile, Reader, Setup, Writer},
    framing::{DEFAULT_MAX_FRAME, Decoder, Foreign, FrameError, FrameProblem, Frames, Framing},
    json::ReadError,
    order::{Guard, Rule},
    tally::{Count, Tally},
};

/// The code of a run whose stream could not be read on.
const BAD_INPUT: &str = "BAD_INPUT";

/// Where and why an input could not be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{} {} at byte {offset}: {problem}", .unit, .index + 1)]
pub struct InputError {
    /// Which frame, counting from 0.
    pub index: u64,
    /// Where it begins in the input, in bytes.
    pub offset: u64,
    /// What a frame of this framing is called.
    pub unit: &'static str,
    /// What is wrong.
    pub problem: InputProblem,
}

/// What is wrong with an input.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InputProblem {
    /// The frame could not be found in the bytes.
    #[error("{0}")]
    Frame(FrameProblem),
    /// There are no frames: the body is something else.
    #[error("{0}")]
    Foreign(Foreign),
    /// The frame does not follow its format.
    #[error("{0}")]
    Event(ReadError),
}

/// Bytes of one format in, guarded events out.
///
/// This is the reading half of the chain; `check` and the gateway use it without a writer.
pub struct Source {
    decoder: Decoder,
    reader: Box<dyn Reader>,
    guard: Guard,
    unit: &'static str,
    lenient: bool,
    read: Vec<Event>,
    report: SourceReport,
    stopped: bool,
}

impl std::fmt::Debug for Source {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Source").field("decoder", &self.decoder).field("report", &self.report).finish()
    }
}

/// What was read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SourceReport {
    /// Whole frames.
    pub frames: u64,
    /// Frames that were malformed and skipped, because the source is lenient.
    pub skipped: u64,
}

/// How to read.
#[derive(Debug)]
pub struct SourceOptions {
    /// The thread, for formats that do not say.
    pub thread: ThreadId,
    /// The run, for formats that do not say.
    pub run: RunId,
    /// Options of the format.
    pub options: Options,
    /// The bound on a frame.
    pub max_frame: usize,
    /// Whether to skip and count malformed frames instead of ending the run.
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

impl Source {
    /// A source of `format` in `framing`; `None` if the format has no reader.
    #[must_use]
    pub fn new(format: &Format, framing: Framing, options: &SourceOptions) -> Option<Self> {
        let setup =
            Setup { thread: options.thread.clone(), run: options.run.clone(), options: &options.options };
        Some(Self {
            decoder: Decoder::new(framing, options.max_frame),
            reader: format.reader?(&setup),
            guard: Guard::new(options.thread.clone(), options.run.clone()),
            unit: match framing {
                Framing::Lines | Framing::Coded => "line",
                Framing::Array => "element",
                _ => "frame",
            },
            lenient: options.lenient,
            read: Vec::new(),
            report: SourceReport::default(),
            stopped: false,
        })
    }

    /// Takes in bytes and hands each valid event to `sink`.
    ///
    /// # Errors
    /// When a frame is malformed and the source is not lenient. The run has then been ended with RUN_ERROR,
    /// and nothing more is read.
    pub fn push(&mut self, bytes: &[u8], sink: &mut dyn FnMut(Event)) -> Result<(), InputError> {
        if self.stopped {
            return Ok(());
        }
        self.decoder.push(bytes);
        self.drain(None, sink)
    }

    /// The input has ended.
    ///
    /// # Errors
    /// When the last frame is malformed.
    pub fn end(&mut self, end: &StreamEnd, sink: &mut dyn FnMut(Event)) -> Result<(), InputError> {
        if self.stopped {
            return Ok(());
        }
        self.decoder.finish();
        // What breaks off in the middle of a frame is told by why it broke off, not by how the rest reads.
        let cut = matches!(end, StreamEnd::Failed { .. }).then_some(end);
        self.drain(cut, sink)?;
        if !self.stopped {
            self.close(end, sink);
        }
        Ok(())
    }

    /// The input is something else than a stream of this format, as
    /// [`recognize`](crate::framing::recognize) has found: ends the run with RUN_ERROR, and reads nothing.
    pub fn refuse(&mut self, foreign: Foreign, sink: &mut dyn FnMut(Event)) -> InputError {
        let error =
            InputError { index: 0, offset: 0, unit: self.unit, problem: InputProblem::Foreign(foreign) };
        if !self.stopped {
            self.fail(&error, sink);
        }
        error
    }

    fn fail(&mut self, error: &InputError, sink: &mut dyn FnMut(Event)) {
        let end = StreamEnd::Failed { code: BAD_INPUT.into(), message: error.to_string().into() };
        self.close(&end, sink);
    }

    fn close(&mut self, end: &StreamEnd, sink: &mut dyn FnMut(Event)) {
        self.stopped = true;
        let mut events = std::mem::take(&mut self.read);
        self.reader.end(end, &mut events);
        let mut valid = Vec::new();
        for event in events {
            self.guard.push(event, &mut valid);
        }
        self.guard.end(end, &mut valid);
        valid.into_iter().for_each(sink);
    }

    /// Hands out what the decoder has. A frame that cannot be read ends the run: as `cut` says, or with its own
    /// error.
    fn drain(&mut self, cut: Option<&StreamEnd>, sink: &mut dyn FnMut(Event)) -> Result<(), InputError> {
        let mut valid = Vec::new();
        loop {
            let unit = self.unit;
            let failure = match self.decoder.next_frame() {
                None => return Ok(()),
                Some(Err(FrameError { index, offset, problem })) => {
                    let fatal = !matches!(problem, FrameProblem::TooLarge { .. });
                    (InputError { index, offset, unit, problem: InputProblem::Frame(problem) }, fatal)
                }
                Some(Ok(frame)) => {
                    self.report.frames += 1;
                    match self.reader.read(&frame, &mut self.read) {
                        Ok(()) => {
                            for event in self.read.drain(..) {
                                self.guard.push(event, &mut valid);
                            }
                            valid.drain(..).for_each(&mut *sink);
                            continue;
                        }
                        Err(error) => {
                            let (index, offset) = (frame.index, frame.offset);
                            (InputError { index, offset, unit, problem: InputProblem::Event(error) }, false)
                        }
                    }
                }
            };
            let (error, fatal) = failure;
            if self.lenient && !fatal {
                // What the reader made of the frame before it failed is still worth having.
                for event in self.read.drain(..) {
                    self.guard.push(event, &mut valid);
                }
                valid.drain(..).for_each(&mut *sink);
                self.report.skipped += 1;
                continue;
            }
            if let Some(end) = cut {
                self.close(end, sink);
                return Ok(());
            }
            self.fail(&error, sink);
            return Err(error);
        }
    }

    /// What was read.
    #[must_use]
    pub fn report(&self) -> &SourceReport {
        &self.report
    }

    /// What the reader tolerated.
    #[must_use]
    pub fn tally(&self) -> &Tally {
        self.reader.tally()
    }

    /// How often the guard had to repair, by rule.
    pub fn repairs(&self) -> impl Iterator<Item = (Rule, u64)> {
        self.guard.repairs()
    }

    /// How many bytes that were not UTF-8 were replaced.
    #[must_use]
    pub fn replaced(&self) -> u64 {
        self.decoder.replaced()
    }
}

/// The whole chain.
pub struct Converter {
    source: Source,
    writer: Box<dyn Writer>,
    out: Frames,
    written: Written,
}

/// How well events could be expressed, by kind of event.
#[derive(Debug, Default)]
struct Written {
    exact: BTreeMap<&'static str, u64>,
    approximated: BTreeMap<(&'static str, &'static str), u64>,
    dropped: BTreeMap<(&'static str, &'static str), u64>,
}

impl std::fmt::Debug for Converter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Converter").field("source", &self.source).field("written", &self.written).finish()
    }
}

impl Converter {
    /// A chain from `source` to a profile of `target`; `None` if that format has no writer. `framing`
    /// overrides the profile's own.
    #[must_use]
    pub fn new(
        source: Source,
        target: &Format,
        profile: &Profile,
        framing: Option<Framing>,
        setup: &Setup<'_>,
    ) -> Option<Self> {
        Some(Self {
            source,
            writer: target.writer?(profile, setup),
            out: Frames::new(framing.unwrap_or(profile.framing)),
            written: Written::default(),
        })
    }

    /// Takes in bytes; what comes of them waits in [`Converter::output`].
    ///
    /// # Errors
    /// When a frame is malformed; the output then ends with RUN_ERROR.
    pub fn push(&mut self, bytes: &[u8]) -> Result<(), InputError> {
        let Self { source, writer, out, written } = self;
        let result = source.push(bytes, &mut |event| written.write(&mut **writer, &event, out));
        if result.is_err() {
            self.writer.end(&mut self.out);
            self.out.finish_event(None);
        }
        result
    }

    /// The input has ended.
    ///
    /// # Errors
    /// When the last frame is malformed; the output then ends with RUN_ERROR.
    pub fn end(&mut self, end: &StreamEnd) -> Result<(), InputError> {
        if self.source.stopped {
            return Ok(());
        }
        let Self { source, writer, out, written } = self;
        let result = source.end(end, &mut |event| written.write(&mut **writer, &event, out));
        self.writer.end(&mut self.out);
        self.out.finish_event(None);
        result
    }

    /// The input is something else than a stream of this format; the output is a run that ends with RUN_ERROR.
    pub fn refuse(&mut self, foreign: Foreign) -> InputError {
        let Self { source, writer, out, written } = self;
        let error = source.refuse(foreign, &mut |event| written.write(&mut **writer, &event, out));
        self.writer.end(&mut self.out);
        self.out.finish_event(None);
        error
    }

    /// What waits to be written.
    pub fn output(&mut self) -> &mut Frames {
        &mut self.out
    }

    /// What happened so far.
    #[must_use]
    pub fn report(&self) -> Report {
        let Written { exact, approximated, dropped } = &self.written;
        let reasons = |map: &BTreeMap<(&'static str, &'static str), u64>| {
            map.iter().map(|((kind, why), times)| Loss { kind, why, times: *times }).collect()
        };
        Report {
            frames: self.source.report.frames,
            skipped: self.source.report.skipped,
            exact: exact.iter().map(|(kind, times)| (*kind, *times)).collect(),
            approximated: reasons(approximated),
            dropped: reasons(dropped),
            repaired: self.source.repairs().collect(),
            tolerated: self
                .source
                .tally()
                .iter()
                .map(|(what, name, count)| (what, name.into(), count))
                .collect(),
            replaced_bytes: self.source.replaced(),
        }
    }
}

impl Written {
    fn write(&mut self, writer: &mut dyn Writer, event: &Event, out: &mut Frames) {
        let fidelity = writer.write(event, out);
        out.finish_event(None);
        let times = match fidelity {
            Fidelity::Exact => self.exact.entry(event.kind()).or_default(),
            Fidelity::Approximated(why) => self.approximated.entry((event.kind(), why)).or_default(),
            Fidelity::Dropped(why) => self.dropped.entry((event.kind(), why)).or_default(),
        };
        *times += 1;
    }
}

/// What a conversion did, event kind by event kind.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Whole frames read.
    pub frames: u64,
    /// Malformed frames that were skipped.
    pub skipped: u64,
    /// Events that were expressed exactly.
    pub exact: Vec<(&'static str, u64)>,
    /// Events that were changed.
    pub approximated: Vec<Loss>,
    /// Events that were left out.
    pub dropped: Vec<Loss>,
    /// Repairs of the guard.
    pub repaired: Vec<(Rule, u64)>,
    /// What the reader tolerated: what, name, how often and where first.
    pub tolerated: Vec<(&'static str, String, Count)>,
    /// Bytes that were not UTF-8.
    pub replaced_bytes: u64,
}

/// Something that could not be expressed exactly.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loss {
    /// The kind of event.
    pub kind: &'static str,
    /// Why.
    pub why: &'static str,
    /// How often.
    pub times: u64,
}
