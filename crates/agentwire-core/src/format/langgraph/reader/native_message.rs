//! LangChain messages as they are on the wire: flat, in the `lc` envelope, or in shorthand.

use std::borrow::Cow;

use serde_json::value::RawValue;

use super::super::{
    raw_json,
    wire::{AdditionalKwargs, NativeMessage},
};
use crate::tally::Tally;

/// The role of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum MessageKind {
    Human,
    Ai,
    Tool,
    System,
    Developer,
    /// Deletes a message, or all of them.
    Remove,
}

impl<'a> NativeMessage<'a> {
    /// Reads a message, without its `lc` envelope; `None` if `raw` is not a message.
    pub(super) fn read(raw: &'a RawValue, tally: &mut Tally) -> Option<(MessageKind, Self)> {
        let message = Self::of(raw)?;
        if message.lc.is_some()
            && let Some(kwargs) = message.kwargs
        {
            let mut inner = Self::of(kwargs)?;
            // The inner `type` may be missing; the last part of the envelope's `id` is the class name.
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
            MessageKind::System if message.is_developer(tally) => MessageKind::Developer,
            kind => kind,
        };
        // Content blocks and tool calls have a `type` too, but no content.
        (message.content.is_some() || message.tool_calls.is_some() || kind == MessageKind::Remove)
            .then_some((kind, message))
    }

    /// The kind for a `type`; `{"type":"chat","role":"user"}` has it in `role`.
    fn kind_of(&self, kind: &str, tally: &mut Tally) -> Option<MessageKind> {
        match kind {
            "chat" | "ChatMessage" | "ChatMessageChunk" => {
                MessageKind::parse(&raw_json::string(self.role?, tally)?)
            }
            kind => MessageKind::parse(kind),
        }
    }

    /// Reads `[ROLE, TEXT]`, or the bare text of a user: both are accepted as messages in the input of a graph and
    /// stay unchanged in a state without a reducer.
    pub(super) fn read_shorthand(raw: &'a RawValue, tally: &mut Tally) -> Option<(MessageKind, Self)> {
        let (kind, content) = match &raw_json::elements(raw).unwrap_or_default()[..] {
            [role, content] => (MessageKind::parse(&raw_json::string(role, tally)?)?, *content),
            [] if raw.get().starts_with('"') => (MessageKind::Human, raw),
            _ => return None,
        };
        Some((kind, Self { content: Some(content), ..Self::default() }))
    }

    fn is_developer(&self, tally: &mut Tally) -> bool {
        let kwargs = self.additional_kwargs.and_then(AdditionalKwargs::of);
        let role = kwargs.and_then(|kwargs| raw_json::non_empty(kwargs.openai_role, tally));
        role.is_some_and(|role| role == "developer")
    }

    pub(super) fn id(&self, tally: &mut Tally) -> Option<Cow<'a, str>> {
        raw_json::non_empty(self.id, tally)
    }
}

impl MessageKind {
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
