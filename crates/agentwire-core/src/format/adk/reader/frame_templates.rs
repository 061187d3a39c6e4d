//! Fast path: partial events that differ from an earlier one in text, id, timestamp and token counts only.
//!
//! An event of ADK has about four hundred bytes, and the partial events of one turn repeat nearly all of them. After a
//! frame was parsed, it is kept as a template, with the places of these values as slots. A frame with the same bytes
//! around one JSON value per slot has the same members, so only the slots are parsed. The event is then read like any
//! other. All other frames are parsed.

use std::{borrow::Cow, ops::Range};

use serde_json::value::RawValue;

use super::USER;
use crate::format::adk::wire::{AdkContent, AdkEvent, AdkNumber, AdkPart, AdkText, NodeInfo, PartList};

/// Bound on the templates: the agents that stream at the same time in most workflows.
const MAX_TEMPLATES: usize = 8;

/// Bound on the frame size; larger frames contain more than a piece of text.
const MAX_FRAME: usize = 16 * 1024;

/// Templates that are stored without a match before the reader stops to store them: its source never repeats a frame.
const MAX_VAIN: u32 = 32;

/// The templates of the turns that stream.
#[derive(Debug, Default)]
pub(super) struct FrameTemplates {
    all: Vec<FrameTemplate>,
    /// The template of the last match, which is nearly always the next one too.
    last: usize,
    /// Templates stored since the last match.
    vain: u32,
    #[cfg(test)]
    pub(super) matched: usize,
}

/// A parsed frame.
#[derive(Debug)]
struct FrameTemplate {
    frame: Box<str>,
    /// In the order of the frame.
    slots: Vec<(Slot, Range<usize>)>,
    invocation: Option<Box<str>>,
    author: Box<str>,
    branch: Option<Box<str>>,
    path: Option<Box<str>>,
    model: Option<Box<str>>,
    is_thought: bool,
}

/// A value that differs between frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Slot {
    Text,
    Id,
    Timestamp,
    /// Token counts, which are ignored in partial events.
    Usage,
}

impl FrameTemplates {
    /// The event of `frame`, if a template matches, and the index of that template.
    pub(super) fn read<'f>(&'f self, frame: &'f str) -> Option<(usize, AdkEvent<'f>)> {
        let count = self.all.len();
        let candidates = (0..count).map(|turn| (self.last + turn) % count);
        candidates.into_iter().find_map(|index| {
            let template = &self.all[index];
            Some((index, template.event(template.slot_values(frame)?)))
        })
    }

    /// Notes that the template at `index` has matched.
    pub(super) fn note_match(&mut self, index: usize) {
        self.last = index;
        self.vain = 0;
        #[cfg(test)]
        {
            self.matched += 1;
        }
    }

    /// Stores `frame`, which was parsed as `event`, if it is a partial event with nothing but text.
    pub(super) fn store(&mut self, frame: &str, event: &AdkEvent<'_>) {
        if self.vain >= MAX_VAIN || frame.len() > MAX_FRAME {
            return;
        }
        let Some(template) = FrameTemplate::of(frame, event) else { return };
        self.vain += 1;
        if let Some(index) = self.all.iter().position(|known| known.is_of_same_stream(&template)) {
            self.all[index] = template;
            self.last = index;
        } else if self.all.len() < MAX_TEMPLATES {
            self.last = self.all.len();
            self.all.push(template);
        } else {
            self.last = (self.last + 1) % MAX_TEMPLATES;
            self.all[self.last] = template;
        }
    }
}

