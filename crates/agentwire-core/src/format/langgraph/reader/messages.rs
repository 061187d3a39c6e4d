//! Converts LangChain messages to canonical messages.

use std::borrow::Cow;

use serde_json::value::RawValue;

use super::{
    super::{
        raw_json,
        wire::{AdditionalKwargs, BlockDetail, NativeBlock, NativeCall, NativeFunction, NativeMessage},
    },
    call_ids::ListedCalls,
    content_blocks::{self, ContentPiece},
    native_message::MessageKind,
};
use crate::{
    event::{Message, MessageBody, MessageId, ToolCall, ToolCallId},
    json::Object,
    tally::Tally,
};

/// A complete tool call.
#[derive(Debug)]
pub(super) struct CompleteCall<'a> {
    pub(super) id: Option<Cow<'a, str>>,
    pub(super) name: Cow<'a, str>,
    /// The arguments as text; JSON if the call is valid.
    pub(super) args: Cow<'a, str>,
}

/// The tool calls of a complete message, in order, invalid ones last.
pub(super) fn complete_calls<'a>(message: &NativeMessage<'a>, tally: &mut Tally) -> Vec<CompleteCall<'a>> {
    let mut calls = Vec::new();
    let mut lists = vec![message.tool_calls, message.invalid_tool_calls];
    if message.tool_calls.is_none_or(|calls| calls.get() == "[]") {
        // Old providers use OpenAI's form only.
        let kwargs = message.additional_kwargs.and_then(AdditionalKwargs::of).unwrap_or_default();
        lists.push(kwargs.tool_calls);
    }
    for list in lists.into_iter().flatten() {
        for raw in raw_json::elements(list).unwrap_or_default() {
            match complete_call(raw, tally) {
                Some(call) => calls.push(call),
                None => tally.note("wrong type", "tool call"),
            }
        }
    }
    calls
}

/// Reads a complete tool call in any form.
pub(super) fn complete_call<'a>(raw: &'a RawValue, tally: &mut Tally) -> Option<CompleteCall<'a>> {
    let call = NativeCall::of(raw)?;
    // `ToolNode` receives a call together with the state.
    let call = call.tool_call.and_then(NativeCall::of).unwrap_or(call);
    let function = call.function.and_then(NativeFunction::of).unwrap_or_default();
    let name = call.name.or(function.name).or(call.tool).or(call.tool_name);
    Some(CompleteCall {
        id: raw_json::non_empty(call.id.or(call.tool_call_id), tally),
        name: raw_json::non_empty(name, tally).unwrap_or_default(),
        args: arguments_text(call.args.or(function.arguments).or(call.tool_input).or(call.input), tally),
    })
}

/// Arguments as text: a string as it is, any other value as JSON.
pub(super) fn arguments_text<'a>(raw: Option<&'a RawValue>, tally: &mut Tally) -> Cow<'a, str> {
    match raw {
        None => Cow::Borrowed(""),
        Some(raw) => match raw_json::string(raw, tally) {
            Some(text) => text,
            None => Cow::Owned(raw_json::json(raw, tally).get().to_owned()),
        },
    }
}

/// Maps native ids to the ids that the client sees.
pub(in super::super) trait ShownIds {
    /// The client's id of a message.
    fn message_id(&self, native: &str) -> MessageId;
    /// The client's id of the result of `call`, which is the client's id of a tool call.
    fn result_message_id(&self, native: Option<&str>, call: &str) -> MessageId;
    /// The client's id of a tool call; of the latest one if the source reuses ids.
    fn call_id(&self, native: &str) -> ToolCallId;
    /// The client's id of a tool call in `message`.
    fn call_id_in(&self, native: &str, message: &MessageId) -> ToolCallId;
    /// The message that contains `call`.
    fn holder(&self, call: &str) -> Option<&MessageId>;
}

/// Keeps native ids.
pub(in super::super) struct NativeIds;

