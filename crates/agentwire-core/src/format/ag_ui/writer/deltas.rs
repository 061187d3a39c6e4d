//! Fast path: deltas of one item, which are the same bytes around another text.

use bytes::{BufMut, BytesMut};

use super::json::{content_event, end_content};
use crate::{
    event::{DeltaKey, Event},
    framing::Frames,
    json::{is_plain, write_str},
};

/// Writes deltas as JSON, and keeps the bytes around the text of the latest one.
#[derive(Debug, Default)]
pub(super) struct DeltaWriter {
    latest: Option<DeltaKey>,
    /// Up to the first quote of the text.
    before: BytesMut,
    /// From the last quote of the text. A timestamp goes before the last byte.
    after: BytesMut,
}

impl DeltaWriter {
    /// Writes the event if it is a delta with nothing unusual.
    pub(super) fn write(&mut self, event: &Event, out: &mut Frames) -> bool {
        if event.extra.is_some() {
            return false;
        }
        let Some((head, id, delta)) = content_event(&event.body) else { return false };
        if !self.latest.as_ref().is_some_and(|latest| latest.is_of(event)) {
            self.keep(event, head, id);
        }
        let frame = out.begin(event.kind());
        let after = if is_plain(delta) {
            frame.put_slice(&self.before);
            frame.put_slice(delta.as_bytes());
            &self.after[..]
        } else {
            frame.put_slice(&self.before[..self.before.len() - 1]);
            write_str(frame, delta);
            &self.after[1..]
        };
        match event.timestamp {
            None => frame.put_slice(after),
            timestamp => {
                frame.put_slice(&after[..after.len() - 1]);
                end_content(frame, timestamp);
            }
        }
        out.commit();
        true
    }

    #[cold]
    fn keep(&mut self, event: &Event, head: &[u8], id: &str) {
        self.latest = DeltaKey::of(event);
        self.before.clear();
        self.before.put_slice(head);
        write_str(&mut self.before, id);
        self.before.put_slice(b",\"delta\":\"");
        self.after.clear();
        self.after.put_u8(b'"');
        if let Some(subagent) = &event.subagent {
            self.after.put_slice(b",\"subagentRunId\":");
            write_str(&mut self.after, subagent);
        }
        self.after.put_u8(b'}');
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{event::Body, format::ag_ui::writer::json::write_event, framing::Framing};

    #[test]
    fn deltas_are_written_as_other_events_are() {
        let ids = ["m1", "m2", "m\"2", "ü"];
        let mut writer = DeltaWriter::default();
        // Every pair of neighbours that differ in one part, or in none.
        for text in ["a", "\"", "line\nline", "漢🦀", ""] {
            for id in ids.into_iter().flat_map(|id| [id, id]) {
                for subagent in [None, None, Some("s1"), Some("s\\2"), Some("s1")] {
                    for timestamp in [None, Some(-7), Some(1_700_000_000_000)] {
                        let delta = || Box::<str>::from(text);
                        for body in [
                            Body::TextDelta { message: id.into(), delta: delta() },
                            Body::TextDelta { message: id.into(), delta: "other".into() },
                            Body::ReasoningDelta { message: id.into(), delta: delta() },
                            Body::ToolArgs { call: id.into(), delta: delta() },
                        ] {
                            let event = Event::new(body).by(subagent.map(Into::into)).at(timestamp);
                            let mut out = Frames::new(Framing::Lines);
                            assert!(writer.write(&event, &mut out));
                            let mut expected = BytesMut::new();
                            write_event(&mut expected, &event);
                            expected.put_u8(b'\n');
                            assert_eq!(out.take(), expected);
                        }
                    }
                }
            }
        }
        let mut out = Frames::new(Framing::Lines);
        assert!(!writer.write(&Event::new(Body::TextEnd { message: "m1".into() }), &mut out));
        assert!(out.is_empty());
    }
}
