//! Converts the messages of a request to canonical messages.
//!
//! An assistant message of the SDK is a whole turn: several model calls, their tools and results. The canonical model has a
//! message for each, so a turn is split at its steps. Message ids that agentwire put into the provider metadata are
//! restored; other ids are derived from the id of the turn, as in the reader.

use std::collections::{HashMap, HashSet};

use serde_json::value::RawValue;

use super::{LastMessage, approval_answer, message_parts::resume_entry};
use crate::{
    event::{
        Content, ContentPart, Interrupt, Message, MessageBody, MessageData, MessageId, ResumeEntry,
        ResumeStatus, ToolCall, ToolCallId,
    },
    format::ai_sdk::{
        reader::{
            decode,
            metadata::{self, ReceivedMetadata},
        },
        wire::{self, AI_SDK, native},
        writer::encode,
    },
    json::{Fields, Json, Object, Path, ReadError, ReadResult, elements, json, text},
    tally::Tally,
};

/// Canonical messages of the request so far.
#[derive(Debug)]
pub(super) struct Conversation {
    /// Prefix of generated message ids; the index follows.
    pub(super) id_prefix: String,
    pub(super) messages: Vec<Message>,
    /// State in the client's last state part.
    pub(super) state: Option<Json>,
    /// Answers in the last message.
    pub(super) last: LastMessage,
    /// Answers before the user's last message.
    pub(super) earlier_answers: Vec<ResumeEntry>,
    calls: HashSet<ToolCallId>,
    /// Tool calls by the id of their approval request, in model messages.
    approvals: HashMap<Box<str>, ToolCallId>,
    count: usize,
}

/// An assistant message of the SDK while it is split.
#[derive(Debug)]
pub(super) struct AssistantTurn {
    /// Id of the UI message.
    pub(super) id: String,
    pub(super) messages: Vec<Message>,
    current: Option<CurrentMessage>,
    /// Tool results, which follow the current message.
    results: Vec<Message>,
    text_count: u64,
    pub(super) reasoning_count: u64,
    pub(super) file_count: u64,
    /// Parts without a canonical form, unchanged.
    pub(super) kept_parts: Vec<Json>,
    pub(super) state: Option<Json>,
    pub(super) last: LastMessage,
    /// Approval requests in a model message.
    pub(super) approvals: Vec<(Box<str>, ToolCallId)>,
}

/// The canonical assistant message that is being assembled.
#[derive(Debug, Default)]
struct CurrentMessage {
    id: Option<MessageId>,
    name: Option<Box<str>>,
    subagent: Option<crate::event::SubagentId>,
    encrypted: Option<Box<str>>,
    metadata: Option<Object>,
    text: Option<String>,
    calls: Vec<ToolCall>,
}

impl Conversation {
    pub(super) fn new(id_prefix: &str) -> Self {
        Self {
            id_prefix: id_prefix.to_owned(),
            messages: Vec::new(),
            state: None,
            last: LastMessage::default(),
            earlier_answers: Vec::new(),
            calls: HashSet::new(),
            approvals: HashMap::new(),
            count: 0,
        }
    }

    /// Adds a user message.
    pub(super) fn push_user_text(&mut self, id: &str, text: &str) {
        self.messages.push(Message::user(id, text));
    }

    /// Adds one message of the SDK.
    pub(super) fn push_message(&mut self, raw: &RawValue, path: Path<'_>, tally: &mut Tally) -> ReadResult {
        let mut f = Fields::of(raw, path)?;
        let role = f.need_str("role", tally)?;
        // Version 4 sends no ids unless it is configured to.
        let id = match f.take_unless_null("id") {
            Some(raw) => text(raw, Path::Key(&path, "id"), tally)?.into_owned(),
            None => format!("{}:{}", self.id_prefix, self.count),
        };
        self.count += 1;
        let previous = std::mem::take(&mut self.last);
        if role == "assistant" {
            self.earlier_answers.clear();
        } else {
            self.earlier_answers.extend(previous.resume);
        }
        let metadata = match f.take_unless_null("metadata") {
            Some(raw) => Some(json(raw, Path::Key(&path, "metadata"), tally)?),
            None => None,
        };
        // Objects become the message's metadata; other values are kept whole in `aiSdk`.
        let metadata = match metadata.clone().and_then(Json::into_object) {
            Some(object) => Some(object.without(AI_SDK)).filter(|object| !object.is_empty()),
            None => metadata.map(|value| metadata::with_native(None, native::MESSAGE_METADATA, value)),
        };
        match &*role {
            "user" | "system" | "developer" => self.push_input_message(&role, id, metadata, f, tally),
            "assistant" => self.push_turn(id, metadata, f, tally),
            "tool" => self.push_model_results(f, tally),
            "data" => {
                tally.note("message left out", "role `data`");
                Ok(())
            }
            other => Err(Path::Key(&path, "role")
                .error(format!("expected `system`, `user` or `assistant`, found `{other}`"))),
        }
    }

