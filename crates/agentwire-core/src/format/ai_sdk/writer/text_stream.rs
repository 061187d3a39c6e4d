//! Text stream: the assistant's text and nothing else.

use indexmap::IndexSet;

use super::speaker_queue::SpeakerQueue;
use crate::{
    event::{Body, Event, MessageId, Role},
    format::{Fidelity, Writer},
    framing::Frames,
};

const TEXT_ONLY: Fidelity = Fidelity::Dropped("a text stream holds text only");

/// Writer of the text stream.
#[derive(Debug, Default)]
pub(super) struct TextStreamWriter {
    queue: SpeakerQueue,
    /// Open messages of other roles than the assistant.
    other_roles: IndexSet<MessageId>,
}

impl Writer for TextStreamWriter {
    fn write(&mut self, event: &Event, out: &mut Frames) -> Fidelity {
        let mut write_text = |text: &str| {
            out.begin("").extend_from_slice(text.as_bytes());
            out.commit();
        };
        match &event.body {
            Body::TextStart { message, role, .. } => {
                if role.is_some_and(|role| role != Role::Assistant) {
                    self.other_roles.insert(message.clone());
                    return TEXT_ONLY;
                }
                Fidelity::Approximated("where a message begins cannot be told")
            }
            Body::TextDelta { message, .. } | Body::TextEnd { message }
                if self.other_roles.contains(message) =>
            {
                if matches!(event.body, Body::TextEnd { .. }) {
                    self.other_roles.swap_remove(message);
                }
                TEXT_ONLY
            }
            Body::TextDelta { message, delta } => {
                self.queue.push(message, delta, &mut write_text);
                Fidelity::Exact
            }
            Body::TextEnd { message } => {
                self.queue.end(message, &mut write_text);
                Fidelity::Approximated("where a message ends cannot be told")
            }
            _ => TEXT_ONLY,
        }
    }
}
