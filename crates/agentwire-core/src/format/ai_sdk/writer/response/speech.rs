//! Text and reasoning: streamed parts that start with their first character and never span steps.

use indexmap::IndexMap;

use super::{
    super::{encode, part_metadata::PartMetadata, snapshot::TextDigest},
    PartEncoder, ResponseWriter,
};
use crate::{
    event::{EncryptedEntity, Event, MessageId, Role},
    format::{Fidelity, ai_sdk::wire::data_part, manual_reasoning::ReasoningByHand},
    framing::{DEFAULT_MAX_FRAME, Frames},
};

/// Limit of the text of a message that is not the assistant's: it is written whole, in one frame.
const MAX_OTHER_TEXT: usize = DEFAULT_MAX_FRAME;

const OTHER_ROLE: Fidelity =
    Fidelity::Approximated("a message that is not the assistant's becomes a data part");

/// Open text and reasoning messages.
#[derive(Debug, Default)]
pub(super) struct Speech {
    pub(super) texts: IndexMap<MessageId, StreamedMessage>,
    /// Message of the last text delta, if its part is open and the next delta can be written without further checks.
    pub(super) last_text: Option<MessageId>,
    pub(super) reasoning: IndexMap<MessageId, StreamedMessage>,
    /// An ended reasoning message whose part stays open, because a signature may follow.
    pub(super) ended_reasoning: Option<(MessageId, StreamedMessage)>,
    /// Reasoning that the agent sends by hand.
    pub(super) by_hand: ReasoningByHand,
    /// Number of open reasoning spans.
    pub(super) open_spans: usize,
    /// Title of the last reasoning span.
    pub(super) title: Option<Box<str>>,
}

impl Speech {
    /// Adds a delta to the digest of its text, which most often is the one that was started last.
    pub(super) fn digest_text(&mut self, message: &MessageId, delta: &str) {
        let last = self.texts.last_mut().filter(|(id, _)| *id == message).map(|(_, open)| open);
        if let Some(open) = last {
            open.digest.add(delta);
        } else if let Some(open) = self.texts.get_mut(message) {
            open.digest.add(delta);
        }
    }
}

/// An open text or reasoning message.
#[derive(Debug, Default)]
pub(super) struct StreamedMessage {
    /// Its part is open on the wire.
    is_written: bool,
    /// The metadata changed since the part started.
    is_changed: bool,
    metadata: PartMetadata,
    /// Digest of the text so far.
    digest: TextDigest,
    /// Role and text so far of a message that is not the assistant's.
    other_role: Option<(Role, String)>,
}

impl StreamedMessage {
    fn merge_metadata(&mut self, event: &Event) {
        let has_metadata = self.metadata.merge(event.metadata());
        self.is_changed |= has_metadata && self.is_written;
    }

    /// Metadata for the end of the part: present if it changed since the start.
    fn changed_metadata(&self) -> Option<&PartMetadata> {
        self.is_changed.then_some(&self.metadata)
    }
}

impl<E: PartEncoder> ResponseWriter<E> {
    pub(super) fn text_start(
        &mut self,
        message: &MessageId,
        role: Role,
        name: Option<&str>,
        event: &Event,
    ) -> Fidelity {
        let mut metadata = PartMetadata::of(event);
        metadata.name = name.map(Into::into);
        let other_role = (role != Role::Assistant).then(|| (role, String::new()));
        let fidelity = if other_role.is_some() { OTHER_ROLE } else { Fidelity::Exact };
        let open = StreamedMessage { metadata, other_role, ..StreamedMessage::default() };
        self.speech.texts.insert(message.clone(), open);
        fidelity
    }

