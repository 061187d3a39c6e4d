//! What a format that descends from AG-UI shares with it: the shapes of parts, calls, outcomes and requests,
//! and whole AG-UI events that travel inside another format's.

use bytes::BytesMut;

use super::{decode, encode, wire::Native};
pub(in crate::format) use super::{
    decode::{Context, outcome, usage},
    encode::{write_outcome, write_usage},
    input::{from_raw as input_from_raw, resume, write as write_input},
    messages::{message as message_from_raw, parts, tool_call, write_call, write_message, write_part},
    wire::{FINISH_REASON, MAX_INTEGER, WRAPPED},
};
use crate::event::Event;

/// Appends the event as AG-UI 1.0 has it.
pub(in crate::format) fn write_event(out: &mut BytesMut, event: &Event) {
    encode::event(out, event);
}

/// The event that an AG-UI object stands for; `None` if it is malformed, unknown or a shorthand.
pub(in crate::format) fn read_event(text: &str, context: &mut Context) -> Option<Event> {
    match decode::event(text, None, context) {
        Ok(Native::Event(event)) => Some(event),
        _ => None,
    }
}
