//! One message of a request: what it says, in canonical messages.
//!
//! A message of the SDK is a whole turn: several model calls, their tools, the results. The canonical model has a
//! message for each, so a turn is taken apart at its steps. Ids that agentwire put into the provider
//! metadata come back as they were; others derive from the id of the turn, in the way of the reader.

use std::collections::{HashMap, HashSet};

use serde_json::value::RawValue;

use super::{Last, approval_answer, message_parts::answer_to};
use crate::{
    event::{
        Content, ContentPart, Interrupt, Message, MessageBody, MessageId, ResumeEntry, ResumeStatus,
        ToolCall, ToolCallId,
    },
    format::ai_sdk::{
        reader::{
            decode,
            metadata::{self, ReceivedMetadata},
        },
        wire::{self, AI_SDK, native},
        writer::encode,
    },
    json::{Fields, Json, Object, Path, ReadError, elements, json, text},
    tally::Tally,
};

/// The messages so far.
#[derive(Debug)]
pub(super) struct Conversation {
    /// Messages without an id are named after this, and their place.
    pub(super) base: String,
    pub(super) messages: Vec<Message>,
    /// The state as the client's last state part has it.
    pub(super) state: Option<Json>,
    /// What the latest message answers.
    pub(super) last: Last,
    /// What was answered before the user said what comes last.
    pub(super) earlier: Vec<ResumeEntry>,
    calls: HashSet<ToolCallId>,
    /// The calls that approvals were asked for, in model messages.
    approvals: HashMap<Box<str>, ToolCallId>,
    count: usize,
}

/// A turn being taken apart.
#[derive(Debug)]
pub(super) struct Turn {
    /// The SDK's id of it.
    pub(super) id: String,
    pub(super) messages: Vec<Message>,
    current: Option<Current>,
    answers: Vec<Message>,
    texts: u64,
    pub(super) thoughts: u64,
    pub(super) files: u64,
    /// Parts that have no place, as they came.
    pub(super) kept: Vec<Json>,
    pub(super) state: Option<Json>,
    pub(super) last: Last,
    /// Approvals that were asked for, in a model message.
    pub(super) approvals: Vec<(Box<str>, ToolCallId)>,
}

/// The assistant message being gathered.
#[derive(Debug, Default)]
struct Current {
    id: Option<MessageId>,
    name: Option<Box<str>>,
    subagent: Option<crate::event::SubagentId>,
    encrypted: Option<Box<str>>,
    metadata: Option<Object>,
    text: Option<String>,
    calls: Vec<ToolCall>,
}

impl Conversation {
    pub(super) fn new(base: &str) -> Self {
        Self {
            base: base.to_owned(),
            messages: Vec::new(),
            state: None,
            last: Last::default(),
            earlier: Vec::new(),
            calls: HashSet::new(),
            approvals: HashMap::new(),
            count: 0,
        }
    }

    /// A user says something.
    pub(super) fn say(&mut self, id: &str, text: &str) {
        self.messages.push(Message::user(id, text));
    }

    /// Takes in one message of the SDK.
    pub(super) fn push(
        &mut self,
        raw: &RawValue,
        path: Path<'_>,
        tally: &mut Tally,
    ) -> Result<(), ReadError> {
        let mut f = Fields::of(raw, path)?;
        let role = f.need_str("role", tally)?;
        // Version 4 sends no ids unless it is told to.
        let id = match f.take_unless_null("id") {
            Some(raw) => text(raw, Path::Key(&path, "id"), tally)?.into_owned(),
            None => format!("{}:{}", self.base, self.count),
        };
        self.count += 1;
        let was = std::mem::take(&mut self.last);
        if role == "assistant" {
            self.earlier.clear();
        } else {
            self.earlier.extend(was.resume);
        }
        let metadata = match f.take_unless_null("metadata") {
            Some(raw) => Some(json(raw, Path::Key(&path, "metadata"), tally)?),
            None => None,
        };
        // An object is ours to extend; anything else is kept whole.
        let metadata = match metadata.clone().and_then(Json::into_object) {
            Some(object) => Some(object.without(AI_SDK)).filter(|object| !object.is_empty()),
            None => metadata.map(|value| metadata::with_native(None, native::MESSAGE_METADATA, value)),
        };
        match &*role {
            "user" | "system" | "developer" => self.spoken(&role, id, metadata, f, tally),
            "assistant" => self.turn(id, metadata, f, tally),
            "tool" => self.results(f, tally),
            "data" => {
                tally.note("message left out", "role `data`");
                Ok(())
            }
            other => Err(Path::Key(&path, "role")
                .error(format!("expected `system`, `user` or `assistant`, found `{other}`"))),
        }
    }

