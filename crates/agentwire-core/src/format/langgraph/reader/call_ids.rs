//! The calls of one list of messages, of which some may have the same id: see [`crate::format::reused`].

use std::collections::HashMap;

use super::messages::Naming;
use crate::event::{MessageId, ToolCallId};
pub(super) use crate::format::reused::{next, number};

/// The calls of one list of messages, by position.
#[derive(Debug, Default)]
pub(super) struct Reused(HashMap<Box<str>, Last>);

/// The last call of an id so far.
#[derive(Debug)]
struct Last {
    shown: ToolCallId,
    answered: bool,
}

impl Reused {
    /// The id under which the call `native` of `message` is shown.
    pub(super) fn call(&mut self, native: &str, message: &MessageId, naming: &dyn Naming) -> ToolCallId {
        let shown = match self.0.get(native) {
            Some(last) if last.answered => {
                next(native, &last.shown, |id| naming.holder(id).is_none_or(|holder| holder == message))
            }
            Some(last) => last.shown.clone(),
            None => naming.call_of(native, message),
        };
        self.0.insert(native.into(), Last { shown: shown.clone(), answered: false });
        shown
    }

    /// The call that a result for `native` at this place answers, if it is in the list.
    pub(super) fn answer(&mut self, native: &str) -> Option<ToolCallId> {
        let last = self.0.get_mut(native)?;
        last.answered = true;
        Some(last.shown.clone())
    }
}