    /// Adds a message of a user or the application.
    fn push_input_message(
        &mut self,
        role: &str,
        id: String,
        mut metadata: Option<Object>,
        mut f: Fields<'_, '_>,
        tally: &mut Tally,
    ) -> ReadResult {
        let path = f.path();
        let mut parts = Vec::new();
        let mut kept_parts = Vec::new();
        let mut read = |raw: &RawValue, path: Path<'_>, tally: &mut Tally| -> ReadResult {
            match super::message_parts::user_part(raw, path, tally)? {
                Ok(part) => parts.push(part),
                Err(other) => kept_parts.push(other),
            }
            Ok(())
        };
        let has_parts = f.array("parts", |raw, path| read(raw, path, tally))?;
        let content = f.take("content");
        if !has_parts {
            let raw = content.ok_or_else(|| f.missing("parts", "a list of parts"))?;
            let path = Path::Key(&path, "content");
            match raw.get().as_bytes().first() {
                Some(b'"') => parts.push(ContentPart::text(text(raw, path, tally)?)),
                Some(b'[') => {
                    for (index, raw) in elements(raw, path)?.into_iter().enumerate() {
                        read(raw, Path::Index(&path, index), tally)?;
                    }
                }
                _ => return Err(path.expected("a string or a list of parts", raw)),
            }
        }
        f.array("experimental_attachments", |raw, path| {
            parts.push(super::message_parts::attachment(raw, path, tally)?);
            Ok(())
        })?;
        if let Some(rest) = unknown_members(&mut f)? {
            metadata = Some(metadata::with_native(metadata, native::UNKNOWN_MEMBERS, rest.into()));
        }
        if !kept_parts.is_empty() {
            metadata = Some(metadata::with_native(metadata, native::PARTS, json_array(&kept_parts)));
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
        self.messages.push(Message::from(MessageData { metadata, ..MessageData::new(id, body) }));
        Ok(())
    }

    fn push_turn(
        &mut self,
        id: String,
        metadata: Option<Object>,
        mut f: Fields<'_, '_>,
        tally: &mut Tally,
    ) -> ReadResult {
        let path = f.path();
        let mut turn = AssistantTurn::new(id);
        let has_parts =
            f.array("parts", |raw, path| super::message_parts::assistant_part(&mut turn, raw, path, tally))?;
        let content = f.take("content");
        let invocations = f.take("toolInvocations");
        if !has_parts {
            let content_path = Path::Key(&path, "content");
            match content.map(|raw| (raw, raw.get().as_bytes().first())) {
                Some((raw, Some(b'"'))) => {
                    let content = text(raw, content_path, tally)?;
                    if !content.is_empty() {
                        turn.push_text(
                            &content,
                            ReceivedMetadata::of_message(decode::derived_id(&turn.id, "", 1)),
                        );
                    }
                }
                Some((raw, Some(b'['))) => {
                    for (index, raw) in elements(raw, content_path)?.into_iter().enumerate() {
                        super::message_parts::assistant_part(
                            &mut turn,
                            raw,
                            Path::Index(&content_path, index),
                            tally,
                        )?;
                    }
                }
                Some((raw, _)) => return Err(content_path.expected("a string or a list of parts", raw)),
                None if invocations.is_none() => return Err(f.missing("parts", "a list of parts")),
                None => {}
            }
            if let Some(raw) = invocations {
                let path = Path::Key(&path, "toolInvocations");
                for (index, raw) in elements(raw, path)?.into_iter().enumerate() {
                    super::message_parts::tool_invocation(&mut turn, raw, Path::Index(&path, index), tally)?;
                }
            }
        }
        turn.end_message();
        let rest = unknown_members(&mut f)?;
        self.finish_turn(turn, metadata, rest);
        Ok(())
    }

    fn finish_turn(&mut self, turn: AssistantTurn, metadata: Option<Object>, rest: Option<Object>) {
        let AssistantTurn { id, mut messages, kept_parts, state, mut last, approvals, .. } = turn;
        self.approvals.extend(approvals);
        // An empty turn still separates its neighbours.
        if messages.is_empty() {
            messages.push(Message::assistant(id.as_str(), ""));
        }
        for message in &mut messages {
            message.metadata =
                Some(metadata::with_native(message.metadata.take(), native::MESSAGE_ID, Json::string(&id)));
            self.calls.extend(message.tool_calls().iter().map(|call| call.id.clone()));
        }
        if let Some(last) = messages.last_mut() {
            if !kept_parts.is_empty() {
                last.metadata =
                    Some(metadata::with_native(last.metadata.take(), native::PARTS, json_array(&kept_parts)));
            }
            if let Some(rest) = rest {
                last.metadata =
                    Some(metadata::with_native(last.metadata.take(), native::UNKNOWN_MEMBERS, rest.into()));
            }
        }
        if let (Some(first), Some(metadata)) = (messages.first_mut(), metadata) {
            let own = first.metadata.take().unwrap_or_else(Object::empty);
            first.metadata = Some(metadata::merged(&metadata, &own));
        }
        last.assistant = Some(id.into());
        self.last = last;
        self.state = state.or(self.state.take());
        self.messages.append(&mut messages);
    }

