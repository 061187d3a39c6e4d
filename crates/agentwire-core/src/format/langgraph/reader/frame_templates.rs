//! Fast path: chunks that differ from an earlier one in a single string.
//!
//! A chunk of a model has about a thousand bytes, and all chunks of one message are equal except for their text.
//! After a frame was parsed, the bytes before and after its text are kept as a template. A frame with the same
//! bytes around a JSON string is the same chunk with another text and is not parsed: two comparisons and one
//! string. All other frames are parsed.

use std::borrow::Cow;

use indexmap::IndexMap;
use serde_json::value::RawValue;

use super::{super::raw_json::BorrowedStr, model_stream::ModelStream};
use crate::{
    event::{Body, Event, MessageId, SubagentId},
    json,
    tally::Tally,
};

/// Bound on the templates: the concurrent messages of most graphs, so that a fan-out takes the fast path too. Each
/// template costs a copy of a frame.
const MAX_TEMPLATES: usize = 16;

/// Bound on the frame size; larger frames contain more than a text delta.
const MAX_FRAME: usize = 16 * 1024;

/// The templates of the messages that stream.
#[derive(Debug, Default)]
pub(super) struct FrameTemplates {
    templates: Vec<FrameTemplate>,
    next: usize,
}

#[derive(Debug)]
struct FrameTemplate {
    head: Box<str>,
    tail: Box<str>,
    stream: Box<str>,
    /// The index of `stream` among the streams when the template was stored: it is tried before the search by key.
    stream_index: usize,
    message: MessageId,
    owner: Option<SubagentId>,
    is_text: bool,
}

impl FrameTemplates {
    /// Stores the bytes around `slot`, which is a part of `frame`.
    pub(super) fn store(
        &mut self,
        frame: &str,
        slot: &RawValue,
        (stream_index, stream): (usize, &str),
        message: &MessageId,
        owner: Option<&SubagentId>,
        is_text: bool,
    ) {
        let start = (slot.get().as_ptr() as usize).wrapping_sub(frame.as_ptr() as usize);
        let (Some(head), Some(tail)) =
            (frame.get(..start), frame.get(start.saturating_add(slot.get().len())..))
        else {
            // The string was not borrowed from this frame.
            return;
        };
        if frame.len() > MAX_FRAME {
            return;
        }
        let template = FrameTemplate {
            head: head.into(),
            tail: tail.into(),
            stream: stream.into(),
            stream_index,
            message: message.clone(),
            owner: owner.cloned(),
            is_text,
        };
        // A template replaces the previous one of the same message.
        if let Some(old) =
            self.templates.iter_mut().find(|old| *old.stream == *stream && old.is_text == is_text)
        {
            *old = template;
        } else if self.templates.len() < MAX_TEMPLATES {
            self.templates.push(template);
        } else {
            self.next = (self.next + 1) % MAX_TEMPLATES;
            self.templates[self.next] = template;
        }
    }

    /// Removes the templates of a message that has ended.
    pub(super) fn remove(&mut self, stream: &str) {
        self.templates.retain(|template| *template.stream != *stream);
        self.next = 0;
    }

    /// Reads `frame` if it matches a template.
    pub(super) fn read_frame(
        &self,
        frame: &str,
        streams: &mut IndexMap<Box<str>, ModelStream>,
        tally: &mut Tally,
        out: &mut Vec<Event>,
    ) -> bool {
        let slot = self.templates.iter().find_map(|template| {
            let slot = frame.strip_prefix(&*template.head)?.strip_suffix(&*template.tail)?;
            slot.starts_with('"').then_some((template, slot))
        });
        let Some((template, slot)) = slot else { return false };
        // The slot must be exactly one string.
        let (text, has_escapes) = match plain_string(slot) {
            Some(text) => (Cow::Borrowed(text), false),
            None => match serde_json::from_str::<BorrowedStr<'_>>(slot) {
                Ok(BorrowedStr(text)) => (text, true),
                Err(_) => return false,
            },
        };
        let Some(stream) = template.find_stream(streams) else { return false };
        let is_open = match template.is_text {
            true => stream.is_text_open(&template.message),
            false => stream.is_reasoning_open(&template.message),
        };
        if !is_open {
            return false;
        }
        if text.is_empty() {
            return true;
        }
        if has_escapes && memchr::memchr(0, text.as_bytes()).is_some() {
            tally.note("character", "U+0000");
        }
        let length = text.len();
        let (message, delta) = (template.message.clone(), text.into());
        let body = if template.is_text {
            stream.count_text(length);
            Body::TextDelta { message, delta }
        } else {
            Body::ReasoningDelta { message, delta }
        };
        out.push(Event::new(body).by(template.owner.clone()));
        true
    }
}

impl FrameTemplate {
    fn find_stream<'s>(
        &self,
        streams: &'s mut IndexMap<Box<str>, ModelStream>,
    ) -> Option<&'s mut ModelStream> {
        match streams.get_index(self.stream_index) {
            Some((key, _)) if *key == self.stream => {
                streams.get_index_mut(self.stream_index).map(|(_, stream)| stream)
            }
            _ => streams.get_mut(&*self.stream),
        }
    }
}

/// The text of a JSON string that has no escapes and no characters that would need one.
fn plain_string(json: &str) -> Option<&str> {
    let text = json.strip_prefix('"')?.strip_suffix('"')?;
    json::is_plain(text).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_strings_are_those_that_need_no_parser() {
        let chars = (0..0x300).filter_map(char::from_u32).chain(['漢', '🦀']);
        for char in chars.filter(|char| *char != '\\') {
            for json in
                [format!("\"{char}\""), format!("\"a{char}b\""), format!("\"{}{char}\"", "x".repeat(99))]
            {
                let parsed = serde_json::from_str::<BorrowedStr<'_>>(&json).ok();
                let expected = parsed.as_ref().map(|parsed| &*parsed.0);
                assert_eq!(plain_string(&json), expected, "{json:?}");
            }
        }
        assert_eq!(plain_string("\"\""), Some(""));
        for other in ["\"", "\"\\\"", "\"a\",\"b\"", "\"a\\n\"", "1", ""] {
            assert_eq!(plain_string(other), None, "{other}");
        }
    }
}
