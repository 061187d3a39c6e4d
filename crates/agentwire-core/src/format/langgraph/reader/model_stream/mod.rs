//! The output of one model run: its message, reasoning and tool calls as canonical events.
//!
//! All state is kept per model run; there is no "current message". Branches and nested graphs stream
//! concurrently and their chunks alternate. A stream opens its message with the first visible content, so that a
//! response with tool calls only does not create an empty message.

mod protocol_blocks;
mod reasoning;
mod streamed_calls;
mod usage;

use serde_json::value::RawValue;

pub(super) use self::usage::add_usage;
use self::{
    reasoning::{OpenReasoning, ReasoningPart},
    streamed_calls::StreamedCall,
    usage::read_usage,
};
use super::{
    super::{
        namespace::outer,
        raw_json,
        wire::{AdditionalKwargs, NativeCall, NativeMessage, ResponseMetadata},
    },
    ReaderContext,
    content_blocks::{self, ContentPiece, MediaPiece, ReasoningPiece},
    messages::{self, is_generated_id},
    output_rules::OutputRules,
    tool_calls,
};
use crate::{
    event::{Body, Citation, EncryptedEntity, Event, File, MessageId, Role, SubagentId, Usage},
    json::{Json, Object},
    tally::Tally,
};

/// Bound on the reasoning blocks of one message; providers send a few.
const MAX_REASONING: usize = 1024;

/// The output of one model run.
#[derive(Debug)]
pub(super) struct ModelStream {
    pub(super) identity: StreamIdentity,
    pub(super) received: ReceivedChunks,
    sent: SentContent,
    calls: Vec<StreamedCall>,
}

/// The ids of a model run's message, and its position in the graph.
#[derive(Debug)]
pub(super) struct StreamIdentity {
    /// Message id that is used until the source sends one.
    fallback_id: Box<str>,
    /// Message id from the source.
    native_id: Option<Box<str>>,
    /// Id on later chunks of the same message, where the source does not repeat the id of the first chunk.
    pub(super) other_id: Option<Box<str>>,
    /// Message id that the client sees; fixed by the first event.
    message: Option<MessageId>,
    pub(super) owner: Option<SubagentId>,
    pub(super) is_hidden: bool,
    /// The parts that the metadata of the run hides.
    pub(super) rules: Option<Box<OutputRules>>,
    /// Namespace of the node in which the model runs.
    pub(super) ns: Box<str>,
    /// Namespace of the graph around that node.
    pub(super) scope: Box<str>,
    /// Run id of the node in which the model runs.
    pub(super) node: Option<Box<str>>,
    pub(super) provider: Option<Box<str>>,
    pub(super) model: Option<Box<str>>,
    author: Option<Box<str>>,
}

/// Progress of the source: the chunks, blocks and totals that were received.
#[derive(Debug, Default)]
pub(super) struct ReceivedChunks {
    /// Number of chunks, saturating; only one or several matters.
    pub(super) count: u8,
    /// The source marked a chunk as the last one.
    pub(super) is_complete: bool,
    /// The source marks its last chunk, so that a missing mark means a truncated stream.
    pub(super) has_positions: bool,
    /// Every frame repeats the message from its start.
    pub(super) is_accumulated: bool,
    /// The latest frame of an accumulated message.
    pub(super) latest: Option<Box<RawValue>>,
    usage: Option<Usage>,
    finish_reason: Option<Box<str>>,
    /// Protocol v2: indexes of the blocks that were streamed by deltas.
    streamed_blocks: Vec<Box<str>>,
    /// Protocol v2: another message streams in the same namespace, and deltas do not identify theirs.
    pub(super) is_mixed: bool,
    /// Protocol v2: prefix of the text, which identifies a mixed message.
    text_prefix: String,
}

/// Content that was emitted so far.
#[derive(Debug, Default)]
struct SentContent {
    is_text_open: bool,
    text_bytes: usize,
    /// Part of `text_bytes` that was sent under an earlier id, where the source repeats the message from its
    /// start.
    text_bytes_before: usize,
    is_text_signed: bool,
    reasoning: Option<OpenReasoning>,
    reasoning_parts: Vec<ReasoningPart>,
    reasoning_bytes: usize,
    files: usize,
    sources: usize,
    unknown_blocks: usize,
}

