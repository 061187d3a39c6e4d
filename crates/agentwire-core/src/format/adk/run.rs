//! What a run has said so far, and how each part of an event adds to it.

use std::collections::HashMap;

use indexmap::IndexMap;

use super::{
    Settings,
    args::ArgsText,
    emit::Emit,
    extras,
    pending::{self, Waiting},
    transcript::{Placed, Transcript},
    turn::{Block, Kind, Seen, StreamedCall, Turn, part_id},
    wire::{Actions, Call, Code, CodeResult, Part, Parts, Response, Text},
};
use crate::{
    event::{
        Body, Content, EncryptedEntity, File, Interner, Interrupt, MediaKind, Message, MessageBody,
        MessageId, PartSource, Role, SubagentId, ToolCall, ToolCallId, ToolResult,
    },
    fold::carrier,
    format::{ReadError, reused},
    json::{Json, Object, Path, json},
    tally::Tally,
};

/// The name under which code that the model runs on its own side appears as a tool.
const CODE_EXECUTION: &str = "code_execution";

/// The run so far.
#[derive(Debug)]
pub(super) struct Run {
    pub(super) settings: Settings,
    pub(super) transcript: Transcript,
    pub(super) tally: Tally,
    interner: Interner,
    /// Every call in order, by the id under which it is shown.
    calls: IndexMap<ToolCallId, CallRecord>,
    /// Of ids that a model has used again: under which id the last call is shown.
    reused: HashMap<Box<str>, ToolCallId>,
    /// Bytes of arguments and provisional answers held.
    held: usize,
    /// Bytes of the names and ids of calls.
    named: usize,
    /// What other agents are in the middle of saying; `None` if not all of it is known.
    pub(super) elsewhere: Option<Vec<Message>>,
}

#[derive(Debug)]
struct CallRecord {
    name: Box<str>,
    /// Of a call that waits: its arguments.
    waiting: Option<Json>,
    provisional: Option<Json>,
    answered: bool,
    /// A model made it, so ADK answers it in the same run.
    by_model: bool,
    /// Whose it is, where subagents are shown.
    subagent: Option<SubagentId>,
    /// The turn that made it, and the event that said so: in 1.x their ids differ.
    events: [MessageId; 2],
}

impl CallRecord {
    /// How many bytes its name and ids take.
    fn size(&self, id: &ToolCallId) -> usize {
        id.len() + self.name.len() + self.events.iter().map(|event| event.len()).sum::<usize>()
    }
}

/// Where in an event we are.
#[derive(Clone, Copy)]
pub(super) struct At<'e> {
    /// The id by which the event's messages are named.
    pub(super) event: &'e MessageId,
    /// The event's own id, which an earlier one may have had.
    pub(super) source: &'e str,
    /// The calls of this event that wait.
    pub(super) long_running: &'e [Text<'e>],
    /// What the event does beside what it says; absent for partial events.
    pub(super) actions: Option<&'e Actions<'e>>,
    /// The part.
    pub(super) path: Path<'e>,
}

impl Run {
    /// How many calls a run may have before answers to the oldest are no longer recognised; agents that are
    /// left to themselves stop at some hundred model turns (ADK's default is 500).
    const MAX_CALLS: usize = 16 * 1024;

    /// How many bytes their ids and names may take: 256 for each of them.
    const MAX_NAMED: usize = 4 * 1024 * 1024;

    /// How much of what calls wait with is held: a hundred times the largest call that a model can make.
    const MAX_HELD: usize = 32 * 1024 * 1024;

