//! Text and reasoning: parts that stream, that no step may cut through, and that begin with their first character.

use super::{
    super::{encode, part_metadata::About},
    MAX_ASIDE, Speech, Turn, Wire,
};
use crate::{
    event::{EncryptedEntity, Event, MessageId, Role},
    format::{Fidelity, ai_sdk::wire::data_part},
    framing::Frames,
};

impl<W: Wire> Turn<W> {
    pub(super) fn text_start(
        &mut self,
        message: &MessageId,
        role: Role,
        name: Option<&str>,
        event: &Event,
    ) -> Fidelity {
        let mut about = About::of(event);
        about.name = name.map(Into::into);
        let aside = (role != Role::Assistant).then(|| (role, String::new()));
        let fidelity = if aside.is_some() {
            Fidelity::Approximated("a message that is not the assistant's becomes a data part")
        } else {
            Fidelity::Exact
        };
        self.texts.insert(message.clone(), Speech { about, aside, ..Speech::default() });
        fidelity
    }

    pub(super) fn text_delta(
        &mut self,
        message: &MessageId,
        delta: &str,
        event: &Event,
        out: &mut Frames,
    ) -> Fidelity {
        let speech = self.texts.entry(message.clone()).or_default();
        speech.learn(event);
        if let Some((_, text)) = &mut speech.aside {
            if text.len() + delta.len() > MAX_ASIDE {
                return Fidelity::Dropped(
                    "a message that is not the assistant's is too long for a data part",
                );
            }
            text.push_str(delta);
            return Fidelity::Approximated("a message that is not the assistant's becomes a data part");
        }
        if delta.is_empty() {
            return Fidelity::Approximated("nothing was said");
        }
        if !speech.written {
            self.new_part(out);
            let speech = &mut self.texts[message];
            speech.written = true;
            self.seen.text(message);
            self.wire.text_start(out, message, &self.texts[message].about);
        }
        self.speaking = Some(message.clone());
        self.wire.text_delta(out, message, delta);
        Fidelity::Exact
    }

    pub(super) fn text_end(&mut self, message: &MessageId, event: &Event, out: &mut Frames) -> Fidelity {
        self.speaking = None;
        let Some(mut speech) = self.texts.shift_remove(message) else {
            return Fidelity::Dropped("the message is not open");
        };
        speech.learn(event);
        if let Some((role, text)) = speech.aside {
            let data = encode::build_object(|w| {
                w.str("role", role.as_str())
                    .opt_str("name", speech.about.name.as_deref())
                    .str("text", &text)
                    .opt_str("subagentId", speech.about.subagent.as_deref())
                    .opt_object("metadata", speech.about.metadata.as_ref());
            });
            self.data(out, data_part::MESSAGE, Some(message), &data.into(), false);
            return Fidelity::Approximated("a message that is not the assistant's becomes a data part");
        }
        if !speech.written {
            if !speech.about.is_told() {
                return Fidelity::Approximated("an empty message has no part");
            }
            self.new_part(out);
            self.wire.text_start(out, message, &speech.about);
        }
        let about = speech.changed.then_some(&speech.about);
        self.wire.text_end(out, message, about);
        Fidelity::Exact
    }

    pub(super) fn thought_delta(
        &mut self,
        message: &MessageId,
        delta: &str,
        event: &Event,
        out: &mut Frames,
    ) -> Fidelity {
        let speech = self.thoughts.entry(message.clone()).or_default();
        speech.learn(event);
        if delta.is_empty() {
            return Fidelity::Approximated("nothing was said");
        }
        if !speech.written {
            self.begin_thought(message, true, out);
        }
        self.wire.reasoning_delta(out, message, delta);
        Fidelity::Exact
    }

    /// Begins the part of a thought. One without text is a detail of the others where they are one part.
    pub(super) fn begin_thought(&mut self, message: &MessageId, has_text: bool, out: &mut Frames) {
        let alone = !self.thoughts.values().any(|speech| speech.written);
        if W::ONE_REASONING_PER_STEP
            && has_text
            && self.step.open
            && self.step.reasoned
            && alone
            && !self.calls.any_open()
        {
            self.finish_step(out);
        }
        self.new_part(out);
        self.step.reasoned |= has_text;
        self.seen.reasoning(message);
        let speech = &mut self.thoughts[message];
        speech.written = true;
        self.wire.reasoning_start(out, message, &self.thoughts[message].about);
    }

    /// Ends the part of the thought that was held back for its signature.
    pub(super) fn release(&mut self, out: &mut Frames) {
        if let Some((message, speech)) = self.held.take()
            && speech.written
        {
            let about = speech.changed.then_some(&speech.about);
            self.wire.reasoning_end(out, &message, about);
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
                if let Some(call) = self.calls.get_mut(id).filter(|call| call.open) {
                    call.about.encrypted = Some(value.into());
                    return Fidelity::Exact;
                }
            }
            EncryptedEntity::Message(id) => {
                if let Some((held, speech)) = &mut self.held
                    && held == id
                {
                    speech.about.encrypted = Some(value.into());
                    speech.changed = true;
                    if !speech.written {
                        self.redacted(id, out);
                    }
                    return Fidelity::Exact;
                }
                let open = self.thoughts.get_mut(id).or_else(|| self.texts.get_mut(id));
                if let Some(speech) = open {
                    speech.about.encrypted = Some(value.into());
                    speech.changed |= speech.written;
                    return Fidelity::Exact;
                }
                if self.spans > 0 && self.thoughts.is_empty() {
                    self.release(out);
                    let mut speech = Speech { about: About::of(event), ..Speech::default() };
                    speech.about.encrypted = Some(value.into());
                    self.held = Some((id.clone(), speech));
                    self.redacted(id, out);
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
        self.data(out, data_part::ENCRYPTED, Some(id), &data.into(), false);
        Fidelity::Exact
    }

    /// Writes a thought that has a signature but no text, which is in `held`.
    fn redacted(&mut self, message: &MessageId, out: &mut Frames) {
        let Some((_, speech)) = self.held.take() else {
            return;
        };
        self.thoughts.insert(message.clone(), speech);
        self.begin_thought(message, false, out);
        if let Some(speech) = self.thoughts.shift_remove(message) {
            self.wire.reasoning_end(out, message, Some(&speech.about));
        }
    }
}
