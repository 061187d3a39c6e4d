//! ADK's JSON, exactly as far as it is understood.
//!
//! Every member may be missing or `null`, may be spelt in camelCase or snake_case (ADK's own models write
//! one and accept both) and may come in any order. Members that nobody knows are remembered by name, because
//! nearly every release of ADK adds some. Everything is borrowed from the frame.

use std::{borrow::Cow, fmt};

use serde::{
    Deserialize, Deserializer,
    de::{IgnoredAny, MapAccess, SeqAccess, Visitor},
};
use serde_json::value::RawValue;

use crate::{
    format::ReadError,
    json::{Fields, Path, elements},
};

/// A value that a wire object can hold, and what to say when it holds something else.
pub(super) trait Member<'a>: Deserialize<'a> {
    /// The error for `raw`, which is not of this kind.
    fn explain(raw: &'a RawValue, path: Path<'_>) -> ReadError;
}

/// Text, borrowed where it has no escape.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Text<'a>(pub(super) Cow<'a, str>);

impl Text<'_> {
    pub(super) fn as_str(&self) -> &str {
        &self.0
    }
}

impl<'de> Deserialize<'de> for Text<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Borrow;
        impl<'de> Visitor<'de> for Borrow {
            type Value = Text<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string")
            }

            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
                Ok(Text(Cow::Borrowed(text)))
            }

            fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
                Ok(Text(Cow::Owned(text.to_owned())))
            }
        }
        deserializer.deserialize_str(Borrow)
    }
}

impl<'a> Member<'a> for Text<'a> {
    fn explain(raw: &'a RawValue, path: Path<'_>) -> ReadError {
        path.expected("a string", raw)
    }
}

impl<'a> Member<'a> for bool {
    fn explain(raw: &'a RawValue, path: Path<'_>) -> ReadError {
        path.expected("a boolean", raw)
    }
}

impl<'a> Member<'a> for f64 {
    fn explain(raw: &'a RawValue, path: Path<'_>) -> ReadError {
        path.expected("a number", raw)
    }
}

impl<'a> Member<'a> for &'a RawValue {
    fn explain(raw: &'a RawValue, path: Path<'_>) -> ReadError {
        path.expected("any JSON value", raw)
    }
}

impl<'a, T: Member<'a>> Member<'a> for Vec<T> {
    fn explain(raw: &'a RawValue, path: Path<'_>) -> ReadError {
        let elements = match elements(raw, path) {
            Ok(elements) => elements,
            Err(error) => return error,
        };
        let wrong = |element: &&&'a RawValue| serde_json::from_str::<T>(element.get()).is_err();
        match elements.iter().enumerate().find(|(_, element)| wrong(element)) {
            Some((index, element)) => T::explain(element, Path::Index(&path, index)),
            None => path.expected("an array", raw),
        }
    }
}

// Parts are moved around while they are parsed, and nearly all of them are text: the rest stays small.
impl<'a, T: Member<'a>> Member<'a> for Box<T> {
    fn explain(raw: &'a RawValue, path: Path<'_>) -> ReadError {
        T::explain(raw, path)
    }
}

/// An object with members whose names nobody has to know: kept in order, values raw.
#[derive(Debug, Default)]
pub(super) struct Entries<'a>(pub(super) Vec<(Text<'a>, &'a RawValue)>);

impl<'de> Deserialize<'de> for Entries<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Members;
        impl<'de> Visitor<'de> for Members {
            type Value = Entries<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut members = Vec::new();
                while let Some(entry) = map.next_entry()? {
                    members.push(entry);
                }
                Ok(Entries(members))
            }
        }
        deserializer.deserialize_map(Members)
    }
}

impl<'a> Member<'a> for Entries<'a> {
    fn explain(raw: &'a RawValue, path: Path<'_>) -> ReadError {
        path.expected("an object", raw)
    }
}

/// The parts of a content. Nearly every event has exactly one, which then needs no allocation.
#[derive(Debug, Default)]
pub(super) struct Parts<'a> {
    first: Option<Part<'a>>,
    rest: Vec<Part<'a>>,
}

