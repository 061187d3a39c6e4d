//! LangChain messages to canonical messages: how a graph's own history becomes a conversation.

use std::borrow::Cow;

use serde_json::value::RawValue;

use super::{
    super::{
        raw_json,
        wire::{self, Call, Function, Kwargs},
    },
    call_ids::Reused,
    content_blocks::{self, Piece},
};
use crate::{
    event::{Message, MessageBody, MessageId, ToolCall, ToolCallId},
    json::Object,
    tally::Tally,
};

/// A call as a whole.
#[derive(Debug)]
pub(super) struct WholeCall<'a> {
    pub(super) id: Option<Cow<'a, str>>,
    pub(super) name: Cow<'a, str>,
    /// The arguments as text; JSON if the call is valid.
    pub(super) args: Cow<'a, str>,
}

/// The complete calls of a message, in order, the invalid ones last.
pub(super) fn calls<'a>(message: &wire::Message<'a>, tally: &mut Tally) -> Vec<WholeCall<'a>> {
    let mut calls = Vec::new();
    let mut lists = vec![message.tool_calls, message.invalid_tool_calls];
    if message.tool_calls.is_none_or(|calls| calls.get() == "[]") {
        // Messages of old providers have OpenAI's form only.
        let kwargs = message.additional_kwargs.and_then(Kwargs::of).unwrap_or_default();
        lists.push(kwargs.tool_calls);
    }
    for list in lists.into_iter().flatten() {
        for raw in raw_json::elements(list).unwrap_or_default() {
            match whole_call(raw, tally) {
                Some(call) => calls.push(call),
                None => tally.note("wrong type", "tool call"),
            }
        }
    }
    calls
}

/// The call that `raw` is, in any form.
pub(super) fn whole_call<'a>(raw: &'a RawValue, tally: &mut Tally) -> Option<WholeCall<'a>> {
    let call = Call::of(raw)?;
    // A call with the state it was made in.
    let call = call.tool_call.and_then(Call::of).unwrap_or(call);
    let function = call.function.and_then(Function::of).unwrap_or_default();
    let name = call.name.or(function.name).or(call.tool).or(call.tool_name);
    Some(WholeCall {
        id: raw_json::filled(call.id.or(call.tool_call_id), tally),
        name: raw_json::filled(name, tally).unwrap_or_default(),
        args: arguments(call.args.or(function.arguments).or(call.tool_input).or(call.input), tally),
    })
}

/// Arguments as text: a string is the text, anything else is its JSON.
pub(super) fn arguments<'a>(raw: Option<&'a RawValue>, tally: &mut Tally) -> Cow<'a, str> {
    match raw {
        None => Cow::Borrowed(""),
        Some(raw) => match raw_json::string(raw, tally) {
            Some(text) => text,
            None => Cow::Owned(raw_json::json(raw, tally).get().to_owned()),
        },
    }
}

/// What makes a canonical message of a LangChain message: which ids to use, and what to leave out.
pub(super) trait Naming {
    /// The id under which the user interface knows a message.
    fn message(&self, native: &str) -> MessageId;
    /// The id under which it knows the result of the call that it knows as `call`.
    fn result(&self, native: Option<&str>, call: &str) -> MessageId;
    /// The id under which it knows a call: the last one, if the source has used its id again.
    fn call(&self, native: &str) -> ToolCallId;
    /// The id under which it knows the call in `message`.
    fn call_of(&self, native: &str, message: &MessageId) -> ToolCallId;
    /// The message in which it holds a call.
    fn holder(&self, call: &str) -> Option<&MessageId>;
}

/// Ids as they are.
pub(super) struct Native;

impl Naming for Native {
    fn message(&self, native: &str) -> MessageId {
        native.into()
    }
    fn result(&self, native: Option<&str>, call: &str) -> MessageId {
        native.map_or_else(|| result_id(call), Into::into)
    }
    fn call(&self, native: &str) -> ToolCallId {
        native.into()
    }
    fn call_of(&self, native: &str, _: &MessageId) -> ToolCallId {
        native.into()
    }
    fn holder(&self, _: &str) -> Option<&MessageId> {
        None
    }
}

/// Whether `id` is one that LangChain makes up of the model's run where the provider gave none: `lc_run--RUN`,
/// before 1.0 `run--RUN` and `run-RUN`.
pub(in crate::format::langgraph) fn is_stand_in(id: &str) -> bool {
    id.starts_with("lc_run-")
        || id.strip_prefix("run-").is_some_and(|run| {
            let run = run.trim_start_matches('-').as_bytes();
            run.len() >= 36 && [8, 13, 18, 23].iter().all(|at| run[*at] == b'-')
        })
}

/// The id of a result that has none.
pub(super) fn result_id(call: &str) -> MessageId {
    format!("{call}-result").into()
}

/// The id of a reasoning message that has none.
pub(super) fn reasoning_id(message: &str, block: &str) -> MessageId {
    format!("{message}-r{block}").into()
}

