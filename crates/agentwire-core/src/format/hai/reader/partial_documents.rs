//! Documents that come in pieces.
//!
//! The standard's client joins the deltas of a message before it parses them, so a server may cut a document
//! wherever it likes: inside a string, inside an escape, between `}` and `{`. A piece that can be the beginning
//! of a structured delta waits here for its rest. If the rest never comes, the pieces were text.

use super::{
    super::delta::{self, Delta, Place},
    members::Base,
};
use crate::{framing::DEFAULT_MAX_FRAME, tally::Tally};

/// The most that all pieces of a stream may take together: as much as a document may that comes in one frame.
pub(crate) const MAX_HELD: usize = DEFAULT_MAX_FRAME;

/// What a piece takes besides its text.
const OVERHEAD: usize = 256;

/// The members that a structured delta can begin with.
const MEMBERS: [&str; 4] = ["output", "layout", "blockId", "style"];

/// The beginning of a structured delta.
#[derive(Debug, Default)]
pub(crate) struct Pieces {
    text: String,
    scan: Scan,
    /// What each frame brought, in case it was text.
    frames: Vec<Piece>,
    weight: usize,
}

/// What one frame brought.
#[derive(Debug)]
pub(crate) struct Piece {
    pub(crate) content: String,
    pub(crate) place: Place,
    pub(crate) base: Base,
}

impl Pieces {
    /// The documents that `content` completes; what is left of it waits. `None` when all of it is text.
    pub(crate) fn push(&mut self, content: &str, tally: &mut Tally) -> Option<Vec<Delta<'static>>> {
        if self.text.is_empty() && !content.trim_start().starts_with('{') {
            return None;
        }
        self.text.push_str(content);
        let (mut deltas, mut noticed, mut from) = (Vec::new(), Tally::default(), 0);
        for end in self.scan.ends(&self.text) {
            deltas.push(delta::document(&self.text[from..end], &mut noticed)?);
            from = end;
        }
        let rest = self.text[from..].trim_start();
        if !rest.is_empty() && !is_beginning(rest) {
            return None;
        }
        if !deltas.is_empty() {
            self.frames.clear();
            self.weight = 0;
            self.text = rest.to_owned();
            self.scan.at = self.text.len();
        }
        noticed.iter().for_each(|(what, name, count)| tally.add(what, name, count.times));
        Some(deltas)
    }

    /// Whether something waits.
    pub(crate) fn is_waiting(&self) -> bool {
        !self.text.is_empty()
    }

    /// Keeps what the last frame brought, `content` if it completed nothing.
    pub(crate) fn keep(&mut self, content: &str, place: Place, base: Base) {
        let content = if self.frames.is_empty() && self.text.len() < content.len() {
            self.text.clone()
        } else {
            content.to_owned()
        };
        let place_weight = [&place.layout, &place.style].into_iter().flatten().map(|json| json.get().len());
        let named = place.block_id.as_deref().map_or(0, str::len);
        self.weight += content.len() + place_weight.sum::<usize>() + named + base.weight() + OVERHEAD;
        self.frames.push(Piece { content, place, base });
    }

    /// The bytes that it takes.
    pub(crate) fn weight(&self) -> usize {
        self.weight
    }

    pub(crate) fn into_frames(self) -> Vec<Piece> {
        self.frames
    }
}

/// Whether an unfinished object can be a structured delta.
fn is_beginning(text: &str) -> bool {
    let Some(inside) = text.strip_prefix('{').map(str::trim_start) else {
        return false;
    };
    let Some(key) = inside.strip_prefix('"') else {
        return inside.is_empty();
    };
    match key.split_once('"') {
        Some((key, _)) => MEMBERS.contains(&key),
        None => MEMBERS.iter().any(|member| member.starts_with(key)),
    }
}

/// Finds the ends of documents, a byte at a time and each byte once, however the documents are cut.
#[derive(Debug, Default)]
struct Scan {
    at: usize,
    depth: usize,
    in_string: bool,
    escaped: bool,
}

