//! The chunk that makes up nearly all of a stream, borrowed: one choice that says a piece of text or of thought.
//!
//! Whatever else a chunk holds makes this refuse it; the reader then takes it apart member by member.

use std::borrow::Cow;

use serde::{Deserialize, de::IgnoredAny};

/// Text, borrowed where it has no escape.
#[derive(Deserialize)]
pub(super) struct Text<'a>(#[serde(borrow)] pub(super) Cow<'a, str>);

/// Nothing but `null`.
type Null = Option<()>;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Chunk<'a> {
    #[serde(borrow)]
    pub(super) id: Text<'a>,
    #[serde(borrow, default)]
    pub(super) model: Option<Text<'a>>,
    #[serde(borrow, default)]
    pub(super) provider: Option<Text<'a>>,
    #[serde(borrow)]
    pub(super) choices: (Choice<'a>,),
    #[serde(default, rename = "usage")]
    _usage: Null,
    #[serde(borrow)]
    pub(super) object: Text<'a>,
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
pub(super) struct Choice<'a> {
    #[serde(default)]
    pub(super) index: u32,
    #[serde(borrow)]
    pub(super) delta: Delta<'a>,
    #[serde(default, rename = "logprobs")]
    _logprobs: IgnoredAny,
    #[serde(default, rename = "finish_reason")]
    _finish_reason: Null,
    #[serde(default, rename = "native_finish_reason")]
    _native_finish_reason: Null,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Delta<'a> {
    #[serde(borrow, default)]
    pub(super) content: Option<Text<'a>>,
    #[serde(borrow, default)]
    pub(super) reasoning: Option<Text<'a>>,
    #[serde(borrow, default)]
    pub(super) reasoning_content: Option<Text<'a>>,
    #[serde(default, rename = "role")]
    _role: IgnoredAny,
    #[serde(default, rename = "refusal")]
    _refusal: Null,
    #[serde(default, rename = "tool_calls")]
    _tool_calls: Null,
    #[serde(default, rename = "function_call")]
    _function_call: Null,
}
