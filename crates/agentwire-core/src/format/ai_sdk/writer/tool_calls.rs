//! Tool calls of the message that a writer builds.
//!
//! The SDK needs the whole input once the arguments are complete, and rejects a result whose call is not in the message, so
//! arguments and calls are kept.

use indexmap::IndexMap;

use super::part_metadata::PartMetadata;
use crate::{
    event::{MessageId, ToolCallId, ToolResult},
    format::ai_sdk::reader::metadata,
    framing::DEFAULT_MAX_FRAME,
    json::{Json, Object},
};

/// Limit of remembered calls, the same as in the order guard. A result of a forgotten call gets a tool part of its own.
const MAX_CALLS: usize = 16_384;

/// Limit of collected argument text per call: the size limit of one frame of a source.
const MAX_ARGUMENTS: usize = DEFAULT_MAX_FRAME;

/// Limit of result text per response that is kept for calls which may start after their result: the size limit of one
/// frame of a source. A call whose result exceeds it is left without one.
const MAX_KEPT_RESULTS: usize = DEFAULT_MAX_FRAME;

/// One tool call.
#[derive(Debug)]
pub(super) struct WrittenToolCall {
    pub(super) id: ToolCallId,
    pub(super) name: Box<str>,
    /// Message that contains the call.
    pub(super) parent: Option<MessageId>,
    /// Argument text so far, while the call is open.
    pub(super) arguments: String,
    /// Arguments beyond [`MAX_ARGUMENTS`] were discarded.
    pub(super) is_truncated: bool,
    pub(super) is_open: bool,
    pub(super) has_result: bool,
    /// The user interface declares the tool: its part is `tool-NAME` instead of `dynamic-tool`.
    pub(super) is_static: bool,
    /// The call was made in an earlier response that this one continues.
    pub(super) is_earlier: bool,
    /// The provider runs the tool, so the response does not wait for its result.
    pub(super) is_provider_executed: bool,
    /// An approval request was written.
    pub(super) has_approval_request: bool,
    /// A person denied the call.
    pub(super) is_denied: bool,
    pub(super) metadata: PartMetadata,
    /// While the call is open: a result that arrived before the call or its complete arguments. Later: the result that was
    /// written last.
    pub(super) result: Option<Box<ResultOfCall>>,
    /// The client already holds a call of this id: one that was generated for a result, or one that starts again.
    pub(super) is_repeated: bool,
    /// Input of a repeated call.
    pub(super) repeated_input: Option<Json>,
}

/// A tool result with the metadata of its event.
#[derive(Clone, Debug)]
pub(super) struct ResultOfCall {
    pub(super) result: ToolResult,
    pub(super) metadata: Option<Object>,
}

/// The tool calls of a message.
#[derive(Debug, Default)]
pub(super) struct ToolCallTable {
    calls: IndexMap<ToolCallId, WrittenToolCall>,
    open: usize,
    /// Number of calls of this response without a result.
    unanswered: usize,
    /// Bytes of kept result text.
    kept: usize,
}

impl ToolCallTable {
    pub(super) fn get(&self, id: &ToolCallId) -> Option<&WrittenToolCall> {
        self.calls.get(id)
    }

    pub(super) fn get_mut(&mut self, id: &ToolCallId) -> Option<&mut WrittenToolCall> {
        self.calls.get_mut(id)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&ToolCallId, &WrittenToolCall)> {
        self.calls.iter()
    }

    /// Returns true while the arguments of any call are streaming.
    pub(super) fn has_open(&self) -> bool {
        self.open > 0
    }

    /// Returns true if any call of this response has no result yet.
    pub(super) fn has_unanswered(&self) -> bool {
        self.unanswered > 0
    }

    /// Adds a call whose arguments are complete or unavailable.
    pub(super) fn insert(&mut self, call: WrittenToolCall) {
        self.evict_oldest();
        self.unanswered += usize::from(call.needs_result());
        if let Some(old) = self.calls.insert(call.id.clone(), call) {
            self.open -= usize::from(old.is_open);
            self.unanswered -= usize::from(old.needs_result());
        }
    }

    /// Marks a call as run by its provider.
    pub(super) fn set_provider_executed(&mut self, id: &ToolCallId) {
        if let Some(call) = self.calls.get_mut(id) {
            self.unanswered -= usize::from(call.needs_result());
            call.is_provider_executed = true;
        }
    }

    /// Marks a call as having a result and returns it.
    pub(super) fn set_has_result(&mut self, id: &ToolCallId) -> Option<&mut WrittenToolCall> {
        let call = self.calls.get_mut(id)?;
        self.unanswered -= usize::from(call.needs_result());
        call.has_result = true;
        Some(call)
    }

