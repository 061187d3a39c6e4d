//! Options of the ADK reader: the `-O` keys and their parsed form.

use std::collections::HashSet;

use crate::{
    event::{Message, RunId, ThreadId},
    format::{OptionSpec, Options, Setup},
    json::Object,
};

/// The keys of `-O`.
pub(super) const OPTIONS: &[OptionSpec] = &[
    OptionSpec {
        name: "provisional",
        values: &["custom", "result"],
        about: "reading: form of a provisional tool result: CUSTOM `adk.provisional_result`, or a flagged result",
    },
    OptionSpec {
        name: "long_running",
        values: &["continue", "return"],
        about: "reading: whether a run continues after the call of a long-running tool, or ends at the call",
    },
    OptionSpec {
        name: "max_tokens",
        values: &["error", "warning"],
        about: "reading: whether a response that reached its token limit fails the run",
    },
    OptionSpec {
        name: "snapshot",
        values: &["known", "always", "never"],
        about: "reading: when the run ends with STATE_SNAPSHOT (known: if the stream or the request contained state)",
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
        about: "reading: whether the native event is attached as `rawEvent`",
    },
];

/// The parsed options of a reader, with the data of the run request.
#[derive(Debug)]
pub(super) struct AdkReaderOptions {
    pub(super) thread: ThreadId,
    pub(super) run: RunId,
    /// The conversation before the run, if the request is known.
    pub(super) history: Vec<Message>,
    /// The state before the run, if the request is known.
    pub(super) state: Option<Object>,
    /// Names of the front-end tools.
    pub(super) frontend_tools: HashSet<Box<str>>,
    pub(super) provisional_results: bool,
    /// True if the run ends at the first pending call.
    pub(super) returns_at_pending_call: bool,
    pub(super) max_tokens_is_warning: bool,
    pub(super) final_snapshot: FinalSnapshot,
    pub(super) show_temp: bool,
    pub(super) subagents: bool,
    pub(super) attach_raw: bool,
}

/// When a run ends with a snapshot of the state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FinalSnapshot {
    /// If the stream or the request contained state.
    Known,
    Always,
    Never,
}

impl AdkReaderOptions {
    pub(super) fn of(setup: &Setup<'_>) -> Self {
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
            returns_at_pending_call: options.is("long_running", "return"),
            max_tokens_is_warning: options.is("max_tokens", "warning"),
            final_snapshot: match options.get("snapshot") {
                Some("always") => FinalSnapshot::Always,
                Some("never") => FinalSnapshot::Never,
                _ => FinalSnapshot::Known,
            },
            show_temp: options.is("temp", "show"),
            subagents: options.is("subagents", "on"),
            attach_raw: options.is("raw", "attach"),
        }
    }

    /// Options to read a stored session outside of any run.
    pub(super) fn of_stored_session() -> Self {
        let (thread, run) = (ThreadId::from(""), RunId::from(""));
        Self::of(&Setup { thread, run, options: &Options::default() })
    }
}
