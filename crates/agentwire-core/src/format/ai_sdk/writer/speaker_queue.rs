//! Keeps texts that stream at the same time apart where the wire has no ids.
//!
//! Agents that work in parallel speak in parallel. A wire whose text has no id would mix their words, so one
//! message speaks at a time and the others wait until it has ended.

use indexmap::IndexMap;

use crate::event::MessageId;

/// The most text that waits; beyond it, text is let through in the order in which it comes. A megabyte is
/// many times what a model writes in one answer.
const MAX_WAITING: usize = 1 << 20;

/// Whose turn it is to speak.
#[derive(Debug, Default)]
pub(super) struct SpeakerQueue {
    speaker: Option<MessageId>,
    waiting: IndexMap<MessageId, Waiting>,
    size: usize,
}

#[derive(Debug, Default)]
struct Waiting {
    text: String,
    ended: bool,
}

impl SpeakerQueue {
    /// Takes in a piece; hands to `say` what may be said now.
    pub(super) fn push(&mut self, message: &MessageId, delta: &str, mut say: impl FnMut(&str)) {
        match &self.speaker {
            Some(speaker) if speaker == message => return say(delta),
            Some(_) => {}
            None => {
                self.speaker = Some(message.clone());
                return say(delta);
            }
        }
        self.waiting.entry(message.clone()).or_default().text.push_str(delta);
        self.size += delta.len();
        if self.size > MAX_WAITING {
            self.size = 0;
            for waiting in self.waiting.values_mut() {
                say(&std::mem::take(&mut waiting.text));
            }
            self.waiting.retain(|_, waiting| !waiting.ended);
        }
    }

    /// A message has ended: the next one may speak.
    pub(super) fn end(&mut self, message: &MessageId, mut say: impl FnMut(&str)) {
        if self.speaker.as_ref() != Some(message) {
            if let Some(waiting) = self.waiting.get_mut(message) {
                waiting.ended = true;
            }
            return;
        }
        self.speaker = None;
        while self.speaker.is_none()
            && let Some((message, waiting)) = self.waiting.shift_remove_index(0)
        {
            self.size -= waiting.text.len().min(self.size);
            if !waiting.text.is_empty() {
                say(&waiting.text);
            }
            if !waiting.ended {
                self.speaker = Some(message);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parallel_texts_are_told_one_after_the_other() {
        let (a, b, c): (MessageId, MessageId, MessageId) = ("a".into(), "b".into(), "c".into());
        let mut lane = SpeakerQueue::default();
        let mut said = String::new();
        let mut say = |text: &str| said.push_str(text);
        lane.push(&a, "a1", &mut say);
        lane.push(&b, "b1", &mut say);
        lane.push(&c, "c1", &mut say);
        lane.push(&a, "a2", &mut say);
        lane.end(&b, &mut say);
        lane.end(&a, &mut say);
        lane.push(&c, "c2", &mut say);
        lane.end(&c, &mut say);
        assert_eq!(said, "a1a2b1c1c2");
    }

    #[test]
    fn waiting_text_is_bounded() {
        let mut lane = SpeakerQueue::default();
        lane.push(&"a".into(), "x", |_| {});
        let mut said = 0;
        for _ in 0..3 {
            lane.push(&"b".into(), &"y".repeat(MAX_WAITING / 2 + 1), |text| said += text.len());
        }
        assert!(said > MAX_WAITING);
        assert!(lane.size <= MAX_WAITING);
    }
}
