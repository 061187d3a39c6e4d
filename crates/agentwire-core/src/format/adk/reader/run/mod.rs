//! The state of a run, and the conversion of parts to events.

mod code_execution;
mod corrections;
mod tool_calls;
mod tool_results;

use std::collections::HashMap;

use indexmap::IndexMap;

use self::tool_calls::ToolCallRecord;
use super::{
    emitter::AdkEmitter,
    media::{inline_media, linked_media},
    model_turn::{BlockKind, ModelTurn, OpenBlock, StreamedPrefix},
    transcript::Transcript,
};
use crate::{
    event::{
        Body, EncryptedEntity, File, Interner, MediaKind, Message, MessageId, PartSource, Role, SubagentId,
        ToolCall, ToolCallId,
    },
    fold::carrier,
    format::adk::{
        options::AdkReaderOptions,
        wire::{AdkPart, AdkText, EventActions},
    },
    json::{Json, Path, ReadResult},
    tally::Tally,
};

/// The state of a run.
#[derive(Debug)]
pub(super) struct AdkRun {
    pub(super) options: AdkReaderOptions,
    pub(super) transcript: Transcript,
    pub(super) tally: Tally,
    interner: Interner,
    /// All calls in order, by emitted id.
    calls: IndexMap<ToolCallId, ToolCallRecord>,
    /// For each id that a model reused: the emitted id of the last call.
    reused_ids: HashMap<Box<str>, ToolCallId>,
    /// Bytes of retained arguments and provisional results.
    retained_bytes: usize,
    /// Bytes of the names and ids of calls.
    name_bytes: usize,
    /// The unfinished messages of other agents; `None` if they are not held completely.
    pub(super) unfinished_elsewhere: Option<Vec<Message>>,
}

/// The event and position of a part.
#[derive(Clone, Copy)]
pub(super) struct PartContext<'e> {
    /// The message id from which the ids of the event's items derive.
    pub(super) message: &'e MessageId,
    /// The id of the event itself, which an earlier event may have had too.
    pub(super) event_id: &'e str,
    /// The ids of the event's long-running calls.
    pub(super) long_running: &'e [AdkText<'e>],
    /// The actions of the event; absent for partial events.
    pub(super) actions: Option<&'e EventActions<'e>>,
    /// The position of the part.
    pub(super) path: Path<'e>,
}

impl AdkRun {
    pub(super) fn new(options: AdkReaderOptions) -> Self {
        let mut run = Self {
            options,
            transcript: Transcript::default(),
            tally: Tally::default(),
            interner: Interner::default(),
            calls: IndexMap::new(),
            reused_ids: HashMap::new(),
            retained_bytes: 0,
            name_bytes: 0,
            unfinished_elsewhere: Some(Vec::new()),
        };
        run.record_history();
        run
    }

    /// A part of a turn: from a partial event (`prefix` is `None`), or from a closing event, of which `prefix` was
    /// streamed.
    pub(super) fn read_part(
        &mut self,
        turn: &mut ModelTurn,
        part: &AdkPart<'_>,
        mut prefix: Option<&mut StreamedPrefix>,
        context: PartContext<'_>,
        emitter: &mut AdkEmitter<'_>,
    ) -> ReadResult {
        let is_thought = part.thought == Some(true);
        if let Some(text) = &part.text {
            let kind = if is_thought { BlockKind::Thought } else { BlockKind::Text };
            let (text, index) = match &mut prefix {
                None => (text.as_str(), None),
                Some(prefix) if text.as_str().is_empty() && part.signature.is_none() => {
                    (prefix.strip(kind, ""), None)
                }
                Some(prefix) => (prefix.strip(kind, text.as_str()), Some(prefix.block_index(kind))),
            };
            self.emit_text(turn, kind, text, emitter);
            if let Some(signature) = &part.signature {
                self.sign_text(turn, kind, index, signature.as_str(), emitter);
            }
        } else {
            if let Some(prefix) = &mut prefix {
                prefix.end_block();
            }
            // A signature on media, on code, or on an empty part.
            if let (None, Some(signature)) = (&part.call, &part.signature)
                && !turn.has_signature(signature.as_str())
            {
                let id = self.open_block(turn, BlockKind::Thought, emitter);
                self.emit_signature(turn, EncryptedEntity::Message(id), signature.as_str(), emitter);
            }
        }
        if let Some(call) = &part.call {
            self.close_block(turn, emitter);
            let path = Path::Key(&context.path, "functionCall");
            let id = match &prefix {
                None => self.read_partial_call(turn, call, context.event_id, emitter),
                Some(_) => self.read_call(turn, call, context, path, emitter)?,
            };
            if let (Some(id), Some(signature)) = (id, &part.signature) {
                self.emit_signature(turn, EncryptedEntity::ToolCall(id), signature.as_str(), emitter);
            }
        }
        let media = match (&part.inline, &part.file) {
            (Some(blob), _) => Some((inline_media(blob), &blob.name)),
            (None, Some(file)) => Some((linked_media(file), &file.name)),
            (None, None) => None,
        };
        if let Some(((kind, source), name)) = media
            && !prefix.as_mut().is_some_and(|prefix| skips(&mut prefix.files))
        {
            if is_thought {
                self.emit_thought_media(turn, source, emitter);
            } else {
                self.emit_file(turn, kind, source, name.as_ref(), emitter);
            }
        }
        if let Some(code) = &part.code
            && !prefix.as_mut().is_some_and(|prefix| skips(&mut prefix.codes))
        {
            self.read_code(turn, code, context.event_id, emitter);
        }
        if let Some(result) = &part.code_result
            && !prefix.as_mut().is_some_and(|prefix| skips(&mut prefix.code_results))
        {
            self.read_code_result(turn, result, emitter);
        }
        Ok(())
    }

