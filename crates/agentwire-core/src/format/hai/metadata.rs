//! The metadata key `hai`: which members of HAI events and messages are stored under it.

use super::wire::{AGUI, HAI, MESSAGES_SNAPSHOT};
use crate::json::{Json, Object};

/// Members that every event may have.
const BASE: &[&str] = &["type", "timestamp", "subagentRunId", "metadata", "rawEvent", AGUI];

/// Keys of metadata `hai` with a defined meaning. A member of an event that has such a name with another meaning
/// is stored among the unknown members instead.
const RESERVED: &[&str] = &[
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
    "created",
];

/// The members of an event that the reader interprets; all others are stored in metadata `hai`.
fn interpreted(event_type: &str) -> &'static [&'static str] {
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
        "TOOL_CALL_START" => &["toolCallId", "toolCallName", "parentMessageId", "sourceParentMessageId"],
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

/// Whether the entry `key` of metadata `hai` can be written as a member of the event, from which the reader
/// restores it.
pub(crate) fn is_free(event_type: &str, key: &str) -> bool {
    !BASE.contains(&key) && !interpreted(event_type).contains(&key) && !RESERVED.contains(&key)
}

/// Whether an unknown member `key` can be stored in metadata `hai`.
pub(crate) fn is_foreign(key: &str) -> bool {
    !RESERVED.contains(&key)
}

/// The metadata with an entry of `hai` added.
#[must_use]
pub fn noted(metadata: Option<Object>, key: &str, value: &str) -> Object {
    let metadata = metadata.unwrap_or_else(Object::empty);
    let hai = metadata.member(HAI).and_then(Json::into_object).unwrap_or_else(Object::empty);
    metadata.with(HAI, hai.with(key, Json::string(value)).into())
}