impl ShownIds for NativeIds {
    fn message_id(&self, native: &str) -> MessageId {
        native.into()
    }
    fn result_message_id(&self, native: Option<&str>, call: &str) -> MessageId {
        native.map_or_else(|| default_result_id(call), Into::into)
    }
    fn call_id(&self, native: &str) -> ToolCallId {
        native.into()
    }
    fn call_id_in(&self, native: &str, _: &MessageId) -> ToolCallId {
        native.into()
    }
    fn holder(&self, _: &str) -> Option<&MessageId> {
        None
    }
}

/// Whether LangChain generated the message id `id` from the model's run id, because the provider sent none:
/// `lc_run--RUN`, before 1.0 `run--RUN` and `run-RUN`.
pub(in crate::format::langgraph) fn is_generated_id(id: &str) -> bool {
    id.starts_with("lc_run-")
        || id.strip_prefix("run-").is_some_and(|run| {
            let run = run.trim_start_matches('-').as_bytes();
            run.len() >= 36 && [8, 13, 18, 23].iter().all(|at| run[*at] == b'-')
        })
}

/// The message id of a tool result that has none.
pub(super) fn default_result_id(call: &str) -> MessageId {
    format!("{call}-result").into()
}

/// The id of a reasoning message that has none.
pub(super) fn default_reasoning_id(message: &str, block: &str) -> MessageId {
    format!("{message}-r{block}").into()
}

/// Converts the message `raw`. `position` identifies a message without an id; `listed` contains the tool calls
/// before it.
pub(in super::super) fn canonical_message(
    raw: &RawValue,
    position: usize,
    ids: &dyn ShownIds,
    listed: &mut ListedCalls,
    tally: &mut Tally,
) -> Option<(MessageKind, Message)> {
    let read = NativeMessage::read(raw, tally);
    let (kind, native) = read.or_else(|| NativeMessage::read_shorthand(raw, tally))?;
    let native_id = native.id(tally);
    let id = match &native_id {
        Some(id) => ids.message_id(id),
        None => format!("message-{position}").into(),
    };
    let mut message = match kind {
        MessageKind::Human => Message::user(id, content_blocks::user_content(native.content, tally)),
        MessageKind::System | MessageKind::Developer => {
            let content = content_blocks::text(native.content, tally).into();
            let body = match kind {
                MessageKind::System => MessageBody::System { content },
                _ => MessageBody::Developer { content },
            };
            Message::new(id, body)
        }
        MessageKind::Ai => {
            let calls: Vec<ToolCall> = complete_calls(&native, tally)
                .into_iter()
                .enumerate()
                .map(|(index, call)| {
                    let id = match &call.id {
                        Some(call) => listed.add(call, &id, ids),
                        None => default_call_id(&id, index),
                    };
                    ToolCall::new(id, call.name, call.args)
                })
                .collect();
            let text = content_blocks::text(native.content, tally);
            let content = (!text.is_empty() || calls.is_empty()).then(|| text.into());
            let tool_calls = (!calls.is_empty()).then_some(calls);
            Message::new(id, MessageBody::Assistant { content, tool_calls })
        }
        MessageKind::Tool => {
            let call = raw_json::non_empty(native.tool_call_id, tally)?;
            let content = content_blocks::user_content(native.content, tally);
            let error = is_error(&native, tally).then(|| content.text().into());
            let call = listed.add_result(&call).unwrap_or_else(|| ids.call_id(&call));
            let id = ids.result_message_id(native_id.as_deref(), &call);
            Message::new(id, MessageBody::Tool { call, content, error })
        }
        MessageKind::Remove => return None,
    };
    if kind != MessageKind::Tool {
        message.name = raw_json::non_empty(native.name, tally).map(Into::into);
    }
    Some((kind, message))
}

/// The id of a tool call that has none.
pub(super) fn default_call_id(message: &str, index: usize) -> ToolCallId {
    format!("{message}-call-{index}").into()
}

/// Whether a tool message reports a failure.
pub(super) fn is_error(message: &NativeMessage<'_>, tally: &mut Tally) -> bool {
    raw_json::non_empty(message.status, tally).is_some_and(|status| status == "error")
}

