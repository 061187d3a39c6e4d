//! The shape of the chunk that makes up nearly all of a stream: one choice with a piece of text or reasoning.
//!
//! All values borrow from the frame. A chunk with any other member does not match this shape; the reader then decodes it
//! member by member (`reader/chunk.rs`).

use std::borrow::Cow;

use serde::{Deserialize, de::IgnoredAny};

/// A string, borrowed unless it contains an escape.
#[derive(Deserialize)]
pub(super) struct ChunkText<'a>(#[serde(borrow)] pub(super) Cow<'a, str>);

/// A member that must be `null` or missing.
type Null = Option<()>;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TextChunk<'a> {
    #[serde(borrow)]
    pub(super) id: ChunkText<'a>,
    #[serde(borrow, default)]
    pub(super) model: Option<ChunkText<'a>>,
    #[serde(borrow, default)]
    pub(super) provider: Option<ChunkText<'a>>,
    #[serde(borrow)]
    pub(super) choices: (TextChoice<'a>,),
    #[serde(default, rename = "usage")]
    _usage: Null,
    #[serde(borrow)]
    pub(super) object: ChunkText<'a>,
    #[serde(default, rename = "created")]
    _created: IgnoredAny,
    #[serde(default, rename = "system_fingerprint")]
    _system_fingerprint: IgnoredAny,
    #[serde(default, rename = "service_tier")]
    _service_tier: IgnoredAny,
    #[serde(default, rename = "obfuscation")]
    _obfuscation: IgnoredAny,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TextChoice<'a> {
    #[serde(default)]
    pub(super) index: u32,
    #[serde(borrow)]
    pub(super) delta: TextChoiceDelta<'a>,
    #[serde(default, rename = "logprobs")]
    _logprobs: IgnoredAny,
    #[serde(default, rename = "finish_reason")]
    _finish_reason: Null,
    #[serde(default, rename = "native_finish_reason")]
    _native_finish_reason: Null,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TextChoiceDelta<'a> {
    #[serde(borrow, default)]
    pub(super) content: Option<ChunkText<'a>>,
    #[serde(borrow, default)]
    pub(super) reasoning: Option<ChunkText<'a>>,
    #[serde(borrow, default)]
    pub(super) reasoning_content: Option<ChunkText<'a>>,
    #[serde(default, rename = "role")]
    _role: IgnoredAny,
    #[serde(default, rename = "refusal")]
    _refusal: Null,
    #[serde(default, rename = "tool_calls")]
    _tool_calls: Null,
    #[serde(default, rename = "function_call")]
    _function_call: Null,
}