impl Scan {
    fn ends(&mut self, text: &str) -> Vec<usize> {
        let mut ends = Vec::new();
        for byte in &text.as_bytes()[self.at..] {
            self.at += 1;
            match byte {
                _ if self.escaped => self.escaped = false,
                b'\\' if self.in_string => self.escaped = true,
                b'"' => self.in_string = !self.in_string,
                _ if self.in_string => {}
                b'{' | b'[' => self.depth += 1,
                b'}' | b']' => {
                    self.depth = self.depth.saturating_sub(1);
                    if self.depth == 0 {
                        ends.push(self.at);
                    }
                }
                _ => {}
            }
        }
        ends
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::{
        event::Event,
        format::{
            golden::{lines, read_framed},
            hai::FORMAT,
        },
        framing::Framing,
    };

    fn read(deltas: &[&str]) -> Vec<Event> {
        let frame = |delta: &&str| json!({"type": "BUSINESS_DATA_CONTENT", "messageId": "m", "delta": delta});
        let mut frames = vec![json!({"type": "RUN_STARTED"})];
        frames.extend(deltas.iter().map(frame));
        frames.push(json!({"type": "BUSINESS_DATA_END", "messageId": "m"}));
        frames.push(json!({"type": "RUN_FINISHED"}));
        let text: String = frames.iter().map(|frame| format!("{frame}\n")).collect();
        let (events, failure) = read_framed(&FORMAT, Framing::Lines, text.as_bytes(), usize::MAX, &[]);
        assert_eq!(failure, None);
        events
    }

    /// The text of the message.
    fn words(deltas: &[&str]) -> String {
        let mut words = String::new();
        for event in read(deltas) {
            if let crate::event::Body::TextDelta { delta, .. } = event.body {
                words.push_str(&delta);
            }
        }
        words
    }

    fn document((kind, words): (u8, String)) -> String {
        let document = match kind % 5 {
            0 | 1 => json!({"output": {"type": "text", "content": words}}),
            2 => json!({"output": {"type": "thinking", "data": {"content": words, "thinking": kind > 99}}}),
            3 => json!({"layout": {"x": 1}, "blockId": words, "output": {"type": "text", "content": words}}),
            _ => json!({"output": {"type": "button", "data": {"name": [words, {}]}}, "style": {}}),
        };
        format!("{}{document}", [" ", ""][usize::from(kind > 127)])
    }

    proptest! {
        #[test]
        fn however_documents_are_cut_they_say_the_same(
            documents in proptest::collection::vec((any::<u8>(), "[{}\"\\\\,a你\n]{0,12}").prop_map(document), 1..5),
            cuts in proptest::collection::vec(any::<proptest::sample::Index>(), 0..8),
        ) {
            let whole = documents.concat();
            let mut cuts: Vec<_> = cuts.iter().map(|cut| cut.index(whole.len())).collect();
            cuts.retain(|cut| *cut > 0 && whole.is_char_boundary(*cut));
            cuts.extend([0, whole.len()]);
            cuts.sort_unstable();
            cuts.dedup();
            let pieces: Vec<_> = cuts.windows(2).map(|range| &whole[range[0]..range[1]]).collect();
            let documents: Vec<_> = documents.iter().map(String::as_str).collect();
            // A piece of nothing but white space before anything else is text; so says the shape.
            prop_assume!(!pieces[0].trim().is_empty());
            prop_assert_eq!(lines(&read(&pieces)), lines(&read(&documents)), "{:?}", pieces);
        }
    }

    #[test]
    fn what_never_becomes_a_document_is_text_in_its_order() {
        for text in [
            &["{", "}"][..],
            &["{\"out", "come\": 1}"],
            &["{\"output\": ", "is what the program prints"],
            &["{", "{\"output\":1", "}"],
            &["so: ", "{\"output\":{\"type\":\"te", "xt\"}}"],
            &["{\"output\":{}} and ", "more"],
        ] {
            assert_eq!(words(text), text.concat(), "{text:?}");
        }
    }

    #[test]
    fn a_lost_rest_does_not_take_the_next_documents_along() {
        let next = r#"{"output":{"type":"text","content":"b"}}"#;
        assert_eq!(words(&[r#"{"output":{"type":"text","content":"a"#, next, next]), {
            r#"{"output":{"type":"text","content":"abb"#
        });
    }

    #[test]
    fn pieces_beyond_the_bound_are_text() {
        let (first, more) = (r#"{"output":{"type":"text","content":""#, "x".repeat(MAX_HELD / 4));
        let pieces = [first, &more, &more, &more, &more, "\"}}"];
        assert_eq!(words(&pieces), pieces.concat());
    }

    #[test]
    fn beginnings_are_told_from_other_objects() {
        for text in ["{", "{ ", "{\"", "{\"out", "{\"output\"", "{\"layout\":{}", "{\n \"blockId\": 1"] {
            assert!(is_beginning(text), "{text}");
        }
        for text in ["{a", "{\"a", "{\"outputs\":", "{}", "[", "x", "{\"outputt"] {
            assert!(!is_beginning(text), "{text}");
        }
    }
}
