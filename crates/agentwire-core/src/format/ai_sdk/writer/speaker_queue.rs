//! Serializes messages that stream in parallel, for protocols whose text has no message id.
//!
//! Agents that work in parallel also write text in parallel. Without ids their deltas would be mixed, so one message is
//! written at a time and the text of the others is queued until it ends.

use indexmap::IndexMap;

use crate::event::MessageId;

/// Limit of queued text; beyond it, queued text is written in order of arrival. One megabyte is many times the length of a
/// model's output.
const MAX_QUEUED: usize = 1 << 20;

/// Queue of the messages that wait for the current speaker.
#[derive(Debug, Default)]
pub(super) struct SpeakerQueue {
    speaker: Option<MessageId>,
    queued: IndexMap<MessageId, QueuedText>,
    size: usize,
}

#[derive(Debug, Default)]
struct QueuedText {
    text: String,
    has_ended: bool,
}

impl SpeakerQueue {
    /// Adds a delta; calls `write` with the text that can be written now.
    pub(super) fn push(&mut self, message: &MessageId, delta: &str, mut write: impl FnMut(&str)) {
        match &self.speaker {
            Some(speaker) if speaker == message => return write(delta),
            Some(_) => {}
            None => {
                self.speaker = Some(message.clone());
                return write(delta);
            }
        }
        self.queued.entry(message.clone()).or_default().text.push_str(delta);
        self.size += delta.len();
        if self.size > MAX_QUEUED {
            self.size = 0;
            for queued in self.queued.values_mut() {
                write(&std::mem::take(&mut queued.text));
            }
            self.queued.retain(|_, queued| !queued.has_ended);
        }
    }

    /// Ends a message; the next queued one becomes the speaker.
    pub(super) fn end(&mut self, message: &MessageId, mut write: impl FnMut(&str)) {
        if self.speaker.as_ref() != Some(message) {
            if let Some(queued) = self.queued.get_mut(message) {
                queued.has_ended = true;
            }
            return;
        }
        self.speaker = None;
        while self.speaker.is_none()
            && let Some((message, queued)) = self.queued.shift_remove_index(0)
        {
            self.size -= queued.text.len().min(self.size);
            if !queued.text.is_empty() {
                write(&queued.text);
            }
            if !queued.has_ended {
                self.speaker = Some(message);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parallel_messages_are_written_one_after_the_other() {
        let (a, b, c): (MessageId, MessageId, MessageId) = ("a".into(), "b".into(), "c".into());
        let mut queue = SpeakerQueue::default();
        let mut written = String::new();
        let mut write = |text: &str| written.push_str(text);
        queue.push(&a, "a1", &mut write);
        queue.push(&b, "b1", &mut write);
        queue.push(&c, "c1", &mut write);
        queue.push(&a, "a2", &mut write);
        queue.end(&b, &mut write);
        queue.end(&a, &mut write);
        queue.push(&c, "c2", &mut write);
        queue.end(&c, &mut write);
        assert_eq!(written, "a1a2b1c1c2");
    }

    #[test]
    fn queued_text_is_bounded() {
        let mut queue = SpeakerQueue::default();
        queue.push(&"a".into(), "x", |_| {});
        let mut written = 0;
        for _ in 0..3 {
            queue.push(&"b".into(), &"y".repeat(MAX_QUEUED / 2 + 1), |text| written += text.len());
        }
        assert!(written > MAX_QUEUED);
        assert!(queue.size <= MAX_QUEUED);
    }
}
