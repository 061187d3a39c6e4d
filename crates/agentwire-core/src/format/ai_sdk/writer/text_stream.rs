//! The text stream: what the assistant says, and nothing else.

use indexmap::IndexSet;

use super::speaker_queue::SpeakerQueue;
use crate::{
    event::{Body, Event, MessageId, Role},
    format::{Fidelity, Writer},
    framing::Frames,
};

const TEXT_ONLY: Fidelity = Fidelity::Dropped("a text stream holds text only");

/// Writes the assistant's text.
#[derive(Debug, Default)]
pub(super) struct TextWriter {
    lane: SpeakerQueue,
    /// Open messages that are not the assistant's.
    others: IndexSet<MessageId>,
}

impl Writer for TextWriter {
    fn write(&mut self, event: &Event, out: &mut Frames) -> Fidelity {
        let mut say = |text: &str| {
            out.begin("").extend_from_slice(text.as_bytes());
            out.commit();
        };
        match &event.body {
            Body::TextStart { message, role, .. } => {
                if role.is_some_and(|role| role != Role::Assistant) {
                    self.others.insert(message.clone());
                    return TEXT_ONLY;
                }
                Fidelity::Approximated("where a message begins cannot be told")
            }
            Body::TextDelta { message, .. } | Body::TextEnd { message } if self.others.contains(message) => {
                if matches!(event.body, Body::TextEnd { .. }) {
                    self.others.swap_remove(message);
                }
                TEXT_ONLY
            }
            Body::TextDelta { message, delta } => {
                self.lane.push(message, delta, &mut say);
                Fidelity::Exact
            }
            Body::TextEnd { message } => {
                self.lane.end(message, &mut say);
                Fidelity::Approximated("where a message ends cannot be told")
            }
            _ => TEXT_ONLY,
        }
    }
}
