//! One answer of a model while it streams.
//!
//! Everything is kept per model run and never as "the current message": branches and nested graphs stream at
//! the same time, and their chunks alternate. A lane opens its message with the first thing worth showing, so
//! that an answer which only calls tools does not leave an empty message behind.

mod protocol_blocks;
mod reasoning;
mod streamed_calls;
mod usage;

use serde_json::value::RawValue;

pub(super) use self::usage::add;
use self::{reasoning::Known, streamed_calls::CallLane, usage::usage};
use super::{
    super::{
        namespace::outer,
        raw_json,
        wire::{self, Kwargs, Response},
    },
    Cx,
    content_blocks::{self, Media, Piece, Reasoning},
    messages, tool_calls,
};
use crate::{
    event::{Body, EncryptedEntity, Event, File, MessageId, Role, Source, SubagentId, Usage},
    json::{Json, Object},
    tally::Tally,
};

/// How many blocks of reasoning one answer may have; providers make a few.
const MAX_REASONING: usize = 1024;

#[derive(Debug)]
pub(super) struct Lane {
    /// The message's id until the source says another one.
    fallback: Box<str>,
    /// The id that the source gave.
    native: Option<Box<str>>,
    /// The id on other chunks of the same message, where the source does not repeat the one on the first.
    pub(super) other: Option<Box<str>>,
    /// How many chunks have come; two mean several.
    pub(super) chunks: u8,
    /// The id that is shown, from the first event on.
    message: Option<MessageId>,
    pub(super) owner: Option<SubagentId>,
    pub(super) hidden: bool,
    /// Where the model runs, and where the graph around it does.
    pub(super) ns: Box<str>,
    pub(super) scope: Box<str>,
    /// The run of the node that it runs in.
    pub(super) node: Option<Box<str>>,
    pub(super) provider: Option<Box<str>>,
    pub(super) model: Option<Box<str>>,
    name: Option<Box<str>>,
    text_open: bool,
    text_sent: usize,
    /// How much of that had another id, where the source repeats the message from its start.
    text_before: usize,
    thought: Option<Thought>,
    thoughts: Vec<Known>,
    reasoning_sent: usize,
    files: usize,
    sources: usize,
    others: usize,
    /// Whether what only the provider can read about the text was shown.
    signed: bool,
    calls: Vec<CallLane>,
    usage: Option<Usage>,
    finish: Option<Box<str>>,
    /// The source said that this was the last chunk.
    pub(super) last: bool,
    /// The source says of every chunk whether it is the last one, so that one can be missed.
    pub(super) positioned: bool,
    /// The source repeats the message from its start in every frame; this is the latest one.
    pub(super) accumulated: bool,
    pub(super) latest: Option<Box<RawValue>>,
    /// Blocks of protocol v2 that have streamed.
    streamed: Vec<Box<str>>,
    /// Protocol v2 streams another message at the same place, and does not say which of them a piece is of.
    pub(super) mixed: bool,
    /// The beginning of the text, to tell such messages apart by.
    head: String,
}

/// The open reasoning.
#[derive(Debug)]
struct Thought {
    span: MessageId,
    message: MessageId,
}