impl FrameTemplate {
    /// The template of an event in which only the slots matter.
    fn of(frame: &str, event: &AdkEvent<'_>) -> Option<Self> {
        // Every member is named, so that a new one cannot be forgotten here.
        let AdkEvent {
            id,
            invocation,
            author: Some(author),
            timestamp,
            branch,
            isolation_scope: None,
            node,
            content: Some(AdkContent { role: _, parts: Some(parts), unknown: _ }),
            partial: Some(true),
            turn_complete: None,
            interrupted: None,
            finish_reason: None,
            error_code: None,
            error_message: None,
            long_running: None,
            // Partial events have no effect but their content.
            actions: _,
            output: None,
            usage,
            grounding: None,
            citations: None,
            custom_metadata: None,
            input_transcription: None,
            output_transcription: None,
            model,
            error: None,
            error_details: None,
            detail: None,
            events: None,
            state: None,
            unknown,
        } = event
        else {
            return None;
        };
        let PartList { first: Some(part), rest } = parts else { return None };
        let AdkPart {
            text: Some(text),
            thought,
            signature: None,
            call: None,
            response: None,
            inline: None,
            file: None,
            code: None,
            code_result: None,
            video: None,
            unknown: unknown_in_part,
        } = part
        else {
            return None;
        };
        if !rest.is_empty() || !unknown.is_empty() || !unknown_in_part.is_empty() || author.as_str() == USER {
            return None;
        }
        let path = match node {
            None => None,
            Some(NodeInfo { path, output_for: None, message_as_output: None, unknown: _ }) => path.as_ref(),
            Some(_) => return None,
        };
        let mut slots = vec![(Slot::Text, string_range(frame, text)?)];
        if let Some(id) = id {
            slots.push((Slot::Id, string_range(frame, id)?));
        }
        if let Some(timestamp) = timestamp {
            slots.push((Slot::Timestamp, range(frame, timestamp.text)?));
        }
        if let Some(usage) = usage {
            slots.push((Slot::Usage, range(frame, usage.get())?));
        }
        slots.sort_by_key(|(_, range)| range.start);
        let boxed = |text: &AdkText<'_>| Box::from(text.as_str());
        Some(Self {
            frame: frame.into(),
            slots,
            invocation: invocation.as_ref().map(boxed),
            author: boxed(author),
            branch: branch.as_ref().map(boxed),
            path: path.map(boxed),
            model: model.as_ref().map(boxed),
            is_thought: *thought == Some(true),
        })
    }

    /// True if both are templates of one agent and kind of text, so that one replaces the other.
    fn is_of_same_stream(&self, other: &Self) -> bool {
        self.author == other.author
            && self.invocation == other.invocation
            && self.branch == other.branch
            && self.path == other.path
            && self.is_thought == other.is_thought
    }

    /// The values in the slots, if `frame` has the same bytes around them.
    fn slot_values<'f>(&self, frame: &'f str) -> Option<SlotValues<'f>> {
        let mut values = SlotValues::default();
        let (mut rest, mut fixed) = (frame, 0);
        for (slot, range) in &self.slots {
            rest = rest.strip_prefix(&self.frame[fixed..range.start])?;
            let length = values.read(*slot, rest)?;
            (rest, fixed) = (&rest[length..], range.end);
        }
        (*rest == self.frame[fixed..]).then_some(values)
    }

    /// The event with these values.
    fn event<'f>(&'f self, values: SlotValues<'f>) -> AdkEvent<'f> {
        let text = |text: &'f Option<Box<str>>| text.as_deref().map(AdkText::from);
        let path = text(&self.path);
        let part =
            AdkPart { text: values.text, thought: self.is_thought.then_some(true), ..AdkPart::default() };
        let parts = PartList { first: Some(part), rest: Vec::new() };
        AdkEvent {
            id: values.id,
            invocation: text(&self.invocation),
            author: Some(AdkText::from(&*self.author)),
            timestamp: values.timestamp,
            branch: text(&self.branch),
            node: path.map(|path| NodeInfo { path: Some(path), ..NodeInfo::default() }),
            content: Some(AdkContent { parts: Some(parts), ..AdkContent::default() }),
            partial: Some(true),
            model: text(&self.model),
            ..AdkEvent::default()
        }
    }
}

/// The values in the slots of a frame.
#[derive(Default)]
struct SlotValues<'f> {
    text: Option<AdkText<'f>>,
    id: Option<AdkText<'f>>,
    timestamp: Option<AdkNumber<'f>>,
}

