//! One choice of a response: a message in the making.

use super::{
    citations::{self, part_id},
    reasoning_details::Details,
    tool_calls::{self, Call, Piece},
};
use crate::{
    event::{Body, EncryptedEntity, Event, MediaKind, MessageId, PartSource, Role, ToolCallId},
    json::{Json, Object},
    tally::Tally,
};

/// How many calls a choice may have; OpenAI allows 128 tools.
const MAX_CALLS: usize = 1024;
/// How much sound is held, in Base64: half an hour of 16-bit samples at 24 kHz would be more, an answer is not.
const MAX_SOUND: usize = 64 * 1024 * 1024;

#[derive(Debug)]
pub(super) struct Choice {
    pub(super) index: u32,
    pub(super) message: MessageId,
    /// Something of the message itself was passed on.
    said: bool,
    text_is_open: bool,
    /// The refusal, while it is open.
    refusal: Option<MessageId>,
    refusals: u32,
    /// The thought that is open.
    thought: Option<MessageId>,
    /// The last thought.
    last_thought: Option<MessageId>,
    thoughts: u32,
    pub(super) details: Details,
    calls: Vec<Call>,
    sound: String,
    files: u32,
    /// Why the model stopped, if it has.
    pub(super) finished: Option<Box<str>>,
}

/// Where a choice puts what it makes.
pub(super) struct Sink<'s> {
    pub(super) out: &'s mut Vec<Event>,
    pub(super) tally: &'s mut Tally,
}

impl Sink<'_> {
    fn push(&mut self, body: Body) {
        self.out.push(Event::new(body));
    }
}

impl Choice {
    pub(super) fn new(index: u32, message: MessageId) -> Self {
        Self {
            index,
            message,
            said: false,
            text_is_open: false,
            refusal: None,
            refusals: 0,
            thought: None,
            last_thought: None,
            thoughts: 0,
            details: Details::default(),
            calls: Vec::new(),
            sound: String::new(),
            files: 0,
            finished: None,
        }
    }

    /// A piece of the answer.
    pub(super) fn text(&mut self, delta: &str, sink: &mut Sink<'_>) {
        if delta.is_empty() {
            return;
        }
        self.close_thought(sink);
        self.close_refusal(sink);
        if !self.text_is_open {
            self.text_is_open = true;
            self.said = true;
            let role = Some(Role::Assistant);
            sink.push(Body::TextStart { message: self.message.clone(), role, name: None });
        }
        sink.push(Body::TextDelta { message: self.message.clone(), delta: delta.into() });
    }

    /// A piece of a refusal: a message of its own, because it is none of the answer.
    pub(super) fn refuse(&mut self, delta: &str, sink: &mut Sink<'_>) {
        if delta.is_empty() {
            return;
        }
        self.close_thought(sink);
        self.close_text(sink);
        let message = match &self.refusal {
            Some(message) => message.clone(),
            None => {
                let message: MessageId = part_id(&self.message, "refusal", self.refusals);
                self.refusals += 1;
                self.refusal = Some(message.clone());
                let metadata = Object::from_entries([("openai.refusal", Json::from(&true.into()))]);
                let role = Some(Role::Assistant);
                let start = Body::TextStart { message: message.clone(), role, name: None };
                sink.out.push(Event::new(start).with_metadata(Some(metadata)));
                message
            }
        };
        sink.push(Body::TextDelta { message, delta: delta.into() });
    }

    /// A piece of thought.
    pub(super) fn think(&mut self, delta: &str, sink: &mut Sink<'_>) {
        if delta.is_empty() {
            return;
        }
        let message = self.open_thought(sink);
        sink.push(Body::ReasoningDelta { message, delta: delta.into() });
    }

    fn open_thought(&mut self, sink: &mut Sink<'_>) -> MessageId {
        if let Some(message) = &self.thought {
            return message.clone();
        }
        self.close_text(sink);
        self.close_refusal(sink);
        let message: MessageId = part_id(&self.message, "reasoning", self.thoughts);
        self.thoughts += 1;
        self.thought = Some(message.clone());
        self.last_thought = Some(message.clone());
        sink.push(Body::ReasoningStart { message: message.clone(), title: None });
        sink.push(Body::ReasoningMessageStart { message: message.clone() });
        message
    }

    fn close_thought(&mut self, sink: &mut Sink<'_>) {
        if let Some(message) = self.thought.take() {
            sink.push(Body::ReasoningMessageEnd { message: message.clone() });
            sink.push(Body::ReasoningEnd { message });
        }
    }