    /// Adds a model message of tool results, which some applications send.
    fn push_model_results(&mut self, mut f: Fields<'_, '_>, tally: &mut Tally) -> ReadResult {
        let (calls, approvals) = (&self.calls, &self.approvals);
        let (mut results, mut resume) = (Vec::new(), Vec::new());
        let has_content = f.array("content", |raw, path| {
            let mut part = Fields::of(raw, path)?;
            if part.str("type", tally)?.as_deref() == Some("tool-approval-response") {
                resume.push(approval_response(approvals, &mut part, tally)?);
                return Ok(());
            }
            let call = part.need_str("toolCallId", tally)?.into_owned();
            if !calls.contains(call.as_str()) {
                return Err(unknown_call(path, &call));
            }
            results.push(model_result(call.into(), &mut part, tally)?);
            Ok(())
        })?;
        if !has_content {
            return Err(f.missing("content", "a list of tool results"));
        }
        for message in &results {
            if let MessageBody::Tool { call, .. } = &message.body {
                self.last.answered_calls.push(call.clone());
            }
        }
        self.messages.append(&mut results);
        self.last.resume = resume;
        Ok(())
    }
}

/// Error for a result without a call in the conversation.
pub(super) fn unknown_call(path: Path<'_>, call: &str) -> ReadError {
    let problem = format!("expected the id of a tool call earlier in the conversation, found `{call}`");
    Path::Key(&path, "toolCallId").error(problem)
}

/// Answer to an approval request, in a model message.
fn approval_response(
    approvals: &HashMap<Box<str>, ToolCallId>,
    part: &mut Fields<'_, '_>,
    tally: &mut Tally,
) -> ReadResult<ResumeEntry> {
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
    Ok(resume_entry(interrupt, ResumeStatus::Resolved, Some(answer)))
}

/// Result in a part of a model message: `output` since version 5, `result` before.
pub(super) fn model_result(
    call: ToolCallId,
    part: &mut Fields<'_, '_>,
    tally: &mut Tally,
) -> ReadResult<Message> {
    if let Some(output) = part.json("output", tally)? {
        return Ok(typed_result(call, output));
    }
    let is_error = part.bool("isError")?.unwrap_or(false);
    let result = part.json("result", tally)?.ok_or_else(|| part.missing("output", "the tool's result"))?;
    Ok(result_message(call, &result, is_error.then(|| error_text(&result))))
}

/// Members of a message that are neither read nor redundant.
fn unknown_members(f: &mut Fields<'_, '_>) -> ReadResult<Option<Object>> {
    for key in ["createdAt", "revisionId", "reasoning"] {
        f.take(key);
    }
    f.rest("message", &mut Tally::default())
}

/// Result from a model message's `{type: "text"|"json"|"error-text"|…, value}`.
fn typed_result(call: ToolCallId, output: Json) -> Message {
    let object = output.clone().into_object();
    let kind = object.as_ref().and_then(|it| it.get_str("type"));
    let value = object.as_ref().and_then(|it| it.member("value"));
    match (kind.as_deref(), value) {
        (Some("text" | "json"), Some(value)) => result_message(call, &value, None),
        (Some("error-text" | "error-json"), Some(value)) => {
            result_message(call, &Json::null(), Some(error_text(&value)))
        }
        (Some("execution-denied"), None) => {
            let reason = object.and_then(|it| it.get_str("reason"));
            denied_message(call, reason.map(Into::into))
        }
        _ => result_message(call, &output, None),
    }
}

/// Error text: strings unchanged, other values as JSON.
fn error_text(value: &Json) -> Box<str> {
    match value.to_value() {
        serde_json::Value::String(text) => text.into(),
        _ => value.get().into(),
    }
}

/// Result message of a denied call.
pub(super) fn denied_message(call: ToolCallId, reason: Option<Box<str>>) -> Message {
    let mut result = result_message(call, &Json::null(), Some(reason.unwrap_or_else(|| wire::DENIED.into())));
    result.metadata = Some(metadata::with_native(None, native::DENIED, metadata::json_true()));
    result
}

