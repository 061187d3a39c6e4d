//! The objects and names of LangChain and LangGraph on the wire. Every member is optional: versions differ, and so
//! do the serialisers between an agent and its reader.

use super::raw_json::raw_object;

raw_object! {
    /// A line or a frame of any of the five inputs.
    pub(super) struct NativeFrame {
        // `astream_events`
        event, name, run_id, parent_ids, tags, metadata, data,
        // StreamMode objects; `kind` is also protocol v2's.
        ns, mode, kind = "type",
        // Protocol v2
        method, params, event_id, result,
        // Thread state and run
        values, next, tasks, status, interrupts, assistant_id,
    }
}

raw_object! {
    /// `data` of an event.
    pub(super) struct EventData { input, output, chunk, error, tool_call_id, name, action, message, detail, }
}

raw_object! {
    /// `metadata` of an event or a message.
    pub(super) struct EventMetadata {
        node = "langgraph_node", step = "langgraph_step", path = "langgraph_path",
        ns = "langgraph_checkpoint_ns", inner_ns = "checkpoint_ns",
        thread_id, run_id, provider = "ls_provider", model = "ls_model_name", integration = "ls_integration",
        agent = "lc_agent_name", tags,
        // Conventions of `ag-ui-langgraph`, and their names in CopilotKit's Python SDK.
        emit_messages = "emit-messages", emit_tool_calls = "emit-tool-calls", predict_state,
        copilotkit_messages = "copilotkit:emit-messages", copilotkit_tool_calls = "copilotkit:emit-tool-calls",
        copilotkit_state = "copilotkit:emit-intermediate-state",
    }
}

raw_object! {
    /// An entry of `predict_state`: the argument of a tool that becomes a part of the state.
    pub(super) struct StatePrediction { tool, }
}

raw_object! {
    /// A message or a chunk: flat, in the `lc` envelope, or as a role/content pair.
    pub(super) struct NativeMessage {
        content, kind = "type", role, id, name, tool_calls, invalid_tool_calls, tool_call_chunks,
        additional_kwargs, response_metadata, usage_metadata, chunk_position,
        tool_call_id, artifact, status,
        lc, kwargs, text,
    }
}

raw_object! {
    /// `additional_kwargs` of a message.
    pub(super) struct AdditionalKwargs {
        reasoning_content, reasoning, tool_calls, openai_role = "__openai_role__",
        call_signatures = "__gemini_function_call_thought_signatures__",
    }
}

raw_object! {
    /// `response_metadata` of a message, and protocol v2's `metadata`.
    pub(super) struct ResponseMetadata {
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
    /// A tool call or a chunk of one: LangChain's form, OpenAI's form, or an agent action.
    pub(super) struct NativeCall {
        id, name, args, index, kind = "type", function, tool_call, tool_call_id,
        tool, tool_input, tool_name, input, output, message, event,
    }
}

raw_object! {
    pub(super) struct NativeFunction { name, arguments, }
}

raw_object! {
    /// A content block of any provider.
    pub(super) struct NativeBlock {
        kind = "type", index, id, text, refusal,
        thinking, reasoning, reasoning_content, summary, signature, data, encrypted_content, extras, value,
        annotations, citations,
        image_url, url, base64, file_id, mime_type, media_type, source, source_type, file, file_uri,
        input_audio, filename, title, name, result, transcript,
        // Image generation and OpenAI's audio.
        format, output_format,
        fields,
    }
}

raw_object! {
    /// An object inside a block: Anthropic's `source`, OpenAI's `file`, `input_audio` and `image_url`.
    pub(super) struct BlockDetail {
        kind = "type", media_type, mime_type, data, url, file_id, file_data, filename, format, text, signature,
        index, redacted_content, redacted_camel = "redactedContent",
    }
}

raw_object! {
    /// `Command`: a state update with a jump, or the answer to an interrupt.
    pub(super) struct NativeCommand { update, goto, graph, resume, }
}

raw_object! {
    /// An interrupt, with an id or, in old versions, without one.
    pub(super) struct NativeInterrupt { value, id, interrupt_id, response_schema, ns, payload, resumable, when, }
}

raw_object! {
    /// The `value` of an interrupt, where graphs put a question.
    pub(super) struct InterruptValue {
        message, question, prompt, description, action_requests, reason,
        tool_call_id, tool_call_camel = "toolCallId", response_schema, schema_camel = "responseSchema",
        expires_at, expires_camel = "expiresAt",
    }
}

raw_object! {
    /// An error of the server.
    pub(super) struct NativeError { error, message, detail, }
}

raw_object! {
    /// The start or end of a task, in `tasks` and inside `debug`.
    pub(super) struct NativeTask { id, name, input, triggers, result, error, interrupts, }
}

raw_object! {
    /// An entry of `debug`.
    pub(super) struct DebugEntry { kind = "type", payload, }
}

raw_object! {
    /// A checkpoint, in `checkpoints` and inside `debug`.
    pub(super) struct NativeCheckpoint { values, next, tasks, config, }
}

raw_object! {
    pub(super) struct CheckpointConfig { configurable, }
}

raw_object! {
    pub(super) struct Configurable { checkpoint_ns, thread_id, }
}

raw_object! {
    /// `params` of protocol v2.
    pub(super) struct ProtocolParams { namespace, timestamp, data, node, }
}

raw_object! {
    /// `data` of protocol v2, for all methods.
    pub(super) struct ProtocolData {
        event, id, role, metadata, index, content, delta, usage, message, code, error, graph_name,
        interrupt_id, payload, name, node, values, run_id, cause,
        tool_call_id, tool_name, input, output,
    }
}

raw_object! {
    /// `data` of a custom event: `{name, payload}` of a marker, and AG-UI's `manually_emit_*`.
    pub(super) struct CustomData { kind = "type", name, payload, event_id, id, message_id, message, args, }
}

/// Defines an enum of names on the wire.
macro_rules! names {
    ($(#[$doc:meta])* $vis:vis enum $name:ident { $($variant:ident = $text:literal,)+ }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[expect(missing_docs, reason = "the names are those on the wire")]
        #[non_exhaustive]
        $vis enum $name { $($variant,)+ }

        impl $name {
            /// Every name.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)+];

            /// The name on the wire.
            #[must_use]
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $text,)+ }
            }

            /// The variant for a name on the wire.
            #[must_use]
            pub fn parse(text: &str) -> Option<Self> {
                Some(match text { $($text => Self::$variant,)+ _ => return None })
            }
        }
    };
}

