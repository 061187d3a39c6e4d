//! LangGraph and LangChain: every stream that they produce, and the SSE of LangGraph Server for their front ends.
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
mod server_form;
mod wire;
mod writer;

#[cfg(test)]
mod tests;

pub(super) use self::reader::new_interrupt;
use self::{
    options::OPTIONS,
    reader::{LangGraphReader, is_earlier_id},
    writer::{LangGraphWriter, ProtocolWriter},
};
pub use self::{
    reader::thread_state,
    server_form::{server_interrupt, server_messages, server_values},
    wire::{EventName, ProtocolMethod, StreamMode},
};
use super::{Format, Profile};
use crate::framing::Framing;

/// The profile of protocol v2.
pub const PROTOCOL: &str = "protocol";

/// The registry entry.
pub static FORMAT: Format = Format {
    name: "langgraph",
    about: "LangChain and LangGraph: native events, server streams, mode tuples",
    reads: &[Framing::Lines, Framing::Sse, Framing::Array],
    profiles: &[
        Profile {
            name: "server",
            about: "the SSE of LangGraph Server",
            framing: Framing::Sse,
            content_type: "text/event-stream",
            headers: &[],
            asks: &[],
        },
        Profile {
            name: PROTOCOL,
            about: "protocol v2 of LangGraph Server",
            framing: Framing::Sse,
            content_type: "text/event-stream",
            headers: &[],
            asks: &[],
        },
    ],
    ordered: false,
    options: OPTIONS,
    reader: Some(|setup| Box::new(LangGraphReader::new(setup))),
    writer: Some(|profile, setup| match profile.name {
        PROTOCOL => Box::new(ProtocolWriter::new(setup)),
        _ => Box::new(LangGraphWriter::new(setup)),
    }),
    derives_snapshots: true,
    is_earlier_id: Some(is_earlier_id),
    ..Format::EMPTY
};
