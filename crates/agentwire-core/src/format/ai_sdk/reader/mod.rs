//! The AI SDK's wires to canonical events: UI message streams, data streams and the letter dialect.
//!
//! The first frame tells which wire it is. What both wires mean is built in [`builder`]; [`ui_message_stream`] and [`data_stream`] know
//! their spellings. A stream that agentwire wrote says so in its first chunk, and is then taken back into the
//! very events it was made from, as far as the wire could carry them.

mod builder;
mod data_parts;
mod data_stream;
pub(super) mod decode;
pub(super) mod metadata;
mod ui_message_stream;

use self::builder::Builder;
use crate::{
    event::{Event, StreamEnd},
    format::{Reader, Setup},
    framing::{Frame, Payload},
    json::ReadError,
    tally::Tally,
};

/// Reads all wires.
#[derive(Debug)]
pub(super) struct AiSdkReader {
    wire: Option<Wire>,
    builder: Builder,
}

#[derive(Clone, Copy, Debug)]
enum Wire {
    Ui,
    Lines,
}

impl AiSdkReader {
    pub(super) fn new(setup: &Setup<'_>) -> Self {
        Self { wire: None, builder: Builder::new(setup) }
    }
}

impl Reader for AiSdkReader {
    fn read(&mut self, frame: &Frame<'_>, out: &mut Vec<Event>) -> Result<(), ReadError> {
        self.builder.tally.at_frame(frame.index + 1);
        let Payload::Text(text) = frame.data else {
            return Err(ReadError::new("", "expected text, found a binary frame"));
        };
        // The codes of the data stream are single characters; SSE frames have longer names or none.
        let coded = frame.event.is_some_and(|event| event.len() == 1);
        match *self.wire.get_or_insert(if coded { Wire::Lines } else { Wire::Ui }) {
            Wire::Ui => ui_message_stream::read(&mut self.builder, text, out),
            Wire::Lines => data_stream::read(&mut self.builder, frame.event, text, out),
        }
    }

    fn end(&mut self, end: &StreamEnd, out: &mut Vec<Event>) {
        self.builder.end(out);
        // For a client the end of the body is the end. Where something was left open, or our own writer did not say
        // how it ended, the response was cut, and that is what the guard says of it.
        if matches!(end, StreamEnd::Closed) && self.builder.is_settled() {
            self.builder.finish(out);
        }
    }

    fn tally(&self) -> &Tally {
        &self.builder.tally
    }
}
