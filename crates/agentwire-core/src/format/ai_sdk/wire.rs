//! Names and native shapes of the AI SDK's streams: data parts, metadata members, fixed texts.
//!
//! The SDK leaves some places open (data parts, provider metadata, message metadata). The names that agentwire uses there
//! are also defined here, because reader and writer must agree on them.

use std::borrow::Cow;

use serde::Deserialize;

/// Chunk `text-delta` of the UI message stream without optional fields: about nine tenths of all chunks of a stream.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TextDeltaChunk<'a> {
    #[serde(borrow, rename = "type")]
    pub(super) kind: Cow<'a, str>,
    #[serde(borrow)]
    pub(super) id: Cow<'a, str>,
    #[serde(borrow)]
    pub(super) delta: Cow<'a, str>,
}

/// Provider name of agentwire's own metadata: `providerMetadata.agentwire`, `metadata.agentwire`.
pub(super) const AGENTWIRE: &str = "agentwire";

/// Member of canonical metadata that keeps AI SDK values without a canonical equivalent: `metadata.aiSdk`.
pub(super) const AI_SDK: &str = "aiSdk";

/// Members of `metadata.aiSdk`.
pub(super) mod native {
    /// On runs, steps and messages: id of the UI message that they belong to.
    pub(in super::super) const MESSAGE_ID: &str = "message";
    /// On runs: `messageMetadata` of the `start` chunk. On messages: metadata that is not an object.
    pub(in super::super) const MESSAGE_METADATA: &str = "metadata";
    /// On messages: parts without a canonical form.
    pub(in super::super) const PARTS: &str = "parts";
    /// On messages: members that the reader does not know.
    pub(in super::super) const UNKNOWN_MEMBERS: &str = "more";
    /// On steps: the name was generated, because the SDK's steps have none.
    pub(in super::super) const UNNAMED: &str = "unnamed";
    /// On tool calls: [`STATIC`] for a part of a tool that the user interface declares (`tool-NAME`).
    pub(in super::super) const PART: &str = "part";
    pub(in super::super) const STATIC: &str = "static";
    /// On tool calls: the provider runs the tool.
    pub(in super::super) const PROVIDER_EXECUTED: &str = "providerExecuted";
    /// A system message that belongs to one request.
    pub(in super::super) const SYSTEM: &str = "requestSystem";
    pub(in super::super) const TITLE: &str = "title";
    pub(in super::super) const TOOL_METADATA: &str = "toolMetadata";
    /// On tool calls: the input, where the argument text does not determine it: a string that parses as JSON, or
    /// arguments that were repaired or completed after streaming.
    pub(in super::super) const INPUT: &str = "input";
    /// On tool calls: the reason why the input is invalid.
    pub(in super::super) const INPUT_ERROR: &str = "inputError";
    /// On tool results: `text` or `json`, where the content does not determine the type of the output.
    pub(in super::super) const OUTPUT_TYPE: &str = "output";
    /// On tool results: a person denied the call.
    pub(in super::super) const DENIED: &str = "denied";
    /// On denied tool results: id of the approval request. On tool calls: the whole approval object.
    pub(in super::super) const APPROVAL: &str = "approval";
    /// On files: the file is part of the reasoning.
    pub(in super::super) const REASONING: &str = "reasoning";
    /// Metadata of model providers about a part.
    pub(in super::super) const PROVIDER_METADATA: &str = "providerMetadata";
}

/// Tool name of the call that represents an interrupt which an approval request cannot express.
pub(super) const INTERRUPT_TOOL: &str = "interrupt";

/// Id of the only state part.
pub(super) const STATE_ID: &str = "state";

/// CUSTOM events of this name report progress of a tool: `{toolCallId, output}`.
pub(super) const TOOL_PROGRESS: &str = "agentwire.tool_progress";

/// CUSTOM events of this name carry metadata of the message.
pub(super) const MESSAGE_METADATA: &str = "message-metadata";

/// CUSTOM events of this name carry an annotation of the message (AI SDK 4).
pub(super) const ANNOTATION: &str = "message-annotation";

/// CUSTOM events of this name carry an unnamed item of AI SDK 4's data array.
pub(super) const DATA_ITEM: &str = "data";

/// CUSTOM events of this name carry a provider-specific part (AI SDK 7): `{kind, providerMetadata}`.
pub(super) const PROVIDER_PART: &str = "ai-sdk.custom";

/// Error text of a tool part whose call was open when its run was cancelled or failed.
pub(super) const UNFINISHED: &str = "the run ended before the tool was called";

/// Error text of a tool call that a person denied.
pub(super) const DENIED: &str = "denied by the user";

/// Names of the data parts that carry canonical events without a native part.
pub(super) mod data_part {
    pub(in super::super) const STATE: &str = "state";
    pub(in super::super) const ACTIVITY: &str = "activity";
    pub(in super::super) const STEP: &str = "step";
    pub(in super::super) const INTERRUPT: &str = "interrupt";
    pub(in super::super) const SUBAGENT: &str = "subagent";
    pub(in super::super) const BLOCK: &str = "block";
    pub(in super::super) const COLLABORATION: &str = "collaboration";
    pub(in super::super) const MESSAGE: &str = "message";
    pub(in super::super) const RAW: &str = "raw";
    pub(in super::super) const ENCRYPTED: &str = "encrypted";
    pub(in super::super) const FILE: &str = "file";
    pub(in super::super) const CHAIN_START: &str = "chain-start";
    pub(in super::super) const TOOL_PROGRESS: &str = "tool-progress";

    /// All names above. CUSTOM events of applications must not use them on the wire.
    pub(in super::super) const RESERVED: &[&str] = &[
        STATE,
        ACTIVITY,
        STEP,
        INTERRUPT,
        SUBAGENT,
        BLOCK,
        COLLABORATION,
        MESSAGE,
        RAW,
        ENCRYPTED,
        FILE,
        CHAIN_START,
        TOOL_PROGRESS,
    ];
}
