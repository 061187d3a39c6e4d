//! Bytes of one format to bytes of another: source → guard → writer → framing, with a report of the losses.

use std::{
    collections::BTreeMap,
    mem::{Discriminant, discriminant},
};

use serde_json::Value;

use crate::{
    event::{Body, Event, RunId, StreamEnd, ThreadId},
    format::{Fidelity, Format, Options, Profile, Setup, Writer},
    framing::{Foreign, Frames, Framing, recognize},
    order::Rule,
    patch::{self, Limits},
    source::{GuardedSource, InputError, InputProblem, SourceOptions, SourceReport},
    tally::{Count, Tally},
};

/// Converts a whole stream from one format to another.
///
/// `from` and `to` are names of [formats](crate::format::FORMATS); `to` may name a profile, as in `ag-ui@0`. Use a
/// [`Converter`] for streams that arrive piece by piece, for options and for the report.
///
/// ```
/// let openai = b"data: {\"choices\":[{\"delta\":{\"content\":\"Hi\"},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n";
/// let ag_ui = agentwire_core::convert("openai", "ag-ui", openai)?;
/// assert!(ag_ui.starts_with(b"data: {\"type\":\"RUN_STARTED\""));
/// # Ok::<(), agentwire_core::convert::ConvertError>(())
/// ```
///
/// # Errors
/// When a name is unknown, or when the bytes are not a valid stream of `from`.
pub fn convert(from: &str, to: &str, bytes: &[u8]) -> Result<Vec<u8>, ConvertError> {
    let unknown = |name: &str, direction| ConvertError::UnknownFormat { name: name.to_owned(), direction };
    let source_format = Format::find(from).ok_or_else(|| unknown(from, "reader"))?;
    let framing = match (recognize(bytes, source_format.reads), source_format.reads) {
        (Ok(framing), _) => framing,
        (Err(foreign), [first, ..]) if foreign.is_empty() && source_format.can_be_empty => *first,
        (Err(foreign), _) => {
            let problem = InputProblem::Foreign(foreign);
            return Err(ConvertError::Input(InputError { index: 0, offset: 0, unit: "frame", problem }));
        }
    };
    let source = GuardedSource::new(source_format, framing, &SourceOptions::default());
    let source = source.ok_or_else(|| unknown(from, "reader"))?;
    let (name, profile) = to.split_once('@').unwrap_or((to, ""));
    let target = Format::find(name).ok_or_else(|| unknown(to, "writer"))?;
    let profile = target.profile(profile).ok_or_else(|| unknown(to, "writer"))?;
    let SourceOptions { thread, run, .. } = SourceOptions::default();
    let setup = Setup { thread, run, options: &Options::default() };
    let converter = Converter::new(source, target, profile, None, &setup);
    let mut converter = converter.ok_or_else(|| unknown(to, "writer"))?;
    converter.push(bytes)?;
    converter.end(&StreamEnd::Closed)?;
    Ok(converter.output().take().to_vec())
}

/// The reason why [`convert`] failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConvertError {
    /// No format of that name can be read or written.
    #[error("no {direction} for format `{name}`")]
    UnknownFormat {
        /// The name.
        name: String,
        /// `reader` or `writer`.
        direction: &'static str,
    },
    /// The bytes are not a valid stream.
    #[error(transparent)]
    Input(#[from] InputError),
}

/// The whole chain, for streams that arrive piece by piece.
pub struct Converter {
    source: GuardedSource,
    writer: Box<dyn Writer>,
    out: Frames,
    written: Written,
    /// The ids of the run that was asked for.
    ids: Option<(ThreadId, RunId)>,
}

/// Counts of written events by fidelity and kind.
#[derive(Debug, Default)]
struct Written {
    exact: BTreeMap<&'static str, u64>,
    /// The latest exact events, which `exact` lacks: an answer is one kind of event.
    latest: Option<Latest>,
    approximated: BTreeMap<(&'static str, &'static str), u64>,
    dropped: BTreeMap<(&'static str, &'static str), u64>,
    /// The state that the written events amount to.
    state: Option<Value>,
}

