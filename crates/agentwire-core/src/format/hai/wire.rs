//! HAI's own words.

/// The 20 events of the standard, each with its number in the binary form.
pub(super) const EVENTS: [(&str, u64); 20] = [
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
pub(super) const MESSAGES_SNAPSHOT: &str = "MESSAGES_SNAPSHOT";

/// The member of an event or message that says which AG-UI event it stands for, where HAI's own members do
/// not say it all. Clients ignore it; the reader restores the very same event from it.
pub(super) const AGUI: &str = "agui";

/// The member of [`AGUI`] by which a frame is for HAI clients only: the reader passes over it.
pub(super) const SKIP: &str = "skip";

/// The key of an event's metadata under which the members live that only HAI has.
pub(super) const HAI: &str = "hai";

/// The CUSTOM event that carries an output in profile `@text`.
pub(super) const OUTPUT: &str = "hai.output";

/// The `source` of a RAW event that holds a HAI event of an unknown type.
pub(super) const SOURCE: &str = "hai";

/// The role of a message unless it says otherwise.
pub(super) const ASSISTANT: &str = "assistant";

/// Members that every event may have.
const BASE: &[&str] = &["type", "timestamp", "subagentRunId", "metadata", "rawEvent", AGUI];

/// Keys of metadata `hai` that have a meaning of their own. A member of an event that has such a name, and is
/// not what the name means, is kept elsewhere.
const MEANINGFUL: &[&str] = &[
    "messageId",
    "role",
    "layout",
    "blockId",
    "style",
    "output",
    "data",
    "delta",
    "elapsed",
    "collapse",
    "thinking",
    "from",
    "start",
    "content",
    "extra",
    "timestamp",
    "name",
];

/// The members of an event that the reader understands; any other is kept in metadata `hai`.
fn members(event_type: &str) -> &'static [&'static str] {
    match event_type {
        "RUN_STARTED" => {
            &["threadId", "runId", "parentRunId", "protocolVersion", "input", "messageId", "role"]
        }
        "RUN_FINISHED" => &["threadId", "runId", "result", "outcome", "usage", "messageId", "role"],
        "RUN_ERROR" => &["message", "code", "usage", "threadId", "runId", "messageId", "role"],
        "STEP_STARTED" | "STEP_FINISHED" => &["stepName", "threadId", "runId"],
        "BUSINESS_DATA_START" => &["messageId", "sourceMessageId", "role", "name"],
        "BUSINESS_DATA_CONTENT" => &["messageId", "sourceMessageId", "delta", "layout", "blockId", "style"],
        "BUSINESS_DATA_END" => &["messageId", "sourceMessageId", "role"],
        "AGENT_COLLABORATIVE_MESSAGE_START" => &["messageId", "from", "to"],
        "AGENT_COLLABORATIVE_MESSAGE_CONTENT" => &["messageId", "delta"],
        "AGENT_COLLABORATIVE_MESSAGE_END" => &["messageId"],
        "TOOL_CALL_START" => &["toolCallId", "toolCallName", "parentMessageId"],
        "TOOL_CALL_ARGS" => &["toolCallId", "delta"],
        "TOOL_CALL_END" => &["toolCallId"],
        "TOOL_CALL_RESULT" => &["messageId", "toolCallId", "content", "role", "error", "extra"],
        "STATE_SNAPSHOT" => &["snapshot"],
        "STATE_DELTA" => &["delta"],
        "MESSAGE_SNAPSHOT" | MESSAGES_SNAPSHOT => &["messages"],
        "RAW" => &["event", "source"],
        "CUSTOM" => &["name", "value"],
        _ => &[],
    }
}

/// Whether an event may carry `key` of metadata `hai` as a plain member, so that the reader puts it back there.
pub(super) fn is_free(event_type: &str, key: &str) -> bool {
    !BASE.contains(&key) && !members(event_type).contains(&key) && !MEANINGFUL.contains(&key)
}

/// Whether `key`, a member of an event that nobody understands, may live in metadata `hai`.
pub(super) fn is_foreign(key: &str) -> bool {
    !MEANINGFUL.contains(&key)
}