impl<'f> SlotValues<'f> {
    /// Reads the JSON value at the start of `rest` and returns its length; `None` if it is of another kind.
    fn read(&mut self, slot: Slot, rest: &'f str) -> Option<usize> {
        let length;
        match slot {
            Slot::Text => (self.text, length) = string(rest)?,
            Slot::Id => (self.id, length) = string(rest)?,
            Slot::Timestamp => {
                let is_part = |byte: &u8| matches!(byte, b'0'..=b'9' | b'.' | b'-' | b'+' | b'e' | b'E');
                length = rest.bytes().take_while(is_part).count();
                let text = &rest[..length];
                self.timestamp = Some(AdkNumber { value: serde_json::from_str(text).ok()?, text });
            }
            Slot::Usage => {
                let mut values = serde_json::Deserializer::from_str(rest).into_iter::<&RawValue>();
                values.next()?.ok()?;
                length = values.byte_offset();
            }
        }
        Some(length)
    }
}

/// The JSON string at the start of `rest`, and its length with the quotes.
fn string(rest: &str) -> Option<(Option<AdkText<'_>>, usize)> {
    let bytes = rest.as_bytes();
    if bytes.first() != Some(&b'"') {
        return None;
    }
    let (mut end, mut is_plain) = (1, true);
    loop {
        end += memchr::memchr2(b'"', b'\\', bytes.get(end..)?)?;
        if bytes[end] == b'"' {
            break;
        }
        is_plain = false;
        end += 2;
    }
    let content = &rest[1..end];
    is_plain &= !content.bytes().fold(false, |found, byte| found | (byte < 0x20));
    let text = if is_plain { AdkText::from(content) } else { serde_json::from_str(&rest[..=end]).ok()? };
    Some((Some(text), end + 1))
}

/// The range of a string in `frame`, with its quotes; `None` if it was not borrowed from there.
fn string_range(frame: &str, text: &AdkText<'_>) -> Option<Range<usize>> {
    let Cow::Borrowed(text) = text.0 else { return None };
    let inside = range(frame, text)?;
    Some(inside.start.checked_sub(1)?..inside.end + 1)
}

/// The range of `part` in `frame`; `None` if it was not borrowed from there.
fn range(frame: &str, part: &str) -> Option<Range<usize>> {
    let start = (part.as_ptr() as usize).wrapping_sub(frame.as_ptr() as usize);
    let range = start..start.checked_add(part.len())?;
    (frame.get(range.clone()) == Some(part)).then_some(range)
}

#[cfg(test)]
mod tests {
    use crate::{
        event::StreamEnd,
        format::{
            Reader,
            adk::{options::AdkReaderOptions, reader::AdkReader},
        },
        framing::{Frame, Payload},
    };

