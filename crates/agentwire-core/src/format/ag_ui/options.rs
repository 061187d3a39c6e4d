//! The options of AG-UI (`-O key=value`) and their parsed form.

use crate::format::{OptionSpec, Options};

pub(crate) const OPTIONS: &[OptionSpec] = &[
    OptionSpec {
        name: "old_shapes",
        values: &["accept", "refuse"],
        about: "reading: whether forms that the official client 1.0.0 refuses are accepted",
    },
    OptionSpec {
        name: "langgraph_custom",
        values: &["translate", "keep"],
        about: "reading: whether CUSTOM events that ag-ui-langgraph passes on (`agent_custom_event`, `manually_emit_*`) are translated",
    },
    OptionSpec {
        name: "on_interrupt",
        values: &["interrupt", "custom"],
        about: "reading: whether CUSTOM `on_interrupt` before an end without an outcome is an interrupt or stays CUSTOM",
    },
];

/// The parsed form of [`OPTIONS`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct AgUiOptions {
    /// Rejects every shape that the official client 1.0.0 rejects.
    pub(crate) refuse_old_shapes: bool,
    /// Leaves CUSTOM events of `ag-ui-langgraph` as they are.
    pub(crate) keep_langgraph_custom: bool,
    /// CUSTOM `on_interrupt` stays a CUSTOM event.
    pub(crate) keep_legacy_interrupts: bool,
}

impl From<&Options> for AgUiOptions {
    fn from(options: &Options) -> Self {
        Self {
            refuse_old_shapes: options.is("old_shapes", "refuse"),
            keep_langgraph_custom: options.is("langgraph_custom", "keep"),
            keep_legacy_interrupts: options.is("on_interrupt", "custom"),
        }
    }
}
