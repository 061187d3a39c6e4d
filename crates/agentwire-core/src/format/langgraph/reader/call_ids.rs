//! Tool calls in a list of messages that may reuse a call id, see [`crate::format::reused`].

use std::collections::HashMap;

use super::messages::ShownIds;
use crate::event::{MessageId, ToolCallId};
pub(super) use crate::format::reused::{next, number};

/// The tool calls of one list of messages, in order.
#[derive(Debug, Default)]
pub(in super::super) struct ListedCalls(HashMap<Box<str>, LastUse>);

/// The latest tool call with some native id.
#[derive(Debug)]
struct LastUse {
    shown: ToolCallId,
    has_result: bool,
}

impl ListedCalls {
    /// Adds the call `native` of `message` and returns the client's id of it.
    pub(super) fn add(&mut self, native: &str, message: &MessageId, ids: &dyn ShownIds) -> ToolCallId {
        let shown = match self.0.get(native) {
            Some(last) if last.has_result => {
                next(native, &last.shown, |id| ids.holder(id).is_none_or(|holder| holder == message))
            }
            Some(last) => last.shown.clone(),
            None => ids.call_id_in(native, message),
        };
        self.0.insert(native.into(), LastUse { shown: shown.clone(), has_result: false });
        shown
    }

    /// Adds a result for `native`; returns the client's id of the call before it, if the list contains one.
    pub(super) fn add_result(&mut self, native: &str) -> Option<ToolCallId> {
        let last = self.0.get_mut(native)?;
        last.has_result = true;
        Some(last.shown.clone())
    }
}
