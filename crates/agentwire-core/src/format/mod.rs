//! The formats: one folder per wire protocol, and one table of all.
//!
//! All knowledge of a format stays in its folder. The rest of agentwire uses its [`Format`] entry in [`FORMATS`],
//! its [`Reader`], which turns frames into canonical events, and its [`Writer`], which turns canonical events into
//! frames. To add a format, add a folder and a line below.

pub mod adk;
pub mod ag_ui;
pub mod ai_sdk;
pub mod anthropic;
mod derived_ids;
#[cfg(test)]
pub(crate) mod golden;
pub mod hai;
pub mod langgraph;
mod manual_reasoning;
mod model_api;
pub mod openai;
pub mod openai_responses;
mod options;
mod protobuf;
mod reused;

pub use self::options::{OptionError, OptionSpec, Options, WHOLE_NUMBER};
use crate::{
    event::{Event, RunId, StreamEnd, ThreadId},
    framing::{Frame, Frames, Framing},
    json::ReadResult,
    tally::Tally,
};

/// Every format, in the order in which `agentwire formats` shows them.
pub static FORMATS: &[&Format] = &[
    &langgraph::FORMAT,
    &adk::FORMAT,
    &ag_ui::FORMAT,
    &ag_ui::proto::FORMAT,
    &hai::FORMAT,
    &hai::proto::FORMAT,
    &ai_sdk::FORMAT,
    &openai::FORMAT,
    &openai_responses::FORMAT,
    &anthropic::FORMAT,
];

/// A format, as the rest of agentwire uses it.
#[derive(Debug)]
pub struct Format {
    /// The name in `--from` and `--to`.
    pub name: &'static str,
    /// One line of description.
    pub about: &'static str,
    /// The framings it is read from, likeliest first. Empty if it has no reader.
    pub reads: &'static [Framing],
    /// The variants it is written in, the default one first. Empty if it has no writer.
    pub profiles: &'static [Profile],
    /// Whether its streams must follow the rules of [`crate::order`] by themselves, so that a violation is the
    /// producer's fault.
    pub ordered: bool,
    /// The options of `-O key=value`.
    pub options: &'static [OptionSpec],
    /// True if the options are those of the writer. A bare key of `-O` that both sides have is otherwise the reader's.
    pub options_are_for_writing: bool,
    /// Makes a reader.
    pub reader: Option<MakeReader>,
    /// Makes a writer for one of `profiles`.
    pub writer: Option<MakeWriter>,
    /// Options (`key=value`) with which the reader refuses everything that the official client refuses.
    pub strict_options: &'static [&'static str],
    /// Prefixes of AG-UI event types and those that the format has for them, in the messages of a check.
    pub checked_names: &'static [(&'static str, &'static str)],
    /// The option that holds the current time in milliseconds, for writers whose events all have a time. The core
    /// has no clock.
    pub time_option: Option<&'static str>,
    /// Whether an error before the first event stands for a failed HTTP status: the server refused the request.
    pub early_error_is_refusal: bool,
    /// True if its reader makes snapshots of the messages from other data, such as the output of a graph. They may lack
    /// the messages before the run.
    pub derives_snapshots: bool,
    /// True if a complete stream without any frame is a run without output.
    pub can_be_empty: bool,
    /// Whether the first SSE `id` of a stream precedes the second, for servers that repeat frames when a stream is
    /// rejoined.
    pub is_earlier_id: Option<fn(&str, &str) -> bool>,
}

/// Makes a reader.
pub type MakeReader = fn(&Setup<'_>) -> Box<dyn Reader>;

/// Makes a writer.
pub type MakeWriter = fn(&Profile, &Setup<'_>) -> Box<dyn Writer>;

/// A variant of a format, named `format@profile`.
#[derive(Debug)]
pub struct Profile {
    /// The part behind the `@`.
    pub name: &'static str,
    /// One line of description.
    pub about: &'static str,
    /// The framing of its events.
    pub framing: Framing,
    /// The response's `content-type`.
    pub content_type: &'static str,
    /// Further headers of the response.
    pub headers: &'static [(&'static str, &'static str)],
    /// Default options for a reader of the source format, where that has them.
    pub asks: &'static [(&'static str, &'static str)],
}

/// The parameters of a new reader or writer.
#[derive(Debug)]
pub struct Setup<'s> {
    /// The thread id, for formats that contain none.
    pub thread: ThreadId,
    /// The run id, for formats that contain none; generated ids derive from it.
    pub run: RunId,
    /// Validated options.
    pub options: &'s Options,
}

/// Decodes one format: native frames in, canonical events out.
///
/// A reader need not follow the order rules; the [`Guard`](crate::order::Guard) after it repairs violations.
pub trait Reader: Send {
    /// Reads one frame.
    ///
    /// # Errors
    /// When the frame is malformed. Unknown kinds are not an error: they are counted in the tally. After an error
    /// the reader can continue with the next frame.
    fn read(&mut self, frame: &Frame<'_>, out: &mut Vec<Event>) -> ReadResult;

    /// Ends the native stream: emits the remaining events, and the end of the run where the format has none.
    fn end(&mut self, end: &StreamEnd, out: &mut Vec<Event>);

    /// Counts of the tolerated deviations so far.
    fn tally(&self) -> &Tally;
}

/// Encodes one format: canonical events in, native frames out.
pub trait Writer: Send {
    /// Writes the event; returns how well the format could express it.
    fn write(&mut self, event: &Event, out: &mut Frames) -> Fidelity;

    /// Ends the stream: writes the trailer of the format, if it has one.
    fn end(&mut self, out: &mut Frames) {
        let _ = out;
    }
}

/// The quality with which a format expressed an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fidelity {
    /// The same reader restores the same event.
    Exact,
    /// Part of the event was changed; the text names the change.
    Approximated(&'static str),
    /// Nothing was written; the text names the reason.
    Dropped(&'static str),
}

impl Format {
    /// An entry without a name, reader and writer: `..Format::EMPTY` completes the entry of a format.
    pub const EMPTY: Self = Self {
        name: "",
        about: "",
        reads: &[],
        profiles: &[],
        ordered: false,
        options: &[],
        options_are_for_writing: false,
        reader: None,
        writer: None,
        strict_options: &[],
        checked_names: &[],
        time_option: None,
        early_error_is_refusal: false,
        derives_snapshots: false,
        can_be_empty: false,
        is_earlier_id: None,
    };

    /// The format of that name.
    #[must_use]
    pub fn find(name: &str) -> Option<&'static Self> {
        FORMATS.iter().copied().find(|format| format.name == name)
    }

    /// The profile of that name; the empty name is the default one.
    #[must_use]
    pub fn profile(&self, name: &str) -> Option<&'static Profile> {
        match name {
            "" => self.profiles.first(),
            name => self.profiles.iter().find(|profile| profile.name == name),
        }
    }
}
