//! OpenAI Responses, from OpenAI and from compatible servers.
//!
//! Follows the public API reference of 2026 (`POST /v1/responses`, streams and whole responses). Accepted inputs: SSE,
//! JSON lines of events or whole responses, and one JSON document. [`input`] is the other direction: the body of a
//! request.
//!
//! Each item of the output has its own message or call. Tools of the request are run by the client: the run ends with
//! their calls pending. Tools of the server (web search, file search, code interpreter, image generation, MCP) are calls
//! with results; a request to approve one is an interrupt. Reasoning with encrypted content and the items of server tools
//! are kept as encrypted values, from which [`input`] restores them in the next turn.
//!
//! Lost in translation: log probabilities, partial images, sound, service tiers, results of moderation.

pub mod input;
mod options;
mod reader;
mod wire;

#[cfg(test)]
mod tests;

use self::{options::OPTIONS, reader::ResponsesReader};
use super::Format;
use crate::framing::Framing;

/// The format's entry in the registry.
pub static FORMAT: Format = Format {
    name: "openai-responses",
    about: "OpenAI Responses: streams and whole answers",
    reads: &[Framing::Sse, Framing::Lines, Framing::Array],
    options: OPTIONS,
    reader: Some(|setup| Box::new(ResponsesReader::new(setup))),
    // Some servers report a rejected request as an error object in the body where others send an error status.
    early_error_is_refusal: true,
    ..Format::EMPTY
};
