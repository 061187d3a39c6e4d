//! HAI, the human–agent interaction protocol: all of the standard, both ways.
//!
//! Written after the standard's text, its builder sample, and what its public reference server and client put
//! on the wire (September 2025). HAI descends from AG-UI; its own are *business data*, messages made of outputs
//! (text, thinking, fold, button, icon, toolCallShow, media and whatever else an application draws) in place of
//! text messages, and hand-overs between agents. The canonical model has events for both.
//!
//! A stream that came from AG-UI comes back as the same stream. What HAI has no place for is sent as a plain
//! member (`subagentRunId`, `metadata`, `rawEvent`), in the member `agui` that says which event a frame stands
//! for, or as a CUSTOM event `agui.…`; HAI's clients ignore all three. The other way round, what only HAI
//! has lives in metadata `hai`.
//!
//! Lost in translation: the order of keys; ids that are the empty string, which count as missing ones; a
//! message's start and end where nothing but blocks stands in it (they are put back around the blocks); messages
//! for developers, unless asked for; times that the source did not give, because every HAI event has one; with
//! `tool_args=whole` the pieces that arguments came in; in the binary form integers beyond 2^53.

pub mod builder;
mod delta;
mod derived_ids;
mod fields;
pub mod input;
mod metadata;
mod nesting;
mod options;
pub mod proto;
mod reader;
mod wire;
mod writer;

#[cfg(test)]
mod tests;

pub use self::builder::Builder;
use self::{
    options::OPTIONS,
    reader::HaiReader,
    writer::{Encoding, HaiWriter},
};
use super::{Format, Profile};
use crate::framing::Framing;

/// The format's entry in the registry.
pub static FORMAT: Format = Format {
    name: "hai",
    about: "HAI, the human-agent interaction protocol, as JSON",
    reads: &[Framing::Sse, Framing::Lines, Framing::Array],
    profiles: &[
        Profile {
            name: "json-string",
            about: "deltas are JSON documents as strings, as the reference client needs them",
            framing: Framing::Sse,
            content_type: "text/event-stream",
            headers: &[],
            asks: &[],
        },
        Profile {
            name: "object",
            about: "deltas are objects, as in the standard's builder",
            framing: Framing::Sse,
            content_type: "text/event-stream",
            headers: &[],
            asks: &[],
        },
        Profile {
            name: "text",
            about: "deltas are plain text; other outputs are CUSTOM hai.output",
            framing: Framing::Sse,
            content_type: "text/event-stream",
            headers: &[],
            asks: &[],
        },
    ],
    ordered: false,
    options: OPTIONS,
    reader: Some(|setup| Box::new(HaiReader::new(setup))),
    writer: Some(|profile, setup| Box::new(HaiWriter::new(profile, setup, Encoding::Json))),
    time_option: Some("stamp"),
    ..Format::EMPTY
};
