//! Names and keys of HAI.

/// The 20 event types of the standard, with their numbers in the binary form.
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

/// The AG-UI name of MESSAGE_SNAPSHOT, which the text of the standard uses too.
pub(crate) const MESSAGES_SNAPSHOT: &str = "MESSAGES_SNAPSHOT";

/// The member of an event or message that describes the AG-UI event it represents, where the members of HAI
/// are not sufficient. Clients ignore it; the reader restores the identical event from it.
pub(crate) const AGUI: &str = "agui";

/// The member of [`AGUI`] that marks a frame as meant for HAI clients only: the reader skips it.
pub(crate) const SKIP: &str = "skip";

/// The metadata key under which HAI-specific members are stored.
pub(crate) const HAI: &str = "hai";

/// The name of the CUSTOM event that carries an output in profile `@text`.
pub(crate) const OUTPUT: &str = "hai.output";

/// The `source` of a RAW event that contains a HAI event of an unknown type.
pub(crate) const SOURCE: &str = "hai";

/// The default role of a message.
pub(crate) const ASSISTANT: &str = "assistant";