    fn close_text(&mut self, sink: &mut Sink<'_>) {
        if std::mem::take(&mut self.text_is_open) {
            sink.push(Body::TextEnd { message: self.message.clone() });
        }
    }

    fn close_refusal(&mut self, sink: &mut Sink<'_>) {
        if let Some(message) = self.refusal.take() {
            sink.push(Body::TextEnd { message });
        }
    }

    /// A piece of a call. `name_call` says under which id a call is passed on.
    pub(super) fn call(
        &mut self,
        piece: Piece<'_>,
        arguments: &str,
        sink: &mut Sink<'_>,
        name_call: impl FnOnce(&str, Option<&str>, ToolCallId) -> ToolCallId,
    ) {
        let at = match tool_calls::find(&self.calls, piece) {
            Some(at) => {
                self.calls[at].learn(piece);
                at
            }
            None if self.calls.len() >= MAX_CALLS => {
                sink.tally.note("tool call left out", "a response has too many");
                return;
            }
            None => {
                self.calls.push(Call::new(piece));
                self.calls.len() - 1
            }
        };
        if self.calls[at].ended {
            if !arguments.trim().is_empty() {
                sink.tally.note("arguments left out", "their call has ended");
            }
            return;
        }
        self.calls[at].grow(arguments);
        if self.calls[at].id.is_none() {
            if self.calls[at].name.is_empty() {
                if !self.calls[at].hold(arguments) {
                    sink.tally.note("arguments left out", "their call has no name");
                }
                return;
            }
            self.close_thought(sink);
            self.close_text(sink);
            self.close_refusal(sink);
            self.said = true;
            let number = u32::try_from(at).unwrap_or(u32::MAX);
            let derived = part_id(&self.message, "call", number);
            let call = &mut self.calls[at];
            let id = name_call(&call.name, call.native(), derived);
            call.id = Some(id.clone());
            let parent = Some(self.message.clone());
            sink.push(Body::ToolStart { call: id.clone(), name: call.name.clone(), parent });
            let held = std::mem::take(&mut call.held);
            if !held.is_empty() {
                sink.push(Body::ToolArgs { call: id, delta: held.into() });
            }
        }
        if let Some(call) = self.calls[at].id.clone()
            && !arguments.is_empty()
        {
            sink.push(Body::ToolArgs { call, delta: arguments.into() });
        }
    }

    /// An image or another file.
    pub(super) fn file(&mut self, kind: MediaKind, source: PartSource, sink: &mut Sink<'_>) {
        self.close_thought(sink);
        let file = citations::file(&self.message, self.files, kind, source);
        self.files += 1;
        sink.push(Body::File(Box::new(file)));
    }

    /// A piece of sound.
    pub(super) fn hear(&mut self, data: &str, sink: &mut Sink<'_>) {
        // Padding ends a Base64 text: what follows is a text of its own.
        if self.sound.ends_with('=') {
            self.close_sound(sink);
        }
        if self.sound.len() + data.len() > MAX_SOUND {
            sink.tally.note("sound left out", "a response has too much of it");
            return;
        }
        self.sound.push_str(data);
    }

    fn close_sound(&mut self, sink: &mut Sink<'_>) {
        if !self.sound.is_empty() {
            let sound = citations::sound(std::mem::take(&mut self.sound));
            self.file(MediaKind::Audio, sound, sink);
        }
    }

    /// The model stopped; it has said why, or is not going to.
    pub(super) fn finish(&mut self, reason: Option<&str>, sink: &mut Sink<'_>) {
        self.close_text(sink);
        self.close_refusal(sink);
        if let Some(value) = self.details.take(sink.tally) {
            let message = match &self.last_thought {
                Some(message) => message.clone(),
                None => self.open_thought(sink),
            };
            let entity = EncryptedEntity::Message(message);
            sink.push(Body::ReasoningEncrypted { entity, value: value.into() });
        }
        self.close_thought(sink);
        self.close_sound(sink);
        for call in &mut self.calls {
            if !std::mem::replace(&mut call.ended, true) {
                match call.id.clone() {
                    Some(call) => sink.push(Body::ToolEnd { call }),
                    None => sink.tally.note("tool call left out", "it has no name"),
                }
            }
        }
        if let Some(reason) = reason
            && self.finished.as_deref() != Some(reason)
        {
            self.finished = Some(reason.into());
            let message = self.said.then(|| self.message.clone());
            sink.push(Body::FinishReason { message, reason: reason.into() });
        }
    }
}
