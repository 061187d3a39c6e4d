//! LangGraph and LangChain, read only: every stream that they produce.
//!
//! Checked against langchain-core 1.7, langgraph 1.2 and langgraph-api 0.16. Five inputs are recognised
//! automatically:
//!
//! * native events (`astream_events` version 2) as JSON lines, flat or in the `lc` envelope of `dumpd`;
//! * LangGraph Server's SSE with any combination of stream modes, with and without nested graphs;
//! * tuples of `graph.astream(stream_mode=[…])`;
//! * the server's protocol v2.
//!
//! A native stream may end without an outcome. The caller may then append the server's responses as frames named
//! `state` (`/threads/{id}/state`) and `run` (`/threads/{id}/runs/{id}`).
//!
//! Lost in translation: prompts, parsers and retrievers (unless `raw=on`), internal chains, message members for
//! the provider only (log probabilities, safety ratings; `artifact`s are kept), and the interleaving of two
//! messages that protocol v2 streams in one namespace.

pub mod input;
mod namespace;
mod options;
mod raw_json;
mod reader;
mod wire;

#[cfg(test)]
mod tests;

pub(super) use self::reader::new_interrupt;
use self::{
    options::OPTIONS,
    reader::{LangGraphReader, is_earlier_id},
};
pub use self::{
    reader::thread_state,
    wire::{EventName, ProtocolMethod, StreamMode},
};
use super::Format;
use crate::framing::Framing;

/// The registry entry.
pub static FORMAT: Format = Format {
    name: "langgraph",
    about: "LangChain and LangGraph: native events, server streams, mode tuples",
    reads: &[Framing::Lines, Framing::Sse, Framing::Array],
    profiles: &[],
    ordered: false,
    options: OPTIONS,
    reader: Some(|setup| Box::new(LangGraphReader::new(setup))),
    writer: None,
    derives_snapshots: true,
    is_earlier_id: Some(is_earlier_id),
    ..Format::EMPTY
};
