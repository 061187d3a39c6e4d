//! HAI, the human–agent interaction protocol: the whole standard, read and written.
//!
//! Based on the text of the standard, its builder sample, and traffic of its public reference server and client
//! (September 2025). HAI descends from AG-UI. It replaces text messages by *business data*, messages made of
//! outputs (text, thinking, fold, button, icon, toolCallShow, media, application-defined ones), and adds
//! collaborations, the handover of tasks between agents. The canonical model has events for both.
//!
//! AG-UI → HAI → AG-UI restores the same stream. Values that HAI has no member for are written as additional
//! members (`subagentRunId`, `metadata`, `rawEvent`), in the member `agui`, which names the AG-UI event that a
//! frame represents, or as a CUSTOM event `agui.…`; HAI clients ignore all three. In the other direction,
//! values that only HAI has are stored in metadata `hai`.
//!
//! Lost in translation: the order of keys; empty ids, which count as missing; the start and end of a message
//! that contains only blocks (the writer emits them around the blocks); developer messages, unless requested;
//! the absence of a timestamp, because every HAI event has one; with `tool_args=whole` the split of the arguments
//! into deltas; in the binary form integers beyond 2^53.

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
mod state;
mod wire;
mod writer;

#[cfg(test)]
mod tests;

pub use self::{builder::Builder, metadata::noted, state::with_containers};
use self::{
    options::OPTIONS,
    reader::HaiReader,
    writer::{HaiEncoding, HaiWriter},
};
use super::{Format, Profile};
use crate::{event::Body, framing::Framing, json::Json};

/// A check needs the events as they are on the wire.
const STRICT_OPTIONS: &[&str] = &["events=wire"];

/// The events of a check have AG-UI's types; see `reader/wire_order.rs`.
const CHECKED_NAMES: &[(&str, &str)] =
    &[("TEXT_MESSAGE_", "BUSINESS_DATA_"), ("REASONING_MESSAGE_", "AGENT_COLLABORATIVE_MESSAGE_")];

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
    ordered: true,
    options: OPTIONS,
    options_are_for_writing: true,
    reader: Some(|setup| Box::new(HaiReader::new(setup))),
    writer: Some(|profile, setup| Box::new(HaiWriter::new(profile, setup, HaiEncoding::Json))),
    strict_options: STRICT_OPTIONS,
    checked_names: CHECKED_NAMES,
    time_option: Some("stamp"),
    ..Format::EMPTY
};

/// The name of the CUSTOM event that reports that a run is paused or resumed.
const RUN_STATUS: &str = "hai.run_status";

/// The event that reports a status of a run (`paused`, `running`) and its pause mode (`soft`, `hard`) to clients.
#[must_use]
pub fn run_status(status: &str, mode: &str) -> Body {
    let value = Json::from(serde_json::json!({"status": status, "mode": mode}));
    Body::Custom { name: RUN_STATUS.into(), value }
}

/// Whether an event was made by [`run_status`].
#[must_use]
pub fn is_run_status(body: &Body) -> bool {
    matches!(body, Body::Custom { name, .. } if **name == *RUN_STATUS)
}
