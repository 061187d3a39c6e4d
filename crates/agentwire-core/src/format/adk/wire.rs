//! The JSON shapes of ADK, as far as this crate reads them.
//!
//! Every member may be missing or `null`, may be spelled in camelCase or snake_case (ADK's models write one and accept
//! both) and may appear in any order. Names of unknown members are kept, because nearly every ADK release adds some.
//! All values borrow from the frame. [`decode`](super::reader::decode) implements the decoding.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::reader::decode::wire_objects;

/// A string, borrowed unless it contains an escape.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub(super) struct AdkText<'a>(#[serde(borrow)] pub(super) Cow<'a, str>);

/// A number and its text in the frame.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct AdkNumber<'a> {
    pub(super) value: f64,
    pub(super) text: &'a str,
}

/// An object with arbitrary member names: in order, values raw.
#[derive(Debug, Default)]
pub(super) struct RawEntries<'a>(pub(super) Vec<(AdkText<'a>, &'a RawValue)>);

/// The parts of a content. Nearly every event has exactly one part, which then needs no allocation.
#[derive(Debug, Default)]
pub(super) struct PartList<'a> {
    pub(super) first: Option<AdkPart<'a>>,
    pub(super) rest: Vec<AdkPart<'a>>,
}

wire_objects! {
    /// One event, or the error or session that the API server sends in its place.
    AdkEvent {
        id: AdkText<'a> = "id",
        invocation: AdkText<'a> = "invocationId" | "invocation_id",
        author: AdkText<'a> = "author",
        timestamp: AdkNumber<'a> = "timestamp",
        branch: AdkText<'a> = "branch",
        isolation_scope: AdkText<'a> = "isolationScope" | "isolation_scope",
        node: NodeInfo<'a> = "nodeInfo" | "node_info",
        content: AdkContent<'a> = "content",
        partial: bool = "partial",
        turn_complete: bool = "turnComplete" | "turn_complete",
        interrupted: bool = "interrupted",
        finish_reason: AdkText<'a> = "finishReason" | "finish_reason",
        error_code: AdkText<'a> = "errorCode" | "error_code",
        error_message: AdkText<'a> = "errorMessage" | "error_message",
        long_running: Vec<AdkText<'a>> = "longRunningToolIds" | "long_running_tool_ids",
        actions: &'a RawValue = "actions",
        output: &'a RawValue = "output",
        usage: &'a RawValue = "usageMetadata" | "usage_metadata",
        grounding: &'a RawValue = "groundingMetadata" | "grounding_metadata",
        citations: &'a RawValue = "citationMetadata" | "citation_metadata",
        custom_metadata: &'a RawValue = "customMetadata" | "custom_metadata",
        input_transcription: &'a RawValue = "inputTranscription" | "input_transcription",
        output_transcription: &'a RawValue = "outputTranscription" | "output_transcription",
        model: AdkText<'a> = "modelVersion" | "model_version",
        error: &'a RawValue = "error",
        error_details: Box<ErrorDetails<'a>> = "error_details" | "errorDetails",
        detail: &'a RawValue = "detail",
        events: &'a RawValue = "events",
        state: &'a RawValue = "state",
    }
    /// The workflow node of an event.
    NodeInfo {
        path: AdkText<'a> = "path",
        output_for: Vec<AdkText<'a>> = "outputFor" | "output_for",
        message_as_output: bool = "messageAsOutput" | "message_as_output",
    }
    /// Content of a model, a tool or a user.
    AdkContent {
        role: AdkText<'a> = "role",
        parts: PartList<'a> = "parts",
    }
    /// One part of a content: one payload and some flags. The payloads are boxed, because parts are moved during
    /// decoding and nearly all of them are text.
    AdkPart {
        text: AdkText<'a> = "text",
        thought: bool = "thought",
        signature: AdkText<'a> = "thoughtSignature" | "thought_signature",
        call: Box<FunctionCall<'a>> = "functionCall" | "function_call",
        response: Box<FunctionResponse<'a>> = "functionResponse" | "function_response",
        inline: Box<Blob<'a>> = "inlineData" | "inline_data",
        file: Box<FileData<'a>> = "fileData" | "file_data",
        code: Box<ExecutableCode<'a>> = "executableCode" | "executable_code",
        code_result: Box<CodeExecutionResult<'a>> = "codeExecutionResult" | "code_execution_result",
        video: &'a RawValue = "videoMetadata" | "video_metadata",
    }
    /// A tool call, whole or streamed in pieces.
    FunctionCall {
        id: AdkText<'a> = "id",
        name: AdkText<'a> = "name",
        args: &'a RawValue = "args",
        partial_args: Vec<PartialArg<'a>> = "partialArgs" | "partial_args",
        will_continue: bool = "willContinue" | "will_continue",
    }
    /// A streamed piece of the arguments: a value at a JSON path.
    PartialArg {
        path: AdkText<'a> = "jsonPath" | "json_path",
        string: AdkText<'a> = "stringValue" | "string_value",
        number: &'a RawValue = "numberValue" | "number_value",
        boolean: bool = "boolValue" | "bool_value",
        null: AdkText<'a> = "nullValue" | "null_value",
        will_continue: bool = "willContinue" | "will_continue",
    }
    /// The result of a tool call, from the tool or from a person.
    FunctionResponse {
        id: AdkText<'a> = "id",
        name: AdkText<'a> = "name",
        response: &'a RawValue = "response",
        will_continue: bool = "willContinue" | "will_continue",
        scheduling: AdkText<'a> = "scheduling",
        parts: &'a RawValue = "parts",
    }
    /// Inline media.
    Blob {
        mime_type: AdkText<'a> = "mimeType" | "mime_type",
        data: AdkText<'a> = "data",
        name: AdkText<'a> = "displayName" | "display_name",
    }
    /// Media by URI.
    FileData {
        mime_type: AdkText<'a> = "mimeType" | "mime_type",
        uri: AdkText<'a> = "fileUri" | "file_uri",
        name: AdkText<'a> = "displayName" | "display_name",
    }
    /// Code that the model's provider executes.
    ExecutableCode {
        id: AdkText<'a> = "id",
        code: AdkText<'a> = "code",
        language: AdkText<'a> = "language",
    }
    /// The result of an [`ExecutableCode`].
    CodeExecutionResult {
        id: AdkText<'a> = "id",
        outcome: AdkText<'a> = "outcome",
        output: AdkText<'a> = "output",
    }
    /// Side effects of an event. Ignored on partial events.
    EventActions {
        state: RawEntries<'a> = "stateDelta" | "state_delta",
        artifacts: RawEntries<'a> = "artifactDelta" | "artifact_delta",
        transfer: AdkText<'a> = "transferToAgent" | "transfer_to_agent",
        transfer_reason: AdkText<'a> = "transferReason" | "transfer_reason",
        escalate: bool = "escalate",
        skip_summarization: bool = "skipSummarization" | "skip_summarization",
        auth: RawEntries<'a> = "requestedAuthConfigs" | "requested_auth_configs",
        confirmations: RawEntries<'a> = "requestedToolConfirmations" | "requested_tool_confirmations",
        rewind: AdkText<'a> = "rewindBeforeInvocationId" | "rewind_before_invocation_id",
        compaction: &'a RawValue = "compaction",
        end_of_agent: &'a RawValue = "endOfAgent" | "end_of_agent",
        agent_state: &'a RawValue = "agentState" | "agent_state",
        route: &'a RawValue = "route",
        widgets: &'a RawValue = "renderUiWidgets" | "render_ui_widgets",
        model_response: &'a RawValue = "setModelResponse" | "set_model_response",
    }
    /// A range of the history and its summary.
    EventCompaction {
        start: f64 = "startTimestamp" | "start_timestamp",
        end: f64 = "endTimestamp" | "end_timestamp",
        content: AdkContent<'a> = "compactedContent" | "compacted_content",
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
    /// The sources of a text.
    GroundingMetadata {
        chunks: Vec<GroundingChunk<'a>> = "groundingChunks" | "grounding_chunks",
        supports: Vec<GroundingSupport<'a>> = "groundingSupports" | "grounding_supports",
    }
    /// One source: a web page, a document of a search index, or a place on a map.
    GroundingChunk {
        web: GroundingSource<'a> = "web",
        retrieved: GroundingSource<'a> = "retrievedContext" | "retrieved_context",
        maps: GroundingSource<'a> = "maps",
    }
    /// Title and address of a source.
    GroundingSource {
        uri: AdkText<'a> = "uri",
        title: AdkText<'a> = "title",
        domain: AdkText<'a> = "domain",
        text: AdkText<'a> = "text",
        document: AdkText<'a> = "documentName" | "document_name",
    }
    /// The text that some sources support.
    GroundingSupport {
        chunks: Vec<f64> = "groundingChunkIndices" | "grounding_chunk_indices",
        segment: TextSegment<'a> = "segment",
    }
    /// A range of a text.
    TextSegment {
        part: f64 = "partIndex" | "part_index",
        start: f64 = "startIndex" | "start_index",
        end: f64 = "endIndex" | "end_index",
        text: AdkText<'a> = "text",
    }
    /// The citations of a text.
    CitationMetadata {
        citations: Vec<Citation<'a>> = "citations",
    }
    /// One citation.
    Citation {
        uri: AdkText<'a> = "uri",
        title: AdkText<'a> = "title",
        license: AdkText<'a> = "license",
        start: f64 = "startIndex" | "start_index",
        end: f64 = "endIndex" | "end_index",
    }
    /// Details in the error frame of a 2.x server.
    ErrorDetails {
        kind: AdkText<'a> = "error_type" | "errorType",
        message: AdkText<'a> = "error_message" | "errorMessage",
    }
    /// A stored session.
    SessionBody {
        id: AdkText<'a> = "id",
        app: AdkText<'a> = "appName" | "app_name",
        user: AdkText<'a> = "userId" | "user_id",
        state: &'a RawValue = "state",
        events: Vec<&'a RawValue> = "events",
        updated: f64 = "lastUpdateTime" | "last_update_time",
    }
    /// One validation error of the API server about a request.
    ValidationError {
        location: Vec<&'a RawValue> = "loc",
        message: AdkText<'a> = "msg",
    }
}
