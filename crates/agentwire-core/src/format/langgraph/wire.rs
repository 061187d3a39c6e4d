//! The objects of LangChain and LangGraph as they lie on the wire. Every member is optional: versions differ,
//! and so do the serialisers that people put in front.

use std::borrow::Cow;

use serde_json::value::RawValue;

use super::view::{self, raw_object};
use crate::tally::Tally;

raw_object! {
    /// Whatever stands on a line or in a frame: one of the five inputs.
    pub(super) struct Native {
        // `astream_events`
        event, name, run_id, parent_ids, tags, metadata, data,
        // Mode objects; `kind` is also protocol v2's.
        ns, mode, kind = "type",
        // Protocol v2
        method, params, event_id, result,
        // Thread state and run
        values, next, tasks, status, interrupts, assistant_id,
    }
}

raw_object! {
    /// `data` of an event.
    pub(super) struct Data { input, output, chunk, error, tool_call_id, name, action, message, detail, }
}

raw_object! {
    /// `metadata` of an event or a message.
    pub(super) struct Meta {
        node = "langgraph_node", step = "langgraph_step", path = "langgraph_path",
        ns = "langgraph_checkpoint_ns", inner_ns = "checkpoint_ns",
        thread_id, run_id, provider = "ls_provider", model = "ls_model_name", integration = "ls_integration",
        agent = "lc_agent_name", tags,
    }
}

raw_object! {
    /// A message or a chunk of one, flat, in the `lc` envelope, or as a role/content pair.
    pub(super) struct Message {
        content, kind = "type", role, id, name, tool_calls, invalid_tool_calls, tool_call_chunks,
        additional_kwargs, response_metadata, usage_metadata, chunk_position,
        tool_call_id, artifact, status,
        lc, kwargs, text,
    }
}

raw_object! {
    /// `additional_kwargs` of a message.
    pub(super) struct Kwargs {
        reasoning_content, reasoning, tool_calls, openai_role = "__openai_role__",
        call_signatures = "__gemini_function_call_thought_signatures__",
    }
}

raw_object! {
    /// `response_metadata` of a message, and protocol v2's `metadata`.
    pub(super) struct Response {
        finish_reason, stop_reason, stop_camel = "stopReason", done_reason, status,
        model_name, model, model_provider, provider,
    }
}

raw_object! {
    /// `usage_metadata` of a message.
    pub(super) struct UsageMetadata {
        input_tokens, output_tokens, total_tokens, input_token_details, output_token_details,
        prompt_tokens, completion_tokens,
    }
}

raw_object! {
    pub(super) struct TokenDetails { cache_read, cache_creation, reasoning, }
}

raw_object! {
    /// A call, whole or a piece of one: LangChain's form, OpenAI's form, and an agent action.
    pub(super) struct Call {
        id, name, args, index, kind = "type", function, tool_call, tool_call_id,
        tool, tool_input, tool_name, input, output, message, event,
    }
}

raw_object! {
    pub(super) struct Function { name, arguments, }
}

raw_object! {
    /// A block of content, of any provider.
    pub(super) struct Block {
        kind = "type", index, id, text, refusal,
        thinking, reasoning, reasoning_content, summary, signature, data, encrypted_content, extras, value,
        annotations, citations,
        image_url, url, base64, file_id, mime_type, media_type, source, source_type, file, file_uri,
        input_audio, filename, title, name, result, transcript,
        // An image generation names its format, OpenAI's audio too.
        format, output_format,
        fields,
    }
}

raw_object! {
    /// Bytes inside a block: Anthropic's `source`, OpenAI's `file`, `input_audio` and `image_url`.
    pub(super) struct Inner {
        kind = "type", media_type, mime_type, data, url, file_id, file_data, filename, format, text, signature,
        index, redacted_content, redacted_camel = "redactedContent",
    }
}

raw_object! {
    /// What a node returns to change more than the state.
    pub(super) struct Command { update, goto, graph, resume, }
}

