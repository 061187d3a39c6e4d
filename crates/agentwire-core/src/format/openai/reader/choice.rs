//! One choice of a response: an assistant message with its reasoning, refusals, calls and files.

use super::{
    media::audio_source,
    reasoning_details::ReasoningDetails,
    tool_calls::{OpenToolCall, ToolCallPiece, find_call},
};
use crate::{
    event::{Body, EncryptedEntity, Event, File, MediaKind, MessageId, PartSource, Role, ToolCallId},
    format::derived_ids::part_id,
    json::{Json, Object},
    tally::Tally,
};

/// Maximum number of calls per choice; OpenAI allows 128 tools.
const MAX_CALLS: usize = 1024;
/// Maximum bytes of buffered audio in base64, enough for more than 15 minutes of 16-bit samples at 24 kHz.
const MAX_AUDIO: usize = 64 * 1024 * 1024;

#[derive(Debug)]
pub(super) struct ChoiceState {
    pub(super) index: u32,
    pub(super) message: MessageId,
    /// True if text or calls of the message itself were emitted.
    has_output: bool,
    is_text_open: bool,
    /// The open refusal.
    refusal: Option<MessageId>,
    refusal_count: u32,
    /// The open reasoning message.
    reasoning: Option<MessageId>,
    /// The last reasoning message, open or closed.
    last_reasoning: Option<MessageId>,
    reasoning_count: u32,
    pub(super) details: ReasoningDetails,
    calls: Vec<OpenToolCall>,
    /// Buffered audio in base64.
    audio: String,
    file_count: u32,
    /// The finish reason, once the choice is complete.
    pub(super) finish_reason: Option<Box<str>>,
}

/// The output of a choice.
pub(super) struct ChoiceSink<'s> {
    pub(super) out: &'s mut Vec<Event>,
    pub(super) tally: &'s mut Tally,
}

impl ChoiceSink<'_> {
    fn push(&mut self, body: Body) {
        self.out.push(Event::new(body));
    }
}

impl ChoiceState {
    pub(super) fn new(index: u32, message: MessageId) -> Self {
        Self {
            index,
            message,
            has_output: false,
            is_text_open: false,
            refusal: None,
            refusal_count: 0,
            reasoning: None,
            last_reasoning: None,
            reasoning_count: 0,
            details: ReasoningDetails::default(),
            calls: Vec::new(),
            audio: String::new(),
            file_count: 0,
            finish_reason: None,
        }
    }

    /// Appends to the text.
    pub(super) fn push_text(&mut self, delta: &str, sink: &mut ChoiceSink<'_>) {
        if delta.is_empty() {
            return;
        }
        self.close_reasoning(sink);
        self.close_refusal(sink);
        if !self.is_text_open {
            self.is_text_open = true;
            self.has_output = true;
            let role = Some(Role::Assistant);
            sink.push(Body::TextStart { message: self.message.clone(), role, name: None });
        }
        sink.push(Body::TextDelta { message: self.message.clone(), delta: delta.into() });
    }