impl<'a> Parts<'a> {
    pub(super) fn iter(&self) -> impl Iterator<Item = &Part<'a>> {
        self.first.iter().chain(&self.rest)
    }
}

impl<'de> Deserialize<'de> for Parts<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Elements;
        impl<'de> Visitor<'de> for Elements {
            type Value = Parts<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an array of parts")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<Self::Value, A::Error> {
                let mut parts = Parts { first: elements.next_element()?, rest: Vec::new() };
                while let Some(part) = elements.next_element()? {
                    parts.rest.push(part);
                }
                Ok(parts)
            }
        }
        deserializer.deserialize_seq(Elements)
    }
}

impl<'a> Member<'a> for Parts<'a> {
    fn explain(raw: &'a RawValue, path: Path<'_>) -> ReadError {
        Vec::<Part<'a>>::explain(raw, path)
    }
}

/// Declares wire objects: each member with the names it goes by.
macro_rules! wire {
    ($($(#[$doc:meta])* $name:ident { $($field:ident: $kind:ty = $($key:literal)|+,)+ })+) => {$(
        $(#[$doc])*
        #[derive(Debug, Default)]
        pub(super) struct $name<'a> {
            $(pub(super) $field: Option<$kind>,)+
            /// Names of members that nobody knows.
            pub(super) unknown: Vec<Text<'a>>,
        }

        impl<'a> Deserialize<'a> for $name<'a> {
            fn deserialize<D: Deserializer<'a>>(deserializer: D) -> Result<Self, D::Error> {
                struct Members;
                impl<'a> Visitor<'a> for Members {
                    type Value = $name<'a>;

                    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                        f.write_str("an object")
                    }

                    fn visit_map<A: MapAccess<'a>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                        let mut object = $name::default();
                        while let Some(key) = map.next_key::<Text<'a>>()? {
                            match key.as_str() {
                                $($($key)|+ => {
                                    // A `null` does not take back what the other spelling said.
                                    if let Some(value) = map.next_value::<Option<$kind>>()? {
                                        object.$field = Some(value);
                                    }
                                })+
                                _ => {
                                    map.next_value::<IgnoredAny>()?;
                                    object.unknown.push(key);
                                }
                            }
                        }
                        Ok(object)
                    }
                }
                deserializer.deserialize_map(Members)
            }
        }

        impl<'a> Member<'a> for $name<'a> {
            fn explain(raw: &'a RawValue, path: Path<'_>) -> ReadError {
                let mut fields = match Fields::of(raw, path) {
                    Ok(fields) => fields,
                    Err(error) => return error,
                };
                $($(
                    if let Some(raw) = fields.take_unless_null($key)
                        && serde_json::from_str::<$kind>(raw.get()).is_err()
                    {
                        return <$kind>::explain(raw, Path::Key(&path, $key));
                    }
                )+)+
                path.expected("an object of another shape", raw)
            }
        }
    )+};
}

