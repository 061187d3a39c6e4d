//! Reader: UI message streams, data streams and the LangChain dialect to canonical events.
//!
//! The first frame determines the protocol. [`ui_message_stream`] and [`data_stream`] decode the chunks and lines,
//! [`builder`] converts their content to events. A stream that agentwire wrote is marked in its first chunk and is converted
//! back to the events that it was written from, as far as the protocol can carry them.

mod builder;
mod data_parts;
mod data_stream;
pub(super) mod decode;
pub(super) mod metadata;
mod ui_message_stream;

use self::builder::EventBuilder;
use crate::{
    event::{Event, StreamEnd},
    format::{Reader, Setup},
    framing::{Frame, Payload},
    json::{ReadError, ReadResult},
    tally::Tally,
};

/// Reader of all AI SDK protocols with structured parts.
#[derive(Debug)]
pub(super) struct AiSdkReader {
    protocol: Option<StreamProtocol>,
    builder: EventBuilder,
}

#[derive(Clone, Copy, Debug)]
enum StreamProtocol {
    UiMessageStream,
    DataStream,
}

impl AiSdkReader {
    pub(super) fn new(setup: &Setup<'_>) -> Self {
        Self { protocol: None, builder: EventBuilder::new(setup) }
    }
}

impl Reader for AiSdkReader {
    fn read(&mut self, frame: &Frame<'_>, out: &mut Vec<Event>) -> ReadResult {
        self.builder.tally.at_frame(frame.index + 1);
        let Payload::Text(text) = frame.data else {
            return Err(ReadError::new("", "expected text, found a binary frame"));
        };
        // Codes of the data stream are single characters; SSE frames have longer event names or none.
        let is_coded = frame.event.is_some_and(|event| event.len() == 1);
        let detected = if is_coded { StreamProtocol::DataStream } else { StreamProtocol::UiMessageStream };
        match *self.protocol.get_or_insert(detected) {
            StreamProtocol::UiMessageStream => ui_message_stream::read(&mut self.builder, text, out),
            StreamProtocol::DataStream => data_stream::read(&mut self.builder, frame.event, text, out),
        }
    }

    fn end(&mut self, end: &StreamEnd, out: &mut Vec<Event>) {
        self.builder.emit_deferred_error(out);
        // For clients the end of the body ends the response. If a part is still open, or agentwire's writer did not write a
        // terminal chunk, the response is truncated, and the guard reports that.
        if matches!(end, StreamEnd::Closed) && self.builder.may_end_here() {
            self.builder.finish(out);
        }
    }

    fn tally(&self) -> &Tally {
        &self.builder.tally
    }
}
