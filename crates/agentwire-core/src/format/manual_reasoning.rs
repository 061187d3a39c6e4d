//! Reasoning that the code of an agent sends by hand. Its start events are marked; writers that leave out the reasoning of
//! models keep it.

use crate::{
    event::{Body, Event, MessageId},
    json::{Json, Object},
};

const KEY: &str = "reasoning";
const BY_HAND: &str = "manual";

/// Metadata of the start events of reasoning by hand.
pub(super) fn metadata() -> Object {
    Object::from_entries([(KEY, Json::string(BY_HAND))])
}

/// The open reasoning messages of a stream that were sent by hand.
#[derive(Debug, Default)]
pub(super) struct ReasoningByHand {
    open: Vec<MessageId>,
}

impl ReasoningByHand {
    /// True if `event` is a part of reasoning by hand. Expects every event of reasoning messages once.
    pub(super) fn has(&mut self, event: &Event) -> bool {
        match &event.body {
            Body::ReasoningMessageStart { message } => {
                let mark = event.metadata().and_then(|metadata| metadata.get_str(KEY));
                let is_marked = mark.as_deref() == Some(BY_HAND);
                if is_marked {
                    self.open.push(message.clone());
                }
                is_marked
            }
            Body::ReasoningDelta { message, .. } => self.open.contains(message),
            Body::ReasoningMessageEnd { message } => {
                let at = self.open.iter().position(|open| open == message);
                at.map(|at| self.open.swap_remove(at)).is_some()
            }
            _ => false,
        }
    }
}