    /// The values of one frame, as JSON text.
    #[derive(Clone, Copy)]
    struct Values<'v> {
        text: &'v str,
        id: &'v str,
        timestamp: &'v str,
        usage: &'v str,
        author: &'v str,
        end: &'v str,
    }

    const VALUES: Values<'_> = Values {
        text: r#""a ""#,
        id: r#""e1""#,
        timestamp: "1760007000.026",
        usage: r#"{"promptTokenCount":1}"#,
        author: "agent",
        end: "}",
    };

    fn frame(values: Values<'_>) -> String {
        let Values { text, id, timestamp, usage, author, end } = values;
        format!(
            r#"{{"modelVersion":"m","content":{{"parts":[{{"text":{text}}}],"role":"model"}},"partial":true,"usageMetadata":{usage},"invocationId":"i","author":"{author}","actions":{{"stateDelta":{{}}}},"nodeInfo":{{"path":"{author}@1"}},"id":{id},"timestamp":{timestamp}{end}"#
        )
    }

    /// The events of the frames, whether each frame was valid, the tolerated deviations and the number of matches.
    fn read(frames: &[String]) -> (String, Vec<bool>, usize) {
        let mut reader = AdkReader::new(AdkReaderOptions::of_stored_session());
        let mut events = Vec::new();
        let mut read = |(index, text): (usize, &String)| {
            let index = index as u64;
            let frame = Frame { index, offset: 0, event: None, id: None, data: Payload::Text(text) };
            reader.read(&frame, &mut events).is_ok()
        };
        let valid = frames.iter().enumerate().map(&mut read).collect();
        reader.end(&StreamEnd::Closed, &mut events);
        let matched = reader.templates.matched;
        (format!("{events:?} {:?}", reader.tally()), valid, matched)
    }

    /// Compares the frames with the same ones in a spelling that no template matches.
    fn check(frames: &[String]) -> usize {
        let unlike =
            |(index, frame): (usize, &String)| frame.replacen('{', &format!("{{{:1$}", "", index + 1), 1);
        let parsed: Vec<String> = frames.iter().enumerate().map(unlike).collect();
        let (expected, expected_valid, none) = read(&parsed);
        assert_eq!(none, 0);
        let (found, valid, matched) = read(frames);
        assert_eq!((found, valid), (expected, expected_valid), "{frames:#?}");
        matched
    }

    #[test]
    fn every_value_in_a_slot_is_read_as_by_the_parser() {
        let texts = [
            r#""""#,
            r#""é漢🦀""#,
            r#""a\n\"\u00e9\\""#,
            r#""\ud83d""#,
            r#""\ud83e\udd80""#,
            "\"\u{1}\"",
            "\"a\nb\"",
            "\"\u{7f}\"",
            "7",
            "null",
            "{}",
            r#""a","thought":true"#,
            r#""a"},{"text":"b""#,
            r#""open"#,
            r#""a\"#,
            "",
            r#""\x""#,
            r#""a" "#,
            r#""a"b"#,
            r#""a","other":1"#,
            r#""a","text":"c""#,
        ];
        let numbers = [
            "1",
            "-0",
            "1.5e3",
            "1E+2",
            "01",
            "1.",
            "-",
            "+1",
            "1e999",
            "\"1\"",
            "null",
            "true",
            "1 ",
            "1,\"partial\":false",
            "",
        ];
        let ids = [r#""""#, r#""z""#, r#""\u0041""#, "3", "null", r#""e1","branch":"b""#, r#""\ud800""#];
        let usages = [
            "{}",
            "null",
            "7",
            r#"{"a":[1,{"b":"}"}]}"#,
            "[",
            "{\"a\":}",
            "\"x\"",
            "{} ",
            "{},\"errorCode\":\"X\"",
            "{},\"finishReason\":\"STOP\"",
            "01",
        ];
        let ends = ["} ", "}}", "", ",\"interrupted\":true}", ",\"unknown\":1}", ",\"text\":\"x\"}", "}{}"];
        let mut changed: Vec<Values<'_>> = Vec::new();
        changed.extend(texts.map(|text| Values { text, ..VALUES }));
        changed.extend(numbers.map(|timestamp| Values { timestamp, ..VALUES }));
        changed.extend(ids.map(|id| Values { id, ..VALUES }));
        changed.extend(usages.map(|usage| Values { usage, ..VALUES }));
        changed.extend(ends.map(|end| Values { end, ..VALUES }));
        changed.extend(["user", "other"].map(|author| Values { author, ..VALUES }));
        for values in changed {
            let other = Values { text: "\"b\"", timestamp: "1760007001", id: "\"e2\"", ..VALUES };
            let frames = [VALUES, other, values, other, VALUES].map(frame);
            assert!(check(&frames) >= 2, "{frames:#?}");
        }
    }

    #[test]
    fn agents_at_once_have_a_template_each() {
        let authors = ["a", "b", "c"];
        let mut frames = Vec::new();
        for round in 0..20 {
            let text = format!("\"{round} \"");
            frames.extend(authors.map(|author| frame(Values { text: &text, author, ..VALUES })));
        }
        assert_eq!(check(&frames), frames.len() - authors.len());
    }

    #[test]
    fn frames_that_never_repeat_stop_being_stored() {
        let mut frames: Vec<String> = Vec::new();
        for round in 0..100 {
            // The model differs, so that no frame is like the one before.
            frames.push(frame(VALUES).replace("\"m\"", &format!("\"m{round}\"")));
        }
        assert_eq!(check(&frames), 0);
    }

    #[test]
    fn a_recorded_answer_is_read_by_its_template() {
        let recording = include_str!("../fixtures/long_2000.jsonl");
        let frames: Vec<String> = recording.lines().map(str::to_owned).collect();
        assert!(check(&frames) >= 1_990);
    }
}
