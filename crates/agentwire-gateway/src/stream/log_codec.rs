//! The encoding of events in the log: AG-UI JSON, one event per entry.
//!
//! It is lossless, operators can read it, and a reader in AG-UI 1.0 gets these bytes unchanged.

use std::ops::Range;

use agentwire_core::{
    Tally,
    event::{Event, Message, RunId, ThreadId},
    format::{Fidelity, Options, Reader, Setup, Writer, ag_ui},
    framing::{Frame, Frames, Framing, Payload},
    json::{ReadError, ReadResult},
};
use bytes::Bytes;

/// Encodes the events of one run for the log.
pub(crate) struct Encoder {
    writer: Box<dyn Writer>,
    frames: Frames,
}

impl Encoder {
    pub(crate) fn new(thread: &ThreadId, run: &RunId) -> Self {
        let options = Options::default();
        let setup = Setup { thread: thread.clone(), run: run.clone(), options: &options };
        let make = ag_ui::FORMAT.writer.expect("AG-UI has a writer");
        Self { writer: make(&ag_ui::FORMAT.profiles[0], &setup), frames: Frames::new(Framing::Lines) }
    }

    /// The encoded event; `None` if the writer expresses it by nothing.
    pub(crate) fn encode(&mut self, event: &Event) -> Option<Bytes> {
        let fidelity = self.writer.write(event, &mut self.frames);
        debug_assert!(!matches!(fidelity, Fidelity::Dropped(_)), "the log can express every event");
        self.frames.drain(|line| {
            let line = line.strip_suffix(b"\n").unwrap_or(line);
            (!line.is_empty()).then(|| Bytes::copy_from_slice(line))
        })
    }
}

/// Stored messages. If they cannot be read, the error is logged and there are none.
pub(crate) fn parse_messages(text: &str) -> Vec<Message> {
    ag_ui::messages_from_json(text, &mut Tally::default()).unwrap_or_else(|error| {
        tracing::error!(%error, "stored messages could not be read");
        Vec::new()
    })
}

/// The same with the place of each message in the text.
pub(crate) fn parse_messages_with_ranges(text: &str) -> Vec<(Message, Range<usize>)> {
    ag_ui::messages_with_ranges(text, &mut Tally::default()).unwrap_or_else(|error| {
        tracing::error!(%error, "stored messages could not be read");
        Vec::new()
    })
}

/// Decodes the events of one run from the log.
pub(crate) struct Decoder {
    reader: Box<dyn Reader>,
    index: u64,
}

impl Decoder {
    pub(crate) fn new(thread: &ThreadId, run: &RunId) -> Self {
        // An event of the log is what it was logged as.
        let options = Options::parse(["on_interrupt=custom", "langgraph_custom=keep"], ag_ui::FORMAT.options)
            .expect("known options");
        let setup = Setup { thread: thread.clone(), run: run.clone(), options: &options };
        Self { reader: ag_ui::FORMAT.reader.expect("AG-UI has a reader")(&setup), index: 0 }
    }

    /// Decodes one entry to `out`. An entry that this version cannot read is skipped and logged as an error.
    pub(crate) fn decode(&mut self, logged: &[u8], out: &mut Vec<Event>) {
        let index = self.index;
        let Ok(text) = std::str::from_utf8(logged) else {
            self.index += 1;
            tracing::error!(index, "an event of the log is not UTF-8 and was left out");
            return;
        };
        if let Err(error) = self.read(text, out) {
            tracing::error!(index, %error, "an event of the log could not be read and was left out");
        }
    }

    /// Decodes one event of another program to `out`.
    pub(crate) fn try_decode(&mut self, text: &str, out: &mut Vec<Event>) -> Result<(), ReadError> {
        let unknown = self.reader.tally().unknown_event_count();
        self.read(text, out)?;
        match self.reader.tally().unknown_event_count() == unknown {
            true => Ok(()),
            false => Err(ReadError::new("type", "unknown event type")),
        }
    }

    fn read(&mut self, text: &str, out: &mut Vec<Event>) -> ReadResult {
        let frame = Frame { index: self.index, offset: 0, event: None, id: None, data: Payload::Text(text) };
        self.index += 1;
        self.reader.read(&frame, out)
    }
}

/// The event type of an entry, for `event:` lines.
pub(crate) fn event_type(logged: &[u8]) -> &str {
    let inner = logged.strip_prefix(br#"{"type":""#).unwrap_or_default();
    let end = memchr::memchr(b'"', inner).unwrap_or(0);
    std::str::from_utf8(&inner[..end]).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use agentwire_core::event::Body;

    use super::*;

    #[test]
    fn a_logged_event_decodes_to_itself() {
        let (thread, run) = ("t".into(), "r".into());
        let event = Event::new(Body::TextDelta { message: "m".into(), delta: "a\nb".into() }).at(Some(7));
        let logged = Encoder::new(&thread, &run).encode(&event).expect("it fits");
        assert_eq!(event_type(&logged), "TEXT_MESSAGE_CONTENT");
        let mut back = Vec::new();
        Decoder::new(&thread, &run).decode(&logged, &mut back);
        assert_eq!(back, [event]);
    }
}
