//! Anthropic Messages, from Anthropic and from compatible servers.
//!
//! Follows the public API reference of 2026 (`POST /v1/messages`, versions 2023-06-01 and 2026-10-21, streams and whole messages).
//! Accepted inputs: SSE, JSON lines of events or whole messages, and one JSON document. [`input`] is the other
//! direction: the body of a request.
//!
//! The blocks of a response become messages in the order of the blocks: a message holds text and the calls after it;
//! thinking, and text after a call, begin the next one. Thinking with its signature, redacted thinking, and the calls and
//! results of server tools are kept as encrypted values, from which [`input`] restores them in the next turn. Tools of
//! the request are run by the client: the run ends with their calls pending.
//!
//! Lost in translation: the container of code execution, the tier and place of the inference, the stop sequence, and the
//! citations of earlier turns in a request.

pub mod input;
mod options;
mod reader;
mod wire;

#[cfg(test)]
mod tests;

use self::{options::OPTIONS, reader::AnthropicReader};
use super::Format;
use crate::framing::Framing;

/// The format's entry in the registry.
pub static FORMAT: Format = Format {
    name: "anthropic",
    about: "Anthropic Messages: streams and whole answers",
    reads: &[Framing::Sse, Framing::Lines, Framing::Array],
    options: OPTIONS,
    reader: Some(|setup| Box::new(AnthropicReader::new(setup))),
    // An overloaded server reports it as an event of a stream with status 200.
    early_error_is_refusal: true,
    ..Format::EMPTY
};
