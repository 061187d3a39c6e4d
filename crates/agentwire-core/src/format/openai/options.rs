//! Options of the chat completions reader: the `-O` keys and their parsed form.

use std::collections::HashSet;

use crate::{
    event::{RunId, ThreadId},
    format::{OptionSpec, Setup},
};

/// The keys of `-O`.
pub(super) const OPTIONS: &[OptionSpec] = &[
    OptionSpec {
        name: "cut_off",
        values: &["reason", "error"],
        about: "reading: whether a response that ended with `length` or `content_filter` fails the run",
    },
    OptionSpec {
        name: "choices",
        values: &["all", "first"],
        about: "reading: whether further choices are passed on, each as its own message",
    },
];

/// The parsed options of a reader, with the data of the run request.
#[derive(Debug)]
pub(super) struct OpenAiReaderOptions {
    pub(super) thread: ThreadId,
    pub(super) run: RunId,
    /// Names of the tools that the request declared.
    pub(super) tools: HashSet<Box<str>>,
    /// Message and call ids in the conversation; servers reuse ids.
    pub(super) used_ids: HashSet<Box<str>>,
    pub(super) cut_off_fails: bool,
    pub(super) first_choice_only: bool,
}

impl OpenAiReaderOptions {
    pub(super) fn of(setup: &Setup<'_>) -> Self {
        let Setup { thread, run, options } = setup;
        let input = options.request();
        let messages = || input.iter().flat_map(|input| &input.messages);
        let calls = messages().flat_map(|message| message.tool_calls()).map(|call| call.id.as_str().into());
        Self {
            thread: thread.clone(),
            run: run.clone(),
            tools: input.iter().flat_map(|input| &input.tools).map(|tool| tool.name.clone()).collect(),
            used_ids: messages().map(|message| message.id.as_str().into()).chain(calls).collect(),
            cut_off_fails: options.is("cut_off", "error"),
            first_choice_only: options.is("choices", "first"),
        }
    }
}
