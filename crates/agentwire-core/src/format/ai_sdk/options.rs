//! Options of `-O` for the AI SDK writers and their parsed form.

use std::collections::HashSet;

use crate::format::{OptionSpec, Options};

/// Options of the format.
pub(super) const OPTIONS: &[OptionSpec] = &[
    OptionSpec {
        name: "ui_tools",
        values: &[],
        about: "writing: tools that the user interface knows (`tool-NAME` parts): none, all, or NAME,NAME",
    },
    OptionSpec {
        name: "message",
        values: &[],
        about: "writing: the id of the assistant message; by default that of the continued message, of the source, or of the run",
    },
    OptionSpec {
        name: "finish_reason",
        values: &["metadata", "field"],
        about: "writing: `metadata` writes the finish reason into the metadata of `finish` only (@5), `field` also into its own field (@6, @7)",
    },
    OptionSpec {
        name: "reasoning",
        values: &["auto", "manual"],
        about: "writing: `manual` omits the reasoning of models (the default of @langchain-adapter)",
    },
    OptionSpec {
        name: "steps",
        values: &["nodes", "tools"],
        about: "writing: `tools` shows only steps that use tools",
    },
];

/// Parsed options of a writer.
#[derive(Debug)]
pub(super) struct WriterOptions {
    pub(super) ui_tools: UiTools,
    /// Requested id of the assistant message.
    pub(super) message_id: Option<Box<str>>,
    /// The client holds nothing of a message that the response continues.
    pub(super) whole_message: bool,
    /// `finish` has a `finishReason` field; `None` if the profile decides.
    pub(super) has_reason_field: Option<bool>,
    /// Reasoning is written; `None` if the profile decides.
    pub(super) reasoning: Option<bool>,
    /// Only steps that use tools are written.
    pub(super) steps_for_tools: bool,
}

/// Tools that the user interface declares.
#[derive(Debug, Default)]
pub(super) struct UiTools {
    pub(super) all: bool,
    pub(super) names: HashSet<Box<str>>,
}

impl WriterOptions {
    pub(super) fn new(options: &Options) -> Self {
        let ui_tools = match options.get("ui_tools") {
            Some("all") => UiTools { all: true, names: HashSet::new() },
            None | Some("none" | "") => UiTools::default(),
            Some(list) => {
                UiTools { all: false, names: list.split(',').map(|name| name.trim().into()).collect() }
            }
        };
        Self {
            ui_tools,
            message_id: options.get("message").map(Into::into),
            whole_message: options.whole_message(),
            has_reason_field: options.get("finish_reason").map(|choice| choice == "field"),
            reasoning: options.get("reasoning").map(|choice| choice == "auto"),
            steps_for_tools: options.is("steps", "tools"),
        }
    }
}

impl UiTools {
    pub(super) fn contains(&self, name: &str) -> bool {
        self.all || self.names.contains(name)
    }
}
