//! OpenAI's chat completions, as OpenAI and the many servers that imitate it send them.
//!
//! After the public API reference of 2025 (`POST /v1/chat/completions`, chunks and whole answers) and the
//! published additions of Azure OpenAI, OpenRouter, vLLM, DeepSeek, Mistral, Groq, Perplexity and xAI. Read as
//! SSE, as JSON lines of chunks or answers, and as one JSON document. [`input`] is the other direction: the body
//! of a request.
//!
//! A response is one assistant message, with the response's id; thoughts, refusals and files have ids that derive
//! from it. A model runs no tools: calls of tools that the request declared are what the run waits for at its end.
//!
//! Lost in translation: log probabilities, fingerprints, service tiers, the results of content filters.

mod call;
mod choice;
mod details;
mod extras;
mod failure;
pub mod input;
mod reader;
mod wire;

#[cfg(test)]
mod tests;

use std::collections::HashSet;

use self::reader::OpenAiReader;
use super::{Format, OptionSpec, Setup};
use crate::{
    event::{RunId, ThreadId},
    framing::Framing,
};

const OPTIONS: &[OptionSpec] = &[
    OptionSpec {
        name: "cut_off",
        values: &["reason", "error"],
        about: "reading: whether an answer that ended with `length` or `content_filter` fails the run",
    },
    OptionSpec {
        name: "choices",
        values: &["all", "first"],
        about: "reading: whether further choices are passed on, each as a message of its own",
    },
];

/// The format's entry in the registry.
pub static FORMAT: Format = Format {
    name: "openai",
    about: "OpenAI-compatible chat completions: streams and whole answers",
    reads: &[Framing::Sse, Framing::Lines, Framing::Array],
    profiles: &[],
    ordered: false,
    options: OPTIONS,
    reader: Some(|setup| Box::new(OpenAiReader::new(Settings::of(setup)))),
    writer: None,
};

/// What a reader is told.
#[derive(Debug)]
struct Settings {
    thread: ThreadId,
    run: RunId,
    /// Tools that the request declared.
    tools: HashSet<Box<str>>,
    /// Ids that the conversation has already: servers repeat theirs.
    taken: HashSet<Box<str>>,
    cut_off_fails: bool,
    first_choice_only: bool,
}

impl Settings {
    fn of(setup: &Setup<'_>) -> Self {
        let Setup { thread, run, options } = setup;
        let input = options.request();
        let messages = || input.iter().flat_map(|input| &input.messages);
        let calls = messages().flat_map(|message| message.tool_calls()).map(|call| call.id.as_str().into());
        Self {
            thread: thread.clone(),
            run: run.clone(),
            tools: input.iter().flat_map(|input| &input.tools).map(|tool| tool.name.clone()).collect(),
            taken: messages().map(|message| message.id.as_str().into()).chain(calls).collect(),
            cut_off_fails: options.is("cut_off", "error"),
            first_choice_only: options.is("choices", "first"),
        }
    }
}
