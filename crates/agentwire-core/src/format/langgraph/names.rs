//! The names of everything that LangChain and LangGraph emit, in one place.
//!
//! LangChain builds its event names as `on_{kind}_{stage}` and exports none of them. Those marked below never
//! occur in `astream_events` v2, but other bridges and older documents use them, so they are understood.

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

            /// What a name on the wire stands for.
            #[must_use]
            pub fn parse(text: &str) -> Option<Self> {
                Some(match text { $($text => Self::$variant,)+ _ => return None })
            }
        }
    };
}

names! {
    /// The kinds of `astream_events` events.
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
        // What a recorder writes when the iterator raised; the server's `error` frame inside a line.
        Error = "error",
    }
}

names! {
    /// The stream modes of a graph, as the server names them in its frames.
    pub enum Mode {
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
        // Not of the server: what a caller has read from `/threads/{id}/state` and `/runs/{id}` after the
        // stream closed, because only there it says how the run ended.
        State = "state",
        Run = "run",
    }
}

names! {
    /// The methods of the server's protocol v2.
    pub enum Method {
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

impl EventName {
    /// Whether this says that a runnable came to its end.
    pub(super) fn is_end(self) -> bool {
        matches!(
            self,
            Self::ChatModelEnd
                | Self::LlmEnd
                | Self::ChainEnd
                | Self::ToolEnd
                | Self::RetrieverEnd
                | Self::PromptEnd
                | Self::ParserEnd
                | Self::NodeEnd
        )
    }

    /// Whether this says that a runnable failed. A failing tool is not among them: the graph goes on.
    pub(super) fn is_failure(self) -> bool {
        matches!(
            self,
            Self::ChatModelError | Self::LlmError | Self::ChainError | Self::RetrieverError | Self::NodeError
        )
    }
}