/// Result message of a call.
pub(super) fn result_message(call: ToolCallId, output: &Json, error: Option<Box<str>>) -> Message {
    let id = decode::result_message_id(&call);
    let (content, output_type) = match &error {
        Some(error) => (Content::Text(error.clone()), None),
        None => {
            let content = decode::tool_result_content(output);
            let output_type = encode::output_type(output, &encode::tool_output(&content));
            (content, output_type)
        }
    };
    let metadata = output_type.map(|it| metadata::with_native(None, native::OUTPUT_TYPE, Json::string(it)));
    Message::from(MessageData {
        metadata,
        ..MessageData::new(id, MessageBody::Tool { call, content, error })
    })
}

fn json_array(items: &[Json]) -> Json {
    let mut out = bytes::BytesMut::new();
    let mut list = crate::json::ArrayWriter::new(&mut out);
    for item in items {
        list.json(item);
    }
    list.end();
    Json::trusted(String::from_utf8(out.into()).expect("JSON text is UTF-8"))
}

impl AssistantTurn {
    fn new(id: String) -> Self {
        Self {
            id,
            messages: Vec::new(),
            current: None,
            results: Vec::new(),
            text_count: 0,
            reasoning_count: 0,
            file_count: 0,
            kept_parts: Vec::new(),
            state: None,
            last: LastMessage::default(),
            approvals: Vec::new(),
        }
    }

    /// Adds text of the assistant.
    pub(super) fn push_text(&mut self, text: &str, received: ReceivedMetadata) {
        // Text after a tool call starts another message.
        let is_other_message = self.current.as_ref().is_some_and(|current| {
            !current.calls.is_empty()
                || (current.id.is_some() && received.message.is_some() && current.id != received.message)
        });
        if is_other_message {
            self.end_message();
        }
        let current = self.current.get_or_insert_default();
        current.text.get_or_insert_default().push_str(text);
        current.id = current.id.take().or(received.message);
        current.name = current.name.take().or(received.name);
        current.subagent = current.subagent.take().or(received.subagent);
        current.encrypted = current.encrypted.take().or(received.encrypted);
        current.metadata = match (current.metadata.take(), received.metadata) {
            (Some(earlier), Some(later)) => Some(earlier.merged(&later)),
            (earlier, later) => earlier.or(later),
        };
    }

    /// Adds a tool call and, if known, the message that contains it.
    pub(super) fn push_call(&mut self, call: ToolCall, parent: Option<MessageId>) {
        let is_other_message = self
            .current
            .as_ref()
            .is_some_and(|current| current.id.is_some() && parent.is_some() && current.id != parent);
        if is_other_message {
            self.end_message();
        }
        let current = self.current.get_or_insert_default();
        current.id = current.id.take().or(parent);
        current.calls.push(call);
    }

    /// Returns true if the turn contains the call.
    pub(super) fn has_call(&self, id: &ToolCallId) -> bool {
        let current = self.current.iter().flat_map(|current| &current.calls);
        let earlier = self.messages.iter().flat_map(Message::tool_calls);
        current.chain(earlier).any(|call| call.id == *id)
    }

    /// Adds a tool result.
    pub(super) fn push_result(&mut self, result: Message) {
        if let MessageBody::Tool { call, .. } = &result.body {
            self.last.answered_calls.push(call.clone());
        }
        self.results.push(result);
    }

    /// Adds any other message.
    pub(super) fn push_other(&mut self, message: Message) {
        self.end_message();
        self.messages.push(message);
    }

    /// Ends the current assistant message; its results follow it.
    pub(super) fn end_message(&mut self) {
        if let Some(current) = self.current.take() {
            self.text_count += 1;
            let generated = || decode::derived_id(&self.id, "", self.text_count).into();
            let id = current.id.unwrap_or_else(generated);
            let earlier = self.messages.iter_mut().find(|message| message.id == id);
            // Text that was split at a step boundary is joined again.
            if let Some(MessageBody::Assistant { content, tool_calls }) =
                earlier.map(|message| &mut message.body)
            {
                if let Some(rest) = current.text {
                    let start = content.take().unwrap_or_default();
                    *content = Some(format!("{start}{rest}").into());
                }
                if !current.calls.is_empty() {
                    tool_calls.get_or_insert_default().extend(current.calls);
                }
            } else {
                let body = MessageBody::Assistant {
                    content: current.text.map(Into::into),
                    tool_calls: (!current.calls.is_empty()).then_some(current.calls),
                };
                self.messages.push(Message::from(MessageData {
                    name: current.name,
                    subagent: current.subagent,
                    encrypted: current.encrypted,
                    metadata: current.metadata,
                    ..MessageData::new(id, body)
                }));
            }
        }
        self.messages.append(&mut self.results);
    }
}
