//! Events in the order of the wire, for checks.
//!
//! The reader closes and opens items where a frame implies it, so its events hide violations. For a check, each frame is
//! one event with the ids of the wire: business data as text messages, collaborations as reasoning messages, which have the
//! same rules and an id space of their own.

use crate::{
    event::{Body, Event, MessageId, ToolCallId},
    json::{Fields, Path},
    tally::Tally,
};

/// Ids of the frames without one: those of the frame before.
#[derive(Debug, Default)]
pub(crate) struct WireOrder {
    message: String,
    collaboration: String,
    call: String,
}

impl WireOrder {
    /// The event of a frame; `None` if the events that the reader made of it say the same.
    pub(crate) fn event(&mut self, event_type: &str, f: &Fields<'_, '_>) -> Option<Body> {
        let id = |key: &str| {
            let id = crate::json::text(f.peek(key)?, Path::Root, &mut Tally::default()).ok()?;
            Some(id.into_owned()).filter(|id| !id.is_empty())
        };
        let (group, part) = event_type.rsplit_once('_')?;
        match group {
            "BUSINESS_DATA" => {
                self.message = id("messageId").unwrap_or_else(|| std::mem::take(&mut self.message));
                let message = MessageId::from(self.message.as_str());
                Some(match part {
                    "START" => Body::TextStart { message, role: None, name: None },
                    "CONTENT" => Body::TextDelta { message, delta: ".".into() },
                    _ => Body::TextEnd { message },
                })
            }
            "AGENT_COLLABORATIVE_MESSAGE" => {
                self.collaboration =
                    id("messageId").unwrap_or_else(|| std::mem::take(&mut self.collaboration));
                let message = MessageId::from(self.collaboration.as_str());
                Some(match part {
                    "START" => Body::ReasoningMessageStart { message },
                    "CONTENT" => Body::ReasoningDelta { message, delta: ".".into() },
                    _ => Body::ReasoningMessageEnd { message },
                })
            }
            "TOOL_CALL" if part != "RESULT" => {
                self.call = id("toolCallId").unwrap_or_else(|| std::mem::take(&mut self.call));
                let call = ToolCallId::from(self.call.as_str());
                Some(match part {
                    "START" => Body::ToolStart {
                        call,
                        name: id("toolCallName").unwrap_or_default().into(),
                        parent: None,
                    },
                    "ARGS" => Body::ToolArgs { call, delta: ".".into() },
                    _ => Body::ToolEnd { call },
                })
            }
            _ => None,
        }
    }
}

/// Keeps the events of the type of the frame: the others were derived from it.
pub(crate) fn retain_own(event_type: &str, read: Vec<Event>, out: &mut Vec<Event>) {
    let is_snapshot = event_type.starts_with("MESSAGE");
    let is_own =
        |event: &Event| event.kind() == event_type || (is_snapshot && event.kind() == "MESSAGES_SNAPSHOT");
    // HAI has no subagents, so a step is open or not whoever started it.
    out.extend(read.into_iter().filter(is_own).map(|event| Event { subagent: None, ..event }));
}
