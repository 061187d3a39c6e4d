//! What a run has said so far, to which each part of an event adds.

mod code_execution;
mod corrections;
mod tool_calls;
mod tool_results;

use std::collections::HashMap;

use indexmap::IndexMap;

use self::tool_calls::ToolCallRecord;
use super::{
    citations,
    emitter::AdkEmitter,
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
    json::{Json, Path, ReadError},
    tally::Tally,
};

/// The run so far.
#[derive(Debug)]
pub(super) struct AdkRun {
    pub(super) settings: AdkReaderOptions,
    pub(super) transcript: Transcript,
    pub(super) tally: Tally,
    interner: Interner,
    /// Every call in order, by the id under which it is shown.
    calls: IndexMap<ToolCallId, ToolCallRecord>,
    /// Of ids that a model has used again: under which id the last call is shown.
    reused: HashMap<Box<str>, ToolCallId>,
    /// Bytes of arguments and provisional answers held.
    held: usize,
    /// Bytes of the names and ids of calls.
    named: usize,
    /// What other agents are in the middle of saying; `None` if not all of it is known.
    pub(super) elsewhere: Option<Vec<Message>>,
}

/// Where in an event we are.
#[derive(Clone, Copy)]
pub(super) struct PartContext<'e> {
    /// The id by which the event's messages are named.
    pub(super) event: &'e MessageId,
    /// The event's own id, which an earlier one may have had.
    pub(super) source: &'e str,
    /// The calls of this event that wait.
    pub(super) long_running: &'e [AdkText<'e>],
    /// What the event does beside what it says; absent for partial events.
    pub(super) actions: Option<&'e EventActions<'e>>,
    /// The part.
    pub(super) path: Path<'e>,
}

impl AdkRun {
    pub(super) fn new(settings: AdkReaderOptions) -> Self {
        let mut run = Self {
            settings,
            transcript: Transcript::default(),
            tally: Tally::default(),
            interner: Interner::default(),
            calls: IndexMap::new(),
            reused: HashMap::new(),
            held: 0,
            named: 0,
            elsewhere: Some(Vec::new()),
        };
        run.recall();
        run
    }

    /// A part of a turn: a piece as it streams, or of the whole turn, of which some was `seen`.
    pub(super) fn part(
        &mut self,
        turn: &mut ModelTurn,
        part: &AdkPart<'_>,
        mut seen: Option<&mut StreamedPrefix>,
        at: PartContext<'_>,
        emit: &mut AdkEmitter<'_>,
    ) -> Result<(), ReadError> {
        let thought = part.thought == Some(true);
        if let Some(text) = &part.text {
            let kind = if thought { BlockKind::Thought } else { BlockKind::Answer };
            let (text, index) = match &mut seen {
                None => (text.as_str(), None),
                Some(seen) if text.as_str().is_empty() && part.signature.is_none() => {
                    (seen.rest(kind, ""), None)
                }
                Some(seen) => (seen.rest(kind, text.as_str()), Some(seen.block(kind))),
            };
            self.say(turn, kind, text, emit);
            if let Some(signature) = &part.signature {
                self.sign_text(turn, kind, index, signature.as_str(), emit);
            }
        } else {
            if let Some(seen) = &mut seen {
                seen.other();
            }
            // On a picture, on code, or on nothing at all.
            if let (None, Some(signature)) = (&part.call, &part.signature)
                && !turn.has_signature(signature.as_str())
            {
                let id = self.open_block(turn, BlockKind::Thought, emit);
                self.sign(turn, EncryptedEntity::Message(id), signature.as_str(), emit);
            }
        }
        if let Some(call) = &part.call {
            self.close_block(turn, emit);
            let path = Path::Key(&at.path, "functionCall");
            let id = match &seen {
                None => self.stream_call(turn, call, at.source, emit),
                Some(_) => self.call(turn, call, at, path, emit)?,
            };
            if let (Some(id), Some(signature)) = (id, &part.signature) {
                self.sign(turn, EncryptedEntity::ToolCall(id), signature.as_str(), emit);
            }
        }
        let media = match (&part.inline, &part.file) {
            (Some(blob), _) => Some((citations::inline(blob), &blob.name)),
            (None, Some(file)) => Some((citations::elsewhere(file), &file.name)),
            (None, None) => None,
        };
        if let Some(((kind, source), name)) = media
            && !seen.as_mut().is_some_and(|seen| passes(&mut seen.files))
        {
            if thought {
                self.thought_media(turn, source, emit);
            } else {
                self.file(turn, kind, source, name.as_ref(), emit);
            }
        }
        if let Some(code) = &part.code
            && !seen.as_mut().is_some_and(|seen| passes(&mut seen.codes))
        {
            self.code(turn, code, at.source, emit);
        }
        if let Some(result) = &part.code_result
            && !seen.as_mut().is_some_and(|seen| passes(&mut seen.code_results))
        {
            self.code_result(turn, result, emit);
        }
        Ok(())
    }

    /// Text of a kind: continues the open block or opens one.
    fn say(&mut self, turn: &mut ModelTurn, kind: BlockKind, delta: &str, emit: &mut AdkEmitter<'_>) {
        if delta.is_empty() {
            return;
        }
        let message = match &turn.block {
            Some(block) if block.kind == kind => block.id.clone(),
            _ => self.open_block(turn, kind, emit),
        };
        turn.remember(kind, delta);
        let delta = delta.into();
        emit.push(match kind {
            BlockKind::Answer => Body::TextDelta { message, delta },
            BlockKind::Thought => Body::ReasoningDelta { message, delta },
        });
    }

