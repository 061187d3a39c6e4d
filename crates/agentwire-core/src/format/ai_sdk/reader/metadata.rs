//! Metadata of events and messages: the member `aiSdk` of canonical metadata, and `providerMetadata` of received parts.
//!
//! AI SDK values without a canonical equivalent are stored in `metadata.aiSdk` by the readers; the writers restore them from
//! there.

use serde_json::Value;

use crate::{
    event::{MessageId, SubagentId},
    format::ai_sdk::wire::{AGENTWIRE, AI_SDK, native as members},
    json::{Json, Object},
};

/// `providerMetadata` of a received part: the members that agentwire's writer put there, and the rest.
#[derive(Debug, Default)]
pub(in super::super) struct ReceivedMetadata {
    pub(in super::super) message: Option<MessageId>,
    pub(in super::super) subagent: Option<SubagentId>,
    pub(in super::super) name: Option<Box<str>>,
    pub(in super::super) title: Option<Box<str>>,
    pub(in super::super) encrypted: Option<Box<str>>,
    /// Canonical metadata, with that of other providers under `aiSdk.providerMetadata`.
    pub(in super::super) metadata: Option<Object>,
}

impl ReceivedMetadata {
    /// Reads `providerMetadata`; `id_key` is the member that names the canonical message.
    pub(in super::super) fn parse(metadata: Option<&Object>, id_key: &str) -> Self {
        let Some(metadata) = metadata else { return Self::default() };
        let agentwire = agentwire_member(Some(metadata));
        let foreign = metadata.without(AGENTWIRE);
        let canonical =
            agentwire.as_ref().and_then(|members| members.member("metadata")).and_then(Json::into_object);
        let canonical = if foreign.is_empty() {
            canonical
        } else {
            Some(with_native(canonical, members::PROVIDER_METADATA, foreign.into()))
        };
        let text = |key: &str| agentwire.as_ref().and_then(|members| members.get_str(key));
        Self {
            message: text(id_key).map(Into::into),
            subagent: text("subagentId").map(Into::into),
            name: text("name").map(Into::into),
            title: text("title").map(Into::into),
            encrypted: text("encrypted").map(Into::into),
            metadata: canonical,
        }
    }

    /// Metadata of a part of which only the message id is known.
    pub(in super::super) fn of_message(id: impl Into<MessageId>) -> Self {
        Self { message: Some(id.into()), ..Self::default() }
    }
}

/// The member `agentwire` of provider or message metadata.
pub(in super::super) fn agentwire_member(metadata: Option<&Object>) -> Option<Object> {
    metadata?.member(AGENTWIRE)?.into_object()
}

/// The member `aiSdk` of canonical metadata.
pub(in super::super) fn native(metadata: Option<&Object>) -> Option<Object> {
    metadata?.member(AI_SDK)?.into_object()
}

/// `metadata` with `aiSdk.<key>` set.
pub(in super::super) fn with_native(metadata: Option<Object>, key: &str, value: Json) -> Object {
    let native = native(metadata.as_ref()).unwrap_or_else(Object::empty);
    metadata.unwrap_or_else(Object::empty).with(AI_SDK, native.with(key, value).into())
}

/// `metadata` overlaid with that of a later event; `aiSdk` is merged member by member.
pub(in super::super) fn merged(metadata: &Object, later: &Object) -> Object {
    let native = native(Some(later)).map(|native| native.entries()).unwrap_or_default();
    let all = metadata.merged(&later.without(AI_SDK));
    native.into_iter().fold(all, |all, (key, value)| with_native(Some(all), &key, value))
}

/// `metadata` without the members `keys` of `aiSdk`; `None` if nothing is left.
pub(in super::super) fn without_native(metadata: &Object, keys: &[&str]) -> Option<Object> {
    let rest = match native(Some(metadata)) {
        Some(native) => {
            let native = keys.iter().fold(native, |native, key| native.without(key));
            if native.is_empty() { metadata.without(AI_SDK) } else { metadata.with(AI_SDK, native.into()) }
        }
        None => metadata.clone(),
    };
    (!rest.is_empty()).then_some(rest)
}

/// `true` as JSON, the value of flags.
pub(in super::super) fn json_true() -> Json {
    Json::from(Value::Bool(true))
}

/// Returns true if `aiSdk.<key>` is `true`.
pub(in super::super) fn has_native_flag(metadata: Option<&Object>, key: &str) -> bool {
    native(metadata).and_then(|native| native.member(key)).is_some_and(|flag| flag.get() == "true")
}

/// Returns true for `{provider: {key: any}}`, the only shape of provider metadata that clients accept.
pub(in super::super) fn is_provider_metadata(metadata: &Json) -> bool {
    let value = metadata.to_value();
    value.as_object().is_some_and(|providers| providers.values().all(Value::is_object))
}
