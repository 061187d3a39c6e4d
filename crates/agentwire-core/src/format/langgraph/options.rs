//! The options of `-O key=value`.

use super::namespace::node_of;
use crate::format::{OptionSpec, Options, WHOLE_NUMBER};

/// The options of this format.
pub(super) const OPTIONS: &[OptionSpec] = &[
    OptionSpec {
        name: "thinking",
        values: &["off", "chains"],
        about: "`chains` shows every chain as a reasoning block titled by its name",
    },
    OptionSpec {
        name: "steps",
        values: &["nodes", "tools", "none"],
        about: "a step per node, per node that uses tools, or none",
    },
    OptionSpec {
        name: "custom",
        values: &["all", "marker-only"],
        about: "whether custom events without the `agent_custom_event` marker are passed on",
    },
    OptionSpec {
        name: "reasoning",
        values: &["auto", "manual"],
        about: "reasoning of models, or only the reasoning that the graph emits itself",
    },
    OptionSpec {
        name: "tool_result",
        values: &["plain", "json"],
        about: "`json` writes results that are strings as JSON strings too",
    },
    OptionSpec { name: "raw", values: &["off", "on"], about: "attaches the native events" },
    OptionSpec {
        name: "metadata",
        values: &["run", "on", "off"],
        about: "`run` adds the name and metadata of the graph to the run, `on` also those of the nodes to their steps",
    },
    OptionSpec { name: "hide_nodes", values: &[], about: "hidden nodes, separated by commas" },
    OptionSpec {
        name: "hide_tags",
        values: &[],
        about: "tags of hidden models, tools and nodes, separated by commas",
    },
    OptionSpec {
        name: "interrupts",
        values: &["outcome", "legacy", "both"],
        about: "interrupts as the run's outcome, as CUSTOM `on_interrupt`, or both",
    },
    OptionSpec { name: "subagents", values: &["off", "on"], about: "shows nested graphs as subagents" },
    OptionSpec {
        name: "ids",
        values: &["source", "given"],
        about: "`given` keeps the thread and run ids of the request instead of the server's",
    },
    OptionSpec {
        name: "modes",
        values: &[],
        about: "`server`: the stream modes `messages-tuple`, `values`, `updates`, `custom`, `tasks`, `events`, `messages`; the first four if absent",
    },
    OptionSpec {
        name: "channels",
        values: &[],
        about: "`protocol`: the written channels, separated by commas; all if absent",
    },
    OptionSpec {
        name: "namespaces",
        values: &[],
        about: "`protocol`: prefixes of the written namespaces, a JSON list of lists",
    },
    OptionSpec { name: "depth", values: &[WHOLE_NUMBER], about: "`protocol`: levels below these prefixes" },
    OptionSpec {
        name: "first_seq",
        values: &[WHOLE_NUMBER],
        about: "`protocol`: the number of the last event before the run; the numbers are then the SSE ids",
    },
    OptionSpec {
        name: "since",
        values: &[WHOLE_NUMBER],
        about: "`protocol`: events up to this number are not written",
    },
    OptionSpec { name: "id_mark", values: &[], about: "`protocol`: a mark in the ids of the events" },
    OptionSpec { name: "graph_name", values: &[], about: "`protocol`: the name of the graph" },
    OptionSpec {
        name: "checkpoint",
        values: &[],
        about: "`protocol`: the checkpoint of the values before the end, as JSON",
    },
    OptionSpec {
        name: "end_checkpoint",
        values: &[],
        about: "`protocol`: the checkpoint of the values at the end, as JSON",
    },
];

/// The parsed options.
#[derive(Clone, Debug)]
pub(super) struct ReaderOptions {
    pub(super) thinking_chains: bool,
    pub(super) steps: StepMode,
    pub(super) marker_only: bool,
    pub(super) manual_reasoning: bool,
    pub(super) json_results: bool,
    pub(super) raw: bool,
    /// The run has the name and metadata of the graph.
    pub(super) run_metadata: bool,
    /// Steps have the names, run ids and metadata of their nodes.
    pub(super) step_metadata: bool,
    pub(super) hide_nodes: Vec<Box<str>>,
    pub(super) hide_tags: Vec<Box<str>>,
    /// Interrupts are the outcome of the run.
    pub(super) interrupt_outcome: bool,
    /// Interrupts are CUSTOM `on_interrupt` events.
    pub(super) interrupt_events: bool,
    pub(super) subagents: bool,
    pub(super) given_ids: bool,
}

/// The nodes that become steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StepMode {
    Nodes,
    Tools,
    None,
}

impl ReaderOptions {
    pub(super) fn new(options: &Options) -> Self {
        let list = |name: &str| -> Vec<Box<str>> {
            let text = options.get(name).unwrap_or_default();
            text.split(',').map(str::trim).filter(|part| !part.is_empty()).map(Into::into).collect()
        };
        Self {
            thinking_chains: options.is("thinking", "chains"),
            steps: match options.get("steps") {
                Some("tools") => StepMode::Tools,
                Some("none") => StepMode::None,
                _ => StepMode::Nodes,
            },
            marker_only: options.is("custom", "marker-only"),
            manual_reasoning: options.is("reasoning", "manual"),
            json_results: options.is("tool_result", "json"),
            raw: options.is("raw", "on"),
            run_metadata: !options.is("metadata", "off"),
            step_metadata: options.is("metadata", "on"),
            hide_nodes: list("hide_nodes"),
            hide_tags: list("hide_tags"),
            interrupt_outcome: !options.is("interrupts", "legacy"),
            interrupt_events: options.is("interrupts", "legacy") || options.is("interrupts", "both"),
            subagents: options.is("subagents", "on"),
            given_ids: options.is("ids", "given"),
        }
    }

    /// Whether `node` at the namespace `ns` (`outer:ID|inner:ID`), or a node around it, is hidden.
    pub(super) fn hides_node(&self, ns: &str, node: &str) -> bool {
        !self.hide_nodes.is_empty()
            && self
                .hide_nodes
                .iter()
                .any(|hidden| **hidden == *node || ns.split('|').any(|segment| node_of(segment) == &**hidden))
    }

    /// Whether a runnable with these tags is hidden.
    pub(super) fn hides_tags<T: AsRef<str>>(&self, tags: &[T]) -> bool {
        self.hide_tags.iter().any(|hidden| tags.iter().any(|tag| tag.as_ref() == &**hidden))
    }
}
