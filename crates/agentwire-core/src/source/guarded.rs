//! A source with a guard behind it.

use super::{InputError, InputProblem, Source, SourceOptions};
use crate::{
    codes,
    event::{Event, StreamEnd},
    format::Format,
    framing::{Foreign, Framing},
    order::{Guard, Rule},
    tally::Tally,
};

/// Bytes of one format in, a valid stream of events out, ended by one terminal event per run.
///
/// ```
/// use agentwire_core::{format::Format, framing::Framing, source::{GuardedSource, SourceOptions}};
///
/// let chunks = [&b"data: {\"type\":\"TEXT_MESSAGE_CONTENT\",\"messageId\":\"m\","[..], b"\"delta\":\"Hi\"}\n\n"];
/// let format = Format::find("ag-ui").unwrap();
/// let mut source = GuardedSource::new(format, Framing::Sse, &SourceOptions::default()).unwrap();
/// let events: Vec<_> = source.events(chunks).collect::<Result<_, _>>()?;
/// let kinds: Vec<_> = events.iter().map(|event| event.kind()).collect();
/// assert_eq!(kinds, ["RUN_STARTED", "TEXT_MESSAGE_START", "TEXT_MESSAGE_CONTENT", "TEXT_MESSAGE_END", "RUN_ERROR"]);
/// # Ok::<(), agentwire_core::source::InputError>(())
/// ```
#[derive(Debug)]
pub struct GuardedSource {
    source: Source,
    guard: Guard,
    is_lenient: bool,
    is_ended: bool,
    skipped: u64,
    /// Buffers, kept for their memory.
    read: Vec<Event>,
    valid: Vec<Event>,
}

/// Counts of the frames of a source.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SourceReport {
    /// Whole frames.
    pub frames: u64,
    /// Malformed frames that a lenient source skipped.
    pub skipped: u64,
}

impl GuardedSource {
    /// A source of `format` in `framing`; `None` if the format has no reader.
    #[must_use]
    pub fn new(format: &Format, framing: Framing, options: &SourceOptions) -> Option<Self> {
        Some(Self {
            source: Source::new(format, framing, options)?,
            guard: Guard::new(options.thread.clone(), options.run.clone()),
            is_lenient: options.lenient,
            is_ended: false,
            skipped: 0,
            read: Vec::new(),
            valid: Vec::new(),
        })
    }

    /// The events of `chunks`, which are the whole stream. After an error there are no more events: the run has been
    /// ended with RUN_ERROR.
    pub fn events<C: AsRef<[u8]>>(
        &mut self,
        chunks: impl IntoIterator<Item = C>,
    ) -> impl Iterator<Item = Result<Event, InputError>> {
        // The last item is the end of the stream.
        let mut chunks = chunks.into_iter().map(Some).chain([None]);
        let mut ready = Vec::new().into_iter();
        std::iter::from_fn(move || {
            loop {
                if let Some(item) = ready.next() {
                    return Some(item);
                }
                let mut items = Vec::new();
                let mut sink = |event| items.push(Ok(event));
                let result = match chunks.next()? {
                    Some(chunk) => self.push(chunk.as_ref(), &mut sink),
                    None => self.end(&StreamEnd::Closed, &mut sink),
                };
                items.extend(result.err().map(Err));
                ready = items.into_iter();
            }
        })
    }

    /// Adds bytes and passes each valid event to `sink`.
    ///
    /// # Errors
    /// When a frame is malformed and the source is not lenient. The run has then been ended with RUN_ERROR, and
    /// further bytes are ignored.
    pub fn push(&mut self, bytes: &[u8], sink: &mut dyn FnMut(Event)) -> Result<(), InputError> {
        if self.is_ended {
            return Ok(());
        }
        self.source.push(bytes);
        self.read_frames(None, sink)
    }

    /// Ends the stream: reads its last frame and ends its run.
    ///
    /// # Errors
    /// When the last frame is malformed.
    pub fn end(&mut self, end: &StreamEnd, sink: &mut dyn FnMut(Event)) -> Result<(), InputError> {
        if self.is_ended {
            return Ok(());
        }
        self.source.finish();
        // A frame that a broken connection has truncated is reported as the broken connection.
        let cause = matches!(end, StreamEnd::Failed { .. }).then_some(end);
        self.read_frames(cause, sink)?;
        if !self.is_ended {
            self.close(end, sink);
        }
        Ok(())
    }

    /// Ends the run with RUN_ERROR, without reading, because [`recognize`](crate::framing::recognize) found that the
    /// input is not a stream of this format.
    pub fn refuse(&mut self, foreign: Foreign, sink: &mut dyn FnMut(Event)) -> InputError {
        let unit = self.source.frames.unit;
        let error = InputError { index: 0, offset: 0, unit, problem: InputProblem::Foreign(foreign) };
        if !self.is_ended {
            self.fail(&error, sink);
        }
        error
    }

    /// Whether the run has been ended, by [`GuardedSource::end`] or by an error.
    #[must_use]
    pub fn is_ended(&self) -> bool {
        self.is_ended
    }

    /// Reads all frames. One that cannot be read ends the run with `cause`, or else with its own error.
    fn read_frames(
        &mut self,
        cause: Option<&StreamEnd>,
        sink: &mut dyn FnMut(Event),
    ) -> Result<(), InputError> {
        while let Some(step) = self.source.step(&mut self.read) {
            let failure = match step {
                Err(error) if !(self.is_lenient && error.is_skippable()) => Some(error),
                Err(_) => {
                    self.skipped += 1;
                    None
                }
                Ok(()) => None,
            };
            if let Some(error) = failure {
                return match cause {
                    Some(end) => {
                        self.close(end, sink);
                        Ok(())
                    }
                    None => {
                        self.fail(&error, sink);
                        Err(error)
                    }
                };
            }
            for event in self.read.drain(..) {
                if self.guard.accepts_unchecked(&event) {
                    sink(event);
                } else {
                    self.guard.push(event, &mut self.valid);
                    self.valid.drain(..).for_each(&mut *sink);
                }
            }
        }
        Ok(())
    }

    fn fail(&mut self, error: &InputError, sink: &mut dyn FnMut(Event)) {
        let end = StreamEnd::Failed { code: codes::BAD_INPUT.into(), message: error.to_string().into() };
        self.close(&end, sink);
    }

    fn close(&mut self, end: &StreamEnd, sink: &mut dyn FnMut(Event)) {
        self.is_ended = true;
        self.source.end(end, &mut self.read);
        for event in self.read.drain(..) {
            self.guard.push(event, &mut self.valid);
        }
        self.guard.end(end, &mut self.valid);
        self.valid.drain(..).for_each(sink);
    }

    /// Counts of the frames so far.
    #[must_use]
    pub fn report(&self) -> SourceReport {
        SourceReport { frames: self.source.frame_count(), skipped: self.skipped }
    }

    /// Counts of the deviations that the reader tolerated.
    #[must_use]
    pub fn tally(&self) -> &Tally {
        self.source.tally()
    }

    /// Counts of the guard's repairs, by rule.
    pub fn repairs(&self) -> impl Iterator<Item = (Rule, u64)> {
        self.guard.repairs()
    }

    /// The number of bytes that were not UTF-8 and have been replaced.
    #[must_use]
    pub fn replaced_bytes(&self) -> u64 {
        self.source.replaced_bytes()
    }
}
