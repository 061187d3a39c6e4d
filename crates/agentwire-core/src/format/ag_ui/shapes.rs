//! What a format that descends from AG-UI shares with it: the shapes of parts, calls, outcomes and requests,
//! and whole AG-UI events that travel inside another format's.

use bytes::BytesMut;

pub(crate) use super::{
    input::{from_raw as input_from_raw, resume, write as write_input},
    reader::{
        json::{Context, outcome, usage},
        messages::{message as message_from_raw, parts, tool_call},
    },
    wire::{FINISH_REASON, MAX_INTEGER, WRAPPED},
    writer::{
        json::{write_outcome, write_usage},
        messages::{write_call, write_message, write_part},
    },
};
use super::{
    reader::json::{self as json_reader, Native},
    writer::json as json_writer,
};
use crate::event::Event;

/// Appends the event as AG-UI 1.0 has it.
pub(crate) fn write_event(out: &mut BytesMut, event: &Event) {
    json_writer::event(out, event);
}

/// The event that an AG-UI object stands for; `None` if it is malformed, unknown or a shorthand.
pub(crate) fn read_event(text: &str, context: &mut Context) -> Option<Event> {
    match json_reader::event(text, None, context) {
        Ok(Native::Event(event)) => Some(event),
        _ => None,
    }
}
