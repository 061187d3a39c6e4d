//! Google ADK (Agent Development Kit): the events of its runner and of its API server.
//!
//! Checked against `google-adk` 2.13.0 and 1.39.1. Accepted inputs: JSON lines of events, the SSE body of `/run_sse`,
//! the JSON array of `/run`, and a stored session (`GET …/sessions/{id}`), which becomes a snapshot of its messages and
//! state. [`input`] is the other direction: requests to the API server.
//!
//! ADK streams a model turn in partial events and then sends a closing event with the whole turn. The reader compares
//! the closing event with the partial events, per invocation, branch and author: it emits the text that is new, skips
//! the text that was streamed, and corrects a difference with a snapshot of the messages. The ids of releases 1.x and
//! 2.x differ, so no decision depends on them.
//!
//! Lost in translation: log probabilities, cache and live-session bookkeeping (`raw=attach` keeps them), and the run
//! numbers in the names of workflow nodes, unless two instances of a node run at the same time.

pub mod input;
mod options;
mod reader;
mod wire;

#[cfg(test)]
mod tests;

use self::{
    options::{AdkReaderOptions, OPTIONS},
    reader::AdkReader,
};
use super::Format;
use crate::framing::Framing;

/// The format's entry in the registry.
pub static FORMAT: Format = Format {
    name: "adk",
    about: "Google ADK events: runner, /run_sse, /run, stored sessions",
    reads: &[Framing::Sse, Framing::Lines, Framing::Array],
    profiles: &[],
    ordered: false,
    options: OPTIONS,
    reader: Some(|setup| Box::new(AdkReader::new(AdkReaderOptions::of(setup)))),
    writer: None,
    derives_snapshots: true,
    can_be_empty: true,
    ..Format::EMPTY
};
