//! Members of HAI frames that are kept in metadata `hai`.

use super::wire::{AGUI, MESSAGES_SNAPSHOT};

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
pub(crate) fn is_free(event_type: &str, key: &str) -> bool {
    !BASE.contains(&key) && !members(event_type).contains(&key) && !MEANINGFUL.contains(&key)
}

/// Whether `key`, a member of an event that nobody understands, may live in metadata `hai`.
pub(crate) fn is_foreign(key: &str) -> bool {
    !MEANINGFUL.contains(&key)
}
