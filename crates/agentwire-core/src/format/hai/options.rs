//! The options of HAI (`-O key=value`) and their parsed form.

use super::wire::MESSAGES_SNAPSHOT;
use crate::format::{OptionSpec, Options, WHOLE_NUMBER};

pub(crate) const OPTIONS: &[OptionSpec] = &[
    OptionSpec {
        name: "message_ids",
        values: &["per-message", "per-run"],
        about: "writing: one id per message, or one for all messages of a run",
    },
    OptionSpec {
        name: "tool_args",
        values: &["stream", "whole"],
        about: "writing: arguments in pieces as they arrive, or as a whole before the call ends",
    },
    OptionSpec {
        name: "tool_display",
        values: &["events", "show", "both"],
        about: "writing: back-end tools as events, as outputs `toolCallShow`, or both",
    },
    OptionSpec {
        name: "snapshot_name",
        values: &["MESSAGE_SNAPSHOT", "MESSAGES_SNAPSHOT"],
        about: "writing: name of the snapshot of all messages",
    },
    OptionSpec {
        name: "include_developer",
        values: &["no", "yes"],
        about: "writing: whether clients receive developer messages",
    },
    OptionSpec {
        name: "order",
        values: &["interleaved", "serial"],
        about: "writing: whether other events wait until an open message or call ends, for old clients",
    },
    OptionSpec {
        name: "hitl_tool",
        values: &[],
        about: "writing: the front-end tool that represents an interrupt (default `confirmAction`)",
    },
    OptionSpec {
        name: "events",
        values: &["derived", "wire"],
        about: "reading: messages split into text, reasoning and blocks, or in the order of the wire (for checks)",
    },
    OptionSpec {
        name: "stamp",
        values: &[WHOLE_NUMBER],
        about: "writing: time of events in milliseconds since the epoch, until the source provides one",
    },
];

/// The parsed form of [`OPTIONS`].
#[derive(Clone, Debug)]
pub(crate) struct HaiOptions {
    /// All messages of a run share one id.
    pub(crate) shared_message_id: bool,
    /// Tool call arguments are buffered and written once, before the call ends.
    pub(crate) whole_arguments: bool,
    pub(crate) tool_display: ToolDisplay,
    /// The event type of message snapshots.
    pub(crate) snapshot_name: &'static str,
    /// Nothing is written inside an open message or call but its own events.
    pub(crate) is_serial: bool,
    /// Clients get developer messages.
    pub(crate) include_developer: bool,
    /// The front-end tool that represents an interrupt.
    pub(crate) interrupt_tool: String,
    /// The timestamp of events until the source provides one.
    pub(crate) stamp: Option<i64>,
}

/// The presentation of back-end tool calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ToolDisplay {
    /// TOOL_CALL_* events.
    Events,
    /// `toolCallShow` outputs.
    Show,
    /// Both.
    Both,
}

impl From<&Options> for HaiOptions {
    fn from(options: &Options) -> Self {
        Self {
            shared_message_id: options.is("message_ids", "per-run"),
            whole_arguments: options.is("tool_args", "whole"),
            tool_display: match options.get("tool_display") {
                Some("show") => ToolDisplay::Show,
                Some("both") => ToolDisplay::Both,
                _ => ToolDisplay::Events,
            },
            snapshot_name: if options.is("snapshot_name", MESSAGES_SNAPSHOT) {
                MESSAGES_SNAPSHOT
            } else {
                "MESSAGE_SNAPSHOT"
            },
            is_serial: options.is("order", "serial"),
            include_developer: options.is("include_developer", "yes"),
            interrupt_tool: options.get("hitl_tool").unwrap_or("confirmAction").to_owned(),
            stamp: options.get("stamp").and_then(|stamp| stamp.parse().ok()),
        }
    }
}