    fn open_block(&mut self, turn: &mut ModelTurn, kind: BlockKind, emit: &mut AdkEmitter<'_>) -> MessageId {
        self.close_block(turn, emit);
        let (count, start) = match kind {
            BlockKind::Answer => (&mut turn.texts, turn.text.len()),
            BlockKind::Thought => (&mut turn.thoughts, turn.thought.len()),
        };
        let index = next_index(count);
        let id = turn.block_id(kind, index);
        let message = id.clone();
        match kind {
            BlockKind::Answer => emit.push(Body::TextStart {
                message,
                role: Some(Role::Assistant),
                name: (!turn.author.is_empty()).then(|| turn.author.clone()),
            }),
            BlockKind::Thought => {
                emit.push(Body::ReasoningStart { message: message.clone(), title: None });
                emit.push(Body::ReasoningMessageStart { message });
            }
        }
        turn.block = Some(OpenBlock { kind, id: id.clone(), start, signature: None });
        turn.messages.push(id.clone());
        id
    }

    fn close_block(&mut self, turn: &mut ModelTurn, emit: &mut AdkEmitter<'_>) {
        let Some(OpenBlock { kind, id, start, signature }) = turn.block.take() else {
            return;
        };
        let message = id.clone();
        match kind {
            BlockKind::Answer => {
                let text = turn.text.get(start..).unwrap_or_default();
                self.transcript.text(&id, &turn.author, text);
                emit.push(Body::TextEnd { message });
            }
            BlockKind::Thought => {
                let text = turn.thought.get(start..).unwrap_or_default();
                self.transcript.thought(&id, text);
                emit.push(Body::ReasoningMessageEnd { message: message.clone() });
                emit.push(Body::ReasoningEnd { message });
            }
        }
        if let Some(signature) = signature {
            self.transcript.encrypted(&EncryptedEntity::Message(id), &signature);
        }
        if turn.overlong {
            self.transcript.give_up();
        }
    }

    /// What follows is this subagent's; `None` is the main agent.
    pub(super) fn speak_as(&mut self, subagent: Option<SubagentId>, emit: &mut AdkEmitter<'_>) {
        self.transcript.subagent.clone_from(&subagent);
        emit.subagent = subagent;
    }

    /// The turn is over: closes what is open.
    pub(super) fn close(&mut self, turn: &mut ModelTurn, emit: &mut AdkEmitter<'_>) {
        self.speak_as(turn.subagent.clone(), emit);
        self.close_block(turn, emit);
        for streamed in turn.streamed.drain(..) {
            // Its closing event never came, so the tool never ran.
            let arguments = streamed.args.sent().to_owned();
            self.transcript.call(&turn.id, ToolCall::new(streamed.id.clone(), streamed.name, arguments));
            emit.push(Body::ToolEnd { call: streamed.id });
        }
    }

    /// A signature on text belongs to the message that the text is in.
    fn sign_text(
        &mut self,
        turn: &mut ModelTurn,
        kind: BlockKind,
        index: Option<u32>,
        signature: &str,
        emit: &mut AdkEmitter<'_>,
    ) {
        let made = match kind {
            BlockKind::Answer => turn.texts,
            BlockKind::Thought => turn.thoughts,
        };
        let id = match made.checked_sub(1) {
            Some(last) => turn.block_id(kind, index.map_or(last, |index| index.min(last))),
            // Nothing was said yet that it could belong to; what it hides is a thought.
            None => self.open_block(turn, BlockKind::Thought, emit),
        };
        self.sign(turn, EncryptedEntity::Message(id), signature, emit);
    }

    fn sign(
        &mut self,
        turn: &mut ModelTurn,
        entity: EncryptedEntity,
        signature: &str,
        emit: &mut AdkEmitter<'_>,
    ) {
        if turn.has_signature(signature) {
            return;
        }
        turn.signatures.push(signature.into());
        match (&mut turn.block, &entity) {
            // The message of an open block joins the transcript when it closes.
            (Some(block), EncryptedEntity::Message(id)) if block.id == *id => {
                block.signature = Some(signature.into());
            }
            _ => self.transcript.encrypted(&entity, signature),
        }
        emit.push(Body::ReasoningEncrypted { entity, value: signature.into() });
    }

    fn file(
        &mut self,
        turn: &mut ModelTurn,
        kind: MediaKind,
        source: PartSource,
        name: Option<&AdkText<'_>>,
        emit: &mut AdkEmitter<'_>,
    ) {
        self.close_block(turn, emit);
        let index = next_index(&mut turn.files);
        let file = File {
            id: turn.part_id("file", index),
            message: Some(turn.id.clone()),
            kind,
            source,
            name: name.map(|name| name.as_str().into()),
        };
        self.transcript.activity(&file.id, "agentwire.file", carrier::file_content(&file));
        turn.messages.push(file.id.clone());
        emit.push(Body::File(Box::new(file)));
    }

    /// A sketch that the model made for itself: no part of the answer, and reasoning is text only.
    fn thought_media(&mut self, turn: &mut ModelTurn, source: PartSource, emit: &mut AdkEmitter<'_>) {
        self.close_block(turn, emit);
        next_index(&mut turn.files);
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
        emit.custom("adk.thought_media", members);
    }
}

/// The count, which then goes on.
fn next_index(count: &mut u32) -> u32 {
    let before = *count;
    *count = before.saturating_add(1);
    before
}

/// Whether one more of what was streamed is to be passed over.
fn passes(count: &mut u32) -> bool {
    let passes = *count > 0;
    *count = count.saturating_sub(1);
    passes
}
