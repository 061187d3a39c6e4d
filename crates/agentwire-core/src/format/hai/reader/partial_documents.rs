//! Structured deltas that are split over several frames.
//!
//! The standard's client joins the deltas of a message before it parses them, so a server may split a document
//! anywhere: inside a string, inside an escape, between `}` and `{`. A possible prefix of a structured delta is
//! buffered until it is complete. If it is never completed, it was text.

use super::{
    super::delta::{self, OutputDelta, Placement},
    members::FrameMembers,
};
use crate::{framing::DEFAULT_MAX_FRAME, tally::Tally};

/// Limit of all buffered bytes of a stream: the limit of a document in one frame.
pub(crate) const MAX_BUFFERED: usize = DEFAULT_MAX_FRAME;

/// Overhead of a buffered frame in bytes.
const FRAME_OVERHEAD: usize = 256;

/// Members that a structured delta can start with.
const DELTA_MEMBERS: [&str; 4] = ["output", "layout", "blockId", "style"];

/// A prefix of a structured delta.
#[derive(Debug, Default)]
pub(crate) struct PartialDocument {
    text: String,
    scanner: DocumentScanner,
    /// The frames it came in, in case it is text.
    frames: Vec<BufferedFrame>,
    size: usize,
}

/// The content of one frame.
#[derive(Debug)]
pub(crate) struct BufferedFrame {
    pub(crate) content: String,
    pub(crate) placement: Placement,
    pub(crate) base: FrameMembers,
}

impl PartialDocument {
    /// The documents that `content` completes; the remainder is buffered. `None` if all of it is text.
    pub(crate) fn push(&mut self, content: &str, tally: &mut Tally) -> Option<Vec<OutputDelta<'static>>> {
        if self.text.is_empty() && !content.trim_start().starts_with('{') {
            return None;
        }
        self.text.push_str(content);
        let (mut deltas, mut noted, mut from) = (Vec::new(), Tally::default(), 0);
        for end in self.scanner.ends(&self.text) {
            deltas.push(delta::parse_document(&self.text[from..end], &mut noted)?);
            from = end;
        }
        let rest = self.text[from..].trim_start();
        if !rest.is_empty() && !is_delta_prefix(rest) {
            return None;
        }
        if !deltas.is_empty() {
            self.frames.clear();
            self.size = 0;
            self.text = rest.to_owned();
            self.scanner.at = self.text.len();
        }
        noted.iter().for_each(|(category, name, count)| tally.add(category, name, count.times));
        Some(deltas)
    }

    /// Whether a prefix is buffered.
    pub(crate) fn is_waiting(&self) -> bool {
        !self.text.is_empty()
    }

    /// Buffers the last frame: `content`, or its remainder if it completed a document.
    pub(crate) fn keep(&mut self, content: &str, placement: Placement, base: FrameMembers) {
        let content = if self.frames.is_empty() && self.text.len() < content.len() {
            self.text.clone()
        } else {
            content.to_owned()
        };
        let placement_size =
            [&placement.layout, &placement.style].into_iter().flatten().map(|json| json.get().len());
        let named = placement.block_id.as_deref().map_or(0, str::len);
        self.size += content.len() + placement_size.sum::<usize>() + named + base.size() + FRAME_OVERHEAD;
        self.frames.push(BufferedFrame { content, placement, base });
    }

    /// The buffered size in bytes.
    pub(crate) fn size(&self) -> usize {
        self.size
    }

    pub(crate) fn into_frames(self) -> Vec<BufferedFrame> {
        self.frames
    }
}

/// Whether `text` is a possible prefix of a structured delta.
fn is_delta_prefix(text: &str) -> bool {
    let Some(inside) = text.strip_prefix('{').map(str::trim_start) else {
        return false;
    };
    let Some(key) = inside.strip_prefix('"') else {
        return inside.is_empty();
    };
    match key.split_once('"') {
        Some((key, _)) => DELTA_MEMBERS.contains(&key),
        None => DELTA_MEMBERS.iter().any(|member| member.starts_with(key)),
    }
}

/// Finds the ends of documents incrementally; scans each byte once.
#[derive(Debug, Default)]
struct DocumentScanner {
    at: usize,
    depth: usize,
    in_string: bool,
    escaped: bool,
}

impl DocumentScanner {
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
    fn text_of(deltas: &[&str]) -> String {
        let mut text = String::new();
        for event in read(deltas) {
            if let crate::event::Body::TextDelta { delta, .. } = event.body {
                text.push_str(&delta);
            }
        }
        text
    }

    fn document((kind, content): (u8, String)) -> String {
        let document = match kind % 5 {
            0 | 1 => json!({"output": {"type": "text", "content": content}}),
            2 => json!({"output": {"type": "thinking", "data": {"content": content, "thinking": kind > 99}}}),
            3 => {
                json!({"layout": {"x": 1}, "blockId": content, "output": {"type": "text", "content": content}})
            }
            _ => json!({"output": {"type": "button", "data": {"name": [content, {}]}}, "style": {}}),
        };
        format!("{}{document}", [" ", ""][usize::from(kind > 127)])
    }

    proptest! {
        #[test]
        fn split_documents_read_as_the_same_events(
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
            // Leading white space alone is text.
            prop_assume!(!pieces[0].trim().is_empty());
            prop_assert_eq!(lines(&read(&pieces)), lines(&read(&documents)), "{:?}", pieces);
        }
    }

    #[test]
    fn incomplete_documents_are_text_in_order() {
        for text in [
            &["{", "}"][..],
            &["{\"out", "come\": 1}"],
            &["{\"output\": ", "is what the program prints"],
            &["{", "{\"output\":1", "}"],
            &["so: ", "{\"output\":{\"type\":\"te", "xt\"}}"],
            &["{\"output\":{}} and ", "more"],
        ] {
            assert_eq!(text_of(text), text.concat(), "{text:?}");
        }
    }

    #[test]
    fn incomplete_document_does_not_absorb_the_next_ones() {
        let next = r#"{"output":{"type":"text","content":"b"}}"#;
        assert_eq!(text_of(&[r#"{"output":{"type":"text","content":"a"#, next, next]), {
            r#"{"output":{"type":"text","content":"abb"#
        });
    }

    #[test]
    fn document_beyond_the_limit_is_text() {
        let (first, more) = (r#"{"output":{"type":"text","content":""#, "x".repeat(MAX_BUFFERED / 4));
        let pieces = [first, &more, &more, &more, &more, "\"}}"];
        assert_eq!(text_of(&pieces), pieces.concat());
    }

    #[test]
    fn prefixes_of_deltas_are_recognized() {
        for text in ["{", "{ ", "{\"", "{\"out", "{\"output\"", "{\"layout\":{}", "{\n \"blockId\": 1"] {
            assert!(is_delta_prefix(text), "{text}");
        }
        for text in ["{a", "{\"a", "{\"outputs\":", "{}", "[", "x", "{\"outputt"] {
            assert!(!is_delta_prefix(text), "{text}");
        }
    }
}