/// The only string that a chunk added: the variable part of a frame template.
pub(super) enum DeltaSlot<'a> {
    Text(&'a RawValue),
    Reasoning(&'a RawValue),
}

impl ModelStream {
    pub(super) fn new(fallback_id: impl Into<Box<str>>, ns: &str) -> Self {
        let identity = StreamIdentity {
            fallback_id: fallback_id.into(),
            native_id: None,
            other_id: None,
            message: None,
            owner: None,
            is_hidden: false,
            rules: None,
            ns: ns.into(),
            scope: outer(ns).into(),
            node: None,
            provider: None,
            model: None,
            author: None,
        };
        Self {
            identity,
            received: ReceivedChunks::default(),
            sent: SentContent::default(),
            calls: Vec::new(),
        }
    }

    /// The message id from the source, if there is one.
    pub(super) fn native_id(&self) -> Option<&str> {
        self.identity.native_id.as_deref()
    }

    pub(super) fn is_shown(&self) -> bool {
        self.identity.message.is_some()
    }

    /// Whether the model has reported a finish reason.
    pub(super) fn has_finish_reason(&self) -> bool {
        self.received.finish_reason.is_some()
    }

    /// The source continues the same message under another id.
    pub(super) fn continue_as(&mut self, id: &str) {
        self.identity.other_id = Some(id.into());
        self.sent.text_bytes_before = self.sent.text_bytes;
    }

    /// Records the id that the source uses for the message.
    pub(super) fn set_native_id(&mut self, id: Option<&str>, cx: &mut ReaderContext<'_>) {
        let Some(id) = id else { return };
        let identity = &mut self.identity;
        if identity.native_id.as_deref() == Some(id) {
            return;
        }
        // The provider's id is final; an id that LangChain generated may precede it.
        if identity.native_id.is_some() && is_generated_id(id) {
            return;
        }
        identity.native_id = Some(id.into());
        if identity.rules.as_ref().is_some_and(|rules| rules.hides_some()) {
            cx.shown.hide_partly(id);
        }
        if let Some(shown) = &identity.message {
            cx.shown.alias_message(id, shown);
        }
    }

    /// The message id that the client sees; chosen on first use.
    fn message_id(&mut self, cx: &mut ReaderContext<'_>) -> MessageId {
        let identity = &mut self.identity;
        if let Some(message) = &identity.message {
            return message.clone();
        }
        let mut id = identity.native_id.as_deref().unwrap_or(&identity.fallback_id);
        // One message per model run, even if a model repeats an id.
        if cx.shown.contains(id) && id != &*identity.fallback_id {
            id = &identity.fallback_id;
        }
        let message: MessageId = cx.names.get(id);
        if let Some(native) = &identity.native_id {
            cx.shown.alias_message(native, &message);
        }
        if identity.is_hidden {
            cx.shown.hide(message.clone());
        }
        identity.message.insert(message).clone()
    }

    fn emit(&self, cx: &mut ReaderContext<'_>, body: Body) {
        if !self.identity.is_hidden {
            cx.emit(Event::new(body).by(self.identity.owner.clone()));
        }
    }

    /// Reads a chunk of the message. Returns the only string it added, if it had no other effect.
    pub(super) fn read_chunk<'a>(
        &mut self,
        chunk: &NativeMessage<'a>,
        cx: &mut ReaderContext<'_>,
    ) -> Option<DeltaSlot<'a>> {
        let before = cx.out.len();
        let id = chunk.id(cx.tally);
        self.set_native_id(id.as_deref(), cx);
        self.received.count = self.received.count.saturating_add(1);
        let mut is_plain = true;
        if let Some(response) = chunk.response_metadata {
            self.read_response(response, cx.tally);
            is_plain &= self.received.finish_reason.is_none();
        }
        if let Some(usage) = chunk.usage_metadata.and_then(read_usage) {
            is_plain = false;
            add_usage(self.received.usage.get_or_insert_default(), &usage);
        }
        if chunk.chunk_position.is_some() {
            is_plain = false;
            self.received.is_complete |= raw_json::non_empty(chunk.chunk_position, cx.tally)
                .is_some_and(|position| position == "last");
        }
        self.read_author(chunk, cx.tally);
        let mut slot = None;
        let mut slots = 0;
        let kwargs = chunk.additional_kwargs.filter(|raw| raw.get() != "{}").and_then(AdditionalKwargs::of);
        if let Some(kwargs) = &kwargs {
            for (text, raw) in messages::kwargs_reasoning(kwargs, cx.tally) {
                slot = Some(DeltaSlot::Reasoning(raw));
                slots += 1;
                self.send_reasoning(ReasoningPiece::of_first_block((text, raw)), cx);
            }
        }
        match chunk.content {
            Some(content) if content.get().starts_with('"') => {
                if let Some(text) = raw_json::string(content, cx.tally) {
                    slot = Some(DeltaSlot::Text(content));
                    slots += usize::from(!text.is_empty());
                    self.send_text(&text, cx);
                }
            }
            Some(content) if content.get() != "[]" => {
                for piece in content_blocks::pieces(content, false, cx.tally) {
                    slots += 1;
                    slot = match &piece {
                        ContentPiece::Text { raw, .. } => Some(DeltaSlot::Text(raw)),
                        ContentPiece::Reasoning(ReasoningPiece {
                            text: Some((_, raw)),
                            encrypted: None,
                            ..
                        }) => Some(DeltaSlot::Reasoning(raw)),
                        _ => None,
                    };
                    self.send_piece(piece, cx);
                }
            }
            _ => {}
        }
        if let Some(list) = chunk.tool_call_chunks.filter(|raw| raw.get() != "[]") {
            is_plain = false;
            for raw in raw_json::elements(list).unwrap_or_default() {
                match NativeCall::of(raw) {
                    Some(call) => self.read_call_chunk(&call, cx),
                    None => cx.tally.note("wrong type", "tool call chunk"),
                }
            }
        }
        if let Some(signatures) = kwargs.and_then(|kwargs| kwargs.call_signatures) {
            is_plain = false;
            self.send_call_signatures(signatures, cx);
        }
        let added = cx.out.len() - before;
        slot.filter(|_| is_plain && slots == 1 && added == 1 && !self.identity.is_hidden)
    }

    /// Reads the complete message: emits the content that was not streamed and compares the rest.
    pub(super) fn read_complete(&mut self, message: &NativeMessage<'_>, cx: &mut ReaderContext<'_>) {
        let id = message.id(cx.tally);
        self.set_native_id(id.as_deref(), cx);
        if let Some(response) = message.response_metadata {
            self.read_response(response, cx.tally);
        }
        // The usage of the complete message is the sum over its chunks.
        self.set_usage(message.usage_metadata);
        self.read_author(message, cx.tally);
        let sent = &self.sent;
        let (has_text, is_signed) = (sent.text_bytes > 0, sent.is_text_signed);
        let has_reasoning = sent.reasoning_bytes > 0 || !sent.reasoning_parts.is_empty();
        let (has_files, has_sources) = (sent.files > 0, sent.sources > 0);
        let has_unknown = sent.unknown_blocks > 0;
        if !has_reasoning && let Some(kwargs) = message.additional_kwargs.and_then(AdditionalKwargs::of) {
            for text in messages::kwargs_reasoning(&kwargs, cx.tally) {
                self.send_reasoning(ReasoningPiece::of_first_block(text), cx);
            }
        }
        let mut length = 0;
        let pieces = message.content.map(|raw| content_blocks::pieces(raw, true, cx.tally));
        for piece in pieces.unwrap_or_default() {
            let is_sent = match &piece {
                ContentPiece::Text { text, .. } => {
                    length += text.len();
                    has_text
                }
                ContentPiece::Reasoning(_) => has_reasoning,
                ContentPiece::File { .. } => has_files,
                ContentPiece::Source(_) => has_sources,
                ContentPiece::Signature(_) => is_signed,
                ContentPiece::Unknown(_) => has_unknown,
            };
            if !is_sent {
                self.send_piece(piece, cx);
            }
        }
        if has_text && length != self.sent.text_bytes {
            cx.tally.note("text that differs from what was streamed", self.native_id().unwrap_or_default());
        }
        for (index, call) in messages::complete_calls(message, cx.tally).into_iter().enumerate() {
            self.read_complete_call(index, &call, cx);
        }
        if let Some(signatures) =
            message.additional_kwargs.and_then(AdditionalKwargs::of).and_then(|kwargs| kwargs.call_signatures)
        {
            self.send_call_signatures(signatures, cx);
        }
    }

    /// Reads an accumulated message and emits the new part. Tool calls wait for the end of the message: their
    /// arguments are parsed anew in every frame and cannot be compared by length.
    pub(super) fn read_accumulated(
        &mut self,
        raw: &RawValue,
        message: &NativeMessage<'_>,
        cx: &mut ReaderContext<'_>,
    ) {
        let id = message.id(cx.tally);
        self.set_native_id(id.as_deref(), cx);
        self.received.count = self.received.count.saturating_add(1);
        let kwargs = message.additional_kwargs.and_then(AdditionalKwargs::of).unwrap_or_default();
        let mut kwargs_text = String::new();
        for (text, _) in messages::kwargs_reasoning(&kwargs, cx.tally) {
            kwargs_text.push_str(&text);
        }
        if !kwargs_text.is_empty() {
            self.send_accumulated_reasoning("0", 0, None, &kwargs_text, None, cx);
        }
        let mut text = String::new();
        let pieces = message.content.map(|raw| content_blocks::pieces(raw, true, cx.tally));
        for piece in pieces.unwrap_or_default() {
            match piece {
                ContentPiece::Text { text: more, .. } => text.push_str(&more),
                ContentPiece::Reasoning(piece) => {
                    let text = piece.text.map(|(text, _)| text).unwrap_or_default();
                    let ReasoningPiece { block, part, id, encrypted, .. } = piece;
                    self.send_accumulated_reasoning(&block, part, id, &text, encrypted, cx);
                }
                _ => {}
            }
        }
        self.send_accumulated_text(&text, cx);
        self.received.latest = Some(raw.to_owned());
    }

    /// Closes everything and returns the token usage.
    pub(super) fn finish(&mut self, cx: &mut ReaderContext<'_>) -> Option<Usage> {
        self.close_reasoning(cx);
        for at in 0..self.calls.len() {
            self.show_call(at, None, cx);
        }
        for call in self.calls.drain(..) {
            tool_calls::end_call(cx, &call.id);
        }
        if std::mem::take(&mut self.sent.is_text_open)
            && let Some(message) = self.identity.message.clone()
        {
            self.emit(cx, Body::TextEnd { message });
        }
        if let Some(reason) = self.received.finish_reason.take()
            && let Some(message) = self.identity.message.clone()
            && (self.identity.rules.is_none() || cx.shown.contains(&message))
        {
            self.emit(cx, Body::FinishReason { message: Some(message), reason });
        }
        self.take_usage()
    }

    /// The token usage, once.
    pub(super) fn take_usage(&mut self) -> Option<Usage> {
        let usage = self.received.usage.take()?;
        Some(Usage { provider: self.identity.provider.clone(), model: self.identity.model.clone(), ..usage })
    }

    /// Emits text of the message.
    pub(super) fn send_text(&mut self, text: &str, cx: &mut ReaderContext<'_>) {
        if text.is_empty() {
            return;
        }
        if self.hides_text() {
            self.sent.text_bytes += text.len();
            return self.close_reasoning(cx);
        }
        let message = self.message_id(cx);
        self.close_reasoning(cx);
        if !self.sent.is_text_open {
            self.open_text(message.clone(), cx);
        }
        self.sent.text_bytes += text.len();
        self.emit(cx, Body::TextDelta { message, delta: text.into() });
    }

    /// Opens the message even if it is empty: it is part of the conversation.
    pub(super) fn ensure_shown(&mut self, cx: &mut ReaderContext<'_>) {
        if self.hides_text() {
            return;
        }
        let message = self.message_id(cx);
        if !cx.shown.contains(&message) {
            self.open_text(message, cx);
        }
    }

    /// True if the text of the message and the parts beside it are hidden.
    fn hides_text(&self) -> bool {
        self.identity.rules.as_ref().is_some_and(|rules| rules.hides_text)
    }

    fn open_text(&mut self, message: MessageId, cx: &mut ReaderContext<'_>) {
        self.sent.is_text_open = true;
        let name = self.identity.author.clone();
        self.emit(cx, Body::TextStart { message, role: Some(Role::Assistant), name });
    }

    /// Emits the new part of text that every frame repeats from its start.
    pub(super) fn send_accumulated_text(&mut self, text: &str, cx: &mut ReaderContext<'_>) {
        let sent = self.sent.text_bytes.saturating_sub(self.sent.text_bytes_before);
        match text.get(sent..) {
            Some(new) => self.send_text(new, cx),
            None if text.len() < sent => cx.tally.note("text that differs from what was streamed", ""),
            None => {}
        }
    }

    /// Fast path: whether `message` is open for text.
    pub(super) fn is_text_open(&self, message: &MessageId) -> bool {
        self.sent.is_text_open
            && self.sent.reasoning.is_none()
            && self.identity.message.as_ref() == Some(message)
    }

    /// Fast path: whether `message` is open for reasoning.
    pub(super) fn is_reasoning_open(&self, message: &MessageId) -> bool {
        self.sent.reasoning.as_ref().is_some_and(|reasoning| reasoning.message == *message)
    }

    /// Fast path: counts text that was emitted without this stream.
    pub(super) fn count_text(&mut self, length: usize) {
        self.sent.text_bytes += length;
    }

    fn send_piece(&mut self, piece: ContentPiece<'_>, cx: &mut ReaderContext<'_>) {
        match piece {
            ContentPiece::Text { text, .. } => self.send_text(&text, cx),
            ContentPiece::Reasoning(reasoning) => self.send_reasoning(reasoning, cx),
            _ if self.hides_text() => {}
            ContentPiece::File { index, media } => self.send_file(&index, media, cx),
            ContentPiece::Source(raw) => self.send_source(raw, cx),
            ContentPiece::Signature(value) => self.send_text_signature(&value, cx),
            ContentPiece::Unknown(raw) => self.send_unknown_block(raw, cx),
        }
    }

    /// Emits the provider's signature of the text, if text is open.
    fn send_text_signature(&mut self, value: &str, cx: &mut ReaderContext<'_>) {
        if self.sent.is_text_open && !value.is_empty() && !cx.options.manual_reasoning {
            self.sent.is_text_signed = true;
            let entity = EncryptedEntity::Message(self.message_id(cx));
            self.emit(cx, Body::ReasoningEncrypted { entity, value: value.into() });
        }
    }

    fn send_file(&mut self, index: &str, media: MediaPiece<'_>, cx: &mut ReaderContext<'_>) {
        let message = self.message_id(cx);
        self.sent.files += 1;
        let file = File {
            id: format!("{message}-f{index}").into(),
            message: Some(message),
            kind: media.kind,
            source: media.source,
            name: media.name.map(Into::into),
        };
        self.emit(cx, Body::File(Box::new(file)));
    }

    fn send_source(&mut self, raw: &RawValue, cx: &mut ReaderContext<'_>) {
        let Some(detail) = raw_json::json(raw, cx.tally).into_object() else { return };
        let message = self.message_id(cx);
        let first = |names: &[&str]| names.iter().find_map(|name| detail.get_str(name)).map(Box::from);
        let source = Citation {
            id: format!("{message}-s{}", self.sent.sources).into(),
            message: Some(message),
            url: first(&["url", "source"]),
            title: first(&["title", "document_title"]),
            media_type: first(&["mime_type", "media_type"]),
            filename: first(&["filename", "file_name"]),
            detail: Some(detail.clone()),
        };
        self.sent.sources += 1;
        self.emit(cx, Body::Citation(Box::new(source)));
    }

    fn send_unknown_block(&mut self, raw: &RawValue, cx: &mut ReaderContext<'_>) {
        let message = self.message_id(cx);
        if self.sent.unknown_blocks == 0 && !cx.shown.add_carried_blocks(&message) {
            // The node returns the message of a model whose blocks were carried.
            return;
        }
        self.sent.unknown_blocks += 1;
        let kind = raw_json::member(raw, "type").and_then(|kind| raw_json::string(kind, cx.tally));
        cx.tally.note("unknown content block", kind.as_deref().unwrap_or("without a type"));
        let block = raw_json::json(raw, cx.tally);
        let id = Json::string(&message);
        let value: Json = match block.clone().into_object() {
            Some(block) => block.with("messageId", id).into(),
            None => Object::from_entries([("block", block), ("messageId", id)]).into(),
        };
        self.emit(cx, Body::Custom { name: "content_block".into(), value });
    }

    /// Records the author's name, which the first chunk that has one decides.
    fn read_author(&mut self, message: &NativeMessage<'_>, tally: &mut Tally) {
        if self.identity.author.is_none() {
            self.identity.author = raw_json::non_empty(message.name, tally).map(Into::into);
        }
    }

    /// Records the finish reason, the model and the provider.
    pub(super) fn read_response(&mut self, raw: &RawValue, tally: &mut Tally) {
        if raw.get() == "{}" {
            return;
        }
        let Some(response) = ResponseMetadata::of(raw) else { return };
        let reason = response.finish_reason.or(response.stop_reason).or(response.stop_camel);
        let reason = reason.or(response.done_reason);
        if let Some(reason) = raw_json::non_empty(reason.or(response.status), tally) {
            self.received.finish_reason = Some(reason.into());
        }
        let identity = &mut self.identity;
        if identity.model.is_none() {
            identity.model =
                raw_json::non_empty(response.model_name.or(response.model), tally).map(Into::into);
        }
        if identity.provider.is_none() {
            let provider = response.model_provider.or(response.provider);
            identity.provider = raw_json::non_empty(provider, tally).map(Into::into);
        }
    }

    /// Replaces the token usage by a reported total.
    pub(super) fn set_usage(&mut self, raw: Option<&RawValue>) {
        if let Some(usage) = raw.and_then(read_usage) {
            self.received.usage = Some(usage);
        }
    }
}