    pub(super) fn new(settings: Settings) -> Self {
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

    /// Takes in the ids of calls that the request brought, because the user interface knows these calls.
    fn recall(&mut self) {
        let history = std::mem::take(&mut self.settings.history);
        for message in &history {
            for call in message.tool_calls() {
                let native = reused::native(&call.id, |native| {
                    let last = self.reused.get(native).map_or(native, ToolCallId::as_str);
                    self.calls.get(last).is_some_and(|call| call.answered)
                });
                if native != call.id.as_str() {
                    self.reused.insert(native.into(), call.id.clone());
                }
                self.record(&call.id, &call.name, None, false, [message.id.clone(), message.id.clone()]);
            }
            if let MessageBody::Tool { call, .. } = &message.body
                && let Some(record) = self.calls.get_mut(call)
            {
                record.answered = true;
            }
        }
        // What nobody has answered may still be announced, and is then told like any other call.
        self.calls.retain(|_, call| call.answered);
        self.named = self.calls.iter().map(|(id, call)| call.size(id)).sum();
        self.settings.history = history;
    }

    /// The id under which the last call that a model has named `native` is shown.
    pub(super) fn shown(&mut self, native: &str) -> ToolCallId {
        match self.reused.get(native) {
            Some(shown) => shown.clone(),
            None => self.interner.get(native),
        }
    }

    /// The id under which to show a call that `turn` announces as `native`: what was answered and is then
    /// announced by another event is another call.
    fn announced(&mut self, native: &str, turn: &Turn, source: &str) -> ToolCallId {
        let last = self.shown(native);
        // No id says nothing about which event it is.
        let is_same = |event: &MessageId| *event == turn.id || (!source.is_empty() && **event == *source);
        let is_other =
            self.calls.get(&last).is_some_and(|call| call.answered && !call.events.iter().any(is_same));
        if !is_other {
            return last;
        }
        let shown = reused::next(native, &last, |id| !self.calls.contains_key(id));
        self.reused.insert(native.into(), shown.clone());
        shown
    }

    /// A part of a turn: a piece as it streams, or of the whole turn, of which some was `seen`.
    pub(super) fn part(
        &mut self,
        turn: &mut Turn,
        part: &Part<'_>,
        mut seen: Option<&mut Seen>,
        at: At<'_>,
        emit: &mut Emit<'_>,
    ) -> Result<(), ReadError> {
        let thought = part.thought == Some(true);
        if let Some(text) = &part.text {
            let kind = if thought { Kind::Thought } else { Kind::Answer };
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
        } else if let Some(seen) = &mut seen {
            seen.other();
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
            (Some(blob), _) => Some((extras::inline(blob), &blob.name)),
            (None, Some(file)) => Some((extras::elsewhere(file), &file.name)),
            (None, None) => None,
        };
        if let Some(((kind, source), name)) = media
            && !seen.as_mut().is_some_and(|seen| passes(&mut seen.files))
        {
            self.file(turn, kind, source, name.as_ref(), emit);
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
    fn say(&mut self, turn: &mut Turn, kind: Kind, delta: &str, emit: &mut Emit<'_>) {
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
            Kind::Answer => Body::TextDelta { message, delta },
            Kind::Thought => Body::ReasoningDelta { message, delta },
        });
    }

    fn open_block(&mut self, turn: &mut Turn, kind: Kind, emit: &mut Emit<'_>) -> MessageId {
        self.close_block(turn, emit);
        let (count, start) = match kind {
            Kind::Answer => (&mut turn.texts, turn.text.len()),
            Kind::Thought => (&mut turn.thoughts, turn.thought.len()),
        };
        let index = next(count);
        let id = turn.block_id(kind, index);
        let message = id.clone();
        match kind {
            Kind::Answer => emit.push(Body::TextStart {
                message,
                role: Some(Role::Assistant),
                name: (!turn.author.is_empty()).then(|| turn.author.clone()),
            }),
            Kind::Thought => {
                emit.push(Body::ReasoningStart { message: message.clone(), title: None });
                emit.push(Body::ReasoningMessageStart { message });
            }
        }
        turn.block = Some(Block { kind, id: id.clone(), start, signature: None });
        turn.messages.push(id.clone());
        id
    }

    fn close_block(&mut self, turn: &mut Turn, emit: &mut Emit<'_>) {
        let Some(Block { kind, id, start, signature }) = turn.block.take() else {
            return;
        };
        let message = id.clone();
        match kind {
            Kind::Answer => {
                let text = turn.text.get(start..).unwrap_or_default();
                self.transcript.text(&id, &turn.author, text);
                emit.push(Body::TextEnd { message });
            }
            Kind::Thought => {
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
    pub(super) fn speak_as(&mut self, subagent: Option<SubagentId>, emit: &mut Emit<'_>) {
        self.transcript.subagent.clone_from(&subagent);
        emit.subagent = subagent;
    }

    /// The turn is over: closes what is open.
    pub(super) fn close(&mut self, turn: &mut Turn, emit: &mut Emit<'_>) {
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
        turn: &mut Turn,
        kind: Kind,
        index: Option<u32>,
        signature: &str,
        emit: &mut Emit<'_>,
    ) {
        let made = match kind {
            Kind::Answer => turn.texts,
            Kind::Thought => turn.thoughts,
        };
        let id = match made.checked_sub(1) {
            Some(last) => turn.block_id(kind, index.map_or(last, |index| index.min(last))),
            None if kind == Kind::Thought => self.open_block(turn, kind, emit),
            None => {
                self.tally.note("signature without text", "thoughtSignature");
                return;
            }
        };
        self.sign(turn, EncryptedEntity::Message(id), signature, emit);
    }

    fn sign(&mut self, turn: &mut Turn, entity: EncryptedEntity, signature: &str, emit: &mut Emit<'_>) {
        if turn.signatures.iter().any(|known| **known == *signature) {
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

    /// A piece of a call: only the name and the growing arguments are of interest. What comes whole waits for
    /// the closing event, because some releases of 1.x give the call another id there.
    fn stream_call(
        &mut self,
        turn: &mut Turn,
        call: &Call<'_>,
        source: &str,
        emit: &mut Emit<'_>,
    ) -> Option<ToolCallId> {
        let native = call.id.as_ref().map_or("", Text::as_str);
        let known = match native {
            "" => turn.streamed.len().checked_sub(1),
            native => turn.streamed.iter().position(|streamed| *streamed.native == *native),
        };
        let index = match (known, &call.name) {
            (Some(known), _) => known,
            (None, Some(name)) if call.more == Some(true) && !native.is_empty() => {
                let id = self.announced(native, turn, source);
                if self.calls.contains_key(&id) {
                    return None;
                }
                emit.push(Body::ToolStart {
                    call: id.clone(),
                    name: name.as_str().into(),
                    parent: Some(turn.id.clone()),
                });
                turn.own();
                turn.streamed.push(StreamedCall {
                    id,
                    native: native.into(),
                    name: name.as_str().into(),
                    args: ArgsText::default(),
                });
                turn.streamed.len() - 1
            }
            _ => return None,
        };
        let streamed = &mut turn.streamed[index];
        for piece in call.pieces.iter().flatten() {
            streamed.args.push(piece);
        }
        let call = streamed.id.clone();
        if let Some(delta) = streamed.args.take() {
            emit.push(Body::ToolArgs { call, delta: delta.into() });
        }
        None
    }

    /// A whole call.
    fn call(
        &mut self,
        turn: &mut Turn,
        call: &Call<'_>,
        at: At<'_>,
        path: Path<'_>,
        emit: &mut Emit<'_>,
    ) -> Result<Option<ToolCallId>, ReadError> {
        let name = call.name.as_ref().map_or("", Text::as_str);
        let arguments = match call.args {
            Some(raw) => json(raw, Path::Key(&path, "args"), &mut self.tally)?,
            None => Object::empty().into(),
        };
        let native = call.id.as_ref().map_or("", Text::as_str);
        let streamed = turn.streamed.iter().position(|streamed| *streamed.native == *native);
        let id: ToolCallId = match (native, streamed) {
            ("", _) => turn.part_id("call", turn.calls),
            (_, Some(index)) => turn.streamed[index].id.clone(),
            (native, None) => self.announced(native, turn, at.source),
        };
        turn.calls += 1;
        let waits =
            pending::always_waits(name) || at.long_running.iter().any(|waiting| *waiting.0 == *native);
        if streamed.is_none() && self.calls.contains_key(&id) {
            self.tally.note("repeated call", name);
            return Ok(None);
        }
        let mut rest = arguments.get().to_owned();
        if let Some(index) = streamed {
            let streamed = turn.streamed.remove(index);
            // `calls_agree` has made sure that there is one.
            rest = remainder(streamed.args.sent(), &arguments).unwrap_or_default();
        } else {
            emit.push(Body::ToolStart { call: id.clone(), name: name.into(), parent: Some(turn.id.clone()) });
        }
        if !rest.is_empty() {
            emit.push(Body::ToolArgs { call: id.clone(), delta: rest.into() });
        }
        emit.push(Body::ToolEnd { call: id.clone() });
        self.transcript.call(&turn.id, ToolCall::new(id.clone(), name, arguments.get()));
        turn.own();
        let waiting = waits.then(|| self.hold(arguments));
        self.record(&id, name, waiting, turn.model.is_some(), [turn.id.clone(), at.source.into()]);
        Ok(Some(id))
    }

    fn record(
        &mut self,
        id: &ToolCallId,
        name: &str,
        waiting: Option<Json>,
        by_model: bool,
        events: [MessageId; 2],
    ) {
        let record = CallRecord {
            name: name.into(),
            waiting,
            provisional: None,
            answered: false,
            by_model,
            subagent: self.transcript.subagent.clone(),
            events,
        };
        self.named = self.named.saturating_add(record.size(id));
        while self.calls.len() >= Self::MAX_CALLS || self.named > Self::MAX_NAMED {
            let Some((id, call)) = self.calls.shift_remove_index(0) else {
                break;
            };
            self.named = self.named.saturating_sub(call.size(&id));
            if let Some(native) = self.native(&id).map(Box::<str>::from) {
                self.reused.remove(&native);
            }
            self.tally.note("call forgotten", "too many calls in one run");
        }
        self.calls.insert(id.clone(), record);
    }

    /// The id that the model gave to the call `shown`, if that is the last one of an id used again.
    fn native<'s>(&self, shown: &'s ToolCallId) -> Option<&'s str> {
        let native = reused::native(shown, |native| self.reused.get(native) == Some(shown));
        (native != shown.as_str()).then_some(native)
    }

    /// The value, if there is still room for it; `null` otherwise.
    fn hold(&mut self, value: Json) -> Json {
        self.held = self.held.saturating_add(value.get().len());
        if self.held <= Self::MAX_HELD {
            return value;
        }
        self.tally.note("value not kept", "too much waits in one run");
        Json::null()
    }

    /// Whether a streamed call agrees with what its closing event says.
    pub(super) fn calls_agree(&mut self, turn: &Turn, parts: &Parts<'_>) -> bool {
        turn.streamed.iter().all(|streamed| {
            let whole = parts
                .iter()
                .filter_map(|part| part.call.as_ref())
                .find(|call| call.id.as_ref().is_some_and(|id| *id.0 == *streamed.native));
            let Some(call) = whole else {
                return false;
            };
            let arguments = match call.args {
                Some(raw) => Json::from_raw(raw).map(|(json, _)| json).ok(),
                None => Some(Object::empty().into()),
            };
            arguments.is_some_and(|arguments| remainder(streamed.args.sent(), &arguments).is_some())
        })
    }

    /// What a tool, or a person in its place, answered. `index` counts the answers of the event.
    pub(super) fn answer(
        &mut self,
        response: &Response<'_>,
        index: u32,
        by_user: bool,
        at: At<'_>,
        emit: &mut Emit<'_>,
    ) -> Result<(), ReadError> {
        let path = Path::Key(&at.path, "functionResponse");
        let name = response.name.as_ref().map_or("", Text::as_str);
        let content = match response.response {
            Some(raw) => json(raw, Path::Key(&path, "response"), &mut self.tally)?,
            None => Object::empty().into(),
        };
        let native = response.id.as_ref().map_or("", Text::as_str);
        let call: ToolCallId = match native {
            "" => {
                let open = self.calls.iter().find(|(_, call)| !call.answered && *call.name == *name);
                open.map_or_else(|| part_id(at.event, "answer", index), |(id, _)| id.clone())
            }
            native => self.shown(native),
        };
        let asked = at.actions.is_some_and(|actions| {
            let asks = |entries: &Option<super::wire::Entries<'_>>| {
                entries
                    .iter()
                    .flat_map(|entries| &entries.0)
                    .any(|(id, _)| *id.0 == *native || *id.0 == *call)
            };
            asks(&actions.confirmations) || asks(&actions.auth)
        });
        let record = self.calls.get_mut(&call);
        let waits = record.as_ref().is_some_and(|record| record.waiting.is_some() && !record.answered);
        let message: MessageId = part_id(at.event, "result", index);
        if !by_user && (asked || waits || response.more == Some(true)) {
            if record.is_some() {
                let held = self.hold(content.clone());
                if let Some(record) = self.calls.get_mut(&call) {
                    record.provisional = Some(held);
                }
            }
            self.provisional(message, call, name, content, emit);
            return Ok(());
        }
        let again = record.is_some_and(|record| std::mem::replace(&mut record.answered, true));
        let error = error_of(&content);
        self.result(message, call, content.get().into(), error, again, emit);
        Ok(())
    }

    /// An answer for the time being: not the result, which comes in a later run.
    fn provisional(
        &mut self,
        message: MessageId,
        call: ToolCallId,
        name: &str,
        content: Json,
        emit: &mut Emit<'_>,
    ) {
        if self.settings.provisional_results {
            let flag = serde_json::json!({"adk": {"provisional": true}});
            let result = ToolResult {
                message,
                call,
                content: content.get().into(),
                error: error_of(&content),
                explicit_role: true,
            };
            let metadata = Object::from_value(&flag).expect("an object is an object");
            emit.push_with(Body::ToolResult(Box::new(result)), metadata);
            return;
        }
        emit.custom(
            "adk.provisional_result",
            [("toolCallId", Json::string(&call)), ("name", Json::string(name)), ("response", content)],
        );
    }

    fn result(
        &mut self,
        message: MessageId,
        call: ToolCallId,
        content: Content,
        error: Option<Box<str>>,
        again: bool,
        emit: &mut Emit<'_>,
    ) {
        match self.transcript.result(&message, &call, &content, error.as_deref(), again) {
            Placed::New => emit.push(Body::ToolResult(Box::new(ToolResult {
                message,
                call,
                content,
                error,
                explicit_role: true,
            }))),
            Placed::Same => self.tally.note("repeated result", &call),
            Placed::Instead => {
                self.tally.note("result replaced", &call);
                self.restate(false, emit);
                emit.custom("adk.corrected", [("toolCallId", Json::string(&call))]);
            }
        }
    }

    fn file(
        &mut self,
        turn: &mut Turn,
        kind: MediaKind,
        source: PartSource,
        name: Option<&Text<'_>>,
        emit: &mut Emit<'_>,
    ) {
        self.close_block(turn, emit);
        let index = next(&mut turn.files);
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

    /// Code that runs on the model's side is a call like any other.
    fn code(&mut self, turn: &mut Turn, code: &Code<'_>, source: &str, emit: &mut Emit<'_>) {
        self.close_block(turn, emit);
        let index = next(&mut turn.codes);
        let id: ToolCallId = match code.id.as_ref().map_or("", Text::as_str) {
            "" => turn.part_id("code", index),
            native => self.announced(native, turn, source),
        };
        let text = |text: &Option<Text<'_>>| Json::string(text.as_ref().map_or("", Text::as_str));
        let arguments =
            Object::from_entries([("code", text(&code.code)), ("language", text(&code.language))]);
        emit.push(Body::ToolStart {
            call: id.clone(),
            name: CODE_EXECUTION.into(),
            parent: Some(turn.id.clone()),
        });
        emit.push(Body::ToolArgs { call: id.clone(), delta: arguments.get().into() });
        emit.push(Body::ToolEnd { call: id.clone() });
        self.transcript.call(&turn.id, ToolCall::new(id.clone(), CODE_EXECUTION, arguments.get()));
        turn.own();
        self.record(&id, CODE_EXECUTION, None, false, [turn.id.clone(), source.into()]);
        turn.codes_made.push(id.clone());
        turn.code = Some(id);
    }

    fn code_result(&mut self, turn: &mut Turn, result: &CodeResult<'_>, emit: &mut Emit<'_>) {
        self.close_block(turn, emit);
        let index = next(&mut turn.code_results);
        let message: MessageId = turn.part_id("result", index);
        let call = match result.id.as_ref().map_or("", Text::as_str) {
            "" => turn.code.take().unwrap_or_else(|| turn.part_id("code", index)),
            native => self.shown(native),
        };
        let outcome = result.outcome.as_ref().map_or("", Text::as_str);
        let output = result.output.as_ref().map_or("", Text::as_str);
        let content =
            Object::from_entries([("outcome", Json::string(outcome)), ("output", Json::string(output))]);
        let failed = !matches!(outcome, "" | "OUTCOME_OK" | "OUTCOME_UNSPECIFIED");
        let error = failed.then(|| if output.is_empty() { outcome } else { output }.into());
        let again =
            self.calls.get_mut(&call).is_some_and(|record| std::mem::replace(&mut record.answered, true));
        turn.messages.push(message.clone());
        self.result(message, call, content.get().into(), error, again, emit);
    }

    /// ADK takes back what it has streamed. The turn is built anew under the same ids; what it adds is passed
    /// on, and the conversation is restated, because a text that was sent cannot be changed otherwise.
    pub(super) fn correct(
        &mut self,
        turn: &mut Turn,
        parts: &Parts<'_>,
        at: At<'_>,
        emit: &mut Emit<'_>,
    ) -> Result<(), ReadError> {
        let thoughts = !turn.thoughts_agree(parts);
        let mut known: Vec<ToolCallId> = turn.codes_made.clone();
        known.extend(turn.streamed.iter().map(|streamed| streamed.id.clone()));
        self.close(turn, emit);
        self.transcript.remove(&turn.messages);
        let mut again = Turn::new(turn.id.clone(), &turn.author);
        again.model = turn.model.clone();
        again.subagent = turn.subagent.clone();
        let mut said = Vec::new();
        let mut seen = Seen::default();
        let mut aside = Emit::new(&mut said, None);
        self.speak_as(turn.subagent.clone(), &mut aside);
        for (index, part) in parts.iter().enumerate() {
            let path = Path::Index(&at.path, index);
            self.part(&mut again, part, Some(&mut seen), At { path, ..at }, &mut aside)?;
        }
        self.close(&mut again, &mut aside);
        for event in said {
            let is_new = match &event.body {
                Body::ToolStart { call, .. } | Body::ToolArgs { call, .. } | Body::ToolEnd { call } => {
                    !known.contains(call)
                }
                Body::ToolResult(result) => !turn.messages.contains(&result.message),
                Body::File(file) => !turn.messages.contains(&file.id),
                Body::ReasoningEncrypted { value, .. } => !turn.signatures.contains(value),
                _ => false,
            };
            if is_new {
                emit.push(event.body);
            }
        }
        self.tally.note("streamed text replaced", &turn.author);
        self.restate(thoughts, emit);
        emit.custom("adk.corrected", [("messageId", Json::string(&turn.id))]);
        *turn = again;
        Ok(())
    }

    /// States the conversation anew: what the request brought and what this run has said. Thoughts stay as
    /// the client has them unless they changed, because a snapshot that names some drops the others.
    fn restate(&mut self, thoughts: bool, emit: &mut Emit<'_>) {
        let Some(elsewhere) = self.elsewhere.as_ref().filter(|_| self.transcript.is_whole()) else {
            self.tally.note("correction not sent", "the run is too long to be restated");
            return;
        };
        let wanted = |message: &&Message| thoughts || message.role() != Role::Reasoning;
        let said = self.transcript.messages().iter().filter(wanted);
        let history = self.settings.history.iter().filter(|message| !self.transcript.contains(&message.id));
        let mut messages: Vec<Message> = history.chain(said).cloned().collect();
        // What others are saying goes on behind the snapshot, so it must be in it.
        for open in elsewhere.iter().filter(wanted) {
            let known = messages.iter_mut().rev().find(|message| message.id == open.id);
            match (known.map(|known| &mut known.body), &open.body) {
                (
                    Some(MessageBody::Assistant { tool_calls: calls, .. }),
                    MessageBody::Assistant { tool_calls: Some(more), .. },
                ) => calls.get_or_insert_default().extend(more.iter().cloned()),
                (Some(_), _) => {}
                (None, _) => messages.push(open.clone()),
            }
        }
        // The conversation is everybody's.
        let subagent = emit.subagent.take();
        emit.push(Body::MessagesSnapshot { messages });
        emit.subagent = subagent;
    }

    /// The calls so far are history: those that wait still do, the others are over.
    pub(super) fn settle(&mut self) {
        for call in self.calls.values_mut().filter(|call| call.waiting.is_none()) {
            call.answered = true;
        }
    }

    /// A call of a model that nobody has answered: ADK runs its tools before it ends.
    pub(super) fn unanswered(&self) -> Option<&str> {
        let open = |call: &&CallRecord| {
            call.by_model && !call.answered && call.waiting.is_none() && call.provisional.is_none()
        };
        self.calls.values().find(open).map(|call| &*call.name)
    }

    /// What the run waits for: interrupts, and calls of tools that the user interface runs itself.
    pub(super) fn pending(&self) -> (Vec<Interrupt>, Vec<ToolCallId>) {
        let (mut interrupts, mut frontend) = (Vec::new(), Vec::new());
        for (id, call) in &self.calls {
            let CallRecord { name, waiting: Some(arguments), provisional, answered: false, subagent, .. } =
                call
            else {
                continue;
            };
            if self.settings.frontend_tools.contains(name) {
                frontend.push(id.clone());
                continue;
            }
            let native = self.native(id);
            let provisional = provisional.as_ref();
            let mut interrupt = pending::interrupt(&Waiting { id, native, name, arguments, provisional });
            // ADK's questions name the call that they are about as the model did.
            if let Some(shown) = interrupt.tool_call.as_ref().and_then(|call| self.reused.get(call.as_str()))
            {
                interrupt.tool_call = Some(shown.clone());
            }
            interrupt.subagent.clone_from(subagent);
            interrupts.push(interrupt);
        }
        (interrupts, frontend)
    }
}

/// The count, which then goes on.
fn next(count: &mut u32) -> u32 {
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

/// What is missing of the arguments behind the text that was sent; `None` if that text was wrong. The text was
/// made from values, so it is compared with the arguments in the same spelling if need be.
fn remainder(sent: &str, arguments: &Json) -> Option<String> {
    if let Some(rest) = arguments.get().strip_prefix(sent) {
        return Some(rest.to_owned());
    }
    let spelt = arguments.to_value().to_string();
    spelt.strip_prefix(sent).map(str::to_owned)
}

/// What went wrong, if a tool's answer says that something did: ADK's `{"error": …}`, the `status` that its
/// documentation recommends, and what MCP tools return.
fn error_of(response: &Json) -> Option<Box<str>> {
    let object = response.clone().into_object()?;
    let members = object.entries();
    let find = |name: &str| {
        let found = members.iter().rev().find(|(key, _)| key == name);
        found.map(|(_, value)| value).filter(|value| !value.is_null())
    };
    let plain = |value: &Json| value.as_str().unwrap_or_else(|| value.get().to_owned());
    let failed = find("isError").is_some_and(|flag| flag.get() == "true")
        || find("status").and_then(Json::as_str).as_deref() == Some("error");
    match find("error") {
        Some(error) if !matches!(error.get(), "false" | "\"\"") => Some(plain(error).into()),
        _ if failed => {
            let message = find("error_message").or_else(|| find("message")).or_else(|| find("content"));
            Some(message.map_or_else(|| "the tool failed".into(), |message| plain(message).into()))
        }
        _ => None,
    }
}