    /// Emits text in the open block of its kind, or in a new one.
    fn emit_text(
        &mut self,
        turn: &mut ModelTurn,
        kind: BlockKind,
        delta: &str,
        emitter: &mut AdkEmitter<'_>,
    ) {
        if delta.is_empty() {
            return;
        }
        let message = match &turn.streamed.block {
            Some(block) if block.kind == kind => block.id.clone(),
            _ => self.open_block(turn, kind, emitter),
        };
        turn.append_text(kind, delta);
        let delta = delta.into();
        emitter.push(match kind {
            BlockKind::Text => Body::TextDelta { message, delta },
            BlockKind::Thought => Body::ReasoningDelta { message, delta },
        });
    }

    fn open_block(
        &mut self,
        turn: &mut ModelTurn,
        kind: BlockKind,
        emitter: &mut AdkEmitter<'_>,
    ) -> MessageId {
        self.close_block(turn, emitter);
        let (count, start) = match kind {
            BlockKind::Text => (&mut turn.counts.texts, turn.streamed.text.len()),
            BlockKind::Thought => (&mut turn.counts.thoughts, turn.streamed.thought.len()),
        };
        let index = next_index(count);
        let id = turn.block_id(kind, index);
        let message = id.clone();
        match kind {
            BlockKind::Text => emitter.push(Body::TextStart {
                message,
                role: Some(Role::Assistant),
                name: (!turn.author.is_empty()).then(|| turn.author.clone()),
            }),
            BlockKind::Thought => {
                emitter.push(Body::ReasoningStart { message: message.clone(), title: None });
                emitter.push(Body::ReasoningMessageStart { message });
            }
        }
        turn.streamed.block = Some(OpenBlock { kind, id: id.clone(), start, signature: None });
        turn.emitted.messages.push(id.clone());
        id
    }

    fn close_block(&mut self, turn: &mut ModelTurn, emitter: &mut AdkEmitter<'_>) {
        let Some(OpenBlock { kind, id, start, signature }) = turn.streamed.block.take() else {
            return;
        };
        let message = id.clone();
        match kind {
            BlockKind::Text => {
                let text = turn.streamed.text.get(start..).unwrap_or_default();
                self.transcript.add_text(&id, &turn.author, text);
                emitter.push(Body::TextEnd { message });
            }
            BlockKind::Thought => {
                let text = turn.streamed.thought.get(start..).unwrap_or_default();
                self.transcript.add_thought(&id, text);
                emitter.push(Body::ReasoningMessageEnd { message: message.clone() });
                emitter.push(Body::ReasoningEnd { message });
            }
        }
        if let Some(signature) = signature {
            self.transcript.set_encrypted(&EncryptedEntity::Message(id), &signature);
        }
        if turn.streamed.is_overlong {
            self.transcript.mark_incomplete();
        }
    }