/// Events of one kind.
#[derive(Debug)]
struct Latest {
    variant: Discriminant<Body>,
    kind: &'static str,
    times: u64,
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
        source: GuardedSource,
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
            ids: None,
        })
    }

    /// Sets the ids of the output: those of the request, while the stream may contain others.
    pub fn set_ids(&mut self, thread: ThreadId, run: RunId) {
        self.ids = Some((thread, run));
    }

    /// Adds bytes; the encoded frames are in [`Converter::output`].
    ///
    /// # Errors
    /// When a frame is malformed; the output then ends with RUN_ERROR.
    pub fn push(&mut self, bytes: &[u8]) -> Result<(), InputError> {
        let Self { source, writer, out, written, ids } = self;
        let result = source.push(bytes, &mut |event| written.write(&mut **writer, event, ids, out));
        if result.is_err() {
            self.writer.end(&mut self.out);
            self.out.finish_event(None);
        }
        result
    }

    /// Ends the input.
    ///
    /// # Errors
    /// When the last frame is malformed; the output then ends with RUN_ERROR.
    pub fn end(&mut self, end: &StreamEnd) -> Result<(), InputError> {
        if self.source.is_ended() {
            return Ok(());
        }
        let Self { source, writer, out, written, ids } = self;
        let result = source.end(end, &mut |event| written.write(&mut **writer, event, ids, out));
        self.writer.end(&mut self.out);
        self.out.finish_event(None);
        result
    }

    /// Refuses an input that is not a stream of this format: the output is a run that ends with RUN_ERROR.
    pub fn refuse(&mut self, foreign: Foreign) -> InputError {
        let Self { source, writer, out, written, ids } = self;
        let error = source.refuse(foreign, &mut |event| written.write(&mut **writer, event, ids, out));
        self.writer.end(&mut self.out);
        self.out.finish_event(None);
        error
    }

    /// The encoded frames.
    pub fn output(&mut self) -> &mut Frames {
        &mut self.out
    }

    /// The number of malformed frames that were skipped so far.
    #[must_use]
    pub fn skipped(&self) -> u64 {
        self.source.report().skipped
    }

    /// Counts of the deviations that the reader tolerated so far.
    #[must_use]
    pub fn tally(&self) -> &Tally {
        self.source.tally()
    }

    /// The report so far.
    #[must_use]
    pub fn report(&self) -> Report {
        let Written { approximated, dropped, .. } = &self.written;
        let reasons = |map: &BTreeMap<(&'static str, &'static str), u64>| {
            map.iter().map(|((kind, why), times)| Loss { kind, why, times: *times }).collect()
        };
        let SourceReport { frames, skipped } = self.source.report();
        Report {
            frames,
            skipped,
            exact: self.written.exact().into_iter().collect(),
            approximated: reasons(approximated),
            dropped: reasons(dropped),
            repaired: self.source.repairs().collect(),
            tolerated: self
                .source
                .tally()
                .iter()
                .map(|(kind, name, count)| (kind, name.into(), count))
                .collect(),
            replaced_bytes: self.source.replaced_bytes(),
        }
    }
}

/// Gives the event the ids of the request.
fn set_ids(event: &mut Event, ids: &Option<(ThreadId, RunId)>) {
    if let Some((thread, run)) = ids {
        let own = match &mut event.body {
            Body::RunStarted(started) => Some((&mut started.thread, &mut started.run)),
            Body::RunFinished(finished) => Some((&mut finished.thread, &mut finished.run)),
            _ => None,
        };
        if let Some(own) = own {
            (*own.0, *own.1) = (thread.clone(), run.clone());
        }
    }
}

impl Written {
    /// Writes the event, with `ids` in place of its own.
    fn write(
        &mut self,
        writer: &mut dyn Writer,
        mut event: Event,
        ids: &Option<(ThreadId, RunId)>,
        out: &mut Frames,
    ) {
        set_ids(&mut event, ids);
        let event = &event;
        let fidelity = match (writer.write(event, out), self.apply(event)) {
            (Fidelity::Exact, false) => Fidelity::Approximated("the patch does not apply to the state"),
            (fidelity, _) => fidelity,
        };
        out.finish_event(None);
        let times = match fidelity {
            Fidelity::Exact => return self.count_exact(event),
            Fidelity::Approximated(why) => self.approximated.entry((event.kind(), why)).or_default(),
            Fidelity::Dropped(why) => self.dropped.entry((event.kind(), why)).or_default(),
        };
        *times += 1;
    }

    fn count_exact(&mut self, event: &Event) {
        let variant = discriminant(&event.body);
        match &mut self.latest {
            Some(latest) if latest.variant == variant => latest.times += 1,
            latest => {
                if let Some(Latest { kind, times, .. }) =
                    latest.replace(Latest { variant, kind: event.kind(), times: 1 })
                {
                    *self.exact.entry(kind).or_default() += times;
                }
            }
        }
    }

    /// The counts of the exact events by kind.
    fn exact(&self) -> BTreeMap<&'static str, u64> {
        let mut exact = self.exact.clone();
        if let Some(Latest { kind, times, .. }) = self.latest {
            *exact.entry(kind).or_default() += times;
        }
        exact
    }

    /// Applies an event to the state; `false` for a patch that does not apply.
    fn apply(&mut self, event: &Event) -> bool {
        match &event.body {
            Body::StateSnapshot { snapshot } => self.state = Some(snapshot.to_value()),
            Body::StateDelta { patch } => {
                let state = self.state.get_or_insert_with(|| Value::Object(serde_json::Map::new()));
                return patch::apply(state, patch, &Limits::default()).is_ok();
            }
            _ => {}
        }
        true
    }
}

/// The result of a conversion, by kind of event.
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
    /// Deviations that the reader tolerated: kind, name and count.
    pub tolerated: Vec<(&'static str, String, Count)>,
    /// Bytes that were not UTF-8.
    pub replaced_bytes: u64,
}

impl Report {
    /// The entries of `tolerated` that are events or parts of events which the reader could not interpret.
    pub fn unknown_events(&self) -> impl Iterator<Item = (&'static str, &str, Count)> {
        let unknown = self.tolerated.iter().filter(|(kind, ..)| crate::tally::is_unknown_event(kind));
        unknown.map(|(kind, name, count)| (*kind, name.as_str(), *count))
    }
}

/// A kind of event that was not expressed exactly.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loss {
    /// The kind of event.
    pub kind: &'static str,
    /// The reason.
    pub why: &'static str,
    /// The number of events.
    pub times: u64,
}
