//! The shape of the event that makes up nearly all of a stream: a piece of text.
//!
//! The values borrow from the frame. An event with any other member does not match this shape; the reader then decodes it
//! member by member.

use std::borrow::Cow;

use serde::Deserialize;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TextEvent<'a> {
    #[serde(borrow, rename = "type")]
    pub(super) kind: Cow<'a, str>,
    pub(super) index: u32,
    #[serde(borrow)]
    pub(super) delta: TextDelta<'a>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TextDelta<'a> {
    #[serde(borrow, rename = "type")]
    pub(super) kind: Cow<'a, str>,
    #[serde(borrow)]
    pub(super) text: Cow<'a, str>,
}

/// Reasons for which a response is incomplete.
pub(super) const CUT_OFF: &[&str] = &["max_tokens", "model_context_window_exceeded", "refusal"];

/// The end of the names of blocks with the result of a server tool: `web_search_tool_result`, `mcp_tool_result`.
pub(super) const RESULT_SUFFIX: &str = "_tool_result";
