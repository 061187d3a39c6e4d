//! OpenAI chat completions, from OpenAI and from compatible servers.
//!
//! Follows the public API reference of 2025 (`POST /v1/chat/completions`, streamed chunks and whole responses) and the
//! published extensions of Azure OpenAI, OpenRouter, vLLM, DeepSeek, Mistral, Groq, Perplexity and xAI. Accepted
//! inputs: SSE, JSON lines of chunks or whole responses, and one JSON document. [`input`] is the other direction: the
//! body of a request.
//!
//! A response becomes one assistant message with the id of the response; ids of reasoning, refusals and files derive
//! from it. Chat completions run no tools: the run ends with the calls of declared tools pending.
//!
//! Lost in translation: log probabilities, fingerprints, service tiers, results of content filters.

pub mod input;
mod options;
mod reader;
mod wire;

#[cfg(test)]
mod tests;

use self::{
    options::{OPTIONS, OpenAiReaderOptions},
    reader::OpenAiReader,
};
use super::Format;
use crate::framing::Framing;

/// The format's entry in the registry.
pub static FORMAT: Format = Format {
    name: "openai",
    about: "OpenAI-compatible chat completions: streams and whole answers",
    reads: &[Framing::Sse, Framing::Lines, Framing::Array],
    profiles: &[],
    ordered: false,
    options: OPTIONS,
    reader: Some(|setup| Box::new(OpenAiReader::new(OpenAiReaderOptions::of(setup)))),
    writer: None,
    // Some servers report a rejected request as an error object in the body where others send an error status.
    early_error_is_refusal: true,
    ..Format::EMPTY
};
