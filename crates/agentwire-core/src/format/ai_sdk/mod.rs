//! Vercel AI SDK: the stream protocols and request bodies of `useChat`, versions 4 to 7.
//!
//! There are three protocols. The *UI message stream* (`@5`, `@6`, `@7`) is SSE with one JSON chunk per frame, the *data
//! stream* (`@4`) is one `code:json` line per part, the *text stream* (`@text`) is plain text. A fourth profile,
//! `@langchain-adapter`, looks like the data stream but its codes have other meanings. The facts come from the published
//! packages `ai` 4.3.19, 5.0.0 to 5.0.277, 6.0.0 to 6.0.326 and 7.0.0 to 7.0.169, and were tested with them.
//!
//! A response of the SDK builds **one** assistant message. If a run has several messages, the provider metadata of the parts
//! contains their ids (`providerMetadata.agentwire.messageId`), and clients send it back with the history. Events without a
//! native part are written as data parts (`data-state`, `data-activity`, `data-step`, `data-interrupt`, `data-subagent`,
//! `data-block`, …, see `wire.rs`), from which the reader restores them. In the opposite direction, values that only the SDK
//! has are stored in `metadata.aiSdk`.
//!
//! Lost in translation: timestamps and `rawEvent`; the message ids of tool results; state and activity patches (each change
//! sends the whole value); the content of a failed tool beside its error; restated history (MESSAGES_SNAPSHOT), of which only
//! new messages are kept. The data stream also loses message metadata and the speaker of parallel messages (they are written
//! one after the other); the text stream loses everything except text.

mod client_message;
pub mod input;
mod options;
mod reader;
mod wire;
mod writer;

#[cfg(test)]
mod tests;

pub use self::client_message::ClientMessage;
use super::{Format, Profile};
use crate::framing::Framing;

/// Response headers of the UI message stream.
const UI_HEADERS: &[(&str, &str)] = &[("x-vercel-ai-ui-message-stream", "v1")];

/// Registry entry of the format.
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
            // Its payloads contain the names and run ids of LangChain's events.
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
    options_are_for_writing: true,
    reader: Some(|setup| Box::new(reader::AiSdkReader::new(setup))),
    writer: Some(writer::new),
    ..Format::EMPTY
};
