//! Canonical events to the four wires of the AI SDK.
//!
//! [`response`] is the machine behind the two rich wires: it decides what belongs into which step, what must be
//! closed before what, and what a client already knows. [`ui_message_stream`] and [`data_stream`] spell its decisions out.
//! [`langchain_dialect`] and [`text_stream`] are small enough to do without it.

mod data_stream;
pub(super) mod encode;
mod langchain_dialect;
pub(super) mod part_metadata;
mod response;
mod snapshot;
mod speaker_queue;
mod text_stream;
mod tool_calls;
mod ui_message_stream;

use self::{
    data_stream::DataWire, langchain_dialect::LetterWriter, response::Turn, text_stream::TextWriter,
    ui_message_stream::UiWire,
};
use super::options::WriterOptions;
use crate::format::{Profile, Setup, Writer};

/// The writer of a profile.
pub(super) fn new(profile: &Profile, setup: &Setup<'_>) -> Box<dyn Writer> {
    let options = WriterOptions::new(setup.options);
    match profile.name {
        "4" => Box::new(Turn::new(DataWire::default(), setup, options)),
        "langchain-adapter" => Box::new(LetterWriter::new(setup, &options)),
        "text" => Box::new(TextWriter::default()),
        version => Box::new(Turn::new(UiWire::new(version, &options), setup, options)),
    }
}