    /// Appends to a refusal: a separate message, because it is not part of the text.
    pub(super) fn push_refusal(&mut self, delta: &str, sink: &mut ChoiceSink<'_>) {
        if delta.is_empty() {
            return;
        }
        self.close_reasoning(sink);
        self.close_text(sink);
        let message = match &self.refusal {
            Some(message) => message.clone(),
            None => {
                let message: MessageId = part_id(&self.message, "refusal", self.refusal_count);
                self.refusal_count += 1;
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

    /// Appends to the reasoning.
    pub(super) fn push_reasoning(&mut self, delta: &str, sink: &mut ChoiceSink<'_>) {
        if delta.is_empty() {
            return;
        }
        let message = self.open_reasoning(sink);
        sink.push(Body::ReasoningDelta { message, delta: delta.into() });
    }

    fn open_reasoning(&mut self, sink: &mut ChoiceSink<'_>) -> MessageId {
        if let Some(message) = &self.reasoning {
            return message.clone();
        }
        self.close_text(sink);
        self.close_refusal(sink);
        let message: MessageId = part_id(&self.message, "reasoning", self.reasoning_count);
        self.reasoning_count += 1;
        self.reasoning = Some(message.clone());
        self.last_reasoning = Some(message.clone());
        sink.push(Body::ReasoningStart { message: message.clone(), title: None });
        sink.push(Body::ReasoningMessageStart { message: message.clone() });
        message
    }

    fn close_reasoning(&mut self, sink: &mut ChoiceSink<'_>) {
        if let Some(message) = self.reasoning.take() {
            sink.push(Body::ReasoningMessageEnd { message: message.clone() });
            sink.push(Body::ReasoningEnd { message });
        }
    }

    fn close_text(&mut self, sink: &mut ChoiceSink<'_>) {
        if std::mem::take(&mut self.is_text_open) {
            sink.push(Body::TextEnd { message: self.message.clone() });
        }
    }

    fn close_refusal(&mut self, sink: &mut ChoiceSink<'_>) {
        if let Some(message) = self.refusal.take() {
            sink.push(Body::TextEnd { message });
        }
    }

    /// Appends to a tool call. `assign_id` chooses the emitted id from the name, the id from the server and a derived id.
    pub(super) fn push_call(
        &mut self,
        piece: ToolCallPiece<'_>,
        arguments: &str,
        sink: &mut ChoiceSink<'_>,
        assign_id: impl FnOnce(&str, Option<&str>, ToolCallId) -> ToolCallId,
    ) {
        let index = match find_call(&self.calls, piece) {
            Some(index) => {
                self.calls[index].complete_from(piece);
                index
            }
            None if self.calls.len() >= MAX_CALLS => {
                sink.tally.note("tool call left out", "a response has too many");
                return;
            }
            None => {
                self.calls.push(OpenToolCall::new(piece));
                self.calls.len() - 1
            }
        };
        if self.calls[index].is_ended {
            if !arguments.trim().is_empty() {
                sink.tally.note("arguments left out", "their call has ended");
            }
            return;
        }
        self.calls[index].scan_arguments(arguments);
        if self.calls[index].id.is_none() {
            if self.calls[index].name.is_empty() {
                if !self.calls[index].buffer(arguments) {
                    sink.tally.note("arguments left out", "their call has no name");
                }
                return;
            }
            self.close_reasoning(sink);
            self.close_text(sink);
            self.close_refusal(sink);
            self.has_output = true;
            let number = u32::try_from(index).unwrap_or(u32::MAX);
            let derived = part_id(&self.message, "call", number);
            let call = &mut self.calls[index];
            let id = assign_id(&call.name, call.native_id(), derived);
            call.id = Some(id.clone());
            let parent = Some(self.message.clone());
            sink.push(Body::ToolStart { call: id.clone(), name: call.name.clone(), parent });
            let buffered = std::mem::take(&mut call.buffered);
            if !buffered.is_empty() {
                sink.push(Body::ToolArgs { call: id, delta: buffered.into() });
            }
        }
        if let Some(call) = self.calls[index].id.clone()
            && !arguments.is_empty()
        {
            sink.push(Body::ToolArgs { call, delta: arguments.into() });
        }
    }

    /// Emits an image or another file.
    pub(super) fn emit_file(&mut self, kind: MediaKind, source: PartSource, sink: &mut ChoiceSink<'_>) {
        self.close_reasoning(sink);
        let file = File {
            id: part_id(&self.message, "file", self.file_count),
            message: Some(self.message.clone()),
            kind,
            source,
            name: None,
        };
        self.file_count += 1;
        sink.push(Body::File(Box::new(file)));
    }

    /// Appends to the audio.
    pub(super) fn push_audio(&mut self, data: &str, sink: &mut ChoiceSink<'_>) {
        // Padding ends a base64 text; more data starts a new file.
        if self.audio.ends_with('=') {
            self.close_audio(sink);
        }
        if self.audio.len() + data.len() > MAX_AUDIO {
            sink.tally.note("sound left out", "a response has too much of it");
            return;
        }
        self.audio.push_str(data);
    }

    fn close_audio(&mut self, sink: &mut ChoiceSink<'_>) {
        if !self.audio.is_empty() {
            let audio = audio_source(std::mem::take(&mut self.audio));
            self.emit_file(MediaKind::Audio, audio, sink);
        }
    }

    /// Closes the choice; emits the finish reason if there is one.
    pub(super) fn finish(&mut self, reason: Option<&str>, sink: &mut ChoiceSink<'_>) {
        self.close_text(sink);
        self.close_refusal(sink);
        if let Some(value) = self.details.take_encoded(sink.tally) {
            let message = match &self.last_reasoning {
                Some(message) => message.clone(),
                None => self.open_reasoning(sink),
            };
            let entity = EncryptedEntity::Message(message);
            sink.push(Body::ReasoningEncrypted { entity, value: value.into() });
        }
        self.close_reasoning(sink);
        self.close_audio(sink);
        for call in &mut self.calls {
            if !std::mem::replace(&mut call.is_ended, true) {
                match call.id.clone() {
                    Some(call) => sink.push(Body::ToolEnd { call }),
                    None => sink.tally.note("tool call left out", "it has no name"),
                }
            }
        }
        if let Some(reason) = reason
            && self.finish_reason.as_deref() != Some(reason)
        {
            self.finish_reason = Some(reason.into());
            let message = self.has_output.then(|| self.message.clone());
            sink.push(Body::FinishReason { message, reason: reason.into() });
        }
    }
}
