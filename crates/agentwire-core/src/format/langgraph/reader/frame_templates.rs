//! The fast lane: a chunk that differs from an earlier one in a single string.
//!
//! A model's chunks are a thousand bytes each, and all of one answer are equal but for the piece of text they
//! carry. Once a frame has been read the long way, the bytes before and after its text are kept. Another frame
//! with the same bytes around a JSON string is the same chunk with another text, and is not parsed again: two
//! comparisons and one string. Anything else takes the long way.

use indexmap::IndexMap;
use serde_json::value::RawValue;

use super::{super::raw_json::Key, model_stream::Lane};
use crate::{
    event::{Body, Event, MessageId, SubagentId},
    tally::Tally,
};

/// As many answers as stream at the same time in most graphs, so that a fan-out takes the fast lane too; each
/// costs a copy of a frame.
const MAX_TEMPLATES: usize = 16;

/// Larger frames carry more than a piece of text.
const MAX_FRAME: usize = 16 * 1024;

#[derive(Debug, Default)]
pub(super) struct Templates {
    known: Vec<Template>,
    next: usize,
}

#[derive(Debug)]
struct Template {
    head: Box<str>,
    tail: Box<str>,
    lane: Box<str>,
    message: MessageId,
    owner: Option<SubagentId>,
    is_text: bool,
}

impl Templates {
    /// Keeps the bytes around `hole`, which lies inside `frame`.
    pub(super) fn learn(
        &mut self,
        frame: &str,
        hole: &RawValue,
        lane: &str,
        message: &MessageId,
        owner: Option<&SubagentId>,
        is_text: bool,
    ) {
        let start = (hole.get().as_ptr() as usize).wrapping_sub(frame.as_ptr() as usize);
        let (Some(head), Some(tail)) =
            (frame.get(..start), frame.get(start.saturating_add(hole.get().len())..))
        else {
            // The string was not borrowed from this frame.
            return;
        };
        if frame.len() > MAX_FRAME {
            return;
        }
        let template = Template {
            head: head.into(),
            tail: tail.into(),
            lane: lane.into(),
            message: message.clone(),
            owner: owner.cloned(),
            is_text,
        };
        // A new shape of the same answer takes the place of the old one.
        if let Some(old) = self.known.iter_mut().find(|old| *old.lane == *lane && old.is_text == is_text) {
            *old = template;
        } else if self.known.len() < MAX_TEMPLATES {
            self.known.push(template);
        } else {
            self.next = (self.next + 1) % MAX_TEMPLATES;
            self.known[self.next] = template;
        }
    }

    /// Forgets an answer that is complete.
    pub(super) fn forget(&mut self, lane: &str) {
        self.known.retain(|template| *template.lane != *lane);
        self.next = 0;
    }

    /// Reads `frame` if it is one of the known shapes.
    pub(super) fn fill(
        &self,
        frame: &str,
        lanes: &mut IndexMap<Box<str>, Lane>,
        tally: &mut Tally,
        out: &mut Vec<Event>,
    ) -> bool {
        let hole = self.known.iter().find_map(|template| {
            let hole = frame.strip_prefix(&*template.head)?.strip_suffix(&*template.tail)?;
            hole.starts_with('"').then_some((template, hole))
        });
        let Some((template, hole)) = hole else { return false };
        // Exactly one string, or it is not the same frame after all.
        let Ok(Key(text)) = serde_json::from_str::<Key<'_>>(hole) else { return false };
        let Some(lane) = lanes.get_mut(&*template.lane) else { return false };
        let open = match template.is_text {
            true => lane.more_text(&template.message),
            false => lane.more_reasoning(&template.message),
        };
        if !open {
            return false;
        }
        if text.is_empty() {
            return true;
        }
        if memchr::memchr(0, text.as_bytes()).is_some() {
            tally.note("character", "U+0000");
        }
        let length = text.len();
        let (message, delta) = (template.message.clone(), text.into());
        let body = if template.is_text {
            lane.sent_text(length);
            Body::TextDelta { message, delta }
        } else {
            Body::ReasoningDelta { message, delta }
        };
        out.push(Event::new(body).by(template.owner.clone()));
        true
    }
}
