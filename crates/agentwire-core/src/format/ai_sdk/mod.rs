//! The stream protocols of the Vercel AI SDK: what `useChat` of versions 4 to 7 reads and sends.
//!
//! There are three wires. The *UI message stream* (`@5`, `@6`, `@7`) is SSE with one JSON chunk per frame, the
//! *data stream* (`@4`) is one `code:json` line per part, the *text stream* (`@text`) is bare text. A fourth one,
//! `@langchain-adapter`, looks like the data stream but gives the letters other meanings. ReceivedMetadata were read from the
//! published packages `ai` 4.3.19, 5.0.0 to 5.0.277, 6.0.0 to 6.0.326, 7.0.0 to 7.0.169, and tried with them.
//!
//! A response of the SDK builds **one** assistant message. Where a run has several messages, their ids travel
//! in the provider metadata of the parts (`providerMetadata.agentwire.messageId`), from where a client sends
//! them back with its history. What the SDK has no part for travels as data parts (`data-state`,
//! `data-activity`, `data-step`, `data-interrupt`, `data-subagent`, `data-block`, …, see `wire.rs`), and the reader
//! restores it from there. The other way round, what only the SDK has a place for travels in `metadata.aiSdk`.
//!
//! Lost in translation: timestamps and `rawEvent`; the message ids of tool results; state and activity patches
//! (the whole value is sent again, in place); the content of a failed tool beside its error; restated history
//! (MESSAGES_SNAPSHOT), of which only what was not yet said is kept. The data stream also loses who said what
//! when agents speak in parallel (they speak one after the other), and metadata of messages; the text stream
//! loses everything but text.

pub mod input;
mod options;
mod reader;
mod wire;
mod writer;

#[cfg(test)]
mod tests;

use super::{Format, Profile};
use crate::framing::Framing;

/// What every answer of the UI message stream carries.
const UI_HEADERS: &[(&str, &str)] = &[("x-vercel-ai-ui-message-stream", "v1")];

/// The format's entry in the registry.
pub static FORMAT: Format = Format {
    name: "ai-sdk",
    about: "Vercel AI SDK: UI message stream, data stream, text stream",
    reads: &[Framing::Sse, Framing::Coded, Framing::Lines],
    profiles: &[
        Profile {
            name: "5",
            about: "UI message stream, fields of 5.0.0: every client of 5, 6 and 7",
            framing: Framing::Sse,
            content_type: "text/event-stream",
            headers: UI_HEADERS,
            asks: &[],
        },
        Profile {
            name: "6",
            about: "UI message stream, fields of 6.0.0: adds approvals",
            framing: Framing::Sse,
            content_type: "text/event-stream",
            headers: UI_HEADERS,
            asks: &[],
        },
        Profile {
            name: "7",
            about: "UI message stream, fields of 7.0.0: adds provider parts",
            framing: Framing::Sse,
            content_type: "text/event-stream",
            headers: UI_HEADERS,
            asks: &[],
        },
        Profile {
            name: "4",
            about: "data stream v1",
            framing: Framing::Coded,
            content_type: "text/plain; charset=utf-8",
            headers: &[("x-vercel-ai-data-stream", "v1")],
            asks: &[],
        },
        Profile {
            name: "langchain-adapter",
            about: "letter dialect of the LangChain adapter's mapping; no official client reads it",
            framing: Framing::Coded,
            content_type: "text/plain; charset=utf-8",
            headers: &[],
            // Its payloads are those of LangChain's events, names and run ids included.
            asks: &[("metadata", "on")],
        },
        Profile {
            name: "text",
            about: "text stream: the assistant's text and nothing else",
            framing: Framing::Text,
            content_type: "text/plain; charset=utf-8",
            headers: &[],
            asks: &[],
        },
    ],
    ordered: false,
    options: options::OPTIONS,
    reader: Some(|setup| Box::new(reader::AiSdkReader::new(setup))),
    writer: Some(writer::new),
    ..Format::EMPTY
};
