//! The common part of the deltas of one item.

use super::{Body, Event, MessageId, SubagentId, ToolCallId};

/// The item that a delta continues, and its subagent. An answer is a long run of deltas with one key, so that the result
/// of a check or the constant bytes of the latest delta serve the next one too.
#[derive(Debug)]
pub(crate) struct DeltaKey {
    item: DeltaItem,
    subagent: Option<SubagentId>,
}

#[derive(Debug)]
enum DeltaItem {
    Text(MessageId),
    Reasoning(MessageId),
    Args(ToolCallId),
}

impl DeltaKey {
    /// The key of a delta; `None` for other events.
    pub(crate) fn of(event: &Event) -> Option<Self> {
        let item = match &event.body {
            Body::TextDelta { message, .. } => DeltaItem::Text(message.clone()),
            Body::ReasoningDelta { message, .. } => DeltaItem::Reasoning(message.clone()),
            Body::ToolArgs { call, .. } => DeltaItem::Args(call.clone()),
            _ => return None,
        };
        Some(Self { item, subagent: event.subagent.clone() })
    }

    /// True if `event` has this key. Ids are compared by address first.
    pub(crate) fn is_of(&self, event: &Event) -> bool {
        let is_same_item = match (&self.item, &event.body) {
            (DeltaItem::Text(known), Body::TextDelta { message, .. })
            | (DeltaItem::Reasoning(known), Body::ReasoningDelta { message, .. }) => known == message,
            (DeltaItem::Args(known), Body::ToolArgs { call, .. }) => known == call,
            _ => false,
        };
        is_same_item && self.subagent == event.subagent
    }
}