/// The canonical message that `raw` is; `place` names messages that have no id, and `reused` knows the calls
/// before it.
pub(super) fn message(
    raw: &RawValue,
    place: usize,
    naming: &dyn Naming,
    reused: &mut Reused,
    tally: &mut Tally,
) -> Option<(Kind, Message)> {
    let read = wire::Message::read(raw, tally);
    let (kind, native) = read.or_else(|| wire::Message::shorthand(raw, tally))?;
    let native_id = native.id(tally);
    let id = match &native_id {
        Some(id) => naming.message(id),
        None => format!("message-{place}").into(),
    };
    let mut message = match kind {
        Kind::Human => Message::user(id, content_blocks::body(native.content, tally)),
        Kind::System | Kind::Developer => {
            let content = content_blocks::text(native.content, tally).into();
            let body = match kind {
                Kind::System => MessageBody::System { content },
                _ => MessageBody::Developer { content },
            };
            Message::new(id, body)
        }
        Kind::Ai => {
            let calls: Vec<ToolCall> = calls(&native, tally)
                .into_iter()
                .enumerate()
                .map(|(index, call)| {
                    let id = match &call.id {
                        Some(call) => reused.call(call, &id, naming),
                        None => call_id(&id, index),
                    };
                    ToolCall::new(id, call.name, call.args)
                })
                .collect();
            let text = content_blocks::text(native.content, tally);
            let content = (!text.is_empty() || calls.is_empty()).then(|| text.into());
            let tool_calls = (!calls.is_empty()).then_some(calls);
            Message::new(id, MessageBody::Assistant { content, tool_calls })
        }
        Kind::Tool => {
            let call = raw_json::filled(native.tool_call_id, tally)?;
            let content = content_blocks::body(native.content, tally);
            let error = is_error(&native, tally).then(|| content.text().into());
            let call = reused.answer(&call).unwrap_or_else(|| naming.call(&call));
            let id = naming.result(native_id.as_deref(), &call);
            Message::new(id, MessageBody::Tool { call, content, error })
        }
        Kind::Remove => return None,
    };
    if kind != Kind::Tool {
        message.name = raw_json::filled(native.name, tally).map(Into::into);
    }
    Some((kind, message))
}

/// The id of a call that has none.
pub(super) fn call_id(message: &str, index: usize) -> ToolCallId {
    format!("{message}-call-{index}").into()
}

/// Whether a tool message reports a failure.
pub(super) fn is_error(message: &wire::Message<'_>, tally: &mut Tally) -> bool {
    raw_json::filled(message.status, tally).is_some_and(|status| status == "error")
}

/// What a result carries beside its content.
pub(super) fn result_metadata(message: &wire::Message<'_>, tally: &mut Tally) -> Option<Object> {
    let artifact = message.artifact.map(|raw| ("artifact", raw_json::json(raw, tally)));
    let status = is_error(message, tally).then(|| ("status", crate::json::Json::string("error")));
    let entries: Vec<_> = status.into_iter().chain(artifact).collect();
    (!entries.is_empty()).then(|| Object::from_entries(entries))
}

/// The messages that `raw` is: a list of them, or a single one.
pub(super) fn list(raw: &RawValue) -> Vec<&RawValue> {
    match raw_json::elements(raw) {
        Some(elements) => elements,
        None => vec![raw],
    }
}

/// A conversation as a graph's state holds it.
pub(super) fn conversation(raw: &RawValue, naming: &dyn Naming, tally: &mut Tally) -> Vec<Message> {
    let mut messages = Vec::new();
    let mut reused = Reused::default();
    for (place, raw) in list(raw).into_iter().enumerate() {
        match message(raw, place, naming, &mut reused, tally) {
            Some((_, message)) => messages.push(message),
            None => tally.note("wrong type", "message in the state"),
        }
    }
    messages
}