    fn spoken(
        &mut self,
        role: &str,
        id: String,
        mut metadata: Option<Object>,
        mut f: Fields<'_, '_>,
        tally: &mut Tally,
    ) -> Result<(), ReadError> {
        let path = f.path();
        let mut parts = Vec::new();
        let mut kept = Vec::new();
        let mut read = |raw: &RawValue, path: Path<'_>, tally: &mut Tally| -> Result<(), ReadError> {
            match super::message_parts::user_part(raw, path, tally)? {
                Ok(part) => parts.push(part),
                Err(other) => kept.push(other),
            }
            Ok(())
        };
        let there = f.array("parts", |raw, path| read(raw, path, tally))?;
        let content = f.take("content");
        if !there {
            let raw = content.ok_or_else(|| f.missing("parts", "a list of parts"))?;
            let place = Path::Key(&path, "content");
            match raw.get().as_bytes().first() {
                Some(b'"') => parts.push(ContentPart::text(text(raw, place, tally)?)),
                Some(b'[') => {
                    for (index, raw) in elements(raw, place)?.into_iter().enumerate() {
                        read(raw, Path::Index(&place, index), tally)?;
                    }
                }
                _ => return Err(place.expected("a string or a list of parts", raw)),
            }
        }
        f.array("experimental_attachments", |raw, path| {
            parts.push(super::message_parts::attachment(raw, path, tally)?);
            Ok(())
        })?;
        if let Some(rest) = message_rest(&mut f)? {
            metadata = Some(metadata::with_native(metadata, native::UNKNOWN_MEMBERS, rest.into()));
        }
        if !kept.is_empty() {
            metadata = Some(metadata::with_native(metadata, native::PARTS, array(&kept)));
        }
        let content = match &parts[..] {
            [ContentPart::Text { text, metadata: None, .. }] => Content::Text(text.clone()),
            _ => Content::Parts(parts),
        };
        let body = match role {
            "user" => MessageBody::User { content },
            "developer" => MessageBody::Developer { content: content.text().into() },
            _ => MessageBody::System { content: content.text().into() },
        };
        self.messages.push(Message { metadata, ..Message::new(id, body) });
        Ok(())
    }

    fn turn(
        &mut self,
        id: String,
        metadata: Option<Object>,
        mut f: Fields<'_, '_>,
        tally: &mut Tally,
    ) -> Result<(), ReadError> {
        let path = f.path();
        let mut turn = Turn::new(id);
        let there =
            f.array("parts", |raw, path| super::message_parts::assistant_part(&mut turn, raw, path, tally))?;
        let content = f.take("content");
        let invocations = f.take("toolInvocations");
        if !there {
            let place = Path::Key(&path, "content");
            match content.map(|raw| (raw, raw.get().as_bytes().first())) {
                Some((raw, Some(b'"'))) => {
                    let said = text(raw, place, tally)?;
                    if !said.is_empty() {
                        turn.text(&said, ReceivedMetadata::of_message(decode::derived_id(&turn.id, "", 1)));
                    }
                }
                Some((raw, Some(b'['))) => {
                    for (index, raw) in elements(raw, place)?.into_iter().enumerate() {
                        super::message_parts::assistant_part(
                            &mut turn,
                            raw,
                            Path::Index(&place, index),
                            tally,
                        )?;
                    }
                }
                Some((raw, _)) => return Err(place.expected("a string or a list of parts", raw)),
                None if invocations.is_none() => return Err(f.missing("parts", "a list of parts")),
                None => {}
            }
            if let Some(raw) = invocations {
                let place = Path::Key(&path, "toolInvocations");
                for (index, raw) in elements(raw, place)?.into_iter().enumerate() {
                    super::message_parts::invocation(&mut turn, raw, Path::Index(&place, index), tally)?;
                }
            }
        }
        turn.flush();
        let rest = message_rest(&mut f)?;
        self.finish_turn(turn, metadata, rest);
        Ok(())
    }

    fn finish_turn(&mut self, turn: Turn, metadata: Option<Object>, rest: Option<Object>) {
        let Turn { id, mut messages, kept, state, mut last, approvals, .. } = turn;
        self.approvals.extend(approvals);
        // A turn that says nothing still stands between two others.
        if messages.is_empty() {
            messages.push(Message::assistant(id.as_str(), ""));
        }
        for message in &mut messages {
            message.metadata =
                Some(metadata::with_native(message.metadata.take(), native::MESSAGE_ID, Json::string(&id)));
            self.calls.extend(message.tool_calls().iter().map(|call| call.id.clone()));
        }
        if let Some(last) = messages.last_mut() {
            if !kept.is_empty() {
                last.metadata =
                    Some(metadata::with_native(last.metadata.take(), native::PARTS, array(&kept)));
            }
            if let Some(rest) = rest {
                last.metadata =
                    Some(metadata::with_native(last.metadata.take(), native::UNKNOWN_MEMBERS, rest.into()));
            }
        }
        if let (Some(first), Some(metadata)) = (messages.first_mut(), metadata) {
            let told = first.metadata.take().unwrap_or_else(Object::empty);
            first.metadata = Some(metadata::merged(&metadata, &told));
        }
        last.assistant = Some(id.into());
        self.last = last;
        self.state = state.or(self.state.take());
        self.messages.append(&mut messages);
    }

    /// A model message of results, which some applications send.
    fn results(&mut self, mut f: Fields<'_, '_>, tally: &mut Tally) -> Result<(), ReadError> {
        let (calls, approvals) = (&self.calls, &self.approvals);
        let (mut results, mut resume) = (Vec::new(), Vec::new());
        let there = f.array("content", |raw, path| {
            let mut part = Fields::of(raw, path)?;
            if part.str("type", tally)?.as_deref() == Some("tool-approval-response") {
                resume.push(decision(approvals, &mut part, tally)?);
                return Ok(());
            }
            let call = part.need_str("toolCallId", tally)?.into_owned();
            if !calls.contains(call.as_str()) {
                return Err(unknown_call(path, &call));
            }
            results.push(model_result(call.into(), &mut part, tally)?);
            Ok(())
        })?;
        if !there {
            return Err(f.missing("content", "a list of tool results"));
        }
        for message in &results {
            if let MessageBody::Tool { call, .. } = &message.body {
                self.last.answers.push(call.clone());
            }
        }
        self.messages.append(&mut results);
        self.last.resume = resume;
        Ok(())
    }
}

