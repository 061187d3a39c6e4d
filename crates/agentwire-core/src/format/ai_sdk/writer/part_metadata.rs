//! Metadata of a written part, encoded as the part's `providerMetadata`.
//!
//! Clients keep `providerMetadata` with the part and send it back with the history. This way a later request contains the
//! message ids that the agent used, and signatures are preserved.

use super::encode;
use crate::{
    event::{Event, SubagentId},
    format::ai_sdk::{
        reader::metadata::{self, is_provider_metadata},
        wire::{AGENTWIRE, native},
    },
    json::{Json, Object},
};

/// Metadata of a part.
#[derive(Clone, Debug, Default)]
pub(super) struct PartMetadata {
    pub(super) subagent: Option<SubagentId>,
    pub(super) name: Option<Box<str>>,
    pub(super) title: Option<Box<str>>,
    pub(super) encrypted: Option<Box<str>>,
    pub(super) metadata: Option<Object>,
}

impl PartMetadata {
    /// Metadata of the event that opens a part.
    pub(super) fn of(event: &Event) -> Self {
        Self { subagent: event.subagent.clone(), metadata: event.metadata().cloned(), ..Self::default() }
    }

    /// Merges the metadata of a later event; returns true if there was any.
    pub(super) fn merge(&mut self, metadata: Option<&Object>) -> bool {
        let Some(later) = metadata else { return false };
        self.metadata = Some(match &self.metadata {
            Some(earlier) => metadata::merged(earlier, later),
            None => later.clone(),
        });
        true
    }

    /// Returns true if a provider attached metadata; such a part is written even without text.
    pub(super) fn has_provider_metadata(&self) -> bool {
        provider_metadata(self.metadata.as_ref()).is_some()
    }

    /// Encodes `providerMetadata`, two levels deep as clients require, with the message id under `id_key`. If the source
    /// is an AI SDK server, the metadata of its providers is included. `None` if empty.
    pub(super) fn to_provider_metadata(&self, id_key: &'static str, id: Option<&str>) -> Option<Json> {
        let (metadata, providers) = match &self.metadata {
            Some(metadata) => split_provider_metadata(metadata),
            None => (None, Vec::new()),
        };
        let members = encode::build_object(|w| {
            w.opt_str(id_key, id)
                .opt_str("subagentId", self.subagent.as_deref())
                .opt_str("name", self.name.as_deref())
                .opt_str("title", self.title.as_deref())
                .opt_str("encrypted", self.encrypted.as_deref());
            if let Some(metadata) = &metadata {
                w.json("metadata", &encode::sanitize(metadata.as_json()).0);
            }
        });
        let members = (!members.is_empty()).then(|| (AGENTWIRE.to_owned(), Json::from(members)));
        let all: Vec<_> = providers.into_iter().chain(members).collect();
        let all = Object::from_entries(all.iter().map(|(key, value)| (key.as_str(), value.clone())));
        (!all.is_empty()).then(|| all.into())
    }
}

/// Splits metadata into the members that the chunks do not encode otherwise, and the entries of other providers.
fn split_provider_metadata(metadata: &Object) -> (Option<Object>, Vec<(String, Json)>) {
    let providers = provider_metadata(Some(metadata));
    let mut encoded = vec![native::PART, native::PROVIDER_EXECUTED, native::INPUT, native::INPUT_ERROR];
    if providers.is_some() {
        encoded.push(native::PROVIDER_METADATA);
    }
    let rest = metadata::without_native(metadata, &encoded);
    (rest, providers.map(|it| it.entries()).unwrap_or_default())
}

/// Metadata of model providers in canonical metadata, if it has the shape that clients accept.
pub(in super::super) fn provider_metadata(metadata: Option<&Object>) -> Option<Object> {
    let found = metadata::native(metadata)?.member(native::PROVIDER_METADATA).filter(is_provider_metadata)?;
    encode::sanitized(&found).into_object()
}

/// `providerMetadata` of `providers` and the members of agentwire; `None` if both are empty.
pub(in super::super) fn with_agentwire(providers: Option<Object>, members: Object) -> Option<Object> {
    let all = providers.unwrap_or_else(Object::empty).without(AGENTWIRE);
    let all = if members.is_empty() { all } else { all.with(AGENTWIRE, members.into()) };
    (!all.is_empty()).then_some(all)
}

/// Splits the detail of a source into its own members and the metadata of providers.
pub(in super::super) fn split_source_detail(detail: Option<&Object>) -> (Option<Json>, Option<Object>) {
    let Some(detail) = detail else { return (None, None) };
    let providers =
        detail.member(native::PROVIDER_METADATA).filter(is_provider_metadata).and_then(Json::into_object);
    let rest = if providers.is_some() { detail.without(native::PROVIDER_METADATA) } else { detail.clone() };
    ((!rest.is_empty()).then(|| rest.into()), providers)
}