/// The reasoning inside a message of the assistant, as messages to stand before it.
pub(super) fn reasoning(raw: &RawValue, tally: &mut Tally) -> Vec<Message> {
    let Some((Kind::Ai, native)) = wire::Message::read(raw, tally) else { return Vec::new() };
    let Some(id) = native.id(tally) else { return Vec::new() };
    let mut messages: Vec<Message> = Vec::new();
    let mut add = |message: MessageId, text: &str, encrypted: Option<Cow<'_, str>>| {
        let known = messages.iter().position(|known| known.id == message);
        let at = known.unwrap_or_else(|| {
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
    let kwargs = native.additional_kwargs.and_then(Kwargs::of).unwrap_or_default();
    for text in kwargs_reasoning(&kwargs, tally) {
        add(reasoning_id(&id, "0"), &text.0, None);
    }
    let blocks =
        native.content.map(|content| content_blocks::pieces(content, true, tally)).unwrap_or_default();
    for piece in blocks {
        let Piece::Reasoning(piece) = piece else { continue };
        let text = piece.text.map(|(text, _)| text).unwrap_or_default();
        if text.is_empty() && piece.encrypted.as_ref().is_none_or(|encrypted| encrypted.is_empty()) {
            continue;
        }
        let message = match piece.id {
            Some(id) if piece.part == 0 => id.as_ref().into(),
            Some(id) => format!("{id}-{}", piece.part).into(),
            None if piece.part == 0 => reasoning_id(&id, &piece.block),
            None => format!("{}-{}", reasoning_id(&id, &piece.block), piece.part).into(),
        };
        add(message, &text, piece.encrypted);
    }
    messages
}

/// Reasoning that a provider put beside the content: a string, or OpenAI's old list of summaries.
pub(super) fn kwargs_reasoning<'a>(
    kwargs: &Kwargs<'a>,
    tally: &mut Tally,
) -> Vec<(Cow<'a, str>, &'a RawValue)> {
    let mut said = Vec::new();
    for raw in [kwargs.reasoning_content, kwargs.reasoning].into_iter().flatten() {
        if let Some(text) = raw_json::string(raw, tally) {
            said.push((text, raw));
            continue;
        }
        let summary = wire::Block::of(raw).and_then(|block| block.summary);
        for part in summary.and_then(raw_json::elements).unwrap_or_default() {
            if let Some(raw) = wire::Inner::of(part).and_then(|part| part.text)
                && let Some(text) = raw_json::string(raw, tally)
            {
                said.push((text, raw));
            }
        }
    }
    said.retain(|(text, _)| !text.is_empty());
    said
}

/// What a message is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Human,
    Ai,
    Tool,
    System,
    Developer,
    /// An order to forget a message, or all of them.
    Remove,
}

impl<'a> wire::Message<'a> {
    /// The message that `raw` is, taken out of its `lc` envelope; `None` if it is not a message.
    pub(super) fn read(raw: &'a RawValue, tally: &mut Tally) -> Option<(Kind, Self)> {
        let message = Self::of(raw)?;
        if message.lc.is_some()
            && let Some(kwargs) = message.kwargs
        {
            let mut inner = Self::of(kwargs)?;
            // The class name is the last part of the envelope's path; the inner `type` may have been left out.
            let path = raw_json::strings(message.id, tally);
            let kind = match inner.kind.and_then(|kind| raw_json::string(kind, tally)) {
                Some(kind) => inner.kind_of(&kind, tally),
                None => inner.kind_of(path.last()?, tally),
            }?;
            if inner.content.is_none() {
                inner.content = inner.text;
            }
            return Some((kind, inner));
        }
        let kind = message.kind.or(message.role).and_then(|kind| raw_json::string(kind, tally))?;
        let kind = message.kind_of(&kind, tally)?;
        let kind = match kind {
            Kind::System if message.is_developer(tally) => Kind::Developer,
            kind => kind,
        };
        // Content blocks and calls have a `type` too, but nothing to say.
        (message.content.is_some() || message.tool_calls.is_some() || kind == Kind::Remove)
            .then_some((kind, message))
    }

    /// What a message of a type is; `{"type":"chat","role":"user"}` names its speaker apart.
    fn kind_of(&self, kind: &str, tally: &mut Tally) -> Option<Kind> {
        match kind {
            "chat" | "ChatMessage" | "ChatMessageChunk" => Kind::parse(&raw_json::string(self.role?, tally)?),
            kind => Kind::parse(kind),
        }
    }

    /// `[ROLE, TEXT]`, or only what a person said: both stand for a message in what a graph is given, and stay in
    /// a state without a reducer.
    pub(super) fn shorthand(raw: &'a RawValue, tally: &mut Tally) -> Option<(Kind, Self)> {
        let (kind, content) = match &raw_json::elements(raw).unwrap_or_default()[..] {
            [role, content] => (Kind::parse(&raw_json::string(role, tally)?)?, *content),
            [] if raw.get().starts_with('"') => (Kind::Human, raw),
            _ => return None,
        };
        Some((kind, Self { content: Some(content), ..Self::default() }))
    }

    fn is_developer(&self, tally: &mut Tally) -> bool {
        let kwargs = self.additional_kwargs.and_then(Kwargs::of);
        let role = kwargs.and_then(|kwargs| raw_json::filled(kwargs.openai_role, tally));
        role.is_some_and(|role| role == "developer")
    }

    pub(super) fn id(&self, tally: &mut Tally) -> Option<Cow<'a, str>> {
        raw_json::filled(self.id, tally)
    }
}

impl Kind {
    fn parse(text: &str) -> Option<Self> {
        Some(match text {
            "ai" | "assistant" | "AIMessageChunk" | "AIMessage" => Self::Ai,
            "human" | "user" | "HumanMessageChunk" | "HumanMessage" => Self::Human,
            "tool" | "function" | "ToolMessageChunk" | "ToolMessage" | "FunctionMessageChunk" => Self::Tool,
            "system" | "SystemMessageChunk" | "SystemMessage" => Self::System,
            "developer" => Self::Developer,
            "remove" | "RemoveMessage" => Self::Remove,
            _ => return None,
        })
    }
}