/// A result in `path` whose call is nowhere.
pub(super) fn unknown_call(path: Path<'_>, call: &str) -> ReadError {
    let problem = format!("expected the id of a tool call earlier in the conversation, found `{call}`");
    Path::Key(&path, "toolCallId").error(problem)
}

/// What a person decided, in a model message.
fn decision(
    approvals: &HashMap<Box<str>, ToolCallId>,
    part: &mut Fields<'_, '_>,
    tally: &mut Tally,
) -> Result<ResumeEntry, ReadError> {
    let path = part.path();
    let id = part.need_boxed("approvalId", tally)?;
    let Some(call) = approvals.get(&id) else {
        return Err(Path::Key(&path, "approvalId").error(format!(
            "expected the id of an approval request earlier in the conversation, found `{id}`"
        )));
    };
    let approved = part.bool("approved")?.ok_or_else(|| part.missing("approved", "a boolean"))?;
    let reason = part.boxed("reason", tally)?;
    let mut interrupt = Interrupt::new(&*id, "tool_call");
    interrupt.tool_call = Some(call.clone());
    let answer = approval_answer(approved, reason.as_deref());
    Ok(answer_to(interrupt, ResumeStatus::Resolved, Some(answer)))
}

/// The result that a part of a model message holds: `output` since version 5, `result` before.
pub(super) fn model_result(
    call: ToolCallId,
    part: &mut Fields<'_, '_>,
    tally: &mut Tally,
) -> Result<Message, ReadError> {
    if let Some(output) = part.json("output", tally)? {
        return Ok(unwrapped(call, output));
    }
    let failed = part.bool("isError")?.unwrap_or(false);
    let result = part.json("result", tally)?.ok_or_else(|| part.missing("output", "the tool's result"))?;
    Ok(result_message(call, &result, failed.then(|| spoken_error(&result))))
}

/// Members of a message that nobody asked for, without those that say nothing new.
fn message_rest(f: &mut Fields<'_, '_>) -> Result<Option<Object>, ReadError> {
    for key in ["createdAt", "revisionId", "reasoning"] {
        f.take(key);
    }
    f.rest("message", &mut Tally::default())
}

/// The result that a model message's `{type: "text"|"json"|"error-text"|…, value}` stands for.
fn unwrapped(call: ToolCallId, output: Json) -> Message {
    let object = output.clone().into_object();
    let kind = object.as_ref().and_then(|it| it.get_str("type"));
    let value = object.as_ref().and_then(|it| it.member("value"));
    match (kind.as_deref(), value) {
        (Some("text" | "json"), Some(value)) => result_message(call, &value, None),
        (Some("error-text" | "error-json"), Some(value)) => {
            result_message(call, &Json::null(), Some(spoken_error(&value)))
        }
        (Some("execution-denied"), None) => {
            let reason = object.and_then(|it| it.get_str("reason"));
            denied_message(call, reason.map(Into::into))
        }
        _ => result_message(call, &output, None),
    }
}

/// An error in words: text as it is, anything else as JSON.
fn spoken_error(value: &Json) -> Box<str> {
    match value.to_value() {
        serde_json::Value::String(text) => text.into(),
        _ => value.get().into(),
    }
}

