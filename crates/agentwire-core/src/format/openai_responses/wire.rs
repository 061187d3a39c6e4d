//! Native names, and the shape of the event that makes up nearly all of a stream: a piece of text.

use std::borrow::Cow;

use serde::{Deserialize, de::IgnoredAny};

/// The values borrow from the frame. An event with any other member does not match this shape; the reader then decodes it
/// member by member.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TextEvent<'a> {
    #[serde(borrow, rename = "type")]
    pub(super) kind: Cow<'a, str>,
    pub(super) output_index: u32,
    pub(super) content_index: u32,
    #[serde(borrow)]
    pub(super) delta: Cow<'a, str>,
    #[serde(default, rename = "item_id")]
    _item_id: IgnoredAny,
    #[serde(default, rename = "sequence_number")]
    _sequence_number: IgnoredAny,
    #[serde(default, rename = "logprobs")]
    _logprobs: IgnoredAny,
    #[serde(default, rename = "obfuscation")]
    _obfuscation: IgnoredAny,
}

/// Known events whose content is in a later event too, or that only tell progress.
pub(super) const PROGRESS: &[&str] = &[
    "response.content_part.added",
    "response.content_part.done",
    "response.reasoning_summary_part.added",
    "response.reasoning_summary_part.done",
    "response.web_search_call.in_progress",
    "response.web_search_call.searching",
    "response.web_search_call.completed",
    "response.file_search_call.in_progress",
    "response.file_search_call.searching",
    "response.file_search_call.completed",
    "response.code_interpreter_call.in_progress",
    "response.code_interpreter_call.interpreting",
    "response.code_interpreter_call.completed",
    "response.image_generation_call.in_progress",
    "response.image_generation_call.generating",
    "response.image_generation_call.completed",
    "response.image_generation_call.partial_image",
    "response.mcp_call.in_progress",
    "response.mcp_call.completed",
    "response.mcp_call.failed",
    "response.mcp_list_tools.in_progress",
    "response.mcp_list_tools.completed",
    "response.mcp_list_tools.failed",
    "response.compaction.compacting",
    "response.shell_call_command.added",
    "response.shell_call_command.delta",
    "response.shell_call_command.done",
    "response.shell_call_output_content.delta",
    "response.shell_call_output_content.done",
    "keepalive",
];

/// The type of an item that asks to approve a call of an MCP server.
pub(super) const APPROVAL_REQUEST: &str = "mcp_approval_request";