/// The one string that a chunk added, for the fast lane.
pub(super) enum Hole<'a> {
    Text(&'a RawValue),
    Reasoning(&'a RawValue),
}

impl Lane {
    pub(super) fn new(fallback: impl Into<Box<str>>, ns: &str) -> Self {
        Self {
            fallback: fallback.into(),
            native: None,
            other: None,
            chunks: 0,
            message: None,
            owner: None,
            hidden: false,
            ns: ns.into(),
            scope: outer(ns).into(),
            node: None,
            provider: None,
            model: None,
            name: None,
            text_open: false,
            text_sent: 0,
            text_before: 0,
            thought: None,
            thoughts: Vec::new(),
            reasoning_sent: 0,
            files: 0,
            sources: 0,
            others: 0,
            signed: false,
            calls: Vec::new(),
            usage: None,
            finish: None,
            last: false,
            positioned: false,
            accumulated: false,
            latest: None,
            streamed: Vec::new(),
            mixed: false,
            head: String::new(),
        }
    }

    /// The id that the source gave, if it did.
    pub(super) fn native(&self) -> Option<&str> {
        self.native.as_deref()
    }

    pub(super) fn is_shown(&self) -> bool {
        self.message.is_some()
    }

    /// Whether the model has said why it stopped.
    pub(super) fn is_finished(&self) -> bool {
        self.finish.is_some()
    }

    /// The source goes on with the same message under another id.
    pub(super) fn goes_on_as(&mut self, id: &str) {
        self.other = Some(id.into());
        self.text_before = self.text_sent;
    }

    /// Learns what the source calls the message.
    pub(super) fn named(&mut self, id: Option<&str>, cx: &mut Cx<'_>) {
        let Some(id) = id else { return };
        if self.native.as_deref() == Some(id) {
            return;
        }
        // A provider's own id is the final one; LangChain's stand-in may come before it.
        if self.native.is_some() && messages::is_stand_in(id) {
            return;
        }
        self.native = Some(id.into());
        if let Some(shown) = &self.message {
            cx.client.alias_message(id, shown);
        }
    }

    /// The id under which the message is shown, chosen when it is first needed.
    fn message(&mut self, cx: &mut Cx<'_>) -> MessageId {
        if let Some(message) = &self.message {
            return message.clone();
        }
        let mut id = self.native.as_deref().unwrap_or(&self.fallback);
        // One message per model run, even if a model uses an id twice.
        if cx.client.has(id) && id != &*self.fallback {
            id = &self.fallback;
        }
        let message: MessageId = cx.names.get(id);
        if let Some(native) = &self.native {
            cx.client.alias_message(native, &message);
        }
        if self.hidden {
            cx.client.hide(message.clone());
        }
        self.message.insert(message).clone()
    }

    fn emit(&self, cx: &mut Cx<'_>, body: Body) {
        if !self.hidden {
            cx.emit(Event::new(body).by(self.owner.clone()));
        }
    }

    /// A chunk of the message. Hands back the one string it added if it did nothing else.
    pub(super) fn chunk<'a>(&mut self, chunk: &wire::Message<'a>, cx: &mut Cx<'_>) -> Option<Hole<'a>> {
        let before = cx.out.len();
        let id = chunk.id(cx.tally);
        self.named(id.as_deref(), cx);
        self.chunks = self.chunks.saturating_add(1);
        let mut plain = true;
        if let Some(response) = chunk.response_metadata {
            self.response(response, cx.tally);
            plain &= self.finish.is_none();
        }
        if let Some(usage) = chunk.usage_metadata.and_then(usage) {
            plain = false;
            add(self.usage.get_or_insert_default(), &usage);
        }
        if chunk.chunk_position.is_some() {
            plain = false;
            self.last |= raw_json::filled(chunk.chunk_position, cx.tally).is_some_and(|at| at == "last");
        }
        if self.name.is_none() {
            self.name = raw_json::filled(chunk.name, cx.tally).map(Into::into);
        }
        let mut hole = None;
        let mut holes = 0;
        let kwargs = chunk.additional_kwargs.filter(|raw| raw.get() != "{}").and_then(Kwargs::of);
        if let Some(kwargs) = &kwargs {
            for (text, raw) in messages::kwargs_reasoning(kwargs, cx.tally) {
                let thought =
                    Reasoning { block: "0".into(), text: Some((text, raw)), ..Reasoning::default() };
                hole = Some(Hole::Reasoning(raw));
                holes += 1;
                self.think(thought, cx);
            }
        }
        match chunk.content {
            Some(content) if content.get().starts_with('"') => {
                if let Some(text) = raw_json::string(content, cx.tally) {
                    hole = Some(Hole::Text(content));
                    holes += usize::from(!text.is_empty());
                    self.text(&text, cx);
                }
            }
            Some(content) if content.get() != "[]" => {
                for piece in content_blocks::pieces(content, false, cx.tally) {
                    holes += 1;
                    hole = match &piece {
                        Piece::Text { raw, .. } => Some(Hole::Text(raw)),
                        Piece::Reasoning(Reasoning { text: Some((_, raw)), encrypted: None, .. }) => {
                            Some(Hole::Reasoning(raw))
                        }
                        _ => None,
                    };
                    self.piece(piece, cx);
                }
            }
            _ => {}
        }
        if let Some(list) = chunk.tool_call_chunks.filter(|raw| raw.get() != "[]") {
            plain = false;
            for raw in raw_json::elements(list).unwrap_or_default() {
                match wire::Call::of(raw) {
                    Some(call) => self.call_piece(&call, cx),
                    None => cx.tally.note("wrong type", "tool call chunk"),
                }
            }
        }
        if let Some(signatures) = kwargs.and_then(|kwargs| kwargs.call_signatures) {
            plain = false;
            self.seal_calls(signatures, cx);
        }
        let grew = cx.out.len() - before;
        hole.filter(|_| plain && holes == 1 && grew == 1 && !self.hidden)
    }

    /// The message as a whole: says what was not streamed, checks what was.
    pub(super) fn complete(&mut self, whole: &wire::Message<'_>, cx: &mut Cx<'_>) {
        let id = whole.id(cx.tally);
        self.named(id.as_deref(), cx);
        if let Some(response) = whole.response_metadata {
            self.response(response, cx.tally);
        }
        // The whole message has the sum of what the chunks had.
        if let Some(usage) = whole.usage_metadata.and_then(usage) {
            self.usage = Some(usage);
        }
        if self.name.is_none() {
            self.name = raw_json::filled(whole.name, cx.tally).map(Into::into);
        }
        let (said, thought) = (self.text_sent > 0, self.reasoning_sent > 0 || !self.thoughts.is_empty());
        let (files, sources, others) = (self.files > 0, self.sources > 0, self.others > 0);
        let signed = self.signed;
        if !thought && let Some(kwargs) = whole.additional_kwargs.and_then(Kwargs::of) {
            for text in messages::kwargs_reasoning(&kwargs, cx.tally) {
                self.think(Reasoning { block: "0".into(), text: Some(text), ..Reasoning::default() }, cx);
            }
        }
        let mut length = 0;
        for piece in whole.content.map(|raw| content_blocks::pieces(raw, true, cx.tally)).unwrap_or_default()
        {
            let known = match &piece {
                Piece::Text { text, .. } => {
                    length += text.len();
                    said
                }
                Piece::Reasoning(_) => thought,
                Piece::File { .. } => files,
                Piece::Source(_) => sources,
                Piece::Signature(_) => signed,
                Piece::Other(_) => others,
            };
            if !known {
                self.piece(piece, cx);
            }
        }
        if said && length != self.text_sent {
            cx.tally
                .note("text that differs from what was streamed", self.native.as_deref().unwrap_or_default());
        }
        for (index, call) in messages::calls(whole, cx.tally).into_iter().enumerate() {
            self.whole_call(index, &call, cx);
        }
        if let Some(signatures) =
            whole.additional_kwargs.and_then(Kwargs::of).and_then(|kwargs| kwargs.call_signatures)
        {
            self.seal_calls(signatures, cx);
        }
    }

    /// Closes everything and hands back what the answer cost.
    pub(super) fn finish(&mut self, cx: &mut Cx<'_>) -> Option<Usage> {
        self.close_thought(cx);
        for at in 0..self.calls.len() {
            self.show_call(at, None, cx);
        }
        for lane in self.calls.drain(..) {
            tool_calls::end(cx, &lane.id);
        }
        if std::mem::take(&mut self.text_open)
            && let Some(message) = self.message.clone()
        {
            self.emit(cx, Body::TextEnd { message });
        }
        if let Some(reason) = self.finish.take()
            && let Some(message) = self.message.clone()
        {
            self.emit(cx, Body::FinishReason { message: Some(message), reason });
        }
        let usage = self.usage.take()?;
        Some(Usage { provider: self.provider.clone(), model: self.model.clone(), ..usage })
    }

    /// Text of the answer.
    pub(super) fn text(&mut self, text: &str, cx: &mut Cx<'_>) {
        if text.is_empty() {
            return;
        }
        let message = self.message(cx);
        self.close_thought(cx);
        if !self.text_open {
            self.text_open = true;
            let name = self.name.clone();
            self.emit(cx, Body::TextStart { message: message.clone(), role: Some(Role::Assistant), name });
        }
        self.text_sent += text.len();
        self.emit(cx, Body::TextDelta { message, delta: text.into() });
    }

    /// Shows the message even if it says nothing: it is part of the conversation.
    pub(super) fn announce(&mut self, cx: &mut Cx<'_>) {
        let message = self.message(cx);
        if !cx.client.has(&message) {
            self.text_open = true;
            let name = self.name.clone();
            self.emit(cx, Body::TextStart { message, role: Some(Role::Assistant), name });
        }
    }

    /// Text that comes whole in every frame: shows what is new.
    pub(super) fn text_so_far(&mut self, text: &str, cx: &mut Cx<'_>) {
        let known = self.text_sent.saturating_sub(self.text_before);
        match text.get(known..) {
            Some(new) => self.text(new, cx),
            None if text.len() < known => cx.tally.note("text that differs from what was streamed", ""),
            None => {}
        }
    }

    /// The message as far as it has come: shows what is new. Calls wait for the end, because their arguments are
    /// parsed again and again and cannot be told apart by length.
    pub(super) fn so_far(&mut self, raw: &RawValue, message: &wire::Message<'_>, cx: &mut Cx<'_>) {
        let id = message.id(cx.tally);
        self.named(id.as_deref(), cx);
        self.chunks = self.chunks.saturating_add(1);
        let kwargs = message.additional_kwargs.and_then(Kwargs::of).unwrap_or_default();
        let mut beside = String::new();
        for (text, _) in messages::kwargs_reasoning(&kwargs, cx.tally) {
            beside.push_str(&text);
        }
        if !beside.is_empty() {
            self.think_so_far("0", 0, None, &beside, None, cx);
        }
        let mut text = String::new();
        for piece in
            message.content.map(|raw| content_blocks::pieces(raw, true, cx.tally)).unwrap_or_default()
        {
            match piece {
                Piece::Text { text: more, .. } => text.push_str(&more),
                Piece::Reasoning(piece) => {
                    let said = piece.text.map(|(text, _)| text).unwrap_or_default();
                    self.think_so_far(&piece.block, piece.part, piece.id, &said, piece.encrypted, cx);
                }
                _ => {}
            }
        }
        self.text_so_far(&text, cx);
        self.latest = Some(raw.to_owned());
    }

    /// The fast lane: text for the message that is open.
    pub(super) fn more_text(&mut self, message: &MessageId) -> bool {
        self.text_open && self.thought.is_none() && self.message.as_ref() == Some(message)
    }

    /// The fast lane: reasoning for the message that is open.
    pub(super) fn more_reasoning(&mut self, message: &MessageId) -> bool {
        self.thought.as_ref().is_some_and(|thought| thought.message == *message)
    }

    pub(super) fn sent_text(&mut self, length: usize) {
        self.text_sent += length;
    }

    pub(super) fn piece(&mut self, piece: Piece<'_>, cx: &mut Cx<'_>) {
        match piece {
            Piece::Text { text, .. } => self.text(&text, cx),
            Piece::Reasoning(reasoning) => self.think(reasoning, cx),
            Piece::File { index, media } => self.file(&index, media, cx),
            Piece::Source(raw) => self.source(raw, cx),
            Piece::Signature(value) => self.seal_text(&value, cx),
            Piece::Other(raw) => self.other(raw, cx),
        }
    }

    /// What only the provider can read about the text, once it is there.
    fn seal_text(&mut self, value: &str, cx: &mut Cx<'_>) {
        if self.text_open && !value.is_empty() && !cx.settings.manual_reasoning {
            self.signed = true;
            let entity = EncryptedEntity::Message(self.message(cx));
            self.emit(cx, Body::ReasoningEncrypted { entity, value: value.into() });
        }
    }

    fn close_thought(&mut self, cx: &mut Cx<'_>) {
        if let Some(thought) = self.thought.take() {
            self.emit(cx, Body::ReasoningMessageEnd { message: thought.message });
            self.emit(cx, Body::ReasoningEnd { message: thought.span });
        }
    }

    fn file(&mut self, index: &str, media: Media<'_>, cx: &mut Cx<'_>) {
        let message = self.message(cx);
        self.files += 1;
        let file = File {
            id: format!("{message}-f{index}").into(),
            message: Some(message),
            kind: media.kind,
            source: media.source,
            name: media.name.map(Into::into),
        };
        self.emit(cx, Body::File(Box::new(file)));
    }

    fn source(&mut self, raw: &RawValue, cx: &mut Cx<'_>) {
        let Some(detail) = raw_json::json(raw, cx.tally).into_object() else { return };
        let message = self.message(cx);
        let first = |names: &[&str]| names.iter().find_map(|name| detail.get_str(name)).map(Box::from);
        let source = Source {
            id: format!("{message}-s{}", self.sources).into(),
            message: Some(message),
            url: first(&["url", "source"]),
            title: first(&["title", "document_title"]),
            media_type: first(&["mime_type", "media_type"]),
            filename: first(&["filename", "file_name"]),
            detail: Some(detail.clone()),
        };
        self.sources += 1;
        self.emit(cx, Body::Source(Box::new(source)));
    }

    fn other(&mut self, raw: &RawValue, cx: &mut Cx<'_>) {
        let message = self.message(cx);
        self.others += 1;
        let block = raw_json::json(raw, cx.tally);
        let name = Json::string(&message);
        let value: Json = match block.clone().into_object() {
            Some(block) => block.with("messageId", name).into(),
            None => Object::from_entries([("block", block), ("messageId", name)]).into(),
        };
        self.emit(cx, Body::Custom { name: "content_block".into(), value });
    }

    /// Why the model stopped, and who it was.
    pub(super) fn response(&mut self, raw: &RawValue, tally: &mut Tally) {
        if raw.get() == "{}" {
            return;
        }
        let Some(response) = Response::of(raw) else { return };
        let reason = response.finish_reason.or(response.stop_reason).or(response.stop_camel);
        let reason = reason.or(response.done_reason);
        if let Some(reason) = raw_json::filled(reason.or(response.status), tally) {
            self.finish = Some(reason.into());
        }
        if self.model.is_none() {
            self.model = raw_json::filled(response.model_name.or(response.model), tally).map(Into::into);
        }
        if self.provider.is_none() {
            self.provider =
                raw_json::filled(response.model_provider.or(response.provider), tally).map(Into::into);
        }
    }

    /// What the answer cost, where the source says it apart from the message.
    pub(super) fn cost(&mut self, raw: Option<&RawValue>) {
        if let Some(usage) = raw.and_then(usage) {
            self.usage = Some(usage);
        }
    }
}