/// The metadata of a tool result: its status and artifact.
pub(super) fn result_metadata(message: &NativeMessage<'_>, tally: &mut Tally) -> Option<Object> {
    let artifact = message.artifact.map(|raw| ("artifact", raw_json::json(raw, tally)));
    let status = is_error(message, tally).then(|| ("status", crate::json::Json::string("error")));
    let entries: Vec<_> = status.into_iter().chain(artifact).collect();
    (!entries.is_empty()).then(|| Object::from_entries(entries))
}

/// The elements of a list, or a single value.
pub(in super::super) fn one_or_many(raw: &RawValue) -> Vec<&RawValue> {
    match raw_json::elements(raw) {
        Some(elements) => elements,
        None => vec![raw],
    }
}

/// Converts the `messages` of a graph's state.
pub(super) fn conversation(raw: &RawValue, ids: &dyn ShownIds, tally: &mut Tally) -> Vec<Message> {
    let mut messages = Vec::new();
    let mut listed = ListedCalls::default();
    for (position, raw) in one_or_many(raw).into_iter().enumerate() {
        match canonical_message(raw, position, ids, &mut listed, tally) {
            Some((_, message)) => messages.push(message),
            None => tally.note("wrong type", "message in the state"),
        }
    }
    messages
}

/// The reasoning in an assistant message, as messages that precede it.
pub(in super::super) fn reasoning_messages(raw: &RawValue, tally: &mut Tally) -> Vec<Message> {
    let Some((MessageKind::Ai, native)) = NativeMessage::read(raw, tally) else { return Vec::new() };
    let Some(id) = native.id(tally) else { return Vec::new() };
    let mut messages: Vec<Message> = Vec::new();
    let mut add = |message: MessageId, text: &str, encrypted: Option<Cow<'_, str>>| {
        let existing = messages.iter().position(|existing| existing.id == message);
        let at = existing.unwrap_or_else(|| {
            let body = MessageBody::Reasoning { content: "".into() };
            messages.push(Message::new(message, body));
            messages.len() - 1
        });
        if let MessageBody::Reasoning { content } = &mut messages[at].body {
            *content = format!("{content}{text}").into();
        }
        if let Some(encrypted) = encrypted.filter(|encrypted| !encrypted.is_empty()) {
            messages[at].encrypted = Some(encrypted.into());
        }
    };
    let kwargs = native.additional_kwargs.and_then(AdditionalKwargs::of).unwrap_or_default();
    for text in kwargs_reasoning(&kwargs, tally) {
        add(default_reasoning_id(&id, "0"), &text.0, None);
    }
    let blocks =
        native.content.map(|content| content_blocks::pieces(content, true, tally)).unwrap_or_default();
    for piece in blocks {
        let ContentPiece::Reasoning(piece) = piece else { continue };
        let text = piece.text.map(|(text, _)| text).unwrap_or_default();
        if text.is_empty() && piece.encrypted.as_ref().is_none_or(|encrypted| encrypted.is_empty()) {
            continue;
        }
        let message = match piece.id {
            Some(id) if piece.part == 0 => id.as_ref().into(),
            Some(id) => format!("{id}-{}", piece.part).into(),
            None if piece.part == 0 => default_reasoning_id(&id, &piece.block),
            None => format!("{}-{}", default_reasoning_id(&id, &piece.block), piece.part).into(),
        };
        add(message, &text, piece.encrypted);
    }
    messages
}

/// Reasoning in `additional_kwargs`: a string, or OpenAI's old list of summaries.
pub(super) fn kwargs_reasoning<'a>(
    kwargs: &AdditionalKwargs<'a>,
    tally: &mut Tally,
) -> Vec<(Cow<'a, str>, &'a RawValue)> {
    let mut texts = Vec::new();
    for raw in [kwargs.reasoning_content, kwargs.reasoning].into_iter().flatten() {
        if let Some(text) = raw_json::string(raw, tally) {
            texts.push((text, raw));
            continue;
        }
        let summary = NativeBlock::of(raw).and_then(|block| block.summary);
        for part in summary.and_then(raw_json::elements).unwrap_or_default() {
            if let Some(raw) = BlockDetail::of(part).and_then(|part| part.text)
                && let Some(text) = raw_json::string(raw, tally)
            {
                texts.push((text, raw));
            }
        }
    }
    texts.retain(|(text, _)| !text.is_empty());
    texts
}