    pub(super) fn text_delta(
        &mut self,
        message: &MessageId,
        delta: &str,
        event: &Event,
        out: &mut Frames,
    ) -> Fidelity {
        let open = self.speech.texts.entry(message.clone()).or_default();
        open.merge_metadata(event);
        if let Some((_, text)) = &mut open.other_role {
            if text.len() + delta.len() > MAX_OTHER_TEXT {
                return Fidelity::Dropped(
                    "a message that is not the assistant's is too long for a data part",
                );
            }
            text.push_str(delta);
            return OTHER_ROLE;
        }
        if delta.is_empty() {
            return Fidelity::Approximated("nothing was said");
        }
        if !open.is_written {
            self.prepare_part(out);
            self.seen.add(message);
            let open = &mut self.speech.texts[message];
            open.is_written = true;
            self.encoder.text_start(out, message, &open.metadata);
        }
        self.speech.last_text = Some(message.clone());
        self.speech.digest_text(message, delta);
        self.encoder.text_delta(out, message, delta);
        Fidelity::Exact
    }

    pub(super) fn text_end(&mut self, message: &MessageId, event: &Event, out: &mut Frames) -> Fidelity {
        self.speech.last_text = None;
        let Some(mut open) = self.speech.texts.shift_remove(message) else {
            return Fidelity::Dropped("the message is not open");
        };
        open.merge_metadata(event);
        if let Some((role, text)) = open.other_role {
            let data = encode::build_object(|w| {
                w.str("role", role.as_str())
                    .opt_str("name", open.metadata.name.as_deref())
                    .str("text", &text)
                    .opt_str("subagentId", open.metadata.subagent.as_deref())
                    .opt_object("metadata", open.metadata.metadata.as_ref());
            });
            self.write_data(out, data_part::MESSAGE, Some(message), &data.into(), false);
            return OTHER_ROLE;
        }
        if !open.is_written {
            if !open.metadata.has_provider_metadata() {
                return Fidelity::Approximated("an empty message has no part");
            }
            self.prepare_part(out);
            self.encoder.text_start(out, message, &open.metadata);
        }
        self.seen.add_text(message, open.digest);
        self.encoder.text_end(out, message, open.changed_metadata());
        Fidelity::Exact
    }

    pub(super) fn reasoning_message_start(&mut self, message: &MessageId, event: &Event) {
        let mut metadata = PartMetadata::of(event);
        metadata.title = self.speech.title.take();
        let open = StreamedMessage { metadata, ..StreamedMessage::default() };
        self.speech.reasoning.insert(message.clone(), open);
    }

    pub(super) fn reasoning_delta(
        &mut self,
        message: &MessageId,
        delta: &str,
        event: &Event,
        out: &mut Frames,
    ) -> Fidelity {
        let open = self.speech.reasoning.entry(message.clone()).or_default();
        open.merge_metadata(event);
        if delta.is_empty() {
            return Fidelity::Approximated("nothing was said");
        }
        if !open.is_written {
            self.start_reasoning_part(message, true, out);
        }
        self.encoder.reasoning_delta(out, message, delta);
        Fidelity::Exact
    }

    pub(super) fn reasoning_message_end(
        &mut self,
        message: &MessageId,
        event: &Event,
        out: &mut Frames,
    ) -> Fidelity {
        let Some(mut open) = self.speech.reasoning.shift_remove(message) else {
            return Fidelity::Dropped("the message is not open");
        };
        open.merge_metadata(event);
        if !open.is_written && open.metadata.has_provider_metadata() {
            self.speech.reasoning.insert(message.clone(), open);
            self.start_reasoning_part(message, false, out);
            open = self.speech.reasoning.shift_remove(message).unwrap_or_default();
        }
        self.speech.ended_reasoning = Some((message.clone(), open));
        Fidelity::Exact
    }

    /// Starts the part of a reasoning message. Where a step holds one reasoning part, a message without text is added to
    /// that part and needs no new step.
    fn start_reasoning_part(&mut self, message: &MessageId, has_text: bool, out: &mut Frames) {
        let is_only_one = !self.speech.reasoning.values().any(|open| open.is_written);
        if E::ONE_REASONING_PER_STEP
            && has_text
            && self.steps.current.is_open
            && self.steps.current.has_reasoning
            && is_only_one
            && !self.tools.calls.has_open()
        {
            self.finish_step(out);
        }
        self.prepare_part(out);
        self.steps.current.has_reasoning |= has_text;
        self.seen.add(message);
        let open = &mut self.speech.reasoning[message];
        open.is_written = true;
        self.encoder.reasoning_start(out, message, &open.metadata);
    }

