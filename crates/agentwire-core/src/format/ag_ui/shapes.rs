//! AG-UI shapes that other formats reuse: content parts, tool calls, interrupts, outcomes, requests, and whole
//! AG-UI events embedded in events of another format.

use super::reader::json::{Decoded, decode_event};
pub(crate) use super::{
    input::{read_input, read_resume_entry, write_input, write_tools},
    reader::{
        json::{ReadContext, read_outcome, read_usage},
        messages::{read_message, read_parts, read_tool_call},
    },
    wire::{FINISH_REASON, MAX_INTEGER, WRAPPED_PREFIX},
    writer::{
        json::{write_event, write_interrupt, write_outcome, write_usage},
        messages::{write_message, write_part, write_tool_call},
    },
};
use crate::event::Event;

/// The event in an AG-UI JSON object; `None` if it is malformed, unknown or a chunk.
pub(crate) fn read_event(text: &str, context: &mut ReadContext) -> Option<Event> {
    match decode_event(text, None, context) {
        Ok(Decoded::Event(event)) => Some(event),
        _ => None,
    }
}
