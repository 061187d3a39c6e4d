//! LangGraph and LangChain, as a source: every stream that they produce.
//!
//! Written and checked against langchain-core 1.7, langgraph 1.2 and langgraph-api 0.16. Five inputs are told
//! apart by themselves:
//!
//! * native events (`astream_events` version 2) as JSON lines, flat or in the `lc` envelope of `dumpd`;
//! * LangGraph Server's SSE, any combination of stream modes, with and without nested graphs;
//! * tuples of `graph.astream(stream_mode=[…])`;
//! * the server's protocol v2.
//!
//! Where a native stream cannot say how it ended, the caller may append what it has read from the server as
//! frames named `state` (`/threads/{id}/state`) and `run` (`/threads/{id}/runs/{id}`).
//!
//! Lost in translation: prompts, parsers and retrievers (unless `raw=on`), chains that are plumbing, everything
//! in a message that is for its provider only (log probabilities, safety ratings, `artifact`s apart), and the
//! interleaving of two messages that protocol v2 streams at one place.

pub mod input;
mod namespace;
mod options;
mod raw_json;
mod reader;
mod wire;

#[cfg(test)]
mod tests;

use self::{options::OPTIONS, reader::LangGraphReader};
pub use self::{
    reader::thread_state,
    wire::{EventName, Method, Mode},
};
use super::Format;
use crate::framing::Framing;

/// The format's entry in the registry.
pub static FORMAT: Format = Format {
    name: "langgraph",
    about: "LangChain and LangGraph: native events, server streams, mode tuples",
    reads: &[Framing::Lines, Framing::Sse, Framing::Array],
    profiles: &[],
    ordered: false,
    options: OPTIONS,
    reader: Some(|setup| Box::new(LangGraphReader::new(setup))),
    writer: None,
};