raw_object! {
    /// An interrupt, today's and the one before ids.
    pub(super) struct Interrupt { value, id, interrupt_id, response_schema, ns, payload, resumable, when, }
}

raw_object! {
    /// What a person or program may find inside an interrupt's value.
    pub(super) struct Question {
        message, question, prompt, description, action_requests, reason,
        tool_call_id, tool_call_camel = "toolCallId", response_schema, schema_camel = "responseSchema",
        expires_at, expires_camel = "expiresAt",
    }
}

raw_object! {
    /// A failure, in the server's words.
    pub(super) struct Failure { error, message, detail, }
}

raw_object! {
    /// A task that starts or ends, in `tasks` and inside `debug`.
    pub(super) struct Task { id, name, input, triggers, result, error, interrupts, }
}

raw_object! {
    /// An entry of `debug`.
    pub(super) struct Debug { kind = "type", payload, }
}

raw_object! {
    /// A checkpoint, in `checkpoints` and inside `debug`.
    pub(super) struct Checkpoint { values, next, tasks, config, }
}

raw_object! {
    pub(super) struct Config { configurable, }
}

raw_object! {
    pub(super) struct Configurable { checkpoint_ns, thread_id, }
}

raw_object! {
    /// `params` of protocol v2.
    pub(super) struct Params { namespace, timestamp, data, node, }
}

raw_object! {
    /// `data` of protocol v2, of all channels.
    pub(super) struct ProtocolData {
        event, id, role, metadata, index, content, delta, usage, message, code, error, graph_name,
        interrupt_id, payload, name, node, values, run_id, cause,
        tool_call_id, tool_name, input, output,
    }
}

raw_object! {
    /// A marker event's `{name, payload}`, and AG-UI's `manually_emit_*`.
    pub(super) struct Marker { kind = "type", name, payload, event_id, id, message_id, message, args, }
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

impl<'a> Message<'a> {
    /// The message that `raw` is, taken out of its `lc` envelope; `None` if it is not a message.
    pub(super) fn read(raw: &'a RawValue, tally: &mut Tally) -> Option<(Kind, Self)> {
        let message = Self::of(raw)?;
        if message.lc.is_some()
            && let Some(kwargs) = message.kwargs
        {
            let mut inner = Self::of(kwargs)?;
            // The class name is the last part of the envelope's path; the inner `type` may have been left out.
            let path = view::strings(message.id, tally);
            let kind = match inner.kind.and_then(|kind| view::string(kind, tally)) {
                Some(kind) => inner.kind_of(&kind, tally),
                None => inner.kind_of(path.last()?, tally),
            }?;
            if inner.content.is_none() {
                inner.content = inner.text;
            }
            return Some((kind, inner));
        }
        let kind = message.kind.or(message.role).and_then(|kind| view::string(kind, tally))?;
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
            "chat" | "ChatMessage" | "ChatMessageChunk" => Kind::parse(&view::string(self.role?, tally)?),
            kind => Kind::parse(kind),
        }
    }

    /// `[ROLE, TEXT]`, or only what a person said: both stand for a message in what a graph is given, and stay in
    /// a state without a reducer.
    pub(super) fn shorthand(raw: &'a RawValue, tally: &mut Tally) -> Option<(Kind, Self)> {
        let (kind, content) = match &view::elements(raw).unwrap_or_default()[..] {
            [role, content] => (Kind::parse(&view::string(role, tally)?)?, *content),
            [] if raw.get().starts_with('"') => (Kind::Human, raw),
            _ => return None,
        };
        Some((kind, Self { content: Some(content), ..Self::default() }))
    }

    fn is_developer(&self, tally: &mut Tally) -> bool {
        let kwargs = self.additional_kwargs.and_then(Kwargs::of);
        let role = kwargs.and_then(|kwargs| view::filled(kwargs.openai_role, tally));
        role.is_some_and(|role| role == "developer")
    }

    pub(super) fn id(&self, tally: &mut Tally) -> Option<Cow<'a, str>> {
        view::filled(self.id, tally)
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
