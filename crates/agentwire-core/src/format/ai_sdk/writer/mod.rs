//! Canonical events to the four wires of the AI SDK.
//!
//! [`turn`] is the machine behind the two rich wires: it decides what belongs into which step, what must be
//! closed before what, and what a client already knows. [`ui`] and [`data`] spell its decisions out.
//! [`letters`] and [`text`] are small enough to do without it.

mod about;
mod calls;
mod data;
mod lane;
mod letters;
mod snapshot;
mod text;
mod turn;
mod ui;

use self::{data::DataWire, letters::LetterWriter, text::TextWriter, turn::Turn, ui::UiWire};
use crate::format::{Profile, Setup, Writer};

/// The writer of a profile.
pub(super) fn new(profile: &Profile, setup: &Setup<'_>) -> Box<dyn Writer> {
    match profile.name {
        "4" => Box::new(Turn::new(DataWire::default(), setup)),
        "langchain-adapter" => Box::new(LetterWriter::new(setup)),
        "text" => Box::new(TextWriter::default()),
        version => Box::new(Turn::new(UiWire::new(version, setup.options), setup)),
    }
}