    /// Keeps a written result: a client discards it when the call starts after it.
    pub(super) fn keep_result(&mut self, result: &ResultOfCall) {
        let Some(call) = self.calls.get_mut(&result.result.call) else { return };
        self.kept -= call.result.take().map_or(0, |old| old.size());
        if self.kept + result.size() <= MAX_KEPT_RESULTS {
            self.kept += result.size();
            call.result = Some(Box::new(result.clone()));
        }
    }

    /// Opens a call. If it already has a result, that is written again when the arguments are complete: clients treat a
    /// starting call as unanswered, while in the canonical model a call with a result is finished.
    pub(super) fn start(&mut self, mut call: WrittenToolCall) {
        if let Some(earlier) = self.calls.get_mut(&call.id).filter(|earlier| earlier.has_result) {
            call.result = earlier.result.take();
            self.kept -= call.result.as_deref().map_or(0, ResultOfCall::size);
            call.is_denied = earlier.is_denied;
            call.is_repeated = true;
        }
        self.insert(WrittenToolCall { is_open: true, ..call });
        self.open += 1;
    }

    /// Collects an argument delta; returns false if the call is not open.
    pub(super) fn push_arguments(&mut self, id: &ToolCallId, delta: &str) -> bool {
        let Some(call) = self.calls.get_mut(id).filter(|call| call.is_open) else {
            return false;
        };
        if call.arguments.len() + delta.len() > MAX_ARGUMENTS {
            call.is_truncated = true;
        } else {
            call.arguments.push_str(delta);
        }
        true
    }

    /// Closes a call whose arguments are complete and returns it; the caller may move the text out.
    pub(super) fn close(&mut self, id: &ToolCallId) -> Option<&mut WrittenToolCall> {
        let call = self.calls.get_mut(id).filter(|call| call.is_open)?;
        call.is_open = false;
        self.open -= 1;
        Some(call)
    }

    /// Bounds the table: removes the oldest half of the calls, except for open ones.
    fn evict_oldest(&mut self) {
        if self.calls.len() < MAX_CALLS {
            return;
        }
        let mut oldest = MAX_CALLS / 2;
        let (unanswered, kept) = (&mut self.unanswered, &mut self.kept);
        self.calls.retain(|_, call| {
            oldest = oldest.saturating_sub(1);
            let is_kept = call.is_open || oldest == 0;
            if !is_kept {
                *unanswered -= usize::from(call.needs_result());
                *kept -= call.result.as_deref().map_or(0, ResultOfCall::size);
            }
            is_kept
        });
    }
}

impl ResultOfCall {
    fn size(&self) -> usize {
        self.result.content.text().len()
    }
}

impl WrittenToolCall {
    pub(super) fn new(id: &ToolCallId, name: impl Into<Box<str>>) -> Self {
        Self {
            id: id.clone(),
            name: name.into(),
            parent: None,
            arguments: String::new(),
            is_truncated: false,
            is_open: false,
            has_result: false,
            is_static: false,
            is_earlier: false,
            is_provider_executed: false,
            has_approval_request: false,
            is_denied: false,
            metadata: PartMetadata::default(),
            result: None,
            is_repeated: false,
            repeated_input: None,
        }
    }

    /// The member `aiSdk` of the call's metadata.
    pub(super) fn native_metadata(&self) -> Option<Object> {
        metadata::native(self.metadata.metadata.as_ref())
    }

    /// Returns true if a page may run the tool.
    pub(super) fn may_run_in_page(&self) -> bool {
        self.is_static && !self.is_provider_executed
    }

    /// Returns true if the arguments are complete JSON. Other arguments may be plain text or truncated JSON.
    pub(super) fn has_json_arguments(&self) -> bool {
        self.arguments.trim().is_empty() || Json::parse(&self.arguments).is_ok()
    }

    /// Returns true if this response still has to write a result for the call.
    pub(super) fn needs_result(&self) -> bool {
        !self.has_result && !self.is_earlier && !self.is_provider_executed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_is_bounded_and_keeps_open_calls() {
        let mut calls = ToolCallTable::default();
        calls.start(WrittenToolCall::new(&"open".into(), "tool"));
        for n in 0..3 * MAX_CALLS {
            calls.insert(WrittenToolCall::new(&n.to_string().into(), "tool"));
        }
        assert!(calls.calls.len() <= MAX_CALLS);
        assert!(calls.push_arguments(&"open".into(), "x"));
        assert!(calls.get(&(3 * MAX_CALLS - 1).to_string().into()).is_some());
        assert!(calls.get(&"0".into()).is_none());
    }
}