/// The result of a call that a person refused.
pub(super) fn denied_message(call: ToolCallId, reason: Option<Box<str>>) -> Message {
    let mut result = result_message(call, &Json::null(), Some(reason.unwrap_or_else(|| wire::DENIED.into())));
    result.metadata = Some(metadata::with_native(None, native::DENIED, metadata::json_true()));
    result
}

/// The message that holds a result.
pub(super) fn result_message(call: ToolCallId, output: &Json, error: Option<Box<str>>) -> Message {
    let id = decode::result_message_id(&call);
    let (content, kind) = match &error {
        Some(error) => (Content::Text(error.clone()), None),
        None => {
            let content = decode::tool_result_content(output);
            let kind = encode::output_type(output, &encode::tool_output(&content));
            (content, kind)
        }
    };
    let metadata = kind.map(|kind| metadata::with_native(None, native::OUTPUT_TYPE, Json::string(kind)));
    Message { metadata, ..Message::new(id, MessageBody::Tool { call, content, error }) }
}

fn array(items: &[Json]) -> Json {
    let mut out = bytes::BytesMut::new();
    let mut list = crate::json::ArrayWriter::new(&mut out);
    for item in items {
        list.json(item);
    }
    list.end();
    Json::trusted(String::from_utf8(out.into()).expect("JSON text is UTF-8"))
}

impl Turn {
    fn new(id: String) -> Self {
        Self {
            id,
            messages: Vec::new(),
            current: None,
            answers: Vec::new(),
            texts: 0,
            thoughts: 0,
            files: 0,
            kept: Vec::new(),
            state: None,
            last: Last::default(),
            approvals: Vec::new(),
        }
    }

    /// Text of the assistant.
    pub(super) fn text(&mut self, said: &str, facts: ReceivedMetadata) {
        // What is said after a call was called is another message.
        let another = self.current.as_ref().is_some_and(|current| {
            !current.calls.is_empty()
                || (current.id.is_some() && facts.message.is_some() && current.id != facts.message)
        });
        if another {
            self.flush();
        }
        let current = self.current.get_or_insert_default();
        current.text.get_or_insert_default().push_str(said);
        current.id = current.id.take().or(facts.message);
        current.name = current.name.take().or(facts.name);
        current.subagent = current.subagent.take().or(facts.subagent);
        current.encrypted = current.encrypted.take().or(facts.encrypted);
        current.metadata = match (current.metadata.take(), facts.metadata) {
            (Some(known), Some(more)) => Some(known.merged(&more)),
            (known, more) => known.or(more),
        };
    }

    /// A call of the assistant, and the message that made it, where known.
    pub(super) fn call(&mut self, call: ToolCall, parent: Option<MessageId>) {
        let another = self
            .current
            .as_ref()
            .is_some_and(|current| current.id.is_some() && parent.is_some() && current.id != parent);
        if another {
            self.flush();
        }
        let current = self.current.get_or_insert_default();
        current.id = current.id.take().or(parent);
        current.calls.push(call);
    }

    /// Whether a call was made in this turn.
    pub(super) fn calls(&self, id: &ToolCallId) -> bool {
        let current = self.current.iter().flat_map(|current| &current.calls);
        let earlier = self.messages.iter().flat_map(Message::tool_calls);
        current.chain(earlier).any(|call| call.id == *id)
    }

    /// The result of a call.
    pub(super) fn answer(&mut self, result: Message) {
        if let MessageBody::Tool { call, .. } = &result.body {
            self.last.answers.push(call.clone());
        }
        self.answers.push(result);
    }

    /// Any other message.
    pub(super) fn other(&mut self, message: Message) {
        self.flush();
        self.messages.push(message);
    }

    /// Ends the assistant message that is being gathered; its results follow it.
    pub(super) fn flush(&mut self) {
        if let Some(current) = self.current.take() {
            self.texts += 1;
            let made = || decode::derived_id(&self.id, "", self.texts).into();
            let id = current.id.unwrap_or_else(made);
            let known = self.messages.iter_mut().find(|message| message.id == id);
            // A text that was split at a step is one message again.
            if let Some(Message { body: MessageBody::Assistant { content, tool_calls }, .. }) = known {
                if let Some(more) = current.text {
                    let said = content.take().unwrap_or_default();
                    *content = Some(format!("{said}{more}").into());
                }
                if !current.calls.is_empty() {
                    tool_calls.get_or_insert_default().extend(current.calls);
                }
            } else {
                let body = MessageBody::Assistant {
                    content: current.text.map(Into::into),
                    tool_calls: (!current.calls.is_empty()).then_some(current.calls),
                };
                self.messages.push(Message {
                    name: current.name,
                    subagent: current.subagent,
                    encrypted: current.encrypted,
                    metadata: current.metadata,
                    ..Message::new(id, body)
                });
            }
        }
        self.messages.append(&mut self.answers);
    }
}