names! {
    /// The events of `astream_events`. LangChain builds their names as `on_{kind}_{stage}` and exports none of
    /// them. Names marked below never occur in version 2, but other bridges and older documents use them.
    pub enum EventName {
        ChatModelStream = "on_chat_model_stream",
        ChatModelStart = "on_chat_model_start",
        ChatModelEnd = "on_chat_model_end",
        // Not in v2.
        ChatModelError = "on_chat_model_error",
        LlmStart = "on_llm_start",
        LlmStream = "on_llm_stream",
        LlmEnd = "on_llm_end",
        // Not in v2.
        LlmError = "on_llm_error",
        ChainStart = "on_chain_start",
        ChainStream = "on_chain_stream",
        ChainEnd = "on_chain_end",
        // Not in v2: a failing chain makes the iterator raise.
        ChainError = "on_chain_error",
        ToolStart = "on_tool_start",
        ToolStream = "on_tool_stream",
        ToolEnd = "on_tool_end",
        ToolError = "on_tool_error",
        RetrieverStart = "on_retriever_start",
        RetrieverStream = "on_retriever_stream",
        RetrieverEnd = "on_retriever_end",
        // Not in v2.
        RetrieverError = "on_retriever_error",
        PromptStart = "on_prompt_start",
        PromptStream = "on_prompt_stream",
        PromptEnd = "on_prompt_end",
        ParserStart = "on_parser_start",
        ParserStream = "on_parser_stream",
        ParserEnd = "on_parser_end",
        CustomEvent = "on_custom_event",
        // Not in v2: nodes are chains with a tag.
        NodeStart = "on_node_start",
        NodeStream = "on_node_stream",
        NodeEnd = "on_node_end",
        NodeError = "on_node_error",
        // Not in v2: callbacks of the old agent executor.
        AgentAction = "on_agent_action",
        AgentFinish = "on_agent_finish",
        // Written by recorders when the iterator raised: the server's `error` frame as a line.
        Error = "error",
    }
}

names! {
    /// The stream modes of a graph, as the server names them in its frames.
    pub enum StreamMode {
        Messages = "messages",
        MessagesPartial = "messages/partial",
        MessagesComplete = "messages/complete",
        MessagesMetadata = "messages/metadata",
        MessagesTuple = "messages-tuple",
        Updates = "updates",
        Values = "values",
        Custom = "custom",
        Tasks = "tasks",
        Debug = "debug",
        Checkpoints = "checkpoints",
        Events = "events",
        Metadata = "metadata",
        Error = "error",
        End = "end",
        // Appended by the caller: the responses of `/threads/{id}/state` and `/runs/{id}` after the stream closed,
        // which alone report the outcome of the run.
        State = "state",
        Run = "run",
    }
}

names! {
    /// The methods of the server's protocol v2.
    pub enum ProtocolMethod {
        Lifecycle = "lifecycle",
        Messages = "messages",
        Tools = "tools",
        InputRequested = "input.requested",
        Values = "values",
        Updates = "updates",
        Tasks = "tasks",
        Checkpoints = "checkpoints",
        Custom = "custom",
        Debug = "debug",
    }
}
