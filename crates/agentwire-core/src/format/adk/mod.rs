//! Google ADK (Agent Development Kit): the events of its runner and of its API server.
//!
//! Checked against `google-adk` 2.13.0 and 1.39.1. Read as JSON lines of events, as the SSE body of `/run_sse`,
//! as the JSON array of `/run`, and as a stored session (`GET …/sessions/{id}`), which becomes a snapshot of its
//! messages and state. [`input`] is the other direction: requests to the API server.
//!
//! ADK streams a turn in pieces and then sends it once more whole. The whole is compared with the pieces, per
//! invocation, branch and author: what is new is passed on, what is there already is not said twice, and what
//! differs is corrected by a snapshot of the messages. Releases 1.x and 2.x differ in their ids, so no decision
//! rests on them.
//!
//! Lost in translation: log probabilities, cache and live-session bookkeeping (`raw=attach` keeps them); the
//! numbers of runs in the names of workflow nodes, unless two run at once.

mod args;
pub mod artifact;
mod base64;
mod emit;
mod extras;
mod failure;
mod history;
pub mod input;
mod pending;
mod reader;
mod run;
mod state;
mod steps;
mod transcript;
mod turn;
mod wire;

#[cfg(test)]
mod tests;

use std::collections::HashSet;

use self::reader::AdkReader;
use super::{Format, OptionSpec, Setup};
use crate::{
    event::{Message, RunId, ThreadId},
    framing::Framing,
    json::Object,
};

const OPTIONS: &[OptionSpec] = &[
    OptionSpec {
        name: "provisional",
        values: &["custom", "result"],
        about: "reading: what an answer for the time being becomes (`adk.provisional_result`, or a result that is flagged)",
    },
    OptionSpec {
        name: "max_tokens",
        values: &["error", "warning"],
        about: "reading: whether an answer that was cut off at its token limit fails the run",
    },
    OptionSpec {
        name: "snapshot",
        values: &["known", "always", "never"],
        about: "reading: when the run ends with STATE_SNAPSHOT (known: if the stream or the request said anything about state)",
    },
    OptionSpec {
        name: "temp",
        values: &["hide", "show"],
        about: "reading: whether `temp:` keys of the state are passed on",
    },
    OptionSpec {
        name: "subagents",
        values: &["off", "on"],
        about: "reading: shows agents below the first one as subagents instead of steps",
    },
    OptionSpec {
        name: "raw",
        values: &["drop", "attach"],
        about: "reading: whether ADK's own event travels as `rawEvent`",
    },
];

/// The format's entry in the registry.
pub static FORMAT: Format = Format {
    name: "adk",
    about: "Google ADK events: runner, /run_sse, /run, stored sessions",
    reads: &[Framing::Sse, Framing::Lines, Framing::Array],
    profiles: &[],
    ordered: false,
    options: OPTIONS,
    reader: Some(|setup| Box::new(AdkReader::new(Settings::of(setup)))),
    writer: None,
};

/// What a reader is told.
#[derive(Debug)]
struct Settings {
    thread: ThreadId,
    run: RunId,
    /// The conversation before the run, where the request is known.
    history: Vec<Message>,
    /// The state before the run, where the request is known.
    state: Option<Object>,
    /// Tools that the user interface runs itself.
    frontend_tools: HashSet<Box<str>>,
    provisional_results: bool,
    max_tokens_is_warning: bool,
    snapshot: Snapshot,
    show_temp: bool,
    subagents: bool,
    attach_raw: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Snapshot {
    Known,
    Always,
    Never,
}

impl Settings {
    fn of(setup: &Setup<'_>) -> Self {
        let Setup { thread, run, options } = setup;
        let input = options.request();
        Self {
            thread: thread.clone(),
            run: run.clone(),
            history: input.map_or_else(Vec::new, |input| input.messages.clone()),
            state: input.and_then(|input| input.state.clone()?.into_object()),
            frontend_tools: input
                .iter()
                .flat_map(|input| &input.tools)
                .map(|tool| tool.name.clone())
                .collect(),
            provisional_results: options.is("provisional", "result"),
            max_tokens_is_warning: options.is("max_tokens", "warning"),
            snapshot: match options.get("snapshot") {
                Some("always") => Snapshot::Always,
                Some("never") => Snapshot::Never,
                _ => Snapshot::Known,
            },
            show_temp: options.is("temp", "show"),
            subagents: options.is("subagents", "on"),
            attach_raw: options.is("raw", "attach"),
        }
    }
}
