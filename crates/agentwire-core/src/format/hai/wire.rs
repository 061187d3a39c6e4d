//! HAI's own words.

/// The 20 events of the standard, each with its number in the binary form.
pub(crate) const EVENTS: [(&str, u64); 20] = [
    ("RUN_STARTED", 1),
    ("RUN_FINISHED", 2),
    ("RUN_ERROR", 3),
    ("STEP_STARTED", 4),
    ("STEP_FINISHED", 5),
    ("BUSINESS_DATA_START", 6),
    ("BUSINESS_DATA_CONTENT", 7),
    ("BUSINESS_DATA_END", 8),
    ("AGENT_COLLABORATIVE_MESSAGE_START", 9),
    ("AGENT_COLLABORATIVE_MESSAGE_CONTENT", 10),
    ("AGENT_COLLABORATIVE_MESSAGE_END", 11),
    ("TOOL_CALL_START", 12),
    ("TOOL_CALL_ARGS", 13),
    ("TOOL_CALL_END", 14),
    ("TOOL_CALL_RESULT", 15),
    ("STATE_SNAPSHOT", 16),
    ("STATE_DELTA", 17),
    ("MESSAGE_SNAPSHOT", 18),
    ("RAW", 19),
    ("CUSTOM", 20),
];

/// AG-UI's name for MESSAGE_SNAPSHOT, and the one that the standard's prose uses.
pub(crate) const MESSAGES_SNAPSHOT: &str = "MESSAGES_SNAPSHOT";

/// The member of an event or message that says which AG-UI event it stands for, where HAI's own members do
/// not say it all. Clients ignore it; the reader restores the very same event from it.
pub(crate) const AGUI: &str = "agui";

/// The member of [`AGUI`] by which a frame is for HAI clients only: the reader passes over it.
pub(crate) const SKIP: &str = "skip";

/// The key of an event's metadata under which the members live that only HAI has.
pub(crate) const HAI: &str = "hai";

/// The CUSTOM event that carries an output in profile `@text`.
pub(crate) const OUTPUT: &str = "hai.output";

/// The `source` of a RAW event that holds a HAI event of an unknown type.
pub(crate) const SOURCE: &str = "hai";

/// The role of a message unless it says otherwise.
pub(crate) const ASSISTANT: &str = "assistant";