wire! {
    /// One event; or what the API server sends in the place of one.
    Event {
        id: Text<'a> = "id",
        invocation: Text<'a> = "invocationId" | "invocation_id",
        author: Text<'a> = "author",
        timestamp: f64 = "timestamp",
        branch: Text<'a> = "branch",
        scope: Text<'a> = "isolationScope" | "isolation_scope",
        node: Node<'a> = "nodeInfo" | "node_info",
        content: Content<'a> = "content",
        partial: bool = "partial",
        turn_complete: bool = "turnComplete" | "turn_complete",
        interrupted: bool = "interrupted",
        finish_reason: Text<'a> = "finishReason" | "finish_reason",
        error_code: Text<'a> = "errorCode" | "error_code",
        error_message: Text<'a> = "errorMessage" | "error_message",
        long_running: Vec<Text<'a>> = "longRunningToolIds" | "long_running_tool_ids",
        actions: &'a RawValue = "actions",
        output: &'a RawValue = "output",
        usage: &'a RawValue = "usageMetadata" | "usage_metadata",
        grounding: &'a RawValue = "groundingMetadata" | "grounding_metadata",
        citations: &'a RawValue = "citationMetadata" | "citation_metadata",
        metadata: &'a RawValue = "customMetadata" | "custom_metadata",
        heard: &'a RawValue = "inputTranscription" | "input_transcription",
        spoken: &'a RawValue = "outputTranscription" | "output_transcription",
        model: Text<'a> = "modelVersion" | "model_version",
        error: &'a RawValue = "error",
        error_details: Box<ErrorDetails<'a>> = "error_details" | "errorDetails",
        detail: &'a RawValue = "detail",
        events: &'a RawValue = "events",
        state: &'a RawValue = "state",
    }
    /// Which workflow node an event comes from.
    Node {
        path: Text<'a> = "path",
        output_for: Vec<Text<'a>> = "outputFor" | "output_for",
        message_as_output: bool = "messageAsOutput" | "message_as_output",
    }
    /// What was said, by a model, a tool or a person.
    Content {
        role: Text<'a> = "role",
        parts: Parts<'a> = "parts",
    }
    /// One piece of a content: one payload and some flags.
    Part {
        text: Text<'a> = "text",
        thought: bool = "thought",
        signature: Text<'a> = "thoughtSignature" | "thought_signature",
        call: Box<Call<'a>> = "functionCall" | "function_call",
        response: Box<Response<'a>> = "functionResponse" | "function_response",
        inline: Box<Blob<'a>> = "inlineData" | "inline_data",
        file: Box<FileData<'a>> = "fileData" | "file_data",
        code: Box<Code<'a>> = "executableCode" | "executable_code",
        code_result: Box<CodeResult<'a>> = "codeExecutionResult" | "code_execution_result",
        video: &'a RawValue = "videoMetadata" | "video_metadata",
    }
    /// A call of a tool, whole or in pieces.
    Call {
        id: Text<'a> = "id",
        name: Text<'a> = "name",
        args: &'a RawValue = "args",
        pieces: Vec<Piece<'a>> = "partialArgs" | "partial_args",
        more: bool = "willContinue" | "will_continue",
    }
    /// A piece of an argument.
    Piece {
        path: Text<'a> = "jsonPath" | "json_path",
        string: Text<'a> = "stringValue" | "string_value",
        number: &'a RawValue = "numberValue" | "number_value",
        boolean: bool = "boolValue" | "bool_value",
        null: Text<'a> = "nullValue" | "null_value",
        more: bool = "willContinue" | "will_continue",
    }
    /// What a tool, or a person in its place, answered.
    Response {
        id: Text<'a> = "id",
        name: Text<'a> = "name",
        response: &'a RawValue = "response",
        more: bool = "willContinue" | "will_continue",
        scheduling: Text<'a> = "scheduling",
        parts: &'a RawValue = "parts",
    }
    /// Media inside the event.
    Blob {
        mime_type: Text<'a> = "mimeType" | "mime_type",
        data: Text<'a> = "data",
        name: Text<'a> = "displayName" | "display_name",
    }
    /// Media elsewhere.
    FileData {
        mime_type: Text<'a> = "mimeType" | "mime_type",
        uri: Text<'a> = "fileUri" | "file_uri",
        name: Text<'a> = "displayName" | "display_name",
    }
    /// Code that the model runs on its own side.
    Code {
        id: Text<'a> = "id",
        code: Text<'a> = "code",
        language: Text<'a> = "language",
    }
    /// What that code did.
    CodeResult {
        id: Text<'a> = "id",
        outcome: Text<'a> = "outcome",
        output: Text<'a> = "output",
    }
    /// What else an event does. Always ignored on partial events.
    Actions {
        state: Entries<'a> = "stateDelta" | "state_delta",
        artifacts: Entries<'a> = "artifactDelta" | "artifact_delta",
        transfer: Text<'a> = "transferToAgent" | "transfer_to_agent",
        transfer_reason: Text<'a> = "transferReason" | "transfer_reason",
        escalate: bool = "escalate",
        skip_summarization: bool = "skipSummarization" | "skip_summarization",
        auth: Entries<'a> = "requestedAuthConfigs" | "requested_auth_configs",
        confirmations: Entries<'a> = "requestedToolConfirmations" | "requested_tool_confirmations",
        rewind: Text<'a> = "rewindBeforeInvocationId" | "rewind_before_invocation_id",
        compaction: &'a RawValue = "compaction",
        end_of_agent: &'a RawValue = "endOfAgent" | "end_of_agent",
        agent_state: &'a RawValue = "agentState" | "agent_state",
        route: &'a RawValue = "route",
        widgets: &'a RawValue = "renderUiWidgets" | "render_ui_widgets",
        model_response: &'a RawValue = "setModelResponse" | "set_model_response",
    }
    /// A range of history and the summary that stands for it.
    Compaction {
        start: f64 = "startTimestamp" | "start_timestamp",
        end: f64 = "endTimestamp" | "end_timestamp",
        content: Content<'a> = "compactedContent" | "compacted_content",
    }
    /// Token counts.
    UsageMetadata {
        prompt: f64 = "promptTokenCount" | "prompt_token_count",
        tool_prompt: f64 = "toolUsePromptTokenCount" | "tool_use_prompt_token_count",
        candidates: f64 = "candidatesTokenCount" | "candidates_token_count",
        thoughts: f64 = "thoughtsTokenCount" | "thoughts_token_count",
        cached: f64 = "cachedContentTokenCount" | "cached_content_token_count",
        total: f64 = "totalTokenCount" | "total_token_count",
    }
    /// What supports an answer.
    Grounding {
        chunks: Vec<GroundingChunk<'a>> = "groundingChunks" | "grounding_chunks",
        supports: Vec<Support<'a>> = "groundingSupports" | "grounding_supports",
    }
    /// One source: a page, a document of a search index, or a place.
    GroundingChunk {
        web: SourceInfo<'a> = "web",
        retrieved: SourceInfo<'a> = "retrievedContext" | "retrieved_context",
        maps: SourceInfo<'a> = "maps",
    }
    /// How a source is called and where it is.
    SourceInfo {
        uri: Text<'a> = "uri",
        title: Text<'a> = "title",
        domain: Text<'a> = "domain",
        text: Text<'a> = "text",
        document: Text<'a> = "documentName" | "document_name",
    }
    /// Which text a source supports.
    Support {
        chunks: Vec<f64> = "groundingChunkIndices" | "grounding_chunk_indices",
        segment: Segment<'a> = "segment",
    }
    /// A stretch of an answer.
    Segment {
        part: f64 = "partIndex" | "part_index",
        start: f64 = "startIndex" | "start_index",
        end: f64 = "endIndex" | "end_index",
        text: Text<'a> = "text",
    }
    /// Citations of one answer.
    Citations {
        citations: Vec<Citation<'a>> = "citations",
    }
    /// One citation.
    Citation {
        uri: Text<'a> = "uri",
        title: Text<'a> = "title",
        license: Text<'a> = "license",
        start: f64 = "startIndex" | "start_index",
        end: f64 = "endIndex" | "end_index",
    }
    /// The error frame of a 2.x server in detail.
    ErrorDetails {
        kind: Text<'a> = "error_type" | "errorType",
        message: Text<'a> = "error_message" | "errorMessage",
    }
    /// A stored session.
    Session {
        id: Text<'a> = "id",
        app: Text<'a> = "appName" | "app_name",
        user: Text<'a> = "userId" | "user_id",
        state: &'a RawValue = "state",
        events: Vec<&'a RawValue> = "events",
        updated: f64 = "lastUpdateTime" | "last_update_time",
    }
    /// One complaint of the server about a request.
    Complaint {
        place: Vec<&'a RawValue> = "loc",
        message: Text<'a> = "msg",
    }
}

/// The object that `raw` must be.
///
/// # Errors
/// When it is not of that shape; says where.
pub(super) fn parse<'a, T: Member<'a>>(raw: &'a RawValue, path: Path<'_>) -> Result<T, ReadError> {
    serde_json::from_str(raw.get()).map_err(|_| T::explain(raw, path))
}

/// ADK's seconds in the unit of everybody else; `None` beyond what a timestamp may be there.
pub(super) fn milliseconds(seconds: f64) -> Option<i64> {
    const EXACT: f64 = 9_007_199_254_740_991.0;
    let milliseconds = (seconds * 1000.0).round();
    (milliseconds.abs() <= EXACT).then_some(milliseconds as i64)
}