    /// Sets the subagent of the next events and messages; `None` is the main agent.
    pub(super) fn set_subagent(&mut self, subagent: Option<SubagentId>, emitter: &mut AdkEmitter<'_>) {
        self.transcript.subagent.clone_from(&subagent);
        emitter.subagent = subagent;
    }

    /// Closes the open block and calls of a turn.
    pub(super) fn close_turn(&mut self, turn: &mut ModelTurn, emitter: &mut AdkEmitter<'_>) {
        self.set_subagent(turn.subagent.clone(), emitter);
        self.close_block(turn, emitter);
        for streamed in turn.streamed_calls.drain(..) {
            // Without a closing event, ADK never executed the tool.
            let arguments = streamed.args.sent().to_owned();
            self.transcript.add_call(&turn.id, ToolCall::new(streamed.id.clone(), streamed.name, arguments));
            emitter.push(Body::ToolEnd { call: streamed.id });
        }
    }

    /// Emits the signature of a text part for the message of that text.
    fn sign_text(
        &mut self,
        turn: &mut ModelTurn,
        kind: BlockKind,
        index: Option<u32>,
        signature: &str,
        emitter: &mut AdkEmitter<'_>,
    ) {
        let count = match kind {
            BlockKind::Text => turn.counts.texts,
            BlockKind::Thought => turn.counts.thoughts,
        };
        let id = match count.checked_sub(1) {
            Some(last) => turn.block_id(kind, index.map_or(last, |index| index.min(last))),
            // There is no text to attach it to. A signature covers a hidden thought.
            None => self.open_block(turn, BlockKind::Thought, emitter),
        };
        self.emit_signature(turn, EncryptedEntity::Message(id), signature, emitter);
    }

    fn emit_signature(
        &mut self,
        turn: &mut ModelTurn,
        entity: EncryptedEntity,
        signature: &str,
        emitter: &mut AdkEmitter<'_>,
    ) {
        if turn.has_signature(signature) {
            return;
        }
        turn.emitted.signatures.push(signature.into());
        match (&mut turn.streamed.block, &entity) {
            // The message of an open block is added to the transcript when the block closes.
            (Some(block), EncryptedEntity::Message(id)) if block.id == *id => {
                block.signature = Some(signature.into());
            }
            _ => self.transcript.set_encrypted(&entity, signature),
        }
        emitter.push(Body::ReasoningEncrypted { entity, value: signature.into() });
    }

    fn emit_file(
        &mut self,
        turn: &mut ModelTurn,
        kind: MediaKind,
        source: PartSource,
        name: Option<&AdkText<'_>>,
        emitter: &mut AdkEmitter<'_>,
    ) {
        self.close_block(turn, emitter);
        let index = next_index(&mut turn.counts.files);
        let file = File {
            id: turn.part_id("file", index),
            message: Some(turn.id.clone()),
            kind,
            source,
            name: name.map(|name| name.as_str().into()),
        };
        self.transcript.add_activity(&file.id, "agentwire.file", carrier::file_content(&file));
        turn.emitted.messages.push(file.id.clone());
        emitter.push(Body::File(Box::new(file)));
    }

    /// Emits media of a thought as a custom event: they are not part of the output, and reasoning is text only.
    fn emit_thought_media(&mut self, turn: &mut ModelTurn, source: PartSource, emitter: &mut AdkEmitter<'_>) {
        self.close_block(turn, emitter);
        next_index(&mut turn.counts.files);
        let mut members = vec![("messageId", Json::string(&turn.id))];
        match &source {
            PartSource::Data { value, mime_type } => {
                members.extend([("mimeType", Json::string(mime_type)), ("data", Json::string(value))]);
            }
            PartSource::Url { value, mime_type } | PartSource::File { value, mime_type, .. } => {
                members.extend(mime_type.as_ref().map(|mime_type| ("mimeType", Json::string(mime_type))));
                members.push(("uri", Json::string(value)));
            }
        }
        emitter.custom("adk.thought_media", members);
    }
}

/// Increments the count and returns its previous value.
fn next_index(count: &mut u32) -> u32 {
    let index = *count;
    *count = index.saturating_add(1);
    index
}

/// True if the part was streamed already and must be skipped; decrements the number of such parts.
fn skips(count: &mut u32) -> bool {
    let skips = *count > 0;
    *count = count.saturating_sub(1);
    skips
}