    /// Ends the reasoning part that was kept open for a signature.
    pub(super) fn end_reasoning_part(&mut self, out: &mut Frames) {
        if let Some((message, ended)) = self.speech.ended_reasoning.take()
            && ended.is_written
        {
            self.encoder.reasoning_end(out, &message, ended.changed_metadata());
        }
    }

    /// Ends all text and reasoning parts on the wire; parts of open messages start again with their next delta.
    pub(super) fn end_text_parts(&mut self, out: &mut Frames) {
        self.end_reasoning_part(out);
        self.speech.last_text = None;
        for (message, open) in &mut self.speech.texts {
            if std::mem::take(&mut open.is_written) {
                let metadata = std::mem::take(&mut open.is_changed).then_some(&open.metadata);
                self.encoder.text_end(out, message, metadata);
            }
        }
        for (message, open) in &mut self.speech.reasoning {
            if std::mem::take(&mut open.is_written) {
                let metadata = std::mem::take(&mut open.is_changed).then_some(&open.metadata);
                self.encoder.reasoning_end(out, message, metadata);
            }
        }
    }

    pub(super) fn encrypted(
        &mut self,
        entity: &EncryptedEntity,
        value: &str,
        event: &Event,
        out: &mut Frames,
    ) -> Fidelity {
        match entity {
            EncryptedEntity::ToolCall(id) => {
                if let Some(call) = self.tools.calls.get_mut(id).filter(|call| call.is_open) {
                    call.metadata.encrypted = Some(value.into());
                    return Fidelity::Exact;
                }
            }
            EncryptedEntity::Message(id) => {
                let speech = &mut self.speech;
                if let Some((ended, open)) = &mut speech.ended_reasoning
                    && ended == id
                {
                    open.metadata.encrypted = Some(value.into());
                    open.is_changed = true;
                    if !open.is_written {
                        self.write_redacted_reasoning(id, out);
                    }
                    return Fidelity::Exact;
                }
                let open = speech.reasoning.get_mut(id).or_else(|| speech.texts.get_mut(id));
                if let Some(open) = open {
                    open.metadata.encrypted = Some(value.into());
                    open.is_changed |= open.is_written;
                    return Fidelity::Exact;
                }
                if speech.open_spans > 0 && speech.reasoning.is_empty() {
                    self.end_reasoning_part(out);
                    let mut redacted =
                        StreamedMessage { metadata: PartMetadata::of(event), ..StreamedMessage::default() };
                    redacted.metadata.encrypted = Some(value.into());
                    self.speech.ended_reasoning = Some((id.clone(), redacted));
                    self.write_redacted_reasoning(id, out);
                    return Fidelity::Approximated("reasoning that cannot be read is a part of its own");
                }
            }
        }
        let (kind, id) = match entity {
            EncryptedEntity::ToolCall(id) => ("tool-call", id.as_str()),
            EncryptedEntity::Message(id) => ("message", id.as_str()),
        };
        let data = encode::build_object(|w| {
            w.str("entity", kind).str("id", id).str("value", value);
        });
        self.write_data(out, data_part::ENCRYPTED, Some(id), &data.into(), false);
        Fidelity::Exact
    }

    /// Writes the message in `ended_reasoning`, which has a signature but no text.
    fn write_redacted_reasoning(&mut self, message: &MessageId, out: &mut Frames) {
        let Some((_, redacted)) = self.speech.ended_reasoning.take() else {
            return;
        };
        self.speech.reasoning.insert(message.clone(), redacted);
        self.start_reasoning_part(message, false, out);
        if let Some(redacted) = self.speech.reasoning.shift_remove(message) {
            self.encoder.reasoning_end(out, message, Some(&redacted.metadata));
        }
    }
}
