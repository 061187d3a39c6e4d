//! AG-UI, the agent–user interaction protocol: version 1.0 and the shapes of 0.x.
//!
//! Written and checked against the published packages `@ag-ui/core`, `client`, `encoder` and `proto` 1.0.0.
//! The canonical events follow this format, so little is lost: events without an AG-UI type are carried as
//! activities (`carried_events.rs`), values without an AG-UI member under the metadata key `agentwire`.
//!
//! Lost in translation: the binary form drops extra members of JSON Patch operations and stores numbers as
//! doubles; profile `@0` loses the ids of reasoning and the details listed in `writer/v0.rs`; `@chunks` ends
//! and reopens messages that interleave.

mod carried_events;
pub mod input;
mod options;
pub mod proto;
mod reader;
pub(crate) mod shapes;
mod wire;
mod writer;

#[cfg(test)]
mod tests;

use self::{
    options::OPTIONS,
    reader::AgUiReader,
    writer::{AgUiEncoding, AgUiWriter},
};
pub use self::{
    reader::messages::{messages_from_json, patch_from_json},
    writer::messages::messages_to_json,
};
use super::{Format, Profile};
use crate::framing::Framing;

/// The format's entry in the registry.
pub static FORMAT: Format = Format {
    name: "ag-ui",
    about: "AG-UI 1.0 and 0.x, as JSON",
    reads: &[Framing::Sse, Framing::Lines, Framing::Array],
    profiles: &[
        Profile {
            name: "1",
            about: "AG-UI 1.0",
            framing: Framing::Sse,
            content_type: "text/event-stream",
            headers: &[],
            asks: &[],
        },
        Profile {
            name: "0",
            about: "AG-UI 0.x: THINKING_*, no subagents, no activities",
            framing: Framing::Sse,
            content_type: "text/event-stream",
            headers: &[],
            asks: &[],
        },
        Profile {
            name: "chunks",
            about: "AG-UI 1.0 with *_CHUNK shorthands",
            framing: Framing::Sse,
            content_type: "text/event-stream",
            headers: &[],
            asks: &[],
        },
    ],
    ordered: true,
    options: OPTIONS,
    reader: Some(|setup| Box::new(AgUiReader::new(setup))),
    writer: Some(|profile, _| Box::new(AgUiWriter::new(profile, AgUiEncoding::Json))),
    strict_options: &["old_shapes=refuse"],
    ..Format::EMPTY
};
